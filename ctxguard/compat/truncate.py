"""Two small helpers for managing a history by hand: nothing is automatic, and no input is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from ctxguard.errors import HistoryError, TokenizerError
from ctxguard.settings import whole_number
from ctxguard.tokens import TokenCounter, find_counter
from ctxguard.tokens.counters import encoding_of

MESSAGE_TOKENS = 4  # framing per message, role included (OpenAI's cookbook)
CONVERSATION_TOKENS = 2  # framing per conversation
CHARS_PER_TOKEN = 4  # a common estimate for English

Message = TypeVar("Message", bound=Mapping[str, object])


def estimate_tokens(messages: Sequence[Mapping[str, object]], model: str = "gpt-3.5-turbo") -> int:
    """Return the approximate number of tokens of a list of OpenAI messages.

    If the model's tokenizer is installed: 4 tokens a message, 1 for its role, the tokens of every text in it (texts in
    content parts and tool calls too), 2 for the conversation. Without it: a token for every 4 characters. Keep 10 to
    20% free when you compare it with a limit; other families than GPT count differently.

    Args:
        messages: dicts with `role`, `content` and whatever else; not changed.
        model: name of the model, to choose the vocabulary.

    Raises:
        HistoryError: `messages` is not a list of dicts.
        ConfigError: `model` is not a string.
    """
    _require_messages(messages)
    counter = _counter(model)
    if counter is None:
        return sum(len(text) for message in messages for text in _texts(message)) // CHARS_PER_TOKEN
    total = CONVERSATION_TOKENS
    for message in messages:
        total += MESSAGE_TOKENS + isinstance(message.get("role"), str)
        total += sum(map(counter.count, _texts(message)))
    return total


def _counter(model: str) -> TokenCounter | None:
    encoding = encoding_of(model)
    with suppress(TokenizerError):
        return None if encoding is None else find_counter(encoding)
    return None


def _require_messages(messages: object) -> None:
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise HistoryError(f"expected a list of messages, got {type(messages).__name__}")
    for position, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise HistoryError(f"expected a dict, got {type(message).__name__}", position=position)


def _texts(message: object) -> Iterator[str]:
    """Yield every string in a message, however deeply nested; a container that contains itself is entered once."""
    entered: list[int] = [0]
    stack = [iter((message,))]
    while stack:
        for value in stack[-1]:
            if isinstance(value, str):
                yield value
            elif isinstance(value, Mapping | list | tuple) and id(value) not in entered:
                stack.append(iter(value.values() if isinstance(value, Mapping) else value))
                entered.append(id(value))
                break
        else:
            stack.pop()
            entered.pop()


def truncate_messages(messages: Sequence[Message], keep: int = 10, preserve_system: bool = True) -> list[Message]:  # noqa: FBT001, FBT002 - the documented signature
    """Return the latest `keep` messages, with the system message in front of them.

    It does not look at tool calls, so a result may lose its call. `Stabilizer` keeps pairs together.

    Args:
        messages: dicts with `role`; not changed.
        keep: how many of the latest messages to keep, 0 or more.
        preserve_system: keep the first message, too, if it is a system message.

    Raises:
        HistoryError: `messages` is not a list of dicts.
        ConfigError: `keep` is not a whole number, 0 or more.
    """
    _require_messages(messages)
    whole_number(keep, "keep", unit="messages")
    if len(messages) <= keep:
        return list(messages)
    recent = list(messages[len(messages) - keep :])
    has_system = preserve_system and messages[0].get("role") == "system"
    return [messages[0], *recent] if has_system else recent
