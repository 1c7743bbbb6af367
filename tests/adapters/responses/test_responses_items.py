"""What the Responses API is particular about: reasoning, ids, pairs of every kind, what is on the server."""

from __future__ import annotations

import copy

import pytest

from ctxguard import Stabilizer
from ctxguard.artifacts import Kind
from ctxguard.errors import HistoryError
from ctxguard.stages import RepairExchanges
from ctxguard.tokens import ArtifactCounter, find_counter
from ctxguard_openai import ResponsesAdapter, astabilize_input, stabilize_input

ADAPTER = ResponsesAdapter()
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "x" * 160,
}
MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "phase": "commentary",
    "content": [{"type": "output_text", "text": "let me look", "annotations": [{"type": "url_citation"}]}],
}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "c1",
    "name": "look",
    "arguments": '{"q": "x"}',
    "status": "completed",
}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "found"}
USER = {"role": "user", "content": "hi"}


def edited(items, old, new):
    """Return the items with one text replaced wherever it stands."""
    untouched = copy.deepcopy(items)
    written = ADAPTER.write(items, [a.edit(lambda slot, text: text.replace(old, new)) for a in ADAPTER.read(items)])
    assert items == untouched
    return written


def repaired(items):
    return stabilize_input(items, Stabilizer(10_000, stages=[RepairExchanges()]))[0]


def test_what_the_model_wrote_in_one_go_is_one_artifact():
    again = [{**REASONING, "id": "rs_2"}, {**MESSAGE, "id": "msg_2"}]
    read = ADAPTER.read([USER, REASONING, MESSAGE, CALL, OUTPUT, *again])
    assert [a.kind for a in read] == [Kind.USER, Kind.ASSISTANT, Kind.TOOL, Kind.ASSISTANT]
    assert [part.kind for part in read[1].content] == ["reasoning", "opaque", "text"]
    assert read[1].calls[0].id == read[2].answers == "c1"


def test_two_replies_without_reasoning_are_two():
    read = ADAPTER.read([USER, MESSAGE, {**MESSAGE, "id": "msg_2"}, {"role": "assistant", "content": "x"}])
    assert [a.kind for a in read] == [Kind.USER, Kind.ASSISTANT, Kind.ASSISTANT, Kind.ASSISTANT]


def test_an_edited_message_is_no_longer_the_servers_and_keeps_its_phase():
    _, message = edited([USER, MESSAGE], "look", "see")
    assert message == {"role": "assistant", "content": "let me see", "phase": "commentary"}


def test_an_edit_takes_the_reasoning_before_it_and_the_ids_beside_it():
    written = edited([USER, REASONING, MESSAGE, CALL, OUTPUT], '"x"', '"y"')
    assert [item.get("type", "message") for item in written] == [
        "message",
        "message",
        "function_call",
        "function_call_output",
    ]
    assert "id" not in written[1]
    assert written[2] == {k: v for k, v in CALL.items() if k != "id"} | {"arguments": '{"q": "y"}'}
    assert written[3] is OUTPUT


def test_an_edit_leaves_other_reasoning_alone():
    second = {**REASONING, "id": "rs_2"}
    call = {**CALL, "id": "fc_2", "call_id": "c2", "arguments": "{}"}
    written = edited([USER, REASONING, CALL, second, call], '"x"', '"y"')
    assert written[2] is second
    assert written[3] is call


def test_hosted_calls_keep_their_reasoning_for_they_cannot_go_without_their_id():
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    written = edited([USER, REASONING, search, MESSAGE], "look", "see")
    assert written[1] is REASONING
    assert written[2] is search
    assert "id" not in written[3]


def test_an_edited_output_loses_its_id():
    written = edited([USER, CALL, {**OUTPUT, "id": "fco_1", "status": "completed"}], "found", "FOUND")
    assert written[1] is CALL
    assert written[2] == {**OUTPUT, "status": "completed", "output": "FOUND"}


