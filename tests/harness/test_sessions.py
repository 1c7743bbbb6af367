"""Recorded sessions of any known shape are read; the others are refused by line."""

from __future__ import annotations

import gzip
import json

import pytest

from ctxguard.adapting.adapter import stabilize_native
from ctxguard.errors import AdapterError, ConfigError, HistoryError, SessionFileError
from ctxguard.harness import Figures, PriceModel, parse_session, read_sessions, replay
from ctxguard.harness.checking import check_session
from ctxguard.stabilizer import Stabilizer

MESSAGES = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "hello"},
    {"role": "user", "content": "bye"},
]


def written(tmp_path, text, name="s.json"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(MESSAGES),
        json.dumps(MESSAGES, indent=2),
        json.dumps({"messages": MESSAGES}),
        "\n".join(map(json.dumps, MESSAGES)),
        "\n".join(map(json.dumps, MESSAGES)) + "\n\n",
        "\ufeff" + json.dumps(MESSAGES),
        gzip.compress(json.dumps(MESSAGES).encode()),
    ],
    ids=["list", "indented", "object", "a message a line", "blank lines", "byte order mark", "gzip"],
)
def test_one_session_in_every_shape(tmp_path, text):
    (session,) = read_sessions(written(tmp_path, text))
    assert [a.text for a in session.read()] == ["hi", "hello", "bye"]


def test_many_sessions_a_line_each_with_their_names_and_tools(tmp_path):
    tools = [{"type": "function", "function": {"name": "f"}}]
    lines = [json.dumps({"id": n, "messages": MESSAGES, "tools": tools}) for n in "ab"]
    found = list(read_sessions(written(tmp_path, "\n".join(lines))))
    assert [s.id for s in found] == ["a", "b"]
    assert found[0].tools == tools
    assert found[0].with_native([]) == {"id": "a", "tools": tools, "messages": []}


EMAIL = "ada@example.com"


def test_the_system_prompt_of_an_anthropic_request_is_part_of_its_history():
    record = {"id": "r", "model": "claude", "system": f"Mail {EMAIL}.", "messages": MESSAGES, "max_tokens": 9}
    session = parse_session(record)
    assert (session.id, session.adapter.name) == ("r", "anthropic")
    assert [a.kind for a in session.read()] == ["system", "user", "assistant", "user"]
    assert any("EMAIL" in line for line in check_session(session, pii=True))
    native, _ = stabilize_native(Stabilizer(1_000), session.adapter, session.native)
    assert session.with_native(native) == {**record, "system": "Mail [REDACTED_EMAIL]."}


@pytest.mark.parametrize(("adapter", "kinds"), [("anthropic", 4), ("openai", 3), ("bundle", 0)])
def test_a_named_adapter_decides_what_a_system_prompt_beside_the_messages_is(adapter, kinds):
    messages = [] if adapter == "bundle" else MESSAGES
    assert len(parse_session({"system": "Be brief.", "messages": messages}, adapter=adapter).read()) == kinds


def test_a_responses_request_keeps_its_shape_and_its_instructions_count():
    items = [
        {"role": "user", "content": "Where is it?"},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": f"Ask {EMAIL}"},
    ]
    record = {"model": "m", "instructions": "Be brief. " * 200, "input": items}
    session = parse_session(record)
    assert session.adapter.name == "openai-responses"
    assert session.with_native(items[:1]) == {**record, "input": items[:1]}
    without = parse_session({**record, "instructions": None})
    assert [len(list(check_session(one, budget=300))) for one in (session, without)] == [1, 0]
    refused = [replay(one, Stabilizer(300)).figures.refused for one in (session, without)]
    assert refused == [1, 0]


def test_a_responses_input_that_is_a_text_was_said_by_the_user():
    record = {"model": "m", "input": f"I am {EMAIL}", "instructions": "Be brief."}
    session = parse_session(record)
    assert [(a.kind, a.text) for a in session.read()] == [("user", f"I am {EMAIL}")]
    assert session.instructions == "Be brief."
    native, report = stabilize_native(Stabilizer(1_000), session.adapter, session.native)
    assert report.ok
    assert session.with_native(native) == {**record, "input": "I am [REDACTED_EMAIL]"}


