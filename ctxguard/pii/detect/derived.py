"""What is derived from the expressions of the library's rules, read from `data/derived.json`.

To derive it anew takes a second of processor time, in each process. A rule whose expressions differ from those in the
file is derived anew, so the file may be out of date, but is never wrong. `make derived` writes it.
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
    """Return properties of a rule's matcher by their names; none if the file has no rule of these expressions."""
    of, properties = _read().get(rule.name, ("", {}))
    if of != fingerprint(rule):
        return {}
    return {name: _anchor(**value) if isinstance(value, dict) else value for name, value in properties.items()}


def fingerprint(rule: Rule) -> str:
    """Return a hash of a rule's expressions."""
    return sha256("\0".join(getattr(rule, one) for one in EXPRESSIONS).encode()).hexdigest()[:16]


@cache
def _read() -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    read: Mapping[str, tuple[str, Mapping[str, Any]]] = json.loads(FILE.read_text("utf-8"))
    return read


def _anchor(form: int, literals: list[str], beyond: str = "", **others: Any) -> Anchor:  # noqa: ANN401 - other fields
    others |= {name: frozenset(map(ord, others[name])) for name in ("lead", "bound") if name in others}
    return Anchor(FORMS[form], tuple(literals), beyond=frozenset(beyond), **others)
