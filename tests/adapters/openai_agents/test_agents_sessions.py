"""The database of a session holds no value, at no moment, and a conversation that goes on has them all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("agents", reason="the Agents SDK (openai-agents) is not installed")
pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

from agents import Agent, RunConfig, Runner, SQLiteSession, function_tool, set_tracing_disabled
from agents.memory import Session
from scripted_agents import ScriptedModel, assistant_message, function_call

from ctxguard import Stabilizer
from ctxguard.errors import ConfigError
from ctxguard.pii import Vault, new_key
from ctxguard.stores import MemoryStore
from ctxguard_openai_agents import MaskedSession, call_model_input_filter, with_restored_values, with_vault

set_tracing_disabled(True)
MAIL, CARD = "ada@corp-mail.net", "4111 1111 1111 1111"


@function_tool
def look_up(to: str) -> str:
    """Look somebody up."""
    return json.dumps({"mail": to, "card": CARD, "number": 17})


def written(folder):
    return b"".join(file.read_bytes() for file in Path(folder).glob("chats.db*"))


def session_of(folder, vault, name="s1"):
    return MaskedSession(SQLiteSession(name, str(folder / "chats.db")), vault)


@pytest.mark.parametrize("shares", [True, False])
async def test_the_bytes_of_the_database_hold_no_value_and_the_conversation_goes_on(tmp_path, shares):
    vaults = Vault(MemoryStore(), key=new_key())
    kept, used = vaults.session("kept"), vaults.session("used")
    used = kept if shares else used
    script = [
        [function_call("look_up", {"to": "<EMAIL_1>"}, call_id="c1")],
        [assistant_message("You are <EMAIL_1>.")],
        [assistant_message("Still <EMAIL_1>, with <CREDIT_CARD_1>.")],
    ]
    model = ScriptedModel(script)
    agent = Agent(name="a", model=with_restored_values(model), tools=with_vault([look_up], used))
    config = RunConfig(call_model_input_filter=call_model_input_filter(Stabilizer(4_000), vault=used))
    first = await Runner.run(agent, f"I am {MAIL}.", session=session_of(tmp_path, kept), run_config=config)
    assert first.final_output == f"You are {MAIL}."
    assert b"<EMAIL_1>" in written(tmp_path)
    again = await Runner.run(agent, "And now?", session=session_of(tmp_path, kept), run_config=config)
    assert again.final_output == f"Still {MAIL}, with {CARD}."
    assert not [one for one in (MAIL, CARD) if one.encode() in written(tmp_path)]
    items = await session_of(tmp_path, kept).get_items()
    assert items[0]["content"] == f"I am {MAIL}."
    assert json.loads(items[1]["arguments"]) == {"to": MAIL}
    assert json.loads(items[2]["output"]) == {"mail": MAIL, "card": CARD, "number": 17}
    assert MAIL in str(items[3])
    assert len(items) == 6
    assert not [one for one in (MAIL, CARD) if one in str([call.input for call in model.calls])]


async def test_without_it_the_value_is_there(tmp_path):
    session = SQLiteSession("s1", str(tmp_path / "chats.db"))
    await session.add_items([{"role": "user", "content": MAIL}])
    assert MAIL.encode() in written(tmp_path)
    session.close()


async def test_items_come_back_in_every_way_as_they_were(tmp_path):
    session = session_of(tmp_path, Vault(MemoryStore(), key=new_key()).session("one"))
    assert isinstance(session, Session)
    items = [{"role": "user", "content": f"{n} {MAIL} <EMAIL_1>"} for n in range(3)]
    await session.add_items(items)
    assert await session.get_items() == items
    assert await session.get_items(2) == await session.get_items(limit=2) == items[1:]
    assert await session.pop_item() == items[-1]
    await session.clear_session()
    assert await session.get_items() == []
    assert await session.pop_item() is None
    session.close()
    assert session.session_id == "s1"
    with pytest.raises(AttributeError):
        session.no_such_method  # noqa: B018


async def test_two_sessions_never_show_each_others_values_and_what_is_erased_stays_a_placeholder(tmp_path):
    vaults = Vault(MemoryStore(), key=new_key())
    sessions = {name: session_of(tmp_path, vaults.session(name), name) for name in ("ada", "bob")}
    for name, session in sessions.items():
        await session.add_items([{"role": "user", "content": f"I am {name}@corp-mail.net."}])
    for name, session in sessions.items():
        assert (await session.get_items())[0]["content"] == f"I am {name}@corp-mail.net."
    assert vaults.forget("ada", "ada@corp-mail.net") == 1
    assert (await sessions["ada"].get_items())[0]["content"] == "I am <EMAIL_1>."
    assert (await sessions["bob"].get_items())[0]["content"] == "I am bob@corp-mail.net."


@pytest.mark.parametrize("wrong", [None, "v.db", Vault(MemoryStore(), key=new_key())])
def test_what_is_no_vault_of_a_session_is_refused(wrong):
    with pytest.raises(ConfigError, match=r"get it by Vault\.session"):
        MaskedSession(SQLiteSession("s1"), wrong)
