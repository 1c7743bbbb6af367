"""What is worked out of an expression holds in every text that it matches."""

from __future__ import annotations

import re
from functools import cache

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from strategies_for_text import texts

from ctxguard.pii import STANDARD, Rule, RuleSet
from ctxguard.pii.detect.expressions import is_number, runs_on
from ctxguard.pii.detect.normalize import PlainText, view_of, views_of
from ctxguard.pii.detect.prefilter import WORDS, Prefilter, anchor_of
from ctxguard.pii.rules.files import RuleFile

RULES = [rule for rule in STANDARD.rules if not is_number(rule.pattern)]

TOKEN = RuleFile("credentials").filled("{TOKEN}|||{TOKEN_END}").split("|||")
HARD = {
    "passport": "passport no.: K1234567",
    "driver-license": "driving licence is D1234567",
    "vin-labeled": "VIN WVWZZZ1JZ3W386752",
    **{
        f"password-{name}-quoted": rf"{word}\": \"Som!mer2024!\""
        for name, word in {
            "passw": "password",
            "pwd": "pwd",
            "pass": "db-pass",
            "romance": "senha",
            "germanic": "kennwort",
            "slavic": "heslo",
            "uralic": "salasana",
            "parola": "parola",
            "scripts": "парола",
        }.items()
    },
}
"""What Hypothesis draws nothing for, because of what must not follow in the middle."""


def holds(pattern, text, forms=None):
    """Tell whether a text holds the anchor of an expression; a plain search for its literals says the same."""
    anchor = anchor_of(pattern) if forms is None else anchor_of(pattern, forms=forms)
    found = bool(Prefilter([anchor]).open(PlainText(text)))
    assert found == is_held(anchor, text)
    return found


def is_held(anchor, text):
    """Tell, with one expression for each literal, whether a text holds an anchor."""
    view = PlainText(text)
    if anchor.form.is_latin and view.beyond_latin and (not anchor.beyond or anchor.beyond & view.beyond_latin.keys()):
        return True
    form, plain = view.form(anchor.form.table), view.plain.decode("latin-1")
    for literal in anchor.literals:
        word = literal.strip("\x00")
        for found in re.finditer(f"(?={re.escape(word)})", form):
            before, after = plain[: found.start()][-1:], plain[found.start() + len(word) :][:1]
            left = literal[:1] != "\x00" or not re.match("[A-Za-z]", before)
            if left and (literal[-1:] != "\x00" or not re.match("[A-Za-z]", after)):
                return True
    return False


def is_tried(pattern, text):
    """Tell whether each match in a text begins where the anchor says that one may."""
    anchor = anchor_of(pattern)
    starts = {match.start() for match in re.finditer(pattern, text)}
    return anchor.most is None or starts <= {*anchor.searcher()(PlainText(text))}


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        ("(?i)Secret[=:]", {"secret=", "secret:"}),
        (r"\d{3}-\d{2}", {"000-00"}),
        ("[A-Z]{2}[0-9]{2}", {"AA00"}),
        ("(?:[0-9a-f]{2}:){2}[0-9a-f]{2}", {"hh:hh:hh"}),
        ("a+bc{2,}d", {"abcc"}),
        ("x?(?:left|right)z*", {"left", "right"}),
        ("(?:live|test)(?:_pub)?_", {"live-", "test-"}),
        (r"(?<=key )\w+(?=.*!!)(?!zzz)", {"key-"}),
        (r"(?>ab)(?P<n>c)(?P=n)d", {"abc"}),
        (".*", {""}),
        ("[^a]|b", {""}),
        ("ü?ß", {""}),
    ],
)
def test_the_best_literals_are_found(pattern, literals):
    assert {*anchor_of(pattern).literals} == literals


