"""The input items of the Responses API, as artifacts: single items first, then the adapter of whole lists.

The item types are those of `openai.types.responses.ResponseInputItemParam`; which outputs belong to which calls is as
in OpenAI's Agents SDK. Items of other types are passed on unchanged.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from ctxguard.adapting.content_format import places_of_texts, read_unknown, sealed
from ctxguard.adapting.fields import (
    REMOVED,
    Path,
    arguments_as_text,
    by_index,
    copy_with,
    get,
    is_list,
    member_at,
    require_field,
    require_list,
    text_of,
)
from ctxguard.adapting.json_walk import PlacedField, extra_fields, fixed_field, without_tokens
from ctxguard.adapting.message_view import (
    RESPONSES,
    MessageView,
    PlacedCall,
    PlacedPart,
    fill_nulls,
    nested,
    refuse_foreign,
)
from ctxguard.adapting.read_cache import ReadCache, read_at
from ctxguard.artifacts import Artifact, Field, Kind, Part, PartKind, ToolCall
from ctxguard.errors import HistoryError
from ctxguard.formats.chat import PARTS
from ctxguard.formats.format import (
    Body,
    Channel,
    Delta,
    Ends,
    Event,
    Format,
    Sent,
    Weave,
    choice_of,
    described_schema,
    records_of,
    text_files,
    with_text,
    without_old_reasoning,
)
from ctxguard.history.pairing import STRICT_IDS
from ctxguard.tokens.families import Costs
from ctxguard.tokens.schemas import fields_of, is_any_deferred

if TYPE_CHECKING:
    from ctxguard.draft import Draft


Item: TypeAlias = Mapping[str, object]
"""An input item: a dict, or an SDK object with the same fields."""

_ROLES: Final = {role: Kind(role) for role in ("system", "developer", "user", "assistant")}
_OUTPUT_OF: Final = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "local_shell_call": "local_shell_call_output",
    "tool_search_call": "tool_search_output",
    "mcp_approval_request": "mcp_approval_response",
}
_CALL_OF: Final = {output: call for call, output in _OUTPUT_OF.items()}
_ID_AT: Final = {"mcp_approval_request": "id", "mcp_approval_response": "approval_request_id"}
"""The field that contains the id of a call, for types that do not use `call_id`."""
_FIXED: Final = (
    "item_reference",
    "compaction",
    "compaction_trigger",
    "configuration_update",
    "additional_tools",
    "mcp_list_tools",
)
"""Types of items that concern the whole conversation. They are never dropped; each becomes one artifact."""
_HOSTED: Final = (
    "file_search_call",
    "web_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
    "tool_search_call",
    "tool_search_output",
    "program",
    "program_output",
)
"""Types of items that the provider executed. Such items cannot be sent without their ids."""
_KNOWN: Final = frozenset({*_OUTPUT_OF, *_CALL_OF, *_HOSTED, "message", "reasoning"})
_OWN: Final = _KNOWN.union(_FIXED) - {"message"}
"""Types of items that no other format has."""
_CONTENT: Final = {"message": "content", "custom_tool_call_output": "output", "function_call_output": "output"}
"""Types of items whose content is a string or a list of parts, and the field that contains it."""
_ARGUMENTS: Final = {"function_call": "arguments", "custom_tool_call": "input", "mcp_approval_request": "arguments"}
_ACTIONS: Final = ("action", "actions", "operation", "output", "reason")
"""Fields that may contain an action or its result, in calls and outputs that the two tables above do not list."""
_INSTEAD: Final = ("actions", "operation", "arguments", "approve", "tools", "status")
"""Fields that an item may have instead of an action or output."""
_TEXTS: Final = ("text", "refusal", "command", "commands", "diff", "stdout", "stderr", "output", "reason")
"""Keys in actions and their outputs whose strings a stage may change."""
_BRINGING: Final = ("additional_tools", "tool_search_output")
"""Types of items that define tools."""
_PLACE: Final = ("item_id", "output_index", "content_index")
"""Fields of a streamed event that say which text it continues."""
_SEALED: Final = frozenset({"encrypted_content"})
_SPOKEN: Final = ("type", "text", "refusal")
"""Fields that a part of an edited assistant message keeps."""
_BLANK: Final = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)
"""A picture of one pixel, which stands for a missing screenshot."""


def _item_type(item: object) -> str | None:
    """Return the type of an item: `message` if it has only a role, `item_reference` if it has only an id."""
    kind = text_of(item, "type")
    if kind is None:
        kind = "message" if text_of(item, "role") is not None else None
    return "item_reference" if kind is None and text_of(item, "id") is not None else kind


def _call_id(item: object) -> str | None:
    """Return the id of a call, or the id of the call that an output answers."""
    kind = _item_type(item) or ""
    found = text_of(item, _ID_AT.get(kind, "call_id"))
    return text_of(item, "id") if found is None and kind == "local_shell_call_output" else found


def _is_in(item: object, kind: str | None, pairs: Mapping[str, str]) -> bool:
    """Return whether an item is of a type in `pairs` and not executed by the provider.

    A tool search without a call id was executed by the provider.
    """
    return kind in pairs and (kind not in _HOSTED or _call_id(item) is not None)


def _is_model_item(item: object, kind: str | None) -> bool:
    """Return whether an item of type `kind` was written by the model, or by the provider on its behalf."""
    if kind == "message":
        return get(item, "role") == "assistant"
    return kind not in _FIXED and not _is_in(item, kind, _CALL_OF)


def _is_bound(item: object) -> bool:
    """Return whether the provider accepts an item only with its id."""
    return _item_type(item) in _HOSTED or _stays((item,))


def _stays(items: tuple[object, ...]) -> bool:
    """Return whether items must not be dropped: items in `_FIXED`, and items of unknown type or role."""
    if _item_type(items[0]) == "message":
        return str(get(items[0], "role")) not in _ROLES
    return all(_item_type(item) not in _KNOWN for item in items)


def _view(items: tuple[Item, ...]) -> MessageView:
    """Return the view of the consecutive items of one artifact. Each path in it begins with the index of the item.

    Each item has the framing of a message. Since the artifact is counted as one message, the framing of the other items
    is added as a field. The calls that a program makes are part of its run and have no separate results.
    """
    first, kinds = items[0], list(map(_item_type, items))
    answers, runs = _is_in(first, kinds[0], _CALL_OF), "program" in kinds
    framed: list[PlacedField] = [((), Field("", "", tokens=Costs().message)) for _ in items[1:]]
    calling = [n for n, item in enumerate(items) if not runs and _is_in(item, kinds[n], _OUTPUT_OF)]
    role = str(get(first, "role")) if kinds[0] == "message" else None
    return MessageView(
        Kind.TOOL if answers else _ROLES.get(role or "", Kind.ASSISTANT),
        [placed for n, item in enumerate(items) for placed in nested(n, _parts(item, str(kinds[n]), in_program=runs))],
        [_place_call(items[number], str(kinds[number]), number) for number in calling],
        tool_call_id=_call_id(first) if answers else None,
        tool_call_id_at=(0, "call_id"),
        name=text_of(first, "name") if answers or role else None,
        role=None if role in _ROLES else role,
        pinned=_stays(items),
        fields=[placed for number, item in enumerate(items) for placed in nested(number, _fields(item))] + framed,
    )


def _fields(item: Item) -> Iterator[PlacedField]:
    """Yield the fields of an item other than its content and its call."""
    kind = str(_item_type(item))
    read = _parts(item, kind, in_program=True)
    is_opaque = any(part.kind == "opaque" and part.tokens != 0 for _, part in read)
    if is_opaque and kind not in _CONTENT and kind != "reasoning":
        # the item is already counted as a whole, but its texts still have to be searched
        yield from without_tokens(fixed_field("", item, ()))
        return
    held = _CONTENT.get(kind, "")
    shown = {key for key in _ACTIONS if get(get(item, key), "type") == "computer_screenshot"}
    own = {held, *shown, *(("summary",) if kind == "reasoning" else ("role",) if kind == "message" else ())}
    is_half = _is_in(item, kind, _CALL_OF) or _is_in(item, kind, _OUTPUT_OF)
    own |= {
        key
        for key, is_read in (("type", True), ("call_id", is_half), ("name", is_half or kind == "message"))
        if is_read and isinstance(get(item, key), str)
    }
    yield from extra_fields(item, own=own, billed=_SEALED, taken=places_of_texts(read))
    yield from PARTS.extra_fields(get(item, held), (held,))
    for key in shown:
        yield from PARTS.part_fields(get(item, key), (key,))


def _place_call(item: Item, kind: str, number: int) -> PlacedCall:
    """Return the call in an item, and the paths of its fields. Structured arguments belong to the content instead."""
    field = _ARGUMENTS.get(kind, "")
    arguments = arguments_as_text(get(item, field))
    call = ToolCall(str(get(item, "name") or kind), arguments, _call_id(item), takes_object=kind == "function_call")
    return PlacedCall(call, (number, field), (number, "call_id"))


def _parts(item: Item, kind: str, *, in_program: bool) -> list[PlacedPart]:
    """Return the parts of an item's content; in a program's run, these include the arguments of calls."""
    refuse_foreign(item, RESPONSES)
    if kind in _CONTENT:
        return PARTS.read(require_field(item, _CONTENT[kind]), (_CONTENT[kind],))
    if kind in _ARGUMENTS:
        text = arguments_as_text(require_field(item, _ARGUMENTS[kind]))
        return [((_ARGUMENTS[kind],), Part("text", text))] if in_program else []
    if kind == "reasoning":
        return _reasoning_parts(item)
    if kind in _OUTPUT_OF or kind in _CALL_OF:
        require_field(item, "output" if kind in _CALL_OF else "action", unless=_INSTEAD)
        texts = [placed for key in _ACTIONS for placed in _leaves(get(item, key), (key,))]
        return texts or read_unknown(item, ())
    return read_unknown(item, ())


def _reasoning_parts(item: Item) -> list[PlacedPart]:
    require_field(item, "summary", unless=("content", "encrypted_content"))
    found = [placed for key in ("summary", "content") for placed in PARTS.read(get(item, key), (key,))]
    encrypted = get(item, "encrypted_content")
    return [*found, ((), sealed(encrypted, kind="opaque"))] if isinstance(encrypted, str) else found


def _leaves(value: object, path: Path) -> list[PlacedPart]:
    """Return the texts in an action or in its output that a stage may change, and a screenshot.

    Texts under keys that `_TEXTS` does not list are never changed; they are only counted and searched.
    """
    if isinstance(value, str):
        named = next((key for key in reversed(path) if isinstance(key, str)), "")
        return [(path, Part("text", value))] if named in _TEXTS or "env" in path else []
    if isinstance(value, (list, tuple)):
        return [placed for number, member in enumerate(value) for placed in _leaves(member, (*path, number))]
    if get(value, "type") == "computer_screenshot":
        return PARTS.read_part(value, path)
    return [placed for key, member in fields_of(value).items() for placed in _leaves(member, (*path, key))]


def _without_empties(item: Item) -> dict[Path, object]:
    """Return the changes of an item by which nothing in it is null or empty that the API refuses."""
    changes: dict[Path, object] = {}
    field = _CONTENT.get(_item_type(item) or "", "")
    if field and get(item, field) in (None, [], ()):
        changes[field,] = ""
    if get(item, "id") == "":
        changes["id",] = REMOVED
    return changes


def _unstored(item: Item, changes: Mapping[Path, object]) -> Item:
    """Return a changed copy of an item without its id, since with the id the server would use its stored copy."""
    fields = copy_with(fields_of(item), changes)
    is_message = _item_type(item) == "message"
    if is_message and get(item, "role") == "assistant":
        return _spoken(fields)
    return copy_with(fields, {("id",): REMOVED}) if is_message or "call_id" in fields else fields


def _spoken(fields: Mapping[str, object]) -> Item:
    """Return an assistant message with only its role, content, and phase; unknown content parts are kept."""
    content = fields.get("content")
    if isinstance(content, (list, tuple)):
        parts = [_spoken_part(part) for part in content]
        content = parts[0].get("text", parts) if len(parts) == 1 and isinstance(parts[0], dict) else parts
    return {"role": "assistant", "content": content, **({"phase": fields["phase"]} if fields.get("phase") else {})}


def _spoken_part(part: object) -> object:
    is_known = any(get(part, key) is not None for key in ("text", "refusal"))
    return {key: get(part, key) for key in _SPOKEN if get(part, key) is not None} if is_known else part


def _substitute_output(artifact: Artifact, call_type: str) -> Item:
    """Return a substitute for a missing output, in the format that the type of its call requires."""
    text, output = artifact.text, _OUTPUT_OF.get(call_type, "function_call_output")
    id_at = "id" if call_type == "local_shell_call" else _ID_AT.get(output, "call_id")
    shapes: dict[str, dict[str, object]] = {
        "computer_call": {"output": {"type": "computer_screenshot", "image_url": _BLANK}},
        "shell_call": {"output": [{"stdout": "", "stderr": text, "outcome": {"type": "exit", "exit_code": 1}}]},
        "apply_patch_call": {"status": "failed", "output": text},
        "tool_search_call": {"tools": []},
        "mcp_approval_request": {"approve": False, "reason": text},
    }
    return {"type": output, id_at: artifact.answers, **shapes.get(call_type, {"output": text})}


class _ResponsesWeave(Weave):
    _last = -1
    _id: object = None

    def feed(self, event: Event) -> Event | None:
        number = event.get("sequence_number")
        shown = self._shown(event, str(event.get("type")))
        if shown is None or not isinstance(number, int):
            return shown
        self._last = self._last + 1 if self.hidden or self.round else number
        return shown if shown.get("sequence_number") == self._last else {**shown, "sequence_number": self._last}

    def _shown(self, event: Event, kind: str) -> Event | None:
        item, index, answer = event.get("item"), event.get("output_index"), event.get("response")
        if isinstance(index, int):
            if isinstance(item, dict) and self._is_hidden(item):
                self.hidden.add(index)
            if isinstance(item, dict) and kind.endswith(".done"):
                self.items.append(item)
            place = self._place(index)
            return None if index in self.hidden else event if place == index else {**event, "output_index": place}
        if not isinstance(answer, dict):
            return event
        self._id = self._id or answer.get("id")
        if kind not in ("response.completed", "response.incomplete", "response.failed"):
            return None if self.round else event
        is_hidden = kind != "response.failed" and not self._ends()
        if is_hidden or not (self.round or self.hidden):
            return None if is_hidden else event
        self.renamed = (str(self._id), str(answer.get("id")))  # clients reject a changed id
        visible = [*self.shown, *self.format.without_calls(self.items, self.name)]
        return {**event, "response": {**answer, "id": self._id, "output": visible}}


class ResponsesAdapter(Format):
    """Reads input items of the Responses API as artifacts; the items of one reply of the model become one artifact.

    Reasoning is kept or dropped together with the next item, as the API requires. Not preserved: the `id` of an edited
    item (the server would use its stored copy), the `status` and `annotations` of an edited assistant message, the
    reasoning before an edited item, and the ids of the other items that followed that reasoning. An item that is there
    twice, with the same id, is sent once; another item with an id that is used loses its id. Items of unknown type,
    references, compactions, and settings remain unchanged.

    Args:
        incremental: Whether the calls of earlier responses are stored by the server (`previous_response_id`,
            `conversation`), so that an output without its call is valid.
    """

    name = "openai-responses"
    api = "responses"
    paths = ("/responses", "/responses/input_tokens", "/responses/compact")
    history = "input"
    json_settings = ("text",)
    weave = _ResponsesWeave
    response_path = ("output",)
    call_paths = (("name",), ("arguments",), ("call_id",))
    call_types = ("function_call", "custom_tool_call")
    taken = ("tools", "instructions")
    billed = ("text", "prompt")
    servers = ("tools", "mcp", frozenset({"authorization", "headers"}))
    call_ids = STRICT_IDS

    def __init__(self, *, incremental: bool = False) -> None:
        self.incremental = incremental

    @staticmethod
    def last_stage(draft: Draft) -> Draft:
        """Drop items that are there twice, and replace what the API refuses as null or empty: texts, contents, ids."""
        once = [artifact for artifact in draft.artifacts if not isinstance(artifact.source, _Repeated)]
        draft = fill_nulls(draft.revise(once, reason="a duplicate of an earlier item"))
        artifacts = [a.revised() if any(map(_without_empties, _items(a))) else a for a in draft.artifacts]
        return draft.revise(artifacts, action="repaired", reason="the API refuses what is null or empty")

    def read(self, native: Sequence[Item]) -> list[Artifact]:
        """Return the artifacts of a list of input items.

        Raises:
            HistoryError: If `native` is not a list, an item has neither `type` nor `role`, or the content of an item
                cannot be read or is in another format.
        """
        artifacts = _with_shell_call_ids(_read(require_list(native, "input items")))
        fixed = (item for artifact in artifacts if artifact.pinned for item in _items(artifact))
        trusts = self.incremental or any(_item_type(item) == "item_reference" for item in fixed)
        return list(_with_server_calls(artifacts)) if trusts else artifacts

    def write(self, native: Sequence[Item], artifacts: Iterable[Artifact]) -> list[Item]:
        """Return the items for these artifacts; an unchanged artifact becomes the object that it was read from."""
        del native  # every artifact refers to its items
        given = list(artifacts)
        call_types = {} if all(isinstance(artifact.source, tuple) for artifact in given) else _call_types(given)
        items: list[Item] = []
        for artifact in given:
            source = artifact.source
            if not isinstance(source, tuple):
                items += _new_items(artifact, call_types)
            else:
                items += source if artifact.origin is None else _changed_items(artifact, source)
        return items

    def detects(self, native: object) -> bool:
        """Return whether `native` is a list in which an item has a type that only the Responses API has."""
        types = [_item_type(item) for item in native] if is_list(native) else [None]
        return None not in types and not _OWN.isdisjoint(types)

    def native(self, body: Body) -> list[Any]:
        """Return the input items of a body; an `input` that is a string becomes one message."""
        history = body.get("input")
        if history is None or isinstance(history, str):
            return [] if history is None else [{"role": "user", "content": history}]
        return list(super().native(body))

    def bringing(self, body: Body) -> list[Body]:
        """Return the items that define tools for the whole conversation."""
        return [item for item in records_of(self.native(body)) if item.get("type") == "additional_tools"]

    def written(self, body: Body, native: object) -> dict[str, object]:
        """Return a copy of the body with other input. A string stays a string if the new input is one text message."""
        items: list[Any] = list(native)  # type: ignore[call-overload]  # returned by `write`
        was = body.get("input")
        if was is None and not items:
            return dict(body)
        is_text = isinstance(was, str) and len(items) == 1 and isinstance(items[0].get("content"), str)
        return {**body, "input": items[0]["content"] if is_text else items}

    def sent(self, body: Body) -> Sent:
        """Return the billed parts of a request. Each item is a message; items before a compaction are left out."""
        items = records_of(self.native(body))
        items = items[max((n for n, item in enumerate(items) if item.get("type") == "compaction"), default=0) :]
        artifacts = self.counted({**body, "input": items})
        if get(body.get("reasoning"), "context") != "all_turns":
            artifacts = without_old_reasoning(artifacts)
        instructions = body.get("instructions")
        if isinstance(instructions, str) and instructions:
            artifacts.insert(0, Artifact(Kind.SYSTEM, instructions))
        tools = tuple(records_of(body.get("tools")))
        bringing = [records_of(item.get("tools")) for item in items if item.get("type") in _BRINGING]
        brought = tuple(tuple({**tool, "defer_loading": False} for tool in listed) for listed in bringing)
        waits = is_any_deferred(tools, {str(tool.get("name")) for listed in brought for tool in listed})
        return Sent(
            tuple(artifacts),
            tuple(tool for tool in tools if waits or not brought or not _is_hosted_search(tool)),
            choice_of(body.get("tool_choice")),
            described_schema(member_at(body, ("text", "format"))),
            brought=brought,
            documents=text_files(items),
            empty_system=instructions == "",
            namespaces=tuple(str(item["namespace"]) for item in items if item.get("namespace")),
            searches=sum(item.get("type") == "tool_search_output" for item in items),
        )

    def counted(self, body: Body) -> list[Artifact]:
        """Return one artifact for each item rather than each reply, because the API frames each item as a message."""
        try:
            return [one for one in _BILLED.read([(item,) for item in self.native(body)]) if one is not None]
        except HistoryError:
            return super().counted(body)

    def deltas(self, event: Event) -> Iterator[Delta]:
        """Yield the pieces of text in an event of a streamed response."""
        kind, said = str(event.get("type")), event.get("delta")
        if kind.endswith(".delta") and isinstance(said, str) and not ("reasoning" in kind or "audio." in kind):
            name = kind.removesuffix(".delta")
            channel = (name, *map(event.get, _PLACE))
            alone = partial(with_text, event, ("delta",))
            calls = self.calls_of(event) if "_call" in kind else ()
            yield Delta(channel, ("delta",), said, name.endswith("arguments"), alone, calls)

    def called(self, event: Event) -> Iterator[tuple[Hashable, object]]:
        """Yield a key and the record of each tool call that an event begins or continues."""
        item = event.get("item")
        if isinstance(item, dict):
            for key in self.calls_of({**event, "item_id": item.get("id")}):
                yield key, item

    def calls_of(self, event: Event) -> tuple[Hashable, ...]:
        """Return the keys of the tool call that an event belongs to, see `called`."""
        index, name = event.get("output_index"), event.get("item_id")
        return (*((index,) if isinstance(index, int) else ()), *((name,) if isinstance(name, str) and name else ()))

    def ends(self, event: Event) -> Ends | None:
        """Return a predicate that is true for the channels (see `Channel`) that an event ends; None if it ends none."""
        kind = str(event.get("type"))
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            return lambda _: True
        if not kind.endswith(".done"):
            return None
        index = event.get("output_index")
        return lambda channel: channel[2] == index

    def places(self, channel: Channel) -> Iterable[Hashable]:
        """Return the places of a text in the response that later events may repeat whole: its item and its part."""
        return ((channel[2], None), (channel[2], channel[3]))

    def place_of(self, event: Event) -> Hashable:
        """Return the place of what an event repeats whole; None if it repeats nothing, or the response."""
        index = event.get("output_index")
        return None if index is None else (index, event.get("content_index"))

    def stored(self, event: Event) -> object:
        """Return the response in an event; the provider stores it under its id."""
        return event.get("response")

    def declared(self, schema: Body) -> Body:
        """Return a function in the format of the API's tools. It is not strict, so parameters may be optional."""
        return {"type": "function", **schema, "strict": False}


