"""Let a model read shortened or evicted texts with a `recall` tool, whose calls the guard answers itself.

The guard acts as a client. It appends the model's message and the result of the call to the original history, and sends
both as another request, which is masked and stabilized like every other. These calls are *hidden*: the client receives
the turn without them. In later requests, the guard replaces the client's version of the turn with the version that was
sent, so that call pairs and the cached prefix stay intact.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, cast

from ctxguard.adapting.fields import member_at, parse_json
from ctxguard.adapting.restoring import session_of
from ctxguard.artifacts import BY_POSITION, Artifact, Kind, Part, ToolCall
from ctxguard.content import recall_tool
from ctxguard.content.results import RECALL_SCHEMA
from ctxguard.draft import Ask
from ctxguard.errors import WireError
from ctxguard.formats.format import Item, Weave
from ctxguard.formats.gemini import NO_ID
from ctxguard.stages.bound_tool_output import NAMESPACE, handle_of
from ctxguard.stages.lexical import passages_for
from ctxguard.stores import MemoryStore
from ctxguard.tokens.caches import Recent
from ctxguard.wire.bodies import Turn, WireRequest
from ctxguard.wire.checking import BodyCheck, BodyTexts
from ctxguard.wire.replies import Reply, as_json
from ctxguard.wire.sessions import numberings_of

if TYPE_CHECKING:
    from ctxguard.formats.format import Body, Format
    from ctxguard.report import Report
    from ctxguard.report.telemetry import Metrics
    from ctxguard.stabilizer import Stabilizer
    from ctxguard.stores import Store
    from ctxguard.views.views import Count


MOST_ROUNDS: Final = 6
"""Maximum number of consecutive responses whose recall calls are answered.

After that, the model is told once to stop, and another call ends the response with an error.
"""
MOST_CALLS: Final = 8
"""Maximum number of recall calls in one message that are answered."""
_SIZE: Final = 2_000
"""Maximum number of tokens that one call returns."""
_SHARE: Final = 4
"""One call returns at most the budget divided by this number."""
_MEMORY: Final = 256_000_000
"""Maximum number of bytes in the in-memory store. The oldest texts are evicted first."""
_TURNS: Final = "read-back"
"""Namespace in the store for turns with hidden calls, which are stored masked."""
_UNREAD: Final = ("/count_tokens", "/input_tokens", "/compact", ":countTokens")
"""Endings of the paths of requests that do not get a response from a model."""
_HANDLE: Final = "The handle that a shortened result names, or that is in brackets in the list of earlier steps."
_PARAMETERS: Final = cast("dict[str, Any]", RECALL_SCHEMA["parameters"])
Plain = Callable[[list[Item], str], Generator[Ask, object, list[Item]]]
SCHEMA: Final = {
    "name": "recall",
    "description": "Read what was shortened or has left this conversation: lines of a text by its handle, or the "
    "passages that match a query best.",
    "parameters": {
        "type": "object",
        "properties": {
            **_PARAMETERS["properties"],
            "handle": {"type": "string", "description": _HANDLE},
            "query": {"type": "string", "description": "Words to search for, in place of a handle."},
        },
    },
}
"""The schema of the tool that is added to requests."""


class ReadBack:
    """Adds the recall tool to requests, and stores turns with hidden calls.

    Args:
        store: Contains the full texts and the turns, all of them masked. None means a store in memory.
        metrics: Counts the answered calls.
    """

    def __init__(self, store: Store | None, metrics: Metrics) -> None:
        self.store: Store = MemoryStore(max_bytes=_MEMORY) if store is None else store
        self.metrics = metrics
        self._turns: Recent[str, list[Item] | None] = Recent(4_096)

    def storing(self, stabilizer: Stabilizer) -> Stabilizer:
        """Return a stabilizer whose stages save full texts in the store, so that shortened texts name a handle."""
        return stabilizer.with_(stages=stabilizer.stages.with_store(self.store))

    def reading(self, kind: Format, request: WireRequest, body: Body, client: Body, scope: str) -> Reading | None:
        """Return the object that answers recall calls for a request, or None if the request cannot have the tool."""
        if kind.weave is None or request.path.rstrip("/").endswith(_UNREAD) or not kind.takes_tool(body):
            return None
        return Reading(self, kind, kind.weave, request, body, client, scope)

    def name(self, kind: Format, body: Body) -> str:
        """Return a name for the recall tool that the tools in a client's request do not use."""
        tools = json.dumps(member_at(body, kind.tools_at(body)[:1]))
        return "ctxguard_recall" if '"name": "recall"' in tools else "recall"

    def remember(self, scope: str, key: str | None, turn: Turn) -> None:
        """Store a turn under a key that identifies the client's version of the turn. Without a key, store nothing."""
        if key is not None:
            self._turns.put(f"{scope} {key}", list(turn.plain))
            self.store.put(_TURNS, f"{scope} {key}", as_json({"numbering": turn.numbering, "masked": turn.masked}))

    def is_divided(self, scope: str, answer: str) -> bool:
        """Return whether a streamed response is stored at the provider as several responses with an id each."""
        return self.store.get(_TURNS, f"{scope} answer {answer}") is not None

    def expand(self, kind: Format, body: Body, scope: str, plain: Plain) -> Generator[Ask, object, Body]:
        """Return a request in which the client's version of stored turns is replaced by the version that was sent.

        Args:
            kind: The format of the request.
            body: The body of the request.
            scope: A hash of the credentials of the sender.
            plain: Function that restores masked values in turns that an earlier process stored. It takes the items of a
                turn and the numbering of their placeholders, and returns nothing if values are numbered otherwise now.
        """
        native = kind.native(body)
        artifacts: list[Artifact] = []
        is_changed, before, called = False, "", set[str | None]()
        for is_said, group in groupby(kind.read(native), key=lambda artifact: artifact.kind is Kind.ASSISTANT):
            run = list(group)
            key = _turn_key(before, run) if is_said else _result_key(run, called)
            found = [] if key is None else (yield from self._known(f"{scope} {key}", plain))
            artifacts += kind.read(found) if found else ()
            artifacts += run if not (found and is_said) else ()
            is_changed, before = is_changed or bool(found), run[-1].text
            called.update(call.id for artifact in run for call in artifact.calls)
        return kind.written(body, kind.write(native, artifacts)) if is_changed else body

    def _known(self, name: str, plain: Plain) -> Generator[Ask, object, list[Item]]:
        found = self._turns.get(name)
        if found is None:
            stored = self.store.get(_TURNS, name)
            turn = {} if stored is None else json.loads(stored)
            found = (yield from plain(turn["masked"], turn["numbering"])) if isinstance(turn, dict) and turn else []
            self._turns.put(name, found)
        return found


