"""A streamed agent under DBOS that reads a shortened result back; stores and the vault are used in steps alone.

Usage: dbos_streams.py FOLDER.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from dbos import DBOS
from pydantic_ai import Agent, Tool
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from scripted_provider import KEY, PEOPLE
from watched_store import WatchedStore

from ctxguard import Stabilizer
from ctxguard.pii import Vault
from ctxguard.policies import agent_stages
from ctxguard_pydantic_ai import DurableContextGuard, recall_tool

FOLDER = Path(sys.argv[1])
seen, shown, asked = [], [], []


def in_workflow_code():
    return DBOS.workflow_id is not None and DBOS.step_id is None


async def stream(messages, info):
    seen.append(str(messages))
    if len(seen) == 1:
        yield {0: DeltaToolCall("log", '{"of": "<EM', tool_call_id="c1")}
        yield {0: DeltaToolCall(json_args='AIL_1>"}')}
    elif len(seen) == 2:
        handle = re.search(r"\b[a-p]{20}\b", seen[-1])[0]
        wanted = f'{{"handle": "{handle}", "first_line": 201, "last_line": 201}}'
        yield {0: DeltaToolCall("recall", wanted, tool_call_id="c2")}
    else:
        for piece in ("It was <EM", "AIL_2>", "."):
            yield piece


async def show(ctx, events):
    async for event in events:
        shown.append(getattr(getattr(event, "delta", None), "content_delta", ""))


async def log(of: str) -> str:
    asked.append(of)
    return "\n".join(f"line {n}: {PEOPLE[1]} asked" for n in range(400))


store = WatchedStore(FOLDER / "results", in_workflow_code)
vaults = Vault(WatchedStore(FOLDER / "vault", in_workflow_code), key=KEY)
DBOS(config={"name": "clerk", "system_database_url": f"sqlite:///{FOLDER}/dbos"})
stabilizer = Stabilizer(1_500, stages=agent_stages(store=store))
guard = DurableContextGuard(stabilizer, vault=lambda ctx: vaults.session(ctx.deps))
recall = Tool(DBOS.step()(recall_tool(store).function))
durability = DBOSDurability(event_stream_handler=show)
model = FunctionModel(stream_function=stream)
clerk = Agent(model, name="clerk", deps_type=str, tools=[log, recall], capabilities=[guard, durability])


@DBOS.workflow()
async def run(task: str) -> str:
    return (await clerk.run(task, deps="ada")).output


if __name__ == "__main__":
    DBOS.launch()
    output = asyncio.run(run(f"I am {PEOPLE[0]}."))
    DBOS.destroy()
    assert output == f"It was {PEOPLE[1]}."
    assert f"{PEOPLE[1]}." in "".join(shown)
    assert asked == [PEOPLE[0]]
    assert "line 200: <EMAIL_2> asked" in seen[-1]
    assert not [person for person in PEOPLE if person in str(seen)]
