"""The data model: an artifact is one item of a conversation, with its parts, tool calls and lifetime."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal

from ctxguard.errors import ConfigError
from ctxguard.settings import nearest

__all__ = ["BY_POSITION", "Artifact", "Field", "Kind", "Lifetime", "Media", "Memo", "Part", "ToolCall"]


class Kind(StrEnum):
    """The role of an artifact in the conversation.

    Names of other formats are accepted too: `developer` is `system`; `human` and `message` are `user`; `ai` and
    `model` are `assistant`; `tool_output` and `function` are `tool`.
    """

    SYSTEM = "system"
    TASK = "task"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"

    @classmethod
    def _missing_(cls, value: object) -> Kind | None:
        return _ALIASES.get(value.lower()) if isinstance(value, str) else None


_ALIASES = {
    "developer": Kind.SYSTEM,
    "human": Kind.USER,
    "message": Kind.USER,
    "ai": Kind.ASSISTANT,
    "model": Kind.ASSISTANT,
    "tool_output": Kind.TOOL,
    "function": Kind.TOOL,
}

_TYPO: Final = 0.75
"""Likeness from which on a kind is a known one misspelled: `system` with one letter changed has 0.83,
`memory` and `model` have 0.55."""
BY_POSITION: Final = "function_call"
"""The id of OpenAI's older calls and results, which have none and pair by position; the name of the tool is sent."""

PartKind = Literal["text", "refusal", "reasoning", "image", "audio", "file", "opaque"]
Slot = Literal["content", "arguments", "fields", "name"]
"""The location of a text in an artifact: its content, a tool call's arguments, another field, or its name."""


@dataclass(frozen=True, slots=True)
class Media:
    """The properties of media or sealed reasoning that determine its token cost.

    Attributes:
        kind: `sealed` is reasoning that only the provider can read.
        size: width and height of an image in pixels; None if unknown (a link).
        detail: the `detail` setting of the request.
        length: characters of the base64 data; 0 for a link.
        pages: pages of a document; None if they cannot be counted.
        characters: characters of text in a document; None if they cannot be counted.
        seconds: length of audio or video; None if unknown.
    """

    kind: Literal["image", "audio", "video", "file", "sealed"]
    size: tuple[int, int] | None = None
    detail: str = "auto"
    length: int = 0
    pages: int | None = None
    characters: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a content that is not a single plain text.

    Attributes:
        kind: `text`, `refusal` and `reasoning` carry text; `image`, `audio` and `file` are media; `opaque` is anything
            that the adapter does not know and returns unchanged.
        text: the text that the model reads; None for media and opaque parts.
        tokens: token cost of a part without text; None if it is counted as text or by its `media`.
        editable: False where a stage may not change the text.
        signed: True for thinking that the provider bound to everything before it: its adapter leaves it out if its text
            would change, and `DropStaleThinking` drops it if something before it changed.
        media: the properties that determine the cost of a part without text, if the model is known. Not compared.
    """

    kind: PartKind
    text: str | None = None
    tokens: int | None = None
    editable: bool = True
    signed: bool = False
    media: Media | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Field:
    """A text that is sent with an artifact but outside its content: a citation, metadata, a link, an unknown key.

    Attributes:
        place: Its place in the native message, such as `metadata.user`, for findings.
        text: The text as it is sent; JSON if the value is not a text.
        editable: Whether masking may change the text.
        is_identifier: Whether it is searched like an id, by rules with a specific pattern only: any run of digits may
            occur in it.
        tokens: Its token cost; None if it is counted as text.
    """

    place: str
    text: str
    editable: bool = False
    is_identifier: bool = True
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool.

    Attributes:
        name: name of the tool.
        arguments: the arguments exactly as the model wrote them, usually JSON.
        id: the id that the result refers to; None if the recording has none.

    Raises:
        ConfigError: `arguments` or `id` is not a string.
    """

    name: str
    arguments: str = ""
    id: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.arguments, str):
            raise ConfigError(
                f"arguments are the text that the model wrote, not {type(self.arguments).__name__}; use json.dumps",
                setting="arguments",
            )
        if self.id is not None and not isinstance(self.id, str):
            raise ConfigError(f"the id of a call is a text, not {type(self.id).__name__}; use str", setting="id")


@dataclass(frozen=True, slots=True)
class Lifetime:
    """How long an artifact is kept: until the first of two limits is reached.

    Attributes:
        turns: number of turns, its own included: with 1 it expires at the next user message.
        until: name of an event; the artifact expires when a later one carries that event.

    Raises:
        ConfigError: neither is given, or `turns` is below 1.
    """

    turns: int | None = None
    until: str | None = None

    def __post_init__(self) -> None:
        if self.turns is None and self.until is None:
            raise ConfigError("a lifetime needs turns=N or until='event'", setting="lifetime")
        if self.turns is not None and not isinstance(self.turns, int):
            raise ConfigError(f"turns is a whole number, not {self.turns!r}", setting="turns")
        if self.turns is not None and self.turns < 1:
            raise ConfigError(f"a lifetime of {self.turns} turns is no lifetime; use 1 or more", setting="turns")


