"""A scripted model behind four APIs: it asks to read back, calls the client's tools, and answers, whole or streamed.

It is written from the providers' documented forms, without any code of ctxguard's, and refuses what they refuse: calls
without results, results without calls, and two messages of the model in a row.
"""

from __future__ import annotations

import json
import sys

import httpx

PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/m:generateContent",
}


class RefusedError(Exception):
    """The provider refuses a request."""


class Model:
    """Play a script: a list of replies, each a list of texts and of calls `(name, arguments)`.

    A reply may be a function from the body of the request to such a list.
    """

    def __init__(self, api, script, *, streams=False, usage=None):
        self.api, self.script, self.streams = api, list(script), streams
        self.bodies, self.raw, self.paths = [], [], []
        self.usage = usage or (lambda number: (100 + number, 40, 10, 7))
        self.billed = []

    def transport(self, library=httpx):
        return library.MockTransport(self.handle)

    def handle(self, request):
        library = sys.modules[type(request).__module__.partition(".")[0]]  # httpx, or the one like it that an SDK uses
        body = json.loads(request.content)
        self.raw.append(request.content.decode())
        self.bodies.append(body)
        try:
            PAIRS[self.api](body)
        except RefusedError as refusal:
            return library.Response(400, json={"error": {"message": str(refusal)}})
        number = len(self.bodies)
        reply = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        reply = reply(body) if callable(reply) else reply
        self.billed.append(self.usage(number))
        answer = ANSWERS[self.api](reply, number, self.billed[-1])
        if self.streams:
            events = STREAMS[self.api](answer)
            return library.Response(
                200, headers={"content-type": "text/event-stream"}, content="".join(events).encode()
            )
        return library.Response(200, json=answer)


def require(holds, message):
    if not holds:
        raise RefusedError(message)


# the rules


def judge_chat(body):
    waiting = []
    for message in body["messages"]:
        if message["role"] == "tool":
            require(message["tool_call_id"] in waiting, "tool message without its call")
            waiting.remove(message["tool_call_id"])
        else:
            require(not waiting, f"calls without results: {waiting}")
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
    require(not waiting, f"calls without results: {waiting}")


def judge_responses(body):
    items = body["input"] if isinstance(body["input"], list) else []
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    outputs = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    if body.get("previous_response_id") is None:
        require(sorted(calls) == sorted(outputs), f"calls {calls}, outputs {outputs}")


def judge_anthropic(body):
    messages = body["messages"]
    blocks = [
        [{"type": "text", "text": m["content"]}] if isinstance(m["content"], str) else m["content"] for m in messages
    ]
    for place, message in enumerate(messages):
        is_said_twice = place and message["role"] == messages[place - 1]["role"] == "assistant"
        require(not is_said_twice, f"two messages of the assistant at {place}")
        used = [block["id"] for block in blocks[place] if block["type"] == "tool_use"]
        behind = blocks[place + 1] if place + 1 < len(blocks) else []
        require(
            sorted(used) == sorted(b["tool_use_id"] for b in behind if b["type"] == "tool_result"), "calls and results"
        )
        require(not used or all(b["type"] == "tool_result" for b in behind[: len(used)]), "results come first")


def judge_gemini(body):
    contents = body["contents"]
    for place, content in enumerate(contents):
        require(not place or content["role"] != contents[place - 1]["role"], f"two contents of one role at {place}")
        called = [part["functionCall"]["name"] for part in content["parts"] if "functionCall" in part]
        behind = contents[place + 1]["parts"] if place + 1 < len(contents) else []
        answered = [part["functionResponse"]["name"] for part in behind if "functionResponse" in part]
        require(sorted(called) == sorted(answered), f"calls {called}, responses {answered}")


PAIRS = {"chat": judge_chat, "responses": judge_responses, "anthropic": judge_anthropic, "gemini": judge_gemini}

# whole answers


def is_text(said):
    return isinstance(said, str)


