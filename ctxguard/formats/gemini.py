"""The contents of Gemini's API, as artifacts: their parts first, then the adapter of contents and requests.

A content is Gemini's name for a message.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, ClassVar, Final, TypeAlias

from ctxguard.adapting.content_format import (
    ContentFormat,
    as_base64,
    audio,
    file,
    image,
    opaque,
    sealed,
    video,
    with_half,
)
from ctxguard.adapting.fields import (
    NULL_TEXT,
    REMOVED,
    Path,
    arguments_as_object,
    arguments_as_text,
    copy_with,
    get,
    is_list,
    is_record,
    member_at,
    parse_json,
    place_name,
    require_text,
    text_of,
    unreadable,
)
from ctxguard.adapting.json_walk import PlacedField, extra_fields
from ctxguard.adapting.message_view import (
    GEMINI,
    LEFT_OUT,
    Fragment,
    PlacedCall,
    PlacedPart,
    refuse_foreign,
    refuse_foreign_part,
)
from ctxguard.artifacts import Artifact, Half, Kind, Part, PartKind, ToolCall
from ctxguard.errors import HistoryError
from ctxguard.formats.blocks import BlockFormat, PlacedBlock, open_halves
from ctxguard.formats.format import (
    Body,
    Delta,
    Ends,
    Event,
    Sent,
    Weave,
    choice_of,
    ended_choices,
    records_of,
    without_old_reasoning,
)
from ctxguard.tokens.schemas import fields_of

NO_ID: Final = "no id: "
"""Prefix of the ids that stand in for missing ids. They are never sent, because Vertex AI rejects ids."""
_CAMEL: Final = {
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "inline_data": "inlineData",
    "file_data": "fileData",
    "executable_code": "executableCode",
    "code_execution_result": "codeExecutionResult",
    "thought_signature": "thoughtSignature",
    "mime_type": "mimeType",
    "tool_call": "toolCall",
    "tool_response": "toolResponse",
}
"""Fields as the Python SDK spells them, and as the REST API does."""
_CODE: Final = {"executable_code": "code", "code_execution_result": "output"}
"""Fields of parts with code that the provider runs, and the field in each that contains the text."""
_READ: Final = frozenset({"text", "thought", "function_call", "functionCall", "function_response", "functionResponse"})
"""Fields of a part that the adapter reads."""
_SIGNATURES: Final = frozenset({"thought_signature", "thoughtSignature"})
_SAYS_NOTHING: Final = _READ | _SIGNATURES
_READ_INSIDE: Final = frozenset({"id", "name", "args", "response", "parts", "role"})
"""Fields of a function call or a function response that the adapter reads."""
_BILLED: Final = "E"
"""First base64 character of the Gemini API's signatures; signatures of Vertex AI are not billed."""


def _spelled_field(record: object, name: str) -> tuple[str, object]:
    """Return the name of a field as the record spells it, and the field's value; None if the field is not set."""
    value = get(record, name)
    if value is not None or name not in _CAMEL:
        return name, value
    return _CAMEL[name], get(record, _CAMEL[name])


def _function_call(part: object) -> object:
    """Return the function call in a part; None if the part contains none."""
    return _spelled_field(part, "function_call")[1]


def _function_response(part: object) -> object:
    """Return the function response in a part; None if the part contains none."""
    return _spelled_field(part, "function_response")[1]


def _is_part(value: object) -> bool:
    """Return whether a value is a part rather than a content."""
    if isinstance(value, str) or any(_spelled_field(value, name)[1] is not None for name in ("text", *_CAMEL)):
        return True
    return text_of(value, "uri") is not None  # an uploaded file, as `client.files.upload` returns it


def _content(part: object, path: Path) -> list[PlacedPart]:
    if _function_call(part) is not None or _function_response(part) is not None:
        return [] if _function_response(part) is None else _response_parts(part, path)
    if isinstance(part, Mapping) and part.get("text", "") is None and not any(part.values()):
        return [((*path, "text"), NULL_TEXT)]  # most fields of an SDK part are None
    if get(part, "text") is not None:
        kind: PartKind = "reasoning" if get(part, "thought") else "text"
        return [((*path, "text"), Part(kind, require_text(part, "text", path)))]
    for name, inner in _CODE.items():
        spelled, record = _spelled_field(part, name)
        if record is not None:
            text = text_of(record, inner)
            return [] if text is None else [((*path, spelled, inner), Part("text", text))]
    media = _media(part)
    if media is not None:
        return [((), media)]
    return _unknown(part, path)