@pytest.mark.slow
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.name not in HARD], ids=lambda rule: rule.name)
@settings(max_examples=3, suppress_health_check=list(HealthCheck))
@given(data=st.data(), before=st.sampled_from(["", " ", "x = "]), after=st.sampled_from(["", " ", "\n"]))
def test_a_text_that_a_rule_matches_is_never_passed_over(rule, data, before, after):
    # the edges of a token are looked around for, which Hypothesis draws hardly anything for
    is_token = rule.pattern.startswith(TOKEN[0])
    drawn = rule.pattern.removeprefix(TOKEN[0]).removesuffix(TOKEN[1]) if is_token else rule.pattern
    text = view_of(before + data.draw(st.from_regex(drawn)) + after).text
    assume(re.search(rule.pattern, text))
    assert holds(rule.pattern, text)
    assert is_tried(rule.pattern, text)


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
            assert is_tried(rule.pattern, text), rule.name


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
        assert is_tried(pattern, text), pattern


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
        (r"(?<![a-z])(?:dob)(?![a-z])|born|geburt|né\b|出生", {"\x00dob\x00", "born", "geburt", "né"}),
        (
            r"\A(?>[\s\S]*\d)?+\D*?(?:call(?: me)?(?: at| on)|t[eé]l|phones?)\D{0,9}\Z",
            {"call-at", "call-on", "call-me-at", "call-me-on", "phone", "tel", "tél"},
        ),
        (r"ipv[46]|\D+", set()),
        ("号码|電話", set()),
    ],
)
def test_the_words_of_a_latin_text_are_found(pattern, words):
    assert {*anchor_of(pattern, forms=(WORDS,)).literals} == (words or {""})


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_context_of_a_long_text_is_passed_over(data):
    rule = data.draw(st.sampled_from([rule for rule in STANDARD.rules if is_number(rule.pattern) and rule.context]))
    words = data.draw(st.from_regex(rule.context))
    text = f"{words} 4111-1111 1 {data.draw(texts)} "
    padded = text + "x " * 2_500
    assert STANDARD.find(padded) == STANDARD.scan(padded)


def test_every_digit_is_read_as_one_of_ascii():
    digits = [chr(code) for code in range(0x110000) if chr(code).isdecimal()]
    assert [view_of(digit).text for digit in digits] == [str(int(digit)) for digit in digits]
    assert view_of("".join(digits) + "\U0001f600").text == "".join(str(int(digit)) for digit in digits) + "\U0001f600"


@cache
def anchors():
    return {rule.name: anchor_of(rule.pattern) for rule in RULES}


@pytest.mark.parametrize("char", ["a", "A", "7", "x"])
def test_a_long_run_of_one_letter_is_looked_at_once(char):
    places = {
        name: sum(1 for _ in anchor.searcher()(PlainText(char * 20_000)))
        for name, anchor in anchors().items()
        if anchor.most is not None and ord(char) in anchor.bound
    }
    assert {name: count for name, count in places.items() if count > 300} == {}


def test_a_rule_of_a_user_is_looked_for_everywhere():
    rule = Rule(name="badge", label="BADGE", pattern=r"(?i)b[a-z]+-\d+")
    assert RuleSet("BADGES", (rule,)).scan("see BADGE-17") == RuleSet("BADGES", (rule,)).find("see BADGE-17") != ()


@pytest.mark.parametrize(
    "pattern", [r"\d{3}-\d{2}-\d{4}", r"(?<![A-Za-z0-9_À-ÿ])\+\d{6}(?![A-Za-zÀ-ÿ])", r"(\d\d)([-/])\d\d\2\d\d"]
)
def test_numbers_are_told_by_their_expressions(pattern):
    assert is_number(pattern)


