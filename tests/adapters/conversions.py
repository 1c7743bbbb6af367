"""The same conversation in each format: Chat Completions dicts are the starting point, as the recordings are."""

from __future__ import annotations

import base64
import gzip
import json
from itertools import pairwise


def recorded(folder, every):
    """Walk one session in `every` of each recording, as (id, messages)."""
    for file in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                if number % every == 0:
                    session = json.loads(line)
                    yield session["id"], session["messages"]


def has_ids(messages):
    """Tell whether every call and every result carries an id, as most formats demand."""
    calls = [call for m in messages for call in m.get("tool_calls") or ()]
    return all(call.get("id") for call in calls) and all(m.get("tool_call_id") for m in messages if m["role"] == "tool")


def is_plain(messages):
    """Tell whether a session holds nothing that has no equal in the other formats."""
    texts = all(isinstance(m.get("content"), str) or m.get("content") is None for m in messages)
    replies = all(m.get("content") or m.get("tool_calls") for m in messages if m["role"] == "assistant")
    followed = all(not (was["role"] == now["role"] == "assistant") for was, now in pairwise(messages))
    systems = [n for n, m in enumerate(messages) if m["role"] == "system"]
    users = all("tool_calls" not in m for m in messages if m["role"] != "assistant")
    return texts and replies and followed and users and systems in ([], [0]) and has_ids(messages)


def bare(messages):
    """Return chat messages without what no other format has: names of tools, compact arguments."""
    return [_bare(m) for m in messages]


def _bare(message):
    kept = {
        k: v for k, v in message.items() if k in ("role", "content", "tool_call_id", "tool_calls", "reasoning_content")
    }
    if kept.get("tool_calls"):
        kept["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": _compact(call["function"]["arguments"])}}
            for call in kept["tool_calls"]
        ]
    return kept


def _compact(arguments):
    from pydantic_core import to_json

    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        value = {"INVALID_JSON": arguments}
    return to_json(value if isinstance(value, dict) else {"INVALID_JSON": arguments}).decode()


def _text(content):
    if isinstance(content, list):
        return "\n".join(part.get("text") or "" for part in content)
    return content or ""


def responses_of(messages):
    """Return chat messages as Responses items, stored ids and all."""
    items = []
    for number, message in enumerate(messages):
        role = message["role"]
        if role == "tool":
            output = _text(message["content"])
            items.append({"type": "function_call_output", "call_id": message.get("tool_call_id"), "output": output})
        elif role == "assistant":
            items += _reply_items(message, number)
        else:
            items.append({"role": role, "content": _input_parts(message.get("content"))})
    return items


def _reply_items(message, number):
    text = _text(message.get("content"))
    if message.get("reasoning_content"):
        summary = [{"type": "summary_text", "text": message["reasoning_content"]}]
        yield {"type": "reasoning", "id": f"rs_{number}", "summary": summary}
    if text or not message.get("tool_calls"):
        content = [{"type": "output_text", "text": text, "annotations": []}] if text else []
        yield {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": content}
    for place, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        yield {
            "type": "function_call",
            "id": f"fc_{number}_{place}",
            "call_id": call.get("id"),
            "name": function["name"],
            "arguments": function["arguments"],
        }


def _input_parts(content):
    if not isinstance(content, list):
        return content or ""
    return [
        {"type": "input_text", "text": part["text"]}
        if part["type"] == "text"
        else {"type": "input_image", "image_url": part["image_url"]["url"]}
        if part["type"] == "image_url"
        else {"type": "input_file", "file_data": json.dumps(part)}
        for part in content
    ]


def anthropic_of(messages):
    """Return chat messages as an Anthropic request: results together in one message, ids made up where there are none."""
    request = {"messages": []}
    out = request["messages"]
    for message in _with_ids(messages):
        role = message["role"]
        if role == "system" and not out and "system" not in request:
            request["system"] = _text(message["content"])
        elif role == "tool":
            block = {
                "type": "tool_result",
                "tool_use_id": message["tool_call_id"],
                "content": _text(message["content"]),
            }
            if out and out[-1]["role"] == "user" and out[-1]["content"][0].get("type") == "tool_result":
                out[-1]["content"].append(block)
            else:
                out.append({"role": "user", "content": [block]})
        elif role == "assistant":
            out.append({"role": "assistant", "content": _reply_blocks(message)})
        else:
            out.append({"role": role, "content": [{"type": "text", "text": _text(message.get("content"))}]})
    return request


def _reply_blocks(message):
    text = _text(message.get("content"))
    blocks = []
    if message.get("reasoning_content"):
        blocks.append({"type": "thinking", "thinking": message["reasoning_content"], "signature": "sig"})
    if text:
        blocks.append({"type": "text", "text": text})
    for call in message.get("tool_calls") or ():
        function = call["function"]
        blocks.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": _input(function)})
    return blocks or text


def _input(function):
    try:
        value = json.loads(function["arguments"] or "{}")
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"arguments": function["arguments"]}


