"""The two doors into an agent: a capability that leaves the history alone, and a history processor that replaces it."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

# `RunContext` and `ModelMessage` are real imports: PydanticAI reads the annotations when the agent is made.
from pydantic_ai import RunContext, Tool, exceptions
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, ToolReturn, ToolReturnPart

from ctxguard.adapting.adapter import astabilize_native, astabilize_request
from ctxguard.adapting.per_run import OnReport, PerRun, tell, valid_listener
from ctxguard.adapting.request import require_clean_schemas
from ctxguard.adapting.tools import (
    recall_tool_factory,
    tool_exchange,
    tool_output_stabilizer,
    unmask_arguments,
)
from ctxguard.artifacts import Artifact, Kind
from ctxguard.errors import HistoryError, MisplacedError
from ctxguard.settings import NotAHook, whole_number
from ctxguard_pydantic_ai.adapter import PydanticAIAdapter
from ctxguard_pydantic_ai.beside import latest_instructions, sent_beside, with_sent
from ctxguard_pydantic_ai.parts import is_fixed, read_part, rendered

if TYPE_CHECKING:
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.tools import ToolDefinition

    from ctxguard.pii import SessionVault
    from ctxguard.report import Report
    from ctxguard.stabilizer import Stabilizer

recall_tool = recall_tool_factory(lambda recall: Tool(recall, takes_ctx=False))
"""Make the recall tool, for `Agent(tools=[…])`.