class Memo(dict[object, object]):
    """Values computed from one artifact, keyed by their computation. It is not part of the artifact's value.

    Copies and pickles of an artifact start with an empty one; a full one is cleared.
    """

    __slots__ = ()
    MOST = 8

    def keep(self, key: object, value: object) -> None:
        """Remember a value."""
        if len(self) >= self.MOST:
            self.clear()
        self[key] = value

    def __reduce__(self) -> tuple[type[Memo], tuple[()]]:
        return Memo, ()


@dataclass(frozen=True, slots=True)
class Artifact:
    """One item of a conversation. Frozen: stages make changed copies with `edit` or `revised`.

    Attributes:
        kind: its role in the conversation; a string of any known spelling becomes a `Kind`; any other string (`memory`,
            `document`) is treated as a tool output, with that string as the `role`.
        content: the text, or the parts in their order.
        token_count: its total token cost, at least 0; None means that tokens are counted when needed.
        id: a name for reports; None if the source has none.
        calls: the tool calls it makes (assistant).
        answers: the `tool_call_id` of a tool result: the id of the call that it answers; None if the recording has
            none.
        name: name of the participant, or of the tool that answers.
        role: the native role if it corresponds to no `Kind`; usually None.
        fields: texts that are sent with it, outside its content.
        lifetime: how long it is kept; None means always.
        pinned: never dropped.
        events: names of the events that it marks, for `Lifetime(until=…)`.
        reported: input tokens, cached ones included, that the provider reported for the call of this reply; None if the
            history does not contain them.
        source: the native message; belongs to the adapter that read it. Not compared.
        origin: the artifact as it was read, where this one is a changed copy of it. Not compared.
        memo: values computed from it; they affect speed, never results. Not compared.

    Raises:
        ConfigError: `kind` is a misspelled known one, `content` is neither a text nor a tuple of parts, or another
            field has a wrong type or value.
    """

    kind: Kind
    content: str | tuple[Part, ...] = ""
    token_count: int | None = None
    id: str | None = field(default=None, kw_only=True)
    calls: tuple[ToolCall, ...] = field(default=(), kw_only=True)
    answers: str | None = field(default=None, kw_only=True)
    name: str | None = field(default=None, kw_only=True)
    role: str | None = field(default=None, kw_only=True)
    fields: tuple[Field, ...] = field(default=(), kw_only=True)
    lifetime: Lifetime | None = field(default=None, kw_only=True)
    pinned: bool = field(default=False, kw_only=True)
    events: tuple[str, ...] = field(default=(), kw_only=True)
    reported: int | None = field(default=None, kw_only=True, repr=False)
    source: object = field(default=None, kw_only=True, compare=False, repr=False)
    origin: Artifact | None = field(default=None, kw_only=True, compare=False, repr=False)
    memo: Memo = field(default_factory=Memo, init=False, compare=False, repr=False)

    if TYPE_CHECKING:

        def __init__(  # accepts a string of any known spelling, which the type of the field would not
            self,
            kind: Kind | str,
            content: str | tuple[Part, ...] = "",
            token_count: int | None = None,
            *,
            id: str | None = None,  # noqa: A002 - the name of the field
            calls: tuple[ToolCall, ...] = (),
            answers: str | None = None,
            name: str | None = None,
            role: str | None = None,
            fields: tuple[Field, ...] = (),
            lifetime: Lifetime | None = None,
            pinned: bool = False,
            events: tuple[str, ...] = (),
            reported: int | None = None,
            source: object = None,
            origin: Artifact | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if type(self.kind) is not Kind:
            try:
                object.__setattr__(self, "kind", Kind(self.kind))
            except ValueError:
                _take_as_tool(self, self.kind)
        if type(self.content) is not str and not isinstance(self.content, (str, tuple)):
            raise ConfigError(
                f"content is a text or a tuple of parts, not {type(self.content).__name__}", setting="content"
            )
        # Spelled out, because it runs for every message: a loop over the fields would take four times as long.
        if (
            (self.name is not None and not isinstance(self.name, str))
            or (self.answers is not None and not isinstance(self.answers, str))
            or (self.token_count is not None and not _is_count(self.token_count))
            or (self.lifetime is not None and not isinstance(self.lifetime, Lifetime))
            or (type(self.content) is tuple and not all(isinstance(part, Part) for part in self.content))
        ):
            raise _wrong_field(self)

    @property
    def text(self) -> str:
        """The text of the content; parts are joined by a line break."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content if part.text is not None)

    @property
    def root(self) -> Artifact:
        """The artifact as it was read: itself, unless it is a changed copy."""
        return self.origin or self

    def _repr_html_(self) -> str:
        from html import escape

        calls = "".join(f"<code>{escape(call.name)}({escape(call.arguments)})</code> " for call in self.calls)
        shown = f"<pre style='white-space:pre-wrap'>{escape(self.text)}</pre>"
        return f"<div><b>{escape(self.kind.value)}</b> {calls}{shown}</div>"

    def texts(self) -> Iterator[tuple[Slot, str]]:
        """Yield every text of this artifact that people may have written, with the name of its slot."""
        if isinstance(self.content, str):
            yield "content", self.content
        else:
            for part in self.content:
                if part.text is not None:
                    yield "content", part.text
        for call in self.calls:
            yield "arguments", call.arguments
        for one in self.fields:
            if one.editable:
                yield "fields", one.text
        if self.name is not None and self.kind is not Kind.TOOL:
            yield "name", self.name

    def fixed_texts(self) -> Iterator[tuple[str, str, bool]]:
        """Yield every text that is sent with this artifact and never edited: names, ids, fields.

        Yields:
            Each with its place, and whether it is an identifier, see `Field`.
        """
        if self.name is not None:
            yield "name", self.name, True
        if self.role is not None:
            yield "role", self.role, True
        if self.answers is not None:
            yield "tool_call_id", self.answers, True
        for number, call in enumerate(self.calls):
            yield f"calls[{number}].name", call.name, True
            if call.id is not None:
                yield f"calls[{number}].id", call.id, True
        for one in self.fields:
            if not one.editable:
                yield one.place, one.text, one.is_identifier

    def edit(self, change: Callable[[Slot, str], str]) -> Artifact:
        """Return a copy with `change` applied to every editable text, or this object if nothing changed.

        Args:
            change: called with slot and text, returns the new text.
        """
        content: str | tuple[Part, ...]
        if isinstance(self.content, str):
            content = change("content", self.content)
        else:
            content = tuple(
                replace(part, text=change("content", part.text)) if part.text is not None and part.editable else part
                for part in self.content
            )
        calls = tuple(replace(call, arguments=change("arguments", call.arguments)) for call in self.calls)
        fields = tuple(replace(one, text=change("fields", one.text)) if one.editable else one for one in self.fields)
        if content == self.content and calls == self.calls and fields == self.fields:
            return self
        return self.revised(content=content, calls=calls, fields=fields)

    def edit_together(
        self, contents: Callable[[Sequence[str]], Sequence[str]], change: Callable[[str], str]
    ) -> Artifact:
        """Return a copy as `edit` does, but with all texts of the content changed in one call.

        Args:
            contents: called with the editable texts of the content, returns the new ones.
            change: called with any other text, returns the new one.
        """
        parts = (
            [] if isinstance(self.content, str) else [p.text for p in self.content if p.text is not None and p.editable]
        )
        texts = iter(contents(parts) if len(parts) > 1 else map(change, parts))
        return self.edit(lambda slot, text: next(texts) if parts and slot == "content" else change(text))

    def revised(
        self,
        *,
        content: str | tuple[Part, ...] | None = None,
        calls: tuple[ToolCall, ...] | None = None,
        name: str | None = None,
        answers: str | None = None,
        fields: tuple[Field, ...] | None = None,
    ) -> Artifact:
        """Return a changed copy that remembers the original and is counted anew; None leaves a field unchanged."""
        return replace(
            self,
            content=self.content if content is None else content,
            calls=self.calls if calls is None else calls,
            name=self.name if name is None else name,
            answers=self.answers if answers is None else answers,
            fields=self.fields if fields is None else fields,
            token_count=None,
            origin=self.root,
        )


def _take_as_tool(artifact: Artifact, kind: object) -> None:
    """Treat an artifact of an unknown kind as a tool output, with the kind as its role, which reports show."""
    from difflib import get_close_matches  # only needed for kinds of other programs

    names = {*Kind, *_ALIASES}
    if not isinstance(kind, str) or not kind or get_close_matches(kind.lower(), names, n=1, cutoff=_TYPO):
        raise ConfigError(f"unknown kind {kind!r}{nearest(kind, names)}; known are {', '.join(Kind)}", setting="kind")
    object.__setattr__(artifact, "kind", Kind.TOOL)
    object.__setattr__(artifact, "role", artifact.role or kind)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value >= 0


def _wrong_field(artifact: Artifact) -> ConfigError:
    """Return the error for the first field of a wrong type."""
    if artifact.token_count is not None and not _is_count(artifact.token_count):
        given = artifact.token_count
        return ConfigError(f"token_count is a whole number of at least 0, not {given!r}", setting="token_count")
    fields: tuple[tuple[str, type, str], ...] = (
        ("name", str, "a text"),
        ("answers", str, "the id of a call, a text"),
        ("lifetime", Lifetime, "a Lifetime"),
    )
    for setting, kind, wanted in fields:
        value = getattr(artifact, setting)
        if value is not None and not isinstance(value, kind):
            return ConfigError(f"{setting} is {wanted}, not {type(value).__name__}", setting=setting)
    strange = next(type(part).__name__ for part in artifact.content if not isinstance(part, Part))
    return ConfigError(f"content is a text or a tuple of parts; it holds {strange}", setting="content")
