"""Anthropic's Messages as artifacts and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain, pairwise
from typing import Final, TypeAlias, cast

from ctxguard.adapting.editing import REMOVED, by_index, copy_with
from ctxguard.adapting.extra_fields import extra_fields
from ctxguard.adapting.fields import (
    Path,
    arguments_as_object,
    get,
    is_list,
    messages_of,
    require_field,
    text_of,
    walk_content,
)
from ctxguard.adapting.fragments import LEFT_OUT, Fragment, fill_emptied, join_fragments, split_message
from ctxguard.adapting.message_view import MessageView
from ctxguard.adapting.provider_formats import ANTHROPIC, is_converse, require_role
from ctxguard.adapting.read_cache import ReadCache
from ctxguard.artifacts import Artifact, Kind
from ctxguard_anthropic.blocks import BLOCKS, THINKING, as_blocks, kind_of, left_of, place_call

Message: TypeAlias = Mapping[str, object]
"""A message: a dict, or an object of the SDK with the same fields."""
Native: TypeAlias = "Mapping[str, object] | Sequence[Message]"
"""A request with `system` and `messages`, whatever else it holds, or a list of messages."""

_KINDS: Final = {"user": Kind.USER, "assistant": Kind.ASSISTANT, "system": Kind.SYSTEM}
_OWN: Final = frozenset({"role", "content"})
_READ: Final = frozenset({"input", "signature", "tool_use_id", "id", "name"})
"""What is read of a block, beside its texts."""
_OWN_BLOCKS: Final = ("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use")


class AnthropicAdapter:
    """Look at Messages as artifacts: each `tool_result` block is one, the rest of a message another.

    What does not survive: the `citations` of an edited text; thinking that a stage changed, with the rest of the
    thinking of its message; a text, document or search result of which nothing is left. `tool_result` blocks move
    before the text of their message, and together into the message right behind their call, as the API demands.
    Blocks of unknown type and those of server tools are opaque; messages of unknown role are kept and pinned, and the
    report names the role.
    """

    name = "anthropic"

    last_stage = staticmethod(fill_emptied)

    def read(self, native: Native) -> list[Artifact]:
        """Return the artifacts of a request, its system prompt first, or of a list of messages.

        Raises:
            HistoryError: it is neither, a message has no role, a content is nothing that can be read, or it is of
                another format.
        """
        return list(chain.from_iterable([*_CACHE.read(_prompt(native)), *_CACHE.read(messages_of(native))]))

    def write(self, native: Native, artifacts: Iterable[Artifact]) -> Native:
        """Return the request or the list of these artifacts: the same messages where nothing was changed."""
        prompts = list(map(id, _prompt(native)))
        neighbors = set(pairwise(map(id, messages_of(native))))
        system: dict[str, object] = {}
        groups: list[list[Artifact]] = []
        for artifact in artifacts:
            if isinstance(artifact.source, Fragment) and id(artifact.source.message) in prompts:
                system["system"] = _message([artifact])["content"]
            elif groups and _belongs(artifact, groups[-1][-1], neighbors):
                groups[-1].append(artifact)
            else:
                groups.append([artifact])
        messages = [_message(group) for group in groups]
        return {**native, **system, "messages": messages} if isinstance(native, Mapping) else messages

    def detects(self, native: object) -> bool:
        """Tell whether a request or list has what only Anthropic's Messages have."""
        messages = native.get("messages") if isinstance(native, Mapping) else native
        if not is_list(messages) or is_converse(messages):
            return False
        if isinstance(native, Mapping) and "system" in native:
            return True
        blocks = [block for message in messages for block in as_blocks(get(message, "content"))]
        return all(get(m, "role") in _KINDS for m in messages) and any(kind_of(b) in _OWN_BLOCKS for b in blocks)


def _prompt(native: Native) -> list[Message]:
    """Return the system prompt as a message, the same one for the same content; none where there is none."""
    content = native.get("system") if isinstance(native, Mapping) else None
    BLOCKS.read(content, ("system",))  # an error of the cache would name a message
    return _PROMPTS.read([content]) if content else []


def _read(message: Message) -> tuple[Artifact, ...]:
    role = require_role(message, ANTHROPIC)
    blocks = list(walk_content(require_field(message, "content"), ("content",), noun="block"))
    results = [n for n, (_, block) in enumerate(blocks) if role == "user" and kind_of(block) == "tool_result"]
    rest = tuple(number for number in range(len(blocks)) if number not in results)
    groups = [*((number,) for number in results), *([rest] if rest or not blocks else [])]
    return tuple(_view(fragment, blocks).artifact(fragment) for fragment in split_message(message, groups))


