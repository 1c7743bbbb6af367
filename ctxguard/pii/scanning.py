"""Search and mask whole files: plain text, one JSON document, or JSON Lines (one JSON document per line)."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import accumulate, islice
from typing import Final, NamedTuple, TypeAlias

from ctxguard.pii.detect.echo import Names, is_part_of_name
from ctxguard.pii.detect.match import NO_WORD
from ctxguard.pii.detectors import Rules
from ctxguard.pii.mask.json_text import JsonToken, is_json, json_paths, json_tokens, touching
from ctxguard.pii.mask.masking_rules import Strategies
from ctxguard.pii.mask.session import Masker
from ctxguard.pii.rule_sets import RuleSet
from ctxguard.pii.spans import Span, resolve
from ctxguard.report.places import place_in

_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")  # `str.splitlines` also splits inside JSON strings
Find: TypeAlias = Callable[[str], Sequence[Span]]
UNNAMED: Final = "PII"
"""The label reported for a masked value if no rule can be named. Only the surrounding JSON then revealed the value."""


class Place(NamedTuple):
    """The position of a finding in a file, without the value that was found.

    Attributes:
        line: Line number, starting at 1.
        column: Column in characters, starting at 1.
        label: The label of the finding, such as `EMAIL` or `IBAN`.
        place: In JSON, the message, the tool, or the field in words; empty if a rule matches in them, or elsewhere.
    """

    line: int
    column: int
    label: str
    place: str = ""

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.label}{f' in {self.place}' if self.place else ''}"


def mask_file_text(text: str, rules: Rules, *, strategy: Strategies = "redact") -> str:
    """Return a file's content with personal data masked. JSON stays valid, and everything else stays unchanged.

    Equal values get the same pseudonym throughout the file.
    """
    session = Masker(rules, strategy=strategy, escape=False).session()
    return "".join(map(session.text, records(text)))


def scan_file_text(text: str, rules: Rules) -> list[Place]:
    """Return the positions of everything that masking would change in a file's content, in file order."""
    masker = Masker(rules)
    session = masker.session()
    places: list[Place] = []
    first = 1
    for record in records(text):
        masked = session.text(record)
        if masked != record:
            places += _located(record, first, list(_changed_spans(masker, record, masked)), masker.find)
        first += record.count("\n")
    return places


Reason: TypeAlias = tuple[Place, str, str]
"""A position, the name of the rule that matches there, and why the match is not a finding (empty if it is one)."""


def explain_file_text(text: str, rules: RuleSet) -> list[Reason]:
    """Explain each finding and each near miss in a file's content, in file order.

    A near miss fails exactly one condition of a rule. If that condition is a missing context word, the match is
    reported only if the rule has a validator (such as check digits), because nearly any number would match without its
    context word. Each occurrence of a known name is attributed to `the echo of 3:12`, where 3:12 is the line and column
    at which the name was introduced.
    """
    reasons: list[Reason] = []
    introduced: list[tuple[str, Place]] = []
    names = Names()
    checked = {rule.name for rule in rules.rules if rule.validate is not None}
    echoing = {rule.name for rule in rules.rules if rule.echo}
    first = 1
    for record in records(text):
        judged = list(_judge_matches(rules, record))
        own = [span for span, rule, faults in judged if rule in echoing and not faults]
        introduced += zip(
            [record[span.start : span.end] for span in own], _locate(record, first, iter(own)), strict=True
        )
        names.learn(value for value, _ in introduced)
        for span in rules.known(record, names):
            known_as = (place for value, place in introduced if is_part_of_name(record[span.start : span.end], value))
            judged += [(span, f"the echo of {place.line}:{place.column}", ()) for place in islice(known_as, 1)]
        found = resolve((span for span, _, faults in judged if not faults), record)
        known: set[tuple[int, str]] = set()
        explained: list[tuple[Span, str, str]] = []
        for span, rule, faults in judged:
            is_near = len(faults) == 1 and (faults[0] != NO_WORD or rule in checked)
            is_free = not any(one.start < span.end and span.start < one.end for one in found)
            if (span in found if not faults else is_near and is_free) and (span.start, span.label) not in known:
                known.add((span.start, span.label))
                explained.append((span, rule, "".join(faults)))
        places = _located(record, first, [span for span, _, _ in explained], rules.find)
        reasons += [(place, rule, fault) for place, (_, rule, fault) in zip(places, explained, strict=True)]
        first += record.count("\n")
    return sorted(reasons)


