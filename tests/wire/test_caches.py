"""Why a provider's cache served less than before: it expired, the guard cut, the client changed its prompt, or nobody did.

The cache is played here, by characters of what was sent, without any code of ctxguard's.
"""

from __future__ import annotations

import json

import httpx
import pytest
from scripted_model import PAIRS, PATHS, Client, Model, history_of, question, request

from ctxguard import Stabilizer
from ctxguard.tokens import find_counter
from ctxguard.wire import Guard, Transport

APIS = ("chat", "responses", "anthropic", "gemini")
LINE = "Ann wrote that the ledger of the mill was moved to the upper room. "


def shared(one, other):
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


class Cache:
    """Hold the prompts that were answered, by the time of a clock, and serve what is repeated of them."""

    def __init__(self, api, lifetime):
        self.api, self.lifetime, self.now, self.held, self.answers = api, lifetime, 0.0, [], False
        self.model = Model(api, [["Yes."]], usage=self.usage)

    def usage(self, _number):
        body = self.model.bodies[-1]
        fixed = {key: value for key, value in body.items() if key in ("system", "instructions", "tools")}
        text = json.dumps(fixed) + json.dumps(history_of(self.api, body))
        young = [shared(text, other) for at, other in self.held if self.now - at < self.lifetime]
        served = max(young, default=0) // 4 // 128 * 128
        self.held.append((self.now, text))
        served = served if served >= 1024 else 0
        return (len(text) // 4, served, len(text) // 4 - served, 1)


class Talk:
    """A client with a guard and a model behind it; `say` makes the prompt longer by about 700 tokens."""

    def __init__(self, api, monkeypatch, *, budget=60_000, streams=False):
        self.api, self.cache, self.guard = api, Cache(api, 200), Guard(Stabilizer(budget))
        self.cache.model.streams = streams
        self.http = httpx.Client(transport=Transport(self.guard, transport=self.cache.model.transport()))
        self.client = Client(api, self.http, None, streams=streams)
        self.turn = 0
        monkeypatch.setattr("ctxguard.wire.caches.monotonic", lambda: self.cache.now)

    def say(self, times=1):
        for _ in range(times):
            self.turn += 1
            self.cache.now += 10
            self.client.ask(f"{self.turn}. {LINE * 40}")

    def misses(self):
        names = ("expired", "cut", "fixed_parts", "history", "unknown")
        return {name: found for name in names if (found := self.guard.metrics.get("cache.misses", reason=name))}


@pytest.fixture(params=APIS)
def api(request):
    return request.param


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_a_prompt_that_only_grows_misses_nothing(api, monkeypatch, streams):
    talk = Talk(api, monkeypatch, streams=streams)
    talk.say(8)
    assert talk.misses() == {}
    assert talk.guard.metrics.get("billed.tokens", kind="cached") > 10_000


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_an_expired_cache_is_told_from_a_changed_message(api, monkeypatch, streams):
    talk = Talk(api, monkeypatch, streams=streams)
    talk.say(5)
    talk.cache.now += 900
    talk.say(2)
    assert talk.misses() == {"expired": 1}
    before = talk.guard.metrics.get("cache.missed.tokens", reason="expired")
    assert before == talk.cache.model.billed[4][0 if api != "anthropic" else 1] + (
        talk.cache.model.billed[4][2] if api == "anthropic" else 0
    )
    talk.client.history[2] = question(api, f"Something else. {LINE * 40}")
    talk.say(2)
    assert talk.misses() == {"expired": 1, "history": 1}


def test_a_changed_system_prompt_or_tool_is_told_from_a_changed_message(api, monkeypatch):
    talk = Talk(api, monkeypatch)
    path = f"http://provider{PATHS[api]}"
    for turn in range(3):
        talk.say(3)
        body = request(api, [*talk.client.history, question(api, "And?")])
        body["tools"] = json.loads(json.dumps(body["tools"]).replace("Look up.", f"Look up, {turn}."))
        body["tools"] = [{**body["tools"][0], "name": f"look_{turn}"}] if api == "anthropic" else body["tools"]
        talk.http.post(path, json=body)
    assert set(talk.misses()) == {"fixed_parts"}
    assert talk.misses()["fixed_parts"] >= 3


@pytest.mark.parametrize("api", APIS[:3], indirect=True)
def test_a_cut_is_ours(api, monkeypatch):
    talk = Talk(api, monkeypatch, budget=6_000)
    talk.say(20)
    cuts = talk.guard.metrics.get("cuts")
    assert cuts >= 2
    assert talk.misses() == {"cut": cuts}


def test_a_cache_that_the_provider_lost_has_no_reason(api, monkeypatch):
    talk = Talk(api, monkeypatch)
    talk.say(4)
    talk.cache.held.clear()
    talk.say(3)
    assert talk.misses() == {"unknown": 1}


def test_a_moving_cache_marker_changes_nothing_and_an_hour_is_an_hour(monkeypatch):
    talk = Talk("anthropic", monkeypatch)
    talk.cache.lifetime = 3_600
    path, history = f"http://provider{PATHS['anthropic']}", []
    for turn in range(6):
        talk.cache.now += 900
        text = {"type": "text", "text": f"{turn}. {LINE * 60}"}
        history.append({"role": "user", "content": [text]})
        marked = {**text, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
        talk.http.post(
            path, json=request("anthropic", [*history[:-1], {"role": "user", "content": [marked]}], max_tokens=9)
        )
        history.append({"role": "assistant", "content": "Yes."})
    assert talk.misses() == {}


def test_conversations_with_the_same_opening_do_not_disturb_each_other(monkeypatch):
    talk = Talk("chat", monkeypatch)
    others = [Client("chat", talk.http, None) for _ in range(3)]
    for turn in range(5):
        for number, client in enumerate(others):
            talk.cache.now += 10
            client.ask(f"Begin. {LINE * 80}" if not turn else f"{number}, {turn}. {LINE * 40}")
    assert talk.misses() == {}


def test_a_provider_that_never_serves_from_its_cache_is_reported_once(monkeypatch, caplog):
    caplog.set_level("INFO", logger="ctxguard.wire")
    talk = Talk("chat", monkeypatch)
    talk.cache.lifetime = 0
    talk.say(8)
    assert caplog.text.count("tokens less than before") == 1
    talk.cache.lifetime = 200
    talk.say(2)
    talk.cache.held.clear()
    talk.say(2)
    assert caplog.text.count("tokens less than before") == 2


def test_a_server_without_a_cache_is_not_accused():
    answer = {"choices": [{"message": {"role": "assistant", "content": "Yes."}}], "usage": {"prompt_tokens": 9_000}}
    guard = Guard(Stabilizer(60_000))
    upstream = httpx.MockTransport(lambda _: httpx.Response(200, json=answer))
    with httpx.Client(transport=Transport(guard, transport=upstream)) as http:
        for turn in range(1, 4):
            history = [question("chat", LINE * 40)] * (2 * turn - 1)
            http.post(f"http://provider{PATHS['chat']}", json=request("chat", history))
    assert guard.metrics.get("cache.misses") == 0


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_counts_are_anchored_on_what_the_provider_reported(api, streams):
    """This provider counts half as much again as we do, so that prompts of our count would not fit."""
    model, reports = Model(api, [["Yes."]], streams=streams), []

    def reported(_number):
        body = model.bodies[-1]
        return (int(1.5 * count(json.dumps([body.get("tools"), history_of(api, body)]))), 0, 0, 1)

    count, model.usage = find_counter("o200k_base").count, reported
    guard = Guard(Stabilizer(9_000, model="gpt-4o"), on_report=reports.append)
    with httpx.Client(transport=Transport(guard, transport=model.transport())) as http:
        client = Client(api, http, None, streams=streams)
        for turn in range(8 if api == "gemini" else 20):
            client.ask(f"{turn}. {LINE * 40}")
    compared = [report.details["calibration"]["reported"] for report in reports[2:]]
    billed = [billed[0] for billed in model.billed]
    assert compared[:6] == billed[1:7]
    assert set(compared) <= set(billed)  # with what was recalled beside the history, nothing is compared
    assert max(billed) < 9_000
    assert max(report.tokens_after for report in reports) < 6_500
    assert api == "gemini" or guard.metrics.get("cuts") > 1


def test_a_reply_that_is_given_twice_is_anchored_where_it_was_given():
    model, reports = Model("chat", [["Yes."]]), []
    model.usage = lambda number: (1_000 * number, 0, 0, 1)
    guard = Guard(Stabilizer(60_000), on_report=reports.append)
    with httpx.Client(transport=Transport(guard, transport=model.transport())) as http:
        client = Client("chat", http, None)
        client.history = [question("chat", "Begin."), {"role": "assistant", "content": "Yes."}]
        for _ in range(4):
            client.ask(f"The same. {LINE * 40}")
    assert [report.details["calibration"]["reported"] for report in reports[1:]] == [1_000, 2_000, 3_000]


class Named:
    """A client of Gemini's that names a cache with 5,000 tokens, of which the provider counts all that is sent."""

    def __init__(self, budget=12_000, **settings):
        self.reports = []
        self.guard = Guard(Stabilizer(budget), on_report=self.reports.append, **settings)
        self.model = Model("gemini", [["Yes."]], usage=self.usage)
        self.http = httpx.Client(transport=Transport(self.guard, transport=self.model.transport()))
        self.history, self.turn = [], 0

    def usage(self, _number):
        served = 5_000 if "cachedContent" in self.model.bodies[-1] else 0
        return (served + len(self.model.raw[-1]) // 5, served, 0, 1)

    def say(self, name="cachedContents/rules", key="one"):
        self.turn += 1
        self.history.append(question("gemini", f"{self.turn}. {LINE * 40}"))
        body = {"contents": self.history, **({"cachedContent": name} if name else {})}
        answer = self.http.post(f"http://provider{PATHS['gemini']}", json=body, headers={"x-goog-api-key": key})
        assert answer.is_success, answer.text
        self.history.append(answer.json()["candidates"][0]["content"])
        return self.reports[-1].tokens_after


def test_a_cache_that_a_client_of_gemini_names_is_counted_once_its_size_is_known(monkeypatch, caplog):
    monkeypatch.setitem(PAIRS, "gemini", lambda body: None)  # a trail is a content of the user, as what follows it is
    talk = Named()
    first, second = talk.say(), talk.say()
    assert first < 1_000
    assert 5_500 < second < 6_500
    assert "5,000 tokens, which the provider stores" in talk.reports[-1].details["cached content"]
    assert talk.say(name=None) < 3_000
    assert talk.say(key="two") < 4_000, "its size is nobody else's to know"
    for _ in range(20):
        assert talk.say() <= 12_000
    assert talk.reports[-1].cut is not None
    assert all(set(body) <= {"contents", "cachedContent"} for body in talk.model.bodies), "nothing is placed beside it"
    assert talk.model.bodies[-1]["cachedContent"] == "cachedContents/rules"
    assert "the tools, and the cached content that the request names, take 50" in caplog.text
    assert talk.guard.metrics.get("billed.tokens", kind="cached") == 23 * 5_000


def test_a_named_cache_that_is_served_is_no_miss():
    talk = Named(60_000)
    for _ in range(6):
        talk.say()
    assert not talk.guard.metrics.get("cache.misses", reason="unknown")
    assert talk.guard.metrics.get("cache.expected.tokens") == 5 * 5_000


@pytest.mark.parametrize("name", ["cachedContents/rules", None])
def test_no_tool_is_added_beside_a_named_cache_which_the_api_refuses(name):
    talk = Named(recall=True)
    talk.say(name)
    assert ("tools" in talk.model.bodies[-1]) is (name is None)
