"""The rule sets that ship: `DIGITS` and `SSN` as the pattern documents have them, `STANDARD` for practice."""

from __future__ import annotations

import re
from typing import Final

from ctxguard.pii.countries import COUNTRY_RULES
from ctxguard.pii.credentials import CREDENTIAL_RULES
from ctxguard.pii.phones import phone_rules
from ctxguard.pii.rules import RuleSet, shipped
from ctxguard.pii.words import CONNECTOR, DRAWING, LEFT, QUIET_NUMBER, QUIET_THING, RIGHT, SINCE_DIGITS, word

__all__ = ["CORE_RULES", "DIGITS", "SSN", "STANDARD"]

_HERE: Final = "ctxguard.pii.validators:"
_SEPARATED: Final = r"(?P<s>[ .-])"
_LETTERS: Final = "À-ɏͰ-ԯ"
"""Letters outside ASCII that addresses use: Latin, Greek, Cyrillic. Scripts without spaces between words would glue."""
_MAIL_FIRST: Final = rf"A-Za-z0-9_{_LETTERS}"
_MAIL: Final = rf"{_MAIL_FIRST}+%&~\-"
_MAIL_LEAD: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+%&~-." + "".join(
    map(chr, (*range(0xC0, 0x250), *range(0x370, 0x530)))
)
_HOST: Final = rf"A-Za-z0-9_{_LETTERS}぀-ヿ一-鿿가-힣"
_AT_HOST: Final = (
    rf"@(?:[{_HOST}](?:[{_HOST}-]{{0,61}}[{_HOST}])?\.){{1,8}}(?:xn--[A-Za-z0-9-]{{2,59}}|[A-Za-zͰ-ԯ]{{2,24}})"
)
_AFTER_HOST: Final = rf"(?![A-Za-z0-9{_LETTERS}]|_\w|-[A-Za-z0-9]|\()"
"""What else follows may be a letter, of a script without spaces between words, and the `_` that ends italics."""
_HEX: Final = "0123456789abcdefABCDEF"
_FOURS: Final = r"(?:[ -]?[A-Za-z0-9]{4}){2,7}(?:[ -]?[A-Za-z0-9]{1,3})?"
_BREAK: Final = r"(?:-?\r?\n|\r?\n {1,2}| \r?\n)"
"""Ends a line within a number."""
_NO_FOUR_BEFORE: Final = "".join(rf"(?<!\d{{4}}[ \r\n-]{{{size}}})" for size in (1, 2, 3))
"""A number in fours is no row of a table: no four stands before it, as near as within it."""
_CARD_WORDS: Final = (
    word("cc|ccn|pan") + r"|(?<!dis)(?<!wild)card|visa|(?<!host)(?<!web)master|amex|maestro|diners|credit|debit"
    r"|carte|karte|tarjeta|carta\b|卡"
)
_PAID: Final = word("order|payment|purchase|booking|reservation|transaction|invoice|amount|total|price") + r" \Z"
"""Words that make other numbers an order's or a sum, but, said right before it, not one that passes as a card's.

Of 16 digits at random 3 in 100 pass; as a key, with `id`, `#` or a colon, these words go on keeping them quiet.
"""
_IP_WORDS: Final = (
    r"(?:\bips?|ipv[46]|loopback|localhost|subnet|\bcidr|prefix|default|mapped|connecting|remote|client|peer)"
    r"(?: from| address| addr)?[\s:=]{1,3}\Z"
)
"""Words right before an address of no host in particular (loopback, unspecified) that make it one all the same."""
_IP_QUIET: Final = (
    r"(?:(?:version(?:[_ -]?(?:name|code|number|string))?|\bver\b|\bv|release|section|specification|chapter|clause|§"
    r"|\boid\b|objectidentifier\(|new in|bump(?:s|ed)? to|upgraded? (?:to|from))[\\\"'\s:=.]{0,8}"
    rf"|[=!]=|(?:[<>~]=|\((?:<<|>>|=))\s?)(?:\d{{1,2}}:)?|{DRAWING}"
)
"""Words and signs right before four numbers that make them a version or a chapter; Debian's may have an epoch."""
_IPV6: Final = (
    r"(?<![\w:.])(?=[0-9A-Fa-f:]{0,40}::|(?:[0-9A-Fa-f]{1,4}:){6})(?:[0-9A-Fa-f]{0,4}:){2,7}(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]{0,4})(?:%\w{1,15})?(?:/\d{1,3}(?!\d))?"
    r"(?![\w:])(?!\.\d)"
)
_BIRTH: Final = (
    word("dob|bday|geb|nac")
    + r"|born|birth(?!time)|d\.o\.b|geboren|geboort|geburt|naissance|né\b|née\b|nacimiento|nascimento"
    r"|nascita|nat[oa] (?:il|a)|urodz|fødsel|född|födelse|рожд|出生|生日|生于|生於|生年月日|생년월일|생일"
)
_CRYPTO_QUIET: Final = r"(?:tx|txid|transaction|hash|commit|sha\d*|digest|block)[\"'\s:=#]{1,6}"
_DATE_SHAPE: Final = r"(?<!\w)(?:\d{1,4}(?P<s>[-/. ])\d{1,2}(?P=s)\d{2,4}|\d{8})(?: \d\d:|(?! \d\d:)(?![0a_]|A(?!0)))"
"""A time may follow after a `T`; after a blank its hour is looked at, too: files are born at any, people at none."""
_MONTHS: Final = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?"
_DAY_FIRST: Final = r"\d{1,2}(?:st|nd|rd|th|er|[.ºª])?(?: of| de)?[ -][^\W\d_]{3,10}\.?(?:,| de)?[ -](?:19|20)\d\d"
"""A day, a month in any language, a year."""


