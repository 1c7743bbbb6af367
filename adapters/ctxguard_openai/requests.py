"""Stabilize what goes to `client.chat.completions.create` and to `client.responses.create`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ctxguard.adapting.adapter import astabilize_native, stabilize_native
from ctxguard.adapting.tools import recall_tool_factory
from ctxguard.files.results import RECALL_SCHEMA
from ctxguard_openai.chat import Message, OpenAIAdapter
from ctxguard_openai.responses import Item, ResponsesAdapter

if TYPE_CHECKING:
    from ctxguard.report import Report
    from ctxguard.stabilizer import Stabilizer

__all__ = ["astabilize_input", "astabilize_messages", "recall_tool", "stabilize_input", "stabilize_messages"]

recall_tool = recall_tool_factory(lambda recall: ({"type": "function", "function": RECALL_SCHEMA}, recall))
"""Make the recall tool: its schema, for `tools=[…]`, and the function to call with the arguments of a call."""


def stabilize_messages(
    messages: Sequence[Message],
    stabilizer: Stabilizer,
    tools: Sequence[Mapping[str, object]] | None = None,
    *,
    window: int | None = None,
) -> tuple[list[Message], Report]:
    """Return the stabilized messages and the report. The list and its messages are not changed.

    Args:
        messages: the whole history up to now, as it would be sent.
        stabilizer: does the work.
        tools: the tool schemas that are sent along, to be counted.
        window: the model's context window in tokens, where the budget is a share of it.

    Raises:
        HistoryError: a message cannot be read.
        BudgetExceededError: what must stay does not fit.
    """
    adapter = OpenAIAdapter()
    stabilized, report = stabilize_native(stabilizer, adapter, messages, tools=tools, window=window)
    return list(stabilized), report


async def astabilize_messages(
    messages: Sequence[Message],
    stabilizer: Stabilizer,
    tools: Sequence[Mapping[str, object]] | None = None,
    *,
    window: int | None = None,
) -> tuple[list[Message], Report]:
    """Do what `stabilize_messages` does where summarizers or stores are async."""
    adapter = OpenAIAdapter()
    stabilized, report = await astabilize_native(stabilizer, adapter, messages, tools=tools, window=window)
    return list(stabilized), report


def stabilize_input(
    items: Sequence[Item],
    stabilizer: Stabilizer,
    *,
    instructions: str | None = None,
    tools: Sequence[Mapping[str, object]] | None = None,
    incremental: bool = False,
    window: int | None = None,
) -> tuple[list[Item], Report]:
    """Return the stabilized input items and the report. The list and its items are not changed.

    Args:
        items: the whole input up to now, as it would be sent; only what is new where `incremental`.
        stabilizer: does the work.
        instructions: what is sent as `instructions`, to be counted; it is not changed.
        tools: the tool schemas that are sent along, to be counted.
        incremental: the calls of earlier responses are on the server (`previous_response_id`, `conversation`), so that
            an output without its call is right and stays. An `item_reference` among the items means the same.
        window: the model's context window in tokens, where the budget is a share of it.

    Raises:
        HistoryError: an item cannot be read.
        BudgetExceededError: what must stay does not fit.
    """
    adapter = ResponsesAdapter(incremental=incremental)
    stabilized, report = stabilize_native(
        stabilizer, adapter, items, tools=tools, instructions=instructions, window=window
    )
    return list(stabilized), report


async def astabilize_input(
    items: Sequence[Item],
    stabilizer: Stabilizer,
    *,
    instructions: str | None = None,
    tools: Sequence[Mapping[str, object]] | None = None,
    incremental: bool = False,
    window: int | None = None,
) -> tuple[list[Item], Report]:
    """Do what `stabilize_input` does where summarizers or stores are async."""
    adapter = ResponsesAdapter(incremental=incremental)
    stabilized, report = await astabilize_native(
        stabilizer, adapter, items, tools=tools, instructions=instructions, window=window
    )
    return list(stabilized), report
