"""What stands beside the texts of a message is counted, searched, and masked where it may be."""

from __future__ import annotations

import json

import pytest
from builders import chat_call
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxguard import BudgetExceededError, Stabilizer
from ctxguard.pii import DIGITS, STANDARD
from ctxguard.pii.rule_sets import for_identifiers
from ctxguard.tokens.media import is_payload
from ctxguard_anthropic import stabilize_request
from ctxguard_openai import stabilize_input, stabilize_messages
from ctxguard_openai import stabilize_request as stabilize_openai_request

MAIL = "jane.roe@mailhost.org"
USER = {"role": "user", "content": "hi"}
TOOL = {"name": "f", "description": f"Write to {MAIL}.", "parameters": {"type": "object", "properties": {}}}


def outcome(messages, **settings):
    out, report = stabilize_messages([*messages, USER], Stabilizer(4_000, **settings))
    return out[:-1], report


def findings(report):
    return [str(finding) for check in report.checks for finding in check.findings]


def citing(text):
    return {"type": "url_citation", "url_citation": {"title": text, "url": f"https://a.org/?of={text}"}}


@pytest.mark.parametrize(
    "beside",
    [
        {"annotations": [citing(MAIL)]},
        {"audio": {"id": "a1", "transcript": f"I am {MAIL}"}},
        {"metadata": {"who": MAIL, "list": [MAIL, 5]}},
        {"content": [{"type": "text", "text": "x", "citations": [{"cited_text": MAIL}]}]},
    ],
    ids=lambda beside: next(iter(beside)),
)
def test_what_may_be_edited_is_masked(beside):
    message = {"role": "assistant", "content": "x", **beside}
    (out,), report = outcome([message])
    assert report.ok, findings(report)
    assert MAIL not in json.dumps(out)
    assert "[REDACTED_EMAIL]" in json.dumps(out)
    assert MAIL in json.dumps(message), "the input is not changed"


@pytest.mark.parametrize("role", ["assistant", "tool"])
@pytest.mark.parametrize(
    "beside",
    [
        {"error": f"ValidationError: {MAIL} is not a user"},
        {"error": {"code": 422, "message": f"no user {MAIL}", "causes": [f"looked for {MAIL}"]}},
        {"toolError": f"no user {MAIL}"},
        {"error_message": f"no user {MAIL}"},
        {"warnings": [f"{MAIL} bounced", "slow"]},
        {"stderr": f"mail: {MAIL}: unknown"},
        {"failure_reason": f"asked {MAIL} in vain"},
        {"notes": f"ask {MAIL}"},
    ],
    ids=lambda beside: next(iter(beside)),
)
def test_free_text_beside_the_content_is_masked(role, beside):
    history = [
        USER,
        {
            "role": "assistant",
            "content": "x",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "x"},
    ]
    at = 1 if role == "assistant" else 2
    history[at] = {**history[at], **beside}
    out, report = outcome(history)
    assert report.ok, findings(report)
    assert MAIL not in json.dumps(out)
    assert out[at].keys() == history[at].keys(), "nothing else of it is changed"
    assert out[at]["content"] == "x"


