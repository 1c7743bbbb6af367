"""Judge a recorded session as it stands, changing nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ctxguard.checks import AuthorityFirst, CallsArePaired, Check, NoPII, WithinBudget, provider_profile
from ctxguard.draft import CallSettings, Draft
from ctxguard.harness.sessions import Session
from ctxguard.report import Finding
from ctxguard.tokens import ArtifactCounter, find_counter

if TYPE_CHECKING:
    from ctxguard.pii import Detector

__all__ = ["check_session"]


def check_session(
    session: Session,
    *,
    budget: int | None = None,
    provider: str | None = None,
    counter: str = "auto",
    model: str | None = None,
    pii: bool = False,
    rules: Detector | None = None,
) -> Iterator[str]:
    """Walk what is wrong with a session, one line each: `check: message @ path`.

    Args:
        session: as recorded.
        budget: tokens it may take; None means that any length is fine.
        provider: also check the role rules of this provider.
        counter: see `ctxguard.tokens.find_counter`.
        model: name of the model, to choose the vocabulary.
        pii: also look for personal data; type, place and, at the end, count are said, never the value.
        rules: what counts as personal data; None means `ctxguard.pii.STANDARD`.

    Raises:
        ConfigError: no such provider or counter.
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
    for check in checks:
        findings = list(check(draft))
        yield from (f"{check.name}: {finding}" for finding in findings)
        if check.name == NoPII.name and findings:
            yield f"{check.name}: {_counted(findings)}"


def _counted(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.message.split()[0] for finding in findings)
    return ", ".join(f"{count} {label}" for label, count in counts.most_common())
