"""Google counts what is new, once; a time-out falls back to the estimate and says so. Against a server on loopback."""

from __future__ import annotations

import threading
import time

import pytest
from cloud_server import serving, tokens_of
from gemini_server import Gemini
from patience import PATIENCE, until

from ctxguard import Artifact, Stabilizer
from ctxguard.errors import ConfigError
from ctxguard.tokens import google_counter

genai = pytest.importorskip("google.genai", reason="google-genai is not installed (extra google)")
MODEL = "gemini-3-pro"
LONG = "A sentence that is long enough to be asked for. " * 8
TOOL = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture
def server():
    return Gemini()


@pytest.fixture
def client(server):
    with serving(server) as address:
        client = genai.Client(api_key="none", http_options=genai.types.HttpOptions(base_url=address))
        yield client
        client._api_client._httpx_client.close()


def asked(server):
    return [body["contents"][0]["parts"][0]["text"] for body in server.counted]


def history(*more):
    return [Artifact("system", "You help."), Artifact("user", LONG), *more]


def test_the_count_of_google_is_used_and_asked_for_once(server, client):
    stabilizer = Stabilizer(20_000, model=MODEL, counter=google_counter(client))
    report = stabilizer.stabilize(history(), tools=[TOOL]).report
    assert report.tokens_after >= tokens_of({"": LONG})
    assert asked(server) == [".", LONG], "tools are estimated"
    assert report.details["count_tokens"] == "1 new items were counted by the provider"
    assert "tools" in report.accuracy
    stabilizer.stabilize(history(Artifact("assistant", "Yes."), Artifact("user", "more " + LONG)))
    assert asked(server) == [".", LONG, ".", "more " + LONG]


async def test_an_async_client_is_awaited(server, client):
    stabilizer = Stabilizer(20_000, model=MODEL, counter=google_counter(client.aio))
    report = (await stabilizer.astabilize(history())).report
    await client._api_client._async_httpx_client.aclose()
    assert report.details["count_tokens"] == "1 new items were counted by the provider"
    assert asked(server) == [".", LONG]


def test_a_time_out_falls_back_to_the_estimate_and_says_so(server, client):
    answers = threading.Event()
    server.delay = lambda: answers.wait(PATIENCE)
    stabilizer = Stabilizer(20_000, model=MODEL, counter=google_counter(client, timeout=0.1))
    try:
        report = stabilizer.stabilize(history()).report
    finally:
        answers.set()
    assert report.tokens_after == Stabilizer(20_000, model=MODEL, headroom=0).stabilize(history()).report.tokens_after
    assert "estimate" in report.details["count_tokens"]
    # the questions go on in their thread, and their connections end with them
    assert until(lambda: len(asked(server)) == 2)
    time.sleep(0.2)


def test_what_is_no_client_is_refused():
    with pytest.raises(ConfigError, match=r"google\.genai\.Client or its aio, not str"):
        google_counter("key")
