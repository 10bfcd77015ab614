"""Planted mistakes: each of the eleven pitfalls of the specification, and some of our own, must make a named test fail."""

import contextlib
import inspect
import os
import signal
from dataclasses import replace

import pytest
import test_fetch
import test_http
import test_transfer
from servers import running

from corpusbuild import downloads, fetch, http, ledger, origins, resume, transfer


def plain_ask(part, **_):
    return resume.Ask()


def appending(real):
    """judge, but a 200 is appended to what is there."""

    def judge(asked, part, answer, now=0.0):
        step = real(asked, part, answer, now)
        return resume.Append(part.size, step.length, None) if isinstance(step, resume.Rewrite) else step

    return judge


def pitfall_1_retrying_without_a_range_and_appending(patch):
    patch.setattr(resume, "ask", plain_ask)
    patch.setattr(resume, "judge", appending(resume.judge))


def pitfall_2_appending_a_200_to_the_partial_file(patch):
    patch.setattr(resume, "judge", appending(resume.judge))
    patch.setattr(resume, "verdict", lambda **k: "publish" if k["matches"] else "quarantine")


def pitfall_3_retrying_after_a_checksum_mismatch(patch):
    patch.setattr(resume, "verdict", lambda **k: "publish" if k["matches"] else "again")


def pitfall_4_verifying_against_the_servers_checksum_header(patch):
    real = transfer._Transfer._receive

    async def receive(self, step, opened):
        said = opened.answer.headers.get("x-content-sha256")
        if said:
            self._wanted = replace(self._wanted, sha256=said)
        return await real(self, step, opened)

    patch.setattr(transfer._Transfer, "_receive", receive)


def pitfall_5_retrying_every_http_error(patch):
    patch.setattr(resume, "GONE", frozenset())
    patch.setattr(resume, "RETRYABLE", frozenset(range(400, 600)))


def pitfall_6_not_consulting_the_ledger(patch):
    patch.setattr(fetch._Run, "_cached", lambda *a: None)
    patch.setattr(fetch.Store, "has", lambda *a: False)
    real = transfer.obtain

    async def obtain(wanted, downloads_, quarantine, world):
        (downloads_ / wanted.name).unlink(missing_ok=True)
        return await real(wanted, downloads_, quarantine, world)

    patch.setattr(fetch, "obtain", obtain)


def pitfall_7_appending_ledger_rows_as_downloads_finish(patch):
    real = fetch._Run._split

    def split(self, fetched, key, files, end, stop):
        def ended(f):
            end(f)
            ledger.append_rows(self.dest / "LEDGER.jsonl", [fetch.ledger_row(f)])

        real(self, fetched, key, files, ended, stop)

    patch.setattr(fetch._Run, "_split", split)


def pitfall_8_no_semaphore_around_the_downloads(patch):
    patch.setattr(fetch.asyncio, "Semaphore", lambda n: contextlib.AsyncExitStack())


def pitfall_9_no_timeout_on_reads(patch):
    real = http.Http.__init__

    def init(self, **settings):
        real(self, **{**settings, "timeout": 3600.0})

    patch.setattr(http.Http, "__init__", init)


def pitfall_10_writing_the_ledger_only_when_all_succeeded(patch):
    real = fetch.ledger.append_rows

    def append(path, rows):
        if not any("bad" in str(p) for p in (path.parent / "downloads").iterdir()):
            real(path, rows)

    patch.setattr(fetch.ledger, "append_rows", append)


def pitfall_11_local_time_in_retrieved_at(patch):
    import time

    patch.setattr(fetch, "_utc", lambda s: time.strftime("%Y-%m-%dT%H:%M:%S+02:00", time.gmtime(s + 7200)))


def own_1_if_range_is_never_compared_when_a_206_comes(patch):
    patch.setattr(resume, "_changed", lambda checkpoint, answer: False)
    patch.setattr(resume, "verdict", lambda **k: "publish" if k["matches"] else "quarantine")


def own_2_a_mismatch_of_a_resumed_file_is_quarantined(patch):
    patch.setattr(resume, "verdict", lambda **k: "publish" if k["matches"] else "quarantine")


def own_3_headers_follow_a_redirect_to_another_origin(patch):
    patch.setattr(http, "origin", lambda url: ("http", "127.0.0.1", 0))
    real = origins.headers_by_origin
    patch.setattr(http, "headers_by_origin", lambda e: {("http", "127.0.0.1", 0): next(iter(real(e).values()), {})})


def own_4_a_certificate_error_is_retried(patch):
    real = http._fault
    patch.setattr(http, "_fault", lambda error, timeout: http.Fault(real(error, timeout).why))


def own_5_a_body_without_a_length_counts_as_whole(patch):
    real = resume.verdict
    patch.setattr(resume, "verdict", lambda **k: real(**{**k, "framed": True}))


def own_6_the_quarantine_is_forgotten(patch):
    patch.setattr(transfer, "quarantined", lambda *a: None)


def own_7_what_came_before_a_cut_is_lost(patch):
    patch.setattr(http, "_undelivered", lambda content: b"")


def own_8_six_redirects_are_followed(patch):
    patch.setattr(resume, "MAX_REDIRECTS", 6)