@pytest.mark.parametrize("adapter", ["langchain", "pydantic-ai"])
def test_an_adapter_of_objects_reads_no_files_and_says_what_to_do(tmp_path, adapter):
    path = written(tmp_path, json.dumps(MESSAGES))
    with pytest.raises(
        AdapterError, match=r"a file cannot contain; write them as .*convert_to_openai_messages.*ctxguard\.guard"
    ):
        list(read_sessions(path, adapter=adapter))


def test_the_shape_is_found_out_by_looking():
    assert parse_session({"artifacts": [{"kind": "system", "content": "x"}]}).adapter.name == "bundle"
    assert parse_session(MESSAGES).adapter.name == "openai"
    assert parse_session([]).adapter.name == "openai"


@pytest.mark.parametrize(
    "messages",
    [
        [{"type": "human", "data": {"content": "hi"}}],
        [{"kind": "request", "parts": [{"content": "hi", "part_kind": "user-prompt"}]}],
        [{"conversations": [{"from": "human", "value": "hi"}]}],
        [{}],
    ],
    ids=["LangChain", "PydanticAI", "ShareGPT", "nothing"],
)
def test_messages_of_a_shape_that_is_not_read_are_told_what_is(messages):
    with pytest.raises(ConfigError, match=r"messages have a 'role', and these have (type|kind|conv|no keys).*OpenAI"):
        parse_session(messages)


def test_an_adapter_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(AdapterError, match=r"no adapter 'carrier-pigeon'; installed are .*openai"):
        parse_session(MESSAGES, adapter="carrier-pigeon")


@pytest.mark.parametrize(
    ("items", "error"),
    [
        ([{"kind": "sistem", "content": "x"}], "message 0: unknown kind 'sistem'"),
        ([{"kind": "user", "content": 5}], "message 0: 'content' must be a text, not int"),
        (["x"], "message 0: expected an object with 'kind' and 'content', got str"),
    ],
)
def test_bundles_with_faults_are_refused_by_item(items, error):
    with pytest.raises(HistoryError, match=error):
        parse_session({"artifacts": items}, adapter="bundle").read()


def test_a_bad_line_is_named(tmp_path):
    path = written(tmp_path, json.dumps(MESSAGES) + "\n{broken")
    with pytest.raises(SessionFileError) as caught:
        list(read_sessions(path))
    assert caught.value.line == 2
    assert caught.value.path == str(path)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    with pytest.raises(SessionFileError, match="not UTF-8 text"):
        list(read_sessions(written(tmp_path, b"\xff\xfe\x00\xd8")))


@pytest.mark.slow
def test_a_replay_counts_every_model_call_and_adds_up():
    long = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"message {n} " * 30} for n in range(200)]
    told = replay(parse_session(long), Stabilizer(2_400, counter="estimate"))
    own = told.figures
    assert own.calls == len(told.calls) == 100
    assert told.ok
    assert own.pressed > 5
    assert own.refused == 0
    assert 0.5 < own.prefix_share < 1
    assert own.tokens_after < own.tokens_before
    assert own.bill < own.bill_unmanaged
    twice = Figures()
    twice.add(own)
    twice.add(own)
    assert (twice.calls, twice.prefix_share, twice.bill) == (200, own.prefix_share, 2 * own.bill)


def test_what_cannot_be_judged_has_no_shares():
    told = replay(parse_session(MESSAGES), Stabilizer(1_000)).figures
    assert (told.calls, told.pressed, told.prefix_share, told.support) == (1, 0, None, None)
    refused = replay(parse_session(MESSAGES), Stabilizer(2)).figures
    assert (refused.refused, refused.ok, refused.saved, refused.cut_share) == (1, False, None, None)


def test_prices_follow_the_cache_in_steps_from_a_minimum():
    prices = PriceModel()
    assert prices.price(1_000, 1_000) == 1_000
    assert prices.price(2_000, 1_100) == 2_000 - 1_024 + 102.4
    assert prices.price(2_000, 0) == 2_000