def _unknown(part: object, path: Path) -> list[PlacedPart]:
    """Read a part without a known field; a part with only a signature has no content."""
    if get(part, "type") is not None:
        raise HistoryError(f"{place_name(path)} has a 'type', which no part of Gemini's has; convert the message first")
    refuse_foreign_part(part, path, own=GEMINI)
    if all(value is None or name in _SAYS_NOTHING for name, value in fields_of(part).items()) and is_record(part):
        return []
    unsigned = {name: value for name, value in fields_of(part).items() if name not in _SIGNATURES}
    return [((), one) for one in opaque(unsigned)]


def _signature(part: object) -> list[PlacedPart]:
    """Return a list with the part for a thought signature; an empty list if there is no signature that is billed."""
    seal = as_base64(_spelled_field(part, "thought_signature")[1])
    return [((), sealed(seal))] if seal is not None and seal.startswith(_BILLED) else []


def _media(part: object) -> Part | None:
    for name in ("inline_data", "file_data"):
        blob = _spelled_field(part, name)[1]
        if blob is not None:
            return _medium(blob)
    return _medium(part) if text_of(part, "uri") is not None else None


def _medium(blob: object) -> Part:
    mime, data = str(_spelled_field(blob, "mime_type")[1] or ""), as_base64(get(blob, "data"))
    url = None if data is None else f"data:{mime};base64,{data}"
    if mime.startswith("image/"):
        return image(url)
    if mime.startswith("audio/"):
        return audio(data)
    return video(data) if mime.startswith("video/") else file(url)


_HALVES: Final = {
    "executable_code": False,
    "code_execution_result": True,
    "tool_call": False,
    "tool_response": True,
}
"""Fields of a part that is one half of a call that the provider executes, and whether it is the result."""


def _half_of(part: object) -> Half | None:
    """Return the half of a call that the provider executes and that a part is; None for any other part."""
    if isinstance(part, str):
        return None
    for name, is_result in _HALVES.items():
        inner = _spelled_field(part, name)[1]
        if inner is not None:
            return Half(text_of(inner, "id") or None, is_result)
    return None


def _read(part: object, path: Path) -> list[PlacedPart]:
    return with_half([*_content(part, path), *_signature(part)], _half_of(part), path)


PARTS: Final[ContentFormat] = ContentFormat({None: _read}, unknown=_unknown)


def _part_fields(part: object, path: Path, read: Sequence[PlacedPart]) -> Iterator[PlacedField]:
    """Yield the fields of a part that are not content: names of files, links, unknown keys."""
    yield from PARTS.part_fields(part, path, read, own=_READ)
    if isinstance(part, str):
        return
    for name in ("function_call", "function_response"):
        spelled, inner = _spelled_field(part, name)
        if inner is not None:
            yield from extra_fields(inner, (*path, spelled), own=_READ_INSIDE)
            for number, member in enumerate(_inner_parts(inner)):
                yield from PARTS.part_fields(member, (*path, spelled, "parts", number), own=_READ)


def _inner_parts(response: object) -> list[object]:
    found = get(response, "parts")
    return list(found) if isinstance(found, (list, tuple)) else []


def _place_call(part: object, path: Path, number: int) -> PlacedCall:
    """Return the function call in a part, and the paths of its fields.

    A call without an id gets one from its `number` among the calls of the same function.
    """
    spelled, inner = _spelled_field(part, "function_call")
    if not is_record(inner):
        raise unreadable((*path, spelled), "a dict with 'name' and 'args'", inner)
    name, identity = str(get(inner, "name") or ""), text_of(inner, "id")
    # missing arguments are equivalent to an empty object
    given = get(inner, "args")
    arguments = arguments_as_text({} if given is None else given)
    call = ToolCall(name, arguments, identity or f"{NO_ID}{name} {number}", takes_object=True)
    place = (*path, spelled)
    return PlacedCall(call, (*place, "args"), (*place, "id") if identity else (), arguments_as_object)