def own_9_progress_does_not_renew_the_attempts(patch):
    patch.setattr(transfer._Transfer, "_count_progress", lambda self, size: None)


def own_10_the_digest_is_not_compared(patch):
    patch.setattr(transfer._Transfer, "_is_right", lambda self: True)


def own_11_the_first_bad_mirror_is_the_end(patch):
    patch.setattr(fetch, "places", lambda source, file: (file.url,))


def own_12_a_file_under_its_final_name_is_believed(patch):
    patch.setattr(transfer, "file_digest", lambda path, stop=None: test_fetch.TINY_SHA256)


MUTANTS = [
    (pitfall_1_retrying_without_a_range_and_appending, test_fetch.test_hand_example_resume_after_a_cut),
    (pitfall_2_appending_a_200_to_the_partial_file, test_fetch.test_a_server_that_ignores_range_restarts_the_file),
    (pitfall_3_retrying_after_a_checksum_mismatch, test_fetch.test_a_checksum_mismatch_is_quarantined_not_retried),
    (pitfall_4_verifying_against_the_servers_checksum_header, test_fetch.test_the_servers_checksum_header_is_not_trusted),
    (pitfall_5_retrying_every_http_error, test_fetch.test_a_404_is_not_retried),
    (pitfall_6_not_consulting_the_ledger, test_fetch.test_a_rerun_downloads_nothing),
    (pitfall_7_appending_ledger_rows_as_downloads_finish, test_fetch.test_ledger_rows_follow_the_input_order),
    (pitfall_8_no_semaphore_around_the_downloads, test_fetch.test_concurrency_is_bounded),
    (pitfall_9_no_timeout_on_reads, test_fetch.test_a_silent_server_times_out),
    (pitfall_10_writing_the_ledger_only_when_all_succeeded, test_fetch.test_a_failure_keeps_the_rows_of_finished_sources),
    (pitfall_11_local_time_in_retrieved_at, test_fetch.test_ledger_rows_validate_against_the_schema),
    (own_1_if_range_is_never_compared_when_a_206_comes, test_http.test_a_bad_answer_to_a_range_ends_in_the_pinned_object),
    (own_2_a_mismatch_of_a_resumed_file_is_quarantined, test_http.test_a_server_that_changed_the_file_without_saying_so_gets_one_clean_get),
    (own_3_headers_follow_a_redirect_to_another_origin, test_http.test_headers_go_to_their_origin_and_to_no_other),
    (own_4_a_certificate_error_is_retried, test_http.test_a_redirect_from_a_public_to_a_private_address_is_refused),
    (
        own_5_a_body_without_a_length_counts_as_whole,
        test_http.test_a_body_without_a_length_that_is_always_cut_is_retryable_and_not_quarantined,
    ),
    (own_6_the_quarantine_is_forgotten, test_transfer.test_quarantine_only_when_every_mirror_lies_and_it_is_remembered),
    (own_7_what_came_before_a_cut_is_lost, test_fetch.test_cut_bodies_resume_until_whole),
    (own_8_six_redirects_are_followed, test_fetch.test_a_sixth_redirect_is_refused_and_five_are_followed),
    (own_9_progress_does_not_renew_the_attempts, test_http.test_progress_renews_the_attempts),
    (own_10_the_digest_is_not_compared, test_fetch.test_a_checksum_mismatch_is_quarantined_not_retried),
    (own_11_the_first_bad_mirror_is_the_end, test_transfer.test_a_failing_mirror_is_followed_by_the_next),
    (own_12_a_file_under_its_final_name_is_believed, test_fetch.test_a_file_under_its_final_name_is_not_believed),
]


class Hangs(KeyboardInterrupt):  # asyncio lets this through a callback, and swallows what is no interrupt
    pass


@contextlib.contextmanager
def at_most(seconds):
    """A mistake that makes a test hang is seen too."""

    def ring(*_):
        raise Hangs

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except Hangs:
        raise AssertionError("hangs") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def call(test, tmp_path, patch, capfd):
    """A test as pytest would call it, with fixtures of its own."""
    with contextlib.ExitStack() as stack:
        given = {"tmp_path": tmp_path, "monkeypatch": patch, "capfd": capfd, "name": "another version"}
        given |= {name: stack.enter_context(running()) for name in ("server", "other")}
        test(**{name: given[name] for name in inspect.signature(test).parameters})


@pytest.mark.slow  # a mistake may hang, and an alarm in the middle of anything is no tame guest
@pytest.mark.parametrize(("mutant", "test"), MUTANTS, ids=lambda f: f.__name__)
def test_the_mistake_is_seen(mutant, test, tmp_path, capfd):
    for n in ("sound", "hurt"):
        (tmp_path / n).mkdir()
    with pytest.MonkeyPatch.context() as patch:
        call(test, tmp_path / "sound", patch, capfd)
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        with pytest.raises((Exception, pytest.fail.Exception)), at_most(1.5):  # whatever way it fails, it fails
            call(test, tmp_path / "hurt", patch, capfd)


def test_there_is_a_mistake_for_every_pitfall():
    assert {m.__name__.split("_")[1] for m, _ in MUTANTS if m.__name__.startswith("pitfall")} == {str(n) for n in range(1, 12)}
    assert os.path.exists(downloads.__file__)