@pytest.mark.parametrize("key", ["error_id", "terror", "errorUrl", "reason_key"])
def test_what_only_sounds_like_free_text_is_not_edited(key):
    (out,), report = outcome([{**USER, key: MAIL}])
    assert out[key] == MAIL
    assert any(key in finding for finding in findings(report))


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({**USER, "name": MAIL}, "name"),
        ({**USER, "x_trace": {"of": [MAIL]}}, "x_trace"),
        ({**USER, MAIL: 1}, "…"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"https://a.org/{MAIL}"}}]},
            "content[0]",
        ),
        ({"role": "user", "content": [{"type": "text", "text": "x", "x_of": MAIL}]}, "content[0].x_of"),
        ({"role": "user", "content": [{"type": "hologram", "of": MAIL}]}, "content[0]"),
        ({"role": "user", "content": "x", "signature": f"= {MAIL} ="}, "signature"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_what_may_not_be_edited_is_passed_on_and_found_with_its_place(message, place):
    (out,), report = outcome([message])
    assert out is message
    (found,) = findings(report)
    assert found.startswith("EMAIL was found: ")
    assert "message 0 (user)" in found
    assert f" @ artifacts[0].{place}" in found


def test_the_ids_and_names_of_calls_are_searched():
    call = {"id": f"c {MAIL}", "type": "function", "function": {"name": MAIL, "arguments": "{}"}, "x": MAIL}
    result = {"role": "tool", "tool_call_id": f"c {MAIL}", "content": "r"}
    out, report = outcome([USER, {"role": "assistant", "content": None, "tool_calls": [call]}, result])
    assert out[1]["tool_calls"][0] is call
    assert [found.partition("].")[2].rpartition("[")[0] for found in findings(report)] == [
        "calls[0].name",
        "calls[0].id",
        "tool_calls[0].x",
        "tool_call_id",
    ]


@settings(max_examples=60)
@given(st.text("0123456789abcdef-_", min_size=1, max_size=64))
def test_digits_in_ids_are_never_findings(identity):
    from ctxguard.stages import MaskPII

    call = chat_call(identity)
    history = [USER, {"role": "assistant", "content": None, "tool_calls": [call]}]
    history += [{"role": "tool", "tool_call_id": identity, "content": "r"}, USER]
    _, report = stabilize_messages(history, Stabilizer(4_000, stages=[MaskPII(DIGITS)]))
    assert report.ok, findings(report)


def test_bare_numbers_are_no_identifiers_of_people():
    detector = for_identifiers(STANDARD)
    assert not detector.find("4111111111111111")
    assert not detector.find("call_2125550147")
    assert [span.label for span in detector.find(f"https://a.org/?m={MAIL}")] == ["EMAIL"]
    assert [span.label for span in detector.find("123-45-6789")] == ["SSN"]
    assert for_identifiers(DIGITS) is None or not for_identifiers(DIGITS).find("12345")


@pytest.mark.parametrize(
    "beside",
    [
        {"x_unknown": "word " * 20_000},
        {"x_unknown": "x" * 88_000},
        {"x_unknown": {"deep": [{"er": "word " * 20_000}]}},
        {"x_unknown": list(range(20_000))},
        {"annotations": [citing("word " * 20_000)]},
        {"metadata": {"of": "word " * 20_000}},
        {"audio": {"id": "a", "transcript": "word " * 20_000}},
        {"content": [{"type": "text", "text": "x", "x_unknown": "word " * 20_000}]},
        {"content": [{"type": "hologram", "of": "word " * 20_000}]},
        {"content": [{"type": "image_url", "image_url": {"url": "https://a.org/" + "word/" * 20_000}}]},
        {"id": "word " * 20_000},
    ],
    ids=str,
)
def test_all_that_is_sent_is_counted(beside):
    with pytest.raises(BudgetExceededError) as caught:
        stabilize_messages([{"role": "user", "content": "x", **beside}], Stabilizer(2_000))
    assert caught.value.needed > 5_000


def test_framing_and_media_are_not_counted_as_text():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "aB3" * 5_000}}
    plain = {"role": "user", "content": [{"type": "text", "text": "x"}]}
    framed = {
        "role": "user",
        "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
        "id": "m1",
    }
    assert outcome([plain])[1].tokens_after == outcome([framed])[1].tokens_after
    assert outcome([{"role": "user", "content": [image]}])[1].tokens_after < 1_500


def test_base64_is_told_from_words():
    assert is_payload("data:image/png;base64,AAAA")
    assert is_payload("aB3+/" * 100)
    assert not is_payload("x" * 1_000)
    assert not is_payload("Word 5 of many. " * 100)


def test_requests_of_openai_come_back_with_masked_instructions_and_tools():
    request = {"model": "m", "input": [USER], "instructions": f"Write to {MAIL}.", "tools": [TOOL], "store": False}
    done, report = stabilize_openai_request(request, Stabilizer(4_000))
    assert report.ok, findings(report)
    assert done == {
        **request,
        "instructions": "Write to [REDACTED_EMAIL].",
        "tools": [{**TOOL, "description": "Write to [REDACTED_EMAIL]."}],
    }
    clean, _ = stabilize_openai_request(done, Stabilizer(4_000))
    assert clean == done
    assert clean["tools"] is done["tools"]
    assert clean["input"][0] is USER


def test_requests_of_anthropic_come_back_with_masked_tools():
    request = {"system": f"Write to {MAIL}.", "messages": [USER], "tools": [TOOL], "max_tokens": 10}
    done, report = stabilize_request(request, Stabilizer(4_000))
    assert report.ok, findings(report)
    assert MAIL not in json.dumps(done)
    done, report = stabilize_request({**request, "metadata": {"user_id": MAIL}}, Stabilizer(4_000))
    assert findings(report) == [
        f"EMAIL was found: the field `metadata.user_id` of the request @ artifacts[0].settings.metadata.user_id[9:{9 + len(MAIL)}]"
    ]


@pytest.mark.parametrize("door", ["tools", "instructions"])
def test_what_a_door_cannot_give_back_fails_the_check(door):
    if door == "tools":
        out, report = stabilize_messages([USER], Stabilizer(4_000), [TOOL])
    else:
        out, report = stabilize_input([USER], Stabilizer(4_000), instructions=f"Write to {MAIL}.")
    assert out == [USER]
    where = {"tools": "the description of tool `f`", "instructions": "the system prompt"}[door]
    assert [found.partition("[")[0] for found in findings(report)] == [f"EMAIL was found: {where} @ artifacts"]
    assert f".{door}" in findings(report)[0]


def test_pseudonyms_beside_the_history_are_those_within_it():
    from ctxguard.pii import Masker
    from ctxguard.policies import agent_stages
    from ctxguard.stages import MaskPII

    stages = [
        MaskPII(masker=Masker(strategy="pseudonymize")) if isinstance(stage, MaskPII) else stage
        for stage in agent_stages()
    ]
    request = {
        "instructions": f"Write to {MAIL}.",
        "input": [{"role": "user", "content": f"I am bob@mailhost.org, not {MAIL}."}],
    }
    done, report = stabilize_openai_request(request, Stabilizer(4_000, stages=stages))
    assert report.ok, findings(report)
    assert done["instructions"] == "Write to <EMAIL_1>."
    assert done["input"][0]["content"] == "I am <EMAIL_2>, not <EMAIL_1>."
