"""A provider that keeps the rules of three APIs, streams where it is asked to, and plays scripted tool loops.

It judges requests as `provider_server.Provider` does and counts their tokens by itself. What it says holds the
placeholders of the request, cut into small pieces, so that a client can tell whether it got the values back.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from loopback import RefusedError, listening
from patience import PATIENCE
from provider_server import Provider

from ctxguard.tokens import find_counter

PLACEHOLDER = re.compile(r"Find (<EMAIL_[\d_]+>)")
FRAMING = ("id", "type", "role", "status", "signature", "call_id", "tool_call_id", "tool_use_id")
"""Keys of what no provider bills as text."""


class WireProvider(Provider):
    """Play a scripted model.

    Args:
        steps: tool steps in each turn.
        parallel: calls in each step.
        piece: characters of a streamed piece of a text.
        window: characters of JSON that a request may take.
    """

    def __init__(self, *, steps=1, parallel=1, piece=3, window=10**9):
        super().__init__(window)
        self.steps, self.parallel, self.piece = steps, parallel, piece
        self.left = steps
        self.headers = []
        self.paths = []
        self.says = "All done, {}."
        self.argument = '{{"query": "{}", "note": "quote \\" and back\\\\slash"}}'
        self.latest_user = ""

    # what it says

    def ids(self, prefix, count):
        return [f"{prefix}_{len(self.bodies)}_{number}" for number in range(self.parallel if count == 2 else count)]

    def wants_tools(self, are_results):
        self.left, wants = (self.left - 1, True) if self.left else (self.steps, False)
        return wants

    def named(self):
        found = PLACEHOLDER.search(json.dumps(self.bodies[-1]))
        return found[1] if found else "nobody"

    def tokens(self, body):
        """Count the texts of what the model is shown."""
        shown = {k: v for k, v in body.items() if k in ("messages", "input", "system", "instructions", "tools")}
        count = find_counter("o200k_base").count
        texts = []

        def walk(value):
            if isinstance(value, str):
                texts.append(value)
            elif isinstance(value, (list, dict)):
                for key, member in value.items() if isinstance(value, dict) else enumerate(value):
                    if key not in FRAMING:
                        walk(member)

        walk({k: v for k, v in shown.items() if k != "tools"})
        return sum(map(count, texts)) + (count(json.dumps(shown["tools"])) if "tools" in shown else 0)

    def chat(self, body):
        answer = super().chat(body)
        message = answer["choices"][0]["message"]
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = self.argument.format(self.named())
        if message["content"]:
            message["content"] = self.says.format(self.named())
        answer["choices"][0]["finish_reason"] = "tool_calls" if message.get("tool_calls") else "stop"
        return answer

    def responses(self, body):
        return {
            **super().responses(body),
            "id": f"resp_{len(self.bodies)}",
        }  # LangGraph takes messages of one id for one

    def output(self, items):
        made = super().output(items)
        for item in made:
            if item["type"] == "function_call":
                item["arguments"] = self.argument.format(self.named())
            if item["type"] == "message":
                item["content"][0]["text"] = self.says.format(self.named())
            self.stored[item["id"]] = {
                k: json.loads(json.dumps(item[k])) for k in ("arguments", "content") if k in item
            }
        return made

    def messages(self, body):
        answer = super().messages(body)
        for block in answer["content"]:
            if block["type"] == "tool_use":
                block["input"] = json.loads(self.argument.format(self.named()))
            if block["type"] == "text":
                block["text"] = self.says.format(self.named())
        return answer

    def pieces(self, text):
        return [text[at : at + self.piece] for at in range(0, len(text), self.piece)] or [""]

    def events(self, path, answer):
        made = {"completions": self.chat_events, "responses": self.responses_events, "messages": self.messages_events}
        yield from made[path.rpartition("/")[2]](answer)

    def chat_events(self, answer):
        def chunk(delta, finish=None):
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            data = {**answer, "object": "chat.completion.chunk", "choices": [choice]}
            return f"data: {json.dumps(data)}\n\n"

        message = answer["choices"][0]["message"]
        yield chunk({"role": "assistant", "content": ""})
        for piece in self.pieces(message["content"] or ""):
            yield chunk({"content": piece})
        for index, call in enumerate(message.get("tool_calls", ())):
            head = {"index": index, "id": call["id"], "type": "function"}
            yield chunk({"tool_calls": [{**head, "function": {"name": call["function"]["name"], "arguments": ""}}]})
            for piece in self.pieces(call["function"]["arguments"]):
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield chunk({}, answer["choices"][0]["finish_reason"])
        yield "data: [DONE]\n\n"

    def responses_events(self, answer):
        numbers = iter(range(10**6))

        def event(kind, **fields):
            data = {"type": kind, "sequence_number": next(numbers), **fields}
            return f"event: {kind}\ndata: {json.dumps(data)}\n\n"

        yield event("response.created", response={**answer, "output": [], "status": "in_progress"})
        for index, item in enumerate(answer["output"]):
            place = {"item_id": item["id"], "output_index": index}
            empty = {k: v for k, v in item.items() if k not in ("arguments", "content")}
            if item["type"] == "message":
                part = {"type": "output_text", "text": "", "annotations": []}
                text = item["content"][0]["text"]
                yield event("response.output_item.added", output_index=index, item={**empty, "content": []})
                yield event("response.content_part.added", **place, content_index=0, part=part)
                for piece in self.pieces(text):
                    yield event("response.output_text.delta", **place, content_index=0, delta=piece, logprobs=[])
                yield event("response.output_text.done", **place, content_index=0, text=text, logprobs=[])
                yield event("response.content_part.done", **place, content_index=0, part={**part, "text": text})
            elif item["type"] == "function_call":
                yield event("response.output_item.added", output_index=index, item={**empty, "arguments": ""})
                for piece in self.pieces(item["arguments"]):
                    yield event("response.function_call_arguments.delta", **place, delta=piece)
                yield event(
                    "response.function_call_arguments.done", **place, name=item["name"], arguments=item["arguments"]
                )
            else:
                yield event("response.output_item.added", output_index=index, item=item)
            yield event("response.output_item.done", output_index=index, item=item)
        yield event("response.completed", response=answer)

    def messages_events(self, answer):
        def event(kind, **fields):
            return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"

        yield event("message_start", message={**answer, "content": [], "stop_reason": None})
        for index, block in enumerate(answer["content"]):
            kind = block["type"]
            empty = {"thinking": {"thinking": "", "signature": ""}, "text": {"text": ""}, "tool_use": {"input": {}}}
            yield event("content_block_start", index=index, content_block={**block, **empty[kind]})
            if kind == "thinking":
                yield event(
                    "content_block_delta", index=index, delta={"type": "thinking_delta", "thinking": block["thinking"]}
                )
                seal = {"type": "signature_delta", "signature": block["signature"]}
                yield event("content_block_delta", index=index, delta=seal)
            elif kind == "text":
                for piece in self.pieces(block["text"]):
                    yield event("content_block_delta", index=index, delta={"type": "text_delta", "text": piece})
            else:
                for piece in self.pieces(json.dumps(block["input"])):
                    delta = {"type": "input_json_delta", "partial_json": piece}
                    yield event("content_block_delta", index=index, delta=delta)
            yield event("content_block_stop", index=index)
        yield event(
            "message_delta",
            delta={"stop_reason": "end_turn", "stop_sequence": None},
            usage={"output_tokens": 1},
        )
        yield event("message_stop")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    provider: WireProvider

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.provider.headers.append(dict(self.headers.items()))
        self.provider.paths.append(self.path)
        try:
            status, answer = 200, self.provider.handle(self.path.partition("?")[0], body)
        except RefusedError as refusal:
            self.provider.refusals.append(str(refusal))
            error = {"type": "invalid_request_error", "message": str(refusal), "code": None, "param": None}
            status, answer = 400, {"type": "error", "error": error}
        if status == 200 and body.get("stream"):
            self.stream(self.provider.events(self.path.partition("?")[0], answer))
        else:
            self.whole(status, json.dumps(answer).encode())

    def do_GET(self):
        self.provider.paths.append(self.path)
        self.whole(200, b'{"object": "list", "data": []}')

    def whole(self, status, data):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Upstream", "yes")
        self.end_headers()
        self.wfile.write(data)

    def stream(self, events):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for event in events:
                self.chunk(event.encode())
            self.chunk(b"")
        except OSError:
            self.close_connection = True

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


def provider_at(provider, handler=Handler):
    """Serve on a free port of 127.0.0.1 and give the address."""
    return listening(type("Handler", (handler,), {"provider": provider}))


@contextmanager
def proxy_at(app, **settings):
    """Serve an ASGI application on a free port of 127.0.0.1 and give the address."""
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, log_level="error", access_log=False, timeout_graceful_shutdown=2, lifespan="on", **settings
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        listening.close()