@pytest.mark.parametrize(
    "pattern",
    [r"\d{3,}", r"\d{3}", r"4\d{7}", r"\d{6}(?!5)", r"\d{6}a", r"(?<!\w)\d{6}", r"\d{6}-?", r"(?<!x)\d{6}", r"\s\d{6}"],
)
def test_what_tells_digits_or_letters_apart_is_no_number(pattern):
    assert not is_number(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["TCK-[0-9]{6}", r"\bTCK-\d{6}\b", "(?<!x)a", r"\S+@[a-z.]+", "(?=x)a", r"a\sb", r"\$5\.\^", r"\\A", "a.b"],
)
def test_expressions_that_stand_alone(pattern):
    assert runs_on(pattern) < 40


@pytest.mark.parametrize(
    "pattern",
    ["^a", "a$", r"\Aa", r"x\Z", r"(?<![^a])x", r"x(?!\s)", "[^x]+a", "(?s)a.*b", r"a\s{3,}b", r"(?:\n|x){40}"],
)
def test_expressions_that_look_beyond_their_lines(pattern):
    assert runs_on(pattern) >= 40


def test_a_rule_with_words_around_it_stands_alone():
    assert RuleSet("own", (Rule("own", "OWN", "x", quiet="not ", context=r"\Aa"),)).is_joinable
    assert not RuleSet("own", (Rule("own", "OWN", "^x"),)).is_joinable
    assert STANDARD.is_joinable


@pytest.mark.parametrize(
    ("context", "text"),
    [
        (r"t[e\u00e9]l", "tél K12345"),
        (r"t[\xe9]l", "tél K12345"),
        ("[y-ÿ]{2}", "éé K12345"),
        (r"\N{LATIN SMALL LETTER E WITH ACUTE}t", "ét K12345"),
        ('"member": "', r"{\"member\": \"K12345\"}"),
        ('"member": "', '{"member": "K12345"}'),
        (r"\\x[0-9]", r"\x7 K12345"),
        (r"\\N{2}", r"\NN K12345"),
    ],
)
def test_context_beyond_ascii_and_in_escaped_json_is_seen_however_it_is_written(context, text):
    rules = RuleSet("own", (Rule("a", "MEMBER", r"K\d{5}", context=f"(?i:{context})\\W*\\Z"),))
    assert [span.label for span in rules.find(text)] == ["MEMBER"]


@cache
def every_anchor():
    contexts = (anchor_of(rule.context, forms=(WORDS,)) for rule in STANDARD.rules if rule.context)
    return Prefilter([*anchors().values(), *contexts])


@given(
    text=st.lists(st.sampled_from([*"–—-‐?_ aé", "12", "sk", "dob", "née le ", "geb. ", "user", "0–0"])).map("".join)
)
def test_a_text_with_dashes_opens_no_rule_that_it_does_not_open_with_hyphens(text):
    for view in views_of(text):
        assert every_anchor().open(PlainText(view.text)) <= every_anchor().open(view)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(?i:sk)-key", "SK-key"),
        ("a?(?i:b)-cd", "B-cd"),
        ("[a-z]{0,3}(?i:[x-z])_AB", "abY_AB"),
        (r"(?=x)\w{3}-1", "xyz-1"),
        ("(?i)é{1,2}-abc", "É-ABC"),
        (r"(\d)\1-x", "77-x"),
        ("(?:[A-Z]|é)+_KEY", "éAé_KEY"),
        ("(?:|ab)cd-ef", "cd-ef"),
        ("[^a]b-cd", "жb-cd"),
    ],
)
def test_a_match_is_tried_whatever_it_begins_with(pattern, text):
    assert re.search(pattern, text)
    assert is_tried(pattern, f". {text}")


@given(text=st.text("abAB01_-h:. é", max_size=40))
def test_what_the_prefilter_has_located_is_where_a_search_finds_it(text):
    view, fresh = PlainText(text), PlainText(text)
    every_anchor().locate(view)
    for anchor in anchors().values():
        for literal in anchor.literals:
            places = [*view.places_of(literal, anchor.form.table)]
            assert places == [*fresh.places_of(literal, anchor.form.table)]
            assert view.count_of(literal, anchor.form.table) in (None, len(places))
