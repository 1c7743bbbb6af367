"""The one set of builders of histories: artifacts, and messages of Chat Completions."""

from __future__ import annotations

from ctxguard import Artifact, ToolCall


def user(text="u", tokens=None, **more):
    return Artifact("user", text, tokens, **more)


def assistant(text="a", tokens=None, **more):
    return Artifact("assistant", text, tokens, **more)


def calls(*ids, tool="run", arguments="{}", text=""):
    """Return an assistant artifact that calls a tool once for each id."""
    return Artifact("assistant", text, calls=tuple(ToolCall(tool, arguments, identity) for identity in ids))


def result(answers, text="done", **more):
    return Artifact("tool", text, answers=answers, **more)


def step(identity, text="done", *, tool="run", arguments="{}", said=""):
    """Return a call and its result."""
    return [calls(identity, tool=tool, arguments=arguments, text=said), result(identity, text)]


def exchange(*outputs, tool="run"):
    """Return parallel calls of one tool and their results."""
    return [calls(*map(str, range(len(outputs))), tool=tool), *(result(str(n), text) for n, text in enumerate(outputs))]


def chat_call(identity, name="f", arguments="{}"):
    """Return a tool call as Chat Completions has it."""
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def chat_of(history):
    """Return artifacts as Chat Completions messages."""
    messages = []
    for artifact in history:
        message = {"role": artifact.kind.value, "content": artifact.content}
        if artifact.kind.value == "tool":
            message["tool_call_id"] = artifact.answers
        if artifact.calls:
            message["tool_calls"] = [chat_call(call.id, call.name, call.arguments) for call in artifact.calls]
        messages.append(message)
    return messages
