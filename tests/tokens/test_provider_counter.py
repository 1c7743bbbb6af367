"""The provider counts what is new, once, before the first stage; a time-out falls back to the estimate and says so."""

from __future__ import annotations

import json
import threading
import time

import pytest
from patience import PATIENCE, until

from ctxguard import Artifact, Stabilizer
from ctxguard.errors import ConfigError
from ctxguard.tokens import anthropic_counter, find_counter

anthropic = pytest.importorskip("anthropic", reason="the provider's own counter: anthropic is not installed")
try:
    import httpx2 as httpx  # the SDK's client since its version 2
except ImportError:
    import httpx

MODEL = "claude-sonnet-4-5"
LONG = "A sentence that is long enough to be asked for. " * 8
TOOL = {"name": "look", "description": "Look.", "input_schema": {"type": "object", "properties": {}}}


class Endpoint:
    """Answer `count_tokens` as the API does: ten tokens a word, seven of framing, five hundred for tools."""

    def __init__(self, *, answers=True, status=200):
        self.asked, self.answers, self.status = [], threading.Event(), status
        if answers:
            self.answers.set()

    def __call__(self, request):
        self.answers.wait(PATIENCE)
        body = json.loads(request.content)
        text = body["messages"][0]["content"]
        self.asked.append("tools" if "tools" in body else text)
        tokens = 7 + (1 if text == "." else 10 * len(text.split())) + 500 * ("tools" in body)
        return httpx.Response(self.status, json={"input_tokens": tokens})

    async def asynchronously(self, request):
        return self(request)


def client(endpoint):
    http = httpx.Client(transport=httpx.MockTransport(endpoint))
    return anthropic.Anthropic(api_key="none", http_client=http, max_retries=0)


def history(*more):
    return [Artifact("system", "You help."), Artifact("user", LONG), *more]


def test_the_providers_count_is_used_and_asked_for_once():
    endpoint = Endpoint()
    stabilizer = Stabilizer(20_000, model=MODEL, counter=anthropic_counter(client(endpoint)))
    first = stabilizer.stabilize(history()).report
    assert first.tokens_after >= 10 * len(LONG.split())
    assert endpoint.asked == [".", LONG]
    assert first.details["count_tokens"] == "1 new items were counted by the provider"
    assert "counted by the provider" in first.accuracy
    again = stabilizer.stabilize(history(Artifact("assistant", "Yes."), Artifact("user", "more " + LONG))).report
    assert endpoint.asked[2:] == [".", "more " + LONG]
    assert again.tokens_after > first.tokens_after + 10 * len(LONG.split())
    assert "count_tokens" not in stabilizer.stabilize(history()).report.details


async def test_an_async_client_counts_for_astabilize():
    endpoint = Endpoint()
    http = httpx.AsyncClient(transport=httpx.MockTransport(endpoint.asynchronously))
    own = anthropic.AsyncAnthropic(api_key="none", http_client=http, max_retries=0)
    stabilizer = Stabilizer(20_000, model=MODEL, counter=anthropic_counter(own))
    result = await stabilizer.astabilize(history(), tools=[TOOL])
    assert set(endpoint.asked) == {".", LONG, "tools"}
    assert result.report.tokens_after >= 10 * len(LONG.split()) + 500


def test_an_async_client_under_stabilize_falls_back_and_says_why():
    own = anthropic.AsyncAnthropic(api_key="none")
    report = Stabilizer(20_000, model=MODEL, counter=anthropic_counter(own)).stabilize(history()).report
    assert "use astabilize()" in report.details["count_tokens"]
    assert report.tokens_after == estimated(history())


def estimated(artifacts):
    return Stabilizer(20_000, model=MODEL).stabilize(artifacts).report.tokens_after


def test_tools_are_counted_with_the_prompts_that_they_bring():
    endpoint = Endpoint()
    stabilizer = Stabilizer(20_000, model=MODEL, counter=anthropic_counter(client(endpoint)))
    without = stabilizer.stabilize(history()).report.tokens_after
    assert stabilizer.stabilize(history(), tools=[TOOL]).report.tokens_after == without + 500
    stabilizer.stabilize(history(), tools=[TOOL])
    assert endpoint.asked.count("tools") == 1


@pytest.mark.parametrize(
    ("endpoint", "timeout", "said"),
    [(Endpoint(answers=False), 0.1, "no answer within 0.1 s"), (Endpoint(status=500), PATIENCE, "500")],
    ids=["late", "broken"],
)
def test_where_the_provider_does_not_answer_the_estimate_stands_and_the_report_says_so(endpoint, timeout, said):
    stabilizer = Stabilizer(20_000, model=MODEL, counter=anthropic_counter(client(endpoint), timeout=timeout))
    report = stabilizer.stabilize(history()).report
    assert said in report.details["count_tokens"]
    assert report.tokens_after == estimated(history())
    endpoint.answers.set()  # an answer that comes late must not change a count that was used
    assert until(lambda: endpoint.asked)
    time.sleep(0.2)
    assert stabilizer.stabilize(history()).report.tokens_after == report.tokens_after


def test_a_dry_run_asks_nothing_and_settles_nothing():
    endpoint = Endpoint()
    stabilizer = Stabilizer(20_000, model=MODEL, counter=anthropic_counter(client(endpoint)))
    same = history()
    assert stabilizer.plan(same).tokens_after == estimated(history())
    assert endpoint.asked == []
    assert stabilizer.stabilize(same).report.tokens_after >= 10 * len(LONG.split())


def test_short_texts_are_estimated():
    endpoint = Endpoint()
    stabilizer = Stabilizer(20_000, model=MODEL, counter=anthropic_counter(client(endpoint)))
    short = [Artifact("user", "Hello there.")]
    assert stabilizer.stabilize(short).report.tokens_after == estimated(short)
    assert endpoint.asked == []


def test_a_model_has_to_be_named_once():
    counter = anthropic_counter(client(Endpoint()))
    report = Stabilizer(20_000, counter=counter).stabilize(history()).report
    assert "count_tokens needs the model's name" in report.details["count_tokens"]
    with pytest.raises(ConfigError, match="the counter is for claude-opus-5, not for"):
        find_counter(anthropic_counter(client(Endpoint()), model="claude-opus-5"), model=MODEL)


def test_what_is_no_client_is_refused():
    with pytest.raises(ConfigError, match=r"the client is an anthropic\.Anthropic"):
        anthropic_counter("sk-key")
