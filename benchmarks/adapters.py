"""What an adapter costs: read and write without edits, microseconds of CPU a message, side by side in one run."""

from __future__ import annotations

import statistics
import time
import warnings

from speed import dicts, lang

from ctxguard.adapting.registry import find_adapter

MESSAGES = 1_000


def pydantic_ai(messages: list[dict]) -> list:
    import json

    from pydantic_ai.messages import (
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )

    made: list = []
    for m in messages:
        if m["role"] == "system":
            made.append(ModelRequest(parts=[SystemPromptPart(m["content"])]))
        elif m["role"] == "user":
            made.append(ModelRequest(parts=[UserPromptPart(m["content"])]))
        elif m["role"] == "tool":
            made.append(ModelRequest(parts=[ToolReturnPart("look_up", m["content"], m["tool_call_id"])]))
        else:
            calls = [
                ToolCallPart(c["function"]["name"], json.loads(c["function"]["arguments"]), c["id"])
                for c in m.get("tool_calls", [])
            ]
            made.append(ModelResponse(parts=[*([TextPart(m["content"])] if m["content"] else []), *calls]))
    return made


def anthropic(messages: list[dict]) -> list:
    import json

    made: list = []
    for m in messages[1:]:
        if m["role"] == "tool":
            made.append(
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": m["tool_call_id"], "content": m["content"]}],
                }
            )
        elif m.get("tool_calls"):
            uses = [
                {
                    "type": "tool_use",
                    "id": c["id"],
                    "name": c["function"]["name"],
                    "input": json.loads(c["function"]["arguments"]),
                }
                for c in m["tool_calls"]
            ]
            made.append({"role": "assistant", "content": uses})
        else:
            made.append(m)
    return made


def responses(messages: list[dict]) -> list:
    made: list = []
    for m in messages:
        if m["role"] == "tool":
            made.append({"type": "function_call_output", "call_id": m["tool_call_id"], "output": m["content"]})
            continue
        if m["content"]:
            made.append({"role": m["role"], "content": m["content"]})
        made += [{"type": "function_call", "call_id": c["id"], **c["function"]} for c in m.get("tool_calls", [])]
    return made


def cost(adapter, native) -> tuple[float, float]:
    def once() -> float:
        start = time.process_time()
        adapter.write(native, adapter.read(native))
        return (time.process_time() - start) * 1e6 / len(native)

    first = once()
    return first, statistics.median(once() for _ in range(15))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    messages = dicts(MESSAGES)
    histories = {
        "openai": messages,
        "openai-responses": responses(messages),
        "anthropic": anthropic(messages),
        "langchain": lang(messages),
        "pydantic-ai": pydantic_ai(messages),
    }
    print(f"{'adapter':<16} {'first read':>12} {'read + write':>13}   us a message, {MESSAGES:,} messages")
    for name, native in histories.items():
        first, again = cost(find_adapter(name), native)
        print(f"{name:<16} {first:>12.2f} {again:>13.2f}")
