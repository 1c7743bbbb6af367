"""What a provider would refuse in a history is repaired, on every door, the same each time, and without loss.

Each history consists of steps in which something is wrong: empty texts, ids, halves of pairs, split messages, half an
emoji, results in two steps, arguments that are not JSON. Plain rules judge the JSON that is sent (`provider_rules`).
"""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from provider_rules import RefusedError, judge, judge_chat

from ctxguard import Stabilizer, guard
from ctxguard.adapting.adapter import stabilize_native, stabilize_request
from ctxguard.adapting.request import Request
from ctxguard.errors import CtxguardError
from ctxguard.wire import Guard
from ctxguard.wire.guard import WireRequest
from ctxguard_anthropic import AnthropicAdapter
from ctxguard_bedrock import BedrockAdapter
from ctxguard_google import GoogleAdapter
from ctxguard_openai import OpenAIAdapter, ResponsesAdapter

DOORS = {
    "chat": (OpenAIAdapter(), "/v1/chat/completions", "messages"),
    "responses": (ResponsesAdapter(), "/v1/responses", "input"),
    "anthropic": (AnthropicAdapter(), "/v1/messages", "messages"),
    "gemini": (GoogleAdapter(), "/v1beta/models/gemini-2.5-flash:generateContent", "contents"),
    "converse": (BedrockAdapter(), "/model/eu.amazon.nova-pro-v1:0/converse", "messages"),
}
BLANK = ["", " \n", None, [], "block"]
"""Contents of which nothing can be sent; `block` is an empty text beside another one."""
HALF = "an emoji cut in two: \ud83d"
TEXTS = ["Count the parcels.", HALF]
IDS = ["call_0", "call_0", "", None, "functions.read:0", "call_9|fc_12", "é", "k" * 90, "t1", "t2"]
ARGUMENTS = [
    "{}",
    '{"cmd": "ls"}',
    '{"cmd": "ls -l /sr',
    "",
    '{"a": 1}{"a": 2}',
    "[1]",
    "null",
    '{"a": NaN}',
    f'{{"a": "{HALF}"}}',
]
OWN = ["whole", "split", "call", "result", "swapped", "twice"]


@st.composite
def calls(draw):
    """Generate one step: parallel calls, and results that are missing, repeated, or in messages of their own."""
    step = []
    for number in range(draw(st.integers(1, 2))):
        answers = draw(st.sampled_from([["4217"], ["4217"], ["pending", "4217"], [], [HALF], [""], [" "]]))
        step.append(
            {
                "id": draw(st.sampled_from(IDS)),
                "name": ("count", "look")[number],
                "arguments": draw(st.sampled_from(ARGUMENTS)),
                "answers": answers,
            }
        )
    told = draw(st.sampled_from(["", None, "Let me look."]))
    return ("calls", {"text": told, "calls": step, "apart": draw(st.sampled_from(["", "results", "calls"]))})


steps = st.lists(
    st.one_of(
        calls(),
        st.tuples(st.just("assistant"), st.sampled_from([*TEXTS, *BLANK])),
        st.tuples(st.just("user"), st.sampled_from([*TEXTS, *BLANK])),
        st.tuples(st.just("own"), st.sampled_from(OWN)),
    ),
    max_size=6,
).map(lambda drawn: [("user", "Go."), *drawn, ("user", "So how many?")])


def is_text(content):
    return isinstance(content, str) and content != "block"


