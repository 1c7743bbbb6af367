"""What one exchange did: what each call was about, and how it ended."""

from __future__ import annotations

import json
import time

import pytest
from builders import user

from ctxguard import Artifact, Part
from ctxguard.artifacts import ToolCall
from ctxguard.history import History
from ctxguard.stages.traces import holds_observation, trace_of

LISTING = "total 56\n-rw-r--r-- 1 root root 4096 Feb 11 08:56 test\n-rw-r--r-- 1 root root 99 Feb 11 08:32 error.c\n"
CURL = """  % Total    % Received % Xferd  Average Speed   Time    Time     Time  Current
                                 Dload  Upload   Total   Spent    Left  Speed
100  743  100  743    0     0   4152      0 --:--:-- --:--:-- --:--:--  4152
100  653  100  653    0     0   3750      0 --:--:-- --:--:-- --:--:--  3750"""
TREE = """RootWebArea Assessment Overview | ServiceNow, focused
[a12] generic, live='assertive', atomic
  [a13] button 'Next', clickable
  [a14] link 'Home'"""


def called(tool: str, result: str | None, **arguments: object) -> tuple[Artifact, ...]:
    call = ToolCall(tool, json.dumps(arguments), "c1")
    results = () if result is None else (Artifact("tool", result, answers="c1"),)
    return Artifact("assistant", "", calls=(call,)), *results


def step_of(tool: str, result: str | None, **arguments: object):
    (step,) = trace_of(called(tool, result, **arguments))
    return step


@pytest.mark.parametrize("command", ["ls -l", "ls -l src/libponyc/ast", "cd src && ls -la", "git log --stat | tail"])
def test_a_listing_has_no_outcome(command):
    step = step_of("Bash", LISTING, command=command)
    assert (step.section, step.ended) == ("called", "")


@pytest.mark.parametrize("tool", ["Read", "read_file", "view", "Grep", "get_page", "open_document"])
def test_a_file_that_was_only_read_has_no_outcome(tool):
    text = 'assert_receive "2 failed"\n1 failed, 2 passed in 0.1s\nError: no such thing\n' * 3
    step = step_of(tool, text, file_path="test/sync_transcripts_test.exs")
    assert (step.section, step.ended) == ("called", "")


@pytest.mark.parametrize("command", ["cat report.txt", "grep -n failed report.txt", "head -3 a && tail -3 b | sort"])
def test_a_report_that_a_command_only_shows_is_no_outcome(command):
    assert step_of("Bash", "1 failed, 47 passed in 3.2s\n" * 9, command=command).section == "called"


@pytest.mark.parametrize("command", ["pytest -q", "cd src && make test", "npm test 2>&1 | tail -3", "./run"])
def test_what_a_command_ran_has_its_outcome(command):
    step = step_of("Bash", "..F\n1 failed, 47 passed in 3.2s", command=command)
    assert (step.section, step.ended) == ("failed", "1 failed, 47 passed in 3.2s")


@pytest.mark.parametrize(
    ("tool", "arguments", "section"),
    [
        ("Edit", {"file_path": "/a/b.py", "new_string": "x"}, "changed"),
        ("str_replace_editor", {"command": "view", "path": "/a/b.py"}, "called"),
        ("str_replace_editor", {"command": "create", "path": "/a/b.py"}, "changed"),
        ("cancel_pending_order", {"order_id": "#W1"}, "changed"),
        ("get_update_status", {"id": "U-17"}, "called"),
        ("sendMail", {"to": "x"}, "changed"),
        ("Bash", {"command": "git add a && git commit -m x"}, "changed"),
        ("Bash", {"command": "git status"}, "called"),
        ("frobnicate", {"x": "y"}, "called"),
    ],
)
def test_what_a_call_does_is_told_by_its_words(tool, arguments, section):
    assert step_of(tool, "one\ntwo\nthree", **arguments).section == section


def test_a_change_that_failed_is_a_failure_with_its_reason():
    step = step_of("str_replace", "ERROR:\nNo replacement was performed.", path="a/b.py", old_str="x", new_str="y")
    assert (step.section, step.what, step.ended) == ("failed", "a/b.py", "No replacement was performed.")


def test_a_number_has_the_name_of_its_parameter_and_a_path_needs_none():
    assert step_of("search", None, origin="JFK", max_price=300).what == "origin=JFK max_price=300"
    assert step_of("wait", None, seconds=30).what == "seconds=30"
    assert step_of("Read", None, file_path="/a/b.py", offset=100, limit=50).what == "/a/b.py"
    assert step_of("Bash", None, command="make it", timeout=30_000).what == '"make it"'


