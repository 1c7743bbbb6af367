"""Mask one text, as plain text or as JSON, until no rule finds anything in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ctxguard.errors import DetectorError
from ctxguard.pii.detect.echo import Names
from ctxguard.pii.detect.normalize import may_spell, spelled_placeholders
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
from ctxguard.pii.mask.masking_rules import MaskingRules
from ctxguard.pii.mask.pseudonyms import Original, Pseudonyms
from ctxguard.pii.mask.unmask import restore, restore_arguments
from ctxguard.pii.placeholders import LITERAL, PLACEHOLDER, PSEUDONYM
from ctxguard.pii.spans import Span, resolve

_ROUNDS: Final = 16  # after so many, a rule must be matching its own replacements
_PARTIAL_ROUNDS: Final = 3
"""After so many rounds values are masked in full: the part that was shown kept matching."""


@dataclass(frozen=True, slots=True)
class TextMasking:
    """The masking of one text of a conversation.

    Attributes:
        rules: the detectors, and the replacement for each finding.
        names: the known names of the conversation.
        pseudonyms: the placeholders of values.
        escapes: whether placeholders in the text are masked as well, because a person or a tool wrote it.
        literals: placeholders that a person or a tool wrote earlier; they are always masked.
        until: how many forms of `names` count, the first ones; None means all.
        spelled: the placeholders that were found in the text, if it `escapes`.
    """

    rules: MaskingRules
    names: Names
    pseudonyms: Pseudonyms
    escapes: bool = False
    literals: frozenset[str] = frozenset()
    until: int | None = None
    spelled: set[str] = field(default_factory=set)

    def find(self, text: str) -> Sequence[Span]:
        """Return the findings in a text, including known names."""
        return self._with_known(text, self.rules.find(text))

    def _find_joined(self, text: str) -> Sequence[Span]:
        return self._with_known(text, self.rules.find_joined(text))

    def _with_known(self, text: str, spans: Sequence[Span]) -> Sequence[Span]:
        echoing = self.rules.echoing
        if echoing is None or not len(self.names):
            return spans
        known = echoing.known(text, self.names, until=self.until)
        return resolve((*spans, *known), text) if known else spans

    def masked(self, text: str) -> str:
        """Return the text masked; one that is JSON as a whole stays JSON.

        Raises:
            DetectorError: a detector failed, or finds something in whatever its findings are replaced with.
        """
        spans = self.find(text)
        if not spans and "\\" not in text and not self._holds_placeholder(text):
            return text
        return self._masked_json(text, spans) if is_json(text) else self._masked_plain(text, spans)

    def _holds_placeholder(self, text: str) -> bool:
        if not (self.escapes or self.literals):
            return False
        return any(self.escapes or name in self.literals for name, _, _ in spelled_placeholders(text))

    def _without_spelled(self, text: str) -> str:
        """Escape the placeholders in a text that a person or a tool wrote, here or earlier."""
        pieces: list[str] = []
        done = 0
        for name, start, end in spelled_placeholders(text):
            if self.escapes:
                self.spelled.add(name)
            elif name not in self.literals:
                continue
            pieces += (text[done:start], self.pseudonyms.placeholder(LITERAL, Original(text[start:end])))
            done = end
        return "".join((*pieces, text[done:]))

    def _masked_plain(self, text: str, spans: Sequence[Span] | None = None, *, key: str = "") -> str:
        """Mask until nothing is found: next to a new placeholder, text may match that did not match before.

        Args:
            text: the text.
            spans: the findings in it; None if it was not searched yet.
            key: the JSON key before it.
        """
        if self.escapes or self.literals:
            escaped = self._without_spelled(text)
            text, spans = escaped, spans if escaped == text else None
        for turn in range(_ROUNDS):
            if spans is None:
                spans = self._found(text, key)
            if not spans:
                return text
            text = _replaced(text, spans, partial(self.hidden, in_full=turn >= _PARTIAL_ROUNDS))
            spans = None
        raise DetectorError(self.rules.detectors[0].name, f"still finds something after {_ROUNDS} rounds of masking")

    def _found(self, text: str, key: str) -> Sequence[Span]:
        """Search a text; if nothing is found, search it with the JSON key before it as context."""
        spans = self.find(text)
        if spans or not key or not text:
            return spans
        before = f"{key}: "
        return [
            Span(span.start - len(before), span.end - len(before), span.label, span.score)
            for span in self.find(before + text)
            if span.start >= len(before)
        ]

    def hidden(self, label: str, value: str, *, is_number: bool = False, in_full: bool = False) -> str:
        """Return the replacement of a value; placeholders in the value are restored first, so that none is nested."""
        if PSEUDONYM.search(value) is not None:
            way = restore_arguments if holds_json(value) else restore
            value = way(value, self.pseudonyms).text
        return self.rules.hidden(label, Original(value, is_number), self.pseudonyms, in_full=in_full)

    def _masked_json(self, text: str, spans: Sequence[Span]) -> str:
        """Mask the values of JSON; then replace whole values in which the JSON text still has findings."""
        masked = self._masked_in_strings(text, spans)
        if masked is None:
            masked = self._masked_tokens(text, spans)
        for _ in range(_ROUNDS):
            spans = self.find(masked)
            if not spans:
                return masked
            masked = rewrite_json(masked, kept_apart(partial(self._hit, spans=spans)), json_tokens(masked))
        return self._masked_plain(masked)

    def _masked_in_strings(self, text: str, spans: Sequence[Span]) -> str | None:
        """Mask findings that lie inside strings; None if the strings must be masked one by one.

        They must be if a rule may find more in a string alone, such as `^[0-9]{6}$`.
        """
        spelled = self.escapes or bool(self.literals)
        if not self.rules.is_joinable or not is_flat(text) or (spelled and may_spell(text)):
            return None
        for turn in range(_ROUNDS):
            if not spans:
                return text
            # a custom placeholder may need an escape
            if "\\" in text or not all_in_strings(text, spans):
                return None
            text = _replaced(text, spans, partial(self._hidden_in_json, in_full=turn >= _PARTIAL_ROUNDS))
            spans = self.find(text)
        return None

    def _hidden_in_json(self, label: str, value: str, *, in_full: bool) -> str:
        hidden = self.hidden(label, value, in_full=in_full)
        is_plain = hidden.isprintable() and '"' not in hidden and "\\" not in hidden
        return hidden if is_plain else json.dumps(hidden, ensure_ascii=False)[1:-1]

    def _masked_tokens(self, text: str, spans: Sequence[Span]) -> str:
        tokens = list(json_tokens(text))
        if not self.rules.is_joinable:
            return rewrite_json(text, kept_apart(self._token), tokens)
        asked = self._asked(tokens, spans)
        if not any(token.is_key for token in asked):
            return rewrite_json(text, self._token, asked)
        places = {token.start for token in asked}
        change = kept_apart(lambda token: self._token(token) if token.start in places else token.value)
        return rewrite_json(text, change, tokens)

    def _asked(self, tokens: Sequence[JsonToken], spans: Sequence[Span]) -> list[JsonToken]:
        """Return the tokens that may contain findings, placeholders, or JSON; all others stay as they are."""
        find, spelled = self._find_joined, self.escapes or bool(self.literals)
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
            return self._masked_json(value, self.find(value))
        spans = self._found(value, token.key)
        if token.is_number:
            return self.hidden(spans[0].label, value, is_number=True) if spans else value
        if len(spans) == 1 and spans[0].end - spans[0].start == len(value) and not may_spell(value):
            hidden = self.hidden(spans[0].label, value)
            if PLACEHOLDER.fullmatch(hidden) is not None:
                return hidden
        return self._masked_plain(value, spans, key=token.key)

    def _hit(self, token: JsonToken, spans: Sequence[Span]) -> str:
        """Replace a whole token that still has a finding in the JSON text: it matches together with its context."""
        hit = touching(spans, token)
        if hit is None or PLACEHOLDER.fullmatch(token.value) is not None:
            return token.value
        return self.hidden(hit.label, token.value, is_number=token.is_number)


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