def chat(reply, number, billed):
    texts = "".join(filter(is_text, reply))
    calls = [
        {"id": f"call_{number}_{n}", "type": "function", "function": {"name": c[0], "arguments": json.dumps(c[1])}}
        for n, c in enumerate(c for c in reply if not is_text(c))
    ]
    message = {"role": "assistant", "content": texts or None, **({"tool_calls": calls} if calls else {})}
    read, cached, _, output = billed
    return {
        "id": f"chat_{number}",
        "object": "chat.completion",
        "created": 0,
        "model": "gpt-4o-2024",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
        "usage": {
            "prompt_tokens": read,
            "completion_tokens": output,
            "total_tokens": read + output,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    }


def responses(reply, number, billed):
    output = [{"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": f"sealed{number}"}]
    for place, said in enumerate(reply):
        if is_text(said):
            content = [{"type": "output_text", "text": said, "annotations": []}]
            item = {"type": "message", "id": f"msg_{number}_{place}", "role": "assistant", "content": content}
        else:
            item = {
                "type": "function_call",
                "id": f"fc_{number}_{place}",
                "call_id": f"call_{number}_{place}",
                "name": said[0],
                "arguments": json.dumps(said[1]),
            }
        output.append({**item, "status": "completed"})
    read, cached, _, out = billed
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 0,
        "model": "gpt-4o-2024",
        "status": "completed",
        "output": output,
        "usage": {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": out,
            "total_tokens": read + out,
        },
    }


def anthropic(reply, number, billed):
    thought = {"type": "thinking", "thinking": f"Thought {number}.", "signature": f"signed{number}"}
    content = [thought] if number > 2 else []  # what signed thinking has seen stays whole until a cut
    for place, said in enumerate(reply):
        content.append(
            {"type": "text", "text": said}
            if is_text(said)
            else {"type": "tool_use", "id": f"toolu_{number}_{place}", "name": said[0], "input": said[1]}
        )
    calls = [block for block in content if block["type"] == "tool_use"]
    read, cached, written, output = billed
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": content,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": read - cached - written,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": written,
            "output_tokens": output,
        },
    }


