"""Replay recorded sessions with every contestant, and judge the requests that each contestant would send.

A contestant is a library, or a simple policy, that takes part in the comparison (`ctxguard.harness.contestants`). All
of them get the same messages, budget, and token counter, and are judged by the same rules, which share no code with any
contestant. Only calls whose history exceeds the budget count.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import accumulate
from typing import Final
from warnings import catch_warnings, simplefilter

from ctxguard.adapting.registry import find_adapter
from ctxguard.errors import CtxguardError
from ctxguard.harness.contestants import BASELINE, Course, GaveUpError, Message, Peer, peers_with, plain_messages
from ctxguard.harness.engine import in_processes
from ctxguard.harness.fidelity import ByIdentity
from ctxguard.harness.gain import Bits, newest_exchange
from ctxguard.harness.pricing import PriceModel, common_prefix
from ctxguard.harness.recordings import Recording, Skipped, Source, play_session
from ctxguard.harness.replay import Recorded
from ctxguard.harness.requests import WireReader, pair_faults
from ctxguard.harness.sessions import RecordedSession
from ctxguard.pii import STANDARD, Masker
from ctxguard.tokens import ArtifactCounter, find_counter
from ctxguard.tokens.artifact_counter import REPLY_TOKENS

SUMMARY_CHARACTERS: Final = 2_000  # about 500 tokens
_LINE: Final = 100  # maximum length of a line in a fixed summary, in characters


@dataclass(frozen=True, slots=True)
class BenchCall:
    """One model call of one contestant, for a history that exceeds the budget.

    Attributes:
        name: Name of the contestant.
        budget: Token budget of the request.
        place: File, session, and position of the call, which are the same for all contestants.
        price: Price of the request, or None if nothing was sent.
        milliseconds: CPU time of the library's own work.
        is_over: Whether the request exceeds the budget.
        fault: Why the request is useless: `pairs`, `system prompt`, `last message`, or `failed`; None if it is usable.
        opens_with_user: Whether the first message after the system prompt is the user's, as some providers require.
            Also true if the recording itself begins with another message.
        keeps: Whether the prompt begins like the previous prompt up to the previous prompt's newest tool exchange. None
            if there is no previous prompt.
        support: Next-action support with context, or None if the next message needs nothing from older history. It is
            measured, like `bits` and `newest`, only if the call holds.
        bits: Bits that a compressor needs for the next message; None if the message was not compressed.
        newest: Of the newest tool outputs, the number of characters that were sent, and the number that would have fit.
    """

    name: str
    budget: int
    place: tuple[str, str, int]
    price: float | None = None
    milliseconds: float = 0.0
    is_over: bool = False
    fault: str | None = None
    opens_with_user: bool = True
    keeps: bool | None = None
    support: float | None = None
    bits: Bits | None = None
    newest: tuple[int, int] = (0, 0)

    @property
    def holds(self) -> bool:
        """Whether a usable request within the budget was sent."""
        return self.price is not None and not self.is_over and self.fault is None


def contestants(names: Iterable[str] = (), modules: Iterable[str] = ()) -> tuple[list[Peer], list[str]]:
    """Return the contestants that are installed, and one line for each contestant that is not.

    Args:
        names: Names of the contestants to compare; empty means all.
        modules: Modules that list further contestants (see `ctxguard.harness.contestants`).

    Raises:
        CtxguardError: If a name is unknown, or a module lists no contestants.
    """
    wanted, every = set(names), peers_with(modules)
    unknown = wanted - {peer.name for peer in every}
    if unknown:
        known = ", ".join(peer.name for peer in every)
        raise CtxguardError(f"no contestant {min(unknown)!r}; there are {known}")
    able: list[Peer] = []
    absent: list[str] = []
    for peer in every:
        if wanted and peer.name not in wanted and peer.name != BASELINE:
            continue
        if peer.version is None:
            absent.append(f"{peer.name}: {peer.distribution} is not installed")
            continue
        try:
            peer.load()
        except ImportError as error:
            absent.append(f"{peer.name}: {peer.distribution} {peer.version} cannot be loaded ({error})")
        else:
            able.append(peer)
    return able, absent


def play(
    sources: Iterable[Source],
    peers: Sequence[Peer],
    budgets: Sequence[int],
    *,
    counter: str = "auto",
    processes: int = 1,
) -> Iterator[tuple[Source, Skipped | list[BenchCall]]]:
    """Replay recordings with every contestant, in separate processes if `processes` is greater than one.

    Yields:
        Each recording, in order, with the calls of its session, or the reason why it was skipped.
    """
    work = partial(_play, peers=peers, budgets=budgets, counter=counter)
    if processes > 1:
        yield from in_processes(iter(sources), work, processes)
    else:
        yield from ((source, work(source)) for source in sources)


def _play(source: Source, peers: Sequence[Peer], budgets: Sequence[int], counter: str) -> Skipped | list[BenchCall]:
    def track(recording: Recording, session: RecordedSession) -> list[BenchCall]:
        with _quiet():
            return list(_Track(recording, session, counter).run(peers, budgets))

    return play_session(source, track)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the warnings and log messages that libraries print at every call."""
    logging.disable(logging.ERROR)
    try:
        with catch_warnings():
            simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


@lru_cache(maxsize=1)
def _mask() -> Masker:
    return Masker(STANDARD)


