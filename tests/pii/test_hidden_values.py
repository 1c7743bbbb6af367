"""Nothing hides a value: no character that readers do not see, and no escape, also within other escapes."""

from __future__ import annotations

import re
import unicodedata
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ctxguard import mask_pii
from ctxguard.pii import STANDARD, Masker
from ctxguard.pii.detect.normalize import _PLUSES, _with_spaces, view_of, views_of

VALUES = {
    "email": "zora.fieldson@mailhost.org",
    "card": "4111 1111 1111 1111",
    "iban": "DE89370400440532013000",
    "ssn": "536-90-4399",
    "phone": "+44 20 7946 0958",
    "key": "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "ip": "203.0.113.77",
}
# Derived properties of Unicode that `unicodedata` does not have: Default_Ignorable_Code_Point beyond category Cf.
IGNORABLE = (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x2065, 0x3164, *range(0xFE00, 0xFE10))
IGNORABLE += (0xFFA0, *range(0xFFF0, 0xFFF9), *range(0xE0000, 0xE1000))
# the planes in between hold ideographs or nothing, those behind what is for private use
FORMAT = [code for code in (*range(0x30000), *range(0xE0000, 0xF0000)) if unicodedata.category(chr(code)) == "Cf"]


def masked(text):
    return mask_pii(f"note {text} end")


def gone(value, text):
    """Return whether nothing of a hidden value is left: no run of three letters or digits."""
    left = masked(text)
    return left != f"note {text} end" and not set(re.findall(r"[A-Za-z0-9]{3,}", value)) & set(re.findall(r"\w+", left))


