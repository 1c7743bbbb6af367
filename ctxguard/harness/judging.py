"""Judge each request of a replayed session by the laws, on what would be sent, sharing no code with the stages.

The laws: the budget by a new count of the request as it was written, calls and results in pairs, the system prompt
whole and first, the latest messages there, no personal data that the chain's rules find, a prompt that extends the one
before unless the budget was hit, and a trail of what has left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.harness.requests import WireMessage, WireReader, pair_faults
from ctxguard.harness.sessions import Session

if TYPE_CHECKING:
    from ctxguard.pii import Detector, Masker
    from ctxguard.report import Report
    from ctxguard.stabilizer import Stabilizer

LAWS: Final = ("budget", "pairs", "system", "recent", "personal data", "prefix", "trail")
"""Names of the laws, as findings carry them; a check of the chain is named as it names itself."""
_AUTHORITY: Final = (Kind.SYSTEM, Kind.TASK)
_WORD: Final = re.compile(r"\w{4,}|\d{2,}")
"""What a line can tell of: a word, or no more than a price."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Hold one thing that is wrong with one request.

    Attributes:
        law: one of `LAWS`, or the name of a check.
        message: what is wrong; never holds a personal value.
        path: where in the request.
    """

    law: str
    message: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.law}: {self.message}{f' @ {self.path}' if self.path else ''}"


class Judge:
    """Judge the requests of one session under one setting, in their order."""

    def __init__(self, session: Session, stabilizer: Stabilizer, reader: WireReader | None = None) -> None:
        self._adapter = session.adapter
        self._reader = reader or WireReader()
        self._count = stabilizer.counter
        self._budget = stabilizer.budget_for()
        self._beside = session.overhead(self._count) + self._count.tools(session.tools)
        self._keep_recent = stabilizer.keep_recent
        self._detectors = detectors_of(stabilizer)
        self._promises = window_promises(stabilizer)
        self._clean: set[str] = set()
        self._pieces: dict[str, tuple[str, ...]] = {}
        self._before: list[WireMessage] | None = None
        self._tokens_before = 0
        self._seen_end = 0
        self._sent: dict[int, Artifact] = {}
        self._left: dict[int, Artifact] = {}

    def refused(self) -> None:
        """Take note that a call was refused, so that the next prompt has none to extend."""
        self._before = None

    def judge(
        self, history: Sequence[Artifact], context: Sequence[Artifact], native: object, report: Report
    ) -> list[Verdict]:
        """Return everything that is wrong with a request."""
        messages = self._reader.messages(native)
        read = self._adapter.read(native)
        tokens = self._beside + self._count.artifacts(read)
        found = [Verdict(c.name, f.message, f.path) for c in report.checks for f in c.findings]
        if tokens > self._budget:
            found.append(Verdict("budget", f"{tokens} tokens are sent and the budget is {self._budget}"))
        found += [Verdict("pairs", message, path) for message, path in pair_faults(messages)]
        found += self._system(history, read)
        found += self._recent(history, context)
        found += self._personal(messages)
        if self._promises:
            found += self._prefix(history, messages)
            found += self._trail(history, context, report)
        self._before, self._tokens_before, self._seen_end = messages, tokens, len(history)
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
            found = _end_of(first, pieces, cursor)
            if found is not None:
                cursor = found
                continue
            path = f"history system prompt {number}"
            if _end_of(first, pieces, 0) is not None or _end_of(whole, pieces, 0) is not None:
                yield Verdict("system", "a system prompt was moved", path)
            elif any(piece in first for piece in pieces) or leading >= len(wanted):
                yield Verdict("system", "a system prompt was altered", path)
            else:
                yield Verdict("system", "a system prompt was lost", path)

    def _room(self, artifact: Artifact) -> int:
        """Return by how many characters masking may have made a text longer."""
        return 1 + _PLACEHOLDER * len(self._parts(artifact.text))

    def _parts(self, text: str) -> tuple[str, ...]:
        """Return what of a text no masking may touch: what stands between the spans of the rules."""
        known = self._pieces.get(text)
        if known is None:
            spans = sorted((s.start, s.end) for d in self._detectors for s in d.find(text))
            pieces, begin = [], 0
            for start, end in spans:
                pieces.append(text[begin:start])
                begin = max(begin, end)
            known = tuple(p.strip() for p in (*pieces, text[begin:]) if p.strip())
            self._pieces[text] = known
        return known

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
                    yield from self._scanned(text, f"messages[{number}].{path}")

    def _scanned(self, text: str, path: str) -> Iterator[Verdict]:
        spans = [span for detector in self._detectors for span in detector.find(text)]
        if not spans:
            self._clean.add(text)
        yield from (Verdict("personal data", f"{s.label} was found", f"{path}[{s.start}:{s.end}]") for s in spans)

    # -- from call to call

    def _prefix(self, history: Sequence[Artifact], messages: Sequence[WireMessage]) -> Iterator[Verdict]:
        """Find a prompt that was rewritten although the one before, with all that is new, would have fitted."""
        if self._before is None:
            return
        same = 0
        for was, now in zip(self._before, messages, strict=False):
            if was is not now and was.json != now.json:
                break
            same += 1
        if same == len(self._before):
            return
        new = self._count.artifacts(history[self._seen_end :])
        if self._tokens_before + new <= self._budget * _CERTAIN:
            yield Verdict(
                "prefix", "the prompt does not extend the one before, and there was room", f"messages[{same}]"
            )

    def _trail(self, history: Sequence[Artifact], context: Sequence[Artifact], report: Report) -> Iterator[Verdict]:
        """Find a context from which something has left without a trace."""
        now = {id(a.root): a for a in context}
        given = {id(a) for a in history}
        for key, artifact in self._sent.items():
            if key not in now and key in given and (artifact.text or artifact.calls):
                self._left[key] = artifact
        self._sent = now
        left = [artifact for key, artifact in self._left.items() if key not in now]
        told = report.details.get("trail")
        if not left or (isinstance(told, dict) and not told.get("room", True)):
            return
        added = "\n".join(a.text for a in context if id(a.root) not in given)
        words = set(_WORD.findall(added))
        if not any(words.intersection(_names(artifact)) for artifact in left):
            yield Verdict("trail", f"{len(left)} messages have left the context, and nothing in it tells of them")


_PLACEHOLDER: Final = 24
"""Characters by which a placeholder may be longer than what it hides."""
_CERTAIN: Final = 0.9
"""Share of the budget below which no estimate of what is new, and no correction of the counter, explains a cut."""


def _names(artifact: Artifact) -> set[str]:
    """Return the words by which a line could tell of an artifact: those of its calls, and of its text."""
    calls = (word for call in artifact.calls for word in (call.name, *_WORD.findall(f"{call.name} {call.arguments}")))
    return {*calls, *_WORD.findall(artifact.text)}


def _end_of(text: str, pieces: Sequence[str], start: int) -> int | None:
    """Return where the last of these pieces ends that stand in a text in this order; None where one does not."""
    for piece in pieces:
        found = text.find(piece, start)
        if found < 0:
            return None
        start = found + len(piece)
    return start


def detectors_of(stabilizer: Stabilizer) -> tuple[Detector, ...]:
    """Return what the masking stages of a chain look for."""
    maskers = (getattr(stage, "masker", None) for stage in stabilizer.stages)
    return tuple(detector for masker in maskers if masker is not None for detector in masker.detectors)


def masker_of(stabilizer: Stabilizer) -> Masker | None:
    """Return the masker of the first masking stage of a chain; None where nothing is masked."""
    return next((m for s in stabilizer.stages if (m := getattr(s, "masker", None)) is not None), None)


def window_promises(stabilizer: Stabilizer) -> bool:
    """Tell whether a chain has the default window, which promises rare cuts and a trail; other strategies do not."""
    windows = (stage for stage in stabilizer.stages if getattr(stage, "name", "") == "StableWindow")
    return any(getattr(window, "trail", 0) != 0 for window in windows)
