"""The model sees placeholders, tools get the values, the graph's state keeps what each of them wrote."""

from __future__ import annotations

import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langchain_histories import ScriptedChatModel

from ctxguard import Stabilizer
from ctxguard.pii import STANDARD, Masker, Vault, new_key
from ctxguard.policies import agent_stages
from ctxguard.stores import MemoryStore
from ctxguard_langchain import ContextGuardMiddleware

MAIL = "ada@corp-mail.net"


def scripted():
    calls = [{"name": "send_mail", "args": {"to": "<EMAIL_1>", "copies": 2}, "id": "c1"}]
    replies = iter([AIMessage("", tool_calls=calls), AIMessage("Sent to <EMAIL_1>.")])
    return ScriptedChatModel(reply=lambda _: next(replies))


def guarded(session, **settings):
    masker = Masker(STANDARD, strategy="pseudonymize", vault=session)
    return masker, ContextGuardMiddleware(Stabilizer(4_000, stages=agent_stages(masker=masker)), **settings)


@pytest.mark.parametrize("runs_async", [False, True])
async def test_the_whole_way_there_and_back(runs_async):
    sent, model = [], scripted()
    vault = Vault(MemoryStore(), key=new_key()).session("session-1")
    masker, guard = guarded(vault, vault=vault)

    @tool
    def send_mail(to: str, copies: int) -> str:
        """Send a mail."""
        sent.append((to, copies))
        return f"sent to {to}"

    agent = create_agent(model, [send_mail], middleware=[guard])
    given = {"messages": [HumanMessage(f"Write to {MAIL}.")]}
    messages = (await agent.ainvoke(given) if runs_async else agent.invoke(given))["messages"]
    assert sent == [(MAIL, 2)]
    assert MAIL not in str(model.seen)
    assert messages[1].tool_calls[0]["args"] == {"to": "<EMAIL_1>", "copies": 2}, "the state keeps what was written"
    assert masker.session().unmask(messages[-1].content) == f"Sent to {MAIL}."


def test_each_thread_has_a_vault_of_its_own():
    vaults = {name: Vault(MemoryStore(), key=new_key()).session(name) for name in ("one", "two")}
    sent = []

    @tool
    def send_mail(to: str, copies: int) -> str:
        """Send a mail."""
        sent.append(to)
        return "sent"

    for name, session in vaults.items():
        _, guard = guarded(session, vault=lambda runtime: vaults[runtime.context])
        agent = create_agent(scripted(), [send_mail], middleware=[guard], context_schema=str)
        given = {"messages": [HumanMessage(f"Write to {name}.{MAIL}.")]}
        agent.invoke(given, context=name)
    assert sent == [f"one.{MAIL}", f"two.{MAIL}"]
