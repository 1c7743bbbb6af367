"""Stabilize the arguments of `client.chat.completions.create` and of `client.responses.create`."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar, cast

from ctxguard.adapting.adapter import request_flow, require_stabilizer
from ctxguard.adapting.registry import Adapter
from ctxguard.adapting.request import Request
from ctxguard.adapting.tool_calls import RecallToolFactory
from ctxguard.content.results import RECALL_SCHEMA
from ctxguard.draft import Ask, asynchronous, synchronous
from ctxguard.formats.chat import OpenAIAdapter
from ctxguard.formats.requests import Requests, tools_beyond_estimate
from ctxguard.formats.responses import ResponsesAdapter

if TYPE_CHECKING:
    from ctxguard.report import Report
    from ctxguard.stabilizer import Stabilizer

MessageT = TypeVar("MessageT")
"""The type of a message. Results have the type of the input: dicts, the SDK's typed dicts, or its objects."""
_REQUESTS: Final = Requests(OpenAIAdapter(), ResponsesAdapter())
stabilize_request = _REQUESTS.stabilize_request
astabilize_request = _REQUESTS.astabilize_request
recall_tool = RecallToolFactory(lambda recall: ({"type": "function", "function": RECALL_SCHEMA}, recall))
"""Create the recall tool: its schema, for `tools=[…]`, and the function to call with the arguments of a call.

Call it as `recall_tool(store, max_tokens=2_000)`. The parameters are those of `ctxguard.content.recall_tool`.
"""


@synchronous
def stabilize_messages(
    messages: Sequence[MessageT],
    stabilizer: Stabilizer,
    tools: Sequence[Mapping[str, object]] | None = None,
    *,
    window: int | None = None,
    keep_thinking: bool = False,
) -> Generator[Ask, object, tuple[list[MessageT], Report]]:
    """Return the stabilized messages and the report. The list and its messages are not changed.

    Args:
        messages: The whole history so far, as it would be sent.
        stabilizer: The stabilizer.
        tools: The tool schemas that are sent with the messages; they are counted, but not changed.
        window: The model's context window in tokens; needed if the budget is a share of the window.
        keep_thinking: Whether to keep signed thinking that was produced before a cut, see `DropStaleThinking`.

    Raises:
        HistoryError: If a message cannot be read.
        BudgetExceededError: If the mandatory messages do not fit.
    """
    adapter = cast("Adapter[Sequence[MessageT]]", OpenAIAdapter())
    request = Request(messages, tools=tools or ())
    done, report = yield from request_flow(
        stabilizer, adapter, request, window=window, keep_thinking=keep_thinking, is_editable=False
    )
    return list(done.messages), report


astabilize_messages = asynchronous(stabilize_messages)
"""Asynchronous version of `stabilize_messages`, for summarizers or stores that are asynchronous."""


@synchronous
def stabilize_input(
    items: Sequence[MessageT],
    stabilizer: Stabilizer,
    *,
    instructions: str | None = None,
    tools: Sequence[Mapping[str, object]] | None = None,
    incremental: bool = False,
    window: int | None = None,
    keep_thinking: bool = False,
) -> Generator[Ask, object, tuple[list[MessageT], Report]]:
    """Return the stabilized input items and the report. The list and its items are not changed.

    Args:
        items: The whole input so far, as it would be sent; with `incremental`, only the new items.
        stabilizer: The stabilizer.
        instructions: The `instructions` of the request. They are counted but not changed. If a rule matches in them,
            the check `NoPII` fails; `stabilize_request` masks them instead.
        tools: The tool schemas that are sent with the items; they are counted, but not changed.
        incremental: Whether the earlier items are stored at the provider (`previous_response_id`, `conversation`), so
            that an output without its call is valid and is kept. An `item_reference` among the items has the same
            effect.
        window: The model's context window in tokens; needed if the budget is a share of the window.
        keep_thinking: Whether to keep signed thinking that was produced before a cut, see `DropStaleThinking`.

    Raises:
        HistoryError: If an item cannot be read.
        BudgetExceededError: If the mandatory messages do not fit.
    """
    kind = ResponsesAdapter(incremental=incremental)
    adapter = cast("Adapter[Sequence[MessageT]]", kind)
    request = Request(items, instructions, tools or ())
    overhead = tools_beyond_estimate({"input": items}, kind, require_stabilizer(stabilizer).counter)
    done, report = yield from request_flow(
        stabilizer, adapter, request, window=window, keep_thinking=keep_thinking, is_editable=False, overhead=overhead
    )
    return list(done.messages), report


astabilize_input = asynchronous(stabilize_input)
"""Asynchronous version of `stabilize_input`, for summarizers or stores that are asynchronous."""
