"""Rules of a person's own: found, digested, called, and told in the counts like any other."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from projects import doit, jsonl, make_project, story

from corpusbuild import plugins
from corpusbuild.config import load
from corpusbuild.errors import ConfigError, StageError
from corpusbuild.parts import read_rows
from corpusbuild.plan import plan
from corpusbuild.quality import Failure


def row(id, text="some text", meta=None):
    return {"id": id, "source_id": "s", "text": text, "lang": "en", "lang_conf": 0.5, "meta": meta}


ROWS = [row("s:0", "aa"), row("s:1", "b", '{"year": 7, "lang": "xx"}'), row("s:2", "ccc")]


def test_a_rule_per_document_keeps_by_none_and_drops_by_what_it_measured():
    def rule(text, meta):
        return None if len(text) > 2 else (len(text), 3) if "year" in meta else 1.5

    assert plugins.judge("m:rule", rule, ROWS) == [Failure("m:rule", 1.5, None), Failure("m:rule", 1.0, 3.0), None]


def test_a_rule_per_document_is_told_what_is_known_of_it():
    seen = []
    plugins.judge("m:rule", lambda text, meta: seen.append((text, meta)), ROWS[1:2])
    assert seen == [("b", {"year": 7, "id": "s:1", "source_id": "s", "lang": "en", "lang_conf": 0.5})]


@pytest.mark.parametrize("form", [list, tuple, pa.array, lambda values: np.array([v if v is not None else None for v in values], object)])
def test_a_rule_per_batch_answers_for_each(form):
    def rule(batch):
        assert batch.schema == plugins.COLUMNS
        return form([None if len(text) > 2 else float(len(text)) for text in batch.column("text").to_pylist()])

    assert plugins.judge("m:rule", rule, ROWS) == [Failure("m:rule", 2.0, None), Failure("m:rule", 1.0, None), None]
    assert plugins.judge("m:rule", rule, []) == []


def raising(text, meta):
    return 1 / (len(text) - 1)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (raising, r"filter: s:1: m:rule raised ZeroDivisionError: division by zero \(line \d+ of test_plugins.py\)"),
        (lambda text, meta: True, "filter: s:0: m:rule gave True; it must give None to keep"),
        (lambda text, meta: float("nan"), "filter: s:0: m:rule gave nan"),
        (lambda text, meta: "bad", "filter: s:0: m:rule gave 'bad'"),
        (lambda text, meta: (1, "x"), r"filter: s:0: m:rule gave \(1, 'x'\)"),
        (lambda batch: [None], "a batch of 3 documents from s:0: m:rule gave 1 answers"),
        (lambda batch: [None, "x", None], "filter: s:1: m:rule gave 'x'"),
        (lambda batch: {}["k"], "a batch of 3 documents from s:0: m:rule raised KeyError"),
    ],
)
def test_what_a_rule_does_wrong_names_it_and_the_document(rule, message):
    with pytest.raises(StageError, match=message) as failed:
        plugins.judge("m:rule", rule, ROWS)
    assert "\n" not in str(pickle.loads(pickle.dumps(failed.value)))


def test_a_rule_of_another_shape_is_refused():
    with pytest.raises(ConfigError, match=r"takes 3 parameters; a rule takes \(text, meta\), or \(batch\)"):
        plugins.judge("m:rule", lambda a, b, c: None, ROWS)


def test_a_model_must_give_a_number():
    assert plugins.measure("m:ppl", lambda text: 3, "s:0", "x") == 3.0
    with pytest.raises(StageError, match="s:0: m:ppl gave None; it must give a number"):
        plugins.measure("m:ppl", lambda text: None, "s:0", "x")


def test_the_digest_is_of_the_module_and_of_what_it_imports_beside_it(tmp_path):
    files = {
        "mine/__init__.py": "", "mine/rules.py": "import os\nfrom . import words\nfrom mine.deep.more import x\n", "mine/words.py": "A = 1\n",
        "mine/deep/__init__.py": "", "mine/deep/more.py": "import top\nx = 1\n", "top.py": "", "unused.py": "",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    first = plugins.digest("mine.rules:f", tmp_path)
    for name in files:
        (tmp_path / name).write_text(files[name] + "# changed\n")
        assert (plugins.digest("mine.rules:f", tmp_path) != first) is (name != "unused.py"), name
        (tmp_path / name).write_text(files[name])
    elsewhere = tmp_path / "elsewhere"
    for name, text in files.items():
        (elsewhere / name).parent.mkdir(parents=True, exist_ok=True)
        (elsewhere / name).write_text(text)
    assert plugins.digest("mine.rules:g", elsewhere) == first  # neither place nor function
    assert plugins.digest("json.decoder:f", tmp_path) != plugins.digest("colorsys:f", tmp_path)  # installed
    with pytest.raises(ConfigError, match=r"no module 'none\.such' lies in"):
        plugins.digest("none.such:f", tmp_path)


RULES = """
def no_boats(text, meta):
    boats = text.count("boat")
    return (boats, 1) if boats > 1 else None

