"""Mask the texts of a conversation in order, each as plain text or as JSON, and restore values.

A `Masker` holds the rules and creates a `MaskSession` for each conversation. The session masks each text with a
`TextMasking`, and the texts of one message, in which values may be split, with `mask_together`.
"""

from __future__ import annotations

import copy
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise, product
from typing import Final, NamedTuple

from ctxguard.errors import DetectorError
from ctxguard.history.memory import Memory
from ctxguard.pii.detect.echo import Names
from ctxguard.pii.detect.match import PERSON
from ctxguard.pii.detect.normalize import may_spell, spelled_placeholders
from ctxguard.pii.detect.tables import WINDOW
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
from ctxguard.pii.mask.masking_rules import MaskingRules, strategy_of
from ctxguard.pii.mask.pseudonyms import MemoryPseudonyms, Original, Pseudonyms
from ctxguard.pii.mask.unmask import GivesBack, restore, restore_arguments
from ctxguard.pii.mask.vault import SessionVault, session_vault
from ctxguard.pii.placeholders import LITERAL, PLACEHOLDER, PSEUDONYM
from ctxguard.pii.spans import Span, resolve

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")
"""Matches characters that providers refuse in the name of a participant."""


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
        # A value that is found once another is replaced may be split, too.
        find = partial(masking.find_in_rounds, redaction=self._masker.redaction)
        return mask_together(texts, find, self.own if is_own else self.text, masking.hidden)

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
        return self._mask(TextMasking(self._masker, self._names, self._existing(), until=until), text)

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
        return text if masked == text else _NOT_IN_NAMES.sub("_", masked).strip("_") or "REDACTED"

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


_ROUNDS: Final = 16  # after so many rounds, a rule certainly matches its own replacements
_PARTIAL_ROUNDS: Final = 3
"""Number of rounds of masking after which values are redacted in full, because their shown parts keep matching."""


