"""The messages of Chat Completions, as artifacts, and the parts that similar formats share.

The fields are those of `openai.types.chat.ChatCompletionMessageParam`. Other keys remain unchanged.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, cast

from ctxguard.adapting.content_format import (
    REASONING_FIELDS,
    ContentFormat,
    audio,
    read_audio,
    read_file,
    read_image,
    read_unknown,
    reasoning_changes,
    reasoning_parts,
    text_reader,
)
from ctxguard.adapting.fields import (
    REMOVED,
    Path,
    arguments_as_text,
    copy_with,
    get,
    is_list,
    is_record,
    member_at,
    require_field,
    require_list,
    text_of,
    unreadable,
)
from ctxguard.adapting.json_walk import PlacedField, extra_fields
from ctxguard.adapting.message_view import (
    CHAT,
    MessageView,
    PlacedCall,
    PlacedPart,
    fill_nulls,
    is_converse,
    require_role,
    write_each,
)
from ctxguard.adapting.read_cache import ReadCache
from ctxguard.artifacts import BY_POSITION, Artifact, Kind, Part, ToolCall
from ctxguard.errors import HistoryError
from ctxguard.formats.format import (
    Body,
    Delta,
    Ends,
    Event,
    Format,
    Item,
    Sent,
    Weave,
    add_to,
    choice_of,
    described_schema,
    ended_choices,
    records_of,
    text_files,
    without_old_reasoning,
)

if TYPE_CHECKING:
    from ctxguard.draft import Draft

Message: TypeAlias = Mapping[str, object]
"""A message: a dict, or an SDK object with the same fields."""

_KINDS: Final = {role: Kind(role) for role in ("system", "developer", "user", "assistant", "tool", "function")}
_NOTHING: Final[Sequence[PlacedPart]] = [(("content",), Part("text", ""))]
"""The parts of a message that has no content."""
_OWN: Final = frozenset({"role", "content", "name", "tool_call_id", "tool_calls", "function_call", *REASONING_FIELDS})
"""Fields of a message that the adapter reads."""
_AS_TEXT: Final = ("name", "tool_call_id", "reasoning")
"""Fields of these that the adapter reads only if they are strings."""
_SPEAKERS: Final[Mapping[object, Kind]] = {role: kind for role, kind in _KINDS.items() if role != "function"}
_PLAIN: Final = frozenset({"role", "content", "tool_call_id"})
_CALL: Final = frozenset({"id", "type", "function"})
_FUNCTION: Final = frozenset({"name", "arguments"})
_EXACT: Final = frozenset({"arguments", "input"})
"""Fields whose values are compared exactly: also the order of keys and the types of numbers (see `ReadCache`)."""
_INSTEAD: Final = ("tool_calls", "function_call", "audio")
"""Fields of a message that it may have instead of a content."""
_FOREIGN: Final = ("tool_use", "tool_result", "thinking")


def _untyped(part: object, path: Path) -> list[PlacedPart]:
    return read_unknown(part, path) if get(part, "text") is None else text_reader("text")(part, path)


def _thinking(part: object, path: Path) -> list[PlacedPart]:
    """Return the parts of thinking in Mistral's format, a list of parts. Signed thinking is read as an unknown part."""
    if get(part, "signature") is not None:
        return read_unknown(part, path)
    thought = PARTS.read(get(part, "thinking"), (*path, "thinking"))
    return [(place, replace(part, kind="reasoning") if part.kind == "text" else part) for place, part in thought]


PARTS: Final[ContentFormat] = ContentFormat(
    {
        None: _untyped,
        **dict.fromkeys(("text", "input_text", "output_text"), text_reader("text")),
        **dict.fromkeys(("summary_text", "reasoning_text"), text_reader("text", "reasoning")),
        "refusal": text_reader("refusal", "refusal"),
        "thinking": _thinking,
        **dict.fromkeys(("image_url", "input_image", "computer_screenshot"), read_image),
        "input_audio": read_audio,
        **dict.fromkeys(("file", "input_file", "document_url"), read_file),
    }
)


