"""The guard as a plugin of a Strands agent, by the middleware around its model and its tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from ctxguard.settings import extra

with extra("strands", "ctxguard_strands needs Strands Agents from 1.62 on"):
    from strands import tool
    from strands.middleware import ExecuteToolContext, ExecuteToolStage, InvokeModelContext, InvokeModelStage
    from strands.plugins import Plugin
    from strands.tools.structured_output.structured_output_tool import StructuredOutputTool
    from strands.types.events import ToolResultEvent
    from strands.types.exceptions import ContextWindowOverflowException

from ctxguard.adapting.misuse import takes_stabilizer
from ctxguard.adapting.per_run import ForRun, OnReport, PerRun, RunOptions
from ctxguard.adapting.request import Request
from ctxguard.adapting.restoring import Restorer
from ctxguard.adapting.tool_calls import RecallToolFactory
from ctxguard.draft import adrive
from ctxguard.tokens.schemas import fields_of
from ctxguard.wire.replies import Reply
from ctxguard.wire.streams import ReplyEvents
from ctxguard_strands.messages import StrandsAdapter

if TYPE_CHECKING:
    from strands import Agent
    from strands.models import Model

    from ctxguard.pii import SessionVault
    from ctxguard.pii.mask.answers import OnNewValues
    from ctxguard.stabilizer import Stabilizer

RunContext: TypeAlias = "InvokeModelContext | ExecuteToolContext"
"""The framework's context of a model call or a tool call, with the `agent` and the `invocation_state` of the run."""
_ADAPTER: Final = StrandsAdapter()

recall_tool = RecallToolFactory(tool)
"""Create the recall tool, for `Agent(tools=[…])`.

Call it as `recall_tool(store, max_tokens=2_000)`. The parameters are those of `ctxguard.content.recall_tool`.
"""


