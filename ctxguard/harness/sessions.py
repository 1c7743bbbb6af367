"""Recorded sessions: parse one record of a recording, in the message format of any installed adapter."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ctxguard.adapting.fields import get, is_list
from ctxguard.adapting.registry import Adapter, detect_adapter, find_adapter
from ctxguard.adapting.request import Request
from ctxguard.artifacts import Artifact, Kind
from ctxguard.errors import ConfigError, HistoryError
from ctxguard.tokens import ArtifactCounter

MAX_BYTES: Final = 1 << 30
"""Maximum size of a decompressed session file in bytes; a larger file is rejected."""
HISTORIES: Final = ("messages", "artifacts", "input", "contents")
"""Keys under which a record may contain a history."""
_REQUESTS: Final = ("system", "systemInstruction", "system_instruction", "config", "toolConfig")
"""Keys that only a whole request has, and not a mere history.

An adapter that recognizes a record with such a key also reads the system prompt in the record.
"""
AS_TEXT: Final = "save it as a text file in UTF-8"
AS_DATA: Final = (
    "write them as OpenAI's or Anthropic's API takes them (LangChain: convert_to_openai_messages), "
    "or hand the objects to ctxguard.guard"
)


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """One recorded session.

    Attributes:
        id: Name of the session in its file, or its position there if the record has no name.
        native: History as recorded, in the format that `adapter` reads.
        adapter: Adapter that reads and writes `native`.
        tools: Tool schemas that were sent with the history, or None.
        instructions: `instructions` of a Responses request, or None.
        wrap: Record that contains the history; None if the record itself is the history.
        key: Key under which `wrap` contains the history.
    """

    id: str
    native: object
    adapter: Adapter[object]
    tools: Sequence[Mapping[str, object]] | None = None
    instructions: str | None = None
    wrap: Mapping[str, object] | None = None
    key: str = "messages"

    def read(self) -> list[Artifact]:
        """Return the artifacts of the history."""
        return self.adapter.read(self.native)

    def overhead(self, count: ArtifactCounter) -> int:
        """Return the number of tokens that a request takes besides messages and tools: instructions and framing."""
        return count.beside(self.instructions)

    @property
    def unread(self) -> dict[str, object]:
        """The fields of the record that are no part of the history: what no adapter reads."""
        if self.wrap is not None:
            return {key: value for key, value in self.wrap.items() if key != self.key}
        if not isinstance(self.native, Mapping):
            return {}
        return {key: value for key, value in self.native.items() if key not in (*HISTORIES, *_REQUESTS)}

    def with_native(self, native: object) -> object:
        """Return the record with `native` as its history."""
        if self.wrap is None:
            return native
        if isinstance(self.wrap.get(self.key), str) and is_list(native) and len(native) == 1:
            native = get(native[0], "content")
        return {**self.wrap, self.key: native}

    def with_request(self, done: Request[object]) -> object:
        """Return the record with the messages, instructions, and tools of a stabilized request.

        Instructions and tools that the stabilizer did not change are written as they were recorded.
        """
        written = self.with_native(done.messages)
        if not isinstance(written, dict):
            return written
        changed = {"instructions": done.instructions, "tools": list(done.tools)}
        was = {"instructions": self.instructions, "tools": list(self.tools or ())}
        new: dict[str, object] = {key: value for key, value in changed.items() if value != was[key]}
        config = written.get("toolConfig")
        if isinstance(config, Mapping) and "tools" in config and "tools" in new:
            new["toolConfig"] = {**config, "tools": new.pop("tools")}
        return {**written, **new}


class BundleAdapter:
    """Reads bundles, the format of long-session tests: `{"id", "kind", "authority", "priority", "title", "content"}`.

    An item of kind `message` was written by the model or by the user, depending on its `authority`. Items of kind
    `tool_output`, and of any other kind, keep their kind. All other fields are preserved.
    """

    name = "bundle"

    def read(self, native: object) -> list[Artifact]:
        """Return the artifacts of a bundle."""
        if not isinstance(native, list):
            raise HistoryError(f"expected a list of artifacts, got {type(native).__name__}")
        return [_read_item(item, position) for position, item in enumerate(native)]

    def write(self, native: object, artifacts: Sequence[Artifact]) -> list[object]:
        """Return one item for each artifact; an unchanged artifact yields the item that it was read from."""
        del native
        return [_write_item(artifact) for artifact in artifacts]

    def detects(self, native: object) -> bool:
        """Return whether `native` is a list of items with a `kind` but without `role` or `parts`.

        PydanticAI messages also have a `kind`, but always `parts`.
        """
        return isinstance(native, list) and all(
            isinstance(item, Mapping) and "kind" in item and not {"role", "parts"} & item.keys() for item in native
        )


def _read_item(item: object, position: int) -> Artifact:
    if not isinstance(item, Mapping):
        raise HistoryError(
            f"expected an object with 'kind' and 'content', got {type(item).__name__}", position=position
        )
    kind, authority, content = item.get("kind"), str(item.get("authority", "")), item.get("content")
    if not isinstance(content, str):
        raise HistoryError(f"'content' must be a text, not {type(content).__name__}", position=position)
    known = Kind.ASSISTANT if kind == "message" and authority.lower() in _SPOKEN_BY_MODEL else str(kind)
    identity = item.get("id")
    try:
        return Artifact(known, content, id=None if identity is None else str(identity), source=item)
    except ConfigError as error:
        raise HistoryError(str(error), position=position) from None


_SPOKEN_BY_MODEL: Final = ("assistant", "ai", "model")


def _write_item(artifact: Artifact) -> object:
    if artifact.source is None:
        return {"id": artifact.id, "kind": artifact.kind.value, "content": artifact.text}
    if artifact.origin is None:
        return artifact.source
    return {**artifact.source, "content": artifact.text}  # type: ignore[dict-item]  # `_read_item` accepts only mappings


def parse_json(text: str) -> object:
    """Parse JSON; raise ValueError if it contains NaN or an infinity, or is nested too deeply."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply to be a session") from None


