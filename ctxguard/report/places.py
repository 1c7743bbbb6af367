"""Where something was found, in words that name the message, the tool, the parameter, or the field.

Numbers are those of the path, so that both can be compared: the first message is message 0. A name is only repeated if
it is spelled like one, since keys and names may come from a user.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ctxguard.artifacts import OUTSIDE, Artifact, Kind

if TYPE_CHECKING:
    from ctxguard.draft import Draft
    from ctxguard.pii import Detector
    from ctxguard.report.data import Finding

Keys: TypeAlias = "Sequence[str | int]"
"""The keys and indexes that lead from a value to a part of it."""
_STEP: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_SPAN: Final = re.compile(r"\[\d+:\d+\]$")
_NAME: Final = re.compile(r"[A-Za-z_][\w.:/-]{0,63}")
_ROLES: Final = {"task": "user", "tool": "tool result"}
_PARTS: Final = {
    "default": "default",
    "enum": "allowed values",
    "const": "fixed value",
    "description": "description",
    "examples": "examples",
    "example": "example",
    "pattern": "pattern",
    "title": "title",
}
"""How words name the members of a JSON schema."""
_TOOLS: Final = ("tools", "schemas", "functionDeclarations", "function_declarations")
_WRAPPED: Final = ("function", "custom", "toolSpec")
_MESSAGES: Final = ("messages", "input", "contents")
_TEXTS: Final = ("content", "parts", "text", "output", "input_text")
_PROMPTS: Final = ("system", "instructions", "systemInstruction", "system_instruction")


def keys_of(path: str) -> list[str | int]:
    """Return the keys of a path such as `tools[0].function.name[3:9]`, without the positions in the text."""
    return [key or int(index) for index, key in _STEP.findall(_SPAN.sub("", path.partition(",")[0]))]


def in_words(findings: Iterable[Finding], draft: Draft, rules: Detector | None = None) -> Iterator[Finding]:
    """Yield findings that say in words where they are, if their paths are those of artifacts.

    Words in which a rule matches are left out.

    Args:
        findings: What a check found.
        draft: The draft that was checked.
        rules: The rules of the check, besides those of the masking stages.
    """
    detectors = [*draft.masking.detectors, *draft.masking.message_detectors, *([] if rules is None else [rules])]
    clean = cache(lambda words: clean_words(words, detectors))  # many findings are in the same place
    for finding in findings:
        keys = keys_of(finding.path)
        of = {"artifacts": draft.artifacts, "history": draft.history}.get(str(keys[0])) if len(keys) > 1 else None
        if not finding.place and of and isinstance(keys[1], int) and keys[1] < len(of):
            yield replace(finding, place=clean(_place_in(of, keys[1], keys[2:])))
        else:
            yield finding


def clean_words(words: str, detectors: Iterable[Detector]) -> str:
    """Return words that name a place, or an empty string if a rule matches in them."""
    return "" if any(detector.find(words) for detector in detectors) else words


def _place_in(artifacts: Sequence[Artifact], number: int, keys: Keys) -> str:
    artifact = artifacts[number]
    if artifact.source is OUTSIDE:
        known = (one.words for one in artifact.fields if keys_of(one.place) == list(keys))
        return next(known, "") or ("the system prompt" if keys[:1] in (["content"], ["instructions"]) else "")
    # what is sent outside of the history stands in front of it, and is no message
    place = number - (artifacts[0].source is OUTSIDE)
    where = f"message {place} ({_ROLES.get(artifact.kind.value, artifact.kind.value)})"
    part = _part_of(artifact, keys, artifacts[:number])
    return f"{part} {'of' if part.startswith('the text') else 'in'} {where}" if part else where


def _part_of(artifact: Artifact, keys: Keys, before: Sequence[Artifact]) -> str:
    """Return the part of a message to which the keys lead; an empty string for the whole message."""
    first, index, last = (*keys, "", "", "")[:3]
    names = [key for key in keys if isinstance(key, str) and key != "fields"]
    if first == "content" and names[-1] in _TEXTS:
        is_output = artifact.kind is Kind.TOOL
        return f"the output of {named('tool', _tool_of(artifact, before))}" if is_output else "the text"
    if first == "calls" and isinstance(index, int) and index < len(artifact.calls):
        call = f"the call of {named('tool', artifact.calls[index].name)}"
        return f"the {last} of {call}" if last else call
    if first == "arguments":
        tools = {named("tool", call.name) for call in artifact.calls}
        return f"the arguments of {tools.pop() if len(tools) == 1 else 'a tool'}"
    return named("the field", names[-1] if names else None) if keys else ""


def _tool_of(output: Artifact, before: Sequence[Artifact]) -> str | None:
    """Return the name of the tool whose output an artifact is; None if neither it nor its call tells it."""
    calls = (call for artifact in reversed(before) for call in artifact.calls)
    return output.name or next((call.name for call in calls if call.id == output.answers), None)


def place_in(root: object, keys: Keys, what: str = "the request") -> str:
    """Return in words where a value of a request is.

    Args:
        root: The request, or a part of it such as a list of tools.
        keys: The keys and indexes that lead to the value.
        what: What the request is called.
    """
    if (
        isinstance(root, list)
        and len(keys) > 1
        and isinstance(keys[0], int)
        and _member(_member(root, keys[0]), "role")
    ):
        return _in_message(_member(root, keys[0]), keys[0], keys[1:])
    at: Any = root
    for depth, key in enumerate(keys[:-1]):
        at, index, rest = _member(at, key), keys[depth + 1], keys[depth + 2 :]
        if not isinstance(index, int):
            if key in _PROMPTS:
                return "the system prompt"
            continue
        if key in _TOOLS and not isinstance(_member(_member(at, index), "functionDeclarations"), list):
            return _in_tool(_member(at, index), rest)
        if key in _MESSAGES:
            return _in_message(_member(at, index), index, rest)
    if keys and keys[0] in _PROMPTS:
        return "the system prompt"
    field = ".".join(key for key in keys if isinstance(key, str)).removeprefix("settings.")
    return f"{named('the field', field)} of {what}" if field else what


def _in_tool(tool: Any, keys: Keys) -> str:  # noqa: ANN401 - JSON, or an object of a client
    inner = next((found for key in _WRAPPED if (found := _member(tool, key)) is not None), tool)
    of = named("tool", _member(inner, "name"))
    path = [key for key in keys if isinstance(key, str)]
    parameters = [path[n + 1] for n, key in enumerate(path[:-1]) if key == "properties"]
    if path and path[-1] == "name" and not parameters:
        return f"the name of {of}"
    last = path[-1] if path else ""
    if parameters:
        of = f"{named('parameter', '.'.join(parameters))} of {of}"
        if last == parameters[-1] and path[-2] == "properties":
            return of
    part = next((_PARTS[key] for key in reversed(path) if key in _PARTS), None)
    return f"the {part} of {of}" if part else f"{named('the field', last)} of {of}" if last else of


def _in_message(message: Any, number: int, keys: Keys) -> str:  # noqa: ANN401 - JSON, or an object of a client
    role = _member(message, "role") or _member(message, "type")
    where = f"message {number} ({_ROLES.get(role, role)})" if _is_name(role) else f"message {number}"
    names = [key for key in keys if isinstance(key, str)]
    if not names or all(name in _TEXTS for name in names):
        return f"the text of {where}" if names else where
    calls = _member(message, "tool_calls")
    if keys[0] == "tool_calls" and len(keys) > 1 and isinstance(keys[1], int):
        call = _member(calls, keys[1])
        return f"the call of {named('tool', _member(_member(call, 'function') or call, 'name'))} in {where}"
    return f"{named('the field', names[-1])} of {where}"


def named(noun: str, name: object) -> str:
    """Return a noun with its name, or with an article if the name is missing or not spelled like one."""
    return f"{noun} `{name}`" if _is_name(name) else f"a {noun.removeprefix('the ')}"


def _is_name(name: object) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _member(value: Any, key: str | int) -> Any:  # noqa: ANN401 - JSON, or an object of a client
    if isinstance(value, Mapping):
        return value.get(key)
    if isinstance(key, int):
        return value[key] if isinstance(value, (list, tuple)) and key < len(value) else None
    return getattr(value, key, None)
