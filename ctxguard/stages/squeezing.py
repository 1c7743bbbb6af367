"""Make what must stay smaller: texts first, then the arguments of calls that have their results."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from ctxguard.artifacts import Artifact, ToolCall
from ctxguard.draft import Draft
from ctxguard.stages.bound_tool_output import bounded, bounded_text

__all__ = ["is_json_object", "squeezed_to", "water_level"]


def water_level(tokens: Iterable[int], room: int, floor: int) -> int:
    """Return the largest cap, `floor` at least, under which capped sizes add up to at most `room`."""
    sizes = sorted(tokens)
    for number, size in enumerate(sizes):
        share = room // (len(sizes) - number)
        if size > share:
            return max(floor, share)
        room -= size
    return max(floor, sizes[-1] if sizes else floor)


def squeezed_to(artifact: Artifact, cap: int, draft: Draft, *, is_open: bool) -> Artifact:
    """Return an artifact of at most `cap` tokens, as far as its content and then its arguments can give."""
    squeezed = bounded(artifact, cap, draft)
    count = draft.counter
    if is_open or count.artifact(squeezed) <= cap:
        return squeezed
    excess = count.artifact(squeezed) - cap
    calls = []
    for call in squeezed.calls:
        room = count.text(call.arguments)
        shorter = _shorter_call(call, max(4, room - excess), draft)
        excess -= room - count.text(shorter.arguments)
        calls.append(shorter)
    return squeezed.revised(calls=tuple(calls)) if squeezed.calls else squeezed


def _shorter_call(call: ToolCall, max_tokens: int, draft: Draft) -> ToolCall:
    """Return a call with shorter arguments that are still a JSON object, if they were one."""
    if draft.counter.text(call.arguments) <= max_tokens:
        return call
    shorter = bounded_text(call.arguments, max_tokens, draft)
    return replace(call, arguments=shorter if is_json_object(shorter) or not is_json_object(call.arguments) else "{}")


def is_json_object(text: str) -> bool:
    """Tell whether a text is a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):  # nested too deep to be one that a tool takes
        return False
