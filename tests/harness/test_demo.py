"""The demo: a story that holds at its budget, figures that agree, any terminal, and no value on the model's side."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from ctxguard import Stabilizer
from ctxguard.cli.program import app
from ctxguard.harness.demo import DEMO_BUDGET, DEMO_POLICY, agreed_facts, demo_report

VALUES = ("fjordmail", "4111 1111", "SE45", "512 88")


def report_at(budget):
    return demo_report(Stabilizer.from_policy(DEMO_POLICY, budget=budget, provider="openai"))


def shown_at(width):
    run = CliRunner().invoke(app, ["demo"], env={"COLUMNS": str(width), "NO_COLOR": "1"})
    assert run.exit_code == 0, run.output
    return run.output


def test_everything_that_was_agreed_can_be_read_at_the_end_and_the_newest_messages_alone_lose_most():
    facts = agreed_facts(report_at(DEMO_BUDGET))
    assert [fact.label for fact in facts if fact.read_in == "lost"] == []
    assert sum(fact.in_newest == "lost" for fact in facts) > len(facts) / 2


def test_a_budget_that_loses_some_of_it_says_so():
    assert "lost" in {fact.read_in for fact in agreed_facts(report_at(1_000))}


def test_what_the_model_is_sent_holds_none_of_the_values():
    report = report_at(DEMO_BUDGET)
    assert report.ok
    for text in (report.to_json(), *(decision.artifact.text for decision in report.decisions)):
        assert not [value for value in VALUES if value in text]


@pytest.mark.parametrize("width", [60, 80, 120, 160])
def test_it_fits_any_terminal(width):
    lines = shown_at(width).splitlines()
    assert max(map(len, lines)) <= width
    start = next(n for n, line in enumerate(lines) if line.split() == ["#", "role", "before", "after"])
    column = lines[start].index("after")
    end = next(n for n, line in enumerate(lines) if line.startswith("╭"))
    assert [value for value in VALUES if value in "".join(line[:column] for line in lines[start:end])]
    assert not [value for value in VALUES if value in "".join(line[column:] for line in lines[start:end])]


def test_a_narrower_terminal_is_treated_as_one_of_60_columns():
    assert max(map(len, shown_at(40).splitlines())) <= 60


@pytest.mark.parametrize("width", [60, 120])
def test_the_table_the_trail_and_the_report_tell_the_same_figures(width):
    shown, report = shown_at(width), report_at(DEMO_BUDGET)
    counts = report.counts()
    changed = counts.keys() - {"kept", "dropped", "summarised"}
    assert changed == {"masked", "bounded"}
    for action in changed:
        assert shown.count(f"{action}: ") == counts[action]
        assert f"{counts[action]} {action}" in " ".join(shown.split())
    assert shown.count("the same") == counts["kept"]
    gone = [line for line in shown.splitlines() if line.rstrip().endswith(" dropped")]
    numbers = [re.search(r"(\d+) messages: ", line) for line in gone]
    assert sum(int(number[1]) if number else 1 for number in numbers) == counts["dropped"]
    assert f"added: the trail, {next(d.tokens_after for d in report.decisions if d.position is None)} tokens" in shown
    assert f"{report.tokens_before:,} -> {report.tokens_after:,} tokens" in shown


def test_its_report_as_data_is_that_of_the_library():
    told = json.loads(CliRunner().invoke(app, ["demo", "--report", "json"]).output)
    assert told == json.loads(report_at(DEMO_BUDGET).to_json())
