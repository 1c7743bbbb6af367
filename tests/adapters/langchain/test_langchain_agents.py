"""Agents and graphs with the guard, run offline with scripted models."""

from __future__ import annotations

import subprocess
import sys

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_histories import ScriptedChatModel, needs_profiles
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command
from pydantic import BaseModel

from ctxguard import Stabilizer
from ctxguard.errors import BudgetExceededError, ConfigError
from ctxguard.settings import install_command
from ctxguard.stores import MemoryStore
from ctxguard_langchain import (
    ContextGuard,
    ContextGuardMiddleware,
    ContextManagedAgent,
    LangChainAdapter,
    pre_model_hook,
)
from ctxguard_langchain.middleware import FULL_OUTPUT

ADAPTER = LangChainAdapter()
MAIL = "jane.doe@corp-mail.net"
LONG = "\n".join(f"row {n}: widget, in stock, blue" for n in range(600))


@tool
def search(query: str) -> str:
    """Search the catalogue."""
    return LONG if query.startswith("everything") else f"one row for {query} of {MAIL}"


@tool("search")
async def asearch(query: str) -> str:
    """Search the catalogue."""
    return LONG if query.startswith("everything") else f"one row for {query} of {MAIL}"


def test_the_step_of_a_chain_as_middleware_says_which_class_to_use():
    with pytest.raises(ConfigError, match=r"is not agent middleware; write middleware=\[ContextGuardMiddleware\("):
        create_agent(
            ScriptedChatModel(reply=lambda _: AIMessage("x")), [search], middleware=[ContextGuard(Stabilizer(8_000))]
        )


def shopper(steps=3, parallel=3, query="everything"):
    """Play an agent that searches in parallel for some steps and then answers."""

    def reply(messages: list[BaseMessage]) -> AIMessage:
        turn = messages[max(n for n, message in enumerate(messages) if isinstance(message, HumanMessage)) :]
        told = [str(message.content) for message in turn if isinstance(message, AIMessage)]
        step = max(
            (int(text[5:-1]) + 1 for text in told if text.startswith("Step ")), default=0
        )  # older ones may be cut
        if step >= steps:
            return AIMessage("It is blue.")
        calls = [{"name": "search", "args": {"query": f"{query} {n}"}, "id": f"s{step}-{n}"} for n in range(parallel)]
        return AIMessage(f"Step {step}.", tool_calls=calls)

    return ScriptedChatModel(reply=reply)


def paired(messages):
    called = [call["id"] for message in messages if isinstance(message, AIMessage) for call in message.tool_calls]
    return called == [message.tool_call_id for message in messages if isinstance(message, ToolMessage)]


def contents(messages):
    return [message.content for message in messages if isinstance(message, ToolMessage)]