@dataclass(frozen=True, slots=True)
class TextMasking:
    """The masking of one text of a conversation.

    Attributes:
        rules: The detectors and the strategies.
        names: The known names of the conversation.
        pseudonyms: Assigns placeholders to values, and returns the values of placeholders.
        escapes: Whether text that already looks like a placeholder is masked as well, because a person or a tool wrote
            it.
        literals: Placeholders that a person or a tool wrote earlier in the conversation; these are always masked.
        until: Number of name forms (full names and single words) to search for, in the order in which they were
            learned; None means all.
        spelled: The placeholders that were found in the text. Filled by `masked` if `escapes` is set.
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
        spans = self.rules.find(text)
        echoing = self.rules.echoing
        if echoing is None or not len(self.names):
            return spans
        known = echoing.known(text, self.names, until=self.until)
        return resolve((*spans, *known), text) if known else spans

    def find_in_rounds(self, text: str, redaction: Callable[[str], str]) -> Sequence[Span]:
        """Return the findings in a text, with those that are found once the others are replaced, see `_mask_plain`.

        Args:
            text: The text.
            redaction: Function that returns the replacement for a value with a label.
        """
        spans = self.find(text)
        for _ in range(_ROUNDS):
            if not spans:
                break
            more = self.find(_replace(text, spans, lambda label, _: redaction(label)))
            if not more:
                break
            spans = resolve((*spans, *_before_replacing(more, spans, redaction)), text)
        return spans

    def masked(self, text: str) -> str:
        """Mask a text. If the whole text is JSON, the result is valid JSON.

        Raises:
            DetectorError: If a detector fails, or keeps finding something in the replacements of its own findings.
        """
        spans = self.find(text)
        if not spans and "\\" not in text and not self._holds_placeholder(text):
            return text
        return self._mask_json(text, spans) if is_json(text) else self._mask_plain(text, spans)

    def _holds_placeholder(self, text: str) -> bool:
        if not (self.escapes or self.literals):
            return False
        found = spelled_placeholders(text, self.rules.labels)
        return any(self.escapes or not self.literals.isdisjoint(names) for names, _, _ in found)

    def _mask_spelled(self, text: str) -> str:
        """Mask those placeholders in a text that were written by a person or a tool, here or in an earlier text."""
        pieces: list[str] = []
        done = 0
        for names, start, end in spelled_placeholders(text, self.rules.labels):
            if self.escapes:
                self.spelled.update(names)
            elif self.literals.isdisjoint(names):
                continue
            pieces += (text[done:start], self.pseudonyms.placeholder(LITERAL, Original(text[start:end])))
            done = end
        return "".join((*pieces, text[done:]))

    def _mask_plain(self, text: str, spans: Sequence[Span] | None = None, *, key: str = "") -> str:
        """Mask plain text repeatedly until nothing is found.

        One round is not enough, because text next to a new placeholder may match a rule that it did not match before.

        Args:
            text: The text.
            spans: The findings in the text; None if it has not been searched yet.
            key: The JSON key of the text, used as context; empty if it has none.
        """
        if self.escapes or self.literals:
            escaped = self._mask_spelled(text)
            text, spans = escaped, spans if escaped == text else None
        for turn in range(_ROUNDS):
            if spans is None:
                spans = self._find_with_key(text, key)
            if not spans:
                return text
            text = _replace(text, spans, partial(self.hidden, in_full=turn >= _PARTIAL_ROUNDS))
            spans = None
        raise DetectorError(self.rules.detectors[0].name, f"still finds something after {_ROUNDS} rounds of masking")

    def _find_with_key(self, text: str, key: str) -> Sequence[Span]:
        """Return the findings in a text; if there are none, search it again with its JSON key before it as context."""
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
        """Return the replacement for a value.

        Placeholders in the value are restored first, so that no placeholder contains another one.
        """
        if PSEUDONYM.search(value) is not None:
            way = restore_arguments if holds_json(value) else restore
            value = way(value, self.pseudonyms).text
        return self.rules.hidden(label, Original(value, is_number), self.pseudonyms, in_full=in_full)

    def _mask_json(self, text: str, spans: Sequence[Span]) -> str:
        """Mask the strings and numbers of JSON, and then replace whole tokens in which something is still found."""
        masked = self._mask_in_strings(text, spans)
        if masked is None:
            masked = self._mask_tokens(text, spans)
        for _ in range(_ROUNDS):
            spans = self.find(masked)
            if not spans:
                return masked
            masked = rewrite_json(masked, kept_apart(partial(self._replace_touched, spans=spans)), json_tokens(masked))
        return self._mask_plain(masked)

    def _mask_in_strings(self, text: str, spans: Sequence[Span]) -> str | None:
        """Mask findings inside the strings of JSON without parsing it, which is faster than masking each token.

        Returns:
            The masked text; None if each string must be masked separately. That is so if a finding is not inside a
            string, the JSON contains escapes or arrays of strings, or a rule may find more in a string alone (such as
            `^[0-9]{6}$`).
        """
        spelled = self.escapes or bool(self.literals)
        if not self.rules.is_joinable or not is_flat(text) or (spelled and may_spell(text)):
            return None
        for turn in range(_ROUNDS):
            if not spans:
                return text
            # a custom placeholder may have added a backslash
            if "\\" in text or not all_in_strings(text, spans):
                return None
            text = _replace(text, spans, partial(self._replacement_in_json, in_full=turn >= _PARTIAL_ROUNDS))
            spans = self.find(text)
        return None

    def _replacement_in_json(self, label: str, value: str, *, in_full: bool) -> str:
        hidden = self.hidden(label, value, in_full=in_full)
        is_plain = hidden.isprintable() and '"' not in hidden and "\\" not in hidden
        return hidden if is_plain else json.dumps(hidden, ensure_ascii=False)[1:-1]

    def _mask_tokens(self, text: str, spans: Sequence[Span]) -> str:
        tokens = list(json_tokens(text))
        if not self.rules.is_joinable:
            return rewrite_json(text, kept_apart(self._mask_token), tokens)
        asked = self._tokens_to_mask(tokens, spans)
        if not any(token.is_key for token in asked):
            return rewrite_json(text, self._mask_token, asked)
        places = {token.start for token in asked}
        change = kept_apart(lambda token: self._mask_token(token) if token.start in places else token.value)
        return rewrite_json(text, change, tokens)

    def _tokens_to_mask(self, tokens: Sequence[JsonToken], spans: Sequence[Span]) -> list[JsonToken]:
        """Return the tokens that may contain findings, placeholders, or JSON; all others do not need to be masked."""
        spelled = self.escapes or bool(self.literals)
        known = {
            token.start
            for token in tokens
            if touching(spans, token) is not None or (spelled and may_spell(token.value)) or holds_json(token.value)
        }
        others = [token for token in tokens if token.start not in known]
        alone = touched((token.value for token in others), self.find)
        named = touched((_with_key(token) for token in others if token.key and token.value not in alone), self.find)
        return [
            token
            for token in tokens
            if token.start in known or token.value in alone or (named and _with_key(token) in named)
        ]

    def _mask_token(self, token: JsonToken) -> str:
        value = token.value
        if not token.is_number and holds_json(value):
            return self._mask_json(value, self.find(value))
        spans = self._find_with_key(value, token.key)
        if token.is_number:
            return self.hidden(spans[0].label, value, is_number=True) if spans else value
        if len(spans) == 1 and spans[0].end - spans[0].start == len(value) and not may_spell(value):
            hidden = self.hidden(spans[0].label, value)
            if PLACEHOLDER.fullmatch(hidden) is not None:
                return hidden
        return self._mask_plain(value, spans, key=token.key)

    def _replace_touched(self, token: JsonToken, spans: Sequence[Span]) -> str:
        """Replace a whole token if a finding in the JSON text overlaps it.

        Such a token was found only because of the text around it.
        """
        hit = touching(spans, token)
        if hit is None or PLACEHOLDER.fullmatch(token.value) is not None:
            return token.value
        return self.hidden(hit.label, token.value, is_number=token.is_number)


def _with_key(token: JsonToken) -> str:
    return f"{token.key}: {token.value}"


def _replace(text: str, spans: Sequence[Span], hidden: Callable[[str, str], str]) -> str:
    pieces: list[str] = []
    done = 0
    for span in spans:
        pieces += (text[done : span.start], hidden(span.label, text[span.start : span.end]))
        done = span.end
    pieces.append(text[done:])
    return "".join(pieces)


def _before_replacing(more: Sequence[Span], spans: Sequence[Span], redaction: Callable[[str], str]) -> Iterator[Span]:
    """Yield the findings in a text whose values are replaced, as places in the original text.

    A finding that includes a part of a replacement includes the whole value.

    Args:
        more: The findings in the text with replacements.
        spans: The values that are replaced, in the original text.
        redaction: Function that returns the replacement for a value with a label.
    """
    starts, ends = [0], [0]  # of the replacements
    for before, span in zip((None, *spans), spans, strict=False):
        starts.append(ends[-1] + span.start - (0 if before is None else before.end))
        ends.append(starts[-1] + len(redaction(span.label)))
    values = (Span(0, 0, ""), *spans)
    for found in more:
        first, last = bisect_right(starts, found.start) - 1, bisect_left(starts, found.end) - 1
        begin = values[first].start if found.start < ends[first] else values[first].end + found.start - ends[first]
        end = values[last].end if found.end <= ends[last] else values[last].end + found.end - ends[last]
        yield Span(begin, end, found.label, found.score)


_REACH: Final = 256
"""Number of characters at each end of a text that are searched for a part of a value: e-mail addresses are shorter."""
_BETWEEN: Final = "\n" * WINDOW
"""What separates the two ends of a long text, so that no rule matches across them."""
_SEPARATORS: Final = ("", " ")
"""The separators with which the parts of a value are joined before searching."""
_MARK: Final = 0xE000
"""The first private-use character of Unicode. The parts of each split value are temporarily replaced by such a mark."""


class _Piece(NamedTuple):
    """A part of a text: its beginning, its end, or all of it.

    Attributes:
        number: Index of the text.
        start: Offset of the part in the text.
        text: The characters of the part.
    """

    number: int
    start: int
    text: str


def mask_together(
    texts: Sequence[str],
    find: Callable[[str], Sequence[Span]],
    mask: Callable[[str], str],
    hidden: Callable[[str, str], str],
) -> list[str]:
    """Mask texts; each part of a split value is replaced by the replacement of the whole value.

    Args:
        texts: The texts in the order in which the model reads them.
        find: Returns the findings in a text.
        mask: Masks one text.
        hidden: Takes a label and a value, and returns the replacement for the value.
    """
    cut: dict[str, tuple[str, str]] = {}
    marked = list(texts)
    # Search all texts together, for values in more than two parts, and then each pair of neighbors, because a third
    # text can prevent a match.
    groups = [*([tuple(range(len(texts)))] if len(texts) > 2 else []), *pairwise(range(len(texts)))]
    for numbers, separator in product(groups, _SEPARATORS):
        for span, value, shares in list(_cut_values([(n, marked[n]) for n in numbers], separator, find)):
            mark = next(char for char in map(chr, range(_MARK, 0x10FFFF)) if char not in "".join(marked))
            cut[mark] = span.label, value
            for number, start, share in shares:
                marked[number] = marked[number][:start] + mark + marked[number][start + len(share) :]
    masked = list(map(mask, marked))
    for mark, (label, value) in cut.items():
        replacement = hidden(label, value)
        masked = [text.replace(mark, replacement) for text in masked]
    return masked


def _cut_values(
    texts: Sequence[tuple[int, str]], separator: str, find: Callable[[str], Sequence[Span]]
) -> Iterator[tuple[Span, str, list[_Piece]]]:
    """Yield the values that are split over several texts, last value first.

    Args:
        texts: Pairs of a text's index and the text.
        separator: The string to put between the texts, which are then searched as one.
        find: Returns the findings in a text.

    Yields:
        The finding, the value, and the parts of the texts that contain it.
    """
    pieces = list(_pieces(texts))
    joints = [separator if was.number != now.number else _BETWEEN for was, now in pairwise(pieces)]
    starts = list(accumulate((len(p.text) + len(j) for p, j in zip(pieces, joints, strict=False)), initial=0))
    joined = "".join(text for piece, joint in zip(pieces, [*joints, ""], strict=True) for text in (piece.text, joint))
    for span in reversed(find(joined)):
        shares = []
        for piece, at in zip(pieces, starts, strict=True):
            start, end = max(span.start - at, 0), min(span.end - at, len(piece.text))
            if start < end:
                shares.append(_Piece(piece.number, piece.start + start, piece.text[start:end]))
        # a value that is found in one text alone does not continue in the next text: `jane@mail.org` and `Then …`
        held = dict(texts)
        if len(shares) > 1 and not any(_covers(find(held[share.number]), share) for share in shares):
            yield span, joined[span.start : span.end], shares


def _pieces(texts: Sequence[tuple[int, str]]) -> Iterator[_Piece]:
    for number, text in texts:
        if len(text) <= 2 * _REACH:
            yield _Piece(number, 0, text)
        else:
            yield _Piece(number, 0, text[:_REACH])
            yield _Piece(number, len(text) - _REACH, text[-_REACH:])


def _covers(spans: Sequence[Span], share: _Piece) -> bool:
    """Return whether findings include all letters and digits of a share of a value, and there are some.

    A full stop behind a value may belong to the value that is found with the next text: `jane@mail.org.` and `Then …`.
    """
    letters = [share.start + place for place, sign in enumerate(share.text) if sign.isalnum()]
    return bool(letters) and all(any(span.start <= place < span.end for span in spans) for place in letters)
