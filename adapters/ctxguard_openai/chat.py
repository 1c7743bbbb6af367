"""Chat Completions messages as artifacts and back.

The field list is that of `openai.types.chat.ChatCompletionMessageParam`; keys beyond it are kept as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ctxguard.adapters import ReadCache, astabilize_native, stabilize_native
from ctxguard.artifacts import Artifact, Kind, Part, ToolCall
from ctxguard.errors import HistoryError
from ctxguard.media import audio_tokens, file_tokens, image_size, image_tokens
from ctxguard.report import Report
from ctxguard.stabilizer import Stabilizer
from ctxguard.tokens import EstimateCounter

__all__ = ["Message", "OpenAIAdapter", "astabilize_messages", "stabilize_messages"]

Message = Mapping[str, object]
"""A message: a dict, or an object of the SDK with the same fields."""

_KINDS: Final = {
    "system": Kind.SYSTEM,
    "developer": Kind.SYSTEM,
    "user": Kind.USER,
    "assistant": Kind.ASSISTANT,
    "tool": Kind.TOOL,
    "function": Kind.TOOL,
}
_LEGACY_ID: Final = "function_call"
"""Stands for the id that `function_call` and its result do not have: they pair by position."""
_SPOKEN_FIELDS: Final = ("reasoning_content", "refusal")
"""Text beside the content that is sent along: reasoning of DeepSeek and others, refusals."""


class OpenAIAdapter:
    """Look at Chat Completions messages as artifacts: one message, one artifact.

    What does not survive: nothing of a message that is kept. Of a changed one, only the changed texts differ; a result
    or call without an id may get one. A message that a stage adds is a plain dict. Unknown roles are kept and pinned;
    unknown content parts are opaque.
    """

    name = "openai"

    def read(self, native: Sequence[Message]) -> list[Artifact]:
        """Return the artifacts of a list of messages.

        Raises:
            HistoryError: it is no list, or a message has no role.
        """
        if isinstance(native, (str, bytes, Mapping)) or not isinstance(native, Sequence):
            raise HistoryError(f"a list of messages is wanted, not {type(native).__name__}")
        return _CACHE.read(native)

    def write(self, native: Sequence[Message], artifacts: Iterable[Artifact]) -> list[Message]:
        """Return the messages of these artifacts: the same objects where nothing was changed."""
        del native  # every artifact carries its message
        return [
            artifact.source if artifact.origin is None and artifact.source is not None else _written(artifact)  # type: ignore[misc]
            for artifact in artifacts
        ]

    def detects(self, native: object) -> bool:
        """Tell whether a list holds messages with the roles of Chat Completions."""
        return (
            isinstance(native, Sequence)
            and not isinstance(native, (str, bytes))
            and all(_get(m, "role") in _KINDS for m in native)
            and not any(_is_foreign(m) for m in native)
        )


def _is_foreign(message: object) -> bool:
    """Tell a message whose content blocks are Anthropic's."""
    content = _get(message, "content")
    return isinstance(content, list) and any(
        _get(p, "type") in ("tool_use", "tool_result", "thinking") for p in content
    )


def _get(message: object, key: str) -> object:
    if type(message) is dict or isinstance(message, Mapping):
        return message.get(key)
    return getattr(message, key, None)


def _artifact(message: Message, position: int) -> Artifact:
    role = _get(message, "role")
    if not isinstance(role, str):
        raise HistoryError(_fault(message), position=position)
    content = _get(message, "content")
    calls = _calls(message) if role == "assistant" else ()
    name = _get(message, "name")
    return Artifact(
        _KINDS.get(role, Kind.ASSISTANT),
        content if type(content) is str and not _spoken(message) else _parts(message, position),
        calls=calls,
        answers=_answers(message, role),
        name=name if isinstance(name, str) else None,
        pinned=role not in _KINDS,
        source=message,
    )


_CACHE: Final = ReadCache(_artifact)


def _fault(message: object) -> str:
    if isinstance(message, Mapping):
        return "it has no 'role'; every message needs one"
    return f"a dict with 'role' and 'content' is wanted, not {type(message).__name__}"


def _answers(message: Message, role: str) -> str | None:
    if role == "function":
        return _LEGACY_ID
    answered = _get(message, "tool_call_id") if role == "tool" else None
    return answered if isinstance(answered, str) else None


def _calls(message: Message) -> tuple[ToolCall, ...]:
    listed = _get(message, "tool_calls")
    calls = tuple(map(_call, listed)) if isinstance(listed, (list, tuple)) else ()
    legacy = _get(message, "function_call")
    if legacy:
        calls += (ToolCall(str(_get(legacy, "name") or ""), _text(_get(legacy, "arguments")), _LEGACY_ID),)
    return calls


def _call(call: object) -> ToolCall:
    key, field = _call_place(call)
    inner = _get(call, key)
    identity = _get(call, "id")
    return ToolCall(
        str(_get(inner, "name") or ""), _text(_get(inner, field)), identity if isinstance(identity, str) else None
    )


def _call_place(call: object) -> tuple[str, str]:
    return ("custom", "input") if _get(call, "custom") is not None else ("function", "arguments")


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _spoken(message: Message) -> list[str]:
    return [key for key in _SPOKEN_FIELDS if isinstance(_get(message, key), str)]


def _parts(message: Message, position: int) -> str | tuple[Part, ...]:
    content = _get(message, "content")
    spoken = _spoken(message)
    if content is None and not spoken:
        return ""
    if content is None:
        parts: list[Part] = []
    elif isinstance(content, str):
        parts = [Part("text", content)]
    elif isinstance(content, (list, tuple)):
        parts = [_part(part) for part in content]
    else:
        raise HistoryError(
            f"content is a text, a list of parts or None, not {type(content).__name__}", position=position
        )
    kinds = {"reasoning_content": "reasoning", "refusal": "refusal"}
    parts += [Part(kinds[key], _text(_get(message, key))) for key in spoken]  # type: ignore[arg-type]  # closed set
    return tuple(parts)


