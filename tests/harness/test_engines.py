"""A replay that is killed goes on with the same report; a Ray cluster gives the same report, a lost worker too."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_cli import MESSAGES, cli

from ctxguard.errors import ConfigError
from ctxguard.harness import engine
from ctxguard.harness.contestants import synthetic_recordings
from ctxguard.harness.engine import Plan, ReplayCheckpoint, Setting, run
from ctxguard.harness.recordings import Recording, Skipped, every_nth, recordings
from ctxguard.harness.summary import LARGE, Pace, time_left
from ctxguard.policies import agent_stages
from ctxguard.settings import install_command
from ctxguard.stabilizer import Stabilizer

WORDS = ("--sweep", "budget=1500,3000", "--report", "json")


@pytest.fixture(scope="module")
def sessions(tmp_path_factory):
    path = tmp_path_factory.mktemp("engines") / "sessions.jsonl"
    made = [recording.data for recording in synthetic_recordings(12, turns=6)]
    made[4:4] = [b"{half"]
    path.write_bytes(b"\n".join(made))
    return path


def untimed(text):
    """Return a report without what differs from run to run."""
    told = json.loads(text)
    for key in ("created", "seconds", "processes"):
        del told[key]
    for one in told["runs"]:
        for each in (one, *one["sessions"]):
            del each["figures"]["time"]
    return told


@pytest.fixture(scope="module")
def undisturbed(sessions):
    return untimed(cli("replay", sessions, *WORDS, "--engine", "inline").stdout)


@pytest.mark.slow
def test_processes_change_nothing_but_times(tmp_path):
    talk = [message for message in MESSAGES if message["role"] != "system"]
    for n in range(3):
        records = [json.dumps({"id": f"{n}-{m}", "messages": talk[m:]}) for m in range(4)]
        (tmp_path / f"{n}.jsonl").write_text("\n".join([*records, "{x"]), encoding="utf-8")
    inline, local = (
        untimed(cli("replay", tmp_path, "--budget", 500, "-r", "json", *words).stdout)
        for words in (["--engine", "inline"], ["--engine", "local", "--processes", 2])
    )
    assert inline == local
    assert inline["skipped_count"] == 3


def killed(sessions, progress):
    """Start a replay that writes its progress after each session, and kill it in the middle."""
    code = (
        "import sys; import ctxguard.harness.engine as c; c.EVERY = 0; "
        "from ctxguard.cli import main; sys.argv = ['ctxguard', *sys.argv[1:]]; main()"
    )
    words = ["replay", str(sessions), *WORDS, "--engine", "inline", "--resume", str(progress)]
    process = subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE)
    while process.poll() is None:
        if progress.exists() and json.loads(progress.read_text())["results"]["done"] >= 5:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it was done before it could be killed"
    process.stdout.close()


@pytest.mark.slow
def test_a_replay_that_is_killed_goes_on_with_the_same_report(sessions, undisturbed, tmp_path):
    progress = tmp_path / "progress.json"
    killed(sessions, progress)
    done = json.loads(progress.read_text())["results"]["done"]
    assert 5 <= done < 13
    (tmp_path / "progress.json.new").write_text("half of a wr")  # as a kill in the middle of a write leaves it
    run = cli("replay", sessions, *WORDS, "--engine", "inline", "--resume", progress, "-o", tmp_path / "page.html")
    assert run.returncode == 0, run.stderr
    assert untimed(run.stdout) == undisturbed
    assert "synthetic-3" in (tmp_path / "page.html").read_text(), "sessions from before the kill are in the page"
    assert not progress.exists(), "there is nothing left to take up"


def test_progress_is_refused_where_it_is_of_something_else(sessions, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "EVERY", 0)
    changed = tmp_path / "sessions.jsonl"
    changed.write_bytes(sessions.read_bytes())
    progress = tmp_path / "progress.json"
    plan = Plan((Setting("a", {}, Stabilizer(2_000)),))
    keeper = ReplayCheckpoint(progress, plan, [str(changed)])
    run(list(recordings([str(changed)]))[:4], plan, after=keeper.save)
    changed.write_bytes(b"\n".join(reversed(sessions.read_bytes().splitlines())))
    again = ReplayCheckpoint(progress, plan, [str(changed)])
    with pytest.raises(ConfigError, match="the recordings have changed"):
        again.restore(recordings([str(changed)]))
    other = ReplayCheckpoint(progress, Plan((Setting("b", {}, Stabilizer(3_000)),)), [str(changed)])
    with pytest.raises(ConfigError, match="of another replay"):
        other.restore(iter([]))
    progress.write_text("{half")
    with pytest.raises(ConfigError, match="cannot be read"):
        again.restore(iter([]))
    refused = cli("replay", sessions, "--resume", progress)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)


def test_times_are_kept_within_one_percent(sessions, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "EVERY", 0)
    plan = Plan((Setting("a", {}, Stabilizer(2_000)),))
    every = list(recordings([str(sessions)]))[:6]
    results = run(every, plan)
    results.tallies[0].figures.timed(0.0)
    keeper = ReplayCheckpoint(tmp_path / "p", plan, ["x"])
    keeper.save(results, every[-1])
    again = keeper.restore(iter(every))
    assert again.done == len(every)
    was, now = results.tallies[0].figures, again.tallies[0].figures
    assert [now.percentile(share) for share in (0.01, 0.5, 0.95)] == [was.percentile(s) for s in (0.01, 0.5, 0.95)]
    assert [told.id for told, _ in again.tallies[0].worst] == [told.id for told, _ in results.tallies[0].worst]
    assert again.tallies[0].worst[0][1] == results.tallies[0].worst[0][1]


def test_the_time_left_is_told_by_how_much_was_read():
    assert time_left(30, 250, 1_000) == ", 90 s left"
    assert time_left(600, 500, 1_000) == ", 10 min left"
    assert time_left(30, 250, None) == time_left(0.1, 1, 100) == ""


def test_a_long_work_says_once_how_long_it_takes_and_how_to_take_a_part(monkeypatch):
    clock, told = iter(range(0, 1_000, 10)), []
    monkeypatch.setattr("ctxguard.harness.summary.time.monotonic", lambda: next(clock))
    pace = Pace(100_000, told.append)
    assert [pace.left(read) for read in range(100, 2_100, 100)][-1] == ", 163 min left"
    assert [line.partition(",")[0] for line in told] == ["about 165 min left"]
    assert "--every 10" in told[0]
    short = Pace(1_100, told.append)
    assert all(map(short.left, range(100, 1_200, 100)))
    assert len(told) == 1


def test_a_session_that_alone_takes_minutes_is_named_before_it_is_played():
    told, sources = [], [Recording("x", n, n, b" " * size) for n, size in enumerate((9, LARGE + 1, LARGE + 1))]
    watched = Pace(None, told.append).watched(sources)
    assert [next(watched), *told] == sources[:1]
    assert next(watched) is sources[1]
    assert [line.partition(",")[0] for line in told] == ["x:1: a session of 4 MB"]
    assert list(watched) == sources[2:]
    assert len(told) == 1


@given(count=st.integers(0, 30), every=st.integers(1, 9))
def test_every_nth_session_is_taken_and_all_that_cannot_be_read(count, every):
    bad = Skipped("x", "damaged")
    sources = [source for n in range(count) for source in (Recording("x", n, n), bad)]
    taken = list(every_nth(sources, every))
    assert [each.place for each in taken if isinstance(each, Recording)] == list(range(0, count, every))
    assert taken.count(bad) == count


def test_sessions_that_are_gathered_from_one_file_are_done_one_after_the_other(tmp_path):
    spans = [
        {"traceId": str(n % 5), "type": "GENERATION", "input": [{"role": "user", "content": f"text {n}"}]}
        for n in range(20)
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, spans)))
    read = [each.read for each in recordings([str(path)])]
    assert read == [path.stat().st_size * n // 5 for n in range(1, 6)]


@pytest.mark.parametrize("command", ["replay", "bench"])
def test_a_session_that_is_too_long_to_be_replayed_is_skipped(command, sessions, tmp_path, monkeypatch):
    monkeypatch.setattr("ctxguard.harness.recordings.MAX_SESSION", 10_000)
    path = tmp_path / "log.jsonl"
    lines = [{"traceId": "t", "type": "GENERATION", "input": [{"role": "user", "content": "text " * 9_000}]}]
    path.write_text("\n".join([*map(json.dumps, lines), ""]))
    run = cli(command, path, "--budget", 500, "--processes", 1)
    assert (run.returncode, run.stdout) == (2, "")
    assert f"skipped {path}:1: session t: it is longer than" in run.stderr


INTERRUPT = """
import os, signal, sys
import ctxguard.harness.engine as engine
from ctxguard.cli import main

