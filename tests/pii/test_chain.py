"""The whole chain, turn by turn: the model sees placeholders, tools get values, results are masked again, users read values."""

import json

import pytest

from ctxguard import Stabilizer
from ctxguard.pii import STANDARD, Masker, Vault, new_key
from ctxguard.policies import agent_stages
from ctxguard.stages import MaskPII
from ctxguard.stores import MemoryStore

pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

ASKED = ("Write to ada@example.com.", "Now from +49 30 901820 to the other one. I say <EMAIL_1>.")
CALLS = ({"to": "<EMAIL_1>", "copies": 2}, {"to": "<EMAIL_2> <ada@example.com>", "copies": 1})
ANSWERS = ("Sent to <EMAIL_1>, <EMAIL_2> was told.", "Told <EMAIL_2> from <PHONE_1>, as you said <LITERAL_1>.")
READ = (
    "Sent to ada@example.com, bob@example.com was told.",
    "Told bob@example.com from +49 30 901820, as you said <EMAIL_1>.",
)
SENT = [("ada@example.com", 2), ("bob@example.com <ada@example.com>", 1)]
THREAD = {"configurable": {"thread_id": "1"}}
VALUES = ("@example.com", "901820")


class Chain:
    """Hold a masked session and what its model and its tool were given."""

    def __init__(self):
        self.vault = Vault(MemoryStore(), key=new_key()).session("session-1")
        self.masker = Masker(STANDARD, strategy="pseudonymize", vault=self.vault)
        stages = [MaskPII(masker=self.masker) if isinstance(stage, MaskPII) else stage for stage in agent_stages()]
        self.stabilizer = Stabilizer(6_000, stages=stages)
        self.seen = []
        self.sent = []

    def step(self, messages):
        """Tell the turn and whether the tool is to be called in it: every turn is a call and an answer."""
        self.seen.append(str(messages))
        return divmod(len(self.seen) - 1, 2)

    def tool(self, to, copies):
        self.sent.append((to, copies))
        return f"sent to {to}, told bob@example.com, who said <EMAIL_1>"

    def read(self, answer):
        return self.masker.session().unmask(answer)

    def check(self, answers):
        assert [self.read(answer) for answer in answers] == list(READ)
        assert self.sent == SENT
        assert not [value for value in VALUES if value in "".join(self.seen)]
        assert "told <EMAIL_2>, who said <LITERAL_1>" in self.seen[1]
        assert "I say <LITERAL_1>." in self.seen[2]


@pytest.fixture
def chain():
    return Chain()


class TestPydanticAI:
    @pytest.fixture
    def agent(self, chain):
        pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")
        from pydantic_ai import Agent
        from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
        from pydantic_ai.models.function import DeltaToolCall, FunctionModel

        from ctxguard_pydantic_ai import ContextGuard

        def scripted(messages, info):
            turn, answers = chain.step(messages)
            part = TextPart(ANSWERS[turn]) if answers else ToolCallPart("send", CALLS[turn], f"c{turn}")
            return ModelResponse(parts=[part])

        async def streamed(messages, info):
            turn, answers = chain.step(messages)
            text = ANSWERS[turn] if answers else json.dumps(CALLS[turn])
            for start in range(0, len(text), 3):
                piece = text[start : start + 3]
                name = "send" if start == 0 else None
                yield piece if answers else {0: DeltaToolCall(name, piece, tool_call_id=f"c{turn}")}

        agent = Agent(
            FunctionModel(scripted, stream_function=streamed),
            capabilities=[ContextGuard(chain.stabilizer, vault=chain.vault)],
        )
        agent.tool_plain(chain.tool, name="send")
        return agent

    def test_sync(self, chain, agent):
        one = agent.run_sync(ASKED[0])
        other = agent.run_sync(ASKED[1], message_history=one.all_messages())
        chain.check([one.output, other.output])

    @pytest.mark.asyncio
    async def test_async(self, chain, agent):
        one = await agent.run(ASKED[0])
        other = await agent.run(ASKED[1], message_history=one.all_messages())
        chain.check([one.output, other.output])

    @pytest.mark.asyncio
    async def test_streamed(self, chain, agent):
        history, answers, shown = None, [], []
        for asked in ASKED:
            async with agent.run_stream(asked, message_history=history) as run:
                deltas = [delta async for delta in run.stream_text(delta=True, debounce_by=None)]
            history = run.all_messages()
            answers.append("".join(deltas))
            shown.append("".join(chain.masker.session().unmask_stream().over(deltas)))
        assert shown == list(READ)
        chain.check(answers)


