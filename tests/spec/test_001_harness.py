"""spec/001, the long-session stability harness: each requirement and scenario by its name."""

from __future__ import annotations

import json

import pytest

from ctxguard import Artifact, Stabilizer, ToolCall
from ctxguard.checks import NoPII
from ctxguard.harness import read_sessions
from ctxguard.harness.checking import check_session
from ctxguard.harness.recordings import sessions_in
from ctxguard.pii import DIGITS, Rule, RuleSet
from ctxguard.report import Finding
from ctxguard.stages import FillBudget, MaskMessages, MaskPII, OrderByAuthority


def bundle():
    items = [
        {
            "id": "sys",
            "kind": "system",
            "authority": "system",
            "priority": 0,
            "title": "rules",
            "content": "Be helpful.",
        },
        {
            "id": "task",
            "kind": "task",
            "authority": "user",
            "priority": 1,
            "title": "task",
            "content": "Sort the tickets.",
        },
    ]
    for n in range(300):
        authority = "assistant" if n % 2 else "user"
        text = f"Message {n:03d} about the ticket, call 555 0142 7788"
        items.append(
            {"id": f"m{n}", "kind": "message", "authority": authority, "priority": 2, "title": "", "content": text}
        )
    items.append(
        {"id": "t1", "kind": "tool_output", "authority": "tool", "priority": 3, "title": "", "content": "row " * 4_000}
    )
    items.append(
        {"id": "m300", "kind": "message", "authority": "user", "priority": 2, "title": "", "content": "What is next?"}
    )
    return {"artifacts": items}


@pytest.fixture
def history(tmp_path):
    path = tmp_path / "session.json"
    path.write_text(json.dumps(bundle()), encoding="utf-8")
    (session,) = read_sessions(path)
    return session.read()


def harness(budget=600, **settings):
    return Stabilizer.from_policy("long_session", budget=budget, **settings)


def test_fr1_a_transcript_of_artifacts_is_ingested(history):
    """> The system must ingest a session transcript composed of a sequence of `Artifacts`"""
    assert len(history) == 304
    assert [a.kind.value for a in history[:4]] == ["system", "task", "user", "assistant"]
    assert history[-2].kind == "tool"
    assert history[-1].id == "m300"


def test_fr2_runs_of_three_or_more_digits_are_masked(history):
    """> In this example, any sequence of 3 or more digits is considered PII."""
    result = harness().stabilize(history)
    assert not any(char.isdigit() for a in result.artifacts for char in a.text)
    assert DIGITS.find("12 123 1234")[0].start == 3


def test_fr3_system_task_and_the_latest_messages_stay_and_others_only_if_they_fit(history):
    """> Always retain the `N` most recent `message` artifacts (where N is configurable, defaulting to 2)."""
    result = harness().stabilize(history)
    ids = [a.id for a in result.artifacts]
    assert ids[:2] == ["sys", "task"]
    assert ids[-2:] == ["m299", "m300"]
    assert "t1" not in ids
    assert 10 < len(ids) < 100


def test_fr4_the_budget_is_never_exceeded(history):
    """> The total token count of the final, stabilized context must not exceed a configurable budget."""
    for budget in (60, 100, 600, 2_000, 100_000):
        assert harness(budget).stabilize(history).report.tokens_after <= budget


def test_fr5_system_and_task_stand_first_whatever_the_order_was(history):
    """> with `system` and `task` artifacts appearing before all other artifacts"""
    shuffled = [*history[2:], history[1], history[0]]
    result = harness().stabilize(shuffled)
    assert [a.kind.value for a in result.artifacts[:2]] == ["system", "task"]
    assert [a.id for a in result.artifacts[2:]] == sorted(
        (a.id for a in result.artifacts[2:]), key=lambda i: int(i[1:])
    )


def test_fr6_the_validation_suite_looks_at_pii_budget_and_order(history):
    """> After stabilization, the system must run a suite of validation checks"""
    names = {check.name for check in harness().stabilize(history).report.checks}
    assert {"NoPII", "WithinBudget", "AuthorityFirst"} <= names


def test_fr7_the_report_tells_the_checks_and_the_final_count(history):
    """> The system must output a report detailing the results of the validation checks and the final token count."""
    report = harness().stabilize(history).report
    told = json.loads(report.to_json())
    assert told["ok"] is True
    assert told["tokens_after"] == report.tokens_after <= 600
    assert all(check["ok"] for check in told["checks"])
    assert len(told["decisions"]) == len(history)


def test_nfr1_budget_and_recent_messages_are_configurable(history):
    """> The token budget and the number of recent messages to keep must be configurable."""
    ids = [a.id for a in harness(200, keep_recent=5).stabilize(history).artifacts]
    assert ids[-5:] == ["m296", "m297", "m298", "m299", "m300"]


