"""Every kind of tokenizer gives its own library's ids, whatever the text; control tokens that are written are text; what is not a tokenizer is told."""

import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
import tiktoken_ext.openai_public
import tokenizer_files
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild.errors import ConfigError, IntegrityError
from corpusbuild.tokenizer import (
    MOST_IDS,
    Spec,
    each,
    fast,
    honest,
    huggingface,
    joined,
    kind_of,
    open_quickest,
    open_tokenizer,
    reading,
    slices,
    text_bytes,
)
from corpusbuild.tokenizer import ranks as ranks_module
from corpusbuild.tokenizer.cutting import cut
from corpusbuild.tokenizer.fast import HOSTILE, Differs, Fast
from corpusbuild.tokenizer.ranks import KNOWN, read_ranks

TEXT = st.one_of(
    st.text(max_size=30),
    st.lists(
        st.sampled_from([" ", "\n", "\r\n", "the", " cat", "'s", "'LL", "12345", "é", "<|endoftext|>", "😀", "\u3000", "!?"]), max_size=12
    ).map("".join),
)
TEXTS = st.lists(TEXT, max_size=6)


def column(texts):
    return pa.array(texts, pa.large_string())


def split(encoded):
    ids, offsets = encoded
    return [ids[a:b].tolist() for a, b in pairwise(offsets)]


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def bpe(tmp_path_factory):
    return tokenizer_files.huggingface(tmp_path_factory.mktemp("bpe"))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return tokenizer_files.rank_file(tmp_path_factory.mktemp("ranks"), special=[("<|endoftext|>", 300)])


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    return tokenizer_files.pieces(tmp_path_factory.mktemp("pieces"))


@settings(deadline=None)
@given(TEXTS)
def test_bytes_are_their_own_ids(texts):
    assert split(open_tokenizer(Spec()).encode(column(texts))) == [list(t.encode()) for t in texts]


@settings(deadline=None)
@given(TEXTS, st.integers(0, 3), st.integers(1, 9))
def test_slices_are_the_column(texts, at, size):
    texts = column(texts).slice(at)
    found = list(slices(texts, size))
    assert [t for s in found for t in s.to_pylist()] == texts.to_pylist()
    assert all(len(s) == 1 or len(text_bytes(s)[0]) <= size for s in found)
    whole = open_tokenizer(Spec()).encode(texts)
    again = joined([open_tokenizer(Spec()).encode(s) for s in found])
    assert split(again) == split(whole)


@settings(deadline=None, max_examples=60)
@given(TEXTS)
def test_a_tokenizer_json_gives_what_tokenizers_gives(bpe, texts):
    spec, library = bpe
    library.encode_special_tokens = True
    tokenizer = open_tokenizer(spec)
    found = split(tokenizer.encode(column(texts)))
    assert found == [library.encode(t, add_special_tokens=False).ids for t in texts]
    assert [tokenizer.decode(np.array(ids, np.uint32)) for ids in found] == texts
    assert 0 not in [i for ids in found for i in ids], "a control token that is written is text"


@settings(deadline=None, max_examples=60)
@given(TEXTS)
def test_a_rank_file_gives_what_tiktoken_gives(ranks, texts):
    spec, library = ranks
    tokenizer = open_tokenizer(spec)
    found = split(tokenizer.encode(column(texts)))
    assert found == [library.encode_ordinary(t) for t in texts]
    assert [tokenizer.decode(np.array(ids, np.uint32)) for ids in found] == texts
    assert tokenizer.vocab_size == 301


@settings(deadline=None, max_examples=60)
@given(TEXTS)
def test_a_sentencepiece_model_gives_what_sentencepiece_gives(pieces, texts):
    spec, library = pieces
    tokenizer = open_tokenizer(spec)
    found = split(tokenizer.encode(column([*texts, "</s> <s>"])))
    assert found == [library.encode(t, out_type=int) for t in [*texts, "</s> <s>"]]
    assert not {library.bos_id(), library.eos_id()} & set(found[-1]), "a control piece that is written is text"


def test_a_table_without_text_is_encoded(bpe):
    for texts in ([], [""], ["", ""]):
        assert split(open_quickest(bpe[0]).encode(column(texts))) == [[] for _ in texts]


@settings(deadline=None, max_examples=60)
@given(TEXTS)
def test_the_faster_library_gives_the_same(bpe, ranks, texts):
    for spec, _ in (bpe, ranks):
        quick = open_quickest(spec)
        assert isinstance(quick, Fast)
        assert split(quick.encode(column([*texts, *HOSTILE]))) == split(open_tokenizer(spec).encode(column([*texts, *HOSTILE])))


