"""Stabilize the arguments of `client.chat.completions.create` and of `client.responses.create`."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar, cast

from ctxguard.adapting.adapter import request_flow, require_stabilizer
from ctxguard.adapting.registry import Adapter
from ctxguard.adapting.request import Request
from ctxguard.adapting.tools import RecallToolFactory
from ctxguard.draft import Ask, asynchronous, synchronous
from ctxguard.files.results import RECALL_SCHEMA
from ctxguard.formats.chat import OpenAIAdapter
from ctxguard.formats.requests import Requests, tools_beyond_estimate
from ctxguard.formats.responses import ResponsesAdapter

if TYPE_CHECKING:
    from ctxguard.report import Report
    from ctxguard.stabilizer import Stabilizer

MessageT = TypeVar("MessageT")
"""Results have the type of the input: dicts, the SDK's typed dicts, or its objects."""
_REQUESTS: Final = Requests(OpenAIAdapter(), ResponsesAdapter())
stabilize_request = _REQUESTS.stabilize_request
astabilize_request = _REQUESTS.astabilize_request
recall_tool = RecallToolFactory(lambda recall: ({"type": "function", "function": RECALL_SCHEMA}, recall))
"""Make the recall tool: its schema, for `tools=[…]`, and the function to call with the arguments of a call.

Call it as `recall_tool(store, max_tokens=2_000)`; its parameters are those of `ctxguard.content.recall_tool`.
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
        messages: the whole history up to now, as it would be sent.
        stabilizer: the stabilizer.
        tools: the tool schemas that are sent along, which are counted.
        window: the model's context window in tokens, if the budget is a share of it.
        keep_thinking: keep signed thinking from before a cut, see `DropStaleThinking`.

    Raises:
        HistoryError: a message cannot be read.
        BudgetExceededError: the mandatory messages do not fit.
    """
    adapter = cast("Adapter[Sequence[MessageT]]", OpenAIAdapter())
    request = Request(messages, tools=tools or ())
    done, report = yield from request_flow(
        stabilizer, adapter, request, window=window, keep_thinking=keep_thinking, is_editable=False
    )
    return list(done.messages), report


astabilize_messages = asynchronous(stabilize_messages)
"""Do the same as `stabilize_messages` if summarizers or stores are async."""


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
        items: the whole input up to now, as it would be sent; with `incremental`, only the new items.
        stabilizer: the stabilizer.
        instructions: the `instructions` of the request. They are counted but not changed: if a rule matches in them,
            the check `NoPII` fails. `stabilize_request` masks them.
        tools: the tool schemas that are sent along, which are counted.
        incremental: the calls of earlier responses are on the server (`previous_response_id`, `conversation`), so an
            output without its call is valid and stays. An `item_reference` among the items means the same.
        window: the model's context window in tokens, if the budget is a share of it.
        keep_thinking: keep signed thinking from before a cut, see `DropStaleThinking`.

    Raises:
        HistoryError: an item cannot be read.
        BudgetExceededError: the mandatory messages do not fit.
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
"""Do the same as `stabilize_input` if summarizers or stores are async."""
