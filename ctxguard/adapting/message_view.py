"""The view of a native message: its texts, calls and ids, and their places in it.

An adapter builds a `MessageView` of each message. The view creates the artifact, and it converts a changed artifact
back into new values by place, so that no adapter has to compare artifacts.

A message may be split into fragments that can be kept or dropped separately, and joined again: Anthropic puts all
results of a turn into one message, and a PydanticAI request contains several prompts. Each becomes its own artifact,
which must remember its message, and its members of that message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, TypeAlias, TypeVar

from ctxguard.adapting.editing import are_same_objects
from ctxguard.adapting.extra_fields import PlacedField
from ctxguard.adapting.fields import NULL_TEXT, Path
from ctxguard.artifacts import Artifact, Kind, Part, ToolCall

if TYPE_CHECKING:
    from ctxguard.draft import Draft


LEFT_OUT: Final = "…"
"""The text of a message that became empty: APIs refuse empty messages."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """The members of a message that an artifact was read from; its adapter stores it as the artifact's `source`.

    Attributes:
        message: The native message.
        occurrence: Identifies one reading of the message: a message that occurs twice in a history is read twice, and
            the fragments of the two must not be joined with each other.
        indexes: The indexes of the members.
        is_whole: Whether they are all members of the message.
        holds_all_results: Tells `RepairExchanges` that a message with results contains all results of its calls.
    """

    holds_all_results: ClassVar[bool] = True
    message: object
    occurrence: object
    indexes: tuple[int, ...]
    is_whole: bool


def split_message(message: object, groups: Sequence[tuple[int, ...]]) -> list[Fragment]:
    """Return the fragments of a message, by the indexes of the members of each; together they are all members."""
    occurrence = object()
    return [Fragment(message, occurrence, indexes, len(groups) == 1) for indexes in groups]


def join_fragments(
    artifacts: Sequence[Artifact], members: Sequence[object], write: Callable[[Artifact], Iterable[object]]
) -> list[object] | None:
    """Return the new members of a message, or None if they are unchanged.

    Args:
        artifacts: The artifacts that now belong to the message; the first is a fragment of it.
        members: The current members of the message.
        write: Returns the members for an artifact, the same objects if nothing was changed.
    """
    first = artifacts[0]
    # the common case, detected without writing anything: one fragment, all of the message, unchanged
    if len(artifacts) == 1 and first.origin is None and first.source.is_whole:  # type: ignore[attr-defined]
        return None
    written = [member for artifact in artifacts for member in write(artifact)]
    return None if are_same_objects(written, members) else written


def fill_nulls(draft: Draft, text: str = "") -> Draft:
    """Write an empty text for null: the `last_stage` of adapters whose API refuses null, as all do."""
    artifacts = [
        a.revised(content=tuple(Part("text", text) if part is NULL_TEXT else part for part in a.content))
        if not isinstance(a.content, str) and any(part is NULL_TEXT for part in a.content)
        else a
        for a in draft.artifacts
    ]
    return draft.revise(artifacts, action="repaired", reason="the API refuses a text that is null")


def fill_emptied(draft: Draft) -> Draft:
    """Write "…" into emptied messages: the `last_stage` of adapters whose API refuses empty ones."""
    draft = fill_nulls(draft, LEFT_OUT)
    artifacts = [a.revised(content=LEFT_OUT) if _is_emptied(a) else a for a in draft.artifacts]
    return draft.revise(artifacts, action="bounded", reason="nothing is left of it, and the API refuses that")


def fill_blank(draft: Draft) -> Draft:
    """Leave out texts of white space, and write "…" into messages without any other text.

    The `last_stage` of adapters whose API refuses such texts. It also applies to the caller's messages: Anthropic
    ("text content blocks must contain non-whitespace text") and Bedrock ("The text field in the ContentBlock object is
    blank").
    """
    artifacts = list(map(_without_blanks, draft.artifacts))
    reason = "the API refuses texts of white space"
    return fill_emptied(draft.revise(artifacts, action="repaired", reason=reason))


def _without_blanks(artifact: Artifact) -> Artifact:
    """Return an artifact without blank texts; a message or result without any other text says "…"."""
    content = artifact.content
    if artifact.kind is Kind.SYSTEM:  # system prompts are never changed
        return artifact
    texts = (content,) if isinstance(content, str) else tuple(p.text if p.kind == "text" else None for p in content)
    blank = [text is not None and not text.strip() for text in texts]
    # an empty result or call is not a blank text, and an artifact emptied by a stage is reported as such
    may_be_empty = artifact.kind is Kind.TOOL or bool(artifact.calls) or _is_emptied(artifact)
    if not any(blank) or (may_be_empty and not any(texts)):
        return artifact
    if all(blank) and not artifact.calls:
        return artifact.revised(content=LEFT_OUT)
    return artifact.revised(content="" if isinstance(content, str) else tuple(map(_emptied, content, blank)))


def _emptied(part: Part, is_blank: bool) -> Part:  # noqa: FBT001 - for `map`
    return replace(part, text="") if is_blank else part


def _is_emptied(artifact: Artifact) -> bool:
    """Return whether an artifact is a whole message that a stage has emptied."""
    fragment, content = artifact.source, artifact.content
    if artifact.kind is Kind.TOOL or artifact.calls or (artifact.origin is None and fragment is not None):
        return False
    nothing = not content if isinstance(content, str) else all(part.text == "" for part in content)
    return nothing and (fragment is None or (isinstance(fragment, Fragment) and fragment.is_whole))


PlacedPart: TypeAlias = tuple[Path, Part]
"""A part of a content and the place of its text; the place is `()` for a part without a text to change."""
Message = TypeVar("Message")
Placed = TypeVar("Placed")

TITLE_FIELDS: Final = ("title", "source", "context", "filename")
"""Fields whose texts name a document, a search result or a file."""
_EMPTY_TITLE: Final = "…"


# Tuples, because one is created for every message: a frozen dataclass takes three times as long.
class PlacedCall(NamedTuple):
    """A tool call and its place. Without places, the adapter itself writes a changed call.

    Attributes:
        call: The tool call as read.
        arguments: The place of its arguments.
        id: The place of its id.
        as_native: Converts new arguments, a text, to the form that the message uses.
    """

    call: ToolCall
    arguments: Path = ()
    id: Path = ()
    as_native: Callable[[str], object] = str


class MessageView(NamedTuple):
    """The contents of a native message that one artifact represents.

    Attributes:
        kind: The kind of the artifact.
        parts: The parts of its content, in order.
        calls: The tool calls it makes.
        tool_call_id: The id of the call whose result it is.
        tool_call_id_at: The place of that id.
        name: The name of the participant or the tool.
        role: The native role if it corresponds to no kind; such an artifact is pinned.
        pinned: Whether it must never be dropped.
        reported: The input tokens that the provider reported for the request that this message answers.
        fields: The fields other than the content, see `extra_fields`.
    """

    kind: Kind
    parts: Sequence[PlacedPart] = ()
    calls: Sequence[PlacedCall] = ()
    tool_call_id: str | None = None
    tool_call_id_at: Path = ()
    name: str | None = None
    role: str | None = None
    pinned: bool = False
    reported: int | None = None
    fields: Sequence[PlacedField] = ()

    def artifact(self, source: object) -> Artifact:
        """Return the artifact.

        Args:
            source: The adapter's own note about the origin of the artifact; `write` finds the message by it.
        """
        return Artifact(
            self.kind,
            _content([part for _, part in self.parts]),
            calls=tuple([placed.call for placed in self.calls]),
            answers=self.tool_call_id,
            name=self.name,
            role=self.role,
            pinned=self.pinned or self.role is not None,
            reported=self.reported,
            fields=tuple([field for _, field in self.fields]),
            source=source,
        )

    def changes(self, artifact: Artifact) -> dict[Path, object]:
        """Return the differences of a changed copy of the artifact, as new values by their places in the message."""
        origin = artifact.root
        changes: dict[Path, object] = {}
        if artifact.content != origin.content:
            changes.update((path, _text(path, part)) for path, part in _changed_parts(artifact, self.parts) if path)
        # stages may change the arguments and ids of calls, but never their number
        if artifact.calls != origin.calls:
            for placed, was, now in zip(self.calls, origin.calls, artifact.calls, strict=True):
                if was.arguments != now.arguments and placed.arguments:
                    changes[placed.arguments] = placed.as_native(now.arguments)
                if was.id != now.id and placed.id:
                    changes[placed.id] = now.id
        if artifact.fields != origin.fields:
            for (path, _), old, new in zip(self.fields, origin.fields, artifact.fields, strict=True):
                if path and old.text != new.text:
                    changes[path] = new.text
        if artifact.answers != origin.answers and self.tool_call_id_at:
            changes[self.tool_call_id_at] = artifact.answers
        return changes


def _content(parts: Sequence[Part]) -> str | tuple[Part, ...]:
    if not parts:
        return ""
    first = parts[0]
    is_plain = len(parts) == 1 and first.kind == "text" and not first.signed
    return first.text if is_plain and first.text is not None else tuple(parts)


def _text(path: Path, part: Part) -> str | None:
    # APIs refuse an empty title, while an empty text is left to the adapter
    return _EMPTY_TITLE if part.text == "" and path[-1] in TITLE_FIELDS else part.text


def _changed_parts(artifact: Artifact, parts: Sequence[PlacedPart]) -> Iterator[tuple[Path, Part]]:
    content = artifact.content
    now = list(content) if not isinstance(content, str) and len(content) == len(parts) else _spread(artifact, parts)
    for (path, was), part in zip(parts, now, strict=True):
        if was != part:
            yield path, part


def _spread(artifact: Artifact, parts: Iterable[PlacedPart]) -> Iterator[Part]:
    """Yield the parts with the fewer texts of a changed content: the first parts take them, the rest are emptied.

    A stage may replace several texts by one, for example a long content by a digest.
    """
    content = artifact.content
    texts = [content] if isinstance(content, str) else [part.text for part in content if part.text is not None]
    coming = iter(texts)
    for _, part in parts:
        yield part if part.text is None else replace(part, text=next(coming, ""))


def nested(index: int, members: Iterable[tuple[Path, Placed]]) -> Iterator[tuple[Path, Placed]]:
    """Yield the parts or fields of a member of a list, with their places in the list."""
    for path, member in members:
        yield ((index, *path) if path else path), member


def write_each(artifacts: Iterable[Artifact], write: Callable[[Artifact], Message]) -> list[Message]:
    """Return one message for each artifact, for formats in which a message is one artifact.

    Args:
        artifacts: The artifacts; `source` is the message that each was read from.
        write: Creates the message for an artifact that was changed or added.
    """
    return [
        artifact.source if artifact.origin is None and artifact.source is not None else write(artifact)  # type: ignore[misc]
        for artifact in artifacts
    ]
