import errno
import os
import signal
import subprocess
from pathlib import Path

import pytest
from suites import executor_tasks as tasks
from suites.executor import MB, Contract, IsolatedContract, gone, until

from corpusbuild.errors import ConfigError, WorkerLost
from corpusbuild.executors import local, memory, open_executor
from corpusbuild.executors.base import Policy, Resources
from corpusbuild.executors.local import Local
from corpusbuild.executors.pulse import pulse


class TestSerial(Contract):
    spec = "serial"


class TestLocal(IsolatedContract):
    spec = "local:2"


def items(folder: Path, count: int) -> list[tasks.Item]:
    return [(str(folder), number) for number in range(count)]


def children() -> set[int]:
    """The processes that this one has started and that have not ended."""
    every = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    return {pid for pid in every if not gone(pid) and parent(pid) == os.getpid()}


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


@pytest.mark.parametrize(("spec", "name", "slots"), [("serial", "serial", 1), ("local", "local:3", 3), ("local:5", "local:5", 5)])
def test_an_executor_is_opened_by_its_name(spec: str, name: str, slots: int) -> None:
    with open_executor(spec, 3) as executor:
        assert (executor.name, executor.slots()) == (name, slots)


@pytest.mark.parametrize("spec", ["", "Serial", "serial:2", "local:", "local:x", "local:-1", "local:2:3", "local:²", "ray"])
def test_a_name_that_is_none_is_told_what_there_is(spec: str) -> None:
    with pytest.raises(ConfigError, match=r'^run\.executor: .*use "serial", "local" or "local:N"') as raised:
        open_executor(spec, 2)
    assert "ray" not in str(raised.value).replace('"ray"', "")


@pytest.mark.parametrize(("spec", "workers", "setting"), [("local:0", 2, "run.executor"), ("local", 0, "run.workers")])
def test_no_worker_at_all_is_refused(spec: str, workers: int, setting: str) -> None:
    with pytest.raises(ConfigError, match=setting):
        open_executor(spec, workers)


def test_workers_are_started_on_demand_and_kept(tmp_path: Path) -> None:
    before = children()
    with open_executor("local:8", 8) as executor:
        assert children() == before, "none before the first map"
        pids = {o.value for _ in range(5) for o in executor.map(tasks.pid, items(tmp_path, 1), key=tasks.key)}
        assert len(pids) == 1
        assert children() - before == pids, "one item, one worker"
        list(executor.map(tasks.together, items(tmp_path, 3), key=tasks.key))
        assert len(children() - before) == 3
    assert children() == before


def test_a_worker_knows_little_and_ignores_interrupts(tmp_path: Path) -> None:
    with open_executor("local", 1) as executor:
        (known,) = executor.map(tasks.modules, items(tmp_path, 1), key=tasks.key)
        (interrupts,) = executor.map(tasks.interrupt_handler, items(tmp_path, 1), key=tasks.key)
    assert known.value is not None
    assert {"numpy", "pyarrow", "msgspec", "multiprocessing", "dataclasses", "asyncio", "doit"}.isdisjoint(known.value)
    assert interrupts.value == (True, False)


def test_a_worker_is_replaced_when_it_has_done_its_share(tmp_path: Path) -> None:
    with Local(1, recycle=3) as executor:
        pids = [o.value for o in executor.map(tasks.pid, items(tmp_path, 7), key=tasks.key)]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 1]


def test_a_worker_is_replaced_when_a_task_has_left_it_fat(tmp_path: Path) -> None:
    limit = Resources(memory=200 * MB)
    with Local(1) as executor:
        work = [(tasks.leak, 20), (tasks.hog, 120), (tasks.leak, 120), (tasks.leak, 20)]
        pids = [next(iter(executor.map(fn, [(str(tmp_path), size)], key=tasks.key, resources=limit))).value for fn, size in work]
    assert [pids.index(pid) for pid in pids] == [0, 0, 0, 3]


def test_a_worker_that_dies_idle_costs_no_attempt(tmp_path: Path) -> None:
    with open_executor("local", 1) as executor:
        (first,) = executor.map(tasks.pid, items(tmp_path, 1), key=tasks.key)
        assert first.value
        os.kill(first.value, signal.SIGKILL)
        until(lambda: gone(first.value or 0))
        (second,) = executor.map(tasks.pid, items(tmp_path, 1), key=tasks.key, policy=Policy(attempts=1))
    assert second.value != first.value


