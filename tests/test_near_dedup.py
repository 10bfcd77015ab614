"""Near dedup: the law holds on any corpus, whatever its parts, its partitions and the order of work."""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minhash_by_definition import band_keys, shingle_set, signature
from serial_job import documents, run

from corpusbuild import kernels, law
from corpusbuild.kernels import Kernels
from corpusbuild.minhash import SignParams
from corpusbuild.model import Tally
from corpusbuild.parts import REMOVED, read_rows, write_rows
from corpusbuild.stage import Input, Stage
from corpusbuild.stages import exact_dedup, near_dedup, sign
from corpusbuild.stages.exact_dedup import ExactParams
from corpusbuild.stages.near_dedup import NearParams
from corpusbuild.text import effective

Sources = list[list[list[str]]]  # texts of each part of each source
Texts = dict[str, str]  # by id, in plan order

WORDS = st.lists(st.sampled_from("abcd"), max_size=6).map(" ".join)
TEXT = st.lists(WORDS, min_size=1, max_size=2).map("\n\n".join) | st.sampled_from(["", " .", "a b c d e f g h", "a b c d e f g x"])
SOURCES = st.lists(st.lists(st.lists(TEXT, max_size=6), max_size=2), max_size=3)
FORM = st.sampled_from([Kernels("reference"), Kernels("compiled")])
PARAMS = st.builds(
    lambda bands, rows, shingle, threshold, cap: NearParams(
        sign=SignParams(num_perm=bands * rows, bands=bands, shingle=shingle), jaccard_threshold=threshold, max_bucket=cap
    ),
    st.integers(1, 3), st.integers(1, 2), st.integers(1, 3), st.sampled_from([0.2, 0.5, 0.6, 0.8, 1.0]), st.sampled_from([1, 2, 3, 64]),
)  # fmt: skip


@dataclass
class Outcome:
    """What becomes of a corpus: who goes (in whose favour, how similar), who is in whose cluster, and the counts of each source."""

    gone: dict[str, tuple[str, float]] = field(default_factory=dict)
    clusters: dict[str, str] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)


def by_definition(texts: Texts, params: NearParams, before: frozenset[str] = frozenset()) -> Outcome:
    """``before`` are the sources that are earlier corpora: compared with, not decided about."""
    out = Outcome(counts=defaultdict(lambda: defaultdict(int)))
    sets = {id: shingle_set(text, params.sign.shingle) for id, text in texts.items()}
    order = {id: n for n, id in enumerate(texts)}
    first: dict[tuple[int, ...], str] = {}
    like = {id: first.setdefault(tuple(s), id) for id, s in sets.items() if s}  # whose set a document has

    candidates, buckets = set(), defaultdict(list)
    for id in texts:
        if like.get(id) == id:
            for band in enumerate(band_keys(signature(sets[id], params.sign), params.sign.bands)):
                bucket = buckets[band]
                if source_of(id) not in before:
                    candidates |= {(id, earlier) for earlier in bucket[: params.max_bucket]}
                out.counts[source_of(id)]["not_compared"] += max(len(bucket) - params.max_bucket, 0)
                out.counts[source_of(id)]["buckets_capped"] += len(bucket) == params.max_bucket
                bucket.append(id)

    verified: dict[str, dict[str, float]] = defaultdict(dict)
    for later, earlier in candidates:
        a, b = set(sets[later]), set(sets[earlier])
        out.counts[source_of(later)]["candidates"] += 1
        if len(a & b) / len(a | b) >= params.jaccard_threshold:
            out.counts[source_of(later)]["verified"] += 1
            verified[later][earlier] = len(a & b) / len(a | b)

    for id in texts:
        stayed = [(-similarity, order[earlier], earlier) for earlier, similarity in verified[id].items() if earlier not in out.gone]
        if stayed:
            out.gone[id] = (min(stayed)[2], -min(stayed)[0])
        elif like.get(id, id) != id and source_of(id) not in before:
            out.gone[id] = out.gone.get(like[id], (like[id], 1.0))

    edges = [(id, other) for id in texts if source_of(id) not in before for other in [*verified[id], like.get(id, id)] if other != id]
    cluster = {id: id for id in texts}
    for u, v in edges:
        low, high = sorted((cluster[u], cluster[v]), key=order.__getitem__)
        cluster = {id: low if c == high else c for id, c in cluster.items()}
    out.clusters = {id: cluster[id] for id in texts if any(id in edge for edge in edges)}
    return out


def source_of(id: str) -> str:
    return id.split(":")[0]


