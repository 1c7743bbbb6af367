"""The syntax of placeholders, which masking writes, rules must not match, and unmasking looks up."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Final, TypeAlias

from ctxguard.pii.spans import Span

LITERAL: Final = "LITERAL"
"""Label for text that already looked like a placeholder before masking. Its value is that text itself, so unmasking
restores the text and never a value from a vault."""
UNCHECKED: Final = "UNCHECKED"
"""Label of a whole text that is masked because a detector failed and could not search it."""

PSEUDONYM: Final = re.compile(r"<([A-Z](?:[A-Z_]{0,38}[A-Z])?)_(\d{1,6}|\d{1,2}(?:_\d\d){1,3})>")
"""Matches a pseudonym, which has a label and a number: `<EMAIL_1>`. Number 100 is written `<EMAIL_1_00>`."""
PLACEHOLDER: Final = re.compile(
    rf"\[REDACTED(?:_([A-Z_]{{1,40}}))?\]|<([A-Z][A-Z_]{{0,39}})_[g-v]{{16}}>|{PSEUDONYM.pattern}"
)
"""Matches any placeholder. The label is in one of the first three groups; a pseudonym's number is in the fourth."""
SIGNS: Final = r"[ \n\xa0\u202f*`]{0,3}"
"""Matches what models write between a placeholder's number and its closing bracket."""
# JSON encoders may escape the brackets: as `\u003c` and `\u003e`, and with more backslashes in JSON within JSON.
ESCAPES: Final = r"(?<!\\)\\{1,16}"
LESS: Final = rf"(?:<|&lt;|{ESCAPES}u(?:003[cC]|0026lt;))"
GREATER: Final = rf"(?:>|&gt;|{ESCAPES}u(?:003[eE]|0026gt;))"
# Between the groups of a number: an underscore as written or as Markdown escapes it, or white space.
_NUMBER: Final = r"\d{1,2}(?:(?:\\{0,2}_|[ \n\xa0\u202f])\d\d){0,3}"
# What may come after a number without its closing bracket is anything from which the number cannot go on: no escape or
# reference, which may stand for an underscore, and no digit, not even behind white space.
_WITHOUT_END: Final = r"(?P<open>)(?![\w>%]|&|\\(?![\"nrt])|(?:[_ \n\xa0\u202f*`]|\\{1,16}+[nrt]){1,4}(?:\d|[\\&%]))"
_OPENED: Final = (
    rf"{LESS}[*`]{{0,3}}(?P<label>[A-Za-z](?:[A-Za-z_]|[ \n\xa0\u202f](?=[A-Za-z_\d])){{1,42}})\\{{0,2}}_?"
    rf"(?:(?P<number>{_NUMBER}){SIGNS}{GREATER}|(?P<begun>\d{{1,2}}(?:\\{{0,2}}_\d\d){{0,3}}){_WITHOUT_END})"
)
OPENED: Final = re.compile(_OPENED)
"""Matches a pseudonym as models spell it (see `SPELLED`), but only with its opening bracket. It is much faster than
`SPELLED`, because few characters can begin a match."""
SPELLED: Final = re.compile(
    rf"{_OPENED}|(?<![\w<&;])(?P<bare>[A-Z][A-Z_]{{0,38}}[A-Z])_(?P<digits>\d{{1,2}}(?:_\d\d){{0,3}}){GREATER}"
)
"""Matches a pseudonym as models spell it: `<email_1>`, `<EMAIL 1>`, `<**EMAIL_1**>`, `&lt;EMAIL_1&gt;`, `<EMAIL_1`.

Restoring and escaping both use this expression, because text that restores to a value must be escaped where a person or
a tool wrote it. The label and its underscore have at least two characters, so that `<h1>` is no placeholder."""
Trust: TypeAlias = Callable[[str, str], bool]
_OPENS: Final = re.compile(r"<[A-Z][A-Z_]{0,39}_[0-9g-v]")
# The numbers that `pseudonym` writes: never with three digits in a row or a leading zero.
_WRITTEN: Final = re.compile(r"[1-9]\d?(?:_\d\d){0,3}")
# Text that begins like a placeholder and continues with a value: `<CARD_4111111111111111>`, `[REDACTED_01712345678]`.
# Lower-case letters, or more characters than an IBAN has, indicate a key instead; the prefix before the underscore is
# part of such a key (`<ghp_16C7e…>`), so it must not be separated.
_LOOKALIKE: Final = re.compile(
    r"(<[A-Za-z][A-Za-z_]{0,39}|\[REDACTED(?:_[A-Z_]{1,40})?)_(?=[+(]?[A-Z]{0,3}\d[A-Z0-9]{0,31}+(?![A-Za-z0-9_]))"
)
_BETWEEN_GROUPS: Final = re.compile(r"\D+")
BLANK: Final = "\x00"
_LABEL_REST: Final = re.compile(r"[^A-Z]+")


