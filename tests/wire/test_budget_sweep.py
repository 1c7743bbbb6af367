"""No budget from the fixed parts up is refused: a sweep over sessions of every API, in steps of 5%."""

from __future__ import annotations

import gzip
import json
import os
import sys
from functools import cache
from pathlib import Path

import pytest

from ctxguard import Stabilizer
from ctxguard.checks.no_pii import scan
from ctxguard.errors import BudgetExceededError, CtxguardError
from ctxguard.formats.registry import format_of
from ctxguard.formats.requests import count_sent
from ctxguard.tokens import ArtifactCounter, find_counter
from ctxguard.wire.guard import Guard, WireRequest
from ctxguard.wire.metering import model_of

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from recordings import RECORDINGS

STEP = 1.05
ALL = os.environ.get("CTXGUARD_REPLAY_ALL")


SCANNED = cache(scan)


@pytest.fixture(autouse=True)
def found_once(monkeypatch):
    """Let the guards of all budgets share what the checks have seen: it is the same texts."""
    monkeypatch.setattr("ctxguard.checks.no_pii.scan", SCANNED)


def text_of(message):
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content if isinstance(part, dict))


def arguments_of(call):
    try:
        given = json.loads(call["function"]["arguments"] or "{}")
    except ValueError:
        given = {}
    return given if isinstance(given, dict) else {"value": given}


def functions(tools):
    return [tool["function"] for tool in tools or () if "function" in tool]


def chat(messages, tools):
    return "/v1/chat/completions", {"model": "gpt-4o", "messages": messages, **({"tools": tools} if tools else {})}


def responses(messages, tools):
    items = []
    for message in messages:
        if message["role"] == "tool":
            output = {"type": "function_call_output", "call_id": message["tool_call_id"], "output": text_of(message)}
            items.append(output)
            continue
        if text_of(message):
            items.append({"role": message["role"], "content": text_of(message)})
        for call in message.get("tool_calls") or ():
            function = call["function"]
            item = {"type": "function_call", "call_id": call["id"], "name": function["name"]}
            items.append({**item, "arguments": function["arguments"]})
    listed = [{"type": "function", **function} for function in functions(tools)]
    return "/v1/responses", {"model": "gpt-5", "input": items, **({"tools": listed} if listed else {})}


def joined(records, key):
    """Join records of one role in a row."""
    out = []
    for record in records:
        if out and out[-1]["role"] == record["role"]:
            out[-1][key] += record[key]
        elif record[key]:
            out.append(record)
    return out