class MessageFormat(Format):
    """Reads and writes histories in which each message is one artifact, with tool calls as in Chat Completions.

    Attributes:
        content: Reader of a message's content.
        texts: Fields other than the content that contain text of the model, which may be changed.
        own: Further fields that the format reads.
        reads_one_by_one: See `ctxguard.adapting.Adapter`.
    """

    content: ClassVar[ContentFormat] = PARTS
    texts: ClassVar[tuple[str, ...]] = ()
    own: ClassVar[tuple[str, ...]] = ()
    reads_one_by_one: ClassVar[bool] = True
    _own: ClassVar[frozenset[str]]
    _messages: ClassVar[ReadCache[Message, Artifact]]

    def __init_subclass__(cls) -> None:
        view = cls().view
        cls._own = _OWN.union(cls.texts, cls.own)
        cls._messages = ReadCache(lambda message: view(message).artifact(message), exact=_EXACT)

    def read(self, native: Sequence[Message]) -> list[Artifact]:
        """Return the artifacts of a list of messages.

        Raises:
            HistoryError: If `native` is not a list, a message has no role, or the content or calls of a message cannot
                be read or are in another format.
        """
        return self._messages.read(require_list(native, "messages"))

    def write(self, native: Sequence[Message], artifacts: Iterable[Artifact]) -> list[Message]:
        """Return the messages for these artifacts; an unchanged artifact becomes the object that it was read from."""
        del native  # every artifact refers to its message
        return write_each(artifacts, self._written)

    @staticmethod
    def last_stage(draft: Draft) -> Draft:
        """Replace what the API refuses as null or empty: texts, contents without calls, and lists of parts or calls."""
        draft = fill_nulls(draft)
        artifacts = [
            a.revised() if get(a.source, "role") and _without_empties(a.source) else a for a in draft.artifacts
        ]
        return draft.revise(artifacts, action="repaired", reason="the API refuses what is null or an empty list")

    def view(self, message: Message) -> MessageView:
        """Return the view of a message: its texts, calls, and ids, with their paths (see `MessageView`)."""
        plain = _plain_view(message)  # fast path for nearly all messages, which takes a fifth of the time
        if plain is not None:
            return plain
        role = require_role(message, CHAT)
        kind = _KINDS.get(role, Kind.ASSISTANT)
        calls = [*_calls_of(message)]
        instead = ("tool_calls", "function_call", "audio", *REASONING_FIELDS, *self.texts)
        content = require_field(message, "content", unless=instead if kind is Kind.ASSISTANT else ())
        said = [((name,), Part("text", text)) for name in self.texts if (text := text_of(message, name))]
        spoken = [((), audio(None))] if get(message, "audio") else []  # the provider has stored the audio
        parts = [*self.content.read(content, ("content",)), *said, *reasoning_parts(message), *spoken]
        answered = BY_POSITION if role == "function" else text_of(message, "tool_call_id") if role == "tool" else None
        return MessageView(
            kind,
            parts or _NOTHING,
            calls,
            tool_call_id=answered,
            tool_call_id_at=("tool_call_id",),
            name=text_of(message, "name"),
            role=None if role in _KINDS else role,
            fields=[*self._fields(message, calls)],
        )

    def changes(self, message: Message, changes: Mapping[Path, object]) -> Iterable[tuple[Path, object]]:
        """Return the changes of a message, converted to what the API accepts (see `reasoning_changes`)."""
        return reasoning_changes(message, changes)

    def created(self, artifact: Artifact) -> Message:
        """Return the message for an artifact that a stage added, such as a summary or a stand-in for a result."""
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

    def _fields(self, message: Message, calls: Sequence[PlacedCall]) -> Iterator[PlacedField]:
        """Yield the fields of a message other than its content and calls."""
        unread = {key for key in _AS_TEXT if not isinstance(get(message, key), str)}
        if get(message, "role") != "tool":
            unread.add("tool_call_id")
        yield from extra_fields(message, own=self._own - unread)
        yield from self.content.extra_fields(get(message, "content"), ("content",))
        for call in calls:
            if call.id[0] == "tool_calls":
                form = call.arguments[:-1]
                record = member_at(message, call.id[:-1])
                if _is_plain_call(record):
                    continue
                taken = {call.arguments, call.id, (*form, "name")}
                yield from extra_fields(record, call.id[:-1], taken=taken)

    def _written(self, artifact: Artifact) -> Message:
        if artifact.source is None:
            return self.created(artifact)
        message: Message = artifact.source  # type: ignore[assignment]  # set by this adapter
        # fast path for nearly all masked messages
        empties = _without_empties(message)
        if type(message) is dict and type(message.get("content")) is str and not empties and _differs_in_text(artifact):
            return cast("Message", {**message, "content": artifact.content})
        return copy_with(message, {**empties, **dict(self.changes(message, self.view(message).changes(artifact)))})


