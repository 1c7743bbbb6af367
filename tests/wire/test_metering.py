"""What providers report is metered, in whole and streamed answers, and the sums are theirs."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import httpx
import pytest
from recordings import RECORDINGS
from scripted_model import ANSWERS, PATHS, STREAMS, Client, Model, question, request
from test_readback import at, filled, read_log, tool

from ctxguard import Stabilizer
from ctxguard.errors import ConfigError
from ctxguard.report.telemetry import Metrics
from ctxguard.wire import Guard, Transport
from ctxguard.wire.metering import Billed
from ctxguard.wire.run import summary

APIS = ("chat", "responses", "anthropic", "gemini")
KINDS = ("input", "cached", "written", "output")

USAGE = RECORDINGS / "usage" / "requests.jsonl.gz"


def metered(metrics):
    return tuple(metrics.get("billed.tokens", kind=kind) for kind in KINDS)


def reported(model):
    """Return what a scripted model has billed: OpenAI and Gemini report no writes."""
    sums = [sum(column) for column in zip(*model.billed, strict=True)]
    return (sums[0], sums[1], sums[2] if model.api == "anthropic" else 0, sums[3])


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("recall", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_every_answer_of_a_run_is_metered_hidden_ones_too(api, recall, streams):
    replies = [*filled(), *([at([read_log]), ["Ann moved it."]] if recall else [["Done."]])]
    model = Model(api, replies, streams=streams)
    guard = Guard(Stabilizer(6_000), recall=recall)
    with httpx.Client(transport=Transport(guard, transport=model.transport())) as http:
        client = Client(api, http, tool, streams=streams)
        client.ask("What does the log say?")
    assert len(model.billed) == len(client.raw) + recall
    assert metered(guard.metrics) == reported(model)
    written = f", {reported(model)[2]:,} written to the cache" if reported(model)[2] else ""
    told = f"{reported(model)[0]:,} input ({reported(model)[1]:,} cached{written}) and {reported(model)[3]:,} output"
    assert f"the provider reported {told} tokens" in list(summary(guard.metrics))


def test_tokens_are_told_apart_by_model_key_and_session():
    guard = Guard(Stabilizer(4_000))
    model = Model("chat", [["Hello."]], usage=lambda number: (10**number, 0, 0, 0))
    with httpx.Client(transport=Transport(guard, transport=model.transport())) as http:
        for key, session, name in (("one", "a", "m"), ("one", "b", "m"), ("two", "a", "m"), ("one", "a", "n")):
            headers = {"authorization": f"Bearer {key}", "x-ctxguard-session": f"secret {session}"}
            body = {**request("chat", [question("chat", "Hi.")]), "model": name}
            http.post(f"http://provider{PATHS['chat']}", json=body, headers=headers)
    lines = [line for line in guard.metrics.text().splitlines() if "billed" in line and 'kind="input"' in line]
    assert sorted(int(line.rpartition(" ")[2]) for line in lines) == [10, 100, 1_000, 10_000]
    assert len({line.partition("session")[0] for line in lines}) == 3
    assert "secret" not in guard.metrics.text()
    assert "Bearer" not in guard.metrics.text()


def test_labels_that_never_end_do_not_fill_the_memory():
    metrics = Metrics()
    for number in range(3_000):
        metrics.add("billed.tokens", model="m", key=str(number), kind="input")
    assert metrics.get("billed.tokens", kind="input") == 3_000
    assert metrics.text().count('kind="input"') <= 1_001


@pytest.mark.parametrize("api", APIS)
def test_what_a_tool_is_given_is_not_taken_for_what_is_billed(api):
    said = [("look_up", {"usage": {"input_tokens": 5_000_000}, "input_tokens": 7, "promptTokenCount": 8})]
    metrics, answer = Metrics(), ANSWERS[api](said, 3, (100, 40, 10, 7))
    for raw in (json.dumps(answer), "".join(STREAMS[api](answer))):
        billed = Billed(metrics)
        billed.feed(raw.encode())
        billed.close()
    assert metrics.get("billed.tokens", kind="input") == 200
    assert metrics.get("billed.tokens", kind="output") == 14


def test_what_is_no_answer_of_a_known_form_is_passed_over():
    metrics = Metrics()
    for raw in (b"\x00\x01binary" * 2_000_000, b"data: " + b"x" * 9_000_000, b"", b"[1, 2]", b"{broken"):
        billed = Billed(metrics)
        for begin in range(0, len(raw), 1_000_000):
            billed.feed(raw[begin : begin + 1_000_000])
        billed.close()
    assert metered(metrics) == (0, 0, 0, 0)


FORMS = {
    "thoughts of Gemini": (
        {"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2, "thoughtsTokenCount": 5}},
        (9, 0, 0, 7),
    ),
    "two names": (
        {"usage": {"prompt_tokens": 9, "input_tokens": 9, "completion_tokens": 2, "output_tokens": 2}},
        (9, 0, 0, 2),
    ),
    "Converse": (
        {"usage": {"inputTokens": 4, "cacheReadInputTokens": 3, "cacheWriteInputTokens": 2, "outputTokens": 1}},
        (9, 3, 2, 1),
    ),
    "Cohere": (
        {"usage": {"billed_units": {"input_tokens": 1}, "tokens": {"input_tokens": 9, "output_tokens": 2}}},
        (9, 0, 0, 2),
    ),
    "nothing": ({"usage": None, "id": "x"}, (0, 0, 0, 0)),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_usage_is_read(form):
    answer, expected = FORMS[form]
    metrics = Metrics()
    billed = Billed(metrics)
    billed.feed(json.dumps(answer).encode())
    billed.close()
    assert metered(metrics) == expected


@pytest.mark.recordings
@pytest.mark.skipif(not USAGE.is_file(), reason="the recorded usage (../shared/data/usage) is not here")
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_metered_sums_are_the_totals_of_the_recorded_usage(streams):
    with gzip.open(USAGE, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    metrics, totals = Metrics(), Counter()
    for row in rows:
        cached = min(row["cached_tokens"] or 0, row["input_tokens"])
        answer = ANSWERS[row["kind"]](["Hello."], 1, (row["input_tokens"], cached, 0, 1))
        raw = "".join(STREAMS[row["kind"]](answer)) if streams else json.dumps(answer)
        billed = Billed(metrics, {"model": row["model"]})
        for begin in range(0, len(raw), 100):
            billed.feed(raw.encode()[begin : begin + 100])
        billed.close()
        totals.update(input=row["input_tokens"], cached=cached, output=1)
    assert len(rows) > 500
    assert metered(metrics) == (totals["input"], totals["cached"], 0, totals["output"])


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("recall", [False, True])
def test_the_headers_of_an_answer_say_what_its_request_cost_with_its_hidden_rounds(api, recall):
    replies = [*filled(), *([at([read_log]), ["Ann moved it."]] if recall else [["Done."]])]
    model, told = Model(api, replies), Counter()
    guard = Guard(Stabilizer(6_000), recall=recall)

    def note(response):
        kinds = {kind: response.headers.get(f"x-ctxguard-billed-{kind}") for kind in KINDS}
        told.update({kind: int(count) for kind, count in kinds.items() if count is not None})

    with httpx.Client(
        transport=Transport(guard, transport=model.transport()), event_hooks={"response": [note]}
    ) as http:
        Client(api, http, tool).ask("What does the log say?")
    assert tuple(told[kind] for kind in KINDS) == metered(guard.metrics) == reported(model)


@pytest.mark.slow
def test_a_share_of_the_conversations_is_held_out_masked_and_whole():
    guard, model = Guard(Stabilizer(3_000), holdout="30%", recall=True), Model("chat", [["Yes."]])
    model.usage = lambda number: (len(model.raw[number - 1]) // 4, 0, 0, 1)
    sizes = []
    with httpx.Client(transport=Transport(guard, transport=model.transport())) as http:
        for talk in range(40):
            client = Client("chat", http, None)
            for turn in range(12):
                client.ask(f"Talk {talk}, {turn}, ann{talk}@corp-mail.net: " + "the ledger of the mill. " * 60)
            sizes.append((len(model.raw[-1]) // 4, len(client.history)))
            assert "corp-mail" not in model.raw[-1]
    whole = [len(model.bodies[12 * talk + 11]["messages"]) == 23 for talk in range(40)]
    assert 4 <= sum(whole) <= 20
    held = guard.metrics.get("held_out")
    assert held == 12 * sum(whole)
    assert guard.metrics.get("billed.answers", group="holdout") == held
    assert guard.metrics.get("billed.answers") == 480
    assert guard.metrics.get("billed.tokens", group="holdout", kind="input") == sum(
        billed[0]
        for talk, is_whole in enumerate(whole)
        if is_whole
        for billed in model.billed[12 * talk : 12 * talk + 12]
    )
    each = guard.metrics.get("billed.tokens", group="holdout", kind="input") / held
    rest = guard.metrics.get("billed.tokens", kind="input") - guard.metrics.get(
        "billed.tokens", group="holdout", kind="input"
    )
    told = f"held out: {held} requests of {each:,.0f} input tokens each, the others {rest / (480 - held):,.0f}"
    assert any(line.startswith(told) for line in summary(guard.metrics)), list(summary(guard.metrics))
    tools = {bool(set(json.dumps(body)) and '"recall"' in json.dumps(body)) for body in model.bodies}
    assert tools == {True, False}


@pytest.mark.parametrize("given", ["5", "-1%", "101%", "some", 0.05, "nan%"])
def test_a_holdout_that_is_no_share_is_refused(given):
    with pytest.raises(ConfigError, match="holdout is a share of the conversations such as '5%'"):
        Guard(Stabilizer(3_000), holdout=given)
