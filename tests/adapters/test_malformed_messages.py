"""What is no message of a provider's is refused with its place: passed on unread it would leave unmasked or uncounted."""

from __future__ import annotations

import pytest

from ctxguard import Kind, Stabilizer
from ctxguard.errors import ConfigError, HistoryError
from ctxguard_anthropic import AnthropicAdapter, stabilize_request
from ctxguard_anthropic import stabilize_messages as stabilize_anthropic
from ctxguard_openai import OpenAIAdapter, ResponsesAdapter, stabilize_input, stabilize_messages

MAIL = "jane.doe@corp-mail.net"
USER = {"role": "user", "content": "go"}
FUNCTION = {"name": "mail", "arguments": f'{{"to": "{MAIL}"}}'}
CALL = {"id": "1", "type": "function", "function": FUNCTION}


def refused(adapter, native, fault):
    with pytest.raises(HistoryError) as caught:
        adapter.read(native)
    assert str(caught.value) == fault
    assert MAIL not in str(caught.value)


@pytest.mark.parametrize(
    ("calls", "fault"),
    [
        (f'[{{"to": "{MAIL}"}}]', "tool_calls must be a list of calls, not str"),
        (CALL, "tool_calls must be a list of calls, not dict; write [call]"),
        (5, "tool_calls must be a list of calls, not int"),
        ([MAIL], "tool_calls[0] must be a dict with 'function', not str"),
        ([CALL, [CALL]], "tool_calls[1] must be a dict with 'function', not list"),
        ([CALL, None], "tool_calls[1] must be a dict with 'function', not NoneType"),
        ([{"id": "1", "to": MAIL}], "tool_calls[0].function must be a dict with 'name' and 'arguments', not NoneType"),
        ([{**CALL, "function": MAIL}], "tool_calls[0].function must be a dict with 'name' and 'arguments', not str"),
        ([{"id": "1", "custom": MAIL}], "tool_calls[0].custom must be a dict with 'name' and 'input', not str"),
    ],
)
@pytest.mark.parametrize("role", ["assistant", "asistant"])
def test_malformed_tool_calls_are_refused(role, calls, fault):
    refused(
        OpenAIAdapter(),
        [USER, {"role": role, "content": None, "tool_calls": calls}],
        f"message 1: {fault}",
    )


def test_a_malformed_function_call_is_refused():
    fault = "message 0: function_call must be a dict with 'name' and 'arguments', not str"
    refused(OpenAIAdapter(), [{"role": "assistant", "function_call": MAIL}], fault)


@pytest.mark.parametrize("role", ["user", "system", "tool"])
@pytest.mark.parametrize(("field", "value"), [("tool_calls", [CALL]), ("function_call", FUNCTION)])
def test_calls_of_anyone_but_the_assistant_are_refused(role, field, value):
    fault = f"message 0: {field} in a message of role '{role}'; the assistant alone calls tools"
    refused(OpenAIAdapter(), [{"role": role, "content": "x", field: value}], fault)


def test_a_part_whose_type_is_no_name_is_opaque():
    message = {"role": "user", "content": [{"type": {"name": "hologram"}}]}
    assert OpenAIAdapter().read([message])[0].content[0].kind == "opaque"


@pytest.mark.parametrize("empty", [None, [], ()])
def test_no_calls_at_all_are_fine_anywhere(empty):
    messages = [{"role": role, "content": "x", "tool_calls": empty} for role in ("user", "assistant")]
    out, _ = stabilize_messages(messages, Stabilizer(1_000))
    if empty is None:
        assert all(now is was for now, was in zip(out, messages, strict=True))
    else:  # OpenAI refuses an empty list: "expected an array with minimum length 1"
        assert out == [{"role": role, "content": "x"} for role in ("user", "assistant")]


@pytest.mark.parametrize(
    ("part", "fault"),
    [
        (4_111, "content[1] must be a text or a dict with 'type', not int"),
        (None, "content[1] must be a text or a dict with 'type', not NoneType"),
        ([MAIL], "content[1] must be a text or a dict with 'type', not list"),
        ({"type": "text", "text": {"value": MAIL}}, "content[1].text must be a text, not dict"),
        ({"type": "text", "text": [MAIL]}, "content[1].text must be a text, not list"),
    ],
)
def test_malformed_parts_are_refused(part, fault):
    refused(OpenAIAdapter(), [{"role": "user", "content": ["hi", part]}], f"message 0: {fault}")


