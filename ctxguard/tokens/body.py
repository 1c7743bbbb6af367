"""What a request body sends, and how its JSON is read where it may hold anything: what is not there costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ctxguard.artifacts import Artifact, Kind, Media, Part, ToolCall
from ctxguard.errors import ConfigError
from ctxguard.tokens.media import inner_media
from ctxguard.tokens.schemas import compact

Native: TypeAlias = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Body:
    """Hold what a request body sends.

    Attributes:
        artifacts: system prompt, messages, tool calls and results, in their order.
        tools: the tools as they are sent.
        choice: the `tool_choice`, as one word: `auto`, `none`, `required`, or `named` for a certain tool.
        schema: the schema that the reply must follow; None where there is none.
        found: names of deferred functions that a search of an earlier step has found.
        brought: tools that stand among the messages, a list for each place.
        thinks: whether the request asks for thinking.
        documents: how many documents are sent as text.
        empty_system: whether the system prompt is an empty text.
        namespaces: of the called functions that are not in the usual one.
        searches: how often a search has brought in functions.
    """

    artifacts: tuple[Artifact, ...]
    tools: tuple[Native, ...] = ()
    choice: str = "auto"
    schema: Native | None = None
    found: frozenset[str] = frozenset()
    brought: tuple[tuple[Native, ...], ...] = ()
    thinks: bool = False
    documents: int = 0
    empty_system: bool = False
    namespaces: tuple[str, ...] = ()
    searches: int = 0


def members_of(body: Native, key: str) -> list[Native]:
    """Return the objects of a list that a body must have."""
    if not isinstance(body.get(key), list) and not (key == "contents" and isinstance(body.get(key), Mapping)):
        raise ConfigError(f"the request body has no list {key!r}", setting="body")
    return records_of(body.get(key))


def records_of(value: object) -> list[Native]:
    """Return the objects of a list; anything else in it costs nothing. Gemini takes one object without a list."""
    if isinstance(value, Mapping):
        return [value]
    return [member for member in value if isinstance(member, Mapping)] if isinstance(value, (list, tuple)) else []


def blocks_of(content: object) -> list[Native]:
    """Return the blocks of a content; a text is one block."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else records_of(content)


def mapping_of(value: object) -> Native:
    """Return an object; an empty one in place of anything else."""
    return value if isinstance(value, Mapping) else {}


def text_of(value: object) -> str:
    """Return a text; an empty one in place of anything else."""
    return value if isinstance(value, str) else ""


def either_of(value: Native, *names: str) -> object:
    """Return the first of some fields that is there."""
    return next((value[name] for name in names if value.get(name) is not None), None)


def kind_of(role: str) -> Kind:
    """Return the kind of a role; an unknown one counts as the user's."""
    try:
        return Kind(role)
    except ValueError:
        return Kind.USER


def call_of(function: Native) -> ToolCall:
    """Return a call of a tool."""
    arguments = function.get("arguments")
    return ToolCall(
        text_of(function.get("name")), arguments if isinstance(arguments, str) else compact(arguments or {})
    )


def tools_of(body: Native) -> tuple[Native, ...]:
    """Return the tools of a body."""
    return tuple(records_of(body.get("tools")))


def choice_of(given: object) -> str:
    """Return a tool choice of any API as one word."""
    if isinstance(given, Mapping):
        given = given.get("mode") or given.get("type")
    word = text_of(given) or "auto"
    known = {"any": "required", "function": "named", "custom": "named", "tool": "named", "validated": "auto"}
    return known.get(word, word)


def content_of(content: object, read: Callable[[Native], Iterable[Part]]) -> str | tuple[Part, ...]:
    """Return a content: its text, or the parts that its blocks are read as."""
    if isinstance(content, str):
        return content
    return tuple(part for block in records_of(content) for part in read(block))


def as_parts(content: str | tuple[Part, ...]) -> Sequence[Part]:
    """Return a content as parts."""
    return (Part("text", content),) if isinstance(content, str) else content


def said_parts(block: Native) -> Iterator[Part]:
    """Yield a block of text; any other one counts as its JSON, and the media in it as what they are."""
    text = block.get("text", block.get("refusal"))
    if isinstance(text, str):
        yield Part("text", text)
    else:
        media: list[Part] = []
        yield Part("opaque", compact(_without_media(block, media)))
        yield from media


def _without_media(value: object, media: list[Part]) -> object:
    """Return a value without the bytes in it, which are added to `media`."""
    if isinstance(value, Mapping):
        return {key: _without_media(member, media) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_media(member, media) for member in value]
    found = inner_media(value) if isinstance(value, str) and len(value) > _SHORT else None
    if found is None:
        return value
    media.append(found)
    return ""


_SHORT: Final = 256
"""Characters up to which no text is looked at for bytes."""


def sealed_part(data: str) -> Part:
    """Return reasoning that only the provider can read."""
    return Part("reasoning", media=Media("sealed", length=len(data)))
