"""Mask the texts of a conversation in order, and restore values."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Final

from ctxguard.history.memory import Memory
from ctxguard.pii.detect.echo import Names
from ctxguard.pii.detect.match import PERSON
from ctxguard.pii.mask.masking_rules import MaskingRules, strategy_of
from ctxguard.pii.mask.pseudonyms import MemoryPseudonyms, Original, Pseudonyms
from ctxguard.pii.mask.texts import TextMasking, mask_together
from ctxguard.pii.mask.unmask import GivesBack
from ctxguard.pii.mask.vault import SessionVault, session_vault

_UNNAMED: Final = re.compile(r"[^A-Za-z0-9_-]+")


class MaskSession(GivesBack):
    """Masks the texts of one conversation in order, and restores values. Created by `Masker.session`.

    Args:
        masker: The masker.
        memory: The memory of the conversation, through which what a text has added can be taken back: names,
            placeholders (those in a vault stay), and literals, which are placeholders that a person or a tool wrote.
            None means one of its own.
    """

    def __init__(self, masker: MaskingRules, memory: Memory | None = None) -> None:
        self._masker = masker
        self._memory = Memory() if memory is None else memory
        self._placeholders = MemoryPseudonyms(memory=self._memory)
        self._escapes = masker.escape and masker.is_reversible
        self._literals: frozenset[str] = frozenset()
        self._names = Names(memory=self._memory)

    def __repr__(self) -> str:
        return f"MaskSession({len(self._placeholders)} placeholders)"

    @property
    def pseudonyms(self) -> Pseudonyms:
        """The placeholders of this conversation and their values."""
        return self._pseudonyms

    @property
    def can_restore(self) -> bool:
        """Whether there may be placeholders to restore: this session has assigned one, or the masker has a vault."""
        return len(self._placeholders) > 0 or self._masker.vault is not None

    def text(self, text: str) -> str:
        """Mask the next text, written by a person or a tool. If the whole text is JSON, the result is valid JSON.

        Raises:
            DetectorError: If a detector fails, or keeps finding something in the replacements of its own findings.
        """
        return self._mask_next(text, escapes=self._escapes)

    def own(self, text: str) -> str:
        """Mask the next text, written by the model or a stage; placeholders in it are not escaped.

        The exception is a placeholder that a person or a tool wrote earlier in this conversation. When the model
        repeats such a placeholder, the model quotes that text. So the placeholder is escaped, and no value is restored
        for it.

        Raises:
            DetectorError: See `text`.
        """
        return self._mask_next(text, escapes=False)

    def together(self, texts: Sequence[str], *, is_own: bool) -> list[str]:
        """Mask the texts of one message, in which a value may be split over several texts.

        Args:
            texts: The texts in order.
            is_own: Whether the model or a stage wrote the message (see `own`), rather than a person or a tool.

        Raises:
            DetectorError: See `text`.
        """
        masking = TextMasking(self._masker, self._names, self._pseudonyms)
        return mask_together(texts, masking.find, self.own if is_own else self.text, masking.hidden)

    @property
    def known(self) -> tuple[int, int]:
        """How many forms of names and how many placeholders are in memory now, to be passed to `again` later.

        The forms of a name are the full name and its single words.
        """
        return len(self._names), len(self._placeholders)

    def learn(self, text: str) -> None:
        """Learn the names that a text introduces, without masking the text. The names are masked in all later texts.

        Raises:
            DetectorError: See `text`.
        """
        for form in self._names.learn(self._masker.names(text)):
            # Number the name when it is learned, not when it is first masked, so that masking the text again in `again`
            # finds the same number.
            if strategy_of(self._masker.strategy, PERSON) == "pseudonymize":
                self._pseudonyms.placeholder(PERSON, Original(form))

    def again(self, text: str, known: tuple[int, int]) -> str:
        """Mask a text again that was masked earlier, because more names have been learned since.

        Args:
            text: The masked text.
            known: The value that the property `known` had at some point of the conversation. Names and placeholders
                added after that point are not used.

        Raises:
            DetectorError: See `text`.
        """
        forms, placeholders = known
        return self._mask(TextMasking(self._masker, self._names, self._existing(placeholders), until=forms), text)

    def drafted(self, text: str) -> str:
        """Mask a text that is not part of the conversation, such as a summary or a note of a stage.

        Values of the conversation get their placeholders. Without a vault, all other values are redacted: a pseudonym
        for them would not be remembered, so the next new value of the conversation would get the same number.

        Raises:
            DetectorError: See `text`.
        """
        until = 0 if self._masker.vault is None else None
        pseudonyms = self._existing()
        masking = TextMasking(self._masker, self._names, pseudonyms, literals=self._literals, until=until)
        return self._mask(masking, text)

    def arguments(self, text: str) -> str:
        """Mask tool-call arguments inside their JSON strings, or as plain text if they are not valid JSON.

        Raises:
            DetectorError: See `text`.
        """
        return self.text(text)

    def name(self, text: str) -> str:
        """Mask a participant's name. A masked name has only letters, digits, `_`, and `-`, as providers require.

        Raises:
            DetectorError: See `text`.
        """
        masked = self.text(text)
        return text if masked == text else _UNNAMED.sub("_", masked).strip("_") or "REDACTED"

    @property
    def _pseudonyms(self) -> Pseudonyms:
        return self._placeholders if self._masker.vault is None else self._masker.vault

    def _existing(self, until: int | None = None) -> Pseudonyms:
        """Return a view of the existing placeholders that assigns no new ones, or the vault if there is one.

        Args:
            until: Number of placeholders in memory to use, in the order in which they were assigned; None means all.
        """
        vault = self._masker.vault
        return self._placeholders.given(self._masker.redaction, until=until) if vault is None else vault

    def _mask_next(self, text: str, *, escapes: bool) -> str:
        """Mask the next text of the conversation, and learn the names in it. If that fails, nothing is learned."""
        before = self._memory.mark
        masking = TextMasking(self._masker, self._names, self._pseudonyms, escapes=escapes, literals=self._literals)
        try:
            self.learn(text)
            masked = self._mask(masking, text)
        except BaseException:
            self._memory.take_back(before)
            raise
        if not masking.spelled <= self._literals:
            self._memory.set(self, "_literals", self._literals | masking.spelled)
        return masked

    def _mask(self, masking: TextMasking, text: str) -> str:
        """Mask a text. If that fails, remove the placeholders that were assigned in memory for it."""
        before = self._memory.mark
        try:
            return masking.masked(text)
        except BaseException:
            self._memory.take_back(before)
            raise


class Masker(MaskingRules):
    """Masks texts by rules or detectors. Thread-safe; its caches are bounded.

    Args:
        rules: A rule set, a detector, a callable, or a sequence of these. The order breaks ties.
        strategy: One strategy for all findings, or strategies by label, with `*` for all other labels.
        key: Key of the `hash` strategy, at least 16 bytes; None means the environment variable CTXGUARD_HASH_KEY.
        vault: Stores the values of pseudonyms. None means that each session numbers its own values, in memory.
        escape: Whether text that already looks like a placeholder is masked as well, so that nobody can read a value
            from the vault by writing its placeholder. With False, such text is kept, so that masking twice changes
            nothing.
        on_detector_error: What to do if a detector that is not a rule set fails: `raise` an error, or `redact` the
            whole text.
        timeout: Maximum time that such a detector may take for a text, in seconds; None means no limit.

    Attributes:
        is_stateless: Whether the masked text never depends on other texts.
        is_reversible: Whether some values get placeholders that can be restored.
        echoing: The rule set that recognizes where a text introduces a name, such as `PEOPLE`; None if there is none.
        is_joinable: Whether many texts can be joined and searched at once, see `RuleSet.is_joinable`.

    Raises:
        ConfigError: If a setting has the wrong type, a strategy is unknown, `hash` has no key, or a rule matches a
            placeholder.
    """

    def __repr__(self) -> str:
        return f"Masker({', '.join(detector.name for detector in self.detectors)})"

    def session(self, memory: Memory | None = None) -> MaskSession:
        """Return a session that masks the texts of one conversation, starting with the first text.

        Args:
            memory: See `MaskSession`.
        """
        return MaskSession(self, memory)

    def with_vault(self, vault: SessionVault) -> Masker:
        """Return a masker with the same rules that stores placeholders in a vault.

        If this masker redacts all findings, the new masker pseudonymizes them. Any other strategy is kept, and so are
        strategies by label.

        Args:
            vault: The vault of one session, from `Vault.session`.

        Raises:
            ConfigError: If `vault` is not the vault of one session.
        """
        chosen = copy.copy(self)
        chosen.vault = session_vault(vault)
        if self.strategy == "redact":
            chosen.strategy = "pseudonymize"
        return chosen

    def without_placeholders(self) -> Masker:
        """Return a masker with the same rules that redacts everything that this masker would pseudonymize."""
        chosen = copy.copy(self)
        ways = {"*": self.strategy} if isinstance(self.strategy, str) else self.strategy
        chosen.strategy = {label: "redact" if way == "pseudonymize" else way for label, way in ways.items()}
        return chosen

    def mask(self, text: str) -> str:
        """Mask a single text that does not belong to a conversation.

        Raises:
            DetectorError: See `MaskSession.text`.
        """
        return self.session().text(text)
