"""How a step ended, in the words of its output: only what a runner, an exit code or an error says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import is_linear

from ctxguard.views.outcomes import last_error, outcome_of, summary_of_tests


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ("collected 48 items\n..F\n=========== 1 failed, 47 passed in 3.21s ===========", True),
        ("48 passed in 0.52s", False),
        ("Tests:       1 failed, 5 passed, 6 total\nTime: 2 s", True),
        (" Tests  12 passed (12)\n", False),
        ("  5 passing (20ms)\n  1 failing\n", True),
        ("Finished in 0.3 seconds\n12 tests, 2 failures\n", True),
        ("3 doctests, 12 tests, 0 failures", False),
        ("5 examples, 1 failure, 2 pending", True),
        ("test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s", True),
        ("[ERROR] Tests run: 5, Failures: 1, Errors: 0, Skipped: 0", True),
        ("OK (5 tests, 7 assertions)", False),
        ("Ran 3 tests in 0.1s\n\nFAILED (failures=1, errors=1)", True),
        ("ok  \tgithub.com/a/b\t0.012s\nFAIL\tgithub.com/a/c\t0.2s", True),
    ],
)
def test_the_summary_of_a_test_runner_is_an_outcome_of_what_ran(text, failed):
    ended = outcome_of(text, ran=True)
    assert ended.failed is failed
    assert ended.words
    assert " ".join(ended.words.split()) in " ".join(text.split())
    assert outcome_of(f"{text}\n" + "line\n" * 9, ran=False, reads=True) == (False, "")


@pytest.mark.parametrize(
    "text",
    [
        "total 56\n-rw-r--r-- 1 root root 4096 Feb 11 08:56 test\n-rw-r--r-- 1 root root 99 Feb 11 08:32 error.c",
        "drwxr-xr-x 2 a a 12 tests\ndrwxr-xr-x 2 a a 32 errors",
        'assert result == "2 failed"\nother line',
        "pyflakes 1.8.3 warning\ndone",
        "0 errors found\nall fine",
        "create mode 100644 test/app.py\nmade",
        "We saw that 3 tests failed in 2022.\nThen we fixed it.",
        "Exit code 0\nfine",
    ],
)
def test_a_listing_or_a_sentence_is_no_outcome(text):
    assert outcome_of(text, ran=True) == (False, "")
    assert summary_of_tests(text) == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "ERROR:\nNo replacement was performed, old_str did not appear verbatim in a.py.",
            "No replacement was performed, old_str did not appear verbatim in a.py.",
        ),
        ("Error:\n\n  file not found", "file not found"),
        ("[ERROR]:\nfatal: not a git repository", "fatal: not a git repository"),
        ("Error: no such order", "Error: no such order"),
        (
            "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\nKeyError: 'region'",
            "KeyError: 'region'",
        ),
        ("Unable to find the button", "Unable to find the button"),
        ('{"error": "no such user"}', '{"error": "no such user"}'),
    ],
)
@pytest.mark.parametrize("ran", [True, False])
def test_an_error_has_its_reason(text, words, ran):
    assert outcome_of(text, ran=ran) == (True, words)


def test_an_exit_code_stands_with_the_reason():
    ended = outcome_of("Exit code 1\nnpm ERR! missing script: lint\nmore", ran=True)
    assert ended.failed
    assert ended.words.startswith("Exit code 1; npm ERR! missing script: lint")


def test_what_the_framework_marks_as_an_error_is_one():
    assert outcome_of("The user rejected it.", ran=False, flagged=True) == (True, "The user rejected it.")


def test_a_long_text_that_was_read_is_no_failure_whatever_it_begins_with():
    log = "ERROR: disk full\n" * 40
    assert outcome_of(log, ran=False, reads=True) == (False, "")
    assert outcome_of("Error: no such file", ran=False, reads=True) == (True, "Error: no such file")


@pytest.mark.parametrize(("text", "words"), [("delivered\n", "delivered"), ("{}", ""), ("", ""), ("a\nb", "")])
def test_a_short_output_is_told_whole(text, words):
    assert outcome_of(text, ran=False) == (False, words)


def test_the_last_error_of_a_log_is_not_a_bare_heading():
    assert last_error("ERROR: first\nfine\nERROR:\nthe reason") == "the reason"


@pytest.mark.parametrize(
    "text", ["x1y" * 1_700_000, " " * 3_000_000, "1 passed, " * 300_000, "a b " * 700_000, "=" * 999_999]
)
@pytest.mark.parametrize("ran", [True, False])
def test_hostile_texts_take_little_time(text, ran):
    assert len(outcome_of(text, ran=ran).words) <= 120
    assert is_linear(lambda size: outcome_of(text[:size], ran=ran), len(text) // 4)


@given(st.text(max_size=300), st.booleans())
def test_words_of_an_outcome_stand_in_the_output(text, ran):
    words = outcome_of(text, ran=ran).words.rstrip("…").replace("; ", " ").split()
    there = text.split()
    assert all(any(word in other for other in there) for word in words)
