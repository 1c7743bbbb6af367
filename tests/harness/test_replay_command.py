"""`ctxguard replay`: what it reads, what it says of what it cannot read, its exit codes, reports and comparisons."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import jsonschema
import pytest
from test_cli import MESSAGES, cli

import ctxguard.harness
from ctxguard.artifacts import Artifact
from ctxguard.errors import ConfigError
from ctxguard.harness import parse_session, replay
from ctxguard.harness.document import ReplayReport, compare, load_baseline, schema_json
from ctxguard.harness.engine import parse_sweep
from ctxguard.harness.pricing import RollingWindow, price_model
from ctxguard.harness.recordings import Recording, recordings
from ctxguard.harness.replay import served_contexts
from ctxguard.harness.summary import saved_by
from ctxguard.stabilizer import Stabilizer

pytestmark = pytest.mark.usefixtures("without_gain")

TALK = [m for m in MESSAGES if m["role"] != "system"]


@pytest.fixture
def session(tmp_path):
    path = tmp_path / "session.json"
    path.write_text(json.dumps(MESSAGES), encoding="utf-8")
    return path


def report_of(*words):
    run = cli("replay", *words, "--report", "json")
    return run, ReplayReport.model_validate_json(run.stdout)


def lines(*records):
    return "\n".join(r if isinstance(r, str) else json.dumps(r) for r in records).encode()


@pytest.mark.slow
def test_files_folders_globs_gzip_and_every_layout_are_read(tmp_path):
    (tmp_path / "deep").mkdir()
    one, two = {"id": "a", "messages": TALK}, {"id": "b", "messages": TALK}
    (tmp_path / "list.json").write_bytes(json.dumps([one, two], indent=1).encode())
    (tmp_path / "deep" / "lines.jsonl.gz").write_bytes(gzip.compress(lines(one, two)))
    (tmp_path / "deep" / "messages.jsonl").write_bytes(b"\xef\xbb\xbf" + lines(*TALK))
    (tmp_path / "whole.json").write_bytes(json.dumps(TALK, indent=2).encode())
    (tmp_path / "notes.txt").write_text("not a session")
    _, told = report_of(tmp_path, "--budget", 2_000)
    assert (told.runs[0].figures.sessions, told.skipped_count) == (6, 0)
    _, some = report_of(tmp_path / "deep" / "*.jsonl", tmp_path / "whole.json", "--budget", 2_000)
    assert some.runs[0].figures.sessions == 2


def test_what_cannot_be_read_is_named_with_its_line_and_the_rest_is_done(tmp_path):
    whole = gzip.compress(lines(*({"id": str(n), "messages": TALK[:7]} for n in range(40))))
    good = {"id": "good", "messages": TALK[:7]}
    files = {
        "half.jsonl.gz": whole[: len(whole) // 2],
        "line3.jsonl": lines(good, good, "{broken", good),
        "first.jsonl": lines("{broken}", good, good),
        "shape.json": lines({"what": "is this"}),
        "number.json": lines("42"),
        "empty.json": b"",
        "none.json": b"[]",
        "latin.jsonl": lines(good) + b'\n{"messages": "\xff"}',
        "role.json": lines([*TALK, {"content": "x"}]),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    run, told = report_of(tmp_path, "--budget", 2_000)
    assert run.returncode == 0
    found = {Path(each.path).name: (each.line, each.reason) for each in told.skipped}
    assert found.keys() == files.keys()
    assert found["half.jsonl.gz"][1].startswith("the gzip data is damaged")
    assert found["line3.jsonl"] == (3, "not valid JSON: Expecting property name enclosed in double quotes (column 2)")
    assert found["first.jsonl"][0] == 1
    assert found["latin.jsonl"] == (2, "not UTF-8 text (byte 14); save it as a text file in UTF-8")
    assert "'messages', 'input', 'contents', or 'artifacts'" in found["shape.json"][1]
    assert found["empty.json"][1] == "the file is empty; a session is a list of messages"
    assert found["none.json"][1].startswith("no model call")
    assert "it has no 'role'" in found["role.json"][1]
    assert "line3.jsonl:3: not valid JSON" in run.stderr
    assert cli("replay", tmp_path, "--budget", 2_000, "--strict").returncode == 1


def test_a_line_that_is_too_long_is_read_past(tmp_path, monkeypatch):
    monkeypatch.setattr("ctxguard.harness.recordings.MAX_BYTES", 64 << 20)
    path = tmp_path / "long.jsonl"
    with path.open("wb") as file:
        file.write(lines({"messages": TALK}) + b"\n")
        for _ in range(200):
            file.write(b"x" * (1 << 20))
        file.write(b"\n" + lines({"messages": TALK}))
    found = list(recordings([str(path)]))
    assert [(type(each) is Recording, each.line) for each in found] == [(True, 1), (False, 2), (True, 3)]
    assert "longer than 67108864 bytes" in found[1].reason


@pytest.mark.parametrize("given", ["[]", json.dumps(TALK[:1]), json.dumps({"messages": []}), "", None])
def test_nothing_judged_exits_with_2(tmp_path, given):
    if given is not None:
        (tmp_path / "s.json").write_text(given)
    run = cli("replay", tmp_path)
    assert run.returncode == 2
    assert "nothing was judged" in run.stderr


def test_where_every_call_is_refused_nothing_was_judged_and_no_share_is_perfect(tmp_path):
    (tmp_path / "s.json").write_text(json.dumps(TALK))
    run, told = report_of(tmp_path, "--budget", 5)
    own = told.runs[0].figures
    assert run.returncode == 2
    assert (own.calls, own.served, own.refused) == (21, 0, 21)
    assert (own.prefix_share, own.saved, own.support, own.time.p95_ms) == (None, None, None, None)


def test_a_broken_law_exits_with_1_and_names_the_call(tmp_path):
    path = tmp_path / "s.json"
    path.write_text(json.dumps([*MESSAGES[:3], {"role": "assistant", "content": "And?"}, *MESSAGES[3:]]))
    run, told = report_of(path, "--provider", "anthropic")
    assert run.returncode == 1
    assert told.runs[0].figures.findings == {"ProviderProfile(anthropic)": 1}
    assert "ProviderProfile(anthropic) fails at 1 call, first at call 2 of session 0" in run.stderr


@pytest.mark.slow
def test_refused_calls_are_told_and_fail_only_where_asked(tmp_path):
    path = tmp_path / "s.json"
    path.write_text(json.dumps([*MESSAGES[:4], {"role": "user", "content": "long " * 900}, *MESSAGES[4:]]))
    run = cli("replay", path, "--budget", 600)
    assert run.returncode == 0
    assert "calls refused: mandatory messages take up to" in run.stderr
    assert cli("replay", path, "--budget", 600, "--strict").returncode == 1


def test_the_report_is_what_the_published_schema_says(session):
    run, _ = report_of(session, "--budget", 600)
    published = (Path(ctxguard.harness.__file__).parent / "replay-report.schema.json").read_text()
    assert published == schema_json() == cli("replay", "--schema").stdout
    jsonschema.validate(json.loads(run.stdout), json.loads(published))


def clerk(turns):
    told = [{"role": "system", "content": "You are a clerk. " + "Keep the rule. " * 250}]
    for n in range(turns):
        told.append({"role": "user", "content": f"Question {n} of a@b.co"})
        told.append({"role": "assistant", "content": f"Answer {n}: " + "the heron of the mill flew. " * 20})
    return told


def test_what_was_saved_is_the_sum_of_what_was_removed_and_added(tmp_path):
    path = tmp_path / "session.json"
    path.write_text(json.dumps(clerk(12)))
    _, made = report_of(path, "--budget", 1_500)
    own = made.runs[0].figures
    assert own.saved_by["masked"] < 0 < own.saved_by["dropped"]
    removed, _, added = saved_by(own).partition("; added: ")
    assert "masked" in added
    assert "new messages" in added
    total = [sum(int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*\b", text)) for text in (removed, added)]
    assert total[0] - total[1] == own.tokens_before - own.tokens_after == sum(own.saved_by.values())


def test_a_bill_above_that_of_the_whole_history_is_said_in_words(tmp_path):
    path, page = tmp_path / "session.json", tmp_path / "page.html"
    path.write_text(json.dumps(clerk(12)))
    said = "sending the whole history would have cost less here"
    dear = cli("replay", path, "--budget", 1_500, "--output", page)
    assert dear.returncode == 0
    assert f"policy default, budget 1,500: {said} (" in dear.stderr
    assert said in page.read_text(encoding="utf-8")
    assert said not in cli("replay", path, "--budget", 100_000).stderr


@pytest.mark.parametrize(
    ("words", "budgets"),
    [(["--budgets", "600"], [600]), (["--budget", "600, 2k"], [600, 2_000]), (["-b", "2k"], [2_000])],
)
def test_one_budget_or_several_are_replayed_by_either_name(session, words, budgets):
    assert [run.setting["budget"] for run in report_of(session, *words)[1].runs] == budgets


@pytest.mark.slow
def test_the_same_replay_holds_against_its_baseline_and_a_worse_one_does_not(session, tmp_path):
    base = tmp_path / "base.json"
    assert cli("replay", session, "--budget", 600, "--output", base).returncode == 0
    same = cli("replay", session, "--budget", 600, "--baseline", base, "--tolerance", "p95_ms=100000%")
    assert same.returncode == 0
    assert "baseline" not in same.stderr
    told = json.loads(base.read_text())
    own = told["runs"][0]["figures"]
    own.update(tokens_after=own["tokens_after"] // 2, saved=0.99, prefix_share=1.0, support=None)
    own["bill"]["stabilized"] /= 2
    base.write_text(json.dumps(told))
    worse = cli("replay", session, "--budget", 600, "--baseline", base)
    assert worse.returncode == 1
    for name in ("tokens_after", "saved", "prefix_share", "bill"):
        assert f"worse than the baseline: policy default, budget 600: {name} was" in worse.stderr


@pytest.mark.slow
@pytest.mark.parametrize("other", [["--budget", 2_000], ["--budget", 600, "SESSION"]])
def test_nothing_to_compare_is_a_failure(session, tmp_path, other):
    base = tmp_path / "base.json"
    copy = tmp_path / "copy.json"
    copy.write_bytes(session.read_bytes())
    cli("replay", session, "--budget", 600, "--output", base)
    run = cli("replay", session, *(copy if part == "SESSION" else part for part in other), "--baseline", base)
    assert run.returncode == 1
    assert "nothing to compare" in run.stderr


@pytest.mark.parametrize("text", ["[]", "{}", "[" * 100_000, '{"schema_version": 2}', "not json"])
def test_a_baseline_that_is_no_report_is_one_line(session, tmp_path, text):
    broken = tmp_path / "b.json"
    broken.write_text(text)
    run = cli("replay", session, "--baseline", broken)
    assert (run.returncode, run.stderr.count("\n")) == (2, 1)
    assert "is not a replay report of schema version 1" in run.stderr
    with pytest.raises(ConfigError, match="cannot be read"):
        load_baseline(tmp_path / "none.json")


def test_only_worse_figures_are_told(session):
    _, told = report_of(session, "--budget", 600)
    worse = told.model_copy(deep=True)
    worse.runs[0].figures.findings["pairs"] = 1
    assert compare(told, told) == compare(told, worse) == []
    assert [line.partition(": ")[2] for line in compare(worse, told)] == [
        "findings was 0 and is 1 (1 worse, 0 allowed)",
        "findings: pairs was met, and is not met at 1 call",
    ]


@pytest.mark.slow
def test_a_sweep_shows_what_each_setting_costs_and_holds(session):
    run = cli("replay", session, "--sweep", "budget=500,1k target=0.3:0.5:0.2")
    assert run.returncode == 0
    assert run.stdout.count("  guarantees  ") == 4
    assert "policy default, budget 1,000, target 0.5" in run.stdout
    assert "the cheapest setting that meets all guarantees" in run.stderr


@pytest.mark.parametrize(
    "text",
    ["budget", "budget=", "budget=1,,2", "target=0.5:0.1", "target=0:inf", f"budget={','.join('123456789' * 9)}"],
)
def test_a_sweep_that_cannot_be_read_is_refused(text):
    with pytest.raises(ConfigError):
        parse_sweep(text)


@pytest.mark.parametrize("value", ["inf", "nan", "1e308k", "much"])
def test_a_swept_setting_that_is_not_a_number_is_one_line(session, value):
    run = cli("replay", session, "--sweep", f"target={value}")
    assert (run.returncode, run.stderr.count("\n")) == (2, 1)


def test_ranges_and_thousands_of_a_sweep():
    assert parse_sweep("budget=4k,0.5k target=0.2:0.6 policy=agent,recall") == {
        "budget": [4_000, 500],
        "target": [0.2, 0.3, 0.4, 0.5, 0.6],
        "policy": ["agent", "recall"],
    }


def test_prices_are_those_of_the_users_table_or_of_the_library(tmp_path):
    table = tmp_path / "prices.yaml"
    table.write_text("ours: {input: 2.0, cache_read: 0.5, cache_write: 2.5, minimum: 100, step: 10}\n")
    own = price_model("ours", table)
    assert own.price(1_000, 0) == pytest.approx(1_000 * 2.5e-6)
    assert own.price(1_000, 509) == pytest.approx((500 * 2.5 + 500 * 0.5) * 1e-6)
    assert own.price(90, 80) == pytest.approx(90 * 2e-6)
    for text in ("ours: {}", "ours: {input: -1}", "ours: {input: 1, inputs: 2}", "other: {input: 1}", "[", "- 1"):
        table.write_text(text)
        with pytest.raises(ConfigError):
            price_model("ours", table)
    pytest.importorskip("genai_prices", reason="genai-prices is not installed")
    known = price_model("claude-sonnet-4-5")
    assert known.currency == "USD"
    assert 0 < known.cached < known.input < known.written
    with pytest.raises(ConfigError, match="knows no model 'nobody-1'"):
        price_model("nobody-1")


@pytest.mark.parametrize(
    ("times", "colder"),
    [
        (["2026-01-01T10:00:00Z", "2026-01-01T10:04:00Z", "2026-01-01T10:08:00+00:00"], 0),
        (["2026-01-01T10:00:00Z", "2026-01-01T10:06:00Z", "2026-01-01T10:07:00Z"], 1),
        ([1_767_260_000, 1_767_260_400, 1_767_260_800], 2),
        ([1_767_260_000_000, 1_767_260_400_000, 1_767_260_401_000], 1),
        (["soon", None, True], 0),
    ],
)
def test_a_prefix_that_has_expired_costs_its_full_price(times, colder):
    told = [{"role": "system", "content": "word " * 3_000}]
    for at in times:
        told += [{"role": "user", "content": "And?", "timestamp": at}, {"role": "assistant", "content": "So."}]
    played = replay(parse_session(told), Stabilizer(20_000))
    full = [call.bill > call.after / 2 for call in played.calls]
    assert sum(full) == 1 + colder
    assert played.figures.bill_unmanaged >= played.figures.bill * 0.99


def test_a_rolling_window_keeps_the_longest_valid_tail_and_gives_up_where_none_fits():
    artifacts = parse_session(MESSAGES).read()
    tokens = list(map(Stabilizer(600, counter="estimate").counter.artifact, artifacts))
    assert RollingWindow(artifacts, tokens, sum(tokens)).kept(5) == [0, 1, 2, 3, 4]
    window = RollingWindow(artifacts, tokens, 400)
    for end in range(7, 43, 2):
        kept = window.kept(end)
        assert kept[0] == 0
        assert kept[1:] == list(range(kept[1], end))
        assert artifacts[kept[1]].kind == "user"
        assert sum(tokens[n] for n in kept) <= 400
    assert RollingWindow(artifacts, tokens, 10).kept(5) is None


def test_the_opener_of_a_long_turn_stands_before_its_tail():
    artifacts = [Artifact("user", "go", 1), *(Artifact("assistant", "so", 10) for _ in range(9))]
    assert RollingWindow(artifacts, [a.token_count for a in artifacts], 21).kept(10) == [0, 8, 9]


@pytest.mark.slow
def test_the_page_tells_it_all_and_shows_nothing_that_was_masked(session, tmp_path):
    page = tmp_path / "r.html"
    assert cli("replay", session, "--budget", 600, "-o", page, "--title", "A <b> week").returncode == 0
    text = page.read_text()
    for said in (
        "A &lt;b&gt; week",
        "Every guarantee was met at each of the 21 calls",
        "Cuts, and the trail at each",
        "[REDACTED_EMAIL]",
    ):
        assert said in text
    assert "jane.doe" not in text
    assert "http" not in text.replace("http-equiv", "")
    assert cli("replay", session, "--budget", 600, "-o", page, "--show-originals").returncode == 0
    assert "jane.doe" in page.read_text()


def test_a_report_gives_the_page_of_one_call():
    told = Stabilizer(600).stabilize(parse_session(MESSAGES).read()).report
    page = told.to_html(title="One call")
    assert page.startswith("<!doctype html>")
    assert "All 6 checks hold." in page
    assert "jane.doe" not in page
    assert "jane.doe" in told.to_html(show_originals=True)


@pytest.mark.parametrize("budget", [180, 600])
def test_a_walk_that_judges_nothing_serves_the_calls_of_a_replay(budget):
    session = parse_session([*TALK[:9], {"role": "user", "content": "long " * 200}, *TALK[9:]])
    judged = replay(session, Stabilizer(budget)).calls
    walked = {call: context.report.tokens_after for call, context in served_contexts(session, Stabilizer(budget))}
    assert walked == {number: call.after for number, call in enumerate(judged, start=1) if call.after}
    assert (len(walked) < len(judged)) is (budget == 180), "what is refused is left out"
