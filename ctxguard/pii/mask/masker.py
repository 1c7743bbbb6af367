"""Mask personal data in the texts of many conversations."""

from __future__ import annotations

import copy

from ctxguard.pii.mask.masking_rules import MaskingRules
from ctxguard.pii.mask.session import MaskSession
from ctxguard.pii.mask.vault import SessionVault, session_vault


class Masker(MaskingRules):
    """Mask texts by rules or detectors. Safe to share between threads; its caches are bounded.

    Args:
        rules: one rule set, detector or callable, or several; the order breaks ties.
        strategy: how findings are masked: one strategy, or one per label with `*` for the rest.
        key: key of the hash strategy, at least 16 bytes; None means the environment variable CTXGUARD_HASH_KEY.
        vault: where the values of pseudonyms are stored; None means that each session numbers its own, in memory.
        escape: True also masks text that already looks like a placeholder, so that nobody can read a value out of the
            vault by writing its placeholder; False leaves it, so that masking twice changes nothing.
        on_detector_error: what happens when a detector that is not a rule set fails: `raise`, or `redact` the whole
            text.
        timeout: seconds such a detector may take for a text.
        cache: the cache of findings by text; None creates one for this masker. It affects speed, never a result;
            maskers with the same rules may share one.

    Attributes:
        is_stateless: True if the masked text does not depend on other texts.
        is_reversible: True if some values get placeholders that can be restored.
        echoing: the rule set that learns names, such as `PEOPLE`; None if there is none.
        is_joinable: True if many texts can be joined and searched at once (see `RuleSet.is_joinable`).

    Raises:
        ConfigError: a setting has the wrong type, a strategy is unknown, `hash` has no key, or a rule matches a
            placeholder.
    """

    def __repr__(self) -> str:
        return f"Masker({', '.join(detector.name for detector in self.detectors)})"

    def session(self) -> MaskSession:
        """Return a session that masks the texts of one conversation, starting with the first."""
        return MaskSession(self)

    def with_vault(self, vault: SessionVault) -> Masker:
        """Return a masker with the same rules whose placeholders are in a vault; redaction becomes pseudonymization.

        Args:
            vault: of one session.

        Raises:
            ConfigError: it is not the vault of a session.
        """
        chosen = copy.copy(self)
        chosen.vault = session_vault(vault)
        if self.strategy == "redact":
            chosen.strategy = "pseudonymize"
        return chosen

    def without_placeholders(self) -> Masker:
        """Return a masker with the same rules that redacts whatever this one would pseudonymize."""
        chosen = copy.copy(self)
        ways = {"*": self.strategy} if isinstance(self.strategy, str) else self.strategy
        chosen.strategy = {label: "redact" if way == "pseudonymize" else way for label, way in ways.items()}
        return chosen

    def mask(self, text: str) -> str:
        """Return one text masked, as the only one of its conversation."""
        return self.session().text(text)
