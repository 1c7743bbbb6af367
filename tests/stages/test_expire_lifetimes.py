"""What has outlived its use goes, with its whole exchange."""

from __future__ import annotations

from ctxguard import Artifact, Lifetime, Stabilizer, ToolCall
from ctxguard.history import RECALLED, write_record
from ctxguard.stages import ExpireLifetimes


def kept(history, rules=None):
    out = Stabilizer(10_000, stages=[ExpireLifetimes(rules)], counter="estimate").stabilize(history)
    return [a.text for a in out.artifacts], out.report


def test_a_lifetime_in_turns_ends_when_enough_users_have_spoken():
    note = Artifact("assistant", "a hint", lifetime=Lifetime(turns=2))
    history = [Artifact("user", "one"), note, Artifact("user", "two")]
    assert "a hint" in kept(history)[0]
    texts, report = kept([*history, Artifact("user", "three")])
    assert "a hint" not in texts
    assert [d.reason for d in report.decisions if d.action == "dropped"] == ["lived 2 turns"]
    assert report.ok


def test_a_lifetime_until_an_event_ends_when_a_later_artifact_carries_it():
    draft = Artifact("assistant", "a draft", lifetime=Lifetime(until="published"))
    early = Artifact("user", "x", events=("published",))
    assert "a draft" in kept([early, draft, Artifact("user", "y")])[0]
    assert "a draft" not in kept([draft, Artifact("user", "done", events=("published",))])[0]


def test_a_result_of_a_tool_ends_what_lives_until_that_tool():
    def looked(*ids):
        calls = tuple(ToolCall("snapshot", "{}", i) for i in ids)
        return [Artifact("assistant", calls=calls), *(Artifact("tool", f"page {i}", answers=i) for i in ids)]

    def pages(*history):
        return [text for text in kept(history, {"snapshot": Lifetime(until="snapshot")})[0] if text.startswith("page")]

    task = Artifact("user", "look")
    assert pages(task, *looked("1")) == ["page 1"]
    assert pages(task, *looked("1"), *looked("2"), *looked("3")) == ["page 3"]
    assert pages(task, *looked("1"), *looked("2", "3")) == ["page 2", "page 3"]  # of parallel ones none is older
    asked = Artifact("assistant", calls=(ToolCall("snapshot", "{}", "2"),))
    assert pages(task, *looked("1"), asked) == ["page 1"]  # until the new one is there


def test_an_exchange_goes_as_a_whole():
    call = Artifact("assistant", "", calls=(ToolCall("shot", "{}", "1"),))
    shot = Artifact("tool", "pixels", answers="1", lifetime=Lifetime(turns=1))
    texts, report = kept([Artifact("user", "look"), call, shot, Artifact("user", "and?")])
    assert texts == ["look", "and?"]
    assert report.ok


def test_rules_give_lifetimes_by_tool_before_kind():
    call = Artifact("assistant", "", calls=(ToolCall("shot", "{}", "1"), ToolCall("read", "{}", "2")))
    results = [Artifact("tool", "pixels", answers="1"), Artifact("tool", "file", answers="2")]
    history = [Artifact("user", "look"), call, *results, Artifact("user", "and?")]
    assert kept(history, {"shot": Lifetime(turns=1)})[0] == ["look", "and?"]
    assert "file" in kept(history, {"read": Lifetime(turns=5), "shot": Lifetime(turns=5), "tool": Lifetime(turns=1)})[0]
    assert "file" not in kept(history, {"tool": Lifetime(turns=1)})[0]


def test_pins_and_open_exchanges_do_not_expire():
    call = Artifact("assistant", "", calls=(ToolCall("shot", "{}", "1"),), lifetime=Lifetime(until="now"))
    pinned = Artifact("user", "x", lifetime=Lifetime(turns=1), pinned=True)
    history = [pinned, Artifact("user", "y", events=("now",)), call]
    assert kept(history)[0] == ["x", "y", ""]


def test_what_was_recalled_or_summarised_begins_no_turn():
    note = Artifact("user", "until the next question", lifetime=Lifetime(turns=2))
    history = [
        note,
        Artifact("assistant", "ok"),
        Artifact("user", write_record(RECALLED, "Turn 1: blue")),
        Artifact("user", "q"),
    ]
    result = Stabilizer(1_000, stages=[ExpireLifetimes()], counter="estimate").stabilize(history)
    assert result.artifacts[0] is note
    assert (
        Stabilizer(1_000, stages=[ExpireLifetimes()]).stabilize([*history, Artifact("user", "r")]).artifacts[0]
        is not note
    )
