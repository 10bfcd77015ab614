import datetime
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild.errors import ConfigError
from corpusbuild.licenses import (
    DUTIES,
    OBLIGATIONS,
    LedgerRow,
    Policy,
    policy_from,
    revoked_by,
    row_problems,
    row_schema,
    verify,
    verify_ledger,
)

law = settings(deadline=None, max_examples=150)

WHY = "six words are enough for this"
BOTH = {
    "MIT": ["notice"],
    "Apache-2.0": ["notice", "no-endorsement"],
    "CC-BY-4.0": ["attribution"],
    "CC0-1.0": [],
    "CC-BY-SA-4.0": ["share-alike", "attribution"],
}
RAW = {
    "version": 1,
    "owner": "somebody",
    "reviewed": datetime.date(2026, 1, 2),
    "allow": [{"spdx": spdx, "uses": ["train", "eval"], "obligations": duties, "why": WHY} for spdx, duties in BOTH.items()]
    + [{"spdx": "CC-BY-NC-4.0", "uses": ["eval"], "obligations": ["attribution"], "why": WHY}],
    "refuse": [{"spdx": "NOASSERTION", "why": WHY}, {"spdx": "GPL-2.0-or-later WITH Classpath-exception-2.0", "why": WHY}],
}
POLICY = policy_from(RAW)
TRAIN_EVAL, EVAL, NOTHING = frozenset({"train", "eval"}), frozenset({"eval"}), frozenset()


def raw(**changes):
    return RAW | changes


def allow(**changes):
    return raw(allow=[{"spdx": "MIT", "uses": ["train"], "obligations": [], "why": WHY} | changes])


# --- expressions ---


@pytest.mark.parametrize(
    ("expression", "uses"),
    [
        ("CC0-1.0", TRAIN_EVAL),
        ("CC-BY-NC-4.0", EVAL),
        ("NOASSERTION", NOTHING),
        ("GPL-3.0-only", None),
        ("", None),
        ("mit", None),
        ("MIT+", None),
        ("CC-BY-NC-4.0 OR MIT", TRAIN_EVAL),
        ("CC-BY-NC-4.0 AND MIT", EVAL),
        ("CC-BY-NC-4.0 AND NOASSERTION", NOTHING),
        ("CC-BY-NC-4.0 OR NOASSERTION", EVAL),
        ("MIT OR GPL-3.0-only", None),  # one unknown part makes all of it unknown
        ("MIT AND GPL-3.0-only", None),
        ("NOASSERTION AND CC-BY-NC-4.0 OR MIT", TRAIN_EVAL),  # AND binds tighter
        ("MIT OR CC-BY-NC-4.0 AND NOASSERTION", TRAIN_EVAL),
        ("(MIT OR CC-BY-NC-4.0) AND NOASSERTION", NOTHING),
        ("((MIT))", TRAIN_EVAL),
        (" MIT\tOR  Apache-2.0 ", TRAIN_EVAL),
        ("MIT or Apache-2.0", None),
        ("MIT and Apache-2.0", None),
        ("MIT Or Apache-2.0", None),
        ("Apache-2.0 with LLVM-exception", None),
        ("Apache-2.0 WITH LLVM-exception", TRAIN_EVAL),
        ("Apache-2.0 WITH nothing-known", None),
        ("Apache-2.0 WITH MIT", None),
        ("GPL-3.0-only WITH LLVM-exception", None),
        ("GPL-2.0-or-later WITH Classpath-exception-2.0", NOTHING),  # listed as a whole
        ("MIT OR GPL-2.0-or-later WITH Classpath-exception-2.0", TRAIN_EVAL),
        ("MIT OR", None),
        ("OR", None),
        ("(MIT", None),
        ("MIT)", None),
        ("()", None),
        ("(OR MIT)", None),
        ("( AND + OR", None),
        ("MIT MIT", None),
        ("MIT/Apache-2.0", None),
        ("MIT, Apache-2.0", None),
        ("LLVM-exception", None),
        ("(" * 5000 + "MIT" + ")" * 5000, None),
    ],
)
def test_permitted_uses(expression, uses):
    assert POLICY.uses(expression) == uses


