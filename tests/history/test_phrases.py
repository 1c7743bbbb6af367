"""Phrases of several languages: whole words where a language has spaces, anywhere where it has none."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_pages import ROOT
from patience import is_linear

from ctxguard.history.records import is_standing, listed, phrases_in

TABLES = tomllib.loads((ROOT / "ctxguard" / "data" / "phrases.toml").read_text(encoding="utf-8"))
SPACED = {
    (table, phrase)
    for table in TABLES.keys() - {"greetings", "abbreviations"}
    for phrase in listed(table)
    if "unspaced_" not in table
}


@pytest.mark.parametrize(
    "text", ["You must wait.", "NEVER do it", "n’oublie pas", "don’t", "je n'oublie pas.", "(never)"]
)
def test_case_apostrophes_and_signs_beside_a_phrase_do_not_matter(text):
    assert is_standing(text)


@pytest.mark.parametrize(
    "text", ["The mustard is out.", "nevermind", "un_must_x", "maintain it", "mail", "the alwaysnot"]
)
def test_a_phrase_inside_a_word_is_none(text):
    assert not is_standing(text)


@pytest.mark.parametrize("text", ["请不要修改测试文件", "テストは絶対に変えない", "테스트는 절대 바꾸지 마세요"])
def test_a_language_without_spaces_has_phrases_anywhere(text):
    assert is_standing(text)


@pytest.mark.parametrize("before", ["xyz", "İzmir", "İİİİ"])
def test_each_phrase_is_found_where_it_stands(before):
    start, lost = len(before) + 1, []
    for table, phrase in SPACED:
        text = f"{before} {phrase.upper() if phrase.isascii() else phrase}, xyz"
        if (start, start + len(phrase), table) not in set(phrases_in(text, table)):
            lost.append((table, phrase))
    assert not lost


def test_the_file_holds_phrases_as_they_are_compared():
    for table, languages in TABLES.items():
        for phrase in listed(table):
            assert phrase == phrase.lower().replace("’", "'").strip(), (table, phrase)
        assert languages
        named = table.removeprefix("unspaced_")
        assert table == named or named in TABLES


def naive(text: str, table: str) -> set[tuple[int, int]]:
    """Return the places of the phrases of a table, found by looking at each place."""
    folded = "".join("'" if sign == "’" else sign.lower()[0] for sign in text)
    beside = [True, *(not (sign.isalnum() or sign == "_") for sign in folded), True]
    found = set()
    for name in (table, f"unspaced_{table}"):
        for phrase in listed(name) if name in TABLES else ():
            for start in range(len(folded) - len(phrase) + 1):
                end = start + len(phrase)
                if folded.startswith(phrase, start) and (name != table or (beside[start] and beside[end + 1])):
                    found.add((start, end))
    return found


PIECES = st.sampled_from([*listed("standing"), *listed("unspaced_standing"), " ", ".", "_", "’", "e", "ß", "1", "İ"])


@given(st.lists(st.one_of(PIECES, st.text(max_size=3)), max_size=8).map("".join))
def test_phrases_are_those_that_a_look_at_each_place_finds(text):
    found = list(phrases_in(text, "standing"))
    assert {(phrase.start, phrase.end) for phrase in found} == naive(text, "standing")
    assert [phrase.end for phrase in found] == sorted(phrase.end for phrase in found)


@pytest.mark.parametrize("sign", ["never ", "n", "不要", "must not ", "İ"])
def test_the_search_takes_linear_time(sign):
    assert is_linear(lambda count: sum(1 for _ in phrases_in(sign * count)), 20_000)