engine.EVERY = 0

def interrupting(sources, *given, inner=engine.in_order):
    for n, each in enumerate(inner(sources, *given)):
        if n == 5:
            os.kill(os.getpid(), signal.SIGINT)
        yield each

engine.in_order = interrupting
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in the background
sys.argv = ["ctxguard", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("command", ["replay", "bench"])
def test_ctrl_c_ends_with_the_report_on_what_was_done(command, sessions, undisturbed, tmp_path):
    progress = tmp_path / "progress.json"
    words = [command, str(sessions), "--budget", "1500,3000", "-r", "json", "--processes", "2"]
    resume = ["--resume", str(progress)] if command == "replay" else []
    run = subprocess.run(
        [sys.executable, "-c", INTERRUPT, *words, *resume], capture_output=True, text=True, check=False
    )
    assert run.returncode == 130, run.stderr
    assert "Traceback" not in run.stderr
    assert run.stderr.count("ctxguard: stopped") == 1
    made = json.loads(run.stdout)
    if command == "bench":
        assert made["sessions"] == 4
        return
    assert (made["runs"][0]["figures"]["sessions"], made["skipped_count"]) == (4, 1)
    assert progress.exists()


def test_ctrl_c_before_anything_was_done_says_nothing(sessions, monkeypatch):
    def interrupted(*given, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "play_session", interrupted)
    run = cli("replay", sessions, "--engine", "inline")
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "")