def chat(history):
    messages = []
    for kind, told in history:
        if kind == "calls":
            groups = [[call] for call in told["calls"]] if told["apart"] == "calls" else [told["calls"]]
            for group in groups:
                listed = [
                    {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
                    for c in group
                ]
                messages.append({"role": "assistant", "content": told["text"], "tool_calls": listed})
            messages += [
                {"role": "tool", "tool_call_id": c["id"], "content": text}
                for c in told["calls"]
                for text in c["answers"]
            ]
        elif kind != "own":
            empty = [{"type": "text", "text": "x"}, {"type": "text", "text": None}]
            messages.append({"role": kind, "content": empty if told == "block" else told})
    return {"model": "gpt-5", "messages": messages}


def responses(history):
    items = []
    for kind, told in history:
        if kind == "calls":
            items += [
                {"type": "function_call", "call_id": c["id"], "name": c["name"], "arguments": c["arguments"]}
                for c in told["calls"]
            ]
            items += [
                {"type": "function_call_output", "call_id": c["id"], "output": text}
                for c in told["calls"]
                for text in c["answers"]
            ]
        elif kind != "own":
            part = "output_text" if kind == "assistant" else "input_text"
            empty = [{"type": part, "text": "x"}, {"type": part, "text": ""}]
            items.append({"role": kind, "content": empty if told == "block" else told})
    return {"model": "gpt-5", "input": items}


def blocks(api, history, shapes):
    """Return the messages of an API that consists of blocks; `shapes` makes each kind of block."""
    model, field = ("model", "parts") if api == "gemini" else ("assistant", "content")
    text, call, result, own = shapes
    messages = []
    for kind, told in history:
        if kind == "calls":
            said = [] if told["text"] is None else [text(told["text"])]
            made = [call(c) for c in told["calls"]]
            groups = [[*said, made[0]], *([one] for one in made[1:])] if told["apart"] == "calls" else [[*said, *made]]
            messages += [{"role": model, field: group} for group in groups]
            answers = [result(c, one) for c in told["calls"] for one in c["answers"]]
            groups = [[one] for one in answers] if told["apart"] == "results" else [answers] if answers else []
            messages += [{"role": "user", field: group} for group in groups]
        elif kind == "own":
            use, found = own(len(messages))
            listed = {
                "whole": [[use, found]],
                "split": [[text("Let me search."), use], [found, text("Found.")]],
                "call": [[use]],
                "result": [[found, text("Found.")]],
                "swapped": [[found, use]],
                "twice": [[use, found], [use, found]],
            }[told]
            messages += [{"role": model, field: group} for group in listed]
        else:
            listed = [text("x"), text("")] if told == "block" else [] if told in (None, []) else [text(told)]
            role = model if kind == "assistant" else kind
            messages.append({"role": role, field: listed})
    return messages


def parsed(arguments):
    """Return arguments as a program keeps them: an object, or the text that the model wrote."""
    try:
        return json.loads(arguments, parse_constant=int)
    except ValueError:
        return arguments


def anthropic(history):
    shapes = (
        lambda text: {"type": "text", "text": text},
        lambda c: {"type": "tool_use", "id": c["id"], "name": c["name"], "input": parsed(c["arguments"])},
        lambda c, text: {"type": "tool_result", "tool_use_id": c["id"], "content": [{"type": "text", "text": text}]},
        lambda n: (
            {"type": "server_tool_use", "id": f"srvtoolu_{n}", "name": "web_search", "input": {"query": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": f"srvtoolu_{n}", "content": []},
        ),
    )
    return {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": blocks("anthropic", history, shapes)}


def gemini(history):
    shapes = (
        lambda text: {"text": text},
        lambda c: {"functionCall": {"name": c["name"], "args": parsed(c["arguments"])}},
        lambda c, text: {"functionResponse": {"name": c["name"], "response": {"output": text}}},
        lambda _: (
            {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        ),
    )
    return {"contents": blocks("gemini", history, shapes)}


def converse(history):
    shapes = (
        lambda text: {"text": text},
        lambda c: {"toolUse": {"toolUseId": c["id"], "name": c["name"], "input": parsed(c["arguments"])}},
        lambda c, text: {"toolResult": {"toolUseId": c["id"], "content": [{"text": text}]}},
        lambda n: (
            {"toolUse": {"toolUseId": f"s{n}", "name": "ground", "input": {}, "type": "server_tool_use"}},
            {"toolResult": {"toolUseId": f"s{n}", "content": [{"text": "found"}], "type": "nova_grounding_result"}},
        ),
    )
    return {"messages": blocks("converse", history, shapes)}


RENDERED = {"chat": chat, "responses": responses, "anthropic": anthropic, "gemini": gemini, "converse": converse}


def sent_by_adapter(api, body, **more):
    adapter, _, field = DOORS[api]
    native, report = stabilize_native(Stabilizer(20_000, **more), adapter, copy.deepcopy(body[field]))
    assert report.ok, str(report)
    return {**body, field: native}


def sent_by_guard(api, body):
    _, path, _ = DOORS[api]
    prepared = Guard(Stabilizer(20_000)).prepare(WireRequest("POST", path, {}, json.dumps(body).encode()))
    return json.loads(prepared.body)


@pytest.mark.parametrize("api", DOORS)
@given(history=steps)
@settings(deadline=None, max_examples=60)
def test_what_is_sent_is_accepted_on_every_door_and_again(api, history):
    body = RENDERED[api](history)
    given_body = copy.deepcopy(body)
    sent = sent_by_adapter(api, body)
    judge(api, sent)
    assert body == given_body
    assert sent_by_guard(api, body) == sent
    assert sent_by_adapter(api, sent) == sent, "what was sent once is sent again as it is"


@pytest.mark.parametrize("api", DOORS)
@given(history=steps)
@settings(deadline=None, max_examples=30)
def test_nothing_that_was_said_is_lost(api, history):
    written = json.dumps(sent_by_adapter(api, RENDERED[api](history)), ensure_ascii=False)
    later = [c["answers"][-1] for kind, told in history if kind == "calls" for c in told["calls"] if c["answers"]]
    said = [told for kind, told in history if kind in ("user", "assistant") and is_text(told)]
    # a result without an id may answer one of several calls, and then nobody knows which
    assert all(text.strip().replace("\ud83d", "\ufffd") in written for text in said)
    assert "4217" not in later or "4217" in written or "it is not known which" in written


@given(history=steps)
@settings(deadline=None, max_examples=60)
def test_strict_templates_accept_what_is_sent(history):
    judge_chat(sent_by_adapter("chat", chat(history), provider="strict"), strict=True)


@given(history=steps)
@settings(deadline=None, max_examples=30)
def test_guard_sends_what_the_adapter_sends(history):
    body = chat(history)
    assert [*guard(body["messages"], budget=20_000)] == sent_by_adapter("chat", body)["messages"]


REPLY = {"type": "message", "id": "msg_0", "role": "assistant", "content": [{"type": "output_text", "text": "One."}]}
THOUGHT = {"type": "reasoning", "id": "rs_0", "summary": []}
CALL = {"type": "function_call", "id": "fc_0", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "4217"}


@pytest.mark.parametrize(
    "items",
    [
        [THOUGHT, REPLY, THOUGHT, REPLY],
        [THOUGHT, CALL, CALL, OUTPUT],
        [THOUGHT, CALL, OUTPUT, THOUGHT, CALL, OUTPUT],
        [CALL, OUTPUT, {**CALL, "call_id": "d", "arguments": '{"n": 2}'}, {**OUTPUT, "call_id": "d"}],
        [REPLY, {**REPLY, "content": [{"type": "output_text", "text": "Two."}]}],
        [{**REPLY, "id": ""}, {**CALL, "id": ""}, OUTPUT],
    ],
)
def test_items_that_repeat_an_id_are_sent_once_or_without_it(items):
    asked = {"role": "user", "content": "Go."}
    body = {"model": "gpt-5", "input": [asked, *items, {"role": "user", "content": "So?"}]}
    sent = sent_by_adapter("responses", body)
    judge("responses", sent)
    assert sent_by_guard("responses", body) == sent
    assert sent_by_adapter("responses", sent) == sent
    written = json.dumps(sent)
    assert all(word in written for word in ("One.", "Two.", "4217") if word in json.dumps(items))


@pytest.mark.parametrize(
    "place",
    [("instructions",), ("tools", 0, "function", "description"), ("metadata", "note"), ("messages", 0, "content")],
)
def test_half_an_emoji_anywhere_in_a_body_is_replaced(place):
    tool = {"type": "function", "function": {"name": "f", "description": "Do.", "parameters": {}}}
    body = {
        "model": "gpt-5",
        "messages": [{"role": "user", "content": "Go."}],
        "tools": [tool],
        "metadata": {"note": "x"},
    }
    holder = body
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = HALF
    sent = sent_by_guard("chat", body)
    judge("chat", sent)
    assert "\ufffd" in json.dumps(sent, ensure_ascii=False)


@pytest.mark.parametrize("api", DOORS)
def test_texts_outside_the_history_are_no_message(api):
    adapter, _, field = DOORS[api]
    tool = {"type": "function", "function": {"name": "f", "description": "Write to ann@example.com", "parameters": {}}}
    body = RENDERED[api]([("user", "Go.")])
    request = Request(body[field], None, [tool])
    sent, report = stabilize_request(Stabilizer(9_000), adapter, request)
    assert report.ok, str(report)
    assert sent.instructions is None
    assert [d.action for d in report.decisions] == ["masked", "kept"]


def test_a_strict_template_gets_one_system_message_beside_masked_tools():
    tool = {"type": "function", "function": {"name": "f", "description": "Write to ann@example.com", "parameters": {}}}
    messages = [{"role": "system", "content": text} for text in ("Be brief.", "Be kind.")]
    request = Request([*messages, {"role": "user", "content": "Go."}], None, [tool])
    sent, report = stabilize_request(Stabilizer(9_000, provider="strict"), OpenAIAdapter(), request)
    assert report.ok, str(report)
    assert [m["content"] for m in sent.messages] == ["Be brief.\n\nBe kind.", "Go."]


def test_half_an_emoji_in_a_name_is_refused_with_its_place():
    tool = {"type": "function", "function": {"name": HALF, "parameters": {}}}
    body = {"model": "gpt-5", "messages": [{"role": "user", "content": "Go."}], "tools": [tool]}
    with pytest.raises(CtxguardError, match="half of a surrogate pair"):
        sent_by_guard("chat", body)
    with pytest.raises(CtxguardError, match="half of a surrogate pair"):
        stabilize_native(Stabilizer(9_000), OpenAIAdapter(), body["messages"], tools=[tool])


def test_the_rules_refuse_what_providers_refuse():
    history = [("user", "Go."), ("assistant", ""), ("own", "call"), ("user", "So?")]
    for api in ("anthropic", "gemini", "converse"):
        with pytest.raises(RefusedError):
            judge(api, RENDERED[api](history))
