"""The invented sessions of `benchmarks/invented.py`: the same every time, and judged without mercy or malice."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from ctxguard import Stabilizer
from ctxguard.checks import CallsArePaired
from ctxguard.harness import parse_session
from ctxguard.harness.checking import check_session


@pytest.fixture
def invented(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("invented")


def test_sixty_sessions_in_eight_languages_are_the_same_every_time_and_all_different(invented):
    first, again = ([invented.session(seed) for seed in range(60)] for _ in range(2))
    assert first == again
    assert len({repr(messages) for messages, _ in first}) == 60
    languages = [invented.language_of(seed) for seed in range(60)]
    assert languages.count("en") == 32
    assert {languages.count(name) for name in invented.OTHERS} == {4}
    for messages, facts in first:
        assert list(check_session(parse_session(messages))) == [], CallsArePaired.name
        assert {fact.kind for fact in facts} == set(invented.KINDS)


def test_the_whole_history_holds_everything_and_the_newest_messages_do_not(invented):
    for seed in range(0, 60, 7):
        messages, facts = invented.session(seed)
        texts = [str(message["content"]) for message in messages]
        said = invented.holding(facts, len(messages))
        assert len(said) == len(facts) - 2, "two decisions were reversed"
        assert all(invented.is_held(fact, texts) for fact in said)
        assert not any(invented.is_held(fact, texts[-10:]) for fact in said)


def test_a_reversal_is_held_only_where_the_old_value_does_not_stand_behind_it(invented):
    fact = invented.Fact("reversal", 3, "kiln", "felt washers", "oak pegs")
    old, new = "the kiln gets oak pegs", "the kiln gets felt washers after all, not oak pegs"
    assert invented.is_held(fact, [old, new])
    assert not invented.is_held(fact, [new, old])
    assert not invented.is_held(fact, [old])
    assert not invented.is_held(fact, ["the kiln." + " " * 200 + "felt washers"])


def test_the_default_window_is_judged_at_its_first_second_and_fourth_cut(invented):
    messages, facts = invented.session(2)
    texts, cuts = invented.own_contexts(messages, Stabilizer(4_000, counter="estimate"))
    assert {1, 2, 4} <= cuts.keys()
    assert list(texts) == invented.ends_of(messages)
    found = [
        ("ours", n, 2, "en", f, invented.is_held(f, texts[cuts[n]]))
        for n in (1, 2)
        for f in invented.holding(facts, cuts[n])
    ]
    row = invented.figures(found)["ours"]
    assert set(row) >= {"all after 1", "all after 2", *invented.KINDS}
    assert all(0 <= row[kind] <= 1 for kind in invented.KINDS)
