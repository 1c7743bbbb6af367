"""Guarded agents under Temporal: its own server, its sandbox, workers that forget every workflow, and resets of workflows."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

pytest.importorskip("temporalio", reason="Temporal's SDK is not installed (make test-durable)")
pytest.importorskip("temporalio.openai_agents", reason="temporalio-openai-agents is not installed (make test-durable)")
pytest.importorskip("pydantic_ai.durable_exec.temporal", reason="this PydanticAI has no durable execution")
from pydantic_ai.durable_exec.temporal import PydanticAIPlugin
from scripted_provider import ANSWER, MAIL, PEOPLE, REQUESTS, TASK, check
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowFailureError
from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

import ctxguard

SERVER = shutil.which("temporal", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))
pytestmark = pytest.mark.skipif(SERVER is None, reason="Temporal's server is not installed (make test-durable)")
PASSED_THROUGH = SandboxedWorkflowRunner(
    restrictions=SandboxRestrictions.default.with_passthrough_modules("ctxguard", "ctxguard_pydantic_ai")
)
WAYS = ("WithPydanticAI", "WithTheAgentsSDK")


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The agents and the workflows, which a worker imports once."""
    folder = tmp_path_factory.mktemp("temporal")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CTXGUARD_DURABLE_TESTS", str(folder))
        patch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
        import temporal_agents
        import temporal_workflows

        ctxguard.warm()
        yield temporal_agents, temporal_workflows


def plugin_for(way, agents):
    if way != "WithTheAgentsSDK":
        return PydanticAIPlugin()
    return OpenAIAgentsPlugin(model_params=ModelActivityParameters(**agents.STEPS), model_provider=agents.models)


@asynccontextmanager
async def working(programs, way, **settings):
    """Yield a client and a workflow, with a worker that forgets each workflow after each task and replays it."""
    agents, workflows = programs
    workflow, plugin = getattr(workflows, way), plugin_for(way, agents)
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=SERVER, dev_server_log_level="error"
    ) as env:
        client = await Client.connect(env.client.service_client.config.target_host, plugins=[plugin])
        activities = agents.activities if way == "WithTheAgentsSDK" else []
        async with Worker(
            client, task_queue="q", workflows=[workflow], activities=activities, max_cached_workflows=0, **settings
        ):
            yield client, workflow


async def result(client, workflow, name):
    return await client.execute_workflow(workflow.run, TASK, id=name, task_queue="q")


@pytest.mark.parametrize("way", WAYS)
async def test_steps_that_are_lost_are_sent_again_with_the_same_bytes_and_the_history_replays(way, programs, tmp_path):
    agents, _ = programs
    async with working(programs, way) as (client, workflow):
        agents.provider.begin(tmp_path / "log")
        assert await result(client, workflow, "undisturbed") == ANSWER
        sent = agents.provider.bodies()
        check(sent)
        for lost in range(1, REQUESTS + 1):
            agents.provider.begin(tmp_path / f"log{lost}", lost)
            assert await result(client, workflow, f"lost-{lost}") == ANSWER
            assert agents.provider.bodies() == [*sent[:lost], *sent[lost - 1 :]]
        history = await client.get_workflow_handle("undisturbed").fetch_history()
    await Replayer(workflows=[workflow], plugins=[plugin_for(way, agents)]).replay_workflow(history)
    assert MAIL in (agents.FOLDER / "mails").read_text()


@pytest.mark.parametrize("way", WAYS)
async def test_a_reset_to_each_task_of_a_workflow_sends_the_rest_with_the_same_bytes(way, programs, tmp_path):
    agents, _ = programs
    async with working(programs, way) as (client, workflow):
        agents.provider.begin(tmp_path / "log")
        await result(client, workflow, "first")
        sent = agents.provider.bodies()
        handle = client.get_workflow_handle("first")
        first = (await handle.describe()).run_id
        tasks = [
            event.event_id
            async for event in handle.fetch_history_events()
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        ]
        left = []
        for task in tasks:
            agents.provider.begin(tmp_path / f"log{task}")
            reset = ResetWorkflowExecutionRequest(
                namespace=client.namespace,
                workflow_execution=WorkflowExecution(workflow_id="first", run_id=first),
                workflow_task_finish_event_id=task,
                reason="a fork",
                request_id=str(uuid4()),
            )
            run = (await client.workflow_service.reset_workflow_execution(reset)).run_id
            assert await client.get_workflow_handle("first", run_id=run).result() == ANSWER
            again = agents.provider.bodies()
            assert again == sent[REQUESTS - len(again) :]
            left.append(len(again))
    assert left == sorted(left, reverse=True)
    assert {*left} == {*range(REQUESTS + 1)} or {*left} == {*range(1, REQUESTS + 1)}


async def test_a_budget_that_cannot_be_kept_ends_the_workflow_by_name(programs):
    async with working(programs, "WithTooSmallABudget") as (client, workflow):
        with pytest.raises(WorkflowFailureError) as failure:
            await result(client, workflow, "too-small")
    assert getattr(failure.value.cause.cause, "type", None) == "BudgetExceededError"


async def test_code_of_a_workflow_can_guard_messages_itself_where_ctxguard_is_passed_through(programs):
    async with working(programs, "OfAListOfMessages", workflow_runner=PASSED_THROUGH) as (client, workflow):
        answer = await result(client, workflow, "itself")
    assert "[REDACTED_EMAIL]" in answer
    assert PEOPLE[0] not in answer


async def test_the_other_guard_without_a_vault_stabilizes_in_the_code_of_the_workflow(programs, tmp_path):
    agents, _ = programs
    async with working(programs, "WithTheOtherGuard", workflow_runner=PASSED_THROUGH) as (client, workflow):
        bodies = []
        for lost in (None, 2):
            agents.provider.begin(tmp_path / f"log{lost}", lost)
            await result(client, workflow, f"other-{lost}")
            bodies.append(agents.provider.bodies())
        history = await client.get_workflow_handle("other-None").fetch_history()
    sent, again = bodies
    assert again == [*sent[:2], *sent[1:]]
    assert not [person for person in PEOPLE if person in str(sent)]
    plugins = [plugin_for("WithTheOtherGuard", agents)]
    await Replayer(workflows=[workflow], plugins=plugins, workflow_runner=PASSED_THROUGH).replay_workflow(history)
