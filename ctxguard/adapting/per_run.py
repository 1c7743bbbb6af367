"""Choose the stabilizer and the vault of one run, so that one agent serves many conversations.

A guard takes either of them as it is, or as a function of the framework's own run context: LangChain's `Runtime`,
PydanticAI's `RunContext`, the Agents SDK's `RunContextWrapper`.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar, cast

from ctxguard.adapting.adapter import require_stabilizer
from ctxguard.adapting.recent import Recent
from ctxguard.adapting.tools import require_vault
from ctxguard.errors import ConfigError
from ctxguard.settings import NotAHook
from ctxguard.stabilizer import Stabilizer
from ctxguard.stages import MaskPII

if TYPE_CHECKING:
    from ctxguard.pii import SessionVault
    from ctxguard.report import Report

Context = TypeVar("Context")
OnReport: TypeAlias = "Callable[[Report], object]"
"""What every guard calls with the report of each model call; `report.session` names the conversation.

Guards that bound a tool's output when the tool returns call it with the report of that, too; `report.tool` names it.
"""

_LOG: Final = logging.getLogger("ctxguard")
_REMEMBERED: Final = 256
"""Runs whose stabilizer is remembered, with what it worked out for its conversation."""


@dataclass(frozen=True, slots=True)
class ForRun:
    """Hold what one run uses.

    Attributes:
        stabilizer: Does the work; its `MaskPII` masks into the vault.
        vault: Gives values back to tools; None where no vault was given.
    """

    stabilizer: Stabilizer
    vault: SessionVault | None


class PerRun(Generic[Context]):
    """Give each run its stabilizer and its vault. Safe for many threads; what it remembers is bounded.

    Args:
        stabilizer: A stabilizer, or a function from the run context to one.
        vault: The vault of a session, or a function from the run context to one; None for none.

    Raises:
        ConfigError: Either is something else.
    """

    def __init__(
        self,
        stabilizer: Stabilizer | Callable[[Context], Stabilizer],
        vault: SessionVault | Callable[[Context], SessionVault] | None = None,
    ) -> None:
        self._stabilizer = require_choice(stabilizer)
        self._vault = vault if vault is None or is_function(vault) else require_vault(vault)
        self._known: Recent[tuple[int, int], tuple[Stabilizer, ForRun]] = Recent(_REMEMBERED)

    @property
    def depends_on_run(self) -> bool:
        """Whether a run context decides."""
        return is_function(self._stabilizer) or is_function(self._vault)

    def of(self, context: Context) -> ForRun:
        """Return what a run uses."""
        chosen, vault = self._stabilizer, self._vault
        if not isinstance(chosen, Stabilizer):
            chosen = require_stabilizer(chosen(context))
        if is_function(vault):
            vault = require_vault(cast("Callable[[Context], SessionVault]", vault)(context))
        return self._remembered(chosen, cast("SessionVault | None", vault))

    def _remembered(self, chosen: Stabilizer, vault: SessionVault | None) -> ForRun:
        def made() -> tuple[Stabilizer, ForRun]:
            return chosen, ForRun(chosen if vault is None else _masking_into(chosen, vault), vault)

        # both are kept alive, so that an id means one object
        return self._known.get_or_put((id(chosen), id(vault)), made)[1]


def _masking_into(stabilizer: Stabilizer, vault: SessionVault) -> Stabilizer:
    """Return a stabilizer whose placeholders live in a vault."""
    stages = tuple(_into(stage, vault) if isinstance(stage, MaskPII) else stage for stage in stabilizer.stages)
    # The very same object: it finds what it worked out for the conversation in earlier calls.
    if stages == stabilizer.stages:
        return stabilizer
    chain = copy.copy(stabilizer)
    chain.stages = stages
    return chain


def _into(stage: MaskPII, vault: SessionVault) -> MaskPII:
    own = stage.masker
    if own.vault is vault:
        return stage
    return MaskPII(masker=own.with_vault(vault))


def is_function(given: object) -> bool:
    """Tell a function of the run context from a stabilizer, a vault or a class."""
    # A class is callable, too; whoever gives one forgot the parentheses, and gets the error for a wrong type.
    return callable(given) and not isinstance(given, (type, NotAHook))


def require_choice(
    given: Stabilizer | Callable[[Context], Stabilizer],
) -> Stabilizer | Callable[[Context], Stabilizer]:
    """Return a stabilizer, or a function that gives one; refuse anything else."""
    return given if is_function(given) else require_stabilizer(given)


def valid_listener(given: OnReport | None) -> OnReport | None:
    """Return what is to be called with each report, or None; refuse what cannot be called."""
    if given is None or callable(given):
        return given
    raise ConfigError(
        f"on_report is a function that takes a report, such as reports.append, not {type(given).__name__}",
        setting="on_report",
    )


def tell(on_report: OnReport | None, report: Report, session: object = None, *, tool: str | None = None) -> None:
    """Hand a report to the application with the name of its conversation, and of the tool that it is about, if any."""
    # Set before the function is called: one signature for all frameworks needs the name on the report.
    report.session = None if session is None else str(session)
    report.tool = tool
    if tool is not None:
        output = report.decisions[-1]
        _LOG.info("a tool's output was bounded: %d of %d tokens are kept", output.tokens_after, output.tokens_before)
    if on_report is not None:
        on_report(report)
