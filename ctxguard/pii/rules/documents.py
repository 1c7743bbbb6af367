"""Rules for numbers that are recognized by the name before them: documents, accounts, registers, vehicles.

Their names are words of the data files, as people and JSON keys write them. A blank may also be a hyphen, an
underscore, or nothing; accents may be missing. The last word may have an ending, and so may one with `*`; a short name
must end a word. A name with ` №` counts only next to a word such as `number`, before or after it: `account no`, `nr
konta`.
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
# Names per rule: a text must then contain one of at most two hundred literals to be searched.
_AT_ONCE: Final = 60
_MARK: Final = " №"
# Up to this length, a name must be a word of its own; from `_LONG` on, it may also end one.
_SHORT: Final = 7
_LONG: Final = 8  # letters: names of this length do not end other words by accident
_NO_LETTER_BEFORE: Final = r"(?<![^\W_])"
_NO_LETTER_AFTER: Final = r"(?![^\W\d_])"
_SECTION: Final = re.compile(r"\{([a-z_]+)\}")


def document_rules() -> Iterator[Rule]:
    """Yield the rules of `documents.toml`, after those for the names of documents."""
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
            score=0.65,
        )


def _before_value(names: str) -> str:
    return f"(?:{names}){{ENDING}}{{JOIN}}"


def _any_of(names: Sequence[str]) -> str:
    """Return an expression for names of documents, with and without their accents."""
    return "|".join(map(_written, dict.fromkeys([*names, *map(_without_marks, names)])))


def _without_marks(name: str) -> str:
    letters = normalize("NFKD", name.replace("ł", "l").replace("ø", "o").replace("ß", "ss"))
    return "".join(char for char in letters if not "\u0300" <= char <= "\u036f")


def _written(name: str) -> str:
    parts = name.split(" ")
    written = _GAP.join(re.escape(part.rstrip("*")) + r"\w{0,6}" * part.endswith("*") for part in parts)
    # a lookbehind for each of them: so the word border is part of the literal that texts are searched for
    if len(parts) > 1 or len(name) < _LONG:
        written = _NO_LETTER_BEFORE + written
    return written + (_NO_LETTER_AFTER if len(name) < _SHORT and len(parts) == 1 else "")


def _numbered(names: Sequence[str]) -> str:
    """Return an expression for names that count only next to a word such as `number`.

    The word is before the name (`numéro de compte`) or after it (`compte no`), after up to four more letters.
    """
    number = rf"(?:{{numbers}}){_NO_LETTER_AFTER}"
    before = rf"{_NO_LETTER_BEFORE}{number}[\W_]{{1,3}}(?:(?:{{OF}})[\W_]{{1,2}}){{0,2}}"
    glued = "|".join(name for name in names if len(name) < _SHORT and name.isalpha())
    return (
        rf"(?P<number>{before})?(?:{_any_of(names)})(?(number){_NO_LETTER_AFTER}|\w{{0,4}}[\W_]{{0,3}}{number})"
        # as in a key, `vatNumber`
        + (rf"|{_NO_LETTER_BEFORE}(?:{glued})(?:number|nummer|nr|num|no){_NO_LETTER_AFTER}" if glued else "")
    )
