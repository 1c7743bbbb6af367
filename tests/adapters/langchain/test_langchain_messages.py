"""LangChain messages in every shape people send them: nothing is lost, nothing is rebuilt, calls count once."""

from __future__ import annotations

import base64
import copy
import struct
import zlib

import pytest
from builders import chat_call
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    ToolMessageChunk,
)

from ctxguard import Kind, Stabilizer
from ctxguard.adapting.adapter import stabilize_native
from ctxguard.artifacts import Artifact, ToolCall
from ctxguard.errors import AdapterError, HistoryError
from ctxguard.tokens import ArtifactCounter, find_counter
from ctxguard_langchain import LangChainAdapter

ADAPTER = LangChainAdapter()
COUNT = ArtifactCounter(find_counter("estimate"))
MAIL = "jane.doe@corp-mail.net"
HIDDEN = "[REDACTED_EMAIL]"


def read(*messages):
    return ADAPTER.read(list(messages))


def masked(*messages):
    before = copy.deepcopy(messages)
    out, report = stabilize_native(Stabilizer(100_000), ADAPTER, list(messages))
    assert report.ok, str(report)
    assert list(messages) == list(before), "the input was changed"
    return out


def call(args, identity="1", name="f"):
    return {"name": name, "args": args, "id": identity, "type": "tool_call"}


def png(width, height):
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunk).decode()


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (SystemMessage("x"), Kind.SYSTEM),
        (HumanMessage("x"), Kind.USER),
        (HumanMessageChunk(content="x"), Kind.USER),
        (AIMessage("x"), Kind.ASSISTANT),
        (AIMessageChunk(content="x"), Kind.ASSISTANT),
        (ToolMessage("x", tool_call_id="1"), Kind.TOOL),
        (ToolMessageChunk(content="x", tool_call_id="1"), Kind.TOOL),
        (FunctionMessage(content="x", name="f"), Kind.TOOL),
        (ChatMessage(content="x", role="developer"), Kind.SYSTEM),
        (ChatMessage(content="x", role="user"), Kind.USER),
        (ChatMessage(content="x", role="Assistant"), Kind.ASSISTANT),
    ],
)
def test_every_class_has_its_kind_and_its_text(message, kind):
    (artifact,) = read(message)
    assert (artifact.kind, artifact.text, artifact.pinned) == (kind, "x", False)


def test_unknown_roles_are_pinned_and_removals_cost_nothing():
    odd, removal = read(ChatMessage(content="x", role="critic"), RemoveMessage(id="7"))
    assert (odd.role, odd.id) == ("critic", None)
    assert odd.pinned
    assert (removal.pinned, removal.role) == (True, None)
    assert removal.token_count == 0


def test_a_removal_passes_through_untouched():
    removal = RemoveMessage(id="1")
    out = masked(HumanMessage("hi", id="1"), removal, AIMessage("hello"), HumanMessage("and now?"))
    assert out[1] is removal


def test_calls_valid_and_invalid_carry_their_arguments():
    broken = {"name": "g", "args": '{"a": ', "id": "2", "error": "cut off", "type": "invalid_tool_call"}
    (artifact,) = read(AIMessage("", tool_calls=[call({"a": 1, "b": "é"})], invalid_tool_calls=[broken]))
    assert artifact.calls == (ToolCall("f", '{"a":1,"b":"é"}', "1"), ToolCall("g", '{"a": ', "2"))


def test_an_edit_keeps_everything_else():
    result = ToolMessage(
        f"mail {MAIL}", tool_call_id="1", artifact={"raw": [1]}, status="error", id="t", additional_kwargs={"k": 1}
    )
    asking = AIMessage(
        f"I write to {MAIL}",
        id="a",
        tool_calls=[call({"to": MAIL})],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"model": "m"},
    )
    _, ai, tool = masked(HumanMessage("write"), asking, result)
    assert ai == asking.model_copy(update={"content": f"I write to {HIDDEN}", "tool_calls": [call({"to": HIDDEN})]})
    assert tool == result.model_copy(update={"content": f"mail {HIDDEN}"})


