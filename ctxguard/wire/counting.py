"""Count the body of a request. The one place that says how."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from ctxguard.adapting.protocol import Adapter
from ctxguard.tokens import MESSAGE_TOKENS, REPLY_TOKENS, ArtifactCounter
from ctxguard.wire.formats import Format

__all__ = ["request_tokens"]

_SHOWN: Final = (
    "instructions",
    "response_format",
    "text",
    "functions",
    "prediction",
    "prompt",
    "output_config",
    "output_format",
    "mcp_servers",
)
"""Settings that the model is shown beside its messages and tools."""


def request_tokens(body: Mapping[str, object], kind: Format, adapter: Adapter[Any], counter: ArtifactCounter) -> int:
    """Return the input tokens of a request.

    Args:
        body: The request as it is sent.
        kind: Its format.
        adapter: Reads its history.
        counter: Counts texts.
    """
    shown = [body[key] for key in _SHOWN if body.get(key)]
    texts = (one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in shown)
    beside = sum(MESSAGE_TOKENS + counter.text(text) for text in texts)
    tools = cast("Sequence[Mapping[str, object]] | None", body.get("tools"))
    return REPLY_TOKENS + beside + counter.tools(tools) + counter.artifacts(adapter.read(kind.native(body)))