leaves = st.sampled_from(["MIT", "CC0-1.0", "CC-BY-NC-4.0", "NOASSERTION", "GPL-3.0-only"])
trees = st.recursive(leaves, lambda inner: st.tuples(st.sampled_from(["AND", "OR"]), inner, inner), max_leaves=6)
OF = {"MIT": TRAIN_EVAL, "CC0-1.0": TRAIN_EVAL, "CC-BY-NC-4.0": EVAL, "NOASSERTION": NOTHING, "GPL-3.0-only": None}


def written(tree):
    return tree if isinstance(tree, str) else f"({written(tree[1])} {tree[0]} {written(tree[2])})"


def permitted(tree):
    if isinstance(tree, str):
        return OF[tree]
    left, right = permitted(tree[1]), permitted(tree[2])
    if left is None or right is None:
        return None
    return left & right if tree[0] == "AND" else left | right


@law
@given(trees)
def test_or_is_union_and_is_intersection_unknown_is_unknown(tree):
    assert POLICY.uses(written(tree)) == permitted(tree)


@law
@given(
    st.lists(
        st.sampled_from(["MIT", "(", ")", "AND", "OR", "WITH", "LLVM-exception", "+", "/", "\x00", "é", "or", "\n", "x-or-y"]), max_size=8
    )
)
def test_no_text_is_a_fault_of_the_gate(tokens):
    for expression in (" ".join(tokens), "".join(tokens)):
        uses = POLICY.uses(expression)
        assert uses is None or uses <= TRAIN_EVAL
        POLICY.obligations(expression)


@pytest.mark.parametrize(
    ("expression", "duties"),
    [
        ("CC0-1.0", ()),
        ("CC-BY-SA-4.0", ("attribution", "share-alike")),  # in one order, whatever the policy's
        ("Apache-2.0 AND CC-BY-4.0", ("attribution", "notice", "no-endorsement")),
        ("MIT OR CC-BY-4.0", ("attribution", "notice")),
        ("MIT OR GPL-3.0-only", ()),
        ("NOASSERTION", ()),
        ("Apache-2.0 WITH LLVM-exception", ("notice", "no-endorsement")),
    ],
)
def test_obligations(expression, duties):
    assert POLICY.obligations(expression) == duties


def test_a_plain_licence_does_not_load_the_library():
    code = "import sys, corpusbuild.licenses as l; p = l.Policy(version=1, owner='o', reviewed='2026-01-02'); p.uses('MIT'); print('license_expression' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


# --- the policy ---


def test_a_policy_reads_from_toml():
    text = f"""
version = 1
owner = "somebody"
reviewed = 2026-01-02
[[allow]]
spdx = "MIT"
uses = ["train"]
obligations = ["notice"]
why = "{WHY}"
[[refuse]]
spdx = "NOASSERTION"
why = "{WHY}"
"""
    policy = policy_from(tomllib.loads(text))
    assert isinstance(policy, Policy)
    assert (policy.reviewed, policy.allow[0].uses, policy.refuse[0].spdx) == (datetime.date(2026, 1, 2), ("train",), "NOASSERTION")


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (raw(version=2), "version"),
        (raw(owner=""), "owner"),
        (raw(reviewed="yesterday"), "reviewed"),
        ({k: v for k, v in RAW.items() if k != "owner"}, "owner"),
        (raw(alow=[]), "alow"),
        (raw(refuse=[]), "NOASSERTION: must be refused"),
        (raw(refuse=[*RAW["refuse"], {"spdx": "NONE", "why": "too short"}]), r"refuse \(NONE\): why has 2 words"),
        (raw(refuse=[*RAW["refuse"], {"spdx": "MIT", "why": WHY}]), "MIT: listed more than once"),
        (allow(uses=[]), r"allow\[0\]\.uses"),
        (allow(uses=["sell"]), r"allow\[0\]\.uses"),
        (allow(obligations=["praise"]), r"allow\[0\]\.obligations"),
        (allow(spdx="M I T"), r"allow\[0\]\.spdx"),
        (allow(spdx="MIT\n"), r"allow\[0\]\.spdx"),
        (allow(why="because we say so"), r"allow \(MIT\): why has 4 words"),
        (allow(spdx="NONE"), r"allow \(NONE\): says that there is no licence"),
        (allow(spdx="NOASSERTION") | {"refuse": []}, r"allow \(NOASSERTION\): says that there is no licence"),
        (allow(spdx="CC-BY-NC-4.0", obligations=["attribution"]), r"allow \(CC-BY-NC-4.0\): forbids commerce"),
        (allow(spdx="CC-BY-ND-4.0", obligations=["attribution"]), r"allow \(CC-BY-ND-4.0\): forbids commerce"),
        (allow(spdx="CC-BY-3.0"), "attribution"),
        (allow(spdx="ODC-By-1.0"), "attribution"),
        (allow(spdx="CC-BY-SA-4.0", obligations=["attribution"]), "share-alike"),
        (allow(spdx="CDLA-Sharing-1.0"), "share-alike"),
    ],
)
def test_a_bad_policy_is_refused(bad, problem):
    with pytest.raises(ConfigError, match=problem) as raised:
        policy_from(bad)
    assert len(raised.value.args) == 1


