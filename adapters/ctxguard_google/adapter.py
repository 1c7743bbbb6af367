"""Gemini's contents as artifacts and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import chain, groupby, pairwise
from typing import Final, TypeAlias

from ctxguard.adapting.editing import REMOVED, are_same_objects, by_index, copy_with
from ctxguard.adapting.extra_fields import PlacedField, extra_fields
from ctxguard.adapting.fields import Path, arguments_as_object, get, is_list, is_record, member_at, text_of, unreadable
from ctxguard.adapting.fragments import LEFT_OUT, Fragment, fill_emptied, split_message
from ctxguard.adapting.message_view import MessageView
from ctxguard.adapting.provider_formats import GEMINI, refuse_foreign
from ctxguard.adapting.read_cache import ReadCache
from ctxguard.artifacts import Artifact, Kind, ToolCall
from ctxguard.errors import HistoryError
from ctxguard_google.parts import (
    NO_ID,
    PARTS,
    function_call,
    function_response,
    is_part,
    part_fields,
    place_call,
    response_changes,
    response_parts,
    set_field,
    tool_response,
)

Content: TypeAlias = object
"""A content: a `types.Content`, a dict with `role` and `parts`, or what the SDK makes one of: a text, parts."""
Native: TypeAlias = "Mapping[str, object] | Sequence[Content]"
"""A request with `contents`, as the arguments of `generate_content` or as the body of the REST API; or contents."""

_KINDS: Final = {"user": Kind.USER, "model": Kind.ASSISTANT, "system": Kind.SYSTEM}
_RESULT_ROLES: Final = ("user", "function", "tool")
_OWN: Final = frozenset({"role", "parts"})
_SYSTEM: Final = ("system_instruction", "systemInstruction")


class GoogleAdapter:
    """Look at Gemini's contents as artifacts: each function response is one, the rest of a content another.

    What does not survive: a thought whose text would have to change, and a text of which nothing is left. Thought
    signatures are never changed and stay with their part. Responses without an id pair by name and order, as the API
    pairs them. Parts of unknown type are handed on as they are; contents of unknown role are kept and pinned, and the
    report names the role.
    """

    name = "google"

    last_stage = staticmethod(fill_emptied)

    def read(self, native: Native) -> list[Artifact]:
        """Return the artifacts of a request, its system instruction first, or of a list of contents.

        Raises:
            HistoryError: It is neither, or a content cannot be read or is of another format.
        """
        read = [*_CACHE.read(_prompt(native)), *_CACHE.read(_contents(native))]
        return list(_paired(chain.from_iterable(read)))

    def write(self, native: Native, artifacts: Iterable[Artifact]) -> Native:
        """Return the request or the list of these artifacts: the same contents where nothing was changed."""
        prompts = list(map(id, _prompt(native)))
        neighbors = set(pairwise(map(id, _contents(native))))
        system: object = None
        groups: list[list[Artifact]] = []
        for artifact in artifacts:
            if isinstance(artifact.source, Fragment) and id(artifact.source.message) in prompts:
                system = get(_content([artifact]), "parts")
            elif groups and _belongs(artifact, groups[-1][-1], neighbors):
                groups[-1].append(artifact)
            else:
                groups.append([artifact])
        contents = [_content(group) for group in groups]
        return _request(native, system, contents) if isinstance(native, Mapping) else contents

    def detects(self, native: object) -> bool:
        """Tell whether a request or list has what only Gemini's contents have."""
        contents = native.get("contents") if isinstance(native, Mapping) else native
        if not is_list(contents) or not contents:
            return False
        return all(_is_content(content) for content in contents)


def _is_content(content: object) -> bool:
    parts = get(content, "parts")
    has_parts = isinstance(parts, (list, tuple)) and all(get(part, "type") is None and is_part(part) for part in parts)
    return has_parts and get(content, "role") in (None, "user", "model", "function") and get(content, "content") is None


def prompt_place(native: Mapping[str, object]) -> Path:
    """Return where a request keeps its system instruction: in itself, as the REST API has it, or in its `config`."""
    for key in _SYSTEM:
        for path in ((key,), ("config", key)):
            holder = native if len(path) == 1 else native.get("config")
            if get(holder, key) is not None:
                return path
    return ()


def _request(native: Mapping[str, object], system: object, contents: list[Content]) -> Mapping[str, object]:
    was, place = native["contents"], prompt_place(native)
    is_alone = not is_list(was) and len(contents) == 1 and contents[0] is was
    is_new = bool(place) and system is not None and system is not member_at(native, place)
    return copy_with({**native, "contents": was if is_alone else contents}, {place: system} if is_new else {})


