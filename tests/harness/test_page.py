"""What the page of a replay says of a session: its bills, its cuts, and why one way to trim costs more than none."""

from __future__ import annotations

import json

import pytest

from ctxguard.harness import parse_session
from ctxguard.harness.document import figures_model, session_model
from ctxguard.harness.engine import Plan, Results, Setting, Tally, run
from ctxguard.harness.page import _FILTERS, _charts, _Seen, _ShownCut, replay_page
from ctxguard.harness.pricing import PriceModel
from ctxguard.harness.recordings import Recording
from ctxguard.harness.replay import served_contexts
from ctxguard.harness.replay_output import replay_report
from ctxguard.report.page import render
from ctxguard.stabilizer import Stabilizer

LOG = "\n".join(f"2026-01-02 12:{n % 60:02} worker {n} took order A-{n} to Norrby" for n in range(90))
CALLS = [{"id": f"c{n}", "type": "function", "function": {"name": "read_log", "arguments": "{}"}} for n in range(9)]


def session(*, steps, output):
    told = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is <b>wrong</b>?"}]
    for call in CALLS[:steps]:
        told += [{"role": "assistant", "content": "", "tool_calls": [call]}]
        told += [{"role": "tool", "content": output, "tool_call_id": call["id"]}]
    return [*told, {"role": "assistant", "content": "Worker 7."}]


def page_of(messages, budget):
    plan = Plan((Setting("one", {"budget": budget}, Stabilizer(budget, counter="estimate")),))
    recording = Recording("s.json", 1, 0, json.dumps({"id": "<i>", "messages": messages}).encode())
    results = run([recording], plan, results=Results([Tally()]))
    return replay_page(replay_report(["s.json"], plan, results, 1.0, 1, None), plan, results), results


@pytest.fixture(scope="module")
def bounding():
    """A session whose cuts find enough to shorten in old tool outputs."""
    return page_of(session(steps=3, output=LOG), 7_000)


def shown(cut, results):
    told, _ = results.tallies[0].worst[0]
    seen = _Seen(call=3, cuts=[cut])
    model = session_model(told, PriceModel())
    more = {"session": model, "is_open": True, "most_cuts": 30, "charts": (), "rows": ()}
    return render("session.html", _FILTERS, seen=seen, **more)


def test_a_cut_that_only_shortened_outputs_is_no_failure(bounding):
    page = shown(_ShownCut(3, 900, 500, 40, "bounded 2-5", "", has_dropped=False), bounding[1])
    assert "call 3: 900 → 500 tokens, 40 re-billed" in page
    assert "No message left the context, so there is no trail" in page
    assert "without a trail" not in page


def test_a_cut_that_dropped_shows_its_trail_or_says_that_there_is_none(bounding):
    page = shown(_ShownCut(3, 900, 500, 40, "dropped 2-5", "2 earlier steps: <b>", has_dropped=True), bounding[1])
    assert "<pre>2 earlier steps: &lt;b&gt;</pre>" in page
    assert "without a trail" not in page
    page = shown(_ShownCut(3, 900, 500, 40, "dropped 2-5", "", has_dropped=True), bounding[1])
    assert "Messages left the context without a trail" in page


def test_what_a_watcher_keeps_of_a_cut_tells_a_trail_from_none():
    history = [{"role": role, "content": f"Note {n}. " * 40} for n in range(12) for role in ("user", "assistant")]
    seen = _Seen()
    for call, context in served_contexts(parse_session(history), Stabilizer(900, counter="estimate")):
        seen(call, context.report)
    assert seen.call == 12
    first, *_ = seen.cuts
    assert first.has_dropped
    assert "earlier step" in first.added
    assert "dropped 1" in first.changed
    assert first.after < first.before


def test_the_bill_of_the_whole_history_is_drawn_and_adds_up(bounding):
    _, results = bounding
    (told, _) = results.tallies[0].worst[0]
    prices = PriceModel()
    model = session_model(told, prices)
    assert sum(model.unmanaged) == pytest.approx(figures_model(told.figures, prices).bill.unmanaged, abs=0.5)
    _, bill = _charts(model, replay_run(results))
    assert [name for _, name in bill.keys][:3] == ["whole history", "plain trimming", "ours"]
    assert all(path.startswith("M") for _, path in bill.paths)


def replay_run(results):
    plan = Plan((Setting("one", {"budget": 7_000}, Stabilizer(7_000, counter="estimate")),))
    return replay_report(["s.json"], plan, results, 1.0, 1, None).runs[0]


BILLS = [((7.0, 9.0, 5.0), (True, False)), ((7.0, 5.0, 9.0), (False, True)), ((4.0, 5.0, 9.0), (False, False))]


@pytest.mark.parametrize(("bills", "said"), BILLS)
def test_why_trimming_costs_more_than_everything_or_less_than_the_run_is_said_where_it_does(bounding, bills, said):
    _, results = bounding
    plan = Plan((Setting("one", {"budget": 7_000}, Stabilizer(7_000, counter="estimate")),))
    figures = results.tallies[0].figures
    was = figures.bill, figures.bill_trimmed, figures.bill_unmanaged
    figures.bill, figures.bill_trimmed, figures.bill_unmanaged = bills
    try:
        page = replay_page(replay_report(["s.json"], plan, results, 1.0, 1, None), plan, results)
    finally:
        figures.bill, figures.bill_trimmed, figures.bill_unmanaged = was
    reasons = ("it moves the start of the conversation at each call", "Plain trimming costs less here")
    assert tuple(reason in page for reason in reasons) == said


def test_names_and_texts_of_a_session_are_escaped(bounding):
    page, _ = bounding
    assert "&lt;i&gt;" in page
    assert "What is &lt;b&gt;wrong&lt;/b&gt;?" in page
    assert "<b>wrong" not in page
