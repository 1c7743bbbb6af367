"""The command `ctxguard brief`."""

from __future__ import annotations

from pathlib import Path

from ctxguard.cli.options import settings_of, spread
from ctxguard.cli.sessions import naming, sessions_of
from ctxguard.report.printing import out, refuse_overwriting


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
    """Print what another agent, or a new conversation, should know of a session; no model writes it."""
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
            briefs.append(str(stabilizer.brief(one.read(), for_=for_, budget=tokens)))  # type: ignore[arg-type]  # a share is refused there
    out("\n\n".join(briefs), output)
