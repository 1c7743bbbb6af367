"""`ctxguard.guard` is one line for any format."""

from __future__ import annotations

import pytest
from patience import calls_of

import ctxguard
from ctxguard import Artifact, BudgetExceededError, Stabilizer
from ctxguard.errors import AdapterError, ConfigError, HistoryError
from ctxguard_openai import stabilize_messages

MAIL = "jane.roe@mailhost.org"


def history(turns):
    messages = [{"role": "system", "content": "Be brief."}]
    for turn in range(turns):
        messages.append({"role": "user", "content": f"Question {turn} of {MAIL}. " + "word " * 50})
        messages.append({"role": "assistant", "content": f"Answer {turn}."})
    return [*messages, {"role": "user", "content": "And now?"}]


def test_dicts_come_back_as_a_list_of_dicts_with_a_report():
    messages = history(30)
    context = ctxguard.guard(messages, budget=800)
    assert isinstance(context, list)
    assert context.report.ok
    assert context.report.tokens_after <= 800
    assert context[0] is messages[0]
    assert context[-1] is messages[-1]
    assert MAIL not in str(context)


def test_langchain_messages_come_back_as_such():
    langchain = pytest.importorskip("langchain_core.messages", reason="LangChain is not installed")
    messages = [langchain.HumanMessage(f"I am {MAIL}.")]
    (message,) = ctxguard.guard(messages, budget=800)
    assert type(message) is langchain.HumanMessage
    assert message.content == "I am [REDACTED_EMAIL]."


def test_artifacts_come_back_as_artifacts():
    context = ctxguard.guard([Artifact("user", f"I am {MAIL}.")], budget=800)
    assert context[0].text == "I am [REDACTED_EMAIL]."


def test_calls_with_the_same_settings_extend_the_same_prompt():
    messages = history(3)
    first = ctxguard.guard(messages, budget=4_000, policy="chat")
    second = ctxguard.guard([*messages, {"role": "assistant", "content": "Yes."}], budget=4_000, policy="chat")
    assert second[: len(first)] == first
    assert ctxguard.guard(messages, budget=4_000, rules=[ctxguard.pii.SSN])[1] is messages[1]


@pytest.mark.parametrize("budget", [120, 400, 800])
def test_a_session_of_native_messages_gives_what_the_whole_list_gives(budget):
    guard = Stabilizer(budget, on_overflow="bound")
    session = guard.session()
    for message in history(30):
        session.append(message)
    context = session.context()
    messages, report = stabilize_messages(history(30), guard)
    assert context.messages == messages
    assert context.report.tokens_after == report.tokens_after <= budget


def test_bad_input_is_named():
    with pytest.raises(AdapterError, match=r"no adapter knows message 0 \(int\); installed are .*openai"):
        ctxguard.guard([5], budget=800)
    for role in ("bot", "human", "User"):
        with pytest.raises(AdapterError, match=rf"message 1 \(dict\): its role is '{role}', not system, user, assist"):
            ctxguard.guard([{"role": "user", "content": "hello"}, {"role": role, "content": "hi"}], budget=800)
    with pytest.raises(AdapterError, match=r"message 0 \(dict\); installed") as raised:
        ctxguard.guard([{"role": "ada@example.com", "content": "hi"}], budget=800)
    assert "ada@" not in str(raised.value)
    with pytest.raises(ConfigError):
        ctxguard.guard(history(1), budget=800, policy="none")
    with pytest.raises(ConfigError, match="takes no setting 'max_tokens'; it takes budget, checks, "):
        ctxguard.guard(history(1), max_tokens=800)
    with pytest.raises(BudgetExceededError):
        ctxguard.guard(history(1), budget=10)
    assert ctxguard.guard([], budget=800) == []


def test_the_next_step_of_a_session_costs_the_same_in_a_long_history():
    def step(size):
        session = Stabilizer(800, on_overflow="bound", counter="estimate").session()
        session.extend(history(size))
        session.context()
        session.append({"role": "assistant", "content": "Done."})
        session.context()

        def say_more():
            session.append({"role": "assistant", "content": "All of it."})
            session.context()

        return calls_of(say_more)

    step(10)  # loads what a process loads once
    assert step(1_600) < 1.5 * step(200)


def test_a_message_that_a_session_cannot_read_is_named_by_its_place_in_the_conversation():
    session = Stabilizer(800).session()
    session.extend(history(2))
    said = len(history(2))
    with pytest.raises(HistoryError, match=f"^message {said + 1}: [^:]*role"):
        session.extend([{"role": "user", "content": "hi"}, {"content": "no role"}])
    session.append({"role": "user", "content": "hi"})
    assert session.context().messages[-1] == {"role": "user", "content": "hi"}


def test_the_prompt_of_the_last_reply_is_worked_out_once_for_all_its_results():
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": "{}"}} for n in range(6)]
    ends = []
    session = Stabilizer(800, stages=(lambda draft: ends.append(len(draft.artifacts)) or draft,)).session()
    session.append({"role": "user", "content": "Look around."})
    session.append({"role": "assistant", "content": None, "tool_calls": calls})
    for number in range(6):
        session.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"Nothing at {number}."})
        session.context()
    assert ends == [1, *range(3, 9)]
