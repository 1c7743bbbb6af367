"""Restore masked values in a response: in its texts and in the arguments of its tool calls.

Placeholders in reasoning are kept, because providers accept reasoning only unmodified. A response without placeholders
stays the same, byte for byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ctxguard.formats.format import SHOWN
from ctxguard.pii import MaskSession
from ctxguard.pii.mask.links import Links, NamesHost
from ctxguard.pii.mask.unmask import gets_values

if TYPE_CHECKING:
    from ctxguard.formats.format import Format

OnId = Callable[[str], object]
OnItem = Callable[[str, Mapping[str, str]], object]

_KEPT_TYPES: Final = frozenset({"reasoning", "thinking", "redacted_thinking", "compaction"})
_KEPT: Final = frozenset(
    {
        *("call_id", "encrypted_content", "id", "model", "name", "role", "signature", "thoughtSignature", "toolUseId"),
        *("reasoning", "reasoningContent", "reasoning_content", "reasoning_details", "thinking", "type"),
    }
)
"""Keys whose values are never restored, because they are sent back to the provider unchanged or refer to something."""
_OBJECTS: Final = ("input", "args")
"""Keys under which the arguments of a tool call are an object: `input` for Anthropic and Amazon, `args` for Gemini."""


_ARGUMENTS: Final = frozenset({"arguments", *_OBJECTS})
_ALTERNATIVES: Final = frozenset({"choices", "candidates"})
"""Keys of lists whose members are answers on their own."""
_CALLS: Final = frozenset({"executableCode", "function", "custom", "function_call", "functionCall", "toolUse"})
"""Keys of records that are tool calls, whatever they contain."""
_CALL_TYPE: Final = re.compile(r"(?:^|[._])(\w+?)_call(?!_output)(?![A-Za-z])|tool_use")
"""Matches the type of a tool call, or of an event with a part of one."""
_UNNAMED: Final = frozenset({"function", "custom_tool", "mcp", "tool"})
"""The types of calls whose tool has a name of its own. Other types of calls are tools of the provider."""


class Tool(NamedTuple):
    """A tool that a call in a response may mean.

    Attributes:
        name: The name of the tool; empty if it is not known for certain.
        is_providers: Whether the provider itself defines the tool: a shell, a computer, or an interpreter.
    """

    name: str = ""
    is_providers: bool = False


def tool_of(record: Mapping[str, object], key: object = None) -> Tool | None:
    """Return the tool that a record in a response calls; None if the record is not a call.

    Args:
        record: The record.
        key: The key of the record in the record around it.
    """
    found = _CALL_TYPE.search(str(record.get("type")))
    name = record.get("name")
    if isinstance(name, str) and name and (found or key in _CALLS or not _ARGUMENTS.isdisjoint(record)):
        return Tool(name)
    if found is not None and found[1] and found[1] not in _UNNAMED:
        return Tool(found[1], is_providers=True)
    if key == "executableCode":
        return Tool("code_execution", is_providers=True)
    return Tool() if found or key in _CALLS else None


class _Around(NamedTuple):
    """What is known where a value in a response stands.

    Attributes:
        tools: The tools that calls without a name may mean.
        links: Has read the texts of the answer before the value.
    """

    tools: Iterable[Tool]
    links: Links | None


_MAY_HOLD: Final = re.compile(r"[<>]|&lt;|\\u00(?:3[ce]|26[lg]t;)", re.IGNORECASE)


@dataclass(slots=True, eq=False)
class Reply:
    """Restores masked values in the response to one request.

    Attributes:
        format: The format of the request.
        session: The placeholders and their values.
        wants_json: Whether the text of the response is JSON, in which values have to be escaped.
        tools: Which tools receive restored values, see `ctxguard.pii.mask.unmask.gets_values`.
        names_host: Function that returns whether the user named a host. In links to other hosts, placeholders are kept.
        on_id: Function called with the id of a response that the provider stores.
        on_item: Function called with the id of a stored response item and its changed texts: a mapping from the
            client's version of each text to the provider's version.
    """

    format: Format
    session: MaskSession
    wants_json: bool = False
    tools: Mapping[str, bool] = field(default_factory=dict)
    names_host: NamesHost | None = None
    on_id: OnId | None = None
    on_item: OnItem | None = None

    def whole(self, raw: bytes) -> bytes:
        """Return the body of a response with values restored. A body that is not a JSON value is returned unchanged."""
        try:
            answer = json.loads(raw)
            restored = self.restore(answer)
        except (ValueError, RecursionError):
            return raw
        self.learn(answer)
        return raw if restored is answer else as_json(restored)

    def learn(self, answer: object) -> None:
        """Pass the id of a stored response to `on_id`."""
        name = answer.get("id") if isinstance(answer, dict) else None
        if self.on_id is not None and isinstance(name, str):
            note, self.on_id = self.on_id, None  # only once, because the events of a stream repeat the id
            note(name)

    def gives(self, tools: Iterable[Tool]) -> bool:
        """Return whether a call gets values, which may mean any of these tools.

        Every call in every form of a response is decided here. A call of which no tool is known gets values only if no
        tool is denied them.
        """
        told = list(tools) or [Tool()]
        return all(gets_values(self.tools, tool.name, is_outward=tool.is_providers) for tool in told)

    def links(self) -> Links | None:
        """Return what reads the texts that a client may show as one, to keep values out of links that leak."""
        return None if self.names_host is None else Links(self.names_host)

    def restore(self, value: object, known: Iterable[Tool] = (), links: Links | None = None) -> object:
        """Return a JSON value with masked values restored in its texts; the same object if nothing changes.

        Args:
            value: The value.
            known: The tools that calls without a name in the value may mean.
            links: Has read the texts before. None if there are none.
        """
        return self._restore(value, None, _Around(known, links or self.links()))

    def _restore(self, value: object, key: object, around: _Around) -> object:
        if isinstance(value, str):
            return self.text(value, around.links if key in SHOWN else self.links())
        if isinstance(value, list):
            is_divided = key in _ALTERNATIVES
            arounds = (around._replace(links=self.links()) if is_divided else around for _ in value)
            members = [self._restore(member, key, one) for member, one in zip(value, arounds, strict=True)]
            return members if any(new is not old for new, old in zip(members, value, strict=True)) else value
        return self._restore_record(value, key, around) if isinstance(value, dict) else value

    def _restore_record(self, record: dict[str, object], at: object, around: _Around) -> dict[str, object]:
        known = list(around.tools)
        if str(record.get("type")) in _KEPT_TYPES or record.get("thought") is True:
            return record
        tool = tool_of(record, at)
        if tool is not None and not self.gives([*known, *([tool] if tool.name or not known else [])]):
            return record
        fields = {
            key: value if key in _KEPT else self._restore_field(key, value, around) for key, value in record.items()
        }
        if all(fields[key] is record[key] for key in fields):
            return record
        name = record.get("id")
        if self.on_item is not None and isinstance(name, str) and "type" in record:
            self.on_item(name, dict(_changed_texts(fields, record)))
        return fields

    def _restore_field(self, key: str, value: object, around: _Around) -> object:
        if key == "arguments" and isinstance(value, str):
            return self.arguments(value)
        if key in _OBJECTS and isinstance(value, dict):
            written = json.dumps(value, ensure_ascii=False)
            restored = self.arguments(written)
            return value if restored is written else json.loads(restored)
        return self._restore(value, key, around)

    def text(self, text: str, links: Links | None = None) -> str:
        """Return a text with masked values restored.

        Args:
            text: The text.
            links: Has read the texts before, and reads this text. None if there are none.
        """
        links = links or self.links()
        is_arguments = self.wants_json and text.lstrip()[:1] in ("{", "[")
        if _MAY_HOLD.search(text) is None:
            if links is not None:
                (links.read_json if is_arguments else links.read)(text)
            return text
        restored = self.session.restore_after(text, links, arguments=is_arguments)
        return text if restored == text else restored

    def arguments(self, text: str) -> str:
        """Return the JSON arguments of a tool call with masked values restored."""
        if _MAY_HOLD.search(text) is None:
            return text
        restored = self.session.restore_after(text, self.links(), arguments=True)
        return text if restored == text else restored


def _changed_texts(now: object, was: object) -> list[tuple[str, str]]:
    """Return the pairs of changed texts: each new text with the text it replaced."""
    if isinstance(now, str) and isinstance(was, str):
        return [(now, was)] if now != was else []
    if isinstance(now, list) and isinstance(was, list):
        return [pair for one, other in zip(now, was, strict=True) for pair in _changed_texts(one, other)]
    if isinstance(now, dict) and isinstance(was, dict):
        return [pair for key in now for pair in _changed_texts(now[key], was.get(key))]
    return []


def as_json(value: object, *, allow_nan: bool = True) -> bytes:
    """Return a JSON value as bytes, on one line."""
    write = partial(json.dumps, value, separators=(",", ":"), allow_nan=allow_nan)
    try:
        return write(ensure_ascii=False).encode()
    except UnicodeEncodeError:  # an unpaired surrogate
        return write().encode()


def session_of(masks: Iterable[object]) -> MaskSession | None:
    """Return the masking session of a history, found through the `masks` of its report; None if there is none."""
    sessions = (getattr(mask, "__self__", None) for mask in masks)
    return next((one for one in sessions if isinstance(one, MaskSession)), None)
