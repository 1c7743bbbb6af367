"""What an adapter is, and the one path that all of them share."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast, runtime_checkable

from ctxguard.adapting.message_view import is_list
from ctxguard.adapting.read_cache import ReadCache
from ctxguard.artifacts import Artifact, Kind, ToolCall
from ctxguard.errors import AdapterError, ConfigError
from ctxguard.report import Report
from ctxguard.stabilizer import Stabilizer

if TYPE_CHECKING:
    from ctxguard.draft import Stage
    from ctxguard.pii import SessionVault
    from ctxguard.stages import BoundToolOutput

__all__ = [
    "OF_OBJECTS",
    "Adapter",
    "ReadCache",
    "adapter_names",
    "astabilize_native",
    "chain_for",
    "detect_adapter",
    "find_adapter",
    "first_seen",
    "stabilize_native",
    "tool_step",
    "unmasked_arguments",
    "wanted_stabilizer",
    "wanted_vault",
]

Native = TypeVar("Native")
Arguments = TypeVar("Arguments", bound="str | dict[str, Any]")

_EARLY_SHARE: Final = 0.8
"""What an output gets when the tool returns, of what it would get by itself: schemas and system prompt come later."""
_STEP_TOKENS: Final = 200
"""Tokens that the call of a step and its framing may take."""
OF_OBJECTS: Final = ("langchain", "pydantic-ai")
"""Adapters of objects that are no dicts: they read no files."""


@runtime_checkable
class Adapter(Protocol[Native]):
    """Look at native messages as artifacts, and put what became of them back. A lens: it rebuilds nothing.

    One whose provider refuses what a chain may leave can have a `last_stage` too: it runs behind every chain, so that
    what it puts in is counted and told in the report.

    Attributes:
        name: what `--adapter` and reports call it.
    """

    name: str

    def read(self, native: Native) -> list[Artifact]:
        """Return the artifacts of a history; `source` is the adapter's own mark. Changes nothing.

        Raises:
            HistoryError: the history is not of the adapter's kind; the message at fault is named.
        """
        ...

    def write(self, native: Native, artifacts: Iterable[Artifact]) -> Native:
        """Return the native history of these artifacts: the same objects, but for those that were changed or added."""
        ...

    def detects(self, native: object) -> bool:
        """Tell whether a history looks like one of this adapter's."""
        ...


def stabilize_native(
    stabilizer: Stabilizer,
    adapter: Adapter[Native],
    native: Native,
    *,
    tools: Sequence[Mapping[str, object]] | None = None,
    instructions: str | None = None,
    window: int | None = None,
    keep_thinking: bool = False,
) -> tuple[Native, Report]:
    """Return the stabilized native history and the report.

    Args:
        stabilizer: does the work.
        adapter: of the history's kind.
        native: the history; not changed.
        tools: tool schemas that are sent along, to be counted.
        instructions: a system prompt that is sent beside the history, to be counted.
        window: the model's context window in tokens, where the budget is a share of it.
        keep_thinking: leave signed thinking from before a cut in, see `DropStaleThinking`.
    """
    chain, artifacts, overhead = _begun(stabilizer, adapter, native, instructions, keep_thinking=keep_thinking)
    result = chain.stabilize(artifacts, tools=tools, overhead=overhead, window=window)
    return adapter.write(native, result.artifacts), result.report


async def astabilize_native(
    stabilizer: Stabilizer,
    adapter: Adapter[Native],
    native: Native,
    *,
    tools: Sequence[Mapping[str, object]] | None = None,
    instructions: str | None = None,
    window: int | None = None,
    keep_thinking: bool = False,
) -> tuple[Native, Report]:
    """Do what `stabilize_native` does where summarizers or stores are async."""
    chain, artifacts, overhead = _begun(stabilizer, adapter, native, instructions, keep_thinking=keep_thinking)
    result = await chain.astabilize(artifacts, tools=tools, overhead=overhead, window=window)
    return adapter.write(native, result.artifacts), result.report


def _begun(
    stabilizer: Stabilizer, adapter: Adapter[Native], native: Native, instructions: str | None, *, keep_thinking: bool
) -> tuple[Stabilizer, list[Artifact], int]:
    """Return the chain for a history, the history's artifacts, and the tokens of what is sent beside it."""
    wanted_stabilizer(stabilizer)
    if not isinstance(instructions, str | None):
        raise ConfigError(f"instructions are a text, not {type(instructions).__name__}", setting="instructions")
    artifacts = adapter.read(native)
    overhead = stabilizer.counter.beside(instructions)
    return chain_for(stabilizer, adapter, keep_thinking=keep_thinking), artifacts, overhead


def wanted_stabilizer(given: object) -> Stabilizer:
    """Return a stabilizer that was handed over.

    Raises:
        ConfigError: it is something else, a budget for example.
    """
    if not isinstance(given, Stabilizer):
        said = repr(given) if isinstance(given, int | float) else type(given).__name__  # a history is not quoted
        raise ConfigError(f"a Stabilizer is wanted, not {said}; write Stabilizer(budget=…)", setting="stabilizer")
    return given


