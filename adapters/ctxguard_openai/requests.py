"""Stabilize what goes to `client.chat.completions.create` and to `client.responses.create`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar, cast

from ctxguard.adapting.adapter import astabilize_native, stabilize_native
from ctxguard.adapting.protocol import Adapter
from ctxguard.adapting.tools import recall_tool_factory
from ctxguard.files.results import RECALL_SCHEMA
from ctxguard.formats.chat import OpenAIAdapter
from ctxguard.formats.requests import Requests
from ctxguard.formats.responses import ResponsesAdapter

if TYPE_CHECKING:
    from ctxguard.report import Report
    from ctxguard.stabilizer import Stabilizer

MessageT = TypeVar("MessageT")
"""What comes back is of the type that was given: dicts, the SDK's typed dicts, or its objects."""
_REQUESTS: Final = Requests(OpenAIAdapter(), ResponsesAdapter())
stabilize_request = _REQUESTS.stabilize_request
astabilize_request = _REQUESTS.astabilize_request
recall_tool = recall_tool_factory(lambda recall: ({"type": "function", "function": RECALL_SCHEMA}, recall))
"""Make the recall tool: its schema, for `tools=[…]`, and the function to call with the arguments of a call.

Call it as `recall_tool(store, max_tokens=2_000)`; its parameters are those of `ctxguard.content.recall_tool`.
"""


def stabilize_messages(
    messages: Sequence[MessageT],
    stabilizer: Stabilizer,
    tools: Sequence[Mapping[str, object]] | None = None,
    *,
    window: int | None = None,
    keep_thinking: bool = False,
) -> tuple[list[MessageT], Report]:
    """Return the stabilized messages and the report. The list and its messages are not changed.

    Args:
        messages: the whole history up to now, as it would be sent.
        stabilizer: does the work.
        tools: the tool schemas that are sent along, to be counted.
        window: the model's context window in tokens, where the budget is a share of it.
        keep_thinking: keep signed thinking from before a cut, see `DropStaleThinking`.

    Raises:
        HistoryError: a message cannot be read.
        BudgetExceededError: what must stay does not fit.
    """
    adapter = cast("Adapter[Sequence[MessageT]]", OpenAIAdapter())
    stabilized, report = stabilize_native(
        stabilizer, adapter, messages, tools=tools, window=window, keep_thinking=keep_thinking
    )
    return list(stabilized), report


async def astabilize_messages(
    messages: Sequence[MessageT],
    stabilizer: Stabilizer,
    tools: Sequence[Mapping[str, object]] | None = None,
    *,
    window: int | None = None,
    keep_thinking: bool = False,
) -> tuple[list[MessageT], Report]:
    """Do the same as `stabilize_messages` if summarizers or stores are async."""
    adapter = cast("Adapter[Sequence[MessageT]]", OpenAIAdapter())
    stabilized, report = await astabilize_native(
        stabilizer, adapter, messages, tools=tools, window=window, keep_thinking=keep_thinking
    )
    return list(stabilized), report


def stabilize_input(
    items: Sequence[MessageT],
    stabilizer: Stabilizer,
    *,
    instructions: str | None = None,
    tools: Sequence[Mapping[str, object]] | None = None,
    incremental: bool = False,
    window: int | None = None,
    keep_thinking: bool = False,
) -> tuple[list[MessageT], Report]:
    """Return the stabilized input items and the report. The list and its items are not changed.

    Args:
        items: the whole input up to now, as it would be sent; only what is new where `incremental`.
        stabilizer: does the work.
        instructions: what is sent as `instructions`. It is counted and not changed: what a rule finds in it fails the
            check `NoPII`. `stabilize_request` masks it.
        tools: the tool schemas that are sent along, to be counted.
        incremental: the calls of earlier responses are on the server (`previous_response_id`, `conversation`), so that
            an output without its call is right and stays. An `item_reference` among the items means the same.
        window: the model's context window in tokens, where the budget is a share of it.
        keep_thinking: keep signed thinking from before a cut, see `DropStaleThinking`.

    Raises:
        HistoryError: an item cannot be read.
        BudgetExceededError: what must stay does not fit.
    """
    adapter = cast("Adapter[Sequence[MessageT]]", ResponsesAdapter(incremental=incremental))
    stabilized, report = stabilize_native(
        stabilizer, adapter, items, tools=tools, instructions=instructions, window=window, keep_thinking=keep_thinking
    )
    return list(stabilized), report


async def astabilize_input(
    items: Sequence[MessageT],
    stabilizer: Stabilizer,
    *,
    instructions: str | None = None,
    tools: Sequence[Mapping[str, object]] | None = None,
    incremental: bool = False,
    window: int | None = None,
    keep_thinking: bool = False,
) -> tuple[list[MessageT], Report]:
    """Do the same as `stabilize_input` if summarizers or stores are async."""
    adapter = cast("Adapter[Sequence[MessageT]]", ResponsesAdapter(incremental=incremental))
    stabilized, report = await astabilize_native(
        stabilizer, adapter, items, tools=tools, instructions=instructions, window=window, keep_thinking=keep_thinking
    )
    return list(stabilized), report
