"""Bodies of six APIs with any field of another type: sent within the budget and masked, or refused with a typed error.

Each body is a valid one, of which one to three values were replaced, removed, or repeated. `python
tests/adversarial/test_fuzzed_bodies.py 20000` tries more of them, and names each failure with its number.
"""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from copy import deepcopy
from random import Random

import pytest

from ctxguard import Stabilizer
from ctxguard.errors import CtxguardError
from ctxguard.formats.registry import format_of
from ctxguard.formats.requests import count_sent
from ctxguard.wire import Guard
from ctxguard.wire.guard import WireRequest
from ctxguard.wire.metering import Counters, model_of

BUDGET = 3_000
MAIL = "zora.quill@mailhost.org"
SAID = f"I am {MAIL}."
SCHEMA = {"type": "object", "properties": {"to": {"type": "string", "description": SAID}}, "required": ["to"]}
LONG = "A sentence that says little about much. " * 40
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CALL = {"id": "t1", "type": "function", "function": {"name": "find", "arguments": json.dumps({"to": MAIL})}}
CHAT = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": SAID},
                {"type": "image_url", "image_url": {"url": "https://e.example/a"}},
            ],
        },
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "t1", "content": f"found {MAIL}", "name": "find"},
        {"role": "assistant", "content": "ok", "refusal": None, "annotations": [], "audio": None},
        {"role": "user", "content": LONG, "name": "zora"},
    ],
    "tools": [
        {"type": "function", "function": {"name": "find", "description": "finds", "parameters": SCHEMA, "strict": True}}
    ],
    "tool_choice": "auto",
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
    "metadata": {"for": "tests"},
    "stop": ["x"],
    "max_tokens": 9,
    "user": "u1",
}
RESPONSES = {
    "model": "m",
    "instructions": "Be brief.",
    "input": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": SAID},
                {"type": "input_image", "image_url": "https://e.example/a"},
            ],
        },
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "thought"}],
            "encrypted_content": "x",
        },
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "find", "arguments": json.dumps({"to": MAIL})},
        {"type": "function_call_output", "call_id": "c1", "output": f"found {MAIL}"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": MAIL}},
        {
            "type": "message",
            "id": "m",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "ok", "annotations": []}],
        },
        {"role": "user", "content": LONG},
    ],
    "tools": [{"type": "function", "name": "find", "parameters": SCHEMA}, {"type": "web_search"}],
    "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}},
    "reasoning": {"effort": "low"},
    "include": [],
    "metadata": {},
    "store": False,
    "prompt_cache_key": "k",
}
ANTHROPIC = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 9,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": SAID},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                {"type": "tool_use", "id": "t1", "name": "find", "input": {"to": MAIL}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "text", "text": f"found {MAIL}"}],
                    "is_error": False,
                }
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "ok", "citations": None}]},
        {"role": "user", "content": LONG},
    ],
    "tools": [{"name": "find", "description": "finds", "input_schema": SCHEMA}],
    "tool_choice": {"type": "auto"},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "metadata": {"user_id": "u"},
    "stop_sequences": ["x"],
}
GEMINI = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "contents": [
        {"role": "user", "parts": [{"text": SAID}, {"inlineData": {"mimeType": "image/png", "data": PIXEL}}]},
        {
            "role": "model",
            "parts": [{"functionCall": {"name": "find", "args": {"to": MAIL}}, "thoughtSignature": "c2ln"}],
        },
        {"role": "user", "parts": [{"functionResponse": {"name": "find", "response": {"found": MAIL}}}]},
        {"role": "model", "parts": [{"text": "ok"}]},
        {"role": "user", "parts": [{"text": LONG}]},
    ],
    "tools": [{"functionDeclarations": [{"name": "find", "description": "finds", "parameters": SCHEMA}]}],
    "toolConfig": {"functionCallingConfig": {"mode": "AUTO", "allowedFunctionNames": ["find"]}},
    "generationConfig": {"responseMimeType": "application/json", "responseSchema": SCHEMA, "stopSequences": ["x"]},
    "safetySettings": [],
}
CONVERSE = {
    "system": [{"text": "Be brief."}],
    "messages": [
        {"role": "user", "content": [{"text": SAID}, {"image": {"format": "png", "source": {"bytes": PIXEL}}}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t1", "name": "find", "input": {"to": MAIL}}}]},
        {
            "role": "user",
            "content": [
                {
                    "toolResult": {
                        "toolUseId": "t1",
                        "content": [{"json": {"found": MAIL}}, {"text": "x"}],
                        "status": "success",
                    }
                }
            ],
        },
        {"role": "assistant", "content": [{"text": "ok"}]},
        {"role": "user", "content": [{"text": LONG}]},
    ],
    "inferenceConfig": {"maxTokens": 9},
    "toolConfig": {"tools": [{"toolSpec": {"name": "find", "description": "finds", "inputSchema": {"json": SCHEMA}}}]},
    "additionalModelRequestFields": {"a": 1},
}
COHERE = {
    "model": "command-a",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": SAID},
        {"role": "assistant", "tool_plan": f"I look for {MAIL}.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "t1", "content": [{"type": "document", "document": {"data": {"text": MAIL}}}]},
        {"role": "assistant", "content": [{"type": "text", "text": "ok"}], "citations": []},
        {"role": "user", "content": LONG},
    ],
    "documents": [{"id": "d", "data": {"title": "t", "snippet": SAID}}],
    "tools": [CHAT["tools"][0]],
    "response_format": {"type": "json_object", "schema": SCHEMA},
}
BODIES = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": RESPONSES,
    "/v1/messages": ANTHROPIC,
    "/v1beta/models/gemini-2.5-pro:generateContent": GEMINI,
    "/model/anthropic.claude-sonnet-4-5/converse": CONVERSE,
    "/v2/chat": COHERE,
}
ODD = [
    *(None, True, False, 0, -1, 7, 2.5, 1e300, 10**30, "", " ", "x", "\ud83d", "\x00", LONG * 9, SAID, f"{MAIL}!"),
    *(
        [],
        [[]],
        [None],
        ["x"],
        [7],
        [{}],
        [{"type": "text"}],
        [{"text": SAID}],
        [SAID],
        {},
        {"a": {"b": [1]}},
        {"type": "text", "text": SAID},
    ),
    *({"type": 7}, {"role": []}, {"x": SAID}, {"": {}}, {"name": {}, "input": []}, [[[[[["x"]]]]]]),
]


def places(value, path=()):
    """Yield the path of each value in a JSON value."""
    if path:
        yield path
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield from places(member, (*path, key))


def fuzzed(number, originals=None):
    """Return the path of an API and a body for it, which depend on the number only."""
    random, originals = Random(number), originals or BODIES
    path = random.choice(list(originals))
    body = json.loads(json.dumps(originals[path]))  # no two values are the same object
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        found = list(places(body))
        if not found:
            break
        *keys, last = random.choice(found)
        holder = body
        for key in keys:
            holder = holder[key]
        way = random.choice(["replace"] * 6 + ["remove", "repeat", "rename", "wrap"])
        if way == "replace":
            holder[last] = deepcopy(random.choice(ODD))
        elif way == "remove":
            del holder[last]
        elif way == "repeat" and isinstance(holder, list):
            holder.insert(random.randrange(len(holder) + 1), deepcopy(holder[last]))
        elif way == "rename" and isinstance(holder, dict):
            holder[random.choice(["type", "role", "content", "input", "name", "id", "text", "url", "data"])] = (
                holder.pop(last)
            )
        elif way == "wrap":
            holder[last] = random.choice([[holder[last]], {"text": holder[last]}])
    return path, body


def fault(number):
    """Return what is wrong with the guard's answer to a fuzzed body; empty if nothing is."""
    path, body = fuzzed(number)
    raw = json.dumps(body).encode()
    request = WireRequest("POST", path, {}, raw)
    observed = Guard(Stabilizer(BUDGET, mode="observe"))
    if observed.prepare(request).body != raw or observed.metrics.get("failures", cause="observing"):
        return "observing changed or failed"
    try:
        prepared = Guard(Stabilizer(BUDGET)).prepare(request)
    except CtxguardError as error:
        return "a value in an error" if MAIL in str(error) else ""
    except Exception as error:  # noqa: BLE001 - the fault that is looked for
        return f"untyped: {type(error).__name__}: {error}"
    sent = json.loads(prepared.body)
    if MAIL in json.dumps(sent):
        return "a value was sent"
    if prepared.report is None:
        return "sent without a report"
    counter = Counters(Stabilizer(BUDGET).counter).of(model_of(sent, path))
    tokens = count_sent(sent, format_of("POST", path), counter).tokens
    return f"{tokens} tokens were sent" if max(tokens, prepared.tokens) > BUDGET else ""


ANSWERS = {
    "/v1/chat/completions": {
        "id": "c",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "<EMAIL_1>", "tool_calls": [CALL]}}],
        "usage": {"prompt_tokens": 1},
    },
    "/v1/responses": {
        "id": "r",
        "output": [*RESPONSES["input"][1:6], {"type": "shell_call", "action": {"commands": ["<EMAIL_1>"]}}],
    },
    "/v1/messages": {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "<EMAIL_1>"}, *ANTHROPIC["messages"][1]["content"]],
    },
    "/v1beta/models/gemini-2.5-pro:generateContent": {
        "candidates": [{"content": GEMINI["contents"][1], "index": 0, "finishReason": "STOP"}]
    },
    "/model/anthropic.claude-sonnet-4-5/converse": {
        "output": {"message": CONVERSE["messages"][1]},
        "stopReason": "tool_use",
    },
    "/v2/chat": {"id": "c", "message": COHERE["messages"][2], "finish_reason": "TOOL_CALL"},
}


