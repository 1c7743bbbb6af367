"""A result that was bounded is read again by the model: `recall` registered as a tool in each framework."""

from __future__ import annotations

import re

import pytest

from ctxguard import Stabilizer
from ctxguard.content import context_result, recall_tool
from ctxguard.pii import Vault, new_key
from ctxguard.policies import agent_stages
from ctxguard.stages.bound_tool_output import handle_of
from ctxguard.stores import MemoryStore

LOG = "\n".join(
    f"line {chr(97 + number // 26)}{chr(97 + number % 26)} of the log: all is well" for number in range(600)
)
WANTED = {"handle": handle_of(LOG), "first_line": 300, "last_line": 301}


async def langchain(stabilizer, recall):
    pytest.importorskip("langchain", reason="LangChain is not installed (extra langchain)")
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool

    from ctxguard_langchain import ContextGuardMiddleware

    class Scripted(GenericFakeChatModel):
        def bind_tools(self, tools, **kwargs):
            return self

    calls = [("archive", {}), ("recall", WANTED)]
    script = [AIMessage("", tool_calls=[{"name": name, "args": args, "id": name}]) for name, args in calls]

    def archive() -> str:
        """Read the log."""
        return LOG

    model = Scripted(messages=iter([*script, AIMessage("done")]))
    guard = ContextGuardMiddleware(stabilizer, max_result_tokens=200)
    agent = create_agent(model, [tool(archive), tool(recall)], middleware=[guard])
    messages = (await agent.ainvoke({"messages": [("user", "What does the log say?")]}))["messages"]
    return [message.content for message in messages if message.type == "tool"]


async def pydantic_ai(stabilizer, recall):
    pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from ctxguard_pydantic_ai import ContextGuard

    script = iter([ToolCallPart("archive", {}), ToolCallPart("recall", WANTED), TextPart("done")])
    model = FunctionModel(lambda messages, info: ModelResponse(parts=[next(script)]))
    guard = ContextGuard(stabilizer, max_result_tokens=200)
    agent = Agent(model, capabilities=[guard])
    agent.tool_plain(recall)
    agent.tool_plain(name="archive")(lambda: LOG)
    messages = (await agent.run("What does the log say?")).all_messages()
    return [part.content for message in messages for part in message.parts if part.part_kind == "tool-return"]


async def agents_sdk(stabilizer, recall):
    pytest.importorskip("agents", reason="the Agents SDK (openai-agents) is not installed")
    from agents import Agent, RunConfig, Runner, function_tool, set_tracing_disabled
    from openai_agents.scripted_agents import ScriptedModel, assistant_message, function_call

    from ctxguard_openai_agents import call_model_input_filter

    set_tracing_disabled(True)

    def archive() -> str:
        """Read the log."""
        return LOG

    calls = [("archive", {}), ("recall", WANTED)]
    script = [[function_call(name, args, call_id=name)] for name, args in calls]
    model = ScriptedModel([*script, [assistant_message("done")]])
    agent = Agent(name="reader", model=model, tools=[function_tool(archive), function_tool(recall)])
    guard = call_model_input_filter(stabilizer)
    await Runner.run(agent, "What does the log say?", run_config=RunConfig(call_model_input_filter=guard))
    return [item["output"] for item in model.calls[-1].input if item.get("type") == "function_call_output"]


@pytest.mark.parametrize("framework", [langchain, pydantic_ai, agents_sdk])
async def test_the_model_reads_what_was_left_out(framework):
    store = MemoryStore()
    shown, recalled = await framework(Stabilizer(1_500, stages=agent_stages(store=store)), recall_tool(store))
    assert WANTED["handle"] in shown
    assert len(shown) < len(LOG) / 4
    assert recalled.splitlines() == ["[lines 300-301 of 600]", *LOG.splitlines()[299:301]]


PLANTED = "<EMAIL_7>"
ORDERS = "\n".join(f"order {number} of buyer{number}@example.com, noted {PLANTED}" for number in range(400))
MAIL = "buyer333@example.com"


def reads_then_mails(messages):
    """Return the next call of a model that recalls an order and writes to the buyer, and what it read."""
    tools = [text for kind, text in messages if kind == "tool"]
    if not tools:
        return ("archive", {}), None
    if len(tools) == 1:
        handle = re.search(r"\b[a-p]{20}\b", tools[0])[0]
        return ("recall", {"handle": handle, "contains": "order 333 "}), None
    buyer = re.search(r"order 333 of (\S+), noted (\S+)", tools[1])
    return (None if len(tools) > 2 else ("send_mail", {"to": buyer[1], "note": buyer[2]})), buyer


class Shop:
    """Tools of an agent, and what was passed to the mail."""

    def __init__(self, rows=ORDERS):
        self.rows, self.sent, self.read = rows, [], []

    def archive(self) -> str:
        """Read the orders."""
        return self.rows

    def send_mail(self, to: str, note: str) -> str:
        """Send a mail."""
        self.sent.append((to, note))
        return "sent"

    def next_call(self, messages):
        call, read = reads_then_mails(messages)
        self.read += [read.groups()] if read else []
        return call


