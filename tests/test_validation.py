"""What cannot work is refused when it is given, in one line that says what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxguard import Artifact, BudgetExceededError, Lifetime, Stabilizer, ToolCall
from ctxguard.adapting.per_run import RunOptions
from ctxguard.compaction import HistoryCompactor
from ctxguard.compat.context_manager import ContextManager
from ctxguard.content import context_result, recall_tool
from ctxguard.errors import ConfigError, TokenizerError
from ctxguard.pii import DIGITS, STANDARD, Masker
from ctxguard.stages import BoundToolOutput, MaskPII
from ctxguard_openai import stabilize_messages


async def of_coroutine(draft):
    return draft


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (Stabilizer, "a budget is missing: write budget=8_000"),
        (lambda: Stabilizer.from_policy("agent"), "a budget is missing: write budget=8_000"),
        (lambda: Stabilizer("8 thousand"), "a budget is a number of tokens such as 8000 or '8k', or a share"),
        (lambda: Stabilizer("1.5"), "a budget is a number of tokens such as 8000 or '8k', or a share"),
        (lambda: Stabilizer("0k"), "is too small"),
        (lambda: Stabilizer("120%"), "a budget is a number of tokens such as 8000 or '8k', or a share"),
        (lambda: Stabilizer(0), "is too small"),
        (lambda: Stabilizer(1_000.5), "budget is a whole number of tokens, not 1000.5"),
        (lambda: Stabilizer(100, headroom="10%"), "headroom is 'measured', a number of tokens, or a share below 1"),
        (lambda: Stabilizer(100, keep_recent="2"), "keep_recent is a whole number of messages, not '2'"),
        (lambda: Stabilizer(100, keep_recent=-1), "keep_recent must be 0 or more messages, not -1"),
        (lambda: Stabilizer(100, keep_task="false"), "keep_task is True or False, not 'false'"),
        (lambda: Stabilizer(100, shorten_tools=0), "shorten_tools is True or False, not 0"),
        (lambda: Stabilizer(100, headroom=10**400).budget_for(), "leaves nothing"),
        (lambda: Stabilizer(100, provider=["openai"]), "unknown provider ['openai']; known are openai, anthropic"),
        (lambda: RunOptions(restore="false"), "restore is True or False, not 'false'"),
        (lambda: RunOptions(keep_thinking=1), "keep_thinking is True or False, not 1"),
        (lambda: MaskPII([]), "rules is empty; give at least one rule set: [STANDARD]"),
        (lambda: Stabilizer("50%").budget_for("1000"), "window is a whole number of tokens, not '1000'"),
        (lambda: Stabilizer(100, stages="agent"), "stages is a list of callables, not 'agent'"),
        (lambda: Stabilizer(100, stages=[1]), "stages contains 1, which is not callable"),
        (lambda: Stabilizer(100, stages=[MaskPII]), "stages contains the class MaskPII; write MaskPII()"),
        (lambda: MaskPII("standard"), "rules are detectors such as ctxguard.pii.STANDARD, not 'standard'"),
        (lambda: MaskPII(DIGITS, masker=Masker(STANDARD)), "give rules or a masker, not both"),
        (lambda: Stabilizer(100, checks=["NoPII"]), "checks contains 'NoPII', which is not callable"),
        (lambda: Stabilizer(100, checks=[lambda draft: ()]), "without a name; give it an attribute `name`"),
        (lambda: ContextManager({"strategy": "hybrid"}), "config is a ContextConfig, not dict; write ContextConfig(…)"),
        (lambda: HistoryCompactor(len), "config is a CompactionConfig, not builtin_function_or_method"),
        (
            lambda: HistoryCompactor(summarizer=5),
            "not int; make one of a model with pydantic_ai_summ",
        ),
        (lambda: BoundToolOutput(store="results.db"), "store is an open store, not str; write open_store"),
        (lambda: HistoryCompactor(store=Path("summaries.db")), "store is an open store"),
        (lambda: context_result("default", store="results.db"), "store is an open store"),
        (lambda: recall_tool("results.db"), "store is an open store"),
        (lambda: Artifact("user", 5), "content is a text or a tuple of parts, not int"),
        (lambda: ToolCall("f", {"x": 1}), "use json.dumps"),
        (lambda: Lifetime(turns="2"), "turns is a whole number, not '2'"),
        (lambda: stabilize_messages([{"role": "user", "content": "hi"}], 500), "expected a Stabilizer, got 500"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_where_it_is_given(make, told):
    with pytest.raises(ConfigError) as error:
        make()
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_an_error_about_arguments_in_the_wrong_order_quotes_no_message():
    with pytest.raises(ConfigError, match=r"expected a Stabilizer, got list; write Stabilizer\(budget=…\)") as error:
        stabilize_messages(Stabilizer(100), [{"role": "user", "content": "ada@example.com"}])
    assert "ada" not in str(error.value)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("stage", [lambda draft: None, lambda draft: list(draft.artifacts), of_coroutine])
def test_a_stage_that_gives_no_draft_is_named(stage):
    with pytest.raises(ConfigError, match=r"the stage .* returned .*, not a Draft"):
        Stabilizer(100, stages=[stage]).stabilize([Artifact("user", "hi")])


def test_a_counter_that_gives_no_number_is_named():
    with pytest.raises(TokenizerError, match="must give a number of tokens"):
        Stabilizer(100, counter=lambda text: text).stabilize([Artifact("user", "hi")])


@pytest.mark.parametrize(
    ("history", "remedy"),
    [
        ([Artifact("system", "s", 900), Artifact("user", "u", 10)], "shorten the system prompt"),
        ([Artifact("user", "u", 10), Artifact("user", "v", 900)], "shorten the last user message"),
        ([Artifact("user", "p", 900, pinned=True), Artifact("user", "u", 10)], "unpin something"),
    ],
)
def test_the_remedy_is_that_of_the_largest_part(history, remedy):
    with pytest.raises(BudgetExceededError, match=remedy):
        Stabilizer(200, counter="estimate").stabilize(history)