class TestRequests:
    def test_a_tool_loop_stays_in_its_budget_and_paired(self):
        model, reports = shopper(steps=6), []
        guard = ContextGuardMiddleware(Stabilizer(1_500), on_report=reports.append)
        agent = create_agent(model, [search], system_prompt="You sell widgets.", middleware=[guard])
        result = agent.invoke({"messages": [HumanMessage(f"I am {MAIL}, what is there?")]})
        assert result["messages"][-1].content == "It is blue."
        assert len(model.seen) == len(reports) == 7
        for seen, report in zip(model.seen, reports, strict=True):
            assert report.ok
            assert report.tokens_after <= 1_500
            assert seen[0] == SystemMessage("You sell widgets.")
            assert seen[1].content == "I am [REDACTED_EMAIL], what is there?"
            assert paired(seen)

    async def test_async_loops_make_the_same_requests(self):
        one, other = shopper(steps=6), shopper(steps=6)
        stabilizer = Stabilizer(1_500)
        create_agent(one, [search], middleware=[ContextGuardMiddleware(stabilizer)]).invoke(
            {"messages": [HumanMessage("what is there?")]}
        )
        await create_agent(other, [asearch], middleware=[ContextGuardMiddleware(stabilizer)]).ainvoke(
            {"messages": [HumanMessage("what is there?")]}
        )
        assert [[m.content for m in seen] for seen in one.seen] == [[m.content for m in seen] for seen in other.seen]

    def test_the_state_keeps_the_originals(self):
        model = shopper(steps=8, parallel=2, query="cheap")
        agent = create_agent(
            model, [search], middleware=[ContextGuardMiddleware(Stabilizer(400))], checkpointer=InMemorySaver()
        )
        config = {"configurable": {"thread_id": "t"}}
        result = agent.invoke({"messages": [HumanMessage("what is cheap?")]}, config)
        assert len(result["messages"]) == 1 + 8 * 3 + 1
        assert contents(result["messages"])[0] == f"one row for cheap 0 of {MAIL}"
        assert MAIL not in str(model.seen)
        assert len(model.seen[-1]) < 20

    def test_tools_and_structured_output_are_counted(self):
        class Answer(BaseModel):
            """Say what colour it is, and how sure you are about the colour that you say it is."""

            colour: str

        def tokens(**settings):
            calls = [{"name": "Answer", "args": {"colour": "blue"}, "id": "1"}]
            model = ScriptedChatModel(
                reply=lambda _: AIMessage("", tool_calls=calls if "response_format" in settings else [])
            )
            reports = []
            guard = ContextGuardMiddleware(Stabilizer(1_000), on_report=reports.append)
            create_agent(model, middleware=[guard], **settings).invoke({"messages": [HumanMessage("hi")]})
            return reports[0].tokens_after

        bare = tokens()
        assert tokens(system_prompt="Be brief.") > bare
        assert tokens(tools=[search]) > bare + 20
        assert tokens(response_format=Answer) > bare + 20

    @needs_profiles
    def test_a_share_takes_the_window_of_the_models_profile(self):
        def budget(model, **settings):
            reports = []
            guard = ContextGuardMiddleware(Stabilizer("80%"), on_report=reports.append, **settings)
            create_agent(model, [search], middleware=[guard]).invoke({"messages": [HumanMessage("hi")]})
            return reports[0].budget

        known = shopper()
        known.profile = {"max_input_tokens": 10_000}
        assert budget(known) == 8_000
        assert budget(shopper(), window=5_000) == 4_000
        with pytest.raises(ConfigError, match="window="):
            budget(shopper())

    def test_what_cannot_fit_is_an_error(self):
        agent = create_agent(
            shopper(), [search], system_prompt="rule " * 300, middleware=[ContextGuardMiddleware(Stabilizer(200))]
        )
        with pytest.raises(BudgetExceededError, match="system"):
            agent.invoke({"messages": [HumanMessage("hi")]})

    def test_answers_stream(self):
        agent = create_agent(shopper(steps=0), [search], middleware=[ContextGuardMiddleware(Stabilizer(2_000))])
        chunks = list(agent.stream({"messages": [HumanMessage("hi")]}, stream_mode="messages"))
        said = [chunk.content for chunk, data in chunks if data["langgraph_node"] == "model"]
        assert "".join(map(str, said)).endswith("It is blue."), said
        assert len(said) > 2, said

    def test_other_middleware_works_beside_it(self):
        class Loud(AgentMiddleware):
            def wrap_model_call(self, request, handler):
                prompt = f"LOUD, says {MAIL}"
                message = hasattr(request, "system_message")  # langchain 1.0 holds the text alone
                return handler(
                    request.override(system_message=SystemMessage(prompt))
                    if message
                    else request.override(system_prompt=prompt)
                )

        model = shopper(steps=0)
        agent = create_agent(model, [search], middleware=[Loud(), ContextGuardMiddleware(Stabilizer(500))])
        agent.invoke({"messages": [HumanMessage("hi")]})
        assert model.seen[0][0] == SystemMessage("LOUD, says [REDACTED_EMAIL]")


