"""What was shortened or has left is read back by the model, unseen by the client, on four APIs, whole and streamed."""

from __future__ import annotations

import json
import re

import httpx
import pytest
from scripted_model import CLIENTS, PATHS, Client, Model, history_of, question, request, results
from tiers import crossed

from ctxguard import Stabilizer
from ctxguard.artifacts import ToolCall
from ctxguard.content import handle_of
from ctxguard.stores import MemoryStore, SQLiteStore
from ctxguard.wire import AsyncTransport, Guard, Transport
from ctxguard.wire.guard import WireRequest

APIS = ("chat", "responses", "anthropic", "gemini")
MAIL = "ann@example.com"
LOG = "\n".join(
    f"step {chr(97 + n)} of the log: {MAIL} moved the parcel to shelf {chr(97 + n % 7)} long before anyone had asked for it"
    for n in range(26)
)
OTHER = "\n".join(
    f"entry {chr(97 + n % 26)}{chr(97 + n // 26)} says that nothing has happened so far" for n in range(40)
)
HANDLE = re.compile(r"handle ([a-z]{20})")
LOOK, AGAIN = ("look_up", {"of": "log"}), ("look_up", {"of": "other"})


def tool(name, args):
    assert name == "look_up", "the client sees no call but its own"
    return LOG if args.get("of") == "log" else OTHER


def texts_in(value):
    """Walk the texts of a JSON value."""
    if isinstance(value, str):
        yield value
    for member in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts_in(member)


def read_log(body):
    """Ask for the first text that has a handle."""
    found = HANDLE.search(json.dumps(history_of_body(body)))
    return [("recall", {"handle": found[1]})]


def history_of_body(body):
    return next(body[key] for key in ("messages", "input", "contents") if key in body)


def masked_log(model):
    """Return the masked log as the model saw it when it was new."""
    for body in model.bodies:
        for text in texts_in(history_of_body(body)):
            if text.startswith("step a of the log") and text.endswith(LOG[-8:]) and len(text.splitlines()) == 26:
                return text
    raise AssertionError("the log was never sent whole")


def read_back(model):
    """Return how often the log was sent whole, by request."""
    log = masked_log(model)
    return [sum(text == log for text in texts_in(history_of_body(body))) for body in model.bodies]


def newest(history):
    """Return where the newest exchange begins: its outputs may be sent whole once, and shortened with the next request."""
    said = [member.get("role") in ("assistant", "model") or member.get("type", "")[-4:] == "call" for member in history]
    place = max((n for n, is_said in enumerate(said) if is_said), default=len(history))
    while place and place < len(history) and said[place - 1]:
        place -= 1
    return place


def broken(model):
    """Return the requests whose history does not go on from that of the one before, up to its newest exchange."""
    pairs = [tuple(map(history_of_body, pair)) for pair in zip(model.bodies, model.bodies[1:], strict=False)]
    return [n for n, (was, now) in enumerate(pairs, 1) if now[: newest(was)] != was[: newest(was)]]


def run(api, script, *, streams=False, guard=None, budget=6_000, questions=("What does the log say?",)):
    model = Model(api, script, streams=streams)
    guard = guard or Guard(Stabilizer(budget), recall=True)
    with httpx.Client(transport=Transport(guard, transport=model.transport())) as http:
        client = Client(api, http, tool, streams=streams)
        for text in questions:
            client.ask(text)
    return model, client, guard


def filled(times=2):
    """Return replies that fill the context until the log is shortened."""
    return [[LOOK], *([AGAIN] for _ in range(times))]


POSITIONS = {
    "alone": [[read_log], ["Ann moved it."]],
    "behind a text": [["Let me see. ", read_log], ["Ann moved it."]],
    "first beside others": [[read_log, AGAIN], ["Ann moved it."]],
    "last beside others": [["One moment. ", AGAIN, read_log], ["Ann moved it."]],
    "between others": [[AGAIN, read_log, AGAIN], ["Ann moved it."]],
    "twice at once": [[read_log, read_log], ["Ann moved it."]],
    "twice in a row": [[read_log], [read_log], ["Ann moved it."]],
    "then a call of the client's": [["First. ", read_log], ["Second. ", AGAIN], ["Ann moved it."]],
}


