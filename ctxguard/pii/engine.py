"""Find what rules describe, twice: fast for masking, plainly for checking. Both give the same findings.

The fast path opens the gates of the few rules that can match in a text at all, turns digits into literals on a shape of
the same length, remembers which rules a shape of a number can fit, and tries the others around their anchors alone. The
plain path matches every pattern over the whole text that has the literals which the pattern itself demands; it shares
no gate, no anchor and no memory with the fast one. Both hand each candidate to the same judgement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from ctxguard.pii.fold import View, view_of
from ctxguard.pii.gates import NUMBERS, TOKENS, gatekeeper
from ctxguard.pii.literals import Condition, condition_of, forms_of, may_match
from ctxguard.pii.placeholders import LITERAL, UNCHECKED
from ctxguard.pii.prepared import (
    EDGE,
    MEMO,
    Prepared,
    Surroundings,
    Together,
    before,
    context_gate,
    joined,
)
from ctxguard.pii.shapes import Seen, Window, number_windows, token_starts
from ctxguard.pii.spans import Span, resolve

if TYPE_CHECKING:
    from ctxguard.pii.rules import Rule

__all__ = ["Engine", "engine_of"]

_REACH: Final = 64
_PREFIX: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:"
_PREFIX_SIZE: Final = 40
_DOTS: Final = (".", ":")
_NUMBER: Final = re.compile(r"(?<!\w)[0(+]", re.ASCII)
"""Where a number can begin in a shape."""
_PHONE: Final = "PHONE"
_PHONE_DIGITS: Final = 7
"""A phone number with its area code has no fewer: with fewer left, what follows is no value of its own."""
_GAP: Final = " /,;|"
Fit: TypeAlias = tuple[int, int, Together]
"""Where a number may stand in its window, and the rules whose shape it has: the surest first."""
Found: TypeAlias = list[tuple[int, Span]]
"""Findings with the places of their rules in the set."""


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
        prepared = tuple(Prepared(rule, order) for order, rule in enumerate(rules))
        self._numbers = tuple(p for p in prepared if p.rule.kind == "number")
        self._tokens = tuple(p for p in prepared if p.rule.kind == "token")
        self._texts = tuple(p for p in prepared if p.rule.kind == "text")
        rare = {p: gate for p in self._numbers if (gate := context_gate(p.rule)) is not None}
        self._opened = gatekeeper([*(p.gate for p in self._texts), TOKENS, NUMBERS, *rare.values()])
        self._context_gates = {p: number for number, p in enumerate(rare, len(self._texts) + 2)}
        self._allow = allow
        self._deny = tuple((re.compile(_whole_word(value), re.IGNORECASE), label) for value, label in deny)
        self._fits: dict[Window, tuple[Fit, ...]] = {}
        self._together = lru_cache(maxsize=4096)(Together)
        self._surroundings = Surroundings()
        self._labels = frozenset((*(p.rule.label for p in prepared), *(label for _, label in deny), LITERAL, UNCHECKED))
        self._trusts = lru_cache(maxsize=4096)(self._can_write)

    def find(self, text: str) -> tuple[Span, ...]:
        """Return the findings by the fast path."""
        if not text:
            return ()
        seen = view_of(text, self._trusts)
        found: Found = []
        tokens = len(self._texts)
        gates = self._opened(seen)
        for gate in gates:
            if gate < tokens:
                self._match(self._texts[gate], seen, found)
            elif gate == tokens:
                self._match_tokens(seen, found)
            elif gate == tokens + 1:
                self._match_numbers(seen, gates, found)
        if self._deny:
            self._match_denied(seen.text, found)
        return _chosen(seen, found) if found else ()

    def scan(self, text: str) -> tuple[Span, ...]:
        """Return the findings by the plain path."""
        seen = view_of(text, self._can_write)
        found: Found = []
        forms = forms_of(seen.plain)
        for prepared, condition in zip(self._texts, self._conditions, strict=True):
            if not may_match(condition, forms):
                continue
            for match in prepared.pattern.finditer(seen.text):
                start, end = _value(match, prepared.group)
                self._judge(prepared, seen.text, start, end, found)
        token = self._token if may_match(self._token_condition, forms) else None
        for match in token.finditer(seen.text) if token is not None else ():
            start, end = match.span()
            self._judge(self._token_rule(match), seen.text, start, end, found)
        for begin, window in number_windows(seen.shape):
            for start, stop, together in self._fit(*window):
                self._judge_surest(together.rules, seen.text, begin + start, begin + stop, found)
        self._match_denied(seen.text, found)
        return _chosen(seen, found)

    @cached_property
    def _conditions(self) -> list[Condition]:
        """What a text must hold, for each rule of texts."""
        return [condition_of(p.pattern.pattern, p.pattern.flags) for p in self._texts]

    @cached_property
    def _token(self) -> re.Pattern[str] | None:
        """What finds any of the token rules."""
        return joined(self._tokens)

    @cached_property
    def _token_condition(self) -> Condition:
        return condition_of(EDGE)

    def _can_write(self, label: str, number: str) -> bool:
        """Tell whether masking by these rules can have written a placeholder; no number is written that a rule finds.

        Any other text of that shape is read as what it is: values may stand in it.
        """
        return label in self._labels and not (number and self.find(number))

    def _match(self, prepared: Prepared, seen: Seen, found: Found) -> None:
        """Match one rule only where its anchor or its shape says that a match may stand."""
        places, pattern, group, text = prepared.places, prepared.pattern, prepared.group, seen.text
        if places is None:
            for match in pattern.finditer(text):
                start, end = _value(match, group)
                self._take_standing(prepared, text, start, end, found)
            return
        lead, ascii_lead, done = prepared.rule.lead, prepared.ascii_lead, 0
        for place in places(prepared.form(seen)):
            start = place
            if start < done:
                continue
            if lead:
                led = text[max(done, start - _REACH - 1) : start]
                start -= len(led) - len(led.rstrip(ascii_lead if led.isascii() else lead))
            exact = pattern.match(text, start)
            if exact is not None:
                done = exact.end()
                start, end = _value(exact, group)
                self._take_standing(prepared, text, start, end, found)

    def _match_tokens(self, seen: Seen, found: Found) -> None:
        one_of, text = self._token, seen.text
        if one_of is None:
            return
        for start in token_starts(seen.plain):
            match = one_of.match(text, start)
            if match is None and text[start - 1 : start] in _DOTS:
                tried = (one_of.match(text, begin) for begin in _dotted_starts(text, start))
                match = next(filter(None, tried), None)
            if match is not None:
                prepared, (begin, end) = self._token_rule(match), match.span()
                self._take_standing(prepared, text, begin, end, found)

    def _token_rule(self, match: re.Match[str]) -> Prepared:
        return self._tokens[int((match.lastgroup or "t0")[1:])]

    def _match_numbers(self, seen: Seen, gates: Sequence[int], found: Found) -> None:
        text, standing, known = seen.text, self._surroundings.standing, self._fits.get
        is_ascii = text.isascii()
        for begin, window in number_windows(seen.shape) if self._numbers else ():
            fits = known(window)
            if fits is None:
                fits = self._remember(window)
                known = self._fits.get
            for start, stop, together in fits:
                if is_ascii and together.gates and together.gates.isdisjoint(gates):
                    continue
                if kept := standing(together, text, begin + start):
                    self._take_surest(kept, text, begin + start, begin + stop, found)

    def _take_surest(self, rules: tuple[Prepared, ...], text: str, start: int, end: int, found: Found) -> None:
        """Take a number by the first rule that takes it in full: no other is kept of the same characters."""
        for prepared in rules:
            if self._take(prepared, text, start, end, found):
                break

    def _take_standing(self, prepared: Prepared, text: str, start: int, end: int, found: Found) -> None:
        if not prepared.has_words or self._surroundings.standing(prepared.alone, text, start):
            self._take(prepared, text, start, end, found)

    def _match_denied(self, text: str, found: Found) -> None:
        last = len(self._texts) + len(self._tokens) + len(self._numbers)
        for pattern, label in self._deny:
            found += ((last, Span(*match.span(), label)) for match in pattern.finditer(text))

    def _remember(self, window: Window) -> tuple[Fit, ...]:
        fits = self._fit(*window)
        if len(self._fits) >= MEMO:
            self._fits = {}
        self._fits[window] = fits
        return fits

    def _fit(self, shape: str, first: int, limit: int) -> tuple[Fit, ...]:
        """Return which number rules a shape fits, and where in it, from `first` on and before `limit`."""
        fits: dict[tuple[int, int], list[Prepared]] = {}
        for start in (match.start() for match in _NUMBER.finditer(shape, first, limit)):
            room = len(shape) - start
            for width, match_at, prepared in self._shapes:
                if width > room:
                    break
                match = match_at(shape, start)
                if match is not None:
                    fits.setdefault(match.span(prepared.group), []).append(prepared)
        ranked = {span: sorted(fits[span], key=attrgetter("rank")) for span in sorted(fits)}
        return tuple((*span, self._together(*self._gated(tuple(rules)))) for span, rules in ranked.items())

    def _gated(self, rules: tuple[Prepared, ...]) -> tuple[tuple[Prepared, ...], frozenset[int]]:
        """Return rules with the gates one of which is open where they find something; none where one has none."""
        gates = [self._context_gates[rule] for rule in rules if rule in self._context_gates]
        return rules, frozenset(gates if len(gates) == len(rules) else ())

    @cached_property
    def _shapes(self) -> list[tuple[int, Callable[[str, int], re.Match[str] | None], Prepared]]:
        """The number rules by the width of the least that they match."""
        rules = sorted(self._numbers, key=attrgetter("width"))
        return [(rule.width, rule.pattern.match, rule) for rule in rules]

    def _judge_surest(self, rules: tuple[Prepared, ...], text: str, start: int, end: int, found: Found) -> None:
        for prepared in rules:
            if self._judge(prepared, text, start, end, found):
                break

    def _judge(self, prepared: Prepared, text: str, start: int, end: int, found: Found) -> bool:
        """Take a candidate if the words before it let it stand; nothing is remembered of them."""
        return prepared.stands_after(before(text, start)) and self._take(prepared, text, start, end, found)

    def _take(self, prepared: Prepared, text: str, start: int, end: int, found: Found) -> bool:
        """Take a candidate, unless its check digits or the allow list speak against it.

        Returns:
            Whether it was taken in full.
        """
        is_valid = prepared.is_valid
        verdict = is_valid is None or is_valid(text[start:end])
        if not verdict:
            return False
        whole = verdict is True or start + verdict == end
        if not whole:
            end = start + verdict
        if self._allow and self._allows(text[start:end].lower()):
            return False
        if prepared.tail is not None and (more := prepared.tail.match(text, end)) is not None:
            end = more.end()
        found.append((prepared.order, Span(start, end, prepared.rule.label, prepared.rule.score)))
        return whole

    def _allows(self, value: str) -> bool:
        domain = value.rpartition("@")[2]
        return value in self._allow or (domain != value and f"@{domain}" in self._allow)


def _chosen(view: View, found: Found) -> tuple[Span, ...]:
    """Return the findings that are kept, where they stand in the original."""
    if len(found) > 1:
        found.sort(key=_start)
        if any(one[1].end > other[1].start for one, other in pairwise(found)):
            found = _apart(view.text, found)
            found.sort(key=itemgetter(0))
            return resolve(view.originals(map(_span, found)))
    return view.originals(map(_span, found))


def _apart(text: str, found: Found) -> Found:
    """End phone numbers where another value begins that ends after them: groups of digits do not say whose they are.

    Without it the longer of the two would be kept alone, and the rest of the other stay in the text.
    """
    ordered = list(found)
    for place, (order, span) in enumerate(ordered):
        if span.label == _PHONE and (number := _number_before_next(text, ordered, place)):
            ordered[place] = (order, Span(span.start, span.start + len(number), _PHONE, span.score))
    return ordered


def _number_before_next(text: str, ordered: Found, place: int) -> str:
    """Return what a phone number is without the value that begins in it and ends after it; empty where none does."""
    span = ordered[place][1]
    for number in range(place + 1, len(ordered)):
        other = ordered[number][1]
        if other.start >= span.end:
            break
        if other.label != _PHONE and other.end > span.end and _is_whole(text[span.start : other.start]):
            return text[span.start : other.start].rstrip(_GAP)
    return ""


_span: Final = itemgetter(1)


def _start(found: tuple[int, Span]) -> int:
    return found[1].start


def _is_whole(number: str) -> bool:
    return number[-1:] in _GAP and sum(map(str.isdigit, number)) >= _PHONE_DIGITS


def _value(match: re.Match[str], group: int | str) -> tuple[int, int]:
    """Return where the finding stands: in its group, or anywhere where an alternative without one matched."""
    start, end = match.span(group)
    return (start, end) if start >= 0 else match.span()


def _whole_word(value: str) -> str:
    left = r"(?<!\w)" if value[:1].isalnum() else ""
    right = r"(?!\w)" if value[-1:].isalnum() else ""
    return left + re.escape(value) + right


def _dotted_starts(text: str, start: int) -> Iterator[int]:
    """Walk where a token may begin whose prefix ends in a dot or a colon, as `SG.` and a bot's number do."""
    before = text[max(0, start - _PREFIX_SIZE) : start]
    first = start - (len(before) - len(before.rstrip(_PREFIX)))
    yield first
    yield from (place + 1 for place in range(first, start - 1) if text[place] in _DOTS)