@pytest.mark.parametrize(
    ("block", "edited"),
    [
        ({"type": "tool_use", "id": "1", "name": "f", "input": {"to": MAIL}}, {"input": {"to": HIDDEN}}),
        (
            {"type": "tool_use", "id": "1", "name": "f", "input": {}, "partial_json": f'{{"to": "{MAIL}"}}'},
            {"input": {"to": HIDDEN}, "partial_json": f'{{"to":"{HIDDEN}"}}'},
        ),
        ({"type": "tool_call", "id": "1", "name": "f", "args": {"to": MAIL}}, {"args": {"to": HIDDEN}}),
        (
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": f'{{"to": "{MAIL}"}}'},
            {"arguments": f'{{"to":"{HIDDEN}"}}'},
        ),
    ],
)
def test_blocks_that_repeat_a_call_count_once_and_are_edited_with_it(block, edited):
    text = {"type": "text", "text": "One moment."}
    twice = AIMessage([text, block], tool_calls=[call({"to": MAIL})])
    once = AIMessage([text], tool_calls=[call({"to": MAIL})])
    counter = Stabilizer(1_000).counter
    assert counter.artifact(read(twice)[0]) == counter.artifact(read(once)[0])
    out = masked(HumanMessage("write"), twice, ToolMessage("done", tool_call_id="1"))
    assert out[1].content == [text, {**block, **edited}]
    assert out[1].tool_calls == [call({"to": HIDDEN})]


def test_the_stored_item_id_of_an_edited_block_goes():
    said = {"type": "text", "text": MAIL, "id": "msg_1", "phase": "final_answer"}
    asked = {"type": "function_call", "id": "fc_1", "call_id": "1", "name": "f", "arguments": f'{{"to": "{MAIL}"}}'}
    (_, ai, _) = masked(
        HumanMessage("go"),
        AIMessage([said, asked], tool_calls=[call({"to": MAIL})]),
        ToolMessage("ok", tool_call_id="1"),
    )
    assert ai.content[0] == {"type": "text", "text": HIDDEN, "phase": "final_answer"}
    assert "id" not in ai.content[1]


def test_a_custom_tool_keeps_its_free_text():
    block = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "1", "name": "f", "input": f"to {MAIL}"}
    asking = AIMessage([block], tool_calls=[call({"__arg1": f"to {MAIL}"})])
    out = masked(HumanMessage("go"), asking, ToolMessage("ok", tool_call_id="1"))
    assert out[1].content[0]["input"] == f"to {HIDDEN}"


def test_a_call_that_stands_in_a_block_alone_is_a_call():
    asking = AIMessage([{"type": "tool_use", "id": "1", "name": "f", "input": {"to": MAIL}}])
    assert read(asking)[0].calls == (ToolCall("f", f'{{"to":"{MAIL}"}}', "1"),)
    out = masked(HumanMessage("go"), asking, ToolMessage("ok", tool_call_id="1"))
    assert out[1].content == [{"type": "tool_use", "id": "1", "name": "f", "input": {"to": HIDDEN}}]


def test_raw_copies_of_edited_calls_leave_no_value_behind():
    raw = chat_call("1", "f", f'{{"to": "{MAIL}"}}')
    extras = {"tool_calls": [raw], "function_call": {"name": "f", "arguments": f'{{"to": "{MAIL}"}}'}, "other": 1}
    asking = AIMessage("", tool_calls=[call({"to": MAIL})], additional_kwargs=extras)
    assert len(read(asking)[0].calls) == 1
    out = masked(HumanMessage("go"), asking, ToolMessage("ok", tool_call_id="1"))
    assert out[1].additional_kwargs == {"other": 1}
    assert MAIL not in out[1].model_dump_json()


