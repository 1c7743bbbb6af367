"""Read rules from data files: `ctxguard/data/rules/core.toml` and others.

A file has named fragments of regular expressions, and groups of rules. In an expression, `{START}` is replaced by a
fragment of the file or of `pieces.toml`, and `{birth}` by all words of a section (see `words`). An expression may
extend over several lines; their indentation is not part of it. A rule with a table `each` becomes one rule per entry:
`{NAME}` and `{EACH}` in it are the key and the value. `validate` and `walk` name functions in `ctxguard.pii.detect`;
`check` names a module of python-stdnum that verifies the check digits (`br.cpf`).
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
        name: the name of the file without its suffix.
        groups: its content; None reads the file.
        given: fragments that the caller defines.

    Raises:
        ConfigError: the file cannot be read, or a fragment refers to one that is neither above it nor a section of
            words.
    """

    def __init__(self, name: str, groups: Mapping[str, Any] | None = None, **given: str) -> None:
        self._name = name if groups is not None else f"{name}.toml"
        self._groups = dict(read_toml(DATA / "rules" / f"{name}.toml") if groups is None else groups)
        self._pieces = dict(given)
        for pieces in (read_toml(DATA / "rules" / "pieces.toml")["pieces"], self._groups.pop("pieces", {})):
            for piece, text in pieces.items():
                self._pieces[piece] = self.filled(text)

    def rules(self) -> dict[str, tuple[Rule, ...]]:
        """Return the rules by group, in their order.

        Raises:
            ConfigError: a rule has an unknown field, or refers to an unknown fragment.
        """
        return {group: tuple(self.rule(**one) for one in self.content(group)) for group in self._groups}

    def content(self, group: str) -> Iterator[dict[str, Any]]:
        """Yield the rules of a group as written, those with `each` one by one."""
        return (one for rule in self._groups[group] for one in _each(rule))

    def rule(self, **values: Any) -> Rule:  # noqa: ANN401 - fields of rules as the file has them
        """Return one rule.

        Raises:
            ConfigError: a field is unknown, or refers to an unknown fragment.
        """
        unknown = min(values.keys() - {*_FIELDS, "check"}, default=None)
        if unknown is not None:
            near = nearest(unknown, [*_FIELDS, "check"])
            raise ConfigError(f"{self._name} has a rule with an unknown field {unknown!r}{near}", setting=unknown)
        if "check" in values:
            values = {"validate": f"validate:stdnum:{values['check']}", **values}
        filled = {field: self.filled(value) if isinstance(value, str) else value for field, value in values.items()}
        filled |= {field: f"ctxguard.pii.detect.{filled[field]}" for field in _FUNCTIONS if field in filled}
        # Without the checks of `Rule`, which the tests make: compiling all expressions takes a tenth of a second.
        rule = object.__new__(Rule)
        for field, default in _FIELDS.items():
            object.__setattr__(rule, field, filled.get(field, default))
        return rule

    def filled(self, text: str) -> str:
        """Return an expression with fragments and words in place of their names."""
        return _REFERENCE.sub(lambda match: self._referred(match[1]), _joined(text))

    def _referred(self, name: str) -> str:
        if name in self._pieces:
            return self._pieces[name]
        if name in sections():
            return "|".join(words(name))
        raise ConfigError(f"{self._name} refers to {{{name}}}, which is no piece and no section", setting=name)


def _joined(text: str) -> str:
    """Return an expression that may be written on several lines."""
    return "".join(line.lstrip() for line in text.split("\n")) if "\n" in text else text


def _each(rule: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rules that one rule in a file defines."""
    listed = rule.get("each")
    if listed is None:
        yield dict(rule)
        return
    for name, text in listed.items():
        yield {
            field: value.replace("{NAME}", name).replace("{EACH}", _joined(text)) if isinstance(value, str) else value
            for field, value in rule.items()
            if field != "each"
        }
