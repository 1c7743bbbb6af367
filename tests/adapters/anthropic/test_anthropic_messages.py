"""What the Messages API is particular about: adjacency, blocks, and thinking that is bound to its prompt."""

from __future__ import annotations

import copy

import pytest

from ctxguard import Stabilizer
from ctxguard.artifacts import Kind, ToolCall
from ctxguard.errors import HistoryError
from ctxguard.stages import DropStaleThinking, FillBudget, RepairExchanges
from ctxguard_anthropic import (
    AnthropicAdapter,
    astabilize_request,
    stabilize_messages,
    stabilize_request,
)

ADAPTER = AnthropicAdapter()
USER = {"role": "user", "content": "hi"}
CACHE = {"type": "ephemeral"}


def use(identity, **fields):
    return {"type": "tool_use", "id": identity, "name": "look", "input": {"q": "x"}, **fields}


def result(identity, text="found", **fields):
    return {"type": "tool_result", "tool_use_id": identity, "content": text, **fields}


def says(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def hears(*blocks):
    return {"role": "user", "content": list(blocks)}


def text(words, **fields):
    return {"type": "text", "text": words, **fields}


def thinks(words, signature="sig"):
    return {"type": "thinking", "thinking": words, "signature": signature}


def edited(native, old, new):
    untouched = copy.deepcopy(native)
    written = ADAPTER.write(native, [a.edit(lambda slot, t: t.replace(old, new)) for a in ADAPTER.read(native)])
    assert native == untouched
    return written


def repaired(messages):
    return stabilize_messages(messages, Stabilizer(10_000, stages=[RepairExchanges()]))[1]


def test_results_are_artifacts_of_their_own():
    read = ADAPTER.read([USER, says(text("see"), use("a"), use("b")), hears(result("a"), result("b"), text("go on"))])
    assert [(a.kind, a.text) for a in read] == [
        (Kind.USER, "hi"),
        (Kind.ASSISTANT, "see"),
        (Kind.TOOL, "found"),
        (Kind.TOOL, "found"),
        (Kind.USER, "go on"),
    ]
    assert read[1].calls == (ToolCall("look", '{"q":"x"}', "a"), ToolCall("look", '{"q":"x"}', "b"))
    assert [a.answers for a in read[2:4]] == ["a", "b"]


@pytest.mark.parametrize("system", ["be brief", [text("be brief", cache_control=CACHE)]])
def test_a_request_keeps_its_system_prompt_and_all_else(system):
    request = {"model": "m", "max_tokens": 9, "system": system, "messages": [USER]}
    assert ADAPTER.read(request)[0].kind is Kind.SYSTEM
    written = ADAPTER.write(request, ADAPTER.read(request))
    assert written == request
    assert written["system"] is system
    assert written["messages"] is not request["messages"]
    changed = edited(request, "brief", "kind")
    assert changed["system"] == ("be kind" if isinstance(system, str) else [text("be kind", cache_control=CACHE)])


def test_an_edit_changes_its_block_and_keeps_the_cache_breakpoint():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}
    messages = [
        USER,
        says(
            text("my mail", cache_control=CACHE, citations=[{"type": "x"}]),
            use("a", input={"to": "mail"}, cache_control=CACHE),
        ),
        hears(result("a", [text("mail"), image], is_error=True, cache_control=CACHE)),
    ]
    first, second, third = edited(messages, "mail", "[MAIL]")
    assert first is USER
    assert second["content"] == [
        text("my [MAIL]", cache_control=CACHE),
        use("a", input={"to": "[MAIL]"}, cache_control=CACHE),
    ]
    assert third["content"] == [result("a", [text("[MAIL]"), image], is_error=True, cache_control=CACHE)]
    assert third["content"][0]["content"][1] is image


def test_documents_and_search_results_are_read_where_they_hold_text():
    document = {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "mail"},
        "title": "t",
    }
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aaaa"}}
    found = {"type": "search_result", "source": "s", "title": "t", "content": [text("mail")]}
    (message,) = edited([hears(document, pdf, found)], "mail", "[MAIL]")
    assert message["content"][0]["source"]["data"] == "[MAIL]"
    assert message["content"][1] is pdf
    assert message["content"][2]["content"] == [text("[MAIL]")]


