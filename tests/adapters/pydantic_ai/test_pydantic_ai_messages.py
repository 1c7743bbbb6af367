"""Every kind of part: read, kept as it is, and changed in nothing but its text."""

from __future__ import annotations

import base64
from dataclasses import dataclass, fields
from datetime import UTC, datetime

import pytest

pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")

from pydantic_ai import messages as m
from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    ImageUrl,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from ctxguard import Stabilizer
from ctxguard.adapting.adapter import stabilize_native
from ctxguard.artifacts import Artifact, Kind, ToolCall
from ctxguard.errors import HistoryError
from ctxguard.tokens import ArtifactCounter, find_counter
from ctxguard_pydantic_ai import PydanticAIAdapter

ADAPTER = PydanticAIAdapter()
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")
TIME = datetime(2026, 1, 1, tzinfo=UTC)


def has(kind, field):
    return hasattr(m, kind) and field in {f.name for f in fields(getattr(m, kind))}


def shout(artifacts):
    """Edit every text."""
    return [a.edit(lambda slot, text: text.upper() if slot == "content" else text) for a in artifacts]


def edited(*history):
    return ADAPTER.write(history, shout(ADAPTER.read(list(history))))


def request(*parts, **settings):
    return ModelRequest(parts=list(parts), run_id="run-1", **settings)


def response(*parts, **settings):
    usage = RequestUsage(input_tokens=7, output_tokens=3)
    return ModelResponse(parts=list(parts), usage=usage, model_name="m", timestamp=TIME, run_id="run-1", **settings)


def assert_differs_only_in(was, now, names):
    assert type(was) is type(now)
    changed = {f.name for f in fields(was) if getattr(was, f.name) != getattr(now, f.name)}
    assert changed <= set(names), changed


def test_each_part_of_a_request_is_an_artifact():
    read = ADAPTER.read(
        [
            request(SystemPromptPart("sys"), UserPromptPart("hi")),
            response(ThinkingPart("hm"), TextPart("let me see"), ToolCallPart("look", {"q": "é"}, "c1")),
            request(ToolReturnPart("look", {"rows": [1, 2]}, "c1"), UserPromptPart("and?")),
        ]
    )
    assert [(a.kind, a.text) for a in read] == [
        (Kind.SYSTEM, "sys"),
        (Kind.USER, "hi"),
        (Kind.ASSISTANT, "hm\nlet me see"),
        (Kind.TOOL, '{"rows":[1,2]}'),
        (Kind.USER, "and?"),
    ]
    assert read[2].calls == (ToolCall("look", '{"q":"é"}', "c1"),)
    assert read[3].answers == "c1"


def test_an_edit_keeps_run_id_usage_timestamps_and_metadata():
    history = [
        request(UserPromptPart("hi", timestamp=TIME)),
        response(TextPart("yes", id="msg_1"), ToolCallPart("look", '{"q": 1}', "c1", id="fc_1")),
        request(ToolReturnPart("look", "found", "c1", metadata={"app": 1}, timestamp=TIME)),
    ]
    now = edited(*history)
    for was, is_now in zip(history, now, strict=True):
        assert_differs_only_in(was, is_now, ["parts"])
    assert_differs_only_in(history[0].parts[0], now[0].parts[0], ["content"])
    assert_differs_only_in(history[1].parts[0], now[1].parts[0], ["content", "id"])
    assert_differs_only_in(history[1].parts[1], now[1].parts[1], ["id"])
    assert_differs_only_in(history[2].parts[0], now[2].parts[0], ["content"])
    assert [part.content for part in (now[0].parts[0], now[1].parts[0], now[2].parts[0])] == ["HI", "YES", "FOUND"]
    assert now[1].parts[0].id is None


@pytest.mark.skipif(not has("ModelResponse", "history_digest"), reason="this version has no history digest")
def test_an_edit_resets_what_vouches_for_the_old_text():
    citation = m.Citation([m.WebCitationSource(url="https://example.com")])
    was = response(TextPart("yes", citations=[citation]), history_digest="digest")
    (now,) = edited(was)
    assert now.history_digest is None
    assert now.parts[0].citations is None
    assert was.history_digest == "digest"


