"""Restore masked values in a streamed response, whose chunks may split a placeholder.

Text that may be the beginning of a placeholder is held back, up to 80 characters. If a text ends while something is
held back, this rest is sent in an additional event, which is a copy of the text's last event.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from ctxguard.adapting.fields import Path, copy_with
from ctxguard.adapting.restoring import StreamRestorer, Tool
from ctxguard.errors import CtxguardError
from ctxguard.formats.format import Channel, Delta, Event
from ctxguard.pii.mask.links import Links
from ctxguard.wire.events import FORMS, Events, StreamForm
from ctxguard.wire.replies import ALTERNATIVES, as_json, tool_of, without_logprobs

if TYPE_CHECKING:
    from ctxguard.formats.format import Item, Weave
    from ctxguard.wire.bodies import WireRequest
    from ctxguard.wire.replies import Reply

Origin = TypeVar("Origin")

MOST_EVENT: Final = 32_000_000
"""Maximum number of bytes in one event."""


class _Tools:
    """The tools that the calls of a response may mean, by the keys of the calls, see `Format.called`.

    Providers send a name whole, again with each piece of the arguments, or in pieces. A piece that differs is read both
    as a name and as the continuation of the one before.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, set[Tool]] = {}

    def add(self, key: Hashable, record: object) -> None:
        """Add the tool in a record of a call."""
        tool = tool_of(record, "function") if isinstance(record, dict) else None
        if tool is None or not tool.name:
            return
        known = self._known.setdefault(key, set())
        if tool not in known:
            longer = {Tool(one.name + tool.name, one.is_providers) for one in known}
            known.clear()
            known.update(longer, {tool})

    def of(self, keys: Iterable[Hashable]) -> set[Tool]:
        """Return the tools that a call may mean, which has any of these keys."""
        return {tool for key in keys for tool in self._known.get(key, ())}


class ReplyEvents(Generic[Origin]):
    """Restores masked values in the events of one response: call `feed` with each event as it arrives, then `close`.

    Each result is a pair: an event to send, and the original event from which it was made. The original (`Origin`) is
    bytes, or an object of an SDK.
    """

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._format = reply.format
        self._streams = StreamRestorer(reply)
        self._latest: dict[Channel, tuple[Origin, Delta]] = {}
        self._tools = _Tools()
        self._links: dict[Hashable, Links | None] = {}
        self._starts: dict[Hashable, Links] = {}
        self._added = 0

    def feed(self, event: Event, origin: Origin) -> list[tuple[Event, Origin]]:
        """Return the events to send now. The last one is the given event, as the same object if nothing changed."""
        for key, record in self._format.called(event) if self._reply.tools else ():
            self._tools.add(key, record)
        deltas = list(self._format.deltas(event))
        ends = self._format.ends(event)
        first = {delta.channel: delta for delta in reversed(deltas)}
        begun = {channel for channel, delta in first.items() if delta.is_first}
        before = self._flush(begun.__contains__) if begun else []
        now = self._pieces(event, origin, deltas, ends) if deltas else self._restore_whole(event)
        flushed = [] if ends is None else self._flush(ends)
        return [*before, *flushed, (self._renumber(now), origin)]

    def close(self) -> list[tuple[Event, Origin]]:
        """Return the events for all text that is still held back, once the stream has ended."""
        return self._flush(lambda _: True)

    def _pieces(
        self, event: Event, origin: Origin, deltas: list[Delta], ends: Callable[[Channel], bool] | None
    ) -> Event:
        changes: dict[Path, object] = {}
        event = _each(event, self._reply.without_logprobs)
        last = {delta.channel: delta for delta in deltas}  # an event may contain several pieces of a text
        for delta in deltas:
            text = self._piece(event, delta)
            self._latest[delta.channel] = origin, delta
            is_over = ends is not None and delta is last[delta.channel] and ends(delta.channel)
            if delta.is_last or is_over:
                text += self._streams.close(delta.channel)
            if text != delta.text:
                changes[delta.path] = text
        for path, member in self._format.wholes(event):
            restored = self._reply.restore(member)
            if restored is not member:
                changes[path] = restored
        return copy_with(event, changes)

    def _piece(self, event: Event, delta: Delta) -> str:
        """Return what can be sent of a text or a call after its next piece."""
        if not delta.calls:
            if delta.channel not in self._latest:
                self._note_start(delta)
            return self._streams.text(delta.channel, delta.text, self._links_of(delta.answer))
        gives = self._gives(event, delta)
        return self._streams.arguments(delta.channel, delta.text, gets_values=gives, is_json=delta.is_arguments)

    def _links_of(self, answer: Hashable) -> Links | None:
        """Return what has read the texts of an answer so far, which a client may show as one."""
        if answer not in self._links:
            self._links[answer] = self._reply.links()
        return self._links[answer]

    def _note_start(self, delta: Delta) -> None:
        """Note what was read before a text of an answer, for the event that repeats this text."""
        links = self._links_of(delta.answer)
        if links is not None:
            for place in self._format.places(delta.channel):
                self._starts.setdefault(place, links.copy())

    def _gives(self, event: Event, delta: Delta) -> bool:
        """Return whether values are restored in a piece of text: not in the calls of tools that may not get values."""
        if not self._reply.tools:
            return True
        tool = tool_of(event)
        return self._reply.gives([*self._tools.of(delta.calls), *([tool] if tool is not None and tool.name else [])])

    def _restore_whole(self, event: Event) -> Event:
        """Return an event that contains no pieces of text, with masked values restored."""
        self._reply.learn(self._format.stored(event))
        known = self._tools.of(self._format.calls_of(event))
        start = self._starts.get(self._format.place_of(event))
        is_response = self._format.stored(event) is not None  # it repeats all texts, from the first one on
        links = start.copy() if start is not None else None if is_response else self._links_of(0)
        restored = event if "reasoning" in str(event.get("type")) else self._reply.restore(event, known, links)
        return restored if isinstance(restored, dict) else event

    def _flush(self, ends: Callable[[Channel], bool]) -> list[tuple[Event, Origin]]:
        """Return the events for the held-back text of all channels for which `ends` returns true.

        A channel identifies one of the texts in a response.
        """
        flushed: list[tuple[Event, Origin]] = []
        for name in [name for name in self._latest if ends(name)]:
            origin, delta = self._latest.pop(name)
            text = self._streams.close(name)
            if text:
                self._added += 1
                # the probabilities of the tokens were sent with the event that is copied
                flushed.append((self._renumber(_each(delta.alone(text), without_logprobs)), origin))
        return flushed

    def _renumber(self, event: Event) -> Event:
        """Return an event of the Responses API with its sequence number increased by the number of added events."""
        number = event.get("sequence_number")
        if not self._added or not isinstance(number, int):
            return event
        return {**event, "sequence_number": number + self._added}