def test_server_tools_and_unknown_blocks_are_opaque():
    blocks = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": "mail"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "s",
            "content": [{"type": "web_search_result", "title": "mail"}],
        },
        {"type": "hologram", "beam": "mail"},
        text("mail"),
    ]
    (message,) = edited([says(*blocks)], "mail", "[MAIL]")
    assert all(was is now for was, now in zip(blocks[:3], message["content"][:3], strict=True))
    assert ADAPTER.read([says(*blocks)])[0].calls == ()


def test_a_compaction_block_is_never_dropped():
    messages = [USER, says({"type": "compaction", "content": "so far"}), *[hears(text("word " * 40))] * 20]
    _, out, report = stabilize_messages(messages, Stabilizer(300))
    assert report.ok
    assert any(message is messages[1] for message in out)


def test_a_dangling_call_is_answered_in_the_message_of_its_siblings():
    messages = [USER, says(use("a"), use("b"), use("c")), hears(result("b"), text("never mind")), says(text("fine"))]
    out = repaired(messages)
    assert [block.get("tool_use_id") for block in out[2]["content"] if block["type"] == "tool_result"] == [
        "b",
        "a",
        "c",
    ]
    assert out[3]["content"] == [text("never mind")]
    assert out[4] is messages[3]
    assert repaired(out) == out


def test_a_dangling_call_without_siblings_gets_a_message():
    out = repaired([USER, says(use("a")), USER])
    assert [message["role"] for message in out] == ["user", "assistant", "user", "user"]
    assert out[2]["content"][0]["tool_use_id"] == "a"


def test_late_and_early_results_end_up_behind_their_call():
    messages = [
        USER,
        says(use("a"), use("b")),
        hears(result("a")),
        says(text("waiting")),
        hears(text("so?"), result("b")),
    ]
    out = repaired(messages)
    assert [block["tool_use_id"] for block in out[2]["content"]] == ["a", "b"]
    assert out[-1] == hears(text("so?"))


def test_results_stand_before_the_text_of_their_message():
    out = repaired([USER, says(use("a")), hears(text("here"), result("a"))])
    assert [block["type"] for block in out[2]["content"]] == ["tool_result", "text"]


def test_orphans_go_and_leave_the_text():
    out = repaired([USER, says(text("ok")), hears(result("zz"), text("next"))])
    assert out[2]["content"] == [text("next")]


def test_a_text_of_which_nothing_is_left_leaves_no_empty_block():
    messages = [says(text("bye"), use("a")), hears(text("bye"))]
    first, second = edited(messages, "bye", "")
    assert first["content"] == [use("a")]
    assert second["content"]


def test_changed_thinking_goes_with_the_rest_of_its_message():
    messages = [says(thinks("ann's mail"), {"type": "redacted_thinking", "data": "x" * 64}, text("ok"))]
    (message,) = edited(messages, "mail", "[MAIL]")
    assert message["content"] == [text("ok")]
    (message,) = edited(messages, "ok", "fine")
    assert [block["type"] for block in message["content"]] == ["thinking", "redacted_thinking", "text"]


def long_session(turns):
    for turn in range(turns):
        yield hears(text(f"question {turn} " + "word " * 20))
        yield says(thinks(f"thought {turn}"), text("looking"), use(f"t{turn}"))
        yield hears(result(f"t{turn}", "a line of the log\n" * 10))
        yield says(thinks(f"after {turn}"), text("done"))


def thoughts(messages):
    blocks = [block for m in messages for block in m["content"] if isinstance(block, dict)]
    return [block["thinking"] for block in blocks if block["type"] == "thinking"]


def test_thinking_from_before_a_cut_is_left_out_and_later_thinking_stays():
    messages, sent = list(long_session(24)), {}
    stabilizer = Stabilizer(1_200)
    held_after_cuts: list[bool] = []
    for end in range(1, len(messages), 2):
        _, out, report = stabilize_messages(messages[:end], stabilizer)
        assert report.ok
        for thought in thoughts(out):
            place = next(n for n, m in enumerate(out) if thought in thoughts([m]))
            assert sent[thought] == out[:place], "each thought stands behind the prompt it was written under"
        if messages[end]["role"] == "assistant":
            for thought in thoughts([messages[end]]):
                sent[thought] = out
        if report.cut is not None:
            held_after_cuts.append(bool(thoughts(out)))
    assert any(held_after_cuts), "what was thought since a cut stays"
    assert not all(held_after_cuts), "right after a cut there is none"


