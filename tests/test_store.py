"""The store: complete or absent, whatever stops a build; finished tasks are not run again."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from corpusbuild import staging as staging_module
from corpusbuild.errors import IntegrityError, StageError
from corpusbuild.hashing import key_digest
from corpusbuild.model import Key, Record, Tally
from corpusbuild.stage import Stage, Step, Task
from corpusbuild.staging import CONTENTS, Staging, owner_is_alive, owner_token
from corpusbuild.store import Store
from corpusbuild.workshop import Workshop, check_counts, realise


class Params(Record):
    log: str
    parts: int = 4
    fail_at: int = -1


class Write(Task):
    number: int
    log: str


def write(task, out):
    with Path(task.log).open("a") as log:
        log.write(f"{task.number}\n")
    out.path(".txt").write_text(f"part {task.number}\n" * 3)
    out.scratch(".aside").write_text("aside")
    return {"n": task.number}


def build(job):
    numbers = []
    for n in range(job.params.parts):
        if n == job.params.fail_at:
            raise StageError("test", str(n), "stop here")
        numbers += job.map(write, [Write(name=f"part-{n:05d}", number=n, log=job.params.log)])
    job.put("sums.txt", str(sum(v["n"] for v in numbers)).encode())
    return {"s": Tally(docs_in=len(numbers), kept=len(numbers))}


STAGE = Stage("test", version=1, build=build, names_output=lambda p: p.parts)


def step(tmp_path, **params):
    made = Params(log=str(tmp_path / "log"), **params)
    return Step(STAGE, made, {}, Key(key_digest("step", "test", made.parts)), "test")


def shop(store):
    return Workshop(store, "serial", 1, 1 << 30, print)


def tree(directory):
    return {p.name: p.read_bytes() for p in sorted(directory.iterdir())}


def test_a_step_is_built_once_and_only_its_result_is_published(tmp_path):
    store, s = Store(tmp_path / "cache"), step(tmp_path)
    with shop(store) as workshop:
        contents = realise(s, workshop)
        assert realise(s, workshop) == contents
    entry = store.path("test", s.key)
    assert sorted(p.name for p in entry.iterdir()) == sorted([CONTENTS, "sums.txt", *(f"part-{i:05d}.txt" for i in range(4))])
    assert (tmp_path / "log").read_text() == "0\n1\n2\n3\n"
    assert not list((tmp_path / "cache" / "staging").glob("*/*"))


def test_finished_tasks_survive_a_failure_and_are_not_run_again(tmp_path):
    store = Store(tmp_path / "cache")
    with shop(store) as workshop, pytest.raises(StageError, match="stop here"):
        realise(step(tmp_path, fail_at=2), workshop)
    assert not store.has("test", step(tmp_path).key)
    assert store.is_partial(step(tmp_path).key)
    with shop(store) as workshop:
        realise(step(tmp_path), workshop)
    assert (tmp_path / "log").read_text() == "0\n1\n2\n3\n"
    whole = Store(tmp_path / "whole")
    with shop(whole) as workshop:
        realise(step(tmp_path), workshop)
    assert tree(store.path("test", step(tmp_path).key)) == tree(whole.path("test", step(tmp_path).key))


def test_a_finished_part_that_was_altered_is_made_again(tmp_path):
    store = Store(tmp_path / "cache")
    with shop(store) as workshop, pytest.raises(StageError):
        realise(step(tmp_path, fail_at=2), workshop)
    [part] = (tmp_path / "cache" / "staging").glob("*/*/out/part-00001.txt")
    part.write_text("part 9\n" * 3)
    with shop(store) as workshop:
        realise(step(tmp_path), workshop)
    assert (tmp_path / "log").read_text() == "0\n1\n1\n2\n3\n"
    assert (store.path("test", step(tmp_path).key) / "part-00001.txt").read_text() == "part 1\n" * 3


def test_parts_of_a_dead_owner_are_taken_over(tmp_path, monkeypatch):
    store = Store(tmp_path / "cache")
    dead = f"{owner_token().rsplit('-', 2)[0]}-999999-1"
    monkeypatch.setattr("corpusbuild.store.owner_token", lambda: dead)
    with shop(store) as workshop, pytest.raises(StageError):
        realise(step(tmp_path, fail_at=3), workshop)
    monkeypatch.undo()
    with shop(store) as workshop:
        realise(step(tmp_path), workshop)
    assert (tmp_path / "log").read_text() == "0\n1\n2\n3\n"
    assert not (tmp_path / "cache" / "staging" / step(tmp_path).key).exists()


def write_in_folders(task, out):
    with Path(task.log).open("a") as log:
        log.write(f"{task.number}\n")
    out.path(".txt", f"folder/{task.number}").write_text(f"part {task.number}")
    return {}


def build_in_folders(job):
    job.map(write_in_folders, [Write(name="part", number=1, log=job.params.log)])
    if job.params.fail_at == 1:
        raise StageError("test", "1", "stop here")
    job.put("folder/index.json", b"{}")
    return {}


def test_files_in_folders_are_published_checked_and_taken_over_like_others(tmp_path, monkeypatch):
    store, stage = Store(tmp_path / "cache"), Stage("test", version=1, build=build_in_folders, names_output=lambda p: p.parts)
    steps = [Step(stage, Params(log=str(tmp_path / "log"), fail_at=n), {}, Key("a" * 64), "test") for n in (1, -1)]
    monkeypatch.setattr("corpusbuild.store.owner_token", lambda: f"{owner_token().rsplit('-', 2)[0]}-999999-1")
    with shop(store) as workshop, pytest.raises(StageError):
        realise(steps[0], workshop)
    monkeypatch.undo()
    with shop(store) as workshop:
        contents = realise(steps[1], workshop)
    assert (tmp_path / "log").read_text() == "1\n", "what a dead owner had finished is not made again"
    assert [file.path for file in contents.files] == ["folder/1/part.txt", "folder/index.json"]
    entry = store.path("test", Key("a" * 64))
    assert (entry / "folder" / "1" / "part.txt").read_text() == "part 1"
    store.check("test", Key("a" * 64))
    (entry / "folder" / "1" / "part.txt").write_text("part 2")
    with pytest.raises(IntegrityError, match=r"folder/1/part\.txt changed since it was committed"):
        Store(tmp_path / "cache").check("test", Key("a" * 64))


def test_an_owner_is_alive_while_its_process_runs():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    token = f"{owner_token().rsplit('-', 2)[0]}-{child.pid}-{staging_module._start_time(child.pid)}"
    assert owner_is_alive(token)
    assert owner_is_alive(owner_token())
    child.communicate(b"\n")
    assert not owner_is_alive(token)
    boot, pid, start = owner_token().rsplit("-", 2)
    machine = boot.split("_")[0]
    assert not owner_is_alive(f"{machine}_000000000000-{pid}-{start}"), "another boot of this machine: everything of it is dead"
    assert owner_is_alive(f"elsewhere_000000000000-{pid}-{start}"), "another machine: it cannot be seen, so nothing of it is removed"


@pytest.mark.parametrize("harm", ["truncate", "alter", "remove"])
def test_a_harmed_entry_is_refused_by_name(tmp_path, harm):
    store, s = Store(tmp_path / "cache"), step(tmp_path)
    with shop(store) as workshop:
        realise(s, workshop)
    victim = store.path("test", s.key) / "part-00002.txt"
    if harm == "remove":
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:-1] + (b"" if harm == "truncate" else b"x"))
    with pytest.raises(IntegrityError, match=r"part-00002\.txt .*delete .* and build again"):
        Store(tmp_path / "cache").check("test", s.key)


@pytest.mark.parametrize("page", [b"", b"{", b'{"key":"' + b"0" * 64 + b'","stage":"test","version":1,"label":"t","files":[],"counts":{}}'])
def test_a_harmed_contents_page_is_refused(tmp_path, page):
    store, s = Store(tmp_path / "cache"), step(tmp_path)
    with shop(store) as workshop:
        realise(s, workshop)
    (store.path("test", s.key) / CONTENTS).write_bytes(page)
    with pytest.raises(IntegrityError, match="delete"):
        Store(tmp_path / "cache").check("test", s.key)


def test_two_threads_of_one_key_build_it_once(tmp_path):
    store, s, said = Store(tmp_path / "cache"), step(tmp_path), []
    inside, go = threading.Event(), threading.Event()

    def slow(job):
        inside.set()
        go.wait(10)
        return build(job)

    first = Step(Stage("test", 1, slow), s.params, {}, s.key, "test")
    one = threading.Thread(target=lambda: realise(first, Workshop(store, "serial", 1, 1 << 30, print)))
    one.start()
    inside.wait(10)
    two = threading.Thread(
        target=lambda: realise(s, Workshop(Store(tmp_path / "cache"), "serial", 1, 1 << 30, lambda line: (said.append(line), go.set())))
    )
    two.start()
    one.join(20)
    two.join(20)
    assert (tmp_path / "log").read_text() == "0\n1\n2\n3\n"
    assert len(said) == 1
    assert said[0].startswith(f"test: waiting for process {os.getpid()}")


def _build_elsewhere(root):
    with shop(Store(Path(root) / "cache")) as workshop:
        realise(step(Path(root)), workshop)


def test_two_processes_of_one_key_build_it_once(tmp_path):
    spawn = multiprocessing.get_context("spawn")
    both = [spawn.Process(target=_build_elsewhere, args=(str(tmp_path),)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(30)
    assert [p.exitcode for p in both] == [0, 0]
    assert sorted((tmp_path / "log").read_text().split()) == ["0", "1", "2", "3"]


def test_where_locks_do_not_work_the_rename_decides(tmp_path):
    """Two owners that know nothing of each other made the same bytes; the second to publish finds the key there and is content."""
    store, s = Store(tmp_path / "cache"), step(tmp_path)
    late = Staging(tmp_path / "cache" / "staging" / s.key / "elsewhere_0-1-1")
    late.create()
    late.put("sums.txt", b"6")
    with shop(store) as workshop:
        realise(s, workshop)
    before = tree(store.path("test", s.key))
    store.commit(late, "test", s.key, 1, "test", {"s": Tally(docs_in=4, kept=4)})
    assert tree(store.path("test", s.key)) == before


def test_what_an_attempt_that_died_left_is_not_published(tmp_path):
    store, s = Store(tmp_path), step(tmp_path)
    with store.lock(s.key) as staging:
        (staging.out / "part-00000.parquet.4711.tmp").write_bytes(b"torn")
        (staging.out / "part-00000.parquet").write_bytes(b"whole")
        store.commit(staging, "test", s.key, 1, "test", {"s": Tally()})
    assert sorted(path.name for path in store.path("test", s.key).iterdir()) == ["contents.json", "part-00000.parquet"]


def test_counts_that_do_not_add_up_are_not_published(tmp_path):
    def lossy(job):
        return {"s": Tally(docs_in=3, kept=1, dropped={"length": 1})}

    store = Store(tmp_path / "cache")
    s = Step(Stage("test", 1, lossy), Params(log=""), {}, Key(key_digest("lossy")), "filter:s")
    with shop(store) as workshop, pytest.raises(StageError, match=r"filter:s: s: 3 documents came in, but 1 kept \+ 1 dropped"):
        realise(s, workshop)
    assert not store.has("test", s.key)


def test_a_step_must_take_what_the_one_before_gave():
    check_counts("scrub:s", {"s": Tally(docs_in=2, kept=2)}, [{"s": Tally(docs_in=5, kept=2, dropped={"lang": 3})}])
    for counts in ({"s": Tally(docs_in=1, kept=1)}, {}, {"s": Tally(docs_in=2, kept=2), "other": Tally(docs_in=1, kept=1)}):
        with pytest.raises(StageError, match="documents were kept before it"):
            check_counts("scrub:s", counts, [{"s": Tally(docs_in=5, kept=2, dropped={"lang": 3})}])


def test_waiting_threads_do_not_leave_locks_behind(tmp_path):
    store, s = Store(tmp_path / "cache"), step(tmp_path)
    started = time.monotonic()
    with store.lock(s.key):
        pass
    with store.lock(s.key):
        assert time.monotonic() - started < 60
