"""The doors by which a conversation reaches a model: guards of frameworks, interfaces on top of them, guards on HTTP.

Each streams the answers of a scripted model to the interface of a user, through one guard that two users share.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from contextvars import ContextVar
from unittest.mock import patch

import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

from ctxguard import Stabilizer
from ctxguard.errors import CtxguardError
from ctxguard.pii import Vault, new_key
from ctxguard.stores import MemoryStore

SAID = "To <EMAIL_1>, <EMAIL_2>; <EMAIL_3> knows, <EMAIL_9> not, 1 < 2 & <EM"
HOSTS = {"ada": "first-mail.net", "bob": "other-mail.net"}
USER: ContextVar[str] = ContextVar("user")
"""The user of a conversation, for frameworks that tell a guard nothing of their own."""


def asked(user):
    return f"These are ann@{HOSTS[user]}, ben@{HOSTS[user]}, eve@{HOSTS[user]}."


def shown(user, text=SAID):
    """Return what a user is to see of an answer."""
    for number, name in enumerate(("ann", "ben", "eve"), 1):
        text = text.replace(f"<EMAIL_{number}>", f"{name}@{HOSTS[user]}")
    return text


class Door:
    """Holds the conversations of both users with one guard.

    Args:
        at: Where answers are cut into two pieces; 0 cuts them into single characters.
        answer: What the model answers to everything.
        guarding: Further settings of a framework's guard.

    Attributes:
        seen: What the model was sent.
        closing: Ends what was opened.
    """

    def __init__(self, at, answer=SAID, **guarding):
        vaults = Vault(MemoryStore(), key=new_key())
        self.at, self.answer, self.guarding, self.seen = at, answer, guarding, []
        self.vaults = {user: vaults.session(user) for user in HOSTS}
        self.histories = {user: [] for user in HOSTS}
        self.closing = ExitStack()
        self.open()

    def settings(self, user_of):
        """Return the arguments of a framework's guard, whose context says the user."""
        return {
            "stabilizer": Stabilizer(4_000),
            "vault": lambda context: self.vaults[user_of(context)],
            "restore": True,
            **self.guarding,
        }

    def pieces(self):
        """Return the pieces of the answer."""
        return [self.answer[: self.at], self.answer[self.at :]] if self.at else list(self.answer)

    async def said(self, request):
        """Yield the pieces of the model's answer to a request; the other user's turn comes after each."""
        self.seen.append(str(request))
        for piece in self.pieces():
            await asyncio.sleep(0)
            yield piece

    def open(self):
        """Make the guard, and what it guards."""

    async def ask(self, user, text):
        """Yield the texts of the events by which a user interface shows the answer."""
        raise NotImplementedError
        yield

    async def read(self, user, text, expected):
        """Ask, and read the answer, which is to be shown as expected, event by event."""
        read = ""
        async for piece in self.ask(user, text):
            read += piece
            assert expected.startswith(read), (self.at, read)
        assert read == expected, self.at


class LangChain(Door):
    """An agent with a checkpointer, which streams messages."""

    def open(self):
        pytest.importorskip("langchain", reason="langchain is not installed (extra langchain)")
        from langchain.agents import create_agent
        from langgraph.checkpoint.memory import InMemorySaver

        from ctxguard_langchain import ContextGuardMiddleware

        guard = ContextGuardMiddleware(**self.settings(lambda runtime: runtime.context))
        saver = InMemorySaver()
        self.agent = create_agent(self.model(), [], middleware=[guard], context_schema=str, checkpointer=saver)

    def model(self):
        from langchain_core.language_models import BaseChatModel
        from langchain_core.messages import AIMessageChunk
        from langchain_core.outputs import ChatGenerationChunk

        door = self

        class Scripted(BaseChatModel):
            _llm_type = "scripted"

            def bind_tools(self, tools, **settings):
                return self

            def _generate(self, *args, **settings):
                raise AssertionError("answers are streamed")

            async def _astream(self, messages, stop=None, run_manager=None, **settings):
                async for piece in door.said(messages):
                    chunk = ChatGenerationChunk(message=AIMessageChunk(piece, id="run-1"))
                    if run_manager:
                        await run_manager.on_llm_new_token(piece, chunk=chunk)
                    yield chunk

        return Scripted()

    def asking(self, user, text):
        from langchain_core.messages import HumanMessage

        return {"messages": [HumanMessage(text)]}, {"configurable": {"thread_id": user}}

    async def ask(self, user, text):
        async for chunk, _ in self.agent.astream(*self.asking(user, text), context=user, stream_mode="messages"):
            yield chunk.text


