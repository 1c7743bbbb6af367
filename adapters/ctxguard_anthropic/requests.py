"""Stabilize what goes to `client.messages.create`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from ctxguard.adapting import adapter as core
from ctxguard.adapting.editing import are_same_objects
from ctxguard.adapting.request import Request
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
    done, report = core.stabilize_request(
        stabilizer, AnthropicAdapter(), _request(request), window=window, keep_thinking=keep_thinking
    )
    return _written(request, done), report


def _request(request: Mapping[str, object]) -> Request[Native]:
    """Return what has to be a request, taken apart."""
    if not isinstance(request, Mapping):
        raise HistoryError(
            f"expected a request, a dict with 'messages', got {type(request).__name__}; "
            "a list of messages goes to stabilize_messages"
        )
    rest = {key: value for key, value in request.items() if key not in _TAKEN and value is not None}
    schemas: list[Mapping[str, object]] = [{key: rest.pop(key)} for key in _BILLED if key in rest]
    tools = cast("Sequence[Mapping[str, object]]", request.get("tools") or ())
    return Request(cast("Native", request), tools=tools, schemas=schemas, settings=rest)


def _written(request: Mapping[str, object], done: Request[Native]) -> dict[str, object]:
    """Return the stabilized request, with the very tools it had where none was changed."""
    written = dict(cast("Mapping[str, object]", done.messages))
    is_same = not done.tools or are_same_objects(done.tools, cast("Sequence[object]", request["tools"]))
    return written if is_same else {**written, "tools": list(done.tools)}


async def astabilize_request(
    request: Mapping[str, object],
    stabilizer: Stabilizer,
    *,
    window: int | None = None,
    keep_thinking: bool = False,
) -> tuple[dict[str, object], Report]:
    """Do what `stabilize_request` does where summarizers or stores are async."""
    done, report = await core.astabilize_request(
        stabilizer, AnthropicAdapter(), _request(request), window=window, keep_thinking=keep_thinking
    )
    return _written(request, done), report


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
    request: dict[str, object] = {"messages": messages}
    if system is not None:
        request["system"] = system
    native, report = core.stabilize_native(
        stabilizer,
        AnthropicAdapter(),
        cast("Native", request),
        tools=tools,
        window=window,
        keep_thinking=keep_thinking,
    )
    done = cast("Mapping[str, object]", native)
    prompt = cast("str | list[Mapping[str, object]] | None", done.get("system"))
    return prompt, cast("list[Message]", done["messages"]), report
