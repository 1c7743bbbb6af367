"""The command `ctxguard tokens`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from ctxguard.cli.options import spread
from ctxguard.errors import ConfigError, CtxguardError
from ctxguard.report.printing import counted, fitted, out, terminal_width, working

if TYPE_CHECKING:
    from ctxguard.tokens import ArtifactCounter


@spread("tokens")
def tokens(
    session: str,
    counter: str = "auto",
    model: str | None = None,
    usage: bool = False,
) -> None:
    """Count the tokens of a request, a session, or a text: their breakdown, and the possible error of the count."""
    from ctxguard.harness.recordings import read_text

    with working(f"counting {session}"):
        given = read_text(session)
        request = None if usage else _request_of(given)
        if usage:
            lines = _of_usage(given, session, counter, model)
        elif request is not None:
            lines = _of_request(request, counter, model)
        else:
            lines = _of_sessions(given, counter, model)
        text = "\n".join(map(fitted, lines))
    out(text)


def _request_of(text: str) -> Mapping[str, object] | None:
    """Return the request body in a string; None if the string is anything else, such as a recorded session."""
    from ctxguard.formats.registry import detect_api

    with suppress(ValueError, RecursionError, ConfigError):
        body = json.loads(text)
        if isinstance(body, Mapping) and ("model" in body or "contents" in body):
            detect_api(body)
            return body
    return None


def _of_request(body: Mapping[str, object], counter: str, model: str | None) -> Iterator[str]:
    from ctxguard.formats.registry import detect_api
    from ctxguard.tokens import count_request

    api = detect_api(body)
    found = count_request(body, api=api, model=model, counter=counter)
    how = f"a request to the {api} API; counted by {found.counter}, {found.accuracy}"
    yield f"{counted(found.tokens, 'token')} ({how})"
    yield from _parts(found.parts, found.margin)
    for what in found.uncounted:
        yield f"  not counted: {what}"


def _parts(parts: Mapping[str, int], margin: int) -> Iterator[str]:
    for name, part in sorted(parts.items(), key=lambda item: -item[1]):
        yield f"  {name:<15}{part:>9,}"
    if margin:
        yield f"  {'margin':<15}{margin:>9,}  that the provider may count beyond this in 98 of 100 requests"


def _of_sessions(text: str, counter: str, model: str | None) -> Iterator[str]:
    from ctxguard.formats.requests import parts_of
    from ctxguard.harness.recordings import sessions_in
    from ctxguard.tokens import ArtifactCounter, find_counter
    from ctxguard.tokens.families import margin_of

    count = ArtifactCounter(find_counter(counter, model=model))
    parts: Counter[str] = Counter()
    try:
        sessions = list(sessions_in(text))
        for one in sessions:
            parts.update(parts_of(one.read(), count))
            parts.update({"tools": count.tools(one.tools), "framing": one.overhead(count)})
    except CtxguardError:
        yield _total(count.text(text), "plain text", count)
        return
    total = sum(parts.values())
    yield _total(total, counted(len(sessions), "session"), count)
    yield from _parts({name: part for name, part in parts.items() if part}, margin_of(count.counter).tokens(total))


def _total(total: int, what: str, count: ArtifactCounter) -> str:
    return f"{counted(total, 'token')} ({what}; counted by {count.counter.name}, {count.counter.accuracy})"


def _of_usage(text: str, name: str, counter: str, model: str | None) -> Iterator[str]:
    from ctxguard.formats.usage import Errors, compared, grouped, usages_in

    rows = compared(usages_in(text.splitlines(), name, model=model), counter=counter)
    if not rows:
        raise CtxguardError(f"{name} contains no recorded requests")
    titles = "".join(f"{title:>7}" for title in ("<=3%", "<=5%", "<=10%", "under"))
    figures = f"{'requests':>9}{titles}{'over margin':>13}{'sum':>7}"
    groups = [(", ".join(key), members) for key, members in grouped(rows).items()]
    yield _row("API, family, feature", figures)
    for label, members in [*groups, ("all", rows)]:
        errors = Errors.of(members)
        shares = (errors.within_3, errors.within_5, errors.within_10, errors.under)
        cells = "".join(f"{share:>7.0%}" for share in shares)
        yield _row(label, f"{errors.requests:>9}{cells}{errors.exceeded:>13.0%}{errors.total:>7.2f}")
    yield "within 3% or 8 tokens, 5% or 30, 10% or 10; under: too low by more than 5% and 20; sum: ours / theirs"


def _row(label: str, figures: str) -> str:
    """Format a label and its figures on one line, or on two lines if the terminal is too narrow."""
    width = terminal_width()
    return f"{label:<38}{figures}" if width is None or width >= 38 + len(figures) else f"{label}\n{figures}"
