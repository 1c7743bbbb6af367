"""Converse messages: what is read, what is edited, and what stays as it is."""

from __future__ import annotations

import copy

import pytest

import ctxguard
from ctxguard import Artifact, Kind, Stabilizer
from ctxguard.adapting import find_adapter, stabilize_native
from ctxguard.errors import HistoryError
from ctxguard.tokens import count_request
from ctxguard_anthropic import AnthropicAdapter
from ctxguard_bedrock import BedrockAdapter, recall_tool, stabilize_messages, stabilize_request
from ctxguard_google import GoogleAdapter
from ctxguard_openai import OpenAIAdapter

MAIL = "ann@example.com"
STABILIZER = Stabilizer(8_000)
CALL = {"toolUse": {"toolUseId": "t1", "name": "look_up", "input": {"query": MAIL}}}
POINT = {"cachePoint": {"type": "default"}}


def result(*content, identity="t1"):
    return {"toolResult": {"toolUseId": identity, "content": list(content), "status": "success"}}


def user(*blocks):
    return {"role": "user", "content": [{"text": block} if isinstance(block, str) else block for block in blocks]}


def assistant(*blocks):
    return {**user(*blocks), "role": "assistant"}


def fitted(*messages):
    before = copy.deepcopy(messages)
    done, report = stabilize_native(STABILIZER, BedrockAdapter(), list(messages))
    assert report.ok, str(report)
    assert messages == before
    return done


def test_uses_and_results_are_masked_and_all_else_stays():
    question, use, found = user("Where?", POINT), assistant(CALL, POINT), user(result({"text": f"by {MAIL}"}), POINT)
    done = fitted(question, use, found)
    assert done[0] is question
    masked = {"toolUse": {"toolUseId": "t1", "name": "look_up", "input": {"query": "[REDACTED_EMAIL]"}}}
    assert done[1] == assistant(masked, POINT)
    assert done[2] == user(result({"text": "by [REDACTED_EMAIL]"}), POINT)


def test_json_is_masked_inside_and_becomes_a_text_where_it_is_none_any_more():
    rows = {"rows": [{"mail": MAIL, "age": 7}] * 3}
    done = fitted(user("Go"), assistant(CALL), user(result({"json": rows})))
    masked = {"rows": [{"mail": "[REDACTED_EMAIL]", "age": 7}] * 3}
    assert done[2]["content"][0]["toolResult"]["content"] == [{"json": masked}]
    adapter = BedrockAdapter()
    read = adapter.read([user("Go"), assistant(CALL), user(result({"json": rows}))])
    short = [*read[:2], read[2].revised(content="too long to show")]
    assert adapter.write([], short)[2] == user(result({"text": "too long to show"}))


@pytest.mark.parametrize(
    ("block", "masked"),
    [
        ({"guardContent": {"text": {"text": MAIL}}}, {"guardContent": {"text": {"text": "[REDACTED_EMAIL]"}}}),
        (
            {"document": {"format": "txt", "name": "notes", "source": {"text": MAIL}}},
            {"document": {"format": "txt", "name": "notes", "source": {"text": "[REDACTED_EMAIL]"}}},
        ),
        (
            {"document": {"name": "n", "source": {"content": [{"text": MAIL}]}, "context": MAIL}},
            {
                "document": {
                    "name": "n",
                    "source": {"content": [{"text": "[REDACTED_EMAIL]"}]},
                    "context": "[REDACTED_EMAIL]",
                }
            },
        ),
        (
            {"citationsContent": {"content": [{"text": MAIL}], "citations": [{"sourceContent": [{"text": MAIL}]}]}},
            {
                "citationsContent": {
                    "content": [{"text": "[REDACTED_EMAIL]"}],
                    "citations": [{"sourceContent": [{"text": "[REDACTED_EMAIL]"}]}],
                }
            },
        ),
        (
            {"searchResult": {"source": "here", "title": f"of {MAIL}", "content": [{"text": "x"}]}},
            {"searchResult": {"source": "here", "title": "of [REDACTED_EMAIL]", "content": [{"text": "x"}]}},
        ),
    ],
)
def test_texts_of_every_kind_are_masked(block, masked):
    assert fitted(user("See", block))[0]["content"][1] == masked


