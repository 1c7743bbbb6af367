"""With `restore`, the program and its user see the values in all that the model writes, and the model sees none."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.caches import InMemoryCache
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langchain_histories import ScriptedChatModel
from pydantic import BaseModel

from ctxguard import Stabilizer
from ctxguard.errors import ConfigError
from ctxguard.pii import Masker, Vault, new_key
from ctxguard.policies import default_stages
from ctxguard.stores import MemoryStore
from ctxguard_langchain import ContextGuard, ContextGuardMiddleware, with_message_history

PEOPLE = ("ada@corp-mail.net", "bob@corp-mail.net", "eve@corp-mail.net")
SAID = "Write to <EMAIL_1>, then <EMAIL_2>; <EMAIL_3> knows, <EMAIL_9> does not, 1 < 2 & <EM"
SHOWN = "Write to ada@corp-mail.net, then bob@corp-mail.net; eve@corp-mail.net knows, <EMAIL_9> does not, 1 < 2 & <EM"
ASKED = {"messages": [HumanMessage(f"These are {', '.join(PEOPLE)}.")]}


class Streaming(ScriptedChatModel):
    """LangChain's fake, which streams given chunks, and tells callbacks of each as models of providers do."""

    chunks: list[list[AIMessageChunk]]

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        self.seen.append(list(messages))
        for message in self.chunks[min(len(self.seen), len(self.chunks)) - 1]:
            chunk = ChatGenerationChunk(message=message)
            if run_manager:
                run_manager.on_llm_new_token(message.content, chunk=chunk)
            yield chunk


def pieces(text, at):
    return [text[:at], text[at:]] if at else list(text)


def streaming(at, *, in_blocks=False):
    texts = pieces(SAID, at)
    contents = [[{"type": "text", "text": text, "index": 0}] for text in texts] if in_blocks else texts
    return Streaming(chunks=[[AIMessageChunk(content, id="run-1") for content in contents]])


def session(name="one", **settings):
    return Vault(MemoryStore(), key=new_key(), **settings).session(name)


def guard_of(vault=None, **settings):
    return ContextGuardMiddleware(Stabilizer(4_000), vault=vault or session(), restore=True, **settings)


def has_people(seen):
    return [person for person in PEOPLE if person in str(seen)]


@pytest.mark.parametrize("in_blocks", [False, True])
@pytest.mark.parametrize("at", range(len(SAID)))
async def test_an_agent_shows_a_streamed_text_whole_wherever_it_is_cut(at, in_blocks):
    model = streaming(at, in_blocks=in_blocks)
    agent = create_agent(model, [], middleware=[guard_of()])
    shown, events = "", []
    async for mode, data in agent.astream(ASKED, stream_mode=["messages", "values"]):
        if mode == "messages":
            shown += data[0].text
        else:
            state = data["messages"]
    assert shown == SHOWN
    assert state[-1].text == SHOWN
    async for event in agent.astream_events({"messages": [*state, HumanMessage("Again.")]}, version="v2"):
        if event["event"] == "on_chat_model_stream":
            events.append(event["data"]["chunk"].text)
    assert "".join(events) == SHOWN
    assert not has_people(model.seen)
    assert "Write to <EMAIL_1>, then <EMAIL_2>" in str(model.seen[-1]), "the model sees again what it wrote"


ARGS = '{"to": "<EMAIL_2>", "text": "of <EMAIL_1>"}'


@pytest.mark.parametrize("tools", [{}, {"send_mail": False}])
@pytest.mark.parametrize("at", range(len(ARGS)))
async def test_streamed_arguments_are_shown_and_given_unless_the_tool_gets_no_values(at, tools):
    given, shown = [], ""

    def called(name, args):
        call = {"name": name, "args": args, "id": name and "c1", "index": 0, "type": "tool_call_chunk"}
        return AIMessageChunk("", id="run-1", tool_call_chunks=[call])

    calls = [called("send_mail", ""), *(called(None, piece) for piece in pieces(ARGS, at))]
    model = Streaming(chunks=[calls, [AIMessageChunk("Done, <EMAIL_2>.")]])

    @tool
    def send_mail(to: str, text: str) -> str:
        """Send a mail."""
        given.append((to, text))
        return f"sent to {to}"

    agent = create_agent(model, [send_mail], middleware=[guard_of(session(tools=tools))])
    async for chunk, _ in agent.astream(ASKED, stream_mode="messages"):
        shown += "".join(call["args"] or "" for call in getattr(chunk, "tool_call_chunks", ()))
        last = chunk
    assert shown == (ARGS if tools else '{"to": "bob@corp-mail.net", "text": "of ada@corp-mail.net"}')
    assert given == [("<EMAIL_2>", "of <EMAIL_1>") if tools else ("bob@corp-mail.net", "of ada@corp-mail.net")]
    assert last.text == "Done, bob@corp-mail.net." or last.text == ""
    assert not has_people(model.seen)


