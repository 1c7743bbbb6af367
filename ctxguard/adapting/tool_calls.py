"""What a guard does for the tools of an agent: values in arguments, shorter outputs, and the tool that recalls them."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from ctxguard.artifacts import Artifact, Kind, ToolCall
from ctxguard.draft import Ask
from ctxguard.stabilizer import Stabilizer
from ctxguard.stages.bound_tool_output import NAMESPACE, BoundToolOutput

if TYPE_CHECKING:
    from ctxguard.pii import SessionVault
    from ctxguard.stores import Store

Arguments = TypeVar("Arguments", bound="str | dict[str, Any]")
Output = TypeVar("Output")
Tool = TypeVar("Tool")

_RECALL: Final = "recall"
"""The name of the tool that `recall_tool` creates."""
_EXCHANGE_TOKENS: Final = 200
"""Number of tokens reserved for the call that precedes a tool's output, and for framing."""


def tool_output_stabilizer(stabilizer: Stabilizer, *, max_tokens: int) -> Stabilizer:
    """Return a stabilizer that masks and shortens the output of a tool when the tool returns."""
    store = next(iter(stabilizer.stages.stores), None)
    stages = (*stabilizer.stages.masking(), BoundToolOutput(max_tokens=max_tokens, store=store))
    # Checks apply to whole requests, and a tool's output is only a part of one; so does the headroom.
    return stabilizer.with_(stages=stages, checks=(), budget=2 * max_tokens + _EXCHANGE_TOKENS, headroom=0)


def tool_exchange(output: Artifact, tool: str) -> list[Artifact]:
    """Return the output of a tool preceded by a call, as a history for `tool_output_stabilizer`."""
    call = ToolCall(tool, "", output.answers)
    return [Artifact(Kind.ASSISTANT, "", calls=(call,)), output]


def unmask_arguments(arguments: Arguments, vault: SessionVault, *, tool: str = "") -> Arguments:
    """Return the arguments of a tool call with placeholders replaced by their values; call it before the tool runs.

    Args:
        arguments: The arguments from the model, as a JSON string or an object. The result has the same type.
        vault: The vault of the session whose `MaskPII` stage created the placeholders.
        tool: The name of the tool. The vault may be configured to withhold values from a tool.
    """
    from ctxguard.pii.mask.unmask import gets_values, restore_arguments

    if not gets_values(vault.tools, tool):
        return arguments
    if isinstance(arguments, str):
        return cast("Arguments", restore_arguments(arguments, vault).text)
    restored = restore_arguments(json.dumps(arguments, ensure_ascii=False, default=str), vault)
    # the original object if nothing was restored: JSON would turn tuples into lists and dates into strings
    return cast("Arguments", json.loads(restored.text)) if restored.restored else arguments


def recalled(
    output: Output, tool: str, arguments: object, vault: SessionVault, stores: Iterable[Store]
) -> Generator[Ask, object, Output]:
    """Return what a tool returned. If it is a text that the recall tool read from `stores`, restore its masked values.

    The rest of the history is unmasked, so placeholders would be treated as forged. Results that only `context_result`
    saved were not masked: placeholders in them may really be forged, so they stay. What does not change is the same
    object.

    Args:
        output: What the tool returned.
        tool: The name of the tool.
        arguments: The arguments of the call, which name the handle of a saved text.
        vault: The vault of the session.
        stores: The stores of masked texts.
    """
    handle = arguments.get("handle") if isinstance(arguments, Mapping) else None
    if tool == _RECALL and isinstance(output, str) and isinstance(handle, str):
        for store in stores:
            if (yield Ask(store.get, (NAMESPACE, handle), is_read=True)) is not None:
                restored = vault.unmask(output)
                return output if restored == output else cast("Output", restored)
    return output


@dataclass(frozen=True, slots=True)
class RecallToolFactory(Generic[Tool]):
    """A framework's `recall_tool` function. The tool it creates lets a model read the full text of shortened outputs.

    Args:
        as_tool: Function that converts a Python function to the framework's type of tool.
    """

    as_tool: Callable[[Callable[..., str]], Tool]

    def __call__(self, store: Store | None = None, *, max_tokens: int = 2_000) -> Tool:
        """Create the tool `recall`, by which a model reads the full text of shortened outputs.

        Args:
            store: The store in which full results are saved, as given to `BoundToolOutput` or `context_result`. None
                means the default store of `context_result`.
            max_tokens: Maximum number of tokens that one call of the tool returns.
        """
        from ctxguard.content.results import recall_tool

        return self.as_tool(recall_tool(store, max_tokens=max_tokens))
