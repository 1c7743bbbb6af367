"""Nothing is found that is no value: what strangers' programs, tables, and documents hold in the form of one."""

from __future__ import annotations

import pytest

from ctxguard.pii import STANDARD

ROWS = "\n".join
NO_VALUES = {
    "weights of collation": ROWS(
        f"{code:04X}      ; [.{weight:04X}.0020.000{level}] # LATIN SMALL LETTER"
        for code, weight, level in ((0x10D, 0x1FD7, 2), (0x453, 0x23BB, 8), (0xE4, 0x1FA3, 2))
    ),
    "variable weights": "0020  ; [*0209.0020.0002] # SPACE\n1FD7 ; [!1FD7.0020.0002][.0000.0029.0002]",
    "boxes of glyphs": "C 35 ; WX 554 ; N numbersign ; B 66 0 618 700 ;\nC 92 ; WX 640 ; N backslash ; B 233 -100 525 740 ;",
    "more boxes": "C 167 ; WX 560 ; N section ; B 65 -158 602 755 ;\nC 174 ; WX 240 ; N guilsinglright ; B 70 108 253 469 ;",
    "code points": '"\\x{0391}\\x{0342}\\x{0399}", # U+1FB7 => 0391 0342 0399\n0390; F; 0399 0308 0301; # GREEK',
    "a version beside a number": "src/testdir/test_number.vim\n\nPatch 8.2.3358\nProblem: none",
    "a release": "the pager of numbers.\n\n## 95.0.0 (2016-2-3)\n\n### Breaking",
    "pages of a journal": "Amer. Math. Monthly 77, 259-264 1970.",
    "clauses": "// 27.7.3.3 Assign/swap\n * 27.7.3.9 Rvalue stream insertion\n// C++11 [27.7.3.9] Rvalue\nfetch step 12.1.1.3",
    "a constant": "   *   FT_LCD_FILTER_DEFAULT ::\n   *     This is the default",
    "a type": "    xen_domain_handle_t handle;\n    vki_uint32_t flags;\nuser_name: my_uint32_t",
    "a reference": "contains symbolic links (c.f., CVE-2022-39253), the objects",
    "a code point in hexadecimal": "(0x02712, 0x02712,),  # Black Nib\n    (0x02714, 0x02714,),",
    "types of resources": '"AWS::ApiGateway::ApiKey": "48205d4ffd7feba3",\n"AWS::IAM::User": "fa88f766d15e3dd7"',
    "a serial number": "Serial Number:\n            cb:2d:80:99:5a:69:52:61\n        Signature",
    "bytes of a buffer": "// Prints: <Buffer 01 02 03 04 05>",
    "a cookie made of words": 'Set-Cookie: Part_Number="Rocket_Launcher_0001"; Version="1"',
    "a decimal": "can002 apply 0 -> #2238000000000000",
    "a list of services": ROWS(
        f"syn keyword\tservice\t{name}" for name in ("imap", "ftp", "pop2", "kpasswd", "krb524", "ospf6d", "x400-snd")
    ),
    "a list of settings": ROWS(
        f'     "{name}",' for name in ("make", "mbuild", "pager", "password", "patch", "perl5lib_x")
    ),
    "a list of names": ROWS(
        f"(define {name}, 1)" for name in ("car", "cdr", "vector", "string", "password", "hash2x", "base64x")
    ),
    "a line of a program": '    base_url=self.url,\n    api_key=self.openai_api_key,\n    provider_path="openai/v1Xy9",\n',
}
VALUES = {
    "3c22.fb91.a07e is its address": "MAC",
    "the switch (0c22.fb91.a07e)": "MAC",
    "SIN 130 692 544": "CA_SIN",
    "it is 130-692-544, he said": "CA_SIN",
    "numbers: 212 736 5000": "PHONE",
    "call 212-736 5000": "PHONE",
    "# 27.7.30.3 is up": "IP",
    "// 10.20.30.40 is the host": "IP",
    "name,password\njane,Xk7!qzTm2": "PASSWORD",
    "one, two\nname,password\njane,Xk7!qzTm2": "PASSWORD",
    "username: jdoe_t42": "USERNAME",
    "codice fiscale RSSMRA85T10A562S": "IT_FISCAL_CODE",
    "card 6011000400000000": "CREDIT_CARD",
}


@pytest.mark.parametrize("what", NO_VALUES)
def test_what_only_has_the_form_of_a_value_is_not_found(what):
    text = NO_VALUES[what]
    assert [(span.label, text[span.start : span.end]) for span in STANDARD.find(text)] == []
    assert not STANDARD.scan(text)


@pytest.mark.parametrize("text", VALUES)
def test_what_is_a_value_is_found(text):
    assert VALUES[text] in [span.label for span in STANDARD.find(text)]
