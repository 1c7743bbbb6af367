"""Recordings in the shapes that frameworks, telemetry, and data lakes write, each made by the real thing."""

from __future__ import annotations

import json
import subprocess
import sys
from copy import deepcopy

import pytest
from test_cli import cli

from ctxguard.harness.document import ReplayReport
from ctxguard.harness.recordings import Skipped, open_session, recordings
from ctxguard.harness.spans import translate_dumps
from ctxguard.settings import install_command

CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"order": "W-77"}'}}
PLAIN = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Where is W-77?"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "In Norrby.", "tool_call_id": "c1"},
    {"role": "assistant", "content": "It is in Norrby."},
]


def read(path):
    return [open_session(each) if not isinstance(each, Skipped) else each for each in recordings([str(path)])]


def same(messages):
    """Return messages with what may differ from shape to shape made the same."""
    kept = [{k: v for k, v in m.items() if k in ("role", "content", "tool_call_id", "tool_calls")} for m in messages]
    for message in (kept := deepcopy(kept)):
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return kept


def replays(*names):
    run = cli("replay", *names, "--budget", 2_000, "--report", "json")
    assert run.returncode == 0, run.stderr
    figures = ReplayReport.model_validate_json(run.stdout).runs[0].figures
    return figures.sessions, figures.calls


def langchain_messages():
    messages = pytest.importorskip("langchain_core.messages")
    thought = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "It is in Norrby."}]
    return [
        messages.SystemMessage("Be brief."),
        messages.HumanMessage("Where is W-77?", id="h1"),
        messages.AIMessage("", tool_calls=[{"name": "find", "args": {"order": "W-77"}, "id": "c1"}]),
        messages.ToolMessage("In Norrby.", tool_call_id="c1"),
        messages.AIMessage(thought),
    ]


@pytest.mark.parametrize("form", ["messages_to_dict", "dumpd", "model_dump", "in a state", "a line each"])
def test_dumps_of_langchain_are_read(form, tmp_path):
    messages = langchain_messages()
    from langchain_core.load import dumpd
    from langchain_core.messages import messages_to_dict

    path = tmp_path / "dump.json"
    made = {
        "messages_to_dict": lambda: messages_to_dict(messages),
        "dumpd": lambda: dumpd(messages),
        "model_dump": lambda: [message.model_dump() for message in messages],
        "in a state": lambda: {"messages": dumpd(messages), "user": "ada"},
        "a line each": lambda: messages_to_dict(messages),
    }[form]()
    text = "\n".join(map(json.dumps, made)) if form == "a line each" else json.dumps(made, indent=1)
    path.write_text(text)
    (session,) = read(path)
    assert same(session.native) == same(PLAIN)
    assert replays(path) == (1, 2)


def test_dumps_of_pydantic_ai_are_read(tmp_path):
    pytest.importorskip("pydantic_ai")
    from pydantic_ai import Agent, ModelRetry
    from pydantic_ai.models.test import TestModel

    agent = Agent(TestModel(custom_output_text="It is in Norrby."), instructions="Be brief.")

    @agent.tool_plain
    def find(order: str) -> dict[str, str]:
        if not order:
            raise ModelRetry("name an order")
        return {"place": "Norrby"}

    told = agent.run_sync("Where is W-77?")
    path = tmp_path / "dump.json"
    path.write_bytes(told.all_messages_json())
    (session,) = read(path)
    assert [m["role"] for m in session.native] == ["system", "user", "assistant", "tool", "assistant"]
    assert session.native[0]["content"] == "Be brief."
    assert json.loads(session.native[3]["content"]) == {"place": "Norrby"}
    assert session.native[2]["tool_calls"][0]["id"] == session.native[3]["tool_call_id"]
    assert replays(path) == (1, 2)


def test_a_retry_and_a_prompt_in_parts_are_read():
    dumped = [
        {
            "kind": "request",
            "parts": [
                {"part_kind": "system-prompt", "content": "Be brief."},
                {"part_kind": "user-prompt", "content": ["Look:", {"kind": "image-url", "url": "https://a.org/x"}]},
            ],
        },
        {
            "kind": "response",
            "parts": [
                {"part_kind": "thinking", "content": "hm"},
                {"part_kind": "tool-call", "tool_name": "find", "args": "{}", "tool_call_id": "c1"},
            ],
        },
        {
            "kind": "request",
            "parts": [
                {"part_kind": "retry-prompt", "tool_name": "find", "tool_call_id": "c1", "content": "name an order"}
            ],
        },
    ]
    made = translate_dumps(dumped)
    assert [m["role"] for m in made] == ["system", "user", "assistant", "tool"]
    assert made[1]["content"] == "Look:\n[image-url]"
    assert made[3] == {"role": "tool", "tool_call_id": "c1", "content": "name an order"}


PARTS = [
    {"role": "user", "parts": [{"type": "text", "content": "Where is W-77?"}]},
    {
        "role": "assistant",
        "parts": [{"type": "tool_call", "id": "c1", "name": "find", "arguments": {"order": "W-77"}}],
    },
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "In Norrby."}]},
]
ANSWER = [{"role": "assistant", "parts": [{"type": "text", "content": "It is in Norrby."}], "finish_reason": "stop"}]
SYSTEM = [{"type": "text", "content": "Be brief."}]


def otlp(attributes, **more):
    pairs = [{"key": k, "value": v if isinstance(v, dict) else {"stringValue": v}} for k, v in attributes.items()]
    return {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "t1", "attributes": pairs, **more}]}]}]}


def value(of):
    """Return plain data as an OTLP value."""
    if isinstance(of, dict):
        return {"kvlistValue": {"values": [{"key": k, "value": value(v)} for k, v in of.items()]}}
    if isinstance(of, list):
        return {"arrayValue": {"values": [value(v) for v in of]}}
    return {"stringValue": of}


