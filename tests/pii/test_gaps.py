"""Spellings of personal data that a plain expression misses, and what stands close to them and is none."""

import pytest

from ctxguard.pii import STANDARD, Rule, RuleSet, mask_pii

CASES = [
    ("IBAN", "de89 3704 0044 0532 0130 00", "to {} today"),
    ("IBAN", "de89370400440532013000", "iban={}&bic=x"),
    ("IBAN", "gb29 NWBK 6016 1331 9268 19", "{}"),
    ("IBAN", "NL91 abna 0417 1643 00", "pay {}, thanks"),
    ("IBAN", "es91 2100 0418 4502 0005 1332", "my iban is {} from then on"),
    ("EMAIL", '"jane doe"@example.org', "To: {}, cc none"),
    ("EMAIL", '"jane.o\'neil (home)"@mail.example.org', 'say "hi" to {}.'),
    ("EMAIL", '\\"jane doe\\"@example.org', 'mail {} "now"'),
    ("EMAIL", "ann@corp-mail.net.pdf", "exports/{}"),
    ("CREDIT_CARD", "4111111111111111", "order {} please"),
    ("CREDIT_CARD", "5105105105105100", "Payment {}."),
    ("CN_ID", "712913198001015092", "身份证 {}"),
    ("IP", "10.4.5.6", 'if address == "{}":'),
    ("IP", "10.4.5.6", "tshark -Y 'ip.addr == {}'"),
    ("IP", "9.121.105.207", "1066037222.352 126389 {} TCP_HIT/200"),
    ("IP", "10.4.5.6", "in .35 s from {}"),
    ("CREDIT_CARD", "4111 1111\n1111 1111", "paid with\n{}\nyesterday"),
    ("CREDIT_CARD", "4111 1111\n1111 1111", "seats 123  {}"),
    ("CREDIT_CARD", "4111\r\n1111 1111 1111", "{}"),
    ("CREDIT_CARD", "4111-1111-1111-\n1111", "card {}."),
    ("CREDIT_CARD", "5105 1051 0510\n  5100", "{} ok"),
    ("CREDIT_CARD", "4272219634467", "cc={};exp=12/29"),
    ("CREDIT_CARD", "6759649826438453", '{{"pan": "{}"}}'),
    ("SSN", "536-22-8741", '{{"national_id": "{}"}}'),
    ("SSN", "536-22-8741", "ID {}"),
    ("SSN", "536-22-8741", '{{"user_id": "{}"}}'),
    ("CN_ID", "11010519491231002X", "ID {}"),
    ("CN_ID", "11010519491231002X", '{{"nationalId":"{}"}}'),
    ("CN_ID", "430211197901011877", "{}"),
    ("CN_ID", "22030019820827155X", "邱丽;{}"),
    ("IT_FISCAL_CODE", "RSSMRA85T10A562S", "ID: {}"),
    ("ES_NIF", "12345678Z", '{{"national_id":"{}"}}'),
    ("KR_RRN", "971013-9019902", "ID {}"),
    ("BR_CPF", "390.533.447-05", "ID {}"),
    ("BR_CPF", "39053344705", '{{"national_id":"{}"}}'),
    ("PL_PESEL", "44051401359", "national id: {}"),
    ("NL_BSN", "111222333", "identity number {}"),
    ("FR_NIR", "295109912611193", "personal id {}"),
    ("CA_SIN", "130 692 544", '{{"citizen_id": "{}"}}'),
    ("PHONE", "(0113)4960094", "{}"),
    ("PHONE", "(11) 98127-5240", "{}"),
    ("PHONE", "(21)3747-5722", "|{}|"),
    ("PHONE", "11 98127-5240", "Ana, {}, SP"),
    ("PHONE", "11 3747-5722", "contato {}"),
    ("EMAIL", "ann@corp.co.jp", "メールは{}です"),
    ("EMAIL", "ann@corp.net", "安娜{}李四"),
    ("JP_MY_NUMBER", "123456789018", "マイナンバー：{}"),
    ("PHONE", "555-123-4567", "Ann Lee, {}, Boston"),
    ("PHONE", "555.123.4567", "{}"),
    ("PHONE", "(123) 456-7890", "{}"),
    ("PHONE", "123-456-7890", "mail ann@, {} ok"),
    ("PHONE", "2127365000", "my number is {}"),
    ("PHONE", "03(1234)5678", "{}"),
    ("PHONE", "01 234567890", "phone: {}"),
    ("PHONE", "13867251934", "王朵朵，{}"),
    ("PHONE", "138 6725 1934", "新号码是{}"),
    ("PHONE", "18951236789", "联系方式：[{}]"),
    ("DATE_OF_BIRTH", "15.06.1990", "Anna Schneider, geb. am {}, wohnhaft"),
    ("DATE_OF_BIRTH", "1990-03-07", '{{"birthDate":"{}T00:00:00Z"}}'),
    ("DATE_OF_BIRTH", "19900307", "BDAY:{}"),
    ("DATE_OF_BIRTH", "12/03/1980", "data di nascita {}"),
    ("DATE_OF_BIRTH", "1990.03.07", "生于{}"),
    ("US_EIN", "20-1234567", "Rendering provider TIN {}"),
    ("US_EIN", "12-3456789", "Employee tax ID {}"),
    ("TAX_ID", "912 70 1234", "ITIN is {}"),
    ("DRIVER_LICENSE", "A123-456-7890", "driver's license: {}"),
    ("DRIVER_LICENSE", "MORGA753116SM91J", "driving licence number is {}"),
    ("PASSPORT", "C01X00T47", "Reisepassnummer: {}"),
    ("PASSPORT", "12AB34567", "numéro de passeport : {}"),
    ("PASSPORT", "AAA123456", "pasaporte n.º {}"),
    ("PASSPORT", "YA1234567", "passaporto numero {}"),
    ("SECRET", "xoxb-1-Mi0yLTM1NTgtNDk5NTcxMzQx", "xoxe.{}"),
    ("EMAIL", "_ann@corp.net", "write to {}_ soon"),
    ("PHONE", "2125550147", '{{"phoneNumber": "{}"}}'),
    ("PHONE", "2125550147", '{{"emergencyContactPhone": "{}"}}'),
    ("PHONE", "2125550147", "contactNumber={}"),
    ("PHONE", "447911123456", '{{"msisdn": "{}"}}'),
    ("PHONE", "9876543210", "mobileNo: {}"),
    ("PHONE", "2125550147", '{{"system": "phone", "value": "{}", "use": "home"}}'),
    ("PHONE", "2125550147", '{{"phones": [{{"type": "mobile", "number": "{}"}}]}}'),
    ("PHONE", "2125550147", '{{"workFax": "{}"}}'),
    ("SSN", "536228741", '{{"customerSSN": "{}"}}'),
    ("SSN", "536228741", "ssnNumber={}"),
    ("NL_BSN", "111222333", "citizenBsn: {}"),
    ("BR_CPF", "39053344705", "numeroCpf={}"),
    ("UK_NHS", "4010232137", "patientNhsNumber: {}"),
    ("CA_SIN", "130692544", '{{"socialInsuranceNumber": "{}"}}'),
    ("AU_TFN", "876543210", "taxFileNumber: {}"),
    ("IN_AADHAAR", "234123412346", "aadharNo: {}"),
    ("DATE_OF_BIRTH", "1985-04-15", '{{"patientDob": "{}"}}'),
    ("DATE_OF_BIRTH", "15. März 1985", "geboren am {} in Köln"),
    ("DATE_OF_BIRTH", "15 de marzo de 1985", "Fecha de nacimiento: {}"),
    ("DATE_OF_BIRTH", "1er mars 1985", "Date de naissance : {}"),
    ("DATE_OF_BIRTH", "15-Apr-1985", "Date of Birth - {}"),
    ("DATE_OF_BIRTH", "15/04/1985", "date of birth (dd/mm/yyyy): {}"),
    ("PHONE", "9876543210", "helpline number {}"),
    ("DATE_OF_BIRTH", "1985-04-15", "birth_date: {} 00:00:00"),
    ("CREDIT_CARD", "4111 1111 1111 1111", "rows 4201-4202, but {}"),
    ("PHONE", "362-1286", "Tel.: {}"),
    ("PHONE", "2345-6789", "Tel.: {}"),
    ("DATE_OF_BIRTH", "4 June 1976", "the d.o.b. is {}"),
    ("DRIVER_LICENSE", "1234567A", "Her driver license? it is {}."),
    ("UK_NINO", "AZ 123456 A", "the NI {}."),
    ("UK_NINO", "QQ 12 34 56 C", "NI: {}"),
    ("PHONE", "601 234 567", "kom. {}"),
    ("SECRET", "f3k9v1b7q0zt5x", "https://api.site.org/data?token={}&format=json"),
    ("SECRET", "ghs_1234567_eyJhbGciOiJIUzI1NiJ9x.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVPmB92K27uhbUJU1p1r", "{}"),
    ("SECRET", "xwfp-1-A01BCDEFGHI-Mi0yLTM1NTgtNDk5NTcx", "{}"),
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
    "430211197901011878",
    "430211197913011878",
    "contact (2026-07-28)",
    "rows (10) 20127-5240",
    "111.111.111-11",
    "订单号13867251934",
    "Sales: 13867251934",
    "my order number is 2127365000",
    '{"smartphone": "2125550147", "automobileNumber": "2125550147"}',
    "herein 20-1234567",
    "born 20 years before 1990, born in 1990",
    "Renaissance. 12 tableaux 1980",
    "hostmaster.example.net. 1 7200 900 1209600 86400",
    '{"formFactor": "PHONE", "heapSize": 256000000}',
    "arn:aws:secretsmanager:us-west-2:123456789012:secret:MyTestDatabaseSecret-a1b2c3",
    '{"nextPageToken": "CAUQAA7v9k2Xq", "continuation_token": "1w41l63U0xa8q7smH50v"}',
    '{"clientRequestToken": "f3k9v1b7q0zt5x", "syncToken": "CPDAlvWDx70CEPDAlvWDx70C"}',
    "SimpleNamespace(token=TEST_DATA_BASE64)",
    "otpauth://totp/x?secret=$Base32String",
    '"V1Secret": ".models.v1_secret"',
    'href="../../src/core/cell.rs.html#1025-1027", cell 103-109, reserved numbers 1024-1535',
    "<Buffer a0 8b 28 3f 01 00 00 00 50 32> <Buffer 01 02 03 04 05 06 07 08>",
    "birthtime: Mon, 10 Oct 2011 23:24:11 GMT, birthtime: 2019-06-22",
    "Change: 2024-05-14 10:00:00.123 Birth: 2024-05-14 10:00:00.123",
    "rows 4201 4202 4203 4204 4205, ids 3500 3504 3506 352E",
    "[*0209.0020.0002]",
    "[*038A.0020.0004][.4181.0024.0002.5168]",
    "f(),+4360.0);",
    "42 tokens per call | toktok | 0.3.0 (2026-10)",
    '{"nextForwardToken": "f/3196120912244748", "LockToken": "2294b3a1-eb60-4aa0-a86f-a3ae04329de9"}',
    '"IAMUserChangePassword": "arn:aws:iam::aws:policy/IAMUserChangePassword"',
    "my $pwd = CPAN::anycwd();",
    "AAD/EAAAe4gAAweoAAAEABQLBAQCisiuknzhodaHGAQCFOPsCaHcFAsAAABB39RBxyzw+AA",
    "lot 123-456-7891 was logged as 1234567890",
    "passport expires2026, passport photo2024",
    "driving licence 2026-07-28",
    "born under version 12345678",
    "x509: private_key: Ed25519PrivateKey",
    "private_key: PKCS7PrivateKeyTypes,",
    '"pwd": "IPython.core.magics.osm:OSMagics",',
    'NAME = ObjectIdentifier("2.5.4.41")',
    "see the specification: 21.2.2.216",
    "Depends: zlib1g (>= 1:1.2.0.2), libxi6 (<< 2:1.2.99.4-1~)",
    "Version: 2:5.2.8.0-1",
    "pysmbc==1.0.15.4",
    "New in 1.0.14.1:",
    'dumpsys: \\"version_name\\":\\"1.0.2.94\\"',
    "getty@tty1.service and user@1000.service",
    "po/sr@latin.po",
    "call fails\n\n0.33.3 2006-07-05",
    "as in DFARS clause 252.227-7013",
    '<path d="M2 1.05 4 9c0-2.76 2.24-5 5-5 .9 0 1.73.26 2.46.67.54 0z"/>',
    '<path d="m.518.373-.518.566a.09.09 0 0 1-.091.09.09.09 0 0 0z"/>',
    '<path d="M32.2-32.4C110.1 128 224 128 224 128z"/>',
]


