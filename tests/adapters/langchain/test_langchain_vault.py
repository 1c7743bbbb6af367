"""The model sees placeholders, tools get the values, the graph's state keeps what each of them wrote."""

from __future__ import annotations

import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langchain_histories import ScriptedChatModel

from ctxguard import Stabilizer
from ctxguard.pii import STANDARD, Masker, Vault, new_key
from ctxguard.policies import agent_stages, default_stages
from ctxguard.stores import MemoryStore
from ctxguard_langchain import ContextGuard, ContextGuardMiddleware, with_message_history

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


FIELDS = ("user_id", "conversation_id")


def vaulted():
    """Return vaults, and the function that chooses the stabilizer of a session, as the docs have it."""
    vaults = Vault(MemoryStore(), key=new_key())

    def stabilizer_of(session):
        masker = Masker(strategy="pseudonymize", vault=vaults.session(session or "none"))
        return Stabilizer(2_000, stages=default_stages(masker=masker))

    return vaults, stabilizer_of


def config_of(**fields):
    return {"configurable": fields}


@pytest.mark.filterwarnings("ignore:.*MessageHistory.*:DeprecationWarning")
@pytest.mark.parametrize("ids", [FIELDS, FIELDS[:1]], ids=["two fields", "one field"])
def test_a_history_that_is_named_by_other_fields_has_a_vault_of_its_own(ids):
    from langchain_core.chat_history import InMemoryChatMessageHistory
    from langchain_core.runnables import ConfigurableFieldSpec

    vaults, stabilizer_of = vaulted()
    stored, reports = {}, []
    chain = with_message_history(
        FakeListChatModel(responses=["I wrote to <EMAIL_1>."]),
        lambda user_id, conversation_id="": stored.setdefault((user_id, conversation_id), InMemoryChatMessageHistory()),
        stabilizer_of,
        on_report=reports.append,
        history_factory_config=[ConfigurableFieldSpec(id=one, annotation=str) for one in ids],
    )
    for user, mail in (("a", "zora@mailhost.org"), ("b", "mikel@mailhost.org")):
        chain.invoke("Write to " + mail, config_of(**dict.fromkeys(ids, user)))
    assert reports[0].session != reports[1].session
    assert all(report.session is not None for report in reports)
    for report, own, other in ((reports[0], "zora", "mikel"), (reports[1], "mikel", "zora")):
        vault = vaults.session(report.session)
        assert own in vault.unmask("<EMAIL_1>")
        assert other not in vault.unmask("<EMAIL_1> <EMAIL_2>")


@pytest.mark.parametrize("given", [{}, {"user_id": "a", "conversation_id": "1"}, {"session_id": None}])
def test_without_a_session_nothing_is_stored_and_the_report_says_so(given):
    vaults, stabilizer_of = vaulted()
    reports = []
    guard = ContextGuard(stabilizer_of, on_report=reports.append)
    for mail in ("zora@mailhost.org", "mikel@mailhost.org"):
        (message,) = guard.invoke("Write to " + mail, config_of(**given))
        assert message.content == "Write to [REDACTED_EMAIL]"
        assert "no session" in reports[-1].details["session"]
    assert vaults.session("none").unmask("<EMAIL_1>") == "<EMAIL_1>"
    guard.invoke("Write to zora@mailhost.org", config_of(session_id="s"))
    assert "session" not in reports[-1].details
    assert vaults.session("s").unmask("<EMAIL_1>") == "zora@mailhost.org"