LONG = st.lists(
    st.sampled_from([" ", "  ", "\n", "the", " cat", "'s", "'LL ", " a", "b ", "12 ", "é", " é", "<|endoftext|>", "x y"]), max_size=30
).map("".join)


@settings(deadline=None)
@given(st.lists(LONG, max_size=4), st.integers(1, 12))
def test_parts_are_the_texts(texts, size):
    parts, first = cut(column(["before", *texts]).slice(1), size)
    held = parts.to_pylist()
    assert ["".join(held[a:b]) for a, b in pairwise(first.tolist())] == texts
    assert first[-1] == len(held)


@settings(deadline=None, max_examples=25)
@given(st.lists(LONG, max_size=3), st.integers(1, 9))
def test_long_texts_in_parts_have_the_same_ids(every_cuttable, texts, size):
    with pytest.MonkeyPatch.context() as patch:
        for module in (huggingface, ranks_module, fast):
            patch.setattr(module, "SLICE_BYTES", size)
        for plain, quick, encode in every_cuttable:
            assert split(plain.encode(column(texts))) == split(quick.encode(column(texts))) == [encode(t) for t in texts]


@pytest.fixture(scope="module")
def every_cuttable(tmp_path_factory, bpe):
    from tokenizers import Regex, pre_tokenizers

    bpe[1].encode_special_tokens = True
    found = [bpe, *(tokenizer_files.rank_file(tmp_path_factory.mktemp(name), name) for name in KNOWN)]
    for i, pattern in enumerate(sorted(huggingface.SPLITS)):
        cutting = pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        found.append(tokenizer_files.huggingface(tmp_path_factory.mktemp(str(i)), before=pre_tokenizers.Sequence(list(cutting))))
        found[-1][1].encode_special_tokens = True
    opened = [(open_tokenizer(spec), open_quickest(spec), _encoder(library)) for spec, library in found]
    assert all(plain.cuttable and isinstance(quick, Fast) for plain, quick, _ in opened)
    return opened


def _encoder(library):
    return getattr(library, "encode_ordinary", None) or (lambda text: library.encode(text, add_special_tokens=False).ids)


def test_what_might_stand_over_a_border_is_not_cut(tmp_path):
    from tokenizers import AddedToken, normalizers, pre_tokenizers

    for i, more in enumerate(
        (
            {"normalizer": normalizers.NFC()},
            {"before": pre_tokenizers.ByteLevel(add_prefix_space=True)},
            {"before": pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel(add_prefix_space=False)])},
            {"before": pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)},
            {"added": [AddedToken("cat sat", special=False)]},
            {"added": [AddedToken("cat", rstrip=True, special=False)]},
        )
    ):
        (tmp_path / str(i)).mkdir()
        assert not open_tokenizer(tokenizer_files.huggingface(tmp_path / str(i), **more)[0]).cuttable, more


def test_dropout_is_refused(tmp_path):
    spec, made = tokenizer_files.huggingface(tmp_path)
    made.model.dropout = 0.1
    made.save(spec.path)
    with pytest.raises(ConfigError, match="has dropout"):
        open_tokenizer(tokenizer_files.spec(spec.path, "huggingface"))


class Wrong:
    """A library that gives other ids for one text, and cannot encode another."""

    def __init__(self, library, differs="", fails=""):
        self.library, self.differs, self.fails = library, differs, fails

    def encode_batch_flat(self, texts, split_special_tokens):
        if self.fails in texts:
            raise ValueError("too deep")
        ids, offsets = each([np.frombuffer(b"\0\0\0\0", np.uint32) if t == self.differs else self._one(t) for t in texts])
        return ids.astype(np.uint32).tobytes(), offsets.astype(np.uint64).tobytes()

    def _one(self, text):
        return np.array(self.library.encode(text, add_special_tokens=False).ids, np.uint32)


def test_a_difference_is_found_and_named(bpe):
    quick = Fast(open_tokenizer(bpe[0]), lambda: Wrong(bpe[1], differs="other", fails="none"))
    texts = column(["the cat", "other", "sat"])
    with pytest.raises(Differs) as found:
        quick.compare(texts, quick.encode(texts))
    assert found.value.index == 1


def test_texts_without_a_difference_pass(bpe):
    quick = Fast(open_tokenizer(bpe[0]), lambda: Wrong(bpe[1], differs="none", fails="none"))
    for texts in (column(["the cat", "other"]), column([]), column([""])):
        quick.compare(texts, quick.encode(texts))


