"""Names of people and postal addresses where the text itself says so: in a field, a phrase, a letter, by their parts.

No rule here knows a name. Each knows where names stand, or what an address is made of.
"""

from __future__ import annotations

from typing import Final

from ctxguard.pii.rules.rule import Rule, shipped

_LETTER: Final = r"[^\W\d_]"


def _rule(name: str, label: str, walk: str, *, echo: bool = False) -> Rule:
    return shipped(name, label, _LETTER, walk=f"ctxguard.pii.detect.{walk}", score=0.7, echo=echo)


PEOPLE_RULES: Final = (
    _rule("person-said", "PERSON", "cues:names", echo=True),
    _rule("person-beside-mail", "PERSON", "streets:owners", echo=True),
    _rule("address-said", "ADDRESS", "cues:addresses"),
    _rule("address-parts", "ADDRESS", "streets:streets"),
)
"""Rules of names and addresses."""
