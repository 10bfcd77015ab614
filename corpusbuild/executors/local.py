"""A pool of worker processes on this machine: one task a process, so that a death is blamed on exactly the task that died.

Each worker has a thread here, its lane, which starts the process when there is work for it, hands it one task at a time, and kills
it when the task runs too long, holds too much or is not wanted any more. Lanes are hired on demand and live as long as the pool.
"""

import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread

from corpusbuild.errors import Cancelled
from corpusbuild.executors import memory
from corpusbuild.executors.base import Attempt, Executor
from corpusbuild.executors.call import Kind, Reply
from corpusbuild.executors.pulse import pulse
from corpusbuild.executors.worker import HEADER

TICK = 0.1
"""Seconds between two looks at a task that runs: its time, its memory, and whether it is still wanted."""
START_SECONDS = 60.0
"""What a worker process may take until it is ready."""
GRACE = 1.0
"""Seconds for a process that has hung up, or been asked to, to be gone by itself."""
RECYCLE = 1000
"""Tasks after which a worker process is replaced, since libraries leak."""

BOOT = "import sys; sys.path[:] = {path!r}; from corpusbuild.executors.worker import serve; serve({channel}, {parent})"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
"""A worker is one task on one core, so libraries in it start no pools of their own, unless the person has said otherwise."""


@dataclass(eq=False)
class _Job:
    attempt: Attempt
    home: "SimpleQueue[tuple[Attempt, Reply]]"
    cancelled: bool = False


@dataclass(eq=False)
class _Lane:
    jobs: "SimpleQueue[_Job | None]"
    thread: Thread


class Local(Executor):
    """The pool. Its state belongs to one thread, the foreman, and others only send it orders and set flags: a lock or a thread
    object that the main thread used could be left broken by a Ctrl-C, which may come between any two steps of it. A SimpleQueue cannot."""

    def __init__(self, workers: int, memory_limit: int | None = None, recycle: int = RECYCLE):
        """``memory_limit`` bounds what running tasks ask for together, in bytes; a task that asks for more than that runs alone."""
        self.name = f"local:{workers}"
        self.memory = self._budget = memory_limit or memory.usable()
        self._workers, self._recycle = workers, recycle
        self._closing = False
        self._orders: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._queue: deque[_Job] = deque()
        self._running: set[_Job] = set()
        self._lanes: list[_Lane] = []
        self._idle: list[_Lane] = []
        self._cancels: list[tuple[set[_Job], SimpleQueue[None]]] = []
        self._gone = False
        self._ended: SimpleQueue[None] = SimpleQueue()
        # A daemon as the lanes are, so that a driver that dies of an exception is not kept alive by its workers.
        Thread(target=self._work, name="foreman", daemon=True).start()

    @property
    def closed(self) -> bool:
        return self._closing

    def slots(self) -> int:
        return self._workers

    def session(self) -> "_Session":
        return _Session(self)

    def close(self) -> None:
        self._closing = True
        self._orders.put(lambda: None)
        _told(self._ended, lambda: self._gone)

    def submit(self, job: _Job) -> None:
        self._orders.put(lambda: self._queue.append(job))

    def cancel(self, home: "SimpleQueue[tuple[Attempt, Reply]]") -> "SimpleQueue[None]":
        """Kills the jobs whose replies would go to ``home``; the queue given hears of it when none of them runs."""
        done: SimpleQueue[None] = SimpleQueue()
        self._orders.put(lambda: self._cancel(home, done))
        return done

    def _work(self) -> None:
        """The life of the foreman's thread."""
        try:
            while not self._closing:
                self._orders.get()()
                self._assign()
        finally:
            self._closing = True
            for job in self._running:
                job.cancelled = True
            for lane in self._lanes:
                lane.jobs.put(None)
            for lane in self._lanes:
                lane.thread.join(2 * GRACE)
            self._gone = True
            self._ended.put(None)

    def _assign(self) -> None:
        """Hands waiting jobs to lanes, in their order, as far as there is memory; hires a lane only when none is idle."""
        while self._queue and self._fits(self._queue[0]) and (self._idle or len(self._lanes) < self._workers):
            lane = self._idle.pop() if self._idle else self._hire()
            job = self._queue.popleft()
            self._running.add(job)
            lane.jobs.put(job)

    def _fits(self, job: _Job) -> bool:
        asked = sum(running.attempt.resources.memory for running in self._running)
        return not self._running or asked + job.attempt.resources.memory <= self._budget

    def _hire(self) -> _Lane:
        jobs: SimpleQueue[_Job | None] = SimpleQueue()
        lane = _Lane(jobs, Thread(target=lambda: self._drive(lane), name=f"lane-{len(self._lanes)}", daemon=True))
        self._lanes.append(lane)
        lane.thread.start()
        return lane

    def _cancel(self, home: "SimpleQueue[tuple[Attempt, Reply]]", done: "SimpleQueue[None]") -> None:
        self._queue = deque(job for job in self._queue if job.home is not home)
        jobs = {job for job in self._running if job.home is home}
        for job in jobs:
            job.cancelled = True
        self._cancels.append((jobs, done))
        self._tell_cancelled()

    def _finish(self, lane: _Lane, job: _Job) -> None:
        self._running.remove(job)
        self._idle.append(lane)
        self._tell_cancelled()

    def _tell_cancelled(self) -> None:
        for jobs, done in self._cancels:
            if self._running.isdisjoint(jobs):
                done.put(None)
        self._cancels = [(jobs, done) for jobs, done in self._cancels if not self._running.isdisjoint(jobs)]

    def _drive(self, lane: _Lane) -> None:
        """The life of a lane's thread."""
        # The process started from here inherits the mask: a Ctrl-C while it starts up must not reach it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        worker: _Worker | None = None
        while (job := lane.jobs.get()) is not None:
            try:
                if worker is None or not worker.alive():
                    if worker:
                        worker.end()
                    worker = _Worker()
                reply = worker.run(job)
                if worker.worn(job, reply, self._recycle):
                    worker.end()
            except OSError as error:
                reply = Reply("crash", message=f"no worker process could be started: {error}")
            # In this order, so that the lane counts as idle before the next job can come.
            self._orders.put(partial(self._finish, lane, job))
            if not job.cancelled:
                job.home.put((job.attempt, reply))
        if worker:
            worker.end()


