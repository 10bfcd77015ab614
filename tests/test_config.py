"""Configurations: strict, all problems at once, each with its path and the remedy."""

import json
import re
import sys

import jsonschema
import pytest
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from projects import ROOT, make_project

from corpusbuild.config import load, schema
from corpusbuild.errors import ConfigError
from corpusbuild.hashing import build_id
from corpusbuild.mix import Share
from corpusbuild.plan import plan
from corpusbuild.stages.tokenize import Packing

DIGEST = "e9d5b783f9fbf6ec94f8144919e20e8fea345376df3ad331cc01df785a7bd42b"


def problems(path, **kwargs):
    with pytest.raises(ConfigError) as caught:
        load(path, **kwargs)
    return [re.sub(r"^.*?\.toml: ", "", line) for line in caught.value.args]


def write(tmp_path, text):
    path = make_project(tmp_path)
    path.write_text(text)
    return path


def test_every_key_of_the_corpus_configuration_is_taken_with_its_default(tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "eval.jsonl").write_text('{"text": "a protected text"}\n')
    (tmp_path / "configs" / "lm.py").write_text("")
    path = write(
        tmp_path,
        f"""
        dataset = "tinystories"
        version = "v1"
        [[sources]]
        id = "tiny"
        url = "http://127.0.0.1:8765/tiny.jsonl"
        sha256 = "{DIGEST}"
        license_spdx = "CC-BY-4.0"
        allowed_uses = ["train"]
        format = "parquet"
        [filters]
        min_chars = 50
        max_chars = 100000
        langs = ["en"]
        lang_min_conf = 0.65
        gopher = {{ min_words = 50, max_mean_word_len = 10.0, max_symbol_ratio = 0.1 }}
        repetition = {{ n = 3, max_frac = 0.3 }}
        ppl = {{ max_ppl = 1000, model = "json:loads" }}
        [dedup]
        bloom_bytes_per_item = 10
        jaccard_threshold = 0.8
        num_perm = 128
        bands = 16
        shingle = 5
        seed = 0
        [decontam]
        protected = ["eval.jsonl"]
        ngram = 13
        [shard]
        shard_rows = 1000
        val_permille = 5
        row_group_bytes = 67108864
        [tokenizer]
        id = "bytes"
        """,
    )
    full = load(path)
    minimal = load(
        write(
            tmp_path / "minimal",
            f"""
            dataset = "tinystories"
            version = "v1"
            sources = [{{ id = "tiny", url = "http://127.0.0.1:8765/tiny.jsonl", sha256 = "{DIGEST}", license_spdx = "CC-BY-4.0" }}]
            shard = {{ shard_rows = 1000 }}
            tokenizer = {{ id = "bytes" }}
            """,
        )
    )
    assert minimal.corpus.dedup == full.corpus.dedup
    assert minimal.corpus.shard == full.corpus.shard
    assert minimal.corpus.decontam.ngram == full.corpus.decontam.ngram
    assert minimal.corpus.filters.gopher == full.corpus.filters.gopher
    assert minimal.sources[0].allowed_uses == ("train", "eval")
    assert minimal.sources[0].format == "jsonl"


def test_all_problems_are_told_at_once_each_with_its_path(tmp_path):
    path = write(
        tmp_path,
        f"""
        dataset = "Tiny Stories"
        verison = "v1"
        [[sources]]
        id = "../up"
        url = "a.jsonl"
        sha256 = "{DIGEST[:-1]}"
        license_spdx = ""
        [[sources]]
        id = "b"
        url = "b.jsonl"
        sha256 = "{DIGEST}"
        license_spdx = "MIT"
        format = "jsnol"
        [dedup]
        jacard_threshold = 0.8
        num_perm = "128"
        [shard]
        shard_rows = 0
        """,
    )
    told = problems(path)
    for expected in (
        "dataset: ",
        'verison: unknown key; did you mean "version"?',
        "version: required, and missing",
        "sources[0].id: ",
        "sources[0].sha256: ",
        "sources[0].license_spdx: ",
        "sources[1].format: 'jsnol' is none of",
        'dedup.jacard_threshold: unknown key; did you mean "jaccard_threshold"?',
        "dedup.num_perm: expected int, got str",
        "shard.shard_rows: expected int >= 1",
        "tokenizer: required, and missing",
    ):
        assert any(line.startswith(expected) for line in told), (expected, told)
    assert len(told) == 11


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("bands = 16\nnum_perm = 100", "dedup: bands (16) must divide num_perm (100)"),
        ("jaccard_threshold = 0.0", "dedup.jaccard_threshold: expected float > 0"),
        ("jaccard_threshold = nan", "dedup.jaccard_threshold: "),
    ],
)
def test_what_spans_values_is_checked(tmp_path, change, expected):
    [line] = problems(make_project(tmp_path, extra=f"[dedup]\n{change}"))
    assert line.startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty"),
        ("  \n\t", "is empty"),
        ("dataset = ", "is not TOML"),
        ("\ufeffx = 1", ""),
        ("a = 1\na = 2", "is not TOML"),
    ],
)
def test_what_is_no_configuration_says_so(tmp_path, text, expected):
    [line, *_] = problems(write(tmp_path, text))
    assert expected in line


