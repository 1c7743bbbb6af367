"""Stabilize what goes to `client.messages.create`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from ctxguard.adapting.adapter import astabilize_native, stabilize_native
from ctxguard.adapting.tools import recall_tool_factory
from ctxguard.errors import HistoryError
from ctxguard.files.results import RECALL_SCHEMA
from ctxguard_anthropic.adapter import AnthropicAdapter, Message, Native

if TYPE_CHECKING:
    from ctxguard.report import Report
    from ctxguard.stabilizer import Stabilizer

__all__ = ["astabilize_request", "recall_tool", "stabilize_messages", "stabilize_request"]

_RECALL: Final = {
    "name": RECALL_SCHEMA["name"],
    "description": RECALL_SCHEMA["description"],
    "input_schema": RECALL_SCHEMA["parameters"],
}
recall_tool = recall_tool_factory(lambda recall: (_RECALL, recall))
"""Make the recall tool: its schema, for `tools=[…]`, and the function to call with the input of a `tool_use` block."""


def stabilize_request(
    request: Mapping[str, object],
    stabilizer: Stabilizer,
    *,
    window: int | None = None,
    keep_thinking: bool = False,
) -> tuple[dict[str, object], Report]:
    """Return the stabilized request and the report. The request and all in it are not changed.

    Args:
        request: the arguments of `client.messages.create`: `messages`, and `system` and `tools` where there are any.
        stabilizer: does the work.
        window: the model's context window in tokens, where the budget is a share of it.
        keep_thinking: leave thinking blocks from before a cut in, for requests that say `drop_block` to the API and for
            models before 2026; see `DropStaleThinking`.

    Raises:
        HistoryError: it is no request with messages, or a message cannot be read.
        BudgetExceededError: what must stay does not fit.
    """
    tools = _tools(request)
    native, report = stabilize_native(
        stabilizer,
        AnthropicAdapter(),
        cast("Native", request),
        tools=tools,
        window=window,
        keep_thinking=keep_thinking,
    )
    return dict(cast("Mapping[str, object]", native)), report


def _tools(request: Mapping[str, object]) -> Sequence[Mapping[str, object]] | None:
    """Return the tool schemas of what has to be a request."""
    if not isinstance(request, Mapping):
        raise HistoryError(
            f"expected a request, a dict with 'messages', got {type(request).__name__}; "
            "a list of messages goes to stabilize_messages"
        )
    return cast("Sequence[Mapping[str, object]] | None", request.get("tools"))


async def astabilize_request(
    request: Mapping[str, object],
    stabilizer: Stabilizer,
    *,
    window: int | None = None,
    keep_thinking: bool = False,
) -> tuple[dict[str, object], Report]:
    """Do what `stabilize_request` does where summarizers or stores are async."""
    tools = _tools(request)
    native, report = await astabilize_native(
        stabilizer,
        AnthropicAdapter(),
        cast("Native", request),
        tools=tools,
        window=window,
        keep_thinking=keep_thinking,
    )
    return dict(cast("Mapping[str, object]", native)), report


def stabilize_messages(
    messages: Sequence[Message],
    stabilizer: Stabilizer,
    *,
    system: str | Sequence[Mapping[str, object]] | None = None,
    tools: Sequence[Mapping[str, object]] | None = None,
    window: int | None = None,
    keep_thinking: bool = False,
) -> tuple[str | list[Mapping[str, object]] | None, list[Message], Report]:
    """Return the system prompt, the stabilized messages and the report; see `stabilize_request`."""
    request: dict[str, object] = {"messages": messages, "tools": tools}
    if system is not None:
        request["system"] = system
    done, report = stabilize_request(request, stabilizer, window=window, keep_thinking=keep_thinking)
    prompt = cast("str | list[Mapping[str, object]] | None", done.get("system"))
    return prompt, cast("list[Message]", done["messages"]), report
