"""Convert PydanticAI messages to artifacts and back.

Parts are distinguished by `part_kind`, and content items by `kind`, never by class, because class names changed between
1.71 and 2.68.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, Final

from pydantic_ai import Agent, messages
from pydantic_ai import BinaryContent as NativeContent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_core import PydanticSerializationError, to_jsonable_python

from ctxguard.adapting.content_format import audio, file, image, opaque
from ctxguard.adapting.fields import REMOVED, Path, by_index, copy_with, is_list, parse_json, require_list, unreadable
from ctxguard.adapting.json_walk import PlacedField, fixed_field, without_tokens
from ctxguard.adapting.message_view import (
    Fragment,
    MessageView,
    PlacedCall,
    PlacedPart,
    join_fragments,
    nested,
    split_message,
)
from ctxguard.adapting.read_cache import ReadCache
from ctxguard.artifacts import Artifact, Kind, Part, ToolCall
from ctxguard.content.images import BinaryContent
from ctxguard.errors import HistoryError
from ctxguard.tokens.media import encrypted_tokens, is_payload

if TYPE_CHECKING:
    from pydantic_ai.models import Model


class Attachment(NativeContent, BinaryContent):
    """A `BinaryContent` of both ctxguard and PydanticAI, for a prompt or as the result of a tool."""

    media_type: str = ""  # a field, unlike the property in the core, because PydanticAI sets it

    def __init__(self, data: bytes, mime_type: str, width: int | None = None, height: int | None = None) -> None:
        NativeContent.__init__(self, data=data, media_type=mime_type)
        for name, value in (("mime_type", mime_type), ("width", width), ("height", height)):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"Attachment({self.mime_type!r}, {self.width}x{self.height} pixels, {len(self.data)} bytes)"


# Parts are duck-typed on purpose: their classes differ between the supported versions.
NativePart = Any

_MEDIA: Final = ("image-url", "audio-url", "video-url", "document-url", "binary", "uploaded-file")
_UNSENT: Final = frozenset(
    {"timestamp", "timestamps", "metadata", "part_kind", "kind", "dynamic_ref", "context_id", "provider_name"}
)
"""Fields that the framework does not send."""
_APART: Final = _UNSENT | {"id", "signature", "provider_details"}
"""Fields that are not counted in an opaque part."""
_READ: Final = _UNSENT | {"content", "args", "transcript", "audio", "data", "tool_call_id", "outcome"}
"""Fields that are read as text, media, or a call, or that are not sent."""
_OWN_TOOLS: Final = ("tool-search", "capability-load")
_BINDING: Final = ("anthropic", "bedrock")
"""Providers whose signatures also cover everything before the thinking."""
_UNWRITABLE: Final = (PydanticSerializationError, UnicodeEncodeError, TypeError)
"""Exceptions of the framework for values that cannot be written as JSON."""
_IMAGE_HEAD: Final = 49_152
"""Number of bytes at the start of an image that are read to determine its size in pixels."""


def is_fixed(part: NativePart) -> bool:
    """Return whether a part belongs to a tool of the framework (tool search, capability loading)."""
    return getattr(part, "tool_kind", None) in _OWN_TOOLS


def read_part(part: NativePart) -> list[PlacedPart]:
    """Return the content of a native part as parts, in order, without the arguments of a call."""
    return _opaque(part) if is_fixed(part) else _READERS.get(part.part_kind, _opaque)(part)


def _opaque(part: NativePart) -> list[PlacedPart]:
    fields = {key: v for key, v in vars(part).items() if key not in _APART and v is not None}
    return [((), one) for one in opaque(fields)]


def part_fields(part: NativePart, number: int) -> Iterator[PlacedField]:
    """Yield what is sent of a part besides content and arguments: id, name of the tool, links to media, unknown fields.

    An opaque part is searched as a whole.
    """
    place: Path = ("parts", number)
    read = _UNSENT if read_part(part)[:1] and read_part(part)[0][1].kind == "opaque" else _READ
    if part.part_kind == "tool-call":
        read |= {"tool_name"}
    yield from _unread_fields(part, place, read)
    content = getattr(part, "content", None)
    for index, item in enumerate(content if isinstance(content, (list, tuple)) else [content]):
        if hasattr(item, "kind"):
            yield from _unread_fields(item, (*place, "content", index), _READ)


def _unread_fields(record: NativePart, place: Path, read: AbstractSet[str]) -> Iterator[PlacedField]:
    for key, value in vars(record).items():
        if key not in read and value and not is_payload(value):
            # these tokens are already counted with the part
            yield from without_tokens(fixed_field(key.removeprefix("_"), _plain(value), (*place, key)))


def _plain(value: object) -> object:
    """Return a value as a string, or as plain JSON values."""
    try:
        return value if isinstance(value, str) else to_jsonable_python(value, fallback=str, bytes_mode="base64")
    except ValueError:  # version 1.71 cannot write a link without a known file extension
        return str(value)


def _text(part: NativePart) -> list[PlacedPart]:
    content = part.content
    if isinstance(content, (list, tuple)):
        return [_item_part(item, ("content", number)) for number, item in enumerate(content)]
    return [(("content",), Part("text", content))] if content else []


def _thinking(part: NativePart) -> list[PlacedPart]:
    signed = bool(part.signature) and part.provider_name in _BINDING
    tokens = None if part.content else encrypted_tokens(part.signature) or None
    return [(("content",), Part("reasoning", part.content or None, tokens, signed=signed))]


def _item_part(item: NativePart, path: Path) -> PlacedPart:
    kind = getattr(item, "kind", None)
    if isinstance(item, str):
        return path, Part("text", item)
    if kind == "text-content":
        return (*path, "content"), Part("text", item.content)
    if kind == "structured-content":
        return path, Part("text", item.content or item.render())
    if kind == "cache-point":
        return (), Part("opaque", tokens=0)
    return (path, replace(_media(item), as_text=str)) if kind in _MEDIA else _opaque(item)[0]


def _media(item: NativePart) -> Part:
    media_type, data = _media_type(item), getattr(item, "data", None)
    if media_type.startswith("image/"):
        detail = (getattr(item, "vendor_metadata", None) or {}).get("detail")
        head = f"data:;base64,{_base64(data[:_IMAGE_HEAD])}" if isinstance(data, bytes) else getattr(item, "url", None)
        return image(head, detail=detail)
    count = audio if media_type.startswith("audio/") else file
    return count(_base64(data) if isinstance(data, bytes) else None)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _media_type(item: NativePart) -> str:
    """Return the media type of an item. For a link without a known file extension, the item's kind determines it."""
    try:
        return str(item.media_type)
    except ValueError:
        return f"{item.kind.partition('-')[0]}/*"


