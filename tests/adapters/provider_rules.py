"""What each API refuses in a history, as plain rules over the JSON that is sent. Nothing here is shared with ctxguard.

The rules are those of the providers' error messages, which each refusal quotes or paraphrases.
"""

from __future__ import annotations

import json
import re
from collections import Counter

ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class RefusedError(Exception):
    """The API would answer with status 400."""


def require(holds, message):
    if not holds:
        raise RefusedError(message)


def judge(api, body):
    """Raise `RefusedError` if the API refuses the body."""
    written = json.dumps(body, ensure_ascii=False)
    try:
        written.encode()
    except UnicodeEncodeError:
        raise RefusedError("The request body is not valid JSON: no low surrogate in string") from None
    JUDGES[api](body)


def judge_chat(body, *, strict=False):
    waiting, last = Counter(), None
    for place, message in enumerate(body["messages"]):
        role, content, calls = message["role"], message.get("content"), message.get("tool_calls")
        require(content is not None or calls or message.get("audio"), f"messages[{place}]: expected a string, got null")
        require(content != [] and calls != [], f"messages[{place}]: empty array")
        if isinstance(content, list):
            require(all(p.get("text", "") is not None for p in content), "expected a string, got null")
        if role == "tool":
            require(message.get("tool_call_id"), "missing field `tool_call_id`")
            require(waiting[message["tool_call_id"]] > 0, "messages with role 'tool' must follow 'tool_calls'")
            waiting[message["tool_call_id"]] -= 1
        else:
            require(not +waiting, "tool_call_ids did not have response messages")
            for call in calls or ():
                require(call.get("id"), "tool_calls[].id: missing")
                require(is_object(call["function"]["arguments"]), "arguments must be a valid JSON object string")
            waiting = Counter(call["id"] for call in calls or ())
            require(all(n == 1 for n in waiting.values()), "duplicate ids in one message")
        if strict:
            require(role != "system" or place == 0, "System message must be at the beginning")
            require((last, role) not in (("user", "user"), ("tool", "user"), ("assistant", "assistant")), "roles")
        last = role
    require(not +waiting, "tool_call_ids did not have response messages")


def judge_responses(body):
    calls, outputs, ids = [], [], []
    for place, item in enumerate(body["input"]):
        kind = item.get("type", "message")
        ids += [item["id"]] if "id" in item else []
        if kind == "message":
            require(item.get("content") not in (None, []), f"input[{place}].content: got null or an empty array")
        elif kind == "function_call":
            require(ID.fullmatch(item.get("call_id") or ""), f"input[{place}].call_id: {item.get('call_id')!r}")
            require(item["call_id"] not in calls, "Duplicate item found")
            require(is_object(item["arguments"]), "arguments must be a valid JSON object string")
            calls.append(item["call_id"])
        elif kind == "function_call_output":
            require(item.get("call_id") in calls, "No tool call found for function call output")
            require(item["call_id"] not in outputs, "Duplicate output")
            require(item.get("output") is not None, "output: got null")
            outputs.append(item["call_id"])
    require(sorted(calls) == sorted(outputs), "No tool output found for function call")
    require(all(ids), "Expected an ID, got an empty string")
    require(len(ids) == len(set(ids)), "Duplicate item found with id. Remove duplicate items from your input")


