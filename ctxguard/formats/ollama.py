"""The messages of Ollama's chat API, as artifacts.

The format is documented at https://docs.ollama.com/api/chat. Roles and tools are those of Chat Completions. Differences
are arguments that are objects, calls and results without ids, images beside the content, and a stream of JSON lines in
which each line has the shape of the whole response.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from ctxguard.adapting.content_format import image
from ctxguard.adapting.fields import Path, arguments_as_object, copy_with, get, is_list, member_at, text_of
from ctxguard.adapting.message_view import MessageView
from ctxguard.artifacts import BY_POSITION, Artifact, Kind
from ctxguard.formats.chat import Message, MessageFormat
from ctxguard.formats.format import Body, Delta, Ends, Event, Sent, records_of

_TEXT: Final[Path] = ("message", "content")
_CALLS: Final[Path] = ("message", "tool_calls")
_DATA: Final = "data:image/png;base64,"
"""The beginning of the URL of an image. Ollama takes the data alone, whose first bytes tell the type."""


class OllamaAdapter(MessageFormat):
    """Reads Ollama's messages as artifacts, one for each message.

    Calls without an id are answered by the results that follow, in their order. An unchanged message remains the same
    object; in a changed message, only the changed texts differ. An image is counted, and kept or dropped with its
    message. Messages of unknown role are kept and pinned, and the report names the role.
    """

    name = "ollama"
    api = "ollama"
    paths = ("/api/chat",)
    json_settings = ("format",)
    billed = ("format",)
    error = "text"
    streams_lines = True
    texts = ("thinking",)
    own = ("images", "tool_name")

    def detects(self, native: object) -> bool:
        """Return whether `native` is a list in which a message has fields that only Ollama's messages have."""
        dicts = [message for message in native if isinstance(message, Mapping)] if is_list(native) else []
        return any(message.get(key) is not None for message in dicts for key in self.own)

    def view(self, message: Message) -> MessageView:
        """Return the view of a message: its texts, images, and calls, with their paths."""
        view = super().view(message)
        images = get(message, "images")
        pictures = [((), image(f"{_DATA}{one}")) for one in images] if is_list(images) else []
        calls = [
            one if one.call.id else one._replace(call=replace(one.call, id=BY_POSITION), id=()) for one in view.calls
        ]
        answered = view.tool_call_id
        if view.kind is Kind.TOOL and not answered:
            answered = BY_POSITION
        name = text_of(message, "tool_name") or view.name
        return view._replace(parts=[*view.parts, *pictures], calls=calls, tool_call_id=answered, name=name)

    def changes(self, message: Message, changes: Mapping[Path, object]) -> Iterable[tuple[Path, object]]:
        """Yield the changes of a message, with arguments as an object, as the API requires."""
        for path, new in super().changes(message, changes):
            yield path, arguments_as_object(str(new)) if path[-1] == "arguments" else new

    def created(self, artifact: Artifact) -> Message:
        """Return the message for an artifact that a stage added."""
        role = "user" if artifact.kind is Kind.TASK else artifact.kind.value
        message: dict[str, object] = {"role": role, "content": artifact.text}
        if artifact.kind is Kind.TOOL:
            message |= {"tool_name": artifact.name} if artifact.name else {}
            message |= _identity("tool_call_id", artifact.answers)
        if artifact.calls:
            message["tool_calls"] = [
                {
                    **_identity("id", call.id),
                    "function": {"name": call.name, "arguments": arguments_as_object(call.arguments)},
                }
                for call in artifact.calls
            ]
        return message

    def sent(self, body: Body) -> Sent:
        """Return the parts of a request that the model sees."""
        schema = body.get("format")
        return Sent(
            tuple(self.counted(body)),
            tuple(records_of(body.get("tools"))),
            schema=schema if isinstance(schema, Mapping) else None,
        )

    def deltas(self, event: Event) -> Iterator[Delta]:
        """Yield the piece of text in a line of a streamed response."""
        text = member_at(event, _TEXT)
        if isinstance(text, str) and text:
            yield Delta(_TEXT, _TEXT, text, is_arguments=False, alone=lambda new: _alone(event, new))

    def wholes(self, event: Event) -> Iterable[tuple[Path, object]]:
        """Yield the path and the value of the calls in a line, which are never split."""
        calls = member_at(event, _CALLS)
        return [(_CALLS, calls)] if calls else []

    def called(self, event: Event) -> Iterator[tuple[Hashable, object]]:
        """Yield a key and the record of each tool call in a line."""
        for number, call in enumerate(records_of(member_at(event, _CALLS))):
            yield ("call", number), get(call, "function")

    def ends(self, event: Event) -> Ends | None:
        """Return a predicate that is true for the channels (see `Channel`) that a line ends; None if it ends none."""
        return (lambda _: True) if event.get("done") is True else None


def _identity(key: str, given: str | None) -> dict[str, object]:
    return {key: given} if given and given != BY_POSITION else {}


def _alone(event: Event, text: str) -> Event:
    """Return a copy of a line that contains nothing but a text."""
    return copy_with({**event, "done": False}, {("message",): {"role": "assistant", "content": text}})
