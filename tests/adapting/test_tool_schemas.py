"""Tool schemas that take much of a budget are shortened: the same in every call, and never what a call must match."""

from __future__ import annotations

import gzip
import json

import jsonschema
import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.recordings import RECORDINGS
from ctxguard import Stabilizer
from ctxguard.adapting import shortened_tools
from ctxguard.errors import ConfigError
from ctxguard.wire.guard import Guard, WireRequest
from ctxguard_anthropic import stabilize_request as anthropic_request
from ctxguard_bedrock import stabilize_request as bedrock_request
from ctxguard_google import stabilize_request as google_request
from ctxguard_openai import stabilize_messages
from ctxguard_openai import stabilize_request as openai_request

LONG = "Say which order it is about, in the spelling of the shop, and nothing else. " * 12
SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "find_order",
    "type": "object",
    "properties": {
        "order_id": {"type": "string", "title": "Order Id", "description": LONG, "examples": ["A-1"]},
        "title": {"type": "string", "title": "Salutation", "default": "Dr."},
        "description": {"enum": ["title", "default"], "default": "title", "description": LONG},
        "default": {"anyOf": [{"type": "integer", "description": LONG}, {"type": "null"}]},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
    },
    "required": ["order_id", "lines"],
    "additionalProperties": False,
    "$defs": {"line": {"type": "object", "properties": {"examples": {"type": "number", "default": 1}}}},
}
FUNCTION = {"name": "find_order", "description": LONG}
ASKED = {"role": "user", "content": "Where is my order?"}
SAID = {"role": "user", "content": [{"text": "Where is my order?"}]}
REQUESTS = {
    "chat": (
        openai_request,
        {"messages": [ASKED], "tools": [{"type": "function", "function": {**FUNCTION, "parameters": SCHEMA}}]},
    ),
    "responses": (
        openai_request,
        {"input": [ASKED], "tools": [{"type": "function", **FUNCTION, "parameters": SCHEMA, "strict": False}]},
    ),
    "a namespace": (
        openai_request,
        {
            "input": [ASKED],
            "tools": [
                {"type": "namespace", "name": "shop", "tools": [{"type": "function", **FUNCTION, "parameters": SCHEMA}]}
            ],
        },
    ),
    "anthropic": (
        anthropic_request,
        {
            "messages": [ASKED],
            "tools": [{**FUNCTION, "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}}],
        },
    ),
    "converse": (
        bedrock_request,
        {
            "messages": [SAID],
            "toolConfig": {
                "tools": [
                    {"toolSpec": {**FUNCTION, "inputSchema": {"json": SCHEMA}}},
                    {"cachePoint": {"type": "default"}},
                ]
            },
        },
    ),
    "gemini": (
        google_request,
        {
            "contents": [{"role": "user", "parts": [{"text": "Where is my order?"}]}],
            "tools": [{"functionDeclarations": [{**FUNCTION, "parametersJsonSchema": SCHEMA}]}],
        },
    ),
}


def skeleton(value, *, of_names=False):
    """Return a schema without what tells a model what it means: all that a call must match."""
    if isinstance(value, list):
        return [skeleton(one) for one in value]
    if not isinstance(value, dict):
        return value
    told = () if of_names else ("description", "title", "default", "examples", "$schema")
    return {
        key: skeleton(inner, of_names=key in ("properties", "$defs") and not of_names)
        for key, inner in value.items()
        if key not in told
    }


def test_all_that_a_call_must_match_stays_in_every_format():
    for name, (stabilize, request) in REQUESTS.items():
        before = json.dumps(request)
        done, report = stabilize(request, Stabilizer(1_000))
        assert json.dumps(request) == before, name
        assert skeleton(done) == skeleton(request), name
        sent = json.dumps(done)
        assert LONG not in sent, name
        assert "Say which order it is about" in sent, name
        assert not {"$schema", "Order Id"} & set(sent.split('"')), name
        assert "Salutation" in sent, name
        figures = report.details["tools"]
        assert figures["tokens_after"] < figures["tokens_before"] - 300, name
        whole = stabilize(request, Stabilizer(100_000))[1]
        assert report.tokens_before == whole.tokens_before == whole.tokens_after, name
        assert f"{figures['tokens_before']:,} -> {figures['tokens_after']:,} tokens" in str(report), name


def test_objects_of_google_are_shortened_too():
    declared = types.FunctionDeclaration(name="find", description="Find it.", parameters_json_schema=SCHEMA)
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[declared])])
    done, report = google_request({"contents": "Where is it?", "config": config}, Stabilizer(1_000))
    sent = types.GenerateContentConfig.model_validate(done["config"]).tools[0].function_declarations[0]
    assert sent.name == "find"
    assert LONG not in json.dumps(sent.parameters_json_schema)
    assert skeleton(sent.parameters_json_schema) == skeleton(SCHEMA)
    assert config.tools[0].function_declarations[0].parameters_json_schema == SCHEMA
    assert report.details["tools"]["tokens_after"] < report.details["tools"]["tokens_before"]


