"""Properties derived from the library's rules, read from `data/derived.json`.

Deriving them takes about one second of CPU time, so they are stored instead of derived in each process. The properties
of a rule are ignored if its expressions have changed since, so an outdated file is slow but never wrong. `make derived`
writes the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from ctxguard.pii.detect.anchors import FORMS, Anchor
from ctxguard.pii.rules.rule import EXPRESSIONS
from ctxguard.pii.rules.words import DATA

if TYPE_CHECKING:
    from ctxguard.pii.rules.rule import Rule

FILE: Final = DATA / "derived.json"


def derived(rule: Rule) -> Mapping[str, Any]:
    """Return the stored properties of a rule's matcher, by name.

    The result is empty if the file has no properties for the rule's current expressions.
    """
    of, properties = _read().get(rule.name, ("", {}))
    if of != fingerprint(rule):
        return {}
    return {name: _anchor(**value) if isinstance(value, dict) else value for name, value in properties.items()}


def fingerprint(rule: Rule) -> str:
    """Return a hash of a rule's expressions, which changes if any of them changes."""
    return sha256("\0".join(getattr(rule, one) for one in EXPRESSIONS).encode()).hexdigest()[:16]


@cache
def _read() -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    read: Mapping[str, tuple[str, Mapping[str, Any]]] = json.loads(FILE.read_text("utf-8"))
    return read


def _anchor(form: int, literals: list[str], beyond: str = "", **others: Any) -> Anchor:  # noqa: ANN401 - other fields
    others |= {name: frozenset(map(ord, others[name])) for name in ("lead", "bound", "first") if name in others}
    return Anchor(FORMS[form], tuple(literals), beyond=frozenset(beyond), **others)
