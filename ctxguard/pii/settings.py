"""Refuse what rules, masks and vaults cannot work with, when it is given: one line says what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, get_args

from ctxguard.errors import ConfigError

if TYPE_CHECKING:
    from ctxguard.pii.rules import Rule
    from ctxguard.pii.vault import SessionVault

__all__ = ["RULE_SET", "check_rule", "check_text", "one_of", "seconds", "session_vault", "values_of"]

RULE_SET: Final = "RuleSet('name', (rule, …))"
_TEXTS: Final = ("name", "pattern", "anchor", "shape", "gate", "context", "quiet", "tail")
"""Fields of a rule that are texts."""


def check_text(text: object) -> None:
    """Do nothing where it is a text.

    Raises:
        TypeError: it is none; the message holds its type alone, for what it says may be anybody's.
    """
    if not isinstance(text, str):
        raise TypeError(f"a text is wanted, not {type(text).__name__}; decode bytes, and write numbers as str(…)")


def one_of(value: object, known: object, setting: str) -> None:
    """Do nothing where a value is one that a `Literal` names.

    Raises:
        ConfigError: it is another.
    """
    if value not in get_args(known):
        raise ConfigError(f"{setting} is one of {', '.join(get_args(known))}, not {value!r}", setting=setting)


def seconds(value: object, setting: str) -> None:
    """Do nothing where a value is a number of seconds above 0, or None.

    Raises:
        ConfigError: it is not.
    """
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ConfigError(f"{setting} is a number of seconds above 0, or None, not {value!r}", setting=setting)


def values_of(values: object, setting: str) -> list[str]:
    """Return the values that are always or never found.

    Raises:
        ConfigError: they are one text, or not all of them are texts.
    """
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping):
        listed = list(values)
        if all(isinstance(value, str) for value in listed):
            return listed
    raise ConfigError(f"{setting} takes a list of values, each a text: ['…']", setting=setting)


def session_vault(vault: SessionVault | None) -> SessionVault | None:
    """Return the vault of a session, or None.

    Raises:
        ConfigError: it is the vault of all sessions, or none.
    """
    if vault is not None:
        from ctxguard.pii.vault import SessionVault

        if not isinstance(vault, SessionVault):
            raise ConfigError(
                f"vault is one session's, not {type(vault).__name__}; get it by Vault.session('its name')",
                setting="vault",
            )
    return vault


def check_rule(rule: Rule, kinds: object, expressions: Iterable[tuple[str, str, int]]) -> None:
    """Do nothing where a rule can be used.

    Args:
        rule: the rule.
        kinds: the `Literal` of its kinds.
        expressions: its fields that are expressions, as they are compiled, with their flags.

    Raises:
        ConfigError: one of its fields is of another type, or an expression is none; rule and field are named.
    """
    for setting, message in _faults(rule, kinds):
        raise ConfigError(message, setting=setting)
    for setting, source, flags in expressions:
        try:
            re.compile(source, flags)
        except (re.error, OverflowError, RecursionError) as error:
            raise ConfigError(
                _no_expression(rule.name, setting, getattr(rule, setting), source, error), setting=setting
            ) from error


def _faults(rule: Rule, kinds: object) -> Iterator[tuple[str, str]]:
    for setting in _TEXTS:
        value: object = getattr(rule, setting)
        if not isinstance(value, str):
            yield setting, f"{setting} of rule {rule.name} is a text, not {value!r}"
    if not rule.pattern:
        yield "pattern", f"pattern of rule {rule.name} is empty and would match everywhere; say what it finds"
    if rule.kind not in get_args(kinds):
        yield "kind", f"kind of rule {rule.name} is one of {', '.join(get_args(kinds))}, not {rule.kind!r}"
    if rule.needs_context and not rule.context:
        yield "context", f"rule {rule.name} needs a context and has none; give context='word|word'"
    if not _can_judge(rule.validate):
        yield "validate", f"validate of rule {rule.name} is 'module:function' or a function, not {rule.validate!r}"


def _can_judge(validate: object) -> bool:
    if isinstance(validate, str):
        return len(validate.split(":")) in (2, 3) and all(validate.split(":"))
    return validate is None or callable(validate)


def _no_expression(name: str, setting: str, given: str, source: str, error: Exception) -> str:
    """Say what is wrong with an expression, and where in what was given: it is compiled with more around it."""
    reason = str(error)
    if isinstance(error, re.error) and error.pos is not None:
        reason = f"{error.msg} at position {error.pos - source.find(given)}"
    return f"{setting} of rule {name} is no regular expression: {reason} in {given!r}"
