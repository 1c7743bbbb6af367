"""Guards for an agent: a capability that leaves the history unchanged, and a history processor that replaces it.

Both see the whole request, including its parts outside the history: instructions, tools, and output types.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic_ai import RunContext, Tool, exceptions
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage

from ctxguard.adapting.adapter import window_for
from ctxguard.adapting.fields import Path, copy_with, parse_json
from ctxguard.adapting.misuse import NotAFunction, takes_stabilizer
from ctxguard.adapting.per_run import ForRun, OnReport, PerRun, RunOptions
from ctxguard.adapting.request import Request
from ctxguard.adapting.restoring import Restorer
from ctxguard.adapting.tool_calls import RecallToolFactory
from ctxguard.draft import adrive
from ctxguard.errors import ConfigError, HistoryError
from ctxguard.settings import NotMiddleware
from ctxguard.stabilizer import Stabilizer
from ctxguard.tokens.caches import Recent
from ctxguard_pydantic_ai.adapter import PydanticAIAdapter, is_fixed
from ctxguard_pydantic_ai.requests import latest_instructions, sent_content, tools_of, with_content
from ctxguard_pydantic_ai.returns import bounded_result, second_returns, with_bounded_returns

if TYPE_CHECKING:
    from pydantic_ai.models import Model, ModelRequestContext
    from pydantic_ai.tools import ToolDefinition

    from ctxguard.pii import SessionVault
    from ctxguard.pii.mask.answers import OnNewValues

recall_tool = RecallToolFactory(lambda recall: Tool(recall, takes_ctx=False))
"""Create the recall tool, for `Agent(tools=[…])`.

