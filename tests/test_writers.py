"""Token files in the layouts of trainers, each read back by its own project's loader, id for id."""

import importlib.util
import json
import sys
import types
import warnings
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild import writers

LAYOUTS = ("litdata", "mds", "megatron", "nanotron", "npy")


def ends_of(lengths, chunk=3):
    ends = np.cumsum(lengths, dtype=np.int64)
    return lambda: (ends[i : i + chunk] for i in range(0, len(ends), chunk))


def write(folder, layout, files, dtype, blocks=5):
    """Files of samples (arrays of ids), each file under its name; gives the folder of the split."""
    module, home, pages = writers.layout(layout), folder / layout / "train", []
    home.mkdir(parents=True)
    for i, samples in enumerate(files):
        name, ids = f"train-{i:05d}", np.concatenate([np.empty(0, dtype), *samples]).astype(dtype)
        ends = ends_of([len(s) for s in samples])
        shape = writers.Shape(name, len(ids), 2 ** (8 * dtype.itemsize), "tok", dtype, ends, ends)
        sink = module.sink(shape, lambda suffix, name=name: home / f"{name}{suffix}")
        for start in range(0, len(ids), blocks):
            sink.write(ids[start : start + blocks])
        pages.append(sink.close())
    index = module.index(pages)
    if index is not None:
        (home / "index.json").write_bytes(index)
    return home


@cache
def local_dataset():
    """The class of MosaicML's that reads local shards; without the package's front page, which asks for every cloud's client."""
    home = importlib.util.find_spec("streaming").submodule_search_locations[0]
    for name, path in (("streaming", home), ("streaming.base", f"{home}/base")):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [path]
    sys.modules["streaming"].base = sys.modules["streaming.base"]
    from streaming.base.local import LocalDataset

    return LocalDataset


def by_mds(home):
    return [sample["tokens"] for sample in local_dataset()(str(home.parent), split="train")]


def by_megatron(home):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from megatron.core.datasets.indexed_dataset import IndexedDataset
    read = []
    for path in sorted(home.glob("*.idx")):
        dataset = IndexedDataset(str(path.with_suffix("")))
        assert dataset.document_indices.tolist() == list(range(len(dataset) + 1))
        read += [np.array(dataset[i]) for i in range(len(dataset))]  # a copy: it takes its memory with it when it goes
    return read


def by_numpy(home):
    return [np.load(path, mmap_mode="r") for path in sorted(home.glob("*.npy"))]


def by_nanotron(home, length, width, **options):
    """What nanotron itself reads these files with."""
    from datatrove.utils.dataset import DatatroveFolderDataset

    dataset = DatatroveFolderDataset(str(home), seq_len=length - 1, filename_pattern="*.ds", token_size=width, **options)
    return [dataset[i] for i in range(len(dataset))]


def by_litdata(home, length):
    from litdata import StreamingDataset, TokensLoader

    dataset = StreamingDataset(input_dir=str(home), item_loader=TokensLoader(block_size=length), shuffle=False)
    return [dataset[i] for i in range(len(dataset))]


def joined(samples):
    return [id for sample in samples for id in sample]


def equal(read, expected):
    assert [np.asarray(a).tolist() for a in read] == [np.asarray(b).tolist() for b in expected]


SAMPLES = st.lists(st.lists(st.integers(0, 65535), min_size=1, max_size=9), min_size=1, max_size=9)
DTYPES = st.sampled_from([np.dtype("<u2"), np.dtype("<u4")])


@settings(deadline=None, max_examples=15)
@given(st.lists(SAMPLES, min_size=1, max_size=2), DTYPES, st.integers(1, 7))
def test_mosaicmls_loader_reads_every_sample(tmp_path_factory, files, dtype, blocks):
    home = write(tmp_path_factory.mktemp("w"), "mds", files, dtype, blocks)
    read = by_mds(home)
    equal(read, [s for file in files for s in file])
    assert {a.dtype for a in read} == {dtype}


@settings(deadline=None, max_examples=15)
@given(st.lists(SAMPLES, min_size=1, max_size=2), DTYPES)
def test_megatrons_loader_reads_every_sample(tmp_path_factory, files, dtype):
    equal(by_megatron(write(tmp_path_factory.mktemp("w"), "megatron", files, dtype)), [s for file in files for s in file])


@settings(deadline=None, max_examples=15)
@given(st.lists(SAMPLES, min_size=1, max_size=2), DTYPES)
def test_numpy_reads_every_file(tmp_path_factory, files, dtype):
    equal(by_numpy(write(tmp_path_factory.mktemp("w"), "npy", files, dtype)), [joined(file) for file in files])


@settings(deadline=None, max_examples=15)
@given(st.lists(SAMPLES, min_size=1, max_size=2), DTYPES, st.integers(2, 6))
def test_nanotrons_loader_reads_every_full_window_and_where_documents_begin(tmp_path_factory, files, dtype, length):
    home = write(tmp_path_factory.mktemp("w"), "nanotron", files, dtype)
    expected, positions = [], []
    for file in files:
        flat, place = joined(file), [i for sample in file for i in range(len(sample))]
        for start in range(0, len(flat) // length * length, length):
            expected.append(flat[start : start + length])
            here = place[start : start + length]
            first = next((i for i, p in enumerate(here) if p == 0), length)
            positions.append([*range(first), *here[first:]])  # a document that began before counts from the window on
    read = by_nanotron(home, length, dtype.itemsize, return_positions=True)
    equal([r["input_ids"] for r in read], expected)
    equal([r["positions"] for r in read], positions)
    name, count, _ = (home / "train-00000.ds.metadata").read_text().split("\n")
    assert (name, int(count)) == (f"tok|{dtype.itemsize}", sum(map(len, files[0])))


@pytest.mark.parametrize("dtype", [np.dtype("<u2"), np.dtype("<u4")])
@pytest.mark.parametrize("length", [4, 7])
def test_litdatas_loader_reads_every_full_block(tmp_path, dtype, length):
    files = [[[1, 2, 3, 65535], [5, 6], [7, 8, 9, 10, 11, 12, 13, 14]], [[20 + i for i in range(9)]]]
    read = by_litdata(write(tmp_path, "litdata", files, dtype), length)
    flat = [joined(file) for file in files]
    equal(read, [ids[i : i + length] for ids in flat for i in range(0, len(ids) // length * length, length)])
    assert {r.dtype for r in read} == {dtype}


def test_a_layout_that_cannot_hold_a_file_says_so(tmp_path):
    shape = writers.Shape("train-00000", 2**31 - 1, 2**20, "t", np.dtype("<u4"), lambda: iter([np.array([2**31 - 1])]), lambda: iter([]))
    for layout in ("litdata", "mds"):
        with pytest.raises(
            ValueError, match=rf"{layout}: train-00000 has 2,147,483,647 ids, more than a (chunk|shard) of 4 GiB holds: lower"
        ):
            writers.layout(layout).sink(shape, lambda suffix: tmp_path / suffix)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_layouts_index_holds_a_time_or_a_path(tmp_path, layout):
    home = write(tmp_path, layout, [[[1, 2]], [[3]]], np.dtype("<u2"))
    again = write(tmp_path / "again", layout, [[[1, 2]], [[3]]], np.dtype("<u2"))
    assert {p.name: p.read_bytes() for p in home.iterdir()} == {p.name: p.read_bytes() for p in again.iterdir()}
    for path in home.glob("*.json"):
        assert str(tmp_path) not in json.dumps(json.loads(path.read_text()))
