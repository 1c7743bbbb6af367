"""The guard as a plugin of ADK's runner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from google.adk.plugins import BasePlugin
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.set_model_response_tool import SetModelResponseTool
from google.genai import types

from ctxguard.adapting.misuse import takes_stabilizer
from ctxguard.adapting.per_run import OnReport, PerRun, RunOptions
from ctxguard.adapting.request import Request
from ctxguard.adapting.tool_calls import RecallToolFactory
from ctxguard.draft import adrive
from ctxguard.errors import ConfigError
from ctxguard.formats.gemini import GoogleAdapter
from ctxguard.tokens.caches import Recent
from ctxguard_adk.restoring import AdkAnswer

if TYPE_CHECKING:
    from google.adk.agents.callback_context import CallbackContext
    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.models.llm_request import LlmRequest
    from google.adk.models.llm_response import LlmResponse
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.tool_context import ToolContext

    from ctxguard.pii import SessionVault
    from ctxguard.pii.mask.answers import OnNewValues
    from ctxguard.stabilizer import Stabilizer

_ADAPTER: Final = GoogleAdapter()
_INVOCATIONS: Final = 1_024
"""Maximum number of invocations that are known at the same time, including those that were canceled."""

recall_tool = RecallToolFactory(FunctionTool)
"""Create the recall tool, for `Agent(tools=[…])`.

Call it as `recall_tool(store, max_tokens=2_000)`. The parameters are those of `ctxguard.content.recall_tool`.
"""


class ContextGuard(BasePlugin):
    """Stabilizes each model call of a runner: `App(…, plugins=[ContextGuard(stabilizer)])`.

    Only the request changes, and the events of the session keep the originals. `GoogleAdapter` lists what is not
    preserved in changed contents. The system instruction and the descriptions of tools are masked, too. Names and
    parameters of tools and output schemas cannot be changed, so a rule that matches in them ends the call with
    `CheckFailedError`. All of these are counted. ADK raises what a plugin raises as the cause of a `RuntimeError`.

    Plugins run in their order, so put the guard last. `run_live` is refused: ADK sends the history of a live connection
    and all that is said in it without asking plugins.

    Args:
        stabilizer: The stabilizer, or a function that returns one for the context of a call.
        window: The model's context window in tokens; needed if the budget is a share of the window. None means what is
            known about the model's name.
        keep_thinking: Whether to keep signed thinking that was produced before a cut, see `DropStaleThinking`.
        on_report: Function called with the report on each model call. `report.session` is the id of ADK's session.
        vault: The vault of a session, or a function that returns one for the context of a call. The stabilizer's
            `MaskPII` stage stores values in it, and the arguments of a tool are restored right before the tool runs.
        restore: Whether to restore masked values in what the model writes, before ADK reads it: in its texts, in the
            arguments of calls, and in structured output. Events and the session then have the values. Placeholders stay
            in thoughts, in code that the model runs, in links to hosts that no user named, and in the arguments of
            tools that get no values. ADK skips further callbacks after the model where values are restored.
        new_values: What to do with values that the model itself writes: `pass`, `report`, `mask`, or `refuse`, see
            `ctxguard.adapting.per_run.RunOptions`. It needs `restore`.
        name: The name of the plugin.

    Raises:
        ConfigError: If `stabilizer` or `vault` has another type, or `on_report` is not a function.
    """

    @takes_stabilizer("ContextGuard")
    def __init__(
        self,
        stabilizer: Stabilizer | Callable[[CallbackContext], Stabilizer],
        *,
        window: int | None = None,
        keep_thinking: bool = False,
        on_report: OnReport | None = None,
        vault: SessionVault | Callable[[CallbackContext], SessionVault] | None = None,
        restore: bool = False,
        new_values: OnNewValues = "pass",
        name: str = "ctxguard",
    ) -> None:
        super().__init__(name=name)
        options = RunOptions(
            window=window,
            keep_thinking=keep_thinking,
            on_report=on_report,
            restore=restore,
            new_values=new_values,
        )
        self._per_run: PerRun[CallbackContext] = PerRun(stabilizer, vault, options)
        # A call is known by the actions of its event, which all callbacks of the call share. A reference to them
        # prevents their id() from being reused.
        self._answers: Recent[str, dict[int, tuple[object, AdkAnswer]]] = Recent(_INVOCATIONS)

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Refuse a live run, of which the guard would see nothing.

        Raises:
            ConfigError: If the run is live.
        """
        if invocation_context.live_request_queue is not None:
            message = (
                "run_live is not guarded: ADK sends it past its plugins; use run_async, or an app without the guard"
            )
            raise ConfigError(message, setting="plugins")

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Replace the contents, the system instruction, and the tools of a request by the stabilized ones."""
        config = llm_request.config
        native: Any = {"contents": llm_request.contents, "config": config}
        tools = list(config.tools or ())
        settings, listed = _ADAPTER.settings(native)
        schemas = [{"name": name, "parameters": schema} for one in listed for name, schema in one.items()]
        run = self._per_run.of(callback_context)
        flow = run.flow(
            _ADAPTER,
            Request(native, None, cast("Any", tools), schemas, settings),
            session=callback_context.session.id,
            model=llm_request.model,
        )
        done, restorer = await adrive(flow)
        changes = {} if config.tools is None else {"tools": list(done.tools)}
        llm_request.contents = list(map(_as_content, done.messages["contents"]))
        llm_request.config = done.messages["config"].model_copy(update=changes)
        if run.options.restore and restorer is not None:
            wants_json = config.response_mime_type == "application/json"
            found = llm_request.tools_dict.items()
            outputs = [name for name, one in found if isinstance(one, SetModelResponseTool)]
            restorer = replace(restorer, wants_json=wants_json, outputs=outputs)
            known = self._answers.get_or_put(callback_context.invocation_id, dict)
            known[id(callback_context.actions)] = (callback_context.actions, AdkAnswer(restorer))
        return None

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        """Return a copy of a response with masked values restored; None if nothing changes."""
        known = self._answers.get(callback_context.invocation_id) or {}
        _, answer = known.get(id(callback_context.actions), (None, None))
        return None if answer is None else answer.restored(llm_response)

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Forget the model calls of an invocation, whose reports refer to whole histories."""
        self._answers.put(invocation_context.invocation_id, {})

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Restore masked values in the arguments of a tool, which are a copy of those in the session."""
        tool_args.update(self._per_run.of(tool_context).unmasked(tool_args, tool.name))
        return None

    async def after_tool_callback(
        self,
        *,
        tool: BaseTool,
        tool_args: dict[str, Any],
        tool_context: ToolContext,
        result: Any,  # noqa: ANN401 - a dict, or what a tool returned
    ) -> dict[str, Any] | None:
        """Restore masked values in a text that the recall tool read."""
        output = result.get("result") if isinstance(result, dict) else result
        recalled = await adrive(self._per_run.of(tool_context).recalled(output, tool.name, tool_args))
        return None if recalled is output else {"result": recalled}


def _as_content(written: Any) -> types.Content:  # noqa: ANN401 - a content, or one that a stage added, as a dict
    """Return a content with all parts as objects of the SDK, as ADK expects them."""
    content = types.Content.model_validate(written) if isinstance(written, dict) else written
    given = content.parts or []
    parts = [types.Part.model_validate(part) if isinstance(part, dict) else part for part in given]
    return content if parts == given else cast("types.Content", content.model_copy(update={"parts": parts}))
