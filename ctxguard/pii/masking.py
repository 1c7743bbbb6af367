"""Hide personal data: what is found, how it is hidden, and what is remembered, for many conversations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from ctxguard.errors import ConfigError
from ctxguard.pii.detectors import OnDetectorError, Rules, detectors_of
from ctxguard.pii.mask_session import MaskSession
from ctxguard.pii.placeholders import label_of, redaction
from ctxguard.pii.pseudonyms import Original, Pseudonyms
from ctxguard.pii.rules import RuleSet
from ctxguard.pii.settings import check_text, session_vault
from ctxguard.pii.spans import Detector, Span, resolve
from ctxguard.pii.standard import STANDARD
from ctxguard.pii.steps import Steps
from ctxguard.pii.strategies import Strategies, Strategy, hashed, known_strategies, partly_shown, strategy_of
from ctxguard.tokens.text_cache import TextCache

if TYPE_CHECKING:
    from ctxguard.pii.vault import SessionVault

__all__ = ["Masker", "Rules"]


class Masker:
    """Mask texts by rules or detectors. Safe to share between threads; what it remembers is bounded.

    Args:
        rules: one rule set, detector or callable, or several; the order breaks ties.
        strategy: how findings are hidden: one strategy, or one by label with `*` for the rest.
        key: key of the hash strategy, at least 16 bytes.
        vault: where pseudonyms live; None means that each session numbers its own, in memory.
        escape: True turns placeholders that stand in a text as it comes in into placeholders of themselves, so that
            nobody can make the vault speak; False takes them for one's own, and masking twice changes nothing.
        on_detector_error: what happens when a detector that is no rule set fails: `raise`, or `redact` the whole text.
        timeout: seconds such a detector may take for a text.

    Attributes:
        is_stateless: True where what a text becomes does not depend on other texts.
        is_joinable: True where many texts can be searched in one go (see `RuleSet.is_joinable`).

    Raises:
        ConfigError: a setting is of another kind, a strategy is unknown, `hash` has no key, or a rule matches a
            placeholder.
    """

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
        self.strategy = known_strategies(strategy)
        self.is_stateless = "pseudonymize" not in _chosen(self.strategy)
        self.vault = session_vault(vault)
        self.escape = escape
        self._key = _hash_key(key, strategy)
        self._redactions = _redactions(self.detectors)
        self._found: TextCache[Sequence[Span]] = TextCache(4_000_000)
        self._steps = Steps(is_found=self.is_found)
        self._masked: tuple[TextCache[str], TextCache[str]] = (TextCache(), TextCache())
        self._version = 0
        self.is_joinable = all(isinstance(one, RuleSet) and one.is_joinable for one in self.detectors)
        self._finds_once = len(self.detectors) == 1 and self.is_stateless
        self._check_placeholders()

    def __repr__(self) -> str:
        return f"Masker({', '.join(detector.name for detector in self.detectors)})"

    def session(self) -> MaskSession:
        """Begin with the texts of one conversation, from its first on."""
        return MaskSession(self)

    def mask(self, text: str) -> str:
        """Return one text masked, as the only one of its conversation."""
        return self.session().text(text)

    def find(self, text: str) -> Sequence[Span]:
        """Return what the detectors find together.

        Raises:
            DetectorError: a detector failed.
            TypeError: it is no text.
        """
        check_text(text)
        if self._finds_once and isinstance(self.detectors[0], RuleSet):
            return self.detectors[0].find(text)
        found = self._found.get(text)
        if found is None:
            found = self.find_joined(text)
            self._found.put(text, found)
        return found

    def find_joined(self, text: str) -> Sequence[Span]:
        """Return what the detectors find together, and remember nothing of it."""
        if len(self.detectors) == 1:
            return self.detectors[0].find(text)
        return resolve(chain.from_iterable(detector.find(text) for detector in self.detectors))

    def warm(self, texts: Sequence[str]) -> None:
        """Let detectors that can find in many texts at once (`find_many`) do so, and remember what they found."""
        missing = [text for text in texts if self._found.get(text) is None]
        batches = [getattr(detector, "find_many", None) for detector in self.detectors]
        answers = [
            batch(missing) if batch is not None else [detector.find(text) for text in missing]
            for detector, batch in zip(self.detectors, batches, strict=True)
        ]
        for text, *found in zip(missing, *answers, strict=True):
            self._found.put(text, resolve(chain.from_iterable(found)))

    @property
    def steps(self) -> Steps | None:
        """The conversations that were masked before; None where a text becomes the same in each of them."""
        return None if self.is_stateless or self.vault is not None else self._steps

    def remembered(self) -> tuple[TextCache[str], TextCache[str]]:
        """Return what texts became, with their placeholders kept and escaped: for all sessions, or for this one."""
        if self.steps is not None:
            return TextCache(), TextCache()
        if self.vault is not None and self._version != self.vault.version:
            self._version, self._masked = self.vault.version, (TextCache(), TextCache())
        return self._masked

    def is_found(self, text: str) -> bool:
        """Tell whether a rule set matches in a text."""
        return any(detector.find(text) for detector in self.detectors if isinstance(detector, RuleSet))

    def hidden(self, label: str, original: Original, pseudonyms: Pseudonyms, *, in_full: bool = False) -> str:
        """Return what stands in place of a value; `in_full` leaves no part of it to be seen."""
        strategy = strategy_of(self.strategy, label)
        if strategy == "pseudonymize":
            return pseudonyms.placeholder(label, original)
        if strategy == "hash":
            return hashed(label, original.value, self._key)
        shown = partly_shown(label, original.value) if strategy == "partial" and not in_full else None
        return self.redaction(label) if shown is None else shown

    def redaction(self, label: str) -> str:
        """Return the placeholder that says no more than the label."""
        return self._redactions.get(label) or redaction(label_of(label))

    def _check_placeholders(self) -> None:
        for label, placeholder in self._redactions.items():
            if self.is_found(placeholder):
                raise ConfigError(
                    f"the placeholder of {label} is matched by a rule; choose another", setting="placeholder"
                )


def _chosen(strategies: Strategies) -> tuple[Strategy, ...]:
    return (strategies,) if isinstance(strategies, str) else tuple(strategies.values())


def _redactions(detectors: Iterable[Detector]) -> dict[str, str]:
    sets: Iterator[RuleSet] = (detector for detector in detectors if isinstance(detector, RuleSet))
    return {rule.label: rule.redaction for rules in sets for rule in reversed(rules.rules)}


def _hash_key(key: str | bytes | None, strategy: Strategies) -> bytes:
    wanted = strategy == "hash" or (not isinstance(strategy, str) and "hash" in strategy.values())
    data = key.encode() if isinstance(key, str) else key or b""
    if not isinstance(data, bytes) or (wanted and len(data) < 16):
        raise ConfigError(
            "the hash strategy needs key=…, text or bytes, of at least 16 bytes, else values can be guessed",
            setting="key",
        )
    return data