def remaining(sources: Sources, gone: set[str], exact: Input | None) -> Texts:
    """The text of each document that earlier stages left, less what they cut."""
    texts = {f"s{s}:{10 * k}": text for s, parts in enumerate(sources) for k, text in enumerate(text for part in parts for text in part)}
    cuts: dict[str, set[int]] = defaultdict(set)
    for path in exact.files(".cuts.parquet") if exact else []:
        for row in read_rows(path):
            cuts[row["id"]].add(row["paragraph"])
    gone = gone | {row["id"] for path in (exact.files(".removed.parquet") if exact else []) for row in read_rows(path)}
    return {id: effective(text, cuts[id]) or "" for id, text in texts.items() if id not in gone}


def lay(home: Path, sources: Sources, params: SignParams, gone: set[str] = frozenset()) -> dict[str, list[Input]]:  # type: ignore[assignment]
    """Documents and signs of each source, and tables that say which documents earlier stages removed."""
    docs = [documents(home / f"documents-{s}", f"s{s}", parts) for s, parts in enumerate(sources)]
    signs = [run(sign.STAGE, params, {"documents": [d]}, home / f"sign-{s}", source=f"s{s}") for s, d in enumerate(docs)]

    def remove(job: Any) -> Any:
        k = 0
        for p, part in enumerate(sources[job.params]):
            rows = [{"row": row} for row in range(len(part)) if f"s{job.params}:{10 * (k + row)}" in gone]
            write_rows(job.scratch.parent / "out" / f"part-{p:05d}.removed.parquet", rows, REMOVED)
            k += len(part)
        return {}

    removed = [run(Stage("scrub", 1, remove), s, {}, home / f"removed-{s}", source=f"s{s}") for s in range(len(sources))]
    return {"documents": docs, "signs": signs, "removed": removed}


def outcome_of(entry: Input, params: NearParams) -> Outcome:
    removed = [row for path in entry.files(".removed.parquet") for row in read_rows(path)]
    clusters = [row for path in entry.files(".clusters.parquet") for row in read_rows(path)]
    out = Outcome({r["id"]: (r["survivor"], r["similarity"]) for r in removed}, {c["id"]: c["cluster"] for c in clusters})
    for row in removed:
        assert row["similarity"] == row["value"] >= row["threshold"] == params.jaccard_threshold
        rule = "jaccard" if source_of(row["survivor"]) in entry.contents.counts else "against"
        assert (row["stage"], row["rule"], row["rules"], row["source"]) == ("near_dedup", rule, [rule], source_of(row["id"]))
        assert row["cluster"] == out.clusters[row["id"]]
        assert out.clusters.get(row["survivor"], row["cluster"]) == row["cluster"]  # of an earlier corpus's document nothing is said
    out.counts = {source: tally.also for source, tally in entry.contents.counts.items()}
    return out


def assert_lawful(entry: Input, texts: Texts, params: NearParams, before: frozenset[str] = frozenset()) -> None:
    expected, got = by_definition(texts, params, before), outcome_of(entry, params)
    assert got.gone == expected.gone
    assert got.clusters == {id: cluster for id, cluster in expected.clusters.items() if source_of(id) not in before}
    assert list(got.gone) == [id for id in texts if id in got.gone]
    for source, tally in entry.contents.counts.items():
        mine = [id for id in texts if source_of(id) == source]
        assert (tally.docs_in, sum(tally.dropped.values())) == (len(mine), sum(id in got.gone for id in mine))
        for name in ("candidates", "verified", "not_compared", "buckets_capped"):
            assert tally.also.get(name, 0) == expected.counts[source][name], name


@settings(deadline=None, max_examples=60)
@given(
    SOURCES, PARAMS, st.sampled_from([1000, 3000, 1 << 30]), st.sampled_from([1, 3, 1 << 20]), st.booleans(), st.booleans(), FORM, st.data()
)
def test_the_law(
    sources: Sources, params: NearParams, memory: int, batch: int, backwards: bool, with_exact: bool, form: Kernels, data: st.DataObject
) -> None:
    ids = list(remaining(sources, set(), None))
    gone = set(data.draw(st.lists(st.sampled_from(ids), max_size=3))) if ids else set()
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch, kernels.using(form):
        patch.setattr(near_dedup, "BATCH", batch)
        patch.setattr(near_dedup, "CELL", batch)
        patch.setattr(near_dedup, "GROUP", batch)
        home, inputs = Path(folder), lay(Path(folder), sources, params.sign, gone)
        exact = run(exact_dedup.STAGE, ExactParams(), inputs, home / "exact") if with_exact else None
        entry = run(
            near_dedup.STAGE, params, inputs | {"exact": [exact] if exact else []}, home / "near", memory=memory, backwards=backwards
        )
        assert_lawful(entry, remaining(sources, gone, exact), params)