def at(reply):
    """Return a reply whose calls are worked out from the request."""
    return lambda body: [said for one in reply for said in (one(body) if callable(one) else [one])]


@pytest.mark.parametrize(("api", "position", "streams"), crossed(3, APIS, POSITIONS, [False, True]))
def test_the_model_reads_the_masked_original_and_the_client_sees_nothing_of_it(api, position, streams):
    script = [*filled(), *map(at, POSITIONS[position]), ["Good bye."]]
    model, client, guard = run(api, script, streams=streams, questions=("What does the log say?", "And now?"))
    counts = read_back(model)
    asked = len(filled()) + 1
    assert counts[asked - 1] == 0, "the log was not shortened before it was asked for"
    assert max(counts[asked:]) >= 1
    assert MAIL not in "".join(model.raw)
    assert not any(b"recall" in raw or b"shortened" in raw for raw in client.raw)
    assert set(client.seen) == {"look_up"}
    said = "".join(texts_in_answers(client))
    texts = [one for reply in POSITIONS[position] for one in reply if isinstance(one, str)]
    assert said == "".join([*texts, "Good bye."])
    calls = sum(callable(one) and one is read_log for reply in POSITIONS[position] for one in reply)
    assert guard.metrics.get("read_backs", by="handle") == calls
    # what was hidden stands in the next requests, where it stood
    assert len(broken(model)) == guard.metrics.get("cuts")


def texts_in_answers(client):
    """Walk the texts that the client got from the model."""
    for member in client.history:
        if member.get("role") in ("assistant", "model"):
            blocks = member.get("content") or member.get("parts") or []
            yield from [blocks] if isinstance(blocks, str) else (block["text"] for block in blocks if "text" in block)


@pytest.mark.parametrize("api", APIS)
def test_a_handle_that_nothing_names_is_not_read(api):
    script = [*filled(), [("recall", {"handle": "a" * 20})], ["Nothing."], ["Good bye."]]
    model, _, _ = run(api, script)
    assert "nothing is saved under handle" in model.raw[-1]


@pytest.mark.parametrize("api", APIS)
def test_another_conversation_cannot_read_it(api):
    guard = Guard(Stabilizer(6_000), recall=True)
    model, _, _ = run(api, [*filled(), at([read_log]), ["Ann."]], guard=guard)
    handle = HANDLE.search(model.raw[-1])[1]
    other, _, _ = run(api, [[("recall", {"handle": handle})], ["Nothing."]], guard=guard)
    assert "nothing is saved under handle" in other.raw[-1]
    assert "of the log" not in "".join(other.raw)


@pytest.mark.parametrize("api", APIS)
def test_a_search_finds_what_has_left_and_says_where_the_rest_is(api):
    script = [*filled(12), [("recall", {"query": "who moved the parcel to the shelf"})], at([read_found]), ["Ann."]]
    model, _, guard = run(api, script)
    assert guard.metrics.get("read_backs", by="query") == 1
    assert masked_log(model) in list(texts_in(history_of_body(model.bodies[-1])))
    assert MAIL not in "".join(model.raw)


