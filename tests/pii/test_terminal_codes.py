"""A value is found and restored whatever terminal codes its characters are colored with."""

from __future__ import annotations

import json

import pytest
from tiers import every

from ctxguard import Artifact, Stabilizer
from ctxguard.checks import NoPII
from ctxguard.pii import STANDARD, Masker
from ctxguard.stages import MaskPII

MASKER = Masker(STANDARD, strategy="pseudonymize")
VALUES = {
    "EMAIL": "ada.klint@kontor4.example.org",
    "SSN": "536-22-8741",
    "CREDIT_CARD": "4111 1111 1111 1111",
    "SECRET": "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "key": "sk-proj-abc123DEF456ghi789JKL012mno",
    "PHONE": "+44 20 7123 4567",
    "IBAN": "DE89370400440532013000",
    "MAC": "3c:22:fb:0a:9e:41",
    "CRYPTO": "1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2",
    "IT_FISCAL_CODE": "RSSMRA85T10A562S",
    "BR_CPF": "529.982.247-25",
}
CODES = [
    "\x1b[31m",
    "\x1b[01;31m\x1b[K",
    "\x1b[m\x1b[K",
    "\x1b[38;2;255;100;0m",
    "\x1b[38:5:196m",
    "\x1b[?25l",
    "\x1b(B\x1b[m",
    "\x9b1m",
    "\x1b]8;;https://kontor.example\x1b\\",
    "\x1b]0;title\x07",
    "\x9d0;title\x9c",
    "\x1bP1$r0m\x1b\\",
    r"\u001b[31m",
    r"\u001B[01;31m\u001B[K",
    r"\\u001b[31m",
    r"\u009b31m",
    r"\x1b[31m",
    r"\x1B[0m",
    r"\033[1;31m",
    r"\e[0m",
    r"\u001b]8;;https://kontor.example\u0007",
    r"\u001b]8;;https://kontor.example\u001b\\",
    "^[[31m",
    "[31m",
    "[01;31m[K",
    "[31m[m[K",
]


def hidden_in(text):
    """Return what masking leaves of a text, after both searches agree that nothing is left, and it can be restored."""
    session = MASKER.session()
    masked = session.text(text)
    assert not STANDARD.scan(masked), text
    assert session.unmask(masked) == text
    return masked


@pytest.mark.parametrize("kind", VALUES)
def test_a_code_at_any_place_within_a_value_hides_nothing(kind):
    value = VALUES[kind]
    for number, code in enumerate(CODES):
        for place in every(3, range(1, len(value)), number):
            written = value[:place] + code + value[place:]
            text = f"note {written} end"
            (found,) = STANDARD.find(text)
            assert text[found.start : found.end] == written, text
            assert STANDARD.scan(text) == (found,)
        written = value[:4] + code + value[4:]
        assert hidden_in(f"note {written} end").replace(f"<{found.label}_1>", "") == "note  end", written


@pytest.mark.parametrize("kind", VALUES)
def test_a_code_around_a_value_stays(kind):
    """Of a one-character introducer, and of a link that ends with a backslash, a part may be masked with the value."""
    value = VALUES[kind]
    for code in CODES:
        masked = hidden_in(f"note {code}{value}{code} end")
        assert value not in masked
        assert masked.endswith(f">{code} end"), masked
        assert masked.startswith(f"note {code}<") or code[-1] == "\\" or "9b" in ascii(code), masked


@pytest.mark.parametrize("code", CODES)
def test_several_codes_within_a_value(code):
    assert hidden_in(f"note {code.join('ada.klint@kontor4.example.org')} end") == "note <EMAIL_1> end"


def test_what_grep_prints():
    line = "\x1b[35mlog.txt\x1b[m\x1b[K\x1b[36m:\x1b[m\x1b[Kto ada.klint@\x1b[01;31m\x1b[Kkontor4\x1b[m\x1b[K.example.org, 1 mail"
    masked = hidden_in(line)
    assert masked == "\x1b[35mlog.txt\x1b[m\x1b[K\x1b[36m:\x1b[m\x1b[Kto <EMAIL_1>, 1 mail"
    text = json.dumps({"out": line})
    assert json.loads(hidden_in(text)) == {"out": masked}
    session = MASKER.session()
    nested = json.dumps({"args": text})
    masked = session.text(nested)
    assert "<EMAIL_1>" in masked
    assert json.loads(session.unmask_arguments(masked)) == json.loads(nested)


def test_the_check_sees_a_value_within_which_codes_are():
    text = "to ada.klint@\x1b[01;31m\x1b[Kkontor4\x1b[m\x1b[K.example.org"
    assert not Stabilizer(500, stages=[], checks=[NoPII(STANDARD)]).stabilize([Artifact("user", text)]).report.ok
    assert (
        Stabilizer(500, stages=[MaskPII()]).stabilize([Artifact("user", text)]).artifacts[0].text
        == "to [REDACTED_EMAIL]"
    )


def test_a_value_within_a_link_is_found():
    assert "jane" not in hidden_in("see \x1b]8;;mailto:jane.roe@mailhost.org\x1b\\here\x1b]8;;\x1b\\ now")


def test_codes_that_separate_values_keep_them_apart():
    text = "\x1b[31mjane.roe@mailhost.org\x1b[0m \x1b[1m4111 1111 1111 1111\x1b[0m"
    assert hidden_in(text) == "\x1b[31m<EMAIL_1>\x1b[0m \x1b[1m<CREDIT_CARD_1>\x1b[0m"


@pytest.mark.parametrize(
    "text", ["a[5] = b[m]", r"re.compile('\\e[0-9]')", "x[K", "C:\\users\\e[", "\x1b[31mok\x1b[0m"]
)
def test_other_texts_stay(text):
    assert hidden_in(text) == text