@pytest.mark.parametrize("kind", VALUES)
def test_no_invisible_character_hides_a_value(kind):
    value = VALUES[kind]
    for code in {*FORMAT, *IGNORABLE[:60], *IGNORABLE[60::97]}:
        for place in (1, len(value) // 2, len(value) - 1):
            text = value[:place] + chr(code) + value[place:]
            assert masked(text) != f"note {text} end", (hex(code), place)
    for code in (*FORMAT[::19], *IGNORABLE[:40:7]):
        assert gone(value, chr(code).join(value)), hex(code)


def test_every_format_character_and_every_ignorable_one_is_invisible():
    codes = [chr(code) for code in (*FORMAT, *IGNORABLE)]
    for start in range(0, len(codes), 50):
        some = codes[start : start + 50]
        assert view_of("".join(f"a{code}b" for code in some)).text == "ab" * len(some), ascii(some)


NOTATIONS = {
    "decimal": lambda sign: f"&#{ord(sign)};",
    "hexadecimal": lambda sign: f"&#x{ord(sign):x};",
    "HEXADECIMAL": lambda sign: f"&#X{ord(sign):X};",
    "leading zeros": lambda sign: f"&#{ord(sign):09d};",
    "hexadecimal leading zeros": lambda sign: f"&#x{ord(sign):08x};",
    "many zeros": lambda sign: f"&#{ord(sign):050d};",
    "without a semicolon": lambda sign: f"&#{ord(sign)}",
    "zeros without a semicolon": lambda sign: f"&#{ord(sign):07d}",
    "unicode": lambda sign: f"\\u{ord(sign):04x}",
    "unicode twice": lambda sign: f"\\\\u{ord(sign):04x}",
    "braced": lambda sign: f"\\u{{{ord(sign):x}}}",
    "braced zeros": lambda sign: f"\\u{{{ord(sign):06x}}}",
    "x braced": lambda sign: f"\\x{{{ord(sign):x}}}",
    "wide": lambda sign: f"\\U{ord(sign):08x}",
    "x": lambda sign: f"\\x{ord(sign):02x}",
    "octal": lambda sign: f"\\{ord(sign):03o}",
    "percent": lambda sign: f"%{ord(sign):02X}",
    "percent twice": lambda sign: f"%25{ord(sign):02X}",
    "percent u": lambda sign: f"%u{ord(sign):04X}",
}
NAMES = {"@": "commat", ".": "period", "-": "hyphen", " ": "nbsp", "+": "plus", "_": "lowbar"}
WITHOUT_END = {"without a semicolon", "zeros without a semicolon"}


def written(value, notation, *, signs_only):
    encode = NOTATIONS[notation]
    return "".join(char if signs_only and char.isalnum() else encode(char) for char in value)


@pytest.mark.parametrize("notation", NOTATIONS)
def test_no_notation_hides_a_value(notation):
    for value in VALUES.values():
        first = next((number for number, char in enumerate(value) if not char.isalnum()), 3)
        one = value[:first] + NOTATIONS[notation](value[first]) + value[first + 1 :]
        signs, every = written(value, notation, signs_only=True), written(value, notation, signs_only=False)
        for text in (every, signs, one):
            # seven digits and then a value's own digit are no reference to a sign; a letter of a value may go on, too
            if notation in WITHOUT_END and text is not every and not (notation == "without a semicolon" and first != 3):
                continue
            assert masked(text) != f"note {text} end", text
            assert gone(value, text) or text is one, (text, masked(text))


@pytest.mark.parametrize("kind", VALUES)
def test_no_named_reference_hides_a_value(kind):
    value = VALUES[kind]
    text = "".join(f"&{NAMES[char]};" if char in NAMES else char for char in value)
    if text != value:
        assert gone(value, text), (text, masked(text))


NESTED = ("decimal", "hexadecimal", "unicode", "x", "percent", "braced", "octal")


@pytest.mark.parametrize("kind", ["email", "card", "ssn", "phone"])
def test_escapes_within_each_other_hide_nothing(kind):
    for outer, inner in product(NESTED, NESTED):
        once = written(VALUES[kind], inner, signs_only=True)
        # the signs of the escape are escaped again, or all of its characters are
        signs = "".join(NOTATIONS[outer](char) if char in "\\&%#;{}" else char for char in once)
        every = "".join(NOTATIONS[outer](char) if char != " " else char for char in once)
        for text in (signs, every):
            assert masked(text) != f"note {text} end", text


@pytest.mark.parametrize("notations", [("percent", "decimal", "unicode"), ("unicode", "hexadecimal", "decimal")])
def test_three_escapes_within_each_other_hide_nothing(notations):
    for value in ("zora.fieldson@mailhost.org", "4111 1111 1111 1111"):
        text = written(value, notations[0], signs_only=True)
        for outer in notations[1:]:
            text = "".join(NOTATIONS[outer](char) if char in "\\&%#;" else char for char in text)
        assert masked(text) != f"note {text} end", text


@pytest.mark.parametrize(
    "text", [r"C:\100\01712345678", "a&b;c &unknownname; x", "?a=1&copy=2", "&#; &#x; &", "&ghp16C7e42F29;"]
)
def test_what_is_no_escape_stays(text):
    assert any(view.text == text or text in view.text for view in views_of(text))


def test_a_value_behind_what_only_looks_like_an_escape_is_found():
    for value in VALUES.values():
        for before in ("C:\\100\\", "\\", "&", "%", "\\1", "&x;", "&#", "\\012"):
            assert masked(f"{before} {value}") != f"note {before} {value} end"


PLANTED = (
    "&ltEMAIL_1>",
    "&lt;EMAIL_1&gt",
    "&#60EMAIL_1&#62;",
    "\\u{3c}EMAIL_1\\u{3e}",
    "\\074EMAIL_1\\076",
    "%3CEMAIL_1%3E",
)
PLANTED += ("&#x0003c;EMAIL_1>", "&amp;lt;EMAIL_1&amp;gt;", "<EMA\u2065IL_1>", "<EMAIL_\ufe001>", "&#38;lt;EMAIL_1>")


@pytest.mark.parametrize("planted", PLANTED)
def test_a_placeholder_that_somebody_planted_is_escaped_in_each_notation(planted):
    session = Masker(STANDARD, strategy="pseudonymize").session()
    session.text("I am zora@mailhost.org")
    assert "LITERAL" in session.text(f"to {planted} now")


@given(
    st.lists(
        st.sampled_from(
            [
                "DE",
                "1",
                "12",
                "1234",
                "123456",
                "1234567",
                "+",
                "+",
                "+",
                "-",
                "(",
                ")",
                "/",
                "A",
                "AB",
                "@",
                "00123-45-6789",
            ]
        ),
        max_size=16,
    )
)
@example(["DE89+3704+0044+0532+0130+00123-45-6789"])
@example(["1+2+3+4+5+6+7+8+9+10+11+12+13+14+15+16+17+18"])
def test_a_plus_of_form_data_that_was_read_as_a_space_leaves_no_other_behind(pieces):
    seen = view_of("".join(pieces)).text
    assert view_of(seen).text == seen


@given(
    st.lists(
        st.sampled_from(["1", "12", "123456", "A", "AB", "DE89", "(", ")", "+", "+1", "(555)", "-", "/", " ", "a"])
    )
)
def test_pluses_of_form_data_are_found_near_pluses_as_everywhere(pieces):
    text = "".join(pieces)
    everywhere = _PLUSES.sub(lambda match: match[0][:1] + match[0][1:].replace("+", " "), text)
    assert _with_spaces(text) == everywhere
