"""Chat Completions in every shape people send them: nothing is lost, nothing is rebuilt."""

from __future__ import annotations

import base64
import copy
import struct
import zlib

import pytest
from builders import chat_call
from openai.types.chat import ChatCompletionMessage

from ctxguard import Kind, Stabilizer
from ctxguard.errors import HistoryError
from ctxguard.tokens import ArtifactCounter, find_counter
from ctxguard_openai import OpenAIAdapter, astabilize_messages, stabilize_messages

ADAPTER = OpenAIAdapter()
MAIL = "jane.doe@corp-mail.net"


def read(*messages):
    return ADAPTER.read(list(messages))


def masked(*messages):
    out, report = stabilize_messages(list(messages), Stabilizer(100_000))
    assert report.ok, str(report)
    return out


def png(width, height):
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunk).decode()


@pytest.mark.parametrize(
    ("role", "kind"),
    [("system", "system"), ("developer", "system"), ("user", "user"), ("assistant", "assistant"), ("function", "tool")],
)
def test_roles(role, kind):
    (artifact,) = read({"role": role, "content": "hi", "name": "f"})
    assert artifact.kind == kind


def test_calls_and_results():
    calling = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            chat_call("1", "f", '{"a": 1}'),
            {"id": "2", "type": "custom", "custom": {"name": "g", "input": "free text"}},
        ],
    }
    caller, answer = read(calling, {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "done"}]})
    assert [(c.name, c.arguments, c.id) for c in caller.calls] == [("f", '{"a": 1}', "1"), ("g", "free text", "2")]
    assert (answer.kind, answer.answers, answer.text) == (Kind.TOOL, "1", "done")


def test_the_legacy_function_call_pairs_by_position_and_stays_as_it_is():
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": f'{{"to": "{MAIL}"}}'}},
        {"role": "function", "name": "f", "content": "sent"},
    ]
    out = masked(*messages)
    assert out[1] == {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "f", "arguments": '{"to": "[REDACTED_EMAIL]"}'},
    }
    assert out[2] is messages[2]


def test_media_cost_what_the_provider_charges_and_pass_through():
    content = [
        {"type": "text", "text": "what is this?"},
        {"type": "image_url", "image_url": {"url": png(512, 512)}},
        {"type": "image_url", "image_url": {"url": png(2048, 4096), "detail": "high"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": "A" * 64_000, "format": "wav"}},
        {"type": "file", "file": {"file_id": "file-1"}},
    ]
    (artifact,) = read({"role": "user", "content": content})
    count = ArtifactCounter(find_counter("estimate"))
    assert [count.part(part) for part in artifact.content[1:]] == [255, 1105, 85, 30, 1500]
    message = {"role": "user", "content": content}
    assert masked(message)[0] is message


def test_an_edit_changes_the_text_of_one_part_and_nothing_else():
    message = {
        "role": "user",
        "content": [
            {"type": "text", "text": f"I am {MAIL}", "cache_control": {"type": "ephemeral"}},
            {"type": "image_url", "image_url": {"url": "u"}},
        ],
        "x-trace": 1,
    }
    before = copy.deepcopy(message)
    (out,) = masked(message)
    assert message == before
    assert out["content"][0] == {
        "type": "text",
        "text": "I am [REDACTED_EMAIL]",
        "cache_control": {"type": "ephemeral"},
    }
    assert out["content"][1] is message["content"][1]
    assert {k: v for k, v in out.items() if k != "content"} == {"role": "user", "x-trace": 1}


def test_arguments_are_masked_inside_their_json_and_the_rest_of_the_call_is_kept():
    call = {
        "id": "1",
        "type": "function",
        "function": {"name": "mail", "arguments": f'{{"to": "{MAIL}", "n": 1}}'},
        "extra_content": {"google": {"thought_signature": "s"}},
    }
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": f"write to {MAIL}"},
        {"role": "tool", "tool_call_id": "1", "content": "ok"},
    ]
    out = masked(*messages)
    assert out[1]["tool_calls"][0]["function"] == {"name": "mail", "arguments": '{"to": "[REDACTED_EMAIL]", "n": 1}'}
    assert out[1]["tool_calls"][0]["extra_content"] is call["extra_content"]
    assert out[1]["reasoning_content"] == "write to [REDACTED_EMAIL]"
    assert out[1]["content"] is None


def test_sdk_objects_are_taken_and_keep_their_extras():
    spoken = ChatCompletionMessage.model_validate(
        {
            "role": "assistant",
            "content": f"I will write to {MAIL}",
            "reasoning_content": "r",
            "tool_calls": [chat_call("1", "f", f'{{"to": ["{MAIL}"]}}')],
        }
    )
    untouched = ChatCompletionMessage(role="assistant", content="fine")
    out = masked(
        {"role": "user", "content": "go"}, spoken, {"role": "tool", "tool_call_id": "1", "content": "ok"}, untouched
    )
    assert out[3] is untouched
    assert isinstance(out[1], ChatCompletionMessage)
    assert out[1].content == "I will write to [REDACTED_EMAIL]"
    assert out[1].tool_calls[0].function.arguments == '{"to": ["[REDACTED_EMAIL]"]}'
    assert out[1].reasoning_content == "r"
    assert spoken.content.endswith(MAIL)


def test_a_dangling_call_gets_a_result_and_an_orphan_goes():
    messages = [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [chat_call("1")],
        },
        {"role": "user", "content": "still there?"},
        {"role": "tool", "tool_call_id": "zzz", "content": "lost"},
    ]
    out, report = stabilize_messages(messages, Stabilizer(1_000))
    assert out == [
        *messages[:2],
        {"role": "tool", "content": "[no result: the call was interrupted]", "tool_call_id": "1"},
        messages[2],
    ]
    assert {d.action for d in report.decisions} == {"kept", "repaired", "dropped"}