@pytest.mark.parametrize("kind", [{}, {"type": None}, {"type": "input_text"}, {"type": "output_text"}], ids=str)
def test_texts_of_parts_that_are_misnamed_are_masked(kind):
    (out,), _ = stabilize_messages([{"role": "user", "content": [{**kind, "text": MAIL}]}], Stabilizer(1_000))
    assert out == {"role": "user", "content": [{**kind, "text": "[REDACTED_EMAIL]"}]}


def test_calls_of_a_misspelt_role_are_masked_and_keep_their_results():
    calling = {"role": "asistant", "content": None, "tool_calls": [CALL]}
    out, report = stabilize_messages(
        [USER, calling, {"role": "tool", "tool_call_id": "1", "content": "sent"}], Stabilizer(1_000)
    )
    assert [message["role"] for message in out] == ["user", "asistant", "tool"]
    assert out[1]["tool_calls"][0]["function"]["arguments"] == '{"to": "[REDACTED_EMAIL]"}'
    assert out[2]["content"] == "sent"
    assert report.ok


@pytest.mark.parametrize(
    "stabilized",
    [
        lambda messages: stabilize_messages(messages, Stabilizer(1_000))[1],
        lambda messages: stabilize_input(messages, Stabilizer(1_000))[1],
        lambda messages: stabilize_anthropic(messages, Stabilizer(1_000))[2],
    ],
    ids=["openai", "responses", "anthropic"],
)
def test_the_report_tells_the_roles_that_nobody_knows(stabilized):
    report = stabilized([USER, {"role": "asistant", "content": "hello"}, USER])
    assert [decision.to_dict()["role"] for decision in report.decisions] == [None, "asistant", None]
    assert report.decisions[1].artifact.id is None
    assert "assistant (role 'asistant') kept" in str(report)
    assert "assistant (role &#39;asistant&#39;)" in report._repr_html_()
    assert report.decisions[1].artifact.kind is Kind.ASSISTANT
    assert report.decisions[1].artifact.pinned


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (5, "content must be a text or a list of blocks, not int"),
        ({"type": "text", "text": MAIL}, "content must be a text or a list of blocks, not dict; write [block]"),
        ([5], "content[0] must be a text or a dict with 'type', not int"),
        (["x", None], "content[1] must be a text or a dict with 'type', not NoneType"),
        ([[MAIL]], "content[0] must be a text or a dict with 'type', not list"),
        (
            [{"type": "tool_result", "tool_use_id": "1", "content": {"to": MAIL}}],
            "content[0].content must be a text or a list of blocks, not dict; write [block]",
        ),
        (
            [{"type": "tool_result", "tool_use_id": "1", "content": [4_111]}],
            "content[0].content[0] must be a text or a dict with 'type', not int",
        ),
        (
            [{"type": "search_result", "content": 4_111}],
            "content[0].content must be a text or a list of blocks, not int",
        ),
        (
            [{"type": "document", "source": {"type": "content", "content": [4_111]}}],
            "content[0].source.content[0] must be a text or a dict with 'type', not int",
        ),
    ],
)
def test_malformed_blocks_are_refused(content, fault):
    refused(AnthropicAdapter(), [USER, {"role": "user", "content": content}], f"message 1: {fault}")


def test_a_malformed_system_prompt_is_refused():
    refused(AnthropicAdapter(), {"system": 5, "messages": [USER]}, "system must be a text or a list of blocks, not int")
    refused(
        AnthropicAdapter(),
        {"system": {"type": "text", "text": MAIL}, "messages": [USER]},
        "system must be a text or a list of blocks, not dict; write [block]",
    )


def test_a_result_without_a_content_is_fine():
    use = {"type": "tool_use", "id": "1", "name": "look", "input": {}}
    request = {
        "messages": [
            USER,
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1"}]},
        ]
    }
    done, report = stabilize_request(request, Stabilizer(1_000))
    assert report.ok
    assert done["messages"] == request["messages"]


@pytest.mark.parametrize(
    ("item", "fault"),
    [
        ({"role": "user", "content": 5}, "content must be a text or a list of parts, not int"),
        (
            {"role": "user", "content": {"type": "input_text", "text": MAIL}},
            "content must be a text or a list of parts, not dict; write [part]",
        ),
        ({"role": "user", "content": [4_111]}, "content[0] must be a text or a dict with 'type', not int"),
        (
            {"type": "function_call_output", "call_id": "1", "output": {"to": MAIL}},
            "output must be a text or a list of parts, not dict; write [part]",
        ),
    ],
)
def test_malformed_items_are_refused(item, fault):
    refused(ResponsesAdapter(), [USER, item], f"message 1: {fault}")


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_bare_texts_among_the_parts_of_an_item_are_masked(role):
    (out,), _ = stabilize_input([{"role": role, "content": [MAIL, "x"]}], Stabilizer(1_000))
    assert out == {"role": role, "content": ["[REDACTED_EMAIL]", "x"]}