def _response_parts(part: object, path: Path) -> list[PlacedPart]:
    """Return the parts of a function response: one for its only text, or for its fields as JSON, and one per medium."""
    spelled, inner = _spelled_field(part, "function_response")
    if not is_record(inner):
        raise unreadable((*path, spelled), "a dict with 'name' and 'response'", inner)
    response, place = get(inner, "response"), (*path, spelled, "response")
    if response is not None and not isinstance(response, Mapping):
        raise unreadable(place, "a dict", response)
    key = _text_key(response or {})
    text = "" if not response else str(response[key]) if key is not None else arguments_as_text(response)
    at = place if key is None else (*place, key)
    return [(at, Part("text", text)), *PARTS.read(_inner_parts(inner), (*path, spelled, "parts"))]


def _text_key(response: Mapping[str, object]) -> str | None:
    """Return the key of a response that consists of a single text, such as `output`; None for any other response."""
    is_text = len(response) == 1 and all(isinstance(value, str) for value in response.values())
    return next(iter(response)) if is_text else None


def _as_response(text: str) -> dict[str, object]:
    """Return a text as a function response: a JSON object as it is, any other text under the key `output`."""
    value = parse_json(text)
    return value if isinstance(value, dict) else {"output": text}


Content: TypeAlias = object
"""A `types.Content`, a dict with `role` and `parts`, or what the SDK converts to a content: a string or parts."""
Native: TypeAlias = "Mapping[str, object] | Sequence[Content]"
"""A request (arguments of `generate_content`, or a body of the REST API), or a list of contents."""

_SYSTEM: Final = ("system_instruction", "systemInstruction")
_HOLDERS: Final = ("config", "generationConfig", "generation_config")
"""Keys of settings: `config` in the SDK, and `generationConfig` in the body of the REST API."""
_SCHEMAS: Final = ("response_schema", "response_json_schema", "responseSchema", "responseJsonSchema")
"""Settings that the model sees, and that cannot be edited without changing the response."""
_UNSENT: Final = frozenset({"tools", *_SYSTEM, "http_options", "httpOptions", "automatic_function_calling"})
"""Fields of the `config` that are read elsewhere or concern the SDK itself, such as headers with API keys."""


class _GeminiWeave(Weave):
    def feed(self, event: Event) -> Event | None:
        candidate = next(iter(records_of(event.get("candidates"))), None)
        if candidate is None:
            return None if self.goes_on else event
        parts = records_of(member_at(candidate, ("content", "parts")))
        self.items += map(dict, parts)
        visible = [part for part in parts if not self._is_hidden(part)]
        is_over = candidate.get("finishReason") is not None
        is_hidden_end = is_over and not self._ends()
        if not is_hidden_end and len(visible) == len(parts):
            return event
        if not visible and (is_hidden_end or not is_over):
            return None
        kept = {key: value for key, value in candidate.items() if key != "finishReason" or not is_hidden_end}
        return {**event, "candidates": [{**kept, "content": {"role": "model", "parts": visible}}]}


