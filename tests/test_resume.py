"""The decision table against an oracle written from the rules alone, then the rows that need a story."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild.resume import (
    Again,
    Answer,
    Append,
    Ask,
    Checkpoint,
    Drop,
    Hop,
    Part,
    Refuse,
    Rewrite,
    Verify,
    Whole,
    Wrong,
    ask,
    backoff,
    checkpoint_of,
    fits,
    hop,
    judge,
    segments,
    trusted,
    usable_date,
    verdict,
)

T = 1000  # the file's size
URL = "http://h/x"
ETAGS = (None, '"a"', '"b"', 'W/"a"')


def part(size, pinned=None, etag='"a"', expected=T, encoding=""):
    known = Checkpoint(0, expected, "", URL, etag=etag, encoding=encoding) if etag is not None or expected is not None else None
    return Part(size, pinned, known)


# The table: every part, status, Content-Range, length, ETag and encoding that a server may send. The oracle says in a word what must happen.

PARTS = {"none": 0, "prefix": 400, "nearly": T - 1}
CONTENT_RANGES = {
    "right": "bytes {s}-{l}/{t}",
    "star": "bytes {s}-{l}/*",
    "from 0": "bytes 0-{l}/{t}",
    "late": "bytes {s1}-{l}/{t}",
    "shorter": "bytes {s}-{s}/{t}",
    "beyond": "bytes {s}-{t}/{t}",
    "other total": "bytes {s}-{l}/{t1}",
    "backwards": "bytes {s}-{b}/{t}",
    "lines": "lines {s}-{l}/{t}",
    "garbage": "bytes x-y/z",
    "missing": None,
}
LENGTHS = ("agrees", "one more", "zero", "none")
ENCODINGS = (None, "identity", "gzip")
STATUSES = (200, 206, 416)


def cases():
    for (name, size), status, content_range, length, etag, encoding in itertools.product(
        PARTS.items(), STATUSES, CONTENT_RANGES, LENGTHS, ETAGS, ENCODINGS
    ):
        if status == 416 and (etag, encoding) != (None, None):
            continue  # neither is looked at
        if status == 206 and size == 0 and (etag, encoding) not in ((None, None), ('"a"', None)):
            continue
        yield name, size, status, content_range, length, etag, encoding


CASES = list(cases())


def answer_of(size, status, content_range, length, etag, encoding):
    headers = {}
    if status == 416:
        form = {"right": f"bytes */{size}", "star": "bytes */*", "from 0": "bytes */0", "other total": f"bytes */{T}"}.get(content_range)
        if form is not None:
            headers["content-range"] = form
    elif CONTENT_RANGES[content_range] is not None:
        headers["content-range"] = CONTENT_RANGES[content_range].format(s=size, s1=size + 1, l=T - 1, t=T, t1=T + 1, b=size - 1)
    body = 1 if content_range == "shorter" and status == 206 else T - size if status == 206 else T
    if content_range == "from 0" and status == 206:
        body = T
    if length != "none":
        headers["content-length"] = str({"agrees": body, "one more": body + 1, "zero": 0}[length])
    if etag is not None:
        headers["etag"] = etag
    if encoding is not None:
        headers["content-encoding"] = encoding
    return Answer(status, headers, URL)


def oracle(size, status, content_range, length, etag, encoding):
    """What the rules say, in one word. The part was begun with the ETag "a", of a file of T bytes, without an encoding."""
    if status == 200:
        if content_range != "missing":
            return "plain"
        if size and etag == '"a"':
            return "bare"  # it did not change, and yet the server did not honour If-Range
        return "rewrite"
    if status == 206:
        if size == 0:
            return "plain"  # nobody asked for a part
        if content_range in ("lines", "garbage", "missing", "from 0", "late", "other total", "beyond"):
            return "plain"
        if content_range == "backwards" or length == "zero":
            return "plain"  # an empty range, and the part is shorter than the file
        if length == "one more":
            return "plain"
        if etag not in (None, '"a"') or encoding == "gzip":
            return "plain"
        return "append"
    if size == 0:
        return "refuse"  # 416 to a plain GET
    return "plain"  # the part is shorter than the file, whatever */N says


def word(step):
    match step:
        case Append():
            return "append"
        case Rewrite():
            return "rewrite"
        case Whole():
            return "whole"
        case Again(plain=True):
            return "plain"
        case Again(bare=True):
            return "bare"
        case Again():
            return "again"
        case Refuse():
            return "refuse"
        case Wrong():
            return "wrong"


def test_the_table_has_enough_cases():
    assert len(CASES) > 1300


def test_the_table():
    wrong = []
    for name, size, *rest in CASES:
        here = part(size) if size else Part(0)
        asked = ask(here, url=URL)
        got = word(judge(asked, here, answer_of(size, *rest)))
        if got != oracle(size, *rest):
            wrong.append((name, *rest, got, oracle(size, *rest)))
    assert wrong == []


def oracle_behind(size, status, content_range, length, etag):
    """The same for a part as long as the file or longer, when nobody knows how long the file is."""
    if status == 200:
        return "plain" if content_range != "missing" else "bare" if etag == '"a"' else "rewrite"
    if status == 416:
        return "whole" if size == T and content_range in ("right", "other total") else "whole" if content_range == "right" else "plain"
    empty = content_range in ("right", "backwards") or (length == "zero" and content_range == "shorter")
    empty = empty or (content_range == "beyond" and length in ("zero", "agrees"))  # a body that agrees with the file has no bytes left
    return "whole" if size == T and empty else "plain"


def test_the_table_for_parts_that_have_it_all():
    wrong, count = [], 0
    for size, status, content_range, length, etag in itertools.product((T, T + 5), STATUSES, CONTENT_RANGES, LENGTHS, ETAGS):
        here, count = part(size, expected=None), count + 1
        got = word(judge(ask(here, url=URL), here, answer_of(size, status, content_range, length, etag, None)))
        if got != oracle_behind(size, status, content_range, length, etag):
            wrong.append((size, status, content_range, length, etag, got, oracle_behind(size, status, content_range, length, etag)))
    assert (wrong, count) == ([], 1056)


@pytest.mark.parametrize("etag", ETAGS)
@pytest.mark.parametrize("form", [f"bytes */{T}", f"bytes */{T + 1}", f"bytes */{T - 1}", "bytes */*", None])
def test_a_part_of_unknown_whole_is_whole_where_416_names_its_size(form, etag):
    headers = {"content-range": form} if form else {}
    step = judge(Ask(T), Part(T), Answer(416, headers | ({"etag": etag} if etag else {})))
    assert word(step) == ("whole" if form == f"bytes */{T}" else "plain")


@pytest.mark.parametrize("form", [f"bytes {T}-{T - 1}/{T}", f"bytes {T}-{T}/{T}"])
def test_an_empty_range_at_the_end_is_as_416(form):
    length = {"content-length": "0"}
    assert word(judge(Ask(T), Part(T), Answer(206, {"content-range": form, **length}))) in ("whole", "plain")
    assert judge(Ask(T), Part(T), Answer(206, {"content-range": f"bytes {T}-{T - 1}/{T}", **length})) == Whole(T)


# what to ask


@pytest.mark.parametrize(
    ("size", "pinned", "expected"),
    [
        (0, None, Ask()),
        (0, T, Ask()),
        (400, None, Ask(400, '"a"')),
        (400, T, Ask(400, '"a"')),
        (T, T, Verify()),
        (T + 1, T, Drop),
    ],
)
def test_what_is_asked(size, pinned, expected):
    got = ask(part(size, pinned, expected=None), url=URL)
    assert type(got) is Drop if expected is Drop else got == expected


def test_the_range_never_begins_at_zero():
    assert "Range" not in Ask().headers()
    assert ask(part(0), url=URL).headers() == {"Accept-Encoding": "identity"}


def test_a_validator_is_sent_only_to_the_url_that_gave_it():
    assert ask(part(400), url="http://mirror/x") == Ask(400, None)
    assert ask(part(400), url=URL, bare=True) == Ask(400, None)
    assert ask(part(400), url=URL, plain=True) == Ask()


def test_a_weak_etag_and_a_young_date_are_no_validators():
    date = "Thu, 01 Jan 2026 00:00:10 GMT"
    assert usable_date({"date": date, "last-modified": "Thu, 01 Jan 2026 00:00:09 GMT"}) == "Thu, 01 Jan 2026 00:00:09 GMT"
    assert usable_date({"date": date, "last-modified": date}) is None
    assert usable_date({"last-modified": date}) is None
    assert checkpoint_of(Answer(200, {"etag": 'W/"a"'}), URL, T, "b").etag is None
    assert checkpoint_of(Answer(200, {"etag": '"a"'}), URL, T, "b").etag == '"a"'


# rows with a story


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 522, 524])
def test_what_is_tried_again(status):
    assert word(judge(Ask(), Part(0), Answer(status))) == "again"


@pytest.mark.parametrize("status", [201, 204, 304, 400, 401, 403, 404, 405, 410, 451, 501, 505])
def test_what_is_final_from_the_configured_url(status):
    step = judge(Ask(), Part(0), Answer(status))
    assert isinstance(step, Refuse)
    assert not step.retryable


@pytest.mark.parametrize("status", [400, 401, 403])
def test_an_expired_signature_begins_at_the_configured_url_and_keeps_the_range(status):
    assert judge(Ask(400), part(400), Answer(status, hops=1)) == Again(
        f"the redirected URL answers {status}, as an expired signature does", plain=False
    )


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, 0.0),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "Thu, 01 Jan 2026 00:01:00 GMT", "date": "Thu, 01 Jan 2026 00:00:00 GMT"}, 60.0),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:00 GMT", "date": "Thu, 01 Jan 2026 00:01:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, 0.0),
        ({"retry-after": "-5"}, 0.0),
    ],
)
def test_retry_after_is_a_floor(headers, wait):
    step = judge(Ask(), Part(0), Answer(503, headers))
    assert (step.after, backoff(0.5, 1, step.after)) == (wait, max(0.5, wait))


def test_a_long_retry_after_ends_the_run_and_says_when_to_come_back():
    step = judge(Ask(), Part(0), Answer(429, {"retry-after": "3600"}))
    assert isinstance(step, Refuse)
    assert step.retryable
    assert "3600 seconds" in step.why


@pytest.mark.parametrize(
    ("location", "base", "expected"),
    [
        ("https://cdn/x?sig=a%2Fb", "https://h/a", Hop("https://cdn/x?sig=a%2Fb")),
        ("//cdn/x", "https://h/a", Hop("https://cdn/x")),
        ("https://h/b", "http://h/a", Hop("https://h/b")),
        ("http://h/b", "https://h/a", None),
        ("file:///etc/passwd", "http://h/a", None),
        ("ftp://h/a", "http://h/a", None),
        ("javascript:alert(1)", "http://h/a", None),
        ("http://[bad", "http://h/a", None),
        ("", "http://h/a", None),
    ],
)
def test_where_a_redirect_leads(location, base, expected):
    step = hop(Answer(302, {"location": location} if location else {}, base))
    assert step == expected if expected else isinstance(step, Refuse) and not step.retryable


def test_a_page_never_destroys_a_good_part():
    page = Answer(200, {"content-type": "text/html; charset=utf-8", "content-length": "90"}, URL)
    assert word(judge(Ask(400), part(400, etag=None), page)) == "again"
    assert word(judge(Ask(400), part(400, pinned=T), page)) == "again"
    assert word(judge(Ask(), Part(0), page)) == "rewrite"  # nothing to lose, and the digest judges


def test_a_size_that_contradicts_the_pin_writes_nothing():
    assert word(judge(Ask(400), part(400, pinned=T), Answer(200, {"content-length": "90"}))) == "wrong"


@pytest.mark.parametrize(
    ("matches", "whole", "framed", "more", "expected"),
    [
        (True, False, False, False, "publish"),
        (False, False, True, True, "clean"),
        (False, True, False, False, "again"),
        (False, False, False, False, "again"),
        (False, True, True, True, "next"),
        (False, True, True, False, "quarantine"),
    ],
)
def test_the_verdict(matches, whole, framed, more, expected):
    assert verdict(matches=matches, whole_from_one_answer=whole, framed=framed, more_places=more) == expected


@given(st.integers(0, 200), st.one_of(st.none(), st.integers(0, 200)), st.booleans())
@settings(deadline=None, max_examples=100)
def test_trust_never_exceeds_what_is_there_or_what_survived(size, verified, same_boot):
    checkpoint = None if verified is None else Checkpoint(verified, None, "", URL, boot_id="a")
    kept = trusted(size, checkpoint, "a" if same_boot else "b")
    assert kept <= size
    if checkpoint is not None and not same_boot:
        assert kept in (0, verified)
    if checkpoint is not None and size < verified:
        assert kept == 0


@given(st.integers(0, 500), st.integers(1, 500), st.dictionaries(st.integers(0, 600), st.integers(0, 100), max_size=5), st.integers(1, 8))
@settings(deadline=None, max_examples=200)
def test_segments_cover_what_is_missing_once(have, more, held, connections):
    total = have + more
    plan = segments(have, total, held, connections, least=20)
    assert plan[0].start == have
    assert plan[-1].end == total
    assert all(a.end == b.start for a, b in itertools.pairwise(plan))
    assert all(0 <= s.have <= s.end - s.start and s.start < s.end for s in plan)


@pytest.mark.parametrize(
    ("content_range", "etag", "good"),
    [
        ("bytes 15-99/200", '"a"', True),
        ("bytes 15-99/200", None, True),
        ("bytes 15-99/200", '"b"', False),
        ("bytes 15-98/200", '"a"', False),
        ("bytes 10-99/200", '"a"', False),
        ("bytes 15-99/*", '"a"', False),
        ("bytes 15-99/201", '"a"', False),
        ("", '"a"', False),
    ],
)
def test_a_segment_takes_exactly_what_it_lacks(content_range, etag, good):
    from corpusbuild.resume import Segment

    headers = {"content-range": content_range} | ({"etag": etag} if etag else {})
    known = Checkpoint(0, 200, "", URL, etag='"a"')
    assert fits(Segment(10, 100, 5), 200, known, Answer(206, headers)) is good
    assert not fits(Segment(10, 100, 5), 200, known, Answer(200, headers))
