"""A checkpointer's database holds no value, at no moment, and a conversation that is resumed has them all."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("langgraph", reason="LangGraph is not installed (extra langgraph)")
pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Send

from ctxguard.errors import ConfigError
from ctxguard.pii import Vault, new_key
from ctxguard.stores import MemoryStore
from ctxguard_langchain import MaskedSerializer

MAIL, CARD = "ada@corp-mail.net", "4111 1111 1111 1111"
TOLD = f'{{"mail": "{MAIL}", "ssn": 536221234, "ok": true}}'
THREAD = {"configurable": {"thread_id": "t1"}}


@dataclass
class Ticket:
    title: str
    size: int


class State(MessagesState):
    tickets: list[Ticket]
    answer: str


def graph(saver):
    def answer(state):
        call = {"name": "refund", "args": {"card": CARD, "note": ["to " + MAIL]}, "id": "c1"}
        told = ToolMessage(TOLD, tool_call_id="c1")
        tickets = [Ticket(f"of {MAIL}", 3)]
        said = AIMessage("<EMAIL_1>, noted.", tool_calls=[call])
        return {"messages": [said, told], "tickets": tickets, "answer": f"{CARD}."}

    made = StateGraph(State)
    made.add_node("answer", answer)
    made.add_edge(START, "answer")
    made.add_edge("answer", END)
    return made.compile(checkpointer=saver)


def serializer():
    return MaskedSerializer(Vault(MemoryStore(), key=new_key()).session("checkpoints"))


def assert_is_whole(compiled):
    state = compiled.get_state(THREAD).values
    asked, said, told = state["messages"]
    assert asked.content == f"I am {MAIL}, card {CARD}"
    assert (said.content, said.tool_calls[0]["args"]) == (
        "<EMAIL_1>, noted.",
        {"card": CARD, "note": [f"to {MAIL}"]},
    )
    assert told.content == TOLD
    assert (state["tickets"], state["answer"]) == ([Ticket(f"of {MAIL}", 3)], f"{CARD}.")


def test_the_bytes_of_a_real_database_hold_no_value(tmp_path):
    sqlite = pytest.importorskip("langgraph.checkpoint.sqlite", reason="langgraph-checkpoint-sqlite is not installed")
    serde = serializer()

    def written():
        return b"".join(Path(f"{tmp_path}/checkpoints.db{end}").read_bytes() for end in ("", "-wal"))

    with sqlite.SqliteSaver.from_conn_string(str(tmp_path / "plain.db")) as plain:
        graph(plain).invoke({"messages": [HumanMessage(f"I am {MAIL}, card {CARD}")]}, THREAD)
        found = b"".join(one.read_bytes() for one in tmp_path.glob("plain.db*"))
        assert MAIL.encode() in found, "without the serializer the value is there"
    with sqlite.SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as saver:
        saver.serde = serde
        graph(saver).invoke({"messages": [HumanMessage(f"I am {MAIL}, card {CARD}")]}, THREAD)
        assert b"<EMAIL_1>" in written()
        assert not [one for one in (MAIL, CARD, "536221234") if one.encode() in written()]
        assert len(list(graph(saver).get_state_history(THREAD))) == 3
    with sqlite3.connect(tmp_path / "checkpoints.db", check_same_thread=False) as connection:
        resumed = graph(sqlite.SqliteSaver(connection, serde=serde))
        assert_is_whole(resumed)


def test_a_conversation_is_resumed_as_it_was():
    saver = InMemorySaver(serde=serializer())
    compiled = graph(saver)
    compiled.invoke({"messages": [HumanMessage(f"I am {MAIL}, card {CARD}")]}, THREAD)
    stored = repr([dict(saver.storage), dict(saver.writes), dict(saver.blobs)])
    assert not [one for one in (MAIL, CARD) if one in stored]
    assert_is_whole(compiled)


def test_what_a_graph_sends_to_a_node_is_masked_too():
    got = []
    made = StateGraph(State)
    made.add_node("work", lambda given: got.append(given["answer"]))
    made.add_conditional_edges(START, lambda _: [Send("work", {"answer": f"write to {MAIL}"})], ["work"])
    made.add_edge("work", END)
    saver = InMemorySaver(serde=serializer())
    made.compile(checkpointer=saver, interrupt_before=["work"]).invoke({"answer": "begin"}, THREAD)
    assert MAIL not in repr([dict(saver.storage), dict(saver.writes), dict(saver.blobs)])
    made.compile(checkpointer=saver).invoke(None, THREAD)
    assert got == [f"write to {MAIL}"]


def test_what_the_vault_has_lost_stays_a_placeholder():
    vaults = Vault(MemoryStore(), key=new_key())
    compiled = graph(InMemorySaver(serde=MaskedSerializer(vaults.session("s"))))
    compiled.invoke({"messages": [HumanMessage(f"I am {MAIL}, card {CARD}")]}, THREAD)
    assert vaults.forget("s", MAIL) == 1
    assert compiled.get_state(THREAD).values["messages"][0].content == f"I am <EMAIL_1>, card {CARD}"


def test_the_vault_of_all_sessions_is_refused():
    with pytest.raises(ConfigError, match=r"get it by Vault\.session"):
        MaskedSerializer(Vault(MemoryStore(), key=new_key()))