@pytest.mark.parametrize("data", [b"\x89PNG" + bytes(3_000), "iVBORw0KGgo="])
def test_media_are_counted_and_handed_on(data):
    blocks = [
        {kind: {"format": form, "source": {"bytes": data}}}
        for kind, form in (("image", "png"), ("video", "mp4"), ("audio", "mp3"))
    ]
    blocks.append({"document": {"format": "pdf", "name": "scan", "source": {"bytes": data}}})
    message = user("See", *blocks)
    assert fitted(message)[0] is message
    (artifact,) = BedrockAdapter().read([message])
    assert [part.media.kind for part in artifact.content[1:]] == ["image", "video", "audio", "file"]
    count = count_request({"messages": [message]}, api="converse", model="anthropic.claude-3-5-sonnet-20241022-v2:0")
    assert count.parts["media"] > 0


def test_an_id_that_the_api_refuses_takes_no_value_along():
    block = {"toolUse": {"toolUseId": MAIL, "name": "f", "input": {}}}
    done, report = stabilize_native(STABILIZER, BedrockAdapter(), [user("Hi"), assistant("See", block)])
    assert report.ok
    assert MAIL.partition("@")[0] not in done[1]["content"][1]["toolUse"]["toolUseId"]


@pytest.mark.parametrize(
    ("block", "place"),
    [
        ({"image": {"format": "png", "source": {"s3Location": {"uri": f"s3://b/{MAIL}"}}}}, "s3Location"),
        ({"document": {"name": MAIL, "source": {"bytes": b"x"}}}, "name"),
        ({"hologram": {"of": MAIL}}, "content[1]"),
        ({"toolUse": {"toolUseId": "1", "name": MAIL, "input": {}}}, "name"),
        ({"text": "x", "unknown": MAIL}, "unknown"),
    ],
)
def test_what_may_not_be_edited_is_searched(block, place):
    asked = [user("Hi"), assistant("See", block)] if "toolUse" in block else [user("See", block)]
    done, report = stabilize_native(STABILIZER, BedrockAdapter(), asked)
    assert len(done) == len(asked)
    assert done[-1]["content"][1] is block
    found = [finding for check in report.checks if check.name == "NoPII" for finding in check.findings]
    assert found
    assert place in found[0].path


def test_reasoning_is_sent_unchanged_or_not_at_all():
    clean = {"reasoningContent": {"reasoningText": {"text": "I think.", "signature": "c2ln"}}}
    found = {"reasoningContent": {"reasoningText": {"text": f"I think of {MAIL}.", "signature": "c2ln"}}}
    sealed = {"reasoningContent": {"redactedContent": b"\x01\x02"}}
    done = fitted(user("Hi"), assistant(clean, sealed, "Hello."), user("And?"), assistant(found, "Hello."), user("So?"))
    assert done[1]["content"][:2] == [clean, sealed]
    assert done[3] == assistant("Hello.")


def test_what_stands_side_by_side_in_one_role_becomes_one_message():
    call = {"toolUse": {**CALL["toolUse"], "input": {}}}
    done = fitted(
        user("One"), user("Two"), assistant("Three"), assistant(call), user(result({"text": "x"})), user("Four")
    )
    assert done == [user("One", "Two"), assistant("Three", call), user(result({"text": "x"}), "Four")]


def test_a_call_that_got_no_result_gets_one_before_what_was_said():
    done = fitted(user("Go"), assistant(CALL), user("Still there?"))
    interrupted = {"toolResult": {"toolUseId": "t1", "content": [{"text": "[no result: the call was interrupted]"}]}}
    assert done[2] == user(interrupted, "Still there?")


