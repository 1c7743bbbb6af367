"""Write what is derived from the expressions of the library's rules into `ctxguard/data/derived.json`: `make derived`.

A line for each rule: a hash of its expressions, and the properties of its matcher that take long to derive.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from typing import Any

from ctxguard.pii import PEOPLE, STANDARD, Rule
from ctxguard.pii.detect.match import Matcher
from ctxguard.pii.detect.prefilter import FILE, FORMS, Anchor, fingerprint

RULES = (*STANDARD.rules, *PEOPLE.rules)
PROPERTIES = (
    "is_number",
    "tells_digits_apart",
    "runs_on",
    "reach",
    "between",
    "is_beyond_ascii",
    "anchor",
    "words_before",
    "words_behind",
)


@cache
def derived_anew(rule: Rule) -> dict[str, Any]:
    """Return the properties of a rule, none of them read from the file, which has no rule of this name."""
    matcher = Matcher(replace(rule, name=f"{rule.name}, anew"), 0)
    return {name: getattr(matcher, name) for name in PROPERTIES}


def written(anchor: Anchor) -> dict[str, Any]:
    """Return the fields of an anchor that differ from their defaults, sets of characters as bits."""
    others = {one.name: getattr(anchor, one.name) for one in fields(Anchor)[2:]}
    others = {one.name: others[one.name] for one in fields(Anchor)[2:] if others[one.name] != one.default}
    others |= {name: "".join(map(chr, sorted(others[name]))) for name in ("lead", "bound", "first") if name in others}
    others |= {"beyond": "".join(sorted(others["beyond"]))} if "beyond" in others else {}
    return {"form": FORMS.index(anchor.form), "literals": anchor.literals, **others}


def lines() -> Iterator[str]:
    """Yield the lines of the file."""
    for rule in RULES:
        properties = {
            name: written(value) if isinstance(value, Anchor) else value for name, value in derived_anew(rule).items()
        }
        yield f"{json.dumps(rule.name)}: {json.dumps([fingerprint(rule), properties], ensure_ascii=False)}"


if __name__ == "__main__":
    FILE.write_text("{\n" + ",\n".join(lines()) + "\n}\n", encoding="utf-8")
