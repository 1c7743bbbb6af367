"""The contestants of `ctxguard bench`, and the input that each of them gets to replay one recorded session.

A contestant is a library, or a simple policy, that takes part in the comparison. ctxguard, a rolling window, and the
whole history always take part. A module adds others by listing a `Peer` for each under the name `PEERS`, and is loaded
by `ctxguard bench --with MODULE`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from random import Random
from typing import Final, Protocol, cast

from ctxguard import __version__
from ctxguard.adapting.adapter import with_adapter_stages
from ctxguard.adapting.registry import find_adapter
from ctxguard.artifacts import Artifact, Kind
from ctxguard.errors import BudgetExceededError, ConfigError
from ctxguard.harness.pricing import RollingWindow
from ctxguard.harness.recordings import Recording
from ctxguard.stabilizer import Stabilizer
from ctxguard.tokens.artifact_counter import REPLY_TOKENS

__all__ = ["ChatContestant", "Contestant", "Course", "GaveUpError", "Peer"]

OWN: Final = "ctxguard"
BASELINE: Final = "rolling window"
"""The contestant with whose bill the bills of the others are compared."""

Message = Mapping[str, object]


class GaveUpError(Exception):
    """Raised by a contestant that refuses a call because no request would fit."""


@dataclass(frozen=True, slots=True)
class Course:
    """The input of a contestant: one session, the budget, and functions to count with, the same for every contestant.

    Attributes:
        messages: All messages of the session. Every content is a string, and every tool call has an id.
        budget: Token budget of a request.
        overhead: Number of tokens that tool schemas and the framing of the reply take.
        tools: Tool schemas, or None.
        counter: Name of the token counter, for contestants that look up their own.
        count: Function that returns the number of tokens in messages.
        count_text: Function that returns the number of tokens in a string.
        summarize: Function that replaces the model that writes summaries.
    """

    messages: Sequence[Message]
    budget: int
    overhead: int
    tools: Sequence[Mapping[str, object]] | None
    counter: str
    count: Callable[[Sequence[Message]], int]
    count_text: Callable[[str], int]
    summarize: Callable[[str], str]

    @property
    def available(self) -> int:
        """Number of tokens available for messages, at least one."""
        return max(1, self.budget - self.overhead)

    @property
    def available_beside_system(self) -> int:
        """Number of tokens available for messages other than system prompts, at least one."""
        return max(1, self.available - self.count([m for m in self.messages if m["role"] == "system"]))


class Contestant(Protocol):
    """Replays one session: `send` is called once for each model call, in order. Only `send` is timed."""

    def send(self, end: int) -> object:
        """Return the request for the first `end` messages, in the library's own format.

        Raises:
            GaveUpError: If the library refuses the call.
        """
        ...

    def chat(self, sent: object) -> Sequence[Message]:
        """Convert a request to Chat Completions messages; messages that were not edited remain the same objects."""
        ...


class ChatContestant:
    """A contestant whose requests already are Chat Completions messages."""

    def __init__(self, course: Course) -> None:
        self.course = course

    def chat(self, sent: object) -> Sequence[Message]:
        """Return the messages unchanged."""
        return cast("Sequence[Message]", sent)


@dataclass(frozen=True, slots=True)
class Peer:
    """The description of one contestant.

    Attributes:
        name: Name of the contestant in tables.
        distribution: Package that must be installed; `ctxguard` if no other package is needed.
        factory: Class of the contestant, as `module:Class`. It is loaded only if the distribution is installed.
        what: The function and the settings that are compared.
    """

    name: str
    distribution: str
    factory: str
    what: str

    @property
    def version(self) -> str | None:
        """The installed version of the distribution, or None if it is not installed."""
        if self.distribution == OWN:
            return __version__
        try:
            return version(self.distribution)
        except PackageNotFoundError:
            return None

    def load(self) -> Callable[[Course], Contestant]:
        """Import and return the contestant's class, which is called with the input of one session.

        Raises:
            ImportError: If the library, or one of its dependencies, is not installed.
        """
        module, _, name = self.factory.partition(":")
        found: Callable[[Course], Contestant] = getattr(import_module(module), name)
        return found


PEERS: Final[Sequence[Peer]] = (
    Peer("ctxguard", OWN, f"{__name__}:Ours", "Stabilizer(budget): all defaults, masking and every check on"),
    Peer(BASELINE, OWN, f"{__name__}:Rolling", "the longest valid tail that fits, cut anew at each call"),
    Peer("whole history", OWN, f"{__name__}:Whole", "nothing is left out"),
)


def peers_with(modules: Iterable[str]) -> list[Peer]:
    """Return the contestants that always take part, and those that `modules` list under the name `PEERS`.

    Raises:
        ConfigError: If a module cannot be imported or lists no contestants.
    """
    found = [*PEERS]
    for name in modules:
        try:
            listed = getattr(import_module(name), "PEERS", ())
        except ImportError as error:
            raise ConfigError(
                f"no contestants from {name!r}: {error}; name an importable module", setting="with"
            ) from error
        if not listed or not all(isinstance(each, Peer) for each in listed):
            raise ConfigError(f"{name!r} has no list PEERS of ctxguard.harness.contestants.Peer", setting="with")
        found += listed
    return found


def plain_messages(artifacts: Sequence[Artifact]) -> list[Message]:
    """Convert a session to Chat Completions messages whose contents are strings, whatever the recorded format.

    Calls without an id get one. Results without an id get the ids of the preceding calls, in order.
    """
    waiting: list[str] = []
    return [_plain(artifact, position, waiting) for position, artifact in enumerate(artifacts)]


def _plain(artifact: Artifact, position: int, waiting: list[str]) -> Message:
    if artifact.kind is Kind.TOOL:
        known = artifact.answers if artifact.answers in waiting else None
        answered = known or (waiting[0] if waiting and not artifact.answers else artifact.answers or "none")
        if answered in waiting:
            waiting.remove(answered)
        return {"role": "tool", "content": artifact.text, "tool_call_id": answered}
    if artifact.kind is not Kind.ASSISTANT:
        return {"role": "user" if artifact.kind is Kind.USER else "system", "content": artifact.text}
    message: dict[str, object] = {"role": "assistant", "content": artifact.text}
    calls = list(_calls(artifact, position))
    if calls:
        message["tool_calls"] = calls
        waiting += [str(call["id"]) for call in calls]
    return message


def _calls(artifact: Artifact, position: int) -> Iterator[Message]:
    for number, call in enumerate(artifact.calls):
        function = {"name": call.name, "arguments": call.arguments or "{}"}
        yield {"id": call.id or f"call_{position}_{number}", "type": "function", "function": function}


class Ours:
    """ctxguard itself with default settings: appends new messages to a session of a stabilizer."""

    def __init__(self, course: Course) -> None:
        self._adapter = find_adapter("openai")
        chain = with_adapter_stages(Stabilizer(course.budget, counter=course.counter), self._adapter)
        self._session = chain.session(tools=course.tools, overhead=REPLY_TOKENS)
        self._native = course.messages
        self._artifacts = self._adapter.read(course.messages)
        self._done = 0

    def send(self, end: int) -> object:
        """Return the artifacts of the context that ctxguard would send."""
        self._session.extend(self._artifacts[self._done : end])
        self._done = end
        try:
            return self._session.context().artifacts
        except BudgetExceededError as error:
            raise GaveUpError from error

    def chat(self, sent: object) -> Sequence[Message]:
        """Convert the artifacts of a context to messages."""
        return cast("list[Message]", self._adapter.write(self._native, sent))  # type: ignore[arg-type]  # from `send`


class Whole(ChatContestant):
    """Sends the whole history."""

    def send(self, end: int) -> object:
        """Return the whole history."""
        return self.course.messages[:end]


class Rolling(ChatContestant):
    """Sends what a rolling window keeps: system prompts, and the longest valid tail of the history that fits."""

    def __init__(self, course: Course) -> None:
        super().__init__(course)
        tokens = [course.count([message]) for message in course.messages]
        self._window = RollingWindow(find_adapter("openai").read(course.messages), tokens, course.available)

    def send(self, end: int) -> object:
        """Return the messages that the window keeps."""
        kept = self._window.kept(end)
        if kept is None:
            raise GaveUpError
        return [self.course.messages[n] for n in kept]


SESSIONS: Final = 6
TURNS: Final = 60
_SYSTEM: Final = (
    "You are the support agent of a bicycle shop. Look orders up before you answer, name order and tracking numbers "
    "exactly, and never promise a refund that the tools have not confirmed."
)
_PARTS: Final = ("brake pads", "saddle", "front light", "chain", "left pedal", "rear wheel", "bottle cage", "mudguard")
_PLACES: Final = ("Lindsdal", "Norrby", "Hafenstrasse", "Upper Mill", "Kestrel Yard")
_STATES: Final = ("packed", "shipped", "delayed at customs", "returned", "delivered")


def synthetic_session(seed: int, turns: int = TURNS) -> dict[str, object]:
    """Generate an invented session of Chat Completions messages from a seed."""
    random = Random(seed)  # noqa: S311 - no secret is derived from it
    messages: list[dict[str, object]] = [{"role": "system", "content": _SYSTEM}]
    orders: list[tuple[str, str]] = []
    for turn in range(turns):
        messages += _turn(random, turn, orders)
    return {"id": f"synthetic-{seed}", "messages": messages}


def _turn(random: Random, turn: int, orders: list[tuple[str, str]]) -> list[dict[str, object]]:
    part, place = random.choice(_PARTS), random.choice(_PLACES)
    comes_back = bool(orders) and random.random() < 0.4
    order, tracking = (
        random.choice(orders) if comes_back else (f"A-{random.randrange(10**5, 10**6)}", _tracking(random))
    )
    if not comes_back:
        orders.append((order, tracking))
    asked = f"What became of the {part} in my order {order}?" if not comes_back else f"And the parcel of order {order}?"
    name = "trace_parcel" if comes_back else "look_up_order"
    arguments = {"tracking": tracking} if comes_back else {"order": order}
    call = {"id": f"call_{turn}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    rows = [
        {"day": day, "place": random.choice(_PLACES), "state": random.choice(_STATES), "scan": _tracking(random)}
        for day in range(1, random.randrange(3, 12))
    ]
    result = {"order": order, "tracking": tracking, "depot": place, "scans": rows}
    answer = f"Your {part} of order {order} left {place} with tracking number {tracking}; it was {rows[-1]['state']}."
    return [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{turn}", "content": json.dumps(result)},
        {"role": "assistant", "content": answer},
    ]


def _tracking(random: Random) -> str:
    return f"TRK{random.randrange(16**8):08x}"


def synthetic_recordings(count: int = SESSIONS, turns: int = TURNS) -> Iterator[Recording]:
    """Yield `count` invented sessions as recordings, each generated when it is requested."""
    for seed in range(count):
        yield Recording("synthetic", seed + 1, seed, json.dumps(synthetic_session(seed, turns)).encode())