def _two_lines(sign: str) -> tuple[str, ...]:
    """Return a card number in fours with a line break in place of one separator, as expressions."""
    four = r"\d{4}"
    return tuple(
        four + "".join((_BREAK if place == broken else sign) + four for place in range(3)) for broken in range(3)
    )


CORE_RULES: Final = (
    shipped(
        "email",
        "EMAIL",
        rf"(?<![{_MAIL}.])[.%&~+-]{{0,64}}(?P<value>[{_MAIL_FIRST}](?:[{_MAIL}.]{{0,62}}[{_MAIL}])?{_AT_HOST})"
        rf"{_AFTER_HOST}",
        anchor="@",
        lead=_MAIL_LEAD,
        validate=_HERE + "email",
    ),
    shipped(
        "email-quoted",
        "EMAIL",
        # each form begins with its sign, what stands before comes second: so most of a text is passed over at once
        rf"(?:\"(?<!\w\")[^\"\\\r\n]{{1,62}}\"|\\(?<!\w\\)\"[^\"\\\r\n]{{1,62}}\\\"){_AT_HOST}{_AFTER_HOST}",
        anchor='"@',
    ),
    *(
        shipped(
            name,
            "IBAN",
            # looked ahead: the groups of one number may run on into the next, which is to be tried, too
            rf"(?<![A-Za-z0-9])(?=(?P<value>{country}\d{{2}}{_FOURS})(?![A-Za-z0-9])){country}\d{{2}}",
            shape=f"{gate}[ 0Aa-]",
            gate=gate,
            validate=_HERE + "iban_length",
        )
        for name, country, gate in (("iban", "[A-Z]{2}", "AA00"), ("iban-small", "[a-z]{2}", "aa00"))
    ),
    shipped(
        "card-in-fours",
        "CREDIT_CARD",
        rf"{LEFT}\d{{4}}{_SEPARATED}\d{{4}}(?P=s)\d{{4}}(?P=s)\d{{4}}{RIGHT}",
        kind="number",
        validate=_HERE + "card",
    ),
    shipped(
        "card",
        "CREDIT_CARD",
        rf"{LEFT}(?:\d{{4}}{_SEPARATED}\d{{4}}(?P=s)\d{{4}}(?P=s)\d{{4}}(?P=s)\d{{1,3}}"
        rf"|\d{{4}}[ .-]\d{{6}}[ .-]\d{{4,5}}|\d{{14,16}}){RIGHT}",
        kind="number",
        validate=_HERE + "card",
        quiet=QUIET_NUMBER,
    ),
    *(
        shipped(
            f"card-on-two-lines-{name}",
            "CREDIT_CARD",
            rf"{LEFT}{_NO_FOUR_BEFORE}(?:{'|'.join(_two_lines(sign))}){RIGHT}(?![ \r\n]{{1,3}}\d)",
            shape="0000" + "[ \\r\\n-]{1,3}0000" * 3,
            gate=f"0000{sign}0000",
            validate=_HERE + "card_on_two_lines",
            score=0.9,
        )
        for name, sign in (("spaced", " "), ("hyphened", "-"))
    ),
    shipped(
        "card-in-prose",
        "CREDIT_CARD",
        rf"{LEFT}\d{{16}}{RIGHT}",
        kind="number",
        validate=_HERE + "card",
        context=_PAID,
        needs_context=True,
        score=0.6,
    ),
    shipped(
        "card-named",
        "CREDIT_CARD",
        rf"{LEFT}\d(?:[ .-]?\d){{11,18}}{RIGHT}",
        kind="number",
        validate=_HERE + "luhn",
        context=_CARD_WORDS,
        needs_context=True,
        quiet=QUIET_NUMBER,
    ),
    shipped(
        "ssn",
        "SSN",
        rf"{LEFT}\d{{3}}{_SEPARATED}\d{{2}}(?P=s)\d{{4}}{RIGHT}",
        kind="number",
        validate=_HERE + "us_ssn",
        quiet=QUIET_THING,
        score=0.9,
    ),
    shipped(
        "ssn-split",
        "SSN",
        rf"{LEFT}\d{{3}}-\d{{6}}{RIGHT}",
        kind="number",
        validate=_HERE + "us_ssn",
        quiet=QUIET_NUMBER,
        score=0.5,
    ),
    shipped(
        "ssn-named",
        "SSN",
        rf"{LEFT}\d{{3}}(?P<s>[ .-]?)\d{{2}}(?P=s)\d{{4}}{RIGHT}",
        kind="number",
        context=word("ssn") + r"|social.{0,3}security",
        needs_context=True,
    ),
    shipped(
        "itin",
        "TAX_ID",
        rf"{LEFT}\d{{3}}[ -]?\d{{2}}[ -]?\d{{4}}{RIGHT}",
        kind="number",
        validate=_HERE + "stdnum:us.itin",
        context=word("itin|tin") + r"|taxpayer|tax.?id",
        needs_context=True,
    ),
    shipped(
        "itin-written",
        "TAX_ID",
        rf"{LEFT}\d{{3}}-\d{{2}}-\d{{4}}{RIGHT}",
        kind="number",
        validate=_HERE + "stdnum:us.itin",
        quiet=QUIET_NUMBER,
        score=0.8,
    ),
    shipped(
        "ipv4",
        "IP",
        r"(?<![\w])(?<![\w][.-])(?<![\w]\.)\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?:/\d{1,2}(?!\d))?(?!\w)(?![.-]\w)",
        kind="number",
        validate=_HERE + "is_address",
        quiet=_IP_QUIET,
    ),
    shipped(
        "ipv4-own",
        "IP",
        r"(?<![\w])(?<![\w]\.)\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?:/\d{1,2}(?!\d))?(?!\w)(?!\.\w)",
        kind="number",
        validate=_HERE + "is_local_address",
        context=_IP_WORDS,
        needs_context=True,
        score=0.5,
    ),
    *(
        shipped(
            name,
            "IP",
            _IPV6,
            shape=shape,
            gate=gate,
            lead=_HEX + ":",
            validate=_HERE + "address_length",
        )
        for name, shape, gate in (
            ("ipv6-short", "::[h.]?", "::"),
            ("ipv6-full", "h:h{1,4}:h{1,4}:h{1,4}:h{1,4}:", "h:h"),
        )
    ),
    shipped(
        "ipv6-own",
        "IP",
        r"(?<![\w:.])::1?(?:/\d{1,3}(?!\d))?(?![\w:])(?!\.\d)",
        anchor="::",
        lead="",
        validate=_HERE + "address_length:any",
        context=_IP_WORDS,
        needs_context=True,
        score=0.5,
    ),
    *(
        shipped(
            f"mac-{name}",
            "MAC",
            rf"(?<![\w:-])[0-9A-Fa-f]{{2}}(?:{sign}[0-9A-Fa-f]{{2}}){{5}}(?![\w:]|-\w)",
            shape=sign.join(["hh"] * 6),
            gate=sign.join(["hh"] * 6),
            validate=_HERE + "mac",
        )
        for name, sign in (("colons", ":"), ("hyphens", "-"))
    ),
    shipped(
        "mac-dotted",
        "MAC",
        r"(?<![\w.])[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}(?![\w]|\.\w)",
        shape=r"hhhh\.hhhh\.hhhh",
        gate="hhhh.hhhh.hhhh",
        validate=_HERE + "mac",
        quiet=QUIET_NUMBER,
    ),
    shipped(
        "bitcoin",
        "CRYPTO",
        r"[13][1-9A-HJ-NP-Za-km-z]{25,34}|bc1[a-z0-9]{25,87}|BC1[A-Z0-9]{25,87}",
        kind="token",
        validate=_HERE + "crypto",
    ),
    shipped(
        "ethereum",
        "CRYPTO",
        r"0x[0-9a-fA-F]{40}",
        kind="token",
        quiet=_CRYPTO_QUIET,
        validate=_HERE + "random_enough",
    ),
    shipped(
        "birth-date",
        "DATE_OF_BIRTH",
        _DATE_SHAPE,
        kind="number",
        validate=_HERE + "date",
        context=rf"{SINCE_DIGITS}(?:{_BIRTH})[^\d]{{0,20}}\Z",
        needs_context=True,
        rare_context=True,
    ),
    *(
        shipped(
            f"birth-date-{anchor}",
            "DATE_OF_BIRTH",
            rf"(?i){re.escape(anchor)}(?<!renaissance)(?!time)[^\d\n]{{0,20}}?"
            rf"(?P<value>{_DAY_FIRST}|{_MONTHS} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}})(?!\w)",
            anchor=anchor,
            lead="",
        )
        for anchor in ("born", "birth", "dob", "d.o.b", "geburt", "geboren", "naissance", "nacimiento", "nascita")
    ),
    *(
        shipped(
            name,
            "PASSPORT",
            rf"(?i){name}{CONNECTOR}(?P<value>(?=(?:[A-Z]{{0,3}}\d){{4}})[A-Z0-9]{{6,9}})(?!\w)",
            anchor=name,
            lead="",
        )
        for name in ("passport", "reisepass", "passeport", "pasaporte", "passaporto", "paspoort")
    ),
    shipped(
        "driver-license",
        "DRIVER_LICENSE",
        rf"(?i)driv(?:er|ing)(?:'?s)?[ _-]{{0,2}}licen[sc]e{CONNECTOR}"
        r"(?P<value>(?!\d{4}-\d\d-\d\d(?!\d))(?=(?:[A-Z-]{0,5}\d){4})[A-Z0-9](?:[A-Z0-9-]{4,17})[A-Z0-9])(?!\w)",
        anchor="driv",
        lead="",
    ),
    shipped(
        "bank-account",
        "BANK_ACCOUNT",
        r"(?i)account(?:(?<=bank[ _-]account)|(?<=savings[ _-]account)|(?<=deposit[ _-]account)"
        r"|(?<=checking[ _-]account))"
        rf"{CONNECTOR}(?P<value>\d[\d -]{{6,18}}\d)(?!\w)",
        anchor="account",
        lead="",
    ),
)
DIGITS: Final = RuleSet(
    "digits", (shipped("digits", "NUMBER", r"\d{3,}", shape="000", gate="000", placeholder="[REDACTED]"),)
)
"""Any run of three or more digits, as the harness document has it."""
SSN: Final = RuleSet(
    "ssn", (shipped("ssn-shape", "SSN", r"\d{3}-\d{2}-\d{4}", shape="000-00-0000", gate="000-00-0000"),)
)
"""The bare shape of a US social security number, with any digits, as the pattern document has it."""
STANDARD: Final = RuleSet("standard", (*CORE_RULES, *phone_rules(), *CREDENTIAL_RULES, *COUNTRY_RULES))
"""Personal data and credentials that can be told by their form, check digits or a word nearby."""