class GoogleAdapter(BlockFormat):
    """Reads Gemini's contents as artifacts: one for each function response, and one for the rest of a content.

    Not preserved: thoughts whose text would have to change, empty texts, and contents of the model next to each other,
    which become one if they call functions. Thought signatures are never changed and stay with their part. Responses
    without an id are paired with calls by name and order, as the API does. Parts of unknown type are passed on
    unchanged. Contents of unknown role are kept and pinned, and the report names the role.
    """

    name = "google"
    api = "gemini"
    paths = (":generateContent", ":streamGenerateContent", ":countTokens")
    history = "contents"
    system = ("systemInstruction", "system_instruction")
    json_settings = ("generationConfig", "generation_config")
    weave = _GeminiWeave
    response_path = ("candidates", 0, "content", "parts")
    response_message: ClassVar[Mapping[str, object]] = {"role": "model"}
    call_paths = (("functionCall", "name"), ("functionCall", "args"), ("functionCall", "id"))
    taken = ("tools", *_HOLDERS)
    error = "google"
    kinds = {"user": Kind.USER, "model": Kind.ASSISTANT, "system": Kind.SYSTEM}  # noqa: RUF012 - never changed
    field = "parts"
    own = frozenset({"role", "parts"})
    blocks = PARTS
    exact = frozenset({"args", "response"})
    result_roles = ("user", "function", "tool")

    def detects(self, native: object) -> bool:
        """Return whether `native` is a request or list with fields that only Gemini's contents have."""
        contents = native.get("contents") if isinstance(native, Mapping) else native
        return is_list(contents) and bool(contents) and all(map(_is_content, contents))

    def native(self, body: Body) -> object:
        """Return the part of a body that `read` accepts; a single content does not need to be in a list."""
        return body if isinstance(body.get("contents"), Mapping) else super().native(body)

    def messages(self, native: Any) -> Sequence[object]:  # noqa: ANN401 - see `Native`
        """Return the contents of a request; if `native` is a list of contents, return the list itself."""
        if isinstance(native, Mapping):
            if native.get("contents") is None:
                raise HistoryError("the request has no 'contents'; write {'contents': […]}")
            contents = native["contents"]
            return contents if is_list(contents) else [contents]
        if not is_list(native):
            raise HistoryError(f"expected a list of contents, got {type(native).__name__}")
        return native

    def prompt(self, native: Mapping[str, Any]) -> object:
        """Return the system instruction of a request; None if there is none."""
        return member_at(native, _prompt_place(native)) if _prompt_place(native) else None

    def with_history(self, native: Mapping[str, Any], system: object, messages: list[object]) -> Mapping[str, Any]:
        """Return a copy of a request with these contents and, unless `system` is None, this system instruction."""
        was, place = native["contents"], _prompt_place(native)
        is_alone = not is_list(was) and len(messages) == 1 and messages[0] is was
        is_new = bool(place) and system is not None and system is not member_at(native, place)
        return copy_with({**native, "contents": was if is_alone else messages}, {place: system} if is_new else {})

    def continues(self, message: object, run: Sequence[object]) -> bool:
        """Return whether both are the model's, and together make parallel calls or a call that the provider executes.

        The API refuses responses to calls that are in contents of their own, and a result apart from its call.
        """
        if not get(message, "role") == "model" == get(run[-1], "role"):
            return False
        parts = [part for content in run for part in filter(is_record, _parts(content))]
        is_parallel = any(_function_call(part) is not None for part in filter(is_record, _parts(message)))
        if is_parallel and any(_function_call(part) is not None for part in parts):
            return True
        return bool(open_halves(map(_half_of, parts)))

    def placed(self, message: object) -> list[PlacedBlock]:
        """Return the parts of a content with their paths."""
        if not isinstance(message, (str, list, tuple)):
            if not is_record(message):
                raise HistoryError(f"expected a content with 'parts', got {type(message).__name__}")
            if not _is_part(message):
                refuse_foreign(message, GEMINI)
                _require_parts(message)
        parts: list[PlacedBlock] = [(("parts", number), part) for number, part in enumerate(_parts(message))]
        for path, part in parts:
            if not isinstance(part, str) and not is_record(part):
                raise unreadable(path, "a text or a dict", part)
        return parts

    def role(self, message: object) -> str:
        """Return the role of a content. Without a role, it is `model` if a part calls a function, otherwise `user`."""
        role = text_of(message, "role") if not isinstance(message, (str, list, tuple)) else None
        return role or ("model" if any(_function_call(part) is not None for part in _parts(message)) else "user")

    def field_of(self, message: object) -> object:
        """Return the parts of a content; None if the content is a bare string or a list of parts."""
        return None if isinstance(message, (str, list, tuple)) else get(message, "parts")

    def result(self, block: object) -> object:
        """Return the function response in a part; None if the part contains none."""
        return _function_response(block)

    def answered(self, block: object, path: Path) -> tuple[object, Path, str | None]:
        """Return the id of the call that a response answers, the path of this id, and the name of the function."""
        spelled, inner = _spelled_field(block, "function_response")
        return text_of(inner, "id") or None, (*path, spelled, "id"), text_of(inner, "name")

    def calls(self, placed: Sequence[PlacedBlock]) -> list[PlacedCall]:
        """Return the function calls in the given parts."""
        before: Counter[object] = Counter()
        calls = []
        for path, part in placed:
            call = _function_call(part)
            if call is not None:
                name = str(get(call, "name"))
                calls.append(_place_call(part, path, before[name]))
                before[name] += 1
        return calls

    def block_fields(self, block: object, path: Path, role: str, read: Sequence[PlacedPart]) -> Iterator[PlacedField]:  # noqa: ARG002
        """Yield the fields of a part that are neither content nor a call."""
        return _part_fields(block, path, read)

    def paired(self, artifacts: Iterable[Artifact]) -> Iterator[Artifact]:
        """Give the ids of unanswered calls to results of the same function that have no id, and yield all artifacts.

        The results of a function get ids only if there are as many of them as unanswered calls.
        """
        waiting: list[ToolCall] = []
        for is_block, members in groupby(artifacts, key=lambda artifact: artifact.kind is Kind.TOOL):
            if is_block:
                block = list(members)
                given = [artifact.answers for artifact in block]
                waiting = [call for call in waiting if call.id not in given]
                missing = Counter(artifact.name for artifact in block if artifact.answers is None)
                calls = {name: deque(call for call in waiting if call.name == name) for name in missing}
                sure = {name for name, waits in calls.items() if len(waits) == missing[name]}
                for result in block:
                    is_sure = result.answers is None and result.name in sure
                    yield _with_call_id(result, calls[result.name].popleft()) if is_sure else result
                continue
            for artifact in members:
                waiting = list(artifact.calls) or waiting
                yield artifact

    def merged(self, groups: list[list[Artifact]]) -> list[list[Artifact]]:
        """Return the groups of artifacts that are written into one content each.

        What the model said directly before its calls is in the same content, because the API rejects a function call
        right after another content of the model.
        """
        merged: list[list[Artifact]] = []
        for group in groups:
            joined = group
            while any(a.calls for a in joined) and merged and all(map(_speaks, merged[-1])):
                joined = [*merged.pop(), *joined]
            merged.append(joined)
        return merged

    def left_of(self, block: object) -> object:
        """Return a part; `REMOVED` if it is empty. A signed part is kept: signatures must be sent back."""
        if block is REMOVED:
            return block
        is_empty = block == "" or (get(block, "text") == "" and _spelled_field(block, "thought_signature")[1] is None)
        return REMOVED if is_empty else block

    def with_blocks(self, message: object, blocks: list[object]) -> object:
        """Return a copy of a content with other parts."""
        return _with_parts(message, blocks)

    def changes(
        self, artifact: Artifact, fragment: Fragment, placed: Sequence[PlacedBlock]
    ) -> Iterator[tuple[Path, object]]:
        """Yield the changes of an artifact (see `BlockFormat.changes`).

        A changed thought is removed as a whole, and a changed function response is written as an object.
        """
        for path, new in super().changes(artifact, fragment, placed):
            part = placed[int(path[0])][1]
            if path[-1] == "id" and str(new).startswith(NO_ID):
                continue
            if get(part, "thought") and path[1:] == ("text",):
                yield path[:1], REMOVED
            else:
                yield path, _as_response(new) if path[-1] == "response" and isinstance(new, str) else new

    def created(self, artifact: Artifact) -> list[object]:
        """Return the parts for an artifact that a stage added."""
        if artifact.kind is Kind.TOOL:
            named = _name_fields(artifact.answers, artifact.name)
            return [{"functionResponse": {**named, "response": _as_response(artifact.text)}}]
        said: list[object] = [{"text": artifact.text or LEFT_OUT}] if artifact.text or not artifact.calls else []
        return said + [
            {"functionCall": {**_name_fields(call.id, call.name), "args": arguments_as_object(call.arguments)}}
            for call in artifact.calls
        ]

    def takes_tool(self, body: Body) -> bool:
        """Return whether the guard can add a tool. The API refuses tools beside a cache that is named."""
        return super().takes_tool(body) and not (body.get("cachedContent") or body.get("cached_content"))

    def tools_at(self, body: Body) -> Path:
        """Return the path of the tools: in the body of the REST API, or in the `config` of the SDK."""
        return ("tools",) if body.get("tools") is not None else ("config", "tools")

    def settings(self, body: Body) -> tuple[dict[str, object], list[Body]]:
        """Return the settings in a body, separated into plain settings and those that the model sees as schemas."""
        settings, schemas = super().settings(body)
        for key, value in (placed for holder in _HOLDERS for placed in _given_settings(body.get(holder))):
            if key in _SCHEMAS:
                schemas.append({key: _as_schema(value)})
            elif key not in _UNSENT:
                settings[key] = value
        return settings, schemas

    def sent(self, body: Body) -> Sent:
        """Return the billed parts of a request. Signatures of thoughts before the last user message are not billed."""
        listed, (_, schemas) = member_at(body, self.tools_at(body)), self.settings(body)
        schema = next((value for one in schemas for value in one.values()), None)
        config = body.get("toolConfig") or body.get("tool_config")
        calling = get(config, "functionCallingConfig") or get(config, "function_calling_config")
        mode = str(get(calling, "mode") or "auto").lower()
        return Sent(
            tuple(map(self._billed, without_old_reasoning(self.counted(body), ("sealed",)))),
            tuple(filter(None, map(fields_of, listed if is_list(listed) else [listed]))),
            choice_of(mode),
            schema if isinstance(schema, Mapping) and schema else None,
        )

    def _billed(self, artifact: Artifact) -> Artifact:
        """Return an artifact as it is billed: a function response includes the JSON around its text."""
        if artifact.kind is not Kind.TOOL or not isinstance(artifact.source, Fragment):
            return artifact
        part = self.placed(artifact.source.message)[artifact.source.indexes[0]][1]
        response = Part("text", arguments_as_text(get(_function_response(part), "response") or {}))
        media = artifact.content[1:] if isinstance(artifact.content, tuple) else ()
        return replace(artifact, content=(response, *media))

    def deltas(self, event: Event) -> Iterator[Delta]:
        """Yield the pieces of text in an event of a streamed response."""
        parts = [*_streamed(event)]
        said = [number for number, (_, _, part) in enumerate(parts) if _is_said(part)]
        for before, number, after in zip([-1, *said], said, [*said[1:], len(parts)], strict=False):
            path, candidate, part = parts[number]
            index = candidate.get("index", 0)
            is_first, is_last = (
                any(one is candidate and other.get("text") is None for _, one, other in between)
                for between in (parts[before + 1 : number], parts[number + 1 : after])
            )
            alone = partial(_alone, candidate)
            yield Delta(
                (index,),
                (*path, "text"),
                str(part["text"]),
                is_arguments=False,
                alone=alone,
                answer=index,
                is_first=is_first,
                is_last=is_last,
            )

    def ends(self, event: Event) -> Ends | None:
        """Return a predicate that is true for the channels (see `Channel`) that an event ends; None if it ends none."""
        over = ended_choices(event, listed="candidates", reason="finishReason")
        # a call or data ends the text of the events before
        said = {delta.answer for delta in self.deltas(event)}
        others = {one.get("index", 0) for _, one, part in _streamed(event) if part.get("text") is None} - said
        return (lambda channel: channel[0] in others or (over is not None and over(channel))) if others else over

    def with_tool(self, body: Body, schema: Body) -> Body:
        """Return a copy of a request with one more function, in the existing list of functions if there is one.

        The API accepts only one list of functions.
        """
        tools = records_of(body.get("tools"))
        for number, tool in enumerate(tools):
            for key in ("functionDeclarations", "function_declarations"):
                if isinstance(listed := tool.get(key), list):
                    return copy_with(body, {("tools", number, key): [*listed, schema]})
        return super().with_tool({**body, "tools": tools}, schema)

    def declared(self, schema: Body) -> Body:
        """Return a function, given by its `schema`, in the format of the API's tools."""
        return {"functionDeclarations": [schema]}

    def wholes(self, event: Event) -> Iterator[tuple[Path, object]]:
        """Yield the path and the value of each part without text, such as a function call. Such parts are complete."""
        return ((path, part) for path, _, part in _streamed(event) if part.get("text") is None)


