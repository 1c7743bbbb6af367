"""Restore masked values in a response: in its texts and in the arguments of its tool calls.

Placeholders in reasoning are kept, because providers accept reasoning only unmodified. A response without placeholders
stays the same, byte for byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ctxguard.adapting.json_walk import FIXED
from ctxguard.adapting.restoring import Restorer, Tool
from ctxguard.errors import WireError
from ctxguard.formats.format import SHOWN
from ctxguard.tokens.media import is_payload

if TYPE_CHECKING:
    from ctxguard.formats.format import Format
    from ctxguard.pii.mask.links import Links

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
_ARGUMENTS: Final = frozenset({"arguments", "args", "input"})
"""Keys of the arguments of a tool call: as text for OpenAI and Cohere, as an object for Anthropic and Amazon (`input`),
Gemini (`args`), and Ollama (`arguments`)."""
ALTERNATIVES: Final = frozenset({"choices", "candidates"})
"""Keys of lists whose members are answers on their own."""
_LOGPROBS: Final = frozenset({"logprobs", "logprobsResult"})
"""Keys of the probabilities of the tokens, which repeat a text token by token."""
_CALLS: Final = frozenset({"executableCode", "function", "custom", "function_call", "functionCall", "toolUse"})
"""Keys of records that are tool calls, whatever they contain."""
_CALL_TYPE: Final = re.compile(r"(?:^|[._])(\w+?)_call(?!_output)(?![A-Za-z])|tool_use")
"""Matches the type of a tool call, or of an event with a part of one."""
_UNNAMED: Final = frozenset({"function", "custom_tool", "mcp", "tool"})
"""The types of calls whose tool has a name of its own. Other types of calls are tools of the provider."""


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
        is_call: Whether the value is part of a call.
        gives_values: Whether values are restored: not in the calls of tools that may not get them.
    """

    tools: Iterable[Tool]
    links: Links | None
    is_call: bool = False
    gives_values: bool = True


