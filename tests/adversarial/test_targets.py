"""The fuzzing targets hold for what begins as a seed and is cut, doubled, spliced and overwritten."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import PATIENCE, calls_of
from targets import TARGETS, seeds

EXAMPLES = max(150, 60 * int(os.environ.get("CTXGUARD_EXAMPLES", "2")))
SEEDS = st.sampled_from(seeds())
SIGNS = st.sampled_from(
    b'" \\ \\u < > { } [ ] , : &# %3 data: _1> <EMAIL_ 1e999 - NaN \r \n \r\n \0 \xef\xbb\xbf \xed\xa0\x80 \xe2\x80\x8b'.split(
        b" "
    )
)


@st.composite
def hostile(draw):
    data = draw(SEEDS)
    for _ in range(draw(st.integers(0, 6))):
        start, end = sorted(draw(st.tuples(*[st.integers(0, len(data))] * 2)))
        new = draw(st.one_of(SIGNS, st.binary(max_size=6), st.just(data[start:end] * 2), SEEDS))
        data = data[:start] + new + data[draw(st.sampled_from([start, end])) :]
    return data


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=EXAMPLES)
@given(data=hostile())
def test_a_parser_of_hostile_input_holds(name, data):
    TARGETS[name](data)


@pytest.mark.parametrize("name", TARGETS)
def test_steps_grow_with_the_length_and_no_faster(name):
    begin = b"\x04[" if name in ("json_strings", "cut_off_json") else b"\x04"
    unit = b'{"a": ["<EMAIL_1>", 1, "x\\n"]},\r\n\r\n'
    end = b"0]" if begin.endswith(b"[") else b""
    few, many = (calls_of(partial(TARGETS[name], begin + unit * times + end)) for times in (50, 400))
    assert many < 10 * few


@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None, reason="atheris, of the group `hunt`, is not installed"
)
def test_the_fuzzer_runs_a_target(tmp_path):
    script = Path(__file__).with_name("fuzz.py")
    run = subprocess.run(
        [sys.executable, script, "events", "--runs", "500"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert run.returncode == 0, run.stderr[-2_000:]
    assert "events: " in run.stdout


def test_without_the_fuzzer_every_target_is_named_as_skipped(tmp_path):
    (tmp_path / "atheris.py").write_text("raise ImportError('not installed')")
    script = Path(__file__).with_name("fuzz.py")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, script], env=environment, check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    assert run.returncode == 0
    assert [line.split(":")[0] for line in run.stdout.splitlines()] == list(TARGETS)
    assert all("skipped" in line for line in run.stdout.splitlines())
