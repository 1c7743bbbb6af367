"""The input window of a model: one table decides, libraries fill in, and the report says who said it."""

from __future__ import annotations

import importlib
import json

import pytest

import ctxguard
from ctxguard import Artifact, Stabilizer
from ctxguard.errors import ConfigError
from ctxguard.tokens.families import FALLBACK, Window, window_of
from ctxguard.wire.guard import Guard, WireRequest
from tests.test_cli import cli

PUBLISHED = {
    128_000: "gpt-4o gpt-4o-mini gpt-4o-2024-08-06 chatgpt-4o-latest gpt-4-turbo gpt-5-chat-latest gpt-5.1-chat-latest "
    "gpt-5.3-chat-latest gpt-5.3-codex-spark o1-mini o1-preview deepseek-chat deepseek-reasoner",
    272_000: "gpt-5 gpt-5-mini gpt-5-nano gpt-5-codex gpt-5-pro gpt-5-2025-08-07 gpt-5.1 gpt-5.1-codex-max gpt-5.2 "
    "gpt-5.2-codex gpt-5.3-codex gpt-5.4-mini gpt-5.4-nano",
    922_000: "gpt-5.4 gpt-5.4-pro gpt-5.5 gpt-5.6 gpt-5.6-sol gpt-6-sol gpt-6.1-terra",
    1_047_576: "gpt-4.1 gpt-4.1-mini gpt-4.1-nano-2025-04-14",
    8_192: "gpt-4 gpt-4-0613",
    32_768: "gpt-4-32k gemini-2.5-flash-image",
    16_385: "gpt-3.5-turbo",
    131_072: "gpt-oss-120b",
    200_000: "o1 o1-pro o3 o3-mini o4-mini codex-mini-latest claude-3-5-sonnet-20241022 claude-3-haiku-20240307 "
    "claude-opus-4-1-20250805 claude-sonnet-4-20250514 claude-sonnet-4-5 claude-sonnet-4-5-20250929 claude-opus-4-5 "
    "claude-haiku-4-5 claude-haiku-4-5-20251001",
    1_000_000: "claude-opus-4-6 claude-sonnet-4-6 claude-opus-4.7 claude-sonnet-5 claude-opus-5-5 claude-haiku-5-5 "
    "claude-fable-5 deepseek-v4-pro",
    1_048_576: "gemini-2.0-flash gemini-2.5-pro gemini-2.5-flash gemini-2.5-flash-lite gemini-3-pro-preview "
    "gemini-3.1-pro-preview gemini-3.5-flash gemini-flash-latest",
    262_144: "qwen3-coder-plus qwen3-coder-480b-a35b-instruct",
}
ROUTED = ("openai/{}", "azure/{}", "models/{}", "openrouter/some/{}")
BEDROCK = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"


@pytest.mark.parametrize(("tokens", "names"), PUBLISHED.items())
def test_the_table_has_the_published_windows(tokens, names):
    for name in names.split():
        assert (int(window_of(name)), window_of(name).source) == (tokens, "table"), name
        assert {window_of(route.format(name)) for route in ROUTED} == {tokens}


def test_a_model_is_known_by_its_provider_and_region_too():
    assert window_of(BEDROCK) == window_of(f"bedrock/{BEDROCK}") == 200_000


def recorded():
    """Walk what the installed packages say of models in our table: name, input tokens, output tokens, package."""
    for package in ("langchain_openai", "langchain_anthropic", "langchain_google_genai"):
        try:
            profiles = importlib.import_module(f"{package}.data._profiles")._PROFILES
        except ImportError:
            continue
        yield from ((n, p.get("max_input_tokens"), p.get("max_output_tokens"), package) for n, p in profiles.items())
    try:
        from genai_prices import data_snapshot
    except ImportError:
        return
    own = [p for p in data_snapshot.get_snapshot().providers if p.id in ("openai", "anthropic", "google")]
    yield from ((model.id, model.context_window, None, p.id) for p in own for model in p.models)


KNOWN_DIFFERENCES = {
    "gpt-5-chat-latest": "OpenAI's page says 128,000; LangChain has the window of gpt-5",
    "gpt-5.1-chat-latest": "as above",
    "gpt-5.2-chat-latest": "as above",
    "gpt-4-32k": "genai-prices rounds",
    "gpt-4.1": "genai-prices rounds",
    "gpt-4.1-mini": "genai-prices rounds",
    "gpt-4.1-nano": "genai-prices rounds",
    "gpt-5.5": "genai-prices rounds the window of 1,050,000",
    "gpt-5.5-pro": "genai-prices rounds the window of 1,050,000",
    "gemini-1.5-pro": "Google's page says 2,097,152",
    "gemini-pro-1.5": "genai-prices has the older of two limits",
    "gemini-2.5-flash-image": "genai-prices has the window of the text model",
}