@pytest.mark.parametrize("before", [".1\n", "a.1 ", "No.1 ", "3a.1\t", "fig.12, ", "v1a.3: ", "see c.4 "])
@pytest.mark.parametrize("value", ["4111111111111111", "123-45-6789"])
def test_a_number_of_a_section_hides_no_value(before, value):
    assert value not in mask_pii(f"{before}{value} and so on")


@pytest.mark.parametrize("text", QUIET)
def test_what_stands_close_to_them_is_left_alone(text):
    assert STANDARD.find(text) == STANDARD.scan(text) == ()


@pytest.mark.parametrize("first", ["ES91 2100 0418 4502 0005 1332", "es91 2100 0418 4502 0005 1332"])
@pytest.mark.parametrize("between", [" ", " to ", "\n"])
def test_one_iban_does_not_hide_the_next(first, between):
    text = f"{first}{between}DE89 3704 0044 0532 0130 00 x"
    assert [span.label for span in STANDARD.find(text)] == ["IBAN", "IBAN"]
    assert STANDARD.find(text) == STANDARD.scan(text)


@pytest.mark.parametrize(
    ("word", "text"), [("密码", "我的密码:abc12345"), ("пароль", "Пароль:abc12345"), ("clé", "CLÉ:abc12345")]
)
def test_a_word_in_any_script_is_found_whatever_its_case(word, text):
    rules = RuleSet("own", (Rule("own", "PASSWORD", rf"(?i){word}:(?P<value>\w{{6,}})"),))
    assert [text[span.start : span.end] for span in rules.find(text)] == ["abc12345"]
    assert rules.find(text) == rules.scan(text)


