"""A request's count is made of what the model's family charges, and both ways of counting read the same table."""

from __future__ import annotations

import json

import pytest

from ctxguard import Artifact, ToolCall
from ctxguard.errors import ConfigError
from ctxguard.formats.registry import detect_api, find_format
from ctxguard.tokens import ArtifactCounter, count_request, find_counter
from ctxguard.tokens.families import FAMILIES, family_of

HELLO = [{"role": "user", "content": "hello"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT_TOOL = {"type": "function", "function": {"name": "get_weather", "description": "", "parameters": SCHEMA}}
FLAT_TOOL = {"type": "function", "name": "get_weather", "description": "", "parameters": SCHEMA}
CLAUDE_TOOL = {"name": "get_weather", "description": "", "input_schema": SCHEMA}


def chat(model, messages=HELLO, **fields):
    return count_request({"model": model, "messages": messages, **fields}, api="chat")


def claude(messages=HELLO, model="claude-sonnet-4-5", **fields):
    return count_request({"model": model, "messages": messages, **fields}, api="anthropic")


def responses(items, model="gpt-5", **fields):
    return count_request({"model": model, "input": items, **fields}, api="responses")


def test_a_plain_chat_costs_its_framing_and_the_reply():
    assert chat("gpt-4o").tokens == 1 + 4 + 3  # reported for this very request: 8
    assert chat("gpt-5").tokens == 1 + 4 + 2


def test_the_parts_add_up_to_the_whole_and_name_what_is_there():
    counted = chat(
        "gpt-4o",
        [
            {"role": "system", "content": "You help."},
            *HELLO,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "1", "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}}],
            },
            {"role": "tool", "tool_call_id": "1", "content": "Sunny."},
        ],
        tools=[CHAT_TOOL],
    )
    assert sum(counted.parts.values()) == counted.tokens
    assert {"system", "messages", "tool calls", "tool results", "tools", "hidden prompts", "framing"} <= set(
        counted.parts
    )


def test_functions_cost_what_their_typescript_does():
    without, with_tool = chat("gpt-4o"), chat("gpt-4o", tools=[CHAT_TOOL])
    assert with_tool.tokens - without.tokens == 31  # 30 was reported for this very tool
    flat = responses("hello", tools=[FLAT_TOOL]).tokens - responses("hello").tokens
    assert flat == 30
    nested = chat("gpt-5", tools=[CHAT_TOOL]).tokens - chat("gpt-5").tokens
    assert nested == flat + 82  # the Responses API adds no prompt to them


def test_anthropics_tools_bring_a_prompt_that_depends_on_the_choice():
    plain = claude().tokens
    auto = claude(tools=[CLAUDE_TOOL], tool_choice={"type": "auto"})
    forced = claude(tools=[CLAUDE_TOOL], tool_choice={"type": "any"})
    assert auto.parts["hidden prompts"] < forced.parts["hidden prompts"]
    assert auto.tokens > plain + 400


def test_deferred_tools_cost_nothing_until_a_search_finds_them():
    deferred = {**CLAUDE_TOOL, "name": "rates", "defer_loading": True}
    hidden = claude(tools=[CLAUDE_TOOL, deferred]).tokens
    assert hidden == claude(tools=[CLAUDE_TOOL]).tokens
    reference = {
        "type": "tool_result",
        "tool_use_id": "1",
        "content": [{"type": "tool_reference", "tool_name": "rates"}],
    }
    found = [*HELLO, {"role": "user", "content": [reference]}]
    more = claude(found, tools=[CLAUDE_TOOL, deferred]).parts["tools"]
    assert more > claude(found, tools=[CLAUDE_TOOL]).parts["tools"]


def test_thinking_from_before_the_last_question_is_dropped_as_the_api_drops_it():
    thought = {"type": "thinking", "thinking": "word " * 200, "signature": "x"}
    reply = {"role": "assistant", "content": [thought, {"type": "text", "text": "Yes."}]}
    over = claude([*HELLO, reply, *HELLO])
    assert "reasoning" not in over.parts
    open_loop = claude([*HELLO, {"role": "assistant", "content": [thought]}])
    assert open_loop.parts["reasoning"] > 200


def test_sealed_reasoning_costs_by_its_length_while_its_turn_is_open():
    item = {"type": "reasoning", "encrypted_content": "x" * 3_000, "summary": []}
    call = {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "1"}
    assert responses([*HELLO, item, call]).parts["reasoning"] > 200
    assert "reasoning" not in responses([*HELLO, item, *HELLO]).parts
    kept = responses([*HELLO, item, *HELLO], reasoning={"context": "all_turns"})
    assert kept.parts["reasoning"] > 200


def test_gemini_bills_no_output_schema_and_no_framing():
    body = {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}
    plain = count_request(body, api="gemini", model="gemini-2.5-flash")
    assert plain.tokens == 1
    settings = {"generationConfig": {"responseJsonSchema": SCHEMA}}
    assert count_request({**body, **settings}, api="gemini", model="gemini-2.5-flash").tokens == 1


@pytest.mark.parametrize("api", ["chat", "responses", "anthropic", "gemini"])
def test_what_cannot_be_counted_is_named(api):
    link = "https://example.org/a.png"
    bodies = {
        "chat": {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": link}}]}]},
        "responses": {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": link}]}]},
        "anthropic": {
            "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": link}}]}]
        },
        "gemini": {"contents": [{"parts": [{"fileData": {"mimeType": "image/png", "fileUri": link}}]}]},
    }
    counted = count_request(bodies[api], api=api, model="gpt-4o")
    assert counted.uncounted == ("image by link",)
    assert counted.parts["media"] > 0