def _billed(items: tuple[Item, ...]) -> Artifact | None:
    """Return an artifact with the billed content of an item; None if nothing in it is billed as a message.

    Encrypted reasoning is billed without its summary.
    """
    read, kind = _view(items), _item_type(items[0])
    if kind in ("tool_search_output", "additional_tools"):  # their tools are counted as tools
        return Artifact(Kind.TOOL) if kind == "tool_search_output" else None
    if kind in ("item_reference", "compaction_trigger", "configuration_update"):
        return None
    if kind == "tool_search_call":
        arguments = arguments_as_text(get(items[0], "arguments"))
        return Artifact(Kind.ASSISTANT, calls=(ToolCall("tool_search", arguments),))
    if kind in ("reasoning", "compaction"):
        encrypted = get(items[0], "encrypted_content")
        as_kind: PartKind = "reasoning" if kind == "reasoning" else "opaque"  # a compaction is never dropped
        said = [part for at, part in read.parts if at[1:2] == ("content",)]
        return Artifact(Kind.ASSISTANT, tuple([sealed(encrypted, kind=as_kind)] if encrypted else said))
    return read.artifact(None)


_BILLED: Final[ReadCache[tuple[Item, ...], Artifact | None]] = ReadCache(_billed, key=lambda items: id(items[0]))