def test_signed_thinking_is_left_out_rather_than_changed():
    (now,) = edited(response(ThinkingPart("hm", signature="sig"), TextPart("yes")))
    assert [part.part_kind for part in now.parts] == ["text"]
    (now,) = edited(response(ThinkingPart("hm"), TextPart("yes")))
    assert now.parts[0].content == "HM"


def test_signed_thinking_goes_with_the_rest_of_its_response():
    def thought(words):
        return ThinkingPart(words, signature="s", provider_name="anthropic")

    history = [response(thought("of ann"), thought("of rain"), TextPart("yes"), ToolCallPart("look", {}, "c1"))]
    read = ADAPTER.read(history)
    (now,) = ADAPTER.write(history, [read[0].edit(lambda slot, text: text.replace("ann", "[N]"))])
    assert now.parts == history[0].parts[2:]


def test_signed_thinking_stays_where_another_part_is_edited():
    history = [response(ThinkingPart("hm", signature="s", provider_name="anthropic"), TextPart("yes"))]
    read = ADAPTER.read(history)
    edits = [read[0].edit(lambda slot, text: "YES" if text == "yes" else text)]
    (now,) = ADAPTER.write(history, edits)
    assert now.parts[0] is history[0].parts[0]
    assert now.parts[1].content == "YES"


def test_reasoning_of_openai_goes_with_the_ids_of_an_edited_response():
    was = response(ThinkingPart("", id="rs_1", signature="x" * 80, provider_name="openai"), TextPart("yes", id="msg_1"))
    (now,) = edited(was)
    assert [(part.part_kind, part.id) for part in now.parts] == [("text", None)]


def test_a_multimodal_prompt_keeps_everything_but_the_text():
    image, point = BinaryContent(PNG, media_type="image/png"), CachePoint()
    items = ["look at", image, ImageUrl("https://example.com/a.png"), point, "please"]
    was = request(UserPromptPart(items))
    (artifact,) = ADAPTER.read([was])
    assert [part.kind for part in artifact.content] == ["text", "image", "image", "opaque", "text"]
    count = ArtifactCounter(find_counter("estimate"))
    assert [count.part(part) for part in artifact.content[1:4]] == [255, 765, 0]
    (now,) = edited(was)
    assert now.parts[0].content == ["LOOK AT", image, items[2], point, "PLEASE"]
    assert now.parts[0].content[1] is image
    assert was.parts[0].content == items


@pytest.mark.skipif(not hasattr(m, "StructuredContent"), reason="this version has no structured content")
def test_edited_text_content_keeps_its_metadata_and_structured_content_becomes_text():
    pinned = m.TextContent("remember", metadata={"pin": True})
    structured = m.StructuredContent({"name": "ann"}, metadata={"from": "form"})
    (now,) = edited(request(UserPromptPart([pinned, structured])))
    text, form = now.parts[0].content
    assert (text.content, text.metadata) == ("REMEMBER", {"pin": True})
    assert (type(form), form.metadata) == (m.TextContent, {"from": "form"})
    assert "ANN" in form.content


def test_a_structured_result_stays_structured_where_the_text_is_still_its_json():
    was = request(ToolReturnPart("look", {"mail": "ann"}, "c1"))
    (now,) = edited(was)
    assert now.parts[0].content == {"MAIL": "ANN"}
    read = ADAPTER.read([was])
    (now,) = ADAPTER.write([was], [read[0].revised(content="cut")])
    assert now.parts[0].content == "cut"


def test_a_result_with_files_keeps_them():
    image = BinaryContent(PNG, media_type="image/png")
    was = request(ToolReturnPart("look", ["chart", image], "c1"))
    (now,) = edited(was)
    assert now.parts[0].content == ["CHART", image]
    assert now.parts[0].content[1] is image


