"""Rule sets: `STANDARD` and `PEOPLE` for real use, `SSN` and `DIGITS` for the bare shapes of numbers."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache, reduce
from operator import or_
from typing import Any, Final

from ctxguard.errors import ConfigError
from ctxguard.pii.detect.echo import Names
from ctxguard.pii.detect.match import Engine, engine_of
from ctxguard.pii.placeholders import UNCHECKED, label_of
from ctxguard.pii.rules.rule import Rule
from ctxguard.pii.rules.standard import COUNTRIES, PEOPLE_RULES, RULES_BY_COUNTRY, STANDARD_RULES
from ctxguard.pii.spans import RULE_SET, Detector, Span, check_text, require_labels, require_strings
from ctxguard.settings import nearest


@dataclass(frozen=True, repr=False)
class RuleSet:
    """A set of rules that can be searched for. Immutable, hashable, and picklable; `|` joins two sets.

    Attributes:
        name: The name of the set in reports.
        rules: The rules, in order of precedence.
        allow: Values that are never findings, compared without regard to case.
        deny: Values that are always findings, each with its label: `(("Project Heron", "CODENAME"),)`.

    Raises:
        ConfigError: If the name or an attribute has the wrong type.
    """

    name: str
    rules: tuple[Rule, ...] = ()
    allow: frozenset[str] = field(default=frozenset(), kw_only=True)
    deny: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ConfigError(
                f"the first argument of a rule set must be its name: {RULE_SET}, not {type(self.name).__name__}",
                setting="name",
            )
        # lists are also accepted, but only tuples are hashable
        object.__setattr__(self, "rules", _check_rules(self.name, self.rules))
        object.__setattr__(self, "allow", frozenset(value.lower() for value in require_strings(self.allow, "allow")))
        object.__setattr__(self, "deny", _check_deny(self.deny))

    def __repr__(self) -> str:
        return f"RuleSet({self.name!r}, {len(self.rules)} rules)"

    def __hash__(self) -> int:
        """Hash only a few fields, which differ between most sets; hashing all rules takes longer than a search."""
        return hash((self.name, len(self.rules), self.allow, self.deny))

    @cached_property
    def _engine(self) -> Engine:
        return engine_of(self.rules, self.allow, self.deny)

    def warm(self) -> None:
        """Load the expressions, automata, and libraries of the rules now rather than on first use; see `warm`."""
        self._engine.warm()

    @property
    def is_joinable(self) -> bool:
        """Whether many texts can be joined by blank lines and searched at once, without changing any finding."""
        return self._engine.is_joinable

    def find(self, text: str) -> Sequence[Span]:
        """Return the findings in a string, sorted by offset and without overlaps.

        Raises:
            TypeError: If `text` is not a string.
        """
        check_text(text)
        return self._engine.find(text)

    def scan(self, text: str) -> Sequence[Span]:
        """Return the findings like `find`, but match each expression against the whole string, without shortcuts.

        This is slower than `find`. Checks use it, because its result does not depend on the optimizations of `find`.

        Raises:
            TypeError: If `text` is not a string.
        """
        check_text(text)
        return self._engine.scan(text)

    def judged(self, text: str) -> Iterator[tuple[Span, str, Sequence[str]]]:
        """Yield each match of a rule's expression, with the rule's name and the reasons why it is not a finding.

        The reasons are empty if the match is a finding.
        """
        return self._engine.judged(text)

    @cached_property
    def echoes(self) -> bool:
        """Whether the set has rules that recognize where a text introduces a name.

        Such a name is also searched for in later texts.
        """
        return any(rule.echo for rule in self.rules)

    def names(self, text: str) -> Sequence[str]:
        """Return the names that a text introduces, as written in the text.

        Raises:
            TypeError: If `text` is not a string.
        """
        check_text(text)
        return self._engine.names(text)

    def known(self, text: str, names: Names, *, until: int | None = None) -> Sequence[Span]:
        """Return the occurrences of known names, introduced by other texts, in this text.

        Args:
            text: The text to search.
            names: The known names.
            until: Number of name forms (full names and single words) to search for, in the order in which they were
                learned; None means all.
        """
        return self._engine.known(text, names, until=until) if len(names) else ()

    @property
    def labels(self) -> set[str]:
        """The labels of the rules and of the values in `deny`."""
        return {rule.label for rule in self.rules} | {label for _, label in self.deny}

    def only(self, *labels: str) -> RuleSet:
        """Return a set with only the rules that have one of these labels.

        Raises:
            ConfigError: If no rule of the set has a given label.
        """
        self._check_labels(labels)
        kept = tuple(rule for rule in self.rules if rule.label in labels)
        return RuleSet(f"{self.name}[{','.join(labels)}]", kept, allow=self.allow, deny=self.deny)

    def without(self, *labels: str) -> RuleSet:
        """Return a set without the rules that have one of these labels.

        Raises:
            ConfigError: If no rule of the set has a given label.
        """
        self._check_labels(labels)
        kept = tuple(rule for rule in self.rules if rule.label not in labels)
        return RuleSet(f"{self.name}[-{','.join(labels)}]", kept, allow=self.allow, deny=self.deny)

    def allowing(self, values: Iterable[str]) -> RuleSet:
        """Return a set that never finds these values. The value `@example.com` allows all addresses of that domain.

        Raises:
            ConfigError: If `values` is not a collection of strings.
        """
        allow = self.allow | frozenset(require_strings(values, "allow"))
        return RuleSet(self.name, self.rules, allow=allow, deny=self.deny)

    def denying(self, values: Iterable[str], *, label: str = "DENIED") -> RuleSet:
        """Return a set that always finds these values, whatever their context.

        Args:
            values: The values to find, in any case.
            label: The label of these findings.

        Raises:
            ConfigError: If `values` is not a collection of strings.
        """
        deny = self.deny + tuple((value, label_of(label)) for value in require_strings(values, "deny") if value)
        return RuleSet(self.name, self.rules, allow=self.allow, deny=deny)

    def __or__(self, other: RuleSet) -> RuleSet:
        if not isinstance(other, RuleSet):
            raise ConfigError(f"| joins rule sets: {RULE_SET}, not {type(other).__name__}", setting="rules")
        known = set(self.rules)
        rules = self.rules + tuple(rule for rule in other.rules if rule not in known)
        return RuleSet(f"{self.name}|{other.name}", rules, allow=self.allow | other.allow, deny=self.deny + other.deny)

    def _check_labels(self, labels: Sequence[str]) -> None:
        for label in labels:
            if isinstance(label, list | tuple | set | frozenset):
                written = ", ".join(map(repr, label))
                raise ConfigError(
                    f"pass labels as separate arguments: ({written}), not as a {type(label).__name__}", setting="labels"
                )
        require_labels(labels, {rule.label for rule in self.rules}, setting="labels")

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in self.__dict__.items() if key != "_engine"}


def _check_rules(name: str, rules: object) -> tuple[Rule, ...]:
    if isinstance(rules, list | tuple):
        strangers = [one for one in rules if not isinstance(one, Rule)]
        if not strangers:
            return tuple(rules)
        raise ConfigError(f"rules of {name} must be Rule objects, not {strangers[0]!r}: {RULE_SET}", setting="rules")
    raise ConfigError(
        f"rules of {name} must be a tuple or list, not {type(rules).__name__}: {RULE_SET}", setting="rules"
    )


def _check_deny(pairs: Iterable[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    given = list(pairs) if isinstance(pairs, Iterable) else [pairs]
    if not all(map(_is_pair, given)):
        raise ConfigError("deny must consist of pairs of a value and its label: (('…', 'LABEL'),)", setting="deny")
    return tuple((value, label) for value, label in given)


def _is_pair(given: object) -> bool:
    return isinstance(given, tuple | list) and [type(member) for member in given] == [str, str]


DIGITS: Final = RuleSet("digits", (Rule("digits", "NUMBER", r"\d{3,}", placeholder="[REDACTED]"),))
"""Any run of three or more digits, whatever it means."""
SSN: Final = RuleSet("ssn", (Rule("ssn-shape", "SSN", r"\d{3}-\d{2}-\d{4}"),))
"""The bare shape of a US social security number (`000-00-0000`), with any digits."""
STANDARD: Final = RuleSet("standard", STANDARD_RULES)
"""Personal data and credentials that are recognizable by their form, their check digits, or a context word."""
PEOPLE: Final = RuleSet("people", PEOPLE_RULES)
"""Names of people and postal addresses that the text itself announces. Use it with other rules: `STANDARD | PEOPLE`."""

MODEL: Final = "names"
"""Stands for `ctxguard.pii.NAMES` among the names of rule sets."""

LABELS: Final = frozenset(rule.label for rules in (DIGITS, SSN, STANDARD, PEOPLE) for rule in rules.rules) | {UNCHECKED}
"""The labels of all rules in the library, and `UNCHECKED`."""


def named_rules(*names: str) -> RuleSet:
    """Return the rule sets with the given names, joined: `named_rules("standard", "people")` is `STANDARD | PEOPLE`.

    Raises:
        ConfigError: If a name is unknown, or no name is given.
    """
    known = {rules.name: rules for rules in (STANDARD, PEOPLE, SSN, DIGITS)}
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None or not names:
        every = (*known, MODEL)
        raise ConfigError(
            f"no rule set {unknown!r}{nearest(unknown, every)}; there are {', '.join(every)}", setting="rules"
        )
    if set(names) == {PEOPLE.name}:
        _warn_of_names(PEOPLE.name)
    return reduce(or_, (known[name] for name in names))


def named_detectors(*names: str) -> tuple[Detector, ...]:
    """Return the named rule sets, joined, and behind them the model, if it is named: `(STANDARD | PEOPLE, NAMES)`.

    Raises:
        ConfigError: If a name is unknown, or no name is given.
        ImportError: If `names` is given, and the extra `names` is not installed.
    """
    sets = [name for name in names if name != MODEL]
    joined = (named_rules(*sets),) if sets or MODEL not in names else ()
    if MODEL not in names:
        return joined
    from ctxguard.pii.names import NAMES

    NAMES.require()
    if not sets:
        _warn_of_names(MODEL)
    return (*joined, NAMES)


@cache
def _warn_of_names(name: str) -> None:
    """Log a warning, once, that what finds names is used alone. The command line prints it."""
    message = f"the rule set {name} alone finds only names and postal addresses, no e-mail addresses or numbers"
    logging.getLogger("ctxguard.config").warning("%s; add standard: rules standard,%s", message, name)


def country_rules(*countries: str) -> RuleSet:
    """Return a rule set for the national identification numbers of the given countries.

    Args:
        countries: Country codes (ISO 3166, two letters).

    Raises:
        ConfigError: If there are no rules for a country, or no country is given.
    """
    if not countries:
        raise ConfigError(f"name one or more of {', '.join(COUNTRIES)}", setting="countries")
    for country in countries:
        if not isinstance(country, str) or country not in RULES_BY_COUNTRY:
            raise ConfigError(_unknown(country), setting="countries")
    return RuleSet("+".join(countries), tuple(rule for country in countries for rule in RULES_BY_COUNTRY[country]))


def _unknown(country: object) -> str:
    if isinstance(country, list | tuple | set | frozenset):
        return f"pass countries as separate arguments: country_rules({', '.join(map(repr, country))})"
    if isinstance(country, str) and country.strip().upper() in RULES_BY_COUNTRY:
        return f"no rules for {country}; write {country.strip().upper()}"
    return f"no rules for {country}; countries with rules are {', '.join(COUNTRIES)}"


# A link or a path in front of a number: its scheme or first slash, up to the number, or the slash right before it.
_LINK: Final = re.compile(r"(?:://|(?<!\S)(?:[A-Za-z]:)?[/\\]|(?<!\S)www\.)\S*\Z|[/\\]\Z")
_NEAR: Final = 2_048  # number of characters before a number in which its link may begin


class IdentifierDetector:
    """Applies a rule set to identifiers, and drops most matches that are only digits.

    Only a card number that is one of several words, or behind any punctuation, is kept.
    """

    def __init__(self, rules: Detector) -> None:
        self._rules = rules
        self.name = f"{rules.name} in identifiers"

    def find(self, text: str) -> Sequence[Span]:
        """Return the findings in an identifier, sorted by offset and without overlaps."""
        return _with_form(text, self._rules.find(text))

    def scan(self, text: str) -> Sequence[Span]:
        """Return the findings of the rule set's full search, without caches and shortcuts. Used by checks."""
        scan = getattr(self._rules, "scan", self._rules.find)
        return _with_form(text, scan(text))