def _given_settings(holder: object) -> Iterator[tuple[str, object]]:
    """Yield the name and value of each setting that is set.

    The settings are not dumped by pydantic, because that fails if a tool is a Python function.
    """
    names = holder if isinstance(holder, Mapping) else getattr(holder, "model_fields_set", ())
    return ((name, value) for name in names if (value := get(holder, name)) is not None)


def _as_schema(value: object) -> object:
    return value.model_json_schema() if hasattr(value, "model_json_schema") else fields_of(value) or str(value)


def _streamed(event: Event) -> Iterator[tuple[Path, Mapping[str, object], Mapping[str, object]]]:
    """Yield the path of each part in an event, its candidate, and the part."""
    candidates = event.get("candidates")
    for number, candidate in enumerate(candidates if isinstance(candidates, list) else ()):
        parts = member_at(candidate, ("content", "parts")) if isinstance(candidate, dict) else None
        for place, part in enumerate(parts if isinstance(parts, list) else ()):
            if isinstance(part, dict):
                yield ("candidates", number, "content", "parts", place), candidate, part


def _is_said(part: Mapping[str, object]) -> bool:
    return isinstance(part.get("text"), str) and not part.get("thought")


def _alone(candidate: Mapping[str, object], text: str) -> Event:
    content = {"role": "model", "parts": [{"text": text}]}
    return {"candidates": [{"content": content, "index": candidate.get("index", 0)}]}


