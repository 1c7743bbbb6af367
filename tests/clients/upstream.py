"""A strict provider for real clients: it judges every request by the rules of its API, and plays a coding agent.

The model reads files by the tools that the client has, copies lines with personal data into new files, and ends. What a
rule of the API forbids is answered with 400, as the API does.
"""

from __future__ import annotations

import json
import re
import sys
import zlib
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / place) for place in ("wire", "adapters/server")]

from loopback import RefusedError, require  # noqa: E402 - behind the path
from planted import FUNCTIONS, owner  # noqa: E402
from wire_server import Handler, WireProvider, provider_at  # noqa: E402, F401 - the last for the driver

LINE = re.compile(r"owner of step_(\d+): ([^\\\"\n]+)")
BODY = re.compile(r"return value \* (\d+) \+ (\d+)  # of step")
PATHS = ("file_path", "filePath", "absolute_path", "path")
READS, WRITES, SHELLS = (
    ("Read", "read_file", "read"),
    ("Write", "write_file", "write", "write_to_file"),
    ("exec_command", "shell", "bash", "execute_command", "run_commands"),
)
ENDS = ("attempt_completion", "submit_and_exit")
EDIT = "report.txt\n```\n<<<<<<< SEARCH\n=======\n{}>>>>>>> REPLACE\n```\n"
"""How a model without tools writes a file, for clients whose prompt explains it."""
THOUGHT = {"type": "thinking", "thinking": "Let me think.", "signature": "c2lnbmVkLWJ5LW5vYm9keQ=="}


def planned(files, parallel):
    """Return the steps of an agent: it reads the files, some at once, and after every third step it writes a line."""
    steps, last = [], 0
    for first in range(0, files, parallel):
        last = min(first + parallel, files) - 1
        steps.append([("read", n) for n in range(first, last + 1)])
        if len(steps) % 4 == 3:
            steps.append([("write", last)])
    return [*steps, [("write", last)]]


