"""The report tells what was done and why, in every form, and holds no text that a rule would mask."""

from __future__ import annotations

import json
from collections import Counter
from importlib.metadata import PackageNotFoundError

import pytest

import ctxguard
from ctxguard import Artifact, Lifetime, Stabilizer, ToolCall
from ctxguard.report.decisions import decision_runs
from ctxguard_openai import stabilize_messages

MAIL = "jane.doe@corp-mail.net"


def stabilized():
    log = "\n".join(f"line {n} of a long log with nothing in it" for n in range(400))
    history = [
        Artifact("system", "Be brief.", id="rules"),
        Artifact("user", f"I am {MAIL} <script>alert(1)</script>", id="who"),
        Artifact("assistant", "noted, for now", lifetime=Lifetime(turns=1), id="note"),
        Artifact("assistant", "", calls=(ToolCall("read", "{}", "1"),)),
        Artifact("tool", log, answers="1", name="read"),
        *(Artifact("user" if n % 2 else "assistant", f"message {n} " * 8) for n in range(40)),
        Artifact("user", "and now?"),
    ]
    return Stabilizer(700, counter="o200k_base").stabilize(history)


def test_decisions_are_one_an_artifact_in_order_with_everything_that_happened():
    report = stabilized().report
    assert [d.position for d in report.decisions] == [*range(46), None]  # the trail is the stage's own
    by_id = {d.artifact.id: d for d in report.decisions[:3]}
    assert by_id["rules"].action == "kept"
    assert (by_id["who"].action, by_id["who"].stage) == ("masked", "MaskPII")
    assert (by_id["note"].action, by_id["note"].reason) == ("dropped", "lived 1 turns")
    assert [s.stage for s in report.decisions[4].steps] == ["StableWindow"]
    assert report.decisions[4].action == "dropped"


def test_the_brief_figures_are_those_of_the_decisions():
    report = stabilized().report
    came_in = [d for d in report.decisions if d.position is not None]
    assert report.brief() == {
        "tokens_before": report.tokens_before,
        "tokens_after": report.tokens_after,
        "masked": sum(any(step.action == "masked" for step in d.steps) for d in came_in),
        "dropped": sum(d.tokens_after == 0 for d in came_in),
        "cut": int(report.cut.fresh),
    }
    assert report.brief()["masked"] == 1
    assert Stabilizer(700).stabilize([Artifact("user", "Hi")]).report.brief()["dropped"] == 0


def test_what_each_action_saved_is_that_of_the_decisions():
    report = stabilized().report
    expected = Counter()
    for d in report.decisions:
        expected["new messages" if d.position is None else d.action] += d.tokens_before - d.tokens_after
    assert report.saved_by() == {action: tokens for action, tokens in expected.items() if tokens}
    assert sum(report.saved_by().values()) == sum(d.tokens_before - d.tokens_after for d in report.decisions)


@pytest.mark.parametrize(("headroom", "told"), [(0, "tokens of 700 (0% saved);"), (45, "of 655 (0% saved; 45 more")])
def test_it_says_what_is_kept_free_of_the_budget(headroom, told):
    assert told in str(Stabilizer(700, headroom=headroom).stabilize([Artifact("user", "Hi")]).report)


def test_no_form_of_it_holds_personal_data_or_live_markup():
    report = stabilized().report
    for told in (str(report), repr(report), report.to_json(), report._repr_html_(), repr(report.decisions)):
        assert MAIL not in told
    assert "<script>" not in report._repr_html_()


def test_a_result_and_its_artifacts_show_themselves_escaped_in_a_notebook():
    html = stabilized()._repr_html_()
    assert "47 decisions" in html
    assert "&lt;script&gt;" in html
    assert "<script>" not in html
    call = Artifact("assistant", "", calls=(ToolCall("<f>", '{"a": "<b>"}', "1"),))
    assert "&lt;f&gt;({&quot;a&quot;: &quot;&lt;b&gt;&quot;})" in call._repr_html_()


def test_parts_that_nobody_reads_are_told_in_every_form():
    strange = {"type": "hologram", "data": MAIL}
    messages = [{"role": "user", "content": [{"type": "text", "text": "See:"}, strange]}]
    out, report = stabilize_messages(messages, Stabilizer(500))
    assert out[0] is messages[0]
    assert report.unread == report.to_dict()["unread"] == 1
    for told in (str(report), report._repr_html_()):
        assert "passed on unmasked: 1" in told
    assert "unread" not in str(stabilized().report)


