"""How the masking stages of a chain mask on the wire: by placeholders that can be restored in responses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ctxguard.pii import Detector, Masker, RuleSet, SessionVault, Span
from ctxguard.stages import MaskPII
from ctxguard.tokens.text_cache import TextCache

if TYPE_CHECKING:
    from ctxguard.pii.mask.strategies import Strategies

_GENERATED: Final = "ctxguard.pii.detect.validate:generated"


class WireMasking:
    """Create the stages that mask on the wire, each replacing one masking stage of a chain.

    A masker that was chosen for its strategy keeps it. A redacting one would not allow restoring values, so its rules
    are used with another strategy.

    Attributes:
        detectors: The detectors of the stage.
    """

    def __init__(self, stage: MaskPII, strategy: Strategies) -> None:
        own = stage.masker
        self._stage = stage
        self._strategy = strategy
        self._is_own = own.strategy != "redact" or strategy == "redact"
        self._found: TextCache[Sequence[Span]] = TextCache()
        self.detectors: tuple[Detector, ...] = (
            own.detectors if self._is_own else tuple(map(with_examples, own.detectors))
        )

    def stage(self, vault: SessionVault | None, *, redacts: bool = False) -> MaskPII:
        """Return a masking stage: with placeholders of a vault or of each history, or without any (`redacts`)."""
        if self._is_own:
            own = self._stage.masker
            if not own.is_reversible or own.vault is not None or not (vault or redacts):
                return self._stage
            return MaskPII(masker=own.without_placeholders() if vault is None else own.with_vault(vault))
        strategy = "redact" if redacts else self._strategy
        escape = self._stage.masker.escape
        masker = Masker(self.detectors, strategy=strategy, vault=vault, escape=escape, cache=self._found)
        return MaskPII(masker=masker)


def with_examples(detector: Detector) -> Detector:
    """Return a rule set that also finds keys that look like documentation examples.

    Since values are restored in the response, masking an example costs nothing; sending a real key would.
    """
    if not isinstance(detector, RuleSet):
        return detector
    rules = tuple(replace(rule, validate=None) if rule.validate == _GENERATED else rule for rule in detector.rules)
    return detector if rules == detector.rules else replace(detector, rules=rules)