def test_arguments_that_are_no_text_are_masked_as_json():
    call = {"type": "function_call", "call_id": "1", "name": "mail", "arguments": {"to": MAIL, "ok": True}}
    output = {"type": "function_call_output", "call_id": "1", "output": "sent"}
    out, report = stabilize_input([USER, call, output], Stabilizer(1_000))
    assert report.ok
    assert out[1]["arguments"] == '{"to":"[REDACTED_EMAIL]","ok":true}'


CHAT = "Chat Completions; use ctxguard_openai.stabilize_messages (adapter 'openai')"
RESPONSES = "the Responses API; use ctxguard_openai.stabilize_input (adapter 'openai-responses')"
ANTHROPIC = "Anthropic's Messages; use ctxguard_anthropic.stabilize_request (adapter 'anthropic')"
GEMINI = "Gemini; use ctxguard_google.stabilize_request (adapter 'google')"
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
LEGACY = {"role": "assistant", "content": None, "function_call": FUNCTION}
RESULT = {"type": "tool_result", "tool_use_id": "1", "content": MAIL}
USE = {"type": "tool_use", "id": "1", "name": "mail", "input": {"to": MAIL}}


@pytest.mark.parametrize("adapter", [ResponsesAdapter(), AnthropicAdapter()], ids=lambda adapter: adapter.name)
@pytest.mark.parametrize(
    ("message", "fault"),
    [
        (CALLING, f"'tool_calls' is of {CHAT}"),
        (LEGACY, f"'function_call' is of {CHAT}"),
        ({"role": "tool", "tool_call_id": "1", "content": MAIL}, f"role 'tool' is of {CHAT}"),
        ({"role": "function", "name": "mail", "content": MAIL}, f"role 'function' is of {CHAT}"),
    ],
)
def test_messages_of_chat_completions_are_refused_elsewhere(adapter, message, fault):
    refused(adapter, [USER, message], f"message 1: {fault}")


@pytest.mark.parametrize("adapter", [OpenAIAdapter(), ResponsesAdapter()], ids=lambda adapter: adapter.name)
@pytest.mark.parametrize(("role", "block"), [("user", RESULT), ("assistant", USE)])
def test_blocks_of_anthropic_are_refused_elsewhere(adapter, role, block):
    fault = f"message 1: content[1] type '{block['type']}' is of {ANTHROPIC}"
    refused(adapter, [USER, {"role": role, "content": ["see", block]}], fault)


def test_a_block_of_anthropic_that_stands_alone_is_no_input_item():
    refused(ResponsesAdapter(), [USER, USE], f"message 1: type 'tool_use' is of {ANTHROPIC}")


@pytest.mark.parametrize("adapter", [OpenAIAdapter(), AnthropicAdapter()], ids=lambda adapter: adapter.name)
@pytest.mark.parametrize("role", [{}, {"role": "assistant"}], ids=["no role", "with a role"])
@pytest.mark.parametrize(
    "kind",
    ["function_call", "function_call_output", "custom_tool_call", "computer_call", "reasoning", "item_reference"],
)
def test_input_items_are_refused_elsewhere(adapter, role, kind):
    refused(adapter, [USER, {"type": kind, "call_id": "1", **role}], f"message 1: type '{kind}' is of {RESPONSES}")


@pytest.mark.parametrize("kind", ["input_text", "output_text"])
def test_texts_of_input_items_are_refused_among_the_blocks_of_anthropic(kind):
    inner = [{**RESULT, "content": [{"type": kind, "text": MAIL}]}]
    fault = f"message 0: content[0].content[0] type '{kind}' is of {RESPONSES}"
    refused(AnthropicAdapter(), [{"role": "user", "content": inner}], fault)


@pytest.mark.parametrize(
    "adapter", [OpenAIAdapter(), ResponsesAdapter(), AnthropicAdapter()], ids=lambda adapter: adapter.name
)
def test_messages_that_hold_parts_beside_a_content_are_refused(adapter):
    refused(adapter, [{"role": "user", "parts": [{"text": MAIL}]}], f"message 0: 'parts' is of {GEMINI}")
    fault = "message 0: 'parts' is of a user interface, which no adapter reads; convert it first"
    refused(adapter, [{"role": "user", "parts": [{"type": "text", "text": MAIL}]}], fault)


