"""The data model: an artifact is one item of a conversation, with its content parts, tool calls, and lifetime."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypedDict, Unpack

from ctxguard.errors import ConfigError
from ctxguard.settings import nearest, whole_number

__all__ = [
    "BY_POSITION",
    "OUTSIDE",
    "Artifact",
    "Field",
    "Half",
    "Kind",
    "Lifetime",
    "Media",
    "Memo",
    "Part",
    "ToolCall",
]


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
"""Similarity (as `difflib` measures it) above which an unknown kind counts as a misspelled known one. `system` with one
letter changed has 0.83. `memory`, which is a kind of its own, has 0.55 to `model`."""
OUTSIDE: Final = object()
"""The `source` of an artifact that contains texts outside of the history, such as those of tools."""
BY_POSITION: Final = "function_call"
"""The id given to OpenAI's older function calls and their results. They have no ids of their own, and are paired by
position."""

PartKind = Literal["text", "refusal", "reasoning", "image", "audio", "file", "opaque"]
Slot = Literal["content", "arguments", "fields", "name"]
"""Where a string is in an artifact: in its content, a tool call's arguments, one of its `fields`, or its name."""


@dataclass(frozen=True, slots=True)
class Media:
    """The properties of an image, a recording, a file, or encrypted reasoning that decide how many tokens it takes.

    Attributes:
        kind: The type of media; `sealed` is reasoning that only the provider can decrypt.
        size: Width and height of an image in pixels; None if unknown, as for an image that is only linked.
        detail: The `detail` setting of the request, such as `low` or `high`.
        length: Number of characters of the base64 data; 0 for a link.
        pages: Number of pages of a document; None if they cannot be counted.
        characters: Number of characters of text in a document; None if they cannot be counted.
        seconds: Duration of audio or video in seconds; None if unknown.
    """

    kind: Literal["image", "audio", "video", "file", "sealed"]
    size: tuple[int, int] | None = None
    detail: str = "auto"
    length: int = 0
    pages: int | None = None
    characters: int | None = None
    seconds: float | None = None