def test_missing_ids_are_filled_in_on_both_sides():
    messages = [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [chat_call(None)],
        },
        {"role": "tool", "tool_call_id": None, "content": "done"},
    ]
    out, _ = stabilize_messages(messages, Stabilizer(1_000, provider="openai"))
    assert out[1]["tool_calls"][0]["id"] == out[2]["tool_call_id"] is not None


def test_an_unknown_role_is_kept_and_its_text_masked():
    (out,) = masked({"role": "narrator", "content": f"enter {MAIL}", "mood": "grim"})
    assert out == {"role": "narrator", "content": "enter [REDACTED_EMAIL]", "mood": "grim"}


@pytest.mark.parametrize("thought", [f"Ask {MAIL}.", [{"type": "text", "text": f"Ask {MAIL}."}]])
def test_mistrals_thinking_is_read_as_reasoning(thought):
    message = {"role": "assistant", "content": [{"type": "thinking", "thinking": thought, "closed": True}]}
    (artifact,) = read(message)
    assert [part.kind for part in artifact.content] == ["reasoning"]
    (out,) = masked(message)
    assert MAIL not in str(out)
    assert out["content"][0]["closed"]


def test_unknown_parts_are_opaque():
    part = {"type": "hologram", "data": {"points": [1, 2, 3]}}
    message = {"role": "user", "content": [part, "plain string"]}
    (artifact,) = read(message)
    assert artifact.content[0].kind == "opaque"
    assert artifact.content[0].tokens > 0
    assert masked(message)[0] is message


def test_empty_contents_survive():
    message = {"role": "assistant", "content": ""}
    out = masked({"role": "user", "content": "x"}, message)
    assert out[1] is message


@pytest.mark.parametrize("more", [{}, {"reasoning_content": "Done."}, {"refusal": "No."}])
def test_a_null_content_without_calls_which_the_api_refuses_becomes_an_empty_text(more):
    out = masked({"role": "user", "content": "x"}, {"role": "assistant", "content": None, **more})
    assert out[1] == {"role": "assistant", "content": "", **more}


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_an_empty_list_of_parts_which_the_api_refuses_becomes_an_empty_text(role):
    history = [{"role": "user", "content": "x"}, {"role": role, "content": []}, {"role": "user", "content": "y"}]
    out, report = stabilize_messages(history, Stabilizer(1_000, provider="openai"))
    assert [message["content"] for message in out] == ["x", "", "y"]
    assert [decision.action for decision in report.decisions] == ["kept", "repaired", "kept"]
    assert stabilize_messages(out, Stabilizer(1_000, provider="openai"))[0] == out