def wanted_vault(given: object) -> SessionVault:
    """Return the vault of a session that was handed over.

    Raises:
        ConfigError: it is something else, the vault of all sessions for example.
    """
    from ctxguard.pii.settings import session_vault

    vault = session_vault(cast("SessionVault | None", given))
    if vault is None:
        raise ConfigError("vault is one session's, not None; get it by Vault.session('its name')", setting="vault")
    return vault


def chain_for(stabilizer: Stabilizer, adapter: Adapter[Native] | None, *, keep_thinking: bool = False) -> Stabilizer:
    """Return the stabilizer with what a native history needs behind its chain; it shares what is remembered.

    That is `DropStaleThinking`, for signed thinking, and the adapter's own last stage.

    Args:
        stabilizer: with the chain.
        adapter: that read the history; None where it came as artifacts.
        keep_thinking: leave signed thinking from before a cut in.
    """
    from ctxguard.stages import DropStaleThinking

    last: Stage | None = getattr(adapter, "last_stage", None)
    behind = [*([] if keep_thinking else [DropStaleThinking()]), *([] if last is None else [last])]
    if not behind:
        return stabilizer
    chain = copy.copy(stabilizer)
    chain.stages = (*stabilizer.stages, *behind)
    return chain


def first_seen(stabilizer: Stabilizer, *, max_tokens: int | None = None) -> Stabilizer:
    """Return what a chain does to a tool's output by itself, masking and bounding, for use when the tool returns.

    Args:
        stabilizer: with the whole chain.
        max_tokens: a limit for the output in place of those of the chain's `BoundToolOutput`.
    """
    from ctxguard.stages import BoundToolOutput, MaskPII

    alone = copy.copy(stabilizer)
    alone.stages = tuple(
        _early(stage) if isinstance(stage, BoundToolOutput) else stage
        for stage in stabilizer.stages
        if isinstance(stage, (MaskPII, BoundToolOutput))
    )
    alone.checks = ()
    if max_tokens is not None:
        masks = [stage for stage in alone.stages if isinstance(stage, MaskPII)]
        store = next((stage.store for stage in alone.stages if isinstance(stage, BoundToolOutput)), None)
        alone.stages = (*masks, BoundToolOutput(max_tokens=max_tokens, share=1, exchange_share=1, store=store))
        alone.budget, alone.reserve = 2 * max_tokens + _STEP_TOKENS, 0
    return alone


def _early(stage: BoundToolOutput) -> BoundToolOutput:
    """Return a stage that leaves room for what only the model call will tell, so that the chain cuts no view again."""
    from ctxguard.stages import BoundToolOutput

    shares = {"share": _EARLY_SHARE * stage.share, "exchange_share": _EARLY_SHARE * stage.exchange_share}
    return BoundToolOutput(max_tokens=stage.max_tokens, tools=stage.tools, store=stage.store, **shares)


def tool_step(output: Artifact, tool: str) -> list[Artifact]:
    """Return a tool's output as a history of its own, behind its call: all that an early look may take into account."""
    call = ToolCall(tool, "", output.answers)
    return [Artifact(Kind.ASSISTANT, "", calls=(call,)), output]


def unmasked_arguments(arguments: Arguments, vault: SessionVault) -> Arguments:
    """Return the arguments of a tool call with the values that their placeholders stand for, right before it runs.

    Args:
        arguments: what the model wrote: JSON text, or an object; what comes back is of the same kind.
        vault: of the session whose `MaskPII` wrote the placeholders.
    """
    from ctxguard.pii.unmasking import restore_arguments

    if isinstance(arguments, str):
        return cast("Arguments", restore_arguments(arguments, vault).text)
    restored = restore_arguments(json.dumps(arguments, ensure_ascii=False, default=str), vault)
    return cast("Arguments", json.loads(restored.text)) if restored.restored else arguments


def adapter_names() -> list[str]:
    """Return the names of the installed adapters, in alphabetical order."""
    return sorted(_installed())


@lru_cache(maxsize=1)
def _installed() -> dict[str, EntryPoint]:
    """Return the adapters by name; once a process, since it reads what every installed package says of itself."""
    return {point.name: point for point in entry_points(group="ctxguard.adapters")}


def find_adapter(name: str) -> Adapter[object]:
    """Return an installed adapter by its name.

    Raises:
        AdapterError: there is none of that name, or its framework is not installed.
    """
    point = _installed().get(name)
    if point is None:
        raise AdapterError(f"no adapter {name!r}; installed are {', '.join(adapter_names())}")
    try:
        adapter: Adapter[object] = point.load()()
    except ImportError as error:
        raise AdapterError(f"adapter {name!r} cannot be loaded: {error}") from error
    return adapter


def detect_adapter(native: object) -> Adapter[object] | None:
    """Return the first installed adapter that knows a history; None where none does.

    Frameworks of message objects are not loaded to look at plain data.
    """
    is_data = is_list(native) and all(isinstance(message, Mapping) for message in native)
    for name in sorted(adapter_names(), key=lambda name: name != "openai"):
        if is_data and name in OF_OBJECTS:
            continue
        try:
            adapter = find_adapter(name)
        except AdapterError:
            continue  # its framework is not installed, so the history cannot be of its kind
        if adapter.detects(native):
            return adapter
    return None