def _each(event: Event, change: Callable[[Event], Event]) -> Event:
    """Return an event with a change of itself, and of the alternatives in it."""
    changes: dict[Path, object] = {}
    for key in ALTERNATIVES:
        listed = event.get(key)
        for number, member in enumerate(listed if isinstance(listed, list) else ()):
            changed = change(member) if isinstance(member, dict) else member
            if changed is not member:
                changes[key, number] = changed
    return change(copy_with(event, changes))


class RecallAnswers(Protocol):
    """Answers a model's recall calls in a response, as `ctxguard.wire.readback.Reading` does."""

    def weave(self) -> Weave:
        """Return an object that processes the events of a streamed response."""

    def follow(self, items: Sequence[Item], *, renamed: tuple[str, str] | None = None) -> WireRequest | None:
        """Return the follow-up request that answers a response's hidden calls. None if there are none to answer.

        For the arguments, see `ctxguard.wire.readback.Reading.follow`.
        """


class EventStream:
    """Restores masked values in a streamed response: call `feed` with the bytes as they arrive, then `close`.

    Args:
        reply: Restores values. None if there is nothing to restore.
        reading: Answers the model's recall calls. None if the request does not have the recall tool.
        weave: The object that processed the earlier responses of the turn, if this response continues one.
        form: What the stream consists of: server-sent events, Amazon's frames, or JSON lines.

    Attributes:
        malformed: Number of events whose data could not be read. They were passed on unchanged.
    """

    def __init__(
        self,
        reply: Reply | None,
        reading: RecallAnswers | None = None,
        weave: Weave | None = None,
        *,
        form: StreamForm = "events",
    ) -> None:
        self.malformed = 0
        self.weave = reading.weave() if reading is not None and weave is None else weave
        self._reply = reply
        self._has_failed = False
        self._reading = reading
        self._following: WireRequest | None = None
        self._stream: Events = FORMS[form](MOST_EVENT)
        self._events: ReplyEvents[bytes] | None = None if reply is None else ReplyEvents(reply)

    def follow(self) -> WireRequest | None:
        """Return the follow-up request after the finished response, or None if there are no hidden calls to answer."""
        return self._following

    def _shown_to_client(self, event: Event) -> Event | None:
        """Return an event as the client receives it, or None if the event is hidden.

        The end of a response is handled before its last event is sent, because clients may stop reading there.
        """
        if self.weave is None or self._reading is None:
            return event
        was_over, shown = self.weave.is_over, self.weave.feed(event)
        if self.weave.is_over and not was_over:
            self._following = self._reading.follow(self.weave.items, renamed=self.weave.renamed)
        return shown

    def feed(self, chunk: bytes) -> bytes:
        """Return the bytes that can be sent now."""
        try:
            return b"".join(piece for raw in self._stream.feed(chunk) for piece in self._restore(raw))
        except Exception:
            self._has_failed = True
            raise

    def close(self) -> bytes:
        """Return the bytes that are still held back, once the stream has ended; nothing after an error in `feed`."""
        if self._has_failed:
            return b""
        rest = self._stream.close()
        # some providers do not send the empty line after the last event, or the end of the last line
        if rest and self._stream.ending and self._stream.data_of(rest) is not None:
            rest = b"".join(self._restore(rest + self._stream.ending))
        elif rest and self._stream.has_data(rest):
            rest = self._unread(rest)
        return b"".join(self._rest()) + rest

    def _rest(self) -> Iterator[bytes]:
        held = () if self._events is None else self._events.close()
        return (self._stream.with_data(origin, as_json(event)) for event, origin in held)

    def _unread(self, raw: bytes) -> bytes:
        return raw if self._reply is None else self._reply.unread(raw)

    def _restore(self, raw: bytes) -> Iterator[bytes]:
        event = self._stream.data_of(raw)
        if event is None:
            is_done = b"[DONE]" in raw
            self.malformed += not is_done and self._stream.has_data(raw)
            yield from self._rest() if is_done else ()
            if not (is_done and self.weave is not None and self.weave.goes_on):
                yield self._unread(raw) if self._stream.has_data(raw) else raw
            return
        try:
            shown = self._shown_to_client(event)
            if shown is None:
                return
            restored = [(shown, raw)] if self._events is None else self._events.feed(shown, raw)
        except CtxguardError:
            raise
        except Exception:  # noqa: BLE001 - a malformed event must not end the response
            self.malformed += 1
            yield self._unread(raw)
            return
        yield from (raw if now is event else self._stream.with_data(origin, as_json(now)) for now, origin in restored)