@pytest.mark.parametrize("field", ["refusal", "reasoning_content"])
@pytest.mark.parametrize("text", ["no", "by ann@example.com"])
def test_what_is_said_beside_an_empty_list_of_parts_is_not_said_twice(field, text):
    history = [{"role": "user", "content": "x"}, {"role": "assistant", "content": [], field: text}]
    out, report = stabilize_messages(history, Stabilizer(1_000, provider="openai"))
    assert out[1] == {"role": "assistant", "content": "", field: text.replace("ann@example.com", "[REDACTED_EMAIL]")}
    assert Stabilizer(1_000).stabilize(OpenAIAdapter().read(out), overhead=3).report.tokens_after == report.tokens_after


def test_a_part_whose_text_is_null_is_repaired():
    history = [{"role": "user", "content": [{"type": "text", "text": None}]}, {"role": "user", "content": "y"}]
    out, report = stabilize_messages(history, Stabilizer(1_000))
    assert out[0] == {"role": "user", "content": [{"type": "text", "text": ""}]}
    assert report.ok
    assert report.unread == 0


def test_an_older_call_is_not_answered_by_a_tool_without_an_id():
    called = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    history = [{"role": "user", "content": "x"}, called, {"role": "tool", "tool_call_id": None, "content": "r"}]
    out, report = stabilize_messages([*history, {"role": "user", "content": "y"}], Stabilizer(1_000))
    assert report.ok
    assert [message["role"] for message in out] == ["user", "assistant", "function", "user"]


@pytest.mark.parametrize(
    ("history", "error"),
    [
        ({"role": "user"}, "expected a list of messages, got dict"),
        ("hello", "expected a list of messages, got str"),
        (None, "expected a list of messages, got NoneType"),
        ([{"role": "user", "content": "x"}, "hello"], "message 1: expected a dict with 'role' and 'content', got str"),
        ([{"content": "x"}], "message 0: it has no 'role'; every message needs one"),
        ([{"role": "user", "content": 5}], "message 0: content must be a text or a list of parts, not int"),
    ],
)
def test_bad_histories_are_refused_with_their_place(history, error):
    with pytest.raises(HistoryError) as caught:
        stabilize_messages(history, Stabilizer(100))
    assert str(caught.value) == error


def test_tool_schemas_count():
    tools = [{"type": "function", "function": {"name": "f", "description": "word " * 300}}]
    _, bare = stabilize_messages([{"role": "user", "content": "x"}], Stabilizer(2_000))
    _, with_tools = stabilize_messages([{"role": "user", "content": "x"}], Stabilizer(2_000), tools=tools)
    assert with_tools.tokens_after - bare.tokens_after > 300


async def test_async_gives_the_same():
    messages = [{"role": "user", "content": f"I am {MAIL}"}]
    stabilizer = Stabilizer(2_000)
    out, _ = await astabilize_messages(messages, stabilizer)
    assert out == stabilize_messages(messages, stabilizer)[0]


def test_a_message_that_stands_in_a_list_twice_stays_twice():
    message = {"role": "user", "content": "again"}
    out, report = stabilize_messages([message, message], Stabilizer(1_000))
    assert [m is message for m in out] == [True, True]
    assert len(report.decisions) == 2


def test_the_name_of_a_legacy_result_is_counted_as_it_is_sent():
    def tokens(name):
        asking = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
        history = [{"role": "user", "content": "go"}, asking, {"role": "function", "name": name, "content": "ok"}]
        return stabilize_messages(history, Stabilizer(1_000, counter=len))[1].tokens_before

    assert tokens("find_all_the_orders") == tokens("find") + len("_all_the_orders")
