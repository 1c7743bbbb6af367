"""What adapters do around the tools of an agent: bound an output, restore arguments, and offer the recall tool."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from ctxguard.artifacts import Artifact, Kind, ToolCall
from ctxguard.errors import ConfigError
from ctxguard.stabilizer import Stabilizer

if TYPE_CHECKING:
    from ctxguard.pii import SessionVault
    from ctxguard.stages import BoundToolOutput
    from ctxguard.stores import Store

__all__ = ["recall_tool_factory", "require_vault", "tool_exchange", "tool_output_stabilizer", "unmask_arguments"]

Arguments = TypeVar("Arguments", bound="str | dict[str, Any]")
Tool = TypeVar("Tool")
Tool_co = TypeVar("Tool_co", covariant=True)

_EARLY_SHARE: Final = 0.8
_EXCHANGE_TOKENS: Final = 200
"""Tokens that the call of an exchange and its framing may take."""


def tool_output_stabilizer(stabilizer: Stabilizer, *, max_tokens: int | None = None) -> Stabilizer:
    """Return a stabilizer that masks and bounds a tool's output as the whole chain would, for when the tool returns.

    An output that is bounded as soon as the tool returns is the same text in every later request.

    Args:
        stabilizer: The stabilizer with the whole chain.
        max_tokens: A limit for the output in place of the limits of the chain's `BoundToolOutput`.
    """
    from ctxguard.stages import BoundToolOutput, MaskPII

    alone = copy.copy(stabilizer)
    alone.stages = tuple(
        _with_early_shares(stage) if isinstance(stage, BoundToolOutput) else stage
        for stage in stabilizer.stages
        if isinstance(stage, (MaskPII, BoundToolOutput))
    )
    alone.checks = ()  # they judge requests, and this is a part of one
    if max_tokens is not None:
        masks = [stage for stage in alone.stages if isinstance(stage, MaskPII)]
        store = next((stage.store for stage in alone.stages if isinstance(stage, BoundToolOutput)), None)
        alone.stages = (*masks, BoundToolOutput(max_tokens=max_tokens, share=1, exchange_share=1, store=store))
        alone.budget, alone.reserve = 2 * max_tokens + _EXCHANGE_TOKENS, 0
    return alone


def _with_early_shares(stage: BoundToolOutput) -> BoundToolOutput:
    # tool schemas and the system prompt are known with the model call only: without this room the chain would then
    # bound what is bounded here once more
    from ctxguard.stages import BoundToolOutput

    shares = {"share": _EARLY_SHARE * stage.share, "exchange_share": _EARLY_SHARE * stage.exchange_share}
    return BoundToolOutput(max_tokens=stage.max_tokens, tools=stage.tools, store=stage.store, **shares)


def tool_exchange(output: Artifact, tool: str) -> list[Artifact]:
    """Return a tool's output behind its call, as the history that `tool_output_stabilizer` is given."""
    call = ToolCall(tool, "", output.answers)
    return [Artifact(Kind.ASSISTANT, "", calls=(call,)), output]


def unmask_arguments(arguments: Arguments, vault: SessionVault) -> Arguments:
    """Return the arguments of a tool call with the values that their placeholders stand for, right before it runs.

    Args:
        arguments: What the model wrote, as JSON text or as an object; the result is of the same type.
        vault: The vault of the session whose `MaskPII` wrote the placeholders.
    """
    from ctxguard.pii.mask.unmask import restore_arguments

    if isinstance(arguments, str):
        return cast("Arguments", restore_arguments(arguments, vault).text)
    restored = restore_arguments(json.dumps(arguments, ensure_ascii=False, default=str), vault)
    # the very object where nothing was restored: JSON would turn its tuples into lists and its dates into texts
    return cast("Arguments", json.loads(restored.text)) if restored.restored else arguments


def require_vault(given: object) -> SessionVault:
    """Return the vault of a session that was handed over.

    Raises:
        ConfigError: The value is something else, such as the vault of all sessions.
    """
    from ctxguard.pii.mask.vault import session_vault

    vault = session_vault(cast("SessionVault | None", given))
    if vault is None:
        raise ConfigError("vault is one session's, not None; get it by Vault.session('its name')", setting="vault")
    return vault


class RecallToolFactory(Protocol[Tool_co]):
    """Make the recall tool of a framework."""

    def __call__(self, store: Store | None = None, *, max_tokens: int = 2_000) -> Tool_co:
        """Return the tool; see `recall_tool_factory`."""
        ...


def recall_tool_factory(as_tool: Callable[[Callable[..., str]], Tool]) -> RecallToolFactory[Tool]:
    """Return a framework's `recall_tool`, with which a model reads what was shortened.

    Args:
        as_tool: Makes the framework's kind of tool of a function.
    """

    def recall_tool(store: Store | None = None, *, max_tokens: int = 2_000) -> Tool:
        """Return the tool `recall`, with which a model reads the full text of what was shortened.

        Args:
            store: Where full results were saved, as given to `BoundToolOutput` or `context_result`; None as for the
                latter.
            max_tokens: Tokens that one call may return.
        """
        from ctxguard.files.results import recall_tool as recall_function

        return as_tool(recall_function(store, max_tokens=max_tokens))

    return recall_tool
