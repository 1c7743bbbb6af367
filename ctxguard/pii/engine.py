"""Find what rules describe, twice: fast for masking, plainly for checking. Both give the same findings.

The fast path turns digits into literals on a same-length shape, remembers which rules a shape of a number can fit,
tries rules only around their anchor, and asks validators about candidates alone. The plain path matches every
pattern over the whole text. Both hand each candidate to the same judgement.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from ctxguard.pii.fold import view_of
from ctxguard.pii.gates import NUMBERS, TOKENS, sieve
from ctxguard.pii.prepared import MEMO, Prepared, Surroundings, joined, prepare, stands
from ctxguard.pii.shapes import hex_shape_of, number_windows, shape_of, token_starts
from ctxguard.pii.spans import Span, resolve

if TYPE_CHECKING:
    from ctxguard.pii.rules import Rule

__all__ = ["Engine", "engine_of"]

_REACH: Final = 64
_DIGIT: Final = b"0"
_COMMON: Final = (b"000000", b"A0", b"A 0", b"a 0")
"""Rules whose shape holds one of these are not even looked at where a text does not."""
_PREFIX: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:"
_DOTS: Final = (".", ":")
Fit = tuple[int, int, int]


class Seen(NamedTuple):
    """Hold a folded text in the forms that are searched; all have the same offsets.

    Attributes:
        text: the folded text.
        lowered: one byte a character, ASCII letters small.
        shape: one byte a character, digits `0`, letters `a` and `A`.
        hexed: one byte a character, hexadecimal digits `h`.
    """

    text: str
    lowered: bytes
    shape: bytes
    hexed: bytes


def _seen(text: str, plain: bytes) -> Seen:
    return Seen(text, plain.lower(), shape_of(plain), hex_shape_of(plain))


@lru_cache(maxsize=64)
def engine_of(rules: tuple[Rule, ...], allow: frozenset[str], deny: tuple[tuple[str, str], ...]) -> Engine:
    """Return the engine of these rules; equal rules share one."""
    return Engine(rules, allow, deny)


class Engine:
    """Find what rules describe. Safe to share between threads; what it remembers is bounded.

    Args:
        rules: the rules, in their order of precedence.
        allow: values in small letters that are no findings.
        deny: values that always are, each with its label.
    """

    def __init__(self, rules: Iterable[Rule], allow: frozenset[str], deny: tuple[tuple[str, str], ...]) -> None:
        prepared = tuple(map(prepare, rules))
        self._numbers = tuple(p for p in prepared if p.rule.kind == "number")
        self._tokens = tuple(p for p in prepared if p.rule.kind == "token")
        texts = tuple(p for p in prepared if p.rule.kind == "text")
        self._by_hex = tuple((p.gate, p) for p in texts if p.shape is not None and p.is_hex)
        shaped = tuple((p.gate, p) for p in texts if p.shape is not None and not p.is_hex)
        self._by_shape = tuple(
            (common, tuple(one for one in shaped if _common(one[0]) == common))
            for common in sorted({_common(gate) for gate, _ in shaped})
        )
        self._by_anchor = tuple((p.gate, p) for p in texts if p.shape is None)
        self._texts = self._ordered_texts()
        self._sieve = sieve([*(p.sieve_pattern for p in self._texts), TOKENS, NUMBERS])
        self._token = joined(self._tokens)
        self._allow = allow
        self._deny = tuple((re.compile(_whole_word(value), re.IGNORECASE), label) for value, label in deny)
        self._fits: dict[tuple[bytes, int, int], tuple[Fit, ...]] = {}
        self._surroundings = Surroundings(remembers=True)

    def find(self, text: str) -> tuple[Span, ...]:
        """Return the findings by the fast path."""
        if not text:
            return ()
        view = view_of(text)
        plain = view.text.encode("latin-1", "replace")
        spans: list[Span] = []
        if self._sieve is None:
            self._find_gated(_seen(view.text, plain), spans)
        elif hits := self._sieve(plain):
            self._find_sieved(_seen(view.text, plain), hits, spans)
        self._match_denied(view.text, spans)
        return resolve(map(view.original, spans)) if spans else ()

    def _ordered_texts(self) -> tuple[Prepared, ...]:
        """Return the text rules in the order in which they are tried, the same with and without a sieve."""
        shaped = (one for _, rules in self._by_shape for one in rules)
        return tuple(prepared for _, prepared in (*self._by_anchor, *self._by_hex, *shaped))

    def _find_sieved(self, seen: Seen, hits: Sequence[int], spans: list[Span]) -> None:
        """Run the rules that the sieve let through."""
        tokens = len(self._texts)
        for hit in hits:
            if hit < tokens:
                prepared = self._texts[hit]
                self._match(prepared, seen, _form(prepared, seen), self._surroundings, spans)
            elif hit == tokens:
                self._match_tokens(seen, spans)
            else:
                self._match_numbers(seen, spans)

    def _find_gated(self, seen: Seen, spans: list[Span]) -> None:
        """Run the rules whose gate is in the text."""
        for gate, prepared in self._by_anchor:
            if gate in seen.lowered:
                self._match(prepared, seen, seen.lowered, self._surroundings, spans)
        for gate, prepared in self._by_hex:
            if gate in seen.hexed:
                self._match(prepared, seen, seen.hexed, self._surroundings, spans)
        if _DIGIT in seen.shape:
            self._find_digits(seen, spans)

    def _find_digits(self, seen: Seen, spans: list[Span]) -> None:
        """Find what holds a digit: numbers, keys and tokens, and what a shape with a digit tells."""
        for common, rules in self._by_shape:
            for gate, prepared in rules if common in seen.shape else ():
                if gate in seen.shape:
                    self._match(prepared, seen, seen.shape, self._surroundings, spans)
        self._match_tokens(seen, spans)
        self._match_numbers(seen, spans)

    def scan(self, text: str) -> tuple[Span, ...]:
        """Return the findings by the plain path."""
        view = view_of(text)
        seen = _seen(view.text, view.text.encode("latin-1", "replace"))
        anew = Surroundings(remembers=False)
        spans: list[Span] = []
        for prepared in self._texts:
            for match in prepared.pattern.finditer(seen.text) if prepared.gate in _form(prepared, seen) else ():
                self._judge(prepared, seen.text, *_value(match, prepared.group), anew, spans)
        for match in self._token.finditer(seen.text) if self._token is not None else ():
            self._judge(self._token_rule(match), seen.text, *match.span(), anew, spans)
        for begin, end, first, limit in number_windows(seen.shape):
            for number, start, stop in self._fit(seen.shape[begin:end], first, limit):
                self._judge(self._numbers[number], seen.text, begin + start, begin + stop, anew, spans)
        self._match_denied(seen.text, spans)
        return resolve(map(view.original, spans))

    def _match(
        self, prepared: Prepared, seen: Seen, over: bytes, surroundings: Surroundings, spans: list[Span]
    ) -> None:
        """Match one rule only where its anchor or its shape says that a match may stand."""
        places, pattern, group, text = prepared.places, prepared.pattern, prepared.group, seen.text
        if places is None:
            for match in pattern.finditer(text):
                self._judge(prepared, text, *_value(match, group), surroundings, spans)
            return
        lead = prepared.rule.lead
        done = 0
        for found in places.finditer(over):
            start = found.start()
            if start < done:
                continue
            if lead:
                before = text[max(done, start - _REACH - 1) : start]
                start -= len(before) - len(before.rstrip(lead))
            exact = pattern.match(text, start)
            if exact is not None:
                done = exact.end()
                self._judge(prepared, text, *_value(exact, group), surroundings, spans)

    def _match_tokens(self, seen: Seen, spans: list[Span]) -> None:
        one_of, text = self._token, seen.text
        if one_of is None:
            return
        for start in token_starts(seen.lowered):
            match = one_of.match(text, start) or one_of.match(text, _dotted_start(text, start))
            if match is not None:
                self._judge(self._token_rule(match), text, *match.span(), self._surroundings, spans)

    def _token_rule(self, match: re.Match[str]) -> Prepared:
        return self._tokens[int((match.lastgroup or "t0")[1:])]

    def _match_numbers(self, seen: Seen, spans: list[Span]) -> None:
        for begin, end, first, limit in number_windows(seen.shape) if self._numbers else ():
            key = (seen.shape[begin:end], first, limit)
            fits = self._fits.get(key)
            if fits is None:
                fits = self._remember(key)
            for number, start, stop in fits:
                self._judge(self._numbers[number], seen.text, begin + start, begin + stop, self._surroundings, spans)

    def _match_denied(self, text: str, spans: list[Span]) -> None:
        for pattern, label in self._deny:
            spans += (Span(*match.span(), label) for match in pattern.finditer(text))

    def _remember(self, key: tuple[bytes, int, int]) -> tuple[Fit, ...]:
        fits = self._fit(*key)
        if len(self._fits) >= MEMO:
            self._fits = {}
        self._fits[key] = fits
        return fits

    def _fit(self, shape: bytes, first: int, limit: int) -> tuple[Fit, ...]:
        """Return which number rules a shape fits, and where in it, from `first` on and before `limit`."""
        return tuple(
            (number, *match.span(1))
            for number, prepared in enumerate(self._numbers)
            if prepared.on_shape is not None
            for match in prepared.on_shape.finditer(shape)
            if first <= match.start() < limit
        )

    def _judge(
        self, prepared: Prepared, text: str, start: int, end: int, surroundings: Surroundings, spans: list[Span]
    ) -> None:
        """Take a candidate, unless its surroundings, its check digits or the allow list speak against it."""
        context, quiet, is_valid = prepared.context, prepared.quiet, prepared.is_valid
        if context is not None or quiet is not None:
            before = surroundings.of(text, start)
            if context is not None and not stands(context, before):
                return
            if quiet is not None and stands(quiet, before):
                return
        if is_valid is not None:
            verdict = is_valid(text[start:end])
            if not verdict:
                return
            if verdict is not True:
                end = start + verdict
        if self._allow and self._allows(text[start:end].lower()):
            return
        if prepared.tail is not None and (more := prepared.tail.match(text, end)) is not None:
            end = more.end()
        spans.append(Span(start, end, prepared.rule.label, prepared.rule.score))

    def _allows(self, value: str) -> bool:
        domain = value.rpartition("@")[2]
        return value in self._allow or (domain != value and f"@{domain}" in self._allow)


def _common(gate: bytes) -> bytes:
    """Return what a text must hold for any of the rules that have it in their gate."""
    return next((common for common in _COMMON if common in gate), _DIGIT)


def _form(prepared: Prepared, seen: Seen) -> bytes:
    """Return the form of a text that a rule's gate and places are searched in."""
    if prepared.shape is None:
        return seen.lowered
    return seen.hexed if prepared.is_hex else seen.shape


def _value(match: re.Match[str], group: int | str) -> tuple[int, int]:
    """Return where the finding stands: in its group, or anywhere where an alternative without one matched."""
    start, end = match.span(group)
    return (start, end) if start >= 0 else match.span()


def _whole_word(value: str) -> str:
    left = r"(?<!\w)" if value[:1].isalnum() else ""
    right = r"(?!\w)" if value[-1:].isalnum() else ""
    return left + re.escape(value) + right


def _dotted_start(text: str, start: int) -> int:
    """Return where a token begins whose prefix ends in a dot or a colon, as `SG.` and a bot's number do."""
    before = text[max(0, start - 16) : start]
    return start - (len(before) - len(before.rstrip(_PREFIX))) if before[-1:] in _DOTS else start