def _with_ids(messages):
    """Give calls and results ids in their order where a recording has none."""
    waiting = []
    for number, message in enumerate(messages):
        if message.get("tool_calls") and message["role"] == "assistant":
            calls = [{**c, "id": c.get("id") or f"made_{number}_{n}"} for n, c in enumerate(message["tool_calls"])]
            waiting = [call["id"] for call in calls]
            yield {**message, "tool_calls": calls}
        elif message["role"] == "tool":
            given = message.get("tool_call_id") or (waiting[0] if waiting else f"lost_{number}")
            waiting = [identity for identity in waiting if identity != given]
            yield {**message, "tool_call_id": given}
        else:
            yield message


def gemini_of(messages):
    """Return chat messages as a Gemini request: results together in one content, each with the name of its function."""
    request, names = {"contents": []}, {}
    out = request["contents"]
    for message in _with_ids(messages):
        role, text = message["role"], _text(message.get("content"))
        if role == "system" and not out and "systemInstruction" not in request:
            request["systemInstruction"] = {"parts": [{"text": text}]}
        elif role == "tool":
            identity = message["tool_call_id"]
            response = {"id": identity, "name": names.get(identity, "tool"), "response": {"output": text}}
            if out and out[-1]["role"] == "user" and "functionResponse" in out[-1]["parts"][0]:
                out[-1]["parts"].append({"functionResponse": response})
            else:
                out.append({"role": "user", "parts": [{"functionResponse": response}]})
        elif role == "assistant":
            parts = [{"text": text}] if text or not message.get("tool_calls") else []
            for call in message.get("tool_calls") or ():
                names[call["id"]] = call["function"]["name"]
                parts.append(
                    {"functionCall": {"id": call["id"], "name": names[call["id"]], "args": _input(call["function"])}}
                )
            out.append({"role": "model", "parts": parts})
        else:
            out.append({"role": "user", "parts": [{"text": text}]})
    return request


def converse_of(messages):
    """Return chat messages as a Bedrock Converse request; messages of the same role in a row become one."""
    request = {"messages": []}
    out = request["messages"]
    for message in _with_ids(messages):
        role, text = message["role"], _text(message.get("content"))
        if role == "system" and not out and "system" not in request:
            request["system"] = [{"text": text}]
            continue
        blocks = [{"text": text}] if text or not message.get("tool_calls") else []
        if role == "tool":
            blocks = [{"toolResult": {"toolUseId": message["tool_call_id"], "content": [{"text": text}]}}]
        for call in message.get("tool_calls") or () if role == "assistant" else ():
            function = call["function"]
            blocks.append({"toolUse": {"toolUseId": call["id"], "name": function["name"], "input": _input(function)}})
        wire_role = "assistant" if role == "assistant" else "user"
        if out and out[-1]["role"] == wire_role:
            out[-1]["content"] += blocks
        else:
            out.append({"role": wire_role, "content": blocks})
    return request


