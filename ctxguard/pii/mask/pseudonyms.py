"""Names that stand for values: `<EMAIL_1>`, the same for the same value, numbered by first appearance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from ctxguard.pii.detect.normalize import view_of
from ctxguard.pii.placeholders import LITERAL, pseudonym

_BY_CASE: Final = frozenset({"SECRET", "PASSWORD", "PRIVATE_KEY", "URL_CREDENTIALS", "CRYPTO", LITERAL})
_BY_SIGNS: Final = frozenset({"PERSON", "LOCATION", "ADDRESS", "ORGANIZATION", "EMAIL", "IP", "DATE_OF_BIRTH"})


@dataclass(frozen=True, slots=True)
class Original:
    """Hold what a placeholder stands for.

    Attributes:
        value: as it was first written. Not part of `repr`.
        is_number: True where it first was a bare number in JSON, and is to be one again.
    """

    value: str = field(repr=False)
    is_number: bool = False


class Pseudonyms(Protocol):
    """Give values their placeholders and take them back."""

    def placeholder(self, label: str, original: Original) -> str:
        """Return the placeholder of a value; a new one where it has none."""
        ...

    def original(self, placeholder: str) -> Original | None:
        """Return what a placeholder stands for, or None where it was never given."""
        ...


def normalized(label: str, value: str) -> str:
    """Return what makes two spellings the same value: no case in an e-mail address, no separators in a number."""
    folded = view_of(value).text
    if label in _BY_CASE:
        return value
    if label in _BY_SIGNS:
        return " ".join(folded.casefold().split())
    bare = "".join(char for char in folded.casefold() if char.isalnum())
    # with and without its plus a number is written by another rule, and gives back another text
    return f"+{bare}" if bare and folded.startswith("+") else bare or folded


class MemoryPseudonyms:
    """Number values in this process; a function of the texts that came before alone."""

    def __init__(self) -> None:
        self._given: list[tuple[tuple[str, str], str, Original]] = []
        self._counts: Counter[str] = Counter()
        self._placeholders: dict[tuple[str, str], str] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._originals: dict[str, Original] = {}

    def __repr__(self) -> str:
        return f"MemoryPseudonyms({len(self._given)} placeholders)"

    def __len__(self) -> int:
        return len(self._given)

    def copy(self) -> MemoryPseudonyms:
        """Return pseudonyms that begin with these and go on by themselves."""
        new = MemoryPseudonyms()
        for key, placeholder, original in list(self._given):
            new._give(key, placeholder, original)
        return new

    def given(self, otherwise: Callable[[str], str], *, until: int | None = None) -> Pseudonyms:
        """Return what knows the placeholders that were given and gives no more: `otherwise` tells what a label gets.

        Args:
            otherwise: returns what stands for a value of a label that has none.
            until: how many placeholders count, the first ones; None means all.
        """
        return _Given(self, otherwise, until)

    def known(self, label: str, original: Original, *, until: int | None = None) -> str | None:
        """Return the placeholder that a value has; None where it has none among the first `until`."""
        key = (label, normalized(label, original.value))
        number = self._numbers.get(key)
        return None if number is None or (until is not None and number >= until) else self._placeholders[key]

    def placeholder(self, label: str, original: Original) -> str:
        """Return the placeholder of a value; a new one where it has none."""
        key = (label, normalized(label, original.value))
        known = self._placeholders.get(key)
        if known is None:
            known = pseudonym(label, self._counts[label] + 1)
            self._give(key, known, original)
        return known

    def original(self, placeholder: str) -> Original | None:
        """Return what a placeholder stands for, or None where it was never given."""
        return self._originals.get(placeholder)

    def back_to(self, count: int) -> None:
        """Take back all but the first `count` placeholders."""
        while len(self) > count:
            key, placeholder, _ = self._given.pop()
            self._counts[key[0]] -= 1
            del self._placeholders[key], self._numbers[key], self._originals[placeholder]

    def _give(self, key: tuple[str, str], placeholder: str, original: Original) -> None:
        self._counts[key[0]] += 1
        self._placeholders[key] = placeholder
        self._numbers[key] = len(self._given)
        self._originals[placeholder] = original
        self._given.append((key, placeholder, original))


@dataclass(frozen=True, slots=True)
class _Given:
    """Know the placeholders that were given, and give no more."""

    names: MemoryPseudonyms
    otherwise: Callable[[str], str]
    until: int | None = None

    def placeholder(self, label: str, original: Original) -> str:
        return self.names.known(label, original, until=self.until) or self.otherwise(label)

    def original(self, placeholder: str) -> Original | None:
        return self.names.original(placeholder)