def _is_plain_call(call: object) -> bool:
    """Return whether a call has only fields that the adapter reads."""
    if type(call) is not dict or not call.keys() <= _CALL or call.get("type", "function") != "function":
        return False
    function = call.get("function")
    return type(function) is dict and function.keys() <= _FUNCTION


def _plain_view(message: Message) -> MessageView | None:
    """Return the `MessageView` of a message that has only a role and a text; None for any other message."""
    if type(message) is not dict or not message.keys() <= _PLAIN:
        return None
    kind, text = _SPEAKERS.get(text_of(message, "role")), message.get("content")
    if kind is None or type(text) is not str or not text:
        return None
    answered = text_of(message, "tool_call_id") if kind is Kind.TOOL else None
    if answered is not message.get("tool_call_id"):
        return None
    return MessageView(kind, [(("content",), Part("text", text))], (), answered, ("tool_call_id",))


class _ChatWeave(Weave):
    def again(self) -> None:
        super().again()
        self._calls: dict[int, Item] = {}

    def feed(self, event: Event) -> Event | None:
        choice = next(iter(records_of(event.get("choices"))), None)
        said = get(choice, "delta")
        if choice is None or not isinstance(said, Mapping):
            return None if self.goes_on else event
        if not self.items:
            self.items = [{"role": "assistant", "content": None}]
        fields = {
            key: value for key, value in said.items() if key != "tool_calls" and not (self.round and key == "role")
        }
        add_to(self.items[0], fields)
        listed = records_of(said.get("tool_calls"))
        calls = [new for call in listed if (new := self._call_piece(call)) is not None]
        is_over = choice.get("finish_reason") is not None
        if (is_over and not self._ends()) or (listed and not (calls or is_over or any(fields.values()))):
            return None
        if not self.round and not self.hidden:
            return event
        return copy_with(event, {("choices", 0, "delta"): {**fields, **({"tool_calls": calls} if calls else {})}})

    def _call_piece(self, call: Body) -> Item | None:
        """Return a piece of a call with the index that the client sees; None if the call is hidden."""
        index = int(str(call.get("index") or 0))
        if index not in self._calls:
            self._calls[index] = {"id": None, "type": "function"}
            self.items.append(self._calls[index])
        known = self._calls[index]
        for key, value in call.items():
            if isinstance(value, Mapping):
                add_to(known.setdefault(key, {}), value)
            elif value is not None and key != "index":
                known[key] = value
        if self._is_hidden(known):
            self.hidden.add(index)
            return None
        return {**call, "index": index - sum(other < index for other in self.hidden)}