def _is_hosted_search(tool: Body) -> bool:
    return tool.get("type") == "tool_search" and tool.get("execution") != "client"


def _runs(native: Sequence[Item]) -> Iterator[tuple[Item, ...]]:
    """Yield the items of each artifact: those of one reply of the model or of one run of a program, or one other item.

    Reasoning or calls connect the items of a reply. A message that directly follows another message begins a new reply.
    """
    run: list[Item] = []
    programs, spoke, mixed = 0, False, False
    known: dict[tuple[str, str], Item] = {}  # by type, too: an output may have the id of its call
    for position, item in enumerate(native):
        kind = _item_type(item)
        if kind is None:
            raise HistoryError(_fault(item), position=position)
        identity = kind, text_of(item, "id") or ""
        is_used = identity in known and programs == 0
        if identity[1]:
            known.setdefault(identity, item)
        if is_used and known[identity] != item and kind != "reasoning" and not _is_bound(item):
            item = _WITHOUT_IDS.read([item])[0]  # noqa: PLW2901 - another item, whose id a gateway used again
        elif is_used and known[identity] == item:
            if run:
                yield tuple(run)
                run, mixed = [], False
            yield _Repeated((item,))
            spoke = False
            continue
        speaks = _is_model_item(item, kind)
        goes_on = speaks and spoke and (mixed or kind not in ("message", "reasoning"))
        if run and programs == 0 and not goes_on:
            yield tuple(run)
            run, mixed = [], False
        run.append(item)
        spoke, mixed = speaks, mixed or kind != "message"
        programs = max(0, programs + (kind == "program") - (kind == "program_output"))
    if run:
        yield tuple(run)


