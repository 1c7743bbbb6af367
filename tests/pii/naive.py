"""Find plainly: each expression over the whole text, one after the other. What the engine finds is held against it."""

import re
from importlib import import_module

from ctxguard.pii import resolve
from ctxguard.pii.detect.match import _shorten_numbers, joined
from ctxguard.pii.detect.normalize import views_of
from ctxguard.pii.detect.tables import WINDOW
from ctxguard.pii.placeholders import LITERAL, UNCHECKED

UUID = r"(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![0-9a-z])"


def naive(rules, text):
    """Return what a rule set finds in a text."""
    labels = {rule.label for rule in rules.rules} | {label for _, label in rules.deny} | {LITERAL, UNCHECKED}
    spans, first = (), None
    for view in views_of(text, lambda label, number: label in labels and not (number and naive(rules, number))):
        found = list(_found_in(rules, view.text))
        found.sort(key=lambda one: one[1].start)
        found = sorted(_shorten_numbers(view.text, found), key=lambda one: one[0])
        more = view.originals(resolve((span for _, span in found), view.text))
        spans, first = (more, view) if first is None else (joined(text, first, spans, more), first)
    return spans


def _found_in(rules, text):
    for order, rule in enumerate(rules.rules):
        for match in re.finditer(rule.pattern, text):
            span = found_at(rule, text, *_value(match))
            if (
                span is not None
                and not stands_in_a_uuid(text, span.start)
                and text[span.start : span.end].lower() not in rules.allow
            ):
                yield order, span


def stands_in_a_uuid(text, start):
    return any(one.start() < start < one.end() and text[start - 1] == "-" for one in re.finditer(UUID, text))


def found_at(rule, text, start, end):
    """Return the finding where the expression of a rule matches, or None."""
    from ctxguard.pii import Span

    before = text[max(0, start - WINDOW) : start].lstrip("\n").lower()
    if rule.context and not re.search(rule.context, before):
        return None
    if rule.behind and not re.compile(rule.behind, re.IGNORECASE).match(text, end):
        return None
    if rule.quiet and re.search(rf"(?:{rule.quiet})\Z", before):
        return None
    verdict = _asked(rule.validate, text[start:end])
    if not verdict:
        return None
    end = end if verdict is True else start + verdict
    tail = re.compile(rule.tail).match(text, end) if rule.tail else None
    return Span(start, tail.end() if tail else end, rule.label, rule.score)


def _value(match):
    span = match.span("value") if "value" in match.re.groupindex else match.span()
    return span if span[0] >= 0 else match.span()


def _asked(validate, value):
    if not isinstance(validate, str):
        return True if validate is None else validate(value)
    module, name, *arguments = validate.split(":")
    return getattr(import_module(module), name)(value, *arguments)
