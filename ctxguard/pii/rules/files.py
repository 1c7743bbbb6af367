"""Read rules from data files: `ctxguard/data/rules/core.toml` and others.

A file consists of groups of rules, and optionally of fragments of regular expressions (table `pieces`).

* In an expression, `{START}` is replaced by the fragment of that name, defined in the same file or in `pieces.toml`.
  `{birth}` is replaced by all words of that section (see `words`), separated by `|`.
* An expression may extend over several lines; leading white space is removed from each line.
* A rule with a table `each` becomes one rule for each entry of the table. In the rule's fields, `{NAME}` and `{EACH}`
  stand for the key and the value of the entry.
* `validate` and `walk` name functions in `ctxguard.pii.detect`. `check` names a module of python-stdnum that verifies
  check digits, such as `br.cpf`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from ctxguard.errors import ConfigError
from ctxguard.pii.rules.rule import Rule
from ctxguard.pii.rules.words import DATA, read_toml, sections, words
from ctxguard.settings import nearest

_REFERENCE: Final = re.compile(r"\{([A-Z][A-Z0-9_]*|[a-z_]+)\}")
_FUNCTIONS: Final = ("validate", "walk")
_FIELDS: Final = {one.name: one.default for one in fields(Rule)}


class RuleFile:
    """The rules and fragments of one data file.

    Args:
        name: The file name without its suffix. With `groups`, it is only used in error messages.
        groups: The content of the file; None reads it from the file.
        given: Additional fragments by name, defined by the caller.

    Raises:
        ConfigError: If the file cannot be read, or a fragment refers to a name that is neither a fragment defined
            before it nor a section of words.
    """

    def __init__(self, name: str, groups: Mapping[str, Any] | None = None, **given: str) -> None:
        self._name = name if groups is not None else f"{name}.toml"
        self._groups = dict(read_toml(DATA / "rules" / f"{name}.toml") if groups is None else groups)
        self._pieces = dict(given)
        for pieces in (read_toml(DATA / "rules" / "pieces.toml")["pieces"], self._groups.pop("pieces", {})):
            for piece, text in pieces.items():
                self._pieces[piece] = self.filled(text)

    def rules(self) -> dict[str, tuple[Rule, ...]]:
        """Return the rules of each group, in file order.

        Raises:
            ConfigError: If a rule has an unknown field, or refers to an unknown fragment.
        """
        return {group: tuple(self.rule(**one) for one in self.content(group)) for group in self._groups}

    def content(self, group: str) -> Iterator[dict[str, Any]]:
        """Yield the fields of each rule in a group, with `each` expanded, but with references not yet replaced."""
        return (one for rule in self._groups[group] for one in _each(rule))

    def rule(self, **values: Any) -> Rule:  # noqa: ANN401 - fields have different types
        """Create a rule from its fields, as they are written in the file.

        Raises:
            ConfigError: If a field is unknown, or refers to an unknown fragment.
        """
        unknown = min(values.keys() - {*_FIELDS, "check"}, default=None)
        if unknown is not None:
            near = nearest(unknown, [*_FIELDS, "check"])
            raise ConfigError(f"{self._name} has a rule with an unknown field {unknown!r}{near}", setting=unknown)
        if "check" in values:
            values = {"validate": f"validate:stdnum:{values['check']}", **values}
        filled = {field: self.filled(value) if isinstance(value, str) else value for field, value in values.items()}
        filled |= {field: f"ctxguard.pii.detect.{filled[field]}" for field in _FUNCTIONS if field in filled}
        # Skip the validation in `Rule`, because compiling all expressions would take 0.1 seconds on import. The tests
        # validate all rules of the library.
        rule = object.__new__(Rule)
        for field, default in _FIELDS.items():
            object.__setattr__(rule, field, filled.get(field, default))
        return rule

    def filled(self, text: str) -> str:
        """Return an expression with all `{NAME}` references replaced by fragments and words."""
        return _REFERENCE.sub(lambda match: self._resolve(match[1]), _join_lines(text))

    def _resolve(self, name: str) -> str:
        if name in self._pieces:
            return self._pieces[name]
        if name in sections():
            return "|".join(words(name))
        raise ConfigError(f"{self._name} refers to {{{name}}}, which is neither a piece nor a section", setting=name)


def _join_lines(text: str) -> str:
    """Join the lines of an expression, without their indentation."""
    return "".join(line.lstrip() for line in text.split("\n")) if "\n" in text else text


def _each(rule: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the fields of a rule once for each entry of its table `each`, or once if it has no such table."""
    listed = rule.get("each")
    if listed is None:
        yield dict(rule)
        return
    for name, text in listed.items():
        yield {
            field: value.replace("{NAME}", name).replace("{EACH}", _join_lines(text))
            if isinstance(value, str)
            else value
            for field, value in rule.items()
            if field != "each"
        }
