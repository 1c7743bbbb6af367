"""What is worked out of an expression holds in every text that it matches."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from strategies_for_text import texts

from ctxguard.pii import STANDARD
from ctxguard.pii.fold import view_of
from ctxguard.pii.literals import condition_of, forms_of, may_match, words_of
from ctxguard.pii.rules import Rule, RuleSet

RULES = [rule for rule in STANDARD.rules if rule.kind == "text"]

PASSPORTS = ("passport", "reisepass", "passeport", "pasaporte", "passaporto", "paspoort")
HARD = {name: f"{name} no.: K1234567" for name in PASSPORTS} | {"driver-license": "driving licence is D1234567"}
"""What Hypothesis draws nothing for, because of what must not follow in the middle."""


def holds(pattern, text):
    return may_match(condition_of(pattern), forms_of(text.encode("latin-1", "replace")))


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        ("(?i)Secret[=:]", {b"secret=", b"secret:"}),
        (r"\d{3}-\d{2}", {b"000-00"}),
        ("[A-Z]{2}[0-9]{2}", {b"AA00"}),
        ("(?:[0-9a-f]{2}:){2}[0-9a-f]{2}", {b"hh:hh:hh"}),
        ("a+bc{2,}d", {b"abcc"}),
        ("x?(?:left|right)z*", {b"left", b"right"}),
        (r"(?<=key )\w+(?=.*!!)(?!zzz)", {b"key "}),
        (r"(?>ab)(?P<n>c)(?P=n)d", {b"abc"}),
        (".*", {b""}),
        ("[^a]|b", {b""}),
        ("ü?ß", {b""}),
    ],
)
def test_the_best_literals_are_found(pattern, literals):
    assert {*condition_of(pattern)[1]} == literals


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.name not in HARD], ids=lambda rule: rule.name)
@settings(max_examples=3, suppress_health_check=list(HealthCheck))
@given(data=st.data(), before=st.sampled_from(["", " ", "x = "]), after=st.sampled_from(["", " ", "\n"]))
def test_a_text_that_a_rule_matches_is_never_passed_over(rule, data, before, after):
    text = view_of(before + data.draw(st.from_regex(rule.pattern)) + after).text
    assume(re.search(rule.pattern, text))
    assert holds(rule.pattern, text)


@pytest.mark.parametrize("name", HARD)
def test_a_text_that_a_hard_rule_matches_is_never_passed_over(name):
    pattern = next(rule.pattern for rule in RULES if rule.name == name)
    assert re.search(pattern, HARD[name])
    assert holds(pattern, HARD[name])


@given(text=texts)
def test_no_rule_that_matches_is_passed_over(text):
    text = view_of(text).text
    for rule in RULES:
        if re.search(rule.pattern, text):
            assert holds(rule.pattern, text), rule.name


@given(text=st.text("abAB01_-h:.@\u0130\u0131\u017f\u212a\u0663é", max_size=12), data=st.data())
def test_any_expression(text, data):
    atoms = st.sampled_from(
        ["a", "B", "[ab]", "[0-9]", r"\d", "[A-Z]", "[0-9a-f]", "k", "s", "i", ".", "_", "-", "é", r"\w"]
    )
    repeated = st.builds("{}{}".format, atoms, st.sampled_from(["", "", "?", "*", "+", "{2}", "{1,3}", "{2,}"]))
    groups = st.lists(repeated, min_size=1, max_size=4).map("".join)
    either = st.lists(groups, min_size=1, max_size=3).map(lambda all_: f"(?:{'|'.join(all_)})")
    pattern = data.draw(st.sampled_from(["", "(?i)"])) + data.draw(
        st.lists(st.one_of(groups, either, either.map("{}+".format), either.map("(?={})".format)), max_size=4).map(
            "".join
        )
    )
    text = view_of(text).text
    if re.search(pattern, text):
        assert holds(pattern, text), pattern


@pytest.mark.parametrize(
    "text",
    [
        "paſſword: hunter2xyz9",
        "DRİVER LICENSE: D1234567",
        "drıvıng lıcense: D1234567",
        "api \u212aey = abcd1234efgh5678ijkl",
    ],
)
def test_letters_that_stand_for_those_of_ascii_hide_nothing(text):
    assert STANDARD.find(text) == STANDARD.scan(text) != ()


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"(?<![a-z])(?:dob)(?![a-z])|born|geburt|né\b|出生", {"dob", "born", "geburt"}),
        (r"\A(?>[\s\S]*\d)?+\D*?(?:call(?: me)?(?: at| on)|t[eé]l|phones?)\D{0,9}\Z", {"call", "phone", "t"}),
        (r"ipv[46]|\d+", set()),
        ("号码|電話", set()),
    ],
)
def test_the_words_of_an_ascii_text_are_found(pattern, words):
    assert words_of(pattern) == words


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_context_of_a_long_text_is_passed_over(data):
    rule = data.draw(st.sampled_from([rule for rule in STANDARD.rules if rule.kind == "number" and rule.needs_context]))
    words = data.draw(st.from_regex(rule.context))
    text = f"{words} 4111-1111 1 {data.draw(texts)} "
    padded = text + "x " * 2_500
    assert STANDARD.find(padded) == STANDARD.scan(padded)


def test_every_digit_is_read_as_one_of_ascii():
    digits = [chr(code) for code in range(0x110000) if chr(code).isdecimal()]
    assert [view_of(digit).text for digit in digits] == [str(int(digit)) for digit in digits]
    assert view_of("".join(digits) + "\U0001f600").text == "".join(str(int(digit)) for digit in digits) + "\U0001f600"


def test_a_rule_of_a_user_is_looked_for_everywhere():
    rule = Rule(name="badge", label="BADGE", pattern=r"(?i)b[a-z]+-\d+", anchor="b")
    assert RuleSet("BADGES", (rule,)).scan("see BADGE-17") == RuleSet("BADGES", (rule,)).find("see BADGE-17") != ()