@pytest.mark.parametrize(("asked", "most"), [(40, 2), (60, 1), (300, 1)])
def test_tasks_run_together_only_as_far_as_memory_goes(tmp_path: Path, asked: int, most: int) -> None:
    with Local(3, memory_limit=100 * MB) as executor:
        resources = Resources(memory=asked * MB)
        list(executor.map(tasks.together, items(tmp_path, 3), key=tasks.key, resources=resources))
        seen = [o.value for o in executor.map(tasks.together, items(tmp_path, 6), key=tasks.key, resources=resources)]
    assert max(value or 0 for value in seen) == most


def test_a_retry_asks_for_no_more_than_there_is(tmp_path: Path) -> None:
    with Local(1, memory_limit=120 * MB) as executor, pytest.raises(WorkerLost, match="where 126 MB are allowed"):
        list(executor.map(tasks.hog, [(str(tmp_path), 150)], key=tasks.key, resources=Resources(memory=90 * MB)))


def test_a_system_that_gives_no_process_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with open_executor("local", 2) as executor, pytest.raises(WorkerLost, match=r"^1: no worker process could be started: .*run.workers"):
        list(executor.map(tasks.noop, [1], key=str))


def test_an_interrupt_cannot_reach_a_worker_that_starts_up(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import os, signal; os._exit(7 if signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()) else 8)"
    monkeypatch.setattr(local, "BOOT", program)
    with open_executor("local", 1) as executor, pytest.raises(WorkerLost, match="exit code 7"):
        list(executor.map(tasks.noop, [1], key=str))


def test_the_memory_of_a_process_is_seen() -> None:
    before = memory.held(os.getpid())
    block = bytearray(b"x") * (50 * MB)
    grown = memory.held(os.getpid()) - before
    assert 45 * MB < grown < 60 * MB
    assert len(block) == 50 * MB
    assert memory.held(2**22 + 1) == 0


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    for file, limit in {
        "memory.max": "max",
        "jobs/memory.max": "4000",
        "jobs/one/memory.max": "9000",
        "memory/memory.limit_in_bytes": "9223372036854771712",
        "memory/jobs/memory.limit_in_bytes": "7000",
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(limit + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("said", "least"), [("0::/jobs/one\n", 4000), ("5:cpu,memory:/jobs\n3:cpu:/\n", 7000), ("0::/elsewhere\n", None), ("", None)]
)
def test_the_limits_of_control_groups_are_seen(groups: Path, said: str, least: int | None) -> None:
    assert min(memory.limits(said, groups), default=None) == least


def test_a_machine_has_some_memory_to_give() -> None:
    assert 100 * MB < memory.usable() < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_a_worker_that_stands_still_is_killed_and_its_item_tried_again(tmp_path: Path) -> None:
    policy = Policy(attempts=2, heartbeat=0.4)
    with Local(2) as executor:
        outcomes = list(executor.map(tasks.hangs_once_at_7, items(tmp_path, 9), key=tasks.key, policy=policy))
    assert {o.index: o.attempts for o in outcomes if o.attempts > 1} == {7: 2}
    assert sorted(o.value or 0 for o in outcomes) == list(range(9))


def test_a_worker_that_always_stands_still_is_named_with_the_remedy(tmp_path: Path) -> None:
    policy = Policy(attempts=2, heartbeat=0.3)
    with Local(1) as executor, pytest.raises(WorkerLost, match=r"item-7: stood still for 0\.3 s \(timeout, 2 attempts\).*run\.heartbeat"):
        list(executor.map(tasks.hangs_at_7, items(tmp_path, 8), key=tasks.key, policy=policy))


def test_a_worker_that_works_in_silence_is_left_alone(tmp_path: Path) -> None:
    with Local(1) as executor:
        outcomes = list(executor.map(tasks.works_at_7, items(tmp_path, 8), key=tasks.key, policy=Policy(heartbeat=1.0)))
    assert [o.attempts for o in outcomes] == [1] * 8


def test_a_worker_that_died_leaves_its_item_fewer_neighbours(tmp_path: Path) -> None:
    """Each attempt has twice the memory set aside, so the third of four workers' share runs alone."""
    with Local(4, memory_limit=400 * MB) as executor:
        poison = executor.map(tasks.poison_at_7, items(tmp_path, 8), key=tasks.key, resources=Resources(memory=100 * MB))
        with pytest.raises(
            WorkerLost, match=r"item-7: .*SIGKILL with 419 MB of memory set aside for it \(crash, 3 attempts\).*run\.memory"
        ):
            list(poison)


def test_the_pulse_of_a_process_is_told() -> None:
    before = pulse(os.getpid())
    assert before is not None
    assert sum(range(3_000_000)) > 0
    assert Path(__file__).read_bytes()
    assert pulse(os.getpid()) != before
    assert pulse(2**22 + 1) is None
