"""Stabilize what goes to `client.converse` and `client.converse_stream`."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from ctxguard.adapting.adapter import request_flow, stabilize_with_system
from ctxguard.adapting.editing import are_same_objects, copy_with
from ctxguard.adapting.fields import get
from ctxguard.adapting.request import Request, settings_of
from ctxguard.adapting.tools import recall_tool_factory
from ctxguard.draft import Ask, adrive, drive
from ctxguard.files.results import RECALL_SCHEMA
from ctxguard_bedrock.adapter import BedrockAdapter, Message, Native

if TYPE_CHECKING:
    from ctxguard.report import Report
    from ctxguard.stabilizer import Stabilizer

_RECALL: Final = {
    "toolSpec": {
        "name": RECALL_SCHEMA["name"],
        "description": RECALL_SCHEMA["description"],
        "inputSchema": {"json": RECALL_SCHEMA["parameters"]},
    }
}
_TAKEN: Final = ("messages", "system", "toolConfig", "modelId")
_BILLED: Final = ("outputConfig",)
"""Settings that the model is shown, and that cannot be changed without changing what comes back."""
recall_tool = recall_tool_factory(lambda recall: (_RECALL, recall))
"""Make the recall tool: its schema, for `toolConfig["tools"]`, and the function to call with the input of a `toolUse`.

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
        request: The arguments of `client.converse`: `messages`, and `system` and `toolConfig` where there are any.
        stabilizer: Does the work.
        window: The model's context window in tokens, where the budget is a share of it.
        keep_thinking: Keep signed reasoning from before a cut, see `DropStaleThinking`.

    Raises:
        HistoryError: It is not a request with messages, or a message cannot be read.
        BudgetExceededError: What must stay does not fit.
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
    config = request.get("toolConfig")
    choice, listed = get(config, "toolChoice"), get(config, "tools")
    settings = rest if choice is None else {**rest, "toolChoice": choice}
    tools: list[Mapping[str, object]] = list(listed) if isinstance(listed, (list, tuple)) else []
    asked = Request(cast("Native", request), tools=tools, schemas=schemas, settings=settings)
    done, report = yield from request_flow(
        stabilizer, BedrockAdapter(), asked, window=window, keep_thinking=keep_thinking
    )
    written = dict(cast("Mapping[str, object]", done.messages))
    if not are_same_objects(done.tools, tools):
        written = copy_with(written, {("toolConfig", "tools"): list(done.tools)})
    return written, report


def stabilize_messages(
    messages: Sequence[Message],
    stabilizer: Stabilizer,
    *,
    system: Sequence[Mapping[str, object]] | None = None,
    tools: Sequence[Mapping[str, object]] | None = None,
    window: int | None = None,
    keep_thinking: bool = False,
) -> tuple[list[Mapping[str, object]] | None, list[Message], Report]:
    """Return the system prompt, the stabilized messages and the report; see `stabilize_request`.

    The tools are sent by the caller as they are: what a rule finds in them fails the check `NoPII`.
    """
    named = ("messages", messages), ("system", system)
    return stabilize_with_system(
        stabilizer, BedrockAdapter(), *named, tools=tools, window=window, keep_thinking=keep_thinking
    )