def test_what_went_before_masking_is_masked_in_the_report():
    history = [Artifact("tool", f"orphan of {MAIL}", answers="9"), Artifact("user", "hi")]
    report = Stabilizer(500).stabilize(history).report
    assert report.decisions[0].action == "dropped"
    assert report.decisions[0].artifact.text == "orphan of [REDACTED_EMAIL]"


def test_numbers_agree_in_every_form():
    report = stabilized().report
    told = json.loads(report.to_json())
    assert told == json.loads(json.dumps(report.to_dict()))
    assert (told["tokens_before"], told["tokens_after"], told["budget"]) == (
        report.tokens_before,
        report.tokens_after,
        700,
    )
    assert sum(told["actions"].values()) == len(told["decisions"]) == 47
    assert f"{report.tokens_before:,} -> {report.tokens_after:,} tokens of 700" in str(report)
    assert told["cut"]["fresh"] == report.cut.fresh


def test_the_first_changed_position_is_that_of_the_result():
    assert stabilized().report.first_changed == 1
    assert Stabilizer(500).stabilize([Artifact("user", "hi")]).report.first_changed is None


def test_an_unchanged_history_is_told_so():
    report = Stabilizer(500).stabilize([Artifact("user", "hi")]).report
    assert not report.changed
    assert report.counts() == {"kept": 1}
    assert "1 kept" in str(report)


def test_an_empty_history_has_a_report():
    report = Stabilizer(500).stabilize([]).report
    assert "nothing came in" in str(report)
    assert json.loads(report.to_json())["decisions"] == []
    assert "0 decisions" in report._repr_html_()


def test_it_says_which_counter_and_how_exact():
    report = Stabilizer(500, counter="estimate").stabilize([]).report
    assert report.counter == "estimate"
    assert "within about 10%" in str(report)


def test_neighbors_that_met_the_same_are_told_in_one_line_and_lose_nothing():
    report = stabilized().report
    runs = decision_runs(report.decisions)
    assert [d for run in runs for d in run.decisions] == report.decisions
    assert sum(run.tokens_before for run in runs) == sum(d.tokens_before for d in report.decisions)
    dropped = next(line for line in str(report).splitlines() if "evicted at a cut" in line and "-" in line[:9])
    assert "dropped" in dropped
    assert len(str(report).splitlines()) < 25


@pytest.mark.slow
def test_a_page_of_a_long_session_stays_small():
    history = [Artifact("user" if n % 2 else "assistant", f"{MAIL} and line {n}" * (n % 3)) for n in range(6_001)]
    page = Stabilizer(200_000, counter="estimate").stabilize(history)._repr_html_()
    assert "more rows; all are in to_dict()" in page
    assert len(page) < 2_000_000


def test_a_text_that_grew_by_masking_is_said_to_have_grown():
    report = Stabilizer(1_000).stabilize([Artifact("user", "I am ada@example.com")]).report
    assert report.tokens_after > report.tokens_before
    assert "% added)" in str(report)
    assert "(-" not in str(report)


def test_a_report_names_what_of_the_call_before_is_gone():
    opening = Artifact("user", "For this turn alone: mail ann@corp-mail.net.", lifetime=Lifetime(turns=1))
    history = [opening, Artifact("assistant", "Done, to ann@corp-mail.net."), Artifact("user", "Thanks.")]
    report = Stabilizer(500).stabilize(history).report
    assert "dropped" in report.counts()  # what the call before was sent first is gone
    assert report.cut.fresh
    assert report.cut.position == 0


def test_a_report_says_that_what_is_gone_was_cut_in_an_earlier_call():
    stabilizer, history, told = Stabilizer(1_500), [], []
    for number in range(90):
        history.append(Artifact("user" if number % 2 == 0 else "assistant", f"Message {number}: " + "word " * 30))
        report = stabilizer.stabilize(history).report
        if report.cut is not None:
            told.append((report.cut.fresh, "no new cut; the context still starts" in str(report)))
    assert set(told) == {(True, False), (False, True)}


def test_a_report_is_written_to_a_file_that_is_named(tmp_path):
    report = Stabilizer(800).stabilize([Artifact("user", "Où ?")]).report
    for write in (report.to_html, report.to_json):
        assert write(tmp_path / "file") == (tmp_path / "file").read_text(encoding="utf-8")


def test_the_page_needs_no_installed_package(monkeypatch):
    def absent(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", absent)
    page = Stabilizer(800).stabilize([Artifact("user", "Hi")]).report.to_html()
    assert f"ctxguard {ctxguard.__version__}<" in page
