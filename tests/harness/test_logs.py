"""Logs that people own are read by all commands alike, and whatever is not understood is refused in one line."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from patience import calls_of
from test_cli import cli

from ctxguard.harness import logs, recordings
from ctxguard.harness.recordings import Skipped, open_session
from ctxguard.harness.recordings import recordings as recorded

ASKED, SAID = "Where is order A-17?", "On a truck."
CHAT = [{"role": "user", "content": ASKED}, {"role": "assistant", "content": SAID}]


def node(name, parent, role="user", *parts):
    message = {"author": {"role": role}, "content": {"content_type": "text", "parts": list(parts)}} if parts else None
    return name, {"id": name, "parent": parent, "children": [], "message": message}


def claude(uuid, parent, role, content, *, sidechain=False, **message):
    about = {"uuid": uuid, "parentUuid": parent, "sessionId": "s", "isSidechain": sidechain, "type": role}
    return {**about, "message": {"role": role, "content": content, **message}}


def codex(kind, **payload):
    return {"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": payload}


def lines(*values):
    return "".join(json.dumps(value) + "\n" for value in values)


CHATGPT = [
    {
        "title": "Order",
        "conversation_id": "c",
        "current_node": "d",
        "mapping": dict(
            [
                node("root", None),
                node("a", "root", "user", ASKED),
                node("left", "a", "assistant", "An answer that was regenerated."),
                node("d", "a", "assistant", SAID),
            ]
        ),
    }
]
CLAUDE = [
    {"type": "summary", "summary": "Order", "leafUuid": "2"},
    claude("1", None, "user", ASKED),
    claude("x", None, "user", "Search.", sidechain=True),
    claude("y", "x", "assistant", "Found.", sidechain=True),
    claude("2", "1", "assistant", [{"type": "text", "text": SAID}], id="m"),
]
CODEX = [
    codex("session_meta", id="s", instructions="Be brief."),
    codex("event_msg", type="user_message", message=ASKED),
    codex("a_type_of_a_later_version"),
    codex("response_item", type="message", role="user", content=[{"type": "input_text", "text": ASKED}]),
    codex("response_item", type="message", role="assistant", content=[{"type": "output_text", "text": SAID}]),
]
INSPECT = {"version": 2, "eval": {"task": "t"}, "samples": [{"id": 1, "epoch": 1, "messages": CHAT}]}
LANGSMITH = {"id": "r", "trace_id": "t", "run_type": "llm", "inputs": {"messages": [CHAT[:1]]}}
LANGFUSE = {"id": "o", "traceId": "t", "type": "GENERATION", "input": CHAT[:1], "output": CHAT[1]}
OPEN_INFERENCE = {
    "llm.input_messages.0.message.role": "user",
    "llm.input_messages.0.message.contents.0.message_content.text": ASKED,
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.content": SAID,
}
SHAREGPT = {"conversations": [{"from": "human", "value": ASKED}, {"from": "gpt", "value": SAID}]}
INSTRUCTION = {"instruction": ASKED, "input": "", "output": SAID}
LOGS = {
    "chatgpt": json.dumps(CHATGPT),
    "chatgpt on many lines": json.dumps(CHATGPT, indent=1),
    "chatgpt, one a line": lines(*CHATGPT, *CHATGPT),
    "claude code": lines(*CLAUDE),
    "codex": lines(*CODEX),
    "inspect": json.dumps(INSPECT, indent=2),
    "langsmith": lines({**LANGSMITH, "outputs": {"generations": [[{"message": CHAT[1]}]]}}),
    "langsmith, choices": lines({**LANGSMITH, "outputs": {"choices": [{"message": CHAT[1]}]}}),
    "langfuse": lines(LANGFUSE),
    "openinference": lines({"context": {"trace_id": "t"}, "attributes": OPEN_INFERENCE}),
    "sharegpt": lines(SHAREGPT),
    "sharegpt in a list": json.dumps([SHAREGPT]),
    "instructions": lines(INSTRUCTION),
    "openai batch": lines({"custom_id": "1", "method": "POST", "url": "/v1", "body": {"model": "m", "messages": CHAT}}),
    "anthropic batch": lines({"custom_id": "1", "params": {"model": "m", "max_tokens": 9, "messages": CHAT}}),
}


@pytest.mark.parametrize("kind", LOGS)
def test_each_kind_is_read_as_the_conversation_that_it_logs(kind, tmp_path):
    path = tmp_path / "log.json"
    path.write_text(LOGS[kind], encoding="utf-8")
    found = [open_session(each) for each in recorded([str(path)])]
    assert not [each for each in found if isinstance(each, Skipped)]
    texts = [[artifact.text for artifact in each.read()] for each in found]
    assert [ASKED, SAID] in [each[-2:] for each in texts]
    assert "regenerated" not in str(texts)


def test_a_long_call_of_openinference_is_read_in_one_pass_over_its_attributes():
    def reading(count):
        span = {"context": {"trace_id": "t"}, "attributes": {}}
        for n in range(count):
            span["attributes"][f"llm.input_messages.{n}.message.role"] = "user"
            span["attributes"][f"llm.input_messages.{n}.message.content"] = ASKED
        kind = logs.kind_of(span, is_rows=False)
        return calls_of(lambda: list(kind.sessions([(1, span)])))

    assert reading(400) < 5 * reading(100)


@pytest.mark.parametrize("kind", ["chatgpt", "claude code", "codex", "sharegpt", "openai batch"])
def test_all_commands_read_a_log_alike(kind, tmp_path):
    path = tmp_path / "log.json"
    path.write_text(LOGS[kind], encoding="utf-8")
    count = len(list(recorded([str(path)])))
    assert cli("check", path).stdout == "ok\n"
    assert len(cli("stabilize", path, "--budget", 900).stdout.splitlines()) == count
    replayed = json.loads(cli("replay", path, "--budget", 900, "-r", "json").stdout)
    assert (replayed["skipped_count"], len(replayed["runs"][0]["sessions"])) == (0, count)
    compared = cli("bench", path, "--budgets", 1, "-r", "json")
    assert json.loads(compared.stdout)["sessions"] == count, compared.stderr


def test_parallel_calls_of_claude_code_are_one_reply_with_all_results():
    def call(name):
        return [{"type": "tool_use", "id": name, "name": "read", "input": {}}]

    def result(name):
        return [{"type": "tool_result", "tool_use_id": name, "content": "text"}]

    log = [
        claude("1", None, "user", ASKED),
        claude("2", "1", "assistant", call("a"), id="m"),
        claude("3", "2", "user", result("a")),
        claude("4", "2", "assistant", call("b"), id="m"),
        claude("5", "4", "user", result("b")),
        claude("6", "5", "assistant", [{"type": "text", "text": SAID}], id="n"),
    ]
    kind = logs.kind_of(log[0], is_rows=False)
    [(_, session)] = kind.sessions(enumerate(log, 1))
    assert [m["content"] for m in session["messages"]] == [
        ASKED,
        call("a") + call("b"),
        result("a") + result("b"),
        [{"type": "text", "text": SAID}],
    ]


@pytest.mark.parametrize("kind", ["claude code", "codex", "langfuse", "openinference"])
def test_what_is_cut_off_or_of_another_kind_is_named_and_the_rest_is_read(kind, tmp_path):
    path = tmp_path / "log.jsonl"
    for log in (
        LOGS[kind] + lines({"foo": 1}) + LOGS[kind][:30],
        LOGS[kind][30:50] + "\n" + lines({"foo": 1}) + LOGS[kind],
    ):
        path.write_text(log, encoding="utf-8")
        found = [each if isinstance(each, Skipped) else open_session(each) for each in recorded([str(path)])]
        said = sorted(each.reason for each in found if isinstance(each, Skipped))
        assert [ASKED, SAID] in [[a.text for a in each.read()][-2:] for each in found if not isinstance(each, Skipped)]
        assert [each[:14] for each in said] == ["expected an ob", "not valid JSON"]
        checked = cli("check", path)
        assert (checked.returncode, len(checked.stderr.splitlines())) == (2, 1)


def marked(kind, name):
    """Return the lines of a log whose text and ids are its own, so that they can be found again."""
    text = re.sub(r'(?i)("(?:parent|leaf)?uuid": "|"sessionId": "|"trace_?id": ")', rf"\g<1>{name}-", LOGS[kind])
    return text.replace(ASKED, f"asked-{name}-").replace(SAID, f"said-{name}-").strip()


DAMAGED = (
    "{",
    "[]",
    "null",
    '{"foo": 1}',
    '{"a": "b',
    'lo", "role": "user"}',
    "INFO start",
    "\x00",
    "[[[",
    "\u00e9\u2028{}",
)


@given(
    parts=st.lists(st.sampled_from(sorted(LOGS)) | st.sampled_from(DAMAGED), min_size=1, max_size=4),
    ends=st.sampled_from(["\n", "\r\n", "\n\n"]),
    bom=st.booleans(),
    cut=st.integers(0, 60),
)
@example(parts=["sharegpt in a list", "claude code"], ends="\n", bom=False, cut=0)
@example(parts=["sharegpt", "langfuse"], ends="\n", bom=False, cut=0)
@example(parts=["[]", "langfuse"], ends="\n", bom=False, cut=0)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_line_of_a_damaged_or_mixed_log_is_lost_silently(parts, ends, bom, cut, tmp_path):
    texts = [marked(part, n) if part in LOGS else part for n, part in enumerate(parts)]
    text = "\n".join(texts)
    text = text[: len(text) - cut]
    path = tmp_path / "log.jsonl"
    path.write_bytes((b"\xef\xbb\xbf" if bom else b"") + text.replace("\n", ends).encode())
    found = [each if isinstance(each, Skipped) else open_session(each) for each in recorded([str(path)])]
    read = " ".join(json.dumps(each.native) for each in found if not isinstance(each, Skipped))
    named = [each for each in found if isinstance(each, Skipped)]
    assert found
    assert all("\n" not in each.reason for each in named)
    for number, line in enumerate(text.replace("\n", ends).split("\n"), 1):
        for mark in re.findall(r"(?:asked|said)-\d+-", line):
            assert mark in read or not read or number in {each.line for each in named}, (number, line)


@given(damaged=st.integers(0, 8))
def test_a_damaged_line_of_claude_code_does_not_hide_the_lines_before_it(damaged):
    log = [claude(str(n), str(n - 1) if n else None, ("user", "assistant")[n % 2], f"text {n}.") for n in range(10)]
    kind = logs.kind_of(log[0], is_rows=False)
    values = [(n, each) for n, each in enumerate(log, 1) if n != damaged + 1]
    [(_, session)] = kind.sessions(values)
    assert [m["content"] for m in session["messages"]] == [f"text {n}." for n in range(10) if n != damaged]


@pytest.mark.parametrize("kind", ["langsmith", "langfuse", "openinference", "inspect", "chatgpt, one a line"])
def test_sessions_of_a_log_without_messages_are_counted_in_one_line(kind, tmp_path):
    others = {
        "langsmith": lines({"id": "q", "trace_id": "u", "run_type": "chain", "inputs": {"question": "?"}}),
        "langfuse": lines({"id": "q", "traceId": "u", "type": "SPAN", "input": "?"}),
        "openinference": lines({"context": {"trace_id": "u"}, "attributes": {"http.method": "GET"}}),
        "inspect": lines({**INSPECT, "samples": [{"id": 2, "messages": []}]}),
        "chatgpt, one a line": lines({**CHATGPT[0], "mapping": {}}),
    }
    log = lines(INSPECT) if kind == "inspect" else LOGS[kind]
    path = tmp_path / "log.jsonl"
    path.write_text(log + others[kind], encoding="utf-8")
    for command in (["check"], ["replay", "--budget", 900], ["bench", "--budgets", 1, "--processes", 1]):
        run = cli(*command, path)
        assert run.stderr.count(f"{path}: no messages in 1 of ") == 1, (command, run.stderr)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (json.dumps(CHATGPT)[:-40], "not valid JSON"),
        ("", "empty"),
        ("PK\x03\x04 an export as it was downloaded", "it is a ZIP archive, not a text; unpack it first"),
        ("\x00\n" * 30, "not UTF-8 text (byte 0 is zero); save it as a text file in UTF-8"),
        (json.dumps(CHATGPT)[:-1], "it ends in the middle of a value"),
        (json.dumps(INSPECT, indent=2) + json.dumps(INSPECT), "another value follows"),
        (json.dumps({**CHATGPT[0], "mapping": {}}), "ChatGPT conversations contain no messages"),
        (json.dumps({"title": "a", "current_node": "b"}), "it has title, current_node; nearest kind: ChatGPT"),
        (lines({"custom_id": "1", "response": {"status_code": 200}}), "nearest kind: batch requests"),
    ],
)
def test_a_log_that_is_not_understood_is_refused_in_one_line(log, said, tmp_path):
    path = tmp_path / "log.json"
    path.write_text(log, encoding="utf-8")
    for command in (["check"], ["stabilize", "--budget", 900], ["replay"], ["bench", "--budgets", 1]):
        run = cli(*command, path)
        assert run.returncode == 2
        assert said in run.stderr, (command, run.stderr)
        assert run.stderr.count(said) == 1
        assert "Traceback" not in run.stderr


@pytest.mark.parametrize("command", [["replay", "--budget", 900], ["bench", "--budgets", 1, "--processes", 1]])
def test_lines_that_are_skipped_for_one_reason_are_one_note_and_all_are_counted(command, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(lines(SHAREGPT) + lines(*CODEX) * 9 + lines(*({f"key{chr(97 + n)}": n} for n in range(25))))
    notes = [line for line in cli(*command, path).stderr.splitlines() if line.startswith("ctxguard: skipped")]
    assert len(notes) == 21
    assert notes[0].endswith("(and 44 more of the file)")
    assert notes[-1] == "ctxguard: skipped 6 more; all are in the JSON report"


def test_a_log_that_is_one_value_of_too_many_bytes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(recordings, "MAX_BYTES", 1000)
    path = tmp_path / "log.json"
    path.write_text(json.dumps(CHATGPT * 9, indent=1), encoding="utf-8")
    [skipped] = recorded([str(path)])
    assert "longer than 1000 bytes" in str(skipped)


KEYS = sorted({key for kind in logs.KINDS for key in kind.keys} | {"message", "messages", "id", "role", "content"})
ANY = st.recursive(
    st.none() | st.integers(0, 9) | st.sampled_from(["user", "1", "SPAN", "response_item", "summary"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=20,
)


@given(value=ANY)
def test_no_value_breaks_a_kind(value):
    for kind in logs.KINDS:
        if kind.detects(value):
            for _, session in kind.sessions([(1, value)]):
                json.dumps(session)


@given(value=ANY, place=st.sampled_from(range(5)))
def test_no_part_of_a_log_that_is_something_else_breaks_its_kind(value, place):
    for whole in (CHATGPT[0], claude("1", None, "user", ASKED), CODEX[2], INSPECT, LANGSMITH, LANGFUSE, SHAREGPT):
        key = list(whole)[place % len(whole)]
        for broken in ({**whole, key: value}, {**whole, "message": value, "payload": value}):
            for kind in logs.KINDS:
                if kind.detects(broken):
                    assert all(json.dumps(session) for _, session in kind.sessions([(1, broken), (2, broken)]))
