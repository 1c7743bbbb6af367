"""What the model thought by itself is not told in the user's role."""

from __future__ import annotations

from ctxguard import Artifact, Part
from ctxguard.stages.traces import trace_of


def test_reasoning_stands_on_no_line_of_the_trail():
    thought = Part("reasoning", "secret_plan_17 may work", signed=True)
    trace = trace_of([Artifact("assistant", (thought, Part("text", "Order A-17 left Malmo.")))])
    assert [step.what for step in trace.steps] == ["Order A-17 left Malmo."]
    assert "secret_plan_17" not in trace.names
