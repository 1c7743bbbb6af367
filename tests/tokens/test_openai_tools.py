"""OpenAI's tools cost what was billed for them, in published counts and by the way in which they are rendered."""

from __future__ import annotations

import pytest

from ctxguard.tokens import count_request
from ctxguard.tokens.schemas import as_typescript, functions_of

BOT = {"role": "system", "content": "You are a bot."}
OBJECT = {"type": "object", "description": "The object data type as a property"}
ENUM = {"string_2a": {"type": "string", "enum": ["Happy", "Sad"]}}
NESTED = {**ENUM, "string_2b": {"type": "string", "description": "Description in a second object is lost"}}


def tool(name, description, properties=None, required=()):
    function = {"name": name, "description": description}
    if properties is not None:
        function["parameters"] = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": function}


def sources(**field):
    return tool("search_sources", "Retrieve sources from the Azure AI Search index", {"search_query": field})


def demonstration(properties, **more):
    shown = {"object_1": {**OBJECT, "properties": properties}, **more}
    return tool("data_demonstration", "This is the main function description", shown, ["object_1"])


WEATHER = tool(
    "get_current_weather",
    "Get the current weather in a given location",
    {
        "location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"},
        "unit": {
            "type": "string",
            "description": "The unit of temperature to return",
            "enum": ["celsius", "fahrenheit"],
        },
    },
    ["location"],
)
ORDER = tool(
    "summarize_order",
    "Summarize the customer order request",
    {
        "product_name": {"type": "string", "description": "Product name ordered by customer"},
        "quantity": {"type": "integer", "description": "Quantity ordered by customer"},
        "unit": {
            "type": "string",
            "enum": ["meals", "days"],
            "description": "unit of measurement of the customer order",
        },
    },
    ["product_name", "quantity", "unit"],
)
MARKED = {"type": "string", "description": "Not required gets a question mark"}
NULL = {"type": "null", "description": "The null value to be returned"}
QUERY = "Query string to retrieve documents from azure search eg: 'Health care plan'"


@pytest.mark.parametrize(
    ("function", "choice", "billed"),
    [
        (sources(type="string", description=QUERY), "auto", 66),
        (sources(type="string"), "auto", 49),
        (tool("search_sources", "Retrieve sources from the Azure AI Search index"), "auto", 42),
        (ORDER, "none", 86),
        (demonstration({"string1": {"type": "string"}}), "none", 65),
        (demonstration(ENUM), "none", 73),
        (demonstration(NESTED), "none", 89),
        (demonstration(NESTED, string_1=MARKED), "none", 103),
        (tool("get_null", "Get the null value", {"null_value": NULL}, ["null_value"]), "none", 55),
    ],
)
def test_published_counts_of_single_functions_are_met(function, choice, billed):
    """The counts are those of the tests of openai-messages-token-helper, which its author verified with OpenAI."""
    body = {"messages": [BOT], "tools": [function], "tool_choice": choice}
    assert abs(count_request(body, api="chat", model="gpt-4").tokens - billed) <= 2


@pytest.mark.parametrize(("model", "billed"), [("gpt-4o", 101), ("gpt-4o-mini", 101), ("gpt-4", 105)])
def test_the_cookbooks_example_costs_what_the_cookbook_reports(model, billed):
    messages = [
        {
            "role": "system",
            "content": "You are a helpful assistant that can answer to questions about the weather.",
        },
        {"role": "user", "content": "What's the weather like in San Francisco?"},
    ]
    assert count_request({"messages": messages, "tools": [WEATHER]}, api="chat", model=model).tokens == billed


def typescript(*tools):
    return as_typescript([function for given in tools for function in functions_of(given)])


def test_descriptions_lose_their_indentation_and_defaults_of_null_are_shown():
    shown = typescript(
        tool("f", "Do it.\n\nArgs:\n    x: what", {"x": {"type": "string", "default": None}}),
    )
    assert "// Do it.\n//\n// Args:\n// x: what\n" in shown
    assert "x?: string, // default: null\n" in shown


def test_functions_of_a_namespace_and_a_search_by_the_client_stand_in_namespaces_of_their_own():
    flat = {"type": "function", "name": "list_orders", "parameters": {"type": "object", "properties": {}}}
    search = {"type": "tool_search", "execution": "client", "parameters": {"type": "object", "properties": {}}}
    shown = typescript({"type": "namespace", "name": "crm", "tools": [flat]}, search, flat)
    for name in ("crm", "tool_search", "functions"):
        assert f"## {name}\n\nnamespace {name} {{\n\ntype " in shown
        assert f"}} // namespace {name}" in shown


def responses(items, **fields):
    return count_request({"input": items, **fields}, api="responses", model="gpt-5.4")


ASKED = {"role": "user", "content": "What is due?"}
RATE = {
    "type": "function",
    "name": "get_rate",
    "description": "Look it up.",
    "parameters": {"type": "object", "properties": {"pair": {"type": "string"}}},
    "defer_loading": True,
}


def test_an_assistants_message_has_a_channel():
    said = {"role": "assistant", "content": "Nothing."}
    more = responses([ASKED, said, ASKED]).tokens - responses([ASKED, {**said, "role": "user"}, ASKED]).tokens
    assert more == 2


def test_a_call_in_a_namespace_costs_the_namespace_twice():
    call = {"type": "function_call", "name": "get_rate", "arguments": "{}", "call_id": "1"}
    plain = responses([ASKED, call]).tokens
    assert responses([ASKED, {**call, "namespace": "functions"}]).tokens == plain
    assert responses([ASKED, {**call, "namespace": "get_rate"}]).tokens == plain + 2


def test_a_hosted_search_is_sent_as_long_as_it_can_find_something():
    search = {"type": "tool_search"}
    found = {"type": "tool_search_output", "tools": [RATE], "execution": "server"}
    call = {"type": "tool_search_call", "arguments": {"queries": ["rate"]}, "execution": "server"}
    other = {**RATE, "name": "get_stock"}
    all_found = responses([ASKED, call, found], tools=[search, RATE])
    assert responses([ASKED, call, found], tools=[search, RATE, other]).tokens > all_found.tokens + 400
    assert responses([ASKED, call, found], tools=[RATE]).tokens == all_found.tokens


def test_a_router_hands_functions_of_openais_models_to_the_responses_api():
    body = {"messages": [ASKED], "tools": [WEATHER]}
    direct = count_request({**body, "model": "gpt-5-mini"}, api="chat").tokens
    routed = count_request({**body, "model": "openai/gpt-5-mini"}, api="chat").tokens
    assert direct == routed + 82