def _turn_key(before: str, run: Sequence[Artifact]) -> str | None:
    """Return an identifier of a model's turn: the id of its first call, or a hash of its text and the message before.

    White space in the text is ignored, because clients join and trim streamed text. None if the turn has neither text
    nor calls.
    """
    calls = [call for artifact in run for call in artifact.calls]
    ids = [call.id for call in calls if call.id and call.id != BY_POSITION and not call.id.startswith(NO_ID)]
    if ids:
        return f"call {ids[0]}"
    said = "".join("".join(text.split()) for artifact in run for text in _visible_texts(artifact))
    if not (said or calls):
        return None
    turn = json.dumps([before, said, [(call.name, call.arguments) for call in calls]])
    return f"said {hashlib.blake2b(turn.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


def _visible_texts(artifact: Artifact) -> list[str]:
    """Return the texts that every client keeps, which excludes reasoning."""
    parts = (Part("text", artifact.content),) if isinstance(artifact.content, str) else artifact.content
    return [part.text or "" for part in parts if part.kind in ("text", "refusal")]


def _result_key(run: Sequence[Artifact], called: set[str | None]) -> str | None:
    """Return an identifier of the first tool result in `run` whose call is stored at the provider.

    `called` contains the ids of the calls in the request. Any other call is stored at the provider. None if there is no
    such result.
    """
    return next((f"result {a.answers}" for a in run if a.kind is Kind.TOOL and a.answers not in called), None)


