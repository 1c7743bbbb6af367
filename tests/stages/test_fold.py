"""The fold is arithmetic: on the way to a context no text is written, masked, or searched, however many cuts there were."""

from __future__ import annotations

import json

import pytest

from ctxguard import Artifact, Stabilizer, ToolCall
from ctxguard.draft import Draft
from ctxguard.history import TRAIL, record_title
from ctxguard.pii import STANDARD, Masker
from ctxguard.stages import short_views, stable_window
from ctxguard.stages.fold import WindowFold


def work(steps: int) -> list[Artifact]:
    """Return a conversation in which people, tools, and the model name values, with a rule now and then."""
    history = [Artifact("system", "Be brief."), Artifact("user", "Go through the orders of ann@example.org with me.")]
    for n in range(steps):
        call = ToolCall("find_order", json.dumps({"id": f"A-{n}", "mail": f"p{n}@example.org"}), f"c{n}")
        output = f"order A-{n} of p{n}@example.org\n" + f"row {n}: paid with 4111 1111 1111 1111\n" * 12
        history += [
            Artifact("assistant", f"I look at A-{n}.", calls=(call,)),
            Artifact("tool", output, answers=call.id),
        ]
        if n % 5 == 4:
            history.append(Artifact("assistant", f"Order A-{n} is paid."))
            history.append(Artifact("user", f"Never write to p{n}@example.org. And order A-{n // 2}?"))
    return history


@pytest.fixture
def seen(monkeypatch):
    """Count what is written, and what of it in the fold."""
    counts = dict.fromkeys(("cuts", "masked", "masked in the fold", "views", "trails"), 0)
    depth = 0

    def inside(method):
        def counted(self, *given, **more):
            nonlocal depth
            depth += 1
            counts["cuts"] += method.__name__ == "cut"
            try:
                return method(self, *given, **more)
            finally:
                depth -= 1

        return counted

    def counting(function, name):
        def counted(*given, **more):
            counts[name] += 1
            counts["masked in the fold"] += depth > 0
            return function(*given, **more)

        return counted

    for name in ("step", "cut", "with_authority"):
        monkeypatch.setattr(WindowFold, name, inside(getattr(WindowFold, name)))
    monkeypatch.setattr(Draft, "mask", counting(Draft.mask, "masked"))
    monkeypatch.setattr(stable_window, "shortened", counting(short_views.shortened, "views"))
    monkeypatch.setattr(stable_window, "write_note", counting(stable_window.write_note, "trails"))
    return counts


@pytest.mark.parametrize("policy", ["default", "agent", "chat", "recall"])
@pytest.mark.parametrize("strategy", ["redact", "pseudonymize"])
def test_nothing_is_written_or_masked_in_the_fold(seen, policy, strategy):
    masker = Masker((STANDARD,), strategy=strategy)
    stabilizer = Stabilizer.from_policy(policy, budget=1_500, counter="estimate", masker=masker)
    result = stabilizer.stabilize(work(60))
    assert result.report.ok
    assert seen["cuts"] > 10
    assert seen["masked"] > 0
    assert seen["masked in the fold"] == 0


def test_what_is_written_at_first_sight_is_what_is_sent_however_many_cuts_there_were(seen):
    cuts = []
    for steps in (60, 240):
        seen.update(dict.fromkeys(seen, 0))
        history = work(steps)
        result = Stabilizer.from_policy("agent", budget=1_500, counter="estimate").stabilize(history)
        shortened = sum(d.action == "bounded" for d in result.report.decisions)
        assert seen["views"] == shortened
        assert seen["trails"] <= 3, "again only where masking made it longer"
        assert any(record_title(artifact) == TRAIL for artifact in result.artifacts)
        arrived = sum(1 + len(artifact.calls) for artifact in history)
        assert seen["masked"] <= arrived + 20, "each text when it arrives, and what is written"
        cuts.append(seen["cuts"])
    few, many = cuts
    assert many > 3 * few > 0


def test_a_view_and_a_trail_that_were_written_are_not_written_again(seen):
    session = Stabilizer.from_policy("agent", budget=1_500, counter="estimate").session()
    session.extend(work(60))
    session.context()
    seen.update(dict.fromkeys(seen, 0))
    session.append(Artifact("assistant", "And this one?"))
    session.context()
    assert seen["cuts"] <= 1
    assert seen["views"] <= (12 if seen["cuts"] else 1)