def _is_media(item: object) -> bool:
    return getattr(item, "kind", None) in _MEDIA


def _tool_return(part: NativePart) -> list[PlacedPart]:
    items = part.content if isinstance(part.content, (list, tuple)) else [part.content]
    if not any(map(_is_media, items)):
        text = rendered(part, part.content)
        return [(("content",), Part("text", text))] if text else []
    is_list = isinstance(part.content, (list, tuple))
    places: list[Path] = [("content", number) if is_list else ("content",) for number in range(len(items))]
    return [
        (place, replace(_media(item), as_text=str) if _is_media(item) else Part("text", rendered(part, item)))
        for place, item in zip(places, items, strict=True)
    ]


def rendered(part: NativePart, content: object) -> str:
    """Return a tool's result as the model reads it: a string unchanged, anything else as the framework's JSON."""
    if isinstance(content, str):
        return content
    succeeded = copy_with(part, {("content",): content, ("outcome",): "success"})
    try:
        return str(succeeded.model_response_str())
    except _UNWRITABLE:
        return _as_json(content)


def _as_json(value: object) -> str:
    """Return JSON for a value that the framework rejects.

    Unpaired surrogates become `?`, and objects that JSON does not know become strings.
    """
    text = json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), default=partial(to_jsonable_python, fallback=str)
    )
    return text.encode("utf-8", "replace").decode()


def _retry(part: NativePart) -> list[PlacedPart]:
    return [(("content",), Part("text", part.content if isinstance(part.content, str) else part.model_response()))]


def _compaction(part: NativePart) -> list[PlacedPart]:
    is_sealed = getattr(part, "provider_name", None) is not None
    return _opaque(part) if is_sealed or not part.content else _text(part)


_READERS: Final[Mapping[str, Callable[[NativePart], list[PlacedPart]]]] = {
    **dict.fromkeys(("system-prompt", "user-prompt", "text"), _text),
    "tool-return": _tool_return,
    **dict.fromkeys(("retry-prompt", "retry-feedback"), _retry),
    "speech": lambda part: [(("transcript",), Part("text", part.transcript))] if part.transcript else _opaque(part),
    "compaction": _compaction,
    "thinking": _thinking,
    "file": lambda part: [((), _media(part.content))],
    "tool-call": lambda _: [],
}