def _contents(native: Native) -> Sequence[Content]:
    if isinstance(native, Mapping):
        if native.get("contents") is None:
            raise HistoryError("the request has no 'contents'; write {'contents': […]}")
        contents = native["contents"]
        return contents if is_list(contents) else [contents]
    if not is_list(native):
        raise HistoryError(f"expected a list of contents, got {type(native).__name__}")
    return native


def _prompt(native: Native) -> list[Content]:
    """Return the system instruction as a content, the same one for the same value; none where there is none."""
    place = prompt_place(native) if isinstance(native, Mapping) else ()
    if not place:
        return []
    return _PROMPTS.read([member_at(native, place)])


_PROMPTS: Final[ReadCache[object, Content]] = ReadCache(lambda content: {"role": "system", "parts": content})


def _parts(content: Content) -> list[object]:
    """Return the parts of a content in any of the forms that the SDK takes."""
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


def _role(content: Content, parts: Sequence[object]) -> str:
    """Return the role of a content; a bare part is the model's if it calls a function, else the user's."""
    role = text_of(content, "role") if not isinstance(content, (str, list, tuple)) else None
    return role or ("model" if any(function_call(part) is not None for part in parts) else "user")


def _read(content: Content) -> tuple[Artifact, ...]:
    if not isinstance(content, (str, list, tuple)):
        if not is_record(content):
            raise HistoryError(f"expected a content with 'parts', got {type(content).__name__}")
        if not is_part(content):
            refuse_foreign(content, GEMINI)
            _require_parts(content)
    parts = _parts(content)
    for number, part in enumerate(parts):
        if not isinstance(part, str) and not is_record(part):
            raise unreadable(("parts", number), "a text or a dict", part)
    is_result = _role(content, parts) in _RESULT_ROLES
    results = [n for n, part in enumerate(parts) if is_result and function_response(part) is not None]
    rest = tuple(number for number in range(len(parts)) if number not in results)
    groups = [*((number,) for number in results), *([rest] if rest or not parts else [])]
    return tuple(_view(fragment, parts).artifact(fragment) for fragment in split_message(content, groups))


def _require_parts(content: Content) -> None:
    """Refuse what is no content; the API itself answers with one that has a role alone where the model said nothing."""
    held = isinstance(content, Mapping) and any(content[key] is not None for key in content if key != "role")
    if get(content, "parts") is None and (get(content, "role") is None or held):
        raise HistoryError("it has no 'parts'; write {'role': …, 'parts': [{'text': …}]}")


_CACHE: Final = ReadCache(_read, exact=frozenset({"args", "response"}))


def _view(fragment: Fragment, parts: Sequence[object]) -> MessageView:
    role = _role(fragment.message, parts)
    own = [(("parts", number), parts[number]) for number in fragment.indexes]
    fields: list[PlacedField] = [placed for path, part in own for placed in part_fields(part, path)]
    is_content = not isinstance(fragment.message, (str, list, tuple)) and get(fragment.message, "parts") is not None
    if is_content and (0 in fragment.indexes or not fragment.indexes):
        # what belongs to the content as a whole goes with its first part
        fields += [((), replace(field, editable=False)) for _, field in extra_fields(fragment.message, own=_OWN)]
    if role in _RESULT_ROLES and own and function_response(own[0][1]) is not None:
        path, part = own[0]
        inner = function_response(part)
        return MessageView(
            Kind.TOOL,
            response_parts(part, path),
            tool_call_id=text_of(inner, "id") or None,
            tool_call_id_at=(*path, set_field(part, "function_response")[0], "id"),
            name=text_of(inner, "name"),
            fields=fields,
        )
    before: Counter[object] = Counter()
    calls = []
    for path, part in own:
        call = function_call(part)
        if call is not None:
            name = get(call, "name")
            calls.append(place_call(part, path, before[name]))
            before[name] += 1
    return MessageView(
        _KINDS.get(role, Kind.ASSISTANT),
        [placed for path, part in own for placed in PARTS.read_part(part, path)],
        calls,
        role=None if role in _KINDS else role,
        fields=fields,
    )


def _paired(artifacts: Iterable[Artifact]) -> Iterator[Artifact]:
    """Walk artifacts; a result without an id gets that of the first open call of its function, else of any."""
    waiting: list[ToolCall] = []
    for artifact in artifacts:
        if artifact.kind is not Kind.TOOL:
            waiting = list(artifact.calls) or waiting
            yield artifact
            continue
        called = next((call for call in waiting if artifact.answers in (None, call.id) and _fits(call, artifact)), None)
        if called is None and artifact.answers is None:
            called = next(iter(waiting), None)
        if called is not None:
            waiting.remove(called)
        yield artifact if called is None or artifact.answers is not None else _answering(artifact, called)


def _fits(call: ToolCall, result: Artifact) -> bool:
    return result.answers is not None or result.name == call.name


