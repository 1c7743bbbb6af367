"""Time grows with the text and no faster, engines agree, and rules from elsewhere fit in."""

import sys

import pytest
from gitleaks import load_gitleaks
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import naive
from patience import is_linear
from strategies_for_text import texts

from ctxguard.errors import ConfigError
from ctxguard.pii import DIGITS, SSN, STANDARD, Rule, RuleSet
from ctxguard.pii.detect.match import Engine
from ctxguard.pii.detect.normalize import PlainText
from ctxguard.pii.rules.files import RuleFile

LEFT = RuleFile("people").filled("{LEFT}")

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
    "curl ",
    "password' ",
    "a.b",
]


@pytest.mark.parametrize("piece", ["(", "+", "(+", "+ (", "(.", "/(", "((((a", "sk-a:", "sk-A"])
def test_expressions_pass_over_signs_without_digits_at_once(piece):
    rules = RuleSet("signs", STANDARD.rules)
    rules.find("warm up")
    assert is_linear(lambda size: rules.find(piece * (size // len(piece))), 25_000)


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


@pytest.mark.slow
def test_what_is_remembered_stays_bounded(monkeypatch):
    monkeypatch.setattr("ctxguard.pii.detect.match.MEMO", 60)
    engine = Engine(STANDARD.rules, frozenset(), ())
    for number in range(0, 20_000, 7):
        engine.find(f"phone {'1 ' * (number % 90)}{number:06d}-{number} w{number}")
    assert 30 < engine._fits.cache_info().currsize <= 60


@settings(max_examples=400, deadline=None)
@given(texts)
def test_the_engine_finds_what_plain_matching_finds(text):
    for rules in (STANDARD, DIGITS | SSN):
        expected = naive(rules, text)
        assert rules.find(text) == expected
        assert rules.scan(text) == expected


groups = st.builds("{:0{}d}{}".format, st.integers(0, 99_999), st.integers(1, 6), st.sampled_from("     .-/)(+"))
values = st.sampled_from(["4111 1111 1111 1111 ", "212-736-5000 ", "536-22-8741 ", "+44 20 7123 4567 ", "203.0.113.9 "])
rows = st.lists(st.one_of(groups, groups, groups, values), min_size=20, max_size=60).map("".join)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(["", "phone ", "tel: ", "credit card: ", "SSN ", "NIP ", "born ", "no word, ", "电话 "]),
    rows,
    st.sampled_from(["", " office", " (mobile)", ", fax", "\nSSN 536-22-8741", " and so on", "\n"]),
)
def test_in_rows_of_numbers_the_engine_finds_what_plain_matching_finds(before, row, after):
    for text in (before + row + after, f"{before}{row}\n{row}{after}"):
        assert STANDARD.find(text) == naive(STANDARD, text)


@pytest.mark.parametrize("piece", ["1 ", "12 34 56 ", "1,5 2,5 ", "0.25 -1.5 ", "255 255 0 "])
def test_a_row_of_numbers_without_a_word_beside_it_has_few_candidates(piece):
    engine = Engine(STANDARD.rules, frozenset(), ())
    assert len([*engine._candidates(PlainText(piece * 2_000))]) < 40


@pytest.mark.parametrize("piece", HOSTILE)
def test_the_engine_finds_in_hostile_text_what_plain_matching_finds(piece):
    text = piece * (600 // len(piece))
    assert STANDARD.find(text) == naive(STANDARD, text)


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


def test_a_gitleaks_rule_may_hold_brackets_that_are_no_group(tmp_path):
    file = tmp_path / "gitleaks.toml"
    file.write_text("[[rules]]\nid = 'x'\nregex = '''key\\(?[(=]+[])]?([a-z0-9]{8})'''\nkeywords = ['key']\n")
    rules = load_gitleaks(file)
    assert [(s.start, s.end) for s in rules.find("key((=a1b2c3d4")] == [(6, 14)]
    file.write_text("[[rules]]\nid = 'y'\nregex = '''acme[(]{2}[0-9]{4}'''\nkeywords = ['acme']\n")
    assert [(s.start, s.end) for s in load_gitleaks(file).find("acme((1234")] == [(0, 10)]


def test_a_file_that_is_no_gitleaks_configuration_is_refused(tmp_path):
    file = tmp_path / "x.toml"
    file.write_text("= 1")
    with pytest.raises(ConfigError, match="not a gitleaks configuration"):
        load_gitleaks(file)
    file.write_text("[[rules]]\nid='x'\nregex='(('\n")
    with pytest.raises(ConfigError, match="gitleaks rule x"):
        load_gitleaks(file)


def test_a_gitleaks_configuration_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ConfigError, match=r"nope\.toml: no such file or directory; name a gitleaks\.toml"):
        load_gitleaks(tmp_path / "nope.toml")
    with pytest.raises(ConfigError, match="is a directory"):
        load_gitleaks(tmp_path)


def test_rules_that_count_their_groups_are_tried_one_by_one():
    rules = (Rule("pairs", "PAIRS", r"(\d\d)([-/])\d\d\2\d\d"), *STANDARD.rules)

    assert [span.label for span in RuleSet("own", rules).find("code 12/34/56 and 12/34-56")] == ["PAIRS"]


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"(?s)\d{3}.\d{4}", "code 123-1234"),
        ("(?x) \\d{3}-  # the first\n \\d{4}-\\d{3}  # (and last", "code 123-1234-123"),
        (rf"{LEFT}\d{{3}}-\d{{4}}|(?<=\$)\d{{4}}-\d{{3}}", "code $1234-123"),
        (rf"{LEFT}(?:\d{{3}}|x)[|)]?-\d{{4}}", "code 123-1234"),
    ],
)
def test_a_number_rule_with_flags_or_alternatives_is_found(pattern, text):
    own = RuleSet("own", (Rule("code", "CODE", pattern),))

    for rules in (own, STANDARD | own):
        assert [span.start for span in rules.find(text)] == [len("code ") + text.count("$")]
        assert rules.find(text) == rules.scan(text)


@pytest.mark.parametrize("before", ["", "sent.", "8592.", "see ctxguard.pii.", "at 12:30:", "v1.SG."])
def test_a_token_with_a_dot_in_it_is_found_after_dots(before):
    token = "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"

    found = STANDARD.find(before + token)

    assert [(span.start, span.label) for span in found] == [(len(before), "SECRET")]
    assert found == STANDARD.scan(before + token)