_PROMPTS: Final[ReadCache[object, Message]] = ReadCache(lambda content: {"role": "system", "content": content})
_CACHE: Final = ReadCache(_read, exact=frozenset({"input"}))


def _view(fragment: Fragment, blocks: Sequence[tuple[Path, object]]) -> MessageView:
    role = str(get(fragment.message, "role"))
    own = [blocks[number] for number in fragment.indexes]
    parts = [placed for path, block in own for placed in BLOCKS.read_part(block, path)]
    fields = [placed for path, block in own for placed in BLOCKS.part_fields(block, path, own=_READ)]
    # what belongs to the message as a whole goes with its first block
    if 0 in fragment.indexes or not fragment.indexes:
        fields += extra_fields(fragment.message, own=_OWN)
    if role == "user" and own and kind_of(own[0][1]) == "tool_result":
        path, block = own[0]
        answered = text_of(block, "tool_use_id")
        return MessageView(
            Kind.TOOL, parts, tool_call_id=answered, tool_call_id_at=(*path, "tool_use_id"), fields=fields
        )
    return MessageView(
        _KINDS.get(role, Kind.ASSISTANT),
        parts,
        [place_call(block, path) for path, block in own if kind_of(block) == "tool_use"],
        role=None if role in _KINDS else role,
        pinned=any(kind_of(block) == "compaction" for _, block in own),
        fields=fields,
    )


def _belongs(artifact: Artifact, last: Artifact, neighbors: AbstractSet[tuple[int, int]]) -> bool:
    """Tell whether an artifact goes into the message of the one before it: with its own, results with results."""
    fragment, before = artifact.source, last.source
    if not isinstance(fragment, Fragment) or not isinstance(before, Fragment):
        return artifact.kind is last.kind is Kind.TOOL
    if before.occurrence is fragment.occurrence:
        return True
    return artifact.kind is last.kind is Kind.TOOL and (id(before.message), id(fragment.message)) not in neighbors


def _message(group: list[Artifact]) -> Message:
    """Return the message of these artifacts: the very one they were read from, where they are all of it unchanged."""
    sources = [artifact.source for artifact in group if isinstance(artifact.source, Fragment)]
    if not sources:
        return _created(group)
    fragment = sources[0]
    message = cast("Message", fragment.message)
    content = get(message, "content")
    written = join_fragments(group, as_blocks(content), _written)
    if written is None:
        return message
    is_text = isinstance(content, str) and len(written) == 1
    plain = message if isinstance(message, Mapping) else {"role": get(message, "role")}
    return copy_with(plain, {("content",): (written[0] if is_text else written) or LEFT_OUT})


def _written(artifact: Artifact) -> list[object]:
    """Return the blocks of an artifact: the same objects where nothing was changed."""
    fragment = artifact.source
    if not isinstance(fragment, Fragment):
        return as_blocks(_created([artifact])["content"])
    blocks = as_blocks(get(fragment.message, "content"))
    changes = by_index(dict(_changes(artifact, fragment, blocks))) if artifact.origin else {}
    written = [left_of(copy_with(blocks[n], changes[n])) if n in changes else blocks[n] for n in fragment.indexes]
    return [block for block in written if block is not REMOVED]


def _changes(artifact: Artifact, fragment: Fragment, blocks: Sequence[object]) -> Iterator[tuple[Path, object]]:
    """Walk what is to be changed, by number of the block and place in it.

    Thinking goes with a change of any of it, as the API takes it back unmodified or not at all; `citations` point into
    the old text.
    """
    thinking = [(number,) for number in fragment.indexes if kind_of(blocks[number]) in THINKING]
    placed = list(walk_content(get(fragment.message, "content"), ("content",), noun="block"))
    for (_, *inner), new in _view(fragment, placed).changes(artifact).items():
        path = tuple(inner) or (0,)  # a content that is one text is a block of its own
        yield from ((each, REMOVED) for each in thinking) if path in thinking else [(path, new)]
        if path[-1] == "text":
            yield (*path[:-1], "citations"), REMOVED


def _created(group: list[Artifact]) -> dict[str, object]:
    """Return the message of artifacts that no message stood for: stand-in results, a summary."""
    first = group[0]
    if first.kind is Kind.TOOL:
        results = [{"type": "tool_result", "tool_use_id": a.answers, "content": a.text} for a in group]
        return {"role": "user", "content": results}
    if first.kind is not Kind.ASSISTANT:
        return {"role": "user", "content": first.text or LEFT_OUT}
    calls = [
        {"type": "tool_use", "id": c.id, "name": c.name, "input": arguments_as_object(c.arguments)} for c in first.calls
    ]
    spoken = [{"type": "text", "text": first.text}] if first.text and calls else []
    return {"role": "assistant", "content": spoken + calls or first.text or LEFT_OUT}
