"""A guarded agent under Prefect, with the server that it starts itself. What it prints last is JSON.

Usage: prefect_program.py FOLDER. A flow fails at each request in turn, and is tried again.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from prefect import flow
from prefect.context import FlowRunContext, TaskRunContext
from pydantic_ai import Agent
from pydantic_ai.durable_exec.prefect import PrefectDurability
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from scripted_provider import BUDGET, KEY, REQUESTS, TASK, Provider, look_up, mailer
from watched_store import WatchedStore

from ctxguard import Stabilizer, warm
from ctxguard.pii import Vault
from ctxguard_pydantic_ai import DurableContextGuard

FOLDER = Path(sys.argv[1])


def crash():
    raise ConnectionError("the process was lost before the task was recorded")


def in_workflow_code():
    return FlowRunContext.get() is not None and TaskRunContext.get() is None


provider = Provider(FOLDER / "log", crash)
vaults = Vault(WatchedStore(FOLDER / "vault", in_workflow_code), key=KEY)
guard = DurableContextGuard(Stabilizer(BUDGET), vault=lambda ctx: vaults.session(ctx.deps))
model = OpenAIChatModel("gpt-5.5", provider=OpenAIProvider(openai_client=provider.client()))
tools = [look_up, mailer(FOLDER)]
clerk = Agent(model, name="clerk", deps_type=str, tools=tools, capabilities=[guard, PrefectDurability()])


@flow(retries=1)
async def run(task: str) -> str:
    return (await clerk.run(task, deps="ada")).output


async def main():
    runs = []
    for lost in (None, *range(1, REQUESTS + 1)):
        provider.begin(FOLDER / f"log{lost}", lost)
        output = await run(TASK)
        runs.append((output, provider.bodies()))
    print(json.dumps({"runs": runs}))


if __name__ == "__main__":
    warm()
    asyncio.run(main())
