"""Merge runs of similar exchanges, such as those of an agent that polls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from ctxguard.artifacts import Artifact
from ctxguard.history import History
from ctxguard.strategies.keep import Choice, Keep, Past

_VARIES: Final = re.compile(r"\d+|\s+")


class MergeSimilar(Keep[bool]):
    """Keeps the last of several similar exchanges in a row, with a note of how many there were.

    Exchanges are similar if roles, tools, arguments, and texts are equal except for numbers, case, and whitespace.
    Mandatory messages are never merged.

    Args:
        every: Number of new exchanges after which the stage decides again what to merge; see `Keep`.

    Raises:
        ConfigError: If `every` is below 1.
    """

    def __init__(self, *, every: int = 1) -> None:
        super().__init__(_choose, lambda past, number: repeats(past.history, number), every=every, name="MergeSimilar")


def _choose(past: Past[bool], end: int) -> Choice | None:
    runs = similar_runs([number for number, is_repeated in enumerate(past.notes[:end]) if is_repeated], past.mandatory)
    gone = {number for run in runs for number in run[:-1]}
    return Choice((n for n in range(end) if n not in gone), end, "merged", runs) if runs else None


def similar_runs(repeated: Sequence[int], mandatory: Sequence[int]) -> list[range]:
    """Return the runs of at least two similar exchanges, none of which is mandatory.

    Args:
        repeated: Indexes of the exchanges that are similar to the exchange before them, in order.
        mandatory: Indexes of the mandatory exchanges.
    """
    runs: list[range] = []
    stays = set(mandatory)
    for number in repeated:
        if number in stays or number - 1 in stays:
            continue
        # Extend the latest run if it ends right before this exchange, or else begin a new run.
        begin = runs.pop().start if runs and runs[-1].stop == number else number - 1
        runs.append(range(begin, number + 1))
    return runs


def repeats(history: History, number: int) -> bool:
    """Return whether an exchange is similar to the exchange before it."""
    return number > 0 and _alike(history.members(number - 1), history.members(number))


def _alike(ones: tuple[Artifact, ...], others: tuple[Artifact, ...]) -> bool:
    """Return whether two exchanges are similar. Exchanges with media never are."""
    return (
        [_head(a) for a in ones] == [_head(a) for a in others]
        and not any(map(_holds_media, ones + others))
        and all(_shape(one.text) == _shape(other.text) for one, other in zip(ones, others, strict=True))
    )


def _head(artifact: Artifact) -> str:
    """Return kind, name, and calls for a first, cheap comparison, which usually differs if the texts do."""
    calls = "".join(f"{call.name}({call.arguments})" for call in artifact.calls)
    return _shape(f"{artifact.kind} {artifact.name} {calls}")


def _holds_media(artifact: Artifact) -> bool:
    return not isinstance(artifact.content, str) and any(part.text is None for part in artifact.content)


@lru_cache(maxsize=64)  # each text is compared twice: with the exchange before and with the one after
def _shape(text: str) -> str:
    return _VARIES.sub("", text).casefold()
