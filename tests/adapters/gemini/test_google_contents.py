"""Gemini's contents: what is read, what is edited, and what stays as it is."""

from __future__ import annotations

import base64
import copy

import pytest

import ctxguard
from ctxguard import Artifact, Kind, Stabilizer
from ctxguard.adapting import find_adapter, stabilize_native
from ctxguard.errors import HistoryError
from ctxguard_anthropic import AnthropicAdapter
from ctxguard_google import GoogleAdapter, recall_tool, stabilize_messages, stabilize_request
from ctxguard_openai import OpenAIAdapter

MAIL = "ann@example.com"
SIGNATURE = base64.b64encode(b"\x12" + bytes(range(80))).decode()
STABILIZER = Stabilizer(8_000, provider="gemini")
CALL = {"functionCall": {"name": "look_up", "args": {"query": MAIL}, "id": "c1"}, "thoughtSignature": SIGNATURE}
ANSWER = {"functionResponse": {"name": "look_up", "response": {"result": f"by {MAIL}"}, "id": "c1"}}


def user(*parts):
    return {"role": "user", "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


def model(*parts):
    return {**user(*parts), "role": "model"}


def fitted(*contents):
    before = copy.deepcopy(contents)
    done, report = stabilize_native(STABILIZER, GoogleAdapter(), list(contents))
    assert report.ok, str(report)
    assert contents == before
    return done


def test_signatures_stay_on_their_call_and_arguments_are_masked():
    question, call, answer = user("Where?"), model(CALL), user(ANSWER)
    done = fitted(question, call, answer)
    assert done[0] is question
    masked = {"name": "look_up", "args": {"query": "[REDACTED_EMAIL]"}, "id": "c1"}
    assert done[1] == {"role": "model", "parts": [{"functionCall": masked, "thoughtSignature": SIGNATURE}]}
    assert done[2]["parts"][0]["functionResponse"]["response"] == {"result": "by [REDACTED_EMAIL]"}


def test_the_sdks_spelling_is_kept():
    call = model({"function_call": {"name": "f", "args": {"to": MAIL}}, "thought_signature": b"\x12\x01"})
    answer = user({"function_response": {"name": "f", "response": {"output": MAIL}}})
    done = fitted(user("Where?"), call, answer)
    assert done[1]["parts"] == [
        {"function_call": {"name": "f", "args": {"to": "[REDACTED_EMAIL]"}}, "thought_signature": b"\x12\x01"}
    ]
    assert done[2]["parts"] == [{"function_response": {"name": "f", "response": {"output": "[REDACTED_EMAIL]"}}}]


def test_a_thought_is_sent_unchanged_or_not_at_all():
    clean, found = {"text": "I think.", "thought": True}, {"text": f"I think of {MAIL}.", "thought": True}
    done = fitted(user("Hi"), model(clean, "Hello."), user("And?"), model(found, f"Hello {MAIL}."), user("So?"))
    assert done[1]["parts"][0] is clean
    assert done[3]["parts"] == [{"text": "Hello [REDACTED_EMAIL]."}]


def test_calls_without_ids_pair_by_name_and_order_and_get_none():
    def called(name):
        return {"functionCall": {"name": name, "args": {}}}

    def answered(name, text):
        return {"functionResponse": {"name": name, "response": {"output": text}}}

    contents = [user("Go"), model(called("a"), called("b"), called("a"))]
    contents += [user(answered("b", "two"), answered("a", "one"), answered("a", "three")), user("Next")]
    read = GoogleAdapter().read(contents)
    calls = {call.id: number for number, call in enumerate(read[1].calls)}
    assert [calls[result.answers] for result in read[2:5]] == [1, 0, 2]
    assert all(was is now for was, now in zip(contents, fitted(*contents), strict=True))
    again = GoogleAdapter().read(contents)
    assert all(was is now for was, now in zip(read, again, strict=True))


def test_a_call_that_got_no_result_gets_one_that_says_so():
    done = fitted(user("Go"), model({"functionCall": {"name": "f", "args": {}}}), user("Still there?"))
    assert done[2] == {
        "role": "user",
        "parts": [{"functionResponse": {"name": "f", "response": {"output": "[no result: the call was interrupted]"}}}],
    }
    assert done[3] == user("Still there?")


def test_results_of_parallel_calls_stand_in_one_content():
    calls = model(*({"functionCall": {"name": "f", "args": {}, "id": str(n)}} for n in range(3)))
    answers = user({"functionResponse": {"name": "f", "response": {"output": "x"}, "id": "1"}})
    done = fitted(user("Go"), calls, answers, user("Next"))
    assert [part["functionResponse"]["id"] for part in done[2]["parts"]] == ["1", "0", "2"]


def test_a_response_of_several_fields_is_masked_inside_and_stays_an_object():
    response = {"status": "ok", "people": [{"mail": MAIL, "age": 7}]}
    done = fitted(
        user("Go"), model(CALL), user({"functionResponse": {**ANSWER["functionResponse"], "response": response}})
    )
    masked = {"status": "ok", "people": [{"mail": "[REDACTED_EMAIL]", "age": 7}]}
    assert done[2]["parts"][0]["functionResponse"]["response"] == masked


def test_code_its_result_and_media_are_read():
    code = {"executableCode": {"language": "PYTHON", "code": f"print('{MAIL}')"}}
    result = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": MAIL}}
    image = {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(b"\x89PNG" + bytes(3_000)).decode()}}
    video = {"fileData": {"fileUri": "https://example.com/v.mp4", "mimeType": "video/mp4"}}
    done = fitted(user("See", image, video), model(code, result), user("So?"))
    assert done[0]["parts"][1] is image
    assert done[1]["parts"][0]["executableCode"] == {"language": "PYTHON", "code": "print('[REDACTED_EMAIL]')"}
    assert done[1]["parts"][1]["codeExecutionResult"]["output"] == "[REDACTED_EMAIL]"
    (read, *_) = GoogleAdapter().read([user(image, video)])
    assert [part.kind for part in read.content] == ["image", "audio"]
    assert [part.media.kind for part in read.content] == ["image", "video"]


