"""Find what rules describe, twice: fast for masking, plainly for checking. Both give the same findings.

The fast path turns digits into literals on a same-length shape, remembers which rules a shape of a number can fit,
tries rules only around their anchor, and asks validators about candidates alone. The plain path matches every
pattern over the whole text. Both hand each candidate to the same judgement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

from ctxguard.pii.fold import view_of
from ctxguard.pii.shapes import number_runs, shape_of, token_starts
from ctxguard.pii.spans import Span, resolve

if TYPE_CHECKING:
    from ctxguard.pii.rules import Rule

__all__ = ["Engine", "engine_of"]

WINDOW: Final = 48
"""Characters before a candidate in which a context word counts."""
_LEFT: Final = 3
_RIGHT: Final = 2
_REACH: Final = 64
_MEMO: Final = 20_000
_PREFIX: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:"
_DOTS: Final = (".", ":")

Near = Callable[["re.Pattern[str]", str], bool]
Fit = tuple[int, int, int]
Verdict = Callable[[str], bool | int]
"""Says yes or no, or how many of the characters are the finding."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Hold a rule with its expressions compiled.

    Attributes:
        rule: the rule.
        pattern: over the text, or over the shape for number rules.
        shape: where a match may begin, over the shape.
        context: words that must or may stand before.
        quiet: words right before that silence it.
        tail: what belongs to a finding if it follows.
        is_valid: judges the matched text.
    """

    rule: Rule
    pattern: re.Pattern[str]
    on_shape: re.Pattern[bytes] | None
    shape: re.Pattern[bytes] | None
    context: re.Pattern[str] | None
    quiet: re.Pattern[str] | None
    tail: re.Pattern[str] | None
    is_valid: Verdict | None
    group: int | str


def _prepared(rule: Rule) -> Prepared:
    number = rule.kind == "number"
    source = f"(?=({rule.pattern}))" if number else rule.pattern
    return Prepared(
        rule,
        re.compile(source),
        re.compile(source.encode("ascii")) if number else None,
        re.compile(rule.shape.encode("ascii")) if rule.shape else None,
        re.compile(rule.context) if rule.context else None,
        re.compile(rf"(?:{rule.quiet})\Z") if rule.quiet else None,
        re.compile(rule.tail) if rule.tail else None,
        _function(rule.validate),
        1 if number else "value" if "(?P<value>" in source else 0,
    )


def _function(validate: str | Verdict | None) -> Verdict | None:
    """Return a validator; one given by name is imported when it is first asked, `module:function` or with `:argument`."""
    if not isinstance(validate, str):
        return validate
    module, name, *arguments = validate.split(":")
    return lambda value: _imported(module, name)(value, *arguments)


@lru_cache(maxsize=256)
def _imported(module: str, name: str) -> Callable[..., bool | int]:
    function: Callable[..., bool | int] = getattr(import_module(module), name)
    return function


def _stands_near(pattern: re.Pattern[str], window: str) -> bool:
    return pattern.search(window) is not None


_remembered_near: Final = lru_cache(maxsize=100_000)(_stands_near)


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
        prepared = tuple(map(_prepared, rules))
        self._rules = prepared
        self._numbers = tuple(p for p in prepared if p.rule.kind == "number")
        self._tokens = tuple(p for p in prepared if p.rule.kind == "token")
        self._texts = tuple(p for p in prepared if p.rule.kind == "text")
        self._token = _joined(self._tokens)
        self._allow = allow
        self._deny = tuple((re.compile(_whole_word(value), re.IGNORECASE), label) for value, label in deny)
        self._fits: dict[bytes, tuple[Fit, ...]] = {}

    def find(self, text: str) -> tuple[Span, ...]:
        """Return the findings by the fast path."""
        if not text:
            return ()
        view = view_of(text)
        seen = view.text
        shape = shape_of(seen)
        spans = [
            *self._denied(seen),
            *self._in_text(seen, shape, _remembered_near),
            *self._in_tokens(seen, _remembered_near),
            *self._in_numbers(seen, shape, _remembered_near),
        ]
        return resolve(map(view.original, spans)) if spans else ()

    def scan(self, text: str) -> tuple[Span, ...]:
        """Return the findings by the plain path."""
        view = view_of(text)
        shape = shape_of(view.text).decode("latin-1")
        spans = [*self._denied(view.text), *self._plainly(view.text, shape)]
        return resolve(map(view.original, spans))

    def _plainly(self, text: str, shape: str) -> Iterator[Span]:
        for kind in (self._texts, self._tokens, self._numbers):
            for prepared in kind:
                over = shape if prepared.rule.kind == "number" else text
                for match in prepared.pattern.finditer(over):
                    yield from self._judged(prepared, text, *match.span(prepared.group), _stands_near)

    def _denied(self, text: str) -> Iterator[Span]:
        for pattern, label in self._deny:
            for match in pattern.finditer(text):
                yield Span(match.start(), match.end(), label)

    def _in_text(self, text: str, shape: bytes, near: Near) -> Iterator[Span]:
        lowered = ""
        for prepared in self._texts:
            rule = prepared.rule
            if rule.anchor and rule.anchor not in text:
                lowered = lowered or text.lower()
                if rule.anchor not in lowered:
                    continue
            for start, end in _matches(prepared, text, shape):
                yield from self._judged(prepared, text, start, end, near)

    def _in_tokens(self, text: str, near: Near) -> Iterator[Span]:
        if self._token is None:
            return
        for start in token_starts(text):
            match = self._token.match(text, start) or self._token.match(text, _dotted_start(text, start))
            if match is not None:
                prepared = self._tokens[int((match.lastgroup or "t0")[1:])]
                yield from self._judged(prepared, text, *match.span(prepared.group), near)

    def _in_numbers(self, text: str, shape: bytes, near: Near) -> Iterator[Span]:
        for start, end in number_runs(shape):
            begin = max(0, start - _LEFT)
            key = shape[begin : end + _RIGHT]
            fits = self._fits.get(key)
            if fits is None:
                fits = self._fit(key)
            for number, first, last in fits:
                yield from self._judged(self._numbers[number], text, begin + first, begin + last, near)

    def _fit(self, key: bytes) -> tuple[Fit, ...]:
        """Return which number rules a shape fits, and where in it."""
        fits = tuple(
            (number, *match.span(1))
            for number, prepared in enumerate(self._numbers)
            if prepared.on_shape is not None
            for match in prepared.on_shape.finditer(key)
        )
        if len(self._fits) >= _MEMO:
            self._fits = {}
        if len(key) <= 256:
            self._fits[key] = fits
        return fits

    def _judged(self, prepared: Prepared, text: str, start: int, end: int, near: Near) -> Iterator[Span]:
        """Take a candidate as a finding, unless its surroundings, its check digits or the allow list speak against it."""
        rule = prepared.rule
        if prepared.quiet is not None or rule.needs_context:
            window = text[max(0, start - WINDOW) : start].lower()
            if prepared.quiet is not None and near(prepared.quiet, window):
                return
            if rule.needs_context and prepared.context is not None and not near(prepared.context, window):
                return
        value = text[start:end]
        if prepared.is_valid is not None:
            verdict = prepared.is_valid(value)
            if not verdict:
                return
            if verdict is not True:
                end = start + verdict
                value = text[start:end]
        if self._allow and self._allows(value.lower()):
            return
        if prepared.tail is not None and (more := prepared.tail.match(text, end)) is not None:
            end = more.end()
        yield Span(start, end, rule.label, rule.score)

    def _allows(self, value: str) -> bool:
        domain = value.rpartition("@")[2]
        return value in self._allow or (domain != value and f"@{domain}" in self._allow)


def _whole_word(value: str) -> str:
    left = r"(?<!\w)" if value[:1].isalnum() else ""
    right = r"(?!\w)" if value[-1:].isalnum() else ""
    return left + re.escape(value) + right


def _dotted_start(text: str, start: int) -> int:
    """Return where a token begins whose prefix ends in a dot or a colon, as `SG.` and a bot's number do."""
    before = text[max(0, start - 16) : start]
    return start - (len(before) - len(before.rstrip(_PREFIX))) if before[-1:] in _DOTS else start


