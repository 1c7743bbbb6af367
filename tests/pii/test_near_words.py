"""Where findings depend on words, only the text after these words is searched, and nothing is missed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxguard.pii import STANDARD
from ctxguard.pii.detect.expressions import is_beyond_ascii
from ctxguard.pii.detect.match import Matcher, engine_of
from ctxguard.pii.detect.normalize import PlainText
from ctxguard.pii.detect.tables import NearbyText, merged

WORDS = (
    "user", "login=", "username: ", "@", "born", "date of birth", "geboren am", "narozen", "née le", "číslo pasu", "№ ",
    "passport no.", "reisepass", "driver license", "license plate", "kennzeichen", "VIN", "pin: ", "cvv", "pass ",
    "şifre", "пароль: ", "tax id", "steuer-id", "konto", "account no", "id card", "gps", "rfc", "pps no", "for ",
)  # fmt: skip
VALUES = (
    "jdoe42", "j.doe-42", "12 May 1980", "May 12, 1980", "12. května 1980", "K1234567", "D1234567", "B-MW 1234",
    "WVWZZZ1JZ3W386752", "1234", "123", "Som!mer2024!", "12345678901", "1EG4-TE5-MK73", "41.40338, 2.17403",
    "1234567T", "VECJ880326XXX", "abc", "1999", "2024-01-02",
)  # fmt: skip
JOINTS = (
    " ",
    "\n",
    ": ",
    "=",
    ",",
    "\t",
    " | ",
    ";",
    "  ",
    "\n\n",
    '"',
    '": "',
    '\\": \\"',
    "</b>",
    ", ",
    " and ",
    ". ",
)
pieces = st.one_of(st.sampled_from(WORDS), st.sampled_from(VALUES), st.sampled_from(JOINTS), st.just("x" * 45))
texts = st.lists(pieces, max_size=24).map("".join)


def tables(separator):
    cells = st.one_of(st.sampled_from(WORDS), st.sampled_from(VALUES)).filter(lambda cell: separator not in cell)
    rows = st.integers(2, 3).flatmap(lambda size: st.lists(st.lists(cells, min_size=size, max_size=size), min_size=2))
    return rows.map(lambda listed: "\n".join(separator.join(row) for row in listed))


some_tables = st.sampled_from([",", "\t", "|", ";", "  "]).flatmap(tables)


@given(text=st.one_of(texts, st.lists(st.one_of(texts, some_tables), max_size=3).map("\n".join)))
def test_nothing_is_missed_near_words(text):
    engine = engine_of(STANDARD.rules, frozenset(), ())
    assert engine._search(text, engine._candidates) == engine.scan(text)


NEAR = [one for one in map(Matcher, STANDARD.rules, range(len(STANDARD.rules))) if one.is_near_words]


@pytest.mark.parametrize("matcher", NEAR, ids=lambda matcher: matcher.rule.name)
@given(text=texts, data=st.data())
def test_in_its_windows_an_expression_matches_as_in_the_whole_text(matcher, text, data):
    edges = st.tuples(st.integers(0, len(text)), st.integers(0, len(text))).map(sorted)
    windows = merged(map(tuple, data.draw(st.lists(edges, max_size=3))))
    everywhere = [*matcher.everywhere(text)]
    wanted = [one for one in everywhere if any(begin <= one[0] <= end for begin, end in windows)]
    found = [*matcher.places(PlainText(text), windows)]
    assert {*wanted} <= {*found} <= {*everywhere}


@pytest.mark.parametrize(
    "name", ["user-key", "birth-date-in-words", "user-name", "national-id-labeled-1", "license-plate"]
)
def test_the_rules_that_took_most_time_are_searched_for_only_near_their_words(name):
    assert name in {matcher.rule.name for matcher in NEAR}


@pytest.mark.parametrize(
    ("pattern", "is_beyond"),
    [
        ("aé", True),
        ("(?:é|[à-ü]{2})x", True),
        ("(?>(?P<value>a*é+))", True),
        ("é|e", False),
        ("é?a", False),
        ("[eé]", False),
        ("(?=é)a*.", False),
        ("(?i)ſ", False),
        ("(?i:ſ)", False),
        ("[^a]", False),
    ],
)
def test_whether_each_match_has_a_character_beyond_ascii(pattern, is_beyond):
    assert is_beyond_ascii(pattern) == is_beyond


@given(data=st.data(), pattern=st.sampled_from(["[aé]{1,3}é", "(?:é|[à-ü]a){1,2}", "x(?>é|ü)y?"]))
def test_a_match_of_such_an_expression_is_no_ascii_text(pattern, data):
    assert is_beyond_ascii(pattern)
    assert not data.draw(st.from_regex(pattern, fullmatch=True)).isascii()


@given(text=st.one_of(texts, some_tables), data=st.data())
def test_each_table_with_an_offset_is_a_block(text, data):
    offset = data.draw(st.integers(0, len(text)))
    context = NearbyText(text)
    blocks = [*context.blocks([offset])]
    if context.headings_at(offset):
        assert any(begin <= offset <= end for begin, end in blocks)