@dataclass(slots=True, eq=False)
class Reply(Restorer):
    """Restores masked values in the body of the response to one request.

    Attributes:
        format: The format of the request.
        on_id: Function called with the id of a response that the provider stores.
        on_item: Function called with the id of a stored response item and its changed texts: a mapping from the
            client's version of each text to the provider's version.
    """

    format: Format
    on_id: OnId | None = field(default=None, kw_only=True)
    on_item: OnItem | None = field(default=None, kw_only=True)

    @classmethod
    def of(cls, restorer: Restorer, kind: Format, *, wants_json: bool = False, outputs: Collection[str] = ()) -> Reply:
        """Create an instance for a response that a framework received.

        Args:
            restorer: Restores the values.
            kind: The format of the response.
            wants_json: Whether the text of the response is JSON.
            outputs: The names of tools that are structured output. Their arguments get values in any case.
        """
        return cls(
            restorer.session,
            kind,
            wants_json=wants_json,
            tools=restorer.tools,
            outputs=outputs,
            names_host=restorer.names_host,
            scan=restorer.scan,
        )

    def whole(self, raw: bytes) -> bytes:
        """Return the body of a response with values restored. A body that is not a JSON value is returned unchanged.

        Raises:
            WireError: If the body has a value that is to be refused, or one that cannot be masked.
        """
        try:
            answer = json.loads(raw)
            restored = self.restore(answer)
        except (ValueError, RecursionError):
            return self.unread(raw)
        self.learn(answer)
        return raw if restored is answer else as_json(restored)

    def unread(self, raw: bytes) -> bytes:
        """Return a response, or a part of one, that cannot be read, unless the client would get a new value with it.

        Raises:
            WireError: If there is such a value.
        """
        if self.scan is not None and self.scan.hides:
            text = raw.decode(errors="replace")
            if self.scan.text(text) != text:
                message = "the answer cannot be read, and introduces a value, so it is not passed on"
                raise WireError(message, status=502)
        return raw

    def learn(self, answer: object) -> None:
        """Pass the id of a stored response to `on_id`."""
        name = answer.get("id") if isinstance(answer, dict) else None
        if self.on_id is not None and isinstance(name, str):
            note, self.on_id = self.on_id, None  # only once, because the events of a stream repeat the id
            note(name)

    def restore(self, value: object, known: Iterable[Tool] = (), links: Links | None = None) -> object:
        """Return a JSON value with masked values restored in its texts; the same object if nothing changes.

        Args:
            value: The value.
            known: The tools that calls without a name in the value may mean.
            links: Has read the texts before. None if there are none.
        """
        return self._restore(value, None, _Around(known, links or self.links()))

    def without_logprobs(self, record: Mapping[str, object]) -> Mapping[str, object]:
        """Return a record without the probabilities of its tokens if the client does not get new values.

        The tokens repeat what may be masked, in pieces in which no rule finds anything.
        """
        return record if self.scan is None or not self.scan.hides else without_logprobs(record)

    def _restore(self, value: object, key: object, around: _Around) -> object:
        if isinstance(value, str):
            is_said = key in SHOWN or key in _ARGUMENTS or not is_payload(value)
            if self.scan is not None and (around.is_call or not _is_framing(key)) and is_said:
                value = self.searched(value, is_call=around.is_call)
            return self.text(value, around.links if key in SHOWN else self.links()) if around.gives_values else value
        if isinstance(value, list):
            is_divided = key in ALTERNATIVES
            arounds = (around._replace(links=self.links()) if is_divided else around for _ in value)
            members = [self._restore(member, key, one) for member, one in zip(value, arounds, strict=True)]
            return members if any(new is not old for new, old in zip(members, value, strict=True)) else value
        return self._restore_record(value, key, around) if isinstance(value, dict) else value

    def _restore_record(self, record: dict[str, object], at: object, around: _Around) -> dict[str, object]:
        known = list(around.tools)
        if str(record.get("type")) in _KEPT_TYPES or record.get("thought") is True:
            return record
        tool = tool_of(record, at)
        if tool is not None:
            gives = self.gives([*known, *([tool] if tool.name or not known else [])])
            around = around._replace(is_call=True, gives_values=around.gives_values and gives)
        if not around.gives_values and self.scan is None:
            return record
        shown = record if around.is_call else self.without_logprobs(record)
        fields = {
            key: value if key in _KEPT else self._restore_field(key, value, around) for key, value in shown.items()
        }
        if all(fields[key] is record[key] for key in fields):
            return record
        name = record.get("id")
        if self.on_item is not None and isinstance(name, str) and "type" in record:
            self.on_item(name, dict(_changed_texts(fields, shown)))
        return fields

    def _restore_field(self, key: str, value: object, around: _Around) -> object:
        if (key == "arguments" and isinstance(value, str)) or (key in _ARGUMENTS and isinstance(value, dict)):
            return self.restored_arguments(value, gives_values=around.gives_values)
        return self._restore(value, key, around)


def without_logprobs(record: Mapping[str, object]) -> Mapping[str, object]:
    """Return a record of a response without the probabilities of its tokens; the same object if it has none."""
    emptied: dict[str, object] = {
        key: [] if isinstance(record[key], list) else None for key in _LOGPROBS & record.keys() if record[key]
    }
    return {**record, **emptied} if emptied else record


def _is_framing(key: object) -> bool:
    """Return whether the value of a key outside of calls is an id, a link, or data, which is not searched."""
    return isinstance(key, str) and (key in FIXED or key.endswith(("_id", "Id")))


def _changed_texts(now: object, was: object) -> list[tuple[str, str]]:
    """Return the pairs of changed texts: each new text with the text it replaced."""
    if isinstance(now, str) and isinstance(was, str):
        return [(now, was)] if now != was else []
    if isinstance(now, list) and isinstance(was, list):
        return [pair for one, other in zip(now, was, strict=False) for pair in _changed_texts(one, other)]
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