Call it as `recall_tool(store, max_tokens=2_000)`; its parameters are those of `ctxguard.content.recall_tool`.
"""

FULL_RESULT: Final = "ctxguard_full_result"
"""Key of `ToolReturnPart.metadata` under which the whole of a bounded result stands, unmasked; no model is sent it."""
Processor = Callable[["RunContext[Any]", "list[ModelMessage]"], Awaitable["list[ModelMessage]"]]
_ADAPTER: Final = PydanticAIAdapter()


def history_processor(
    stabilizer: Stabilizer | Callable[[RunContext[Any]], Stabilizer],
    *,
    window: int | None = None,
    keep_thinking: bool = False,
    on_report: OnReport | None = None,
) -> Processor:
    """Return a history processor for `ProcessHistory` (2.x) or `history_processors=[…]` (1.x).

    PydanticAI stores what a history processor returns in place of the history. `ContextGuard` leaves it alone.

    Args:
        stabilizer: does the work; or a function from the run's `RunContext` to the stabilizer of that run.
        window: the model's context window in tokens; None means what the model's profile says.
        keep_thinking: keep signed thinking from before a cut, see `DropStaleThinking`.
        on_report: called with the report on each request; `report.session` is the conversation's id.

    Raises:
        ConfigError: `stabilizer` is neither, or `on_report` is not a function; or (when called) the budget is a share
            and the window is not known.
        BudgetExceededError: (when called) what must stay does not fit.
    """
    per_run: PerRun[RunContext[Any]] = PerRun(stabilizer)
    listener = valid_listener(on_report)

    async def stabilize_history(ctx: RunContext[Any], messages: list[ModelMessage] | None = None) -> list[ModelMessage]:
        if messages is None:  # PydanticAI takes a function among the capabilities for one that returns a capability
            raise MisplacedError("what ctxguard_pydantic_ai.history_processor returns")
        chosen, instructions = per_run.of(ctx).stabilizer, latest_instructions(messages)
        room = _window(chosen, window, ctx)
        view, report = await astabilize_native(
            chosen, _ADAPTER, messages, instructions=instructions, window=room, keep_thinking=keep_thinking
        )
        tell(listener, report, _conversation(ctx))
        require_clean_schemas(report)  # what is sent as instructions is not what a history processor returns
        return _ending_as(messages, view)

    return stabilize_history


@dataclass
class ContextGuard(AbstractCapability[Any], NotAHook):
    """Send the model a stabilized view of the history; what the run stores stays as it was.

    Instructions and the descriptions of tools and output types are masked too; a rule that matches in what cannot be
    changed (names, parameters, defaults) ends the run with `CheckFailedError`. All of these are counted.

    Tool results are bounded in what the model sees; with `max_result_tokens`, large ones in the history, too.
    When the provider says that the context overflowed, the request is repeated once with a tighter budget,
    which then holds for the rest of the conversation (PydanticAI 2.66 and up).

    Attributes:
        stabilizer: does the work; or a function from the run's `RunContext` to the stabilizer of that run.
        window: the model's context window in tokens, for budgets that are a share of it; None means what the model's
            profile says.
        keep_thinking: keep signed thinking from before a cut, see `DropStaleThinking`.
        max_result_tokens: tokens above which a tool result is masked and bounded as the tool returns, in the history
            that the run stores; its full value, unmasked, goes into the part's metadata under `ctxguard_full_result`.
            None means never.
        on_report: called with the report on each request, and on each result that is bounded when its tool returns
            (`report.tool` is the name of the tool, then); `report.session` is the conversation's id.
        vault: where placeholders live: the chain's `MaskPII` masks into it, and a tool gets the values back in its
            arguments right before they are validated. The history keeps the placeholders that the model wrote. Either
            the vault of a session, or a function from the run's `RunContext` to the vault of that run.

    Raises:
        ConfigError: `stabilizer` or `vault` is neither such an object nor a function, `on_report` is not a function, or
            `max_result_tokens` is not a number of tokens; or (when called) the budget is a share and the window is not
            known.
        BudgetExceededError: (when called) what must stay does not fit.
    """

    stabilizer: Stabilizer | Callable[[RunContext[Any]], Stabilizer]
    window: int | None = field(default=None, kw_only=True)
    keep_thinking: bool = field(default=False, kw_only=True)
    max_result_tokens: int | None = field(default=None, kw_only=True)
    on_report: OnReport | None = field(default=None, kw_only=True)
    vault: SessionVault | Callable[[RunContext[Any]], SessionVault] | None = field(default=None, kw_only=True)
    _per_run: PerRun[RunContext[Any]] = field(init=False, repr=False, compare=False)
    _overflowed: bool = field(default=False, init=False, repr=False, compare=False)
    _answered_step: int | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._per_run = PerRun(self.stabilizer, self.vault)
        valid_listener(self.on_report)
        if self.max_result_tokens is not None:
            whole_number(self.max_result_tokens, "max_result_tokens", unit="tokens", least=1)

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """Return None: a stabilizer cannot be written into an agent's specification."""
        return None

    async def for_run(self, ctx: RunContext[Any]) -> ContextGuard:  # noqa: ARG002 - the framework's signature
        """Return a copy of its own for each run, so that an overflow is answered in the run that it happened in."""
        return copy.copy(self)

    async def _stabilized(self, ctx: RunContext[Any], request: ModelRequestContext) -> ModelRequestContext:
        model = getattr(request, "model", None) or ctx.model
        stabilizer, sent = self._per_run.of(ctx).stabilizer, sent_beside(request)
        room = _window(stabilizer, self.window, ctx, model)
        done, report = await astabilize_request(
            stabilizer,
            _ADAPTER,
            sent,
            window=room,
            keep_thinking=self.keep_thinking,
            overflowed=self._overflowed,
        )
        tell(self.on_report, report, _conversation(ctx))
        require_clean_schemas(report)
        messages = _ending_as(request.messages, done.messages)
        return with_sent(request, sent, replace(done, messages=messages))

    if hasattr(AbstractCapability, "prepare_model_request"):

        async def prepare_model_request(
            self, ctx: RunContext[Any], request_context: ModelRequestContext
        ) -> ModelRequestContext:
            """Put the stabilized view into each attempt at a request."""
            try:
                return await self._stabilized(ctx, request_context)
            finally:
                self._overflowed = False

        async def on_model_request_error(
            self,
            ctx: RunContext[Any],
            *,
            request_context: ModelRequestContext,  # noqa: ARG002 - the framework's signature
            error: Exception,
        ) -> Any:  # noqa: ANN401 - the framework's signature; it always raises
            """Ask for another attempt with a tighter budget where the context overflowed; raise any other error."""
            is_second = self._answered_step == ctx.run_step
            if not isinstance(error, exceptions.ModelContextWindowExceededError) or is_second:
                raise error
            self._answered_step, self._overflowed = ctx.run_step, True  # for the attempt that follows
            raise exceptions.RetryModelRequest from error

    else:  # before 2.66 this is the one hook that changes the request alone

        async def wrap_model_request(
            self,
            ctx: RunContext[Any],
            *,
            request_context: ModelRequestContext,
            handler: Callable[[ModelRequestContext], Awaitable[Any]],
        ) -> Any:  # noqa: ANN401 - the framework's signature
            """Hand the stabilized view on."""
            return await handler(await self._stabilized(ctx, request_context))

    async def before_tool_validate(
        self,
        ctx: RunContext[Any],
        *,
        call: Any,  # noqa: ANN401, ARG002 - the framework's signature
        tool_def: ToolDefinition,
        args: str | dict[str, Any],
    ) -> str | dict[str, Any]:
        """Give a tool the values that its arguments' placeholders stand for."""
        vault = None if self.vault is None or is_fixed(tool_def) else self._per_run.of(ctx).vault
        return args if vault is None else unmask_arguments(args, vault)

    async def after_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: Any,  # noqa: ANN401, ARG002 - the framework's signature
        tool_def: ToolDefinition,
        args: Any,  # noqa: ANN401, ARG002
        result: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Mask and bound a result above `max_result_tokens`; results of the framework's own tools stay whole."""
        limit = self.max_result_tokens
        if limit is None or is_fixed(tool_def):
            return result
        stabilizer = self._per_run.of(ctx).stabilizer
        if stabilizer.mode == "observe":
            return result
        bounded, report = await _bounded(result, limit, stabilizer, tool_def.name)
        if report is not None:
            tell(self.on_report, report, _conversation(ctx), tool=tool_def.name)
        return bounded


