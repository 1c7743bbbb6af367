"""`benchmarks/quality.py`: halves, the comparison with a baseline, and a run over a few sessions."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest
from test_cli import cli

from ctxguard.harness.contestants import synthetic_session

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def quality(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("quality")


def test_halves_are_the_same_in_every_run_and_about_as_large(quality):
    halves = [quality.half_of("source", f"session-{n}", "session") for n in range(400)]
    assert 160 < halves.count("a") < 240
    assert len({quality.half_of("source", f"session-{n}", "source") for n in range(20)}) == 1
    assert quality.half_of("tau-bench", "17", "session") == quality.half_of("tau-bench", "17", "session")


@pytest.mark.parametrize(
    ("changes", "worse"),
    [
        ({}, 0),
        ({"gain": 0.9, "bill": 0.3, "newest": 1.0}, 0),
        ({"gain": 0.66}, 1),
        ({"gain": None}, 1),
        ({"bill": 0.5, "prefix": 0.5}, 2),
        ({"calls": 51}, 1),
    ],
)
def test_a_figure_is_worse_beyond_its_tolerance(quality, tmp_path, changes, worse):
    row = {"sessions": 3, "calls": 50, "judged": 40, "gain": 0.7, "bill": 0.4, "newest": 0.9, "prefix": 0.95}
    few = {**row, "judged": 2}
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps({"4000/all/default": row, "4000/all/rolling": row, "4000/few/default": few}))
    now = {"4000/all/default": {**row, **changes}, "4000/few/default": {**few, "gain": 0.0}}
    assert len(list(quality.worse_than(now, path))) == worse


def test_the_committed_figures_hold_what_is_compared(quality):
    rows = json.loads((BENCHMARKS / "quality.json").read_text())
    assert {
        "4000/all/default",
        "8000/half a/default",
        "8000/half b/default",
        "8000/invented/default",
        "facts",
    } <= rows.keys()
    assert set(quality.TOLERANCES) <= rows["8000/all/default"].keys() | rows["facts"].keys()


@pytest.mark.slow
def test_quality_and_bench_have_one_definition_of_each_figure(quality, tmp_path):
    pytest.importorskip("pyppmd", reason="gain needs pyppmd")
    path, told = tmp_path / "shop.jsonl", tmp_path / "bench.json"
    path.write_text("".join(json.dumps(synthetic_session(seed, turns=16)) + "\n" for seed in range(2)))
    run = cli("bench", path, "--budgets", "2k", "--counter", "estimate", "--report", "json", "-o", told)
    assert run.returncode == 0, run.stderr
    bench = {row["name"]: row for row in json.loads(told.read_text())["rows"]}
    words = [str(path), "--budget", "2k", "--counter", "estimate", "--cache", str(tmp_path / "cache.sqlite")]
    rows = quality.shown(quality.play(quality.arguments_of(words)))
    for name, arm in (("ctxguard", "default"), ("rolling window", "rolling")):
        ours = rows[f"2000/all/{arm}"]
        same = {"calls": "calls", "support": "support", "gain": "gain", "newest": "newest", "prefix_kept": "prefix"}
        assert {key: bench[name][key] for key in same} == {key: ours[mine] for key, mine in same.items()}
        assert bench[name]["bill"] == ours["bill"]
        assert ours["prefix all"] > ours["prefix"], "before the budget is exceeded, every prompt extends the one before"


@pytest.mark.slow
def test_a_comparison_of_halves_adds_up_and_keeps_its_calls(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    compare = importlib.import_module("compare")
    path, kept = tmp_path / "shop.jsonl", tmp_path / "calls.jsonl"
    path.write_text("".join(json.dumps(synthetic_session(seed, turns=12)) + "\n" for seed in range(6)))
    monkeypatch.setattr("sys.argv", ["compare.py", str(path), "--budget", "2k", "--save", str(kept)])
    compare.main()
    first = capsys.readouterr().out
    counts = list(map(int, re.findall(r"exceeded by (\d+) calls", first)))
    assert len(counts) == 3
    assert counts[0] == counts[1] + counts[2] > counts[1] > 0
    assert len(re.findall(r"2,000: ctxguard above the rolling window: support .* \[", first)) >= 1
    monkeypatch.setattr("sys.argv", ["compare.py", "--add", str(kept)])
    compare.main()
    assert capsys.readouterr().out == first


@pytest.mark.slow
def test_a_run_judges_every_arm_beside_a_rolling_window(quality, tmp_path, capsys):
    path = tmp_path / "shop.jsonl"
    path.write_text("".join(json.dumps(synthetic_session(seed, turns=16)) + "\n" for seed in range(2)))
    words = [str(path), "--budget", "2k", "--set", "", "--set", "target=0.7", "--counter", "estimate"]
    arguments = quality.arguments_of([*words, "--cache", str(tmp_path / "cache.sqlite")])
    calls = quality.play(arguments)
    rows = quality.shown(calls)
    for arm in ("default", "target=0.7", "rolling"):
        row = rows[f"2000/all/{arm}"]
        assert row["sessions"] == 2
        assert row["judged"] == row["calls"] > 5
        assert row["over"] == row["refused"] == 0
        assert row["gain"] < 1.2
    assert rows["2000/all/rolling"]["bill"] == pytest.approx(1)
    assert rows["2000/all/rolling"]["cuts"] == 0 < rows["2000/all/default"]["cuts"]
    again = quality.play(arguments)
    assert again == calls, "what is kept on disk changes nothing"
    assert "target=0.7" in capsys.readouterr().out