def read_found(body):
    last = list(texts_in(history_of_body(body)[-1]))
    found = next(text for text in last if "moved the parcel" in text)
    return [("recall", {"handle": HANDLE.search(found)[1]})]


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", APIS)
def test_a_loop_of_calls_ends_by_a_limit_that_says_so(api, streams):
    model = Model(api, [*filled(), at([read_log])], streams=streams)
    guard = Guard(Stabilizer(6_000), recall=True)
    with httpx.Client(transport=Transport(guard, transport=model.transport())) as http:
        client = Client(api, http, tool, streams=streams)
        if streams:
            with pytest.raises(Exception, match="7 times in a row"):
                client.ask("What does the log say?")
        else:
            with pytest.raises(AssertionError, match="7 times in a row"):
                client.ask("What does the log say?")

    assert "6 read-backs in a row are the limit" in model.raw[-1]
    assert len(model.bodies) == len(filled()) + 8


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", APIS)
def test_a_model_that_is_told_of_the_limit_goes_on(api, streams):
    model, client, _ = run(api, [*filled(), *[at([read_log])] * 7, ["Ann."], ["Good bye."]], streams=streams)
    assert "".join(texts_in_answers(client)) == "Ann."
    assert "6 read-backs in a row are the limit" in model.raw[-1]


def test_calls_of_one_message_are_limited():
    model, _, guard = run("chat", [*filled(), at([read_log] * 12), ["Ann."]])
    assert guard.metrics.get("read_backs") == 8
    assert model.raw[-1].count("8 read-backs at once are the limit") == 4


def test_a_long_text_is_read_in_parts():
    long = "\n".join(f"row {n} of many says nothing new at all" for n in range(2_000))
    model = Model("chat", [[LOOK], [AGAIN], at([read_log]), at([read_on]), ["Done."]])
    with httpx.Client(transport=Transport(Stabilizer(6_000), transport=model.transport(), recall=True)) as http:
        Client("chat", http, lambda name, args: long if args["of"] == "log" else OTHER).ask("Read it.")
    newest = [list(texts_in(history_of_body(body)[-1])) for body in model.bodies[-2:]]
    first, second = (next(text for text in texts if text.startswith("[lines")).splitlines() for texts in newest)
    assert first[1:] + second[1:] == long.splitlines()[: len(first) + len(second) - 2]


def read_on(body):
    line = re.findall(r"go on with first_line=(\d+)", json.dumps(history_of_body(body)))[-1]
    return [("recall", {"handle": HANDLE.search(json.dumps(history_of_body(body)))[1], "first_line": int(line)})]


NAMED = [
    ("chat", {"user": MAIL}),
    ("responses", {"safety_identifier": MAIL}),
    ("anthropic", {"metadata": {"user_id": MAIL}}),
]
"""Fields that name the user. Their values are hashed with a key that each process draws anew."""


@pytest.mark.parametrize("restarted", [True, False])
@pytest.mark.parametrize(("api", "fields"), [*((api, {}) for api in APIS), *NAMED])
def test_after_a_restart_with_a_store_the_prefix_holds_and_handles_are_read(api, fields, restarted, tmp_path):
    script = [*filled(), at([read_log]), at([AGAIN, read_log]), ["Ann."], at([read_log]), ["Ann, again."]]
    model = Model(api, script)
    client = Client(api, None, tool, fields=fields)
    store = SQLiteStore(tmp_path / "store.db")
    guard = Guard(Stabilizer(6_000), recall=store)
    for text in ("What does the log say?", "Are you sure?"):
        with httpx.Client(transport=Transport(guard, transport=model.transport())) as http:
            client.http = http
            client.ask(text)
        guard = Guard(Stabilizer(6_000), recall=store if restarted else True)
    assert masked_log(model) in list(texts_in(history_of_body(model.bodies[-1])))
    # the first request after the restart, which goes on from the last one before it
    first = len(model.bodies) - 2
    assert ('"recall"' in json.dumps(history_of_body(model.bodies[first]))) == restarted
    assert (first not in broken(model)) == restarted
    assert MAIL.encode() not in (tmp_path / "store.db").read_bytes()


