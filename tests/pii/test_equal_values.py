"""A placeholder, a hash, and an erasure mean one value: two values are equal only where their label says so."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxguard.pii import PEOPLE, STANDARD, Masker, Rule, RuleSet, Span, Vault, new_key
from ctxguard.pii.own_rules import _fields
from ctxguard.pii.rule_sets import LABELS
from ctxguard.stores import MemoryStore

COMPACT = {
    "CREDIT_CARD": ("4111 1111 1111 1111", "4111-1111-1111-1111", "4111111111111111"),
    "IBAN": ("DE89 3704 0044 0532 0130 00", "DE89370400440532013000", "de89 3704 0044 0532 0130 00"),
    "PHONE": ("(212) 736-5000", "212.736.5000", "2127365000"),
    "SSN": ("536-22-8741", "536 22 8741"),
    "MAC": ("3c:22:fb:91:a0:7e", "3C-22-FB-91-A0-7E"),
    "IP": ("2001:DB8::1", "2001:db8::1"),
    "EMAIL": ("jane@SITE.org", "jane@site.org"),
    "PERSON": ("Jane Roe", "Jane\nRoe"),
}
"""Spellings of one value, by label."""
DIFFERENT = (
    ("john_doe1", "john-doe1"),
    ("john.doe_1", "john_doe.1"),
    ("JDoe77", "jdoe77"),
    ("a-1/23", "a-12/3"),
    ("x.y1", "xy.1"),
    ("12.3456, 7.8901", "1.2345, 67.8901"),
    ("weiß7", "weiss7"),
    ("HH-A 1234", "H-HA 1234"),
    ("\u0130x1", "i\u0307x1"),
    ("\ufb01x1", "fix1"),
    ("C\\_1", "C_1"),
    ("a%41b", "aAb"),
)
FREE = sorted(LABELS - {"UNCHECKED"} - COMPACT.keys())


def whole(label):
    """Return a detector that finds the text in brackets."""

    def find(text):
        return [Span(*match.span(1), label) for match in re.finditer(r"«(.*?)»", text, re.DOTALL)]

    find.labels = {label}
    return find


def are_one(label, one, other):
    """Return whether two values share a placeholder, after checking that hash, vault, and erasure say the same."""
    vaults = Vault(MemoryStore(), key=new_key())
    maskers = [
        Masker(whole(label), strategy="pseudonymize"),
        Masker(whole(label), strategy="pseudonymize", vault=vaults.session("s")),
        Masker(whole(label), strategy="hash", key="k" * 16),
    ]
    said = set()
    for masker in maskers:
        session = masker.session()
        said.add(session.text(f"«{one}»") == session.text(f"«{other}»"))
    said.add(vaults.forget("s", one) == 1 and not vaults.forget("s", other))
    assert len(said) == 1, (label, one, other)
    return said.pop()


@pytest.mark.parametrize(("label", "spellings"), COMPACT.items(), ids=COMPACT)
def test_spellings_of_one_value_share_everything(label, spellings):
    for other in spellings[1:]:
        assert are_one(label, spellings[0], other)


# Labels whose values may have any signs; the others are numbers in a form of their own.
@pytest.mark.parametrize(
    "label", ["USERNAME", "GPS", "LICENSE_PLATE", "PASSPORT", "ADDRESS", "DATE_OF_BIRTH", "CUSTOMER"]
)
@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_values_that_differ_share_nothing(label, one, other):
    assert not are_one(label, one, other)


@pytest.mark.parametrize(
    ("label", "one", "other"),
    [
        ("EMAIL", "weiß@firma.example", "weiss@firma.example"),
        ("EMAIL", "JDoe@firma.example", "jdoe@firma.example"),
        ("EMAIL", "j.doe@firma.example", "jd.oe@firma.example"),
        ("EMAIL", "j-doe@firma.example", "j_doe@firma.example"),
        ("PERSON", "Jane Weiß", "Jane Weiss"),
        ("PERSON", "Ann MacDonald", "Ann Macdonald"),
        ("PERSON", "Anne-Marie Roe", "Anne Marie Roe"),
        ("IP", "fe80::1%eth0", "fe80::1%ETH0"),
        ("CREDIT_CARD", "4111111111111111", "-4111111111111111"),
        ("PHONE", "+49 30 123456", "49 30 123456"),
        ("PHONE", "030 1234 #56", "030 1234 56"),
        ("NATIONAL_ID", "640823-3234", "640823+3234"),
        ("NATIONAL_ID", "131052-308T", "131052A308T"),
        ("DE_TAX_NUMBER", "12/345/67890", "123/45/67890"),
    ],
)
def test_labels_with_a_definition_join_no_more_than_it_says(label, one, other):
    assert not are_one(label, one, other)


signs = st.text(alphabet="ab1AB2ßsſİiıﬁ._-+/ ", min_size=1, max_size=8).map(lambda text: f"x{text}9")


@pytest.mark.parametrize("label", [*FREE[:: len(FREE) // 6], "CUSTOMER"])
@given(signs, signs)
def test_any_two_texts_of_a_free_label_are_two_values(label, one, other):
    session = Masker(whole(label), strategy="pseudonymize").session()
    texts = [f"«{one}»", f"«{other}»"]
    masked = [session.text(text) for text in texts]
    if label not in COMPACT and not is_compact(label):
        assert (masked[0] == masked[1]) is (one == other)
        assert [session.unmask(text) for text in masked] == texts


def is_compact(label):
    session = Masker(whole(label), strategy="pseudonymize").session()
    return session.text("«ab 12»") == session.text("«ab-12»")


def test_only_numbers_that_a_state_or_a_bank_defines_have_separators_without_meaning():
    free = {"USERNAME", "PASSWORD", "SECRET", "GPS", "LICENSE_PLATE", "PASSPORT", "DRIVER_LICENSE", "BANK_ACCOUNT"}
    free |= {"NATIONAL_ID", "MEDICAL_ID", "COMPANY_ID", "TAX_ID", "DE_TAX_NUMBER", "DATE_OF_BIRTH", "CRYPTO", "PIN"}
    free |= {"URL_CREDENTIALS", "PRIVATE_KEY", "ADDRESS", "CARD_CODE", "NUMBER", "PERSON", "EMAIL", "IP"}
    assert not [label for label in free & LABELS if is_compact(label)]


@pytest.mark.parametrize(
    ("rules", "one", "other"),
    [
        (RuleSet("c", (Rule("customer", "CUSTOMER", r"\bC-\d{1,4}-\d{1,4}\b"),)), "see C-1-23", "see C-12-3"),
        (RuleSet("f", tuple(_fields({"no": "CUSTOMER"}))), "no: A-1/23", "no: A-12/3"),
        (RuleSet("f", tuple(_fields({"no": "CUSTOMER"}))), '{"no": "x.y1"}', '{"no": "xy.1"}'),
        (PEOPLE, "I am Jane Weiß.", "I am Jane Weiss."),
    ],
)
def test_own_rules_fields_and_names_tell_values_apart(rules, one, other):
    session = Masker(STANDARD | rules, strategy="pseudonymize").session()
    masked = [session.text(one), session.text(other)]
    assert masked[0] != masked[1]
    assert [session.unmask(text) for text in masked] == [one, other]
