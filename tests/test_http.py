"""What HTTP may do to a download, over real sockets: framing, TLS, proxies, redirects, headers. The judge is the list of requests."""

import asyncio
import datetime
import hashlib
import json
import socket
import ssl
import threading
import time

import pytest
import trustme
from servers import chunked, cut, drip, head, ok, raw, reply, rst, running, served, stall

from corpusbuild.errors import ConfigError
from corpusbuild.fetch import FetchError, How, Source, fetch
from corpusbuild.http import Http
from corpusbuild.origins import headers_by_origin, is_private, proxy_for

BODY = b"".join(b'{"text":"document %04d"}\n' % i for i in range(100))


class Clock:
    def now(self):
        return 1_767_225_600


@pytest.fixture
def server():
    with running() as s:
        yield s


@pytest.fixture
def other():
    with running() as s:
        yield s


def get(url, dest, *, body=BODY, id="s", environment=None, how=None, waits=None, **more):
    async def sleep(seconds):
        if waits is not None:
            waits.append(seconds)
        await asyncio.sleep(0)

    settings = {k: more.pop(k) for k in ("attempts", "timeout", "progress", "concurrency") if k in more}
    source = Source(id, url, hashlib.sha256(body).hexdigest(), "MIT", **more)
    settings.setdefault("timeout", 5.0)
    manifest = asyncio.run(fetch([source], dest, clock=Clock(), sleep=sleep, environment=environment or {}, how=how, **settings))
    return manifest.entries[0]


def ranges(server):
    return [r.range for r in server.requests]


# framing: whatever the server does, the file is the pinned one

