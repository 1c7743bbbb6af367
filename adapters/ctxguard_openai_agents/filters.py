"""The filter that the Agents SDK calls before every model call, including those within the tool loop.

The filter affects only the request. Session items and `result.to_input_list()` are not changed, as documented for
`RunConfig.call_model_input_filter`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from agents import (
    AgentOutputSchema,
    AgentOutputSchemaBase,
    FunctionTool,
    Handoff,
    RunContextWrapper,
    function_tool,
    handoff,
)
from agents.run import CallModelData, ModelInputData

from ctxguard.adapting.fields import parse_json
from ctxguard.adapting.misuse import takes_stabilizer
from ctxguard.adapting.per_run import OnReport, PerRun, RunOptions, is_function, require_vault
from ctxguard.adapting.request import Request
from ctxguard.adapting.restoring import Restorer
from ctxguard.adapting.tool_calls import RecallToolFactory, recalled, unmask_arguments
from ctxguard.draft import adrive
from ctxguard.errors import ConfigError
from ctxguard_openai import ResponsesAdapter
from ctxguard_openai_agents.retries import PreparedInput, remember

if TYPE_CHECKING:
    from agents.tool_context import ToolContext

    from ctxguard.adapting.registry import Adapter
    from ctxguard.pii import SessionVault
    from ctxguard.pii.mask.answers import OnNewValues
    from ctxguard.stabilizer import Stabilizer
    from ctxguard.stores import Store

recall_tool = RecallToolFactory(function_tool)
"""Create the recall tool, for `Agent(tools=[…])`.

Call it as `recall_tool(store, max_tokens=2_000)`. The parameters are those of `ctxguard.content.recall_tool`.
"""

VaultChoice: TypeAlias = "SessionVault | Callable[[RunContextWrapper[Any]], SessionVault]"
"""The vault of a session, or a function that returns one for the run's `RunContextWrapper`."""
Filter = Callable[[CallModelData[Any]], Awaitable[ModelInputData]]


@takes_stabilizer("call_model_input_filter")
def call_model_input_filter(
    stabilizer: Stabilizer | Callable[[RunContextWrapper[Any]], Stabilizer],
    *,
    incremental: bool = False,
    window: int | None = None,
    keep_thinking: bool = False,
    on_report: OnReport | None = None,
    vault: VaultChoice | None = None,
    new_values: OnNewValues = "pass",
) -> Filter:
    """Return a filter for `RunConfig(call_model_input_filter=…)`.

    `ResponsesAdapter` lists what is not preserved in changed items. Instructions are masked, too. The schemas of tools
    (including those of MCP servers), handoffs, and the output type are counted. The SDK does not let a filter change
    them, so a rule that matches in one of them ends the run with `CheckFailedError`.

    Args:
        stabilizer: The stabilizer, or a function that returns one for the run's `RunContextWrapper`.
        incremental: Whether earlier items are stored at the provider (`previous_response_id`, `conversation_id`), so
            that an output without its call is valid.
        window: The model's context window in tokens; needed if the budget is a share of the window.
        keep_thinking: Whether to keep signed thinking that was produced before a cut, see `DropStaleThinking`.
        on_report: Function called with the report on every model call.
        vault: The vault of a session, or a function that returns one for the run's `RunContextWrapper`. The
            stabilizer's `MaskPII` stage stores values in it, and `with_vault` restores them in the arguments of tools.
        new_values: What to do with values that the model itself writes: `pass`, `report`, `mask`, or `refuse`, see
            `ctxguard.adapting.per_run.RunOptions`. It needs a model that is wrapped by `with_restored_values`.

    Raises:
        ConfigError: If `stabilizer` or `vault` has another type, or `on_report` is not a function.
        BudgetExceededError: (when called) If the mandatory messages exceed the budget.
    """
    adapter = cast("Adapter[list[Mapping[str, object]]]", ResponsesAdapter(incremental=incremental))
    searches = new_values != "pass"
    options = RunOptions(
        window=window, keep_thinking=keep_thinking, on_report=on_report, restore=searches, new_values=new_values
    )
    per_run: PerRun[RunContextWrapper[Any]] = PerRun(stabilizer, vault, options)

    async def filter_input(data: CallModelData[Any]) -> ModelInputData:
        run = per_run.of(RunContextWrapper(data.context))
        items = cast("list[Mapping[str, object]]", data.model_data.input)
        request = Request(items, data.model_data.instructions, schemas=await _schemas(data))
        model = getattr(data.agent.model, "model", data.agent.model)

        restorers: list[Restorer | None] = []

        async def prepare(*, overflowed: bool = False) -> ModelInputData:
            done, restorer = await adrive(run.flow(adapter, request, model=model, overflowed=overflowed))
            restorers.append(restorer)
            return ModelInputData(input=cast("Any", list(done.messages)), instructions=done.instructions)

        first = await prepare()
        remember(PreparedInput(replace(first), lambda: prepare(overflowed=True), restorers))
        return first

    return filter_input


