"""The adapters' functions for an agent's tools: bound an output, restore arguments, and offer the recall tool."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from ctxguard.artifacts import Artifact, Kind, ToolCall
from ctxguard.errors import ConfigError
from ctxguard.stabilizer import Stabilizer

if TYPE_CHECKING:
    from ctxguard.pii import SessionVault
    from ctxguard.stores import Store

Arguments = TypeVar("Arguments", bound="str | dict[str, Any]")
Tool = TypeVar("Tool")

_EXCHANGE_TOKENS: Final = 200
"""Tokens that the call of an exchange and its framing may take."""


def tool_output_stabilizer(stabilizer: Stabilizer, *, max_tokens: int) -> Stabilizer:
    """Return a stabilizer that masks and bounds a tool's output when the tool returns."""
    from ctxguard.stages import BoundToolOutput, MaskPII, StableWindow

    masks = [stage for stage in stabilizer.stages if isinstance(stage, MaskPII)]
    stores = (stage.store for stage in stabilizer.stages if isinstance(stage, (BoundToolOutput, StableWindow)))
    store = next((store for store in stores if store is not None), None)
    stages = (*masks, BoundToolOutput(max_tokens=max_tokens, store=store))
    # checks judge whole requests, and this is a part of one; headroom is 0, since no request consists of it alone
    return stabilizer.with_(stages=stages, checks=(), budget=2 * max_tokens + _EXCHANGE_TOKENS, headroom=0)


def tool_exchange(output: Artifact, tool: str) -> list[Artifact]:
    """Return a tool's output after its call, as a history for `tool_output_stabilizer`."""
    call = ToolCall(tool, "", output.answers)
    return [Artifact(Kind.ASSISTANT, "", calls=(call,)), output]


def unmask_arguments(arguments: Arguments, vault: SessionVault, *, tool: str = "") -> Arguments:
    """Return the arguments of a tool call with placeholders replaced by their values, for use right before it runs.

    Args:
        arguments: The arguments from the model, as JSON text or as an object; the result is of the same type.
        vault: The vault of the session whose `MaskPII` wrote the placeholders.
        tool: The name of the tool; the vault may say that it gets no values.
    """
    from ctxguard.pii.mask.unmask import gets_values, restore_arguments

    if not gets_values(vault.tools, tool):
        return arguments
    if isinstance(arguments, str):
        return cast("Arguments", restore_arguments(arguments, vault).text)
    restored = restore_arguments(json.dumps(arguments, ensure_ascii=False, default=str), vault)
    # the very object if nothing was restored: JSON would turn its tuples into lists and its dates into texts
    return cast("Arguments", json.loads(restored.text)) if restored.restored else arguments


def require_vault(given: object) -> SessionVault:
    """Return the vault of a session; reject anything else, such as the vault of all sessions."""
    from ctxguard.pii.mask.vault import session_vault

    vault = session_vault(cast("SessionVault | None", given))
    if vault is None:
        raise ConfigError("vault is one session's, not None; get it by Vault.session('its name')", setting="vault")
    return vault


@dataclass(frozen=True, slots=True)
class RecallToolFactory(Generic[Tool]):
    """A framework's `recall_tool`, with which a model reads the full text of shortened outputs.

    Args:
        as_tool: Makes the framework's kind of tool from a function.
    """

    as_tool: Callable[[Callable[..., str]], Tool]

    def __call__(self, store: Store | None = None, *, max_tokens: int = 2_000) -> Tool:
        """Return the tool `recall`, with which a model reads the full text of shortened outputs.

        Args:
            store: Where full results were saved, as given to `BoundToolOutput` or `context_result`; None as for the
                latter.
            max_tokens: Tokens that one call may return.
        """
        from ctxguard.files.results import recall_tool

        return self.as_tool(recall_tool(store, max_tokens=max_tokens))
