"""Chat Completions messages as artifacts and back.

The field list is that of `openai.types.chat.ChatCompletionMessageParam`; keys beyond it are kept as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from ctxguard.adapters import ReadCache, astabilize_native, stabilize_native
from ctxguard.artifacts import Artifact, Kind, Part, PartKind, ToolCall
from ctxguard.errors import HistoryError
from ctxguard.lens import (
    Path,
    Slot,
    audio,
    changed_slots,
    content_of,
    edited,
    file,
    get,
    image,
    is_list,
    opaque,
    written_each,
)
from ctxguard.report import Report
from ctxguard.stabilizer import Stabilizer
from ctxguard_openai.calls import LEGACY_ID, Message, calls_of, is_record

__all__ = ["Message", "OpenAIAdapter", "astabilize_messages", "stabilize_messages"]

_KINDS: Final = {
    "system": Kind.SYSTEM,
    "developer": Kind.SYSTEM,
    "user": Kind.USER,
    "assistant": Kind.ASSISTANT,
    "tool": Kind.TOOL,
    "function": Kind.TOOL,
}
_SPOKEN: Final[Mapping[str, PartKind]] = {"reasoning_content": "reasoning", "refusal": "refusal"}
"""Texts beside the content that are sent along: reasoning of DeepSeek and others, refusals."""
_TEXTS: Final = ("text", "refusal", "input_text", "output_text", None)
"""Types of parts that hold a text: those of Chat Completions, what is mistaken for them, and none at all."""
_FOREIGN: Final = ("tool_use", "tool_result", "thinking")


class OpenAIAdapter:
    """Look at Chat Completions messages as artifacts: one message, one artifact.

    What does not survive: nothing of a message that is kept. Of a changed one, only the changed texts differ; a result
    or call without an id may get one. A message that a stage adds is a plain dict. Messages of unknown role are
    kept and pinned, and the report names the role; unknown content parts are opaque.
    """

    name = "openai"

    def read(self, native: Sequence[Message]) -> list[Artifact]:
        """Return the artifacts of a list of messages.

        Raises:
            HistoryError: it is no list, a message has no role, or its content or calls are nothing that can be read.
        """
        if not is_list(native):
            raise HistoryError(f"a list of messages is wanted, not {type(native).__name__}")
        return _CACHE.read(native)

    def write(self, native: Sequence[Message], artifacts: Iterable[Artifact]) -> list[Message]:
        """Return the messages of these artifacts: the same objects where nothing was changed."""
        del native  # every artifact carries its message
        return written_each(artifacts, _written)

    def detects(self, native: object) -> bool:
        """Tell whether a list holds messages with the roles of Chat Completions."""
        return is_list(native) and all(get(m, "role") in _KINDS and not _is_foreign(m) for m in native)


def _is_foreign(message: object) -> bool:
    """Tell a message whose content blocks are Anthropic's."""
    content = get(message, "content")
    return isinstance(content, list) and any(get(part, "type") in _FOREIGN for part in content)


def _artifact(message: Message, position: int) -> Artifact:
    role = get(message, "role")
    if not isinstance(role, str):
        raise HistoryError(_fault(message), position=position)
    name = get(message, "name")
    return Artifact(
        _KINDS.get(role, Kind.ASSISTANT),
        content_of([part for _, part in _slots(message, position)]),
        calls=tuple(call for call, _, _ in calls_of(message, position)),
        role=None if role in _KINDS else role,
        answers=_answers(message, role),
        name=name if isinstance(name, str) else None,
        pinned=role not in _KINDS,
        source=message,
    )


_CACHE: Final = ReadCache(_artifact, spelled=frozenset({"arguments", "input"}))


def _fault(message: object) -> str:
    if isinstance(message, Mapping):
        return "it has no 'role'; every message needs one"
    return f"a dict with 'role' and 'content' is wanted, not {type(message).__name__}"


def _answers(message: Message, role: str) -> str | None:
    answered = LEGACY_ID if role == "function" else get(message, "tool_call_id") if role == "tool" else None
    return answered if isinstance(answered, str) else None


def _slots(message: Message, position: int = 0) -> list[Slot]:
    """Return the pieces of a message's content, and of what is said beside it, in order."""
    content = get(message, "content")
    if isinstance(content, str):
        slots: list[Slot] = [(("content",), Part("text", content))]
    elif isinstance(content, (list, tuple)):
        slots = [_part_slot(part, number, position) for number, part in enumerate(content)]
    elif content is None:
        slots = []
    else:
        kind = type(content).__name__
        raise HistoryError(f"content is a text, a list of parts or None, not {kind}", position=position)
    for key, part_kind in _SPOKEN.items():
        if isinstance(said := get(message, key), str):
            slots.append(((key,), Part(part_kind, said)))
    return slots


def _part_slot(part: object, number: int, position: int) -> Slot:
    if isinstance(part, str):
        return ("content", number), Part("text", part)
    if not is_record(part):
        fault = f"content[{number}] is a text or a dict with 'type', not {type(part).__name__}"
        raise HistoryError(fault, position=position)
    kind = get(part, "type")
    if kind not in _TEXTS:
        return (), _PARTS.get(str(kind), opaque)(part)
    key = "refusal" if kind == "refusal" else "text"
    text = get(part, key)
    if isinstance(text, str):
        return ("content", number, key), Part("refusal" if kind == "refusal" else "text", text)
    if text is None:
        return (), opaque(part)
    raise HistoryError(f"content[{number}].{key} is a text, not {type(text).__name__}", position=position)


def _image(part: object) -> Part:
    inner = get(part, "image_url")
    return image(inner if isinstance(inner, str) else get(inner, "url"), detail=get(inner, "detail"))


_PARTS: Final[Mapping[str, Callable[[object], Part]]] = {
    "image_url": _image,
    "input_audio": lambda part: audio(get(get(part, "input_audio"), "data")),
    "file": lambda part: file(get(get(part, "file"), "file_data")),
}


def _written(artifact: Artifact) -> Message:
    if artifact.source is None:
        return _created(artifact)
    message: Message = artifact.source  # type: ignore[assignment]  # this adapter put it there
    origin = artifact.root
    changes: dict[Path, object] = {}
    if artifact.content != origin.content:
        slots = _slots(message) or [(("content",), Part("text", ""))]
        changes.update((path, now.text) for path, _, now in changed_slots(artifact, slots) if path)
    if artifact.calls != origin.calls:
        changes.update(_call_changes(message, artifact.calls))
    if artifact.name != origin.name:
        changes["name",] = artifact.name
    if artifact.answers != origin.answers:
        changes["tool_call_id",] = artifact.answers
    return edited(message, changes)


def _call_changes(message: Message, calls: Sequence[ToolCall]) -> Iterator[tuple[Path, object]]:
    for (was, arguments, identity), now in zip(calls_of(message), calls, strict=True):
        if was.arguments != now.arguments:
            yield arguments, now.arguments
        if was.id != now.id:
            yield identity, now.id


def _created(artifact: Artifact) -> Message:
    """Return the message of an artifact that no message stood for: a stand-in result, a summary."""
    role = "user" if artifact.kind is Kind.TASK else artifact.kind.value
    message: dict[str, object] = {"role": role, "content": artifact.text}
    if artifact.kind is Kind.TOOL and artifact.answers == LEGACY_ID:
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