@pytest.mark.parametrize(
    ("part", "place"),
    [
        ({"fileData": {"fileUri": f"gs://b/{MAIL}", "mimeType": "text/csv"}}, "fileUri"),
        ({"inlineData": {"mimeType": "text/csv", "data": "eA==", "displayName": MAIL}}, "displayName"),
        ({"hologram": {"of": MAIL}}, "parts[0]"),
        ({"functionCall": {"name": MAIL, "args": {}}}, "name"),
        ({"functionCall": {"name": "f", "args": {}, "id": MAIL}}, "id"),
        ({"text": "x", "partMetadata": {"of": MAIL}}, "partMetadata"),
        ({"toolCall": {"toolType": "GOOGLE_SEARCH", "args": {"queries": [MAIL]}}}, "parts[0]"),
    ],
)
def test_what_may_not_be_edited_is_searched(part, place):
    contents = [model(part)] if "functionCall" in part else [user(part)]
    done, report = stabilize_native(STABILIZER, GoogleAdapter(), [user("Hi"), *contents])
    assert done[1]["parts"][0] is part
    found = [finding for check in report.checks if check.name == "NoPII" for finding in check.findings]
    assert found
    assert place in found[0].path


def test_forms_that_the_sdk_makes_contents_of():
    request = {
        "model": "m",
        "contents": f"I am {MAIL}",
        "config": {"system_instruction": ["Be brief.", f"Or ask {MAIL}"]},
    }
    done, report = stabilize_request(request, STABILIZER)
    assert report.ok
    assert done["contents"] == ["I am [REDACTED_EMAIL]"]
    assert done["config"] == {"system_instruction": ["Be brief.", "Or ask [REDACTED_EMAIL]"]}
    clean = {"model": "m", "contents": "Hi", "config": {"system_instruction": "Be brief."}}
    assert stabilize_request(clean, STABILIZER)[0] == clean
    prompt, contents, _ = stabilize_messages([user("Hi"), "and", model("Hello")], STABILIZER, system_instruction=MAIL)
    assert prompt == "[REDACTED_EMAIL]"
    assert contents == [user("Hi"), "and", model("Hello")]


def test_tools_schemas_and_settings_are_masked_or_searched():
    tool = {"functionDeclarations": [{"name": "f", "description": f"Ask {MAIL}.", "parameters": {"type": "OBJECT"}}]}
    body = {"contents": [user("Hi")], "tools": [tool], "generationConfig": {"temperature": 0}}
    done, report = stabilize_request(body, STABILIZER)
    assert report.ok
    assert done["tools"][0]["functionDeclarations"][0]["description"] == "Ask [REDACTED_EMAIL]."
    schema = {"type": "OBJECT", "properties": {"a": {"type": "STRING", "enum": [MAIL]}}}
    for settings in ({"responseSchema": schema}, {"stopSequences": [MAIL]}):
        _, report = stabilize_request({**body, "generationConfig": settings}, STABILIZER)
        assert not report.ok
    secret = {"contents": [user("Hi")], "config": {"http_options": {"headers": {"x-goog-api-key": MAIL}}}}
    assert stabilize_request(secret, STABILIZER)[1].ok, "headers are not shown to the model"


