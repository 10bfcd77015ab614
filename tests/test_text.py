import hashlib
import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild.text import effective, normalize, paragraphs, replace, split_of

law = settings(deadline=None, max_examples=300)

# what decides is white space, line ends, marks that compose and characters that go: draw many of them
nasty = st.text(
    st.sampled_from("ab\u0301e \t\n\r\x00\x1c\x85\u00a0\u2028\ufeff\u200dÅ\u212b\u2000") | st.characters(codec="utf-8"), max_size=40
)


@law
@given(nasty)
def test_normalize_is_idempotent(raw):
    assert normalize(normalize(raw)) == normalize(raw)


@law
@given(nasty)
def test_the_normal_form_holds_what_it_promises(raw):
    text = normalize(raw)
    assert not [ch for ch in text if (unicodedata.category(ch) == "Cc" and ch not in "\n\t") or ch == "\ufeff"]
    assert unicodedata.is_normalized("NFC", text)
    assert not re.search(r"[ \t]\n|\n{3}", text)
    assert text == text.strip()


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("a\r\nb\rc\n", "a\nb\nc"),
        ("a\x00b\x1bc\x9f\ufeffd\te", "abcd\te"),
        ("e\x00\u0301", "é"),  # controls go before NFC, or the accent would not find its letter
        ("ﬁ ½ \u212b", "ﬁ ½ Å"),  # NFC, not NFKC
        ("👩\u200d💻", "👩\u200d💻"),
        ("a \t\nb", "a\nb"),
        ("a\n\n\n\nb\n \n\t\nc", "a\n\nb\n\nc"),
        ("a\u00a0\nb", "a\u00a0\nb"),  # only spaces and tabs leave the end of a line
        ("\u00a0\n x \u3000", "x"),
        (" \r\n\ufeff", ""),
    ],
)
def test_normalize_examples(raw, text):
    assert normalize(raw) == text


def test_normalize_is_linear_on_a_long_run_of_spaces():
    assert normalize("a" + " " * 2_000_000 + "b") == "a" + " " * 2_000_000 + "b"


@law
@given(nasty)
def test_paragraphs_are_stripped_ordered_and_lose_only_white_space(text):
    where = paragraphs(text)
    assert all(text[start:end] and text[start:end] == text[start:end].strip() for start, end in where)
    assert not any(re.search(r"\n[ \t]*\n", text[start:end]) for start, end in where)
    edges = [0, *(edge for pair in where for edge in pair), len(text)]
    assert edges == sorted(edges)
    assert not "".join(text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)).strip()


def test_paragraphs_split_at_blank_lines_only():
    text = "The cat sat.\nIt ran.\n\n\t \nThe dog ran.\n\u00a0\nStill the dog.\n\n\u00a0\n\nA bird sang."
    assert [text[a:b] for a, b in paragraphs(text)] == ["The cat sat.\nIt ran.", "The dog ran.\n\u00a0\nStill the dog.", "A bird sang."]


@pytest.mark.parametrize(("text", "digest"), [("The cat sat.", "84549cfa"), ("The dog ran.", "0ea960d6"), ("A bird sang.", "c2c47b92")])
def test_paragraph_digests_of_the_worked_example(text, digest):
    [(start, end)] = paragraphs(text)
    assert hashlib.sha256(text[start:end].encode()).hexdigest().startswith(digest)


@law
@given(nasty)
def test_nothing_cut_and_nothing_replaced_is_the_text_itself(text):
    assert effective(text, (), ()) == text


@law
@given(nasty, st.sets(st.integers(0, 12)))
def test_what_remains_are_the_paragraphs_not_cut(raw, cuts):
    text = normalize(raw)
    pieces = [text[a:b] for a, b in paragraphs(text)]
    cuts = {c for c in cuts if c < len(pieces)}
    rest = [p for i, p in enumerate(pieces) if i not in cuts]
    left = effective(text, cuts)
    if cuts:
        assert left == ("\n\n".join(rest) if rest else None)
    if left is not None:
        assert [left[a:b] for a, b in paragraphs(left)] == rest


@law
@given(st.lists(st.text("abc ", min_size=1).map(str.strip).filter(bool), min_size=1, max_size=6), st.data())
def test_spans_of_kept_paragraphs_are_applied_and_the_others_go(pieces, data):
    text = "\n\n".join(pieces)
    cuts = data.draw(st.sets(st.integers(0, len(pieces) - 1)))
    spans, expected = [], []
    for i, (piece, (start, _)) in enumerate(zip(pieces, paragraphs(text), strict=True)):
        a = data.draw(st.integers(0, len(piece) - 1))
        b = data.draw(st.integers(a + 1, len(piece)))
        spans.append((start + a, start + b, f"<{i}>"))
        if i not in cuts:
            expected.append(f"{piece[:a]}<{i}>{piece[b:]}")
    assert effective(text, cuts, spans) == ("\n\n".join(expected) if expected else None)


@pytest.mark.parametrize("spans", [[(2, 5, "x")], [(1, 2, "x")], [(3, 4, "x"), (0, 1, "y")]])
def test_a_span_that_leaves_its_paragraph_is_a_bug_of_the_caller(spans):
    with pytest.raises(ValueError, match=r"span \["):
        effective("a\n\nbcd", {0}, spans)


@pytest.mark.parametrize("cut", [-1, 2])
def test_a_cut_must_name_a_paragraph(cut):
    with pytest.raises(ValueError, match="name a paragraph"):
        effective("a\n\nb", {cut})


@pytest.mark.parametrize(
    "spans", [[(1, 1, "")], [(2, 1, "")], [(-1, 1, "")], [(0, 4, "")], [(0, 2, ""), (1, 3, "")], [(1, 2, ""), (0, 1, "")]]
)
def test_replace_refuses_spans_it_cannot_honour(spans):
    with pytest.raises(ValueError, match=r"span \["):
        replace("abc", spans)


@pytest.mark.parametrize(
    ("text", "residue"),
    [
        ("Tom has a red ball.", 697),
        ("Tom has a red ball!", 826),
        ("Mia naps.", 248),
        ("Hi", 147),
        ("é", 51),
        ("ok", 814),
        ("a story", 203),
    ],
)
def test_split_residues(text, residue):
    assert (split_of(text, residue), split_of(text, residue + 1)) == ("train", "val")


@given(st.text(st.characters(codec="utf-8")))
@law
def test_split_bounds(text):
    assert split_of(text, 0) == "train"
    assert split_of(text, 1000) == "val"
