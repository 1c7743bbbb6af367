"""boto3's client runs long tool loops against a strict server on loopback, by each way in."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest
from cloud_server import PLANTED, output, serving
from converse_server import PIXEL, Converse
from patience import PATIENCE
from wire_server import proxy_at

from ctxguard import Stabilizer
from ctxguard.errors import CheckFailedError, ConfigError, WireError
from ctxguard.wire import Guard, proxy_app
from ctxguard_bedrock import guarded, stabilize_request

boto3 = pytest.importorskip("boto3", reason="boto3 is not installed (extra bedrock)")
botocore = pytest.importorskip("botocore.config")
ClientError = pytest.importorskip("botocore.exceptions").ClientError

SYSTEM = [{"text": "You are a clerk. In doubt write to ops-pager@mailhost.org."}, {"cachePoint": {"type": "default"}}]
QUESTION = "I am ann@example.com, my number is 536-22-8726. Where are my parcels?"
TOOL = {
    "toolSpec": {
        "name": "look_up",
        "description": "Looks up parcels; maintained by ops-pager@mailhost.org.",
        "inputSchema": {"json": {"type": "object", "properties": {"query": {"type": "string"}}}},
    }
}
BUDGET = 8_000
STEPS = 16
MODEL = "anthropic.claude-sonnet-4-5-20250929-v1:0"


@pytest.fixture
def client_at():
    made = []

    def make(address):
        client = boto3.client(
            "bedrock-runtime",
            endpoint_url=address,
            region_name="us-east-1",
            aws_access_key_id="none",
            aws_secret_access_key="none",
            config=botocore.Config(retries={"max_attempts": 0}, proxies={}),
        )
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


def whole(client, request):
    return client.converse(**request)["output"]["message"]


def streamed(client, request):
    """Put a message together from its events, as Amazon's examples do."""
    blocks = {}
    for event in client.converse_stream(**request)["stream"]:
        if "contentBlockStart" in event:
            start = event["contentBlockStart"]
            blocks[start["contentBlockIndex"]] = {"toolUse": {**start["start"]["toolUse"], "input": ""}}
        if "contentBlockDelta" not in event:
            continue
        delta = event["contentBlockDelta"]["delta"]
        index = event["contentBlockDelta"]["contentBlockIndex"]
        if "text" in delta:
            blocks.setdefault(index, {"text": ""})["text"] += delta["text"]
        elif "toolUse" in delta:
            blocks[index]["toolUse"]["input"] += delta["toolUse"]["input"]
        else:
            blocks.setdefault(index, {"reasoningContent": {"reasoningText": {}}})
            blocks[index]["reasoningContent"]["reasoningText"] |= delta["reasoningContent"]
    for block in blocks.values():
        if "toolUse" in block:
            block["toolUse"]["input"] = json.loads(block["toolUse"]["input"])
    return {"role": "assistant", "content": [blocks[index] for index in sorted(blocks)]}


def loop(client, send, fit=lambda request: request):
    image = {"image": {"format": "png", "source": {"bytes": PIXEL}}}
    messages = [{"role": "user", "content": [{"text": QUESTION}, image]}]
    request = {"modelId": MODEL, "system": SYSTEM, "toolConfig": {"tools": [TOOL]}, "inferenceConfig": {"maxTokens": 9}}
    while True:
        message = send(client, fit({**request, "messages": messages}))
        messages.append(message)
        uses = [block["toolUse"] for block in message["content"] if "toolUse" in block]
        if not uses:
            return messages
        messages.append({"role": "user", "content": [answer(use) for use in uses]})


def answer(use):
    found = output(use["input"]["page"])
    # one of two ways to say it
    content = (
        {"text": found} if use["input"]["page"] % 2 else {"json": {"rows": found.split("\n"), "by": "bob@mailhost.org"}}
    )
    return {"toolResult": {"toolUseId": use["toolUseId"], "content": [content], "status": "success"}}


def judged(server):
    assert server.refusals == []
    assert len(server.bodies) == STEPS + 1
    assert server.leaks() == []
    assert server.extended("messages") >= 0.7
    sent = (block for body in server.bodies for message in body["messages"] for block in message["content"])
    assert any("reasoningContent" in block for block in sent), "valid reasoning is sent back"


@pytest.mark.parametrize(
    ("send", "parallel"),
    [
        pytest.param(whole, 1, marks=pytest.mark.slow),
        (whole, 3),
        (streamed, 1),
        pytest.param(streamed, 3, marks=pytest.mark.slow),
    ],
)
def test_a_guarded_client(send, parallel, client_at):
    # What signed thinking has seen stays whole until a cut, so that steps are large beside the budget.
    budget = 12_000 * parallel
    server = Converse(STEPS, parallel=parallel, budget=budget)
    with serving(server) as address:
        messages = loop(guarded(client_at(address), Stabilizer(budget)), send)
    judged(server)
    assert messages[-1]["content"][-1]["text"] == "All done, ann@example.com."
    blocks = [block for message in messages for block in message["content"]]
    uses = [block["toolUse"] for block in blocks if "toolUse" in block]
    assert len(uses) == STEPS * parallel
    assert all(use["input"]["query"] == "parcels of ann@example.com" for use in uses)
    assert server.bodies[-1]["messages"][0]["content"][1]["image"]["source"]["bytes"].startswith("iVBOR")


