"""Sign: rows stand beside their documents, and hold what the text alone decides."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serial_job import documents, run

from corpusbuild import minhash, text
from corpusbuild.minhash import SignParams
from corpusbuild.model import Tally
from corpusbuild.parts import read_arrow
from corpusbuild.signfile import UNKEPT, agreeing, paragraph_counts, read_band, read_signs
from corpusbuild.stage import Input
from corpusbuild.stages import sign

TEXTS = st.lists(st.text(st.sampled_from("aé中 \n.\U0001f600"), max_size=30), max_size=8)


def signed(home: Path, parts: list[list[str]], params: SignParams) -> Input:
    return run(sign.STAGE, params, {"documents": [documents(home / "documents", "src", parts)]}, home / "sign", source="src")


@settings(deadline=None, max_examples=30)
@given(TEXTS, st.integers(0, 8))
def test_rows_depend_on_the_text_alone(texts: list[str], cut: int) -> None:
    params = SignParams(num_perm=6, bands=3, shingle=2)
    with TemporaryDirectory() as folder:
        entry = signed(Path(folder), [texts[:cut], texts[cut:]], params)
        expected = minhash.signs(texts, params)
        at = 0
        for i, part in enumerate([texts[:cut], texts[cut:]]):
            path = entry.path / f"part-{i:05d}.signs.arrow"
            got = read_signs(path, params.bands)
            here = slice(at, at + len(part))
            assert got.bands.tolist() == (expected.bands[:, here] >> UNKEPT).tolist() == [read_band(path, b).tolist() for b in range(3)]
            assert [got.hi.tolist(), got.lo.tolist(), got.shingles.tolist()] == [column[here].tolist() for column in expected[:3]]
            assert read_arrow(path, ["id"]).column("id").to_pylist() == [f"src:{10 * k}" for k in range(here.start, here.stop)]
            if part:
                assert agreeing(path, expected.bands[:, at])[0] == params.bands
            assert paragraph_counts(path).tolist() == [len(text.paragraphs(t)) for t in part]
            at += len(part)


def test_counts_say_what_was_signed(tmp_path: Path) -> None:
    entry = signed(tmp_path, [["a b c d\n\ne"], ["", "a b\n\nc\n\nd"]], SignParams(shingle=2))
    assert entry.contents.counts == {"src": Tally(docs_in=3, kept=3, also={"paragraphs": 5, "shingles": 4 + 0 + 3})}


@pytest.mark.parametrize("parts", [[], [[]]])
def test_a_source_without_documents_is_signed_as_such(tmp_path: Path, parts: list[list[str]]) -> None:
    entry = signed(tmp_path, parts, SignParams())
    assert entry.contents.counts["src"].docs_in == 0
    assert [len(read_arrow(path)) for path in entry.files(".arrow")] == [0] * len(parts)


def test_a_part_of_many_blocks_is_one_table_a_document_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"document {i} of many\n\nand its end" for i in range(30)]
    whole = signed(tmp_path / "whole", [texts], SignParams())
    monkeypatch.setattr("corpusbuild.texts.BLOCK", 40)
    cut = signed(tmp_path / "cut", [texts], SignParams())
    assert read_arrow(cut.path / "part-00000.signs.arrow").equals(read_arrow(whole.path / "part-00000.signs.arrow"))


def test_of_a_file_only_the_band_asked_for_is_read(tmp_path: Path) -> None:
    entry = signed(tmp_path, [["a b c d e f g"] * 1000], SignParams())
    before = pa.total_allocated_bytes()
    keys = read_band(entry.path / "part-00000.signs.arrow", 3)
    assert len(keys) == 1000
    assert pa.total_allocated_bytes() == before