def judge_anthropic(body):
    messages, known = body["messages"], []
    for part in body["system"] if isinstance(body.get("system"), list) else ():
        require(part["text"].strip(), "system: text content blocks must be non-empty")
    require(messages[0]["role"] == "user", 'first message must use the "user" role')
    for place, message in enumerate(messages):
        blocks = blocks_of(message, "text")
        require(blocks, f"messages.{place}: all messages must have non-empty content")
        judge_texts(blocks)
        uses = [block for block in blocks if block["type"] == "tool_use"]
        known += [block["id"] for block in blocks if block["type"].endswith("tool_use")]
        for use in uses:
            require(ID.fullmatch(use["id"] or ""), "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
            require(isinstance(use["input"], dict), "tool_use.input: Input should be a valid dictionary")
        following = blocks_of(messages[place + 1], "text") if place + 1 < len(messages) else []
        leading = [block.get("tool_use_id") for block in following[: len(uses)]]
        require(
            sorted(use["id"] for use in uses) == sorted(map(str, leading)),
            f"messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately after",
        )
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        before = blocks_of(messages[place - 1], "text") if place else []
        asked = [block["id"] for block in before if block["type"] == "tool_use"]
        require(sorted(results) == sorted(asked), "unexpected `tool_use_id` found in `tool_result` blocks")
        ends = ("server_tool_use", "mcp_tool_use", "_tool_result")
        own = [b for b in blocks if b["type"].endswith(ends)]
        judge_own(
            [(b.get("id", b.get("tool_use_id")), "tool_use_id" in b) for b in own], is_end=place == len(messages) - 1
        )
    require(len(known) == len(set(known)), "`tool_use` ids must be unique")


def judge_texts(blocks):
    for block in blocks:
        require(block["type"] != "text" or (block["text"] or "").strip(), "text content blocks must be non-empty")
        if block["type"] == "tool_result" and isinstance(block.get("content"), list):
            judge_texts(block["content"])


def judge_own(halves, *, is_end):
    """Hold the provider's own calls of one message to their results, which follow them in the same message."""
    waiting = []
    for identity, is_result in halves:
        if is_result:
            require(identity in waiting, "must have a corresponding `server_tool_use` block before it")
            waiting.remove(identity)
        else:
            require(identity, "server_tool_use.id: empty")
            waiting.append(identity)
    require(is_end or not waiting, "was found without a corresponding `…_tool_result` block")


def judge_gemini(body):
    contents = body["contents"]
    require(contents[0]["role"] == "user", "multiturn requests begin with a user turn")
    for place, content in enumerate(contents):
        parts, before = content.get("parts"), contents[place - 1] if place else {"role": "", "parts": []}
        require(parts, f"contents[{place}].parts: must not be empty")
        for part in parts:
            require(part.get("text", "x") not in ("", None), "it has an empty text parameter")
        called, answered = named(parts, "functionCall"), named(parts, "functionResponse")
        following = contents[place + 1]["parts"] if place + 1 < len(contents) else []
        if called:
            require(before["role"] == "user", "function call turn comes immediately after a user turn")
            require(called == named(following, "functionResponse"), "number of function response parts is equal")
            arguments = [p["functionCall"].get("args") for p in parts if "functionCall" in p]
            require(all(one is None or isinstance(one, dict) for one in arguments), "args: Proto field is not a Struct")
        if answered:
            require(
                answered == named(before["parts"], "functionCall"), "response turn comes after a function call turn"
            )
        judge_own(
            [
                ("code", "codeExecutionResult" in p)
                for p in parts
                if "executableCode" in p or "codeExecutionResult" in p
            ],
            is_end=place == len(contents) - 1,
        )


def named(parts, key):
    return sorted(part[key]["name"] for part in parts if key in part)


def judge_converse(body):
    messages, known = body["messages"], []
    require(messages[0]["role"] == "user", "A conversation must start with a user message.")
    for place, message in enumerate(messages):
        blocks = message["content"]
        require(blocks, f"The content field in the Message object at messages.{place} is empty.")
        require(not place or message["role"] != messages[place - 1]["role"], "A conversation must alternate")
        inner = [one for block in blocks for one in block.get("toolResult", {}).get("content", ())]
        for block in [*blocks, *inner]:
            require("text" not in block or (block["text"] or "").strip(), "The text field is blank")
        uses = [block["toolUse"] for block in blocks if "toolUse" in block]
        known += [use["toolUseId"] for use in uses]
        for use in uses:
            require(ID.fullmatch(use["toolUseId"] or ""), "toolUseId: failed to satisfy constraint")
            require(isinstance(use["input"], dict), "toolUse.input: not a JSON object")
        own = [use["toolUseId"] for use in uses if use.get("type") is None]
        following = messages[place + 1]["content"] if place + 1 < len(messages) else []
        leading = [block.get("toolResult", {}).get("toolUseId") for block in following[: len(own)]]
        require(sorted(own) == sorted(map(str, leading)), "Expected toolResult blocks")
        results = [block["toolResult"] for block in blocks if "toolResult" in block]
        before = messages[place - 1]["content"] if place else []
        asked = [b["toolUse"]["toolUseId"] for b in before if "toolUse" in b and b["toolUse"].get("type") is None]
        answered = [result["toolUseId"] for result in results if result.get("type") is None]
        require(
            sorted(answered) == sorted(asked), "The number of toolResult blocks exceeds the number of toolUse blocks"
        )
        halves = [block.get("toolUse") or block.get("toolResult") for block in blocks]
        judge_own(
            [(half["toolUseId"], half["type"] != "server_tool_use") for half in halves if half and half.get("type")],
            is_end=place == len(messages) - 1,
        )
    require(len(known) == len(set(known)), "contain duplicate Ids")


def blocks_of(message, key):
    content = message["content"]
    if isinstance(content, str):
        return [{"type": "text", key: content}] if content else []
    return content


def is_object(text):
    def refuse(name):
        raise ValueError(name)

    try:
        return isinstance(json.loads(text, parse_constant=refuse), dict)
    except (ValueError, TypeError):
        return False


JUDGES = {
    "chat": judge_chat,
    "responses": judge_responses,
    "anthropic": judge_anthropic,
    "gemini": judge_gemini,
    "converse": judge_converse,
}
