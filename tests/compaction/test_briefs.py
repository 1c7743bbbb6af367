"""A brief holds what another agent needs of a conversation: within its budget, masked, and the same every time."""

from __future__ import annotations

import asyncio
import importlib
import json
from pathlib import Path

import pytest
from builders import assistant, calls, step, user

from ctxguard import Artifact, Stabilizer
from ctxguard.content import recall_tool
from ctxguard.errors import AdapterError, ConfigError, HistoryError
from ctxguard.pii import STANDARD
from ctxguard.stores import MemoryStore

MAIL = "ada@example.com"
LOADER = "def load():\n" + "".join(f"    rows[{n}] = read_region({n})\n" for n in range(90))
HISTORY = [
    Artifact("system", "Be brief."),
    user(f"Make the loader read regions, and mail {MAIL}."),
    *step("1", LOADER, tool="read_file", arguments='{"path": "src/loader.py"}'),
    user("Never touch the tests. The weather is fine."),
    *step("2", "error: unknown region EMEA-7", tool="load", arguments='{"region": "EMEA-7"}'),
    *step("3", "ok", tool="edit_file", arguments='{"path": "src/loader.py", "new_string": "x"}'),
    *step("4", "ok", tool="load", arguments='{"region": "EMEA-7"}'),
    *step("5", "error: no such table invoices_2024", tool="query", arguments='{"table": "invoices_2024"}'),
    assistant("The budget of the sibling project is 4,400 coins. We now read regions."),
    user("Then go on with the invoices."),
    calls("6", tool="query", arguments='{"table": "invoices"}'),
]


@pytest.fixture(scope="module")
def invented():
    path = str(Path(__file__).parents[2] / "benchmarks")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(path)
        yield importlib.import_module("invented")


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(n, marks=pytest.mark.slow) for n in range(6, 60))])
def test_everything_that_still_holds_is_in_a_brief_of_a_thousand_tokens(invented, seed):
    messages, facts = invented.session(seed)
    stabilizer = Stabilizer(8_000)
    brief = stabilizer.brief(messages)
    assert brief.tokens == stabilizer.counter.text(brief.text) <= 1_000
    lost = [fact for fact in invented.holding(facts, len(messages)) if not invented.is_held(fact, [str(brief)])]
    assert not lost
    assert not STANDARD.find(brief.text)


def test_it_has_the_task_rules_files_failures_and_what_is_open():
    text = Stabilizer(8_000).brief(HISTORY).text
    assert text.startswith("The task:\nMake the loader read regions, and mail [REDACTED_EMAIL].\n")
    assert "- Never touch the tests. The weather is fine." in text
    assert "- src/loader.py: edited" in text
    assert '- query {"table": "invoices_2024"} → failed: "error: no such table invoices_2024"' in text
    steps = text.partition("The latest of these steps:")[2]
    assert "unknown region" not in steps, "the same call succeeded later"
    assert steps.count("- load ") == 1
    assert "- user said last: Then go on with the invoices." in text
    assert '- not answered: query {"table": "invoices"}' in text


@pytest.mark.parametrize(
    "ends", [("ok", "error: no route"), ("error: no route", "ok"), ("error: a", "ok", "error: no route")]
)
def test_a_call_that_was_repeated_is_told_as_it_ended_last(ends):
    history = [user("Ping the relay.")]
    for number, end in enumerate(ends):
        history += step(str(number), end, tool="ping", arguments='{"host": "relay"}')
    steps = Stabilizer(8_000).brief([*history, user("And?")]).text.partition("The latest of these steps:")[2]
    assert steps.count("- ping ") == 1
    assert ("no route" in steps) == (ends[-1] != "ok")


