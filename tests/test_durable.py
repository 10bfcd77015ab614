import errno
import os
from pathlib import Path

import pytest

from corpusbuild import durable
from corpusbuild.errors import DiskError

OPERATIONS = ("open", "write", "fsync", "replace")


def fails(monkeypatch: pytest.MonkeyPatch, operation: str, code: int, calls: list[str] | None = None) -> None:
    """From now on the operation fails with the code; ``calls`` collects how often it was tried."""

    def refuse(*_arguments: object, **_keywords: object) -> int:
        if calls is not None:
            calls.append(operation)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(f"corpusbuild.durable.os.{operation}", refuse)


def test_a_write_replaces_what_was_there_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for data in (b"old", b"", b"new" * 100_000):
        durable.write_atomic(path, data)
        assert path.read_bytes() == data
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_name_as_long_as_the_file_system_bears_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    durable.write_atomic(path, b"x")
    assert path.read_bytes() == b"x"


def test_the_checklist_is_kept_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def watch(operation: str) -> None:
        real = getattr(os, operation)

        def call(*arguments: object, **keywords: object) -> object:
            folder = operation == "fsync" and os.path.isdir(f"/proc/self/fd/{arguments[0]}")
            done.append("fsync folder" if folder else operation)
            return real(*arguments, **keywords)

        monkeypatch.setattr(f"corpusbuild.durable.os.{operation}", call)

    for operation in ("write", "fsync", "replace", "symlink"):
        watch(operation)
    durable.write_atomic(tmp_path / "a", b"x")
    assert done == ["write", "fsync", "replace", "fsync folder"]
    done.clear()
    durable.replace_link(tmp_path / "l", tmp_path / "a")
    assert done == ["symlink", "replace", "fsync folder"]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr("corpusbuild.durable.os.write", lambda descriptor, data: real(descriptor, data[:7]))
    durable.write_atomic(tmp_path / "a", bytes(range(100)))
    assert (tmp_path / "a").read_bytes() == bytes(range(100))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_refusal_is_one_line_with_a_remedy_and_the_old_bytes_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, code: int
) -> None:
    path = tmp_path / "a"
    durable.write_atomic(path, b"old")
    calls: list[str] = []
    with monkeypatch.context() as patch:
        fails(patch, operation, code, calls)
        with pytest.raises(DiskError) as refused:
            durable.write_atomic(path, b"new")
    assert len(calls) == 1, "a refused operation is never tried again"
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "run again" in str(refused.value)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_sync_is_told_for_files_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    fails(monkeypatch, "fsync", errno.EIO)
    for sync, place in ((durable.fsync_file, path), (durable.fsync_dir, tmp_path)):
        with pytest.raises(DiskError, match=str(place)):
            sync(place)


def test_a_folder_that_knows_no_sync_is_no_failure_but_a_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    fails(monkeypatch, "fsync", errno.EINVAL)
    durable.fsync_dir(tmp_path)
    with pytest.raises(OSError, match="Invalid"):
        durable.fsync_file(path)


def test_an_error_that_is_not_the_disks_passes_unchanged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        durable.write_atomic(tmp_path / "no folder" / "a", b"x")
    with pytest.raises(FileNotFoundError):
        durable.fsync_file(tmp_path / "nothing")


def test_a_link_is_relative_swapped_and_survives_a_move_of_the_tree(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in ("store/one", "store/two", "corpus/x"):
        (tree / name).mkdir(parents=True)
    link = tree / "corpus/x/latest"
    for name in ("one", "two"):
        durable.replace_link(link, tree / "store" / name)
        assert os.readlink(link) == f"../../store/{name}"
    (tree / "store/two/file").write_text("here")
    tree.rename(tmp_path / "moved")
    assert (tmp_path / "moved/corpus/x/latest/file").read_text() == "here"
    assert [p.name for p in (tmp_path / "moved/corpus/x").iterdir()] == ["latest"]


def test_a_link_is_right_when_its_folder_is_reached_through_another_link(tmp_path: Path) -> None:
    (tmp_path / "store/one").mkdir(parents=True)
    (tmp_path / "far/away").mkdir(parents=True)
    (tmp_path / "near").symlink_to("far/away")
    durable.replace_link(tmp_path / "near/latest", tmp_path / "store/one")
    assert os.path.samefile(tmp_path / "near/latest", tmp_path / "store/one")


def test_a_folder_in_the_way_of_a_link_is_named_and_kept(tmp_path: Path) -> None:
    (tmp_path / "latest").mkdir()
    (tmp_path / "latest/mine").write_text("x")
    with pytest.raises(DiskError, match="move it away"):
        durable.replace_link(tmp_path / "latest", tmp_path / "store")
    assert (tmp_path / "latest/mine").read_text() == "x"
    assert [p.name for p in tmp_path.iterdir()] == ["latest"]