def fault_of_answer(number):
    """Return what is wrong with what the guard does with a fuzzed answer, whole and as an event; empty if nothing is."""
    path, answer = fuzzed(number, ANSWERS)
    raw = json.dumps(answer).replace(MAIL, "<EMAIL_1>").encode()
    guard = Guard(Stabilizer(BUDGET), tools={"find": False})
    prepared = guard.prepare(WireRequest("POST", path, {}, json.dumps(BODIES[path]).encode()))
    try:
        prepared.whole(raw)
        stream = prepared.stream()
        stream.feed(b"data: " + raw + b"\n\n")
        stream.close()
    except CtxguardError:
        return ""
    except Exception as error:  # noqa: BLE001 - the fault that is looked for
        return f"untyped: {type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize("tenth", range(10))
def test_fuzzed_answers_are_passed_on_or_refused_by_name(tenth):
    assert {number: told for number in range(12 * tenth, 12 * (tenth + 1)) if (told := fault_of_answer(number))} == {}


def faults(numbers):
    return {number: told for number in numbers if (told := fault(number))}


@pytest.mark.parametrize("part", range(3))
def test_fuzzed_bodies_are_sent_masked_within_the_budget_or_refused_by_name(part):
    assert faults(range(30 * part, 30 * (part + 1))) == {}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))  # for more: python tests/adversarial/test_fuzzed_bodies.py 20000
def test_many_more_fuzzed_bodies_do_the_same(part):
    assert faults(range(1_000 * part, 1_000 * (part + 1))) == {}


if __name__ == "__main__":
    logging.disable()
    first, last = (0, *map(int, sys.argv[1:]))[-2:]
    found = faults(range(first, last))
    for number, told in found.items():
        print(number, fuzzed(number)[0], told[:150])
    print(Counter(told.partition(":")[0] for told in found.values()), f"in {last - first} bodies")
