"""A guarded agent under DBOS, in a process that can crash. What it prints last is JSON.

Usage: dbos_program.py FOLDER durable|plain|agents START|RESUME|FORKS [N]. At its Nth request, the process ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from dbos import DBOS, SetWorkflowID
from scripted_provider import BUDGET, KEY, TASK, Provider, look_up, mailer
from watched_store import WatchedStore

from ctxguard import Stabilizer, warm
from ctxguard.pii import Vault

FOLDER, WAY, ACTION = Path(sys.argv[1]), *sys.argv[2:4]
provider = Provider(FOLDER / "log", lambda: os._exit(3), *map(int, sys.argv[4:]))


def in_workflow_code():
    return DBOS.workflow_id is not None and DBOS.step_id is None


DBOS(config={"name": "clerk", "system_database_url": f"sqlite:///{FOLDER}/dbos", "application_version": "1"})
vaults = Vault(WatchedStore(FOLDER / "vault", in_workflow_code), key=KEY)
stabilizer = Stabilizer(BUDGET)
send_mail = DBOS.step(name="send_mail")(mailer(FOLDER))

if WAY == "agents":
    from agents import Agent, OpenAIChatCompletionsModel, function_tool, set_tracing_disabled
    from dbos_openai_agents import DBOSRunner

    from ctxguard_openai_agents import call_model_input_filter, with_input_filter, with_restored_values

    set_tracing_disabled(True)
    model = with_restored_values(OpenAIChatCompletionsModel("gpt-5.5", provider.client()))
    guarded = with_input_filter(model, call_model_input_filter(stabilizer, vault=lambda _: vaults.session("ada")))
    clerk = Agent(name="clerk", model=guarded, tools=[function_tool(look_up), function_tool(send_mail)])

    @DBOS.workflow()
    async def run(task: str) -> str:
        return (await DBOSRunner.run(clerk, task)).final_output

else:
    from pydantic_ai import Agent
    from pydantic_ai.durable_exec.dbos import DBOSDurability
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from ctxguard_pydantic_ai import ContextGuard, DurableContextGuard

    settings = {"vault": lambda ctx: vaults.session(ctx.deps)}
    guard = DurableContextGuard(stabilizer, **settings)
    if WAY == "plain":
        guard = ContextGuard(stabilizer, restore=True, **settings)
    model = OpenAIChatModel("gpt-5.5", provider=OpenAIProvider(openai_client=provider.client()))
    tools = [look_up, send_mail]
    clerk = Agent(model, name="clerk", deps_type=str, tools=tools, capabilities=[guard, DBOSDurability()])

    @DBOS.workflow()
    async def run(task: str) -> str:
        return (await clerk.run(task, deps="ada")).output


async def main():
    if ACTION == "START":
        with SetWorkflowID("one"):
            await DBOS.start_workflow_async(run, TASK)
    done = {"output": await (await DBOS.retrieve_workflow_async("one")).get_result(), "forks": []}
    steps = await DBOS.list_workflow_steps_async("one") if ACTION == "FORKS" else []
    for step in steps:
        number = step["function_id"]
        provider.begin(FOLDER / f"log{number}")
        output = await (await DBOS.fork_workflow_async("one", number)).get_result()
        left = sum("model" in later["function_name"] for later in steps if later["function_id"] >= number)
        done["forks"].append((output, left, provider.bodies()))
    print(json.dumps(done))


if __name__ == "__main__":
    warm()
    DBOS.launch()
    asyncio.run(main())
    DBOS.destroy()
