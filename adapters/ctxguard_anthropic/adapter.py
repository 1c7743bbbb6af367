"""Anthropic's Messages as artifacts and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from ctxguard.adapters import ReadCache
from ctxguard.artifacts import Artifact, Kind, Part
from ctxguard.errors import HistoryError
from ctxguard_anthropic.blocks import (
    LEFT_OUT,
    Slot,
    as_blocks,
    block_call,
    content_slots,
    edited_block,
    edited_content,
    fields_of,
    get,
    kind_of,
    tool_input,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["AnthropicAdapter", "Message", "Native"]

Message: TypeAlias = Mapping[str, object]
"""A message: a dict, or an object of the SDK with the same fields."""
Native: TypeAlias = "Mapping[str, object] | Sequence[Message]"
"""A request with `system` and `messages`, whatever else it holds, or a list of messages."""

_KINDS: Final = {"user": Kind.USER, "assistant": Kind.ASSISTANT, "system": Kind.SYSTEM}
_OWN_BLOCKS: Final = ("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use")


@dataclass(frozen=True, slots=True)
class _Place:
    """Say which message an artifact was read from, which blocks of it are its own, and whether they are all of it."""

    message: Message
    blocks: tuple[int, ...]
    is_whole: bool = False
    is_prompt: bool = False


class AnthropicAdapter:
    """Look at Messages as artifacts: each `tool_result` block is one, the rest of a message another.

    What does not survive: the `citations` of an edited text; thinking that a stage changed, with the rest of the
    thinking of its message; a text block of which nothing is left. `tool_result` blocks move before the text of their
    message, and together into the message right behind their call, as the API demands. Blocks of unknown type and
    those of server tools are opaque; messages of unknown role are kept and pinned.
    """

    name = "anthropic"

    def read(self, native: Native) -> list[Artifact]:
        """Return the artifacts of a request, its system prompt first, or of a list of messages.

        Raises:
            HistoryError: it is neither, or a message has no role.
        """
        read = cast("list[tuple[Artifact, ...]]", _CACHE.read(_messages(native)))
        return [*_system_artifacts(native), *chain.from_iterable(read)]

    def write(self, native: Native, artifacts: Iterable[Artifact]) -> Native:
        """Return the request or the list of these artifacts: the same messages where nothing was changed."""
        system: object = None
        positions = {id(message): position for position, message in enumerate(_messages(native))}
        groups: list[list[Artifact]] = []
        for artifact in artifacts:
            place = artifact.source
            if isinstance(place, _Place) and place.is_prompt:
                system = _edited(place.message, artifact)["content"]
            elif groups and _belongs(artifact, groups[-1], positions):
                groups[-1].append(artifact)
            else:
                groups.append([artifact])
        messages = [_message(group) for group in groups]
        if not isinstance(native, Mapping):
            return messages
        return {**native, **({} if system is None else {"system": system}), "messages": messages}

    def detects(self, native: object) -> bool:
        """Tell whether a request or list has what only Anthropic's Messages have."""
        messages = native.get("messages") if isinstance(native, Mapping) else native
        if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
            return False
        if isinstance(native, Mapping) and "system" in native:
            return True
        blocks = [block for message in messages for block in as_blocks(get(message, "content"))]
        return all(get(m, "role") in _KINDS for m in messages) and any(kind_of(b) in _OWN_BLOCKS for b in blocks)


def _messages(native: Native) -> Sequence[Message]:
    messages = native.get("messages") if isinstance(native, Mapping) else native
    if isinstance(messages, (str, bytes)) or not isinstance(messages, Sequence):
        raise HistoryError(f"a request with 'messages' or a list of them is wanted, not {type(native).__name__}")
    return messages


def _system_artifacts(native: Native) -> list[Artifact]:
    content = native.get("system") if isinstance(native, Mapping) else None
    if not content:
        return []
    place = _Place({"role": "system", "content": content}, (), is_prompt=True)
    return [Artifact(Kind.SYSTEM, _content(content_slots(content)), source=place)]


def _read(message: Message, position: int) -> tuple[Artifact, ...]:
    role = get(message, "role")
    if not isinstance(role, str):
        raise HistoryError("it has no 'role'; every message needs one", position=position)
    blocks = as_blocks(get(message, "content"))
    results = [n for n, block in enumerate(blocks) if role == "user" and kind_of(block) == "tool_result"]
    rest = tuple(n for n in range(len(blocks)) if n not in results)
    artifacts = [_result_artifact(blocks[number], _Place(message, (number,), len(blocks) == 1)) for number in results]
    if rest or not results:
        artifacts.append(_artifact(role, [blocks[n] for n in rest], _Place(message, rest, not results)))
    return tuple(artifacts)


# One message holds several artifacts; the cache minds what is read no more than it has to.
_CACHE: Final = ReadCache(cast("Callable[[Message, int], Artifact]", _read))