def place_call(part: NativePart, number: int) -> PlacedCall:
    """Return a call and the places of its fields. The arguments are the compact JSON that the framework sends.

    Changed arguments are written as a dict if the original arguments were a dict and the new ones are a JSON object.
    """
    is_sent = not is_fixed(part)
    arguments = _arguments(part) if is_sent else ""
    call = ToolCall(part.tool_name, arguments, part.tool_call_id, takes_object=is_sent)
    form = _as_dict if isinstance(part.args, dict) else str
    return PlacedCall(call, (number, "args"), (number, "tool_call_id"), form)


def _as_dict(arguments: str) -> object:
    value = parse_json(arguments)
    return value if isinstance(value, dict) else arguments


def _arguments(part: NativePart) -> str:
    try:
        return str(part.args_as_json_str())
    except _UNWRITABLE:
        return _as_json(part.args)


def edited_part(part: NativePart, changes: Mapping[Path, object]) -> NativePart:
    """Return a copy of a part with new values, or `REMOVED` for signed thinking, which cannot be changed.

    The copy loses everything that belongs to the old text: ids, citations, and the audio of speech.
    """
    if not changes:
        return part
    if part.part_kind == "thinking" and (part.signature or part.id):
        return REMOVED
    values = {path: _value(part, path, new) for path, new in changes.items()}
    return copy_with(part, {**values, **dict.fromkeys((("id",), ("citations",), ("audio",), ("timestamps",)), REMOVED)})


def _value(part: NativePart, path: Path, new: object) -> object:
    """Return the new value, converted to the type of the original value if possible.

    JSON becomes an object or a list if the original value was one. Structured content becomes text content.
    """
    if part.part_kind == "tool-return" and path == ("content",):
        value = None if isinstance(part.content, str) else parse_json(new)
        return value if isinstance(value, (dict, list)) and rendered(part, value) == new else new
    item: NativePart = part.content[path[1]] if len(path) == 2 else None
    if getattr(item, "kind", None) == "structured-content":
        # the framework would send the original value to a model that supports structured content
        return messages.TextContent(str(new), metadata=item.metadata)
    return new


_KINDS: Final = {
    "system-prompt": Kind.SYSTEM,
    **dict.fromkeys(("user-prompt", "speech", "retry-feedback"), Kind.USER),
    "tool-return": Kind.TOOL,
}
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


class PydanticAIAdapter:
    """Reads and writes PydanticAI messages. A response is one artifact; a request is one artifact for each part.

    Not preserved: the `id` and `citations` of an edited part, and the `history_digest` of its response, as the
    framework's documentation requires. If the text of signed thinking would change, all thinking in the response is
    removed. An edited response also loses thinking that has an id of OpenAI. An edited `StructuredContent` becomes a
    `TextContent`, and edited speech loses its audio. Instruction deltas and baselines, parts of the framework's own
    tools, and unknown parts are pinned. Instructions are not part of the history, see `ContextGuard`.
    """

    name = "pydantic-ai"
    attachment = Attachment

    @staticmethod
    def agent_of(model: Model | str) -> Agent[None, str]:
        """Return an agent that does nothing but call a model."""
        return Agent(model)

    def read(self, native: Sequence[ModelMessage]) -> list[Artifact]:
        """Return the artifacts of a list of messages.

        Raises:
            HistoryError: If `native` is not a list of `ModelRequest` and `ModelResponse` objects.
        """
        return list(chain.from_iterable(_CACHE.read(require_list(native, "messages"))))

    def write(self, native: Sequence[ModelMessage], artifacts: Iterable[Artifact]) -> list[ModelMessage]:
        """Return the messages for these artifacts. Unchanged messages are the same objects."""
        del native  # every artifact contains its message
        written: list[ModelMessage] = []
        for _, group in groupby(artifacts, _message_key):
            written.append(_message(list(group), written[-1] if written else None))
        return written

    def detects(self, native: object) -> bool:
        """Return whether a value is a list of PydanticAI messages."""
        return is_list(native) and all(isinstance(message, (ModelRequest, ModelResponse)) for message in native)


def _read(message: ModelMessage) -> tuple[Artifact, ...]:
    kind = getattr(message, "kind", None)
    if kind not in ("request", "response"):
        raise HistoryError(f"expected a ModelRequest or ModelResponse, got {type(message).__name__}")
    strange = next((n for n, part in enumerate(message.parts) if not hasattr(part, "part_kind")), None)
    if strange is not None:
        raise unreadable(("parts", strange), "a part of a message", message.parts[strange])
    every = range(len(message.parts))
    groups = [(number,) for number in every] if kind == "request" and message.parts else [tuple(every)]
    return tuple(_view(fragment).artifact(fragment) for fragment in split_message(message, groups))


_CACHE: Final = ReadCache(_read, exact=frozenset({"args", "content"}))


