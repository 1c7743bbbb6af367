"""What is read of a rule from `data/derived.json` is what its expressions say."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from derived import PROPERTIES, RULES, derived_anew, lines

from ctxguard.pii.detect import prefilter
from ctxguard.pii.detect.match import Matcher

SECRET = next(rule for rule in RULES if rule.context and rule.validate is not None)


def test_the_file_is_what_would_be_written():
    assert prefilter.FILE.read_text("utf-8").removeprefix("{\n").removesuffix("\n}\n").split(",\n") == [*lines()], (
        'a rule or a word was changed: run "make derived"'
    )


def test_what_is_read_is_what_is_derived():
    for rule in RULES:
        read = prefilter.derived(rule)
        assert read.keys() == {*PROPERTIES}, rule.name
        assert read == derived_anew(rule), rule.name


@pytest.mark.parametrize(
    "changes",
    [{"name": "mine"}, {"pattern": "A{3}"}, {"context": "zzz"}, {"behind": "zzz"}, {"tail": "z"}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_rule_that_differs_is_derived_anew(changes):
    rule = replace(SECRET, **changes)
    assert prefilter.derived(rule) == {}
    assert {name: getattr(Matcher(rule, 0), name) for name in PROPERTIES} == derived_anew(rule)


def test_without_the_file_all_is_derived(tmp_path, monkeypatch):
    (tmp_path / "derived.json").write_text("{}", "utf-8")
    monkeypatch.setattr(prefilter, "FILE", tmp_path / "derived.json")
    prefilter._stored.cache_clear()
    try:
        assert {name: getattr(Matcher(SECRET, 0), name) for name in PROPERTIES} == derived_anew(SECRET)
    finally:
        prefilter._stored.cache_clear()


def test_no_two_rules_have_one_line():
    assert len(json.loads(prefilter.FILE.read_text("utf-8"))) == len(RULES)