def test_chunks_as_streaming_stores_them_are_edited_in_both_places():
    first = AIMessageChunk(content="", tool_call_chunks=[{"name": "f", "args": '{"to": ', "id": "1", "index": 0}])
    second = AIMessageChunk(
        content="", tool_call_chunks=[{"name": None, "args": f'"{MAIL}"}}', "id": None, "index": 0}]
    )
    stored = first + second
    out = masked(HumanMessage("go"), stored, ToolMessage("ok", tool_call_id="1"))
    assert type(out[1]) is AIMessageChunk
    assert out[1].tool_calls == [call({"to": HIDDEN})]
    assert MAIL not in out[1].model_dump_json()


def test_an_untouched_call_keeps_its_block_and_its_neighbor_is_edited():
    blocks = [
        {"type": "tool_use", "id": "1", "name": "f", "input": {"to": MAIL}},
        {"type": "tool_use", "id": "2", "name": "f", "input": {"to": "Ann"}},
    ]
    asking = AIMessage(blocks, tool_calls=[call({"to": MAIL}), call({"to": "Ann"}, "2")])
    out = masked(HumanMessage("go"), asking, ToolMessage("a", tool_call_id="1"), ToolMessage("b", tool_call_id="2"))
    assert out[1].content[1] is asking.content[1]
    assert out[1].content[0]["input"] == {"to": HIDDEN}


def test_the_legacy_function_call_pairs_by_position():
    asking = AIMessage("", additional_kwargs={"function_call": {"name": "f", "arguments": f'{{"to": "{MAIL}"}}'}})
    answer = FunctionMessage(content=MAIL, name="f")
    out = masked(HumanMessage("go"), asking, answer, AIMessage("done"))
    assert [type(message) for message in out] == [HumanMessage, AIMessage, FunctionMessage, AIMessage]
    assert out[1].additional_kwargs == {"function_call": {"name": "f", "arguments": f'{{"to": "{HIDDEN}"}}'}}
    assert out[2] == answer.model_copy(update={"content": HIDDEN})


def test_stand_ins_are_made_for_calls_without_a_result():
    asking = AIMessage("", tool_calls=[call({}, "1"), call({}, "2")])
    legacy = AIMessage("", additional_kwargs={"function_call": {"name": "g", "arguments": "{}"}})
    out = masked(
        HumanMessage("a"), asking, ToolMessage("x", tool_call_id="1"), HumanMessage("b"), legacy, HumanMessage("c")
    )
    assert (out[3].tool_call_id, out[3].name) == ("2", "f")
    assert isinstance(out[6], FunctionMessage)
    assert out[6].name == "g"


def test_a_missing_id_is_filled_in_for_both_sides():
    asking = AIMessage([{"type": "tool_use", "name": "f", "input": {}}], tool_calls=[call({}, None)])
    out = masked(HumanMessage("a"), asking, ToolMessage("x", tool_call_id=""), AIMessage("y"))
    identity = out[1].tool_calls[0]["id"]
    assert identity
    assert out[1].content[0]["id"] == identity == out[2].tool_call_id


def test_reasoning_and_refusals_beside_the_content_are_read_and_masked():
    told = AIMessage("Hi", additional_kwargs={"reasoning_content": f"They are {MAIL}", "refusal": None, "x": 1})
    assert [part.kind for part in read(told)[0].content] == ["text", "reasoning"]
    out = masked(HumanMessage("go"), told)
    assert out[1].content == "Hi"
    assert out[1].additional_kwargs == {"reasoning_content": f"They are {HIDDEN}", "refusal": None, "x": 1}


def test_signed_thinking_is_never_edited_and_unsigned_reasoning_is():
    signed = {"type": "thinking", "thinking": "the plan", "signature": "abc"}
    plain = {"type": "reasoning", "reasoning": f"write {MAIL}"}
    stored = {"type": "reasoning", "reasoning": "x", "extras": {"signature": "s"}}
    assert [part.signed for part in read(AIMessage([signed, plain, stored]))[0].content] == [True, False, True]
    out = masked(HumanMessage("go"), AIMessage([signed, plain, "and a text"]))
    assert out[1].content == [signed, {"type": "reasoning", "reasoning": f"write {HIDDEN}"}, "and a text"]


