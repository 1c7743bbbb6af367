"""Messages of Bedrock's Converse API as artifacts and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import Final, TypeAlias, cast

from ctxguard.adapting.editing import REMOVED, are_same_objects, by_index, copy_with
from ctxguard.adapting.extra_fields import extra_fields
from ctxguard.adapting.fields import (
    Path,
    arguments_as_object,
    get,
    is_list,
    messages_of,
    require_field,
    text_of,
    unreadable,
    walk_content,
)
from ctxguard.adapting.fragments import LEFT_OUT, Fragment, fill_emptied, split_message
from ctxguard.adapting.message_view import MessageView
from ctxguard.adapting.provider_formats import BEDROCK, is_converse, require_role
from ctxguard.adapting.read_cache import ReadCache
from ctxguard.artifacts import Artifact, Kind
from ctxguard.history import is_record
from ctxguard_bedrock.blocks import (
    BLOCKS,
    block_changes,
    block_fields,
    left_of,
    place_call,
    tool_result,
    tool_use,
)

Message: TypeAlias = Mapping[str, object]
"""A message: a dict with `role` and `content`, as boto3 takes and returns it."""
Native: TypeAlias = "Mapping[str, object] | Sequence[Message]"
"""A request with `messages` and perhaps `system`, whatever else it holds; or a list of messages."""

_KINDS: Final = {"user": Kind.USER, "assistant": Kind.ASSISTANT, "system": Kind.SYSTEM}
_OWN: Final = frozenset({"role", "content"})
_REQUEST_KEYS: Final = ("toolConfig", "inferenceConfig", "modelId", "guardrailConfig", "additionalModelRequestFields")


class BedrockAdapter:
    """Look at Converse messages as artifacts: each `toolResult` block is one, the rest of a message another.

    A block that a stage wrote, such as a trail that was stored with the messages, is an artifact of its own as well.

    What comes out takes turns, as the API demands: what stands next to each other in the same role becomes one message,
    results before texts. What does not survive: reasoning whose text would have to change, reasoning that was signed
    before a cut, and a text of which nothing is left. Blocks of unknown kind and those of server tools are opaque;
    messages of unknown role are kept and pinned, and the report names the role.
    """

    name = "bedrock"

    last_stage = staticmethod(fill_emptied)

    def read(self, native: Native) -> list[Artifact]:
        """Return the artifacts of a request, its system prompt first, or of a list of messages.

        Raises:
            HistoryError: It is neither, or a message cannot be read or is of another format.
        """
        return list(chain.from_iterable([*_CACHE.read(_prompt(native)), *_CACHE.read(messages_of(native))]))

    def write(self, native: Native, artifacts: Iterable[Artifact]) -> Native:
        """Return the request or the list of these artifacts: the same messages where nothing was changed."""
        prompts = list(map(id, _prompt(native)))
        system: dict[str, object] = {}
        history: list[Artifact] = []
        for artifact in artifacts:
            if isinstance(artifact.source, Fragment) and id(artifact.source.message) in prompts:
                system["system"] = _message([artifact])["content"]
            else:
                history.append(artifact)
        messages = [_message(list(group)) for _, group in groupby(history, key=_turn)]
        return {**native, **system, "messages": messages} if isinstance(native, Mapping) else messages

    def detects(self, native: object) -> bool:
        """Tell whether a request or list has what only Converse has: blocks without a type, in lists."""
        messages = native.get("messages") if isinstance(native, Mapping) else native
        if not is_list(messages):
            return False
        if isinstance(native, Mapping) and any(key in native for key in _REQUEST_KEYS):
            return True
        return is_converse(messages) and all(get(message, "role") in _KINDS for message in messages)


def _blocks(message: object) -> list[object]:
    content = get(message, "content")
    return list(content) if isinstance(content, (list, tuple)) else []


def _prompt(native: Native) -> list[Message]:
    """Return the system prompt as a message, the same one for the same content; none where there is none."""
    content = native.get("system") if isinstance(native, Mapping) else None
    if content is not None and not isinstance(content, (list, tuple)):
        raise unreadable(("system",), "a list of blocks", content, remedy="; write [{'text': …}]")
    return _PROMPTS.read([content]) if content else []


_PROMPTS: Final[ReadCache[object, Message]] = ReadCache(lambda content: {"role": "system", "content": content})


def _read(message: Message) -> tuple[Artifact, ...]:
    role = require_role(message, BEDROCK)
    content = require_field(message, "content")
    if not isinstance(content, (list, tuple)):
        raise unreadable(("content",), "a list of blocks", content, remedy="; write [{'text': …}]")
    blocks = list(walk_content(content, ("content",), noun="block"))
    results = [n for n, (_, block) in enumerate(blocks) if role == "user" and tool_result(block) is not None]
    rest = [number for number in range(len(blocks)) if number not in results]
    records = {n for n in rest if role == "user" and is_record(text_of(blocks[n][1], "text") or "")}
    # a record stands in one message with what the user said before and behind it, since roles have to take turns
    said = [tuple(group) for _, group in groupby(rest, key=lambda number: number if number in records else -1)]
    groups = [*((number,) for number in results), *(said if blocks else [()])]
    return tuple(_view(fragment, blocks).artifact(fragment) for fragment in split_message(message, groups))


_CACHE: Final = ReadCache(_read, exact=frozenset({"input", "json"}))


def _view(fragment: Fragment, blocks: Sequence[tuple[Path, object]]) -> MessageView:
    role = str(get(fragment.message, "role"))
    own = [blocks[number] for number in fragment.indexes]
    parts = [placed for path, block in own for placed in BLOCKS.read_part(block, path)]
    fields = [placed for path, block in own for placed in block_fields(block, path)]
    if 0 in fragment.indexes or not fragment.indexes:
        # what belongs to the message as a whole goes with its first block
        fields += [((), replace(field, editable=False)) for _, field in extra_fields(fragment.message, own=_OWN)]
    if role == "user" and own and tool_result(own[0][1]) is not None:
        path, block = own[0]
        answered = get(tool_result(block), "toolUseId")
        return MessageView(
            Kind.TOOL,
            parts,
            tool_call_id=answered if isinstance(answered, str) else None,
            tool_call_id_at=(*path, "toolResult", "toolUseId"),
            fields=fields,
        )
    return MessageView(
        _KINDS.get(role, Kind.ASSISTANT),
        parts,
        [place_call(block, path) for path, block in own if tool_use(block) is not None],
        role=None if role in _KINDS else role,
        fields=fields,
    )


def _turn(artifact: Artifact) -> object:
    """Return whose turn an artifact belongs to; messages of unknown role and system messages stand alone."""
    if artifact.role is not None or artifact.kind is Kind.SYSTEM:
        return artifact.source.message if isinstance(artifact.source, Fragment) else artifact
    return "assistant" if artifact.kind is Kind.ASSISTANT else "user"


def _message(group: list[Artifact]) -> Message:
    """Return the message of these artifacts: the very one they were read from, where they are all of it unchanged."""
    written = [block for artifact in group for block in _written(artifact)]
    messages = {id(a.source.message): a.source.message for a in group if isinstance(a.source, Fragment)}
    is_one = len({_occurrence(artifact) for artifact in group}) == 1
    message = cast("Message", next(iter(messages.values()), None))
    if message is not None and is_one:
        if are_same_objects(written, _blocks(message)):
            return message
        return copy_with(message, {("content",): _valid(written)})
    kind = group[0].kind
    role = "assistant" if kind is Kind.ASSISTANT else "system" if kind is Kind.SYSTEM else "user"
    return {"role": role, "content": _valid(written)}


def _occurrence(artifact: Artifact) -> object:
    return artifact.source.occurrence if isinstance(artifact.source, Fragment) else id(artifact)


def _valid(blocks: list[object]) -> list[object]:
    """Return blocks that the API takes: a cache point alone says nothing."""
    is_empty = all(isinstance(block, Mapping) and block.keys() == {"cachePoint"} for block in blocks)
    return [{"text": LEFT_OUT}, *blocks] if is_empty else blocks


def _written(artifact: Artifact) -> Iterator[object]:
    """Walk the blocks of an artifact: the same objects where nothing was changed."""
    fragment = artifact.source
    if not isinstance(fragment, Fragment):
        yield from _created(artifact)
        return
    blocks = _blocks(fragment.message)
    changes = by_index(dict(_changes(artifact, fragment))) if artifact.origin else {}
    for number in fragment.indexes:
        block = blocks[number]
        if number in changes:
            block = left_of(copy_with(block, dict(block_changes(block, changes[number]))))
        if block is not REMOVED:
            yield block


def _changes(artifact: Artifact, fragment: Fragment) -> Iterator[tuple[Path, object]]:
    placed = list(walk_content(get(fragment.message, "content"), ("content",), noun="block"))
    for (_, *inner), new in _view(fragment, placed).changes(artifact).items():
        yield tuple(inner), new


def _created(artifact: Artifact) -> Iterator[dict[str, object]]:
    """Walk the blocks of an artifact that no message stood for: a stand-in result, a summary."""
    if artifact.kind is Kind.TOOL:
        yield {"toolResult": {"toolUseId": artifact.answers, "content": [{"text": artifact.text or LEFT_OUT}]}}
        return
    if artifact.text or not artifact.calls:
        yield {"text": artifact.text or LEFT_OUT}
    for call in artifact.calls:
        yield {"toolUse": {"toolUseId": call.id, "name": call.name, "input": arguments_as_object(call.arguments)}}
