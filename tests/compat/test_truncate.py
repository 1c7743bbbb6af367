"""spec/004: two lean helpers, opt-in, that change nothing they are given."""

from __future__ import annotations

import copy

import pytest

from ctxguard import estimate_tokens, truncate_messages
from ctxguard.errors import HistoryError, TokenizerError
from ctxguard.tokens import ToktokCounter

MESSAGES = [{"role": "system", "content": "You are helpful"}] + [
    {"role": "assistant" if n % 2 else "user", "content": f"Message {n}"} for n in range(52)
]


def test_estimate_tokens_with_tiktoken():
    messages = [{"role": "system", "content": "You are a helpful assistant"}, {"role": "user", "content": "Hello!"}]
    count = ToktokCounter("cl100k_base").count
    texts = [text for message in messages for text in message.values()]
    assert estimate_tokens(messages) == sum(map(count, texts)) + 2 * (4 + 1) + 2


def test_estimate_tokens_fallback(monkeypatch):
    def missing(*args, **kwargs):
        raise TokenizerError("not here")

    monkeypatch.setattr("ctxguard.compat.truncate.find_counter", missing)
    messages = [{"role": "user", "content": "x" * 36}]
    assert estimate_tokens(messages) == (4 + 36) // 4


def test_estimate_tokens_of_a_model_without_a_public_tokenizer_falls_back():
    assert estimate_tokens([{"role": "user", "content": "x" * 36}], model="qwen2.5-32b") == 10


def test_estimate_tokens_counts_parts_and_tool_calls():
    plain = [{"role": "assistant", "content": None}]
    calling = [
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}" * 99}}]}
    ]
    assert estimate_tokens(calling) > estimate_tokens(plain) + 20


def test_estimate_tokens_names_what_is_no_message():
    with pytest.raises(HistoryError, match="message 0: expected a dict, got str"):
        estimate_tokens(["hello"])


def test_truncate_messages_basic():
    truncated = truncate_messages(MESSAGES, keep=5)
    assert truncated == [MESSAGES[0], *MESSAGES[-5:]]
    assert len(truncated) == 6
    assert all(a is b for a, b in zip(truncated[1:], MESSAGES[-5:], strict=True))


def test_truncate_messages_preserve_system():
    assert truncate_messages(MESSAGES, keep=3, preserve_system=False) == MESSAGES[-3:]


def test_truncate_messages_no_system():
    assert truncate_messages(MESSAGES[1:], keep=4) == MESSAGES[-4:]


def test_truncate_messages_keeps_ten_by_default_and_copies_short_lists():
    assert len(truncate_messages(MESSAGES)) == 11
    short = MESSAGES[:4]
    copied = truncate_messages(short)
    assert copied == short
    assert copied is not short


def test_truncate_messages_to_nothing_keeps_the_system_message():
    assert truncate_messages(MESSAGES, keep=0) == MESSAGES[:1]


def test_truncate_messages_refuses_a_negative_number():
    with pytest.raises(ValueError, match="keep must be 0 or more messages, not -1"):
        truncate_messages(MESSAGES, keep=-1)


def test_neither_changes_its_input():
    before = copy.deepcopy(MESSAGES)
    estimate_tokens(MESSAGES)
    truncate_messages(MESSAGES, keep=2)
    assert before == MESSAGES
