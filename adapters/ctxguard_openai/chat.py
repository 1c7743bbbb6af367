"""Chat Completions messages as artifacts and back.

The field list is that of `openai.types.chat.ChatCompletionMessageParam`; keys beyond it are kept as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from ctxguard.adapting.editing import copy_with
from ctxguard.adapting.extra_fields import PlacedField, extra_fields
from ctxguard.adapting.fields import get, is_list, member_at, require_field, require_list, text_of
from ctxguard.adapting.message_view import MessageView, PlacedCall, PlacedPart, write_each
from ctxguard.adapting.provider_formats import CHAT, is_converse, require_role
from ctxguard.adapting.read_cache import ReadCache
from ctxguard.adapting.reasoning import REASONING_FIELDS, reasoning_changes, reasoning_parts
from ctxguard.artifacts import BY_POSITION, Artifact, Kind, Part
from ctxguard_openai.calls import Message, calls_of
from ctxguard_openai.contents import PARTS

if TYPE_CHECKING:
    from ctxguard.draft import Draft

_KINDS: Final = {role: Kind(role) for role in ("system", "developer", "user", "assistant", "tool", "function")}
_NOTHING: Final[Sequence[PlacedPart]] = [(("content",), Part("text", ""))]
"""The part of a message that says nothing."""
_INSTEAD: Final = ("tool_calls", "function_call", "audio", *REASONING_FIELDS)
"""What the assistant may say in place of a content."""
_OWN: Final = frozenset({"role", "content", "name", "tool_call_id", "tool_calls", "function_call", *REASONING_FIELDS})
"""What is read of a message."""
_FOREIGN: Final = ("tool_use", "tool_result", "thinking")


class OpenAIAdapter:
    """Look at Chat Completions messages as artifacts: one message, one artifact.

    What does not survive: nothing of a message that is kept. Of a changed one, only the changed texts differ;
    `reasoning_details` go as a whole where one would change, a result or call without an id may get one. A message that
    a stage adds is a plain dict. Messages of unknown role are kept and pinned, and the report names the role; unknown
    content parts are opaque.
    """

    name = "openai"

    @staticmethod
    def last_stage(draft: Draft) -> Draft:
        """Let an empty text stand for an empty list of parts, which the API refuses."""
        artifacts = [a.revised() if _is_empty_list(a) else a for a in draft.artifacts]
        return draft.revise(artifacts, action="repaired", reason="the API refuses an empty list of parts")

    def read(self, native: Sequence[Message]) -> list[Artifact]:
        """Return the artifacts of a list of messages.

        Raises:
            HistoryError: it is not a list, a message has no role, its content or calls are nothing that can be read, or
                it is of another format.
        """
        artifacts = _CACHE.read(require_list(native, "messages"))
        if any(call.id == BY_POSITION for artifact in artifacts for call in artifact.calls):
            # calls of the legacy form (`function_call`) are answered by messages of role `function` alone, so a `tool`
            # message without an id answers none of them
            return [replace(a, answers="") if a.kind is Kind.TOOL and a.answers is None else a for a in artifacts]
        return artifacts

    def write(self, native: Sequence[Message], artifacts: Iterable[Artifact]) -> list[Message]:
        """Return the messages of these artifacts: the same objects where nothing was changed."""
        del native  # every artifact carries its message
        return write_each(artifacts, _written)

    def detects(self, native: object) -> bool:
        """Tell whether a list holds messages with the roles of Chat Completions."""
        is_chat = is_list(native) and all(get(m, "role") in _KINDS and not _is_foreign(m) for m in native)
        return is_chat and not is_converse(native)


def _is_empty_list(artifact: Artifact) -> bool:
    return artifact.origin is None and get(artifact.source, "content") == []


def _is_foreign(message: object) -> bool:
    """Tell a message whose content blocks are Anthropic's."""
    content = get(message, "content")
    return isinstance(content, list) and any(get(part, "type") in _FOREIGN for part in content)


def _view(message: Message) -> MessageView:
    role = require_role(message, CHAT)
    calls = [*calls_of(message)]
    answered = BY_POSITION if role == "function" else text_of(message, "tool_call_id") if role == "tool" else None
    return MessageView(
        _KINDS.get(role, Kind.ASSISTANT),
        [*PARTS.read(_content(message, role), ("content",)), *reasoning_parts(message)] or _NOTHING,
        calls,
        tool_call_id=answered,
        tool_call_id_at=("tool_call_id",),
        name=text_of(message, "name"),
        role=None if role in _KINDS else role,
        fields=[*_fields(message, calls)],
    )


def _fields(message: Message, calls: Sequence[PlacedCall]) -> Iterator[PlacedField]:
    """Walk what is sent beside content and calls."""
    yield from extra_fields(message, own=_OWN)
    yield from PARTS.extra_fields(get(message, "content"), ("content",))
    for call in calls:
        if call.id[0] == "tool_calls":
            form = call.arguments[:-1]
            taken = {call.arguments, call.id, (*form, "name")}
            yield from extra_fields(member_at(message, call.id[:-1]), call.id[:-1], taken=taken)


def _content(message: Message, role: str) -> object:
    """Return the content of a message, which the assistant may do without."""
    is_optional = _KINDS.get(role, Kind.ASSISTANT) is Kind.ASSISTANT
    return require_field(message, "content", unless=_INSTEAD if is_optional else ())


_CACHE: Final[ReadCache[Message, Artifact]] = ReadCache(
    lambda message: _view(message).artifact(message), exact=frozenset({"arguments", "input"})
)


def _written(artifact: Artifact) -> Message:
    if artifact.source is None:
        return _created(artifact)
    message: Message = artifact.source  # type: ignore[assignment]  # this adapter put it there
    # nearly every message that is masked
    if type(message) is dict and type(message.get("content")) is str and _differs_in_text(artifact):
        return cast("Message", {**message, "content": artifact.content})
    changes = dict(reasoning_changes(message, _view(message).changes(artifact)))
    if get(message, "content") == []:
        changes.setdefault(("content",), "")
    return copy_with(message, changes)


def _differs_in_text(artifact: Artifact) -> bool:
    """Tell that nothing but one plain text was changed."""
    was = artifact.root
    return (
        type(was.content) is str
        and type(artifact.content) is str
        and was.content != ""
        and artifact.calls is was.calls
        and artifact.fields is was.fields
        and artifact.name == was.name
        and artifact.answers == was.answers
    )


def _created(artifact: Artifact) -> Message:
    """Return the message of an artifact that no message stood for: a stand-in result, a summary."""
    role = "user" if artifact.kind is Kind.TASK else artifact.kind.value
    message: dict[str, object] = {"role": role, "content": artifact.text}
    if artifact.kind is Kind.TOOL and artifact.answers == BY_POSITION:
        return {"role": "function", "name": artifact.name or "", "content": artifact.text}
    if artifact.kind is Kind.TOOL:
        message["tool_call_id"] = artifact.answers
    if artifact.calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in artifact.calls
        ]
    return message
