"""What the guard sends in place of a body, and what it gives back in an answer."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib

import pytest

from ctxguard import Stabilizer
from ctxguard.errors import BudgetExceededError, CheckFailedError, ConfigError, CtxguardError, WireError
from ctxguard.pii import Masker, Vault, new_key
from ctxguard.stages import MaskPII
from ctxguard.stores import MemoryStore
from ctxguard.wire import bodies
from ctxguard.wire.guard import Guard, WireRequest

MAIL, OTHER = "ann@example.com", "bob@example.org"
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"


def ask(body, path=CHAT, **headers):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return WireRequest("POST", path, {"authorization": "Bearer one", **headers}, content)


def sent(guard, body, path=CHAT, **headers):
    prepared = guard.prepare(ask(body, path, **headers))
    return json.loads(prepared.body), prepared


@pytest.fixture
def guard():
    return Guard(Stabilizer(4_000))


USER = {"role": "user", "content": f"Write to {MAIL}."}
BESIDE = {
    "chat": (
        CHAT,
        {
            "messages": [USER],
            "tools": [
                {"type": "function", "function": {"name": "f", "description": MAIL, "parameters": {"enum": [OTHER]}}}
            ],
            "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"description": MAIL}}},
            "metadata": {"of": MAIL},
            "prediction": {"type": "content", "content": MAIL},
            "never_heard_of": {"deep": [{"text": MAIL}]},
        },
    ),
    "responses": (
        RESPONSES,
        {
            "input": [USER],
            "instructions": f"Serve {MAIL}.",
            "tools": [{"type": "function", "name": "f", "description": MAIL, "parameters": {"default": OTHER}}],
            "text": {"format": {"type": "json_schema", "name": "s", "schema": {"title": MAIL}}},
            "prompt": {"id": "pmpt_1", "variables": {"who": MAIL}},
        },
    ),
    "anthropic": (
        MESSAGES,
        {
            "messages": [USER],
            "system": [{"type": "text", "text": f"Serve {MAIL}."}],
            "tools": [{"name": "f", "description": MAIL, "input_schema": {"examples": [OTHER]}}],
            "metadata": {"of": MAIL},
        },
    ),
}


@pytest.mark.parametrize("api", BESIDE)
def test_everything_in_a_body_is_masked_by_one_set_of_placeholders(api, guard):
    path, body = BESIDE[api]
    raw = json.dumps(body)
    written = json.dumps(sent(guard, {"model": "m", **body}, path)[0])
    assert MAIL not in written
    assert OTHER not in written
    assert written.count("<EMAIL_1>") == raw.count(MAIL)


WHOSE = {
    "user": lambda who: (CHAT, {"messages": [USER], "user": who}),
    "user of responses": lambda who: (RESPONSES, {"input": "x", "user": who}),
    "safety_identifier": lambda who: (RESPONSES, {"input": "x", "safety_identifier": who}),
    "prompt_cache_key": lambda who: (CHAT, {"messages": [USER], "prompt_cache_key": f"chat of {who}"}),
    "user_id": lambda who: (MESSAGES, {"messages": [USER], "max_tokens": 9, "metadata": {"user_id": who}}),
    "user of embeddings": lambda who: ("/v1/embeddings", {"input": "x", "user": who}),
}


@pytest.mark.parametrize("whose", WHOSE)
def test_fields_that_say_whose_request_it_is_keep_people_apart(whose, monkeypatch):
    def told(guard, who):
        path, body = WHOSE[whose](who)
        prepared = guard.prepare(WireRequest("POST", path, {}, json.dumps({"model": "m", **body}).encode()))
        written = json.loads(prepared.body)
        key = whose.split(" of ")[0]
        return written["metadata"][key] if key == "user_id" else written[key]

    one, other = (Guard(Stabilizer(4_000)) for _ in range(2))
    assert MAIL not in told(one, MAIL)
    assert told(one, MAIL) == told(one, MAIL) != told(one, OTHER)
    assert told(one, "u-17") == ("chat of u-17" if whose == "prompt_cache_key" else "u-17")
    assert told(one, MAIL) != told(other, MAIL), "each has drawn a key"
    monkeypatch.setenv("CTXGUARD_HASH_KEY", "k" * 32)
    one, other = (Guard(Stabilizer(4_000)) for _ in range(2))
    assert told(one, MAIL) == told(other, MAIL) != told(one, OTHER)


@pytest.mark.parametrize("key", ["customer ssn 536904399", "password: Xk7!qzTm2", "tel 01712345678", MAIL])
def test_a_key_that_is_no_name_of_a_field_is_searched_like_a_text(guard, key):
    for body in ({key: ["x"]}, {"metadata": {key: "x"}}, {"never_heard_of": [{"deep": {key: 1}}]}):
        with pytest.raises(CtxguardError) as raised:
            sent(guard, {"messages": [USER], **body})
        assert key not in str(raised.value)


def test_what_no_stage_reads_in_a_message_is_redacted(guard):
    message = {**USER, "extra": {"note": OTHER}}
    written, _ = sent(guard, {"messages": [message]})
    assert written["messages"][0]["extra"] == {"note": "[REDACTED_EMAIL]"}


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [USER], "tools": [{"type": "function", "function": {"name": MAIL}}]},
        {
            "messages": [USER],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {MAIL: {}}}}}],
        },
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"https://x.org/?m={MAIL}"}}]}
            ]
        },
        {"messages": [USER], "model": MAIL},
    ],
    ids=["tool name", "property", "link", "model"],
)
def test_what_may_not_be_changed_is_refused_by_its_place_and_never_by_its_value(guard, body):
    with pytest.raises(CheckFailedError, match=r"EMAIL was found(: [^@]*)? @ ") as caught:
        guard.prepare(ask(body))
    assert MAIL not in str(caught.value)


def test_credentials_for_the_providers_own_calls_are_not_searched(guard):
    server = {
        "type": "mcp",
        "server_label": "s",
        "server_url": "https://x.org",
        "authorization": "Bearer " + "k3Y" * 12,
    }
    written, _ = sent(guard, {"input": [USER], "tools": [server]}, RESPONSES)
    assert written["tools"] == [server]


def test_what_json_hides_is_not_sent(guard):
    raw = b'{"messages": [{"role": "user", "content": "ann@example.com"}], "messages": [{"role": "user", "content": "hi"}]}'
    prepared = guard.prepare(ask(raw))
    assert json.loads(prepared.body) == {"messages": [{"role": "user", "content": "hi"}]}
    assert b"ann@" not in prepared.body


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"{", b'{"messages": "x"}', b'{"messages": [], "t": NaN}', b'{"a":' * 5_000, b"\xff\xfe", b"null"],
)
def test_a_body_that_cannot_be_read_is_refused_whatever_is_passed_on_unread(raw):
    with pytest.raises(WireError) as caught:
        Guard(Stabilizer(4_000)).prepare(ask(raw))
    assert caught.value.status == 400
    assert "unread" not in str(caught.value)  # nobody should send on what is broken
    with pytest.raises(WireError):
        Guard(Stabilizer(4_000), on_unreadable=["*"]).prepare(ask(raw))


@pytest.mark.parametrize("path", ["/v1/files", "/v1/videos", "/v1/vector_stores"])
def test_requests_of_other_kinds_are_refused_unless_their_path_is_named(path, caplog):
    body = json.dumps({"input": MAIL}).encode()
    with pytest.raises(WireError, match=f"on_unreadable=.'{path}'") as caught:
        Guard(Stabilizer(4_000)).prepare(ask(body, path))
    assert caught.value.status == 403
    with pytest.raises(WireError, match="on_unreadable"):
        Guard(Stabilizer(4_000), on_unreadable=["/v1/audio"]).prepare(ask(body, path))
    guard = Guard(Stabilizer(4_000), on_unreadable=[path])
    assert [guard.prepare(ask(body, place)).body for place in (path, f"/gateway{path}/")] == [body, body]
    (warned,) = [record.getMessage() for record in caplog.records]
    assert path in warned
    assert "unmasked" in warned


TEXTS = {
    "/v1/embeddings": {"model": "e", "input": [f"Write to {MAIL}.", "Hello."]},
    "/v1/completions": {"model": "m", "prompt": f"Write to {MAIL}."},
    "/v1/moderations": {"input": [{"type": "text", "text": MAIL}]},
    "/v1/rerank": {"query": MAIL, "documents": ["a", MAIL]},
    "/v1/messages/batches": {"requests": [{"custom_id": "a", "params": {"messages": [USER]}}]},
    "/v1beta/models/e:embedContent": {"content": {"parts": [{"text": MAIL}]}},
    "/openai/deployments/e/embeddings": {"input": MAIL},
    "/backend-api/ps/mcp": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"arguments": {"to": MAIL}}},
}


@pytest.mark.parametrize("path", TEXTS)
def test_texts_without_a_history_are_redacted(path):
    guard = Guard(Stabilizer(4_000), on_unreadable=["*"])
    body, prepared = sent(guard, TEXTS[path], path)
    assert MAIL not in json.dumps(body)
    assert "[REDACTED_EMAIL]" in json.dumps(body)
    assert prepared.headers == {"x-ctxguard-masked": "1"}
    assert guard.metrics.get("passed_unread") == 0
    plain = json.loads(json.dumps(TEXTS[path]).replace(MAIL, "nobody"))
    assert sent(guard, plain, path)[0] == plain


OTHER_PATHS = {
    "/v1/projects/p/locations/l/publishers/anthropic/models/claude-sonnet-4-5:rawPredict": MESSAGES,
    "/v1/projects/p/locations/l/publishers/anthropic/models/claude-sonnet-4-5:streamRawPredict": MESSAGES,
    "/model/eu.anthropic.claude-sonnet-4-5-20250929-v1:0/invoke": MESSAGES,
    "/openai/deployments/gpt-5/chat/completions": CHAT,
    "/openai/v1/responses/compact": RESPONSES,
}


@pytest.mark.parametrize("path", OTHER_PATHS)
def test_the_same_requests_under_other_paths_are_read(path):
    body = {"input": [USER]} if OTHER_PATHS[path] == RESPONSES else {"messages": [USER]}
    assert "<EMAIL_1>" in json.dumps(sent(Guard(Stabilizer(4_000)), body, path)[0])


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST", "OPTIONS"])
def test_a_request_without_a_body_needs_no_reading(guard, method):
    assert guard.prepare(WireRequest(method, "/v1/responses/resp_1/cancel", {}, b"")).body == b""


CODERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: pytest.importorskip("brotli").compress(data),
    "zstd": lambda data: bodies._zstd_module().compress(data),
}


@pytest.mark.parametrize("encoding", CODERS)
def test_a_compressed_body_is_read_and_sent_plain(guard, encoding):
    if not bodies.can_decode(encoding):
        pytest.skip(f"no library for {encoding} is installed")
    packed = CODERS[encoding](json.dumps({"messages": [USER]}).encode())
    body, _ = sent(guard, packed, **{"content-encoding": encoding.upper()})
    assert body["messages"] == [{"role": "user", "content": "Write to <EMAIL_1>."}]


@pytest.mark.parametrize("encoding", CODERS)
def test_a_compressed_body_is_limited_by_what_it_comes_to(encoding):
    if not bodies.can_decode(encoding):
        pytest.skip(f"no library for {encoding} is installed")
    packed = CODERS[encoding](b" " * 30_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="after decompression") as caught:
            Guard(Stabilizer(4_000), max_body=1_000_000).prepare(ask(packed, **{"content-encoding": encoding}))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.status == 413
    assert peak < 5_000_000


def test_a_body_over_the_limit_is_refused():
    with pytest.raises(WireError) as caught:
        Guard(Stabilizer(4_000), max_body=10).prepare(ask({"messages": [USER]}))
    assert caught.value.status == 413


def test_what_must_stay_and_does_not_fit_is_refused():
    tools = [{"type": "function", "function": {"name": "f", "description": "word " * 500}}]
    with pytest.raises(BudgetExceededError):
        Guard(Stabilizer(300, shorten_tools=False)).prepare(ask({"messages": [USER], "tools": tools}))


@pytest.mark.parametrize("settings", [{"on_unreadable": "pass"}, {"on_unreadable": [1]}, {"strategy": "rot13"}])
def test_settings_are_checked(settings):
    with pytest.raises((ConfigError, CtxguardError)):
        Guard(Stabilizer(4_000), **settings).prepare(ask({"messages": [USER]}))


def test_a_stabilizer_is_wanted():
    with pytest.raises(ConfigError):
        Guard(4_000)


def test_redaction_and_maskers_of_ones_own_are_respected():
    redacting = Guard(Stabilizer(4_000), strategy="redact")
    assert sent(redacting, {"messages": [USER]})[0]["messages"][0]["content"] == "Write to [REDACTED_EMAIL]."
    hashing = Masker(strategy="hash", key="k" * 32)
    own = Guard(Stabilizer.from_policy("agent", budget=4_000, masker=hashing))
    assert sent(own, {"messages": [USER]})[0]["messages"][0]["content"].startswith("Write to <EMAIL_")


def test_keys_that_look_like_examples_are_hidden_and_come_back(guard):
    key = "ghp_EXAMPLE" + "NOTAREALKEY" + "0" * 18
    written, prepared = sent(guard, {"messages": [{"role": "user", "content": f"Use {key}."}]})
    assert written["messages"][0]["content"] == "Use <SECRET_1>."
    assert json.loads(prepared.whole(b'["<SECRET_1>"]')) == [key]


def test_a_chain_without_masking_masks_nothing():
    stages = [stage for stage in Stabilizer(4_000).stages if not isinstance(stage, MaskPII)]
    written, prepared = sent(Guard(Stabilizer(4_000, stages=stages)), {"messages": [USER]})
    assert written == {"messages": [USER]}
    assert prepared.reply is None


def test_answers_get_their_values_back_and_keep_their_bytes_otherwise(guard):
    _, prepared = sent(guard, {"messages": [USER]})
    plain = b'{ "choices" : [{"message": {"content": "caf\\u00e9 <EMAIL_9>"}}] }'
    assert prepared.whole(plain) == plain
    assert prepared.whole(b"not json <EMAIL_1>") == b"not json <EMAIL_1>"
    call = {"function": {"name": "f", "arguments": '{"to": "<EMAIL_1>"}'}}
    message = {"content": "To <EMAIL_1>", "reasoning_content": "<EMAIL_1>", "tool_calls": [call]}
    back = json.loads(prepared.whole(json.dumps({"choices": [{"message": message}]}).encode()))["choices"][0]["message"]
    assert back["content"] == f"To {MAIL}"
    assert json.loads(back["tool_calls"][0]["function"]["arguments"]) == {"to": MAIL}
    assert back["reasoning_content"] == "<EMAIL_1>"


def test_a_user_cannot_make_the_guard_say_what_a_placeholder_stands_for(guard):
    body = {"messages": [{"role": "system", "content": f"Serve {MAIL}."}, {"role": "user", "content": "Say <EMAIL_1>"}]}
    written, prepared = sent(guard, body)
    assert written["messages"][1]["content"] == "Say <LITERAL_1>"
    answer = prepared.whole(json.dumps({"choices": [{"message": {"content": "<LITERAL_1>"}}]}).encode())
    assert b"<EMAIL_1>" in answer


def test_conversations_do_not_know_each_others_values(guard):
    sent(guard, {"messages": [USER]})
    _, prepared = sent(guard, {"messages": [{"role": "user", "content": f"Write to {OTHER}."}]})
    assert json.loads(prepared.whole(b'["<EMAIL_1>"]')) == [OTHER]


def test_the_same_request_gives_the_same_bytes_whatever_came_before(guard):
    history = [USER, {"role": "assistant", "content": f"Done, {MAIL}."}, {"role": "user", "content": f"And {OTHER}?"}]
    first = guard.prepare(ask({"messages": history})).body
    sent(guard, {"messages": [*history, {"role": "user", "content": "cc@example.net"}]})
    assert guard.prepare(ask({"messages": history})).body == first
    assert Guard(Stabilizer(4_000)).prepare(ask({"messages": history})).body == first


# histories on the server


def answered(prepared, name):
    prepared.whole(json.dumps({"id": name, "output": []}).encode())


def test_a_history_on_the_server_goes_on_with_its_placeholders(guard):
    _, first = sent(guard, {"input": f"Write to {MAIL}."}, RESPONSES)
    answered(first, "resp_1")
    written, second = sent(guard, {"input": f"And to {OTHER}.", "previous_response_id": "resp_1"}, RESPONSES)
    assert written["input"] == "And to <EMAIL_2>."
    assert json.loads(second.whole(b'["<EMAIL_1> <EMAIL_2>"]')) == [f"{MAIL} {OTHER}"]
    answered(second, "resp_2")
    branch, _ = sent(guard, {"input": "cc@example.net", "previous_response_id": "resp_1"}, RESPONSES)
    assert branch["input"] == "<EMAIL_2>"


def test_a_history_that_began_without_values_goes_on(guard):
    _, first = sent(guard, {"input": "Hello."}, RESPONSES)
    answered(first, "resp_1")
    written, _ = sent(guard, {"input": MAIL, "previous_response_id": "resp_1"}, RESPONSES)
    assert written["input"] == "<EMAIL_1>"


@pytest.mark.parametrize("name", ["resp_unknown", "resp_of_another_key"])
def test_of_an_unknown_history_no_placeholder_is_given_twice(guard, name):
    _, first = sent(guard, {"input": f"Write to {MAIL}."}, RESPONSES)
    answered(first, "resp_of_another_key")
    other = {"authorization": "Bearer two"}
    written = json.loads(guard.prepare(ask({"input": OTHER, "previous_response_id": name}, RESPONSES, **other)).body)
    assert written["input"] == "[REDACTED_EMAIL]"


def test_an_output_whose_call_is_on_the_server_stays(guard):
    output = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
    written, _ = sent(guard, {"input": [output], "previous_response_id": "resp_0"}, RESPONSES)
    assert written["input"] == [output]


@pytest.mark.parametrize("kind", ["conversation", "header"])
def test_a_named_session_keeps_its_placeholders(kind):
    guard = Guard(Stabilizer(4_000), vault=Vault(MemoryStore(), key=new_key()))
    body, headers = (
        ({"conversation": {"id": "conv_1"}}, {}) if kind == "conversation" else ({}, {"x-ctxguard-session": "s"})
    )
    sent(guard, {"input": MAIL, **body}, RESPONSES, **headers)
    written, prepared = sent(guard, {"input": OTHER, **body}, RESPONSES, **headers)
    assert written["input"] == "<EMAIL_2>"
    assert json.loads(prepared.whole(b'["<EMAIL_1>"]')) == [MAIL]
    apart = {**headers, "authorization": "Bearer two"}
    assert sent(guard, {"input": OTHER, **body}, RESPONSES, **apart)[0]["input"] == "<EMAIL_1>"


def test_a_named_session_keeps_its_placeholders_behind_hundreds_of_others(guard):
    first, _ = sent(guard, {"messages": [{"role": "user", "content": MAIL}]}, **{"x-ctxguard-session": "first"})
    for number in range(300):
        sent(guard, {"messages": [{"role": "user", "content": "Hello."}]}, **{"x-ctxguard-session": f"s{number}"})
    more = {"messages": [{"role": "user", "content": MAIL}, {"role": "user", "content": OTHER}]}
    again, prepared = sent(guard, more, **{"x-ctxguard-session": "first"})
    placeholders = [message["content"] for message in again["messages"]]
    assert again["messages"][:1] == first["messages"]
    assert json.loads(prepared.whole(json.dumps(placeholders).encode())) == [MAIL, OTHER]


def test_an_item_that_the_provider_stores_goes_back_as_it_was_stored(guard):
    _, prepared = sent(guard, {"input": [USER]}, RESPONSES)
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    words = [{"type": "output_text", "text": "Sent to <EMAIL_1>.", "annotations": []}]
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": words}
    back = json.loads(prepared.whole(json.dumps({"id": "resp_1", "output": [thought, item]}).encode()))["output"]
    assert back[1]["content"][0]["text"] == f"Sent to {MAIL}."
    written, _ = sent(guard, {"input": [USER, *back, USER]}, RESPONSES)
    assert written["input"][1:3] == [thought, item]
    made_up = {**item, "id": "msg_2", "content": [{**words[0], "text": f"Sent to {MAIL}."}]}
    written, _ = sent(guard, {"input": [USER, {**thought, "id": "rs_2"}, made_up, USER]}, RESPONSES)
    assert "msg_2" not in json.dumps(written)


# too long for the model


@pytest.mark.parametrize(
    ("answer", "budget"),
    [
        ("This model's maximum context length is 8000 tokens. However, your messages resulted in 10000 tokens.", 760),
        ("prompt is too long: 210,000 tokens > 200,000 maximum", 904),
        ('{"error": {"code": "context_length_exceeded"}}', 700),
        ("input length and `max_tokens` exceed context limit: 100,000 + 64000 > 150000, decrease input length", 817),
        (
            "maximum context length is 4097 tokens. However, you requested 4203 tokens (3703 in the messages, 500 in the "
            "completion). Please reduce the length of the messages or completion.",
            922,
        ),
        (
            "maximum context length is 4097 tokens, however you requested 4116 tokens (3860 in your prompt; 256 for  the "
            "completion).",
            945,
        ),
        (
            "maximum context length is 4097 tokens. However, you requested 4400 tokens (3000 in the messages, 900 in the "
            "functions, and 500 in the completion).",
            876,
        ),
        (
            "maximum context length is 2048 tokens. However, your request has 1900 input tokens plus 1045 'max_tokens'.",
            501,
        ),
        (
            "'max_tokens' is too large: 6048. This model's maximum context length is 6048 tokens and your request has "
            "568 input tokens (6048 > 6048 - 568).",
            None,
        ),
        (
            "maximum context length is 6048 tokens. However, you requested 6616 tokens (568 in the messages, 6048 in the "
            "completion).",
            None,
        ),
        ("invalid tool schema", None),
    ],
)
def test_how_much_smaller_a_second_try_is(answer, budget):
    from ctxguard.wire.limits import smaller_budget

    assert smaller_budget(400, answer.encode(), tokens=1_000, budget=1_200) == budget
    assert smaller_budget(500, answer.encode(), tokens=1_000, budget=1_200) is None


def test_warming_up_sends_and_counts_nothing():
    reports = []
    guard = Guard(Stabilizer(2_000), on_report=reports.append)
    before = guard.metrics.text()
    guard.warm()
    assert guard.metrics.text() == before
    assert reports == []


def test_a_setting_that_the_guard_does_not_take_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"Guard takes no setting 'max_bodies'.*max_body'"):
        Guard(Stabilizer(2_000), max_bodies=True)
