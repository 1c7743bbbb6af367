"""Apply a single stage to a list of artifacts, without a stabilizer."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from ctxguard.artifacts import Artifact
from ctxguard.draft import CallSettings, Draft, Stage
from ctxguard.tokens import ArtifactCounter, find_counter

_UNLIMITED: Final = 1 << 40


@lru_cache(maxsize=1)
def _counter() -> ArtifactCounter:
    return ArtifactCounter(find_counter("auto"))


def applied(stage: Stage, artifacts: Iterable[Artifact], *, keep_recent: int = 1) -> list[Artifact]:
    """Return the result of a stage without I/O for some artifacts, with calls repaired and without a budget."""
    from ctxguard.stages.repair_exchanges import RepairExchanges

    history = tuple(artifacts)
    draft = Draft(history, CallSettings(_UNLIMITED, _counter(), keep_recent=keep_recent), history=history)
    repaired = RepairExchanges()(draft)
    result = stage(repaired) if isinstance(repaired, Draft) else repaired
    if not isinstance(result, Draft):
        raise TypeError(f"{type(stage).__name__} asks for I/O; use a Stabilizer")
    return list(result.artifacts)
