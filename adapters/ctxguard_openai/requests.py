"""Stabilize what goes to `client.chat.completions.create` and to `client.responses.create`."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from ctxguard.adapting.adapter import astabilize_native, request_flow, stabilize_native
from ctxguard.adapting.editing import are_same_objects
from ctxguard.adapting.protocol import Adapter
from ctxguard.adapting.request import Request, settings_of
from ctxguard.adapting.tools import recall_tool_factory
from ctxguard.draft import Ask, adrive, drive
from ctxguard.errors import HistoryError
from ctxguard.files.results import RECALL_SCHEMA
from ctxguard_openai.chat import OpenAIAdapter
from ctxguard_openai.responses import ResponsesAdapter

if TYPE_CHECKING:
    from ctxguard.report import Report
    from ctxguard.stabilizer import Stabilizer

MessageT = TypeVar("MessageT")
"""What comes back is of the type that was given: dicts, the SDK's typed dicts, or its objects."""
_BILLED: Final = ("response_format", "text", "functions", "prediction", "prompt")
"""Settings that the model is shown, and that cannot be changed without changing what comes back."""

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
    """Do what `stabilize_messages` does where summarizers or stores are async."""
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
    """Do what `stabilize_input` does where summarizers or stores are async."""
    adapter = cast("Adapter[Sequence[MessageT]]", ResponsesAdapter(incremental=incremental))
    stabilized, report = await astabilize_native(
        stabilizer, adapter, items, tools=tools, instructions=instructions, window=window, keep_thinking=keep_thinking
    )
    return list(stabilized), report


def stabilize_request(
    request: Mapping[str, object],
    stabilizer: Stabilizer,
    *,
    incremental: bool = False,
    window: int | None = None,
) -> tuple[dict[str, Any], Report]:
    """Return the stabilized request and the report. The request and all in it are not changed.

    Instructions and descriptions of tools are masked as the messages are. A rule that matches in anything that cannot
    be changed (names, schemas, metadata) fails the check `NoPII`.

    Args:
        request: The arguments of `client.chat.completions.create` (`messages`) or `client.responses.create` (`input`).
        stabilizer: Does the work.
        incremental: See `stabilize_input`.
        window: The model's context window in tokens, where the budget is a share of it.

    Raises:
        HistoryError: It has neither `messages` nor `input`, or a message cannot be read.
        BudgetExceededError: What must stay does not fit.
    """
    return drive(_flow(request, stabilizer, window, incremental=incremental))


async def astabilize_request(
    request: Mapping[str, object],
    stabilizer: Stabilizer,
    *,
    incremental: bool = False,
    window: int | None = None,
) -> tuple[dict[str, Any], Report]:
    """Do what `stabilize_request` does where summarizers or stores are async."""
    return await adrive(_flow(request, stabilizer, window, incremental=incremental))


def _flow(
    request: Mapping[str, object], stabilizer: Stabilizer, window: int | None, *, incremental: bool
) -> Generator[Ask, object, tuple[dict[str, Any], Report]]:
    key = next((key for key in ("messages", "input") if isinstance(request, Mapping) and key in request), None)
    if key is None:
        raise HistoryError(
            "expected a request, a dict with 'messages' or 'input'; a list of messages goes to stabilize_messages"
        )
    adapter: Adapter[Any] = OpenAIAdapter() if key == "messages" else ResponsesAdapter(incremental=incremental)
    taken = (key, "tools", "instructions")
    settings, schemas = settings_of(request, history=key, taken=taken, billed=_BILLED)
    history = request[key]
    native: Any = [{"role": "user", "content": history}] if isinstance(history, str) else history
    tools = cast("Sequence[Mapping[str, object]]", request.get("tools") or ())
    asked = Request(native, cast("str | None", request.get("instructions")), tools, schemas, settings)
    done, report = yield from request_flow(stabilizer, adapter, asked, window=window)
    written = {**request, key: list(done.messages)}
    if done.instructions is not None:
        written["instructions"] = done.instructions
    if not are_same_objects(done.tools, tools):
        written["tools"] = list(done.tools)
    return written, report