def _joined(tokens: tuple[Prepared, ...]) -> re.Pattern[str] | None:
    """Return one expression that says which token rule may match at a place."""
    if not tokens:
        return None
    return re.compile("|".join(f"(?P<t{number}>{p.rule.pattern})" for number, p in enumerate(tokens)))


def _matches(prepared: Prepared, text: str, shape: bytes) -> Iterator[tuple[int, int]]:
    group = prepared.group
    if prepared.shape is None and prepared.rule.lead is None:
        return (match.span(group) for match in prepared.pattern.finditer(text))
    return (match.span(group) for match in _from_places(prepared, text, shape))


def _from_places(prepared: Prepared, text: str, shape: bytes) -> Iterator[re.Match[str]]:
    """Match only where the anchor or the shape says that a match may stand."""
    lead = prepared.rule.lead or ""
    done = 0
    for place in _places(prepared, text, shape):
        if place < done:
            continue
        before = text[max(done, place - _REACH - 1) : place] if lead else ""
        match = prepared.pattern.match(text, place - (len(before) - len(before.rstrip(lead))))
        if match is not None:
            done = match.end()
            yield match


def _places(prepared: Prepared, text: str, shape: bytes) -> Iterator[int]:
    if prepared.shape is not None:
        for match in prepared.shape.finditer(shape):
            yield match.start()
        return
    anchor = prepared.rule.anchor
    place = text.find(anchor)
    while place >= 0:
        yield place
        place = text.find(anchor, place + 1)
