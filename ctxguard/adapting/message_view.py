"""What adapters look through: fields of dicts and objects, places in them, and copies with other values there.

An adapter says in a `View` what a message holds and where it stands; how an artifact is read from that, and what a
changed artifact changes there, is the same for all.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import is_
from typing import Final, NamedTuple, TypeAlias, TypeGuard, TypeVar

from ctxguard.artifacts import Artifact, Kind, Part, ToolCall
from ctxguard.errors import HistoryError
from ctxguard.tokens import EstimateCounter
from ctxguard.tokens.media import audio_media, audio_tokens, file_media, file_tokens, image_media, image_tokens

__all__ = [
    "GONE",
    "NAMES",
    "CallPlace",
    "Path",
    "Slot",
    "View",
    "are_same",
    "argument_text",
    "audio",
    "by_member",
    "changed_slots",
    "content_of",
    "edited",
    "fields_of",
    "file",
    "get",
    "image",
    "is_list",
    "is_record",
    "members",
    "misread",
    "opaque",
    "optional_field",
    "parsed",
    "place_name",
    "sealed",
    "text_of",
    "wanted_field",
    "wanted_list",
    "wanted_text",
    "within",
    "written_each",
]

Path: TypeAlias = tuple[str | int, ...]
"""Where a value stands: keys of dicts, names of fields, numbers of list members."""
Slot: TypeAlias = tuple[Path, Part]
"""A piece of content and the place of its text; `()` for what has no text to change."""
Value = TypeVar("Value")

NAMES: Final = ("title", "source", "context", "filename")
"""Fields whose texts name a document, a search result or a file; APIs refuse empty ones."""
GONE: Final = object()
"""In place of a new value: the place itself goes."""
_LOOKED_AT: Final = 20_000
_NO_RECORDS: Final = (str, bytes, int, float, list, tuple, set, type(None))


def get(value: object, key: str) -> object:
    """Return a field of a dict or of an object; None where it has none."""
    if type(value) is dict or isinstance(value, Mapping):
        return value.get(key)
    return getattr(value, key, None)


def text_of(value: object, key: str) -> str | None:
    """Return a field that holds a text; None where it holds anything else."""
    found = get(value, key)
    return found if isinstance(found, str) else None


def wanted_field(value: object, key: str, path: Path = (), *, instead: Iterable[str] = ()) -> object:
    """Return a field that providers demand; it may be None.

    Args:
        value: a dict, or an object with fields.
        key: its name.
        path: where the value stands in its message.
        instead: fields with one of which the value can do without it.

    Raises:
        HistoryError: it is missing; what was written under a misspelt name would be passed on unmasked.
    """
    is_missing = key not in value if isinstance(value, Mapping) else not hasattr(value, key)
    if is_missing and not any(get(value, other) is not None for other in instead):
        raise HistoryError(f"{place_name(path) or 'it'} has no {key!r}")
    return get(value, key)


def optional_field(value: object, key: str, path: Path = (), *, beside: Iterable[str]) -> object:
    """Return a field that providers do not demand; None where it is missing.

    Args:
        value: a dict, or an object with fields.
        key: its name.
        path: where the value stands in its message.
        beside: the other fields that the value can have.

    Raises:
        HistoryError: it is missing, and a text or list stands under a name that is none of the fields: misspelt, it
            would be passed on unmasked.
    """
    fields = fields_of(value)
    if key not in fields:
        held = (name for name, member in fields.items() if isinstance(member, (str, list)) and name not in beside)
        stray = next(held, None)
        if stray is not None:
            raise HistoryError(f"{place_name(path)} has no {key!r}, and {stray!r} is none of its fields")
    return fields.get(key)


def wanted_text(value: object, key: str, path: Path = ()) -> str:
    """Return a field that has to hold a text.

    Args:
        value: a dict, or an object with fields.
        key: its name.
        path: where the value stands in its message.

    Raises:
        HistoryError: it holds none; passed on unread, a misspelt one would not be masked.
    """
    text = get(value, key)
    if not isinstance(text, str):
        raise misread((*path, key), "a text", text)
    return text


def fields_of(value: object) -> dict[str, object]:
    """Return the fields of a dict or of a pydantic object as a dict of their own; none of anything else."""
    if isinstance(value, Mapping):
        return dict(value)
    return value.model_dump(exclude_unset=True) if hasattr(value, "model_dump") else {}


def is_list(native: object) -> TypeGuard[Sequence[object]]:
    """Tell a list, of any class, from a text."""
    return isinstance(native, Sequence) and not isinstance(native, (str, bytes))


def wanted_list(native: Sequence[Value], of: str) -> Sequence[Value]:
    """Return a history, which is a list.

    Args:
        native: what was handed over.
        of: what errors say that it should hold.

    Raises:
        HistoryError: it is no list.
    """
    if not is_list(native):
        raise HistoryError(f"a list of {of} is wanted, not {type(native).__name__}")
    return native


def within(number: int, slots: Iterable[Slot]) -> Iterator[Slot]:
    """Walk the slots of a member of a list, with their places in the list."""
    for path, part in slots:
        yield ((number, *path) if path else path), part


def by_member(changes: Mapping[Path, Value]) -> dict[int, dict[Path, Value]]:
    """Return changes in a list as changes in each of its members, by number."""
    found: dict[int, dict[Path, Value]] = {}
    for (number, *path), new in changes.items():
        found.setdefault(int(number), {})[tuple(path)] = new
    return found


def is_record(value: object) -> bool:
    """Tell a dict or an object with fields from texts, numbers, lists and None."""
    return not isinstance(value, _NO_RECORDS)


def misread(path: Path, wanted: str, value: object, *, remedy: str = "") -> HistoryError:
    """Return the error for a value that cannot be read: passed on unread, it would be neither masked nor counted."""
    return HistoryError(f"{place_name(path)} is {wanted}, not {type(value).__name__}{remedy}")


def place_name(path: Path) -> str:
    """Return a place as errors name it, such as `content[1].text`."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")


