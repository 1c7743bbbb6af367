"""Rules for what is the same everywhere: addresses, cards, accounts, dates of birth, documents."""

from __future__ import annotations

from typing import Final

from ctxguard.pii.rules.rule import shipped
from ctxguard.pii.rules.words import (
    CONNECTOR,
    DICTATED,
    DRAWING,
    GLUE,
    LEFT,
    NO_FOUR_AFTER,
    NO_FOUR_BEFORE,
    QUIET_NUMBER,
    RIGHT,
    SINCE_DIGITS,
    token,
    word,
)

_HERE: Final = "ctxguard.pii.detect.validate:"
_SEPARATED: Final = r"(?P<s>[ .-])"
# Letters outside ASCII that addresses use: Latin, Greek, Cyrillic. Scripts without spaces between words would glue.
_LETTERS: Final = "À-ɏͰ-ԯ"
_MAIL_FIRST: Final = rf"A-Za-z0-9_{_LETTERS}"
_MAIL: Final = rf"{_MAIL_FIRST}+%&~\-"
_HOST: Final = rf"A-Za-z0-9_{_LETTERS}぀-ヿ一-鿿가-힣"
_AT_HOST: Final = (
    rf"@(?:[{_HOST}](?:[{_HOST}-]{{0,61}}[{_HOST}])?\.){{1,8}}(?:xn--[A-Za-z0-9-]{{2,59}}|[A-Za-zͰ-ԯ]{{2,24}})"
)
# A bracket after any other name is the call of a program: `a@b.dot(c)`.
_BEFORE_BRACKET: Final = "|".join(
    rf"(?<=\.{ending})"
    for ending in [
        "com",
        "org",
        "net",
        "edu",
        "gov",
        "info",
        "io",
        "eu",
        "uk",
        "de",
        "fr",
        "es",
        "nl",
        "us",
        "ca",
        "au",
        "jp",
        "cn",
        "br",
        "ru",
        "pl",
        "se",
        "ch",
        "be",
        "dk",
        "fi",
        "cz",
        "ie",
        "nz",
        "kr",
        "mx",
    ]
)
# What else follows may be a letter, of a script without spaces between words, and the `_` that ends italics.
_AFTER_HOST: Final = rf"(?![A-Za-z0-9{_LETTERS}]|_\w|-[A-Za-z0-9])(?:(?!\()|{_BEFORE_BRACKET})"
_FOURS: Final = r"(?:[ -]?[A-Za-z0-9]{4}){2,7}(?:[ -]?[A-Za-z0-9]{1,3})?"
# Ends a line within a number. Spelled out, it is part of the literals that texts are searched for.
_BREAK: Final = r"(?:-\r\n|-\n| \r\n| \n|\r\n|\r\n |\r\n  |\n|\n |\n  )"
# A number in fours is no row of a table: no four stands before it, as near as within it.
_NO_FOUR_BEFORE: Final = "".join(rf"(?<!\d{{4}}[ \r\n-]{{{size}}})" for size in (1, 2, 3))
_CARD_WORDS: Final = (
    word(r"(?<!\d)(?:cc|ccn|pan)(?!\d)")
    + r"|(?<!dis)(?<!wild)card|visa|(?<!host)(?<!web)master|amex|maestro|diners|credit|debit"
    r"|carte|karte|tarjeta|carta\b|卡"
)
_SOCIAL: Final = (
    word("ssn") + r"|soc(?:ial|\.)?.{0,3}sec(?:urity|\.| no)|(?<![a-z])(?:my|the|his|her|your) social(?![a-z])"
)
_IP_WORDS: Final = (
    r"(?:\bips?|ipv[46]|loopback|localhost|subnet|\bcidr|prefix|default|mapped|connecting|remote|client|peer)"
    r"(?: from| address| addr)?[\s:=]{1,3}\Z"
)
_HOST_WORDS: Final = (
    r"(?:ip|ips|ipv4|(?<![a-z])(?:addr(?:ess)?|host|server|dns|resolver|gateway|client|peer|src|dst"
    r"|source|dest(?:ination)?"
    r"|ping|from|connect(?:ed|ing|ion)? (?:from|to)|via))[\\\"'\s:=(\[/]{1,8}\Z"
)
# Words and signs right before four numbers that make them a version or a chapter; Debian's may have an epoch.
_IP_QUIET: Final = (
    r"(?:(?:version(?:[_ -]?(?:name|code|number|string))?|\bver\b|\bv|release|section|specification|chapter|clause"
    r"|\boid\b|objectidentifier\(|new in|bump(?:s|ed)? to|upgraded? (?:to|from))[\\\"'\s:=.]{0,8}"
    rf"|[=!]=|(?:[<>~]=|\((?:<<|>>|=))\s?)(?:\d{{1,2}}:)?|{DRAWING}"
)
# What stands before is no group of the same address; a word and its colon may (`mac:3c:22:…`).
_NO_GROUP_BEFORE: Final = "".join(rf"(?<!(?<![{GLUE}])[0-9A-Fa-f]{{{size}}}:)" for size in (1, 2, 3, 4)) + "(?<!::)"
_IPV6: Final = (
    rf"(?<![{GLUE}.]){_NO_GROUP_BEFORE}(?=[0-9A-Fa-f:]{{0,40}}::|(?:[0-9A-Fa-f]{{1,4}}:){{6}})"
    r"(?:[0-9A-Fa-f]{0,4}:){2,7}(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]{0,4})(?:%\w{1,15})?(?:/\d{1,3}(?!\d))?"
    rf"(?![{GLUE}])(?!:[0-9A-Fa-f:])(?!\.\d)"
)
_BIRTH: Final = (
    word("dob|bday|b-day|geb|gebdat|nac|nasc|nasci|naiss")
    + r"|born|birth(?!time)|d\.o\.b|geboren|geboort|geburt|(?<!re)naissance|né\b|née\b|nacimiento|nascimento"
    r"|nascita|nat[oa](?:/[ao])? (?:il|a)|nascid|nacid|urodz|(?<![a-z])ur\.|(?<![a-z])roj\."
    r"|(?<![a-z])gim\.|(?<![a-z])ddn(?![a-z])|data ur|fødsel|fødd?|född|födelse|рожд|ражд|роден"
    r"|народ|nașter|naşter|nastere|cumplea|născut|nascut"
    r"|naroz|narod|\bnar\.|rođ|rojen|rojst|szület|szül\.|synty[mn]|synt\.|sünni|sünd|dzim|gimim|gimę"
    r"|gimusi|γέννησ|γεννήσ|γεννημ|γεννηθ|γεννήθ"
    r"|doğum|dogum|twieled|出生|生日|生于|生於|生年月日|생년월일|생일"
)
_DATE_SHAPE: Final = (
    rf"(?<![{GLUE}])(?:\d{{1,4}}(?P<s>[-/. ]|\. )\d{{1,2}}(?P=s)\d{{2,4}}|\d{{8}})"
    r"(?![0-9a-zÀ-ÿ_]|[A-Z](?!\d))"
)
_MONTHS: Final = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?"
# A day, a month in any language, a year.
_DAY_FIRST: Final = r"\d{1,2}(?:st|nd|rd|th|er|[.ºª])?(?: of| de)?[ -][^\W\d_]{3,10}\.?(?:,| de)?[ -](?:19|20)\d\d"


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
        validate=_HERE + "email",
    ),
    shipped(
        "email-quoted",
        "EMAIL",
        rf"(?<!\w)(?:\"[^\"\\\r\n]{{1,62}}|\\\"[^\"\\\r\n]{{1,62}}\\)\"{_AT_HOST}{_AFTER_HOST}",
    ),
    *(
        shipped(
            name,
            "IBAN",
            # looked ahead: the groups of one number may run on into the next, which is to be tried, too
            rf"(?<![A-Za-z0-9])(?=(?P<value>{country}\d{{2}}{_FOURS})(?![A-Za-z0-9])){country}\d{{2}}",
            validate=_HERE + "iban_length",
        )
        for name, country in (("iban", "[A-Z]{2}"), ("iban-small", "[a-z]{2}"))
    ),
    shipped(
        "card-in-fours",
        "CREDIT_CARD",
        rf"{LEFT}(?<!\[\.){NO_FOUR_BEFORE}\d{{4}}{_SEPARATED}\d{{4}}(?P=s)\d{{4}}(?P=s)\d{{4}}{RIGHT}{NO_FOUR_AFTER}",
        validate=_HERE + "card",
    ),
    shipped(
        "card",
        "CREDIT_CARD",
        rf"{LEFT}(?<!\[\.)(?:\d{{4}}{_SEPARATED}\d{{4}}(?P=s)\d{{4}}(?P=s)\d{{4}}(?P=s)\d{{1,3}}"
        rf"|\d{{4}}[ .-]\d{{6}}[ .-]\d{{4,5}}|\d{{14,16}}){RIGHT}",
        validate=_HERE + "card",
        quiet=DRAWING,
    ),
    *(
        shipped(
            f"card-on-two-lines-{name}-{number}",
            "CREDIT_CARD",
            rf"{LEFT}{_NO_FOUR_BEFORE}{broken}{RIGHT}(?![ \r\n]{{1,3}}\d)",
            validate=_HERE + "card_on_two_lines",
            score=0.9,
        )
        # a rule for each place of the break: what three have in common does not hold it
        for name, sign in (("spaced", " "), ("hyphened", "-"))
        for number, broken in enumerate(_two_lines(sign), 1)
    ),
    shipped(
        "card-named",
        "CREDIT_CARD",
        rf"{LEFT}\d(?:[ .-]?\d){{11,18}}{RIGHT}",
        validate=_HERE + "luhn",
        context=_CARD_WORDS,
    ),
    *(
        shipped(
            f"{label.lower()}-dictated", label, DICTATED, validate=f"{_HERE}dictated:{kind}", context=words, score=0.6
        )
        for label, kind, words in (("CREDIT_CARD", "card", _CARD_WORDS), ("SSN", "us_ssn", _SOCIAL))
    ),
    shipped(
        "ssn",
        "SSN",
        rf"{LEFT}\d{{3}}{_SEPARATED}\d{{2}}(?P=s)\d{{4}}{RIGHT}",
        validate=_HERE + "us_ssn",
        quiet=DRAWING,
        score=0.9,
    ),
    shipped(
        "ssn-split",
        "SSN",
        rf"{LEFT}\d{{3}}-\d{{6}}{RIGHT}",
        validate=_HERE + "us_ssn",
        quiet=QUIET_NUMBER,
        score=0.5,
    ),
    shipped(
        "ssn-named",
        "SSN",
        rf"{LEFT}\d{{3}}(?P<s>[ .-]?)\d{{2}}(?P=s)\d{{4}}{RIGHT}",
        context=_SOCIAL,
    ),
    shipped(
        "itin",
        "TAX_ID",
        rf"{LEFT}\d{{3}}[ -]?\d{{2}}[ -]?\d{{4}}{RIGHT}",
        validate=_HERE + "stdnum:us.itin",
        context=word("itin|tin") + r"|taxpayer|tax.?id",
    ),
    shipped(
        "itin-written",
        "TAX_ID",
        rf"{LEFT}\d{{3}}-\d{{2}}-\d{{4}}{RIGHT}",
        validate=_HERE + "stdnum:us.itin",
        quiet=DRAWING,
        score=0.8,
    ),
    shipped(
        "ipv4",
        "IP",
        rf"(?<![{GLUE}])(?<![{GLUE}][.-])\d{{1,3}}\.\d{{1,3}}\.\d{{1,3}}\.\d{{1,3}}(?:/\d{{1,2}}(?!\d))?"
        rf"(?![{GLUE}])(?![.-][{GLUE}])",
        validate=_HERE + "is_address",
        quiet=_IP_QUIET,
    ),
    shipped(
        "ipv4-own",
        "IP",
        rf"(?<![{GLUE}])(?<![{GLUE}]\.)\d{{1,3}}\.\d{{1,3}}\.\d{{1,3}}\.\d{{1,3}}(?:/\d{{1,2}}(?!\d))?"
        rf"(?![{GLUE}])(?!\.[{GLUE}])",
        validate=_HERE + "is_local_address",
        context=_IP_WORDS,
        score=0.5,
    ),
    shipped(
        "ipv4-small",
        "IP",
        rf"(?<![{GLUE}])(?<![{GLUE}][.-])\d\.\d\.\d\.\d(?![{GLUE}])(?![.-][{GLUE}])",
        validate=_HERE + "small_address",
        context=_HOST_WORDS,
        quiet=_IP_QUIET,
    ),
    shipped(
        "ipv4-small-marked",
        "IP",
        rf"(?<![{GLUE}])(?<![{GLUE}][.-])\d\.\d\.\d\.\d(?:(?=:\d{{2,5}}(?![{GLUE}]))|(?<=\[\d\.\d\.\d\.\d)(?=\]))",
        validate=_HERE + "small_address",
    ),
    shipped("ipv6", "IP", _IPV6, validate=_HERE + "address_length"),
    shipped(
        "ipv6-own",
        "IP",
        r"(?<![\w:.])::1?(?:/\d{1,3}(?!\d))?(?![\w:])(?!\.\d)",
        validate=_HERE + "address_length:any",
        context=_IP_WORDS,
        score=0.5,
    ),
    *(
        shipped(
            f"mac-{name}",
            "MAC",
            rf"(?<![{GLUE}])(?<![{GLUE}]-){_NO_GROUP_BEFORE}"
            rf"[0-9A-Fa-f]{{2}}(?:{sign}[0-9A-Fa-f]{{2}}){{5}}(?![{GLUE}])(?![:-]\s{{0,24}}[0-9A-Fa-f]{{2}}[:-])(?![:-][{GLUE}])",
            validate=_HERE + "mac",
            # bytes of a key go on in the next line
            quiet=r"(?:[:-][0-9a-f]{2}){2}[:-]\s+",
        )
        for name, sign in (("colons", ":"), ("hyphens", "-"))
    ),
    shipped(
        "mac-dotted",
        "MAC",
        r"(?<![\w.])(?<!\[\*)[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}(?![\w]|\.\w)",
        validate=_HERE + "mac",
    ),
    *(
        shipped(name, "CRYPTO", token(form), validate=_HERE + "crypto")
        for name, form in (
            ("bitcoin", "[13][1-9A-HJ-NP-Za-km-z]{25,34}"),
            ("bitcoin-segwit", "bc1[a-z0-9]{25,87}|BC1[A-Z0-9]{25,87}"),
        )
    ),
    shipped(
        "ethereum",
        "CRYPTO",
        token(r"0x[0-9a-fA-F]{40}"),
        validate=_HERE + "random_enough",
    ),
    shipped(
        "birth-date",
        "DATE_OF_BIRTH",
        _DATE_SHAPE,
        validate=_HERE + "date",
        context=rf"{SINCE_DIGITS}(?:{_BIRTH})[^\d]{{0,20}}\Z",
        # a time may follow after a `T`, and after a blank if it is midnight: files are born at any hour, people at none
        behind=r"(?! (?!00:)\d\d:)",
    ),
    shipped(
        "birth-date-in-words",
        "DATE_OF_BIRTH",
        rf"(?i)(?<!\w)(?:{_DAY_FIRST}|{_MONTHS} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}})(?!\w)",
        context=rf"{SINCE_DIGITS}(?:{_BIRTH})[^\d]{{0,24}}\Z",
    ),
    shipped(
        "passport",
        "PASSPORT",
        rf"(?i)(?:passport|reisepass|passeport|pasaporte|passaporto|paspoort){CONNECTOR}"
        r"(?P<value>(?=(?:[A-Z]{0,3}\d){4})[A-Z0-9]{6,9})(?!\w)",
    ),
    shipped(
        "driver-license",
        "DRIVER_LICENSE",
        rf"(?i)driv(?:er|ing)(?:'?s)?[ _-]{{0,2}}licen[sc]e{CONNECTOR}"
        r"(?P<value>(?!\d{4}-\d\d-\d\d(?!\d))(?=(?:[A-Z-]{0,5}\d){4})[A-Z0-9](?:[A-Z0-9-]{4,17})[A-Z0-9])(?!\w)",
    ),
    shipped(
        "card-code",
        "CARD_CODE",
        r"(?<![\w.,/-])\d{3,4}(?![\w/-])(?![.,]\d)",
        context=(
            r"(?<![a-z])(?:cvv2?|cvc2?|csc|card[ _-]?(?:security|verification)[ _-]?(?:code|number|value)"
            r"|security[ _-]?code|prüfziffer|kartenprüfnummer|cryptogramme|código[ _-]de[ _-]seguridad"
            r"|codice[ _-]di[ _-]sicurezza|(?:digits|number|code) on the back)"
            r"(?![a-z])(?:[^\w<{}!$%&@+^~.;]|_|(?:is|are|number|code|no|ist|est|es|è)(?![a-z])){1,8}\Z"
        ),
        score=0.6,
    ),
)