Call it as `recall_tool(store, max_tokens=2_000)`. The parameters are those of `ctxguard.content.recall_tool`.
"""

_REMEMBERED: Final = 256
"""Maximum number of messages whose bounded form is kept."""
Processor = Callable[["RunContext[Any]", "list[ModelMessage]"], Awaitable["list[ModelMessage]"]]
_ADAPTER: Final = PydanticAIAdapter()


@takes_stabilizer("history_processor")
def history_processor(
    stabilizer: Stabilizer | Callable[[RunContext[Any]], Stabilizer],
    *,
    window: int | None = None,
    keep_thinking: bool = False,
    on_report: OnReport | None = None,
) -> Processor:
    """Return a history processor for `ProcessHistory` (2.x) or `history_processors=[…]` (1.x).

    PydanticAI replaces the history with the result of a history processor. `ContextGuard` leaves the history unchanged.

    Args:
        stabilizer: The stabilizer, or a function that returns one for the run's `RunContext`.
        window: The model's context window in tokens, used if the budget is a share of it. None means the window of the
            stabilizer's `model`. If that is unknown, the window in the profile of the agent's model is used, or else
            the window known for the model's name. If none is known, 128,000 tokens are assumed, and the report warns.
        keep_thinking: Whether to keep signed thinking that was produced before a cut, see `DropStaleThinking`.
        on_report: Function called with the report on each request. `report.session` is the id of the conversation.

    Raises:
        ConfigError: If `stabilizer` has another type, or `on_report` is not a function.
        BudgetExceededError: (when called) If the mandatory messages exceed the budget.
    """
    options = RunOptions(window=window, keep_thinking=keep_thinking, on_report=on_report)
    per_run: PerRun[RunContext[Any]] = PerRun(stabilizer, options=options)

    async def stabilize_history(ctx: RunContext[Any], messages: list[ModelMessage] | None = None) -> list[ModelMessage]:
        if isinstance(ctx, list):
            raise ConfigError(
                "a history processor takes the RunContext and the messages; give your own processor that calls it a "
                "first parameter that is annotated as RunContext, and pass it on: await processor(ctx, messages)",
                setting="history_processors",
            )
        if messages is None:  # PydanticAI calls a function in `capabilities` with only the context
            raise ConfigError(
                "a history processor is not a capability; write capabilities=[ProcessHistory(history_processor(…))]",
                setting="capabilities",
            )
        request = Request(messages, latest_instructions(messages), tools_of(ctx))
        # a history processor only returns messages, and PydanticAI adds its own instructions and tools
        flow = per_run.of(ctx).flow(
            _ADAPTER, request, session=_conversation(ctx), is_editable=False, **_model_of(getattr(ctx, "model", None))
        )
        done, _ = await adrive(flow)
        return _ending_as(messages, done.messages)

    return stabilize_history


@dataclass
class ContextGuard(NotAFunction, AbstractCapability[Any]):
    """Sends the model a stabilized history, while the run keeps the original.

    Instructions and the descriptions of tools and output types are masked, too. A rule that matches in anything that
    cannot be changed (names, parameters, defaults) ends the run with `CheckFailedError`. All of these are counted.

    Tool results are shortened in what the model sees. With `max_result_tokens`, large results are shortened in the
    history, too. If the provider reports that the context overflowed, the request is retried once with a smaller
    budget, which then applies to the rest of the conversation (PydanticAI 2.66 and later).

    Attributes:
        stabilizer: The stabilizer, or a function that returns one for the run's `RunContext`.
        window: The model's context window in tokens, used if the budget is a share of it. None means the window of the
            stabilizer's `model`. If that is unknown, the window in the profile of the agent's model is used, or else
            the window known for the model's name. If none is known, 128,000 tokens are assumed, and the report warns.
        keep_thinking: Whether to keep signed thinking that was produced before a cut, see `DropStaleThinking`.
        max_result_tokens: Number of tokens above which a tool result is masked and shortened when the tool returns, in
            the history that the run stores. Its complete, unmasked value is stored in the metadata of the part under
            `ctxguard_full_result`. None means that the history is not shortened.
        on_report: Function called with the report on each request, and on each result that is shortened when its tool
            returns (then `report.tool` is the name of the tool). `report.session` is the id of the conversation.
        vault: The vault of a session, or a function that returns one for the run's `RunContext`. The stabilizer's
            `MaskPII` stage stores values in it, and the arguments of a tool and structured output are restored right
            before they are validated. The history keeps the placeholders as the model wrote them.
        restore: Whether to restore masked values in the model's responses as they arrive: in texts and tool calls,
            whole or streamed, and so in the events, the output, and the history of the run. Placeholders stay in
            thinking, in parts of the provider's own tools, in links to hosts that no user named, and in the arguments
            of tools that get no values. It needs PydanticAI's hook `get_wrapper_model`.
        new_values: What to do with values that the model itself writes: `pass`, `report`, `mask`, or `refuse`, see
            `ctxguard.adapting.per_run.RunOptions`. It needs `restore`.

    Raises:
        ConfigError: If `stabilizer` or `vault` has another type, `on_report` is not a function, `max_result_tokens` is
            not a whole number of at least 1, or the installed PydanticAI cannot `restore`.
        BudgetExceededError: (when called) If the mandatory messages exceed the budget.
    """

    stabilizer: Stabilizer | Callable[[RunContext[Any]], Stabilizer]
    window: int | None = field(default=None, kw_only=True)
    keep_thinking: bool = field(default=False, kw_only=True)
    max_result_tokens: int | None = field(default=None, kw_only=True)
    on_report: OnReport | None = field(default=None, kw_only=True)
    vault: SessionVault | Callable[[RunContext[Any]], SessionVault] | None = field(default=None, kw_only=True)
    restore: bool = field(default=False, kw_only=True)
    new_values: OnNewValues = field(default="pass", kw_only=True)
    _restorer: Restorer | None = field(default=None, init=False, repr=False, compare=False)
    _is_for_run: bool = field(default=False, init=False, repr=False, compare=False)
    _per_run: PerRun[RunContext[Any]] = field(init=False, repr=False, compare=False)
    _overflowed: bool = field(default=False, init=False, repr=False, compare=False)
    _answered_step: int | None = field(default=None, init=False, repr=False, compare=False)
    _bounded: Recent[tuple[int, int], tuple[ModelMessage, ModelMessage]] = field(
        default_factory=lambda: Recent(_REMEMBERED), init=False, repr=False, compare=False
    )

    wrap_tool_call = NotMiddleware()
    error_if_called = "this ContextGuard is for Agent(capabilities=[…]) of PydanticAI", "capabilities"

    def __post_init__(self) -> None:
        options = RunOptions(
            window=self.window,
            keep_thinking=self.keep_thinking,
            max_result_tokens=self.max_result_tokens,
            on_report=self.on_report,
            restore=self.restore,
            new_values=self.new_values,
        )
        self._per_run = PerRun(self.stabilizer, self.vault, options)
        if self.restore:
            require_wrapper_model()

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """Return None, because a stabilizer cannot be written into an agent's specification."""
        return None

    async def for_run(self, ctx: RunContext[Any]) -> ContextGuard:  # noqa: ARG002 - the framework's signature
        """Return a copy for each run, so that an overflow affects only its own run, and so do restored values."""
        copied = copy.copy(self)
        vars(copied)["_is_for_run"] = True
        return copied

    def get_wrapper_model(self, model: Model) -> Model | None:
        """Return the model with restored responses; None if there is nothing to restore."""
        if self._restorer is None:
            return None
        from ctxguard_pydantic_ai.restoring import RestoringModel

        return RestoringModel(model, self._restorer)

    async def prepared(
        self, ctx: RunContext[Any] | None, request: ModelRequestContext, *, overflowed: bool = False
    ) -> tuple[ModelRequestContext, Restorer | None]:
        """Return a stabilized request, and what restores its response.

        Args:
            ctx: The context of the run. None only if neither the stabilizer nor the vault is a function of it.
            request: The request.
            overflowed: Whether the provider rejected this request as too long.
        """
        context: RunContext[Any] = cast("Any", ctx)
        model, sent = getattr(request, "model", None) or context.model, sent_content(request)
        run, session, known = self._per_run.of(context), _conversation(context), _model_of(model)
        if run.stabilizer.mode == "enforce" and any(map(second_returns, sent.messages)):
            window = window_for(run.stabilizer, self.window, known["model"], known["known"])
            room = run.stabilizer.budget_for(window) // 2
            bounded = [
                await self._with_bounded_returns(message, run, room, session) if second_returns(message) else message
                for message in sent.messages
            ]
            sent = replace(sent, messages=bounded)
        flow = run.flow(_ADAPTER, sent, session=session, overflowed=overflowed, **known)
        done, restorer = await adrive(flow)
        messages = _ending_as(request.messages, done.messages)
        return with_content(request, sent, replace(done, messages=messages)), restorer

    async def with_recalled(self, ctx: RunContext[Any] | None, messages: list[ModelMessage]) -> list[ModelMessage]:
        """Return messages in which the texts that the recall tool returned have their masked values restored."""
        if self.vault is None:
            return messages
        run = self._per_run.of(cast("Any", ctx))
        parts: list[Any] = [part for message in messages for part in message.parts]
        calls = {part.tool_call_id: part for part in parts if part.part_kind == "tool-call"}

        async def restored(message: Any) -> Any:  # noqa: ANN401 - messages differ between versions
            changes: dict[Path, object] = {}
            for number, part in enumerate(message.parts):
                call = calls.get(part.tool_call_id) if part.part_kind == "tool-return" else None
                if call is not None:
                    arguments = parse_json(call.args_as_json_str())
                    content = await adrive(run.recalled(part.content, part.tool_name, arguments))
                    if content is not part.content:
                        changes["parts", number, "content"] = content
            return copy_with(message, changes)

        return [await restored(message) for message in messages]

    async def _stabilize(self, ctx: RunContext[Any], request: ModelRequestContext) -> ModelRequestContext:
        prepared, restorer = await self.prepared(ctx, request, overflowed=self._overflowed)
        # A guard that runs share must not remember: the values of one run would be restored in another one.
        self._restorer = restorer if self.restore and self._is_for_run else None
        return prepared

    async def _with_bounded_returns(
        self, message: ModelMessage, run: ForRun, limit: int, session: object
    ) -> ModelMessage:
        """Return a message with bounded returns, see `with_bounded_returns`; made once for each message and limit."""
        known = self._bounded.get((id(message), limit))
        if known is None:
            known = (message, await with_bounded_returns(message, run, limit, session))
            self._bounded.put((id(message), limit), known)
        return known[1]

    if hasattr(AbstractCapability, "prepare_model_request"):

        async def prepare_model_request(
            self, ctx: RunContext[Any], request_context: ModelRequestContext
        ) -> ModelRequestContext:
            """Stabilize each attempt at a request."""
            try:
                return await self._stabilize(ctx, request_context)
            finally:
                self._overflowed = False

        async def on_model_request_error(
            self,
            ctx: RunContext[Any],
            *,
            request_context: ModelRequestContext,  # noqa: ARG002 - the framework's signature
            error: Exception,
        ) -> Any:  # noqa: ANN401 - the framework's signature; it always raises
            """Retry once with a smaller budget if the context overflowed; raise any other error."""
            is_second = self._answered_step == ctx.run_step
            if not isinstance(error, exceptions.ModelContextWindowExceededError) or is_second:
                raise error
            self._answered_step, self._overflowed = ctx.run_step, True  # for the next attempt
            raise exceptions.RetryModelRequest from error

    else:  # before 2.66 this is the only hook that changes the request alone

        async def wrap_model_request(
            self,
            ctx: RunContext[Any],
            *,
            request_context: ModelRequestContext,
            handler: Callable[[ModelRequestContext], Awaitable[Any]],
        ) -> Any:  # noqa: ANN401 - the framework's signature
            """Pass on the stabilized request."""
            return await handler(await self._stabilize(ctx, request_context))

    async def before_tool_validate(
        self,
        ctx: RunContext[Any],
        *,
        call: Any,  # noqa: ANN401, ARG002 - the framework's signature
        tool_def: ToolDefinition,
        args: str | dict[str, Any],
    ) -> str | dict[str, Any]:
        """Restore masked values in the arguments of a tool."""
        is_unchanged = self.vault is None or is_fixed(tool_def)
        return args if is_unchanged else self._per_run.of(ctx).unmasked(args, tool_def.name)

    async def before_output_validate(
        self,
        ctx: RunContext[Any],
        *,
        output_context: Any,  # noqa: ANN401, ARG002 - the framework's signature
        output: str | dict[str, Any],
    ) -> str | dict[str, Any]:
        """Restore masked values in structured output, which is data for the program. Text output is not changed."""
        return output if self.vault is None else self._per_run.of(ctx).unmasked(output)

    async def after_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: Any,  # noqa: ANN401, ARG002 - the framework's signature
        tool_def: ToolDefinition,
        args: Any,  # noqa: ANN401
        result: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Restore masked values in a recalled text; mask and shorten a result above `max_result_tokens`.

        Results of the framework's own tools are not changed.
        """
        if (self.max_result_tokens is None and self.vault is None) or is_fixed(tool_def):
            return result
        run = self._per_run.of(ctx)
        result = await adrive(run.recalled(result, tool_def.name, args))
        return await bounded_result(result, run, tool_def.name, _conversation(ctx)) if run.bounds_outputs else result


def require_wrapper_model() -> None:
    """Raise `ConfigError` if the installed PydanticAI lets no capability change responses."""
    if not hasattr(AbstractCapability, "get_wrapper_model"):
        message = "this version of PydanticAI cannot restore responses; update it, or unmask the output yourself"
        raise ConfigError(message, setting="restore")


ContextGuard.__init__ = takes_stabilizer("ContextGuard")(ContextGuard.__init__)  # type: ignore[method-assign]  # written by `dataclass`


def _ending_as(messages: Sequence[ModelMessage], view: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the messages for the model. Raise an error if their last message is not of the same kind as before."""
    if messages and (not view or view[-1].kind != messages[-1].kind):
        raise HistoryError("a stage dropped the last message, which the model has to answer; keep the last exchange")
    return list(view)


def _conversation(ctx: RunContext[Any]) -> str | None:
    """Return the id of the conversation. Versions before 2 have only the id of the run."""
    return getattr(ctx, "conversation_id", None) or getattr(ctx, "run_id", None)


def _model_of(model: object) -> dict[str, Any]:
    """Return what is known about the model, for budgets that are a share of the window."""
    name, known = getattr(model, "model_name", None), getattr(model, "context_window", None)
    while (wrapped := getattr(model, "wrapped", None)) is not None:
        model = wrapped
    # A window that the application states counts more than the name. Other windows are PydanticAI's own guesses.
    profile = getattr(model, "_profile", None)
    is_stated = isinstance(profile, Mapping) and profile.get("context_window") is not None
    return {"model": None if is_stated else name, "known": known}
