"""``doit pin``: from a URL without a digest to a build."""

import hashlib

from projects import doit, jsonl, make_project, story


def unpinned(folder):
    path = make_project(folder, {"s": ("s.jsonl", jsonl([story(i) for i in range(8)]), "")})
    lines = [line for line in path.read_text().splitlines() if not line.startswith("sha256")]
    path.write_text("\n".join(["# a comment that stays", *lines]))
    return path


def test_a_source_without_a_digest_is_refused_everywhere_else_and_pinned_by_pin(tmp_path):
    path = unpinned(tmp_path)
    run = doit(tmp_path, "build:tiny")
    assert run.returncode == 65
    assert "sha256" in run.stderr
    run = doit(tmp_path, "pin", "tiny")
    assert run.returncode == 0, run.stderr
    digest = hashlib.sha256((tmp_path / "configs" / "s.jsonl").read_bytes()).hexdigest()
    for words in (digest, "looks like jsonl", "1 digests written"):
        assert words in run.stdout
    assert path.read_text().startswith("# a comment that stays\n")
    assert f'sha256 = "{digest}"' in path.read_text()
    assert doit(tmp_path, "pin", "build:tiny").stdout.endswith("every source is pinned\n")
    assert doit(tmp_path, "build:tiny").returncode == 0


def test_pin_says_what_it_wants(tmp_path):
    unpinned(tmp_path)
    assert doit(tmp_path, "pin").returncode == 2
    assert "did you mean 'tiny'?" in doit(tmp_path, "pin", "tinny").stderr