PAIRS = [
    (CALL, OUTPUT),
    (
        {"type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": "select"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "rows"},
    ),
    (
        {
            "type": "computer_call",
            "id": "cu",
            "call_id": "c1",
            "pending_safety_checks": [],
            "status": "completed",
            "action": {"type": "type", "text": "mail"},
        },
        {
            "type": "computer_call_output",
            "call_id": "c1",
            "output": {"type": "computer_screenshot", "image_url": "https://example.com/a.png"},
        },
    ),
    (
        {"type": "shell_call", "call_id": "c1", "action": {"commands": ["ls", "cat mail"], "timeout_ms": 5}},
        {
            "type": "shell_call_output",
            "call_id": "c1",
            "output": [{"stdout": "mail", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        },
    ),
    (
        {
            "type": "apply_patch_call",
            "call_id": "c1",
            "status": "completed",
            "operation": {"type": "update_file", "path": "a", "diff": "+mail"},
        },
        {"type": "apply_patch_call_output", "call_id": "c1", "status": "completed", "output": "mail"},
    ),
    (
        {
            "type": "local_shell_call",
            "id": "ls_1",
            "call_id": "c1",
            "status": "completed",
            "action": {"type": "exec", "command": ["cat", "mail"], "env": {"WHO": "ann@corp-mail.net"}},
        },
        {"type": "local_shell_call_output", "id": "ls_1", "output": "mail"},
    ),
    (
        {"type": "tool_search_call", "call_id": "c1", "arguments": {"q": "x"}, "execution": "client"},
        {"type": "tool_search_output", "call_id": "c1", "tools": []},
    ),
    (
        {"type": "mcp_approval_request", "id": "c1", "name": "mail", "server_label": "s", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": "c1", "approve": True},
    ),
]


@pytest.mark.parametrize(("call", "output"), PAIRS, ids=lambda item: item["type"])
def test_every_kind_of_pair_is_kept_and_dropped_together(call, output):
    read = ADAPTER.read([USER, call, output])
    assert [a.kind for a in read] == [Kind.USER, Kind.ASSISTANT, Kind.TOOL]
    assert read[1].calls[0].id == read[2].answers
    assert all(was is now for was, now in zip([USER, call, output], repaired([USER, call, output]), strict=True))
    assert repaired([USER, output]) == [USER]


@pytest.mark.parametrize(("call", "output"), PAIRS, ids=lambda item: item["type"])
def test_a_dangling_call_gets_an_output_of_its_own_kind(call, output):
    items = repaired([USER, call, USER])
    assert items[1] is call
    assert items[2]["type"] == output["type"]
    assert ADAPTER.read(items)[2].answers == ADAPTER.read(items)[1].calls[0].id
    assert repaired(items) == items


@pytest.mark.parametrize(("call", "output"), PAIRS[2:6], ids=lambda item: item["type"])
def test_texts_inside_actions_are_edited_in_their_place(call, output):
    _, now_call, now_output = edited([USER, call, output], "mail", "[MAIL]")
    assert str(now_call).replace("[MAIL]", "mail") == str({k: v for k, v in call.items() if k != "id"})
    assert set(now_output) == set(output)


def test_tool_search_of_the_server_stays_inside_its_reply():
    search = [
        {"type": "tool_search_call", "arguments": {}, "execution": "server"},
        {"type": "tool_search_output", "tools": [{"name": "a"}]},
    ]
    read = ADAPTER.read([USER, *search, MESSAGE])
    assert [a.kind for a in read] == [Kind.USER, Kind.ASSISTANT]
    assert read[1].calls == ()


def test_a_program_and_the_calls_it_makes_are_one():
    program = {"type": "program", "id": "p", "call_id": "pc", "code": "look()", "fingerprint": "f"}
    done = {"type": "program_output", "id": "po", "call_id": "pc", "result": "1", "status": "completed"}
    items = [USER, program, CALL, OUTPUT, {**CALL, "call_id": "c2"}, {**OUTPUT, "call_id": "c2"}, done, MESSAGE]
    read = ADAPTER.read(items)
    assert [a.kind for a in read] == [Kind.USER, Kind.ASSISTANT]
    assert all(was is now for was, now in zip(items, repaired(items), strict=True))
    assert edited(items, "found", "FOUND")[3]["output"] == "FOUND"


@pytest.mark.parametrize(
    "item",
    [
        {"type": "item_reference", "id": "msg_9"},
        {"id": "msg_9"},
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "configuration_update", "settings": {}},
        {"type": "additional_tools", "role": "developer", "tools": []},
        {"type": "hologram_call", "id": "h"},
        {"role": "narrator", "content": "meanwhile"},
    ],
    ids=lambda item: item.get("type", next(iter(item))),
)
def test_what_concerns_the_whole_conversation_or_is_unknown_stays(item):
    items = [USER, item, *[{"role": "user", "content": "word " * 40}] * 20]
    out, report = stabilize_input(items, Stabilizer(300))
    assert report.ok
    assert any(kept is item for kept in out)


def test_an_unknown_kind_beside_a_reply_goes_and_stays_with_it():
    items = [USER, {"type": "hologram_call", "id": "h"}, MESSAGE]
    read = ADAPTER.read(items)
    assert [a.pinned for a in read] == [False, False]


def test_incremental_input_keeps_outputs_whose_calls_are_on_the_server():
    items = [OUTPUT, {**OUTPUT, "call_id": "c2"}, USER]
    assert stabilize_input(items, Stabilizer(1_000))[0] == [USER]
    out, report = stabilize_input(items, Stabilizer(1_000), incremental=True)
    assert report.ok
    assert all(was is now for was, now in zip(items, out, strict=True))


def test_incremental_outputs_are_bounded_all_the_same():
    big = {**OUTPUT, "output": "a line of the log\n" * 2_000}
    out, report = stabilize_input([big], Stabilizer(1_000), incremental=True)
    assert report.ok
    assert out[0]["call_id"] == "c1"
    assert len(out[0]["output"]) < 4_000


def test_a_reference_means_that_calls_are_on_the_server():
    items = [{"type": "item_reference", "id": "fc_9"}, {**OUTPUT, "call_id": "c9"}]
    assert stabilize_input(items, Stabilizer(1_000))[0] == items


def test_instructions_and_tools_are_counted():
    def tokens(**settings):
        return stabilize_input([USER], Stabilizer(1_000), **settings)[1].tokens_after

    assert tokens(instructions="Answer in one line.") > tokens() + 5
    assert tokens(tools=[{"type": "function", "name": "look", "parameters": {}}]) > tokens() + 5


async def test_the_async_door_does_the_same():
    items = [USER, REASONING, MESSAGE, CALL, OUTPUT] * 30
    stabilizer = Stabilizer(600)
    assert (await astabilize_input(items, stabilizer))[0] == stabilize_input(items, stabilizer)[0]


def test_objects_of_the_sdk_are_read_and_copied_as_dicts_when_edited():
    responses = pytest.importorskip("openai.types.responses", reason="openai is not installed")
    message = responses.ResponseOutputMessage.model_validate(
        MESSAGE | {"content": [{"type": "output_text", "text": "let me look", "annotations": []}]}
    )
    call = responses.ResponseFunctionToolCall.model_validate(CALL)
    items = [USER, message, call, OUTPUT]
    assert all(was is now for was, now in zip(items, ADAPTER.write(items, ADAPTER.read(items)), strict=True))
    written = edited(items, "look", "see")
    assert written[1] == {"role": "assistant", "content": "let me see", "phase": "commentary"}
    assert written[2] is call


def test_a_text_with_several_parts_keeps_them():
    parts = [{"type": "output_text", "text": "one mail"}, {"type": "refusal", "refusal": "no"}]
    _, message = edited([USER, {**MESSAGE, "content": parts}], "mail", "[MAIL]")
    assert message["content"] == [{"type": "output_text", "text": "one [MAIL]"}, {"type": "refusal", "refusal": "no"}]


def test_media_is_counted_and_kept():
    parts = [
        {"type": "input_text", "text": "mail"},
        {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "low"},
        {"type": "input_file", "file_id": "f"},
    ]
    items = [{"role": "user", "content": parts}]
    count = ArtifactCounter(find_counter("estimate"))
    assert [count.part(part) for part in ADAPTER.read(items)[0].content[1:]] == [85, 1_500]
    (message,) = edited(items, "mail", "[MAIL]")
    assert message["content"] == [{"type": "input_text", "text": "[MAIL]"}, *parts[1:]]


def test_what_is_no_item_is_named():
    with pytest.raises(HistoryError, match=r"message 1: .*'type' nor 'role'"):
        ADAPTER.read([USER, {"content": "x"}])
    with pytest.raises(HistoryError, match="list of input items"):
        ADAPTER.read("hello")


def test_it_knows_its_own():
    assert ADAPTER.detects([USER, CALL])
    assert not ADAPTER.detects([USER])
    assert not ADAPTER.detects([{"role": "tool", "content": "x", "tool_call_id": "c"}])


@pytest.mark.parametrize("items", [[USER, CALL, OUTPUT], [OUTPUT, USER, CALL, OUTPUT]], ids=["alone", "and a server's"])
def test_incremental_input_puts_no_call_beside_one_that_stands_in_it(items):
    read = ResponsesAdapter(incremental=True).read(items)
    assert [[call.id for call in artifact.calls] for artifact in read[-2:]] == [["c1"], []]
    assert sum(bool(artifact.calls) for artifact in read) == items.count(OUTPUT)


def test_actions_without_a_text_are_counted():
    click = {"type": "computer_call", "call_id": "c1", "action": {"type": "click", "x": 10, "y": 20}}
    (part,) = ADAPTER.read([USER, click])[1].content
    assert (part.kind, part.text) == ("opaque", None)
    assert part.tokens


def test_what_is_masked_beside_an_unknown_part_is_no_finding():
    image = {"type": "future_part", "payload": {"note": "kept"}}
    output = {**OUTPUT, "output": [image, {"type": "input_text", "text": "by ann@example.com"}]}
    items, report = stabilize_input([USER, CALL, output], Stabilizer(8_000))
    assert report.ok, str(report)
    assert items[2]["output"] == [image, {"type": "input_text", "text": "by [REDACTED_EMAIL]"}]


def test_what_an_unknown_part_holds_is_a_finding():
    part = {"type": "future_part", "payload": {"note": "by ann@example.com"}}
    _, report = stabilize_input([USER, CALL, {**OUTPUT, "output": [part]}], Stabilizer(8_000))
    assert not report.ok


def test_an_unknown_part_of_an_edited_reply_stays_whole():
    part = {"type": "future_part", "payload": {"note": "kept"}}
    reply = {**MESSAGE, "content": [part, {"type": "output_text", "text": "by ann@example.com", "annotations": []}]}
    items, _ = stabilize_input([USER, reply], Stabilizer(8_000))
    assert items[1]["content"] == [part, {"type": "output_text", "text": "by [REDACTED_EMAIL]"}]