def test_functions_and_settings_of_the_sdk():
    types = pytest.importorskip("google.genai.types", reason="google-genai is not installed (extra google)")

    def look_up(query: str) -> str:
        """Look up parcels."""
        return query

    tool = types.Tool(function_declarations=[types.FunctionDeclaration(name="f", description=f"Ask {MAIL}.")])
    config = types.GenerateContentConfig(system_instruction=f"Ask {MAIL}", tools=[look_up, tool], temperature=0.5)
    done, report = stabilize_request({"model": "m", "contents": ["Hi"], "config": config}, STABILIZER)
    assert report.ok
    assert config.system_instruction == f"Ask {MAIL}"
    assert done["config"].system_instruction == "Ask [REDACTED_EMAIL]"
    assert done["config"].tools[0] is look_up
    assert done["config"].tools[1].function_declarations[0].description == "Ask [REDACTED_EMAIL]."
    assert done["config"].temperature == 0.5
    bare = config.model_copy(update={"tools": None})
    counted = stabilize_request({"model": "m", "contents": ["Hi"], "config": bare}, STABILIZER)[1].tokens_after
    assert report.tokens_after > counted + 20


def test_it_is_found_by_its_look():
    contents = [user("Hi"), model("Hello"), user(f"I am {MAIL}")]
    assert isinstance(find_adapter("google"), GoogleAdapter)
    context = ctxguard.guard(contents, budget=2_000)
    assert context[0] is contents[0]
    assert context[2] == user("I am [REDACTED_EMAIL]")
    assert not GoogleAdapter().detects([{"role": "user", "parts": [{"type": "text", "text": "Hi"}]}])
    assert not GoogleAdapter().detects([{"role": "user", "content": "Hi"}])


def test_other_formats_are_refused_by_name_and_others_refuse_this_one():
    interface = [{"role": "user", "parts": [{"type": "text", "text": MAIL}]}]
    for adapter in (GoogleAdapter(), OpenAIAdapter(), AnthropicAdapter()):
        with pytest.raises(HistoryError, match="of a user interface, which no adapter reads"):
            adapter.read(interface)
    for adapter in (OpenAIAdapter(), AnthropicAdapter()):
        with pytest.raises(HistoryError, match=r"'parts' is of Gemini; use ctxguard_google\.stabilize_request"):
            adapter.read([user(MAIL)])
    with pytest.raises(HistoryError, match="it has no 'parts'"):
        GoogleAdapter().read([{"role": "user", "content": MAIL}])
    with pytest.raises(HistoryError, match="of Bedrock Converse"):
        GoogleAdapter().read([user({"toolUse": {"name": "f"}})])


@pytest.mark.parametrize(
    ("native", "fault"),
    [
        (7, "expected a list of contents, got int"),
        ({"messages": []}, "the request has no 'contents'"),
        ([7], "message 0: expected a content with 'parts', got int"),
        ([{"role": "user", "parts": "x", "prts": [1]}, {"role": "user", "parts": [7]}], "parts"),
        ([user({"text": 7})], r"parts\[0\].text must be a text, not int"),
        ([model({"functionCall": "f"})], r"parts\[0\].functionCall must be a dict"),
        (
            [user({"functionResponse": {"name": "f", "response": "x"}})],
            r"parts\[0\].functionResponse.response must be a dict",
        ),
        ([{"role": "user", "prts": [MAIL]}], "it has no 'parts'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(native, fault):
    with pytest.raises(HistoryError, match=fault):
        GoogleAdapter().read(native)
    with pytest.raises(HistoryError, match="a dict with 'contents'"):
        stabilize_request([], STABILIZER)


def test_nothing_that_the_api_refuses_is_left_behind():
    done = GoogleAdapter().write([], [Artifact(Kind.USER, ""), Artifact(Kind.ASSISTANT, "")])
    assert done == [user("…"), model("…")]


def test_the_recall_tool():
    schema, recall = recall_tool()
    assert schema["function_declarations"][0]["name"] == "recall"
    assert "nothing is saved" in recall("no-such-handle")


@pytest.mark.parametrize("role", ["function", "tool"])
def test_results_may_stand_in_a_role_of_their_own(role):
    result = {"role": role, "parts": [ANSWER]}
    done = fitted(user("Who wrote it?"), model(CALL), result)
    assert done[2]["role"] == role
    assert done[2]["parts"][0]["functionResponse"]["response"] == {"result": "by [REDACTED_EMAIL]"}


def test_parallel_calls_in_contents_of_their_own_are_joined_whether_parts_are_listed_or_alone():
    calls = [{"functionCall": {"name": name, "args": {}}} for name in "fg"]
    answers = user(*({"functionResponse": {"name": name, "response": {"result": "done"}}} for name in "fg"))
    for wrapped in (calls, [[call] for call in calls]):
        contents = [{"role": "model", "parts": parts} for parts in wrapped]
        assert fitted(user("go"), *contents, answers) == [user("go"), model(*calls), answers]