def fixed_summary(text: str) -> str:
    """Return the beginnings of a text's last lines, up to 2,000 characters, in place of a summary by a model."""
    kept: list[str] = []
    left = SUMMARY_CHARACTERS
    for line in reversed([line.strip()[:_LINE] for line in text.splitlines() if line.strip()]):
        left -= len(line) + 1
        if left < 0:
            break
        kept.append(line)
    return "\n".join(reversed(kept))


class _Track:
    """One session as Chat Completions messages, prepared for every contestant, whatever the recorded format."""

    def __init__(self, recording: Recording, session: RecordedSession, counter: str) -> None:
        self.counter = counter
        self.count = ArtifactCounter(find_counter(counter))
        self.adapter = find_adapter("openai")
        self.tools = session.tools
        self.path, self.name = recording.path, session.id
        self.messages = plain_messages(session.read())
        self.recorded = Recorded(RecordedSession(session.id, self.messages, self.adapter, session.tools))
        self.measure = self.recorded.measure(_mask().mask)
        self.overhead = self.count.tools(session.tools) + REPLY_TOKENS

    def tokens(self, messages: Sequence[Message]) -> int:
        return self.count.artifacts(self.adapter.read(messages))

    def run(self, peers: Sequence[Peer], budgets: Sequence[int]) -> Iterator[BenchCall]:
        before = list(accumulate(map(self.count.artifact, self.recorded.artifacts), initial=self.overhead))
        for budget in budgets:
            pressed = frozenset(end for end in self.recorded.ends if before[end] > budget)
            if not pressed:
                continue
            texts = (self.count.text, fixed_summary)
            course = Course(self.messages, budget, self.overhead, self.tools, self.counter, self.tokens, *texts)
            for peer in peers:
                yield from _Run(self, course, peer, pressed).calls()


class _Run:
    """One contestant replaying one session at one budget."""

    def __init__(self, track: _Track, course: Course, peer: Peer, pressed: frozenset[int]) -> None:
        self.track, self.course, self.peer, self.pressed = track, course, peer, pressed
        self.previous: tuple[list[str], int] | None = None
        self.dumped: ByIdentity[Message, str] = ByIdentity(partial(json.dumps, sort_keys=True))

    def calls(self) -> Iterator[BenchCall]:
        contestant = self.peer.load()(self.course)
        for end in self.track.recorded.ends:
            begun = time.process_time()
            fault = None
            try:
                sent = contestant.send(end)
            except GaveUpError:
                sent = None
            except Exception:  # noqa: BLE001 - whatever a library raises, it did not serve the call
                sent, fault = None, "failed"
            spent = 1_000 * (time.process_time() - begun)
            place = (self.track.path, self.track.name, end)
            if sent is None:
                self.previous = None
                if end in self.pressed:
                    yield BenchCall(self.peer.name, self.course.budget, place, None, spent, fault=fault)
                continue
            call = self._judge(contestant.chat(sent), end, place, spent)
            if end in self.pressed:
                yield call

    def _judge(self, chat: Sequence[Message], end: int, place: tuple[str, str, int], spent: float) -> BenchCall:
        track, course = self.track, self.course
        read = track.adapter.read(chat)
        tokens = course.overhead + track.count.artifacts(read)
        dumps = list(map(self.dumped, chat))
        shared, keeps = 0, None
        if self.previous is not None:
            same = common_prefix(self.previous[0], dumps)
            keeps = same >= self.previous[1]
            shared = course.overhead + track.count.artifacts(read[:same])
        self.previous = (dumps, newest_exchange(read))
        call = BenchCall(
            self.peer.name,
            course.budget,
            place,
            PriceModel().price(tokens, shared),
            spent,
            is_over=tokens > course.budget,
            opens_with_user=_opener(chat) == "user" or _opener(course.messages) != "user",
            keeps=keeps,
        )
        if end not in self.pressed:
            return call
        call = replace(call, fault=fault_of(chat, course.messages[:end]))
        if not call.holds:
            return call
        held = track.recorded.measures(end, read, course.budget - course.overhead, track.count, track.measure)
        return replace(
            call,
            support=held.support.with_context if held.support else None,
            bits=held.bits,
            newest=held.newest,
        )


def _opener(messages: Sequence[Message]) -> object:
    return next((m["role"] for m in messages if m["role"] not in ("system", "developer")), None)


def fault_of(chat: Sequence[Message], history: Sequence[Message]) -> str | None:
    """Return why a request is useless for any provider, or None if it is usable."""
    if any(pair_faults(WireReader().messages(chat))):
        return "pairs"
    last = history[-1]
    spoken = [m for m in chat if m["role"] not in ("system", "developer")]
    if not spoken or spoken[-1]["role"] != last["role"] or spoken[-1].get("tool_call_id") != last.get("tool_call_id"):
        return "last message"
    system = [str(m["content"]).strip() for m in history if m["role"] == "system"]
    sent = "\n".join(str(m["content"]) for m in chat if m["role"] == "system")
    return None if all(_mostly(text, sent) for text in system) else "system prompt"


def _mostly(text: str, sent: str) -> bool:
    """Return whether at least half of a prompt's lines were sent; masking may have changed the other lines."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return not lines or sum(line in sent for line in lines) >= 0.5 * len(lines)
