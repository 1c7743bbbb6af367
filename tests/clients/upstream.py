"""A strict provider for real clients: it judges every request by the rules of its API, and plays a coding agent.

The model reads files one after the other by the tools that the client has, copies a line that holds personal data into
a new file, and ends. What a rule of the API forbids is answered with 400, as the API does.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / place) for place in ("wire", "adapters/server")]

from loopback import RefusedError, require  # noqa: E402 - behind the path
from wire_server import Handler, WireProvider, provider_at  # noqa: E402, F401 - the last for the driver

HELD = re.compile(r"<EMAIL_[\d_]+>|[\w.]+@planted\.example")
PATHS = ("file_path", "filePath", "absolute_path", "path")
READS, WRITES, SHELLS = (
    ("Read", "read_file", "read"),
    ("Write", "write_file", "write"),
    ("exec_command", "shell", "bash"),
)


class AgentProvider(WireProvider):
    """Play a coding agent in a folder.

    Args:
        folder: where the files are.
        files: how many are read before one is written.
    """

    def __init__(self, folder, files):
        super().__init__(steps=0)
        self.folder, self.files, self.step = Path(folder), files, 0
        self.piece = 40

    def handle(self, path, body):
        self.bodies.append(body)
        if path.endswith(("/count_tokens", ":countTokens")):
            tokens = self.tokens(body)
            return {"input_tokens": tokens, "totalTokens": tokens}
        kind = next((k for k in ("completions", "responses", "messages") if path.endswith(k)), "gemini")
        return {"completions": self.chat, "responses": self.responses, "messages": self.messages}.get(
            kind, self.gemini
        )(body)

    # what the model does next

    def call(self, body):
        """Return the name and the arguments of the next tool call; None at the end and where a client only asks."""
        tools = dict(tools_of(body))
        if not tools or self.step > self.files:
            return None
        step, self.step = self.step, self.step + 1
        is_last = step == self.files
        history = next((body[key] for key in ("messages", "input", "contents") if key in body), None)
        held = HELD.findall(json.dumps(history))
        name = next((n for n in (WRITES if is_last else READS) if n in tools), None)
        target = str(self.folder / ("report.txt" if is_last else f"file_{step}.py"))
        text = f"contact: {held[-1] if held else 'nobody'}\n"
        if name is not None:
            key = next((k for k in PATHS if k in tools[name].get("properties", {})), PATHS[0])
            return name, {key: target, **({"content": text} if is_last else {})}
        shell = next((n for n in SHELLS if n in tools), None)
        if shell is None:
            return None
        command = f"cat > {target} <<'END'\n{text}END" if is_last else f"cat {target}"
        arguments = {"exec_command": {"cmd": command}, "bash": {"command": command, "description": "write"}}
        return shell, arguments.get(shell) or {"command": ["bash", "-lc", command]}

    # the four APIs

    def usage(self, body):
        return self.tokens(body)

    def chat(self, body):
        answer = {"id": f"chat_{len(self.bodies)}", "object": "chat.completion", "created": 0, "model": body["model"]}
        judge_chat(body["messages"])
        call = self.call(body)
        message = {"role": "assistant", "content": None if call else "All done."}
        if call:
            function = {"name": call[0], "arguments": json.dumps(call[1])}
            message["tool_calls"] = [{"id": f"call_{len(self.bodies)}", "type": "function", "function": function}]
        choice = {"index": 0, "finish_reason": "tool_calls" if call else "stop", "message": message}
        tokens = self.usage(body)
        usage = {"prompt_tokens": tokens, "completion_tokens": 9, "total_tokens": tokens + 9}
        return {**answer, "choices": [choice], "usage": usage}

    def responses(self, body):
        items = body["input"]
        self.judge_pairs([item for item in items if isinstance(item, dict)])
        call, number = self.call(body), len(self.bodies)
        if call:
            made = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": call[0]}
            made |= {"arguments": json.dumps(call[1]), "status": "completed"}
        else:
            words = [{"type": "output_text", "text": "All done.", "annotations": []}]
            made = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": words}
        tokens = self.usage(body)
        usage = {"input_tokens": tokens, "output_tokens": 9, "total_tokens": tokens + 9}
        head = {"id": f"resp_{number}", "object": "response", "created_at": 0, "model": body["model"]}
        return {**head, "status": "completed", "output": [made], "usage": usage}

    def messages(self, body):
        messages = body["messages"]
        require(messages[0]["role"] == "user", 'messages: first message must use the "user" role')
        for place, message in enumerate(messages):
            self.judge_message(place, message, messages, body.get("system"))
        judge_thinking(body, messages)
        call, content = self.call(body), []
        if (body.get("thinking") or {}).get("type") in ("enabled", "adaptive"):
            content = [{"type": "thinking", "thinking": "Let me think.", "signature": "c2lnbmVkLWJ5LW5vYm9keQ=="}]
        made = (
            {"type": "tool_use", "id": f"toolu_{len(self.bodies)}", "name": call[0], "input": call[1]} if call else None
        )
        content.append(made or {"type": "text", "text": "All done."})
        usage = {"input_tokens": self.usage(body), "output_tokens": 9}
        head = {"id": f"msg_{len(self.bodies)}", "type": "message", "role": "assistant", "model": body["model"]}
        stop = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
        return {**head, "content": content, "usage": usage, **stop}

    def signature(self, system, messages):
        return "c2lnbmVkLWJ5LW5vYm9keQ=="

    def messages_events(self, answer):
        for event in super().messages_events(answer):
            yield event.replace('"stop_reason": "end_turn"', f'"stop_reason": "{answer["stop_reason"]}"')

    def gemini(self, body):
        judge_gemini(body["contents"])
        call = self.call(body)
        part = {"functionCall": {"name": call[0], "args": call[1]}} if call else {"text": "All done."}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        tokens = self.usage(body)
        usage = {"promptTokenCount": tokens, "candidatesTokenCount": 9, "totalTokenCount": tokens + 9}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini"}

    def tokens(self, body):
        gemini = {"contents": "messages", "systemInstruction": "system"}
        return super().tokens({gemini.get(key, key): value for key, value in body.items()})

    def events(self, path, answer):
        if ":" in path.rpartition("/")[2]:
            yield f"data: {json.dumps(answer)}\r\n\r\n"
            return
        usage = answer.get("usage")
        if path.endswith("/chat/completions"):
            events = list(self.chat_events(answer))
            yield from events[:-1]
            yield f"data: {json.dumps({**answer, 'object': 'chat.completion.chunk', 'choices': [], 'usage': usage})}\n\n"
            yield events[-1]
        else:
            yield from super().events(path, answer)


class AgentHandler(Handler):
    """Stream where the path of Gemini asks for it, and take the path without what a gateway adds."""

    def do_POST(self):  # noqa: N802 - the name that the standard library calls
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        path = self.path.partition("?")[0]
        self.provider.paths.append(path)
        try:
            status, answer = 200, self.provider.handle(path, body)
        except (RefusedError, KeyError) as refusal:
            self.provider.refusals.append(f"{path}: {refusal!r}")
            error = {"type": "invalid_request_error", "message": str(refusal), "code": None, "param": None}
            status, answer = 400, {"type": "error", "error": error}
        if status == 200 and (body.get("stream") or path.endswith(":streamGenerateContent")):
            self.stream(self.provider.events(path, answer))
        else:
            self.whole(status, json.dumps(answer).encode())


def tools_of(body):
    """Walk the names and the schemas of the tools of a request."""
    for tool in body.get("tools") or ():
        if "functionDeclarations" in tool:
            for each in tool["functionDeclarations"]:
                yield each["name"], each.get("parametersJsonSchema") or each.get("parameters") or {}
            continue
        own = tool.get("function", tool)
        if "name" in own:
            yield own["name"], own.get("parameters") or own.get("input_schema") or {}


def judge_chat(messages):
    waiting = []
    for message in messages:
        if message["role"] == "tool":
            require(message["tool_call_id"] in waiting, "a tool message must answer a preceding tool call")
            waiting.remove(message["tool_call_id"])
            continue
        require(not waiting, f"tool_call_ids did not have response messages: {waiting}")
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
    require(not waiting, f"tool_call_ids did not have response messages: {waiting}")


def judge_thinking(body, messages):
    """Refuse an open tool loop whose last assistant message lost its thinking, where a request enables it."""
    last = next((m for m in reversed(messages) if m["role"] == "assistant"), None)
    if (body.get("thinking") or {}).get("type") != "enabled" or last is None or isinstance(last["content"], str):
        return
    kinds = [block["type"] for block in last["content"]]
    require("tool_use" not in kinds or kinds[0] == "thinking", "Expected `thinking`, but found `tool_use`")


def judge_gemini(contents):
    require(contents[0]["role"] == "user", "the first content must be of role user")
    for at, content in enumerate(contents):
        calls = sum("functionCall" in part for part in content["parts"])
        following = contents[at + 1]["parts"] if at + 1 < len(contents) else []
        answers = sum("functionResponse" in part for part in following)
        require(calls == answers, "the number of function response parts must equal that of function call parts")
