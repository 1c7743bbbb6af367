"""Merge messages that say the same again and again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft
from ctxguard.protection import Unit, units
from ctxguard.stages.alone import applied
from ctxguard.stages.selection import check_every, must_stay, selected, settled
from ctxguard.text_cache import TextCache

__all__ = ["MergeSimilar"]

_VARIES: Final = re.compile(r"\d+|\s+")
_SHAPES: Final[TextCache[str]] = TextCache(8_000_000)


class MergeSimilar:
    """Put one exchange in place of several alike that follow each other, with a note of how many there were.

    Alike are exchanges with the same speakers, tools, arguments and texts, but for numbers, case and spaces. The last
    one stays, and says how often; what must stay is never merged.

    Args:
        every: exchanges after which it is decided anew what is merged.

    Raises:
        ConfigError: `every` is below 1.
    """

    name = "MergeSimilar"

    def __init__(self, *, every: int = 1) -> None:
        self.every = check_every(every)

    def apply(self, messages: Iterable[Artifact]) -> list[Artifact]:
        """Return the artifacts with similar ones merged. The input is not changed."""
        return applied(self, messages)

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft with similar exchanges merged."""
        found = units(draft)
        end = settled(len(found), self.every)
        merged = self._merged(draft, found, end)
        if not merged:
            return draft
        kept = selected(
            draft, found, lambda point: set(range(point)) - self._gone(draft, found, point), self.every, "merged"
        )
        noted = {id(draft.artifacts[found[n].end - 1]): len(numbers) + 1 for n, numbers in merged.items()}
        artifacts = [_noted(a, noted[id(a)], draft) if id(a) in noted else a for a in kept.artifacts]
        return kept.revise(artifacts, action="bounded", reason="stands for several alike")

    def _gone(self, draft: Draft, found: Sequence[Unit], end: int) -> set[int]:
        return {n for numbers in self._merged(draft, found, end).values() for n in numbers}

    def _merged(self, draft: Draft, found: Sequence[Unit], end: int) -> dict[int, list[int]]:
        """Return the number of each exchange that stands for others, with theirs."""
        fixed = must_stay(draft, found, end)
        merged: dict[int, list[int]] = {}
        for shape, group in groupby(range(end), key=lambda n: None if n in fixed else _shape(draft, found[n])):
            numbers = list(group)
            if shape is not None and len(numbers) > 1:
                merged[numbers[-1]] = numbers[:-1]
        return merged


def _shape(draft: Draft, unit: Unit) -> str | None:
    """Return what is compared: everything but numbers, case and spaces; None for what holds media."""
    shapes = [_artifact_shape(a) for a in draft.artifacts[unit.start : unit.end]]
    return None if None in shapes else "\0".join(map(str, shapes))


def _artifact_shape(artifact: Artifact) -> str | None:
    if not isinstance(artifact.content, str) and any(part.text is None for part in artifact.content):
        return None
    calls = "".join(f"{call.name}({call.arguments})" for call in artifact.calls)
    text = f"{artifact.kind} {artifact.name} {calls} {artifact.text}"
    shape = _SHAPES.get(text)
    if shape is None:
        shape = _VARIES.sub("", text).casefold()
        _SHAPES.put(text, shape)
    return shape


def _noted(artifact: Artifact, times: int, draft: Draft) -> Artifact:
    note = draft.mask(f"[the same {times} times in a row, the last one shown]")
    if isinstance(artifact.content, str):
        return artifact.revised(content=f"{artifact.content}\n{note}")
    if artifact.kind is Kind.ASSISTANT or not any(p.text is not None and p.editable for p in artifact.content):
        return artifact
    last = max(n for n, p in enumerate(artifact.content) if p.text is not None and p.editable)
    parts = tuple(replace(p, text=f"{p.text}\n{note}") if n == last else p for n, p in enumerate(artifact.content))
    return artifact.revised(content=parts)