def test_what_providers_ignore_goes_before_any_description():
    tools = REQUESTS["anthropic"][1]["tools"]
    budget = next(n for n in range(20_000, 0, -10) if shortened_tools(tools, n) is not tools)
    (tool,) = shortened_tools(tools, budget)
    assert tool["description"] == LONG
    assert LONG in json.dumps(tool["input_schema"])
    assert "$schema" not in tool["input_schema"]
    assert tool["input_schema"]["properties"]["order_id"]["examples"] == ["A-1"]  # it is required
    assert "default" not in tool["input_schema"]["properties"]["title"]


def test_a_tool_is_shortened_before_its_parameters_and_both_by_no_more_than_needed():
    tools = REQUESTS["anthropic"][1]["tools"]
    kept = []
    for budget in range(20_000, 100, -10):
        (tool,) = shortened_tools(tools, budget)
        field = tool["input_schema"]["properties"]["order_id"].get("description", "")
        assert len(tool["description"]) == len(LONG) or tool["description"].endswith("…")
        kept.append((len(tool["description"]), len(field)))
    steps = [step for step, before in zip(kept, [None, *kept], strict=False) if step != before]
    assert [(tool > 900, field > 900) for tool, field in steps[:3]] == [(True, True), (False, True), (False, True)]
    assert steps == sorted(steps, reverse=True)
    assert len(steps) > 5
    assert min(steps[-1]) > 20


def test_tools_that_leave_room_stay_the_same_objects():
    for stabilize, request in REQUESTS.values():
        done, report = stabilize(request, Stabilizer(20_000))
        assert done == request
        assert "tools" not in report.details
    tools = REQUESTS["chat"][1]["tools"]
    assert shortened_tools(tools, 20_000) is tools


def test_it_can_be_turned_off_and_tools_that_are_only_counted_never_change():
    stabilize, request = REQUESTS["chat"]
    done, report = stabilize(request, Stabilizer(2_000, shorten_tools=False))
    assert done == request
    assert "tools" not in report.details
    assert "tools" not in Stabilizer.from_policy("chat", budget=2_000, shorten_tools=False).stabilize([]).report.details
    _, report = stabilize_messages([ASKED], Stabilizer(2_000), tools=request["tools"])
    assert "tools" not in report.details


def test_every_call_of_a_session_sends_the_same_tools():
    tools = [{**FUNCTION, "input_schema": SCHEMA}, {"name": "plain", "input_schema": {"type": "object"}}]
    guard, sent, messages = Guard(Stabilizer(2_400)), set(), []
    for turn in range(60):
        messages += [
            {"role": "user", "content": f"And order {turn}? {'Please. ' * 40}"},
            {"role": "assistant", "content": "It is on its way."},
        ]
        body = {"tools": tools, "messages": messages[:-1], "max_tokens": 9}
        prepared = guard.prepare(WireRequest("POST", "/v1/messages", {}, json.dumps(body).encode()))
        sent.add(json.dumps(json.loads(prepared.body)["tools"]))
    assert prepared.report.changed
    (only,) = sent
    assert len(only) < len(json.dumps(tools))
    assert json.loads(only)[1] == tools[1]
    in_process, _ = anthropic_request(body, Stabilizer(2_400))
    assert json.dumps(in_process["tools"]) == only