def test_what_the_faster_library_cannot_do_its_elder_does(bpe):
    plain = open_tokenizer(bpe[0])
    assert split(Fast(plain, lambda: Wrong(bpe[1], fails="sat")).encode(column(["the cat", "sat"]))) == split(
        plain.encode(column(["the cat", "sat"]))
    )


def test_the_faster_library_is_opened_anew_after_much_text(bpe, monkeypatch):
    opened = []

    def library():
        opened.append(Wrong(bpe[1], differs="none", fails="none"))
        return opened[-1]

    quick = Fast(open_tokenizer(bpe[0]), library)
    monkeypatch.setattr(fast, "FRESH_BYTES", 2 * column(["the cat"]).nbytes)
    for _ in range(5):
        assert split(quick.encode(column(["the cat"]))) == [bpe[1].encode("the cat", add_special_tokens=False).ids]
    assert len(opened) == 3


def test_a_library_that_differs_on_a_hostile_text_is_not_used(bpe, monkeypatch):
    for text in (HOSTILE[4], "a<|endoftext|> b <|endoftext|><|endoftext|>\n"):
        monkeypatch.setattr(fast, "_library", lambda plain, spec, text=text: Wrong(bpe[1], differs=text, fails="none"))
        assert fast.open_fast(open_tokenizer(bpe[0]), bpe[0]) is None


def test_texts_of_every_kind_are_compared_within_the_budget():
    texts = column(["plain words " * 9] * 250 + ["\u0344" * 40] + ["plain words " * 9] * 250 + ["x" * 20_000])
    _, offsets = each([np.zeros(20 if t.startswith("plain") else 80, np.uint32) for t in texts.to_pylist()])
    chosen = fast.to_compare(texts, offsets, fast.COMPARED_BYTES)
    assert {0, 500} <= set(chosen), "they are spread"
    assert 250 in chosen, "the least usual is among them"
    assert 501 not in chosen
    assert sum(len(texts[i].as_py().encode()) for i in chosen) <= fast.COMPARED_BYTES
    assert fast.to_compare(column(["", ""]), np.zeros(3, np.int64), 9) == []


@settings(deadline=None, max_examples=40)
@given(text=TEXT)
def test_known_patterns_are_those_that_tiktoken_publishes(monkeypatch_module, text):
    for name in KNOWN:
        ours = tokenizer_files.RANKS
        theirs = published(name, monkeypatch_module)
        import tiktoken

        encodings = [
            tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ours, special_tokens={})
            for pattern in (KNOWN[name][0], theirs["pat_str"])
        ]
        a, b = (e.encode_ordinary(text) for e in encodings)
        assert a == b
        assert KNOWN[name][1] == theirs["special_tokens"]


def published(name, patch):
    """What the library says of an encoding, without its download."""
    for loader in ("load_tiktoken_bpe", "data_gym_to_mergeable_bpe_ranks"):
        patch.setattr(tiktoken_ext.openai_public, loader, lambda *_, **__: {})
    return getattr(tiktoken_ext.openai_public, name)()


def test_kinds_are_found_in_the_file(bpe, ranks, pieces):
    for spec, _ in (bpe, ranks, pieces):
        with open(spec.path, "rb") as file:
            assert kind_of(file.read()) == spec.kind
    assert kind_of(b"") is kind_of(b"merges: 1\n") is None


def test_a_changed_file_is_refused(bpe):
    with pytest.raises(IntegrityError, match="changed while the build ran"):
        open_tokenizer(Spec(kind="huggingface", path=bpe[0].path, sha256="0" * 64))


def test_merges_that_the_vocabulary_lacks_are_told(tmp_path, bpe):
    with open(bpe[0].path) as file:
        made = json.load(file)
    made["model"]["merges"].append(["no", "such"])
    (tmp_path / "tokenizer.json").write_text(json.dumps(made))
    with pytest.raises(ConfigError, match=r"its vocabulary and merges do not belong together \(.*out of vocabulary"):
        open_tokenizer(tokenizer_files.spec(tmp_path / "tokenizer.json", "huggingface"))


