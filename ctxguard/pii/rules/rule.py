"""The definition of a rule: an expression, a validator, context words, and a label."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from ctxguard.errors import ConfigError
from ctxguard.pii.placeholders import label_of, redaction

_TEXTS: Final = ("name", "label", "pattern", "context", "behind", "quiet", "tail")
EXPRESSIONS: Final = ("pattern", "context", "behind", "quiet", "tail")


@dataclass(frozen=True, slots=True)
class Rule:
    """One pattern of personal data.

    Where a text is searched is derived from the expression itself; it is fastest if it contains a literal
    (`TCK-[0-9]{6}`) or consists of digits and their separators.

    Attributes:
        name: its own name, unique in a set.
        label: what it finds; capital letters and underscores.
        pattern: regular expression over the normalized text, in which digits, dashes and spaces of all scripts are
            replaced by those of ASCII. If there is a group named `value`, it is the finding. Keep repeats bounded: time
            must be linear.
        validate: `module:function` (or `module:function:argument`) or a module-level function that judges the matched
            text: yes, no, or how many of its characters are the finding; None accepts every match.
        context: words one of which must be among the 40 characters before, as a regular expression in any case; empty
            if none is needed.
        behind: words one of which must be directly after, likewise.
        quiet: words directly before that rule out a finding, likewise.
        tail: regular expression for text after a finding that belongs to it (an extension).
        score: confidence in a finding, 0 to 1.
        placeholder: the replacement for redaction; None means `[REDACTED_<LABEL>]`.
        walk: `module:function` or a function that yields the candidates in a text, as pairs of offsets, for texts with
            the literals of `pattern`; None if the candidates are the matches of `pattern`.
        echo: whether a finding, which has the label `PERSON`, makes a name known: its words are then searched for in
            the rest of the text, and in the later texts of its conversation.

    Raises:
        ConfigError: a field has the wrong type, or an expression does not compile; rule and field are named.
    """

    name: str
    label: str
    pattern: str
    validate: str | Callable[[str], bool | int] | None = field(default=None, kw_only=True)
    context: str = field(default="", kw_only=True)
    behind: str = field(default="", kw_only=True)
    quiet: str = field(default="", kw_only=True)
    tail: str = field(default="", kw_only=True)
    score: float = field(default=1.0, kw_only=True)
    placeholder: str | None = field(default=None, kw_only=True)
    walk: str | Callable[[str], Iterable[tuple[int, int]]] | None = field(default=None, kw_only=True)
    echo: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        for setting, message in _faults(self):
            raise ConfigError(message, setting=setting)
        for setting in ("context", "behind", "quiet"):
            object.__setattr__(self, setting, _lower(getattr(self, setting)))

    @property
    def redaction(self) -> str:
        """The replacement of a finding for redaction."""
        return self.placeholder if self.placeholder is not None else redaction(self.label)


def _lower(expression: str) -> str:
    """Return an expression with its words in lower case; groups, classes, and what follows a backslash stay."""
    return re.sub(r"(\\.|\(\?P[<=]\w+|\[(?:\\.|[^]])*])|.", lambda m: m[1] or m[0].lower(), expression, flags=re.DOTALL)


def _faults(rule: Rule) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a rule: the field, and a message."""
    for setting in _TEXTS:
        value: object = getattr(rule, setting)
        if not isinstance(value, str):
            yield setting, f"{setting} of rule {rule.name} must be a string, not {value!r}"
    if not rule.pattern:
        yield "pattern", f"pattern of rule {rule.name} is empty and would match everywhere; say what it finds"
    if not isinstance(rule.score, int | float) or not 0 <= rule.score <= 1:
        yield "score", f"score of rule {rule.name} must be a number from 0 to 1, not {rule.score!r}"
    if not _can_judge(rule.validate):
        yield "validate", f"validate of rule {rule.name} must be 'module:function' or a function, not {rule.validate!r}"
    for setting in EXPRESSIONS:
        source = getattr(rule, setting)
        try:
            if re.compile(source).match("") and setting == "pattern" and source:
                yield setting, f"pattern of rule {rule.name} matches an empty text; write {{1,64}} for *, ? or {{0,64}}"
        except (re.error, OverflowError, RecursionError) as error:
            where = f"{error.msg} at position {error.pos}" if isinstance(error, re.error) else str(error)
            yield setting, f"{setting} of rule {rule.name} is not a regular expression: {where} in {source!r}"
    if label_of(rule.label) != rule.label:
        yield (
            "label",
            f"label {rule.label!r} of rule {rule.name} must be capital letters and underscores, "
            f"such as {label_of(rule.label)!r}",
        )


def _can_judge(validate: object) -> bool:
    if isinstance(validate, str):
        return len(validate.split(":")) in (2, 3) and all(validate.split(":"))
    return validate is None or callable(validate)
