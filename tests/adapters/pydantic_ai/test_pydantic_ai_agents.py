"""Whole agents, run offline with the framework's own test models."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from importlib.metadata import version
from types import SimpleNamespace

import pytest

pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")

from prefix_law import grown
from pydantic import BaseModel
from pydantic_ai import Agent, RunContext, ToolReturn, capabilities
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel

from ctxguard import Stabilizer
from ctxguard.errors import BudgetExceededError, CheckFailedError, ConfigError
from ctxguard_pydantic_ai import ContextGuard, PydanticAIAdapter, history_processor
from ctxguard_pydantic_ai.returns import FULL_RESULT

RELEASE = tuple(int(number) for number in version("pydantic-ai-slim").split(".")[:2])
HAS_WINDOW = RELEASE >= (2, 66)
HAS_RETRY = hasattr(AbstractCapability, "prepare_model_request")
ROWS = [f"row {number}: the order left the warehouse" for number in range(60)]


def as_processor(processor, way="capabilities"):
    """Return the agent's settings for a history processor, in one of this version's ways."""
    if way == "history_processors":
        return {"history_processors": [processor]}
    capability = getattr(capabilities, "ProcessHistory", None) or capabilities.HistoryProcessor
    return {"capabilities": [capability(processor)]}


class Scripted:
    """A model that calls the tool twice at once, then answers; it keeps what it was sent."""

    def __init__(self):
        self.seen = []

    def _has_results(self, messages):
        return any(part.part_kind == "tool-return" for part in messages[-1].parts)

    def answer(self, messages, info):
        self.seen.append((list(messages), info))
        if self._has_results(messages):
            return ModelResponse(parts=[TextPart(f"answer {len(self.seen)}")])
        calls = [ToolCallPart("look_up", {"query": q}) for q in ("alpha", "beta")]
        return ModelResponse(parts=[TextPart("Let me look."), *calls])

    async def stream(self, messages, info):
        self.seen.append((list(messages), info))
        if self._has_results(messages):
            for word in ("stream", "ed"):
                yield word
        else:
            yield {0: DeltaToolCall("look_up", '{"query": "alpha"}', tool_call_id=f"call_{len(self.seen)}")}


def agent_with(model, **settings):
    agent = Agent(model, system_prompt="You are a clerk.", instructions="Answer in one line.", **settings)

    @agent.tool_plain
    def look_up(query: str) -> dict[str, list[str]]:
        return {query: ROWS}

    return agent


def texts(messages):
    return [artifact.text for artifact in PydanticAIAdapter().read(messages)]


def orphans(messages):
    calls = [p.tool_call_id for m in messages for p in m.parts if p.part_kind == "tool-call"]
    results = [p.tool_call_id for m in messages for p in m.parts if p.part_kind == "tool-return"]
    return set(calls) ^ set(results)


def test_fifty_turns_with_tools_fit_and_the_history_stays_as_it_was():
    model, reports = Scripted(), []
    guard = ContextGuard(Stabilizer(1_500), on_report=reports.append)
    agent, history = agent_with(FunctionModel(model.answer), capabilities=[guard]), []
    for turn in range(50):
        result = agent.run_sync(f"Question {turn} of ann@example.com", message_history=history)
        history = result.all_messages()
        assert len(result.new_messages()) == 4
    assert len(history) == 200
    assert [p.content for m in history for p in m.parts if p.part_kind == "user-prompt"] == [
        f"Question {turn} of ann@example.com" for turn in range(50)
    ]
    results = [p.content for m in history for p in m.parts if p.part_kind == "tool-return"]
    assert results == [{"alpha": ROWS}, {"beta": ROWS}] * 50
    assert len(model.seen) == 100
    assert all(report.ok for report in reports)
    assert max(report.tokens_after for report in reports) <= 1_500
    for sent, info in model.seen:
        assert sent[0].parts[0].content == "You are a clerk."
        assert getattr(info, "instructions", "Answer in one line.") == "Answer in one line."
        assert isinstance(sent[-1], ModelRequest)
        assert not orphans(sent)
        assert "ann@example.com" not in " ".join(texts(sent))


def test_prompts_only_grow_but_at_a_cut():
    model, reports = Scripted(), []
    guard = ContextGuard(Stabilizer(2_700, target=0.5, counter="estimate"), on_report=reports.append)
    agent, history = agent_with(FunctionModel(model.answer), capabilities=[guard]), []
    for turn in range(12):
        history = agent.run_sync(f"Question {turn}", message_history=history).all_messages()
    assert len(model.seen) == len(reports) == 24
    previous, breaks = None, []
    for (messages, _), report in zip(model.seen, reports, strict=True):
        now = grown(previous, SimpleNamespace(artifacts=PydanticAIAdapter().read(messages), report=report))
        if previous is not None:
            newest = max((n for n, (kind, _, _) in enumerate(previous) if kind == "assistant"), default=0)
            breaks.append(now[:newest] != previous[:newest])  # the newest exchange takes its view with the next call
        previous = now
    assert breaks == [report.cut is not None and report.cut.fresh for report in reports[1:]]
    assert 1 <= sum(breaks) <= 6


async def test_an_async_run_inside_a_tool_loop():
    model = Scripted()
    agent = agent_with(FunctionModel(model.answer), capabilities=[ContextGuard(Stabilizer(1_500))])
    results = await asyncio.gather(*(agent.run(f"Question {n}") for n in range(4)))
    assert all(result.output.startswith("answer") for result in results)


async def test_a_streamed_run():
    model = Scripted()
    agent = agent_with(
        FunctionModel(model.answer, stream_function=model.stream), capabilities=[ContextGuard(Stabilizer(1_500))]
    )
    history = []
    for turn in range(8):
        async with agent.run_stream(f"Question {turn}", message_history=history) as stream:
            assert [text async for text in stream.stream_text(delta=True, debounce_by=None)] == ["stream", "ed"]
        history = stream.all_messages()
    assert len(history) == 32
    assert not orphans(model.seen[-1][0])
    assert len(model.seen[-1][0]) < len(history)


class Verdict(BaseModel):
    reason: str
    score: int


def test_structured_output():
    agent = Agent(TestModel(), output_type=Verdict, capabilities=[ContextGuard(Stabilizer(1_500))])
    history = []
    for turn in range(30):
        result = agent.run_sync(f"Judge number {turn}: " + "long case " * 40, message_history=history)
        history = result.all_messages()
        assert isinstance(result.output, Verdict)
    assert len(history) >= 60


@pytest.mark.filterwarnings("ignore:.*history_processors")
@pytest.mark.parametrize("way", ["capabilities", *(["history_processors"] if RELEASE[0] == 1 else [])])
def test_a_history_processor_replaces_what_is_stored(way):
    model = Scripted()
    agent = agent_with(FunctionModel(model.answer), **as_processor(history_processor(Stabilizer(1_500)), way))
    history = []
    for turn in range(20):
        history = agent.run_sync(f"Question {turn} of ann@example.com", message_history=history).all_messages()
    assert len(history) < 20 * 4 * 0.6, "a turn is four messages"
    assert not orphans(history)
    assert history[0].parts[0].content == "You are a clerk."
    assert "ann@example.com" not in " ".join(texts(history))


@pytest.mark.skipif(not hasattr(RunContext, "tool_manager"), reason="this version's context has no tools")
def test_a_history_processor_counts_the_tools_and_refuses_what_it_cannot_mask():
    def reports_of(**settings):
        reports = []
        processor = history_processor(Stabilizer(4_000), on_report=reports.append)
        agent = Agent(TestModel(call_tools=[]), **settings, **as_processor(processor))
        agent.run_sync("Question")
        return reports

    def look_up(query: str) -> str:
        """Look it up in one of the many tables of the shop."""
        return query

    def write_to(query: str) -> str:
        """Write to ada@example.com."""
        return query

    plain, tools, output = reports_of(), reports_of(tools=[look_up]), reports_of(output_type=Verdict)
    assert tools[0].tokens_after > plain[0].tokens_after + 20
    assert output[0].tokens_after > plain[0].tokens_after + 20
    with pytest.raises(CheckFailedError, match="EMAIL"):
        reports_of(tools=[write_to])


async def test_a_history_processor_is_a_plain_async_function_of_context_and_messages():
    processor = history_processor(Stabilizer(300))
    messages = [ModelRequest.user_text_prompt("word " * 40 + str(n)) for n in range(20)]
    view = await processor(None, messages)
    assert len(view) < 20
    assert view[-1] is messages[-1]
    assert len(messages) == 20


@pytest.mark.skipif(not HAS_WINDOW, reason="this version's models know no window")
def test_a_share_of_the_window_is_the_budget():
    model, reports = Scripted(), []
    guard = ContextGuard(Stabilizer("50%"), on_report=reports.append)
    agent = agent_with(FunctionModel(model.answer, profile={"context_window": 4_000}), capabilities=[guard])
    agent.run_sync("Question")
    assert {report.budget for report in reports} == {2_000}


def test_a_window_of_ones_own_and_an_unknown_one():
    reports = []
    guard = ContextGuard(Stabilizer("50%"), window=4_000, on_report=reports.append)
    agent_with(FunctionModel(Scripted().answer), capabilities=[guard]).run_sync("Question")
    assert {report.budget for report in reports} == {2_000}
    guard = ContextGuard(Stabilizer("50%"), on_report=reports.append)
    agent_with(FunctionModel(Scripted().answer), capabilities=[guard]).run_sync("Question")
    assert reports[-1].details["window"] == {"tokens": 128_000, "source": "fallback", "resolved": False}
    assert [told for told in reports[-1].warnings if "window is not known, 128,000 tokens are assumed" in told]


@pytest.mark.parametrize(
    ("own", "name", "stated", "tokens", "source"),
    [
        ("gpt-4", "our-deployment", None, 8_192, "table"),
        ("gpt-4", "gpt-4o", 4_000, 8_192, "table"),
        (None, "gpt-4o", 4_000, 4_000, "framework"),
        ("our-own-model", "gpt-4o", 4_000, 4_000, "framework"),
        (None, "gpt-4o", None, 128_000, "table"),
        ("our-own-model", "gpt-4", None, 8_192, "table"),
        ("our-own-model", "our-deployment", None, 128_000, "fallback"),
    ],
)
@pytest.mark.parametrize("is_wrapped", [False, True])
@pytest.mark.skipif(not HAS_WINDOW, reason="this version's models know no window")
def test_what_the_stabilizer_and_the_profile_state_comes_before_the_name(own, name, stated, tokens, source, is_wrapped):
    reports, profile = [], None if stated is None else {"context_window": stated}
    guard = ContextGuard(Stabilizer("80%", model=own, counter="estimate", headroom=0), on_report=reports.append)
    model = FunctionModel(Scripted().answer, model_name=name, profile=profile)
    agent_with(WrapperModel(model) if is_wrapped else model, capabilities=[guard]).run_sync("Question")
    assert reports[-1].details["window"] == {"tokens": tokens, "source": source, "resolved": source != "fallback"}
    assert reports[-1].budget == int(tokens * 0.8)


def test_what_cannot_fit_is_said():
    agent = agent_with(FunctionModel(Scripted().answer), capabilities=[ContextGuard(Stabilizer(60))])
    with pytest.raises(BudgetExceededError) as caught:
        agent.run_sync("Tell me everything about it. " * 30)
    assert caught.value.needed > caught.value.budget == 60


def test_tool_schemas_and_instructions_are_counted():
    def tokens(**settings):
        reports = []
        guard = ContextGuard(Stabilizer(5_000), on_report=reports.append)
        Agent(TestModel(call_tools=[]), capabilities=[guard], **settings).run_sync("Hello")
        return reports[0].tokens_after

    def look_up(query: str) -> str:
        """Look something up in the archive of all orders."""
        return query

    bare = tokens()
    assert tokens(tools=[look_up]) > bare + 15
    assert tokens(instructions="Answer in one line, and never say more than was asked.") > bare + 8


def result_of(tool, **settings):
    """Return the tool's result as the run stored it."""
    agent = Agent(TestModel(), capabilities=[ContextGuard(Stabilizer(500), **settings)])
    agent.tool_plain(tool)
    messages = agent.run_sync("Go").all_messages()
    return next(p for m in messages for p in m.parts if isinstance(p, ToolReturnPart))


