"""A guard for agents that run in a durable engine: Temporal, DBOS, or Prefect.

After a crash, these engines run the code of a workflow again, and use the recorded results of its steps. The hooks of a
capability are code of the workflow. The model that `get_wrapper_model` returns is called in a step, so this guard does
all its work in that model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability

from ctxguard.adapting.misuse import takes_stabilizer
from ctxguard.adapting.per_run import OnReport
from ctxguard.stabilizer import Stabilizer
from ctxguard_pydantic_ai.guard import ContextGuard, require_wrapper_model

if hasattr(AbstractCapability, "get_wrapper_model"):  # imported now, because Temporal refuses imports in a workflow
    from ctxguard_pydantic_ai.guarded_model import GuardedModel

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from ctxguard.pii import SessionVault


@dataclass
class DurableContextGuard(AbstractCapability[Any]):
    """Guards each request in the step of a durable engine that calls the model, and never in code of the workflow.

    Like `ContextGuard` with `restore=True`, it sends the model a stabilized history, and the response has its values
    restored when the engine records it. Stores and vaults are used in that step alone. A step that is run again after a
    crash sends the same bytes. It also works outside an engine.

    Unlike with `ContextGuard`, instrumentation records requests as the run stores them, before they are stabilized.

    Attributes:
        stabilizer: The stabilizer, or a function that returns one for the run's `RunContext`.
        window: The model's context window in tokens, see `ContextGuard`.
        keep_thinking: Whether to keep signed thinking that was produced before a cut, see `DropStaleThinking`.
        on_report: Function called with the report on each request, in the step.
        vault: The vault of a session, or a function that returns one for the run's `RunContext`. In an activity of
            Temporal, the context has what the engine carries there, such as `deps` and `conversation_id`.

    Raises:
        ConfigError: If `stabilizer` or `vault` has another type, `on_report` is not a function, or the installed
            PydanticAI has no hook `get_wrapper_model`.
        BudgetExceededError: (in the step) If the mandatory messages exceed the budget.
    """

    stabilizer: Stabilizer | Callable[[RunContext[Any]], Stabilizer]
    _: KW_ONLY
    window: int | None = None
    keep_thinking: bool = False
    on_report: OnReport | None = None
    vault: SessionVault | Callable[[RunContext[Any]], SessionVault] | None = None
    _guard: ContextGuard = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_wrapper_model()
        self._guard = ContextGuard(
            self.stabilizer,
            window=self.window,
            keep_thinking=self.keep_thinking,
            on_report=self.on_report,
            vault=self.vault,
        )

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """Return None, because a stabilizer cannot be written into an agent's specification."""
        return None

    def get_wrapper_model(self, model: Model) -> Model:
        """Return a model that guards the requests it sends."""
        return GuardedModel(model, self._guard)


DurableContextGuard.__init__ = takes_stabilizer("DurableContextGuard")(DurableContextGuard.__init__)  # type: ignore[method-assign]  # written by `dataclass`
