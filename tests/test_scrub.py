"""Scrub: what each policy does, what the audit holds, and that no personal data is in any file of the store below it."""

import json
import re

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
import serial_job
from projects import doit, jsonl, make_project, story
from serial_job import documents

from corpusbuild import pii
from corpusbuild.parts import REMOVED, SPANS, read_rows, write_rows
from corpusbuild.stages import scrub

TEXTS = [
    ["Mail ana@example.com or call (212) 555-0123; card 4111 1111 1111 1111.", "Nothing here."],
    ["From 192.0.2.7 with AKIAIOSFODNN7EXAMPLE.", "\U0001f600 é to bo@example.org", "BSN 111222333, plain"],
]


def run(home, policy="scrub", removed=(), backwards=False, texts=TEXTS, **search):
    params = scrub.Params(source="s", policy=policy, pii=scrub.Search(**search))
    taken = documents(home / "docs", "s", texts)
    return serial_job.run(scrub.STAGE, params, {"documents": [taken], "removed": removed}, home, source="s", backwards=backwards)


def spans(entry):
    return [(r["id"], r["row"], r["kind"], r["start"], r["end"]) for p in entry.files(".spans.parquet") for r in read_rows(p)]


def gone(entry):
    return [r for p in entry.files(".removed.parquet") for r in read_rows(p)]


FOUND = [
    ("s:0", 0, "email", 5, 20),
    ("s:0", 0, "phone", 29, 43),
    ("s:0", 0, "card", 50, 69),
    ("s:20", 0, "ip", 5, 14),
    ("s:20", 0, "key", 20, 40),
    ("s:30", 1, "email", 7, 21),
]


@pytest.mark.parametrize("backwards", [False, True])
def test_scrub_keeps_every_document_and_tells_the_places(tmp_path, backwards):
    entry = run(tmp_path, backwards=backwards)
    tally = entry.contents.counts["s"]
    assert spans(entry) == FOUND
    assert gone(entry) == []
    assert (tally.docs_in, tally.kept, tally.dropped) == (5, 5, {})
    assert tally.also == {"email": 2, "phone": 1, "card": 1, "ip": 1, "key": 1}


def test_drop_lets_the_document_go_and_tells_the_places_all_the_same(tmp_path):
    entry = run(tmp_path, "drop")
    tally = entry.contents.counts["s"]
    assert spans(entry) == FOUND
    assert [(r["id"], r["row"], r["rule"], r["value"], r["threshold"], r["rules"], r["place"]) for r in gone(entry)] == [
        ("s:0", 0, "pii", 3.0, 1.0, ["pii"], "1"),
        ("s:20", 0, "pii", 2.0, 1.0, ["pii"], "3"),
        ("s:30", 1, "pii", 1.0, 1.0, ["pii"], "4"),
    ]
    assert (tally.docs_in, tally.kept, tally.dropped) == (5, 2, {"pii": 3})


def test_none_looks_at_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(pii, "detect", lambda *_: pytest.fail("it was looked for"))
    entry = run(tmp_path, "none")
    assert spans(entry) == gone(entry) == []
    assert entry.contents.counts["s"].also == dict.fromkeys(pii.KINDS, 0)


def test_documents_that_are_gone_already_are_not_looked_at(tmp_path):
    (tmp_path / "earlier").mkdir()
    write_rows(tmp_path / "earlier" / "part-00001.removed.parquet", [{"id": "s:20", "row": 0}], REMOVED)
    write_rows(tmp_path / "earlier" / "part-00000.removed.parquet", [], REMOVED)
    earlier = serial_job._entry(tmp_path / "earlier", scrub.STAGE, "s", {})
    entry = run(tmp_path / "scrub", removed=[earlier])
    assert spans(entry) == [found for found in FOUND if found[0] != "s:20"]
    assert entry.contents.counts["s"].docs_in == 4


def test_other_kinds_are_counted_by_name(tmp_path):
    entry = run(tmp_path, kinds=("email", "nl_bsn"), validators="1")
    assert [found[2] for found in spans(entry)] == ["email", "email", "nl_bsn"]
    assert entry.contents.counts["s"].also == {"email": 2, "nl_bsn": 1}


def test_the_audit_has_no_column_for_text(tmp_path):
    assert SPANS.names == ["id", "source", "row", "kind", "start", "end"]
    entry = run(tmp_path)
    for path in entry.path.iterdir():
        assert not {"ana", "4111", "555-0123", "AKIA", "192.0.2.7"} & set(re.findall(r"[\w.-]+", everything(path)))


