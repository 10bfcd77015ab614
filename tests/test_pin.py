"""Pin finds digests and writes them into the file as a person would have."""

import asyncio
import gzip
import hashlib

import pytest
from servers import cut, running, served

from corpusbuild.errors import ConfigError, SourceError
from corpusbuild.fetch import fetch, sources_from_config
from corpusbuild.pin import look, pin

BODY = b'{"text": "Licence: CC0 1.0, public domain."}\n{"text": "b"}\n'
CONFIG = """# my corpus
dataset = "d"   # a name

[[sources]]     # the first
id = "web"
url = "{url}"   # from the net

license_spdx = "CC0-1.0"

[[sources]]
id = "many"
license_spdx = "MIT"
files = [
    {{ url = "{url}?2", sha256 = "" }},  # empty until pinned
]

[[sources]]
id = "done"
url = "x"
sha256 = "{zeros}"
license_spdx = "MIT"
"""


@pytest.fixture
def server():
    with running() as s:
        yield s


def write(tmp_path, url):
    path = tmp_path / "c.toml"
    path.write_text(CONFIG.format(url=url, zeros="0" * 64))
    return path


def test_pin_writes_digest_and_size_and_keeps_every_comment(server, tmp_path):
    import tomllib

    url = server.on("/a.jsonl", served(BODY))
    server.on("/a.jsonl?2", served(gzip.compress(BODY, mtime=0)))
    path = write(tmp_path, url)
    before = path.read_text()
    found = asyncio.run(pin(path, tmp_path / "cache", environment={}))
    assert [(f.at, f.compression, f.format) for f in found] == [("sources[0]", "none", "jsonl"), ("sources[1].files[0]", "gzip", "jsonl")]
    assert "public domain" in found[0].hints[0]
    assert f"sha256 {hashlib.sha256(BODY).hexdigest()}" in str(found[0])
    after = path.read_text()
    config = tomllib.loads(after)
    assert (config["sources"][0]["sha256"], config["sources"][0]["size"]) == (hashlib.sha256(BODY).hexdigest(), len(BODY))
    assert config["sources"][2]["sha256"] == "0" * 64
    for comment in ("# my corpus", "# a name", "# the first", "# from the net", "# empty until pinned"):
        assert comment in after
    assert [line for line in before.splitlines() if not line.strip()] == [line for line in after.splitlines() if not line.strip()]
    assert set(before.splitlines()) - set(after.splitlines()) == {f'    {{ url = "{url}?2", sha256 = "" }},  # empty until pinned'}
    # what was pinned is fetched without another request
    asked = len(server.requests)
    config["sources"].pop()
    manifest = asyncio.run(fetch(sources_from_config(config), tmp_path / "cache", environment={}))
    assert manifest.ok
    assert len(server.requests) == asked
    assert asyncio.run(pin(path, tmp_path / "cache", environment={})) == []


def test_pin_takes_only_the_source_that_was_named(server, tmp_path):
    path = write(tmp_path, server.on("/a.jsonl", served(BODY)))
    assert [f.at for f in asyncio.run(pin(path, tmp_path, source="web", environment={}))] == ["sources[0]"]


async def nothing(seconds):
    pass


def test_pin_never_pins_what_two_versions_were_spliced_into(server, tmp_path):
    other = BODY.replace(b"b", b"c")
    path = write(tmp_path, server.on("/a.jsonl", cut(BODY, 20), served(other)))
    (found,) = asyncio.run(pin(path, tmp_path / "c", source="web", sleep=nothing, environment={}))
    assert found.sha256 == hashlib.sha256(other).hexdigest()
    assert [r.range for r in server.requests] == [None, "bytes=20-", None]


def test_pin_refuses_a_broken_file_and_a_missing_one(server, tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("a = ")
    with pytest.raises(ConfigError):
        asyncio.run(pin(path, tmp_path, environment={}))
    path.write_text('[[sources]]\nid = "a"\nurl = "none.txt"\n')
    with pytest.raises(SourceError, match="no such file"):
        asyncio.run(pin(path, tmp_path, environment={}))


@pytest.mark.parametrize(
    ("data", "format"),
    [
        (b"PAR1....", "parquet"),
        (b"WARC/1.0\r\n", "warc"),
        (b"<!DOCTYPE html>", "a web page"),
        (b"a\tb\nc\td\n", "tsv"),
        (b"a,b\nc,d\n", "csv"),
        (b"Once.\n", "text"),
    ],
)
def test_look_names_the_format(data, format):
    assert look(data)[1] == format
