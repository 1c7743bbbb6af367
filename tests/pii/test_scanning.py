"""Whole files: what is found is what is masked, and places are those an editor shows."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxguard.pii import SSN, STANDARD
from ctxguard.pii.scanning import Place, mask_file_text, scan_file_text

MAIL = "jane.doe@corp-mail.net"
PIECES = st.sampled_from(
    [MAIL, "+46 73 512 88 40", "4111 1111 1111 1111", "order 24813", "ä\u2028\t", '"', "{", "\n", ": "]
)
TEXTS = st.lists(PIECES, max_size=8).map(" ".join)
VALUES = st.recursive(
    TEXTS | st.integers() | st.none() | st.just(4111111111111111),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
RECORDS = VALUES.map(lambda value: json.dumps([value]))
DOCUMENTS = RECORDS | st.lists(RECORDS, min_size=2).map("\n".join)


def test_places_are_lines_and_columns():
    text = f"Hi\nI am {MAIL}, or\n{MAIL}"
    assert scan_file_text(text, STANDARD) == [Place(2, 6, "EMAIL"), Place(3, 1, "EMAIL")]
    assert scan_file_text("order 24813\n", STANDARD) == []


def test_json_is_searched_in_its_strings_after_its_keys_and_behind_escapes():
    text = '{"a": "x \\u006aane@corp-mail.net",\n "ssn": "078-05-1120", "card": 4111111111111111}'
    assert scan_file_text(text, STANDARD) == [
        Place(1, 10, "EMAIL", "the field `a` of the record"),
        Place(2, 10, "SSN", "the field `ssn` of the record"),
        Place(2, 32, "CREDIT_CARD", "the field `card` of the record"),
    ]


def test_each_line_of_jsonl_is_a_document_of_its_own():
    text = f'{{"to": "{MAIL}"}}\n\n{{"nested": "{{\\"to\\": \\"{MAIL}\\"}}"}}\n'
    assert [place.line for place in scan_file_text(text, STANDARD)] == [1, 3]
    masked = mask_file_text(text, STANDARD, strategy="pseudonymize")
    first, empty, second, end = masked.split("\n")
    assert (json.loads(first)["to"], empty, end) == ("<EMAIL_1>", "", "")
    assert json.loads(json.loads(second)["nested"]) == {"to": "<EMAIL_1>"}


def test_several_rule_sets_search_together():
    text = "000-12-3456 and 5 5"
    assert scan_file_text(text, STANDARD) == []
    assert [place.label for place in scan_file_text(text, [STANDARD, SSN])] == ["SSN"]


@given(TEXTS | DOCUMENTS)
def test_masking_leaves_nothing_to_be_found_and_changes_only_what_was_found(text):
    masked = mask_file_text(text, STANDARD)
    assert scan_file_text(masked, STANDARD) == []
    assert mask_file_text(masked, STANDARD) == masked
    assert bool(scan_file_text(text, STANDARD)) == (masked != text)


@given(DOCUMENTS)
def test_masked_json_parses(text):
    for before, after in zip(text.split("\n"), mask_file_text(text, STANDARD).split("\n"), strict=True):
        assert len(json.loads(before)) == len(json.loads(after)) == 1


@given(TEXTS)
def test_places_lie_in_the_text(text):
    lines = text.split("\n")
    for place in scan_file_text(text, STANDARD):
        assert 1 <= place.column <= len(lines[place.line - 1])


@pytest.mark.parametrize("strategy", ["redact", "pseudonymize", "partial"])
def test_every_strategy_hides_the_value(strategy):
    assert MAIL not in mask_file_text(f"I am {MAIL}", STANDARD, strategy=strategy)
