"""What every executor must do. A test module subclasses Contract or IsolatedContract with the ``spec`` to open."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from suites import executor_tasks as tasks

from corpusbuild.errors import Cancelled, ConfigError, IntegrityError, SourceError, WorkerLost
from corpusbuild.executors import open_executor
from corpusbuild.executors.base import Executor, Outcome, Policy, Progress, Resources, TaskFailed
from corpusbuild.executors.call import LIMIT

MB = 1 << 20
YIELD = Policy(on_error="yield")


def twenty(folder: Path) -> list[tasks.Item]:
    return [(str(folder), number) for number in range(20)]


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Waits for another process; fails when it takes absurdly long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether a process has ended; one that waits to be reaped counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def failures(outcomes: list[Outcome[int]]) -> list[tuple[str, str, int]]:
    return [(o.key, o.error.kind, o.attempts) for o in outcomes if o.error]


DRIVER = """
import sys
sys.path[:] = {path!r}
from suites import executor_tasks as tasks
from corpusbuild.executors import open_executor
with open_executor({spec!r}, 2) as executor:
    list(executor.map(tasks.wait_for_ever, [({folder!r}, n) for n in range(5)], key=tasks.key))
"""


class Contract:
    """Holds for every executor."""

    spec: str

    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls) -> Iterator[Executor]:
        with open_executor(cls.spec, 2) as executor:
            yield executor

    def test_every_item_has_one_outcome(self, executor: Executor, tmp_path: Path) -> None:
        outcomes = list(executor.map(tasks.square, twenty(tmp_path), key=tasks.key))
        assert sorted((o.index, o.key, o.value) for o in outcomes) == [(n, f"item-{n}", n * n) for n in range(20)]
        assert all(o.ok and o.attempts == 1 and o.seconds >= 0 for o in outcomes)
        hosts, pids = zip(*(o.where.rsplit(":", 1) for o in outcomes), strict=True)
        assert set(map(int, pids)) == set(tasks.runs(tmp_path))
        assert all(hosts)

    def test_no_items_no_outcomes(self, executor: Executor) -> None:
        assert list(executor.map(tasks.noop, [], key=str)) == []

    def test_order_is_kept_when_asked_for(self, executor: Executor, tmp_path: Path) -> None:
        policy = Policy(ordered=True, window=3)
        assert [o.value for o in executor.map(tasks.slow_when_even, twenty(tmp_path), key=tasks.key, policy=policy)] == list(range(20))

    @pytest.mark.parametrize("ordered", [False, True])
    def test_items_are_taken_no_further_ahead_than_the_window(self, executor: Executor, ordered: bool) -> None:
        taken: list[int] = []

        def items() -> Iterator[int]:
            for number in range(100):
                taken.append(number)
                yield number

        outcomes = executor.map(tasks.noop, items(), key=str, policy=Policy(window=10, ordered=ordered))
        assert taken == []
        for ahead in range(10, 15):
            next(outcomes)
            assert len(taken) == ahead
        assert len(list(outcomes)) == 95

    def test_an_error_costs_its_item_and_is_never_tried_again(self, executor: Executor, tmp_path: Path) -> None:
        outcomes = list(executor.map(tasks.fail_at_7, twenty(tmp_path), key=tasks.key, policy=YIELD))
        assert failures(outcomes) == [("item-7", "error", 1)]
        assert len(outcomes) == 20
        assert len(tasks.runs(tmp_path)) == 20
        (failed,) = [o.error for o in outcomes if o.error]
        assert failed.message == "ValueError: seven is not to be had"
        assert "in fail_at_7" in failed.tb

    def test_an_error_of_ours_shows_the_workers_traceback(self, executor: Executor, tmp_path: Path) -> None:
        with pytest.raises(TaskFailed, match=r"^item-7: error: ValueError: seven") as raised:
            list(executor.map(tasks.fail_at_7, twenty(tmp_path), key=tasks.key))
        assert "in fail_at_7" in "".join(raised.value.__notes__)

    def test_an_exit_is_an_error(self, executor: Executor, tmp_path: Path) -> None:
        outcomes = list(executor.map(tasks.exit_at_7, twenty(tmp_path), key=tasks.key, policy=YIELD))
        assert failures(outcomes) == [("item-7", "error", 1)]

    @pytest.mark.parametrize(
        "error", [ConfigError("one", "two"), SourceError("web", "503", True), SourceError("web", "404"), IntegrityError("bytes")]
    )
    def test_a_corpus_error_is_raised_as_itself(self, executor: Executor, tmp_path: Path, error: Exception) -> None:
        with pytest.raises(type(error)) as raised:
            list(executor.map(partial(tasks.raise_at_7, error), twenty(tmp_path), key=tasks.key))
        assert raised.value.args == error.args
        assert str(raised.value) == str(error)
        assert vars(raised.value) == vars(error)
        assert (tmp_path / "runs-7").read_text().count("\n") == 1, "never tried again"

    def test_a_corpus_error_is_kept_in_an_outcome(self, executor: Executor, tmp_path: Path) -> None:
        fn = partial(tasks.raise_at_7, ConfigError("one", "two"))
        (failed,) = [o.error for o in executor.map(fn, twenty(tmp_path), key=tasks.key, policy=YIELD) if o.error]
        assert isinstance(failed.cause, ConfigError)
        assert failed.cause.args == ("one", "two")

    def test_a_cancel_from_inside_is_never_handed_out_as_a_failure(self, executor: Executor, tmp_path: Path) -> None:
        with pytest.raises(Cancelled):
            list(executor.map(tasks.cancelled_at_7, twenty(tmp_path), key=tasks.key, policy=YIELD))

    def test_passing_trouble_is_tried_again(self, executor: Executor, tmp_path: Path) -> None:
        outcomes = list(executor.map(tasks.transient_at_7, twenty(tmp_path), key=tasks.key))
        assert sorted(o.value for o in outcomes if o.value is not None) == list(range(20))
        assert {o.index: o.attempts for o in outcomes if o.attempts > 1} == {7: 2}

    def test_trouble_that_does_not_pass_ends_after_its_attempts(self, executor: Executor, tmp_path: Path) -> None:
        with pytest.raises(WorkerLost, match=r"^item-0: 503 Service Unavailable .*4 attempts.* run again later$"):
            list(executor.map(tasks.transient_for_ever, [(str(tmp_path), 0)], key=tasks.key, policy=Policy(attempts=4)))
        assert len(tasks.runs(tmp_path)) == 4

    def test_trouble_with_a_cause_of_ours_ends_in_that(self, executor: Executor, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match="for a long time") as raised:
            list(executor.map(tasks.transient_for_ever_with_a_cause, [(str(tmp_path), 0)], key=tasks.key))
        assert raised.value.retryable

    def test_a_lack_of_memory_that_is_told_is_tried_again(self, executor: Executor, tmp_path: Path) -> None:
        outcomes = list(executor.map(tasks.out_of_memory, [(str(tmp_path), 0)], key=tasks.key, policy=YIELD))
        assert failures(outcomes) == [("item-0", "oom", 3)]

    def test_the_first_failure_stops_the_rest(self, executor: Executor, tmp_path: Path) -> None:
        many = [(str(tmp_path), number) for number in range(1000)]
        with pytest.raises(TaskFailed):
            list(executor.map(tasks.fail_at_7, many, key=tasks.key))
        assert len(tasks.runs(tmp_path)) < 100

    def test_an_error_of_the_items_comes_through(self, executor: Executor, tmp_path: Path) -> None:
        def items() -> Iterator[tasks.Item]:
            yield from twenty(tmp_path)
            raise KeyError("no more")

        with pytest.raises(KeyError, match="no more"):
            list(executor.map(tasks.square, items(), key=tasks.key))
        assert len(list(executor.map(tasks.noop, range(3), key=str))) == 3

    def test_a_big_item_is_refused_and_costs_no_other(self, executor: Executor) -> None:
        outcomes = list(executor.map(tasks.length, [b"x", bytes(LIMIT), bytes(LIMIT - 100)], key=lambda item: str(len(item)), policy=YIELD))
        assert failures(outcomes) == [(str(LIMIT), "error", 1)]
        assert "send its path" in str(next(o.error for o in outcomes if o.error))
        assert sorted(o.value for o in outcomes if o.value) == [1, LIMIT - 100]

    def test_a_big_value_is_refused_and_costs_no_other(self, executor: Executor) -> None:
        outcomes = list(executor.map(tasks.of_size, [1, LIMIT, LIMIT - 100], key=str, policy=YIELD))
        assert failures(outcomes) == [(str(LIMIT), "error", 1)]
        assert sorted(len(o.value) for o in outcomes if o.value) == [1, LIMIT - 100]

    def test_what_cannot_be_pickled_is_an_error_of_its_item(self, executor: Executor, tmp_path: Path) -> None:
        assert failures(list(executor.map(tasks.noop, [lambda: 0], key=lambda _: "k", policy=YIELD))) == [("k", "error", 1)]
        assert failures(list(executor.map(tasks.unpicklable, [("", 0)], key=tasks.key, policy=YIELD))) == [("item-0", "error", 1)]
        outcomes = list(executor.map(tasks.moody, [("", 0)], key=tasks.key, policy=YIELD))
        assert "cannot be read back: not in this process" in str(outcomes[0].error)

    def test_a_function_that_no_worker_can_import_is_refused_at_once(self, executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(TypeError, match="at the top of a module"):
            executor.map(lambda item: item, [1], key=str)
        with pytest.raises(TypeError, match="at the top of a module"):
            executor.map(partial(tasks.raise_at_7, ConfigError("x" * LIMIT)), [("", 1)], key=tasks.key)
        monkeypatch.setattr(tasks.noop, "__module__", "__main__")
        with pytest.raises(TypeError, match="move it to a module"):
            executor.map(partial(tasks.noop), [1], key=str)

    def test_progress_is_told(self, executor: Executor, tmp_path: Path) -> None:
        told: list[Progress] = []
        list(executor.map(tasks.fail_at_7, twenty(tmp_path), key=tasks.key, policy=YIELD, progress=told.append))
        assert told[-1] == Progress(done=19, failed=1, retried=0, running=0, total=20)
        assert [p.done + p.failed for p in told] == sorted({p.done + p.failed for p in told})
        again = tmp_path / "again"
        again.mkdir()
        list(executor.map(tasks.transient_at_7, iter(twenty(again)), key=tasks.key, progress=told.append))
        assert told[-1] == Progress(done=20, failed=0, retried=1, running=0, total=None)

    def test_maps_may_be_taken_in_turns(self, executor: Executor) -> None:
        left, right = (executor.map(tasks.noop, range(50), key=str, policy=Policy(ordered=True, window=4)) for _ in range(2))
        assert [(a.value, b.value) for a, b in zip(left, right, strict=True)] == [(n, n) for n in range(50)]

    def test_maps_may_run_at_once(self, executor: Executor, tmp_path: Path) -> None:
        values: list[list[int | None]] = []

        def one_map() -> None:
            values.append(sorted(o.value or 0 for o in executor.map(tasks.noop, range(100), key=str)))

        threads = [threading.Thread(target=one_map) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert values == [list(range(100))] * 4

    def test_many_small_tasks(self, executor: Executor) -> None:
        assert sum(o.value == o.index for o in executor.map(tasks.noop, range(2000), key=str)) == 2000

    @pytest.mark.parametrize("times", [30, pytest.param(400, marks=pytest.mark.slow)])
    def test_a_cancel_at_any_moment_leaves_the_executor_whole(self, executor: Executor, times: int) -> None:
        """An interrupt may come between any two steps of the main thread, and must leave nothing locked or forgotten."""
        moments = random.Random(7)

        def map_some() -> None:
            assert len(list(executor.map(tasks.noop, range(5), key=str))) == 5

        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            for _ in range(times):
                with contextlib.suppress(KeyboardInterrupt):
                    # Again after a while, for where Python drops an exception because it cannot be raised.
                    signal.setitimer(signal.ITIMER_REAL, moments.uniform(1e-4, 5e-3), 0.5)
                    while True:
                        map_some()
                signal.setitimer(signal.ITIMER_REAL, 0)
                thread = threading.Thread(target=map_some, daemon=True)
                thread.start()
                thread.join(20)
                assert not thread.is_alive()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    @pytest.mark.slow
    def test_very_many_small_tasks_in_flat_memory(self, executor: Executor) -> None:
        before = resident()
        for done, outcome in enumerate(executor.map(tasks.noop, range(100_000), key=str)):
            assert outcome.ok
            if done == 5000:
                before = resident()
        assert resident() - before < 10 * MB


class IsolatedContract(Contract):
    """Holds where each attempt has a process that can die, or be killed, without harm to the driver."""

    def test_a_process_killed_once_costs_one_more_run(self, executor: Executor, tmp_path: Path) -> None:
        outcomes = list(executor.map(tasks.killed_once_at_7, twenty(tmp_path), key=tasks.key))
        assert {o.index: o.attempts for o in outcomes if o.attempts > 1} == {7: 2}
        assert len(outcomes) == 20
        assert len(tasks.runs(tmp_path)) == 21

    def test_a_poison_item_costs_its_own_attempts_only(self, executor: Executor, tmp_path: Path) -> None:
        outcomes = list(executor.map(tasks.poison_at_7, twenty(tmp_path), key=tasks.key, policy=YIELD))
        assert failures(outcomes) == [("item-7", "crash", 3)]
        assert len(outcomes) == 20
        assert len(tasks.runs(tmp_path)) == 22

    def test_a_worker_lost_for_good_is_one_line_with_a_remedy(self, executor: Executor, tmp_path: Path) -> None:
        with pytest.raises(WorkerLost) as raised:
            list(executor.map(tasks.poison_at_7, twenty(tmp_path), key=tasks.key))
        line = str(raised.value)
        assert "\n" not in line
        for part in ("item-7", "SIGKILL", "3 attempts", "run.workers", "run.memory"):
            assert part in line
        assert raised.value.exit_code == 75

    def test_other_ways_to_die(self, executor: Executor, tmp_path: Path) -> None:
        for fn, why in ((tasks.exits_at_7, "exit code 3"), (tasks.hangs_up_at_7, "hung up")):
            policy = Policy(on_error="yield", attempts=1)
            outcomes = list(executor.map(fn, twenty(tmp_path), key=tasks.key, policy=policy))
            assert failures(outcomes) == [("item-7", "crash", 1)]
            assert why in str(next(o.error for o in outcomes if o.error))

    def test_a_hanging_item_is_killed_when_its_time_is_up(self, executor: Executor, tmp_path: Path) -> None:
        policy = Policy(attempts=2, timeout=0.3, on_error="yield")
        outcomes = list(executor.map(tasks.hangs_at_7, twenty(tmp_path), key=tasks.key, policy=policy))
        assert failures(outcomes) == [("item-7", "timeout", 2)]
        assert len(outcomes) == 20
        assert all(gone(int(pid)) for pid in (tmp_path / "runs-7").read_text().split())
        with pytest.raises(WorkerLost, match=r"^item-7: ran longer than 0.3 s .*run\.workers"):
            list(executor.map(tasks.hangs_at_7, [(str(tmp_path), 7)], key=tasks.key, policy=Policy(attempts=1, timeout=0.3)))

    def test_a_hog_is_killed_and_given_more(self, executor: Executor, tmp_path: Path) -> None:
        hog = [(str(tmp_path), 120)]
        (outcome,) = executor.map(tasks.hog, hog, key=tasks.key, resources=Resources(memory=100 * MB))
        first, second = tasks.runs(tmp_path)
        assert (outcome.attempts, outcome.value) == (2, second)
        assert first != second
        assert gone(first)

    def test_a_hog_that_never_has_enough_names_the_setting(self, executor: Executor, tmp_path: Path) -> None:
        hog, policy = [(str(tmp_path), 120)], Policy(attempts=2, memory_growth=1.1)
        with pytest.raises(WorkerLost, match=r"^item-120: held \d+ MB of memory where 88 MB are allowed \(oom, 2 .*raise run\.memory"):
            list(executor.map(tasks.hog, hog, key=tasks.key, resources=Resources(memory=80_000_000), policy=policy))

    @pytest.mark.parametrize("fn", [tasks.wait_for_ever, tasks.wait_for_ever_deaf])
    def test_closing_a_map_kills_what_runs(self, executor: Executor, tmp_path: Path, fn: Callable[[tasks.Item], None]) -> None:
        items = [(str(tmp_path), number) for number in range(8)]
        outcomes = executor.map(fn, items, key=tasks.key)
        interrupt_when(lambda: len(tasks.runs(tmp_path)) == 2)
        with pytest.raises(KeyboardInterrupt):
            next(outcomes)
        assert all(gone(pid) for pid in tasks.runs(tmp_path))
        assert len(list(executor.map(tasks.noop, range(5), key=str))) == 5
        assert len(tasks.runs(tmp_path)) == 2, "what waited was dropped"

    def test_the_first_failure_kills_what_runs(self, executor: Executor, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="the first failed"):
            list(executor.map(tasks.fail_at_0_wait_at_others, twenty(tmp_path), key=tasks.key))
        assert all(gone(int(pid)) for pid in (tmp_path / "runs-1").read_text().split())

    def test_closing_the_executor_cancels_its_maps(self, tmp_path: Path) -> None:
        executor, ended = open_executor(self.spec, 2), []
        running, waiting = tmp_path / "running", tmp_path / "waiting"

        taken: list[tasks.Item] = []

        def one_map(folder: Path) -> None:
            folder.mkdir()
            items = (taken.append(item) or item for item in twenty(folder))
            try:
                list(executor.map(tasks.wait_for_ever, items, key=tasks.key, policy=Policy(attempts=1)))
            except Cancelled as cancelled:
                ended.append(str(cancelled))

        threads = [threading.Thread(target=one_map, args=(folder,), daemon=True) for folder in (running, waiting)]
        threads[0].start()
        until(lambda: len(tasks.runs(running)) == 2)
        so_far = len(taken)
        threads[1].start()
        until(lambda: len(taken) >= so_far + 2)
        executor.close()
        for thread in threads:
            thread.join(20)
        assert len(ended) == 2
        assert all(gone(pid) for pid in tasks.runs(running))
        assert tasks.runs(waiting) == []
        with pytest.raises(Cancelled):
            list(executor.map(tasks.noop, [1], key=str))
        executor.close()

    def test_no_worker_outlives_a_closed_executor(self, tmp_path: Path) -> None:
        with open_executor(self.spec, 2) as executor:
            list(executor.map(tasks.square, twenty(tmp_path), key=tasks.key))
        assert all(gone(pid) for pid in tasks.runs(tmp_path))

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    def test_workers_die_with_the_driver(self, tmp_path: Path, number: signal.Signals) -> None:
        with self.start_driver(tmp_path) as driver:
            driver.send_signal(number)
            assert driver.wait() == -number
        until(lambda: all(gone(pid) for pid in tasks.runs(tmp_path)))

    def test_an_interrupt_at_the_terminal_is_the_drivers_alone(self, tmp_path: Path) -> None:
        driver = self.start_driver(tmp_path)
        os.killpg(driver.pid, signal.SIGINT)
        _, told = driver.communicate()
        assert driver.returncode == -signal.SIGINT
        assert told.count("Traceback") == 1, told
        assert all(gone(pid) for pid in tasks.runs(tmp_path))

    def start_driver(self, folder: Path) -> "subprocess.Popen[str]":
        """A driver in a process group of its own, which maps tasks that never end and has two of them running."""
        program = DRIVER.format(path=sys.path, spec=self.spec, folder=str(folder))
        driver = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, start_new_session=True)
        until(lambda: len(tasks.runs(folder)) == 2)
        return driver


def interrupt_when(condition: Callable[[], bool]) -> None:
    """Interrupts this process, as Ctrl-C would, once the condition holds."""

    def watch() -> None:
        until(condition)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, daemon=True).start()


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