@pytest.mark.parametrize(
    "thinking",
    [
        {"type": "thinking", "thinking": f"write {MAIL}", "signature": "abc"},
        {"type": "reasoning", "reasoning": f"write {MAIL}", "extras": {"signature": "s"}},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": f"write {MAIL}"}]},
    ],
)
def test_sealed_reasoning_that_would_change_goes_with_the_rest_and_the_ids_beside_it(thinking):
    sealed = {"type": "redacted_thinking", "data": "Zm9v"}
    said = {"type": "text", "text": "Done.", "id": "msg_1"}
    out = masked(HumanMessage("go"), AIMessage([sealed, thinking, said]))
    assert out[1].content == [{"type": "text", "text": "Done."}]


def test_a_block_of_which_nothing_is_left_goes():
    artifact = read(AIMessage([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]))[0]
    (out,) = LangChainAdapter().write([], [artifact.revised(content="both")])
    assert out.content == [{"type": "text", "text": "both"}]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + png(512, 512)}},
        {"type": "image_url", "image_url": "data:image/png;base64," + png(512, 512)},
        {"type": "image", "base64": png(512, 512), "mime_type": "image/png"},
        {"type": "image", "source_type": "base64", "data": png(512, 512), "mime_type": "image/png"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png(512, 512)}},
    ],
)
def test_images_cost_their_tiles_in_every_dialect(block):
    (part,) = read(HumanMessage([block]))[0].content
    assert (part.kind, part.text, COUNT.part(part)) == ("image", None, 85 + 170)


def test_other_media_and_unknown_blocks_are_counted_and_passed_on():
    blocks = [
        {"type": "audio", "base64": "A" * 64_000, "mime_type": "audio/wav"},
        {"type": "input_audio", "input_audio": {"data": "A" * 64_000, "format": "wav"}},
        {"type": "file", "base64": "A" * 400_000, "mime_type": "application/pdf"},
        {"type": "file", "file": {"file_data": "A" * 400_000}},
        {"type": "document", "source": {"type": "base64", "data": "A" * 400_000}},
        {"type": "hologram", "shape": "teapot"},
        {"type": "image", "url": "https://example.org/cat.png"},
    ]
    parts = read(HumanMessage(blocks))[0].content
    assert [part.kind for part in parts] == ["audio", "audio", "file", "file", "file", "opaque", "image"]
    sound, same_sound, *files, _, _ = costs = list(map(COUNT.part, parts))
    assert sound == same_sound
    assert len(set(files)) == 1
    assert all(costs)
    mixed = HumanMessage([*blocks, {"type": "text", "text": MAIL, "cache_control": {"type": "ephemeral"}}])
    out = masked(mixed)
    assert all(now is was for now, was in zip(out[0].content[:-1], mixed.content, strict=False))
    assert out[0].content[-1] == {"type": "text", "text": HIDDEN, "cache_control": {"type": "ephemeral"}}


@pytest.mark.parametrize("empty", ["", []])
def test_what_a_stage_says_in_an_empty_message_is_written(empty):
    (artifact,) = read(AIMessage(empty))
    assert ADAPTER.write([], [artifact.revised(content="cut")]) == [AIMessage("cut")]


def found(*words, **fields):
    texts = [{"type": "text", "text": each} for each in words]
    return {"type": "search_result", "source": "s", "title": "t", "content": texts, **fields}


def document(words, **fields):
    return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": words}, **fields}


def held(words, **fields):
    texts = [{"type": "text", "text": words}]
    return {"type": "document", "source": {"type": "content", "content": texts}, **fields}


def whole(words, **fields):
    return {"type": "document", "source": {"type": "content", "content": words}, **fields}


def plain(words, **fields):
    return {"type": "text-plain", "text": words, "mime_type": "text/plain", **fields}


@pytest.mark.parametrize("make", [found, document, held, whole, plain])
def test_documents_and_search_results_are_read_where_they_hold_text(make):
    said = HumanMessage([make(f"write {MAIL}", title=f"of {MAIL}")])
    assert read(said)[0].text.startswith(f"write {MAIL}")
    assert masked(said)[0].content == [make(f"write {HIDDEN}", title=f"of {HIDDEN}")]