class OpenAIAdapter(MessageFormat):
    """Reads messages of Chat Completions as artifacts, one for each message.

    An unchanged message remains the same object. In a changed message, only the changed texts differ, except that
    `reasoning_details` are removed as a whole if one of them would change, and that a call or result without an id may
    get one. A message that a stage adds is a plain dict. Messages of unknown role are kept and pinned, and the report
    names the role. Unknown content parts are opaque: counted and searched, but never changed.
    """

    name = "openai"
    api = "chat"
    paths = ("/chat/completions",)
    json_settings = ("response_format",)
    taken = ("tools", "instructions")
    billed = ("response_format", "functions", "prediction")
    weave = _ChatWeave
    response_path = ("choices", 0, "message")
    call_paths = (("function", "name"), ("function", "arguments"), ("id",))

    def detects(self, native: object) -> bool:
        """Return whether `native` is a list of messages with the roles of Chat Completions."""
        is_chat = is_list(native) and all(text_of(m, "role") in _KINDS and not _is_foreign(m) for m in native)
        return is_chat and not is_converse(native)

    def sent(self, body: Body) -> Sent:
        """Return the billed parts of a request.

        Reasoning before the last user message is left out, because the chat templates of open models leave it out, too.
        """
        tools = (*records_of(body.get("tools")), *records_of(body.get("functions")))
        if str(body.get("model")).startswith("openai/"):  # OpenRouter forwards these to the Responses API
            tools = tuple(
                {"type": "function", **f} if isinstance(f := t.get("function"), Mapping) else t for t in tools
            )
        # Mistral's reasoning is part of the content and is not dropped
        read = without_old_reasoning(self.counted(body), of=lambda a: any(get(a.source, f) for f in REASONING_FIELDS))
        return Sent(
            tuple(read),
            tools,
            choice_of(body.get("tool_choice")),
            described_schema(get(body.get("response_format"), "json_schema")),
            documents=text_files(body.get("messages")),
        )

    def deltas(self, event: Event) -> Iterator[Delta]:
        """Yield the pieces of text in an event of a streamed response."""
        choices = event.get("choices")
        for number, choice in enumerate(choices if isinstance(choices, list) else ()):
            said = get(choice, "delta")
            for path, text, call in _pieces(said) if isinstance(said, dict) else ():
                channel = (get(choice, "index") or 0, path[0], call)
                alone = partial(_alone, event, choice, path, call)
                calls = (channel,) if path[0] in _CALLS else ()
                place = ("choices", number, "delta", *path)
                yield Delta(channel, place, text, path[-1] == "arguments", alone, calls, channel[0])

    def called(self, event: Event) -> Iterator[tuple[Hashable, object]]:
        """Yield a key and the record of each tool call that an event begins or continues."""
        for choice in records_of(event.get("choices")):
            said, index = get(choice, "delta"), get(choice, "index") or 0
            calls = get(said, "tool_calls")
            for number, call in enumerate(calls if isinstance(calls, list) else ()):
                place = get(call, "index")
                record = get(call, "function") or get(call, "custom")
                yield (index, "tool_calls", number if place is None else place), record
            yield (index, "function_call", None), get(said, "function_call")

    def ends(self, event: Event) -> Ends | None:
        """Return a predicate that is true for the channels (see `Channel`) that an event ends; None if it ends none."""
        return ended_choices(event, listed="choices", reason="finish_reason")

    def declared(self, schema: Body) -> Body:
        """Return a function, given by its `schema`, in the format of the API's tools."""
        return {"type": "function", "function": schema}

    def response_items(self, response: Body) -> list[Item]:
        """Return the message of a response without its calls, followed by each call."""
        message = member_at(response, self.response_path)
        said = [{k: v for k, v in one.items() if k != "tool_calls"} for one in records_of(message)]
        return [*said, *map(dict, records_of(get(message, "tool_calls") or ()))]

    def as_history(self, items: Iterable[Item]) -> list[Item]:
        """Return one message with the texts and all calls of the items."""
        message: Item = {"role": "assistant", "content": None}
        for item in items:
            more = item if "role" in item else {"tool_calls": [*message.get("tool_calls", ()), item]}
            add_to(message, more)
        return [message]

    def with_items(self, response: Body, items: Sequence[Item]) -> Body:
        """Return a copy of a response with other items."""
        return copy_with(response, {self.response_path: self.as_history(items)[0]})


_TEXTS: Final = ("content", "refusal")
_CALLS: Final = ("tool_calls", "function_call")
_NO_TEXTS: Final = frozenset(
    {*_TEXTS, "id", "name", "reasoning", "reasoning_content", "reasoning_details", "role", "thinking", "type"}
)
"""Keys of a delta that are no further texts of the answer. Servers add texts of their own, also in pieces."""


