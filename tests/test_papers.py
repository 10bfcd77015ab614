"""What a build writes beside its shards, as others read it; and what a revocation does to builds, as a person sees it."""

import gzip
import hashlib
import json
import shutil

import mlcroissant
import polars as pl
import pytest
from projects import doit, jsonl, make_project, story

from corpusbuild.config import load
from corpusbuild.plan import plan

TALES = jsonl([story(i) for i in range(12)] + [story(3)])
NOTES = gzip.compress("\n\n".join(story(i) for i in range(40, 52)).encode(), mtime=0)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("papers")
    (folder / "configs").mkdir()
    (folder / "configs" / "LICENSE").write_text("Copyright (c) Ann\n")
    declared = 'format = "text"\nlicense_spdx = "MIT"\ncredit = "Ann"\nnotice = "LICENSE"'
    tales = [json.dumps({"text": json.loads(line)["text"], "title": f"no. {i}"}) for i, line in enumerate(TALES.decode().splitlines())]
    sources = {"tales": ("tales.jsonl", "\n".join(tales).encode(), 'keep = ["title"]'), "notes": ("notes.txt.gz", NOTES, declared)}
    make_project(folder, sources, extra="[shard]\nshard_rows = 9\nval_permille = 300")
    run = doit(folder, "build:tiny")
    assert run.returncode == 0, run.stderr
    return folder


@pytest.fixture(scope="module")
def corpus(project):
    return project / "cache" / "corpus" / "tiny" / "v1"


def test_croissant_is_sound_and_loads_the_corpus(corpus, tmp_path):
    page = mlcroissant.Dataset(jsonld=str(corpus / "croissant.json"))
    assert page.metadata.ctx.issues.errors == set()
    warned = "\n".join(page.metadata.ctx.issues.warnings)
    assert [
        line for line in warned.splitlines() if not any(word in line for word in ("citeAs", "datePublished", "MAJOR.MINOR.PATCH"))
    ] == []
    rows = pl.read_parquet(str(corpus / "*.parquet")).to_dicts()
    records = [{name.removeprefix("documents/"): value for name, value in record.items()} for record in page.records("documents")]
    assert len(records) == len(rows) == 24
    for record, row in zip(records, rows, strict=True):
        row.pop("sha256")
        assert {name: value.decode() if isinstance(value, bytes) else value for name, value in record.items()} == row


def test_croissant_pins_every_shard_and_names_every_licence(corpus):
    page = json.loads((corpus / "croissant.json").read_bytes())
    files = {f["name"]: (f["sha256"], f["contentSize"]) for f in page["distribution"] if f["@type"] == "cr:FileObject"}
    found = {p.name: (hashlib.sha256(p.read_bytes()).hexdigest(), f"{p.stat().st_size} B") for p in corpus.glob("*.parquet")}
    assert files == found
    assert len(files) == 3
    assert page["license"] == ["https://spdx.org/licenses/CC0-1.0.html", "https://spdx.org/licenses/MIT.html"]
    assert (page["name"], page["version"]) == ("tiny", "v1")


def test_the_manifest_tells_of_every_source_file(corpus):
    tales, notes = json.loads((corpus / "_MANIFEST.json").read_bytes())["sources"]
    assert (tales["url"], tales["documents"], tales["unique_documents"]) == ("tales.jsonl", 13, 12)
    assert tales["bytes"] == tales["decompressed_bytes"] > 5000
    assert notes == {
        "source_id": "notes",
        "url": "notes.txt.gz",
        "sha256": hashlib.sha256(NOTES).hexdigest(),
        "bytes": len(NOTES),
        "decompressed_bytes": len(gzip.decompress(NOTES)),
        "documents": 12,
        "unique_documents": 12,
    }


def test_attribution_is_ready_to_ship(corpus):
    page = (corpus / "ATTRIBUTION.md").read_text()
    assert "- authors: Ann\n" in page
    assert "    Copyright (c) Ann\n" in page
    assert "<not recorded" not in page


def test_a_notice_that_is_not_there_is_named(project):
    path = project / "configs" / "tiny.toml"
    before = path.read_text()
    try:
        path.write_text(before.replace('notice = "LICENSE"', 'notice = "LICENCE"'))
        run = doit(project, "build:tiny")
    finally:
        path.write_text(before)
    assert run.returncode == 65
    assert "sources[1].notice: there is no file" in run.stderr


# --- revocations ---


def lines_of(run):
    return {line.split()[0]: line for line in run.stdout.splitlines()}


def revoke(project, entry):
    (project / "configs" / "policy" / "revocations.toml").write_text(
        f'version = 1\n[[revoke]]\n{entry}\nwhy = "its author asked"\ndate = 2026-05-04\n'
    )