class TestToolOutputs:
    def run(self, stabilizer, model=None, tools=(search,), **settings):
        model = model or shopper(steps=1, parallel=1)
        agent = create_agent(model, list(tools), middleware=[ContextGuardMiddleware(stabilizer, **settings)])
        return model, agent.invoke({"messages": [HumanMessage("hi")]})["messages"]

    def test_a_limit_bounds_outputs_as_the_tool_returns_and_keeps_the_whole_aside(self):
        model, messages = self.run(Stabilizer(8_000), max_result_tokens=500)
        (output,) = (message for message in messages if isinstance(message, ToolMessage))
        assert 250 < Stabilizer(1).counter.text(output.content) <= 500
        assert output.response_metadata[FULL_OUTPUT] == LONG
        assert (output.name, output.tool_call_id, output.status) == ("search", "s0-0", "success")
        assert contents(model.seen[-1]) == [output.content]

    def test_without_a_limit_the_state_keeps_outputs_as_the_tool_gave_them(self):
        model, messages = self.run(Stabilizer(1_000))
        (output,) = (message for message in messages if isinstance(message, ToolMessage))
        assert output.content == LONG
        assert FULL_OUTPUT not in output.response_metadata
        (shown,) = contents(model.seen[-1])
        assert len(shown) < 1_500 < len(LONG)

    @pytest.mark.parametrize(("budget", "fits"), [(6_000, False), (30_000, True)])
    def test_what_was_bounded_never_changes_again(self, budget, fits):
        model, _ = self.run(Stabilizer(budget), shopper(steps=4, parallel=1))
        newest, *later = [contents(seen)[0] for seen in model.seen[1:]]
        assert (newest == LONG) == fits  # the newest output is whole where it fits into half of the room
        assert len(later) == 3
        assert len(set(later)) == 1
        assert len(later[0]) < len(newest) <= len(LONG)

    def test_personal_data_is_masked_before_an_output_is_cut(self):
        @tool
        def contacts() -> str:
            """List the contacts."""
            return "\n".join(f"{n}: person.number.{n}@corp-mail.net" for n in range(2_000))

        calls = [{"name": "contacts", "args": {}, "id": "1"}]
        replies = iter([AIMessage("", tool_calls=calls), AIMessage("many")])
        model = ScriptedChatModel(reply=lambda _: next(replies))
        _, messages = self.run(Stabilizer(1_000), model, [contacts], max_result_tokens=500)
        (output,) = contents(messages)
        assert "corp-mail" not in output
        assert "person.number" not in output

    def test_short_outputs_stay_as_the_tool_gave_them(self):
        _, messages = self.run(Stabilizer(1_000), shopper(steps=1, parallel=1, query="cheap"), max_result_tokens=500)
        (output,) = (message for message in messages if isinstance(message, ToolMessage))
        assert output.content == f"one row for cheap 0 of {MAIL}"
        assert FULL_OUTPUT not in output.response_metadata

    def test_a_tools_own_artifact_survives(self):
        @tool(response_format="content_and_artifact")
        def table() -> tuple[str, dict]:
            """Give the table."""
            return LONG, {"rows": 600}

        replies = iter([AIMessage("", tool_calls=[{"name": "table", "args": {}, "id": "1"}]), AIMessage("done")])
        model = ScriptedChatModel(reply=lambda _: next(replies))
        _, messages = self.run(Stabilizer(1_000), model, [table], max_result_tokens=500)
        (output,) = (message for message in messages if isinstance(message, ToolMessage))
        assert output.artifact == {"rows": 600}
        assert len(output.content) < len(LONG)

    def test_full_outputs_go_to_the_store_of_the_chain(self):
        store = MemoryStore()
        model, _ = self.run(Stabilizer.from_policy("agent", budget=1_000, store=store))
        (handle,) = store.keys("tool-output")
        assert store.get("tool-output", handle).decode() == LONG
        assert handle in contents(model.seen[-1])[0]

    def test_commands_pass_through(self):
        @tool
        def jump() -> Command:
            """Update the state."""
            return Command(update={"messages": [ToolMessage("jumped", tool_call_id="1")]})

        replies = iter([AIMessage("", tool_calls=[{"name": "jump", "args": {}, "id": "1"}]), AIMessage("done")])
        _, messages = self.run(Stabilizer(1_000), ScriptedChatModel(reply=lambda _: next(replies)), [jump])
        assert contents(messages) == ["jumped"]

    @needs_profiles
    def test_a_share_of_the_models_window_bounds_them_for_the_model(self):
        model = shopper(steps=1, parallel=1)
        model.profile = {"max_input_tokens": 2_000}
        _, messages = self.run(Stabilizer("50%"), model, max_result_tokens=50_000)
        assert contents(messages) == [LONG]
        assert len(contents(model.seen[-1])[0]) < 1_500


