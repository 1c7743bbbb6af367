"""Merge exchanges that repeat each other."""

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
    """Keep the last of several similar exchanges in a row, with a note of how many there were.

    Exchanges are similar if speakers, tools, arguments and texts are equal except for numbers, case and spaces.
    Mandatory messages are never merged.

    Args:
        every: exchanges between two decisions on what is merged; the step grows with the history.

    Raises:
        ConfigError: `every` is below 1.
    """

    def __init__(self, *, every: int = 1) -> None:
        super().__init__(_merged, lambda past, number: repeats(past.history, number), every=every, name="MergeSimilar")


def _merged(past: Past[bool], end: int) -> Choice | None:
    runs = similar_runs([number for number, is_repeated in enumerate(past.notes[:end]) if is_repeated], past.mandatory)
    gone = {number for run in runs for number in run[:-1]}
    return Choice((n for n in range(end) if n not in gone), end, "merged", runs) if runs else None


def similar_runs(repeated: Sequence[int], mandatory: Sequence[int]) -> list[range]:
    """Return the runs of similar exchanges, at least two each, without mandatory ones.

    Args:
        repeated: numbers of the exchanges that repeat the one before them, in order.
        mandatory: numbers of the mandatory exchanges.
    """
    runs: list[range] = []
    stays = set(mandatory)
    for number in repeated:
        if number in stays or number - 1 in stays:
            continue
        # A run that ends right before this exchange grows by it; otherwise a new one begins.
        begin = runs.pop().start if runs and runs[-1].stop == number else number - 1
        runs.append(range(begin, number + 1))
    return runs


def repeats(history: History, number: int) -> bool:
    """Return whether an exchange equals the one before it, except for numbers, case and spaces."""
    return number > 0 and _alike(history.members(number - 1), history.members(number))


def _alike(ones: tuple[Artifact, ...], others: tuple[Artifact, ...]) -> bool:
    """Return whether two exchanges are equal except for numbers, case and spaces; those with media never are."""
    return (
        len(ones) == len(others)
        and [_head(a) for a in ones] == [_head(a) for a in others]
        and not any(map(_holds_media, ones + others))
        and all(_shape(one.text) == _shape(other.text) for one, other in zip(ones, others, strict=True))
    )


def _head(artifact: Artifact) -> str:
    """Return the beginning for a first comparison: it is short, and usually differs if the texts do."""
    calls = "".join(f"{call.name}({call.arguments})" for call in artifact.calls)
    return _shape(f"{artifact.kind} {artifact.name} {calls}")


def _holds_media(artifact: Artifact) -> bool:
    return not isinstance(artifact.content, str) and any(part.text is None for part in artifact.content)


@lru_cache(maxsize=64)  # each exchange is compared with the ones before and after it
def _shape(text: str) -> str:
    return _VARIES.sub("", text).casefold()
