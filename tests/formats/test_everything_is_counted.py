"""Text costs tokens in whatever field of a request it stands, and a request with too much of it never leaves a door."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_one_description import PATHS

import ctxguard_anthropic
import ctxguard_bedrock
import ctxguard_google
import ctxguard_openai
from ctxguard import Stabilizer, guard
from ctxguard.errors import BudgetExceededError, ConfigError
from ctxguard.formats.registry import APIS, find_format
from ctxguard.formats.requests import count_sent
from ctxguard.tokens import ArtifactCounter, count_request, find_counter
from ctxguard.wire import Guard
from ctxguard.wire.guard import WireRequest

BUDGET, LEAST = 6_000, 10_000
TEXT = " ".join(f"word{number % 97} alpha beta" for number in range(4_000))
ENTRIES = [f"entry {number} alpha beta" for number in range(4_000)]
HOLE = "{}"
BODIES = {
    "chat": {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]},
    "responses": {"model": "gpt-5", "input": [{"role": "user", "content": "hi"}]},
    "anthropic": {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
    "converse": {"modelId": "us.amazon.nova-pro-v1:0", "messages": [{"role": "user", "content": [{"text": "hi"}]}]},
    "cohere": {"model": "command-a", "messages": [{"role": "user", "content": "hi"}]},
    "ollama": {"model": "llama3.2", "messages": [{"role": "user", "content": "hi"}]},
}
MODELS = {"gemini": "gemini-2.5-flash"}
DOORS = {
    "chat": ctxguard_openai.stabilize_request,
    "responses": ctxguard_openai.stabilize_request,
    "anthropic": ctxguard_anthropic.stabilize_request,
    "gemini": ctxguard_google.stabilize_request,
    "converse": ctxguard_bedrock.stabilize_request,
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "description": HOLE}}}
EMPTY = {"type": "object", "properties": {}}
SCHEMAS = {
    "a description": SCHEMA,
    "a title": {"type": "object", "title": HOLE, "properties": {"a": {"type": "string"}}},
    "an enum": {"type": "object", "properties": {"a": {"enum": [HOLE]}}},
    "a default": {"type": "object", "properties": {"a": {"type": "string", "default": HOLE}}},
    "examples": {"type": "object", "properties": {"a": {"type": "string", "examples": [HOLE]}}},
    "members": {"type": "object", "properties": {"a": {"type": "array", "items": {"description": HOLE}}}},
    "a definition": {"type": "object", "properties": {}, "$defs": {"b": {"type": "string", "description": HOLE}}},
}
CHAT = {
    "prediction": {"prediction": {"type": "content", "content": HOLE}},
    "parts of a prediction": {"prediction": {"type": "content", "content": [{"type": "text", "text": HOLE}]}},
    "functions": {"functions": [{"name": "f", "description": HOLE, "parameters": EMPTY}]},
    "a grammar": {"tools": [{"type": "custom", "custom": {"name": "f", "format": {"grammar": {"definition": HOLE}}}}]},
    "the schema's description": {"response_format": {"json_schema": {"name": "o", "description": HOLE}}},
    "instructions of another API": {"instructions": HOLE},
    "a grammar of a local server": {"guided_grammar": HOLE},
    "arguments of a template": {"chat_template_kwargs": {"documents": [{"text": HOLE}]}},
    "a location": {"web_search_options": {"user_location": {"approximate": {"city": HOLE}}}},
}
RESPONSES = {
    "instructions": {"instructions": HOLE},
    "a variable": {"prompt": {"id": "p", "variables": {"a": HOLE}}},
    "a text variable": {"prompt": {"id": "p", "variables": {"a": {"type": "input_text", "text": HOLE}}}},
    "the schema's description": {"text": {"format": {"type": "json_schema", "description": HOLE, "schema": EMPTY}}},
    "a grammar": {"tools": [{"type": "custom", "name": "f", "format": {"type": "grammar", "definition": HOLE}}]},
    "a grammar of the answer": {"text": {"format": {"type": "grammar", "grammar": HOLE}}},
    "a namespace": {
        "tools": [{"type": "namespace", "name": "n", "description": HOLE, "tools": [{"type": "function", "name": "f"}]}]
    },
    "a server": {"tools": [{"type": "mcp", "server_label": "s", "server_description": HOLE}]},
}
ANTHROPIC = {
    "system": {"system": HOLE},
    "an example": {"tools": [{"name": "f", "input_schema": EMPTY, "input_examples": [{"a": HOLE}]}]},
    "a server": {"mcp_servers": [{"type": "url", "name": "m", "url": "https://a.org", "about": HOLE}]},
    "a location": {"tools": [{"type": "web_search_20250305", "name": "web_search", "user_location": {"city": HOLE}}]},
    "instructions of a compaction": {"context_management": {"edits": [{"type": "compact", "instructions": HOLE}]}},
}
GEMINI = {
    "instruction": {"systemInstruction": {"parts": [{"text": HOLE}]}},
    "a result's schema": {"tools": [{"functionDeclarations": [{"name": "f", "response": SCHEMA}]}]},
    "the choice": {"toolConfig": {"functionCallingConfig": {"allowedFunctionNames": [HOLE]}}},
}
CONVERSE = {
    "system": {"system": [{"text": HOLE}]},
    "beside the tools": {"toolConfig": {"tools": [], "xenon": {"about": HOLE}}},
    "a variable": {"promptVariables": {"a": {"text": HOLE}}},
    "a model's own field": {"additionalModelRequestFields": {"a": HOLE}},
    "a schema as text": {"outputConfig": {"textFormat": {"structure": {"jsonSchema": {"schema": HOLE}}}}},
}
COHERE = {"documents": {"documents": [{"id": "d", "data": {"text": HOLE}}]}, "document": {"documents": [HOLE]}}
OUTPUT = {
    "chat": [
        lambda schema: {"response_format": {"type": "json_schema", "json_schema": {"name": "o", "schema": schema}}}
    ],
    "responses": [lambda schema: {"text": {"format": {"type": "json_schema", "name": "o", "schema": schema}}}],
    "anthropic": [
        lambda schema: {"output_format": {"type": "json_schema", "schema": schema}},
        lambda schema: {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
    ],
    "gemini": [
        lambda schema: {"generationConfig": {"responseSchema": schema}},
        lambda schema: {"generationConfig": {"responseJsonSchema": schema}},
        lambda schema: {"generation_config": {"response_schema": schema}},
        lambda schema: {"config": {"response_schema": schema}},
    ],
    "converse": [
        lambda schema: {"outputConfig": {"textFormat": {"structure": {"jsonSchema": {"schema": json.dumps(schema)}}}}}
    ],
    "cohere": [lambda schema: {"response_format": {"type": "json_object", "json_schema": schema}}],
    "ollama": [lambda schema: {"format": schema}],
}
TOOLS = {
    "chat": lambda schema: {"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]},
    "responses": lambda schema: {"tools": [{"type": "function", "name": "f", "parameters": schema}]},
    "anthropic": lambda schema: {"tools": [{"name": "f", "input_schema": schema}]},
    "gemini": lambda schema: {"tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": schema}]}]},
    "converse": lambda schema: {
        "toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": schema}}}]}
    },
    "cohere": lambda schema: {"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]},
    "ollama": lambda schema: {"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]},
}
OWN = {
    "chat": CHAT,
    "responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "converse": CONVERSE,
    "cohere": COHERE,
    "ollama": {"an option": {"options": {"stop": [HOLE]}}},
}
FIELDS = [
    (api, name, fields)
    for api in APIS
    for name, fields in [
        *OWN[api].items(),
        ("an unknown field", {"xenon": HOLE}),
        ("a record in an unknown field", {"xenon": [{"deep": {"deeper": [HOLE]}}]}),
        *(
            (f"{name} in output {number}", made(schema))
            for number, made in enumerate(OUTPUT[api])
            for name, schema in SCHEMAS.items()
        ),
        *((f"{name} in a tool", TOOLS[api](schema)) for name, schema in SCHEMAS.items()),
    ]
]
each_field = pytest.mark.parametrize(
    ("api", "fields"),
    [
        pytest.param(api, fields, id=f"{api}: {name}", marks=pytest.mark.slow if number % 2 else ())
        for number, (api, name, fields) in enumerate(FIELDS)
    ],
)


def filled(value, texts):
    """Return a value with texts in the place of the hole: in a list one by one, and else as one text."""
    if isinstance(value, list):
        return [one for member in value for one in (texts if member == HOLE else [filled(member, texts)])]
    if isinstance(value, dict):
        return {key: filled(member, texts) for key, member in value.items()}
    return value.replace(HOLE, " ".join(texts)) if isinstance(value, str) else value


def request(api, fields, texts):
    return {**BODIES[api], **filled(fields, texts)}


def tokens(api, body):
    model = MODELS.get(api, str(body.get("model", body.get("modelId"))))
    return count_sent(body, find_format(api), ArtifactCounter(find_counter(model=model))).tokens


def sent_by_wire(api, body):
    return Guard(Stabilizer(BUDGET)).prepare(WireRequest("POST", PATHS[api], {}, json.dumps(body).encode())).body


def fits(send):
    """Return whether a door refuses a request because of its budget, or sends one that is small."""
    try:
        sent = send()
    except BudgetExceededError:
        return True
    return len(sent if isinstance(sent, bytes) else json.dumps(sent)) < 6 * BUDGET


@pytest.mark.parametrize(
    ("api", "fields", "texts"),
    [
        # in the first tier, either of a field
        pytest.param(api, fields, texts, id=f"{api}: {name}, {told}", marks=() if is_first else pytest.mark.slow)
        for number, (api, name, fields) in enumerate(FIELDS)
        for told, texts, is_first in (("one text", [TEXT], number % 2), ("many", ENTRIES, number % 2 == 0))
    ],
)
def test_a_count_leaves_no_field_out(api, fields, texts):
    body = request(api, fields, texts)
    assert tokens(api, body) - tokens(api, BODIES[api]) >= LEAST


@each_field
def test_no_door_sends_more_than_the_budget(api, fields):
    body = request(api, fields, [TEXT])
    if "config" not in body:  # that of the SDK, which is not sent
        assert fits(lambda: sent_by_wire(api, body))
    if api in DOORS:
        assert fits(lambda: DOORS[api](body, Stabilizer(BUDGET))[0])


def test_tools_are_counted_whole_beside_a_bare_history():
    tool = request("anthropic", ANTHROPIC["an example"], [TEXT])["tools"]
    with pytest.raises(BudgetExceededError):
        guard([{"role": "user", "content": "hi"}], budget=BUDGET, tools=tool)


def test_only_the_budget_includes_a_schema_that_is_not_billed():
    body = request("gemini", OUTPUT["gemini"][0](SCHEMA), [TEXT])
    assert count_request(body, api="gemini", model=MODELS["gemini"]).tokens == tokens("gemini", BODIES["gemini"])


KEYS = st.from_regex(r"[a-z]{3,8}(_[a-z]{3,8})?", fullmatch=True)
SHAPES = st.recursive(
    st.just(HOLE),
    lambda inner: st.lists(inner, min_size=1, max_size=2) | st.dictionaries(KEYS, inner, min_size=1, max_size=2),
    max_leaves=4,
)


@pytest.mark.parametrize("api", APIS)
@given(key=KEYS, shape=SHAPES)
@settings(max_examples=15, deadline=None)
def test_a_field_of_any_name_and_shape_is_counted(api, key, shape):
    body = {f"x_{key}": shape, **BODIES[api]}
    assert tokens(api, filled(body, [TEXT])) - tokens(api, BODIES[api]) >= LEAST


def test_a_field_that_contains_itself_is_refused_in_one_line():
    ring: list[object] = []
    ring.append(ring)
    with pytest.raises(ConfigError, match="cannot be written as JSON"):
        count_request({**BODIES["chat"], "xenon": ring}, api="chat")


HOLDERS = (
    "anyOf",
    "allOf",
    "items",
    "prefixItems",
    "not",
    "if",
    "additionalProperties",
    "properties",
    "$defs",
    "x_own",
)
LEAVES = ("description", "title", "const", "default", "pattern", "$comment", "examples", "enum", "format", "x_own")


def nested(keys, leaf, *, is_key):
    """Return a JSON schema with the hole at the end of a path of keywords: as a value, or as the name of a field."""
    schema = {HOLE: {"type": "string"}} if is_key else {leaf: [HOLE] if leaf in ("examples", "enum") else HOLE}
    schema = {"type": "object", "properties": schema} if is_key else {"type": "string", **schema}
    for key in keys:
        is_list, is_named = key in ("anyOf", "allOf", "prefixItems"), key in ("properties", "$defs")
        schema = {"type": "object", key: [schema] if is_list else {"a": schema} if is_named else schema}
    return schema


@pytest.mark.parametrize("api", APIS)
@given(
    keys=st.lists(st.sampled_from(HOLDERS), max_size=12),
    leaf=st.sampled_from(LEAVES),
    is_key=st.booleans(),
    is_tool=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_a_schema_is_counted_to_its_last_keyword(api, keys, leaf, is_key, is_tool):
    schema = json.loads(json.dumps(nested(keys, leaf, is_key=is_key)).replace(json.dumps(HOLE), json.dumps(TEXT)))
    fields = TOOLS[api](schema) if is_tool else OUTPUT[api][0](schema)
    assert tokens(api, {**BODIES[api], **fields}) - tokens(api, BODIES[api]) >= LEAST