class _Session:
    def __init__(self, pool: Local):
        self._pool = pool
        self._home: SimpleQueue[tuple[Attempt, Reply]] = SimpleQueue()

    def submit(self, attempt: Attempt) -> None:
        self._pool.submit(_Job(attempt, self._home))

    def wait(self) -> list[tuple[Attempt, Reply]]:
        if self._pool.closed:
            raise Cancelled("the executor was closed under its work")
        try:
            # With a timeout, since a signal that comes just before a wait without one would not be seen until it ends.
            ended = [self._home.get(timeout=TICK)]
        except Empty:
            return []
        while not self._home.empty():
            ended.append(self._home.get())
        return ended

    def cancel(self) -> None:
        _told(self._pool.cancel(self._home), lambda: self._pool.closed)


def _told(queue: "SimpleQueue[None]", given_up: Callable[[], bool]) -> bool:
    """Waits to hear of it, for a few seconds at most: a process in the middle of a failing disk operation does not die."""
    deadline = time.monotonic() + 4 * GRACE
    while not given_up() and time.monotonic() < deadline:
        try:
            queue.get(timeout=TICK)
            return True
        except Empty:
            continue
    return False


class _Ended(Exception):
    """The worker is not going to answer. ``kind`` is what its task is to be blamed for."""

    def __init__(self, kind: Kind, message: str = ""):
        self.kind, self.message = kind, message


class _Stillness:
    """Since when a process has done nothing."""

    def __init__(self, limit: float | None, now: float):
        """``limit`` is how many seconds it may; None for ever."""
        self.limit = limit
        self._pulse: tuple[int, ...] | None = None
        self._since = now

    def too_long(self, pid: int) -> bool:
        if self.limit is None:
            return False
        now, seen = time.monotonic(), pulse(pid)
        if seen is None or seen != self._pulse:
            self._pulse, self._since = seen, now
        return now - self._since > self.limit


