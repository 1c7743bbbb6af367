"""The guardrail in LiteLLM's own proxy, between the official clients and a strict provider."""

from __future__ import annotations

import json
import os
import warnings

import pytest
from patience import PATIENCE
from wire_server import WireProvider, provider_at, proxy_at

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # nothing is loaded from elsewhere
pytestmark = pytest.mark.filterwarnings("ignore")  # LiteLLM's own, and those of what it is built on
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("litellm", reason="litellm is not installed")
    pytest.importorskip("apscheduler", reason="litellm's proxy is not installed (litellm[proxy])")
    from litellm.proxy import proxy_server

openai = pytest.importorskip("openai", reason="openai is not installed")
anthropic = pytest.importorskip("anthropic", reason="anthropic is not installed")

MAIL = "ann@example.com"
PLANTED = "@example.com"
ROWS = "\n".join(f"row {number}: the order left the warehouse, mail bob{number}@example.com" for number in range(12))
STEPS = 12
BUDGET = 2_500
CONFIG = """
model_list:
  - model_name: m
    litellm_params: {model: openai/m, api_base: "ADDRESS/v1", api_key: none}
  - model_name: claude
    litellm_params: {model: anthropic/claude-m, api_base: "ADDRESS", api_key: none}
litellm_settings: {drop_params: true, num_retries: 0}
router_settings: {num_retries: 0, disable_cooldowns: true}
guardrails:
  - guardrail_name: ctxguard
    litellm_params:
      guardrail: ctxguard_litellm.Guard
      mode: [pre_call, post_call]
      default_on: true
      budget: BUDGET
      counter: o200k_base
"""


@pytest.fixture(scope="module")
def provider():
    return WireProvider(steps=0)


@pytest.fixture(scope="module")
def address(provider, tmp_path_factory):
    with provider_at(provider) as upstream:
        config = tmp_path_factory.mktemp("litellm") / "config.yaml"
        config.write_text(CONFIG.replace("ADDRESS", upstream).replace("BUDGET", str(BUDGET)), encoding="utf-8")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CONFIG_FILE_PATH", str(config))
            patch.setenv("LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY", "true")  # nobody else reaches it
            with proxy_at(proxy_server.app) as proxy:
                yield proxy


@pytest.fixture
def client(provider, address):
    provider.bodies.clear()
    provider.refusals.clear()
    provider.steps = provider.left = 0
    with openai.OpenAI(base_url=f"{address}/v1", api_key="sk-1", max_retries=0, timeout=PATIENCE) as made:
        yield made


def judge(provider):
    assert provider.refusals == []
    assert PLANTED not in json.dumps(provider.bodies)
    assert max(map(provider.tokens, provider.bodies)) <= BUDGET


@pytest.mark.parametrize(("stream", "parallel"), [(False, 1), (True, 3)])
def test_a_tool_loop(client, provider, stream, parallel):
    provider.steps = provider.left = STEPS
    provider.parallel = parallel
    look_up = {
        "name": "look_up",
        "description": f"Ask help{PLANTED}",
        "parameters": {"type": "object", "properties": {}},
    }
    history = [{"role": "system", "content": f"Serve boss{PLANTED}."}, {"role": "user", "content": f"Find {MAIL}."}]
    settings = {"model": "m", "tools": [{"type": "function", "function": look_up}]}
    while True:
        if stream:
            with client.chat.completions.stream(messages=history, **settings) as events:
                for _ in events:
                    pass
            message = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(messages=history, **settings).choices[0].message
        if not message.tool_calls:
            break
        assert all(json.loads(call.function.arguments)["query"] == MAIL for call in message.tool_calls)
        calls = [
            {"id": c.id, "type": "function", "function": {"name": "look_up", "arguments": c.function.arguments}}
            for c in message.tool_calls
        ]
        history.append({"role": "assistant", "content": None, "tool_calls": calls})
        history += [{"role": "tool", "tool_call_id": call["id"], "content": ROWS} for call in calls]
    assert message.content == f"All done, {MAIL}."
    assert len(provider.bodies) == STEPS + 1
    judge(provider)


@pytest.mark.parametrize("stream", [False, True])
def test_responses(client, provider, stream):
    settings = {"model": "m", "input": [{"role": "user", "content": f"Find {MAIL}."}]}
    if stream:
        text = ""
        for event in client.responses.create(**settings, stream=True):
            text += event.delta if event.type == "response.output_text.delta" else ""
    else:
        text = client.responses.create(**settings).output_text
    assert text == f"All done, {MAIL}."
    judge(provider)


@pytest.mark.parametrize("stream", [False, True])
def test_messages(client, provider, address, stream):
    settings = {"model": "claude", "max_tokens": 9, "messages": [{"role": "user", "content": f"Find {MAIL}."}]}
    with anthropic.Anthropic(base_url=address, api_key="sk-1", max_retries=0, timeout=PATIENCE) as messages:
        if stream:
            with messages.messages.stream(**settings) as events:
                message = events.get_final_message()
        else:
            message = messages.messages.create(**settings)
    assert message.content[-1].text == f"All done, {MAIL}."
    judge(provider)


def test_what_does_not_fit_is_refused_and_nothing_is_sent(client, provider):
    with pytest.raises(openai.BadRequestError, match="the mandatory messages need"):
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "word " * 5_000}])
    assert provider.bodies == []


def test_what_cannot_be_read_is_refused_and_nothing_is_sent(client, provider):
    with pytest.raises(openai.PermissionDeniedError, match="ctxguard cannot read POST requests"):
        client.embeddings.create(model="m", input=f"Find {MAIL}.")
    assert provider.bodies == []


def test_a_guard_that_runs_behind_the_call_alone_is_refused():
    from ctxguard.errors import ConfigError
    from ctxguard_litellm import Guard

    with pytest.raises(ConfigError, match=r"mode must be \[pre_call, post_call\]"):
        Guard(guardrail_name="g", event_hook="post_call", default_on=True)


async def test_it_observes():
    from ctxguard import Stabilizer
    from ctxguard_litellm import Guard

    reports = []
    guard = Guard(
        Stabilizer(BUDGET, mode="observe"),
        on_report=reports.append,
        guardrail_name="shadow",
        event_hook=["pre_call", "post_call"],
        default_on=True,
    )
    data = {"model": "m", "messages": [{"role": "user", "content": f"Find {MAIL}."}], "litellm_call_id": "1"}
    sent = await guard.async_pre_call_hook(None, None, dict(data), "acompletion")
    assert sent["messages"] == data["messages"]
    assert [report.observed for report in reports] == [True]
    answer = object()
    assert await guard.async_post_call_success_hook(data, None, answer) is answer
    unread = {"model": "m", "input": MAIL}
    assert await guard.async_pre_call_hook(None, None, dict(unread), "aembedding") == unread


async def test_no_history_is_kept_until_its_answer_comes():
    from ctxguard import Stabilizer
    from ctxguard_litellm import Guard

    guard = Guard(Stabilizer(BUDGET), guardrail_name="g", event_hook=["pre_call", "post_call"], default_on=True)
    data = {"model": "m", "messages": [{"role": "user", "content": f"Find {MAIL}."}], "litellm_call_id": "1"}
    await guard.async_pre_call_hook(None, None, data, "acompletion")
    kept = guard._of(data)
    assert (kept.body, kept.report) == (b"", None)
    assert kept.reply.text("Write to <EMAIL_1>.") == f"Write to {MAIL}."