_WITHOUT_IDS: Final[ReadCache[Item, Item]] = ReadCache(lambda item: _unstored(item, {("id",): REMOVED}))


class _Repeated(tuple[Item, ...]):
    """An item that is the same, with the same id, as an earlier item of the input. The API refuses both together."""

    __slots__ = ()
    is_repeated: ClassVar[bool] = True


def _artifact(items: tuple[Item, ...]) -> Artifact:
    if isinstance(items, _Repeated):  # neither counted nor a message of the model: `RepairExchanges` drops it
        return Artifact(Kind.TOOL, "", 0, source=items)
    return _view(items).artifact(items)


def _fault(item: object) -> str:
    if isinstance(item, Mapping):
        return "it has neither 'type' nor 'role'; every input item needs one"
    return f"expected a dict with 'type' or 'role', got {type(item).__name__}"


_CACHE: Final[ReadCache[tuple[Item, ...], Artifact]] = ReadCache(
    _artifact,
    key=lambda items: (type(items), *map(id, items)),
    exact=frozenset({"arguments", "input", "action", "operation", "output"}),
)


def _read(native: Sequence[Item]) -> list[Artifact]:
    """Return one artifact for each group of items; an error names the position of the item."""
    try:
        return _CACHE.read(list(_runs(native)))
    except HistoryError:
        for position, item in enumerate(native):
            read_at(_view, (item,), position)
        raise