@pytest.mark.slow
def test_the_installed_libraries_differ_in_nothing_that_is_not_explained():
    compared = 0
    for name, tokens, _, package in recorded():
        window = window_of(name)
        if window.source != "table" or not tokens or name in KNOWN_DIFFERENCES:
            continue
        compared += 1
        # the whole window where libraries know no other, of which 128,000 tokens are output; Google's figure rounded
        assert tokens in (window, window + 128_000, window // 1_000_000 * 1_000_000), f"{package}: {name}"
    assert compared > 60 or not list(recorded())


def test_what_nobody_knows_has_a_fallback_that_says_so():
    assert window_of("our-own-model").to_dict() == {"tokens": FALLBACK, "source": "fallback", "resolved": False}
    assert window_of("our-own-model", 70_000).to_dict() == {"tokens": 70_000, "source": "framework", "resolved": True}
    assert window_of("gpt-5", 400_000) == 272_000
    pytest.importorskip("genai_prices")
    assert window_of("moonshotai/kimi-k2.5").to_dict() == {
        "tokens": 262_144,
        "source": "genai-prices",
        "resolved": True,
    }


@pytest.mark.parametrize("tokens", [0, -5, 1.5, True])
def test_a_window_is_a_number_of_tokens(tokens):
    with pytest.raises(ConfigError, match="window"):
        Window(tokens)


HISTORY = [Artifact("user", "hello")]


def test_a_share_is_of_the_window_of_the_model():
    result = Stabilizer("50%", model="gpt-5", headroom=0).stabilize(HISTORY)
    assert result.report.budget == 136_000
    assert result.report.details["window"] == {"tokens": 272_000, "source": "table", "resolved": True}
    named = Stabilizer("50%", model="gpt-5", headroom=0).stabilize(HISTORY, window=1_000).report
    assert (named.budget, named.details["window"]["source"]) == (500, "caller")
    guarded = ctxguard.guard([{"role": "user", "content": "hello"}], budget="50%", model="gpt-5", headroom=0)
    assert guarded.report.budget == 136_000


def test_the_model_that_the_stabilizer_names_comes_before_the_name_of_a_deployment():
    import ctxguard_openai

    share = Stabilizer("80%", model="gpt-4", headroom=0, counter="estimate")
    body = {"model": "our-deployment", "messages": [{"role": "user", "content": "hello"}]}
    assert ctxguard_openai.stabilize_request(body, share)[1].budget == 6_553
    sent = WireRequest("POST", "/v1/chat/completions", {}, json.dumps(body).encode())
    assert Guard(share).prepare(sent).budget == 6_553


def budgets(model):
    """Return the budget of the same share in the adapters for requests and on the wire."""
    import ctxguard_anthropic
    import ctxguard_openai

    share = Stabilizer("80%", headroom=0)
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}]}
    yield ctxguard_openai.stabilize_request(body, share)[1].budget
    yield ctxguard_openai.stabilize_request({"model": model, "input": "hello"}, share)[1].budget
    yield ctxguard_anthropic.stabilize_request({**body, "max_tokens": 9}, share)[1].budget
    contents = [{"role": "user", "parts": [{"text": "hello"}]}]
    paths = {
        "/v1/chat/completions": body,
        "/v1/responses": {"model": model, "input": "hello"},
        "/v1/messages": {**body, "max_tokens": 9},
        f"/v1beta/models/{model}:generateContent": {"contents": contents},
        f"/openai/deployments/{model}/chat/completions": {"messages": body["messages"]},
    }
    guard = Guard(share)
    for path, sent in paths.items():
        yield guard.prepare(WireRequest("POST", path, {}, json.dumps(sent).encode())).budget


@pytest.mark.parametrize(("model", "tokens"), [("gpt-5", 217_600), ("claude-sonnet-4-5", 160_000), ("own", 102_400)])
def test_the_same_share_is_the_same_budget_everywhere(model, tokens):
    assert set(budgets(model)) == {tokens}


def test_a_request_that_names_no_model_gets_the_fallback_on_the_wire():
    body = json.dumps({"messages": [{"role": "user", "content": "hello"}]}).encode()
    prepared = Guard(Stabilizer("80%", headroom=0)).prepare(WireRequest("POST", "/v1/chat/completions", {}, body))
    assert prepared.report.details["window"]["resolved"] is False


def doors_without_a_model(configured):
    """Return what a program can call with a budget of `80%` where no model is named."""
    import ctxguard_anthropic
    import ctxguard_bedrock
    import ctxguard_google
    import ctxguard_langchain
    import ctxguard_openai

    share, said = Stabilizer("80%"), [{"role": "user", "content": "hello"}]
    return {
        "stabilize": lambda: share.stabilize(HISTORY),
        "plan": lambda: share.plan(HISTORY),
        "session": lambda: share.session().append(HISTORY[0]),
        "guard": lambda: ctxguard.guard(said, budget="80%"),
        "from_config": lambda: Stabilizer.from_config(configured).stabilize(HISTORY),
        "OpenAI": lambda: ctxguard_openai.stabilize_messages(said, share),
        "Anthropic": lambda: ctxguard_anthropic.stabilize_messages(said, share),
        "Bedrock": lambda: ctxguard_bedrock.stabilize_messages([{"role": "user", "content": [{"text": "a"}]}], share),
        "Gemini": lambda: ctxguard_google.stabilize_messages([{"role": "user", "parts": [{"text": "a"}]}], share),
        "LangChain": lambda: ctxguard_langchain.ContextGuard(share).invoke([("user", "hello")]),
    }


def test_a_share_without_a_model_is_refused_in_the_same_words_through_every_door(tmp_path):
    configured, session = tmp_path / "own.yaml", tmp_path / "session.json"
    configured.write_text("stabilizer: {budget: 80%}\n")
    session.write_text('[{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hello"}]')
    said = {}
    for name, call in doors_without_a_model(configured).items():
        with pytest.raises(ConfigError) as caught:
            call()
        said[name] = str(caught.value)
    for command in ("stabilize", "check", "replay", "bench"):
        run = cli(command, session, "--budget", "80%")
        assert run.returncode == 2
        said[command] = run.stderr.splitlines()[-1].removeprefix("ctxguard: ")
    assert len(set(said.values())) == 1, said
    assert "name the model (model=… or --model) or the window (window=… or --window)" in said["stabilize"]
