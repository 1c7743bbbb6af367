"""spec/004: two lean helpers, opt-in, that change nothing they are given."""

from __future__ import annotations

import copy
import subprocess
import sys

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


def test_ids_and_types_are_not_billed():
    call = {
        "id": "call_" + "9" * 40,
        "type": "function",
        "function": {"name": "look_up", "arguments": '{"city": "Rome"}'},
    }
    calling = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "Sunny."}
    bare = [{"role": "assistant", "content": 'look_up{"city": "Rome"}'}, {"role": "tool", "content": "Sunny."}]
    assert abs(estimate_tokens([calling, result]) - estimate_tokens(bare)) <= 2


def test_messages_of_the_openai_sdk_are_taken_and_come_back_as_they_are():
    chat = pytest.importorskip("openai.types.chat")
    message = chat.ChatCompletionMessage(role="assistant", content="All is well, as far as I know.")
    history = [MESSAGES[0], *[message] * 12]
    as_dicts = [MESSAGES[0], *[message.model_dump()] * 12]
    assert estimate_tokens(history) == estimate_tokens(as_dicts)
    kept = truncate_messages(history, keep=3)
    assert [id(one) for one in kept] == [id(MESSAGES[0])] + [id(message)] * 3


def test_without_tiktoken_everything_but_its_counter_works():
    script = (
        "import sys; sys.modules['tiktoken'] = sys.modules['toktok'] = None\n"
        "import ctxguard, ctxguard.tokens\n"
        "from ctxguard.errors import TokenizerError\n"
        "assert ctxguard.estimate_tokens([{'role': 'user', 'content': 'x' * 396}]) == 100\n"
        "print(ctxguard.guard([{'role': 'user', 'content': 'Hello.'}], budget=900).report.counter)\n"
        "from ctxguard.tokens import counters\n"
        "counters.find_vocabulary = lambda encoding: sys.executable\n"
        "try: ctxguard.tokens.find_counter('o200k_base')\n"
        "except TokenizerError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("estimate\ntiktoken is not installed")
    assert "[context]" in done.stdout


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


def test_a_long_text_is_billed_whatever_its_key():
    text = "a long text " * 1_000
    for fields in ({"arguments": {"type": text}}, {"content": [{"type": "tool_use", "input": {"id": text}}]}):
        assert estimate_tokens([{"role": "assistant", **fields}]) > 2_000


def test_a_mapping_that_answers_every_attribute_is_a_message():
    class Loose(dict):
        def __getattr__(self, name):
            return None

    assert estimate_tokens([Loose(role="user", content="Hello!")]) == estimate_tokens(
        [{"role": "user", "content": "Hello!"}]
    )
