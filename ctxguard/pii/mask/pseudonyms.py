"""Pseudonyms such as `<EMAIL_1>`: equal values get the same one, and numbers follow the order of appearance."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from ctxguard.history.memory import Memory
from ctxguard.pii.detect.normalize import view_of
from ctxguard.pii.placeholders import PSEUDONYM, pseudonym

_COMPACT: Final = frozenset(
    """
    CREDIT_CARD IBAN PHONE SSN MAC VIN US_EIN US_ROUTING UK_NHS UK_NINO UK_UTR AU_ABN AU_ACN AU_TFN BR_CNPJ BR_CPF CA_BN
    CA_SIN CN_ID DE_SOCIAL_SECURITY DE_TAX_ID DE_VAT ES_NIE ES_NIF FR_NIF FR_NIR FR_SIRET IN_AADHAAR IN_GSTIN IN_PAN
    IT_FISCAL_CODE IT_VAT JP_MY_NUMBER KR_BRN KR_RRN NL_BSN PL_NIP PL_PESEL
    """.split()  # noqa: SIM905 - a list of so many short names is hard to read
)
"""Labels of numbers that are defined by their digits and letters alone. Their separators only group them for reading,
and letters mean the same in either case."""
# The separators of these numbers. A sign before the first digit stays, because it must come back: a plus, or the minus
# of a JSON number.
_SEPARATORS: Final = re.compile(r"(?<=[^\s(.-])[\s./():-]+|^\(")


@dataclass(frozen=True, slots=True)
class Original:
    """The value of a placeholder.

    Attributes:
        value: The value as first written. Not shown in `repr`.
        is_number: Whether the value was first written as a number in JSON, and must be restored as a number.
    """

    value: str = field(repr=False)
    is_number: bool = False


class Pseudonyms(Protocol):
    """The interface for assigning placeholders to values and looking up the values."""

    def placeholder(self, label: str, original: Original) -> str:
        """Return the placeholder of a value, or assign a new one."""
        ...

    def original(self, placeholder: str) -> Original | None:
        """Return the value of a placeholder; None if it was never assigned."""
        ...


def normalized(label: str, value: str) -> str:
    """Return the form by which values of a label are compared; equal values share their placeholder.

    Two values are equal where the definition of their label says so, and else only where they are the same text:

    * the numbers in `_COMPACT` without their separators, such as a card or an IBAN in groups of four;
    * an e-mail address in any case of its host (RFC 5321, section 2.4: only the host's case has no meaning);
    * an IP address in any case of its hexadecimal digits;
    * a person's name with any white space between its words.
    """
    if label in _COMPACT:
        return _SEPARATORS.sub("", view_of(value).text).lower()
    if label == "EMAIL":
        local, at, host = view_of(value).text.rpartition("@")
        return local + at + host.lower()
    if label == "IP":
        address, sign, zone = value.partition("%")
        return address.lower() + sign + zone
    return " ".join(value.split()) if label == "PERSON" else value


class MemoryPseudonyms:
    """Assigns pseudonyms in memory. The numbers depend only on the values so far, so they are reproducible.

    Args:
        first: The number of the first value of each label.
        memory: Memory through which assignments can be taken back; None if they never are.
    """

    def __init__(self, first: int = 1, memory: Memory | None = None) -> None:
        self._first = first
        self._memory = memory
        self._assigned: list[tuple[tuple[str, str], str, Original]] = []
        self._counts: Counter[str] = Counter()
        self._placeholders: dict[tuple[str, str], tuple[int, str]] = {}
        self._originals: dict[str, Original] = {}

    def __repr__(self) -> str:
        return f"MemoryPseudonyms({len(self._assigned)} placeholders)"

    def __len__(self) -> int:
        return len(self._assigned)

    def copy(self) -> MemoryPseudonyms:
        """Return an independent copy."""
        new = MemoryPseudonyms(self._first)
        for key, placeholder, original in list(self._assigned):
            new._assign(key, placeholder, original)
        return new

    def items(self) -> list[tuple[str, str, Original]]:
        """Return the placeholder, label, and value of each pseudonym, in the order of assignment."""
        return [(name, key[0], original) for key, name, original in list(self._assigned)]

    def given(self, otherwise: Callable[[str], str], *, until: int | None = None) -> Pseudonyms:
        """Return a read-only view of these placeholders, which never assigns a new one.

        Args:
            otherwise: Takes a label, and returns the replacement for a value that has no placeholder.
            until: Number of placeholders to use, in the order of assignment; None means all.
        """
        return _Given(self, otherwise, until)

    def known(self, label: str, original: Original, *, until: int | None = None) -> str | None:
        """Return the placeholder of a value; None if it has none, or none among the first `until` placeholders."""
        number, known = self._placeholders.get((label, normalized(label, original.value)), (0, None))
        return None if until is not None and number >= until else known

    def placeholder(self, label: str, original: Original) -> str:
        """Return the placeholder of a value, or assign a new one."""
        key = (label, normalized(label, original.value))
        if key not in self._placeholders:
            number = self._first + self._counts[label]
            while (name := pseudonym(label, number)) in self._originals:  # adopted
                number += 1
            self._assign(key, name, original)
        return self._placeholders[key][1]

    def adopt(self, values: Mapping[str, Original]) -> bool:
        """Take over placeholders that were assigned elsewhere, unless one of them means something else here.

        Args:
            values: The values by placeholder.

        Returns:
            Whether all placeholders mean the same here now. If not, none is taken over.
        """
        found = {name: PSEUDONYM.fullmatch(name) for name in values}
        keys = {name: (match[1], normalized(match[1], values[name].value)) for name, match in found.items() if match}
        for name, key in keys.items():
            known = self._originals.get(name)
            if (known or values[name]) != values[name] or self._placeholders.get(key, (0, name))[1] != name:
                return False
        for name, key in keys.items():
            if name not in self._originals:
                self._assign(key, name, values[name])
        return True

    def original(self, placeholder: str) -> Original | None:
        """Return the value of a placeholder; None if it was never assigned."""
        return self._originals.get(placeholder)

    def _unassign(self) -> None:
        key, placeholder, _ = self._assigned.pop()
        self._counts[key[0]] -= 1
        del self._placeholders[key], self._originals[placeholder]

    def _assign(self, key: tuple[str, str], placeholder: str, original: Original) -> None:
        self._counts[key[0]] += 1
        self._placeholders[key] = len(self._assigned), placeholder
        self._originals[placeholder] = original
        self._assigned.append((key, placeholder, original))
        if self._memory is not None:
            self._memory.undo(self._unassign)


@dataclass(frozen=True, slots=True)
class _Given:
    """A read-only view of placeholders, see `MemoryPseudonyms.given`."""

    names: MemoryPseudonyms
    otherwise: Callable[[str], str]
    until: int | None = None

    def placeholder(self, label: str, original: Original) -> str:
        return self.names.known(label, original, until=self.until) or self.otherwise(label)

    def original(self, placeholder: str) -> Original | None:
        return self.names.original(placeholder)