@pytest.mark.slow
def test_prompts_extend_the_one_before(client_at):
    server = Converse(STEPS, budget=40_000)  # by a count of its own
    with serving(server) as address:
        loop(guarded(client_at(address), Stabilizer(32_000)), whole)
    assert server.refusals == []
    assert server.extended("messages") >= 0.9


@pytest.mark.parametrize(("send", "parallel"), [pytest.param(whole, 3, marks=pytest.mark.slow), (streamed, 1)])
def test_requests_stabilized_by_hand(send, parallel, client_at):
    budget = BUDGET * parallel
    server = Converse(STEPS, parallel=parallel, budget=budget)
    stabilizer = Stabilizer(budget)

    def fit(request):
        fitted, report = stabilize_request(request, stabilizer)
        assert report.ok, str(report)
        assert report.tokens_after <= budget
        return fitted

    with serving(server) as address:
        messages = loop(client_at(address), send, fit)
    judged(server)
    assert messages[0]["content"][0]["text"] == QUESTION


def test_the_server_finds_what_is_planted(client_at):
    server = Converse(2, budget=10**9)
    with serving(server) as address:
        loop(client_at(address), whole)
    assert server.leaks() == list(PLANTED)


@pytest.mark.parametrize(
    ("trim", "fault"),
    [
        (lambda messages: messages, "Input is too long"),
        (lambda messages: messages[-4:], "must start with a user message"),
        (lambda messages: messages[-3:], "exceeds the number of toolUse blocks"),
        (lambda messages: [*messages[:1], *messages[-1:]], "must alternate"),
    ],
)
def test_the_server_refuses_what_the_api_refuses(trim, fault, client_at):
    server = Converse(STEPS, budget=BUDGET)
    with serving(server) as address, pytest.raises(ClientError):
        loop(client_at(address), whole, lambda request: {**request, "messages": trim(request["messages"])})
    assert fault in server.refusals[0]


def test_a_prompt_that_the_api_finds_too_long_is_sent_once_more_and_shorter(client_at):
    server = Converse(12, budget=4_000, thinks=False)  # reasoning of a shorter prompt fits no longer one
    with serving(server) as address:
        loop(guarded(client_at(address), Stabilizer(8_000)), whole)
    assert server.refusals
    assert all("Input is too long" in refusal for refusal in server.refusals)
    assert server.leaks() == []


def test_other_operations_are_refused_and_other_errors_passed_on(client_at):
    server = Converse(0)
    with serving(server) as address:
        plain = client_at(address)
        client = guarded(plain, Stabilizer(BUDGET))
        with pytest.raises(WireError, match="the guard cannot read invoke_model"):
            client.invoke_model(modelId=MODEL, body=QUESTION)
        assert client.meta is plain.meta
        assert guarded(plain, Stabilizer(BUDGET), on_unreadable=["invoke_model"]).invoke_model
        with pytest.raises(ClientError, match="must start with a user message"):
            client.converse(modelId=MODEL, messages=[])
        with pytest.raises(CheckFailedError, match="requestMetadata"):
            client.converse(
                modelId=MODEL,
                messages=[{"role": "user", "content": [{"text": "Hi"}]}],
                requestMetadata={"ann@example.com": "x"},
            )
        plain.converse(modelId=MODEL, messages=[{"role": "user", "content": [{"text": QUESTION}]}])
    assert "ann@example.com" in server.raw[-1]
    with pytest.raises(ConfigError, match=r"expected boto3\.client\('bedrock-runtime'\), got str"):
        guarded("key", Stabilizer(BUDGET))


@contextmanager
def proxied(server):
    httpx = pytest.importorskip("httpx", reason="httpx is not installed (extra proxy)")
    key = {"authorization": "Bearer bedrock-key"}
    with (
        serving(server) as upstream,
        proxy_at(proxy_app(Guard(Stabilizer(BUDGET)), upstream)) as address,
        httpx.Client(base_url=address, trust_env=False, headers=key, timeout=PATIENCE) as client,
    ):
        yield address, client


@pytest.mark.parametrize("operation", ["converse", "converse-stream"])
def test_the_proxy_guards_clients_that_send_a_key(operation):
    server = Converse(steps=0, thinks=False)
    body = {"messages": [{"role": "user", "content": [{"text": QUESTION}]}], "system": SYSTEM}
    with proxied(server) as (_, client):
        answer = client.post(f"/model/{MODEL.replace(':', '%3A')}/{operation}", json=body)
    assert answer.status_code == 200
    assert server.leaks() == []
    if operation == "converse":
        assert answer.json()["output"]["message"]["content"] == [{"text": "All done, ann@example.com."}]
    else:
        assert b"ann@example.com" in answer.content  # in a frame of Amazon's, whose checksums are written anew


def test_the_proxy_refuses_by_name_what_a_client_signed(client_at):
    server = Converse(steps=0)
    with proxied(server) as (address, _), pytest.raises(ClientError, match=r"signed the request.*ctxguard_bedrock"):
        whole(client_at(address), {"modelId": MODEL, "messages": [{"role": "user", "content": [{"text": QUESTION}]}]})
    assert server.bodies == []