def test_bytes_that_are_no_text_say_where(tmp_path):
    path = make_project(tmp_path)
    path.write_bytes(b'dataset = "\xff"')
    [line] = problems(path)
    assert line == "is not UTF-8 (byte 11); save it as UTF-8"


def test_duplicate_ids_are_an_error_that_names_both(tmp_path):
    path = make_project(tmp_path)
    path.write_text(path.read_text().replace('id = "notes"', 'id = "stories"'))
    [line] = problems(path)
    assert line.startswith("sources[1].id: duplicate of sources[0].id")


def test_files_that_are_missing_are_named(tmp_path):
    extra = '[decontam]\nprotected = ["none.jsonl"]\n[tokenizer]\nid = "x"\npath = "gone/tokenizer.json"\n[filters.ppl]\nmax_ppl = 9\nmodel = "no_such:f"'
    told = problems(make_project(tmp_path, extra="[shard]\nshard_rows = 5\n" + extra))
    assert [line.split(":")[0] for line in told] == ["decontam.protected[0]", "filters.ppl.model", "tokenizer.path"]


TOKENIZERS = [
    (
        'path = "t.json"\nsha256 = "' + "0" * 64 + '"',
        r"tokenizer\.sha256: .*t\.json has [0-9a-f]{64}; if this is the file that is wanted, write that",
    ),
    (
        'path = "t.tiktoken"',
        r"tokenizer\.pattern: a rank file holds none; name gpt2, r50k_base, p50k_base, cl100k_base, o200k_base or write",
    ),
    ('path = "t.json"\npattern = "gpt2"', "tokenizer.pattern and tokenizer.special_tokens belong to rank files"),
    ('path = "stories.jsonl"\nkind = "huggingface"', None),
    (
        'path = "notes.txt.gz"',
        r"tokenizer\.path: .*notes\.txt\.gz is not a tokenizer\.json, a rank file of tiktoken or a SentencePiece model",
    ),
    ('path = "t.json"\ntrain = { vocab_size = 300 }', "tokenizer: path and train exclude each other"),
    ('sha256 = "' + "0" * 64 + '"', "tokenizer: sha256 belongs to a file: name it with path"),
    ("train = { vocab_size = 257 }", r"tokenizer\.train\.vocab_size: expected int >= 258"),
    ('packing = "best-fit"', "tokenizer: packing and pad_id are of sequences of one length: say which, with sequence_length"),
    (
        "sequence_length = 50\nmax_file_tokens = 20",
        r"tokenizer: sequence_length \(50\) is more than a file may hold, max_file_tokens \(20\)",
    ),
    (
        'sequence_length = 8\npacking = "best-fit"\nshuffle = { unit = "window" }',
        r'tokenizer: packing = "best-fit" cuts no document, and shuffle\.unit = "window" does',
    ),
    ('formats = ["npy", "npy"]', "tokenizer: formats names npy twice"),
    ("shuffle = { seed = -1 }", r"tokenizer\.shuffle\.seed: expected int >= 0"),
]


@pytest.mark.parametrize(("lines", "told"), TOKENIZERS)
def test_what_is_wrong_with_a_tokenizer_is_told_by_its_key(tmp_path, lines, told):
    path = make_project(tmp_path, extra=f'[shard]\nshard_rows = 5\n[tokenizer]\nid = "t"\n{lines}')
    (tmp_path / "configs" / "t.json").write_text("{}")
    (tmp_path / "configs" / "t.tiktoken").write_bytes(b"IQ== 0\n")
    if told is None:
        assert load(path).tokenizer.kind == "huggingface"
    else:
        [line] = problems(path)
        assert re.match(told, line), line


