"""Mask the texts of one conversation in their order, and give values back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ctxguard.errors import DetectorError
from ctxguard.pii.detect.echo import Names
from ctxguard.pii.detect.match import PERSON
from ctxguard.pii.detect.normalize import may_spell, spelled_placeholders
from ctxguard.pii.mask.hiding import Hiding
from ctxguard.pii.mask.json_text import (
    JsonToken,
    all_in_strings,
    holds_json,
    is_flat,
    is_json,
    json_tokens,
    kept_apart,
    rewrite_json,
    touched,
    touching,
)
from ctxguard.pii.mask.pseudonyms import MemoryPseudonyms, Original, Pseudonyms
from ctxguard.pii.mask.strategies import strategy_of
from ctxguard.pii.mask.unmask import GivesBack, restore, restore_arguments
from ctxguard.pii.placeholders import LITERAL, PLACEHOLDER, PSEUDONYM
from ctxguard.pii.settings import check_text
from ctxguard.pii.spans import Span, resolve

_ROUNDS: Final = 16
_PARTIAL_ROUNDS: Final = 3
"""After so many rounds nothing is shown in part any more: what was shown kept matching."""
_UNNAMED: Final = re.compile(r"[^A-Za-z0-9_-]+")


class MaskSession(GivesBack):
    """Mask the texts of one conversation in their order, and give values back. Get one from `Masker.session`."""

    def __init__(self, masker: Hiding) -> None:
        self._masker = masker
        self._memory = MemoryPseudonyms()
        self._gives = True
        self._may_escape = self._escapes = masker.escape and masker.is_reversible
        self._literals: frozenset[str] = frozenset()
        self._spelled: set[str] = set()
        self._names = Names()
        self._until: int | None = None
        self._given: int | None = None

    def __repr__(self) -> str:
        return f"MaskSession({len(self._memory)} placeholders)"

    @property
    def pseudonyms(self) -> Pseudonyms:
        """What the placeholders of this conversation stand for."""
        return self._pseudonyms

    @property
    def can_restore(self) -> bool:
        """Whether there may be a placeholder to be given back: one was given here, or the vault may hold some."""
        return len(self._memory) > 0 or self._masker.vault is not None

    def text(self, text: str) -> str:
        """Return a text masked; one that is JSON as a whole stays JSON.

        Raises:
            DetectorError: a detector failed, or finds something in whatever its findings are replaced with.
        """
        return self._become(text, escapes=self._may_escape)

    def own(self, text: str) -> str:
        """Return a text masked that the model or a stage wrote, not a person or a tool: its placeholders stay.

        Those that a person or a tool spelled earlier in this conversation are escaped here, too: the model's answer
        may stand here with its values back, and then they are that person's words, not the model's.

        Raises:
            DetectorError: see `text`.
        """
        return self._become(text, escapes=False)

    @property
    def known(self) -> tuple[int, int]:
        """How many forms of names are known and how many placeholders were given by now, for `again`."""
        return len(self._names), len(self._memory)

    def learn(self, text: str) -> None:
        """Take in the names that a text makes known, without masking it: they are masked in what comes from here on.

        Raises:
            DetectorError: see `text`.
        """
        for form in self._names.learn(self._masker.names(text)):
            # numbered here and not where it is met first: what is masked again at a cut finds its number given
            if strategy_of(self._masker.strategy, PERSON) == "pseudonymize":
                self._pseudonyms.placeholder(PERSON, Original(form))

    def again(self, text: str, known: tuple[int, int]) -> str:
        """Return a text that was masked before with the names masked that have become known since.

        Args:
            text: what masking made of it.
            known: what was known at the point where it is decided anew, see `known`; nothing later counts.

        Raises:
            DetectorError: see `text`.
        """
        literals, self._literals = self._literals, frozenset()
        self._gives = self._masker.vault is not None
        self._until, self._given = known
        try:
            return self._made(text, escapes=False)
        finally:
            self._literals, self._gives, self._until, self._given = literals, True, None, None

    def drafted(self, text: str) -> str:
        """Return a text masked that is no part of the conversation: a summary, a note of a stage.

        Values of the conversation get their placeholders. Without a vault any other is redacted: a number given here
        would be given again to the next value of the conversation.

        Raises:
            DetectorError: see `text`.
        """
        if self._masker.vault is not None:
            return self._become(text, escapes=False, learns=False)
        check_text(text)
        self._gives, self._until = False, 0
        try:
            return self._made(text, escapes=False)
        finally:
            self._gives, self._until = True, None

    def arguments(self, text: str) -> str:
        """Return tool-call arguments masked inside their JSON strings; what is no JSON is masked as text."""
        return self.text(text)

    def name(self, text: str) -> str:
        """Return a participant's name; masked, it is made of letters, digits, `_` and `-`, as providers want it."""
        masked = self.text(text)
        return text if masked == text else _UNNAMED.sub("_", masked).strip("_") or "REDACTED"

    @property
    def _pseudonyms(self) -> Pseudonyms:
        return self._memory if self._masker.vault is None else self._masker.vault

    def _become(self, text: str, *, escapes: bool, learns: bool = True) -> str:
        check_text(text)
        self._spelled = set()
        known = len(self._names)
        try:
            if learns:
                self.learn(text)
            masked = self._made(text, escapes=escapes)
        except BaseException:
            self._names.back_to(known)
            raise
        self._literals |= self._spelled
        return masked

    def _find(self, text: str) -> Sequence[Span]:
        """Return what is found in a text, known names among it."""
        return self._with_known(text, self._masker.find(text))

    def _find_joined(self, text: str) -> Sequence[Span]:
        return self._with_known(text, self._masker.find_joined(text))

    def _with_known(self, text: str, spans: Sequence[Span]) -> Sequence[Span]:
        rules = self._masker.echoing
        if rules is None or not len(self._names):
            return spans
        known = rules.known(text, self._names, until=self._until)
        return resolve((*spans, *known)) if known else spans

    def _made(self, text: str, *, escapes: bool) -> str:
        """Mask a text; where that fails, take back the placeholders that were given for it."""
        self._escapes = escapes
        given = len(self._memory)
        try:
            return self._masked(text)
        except BaseException:
            self._memory.back_to(given)
            raise
        finally:
            self._escapes = self._may_escape

    def _masked(self, text: str) -> str:
        spans = self._find(text)
        if not spans and "\\" not in text and not self._holds_placeholder(text):
            return text
        return self._masked_json(text, spans) if is_json(text) else self._masked_plain(text, spans)

    def _holds_placeholder(self, text: str) -> bool:
        if not (self._escapes or self._literals):
            return False
        return any(self._escapes or name in self._literals for name, _, _ in spelled_placeholders(text))

    def _without_spelled(self, text: str) -> str:
        """Return a text in which placeholders that a person or a tool spelled, now or before, stand for themselves."""
        pieces: list[str] = []
        done = 0
        for name, start, end in spelled_placeholders(text):
            if self._escapes:
                self._spelled.add(name)
            elif name not in self._literals:
                continue
            pieces += (text[done:start], self._pseudonyms.placeholder(LITERAL, Original(text[start:end])))
            done = end
        return "".join((*pieces, text[done:]))

    def _masked_plain(self, text: str, spans: Sequence[Span] | None = None, *, key: str = "") -> str:
        """Mask until nothing is found: what stands next to a placeholder may match where it did not before.

        Args:
            text: the text.
            spans: what was found in it; None where nobody looked.
            key: the JSON key before it.
        """
        if self._escapes or self._literals:
            escaped = self._without_spelled(text)
            text, spans = escaped, spans if escaped == text else None
        for turn in range(_ROUNDS):
            if spans is None:
                spans = self._found(text, key)
            if not spans:
                return text
            text = _replaced(text, spans, partial(self._hidden, in_full=turn >= _PARTIAL_ROUNDS))
            spans = None
        raise DetectorError(self._masker.detectors[0].name, f"still finds something after {_ROUNDS} rounds of masking")

    def _found(self, text: str, key: str) -> Sequence[Span]:
        """Find in a text; where nothing is, with the JSON key before it as its context."""
        spans = self._find(text)
        if spans or not key or not text:
            return spans
        before = f"{key}: "
        return [
            Span(span.start - len(before), span.end - len(before), span.label, span.score)
            for span in self._find(before + text)
            if span.start >= len(before)
        ]

    def _hidden(self, label: str, value: str, *, is_number: bool = False, in_full: bool = False) -> str:
        """Return what stands in place of a value; a placeholder in it is taken back first, so that none is nested."""
        if PSEUDONYM.search(value) is not None:
            way = restore_arguments if holds_json(value) else restore
            value = way(value, self._pseudonyms).text
        pseudonyms = self._pseudonyms
        if not self._gives:
            pseudonyms = self._memory.given(self._masker.redaction, until=self._given)
        return self._masker.hidden(label, Original(value, is_number), pseudonyms, in_full=in_full)

    def _masked_json(self, text: str, spans: Sequence[Span]) -> str:
        """Mask JSON, then hide whole what is still found where it stands."""
        masked = self._masked_in_strings(text, spans)
        if masked is None:
            masked = self._masked_tokens(text, spans)
        for _ in range(_ROUNDS):
            spans = self._find(masked)
            if not spans:
                return masked
            masked = rewrite_json(masked, kept_apart(partial(self._hit, spans=spans)), json_tokens(masked))
        return self._masked_plain(masked)

    def _masked_in_strings(self, text: str, spans: Sequence[Span]) -> str | None:
        """Mask what is found inside strings; None where more is at stake, and one by one is to be looked at.

        So are they where a rule may find more in a string that stands alone: `^[0-9]{6}$`.
        """
        spelled = self._escapes or bool(self._literals)
        if not self._masker.is_joinable or not is_flat(text) or (spelled and may_spell(text)):
            return None
        for turn in range(_ROUNDS):
            if not spans:
                return text
            # a placeholder of one's own may need an escape
            if "\\" in text or not all_in_strings(text, spans):
                return None
            text = _replaced(text, spans, partial(self._hidden_in_json, in_full=turn >= _PARTIAL_ROUNDS))
            spans = self._find(text)
        return None

    def _hidden_in_json(self, label: str, value: str, *, in_full: bool) -> str:
        hidden = self._hidden(label, value, in_full=in_full)
        is_plain = hidden.isprintable() and '"' not in hidden and "\\" not in hidden
        return hidden if is_plain else json.dumps(hidden, ensure_ascii=False)[1:-1]

    def _masked_tokens(self, text: str, spans: Sequence[Span]) -> str:
        tokens = list(json_tokens(text))
        if not self._masker.is_joinable:
            return rewrite_json(text, kept_apart(self._token), tokens)
        asked = self._asked(tokens, spans)
        if not any(token.is_key for token in asked):
            return rewrite_json(text, self._token, asked)
        places = {token.start for token in asked}
        change = kept_apart(lambda token: self._token(token) if token.start in places else token.value)
        return rewrite_json(text, change, tokens)

    def _asked(self, tokens: Sequence[JsonToken], spans: Sequence[Span]) -> list[JsonToken]:
        """Return the tokens in which something may be found, placeholders stand or JSON does: the others stay."""
        find, spelled = self._find_joined, self._escapes or bool(self._literals)
        known = {
            token.start
            for token in tokens
            if touching(spans, token) is not None or (spelled and may_spell(token.value)) or holds_json(token.value)
        }
        others = [token for token in tokens if token.start not in known]
        alone = touched((token.value for token in others), find)
        named = touched((_named(token) for token in others if token.key and token.value not in alone), find)
        return [
            token
            for token in tokens
            if token.start in known or token.value in alone or (named and _named(token) in named)
        ]

    def _token(self, token: JsonToken) -> str:
        value = token.value
        if not token.is_number and holds_json(value):
            return self._masked_json(value, self._find(value))
        spans = self._found(value, token.key)
        if token.is_number:
            return self._hidden(spans[0].label, value, is_number=True) if spans else value
        if len(spans) == 1 and spans[0].end - spans[0].start == len(value) and not may_spell(value):
            hidden = self._hidden(spans[0].label, value)
            if PLACEHOLDER.fullmatch(hidden) is not None:
                return hidden
        return self._masked_plain(value, spans, key=token.key)

    def _hit(self, token: JsonToken, spans: Sequence[Span]) -> str:
        """Hide a whole token that is still found where it stands: what is around it gives it away."""
        hit = touching(spans, token)
        if hit is None or PLACEHOLDER.fullmatch(token.value) is not None:
            return token.value
        return self._hidden(hit.label, token.value, is_number=token.is_number)


def _named(token: JsonToken) -> str:
    return f"{token.key}: {token.value}"


def _replaced(text: str, spans: Sequence[Span], hidden: Callable[[str, str], str]) -> str:
    pieces: list[str] = []
    done = 0
    for span in spans:
        pieces += (text[done : span.start], hidden(span.label, text[span.start : span.end]))
        done = span.end
    pieces.append(text[done:])
    return "".join(pieces)