# --- a whole build ---

SECRETS = {
    "email": "zacharias.quux@made-up.example",
    "phone": "+44 7700 900461",
    "card": "5500-0000-0000-0004",
    "ip": "203.0.113.231",
    "key": "ghp_" + "q7Z" * 12,
    "iban": "DE89 3704 0044 0532 0130 00",
    "us_ssn": "536-90-4399",
}


def everything(path):
    """All that a file says: its bytes, and the strings and binaries of its columns where it is a table."""
    data = path.read_bytes()
    said = [data.decode("latin-1")]
    table = None
    if path.suffix == ".parquet":
        table = pq.read_table(path)
    elif path.suffix == ".arrow":
        table = pa.ipc.open_file(pa.BufferReader(data)).read_all()
    if table is not None:
        said += [str(table.schema.metadata), *(str(value) for column in table.columns for value in column.to_pylist())]
    return "\n".join(said)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secrets")
    scrubbed = [f"{story(i)} {' and '.join(SECRETS.values())}\n\n{story(100)}" for i in range(4)] + [story(i) for i in range(10, 14)]
    scrubbed += [f"{story(1)} {' and '.join(SECRETS.values())} too"]  # a near duplicate
    dropped = [f"{story(i)} {SECRETS['email']}" for i in range(20, 23)] + [story(i) for i in range(30, 33)]
    left = [f"{story(i)} {'ignatius@kept.example'}" for i in range(40, 43)]
    sources = {
        "scrubbed": ("a.jsonl", jsonl(scrubbed), ""),
        "dropped": ("b.jsonl", jsonl(dropped), 'pii_policy = "drop"'),
        "left": ("c.jsonl", jsonl(left), 'pii_policy = "none"'),
    }
    extra = '[pii]\nkinds = ["us_ssn", "iban", "key", "ip", "card", "phone", "email"]\n[filters]\ngopher = { min_alpha_words = 0.5 }'
    make_project(folder, sources, extra)
    run = doit(folder, "build:tiny")
    assert run.returncode == 0, run.stderr
    return folder / "cache", run.stdout


def test_nothing_of_it_is_in_any_file_but_raw_and_filtered_documents(built):
    cache, said = built
    holds = {name: set() for name in SECRETS}
    seen = 0
    for path in sorted(cache.rglob("*")):
        if path.is_file() and not path.is_symlink():
            seen += 1
            text = everything(path) if path.suffix != ".zst" else ""
            for kind, secret in SECRETS.items():
                if secret in text or secret.encode("utf-16-le").decode("latin-1") in text:
                    relative = path.relative_to(cache).parts
                    holds[kind].add("/".join(relative[:2]) if relative[0] == "store" else relative[0])
    assert seen > 60
    for kind, places in holds.items():
        assert "store/filter" in places, f"the search finds no {kind}"
        assert places <= {"store/filter", "downloads"}, kind
    assert not [secret for secret in SECRETS.values() if secret in said]


def test_counts_placeholders_manifest_and_summary_follow_the_kinds_in_use(built):
    cache, said = built
    manifest = json.loads((cache / "corpus/tiny/v1/_MANIFEST.json").read_bytes())
    assert list(manifest["pii"]) == ["emails", "phones", "cards", "ips", "keys", "ibans", "us_ssns"]
    assert set(manifest["pii"].values()) == {4}, "the fifth document is a near duplicate"
    table = pa.concat_tables([pq.read_table(path) for path in sorted((cache / "corpus/tiny/v1").glob("*.parquet"))])
    rows = table.to_pylist()
    of = {source: [row for row in rows if row["source_id"] == source] for source in ("scrubbed", "dropped", "left")}
    assert [row["pii_redactions"] for row in of["scrubbed"]] == [7] * 4 + [0] * 4
    for row in of["scrubbed"][:4]:
        assert "<EMAIL> and <PHONE> and <CARD> and <IP> and <KEY> and <IBAN> and <US_SSN>" in row["text"]
    assert len(of["dropped"]) == 3
    assert [("ignatius@kept.example" in row["text"], row["pii_redactions"]) for row in of["left"]] == [(True, 0)] * 3
    assert "personal data replaced: email 4, phone 4, card 4, ip 4, key 4, iban 4, us_ssn 4" in said
    assert "us_ssns 4" in (cache / "corpus/tiny/v1/DATASHEET.md").read_text()