def test_what_matches_the_next_task_is_preferred():
    towns = [
        f"{first}{last}" for first in ("Kal", "Mor", "Bren", "Tol", "Ves") for last in ("stad", "heim", "wick", "ford")
    ]
    history = [
        user("Collect the prices."),
        *(assistant(f"A ticket to {t} costs {n} coins.") for n, t in enumerate(towns)),
    ]
    stabilizer = Stabilizer(8_000)
    for number, town in enumerate(towns[:8]):  # the newest are in anyway
        fact = f"A ticket to {town} costs {number} coins."
        assert fact in stabilizer.brief(history, for_=f"Plan a trip to {town}.", budget=140).text
        assert fact not in stabilizer.brief(history, for_=f"Plan a trip to {towns[(number + 3) % 8]}.", budget=140).text


@pytest.mark.parametrize("budget", [100, 130, 200, 400, 2_000])
@pytest.mark.parametrize("counter", ["auto", "estimate", len])
def test_the_budget_holds_and_the_same_history_gives_the_same_brief(budget, counter):
    stabilizer = Stabilizer(8_000, counter=counter)
    brief = stabilizer.brief(HISTORY, for_="invoices", budget=budget)
    assert 0 < brief.tokens <= budget
    assert Stabilizer(3_000, counter=counter).brief(HISTORY, for_="invoices", budget=budget) == brief


def test_handles_read_the_masked_text_back():
    store = MemoryStore()
    secret = f"{LOADER}# ask {MAIL}\n"
    history = [user("Read the loader."), *step("1", secret, tool="read_file", arguments='{"path": "src/loader.py"}')]
    stabilizer = Stabilizer.from_policy("default", budget=8_000, store=store)
    brief = stabilizer.brief(history)
    (handle,) = brief.handles
    assert f"- src/loader.py: read [{handle}]" in brief.text
    assert recall_tool(store)(handle).endswith(secret.replace(MAIL, "[REDACTED_EMAIL]").rstrip())
    assert asyncio.run(stabilizer.abrief(history)) == brief
    assert Stabilizer(8_000).brief(history).handles == ()


def test_native_messages_of_any_adapter_are_read():
    chat = [{"role": "user", "content": "Find the order."}, {"role": "assistant", "content": "Which one?"}]
    assert "assistant said last: Which one?" in Stabilizer(8_000).brief(chat).text


def test_values_are_hidden_in_what_joins_and_by_the_strategy_of_the_chain():
    from ctxguard.pii import Masker
    from ctxguard.stages import MaskPII

    pseudonyms = Stabilizer(8_000, stages=[MaskPII(masker=Masker(strategy="pseudonymize"))])
    assert "<EMAIL_1>" in pseudonyms.brief(HISTORY).text
    history = [user("Pay the bill."), user("4111 1111."), user("1111 1111\n1111 1111.")]
    assert not STANDARD.find(Stabilizer(8_000).brief(history).text)


@pytest.mark.parametrize(
    ("history", "settings", "error", "said"),
    [
        ([], {}, HistoryError, "has nothing for a brief"),
        (7, {}, HistoryError, "expected a list"),
        ([7], {}, AdapterError, "adapter"),
        ([HISTORY[1], "hello"], {}, HistoryError, "Artifact"),
        (HISTORY, {"budget": 0}, ConfigError, "must be 100 or more tokens"),
        (HISTORY, {"budget": "80%"}, ConfigError, "whole number of tokens"),
        (HISTORY, {"for_": 7}, ConfigError, "says the purpose"),
    ],
)
def test_bad_input_is_refused_in_one_line(history, settings, error, said):
    with pytest.raises(error, match=said) as refused:
        Stabilizer(8_000).brief(history, **settings)
    assert "\n" not in str(refused.value)


def test_the_command_prints_it(tmp_path):
    from typer.testing import CliRunner

    from ctxguard.cli.program import app

    file = tmp_path / "session.json"
    file.write_text(json.dumps([{"role": "user", "content": f"Find the order of {MAIL}."}]))
    done = CliRunner().invoke(app, ["brief", str(file), "--for", "orders", "--budget", "200"])
    assert (done.exit_code, done.stdout) == (0, "The task:\nFind the order of [REDACTED_EMAIL].\n")