@settings(deadline=None, max_examples=30)
@given(SOURCES, SOURCES, PARAMS, st.sampled_from([1000, 1 << 30]), st.booleans())
def test_the_law_with_an_earlier_corpus(earlier: Sources, sources: Sources, params: NearParams, memory: int, backwards: bool) -> None:
    with TemporaryDirectory() as folder:
        home, k, everything = Path(folder), len(earlier), [*earlier, *sources]
        inputs = lay(home, everything, params.sign)
        inputs = {role: entries[k:] for role, entries in inputs.items()} | {
            "earlier": inputs["documents"][:k],
            "earlier_signs": inputs["signs"][:k],
        }
        exact = run(exact_dedup.STAGE, ExactParams(), inputs, home / "exact")
        entry = run(near_dedup.STAGE, params, inputs | {"exact": [exact]}, home / "near", memory=memory, backwards=backwards)
        assert_lawful(entry, remaining(everything, set(), exact), params, frozenset(f"s{i}" for i in range(k)))
        assert set(entry.contents.counts) == {f"s{k + i}" for i in range(len(sources))}


@settings(deadline=None, max_examples=30)
@given(SOURCES, PARAMS)
def test_every_survivor_stays_once_settled(sources: Sources, params: NearParams) -> None:
    """exact_dedup names a document that near_dedup may remove; the settled table says who stays instead."""
    with TemporaryDirectory() as folder:
        home, inputs = Path(folder), lay(Path(folder), sources, params.sign)
        exact = run(exact_dedup.STAGE, ExactParams(), inputs, home / "exact")
        entry = run(near_dedup.STAGE, params, inputs | {"exact": [exact]}, home / "near")
        named = {row["id"]: row["survivor"] for e in (exact, entry) for path in e.files(".removed.parquet") for row in read_rows(path)}
        settled = {row["id"]: row["survivor"] for path in entry.files(".settled.parquet") for row in read_rows(path)}
        gone = set(named)
        assert {id for id, survivor in named.items() if survivor in gone} == set(settled)
        assert not gone & set((named | settled).values())
        assert all(settled[id] == named[named[id]] for id in settled)


def near(home: Path, sources: Sources, params: NearParams, **how: Any) -> tuple[Input, Texts]:
    return run(near_dedup.STAGE, params, lay(home, sources, params.sign), home / "near", **how), remaining(sources, set(), None)


def variant(i: int, words: int = 60) -> str:
    """One of a family of texts: template number ``i`` of sixty words, of which one is its own."""
    return " ".join(f"w{k}" for k in range(words)) + f" own{i}"


def test_a_large_template_cluster_is_capped_and_counted(tmp_path: Path) -> None:
    params = NearParams(max_bucket=2)
    entry, texts = near(tmp_path, [[[variant(i) for i in range(12)]], [[variant(i) for i in range(12, 30)]]], params)
    assert_lawful(entry, texts, params)
    assert set(outcome_of(entry, params).gone.values()) == {("s0:0", 56 / 58)}
    assert all(tally.also["not_compared"] > 0 for tally in entry.contents.counts.values())


def test_parts_partitions_and_order_of_work_change_no_byte(tmp_path: Path) -> None:
    texts = [variant(i % 9, 30 + i % 4) if i % 3 else f"alone {i} " * (i % 5) for i in range(40)]
    params = NearParams(sign=SignParams(shingle=2))
    entries = []
    for name, cuts, how in [
        ("one", [0, 40], {}),
        ("many", [0, 1, 1, 17, 40], {"memory": 2000}),
        ("back", [0, 9, 40], {"memory": 700, "backwards": True}),
    ]:
        entry, _ = near(tmp_path / name, [[texts[a:b] for a, b in pairwise(cuts)]], params, **how)
        entries.append(entry)
    first, *others = entries
    for kind in (".removed.parquet", ".clusters.parquet"):

        def rows(entry: Input, kind: str = kind) -> list[dict[str, Any]]:
            return [{k: v for k, v in row.items() if k != "row"} for path in entry.files(kind) for row in read_rows(path)]

        assert rows(first)
        assert all(rows(other) == rows(first) for other in others)
    assert all(other.contents.counts == first.contents.counts for other in others)


