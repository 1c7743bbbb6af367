"""Have the provider count what is new, if the caller chose its counter."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

from ctxguard.artifacts import Artifact
from ctxguard.draft.drivers import Ask
from ctxguard.tokens.provider_counter import ProviderCounter


def ask_provider(
    counter: object, history: Sequence[Artifact], tools: Sequence[Mapping[str, object]] | None = None
) -> Generator[Ask, object, str | None]:
    """Ask a provider for the counts that its counter does not know; return what the report says, None if nothing."""
    if not isinstance(counter, ProviderCounter):
        return None
    new = counter.unknown(history, tools)
    if not new:
        return None
    try:
        yield Ask(counter.fetch, (new,), counter.timeout)
    except Exception as error:  # noqa: BLE001 - whatever keeps the provider from counting, the estimate is used
        counter.give_up(new)
        why = f"no answer within {counter.timeout:g} s" if isinstance(error, TimeoutError) else str(error)
        return f"{len(new)} new items were estimated: {why}"
    return f"{len(new)} new items were counted by the provider"