class LangChainEvents(LangChain):
    """The same agent, and the events of `astream_events`."""

    async def ask(self, user, text):
        async for event in self.agent.astream_events(*self.asking(user, text), context=user, version="v2"):
            if event["event"] == "on_chat_model_stream":
                yield event["data"]["chunk"].text


class LangGraph(LangChain):
    """A graph of the program's own, whose node is a chain with a guard; the checkpoints are masked."""

    def open(self):
        pytest.importorskip("langgraph.graph", reason="langgraph is not installed (extra langgraph)")
        from langgraph.checkpoint.memory import InMemorySaver
        from langgraph.graph import START, MessagesState, StateGraph

        from ctxguard.pii import Masker
        from ctxguard.policies import default_stages
        from ctxguard_langchain import ContextGuard, MaskedSerializer

        def stabilizer_of(session):
            masker = Masker(strategy="pseudonymize", vault=self.vaults[session])
            return Stabilizer(4_000, stages=default_stages(masker=masker))

        chain = ContextGuard(stabilizer_of, restore=True, **self.guarding) | self.model()

        async def answer(state, config):
            return {"messages": [await chain.ainvoke(state["messages"], config)]}

        graph = StateGraph(MessagesState)
        graph.add_node("answer", answer)
        graph.add_edge(START, "answer")
        stored = Vault(MemoryStore(), key=new_key()).session("checkpoints")
        self.saver = InMemorySaver(serde=MaskedSerializer(stored))
        self.agent = graph.compile(checkpointer=self.saver)

    async def ask(self, user, text):
        async for chunk, _ in self.agent.astream(*self.asking(user, text), stream_mode="messages"):
            yield chunk.text
        stored = repr([dict(self.saver.storage), dict(self.saver.writes), dict(self.saver.blobs)])
        assert not [host for host in HOSTS.values() if host in stored]


class PydanticAI(Door):
    """An agent, and the events of `run_stream_events`."""

    def open(self):
        pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")
        from pydantic_ai import Agent
        from pydantic_ai.capabilities import AbstractCapability
        from pydantic_ai.models.function import FunctionModel

        if not hasattr(AbstractCapability, "get_wrapper_model"):
            pytest.skip("this PydanticAI has no hook to restore responses")
        model = FunctionModel(stream_function=lambda messages, info: self.said(messages))
        self.agent = Agent(model, deps_type=str, capabilities=[self.guard()])

    def guard(self):
        from ctxguard_pydantic_ai import ContextGuard

        return ContextGuard(**self.settings(lambda context: context.deps))

    async def ask(self, user, text):
        from pydantic_ai.messages import PartDeltaEvent, PartStartEvent

        history = self.histories[user]
        async with self.agent.run_stream_events(text, deps=user, message_history=history) as events:
            async for event in events:
                if isinstance(event, PartStartEvent):
                    yield event.part.content
                if isinstance(event, PartDeltaEvent):
                    yield event.delta.content_delta
        self.histories[user] = event.result.all_messages()


class DurablePydanticAI(PydanticAI):
    """The guard for durable engines, without an engine."""

    def guard(self):
        from ctxguard_pydantic_ai import DurableContextGuard

        settings = self.settings(lambda context: context.deps)
        return DurableContextGuard(settings["stabilizer"], vault=settings["vault"])


