"""Read a request as it would be sent: its messages, their strings, and their tool calls and results.

Requests are read as plain JSON, based on the API documentation of Chat Completions, Responses, Anthropic, Converse, and
Gemini. To judge independently, this module uses no stage, check, or adapter, because these create and validate
requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ctxguard.harness.fidelity import ByIdentity

_UNSEARCHED: Final = frozenset(
    {"id", "tool_call_id", "call_id", "tool_use_id", "signature", "encrypted_content", "type", "role", "data", "name"}
)
"""Fields that no stage may edit; the caller is responsible for personal data in them."""
_BY_ORDER: Final = "by order"


@dataclass(frozen=True, slots=True)
class WireMessage:
    """One message as it would be sent.

    Attributes:
        role: Role of the message, or the item type if the item has no role.
        json: Message as canonical JSON.
        texts: Every string in the message that a model or a log may read, as `(path, string)`.
        calls: Ids of the tool calls in the message; None for a call without an id.
        results: Ids of the tool calls that the message answers.
        is_item: Whether the message is a separate item for a call or a result, as in Responses. Other items may come
            between such a call and its result.
    """

    role: str
    json: str
    texts: tuple[tuple[str, str], ...]
    calls: tuple[str | None, ...] = ()
    results: tuple[str | None, ...] = ()
    is_item: bool = False


class WireReader:
    """Reads the messages of requests and caches them. Use one instance for each session."""

    def __init__(self) -> None:
        self._read: ByIdentity[object, WireMessage] = ByIdentity(_wire)

    def messages(self, native: object) -> list[WireMessage]:
        """Return the messages of a request; a system prompt that the request has in a separate field comes first."""
        return [self._read(message) for message in _messages(native)]


def _messages(native: object) -> Iterator[object]:
    if not isinstance(native, Mapping):
        yield from native if isinstance(native, Sequence) and not isinstance(native, str) else (native,)
        return
    if native.get("system"):
        yield {"role": "system", "content": native["system"]}
    for key in ("messages", "input"):
        if isinstance(native.get(key), list):
            yield from native[key]


def _plain(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    return dump(exclude_unset=True) if dump is not None else str(value)


def _wire(message: object) -> WireMessage:
    text = json.dumps(message, default=_plain, sort_keys=True, ensure_ascii=False)
    value = json.loads(text)
    if not isinstance(value, dict):
        return WireMessage("", text, (("", str(value)),))
    kind = str(value.get("type", ""))
    role = str(value.get("role") or kind or value.get("kind", ""))
    calls, results = tuple(_calls(value)), tuple(_results(value))
    is_item = "role" not in value and bool(calls or results)
    return WireMessage(role, text, tuple(_texts(value, "")), calls, results, is_item)


def _texts(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if value:
            yield path, value
    elif isinstance(value, dict):
        for key, each in value.items():
            if key not in _UNSEARCHED and not (key == "url" and str(each).startswith("data:")):
                yield from _texts(each, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _texts(each, f"{path}[{number}]")


def _id(value: Mapping[str, object], key: str) -> str | None:
    found = value.get(key)
    return found if isinstance(found, str) else None


def _listed(value: Mapping[str, object], field: str) -> Iterator[Mapping[str, object]]:
    listed = value.get(field)
    return (each for each in (listed if isinstance(listed, list) else ()) if isinstance(each, dict))


def _blocks(value: Mapping[str, object], kind: str) -> Iterator[Mapping[str, object]]:
    return (block for block in _listed(value, "content") if block.get("type") == kind)


def _nested(value: Mapping[str, object], field: str, *keys: str) -> Iterator[Mapping[str, object]]:
    """Yield the objects under any of `keys` in the content blocks that a message has in the list `field`.

    Converse and Gemini have calls and results there.
    """
    return (found for block in _listed(value, field) for key in keys if isinstance(found := block.get(key), dict))


def _calls(value: Mapping[str, object]) -> Iterator[str | None]:
    yield from (_id(call, "id") for call in _listed(value, "tool_calls"))
    if value.get("function_call"):
        yield _BY_ORDER
    yield from (_id(block, "id") for block in _blocks(value, "tool_use"))
    yield from (_id(call, "toolUseId") for call in _nested(value, "content", "toolUse"))
    yield from (_id(call, "id") for call in _nested(value, "parts", "functionCall", "function_call"))
    if str(value.get("type", "")).endswith("_call") and "call_id" in value:
        yield _id(value, "call_id")


def _results(value: Mapping[str, object]) -> Iterator[str | None]:
    if value.get("role") == "tool":
        yield _id(value, "tool_call_id")
    elif value.get("role") == "function":
        yield _BY_ORDER
    yield from (_id(block, "tool_use_id") for block in _blocks(value, "tool_result"))
    yield from (_id(result, "toolUseId") for result in _nested(value, "content", "toolResult"))
    yield from (_id(result, "id") for result in _nested(value, "parts", "functionResponse", "function_response"))
    if str(value.get("type", "")).endswith("_call_output"):
        yield _id(value, "call_id")


def pair_faults(messages: Iterable[WireMessage]) -> Iterator[tuple[str, str]]:
    """Yield each place where tool calls and results do not pair, as `(problem, path)`.

    The rule is that of the APIs: the results of all calls in a message follow it directly. If calls are separate items
    (Responses), calls and results of one exchange may come in any order. Calls in the last exchange may be unanswered.
    """
    waiting: list[str | None] = []
    for place, message in enumerate(messages):
        for answered in message.results:
            if answered in waiting:
                waiting.remove(answered)
            else:
                yield "a tool result without its call", f"messages[{place}]"
        if message.results or (message.is_item and message.calls):
            waiting += message.calls
            continue
        if waiting and message.role in _SPEAKERS and not message.is_item:
            yield f"{len(waiting)} tool calls stand without their results", f"messages[{place}]"
            waiting = []
        waiting += message.calls


def newest_exchange(messages: Sequence[WireMessage]) -> int:
    """Return the index of the first message of the tool exchange whose results the model has not read yet.

    If there is no such exchange, return the number of messages.
    """
    last = next((n for n in range(len(messages) - 1, -1, -1) if messages[n].calls or messages[n].role in _MODEL), None)
    if last is None or not messages[last].calls:
        return len(messages)
    while last and messages[last].is_item and messages[last - 1].is_item and messages[last - 1].calls:
        last -= 1
    return last


_MODEL: Final = ("assistant", "model")
_SPEAKERS: Final = ("user", "assistant", "system", "developer")