def test_every_problem_is_named_at_once():
    entries = [{"spdx": "CC-BY-SA-4.0", "uses": ["train"], "obligations": [], "why": "short"}, {"spdx": "MIT"}]
    with pytest.raises(ConfigError) as raised:
        policy_from(raw(owner=1, allow=entries, refuse=[]))
    text = str(raised.value)
    for part in ("owner", "allow[1].uses", "allow[1].why", "why has 1 words", '"attribution"', '"share-alike"', "NOASSERTION"):
        assert part in text
    assert all("\n" not in line for line in raised.value.args)


def test_an_eval_only_licence_may_forbid_commerce():
    policy_from(allow(spdx="CC-BY-NC-ND-4.0", uses=["eval"], obligations=["attribution"]))


# --- the gate ---


def source(id="web", licence="MIT", uses=("train", "eval"), revoked=False, notes=""):
    return SimpleNamespace(id=id, license_spdx=licence, allowed_uses=uses, revoked=revoked, notes=notes)


def test_a_sound_corpus_passes():
    sources = [source(), source("books", "CC-BY-NC-4.0 OR MIT"), source("tests", "CC-BY-NC-4.0", ("eval",))]
    assert verify(POLICY, sources, {"web": ("MIT", 3), "books": ("CC-BY-NC-4.0 OR MIT", 1)}, kept={"web": 3, "books": 1, "tests": 0}) == []
    assert verify(POLICY, sources[2:], {"tests": ("CC-BY-NC-4.0", 1)}, use="eval") == []


@pytest.mark.parametrize(
    ("bad", "held", "problem"),
    [
        (source(licence="GPL-3.0-only"), ("GPL-3.0-only", 3), "licence 'GPL-3.0-only' is not in the policy"),
        (source(licence="CC-BY-40"), ("CC-BY-40", 3), 'did you mean "CC-BY-4.0"?'),
        (source(licence="GPL-3.0-only", uses=(), revoked=True), ("x", 3), "is not in the policy"),  # the rest is skipped
        (source(licence="NOASSERTION"), ("NOASSERTION", 3), f"is refused (NOASSERTION: {WHY})"),
        (source(licence="CC-BY-NC-4.0"), ("CC-BY-NC-4.0", 3), "allowed_uses has train, but licence CC-BY-NC-4.0 allows eval only"),
        (source(revoked=True), ("MIT", 3), "was revoked: no reason is given; take it out of the configuration"),
        (source(revoked=True, notes="its author asked"), ("MIT", 3), "was revoked: its author asked; take it out of the configuration"),
        (source(uses=("eval",)), ("MIT", 3), "is not declared for train"),
        (source(uses=()), ("MIT", 3), "its allowed_uses are none"),
        (source(), ("MIT | Apache-2.0", 3), "the shards say licence 'MIT | Apache-2.0', the configuration 'MIT'"),
        (source(), ("MIT", 2), "promises 3 rows, the shards hold 2"),
    ],
)
def test_each_problem_names_its_source(bad, held, problem):
    [line] = verify(POLICY, [bad], {"web": held}, kept={"web": 3} if held[1] != 3 else None)
    assert line.split(":")[0] == "source web"
    assert problem in line