@pytest.mark.parametrize(
    "key",
    [
        "AKIA" + "QWRTZPLKHGFDSBNM",
        "glpat-" + "kQwRtZpLxHgFdSbNmVcY",
        "ghp_" + "IuKrggPMUjjWBUOUvCYmZyxPLSdLyxpUusvr",
        "sk_live_" + "aBcWdEfGqHiJkLmNoPxQrStU",
    ],
)
def test_a_key_that_happens_to_have_no_digit_is_one(key):
    assert mask_pii(f"the key {key} of the host") == "the key [REDACTED_SECRET] of the host"


@pytest.mark.parametrize(
    "name", ["sk-folding-cube", "glpat-the-name-of-a-long-label", "npm_config_registry_of_the_whole_company"]
)
def test_names_that_begin_like_keys_are_none(name):
    assert mask_pii(f"see {name} there") == f"see {name} there"


@pytest.mark.parametrize("sign", [" ", "-"])
@pytest.mark.parametrize("card", ["4111 1111 1111 1111", "5500-0000-0000-0004"])
@pytest.mark.parametrize(
    "around", ["Order 1384{s}{} please", "{}{s}2026", "9876{s}{}{s}1227 831", "12.11.2026 {}", "+33 6 12 34 56 78 {}"]
)
def test_a_group_of_four_beside_a_card_does_not_hide_it(around, card, sign):
    text = around.format(card, s=sign)
    found = [text[span.start : span.end] for span in STANDARD.find(text) if span.label == "CREDIT_CARD"]
    if sign == "-" and "{s}" in around:  # a hyphen and a digit make a number part of a longer one
        assert found == []
    else:
        assert found == [card]
    assert STANDARD.find(text) == STANDARD.scan(text)


@pytest.mark.parametrize("second", ["4111 1111 1111 1111", "5500-0000-0000-0004"])
def test_two_cards_with_a_blank_between_them_are_found(second):
    text = f"paid by 5105 1051 0510 5100 {second} today"
    assert [span.label for span in STANDARD.find(text)] == ["CREDIT_CARD", "CREDIT_CARD"]


@pytest.mark.parametrize("others", [2, 3, 5, 8])
def test_a_row_of_groups_of_four_is_no_card(others):
    row = "2031 " * others
    for text in (
        f"{row}4111 1111 1111 1111 end",
        f"begin 4111 1111 1111 1111 {row}",
        f"{row}4111 1111 1111 1111 {row}",
    ):
        assert STANDARD.find(text) == ()
