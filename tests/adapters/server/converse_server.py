"""Bedrock's Converse on loopback: what it refuses, a scripted thinking model, and its binary event stream.

Rules and texts are those of Amazon's pages and of issue threads. Stricter than life: reasoning is bound to all that
stands before it, as Anthropic's newest models have it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import zlib

from cloud_server import Script, tokens_of
from loopback import require


def event(kind, payload):
    """Return one message of `application/vnd.amazon.eventstream`: lengths, headers, payload, checksums."""
    body = json.dumps(payload).encode()
    headers = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in ((":event-type", kind), (":content-type", "application/json"), (":message-type", "event"))
    )
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + body
    return message + struct.pack(">I", zlib.crc32(message))


class Converse(Script):
    """Judge requests, play the model, remember what was sent and issued."""

    def __init__(self, steps=40, *, parallel=1, budget=8_000, thinks=True):
        super().__init__(steps, parallel=parallel, budget=budget)
        self.thinks = thinks

    def headers(self, status):
        return {} if status == 200 else {"x-amzn-ErrorType": "ValidationException"}

    def refused(self, message):
        return 400, "application/json", json.dumps({"message": message}).encode()

    def handle(self, path, body):
        self.bodies.append(body)
        self.judge(body)
        blocks, reason = self.reply(body)
        read = tokens_of(body)
        usage = {"inputTokens": read, "outputTokens": 1, "totalTokens": read + 1}
        if path.endswith("/converse-stream"):
            return 200, "application/vnd.amazon.eventstream", list(self.events(blocks, reason, usage))
        message = {"role": "assistant", "content": blocks}
        answer = {"output": {"message": message}, "stopReason": reason, "usage": usage, "metrics": {"latencyMs": 1}}
        return 200, "application/json", json.dumps(answer).encode()

    # the rules

    def judge(self, body):
        messages = body["messages"]
        require(messages and messages[0]["role"] == "user", "A conversation must start with a user message.")
        require(messages[-1]["role"] == "user", "This model does not support assistant message prefill.")
        for place, message in enumerate(messages):
            require(message["role"] in ("user", "assistant"), "messages.role: not a member of the enum")
            require(message["content"], f"The content field in the Message object at messages.{place} is empty.")
            for block in message["content"]:
                require(
                    "text" not in block or block["text"].strip(),
                    f"The text field in the ContentBlock object at messages.{place}.content is blank.",
                )
            require(
                set(map(frozenset, message["content"])) != {frozenset({"cachePoint"})}, "cachePoint must follow content"
            )
            if place:
                require(
                    message["role"] != messages[place - 1]["role"],
                    "A conversation must alternate between user and assistant roles. Make sure the conversation "
                    "alternates between user and assistant roles and try again.",
                )
            self.judge_pairs(messages, place)
            self.judge_reasoning(messages, place, body.get("system"))
        self.judge_budget(
            body, "The model returned the following errors: Input is too long: {found} tokens > {budget} maximum"
        )

    def judge_pairs(self, messages, place):
        used = [block["toolUse"]["toolUseId"] for block in messages[place]["content"] if "toolUse" in block]
        following = messages[place + 1]["content"] if place + 1 < len(messages) else []
        leading = [block.get("toolResult", {}).get("toolUseId") for block in following[: len(used)]]
        require(
            sorted(used) == sorted(map(str, leading)),
            f"Expected toolResult blocks at messages.{place + 1}.content for the following Ids: {used}, but found: {leading}",
        )
        results = [block["toolResult"] for block in messages[place]["content"] if "toolResult" in block]
        before = messages[place - 1]["content"] if place else []
        asked = {block["toolUse"]["toolUseId"] for block in before if "toolUse" in block}
        require(
            {result["toolUseId"] for result in results} <= asked,
            f"The number of toolResult blocks at messages.{place}.content exceeds the number of toolUse blocks of previous turn.",
        )
        require(all(isinstance(result["content"], list) for result in results), "toolResult.content: not a list")

    def judge_reasoning(self, messages, place, system):
        for block in messages[place]["content"]:
            said = block.get("reasoningContent", {}).get("reasoningText")
            require(
                said is None or said.get("signature") == self.signature(system, messages[:place], said["text"]),
                f"messages.{place}.content.0: Invalid `signature` in `thinking` block",
            )

    @staticmethod
    def signature(system, messages, text):
        return hashlib.sha256(json.dumps([system, messages, text], sort_keys=True).encode()).hexdigest()

    # the model

    def reply(self, body):
        self.answered += 1
        address = self.address(body)
        blocks = []
        if self.thinks:
            text = f"Step {self.answered} for {address}."
            sealed = self.signature(body.get("system"), body["messages"], text)
            blocks.append({"reasoningContent": {"reasoningText": {"text": text, "signature": sealed}}})
        if self.answered > self.steps:
            return [*blocks, {"text": f"All done, {address}."}], "end_turn"
        blocks.append({"text": f"Let me look for {address}."})
        for number in range(self.parallel):
            arguments = {"query": f"parcels of {address}", "page": self.answered}
            identity = f"tooluse_{self.answered}_{number}"
            blocks.append({"toolUse": {"toolUseId": identity, "name": "look_up", "input": arguments}})
        return blocks, "tool_use"

    def events(self, blocks, reason, usage):
        yield event("messageStart", {"role": "assistant"})
        for index, block in enumerate(blocks):
            place = {"contentBlockIndex": index}
            for delta in self.deltas(block):
                if "start" in delta:
                    yield event("contentBlockStart", {**delta, **place})
                else:
                    yield event("contentBlockDelta", {"delta": delta, **place})
            yield event("contentBlockStop", place)
        yield event("messageStop", {"stopReason": reason})
        yield event("metadata", {"usage": usage, "metrics": {"latencyMs": 1}})

    @staticmethod
    def deltas(block):
        if "text" in block:
            yield from ({"text": piece} for piece in pieces(block["text"]))
        elif "toolUse" in block:
            use = block["toolUse"]
            yield {"start": {"toolUse": {"toolUseId": use["toolUseId"], "name": use["name"]}}}
            yield from ({"toolUse": {"input": piece}} for piece in pieces(json.dumps(use["input"])))
        else:
            said = block["reasoningContent"]["reasoningText"]
            yield {"reasoningContent": {"text": said["text"]}}
            yield {"reasoningContent": {"signature": said["signature"]}}


def pieces(text, size=7):
    return [text[start : start + size] for start in range(0, len(text), size)]


PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