def members(content: object, path: Path, *, of: str = "part") -> Iterator[tuple[Path, object]]:
    """Walk what a content holds, each with its place: a text is one itself, an empty one and None hold nothing.

    Args:
        content: a text, a list of texts and records, or None.
        path: where it stands.
        of: what errors call its records.

    Raises:
        HistoryError: it is something else, or holds something else.
    """
    if isinstance(content, str):
        if content:
            yield path, content
    elif isinstance(content, (list, tuple)):
        for number, member in enumerate(content):
            if not isinstance(member, str) and not is_record(member):
                raise misread((*path, number), "a text or a dict with 'type'", member)
            yield (*path, number), member
    elif content is not None:
        remedy = f"; write [{of}]" if isinstance(content, Mapping) else ""
        raise misread(path, f"a text or a list of {of}s", content, remedy=remedy)


# Both are tuples since they are made for every message that is read: a frozen dataclass takes three times as long.
class CallPlace(NamedTuple):
    """Hold a tool call and where it stands; without places its adapter writes it by itself.

    Attributes:
        call: as it is read.
        arguments: place of its arguments.
        id: place of its id.
        form: gives new arguments, a text, the form in which they stand there.
    """

    call: ToolCall
    arguments: Path = ()
    id: Path = ()
    form: Callable[[str], object] = str


class View(NamedTuple):
    """Say what an artifact holds of a native message, and where it stands there.

    Attributes:
        kind: of the artifact.
        slots: pieces of its content, in order.
        calls: the tool calls it makes.
        answers: id of the call it answers.
        answers_at: place of that id.
        name: of the participant or tool.
        name_at: place of that name.
        role: the native role where no kind stands for it; such an artifact is pinned.
        pinned: whether it has to stay in any case.
        reported: input tokens that the provider reported for the call that gave it.
    """

    kind: Kind
    slots: Sequence[Slot] = ()
    calls: Sequence[CallPlace] = ()
    answers: str | None = None
    answers_at: Path = ()
    name: str | None = None
    name_at: Path = ("name",)
    role: str | None = None
    pinned: bool = False
    reported: int | None = None

    def artifact(self, source: object) -> Artifact:
        """Return the artifact; `source` is the adapter's mark of where it came from."""
        return Artifact(
            self.kind,
            content_of([part for _, part in self.slots]),
            calls=tuple(place.call for place in self.calls),
            answers=self.answers,
            name=self.name,
            role=self.role,
            pinned=self.pinned or self.role is not None,
            reported=self.reported,
            source=source,
        )

    def changes(self, artifact: Artifact) -> dict[Path, object]:
        """Return the new values that an artifact has for places of this view; none where nothing was changed."""
        origin = artifact.root
        changes: dict[Path, object] = {}
        if artifact.content != origin.content:
            changes.update((path, _named(path, now)) for path, _, now in changed_slots(artifact, self.slots) if path)
        if artifact.calls != origin.calls:
            for place, was, now in zip(self.calls, origin.calls, artifact.calls, strict=True):
                if was.arguments != now.arguments and place.arguments:
                    changes[place.arguments] = place.form(now.arguments)
                if was.id != now.id and place.id:
                    changes[place.id] = now.id
        if artifact.name != origin.name:
            changes[self.name_at] = artifact.name
        if artifact.answers != origin.answers and self.answers_at:
            changes[self.answers_at] = artifact.answers
        return changes


def _named(path: Path, part: Part) -> str | None:
    """Return the new text of a place; what names something is never empty."""
    return "…" if part.text == "" and path[-1] in NAMES else part.text