def gemini(reply, number, billed):
    parts = [
        {"text": said} if is_text(said) else {"functionCall": {"name": said[0], "args": said[1]}} for said in reply
    ]
    read, cached, _, output = billed
    return {
        "candidates": [{"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
        "usageMetadata": {
            "promptTokenCount": read,
            "cachedContentTokenCount": cached,
            "candidatesTokenCount": output,
            "totalTokenCount": read + output,
        },
        "modelVersion": "gemini-2.5-pro",
        "responseId": f"r{number}",
    }


ANSWERS = {"chat": chat, "responses": responses, "anthropic": anthropic, "gemini": gemini}

# streamed answers


def pieces(text, size=5):
    return [text[at : at + size] for at in range(0, len(text), size)]


def data(value):
    return f"data: {json.dumps(value)}\n\n"


def stream_chat(answer):
    message, choice = answer["choices"][0]["message"], answer["choices"][0]

    def chunk(delta, finish=None, **more):
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        head = {key: answer[key] for key in ("id", "created", "model")}
        return data({**head, "object": "chat.completion.chunk", "choices": choices, **more})

    yield chunk({"role": "assistant", "content": ""})
    yield from (chunk({"content": piece}) for piece in pieces(message["content"] or ""))
    for index, call in enumerate(message.get("tool_calls", ())):
        head = {"index": index, "id": call["id"], "type": "function"}
        yield chunk({"tool_calls": [{**head, "function": {"name": call["function"]["name"], "arguments": ""}}]})
        for piece in pieces(call["function"]["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, choice["finish_reason"])
    yield data({"id": answer["id"], "object": "chat.completion.chunk", "choices": [], "usage": answer["usage"]})
    yield "data: [DONE]\n\n"


def event(kind, **fields):
    return f"event: {kind}\n{data({'type': kind, **fields})}"


def stream_responses(answer):
    numbers = iter(range(1_000))

    def numbered(kind, **fields):
        return event(kind, sequence_number=next(numbers), **fields)

    yield numbered("response.created", response={**answer, "output": [], "status": "in_progress", "usage": None})
    for index, item in enumerate(answer["output"]):
        place = {"item_id": item["id"], "output_index": index}
        empty = {key: value for key, value in item.items() if key not in ("arguments", "content")}
        if item["type"] == "message":
            text = item["content"][0]["text"]
            yield numbered("response.output_item.added", output_index=index, item={**empty, "content": []})
            part = {"type": "output_text", "text": "", "annotations": []}
            yield numbered("response.content_part.added", **place, content_index=0, part=part)
            for piece in pieces(text):
                yield numbered("response.output_text.delta", **place, content_index=0, delta=piece, logprobs=[])
            yield numbered("response.output_text.done", **place, content_index=0, text=text, logprobs=[])
        elif item["type"] == "function_call":
            yield numbered("response.output_item.added", output_index=index, item={**empty, "arguments": ""})
            for piece in pieces(item["arguments"]):
                yield numbered("response.function_call_arguments.delta", **place, delta=piece)
            yield numbered("response.function_call_arguments.done", **place, arguments=item["arguments"])
        else:
            yield numbered("response.output_item.added", output_index=index, item=item)
        yield numbered("response.output_item.done", output_index=index, item=item)
    yield numbered("response.completed", response=answer)


def stream_anthropic(answer):
    usage = answer["usage"]
    yield event(
        "message_start", message={**answer, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    )
    for index, block in enumerate(answer["content"]):
        empty = {"thinking": {"thinking": "", "signature": ""}, "text": {"text": ""}, "tool_use": {"input": {}}}
        yield event("content_block_start", index=index, content_block={**block, **empty[block["type"]]})
        if block["type"] == "thinking":
            said = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
            said.append({"type": "signature_delta", "signature": block["signature"]})
        elif block["type"] == "text":
            said = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
        else:
            said = [{"type": "input_json_delta", "partial_json": p} for p in pieces(json.dumps(block["input"]))]
        yield from (event("content_block_delta", index=index, delta=delta) for delta in said)
        yield event("content_block_stop", index=index)
    delta = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=delta, usage={"output_tokens": usage["output_tokens"]})
    yield event("message_stop")


def stream_gemini(answer):
    candidate = answer["candidates"][0]
    for part in candidate["content"]["parts"]:
        for text in pieces(part["text"]) if "text" in part else [None]:
            said = part if text is None else {"text": text}
            yield data({"candidates": [{"index": 0, "content": {"role": "model", "parts": [said]}}]})
    last = {"index": 0, "content": {"role": "model", "parts": [{"text": ""}]}, "finishReason": "STOP"}
    yield data({**answer, "candidates": [last]})


STREAMS = {
    "chat": stream_chat,
    "responses": stream_responses,
    "anthropic": stream_anthropic,
    "gemini": stream_gemini,
}

# what a client makes of an answer


def events_of(raw):
    lines = [line[6:] for line in raw.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def client_chat(answer, raw):
    """Return what a client of Chat Completions appends to its history, and the calls it is to answer."""
    if answer is None:
        message, calls = {"role": "assistant", "content": ""}, {}
        for one in events_of(raw):
            for choice in one["choices"]:
                message["content"] += choice["delta"].get("content") or ""
                for call in choice["delta"].get("tool_calls", ()):
                    known = calls.setdefault(
                        call["index"], {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
                    )
                    known["id"] += call.get("id", "")
                    for key, value in call["function"].items():
                        known["function"][key] += value
        assert sorted(calls) == list(range(len(calls)))
        message = {**message, **({"tool_calls": [calls[n] for n in sorted(calls)]} if calls else {})}
    else:
        message = answer["choices"][0]["message"]
    calls = [
        (c["id"], c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls", ())
    ]
    return [message], calls


def client_responses(answer, raw):
    if answer is None:
        events = events_of(raw)
        numbers = [one["sequence_number"] for one in events]
        assert numbers == list(range(len(numbers)))
        assert [one["type"] for one in events].count("response.completed") == 1
        done = [one for one in events if one["type"] == "response.output_item.done"]
        assert [one["output_index"] for one in done] == list(range(len(done)))
        answer = events[-1]["response"]
        assert answer["output"] == [one["item"] for one in done]
    items = answer["output"]
    calls = [(i["call_id"], i["name"], json.loads(i["arguments"])) for i in items if i["type"] == "function_call"]
    return items, calls


def client_anthropic(answer, raw):
    if answer is None:
        events, blocks = events_of(raw), []
        assert [one["type"] for one in events].count("message_start") == 1
        assert [one["type"] for one in events].count("message_stop") == 1
        for one in events:
            if one["type"] == "content_block_start":
                assert one["index"] == len(blocks)
                blocks.append({**one["content_block"], "json": ""})
            elif one["type"] == "content_block_delta":
                assert one["index"] == len(blocks) - 1
                for key, value in one["delta"].items():
                    if key != "type":
                        at = "json" if key == "partial_json" else key
                        blocks[-1][at] = blocks[-1].get(at, "") + value
        for block in blocks:
            text = block.pop("json")
            if block["type"] == "tool_use":
                block["input"] = json.loads(text or "{}")
    else:
        blocks = answer["content"]
    calls = [(b["id"], b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"]
    return [{"role": "assistant", "content": blocks}], calls


def client_gemini(answer, raw):
    chunks = events_of(raw) if answer is None else [answer]
    parts = [part for one in chunks for part in one["candidates"][0]["content"]["parts"] if part != {"text": ""}]
    finished = [one["candidates"][0].get("finishReason") for one in chunks]
    assert finished[-1] == "STOP"
    assert finished[:-1] == [None] * (len(finished) - 1)
    joined = []
    for part in parts:
        if joined and set(part) == set(joined[-1]) == {"text"}:
            joined[-1] = {"text": joined[-1]["text"] + part["text"]}
        else:
            joined.append(part)
    calls = [
        (None, p["functionCall"]["name"], p["functionCall"].get("args", {})) for p in joined if "functionCall" in p
    ]
    return [{"role": "model", "parts": joined}], calls


CLIENTS = {
    "chat": client_chat,
    "responses": client_responses,
    "anthropic": client_anthropic,
    "gemini": client_gemini,
}


def results(api, answered):
    """Return the members of a history that answer calls: `(id, name, text)`."""
    if api == "chat":
        return [{"role": "tool", "tool_call_id": i, "content": text} for i, _, text in answered]
    if api == "responses":
        return [{"type": "function_call_output", "call_id": i, "output": text} for i, _, text in answered]
    if api == "anthropic":
        return [
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": i, "content": text} for i, _, text in answered],
            }
        ]
    parts = [{"functionResponse": {"name": name, "response": {"output": text}}} for _, name, text in answered]
    return [{"role": "user", "parts": parts}]


def question(api, text):
    return {"role": "user", "parts": [{"text": text}]} if api == "gemini" else {"role": "user", "content": text}


def history_of(api, body):
    return body[{"responses": "input", "gemini": "contents"}.get(api, "messages")]


def request(api, history, **more):
    schema = {"name": "look_up", "description": "Look up.", "parameters": {"type": "object", "properties": {}}}
    tools = {
        "chat": [{"type": "function", "function": schema}],
        "responses": [{"type": "function", **schema}],
        "anthropic": [{"name": "look_up", "input_schema": schema["parameters"]}],
        "gemini": [{"functionDeclarations": [schema]}],
    }[api]
    key = {"responses": "input", "gemini": "contents"}.get(api, "messages")
    model = {"anthropic": "claude-sonnet-4-5", "gemini": None}.get(api, "gpt-4o")
    return {**({"model": model} if model else {}), key: history, "tools": tools, **more}


class Client:
    """Run the client's side: ask, answer the calls it sees by its tool, and keep its own history."""

    def __init__(self, api, http, tool, *, streams=False, fields=None):
        self.api, self.http, self.tool, self.streams = api, http, tool, streams
        self.fields = fields or {}
        self.history, self.seen, self.raw = [], [], []

    def ask(self, text):
        self.history.append(question(self.api, text))
        while True:
            members, calls = self.once()
            self.history += members
            if not calls:
                return members
            self.seen += [name for _, name, _ in calls]
            self.history += results(self.api, [(i, name, self.tool(name, args)) for i, name, args in calls])

    def once(self):
        body = request(
            self.api, self.history, **self.fields, **({"stream": True} if self.streams and self.api != "gemini" else {})
        )
        path = PATHS[self.api]
        if self.streams and self.api == "gemini":
            path = path.replace(":generateContent", ":streamGenerateContent")
        answer = self.http.post(f"http://provider{path}", json=body)
        self.raw.append(answer.content)
        assert answer.is_success, answer.text
        return CLIENTS[self.api](None if self.streams else answer.json(), answer.content)
