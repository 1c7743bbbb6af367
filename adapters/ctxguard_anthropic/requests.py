"""Stabilize what goes to `client.messages.create`."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from ctxguard.adapting.adapter import request_flow, stabilize_with_system
from ctxguard.adapting.editing import are_same_objects
from ctxguard.adapting.request import Request, settings_of
from ctxguard.adapting.tools import recall_tool_factory
from ctxguard.draft import Ask, adrive, drive
from ctxguard.files.results import RECALL_SCHEMA
from ctxguard_anthropic.adapter import AnthropicAdapter, Message, Native

if TYPE_CHECKING:
    from ctxguard.report import Report
    from ctxguard.stabilizer import Stabilizer

_RECALL: Final = {
    "name": RECALL_SCHEMA["name"],
    "description": RECALL_SCHEMA["description"],
    "input_schema": RECALL_SCHEMA["parameters"],
}
_TAKEN: Final = ("messages", "system", "tools")
_BILLED: Final = ("output_config", "output_format", "mcp_servers")
"""Settings that the model is shown, and that cannot be changed without changing what comes back."""
recall_tool = recall_tool_factory(lambda recall: (_RECALL, recall))
"""Make the recall tool: its schema, for `tools=[…]`, and the function to call with the input of a `tool_use` block.

Call it as `recall_tool(store, max_tokens=2_000)`; its parameters are those of `ctxguard.content.recall_tool`.
"""


def stabilize_request(
    request: Mapping[str, object],
    stabilizer: Stabilizer,
    *,
    window: int | None = None,
    keep_thinking: bool = False,
) -> tuple[dict[str, Any], Report]:
    """Return the stabilized request and the report. The request and all in it are not changed.

    Descriptions of tools are masked as the messages are. A rule that matches in anything that cannot be changed (names,
    schemas, metadata) fails the check `NoPII`.

    Args:
        request: the arguments of `client.messages.create`: `messages`, and `system` and `tools` where there are any.
        stabilizer: does the work.
        window: the model's context window in tokens, where the budget is a share of it.
        keep_thinking: leave thinking blocks from before a cut in, for requests that say `drop_block` to the API and for
            models before 2026; see `DropStaleThinking`.

    Raises:
        HistoryError: it is not a request with messages, or a message cannot be read.
        BudgetExceededError: what must stay does not fit.
    """
    return drive(_flow(request, stabilizer, window, keep_thinking=keep_thinking))


async def astabilize_request(
    request: Mapping[str, object],
    stabilizer: Stabilizer,
    *,
    window: int | None = None,
    keep_thinking: bool = False,
) -> tuple[dict[str, Any], Report]:
    """Do what `stabilize_request` does where summarizers or stores are async."""
    return await adrive(_flow(request, stabilizer, window, keep_thinking=keep_thinking))


def _flow(
    request: Mapping[str, object], stabilizer: Stabilizer, window: int | None, *, keep_thinking: bool
) -> Generator[Ask, object, tuple[dict[str, Any], Report]]:
    rest, schemas = settings_of(request, history="messages", taken=_TAKEN, billed=_BILLED)
    tools = cast("Sequence[Mapping[str, object]]", request.get("tools") or ())
    asked = Request(cast("Native", request), tools=tools, schemas=schemas, settings=rest)
    done, report = yield from request_flow(
        stabilizer, AnthropicAdapter(), asked, window=window, keep_thinking=keep_thinking
    )
    written = dict(cast("Mapping[str, object]", done.messages))
    # the very tools it had where none was changed
    return written if are_same_objects(done.tools, tools) else {**written, "tools": list(done.tools)}, report


def stabilize_messages(
    messages: Sequence[Message],
    stabilizer: Stabilizer,
    *,
    system: str | Sequence[Mapping[str, object]] | None = None,
    tools: Sequence[Mapping[str, object]] | None = None,
    window: int | None = None,
    keep_thinking: bool = False,
) -> tuple[str | list[Mapping[str, object]] | None, list[Message], Report]:
    """Return the system prompt, the stabilized messages and the report; see `stabilize_request`.

    The tools are sent by the caller as they are: what a rule finds in them fails the check `NoPII`.
    """
    named = ("messages", messages), ("system", system)
    return stabilize_with_system(
        stabilizer, AnthropicAdapter(), *named, tools=tools, window=window, keep_thinking=keep_thinking
    )