def _answering(result: Artifact, call: ToolCall) -> Artifact:
    """Return a result with the id of its call; the very same one each time, by which a stabilizer knows it."""
    known = result.memo.get((NO_ID, call.id))
    if not isinstance(known, Artifact):
        known = replace(result, answers=call.id)
        result.memo.keep((NO_ID, call.id), known)
    return known


def _belongs(artifact: Artifact, last: Artifact, neighbors: AbstractSet[tuple[int, int]]) -> bool:
    """Tell whether an artifact goes into the content of the one before it.

    Fragments of one content stay together. Results stand in one content behind their calls, and calls follow no other
    content of the model: the API refuses both.
    """
    fragment, before = artifact.source, last.source
    is_joined = artifact.kind is last.kind and artifact.kind in (Kind.TOOL, Kind.ASSISTANT)
    if last.calls or (artifact.role, last.role) != (None, None):
        is_joined = is_joined and artifact.kind is Kind.TOOL
    if not isinstance(fragment, Fragment) or not isinstance(before, Fragment):
        return is_joined
    if before.occurrence is fragment.occurrence:
        return True
    return is_joined and (id(before.message), id(fragment.message)) not in neighbors


def _content(group: list[Artifact]) -> Content:
    """Return the content of these artifacts: the very one they were read from, where they are all of it unchanged."""
    runs = [list(run) for _, run in groupby(group, key=_occurrence)]
    written = [part for run in runs for part in _run(run)]
    fragment = group[0].source
    if len(runs) > 1 or not isinstance(fragment, Fragment):
        return {"role": "model" if group[0].kind is Kind.ASSISTANT else "user", "parts": written or _NOTHING}
    content = fragment.message
    parts = _parts(content)
    if are_same_objects(written, parts):
        return content
    return _like(content, written or _NOTHING)


_NOTHING: Final[list[object]] = [{"text": LEFT_OUT}]


def _occurrence(artifact: Artifact) -> object:
    return artifact.source.occurrence if isinstance(artifact.source, Fragment) else artifact


def _like(content: Content, written: list[object]) -> Content:
    """Return a content with other parts, in the form in which it came."""
    if isinstance(content, (list, tuple)):
        return written
    parts = None if isinstance(content, str) else get(content, "parts")
    if parts is None:  # a part that stands for a content
        return written[0] if len(written) == 1 else {"role": "user", "parts": written}
    if isinstance(parts, str) or is_record(parts):  # a system instruction
        return copy_with(content, {("parts",): _like(parts, written)})
    return copy_with(content, {("parts",): written})


def _run(artifacts: Sequence[Artifact]) -> Iterator[object]:
    for artifact in artifacts:
        yield from _written(artifact)


def _written(artifact: Artifact) -> Iterator[object]:
    """Walk the parts of an artifact: the same objects where nothing was changed."""
    fragment = artifact.source
    if not isinstance(fragment, Fragment):
        yield from _created(artifact)
        return
    parts = _parts(fragment.message)
    changes = by_index(dict(_changes(artifact, fragment, parts))) if artifact.origin else {}
    for number in fragment.indexes:
        part = copy_with(parts[number], dict(response_changes(changes[number]))) if number in changes else parts[number]
        if part is not REMOVED and not (number in changes and _says_nothing(part)):
            yield part


def _says_nothing(part: object) -> bool:
    """Tell a text of which nothing is left; one with a signature stays, as the API wants signatures back."""
    return part == "" or (get(part, "text") == "" and set_field(part, "thought_signature")[1] is None)


def _changes(artifact: Artifact, fragment: Fragment, parts: Sequence[object]) -> Iterator[tuple[Path, object]]:
    """Walk what is to be changed, by the number of the part and the place in it; a thought goes as a whole."""
    for (_, number, *inner), new in _view(fragment, parts).changes(artifact).items():
        part = parts[int(number)]
        if inner[-1:] == ["id"] and str(new).startswith(NO_ID):
            continue
        if get(part, "thought") and inner == ["text"]:
            yield (number,), REMOVED
        else:
            yield (number,) if isinstance(part, str) else (number, *inner), new


def _created(artifact: Artifact) -> Iterator[dict[str, object]]:
    """Walk the parts of an artifact that no content stood for: a stand-in result, a summary."""
    if artifact.kind is Kind.TOOL:
        yield {
            "functionResponse": {**_named(artifact.answers, artifact.name), "response": tool_response(artifact.text)}
        }
        return
    if artifact.text or not artifact.calls:
        yield {"text": artifact.text or LEFT_OUT}
    for call in artifact.calls:
        yield {"functionCall": {**_named(call.id, call.name), "args": arguments_as_object(call.arguments)}}


def _named(identity: str | None, name: str | None) -> dict[str, object]:
    given = {} if identity is None or identity.startswith(NO_ID) else {"id": identity}
    return {**given, "name": name or "tool"}
