"""Time grows with the text and no faster, engines agree, and rules from elsewhere fit in."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies_for_text import texts

from ctxguard.errors import ConfigError
from ctxguard.pii import DIGITS, SSN, STANDARD, Rule, RuleSet, load_gitleaks
from ctxguard.pii.engine import Engine
from ctxguard.pii.gates import anchor_pattern, hex_pattern, shape_pattern, sieve
from ctxguard.pii.shapes import hex_shape_of, shape_of

ENGINES = {}
HOSTILE = [
    "1-",
    "a.",
    "eyJ",
    "4111 1111 ",
    "1",
    "@",
    "a@",
    "a@a.",
    "-----BEGIN RSA PRIVATE KEY-----\nabc\n",
    "://a:",
    "::",
    "ff:",
    "(555) ",
    "+1",
    "1 ",
    "1.",
    "key=",
    "password: ",
    "<EMAIL_",
    "[REDACTED",
    "\\u0031",
    "1\u200b",
    "１-",
    "sk-abc1",
    "DE89 3704 ",
    "born 1 ",
    "xoxb-1",
    "deadbeef01",
    "1/",
    "((1)",
    "123e4567-e89b-12d3-a456-426614174000 ",
    '{"a":',
    "phone 1",
]


def steps_of(text):
    """Count the lines of ours that run while a text is searched: a measure of work that no busy machine disturbs."""
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        if "ctxguard" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    rules = RuleSet(f"fresh {len(text)}", STANDARD.rules)
    sys.settrace(trace)
    try:
        rules.find(text)
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize("piece", HOSTILE)
def test_work_grows_no_faster_than_hostile_text(piece):
    small, large = 2_000, 8_000
    repeated = piece * (large // len(piece) + 1)
    STANDARD.find(repeated[:large])
    assert steps_of(repeated[:large]) <= 4.6 * steps_of(repeated[:small]) + 2_000


def test_what_is_remembered_stays_bounded():
    engine = Engine(STANDARD.rules, frozenset(), ())
    for number in range(0, 60_000, 7):
        engine.find(f"phone {'1 ' * (number % 90)}{number:06d}-{number} w{number}")
    assert len(engine._fits) <= 20_000
    assert len(engine._surroundings._windows) <= 20_000


@given(st.one_of(st.binary(max_size=60), texts.map(lambda text: text.encode("latin-1", "replace"))))
def test_a_sieve_lets_through_what_the_gates_do(text):
    opened = sieve([anchor_pattern(b"key"), anchor_pattern(b""), shape_pattern(b"A0-a"), hex_pattern(b"hh:h")])
    if opened is None:
        pytest.skip("google-re2 is not installed")
    gates = (b"key" in text.lower(), True, b"A0-a" in shape_of(text), b"hh:h" in hex_shape_of(text))
    assert list(opened(text)) == [number for number, is_open in enumerate(gates) if is_open]


@given(texts)
def test_findings_are_the_same_with_and_without_re2(text):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ctxguard.pii.engine.sieve", lambda patterns: None)
        without = Engine(STANDARD.rules, frozenset(), ()) if "plain" not in ENGINES else ENGINES["plain"]
        ENGINES["plain"] = without
    assert without.find(text) == STANDARD.find(text)


def test_longest_wins_then_the_surest_then_the_first():
    rules = RuleSet(
        "overlaps",
        (Rule("a", "SHORT", "bc", score=1.0), Rule("b", "LONG", "abc", score=0.1), Rule("c", "SURE", "abc", score=0.2)),
    )
    assert [(s.start, s.end, s.label) for s in rules.find("xabcx")] == [(1, 4, "SURE")]
    same = RuleSet("same", (Rule("a", "FIRST", "abc"), Rule("b", "SECOND", "abc")))
    assert [span.label for span in same.find("abc")] == ["FIRST"]


def test_joined_sets_find_what_each_finds():
    text = "12345 536-22-8741 jane@site.org"
    assert {span.label for span in (DIGITS | SSN | STANDARD).find(text)} == {"NUMBER", "SSN", "EMAIL"}


GITLEAKS = r"""
title = "rules"
[[rules]]
id = "acme-token"
regex = '''(?i)\b(acme_[a-z0-9]{12})(?:['"\s;]|\z)'''
entropy = 2
keywords = ["acme_"]
[[rules.allowlists]]
regexes = ['''acme_0+''']
[[rules]]
id = "only-paths"
path = '''\.pem$'''
"""


def test_gitleaks_rules_are_taken_with_keywords_entropy_and_allow_lists(tmp_path):
    file = tmp_path / "gitleaks.toml"
    file.write_text(GITLEAKS)
    rules = load_gitleaks(file)
    text = "ACME_q1w2e3r4t5y6 acme_000000000000 acme_aaaaaaaaaaaa"
    assert [text[span.start : span.end] for span in rules.find(text)] == ["ACME_q1w2e3r4t5y6"]
    assert rules.find(text) == rules.scan(text)


def test_a_file_that_is_no_gitleaks_configuration_is_refused(tmp_path):
    file = tmp_path / "x.toml"
    file.write_text("= 1")
    with pytest.raises(ConfigError, match="no gitleaks configuration"):
        load_gitleaks(file)
    file.write_text("[[rules]]\nid='x'\nregex='(('\n")
    with pytest.raises(ConfigError, match="gitleaks rule x"):
        load_gitleaks(file)