def test_the_separator_is_the_end_of_text_that_belongs_to_the_tokenizer(tmp_path):
    extra = '[shard]\nshard_rows = 5\n[tokenizer]\nid = "t"\n'
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "t.tiktoken").write_bytes(b"IQ== 0\n")
    for lines, separator in (
        ("train = { vocab_size = 300 }", 0),
        ("train = { vocab_size = 300 }\ndoc_sep_id = 7", 7),
        ('path = "t.tiktoken"\npattern = "cl100k_base"', 100257),
        ('path = "t.tiktoken"\npattern = "cl100k_base"\nspecial_tokens = { "<|endoftext|>" = 9 }', 9),
        ('path = "t.tiktoken"\npattern = "\\\\S+"', None),
    ):
        assert load(make_project(tmp_path, extra=extra + lines)).doc_sep_id == separator


MIXES = [
    ("stories = 0.7", "mix: notes is not in it; write notes = 0 to leave it out"),
    ("stories = 0.7\nnotes = 1\nnote = 2", r"mix\.note: there is no source of that name, only stories, notes"),
    ('stories = 0.7\nnotes = "2 billion"', r"mix\.notes: '2 billion' is no number of tokens; write \"2B\""),
    ("stories = -1\nnotes = 1", r"mix\.stories: a weight is 0 or more, not -1"),
    ('stories = { weight = 1, tokens = "2B" }\nnotes = 1', "a source has a weight or tokens, one of the two"),
    ("stories = { weight = 1, epochs = 0 }\nnotes = 1", "epochs is more than 0, not 0"),
]


@pytest.mark.parametrize(("lines", "told"), MIXES)
def test_what_is_wrong_with_a_mix_is_told_by_its_source(tmp_path, lines, told):
    with pytest.raises(ConfigError, match=told):
        load(make_project(tmp_path, extra=f"[mix]\n{lines}\n"))


def test_a_mix_takes_weights_and_numbers_of_tokens_in_the_order_of_the_sources(tmp_path):
    mix = load(make_project(tmp_path, extra='[mix]\nnotes = { tokens = "2B", epochs = 3 }\nstories = 0.7\n')).mix
    assert mix == {"stories": Share(weight=0.7), "notes": Share(tokens="2B", epochs=3)}
    assert list(mix) == ["stories", "notes"]


def test_padding_is_the_separator_unless_another_id_is_named(tmp_path):
    extra = "[shard]\nshard_rows = 5\n[tokenizer]\nid = 'bytes'\nsequence_length = 8\n"
    for lines, pad in (("", 0), ("doc_sep_id = 7\n", 7), ("doc_sep_id = 7\npad_id = 0\n", 0)):
        packing = plan(load(make_project(tmp_path, extra=extra + lines))).tokens.params.packing
        assert packing == Packing(sequence_length=8, method="concatenate", pad_id=pad)


def test_a_tokenizer_is_its_bytes_not_its_place(tmp_path):
    extra = '[shard]\nshard_rows = 5\n[tokenizer]\nid = "t"\npath = "{}.tiktoken"\npattern = "gpt2"'
    (tmp_path / "configs").mkdir()
    keys = []
    for name, data in (("a", b"IQ== 0\n"), ("b", b"IQ== 0\n"), ("c", b"Ig== 0\n")):
        (tmp_path / "configs" / f"{name}.tiktoken").write_bytes(data)
        keys.append(plan(load(make_project(tmp_path, extra=extra.format(name)))).tokens.key)
    assert keys[0] == keys[1] != keys[2]


def test_a_source_overrides_filters_for_itself_only(tmp_path):
    path = make_project(tmp_path, extra="[filters]\nmin_chars = 7\ngopher = { min_words = 9 }")
    path.write_text(
        path.read_text().replace('format = "text"', 'format = "text"\nfilters = { max_chars = 99, gopher = { min_stopwords = 0 } }')
    )
    first, second = load(path).filters
    assert (first.min_chars, first.max_chars, first.gopher.min_words, first.gopher.min_stopwords) == (7, 100_000, 9, 2)
    assert (second.min_chars, second.max_chars, second.gopher.min_words, second.gopher.min_stopwords) == (7, 99, 9, 0)
    path.write_text(path.read_text().replace("max_chars = 99", "max_char = 99"))
    [line] = problems(path)
    assert line == 'sources[1].filters.max_char: unknown key; did you mean "max_chars"?'


def test_overrides_of_the_command_line_are_checked_like_the_file(tmp_path):
    path = make_project(tmp_path)
    assert load(path, ("dedup.shingle=3", "dataset=other")).corpus.dedup.shingle == 3
    assert load(path, ("dataset=other",)).corpus.dataset == "other"
    assert problems(path, overrides=("dedup.shingel=3",)) == ['dedup.shingel: unknown key; did you mean "shingle"?']
    with pytest.raises(ConfigError, match=r"write key\.path=value"):
        load(path, ("dedup.shingle",))


