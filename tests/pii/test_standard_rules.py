"""What the standard set finds, and what it leaves alone."""

import re
from dataclasses import replace

import pytest

from ctxguard.errors import ConfigError
from ctxguard.pii import DIGITS, SSN, STANDARD, country_rules, mask_pii
from ctxguard.pii.detect.validate import international_phone


def found(text):
    return [(span.label, text[span.start : span.end]) for span in STANDARD.find(text)]


SHA256_TOKEN = "sha256~N8dSZKodozX39rfBzKYi1AaRJNhU7IJBfwCLpYyJP8l"
FINDS = [
    ("write to jane.doe+news@mail.example.org.", "EMAIL", "jane.doe+news@mail.example.org"),
    ("'jörg@müller.de'", "EMAIL", "jörg@müller.de"),
    ("(anna@post.at)", "EMAIL", "anna@post.at"),
    ("...max@site.io", "EMAIL", "max@site.io"),
    ("Call +49 30 901820 today", "PHONE", "+49 30 901820"),
    ("reach me at (212) 736-5000 x12", "PHONE", "(212) 736-5000 x12"),
    ("office 020 7946 0018", "PHONE", "020 7946 0018"),
    ("Phone: 28-81-33-70", "PHONE", "28-81-33-70"),
    ('{"phone": "+46 480 410 20 00"}', "PHONE", "+46 480 410 20 00"),
    ("Tel. 012.34.56.78", "PHONE", "012.34.56.78"),
    ('{"phone": "2127365000"}', "PHONE", "2127365000"),
    ("paid with 5500 0000 0000 0004", "CREDIT_CARD", "5500 0000 0000 0004"),
    ("paid with 378282246310005 yesterday", "CREDIT_CARD", "378282246310005"),
    ("card no. 6304 0000 0000 0000", "CREDIT_CARD", "6304 0000 0000 0000"),
    ("to FR14 2004 1010 0505 0001 3M02 606 ok", "IBAN", "FR14 2004 1010 0505 0001 3M02 606"),
    ("ssn 536-22-8741", "SSN", "536-22-8741"),
    ("my SSN is 536228741", "SSN", "536228741"),
    ('{"customer_ssn": "536228741"}', "SSN", "536228741"),
    ('{"user_dob": "1976-04-07"}', "DATE_OF_BIRTH", "1976-04-07"),
    ("holder_bsn=111222333", "NL_BSN", "111222333"),
    ("from 203.0.113.9:443", "IP", "203.0.113.9"),
    ("net 10.20.0.0/16", "IP", "10.20.0.0/16"),
    ("peer 2001:db8:0:1::17 up", "IP", "2001:db8:0:1::17"),
    ("peer fe80::1%eth0", "IP", "fe80::1%eth0"),
    ("hw 3c:22:fb:0a:9e:41", "MAC", "3c:22:fb:0a:9e:41"),
    ("pay 1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2", "CRYPTO", "1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2"),
    ("git clone https://bob:s3cr3tpw@host.example/x", "URL_CREDENTIALS", "bob:s3cr3tpw@host.example"),
    ("date of birth: 07/04/1976", "DATE_OF_BIRTH", "07/04/1976"),
    ("She was born on March 3rd, 1981", "DATE_OF_BIRTH", "March 3rd, 1981"),
    ("Passport number: X1234567", "PASSPORT", "X1234567"),
    ("driver's license no. D123-4567-8901", "DRIVER_LICENSE", "D123-4567-8901"),
    ("password: hunter2!x", "PASSWORD", "hunter2!x"),
    ("token ghp_16C7e42F292c6912E7710c838347Ae178B4a here", "SECRET", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"),
    ("curl -s -u admin:s3cr3tpw https://host.example", "PASSWORD", "admin:s3cr3tpw"),
    ("oc login --token=sha256~N8dSZKodozX39rfBzKYi1AaRJNhU7IJBfwCLpYyJP8l", "SECRET", SHA256_TOKEN),
    ('<add key="ClearTextPassword" value="nWg!NaLA34"/>', "PASSWORD", "nWg!NaLA34"),
    ("key g6gpkmsuedjvlk.atlasv1." + "8xos7s1v1s" * 6 + " ok", "SECRET", "g6gpkmsuedjvlk.atlasv1." + "8xos7s1v1s" * 6),
    ("cookie: _gitlab_session=tnvzmchfsjvv90nfi6kufvj4od5i86sk;", "SECRET", "tnvzmchfsjvv90nfi6kufvj4od5i86sk"),
    ("AWS AKIAQ3EGRIYRWZ5N7K2Q", "SECRET", "AKIAQ3EGRIYRWZ5N7K2Q"),
    ("DNI 12345678Z", "ES_NIF", "12345678Z"),
    ("codice RSSMRA85T10A562S", "IT_FISCAL_CODE", "RSSMRA85T10A562S"),
    ("PESEL: 44051401359", "PL_PESEL", "44051401359"),
    ("CPF 390.533.447-05", "BR_CPF", "390.533.447-05"),
    ("BSN 111222333", "NL_BSN", "111222333"),
    ("NINO AB123456C", "UK_NINO", "AB123456C"),
    ("身份证 11010519491231002X", "CN_ID", "11010519491231002X"),
    ("RVNR 65 170839 J 003", "DE_SOCIAL_SECURITY", "65 170839 J 003"),
    ("AHV 756.9217.0769.85", "NATIONAL_ID", "756.9217.0769.85"),
    ("SV-Nummer 1237 010180", "NATIONAL_ID", "1237 010180"),
    ("MBI 1EG4-TE5-MK73", "MEDICAL_ID", "1EG4-TE5-MK73"),
    ("Medicare 1EG4 TE5 MK73", "MEDICAL_ID", "1EG4 TE5 MK73"),
    ("Insurance member ID: XJH 882 104 771", "MEDICAL_ID", "XJH 882 104 771"),
    ('{"insurance_member_id": "XJH882104771"}', "MEDICAL_ID", "XJH882104771"),
    ("insurance_number=A882104771", "MEDICAL_ID", "A882104771"),
    ("Numéro d'adhérent : 12345678", "MEDICAL_ID", "12345678"),
    ("Kto. 532013000, BLZ 37040044", "BANK_ACCOUNT", "532013000"),
    ("BLZ 37040044, Kto 532013000", "BANK_ACCOUNT", "532013000"),
    ("Kto.-Nr.: 532013000", "BANK_ACCOUNT", "532013000"),
    ("Mein Pass: C01X00T47", "PASSPORT", "C01X00T47"),
    ("né(e) le 3 mars 1992", "DATE_OF_BIRTH", "3 mars 1992"),
    ("Née à Lyon le 1er août 1992", "DATE_OF_BIRTH", "1er août 1992"),
    ("nacida el 3 de marzo de 1992", "DATE_OF_BIRTH", "3 de marzo de 1992"),
    ("nato il 3 marzo 1992", "DATE_OF_BIRTH", "3 marzo 1992"),
    ("nascido em 3 de março de 1992", "DATE_OF_BIRTH", "3 de março de 1992"),
    ("geboren op 3 maart 1992", "DATE_OF_BIRTH", "3 maart 1992"),
    ("urodzona 3 marca 1992 r.", "DATE_OF_BIRTH", "3 marca 1992"),
    ("Teléfono: 612 345 678", "PHONE", "612 345 678"),
    ("llámame al 612 345 678", "PHONE", "612 345 678"),
    ("My SIN is 130 692 544", "CA_SIN", "130 692 544"),
]


@pytest.mark.parametrize(("text", "label", "value"), FINDS)
def test_finds_a_value_with_its_label_and_exact_place(text, label, value):
    assert (label, value) in found(text)


QUIET = [
    "upgrade to 1.2.3.4-rc1, then 10.15.7",
    "version 1.20.300.4",
    "order 4111111111111112 shipped",
    "tracking id 123456789012",
    "on 2024-05-14 at 12:30:59 we sold 1,234,567.89 for $1999.99",
    "f47ac10b-58cc-4372-a567-0e02b2c3d479",
    "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "git@github.com:python/cpython.git",
    "npm i @types/node@20.1.2 left-pad@1.3.0",
    "logo@2x.png",
    "see jquery@3.6.min.js, user@pkg.module.py and logo@2x.de.png",
    "std::vector<int> and Foo::bar, a::b",
    "at line 1234567 of 7654321",
    "the password is required, password: None, password = getpass()",
    "127.0.0.1:8000 and 0.0.0.0",
    "with curl, call http://127.0.0.1:8787/v1",
    "phone: 127.0.0.1, mask 255.255.255.0",
    "call +2.3456781",
    "phone +127.0.0.1",
    "Ratio 1:2:3:4 at 10:35:20",
    "0.123456 0.654321 1.5e10",
    "timestamp 1716200000000",
    "ISBN 978-3-16-148410-0",
    "def f(self, key=None): return token_count",
    "Smartphone: 1801728040",
    "curl https://host.example/my-url:8080 and curl --user-agent x:y",
    "the password value='' is not set",
]


@pytest.mark.parametrize("text", QUIET)
def test_leaves_alone_what_only_looks_like_personal_data(text):
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("４１１１-１１１１-１１１１-１１１１", "４１１１-１１１１-１１１１-１１１１"),
        ("4111\u20111111\u20111111\u20111111", "4111\u20111111\u20111111\u20111111"),
        ("41\u200b11 1111 1111 1111", "41\u200b11 1111 1111 1111"),
        ("jane\\u0040site.org", "jane\\u0040site.org"),
        ("https://x.org/?to=jane%40site.org&n=1", "jane%40site.org"),
        ("tel=%2B12127365000&x", "%2B12127365000"),
        ("card 4111%201111%201111%201111", "4111%201111%201111%201111"),
        ("'jane&#64;site.org'", "jane&#64;site.org"),
        ("jane&#x40;site.org", "jane&#x40;site.org"),
        ("4111&nbsp;1111&nbsp;1111&nbsp;1111", "4111&nbsp;1111&nbsp;1111&nbsp;1111"),
        ("jane\\x40site.or\\u0067", "jane\\x40site.or\\u0067"),
        ("a\u200b\u200b\u200b\u200b\u200b jane@site.org\u200b\u200b\u200b\u200b\u200b x", "jane@site.org"),
        ("so: j\u200bane@si\u2060te.org!", "j\u200bane@si\u2060te.org"),
        ("tel ٠٣٠ ٩٠١٨٢٠٠", "٠٣٠ ٩٠١٨٢٠٠"),
        ("to jane&commat;site&period;org", "jane&commat;site&period;org"),
        ("ssn 536&hyphen;22&hyphen;8741", "536&hyphen;22&hyphen;8741"),
        ("so: jane\U000e0041\U000e007f@site.org!", "jane\U000e0041\U000e007f@site.org"),
        ("4111 11\U000e010011 1111 1111", "4111 11\U000e010011 1111 1111"),
        ("to 𝐣𝐚𝐧𝐞﹫𝐬𝐢𝐭𝐞.𝐨𝐫𝐠", "𝐣𝐚𝐧𝐞﹫𝐬𝐢𝐭𝐞.𝐨𝐫𝐠"),
        ("④①①① ①①①① ①①①① ①①①①", "④①①① ①①①① ①①①① ①①①①"),
    ],
)
def test_sees_through_disguises_and_says_the_place_in_the_original(text, value):
    assert [text[span.start : span.end] for span in STANDARD.find(text)] == [value]


