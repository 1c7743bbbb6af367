"""`ctxguard bench`: what it compares, how it judges a request, and that no driver changes what fits anyway."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from patience import PATIENCE
from test_cli import cli

from ctxguard.artifacts import Artifact, ToolCall
from ctxguard.cli.bench import COLUMNS, bench_row, bill_beside
from ctxguard.errors import CtxguardError, TokenizerError
from ctxguard.harness import parse_session
from ctxguard.harness.bench import BenchCall, contestants, fault_of, fixed_summary, play
from ctxguard.harness.contestants import (
    Course,
    GaveUpError,
    Peer,
    peers_with,
    plain_messages,
    synthetic_recordings,
    synthetic_session,
)
from ctxguard.harness.gain import SEES
from ctxguard.harness.recordings import Recording, Skipped
from ctxguard.tokens import counters

SYSTEM = {"role": "system", "content": "Be brief."}
ASKED = {"role": "user", "content": "Where is A-1?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"order": "A-1"}'}}
CALLED = {"role": "assistant", "content": "", "tool_calls": [CALL]}
FOUND = {"role": "tool", "content": "In Norrby.", "tool_call_id": "c1"}
HISTORY = [SYSTEM, ASKED, CALLED, FOUND]


def course(messages, budget=10**9):
    return Course(messages, budget, 0, None, "auto", lambda some: 10 * len(list(some)), len, fixed_summary)


def driven(peer):
    if peer.version is None:
        pytest.skip(f"{peer.distribution} is not installed")
    try:
        return peer.load()
    except ImportError as error:
        pytest.skip(f"{peer.distribution} cannot be loaded: {error}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("peer", peers_with(["peers"]), ids=lambda peer: peer.name)
def test_what_fits_is_sent_as_it_was_recorded(peer):
    make = driven(peer)
    messages = synthetic_session(1, turns=2)["messages"]
    contestant = make(course(messages))
    for end in (2, 4, 6, 8):
        assert contestant.chat(contestant.send(end)) == messages[:end]


@pytest.fixture
def fewer(monkeypatch):
    """Let the command invent two sessions of 25 turns, where nothing is named, instead of six of 60."""
    monkeypatch.setattr("ctxguard.cli.bench.synthetic_recordings", lambda: synthetic_recordings(2, turns=25))


@pytest.mark.slow
@pytest.mark.usefixtures("fewer")
def test_it_runs_with_nothing_given_and_fits_sixty_columns():
    run = cli("bench", "--budgets", "3k", "--only", "ctxguard", "--only", "whole history")
    assert run.returncode == 0
    assert max(map(len, run.stdout.splitlines())) <= 60
    rows = {line[:21].strip(): line[21:].split() for line in run.stdout.splitlines()}
    assert rows["ctxguard"][0] == "100%"
    assert rows["whole history"][0] == "0%"
    assert "rolling window" in rows, "bills are given as a share of it"
    assert "\nwhole history: " in run.stdout, "what is not held is told"
    for column in ("Holds", "Support", "Gain", "Newest", "Prefix", "Bill", "Time"):
        assert f"\n{column}" in run.stdout, "every column is in the legend"


@pytest.mark.slow
def test_the_reports_say_the_same_as_data_and_as_markdown(tmp_path):
    path = tmp_path / "one.json"
    path.write_text(json.dumps(synthetic_session(3, turns=20)["messages"]))
    words = ("bench", path, "--budgets", "2k,4000", "--only", "ctxguard")
    told = json.loads(cli(*words, "--report", "json", "--processes", 2).stdout)
    assert [(row["name"], row["budget"]) for row in told["rows"]] == [
        (name, budget) for budget in (2_000, 4_000) for name in ("ctxguard", "rolling window")
    ]
    assert all(row["held"] == row["calls"] and row["bill"] for row in told["rows"])
    assert {column.key for column in COLUMNS} < told["rows"][0].keys()
    written = cli(*words, "--report", "markdown", "--processes", 1).stdout
    (row, *_) = [line.strip("| ").split(" | ") for line in written.splitlines() if line.startswith("| ctxguard ")]
    cells = dict(zip((column.name for column in COLUMNS if column.name), row[1:], strict=True))
    first = told["rows"][0]
    assert (cells["gain"], cells["newest sent"]) == (f"{first['gain']:.2f}", f"{first['newest']:.2f}")
    assert all(judge in written and judge in told["notes"] for judge in SEES)
    assert "Budget 2,000 tokens" in written
    assert "of 1 session." in written
    assert cli(*words[:2], "--budgets", "4k", *words[4:], "--processes", 1).stdout.startswith("1 session, ")


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        (HISTORY, None),
        ([SYSTEM, CALLED, FOUND], None),
        ([SYSTEM, ASKED, FOUND], "pairs"),
        ([SYSTEM, ASKED, CALLED], "last message"),
        ([SYSTEM], "last message"),
        (HISTORY[1:], "system prompt"),
        ([{**SYSTEM, "content": "[trimmed]"}, *HISTORY[1:]], "system prompt"),
    ],
)
def test_a_useless_request_is_told_by_what_is_wrong(sent, fault):
    assert fault_of(sent, HISTORY) == fault


class Broken:
    def __init__(self, course):
        self.count = 0

    def send(self, end):
        self.count += 1
        raise GaveUpError if self.count % 2 else RuntimeError


def test_a_library_that_raises_or_refuses_serves_no_call():
    peer = Peer("whole history", "ctxguard", f"{__name__}:Broken", "")
    ((_, calls),) = play(synthetic_recordings(1, turns=20), [peer], [500])
    row = bench_row(peer, 500, calls, calls)
    assert [row[key] for key in ("held", "gain", "newest", "support")] == [0, None, None, None]
    failed = row["faults"]["failed"]
    assert row["refused"] + failed == row["calls"] > 10
    assert abs(row["refused"] - failed) <= 1


def test_what_is_sent_in_vain_is_not_measured():
    whole = next(peer for peer in contestants(["whole history"])[0] if peer.name == "whole history")
    ((_, calls),) = play(synthetic_recordings(1, turns=20), [whole], [500])
    assert {(call.is_over, call.support, call.bits, call.newest) for call in calls} == {(True, None, None, (0, 0))}


def test_bills_are_compared_at_the_calls_that_both_send():
    mine = [BenchCall("a", 1, ("p", "s", end), price) for end, price in ((1, 10.0), (2, 20.0), (3, None))]
    other = [BenchCall("b", 1, ("p", "s", 2), 40.0), BenchCall("b", 1, ("p", "s", 3), 5.0)]
    assert bill_beside(mine, other) == 0.5
    assert bill_beside(mine, []) is None


def test_absent_libraries_are_named_and_unknown_names_refused(monkeypatch):
    monkeypatch.setattr("ctxguard.harness.contestants.Peer.version", property(lambda self: None))
    able, absent = contestants(modules=["peers"])
    assert able == []
    assert "Haystack: haystack-ai is not installed" in absent
    with pytest.raises(CtxguardError, match="no contestant 'nobody'"):
        contestants(["nobody"])
    assert cli("bench", "--only", "nobody").returncode == 2


@pytest.mark.slow
def test_a_module_in_the_working_directory_adds_contestants(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mine.py").write_text(
        "from ctxguard.harness.contestants import ChatContestant, Peer\n"
        "PEERS = [Peer('nothing new', 'ctxguard', 'mine:Same', 'each request is the first one')]\n"
        "class Same(ChatContestant):\n"
        "    def send(self, end):\n"
        "        return self.course.messages[:2]\n"
    )
    path = tmp_path / "one.json"
    path.write_text(json.dumps(synthetic_session(3, turns=20)["messages"]))
    words = ("bench", path, "--with", "mine", "--budgets", "2k", "--only", "nothing new", "--report", "json")
    run = cli(*words, "--processes", 2)
    told = {row["name"]: row for row in json.loads(run.stdout)["rows"]}
    assert told["nothing new"]["faults"]["last message"]
    assert "rolling window" in told
    assert "--with" not in run.stderr


def test_without_further_contestants_one_line_says_how_to_add_them():
    run = cli("bench", "--budgets", "900k")
    assert "no other library is compared; --with MODULE adds some" in run.stderr


@pytest.mark.parametrize("module", ["nowhere.at_all", "json"])
def test_a_module_without_contestants_is_refused(module, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    run = cli("bench", "--with", module)
    assert run.returncode == 2
    assert module in run.stderr
    assert "Traceback" not in run.stderr


def test_a_session_is_told_as_soon_as_it_and_those_before_it_were_played(monkeypatch):
    taken = Event()

    def played(source):
        return [source.line == 1 or taken.wait(PATIENCE)]

    monkeypatch.setattr("ctxguard.harness.engine.ProcessPoolExecutor", lambda n, **_: ThreadPoolExecutor(n))
    monkeypatch.setattr("ctxguard.harness.engine._work", played, raising=False)
    told = play([Recording("x", line, 0, b"") for line in (1, 2)], [], [], processes=2)
    next(told)
    taken.set()
    assert next(told)[1] == [True]


def test_where_nothing_exceeds_the_budget_nothing_was_compared():
    run = cli("bench", "--budgets", "900k", "--only", "ctxguard")
    assert run.returncode == 2
    assert "nothing was compared: no call exceeds 900,000 tokens" in run.stderr


def test_where_no_session_could_be_played_the_reasons_are_told(tmp_path):
    (tmp_path / "broken.jsonl").write_text("{")
    run = cli("bench", tmp_path / "broken.jsonl", "--only", "ctxguard", "--processes", 1)
    assert run.returncode == 2
    assert "skipped" in run.stderr
    assert run.stderr.endswith("nothing was compared: no session could be played\n")


@pytest.mark.slow
@pytest.mark.usefixtures("fewer")
def test_it_runs_where_no_vocabulary_is_installed(tmp_path, monkeypatch):
    def missing(encoding):
        raise TokenizerError(f"no vocabulary {encoding!r}")

    monkeypatch.setattr("ctxguard.tokens.counters.exact_counter", missing)
    for cached in (counters._plain_counter, counters._named_counter):
        cached.cache_clear()
    try:
        run = cli("bench", "--only", "ctxguard", "--budgets", "3k")
        assert run.returncode == 0, run.stderr
        assert "counted by estimate" in run.stdout
        refused = cli("bench", "--only", "ctxguard", "--counter", "o200k_base")
        assert (refused.returncode, refused.stderr) == (2, "ctxguard: no vocabulary 'o200k_base'\n")
    finally:
        for cached in (counters._plain_counter, counters._named_counter):
            cached.cache_clear()


def test_a_recording_that_cannot_be_read_is_skipped():
    ((_, outcome),) = play([Recording("x.json", 1, 0, b"{")], [], [1_000])
    assert isinstance(outcome, Skipped)


def test_calls_without_ids_get_one_and_so_do_their_results():
    calls = (ToolCall("a"), ToolCall("b", "not json"))
    told = [Artifact("assistant", "", calls=calls), Artifact("tool", "1"), Artifact("tool", "2")]
    made = plain_messages(told)
    assert [m.get("tool_call_id") for m in made] == [None, "call_0_0", "call_0_1"]
    assert parse_session(made).adapter.name == "openai"


def test_invented_sessions_are_the_same_for_the_same_seed():
    assert synthetic_session(7) == synthetic_session(7) != synthetic_session(8)
    assert len(fixed_summary("a line\n" * 9_000)) <= 2_000
