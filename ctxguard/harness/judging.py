"""Judge each request of a replayed session, as it would be sent, without sharing code with the stages that produce it.

A judge checks these laws: the request, counted again as written, is within the budget; tool calls and results are
paired; the system prompt is complete and comes first; the latest messages are present; the chain's rules find no
personal data; the prompt extends the previous one up to its newest tool exchange, unless the budget was hit; and
evicted messages are summarized on the trail. A verdict (or finding) is one violation of a law.

The figures of sessions can be added in any order, and take constant memory.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Final, cast

from pydantic import Field

from ctxguard.artifacts import Artifact, Kind
from ctxguard.harness.fidelity import end_of_pieces
from ctxguard.harness.gain import Bits, gain
from ctxguard.harness.requests import WireMessage, WireReader, newest_exchange, pair_faults
from ctxguard.harness.sessions import RecordedSession

if TYPE_CHECKING:
    from ctxguard.report import Report
    from ctxguard.stabilizer import Stabilizer
    from ctxguard.stages import StableWindow


_STEP: Final = math.log(1.01)
"""Width of a histogram bucket of the logarithm of times, so that percentiles are accurate to one percent."""
_LEAST: Final = 1e-6
"""Shortest time that is distinguished, in milliseconds; shorter times count as this one."""


@dataclass(slots=True)
class Figures:
    """The figures of one or more replayed sessions under one setting.

    Attributes:
        sessions: Number of sessions.
        calls: Number of model calls; each assistant message in a history is one.
        refused: Number of calls whose mandatory messages do not fit (`BudgetExceededError`).
        pressed: Number of calls whose history exceeds the budget.
        needed: Largest number of tokens that the mandatory messages of a refused call need.
        tokens_before: Number of tokens in the histories, summed over all served calls.
        tokens_after: Number of tokens in the requests, summed over all served calls.
        saved_by: Number of tokens that each action removed from messages, summed over all served calls; negative if it
            added some, as `new messages` does, the messages that stages wrote. Together these are the saved tokens.
        successors: Number of calls that follow a served call, in sessions that exceed the budget.
        extended: Number of these successors whose prompt begins like the previous prompt, at least up to the newest
            tool exchange of the previous prompt.
        cuts: Number of calls that cut the window.
        rebilled: Number of request tokens after the first position that a cut changed.
        bill: Price of the requests.
        bill_unmanaged: Price of the whole histories at the same calls.
        bill_trimmed: Price of what a rolling window with the same budget would have sent at the same calls.
        needing: Number of calls whose next message uses a string that only the older history contains.
        held: Sum, over the `needing` calls, of the share of such strings that the request contains.
        held_in_context: Like `held`, but a string counts only if some of its surrounding words in the history are kept.
        weighed: Number of calls whose next message was compressed (see `ctxguard.harness.gain`).
        floor_bits: Bits of these messages, compressed after what any valid context contains.
        bits: Bits of the same messages, compressed after the requests.
        whole_bits: Bits of the same messages, compressed after the whole histories.
        newest_sent: Number of characters of the newest tool outputs that were sent, at calls over the budget.
        newest_fitting: Number of characters of the newest tool outputs that would fit in half of the available tokens.
        findings: Number of calls that violate each law.
        places: First violation of each law.
        times: Number of calls by the logarithm of their time; add a call with `timed`.
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
    weighed: int = 0
    floor_bits: int = 0
    bits: int = 0
    whole_bits: int = 0
    newest_sent: int = 0
    newest_fitting: int = 0
    findings: Counter[str] = field(default_factory=Counter)
    places: dict[str, Verdict] = field(default_factory=dict)
    times: Counter[int] = field(default_factory=Counter)

    def add(self, other: Figures) -> None:
        """Add the figures of other sessions."""
        for each in _SUMMED:
            setattr(self, each, getattr(self, each) + getattr(other, each))
        self.needed = max(self.needed, other.needed)
        self.saved_by.update(other.saved_by)
        self.findings.update(other.findings)
        self.places = {**other.places, **self.places}
        self.times.update(other.times)

    def timed(self, milliseconds: float) -> None:
        """Add the time of one call."""
        self.times[round(math.log(max(milliseconds, _LEAST)) / _STEP)] += 1

    def judged(self, verdicts: Iterable[Verdict]) -> None:
        """Add the violations of one call."""
        first = {verdict.law: verdict for verdict in reversed(list(verdicts))}
        self.findings.update(first.keys())
        self.places = {**first, **self.places}

    @property
    def served(self) -> int:
        """Number of calls that were not refused."""
        return self.calls - self.refused

    @property
    def ok(self) -> bool:
        """Whether at least one call was served and no call violates a law."""
        return self.served > 0 and not self.findings

    @property
    def prefix_share(self) -> float | None:
        """`extended` as a share of `successors`; None if there are no successors."""
        return self.extended / self.successors if self.successors else None

    @property
    def cut_share(self) -> float | None:
        """Share of the served calls that cut the window; None if no call was served."""
        return self.cuts / self.served if self.served else None

    @property
    def saved(self) -> float | None:
        """Share of the input tokens that was saved; None if every call was refused."""
        return 1 - self.tokens_after / self.tokens_before if self.tokens_before else None

    @property
    def support(self) -> float | None:
        """Next-action support, averaged over the calls that need something from older history; None if no call does."""
        return self.held / self.needing if self.needing else None

    @property
    def support_in_context(self) -> float | None:
        """Like `support`, but a string counts only if some of its surrounding words in the history are kept."""
        return self.held_in_context / self.needing if self.needing else None

    @property
    def gain(self) -> float | None:
        """The gain of the requests (see `ctxguard.harness.gain.gain`); None if it is undefined."""
        return gain([Bits(self.floor_bits, self.bits, self.whole_bits)])

    @property
    def newest(self) -> float | None:
        """Characters sent of the newest tool outputs, as a share of those that would fit; None if none would fit."""
        return self.newest_sent / self.newest_fitting if self.newest_fitting else None

    def percentile(self, share: float) -> float | None:
        """Return a percentile of the time per call, in milliseconds; None if no call was timed.

        `share` is between 0 and 1; 0.5 means the median.
        """
        rank = share * (self.times.total() - 1)
        steps = sorted(self.times)
        seen = accumulate(map(self.times.__getitem__, steps))
        return next((math.exp(step * _STEP) for step, count in zip(steps, seen, strict=True) if count > rank), None)