def test_a_key_of_json_escapes_does_not_hide_what_follows_it():
    text = '"a\\n4111 1111 1111 1111\\t"'
    assert [span.label for span in STANDARD.find(text)] == ["CREDIT_CARD"]


def test_digits_are_any_run_of_three_or_more():
    assert [(s.start, s.end, s.label) for s in DIGITS.find("a1 12 123 4567x")] == [(6, 9, "NUMBER"), (10, 14, "NUMBER")]


def test_the_bare_shape_of_a_social_security_number_counts_with_any_digits():
    assert len(SSN.find("000-00-0000 and 666123-45-67899")) == 2


def test_allowed_values_are_no_findings_and_denied_ones_always_are():
    rules = STANDARD.allowing(["info@shop.example", "@example.com"]).denying(["Project Heron"], label="CODENAME")
    text = "info@shop.example bob@example.com ann@other.org project heron"
    assert [(s.label, text[s.start : s.end]) for s in rules.find(text)] == [
        ("EMAIL", "ann@other.org"),
        ("CODENAME", "project heron"),
    ]


def test_every_rule_that_ships_is_one_that_anybody_could_make():
    for rule in (*STANDARD.rules, *DIGITS.rules, *SSN.rules):
        assert replace(rule) == rule


def test_a_rule_that_is_made_of_one_that_ships_is_checked():
    with pytest.raises(ConfigError, match="pattern of rule email"):
        replace(STANDARD.rules[0], pattern="(")


