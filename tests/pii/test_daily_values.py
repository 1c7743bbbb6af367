"""Values that people write daily: ids of large countries outside Europe, positions, user names, license plates."""

from __future__ import annotations

import pytest

from ctxguard.pii import STANDARD, country_rules

FOUND = [
    ("CPF 529.982.247-25", "BR_CPF", "529.982.247-25"),
    ("cpf: 52998224725", "BR_CPF", "52998224725"),
    ("CURP HEGG560427MVZRRL04", "NATIONAL_ID", "HEGG560427MVZRRL04"),
    ("RFC GODE561231GR8", "TAX_ID", "GODE561231GR8"),
    ("Aadhaar 2341 2341 2346", "IN_AADHAAR", "2341 2341 2346"),
    ("My Number 1234 5678 9018", "JP_MY_NUMBER", "1234 5678 9018"),
    ("784-1980-1234567-8", "NATIONAL_ID", "784-1980-1234567-8"),
    ("Emirates ID 784198012345678", "NATIONAL_ID", "784198012345678"),
    ("GPS: 52.520008, 13.404954", "GPS", "52.520008, 13.404954"),
    ("current location -33.8675,151.2070", "GPS", "-33.8675,151.2070"),
    ("username: zora_b92", "USERNAME", "zora_b92"),
    ('{"user_name": "zora92"}', "USERNAME", "zora92"),
    ("handle @zora_b92", "USERNAME", "zora_b92"),
    ("Benutzername: zora92", "USERNAME", "zora92"),
    ("Kennzeichen B-AB 1234", "LICENSE_PLATE", "B-AB 1234"),
    ("plaque d'immatriculation AB-123-CD", "LICENSE_PLATE", "AB-123-CD"),
    ("uimhir chláraithe 191-D-12345", "LICENSE_PLATE", "191-D-12345"),
    ("pjanċa tar-reġistrazzjoni ABC 123", "LICENSE_PLATE", "ABC 123"),
]


@pytest.mark.parametrize(("text", "label", "value"), FOUND)
def test_a_value_is_found_with_its_label(text, label, value):
    found = [(span.label, text[span.start : span.end]) for span in STANDARD.find(text)]
    assert found == [(label, value)]
    assert STANDARD.find(text) == STANDARD.scan(text)


@pytest.mark.parametrize(
    "text",
    [
        "CURP HEGG560427MVZRRL05",
        "784-1980-1234567-9",
        "RFC 2616, section 4",
        "scale 52.520008, 13.404954",
        "username: admin",
        "a username SigV4 credential",
        'WaitConditionHandle": "edba290fd70976a3"',
        "username = os.environ1.x",
        "username: str1()",
    ],
)
def test_what_only_looks_like_one_stays(text):
    assert STANDARD.find(text) == ()


def test_the_new_countries_have_rule_sets_of_their_own():
    assert {rule.name for rule in country_rules("MX", "AE").rules} >= {"mx-curp", "ae-emirates-id"}
