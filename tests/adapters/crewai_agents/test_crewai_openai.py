"""CrewAI's own LLM of OpenAI's API, through its real client, against a provider on loopback: events, streams, calls."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler

import pytest

pytest.importorskip("crewai.llms", reason="CrewAI is not installed (extra crewai)")
pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

from crewai import LLM
from crewai.events.event_bus import crewai_event_bus
from crewai.events.types.llm_events import LLMCallStartedEvent, LLMStreamChunkEvent
from crewai.tools import tool
from loopback import listening
from scripted_crew import crew_of

from ctxguard import Stabilizer
from ctxguard.pii import Vault, new_key
from ctxguard.stores import MemoryStore
from ctxguard_crewai import guarded_llm

pytestmark = pytest.mark.filterwarnings("ignore")  # CrewAI warns of its own dependencies

MAIL = "ada@corp-mail.net"


def provider(bodies):
    """Return a handler that calls a tool first, and then says to whom it wrote."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            bodies.append(body)
            has_result = any(message["role"] == "tool" for message in body["messages"])
            text = "I wrote to <EMAIL_1>, and not to <EM"
            call = {"name": "send_mail", "arguments": '{"to": "<EMAIL_1>"}'}
            calls = [{"index": 0, "id": "c1", "type": "function", "function": call}]
            said = {"role": "assistant", "content": text} if has_result else {"role": "assistant", "tool_calls": calls}
            reason = "stop" if has_result else "tool_calls"
            choice = {"index": 0, "finish_reason": reason}
            answer = {"id": "r", "object": "chat.completion", "created": 1, "model": "gpt-4o"}
            if body.get("stream"):
                deltas = [{"content": sign} for sign in text] if has_result else [said]
                chunks = [{**answer, "choices": [{"index": 0, "finish_reason": None, "delta": one}]} for one in deltas]
                chunks.append({**answer, "choices": [{**choice, "delta": {}}]})
                sent = "".join(f"data: {json.dumps(one)}\n\n" for one in chunks) + "data: [DONE]\n\n"
                kind = "text/event-stream"
            else:
                usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
                sent = json.dumps({**answer, "choices": [{**choice, "message": said}], "usage": usage})
                kind = "application/json"
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(sent.encode())))
            self.end_headers()
            self.wfile.write(sent.encode())

    return Handler


@pytest.mark.parametrize("stream", [False, True])
def test_tools_and_users_see_the_values_and_neither_the_provider_nor_its_events_do(stream):
    given, bodies, shown, started = [], [], [], []

    @tool
    def send_mail(to: str) -> str:
        """Send a mail."""
        given.append(to)
        return "sent"

    vault = Vault(MemoryStore(), key=new_key()).session("one")
    with listening(provider(bodies)) as address, crewai_event_bus.scoped_handlers():
        crewai_event_bus.on(LLMStreamChunkEvent)(
            lambda source, event: None if event.tool_call else shown.append(event.chunk)
        )
        crewai_event_bus.on(LLMCallStartedEvent)(lambda source, event: started.append(str(event.messages)))
        llm = LLM(model="openai/gpt-4o", api_key="k", base_url=f"{address}/v1", stream=stream)
        assert type(llm) is not LLM, "the class of the provider"
        guarded = guarded_llm(llm, Stabilizer(4_000), vault=vault, restore=True)
        answer = crew_of(guarded, f"Write to {MAIL}.", [send_mail]).kickoff().raw
        crewai_event_bus.flush()
    assert answer == f"I wrote to {MAIL}, and not to <EM"
    assert given == [MAIL]
    assert len(bodies) == 2
    assert MAIL not in json.dumps(bodies)
    assert MAIL not in str(started), "what is traced is what was sent"
    assert "".join(shown) == (answer if stream else "")
