"""The guard as a step of chains, run with LangChain's own fake models."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import pytest
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.language_models.fake_chat_models import FakeListChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import ConfigurableFieldSpec, RunnableLambda
from langchain_core.tools import tool
from langchain_histories import ScriptedChatModel, needs_profiles
from pydantic import BaseModel, Field

from ctxguard import Stabilizer
from ctxguard.errors import AdapterError, BudgetExceededError, ConfigError, HistoryError
from ctxguard.settings import install_command
from ctxguard_langchain import ContextGuard, LangChainAdapter, with_message_history

pytestmark = [
    # Message histories are what this module is about; LangChain 1.3.3 and later deprecate them for LangGraph's.
    pytest.mark.filterwarnings("ignore:.*RunnableWithMessageHistory.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*ChatMessageHistory.*:DeprecationWarning"),
]
MAIL = "jane.doe@corp-mail.net"
PROMPT = ChatPromptTemplate.from_messages(
    [("system", "You help customers."), MessagesPlaceholder("history"), ("human", "{question}")]
)


def echo(messages):
    return AIMessage(f"Answer to: {messages[-1].text} " + "and so on " * 20)


@tool
def lookup(order: str) -> str:
    """Look an order up."""
    return order


def long_history(turns=30):
    pairs = [(HumanMessage(f"question {n} " + "x " * 30), AIMessage("an answer " * 30)) for n in range(turns)]
    return [message for pair in pairs for message in pair]


@pytest.mark.parametrize(
    "given",
    [
        "hello there",
        [("human", "hello there")],
        [{"role": "user", "content": "hello there"}],
        [HumanMessage("hello there")],
        ChatPromptTemplate.from_messages([("human", "hello {who}")]).invoke({"who": "there"}),
    ],
)
def test_everything_that_a_model_takes_is_taken(given):
    assert ContextGuard(Stabilizer(1_000)).invoke(given) == [HumanMessage("hello there")]


def test_untouched_messages_are_the_same_objects():
    messages = [HumanMessage("a"), AIMessage("b"), HumanMessage("c")]
    out = ContextGuard(Stabilizer(1_000)).invoke(messages)
    assert all(now is was for now, was in zip(out, messages, strict=True))


@pytest.mark.parametrize("wrong", [{"messages": []}, HumanMessage("x"), 7, [object()], [{"content": "no role"}]])
def test_what_holds_no_messages_is_refused(wrong):
    with pytest.raises(HistoryError):
        ContextGuard(Stabilizer(1_000)).invoke(wrong)


def test_a_budget_that_cannot_hold_is_an_error_of_the_chain():
    chain = ContextGuard(Stabilizer(50)) | ScriptedChatModel(reply=echo)
    with pytest.raises(BudgetExceededError):
        chain.invoke([SystemMessage("rule " * 100), HumanMessage("hi")])


def test_the_model_sees_the_stabilized_messages():
    model, reports = ScriptedChatModel(reply=echo), []
    guard = ContextGuard(Stabilizer(600), on_report=lambda report: reports.append((report, report.session)))
    chain = PROMPT | guard | model | StrOutputParser()
    answer = chain.invoke({"history": long_history(), "question": f"I am {MAIL}"})
    assert answer.startswith("Answer to: I am [REDACTED_EMAIL]")
    (seen,) = model.seen
    assert seen[0] == SystemMessage("You help customers.")
    assert len(seen) < 60
    ((report, session),) = reports
    assert report.ok
    assert report.tokens_after <= 600 < report.tokens_before
    assert session is None


async def test_async_and_batches_give_the_same():
    history = long_history()
    inputs = [{"history": history[: 2 * n], "question": "and now?"} for n in (1, 10, 30)]

    model = ScriptedChatModel(reply=lambda messages: AIMessage(f"{len(messages)}: {messages[1].text}"))
    chain = PROMPT | ContextGuard(Stabilizer(600)) | model
    expected = [chain.invoke(given).content for given in inputs]
    assert len(set(expected)) > 1
    assert [(await chain.ainvoke(given)).content for given in inputs] == expected
    assert [m.content for m in chain.batch(inputs)] == expected
    assert [m.content for m in await chain.abatch(inputs)] == expected


async def test_the_answer_still_streams():
    chain = PROMPT | ContextGuard(Stabilizer(600)) | ScriptedChatModel(reply=lambda _: AIMessage("one two three"))
    given = {"history": long_history(), "question": "count"}
    streamed = [chunk.content for chunk in chain.stream(given)]
    assert [piece for piece in streamed if piece.strip()] == ["one", "two", "three"]
    assert [chunk.content async for chunk in chain.astream(given)] == streamed


async def test_traces_show_the_guard_with_tags_and_metadata():
    chain = PROMPT | ContextGuard(Stabilizer(600)) | ScriptedChatModel(reply=echo)
    given = {"history": long_history(), "question": "and now?"}
    config = {"tags": ["t"], "metadata": {"m": 1}}
    events = [event async for event in chain.astream_events(given, config, version="v2")]
    started = {event["name"]: event for event in events if event["event"].endswith("_start")}
    assert "ctxguard" in started
    assert "t" in started["ctxguard"]["tags"]
    assert started["ctxguard"]["metadata"]["m"] == 1
    (ended,) = [event for event in events if event["event"] == "on_chain_end" and event["name"] == "ctxguard"]
    assert isinstance(ended["data"]["output"][0], SystemMessage)


@pytest.mark.parametrize("key", ["session_id", "thread_id"])
def test_sessions_have_stabilizers_of_their_own(key):
    small, large = Stabilizer(300), Stabilizer(100_000)
    guard = ContextGuard(lambda session: small if session == "thrifty" else large)
    history = [*long_history(), HumanMessage("and now?")]
    assert len(guard.invoke(history, {"configurable": {key: "thrifty"}})) < 10
    assert len(guard.invoke(history, {"configurable": {key: "rich"}})) == len(history)
    assert len(guard.invoke(history)) == len(history)


async def test_async_summarizers_and_stages_are_awaited():
    from ctxguard.draft import Ask

    async def asked(text):
        return text

    def stage(draft):
        heard = yield Ask(asked, ("heard",))
        assert heard == "heard"
        return draft

    chain = ContextGuard(Stabilizer(1_000, stages=[stage])) | ScriptedChatModel(reply=echo)
    assert (await chain.ainvoke("hello")).content.startswith("Answer to: hello")


def test_a_guard_is_safe_to_share_between_threads():
    guard, histories = ContextGuard(Stabilizer(600)), [[*long_history(n), HumanMessage("?")] for n in range(1, 20)]
    alone = [guard.invoke(history) for history in histories]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(guard.invoke, histories)) == alone


class TestWindowsAndTools:
    @needs_profiles
    def test_a_share_takes_the_window_of_the_models_profile(self):
        model = ScriptedChatModel(reply=echo, profile={"max_input_tokens": 1_000})
        reports = []
        guard = ContextGuard(Stabilizer("80%"), model=model.bind(stop=["x"]), on_report=reports.append)
        guard.invoke("hello")
        assert reports[0].budget == 800

    def test_a_window_that_is_given_goes_before_the_profile(self):
        reports = []
        ContextGuard(Stabilizer("50%"), window=300, on_report=reports.append).invoke("hello")
        assert reports[0].budget == 150

    def test_an_unknown_window_says_how_to_give_one(self):
        with pytest.raises(ConfigError, match="window="):
            ContextGuard(Stabilizer("80%"), model=ScriptedChatModel(reply=echo)).invoke("hello")

    def test_bound_tools_are_counted(self):
        model, reports = ScriptedChatModel(reply=echo), []
        told = lambda report: reports.append(report.tokens_after)  # noqa: E731
        stabilizer = Stabilizer(1_000)
        ContextGuard(stabilizer, on_report=told).invoke("hello")
        ContextGuard(stabilizer, model=model.bind_tools([lookup]).with_config(tags=["t"]), on_report=told).invoke(
            "hello"
        )
        ContextGuard(stabilizer, tools=[lookup], on_report=told).invoke("hello")
        assert reports[0] < reports[1] == reports[2]


class TestMessageHistory:
    def test_fifty_turns_are_stored_raw_and_complete(self):
        model, stored, stabilizer = ScriptedChatModel(reply=echo), InMemoryChatMessageHistory(), Stabilizer(1_200)
        chain = with_message_history(
            PROMPT | model,
            lambda session_id: stored,
            stabilizer,
            input_messages_key="question",
            history_messages_key="history",
        )
        config = {"configurable": {"session_id": "s"}}
        for turn in range(50):
            chain.invoke({"question": f"question {turn} from {MAIL}"}, config)
        assert len(stored.messages) == 100
        assert [m.content for m in stored.messages[::2]] == [f"question {turn} from {MAIL}" for turn in range(50)]
        adapter = LangChainAdapter()
        for turn, seen in enumerate(model.seen):
            assert stabilizer.counter.artifacts(adapter.read(seen)) + 3 <= 1_200
            assert MAIL not in str(seen)
            assert seen[0] == SystemMessage("You help customers.")
            assert seen[-1].content == f"question {turn} from [REDACTED_EMAIL]"
        assert len(model.seen[-1]) < 60

    def test_from_turn_to_turn_the_prompt_only_grows_but_for_cuts(self):
        model, stored = ScriptedChatModel(reply=echo), InMemoryChatMessageHistory()
        chain = with_message_history(model, lambda session_id: stored, Stabilizer(1_200))
        for turn in range(50):
            chain.invoke([HumanMessage(f"question {turn}")], {"configurable": {"session_id": "s"}})
        cuts = sum(now[: len(before)] != before for before, now in zip(model.seen, model.seen[1:], strict=False))
        assert 1 <= cuts <= 12

    async def test_streamed_answers_are_stored_as_chunks_and_read_again(self):
        model, stored = ScriptedChatModel(reply=echo), InMemoryChatMessageHistory()
        chain = with_message_history(model, lambda session_id: stored, Stabilizer(300))
        for turn in range(16):
            config = {"configurable": {"session_id": "s"}}
            pieces = [chunk.content async for chunk in chain.astream([HumanMessage(f"question {turn}")], config)]
            assert len(pieces) > 5
        assert len(stored.messages) == 32
        assert isinstance(stored.messages[1], AIMessageChunk)
        assert len(model.seen[-1]) < 20
        assert model.seen[-1][-2] == stored.messages[-3]  # the latest answer, a chunk, is sent as it was stored

    @needs_profiles
    def test_the_guard_goes_before_the_model_wherever_it_stands(self):
        reports, stored = [], InMemoryChatMessageHistory()
        model = ScriptedChatModel(reply=echo, profile={"max_input_tokens": 1_000})
        chain = with_message_history(
            PROMPT | model.bind_tools([lookup]).with_retry().with_fallbacks([model]) | StrOutputParser(),
            lambda session_id: stored,
            Stabilizer("80%"),
            on_report=lambda report: reports.append((report.budget, report.session)),
            input_messages_key="question",
            history_messages_key="history",
        )
        assert chain.invoke({"question": "hi"}, {"configurable": {"session_id": "s"}}).startswith("Answer to: hi")
        assert reports == [(800, "s")]

    def test_a_chain_without_a_model_is_refused(self):
        with pytest.raises(AdapterError, match="ContextGuard"):
            with_message_history(PROMPT | RunnableLambda(str), lambda session_id: None, Stabilizer(100))


class Answer(BaseModel):
    """An answer, and why it is one."""

    text: str = Field(description="word " * 600)


@pytest.mark.parametrize(
    "bound",
    [
        {"response_format": Answer},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "a", "schema": Answer.model_json_schema()},
            }
        },
        {"extra_body": {"documents": ["word " * 600]}},
    ],
    ids=["class", "schema", "any argument"],
)
def test_whatever_is_bound_to_the_model_is_counted(bound):
    model = FakeListChatModel(responses=["Yes."])
    assert ContextGuard(Stabilizer(500), model=model).invoke("Is it?")
    with pytest.raises(BudgetExceededError):
        ContextGuard(Stabilizer(500), model=model.bind(**bound).with_retry()).invoke("Is it?")


def test_tool_exchanges_stay_whole_in_a_chain():
    model = ScriptedChatModel(reply=echo)
    history = []
    for n in range(20):
        calls = [{"name": "lookup", "args": {"order": f"{n}-{k}"}, "id": f"c{n}-{k}"} for k in range(2)]
        history += [HumanMessage(f"order {n}?"), AIMessage("", tool_calls=calls)]
        history += [ToolMessage("row " * 200, tool_call_id=call["id"]) for call in calls]
    (ContextGuard(Stabilizer(900)) | model).invoke([*history, HumanMessage("and now?")])
    seen = model.seen[0]
    called = [call["id"] for message in seen if isinstance(message, AIMessage) for call in message.tool_calls]
    assert called == [message.tool_call_id for message in seen if isinstance(message, ToolMessage)]
    assert len(seen) < len(history)


def test_without_langchain_the_import_names_the_extra():
    code = (
        "import sys; sys.modules['langchain_core'] = None\n"
        "try:\n    import ctxguard_langchain\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert install_command("langchain") in done.stdout


def test_the_import_loads_neither_agents_nor_graphs():
    code = (
        "import sys, ctxguard_langchain\n"
        "assert not {'langchain', 'langgraph'} & set(sys.modules), sorted(m for m in sys.modules if m.startswith('lang'))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class Noting(GenericFakeChatModel):
    """A model that notes the arguments of each call."""

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        NOTED.append({**kwargs, "stop": stop})
        return super()._generate(messages)


NOTED: list[dict[str, object]] = []


def chains():
    guard, model = ContextGuard(Stabilizer(900)), Noting(messages=repeat(AIMessage("Yes.")))
    yield guard | model
    yield guard | model | StrOutputParser()
    yield guard.pipe(model, StrOutputParser())
    yield (guard | model).with_retry()
    yield guard | model.with_retry() | StrOutputParser()


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("arguments", [{"stop": ["\n"]}, {"stop": ["\n"], "temperature": 0.5}, {}])
async def test_arguments_of_a_call_reach_the_model_as_if_it_were_called_itself(number, arguments):
    chain = list(chains())[number]
    NOTED.clear()
    chain.invoke("Hi.", **arguments)
    await chain.ainvoke("Hi.", **arguments)
    chain.batch(["Hi."], **arguments)
    await chain.abatch(["Hi."], **arguments)
    assert list(chain.stream("Hi.", **arguments))
    assert [chunk async for chunk in chain.astream("Hi.", **arguments)]
    assert [{"stop": None, **arguments}] * 6 == NOTED
    assert str(chain.invoke(input="Hi.", config={}, **arguments)) == str(chain.invoke("Hi.", {}))
    broken = chain.batch(inputs=[5, "Hi."], return_exceptions=True, **arguments)
    assert isinstance(broken[0], Exception)
    assert NOTED[-1] == {"stop": None, **arguments}


def test_a_guard_that_is_called_alone_refuses_them_by_name():
    with pytest.raises(ConfigError, match=r"does not accept stop.* \| model"):
        ContextGuard(Stabilizer(900)).invoke("Hi.", stop=["\n"])


@pytest.mark.parametrize("names", [["user_id"], ["user_id", "conversation_id"]])
def test_sessions_that_are_named_by_other_keys_share_no_vault(names):
    histories, asked = defaultdict(InMemoryChatMessageHistory), []

    def stabilizer_of(session):
        asked.append(session)
        return Stabilizer(900)

    chain = with_message_history(
        FakeListChatModel(responses=["Yes."]),
        lambda user_id, conversation_id="": histories[user_id, conversation_id],
        stabilizer_of,
        history_factory_config=[ConfigurableFieldSpec(id=name, annotation=str) for name in names],
    )
    people = [("ada", "1"), ("bob", "1"), ("ada", "2"), ('ada", "1', "")]
    for person in people:
        chain.invoke("Hi.", {"configurable": dict(zip(names, person, strict=False))})
    assert None not in asked
    assert len(set(asked)) == len({person[: len(names)] for person in people})