FIRST_ANSWERS = {
    "cut": cut(BODY, 700),
    "reset": rst(head(200, {"Content-Length": len(BODY)}) + BODY[:700]),
    "reset at once": rst(),
    "silent, then closed": raw(b""),
    "half a head": raw(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "no HTTP": raw(b"220 ftp.example.org ready\r\n\r\n"),
    "a bad length": raw(b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n" + BODY),
    "two lengths": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 2400\r\n\r\n" + BODY),
    "a cut chunked body": chunked(BODY[:700], end=b""),
    "a bad chunk": raw(head(200, {"Transfer-Encoding": "chunked"}) + b"zz\r\n" + BODY),
    "a body without a length, cut": reply(200, BODY[:700], Content_Length=None),
    "a part that nobody asked for": reply(206, BODY[:700], Content_Range=f"bytes 0-699/{len(BODY)}"),
    "a page": reply(503, b"<html>come back later</html>", Content_Type="text/html"),
    "204": reply(429),
    "a 416 to a plain GET, retried": reply(500),
}


@pytest.mark.parametrize("name", FIRST_ANSWERS)
def test_a_bad_first_answer_ends_in_the_pinned_object(name, server, tmp_path):
    entry = get(server.on("/a.jsonl", FIRST_ANSWERS[name], served(BODY)), tmp_path)
    assert (entry.status, entry.n_docs) == ("fetched", 100)
    assert (tmp_path / "downloads/s/a.jsonl").read_bytes() == BODY
    assert len(server.requests) == 2


RESUMED = {
    "a range from elsewhere": reply(206, BODY, Content_Range=f"bytes 0-{len(BODY) - 1}/{len(BODY)}"),
    "several ranges": reply(206, b"--x", Content_Type="multipart/byteranges; boundary=x"),
    "no Content-Range": reply(206, BODY[700:]),
    "another total": reply(206, BODY[700:], Content_Range=f"bytes 700-{len(BODY) - 1}/9999"),
    "another version": reply(206, b"x" * (len(BODY) - 700), Content_Range=f"bytes 700-{len(BODY) - 1}/{len(BODY)}", ETag='"new"'),
    "a new encoding": reply(206, BODY[700:], Content_Range=f"bytes 700-{len(BODY) - 1}/{len(BODY)}", Content_Encoding="gzip"),
    "416 with another size": reply(416, Content_Range="bytes */5"),
    "416 with a body": reply(416, b"<html>no</html>"),
    "both whole and partial": reply(200, BODY, Content_Range=f"bytes 700-{len(BODY) - 1}/{len(BODY)}"),
    "a page instead": reply(200, b"<html>login</html>", Content_Type="text/html"),
}


@pytest.mark.parametrize("name", RESUMED)
def test_a_bad_answer_to_a_range_ends_in_the_pinned_object(name, server, tmp_path):
    url = server.on("/a.jsonl", cut(BODY, 700, ETag='"v"'), RESUMED[name], served(BODY, ETag='"v"'))
    entry = get(url, tmp_path)
    assert entry.status == "fetched"
    assert (tmp_path / "downloads/s/a.jsonl").read_bytes() == BODY
    assert ranges(server)[:2] == [None, "bytes=700-"]
    assert server.requests[1].headers["if-range"] == '"v"'
    assert server.requests[0].headers["accept-encoding"] == "identity"


def test_a_short_range_is_followed_by_the_next(server, tmp_path):
    n = len(BODY)
    short = [reply(206, BODY[a:b], Content_Range=f"bytes {a}-{b - 1}/{n}") for a, b in ((700, 900), (900, 901))]
    waits = []
    entry = get(server.on("/a.jsonl", cut(BODY, 700), *short, served(BODY)), tmp_path, waits=waits)
    assert entry.status == "fetched"
    assert ranges(server) == [None, "bytes=700-", "bytes=900-", "bytes=901-"]
    assert len(waits) == 1


def test_a_server_that_changed_the_file_without_saying_so_gets_one_clean_get(server, tmp_path):
    """Two versions in one file: five well-known downloaders report success here."""
    old = b"x" * len(BODY)
    url = server.on("/a.jsonl", cut(old, 700), served(BODY))
    entry = get(url, tmp_path)
    assert (entry.status, ranges(server)) == ("fetched", [None, "bytes=700-", None])


def test_a_bad_part_from_elsewhere_gets_one_clean_get(server, tmp_path):
    (tmp_path / "downloads/s").mkdir(parents=True)
    (tmp_path / "downloads/s/a.jsonl.part").write_bytes(b"x" * 700)
    assert get(server.on("/a.jsonl", served(BODY)), tmp_path).status == "fetched"
    assert ranges(server) == ["bytes=700-", None]


def test_a_body_without_a_length_is_complete_by_digest(server, tmp_path):
    assert get(server.on("/a.jsonl", reply(200, BODY, Content_Length=None)), tmp_path).status == "fetched"
    assert len(server.requests) == 1


def test_a_body_without_a_length_that_is_always_cut_is_retryable_and_not_quarantined(server, tmp_path):
    with pytest.raises(FetchError) as failure:
        get(server.on("/a.jsonl", reply(200, BODY[:700], Content_Length=None)), tmp_path, attempts=3)
    assert failure.value.retryable
    assert not (tmp_path / "quarantine").exists()


def test_chunked_bodies(server, tmp_path):
    assert get(server.on("/a.jsonl", chunked(BODY[:9], BODY[9:])), tmp_path).status == "fetched"


def test_a_bad_end_after_the_last_byte_is_no_cut(server, tmp_path):
    answer = chunked(BODY, end=b"")
    assert get(server.on("/a.jsonl", answer), tmp_path, size=len(BODY)).requests == 1


def test_more_bytes_than_pinned_stop_at_once(server, tmp_path):
    endless = [b"x" * 65536] * 200
    entry = get(server.on("/a.jsonl", chunked(*endless)), tmp_path, size=len(BODY))
    assert entry.status == "quarantined"
    assert entry.bytes < 65536 * 100


def test_a_size_that_contradicts_the_pin_downloads_nothing(server, tmp_path):
    with pytest.raises(FetchError, match=f"a file of {len(BODY)} bytes, and 7 are pinned") as failure:
        get(server.on("/a.jsonl", served(BODY)), tmp_path, size=7)
    assert not failure.value.retryable


@pytest.mark.parametrize("status", [201, 204, 302])
def test_what_is_no_download(status, server, tmp_path):
    with pytest.raises(FetchError) as failure:
        get(server.on("/a.jsonl", reply(status)), tmp_path)
    assert not failure.value.retryable
    assert len(server.requests) == 1


def test_a_drip_is_as_good_as_dead(server, tmp_path):
    with pytest.raises(FetchError, match="bytes came in") as failure:
        get(server.on("/a.jsonl", drip(head(200, {"Content-Length": len(BODY)}), BODY[:60], 0.005)), tmp_path, timeout=0.03, attempts=1)
    assert failure.value.retryable


def test_a_drip_of_headers_times_out(server, tmp_path):
    with pytest.raises(FetchError, match="nothing came") as failure:
        get(server.on("/a.jsonl", drip(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 99, 0.01)), tmp_path, timeout=0.05, attempts=1)
    assert failure.value.retryable


def test_a_stall_keeps_what_came(server, tmp_path):
    url = server.on("/a.jsonl", stall(head(200, {"Content-Length": len(BODY)}) + BODY[:700]), served(BODY))
    assert get(url, tmp_path, timeout=0.1).status == "fetched"
    assert ranges(server) == [None, "bytes=700-"]


def test_progress_renews_the_attempts(server, tmp_path):
    url = server.on("/a.jsonl", *[cut(BODY, 100)] * 9, served(BODY))
    assert get(url, tmp_path, attempts=2).requests == 10


def test_retry_after_is_waited_for_and_a_long_one_ends_the_run(server, tmp_path):
    waits = []
    get(server.on("/a.jsonl", reply(503, Retry_After=7), served(BODY)), tmp_path, waits=waits)
    assert waits == [7.0]
    with pytest.raises(FetchError, match="come back in 9000 seconds") as failure:
        get(server.on("/b.jsonl", reply(429, Retry_After=9000)), tmp_path, id="b")
    assert failure.value.retryable


def test_a_host_that_is_not_there(tmp_path):
    with pytest.raises(FetchError, match="no connection") as failure:
        get("http://127.0.0.1:1/x", tmp_path, attempts=1)
    assert failure.value.retryable
    with pytest.raises(FetchError, match="resolved") as failure:
        get("http://no-such-host.invalid/x", tmp_path, attempts=1)
    assert failure.value.retryable


def test_a_name_server_that_hangs_holds_up_no_cancel(tmp_path, monkeypatch):
    asked, hang = threading.Event(), threading.Event()

    def hanging(*args, **kwargs):
        asked.set()
        hang.wait(5)
        raise socket.gaierror("late")

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    source = Source("s", "http://somewhere.example/a", "0" * 64, "MIT")

    async def cancelled():
        task = asyncio.create_task(fetch([source], tmp_path, environment={}))
        await asyncio.to_thread(asked.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    since = time.monotonic()
    asyncio.run(cancelled())
    assert time.monotonic() - since < 1
    hang.set()


def test_a_deadline_ends_what_never_ends(server, tmp_path):
    with pytest.raises(FetchError, match="took more than") as failure:
        get(server.on("/a.jsonl", reply(503)), tmp_path, attempts=10**6, how=How(deadline=0.1))
    assert failure.value.retryable


# redirects


def test_an_expired_signature_starts_again_at_the_configured_url_and_keeps_the_range(server, tmp_path):
    url = server.on("/a.jsonl", reply(302, Location="/old"), reply(302, Location="/old"), reply(302, Location="/new"))
    server.on("/old", cut(BODY, 700), reply(403))
    server.on("/new", served(BODY))
    assert get(url, tmp_path).status == "fetched"
    assert [(r.path, r.range) for r in server.requests] == [
        ("/a.jsonl", None), ("/old", None), ("/a.jsonl", "bytes=700-"), ("/old", "bytes=700-"), ("/a.jsonl", "bytes=700-"), ("/new", "bytes=700-"),
    ]  # fmt: skip


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://x"])
def test_redirects_out_of_http_are_refused(location, server, tmp_path):
    with pytest.raises(FetchError, match="redirect leads") as failure:
        get(server.on("/a.jsonl", reply(302, Location=location)), tmp_path)
    assert not failure.value.retryable


def test_a_redirect_from_a_public_to_a_private_address_is_refused(server, other, tmp_path, monkeypatch):
    async def public(self, url):
        return True

    monkeypatch.setattr(Http, "is_public", public)
    other.on("/x", served(BODY))
    for n, location in enumerate((other.url("/x"), f"http://localhost:{other.port}/x", f"http://[::ffff:127.0.0.1]:{other.port}/x")):
        with pytest.raises(FetchError, match="private address") as failure:
            get(server.on(f"/{n}", reply(302, Location=location)), tmp_path, id=f"s{n}")
        assert not failure.value.retryable
    assert other.connections == 0
    assert get(server.on("/ok", reply(302, Location=other.url("/x"))), tmp_path, id="ok", allow_private=True).status == "fetched"


def test_private_addresses():
    for address in (
        "127.0.0.1",
        "10.1.2.3",
        "192.168.0.1",
        "169.254.169.254",
        "::1",
        "fe80::1%eth0",
        "fd00::1",
        "::ffff:10.0.0.1",
        "0.0.0.0",
    ):
        assert is_private(address)
    for address in ("1.1.1.1", "2606:4700::1111"):
        assert not is_private(address)


# headers


def test_headers_go_to_their_origin_and_to_no_other(server, other, tmp_path, capfd):
    events = []
    environment = {"CORPUSBUILD_HEADERS": json.dumps({server.url(""): {"Authorization": "Bearer s3cret", "X-Api-Key": "k3y"}})}
    url = server.on("/a.jsonl", reply(302, Location=other.url("/x?sig=t0ken")))
    other.on("/x?sig=t0ken", reply(503), served(BODY))
    get(url, tmp_path, environment=environment, progress=events.append)
    assert server.requests[0].headers["authorization"] == "Bearer s3cret"
    assert server.requests[0].headers["x-api-key"] == "k3y"
    for request in other.requests:
        assert b"s3cret" not in request.raw
        assert b"k3y" not in request.raw
    kept = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p.suffix != ".zst")
    said = "".join(map(str, events)) + "".join(capfd.readouterr())
    for secret in ("s3cret", "k3y", "t0ken"):
        assert secret.encode() not in kept
        assert secret not in said


def test_errors_show_no_query_of_a_url(server, tmp_path):
    with pytest.raises(FetchError) as failure:
        get(server.on("/a.jsonl?token=s3cret", reply(404)), tmp_path)
    assert "s3cret" not in str(failure.value)


def test_the_hub_token_goes_to_the_hub_only(server, other, tmp_path):
    environment = {"HF_TOKEN": "hf_s3cret", "HF_ENDPOINT": server.url("")}
    server.on("/datasets/owner/set/resolve/abc123/data/a.jsonl", reply(302, Location=other.url("/lfs")))
    other.on("/lfs", served(BODY))
    assert get("hf://datasets/owner/set@abc123/data/a.jsonl", tmp_path, environment=environment).status == "fetched"
    assert server.requests[0].headers["authorization"] == "Bearer hf_s3cret"
    assert "authorization" not in other.requests[0].headers


def test_the_user_agent_names_the_tool_and_a_contact(server, tmp_path):
    get(server.on("/a.jsonl", served(BODY)), tmp_path, how=How(contact="mailto:ana@example.org"))
    assert server.requests[0].headers["user-agent"].startswith("corpusbuild/")
    assert "(mailto:ana@example.org)" in server.requests[0].headers["user-agent"]
    assert "cookie" not in server.requests[0].headers


def test_no_cookie_is_kept_and_netrc_is_not_read(server, tmp_path, monkeypatch):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password s3cret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    url = server.on("/a.jsonl", reply(503, Set_Cookie="a=b"), served(BODY))
    get(url, tmp_path)
    assert all("cookie" not in r.headers and "authorization" not in r.headers for r in server.requests)


@pytest.mark.parametrize(
    "value",
    [
        "{",
        "[]",
        '{"host": {"A": "b"}}',
        '{"https://h": "x"}',
        '{"https://h": {"Range": "bytes=0-"}}',
        '{"https://h": {"A": "b\\r\\nC: d"}}',
    ],
)
def test_bad_headers_are_refused_without_showing_them(value):
    with pytest.raises(ConfigError, match="CORPUSBUILD_HEADERS") as failure:
        headers_by_origin({"CORPUSBUILD_HEADERS": value})
    assert "bytes=0" not in str(failure.value)


# proxies


def test_a_proxy_from_the_environment_is_used_and_no_proxy_obeyed(server, other, tmp_path):
    other.on("http://files.example/a.jsonl", served(BODY))
    environment = {"http_proxy": other.url(""), "no_proxy": "127.0.0.1"}
    assert get("http://files.example/a.jsonl", tmp_path, environment=environment).status == "fetched"
    assert get(server.on("/b.jsonl", served(BODY)), tmp_path, id="b", environment=environment).status == "fetched"
    assert (len(other.requests), len(server.requests)) == (1, 1)


@pytest.mark.parametrize(
    ("url", "environment", "proxy"),
    [
        ("https://h/x", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://h/x", {"http_proxy": "http://p:1"}, None),
        ("https://h/x", {"all_proxy": "p:1"}, "http://p:1"),
        ("http://h/x", {"HTTP_PROXY": "http://p:1", "REQUEST_METHOD": "GET"}, None),
        ("http://a.b.c/x", {"http_proxy": "http://p:1", "no_proxy": "b.c"}, None),
        ("http://ab.c/x", {"http_proxy": "http://p:1", "no_proxy": "b.c"}, "http://p:1"),
        ("http://h:81/x", {"http_proxy": "http://p:1", "no_proxy": "h:80"}, "http://p:1"),
        ("http://10.1.2.3/x", {"http_proxy": "http://p:1", "no_proxy": "10.0.0.0/8"}, None),
        ("http://h/x", {"http_proxy": "http://p:1", "no_proxy": "*"}, None),
    ],
)
def test_which_proxy(url, environment, proxy):
    assert proxy_for(url, environment) == proxy


# TLS


@pytest.fixture(scope="module")
def ca():
    return trustme.CA()


def tls_server(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return running(context)


def trusting(ca, tmp_path):
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return {"CURL_CA_BUNDLE": str(tmp_path / "ca.pem")}


def test_own_authorities_are_trusted(ca, tmp_path):
    with tls_server(ca.issue_cert("127.0.0.1")) as server:
        assert get(server.on("/a.jsonl", cut(BODY, 700), served(BODY)), tmp_path, environment=trusting(ca, tmp_path)).status == "fetched"
        assert ranges(server) == [None, "bytes=700-"]


def test_ssl_cert_file_is_the_usual_way(ca, tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", trusting(ca, tmp_path)["CURL_CA_BUNDLE"])
    with tls_server(ca.issue_cert("127.0.0.1")) as server:
        assert get(server.on("/a.jsonl", served(BODY)), tmp_path).status == "fetched"


def yesterday():
    return datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)


@pytest.mark.parametrize("fault", ["self-signed", "expired", "wrong host"])
def test_a_bad_certificate_is_final_and_nothing_is_asked(fault, ca, tmp_path):
    certificate = {
        "self-signed": lambda: trustme.CA().issue_cert("127.0.0.1"),
        "expired": lambda: ca.issue_cert("127.0.0.1", not_before=yesterday() - datetime.timedelta(days=9), not_after=yesterday()),
        "wrong host": lambda: ca.issue_cert("example.org"),
    }[fault]()
    waits = []
    with tls_server(certificate) as server:
        with pytest.raises(FetchError, match="certificate is not trusted") as failure:
            get(server.on("/a.jsonl", served(BODY)), tmp_path, environment=trusting(ca, tmp_path), waits=waits)
        assert not failure.value.retryable
        assert (server.requests, waits, server.connections) == ([], [], 1)


def test_a_redirect_from_https_to_http_is_refused(ca, server, tmp_path):
    with tls_server(ca.issue_cert("127.0.0.1")) as secure, pytest.raises(FetchError, match="from https to http"):
        get(secure.on("/a", reply(302, Location=server.on("/a", served(BODY)))), tmp_path, environment=trusting(ca, tmp_path))
    assert server.requests == []


def test_a_cut_of_a_body_without_a_length_is_seen_under_tls_too(ca, tmp_path):
    with tls_server(ca.issue_cert("127.0.0.1")) as server:
        url = server.on("/a.jsonl", reply(200, BODY[:700], Content_Length=None), served(BODY))
        assert get(url, tmp_path, environment=trusting(ca, tmp_path)).status == "fetched"


# connections, limits


def test_a_dead_kept_connection_costs_no_attempt(server, tmp_path):
    asked = threading.Event()
    kept = served(BODY)

    def then_close(conn, request, stop):
        kept(conn, request, stop)
        asked.set()

    url = server.on("/a.jsonl", then_close)
    assert get(url, tmp_path, attempts=1).status == "fetched"


def test_per_host_bounds_what_is_in_flight_at_one_host(server, tmp_path):
    two = threading.Barrier(2)

    def together(conn, request, stop):
        two.wait(2)
        conn.sendall(head(200, {"Content-Length": len(BODY)}) + BODY)

    sha = hashlib.sha256(BODY).hexdigest()
    sources = [Source(f"s{i}", server.on(f"/{i}", together), sha, "MIT") for i in range(6)]
    assert asyncio.run(fetch(sources, tmp_path, how=How(per_host=2), environment={}, timeout=5.0)).ok
    assert server.most == 2


def test_the_rate_is_kept(server, tmp_path):
    waits = []
    get(server.on("/a.jsonl", ok(BODY)), tmp_path, how=How(rate=1000.0), waits=waits)
    assert max(waits) == pytest.approx(len(BODY) / 1000, rel=0.2)
