"""Judge a recorded session as it is, without stabilizing it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ctxguard.checks import AuthorityFirst, CallsArePaired, Check, NoPII, WithinBudget, provider_profile
from ctxguard.draft import CallSettings, Draft
from ctxguard.harness.sessions import RecordedSession, key_name
from ctxguard.report import CheckResult, Finding
from ctxguard.report.places import clean_words, in_words, keys_of, place_in
from ctxguard.tokens import ArtifactCounter, find_counter

if TYPE_CHECKING:
    from ctxguard.pii import Detector


def judge_session(
    session: RecordedSession,
    *,
    budget: int | None = None,
    provider: str | None = None,
    counter: str = "auto",
    model: str | None = None,
    pii: bool = False,
    rules: Detector | None = None,
) -> tuple[CheckResult, ...]:
    """Return the result of each check on a session as it was recorded.

    Args:
        session: Recorded session.
        budget: Token budget of the session; None means that any length is fine.
        provider: Provider whose role rules are also checked; None means no provider.
        counter: Name of the token counter (see `ctxguard.tokens.find_counter`).
        model: Name of the model, which chooses the tokenizer.
        pii: Whether to search for personal data. Findings state type and place, never the value.
        rules: Rules that define personal data; None means `ctxguard.pii.STANDARD`.
    """
    artifacts = tuple(session.read())
    count = ArtifactCounter(find_counter(counter, model=model))
    overhead = count.tools(session.tools) + session.overhead(count)
    draft = Draft(artifacts, CallSettings(budget or 0, count, overhead), history=artifacts)
    checks: list[Check] = [CallsArePaired(allow_bare=True), AuthorityFirst()]
    if budget is not None:
        checks.append(WithinBudget())
    if provider is not None:
        checks.append(provider_profile(provider))
    if pii:
        from ctxguard.pii import STANDARD

        checks.append(NoPII(STANDARD if rules is None else rules))
    results = tuple(CheckResult(check.name, tuple(in_words(check(draft), draft, rules))) for check in checks)
    if not pii:
        return results
    *others, last = results
    beside = search(session.unread, rules, "record", "the record").findings
    return (
        *others,
        CheckResult(last.name, (*last.findings, *beside)),
    )


def search(value: object, rules: Detector | None = None, path: str = "row", what: str = "the row") -> CheckResult:
    """Return the personal data in all texts of a parsed JSON value, whatever it means.

    Args:
        value: The value. Keys of objects are searched, too.
        rules: Rules that define personal data; None means `ctxguard.pii.STANDARD`.
        path: How the paths of findings name the value.
        what: How their words name it.
    """
    from ctxguard.pii import STANDARD

    chosen = STANDARD if rules is None else rules
    found = (
        Finding(f"{span.label} was found", f"{place}[{span.start}:{span.end}]", _words(value, place, what, chosen))
        for place, text in _texts(value, path)
        for span in chosen.find(text)
    )
    return CheckResult(NoPII.name, tuple(found))


def _words(value: object, place: str, what: str, rules: Detector) -> str:
    path, _, key = place.partition(", ")
    words = place_in(value, keys_of(path)[1:], what)
    return clean_words(f"a key of {words}" if key else words, [rules])


def _texts(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Yield each text in a value, the keys of its objects included, with its place."""
    waiting = [(path, value)]
    while waiting:
        place, one = waiting.pop()
        if isinstance(one, str):
            yield place, one
        elif isinstance(one, Mapping):
            yield from ((f"{place}, a key", str(key)) for key in one)
            waiting += [(f"{place}.{key_name(key)}", each) for key, each in reversed(list(one.items()))]
        elif isinstance(one, list):
            waiting += [(f"{place}[{n}]", each) for n, each in reversed(list(enumerate(one)))]


def check_session(
    session: RecordedSession,
    *,
    budget: int | None = None,
    provider: str | None = None,
    counter: str = "auto",
    model: str | None = None,
    pii: bool = False,
    rules: Detector | None = None,
) -> Iterator[str]:
    """Yield the findings in a session, one line each, as `check: message @ path`.

    For the arguments, see `judge_session`.
    """
    results = judge_session(
        session, budget=budget, provider=provider, counter=counter, model=model, pii=pii, rules=rules
    )
    for result in results:
        yield from finding_lines(result)


def finding_lines(result: CheckResult) -> Iterator[str]:
    """Yield the findings of a check, one line each, as `check: message @ path`.

    For personal data, a line with the number of findings of each type follows.
    """
    yield from (f"{result.name}: {finding}" for finding in result.findings)
    if result.name == NoPII.name and result.findings:
        yield f"{result.name}: {_count_labels(result.findings)}"


def _count_labels(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.message.split()[0] for finding in findings)
    return ", ".join(f"{count} {label}" for label, count in counts.most_common())