def anthropic(messages, tools):
    system = "\n".join(text_of(m) for m in messages if m["role"] == "system")
    records = []
    for message in messages:
        said = [{"type": "text", "text": text_of(message)}] if text_of(message).strip() else []
        if message["role"] == "tool":
            block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": text_of(message)}
            records.append({"role": "user", "content": [block]})
        elif message["role"] != "system":
            calls = message.get("tool_calls") or ()
            said += [
                {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": arguments_of(call)}
                for call in calls
            ]
            records.append({"role": message["role"], "content": said})
    listed = [{"name": f["name"], "input_schema": f.get("parameters") or {}} for f in functions(tools)]
    body = {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": joined(records, "content")}
    return "/v1/messages", {**body, **({"system": system} if system else {}), **({"tools": listed} if listed else {})}


def gemini(messages, tools):
    system = "\n".join(text_of(m) for m in messages if m["role"] == "system")
    names, records = {}, []
    for message in messages:
        parts = [{"text": text_of(message)}] if text_of(message).strip() else []
        if message["role"] == "tool":
            name = names.get(message["tool_call_id"], "f")
            part = {"functionResponse": {"name": name, "response": {"output": text_of(message)}}}
            records.append({"role": "user", "parts": [part]})
        elif message["role"] != "system":
            for call in message.get("tool_calls") or ():
                names[call["id"]] = call["function"]["name"]
                parts.append({"functionCall": {"name": call["function"]["name"], "args": arguments_of(call)}})
            records.append({"role": "user" if message["role"] == "user" else "model", "parts": parts})
    listed = [{"name": f["name"], "parametersJsonSchema": f.get("parameters") or {}} for f in functions(tools)]
    body = {"contents": joined(records, "parts")}
    body |= {"systemInstruction": {"parts": [{"text": system}]}} if system else {}
    return "/v1beta/models/gemini-2.5-pro:generateContent", {
        **body,
        **({"tools": [{"functionDeclarations": listed}]} if listed else {}),
    }


APIS = (chat, responses, anthropic, gemini)


def made_up(steps, lines, parallel=1):
    """Return a session of tool calls whose results have so many lines."""
    tools = [{"type": "function", "function": {"name": f"t{n}", "parameters": {"type": "object"}}} for n in range(12)]
    messages = [{"role": "system", "content": "Help. " * 300}, {"role": "user", "content": "Read all the files."}]
    for step in range(steps):
        ids = [f"call_{step}_{n}" for n in range(parallel)]
        calls = [
            {"id": i, "type": "function", "function": {"name": "t1", "arguments": json.dumps({"path": f"{i}.py"})}}
            for i in ids
        ]
        messages.append({"role": "assistant", "content": f"Step {step}.", "tool_calls": calls})
        text = "\n".join(f"{n:5} value_{step}_{n} = compute({n}, '{step}')" for n in range(lines))
        messages += [{"role": "tool", "tool_call_id": i, "content": text} for i in ids]
    return messages, tools


def is_sound(messages):
    """Return whether every call of a recorded session has an id and a result."""
    calls = [c.get("id") for m in messages for c in m.get("tool_calls") or ()]
    results = [m.get("tool_call_id") for m in messages if m["role"] == "tool"]
    return None not in calls and sorted(calls) == sorted(set(results)) and len(results) == len(set(results))


def recorded():
    """Walk recorded sessions of more than a dozen messages: all of them where that is asked for, else one of each file."""
    for file in sorted((RECORDINGS / "transcripts").glob("*.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            records = [json.loads(line) for line in lines]
        sound = [r for r in records if not r.get("broken") and is_sound(r["messages"]) and len(r["messages"]) > 12]
        sound.sort(key=lambda record: len(record["messages"]))
        for record in sound if ALL else sound[:1]:
            end = max(at for at, m in enumerate(record["messages"]) if m["role"] != "assistant") + 1
            yield pytest.param(record["messages"][:end], record.get("tools"), id=record["id"])


def asked(api, messages, tools):
    path, body = api(messages, tools)
    return WireRequest("POST", path, {}, json.dumps(body).encode())


def refusals(request):
    """Return the least budget, how many budgets were tried, and those of them that were refused."""
    least = 1
    while True:  # what must stay grows with the budget at first: the task, and the views of the last exchange
        try:
            Guard(Stabilizer(least, headroom=0)).prepare(request)
        except BudgetExceededError as error:
            assert error.needed > least
            least = error.needed
        else:
            break
    total = Guard(Stabilizer(10_000_000, headroom=0)).prepare(request).tokens
    budget, tried, refused = least, 0, []
    while budget < total * STEP:
        tried += 1
        try:
            prepared = Guard(Stabilizer(int(budget), headroom=0)).prepare(request)
        except CtxguardError as error:
            if isinstance(error, BudgetExceededError) and least < 4 * error.parts.get("task", 0):
                least = budget = error.needed  # a task must stay from the budget on of which it is a quarter
                continue
            refused.append((int(budget), str(error)[:120]))
        else:
            assert prepared.tokens <= budget
        budget = budget * STEP + 1
    return least, tried, refused


@pytest.mark.slow
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("steps", "lines", "parallel"), [(10, 12, 1), (4, 6, 4)])
def test_a_made_up_session_is_never_refused_from_what_must_stay_up(api, steps, lines, parallel):
    _, tried, refused = refusals(asked(api, *made_up(steps, lines, parallel)))
    assert tried > 10
    assert refused == []


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("steps", "lines", "parallel"), [(10, 30, 1), (4, 6, 4)])
def test_the_chain_counts_a_session_as_the_body_is_counted(api, steps, lines, parallel):
    path, body = api(*made_up(steps, lines, parallel))
    kind, count = format_of("POST", path), ArtifactCounter(find_counter(model=model_of(body, path)))
    rest = {key: value for key, value in body.items() if key not in kind.read_by_adapter}
    chain = count_sent({**rest, kind.history: []}, kind, count).tokens + count.artifacts(kind.read(kind.native(body)))
    assert abs(chain - count_sent(body, kind, count).tokens) <= 4


@pytest.mark.slow
@pytest.mark.recordings
@pytest.mark.timeout(2_400 if ALL else 300)
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("messages", "tools"), list(recorded()))
def test_a_recorded_session_is_never_refused_from_what_must_stay_up(api, messages, tools):
    _, _, refused = refusals(asked(api, messages, tools))
    assert refused == []