def test_a_description_with_a_value_is_masked_and_not_cut_in_two():
    card = "4111 1111 1111 1111"
    for place in range(40, 140, 3):
        about = f"{'x' * place} {card} {'as in the example ' * 60}"
        body = {"messages": [ASKED], "tools": [{"name": "pay", "description": about, "input_schema": {}}]}
        stabilizer = Stabilizer(1_000)
        sent = json.dumps(anthropic_request(body, stabilizer)[0])
        assert "4111" not in sent
        assert "example" in sent
        prepared = Guard(stabilizer).prepare(WireRequest("POST", "/v1/messages", {}, json.dumps(body).encode()))
        assert b"4111" not in prepared.body
        assert b"example" in prepared.body


def test_what_is_only_observed_is_sent_as_it_was():
    body = json.dumps(REQUESTS["anthropic"][1]).encode()
    prepared = Guard(Stabilizer(600, mode="observe")).prepare(WireRequest("POST", "/v1/messages", {}, body))
    assert prepared.body == body
    assert prepared.report.details["tools"]["tokens_after"] > 0
    whole = Guard(Stabilizer(100_000)).prepare(WireRequest("POST", "/v1/messages", {}, body))
    assert prepared.tokens == prepared.report.tokens_before == whole.tokens


def test_a_schema_that_is_no_json_is_refused_by_its_place():
    cyclic = {"type": "object"}
    cyclic["properties"] = {"inner": cyclic}
    tool = {"type": "function", "function": {"name": "f", "description": LONG, "parameters": cyclic}}
    with pytest.raises(ConfigError, match="tools"):
        openai_request({"messages": [ASKED], "tools": [tool]}, Stabilizer(1_000))


NAMES = st.sampled_from(["title", "default", "examples", "description", "required", "properties", "a_b"])
LEAVES = st.sampled_from([{"type": "string"}, {"enum": ["title"]}, {"const": {"title": "a_b", "default": 1}}, True])
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, max_size=4)},
        optional={
            "required": st.lists(NAMES, max_size=2),
            "title": st.sampled_from(["A B", "Other"]),
            "description": st.just(LONG),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "items": inner,
            "default": st.just({"default": {"description": LONG}}),
        },
    ),
    max_leaves=12,
)


@given(SCHEMAS, st.integers(1, 3_000))
def test_any_schema_keeps_what_a_call_must_match(schema, budget):
    tools = [{"name": "a_b", "description": LONG, "input_schema": schema}]
    before = json.dumps(tools)
    done = shortened_tools(tools, budget)
    assert skeleton(done) == skeleton(tools)
    assert json.dumps(tools) == before
    assert shortened_tools(tools, budget) == done
    assert len(json.dumps(done)) <= len(before)


@pytest.mark.skipif(not (RECORDINGS / "transcripts").is_dir(), reason="no recordings")
def test_every_recorded_call_validates_against_what_was_sent():
    calls = shortened = 0
    for file in sorted((RECORDINGS / "transcripts").glob("*.gz")):
        for line in gzip.decompress(file.read_bytes()).decode().splitlines():
            record = json.loads(line)
            tools = record.get("tools")
            if not tools:
                continue
            done = shortened_tools(tools, 1_000)
            shortened += done is not tools
            was, now = (
                {
                    t["function"]["name"]: jsonschema.Draft202012Validator(t["function"].get("parameters") or {})
                    for t in listed
                }
                for listed in (tools, done)
            )
            assert list(was) == list(now)
            for call in (c for message in record["messages"] for c in message.get("tool_calls") or ()):
                function = call["function"]
                if function["name"] not in was:
                    continue
                before, after = (
                    by_name[function["name"]].is_valid(json.loads(function["arguments"])) for by_name in (was, now)
                )
                calls += before
                assert after or not before, (file.name, record["id"], function["name"])
    assert calls > 500
    assert shortened > 100