def test_the_schema_is_generated_from_the_types_and_judges_alike():
    stored = json.loads((ROOT / "configs" / "schema.json").read_text())
    assert stored == json.loads(json.dumps(schema())), "run: python -m corpusbuild schema > configs/schema.json"
    validator = jsonschema.Draft202012Validator(stored)
    for path in sorted((ROOT / "configs").glob("*.toml")):
        assert path.read_text().startswith("#:schema ./schema.json\n")
        assert list(validator.iter_errors(tomlkit.parse(path.read_text()).unwrap())) == []
    broken = tomlkit.parse((ROOT / "configs" / "sample.toml").read_text()).unwrap()
    broken["dedup"]["jacard_threshold"] = 0.8
    assert list(validator.iter_errors(broken))


# the laws of keys


def keys(path, overrides=()):
    return {step.label: step.key for step in plan(load(path, tuple(overrides))).steps}


def respelled(text, rng):
    """The same TOML in another spelling: tables in another order, other white space, comments, dotted keys."""
    document = tomlkit.parse(text).unwrap()
    sources = document.pop("sources")
    tables = list(document.items())
    rng.shuffle(tables)
    lines = ["# another spelling"]
    for name, value in sorted(tables, key=lambda item: isinstance(item[1], dict)):
        if isinstance(value, dict):
            inner = list(value.items())
            rng.shuffle(inner)
            lines += [f"[ {name} ]   # table"] + [f"{k}   =   {tomlkit.item(v).as_string()}" for k, v in inner]
        else:
            lines.append(f"{name}={tomlkit.item(value).as_string()}")
    for source in sources:
        inner = list(source.items())
        rng.shuffle(inner)
        lines += ["", "[[sources]]"] + [f'"{k}"={tomlkit.item(v).as_string()}' for k, v in inner]
    return "\n".join(lines)


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.randoms(use_true_random=False))
def test_spelling_order_and_white_space_change_no_key(tmp_path, rng):
    path = make_project(tmp_path, extra="[dedup]\njaccard_threshold = 0.7\nbands = 32\n[filters]\nlangs = ['en']\nmin_chars = 20")
    before, sha256 = keys(path), load(path).sha256
    path.write_text(respelled(path.read_text(), rng))
    assert keys(path) == before
    assert load(path).sha256 == sha256


CHANGES = [
    ("filters.min_chars=51", {"filter"}),
    ("filters.gopher.min_words=51", {"filter"}),
    ("decontam.ngram=12", {"decontaminate"}),
    ('pii.kinds=["email", "iban"]', {"scrub", "shard"}),
    ("dedup.shingle=4", {"sign", "near_dedup"}),
    ("dedup.seed=1", {"sign", "near_dedup"}),
    ("dedup.jaccard_threshold=0.7", {"near_dedup"}),
    ("dedup.max_bucket=9", {"near_dedup"}),
    ("dedup.bloom_bytes_per_item=3", set()),
    ("shard.shard_rows=21", {"shard"}),
    ("shard.val_permille=6", {"shard"}),
    ("tokenizer.max_file_tokens=1000", {"tokenize"}),
    ('tokenizer.formats=["npy"]', {"tokenize"}),
    ("tokenizer.shuffle={seed=2}", {"tokenize"}),
    ("tokenizer.on_special=refuse", {"tokenize"}),
    ("tokenizer.max_unknown=0.5", {"tokenize"}),
    ("tokenizer.train={ vocab_size = 300 }", {"tokenize", "train_tokenizer"}),
    ("use=eval", {"ledger"}),
    ("run.workers=3", set()),
    ("run.executor=serial", set()),
    ("run.memory=2 GB", set()),
    ("run.concurrency=2", set()),
    ("run.timeout=2.5", set()),
]


@pytest.mark.parametrize(("change", "own"), CHANGES)
def test_a_changed_value_changes_its_own_stage_and_those_below_and_nothing_else(tmp_path, change, own):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "eval.txt").write_text("a protected text of a few words")
    path = make_project(tmp_path, extra='[decontam]\nprotected = ["eval.txt"]')
    before, after = plan(load(path)), plan(load(path, (change,)))
    old = {s.label: s.key for s in before.steps}
    changed = {s.label for s in after.steps if s.key != old.get(s.label)}
    expected = {s.label for s in after.steps if s.stage.name in own}
    for step in after.steps:  # steps come after what they take
        if any(below.label in expected for by in step.inputs.values() for below in by):
            expected.add(step.label)
    # the manifest and the datasheet of a corpus say what its settings were, so these say something new too
    told = {"shard", "ledger", "tokenize"}
    assert changed - expected <= told if own else changed == set()
    assert expected <= changed