def test_what_is_not_in_the_shards_is_judged_by_its_licence_only():
    assert verify(POLICY, [source(revoked=True, uses=("eval",))], {}) == []
    assert len(verify(POLICY, [source(licence="x")], {})) == 1
    assert verify(POLICY, [source()], {}, kept={"web": 1}) == ["source web: the ledger promises 1 rows, the shards hold 0"]


def test_what_nobody_declared_is_refused():
    problems = verify(POLICY, [source()], {"b": ("MIT", 1), "a": ("MIT", 1), "web": ("MIT", 1)})
    assert problems == [
        "source a: is in the shards, and nothing is declared of it",
        "source b: is in the shards, and nothing is declared of it",
    ]


def test_problems_come_in_the_order_of_the_sources():
    problems = verify(POLICY, [source("z", "x"), source("a", "x"), source("m", revoked=True)], {"m": ("CC0-1.0", 1)})
    assert [p.split(":")[0] for p in problems] == ["source z", "source a", "source m", "source m"]


# --- rows of the ledger ---

ROW = {
    "source_id": "tiny",
    "url": "http://127.0.0.1:8765/tiny.jsonl",
    "license_spdx": "CC-BY-4.0",
    "retrieved_at": "2026-01-01T00:00:00Z",
    "sha256": "e9d5b783f9fbf6ec94f8144919e20e8fea345376df3ad331cc01df785a7bd42b",
    "n_docs": 2,
    "allowed_uses": ["train", "eval"],
    "pii_policy": "scrub",
    "filters_applied": [],
    "kept": 2,
    "dropped": 0,
    "notes": "",
}


def test_the_row_of_the_worked_example_is_sound():
    assert row_problems(ROW) == []
    assert row_problems(ROW | {"revoked": True, "retrieved_at": "2026-01-01T00:00:00.5Z"}) == []
    assert [f for f in LedgerRow.__struct_fields__ if f != "revoked"] == list(ROW)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("source_id", "Tiny"),
        ("source_id", "../x"),
        ("source_id", "tiny\n"),
        ("url", ""),
        ("license_spdx", ""),
        ("retrieved_at", "2026-01-01T00:00:00"),
        ("retrieved_at", "2026-01-01T00:00:00+01:00"),
        ("sha256", "E9" * 32),
        ("sha256", "e9" * 31),
        ("n_docs", -1),
        ("n_docs", True),
        ("n_docs", "2"),
        ("allowed_uses", ["sell"]),
        ("pii_policy", "keep"),
        ("filters_applied", [1]),
        ("kept", None),
        ("dropped", 0.5),
        ("notes", None),
        ("revoked", "no"),
        ("extra", 1),
    ],
)
def test_a_bad_row_names_its_key(key, value):
    [problem] = row_problems(ROW | {key: value})
    assert key in problem


def test_a_missing_key_is_named():
    [problem] = row_problems({k: v for k, v in ROW.items() if k != "kept"})
    assert "kept" in problem


# --- a ledger against a corpus ---

HELD = {"tiny": ("CC-BY-4.0", 2)}


def against(*rows, held=HELD, use="train"):
    return verify_ledger(POLICY, rows, held, use)


def test_a_sound_ledger_passes():
    assert against(ROW) == []
    assert against(ROW | {"source_id": "unused", "license_spdx": "MIT", "kept": 0, "dropped": 2}, ROW) == []


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (
            ROW | {"license_spdx": "GPL-3.0-only", "revoked": True, "allowed_uses": []},
            "source tiny: licence 'GPL-3.0-only' is not in the policy",
        ),
        (ROW | {"license_spdx": "CC-BY-NC-4.0"}, "source tiny: allowed_uses has train, but licence CC-BY-NC-4.0 allows eval only"),
        (ROW | {"revoked": True, "notes": "withdrawn"}, "source tiny: was revoked: withdrawn"),
        (ROW | {"allowed_uses": ["eval"]}, "source tiny: is not declared for train"),
        (ROW | {"license_spdx": "MIT"}, "source tiny: the shards say licence 'CC-BY-4.0'"),
        (ROW | {"kept": 1, "dropped": 1}, "source tiny: the ledger promises 1 rows, the shards hold 2"),
    ],
)
def test_each_rule_of_the_ledger_names_its_source(row, problem):
    held = HELD if row["license_spdx"] != "CC-BY-NC-4.0" else {}
    problems = against(row, held=held)
    assert problems[0].startswith(problem)
    assert problems[0].split(":")[0] == "source tiny"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"url": ""}, "ledger row 1: url"),
        ({"n_docs": 3}, "ledger row 1: kept 2 and dropped 0 are not the 3 of n_docs"),
        ({"source_id": 7}, "ledger row 1: source_id"),
    ],
)
def test_a_row_that_is_none_is_a_problem_and_leaves_its_source_without_one(change, problem):
    problems = against(ROW | change)
    assert problems[0].startswith(problem)
    assert problems[1:] == ["source tiny: is in the shards, and nothing is declared of it"]


