"""Find addresses by their parts without any label, and names by the e-mail or postal address next to them.

A street has a number and a word for streets: `12 Elm Street`, `12, rue Verte`, `Calle Mayor, 12`, `Hauptstraße 12`. If
the number comes last, it is searched for first, and then the text before it. Unit, postal code, and city are included
if they follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final

from ctxguard.pii.detect.cues import words_of
from ctxguard.pii.detect.people import (
    CITY,
    CODE_AND_CITY,
    END,
    HOUSE_FIRST,
    HOUSE_LAST,
    OF,
    POSTAL_CODE,
    STREET_ENDINGS,
    STREET_WORDS,
    UP,
    lines,
    name,
)
from ctxguard.pii.rules.words import words

_NAME: Final = rf"{UP}[\w'’.-]{{0,24}}"
_ENGLISH: Final = re.compile(
    rf"\d(?<![\w.,$€£/:#-]\d)\d{{0,5}}[A-Za-z]?(?:[-/ ]\d{{1,5}})?,? (?:[NSEW]{{1,2}}\.? )?(?:(?:{_NAME}"
    rf"|\d{{1,3}}(?:st|nd|rd|th)) ){{1,4}}?"
    rf"(?:{'|'.join(one.capitalize() for one in words('street_words'))}"
    rf"|{STREET_WORDS}){END}\.?(?: (?:[NSEW]{{1,2}}|North|South|East|West){END})?"
)
_FRENCH: Final = re.compile(
    rf"\d(?<![\w.,/:-]\d)\d{{0,4}}(?: ?(?:bis|ter|[A-D](?= |,)))?,? (?i:{HOUSE_FIRST}) (?:(?:{OF}|l'|l’"
    rf"|d'|d’)[ ]?){{0,3}}"
    rf"{_NAME}(?:[ -](?:{OF} ){{0,2}}{_NAME}){{0,4}}"
)
# A house number after the name of a street, and the characters that may precede it.
_NUMBER: Final = re.compile(
    rf" \d(?<=[^\W_][ ]\d|[,.º°][ ]\d)\d{{0,5}}(?: ?[A-Za-z](?![^\W_]))?(?:[-/–] ?\d{{1,4}}[a-z]?)?{END}| s/n{END}"
)
_BEFORE: Final = 90  # number of characters before a house number that are searched for its street
_SIGNS: Final = re.compile(r"[^\w]")
_ENDINGS: Final = tuple(words("street_endings"))
_FIRST_WORDS: Final = frozenset(
    f"{HOUSE_LAST}|box|postfach|postbus|apartado|correos|postale|postal|pocztowa|psc|bp".split("|")
)
_COMPOUND: Final = re.compile(
    rf"(?<![^\W_])(?:{_NAME}[ -]){{0,3}}(?:{UP}[\w'’.-]{{1,30}}(?:{STREET_ENDINGS})"
    rf"|{_NAME}[ -](?i:{STREET_ENDINGS}))\.?,?\Z"
)
_SOUTHERN: Final = re.compile(
    rf"(?<![^\W_])(?:{'|'.join(f'{one[:1].upper()}{one[1:]}' for one in words('street_words_before_number'))}|(?:c"
    rf"|calle|avenida|avda|rua|ul|ulica|ulicy|al|os|pl|plaza|piazza|viale|corso)(?=[ ./]))"
    rf"(?:[ ./]{{1,3}})(?:{OF}\.? ){{0,2}}{_NAME}(?:[ -](?:{OF}[ ]){{0,2}}{_NAME}){{0,5}},?(?:"
    rf" ?(?:n[.ºo°]{{0,2}}|nº|n º|núm\.?|número|num\.?|no\.))?,?\Z"
)
_BOX: Final = re.compile(
    r"(?<![^\W_])(?:(?i:p\.? ?o\.? ?box|post office box|postfach|postbus|apartado(?: de correos)?"
    r"|casella postale|caixa postal"
    r"|skrytka pocztowa|boîte postale)|PSC|BP)(?: [nN]?[º°])?\Z"
)
_FLAT: Final = re.compile(r"[ASUF](?<=[ \n].)(?:pt|partment|uite|te|nit|lat|PT|UITE)\.? #?\d[\w-]{0,5}(?![^\W_])")
_BEFORE_FLAT: Final = re.compile(
    rf"(?:(?<![^\W_])\d{{1,6}}[A-Za-z]? )?(?:{_NAME} ){{0,4}}(?:{_NAME}|{_NAME} \d{{1,5}}[A-Za-z]?)\Z"
)
# Number of characters after an address that are searched for more lines of it.
_LINES: Final = 200
_UNIT: Final = (
    rf"(?:(?i:apartment|apt|suite|ste|unit|floor|flat|room|rm|piso|planta|appartement|appt|bât|interno|int"
    rf"|scala|box|esc|puerta"
    rf"|bloque|etage|whg|lok|m)\.? ?#?[\w-]{{1,6}}{END}|# ?\w{{1,6}}"
    rf"|\d{{1,2}}(?!-\d)[ºª°o]?[ -]?(?:(?i:dr?cha|iz(?:q?d)?a|izq|dto|esq)\.?|[A-Z]{{0,2}}){END})"
)
_SEPARATOR: Final = r"[ \t]?[,\n;.–-]?[ \t\n]{1,4}"
_TAIL: Final = re.compile(
    rf"(?:{_SEPARATOR}{_UNIT}){{0,2}}(?:{_SEPARATOR}(?:{CODE_AND_CITY}"
    rf"|{CITY}(?:,?[ \t\n](?:[A-Z]{{2,3}}{END}|(?:[A-Z]\.){{2}}))?,?[ \t\n]{POSTAL_CODE}|{CITY}, [A-Z]{{2}}{END}"
    rf"|[A-Z]{{2}} {POSTAL_CODE}))?"
)
_MAIL: Final = re.compile(r"[<(\[][ \t]?(?:mailto:)?[A-Za-z0-9._%+-]{1,64}@")
_LIVING: Final = frozenset(words("living"))
_LIVES: Final = re.compile(rf" (?:{'|'.join(sorted(_LIVING))}) (?:at|in|on|à|au|en|op|em|na|no|przy|w)(?![^\W_])")
_NAME_SIZE: Final = 60  # number of characters before an address that are searched for a name
# A name in the line above an address, as on an envelope.
_LINE_ABOVE: Final = re.compile(
    rf"(?:(?<![^\n])|(?<=\n> ))((?:{_NAME}[ ]){{1,3}}{_NAME})[ \t,]{{0,2}}\n{{1,2}}[> ]{{0,3}}\Z"
)
_NAME_BEFORE: Final = re.compile(
    rf"(?:{_NAME}[ ](?:{' |'.join(words('particles'))} ){{0,2}}){{0,4}}{_NAME}[\"']?[ \t]{{0,2}}\Z"
)


@lru_cache(maxsize=8)  # the rules for names and for addresses read the same text one after the other
def streets(text: str) -> Sequence[tuple[int, int]]:
    """Return the start and end offset of each address that is recognizable by its parts."""
    return tuple(_find_streets(text))


def _find_streets(text: str) -> Iterator[tuple[int, int]]:
    for start, end in chain(_number_first(text), _number_last(text), _units(text)):
        tail = _TAIL.match(text, end)
        behind = end if tail is None else tail.end()
        if text[behind : behind + 1] == "\n":
            is_coded = any(map(str.isdigit, text[end:behind]))
            behind += lines(text[behind + 1 : behind + _LINES].split("\n"), is_coded=is_coded)
        yield start, behind


def _number_first(text: str) -> Iterator[tuple[int, int]]:
    for expression in (_ENGLISH, _FRENCH):
        yield from (match.span() for match in expression.finditer(text))


def _number_last(text: str) -> Iterator[tuple[int, int]]:
    for match in _NUMBER.finditer(text):
        begin = max(0, match.start() - _BEFORE)
        before = text[text.rfind("\n", begin, match.start()) + 1 or begin : match.start()]
        lowered = _SIGNS.sub(" ", before.lower()).split()
        found = _COMPOUND.search(before) if lowered and lowered[-1].endswith(_ENDINGS) else None
        if found is None and not _FIRST_WORDS.isdisjoint(lowered):
            found = _SOUTHERN.search(before) or _BOX.search(before)
        if found is not None:
            yield match.start() - len(before) + found.start(), match.end()


def _units(text: str) -> Iterator[tuple[int, int]]:
    """Yield the offsets of addresses that contain the number of an apartment, whatever the street is called."""
    for match in _FLAT.finditer(text):
        begin = max(0, match.start() - _BEFORE)
        found = _BEFORE_FLAT.search(text[begin : match.start()].rstrip(" \n>,"))
        if found is not None and any(map(str.isdigit, found[0])):
            yield begin + found.start(), match.end()


def owners(text: str) -> Iterator[tuple[int, int]]:
    """Yield the offsets of names before an e-mail address in brackets, before `lives at`, or above a postal address."""
    mails = _MAIL.finditer(text) if "@" in text else ()
    homes = () if _LIVING.isdisjoint(words_of(text)) else _LIVES.finditer(text)
    for start in (match.start() for match in chain(mails, homes)):
        found = _NAME_BEFORE.search(text[max(0, start - _NAME_SIZE) : start].rpartition("\n")[2])
        if found is not None:
            yield from _owner(found[0].rstrip("\"' \t"), start - len(found[0]))
    for start, _ in streets(text):
        found = _LINE_ABOVE.search(text, max(0, start - _NAME_SIZE), start)
        if found is not None:
            yield from _owner(found[1], found.start(1))


def _owner(value: str, start: int) -> Iterator[tuple[int, int]]:
    """Yield the offsets of the name at the end of a string, such as `Jane Roe` in `Contact Jane Roe`.

    Args:
        value: The string.
        start: Its offset in the text, which is added to the result.
    """
    while value.count(" "):
        place = name(value, "full")
        if place is not None and place[1] == len(value):
            yield start + place[0], start + place[1]
            return
        first, _, value = value.partition(" ")
        start += len(first) + 1
