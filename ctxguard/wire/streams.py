"""Give values back in a streamed answer, where chunks cut placeholders in two.

What may still become a placeholder is held back, at most 64 characters of a text. Where a text ends with something held
back, it is sent in an event of its own, made after the last one of that text.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ctxguard.adapting.editing import copy_with
from ctxguard.adapting.fields import Path, get, text_of
from ctxguard.errors import CtxguardError
from ctxguard.wire.events import EventSplitter, data_of, with_data
from ctxguard.wire.formats import Api
from ctxguard.wire.replies import as_json

if TYPE_CHECKING:
    from ctxguard.pii import UnmaskStream
    from ctxguard.wire.replies import Reply

Event = Mapping[str, object]

MOST_EVENT: Final = 32_000_000
"""Bytes that one event may have."""


@dataclass(frozen=True, slots=True)
class Delta:
    """Hold the place of a piece of a text in an event.

    Attributes:
        channel: Which text it is a piece of.
        path: Where the piece stands.
        text: The piece.
        is_arguments: Whether it is a piece of JSON.
        alone: Makes an event that says a text in place of the piece, and nothing else.
    """

    channel: tuple[Hashable, ...]
    path: Path
    text: str
    is_arguments: bool
    alone: Callable[[str], Event]


@dataclass(slots=True)
class _Channel:
    """Hold one text of an answer on its way.

    Attributes:
        unmask: Puts the values back.
        raw: The event that brought its latest piece.
        delta: The place of that piece.
    """

    unmask: UnmaskStream
    raw: bytes
    delta: Delta


class EventStream:
    """Give values back in the events of one answer: `feed` its bytes as they come, then `close`.

    Attributes:
        malformed: Events whose data could not be read; they were passed on as they are.
    """

    def __init__(self, reply: Reply) -> None:
        self.malformed = 0
        self._reply = reply
        self._splitter = EventSplitter(MOST_EVENT)
        self._channels: dict[tuple[Hashable, ...], _Channel] = {}
        self._deltas, self._ends, self._wholes = _READERS[reply.api]
        self._added = 0

    def feed(self, chunk: bytes) -> bytes:
        """Return what can be sent now."""
        return b"".join(map(self._event, self._splitter.feed(chunk)))

    def close(self) -> bytes:
        """Return what was held back; the stream is over."""
        rest = self._splitter.close()
        if rest and data_of(rest) is not None:  # some providers do not end their last event
            rest = self._event(rest + b"\n\n")
        return self._flushed(lambda _: True) + rest

    def _event(self, raw: bytes) -> bytes:
        try:
            return self._restored(raw)
        except CtxguardError:
            raise
        except Exception:  # noqa: BLE001 - an event of a form that no API has must not end the answer
            self.malformed += 1
            return raw

    def _restored(self, raw: bytes) -> bytes:
        event = data_of(raw)
        if event is None:
            is_done = b"[DONE]" in raw
            self.malformed += not is_done and b"data:" in raw
            return (self._flushed(lambda _: True) if is_done else b"") + raw
        changes: dict[Path, object] = {}
        deltas = list(self._deltas(event))
        if not deltas:
            return self._ended(event) + self._whole(raw, event)
        ended = self._ends(event)
        for delta in deltas:
            channel = self._channel(raw, delta)
            text = channel.unmask.feed(delta.text)
            if ended is not None and ended(delta.channel):
                text += self._channels.pop(delta.channel).unmask.close()
            if text != delta.text:
                changes[delta.path] = text
        for path, member in self._wholes(event):
            restored = self._reply.restored(member)
            if restored is not member:
                changes[path] = restored
        return self._ended(event) + self._written(raw, event, copy_with(event, changes))

    def _channel(self, raw: bytes, delta: Delta) -> _Channel:
        known = self._channels.get(delta.channel)
        if known is None:
            is_json = delta.is_arguments or self._reply.wants_json
            known = _Channel(self._reply.session.unmask_stream(arguments=is_json), raw, delta)
            self._channels[delta.channel] = known
        known.raw, known.delta = raw, delta
        return known

    def _whole(self, raw: bytes, event: Event) -> bytes:
        """Return an event that is no piece of a text."""
        response = event.get("response") if self._reply.api == "responses" else None
        if response is not None:
            self._reply.learn(response)
        if "reasoning" in str(event.get("type")):
            return self._written(raw, event, event)
        restored = self._reply.restored(event)
        return self._written(raw, event, restored if isinstance(restored, dict) else event)

    def _ended(self, event: Event) -> bytes:
        ends = self._ends(event)
        return b"" if ends is None else self._flushed(ends)

    def _flushed(self, ends: Callable[[tuple[Hashable, ...]], bool]) -> bytes:
        """Return the events for what was held back of the texts that end."""
        pieces: list[bytes] = []
        for name in [name for name in self._channels if ends(name)]:
            channel = self._channels.pop(name)
            text = channel.unmask.close()
            if text:
                self._added += 1
                pieces.append(with_data(channel.raw, as_json(self._numbered(channel.delta.alone(text)))))
        return b"".join(pieces)

    def _written(self, raw: bytes, event: Event, now: Event) -> bytes:
        """Return the bytes of an event: the very ones it came in where nothing was changed."""
        numbered = self._numbered(now)
        return raw if numbered is event else with_data(raw, as_json(numbered))

    def _numbered(self, event: Event) -> Event:
        """Return an event of the Responses API with its number, moved by the events that were added."""
        number = event.get("sequence_number")
        if not self._added or not isinstance(number, int):
            return event
        return {**event, "sequence_number": number + self._added}


Ends = Callable[[tuple[Hashable, ...]], bool]


def _chat_deltas(event: Event) -> Iterator[Delta]:
    choices = event.get("choices")
    for number, choice in enumerate(choices if isinstance(choices, list) else ()):
        said = choice.get("delta") if isinstance(choice, dict) else None
        if not isinstance(said, dict):
            continue
        for piece in _chat_pieces(said):
            path = ("choices", number, "delta", *piece.path)
            alone = partial(_chat_alone, event, choice, piece)
            yield Delta((choice.get("index", 0), *piece.name), path, piece.text, piece.is_arguments, alone)


class _Piece(NamedTuple):
    """Hold a piece of a text in the delta of a choice; `call` is the index of the tool call it belongs to."""

    path: Path
    text: str
    name: tuple[Hashable, ...]
    is_arguments: bool
    call: object = None


def _chat_pieces(said: Mapping[str, object]) -> Iterator[_Piece]:
    for key in ("content", "refusal"):
        text = said.get(key)
        if isinstance(text, str) and text:
            yield _Piece((key,), text, (key,), is_arguments=False)
    calls = said.get("tool_calls")
    for number, call in enumerate(calls if isinstance(calls, list) else ()):
        for key, field in (("function", "arguments"), ("custom", "input")):
            if text := _inner(call, key, field):
                index = call.get("index", number)
                yield _Piece(("tool_calls", number, key, field), text, ("call", index), key == "function", index)
    if text := _inner(said, "function_call", "arguments"):
        yield _Piece(("function_call", "arguments"), text, ("function_call",), is_arguments=True)


def _chat_alone(event: Event, choice: Mapping[str, object], piece: _Piece, text: str) -> Event:
    """Return an event whose delta says a text in place of a piece, and nothing else."""
    said: Any = text
    for key in reversed(piece.path):
        said = {key: said} if isinstance(key, str) else [{"index": piece.call, **said}]
    return {**event, "choices": [{**choice, "delta": said, "finish_reason": None}]}


def _inner(record: object, key: str, field: str) -> str | None:
    return text_of(get(record, key), field)


def _choice_ends(event: Event, *, listed: str, reason: str) -> Ends | None:
    """Tell the texts of those choices of an event that name the reason why they end."""
    choices = event.get(listed)
    over = [
        choice.get("index", 0)
        for choice in (choices if isinstance(choices, list) else ())
        if isinstance(choice, dict) and choice.get(reason) is not None
    ]
    return (lambda channel: channel[0] in over) if over else None


_ANTHROPIC: Final = {"text_delta": "text", "input_json_delta": "partial_json"}


def _anthropic_deltas(event: Event) -> Iterator[Delta]:
    said = event.get("delta")
    if event.get("type") != "content_block_delta" or not isinstance(said, dict):
        return
    field = _ANTHROPIC.get(str(said.get("type")))
    text = said.get(field) if field is not None else None
    if field is not None and isinstance(text, str):
        path: Path = ("delta", field)
        alone = partial(_with_text, event, path)
        yield Delta((event.get("index"),), path, text, field == "partial_json", alone)


def _with_text(event: Event, path: Path, text: str) -> Event:
    return copy_with(event, {path: text})


def _anthropic_ends(event: Event) -> Ends | None:
    if event.get("type") == "content_block_stop":
        index = event.get("index")
        return lambda channel: channel[0] == index
    return (lambda _: True) if event.get("type") in ("message_delta", "message_stop") else None


_PLACE: Final = ("item_id", "output_index", "content_index")


def _responses_deltas(event: Event) -> Iterator[Delta]:
    kind, said = str(event.get("type")), event.get("delta")
    if not kind.endswith(".delta") or not isinstance(said, str) or "reasoning" in kind or "audio." in kind:
        return
    name = kind.removesuffix(".delta")
    channel = (name, *map(event.get, _PLACE))
    yield Delta(channel, ("delta",), said, name.endswith("arguments"), partial(_with_text, event, ("delta",)))


def _responses_ends(event: Event) -> Ends | None:
    kind = str(event.get("type"))
    if kind in ("response.completed", "response.incomplete", "response.failed"):
        return lambda _: True
    if not kind.endswith(".done"):
        return None
    index = event.get("output_index")
    return lambda channel: channel[2] == index


def _gemini_parts(event: Event) -> Iterator[tuple[Path, Mapping[str, object], Mapping[str, object]]]:
    """Walk the parts of an event with their places and candidates."""
    candidates = event.get("candidates")
    for number, candidate in enumerate(candidates if isinstance(candidates, list) else ()):
        content = candidate.get("content") if isinstance(candidate, dict) else None
        parts = content.get("parts") if isinstance(content, dict) else None
        for place, part in enumerate(parts if isinstance(parts, list) else ()):
            if isinstance(part, dict):
                yield ("candidates", number, "content", "parts", place), candidate, part


def _gemini_deltas(event: Event) -> Iterator[Delta]:
    for path, candidate, part in _gemini_parts(event):
        text = part.get("text")
        if isinstance(text, str) and not part.get("thought"):
            alone = partial(_gemini_alone, candidate)
            yield Delta((candidate.get("index", 0),), (*path, "text"), text, is_arguments=False, alone=alone)


def _gemini_alone(candidate: Mapping[str, object], text: str) -> Event:
    content = {"role": "model", "parts": [{"text": text}]}
    return {"candidates": [{"content": content, "index": candidate.get("index", 0)}]}


def _gemini_wholes(event: Event) -> Iterator[tuple[Path, object]]:
    """Walk the function calls of an event, which come whole and may stand beside pieces of text."""
    for path, _, part in _gemini_parts(event):
        if part.get("text") is None:
            yield path, part


class _Readers(NamedTuple):
    """Hold how the events of one API are read: pieces of texts, which of them end, and what comes whole beside them."""

    deltas: Callable[[Event], Iterator[Delta]]
    ends: Callable[[Event], Ends | None]
    wholes: Callable[[Event], Iterable[tuple[Path, object]]] = lambda _: ()


_READERS: Final[Mapping[Api, _Readers]] = {
    "chat": _Readers(_chat_deltas, partial(_choice_ends, listed="choices", reason="finish_reason")),
    "anthropic": _Readers(_anthropic_deltas, _anthropic_ends),
    "responses": _Readers(_responses_deltas, _responses_ends),
    "gemini": _Readers(
        _gemini_deltas, partial(_choice_ends, listed="candidates", reason="finishReason"), _gemini_wholes
    ),
}
