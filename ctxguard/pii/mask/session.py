"""Mask the texts of conversations, each in its order, and restore values."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Final

from ctxguard.pii.detect.echo import Names
from ctxguard.pii.detect.match import PERSON
from ctxguard.pii.mask.masking_rules import MaskingRules
from ctxguard.pii.mask.pseudonyms import MemoryPseudonyms, Original, Pseudonyms
from ctxguard.pii.mask.strategies import strategy_of
from ctxguard.pii.mask.texts import TextMasking
from ctxguard.pii.mask.together import mask_together
from ctxguard.pii.mask.unmask import GivesBack
from ctxguard.pii.mask.vault import SessionVault, session_vault
from ctxguard.pii.settings import check_text

_UNNAMED: Final = re.compile(r"[^A-Za-z0-9_-]+")


class MaskSession(GivesBack):
    """Mask the texts of one conversation in their order, and restore values. Get one from `Masker.session`."""

    def __init__(self, masker: MaskingRules) -> None:
        self._masker = masker
        self._memory = MemoryPseudonyms()
        self._escapes = masker.escape and masker.is_reversible
        self._literals: frozenset[str] = frozenset()
        self._names = Names()

    def __repr__(self) -> str:
        return f"MaskSession({len(self._memory)} placeholders)"

    @property
    def pseudonyms(self) -> Pseudonyms:
        """The placeholders of this conversation, and their values."""
        return self._pseudonyms

    @property
    def can_restore(self) -> bool:
        """Whether there may be a placeholder to restore: this session has written one, or there is a vault."""
        return len(self._memory) > 0 or self._masker.vault is not None

    def text(self, text: str) -> str:
        """Return a text masked; one that is JSON as a whole stays JSON.

        Raises:
            DetectorError: a detector failed, or matches in the replacements of its own findings.
        """
        return self._next(text, escapes=self._escapes)

    def own(self, text: str) -> str:
        """Mask a text that the model or a stage wrote, rather than a person or a tool: its placeholders stay.

        But if a person or a tool wrote the same placeholder earlier in this conversation, it is escaped: in the model's
        answer, it quotes that person, and no value must be restored for it.

        Raises:
            DetectorError: see `text`.
        """
        return self._next(text, escapes=False)

    def together(self, texts: Sequence[str], *, is_own: bool) -> list[str]:
        """Mask the texts of one message; a value may be split over several of them.

        Raises:
            DetectorError: see `text`.
        """
        masking = TextMasking(self._masker, self._names, self._pseudonyms)
        return mask_together(texts, masking.find, self.own if is_own else self.text, masking.hidden)

    @property
    def known(self) -> tuple[int, int]:
        """Return how many forms of names and how many placeholders there are so far, for `again`."""
        return len(self._names), len(self._memory)

    @property
    def progress(self) -> tuple[int, int, frozenset[str]]:
        """How far the session has come, for `back_to`."""
        return len(self._names), len(self._memory), self._literals

    def back_to(self, progress: tuple[int, int, frozenset[str]]) -> None:
        """Forget what later texts introduced. Placeholders in a vault stay."""
        names, placeholders, self._literals = progress
        self._names.back_to(names)
        self._memory.back_to(placeholders)

    def learn(self, text: str) -> None:
        """Learn the names that a text introduces, without masking it: they are masked in all later texts.

        Raises:
            DetectorError: see `text`.
        """
        for form in self._names.learn(self._masker.names(text)):
            # Number the name when it is learned, not when it is first masked: re-masking at a later cut reuses it.
            if strategy_of(self._masker.strategy, PERSON) == "pseudonymize":
                self._pseudonyms.placeholder(PERSON, Original(form))

    def again(self, text: str, known: tuple[int, int]) -> str:
        """Mask a masked text again, by the names that were learned since.

        Args:
            text: the masked text.
            known: the names and placeholders that count: the result of `known` at that point of the conversation.

        Raises:
            DetectorError: see `text`.
        """
        forms, placeholders = known
        return self._masked(TextMasking(self._masker, self._names, self._given(placeholders), until=forms), text)

    def drafted(self, text: str) -> str:
        """Mask a text that is not part of the conversation: a summary, a note of a stage.

        Values of the conversation get their placeholders. Without a vault, any other value is redacted: the next new
        value of the conversation would get the same number.

        Raises:
            DetectorError: see `text`.
        """
        check_text(text)
        until = 0 if self._masker.vault is None else None
        pseudonyms = self._given()
        masking = TextMasking(self._masker, self._names, pseudonyms, literals=self._literals, until=until)
        return self._masked(masking, text)

    def arguments(self, text: str) -> str:
        """Mask tool-call arguments inside their JSON strings; anything that is not JSON is masked as text."""
        return self.text(text)

    def name(self, text: str) -> str:
        """Mask a participant's name; the result contains only letters, digits, `_` and `-`, as providers require."""
        masked = self.text(text)
        return text if masked == text else _UNNAMED.sub("_", masked).strip("_") or "REDACTED"

    @property
    def _pseudonyms(self) -> Pseudonyms:
        return self._memory if self._masker.vault is None else self._masker.vault

    def _given(self, until: int | None = None) -> Pseudonyms:
        """Return the existing placeholders without assigning new ones: those so far, or all of the vault.

        Args:
            until: how many of those in memory count, the first ones; None means all.
        """
        vault = self._masker.vault
        return self._memory.given(self._masker.redaction, until=until) if vault is None else vault

    def _next(self, text: str, *, escapes: bool) -> str:
        """Mask the next text of the conversation."""
        check_text(text)
        known = len(self._names)
        masking = TextMasking(self._masker, self._names, self._pseudonyms, escapes=escapes, literals=self._literals)
        try:
            self.learn(text)
            masked = self._masked(masking, text)
        except BaseException:
            self._names.back_to(known)
            raise
        self._literals |= masking.spelled
        return masked

    def _masked(self, masking: TextMasking, text: str) -> str:
        """Mask a text; if that fails, remove the placeholders that were assigned for it."""
        given = len(self._memory)
        try:
            return masking.masked(text)
        except BaseException:
            self._memory.back_to(given)
            raise


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
