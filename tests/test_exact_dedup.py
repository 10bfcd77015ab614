"""Exact dedup: the first of equal paragraphs stays, in plan order, whatever the parts, partitions and order of work."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serial_job import documents, run

from corpusbuild.minhash import SignParams
from corpusbuild.model import Tally
from corpusbuild.parts import CUTS, REMOVED, read_rows, write_rows
from corpusbuild.stage import Input, Stage
from corpusbuild.stages import exact_dedup, sign
from corpusbuild.stages.exact_dedup import ExactParams
from corpusbuild.text import effective, paragraphs

Sources = list[list[list[str]]]  # texts of each part of each source
SMALL = SignParams(num_perm=2, bands=2)

TEXT = st.lists(st.sampled_from("abcdef"), max_size=4).map("\n\n".join)
SOURCES = st.lists(st.lists(st.lists(TEXT, max_size=4), max_size=2), max_size=3)


def by_definition(sources: Sources, gone: set[tuple[int, int, int]]) -> tuple[list[Any], list[Any]]:
    """(cuts, removed) as (source, part, row, ...) with the survivor in the same terms."""
    seen: dict[str, Any] = {}
    cuts, removed = [], []
    for s, parts in enumerate(sources):
        for p, texts in enumerate(parts):
            for row, text in enumerate(texts):
                if (s, p, row) in gone:
                    continue
                spans = paragraphs(text)
                lost = []
                for i, (start, end) in enumerate(spans):
                    first = seen.setdefault(text[start:end], (s, p, row, i))
                    if first != (s, p, row, i):
                        lost.append((s, p, row, i, start, end, first[:3]))
                cuts += lost
                if spans and len(lost) == len(spans):
                    removed.append((s, p, row, len(spans), lost[0][-1]))
    return cuts, removed


def id_of(sources: Sources, where: tuple[int, int, int]) -> str:
    s, p, row = where
    return f"s{s}:{10 * (sum(map(len, sources[s][:p])) + row)}"


def lay(home: Path, sources: Sources, gone: set[tuple[int, int, int]] = frozenset()) -> dict[str, list[Input]]:  # type: ignore[assignment]
    """Documents and signs of each source, and tables that say which documents earlier stages removed."""
    docs = [documents(home / f"documents-{s}", f"s{s}", parts) for s, parts in enumerate(sources)]
    signs = [run(sign.STAGE, SMALL, {"documents": [d]}, home / f"sign-{s}", source=f"s{s}") for s, d in enumerate(docs)]

    def remove(job: Any) -> Any:
        for p in range(len(sources[job.params])):
            rows = [{"row": row} for s, q, row in sorted(gone) if (s, q) == (job.params, p)]
            write_rows(
                job.scratch.parent / "out" / f"part-{p:05d}.removed.parquet", [{"id": "never a document", "row": None}, *rows], REMOVED
            )
        return {}

    removed = [run(Stage("scrub", 1, remove), s, {}, home / f"removed-{s}", source=f"s{s}") for s in range(len(sources))]
    return {"documents": docs, "signs": signs, "removed": removed}


def rows_of(entry: Input, suffix: str) -> list[tuple[str, dict[str, Any]]]:
    return [(path.name.split(".")[0], row) for path in entry.files(suffix) for row in read_rows(path)]


@settings(deadline=None, max_examples=30)
@given(SOURCES, st.data())
def test_the_first_of_equal_paragraphs_stays(sources: Sources, data: st.DataObject) -> None:
    places = [(s, p, row) for s, parts in enumerate(sources) for p, texts in enumerate(parts) for row in range(len(texts))]
    gone = set(data.draw(st.lists(st.sampled_from(places), max_size=3))) if places else set()
    cuts, removed = by_definition(sources, gone)
    with TemporaryDirectory() as folder:
        inputs = lay(Path(folder), sources, gone)
        memory, backwards = data.draw(st.sampled_from([500, 2000, 1 << 30])), data.draw(st.booleans())
        entry = run(exact_dedup.STAGE, ExactParams(), inputs, Path(folder) / "exact", memory=memory, backwards=backwards)

        def name(s: int, p: int) -> str:
            return f"{s:05d}-part-{p:05d}"

        assert [(part, tuple(row.values())) for part, row in rows_of(entry, ".cuts.parquet")] == [
            (name(s, p), (id_of(sources, (s, p, row)), f"s{s}", row, i, start, end, id_of(sources, first)))
            for s, p, row, i, start, end, first in cuts
        ]
        got = [(part, r["id"], r["row"], r["value"], r["survivor"]) for part, r in rows_of(entry, ".removed.parquet")]
        assert got == [(name(s, p), id_of(sources, (s, p, row)), row, float(n), id_of(sources, first)) for s, p, row, n, first in removed]
        assert [f.path for f in entry.contents.files] == [
            f"{name(s, p)}.{kind}"
            for s, parts in enumerate(sources)
            for p in range(len(parts))
            for kind in ("cuts.parquet", "removed.parquet", "survivors.arrow")
        ]
        for s in range(len(sources)):
            alive = [paragraphs(sources[a][b][c]) for a, b, c in places if a == s and (a, b, c) not in gone]
            n_cuts, n_gone = sum(cut[0] == s for cut in cuts), sum(r[0] == s for r in removed)
            also = {"paragraphs": sum(map(len, alive)), "duplicate_paragraphs": n_cuts}
            got_tally = entry.contents.counts[f"s{s}"]
            assert (got_tally.docs_in, got_tally.kept, sum(got_tally.dropped.values())) == (len(alive), len(alive) - n_gone, n_gone)
            assert got_tally.also == (also if sources[s] else {})


@settings(deadline=None, max_examples=15)
@given(SOURCES, SOURCES, st.sampled_from([500, 1 << 30]))
def test_an_earlier_corpus_comes_first_and_loses_nothing(earlier: Sources, sources: Sources, memory: int) -> None:
    """What goes is what would go if the earlier corpora were the first sources, and nothing is said of them."""
    with TemporaryDirectory() as folder:
        home, k = Path(folder), len(earlier)
        everything = lay(home / "all", [*earlier, *sources])
        alone = {role: entries[k:] for role, entries in everything.items()}
        before = {"earlier": everything["documents"][:k], "earlier_signs": everything["signs"][:k]}
        joined = run(exact_dedup.STAGE, ExactParams(), everything, home / "joined")
        entry = run(exact_dedup.STAGE, ExactParams(), alone | before, home / "entry", memory=memory)
        for suffix in (".cuts.parquet", ".removed.parquet"):
            expected = [row for _, row in rows_of(joined, suffix) if row["source"] in {e.source for e in alone["signs"]}]
            for row in expected:
                if row.get("rule") and row["survivor"].split(":")[0] in {e.source for e in before["earlier"]}:
                    row |= {"rule": "against", "rules": ["against"]}
            assert [row for _, row in rows_of(entry, suffix)] == expected
        assert set(entry.contents.counts) == {e.source for e in alone["signs"]}
        assert len(entry.files(".parquet")) == 2 * sum(map(len, sources))


def test_what_remains_holds_every_paragraph_once(tmp_path: Path) -> None:
    sources = [[["a\n\nb\n\na", "b\n\nc", "c"], ["d"]], [["a\n\nd", "e\n\na\n\nf"]]]
    entry = run(exact_dedup.STAGE, ExactParams(), lay(tmp_path, sources), tmp_path / "exact")
    cuts: dict[str, set[int]] = {}
    for _, row in rows_of(entry, ".cuts.parquet"):
        cuts.setdefault(row["id"], set()).add(row["paragraph"])
    texts = {id_of(sources, (s, p, i)): t for s, parts in enumerate(sources) for p, part in enumerate(parts) for i, t in enumerate(part)}
    assert {id: effective(text, cuts.get(id, set())) for id, text in texts.items()} == {
        "s0:0": "a\n\nb", "s0:10": "c", "s0:20": None, "s0:30": "d", "s1:0": None, "s1:10": "e\n\nf",
    }  # fmt: skip
    removed = [row for _, row in rows_of(entry, ".removed.parquet")]
    common = {
        "stage": "exact_dedup",
        "rule": "paragraphs",
        "threshold": None,
        "rules": ["paragraphs"],
        "similarity": 1.0,
        "cluster": None,
        "file": 0,
    }
    assert removed == [
        common | {"id": "s0:20", "source": "s0", "value": 1.0, "survivor": "s0:10", "place": "3", "row": 2},
        common | {"id": "s1:0", "source": "s1", "value": 2.0, "survivor": "s0:0", "place": "1", "row": 0},
    ]
    assert entry.contents.counts == {
        "s0": Tally(docs_in=4, kept=3, dropped={"paragraphs": 1}, also={"paragraphs": 7, "duplicate_paragraphs": 3}),
        "s1": Tally(docs_in=2, kept=1, dropped={"paragraphs": 1}, also={"paragraphs": 5, "duplicate_paragraphs": 3}),
    }


def test_published_example_of_three_paragraphs(tmp_path: Path) -> None:
    p1, p2, p3 = "The cat sat.", "The dog ran.", "A bird sang."
    sources = [[[f"{p1}\n\n{p2}", f"{p1}\n \t\n{p3}", f"  {p2}  "]]]
    entry = run(exact_dedup.STAGE, ExactParams(), lay(tmp_path, sources), tmp_path / "exact")
    assert [(row["id"], row["paragraph"], row["start"], row["end"]) for _, row in rows_of(entry, ".cuts.parquet")] == [
        ("s0:10", 0, 0, 12),
        ("s0:20", 0, 2, 14),
    ]
    assert [row["id"] for _, row in rows_of(entry, ".removed.parquet")] == ["s0:20"]


def test_tables_are_written_in_their_schemas_even_when_empty(tmp_path: Path) -> None:
    entry = run(exact_dedup.STAGE, ExactParams(), lay(tmp_path, [[["a"], []], []]), tmp_path / "exact")
    assert [pq.read_schema(path) for path in entry.files(".cuts.parquet")] == [CUTS] * 2
    assert [pq.read_schema(path) for path in entry.files(".removed.parquet")] == [REMOVED] * 2
    assert entry.contents.counts["s1"] == Tally()


def test_a_text_without_paragraphs_stays(tmp_path: Path) -> None:
    entry = run(exact_dedup.STAGE, ExactParams(), lay(tmp_path, [[["", " \n\n ", "", "a"]]]), tmp_path / "exact")
    assert entry.contents.counts["s0"].kept == 4


def test_the_filter_size_is_no_part_of_the_key() -> None:
    named = exact_dedup.STAGE.names_output
    assert named(ExactParams(bloom_bytes_per_item=1)) == named(ExactParams(bloom_bytes_per_item=10))


def test_the_filter_size_changes_no_byte(tmp_path: Path) -> None:
    sources = [[["a\n\nb", "b\n\nc", "c"], ["a\n\nd"]]]
    small, large = (
        run(exact_dedup.STAGE, ExactParams(bloom_bytes_per_item=size), lay(tmp_path / str(size), sources), tmp_path / str(size) / "exact")
        for size in (1, 64)
    )
    assert [path.read_bytes() for path in small.files("")] == [path.read_bytes() for path in large.files("")]
    assert small.contents.counts == large.contents.counts


@pytest.mark.parametrize("memory", [2000, 20_000, 1 << 30])
def test_a_partition_fits_into_the_memory_that_the_configuration_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int
) -> None:
    from corpusbuild import repeats

    sorted_at_once = []
    split = repeats.split
    monkeypatch.setattr(repeats, "split", lambda records: sorted_at_once.append(len(records)) or split(records))
    texts = [f"paragraph {i}\n\nanother {i % 50}" for i in range(300)]
    run(exact_dedup.STAGE, ExactParams(), lay(tmp_path, [[texts[:150], texts[150:]]]), tmp_path / "exact", memory=memory)
    matched = sorted_at_once[2:]  # after the two parts' own
    assert sum(matched) == 400  # 300 alone, and 50 of which each part gives one
    assert max(matched) * repeats.WORKING_BYTES <= 2 * memory  # digests fall unevenly, but not by much


def test_a_paragraph_of_every_document_does_not_make_a_partition_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from corpusbuild import repeats, spool

    sizes = []
    read_runs = spool.runs
    monkeypatch.setattr(repeats.spool, "runs", lambda *args: [sizes.append(len(r)) or r for r in read_runs(*args)])  # type: ignore[func-returns-value]
    run(exact_dedup.STAGE, ExactParams(), lay(tmp_path, [[["read more"] * 50] * 4]), tmp_path / "exact")
    assert sum(sizes[:4]) == 4  # one a part
