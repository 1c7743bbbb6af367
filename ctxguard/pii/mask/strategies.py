"""The strategies of masking: a finding is redacted, pseudonymized, hashed, or partly shown."""

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
"""One strategy for all labels, or strategies by label. The label `*` stands for all other labels. Without `*`, findings
with other labels are redacted."""
_LETTERS: Final = str.maketrans("0123456789abcdef", "ghijklmnopqrstuv")
_NEVER_SHOWN: Final = frozenset({"SECRET", "PASSWORD", "PRIVATE_KEY", "URL_CREDENTIALS"})


def strategy_of(strategies: Strategies, label: str) -> Strategy:
    """Return the strategy for a label."""
    return strategies if isinstance(strategies, str) else strategies.get(label, strategies.get("*", "redact"))


def known_strategies(strategies: Strategies, labels: Collection[str], *, others: bool) -> Strategies:
    """Return the strategies unchanged, after checking them.

    Args:
        strategies: One strategy, or strategies by label.
        labels: The known labels.
        others: Whether detectors other than rules may use labels that are not in `labels`.

    Raises:
        ConfigError: If a strategy or a label is unknown.
    """
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
    """Return a placeholder `<EMAIL_…>` with 64 bits of the value's HMAC-SHA256.

    The hash is written in letters, so that no rule for digits matches it. Equal values get the same placeholder.
    """
    digest = hmac.new(key, f"{label}\0{normalized(label, value)}".encode("utf-8", "surrogatepass"), hashlib.sha256)
    return f"<{label}_{digest.hexdigest()[:16].translate(_LETTERS)}>"


def partly_shown(label: str, value: str) -> str | None:
    """Return a value with most of its letters and digits replaced by `*`; None if no part of it may be shown.

    An e-mail address keeps its first letter and its domain. Any other value keeps its last four letters or digits, or
    the last quarter of them if there are fewer than 16.
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