@dataclass(slots=True)
class Reading:
    """Answers the hidden calls in the responses to one request of a client.

    Attributes:
        read_back: Stores the turns and the full texts.
        kind: The format of the request.
        joined: Class that joins the streamed responses, see `Format.weave`.
        request: The original request.
        body: The body of the request. After `begin`, it contains the tool and the complete turns.
        client: The body as the client sent it.
        scope: A hash of the credentials of the sender.
        name: The name of the recall tool.
        count: Function that returns the number of tokens in a text.
        sent: The body that was sent.
        report: The report on the request.
        reply: Restores values. None if there is nothing to restore.
    """

    read_back: ReadBack
    kind: Format
    joined: type[Weave]
    request: WireRequest
    body: Body
    client: Body
    scope: str
    _numberings: list[str] | None = field(init=False, default=None)
    name: str = field(init=False)
    count: Count = field(init=False)
    sent: bytes = field(init=False)
    report: Report = field(init=False)
    reply: Reply | None = field(init=False)

    def begin(self, stabilizer: Stabilizer, check: BodyCheck) -> Generator[Ask, object, Body]:
        """Return the body with the tool, and with the client's version of stored turns replaced by the sent version."""
        self.count = stabilizer.counter.counter.count
        if self.request.turn is not None:  # a continuation by the guard itself
            self.name = self.request.turn.name
            return self.body
        previous = self.body.get("previous_response_id")
        stored = self.read_back.store.get(_TURNS, f"{self.scope} answer {previous}") if previous else None
        if stored is not None:
            self.body = {**self.body, "previous_response_id": stored.decode()}
        self.name = self.read_back.name(self.kind, self.body)
        body = self.body = self.kind.with_tool(self.body, {**SCHEMA, "name": self.name})

        def plain(members: list[Item], numbering: str) -> Generator[Ask, object, list[Item]]:
            if numbering not in self.numberings():
                return []  # the placeholders may mean something else in this body
            masking = stabilizer.masking()
            outside = BodyTexts.of(self.kind, body, check, masking).outside
            history = outside.prepended_to(self.kind.read(self.kind.native(body)))
            masks = (yield from masking.flow(history)).report.masks
            session = session_of(masks)
            return members if session is None else cast("list[Item]", Reply(session, self.kind).restore(members))

        self.body = yield from self.read_back.expand(self.kind, body, self.scope, plain)
        return self.body

    def numberings(self) -> list[str]:
        """Return the numberings of the placeholders in the client's body, see `sessions.numberings_of`."""
        if self._numberings is None:
            self._numberings = [one.hex() for one in numberings_of(self.kind, self.client)]
        return self._numberings

    def note_sent(self, sent: bytes, report: Report, reply: Reply | None) -> None:
        """Record what was sent."""
        self.sent, self.report, self.reply = sent, report, reply

    def weave(self) -> Weave:
        """Return an object that processes the events of a streamed response."""
        return self.joined(self.kind, self.name)

    def whole(self, answer: bytes) -> bytes:
        """Return a response for the client: with the earlier output of the turn, and without hidden calls."""
        body = parse_json(answer.decode("utf-8", "replace"))
        if not isinstance(body, dict):
            return answer
        items = self.kind.response_items(body)
        before = () if self.request.turn is None else self.request.turn.shown
        visible = [*before, *self.kind.without_calls(items, self.name)]
        return answer if visible == items else as_json(self.kind.with_items(body, visible))

    def follow_whole(self, answer: bytes) -> WireRequest | None:
        """Parse the body of a response that is not streamed, and do the same as `follow`."""
        body = parse_json(answer.decode("utf-8", "replace"))
        return self.follow(self.kind.response_items(body)) if isinstance(body, dict) else None

    def follow(self, items: Sequence[Item], *, renamed: tuple[str, str] | None = None) -> WireRequest | None:
        """Return the follow-up request that contains the results of a response's hidden calls.

        Args:
            items: The output items of the response.
            renamed: The id of the response for the client, and its id at the provider.

        Returns:
            The request, or None if there are no hidden calls, or the client has to answer other calls first.

        Raises:
            WireError: If the model makes another recall call after it was told to stop.
        """
        if renamed is not None:
            self.read_back.store.put(_TURNS, f"{self.scope} answer {renamed[0]}", renamed[1].encode())
        calls = [call for item in items if (call := self.kind.call_in(item)) is not None]
        ours = [call for call in calls if call.name == self.name]
        turn = self.request.turn
        if turn is None:
            if not ours:
                return None
            history = self.kind.read(self.kind.native(self.body))
            numbering = self.numberings()[-1]
            turn = Turn(self.name, before=history[-1].text if history else "", numbering=numbering)
        is_hidden = bool(ours) and len(ours) == len(calls)
        if is_hidden and turn.rounds > MOST_ROUNDS:
            asked = f"the model asked to read evicted texts {turn.rounds} times in a row"
            raise WireError(f"{asked}; send the request again, or raise the budget", status=502)
        said = self.kind.as_history(self._accepted(items))
        results = self._results(ours, turn.rounds)
        turn = Turn(
            self.name,
            turn.rounds + 1,
            turn.before,
            (*turn.shown, *self.kind.without_calls(items, self.name)),
            (*turn.plain, *self._plain(said), *self._plain(results)),
            (*turn.masked, *said, *results),
            turn.numbering,
        )
        if is_hidden:
            held = self.body.get(self.kind.history)
            before = held if isinstance(held, list) else self.kind.native(self.body)
            listed = [*(before if isinstance(before, list) else [held]), *turn.plain[-len(said) - len(results) :]]
            body = {**self.body, self.kind.history: listed}
            return replace(self.request, body=as_json(body), turn=turn)
        visible = self.kind.read(self._plain(self.kind.as_history(turn.shown)))
        self.read_back.remember(self.scope, _turn_key(turn.before, visible), turn)
        for call in calls if results else ():
            plain = tuple(self._plain(results))
            pending = Turn(plain=plain, masked=tuple(results), numbering=turn.numbering)
            self.read_back.remember(self.scope, f"result {call.id}", pending)
        return None

    def _accepted(self, items: Sequence[Item]) -> list[Item]:
        """Return the items that the provider accepts in a follow-up request.

        If the provider does not store responses, reasoning without encrypted content is left out.
        """
        is_lost = self.kind.api == "responses" and self.body.get("store") is False
        return [i for i in items if not (is_lost and i.get("type") == "reasoning" and not i.get("encrypted_content"))]

    def _plain(self, members: Sequence[Item]) -> list[Item]:
        return list(members) if self.reply is None else cast("list[Item]", self.reply.restore(list(members)))

    def _results(self, calls: Sequence[ToolCall], rounds: int) -> list[Item]:
        texts = [self._result(call, number, rounds) for number, call in enumerate(calls)]
        results = [Artifact(Kind.TOOL, text, answers=c.id, name=c.name) for c, text in zip(calls, texts, strict=True)]
        return list(self.kind.write([], results)) if results else []

    def _result(self, call: ToolCall, number: int, rounds: int) -> str:
        """Return the result of a call, in which values are masked.

        Args:
            call: The call.
            number: Index of the call among the hidden calls of its response.
            rounds: Number of earlier responses with hidden calls in the turn.
        """
        asked = parse_json(call.arguments)
        if rounds >= MOST_ROUNDS:
            return f"[no more: {rounds} read-backs in a row are the limit; go on with what you have]"
        if number >= MOST_CALLS:
            return f"[no more: {MOST_CALLS} read-backs at once are the limit; ask for the rest in the next step]"
        given = {k: v for k, v in asked.items() if v not in (None, "")} if isinstance(asked, dict) else {}
        kind = "handle" if "handle" in given else "query"
        self.read_back.metrics.add("read_backs", by=kind)
        if kind == "handle":
            return self._read(given)
        query = given.get("query")
        return self._search(query) if isinstance(query, str) else "[give a handle or a query]"

    def _size(self) -> int:
        return max(1, min(_SIZE, self.report.budget // _SHARE))

    def _read(self, given: Mapping[str, Any]) -> str:
        """Return lines of a text. If no lines were asked for and the text is not too long, return the complete text.

        Only a text of this conversation is read: whoever names a handle of another conversation gets nothing. Since a
        request contains its whole history, its texts are at hand, and the store, which all senders share, is not read.
        """
        handle = str(given["handle"])
        texts = (artifact.text for artifact in self.report.masked)
        text = next((text for text in texts if handle_of(text) == handle), None)
        if text is None:
            return f"[nothing is saved under handle {handle[:80]!r}]"
        if len(given) == 1 and self.count(text) <= self._size():
            return text
        lines = {name: given[name] for name in ("first_line", "last_line", "contains") if name in given}
        own = MemoryStore()
        own.put_new(NAMESPACE, handle, text.encode("utf-8", "surrogatepass"))
        return recall_tool(own, max_tokens=self._size())(handle, **lines)

    def _search(self, query: str) -> str:
        """Return the passages in evicted messages that match a query best, each with the handle of its text."""
        left = [artifact for artifact in self.report.left if artifact.text]
        texts = [artifact.text for artifact in left]
        passages, tokens = "", 0
        for number, passage in passages_for(texts, query):
            handle = handle_of(texts[number])
            piece = f"[{left[number].kind.value}, handle {handle}]\n{passage}\n"
            tokens += self.count(piece)
            if tokens > self._size():
                break
            passages += piece
        return passages or "[nothing that has left this conversation matches]"