def test_the_last_row_of_a_source_decides():
    wrong = ROW | {"license_spdx": "GPL-3.0-only"}
    assert against(wrong, ROW) == []
    assert len(against(ROW, wrong)) == 1
    broken = ROW | {"kept": -2}
    assert [p.split(":")[0] for p in against(ROW, broken)] == ["ledger row 2", "source tiny"]
    assert [p.split(":")[0] for p in against(broken, ROW)] == ["ledger row 1"]


def test_a_later_row_does_not_undo_a_revocation():
    taken_back = ROW | {"revoked": True, "notes": "withdrawn"}
    again = "source tiny: was revoked: withdrawn; take it out of the configuration"
    assert against(taken_back, ROW) == [again]
    assert against(taken_back | {"source_id": "other", "kept": 0, "dropped": 2}, ROW) == [again]  # the same bytes under another name


def test_every_problem_is_listed_rows_first():
    problems = against(
        ROW | {"source_id": "Bad"},
        ROW | {"revoked": True, "allowed_uses": ["eval"], "kept": 1, "dropped": 1},
        held=HELD | {"x": ("MIT", 1)},
    )
    assert [p.split(":")[0] for p in problems] == ["ledger row 1", "source tiny", "source tiny", "source tiny", "source x"]


@law
@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=8))
def test_what_was_ever_revoked_stays_revoked(events):
    lines = [{"source_id": id, "sha256": id * 64, "revoked": revoked, "notes": f"why {id}"} for id, revoked in events]
    ever = {id for id, revoked in events if revoked}
    assert revoked_by(lines) == {name: f"why {id}" for id in ever for name in (id, id * 64)}


# --- its schema ---


def test_the_schema_of_the_ledger_is_that_of_its_type():
    path = Path(__file__).parent.parent / "configs" / "ledger.schema.json"
    assert json.loads(path.read_text()) == json.loads(json.dumps(row_schema(LedgerRow))), (
        "python -m corpusbuild schema ledger > configs/ledger.schema.json"
    )


@pytest.mark.parametrize(
    "change", [{}, {"revoked": True}, {"source_id": "Tiny"}, {"sha256": "0"}, {"n_docs": -1}, {"allowed_uses": ["sell"]}, {"extra": 1}]
)
def test_the_schema_accepts_what_the_type_accepts(change):
    row = ROW | change
    sound = not list(jsonschema.Draft202012Validator(row_schema(LedgerRow)).iter_errors(row))
    assert sound == (row_problems(row) == [])


# --- duties ---


def test_every_obligation_is_put_in_words():
    assert set(DUTIES) == set(OBLIGATIONS)


@pytest.mark.parametrize(
    ("expression", "listed"),
    [
        ("MIT", ("MIT",)),
        ("(MIT OR CC-BY-4.0) AND MIT", ("MIT", "CC-BY-4.0")),
        ("Apache-2.0 WITH LLVM-exception", ("Apache-2.0",)),
        ("GPL-2.0-or-later WITH Classpath-exception-2.0", ("GPL-2.0-or-later WITH Classpath-exception-2.0",)),
        ("MIT OR GPL-3.0-only", ()),
    ],
)
def test_what_an_expression_is_made_of(expression, listed):
    assert POLICY.listed(expression) == listed
