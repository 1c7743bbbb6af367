"""`on_overflow="bound"` works in every door: what a person said is sent in part where it does not fit as a whole."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("langchain_core", reason="langchain-core is not installed (extra langchain)")
pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")

from langchain_core.messages import HumanMessage, SystemMessage
from pydantic_ai.messages import ModelRequest, SystemPromptPart, UserPromptPart

import ctxguard
from ctxguard import BudgetExceededError, Stabilizer
from ctxguard.adapting.adapter import stabilize_native
from ctxguard.wire import Guard
from ctxguard.wire.guard import WireRequest
from ctxguard_anthropic import stabilize_request as stabilize_anthropic
from ctxguard_langchain import LangChainAdapter
from ctxguard_openai import stabilize_input, stabilize_messages
from ctxguard_pydantic_ai import PydanticAIAdapter

LONG = "\n".join(f"{n:04d} INFO worker-{n % 7} handled request {n * 37} in {n % 90} ms" for n in range(600))
BUDGET = 1_500
FORMS = {"a text": lambda kind: LONG, "parts": lambda kind: [{"type": kind, "text": LONG}]}


def of_chat(stabilizer, form):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": form("text")}]
    return stabilize_messages(messages, stabilizer)


def of_responses(stabilizer, form):
    return stabilize_input([{"role": "user", "content": form("input_text")}], stabilizer)


def of_anthropic(stabilizer, form):
    return stabilize_anthropic({"messages": [{"role": "user", "content": form("text")}]}, stabilizer)


def of_langchain(stabilizer, form):
    return stabilize_native(stabilizer, LangChainAdapter(), [SystemMessage("Be brief."), HumanMessage(form("text"))])


def of_pydantic_ai(stabilizer, form):
    text = [LONG] if isinstance(form("text"), list) else LONG
    request = ModelRequest(parts=[SystemPromptPart("Be brief."), UserPromptPart(text)])
    return stabilize_native(stabilizer, PydanticAIAdapter(), [request])


def of_the_wire(path, key, kind):
    def door(stabilizer, form):
        body = {"model": "m", "max_tokens": 10, key: [{"role": "user", "content": form(kind)}]}
        prepared = Guard(stabilizer).prepare(WireRequest("POST", path, {}, json.dumps(body).encode()))
        return prepared.body.decode(), prepared.report

    return door


DOORS = {
    "chat": of_chat,
    "responses": of_responses,
    "anthropic": of_anthropic,
    "langchain": of_langchain,
    "pydantic_ai": of_pydantic_ai,
    "wire chat": of_the_wire("/v1/chat/completions", "messages", "text"),
    "wire responses": of_the_wire("/v1/responses", "input", "input_text"),
    "wire anthropic": of_the_wire("/v1/messages", "messages", "text"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("policy", ["agent", "chat", "browser", "recall"])
def test_what_is_too_long_is_sent_in_part_and_the_report_says_so(door, form, policy):
    sent, report = DOORS[door](Stabilizer.from_policy(policy, BUDGET, on_overflow="bound"), FORMS[form])
    assert report.tokens_after <= BUDGET
    assert "0000 INFO" in str(sent)
    assert any("sent in part" in warning for warning in report.warnings)
    with pytest.raises(BudgetExceededError):
        DOORS[door](Stabilizer.from_policy(policy, BUDGET), FORMS[form])


def test_the_one_line_takes_it():
    assert ctxguard.guard([{"role": "user", "content": LONG}], budget=BUDGET, on_overflow="bound").report.ok