# -- Ray


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()


@pytest.mark.filterwarnings("ignore")
def test_two_workers_of_a_ray_cluster_give_the_same_report(sessions, undisturbed, cluster):
    run = cli("replay", sessions, *WORDS, "--engine", "ray", "--processes", 2)
    assert run.returncode == 0, run.stderr
    assert untimed(run.stdout) == undisturbed


class DiesOnce:
    """A stage that kills its worker the first time that it sees a session."""

    name = "DiesOnce"

    def __init__(self, mark: Path, word: str) -> None:
        self.mark, self.word = mark, word

    def __call__(self, draft):
        if not self.mark.exists() and any(self.word in artifact.text for artifact in draft.artifacts):
            self.mark.write_text("dead")
            os.kill(os.getpid(), signal.SIGKILL)
        return draft


@pytest.mark.filterwarnings("ignore")
def test_a_worker_that_is_killed_changes_nothing(cluster, tmp_path):
    from ray import cloudpickle

    from ctxguard.harness.engine import spread_on_ray

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    made = list(synthetic_recordings(40, turns=3))
    word = json.loads(made[20].data)["messages"][1]["content"]
    stages = [*agent_stages(), DiesOnce(tmp_path / "mark", word)]
    plan = Plan((Setting("a", {}, Stabilizer(2_000, stages=stages)),))
    results = run(made, plan, processes=2, spread=spread_on_ray)
    assert (tmp_path / "mark").exists(), "a worker was killed"
    whole = run(made, plan)
    assert results.sessions == whole.sessions == 40
    assert results.tallies[0].figures.bill == whole.tallies[0].figures.bill
    assert [told.calls for told, _ in results.tallies[0].worst] == [told.calls for told, _ in whole.tallies[0].worst]


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    from ctxguard.harness.engine import spread_on_ray

    with pytest.raises(ImportError, match=re.escape(install_command("ray"))):
        next(spread_on_ray(iter([Recording("x", 1, 0, b"[]")]), Plan(()), 1))