def test_a_result_is_stored_as_the_tool_gave_it():
    def archive() -> str:
        return "\n".join(ROWS * 20)

    part = result_of(archive)
    assert part.content == archive()
    assert part.metadata is None


def test_a_result_above_its_limit_is_bounded_when_the_tool_returns():
    def archive() -> str:
        return "\n".join(ROWS * 20)

    part = result_of(archive, max_result_tokens=500)
    assert len(part.content) < 3_000 < len(archive())
    assert part.metadata == {FULL_RESULT: archive()}


def test_a_structured_result_is_bounded_and_its_own_metadata_kept():
    def archive() -> ToolReturn:
        return ToolReturn(return_value={"rows": ROWS * 20}, metadata={"source": "db"})

    part = result_of(archive, max_result_tokens=100)
    assert isinstance(part.content, str)
    assert len(part.content) < 1_000
    assert part.metadata["source"] == "db"
    assert part.metadata[FULL_RESULT] == {"rows": ROWS * 20}


def test_a_result_that_fits_is_the_very_same():
    def archive() -> dict[str, int]:
        return {"rows": 3}

    part = result_of(archive, max_result_tokens=500)
    assert part.content == {"rows": 3}
    assert part.metadata is None


@pytest.mark.skipif(not HAS_RETRY, reason="this version has no second attempt")
def test_an_overflow_is_answered_once_with_a_tighter_budget():
    from pydantic_ai.exceptions import ModelContextWindowExceededError

    sizes = []

    def small_window(messages, info):
        sizes.append(sum(len(text) for text in texts(messages)))
        if sizes[-1] > 3_500:
            raise ModelContextWindowExceededError("scripted", "too long")
        return ModelResponse(parts=[TextPart("fine")])

    reports = []
    agent = Agent(FunctionModel(small_window), capabilities=[ContextGuard(Stabilizer(1_000), on_report=reports.append)])
    history = [ModelRequest.user_text_prompt("the same old words again " * 8) for _ in range(20)]
    assert agent.run_sync("And now?", message_history=history).output == "fine"
    assert len(sizes) == 2
    assert sizes[1] < sizes[0]
    assert [report.budget for report in reports] == [1_000, 600]
    agent.run_sync("Again?", message_history=history[:2])
    assert reports[-1].budget == 1_000, "the tighter budget is the first run's alone"