class Half(NamedTuple):
    """One half of a call that the provider itself executes, such as a web search: the call, or its result.

    Attributes:
        id: The id that both halves share; None if the provider gives none and pairs them by order.
        is_result: Whether the half is the result.
    """

    id: str | None
    is_result: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """One content part of a message whose content is not a single string.

    Attributes:
        kind: `text`, `refusal`, and `reasoning` parts contain text. `image`, `audio`, and `file` parts are media. An
            `opaque` part is of a kind that the adapter does not know; it is returned unchanged.
        text: The text that the model reads; None for media and opaque parts.
        tokens: Number of tokens of a part without text. If it is None, the tokens of `text` are counted; without a
            text, the number is computed from `media`.
        editable: Whether a stage may change the text.
        signed: Whether the part is reasoning with a signature that is only valid as long as the messages before it stay
            the same. The adapter omits the part if masking would change it. `DropStaleThinking` drops it if a message
            before it changed.
        media: The properties of a part without text. Its tokens are computed from them once the model is known. This
            field is ignored when parts are compared.
        as_text: Function by which the adapter writes a text in place of this part, so that a picture can leave a tool
            result whose text stays; None if it cannot. This field is ignored when parts are compared.
        half: Set if the part is one half of a call that the provider itself executes. Providers refuse a half alone, so
            `FitCalls` replaces it with an empty text, which the adapter leaves out. This field is ignored when parts
            are compared.
    """

    kind: PartKind
    text: str | None = None
    tokens: int | None = None
    editable: bool = True
    signed: bool = False
    media: Media | None = field(default=None, compare=False, repr=False)
    as_text: Callable[[str], object] | None = field(default=None, compare=False, repr=False)
    half: Half | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Field:
    """A value that is sent with an artifact outside its content: a citation, metadata, a link, or an unknown key.

    Attributes:
        place: Path of the value in the native message, such as `metadata.user`, for the findings of checks.
        text: The value as it is sent; JSON if the value is not a string.
        editable: Whether masking may change the value.
        is_identifier: Whether the value is an id. Ids may contain any run of digits. Therefore, only rules for personal
            data that have a validator or an unmistakable prefix search them.
        tokens: Number of tokens of the value; None means that the tokens of `text` are counted.
        words: Where the value is, in words, if its place alone does not tell it: "the default of parameter `to`".
    """

    place: str
    text: str
    editable: bool = False
    is_identifier: bool = True
    tokens: int | None = None
    words: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool.

    Attributes:
        name: Name of the tool.
        arguments: The arguments exactly as the model wrote them, usually JSON.
        id: The id to which the result refers; None if the history does not contain it.
        takes_object: Whether providers refuse `arguments` that are not a JSON object, as for functions. This field is
            ignored when calls are compared.

    Raises:
        ConfigError: If `arguments` or `id` is not a string.
    """

    name: str
    arguments: str = ""
    id: str | None = None
    takes_object: bool = field(default=False, compare=False)

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
    """How long an artifact is kept: until the first of its two limits is reached.

    Attributes:
        turns: Number of turns for which the artifact is kept, including the turn in which it arrived. With 1, it
            expires at the next user message. None means no limit.
        until: Name of an event. The artifact expires when a later artifact has that name in its `events`. None means no
            event.

    Raises:
        ConfigError: If neither limit is given, or `turns` is not a whole number of at least 1.
    """

    turns: int | None = None
    until: str | None = None

    def __post_init__(self) -> None:
        if self.turns is None and self.until is None:
            raise ConfigError("a lifetime needs turns=N or until='event'", setting="lifetime")
        if self.turns is not None:
            whole_number(self.turns, "turns", least=1)


class Changes(TypedDict, total=False):
    """The fields that `Artifact.revised` can change; `Artifact` describes them."""

    content: str | tuple[Part, ...]
    calls: tuple[ToolCall, ...]
    answers: str | None
    fields: tuple[Field, ...]


class Memo(dict[object, object]):
    """A cache of values that were computed from one artifact. The key says which computation the value is from.

    The cache is not part of the artifact's value: copies and pickles of an artifact start with an empty cache. A full
    cache (with `MOST` entries) is emptied before another entry is added.
    """

    __slots__ = ()
    MOST = 8

    def keep(self, key: object, value: object) -> None:
        """Add a value under a key. A full cache is emptied first."""
        if len(self) >= self.MOST:
            self.clear()
        self[key] = value

    def __reduce__(self) -> tuple[type[Memo], tuple[()]]:
        return Memo, ()


@dataclass(frozen=True, slots=True)
class Artifact:
    """One item of a conversation: a message, or the result of one tool call.

    Artifacts are frozen; stages make changed copies with `edit` or `revised`.

    Attributes:
        kind: The role of the artifact. A string in any known spelling is converted to a `Kind`. An artifact with any
            other string (`memory`, `document`) is treated as a tool output and gets that string as its `role`.
        content: The text, or the content parts in order.
        token_count: Number of tokens of the whole artifact; None means that they are counted when needed.
        id: An id that reports show; None if the source has none.
        calls: The tool calls that an assistant message makes.
        answers: The `tool_call_id` of a tool result: the id of the call that it answers. None if the history does not
            contain it.
        name: Name of the participant, or of the tool that returned the result.
        role: The role in the native message if no `Kind` corresponds to it; usually None.
        fields: Values that are sent with the artifact outside its content.
        lifetime: How long the artifact is kept; None means without a limit.
        pinned: Whether the artifact must never be dropped.
        events: Names of events that occur with this artifact, for `Lifetime(until=…)`.
        reported: Number of input tokens, including cached ones, that the provider reported for the model call that
            returned this reply. None if the history does not contain it.
        source: The native message, for the adapter that read it. This field is ignored when artifacts are compared.
        origin: The artifact as it was read, if this one is a changed copy; otherwise None. This field is ignored when
            artifacts are compared.
        memo: A cache of values computed from this artifact. It never affects results, and is ignored when artifacts are
            compared.

    Raises:
        ConfigError: If `kind` is a misspelled `Kind`, `content` is neither a string nor a tuple of parts, or another
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

        def __init__(  # declared so that `kind` accepts a string, which the type of the field does not allow
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
        # Spelled out, because it runs for every message: a loop over the fields would take four times as long.
        if type(self.content) is not str and not isinstance(self.content, (str, tuple)):
            raise _wrong("content", "a text or a tuple of parts", self.content)
        if self.name is not None and not isinstance(self.name, str):
            raise _wrong("name", "a text", self.name)
        if self.answers is not None and not isinstance(self.answers, str):
            raise _wrong("answers", "the id of a call, a text", self.answers)
        if self.lifetime is not None and not isinstance(self.lifetime, Lifetime):
            raise _wrong("lifetime", "a Lifetime", self.lifetime)
        if self.token_count is not None:
            whole_number(self.token_count, "token_count")
        for part in self.content if type(self.content) is tuple else ():
            if not isinstance(part, Part):
                given = type(part).__name__
                raise ConfigError(f"content is a text or a tuple of parts; it contains {given}", setting="content")

    @property
    def text(self) -> str:
        """The text of the content; the texts of several parts are joined by line breaks."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content if part.text is not None)

    @property
    def root(self) -> Artifact:
        """The artifact as it was read: `origin` if this artifact is a changed copy; otherwise the artifact itself."""
        return self.origin or self

    def _repr_html_(self) -> str:
        from html import escape

        calls = "".join(f"<code>{escape(call.name)}({escape(call.arguments)})</code> " for call in self.calls)
        shown = f"<pre style='white-space:pre-wrap'>{escape(self.text)}</pre>"
        return f"<div><b>{escape(self.kind.value)}</b> {calls}{shown}</div>"

    def texts(self) -> Iterator[tuple[Slot, str]]:
        """Yield the slot and the value of every string in this artifact that people or the model may have written."""
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
        """Yield every string that is sent with this artifact and never edited: names, ids, and fixed fields.

        A field is fixed if it is not `editable`.

        Yields:
            The path of the string in the artifact, the string, and whether it is an identifier (see `Field`).
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
        """Return a copy with `change` applied to every editable string; this object itself if no string changes.

        Args:
            change: Function that takes a slot and the string in it, and returns the new string.
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
        """Return an edited copy like `edit`, but pass the texts of all content parts together to one function.

        Masking needs this to find personal data that is split across several parts.

        Args:
            contents: Function that takes the texts of all editable parts, if there are several, and returns the new
                texts.
            change: Function that takes any other editable string and returns the new string.
        """
        parts = (
            [] if isinstance(self.content, str) else [p.text for p in self.content if p.text is not None and p.editable]
        )
        texts = iter(contents(parts) if len(parts) > 1 else map(change, parts))
        return self.edit(lambda slot, text: next(texts) if parts and slot == "content" else change(text))

    def revised(self, **changes: Unpack[Changes]) -> Artifact:
        """Return a copy with the given fields changed. The copy refers to the original; its tokens are counted anew."""
        return replace(self, token_count=None, origin=self.root, **changes)


def _take_as_tool(artifact: Artifact, kind: object) -> None:
    """Turn an artifact of an unknown kind into a tool output. The unknown kind becomes its role, which reports show."""
    from difflib import get_close_matches  # imported here because few histories contain unknown kinds

    names = {*Kind, *_ALIASES}
    if not isinstance(kind, str) or not kind or get_close_matches(kind.lower(), names, n=1, cutoff=_TYPO):
        raise ConfigError(f"unknown kind {kind!r}{nearest(kind, names)}; known are {', '.join(Kind)}", setting="kind")
    object.__setattr__(artifact, "kind", Kind.TOOL)
    object.__setattr__(artifact, "role", artifact.role or kind)


def _wrong(setting: str, expected: str, value: object) -> ConfigError:
    """Return the error for a field, or for a part of the content, that has a wrong type."""
    return ConfigError(f"{setting} is {expected}, not {type(value).__name__}", setting=setting)
