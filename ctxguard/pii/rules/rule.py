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
    """A rule that describes one pattern of personal data.

    The expression itself determines where a text is searched. A rule is fastest if its expression contains a literal
    (`TCK-[0-9]{6}`) or consists only of digits and their separators.

    Attributes:
        name: A name that is unique in its rule set.
        label: The label of the findings, in capital letters and underscores.
        pattern: Regular expression for the normalized text, in which digits, dashes, and spaces of all scripts are
            replaced by their ASCII equivalents. If there is a group named `value`, only that group is the finding.
            Limit all repeats, so that matching takes linear time.
        validate: A module-level function, or its name as `module:function` or `module:function:argument`. It takes the
            matched string, and returns True or False, or the number of leading characters that are the finding. None
            accepts every match.
        context: Regular expression for context words, in any case. A match counts only if one of them occurs in the 40
            characters before it. Empty if no context word is required.
        behind: Regular expression, in any case, that must match directly after a match. Empty if nothing is required.
        quiet: Regular expression, in any case. If it matches directly before a match, the match is not a finding.
        tail: Regular expression for text directly after a finding that is part of it, such as a phone extension.
        score: Confidence in the findings, from 0 to 1.
        placeholder: The replacement for redacted findings; None means `[REDACTED_<LABEL>]`.
        walk: A function, or its name as `module:function` or `module:function:argument`, that takes the text and yields
            the start and end offset of each candidate. It is called only for texts that contain the literals of
            `pattern`. None means that the matches of `pattern` are the candidates.
        echo: Whether a finding introduces a known name: its words are then also searched for in the rest of the text,
            and in later texts of the conversation. The label must be `PERSON`.

    Raises:
        ConfigError: If a field has the wrong type, or an expression does not compile. The message names the rule and
            the field.
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
        """The placeholder that replaces redacted findings of this rule."""
        return self.placeholder if self.placeholder is not None else redaction(self.label)


def _lower(expression: str) -> str:
    """Convert the literal characters of an expression to lower case, but no escapes, classes, or group names."""
    return re.sub(r"(\\.|\(\?P[<=]\w+|\[(?:\\.|[^]])*])|.", lambda m: m[1] or m[0].lower(), expression, flags=re.DOTALL)


def _faults(rule: Rule) -> Iterator[tuple[str, str]]:
    """Yield each problem of a rule: the name of the field, and an error message."""
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