@pytest.mark.filterwarnings("ignore:.*RetryPromptPart")
@pytest.mark.skipif(not hasattr(m, "RetryPromptPart"), reason="this version has no retry prompts")
def test_a_retry_answers_its_call_or_stands_for_the_user():
    tool = m.RetryPromptPart("wrong city", tool_name="look", tool_call_id="c1")
    plain = m.RetryPromptPart("no JSON")
    read = ADAPTER.read([request(tool), request(plain)])
    assert [(a.kind, a.answers, a.text) for a in read] == [
        (Kind.TOOL, "c1", "wrong city"),
        (Kind.USER, None, "no JSON"),
    ]
    now, _ = edited(request(tool), request(plain))
    assert_differs_only_in(tool, now.parts[0], ["content"])


@pytest.mark.skipif(not hasattr(m, "RetryFeedbackPart"), reason="this version has no retry feedback")
def test_retry_feedback_stands_for_the_user():
    part = m.RetryFeedbackPart("no JSON", retry=m.RetryInfo(cause="output-validation"))
    (now,) = edited(request(part))
    assert ADAPTER.read([request(part)])[0].kind is Kind.USER
    assert (now.parts[0].content, now.parts[0].retry) == ("NO JSON", part.retry)


def native_parts():
    call = getattr(m, "NativeToolCallPart", None) or m.BuiltinToolCallPart
    result = getattr(m, "NativeToolReturnPart", None) or m.BuiltinToolReturnPart
    return call("web_search", {"q": "x"}, "n1"), result("web_search", {"hits": ["y"]}, "n1")


def test_native_tool_parts_and_files_are_opaque_and_stay_with_their_response():
    call, result = native_parts()
    file = m.FilePart(BinaryContent(PNG, media_type="image/png"))
    was = response(call, result, TextPart("yes"), file)
    (artifact,) = ADAPTER.read([was])
    assert artifact.calls == ()
    (now,) = edited(was)
    assert [now.parts[n] is was.parts[n] for n in range(4)] == [True, True, False, True]


@dataclass
class HologramPart:
    beam: str = "light"
    part_kind: str = "hologram"


def test_unknown_parts_are_pinned_and_untouched():
    alone, within = request(HologramPart()), response(HologramPart(), TextPart("yes"))
    read = ADAPTER.read([alone, within])
    assert [a.pinned for a in read] == [True, False]
    now = edited(alone, within)
    assert now[0] is alone
    assert now[1].parts[0] is within.parts[0]


@pytest.mark.skipif(not has("ToolCallPart", "tool_kind"), reason="this version has no kinds of tools")
def test_the_frameworks_own_tools_are_pinned_and_never_edited():
    call = ToolCallPart("load_capability", {"id": "mail"}, "c1", tool_kind="capability-load")
    result = ToolReturnPart("load_capability", {"instructions": "ann"}, "c1", tool_kind="capability-load")
    history = [response(call), request(result)]
    read = ADAPTER.read(history)
    assert all(a.pinned for a in read)
    assert edited(*history) == history


@pytest.mark.skipif(not hasattr(m, "InstructionBaselinePart"), reason="this version has no instruction deltas")
def test_baselines_and_deltas_are_pinned():
    history = [request(m.InstructionBaselinePart(instructions=[]), UserPromptPart("hi"))]
    read = ADAPTER.read(history)
    assert [a.pinned for a in read] == [True, False]
    assert ADAPTER.write(history, read)[0] is history[0]


@pytest.mark.skipif(not hasattr(m, "SpeechPart"), reason="this version has no speech")
def test_edited_speech_loses_its_audio():
    audio = BinaryContent(b"RIFF", media_type="audio/wav")
    (now,) = edited(request(m.SpeechPart(speaker="user", transcript="call ann", audio=audio)))
    assert (now.parts[0].transcript, now.parts[0].audio) == ("CALL ANN", None)


def test_a_part_of_a_request_that_goes_leaves_the_rest():
    was = request(SystemPromptPart("sys"), UserPromptPart("hi"), instructions="be brief")
    read = ADAPTER.read([was])
    (now,) = ADAPTER.write([was], read[:1])
    assert_differs_only_in(was, now, ["parts"])
    assert now.parts == [was.parts[0]]