class TestPersist:
    def run(self, model, **settings):
        agent = create_agent(
            model,
            [search],
            middleware=[ContextGuardMiddleware(Stabilizer(800), **settings)],
            checkpointer=InMemorySaver(),
        )
        config = {"configurable": {"thread_id": "t"}}
        for turn in range(6):
            result = agent.invoke({"messages": [HumanMessage(f"turn {turn} of {MAIL}")]}, config)
        return result["messages"]

    def test_the_state_is_rewritten(self):
        kept = self.run(shopper(steps=2, parallel=2, query="cheap"))
        model = shopper(steps=2, parallel=2, query="cheap")
        rewritten = self.run(model, persist=True)
        assert len(kept) == 6 * (1 + 2 * 3 + 1)
        assert len(rewritten) < len(kept)
        assert MAIL not in str([message for message in rewritten[:-4] if isinstance(message, HumanMessage)])
        assert paired(rewritten)
        assert all(paired(seen) for seen in model.seen)

    async def test_in_async_runs_too(self):
        model = shopper(steps=2, parallel=1)
        guard = ContextGuardMiddleware(Stabilizer(800), persist=True)
        agent = create_agent(model, [asearch], middleware=[guard], checkpointer=InMemorySaver())
        config = {"configurable": {"thread_id": "t"}}
        for turn in range(10):
            result = await agent.ainvoke({"messages": [HumanMessage(f"turn {turn}")]}, config)
        assert ADAPTER.detects(result["messages"])
        assert len(result["messages"]) < 10 * 6
        assert LONG not in str(result["messages"])

    def test_only_persisting_middleware_adds_a_step_to_the_graph(self):
        def nodes(**settings):
            guard = ContextGuardMiddleware(Stabilizer(800), **settings)
            return set(create_agent(shopper(), [search], middleware=[guard]).get_graph().nodes)

        assert nodes(persist=True) - nodes() == {"ContextGuardMiddleware.before_model"}