def test_a_long_history_takes_turns_behind_every_cut():
    messages = [user("Begin. I am " + MAIL)]
    for number in range(40):
        identity = f"t{number}"
        use = {"toolUse": {**CALL["toolUse"], "toolUseId": identity}}
        messages += [assistant("Let me look.", use), user(result({"text": "a row of words\n" * 40}, identity=identity))]
        messages += [assistant(f"Found {number}."), user(f"And {number}?")]
    done, report = stabilize_request({"modelId": "m", "messages": messages}, Stabilizer(1_500))
    assert report.ok
    assert report.tokens_after <= 1_500
    roles = [message["role"] for message in done["messages"]]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]


def test_the_rest_of_a_request_is_masked_or_searched():
    spec = {"name": "f", "description": f"Ask {MAIL}.", "inputSchema": {"json": {"type": "object", "properties": {}}}}
    request = {"modelId": "m", "system": [{"text": f"Ask {MAIL}"}, POINT], "messages": [user("Hi")]}
    request["toolConfig"] = {"tools": [{"toolSpec": spec}, POINT], "toolChoice": {"tool": {"name": "f"}}}
    done, report = stabilize_request(request, STABILIZER)
    assert report.ok, str(report)
    assert done["system"] == [{"text": "Ask [REDACTED_EMAIL]"}, POINT]
    assert done["toolConfig"]["tools"][0]["toolSpec"]["description"] == "Ask [REDACTED_EMAIL]."
    assert done["toolConfig"]["tools"][1] is POINT
    assert done["toolConfig"]["toolChoice"] == {"tool": {"name": "f"}}
    assert not stabilize_request({**request, "requestMetadata": {"of": MAIL}}, STABILIZER)[1].ok
    system, messages, _ = stabilize_messages(
        [user("Hi")], STABILIZER, system=[{"text": MAIL}], tools=[{"toolSpec": spec}]
    )
    assert system == [{"text": "[REDACTED_EMAIL]"}]
    assert messages == [user("Hi")]


def test_it_is_found_by_its_look():
    messages = [user("Hi"), assistant(CALL), user(result({"text": MAIL}))]
    assert isinstance(find_adapter("bedrock"), BedrockAdapter)
    context = ctxguard.guard(messages, budget=2_000)
    assert context[0] is messages[0]
    assert context[2] == user(result({"text": "[REDACTED_EMAIL]"}))
    assert BedrockAdapter().detects({"modelId": "m", "messages": []})
    assert not BedrockAdapter().detects([{"role": "user", "content": "Hi"}])
    assert not BedrockAdapter().detects([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}])


def test_other_formats_are_refused_by_name_and_others_refuse_this_one():
    for adapter, native in ((OpenAIAdapter(), [assistant(CALL)]), (AnthropicAdapter(), [assistant(CALL)])):
        with pytest.raises(HistoryError, match=r"of Bedrock Converse; use ctxguard_bedrock\.stabilize_request"):
            adapter.read(native)
    with pytest.raises(HistoryError, match="of Gemini"):
        BedrockAdapter().read([{"role": "user", "parts": [{"text": MAIL}]}])
    with pytest.raises(HistoryError, match="has a 'type', which no block of Converse has"):
        BedrockAdapter().read([user({"type": "text", "text": None})])
    with pytest.raises(HistoryError, match="it has no 'parts'"):
        GoogleAdapter().read([user(MAIL)])