def _with_shell_call_ids(artifacts: list[Artifact]) -> list[Artifact]:
    """Return the artifacts, in which each output of a local shell call names the id of its call.

    Some outputs name the id of the item that contains the call instead.
    """
    calling = (item for a in artifacts if a.calls for item in _items(a))
    named = {get(item, "id"): _call_id(item) for item in calling if get(item, "type") == "local_shell_call"}
    return (
        [replace(a, answers=named[a.answers]) if a.answers in named else a for a in artifacts] if named else artifacts
    )


def _with_server_calls(artifacts: Sequence[Artifact]) -> Iterator[Artifact]:
    """Insert an artifact with the calls before outputs whose calls only the server has, so that each output has a call.

    Nothing is sent for such an artifact: it has no items.
    """
    called: set[str | None] = set()
    orphaned: list[tuple[bool, Artifact]] = []
    for artifact in artifacts:
        called.update(call.id for call in artifact.calls)
        orphaned.append((artifact.kind is Kind.TOOL and artifact.answers not in called, artifact))
    for are_orphans, group in groupby(orphaned, itemgetter(0)):
        members = [artifact for _, artifact in group]
        if are_orphans:
            calls = tuple(ToolCall(a.name or "", "", a.answers) for a in members)
            yield Artifact(Kind.ASSISTANT, "", 0, calls=calls, pinned=True, source=())
        yield from members