@pytest.mark.parametrize("runs_async", [False, True])
async def test_a_whole_answer_and_the_arguments_in_the_state_have_the_values(runs_async):
    calls = [{"name": "look_up", "args": {"who": "<EMAIL_1>", "n": 2}, "id": "c1"}]
    replies = iter([AIMessage("Of <EMAIL_1>:", tool_calls=calls), AIMessage(SAID)])
    model = ScriptedChatModel(reply=lambda _: next(replies))

    @tool
    def look_up(who: str, n: int) -> str:
        """Look somebody up."""
        return f"{who} is there"

    agent = create_agent(model, [look_up], middleware=[guard_of()])
    messages = (await agent.ainvoke(ASKED) if runs_async else agent.invoke(ASKED))["messages"]
    assert messages[1].content == "Of ada@corp-mail.net:"
    assert messages[1].tool_calls[0]["args"] == {"who": "ada@corp-mail.net", "n": 2}
    assert messages[-1].content == SHOWN
    assert not has_people(model.seen)


class Contact(BaseModel):
    mail: str
    note: str


@pytest.mark.parametrize("strategy", [ToolStrategy, ProviderStrategy])
def test_structured_output_has_the_values(strategy):
    args = {"mail": "<EMAIL_1>", "note": "not <EMAIL_2>"}
    written = '{"mail": "<EMAIL_1>", "note": "not <EMAIL_2>"}'
    called = AIMessage("", tool_calls=[{"name": "Contact", "args": args, "id": "c1"}])
    model = ScriptedChatModel(reply=lambda _: called if strategy is ToolStrategy else AIMessage(written))
    guard = guard_of(session(tools={"*": False}))
    agent = create_agent(model, [], middleware=[guard], response_format=strategy(Contact))
    found = agent.invoke(ASKED)["structured_response"]
    assert found == Contact(mail=PEOPLE[0], note=f"not {PEOPLE[1]}")
    assert not has_people(model.seen)


async def test_two_users_with_equal_words_never_see_each_others_values_not_even_by_a_cache():
    vaults = {name: session(name) for name in ("ada", "bob")}
    model = GenericFakeChatModel(messages=iter(20 * [AIMessage("You are <EMAIL_1>.")]), cache=InMemoryCache())
    guard = ContextGuardMiddleware(Stabilizer(4_000), vault=lambda run: vaults[run.context], restore=True)
    agent = create_agent(model, [], middleware=[guard], context_schema=str)

    async def ask(name):
        asked = {"messages": [HumanMessage(f"I am {name}@corp-mail.net.")]}
        return (await agent.ainvoke(asked, context=name))["messages"][-1].content

    names = 5 * ["ada", "bob"]
    for name, shown in zip(names, await asyncio.gather(*map(ask, names)), strict=True):
        assert shown == f"You are {name}@corp-mail.net."


def stabilizers():
    vaults = Vault(MemoryStore(), key=new_key())

    def stabilizer_of(name):
        masker = Masker(strategy="pseudonymize", vault=vaults.session(name))
        return Stabilizer(4_000, stages=default_stages(masker=masker))

    return stabilizer_of


@pytest.mark.parametrize("at", range(0, len(SAID), 5))
async def test_a_chain_shows_the_values_whole_and_streamed(at):
    model, config = streaming(at), {"configurable": {"session_id": "one"}}
    prompt = ChatPromptTemplate.from_messages([("human", "{text}")])
    chain = prompt | (ContextGuard(stabilizers(), restore=True) | model) | StrOutputParser()
    asked = {"text": ASKED["messages"][0].content}
    assert "".join([piece async for piece in chain.astream(asked, config)]) == SHOWN
    assert "".join(chain.stream(asked, config)) == SHOWN
    model.reply = lambda _: AIMessage(SAID)
    assert chain.invoke(asked, config) == SHOWN == await chain.ainvoke(asked, config)
    assert chain.batch([asked, asked], config) == [SHOWN, SHOWN]
    assert not has_people(model.seen)