def _part(part: object) -> Part:
    if isinstance(part, str):
        return Part("text", part)
    kind = _get(part, "type")
    text = _get(part, kind) if kind in ("text", "refusal") else None
    if isinstance(text, str):
        return Part("text" if kind == "text" else "refusal", text)
    if kind == "image_url":
        return Part("image", tokens=_image_tokens(_get(part, "image_url")))
    if kind == "input_audio":
        return Part("audio", tokens=audio_tokens(_data(_get(_get(part, "input_audio"), "data"))))
    if kind == "file":
        return Part("file", tokens=file_tokens(_data(_get(_get(part, "file"), "file_data"))))
    return Part("opaque", tokens=EstimateCounter().count(json.dumps(part, default=str)[:20_000]))


def _data(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _image_tokens(image: object) -> int:
    url = image if isinstance(image, str) else _get(image, "url")
    detail = _get(image, "detail")
    return image_tokens(image_size(url) if isinstance(url, str) else None, detail=str(detail or "auto"))


def _written(artifact: Artifact) -> Message:
    if artifact.source is None:
        return _created(artifact)
    message: Message = artifact.source  # type: ignore[assignment]  # this adapter put it there
    origin = artifact.root
    changes: dict[str, object] = {}
    if artifact.content != origin.content:
        changes.update(_content_changes(message, artifact))
    if artifact.calls != origin.calls:
        changes.update(_call_changes(message, artifact.calls))
    if artifact.name != origin.name:
        changes["name"] = artifact.name
    if artifact.answers != origin.answers:
        changes["tool_call_id"] = artifact.answers
    return _copied(message, changes) if changes else message


def _copied(message: object, changes: Mapping[str, object]) -> Message:
    if isinstance(message, Mapping):
        return {**message, **changes}
    copied: Message = message.model_copy(update=dict(changes))  # type: ignore[attr-defined]  # an SDK object
    return copied


def _content_changes(message: Message, artifact: Artifact) -> dict[str, object]:
    if isinstance(artifact.content, str):
        return {"content": artifact.content}
    content, parts = _get(message, "content"), list(artifact.content)
    changes: dict[str, object] = {}
    for key in reversed(_spoken(message)):
        changes[key] = parts.pop().text
    if isinstance(content, str):
        changes["content"] = parts[0].text
    elif isinstance(content, (list, tuple)):
        changes["content"] = [_edited_part(was, now) for was, now in zip(content, parts, strict=True)]
    return changes


def _edited_part(was: object, now: Part) -> object:
    if now.text is None or _part(was).text == now.text:
        return was
    return now.text if isinstance(was, str) else _copied(was, {now.kind: now.text})


def _call_changes(message: Message, calls: tuple[ToolCall, ...]) -> dict[str, object]:
    listed = _get(message, "tool_calls")
    native: list[object] = list(listed) if isinstance(listed, (list, tuple)) else []
    changes: dict[str, object] = {}
    if native:
        changes["tool_calls"] = [_edited_call(was, now) for was, now in zip(native, calls, strict=False)]
    if len(calls) > len(native):
        changes["function_call"] = _copied(_get(message, "function_call"), {"arguments": calls[-1].arguments})
    return changes


def _edited_call(was: object, now: ToolCall) -> object:
    read = _call(was)
    key, field = _call_place(was)
    changes: dict[str, object] = {}
    if read.arguments != now.arguments:
        changes[key] = _copied(_get(was, key), {field: now.arguments})
    if read.id != now.id:
        changes["id"] = now.id
    return _copied(was, changes) if changes else was


def _created(artifact: Artifact) -> Message:
    """Return the message of an artifact that no message stood for: a stand-in result, a summary."""
    role = "user" if artifact.kind is Kind.TASK else artifact.kind.value
    message: dict[str, object] = {"role": role, "content": artifact.text}
    if artifact.kind is Kind.TOOL and artifact.answers == _LEGACY_ID:
        return {"role": "function", "name": artifact.name or "", "content": artifact.text}
    if artifact.kind is Kind.TOOL:
        message["tool_call_id"] = artifact.answers
    if artifact.calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in artifact.calls
        ]
    return message


def stabilize_messages(
    messages: Sequence[Message],
    stabilizer: Stabilizer,
    tools: Sequence[Mapping[str, object]] | None = None,
    *,
    window: int | None = None,
) -> tuple[list[Message], Report]:
    """Return the stabilized messages and the report. The list and its messages are not changed.

    Args:
        messages: the whole history up to now, as it would be sent.
        stabilizer: does the work.
        tools: the tool schemas that are sent along, to be counted.
        window: the model's context window in tokens, where the budget is a share of it.

    Raises:
        HistoryError: a message cannot be read.
        BudgetExceededError: what must stay does not fit.
    """
    adapter = OpenAIAdapter()
    stabilized, report = stabilize_native(stabilizer, adapter, messages, tools=tools, window=window)
    return list(stabilized), report


async def astabilize_messages(
    messages: Sequence[Message],
    stabilizer: Stabilizer,
    tools: Sequence[Mapping[str, object]] | None = None,
    *,
    window: int | None = None,
) -> tuple[list[Message], Report]:
    """Do what `stabilize_messages` does where summarizers or stores are async."""
    adapter = OpenAIAdapter()
    stabilized, report = await astabilize_native(stabilizer, adapter, messages, tools=tools, window=window)
    return list(stabilized), report
