"""The model sees placeholders, tools get the values, and what they answer is masked again."""

from __future__ import annotations

import sqlite3

import pytest

pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")
pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.profiles import ModelProfile

from ctxguard import Stabilizer
from ctxguard.pii import STANDARD, Masker, Vault, new_key
from ctxguard.policies import agent_stages
from ctxguard.stages import MaskPII
from ctxguard.stores import MemoryStore
from ctxguard_pydantic_ai import ContextGuard


def masked_into(vault):
    masker = Masker(STANDARD, strategy="pseudonymize", vault=vault)
    stages = [MaskPII(masker=masker) if isinstance(stage, MaskPII) else stage for stage in agent_stages()]
    return masker, Stabilizer(4_000, stages=stages)


@pytest.mark.parametrize("args", [{"to": "<EMAIL_1>", "copies": 2}, '{"to": "<EMAIL_1>", "copies": 2}'])
def test_the_whole_way_there_and_back(args):
    vault = Vault(MemoryStore(), key=new_key()).session("session-1")
    masker, stabilizer = masked_into(vault)
    seen, sent = [], []

    def scripted(messages, info):
        seen.append(str(messages))
        if len(seen) == 1:
            return ModelResponse(parts=[ToolCallPart("send_mail", args, "c1")])
        return ModelResponse(parts=[TextPart("Sent to <EMAIL_1>, and <EMAIL_2> was told.")])

    agent = Agent(FunctionModel(scripted), capabilities=[ContextGuard(stabilizer, vault=vault)])

    @agent.tool_plain
    def send_mail(to: str, copies: int) -> str:
        sent.append((to, copies))
        return f"sent to {to}, told bob@example.com"

    result = agent.run_sync("Write to ada@example.com.")
    assert sent == [("ada@example.com", 2)]
    assert "@example.com" not in "".join(seen)
    assert "told <EMAIL_2>" in seen[1]
    assert masker.session().unmask(result.output) == "Sent to ada@example.com, and bob@example.com was told."
    call = next(p for m in result.all_messages() for p in m.parts if p.part_kind == "tool-call")
    assert call.args == args, "the history keeps what the model wrote"


def test_an_invented_placeholder_is_left_alone():
    vault = Vault(MemoryStore(), key=new_key()).session("session-1")
    _, stabilizer = masked_into(vault)
    given = []

    def scripted(messages, info):
        if given:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("look_up", {"who": "<EMAIL_7>"})])

    agent = Agent(FunctionModel(scripted), capabilities=[ContextGuard(stabilizer, vault=vault)])

    @agent.tool_plain
    def look_up(who: str) -> str:
        given.append(who)
        return "nobody"

    agent.run_sync("Who is it?")
    assert given == ["<EMAIL_7>"]


def test_a_history_that_is_masked_as_it_is_stored_is_resumed_as_it_was(tmp_path):
    vault = Vault(MemoryStore(), key=new_key()).session("stored")
    masker = Masker(STANDARD, strategy="pseudonymize", vault=vault)
    agent = Agent(TestModel())

    @agent.tool_plain
    def look_up(name: str) -> dict[str, object]:
        return {"name": name, "mail": "ada@corp-mail.net", "ssn": 536221234, "quoted": 'say "ada@corp-mail.net"'}

    told = agent.run_sync("I am ada@corp-mail.net").all_messages()
    at_rest = masker.mask(ModelMessagesTypeAdapter.dump_json(told).decode())
    with sqlite3.connect(tmp_path / "history.db") as database:
        database.execute("CREATE TABLE history (messages TEXT)")
        database.execute("INSERT INTO history VALUES (?)", (at_rest,))
    written = (tmp_path / "history.db").read_bytes()
    assert b"<EMAIL_1>" in written
    assert not [one for one in (b"ada@corp-mail.net", b"536221234") if one in written]
    assert ModelMessagesTypeAdapter.validate_json(vault.unmask_arguments(at_rest)) == told


@pytest.mark.parametrize("shape", ["tool", "native"])
def test_structured_output_has_the_values_before_it_is_validated(shape):
    if shape == "native" and not hasattr(AbstractCapability, "before_output_validate"):
        pytest.skip("this PydanticAI has no hook before it validates a text as output")

    class Contact(BaseModel):
        mail: str = Field(pattern=r"^[^@]+@[^@]+$")

    vault = Vault(MemoryStore(), key=new_key()).session("session-1")

    def scripted(messages, info):
        if shape == "native":
            return ModelResponse(parts=[TextPart('{"mail": "<EMAIL_1>"}')])
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {"mail": "<EMAIL_1>"})])

    model = FunctionModel(scripted, profile=ModelProfile(supports_json_schema_output=True))
    output = Contact if shape == "tool" else NativeOutput(Contact)
    agent = Agent(model, output_type=output, capabilities=[ContextGuard(Stabilizer(4_000), vault=vault)])
    result = agent.run_sync("I am ada@example.com.")
    assert result.output == Contact(mail="ada@example.com")
    written = next(message for message in result.all_messages() if message.kind == "response")
    assert "<EMAIL_1>" in str(written), "the history keeps what the model wrote"
