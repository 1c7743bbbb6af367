"""The detectors of a masker, and the replacement for each finding."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias, get_args

from ctxguard.errors import ConfigError
from ctxguard.pii.detectors import OnDetectorError, Rules, detectors_of
from ctxguard.pii.mask.pseudonyms import Original, Pseudonyms, normalized
from ctxguard.pii.mask.vault import SessionVault, session_vault
from ctxguard.pii.placeholders import LITERAL, label_of, redaction
from ctxguard.pii.rule_sets import LABELS, STANDARD, RuleSet
from ctxguard.pii.spans import Detector, Span, require_labels, resolve

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


HASH_KEY_VARIABLE: Final = "CTXGUARD_HASH_KEY"


class MaskingRules:
    """The detectors and strategies of a masker. The arguments are those of `Masker`."""

    def __init__(
        self,
        rules: Rules = STANDARD,
        *,
        strategy: Strategies = "redact",
        key: str | bytes | None = None,
        vault: SessionVault | None = None,
        escape: bool = True,
        on_detector_error: OnDetectorError = "raise",
        timeout: float | None = None,
    ) -> None:
        self.detectors = detectors_of(rules, timeout=timeout, on_error=on_detector_error)
        labels = LABELS.union("*", *(getattr(one, "labels", ()) for one in self.detectors))
        others = not all(isinstance(one, RuleSet) for one in self.detectors)
        self.strategy = known_strategies(strategy, labels, others=others)
        self.labels = None if others else labels | {LITERAL}
        """The labels that findings can have; None if detectors other than rules may define further labels."""
        self.echoing = next((one for one in self.detectors if isinstance(one, RuleSet) and one.echoes), None)
        self.vault = session_vault(vault)
        self.escape = escape
        self._key = _hash_key(key, strategy)
        self._redactions = _redactions(self.detectors)
        self.is_joinable = all(getattr(one, "is_joinable", False) for one in self.detectors)
        self._check_placeholders()

    @property
    def is_model(self) -> bool:
        """Whether one of the detectors is a model, which takes long."""
        return any(getattr(one, "is_model", False) for one in self.detectors)

    @property
    def is_reversible(self) -> bool:
        """Whether some values get placeholders that can be restored."""
        return "pseudonymize" in _strategies_in(self.strategy)

    @property
    def is_stateless(self) -> bool:
        """Whether the masked text never depends on earlier texts."""
        return not self.is_reversible and self.echoing is None

    def find(self, text: str) -> Sequence[Span]:
        """Return the findings of all detectors in a text, sorted by offset and without overlaps.

        Raises:
            DetectorError: If a detector fails.
            TypeError: If `text` is not a string.
        """
        if len(self.detectors) == 1:
            return self.detectors[0].find(text)
        found = [span for detector in self.detectors for span in detector.find(text)]
        return resolve(found, text) if found else ()

    def names(self, text: str) -> Sequence[str]:
        """Return the names that a text introduces."""
        return () if self.echoing is None else self.echoing.names(text)

    def warm(self, texts: Sequence[str]) -> None:
        """Have the detectors that take many texts at once search them all in one batch, and cache their findings."""
        for batch in (getattr(detector, "find_many", None) for detector in self.detectors):
            if batch is not None:
                batch(texts)

    def is_found(self, text: str) -> bool:
        """Return whether any rule set finds something in a text."""
        return any(detector.find(text) for detector in self.detectors if isinstance(detector, RuleSet))

    def hidden(self, label: str, original: Original, pseudonyms: Pseudonyms, *, in_full: bool = False) -> str:
        """Return the replacement for a value.

        Args:
            label: The label of the finding.
            original: The value.
            pseudonyms: Assigns the placeholder if the value is pseudonymized.
            in_full: Whether to redact the value where the strategy `partial` would show a part of it.
        """
        strategy = strategy_of(self.strategy, label)
        if strategy == "pseudonymize":
            return pseudonyms.placeholder(label, original)
        if strategy == "hash":
            return hashed(label, original.value, self._key)
        shown = partly_shown(label, original.value) if strategy == "partial" and not in_full else None
        return self.redaction(label) if shown is None else shown

    def redaction(self, label: str) -> str:
        """Return the redaction placeholder for a label, such as `[REDACTED_EMAIL]`."""
        return self._redactions.get(label) or redaction(label_of(label))

    def _check_placeholders(self) -> None:
        for label, placeholder in self._redactions.items():
            if self.is_found(placeholder):
                raise ConfigError(
                    f"the placeholder of {label} is matched by a rule; choose another", setting="placeholder"
                )


def _strategies_in(strategies: Strategies) -> tuple[Strategy, ...]:
    return (strategies,) if isinstance(strategies, str) else tuple(strategies.values())


def _redactions(detectors: Iterable[Detector]) -> dict[str, str]:
    sets: Iterator[RuleSet] = (detector for detector in detectors if isinstance(detector, RuleSet))
    return {rule.label: rule.redaction for rules in sets for rule in reversed(rules.rules)}


def _hash_key(key: str | bytes | None, strategy: Strategies) -> bytes:
    wanted = "hash" in _strategies_in(strategy)
    key = os.environ.get(HASH_KEY_VARIABLE, "") if key is None and wanted else key
    data = key.encode() if isinstance(key, str) else key or b""
    if not isinstance(data, bytes) or (wanted and len(data) < 16):
        raise ConfigError(
            f"the hash strategy needs key=… (or the variable {HASH_KEY_VARIABLE}), at least 16 bytes long, "
            "so that values cannot be guessed",
            setting="key",
        )
    return data
