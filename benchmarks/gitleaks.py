"""Read a gitleaks rule file as a rule set: its authors maintain hundreds of token formats."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ctxguard.errors import ConfigError, reason_of
from ctxguard.pii.detect.validate import entropy
from ctxguard.pii.rule_sets import RuleSet
from ctxguard.pii.rules.rule import Rule

_POSIX = {
    "[:alnum:]": "A-Za-z0-9",
    "[:alpha:]": "A-Za-z",
    "[:digit:]": "0-9",
    "[:xdigit:]": "0-9A-Fa-f",
    "[:word:]": r"\w",
}
_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?!\?)")
"""An escape, a class, or the beginning of a group."""
_INLINE_FLAGS = re.compile(r"\(\?(?!P)([ims]+)\)")


@dataclass(frozen=True, slots=True)
class _Random:
    """Accept a value whose entropy, in bits a character, is high enough. A class, so that rules can be pickled."""

    least: float
    stopped: tuple[str, ...] = ()

    def __call__(self, value: str) -> bool:
        return entropy(value) >= self.least and not any(re.search(pattern, value) for pattern in self.stopped)


def load_gitleaks(path: str | Path, *, label: str = "SECRET") -> RuleSet:
    """Return the rules of a gitleaks configuration file (`gitleaks.toml`, version 8).

    Entropy and allow lists become validators; rules about file paths alone are left out. Keywords are not needed: the
    literals that a text must contain are derived from the expressions.

    Args:
        path: the file.
        label: label of the findings.

    Raises:
        ConfigError: the file cannot be read, or a rule's expression is not valid in Python.
    """
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {reason_of(error)}; name a gitleaks.toml", setting="path") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not a gitleaks configuration: {reason_of(error)}", setting="path") from error
    everywhere = _stopped(data)
    rules = tuple(_rule(one, label, everywhere) for one in data.get("rules", ()) if "regex" in one)
    return RuleSet("gitleaks", rules)


def _rule(one: Mapping[str, object], label: str, everywhere: tuple[str, ...]) -> Rule:
    pattern = _translated(str(one["regex"]), str(one.get("id")))
    check = _Random(float(str(one.get("entropy", 0))), (*everywhere, *_stopped(one)))
    return Rule(f"gitleaks-{one.get('id')}", label, pattern, validate=check)


def _translated(pattern: str, name: str) -> str:
    r"""Return Go's expression in Python's syntax: flags with their scope, `\\z`, and the first group as the finding."""
    named = _named(_in_python(pattern))
    try:
        return re.compile(named).pattern
    except re.error as error:
        raise ConfigError(f"gitleaks rule {name}: {error.msg}; leave it out of the file", setting="regex") from error


def _named(pattern: str) -> str:
    """Name the first group of an expression `value`; brackets in a class or after a backslash do not open a group."""
    opened = next((match.start() for match in _PART.finditer(pattern) if match[0] == "("), None)
    return pattern if opened is None else f"{pattern[:opened]}(?P<value>{pattern[opened + 1 :]}"


def _in_python(pattern: str) -> str:
    """Convert the syntax that differs between the languages; flags in the middle are applied to the whole."""
    for name, members in _POSIX.items():
        pattern = pattern.replace(name, members)
    pattern = pattern.replace(r"\z", r"\Z")
    flags = "".join(sorted(set("".join(_INLINE_FLAGS.findall(pattern)))))
    pattern = _INLINE_FLAGS.sub("", pattern)
    return f"(?{flags}){pattern}" if flags else pattern


def _stopped(one: Mapping[str, object]) -> tuple[str, ...]:
    lists = one.get("allowlists") or [one.get("allowlist") or {}]
    entries = [entry for entry in lists if isinstance(entry, dict)] if isinstance(lists, list) else []
    return tuple(_in_python(str(text)) for entry in entries for text in entry.get("regexes", ()))