class AgUi(PydanticAI):
    """AG-UI's events of the same agent; the interface keeps the history, with the values."""

    async def ask(self, user, text):
        core = pytest.importorskip("ag_ui.core", reason="ag-ui-protocol is not installed")
        from pydantic_ai.ui.ag_ui import AGUIAdapter

        history = self.histories[user]
        history.append(core.UserMessage(id=f"m{len(history)}", role="user", content=text))
        given = {"thread_id": user, "run_id": "r", "state": {}, "tools": [], "context": [], "forwarded_props": {}}
        adapter = AGUIAdapter(self.agent, core.RunAgentInput(messages=history, **given))
        read = ""
        async for event in adapter.run_stream(deps=user):
            if event.type == core.EventType.TEXT_MESSAGE_CONTENT:
                yield event.delta
                read += event.delta
        history.append(core.AssistantMessage(id=f"m{len(history)}", role="assistant", content=read))


class Vercel(PydanticAI):
    """The stream for Vercel's AI SDK of the same agent."""

    async def ask(self, user, text):
        vercel = pytest.importorskip("pydantic_ai.ui.vercel_ai")
        types = pytest.importorskip("pydantic_ai.ui.vercel_ai.request_types")

        def message(role, said):
            part = types.TextUIPart(text=said)
            self.histories[user].append(types.UIMessage(id=f"m{len(self.histories[user])}", role=role, parts=[part]))

        message("user", text)
        request = types.SubmitMessage(id="1", messages=self.histories[user])
        read = ""
        async for chunk in vercel.VercelAIAdapter(self.agent, request).run_stream(deps=user):
            if chunk.type == "text-delta":
                yield chunk.delta
                read += chunk.delta
        message("assistant", read)


class AgentsSdk(Door):
    """A run of the Agents SDK with a session, whose stored items are masked."""

    def open(self):
        agents = pytest.importorskip("agents", reason="the Agents SDK (openai-agents) is not installed")
        from openai.types.responses import Response, ResponseCompletedEvent, ResponseTextDeltaEvent

        from ctxguard_openai_agents import MaskedSession, with_restored_values

        agents.set_tracing_disabled(True)
        door = self

        class Scripted(agents.Model):
            async def get_response(self, *args, **settings):
                raise AssertionError("answers are streamed")

            async def stream_response(self, system_instructions, input, *args, **settings):  # noqa: A002 - the SDK's name
                place = {"item_id": "m1", "output_index": 0, "content_index": 0, "logprobs": []}
                kind, number = "response.output_text.delta", 0
                async for piece in door.said(input):
                    yield ResponseTextDeltaEvent.construct(type=kind, delta=piece, sequence_number=number, **place)
                    number += 1
                content = [{"type": "output_text", "text": door.answer, "annotations": []}]
                item = {"id": "m1", "type": "message", "role": "assistant", "status": "completed", "content": content}
                response = Response.construct(id="r1", output=[item], object="response").model_dump(exclude_unset=True)
                kind = "response.completed"
                yield ResponseCompletedEvent.construct(type=kind, response=response, sequence_number=number)

        model, self.config = self.guarded(with_restored_values(Scripted()))
        self.agent = agents.Agent(name="clerk", model=model)
        self.stored = {user: agents.SQLiteSession(user) for user in HOSTS}
        for session in self.stored.values():
            self.closing.callback(session.close)
        self.sessions = {user: MaskedSession(self.stored[user], self.vaults[user]) for user in HOSTS}

    def filter(self):
        from ctxguard_openai_agents import call_model_input_filter

        settings = self.settings(lambda context: context.context or USER.get())
        assert settings.pop("restore")
        return call_model_input_filter(**settings)

    def guarded(self, model):
        """Return the model, and the configuration of the runs."""
        from agents import RunConfig

        return model, RunConfig(call_model_input_filter=self.filter())

    async def ask(self, user, text):
        from agents import Runner

        USER.set(user)
        result = Runner.run_streamed(
            self.agent, text, context=user, session=self.sessions[user], run_config=self.config
        )
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                yield event.data.delta
        assert HOSTS[user] not in str(await self.stored[user].get_items())


class DurableAgentsSdk(AgentsSdk):
    """The filter within the model, for durable engines; it gets no context of the run."""

    def guarded(self, model):
        from agents import RunConfig

        from ctxguard_openai_agents import with_input_filter

        return with_input_filter(model, self.filter()), RunConfig()