def test_nfr2_the_process_is_deterministic(history):
    """> The entire stabilization and validation process must be deterministic."""
    first, second = harness().stabilize(history), harness().stabilize(history)
    assert first.artifacts == second.artifacts
    assert first.report.to_json() == second.report.to_json()


def test_nfr3_rules_and_heuristics_can_be_replaced(history):
    """> The PII detection rules and truncation heuristics should be modular and easy to replace or extend."""
    tickets = RuleSet("tickets", (Rule(name="ticket", label="TICKET", pattern=r"ticket"),))

    def keep_every_tenth(draft):
        return draft.revise([a for n, a in enumerate(draft.artifacts) if n < 2 or n % 10 == 0], reason="sampled")

    chain = [MaskPII(tickets), keep_every_tenth, FillBudget(), OrderByAuthority()]
    result = Stabilizer(5_000, stages=chain, checks=[]).stabilize(history)
    assert "[REDACTED_TICKET]" in result.artifacts[3].text
    assert {d.stage for d in result.report.decisions if d.action == "dropped"} == {"keep_every_tenth"}


def test_nfr3_a_check_of_ones_own_is_run_and_told(history):
    """> The PII detection rules and truncation heuristics should be modular and easy to replace or extend."""

    class ShortMessages:
        name = "ShortMessages"

        def __call__(self, draft):
            return [Finding("too long", f"artifacts[{n}]") for n, a in enumerate(draft.artifacts) if len(a.text) > 40]

    report = Stabilizer(5_000, checks=[ShortMessages()]).stabilize(history).report
    assert not report.ok
    assert str(report.checks[0].findings[0]).startswith("too long: message ")


def test_scenario_1_a_long_history_keeps_intent_and_instructions(history):
    """> compressed into a manageable context that still retains the most recent user intent and the core system instructions"""
    result = harness(300).stabilize(history)
    assert result.artifacts[0].text == "Be helpful."
    assert result.artifacts[-1].text == "What is next?"
    assert len(result.artifacts) < len(history) / 5


def test_scenario_2_pasted_personal_data_is_redacted_before_the_model_sees_it():
    """> The system should automatically redact it before it is processed by the LLM."""
    result = harness().stabilize([Artifact("user", "call me at 555-867-5309, ID 99887766")])
    assert result.artifacts[0].text == "call me at [REDACTED]-[REDACTED]-[REDACTED], ID [REDACTED]"


def test_scenario_3_a_verbose_tool_output_does_not_push_the_conversation_out(history):
    """> The system should drop this tool output to stay within budget."""
    result = harness().stabilize(history)
    dropped = next(d for d in result.report.decisions if d.artifact.id == "t1")
    assert (dropped.action, dropped.tokens_after) == ("dropped", 0)
    assert sum(a.kind in ("user", "assistant") for a in result.artifacts) > 10


def test_scenario_4_control_degradation_is_detected(history):
    """> detect if the system prompt has been pushed out of the context window or if its ordering has changed"""

    def careless(draft):
        return draft.revise(draft.artifacts[-20:], reason="careless")

    report = Stabilizer(5_000, stages=[careless]).stabilize(history).report
    assert not report.ok
    findings = {c.name: [str(f) for f in c.findings] for c in report.checks if not c.ok}
    assert findings["SystemIntact"] == [
        "a system artifact is missing: message 0 (system) @ history[0]",
        "a task artifact is missing: message 1 (user) @ history[1]",
    ]


def test_scenario_4_a_changed_order_is_detected(history):
    """> detect if the system prompt has been pushed out of the context window or if its ordering has changed"""

    def reorder(draft):
        return draft.revise([*draft.artifacts[2:], *draft.artifacts[:2]], reason="careless")

    report = Stabilizer(100_000, stages=[reorder]).stabilize(history).report
    assert "AuthorityFirst" in {c.name for c in report.checks if not c.ok}


@pytest.mark.parametrize(("budget", "is_kept"), [(400, True), (60, False)])
def test_fr3_a_bare_tool_output_stays_only_if_it_fits(budget, is_kept):
    """> Include other artifacts (e.g., `tool_output`) only if they fit within the remaining token budget."""
    items = [
        {"id": "sys", "kind": "system", "content": "Be helpful."},
        {"id": "q", "kind": "message", "authority": "user", "content": "What do the tickets say?"},
        {"id": "t", "kind": "tool_output", "content": "row " * 60},
        {"id": "a", "kind": "message", "authority": "assistant", "content": "They say little."},
        {"id": "q2", "kind": "message", "authority": "user", "content": "And now?"},
    ]
    history = sessions_in(json.dumps({"artifacts": items}))
    result = harness(budget).stabilize(next(history).read())
    assert ("t" in [a.id for a in result.artifacts]) is is_kept
    assert result.report.ok
    assert result.report.tokens_after <= budget


