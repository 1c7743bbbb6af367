"""A guarded agent under DBOS, on SQLite: processes end before a step is recorded, and workflows are forked at each step."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("dbos", reason="DBOS is not installed (it comes with the group dev)")
pytest.importorskip("openai", reason="OpenAI's client is not installed")
pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

from programs import HERE, run
from scripted_provider import ANSWER, REQUESTS, check


def program(folder, way, action, *arguments, **settings):
    needed = "dbos_openai_agents" if way == "agents" else "pydantic_ai.durable_exec.dbos"
    pytest.importorskip(needed, reason=f"{needed} is not installed")
    return run(HERE / "dbos_program.py", folder, way, action, *arguments, **settings)


EACH = (1, *(2,) * (REQUESTS - 1))
"""Every process sends again what got no answer, and ends at its second request, before the step is recorded."""


@pytest.mark.parametrize(
    ("way", "crashes"),
    [
        ("durable", (2,)),
        pytest.param("durable", EACH, marks=pytest.mark.slow),
        pytest.param("agents", EACH, marks=pytest.mark.slow),
    ],
)
def test_after_crashes_and_from_a_fork_at_each_step_the_same_bytes_are_sent(way, crashes, tmp_path):
    for number, request in enumerate(crashes):
        program(tmp_path, way, "RESUME" if number else "START", request, status=3)
    done = json.loads(program(tmp_path, way, "FORKS").splitlines()[-1])
    assert done["output"] == ANSWER
    assert [left for _, left, _ in done["forks"]] == [4, 3, 2, 2, 1]
    sent = done["forks"][0][2]
    check(sent)
    for output, left, bodies in done["forks"]:
        assert (output, bodies) == (ANSWER, sent[-left:])
    expected, at = [], 0
    for request in crashes:
        expected += sent[at : at + request]
        at += request - 1
    assert (tmp_path / "log").read_text().splitlines() == expected + sent[at:]


@pytest.mark.slow
def test_the_other_guard_uses_the_vault_in_the_code_of_the_workflow(tmp_path):
    with pytest.raises(AssertionError, match="of a store was called in the code of a workflow"):
        program(tmp_path, "plain", "START")


@pytest.mark.slow
def test_a_stream_shows_the_values_and_a_result_is_read_back_from_a_store_in_steps_alone(tmp_path):
    pytest.importorskip("pydantic_ai.durable_exec.dbos", reason="this PydanticAI has no durable execution")
    run(HERE / "dbos_streams.py", tmp_path)
