"""The page that lists the specification row by row: every test it names exists, every row has an answer, every listed test has its name."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "specification.md").read_text()
NAMED = re.findall(r"`((?:\w+/)*test_\w+\.py)::(\w+)`", PAGE)
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if re.match(r"\| [FDB]\d+ \|", line)]

FETCH = """
hand_example_resume_after_a_cut raw_parts_are_zstd_json_lines ledger_rows_validate_against_the_schema ledger_row_is_a_pure_function_of_fetched
a_server_that_ignores_range_restarts_the_file cut_bodies_resume_until_whole a_checksum_mismatch_is_quarantined_not_retried
the_servers_checksum_header_is_not_trusted a_rerun_downloads_nothing a_new_pinned_checksum_fetches_again
a_whole_partial_file_gets_416_and_is_kept a_verified_download_left_by_a_crash_is_not_downloaded_again
5xx_is_retried_with_exponential_backoff a_404_is_not_retried exhausted_retries_raise_a_retryable_error a_silent_server_times_out
concurrency_is_bounded ledger_rows_follow_the_input_order a_failure_keeps_the_rows_of_finished_sources redirects_are_followed
text_sources_split_on_blank_lines jsonl_errors_name_the_line parts_hold_at_most_part_docs_documents
sources_from_config_fills_defaults_and_rejects_bad_entries
""".split()
WORKFLOW = """
hand_example_keys_and_order config_hash_is_content_not_spelling bad_config_fails_before_any_activity kill_loop_same_result
cancel_deletes_partial_shards failed_stage_compensates fetch_failure_needs_no_cleanup stage_options
""".split()


def functions(file):
    """The names of the tests of a file, in classes too."""
    return {
        node.name for node in ast.walk(ast.parse((TESTS / file).read_text())) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_every_test_that_is_named_exists():
    files = {file: functions(file) if (TESTS / file).exists() else set() for file, _ in NAMED}
    assert [f"{file}::{name}" for file, name in NAMED if name not in files[file]] == []
    assert len(set(NAMED)) > 100


@pytest.mark.parametrize(("file", "names"), [("test_fetch.py", FETCH), ("test_workflow.py", WORKFLOW)])
def test_every_listed_test_has_its_name_and_its_row(file, names):
    assert {f"test_{name}" for name in names} <= functions(file)
    assert {(file, f"test_{name}") for name in names} <= set(NAMED)


def test_every_row_has_an_answer():
    """A test, or the decision that took its place; and no row is there twice."""
    assert [row[0] for row in ROWS if "::" not in row[-1] and "*decided*" not in row[-1]] == []
    numbers = [row[0] for row in ROWS]
    assert len(numbers) == len(set(numbers)) > 120


def test_every_place_that_is_named_exists():
    package = TESTS.parent / "corpusbuild"
    wrong = []
    for row in ROWS:
        if len(row) == 4:
            for name in re.findall(r"`([\w/.]+(?:\.py|/|\.toml))`", row[2]):
                if not ((package / name).exists() or (TESTS.parent / name).exists()):
                    wrong.append((row[0], name))
    assert wrong == []
