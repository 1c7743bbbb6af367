"""Phone numbers: international by their plan, national by the plans of chosen regions or by a word nearby."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ctxguard.pii.rules.rule import Rule, shipped
from ctxguard.pii.rules.words import (
    CALLING,
    DICTATED,
    DRAWING,
    GLUE,
    LEFT,
    PHONE_JOIN,
    PHONE_LOOSELY,
    PHONE_STRICTLY,
    QUIET_NUMBER,
    SINCE_DIGITS,
)

REGIONS: Final = ("GB", "DE", "FR", "IT", "NL", "AU", "JP", "KR", "CH", "AT", "BE", "SE", "IL", "IN", "ZA")
"""Regions whose national numbers begin with 0, so that they can be told without a word nearby."""
_HERE: Final = "ctxguard.pii.detect.validate:"
# Most numbers with hyphens are dates: they are turned away by their shape, before any word is looked at.
_NO_DATE: Final = r"(?!\(?\d{4}-\d\d-\d\d(?!-?\d))"
# A number ends here; an extension (`x12`) or a word glued to it may follow, but no unit of one or two letters.
_END: Final = rf"(?![A-Z0-9_]|[a-zÀ-ÿ](?!\d|[a-zÀ-ÿ]{{2}})|[-.][{GLUE}])"
_EXTENSION: Final = r"(?:, ?| )?(?:[xX]|[eE]xt(?:n|ension)?\.?|poste|Durchwahl|DW|int\.|#) ?\d{1,6}(?!\d)"
_AMID: Final = rf"{DRAWING}|\d[:,]\d*[.]?"
_QUIET: Final = rf"{QUIET_NUMBER}|{_AMID}|[$€£¥]\s?"


_LABELS_BEHIND: Final = (
    "office|mobile?|mob|cell(?:ular)?|fax|tel(?:ephone|efon|éfono|efono)?|t[eé]l[eé]phone|phone|home|work|landline|direct|private?|whatsapp"
    "|handy|büro|privat|gesch(?:äftlich)?|bureau|domicile|portable|fijo|móvil|oficina|casa|trabajo|ufficio|cellulare|fisso"
    "|kantoor|thuis|werk|mobiel|biuro|dom|kom|komórka|praca|telemóvel|escritório|kontor|hem|arbete|hjem|arbejde|koti|työ|domů|práce|kancelář|otthon|munkahely|iroda|acasă|serviciu|birou"
    "|κινητό|σπίτι|γραφείο|εργασία|мобилен|дом|офис|служебен|mobitel|posao|ured|kodu|töö|mobiil|mājas|darbs|namai|darbas"
)
# A label behind a number ends there: what it begins is a list of numbers, and no sentence about a thousand phones.
_LABELED_BEHIND: Final = (
    rf"[ \t]?(?:[-–—:,/(\[] ?)?(?<![a-z])(?:{_LABELS_BEHIND})(?![a-z])\.?[ \t]*"
    r"(?:\Z|[\r\n,;.)\]|/\"'<]|(?:or|and|und|et|y|e|oder|ou) ?[+(\d])"
)

# The number before has the word: `Tel. 810 385 537 / 817 868 760`. What stands between the two is looked for first.
_AND: Final = r"(?: ?[/|,;] ?| (?:or|und|o|ou|oder|et|y|e|and|i|a|ja|és) )\Z"
_LISTED: Final = rf"\A(?=[\s\S]*\d{_AND})[\s\S]*(?:{PHONE_STRICTLY})[^\d\n]{{0,4}}[+(]?\d[\d ().-]{{5,20}}{_AND}"
_GROUPED: Final = (
    rf"{LEFT}{_NO_DATE}(?=(?:\D{{0,2}}\d){{6}})(?:\(\d{{1,6}}(?:[ -]\d{{1,3}})?\)|\d{{1,6}})"
    r"(?:(?:[ ./-]|\)[ .-]?| ?\()\d{1,9}){1,6}"
) + _END
_PLAIN: Final = rf"{LEFT}\d{{7,14}}" + _END

_EVERYWHERE: Final = (
    shipped(
        "phone-brazil",
        "PHONE",
        rf"{LEFT}(?<!\d[ /])(?:\(\d{{2}}\) ?\d{{4,5}}|\d{{2}} \d{{5}})-\d{{4}}" + _END,
        validate=_HERE + "phone_of:BR",
        quiet=_AMID,
        score=0.7,
    ),
    shipped(
        "phone-china",
        "PHONE",
        rf"{LEFT}\d{{3}}(?P<s>[ -]?)\d{{4}}(?P=s)\d{{4}}" + _END,
        validate=_HERE + "phone_of:CN",
        context=r"[一-鿿][^\dA-Za-z]{0,12}\Z",
        quiet=rf"{_QUIET}|(?:订单|訂單|单号|单據|编号|编码|流水|序列|批次|工号|学号|账号|帐号)[^\d]{{0,8}}",
        score=0.7,
    ),
    shipped(
        "phone-international",
        "PHONE",
        rf"(?<![{GLUE}])(?<![{GLUE}]\+)(?=\+(?:\D{{0,2}}\d){{7}})"
        r"\+\d{1,4}(?:(?:[ ./-]|\) ?| ?\()?\d{1,14}){1,7}" + _END,
        validate=_HERE + "international_phone",
        tail=_EXTENSION,
    ),
    shipped(
        "phone-international-loose",
        "PHONE",
        rf"(?<![{GLUE}])(?<![{GLUE}]\+)\+\d{{10,14}}" + _END,
        validate=_HERE + "international_phone:possible",
        quiet=r"(?:\A|\n)[ +]*",
        tail=_EXTENSION,
        score=0.8,
    ),
    shipped(
        "phone-dialed",
        "PHONE",
        rf"{LEFT}\d{{11,15}}" + _END,
        validate=_HERE + "dialed_phone",
        quiet=_QUIET,
        score=0.7,
    ),
    shipped(
        "phone-nanp",
        "PHONE",
        rf"{LEFT}(?:(?:\+?\d{{1,3}}[-. ])?(?:\(\d{{3}}\)[-. ]?\d{{3}}[-. ]|\d{{3}}-\d{{3}}[- ]"
        rf"|\d{{3}}\.\d{{3}}[. ])\d{{4}}"
        r"|(?<!\d[ /])(?:\+?\d{1,3}[-. ])?\d{3} \d{3}[- ]\d{4})" + _END,
        validate=_HERE + "nanp_phone",
        quiet=_AMID,
        tail=_EXTENSION,
        score=0.9,
    ),
    shipped(
        "phone-named",
        "PHONE",
        _GROUPED,
        validate=_HERE + "loose_phone",
        context=rf"{SINCE_DIGITS}(?:{PHONE_LOOSELY}|(?<![a-z])number)[^\d]{{0,24}}\Z",
        quiet=_QUIET,
        tail=_EXTENSION,
        score=0.6,
    ),
    shipped(
        "phone-dictated",
        "PHONE",
        DICTATED,
        validate=_HERE + "dictated:nanp_phone",
        context=rf"{SINCE_DIGITS}(?:{PHONE_LOOSELY}|(?<![a-z])number)[^\d]{{0,24}}\Z",
        score=0.6,
    ),
    *(
        shipped(
            name,
            "PHONE",
            pattern,
            validate=_HERE + "loose_phone",
            context=words,
            quiet=quiet,
            tail=_EXTENSION,
            score=0.5,
        )
        for name, pattern, words, quiet in (
            ("phone-called", _GROUPED, rf"{SINCE_DIGITS}{CALLING}[^\d]{{0,24}}\Z", _QUIET),
            ("phone-called-plain", _PLAIN, rf"{SINCE_DIGITS}{CALLING}{PHONE_JOIN}", _QUIET),
            ("phone-listed", _GROUPED, _LISTED, _AMID),
            ("phone-listed-plain", _PLAIN, _LISTED, _AMID),
        )
    ),
    shipped(
        "phone-labeled-behind",
        "PHONE",
        rf"{LEFT}{_NO_DATE}(?=(?:\D{{0,2}}\d){{6}})(?:\+|\()?\d{{1,14}}\)?(?:[ ./-]\(?\d{{2,9}}\)?){{0,6}}(?!\d)",
        validate=_HERE + "loose_phone",
        behind=_LABELED_BEHIND,
        quiet=_QUIET,
        score=0.6,
    ),
    shipped(
        "phone-plain",
        "PHONE",
        _PLAIN,
        validate=_HERE + "loose_phone",
        context=rf"{SINCE_DIGITS}(?:{PHONE_STRICTLY}){PHONE_JOIN}",
        quiet=_QUIET,
        tail=_EXTENSION,
        score=0.6,
    ),
)


def phone_rules(regions: Sequence[str] = REGIONS) -> tuple[Rule, ...]:
    """Return rules for phone numbers.

    Args:
        regions: countries (ISO 3166, two letters) whose national numbers are found without a word nearby.
    """
    return (
        *_EVERYWHERE,
        shipped(
            "phone-national",
            "PHONE",
            rf"{LEFT}(?<!\d[ /]){_NO_DATE}(?=(?:\D{{0,2}}\d){{9}})"
            r"(?:\(\d{2,6}\) ?\d{2,8}|(?:\(\d{2,6}\)|\d{2,6})(?:[ /-]\d{2,8}|\.\d\d)|\d{2,5}\(\d{1,4}\)\d{4})"
            r"(?:[ /-]\d{2,8}|\.\d\d){0,4}(?! \d\d(?!\d))" + _END,
            validate=f"{_HERE}national_phone:{','.join(regions)}",
            quiet=_AMID,
            tail=_EXTENSION,
            score=0.7,
        ),
        shipped(
            "phone-plain-valid",
            "PHONE",
            rf"{LEFT}\d{{8,13}}" + _END,
            validate=f"{_HERE}plain_phone:{','.join(regions)}",
            context=rf"(?:{PHONE_LOOSELY})(?:(?!\",)[^\d]|(?<!\d)\d(?!\d)){{0,28}}\Z",
            quiet=_QUIET,
            tail=_EXTENSION,
            score=0.5,
        ),
    )