def test_thinking_can_be_kept():
    messages = list(long_session(24))[:-1]
    _, out, _ = stabilize_messages(messages, Stabilizer(1_200), keep_thinking=True)
    _, without, _ = stabilize_messages(messages, Stabilizer(1_200))
    assert len(thoughts(out)) > len(thoughts(without))
    assert [m["role"] for m in out] == [m["role"] for m in without]


def test_a_chain_that_drops_without_saying_when_keeps_no_thinking_behind_it():
    chain = Stabilizer(800, stages=[RepairExchanges(), FillBudget(), DropStaleThinking()], keep_task=False)
    _, out, report = stabilize_messages(list(long_session(24))[:-1], chain)
    assert report.ok
    assert thoughts(out) == []


def test_without_a_change_every_block_is_the_same_object():
    request = {"system": "s", "messages": list(long_session(3)), "tools": [{"name": "look", "input_schema": {}}]}
    done, report = stabilize_request(request, Stabilizer(50_000))
    assert not report.changed
    assert all(was is now for was, now in zip(request["messages"], done["messages"], strict=True))
    assert done["tools"] is request["tools"]
    without_tools, bare = stabilize_request({k: v for k, v in request.items() if k != "tools"}, Stabilizer(50_000))
    assert "tools" not in without_tools
    assert report.tokens_after > bare.tokens_after


async def test_the_async_door_does_the_same():
    request = {"system": "s", "messages": list(long_session(24))[:-1]}
    assert (await astabilize_request(request, Stabilizer(1_200)))[0] == stabilize_request(request, Stabilizer(1_200))[0]


def test_objects_of_the_sdk_are_read_and_edited():
    types = pytest.importorskip("anthropic.types", reason="anthropic is not installed")
    blocks = [
        types.TextBlock(type="text", text="my mail"),
        types.ToolUseBlock(type="tool_use", id="a", name="look", input={"q": "x"}),
    ]
    messages = [USER, {"role": "assistant", "content": blocks}, hears(result("a"))]
    assert all(was is now for was, now in zip(messages, ADAPTER.write(messages, ADAPTER.read(messages)), strict=True))
    _, message, _ = edited(messages, "mail", "[MAIL]")
    assert message["content"][0]["text"] == "my [MAIL]"
    assert message["content"][1] is blocks[1]


def test_what_cannot_be_read_is_named():
    with pytest.raises(HistoryError, match=r"message 1: .*'role'"):
        ADAPTER.read([USER, {"content": "x"}])
    with pytest.raises(HistoryError, match="'messages'"):
        ADAPTER.read({"system": "x"})


def test_it_knows_its_own():
    assert ADAPTER.detects({"system": "s", "messages": []})
    assert ADAPTER.detects([USER, says(use("a"))])
    assert ADAPTER.detects({"messages": [USER, says(use("a"))]})
    assert not ADAPTER.detects({"messages": [USER]})
    assert not ADAPTER.detects([USER])
    assert not ADAPTER.detects("hello")


def test_one_message_that_stands_many_times_stays_as_many_messages():
    again = {"role": "user", "content": "continue please"}
    history = [m for n in range(30) for m in (again, {"role": "assistant", "content": f"step {n} " + "bla " * 40})]
    history.append(again)
    assert all(now is was for now, was in zip(ADAPTER.write(history, ADAPTER.read(history)), history, strict=True))
    _, out, _ = stabilize_messages(history, Stabilizer(500, counter="estimate"))
    told = [message for message in out if not str(message["content"]).startswith("[Trail")]
    assert all(any(message is was for was in history) for message in told)
    assert len(out) - len(told) == 1
    neighbors = [again, again]
    assert ADAPTER.write(neighbors, ADAPTER.read(neighbors)) == neighbors


def test_the_same_system_prompt_is_the_same_artifact():
    for system in ("be brief", [text("be brief")]):
        first = ADAPTER.read({"system": system, "messages": [USER]})
        assert ADAPTER.read({"system": system, "messages": [USER, USER]})[0] is first[0]


def test_what_is_written_costs_what_was_counted_where_nothing_is_left_of_a_text():
    picture = {"type": "image", "source": {"type": "url", "url": "u"}}
    results = [result(f"t{n}", [text("word " * 200), picture]) for n in range(4)]
    history = [USER, says(*(use(f"t{n}", input={}) for n in range(4))), hears(*results), USER]
    for budget in range(3_114, 3_138, 4):
        stabilizer = Stabilizer(budget, counter="estimate")
        _, out, report = stabilize_messages(history, stabilizer)
        assert stabilizer.counter.artifacts(ADAPTER.read(out)) + 3 == report.tokens_after <= budget
    (_, _, heard, _) = edited(history, "word " * 200, "")
    assert all(block["content"] == [picture] for block in heard["content"])