def test_a_vocabulary_that_no_header_holds_is_told(tmp_path):
    made = {"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": {"a": 0, "b": MOST_IDS}, "unk_token": "a"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(made))
    with pytest.raises(ConfigError, match=r"has a vocabulary of 2,147,483,648, and the header of a token file holds 1 to 2,147,483,647"):
        open_tokenizer(tokenizer_files.spec(tmp_path / "tokenizer.json", "huggingface"))


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (tokenizer_files.rank_lines(tokenizer_files.RANKS) + b"no rank\n", r"x:264 is not a token in base64 and a rank"),
        (tokenizer_files.rank_lines(tokenizer_files.RANKS) + b"dGg= 9999\n", r"x:264 gives b'th' a second rank"),
        (tokenizer_files.rank_lines(tokenizer_files.RANKS | {b"zz": 256}), "x gives one rank to two tokens"),
        (tokenizer_files.rank_lines({b"a": 0}), r"x has no rank for the byte 0x00"),
    ],
)
def test_a_rank_file_that_is_none_is_told(lines, told):
    with pytest.raises(ConfigError, match=told):
        read_ranks("x", lines)


def test_a_control_token_with_the_id_of_another_is_told(tmp_path):
    spec, _ = tokenizer_files.rank_file(tmp_path)
    with pytest.raises(ConfigError, match="special_tokens: 5 is the rank of a token"):
        open_tokenizer(Spec(**{f: getattr(spec, f) for f in spec.__struct_fields__} | {"special_tokens": (("<s>", 5),)}))


def test_a_model_that_is_none_is_told(tmp_path):
    (tmp_path / "m.model").write_bytes(b"\n\x00<unk>")
    with pytest.raises(ConfigError, match=r"m\.model is not a SentencePiece model"):
        open_tokenizer(tokenizer_files.spec(tmp_path / "m.model", "sentencepiece"))


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), max_size=8))
def test_sums_between_offsets(sizes):
    values = np.arange(sum(sizes), dtype=np.uint32)
    offsets = np.cumsum([0, *sizes])
    assert honest.sums(values, offsets).tolist() == [int(values[a:b].sum()) for a, b in pairwise(offsets)]


@settings(deadline=None)
@given(TEXTS, st.integers(0, 3), st.sampled_from([pa.string(), pa.large_string()]))
def test_texts_of_a_table_are_its_texts(texts, at, type):
    table = pa.concat_tables([pa.table({"text": pa.array(part, type)}) for part in (texts, texts[1:])]).slice(at)
    found = reading._texts(table)
    assert found.type == pa.large_string()
    assert found.to_pylist() == table.column("text").to_pylist()
    assert text_bytes(found)[0].tobytes() == "".join(found.to_pylist()).encode()


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), max_size=9), st.integers(1, 12))
def test_pieces_hold_every_row_group_once_in_order(sizes, least):
    found = reading.ranges(sizes, least)
    assert [i for first, end in found for i in range(first, end)] == list(range(len(sizes)))
    assert all(sum(sizes[first : end - 1]) < least for first, end in found)
    assert all(sum(sizes[first:end]) >= least for first, end in found[:-1])


def test_ids_that_do_not_spell_their_text_are_found(bpe, monkeypatch):
    tokenizer, texts = open_tokenizer(bpe[0]), column(["the cat", "", "sat on"])
    ids, offsets = tokenizer.encode(texts)
    for block in (1, 2, 3, 1000):
        monkeypatch.setattr(honest, "BLOCK", block)
        assert honest.misspelled(tokenizer, texts, (ids, offsets)) is None
        assert honest.misspelled(tokenizer, texts, (ids[:-1], np.minimum(offsets, len(ids) - 1))) == 2
    assert honest.misspelled(tokenizer, texts, (ids[:-1], np.minimum(offsets, len(ids) - 1))) == 2
    assert honest.decoded(tokenizer, texts, (ids, offsets)) == [(0, True), (1, True), (2, True)]
    assert honest.decoded(tokenizer, texts, (ids[::-1], offsets))[0] == (0, False)


def test_a_document_beyond_every_file_is_found():
    assert honest.too_long(np.array([1, MOST_IDS, MOST_IDS + 1])) == 2
    assert honest.too_long(np.array([MOST_IDS])) is None


def test_losses_have_names(tmp_path):
    from tokenizers import normalizers

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    lower, _ = tokenizer_files.huggingface(tmp_path / "a", normalizer=normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()]))
    few, _ = tokenizer_files.words(tmp_path / "b")
    assert open_tokenizer(lower).losses == ("normaliser NFC, Lowercase",)
    assert open_tokenizer(lower).spelled is None
    assert open_tokenizer(few).losses == ("WhitespaceSplit drops white space", "no decoder", "unknown tokens")
    assert open_tokenizer(few).unknown == 0