_APART = ("needed", "saved_by", "findings", "places", "times")
_SUMMED = tuple(f.name for f in fields(Figures) if f.name not in _APART)


_RECALLED: Final = "[Recalled from earlier in this conversation"
_AUTHORITY: Final = (Kind.SYSTEM, Kind.TASK)
_WORD: Final = re.compile(r"\w{4,}|\d{2,}")
"""Matches words by which a line of the trail can refer to a message.

Such a word has four or more characters. For numbers, such as prices, two digits are enough.
"""
_ANY_WORD: Final = re.compile(r"\w+")
_BEGINNING: Final = 8
"""Number of characters of a word that are compared, since a line may end inside a hash or a long word."""
_COUNTED: Final = re.compile(r"^(\d+) earlier steps?(?:, (\d+) told)?(?:; with them left [^\n]+?)?\.$", re.MULTILINE)
"""First line of a trail: the number of steps that were evicted, and the number of steps that have a line. If all have
one, the second number is missing."""
_STEPS: Final = re.compile(r"^The latest of these steps:$", re.MULTILINE)
"""Heading of the lines of a trail, each of which tells one step."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One violation of a law by one request.

    Attributes:
        law: `budget`, `pairs`, `system`, `recent`, `personal data`, `prefix`, `trail`, or the name of a check.
        message: Description of the violation, which never contains a personal value.
        at: Path of the violation in the request.
        session: Id of the session. A replay sets it, like `path` and `call`, when it records the verdict.
        path: File that contains the session.
        call: Number of the model call in the session, from 1.
    """

    law: Annotated[str, Field(description="Name of the law or check.")]
    message: Annotated[str, Field(description="What is wrong; never contains a personal value.")]
    at: Annotated[str, Field(description="Path in the request.")] = ""
    session: Annotated[str, Field(description="Id of the session.")] = ""
    path: Annotated[str, Field(description="File that contains the session.")] = ""
    call: Annotated[int, Field(description="Number of the model call in the session, from 1.")] = 0

    def __str__(self) -> str:
        return f"{self.law}: {self.message}{f' @ {self.at}' if self.at else ''}"


