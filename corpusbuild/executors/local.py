"""A pool of worker processes on this machine: one task a process, so that a death is blamed on exactly the task that died.

Each worker has a thread here, its lane, which starts the process when there is work for it, hands it one task at a time, and kills
it when the task runs too long, holds too much or is not wanted any more. Lanes are started on demand and live as long as the pool.
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
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Condition, Thread

from corpusbuild.errors import Cancelled
from corpusbuild.executors import memory
from corpusbuild.executors.base import Attempt, Executor
from corpusbuild.executors.call import Ending, Reply
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


class Local(Executor):
    def __init__(self, workers: int, memory_limit: int | None = None, recycle: int = RECYCLE):
        """``memory_limit`` bounds what running tasks ask for together, in bytes; a task that asks for more than that runs alone."""
        self.name = f"local:{workers}"
        self.memory = self._budget = memory_limit or memory.usable()
        self._workers, self._recycle = workers, recycle
        self._changed = Condition()  # guards all that follows
        self._queue: deque[_Job] = deque()
        self._running: set[_Job] = set()
        self._lanes: list[Thread] = []
        self._idle = 0
        self._closed = False

    def slots(self) -> int:
        return self._workers

    def session(self) -> "_Session":
        return _Session(self)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._drop([*self._queue, *self._running])
        for lane in self._lanes:
            lane.join(2 * GRACE)

    def submit(self, job: _Job) -> None:
        with self._changed:
            if self._closed:
                raise Cancelled(f"{job.attempt.key}: the executor was closed")
            self._queue.append(job)
            if len(self._queue) > self._idle and len(self._lanes) < self._workers:
                # A daemon, so that a driver that dies of an exception is not kept alive by its workers.
                lane = Thread(target=self._lane, name=f"worker-{len(self._lanes)}", daemon=True)
                self._lanes.append(lane)
                self._idle += 1
                lane.start()
            self._changed.notify_all()  # not one: it might be a cancel that waits, and not a lane

    def cancel(self, home: "SimpleQueue[tuple[Attempt, Reply]]") -> None:
        """Kills the jobs whose replies would go to ``home``, and returns when none of them runs."""
        with self._changed:
            jobs = [job for job in (*self._queue, *self._running) if job.home is home]
            self._drop(jobs)
            self._changed.wait_for(lambda: self._running.isdisjoint(jobs), timeout=5)

    def _drop(self, jobs: list[_Job]) -> None:
        for job in jobs:
            job.cancelled = True
            if job not in self._running:
                self._queue.remove(job)
                job.home.put((job.attempt, Reply("cancelled")))
        self._changed.notify_all()

    def _lane(self) -> None:
        # The process started from here inherits the mask: a Ctrl-C while it starts up must not reach it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        worker: _Worker | None = None
        try:
            while (job := self._next()) is not None:
                if worker is None or not worker.alive():
                    try:
                        if worker:
                            worker.end()
                        worker = _Worker()
                    except OSError as error:
                        self._finish(job, Reply("crash", message=f"no worker process could be started: {error}"))
                        continue
                reply = worker.run(job)
                if worker.worn(job, reply, self._recycle):
                    worker.end()
                self._finish(job, reply)
        finally:
            if worker:
                worker.end()

    def _next(self) -> _Job | None:
        """Waits for a job for which there is memory; None when the pool is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._queue and self._fits(self._queue[0])))
            if self._closed:
                return None
            job = self._queue.popleft()
            self._running.add(job)
            self._idle -= 1
            return job

    def _fits(self, job: _Job) -> bool:
        asked = sum(running.attempt.resources.memory for running in self._running)
        return not self._running or asked + job.attempt.resources.memory <= self._budget

    def _finish(self, job: _Job, reply: Reply) -> None:
        with self._changed:
            self._running.discard(job)
            self._idle += 1
            self._changed.notify_all()
        job.home.put((job.attempt, reply))


class _Session:
    def __init__(self, pool: Local):
        self._pool = pool
        self._home: SimpleQueue[tuple[Attempt, Reply]] = SimpleQueue()

    def submit(self, attempt: Attempt) -> None:
        self._pool.submit(_Job(attempt, self._home))

    def wait(self) -> list[tuple[Attempt, Reply]]:
        try:
            # With a timeout, since a signal that comes just before a wait without one would not be seen until it ends.
            ended = [self._home.get(timeout=TICK)]
        except Empty:
            return []
        while not self._home.empty():
            ended.append(self._home.get())
        return ended

    def cancel(self) -> None:
        self._pool.cancel(self._home)


class _Ended(Exception):
    """The worker is not going to answer. ``kind`` is ``cancelled`` or what its task is to be blamed for."""

    def __init__(self, kind: Ending, message: str = ""):
        self.kind, self.message = kind, message


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
        deadline = None if timeout is None else time.monotonic() + timeout
        unsent, received = memoryview(message), bytearray()
        try:
            while True:
                self._poll.register(self._socket, select.POLLIN | (select.POLLOUT if unsent else 0))
                events = self._poll.poll(TICK * 1000)
                if not events:
                    self._look(job, deadline, timeout)
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

    def _look(self, job: _Job, deadline: float | None, timeout: float | None) -> None:
        if job.cancelled:
            raise _Ended("cancelled")
        if not self.alive():
            raise self._death()
        if deadline is not None and time.monotonic() > deadline:
            raise _Ended("timeout", f"ran longer than {timeout:g} s")
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
