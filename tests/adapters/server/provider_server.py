"""A provider on loopback: the rules of three APIs, a scripted model, and 400 for whatever breaks a rule.

The error texts are those that the providers' SDKs and issue threads quote. Two rules are stricter than life, so that a
silent mistake is an error here: an item of a stored id must be the stored copy, and thinking is bound to its prompt on
every request (Anthropic does this for some models only).
"""

from __future__ import annotations

import hashlib
import json
from http.server import BaseHTTPRequestHandler

from loopback import RefusedError, listening, require

ROWS = "\n".join(f"row {number}: the order left the warehouse, mail bob{number}@example.com" for number in range(40))


class Provider:
    """Judge requests, play the model, remember what was sent and issued.

    Args:
        window: characters of JSON that a request may take.
    """

    def __init__(self, window):
        self.window = window
        self.bodies = []
        self.refusals = []
        self.stored = {}
        self.reasoning_of = {}
        self.steps = {}

    def handle(self, path, body):
        self.bodies.append(body)
        require(
            len(json.dumps(body)) <= self.window,
            "This model's maximum context length is exceeded: context_length_exceeded",
        )
        answer = {"/v1/chat/completions": self.chat, "/v1/responses": self.responses, "/v1/messages": self.messages}[
            path
        ]
        return answer(body)

    # Chat Completions

    def chat(self, body):
        messages = body["messages"]
        waiting = []
        for message in messages:
            if message["role"] == "tool":
                require(
                    message["tool_call_id"] in waiting,
                    "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'",
                )
                waiting.remove(message["tool_call_id"])
                continue
            require(
                not waiting,
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following tool_call_ids did not have response messages: {waiting}",
            )
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
        require(not waiting, f"tool_call_ids did not have response messages: {waiting}")
        reply = {"role": "assistant", "content": "All done."}
        if self.wants_tools([m for m in messages if m["role"] == "user"]):
            call = {"type": "function", "function": {"name": "look_up", "arguments": '{"query": "ann"}'}}
            reply = {
                "role": "assistant",
                "content": None,
                "tool_calls": [{**call, "id": i} for i in self.ids("call", 2)],
            }
        choice = {"index": 0, "finish_reason": "stop", "message": reply}
        return {"id": "chat", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}

    def wants_tools(self, questions):
        """Call tools twice in each turn, then answer; a cut inside a turn does not make the model forget."""
        question = json.dumps(questions[-1])
        self.steps[question] = self.steps.get(question, 0) + 1
        return self.steps[question] <= 2

    def ids(self, prefix, count):
        return [f"{prefix}_{len(self.bodies)}_{number}" for number in range(count)]

    # Responses

    def responses(self, body):
        items = body["input"]
        self.judge_pairs(items)
        for place, item in enumerate(items):
            self.judge_item(items, place, item)
        return {
            "id": "resp",
            "object": "response",
            "created_at": 0,
            "model": "m",
            "status": "completed",
            "output": self.output(items),
        }

    def judge_pairs(self, items):
        calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
        outputs = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
        require(set(calls) <= set(outputs), f"No tool output found for function call {set(calls) - set(outputs)}.")
        require(
            set(outputs) <= set(calls),
            f"No tool call found for function call output with call_id {set(outputs) - set(calls)}.",
        )

    def judge_item(self, items, place, item):
        identity = item.get("id")
        if item.get("type") == "reasoning":
            following = items[place + 1].get("id") if place + 1 < len(items) else None
            require(
                self.reasoning_of.get(following) == identity,
                f"Item '{identity}' of type 'reasoning' was provided without its required following item.",
            )
        elif identity is not None:
            require(
                {k: item[k] for k in self.stored[identity]} == self.stored[identity],
                f"Item '{identity}' is not what is stored.",
            )
            needed = self.reasoning_of.get(identity)
            before = [other.get("id") for other in items[max(place - 3, 0) : place]]
            require(
                needed is None or needed in before,
                f"Item '{identity}' was provided without its required 'reasoning' item: '{needed}'.",
            )

    def output(self, items):
        (reasoning,) = self.ids("rs", 1)
        if self.wants_tools([item for item in items if item.get("role") == "user"]):
            made = [
                {
                    "type": "function_call",
                    "id": f"fc_{i}",
                    "call_id": i,
                    "name": "look_up",
                    "arguments": '{"query": "ann@example.com"}',
                    "status": "completed",
                }
                for i in self.ids("call", 2)
            ]
        else:
            (identity,) = self.ids("msg", 1)
            words = [{"type": "output_text", "text": "All done, ann@example.com.", "annotations": []}]
            made = [{"type": "message", "id": identity, "role": "assistant", "status": "completed", "content": words}]
        for item in made:
            self.stored[item["id"]] = {k: item[k] for k in ("arguments", "content") if k in item}
            self.reasoning_of[item["id"]] = reasoning
        return [{"type": "reasoning", "id": reasoning, "summary": []}, *made]

    # Messages

    def messages(self, body):
        messages = body["messages"]
        require(messages[0]["role"] == "user", 'messages: first message must use the "user" role')
        for place, message in enumerate(messages):
            self.judge_message(place, message, messages, body.get("system"))
        signature = self.signature(body.get("system"), messages)
        thinking = {"type": "thinking", "thinking": "Let me think.", "signature": signature}
        asked = [m for m in messages if m["role"] == "user" and self.blocks(m)[0]["type"] != "tool_result"]
        if self.wants_tools(asked):
            made = [
                {"type": "tool_use", "id": i, "name": "look_up", "input": {"query": "ann@example.com"}}
                for i in self.ids("toolu", 2)
            ]
        else:
            made = [{"type": "text", "text": "All done, ann@example.com."}]
        usage = {"input_tokens": 1, "output_tokens": 1}
        return {
            "id": "msg",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [thinking, *made],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": usage,
        }

    @staticmethod
    def blocks(message):
        content = message["content"]
        return [{"type": "text", "text": content}] if isinstance(content, str) else content

    def signature(self, system, messages):
        return hashlib.sha256(json.dumps([system, messages], sort_keys=True).encode()).hexdigest()

    def judge_message(self, place, message, messages, system):
        blocks = self.blocks(message)
        require(blocks, f"messages.{place}: content must not be empty")
        require(all(b.get("text", "x") for b in blocks), "messages: text content blocks must be non-empty")
        for block in blocks:
            if block["type"] == "thinking":
                require(
                    block["signature"] == self.signature(system, messages[:place]),
                    f"messages.{place}: Invalid signature in thinking block. The block is bound to a different conversation.",
                )
        used = {b["id"] for b in blocks if b["type"] == "tool_use"}
        following = self.blocks(messages[place + 1]) if place + 1 < len(messages) else []
        leading = {b.get("tool_use_id") for b in following[: len(used)]}
        require(
            used == leading if used else True,
            f"messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately after: {used - leading}",
        )
        results = {b["tool_use_id"] for b in blocks if b["type"] == "tool_result"}
        previous = {b["id"] for b in self.blocks(messages[place - 1]) if b["type"] == "tool_use"} if place else set()
        require(
            results <= previous,
            f"messages.{place}: unexpected `tool_use_id` found in `tool_result` blocks: {results - previous}",
        )


def serving(provider):
    """Serve on a free port of 127.0.0.1 and give the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                status, answer = 200, provider.handle(self.path, body)
            except RefusedError as refusal:
                provider.refusals.append(str(refusal))
                error = {"type": "invalid_request_error", "message": str(refusal), "code": None, "param": None}
                status, answer = 400, {"type": "error", "error": error}
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return listening(Handler)
