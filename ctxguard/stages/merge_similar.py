"""Merge messages that say the same again and again."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft, Follower
from ctxguard.history import History
from ctxguard.stages.alone import applied
from ctxguard.stages.followed import FollowedStage
from ctxguard.stages.selection import check_every, selected, task_of, widening

_VARIES: Final = re.compile(r"\d+|\s+")


class SimilarRuns:
    """Find runs of exchanges that are alike, as a history grows. The last exchange may still grow: it is not judged.

    Attributes:
        runs: first and last number of each run, of two exchanges or more.
    """

    def __init__(self) -> None:
        self.runs: list[tuple[int, int]] = []
        self._compared = 1

    def compare(self, history: History) -> None:
        """Compare the exchanges that are new with those before them."""
        for number in range(self._compared, max(self._compared, len(history) - 1)):
            if _alike(history.members(number - 1), history.members(number)):
                # A run that ends right before this exchange grows by it; otherwise a new one begins.
                begin = self.runs.pop()[0] if self.runs and self.runs[-1][1] == number - 1 else number - 1
                self.runs.append((begin, number))
            self._compared = number + 1

    def merged(self, draft: Draft, history: History, end: int) -> list[range]:
        """Return the runs among the first `end` exchanges, cut where one must stay; the last of each stands for all."""
        fixed = history.must_stay(draft.keep_recent, task_of(draft, history), len(history))
        pieces = (
            piece for begin, last in self.runs if begin < end for piece in _apart(begin, min(last, end - 1), fixed)
        )
        return [piece for piece in pieces if len(piece) > 1]


def _apart(begin: int, last: int, fixed: Sequence[int]) -> Iterator[range]:
    # What must stay is never merged away, so that it splits a run in two.
    for number in fixed[bisect_left(fixed, begin) : bisect_right(fixed, last)]:
        yield range(begin, number)
        begin = number + 1
    yield range(begin, last + 1)


class MergeSimilar(FollowedStage):
    """Put one exchange in place of several alike that follow each other, with a note of how many there were.

    Alike are exchanges with the same speakers, tools, arguments and texts, but for numbers, case and spaces. The last
    one stays, and says how often; what must stay is never merged.

    Args:
        every: exchanges between two decisions on what is merged; the step grows with the history.

    Raises:
        ConfigError: `every` is below 1.
    """

    name = "MergeSimilar"

    def __init__(self, *, every: int = 1) -> None:
        self.every = check_every(every)

    def apply(self, messages: Iterable[Artifact]) -> list[Artifact]:
        """Return the artifacts with similar ones merged. The input is not changed."""
        return applied(self, messages)

    def begin(self, draft: Draft, /) -> Follower:
        """Return what merges in one conversation."""
        return _Merging(draft, self.every)


class _Merging:
    """Merge similar exchanges of one conversation."""

    def __init__(self, draft: Draft, every: int) -> None:
        self._every = every
        self._history = History(draft.counter.artifact)
        self._runs = SimilarRuns()

    def take(self, artifacts: Sequence[Artifact], draft: Draft) -> None:  # noqa: ARG002 - as every follower
        """Take in what comes next."""
        self._history.extend(artifacts)
        self._runs.compare(self._history)

    def result(self, draft: Draft) -> Draft:
        """Return the draft with similar exchanges merged."""
        point = widening(len(self._history), self._every)
        merged = self._runs.merged(draft, self._history, point)
        if not merged:
            return draft
        gone = {number for run in merged for number in run[:-1]}
        chosen = [number for number in range(point) if number not in gone]
        kept = selected(draft, self._history, chosen, point, reason="merged")
        noted = noted_all(draft, kept, self._history, merged)
        return kept.revise(noted, action="bounded", reason="stands for several alike")


def noted_all(draft: Draft, kept: Draft, history: History, merged: Iterable[range]) -> list[Artifact]:
    """Return what was kept, with the note in the last artifact of each run that is among it."""
    lasts = {id(draft.artifacts[history.spans[run[-1]].end - 1]): len(run) for run in merged}
    return [_noted(a, lasts[id(a)], draft) if id(a) in lasts else a for a in kept.artifacts]


def _alike(ones: tuple[Artifact, ...], others: tuple[Artifact, ...]) -> bool:
    """Return whether two exchanges say the same but for numbers, case and spaces; what holds media never does."""
    return (
        len(ones) == len(others)
        and [_head(a) for a in ones] == [_head(a) for a in others]
        and not any(map(_holds_media, ones + others))
        and all(_shape(one.text) == _shape(other.text) for one, other in zip(ones, others, strict=True))
    )


def _head(artifact: Artifact) -> str:
    """Return what is compared first: it is short, and usually differs if the texts do."""
    calls = "".join(f"{call.name}({call.arguments})" for call in artifact.calls)
    return _shape(f"{artifact.kind} {artifact.name} {calls}")


def _holds_media(artifact: Artifact) -> bool:
    return not isinstance(artifact.content, str) and any(part.text is None for part in artifact.content)


@lru_cache(maxsize=64)  # each exchange is compared with the one before and the one behind it
def _shape(text: str) -> str:
    return _VARIES.sub("", text).casefold()


def _noted(artifact: Artifact, times: int, draft: Draft) -> Artifact:
    return _with_note(artifact, draft.mask(f"[the same {times} times in a row, the last one shown]"))


def _with_note(artifact: Artifact, note: str) -> Artifact:
    if isinstance(artifact.content, str):
        return artifact.revised(content=f"{artifact.content}\n{note}")
    # Parts of assistant messages may be signed, and a note would end up inside of what the model said.
    if artifact.kind is Kind.ASSISTANT or not any(p.text is not None and p.editable for p in artifact.content):
        return artifact
    last = max(n for n, p in enumerate(artifact.content) if p.text is not None and p.editable)
    parts = tuple(replace(p, text=f"{p.text}\n{note}") if n == last else p for n, p in enumerate(artifact.content))
    return artifact.revised(content=parts)