class Strands(Door):
    """An agent of each user with one plugin; it holds its history itself."""

    def open(self):
        pytest.importorskip("strands.middleware", reason="Strands is not installed (extra strands)")
        from strands import Agent
        from strands_agents.scripted_strands import ScriptedModel

        from ctxguard_strands import ContextGuard

        guard = ContextGuard(**self.settings(lambda context: context.invocation_state["user"]))
        self.model = ScriptedModel(self.answer, at=self.at)
        self.seen = self.model.calls
        self.agents = {user: Agent(self.model, plugins=[guard], callback_handler=None) for user in HOSTS}

    async def ask(self, user, text):
        async for event in self.agents[user].stream_async(text, invocation_state={"user": user}):
            yield event.get("data", "")


class ADK(Door):
    """A runner with one plugin and sessions of both users."""

    def open(self):
        pytest.importorskip("google.adk", reason="the Agent Development Kit is not installed (extra adk)")
        from adk.scripted_llm import Chat, ScriptedLlm

        from ctxguard_adk import ContextGuard

        guard = ContextGuard(**self.settings(lambda context: context.user_id))
        self.model = ScriptedLlm(self.answer, at=self.at)
        self.seen = self.model.seen
        self.chats = {user: Chat(self.model, guard, user) for user in HOSTS}

    async def ask(self, user, text):
        from adk.scripted_llm import text_of

        for event in await self.chats[user].ask(text, streams=True):
            yield text_of([event], partial=True)


class CrewAI(Door):
    """A guarded LLM of two threads' calls, and the events of its stream."""

    def open(self):
        pytest.importorskip("crewai.llms", reason="CrewAI is not installed (extra crewai)")
        from crewai_agents.scripted_crew import ScriptedLLM

        from ctxguard_crewai import guarded_llm

        self.llm = ScriptedLLM(self.answer, at=self.at, streams=True)
        self.seen = self.llm.seen
        self.guarded = guarded_llm(self.llm, **self.settings(lambda call: USER.get()))

    async def ask(self, user, text):
        from crewai.events.event_bus import crewai_event_bus
        from crewai.events.types.llm_events import LLMStreamChunkEvent

        USER.set(user)
        history, read, failed = self.histories[user], [], None
        history.append({"role": "user", "content": text})
        with crewai_event_bus.scoped_handlers():
            crewai_event_bus.on(LLMStreamChunkEvent)(lambda source, event: read.append(event.chunk))
            try:
                history.append({"role": "assistant", "content": self.guarded.call(history)})
            except CtxguardError as error:
                failed = error
            crewai_event_bus.flush()
        await asyncio.sleep(0)
        for piece in read:
            yield piece
        if failed is not None:
            raise failed


class Wire(Door):
    """The guard on HTTP requests of one client, by which one key serves both users. The client keeps the history."""

    api = "chat"

    def open(self):
        self.http = pytest.importorskip("httpx", reason="httpx is not installed")
        import scripted_model

        from ctxguard.wire import AsyncTransport, Guard

        self.closing.enter_context(patch.object(scripted_model, "pieces", lambda text: self.pieces()))
        script = scripted_model.Model(self.api, [[self.answer]], streams=True)
        self.seen = script.raw
        transport = AsyncTransport(Guard(Stabilizer(4_000)), transport=script.transport())
        self.client = self.http.AsyncClient(transport=transport)

    async def ask(self, user, text):
        import scripted_model as scripted

        history = self.histories[user]
        history.append(scripted.question(self.api, text))
        streams = {} if self.api == "gemini" else {"stream": True}
        path = scripted.PATHS[self.api].replace(":generateContent", ":streamGenerateContent")
        body = scripted.request(self.api, history, **streams)
        async with self.client.stream("POST", f"http://provider{path}", json=body) as answer:
            raw = b"".join([chunk async for chunk in answer.aiter_raw()])
        members, _ = scripted.CLIENTS[self.api](None, raw)
        history += members
        for event in scripted.events_of(raw):
            yield self.text_of(event)

    @staticmethod
    def text_of(event):
        return "".join(choice["delta"].get("content") or "" for choice in event["choices"])


