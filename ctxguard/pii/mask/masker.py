"""Hide personal data in the texts of many conversations."""

from __future__ import annotations

import copy

from ctxguard.pii.mask.hiding import Hiding
from ctxguard.pii.mask.session import MaskSession
from ctxguard.pii.mask.vault import SessionVault, session_vault


class Masker(Hiding):
    """Mask texts by rules or detectors. Safe to share between threads; what it remembers is bounded.

    Args:
        rules: one rule set, detector or callable, or several; the order breaks ties.
        strategy: how findings are hidden: one strategy, or one by label with `*` for the rest.
        key: key of the hash strategy, at least 16 bytes.
        vault: where pseudonyms live; None means that each session numbers its own, in memory.
        escape: True also masks what already looks like a placeholder in a text, so that nobody gets a value out of the
            vault by writing its placeholder; False leaves such placeholders as they are, and masking twice changes
            nothing.
        on_detector_error: what happens when a detector that is not a rule set fails: `raise`, or `redact` the whole
            text.
        timeout: seconds such a detector may take for a text.
        cache: what was found in which text, remembered; None means a cache of the masker's own. It changes speed, never
            a result; maskers with the same rules may share one.

    Attributes:
        is_stateless: True where what a text becomes does not depend on other texts.
        is_reversible: True where some values get placeholders that can be given back.
        echoing: the rule set that makes names known, such as `PEOPLE`; None where there is none.
        is_joinable: True where many texts can be searched in one go (see `RuleSet.is_joinable`).

    Raises:
        ConfigError: a setting is of another kind, a strategy is unknown, `hash` has no key, or a rule matches a
            placeholder.
    """

    def __repr__(self) -> str:
        return f"Masker({', '.join(detector.name for detector in self.detectors)})"

    def session(self) -> MaskSession:
        """Begin with the texts of one conversation, from its first on."""
        return MaskSession(self)

    def with_vault(self, vault: SessionVault) -> Masker:
        """Return a masker with the same rules whose placeholders live in a vault; redacting becomes pseudonymizing.

        Args:
            vault: of one session.

        Raises:
            ConfigError: it is not the vault of a session.
        """
        chosen = copy.copy(self)
        chosen.vault = session_vault(vault)
        if self.strategy == "redact":
            chosen.strategy, chosen.is_stateless = "pseudonymize", False
        return chosen

    def mask(self, text: str) -> str:
        """Return one text masked, as the only one of its conversation."""
        return self.session().text(text)