def _items(artifact: Artifact) -> tuple[Item, ...]:
    """Return the items that an artifact was read from; an empty tuple if a stage added the artifact."""
    return artifact.source if isinstance(artifact.source, tuple) else ()


def _call_types(artifacts: Sequence[Artifact]) -> dict[str | None, str]:
    """Return the item type of each call, by the id of the call."""
    return {_call_id(item): str(_item_type(item)) for artifact in artifacts for item in _items(artifact)}


def _changed_items(artifact: Artifact, items: tuple[Item, ...]) -> list[Item]:
    """Return the items of a changed artifact. Reasoning and the items that follow it are changed or kept together."""
    if not items:  # items that were joined elsewhere
        return []
    empties = {(n, *path): new for n, item in enumerate(items) for path, new in _without_empties(item).items()}
    changes = by_index({**empties, **_view(items).changes(artifact)})
    thinks = [_item_type(item) == "reasoning" for item in items]
    begins = [n for n, thinking in enumerate(thinks) if thinking and n > 0 and not thinks[n - 1]]
    chunks = [range(*bounds) for bounds in pairwise([0, *begins, len(items)])]
    return [item for chunk in chunks for item in _changed_chunk(items, chunk, changes)]


def _changed_chunk(
    items: tuple[Item, ...], chunk: range, changes: Mapping[int, Mapping[Path, object]]
) -> Iterator[Item]:
    changed = any(number in changes for number in chunk)
    bound = any(_is_bound(items[number]) for number in chunk)
    thinks = _item_type(items[chunk.start]) == "reasoning"
    for number in chunk:
        item = items[number]
        if _item_type(item) == "reasoning":
            yield from [item] if not changed or (bound and number not in changes) else []
        else:
            frees = changed and thinks and not bound
            yield _unstored(item, changes.get(number, {})) if frees or number in changes else item


def _new_items(artifact: Artifact, call_types: Mapping[str | None, str]) -> list[Item]:
    """Return the items for an artifact that a stage added, such as a summary or a substitute for a missing result."""
    if artifact.kind is Kind.TOOL:
        return [_substitute_output(artifact, call_types.get(artifact.answers, "function_call"))]
    role = "user" if artifact.kind is Kind.TASK else artifact.kind.value
    spoken: list[Item] = [{"role": role, "content": artifact.text}] if artifact.text or not artifact.calls else []
    return spoken + [
        {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
        for call in artifact.calls
    ]
