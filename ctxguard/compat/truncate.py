"""Two helpers for managing a message history by hand. Nothing is automatic, and no input is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from ctxguard.errors import HistoryError, TokenizerError
from ctxguard.settings import whole_number
from ctxguard.tokens import TokenCounter, find_counter
from ctxguard.tokens.counters import encoding_of

MESSAGE_TOKENS = 4  # framing of each message (from OpenAI's cookbook)
CONVERSATION_TOKENS = 2  # framing of the whole conversation
CHARS_PER_TOKEN = 4  # a common estimate for English text

_UNBILLED: Final = frozenset({"id", "tool_call_id", "type"})
"""Keys whose short strings a provider does not show the model: ids, and the names of kinds of parts and calls."""
_LONGEST_ID: Final = 64
"""Maximum number of characters in such a string. Longer ones are text, such as arguments with a key `type`."""


class MessageObject(Protocol):
    """A message of the openai SDK, as answers hold it."""

    @property
    def role(self) -> str:
        """Who says it."""
        ...

    def model_dump(self) -> dict[str, object]:
        """Return the message as a dict."""
        ...


Message = TypeVar("Message", bound=Mapping[str, object] | MessageObject)


def estimate_tokens(messages: Sequence[Mapping[str, object] | MessageObject], model: str = "gpt-3.5-turbo") -> int:
    """Return the approximate number of tokens in a list of OpenAI messages.

    If the model's tokenizer is installed, the estimate is 4 tokens for each message, 1 for its role, the tokens of
    every string in it (including those in content parts and tool calls, except ids and types), and 2 for the
    conversation. Otherwise, it is one token for every 4 characters. Leave a margin of 10% to 20% when you compare the
    estimate with a limit, because other model families count differently: a count of a plain chat by the tokenizer is
    about 90% to 95% accurate for GPT models, and 70% to 85% for Llama, Qwen, and Mistral.

    Args:
        messages: Dicts with `role`, `content`, and any other keys, or messages of the openai SDK. They are not changed.
        model: Name of the model, which determines the tokenizer.

    Raises:
        HistoryError: If `messages` is not a list of dicts.
        ConfigError: If `model` is not a string.
    """
    dicts = _as_dicts(messages)
    counter = _counter(model)
    if counter is None:
        return sum(len(text) for message in dicts for text in _texts(message)) // CHARS_PER_TOKEN
    total = CONVERSATION_TOKENS
    for message in dicts:
        total += MESSAGE_TOKENS + isinstance(message.get("role"), str)
        total += sum(map(counter.count, _texts(message)))
    return total


def _counter(model: str) -> TokenCounter | None:
    """Return the counter of a model, or None if its tokenizer is unknown or not installed."""
    encoding = encoding_of(model)
    with suppress(TokenizerError):
        return None if encoding is None else find_counter(encoding)
    return None


def _as_dicts(messages: object) -> list[Mapping[str, object]]:
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise HistoryError(f"expected a list of messages, got {type(messages).__name__}")
    dicts = []
    for position, message in enumerate(messages):
        if isinstance(message, Mapping):
            dicts.append(message)
        elif hasattr(message, "role") and hasattr(message, "model_dump"):
            dicts.append(message.model_dump())
        else:
            raise HistoryError(f"expected a dict, got {type(message).__name__}", position=position)
    return dicts


def _texts(message: object) -> Iterator[str]:
    """Yield every string in a message that is billed, however deeply it is nested, without recursion.

    A container that contains itself is not entered again.
    """
    entered: list[int] = [0]
    stack = [iter((message,))]
    while stack:
        for value in stack[-1]:
            if isinstance(value, str):
                yield value
            elif isinstance(value, Mapping | list | tuple) and id(value) not in entered:
                stack.append(iter(_billed(value) if isinstance(value, Mapping) else value))
                entered.append(id(value))
                break
        else:
            stack.pop()
            entered.pop()


def _billed(fields: Mapping[object, object]) -> list[object]:
    return [v for k, v in fields.items() if k not in _UNBILLED or not isinstance(v, str) or len(v) > _LONGEST_ID]


def truncate_messages(messages: Sequence[Message], keep: int = 10, preserve_system: bool = True) -> list[Message]:  # noqa: FBT001, FBT002 - the documented signature
    """Return the system message and the latest `keep` messages.

    Tool calls are not considered, so a tool result may lose its call. `Stabilizer` keeps calls and results together.

    Args:
        messages: Dicts with the key `role`, or messages of the openai SDK. They are not changed.
        keep: Number of latest messages to keep, at least 0.
        preserve_system: Whether to keep the first message as well if it is a system message.

    Raises:
        HistoryError: If `messages` is not a list of dicts.
        ConfigError: If `keep` is not a whole number of at least 0.
    """
    dicts = _as_dicts(messages)
    whole_number(keep, "keep", unit="messages")
    if len(messages) <= keep:
        return list(messages)
    recent = list(messages[len(messages) - keep :])
    has_system = preserve_system and dicts[0].get("role") == "system"
    return [messages[0], *recent] if has_system else recent