async def shop_in_langchain(shop, stabilizer, recall, vault, store):
    pytest.importorskip("langchain", reason="LangChain is not installed (extra langchain)")
    from langchain.agents import create_agent
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import tool

    from ctxguard_langchain import ContextGuardMiddleware

    class Scripted(BaseChatModel):
        @property
        def _llm_type(self):
            return "scripted"

        def bind_tools(self, tools, **kwargs):
            return self

        def _generate(self, messages, *args, **kwargs):
            call = shop.next_call([(message.type, message.content) for message in messages])
            calls = [{"name": call[0], "args": call[1], "id": call[0]}] if call else []
            return ChatResult(generations=[ChatGeneration(message=AIMessage("" if call else "done", tool_calls=calls))])

    guard = ContextGuardMiddleware(stabilizer, vault=vault)
    tools = [tool(shop.archive), tool(recall), tool(shop.send_mail)]
    await create_agent(Scripted(), tools, middleware=[guard]).ainvoke({"messages": [("user", "Write to the buyer.")]})


async def shop_in_pydantic_ai(shop, stabilizer, recall, vault, store, *, guard="ContextGuard"):
    pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")
    from pydantic_ai import Agent
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    import ctxguard_pydantic_ai

    if guard != "ContextGuard" and not hasattr(AbstractCapability, "get_wrapper_model"):
        pytest.skip("this PydanticAI has no hook to wrap the model of a request")

    def scripted(messages, info):
        parts = [part for message in messages for part in message.parts]
        call = shop.next_call([("tool", part.content) for part in parts if part.part_kind == "tool-return"])
        return ModelResponse(parts=[ToolCallPart(*call) if call else TextPart("done")])

    capability = getattr(ctxguard_pydantic_ai, guard)(stabilizer, vault=vault)
    agent = Agent(FunctionModel(scripted), capabilities=[capability])
    for function in (shop.archive, recall, shop.send_mail):
        agent.tool_plain(function)
    await agent.run("Write to the buyer.")


async def shop_in_agents_sdk(shop, stabilizer, recall, vault, store):
    pytest.importorskip("agents", reason="the Agents SDK (openai-agents) is not installed")
    from agents import Agent, ModelResponse, RunConfig, Runner, Usage, function_tool, set_tracing_disabled
    from agents.models.interface import Model
    from openai_agents.scripted_agents import assistant_message, function_call

    from ctxguard_openai_agents import call_model_input_filter, with_vault

    set_tracing_disabled(True)

    class Reading(Model):
        async def get_response(self, system_instructions, input, *args, **kwargs):  # noqa: A002 - the SDK's name
            outputs = [("tool", item["output"]) for item in input if item.get("type") == "function_call_output"]
            call = shop.next_call(outputs)
            step = function_call(*call, call_id=call[0]) if call else assistant_message("done")
            return ModelResponse(output=[step], usage=Usage(), response_id=None)

        def stream_response(self, *args, **kwargs):
            raise AssertionError("this test does not stream")

    functions = (shop.archive, recall, shop.send_mail)
    tools = with_vault([function_tool(one) for one in functions], vault, store=store)
    guard = call_model_input_filter(stabilizer, vault=vault)
    agent = Agent(name="shop", model=Reading(), tools=tools)
    await Runner.run(agent, "Write to the buyer.", run_config=RunConfig(call_model_input_filter=guard))


async def shop_in_strands(shop, stabilizer, recall, vault, store):
    pytest.importorskip("strands.middleware", reason="Strands is not installed (extra strands)")
    from strands import Agent, tool
    from strands_agents.scripted_strands import ScriptedModel

    from ctxguard_strands import ContextGuard

    def answer(request):
        results = [block["toolResult"] for m in request["messages"] for block in m["content"] if "toolResult" in block]
        call = shop.next_call([("tool", result["content"][0]["text"]) for result in results])
        return [call] if call else "done"

    tools = [tool(one) for one in (shop.archive, recall, shop.send_mail)]
    guard = ContextGuard(stabilizer, vault=vault)
    agent = Agent(ScriptedModel(answer), tools=tools, plugins=[guard], callback_handler=None)
    await agent.invoke_async("Write to the buyer.")


async def shop_in_a_durable_pydantic_ai(*given):
    await shop_in_pydantic_ai(*given, guard="DurableContextGuard")


SHOPS = [shop_in_langchain, shop_in_pydantic_ai, shop_in_a_durable_pydantic_ai, shop_in_agents_sdk, shop_in_strands]


@pytest.mark.parametrize("framework", SHOPS)
async def test_recalled_placeholders_are_those_of_the_vault(framework):
    pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")
    store, shop = MemoryStore(), Shop()
    vault = Vault(MemoryStore(), key=new_key()).session("s")
    await framework(shop, Stabilizer(1_500, stages=agent_stages(store=store)), recall_tool(store), vault, store)
    read, planted = shop.read[0]
    assert vault.original(read).value == MAIL
    assert planted.startswith("<LITERAL_"), "what the tool planted stays escaped"
    assert shop.sent == [(MAIL, PLANTED)]


@pytest.mark.parametrize("framework", SHOPS)
async def test_a_placeholder_in_a_result_that_was_saved_raw_is_planted(framework):
    pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")
    saved, store = MemoryStore(), MemoryStore()
    vault = Vault(MemoryStore(), key=new_key()).session("s")
    rows = "\n".join(f"order {number} of <EMAIL_1>, noted nothing" for number in range(400))
    preview = context_result(store=saved)(lambda: rows)()
    await framework(
        shop := Shop(preview), Stabilizer(3_000, stages=agent_stages(store=store)), recall_tool(saved), vault, store
    )
    assert shop.read[0][0].startswith("<LITERAL_")