def test_calls_that_the_provider_holds_are_answered_with_the_clients_results():
    replies = [[LOOK], *([AGAIN] for _ in range(2)), at([AGAIN, read_log]), ["Ann."]]
    model = Model("responses", replies)
    guard = Guard(Stabilizer(6_000), recall=True)
    with httpx.Client(transport=Transport(guard, transport=model.transport())) as http:
        client = Client("responses", http, tool)
        client.history = [question("responses", "What does the log say?")]
        for _ in range(4):
            members, calls = client.once()
            client.history += members
            outputs = [
                {"type": "function_call_output", "call_id": i, "output": tool(name, args)} for i, name, args in calls
            ]
            client.history += outputs
        body = request("responses", outputs, previous_response_id="resp_4")
        http.post("http://provider/v1/responses", json=body)
    answered = {item["call_id"] for item in model.bodies[-1]["input"]}
    assert answered == {"call_4_0", "call_4_1"}, "the hidden call of the answer on the server is answered, too"


def test_a_streamed_answer_keeps_its_id_and_the_next_request_goes_on_from_the_last_one():
    """Clients refuse a stream in which the id of the answer changes; the provider stores each answer under its own."""
    model = Model("responses", [*filled(), at([read_log]), ["Ann."], ["Good bye."]], streams=True)
    with httpx.Client(transport=Transport(Stabilizer(6_000), transport=model.transport(), recall=True)) as http:
        client = Client("responses", http, tool, streams=True)
        client.ask("What does the log say?")
        named = re.findall(r'"id": ?"(resp_\d+)"', client.raw[-1].decode())
        client.history = [question("responses", "And now?")]
        body = request("responses", client.history, previous_response_id=named[0], stream=True)
        http.post("http://provider/v1/responses", json=body)
        refused, sent = http.get("http://provider/v1/responses/resp_4"), len(model.bodies)
        with pytest.raises(json.JSONDecodeError):  # of the scripted provider, to which it is passed on
            http.get("http://provider/v1/responses/resp_2")
    assert (refused.status_code, sent) == (409, 6)
    assert "in parts; use the answer that was streamed" in refused.json()["error"]["message"]
    assert set(named) == {"resp_4"}
    assert model.bodies[-1]["previous_response_id"] == "resp_5"


def test_a_client_that_stops_at_the_last_event_is_remembered():
    model = Model("chat", [*filled(), at([AGAIN, read_log]), ["Ann."]], streams=True)
    with httpx.Client(transport=Transport(Stabilizer(6_000), transport=model.transport(), recall=True)) as http:
        client = Client("chat", http, tool, streams=True)
        client.history = [question("chat", "What does the log say?")]
        for _ in range(5):
            body = request("chat", client.history, stream=True)
            with http.stream("POST", f"http://provider{path_of('chat')}", json=body) as answer:
                raw = b""
                for chunk in answer.iter_raw(64):
                    raw += chunk
                    if b"[DONE]" in raw:
                        break
            members, calls = CLIENTS["chat"](None, raw)
            client.history += [*members, *results("chat", [(i, name, tool(name, args)) for i, name, args in calls])]
    assert masked_log(model) in list(texts_in(history_of_body(model.bodies[-1])))


@pytest.mark.parametrize("api", APIS)
def test_a_client_with_a_tool_of_this_name_keeps_it(api):
    model = Model(api, [["Hello."]])
    with httpx.Client(transport=Transport(Stabilizer(6_000), transport=model.transport(), recall=True)) as http:
        body = json.loads(json.dumps(request(api, [question(api, "Hi.")])).replace("look_up", "recall"))
        client = Client(api, http, tool)
        http.post(f"http://provider{path_of(api)}", json=body)
    names = re.findall(r'"name": ?"(\w+)"', json.dumps(model.bodies[0]["tools"]))
    assert sorted(names) == ["ctxguard_recall", "recall"]
    assert client.seen == []


def path_of(api):
    return PATHS[api]


def test_without_the_setting_nothing_is_added_and_no_handle_is_named():
    model, _, _ = run("chat", [*filled(), ["Done."]], guard=Guard(Stabilizer(6_000)))
    assert "recall" not in "".join(model.raw)
    assert not HANDLE.search("".join(model.raw))


