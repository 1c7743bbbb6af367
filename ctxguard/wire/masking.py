"""The masking stages that the guard uses: their placeholders can be restored in responses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ctxguard.pii import Detector, Masker, RuleSet, SessionVault, Span
from ctxguard.tokens.text_cache import TextCache

if TYPE_CHECKING:
    from ctxguard.pii.mask.strategies import Strategies

_GENERATED: Final = "ctxguard.pii.detect.validate:generated"


class WireMasking:
    """Creates the masking stages for the guard, each of which replaces one masking stage of a stabilizer.

    A stage whose masker does not redact is kept. A masker that redacts would not allow restoring values, so its rules
    are used with another strategy.

    Attributes:
        detectors: The detectors of the stage.
    """

    def __init__(self, own: Masker, strategy: Strategies) -> None:
        self._own = own
        self._strategy = strategy
        self._is_own = own.strategy != "redact" or strategy == "redact"
        self._found: TextCache[Sequence[Span]] = TextCache()
        self.detectors: tuple[Detector, ...] = (
            own.detectors if self._is_own else tuple(map(with_examples, own.detectors))
        )

    def masker(self, vault: SessionVault | None, *, redacts: bool = False) -> Masker:
        """Return the masker for a request.

        Args:
            vault: Stores the placeholders. None derives them from each history alone.
            redacts: Whether values are redacted, so that no placeholders are assigned.
        """
        if self._is_own:
            own = self._own
            if not own.is_reversible or own.vault is not None or not (vault or redacts):
                return own
            return own.without_placeholders() if vault is None else own.with_vault(vault)
        strategy = "redact" if redacts else self._strategy
        return Masker(self.detectors, strategy=strategy, vault=vault, escape=self._own.escape, cache=self._found)


def with_examples(detector: Detector) -> Detector:
    """Return a rule set that also matches keys that look like examples from documentation.

    Values are restored in the response, so masking an example costs nothing, while sending a real key would do harm.
    """
    if not isinstance(detector, RuleSet):
        return detector
    rules = tuple(replace(rule, validate=None) if rule.validate == _GENERATED else rule for rule in detector.rules)
    return detector if rules == detector.rules else replace(detector, rules=rules)