def _is_content(content: object) -> bool:
    parts = get(content, "parts")
    has_parts = isinstance(parts, (list, tuple)) and all(get(part, "type") is None and _is_part(part) for part in parts)
    return has_parts and get(content, "role") in (None, "user", "model", "function") and get(content, "content") is None


def _prompt_place(native: Mapping[str, object]) -> Path:
    """Return the path of the system instruction, in the request itself or in its `config`; `()` if there is none."""
    for key in _SYSTEM:
        for path in ((key,), ("config", key)):
            holder = native if len(path) == 1 else native.get("config")
            if get(holder, key) is not None:
                return path
    return ()


def _speaks(artifact: Artifact) -> bool:
    return artifact.kind is Kind.ASSISTANT and artifact.role is None and not artifact.calls


def _parts(content: Content) -> list[object]:
    """Return the parts of a content, which may have any type that the SDK accepts."""
    if isinstance(content, (list, tuple)):
        return list(content)
    if isinstance(content, str) or (get(content, "role") is None and get(content, "parts") is None):
        return [content]
    parts = get(content, "parts")
    if isinstance(parts, str) or is_record(parts):  # a system instruction
        return _parts(parts)
    if parts is not None and not isinstance(parts, (list, tuple)):
        raise unreadable(("parts",), "a list of parts", parts)
    return list(parts or ())