def are_same(now: Sequence[object], was: Sequence[object]) -> bool:
    """Tell whether two lists hold the very same objects."""
    return len(now) == len(was) and all(map(is_, now, was))


def edited(value: Value, changes: Mapping[Path, object]) -> Value:
    """Return a copy with other values in these places; nothing but the way to them is copied.

    Dicts and lists become dicts and lists, other objects copies by their own operator (`model_copy`,
    `dataclasses.replace`), or dicts where a field of theirs is `GONE`. Dataclasses lose a field by None, and are not
    given fields that their version does not have.
    """
    return _edited(value, changes) if changes else value  # type: ignore[return-value]  # of the same kind


def _edited(value: object, changes: Mapping[Path, object]) -> object:
    if () in changes:
        return changes[()]
    inner: dict[str | int, dict[Path, object]] = {}
    for (head, *rest), new in changes.items():
        inner.setdefault(head, {})[tuple(rest)] = new
    if isinstance(value, (list, tuple)):
        copied = (_edited(member, inner[n]) if n in inner else member for n, member in enumerate(value))
        return [member for member in copied if member is not GONE]
    return _copied(value, {str(key): _edited(get(value, str(key)), change) for key, change in inner.items()})


def _copied(value: object, changes: Mapping[str, object]) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        known = {field.name for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **{k: None if v is GONE else v for k, v in changes.items() if k in known})
    if hasattr(value, "model_copy") and GONE not in changes.values():
        return value.model_copy(update=dict(changes))
    return {key: member for key, member in {**fields_of(value), **changes}.items() if member is not GONE}


def content_of(parts: Sequence[Part]) -> str | tuple[Part, ...]:
    """Return parts as the content of an artifact: a text alone is its text."""
    if not parts:
        return ""
    first = parts[0]
    alone = len(parts) == 1 and first.kind == "text" and not first.signed
    return first.text if alone and first.text is not None else tuple(parts)


def changed_slots(artifact: Artifact, slots: Sequence[Slot]) -> Iterator[tuple[Path, Part, Part]]:
    """Walk the places whose part is another now, with the part that was and the one that is.

    One text that took the place of several parts goes into the first place for a text and leaves the others empty.
    """
    content = artifact.content
    parts = list(content) if not isinstance(content, str) and len(content) == len(slots) else _spread(artifact, slots)
    for (path, was), now in zip(slots, parts, strict=True):
        if was != now:
            yield path, was, now


def _spread(artifact: Artifact, slots: Iterable[Slot]) -> Iterator[Part]:
    content = artifact.content
    texts = [content] if isinstance(content, str) else [part.text for part in content if part.text is not None]
    coming = iter(texts)
    for _, part in slots:
        yield part if part.text is None else dataclasses.replace(part, text=next(coming, ""))


def written_each(artifacts: Iterable[Artifact], write: Callable[[Artifact], Value]) -> list[Value]:
    """Return one message for each artifact: the very one it was read from, or what `write` makes of a changed one."""
    return [
        artifact.source if artifact.origin is None and artifact.source is not None else write(artifact)  # type: ignore[misc]
        for artifact in artifacts
    ]


def argument_text(value: object) -> str:
    """Return the arguments of a call as text: a text as it is, anything else as compact JSON.

    Stages shorten and mask JSON in its compact form, so what they make of it is read again as it was counted.
    """
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str, separators=(",", ":"))


def parsed(text: object) -> object:
    """Return what a JSON text stands for; None where it is none, or stands for null."""
    try:
        return json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None


def image(url: object, *, detail: object = None) -> Part:
    """Return the part of an image, by its link or `data:` URL."""
    media = image_media(url if isinstance(url, str) else "", detail=str(detail or "auto"))
    return Part("image", tokens=image_tokens(media.size, detail=media.detail), media=media)


def audio(data: object) -> Part:
    """Return the part of a sound, by its base64 data where there is any."""
    known = data if isinstance(data, str) else None
    return Part("audio", tokens=audio_tokens(known), media=audio_media(known or ""))


def file(data: object) -> Part:
    """Return the part of a file, by its base64 data where there is any."""
    known = data if isinstance(data, str) else None
    return Part("file", tokens=file_tokens(known), media=file_media(known or ""))


def opaque(value: object) -> Part:
    """Return the part of what nobody here knows: counted by its JSON, at most 20,000 characters of it.

    Raises:
        HistoryError: it cannot be written as JSON, so that no client could send it.
    """
    try:
        sent = json.dumps(fields_of(value) or value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise HistoryError(f"a part of unknown type cannot be written as JSON: {error}") from None
    return Part("opaque", tokens=EstimateCounter().count(sent[:_LOOKED_AT]))


def sealed(data: object) -> int:
    """Return about how many tokens encrypted or signed base64 stands for: 4 bytes a token."""
    return len(data) * 3 // 16 if isinstance(data, str) else 0
