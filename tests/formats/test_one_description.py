"""One module describes a format for every door: what it does not know is read, counted, and searched alike."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ctxguard import Stabilizer
from ctxguard.errors import CtxguardError
from ctxguard.formats.registry import APIS, FORMATS, detect_api, find_format, format_of
from ctxguard.tokens import ArtifactCounter, count_request, find_counter
from ctxguard.wire import Guard
from ctxguard.wire.guard import WireRequest

ROOT = Path(__file__).resolve().parents[2]
WORDS, MAIL = "word " * 200, "zora@mailhost.org"
TYPED = {"type": "hologram", "shows": "{}"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": "hello"}'}}
BODIES = {
    "chat": {"model": "gpt-5", "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]},
    "responses": {"model": "gpt-5", "input": [{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}]},
    "anthropic": {
        "model": "claude-sonnet-4-5",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
    },
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]},
    "converse": {"modelId": "us.amazon.nova-pro-v1:0", "messages": [{"role": "user", "content": [{"text": "hello"}]}]},
    "cohere": {"model": "command-a", "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]},
    "ollama": {
        "model": "llama3.2",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
        "keep_alive": "5m",
    },
}
PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/gemini-2.5-flash:generateContent",
    "converse": "/model/us.amazon.nova-pro-v1%3A0/converse",
    "cohere": "/v2/chat",
    "ollama": "/api/chat",
}
BLOCKS = {"gemini": ({"hologram": {"shows": "{}"}}, "parts"), "converse": ({"hologram": {"shows": "{}"}}, "content")}


def planted(api, where, text):
    """Return a body with an unknown field in its last message, or with a block of a new type."""
    body = json.loads(json.dumps(BODIES[api]))
    message = body[find_format(api).history][-1]
    if where == "field":
        message["xenon"] = text
    else:
        block, key = BLOCKS.get(api, (TYPED, "content"))
        message[key].append(json.loads(json.dumps(block).replace("{}", text)))
    return body


def test_every_format_is_tried():
    assert set(APIS) == set(BODIES) == set(PATHS)
    assert {kind.api for kind in FORMATS} == {format_of("POST", path).api for path in PATHS.values()} == set(APIS)


@pytest.mark.parametrize("api", APIS)
def test_a_body_is_told_by_its_fields(api):
    assert detect_api(BODIES[api]) == api


@pytest.mark.parametrize("where", ["field", "block"])
@pytest.mark.parametrize("api", APIS)
def test_the_reader_the_chain_and_the_counter_agree_on_what_nobody_knows(api, where):
    kind, model = find_format(api), "gpt-5"
    bare, body = BODIES[api], planted(api, where, WORDS)
    searched = [text for artifact in kind.read(kind.native(body)) for _, text, _ in artifact.fixed_texts()]
    assert any(WORDS in text for text in searched)
    chain = ArtifactCounter(find_counter(model=model))
    grown = [sum(map(chain.artifact, kind.read(kind.native(one)))) for one in (bare, body)]
    counted = [count_request(one, api=api, model=model).tokens for one in (bare, body)]
    assert 150 <= grown[1] - grown[0] <= 400
    assert counted[1] - counted[0] == grown[1] - grown[0]


@pytest.mark.parametrize("where", ["field", "block"])
@pytest.mark.parametrize("api", APIS)
def test_no_value_passes_the_wire_in_what_nobody_knows(api, where):
    raw = json.dumps(planted(api, where, f"write to {MAIL}")).encode()
    try:
        sent = Guard(Stabilizer(4_000)).prepare(WireRequest("POST", PATHS[api], {}, raw))
    except CtxguardError as error:
        assert MAIL not in str(error)
        return
    assert MAIL.encode() not in sent.body
    assert b"write to" in sent.body


@pytest.mark.parametrize("api", APIS)
def test_a_message_comes_back_as_it_was(api):
    kind, body = find_format(api), BODIES[api]
    native = kind.native(body)
    written = kind.written(body, kind.write(native, kind.read(native)))
    assert written == body
    assert all(now is was for now, was in zip(written[kind.history], body[kind.history], strict=True))


@pytest.mark.parametrize(
    "word",
    ["function_call_output", "functionResponse", "input_json_delta", "tool_plan", "systemInstruction", "tool_result"],
)
def test_no_other_room_reads_a_format(word):
    """What a format calls its parts stands in its own module, and where another format refuses it."""
    rooms = [ROOT / "ctxguard" / room for room in ("adapting", "formats", "tokens", "wire")]
    packages = [
        ROOT / "adapters" / f"ctxguard_{name}" for name in ("openai", "anthropic", "google", "bedrock", "litellm")
    ]
    quoted = re.compile(rf"[\"']{word}[\"']")
    sources = [path for room in (*rooms, *packages) for path in room.rglob("*.py")]
    found = {path for path in sources if quoted.search(path.read_text())}
    assert found
    assert {path.parent.name for path in found} - {"formats"} <= {"adapting"}
    assert {path.name for path in found if path.parent.name == "adapting"} <= {"message_view.py"}