class WireResponses(Wire):
    """The same, by OpenAI's Responses."""

    api = "responses"

    @staticmethod
    def text_of(event):
        return event["delta"] if event["type"] == "response.output_text.delta" else ""


class WireAnthropic(Wire):
    """The same, by Anthropic's Messages."""

    api = "anthropic"

    @staticmethod
    def text_of(event):
        return event["delta"].get("text", "") if event["type"] == "content_block_delta" else ""


class WireGemini(Wire):
    """The same, by Gemini's contents."""

    api = "gemini"

    @staticmethod
    def text_of(event):
        return "".join(part.get("text", "") for part in event["candidates"][0]["content"]["parts"])


class LiteLLM(Door):
    """The guardrail in LiteLLM's proxy, called by its hooks; the client keeps the history."""

    def open(self):
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # nothing is loaded from elsewhere
        pytest.importorskip("litellm", reason="litellm is not installed")
        from ctxguard_litellm import Guard

        self.guard = Guard(Stabilizer(4_000), event_hook=["pre_call", "post_call"], default_on=True)

    async def ask(self, user, text):
        from litellm.types.utils import Delta, ModelResponseStream, StreamingChoices

        history = self.histories[user]
        history.append({"role": "user", "content": text})
        asked = {"model": "m", "messages": list(history), "stream": True, "litellm_call_id": f"{user} {len(history)}"}
        data = await self.guard.async_pre_call_hook(None, None, asked, "acompletion")

        async def chunks():
            async for piece in self.said(data["messages"]):
                yield ModelResponseStream(choices=[StreamingChoices(index=0, delta=Delta(content=piece))])
            yield ModelResponseStream(choices=[StreamingChoices(index=0, delta=Delta(), finish_reason="stop")])

        read = ""
        async for chunk in self.guard.async_post_call_streaming_iterator_hook(None, chunks(), data):
            piece = chunk.choices[0].delta.content or ""
            yield piece
            read += piece
        history.append({"role": "assistant", "content": read})


class Bedrock(Door):
    """A guarded client of boto3, against a server on loopback that answers with Amazon's binary events."""

    def open(self):
        boto3 = pytest.importorskip("boto3", reason="boto3 is not installed (extra bedrock)")
        from cloud_server import serving
        from converse_server import Converse

        from ctxguard_bedrock import guarded

        door = self

        class Scripted(Converse):
            def reply(self, body):
                return [{"text": door.answer}], "end_turn"

            @staticmethod
            def deltas(block):
                return ({"text": piece} for piece in door.pieces())

        server = Scripted()
        self.seen = server.raw
        address = self.closing.enter_context(serving(server))
        settings = dict.fromkeys(("aws_access_key_id", "aws_secret_access_key"), "none")
        client = boto3.client("bedrock-runtime", endpoint_url=address, region_name="us-east-1", **settings)
        self.closing.callback(client.close)
        self.client = guarded(client, Stabilizer(4_000))

    async def ask(self, user, text):
        history = self.histories[user]
        history.append({"role": "user", "content": [{"text": text}]})

        def call():
            return list(self.client.converse_stream(modelId="amazon.nova-pro-v1:0", messages=history)["stream"])

        texts = [
            one["contentBlockDelta"]["delta"]["text"]
            for one in await asyncio.to_thread(call)
            if "contentBlockDelta" in one
        ]
        history.append({"role": "assistant", "content": [{"text": "".join(texts)}]})
        for piece in texts:
            yield piece


DOORS = {
    "langchain": LangChain,
    "langchain events": LangChainEvents,
    "langgraph": LangGraph,
    "pydantic_ai": PydanticAI,
    "pydantic_ai durable": DurablePydanticAI,
    "ag_ui": AgUi,
    "vercel": Vercel,
    "openai_agents": AgentsSdk,
    "openai_agents durable": DurableAgentsSdk,
    "strands": Strands,
    "adk": ADK,
    "crewai": CrewAI,
    "chat": Wire,
    "responses": WireResponses,
    "anthropic": WireAnthropic,
    "gemini": WireGemini,
    "bedrock": Bedrock,
    "litellm": LiteLLM,
}