def _ending_as(messages: Sequence[ModelMessage], view: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return what the model is to see of a history, which must end as the history does."""
    if messages and (not view or view[-1].kind != messages[-1].kind):
        raise HistoryError("a stage dropped the message that is to be answered; the last exchange must stay")
    return list(view)


def _conversation(ctx: RunContext[Any]) -> str | None:
    """Return the id of the conversation; versions before 2 know the run alone."""
    return getattr(ctx, "conversation_id", None) or getattr(ctx, "run_id", None)


def _window(stabilizer: Stabilizer, window: int | None, ctx: RunContext[Any], model: Any = None) -> int | None:  # noqa: ANN401
    """Return the model's context window, where the budget is a share of it; None where its profile names none."""
    if not isinstance(stabilizer.budget, str):
        return None
    return window or getattr(model or ctx.model, "context_window", None)


async def _bounded(result: Any, limit: int, stabilizer: Stabilizer, tool: str) -> tuple[Any, Report | None]:  # noqa: ANN401 - any tool's result
    """Return a result that fits and the report on it; the very same and None where it does, or where it holds media."""
    value = result.return_value if isinstance(result, ToolReturn) else result
    part = ToolReturnPart(tool, value, "")
    found = read_part(part)
    if len(found) > 1 or any(piece.text is None for _, piece in found):
        return result, None
    text = rendered(part, value)
    if stabilizer.counter.text(text) <= limit:
        return result, None
    step = tool_exchange(Artifact(Kind.TOOL, text, answers="1"), tool)
    done = await tool_output_stabilizer(stabilizer, max_tokens=limit).astabilize(step)
    given = result if isinstance(result, ToolReturn) else ToolReturn(value)
    shown = replace(given, return_value=done.artifacts[-1].text, metadata=_metadata(given.metadata, value))
    return shown, done.report


def _metadata(metadata: Any, value: object) -> Any:  # noqa: ANN401 - the application's own
    return {**metadata, FULL_RESULT: value} if isinstance(metadata, dict) else metadata or {FULL_RESULT: value}