def test_bundles_with_bare_tool_outputs_pass_the_check():
    """> The system must ingest a session transcript composed of a sequence of `Artifacts`"""
    bare = {
        "artifacts": [
            {"kind": "message", "authority": "user", "content": "hi"},
            {"kind": "tool_output", "content": "x"},
        ]
    }
    assert not list(check_session(next(sessions_in(json.dumps(bare)))))
    message = {"messages": [{"role": "user", "content": "hi"}, {"role": "tool", "content": "x"}]}
    assert list(check_session(next(sessions_in(json.dumps(message)))))


def test_fr2_instructions_and_tool_outputs_keep_their_numbers():
    """> within all user-facing `message` artifacts"""
    history = [
        Artifact("system", "Answer in at most 500 words. Escalate to boss@corp-mail.org."),
        Artifact("task", "Sort the 120 tickets."),
        Artifact("user", "My number is 99887766."),
        Artifact("assistant", "", calls=(ToolCall("read", '{"limit": 120}', "c"),)),
        Artifact("tool", "120 rows, opened by ann@corp-mail.org", answers="c"),
        Artifact("assistant", "I read 120 rows."),
    ]
    result = harness().stabilize(history)
    assert [a.text for a in result.artifacts] == [
        "Answer in at most 500 words. Escalate to [REDACTED_EMAIL].",
        "Sort the 120 tickets.",
        "My number is [REDACTED].",
        "",
        "120 rows, opened by [REDACTED_EMAIL]",
        "I read [REDACTED] rows.",
    ]
    assert result.artifacts[3].calls == history[3].calls
    assert result.report.ok


def test_fr6_the_check_looks_for_digits_in_messages():
    """> **PII Check**: Verify that no PII is present in the final context."""

    def leak(draft):
        return draft.revise([*draft.artifacts, Artifact("user", "99887766")], reason="careless")

    stages = [MaskMessages(DIGITS), leak]
    assert not Stabilizer(500, stages=stages, checks=[NoPII()]).stabilize([Artifact("user", "Hello.")]).report.ok


@pytest.mark.parametrize(("words", "budget"), [(2_500, 400), (30, 60), (30, 400)])
def test_scenario_3_holds_for_an_output_that_comes_last(words, budget):
    """> The system should drop this tool output to stay within budget."""
    history = [Artifact("system", "Be helpful."), Artifact("task", "Sort the tickets.")]
    history += [Artifact("user", "What is in the first ticket?"), Artifact("assistant", "A broken lamp, it says here.")]
    output = Artifact("tool_output", "verbose " * words)
    result = harness(budget).stabilize([*history, output])
    assert result.artifacts == (history if (words, budget) != (30, 400) else [*history, output])
    assert result.report.ok


def test_scenario_3_in_a_tool_loop_an_answer_that_does_not_fit_becomes_a_note():
    """> Verbose Tool Output"""
    call = Artifact("assistant", calls=(ToolCall("read", "{}", "c1"), ToolCall("read", "{}", "c2")))
    outputs = [Artifact("tool", "verbose " * n, answers=f"c{i}") for i, n in ((1, 2_500), (2, 10))]
    history = [Artifact("system", "Be helpful."), Artifact("user", "Read it."), call, *outputs]
    result = harness(120).stabilize(history)
    assert result.artifacts[3].text.startswith("[tool output of ")
    assert result.artifacts[4] is outputs[1]
    assert result.report.ok
    assert result.report.tokens_after <= 120


@pytest.mark.parametrize("kind", ["document", "memory", "other"])
def test_fr1_artifacts_of_other_kinds_are_taken_like_tool_outputs(kind):
    """> (system prompts, user messages, tool outputs, etc.)"""
    items = [
        {"kind": "system", "content": "Be helpful."},
        {"kind": "message", "authority": "user", "content": "What do the tickets say?"},
        {"id": "d", "kind": kind, "content": "row " * 600},
        {"kind": "message", "authority": "assistant", "content": "They say little."},
    ]
    history = next(sessions_in(json.dumps({"artifacts": items}))).read()
    assert harness(2_000).stabilize(history).artifacts == history
    result = harness(400).stabilize(history)
    assert [a.id for a in result.artifacts].count("d") == 0
    assert f"(role {kind!r})" in str(result.report)
    assert result.report.ok