def test_what_only_a_chain_connects_stays_in_its_cluster(tmp_path: Path) -> None:
    a, b, c = "a b c d e f g h", "b c d e f g h i", "c d e f g h i j"  # a and b, b and c: 7 of 9; a and c: 6 of 10
    params = NearParams(sign=SignParams(num_perm=64, bands=64, shingle=1), jaccard_threshold=0.7)
    entry, texts = near(tmp_path, [[[a], [b, c]]], params)
    assert_lawful(entry, texts, params)
    got = outcome_of(entry, params)
    assert got.gone == {"s0:10": ("s0:0", 7 / 9)}
    assert got.clusters == {"s0:0": "s0:0", "s0:10": "s0:0", "s0:20": "s0:0"}


def test_equal_documents_go_with_the_first_of_them(tmp_path: Path) -> None:
    a, b = "a b c d e f g h", "b c d e f g h i"
    params = NearParams(sign=SignParams(num_perm=64, bands=64, shingle=1), jaccard_threshold=0.7)
    entry, texts = near(tmp_path, [[[a, b]], [["B, c d e! f g h i", a.upper(), "i h g f e d c b"]]], params)
    assert_lawful(entry, texts, params)
    assert outcome_of(entry, params).gone == {
        "s0:10": ("s0:0", 7 / 9), "s1:0": ("s0:0", 7 / 9), "s1:10": ("s0:0", 1.0), "s1:20": ("s0:0", 7 / 9),
    }  # fmt: skip
    assert entry.contents.counts["s1"] == Tally(
        docs_in=3, kept=0, dropped={"jaccard": 3}, also={"candidates": 0, "verified": 0, "not_compared": 0, "buckets_capped": 0}
    )


def test_documents_without_words_are_nobodys_duplicates_and_short_ones_compare_whole(tmp_path: Path) -> None:
    params = NearParams()
    entry, texts = near(tmp_path, [[["", "", "...", "one", "ONE.", "one two", "one two three", "two one"]]], params)
    assert_lawful(entry, texts, params)
    assert outcome_of(entry, params).gone == {"s0:40": ("s0:30", 1.0)}


def test_a_document_that_was_cut_is_compared_by_what_remains(tmp_path: Path) -> None:
    boiler, params = "please subscribe to our newsletter for more of this", NearParams(sign=SignParams(shingle=1))
    sources = [[[boiler, f"{boiler}\n\na short note", f"a short note of two\n\n{boiler}", f"{boiler}\n\nA SHORT NOTE"]]]
    inputs = lay(tmp_path, sources, params.sign)
    exact = run(exact_dedup.STAGE, ExactParams(), inputs, tmp_path / "exact")
    entry = run(near_dedup.STAGE, params, inputs | {"exact": [exact]}, tmp_path / "near")
    assert_lawful(entry, remaining(sources, set(), exact), params)
    assert outcome_of(entry, params).gone == {"s0:30": ("s0:10", 1.0)}
    without = run(near_dedup.STAGE, params, inputs, tmp_path / "without")
    assert outcome_of(without, params).gone == {"s0:20": ("s0:10", 12 / 13), "s0:30": ("s0:10", 1.0)}


def test_the_threshold_itself_is_near_enough(tmp_path: Path) -> None:
    params = NearParams(sign=SignParams(num_perm=64, bands=64, shingle=1), jaccard_threshold=0.8)
    entry, _ = near(tmp_path, [[["a b c d", "a b c d e"]]], params)
    assert outcome_of(entry, params).gone == {"s0:10": ("s0:0", 0.8)}


def test_tables_are_written_in_their_schemas_even_when_empty(tmp_path: Path) -> None:
    entry, _ = near(tmp_path, [[["a"], []], [], [[]]], NearParams())
    names = ["00000-part-00000", "00000-part-00001", "00002-part-00000"]
    assert [f.path for f in entry.contents.files] == [f"{name}.{kind}.parquet" for name in names for kind in ("clusters", "removed")]
    assert [pq.read_schema(path) for path in entry.files(".removed.parquet")] == [REMOVED] * 3
    assert [pq.read_schema(path) for path in entry.files(".clusters.parquet")] == [near_dedup.CLUSTERS] * 3
    assert entry.contents.counts["s1"] == Tally()


def test_a_build_of_nothing_decides_nothing(tmp_path: Path) -> None:
    entry, _ = near(tmp_path, [], NearParams())
    assert (entry.contents.files, entry.contents.counts) == ((), {})


def test_pairs_that_cannot_reach_the_threshold_are_not_intersected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    similarities = law.similarities
    monkeypatch.setattr(law, "similarities", lambda *args: seen.append(similarities(*args)) or seen[-1])
    params = NearParams(sign=SignParams(num_perm=256, bands=256, shingle=1))
    entry, _ = near(tmp_path, [[["a b", "a b c d e f g h"]]], params)
    assert [values.tolist() for values in seen] == [[0.0]]
    assert entry.contents.counts["s0"].also["candidates"] == 1