@pytest.mark.skipif(not HAS_RETRY, reason="this version has no second attempt")
def test_a_second_overflow_and_other_errors_are_raised():
    from pydantic_ai.exceptions import ModelContextWindowExceededError

    tried = []

    def failing(error):
        def answer(messages, info):
            tried.append(error)
            raise error

        return Agent(FunctionModel(answer), capabilities=[ContextGuard(Stabilizer(1_000))])

    with pytest.raises(ModelContextWindowExceededError):
        failing(ModelContextWindowExceededError("scripted", "too long")).run_sync("Question")
    assert len(tried) == 2
    with pytest.raises(ZeroDivisionError):
        failing(ZeroDivisionError()).run_sync("Question")
    assert len(tried) == 3


@pytest.mark.skipif(not HAS_RETRY, reason="before 2.66 a history processor stores what the guard shows")
def test_it_stays_out_of_the_history_beside_a_history_processor():
    def keep_all(ctx: RunContext[None], messages: list) -> list:
        return messages

    for order in (1, -1):
        model = Scripted()
        both = [*as_processor(keep_all)["capabilities"], ContextGuard(Stabilizer(1_500))][::order]
        agent, history = agent_with(FunctionModel(model.answer), capabilities=both), []
        for turn in range(10):
            history = agent.run_sync(f"Question {turn} of ann@example.com", message_history=history).all_messages()
        assert len(history) == 40
        assert history[0].parts[1].content == "Question 0 of ann@example.com"


def test_one_guard_serves_many_agents_and_is_not_changed():
    guard = ContextGuard(Stabilizer(1_500))
    before = replace(guard)
    agents = [agent_with(FunctionModel(Scripted().answer), capabilities=[guard]) for _ in range(2)]
    for agent in agents:
        agent.run_sync("Question")
    assert guard == before


@pytest.mark.parametrize("arguments", [([],), ([], [])])
async def test_a_processor_of_ones_own_that_forgets_the_context_is_told_so(arguments):
    with pytest.raises(ConfigError, match="annotated as RunContext") as caught:
        await history_processor(Stabilizer(900))(*arguments)
    assert caught.value.setting == "history_processors"
