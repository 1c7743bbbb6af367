"""Spellings of personal data that a plain expression misses, and what stands close to them and is none."""

import pytest

from ctxguard.pii import STANDARD, mask_pii

CASES = [
    ("IBAN", "de89 3704 0044 0532 0130 00", "to {} today"),
    ("IBAN", "de89370400440532013000", "iban={}&bic=x"),
    ("IBAN", "gb29 NWBK 6016 1331 9268 19", "{}"),
    ("IBAN", "NL91 abna 0417 1643 00", "pay {}, thanks"),
    ("IBAN", "es91 2100 0418 4502 0005 1332", "my iban is {} from then on"),
    ("EMAIL", '"jane doe"@example.org', "To: {}, cc none"),
    ("EMAIL", '"jane.o\'neil (home)"@mail.example.org', 'say "hi" to {}.'),
    ("EMAIL", '\\"jane doe\\"@example.org', 'mail {} "now"'),
    ("CREDIT_CARD", "4111111111111111", "order {} please"),
    ("CREDIT_CARD", "5105105105105100", "Payment {}."),
    ("CN_ID", "712913198001015092", "身份证 {}"),
    ("CREDIT_CARD", "4111 1111\n1111 1111", "paid with\n{}\nyesterday"),
    ("CREDIT_CARD", "4111 1111\n1111 1111", "seats 123  {}"),
    ("CREDIT_CARD", "4111\r\n1111 1111 1111", "{}"),
    ("CREDIT_CARD", "4111-1111-1111-\n1111", "card {}."),
    ("CREDIT_CARD", "5105 1051 0510\n  5100", "{} ok"),
]


@pytest.mark.parametrize(("label", "value", "around"), CASES)
def test_the_whole_value_is_found_on_both_paths(label, value, around):
    text = around.format(value)
    found = STANDARD.find(text)
    assert [(span.label, text[span.start : span.end]) for span in found] == [(label, value)]
    assert STANDARD.scan(text) == found
    assert mask_pii(text, STANDARD) == around.format(f"[REDACTED_{label}]")


QUIET = [
    "de89 3704 0044 0532 0130 01",
    "fe12 abcd 1234 5678 9abc def0",
    "be71 that with your room",
    "xx31 3704 0044 0532 0130 00",
    '"chat"@en . "hi" @example.org',
    '<"label"@en.>',
    "4111 1111\n\n1111 1111",
    "4111 1111\n1111 1112",
    "4111\n1111\n1111\n1111",
    "1999 4111 1111\n1111 1111 2020",
    "seats 1234  4111 1111\n1111 1111",
    "4000 1200\n4111 1111\n1111 1111",
    "x4111 1111\n1111 1111",
    "6304 0000\n0000 0000",
    "order 4111111111111112 please",
    "order 9111111111111111 please",
    "order 6304000000000000 please",
    "order id 4111111111111111",
    "order #4111111111111111",
    '"order": 4111111111111111',
    "commit 4111111111111111",
]


@pytest.mark.parametrize("text", QUIET)
def test_what_stands_close_to_them_is_left_alone(text):
    assert STANDARD.find(text) == STANDARD.scan(text) == ()


@pytest.mark.parametrize("first", ["ES91 2100 0418 4502 0005 1332", "es91 2100 0418 4502 0005 1332"])
@pytest.mark.parametrize("between", [" ", " to ", "\n"])
def test_one_iban_does_not_hide_the_next(first, between):
    text = f"{first}{between}DE89 3704 0044 0532 0130 00 x"
    assert [span.label for span in STANDARD.find(text)] == ["IBAN", "IBAN"]
    assert STANDARD.find(text) == STANDARD.scan(text)
