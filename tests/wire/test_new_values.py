"""What a model itself writes, in texts and in the arguments of calls, is found: whole, streamed, in four APIs."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import suppress
from hashlib import sha512

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_model import ANSWERS, PATHS, STREAMS, Model

from ctxguard import Stabilizer
from ctxguard.errors import ConfigError, WireError
from ctxguard.pii import PEOPLE, SSN, STANDARD
from ctxguard.pii.mask.answers import LONGEST_RUN, MOST_HELD, AnswerScan, scan_masker
from ctxguard.wire import Guard, Transport
from ctxguard.wire.guard import WireRequest

KNOWN = "zora@mailhost.example"
NEW = ("new.person@somewhere.example", "4111 1111 1111 1111", "+49 30 901820")
CARD = "4111111111111111"
SAID = f"I am {KNOWN}."
TEXT = f"Dear <EMAIL_1>,\nwrite to {NEW[0]}. Your card {NEW[1]} is fine! Call {NEW[2]} or look at https://docs.example/"
CALL = ("send", {"to": "<EMAIL_1>", "copy": NEW[0], "lines": [f"card {NEW[1]}"], "card": int(CARD)})
BODIES = {
    "chat": {"model": "gpt-4o", "messages": [{"role": "user", "content": SAID}]},
    "responses": {"model": "gpt-5", "input": SAID, "store": False},
    "anthropic": {
        "model": "claude-sonnet-4-5",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": SAID}],
    },
    "gemini": {"contents": [{"role": "user", "parts": [{"text": SAID}]}]},
}
REPLIES = {"text": [TEXT], "call": ["Now I send it.", CALL], "both": [TEXT, CALL]}


def exchanged(api, reply, guard, *, streams):
    """Return what the client reads of an answer, through a guarded transport."""
    model = Model(api, [reply], streams=streams)
    client = httpx.Client(transport=Transport(guard, transport=model.transport()))
    path = PATHS[api].replace("generateContent", "streamGenerateContent") if streams else PATHS[api]
    host = {"anthropic": "api.anthropic.com", "gemini": "generativelanguage.googleapis.com"}.get(api, "api.openai.com")
    body = {**BODIES[api], **({"stream": True} if streams and api != "gemini" else {})}
    response = client.post(f"https://{host}{path}", json=body)
    assert KNOWN not in model.raw[0]
    return response


def texts_in(value):
    if isinstance(value, dict):
        return [text for member in value.values() for text in texts_in(member)]
    if isinstance(value, list):
        return [text for member in value for text in texts_in(member)]
    return [value] if isinstance(value, str) else []


def read(api, raw):
    """Return the texts and arguments of a stream, put together as clients do."""
    events = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith("data: {")]
    if api == "chat":
        deltas = [event["choices"][0]["delta"] for event in events if event["choices"]]
        calls = [call["function"].get("arguments", "") for delta in deltas for call in delta.get("tool_calls", ())]
        return "".join(delta.get("content") or "" for delta in deltas), "".join(calls)
    if api == "responses":
        of = lambda kind: "".join(event["delta"] for event in events if event["type"] == kind)  # noqa: E731
        return of("response.output_text.delta"), of("response.function_call_arguments.delta")
    if api == "anthropic":
        deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
        return "".join(d.get("text", "") for d in deltas), "".join(d.get("partial_json", "") for d in deltas)
    parts = [part for event in events for part in event["candidates"][0]["content"]["parts"]]
    calls = [json.dumps(part["functionCall"]["args"]) for part in parts if "functionCall" in part]
    return "".join(part.get("text", "") for part in parts), "".join(calls)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("api", BODIES)
def test_new_values_are_masked_and_known_ones_restored(api, reply, streams):
    guard = Guard(Stabilizer(9_000), new_values="mask")
    raw = exchanged(api, REPLIES[reply], guard, streams=streams).text
    assert not [value for value in (*NEW, CARD) if value in raw]
    assert KNOWN in (raw if not streams else "".join(read(api, raw)))
    kinds = {"EMAIL": 1, "CREDIT_CARD": 1} | ({"PHONE": 1} if reply != "call" else {})
    assert guard.metrics.by("new_values", "kind").keys() == kinds.keys()
    if streams:
        _, arguments = read(api, raw)
        assert not arguments or json.loads(arguments)["to"] == KNOWN


@pytest.mark.parametrize("api", BODIES)
def test_a_stream_says_what_the_whole_answer_says(api):
    answer = ANSWERS[api](REPLIES["both"], 1, (1, 0, 0, 1))
    once = exchanged(api, REPLIES["both"], Guard(Stabilizer(9_000), new_values="mask"), streams=False).json()
    text, arguments = read(api, "".join(STREAMS[api](once)))
    raw = exchanged(api, REPLIES["both"], Guard(Stabilizer(9_000), new_values="mask"), streams=True).text
    now = read(api, raw)
    assert now[0] == text
    assert json.loads(now[1]) == json.loads(arguments)
    assert text != read(api, "".join(STREAMS[api](answer)))[0]


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", BODIES)
def test_to_report_changes_nothing_but_the_count(api, streams):
    guard, plain = Guard(Stabilizer(9_000), new_values="report"), Guard(Stabilizer(9_000))
    reported = exchanged(api, REPLIES["both"], guard, streams=streams).text
    passed = exchanged(api, REPLIES["both"], plain, streams=streams).text
    if streams:
        assert read(api, reported)[0] == read(api, passed)[0]
        assert json.loads(read(api, reported)[1]) == json.loads(read(api, passed)[1])
    else:
        assert json.loads(reported) == json.loads(passed)
    assert guard.metrics.get("new_values") == len({*NEW, CARD})  # each once, however often the answer repeats it
    assert not plain.metrics.get("new_values")


@pytest.mark.parametrize("api", BODIES)
def test_a_refused_answer_is_an_error_and_its_values_are_not_sent(api):
    guard = Guard(Stabilizer(9_000), new_values="refuse")
    refused = exchanged(api, REPLIES["text"], guard, streams=False)
    assert refused.status_code == 502
    assert "EMAIL" in refused.text
    assert NEW[0] not in refused.text
    assert exchanged(api, ["Dear <EMAIL_1>."], guard, streams=False).status_code == 200


@pytest.mark.parametrize("api", BODIES)
def test_a_refused_stream_ends_before_the_value(api):
    guard = Guard(Stabilizer(9_000), new_values="refuse")
    body = {**BODIES[api], "stream": True}
    path = PATHS[api].replace("generateContent", "streamGenerateContent")
    sent = []
    stream = guard.prepare(WireRequest("POST", path, {}, json.dumps(body).encode())).stream()
    events = iter(STREAMS[api](ANSWERS[api](REPLIES["text"], 1, (1, 0, 0, 1))))
    with pytest.raises(WireError, match="EMAIL"):
        sent.extend(stream.feed(event.encode()) for event in events)
    assert list(events)
    sent = b"".join(sent).decode()
    assert KNOWN in read(api, sent)[0]
    assert "somewhere" not in sent


OTHERS = {
    "cohere": (
        "/v2/chat",
        {"model": "command-a", "messages": [{"role": "user", "content": SAID}]},
        {"id": "c", "message": {"role": "assistant", "content": [{"type": "text", "text": TEXT}]}},
    ),
    "converse": (
        "/model/m/converse",
        {"messages": [{"role": "user", "content": [{"text": SAID}]}]},
        {
            "output": {
                "message": {
                    "role": "assistant",
                    "content": [{"text": TEXT}, {"toolUse": {"name": "send", "toolUseId": "t", "input": CALL[1]}}],
                }
            }
        },
    ),
    "ollama": (
        "/api/chat",
        {"model": "llama3.2", "messages": [{"role": "user", "content": SAID}]},
        {
            "message": {
                "role": "assistant",
                "content": TEXT,
                "tool_calls": [{"function": {"name": "send", "arguments": CALL[1]}}],
            },
            "done": True,
        },
    ),
}


@pytest.mark.parametrize("api", OTHERS)
def test_the_other_apis(api):
    path, body, answer = OTHERS[api]
    prepared = Guard(Stabilizer(9_000), new_values="mask").prepare(
        WireRequest("POST", path, {}, json.dumps(body).encode())
    )
    raw = prepared.whole(json.dumps(answer).encode()).decode()
    assert not [value for value in (*NEW, CARD) if value in raw]
    assert KNOWN in raw


@pytest.mark.parametrize("size", [1, 3, 50])
def test_a_text_of_the_servers_own_beside_the_content(size):
    pieces = [TEXT[at : at + size] for at in range(0, len(TEXT), size)]
    events = [{"choices": [{"index": 0, "delta": {"content": "Hi. ", "note": piece}}]} for piece in pieces]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    guard = Guard(Stabilizer(9_000), new_values="mask")
    stream = guard.prepare(WireRequest("POST", PATHS["chat"], {}, json.dumps(BODIES["chat"]).encode())).stream()
    raw = b"".join(
        [*(stream.feed(f"data: {json.dumps(event)}\n\n".encode()) for event in events), stream.close()]
    ).decode()
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in raw.splitlines() if line]
    said = "".join(delta.get("note", "") for delta in deltas)
    assert said == scan()[0].text(TEXT).replace("<EMAIL_1>", KNOWN)
    assert "".join(delta.get("content", "") for delta in deltas).startswith("Hi. Hi. "[: 4 * len(pieces)])


def test_json_lines():
    path, body, _ = OTHERS["ollama"]
    lines = [
        {"message": {"role": "assistant", "content": TEXT[at : at + 3]}, "done": False} for at in range(0, len(TEXT), 3)
    ]
    raw = b"".join(
        json.dumps(line).encode() + b"\n"
        for line in [*lines, {"message": {"role": "assistant", "content": ""}, "done": True}]
    )
    prepared = Guard(Stabilizer(9_000), new_values="mask").prepare(
        WireRequest("POST", path, {}, json.dumps(body).encode())
    )
    said = "".join(json.loads(line)["message"]["content"] for line in prepared.whole(raw).splitlines())
    assert said == scan()[0].text(TEXT).replace("<EMAIL_1>", KNOWN)


def streamed(api, events, guard):
    """Return the events that the client gets."""
    path = PATHS[api].replace("generateContent", "streamGenerateContent")
    stream = guard.prepare(WireRequest("POST", path, {}, json.dumps(BODIES[api]).encode())).stream()
    raw = b"".join([*(stream.feed(f"data: {json.dumps(event)}\n\n".encode()) for event in events), stream.close()])
    return [json.loads(line[6:]) for line in raw.decode().splitlines() if line]


TOKENS = ["Hi ", "new", ".person", "@some", "where", ".example", " there"]


def tokens(said):
    return {"content": [{"token": one, "logprob": -1.0, "bytes": [*one.encode()], "top_logprobs": []} for one in said]}


LOGGED = {
    "chat": (
        {
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": "".join(TOKENS)}, "logprobs": tokens(TOKENS)}
            ]
        },
        [
            *({"choices": [{"index": 0, "delta": {"content": one}, "logprobs": tokens([one])}]} for one in TOKENS),
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        ],
    ),
    "responses": (
        {
            "id": "r",
            "output": [
                {
                    "id": "m",
                    "type": "message",
                    "content": [
                        {"type": "output_text", "text": "".join(TOKENS), "logprobs": tokens(TOKENS)["content"]}
                    ],
                }
            ],
        },
        [
            {
                "type": "response.output_text.delta",
                "output_index": 0,
                "content_index": 0,
                "item_id": "m",
                "delta": one,
                "logprobs": tokens([one])["content"],
            }
            for one in TOKENS
        ],
    ),
    "gemini": (
        {
            "candidates": [
                {
                    "content": {"role": "model", "parts": [{"text": "".join(TOKENS)}]},
                    "logprobsResult": {"chosenCandidates": [{"token": one} for one in TOKENS]},
                }
            ]
        },
        [
            {
                "candidates": [
                    {
                        "content": {"role": "model", "parts": [{"text": one}]},
                        "logprobsResult": {"chosenCandidates": [{"token": one}]},
                    }
                ]
            }
            for one in TOKENS
        ],
    ),
}


@pytest.mark.parametrize("action", ["mask", "report"])
@pytest.mark.parametrize("api", LOGGED)
def test_the_probabilities_of_tokens_do_not_repeat_what_is_masked(api, action):
    answer, events = LOGGED[api]
    guard = Guard(Stabilizer(9_000), new_values=action)
    path = PATHS[api]
    whole = guard.prepare(WireRequest("POST", path, {}, json.dumps(BODIES[api]).encode())).whole(
        json.dumps(answer).encode()
    )
    stream = streamed(api, events, guard)
    for said in (whole.decode(), json.dumps(stream)):
        assert said.count(".person") == (0 if action == "mask" else said.count("@some"))
        assert said.count('"@some"') == (0 if action == "mask" else 1)


def test_a_text_of_gemini_is_complete_before_the_call_that_follows():
    call = {"functionCall": {"name": "send", "args": {"to": NEW[0]}}}
    parts = [[{"text": "I write to "}], [{"text": NEW[0]}], [call], [{"text": "Then "}, call, {"text": "more <EMA"}]]
    parts += [[{"text": "IL_1>"}]]
    events = [{"candidates": [{"content": {"role": "model", "parts": some}}]} for some in parts]
    events[-1]["candidates"][0]["finishReason"] = "STOP"
    shown = streamed("gemini", events, Guard(Stabilizer(9_000), new_values="mask"))
    got = [part for event in shown for part in event["candidates"][0]["content"]["parts"] if part != {"text": ""}]
    masked = {"functionCall": {"name": "send", "args": {"to": "[REDACTED_EMAIL]"}}}
    assert got == [
        {"text": "I write to [REDACTED_EMAIL]"},
        masked,
        {"text": "Then "},
        masked,
        {"text": f"more {KNOWN}"},
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_the_texts_and_calls_of_gemini_stay_in_order_however_many_an_event_holds(size):
    call, thought = {"functionCall": {"name": "send", "args": {"to": NEW[0]}}}, {"text": "Hm.", "thought": True}
    parts = [{"text": "To "}, {"text": NEW[0]}, call, thought, {"text": "Dear <EMA"}, {"text": "IL_1>"}, thought, call]
    parts += [{"text": "At <EMA"}, {"text": "IL_1>, "}, call, {"text": "new.per"}, {"text": NEW[0][7:]}]
    cuts = range(0, len(parts), size)
    events = [{"candidates": [{"content": {"role": "model", "parts": parts[at : at + size]}}]} for at in cuts]
    events[-1]["candidates"][0]["finishReason"] = "STOP"
    shown = streamed("gemini", events, Guard(Stabilizer(9_000), new_values="mask"))
    got = [part for event in shown for part in event["candidates"][0]["content"]["parts"] if part != thought]
    said = "".join(part.get("text", "|") for part in got)
    assert said == f"To [REDACTED_EMAIL]|Dear {KNOWN}|At {KNOWN}, |[REDACTED_EMAIL]"


def test_a_text_in_several_parts_of_the_last_event():
    parts = [
        [{"text": "Dear <EMA"}, {"text": "IL_1>, "}],
        [{"text": "write to new.per"}, {"text": NEW[0][len("new.per") :]}],
    ]
    events = [{"candidates": [{"content": {"role": "model", "parts": some}}]} for some in parts]
    events[-1]["candidates"][0]["finishReason"] = "STOP"
    shown = streamed("gemini", events, Guard(Stabilizer(9_000), new_values="mask"))
    got = [part["text"] for event in shown for part in event["candidates"][0]["content"]["parts"]]
    assert "".join(got) == f"Dear {KNOWN}, write to [REDACTED_EMAIL]"


LINES = "\n".join(f"Card{n}\n4111111111111111" for n in range(12))  # in the alphabet of base64, and longer than an id


@pytest.mark.parametrize("said", [f"data: {NEW[0]}", f"data:text/plain,{NEW[0]}", LINES])
@pytest.mark.parametrize("api", BODIES)
def test_a_text_that_looks_like_data_is_searched(api, said):
    raw = exchanged(api, [said], Guard(Stabilizer(9_000), new_values="mask"), streams=False).text
    assert NEW[0] not in raw
    assert CARD not in raw


def test_a_setting_that_cannot_work_is_refused():
    with pytest.raises(ConfigError, match="new_values is 'pass', 'report', 'mask' or 'refuse', not 'hide'"):
        Guard(Stabilizer(9_000), new_values="hide")
    with pytest.raises(ConfigError, match="needs a stabilizer that masks"):
        Guard(Stabilizer(9_000, stages=[]), new_values="mask")


# -- one text in pieces

MASKER = scan_masker((STANDARD,))
PIECES = st.sampled_from(
    [*NEW, "Hello", ". ", "\n", " ", "!", "…", "<EMAIL_1>", "a" * 700, "x " * 300, "no. ", "(", ")"]
)
TEXTS = st.lists(PIECES, max_size=30).map("".join)


def scan():
    found = []
    return AnswerScan(MASKER, "mask", found.append), found


@given(TEXTS, st.data())
def test_the_result_depends_neither_on_how_a_text_is_cut_nor_on_when_it_ends(text, data):
    whole, labels = scan()
    expected = whole.text(text)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    streamed, found = scan()
    pieces = streamed.pieces(in_full=False)
    shown, fed = "", 0
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        shown += pieces.feed(text[start:end])
        fed = end
        assert expected.startswith(shown)
    assert fed == len(text)
    assert shown + pieces.close() == expected
    assert found == labels


FILLERS = st.lists(st.sampled_from(["Hello", ". ", "\n", " ", "! ", "<EMAIL_1>", "a" * 700, "x " * 300]), max_size=20)


@given(FILLERS.map("".join), st.sampled_from(NEW), FILLERS.map("".join))
def test_at_no_time_a_value_was_sent(before, value, after):
    text = f"{before} {value} {after}"
    pieces = scan()[0].pieces(in_full=False)
    sent = ""
    for sign in text:
        sent += pieces.feed(sign)
        assert value not in sent
    assert value not in sent + pieces.close()


@given(TEXTS, st.booleans())
def test_what_is_held_back_is_bounded(text, has_runs):
    text = text if has_runs else text.replace("a" * 700, "a" * 200 + " ")
    pieces = scan()[0].pieces(in_full=False)
    sent = 0
    for number, sign in enumerate(text, 1):
        pieces.feed(sign)
        sent = number - len(pieces._held)
        assert number - sent < (LONGEST_RUN + MOST_HELD if has_runs else MOST_HELD)


def signs(size):
    """Return letters and digits as in a token."""
    return b64encode(sha512(str(size).encode()).digest() * (size // 64 + 1)).decode()[:size].replace("/", "_")


HIDING = "Pay with 4111 1111 1111 1111\nDE89 3704 0044 0532 0130 00"


def test_a_value_that_is_found_only_once_another_one_is_replaced():
    assert [span.label for span in MASKER.find(HIDING)] == ["IBAN"]
    masking, found = scan()
    assert masking.text(HIDING) == "Pay with [REDACTED_CREDIT_CARD]\n[REDACTED_IBAN]" == MASKER.mask(HIDING)
    assert sorted(found) == ["CREDIT_CARD", "IBAN"]


ASIDE = st.sampled_from([*NEW, HIDING, "DE89 3704 0044 0532 0130 00", "\n", " ", ": ", "1", "x", " pin 1234 ", "DE"])


@given(st.lists(ASIDE, max_size=8).map("".join).filter(lambda text: len(text) < 400))
def test_a_masked_answer_holds_nothing_that_is_still_found(text):
    assert MASKER.find(scan()[0].text(text)) == ()


def key(size, between="\n"):
    said = signs(size)
    lines = between.join(said[at : at + 64] for at in range(0, size, 64))
    return f"-----BEGIN PRIVATE KEY-----{between}{lines}{between}-----END PRIVATE KEY-----"


def jwt(size):
    return f"eyJhbGciOiJSUzI1NiJ9.eyJ{signs(size)}.{signs(200)}"


LARGE = st.one_of(
    st.builds(key, st.integers(400, 4_000), st.sampled_from(["\n", "\r\n", "\\n"])),
    st.integers(100, 6_000).map(jwt),
    st.sampled_from(
        [
            "4111 1111\n1111 1111",
            "4111-1111-1111-\r\n1111",
            "She was born on 3. marca 1992",
            'password="nWg!Na. LA34"',
        ]
    ),
)
AROUND = st.lists(
    st.sampled_from(["Hello", ". ", "\n", " ", "! ", "<EMAIL_1>", "word " * 30, "。", "a, b\n"]), max_size=9
)


@given(AROUND.map("".join), LARGE, AROUND.map("".join))
def test_no_part_of_a_value_is_sent_however_long_it_is_and_wherever_lines_end(before, value, after):
    text = f"{before} {value} {after}"
    sent = scan()[0].text(text)
    for span in MASKER.find(text):
        found = text[span.start : span.end]
        parts = [found[at : at + 40] for at in range(0, len(found), 40)]
        assert not [part for part in parts if len(part) > 5 and part in sent]
    assert scan()[0].text(text) == sent


TABLES = {
    "pipes": ("| Name | SSN | Count |\n|---|---|---|\n", "| Person {0} | {1} | {0} |\n"),
    "commas": ("Name,SSN,Count\n", "Person {0},{1},{0}\n"),
    "tabs": ("Name\tSSN\tCount\n", "Person {0}\t{1}\t{0}\n"),
    "grid": ("+------+-----------+\n| Name | SSN       |\n+------+-----------+\n", "| Bob  | {1} |\n"),
}


@pytest.mark.parametrize("table", TABLES)
def test_the_headings_of_a_table_are_context_of_all_its_rows(table):
    headings, row = TABLES[table]
    masker = scan_masker((STANDARD, SSN))
    text = "Here it is.\n\n" + headings + "".join(row.format(at, f"{at:03}228741") for at in range(536, 600))
    shown = AnswerScan(masker, "mask", lambda _: None).text(text)
    assert len(masker.find(text)) >= 60
    assert not [span for span in masker.find(text) if text[span.start : span.end] in shown]


def test_a_name_that_the_answer_introduces_is_found_again():
    text = "My name is Jane Roe. " + "Something else. " * 40 + "Then Jane Roe said so."
    assert "Jane Roe" not in AnswerScan(scan_masker((PEOPLE,)), "mask", lambda _: None).text(text)


class Counted(str):
    """A text that counts the characters of its slices."""

    __slots__ = ()
    copied = 0

    def __getitem__(self, at):
        part = super().__getitem__(at)
        Counted.copied += len(part)
        return Counted(part) if len(part) > MOST_HELD else part

    def __radd__(self, before):
        return Counted(before + str(self))


def test_a_text_is_not_copied_for_each_of_its_lines():
    pieces = scan()[0].pieces(in_full=False)
    Counted.copied = 0
    text = Counted("Hello there.\n" * 4_000)
    assert pieces.feed(text) + pieces.close() == text
    assert Counted.copied < 20 * len(text)


def test_placeholders_of_the_request_stay():
    assert scan()[0].text("Dear <EMAIL_1>, dear [REDACTED_EMAIL].") == "Dear <EMAIL_1>, dear [REDACTED_EMAIL]."


@pytest.mark.parametrize("action", ["mask", "refuse"])
def test_a_value_in_what_cannot_be_read_is_not_passed_on(action):
    guard = Guard(Stabilizer(9_000), new_values=action)
    request = WireRequest("POST", PATHS["chat"], {}, json.dumps(BODIES["chat"]).encode())
    for body in (f'{{"choices": [{{"message": "{NEW[0]}', f"<p>{NEW[0]}</p>"):
        with pytest.raises(WireError):
            guard.prepare(request).whole(body.encode())
    deep = "[" * 900 + json.dumps(NEW[0]) + "]" * 900  # how deep can be read depends on the process
    with suppress(WireError):
        assert NEW[0].encode() not in guard.prepare(request).whole(f'{{"choices": [], "more": {deep}}}'.encode())
    event = {"choices": [{"index": {"a": 1}, "delta": {"content": NEW[0]}}]}
    for data in (json.dumps(event), json.dumps(event)[:-1], json.dumps([event])):
        for end in ("\n\n", "\n", ""):
            stream = guard.prepare(request).stream()
            with pytest.raises(WireError):
                _ = [stream.feed(f"data: {data}{end}".encode()), stream.close()]
    harmless = b": a comment\n\ndata: ping\n\ndata: [DONE]"
    stream = guard.prepare(request).stream()
    assert stream.feed(harmless) + stream.close() == harmless


class Chunks(httpx.SyncByteStream):
    def __init__(self, raw, size, *, breaks):
        self.raw, self.size, self.breaks = raw, size, breaks

    def __iter__(self):
        for at in range(0, len(self.raw), self.size):
            yield self.raw[at : at + self.size]
        if self.breaks:
            raise httpx.ReadError("gone")


@given(
    st.sampled_from(list(BODIES)), st.sampled_from(list(REPLIES)), st.integers(1, 3_000), st.floats(0, 1), st.booleans()
)
def test_after_a_refusal_nothing_of_the_stream_follows(api, reply, size, share, breaks):
    events = STREAMS[api](ANSWERS[api](REPLIES[reply], 1, (1, 0, 0, 1)))
    raw = "".join(events).encode()
    raw = raw[: int(len(raw) * share)]
    headers = {"content-type": "text/event-stream"}
    serve = httpx.MockTransport(lambda _: httpx.Response(200, headers=headers, stream=Chunks(raw, size, breaks=breaks)))
    guard = Guard(Stabilizer(9_000), new_values="refuse")
    client = httpx.Client(transport=Transport(guard, transport=serve))
    host = {"anthropic": "api.anthropic.com", "gemini": "generativelanguage.googleapis.com"}.get(api, "api.openai.com")
    path = PATHS[api].replace("generateContent", "streamGenerateContent")
    got = []
    body = {**BODIES[api], **({"stream": True} if api != "gemini" else {})}
    with suppress(WireError, httpx.ReadError), client.stream("POST", f"https://{host}{path}", json=body) as response:
        got.extend(response.iter_raw())
    sent = b"".join(got).decode(errors="replace")
    said = "".join(read(api, sent.rpartition("\n\n")[0]))
    assert not [value for value in (*NEW, CARD) if value in sent or value in said]