@pytest.mark.parametrize(
    ("native", "fault"),
    [
        (7, "expected a list of messages, got int"),
        ({"modelId": "m"}, "the request has no 'messages'"),
        ({"messages": [], "system": MAIL}, "system must be a list of blocks"),
        ([{"role": "user"}], "message 0: it has no 'content'"),
        ([{"role": "user", "content": MAIL}], "content must be a list of blocks"),
        ([user({"text": 7})], r"content\[0\].text must be a text, not int"),
        ([user(result(7))], r"content\[0\].toolResult.content\[0\] must be"),
        ([user({"toolResult": {"toolUseId": "1", "content": MAIL}})], "must be a list of blocks, not str"),
        ([user({"toolResult": {"toolUseId": "1", "text": MAIL}})], "has no 'content'"),
        ([assistant({"toolUse": {"toolUseId": "1", "name": "f"}})], "has no 'input'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(native, fault):
    with pytest.raises(HistoryError, match=fault):
        BedrockAdapter().read(native)
    with pytest.raises(HistoryError, match="a dict with 'messages'"):
        stabilize_request([], STABILIZER)


def test_nothing_that_the_api_refuses_is_left_behind():
    adapter = BedrockAdapter()
    assert adapter.write([], [Artifact(Kind.USER, ""), Artifact(Kind.ASSISTANT, "")]) == [user("…"), assistant("…")]
    (read,) = adapter.read([user("Hi", POINT)])
    assert adapter.write([], [read.revised(content="")]) == [user("…", POINT)]


def test_counts_follow_the_model_behind_the_id():
    spec = {"toolSpec": {"name": "f", "description": "word " * 100, "inputSchema": {"json": {"type": "object"}}}}
    body = {
        "system": [{"text": "Be brief."}],
        "messages": [user("word " * 50), assistant(CALL), user(result({"json": {"a": 1}}))],
        "toolConfig": {"tools": [spec, POINT]},
    }
    claude = count_request({**body, "modelId": "us.anthropic.claude-sonnet-4-5-20250929-v1:0"}, api="converse")
    nova = count_request(body, api="converse", model="us.amazon.nova-pro-v1:0")
    assert claude.parts["tools"] > 100
    assert claude.parts["hidden prompts"] > 300
    assert "hidden prompts" not in nova.parts
    assert nova.parts["tool results"] > 0
    assert "not measured" in nova.accuracy
    assert (
        Stabilizer(8_000, model="eu.anthropic.claude-sonnet-4-5-20250929-v1:0").counter.counter.family.name
        == "claude-4"
    )


def test_the_recall_tool():
    schema, recall = recall_tool()
    assert schema["toolSpec"]["name"] == "recall"
    assert "nothing is saved" in recall("no-such-handle")


@pytest.mark.parametrize("budget", [400, 1_000])
def test_a_result_that_is_stored_and_goes_on_is_not_cut_or_bounded_anew(budget):
    guard = Stabilizer(budget, provider="anthropic")
    stored = [user("Find the faulty host, please.")]
    for number in range(40):
        call = {"toolUse": {"toolUseId": f"t{number}", "name": "look", "input": {"host": f"host-{number}.example.com"}}}
        told = f"disk {number} of host-{number} is fine, " * (number % 7 + 1)
        stored += [assistant("Next.", call), user(result({"text": told}, identity=f"t{number}"))]
        stored, report = stabilize_native(guard, BedrockAdapter(), stored)
        assert report.ok, str(report)
        again, second = stabilize_native(guard, BedrockAdapter(), stored)
        assert again == stored
        assert not second.changed


@pytest.mark.parametrize("blank", ["\n", " \t", "\u2003"])
def test_a_result_of_white_space_is_counted_as_it_is_written(blank):
    stabilizer = Stabilizer(1_000, counter="estimate")
    done, report = stabilize_native(
        stabilizer, BedrockAdapter(), [user("Go"), assistant(CALL), user(result({"text": blank}))]
    )
    assert done[2] == user(result({"text": "…"}))
    assert stabilizer.counter.artifacts(BedrockAdapter().read(done)) + 3 == report.tokens_after


def test_a_text_ends_with_its_block_also_where_the_events_of_a_framework_have_no_numbers():
    ends = BedrockAdapter().ends({"contentBlockStop": {}})
    assert ends((None,))
    assert not ends((0,))
    assert BedrockAdapter().ends({"contentBlockDelta": {}}) is None
