"""A guarded LLM for CrewAI: a copy of an LLM whose calls are stabilized."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from ctxguard.settings import extra

with extra("crewai", "ctxguard_crewai needs CrewAI"):
    from crewai import BaseLLM
    from crewai.utilities.exceptions.context_window_exceeding_exception import LLMContextLengthExceededError

from ctxguard.adapting.misuse import takes_stabilizer
from ctxguard.adapting.per_run import OnReport, PerRun, RunOptions
from ctxguard.adapting.request import Request
from ctxguard.draft import Ask, adrive, drive
from ctxguard.errors import ConfigError
from ctxguard_crewai.messages import CrewAIAdapter, with_parts
from ctxguard_crewai.restoring import CrewAnswer

if TYPE_CHECKING:
    from ctxguard.pii import SessionVault
    from ctxguard.pii.mask.answers import OnNewValues
    from ctxguard.stabilizer import Stabilizer

LLM = TypeVar("LLM", bound=BaseLLM)
_ADAPTER: Final = CrewAIAdapter()
_GUARD: Final = "_ctxguard"
_ANSWER: ContextVar[CrewAnswer | None] = ContextVar("answer", default=None)
"""What restores the answer to the call that is running."""


class LLMCall(NamedTuple):
    """What a call of an LLM is made for.

    Attributes:
        agent: The agent that calls, or None.
        task: Its task, or None.
    """

    agent: Any
    task: Any


@takes_stabilizer("guarded_llm")
def guarded_llm(
    llm: LLM,
    stabilizer: Stabilizer | Callable[[LLMCall], Stabilizer],
    *,
    window: int | None = None,
    keep_thinking: bool = False,
    on_report: OnReport | None = None,
    vault: SessionVault | Callable[[LLMCall], SessionVault] | None = None,
    restore: bool = False,
    new_values: OnNewValues = "pass",
) -> LLM:
    """Return a copy of an LLM for `Agent(llm=…)` whose calls are guarded. It shares the clients of the original.

    Only the request changes: the agent keeps the original messages. `CrewAIAdapter` lists what is not preserved in
    changed messages. Descriptions of tools are masked, too. Names and parameters of tools and the model of a response
    cannot be changed, so a rule that matches in them ends the call with `CheckFailedError`. All of these are counted.
    Everything else is the original's: settings, native calls, stop words, events, hooks. If the model's window is
    exceeded nevertheless, the call is repeated once with a smaller budget, which then holds for the conversation.

    Args:
        llm: An LLM, such as `LLM(model="openai/gpt-5.5")`.
        stabilizer: The stabilizer, or a function that returns one for the agent and task of a call.
        window: The model's context window in tokens; needed if the budget is a share of the window. None means what is
            known about the model's name, or the `get_context_window_size()` of the LLM.
        keep_thinking: Whether to keep signed thinking that was produced before a cut, see `DropStaleThinking`.
        on_report: Function called with the report on each call. `report.session` is the id of the task, or of
            the agent.
        vault: The vault of a session, or a function that returns one for the agent and task of a call. The stabilizer's
            `MaskPII` stage stores values in it, and the arguments of tool calls are restored when the model has
            answered.
        restore: Whether to restore masked values in texts, structured output, and streamed events, too.
        new_values: What to do with values that the model itself writes: `pass`, `report`, `mask`, or `refuse`, see
            `ctxguard.adapting.per_run.RunOptions`. It needs `restore`.

    Raises:
        ConfigError: If `llm` is not an LLM, or is guarded already, `stabilizer` or `vault` has another type,
            `on_report` is not a function, or `restore` has nothing to restore.
    """
    if not isinstance(llm, BaseLLM):
        raise ConfigError(f"llm is an LLM of crewai, not {type(llm).__name__}; write LLM(model='…')", setting="llm")
    if isinstance(llm, _Guarded):
        raise ConfigError("this LLM is guarded already; pass the one that it was made of", setting="llm")
    options = RunOptions(
        window=window, keep_thinking=keep_thinking, on_report=on_report, restore=restore, new_values=new_values
    )
    made: Any = llm.model_copy()
    made.__class__ = _guarded_class(cast("Any", type(llm)))
    vars(made)[_GUARD] = _Guard(PerRun(stabilizer, vault, options))
    return cast("LLM", made)


@dataclass(frozen=True, slots=True)
class _Guard:
    per_run: PerRun[LLMCall]

    def prepared(
        self,
        llm: BaseLLM,
        messages: Any,  # noqa: ANN401 - a text, or a list of messages
        arguments: Mapping[str, Any],
        *,
        overflowed: bool = False,
    ) -> Generator[Ask, object, tuple[list[Any], dict[str, Any], CrewAnswer | None]]:
        """Return the messages and arguments of a call, and what restores the answer."""
        call = LLMCall(arguments.get("from_agent"), arguments.get("from_task"))
        run, output = self.per_run.of(call), arguments.get("response_model")
        schemas = [{"name": output.__name__, "parameters": output.model_json_schema()}] if output else []
        history = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        done, restorer = yield from run.flow(
            _ADAPTER,
            Request(history, None, arguments.get("tools") or (), schemas),
            session=getattr(call.task or call.agent, "id", None),
            model=llm.model,
            known=llm.get_context_window_size(),
            overflowed=overflowed,
        )
        changes: dict[str, Any] = {"tools": list(done.tools)} if arguments.get("tools") else {}
        answer = None
        if restorer is not None and (run.options.restore or run.vault is not None):
            restorer.wants_json = output is not None
            answer = CrewAnswer(restorer, is_shown=run.options.restore)
            if functions := arguments.get("available_functions"):
                changes["available_functions"] = answer.functions(functions)
        return list(with_parts(done.messages)), {**arguments, **changes}, answer


class _Guarded:
    """The calls of a guarded LLM. The other base of its class is the class of the original."""

    __slots__ = ()

    def call(self: Any, messages: Any, tools: Any = None, *args: Any, **settings: Any) -> Any:  # noqa: ANN401
        return drive(_answered(self, _original(self).call, messages, _named(tools, args, settings)))

    async def acall(self: Any, messages: Any, tools: Any = None, *args: Any, **settings: Any) -> Any:  # noqa: ANN401
        return await adrive(_answered(self, _original(self).acall, messages, _named(tools, args, settings)))

    def is_context_window_overflowing_threshold(self, *_: object, **__: object) -> bool:
        """Return False, so that an agent does not summarize its messages: what is sent stays within the budget."""
        return False

    def _emit_stream_chunk_event(self: Any, chunk: str, *args: Any, **settings: Any) -> None:  # noqa: ANN401
        answer = _ANSWER.get()
        if answer is not None and settings.get("tool_call") is None:
            chunk = answer.feed(chunk)
        if chunk:
            _original(self)._emit_stream_chunk_event(chunk, *args, **settings)  # noqa: SLF001 - where CrewAI lets a class add to its events

    def _emit_call_completed_event(self: Any, response: Any, *args: Any, **settings: Any) -> None:  # noqa: ANN401
        answer = _ANSWER.get()
        if answer is not None and answer.is_shown:
            if rest := answer.close():
                of = {key: settings.get(key) for key in ("from_task", "from_agent")}
                _original(self)._emit_stream_chunk_event(rest, **of)  # noqa: SLF001
            response = answer.whole(response)
        _original(self)._emit_call_completed_event(response, *args, **settings)  # noqa: SLF001


def _named(tools: Any, args: tuple[Any, ...], settings: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    """Return the arguments of a call by their names, which all LLMs share."""
    names = ("callbacks", "available_functions", "from_task", "from_agent", "response_model")
    return {"tools": tools, **dict(zip(names, args, strict=False)), **settings}


def _answered(
    llm: BaseLLM,
    ask: Callable[..., object],
    messages: Any,  # noqa: ANN401 - a text, or a list of messages
    arguments: Mapping[str, Any],
) -> Generator[Ask, object, Any]:
    """Ask the original with the stabilized messages, once more if they exceed its window, and restore the answer."""
    for overflowed in (False, True):
        sent, given, answer = yield from getattr(llm, _GUARD).prepared(llm, messages, arguments, overflowed=overflowed)
        token = _ANSWER.set(answer)
        try:
            said = yield Ask(partial(ask, **given), (sent,))
        except LLMContextLengthExceededError:
            if overflowed:
                raise
        else:
            return said if answer is None else answer.whole(said)
        finally:
            _ANSWER.reset(token)
    return None


def _original(llm: Any) -> Any:  # noqa: ANN401 - a guarded LLM
    """Return what calls the methods of the original's class."""
    return super(_Guarded, llm)


@cache
def _guarded_class(kind: Any) -> Any:  # noqa: ANN401 - the class of an LLM
    return type(kind)(kind.__name__, (_Guarded, kind), {"__module__": kind.__module__})