def _judge_matches(rules: RuleSet, record: str) -> Iterator[tuple[Span, str, Sequence[str]]]:
    """Yield each match of a rule in a record, the rule's name, and the reasons against the match (empty for a finding).

    In a JSON record, each string and number is matched separately, with its key before it as context.
    """
    if not is_json(record):
        yield from rules.judged(record)
        return
    for token in json_tokens(record):
        before = f"{token.key}: " if token.key else ""
        shift = token.start + (not token.is_number) - len(before)
        for span, rule, faults in rules.judged(before + token.value):
            if span.start >= len(before):
                yield Span(span.start + shift, span.end + shift, span.label, span.score), rule, faults


def records(text: str) -> Sequence[str]:
    """Split a file's content into records that are masked separately.

    Each line is a record if there are several nonblank lines and all of these are JSON documents. Otherwise, the whole
    content is one record.
    """
    lines = _LINE.findall(text)
    filled = [line for line in lines if line.strip()]
    return lines if len(filled) > 1 and all(map(is_json, filled)) else (text,)


def _changed_spans(masker: Masker, record: str, masked: str) -> Iterator[Span]:
    spans = masker.find(record)
    if not is_json(record) or not is_json(masked):
        yield from spans
        return
    for token, now in zip(json_tokens(record), json_tokens(masked), strict=False):
        if token.value != now.value:
            yield from _token_findings(masker, token, spans)


def _token_findings(masker: Masker, token: JsonToken, spans: Sequence[Span]) -> Iterator[Span]:
    """Yield the findings in a JSON token that masking changes.

    The token is searched as written. If nothing is found, its decoded value is searched, and then its value with its
    key as context.
    """
    inside = [span for span in spans if token.start <= span.start and span.end <= token.end]
    if inside:
        yield from inside
        return
    before = f"{token.key}: "
    named = [span for span in masker.find(before + token.value) if span.end > len(before)]
    hit = touching(spans, token)
    for span in masker.find(token.value) or named or ([] if hit is None else [hit]) or [Span(0, 0, UNNAMED)]:
        yield Span(token.start, token.end, span.label)


def _located(record: str, first: int, spans: Sequence[Span], find: Find) -> Iterator[Place]:
    """Yield the places of findings in a record that begins in the line `first`, in JSON with their words."""
    words = _in_words(record, spans, find)
    return (place._replace(place=text) for place, text in zip(_locate(record, first, iter(spans)), words, strict=True))


def _in_words(record: str, spans: Sequence[Span], find: Find) -> Sequence[str]:
    """Return for each finding in a record its place in words; an empty string for each if the record is not JSON."""
    words = [""] * len(spans)
    if not spans or not is_json(record):
        return words
    root = json.loads(record)
    clean = cache(lambda text: "" if find(text) else text)
    waiting = deque(sorted(range(len(spans)), key=lambda number: spans[number].start))
    for start, end, path in json_paths(record):
        while waiting and spans[waiting[0]].start < end:
            number = waiting.popleft()
            words[number] = clean(place_in(root, path, "the record")) if spans[number].start >= start else ""
        if not waiting:
            break
    return words


def _locate(record: str, first: int, spans: Iterator[Span]) -> Iterator[Place]:
    starts = list(accumulate((len(line) for line in record.split("\n")), lambda at, size: at + size + 1, initial=0))
    for span in spans:
        line = bisect_right(starts, span.start)
        yield Place(first + line - 1, span.start - starts[line - 1] + 1, span.label)