class _Worker:
    """One worker process and the socket to it. Used by one thread only, which must outlive it: Linux ties the process to that thread."""

    def __init__(self) -> None:
        """Raises OSError when the system gives no process."""
        self._socket, theirs = socket.socketpair()
        with theirs:
            boot = BOOT.format(path=sys.path, channel=theirs.fileno(), parent=os.getpid())
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", boot], stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), env=ONE_THREAD | os.environ
                )
            except OSError:
                self._socket.close()
                raise
        self._socket.setblocking(False)
        self._poll = select.poll()
        self._ready = False
        self._tasks = 0

    def alive(self) -> bool:
        return self._process.poll() is None

    def run(self, job: _Job) -> Reply:
        """Runs one attempt to its end, whatever that is. After any end but an answer the process is gone."""
        started = time.monotonic()
        self._tasks += 1
        try:
            if not self._ready:
                self._exchange(b"", job, START_SECONDS)
                self._ready = True
                started = time.monotonic()
            message = pickle.dumps((job.attempt.fn, job.attempt.item))
            return Reply(*pickle.loads(self._exchange(HEADER.pack(len(message)) + message, job, job.attempt.timeout)))
        except _Ended as ended:
            reply = Reply(ended.kind, message=ended.message)
        except Exception as bug:  # noqa: BLE001 - an exception would end the thread unseen, and the map would wait for ever
            reply = Reply("error", message=f"{type(bug).__name__}: {bug}", tb=traceback.format_exc())
        self._process.kill()
        self.end()
        return reply._replace(seconds=time.monotonic() - started, where=f"{os.uname().nodename}:{self._process.pid}")

    def worn(self, job: _Job, reply: Reply, recycle: int) -> bool:
        """Whether the process should be replaced: it is gone, has done its share, or its last task has left too much in memory."""
        if not self.alive() or self._tasks >= recycle:
            return True
        # Tasks too short to be watched are too short to be worth a look.
        return reply.seconds > TICK and memory.held(self._process.pid) > job.attempt.resources.memory // 2

    def end(self) -> None:
        """Hangs up, upon which an idle process ends by itself."""
        self._socket.close()
        try:
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _exchange(self, message: bytes, job: _Job, timeout: float | None) -> bytes:
        """Sends a message and waits for the next one of the worker, in pieces as they come, so that nothing here can block. Raises _Ended."""
        started = time.monotonic()
        deadline, still = None if timeout is None else started + timeout, _Stillness(job.attempt.heartbeat, started)
        unsent, received = memoryview(message), bytearray()
        try:
            while True:
                self._poll.register(self._socket, select.POLLIN | (select.POLLOUT if unsent else 0))
                events = self._poll.poll(TICK * 1000)
                if not events:
                    self._look(job, deadline, timeout, still)
                for _, event in events:
                    if event & select.POLLOUT:
                        unsent = unsent[self._socket.send(unsent) :]
                    if event & ~select.POLLOUT:
                        chunk = self._socket.recv(1 << 18)
                        if not chunk:
                            raise self._death()
                        received += chunk
                if len(received) >= HEADER.size and len(received) - HEADER.size == HEADER.unpack_from(received)[0]:
                    return bytes(received[HEADER.size :])
        except ConnectionError as error:
            raise self._death() from error

    def _look(self, job: _Job, deadline: float | None, timeout: float | None, still: "_Stillness") -> None:
        if job.cancelled:
            raise _Ended("lost", "it was cancelled")  # nobody will hear
        if not self.alive():
            raise self._death()
        if deadline is not None and time.monotonic() > deadline:
            raise _Ended("timeout", f"ran longer than {timeout:g} s")
        if still.too_long(self._process.pid):
            raise _Ended("timeout", f"stood still for {still.limit:g} s")
        allowed = job.attempt.resources.memory
        held = memory.held(self._process.pid)
        if held > allowed:
            raise _Ended("oom", f"held {held / 1e6:,.0f} MB of memory where {allowed / 1e6:,.0f} MB are allowed")

    def _death(self) -> _Ended:
        try:
            code = self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            return _Ended("crash", "its worker hung up")
        if code >= 0:
            return _Ended("crash", f"its worker ended with exit code {code}")
        return _Ended("crash", f"its worker was killed by {signal.Signals(-code).name}")
