"""The messages of CrewAI's agents: those of Chat Completions, with fields that the framework keeps to itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Final

from ctxguard.adapting.fields import get
from ctxguard.formats.chat import OpenAIAdapter

_PARTS: Final = "raw_tool_call_parts"
"""The calls of a message as Gemini's own parts, which are sent in place of the others."""


class CrewAIAdapter(OpenAIAdapter):
    """Reads CrewAI's messages as artifacts. What is not preserved is the same as for `OpenAIAdapter`.

    Attached files and cache breakpoints are passed on. They are neither counted nor searched, because the framework
    converts them for each provider afterwards.
    """

    name = "crewai"
    own = ("files", "cache_breakpoint", _PARTS)

    def detects(self, native: object) -> bool:
        """Return whether `native` is a list of messages with a field that only CrewAI adds."""
        if not isinstance(native, (list, tuple)) or not super().detects(native):
            return False
        return any(get(message, key) is not None for message in native for key in self.own)


def with_parts(messages: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield messages in which Gemini's own parts have the arguments of the calls that stand beside them."""
    for message in messages:
        if parts := message.get(_PARTS):
            given = [json.loads(call["function"]["arguments"] or "{}") for call in message.get("tool_calls") or ()]
            pairs = zip(parts, given, strict=False)
            parts = [with_field(part, ("function_call", "args"), one) for part, one in pairs]
        yield {**message, _PARTS: parts} if parts is not None else message


def with_field(value: Any, path: Sequence[str], new: object) -> Any:  # noqa: ANN401 - a dict, or an object of any class
    """Return a copy of a call with another value at a path."""
    made, (key, *rest) = copy(value), path
    inner = with_field(get(value, key), rest, new) if rest else new
    if isinstance(made, dict):
        made[key] = inner
    else:
        setattr(made, key, inner)
    return made