def _pieces(said: Mapping[str, object]) -> Iterator[tuple[Path, str, object]]:
    """Yield path and text of each piece in a choice's delta, and the index of its tool call (None without a call)."""
    calls = said.get("tool_calls")
    others = (key for key, value in said.items() if key not in _NO_TEXTS and isinstance(value, str))
    places: list[tuple[Path, object]] = [((key,), None) for key in (*_TEXTS, *others)]
    for number, call in enumerate(calls if isinstance(calls, list) else ()):
        index = get(call, "index")
        name = number if index is None else index
        forms = (("function", "arguments"), ("custom", "input"))
        places += (((("tool_calls", number, *form), name)) for form in forms)
    for path, index in [*places, (("function_call", "arguments"), None)]:
        text = member_at(said, path)
        if isinstance(text, str) and text:
            yield path, text, index


def _alone(event: Event, choice: Mapping[str, object], path: Path, call: object, text: str) -> Event:
    """Return an event whose delta contains only the piece at `path`, with `text` instead of its own text."""
    said: Any = text
    for key in reversed(path):
        said = {key: said} if isinstance(key, str) else [{"index": call, **said}]
    return {**event, "choices": [{**choice, "delta": said, "finish_reason": None}]}


def _without_empties(message: object) -> dict[Path, object]:
    """Return the changes of a message by which nothing in it is null or empty that the API refuses.

    Only a message with calls or with audio may lack a content, and no message may have an empty list of calls.
    """
    changes: dict[Path, object] = {}
    if get(message, "tool_calls") in ([], ()):
        changes["tool_calls",] = REMOVED
    content = get(message, "content")
    if content in ([], ()) or (content is None and not any(get(message, key) for key in _INSTEAD)):
        changes["content",] = ""
    return changes


def _is_foreign(message: object) -> bool:
    """Return whether a message has content blocks of Anthropic's format."""
    content = get(message, "content")
    return isinstance(content, list) and any(get(part, "type") in _FOREIGN for part in content)


def _differs_in_text(artifact: Artifact) -> bool:
    """Return whether only the content of an artifact was changed, from a string that is not empty to a string."""
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


_OTHERS: Final = ("system", "developer", "user", "tool", "function")
"""Roles whose messages cannot call tools."""


def _calls_of(message: Message) -> Iterator[PlacedCall]:
    """Yield the calls of a message, each with the paths of its fields.

    Raises:
        HistoryError: If a message of a role other than the assistant's has calls.
    """
    listed, legacy = get(message, "tool_calls"), get(message, "function_call")
    if (listed or legacy) and (role := get(message, "role")) in _OTHERS:
        field = "tool_calls" if listed else "function_call"
        raise HistoryError(f"{field} in a message of role {role!r}; the assistant alone calls tools")
    for number, call in enumerate(_calls_list(listed)):
        yield _listed_call(call, ("tool_calls", number))
    if legacy:
        yield _place_call(legacy, "arguments", BY_POSITION, ("function_call",), ("function_call", "id"))


def _calls_list(listed: object) -> Sequence[object]:
    if not listed:
        return ()
    if isinstance(listed, (list, tuple)):
        return listed
    remedy = "; write [call]" if isinstance(listed, Mapping) else ""
    raise unreadable(("tool_calls",), "a list of calls", listed, remedy=remedy)


def _listed_call(call: object, path: Path) -> PlacedCall:
    if not is_record(call):
        raise unreadable(path, "a dict with 'function'", call)
    form, field = ("custom", "input") if get(call, "custom") is not None else ("function", "arguments")
    return _place_call(get(call, form), field, text_of(call, "id"), (*path, form), (*path, "id"))


def _place_call(inner: object, field: str, identity: str | None, path: Path, id_at: Path) -> PlacedCall:
    if not is_record(inner):
        raise unreadable(path, f"a dict with 'name' and {field!r}", inner)
    arguments = arguments_as_text(require_field(inner, field, path))
    call = ToolCall(str(get(inner, "name") or ""), arguments, identity, takes_object=field == "arguments")
    return PlacedCall(call, (*path, field), id_at)