def _result_artifact(block: object, place: _Place) -> Artifact:
    answered = get(block, "tool_use_id")
    content = _content(content_slots([block]))
    return Artifact(Kind.TOOL, content, answers=answered if isinstance(answered, str) else None, source=place)


def _artifact(role: str, blocks: list[object], place: _Place) -> Artifact:
    return Artifact(
        _KINDS.get(role, Kind.ASSISTANT),
        _content(content_slots(blocks)),
        calls=tuple(block_call(block) for block in blocks if kind_of(block) == "tool_use"),
        pinned=role not in _KINDS or any(kind_of(block) == "compaction" for block in blocks),
        source=place,
    )


def _content(slots: list[Slot]) -> str | tuple[Part, ...]:
    parts = [part for _, part in slots]
    if not parts:
        return ""
    only = parts[0].text if len(parts) == 1 and parts[0].kind == "text" else None
    return tuple(parts) if only is None else only


def _belongs(artifact: Artifact, group: list[Artifact], positions: Mapping[int, int]) -> bool:
    """Tell whether an artifact goes into the message of those before it."""
    last, place = group[-1], artifact.source
    if not isinstance(place, _Place):
        return artifact.kind is Kind.TOOL and last.kind is Kind.TOOL
    before = last.source
    if isinstance(before, _Place) and before.message is place.message:
        return True
    if artifact.kind is not Kind.TOOL or last.kind is not Kind.TOOL:
        return False
    follows = isinstance(before, _Place) and positions[id(place.message)] == positions[id(before.message)] + 1
    return not follows


def _message(group: list[Artifact]) -> Message:
    """Return the message of these artifacts: the very one they were read from, where they are all of it unchanged."""
    place = group[0].source
    if len(group) == 1 and group[0].origin is None and isinstance(place, _Place) and place.is_whole:
        return place.message
    places = [artifact.source for artifact in group if isinstance(artifact.source, _Place)]
    if not places:
        return _created(group)
    message = places[0].message
    blocks = as_blocks(get(message, "content"))
    numbers = [n for place in places for n in place.blocks if place.message is message]
    if len(places) == len(group) == 1 and isinstance(get(message, "content"), str):
        return _edited(message, group[0]) if group[0].origin is not None else message
    written = [block for artifact in group for block in _written(artifact)]
    if numbers == list(range(len(blocks))) and len(written) == len(blocks) and all(map(_is, written, blocks)):
        return message
    return {**_fields(message), "content": written or LEFT_OUT}


def _is(left: object, right: object) -> bool:
    return left is right


def _fields(message: Message) -> dict[str, object]:
    return dict(message) if isinstance(message, Mapping) else {"role": get(message, "role")}


def _edited(message: Message, artifact: Artifact) -> Message:
    """Return a message whose content is a text, or the system prompt, with its new content."""
    content = get(message, "content")
    edited = edited_content(content, _new_parts(artifact, len(content_slots(content))))
    return message if edited is content else {**_fields(message), "content": edited or LEFT_OUT}


def _written(artifact: Artifact) -> list[object]:
    """Return the blocks of an artifact: the same objects where nothing was changed."""
    place = artifact.source
    if not isinstance(place, _Place):
        return as_blocks(_created([artifact])["content"])
    blocks = [as_blocks(get(place.message, "content"))[number] for number in place.blocks]
    if artifact.origin is None:
        return blocks
    if artifact.calls != artifact.root.calls:
        calls = iter(artifact.calls)
        blocks = [edited_block(b, next(calls)) if kind_of(b) == "tool_use" else b for b in blocks]
    if artifact.answers != artifact.root.answers:
        blocks = [{**fields_of(block), "tool_use_id": artifact.answers} for block in blocks]
    return as_blocks(edited_content(blocks, _new_parts(artifact, len(content_slots(blocks)))))


def _new_parts(artifact: Artifact, expected: int) -> list[Part]:
    """Return the pieces of a changed content; one text that took the place of several is put first."""
    content = artifact.content
    parts = [Part("text", content)] if isinstance(content, str) else list(content)
    return [*parts, *[Part("text", "")] * expected][:expected]


def _created(group: list[Artifact]) -> dict[str, object]:
    """Return the message of artifacts that no message stood for: stand-in results, a summary."""
    first = group[0]
    if first.kind is Kind.TOOL:
        results = [{"type": "tool_result", "tool_use_id": a.answers, "content": a.text} for a in group]
        return {"role": "user", "content": results}
    if first.kind is not Kind.ASSISTANT:
        return {"role": "user", "content": first.text or LEFT_OUT}
    calls = [{"type": "tool_use", "id": c.id, "name": c.name, "input": tool_input(c.arguments)} for c in first.calls]
    spoken = [{"type": "text", "text": first.text}] if first.text and calls else []
    return {"role": "assistant", "content": spoken + calls or first.text or LEFT_OUT}