@pytest.mark.parametrize("kind", ["file", "image", "text-plain"])
@pytest.mark.parametrize("holder", [None, "extras", "metadata"])
def test_what_names_a_medium_is_masked_wherever_the_package_of_a_provider_takes_it_from(kind, holder):
    def block(told):
        names = {"title": f"of {told}", "context": f"for {told}"}
        return {"type": kind, "text": "x", "url": "u", **({holder: names} if holder else names)}

    assert masked(HumanMessage([block(MAIL)]))[0].content == [block(HIDDEN)]
    (artifact,) = read(HumanMessage([block(MAIL)]))
    (emptied,) = ADAPTER.write([], [artifact.edit(lambda _, text: "x" if text == "x" else "")])
    told = emptied.content[0][holder] if holder else emptied.content[0]
    assert (told["title"], told["context"]) == ("…", "…")


def test_a_search_result_of_which_nothing_is_left_goes_and_a_part_of_one_alone():
    def gone(*blocks):
        (artifact,) = read(HumanMessage([*blocks, "stays"]))
        (out,) = ADAPTER.write([], [artifact.edit(lambda _, text: text.replace("bye", ""))])
        return out.content

    assert gone(found("bye", "bye")) == ["stays"]
    assert gone(document("bye", title="t")) == gone(held("bye")) == gone(whole("bye")) == ["stays"]
    assert gone(found("bye", "so")) == [found("so"), "stays"]
    assert gone(found("so", title="bye")) == [found("so", title="…"), "stays"]


def test_arguments_must_stay_an_object():
    (artifact,) = read(AIMessage("", tool_calls=[call({"a": 1})]))
    edited = artifact.revised(calls=(ToolCall("f", "no object", "1"),))
    with pytest.raises(AdapterError, match="arguments of 'f'"):
        ADAPTER.write([], [edited])


def test_added_artifacts_become_messages_of_their_kind():
    added = [
        Artifact(Kind.SYSTEM, "s"),
        Artifact(Kind.TASK, "t"),
        Artifact(Kind.ASSISTANT, "a", calls=(ToolCall("f", '{"x": 1}', "1"),)),
        Artifact(Kind.TOOL, "r", answers="1", name="f"),
    ]
    assert ADAPTER.write([], added) == [
        SystemMessage("s"),
        HumanMessage("t"),
        AIMessage("a", tool_calls=[call({"x": 1})]),
        ToolMessage("r", tool_call_id="1", name="f"),
    ]


@pytest.mark.parametrize("wrong", ["text", {"messages": []}, HumanMessage("x"), 7])
def test_what_is_no_list_is_refused(wrong):
    with pytest.raises(HistoryError, match="expected a list of LangChain messages"):
        ADAPTER.read(wrong)


def test_what_is_no_message_is_named():
    with pytest.raises(HistoryError, match="message 1: expected a LangChain message, got dict"):
        read(HumanMessage("x"), {"role": "user", "content": "y"})


def test_detects_its_own_lists_only():
    assert ADAPTER.detects([HumanMessage("x")])
    assert not ADAPTER.detects([{"role": "user", "content": "x"}])
    assert not ADAPTER.detects("x")
    assert not ADAPTER.detects([HumanMessage("x"), "y"])


@pytest.mark.parametrize(
    ("kind", "field"), [("text", "text"), ("input_text", "text"), ("output_text", "text"), ("refusal", "refusal")]
)
def test_a_block_of_text_without_its_text_is_refused(kind, field):
    message = HumanMessage(["see", {"type": kind, "txt": "ada@corp-mail.net"}])
    with pytest.raises(HistoryError, match=rf"message 0: content\[1\]\.{field} must be a text, not NoneType$"):
        LangChainAdapter().read([message])


@pytest.mark.parametrize("block", [{"type": "text", "index": 0, "citations": []}, {"type": "text-plain", "url": "a"}])
def test_blocks_that_may_lack_a_text_are_opaque(block):
    (artifact,) = LangChainAdapter().read([AIMessage([block])])
    assert [part.kind for part in artifact.content] == ["opaque"]