class ContextGuard(Plugin):
    """Stabilizes each model call of an agent: `Agent(model, plugins=[ContextGuard(stabilizer)])`.

    Only the request changes, and `agent.messages` keeps the originals. `StrandsAdapter` lists what is not preserved in
    changed messages. The system prompt and the descriptions of tools are masked, too. Names and parameters of tools
    cannot be changed, so a rule that matches in them ends the call with `CheckFailedError`. All of these are counted.

    The guard sees what input middleware changes, whatever the order. If the model's window is exceeded nevertheless,
    the call is repeated once with a smaller budget, which then applies to the rest of the conversation.

    Args:
        stabilizer: The stabilizer, or a function that returns one for the context of a call.
        window: The model's context window in tokens; needed if the budget is a share of the window. None means the
            `context_window_limit` of the model's configuration, or what is known about its `model_id`.
        keep_thinking: Whether to keep signed thinking that was produced before a cut, see `DropStaleThinking`.
        on_report: Function called with the report on each model call. `report.session` is the agent's `session_id`.
        vault: The vault of a session, or a function that returns one for the context of a call. The stabilizer's
            `MaskPII` stage stores values in it, and the arguments of a tool are restored right before the tool runs.
        restore: Whether to restore masked values in what the model writes, before the agent reads it: in its texts, in
            the arguments of calls, and in structured output. Events, `agent.messages`, and the result then have the
            values. Placeholders stay in reasoning, in links to hosts that no user named, and in the arguments of tools
            that get no values.
        new_values: What to do with values that the model itself writes: `pass`, `report`, `mask`, or `refuse`, see
            `ctxguard.adapting.per_run.RunOptions`. It needs `restore`.

    Raises:
        ConfigError: If `stabilizer` or `vault` has another type, or `on_report` is not a function.
    """

    name = "ctxguard"

    @takes_stabilizer("ContextGuard")
    def __init__(
        self,
        stabilizer: Stabilizer | Callable[[RunContext], Stabilizer],
        *,
        window: int | None = None,
        keep_thinking: bool = False,
        on_report: OnReport | None = None,
        vault: SessionVault | Callable[[RunContext], SessionVault] | None = None,
        restore: bool = False,
        new_values: OnNewValues = "pass",
    ) -> None:
        super().__init__()
        options = RunOptions(
            window=window,
            keep_thinking=keep_thinking,
            on_report=on_report,
            restore=restore,
            new_values=new_values,
        )
        self._per_run: PerRun[RunContext] = PerRun(stabilizer, vault, options)

    def init_agent(self, agent: Agent) -> None:
        """Add the guard to an agent; the framework calls this."""
        agent.add_middleware(InvokeModelStage, self._call_model)
        agent.add_middleware(ExecuteToolStage, self._call_tool)

    async def _call_model(
        self, context: InvokeModelContext, call: Callable[[InvokeModelContext], AsyncGenerator[Any, None]]
    ) -> AsyncGenerator[Any, None]:
        try:
            async for event in call(await self._stabilized(context)):
                yield event
        except ContextWindowOverflowException:
            async for event in call(await self._stabilized(context, overflowed=True)):
                yield event

    async def _stabilized(self, context: InvokeModelContext, *, overflowed: bool = False) -> InvokeModelContext:
        prompt, choice = context.system_prompt, context.tool_choice
        words = prompt if isinstance(prompt, str) else None
        native = {"messages": context.messages, **({"system": prompt} if isinstance(prompt, list) else {})}
        tools = [{"toolSpec": spec} for spec in context.tool_specs]
        run = self._per_run.of(context)
        flow = run.flow(
            _ADAPTER,
            Request(native, words, tools, settings={"toolChoice": choice} if choice else {}),
            session=context.agent.session_id,
            model=fields_of(context.model.get_config()).get("model_id"),
            known=context.model.context_window_limit,
            overflowed=overflowed,
        )
        done, restorer = await adrive(flow)
        specs = [one["toolSpec"] for one in done.tools]
        changes: dict[str, Any] = {"messages": list(done.messages["messages"]), "tool_specs": specs}
        if run.options.restore and restorer is not None:
            changes["model"] = _restoring(context, restorer)
        return replace(context, system_prompt=done.messages.get("system", done.instructions), **changes)

    async def _call_tool(
        self, context: ExecuteToolContext, call: Callable[[ExecuteToolContext], AsyncGenerator[Any, None]]
    ) -> AsyncGenerator[Any, None]:
        run, use = self._per_run.of(context), context.tool_use
        if run.vault is not None:
            context = replace(context, tool_use={**use, "input": run.unmasked(use["input"], use["name"])})
        async for event in call(context):
            yield await _recalled(event, run, use) if isinstance(event, ToolResultEvent) else event


async def _recalled(event: ToolResultEvent, run: ForRun, use: Mapping[str, Any]) -> ToolResultEvent:
    """Return the result of a tool, with the values of a text that the recall tool read."""
    result: Any = event.tool_result
    blocks = result["content"]
    texts = [await adrive(run.recalled(block.get("text", ""), use["name"], use["input"])) for block in blocks]
    content = [{**block, "text": text} if "text" in block else block for block, text in zip(blocks, texts, strict=True)]
    shown = cast("Any", {**result, "content": content})
    return event if content == blocks else ToolResultEvent(shown, exception=event.exception)


def _restoring(context: InvokeModelContext, restorer: Restorer) -> Model:
    """Return a copy of the model of a call, whose responses have masked values restored. Structured output has them."""
    tools, given = context.agent.tool_registry.dynamic_tools, context.model
    outputs = [name for name, one in tools.items() if isinstance(one, StructuredOutputTool)]
    wants_json = context.structured_output_model is not None
    reply = Reply.of(restorer, _ADAPTER, wants_json=wants_json, outputs=outputs)

    async def stream(*args: Any, **settings: Any) -> AsyncIterator[Any]:  # noqa: ANN401 - the framework's signature
        events: ReplyEvents[None] = ReplyEvents(reply)
        async for event in given.stream(*args, **settings):
            for now, _ in events.feed(cast("Any", event), None):
                yield now
        for now, _ in events.close():
            yield now

    restoring: Any = copy(given)
    restoring.stream = stream
    return cast("Model", restoring)