def test_what_a_stage_adds_is_made_anew_and_the_same_each_time():
    history = [
        request(UserPromptPart("hi")),
        response(ToolCallPart("look", {}, "c1")),
        request(UserPromptPart("well?")),
    ]
    read = ADAPTER.read(history)
    stand_in = Artifact(Kind.TOOL, "[none]", answers="c1", name="look")
    summary = Artifact(Kind.ASSISTANT, "so far")
    once, twice = (ADAPTER.write(history, [*read[:2], stand_in, read[2], summary]) for _ in range(2))
    assert once == twice
    assert once[2].parts == [ToolReturnPart("look", "[none]", "c1", timestamp=TIME)]
    assert once[3] is history[2]
    assert once[4].parts == [TextPart("so far")]


def test_arguments_keep_their_form():
    for args, expected in (({"to": "ann"}, {"to": "bob"}), ('{"to":"ann"}', '{"to":"bob"}')):
        was = response(ToolCallPart("mail", args, "c1"))
        read = ADAPTER.read([was])
        now = ADAPTER.write([was], [read[0].edit(lambda slot, text: text.replace("ann", "bob"))])
        assert now[0].parts[0].args == expected
        assert was.parts[0].args == args


def test_an_empty_request_is_kept():
    history = [request(instructions="go")]
    assert ADAPTER.write(history, ADAPTER.read(history))[0] is history[0]


def test_what_is_no_message_is_named():
    with pytest.raises(HistoryError, match=r"message 1: .*dict"):
        ADAPTER.read([request(UserPromptPart("hi")), {"role": "user"}])
    with pytest.raises(HistoryError, match="list of messages"):
        ADAPTER.read("hello")
    assert not ADAPTER.detects([{"role": "user", "content": "hi"}])
    assert ADAPTER.detects([request(UserPromptPart("hi"))])


def test_one_request_that_stands_many_times_stays_as_many_messages():
    again = ModelRequest(parts=[UserPromptPart("continue please")])
    replies = [ModelResponse(parts=[TextPart(f"step {n} " + "bla " * 40)]) for n in range(30)]
    history = [*(m for reply in replies for m in (again, reply)), again]
    out, _ = stabilize_native(Stabilizer(500, counter="estimate"), ADAPTER, history)
    told = [message for message in out if not str(message.parts[0].content).startswith("[Trail")]
    assert all(any(message is was for was in history) for message in told)
    assert len(out) - len(told) == 1
    assert ADAPTER.write([], ADAPTER.read([again, again])) == [again, again]


@dataclass
class Row:
    r: str


@pytest.mark.parametrize("content", [{"r": "x \ud800"}, Row("x \ud800")])
def test_a_lone_surrogate_in_structured_values_is_replaced_where_it_is_read(content):
    call = ModelResponse(parts=[ToolCallPart("f", {"r": "x \ud800"}, "c")], timestamp=TIME)
    request = ModelRequest(parts=[ToolReturnPart("f", content, "c")])
    asked, answered = ADAPTER.read([call, request])
    assert asked.calls[0].arguments == answered.text == '{"r":"x ?"}'
    assert ADAPTER.write([], [asked, answered]) == [call, request]


@pytest.mark.parametrize(
    "message", [ModelRequest(parts=["hi"]), ModelResponse(parts=["hi"], timestamp=TIME)], ids=lambda m: m.kind
)
def test_what_is_no_part_is_named(message):
    with pytest.raises(HistoryError, match=r"message 1: parts\[0\] must be a part of a message, not str"):
        ADAPTER.read([request(UserPromptPart("hi")), message])


class Strange:
    def __str__(self):
        return "strange"


@pytest.mark.parametrize(
    ("value", "text"),
    [(Strange(), '"strange"'), ({"a": [Strange()]}, '{"a":["strange"]}'), ([1], "[1]")],
    ids=["object", "object in a list", "list"],  # a name with an address differs between workers
)
def test_values_that_the_framework_cannot_write_are_left_to_it(value, text):
    call = ModelResponse(parts=[ToolCallPart("f", value, "c")], timestamp=TIME)
    result = ModelRequest(parts=[ToolReturnPart("f", value, "c")])
    asked, answered = ADAPTER.read([call, result])
    assert asked.calls[0].arguments == answered.text == text
    assert ADAPTER.write([], [asked, answered]) == [call, result]
