"""The figures of replayed sessions: they add up, in any order, and take the same memory however many there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Annotated

from ddsketch import DDSketch
from pydantic import PlainSerializer, PlainValidator

from ctxguard.harness.judging import Verdict


@dataclass(frozen=True, slots=True)
class Place:
    """Hold one finding with the call at which it was made.

    Attributes:
        session: id of the session.
        path: the file it is from.
        call: number of the model call in the session, from 1.
        verdict: what is wrong.
    """

    session: str
    path: str
    call: int
    verdict: Verdict

    def __str__(self) -> str:
        return f"{self.verdict} (call {self.call} of session {self.session}, {self.path})"


def _bins(sketch: DDSketch) -> list[tuple[float, float]]:
    """Return the values of a sketch with their counts; the library itself saves one only with protobuf."""
    store, zeros = sketch._store, sketch._zero_count  # noqa: SLF001 - what is looked at has no public name
    bins = [(sketch._mapping.value(n + store.offset), count) for n, count in enumerate(store.bins) if count]  # noqa: SLF001
    return [*bins, *([(0.0, zeros)] if zeros else [])]


def _sketch(bins: Iterable[tuple[float, float]] = ()) -> DDSketch:
    sketch = DDSketch(0.01)
    for value, count in bins:
        sketch.add(value, count)
    return sketch


Sketch = Annotated[DDSketch, PlainValidator(_sketch), PlainSerializer(_bins)]
"""A sketch of values within one percent, saved as its values with their counts."""


@dataclass(slots=True)
class Figures:
    """Hold the figures of one or more replayed sessions under one setting.

    Attributes:
        sessions: how many.
        calls: model calls in them: the history up to each assistant message.
        refused: calls for which what must stay does not fit (`BudgetExceededError`).
        pressed: calls whose history exceeds the budget.
        needed: the most tokens that what must stay took at one refused call.
        tokens_before: tokens of the histories, over all calls that were served.
        tokens_after: tokens of the requests, over the same calls.
        saved_by: tokens that each action took out of messages, over the same calls; what stages added is in none.
        successors: calls that follow a served call, in sessions that exceed the budget.
        extended: those of them whose prompt extends the previous one.
        cuts: calls that cut the window.
        rebilled: tokens of requests behind the first position that a cut changed.
        bill: price of the requests.
        bill_unmanaged: price of the whole histories at the same calls.
        bill_trimmed: price of what plain trimming to the same budget would have sent at the same calls.
        needing: calls whose next message uses something that only the older history tells.
        held: sum over them of the share of it that the request holds.
        held_in_context: the same, counting only what stands among the words that stood around it.
        findings: number of calls at which a law did not hold, by law.
        places: the first finding of each law.
        milliseconds: sketch of the times of the calls, within one percent.
    """

    sessions: int = 0
    calls: int = 0
    refused: int = 0
    pressed: int = 0
    needed: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    saved_by: Counter[str] = field(default_factory=Counter)
    successors: int = 0
    extended: int = 0
    cuts: int = 0
    rebilled: int = 0
    bill: float = 0.0
    bill_unmanaged: float = 0.0
    bill_trimmed: float = 0.0
    needing: int = 0
    held: float = 0.0
    held_in_context: float = 0.0
    findings: dict[str, int] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    milliseconds: Sketch = field(default_factory=_sketch)

    def add(self, other: Figures) -> None:
        """Add the figures of other sessions."""
        for each in _SUMMED:
            setattr(self, each, getattr(self, each) + getattr(other, each))
        self.needed = max(self.needed, other.needed)
        self.saved_by.update(other.saved_by)
        for law, calls in other.findings.items():
            self.findings[law] = self.findings.get(law, 0) + calls
            self.places.setdefault(law, other.places[law])
        self.milliseconds.merge(other.milliseconds)

    def judged(self, verdicts: Iterable[Verdict], session: str, path: str) -> None:
        """Take in what is wrong with the latest call."""
        first = {verdict.law: verdict for verdict in reversed(list(verdicts))}
        for law, verdict in sorted(first.items()):
            self.findings[law] = self.findings.get(law, 0) + 1
            self.places.setdefault(law, Place(session, path, self.calls, verdict))

    @property
    def served(self) -> int:
        """Calls that were not refused."""
        return self.calls - self.refused

    @property
    def ok(self) -> bool:
        """Whether something was judged and every law held at every call."""
        return self.served > 0 and not self.findings

    @property
    def prefix_share(self) -> float | None:
        """Share of calls whose prompt extends the previous one, in sessions that exceed the budget; None if none do."""
        return self.extended / self.successors if self.successors else None

    @property
    def cut_share(self) -> float | None:
        """Share of the served calls that cut the window; None if none was served."""
        return self.cuts / self.served if self.served else None

    @property
    def saved(self) -> float | None:
        """Share of the input tokens that was saved; None if no call was served."""
        return 1 - self.tokens_after / self.tokens_before if self.tokens_before else None

    @property
    def support(self) -> float | None:
        """Next-action support, averaged over the calls that need something; None if none does."""
        return self.held / self.needing if self.needing else None

    @property
    def support_in_context(self) -> float | None:
        """The same, counting only what stands among the words that stood around it."""
        return self.held_in_context / self.needing if self.needing else None

    def percentile(self, share: float) -> float | None:
        """Return a percentile of the times of calls, in milliseconds; None if nothing was timed."""
        found: float | None = self.milliseconds.get_quantile_value(share)
        return found


_APART = ("needed", "saved_by", "findings", "places", "milliseconds")
_SUMMED = tuple(f.name for f in fields(Figures) if f.name not in _APART)