def test_labels_can_be_picked_and_left_out():
    text = "ann@other.org 203.0.113.9"
    assert [span.label for span in STANDARD.only("IP").find(text)] == ["IP"]
    assert [span.label for span in STANDARD.without("IP").find(text)] == ["EMAIL"]


def test_country_sets_stand_alone_and_unknown_ones_are_refused():
    assert [span.label for span in country_rules("DE", "BR").find("CPF 390.533.447-05, DNI 12345678Z")] == ["BR_CPF"]
    with pytest.raises(ConfigError, match="no rules for ZZ"):
        country_rules("ZZ")


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("+49 170 1234567 4111 1111 1111 1111", ["PHONE", "CREDIT_CARD"]),
        ("+49 170 1234567 123-45-6789", ["PHONE", "SSN"]),
        ("+44 20 7123 4567 4111-1111-1111-1111", ["PHONE", "CREDIT_CARD"]),
        ("name +1 212 736 5000 5105 1051 0510 5100 x", ["PHONE", "CREDIT_CARD"]),
        ("030 901820 4111 1111 1111 1111", ["PHONE", "CREDIT_CARD"]),
        ("order 4111 1111 1111 1111", ["CREDIT_CARD"]),
        ("order id: 4111-1111-1111-1111.", ["CREDIT_CARD"]),
    ],
)
def test_numbers_side_by_side_are_hidden_each_and_in_full(text, labels):
    masked = mask_pii(text, STANDARD)
    assert re.findall(r"\[REDACTED_(\w+)\]", masked) == labels
    assert not any(char.isdigit() for char in masked)


@pytest.mark.parametrize("number", ["+0208567104", "+020 8567 104", "+02 0856 7104"])
def test_no_country_code_begins_with_a_zero(number):
    assert international_phone(number, "possible") == 0


@pytest.mark.parametrize(
    "text",
    [
        "Modulus:\n    00:9f:1c:a2:b3:44:\n    fb:fe:44:1a:32:1c\nExponent: 65537",
        "130 692 544 046 454 286\n046 454 286 130 692 544\n",
    ],
)
def test_bytes_of_a_key_and_rows_of_three_digits_stay(text):
    assert not {"MAC", "CA_SIN"} & {span.label for span in STANDARD.find(text)}
