"""Shards: every kept document once, in plan order, as its decisions leave it; a manifest that says so, and a digest that anybody can compute again."""

import hashlib
import json
from itertools import chain, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st
from serial_job import run

from corpusbuild import kernels
from corpusbuild.errors import StageError
from corpusbuild.model import Contents, File, Key, Tally
from corpusbuild.parts import CUTS, DOCUMENTS, REMOVED, SPANS, part_name, write_arrow, write_rows
from corpusbuild.placement import part_name_of
from corpusbuild.rowdigest import row_digests, rows_digest
from corpusbuild.stage import Input
from corpusbuild.stages import shard
from corpusbuild.stages.near_dedup import CLUSTERS
from corpusbuild.stages.shard import MANIFEST, Params, Sharding, ShardSource

law = settings(deadline=None, max_examples=25)
Sources = list[list[list[str]]]  # texts of each part of each source

COLUMNS = ["id", "text", "source_id", "url", "license_spdx", "lang", "n_chars", "sha256", "minhash_cluster", "pii_redactions", "split"]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
PAIRS = st.lists(st.lists(st.none() | st.binary(max_size=3), min_size=2, max_size=2), max_size=4)
SOURCES = st.lists(st.lists(st.lists(TEXT, max_size=5), max_size=3), min_size=1, max_size=3)


def entry(home: Path, stage: str, source: str, counts: dict[str, Tally]) -> Input:
    files = tuple(File(path=p.name, size=p.stat().st_size, blake3="") for p in sorted(home.iterdir()))
    return Input(home, source, Contents(key=Key("0" * 64), stage=stage, version=1, label=stage, files=files, counts=counts))


def documents(home: Path, source: str, parts: list[list[Any]]) -> Input:
    """An entry of filter: a document is its text, or a row without those columns that follow from its place."""
    home.mkdir(parents=True)
    k = 0
    for i, rows in enumerate(parts):
        full = []
        for row in rows:
            own = {"text": row} if isinstance(row, str) else row
            full.append({"id": f"{source}:{k}", "file": 0, "place": str(k + 1), "lang": "en", "lang_conf": 1.0} | own)
            k += 1
        write_arrow(home / f"{part_name(i)}.docs.arrow", pa.Table.from_pylist(full, schema=DOCUMENTS))
    return entry(home, "filter", source, {source: Tally(docs_in=k, kept=k)})


def decisions(home: Path, stage: str, names: list[str], source: str = "", counts: Any = None, **tables: Any) -> Input:
    """An entry of a stage that decides: for each table its rows by the name of the part that they speak of."""
    home.mkdir(parents=True)
    schemas = {"removed": REMOVED, "cuts": CUTS, "spans": SPANS, "clusters": CLUSTERS}
    for kind, by_part in ({"removed": {}} | tables).items():
        for name in names:
            write_rows(home / f"{name}.{kind}.parquet", by_part.get(name, []), schemas[kind])
    return entry(home, stage, source, counts or {})


def params(n: int, shard_rows: int = 100, **sharding: Any) -> Params:
    sources = tuple(ShardSource(id=f"s{i}", urls=(f"files/s{i}.jsonl",), license_spdx="CC0-1.0") for i in range(n))
    return Params(dataset="d", version="v", sharding=Sharding(shard_rows=shard_rows, **sharding), sources=sources, dedup={})


def build(home: Path, sources: list[list[list[Any]]], settings: Params | None = None, **inputs: list[Input]) -> Input:
    docs = [documents(home / f"documents-{i}", f"s{i}", parts) for i, parts in enumerate(sources)]
    return run(shard.STAGE, settings or params(len(sources)), {"documents": docs, **inputs}, home / "shard")


def manifest(corpus: Input) -> Any:
    return json.loads((corpus.path / MANIFEST).read_bytes())


def rows(corpus: Input) -> list[dict[str, Any]]:
    return [row for path in corpus.files(".parquet") for row in pl.read_parquet(path).to_dicts()]


def groups(path: Path) -> list[list[str]]:
    file = pq.ParquetFile(path)
    return [file.read_row_group(i, columns=["text"]).column("text").to_pylist() for i in range(file.num_row_groups)]


def digest_by_definition(columns: list[str], rows: list[dict[str, Any]]) -> str:
    """As the module says it, in other words and over the rows of another reader."""
    whole = b"".join(c.encode() + b"\n" for c in columns) + b"\n"
    for row in rows:
        cells = b""
        for column in columns:
            value = row[column]
            if value is None:
                cells += b"\x00"
            elif isinstance(value, int):
                cells += b"\x01" + (value % 2**64).to_bytes(8, "little")
            else:
                data = value.encode() if isinstance(value, str) else value
                cells += b"\x02" + len(data).to_bytes(8, "little") + data
        whole += blake3(cells).digest()
    return blake3(whole).hexdigest()


