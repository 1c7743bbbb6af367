"""How a finding is masked: redacted, pseudonymized, hashed, or shown in part."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Mapping
from typing import Final, Literal, TypeAlias, get_args

from ctxguard.errors import ConfigError
from ctxguard.pii.mask.pseudonyms import normalized
from ctxguard.pii.settings import require_labels

Strategy: TypeAlias = Literal["redact", "pseudonymize", "hash", "partial"]
Strategies: TypeAlias = Strategy | Mapping[str, Strategy]
"""One strategy for all labels, or one by label with `*` for the rest (`redact` where there is no `*`)."""
_LETTERS: Final = str.maketrans("0123456789abcdef", "ghijklmnopqrstuv")
_NEVER_SHOWN: Final = frozenset({"SECRET", "PASSWORD", "PRIVATE_KEY", "URL_CREDENTIALS"})


def strategy_of(strategies: Strategies, label: str) -> Strategy:
    """Return the strategy for a label."""
    return strategies if isinstance(strategies, str) else strategies.get(label, strategies.get("*", "redact"))


def known_strategies(strategies: Strategies, labels: Collection[str], *, others: bool) -> Strategies:
    """Return the strategies; raise for an unknown strategy or label; `others` than `labels` may be known, too."""
    by_label = strategies if isinstance(strategies, Mapping) else {"*": strategies}
    require_labels(by_label, labels, setting="strategy", others=others)
    for label, chosen in by_label.items():
        if chosen not in get_args(Strategy):
            raise ConfigError(
                f"unknown strategy {chosen!r} for {label}; known are {', '.join(get_args(Strategy))}",
                setting="strategy",
            )
    return strategies


def hashed(label: str, value: str, key: bytes) -> str:
    """Return `<EMAIL_…>` with 64 bits of an HMAC-SHA256, in letters that no rule for digits matches."""
    digest = hmac.new(key, f"{label}\0{normalized(label, value)}".encode("utf-8", "surrogatepass"), hashlib.sha256)
    return f"<{label}_{digest.hexdigest()[:16].translate(_LETTERS)}>"


def partly_shown(label: str, value: str) -> str | None:
    """Return a value with most of it starred, or None if no part of it may be shown.

    The first letter and the domain of an e-mail address stay; of any other value, the last four letters or digits, or a
    quarter if it is short.
    """
    if label in _NEVER_SHOWN:
        return None
    if label == "EMAIL":
        local, _, domain = value.rpartition("@")
        return f"{local[:1]}***@{domain}"
    size = sum(map(str.isalnum, value))
    hidden = size - min(4, size // 4)
    pieces: list[str] = []
    for char in value:
        starred = char.isalnum() and hidden > 0
        hidden -= char.isalnum()
        pieces.append("*" if starred else char)
    return "".join(pieces)