@pytest.mark.filterwarnings("ignore:.*RunnableWithMessageHistory.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*ChatMessageHistory.*:DeprecationWarning")
def test_a_stored_history_has_the_values():
    from langchain_core.chat_history import InMemoryChatMessageHistory

    history = InMemoryChatMessageHistory()
    model = ScriptedChatModel(reply=lambda _: AIMessage(SAID))
    chain = with_message_history(model, lambda session_id: history, stabilizers(), restore=True)
    config = {"configurable": {"session_id": "one"}}
    assert chain.invoke(ASKED["messages"], config).content == SHOWN
    assert chain.invoke("Again.", config).content == SHOWN
    assert [m.content for m in history.messages if m.type == "ai"] == [SHOWN, SHOWN]
    assert not has_people(model.seen)


def test_a_guard_that_does_not_know_the_model_says_how_to_write_the_chain():
    model = ScriptedChatModel(reply=lambda _: AIMessage(SAID))
    prompt = ChatPromptTemplate.from_messages([("human", "{text}")])
    with pytest.raises(ConfigError, match=r"prompt \| \(ContextGuard"):
        (prompt | ContextGuard(stabilizers(), restore=True) | model).invoke({"text": "hello"})
    with pytest.raises(ConfigError, match="a chat model follows"):
        _ = ContextGuard(stabilizers(), restore=True) | StrOutputParser()


@pytest.mark.parametrize("at", range(0, len(SAID), 7))
async def test_the_event_of_a_models_end_shows_the_values(at):
    agent, shown = create_agent(streaming(at), [], middleware=[guard_of()]), []
    async for event in agent.astream_events(ASKED, version="v2"):
        if event["event"] == "on_chat_model_end":
            shown.append(event["data"]["output"].text)
    assert shown == [SHOWN]


def test_without_the_switch_the_placeholders_are_shown():
    model = ScriptedChatModel(reply=lambda _: AIMessage(SAID))
    guard = ContextGuardMiddleware(Stabilizer(4_000), vault=session())
    assert create_agent(model, [], middleware=[guard]).invoke(ASKED)["messages"][-1].content == SAID


@pytest.mark.parametrize("at", range(len(ARGS)))
async def test_the_blocks_of_a_streamed_call_and_a_signed_thought_are_told_apart(at):
    """As Anthropic streams: a call is a block of content, whose JSON comes in pieces, and beside it the same pieces."""

    def called(block, **call):
        chunk = {"name": None, "id": None, "index": 1, "type": "tool_call_chunk", **call}
        return AIMessageChunk([{"index": 1, **block}], id="run-1", tool_call_chunks=[chunk])

    thought = {"type": "thinking", "thinking": "of <EMAIL_1>", "signature": "s", "index": 0}
    calls = [
        AIMessageChunk([thought], id="run-1"),
        called({"type": "tool_use", "name": "look_up", "id": "c1", "input": {}}, name="look_up", id="c1", args=""),
        *(called({"type": "input_json_delta", "partial_json": one}, args=one) for one in pieces(ARGS, at)),
    ]
    given = []

    @tool
    def look_up(to: str, text: str) -> str:
        """Look somebody up."""
        given.append((to, text))
        return "there"

    model = Streaming(chunks=[calls, [AIMessageChunk("Done.")]])
    agent = create_agent(model, [look_up], middleware=[guard_of()])
    blocks = []
    async for chunk, _ in agent.astream(ASKED, stream_mode="messages"):
        blocks += chunk.content if isinstance(chunk.content, list) else []
    shown = "".join(block.get("partial_json", "") for block in blocks)
    assert shown == '{"to": "bob@corp-mail.net", "text": "of ada@corp-mail.net"}'
    assert [block["thinking"] for block in blocks if block["type"] == "thinking"] == ["of <EMAIL_1>"]
    assert given == [("bob@corp-mail.net", "of ada@corp-mail.net")]
    assert not has_people(model.seen)


def test_arguments_of_a_call_reach_the_model_behind_the_guard():
    given = []

    class Noting(ScriptedChatModel):
        def _generate(self, messages, stop=None, run_manager=None, **kwargs):
            given.append((stop, kwargs))
            return super()._generate(messages, stop=stop, run_manager=run_manager)

    chain = ContextGuard(stabilizers(), restore=True) | Noting(reply=lambda _: AIMessage(SAID)) | StrOutputParser()
    config = {"configurable": {"session_id": "one"}}
    assert chain.invoke(ASKED["messages"], config, stop=["x"], seed=1) == SHOWN
    assert given == [(["x"], {"seed": 1})]


def test_the_model_of_the_program_is_not_changed():
    model = ScriptedChatModel(reply=lambda _: AIMessage(SAID))
    create_agent(model, [], middleware=[guard_of()]).invoke(ASKED)
    assert model.invoke("Hello.").content == SAID
