"""Rules as data, and sets of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Literal, ParamSpec, TypeAlias

from ctxguard.errors import ConfigError
from ctxguard.pii.engine import Engine, engine_of
from ctxguard.pii.joining import is_local
from ctxguard.pii.placeholders import label_of, redaction
from ctxguard.pii.prepared import sources
from ctxguard.pii.settings import RULE_SET, check_rule, check_text, values_of
from ctxguard.pii.spans import Span

__all__ = ["Rule", "RuleSet", "shipped"]

_P = ParamSpec("_P")
Kind: TypeAlias = Literal["text", "number", "token"]


@dataclass(frozen=True, slots=True)
class Rule:
    """Say how one kind of personal data looks.

    Attributes:
        name: its own name, unique in a set.
        label: what it finds; capital letters and underscores.
        pattern: regular expression. Of `kind="text"` over the text; of `kind="number"` over its shape, where every
            digit is `0`, every small letter `a` and every capital `A`, beginning at a digit, `+` or `(` that is not
            glued to a letter, a digit or `_`; of `kind="token"` over the text, for keys and tokens: it begins and ends
            at the edge of a run of letters, digits, `_` and `-`, and holds a run of 20 or more. A group named `value`
            is the finding, if there is one. Keep repeats bounded: time must be linear.
        kind: what the pattern is over.
        anchor: a literal that every match contains, whatever its case (`kind="text"`); the rule runs only where it
            occurs. With `lead`, the pattern is tried only around it.
        lead: characters that may stand before the anchor, at most 64 of them; None means the pattern is searched.
        shape: regular expression over the shape, beginning with a literal, that matches wherever a match begins
            (with `lead`: wherever a match may stand around). With an `h` in it: over the text with every hexadecimal
            digit as `h`.
        gate: a literal that the shape of every match contains (with `shape`); without an `h` in the shape it has a `0`.
        validate: `module:function` (or `module:function:argument`) or a module-level function that judges the matched
            text: yes, no, or how many of its characters are the finding; None takes every match.
        context: words one of which stands shortly before, as a regular expression over small letters.
        needs_context: True where nothing is found without a context word.
        rare_context: True where few texts hold such a word and many what the pattern matches, as they do dates: a text
            is asked once whether it holds any, and if not its numbers are passed over. For `kind="number"`.
        quiet: words right before that make it something else, as a regular expression over small letters.
        tail: regular expression of what belongs to a finding if it follows (an extension).
        score: how sure a finding is, 0 to 1.
        placeholder: what redaction writes; None means `[REDACTED_<LABEL>]`.
        joinable: True says that it finds the same in a text that stands alone and in one that stands between blank
            lines. Where all rules of a set do, the strings of a JSON text are searched in one go. None means that the
            expressions tell: simple ones, as `TCK-[0-9]{6}`, do (see `is_local`); False is always right.

    Raises:
        ConfigError: an expression is none, or a field is of another type; rule and field are named.
    """

    name: str
    label: str
    pattern: str
    kind: Kind = field(default="text", kw_only=True)
    anchor: str = field(default="", kw_only=True)
    lead: str | None = field(default=None, kw_only=True)
    shape: str = field(default="", kw_only=True)
    gate: str = field(default="", kw_only=True)
    validate: str | Callable[[str], bool | int] | None = field(default=None, kw_only=True)
    context: str = field(default="", kw_only=True)
    needs_context: bool = field(default=False, kw_only=True)
    rare_context: bool = field(default=False, kw_only=True)
    quiet: str = field(default="", kw_only=True)
    tail: str = field(default="", kw_only=True)
    score: float = field(default=1.0, kw_only=True)
    placeholder: str | None = field(default=None, kw_only=True)
    joinable: bool | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_rule(self, Kind, sources(self))
        if self.joinable is None:
            local = not self.quiet and all(map(is_local, (self.pattern, self.context, self.tail)))
            object.__setattr__(self, "joinable", local)
        if self.shape and "h" not in self.shape and "0" not in self.gate:
            raise ConfigError(f"rule {self.name} has a shape and needs a gate with a 0 in it", setting="gate")
        if label_of(str(self.label)) != self.label:
            raise ConfigError(
                f"label {self.label!r} of rule {self.name} must be capital letters and underscores, "
                f"as {label_of(str(self.label))!r} is",
                setting="label",
            )

    @property
    def redaction(self) -> str:
        """What redaction writes in place of a finding."""
        return self.placeholder if self.placeholder is not None else redaction(self.label)


def _shipped(*named: str, **settings: object) -> Rule:
    """Make a rule whose expressions the tests have compiled: to do it again for all would cost a tenth of a second."""
    values = dict(zip(("name", "label", "pattern"), named, strict=True)) | {"joinable": True} | settings
    rule = object.__new__(Rule)
    for one in fields(Rule):
        object.__setattr__(rule, one.name, values.get(one.name, one.default))
    return rule


def _as(_: Callable[_P, Rule], make: Callable[..., Rule]) -> Callable[_P, Rule]:
    return make


shipped = _as(Rule, _shipped)
"""Makes a rule of this package: as `Rule` does, but without a check."""


@dataclass(frozen=True, repr=False)
class RuleSet:
    """Hold rules and find what they describe. Immutable, hashable, picklable; joined by `|`.

    Attributes:
        name: what reports call it.
        rules: the rules, in their order of precedence.
        allow: values that are never findings, as they stand in the text, whatever their case.
        deny: values that are always findings, with the label they get: `(("Project Heron", "CODENAME"),)`.

    Raises:
        ConfigError: the name or the rules are left out, or a member is of another kind than these.
    """

    name: str
    rules: tuple[Rule, ...] = ()
    allow: frozenset[str] = field(default=frozenset(), kw_only=True)
    deny: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ConfigError(
                f"a rule set begins with its name: {RULE_SET}, not {type(self.name).__name__}", setting="name"
            )
        # lists are taken, too; what is kept can be hashed
        object.__setattr__(self, "rules", _rules(self.name, self.rules))
        object.__setattr__(self, "allow", frozenset(value.lower() for value in values_of(self.allow, "allow")))
        object.__setattr__(self, "deny", _denied(self.deny))

    def __repr__(self) -> str:
        return f"RuleSet({self.name!r}, {len(self.rules)} rules)"

    def __hash__(self) -> int:
        """Hash what tells most sets apart: to hash all rules would take longer than to search a text."""
        return hash((self.name, len(self.rules), self.allow, self.deny))

    @cached_property
    def _engine(self) -> Engine:
        return engine_of(self.rules, self.allow, self.deny)

    @property
    def is_joinable(self) -> bool:
        """True where many texts can be searched in one go: each rule finds the same in them."""
        return all(rule.joinable for rule in self.rules)

    def find(self, text: str) -> Sequence[Span]:
        """Return the findings, sorted and without overlaps, by the fast path.

        Raises:
            TypeError: it is no text.
        """
        check_text(text)
        return self._engine.find(text)

    def scan(self, text: str) -> Sequence[Span]:
        """Return the same findings by a full pass: no caches, no shortcuts. What checks use.

        Raises:
            TypeError: it is no text.
        """
        check_text(text)
        return self._engine.scan(text)

    def only(self, *labels: str) -> RuleSet:
        """Return the set with the rules of these labels alone.

        Raises:
            ConfigError: no rule has one of these labels.
        """
        self._check_labels(labels)
        kept = tuple(rule for rule in self.rules if rule.label in labels)
        return RuleSet(f"{self.name}[{','.join(labels)}]", kept, allow=self.allow, deny=self.deny)

    def without(self, *labels: str) -> RuleSet:
        """Return the set without the rules of these labels.

        Raises:
            ConfigError: no rule has one of these labels.
        """
        self._check_labels(labels)
        kept = tuple(rule for rule in self.rules if rule.label not in labels)
        return RuleSet(f"{self.name}[-{','.join(labels)}]", kept, allow=self.allow, deny=self.deny)

    def allowing(self, values: Iterable[str]) -> RuleSet:
        """Return the set that leaves these values alone: exact values, or `@example.com` for a whole mail domain."""
        allow = self.allow | frozenset(values_of(values, "allow"))
        return RuleSet(self.name, self.rules, allow=allow, deny=self.deny)

    def denying(self, values: Iterable[str], *, label: str = "DENIED") -> RuleSet:
        """Return the set that always finds these values, whatever stands around them."""
        deny = self.deny + tuple((value, label_of(label)) for value in values_of(values, "deny") if value)
        return RuleSet(self.name, self.rules, allow=self.allow, deny=deny)

    def __or__(self, other: RuleSet) -> RuleSet:
        if not isinstance(other, RuleSet):
            raise ConfigError(f"| joins rule sets: {RULE_SET}, not {type(other).__name__}", setting="rules")
        known = set(self.rules)
        rules = self.rules + tuple(rule for rule in other.rules if rule not in known)
        return RuleSet(f"{self.name}|{other.name}", rules, allow=self.allow | other.allow, deny=self.deny + other.deny)

    def _check_labels(self, labels: Sequence[str]) -> None:
        known = {rule.label for rule in self.rules}
        for label in labels:
            if isinstance(label, list | tuple | set | frozenset):
                written = ", ".join(map(repr, label))
                raise ConfigError(
                    f"labels come one by one: ({written}), not as {type(label).__name__}", setting="labels"
                )
            if label not in known:
                raise ConfigError(
                    f"no rule of {self.name} has the label {label!r}; there are {', '.join(sorted(known))}",
                    setting="labels",
                )

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in self.__dict__.items() if key != "_engine"}


def _rules(name: str, rules: object) -> tuple[Rule, ...]:
    if isinstance(rules, list | tuple):
        strangers = [one for one in rules if not isinstance(one, Rule)]
        if not strangers:
            return tuple(rules)
        raise ConfigError(f"rules of {name} hold {strangers[0]!r}, which is no Rule: {RULE_SET}", setting="rules")
    raise ConfigError(f"rules of {name} are several rules: {RULE_SET}, not {type(rules).__name__}", setting="rules")


def _denied(pairs: Iterable[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    listed = [tuple(values_of(pair, "deny")) for pair in pairs if not isinstance(pair, str)]
    if isinstance(pairs, str) or len(listed) < len(list(pairs)) or any(len(pair) != 2 for pair in listed):
        raise ConfigError("deny holds pairs of a value and its label: (('…', 'LABEL'),)", setting="deny")
    return tuple((value, label) for value, label in listed)