def test_kinds_of_personal_data_enter_as_a_set_with_the_version_of_what_checks_them(tmp_path, monkeypatch):
    path = make_project(tmp_path)
    before = keys(path)
    assert keys(path, ['pii.kinds=["key", "ip", "card", "phone", "email"]']) == before
    two, swapped = ['pii.kinds=["iban", "email"]'], ['pii.kinds=["email", "iban"]']
    assert keys(path, two) == keys(path, swapped)
    monkeypatch.setattr("corpusbuild.identifiers.version", lambda: "99")
    assert keys(path) == before
    assert keys(path, two)["scrub:stories"] != keys(path)["scrub:stories"]
    further = keys(path, two)["scrub:stories"]
    monkeypatch.setattr("corpusbuild.identifiers.version", lambda: "100")
    assert keys(path, two)["scrub:stories"] != further


def test_kinds_that_are_none_or_cannot_be_checked(tmp_path, monkeypatch):
    path = make_project(tmp_path)
    assert problems(path, overrides=('pii.kinds=["email", "fax"]',)) == ["pii.kinds: invalid enum value 'fax'"]
    assert problems(path, overrides=('pii.kinds=["email", "ip", "email"]',)) == ["pii: kinds names email twice"]
    assert problems(path, overrides=("pii.kinds=[]",)) == ["pii.kinds: expected array of length >= 1"]
    monkeypatch.setitem(sys.modules, "stdnum", None)
    load(path)
    assert problems(path, overrides=('pii.kinds=["email", "iban", "mac"]',)) == [
        "pii.kinds: iban, mac need python-stdnum: pip install 'corpusbuild[pii]'"
    ]


def test_a_licence_enters_where_it_is_used(tmp_path):
    path = make_project(tmp_path)
    before = keys(path)
    path.write_text(path.read_text().replace("CC0-1.0", "CC-BY-4.0"))
    assert {label for label, key in keys(path).items() if key != before[label]} == {"shard", "ledger", "tokenize"}


def test_adding_a_source_touches_only_that_source_and_the_merges(tmp_path):
    path = make_project(tmp_path)
    before = keys(path)
    path.write_text(path.read_text() + f'\n[[sources]]\nid = "more"\nurl = "more.jsonl"\nsha256 = "{DIGEST}"\nlicense_spdx = "MIT"\n')
    after = keys(path)
    assert {label for label in before if after[label] != before[label]} == {
        "exact_dedup", "near_dedup", "rails", "shard", "ledger", "tokenize",
    }  # fmt: skip


def test_a_protected_text_enters_by_its_bytes_not_its_place(tmp_path):
    path = make_project(tmp_path, extra='[decontam]\nprotected = ["eval.txt"]')
    (path.parent / "eval.txt").write_text("one")
    before = keys(path)
    (path.parent / "moved.txt").write_text("one")
    assert keys(path, ['decontam.protected=["moved.txt"]'])["decontaminate:stories"] == before["decontaminate:stories"]
    (path.parent / "eval.txt").write_text("two")
    assert keys(path)["decontaminate:stories"] != before["decontaminate:stories"]


def test_where_the_project_lies_enters_no_key(tmp_path):
    assert keys(make_project(tmp_path / "a")) == keys(make_project(tmp_path / "b" / "c"))


def test_the_id_of_a_build_is_that_of_the_specification():
    assert (
        build_id("tinystories", "v1", "a03711ec959b2a8fb6cf51d9445bee90fcb69a103cfa033483b52f836269c0a6")
        == "corpus/tinystories/v1/a03711ec959b"
    )


@pytest.mark.parametrize("stage", ["filter", "decontaminate", "scrub", "exact_dedup", "near_dedup", "tokenize"])
def test_any_stage_can_be_switched_off(tmp_path, stage):
    path = make_project(tmp_path, extra='[decontam]\nprotected = ["eval.txt"]')
    (path.parent / "eval.txt").write_text("one")
    on, off = plan(load(path)), plan(load(path, (f"stages.{stage}=false",)))
    gone = {s.stage.name for s in on.steps} - {s.stage.name for s in off.steps}
    assert gone == ({stage} if stage != "filter" else set())
    assert on.corpus.key != off.corpus.key
