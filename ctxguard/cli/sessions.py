"""The commands that read sessions: `stabilize`, `check`, and `brief`."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

import typer

from ctxguard.cli.options import CountingOptions, StabilizerOptions, settings_of, spread
from ctxguard.errors import BudgetExceededError, HistoryError, SessionFileError
from ctxguard.report.printing import ReportFormat, Reports, fitted, note, out, refuse_overwriting, working

if TYPE_CHECKING:
    from ctxguard.config import StabilizerConfig
    from ctxguard.harness import RecordedSession
    from ctxguard.harness.recordings import Unread
    from ctxguard.pii import Detector
    from ctxguard.report import CheckResult


@spread("brief")
def brief(
    session: str,
    for_: str = "",
    budget: str = "1000",
    adapter: str | None = None,
    config: Path | None = None,
    store: str | None = None,
    output: Path | None = None,
) -> None:
    """Print what another agent, or a new conversation, should know about a session; no model is used."""
    from ctxguard.settings import valid_budget
    from ctxguard.stabilizer import Stabilizer
    from ctxguard.stores import open_store

    refuse_overwriting(output, [session])
    settings_of(config)
    tokens = valid_budget(budget)
    chain = {} if store is None else {"store": open_store(store)}
    stabilizer = Stabilizer.from_config(config, budget=tokens, **chain)
    briefs = []
    for one in sessions_of(session, adapter):
        with naming(session, one):
            briefs.append(str(stabilizer.brief(one.read(), for_=for_, budget=tokens)))  # type: ignore[arg-type]  # `brief` rejects a share
    out("\n\n".join(briefs), output)


@spread("stabilize")
def stabilize(
    session: str,
    chain: StabilizerOptions,
    adapter: str | None = None,
    report: ReportFormat | None = None,
    output: Path | None = None,
) -> None:
    """Stabilize a session: print its context, or the report on it.

    With --output the context goes to the file and the report is printed.
    """
    from ctxguard.adapting import Request, stabilize_request
    from ctxguard.adapting.request import plain_object

    refuse_overwriting(output, [session])
    stabilizer = chain.stabilizer(settings_of(chain.config))
    form = report or (None if output is None else "text")
    sessions = deque(sessions_of(session, adapter))
    contexts, reports, is_ok = [], Reports(form, several=len(sessions) > 1), True
    with working("stabilizing") as show:
        while sessions:
            one = sessions.popleft()  # freed when it is done, since a file may have thousands of sessions
            show(f"stabilizing session {one.id}")
            with naming(session, one):
                request = Request(one.native, one.instructions, one.tools or ())
                done, made = stabilize_request(stabilizer, one.adapter, request)
            is_ok = is_ok and made.ok
            reports.add(made)
            if form is None or output is not None:
                contexts.append(json.dumps(one.with_request(done), ensure_ascii=False, default=plain_object))
    if form is None or output is not None:
        out("\n".join(contexts), output)
    if form is not None:
        out(fitted(reports.shown()) if form == "text" else reports.shown())
    if not is_ok:
        raise typer.Exit(1)


def sessions_of(path: str, adapter: str | None) -> list[RecordedSession]:
    """Return the sessions in a file. All are parsed first, so a damaged file is rejected before any is processed."""
    from ctxguard.harness import read_sessions

    return list(read_sessions(path, adapter=adapter))


@contextmanager
def naming(path: str, session: RecordedSession) -> Iterator[None]:
    """Add the file and the id of a session to errors that occur while the session is processed."""
    try:
        yield
    except (HistoryError, BudgetExceededError) as error:
        raise SessionFileError(path, f"session {session.id}: {error}") from error


@spread("check")
def check(
    session: str,
    counting: CountingOptions,
    adapter: str | None = None,
    pii: bool = False,
    report: Literal["text", "json"] = "text",
) -> None:
    """Validate a session without changing it; list the problems and exit with 1 if there are any.

    It checks that tool calls have their results, that system prompt and task come first, and the provider's role rules;
    with a budget, also the number of tokens.
    """
    from ctxguard.config import load_context_config
    from ctxguard.harness.checking import judge_session
    from ctxguard.harness.recordings import Unread, read_rows
    from ctxguard.harness.sessions import key_name
    from ctxguard.pii.detectors import joined

    known = settings_of(counting.config)
    tokens = _budget(counting, known)
    rules = joined(load_context_config(counting.config).detectors()) if pii else None
    judged: list[tuple[str, Sequence[CheckResult]]] = []
    with working("checking") as show:
        for one in list(read_rows(session, adapter=adapter)):
            if isinstance(one, Unread):
                judged.append((one.place, _searched(one, rules) if pii else _refuse(one)))
                continue
            show(f"checking session {one.id}")
            if pii and isinstance(one.native, list) and one.wrap is not None and isinstance(one.wrap[one.key], str):
                others = ", ".join(sorted(map(key_name, one.unread))) or "nothing"
                note(f"session {one.id}: its {one.key!r} was read as one message, {others} searched as text")
            try:
                results = judge_session(
                    one,
                    budget=tokens,
                    provider=counting.provider or known.provider,
                    counter=counting.counter or known.counter,
                    model=counting.model or known.model,
                    pii=pii,
                    rules=rules,
                )
            except HistoryError as error:
                if not pii:
                    raise SessionFileError(session, f"session {one.id}: {error}") from error
                results = _searched(Unread(session, None, one.id, str(error), one.wrap or one.native), rules)
            judged.append((one.id, results))
    ok = not any(result.findings for _, results in judged for result in results)
    out(_as_json(session, judged, ok=ok) if report == "json" else _as_text(judged))
    if not ok:
        raise typer.Exit(1)


def _searched(row: Unread, rules: Detector | None) -> tuple[CheckResult, ...]:
    """Search a row that is no session as text, and say so."""
    from ctxguard.harness.checking import search

    place = f"session {row.place}" if row.line is None else f"{row.path}:{row.line}"
    note(f"{place}: not understood, and searched as text: {row.reason}")
    return (search(row.value, rules),)


def _refuse(row: Unread) -> NoReturn:
    raise SessionFileError(row.path, row.reason, line=row.line)


def _budget(counting: CountingOptions, known: StabilizerConfig) -> int | None:
    budget = counting.budget or known.budget
    if budget is None:
        return None
    from ctxguard.stabilizer import Stabilizer

    tokens = counting.tokens(budget, known.model)
    return Stabilizer(tokens, headroom=counting.headroom or 0, counter="estimate").budget_for()


def _as_text(judged: Sequence[tuple[str, Sequence[CheckResult]]]) -> str:
    from ctxguard.harness.checking import finding_lines

    lines = [f"{name}: {line}" for name, results in judged for result in results for line in finding_lines(result)]
    return "\n".join(line.replace("\n", "\\n") for line in lines) or "ok"


def _as_json(path: str, judged: Sequence[tuple[str, Sequence[CheckResult]]], *, ok: bool) -> str:
    sessions = [
        {
            "id": name,
            "ok": not any(result.findings for result in results),
            "checks": [result.name for result in results],
            "findings": [
                {"check": result.name, **asdict(finding)} for result in results for finding in result.findings
            ],
        }
        for name, results in judged
    ]
    return json.dumps({"file": path, "ok": ok, "sessions": sessions}, ensure_ascii=False, indent=2)