def _with_form(text: str, spans: Sequence[Span]) -> Sequence[Span]:
    return [span for span in spans if not text[span.start : span.end].isdecimal() or _is_card_among_words(text, span)]


def _is_card_among_words(text: str, span: Span) -> bool:
    is_all = span.end - span.start == len(text.strip())
    return (
        span.label == "CREDIT_CARD"
        and not is_all
        and _LINK.search(text[max(0, span.start - _NEAR) : span.start]) is None
    )


def for_identifiers(detector: Detector) -> IdentifierDetector | None:
    """Return a detector's variant for identifiers.

    Return None if `detector` is not a rule set, or none of its rules has a pattern that is specific enough.
    """
    given: Any = detector
    return _restricted(given) if isinstance(getattr(given, "rules", None), tuple) else None


def for_names(detectors: Iterable[Detector]) -> list[Detector]:
    """Return the detectors that search what is never edited: all but models, which judge by the words around."""
    return [detector for detector in detectors if not getattr(detector, "is_model", False)]


def is_found_in(identifier: str, detectors: Iterable[Detector]) -> bool:
    """Return whether any detector finds something in an identifier, so that reports and errors must not quote it."""
    strict = (for_identifiers(detector) for detector in detectors)
    return any(detector.find(identifier) for detector in strict if detector is not None)


# compiling a rule set is slow, and checks pass the same few rule sets in every call
@lru_cache(maxsize=64)
def _restricted(rule_set: Any) -> IdentifierDetector | None:  # noqa: ANN401 - any object with the fields of a rule set
    # a rule that requires a context word has a pattern that is not specific enough without that word
    kept = tuple(rule for rule in rule_set.rules if not (rule.context or rule.behind))
    if not kept and not rule_set.deny:
        return None
    return IdentifierDetector(replace(rule_set, name=f"{rule_set.name}[identifiers]", rules=kept))
