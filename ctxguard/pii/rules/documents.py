"""Rules for numbers that are recognized by a name before them: documents, accounts, registers, vehicles.

The names come from the word files. The rules accept them as people and JSON keys write them:

* A space in a name may also be a hyphen, an underscore, or nothing. Accents may be missing.
* The last word may have an ending, and so may a word marked with `*`. A name of one short word must be a whole word.
* A name marked with ` №` counts only directly before or after a word such as `number`: `account no`, `nr konta`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final
from unicodedata import normalize

from ctxguard.pii.rules.files import RuleFile
from ctxguard.pii.rules.rule import Rule
from ctxguard.pii.rules.words import words

_LABELS: Final = (
    "national_id", "passport", "driver_license", "tax_id", "medical_id", "bank_account", "company_id"
)  # fmt: skip
_GAP: Final = "[ _-]?"
# Maximum number of names per rule, which keeps the number of literals of a rule below the limit of 200 (see `WORDS` in
# `detect/prefilter.py`).
_AT_ONCE: Final = 60
_MARK: Final = " №"
_MANY: Final = 20
# A name with fewer letters must be a whole word.
_SHORT: Final = 7
_SHORTEST: Final = 5  # of two words
_LONG: Final = 8  # with at least so many letters, a name may also end a longer word: that is rarely a coincidence
_NO_LETTER_BEFORE: Final = r"(?<![^\W_])"
_NO_LETTER_AFTER: Final = r"(?![^\W\d_])"
_SECTION: Final = re.compile(r"\{([a-z_]+)\}")


def document_rules() -> Iterator[Rule]:
    """Yield the rules for each kind of document, and then the rules of `documents.toml`."""
    file = RuleFile("documents")
    for label in _LABELS:
        yield from _named_rules(file, label)
    for rule in file.content("rules"):
        called = rule.pop("called", None)
        if called is not None:
            called = _SECTION.sub(lambda match: _any_of(words(match[1])), called)
            rule["context"] = _before_value(called)
        yield file.rule(**rule)


def _named_rules(file: RuleFile, label: str) -> Iterator[Rule]:
    names = words(label)
    weak = [name.removesuffix(_MARK) for name in names if name.endswith(_MARK)]
    strong = [name for name in names if not name.endswith(_MARK)]
    batches = [strong[first : first + _AT_ONCE] for first in range(0, len(strong), _AT_ONCE)]
    called = {f"labeled-{number}": _any_of(batch) for number, batch in enumerate(batches, 1)}
    if weak:
        called["numbered"] = _numbered(weak)
    for kind, expression in called.items():
        yield file.rule(
            name=f"{label.replace('_', '-')}-{kind}",
            label=label.upper(),
            pattern="{VALUE}",
            context=_before_value(expression),
            quiet="{DIGEST}",
            score=0.65,
        )


def _before_value(names: str) -> str:
    return f"(?:{names}){{ENDING}}{{JOIN}}"


def _any_of(names: Sequence[str]) -> str:
    """Return an expression that matches any of the names, with or without their accents."""
    spelled = [*map(_spelling, dict.fromkeys([*names, *map(_without_marks, names)]))]
    # the lookbehind of many names is written once, because it is tried at each character of a text
    if len(spelled) < _MANY:
        return "|".join(spelled)
    whole = [one.removeprefix(_NO_LETTER_BEFORE) for one in spelled if one.startswith(_NO_LETTER_BEFORE)]
    parts = [one for one in spelled if not one.startswith(_NO_LETTER_BEFORE)]
    return "|".join([*([f"{_NO_LETTER_BEFORE}(?:{'|'.join(whole)})"] if whole else []), *parts])


def _without_marks(name: str) -> str:
    letters = normalize("NFKD", name.replace("ł", "l").replace("ø", "o").replace("ß", "ss"))
    return "".join(char for char in letters if not "\u0300" <= char <= "\u036f")


def _spelling(name: str) -> str:
    parts = name.split(" ")
    written = _GAP.join(re.escape(part.rstrip("*")) + r"\w{0,6}" * part.endswith("*") for part in parts)
    # each name has its own lookbehind, so that the word border becomes part of the literals of the prefilter
    if len(parts) > 1 or len(name) < _LONG:
        written = _NO_LETTER_BEFORE + written
    # `op c` is no beginning of `opcode`
    is_whole = len(name) < (_SHORT if len(parts) == 1 else _SHORTEST)
    return written + (_NO_LETTER_AFTER if is_whole else "")


def _numbered(names: Sequence[str]) -> str:
    """Return an expression for names that count only together with a word such as `number`.

    That word precedes the name (`numéro de compte`) or follows it (`compte no`). If it follows, the name may have an
    ending of up to four letters.
    """
    number = rf"(?:{{numbers}}){_NO_LETTER_AFTER}"
    before = rf"{_NO_LETTER_BEFORE}{number}[\W_]{{1,3}}(?:(?:{{OF}})[\W_]{{1,2}}){{0,2}}"
    glued = "|".join(name for name in names if len(name) < _SHORT and name.isalpha())
    return (
        rf"(?P<number>{before})?(?:{_any_of(names)})(?(number){_NO_LETTER_AFTER}|(?!codes?{_NO_LETTER_AFTER})\w{{0,4}}[\W_]{{0,3}}{number})"
        # the name and the word joined, as in the key `vatNumber`
        + (rf"|{_NO_LETTER_BEFORE}(?:{glued})(?:number|nummer|nr|num|no){_NO_LETTER_AFTER}" if glued else "")
    )