def ledger_rows(project):
    return [json.loads(line) for line in (project / "cache" / "LEDGER.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("revocations")
    make_project(folder, {"tales": ("tales.jsonl", TALES, ""), "notes": ("notes.txt.gz", NOTES, 'format = "text"')})
    make_project(folder, {"tales": ("tales.jsonl", TALES, "")}, name="other")  # shares every step of tales
    run = doit(folder, "build:tiny", "build:other")
    assert run.returncode == 0, run.stderr
    return folder


@pytest.fixture
def built(both, tmp_path):
    """Two finished builds, to be harmed."""
    return shutil.copytree(both, tmp_path / "project", symlinks=True)


@pytest.mark.parametrize("way", ["id", "digest", "ledger"])
def test_a_revocation_makes_stale_what_holds_the_source_says_why_and_sticks(built, way):
    if way == "ledger":
        row = next(row for row in ledger_rows(built) if row["source_id"] == "notes")
        with (built / "cache" / "LEDGER.jsonl").open("a") as ledger:
            ledger.write(json.dumps(row | {"revoked": True, "notes": "its author asked"}) + "\n" + json.dumps(row) + "\n")
    else:
        revoke(built, 'id = "notes"' if way == "id" else f'sha256 = "{hashlib.sha256(NOTES).hexdigest()}"')
    before = (built / "cache" / "corpus" / "tiny" / "v1" / "_MANIFEST.json").read_bytes()
    shown = lines_of(doit(built, "list"))
    for step in ("build:tiny", "build:tiny:ledger"):
        assert shown[step].split()[1] == "stale"
        assert shown[step].endswith("source notes: was revoked: its author asked; take it out of the configuration")
    assert shown["build:tiny:shard"].split()[1] == shown["build:other"].split()[1] == shown["build:other:ledger"].split()[1] == "fresh"

    for _ in range(2):
        run = doit(built, "build:tiny")
        assert run.returncode == 65
        assert "source notes: was revoked: its author asked" in run.stderr
    assert (built / "cache" / "corpus" / "tiny" / "v1" / "_MANIFEST.json").read_bytes() == before

    path = built / "configs" / "tiny.toml"
    head, first, *rest = path.read_text().split("[[sources]]")
    path.write_text("[[sources]]".join([head, first]) + "\n" + rest[-1].split('format = "text"')[1])
    run = doit(built, "build:tiny")
    assert run.returncode == 0, run.stderr
    assert {row["source_id"] for row in pl.read_parquet(str(built / "cache" / "corpus" / "tiny" / "v1" / "*.parquet")).to_dicts()} == {
        "tales"
    }
    assert doit(built, "list", "tiny").stdout.splitlines()[0].split()[1] == "fresh"


def test_a_source_revoked_before_anything_was_built_is_refused_and_not_fetched(tmp_path):
    make_project(tmp_path, {"notes": ("notes.txt.gz", NOTES, 'format = "text"')})
    revoke(tmp_path, 'id = "notes"')
    shown = lines_of(doit(tmp_path, "list"))["build:tiny"]
    assert shown.split()[1] == "refused"
    assert "source notes: was revoked: its author asked" in shown
    assert doit(tmp_path, "fetch:notes").returncode == 65
    assert not (tmp_path / "cache" / "raw").exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[[revoke]]\nwhy = "x"\ndate = "2026-05-04"\n', "name either id or sha256"),
        ('[[revoke]]\nid = "a"\nwhy = "x"\ndate = "soon"\n', "revoke[0].date"),
        ('[[revoke]]\nid = "a"\ndate = "2026-05-04"\n', "revoke[0].why"),
        ("[[revoke]]\nid = ", "is not TOML"),
    ],
)
def test_a_revocation_that_cannot_be_read_stops_every_build(tmp_path, text, problem):
    make_project(tmp_path, {"tales": ("tales.jsonl", TALES, "")})
    (tmp_path / "configs" / "policy" / "revocations.toml").write_text("version = 1\n" + text)
    run = doit(tmp_path, "build:tiny")
    assert run.returncode == 65
    assert problem in run.stderr
    assert "revocations.toml" in run.stderr


def changed(a, b):
    return {one.label for one, other in zip(a.steps, b.steps, strict=True) if one.key != other.key}


def test_the_gate_stands_before_tokenize_and_what_it_judges_by_changes_nothing_above_it(tmp_path):
    path = make_project(tmp_path, {"tales": ("tales.jsonl", TALES, ""), "notes": ("notes.txt.gz", NOTES, 'format = "text"')})
    before = plan(load(path))
    assert before.step("tokenize").inputs["corpus"] == (before.step("ledger"),)
    assert before.step("shard") in before.step("ledger").inputs["shard"]

    judged = {"ledger", "tokenize"}
    assert changed(before, plan(load(path, revoked={"notes": "why"}))) == judged
    assert changed(before, plan(load(path, revoked={"nobody": "why"}))) == set()
    text = path.read_text()
    path.write_text(text.replace('id = "tales"', 'id = "tales"\ncredit = "Ann"'))
    assert changed(before, plan(load(path))) == judged
    path.write_text(text.replace('license_spdx = "CC0-1.0"', 'license_spdx = "MIT"', 1))
    assert changed(before, plan(load(path))) == {"shard", *judged}