# --- laws ---


@law
@given(SOURCES, st.integers(1, 7), st.integers(1, 40), st.sampled_from([0, 500, 1000]))
def test_every_document_stands_in_the_shards_once_in_plan_order(
    sources: Sources, shard_rows: int, row_group_bytes: int, val_permille: int
) -> None:
    settings = params(len(sources), shard_rows, row_group_bytes=row_group_bytes, val_permille=val_permille)
    with TemporaryDirectory() as home:
        corpus = build(Path(home), sources, settings)
        found, said = rows(corpus), manifest(corpus)
        texts = [(f"s{i}", text) for i, parts in enumerate(sources) for part in parts for text in part]
        assert [(row["source_id"], row["text"]) for row in found] == texts
        assert said["n_docs"] == len(texts) == sum(s["rows"] for s in said["shards"])
        assert said["n_shards"] == len(said["shards"]) == max(1, -(-len(texts) // shard_rows))
        assert all(s["rows"] == shard_rows for s in said["shards"][:-1])
        for row in found:
            assert row["sha256"] == hashlib.sha256(row["text"].encode()).digest()
            assert row["n_chars"] == len(row["text"])
            assert row["split"] == ("val" if int.from_bytes(row["sha256"][:8], "big") % 1000 < val_permille else "train")
            assert found[row["minhash_cluster"]] == row
        assert said["splits"] == {split: sum(row["split"] == split for row in found) for split in ("train", "val")}
        at = 0
        for s in said["shards"]:
            path = corpus.path / s["name"]
            here = found[at : at + s["rows"]]
            at += s["rows"]
            assert s["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
            assert s["text_bytes"] == sum(len(row["text"].encode()) for row in here)
            assert s["rows_blake3"] == digest_by_definition(COLUMNS, here)
            sizes = [[len(text.encode()) for text in group] for group in groups(path)]
            assert all(sum(group) <= row_group_bytes or len(group) == 1 for group in sizes)
            assert all(sum(one) + other[0] > row_group_bytes for one, other in pairwise(sizes))  # none is cut early
        assert said["rows_blake3"] == digest_by_definition(COLUMNS, found)


@law
@given(SOURCES, st.data())
def test_the_digest_of_rows_is_of_rows_and_of_nothing_else(sources: Sources, data: st.DataObject) -> None:
    one, other = (params(len(sources), data.draw(st.integers(1, 9)), row_group_bytes=data.draw(st.integers(1, 40))) for _ in range(2))
    with TemporaryDirectory() as home:
        a, b = build(Path(home, "a"), sources, one), build(Path(home, "b"), [[list(chain(*parts))] for parts in sources], other)
        assert manifest(a)["rows_blake3"] == manifest(b)["rows_blake3"]
        whole = pa.concat_tables([pq.read_table(path) for path in a.files(".parquet")])
        pl.DataFrame(whole).write_parquet(Path(home, "other"), compression="snappy", row_group_size=2)  # another writer, other column types
        table = pq.read_table(Path(home, "other"))
    digest = rows_digest(table.column_names, [row_digests(table.slice(i, 1)) for i in range(len(table))])
    assert digest == manifest_digest(whole)
    if not len(whole):
        return
    column, i = data.draw(st.sampled_from(COLUMNS)), data.draw(st.integers(0, len(whole) - 1))
    values, field = whole.column(column).to_pylist(), whole.schema.field(column)
    for changed in (None, values[i] + (1 if isinstance(values[i], int) else b"x" if isinstance(values[i], bytes) else "x")):
        altered = pa.array([*values[:i], changed, *values[i + 1 :]], field.type)
        assert manifest_digest(whole.set_column(whole.schema.get_field_index(column), field, altered)) != digest


def manifest_digest(table: pa.Table) -> str:
    return rows_digest(table.column_names, [row_digests(table)])


@law
@given(PAIRS, PAIRS)
def test_other_rows_have_another_digest_however_their_bytes_run_together(a: list[list[bytes]], b: list[list[bytes]]) -> None:
    tables = [pa.table({"x": pa.array([r[0] for r in t], pa.binary()), "y": pa.array([r[1] for r in t], pa.binary())}) for t in (a, b)]
    assert (manifest_digest(tables[0]) == manifest_digest(tables[1])) == (a == b)


def test_a_column_that_has_no_digest_is_refused() -> None:
    with pytest.raises(TypeError, match="double"):
        row_digests(pa.table({"x": [0.5]}))


# --- worked examples ---


def test_row_groups_of_the_worked_example(tmp_path: Path) -> None:
    texts = [letter * n for letter, n in zip("abcdef", (10, 10, 10, 40, 10, 10), strict=True)]
    corpus = build(tmp_path, [[texts]], params(1, row_group_bytes=25))
    [path] = corpus.files(".parquet")
    assert [len(group) for group in groups(path)] == [2, 1, 1, 2]


def test_an_empty_corpus_is_one_empty_shard(tmp_path: Path) -> None:
    corpus = build(tmp_path, [[[]], []])
    said = manifest(corpus)
    assert [path.name for path in corpus.files(".parquet")] == ["shard-00000-of-00001.parquet"]
    assert pq.read_schema(corpus.files(".parquet")[0]).names == COLUMNS
    assert (said["n_docs"], said["n_shards"], said["shards"][0]["rows"], said["shards"][0]["text_bytes"]) == (0, 1, 0, 0)
    assert said["rows_blake3"] == said["shards"][0]["rows_blake3"] == digest_by_definition(COLUMNS, [])
    assert said["splits"] == {"train": 0, "val": 0}


@pytest.mark.parametrize(
    ("text", "residue"),
    [("Tom has a red ball.", 697), ("Tom has a red ball!", 826), ("Mia naps.", 248), ("Hi", 147), ("é", 51), ("ok", 814), ("a story", 203)],
)
def test_splits_of_the_worked_example(tmp_path: Path, text: str, residue: int) -> None:
    for permille, split in ((residue, "train"), (residue + 1, "val")):
        corpus = build(tmp_path / split, [[[text]]], params(1, val_permille=permille))
        assert [row["split"] for row in rows(corpus)] == [split]


def test_a_repeated_id_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    named = ShardSource(id="s0", urls=("a.jsonl",), license_spdx="CC0-1.0", named=True)
    settings = Params(dataset="d", version="v", sharding=Sharding(shard_rows=9), sources=(named,), dedup={})
    parts = [[{"id": "s0:x", "text": "one"}, {"id": "s0:y", "text": "two"}], [{"id": "s0:x", "text": "three"}]]
    with pytest.raises(StageError, match="s0:x: two documents have this id"):
        build(tmp_path, [parts], settings)
    assert list((tmp_path / "shard" / "out").iterdir()) == []


def test_cluster_is_the_smallest_row_of_the_corpus_that_shares_it(tmp_path: Path) -> None:
    names = [part_name_of(0, part_name(0)), part_name_of(0, part_name(1)), part_name_of(1, part_name(0))]
    clusters = {names[0]: [(1, "c")], names[1]: [(0, "c"), (1, "e")], names[2]: [(0, "e"), (1, "c")]}
    near = decisions(
        tmp_path / "near", "near_dedup", names,
        removed={names[0]: [{"row": 0}], names[1]: [{"row": 0}]},
        clusters={name: [{"row": row, "cluster": cluster} for row, cluster in found] for name, found in clusters.items()},
    )  # fmt: skip
    corpus = build(tmp_path, [[["gone", "c first", "alone"], ["c gone", "e first"]], [["e", "c"]]], near=[near], exact=[])
    assert [(row["text"], row["minhash_cluster"]) for row in rows(corpus)] == [
        ("c first", 0),
        ("alone", 1),
        ("e first", 2),
        ("e", 2),
        ("c", 0),
    ]


# --- decisions ---


@pytest.mark.parametrize("form", ["compiled", "reference"])
def test_shards_hold_what_the_decisions_leave(tmp_path: Path, form: Any) -> None:
    text = "ana@example.com\n\nrepeated bo@example.com\n\nend"
    spans = [{"row": 1, "kind": "email", "start": 0, "end": 15}, {"row": 1, "kind": "email", "start": 26, "end": 40}]
    scrub = decisions(tmp_path / "scrub", "scrub", [part_name(0)], source="s0", spans={part_name(0): spans})
    protected = decisions(tmp_path / "decontaminate", "decontaminate", [part_name(0)], source="s0", removed={part_name(0): [{"row": 0}]})
    name = part_name_of(0, part_name(0))
    cuts = [{"row": 1, "paragraph": 1, "start": 17, "end": 40}]
    exact = decisions(tmp_path / "exact", "exact_dedup", [name], removed={name: [{"row": 2}]}, cuts={name: cuts})
    with kernels.using(kernels.Kernels(form)):
        corpus = build(tmp_path, [[["protected", text, "repeated"]]], decontaminate=[protected], scrub=[scrub], exact=[exact])
    [row] = rows(corpus)
    assert (row["id"], row["url"], row["text"], row["pii_redactions"]) == ("s0:1", "files/s0.jsonl#2", "<EMAIL>\n\nend", 1)
    assert manifest(corpus)["pii"] == {"emails": 1, "phones": 0, "cards": 0, "ips": 0, "keys": 0}
    assert corpus.contents.counts["s0"].also["email"] == 1


@pytest.mark.parametrize("form", ["compiled", "reference"])
def test_a_document_of_which_nothing_is_left_must_be_removed(tmp_path: Path, form: Any) -> None:
    name = part_name_of(0, part_name(0))
    cuts = [{"row": 1, "paragraph": 0, "start": 0, "end": 1}]
    exact = decisions(tmp_path / "exact", "exact_dedup", [name], cuts={name: cuts})
    with kernels.using(kernels.Kernels(form)), pytest.raises(StageError, match="s0:1: every paragraph is cut but no decision removes"):
        build(tmp_path, [[["x", "y"]]], exact=[exact])


def test_a_kind_of_personal_data_that_is_not_known_is_refused(tmp_path: Path) -> None:
    spans = [{"row": 0, "kind": "shoe", "start": 0, "end": 1}]
    scrub = decisions(tmp_path / "scrub", "scrub", [part_name(0)], source="s0", spans={part_name(0): spans})
    with pytest.raises(StageError, match=r"part-00000.spans.parquet: it has a kind of personal data that is not known"):
        build(tmp_path, [[["x"]]], scrub=[scrub])


def test_a_source_of_which_nothing_is_left_stops_the_build_unless_that_is_fine(tmp_path: Path) -> None:
    name = part_name_of(0, part_name(0))
    counts = {"s0": Tally(docs_in=1, dropped={"paragraphs": 1})}
    exact = decisions(tmp_path / "exact", "exact_dedup", [name], counts=counts, removed={name: [{"row": 0}]}, cuts={})
    with pytest.raises(StageError, match=r"s0: no document is left of 1 \(exact_dedup.paragraphs 1\).* allow_empty"):
        build(tmp_path / "a", [[["x"]]], exact=[exact])
    fine = ShardSource(id="s0", urls=("a",), license_spdx="CC0-1.0", allow_empty=True)
    settings = Params(dataset="d", version="v", sharding=Sharding(shard_rows=1), sources=(fine,), dedup={})
    assert manifest(build(tmp_path / "b", [[["x"]]], settings, exact=[exact]))["n_docs"] == 0


def test_compression_changes_the_files_and_no_row(tmp_path: Path) -> None:
    found = {}
    for how in ("zstd", "snappy", "gzip", "none"):
        corpus = build(tmp_path / how, [[["x" * 500, "y"]]], params(1, compression=how))
        meta = pq.ParquetFile(corpus.files(".parquet")[0]).metadata
        assert meta.row_group(0).column(1).compression == {"none": "UNCOMPRESSED"}.get(how, how.upper())
        found[how] = (manifest(corpus)["rows_blake3"], manifest(corpus)["shards"][0]["sha256"])
    assert len({rows for rows, _ in found.values()}) == 1
    assert len({file for _, file in found.values()}) == 4


def test_kept_columns_are_text_and_are_digested(tmp_path: Path) -> None:
    keeping = ShardSource(id="s0", urls=("a.jsonl",), license_spdx="CC0-1.0", keep=("title", "stars"))
    settings = Params(dataset="d", version="v", sharding=Sharding(shard_rows=9), sources=(keeping,), dedup={})
    parts = [[{"text": "one", "meta": '{"title":"T","stars":3}'}, {"text": "two", "meta": '{"title":null}'}, {"text": "three"}]]
    corpus = build(tmp_path, [parts], settings)
    found = rows(corpus)
    assert [(row["title"], row["stars"]) for row in found] == [("T", "3"), (None, None), (None, None)]
    assert manifest(corpus)["rows_blake3"] == digest_by_definition([*COLUMNS, "stars", "title"], found)


def test_the_manifest_has_its_keys_in_order_and_no_time(tmp_path: Path) -> None:
    a, b = build(tmp_path / "a", [[["x"], ["y"]]]), build(tmp_path / "b", [[["x"], ["y"]]])
    assert list(manifest(a)) == [
        "dataset", "version", "n_docs", "n_shards", "rows_blake3", "shards", "splits", "filters", "dedup", "pii", "ledger_ref", "key",
    ]  # fmt: skip
    assert list(manifest(a)["shards"][0]) == ["name", "sha256", "rows", "text_bytes", "rows_blake3"]
    for name in (MANIFEST, "shard-00000-of-00001.parquet"):
        assert (a.path / name).read_bytes() == (b.path / name).read_bytes()


# --- forms, and memory ---

WHAT = ("stays", "goes", "loses a paragraph", "follows", "leads", "has an address")
DECIDED = st.sampled_from(WHAT)


@settings(deadline=None, max_examples=15)
@given(st.lists(st.lists(st.tuples(TEXT, DECIDED), max_size=5), min_size=1, max_size=3), st.integers(1, 4))
def test_neither_form_nor_memory_changes_a_byte(drawn: list[list[tuple[str, str]]], shard_rows: int) -> None:
    names = [part_name_of(0, part_name(i)) for i in range(len(drawn))]
    tables: dict[str, dict[str, list[dict[str, Any]]]] = {kind: {} for kind in ("removed", "cuts", "clusters", "spans")}
    for i, (name, part) in enumerate(zip(names, drawn, strict=True)):
        of = {what: [row for row, (_, decided) in enumerate(part) if decided == what] for what in WHAT}
        tables["removed"][name] = [{"row": row} for row in of["goes"]]
        tables["cuts"][name] = [{"row": row, "paragraph": 0, "start": 0, "end": 1} for row in of["loses a paragraph"]]
        tables["clusters"][name] = [{"row": row, "cluster": "ab"[row % 2]} for row in sorted(of["follows"] + of["leads"])]
        tables["spans"][part_name(i)] = [{"row": row, "kind": "email", "start": 3, "end": 9} for row in of["has an address"]]
    texts = [
        [{"loses a paragraph": "x\n\ny", "has an address": "é: a@b.cc "}.get(what, "") + text for text, what in part] for part in drawn
    ]
    with TemporaryDirectory() as home:
        taken = documents(Path(home, "documents"), "s0", texts)
        inputs = {
            "documents": [taken],
            "scrub": [decisions(Path(home, "scrub"), "scrub", [*tables["spans"]], "s0", spans=tables["spans"])],
            "exact": [decisions(Path(home, "exact"), "exact_dedup", names, removed=tables["removed"], cuts=tables["cuts"])],
            "near": [decisions(Path(home, "near"), "near_dedup", names, clusters=tables["clusters"])],
        }
        built = []
        for form, memory in (("reference", 1 << 30), ("compiled", 1 << 30), ("compiled", 100)):
            with kernels.using(kernels.Kernels(form)):  # type: ignore[arg-type]  # one of the two
                corpus = run(shard.STAGE, params(1, shard_rows), inputs, Path(home, f"{form}-{memory}"), memory=memory)
            built.append(({path.name: path.read_bytes() for path in corpus.path.iterdir()}, corpus.contents.counts))
        assert built[0] == built[1] == built[2]
        found = rows(corpus)
        firsts: dict[str, int] = {}
        kept = [(row, what) for part in drawn for row, (_, what) in enumerate(part) if what != "goes"]
        for place, (row, what) in enumerate(kept):
            lead = firsts.setdefault("ab"[row % 2], place) if what in ("follows", "leads") else place
            assert (found[place]["minhash_cluster"], found[place]["pii_redactions"]) == (lead, int(what == "has an address"))


def test_no_task_grows_with_the_documents_of_a_cluster(tmp_path: Path) -> None:
    name = part_name_of(0, part_name(0))
    near = decisions(tmp_path / "near", "near_dedup", [name], clusters={name: [{"row": row, "cluster": "s0:0"} for row in range(200)]})
    taken = documents(tmp_path / "documents", "s0", [[f"text {i}" for i in range(200)]])
    sizes: list[int] = []
    write = shard.write_shard

    def measured(task: shard.Shard, out: Any) -> Any:
        sizes.append(len(msgspec.msgpack.encode(task)))
        return write(task, out)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard, "write_shard", measured)
        corpus = run(shard.STAGE, params(1, 1000), {"documents": [taken], "near": [near]}, tmp_path / "shard")
    assert {row["minhash_cluster"] for row in rows(corpus)} == {0}
    assert max(sizes) < 2000