def odd(batch):
    import pyarrow as pa
    return pa.array([float(id.split(":")[1]) if int(id.split(":")[1]) % 2 else None for id in batch.column("id").to_pylist()])
"""


def removed(folder, label="filter"):
    return [row for path in sorted((folder / "cache/store" / label).glob("*/*.removed.parquet")) for row in read_rows(path)]


def test_a_build_with_rules_of_the_project(tmp_path):
    texts = [story(i) for i in range(10)]
    make_project(tmp_path, {"s": ("s.jsonl", jsonl(texts), "")}, extra='[filters]\nrules = ["house.rules:odd", "house.rules:no_boats"]\n')
    (tmp_path / "house").mkdir()
    (tmp_path / "house" / "rules.py").write_text(RULES)
    done = doit(tmp_path, "build:tiny", "--executor", "local:2")
    assert done.returncode == 0, done.stdout + done.stderr
    expected = {}
    for i, text in enumerate(texts):
        failed = ["house.rules:odd"] * (i % 2) + ["house.rules:no_boats"] * (text.count("boat") > 1)
        if failed:
            expected[f"s:{i}"] = (failed[0], float(i) if i % 2 else text.count("boat"), None if i % 2 else 1.0, failed)
    assert any(len(rules) == 2 for *_, rules in expected.values())
    assert {r["id"]: (r["rule"], r["value"], r["threshold"], r["rules"]) for r in removed(tmp_path)} == expected
    assert "filter.house.rules:odd" in done.stdout

    path = tmp_path / "configs" / "tiny.toml"
    keys = {step.label: step.key for step in plan(load(path)).steps}
    (tmp_path / "house" / "rules.py").write_text(RULES.replace("> 1", "> 2"))
    assert {step.label for step in plan(load(path)).steps if keys[step.label] != step.key} == set(keys) - {"fetch:s"}


def test_a_rule_that_fails_stops_the_build_with_its_name_and_the_document(tmp_path):
    make_project(tmp_path, {"s": ("s.jsonl", jsonl([story(1)]), "")}, extra='[filters]\nrules = ["bad:rule", "bad:none"]\n')
    done = doit(tmp_path, "build:tiny")
    assert (done.returncode, "filters.rules: no module 'bad' lies in" in done.stdout + done.stderr) == (65, True)
    (tmp_path / "bad.py").write_text("def rule(text, meta):\n    raise ValueError('no')\n")
    done = doit(tmp_path, "build:tiny")
    assert (done.returncode, "bad:none cannot be loaded: AttributeError" in done.stdout + done.stderr) == (65, True)
    (tmp_path / "bad.py").write_text("def rule(text, meta):\n    raise ValueError('no')\nnone = rule\n")
    done = doit(tmp_path, "build:tiny")
    assert "filter: s:0: bad:rule raised ValueError: no (line 2 of bad.py)" in done.stdout + done.stderr
    assert (done.returncode, "Traceback" in done.stdout + done.stderr) == (65, False)


def test_the_trained_identifier_enters_the_key_when_it_is_used(tmp_path, monkeypatch):
    path = make_project(tmp_path, {"s": ("s.jsonl", jsonl([story(1)]), "")})
    vote = plan(load(path)).step("filter:s")
    lid = plan(load(path, ("filters.lang_model=lid",))).step("filter:s")
    assert (vote.params.lid, lid.params.lid.split()[0]) == (None, "pycld2")
    monkeypatch.setattr("corpusbuild.language.lid_version", lambda: "pycld2 99")
    assert plan(load(path)).step("filter:s").key == vote.key
    assert plan(load(path, ("filters.lang_model=lid",))).step("filter:s").key not in (vote.key, lid.key)

    def absent():
        raise ModuleNotFoundError("pycld2")

    monkeypatch.setattr("corpusbuild.language.lid_version", absent)
    with pytest.raises(ConfigError, match=r"filters.lang_model: lid needs pycld2; install it with: pip install 'corpusbuild\[lid\]'"):
        load(path, ("filters.lang_model=lid",))


def test_a_build_with_the_trained_identifier(tmp_path):
    greek = "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα."
    german = "Alle Menschen sind frei und gleich an Würde und Rechten geboren und sollen einander begegnen."
    limits = 'langs = ["en", "el"]\nlang_model = "lid"\ngopher = { min_words = 5, min_stopwords = 0 }\n'
    make_project(tmp_path, {"s": ("s.jsonl", jsonl([story(1), greek, german]), "")}, extra=f"[filters]\n{limits}")
    done = doit(tmp_path, "build:tiny")
    assert done.returncode == 0, done.stdout + done.stderr
    shards = [pq.read_table(p).to_pylist() for p in (tmp_path / "cache/corpus/tiny/v1").glob("*.parquet")]
    assert [(row["id"], row["lang"]) for rows in shards for row in rows] == [("s:0", "en"), ("s:1", "el")]
    assert [(row["id"], row["rule"]) for row in removed(tmp_path)] == [("s:2", "lang")]
    assert "lang_model pycld2" in (tmp_path / "cache/corpus/tiny/v1/DATASHEET.md").read_text()