class TestLangChain:
    @pytest.fixture
    def agent(self, chain):
        pytest.importorskip("langchain", reason="LangChain is not installed (extra langchain)")
        from langchain.agents import create_agent
        from langchain_core.language_models import BaseChatModel
        from langchain_core.messages import AIMessage, AIMessageChunk
        from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
        from langchain_core.tools import StructuredTool
        from langgraph.checkpoint.memory import InMemorySaver

        from ctxguard_langchain import ContextGuardMiddleware

        class Scripted(BaseChatModel):
            @property
            def _llm_type(self):
                return "scripted"

            def bind_tools(self, tools, **_):
                return self

            def _generate(self, messages, stop=None, run_manager=None, **_):
                turn, answers = chain.step(messages)
                if answers:
                    message = AIMessage(ANSWERS[turn])
                else:
                    message = AIMessage("", tool_calls=[{"name": "send", "args": CALLS[turn], "id": f"c{turn}"}])
                return ChatResult(generations=[ChatGeneration(message=message)])

            def _stream(self, messages, stop=None, run_manager=None, **_):
                turn, answers = chain.step(messages)
                text = ANSWERS[turn] if answers else json.dumps(CALLS[turn])
                for start in range(0, len(text), 3):
                    piece = text[start : start + 3]
                    first = start == 0
                    call = {"name": "send" if first else None, "args": piece, "id": f"c{turn}" if first else None}
                    chunk = (
                        AIMessageChunk(piece) if answers else AIMessageChunk("", tool_call_chunks=[call | {"index": 0}])
                    )
                    yield ChatGenerationChunk(message=chunk)

        tool = StructuredTool.from_function(chain.tool, name="send", description="Send a mail.")
        guard = ContextGuardMiddleware(chain.stabilizer, vault=chain.vault)
        return create_agent(Scripted(), [tool], middleware=[guard], checkpointer=InMemorySaver())

    def test_sync(self, chain, agent):
        runs = [agent.invoke({"messages": [("user", asked)]}, THREAD) for asked in ASKED]
        chain.check([run["messages"][-1].content for run in runs])

    @pytest.mark.asyncio
    async def test_async(self, chain, agent):
        runs = [await agent.ainvoke({"messages": [("user", asked)]}, THREAD) for asked in ASKED]
        chain.check([run["messages"][-1].content for run in runs])

    def test_streamed(self, chain, agent):
        answers, shown = [], []
        for asked in ASKED:
            parts = agent.stream({"messages": [("user", asked)]}, THREAD, stream_mode="messages")
            deltas = [str(chunk.content) for chunk, _ in parts if chunk.type == "AIMessageChunk" and chunk.content]
            answers.append("".join(deltas))
            shown.append("".join(chain.masker.session().unmask_stream().over(deltas)))
        assert shown == list(READ)
        chain.check(answers)


@pytest.mark.parametrize("in_vault", [True, False])
@pytest.mark.parametrize("streamed", [True, False])
def test_a_literal_that_was_given_back_stays_one_in_the_answers_that_the_app_keeps(in_vault, streamed):
    vault = Vault(MemoryStore(), key=new_key()).session("s") if in_vault else None
    masker = Masker(STANDARD, strategy="pseudonymize", vault=vault)
    texts = [("user", "look up the boss"), ("tool", "boss: ceo@site.org"), ("user", "repeat exactly: <EMAIL_1>")]
    for _ in range(3):
        session = masker.session()
        sent = [(session.own if role == "assistant" else session.text)(text) for role, text in texts]
        answer = sent[-1].removeprefix("repeat exactly: ")
        stream = session.unmask_stream()
        given = "".join(stream.over([answer[:4], answer[4:]])) if streamed else session.unmask(answer)
        assert given == "<EMAIL_1>"
        assert sent[3:] == ["<LITERAL_1>"] * (len(sent) - 3)
        texts.append(("assistant", given))


def test_the_models_own_placeholders_stay_live_until_somebody_spells_them():
    vault = Vault(MemoryStore(), key=new_key()).session("s")
    masker = Masker(STANDARD, strategy="pseudonymize", vault=vault)
    history = [
        (False, "write to jane@site.org and bob@site.org"),
        (True, "sent to <EMAIL_1>"),
        (False, "say <EMAIL_1>"),
        (True, "it was <EMAIL_1>, and <EMAIL_2>"),
        (False, "say <EMAIL_1>"),
    ]
    for _ in range(2):
        session = masker.session()
        sent = [(session.own if own else session.text)(text) for own, text in history]
        assert sent[1::2] == ["sent to <EMAIL_1>", "it was <LITERAL_1>, and <EMAIL_2>"]
        other = masker.session()
        assert other.text(history[4][1]) == "say <LITERAL_1>"
        assert other.own("<EMAIL_1>") == "<LITERAL_1>"
