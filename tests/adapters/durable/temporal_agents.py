"""Two guarded agents for Temporal, one of each framework. The workflows import this module passed through."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import agents
import pydantic_ai
from pydantic_ai.durable_exec.temporal import TemporalDurability
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from scripted_provider import BUDGET, KEY, Provider, look_up, mailer
from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.openai_agents.workflow import activity_as_tool
from temporalio.workflow import ActivityConfig
from watched_store import WatchedStore

from ctxguard import Stabilizer
from ctxguard.pii import Vault
from ctxguard_openai_agents import call_model_input_filter, with_input_filter, with_restored_values
from ctxguard_pydantic_ai import ContextGuard, DurableContextGuard

FOLDER = Path(os.environ["CTXGUARD_DURABLE_TESTS"])
REFUSALS = ["BudgetExceededError", "CheckFailedError", "ConfigError", "HistoryError"]
STEPS = ActivityConfig(
    start_to_close_timeout=timedelta(seconds=240),
    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=10), non_retryable_error_types=REFUSALS),
)


def crash():
    raise ConnectionError("the worker was lost before the step was recorded")


provider = Provider(FOLDER / "log", crash)
vaults = Vault(WatchedStore(FOLDER / "vault", workflow.in_workflow), key=KEY)
send_mail = mailer(FOLDER)


def clerk_with(name, guard):
    model = OpenAIChatModel("gpt-5.5", provider=OpenAIProvider(openai_client=provider.client()))
    capabilities = [guard, TemporalDurability(activity_config=STEPS)]
    return pydantic_ai.Agent(model, name=name, deps_type=str, tools=[look_up, send_mail], capabilities=capabilities)


def vault_of(ctx):
    return vaults.session(ctx.deps)


clerk = clerk_with("clerk", DurableContextGuard(Stabilizer(BUDGET), vault=vault_of))
small_clerk = clerk_with("small_clerk", DurableContextGuard(Stabilizer(10), vault=vault_of))
plain_clerk = clerk_with("plain_clerk", ContextGuard(Stabilizer(BUDGET)))


class OneModel(agents.ModelProvider):
    def get_model(self, model_name):
        return agents.OpenAIChatCompletionsModel("gpt-5.5", provider.client())


models = with_input_filter(
    with_restored_values(OneModel()),
    call_model_input_filter(Stabilizer(BUDGET), vault=lambda _: vaults.session("ada")),
)
activities = [activity.defn(look_up), activity.defn(send_mail)]
sdk_clerk = agents.Agent(name="clerk", tools=[activity_as_tool(one, **STEPS) for one in activities])
