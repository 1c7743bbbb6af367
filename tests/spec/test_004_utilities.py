"""spec/004, the lean utilities: paragraph by paragraph; docstrings quote the line they hold."""

from __future__ import annotations

import copy
import inspect
import random
import sys

import pytest
from blocks import code_blocks, run_block, shimmed

from ctxguard import estimate_tokens, truncate_messages
from ctxguard.compat import truncate

MESSAGES = [
    {"role": "system", "content": "You are helpful"},
    *({"role": ("user", "assistant")[n % 2], "content": f"Message {n}"} for n in range(53)),
]


def test_signatures():
    """> model: str = "gpt-3.5-turbo\""""
    assert list(inspect.signature(estimate_tokens).parameters) == ["messages", "model"]
    assert inspect.signature(estimate_tokens).parameters["model"].default == "gpt-3.5-turbo"
    assert str(inspect.signature(truncate_messages)).count("=") == 2


def test_estimate_tokens_with_tiktoken():
    """> Uses tiktoken if available"""
    messages = [{"role": "system", "content": "You are a helpful assistant"}, {"role": "user", "content": "Hello!"}]
    assert estimate_tokens(messages) in (21, 22, 23, 24)


def test_estimate_tokens_fallback(monkeypatch):
    """> approximation (1 token ≈ 4 characters)"""
    monkeypatch.setattr(truncate, "_counter", lambda _model: None)
    assert estimate_tokens([{"role": "user", "content": "x" * 396}]) == 100


def test_estimate_tokens_of_a_family_without_a_tokenizer():
    """> otherwise falls back to character-based"""
    assert estimate_tokens([{"role": "user", "content": "x" * 396}], model="llama-3") == 100


def test_truncate_messages_basic():
    """> >>> len(truncated)  # system + 5 recent = 6"""
    truncated = truncate_messages(MESSAGES, keep=5)
    assert truncated == [MESSAGES[0], *MESSAGES[-5:]]


def test_truncate_messages_preserve_system():
    """> preserve_system: Keep system message if present (default: True)"""
    assert truncate_messages(MESSAGES, keep=3, preserve_system=False) == MESSAGES[-3:]


def test_truncate_messages_no_system():
    """> Just keep last N messages"""
    assert truncate_messages(MESSAGES[1:], keep=3) == MESSAGES[-3:]
    assert truncate_messages(MESSAGES[1:], keep=0) == []


def test_short_histories_are_copied():
    """> return messages.copy()"""
    copied = truncate_messages(MESSAGES[:3], keep=10)
    assert copied == MESSAGES[:3]
    assert copied is not MESSAGES


def test_nothing_is_changed_silently():
    """> No silent mutations - users always in control"""
    before = copy.deepcopy(MESSAGES)
    estimate_tokens(MESSAGES)
    truncate_messages(MESSAGES, keep=2)[0]["role"]
    assert before == MESSAGES


def test_long_conversation():
    """> Long conversation example (50+ turns)"""
    history = list(MESSAGES)
    for n in range(50):
        history += [{"role": "user", "content": f"Question {n}"}, {"role": "assistant", "content": f"Answer {n}"}]
        if estimate_tokens(history) > 400:
            history = truncate_messages(history, keep=10)
    assert history[0] == MESSAGES[0]
    assert estimate_tokens(history) <= 400 + 20


@pytest.mark.parametrize(
    "title", ["Stateless agents", "Truncation at breakpoints", "Watching the budget", "Memory outside"]
)
def test_four_patterns_are_documented(title):
    """> Documentation shows 4+ real-world patterns"""
    from pathlib import Path

    assert title in (Path(__file__).parents[2] / "docs" / "patterns.md").read_text(encoding="utf-8")


async def test_the_code_blocks_of_004_run_as_written(monkeypatch, capsys):
    """> async with Client(options) as client:"""
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    space = shimmed("004")
    *helpers, exports, usage, stateless, breakpoints, watching, memory = code_blocks("004")
    for block in (*helpers, exports):
        exec(block, space)
    assert all(hasattr(sys.modules["open_agent.context"], name) for name in space["__all__"])
    r = random.Random(4)
    for _ in range(200):
        messages = [{"role": r.choice(["system", "user"]), "content": "word " * r.randint(0, 9)} for _ in range(12)]
        arguments = {"keep": r.randint(0, 15), "preserve_system": r.random() < 0.5}
        if arguments["keep"]:  # at 0 the document's own code keeps all
            assert truncate_messages(messages, **arguments) == space["truncate_messages"](messages, **arguments)
    for block in (usage, stateless, breakpoints, memory):
        await run_block(block, space)
    assert "Current context: ~" in capsys.readouterr().out
    assert len(space["done"]) == len(space["chapters"]) + len(space["tasks"])
    assert space["database"] == {"fact": {"role": "assistant", "content": "An answer."}}
    assert space["client"].history[-1]["content"].startswith("Using these facts")
    with pytest.raises(IndexError):  # the loop has no end but that of the questions
        await run_block(watching.replace("28000", "100"), space)
    assert "truncating" in capsys.readouterr().out