def _require_parts(content: Content) -> None:
    """Reject a value that is not a content. A content with only a role is valid: the API returns it as empty reply."""
    held = isinstance(content, Mapping) and any(content[key] is not None for key in content if key != "role")
    if get(content, "parts") is None and (get(content, "role") is None or held):
        raise HistoryError("it has no 'parts'; write {'role': …, 'parts': [{'text': …}]}")


def _with_call_id(result: Artifact, call: ToolCall) -> Artifact:
    """Return a result with the id of its call. Each time, it is the same object, which a stabilizer recognizes."""
    known = result.memo.get((NO_ID, call.id))
    if not isinstance(known, Artifact):
        known = replace(result, answers=call.id)
        result.memo.keep((NO_ID, call.id), known)
    return known


def _with_parts(content: Content, written: list[object]) -> Content:
    """Return a copy of a content with other parts. A list or a bare part stays one if possible."""
    if isinstance(content, (list, tuple)):
        return written
    parts = None if isinstance(content, str) else get(content, "parts")
    if parts is None and text_of(content, "role") is not None:
        return copy_with(content, {("parts",): written})
    if parts is None:  # a bare part instead of a content
        return written[0] if len(written) == 1 else {"role": "user", "parts": written}
    is_alone = len(written) == 1 and (isinstance(parts, str) or is_record(parts))
    return copy_with(content, {("parts",): written[0] if is_alone else written})


def _name_fields(identity: str | None, name: str | None) -> dict[str, object]:
    given = {} if identity is None or identity.startswith(NO_ID) else {"id": identity}
    return {**given, "name": name or "tool"}