def _view(fragment: Fragment) -> MessageView:
    message: ModelMessage = fragment.message  # type: ignore[assignment]  # this adapter put it there
    parts = [placed for number in fragment.indexes for placed in nested(number, read_part(message.parts[number]))]
    fields = [placed for number in fragment.indexes for placed in part_fields(message.parts[number], number)]
    if isinstance(message, ModelRequest):
        return (
            _request_view(message, fragment.indexes[0], parts, fields) if fragment.indexes else MessageView(Kind.USER)
        )
    return MessageView(
        Kind.ASSISTANT,
        parts,
        [place_call(part, number) for number, part in enumerate(message.parts) if part.part_kind == "tool-call"],
        pinned=any(is_fixed(part) or part.part_kind == "compaction" for part in message.parts),
        reported=getattr(getattr(message, "usage", None), "input_tokens", 0) or None,
        fields=fields,
    )


def _request_view(
    message: ModelRequest, number: int, parts: list[PlacedPart], fields: list[PlacedField]
) -> MessageView:
    part: Any = message.parts[number]
    kind = _KINDS.get(part.part_kind)
    if part.part_kind == "retry-prompt":
        kind = Kind.TOOL if part.tool_name else Kind.USER
    return MessageView(
        kind or Kind.ASSISTANT,
        parts,
        tool_call_id=part.tool_call_id if kind is Kind.TOOL else None,
        tool_call_id_at=(number, "tool_call_id"),
        pinned=kind is None or is_fixed(part),
        fields=fields,
    )


def _message_key(artifact: Artifact) -> object:
    """Return the key by which adjacent artifacts are grouped into one message."""
    if isinstance(artifact.source, Fragment):
        return id(artifact.source.occurrence)
    return "response" if artifact.kind is Kind.ASSISTANT else "request"


def _message(artifacts: list[Artifact], before: ModelMessage | None) -> ModelMessage:
    fragment = artifacts[0].source
    if not isinstance(fragment, Fragment):
        return _create(artifacts, getattr(before, "timestamp", None) or _EPOCH)
    message: ModelMessage = fragment.message  # type: ignore[assignment]  # this adapter put it there
    parts: list[Any] | None = join_fragments(artifacts, message.parts, _write)
    if parts is None:
        return message
    if isinstance(message, ModelRequest):
        return copy_with(message, {("parts",): parts})
    return copy_with(
        message, {("parts",): list(map(_unstored, filter(_may_stay, parts))), ("history_digest",): REMOVED}
    )


def _write(artifact: Artifact) -> list[Any]:
    """Return the native parts for an artifact. Unchanged parts are the same objects.

    If signed thinking is removed, all thinking is removed, because providers accept it only complete and unchanged.
    """
    fragment: Any = artifact.source
    changes = {} if artifact.origin is None else by_index(_view(fragment).changes(artifact))
    parts = [edited_part(fragment.message.parts[number], changes.get(number, {})) for number in fragment.indexes]
    if any(part is REMOVED for part in parts):
        return [part for part in parts if part is not REMOVED and part.part_kind != "thinking"]
    return parts


def _may_stay(part: Any) -> bool:  # noqa: ANN401 - duck-typed
    """Return whether a part may stay in a changed response. Thinking with an id must match the provider's copy."""
    return part.part_kind != "thinking" or part.id is None or part.provider_name == "anthropic"


def _unstored(part: Any) -> Any:  # noqa: ANN401 - duck-typed
    """Return a part without the id by which a provider would use its stored copy instead."""
    is_stored = part.part_kind in ("text", "tool-call") and part.id is not None
    return copy_with(part, {("id",): REMOVED}) if is_stored else part


def _create(artifacts: list[Artifact], timestamp: datetime) -> ModelMessage:
    """Return a message for artifacts that a stage added, with the timestamp of the previous message."""
    if artifacts[0].kind is Kind.ASSISTANT:
        texts: list[Any] = [TextPart(a.text) for a in artifacts if a.text or not a.calls]
        calls = [ToolCallPart(c.name, c.arguments, c.id or "") for a in artifacts for c in a.calls]
        return ModelResponse(parts=texts + calls, timestamp=timestamp)
    return ModelRequest(parts=[_create_part(artifact, timestamp) for artifact in artifacts])


def _create_part(artifact: Artifact, timestamp: datetime) -> SystemPromptPart | ToolReturnPart | UserPromptPart:
    if artifact.kind is Kind.TOOL:
        return ToolReturnPart(artifact.name or "", artifact.text, artifact.answers or "", timestamp=timestamp)
    part = SystemPromptPart if artifact.kind is Kind.SYSTEM else UserPromptPart
    return part(artifact.text, timestamp=timestamp)
