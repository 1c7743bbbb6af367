"""Anthropic's Messages as artifacts and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from ctxguard.adapters import ReadCache
from ctxguard.artifacts import Artifact, Kind
from ctxguard.errors import HistoryError
from ctxguard.formats import ANTHROPIC, refuse_foreign
from ctxguard.lens import GONE, Path, View, are_same, by_member, edited, get, is_list, members, text_of, wanted_field
from ctxguard_anthropic.blocks import (
    THINKING,
    as_blocks,
    block_slots,
    call_place,
    content_slots,
    kind_of,
    tool_input,
    without_emptied,
)

if TYPE_CHECKING:
    from ctxguard.draft import Draft

__all__ = ["AnthropicAdapter", "Message", "Native"]

Message: TypeAlias = Mapping[str, object]
"""A message: a dict, or an object of the SDK with the same fields."""
Native: TypeAlias = "Mapping[str, object] | Sequence[Message]"
"""A request with `system` and `messages`, whatever else it holds, or a list of messages."""

_KINDS: Final = {"user": Kind.USER, "assistant": Kind.ASSISTANT, "system": Kind.SYSTEM}
_LEFT_OUT: Final = "…"
"""Stands where nothing is left of a message: the API refuses empty ones."""
_OWN_BLOCKS: Final = ("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use")


@dataclass(frozen=True, slots=True)
class _Place:
    """Say which message an artifact was read from, which blocks of it are its own, and whether they are all of it.

    One `reading` stands for one occurrence of the message: what stands in a history twice is read twice. The system
    prompt is a message of its own, with its content under `system`.
    """

    message: Message
    reading: object
    blocks: tuple[int, ...]
    is_whole: bool = False
    key: str = "content"

    @property
    def all_blocks(self) -> list[object]:
        """The blocks of the message."""
        return as_blocks(get(self.message, self.key))


class AnthropicAdapter:
    """Look at Messages as artifacts: each `tool_result` block is one, the rest of a message another.

    What does not survive: the `citations` of an edited text; thinking that a stage changed, with the rest of the
    thinking of its message; a text, document or search result of which nothing is left. `tool_result` blocks move
    before the text of their message, and together into the message right behind their call, as the API demands.
    Blocks of unknown type and those of server tools are opaque; messages of unknown role are kept and pinned, and the
    report names the role.
    """

    name = "anthropic"

    @staticmethod
    def last_stage(draft: Draft) -> Draft:
        """Let "…" stand where nothing is left of a message, as `write` puts it: the API refuses empty ones."""
        artifacts = [_stand_in(a) if _is_emptied(a) else a for a in draft.artifacts]
        return draft.revise(artifacts, action="bounded", reason="nothing is left of it, and the API refuses that")

    def read(self, native: Native) -> list[Artifact]:
        """Return the artifacts of a request, its system prompt first, or of a list of messages.

        Raises:
            HistoryError: it is neither, a message has no role, a content is nothing that can be read, or it is of
                another format.
        """
        return [*_system_artifacts(native), *chain.from_iterable(_CACHE.read(_messages(native)))]

    def write(self, native: Native, artifacts: Iterable[Artifact]) -> Native:
        """Return the request or the list of these artifacts: the same messages where nothing was changed."""
        system: object = None
        ids = list(map(id, _messages(native)))
        neighbours = set(pairwise(ids))
        groups: list[list[Artifact]] = []
        for artifact in artifacts:
            place = artifact.source
            if isinstance(place, _Place) and place.key == "system":
                system = _message([artifact])["system"]
            elif groups and _belongs(artifact, groups[-1], neighbours):
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
        if not is_list(messages):
            return False
        if isinstance(native, Mapping) and "system" in native:
            return True
        blocks = [block for message in messages for block in as_blocks(get(message, "content"))]
        return all(get(m, "role") in _KINDS for m in messages) and any(kind_of(b) in _OWN_BLOCKS for b in blocks)


def _messages(native: Native) -> Sequence[Message]:
    messages = native.get("messages") if isinstance(native, Mapping) else native
    if isinstance(native, Mapping) and "messages" not in native:
        raise HistoryError("the request has no 'messages'; write {'messages': […]}")
    if not is_list(messages):
        raise HistoryError(f"a request with 'messages' or a list of them is wanted, not {type(native).__name__}")
    return cast("Sequence[Message]", messages)


def _system_artifacts(native: Native) -> list[Artifact]:
    content = native.get("system") if isinstance(native, Mapping) else None
    content_slots(content, ("system",))  # an error of the cache would name a message
    return _PROMPTS.read([content]) if content else []


def _prompt(content: object) -> Artifact:
    blocks = list(members(content, ("system",), of="block"))
    message = {"role": "system", "system": content}
    place = _Place(message, content, tuple(range(len(blocks))), is_whole=True, key="system")
    return _view(place, blocks).artifact(place)


def _read(message: Message) -> tuple[Artifact, ...]:
    refuse_foreign(message, ANTHROPIC)
    role = get(message, "role")
    if not isinstance(role, str):
        raise HistoryError("it has no 'role'; every message needs one")
    blocks = list(members(wanted_field(message, "content"), ("content",), of="block"))
    answering = [role == "user" and kind_of(block) == "tool_result" for _, block in blocks]
    rest = tuple(number for number, is_result in enumerate(answering) if not is_result)
    reading = object()
    places = [_Place(message, reading, (n,), len(blocks) == 1) for n, is_result in enumerate(answering) if is_result]
    if rest or not blocks:
        places.append(_Place(message, reading, rest, len(rest) == len(blocks)))
    return tuple(_view(place, blocks).artifact(place) for place in places)


_PROMPTS: Final = ReadCache(_prompt)
_CACHE: Final = ReadCache(_read, spelled=frozenset({"input"}))


def _view(place: _Place, blocks: Sequence[tuple[Path, object]]) -> View:
    role = str(get(place.message, "role"))
    own = [blocks[number] for number in place.blocks]
    slots = [slot for path, block in own for slot in block_slots(block, path)]
    if role == "user" and own and kind_of(own[0][1]) == "tool_result":
        path, block = own[0]
        return View(Kind.TOOL, slots, answers=text_of(block, "tool_use_id"), answers_at=(*path, "tool_use_id"))
    return View(
        _KINDS.get(role, Kind.ASSISTANT),
        slots,
        [call_place(block, path) for path, block in own if kind_of(block) == "tool_use"],
        role=None if role in _KINDS else role,
        pinned=any(kind_of(block) == "compaction" for _, block in own),
    )


def _is_emptied(artifact: Artifact) -> bool:
    """Tell an artifact that is all of a message and of which a stage left nothing."""
    place = artifact.source
    if artifact.kind is Kind.TOOL or artifact.calls or (artifact.origin is None and place is not None):
        return False
    content = artifact.content
    nothing = not content if isinstance(content, str) else all(part.text == "" for part in content)
    return nothing and (not isinstance(place, _Place) or place.is_whole)


def _stand_in(artifact: Artifact) -> Artifact:
    return artifact.revised(content=_LEFT_OUT)


def _belongs(artifact: Artifact, group: list[Artifact], neighbours: AbstractSet[tuple[int, int]]) -> bool:
    """Tell whether an artifact goes into the message of those before it."""
    last, place = group[-1], artifact.source
    if not isinstance(place, _Place):
        return artifact.kind is Kind.TOOL and last.kind is Kind.TOOL
    before = last.source
    if isinstance(before, _Place) and before.reading is place.reading:
        return True
    if artifact.kind is not Kind.TOOL or last.kind is not Kind.TOOL:
        return False
    return not isinstance(before, _Place) or (id(before.message), id(place.message)) not in neighbours


def _message(group: list[Artifact]) -> Message:
    """Return the message of these artifacts: the very one they were read from, where they are all of it unchanged."""
    place = next((artifact.source for artifact in group if isinstance(artifact.source, _Place)), None)
    if place is None:
        return _created(group)
    if len(group) == 1 and group[0].origin is None and place.is_whole:
        return place.message
    written = [block for artifact in group for block in _written(artifact)]
    if are_same(written, place.all_blocks):
        return place.message
    is_text = isinstance(get(place.message, place.key), str) and len(written) == 1
    return edited(_plain(place.message), {(place.key,): (written[0] if is_text else written) or _LEFT_OUT})


def _plain(message: Message) -> Message:
    return message if isinstance(message, Mapping) else {"role": get(message, "role")}


def _written(artifact: Artifact) -> list[object]:
    """Return the blocks of an artifact: the same objects where nothing was changed."""
    place = artifact.source
    if not isinstance(place, _Place):
        return as_blocks(_created([artifact])["content"])
    blocks = place.all_blocks
    own = [blocks[number] for number in place.blocks]
    if artifact.origin is None:
        return own
    placed = list(members(get(place.message, place.key), (place.key,), of="block"))
    changes = by_member(dict(_block_changes(place, _view(place, placed).changes(artifact))))
    return without_emptied([edited(blocks[number], changes.get(number, {})) for number in place.blocks], own)


def _block_changes(place: _Place, changes: Mapping[Path, object]) -> Iterator[tuple[Path, object]]:
    """Walk what is to be changed, by number of the block and place in it.

    Thinking goes with a change of any of it, as the API takes it back unmodified or not at all.
    """
    blocks = place.all_blocks
    thinking = {(number,) for number in place.blocks if kind_of(blocks[number]) in THINKING}
    for (_, *inner), new in changes.items():
        path = tuple(inner) or (0,)  # a content that is one text is a block of its own
        if path in thinking:
            yield from ((each, GONE) for each in thinking)
        else:
            yield from _text_changes(path, new)


def _text_changes(path: Path, text: object) -> Iterator[tuple[Path, object]]:
    """Walk what a new text changes: a block of which nothing is left goes, `citations` point into the old text."""
    if text == "" and path[-1] != "content":
        last = max(number for number, key in enumerate(path) if isinstance(key, int))
        yield path[: last + 1], GONE
        return
    yield path, text
    if path[-1] == "text":
        yield (*path[:-1], "citations"), GONE


def _created(group: list[Artifact]) -> dict[str, object]:
    """Return the message of artifacts that no message stood for: stand-in results, a summary."""
    first = group[0]
    if first.kind is Kind.TOOL:
        results = [{"type": "tool_result", "tool_use_id": a.answers, "content": a.text} for a in group]
        return {"role": "user", "content": results}
    if first.kind is not Kind.ASSISTANT:
        return {"role": "user", "content": first.text or _LEFT_OUT}
    calls = [{"type": "tool_use", "id": c.id, "name": c.name, "input": tool_input(c.arguments)} for c in first.calls]
    spoken = [{"type": "text", "text": first.text}] if first.text and calls else []
    return {"role": "assistant", "content": spoken + calls or first.text or _LEFT_OUT}