class Judge:
    """Judges the requests of one session under one setting; `judge` is called for each request, in order."""

    def __init__(self, session: RecordedSession, stabilizer: Stabilizer, reader: WireReader | None = None) -> None:
        self._adapter = session.adapter
        self._reader = reader or WireReader()
        self._count = stabilizer.counter
        self._budget = stabilizer.budget_for()
        self._overhead = session.overhead(self._count) + self._count.tools(session.tools)
        self._keep_recent = stabilizer.keep_recent
        self._detectors = stabilizer.stages.detectors
        self._promises = window_promises(stabilizer)
        self._clean: set[str] = set()
        self._parts = cache(self._unmasked_parts)
        self._before: list[WireMessage] | None = None
        self._tokens_before = 0
        self._seen_end = 0
        self._recalled: set[str] = set()
        self._had_recalled = False
        self._sent: dict[int, Artifact] = {}
        self._left: dict[int, Artifact] = {}

    def refused(self) -> None:
        """Record that a call was refused, so that the next prompt does not have to extend a previous one."""
        self._before = None

    def judge(
        self, history: Sequence[Artifact], context: Sequence[Artifact], native: object, report: Report
    ) -> list[Verdict]:
        """Return all violations in a request.

        Args:
            history: History before the call.
            context: Artifacts that the stabilizer would send.
            native: The same context as written by the adapter.
            report: Report of the stabilizer on this call.
        """
        messages = self._reader.messages(native)
        read = self._adapter.read(native)
        tokens = self._overhead + self._count.artifacts(read)
        found = [Verdict(c.name, f.message, f.path) for c in report.checks for f in c.findings]
        if tokens > self._budget:
            found.append(Verdict("budget", f"{tokens} tokens are sent and the budget is {self._budget}"))
        found += [Verdict("pairs", message, path) for message, path in pair_faults(messages)]
        found += self._system(history, read)
        found += self._recent(history, context)
        found += self._personal(messages)
        if self._promises:
            found += self._prefix(history, context, messages)
            found += self._trail(history, context, report)
        self._before, self._tokens_before, self._seen_end = messages, tokens, len(history)
        self._had_recalled = "recalled_since_cut" in report.details
        return found

    # -- the system prompt

    def _system(self, history: Sequence[Artifact], read: Sequence[Artifact]) -> Iterator[Verdict]:
        wanted = [a for a in history if a.kind in _AUTHORITY and a.lifetime is None and a.text]
        if not wanted:
            return
        leading = next((n for n, a in enumerate(read) if a.kind not in _AUTHORITY), len(read))
        first = "\n".join(a.text for a in read[:leading])
        if len(first) > sum(len(a.text) for a in wanted) + sum(map(self._room, wanted)) and len(wanted) >= leading:
            yield Verdict("system", "a system prompt was altered: something was added to it", "history system prompt")
        whole = "\n".join(a.text for a in read)
        cursor = 0
        for number, artifact in enumerate(wanted):
            pieces = self._parts(artifact.text)
            found = end_of_pieces(first, pieces, cursor)
            if found is not None:
                cursor = found
                continue
            path = f"history system prompt {number}"
            if end_of_pieces(first, pieces, 0) is not None or end_of_pieces(whole, pieces, 0) is not None:
                yield Verdict("system", "a system prompt was moved", path)
            elif any(piece in first for piece in pieces) or leading >= len(wanted):
                yield Verdict("system", "a system prompt was altered", path)
            else:
                yield Verdict("system", "a system prompt was lost", path)

    def _room(self, artifact: Artifact) -> int:
        """Return the largest number of characters by which masking may lengthen an artifact's text."""
        return 1 + _PLACEHOLDER * len(self._parts(artifact.text))

    def _unmasked_parts(self, text: str) -> tuple[str, ...]:
        """Return the parts of a string that masking must not change: those outside the spans that the rules find."""
        pieces, begin = [], 0
        for start, end in sorted((s.start, s.end) for d in self._detectors for s in d.find(text)):
            pieces.append(text[begin:start])
            begin = max(begin, end)
        return tuple(p.strip() for p in (*pieces, text[begin:]) if p.strip())

    # -- what must be there

    def _recent(self, history: Sequence[Artifact], context: Sequence[Artifact]) -> Iterator[Verdict]:
        there = {id(a.root) for a in context}
        spoken = [n for n, a in enumerate(history) if a.kind in (Kind.USER, Kind.ASSISTANT)]
        last_user = next((n for n in reversed(spoken) if history[n].kind is Kind.USER), None)
        wanted = dict.fromkeys(spoken[-self._keep_recent :] if self._keep_recent else [], "one of the latest messages")
        if last_user is not None:
            wanted[last_user] = "the last user message"
        for position, name in wanted.items():
            artifact = history[position]
            if id(artifact.root) not in there and (artifact.text or artifact.calls) and artifact.lifetime is None:
                yield Verdict("recent", f"{name} is missing", f"history[{position}]")

    # -- personal data

    def _personal(self, messages: Sequence[WireMessage]) -> Iterator[Verdict]:
        if not self._detectors:
            return
        for number, message in enumerate(messages):
            for path, text in message.texts:
                if text not in self._clean:
                    yield from self._scan(text, f"messages[{number}].{path}")

    def _scan(self, text: str, path: str) -> Iterator[Verdict]:
        spans = [span for detector in self._detectors for span in detector.find(text)]
        if not spans:
            self._clean.add(text)
        yield from (Verdict("personal data", f"{s.label} was found", f"{path}[{s.start}:{s.end}]") for s in spans)

    # -- from call to call

    def _prefix(
        self, history: Sequence[Artifact], context: Sequence[Artifact], messages: Sequence[WireMessage]
    ) -> Iterator[Verdict]:
        """Yield a verdict if the prompt was rewritten although the previous one, with all new messages, would have fit.

        Recalled messages leave with the next cut of the window. The window does not count them, so it cuts when it
        would have without them, however short the prompt was. So room is not judged after a prompt whose report says
        that something was recalled since the window's last cut.
        """
        recalled, known = [a for a in context if a.text.startswith(_RECALLED)], self._recalled
        self._recalled = {a.text for a in recalled}
        if self._before is None:
            return
        same = 0
        for was, now in zip(self._before, messages, strict=False):
            if was is not now and was.json != now.json:
                break
            same += 1
        if self._had_recalled or same >= newest_exchange(self._before):
            return
        new = self._count.artifacts([*history[self._seen_end :], *(a for a in recalled if a.text not in known)])
        if self._tokens_before + new <= self._budget * _CERTAIN:
            yield Verdict(
                "prefix",
                "the prompt does not extend the one before, and there was room",
                f"messages[{same}]",
            )

    def _trail(self, history: Sequence[Artifact], context: Sequence[Artifact], report: Report) -> Iterator[Verdict]:
        """Yield a verdict if messages were evicted without a trace, or if the trail and the report disagree.

        The trail is the summary of evicted messages that the stabilizer adds to the context.
        """
        now = {id(a.root): a for a in context}
        given = {id(a) for a in history}
        for key, artifact in self._sent.items():
            if key not in now and key in given and (artifact.text or artifact.calls):
                self._left[key] = artifact
        self._sent = now
        left = [artifact for key, artifact in self._left.items() if key not in now]
        reported = report.details.get("trail")
        if not left or (isinstance(reported, dict) and not reported.get("room", True)):
            return
        added = "\n".join(a.text for a in context if id(a.root) not in given)
        counted = _COUNTED.search(added)
        if counted is None:
            yield Verdict("trail", f"{len(left)} messages were evicted, and nothing in the context mentions them")
            return
        lines = added[counted.end() :]
        steps, listed = int(counted[1]), int(counted[2] or (counted[1] if _STEPS.search(lines) else 0))
        if isinstance(reported, dict) and (steps, listed) != (reported.get("steps"), reported.get("told")):
            figures = f"{reported.get('told')} of {reported.get('steps')}"
            yield Verdict("trail", f"the trail lists {listed} of {steps} steps, the report says {figures}")
        words = {word[:_BEGINNING] for word in (*_WORD.findall(lines), *_ANY_WORD.findall(lines))}
        names = list(map(_words_of, left))
        if listed and any(names) and not any(map(words.intersection, names)):
            yield Verdict("trail", f"the trail lists {listed} steps, and none of {len(left)} evicted messages")


_PLACEHOLDER: Final = 24
"""Largest number of characters by which a placeholder may be longer than its value."""
_CERTAIN: Final = 0.9
"""Share of the budget. A prompt may be rewritten only if the previous one with all new messages takes more.

The rest of the budget allows for estimated and corrected token counts.
"""


def _words_of(artifact: Artifact) -> set[str]:
    """Return the beginnings of words by which a line of the trail could refer to an artifact.

    Short words in a text or in arguments count only if the text or the arguments contain no longer words.
    """
    names = [call.name for call in artifact.calls]
    for text in (artifact.text, *names, *(call.arguments for call in artifact.calls)):
        names += _WORD.findall(text) or _ANY_WORD.findall(text)
    return {name[:_BEGINNING] for name in names}


def window_promises(stabilizer: Stabilizer) -> bool:
    """Return whether a chain has the default window with a trail. Only such a chain promises rare cuts and a trail."""
    window = cast("StableWindow | None", stabilizer.stages.window)
    return window is not None and window.settings.trail != 0
