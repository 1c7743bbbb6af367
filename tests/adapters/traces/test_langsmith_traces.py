"""What LangSmith's client sends of a guarded LangChain agent: the model's run is masked, and one line masks the others."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("langchain", reason="LangChain is not installed (extra langchain)")
pytest.importorskip("langsmith", reason="LangSmith's client is not installed")
pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

import requests
from langchain.agents import create_agent
from langchain.agents import middleware as langchain_middleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langchain_core.tracers import LangChainTracer
from langchain_core.tracers.langchain import wait_for_all_tracers
from langsmith import Client, tracing_context
from langsmith.anonymizer import create_anonymizer

from ctxguard import Stabilizer, mask_pii
from ctxguard.pii import Vault, new_key
from ctxguard.stores import MemoryStore
from ctxguard_langchain import ContextGuardMiddleware

MAIL = "ada@corp-mail.net"
ANONYMIZING = {"anonymizer": create_anonymizer(lambda text, path: mask_pii(text))}


class Offline(requests.Session):
    """Keeps what the client sends."""

    def __init__(self):
        super().__init__()
        self.sent = []

    def request(self, method, url, data=None, **settings):
        if method != "GET":
            self.sent.append(json.loads(data))
        answer = requests.Response()
        answer.status_code, answer._content = 200, b"{}"
        return answer


class Mailing(BaseChatModel):
    """Calls the tool, then answers; streamed or not."""

    seen: list

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **settings):
        return self

    def _generate(self, messages, *args, **settings):
        self.seen.append(str(messages))
        answer = AIMessage("I wrote to <EMAIL_1>.")
        if messages[-1].type != "tool":
            answer = AIMessage("", tool_calls=[{"name": "send_mail", "args": {"to": "<EMAIL_1>"}, "id": "c1"}])
        return ChatResult(generations=[ChatGeneration(message=answer)])

    def _stream(self, messages, stop=None, run_manager=None, **settings):
        self.seen.append(str(messages))
        for piece in ("I wrote to <EM", "AIL_1>", "."):
            chunk = ChatGenerationChunk(message=AIMessageChunk(piece))
            if run_manager is not None:
                run_manager.on_llm_new_token(piece, chunk=chunk)
            yield chunk


@tool
def send_mail(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


def traced(*, client=None, restore=False, stream=False, in_context=False, **attributes):
    """Return the names and kinds of the runs that hold the value, in what was sent of one run of an agent."""
    session = Offline()
    settings = {"api_key": "none", "api_url": "http://localhost:1", "session": session, "auto_batch_tracing": False}
    sender = Client(**settings, **(client or {}))
    tracer = LangChainTracer(client=sender)
    vault = Vault(MemoryStore(), key=new_key()).session("one")
    guard = ContextGuardMiddleware(Stabilizer(4_000), vault=vault, restore=restore)
    for name, value in attributes.items():
        setattr(guard, name, value)
    model = Mailing(seen=[])
    agent = create_agent(model, [] if stream else [send_mail], middleware=[guard])
    asked = {"messages": [("user", f"I am {MAIL}, write to me")]}
    if stream:
        list(agent.stream(asked, config={"callbacks": [tracer]}, stream_mode="messages"))
    elif in_context:
        with tracing_context(client=sender, enabled=True):
            agent.invoke(asked)
    else:
        agent.invoke(asked, config={"callbacks": [tracer]})
    wait_for_all_tracers()
    assert MAIL not in str(model.seen)
    kinds, raw = {}, {}
    for run in session.sent:
        kinds[run["id"]] = kinds.get(run["id"]) or (run.get("run_type"), run.get("name"))
        raw[run["id"]] = raw.get(run["id"], False) or MAIL in json.dumps(run)
    inputs = [json.dumps(run["inputs"]) for run in session.sent if run.get("run_type") == "llm" and run.get("inputs")]
    return {kinds[identifier] for identifier, is_raw in raw.items() if is_raw}, inputs, kinds.values()


def test_the_run_of_the_model_holds_the_masked_request_and_all_others_the_values():
    raw, inputs, kinds = traced()
    assert inputs
    assert all("<EMAIL_1>" in one for one in inputs)
    assert {kind for kind, _ in raw} == {"chain", "tool"}
    assert ("llm", "Mailing") in kinds
    assert ("chain", "LangGraph") in raw


def test_restored_answers_are_written_into_the_run_of_the_model():
    raw, inputs, _ = traced(restore=True)
    assert ("llm", "Mailing") in raw
    assert not [one for one in inputs if MAIL in one]


@pytest.mark.parametrize("way", [{}, {"stream": True}, {"in_context": True}])
@pytest.mark.parametrize("restore", [False, True])
def test_with_an_anonymizer_no_run_holds_a_value(restore, way):
    raw, inputs, kinds = traced(client=ANONYMIZING, restore=restore, **way)
    assert raw == set()
    assert ("llm", "Mailing") in kinds
    assert all("<EMAIL_1>" in one for one in inputs)


@pytest.mark.skipif(not hasattr(langchain_middleware, "TracePolicy"), reason="this LangChain has no TracePolicy")
def test_a_policy_for_traces_empties_the_runs_of_the_guard_alone():
    from langchain.agents.middleware import TracePolicy, omit_payload

    policy = TracePolicy(process_inputs=omit_payload, process_outputs=omit_payload)
    names = {name for _, name in traced(trace_policy=policy, restore=True)[0]}
    assert not [name for name in names if name.startswith("ContextGuardMiddleware")]
    assert {"LangGraph", "model", "tools", "send_mail"} <= names
