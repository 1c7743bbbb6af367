"""The messages of Cohere's chat API (v2), as artifacts.

The format is documented at https://docs.cohere.com/reference/chat. Roles and tool calls are those of Chat Completions.
Differences are the plan before tool calls (`tool_plan`), documents as tool results, documents outside the history, and
the events of a stream.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from ctxguard.adapting.content_format import ContentFormat, opaque
from ctxguard.adapting.fields import (
    Path,
    arguments_as_text,
    copy_with,
    get,
    is_list,
    member_at,
    parse_json,
    require_field,
)
from ctxguard.adapting.message_view import PlacedPart
from ctxguard.artifacts import Artifact, Kind, Part
from ctxguard.formats.chat import PARTS, Message, MessageFormat
from ctxguard.formats.format import Body, Delta, Ends, Event, Sent, choice_of, records_of

_DOCUMENT: Final = ("document", "data")
_TEXT: Final[Path] = ("delta", "message", "content", "text")
_ARGUMENTS: Final[Path] = ("delta", "message", "tool_calls", "function", "arguments")
_DELTAS: Final[Mapping[str, tuple[str, Path]]] = {
    "content-start": ("content", _TEXT),
    "content-delta": ("content", _TEXT),
    "tool-plan-delta": ("plan", ("delta", "message", "tool_plan")),
    "tool-call-start": ("call", _ARGUMENTS),
    "tool-call-delta": ("call", _ARGUMENTS),
}
"""The name of the channel and the path of the text, by event type. Placeholders in thinking are not restored."""
_ENDS: Final = {"content-end": "content", "tool-call-end": "call"}
_ONLY_COHERE: Final = ("tool_plan", "citations")


def _document(part: object, path: Path) -> list[PlacedPart]:
    """Return the part for a document: its text, or its fields as JSON."""
    data = require_field(require_field(part, "document", path), "data", (*path, "document"))
    return [((*path, *_DOCUMENT), Part("text", arguments_as_text(data)))]


class CohereAdapter(MessageFormat):
    """Reads Cohere's messages as artifacts, one for each message.

    An unchanged message remains the same object. In a changed message, only the changed texts differ; if the text of a
    document is no longer JSON, it becomes the field `text` of the document's data. Messages of unknown role are kept
    and pinned, and the report names the role. Unknown content parts are opaque: counted and searched, but never
    changed.
    """

    name = "cohere"
    api = "cohere"
    paths = ("/v2/chat",)
    json_settings = ("response_format",)
    taken = ("tools", "documents")
    billed = ("response_format",)
    content = ContentFormat({**PARTS.readers, "document": _document})
    texts = ("tool_plan",)

    def detects(self, native: object) -> bool:
        """Return whether `native` is a list in which a message has fields that only Cohere's messages have."""
        return is_list(native) and any(get(message, key) is not None for message in native for key in _ONLY_COHERE)

    def changes(self, message: Message, changes: Mapping[Path, object]) -> Iterable[tuple[Path, object]]:
        """Yield the changes of a message, with the data of a document as an object, as the API requires."""
        for path, new in changes.items():
            if path[-2:] == _DOCUMENT and isinstance(member_at(message, path), Mapping):
                value = parse_json(new)
                yield path, value if isinstance(value, dict) else {"text": new}
            else:
                yield path, new

    def sent(self, body: Body) -> Sent:
        """Return the billed parts of a request, including the documents outside the history."""
        documents = body.get("documents")
        listed = documents if isinstance(documents, list) else []
        beside = [part for one in listed for part in ([Part("text", one)] if isinstance(one, str) else opaque(one))]
        artifacts = self.counted(body)
        schema = get(body.get("response_format"), "json_schema") or get(body.get("response_format"), "schema")
        return Sent(
            (*([Artifact(Kind.SYSTEM, tuple(beside))] if beside else []), *artifacts),
            tuple(records_of(body.get("tools"))),
            choice_of(str(body.get("tool_choice") or "auto").lower()),
            schema if isinstance(schema, Mapping) and schema else None,
        )

    def deltas(self, event: Event) -> Iterator[Delta]:
        """Yield the pieces of text in an event of a streamed response."""
        name, path = _DELTAS.get(str(event.get("type")), ("", ()))
        text = member_at(event, path) if name else None
        if isinstance(text, str) and text:
            channel, is_json = (name, event.get("index")), name == "call"
            yield Delta(channel, path, text, is_json, partial(_alone, event, path), (channel,) if is_json else ())

    def called(self, event: Event) -> Iterator[tuple[Hashable, object]]:
        """Yield a key and the record of each tool call that an event begins or continues."""
        if event.get("type") == "tool-call-start":
            yield ("call", event.get("index")), member_at(event, ("delta", "message", "tool_calls", "function"))

    def ends(self, event: Event) -> Ends | None:
        """Return a predicate that is true for the channels (see `Channel`) that an event ends; None if it ends none."""
        kind = str(event.get("type"))
        if kind == "message-end":
            return lambda _: True
        if kind == "tool-call-start":  # a tool call starts when the plan is complete
            return lambda channel: channel[0] == "plan"
        ended = (_ENDS.get(kind), event.get("index"))
        return (lambda channel: channel == ended) if kind in _ENDS else None


def _alone(event: Event, path: Path, text: str) -> Event:
    """Return a copy of an event with another text. An event that starts a text becomes an event that continues it."""
    return {**copy_with(event, {path: text}), "type": str(event.get("type")).replace("-start", "-delta")}