class TestGraphs:
    def graph(self, hook, model, state=MessagesState):
        class State(state):
            llm_input_messages: list[BaseMessage]

        graph = StateGraph(State)
        graph.add_node("guard", hook)
        graph.add_node("model", lambda s: {"messages": [model.invoke(s.get("llm_input_messages") or s["messages"])]})
        graph.add_edge(START, "guard")
        graph.add_edge("guard", "model")
        graph.add_edge("model", END)
        return graph.compile(checkpointer=InMemorySaver())

    def turns(self, graph, count=25):
        config = {"configurable": {"thread_id": "t"}}
        for turn in range(count):
            result = graph.invoke({"messages": [HumanMessage(f"turn {turn} of {MAIL} " + "and so on " * 10)]}, config)
        return result["messages"]

    def test_the_hook_is_a_node_and_the_state_stays_raw(self):
        model, reports = ScriptedChatModel(reply=lambda _: AIMessage("answer " * 20)), []
        hook = pre_model_hook(Stabilizer(500), on_report=reports.append)
        messages = self.turns(self.graph(hook, model))
        assert len(messages) == 50
        assert MAIL in messages[0].content
        assert MAIL not in str(model.seen)
        assert len(model.seen[-1]) < 20
        assert {report.session for report in reports} == {"t"}
        assert [str(report) for report in reports if not report.ok] == []

    def test_persist_rewrites_the_state(self):
        model = ScriptedChatModel(reply=lambda _: AIMessage("answer " * 20))
        messages = self.turns(self.graph(pre_model_hook(Stabilizer(500), persist=True), model))
        assert len(messages) < 25
        assert MAIL not in str(messages)

    async def test_the_hook_runs_in_async_graphs(self):
        model = ScriptedChatModel(reply=lambda _: AIMessage("answer"))
        graph = self.graph(pre_model_hook(Stabilizer(500)), model)
        config = {"configurable": {"thread_id": "t"}}
        await graph.ainvoke({"messages": [HumanMessage(f"I am {MAIL}")]}, config)
        assert model.seen[0][-1].content == "I am [REDACTED_EMAIL]"

    # langgraph 1.0 and later deprecate create_react_agent for create_agent; people still use it.
    @pytest.mark.filterwarnings("ignore:.*(create_react_agent|AgentStatePydantic).*")
    @pytest.mark.parametrize("persist", [False, True])
    def test_react_agents_take_the_hook(self, persist):
        from langgraph.prebuilt import create_react_agent

        model = shopper(steps=4, parallel=2)
        agent = create_react_agent(model, [search], pre_model_hook=pre_model_hook(Stabilizer(1_500), persist=persist))
        messages = agent.invoke({"messages": [HumanMessage("what is there?")]})["messages"]
        assert messages[-1].content == "It is blue."
        assert len(model.seen) == 5
        assert all(paired(seen) for seen in model.seen)
        # two outputs that the model has not read yet share what is free
        assert all(len(text) < 3_000 for seen in model.seen for text in contents(seen))
        assert (LONG in contents(messages)) is not persist or contents(messages)[-1] == LONG

    @pytest.mark.filterwarnings("ignore:.*(create_react_agent|AgentStatePydantic).*")
    @pytest.mark.parametrize("make", [str, SystemMessage])
    def test_a_prompt_that_the_hook_is_given_is_masked_and_counted(self, make):
        from langgraph.prebuilt import create_react_agent

        model, reports = shopper(steps=4, parallel=2), []
        prompt = make(f"You are a clerk of {MAIL}. " + "Be brief. " * 100)
        hook = pre_model_hook(Stabilizer(1_500), prompt=prompt, on_report=reports.append)
        agent = create_react_agent(model, [search], pre_model_hook=hook)
        state = agent.invoke({"messages": [HumanMessage("what is there?")]})["messages"]
        assert all(seen[0].content.startswith("You are a clerk of [REDACTED_EMAIL]. Be brief.") for seen in model.seen)
        assert [message.type for message in state].count("system") == 0
        alone = pre_model_hook(Stabilizer(1_500), on_report=reports.append)
        create_react_agent(shopper(steps=4, parallel=2), [search], pre_model_hook=alone).invoke(
            {"messages": [HumanMessage("what is there?")]}
        )
        assert reports[0].tokens_after > reports[5].tokens_after + 200
        assert all(report.tokens_after <= 1_500 for report in reports)

    @pytest.mark.parametrize("settings", [{"prompt": "Be brief.", "persist": True}, {"prompt": lambda state: state}])
    def test_a_prompt_that_the_hook_cannot_send_is_refused(self, settings):
        with pytest.raises(ConfigError, match="prompt is a text or a SystemMessage"):
            pre_model_hook(Stabilizer(500), **settings)

    def test_a_state_with_attributes_is_read(self):
        class State(BaseModel):
            messages: list

        update = pre_model_hook(Stabilizer(500)).invoke(State(messages=[HumanMessage(f"I am {MAIL}")]))
        assert update["llm_input_messages"][0].content == "I am [REDACTED_EMAIL]"