def pydantic_ai_of(messages):
    """Return chat messages as PydanticAI's: what stands between two replies is one request."""
    from pydantic_ai.messages import (
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )

    history, names = [], {}
    for number, message in enumerate(_with_ids(messages)):
        role = message["role"]
        if role == "assistant":
            parts = [TextPart(_text(message["content"]))] if message.get("content") else []
            if message.get("reasoning_content"):
                parts.insert(0, ThinkingPart(message["reasoning_content"]))
            for call in message.get("tool_calls") or ():
                names[call["id"]] = call["function"]["name"]
                parts.append(ToolCallPart(call["function"]["name"], call["function"]["arguments"], call["id"]))
            history.append(ModelResponse(parts=parts, run_id=f"run-{number}"))
            continue
        if role == "tool":
            identity = message["tool_call_id"]
            part = ToolReturnPart(names.get(identity, "tool"), _text(message["content"]), identity)
        elif role == "system":
            part = SystemPromptPart(_text(message["content"]))
        else:
            part = UserPromptPart(_user_content(message.get("content")))
        if history and isinstance(history[-1], ModelRequest):
            history[-1].parts.append(part)
        else:
            history.append(ModelRequest(parts=[part], run_id=f"run-{number}"))
    return history


def _user_content(content):
    from pydantic_ai.messages import BinaryContent, ImageUrl

    if not isinstance(content, list):
        return content or ""
    items = []
    for part in content:
        url = part["image_url"]["url"] if part["type"] == "image_url" else ""
        if part["type"] == "text":
            items.append(part["text"])
        elif url.startswith("data:"):
            kind, _, data = url.removeprefix("data:").partition(";base64,")
            items.append(BinaryContent(base64.b64decode(data), media_type=kind))
        else:
            items.append(ImageUrl(url or "https://example.com/file.png"))
    return items


def langchain_of(messages):
    """Return chat messages as LangChain's, without loss of what the model reads."""
    return [_langchain_message(message) for message in messages]


def _langchain_message(message):
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    content, name = message.get("content") or "", message.get("name")
    match message["role"]:
        case "system" | "developer":
            return SystemMessage(content, name=name)
        case "user":
            return HumanMessage(content, name=name)
        case "tool":
            return ToolMessage(content, tool_call_id=message.get("tool_call_id") or "", name=name)
    valid, invalid = [], []
    for call in message.get("tool_calls") or ():
        _sort_call(call, valid, invalid)
    spoken = {key: message[key] for key in ("reasoning_content", "refusal") if message.get(key)}
    return AIMessage(content, name=name, tool_calls=valid, invalid_tool_calls=invalid, additional_kwargs=spoken)


def _sort_call(call, valid, invalid):
    name, text = call["function"]["name"], call["function"]["arguments"]
    try:
        args = json.loads(text)
    except ValueError:
        args = None
    if isinstance(args, dict):
        valid.append({"name": name, "args": args, "id": call.get("id")})
    else:
        invalid.append({"name": name, "args": text, "id": call.get("id"), "error": None})


def as_langchain_sends(session):
    """Spell a session of dicts as LangChain would: arguments as its OpenAI converter, an empty id is none.

    Keys that no message of LangChain has a place for go: they are counted wherever they are sent.
    """
    known = ("role", "content", "name", "tool_call_id", "tool_calls", "reasoning_content", "refusal")
    return [_spelled({key: message[key] for key in known if key in message}) for message in session]


def _spelled(message):
    if message["content"] == []:
        message = {**message, "content": ""}
    if message.get("tool_call_id") == "":
        return {**message, "tool_call_id": None}
    if message.get("tool_calls"):
        return {**message, "tool_calls": [_spelled_call(call) for call in message["tool_calls"]]}
    return message


def _spelled_call(call):
    function = call["function"]
    try:
        args = json.loads(function["arguments"])
    except ValueError:
        args = None
    text = function["arguments"]
    if isinstance(args, dict):
        text = json.dumps(args, ensure_ascii=False, separators=(",", ":"))
    return {**call, "id": call.get("id") or None, "function": {**function, "arguments": text}}
