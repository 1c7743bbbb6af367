"""Merge messages that say the same again and again."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft
from ctxguard.stages.alone import applied
from ctxguard.stages.cuts import with_cut
from ctxguard.stages.growing import Followed, GrowingHistory
from ctxguard.stages.selection import SelectedHistory, check_every, must_stay, selected, widening
from ctxguard.tokens.text_cache import TextCache

__all__ = ["MergeSimilar", "RunsHistory", "noted_all"]

_VARIES: Final = re.compile(r"\d+|\s+")
_SHAPES: Final[TextCache[str]] = TextCache(8_000_000)


@dataclass(slots=True)
class RunsHistory(SelectedHistory):
    """Hold a history and its runs of exchanges alike: first and last number; the last exchange is not judged.

    Attributes:
        runs: of two exchanges or more.
        compared: exchanges that were compared with the one before.
    """

    runs: list[tuple[int, int]] = field(default_factory=list)
    compared: int = 1

    def compare(self) -> None:
        """Compare the exchanges that are new with those before them."""
        for number in range(self.compared, max(self.compared, len(self.units) - 1)):
            if _alike(self.members(number - 1), self.members(number)):
                begin = self.runs.pop()[0] if self.runs and self.runs[-1][1] == number - 1 else number - 1
                self.runs.append((begin, number))
            self.compared = number + 1

    def merged(self, draft: Draft, end: int) -> list[range]:
        """Return the runs among the first `end` exchanges, cut where one must stay; the last of each stands for all."""
        fixed = must_stay(draft, self, end)
        pieces = (
            piece for begin, last in self.runs if begin < end for piece in _apart(begin, min(last, end - 1), fixed)
        )
        return [piece for piece in pieces if len(piece) > 1]


def _apart(begin: int, last: int, fixed: Sequence[int]) -> Iterator[range]:
    for number in fixed[bisect_left(fixed, begin) : bisect_right(fixed, last)]:
        yield range(begin, number)
        begin = number + 1
    yield range(begin, last + 1)


class MergeSimilar:
    """Put one exchange in place of several alike that follow each other, with a note of how many there were.

    Alike are exchanges with the same speakers, tools, arguments and texts, but for numbers, case and spaces. The last
    one stays, and says how often; what must stay is never merged.

    Args:
        every: exchanges after which it is decided anew what is merged; the step grows with the history.

    Raises:
        ConfigError: `every` is below 1.
    """

    name = "MergeSimilar"

    def __init__(self, *, every: int = 1) -> None:
        self.every = check_every(every)
        self._histories = Followed(RunsHistory)

    def apply(self, messages: Iterable[Artifact]) -> list[Artifact]:
        """Return the artifacts with similar ones merged. The input is not changed."""
        return applied(self, messages)

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft with similar exchanges merged."""
        with self._histories.following(draft) as history:
            history.compare()
            merged = history.merged(draft, widening(len(history.units), self.every))
            if not merged:
                return with_cut(draft, draft, None)
            kept = selected(
                draft,
                history,
                lambda point: _without(history.merged(draft, point), point),
                lambda end: widening(end, self.every),
                "merged",
            )
            noted = noted_all(draft, kept, history, merged)
        return kept.revise(noted, action="bounded", reason="stands for several alike")


def _without(merged: Iterable[range], end: int) -> list[int]:
    """Return the numbers below `end` but those that another one stands for."""
    gone = {number for run in merged for number in run[:-1]}
    return [number for number in range(end) if number not in gone]


def noted_all(draft: Draft, kept: Draft, history: GrowingHistory, merged: Iterable[range]) -> list[Artifact]:
    """Return what was kept, with the note in the last artifact of each run that is among it."""
    lasts = {id(draft.artifacts[history.units[run[-1]].end - 1]): len(run) for run in merged}
    return [_noted(a, lasts[id(a)], draft) if id(a) in lasts else a for a in kept.artifacts]


def _alike(ones: tuple[Artifact, ...], others: tuple[Artifact, ...]) -> bool:
    """Tell whether two exchanges say the same but for numbers, case and spaces; what holds media never does."""
    return (
        len(ones) == len(others)
        and [_head(a) for a in ones] == [_head(a) for a in others]
        and not any(map(_holds_media, ones + others))
        and all(_shape(one.text) == _shape(other.text) for one, other in zip(ones, others, strict=True))
    )


def _head(artifact: Artifact) -> str:
    """Return what is compared first: it is short, and as a rule differs where texts do."""
    calls = "".join(f"{call.name}({call.arguments})" for call in artifact.calls)
    return _shape(f"{artifact.kind} {artifact.name} {calls}")


def _holds_media(artifact: Artifact) -> bool:
    return not isinstance(artifact.content, str) and any(part.text is None for part in artifact.content)


def _shape(text: str) -> str:
    shape = _SHAPES.get(text)
    if shape is None:
        shape = _VARIES.sub("", text).casefold()
        _SHAPES.put(text, shape)
    return shape


def _noted(artifact: Artifact, times: int, draft: Draft) -> Artifact:
    """Return the artifact with the note: the same object in each call, so that later stages know it."""
    note = draft.mask(f"[the same {times} times in a row, the last one shown]")
    key = (MergeSimilar, note)
    noted = artifact.memo.get(key)
    if not isinstance(noted, Artifact):
        noted = _with_note(artifact, note)
        artifact.memo.keep(key, noted)
    return noted


def _with_note(artifact: Artifact, note: str) -> Artifact:
    if isinstance(artifact.content, str):
        return artifact.revised(content=f"{artifact.content}\n{note}")
    if artifact.kind is Kind.ASSISTANT or not any(p.text is not None and p.editable for p in artifact.content):
        return artifact
    last = max(n for n, p in enumerate(artifact.content) if p.text is not None and p.editable)
    parts = tuple(replace(p, text=f"{p.text}\n{note}") if n == last else p for n, p in enumerate(artifact.content))
    return artifact.revised(content=parts)