class AgentProvider(WireProvider):
    """Play a coding agent in a folder.

    Args:
        folder: where the files are.
        files: how many are read.
        parallel: how many are read in one step.

    Attributes:
        loop: path and body of each request of the agent's main loop.
        raw: every body as it came, after decompression.
        whole: files of which one request held every line.
        written: what each written file must hold, by its path.
        statuses: how often each status was answered.
        is_over: whether the agent came to its end.
    """

    def __init__(self, folder, files, *, parallel=1):
        super().__init__(steps=0)
        self.folder, self.plan, self.piece = Path(folder), planned(files, parallel), 40
        self.loop, self.raw, self.whole, self.written, self.statuses = [], [], set(), {}, Counter()
        self.path, self.first, self.is_over = "", "", False

    def handle(self, path, body):
        self.bodies.append(body)
        if path.endswith(("/count_tokens", ":countTokens", "/input_tokens")):
            tokens = self.tokens(body)
            return {"input_tokens": tokens, "totalTokens": tokens}
        self.path = path
        kind = next((k for k in ("completions", "responses", "messages") if path.endswith(k)), "gemini")
        return {"completions": self.chat, "responses": self.responses, "messages": self.messages}.get(
            kind, self.gemini
        )(body)

    # what the model does next

    def said(self, body):
        """Return the calls that the model makes next, and what it says where it makes none."""
        tools = dict(tools_of(body))
        text = json.dumps(next((body[key] for key in ("messages", "input", "contents") if key in body), None))
        seen = Counter(int(step) for _, step in set(BODY.findall(text)))
        self.whole |= {step for step, lines in seen.items() if lines == FUNCTIONS}
        held = {int(step): line.strip() for step, line in LINE.findall(text)}
        self.first = self.first or held.get(0, "")
        if not tools and "SEARCH/REPLACE" in text:
            self.loop.append((self.path, body))
            self.is_over = True
            return [], EDIT.format(self.line(max(held, default=0), held, "report.txt"))
        if not tools:
            return [], "All done."
        self.loop.append((self.path, body))
        if self.plan:
            return [self.call(tools, action, step, held) for action, step in self.plan.pop(0)], ""
        words = "All files are read. All done."
        end = None if self.is_over else next((name for name in ENDS if name in tools), None)
        self.is_over = True
        return ([(end, {"result": words, "summary": words, "verified": True})] if end else []), words

    def line(self, step, held, name):
        """Return what is written: what the model has seen of a file, and what it once saw of the first one."""
        if step in held:
            self.written[self.folder / name] = f"contact: {owner(step)}\nfirst: {owner(0)}\n"
        return f"contact: {held.get(step)}\nfirst: {self.first}\n"

    def call(self, tools, action, step, held):
        is_read, note = action == "read", f"note_{step}.txt"
        target = str(self.folder / (f"file_{step}.py" if is_read else note))
        text = "" if is_read else self.line(step, held, note)
        name = next((n for n in (READS if is_read else WRITES) if n in tools), None)
        if name is not None:
            key = next((k for k in PATHS if k in tools[name].get("properties", {})), PATHS[0])
            return name, {key: target, **({} if is_read else {"content": text})}
        shell = next((n for n in SHELLS if n in tools), None)
        command = f"cat {target}" if is_read else f"cat > {target} <<'END'\n{text}END"
        given = {
            "exec_command": {"cmd": command, "max_output_tokens": 10_000},
            "shell": {"command": ["bash", "-lc", command]},
            "run_commands": {"commands": [command]},
        }
        return shell, given.get(shell) or {"command": command, "description": action, "requires_approval": False}

    # the four APIs

    def chat(self, body):
        judge_chat(body["messages"])
        (calls, words), number = self.said(body), len(self.bodies)
        message = {"role": "assistant", "content": words or None}
        if calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{number}_{place}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for place, (name, arguments) in enumerate(calls)
            ]
        choice = {"index": 0, "finish_reason": "tool_calls" if calls else "stop", "message": message}
        tokens = self.tokens(body)
        usage = {"prompt_tokens": tokens, "completion_tokens": 9, "total_tokens": tokens + 9}
        head = {"id": f"chat_{number}", "object": "chat.completion", "created": 0, "model": body["model"]}
        return {**head, "choices": [choice], "usage": usage}

    def responses(self, body):
        self.judge_pairs([item for item in body["input"] if isinstance(item, dict)])
        (calls, words), number = self.said(body), len(self.bodies)
        made = [
            {
                "type": "function_call",
                "id": f"fc_{number}_{place}",
                "call_id": f"call_{number}_{place}",
                "name": name,
                "arguments": json.dumps(arguments),
                "status": "completed",
            }
            for place, (name, arguments) in enumerate(calls)
        ]
        if not calls:
            content = [{"type": "output_text", "text": words, "annotations": []}]
            made = [{"type": "message", "id": f"msg_{number}", "role": "assistant", "content": content}]
        tokens = self.tokens(body)
        usage = {"input_tokens": tokens, "output_tokens": 9, "total_tokens": tokens + 9}
        head = {"id": f"resp_{number}", "object": "response", "created_at": 0, "model": body["model"]}
        return {**head, "status": "completed", "output": made, "usage": usage}

    def messages(self, body):
        messages = body["messages"]
        require(messages[0]["role"] == "user", 'messages: first message must use the "user" role')
        for place, message in enumerate(messages):
            self.judge_message(place, message, messages, body.get("system"))
        judge_thinking(body, messages)
        (calls, words), number = self.said(body), len(self.bodies)
        thinks = (body.get("thinking") or {}).get("type") in ("enabled", "adaptive")
        made = [
            {"type": "tool_use", "id": f"toolu_{number}_{place}", "name": name, "input": arguments}
            for place, (name, arguments) in enumerate(calls)
        ]
        content = [*([THOUGHT] if thinks else []), *(made or [{"type": "text", "text": words}])]
        usage = {"input_tokens": self.tokens(body), "output_tokens": 9}
        head = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": body["model"]}
        stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
        return {**head, "content": content, "usage": usage, **stop}

    def signature(self, system, messages):
        return THOUGHT["signature"]

    def messages_events(self, answer):
        for event in super().messages_events(answer):
            yield event.replace('"stop_reason": "end_turn"', f'"stop_reason": "{answer["stop_reason"]}"')

    def gemini(self, body):
        judge_gemini(body["contents"])
        calls, words = self.said(body)
        settings = body.get("generationConfig") or {}
        schema = settings.get("responseJsonSchema") or settings.get("responseSchema")
        if schema and not calls:  # of a side call, such as whether the agent goes round in circles
            words = json.dumps(instance_of(schema))
        parts = [{"functionCall": {"name": name, "args": arguments}} for name, arguments in calls] or [{"text": words}]
        candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
        tokens = self.tokens(body)
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
    """Stream where the path of Gemini asks for it, read compressed bodies, and speak no web socket."""

    def do_POST(self):  # noqa: N802 - the name that the standard library calls
        raw = decoded(self.rfile.read(int(self.headers["Content-Length"])), self.headers.get("Content-Encoding", ""))
        self.provider.raw.append(raw)
        path = self.path.partition("?")[0]
        self.provider.paths.append(path)
        try:
            body = json.loads(raw or b"{}")
            if "jsonrpc" in body:  # of a server of tools, which has none
                status, answer = 200, {"jsonrpc": "2.0", "id": body.get("id"), "error": {"code": -32601, "message": ""}}
            else:
                status, answer = 200, self.provider.handle(path, body)
        except (RefusedError, KeyError, ValueError) as refusal:
            self.provider.refusals.append(f"{path}: {refusal!r}")
            error = {"type": "invalid_request_error", "message": str(refusal), "code": None, "param": None}
            status, answer = 400, {"type": "error", "error": error}
        if status == 200 and (body.get("stream") or path.endswith(":streamGenerateContent")):
            self.provider.statuses[200] += 1
            self.stream(self.provider.events(path, answer))
        else:
            self.whole(status, json.dumps(answer).encode())

    def do_GET(self):  # noqa: N802
        self.provider.paths.append(self.path)
        if self.headers.get("Upgrade"):
            self.whole(426, b"{}")
        else:
            self.whole(200, b'{"object": "list", "data": []}')

    def whole(self, status, data):
        self.provider.statuses[status] += 1
        super().whole(status, data)


def decoded(raw, encoding):
    """Return the body of a request, decompressed."""
    if encoding == "zstd":
        from backports import zstd

        return zstd.decompress(raw)
    return zlib.decompress(raw, zlib.MAX_WBITS | 32) if encoding in ("gzip", "deflate") else raw


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


def instance_of(schema):
    """Return the plainest value of a JSON schema: 0, an empty text, false, the first of several."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = str(schema.get("type")).lower()
    if kind == "object":
        return {name: instance_of(member) for name, member in schema.get("properties", {}).items()}
    return {"array": [], "number": 0, "integer": 0, "boolean": False}.get(kind, "")


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