async def _schemas(data: CallModelData[Any]) -> list[Mapping[str, object]]:
    """Return the schemas that the SDK sends: those of tools, handoffs, and the output type."""
    agent: Any = data.agent
    tools = await agent.get_all_tools(RunContextWrapper(data.context))
    handoffs = [one if isinstance(one, Handoff) else handoff(one) for one in agent.handoffs]
    found = [
        _schema(one.name, getattr(one, "description", None), getattr(one, "params_json_schema", None)) for one in tools
    ]
    found += [_schema(one.tool_name, one.tool_description, one.input_json_schema) for one in handoffs]
    output = agent.output_type
    if output is not None and not isinstance(output, AgentOutputSchemaBase):
        output = AgentOutputSchema(output)
    if output is not None and not output.is_plain_text():
        found.append(_schema(output.name(), None, output.json_schema()))
    return found


def _schema(name: str, description: object, parameters: object) -> Mapping[str, object]:
    return {"type": "function", "name": name, "description": description, "parameters": parameters}


def with_vault(tools: Iterable[Any], vault: VaultChoice, *, store: Store | None = None) -> list[Any]:
    """Return tools for an `Agent` that receive arguments with masked values restored.

    The session keeps the arguments as the model wrote them. The stabilizer's `MaskPII` stage has to use the same vault,
    so pass it to `call_model_input_filter`, too. Hosted tools and handoffs are returned unchanged, because the provider
    or the SDK runs them.

    Args:
        tools: The tools, as for `Agent(tools=…)`. They are not changed.
        vault: The vault of a session, or a function that returns one for the run's `RunContextWrapper`.
        store: The store of the stabilizer's stages. Texts that `recall_tool(store)` reads from it are masked, so they
            get their values back, like the rest of the session. Give `context_result` another store.

    Raises:
        ConfigError: If `vault` is not the vault of a session, or `tools` is not a list.
    """
    if not is_function(vault):
        require_vault(vault)
    if isinstance(tools, (str, FunctionTool)) or not isinstance(tools, Iterable):
        raise ConfigError(f"tools are a list of an agent's tools, not {type(tools).__name__}", setting="tools")
    return [_unmasking(tool, vault, store) if isinstance(tool, FunctionTool) else tool for tool in tools]


def _unmasking(tool: FunctionTool, vault: VaultChoice, store: Store | None) -> FunctionTool:
    async def invoke(context: ToolContext[Any], arguments: str) -> object:
        values = require_vault(vault(context) if callable(vault) else vault)
        output = await tool.on_invoke_tool(context, unmask_arguments(arguments, values, tool=tool.name))
        stores = [] if store is None else [store]
        return await adrive(recalled(output, tool.name, parse_json(arguments), values, stores))

    return replace(tool, on_invoke_tool=invoke)