class TestContextManagedAgent:
    class Halving:
        async def process_messages(self, messages):
            return messages[len(messages) // 2 :]

    async def test_it_streams_through_and_keeps_the_originals(self):
        model = shopper(steps=2, parallel=2)
        agent = create_agent(model, [asearch])
        managed = ContextManagedAgent(agent, self.Halving())
        given = [HumanMessage("old"), AIMessage("answer"), HumanMessage("older"), HumanMessage("new")]
        chunks = [chunk async for chunk in managed.astream({"messages": given})]
        assert [next(iter(chunk)) for chunk in chunks] == [
            "model",
            "tools",
            "tools",
            "model",
            "tools",
            "tools",
            "model",
        ]
        assert [m.content for m in model.seen[0]] == ["older", "new"]
        assert len(given) == 4
        assert managed.original_messages[:4] == given
        assert len(managed.original_messages) == 4 + 2 * 3 + 1
        assert managed.original_messages[-1].content == "It is blue."

    async def test_a_stabilizer_manages_as_well(self):
        model = shopper(steps=0)
        managed = ContextManagedAgent(create_agent(model, [asearch]), Stabilizer(500))
        [_ async for _ in managed.astream({"messages": [("human", f"I am {MAIL}")]}, stream_mode="values")]
        assert model.seen[0][-1].content == "I am [REDACTED_EMAIL]"
        assert managed.original_messages[0] == ("human", f"I am {MAIL}")

    async def test_anything_that_streams_is_an_agent(self):
        class Agent:
            async def astream(self, input, config=None):  # noqa: A002
                self.given, self.config = input, config
                yield {"agent": {"messages": ["thinking"]}}
                yield {"tools": {"messages": ["result"]}, "other": {"messages": ["ignored"]}}
                yield {"agent": None}
                yield ("updates", {"agent": {"messages": ["done"]}})
                yield ("values", {"agent": {"messages": ["ignored"]}})
                yield "plain"

        agent = Agent()
        managed = ContextManagedAgent(agent, self.Halving())
        chunks = [chunk async for chunk in managed.astream({"messages": ["a", "b"], "extra": 1}, {"tags": []})]
        assert len(chunks) == 6
        assert agent.given == {"messages": ["b"], "extra": 1}
        assert agent.config == {"tags": []}
        assert managed.original_messages == ["a", "b", "thinking", "result", "done"]


def test_without_langchain_the_middleware_names_the_extra():
    code = (
        "import sys; sys.modules['langchain'] = None\nimport ctxguard_langchain\n"
        "try:\n    ctxguard_langchain.ContextGuardMiddleware\nexcept ImportError as error:\n    print(error)\n"
        "try:\n    ctxguard_langchain.Nothing\nexcept AttributeError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert install_command("langchain") in done.stdout
    assert "has no attribute 'Nothing'" in done.stdout


def test_a_graph_node_may_call_the_guard_itself():
    guard, model = ContextGuard(Stabilizer(500)), ScriptedChatModel(reply=lambda _: AIMessage("fine"))
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [(guard | model).invoke(state["messages"])]})
    graph.add_edge(START, "model")
    result = graph.compile().invoke({"messages": [HumanMessage(f"I am {MAIL}")]})
    assert result["messages"][0].content == f"I am {MAIL}"
    assert model.seen[0][0].content == "I am [REDACTED_EMAIL]"


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_prompt_that_overflows_is_sent_once_more_with_a_tighter_budget(is_async):
    overflow = pytest.importorskip("langchain_core.exceptions").__dict__.get("ContextOverflowError")
    if overflow is None:
        pytest.skip("this version has no error for it")
    reports = []

    class Narrow(type(shopper())):
        def _generate(self, messages, *args, **kwargs):
            if len(reports) == 1:
                raise overflow("the context overflowed")
            return super()._generate(messages, *args, **kwargs)

    model = Narrow(**{name: getattr(shopper(steps=0), name) for name in type(shopper()).model_fields})
    agent = create_agent(
        model, [search], middleware=[ContextGuardMiddleware(Stabilizer(2_000), on_report=reports.append)]
    )
    history = {"messages": [HumanMessage(f"question {n} " + "word " * 60) for n in range(40)]}
    await agent.ainvoke(history) if is_async else agent.invoke(history)
    assert [report.budget for report in reports] == [2_000, 1_200]
    assert reports[1].tokens_after <= 1_200