@pytest.mark.parametrize("block", [{"type": "thinking", "thinking": "so", "signature": "c2ln"}, {"type": "hologram"}])
def test_parts_that_compatible_providers_take_and_unknown_ones_are_opaque(block):
    (artifact,) = OpenAIAdapter().read([{"role": "assistant", "content": [block]}])
    assert [part.kind for part in artifact.content] == ["opaque"]


@pytest.mark.parametrize("adapter", [OpenAIAdapter(), ResponsesAdapter()], ids=lambda adapter: adapter.name)
@pytest.mark.parametrize(
    ("kind", "key"), [("text", "text"), ("input_text", "text"), ("output_text", "text"), ("refusal", "refusal")]
)
def test_a_part_of_a_known_kind_without_its_text_is_refused(adapter, kind, key):
    message = {"role": "user", "content": [{"type": kind, "txt": MAIL}]}
    refused(adapter, [message], f"message 0: content[0].{key} must be a text, not NoneType")


@pytest.mark.parametrize(
    ("block", "fault"),
    [
        ({"type": "text", "txt": MAIL}, "content[0].text must be a text, not NoneType"),
        ({"type": "text", "text": {"value": MAIL}}, "content[0].text must be a text, not dict"),
        ({"type": "thinking", "text": MAIL}, "content[0].thinking must be a text, not NoneType"),
        (
            {"type": "document", "source": {"type": "text", "text": MAIL}},
            "content[0].source.data must be a text, not NoneType",
        ),
    ],
)
def test_a_block_of_a_known_kind_without_its_text_is_refused(block, fault):
    refused(AnthropicAdapter(), [{"role": "user", "content": [block]}], f"message 0: {fault}")


@pytest.mark.parametrize(
    "block", [{"type": "thinking", "thinking": "", "signature": "c2ln"}, {"type": "redacted_thinking", "data": "c2ln"}]
)
def test_thinking_without_a_text_that_is_sealed_is_fine(block):
    assert AnthropicAdapter().read([{"role": "assistant", "content": [block]}])[0].content[0].signed


@pytest.mark.parametrize(
    ("adapter", "message", "fault"),
    [
        (OpenAIAdapter(), {"role": "user", "contents": MAIL}, "it has no 'content'"),
        (OpenAIAdapter(), {"role": "tool", "tool_call_id": "1", "output": MAIL}, "it has no 'content'"),
        (
            OpenAIAdapter(),
            {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "mail", "args": MAIL}}]},
            "tool_calls[0].function has no 'arguments'",
        ),
        (ResponsesAdapter(), {"role": "user", "contents": MAIL}, "it has no 'content'"),
        (ResponsesAdapter(), {"type": "function_call", "call_id": "1", "args": MAIL}, "it has no 'arguments'"),
        (ResponsesAdapter(), {"type": "function_call_output", "call_id": "1", "result": MAIL}, "it has no 'output'"),
        (AnthropicAdapter(), {"role": "user", "contents": MAIL}, "it has no 'content'"),
        (
            AnthropicAdapter(),
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "mail", "args": {"to": MAIL}}]},
            "content[0] has no 'input'",
        ),
    ],
)
def test_a_misspelt_field_is_refused(adapter, message, fault):
    refused(adapter, [USER, message], f"message 1: {fault}")


@pytest.mark.parametrize("name", ["contents", "text", "output"])
def test_a_result_whose_content_is_misspelt_is_refused(name):
    said = {"type": "tool_result", "tool_use_id": "1", "is_error": False, name: [{"type": "text", "text": MAIL}]}
    for value in (said, {**said, name: MAIL}):
        fault = f"message 0: content[0] has no 'content', and {name!r} is none of its fields"
        refused(AnthropicAdapter(), [{"role": "user", "content": [value]}], fault)


def test_a_result_without_a_content_may_have_fields_that_hold_no_text():
    block = {"type": "tool_result", "tool_use_id": "1", "cache_control": {"type": "ephemeral"}, "reviewed": True}
    assert AnthropicAdapter().read([{"role": "user", "content": [block]}])[0].text == ""


