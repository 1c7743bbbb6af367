"""Decide whether the text after a label or a phrase is a name or a postal address, and where it ends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

from ctxguard.pii.rules.words import words

Place: TypeAlias = tuple[int, int]
"""The start and end offset of something in a text."""
# Words of names with apostrophes and hyphens: `O'Neil`, `al-Rashid`, and, escaped in SQL, `O''Neil` and `O\'Neil`.
_WORD: Final = re.compile(r"[^\W\d_]+(?:(?:\\?['’]|''|-)[^\W\d_]+)*")
_PIECES: Final = re.compile(r"\W+")
_BETWEEN: Final = re.compile(r"\.?[ \t]{1,3}|, ?(?=[A-Z])|\.(?=[^\W\d_])|[ \t]?&[ \t]|\.?\+(?=[^\W\d_])")
_ENDS: Final = frozenset("'’\"“”.,;:!?()[]<>{}|*`\\\n\t–—-/&+=")
_GLUE: Final = re.compile(r"[\w@/=+%#$]|\.\w|-\w|:/")
_NO_NAME: Final = frozenset(words("no_names"))
_PARTICLES: Final = frozenset(words("particles"))
_ORGANIZATIONS: Final = frozenset(words("organizations"))
_TITLES: Final = re.compile(rf"(?:(?:{'|'.join(words('titles'))})\.?[ \t]{{1,2}}){{1,3}}", re.IGNORECASE)
_CONNECTING: Final = frozenset(
    ("and", "from", "i", "but", "und", "y", "et", "e", "en", "i", "ich", "je", "io", "ik", "eu")
)
_ABBREVIATIONS: Final = frozenset(("st", "jr", "sr", "mc", "wm", "geo", "chas", "jos", "thos", "ma", "fco", "ph"))
_MOST_WORDS: Final = 6  # maximum number of words in a name


def name(value: str, how: str) -> Place | None:
    """Return the start and end offset of a person's name at the beginning of a string; None if there is no name.

    Titles before the name are skipped.

    Args:
        value: The text after a label or a phrase, up to the end of its line or field.
        how: The form that the name must have:
            `field`: the whole value is a name, in any case;
            `said`: the first words are a name, in any case;
            `words`: one or more capitalized words;
            `full`: at least two capitalized words;
            `closed`: capitalized words followed by punctuation;
            `line`: capitalized words up to the end of the line;
            `whole`: at least two capitalized words up to the end of the line.
    """
    title = _TITLES.match(value)
    start = title.end() if title else 0
    found, end, is_lower = _words(value, start, takes_lower=how in ("field", "said"))
    least = 2 if how in ("full", "whole") else 1
    if not least <= len(found) <= _MOST_WORDS or sum(map(len, found)) < 2:
        return None
    if (how != "field" or len(found) > 1) and not _ORGANIZATIONS.isdisjoint(word.lower() for word in found):
        return None
    if _GLUE.match(value, end) or not _ends_well(value[end:], how, is_lower=is_lower):
        return None
    # one short word in capitals is an abbreviation: `HR`, `USA`
    is_short = len(found) == 1 and how != "field" and len(found[0]) < 4 and found[0].isupper()
    return None if is_short else (start, end)


def _ends_well(rest: str, how: str, *, is_lower: bool) -> bool:
    """Return whether `rest`, the text after a name, may follow a name of the form `how` (see `name`)."""
    if how in ("line", "whole"):
        return not rest.strip(" \t\r.,*_)”’»'`")
    bare = rest.lstrip(" \t")
    if not bare or bare[0] in _ENDS:
        return True
    following = _WORD.match(bare)
    if how == "said" and is_lower:
        return following is not None and following[0] in _CONNECTING
    # a capitalized word shows that this is not a name (`Smith Family Practice`), unless it begins another field (`Mia
    # Last name: Li`)
    if how == "field" and following is not None and following[0][0].isupper():
        return ":" in bare or "=" in bare
    return how != "closed" and not is_lower


def _words(value: str, place: int, *, takes_lower: bool) -> tuple[list[str], int, bool]:
    """Read the words of a name, beginning at an offset.

    Returns:
        The words without particles, the end offset of the name, and whether the name is in lower case.
    """
    found: list[str] = []
    end = 0
    is_lower = False
    while match := _WORD.match(value, place):
        word = match[0]
        folded = word.lower()
        is_particle = folded in _PARTICLES and not word[0].isupper()
        if not is_particle:
            is_small = word.islower()  # False for `d'Arc`
            is_ending = is_small and (not takes_lower or (found and not is_lower))
            if is_ending or folded in _NO_NAME or _is_mixed(word):
                break
            is_lower = is_small
            found.append(word)
            end = match.end() + (len(word) == 1 and value[match.end() : match.end() + 1] == ".")
        gap = _BETWEEN.match(value, match.end())
        if (
            gap is None
            or ("." in gap[0] and len(word) > 1 and folded not in _ABBREVIATIONS)
            or len(found) > _MOST_WORDS
        ):
            break
        if "," in gap[0] and len(found) > 1:
            break
        place = gap.end()
    if is_lower and len(found) > 3:
        return [], 0, True
    return found, end, is_lower


def _is_mixed(word: str) -> bool:
    """Return whether a word is an identifier (`camelCase`, `NºCol`) rather than a name (`McNeil`, `DeVito`)."""
    return "º" in word or any(piece[:1].islower() and not piece.islower() for piece in _PIECES.split(word))


UP: Final = "[A-ZÀ-ÖØ-ÞĀĂĄĆČĎĐĒĖĘĚĞĢĪİĶĹĻĽŁŃŅŇŌŐŒŔŘŚŞŠŤŪŮŰŲŹŻŽ]"
_FAR: Final = 24
_LONGEST_LINE: Final = 50
_LINE_SIGNS: Final = " \t.,;*_'\")"
_TOWN: Final = re.compile(r"[A-ZÀ-ÞĀ-Ž][^\W\d_]*(?:[ .'’-]{1,2}[^\W\d_]+){0,4}")
_TOWNS: Final = re.compile(
    r"(?:[A-ZÀ-ÞĀ-ŽΑ-Ω][\w'’.-]*(?: (?:de|del|la|of|and|di|do|am|an|der|nad|u|\(|\))?)?[ )]?){1,4}"
)
_CODE: Final = re.compile(r"[A-Za-z0-9]{1,5}(?:[ -][A-Za-z0-9]{2,4}){0,2}")
_DIGIT: Final = re.compile(r"\d")
STREET_WORDS: Final = "|".join(words("street_words"))
STREET_ENDINGS: Final = "|".join(words("street_endings"))
HOUSE_FIRST: Final = "|".join(words("street_words_before_name"))
HOUSE_LAST: Final = "|".join(words("street_words_before_number"))
_STREET: Final = re.compile(
    rf"(?<![^\W_])(?:{STREET_WORDS}|{HOUSE_FIRST}|{HOUSE_LAST})(?![^\W_])|[^\W\d_](?:{STREET_ENDINGS})(?![^\W_])",
    re.IGNORECASE,
)
_NUMBER_FIRST: Final = re.compile(
    r"\d{1,6}[A-Za-z]?(?:[-/ ]\d{1,6})?,? "
    rf"(?:(?:[^\W\d_]{{1,4}}\.? )?(?:[A-ZÀ-ÞĀ-Ž]|\d{{1,3}}(?:st|nd|rd|th) )|(?i:{HOUSE_FIRST}) )"
)
_NUMBERED: Final = re.compile(
    rf"{_NUMBER_FIRST.pattern}|[A-ZÀ-ÞĀ-Ž][^\W\d_]*[.,]? (?:[^\W\d_]+[.,]? ){{0,4}}(?:n[.ºo°]{{1,2}} ?)?\d"
)
_CODE_LINE: Final = re.compile(r"(?=.*\d{4})[^\n:=]{4,50}")
_NO_ADDRESS: Final = re.compile(
    r"https?:|www\.|0x|[\w.+-]+@|(?:\d{1,3}\.){3}\d|[0-9a-f]{2}(?::[0-9a-f]{2}){2}", re.IGNORECASE
)
# The end of a sentence or a string, or the beginning of another label.
_ENDING: Final = re.compile(
    rf"[.!?](?=\s+[¿¡]?{UP}|\s*\Z)"
    r"|[!?]|  |'[,:}\])]|, '|, (?=(?:[A-Z][a-z]+ ){0,2}[A-Z][a-z]+:)|\*\*|\s\("
    r"|(?<=[\w,]) (?:and|but|so|with|for|please|which|where|or|as|because|und|et|y|e|en) (?=[a-zß-ÿ])"
)
_ABBREVIATED: Final = re.compile(
    r"(?<![^\W_])(?:st|ave|av|rd|dr|apt|blvd|ste|no|str|ul|al|pl|avda|c|n|n[ºo°]|sta|sto|hwy)\Z", re.IGNORECASE
)

OF: Final = (
    "(?:de|del|de la|de los|de las|la|las|los|da|do|dos|das|di|della|dei|delle|du|des|le|les|d|l|van|van de|der|an der"
    "|am|y|e|i|św|gen)"
)
END: Final = r"(?![^\W_])"
POSTAL_CODE: Final = (
    r"(?:(?:[A-Z]{1,3}[- ])?\d{4,6}(?:-\d{3,4})?(?: [A-Z]{2}(?![^\W_]))?|\d{2}-\d{3}|\d{3} \d{2}"
    r"|[A-Z]\d[A-Z] ?\d[A-Z]\d"
    rf"|[A-Z]{{1,2}}\d[A-Z\d]? ?\d[A-Z]{{2}}){END}"
)
# A word of a town's name. A period ends the name, except in `St. Gallen` and `D.C.`
_TOWN_WORD: Final = rf"(?:(?:{UP}[a-z]?|St[ae])\. ?)?(?:(?:{UP}\.){{2}}|{UP}(?:[\w'’-]|\.(?=\w)){{1,25}})"
CITY: Final = rf"{_TOWN_WORD}(?:[ -](?:{OF}[ -]){{0,2}}{_TOWN_WORD}){{0,3}}"
# The second and later words of a town are not followed by a number: in `10115 Berlin Order 17`, the town is `Berlin`.
CODE_AND_CITY: Final = (
    rf"{POSTAL_CODE}(?:[ \t,]{{1,2}}{_TOWN_WORD}(?:[ -](?:{OF}[ -]){{0,2}}{_TOWN_WORD}{END}(?! ?#?\d)){{0,3}}"
    rf"(?: \([A-Z]{{2}}\))?)?"
)
_CODE_IN_LINE: Final = re.compile(POSTAL_CODE)
# A line with the postal code, or with the number of an apartment.
_LINE_OF_ADDRESS: Final = re.compile(
    rf"(?:{CITY}[,.]? )?(?:[A-Z]{{2,3}}[,.]? )?{POSTAL_CODE}(?:,? {CITY})?(?:,? (?:{CITY}|[A-Z]{{2,3}}))?"
    rf"|(?i:apartment|apt|suite|ste|unit|floor|flat|room)\.? ?#?[\w-]{{1,6}}"
)
# The end of an address within a line: postal code, town, and a country at the end of the line.
_CODED: Final = re.compile(rf"(?<=[ ,]){CODE_AND_CITY}(?:(?: [(]|, ?){CITY}[)]?(?=[ .;]{{0,2}}\Z))?")


def address(value: str, how: str) -> Place | None:
    """Return the start and end offset of a postal address at the beginning of a string; None if there is none.

    Args:
        value: The text after a label or a phrase, at most a few lines.
        how: What precedes the value: `field` for the label of an address, `part` for the label of a part of an address
            (such as a street), or `said` for a phrase.
    """
    first, *more = value.split("\n")
    end = _line_end(first)
    line = first[:end]
    if not line or _NO_ADDRESS.match(line):
        return None
    if how == "part":
        return (0, end) if any(map(str.isalnum, line)) else None
    numbered = _NUMBERED.search(line) if _STREET.search(line) else _NUMBER_FIRST.search(line)
    start = numbered.start() if how == "said" and numbered else 0
    if start > _FAR or not (numbered if how == "said" else _is_address(line, more)):
        return None
    coded = _CODED.search(line, numbered.end() if numbered else 0)
    if coded is not None and coded.end() < end:
        return start, coded.end()
    if end < len(first.rstrip(_LINE_SIGNS)):
        return start, end
    return start, len(first) + lines(more, end - len(first), is_coded=coded is not None, is_labeled=how == "field")


def lines(more: Sequence[str], end: int = 0, *, is_coded: bool = False, is_labeled: bool = False) -> int:
    """Return where an address ends in the lines after its first line.

    The address continues to the line with the postal code, and then over lines in capitals, such as a town or a
    country. No other line after the postal code is part of the address, however short it is: `Order A-17`.

    Args:
        more: The lines after the first line of the address.
        end: The result if the address does not continue.
        is_coded: Whether the first line contains the postal code.
        is_labeled: Whether the address follows a label. Lines of a few capitalized words are then towns.

    Returns:
        The end as a number of characters, counted from the end of the first line.
    """
    total = 0
    for following in more[:5]:
        stop = _line_end(following)
        line = following[:stop].lstrip(" >\t,")
        if not line or ":" in following or stop > _LONGEST_LINE or (is_coded and not line.isupper()):
            break
        is_town = _TOWNS.fullmatch(line) is not None
        if _LINE_OF_ADDRESS.fullmatch(line) or line.isupper() or (is_labeled and is_town):
            end = total + 1 + stop
        elif not (is_town or _STREET.search(line)):
            break
        is_coded = is_coded or _CODE_IN_LINE.search(line) is not None
        total += 1 + len(following)
        if stop < len(following.rstrip(_LINE_SIGNS)):
            break
    return end


def _is_address(line: str, more: list[str]) -> bool:
    """Return whether the value of an address label is a postal address."""
    is_numbered = _DIGIT.search(line) is not None and any(map(str.isalpha, line)) and " " in line
    return is_numbered or _STREET.search(line) is not None or any(_CODE_LINE.fullmatch(one.strip()) for one in more[:2])


def _line_end(line: str) -> int:
    """Return where an address ends in its line: before another label, or at the end of a sentence or a string."""
    ends = (match.start() for match in _ENDING.finditer(line))
    end = next((one for one in ends if not _ABBREVIATED.search(line[:one])), len(line))
    return len(line[:end].rstrip(_LINE_SIGNS))


def city(value: str, how: str) -> Place | None:  # noqa: ARG001 - the signature of `Frame.judge`
    """Return the offsets of the capitalized words at the beginning of a string, which may be the name of a town.

    Return None if there are no such words, or if the only word is never part of a name.
    """
    match = _TOWN.match(value)
    return match.span() if match is not None and match[0].lower() not in _NO_NAME else None


def code(value: str, how: str) -> Place | None:  # noqa: ARG001 - the signature of `Frame.judge`
    """Return the offsets of a possible postal code, with at least two digits, at the beginning of a string.

    Return None if there is no such code.
    """
    match = _CODE.match(value)
    return match.span() if match is not None and sum(map(str.isdigit, match[0])) > 1 else None