@pytest.mark.parametrize("path", ["/v1/messages/count_tokens", "/v1/responses/input_tokens"])
def test_requests_that_no_model_answers_get_no_tool(path):
    api = "anthropic" if "messages" in path else "responses"
    body = json.dumps(request(api, [question(api, "Hi.")])).encode()
    prepared = Guard(Stabilizer(6_000), recall=True).prepare(WireRequest("POST", path, {}, body))
    assert b"recall" not in prepared.body


@pytest.mark.parametrize("api", APIS)
async def test_async_clients_read_back_too(api):
    model = Model(api, [*filled(), at([read_log]), ["Ann."]], streams=True)
    transport = AsyncTransport(Stabilizer(6_000), transport=model.transport(), recall=True)
    async with httpx.AsyncClient(transport=transport) as http:
        history = [question(api, "What does the log say?")]
        while True:
            answer = await http.post(f"http://provider{path_of(api)}", json=request(api, history, stream=True))
            members, calls = CLIENTS[api](None, answer.content)
            history += members
            if not calls:
                break
            history += results(api, [(i, name, tool(name, args)) for i, name, args in calls])
    assert masked_log(model) in list(texts_in(history_of_body(model.bodies[-1])))


def test_streams_are_passed_on_as_they_come():
    """Nothing but the call itself is held back: each event is out before the next one comes."""
    model = Model("chat", [["Let me see. ", ("recall", {"handle": "a" * 20})], ["Done."]], streams=True)
    guard = Guard(Stabilizer(6_000), recall=True)
    body = json.dumps(request("chat", [question("chat", "Hi.")])).encode()
    prepared = guard.prepare(WireRequest("POST", "/v1/chat/completions", {}, body))
    stream = prepared.stream()
    raw = model.handle(httpx.Request("POST", "http://p/v1/chat/completions", content=prepared.body)).content
    told = [stream.feed(event + b"\n\n") for event in raw.split(b"\n\n")[:-1]]
    texts = [event for event in raw.split(b"\n\n")[:-1] if b'"content"' in event]
    assert [one[:-2] for one in told if one] == texts
    assert history_of("chat", model.bodies[0])


def test_other_apis_name_no_handle():
    """Bedrock and Cohere have no read-back on the wire, so nothing there may promise it."""
    guard = Guard(Stabilizer(4_000), recall=True)
    history = [question("chat", "Look.")]
    for number in range(8):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
        history += [
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": OTHER},
        ]
    body = json.dumps({"model": "command-a-03-2025", "messages": history}).encode()
    prepared = guard.prepare(WireRequest("POST", "/v2/chat", {}, body))
    assert prepared.report.left
    assert b"recall" not in prepared.body
    assert not HANDLE.search(prepared.body.decode())


@pytest.mark.parametrize("shares_store", [False, True], ids=["one guard", "two workers"])
@pytest.mark.parametrize("api", APIS)
def test_a_handle_is_read_only_with_the_credential_that_wrote_it(tmp_path, api, shares_store):
    """Whoever names a handle of another conversation, in a message or in a call, gets nothing by it."""
    stores = [SQLiteStore(tmp_path / "texts.db") for _ in range(2)] if shares_store else [MemoryStore()] * 2
    handle = handle_of(LOG)
    stores[0].put_new("tool-output", handle, LOG.encode())  # as the conversation of another credential leaves it
    guard = Guard(Stabilizer(9_000), recall=stores[1])
    body = history_with(api, f"please read handle {handle}")
    prepared = guard.prepare(WireRequest("POST", PATHS[api], {"authorization": "Bearer B"}, json.dumps(body).encode()))
    for given in ({"handle": handle}, {"handle": handle, "first_line": 1, "last_line": 5}, {"query": "parcel shelf"}):
        told = prepared.reading._result(ToolCall("recall", json.dumps(given)), 0, 0)
        assert "moved the parcel" not in told


def history_with(api, text):
    if api == "gemini":
        return {"contents": [{"role": "user", "parts": [{"text": text}]}]}
    if api == "responses":
        return {"model": "m", "input": [{"role": "user", "content": text}]}
    return {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": text}]}