@pytest.mark.parametrize(
    ("adapter", "message", "fault"),
    [
        (OpenAIAdapter(), {"role": "assistant", "contents": MAIL}, "it has no 'content'"),
        (OpenAIAdapter(), {"role": "asistant", "contents": MAIL}, "it has no 'content'"),
        (ResponsesAdapter(), {"type": "reasoning", "id": "rs_1", "text": MAIL}, "it has no 'summary'"),
        (ResponsesAdapter(), {"type": "shell_call_output", "call_id": "1", "result": MAIL}, "it has no 'output'"),
        (ResponsesAdapter(), {"type": "local_shell_call", "call_id": "1", "acton": MAIL}, "it has no 'action'"),
        (
            AnthropicAdapter(),
            {"role": "user", "content": [{"type": "search_result", "source": "s", "title": "t", "text": MAIL}]},
            "content[0] has no 'content'",
        ),
        (
            AnthropicAdapter(),
            {"role": "user", "content": [{"type": "document", "content": MAIL}]},
            "content[0] has no 'source'",
        ),
        (
            AnthropicAdapter(),
            {"role": "user", "content": [{"type": "document", "source": {"type": "content", "text": MAIL}}]},
            "content[0].source has no 'content'",
        ),
    ],
)
def test_what_may_stand_elsewhere_and_stands_nowhere_is_refused(adapter, message, fault):
    refused(adapter, [message], f"message 0: {fault}")


@pytest.mark.parametrize("adapter", [OpenAIAdapter(), AnthropicAdapter()], ids=lambda adapter: adapter.name)
def test_a_content_may_be_none(adapter):
    assert adapter.read([{"role": "user", "content": None}])[0].text == ""


@pytest.mark.parametrize("adapter", [OpenAIAdapter(), AnthropicAdapter()], ids=lambda adapter: adapter.name)
@pytest.mark.parametrize("wrong", ["hi", None, ["hi"]], ids=repr)
def test_what_is_no_message_at_all_is_named(adapter, wrong):
    refused(adapter, [USER, wrong], f"message 1: expected a dict with 'role' and 'content', got {type(wrong).__name__}")


@pytest.mark.parametrize("wrong", ["hi", None, ["hi"]], ids=repr)
def test_what_is_no_input_item_at_all_is_named(wrong):
    fault = f"message 1: expected a dict with 'type' or 'role', got {type(wrong).__name__}"
    refused(ResponsesAdapter(), [USER, wrong], fault)


@pytest.mark.parametrize(
    ("messages", "kind"), [(None, "NoneType"), (MAIL, "str"), (USER, "dict"), (iter([]), "list_iterator")]
)
def test_a_request_whose_messages_are_no_list_is_refused(messages, kind):
    refused(AnthropicAdapter(), {"messages": messages}, f"expected a list of messages, got {kind}")
    with pytest.raises(HistoryError, match=f"expected a list of messages, got {kind}"):
        stabilize_anthropic(messages, Stabilizer(1_000))


@pytest.mark.parametrize("kind", ["human", "ai", "system", "tool", "AIMessageChunk"])
def test_messages_of_langchain_are_no_input_items(kind):
    fault = f"message 1: type {kind!r} is of LangChain; use ctxguard_langchain.ContextGuard (adapter 'langchain')"
    refused(ResponsesAdapter(), [USER, {"type": kind, "content": MAIL}], fault)


@pytest.mark.parametrize("instructions", [5, [MAIL], {"role": "system"}], ids=repr)
def test_instructions_that_are_no_text_are_refused(instructions):
    with pytest.raises(ConfigError, match=f"instructions must be a string, not {type(instructions).__name__}"):
        stabilize_input([USER], Stabilizer(1_000), instructions=instructions)


def nested(depth, kind, field):
    part = {"type": kind, field: "x"}
    for _ in range(depth):
        part = {"type": kind, field: [part]}
    return part


def within_itself(kind, field):
    part = {"type": kind}
    part[field] = [part]
    return part


@pytest.mark.parametrize("adapter", [OpenAIAdapter(), ResponsesAdapter(), AnthropicAdapter()])
@pytest.mark.parametrize("make", [lambda *names: nested(3_000, *names), within_itself], ids=["deep", "cyclic"])
@pytest.mark.parametrize(("kind", "field"), [("thinking", "thinking"), ("search_result", "content"), ("new", "x")])
def test_parts_without_end_are_refused(adapter, make, kind, field):
    with pytest.raises(HistoryError, match=r"^message 1: "):
        adapter.read([USER, {"role": "assistant", "content": [make(kind, field)]}])


def test_a_part_that_no_client_could_send_is_refused():
    with pytest.raises(HistoryError, match=r"^message 0: a part of unknown type cannot be written as JSON: "):
        OpenAIAdapter().read([{"role": "user", "content": [{"type": "new", ("a", "b"): MAIL}]}])


def test_a_message_that_is_nested_as_deep_as_json_goes_is_read_each_time():
    deep = nested(240, "search_result", "content")
    messages = [USER, {"role": "user", "content": "x", "metadata": deep}]
    adapter = OpenAIAdapter()
    for _ in range(2):
        assert [artifact.text for artifact in adapter.read(messages)] == ["go", "x"]
