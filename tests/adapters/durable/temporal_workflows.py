"""The workflows of the agents, and one that guards a list of messages itself."""

from __future__ import annotations

from temporalio import workflow

import ctxguard

with workflow.unsafe.imports_passed_through():
    from agents import Runner
    from temporal_agents import clerk, plain_clerk, sdk_clerk, small_clerk


@workflow.defn
class WithPydanticAI:
    __pydantic_ai_agents__ = (clerk,)

    @workflow.run
    async def run(self, task: str) -> str:
        return (await clerk.run(task, deps="ada")).output


@workflow.defn
class WithTooSmallABudget:
    __pydantic_ai_agents__ = (small_clerk,)

    @workflow.run
    async def run(self, task: str) -> str:
        return (await small_clerk.run(task, deps="ada")).output


@workflow.defn
class WithTheOtherGuard:
    __pydantic_ai_agents__ = (plain_clerk,)

    @workflow.run
    async def run(self, task: str) -> str:
        return (await plain_clerk.run(task, deps="ada")).output


@workflow.defn
class WithTheAgentsSDK:
    @workflow.run
    async def run(self, task: str) -> str:
        return (await Runner.run(sdk_clerk, task)).final_output


@workflow.defn
class OfAListOfMessages:
    @workflow.run
    async def run(self, task: str) -> str:
        return str(ctxguard.guard([{"role": "user", "content": task}], budget=1_000))