def emptied(draft):
    """Leave nothing of any text that says bye, whatever stands around it."""
    artifacts = [a.edit(lambda _slot, t: "" if "bye" in t else t) for a in draft.artifacts]
    return draft.revise(artifacts, reason="gone")


@pytest.mark.parametrize(
    "gone",
    [
        hears(text("bye")),
        {"role": "user", "content": "bye"},
        says(text("bye"), text("bye bye")),
        says(thinks("bye")),
        says(thinks("bye"), text("bye")),
    ],
)
async def test_a_message_of_which_nothing_is_left_is_counted_as_it_is_written(gone):
    stabilizer = Stabilizer(1_000, stages=[emptied], counter="estimate", keep_recent=0)
    request = {"messages": [USER, gone, USER]}
    done, report = stabilize_request(request, stabilizer)
    left = done["messages"][1]["content"]
    assert left in ("…", [text("…")])
    assert stabilizer.counter.artifacts(ADAPTER.read(done)) + 3 == report.tokens_after
    assert [decision.action for decision in report.decisions] == ["kept", "bounded", "kept"]
    assert (await astabilize_request(request, stabilizer))[0] == done


def test_a_system_prompt_of_which_nothing_is_left_is_counted_as_it_is_written():
    stabilizer = Stabilizer(1_000, stages=[emptied], counter="estimate")
    done, report = stabilize_request({"system": "bye", "messages": [USER]}, stabilizer)
    assert done["system"] == "…"
    assert stabilizer.counter.artifacts(ADAPTER.read(done)) + 3 == report.tokens_after


FOUND = {"type": "search_result", "source": "s", "title": "t", "content": [text("bye")]}
DOCUMENTS = [
    FOUND,
    {"type": "document", "source": {"type": "content", "content": [text("bye")]}},
    {"type": "document", "source": {"type": "content", "content": "bye"}},
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "bye"}},
]


@pytest.mark.parametrize("block", DOCUMENTS)
def test_blocks_of_which_nothing_is_left_go_as_the_api_refuses_them_empty(block):
    (message,) = edited([hears(text("look"), block)], "bye", "")
    assert message["content"] == [text("look")]
    (message,) = edited([hears(result("a", [block, text("ok")], is_error=True))], "bye", "")
    assert message["content"] == [result("a", [text("ok")], is_error=True)]
    (message,) = edited([hears(result("a", [block]))], "bye", "")
    assert message["content"] == [{"type": "tool_result", "tool_use_id": "a"}]


def test_what_is_left_of_a_search_result_stays():
    found = {**FOUND, "content": [text("bye"), text("stay")]}
    (message,) = edited([hears(found)], "bye", "")
    assert message["content"] == [{**FOUND, "content": [text("stay")]}]


TITLED = [
    {
        "type": "document",
        "title": "ann@corp-mail.net",
        "context": "by ann@corp-mail.net",
        "source": DOCUMENTS[3]["source"],
    },
    {
        "type": "search_result",
        "title": "of ann@corp-mail.net",
        "source": "mailto:ann@corp-mail.net",
        "content": [text("x")],
    },
]


@pytest.mark.parametrize("block", TITLED, ids=lambda block: block["type"])
@pytest.mark.parametrize("place", [hears, lambda block: hears(result("a", [block]))], ids=["alone", "in a result"])
def test_what_names_a_document_is_counted_and_masked(block, place):
    history = [USER, says(use("a")), place(block), USER]
    _, out, report = stabilize_messages(history, Stabilizer(10_000, counter="estimate"))
    assert "ann@" not in str(out)
    assert str(out).count("[REDACTED_EMAIL]") == 2
    bare = {key: member for key, member in block.items() if key not in ("title", "context")}
    _, _, without = stabilize_messages([*history[:2], place(bare), USER], Stabilizer(10_000, counter="estimate"))
    assert report.tokens_before > without.tokens_before


def test_a_name_of_which_nothing_is_left_is_not_empty_as_the_api_refuses_that():
    (message,) = edited([hears({**TITLED[1], "title": "bye"})], "bye", "")
    assert message["content"][0] == {**TITLED[1], "title": "…"}
