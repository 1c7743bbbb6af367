"""`benchmarks/quality.py`: halves, the comparison with a baseline, and a run over a few sessions."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from ctxguard.harness.synthetic import synthetic_session

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