def is_cut_off(error: json.JSONDecodeError) -> bool:
    """Return whether a JSON text is only incomplete: valid up to its end, in the middle of a value."""
    return error.pos >= len(error.doc.rstrip())


def json_fault(error: json.JSONDecodeError) -> str:
    """Return what is wrong with a JSON text, where in its line, and what to do if that is clear."""
    place = f"(column {error.colno})"
    if is_cut_off(error) or error.msg.startswith("Unterminated string"):
        return f"not valid JSON: it ends in the middle of a value {place}; export it again, or remove this record"
    if error.msg == "Extra data":
        return f"not valid JSON: another value follows {place}; write one value per line"
    return f"not valid JSON: {error.msg} {place}"


def _refuse_constant(constant: str) -> object:
    raise ValueError(f"{constant} is not valid JSON; write null or a number")


def parse_session(record: object, *, adapter: str | None = None, place: int = 0) -> RecordedSession:
    """Return the session in one parsed record.

    Args:
        record: List of messages, or an object with `messages`, `artifacts`, `input`, or `contents`. If `input` is a
            string, it is a user message.
        adapter: Name of the adapter; None detects it.
        place: Number of the record in its file, used as the session's name if the record has no `id`.

    Raises:
        ConfigError: If the record is neither a list nor an object that contains a history.
        AdapterError: If no adapter recognizes the messages.
    """
    if isinstance(record, Mapping):
        return _of_object(record, adapter, str(record.get("id", place)))
    if isinstance(record, list):
        return RecordedSession(str(place), record, _adapter(record, adapter))
    raise ConfigError(f"expected a list of messages, got {type(record).__name__}")


def _of_object(record: Mapping[str, object], adapter: str | None, named: str) -> RecordedSession:
    key, native = _history(record)
    tools = record.get("tools", get(record.get("toolConfig"), "tools"))
    sent = tools if isinstance(tools, list) and tools else None
    if any(name in record for name in _REQUESTS) and (reads := _of_requests(record, adapter)) is not None:
        return RecordedSession(named, record, reads, sent)
    beside = record.get("instructions")
    instructions = beside if key == "input" and isinstance(beside, str) else None
    return RecordedSession(named, native, _adapter(native, adapter), sent, instructions, record, key)


def _history(record: Mapping[str, object]) -> tuple[str, object]:
    """Return the key of the history in a record, and the history. An `input` that is a string is a user message."""
    for key in HISTORIES:
        if isinstance(record.get(key), list):
            return key, record[key]
    text = record.get("input")
    if isinstance(text, str):
        return "input", [{"role": "user", "content": text}]
    raise ConfigError(
        "expected an object with a list of 'messages', 'input', 'contents', or 'artifacts'; it has "
        + (", ".join(map(key_name, record)) or "no keys")
    )


def key_name(key: object) -> str:
    """Return how a message names a key of a record: `…` for what is no plain name, which may be a value."""
    return str(key) if re.fullmatch(r"[A-Za-z_][A-Za-z_-]{0,39}", str(key)) else "…"


def _of_requests(record: Mapping[str, object], adapter: str | None) -> Adapter[object] | None:
    """Return the adapter that reads the whole record as a request, with its system prompt; None if there is none."""
    if adapter is None:
        return detect_adapter(record)
    named = None if adapter == BundleAdapter.name else find_adapter(adapter)
    return named if named is not None and named.detects(record) else None


def _adapter(native: object, name: str | None) -> Adapter[object]:
    bundle: Adapter[object] = BundleAdapter()  # type: ignore[assignment]  # it accepts any object and says what is wrong
    if name == bundle.name:
        return bundle
    if name is not None:
        return find_adapter(name)
    if native != [] and bundle.detects(native):
        return bundle
    return detect_adapter(native) or _of_roles(native)


def _of_roles(native: object) -> Adapter[object]:
    """Return OpenAI's adapter for messages that no adapter recognizes. It reports errors in single messages."""
    listed = native if isinstance(native, list) else []
    if listed and all(isinstance(m, Mapping) and not {"role", "content"} & m.keys() for m in listed):
        has = ", ".join(map(key_name, listed[0])) or "no keys"
        raise ConfigError(f"messages have a 'role', and these have {has}; {AS_DATA}")
    return find_adapter("openai")
