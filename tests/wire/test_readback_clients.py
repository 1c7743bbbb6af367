"""The official clients put streamed answers together as if the model had not read back."""

from __future__ import annotations

import json
import sys

import httpx
import pytest
from scripted_model import CLIENTS as READ
from scripted_model import PATHS, Model, question, request, results
from test_readback import AGAIN, LOG, OTHER, at, filled, history_of_body, masked_log, read_log, texts_in

from ctxguard import Stabilizer
from ctxguard.wire import Guard, Transport, proxy_app
from ctxguard.wire.run import summary
from ctxguard.wire.transport import guarded

LAST = [["Let me see. ", read_log], [AGAIN, read_log], ["Ann moved it."]]


def library_of(client):
    """Return the library by which a client sends."""
    return sys.modules[client.__mro__[1].__module__.partition(".")[0]]


def look_up(args):
    return LOG if args.get("of") == "log" else OTHER


def chat_with_openai(openai, client, stream):
    tools = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}]
    messages = [{"role": "user", "content": "What does the log say?"}]
    while True:
        given = {"model": "gpt-4o", "messages": messages, "tools": tools}
        if stream:
            with client.chat.completions.stream(**given) as events:
                list(events)
                message = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**given).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return [m.get("content") or "" for m in messages if m["role"] == "assistant"]
        for call in message.tool_calls:
            assert call.function.name == "look_up"
            text = look_up(json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


def responses_with_openai(openai, client, stream):
    tools = [{"type": "function", "name": "look_up", "parameters": {"type": "object", "properties": {}}}]
    items, said = [{"role": "user", "content": "What does the log say?"}], []
    while True:
        given = {"model": "gpt-4o", "input": items, "tools": tools}
        if stream:
            with client.responses.stream(**given) as events:
                list(events)
                answer = events.get_final_response()
        else:
            answer = client.responses.create(**given)
        items += [item.model_dump(exclude_none=True) for item in answer.output]
        said.append(answer.output_text)
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            return said
        for call in calls:
            assert call.name == "look_up"
            text = look_up(json.loads(call.arguments))
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": text})


def messages_with_anthropic(anthropic, client, stream):
    tools = [{"name": "look_up", "input_schema": {"type": "object", "properties": {}}}]
    messages, said = [{"role": "user", "content": "What does the log say?"}], []
    while True:
        given = {"model": "claude-m", "messages": messages, "tools": tools, "max_tokens": 500}
        if stream:
            with client.messages.stream(**given) as events:
                list(events)
                answer = events.get_final_message()
        else:
            answer = client.messages.create(**given)
        messages.append(
            {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in answer.content]}
        )
        said.append("".join(block.text for block in answer.content if block.type == "text"))
        calls = [block for block in answer.content if block.type == "tool_use"]
        if not calls:
            return said
        results = [{"type": "tool_result", "tool_use_id": c.id, "content": look_up(c.input)} for c in calls]
        assert {call.name for call in calls} == {"look_up"}
        messages.append({"role": "user", "content": results})


def openai_client(model):
    openai = pytest.importorskip("openai", reason="openai is not installed")
    library = library_of(openai.DefaultHttpxClient)
    http = library.Client(transport=model.transport(library))
    return openai, openai.OpenAI(api_key="none", base_url="http://provider/v1", http_client=http, max_retries=0)


def anthropic_client(model):
    anthropic = pytest.importorskip("anthropic", reason="anthropic is not installed")
    library = library_of(anthropic.DefaultHttpxClient)
    http = library.Client(transport=model.transport(library))
    return anthropic, anthropic.Anthropic(api_key="none", base_url="http://provider", http_client=http, max_retries=0)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
async def test_clients_of_the_proxy_read_back(streams):
    model = Model("chat", [*filled(), *map(at, LAST)], streams=streams)
    guard = Guard(Stabilizer(6_000), recall=True)
    app = proxy_app(guard, "http://provider", transport=model.transport())
    history, said = [question("chat", "What does the log say?")], []
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost") as http:
        for _ in range(5):
            answer = await http.post(PATHS["chat"], json=request("chat", history, stream=streams))
            members, calls = READ["chat"](None if streams else answer.json(), answer.content)
            history += [*members, *results("chat", [(i, name, look_up(args)) for i, name, args in calls])]
            said += [member["content"] or "" for member in members]
        metrics = (await http.get("/metrics")).text
    assert said == ["", "", "", "Let me see. ", "Ann moved it."]
    assert 'ctxguard_read_backs_total{by="handle"} 2' in metrics
    assert guard.metrics.get("billed.tokens", kind="input") == sum(billed[0] for billed in model.billed)
    told = "the model read back 2 times what was shortened or had left; what was sent includes this"
    assert told in list(summary(guard.metrics))


CLIENTS = {
    "chat": (openai_client, chat_with_openai),
    "responses": (openai_client, responses_with_openai),
    "anthropic": (anthropic_client, messages_with_anthropic),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", CLIENTS)
def test_official_clients_never_notice(api, stream):
    made, run = CLIENTS[api]
    model = Model(api, [*filled(), *map(at, LAST)], streams=stream)
    sdk, client = made(model)
    said = run(sdk, guarded(client, Stabilizer(6_000), recall=True), stream)
    assert said == ["", "", "", "Let me see. ", "Ann moved it."]
    assert masked_log(model) in list(texts_in(history_of_body(model.bodies[-1])))


def parts_with_google(genai, client, stream):
    """Return what the model said in each turn, as google-genai puts it together."""
    declared = {"name": "look_up", "parameters_json_schema": {"type": "object", "properties": {}}}
    config = {"tools": [{"function_declarations": [declared]}]}
    contents, said = [genai.types.Content(role="user", parts=[genai.types.Part(text="What does the log say?")])], []
    while True:
        given = {"model": "m", "contents": contents, "config": config}
        if stream:
            chunks = list(client.models.generate_content_stream(**given))
        else:
            chunks = [client.models.generate_content(**given)]
        parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts or ()]
        contents.append(genai.types.Content(role="model", parts=parts))
        said.append("".join(part.text for part in parts if part.text))
        calls = [part.function_call for part in parts if part.function_call]
        if not calls:
            return said
        assert {call.name for call in calls} == {"look_up"}
        results = [{"name": c.name, "response": {"output": look_up(c.args)}, "id": c.id} for c in calls]
        contents.append(
            genai.types.Content(role="user", parts=[genai.types.Part(function_response=result) for result in results])
        )


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_googles_client_never_notices(stream):
    genai = pytest.importorskip("google.genai", reason="google-genai is not installed")
    model = Model("gemini", [*filled(), *map(at, LAST)], streams=stream)
    transport = Transport(Guard(Stabilizer(6_000), recall=True), transport=model.transport())
    with httpx.Client(transport=transport) as http:
        options = genai.types.HttpOptions(base_url="http://provider", httpx_client=http)
        said = parts_with_google(genai, genai.Client(api_key="none", http_options=options), stream)
    assert said == ["", "", "", "Let me see. ", "Ann moved it."]
    assert masked_log(model) in list(texts_in(history_of_body(model.bodies[-1])))