def spans_of(upto, write):
    sent = {"gen_ai.input.messages": write(PARTS[:upto]), "gen_ai.system_instructions": write(SYSTEM)}
    came = ANSWER if upto == 3 else PARTS[1:2]
    return otlp({**sent, "gen_ai.output.messages": write(came), "gen_ai.conversation.id": "talk"})


@pytest.mark.parametrize("write", [json.dumps, value], ids=["as texts", "as values"])
def test_spans_of_one_conversation_are_one_session(write, tmp_path):
    path = tmp_path / "spans.jsonl"
    path.write_text("\n".join(json.dumps(spans_of(upto, write)) for upto in (1, 3, 1)))
    (session,) = read(path)
    assert session.id == "talk"
    assert same(session.native) == same(PLAIN)
    assert replays(path) == (1, 2)


def test_spans_as_the_sdk_prints_them_are_read(tmp_path):
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    tracer = trace.TracerProvider().get_tracer("test")
    with tracer.start_as_current_span("chat") as span:
        span.set_attribute("gen_ai.input.messages", json.dumps(PARTS))
        span.set_attribute("gen_ai.output.messages", json.dumps(ANSWER))
        span.set_attribute("gen_ai.system_instructions", json.dumps(SYSTEM))
    path = tmp_path / "span.json"
    path.write_text(span.to_json())
    (session,) = read(path)
    assert same(session.native) == same(PLAIN)


def test_the_older_events_are_read_from_spans_and_from_log_records(tmp_path):
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    events = [
        ("gen_ai.system.message", {"content": "Be brief."}),
        ("gen_ai.user.message", {"content": "Where is W-77?"}),
        ("gen_ai.assistant.message", {"tool_calls": json.dumps([CALL])}),
        ("gen_ai.tool.message", {"content": "In Norrby.", "id": "c1"}),
        ("gen_ai.choice", {"message": json.dumps({"content": "It is in Norrby."}), "index": 0}),
    ]
    with trace.TracerProvider().get_tracer("test").start_as_current_span("chat") as span:
        for name, attributes in events:
            span.add_event(name, attributes)
    (tmp_path / "span.json").write_text(span.to_json(indent=None))
    records = [
        {
            "traceId": "t1",
            "eventName": name,
            "body": value({k: json.loads(v) if k in ("tool_calls", "message") else str(v) for k, v in fields.items()}),
        }
        for name, fields in events
    ]
    logs = [{"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]} for record in records]
    (tmp_path / "logs.jsonl").write_text("\n".join(map(json.dumps, logs)))
    for name in ("span.json", "logs.jsonl"):
        (session,) = read(tmp_path / name)
        assert same(session.native) == same(PLAIN), name


def test_spans_without_messages_and_a_damaged_line_are_named(tmp_path):
    path = tmp_path / "spans.jsonl"
    path.write_text(json.dumps(otlp({"gen_ai.request.model": "x"})) + "\n{half")
    damaged, empty = read(path)
    assert str(damaged).endswith(
        "spans.jsonl:2: not valid JSON: Expecting property name enclosed in double quotes (column 2)"
    )
    assert "contain no messages" in str(empty)


@pytest.mark.parametrize("form", ["lists", "texts", "a message a row"])
def test_parquet_is_read(form, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = {
        "lists": [{"id": "a", "messages": PLAIN}, {"id": "b", "messages": PLAIN[:3]}],
        "texts": [{"id": "a", "messages": json.dumps(PLAIN)}, {"id": "b", "messages": json.dumps(PLAIN[:3])}],
        "a message a row": [dict.fromkeys({k for m in PLAIN for k in m}) | m for m in PLAIN],
    }[form]
    path = tmp_path / "sessions.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    found = read(tmp_path)
    assert same(found[0].native) == same(PLAIN)
    assert [one.id for one in found] == (["0"] if form == "a message a row" else ["a", "b"])


def test_damaged_parquet_and_parquet_without_pyarrow_are_named(tmp_path, monkeypatch):
    path = tmp_path / "x.parquet"
    path.write_bytes(b"PAR1 and nothing else")
    pytest.importorskip("pyarrow")
    (damaged,) = read(path)
    assert "the Parquet data is damaged" in str(damaged)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (absent,) = read(path)
    assert install_command("parquet") in str(absent)


def test_urls_are_opened_by_fsspec(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe("/shop/a.json", json.dumps(PLAIN).encode())
    memory.pipe("/shop/deep/b.jsonl", json.dumps({"id": "b", "messages": PLAIN}).encode())
    memory.pipe("/shop/notes.txt", b"none")
    (tmp_path / "c.json").write_text(json.dumps(PLAIN))
    assert replays("memory://shop") == (2, 4)
    assert replays("memory://shop/*.json", (tmp_path / "c.json").as_uri()) == (2, 4)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("memory://nowhere/x.json", "x.json"),
        ("nothing://x", "protocol not known"),
        ("file:///no/such/file.json", "no such file"),
    ],
)
def test_urls_that_cannot_be_opened_are_named(url, said):
    pytest.importorskip("fsspec")
    run = cli("replay", url)
    assert run.returncode == 2
    assert said in run.stderr.lower()
    assert len(run.stderr.splitlines()) == 2


def test_no_framework_is_loaded_to_read_its_dump(tmp_path):
    path = tmp_path / "dump.json"
    path.write_text(json.dumps([{"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "hi"}]}]))
    code = (
        "import sys; from ctxguard.harness.recordings import *; "
        f"assert open_session(next(recordings([{str(path)!r}]))).native[0]['role'] == 'user'; "
        "assert not {'pydantic_ai', 'langchain_core', 'pyarrow', 'fsspec'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