def test_a_search_by_the_provider_is_named_and_not_guessed():
    searched = claude(tools=[{"type": "web_search_20250305", "name": "web_search"}])
    assert searched.uncounted == ("web_search_20250305",)
    stored = responses("hello", previous_response_id="resp_1")
    assert stored.uncounted == ("what previous_response_id refers to",)


def test_both_ways_of_counting_read_the_same_table():
    call = ToolCall("get_weather", '{"city":"Paris"}', "1")
    artifacts = [
        Artifact("system", "You help."),
        Artifact("user", "hello"),
        Artifact("assistant", "", calls=(call,)),
        Artifact("tool", "Sunny.", answers="1"),
    ]
    for family in FAMILIES:
        model = {"mistral": "mistral-large", "qwen": "qwen3", "glm": "glm-4", "glm-5": "glm-5"}.get(
            family.name, family.name
        )
        count = ArtifactCounter(find_counter(model=model))
        tools = count.count_tools([CHAT_TOOL], has_system=True)
        ours = count.artifacts(artifacts[1:]) + count.beside("You help.") + tools.schemas + tools.hidden
        body = {
            "messages": [
                {"role": "system", "content": "You help."},
                *HELLO,
                {
                    "role": "assistant",
                    "tool_calls": [{"function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}}],
                },
                {"role": "tool", "content": "Sunny."},
            ],
            "tools": [CHAT_TOOL],
        }
        assert count_request(body, api="chat", model=model).tokens == ours, family.name


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("claude-sonnet-4-20250514", "claude-4"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-4"),
        ("anthropic/claude-sonnet-4.6", "claude-4"),
        ("claude-opus-4-7", "claude-4.7"),
        ("claude-opus-5", "claude-4.7"),
        ("claude-3-5-haiku-latest", "claude-3"),
        ("openai:gpt-4o-mini-2024-07-18", "gpt-4o-mini"),
        ("azure/gpt-35-turbo", "gpt-4"),
        ("openai.gpt-5.5", "gpt-5"),
        ("openai/gpt-oss-120b", "gpt-oss"),
        ("models/gemini-2.5-pro", "gemini-2.5"),
        ("deepseek-ai/DeepSeek-R1", "deepseek"),
        ("somebody/new-model", "unknown"),
    ],
)
def test_the_family_of_a_model(model, family):
    assert family_of(model).name == family


def test_an_unknown_model_says_that_nothing_was_measured():
    counted = chat("somebody/new-model", [{"role": "user", "content": "word " * 500}])
    assert "not measured" in counted.accuracy
    assert counted.margin > 0.1 * counted.tokens


@pytest.mark.parametrize(
    ("body", "api"),
    [
        ({"messages": HELLO}, "chat"),
        ({"messages": HELLO, "system": "x"}, "anthropic"),
        ({"messages": HELLO, "tools": [CLAUDE_TOOL]}, "anthropic"),
        ({"input": "hello"}, "responses"),
        ({"contents": []}, "gemini"),
    ],
)
def test_the_api_of_a_body_is_told_by_its_fields(body, api):
    assert detect_api(body) == api


@pytest.mark.parametrize(
    ("body", "api", "said"),
    [
        ({"messages": HELLO}, "telegraph", "unknown API 'telegraph'"),
        ([], "chat", "a request body is a JSON object, not list"),
        ({"input": "x"}, "chat", "has no list 'messages'"),
        ({"contents": "x"}, "gemini", "has no list 'contents'"),
    ],
)
def test_what_is_no_request_is_refused_in_one_line(body, api, said):
    with pytest.raises(ConfigError, match=said):
        count_request(body, api=api)


def test_odd_values_in_a_body_cost_what_they_can_and_raise_nothing():
    odd = [None, 7, "x", {"role": "user", "content": [None, {"type": "strange", "a": [1]}, {"text": 3}]}]
    for api, key in (("chat", "messages"), ("anthropic", "messages"), ("gemini", "contents"), ("responses", "input")):
        assert count_request({key: odd, "tools": [None, {"type": 3}]}, api=api).tokens > 0


def test_counting_leaves_the_body_as_it_was():
    body = {"model": "gpt-5", "messages": HELLO, "tools": [CHAT_TOOL]}
    before = json.dumps(body)
    find_format("chat").sent(body)
    chat("gpt-5", tools=[CHAT_TOOL])
    assert json.dumps(body) == before


def test_a_body_that_refers_to_itself_or_nests_without_end_is_refused_in_one_line():
    cyclic = {"messages": HELLO, "tools": [CLAUDE_TOOL]}
    schema = {"type": "object"}
    schema["properties"] = {"again": schema}
    deep = []
    for _ in range(100_000):
        deep = [deep]
    for body in (
        {**cyclic, "response_format": {"json_schema": {"schema": schema}}},
        {**cyclic, "tools": [{**CLAUDE_TOOL, "input_schema": schema}]},
        {"messages": [{"role": "user", "content": [{"type": "odd", "deep": deep}]}]},
    ):
        with pytest.raises(ConfigError, match="cannot be written as JSON"):
            count_request(body, api="chat", model="gpt-4o")


def test_a_model_that_is_no_name_is_refused():
    with pytest.raises(ConfigError, match="model is the name of a model, not 7"):
        find_counter("auto", model=7)
