"""With a model that restores, the program and its user see the values in all responses, and the model sees none."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("agents", reason="the Agents SDK (openai-agents) is not installed")
pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

from agents import Agent, ModelProvider, ModelResponse, RunConfig, Runner, Usage, function_tool, set_tracing_disabled
from agents.models.interface import Model
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseFunctionCallArgumentsDoneEvent,
    ResponseFunctionToolCall,
    ResponseOutputItemAddedEvent,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseTextDeltaEvent,
    ResponseTextDoneEvent,
)
from pydantic import BaseModel

from ctxguard import Stabilizer
from ctxguard.errors import ConfigError
from ctxguard.pii import Vault, new_key
from ctxguard.stores import MemoryStore
from ctxguard_openai_agents import call_model_input_filter, with_overflow_retry, with_restored_values, with_vault

set_tracing_disabled(True)
PEOPLE = ("ada@corp-mail.net", "bob@corp-mail.net", "eve@corp-mail.net")
SAID = "Write to <EMAIL_1>, then <EMAIL_2>; <EMAIL_3> knows, <EMAIL_9> does not, 1 < 2 & <EM"
SHOWN = "Write to ada@corp-mail.net, then bob@corp-mail.net; eve@corp-mail.net knows, <EMAIL_9> does not, 1 < 2 & <EM"
ASKED = f"These are {', '.join(PEOPLE)}."
ARGS = '{"to":"<EMAIL_2>","text":"of <EMAIL_1>"}'


def message(text):
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return ResponseOutputMessage.construct(
        id="m1", type="message", role="assistant", status="completed", content=content
    )


def call(name, arguments):
    return ResponseFunctionToolCall.construct(
        id="f1", type="function_call", name=name, arguments=arguments, call_id="c1", status="completed"
    )


class Scripted(Model):
    """Answers with items in turn, whole or as the events of the Responses API, with texts cut at a place."""

    def __init__(self, *items, at=0):
        self.items, self.at, self.seen = list(items), at, []

    async def get_response(self, system_instructions, input, *args, **settings):  # noqa: A002 - the SDK's name
        self.seen.append(f"{system_instructions} {input}")
        await asyncio.sleep(0)
        item = self.items[min(len(self.seen), len(self.items)) - 1]
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    async def stream_response(self, system_instructions, input, *args, **settings):  # noqa: A002 - the SDK's name
        (item,) = (await self.get_response(system_instructions, input)).output
        for number, (kind, fields) in enumerate(self._events(item)):
            yield kind.construct(**fields, sequence_number=number)

    def _events(self, item):
        is_call = item.type == "function_call"
        text = item.arguments if is_call else item.content[0].text
        place = {"item_id": item.id, "output_index": 0, **({} if is_call else {"content_index": 0, "logprobs": []})}
        empty = {**item.model_dump(), **({"arguments": ""} if is_call else {"content": []})}
        kind = "response.function_call_arguments" if is_call else "response.output_text"
        delta = ResponseFunctionCallArgumentsDeltaEvent if is_call else ResponseTextDeltaEvent
        done = ResponseFunctionCallArgumentsDoneEvent if is_call else ResponseTextDoneEvent
        yield (
            ResponseOutputItemAddedEvent,
            {"type": "response.output_item.added", "output_index": 0, "item": empty},
        )
        for piece in [text[: self.at], text[self.at :]] if self.at else list(text):
            yield delta, {"type": f"{kind}.delta", "delta": piece, **place}
        yield done, {"type": f"{kind}.done", "arguments" if is_call else "text": text, **place}
        whole = item.model_dump()
        yield ResponseOutputItemDoneEvent, {"type": "response.output_item.done", "output_index": 0, "item": whole}
        response = Response.construct(id="r1", output=[whole], object="response").model_dump(exclude_unset=True)
        yield ResponseCompletedEvent, {"type": "response.completed", "response": response}


def session(name="one", **settings):
    return Vault(MemoryStore(), key=new_key(), **settings).session(name)


def config(vault, **settings):
    return RunConfig(call_model_input_filter=call_model_input_filter(Stabilizer(4_000), vault=vault), **settings)


def has_people(seen):
    return [person for person in PEOPLE if person in str(seen)]


async def deltas_of(result):
    return "".join(
        [
            e.data.delta
            async for e in result.stream_events()
            if e.type == "raw_response_event" and "delta" in e.data.type
        ]
    )


@pytest.mark.parametrize("at", range(len(SAID)))
async def test_a_streamed_text_is_shown_whole_wherever_it_is_cut(at):
    model, vault = Scripted(message(SAID), at=at), session()
    agent = Agent(name="a", model=with_restored_values(model))
    result = Runner.run_streamed(agent, ASKED, run_config=config(vault))
    assert await deltas_of(result) == SHOWN
    assert result.final_output == SHOWN
    again = [*result.to_input_list(), {"role": "user", "content": "Again."}]
    assert (await Runner.run(agent, again, run_config=config(vault))).final_output == SHOWN
    assert not has_people(model.seen)
    assert "Write to <EMAIL_1>, then <EMAIL_2>" in model.seen[-1], "the model sees again what it wrote"


@pytest.mark.parametrize("tools", [{}, {"send_mail": False}])
@pytest.mark.parametrize("at", range(len(ARGS)))
async def test_streamed_arguments_are_shown_and_given_unless_the_tool_gets_no_values(at, tools):
    given, vault = [], session(tools=tools)
    model = Scripted(call("send_mail", ARGS), message("Done, <EMAIL_2>."), at=at)

    @function_tool
    def send_mail(to: str, text: str) -> str:
        """Send a mail."""
        given.append((to, text))
        return f"sent to {to}"

    agent = Agent(name="a", model=with_restored_values(model), tools=with_vault([send_mail], vault))
    result = Runner.run_streamed(agent, ASKED, run_config=config(vault))
    shown = ARGS if tools else '{"to":"bob@corp-mail.net","text":"of ada@corp-mail.net"}'
    assert await deltas_of(result) == f"{shown}Done, bob@corp-mail.net."
    assert given == [("<EMAIL_2>", "of <EMAIL_1>") if tools else ("bob@corp-mail.net", "of ada@corp-mail.net")]
    assert result.final_output == "Done, bob@corp-mail.net."
    assert not has_people(model.seen)


class Contact(BaseModel):
    mail: str
    note: str


async def test_structured_output_has_the_values():
    model = Scripted(message('{"mail": "<EMAIL_1>", "note": "not <EMAIL_2>"}'))
    agent = Agent(name="a", model=with_restored_values(model), output_type=Contact)
    found = await Runner.run(agent, ASKED, run_config=config(session(tools={"*": False})))
    assert found.final_output == Contact(mail=PEOPLE[0], note=f"not {PEOPLE[1]}")
    assert not has_people(model.seen)


async def test_a_provider_of_models_restores_and_retries():
    class Provider(ModelProvider):
        def get_model(self, model_name):
            return Scripted(message(SAID))

    provider = with_restored_values(with_overflow_retry(Provider()))
    settings = config(session(), model_provider=provider)
    assert (await Runner.run(Agent(name="a"), ASKED, run_config=settings)).final_output == SHOWN


async def test_a_run_without_the_filter_is_left_alone():
    agent = Agent(name="a", model=with_restored_values(Scripted(message(SAID))))
    assert (await Runner.run(agent, "Hello.")).final_output == SAID


def test_the_name_of_a_model_is_refused():
    with pytest.raises(ConfigError, match="with_restored_values"):
        with_restored_values("gpt-4o")
