"""Real sessions that nobody here wrote: at every model call, at every budget, the laws hold or what must stay does not fit.

The judge below works on the messages themselves and shares no code with what it judges.
`make test` takes a sample; `make replay-all` sets CTXGUARD_REPLAY_ALL=1 and takes them all.
"""

from __future__ import annotations

import copy
import gzip
import json
import os
import zlib

import pytest

from ctxguard import BudgetExceededError, Stabilizer
from ctxguard_openai import stabilize_messages

FEW = 5
"""Refused calls of a session in a row, behind which a sample judges every fourth: one refused call is like another."""
ALL = os.environ.get("CTXGUARD_REPLAY_ALL") == "1"
BUDGETS = (1_000, 2_000, 4_000, 8_000, 32_000)


def sessions(folder, every):
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                record = json.loads(line)
                draw = zlib.crc32(record["id"].encode())
                if ALL or draw % every == 0 or (len(line) > 150_000 and draw % 3 == 0):
                    yield f"{path.stem}:{record['id']}", record, number


def pair_faults(messages):
    """OpenAI's own rule: right behind an assistant message stand the results of all its calls, and nothing else."""
    faults, waiting = [], []
    for place, message in enumerate(messages):
        if message["role"] == "tool":
            if message.get("tool_call_id") in waiting and message.get("tool_call_id") is not None:
                waiting.remove(message["tool_call_id"])
            else:
                faults.append(f"{place}: result without its call")
            continue
        if waiting:
            faults.append(f"{place}: call without its result")
        waiting = [call.get("id") for call in message.get("tool_calls") or []]
    return faults  # calls still waiting at the end are the open last exchange


def without_repair_edits(message):
    return {k: v for k, v in message.items() if k not in ("tool_call_id", "tool_calls", "content", "reasoning_content")}


def judge(history, out, report, budget):
    faults = pair_faults(out)
    if report.tokens_after > budget:
        faults.append("over budget")
    systems = [m for m in history if m["role"] in ("system", "developer")]
    if [m["role"] for m in out[: len(systems)]] != [m["role"] for m in systems]:
        faults.append("system messages do not stand first")
    body = [m for m in out if m["role"] not in ("system", "developer")]
    before = [m for m in history if m["role"] not in ("system", "developer")]
    if before and before[0]["role"] == "user" and body and body[0]["role"] != "user":
        faults.append("starts with " + body[0]["role"])
    sources = {id(d.artifact) for d in report.decisions}
    assert len(sources) == len(report.decisions)
    messages = [d for d in report.decisions if d.position is not None and d.artifact.kind in ("user", "assistant")]
    users = [d for d in messages if d.artifact.kind == "user"]
    if any(d.action == "dropped" for d in messages[-2:] + users[-1:]):
        faults.append("a recent message is lost")
    if len(report.decisions) < len(history):
        faults.append("not every message is accounted for")
    if sum(d.tokens_after for d in report.decisions) > report.tokens_after:
        faults.append("the sums differ")
    if not report.ok:
        faults.append(str(report))
    return faults


@pytest.mark.slow
@pytest.mark.parametrize("budget", BUDGETS)
def test_the_laws_hold_at_every_model_call(transcripts, budget):
    stabilizer = Stabilizer(budget)
    calls = refused = extended = successors = 0
    for name, record, _ in sessions(transcripts, every=120 if budget in (2_000, 8_000) else 300):
        messages, previous, over = record["messages"], None, False
        own, in_a_row = [0, 0], 0
        for end in range(1, len(messages)):
            if messages[end]["role"] != "assistant":
                continue
            if in_a_row > FEW and in_a_row % 4 and not ALL:
                in_a_row += 1
                continue
            calls += 1
            history = messages[:end]
            try:
                out, report = stabilize_messages(history, stabilizer, tools=record.get("tools"))
            except BudgetExceededError as error:
                assert error.needed > budget == error.budget
                assert sum(error.parts.values()) == error.needed
                refused += 1
                in_a_row += 1
                over, previous = True, None
                continue
            assert judge(history, out, report, budget) == [], f"{name} at {end}"
            in_a_row = 0
            over = over or report.tokens_before > budget
            if previous is not None:
                own[1] += 1
                if out[: len(previous)] == previous:
                    own[0] += 1
                else:
                    assert report.cut is not None, f"{name} at {end}: the prefix changed without a word"
                    # What was new in the call before may be sent in another form once; what stands before it may not.
                    newest = max((n for n, m in enumerate(previous) if m["role"] == "assistant"), default=0)
                    same = report.cut.position
                    assert report.cut.fresh or same >= newest, f"{name} at {end}: the prefix changed without a cut"
                    assert out[:same] == previous[:same], f"{name} at {end}: the prefix changed before the cut's place"
                    own[0] += not report.cut.fresh
            previous = out
        if over:
            extended, successors = extended + own[0], successors + own[1]
    share = extended / successors if successors else 1.0
    print(
        f"budget {budget}: {calls} calls, {refused} refused, prompt extends the previous one in {share:.3f} of {successors}"
    )
    if budget >= 8_000 and ALL:
        assert share > 0.9


@pytest.mark.slow
def test_without_pressure_real_messages_come_back_as_the_same_objects(transcripts):
    stabilizer = Stabilizer(10_000_000)
    same = total = 0
    for _, record, _ in sessions(transcripts, every=25):
        messages = record["messages"]
        before = copy.deepcopy(messages)
        out, report = stabilize_messages(messages, stabilizer)
        given = {id(m) for m in messages}
        kept = [m for m in out if id(m) in given]
        edited = sum(d.action in ("masked", "repaired", "bounded") for d in report.decisions)
        assert len(out) - len(kept) <= edited
        assert messages == before
        same, total = same + len(kept), total + len(out)
    assert same / total > 0.8


@pytest.mark.slow
def test_stabilising_the_result_again_changes_nothing(transcripts):
    for budget in (2_000, 8_000):
        stabilizer, judged, refused = Stabilizer(budget), 0, 0
        for name, record, _ in sessions(transcripts, every=60):
            try:
                once, _ = stabilize_messages(record["messages"], stabilizer)
            except BudgetExceededError as error:
                assert error.needed > budget, name
                refused += 1
                continue
            judged += 1
            twice, report = stabilize_messages(once, stabilizer)
            assert twice == once, f"{name} at {budget}: {report}"
        assert judged > refused