def label_of(name: str) -> str:
    """Convert a name to a label that is allowed in placeholders: `us phone#2` becomes `US_PHONE`."""
    return _LABEL_REST.sub("_", name.upper()).strip("_")[:40].strip("_") or "PII"


def redaction(label: str) -> str:
    """Return the default redaction placeholder for a label, such as `[REDACTED_EMAIL]`."""
    return f"[REDACTED_{label}]"


def pseudonym(label: str, number: int) -> str:
    """Return the placeholder for a label and a number: `<EMAIL_1>`, and from 100 on `<EMAIL_1_00>`.

    Digits are grouped so that there are never three in a row. Otherwise, rules could match the number, and a card
    verification code or PIN in angle brackets (`<PIN_123>`) would have the form of a placeholder.
    """
    digits = str(number)
    groups = [digits[max(0, end - 2) : end] for end in range(len(digits), 0, -2)]
    return f"<{label}_{'_'.join(reversed(groups))}>"


def pseudonyms_of(match: re.Match[str]) -> dict[str, str]:
    """Return the pseudonyms that a placeholder as spelled by a model can mean, by label.

    For example, `<credit card 1>` can mean two pseudonyms.

    Args:
        match: A match of `SPELLED` or `OPENED`.
    """
    label = (match["label"] or match["bare"]).upper()
    number = _BETWEEN_GROUPS.sub("_", match["number"] or match["begun"] or match["digits"])
    labels = ("".join(label.split()).strip("_"), re.sub(r"[\s_]+", "_", label).strip("_"))
    return {one: f"<{one}_{number}>" for one in labels}


def without_lookalikes(text: str) -> str:
    """Separate a value from preceding text that looks like the beginning of a placeholder, keeping the text's length.

    Masking never writes `<CARD_4111111111111111>`, but rules would not find the card number in it, because the digits
    are attached to a name. Therefore, the underscore before them is replaced by a space.
    """
    return _LOOKALIKE.sub(r"\1 ", text) if "<" in text or "[REDACTED" in text else text


def blank_placeholders(text: str, trusts: Trust | None = None) -> str:
    """Replace placeholders by NUL characters, so that no rule matches them; the length stays the same.

    Args:
        text: The string.
        trusts: Takes the label and the number of a placeholder, and returns whether masking can have written it. None
            accepts every placeholder.
    """
    if ("<" in text and _OPENS.search(text) is not None) or ("[" in text and "[REDACTED" in text):
        return PLACEHOLDER.sub(lambda match: _blank(match, trusts), text)
    return text


def _blank(match: re.Match[str], trusts: Trust | None) -> str:
    label = match[1] or match[2] or match[3]
    number = match[4]
    if trusts is None or label is None or ((not number or _WRITTEN.fullmatch(number)) and trusts(label, number or "")):
        return BLANK * (match.end() - match.start())
    return match[0]


def outside_placeholders(text: str, spans: Sequence[Span]) -> Sequence[Span]:
    """Return the spans that are not inside a placeholder. A model may mistake a placeholder for a name."""
    if not spans or ("<" not in text and "[REDACTED" not in text):
        return spans
    taken = [match.span() for match in PLACEHOLDER.finditer(text)]
    return [span for span in spans if not _is_inside(span, taken)]


def _is_inside(span: Span, places: Sequence[tuple[int, int]]) -> bool:
    place = bisect_right(places, span.start, key=itemgetter(0)) - 1
    return place >= 0 and span.end <= places[place][1]