@pytest.mark.parametrize("tool", ["Read", "Edit", "view_image"])
@pytest.mark.parametrize("length", [20, 110, 118, 119, 120, 121, 130, 180, 235])
def test_a_long_path_is_told_whole_with_its_file_name(tool, length):
    path = f"/home/{'packages/' * 30}"[: length - len("/migrate_ids.exs")].rstrip("/") + "/migrate_ids.exs"
    assert step_of(tool, None, file_path=path, offset=3).what == path


def test_a_blob_with_slashes_is_no_path():
    step = step_of("upload", None, data="iVBORw0KGgo/AAAANSUhEUg" * 60)
    assert len(step.what) < 80


def test_ids_of_a_result_stand_behind_their_keys_and_prices_do_not():
    result = json.dumps(
        {"id": "A-17", "legs": [{"flight_number": "HAT041", "price": 137}, {"flight_number": "HAT077"}]}
    )
    assert step_of("find", result, query="all").ended == "id A-17; flight_number HAT041 HAT077"
    assert (
        step_of(
            "find", '{"departure": "04:00:00", "arrival": "2024-05-01", "prices": [109, 171, 140]}', query="all"
        ).ended
        == ""
    )


@pytest.mark.parametrize(
    "text",
    [
        CURL,
        TREE,
        "Observation: " + "The page shows a list. " * 9,
        LISTING * 2,
        '{"rows": [' + "1, " * 90 + "2]}",
        "12993 15421 6865 7129 " * 9,
    ],
)
def test_an_observation_with_the_role_of_a_user_is_nobodys_words(text):
    (step,) = trace_of([user(text)])
    assert (step.section, step.who) == ("observed", "observation")


@pytest.mark.parametrize(
    "text",
    [
        "Please book the nonstop flight to Seattle, not before 11 am. My user id is raj_brown_5782.",
        "Yes.",
        "4111 is the PIN",
        "Erkläre mir bitte, warum der Test in src/loader.py scheitert, und ändere nichts an den anderen Dateien darin.",
        "直してください。テストは変えないでください。",
        "Fix this:\n- the loader\n- the writer\nand never touch the tests, since they are shared with another team of ours.",
    ],
)
def test_the_words_of_people_are_theirs(text):
    (step,) = trace_of([user(text)])
    assert (step.section, step.what) == ("said", text)


@pytest.mark.parametrize("end", ["```\nls\n```", "<command>\nls\n</command>"])
def test_an_answer_to_a_command_written_as_text_is_an_observation(end):
    output = user("Some prose that a program wrote.\n(Current directory: /root)")
    command = Artifact("assistant", f"Let us look.\n{end}")
    history = History(lambda artifact: len(artifact.text), [user("Fix it."), command, output, command, output])
    assert [holds_observation(history, n, 5) for n in range(5)] == [False, False, True, False, True]
    assert not holds_observation(history, 2, 3)  # with one command before it, and nothing known of what comes
    assert trace_of([output], is_observed=True)[0].section == "observed"
    assert trace_of([output])[0].section == "said"


def test_reasoning_stands_on_no_line_of_the_trail():
    thought = Part("reasoning", "secret_plan_17 may work", signed=True)
    (step,) = trace_of([Artifact("assistant", (thought, Part("text", "Order A-17 left Malmo.")))])
    assert (step.section, step.what) == ("answered", "Order A-17 left Malmo.")


def test_parallel_calls_have_a_step_each_with_the_result_of_each():
    calls = tuple(ToolCall("get_user", f'{{"id": "user_{n}"}}', f"c{n}") for n in range(3))
    results = [Artifact("tool", f"name {n}", answers=f"c{n}") for n in (2, 0, 1)]
    steps = trace_of((Artifact("assistant", "", calls=calls), *results))
    assert [(step.what, step.ended) for step in steps] == [(f"user_{n}", f"name {n}") for n in range(3)]


def test_a_handle_leads_to_the_full_output_of_its_call():
    exchange = called("read_file", "long " * 100, path="src/loader.py")
    assert [step.handle for step in trace_of(exchange, {1: "tool-output:abc"})] == ["tool-output:abc"]


@pytest.mark.parametrize("arguments", ["", "not JSON", "[" * 100_000, '{"a":' * 100_000, "x1y" * 1_700_000, "[1, 2]"])
def test_hostile_arguments_have_a_trace(arguments):
    call = ToolCall("run_it", arguments, "c1")
    (step,) = trace_of((Artifact("assistant", "", calls=(call,)), Artifact("tool", "x1y" * 1_700_000, answers="c1")))
    assert len(step.what) <= 125


def test_ten_thousand_parallel_calls_have_a_trace_soon():
    calls = tuple(ToolCall("get", f'{{"key": "key_{n}"}}', f"c{n}") for n in range(10_000))
    results = (Artifact("tool", f"value_{n}", answers=f"c{n}") for n in range(10_000))
    began = time.perf_counter()
    assert len(trace_of((Artifact("assistant", "", calls=calls), *results))) == 10_000
    assert time.perf_counter() - began < 10
