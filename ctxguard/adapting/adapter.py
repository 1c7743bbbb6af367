"""The one path on which every adapter stabilizes a native history."""

from __future__ import annotations

import copy
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ctxguard.adapting.protocol import Adapter, chain_for
from ctxguard.adapting.request import Request, RequestTexts
from ctxguard.draft import Ask, adrive, drive
from ctxguard.errors import ConfigError, HistoryError
from ctxguard.report import Report
from ctxguard.stabilizer import Stabilizer

Native = TypeVar("Native")


def stabilize_request(
    stabilizer: Stabilizer,
    adapter: Adapter[Native],
    request: Request[Native],
    *,
    window: int | None = None,
    keep_thinking: bool = False,
    overflowed: bool = False,
) -> tuple[Request[Native], Report]:
    """Return a stabilized request and the report. The request and all in it are not changed.

    Instructions and tool descriptions are masked as the messages are; what the caller gave holds unmasked values, so
    all of the returned request has to be sent.

    Args:
        stabilizer: Does the work.
        adapter: The adapter of the history's format.
        request: The history, and what is sent beside it.
        window: The model's context window in tokens, where the budget is a share of it.
        keep_thinking: Keep signed thinking from before a cut, see `DropStaleThinking`.
        overflowed: The provider refused this request as too long: it and all that continue it get a smaller budget.

    Raises:
        HistoryError: A message cannot be read.
        BudgetExceededError: What must stay does not fit.
    """
    return drive(
        request_flow(stabilizer, adapter, request, window=window, keep_thinking=keep_thinking, overflowed=overflowed)
    )


async def astabilize_request(
    stabilizer: Stabilizer,
    adapter: Adapter[Native],
    request: Request[Native],
    *,
    window: int | None = None,
    keep_thinking: bool = False,
    overflowed: bool = False,
) -> tuple[Request[Native], Report]:
    """Do what `stabilize_request` does, where summarizers or stores are async."""
    return await adrive(
        request_flow(stabilizer, adapter, request, window=window, keep_thinking=keep_thinking, overflowed=overflowed)
    )


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
    """Return the stabilized native history and the report. The history is not changed.

    Tools and instructions are sent by the caller as they are: they are counted and searched, and what a rule finds in
    them fails the check `NoPII`. `stabilize_request` masks them.

    Args:
        stabilizer: Does the work.
        adapter: The adapter of the history's format.
        native: The history.
        tools: The tool schemas that are sent along.
        instructions: A system prompt that is sent beside the history.
        window: The model's context window in tokens, where the budget is a share of it.
        keep_thinking: Keep signed thinking from before a cut, see `DropStaleThinking`.

    Raises:
        HistoryError: A message cannot be read.
        BudgetExceededError: What must stay does not fit.
    """
    request = Request(native, instructions, tools or ())
    flow = request_flow(stabilizer, adapter, request, window=window, keep_thinking=keep_thinking, is_editable=False)
    done, report = drive(flow)
    return done.messages, report


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
    """Do what `stabilize_native` does, where summarizers or stores are async."""
    request = Request(native, instructions, tools or ())
    flow = request_flow(stabilizer, adapter, request, window=window, keep_thinking=keep_thinking, is_editable=False)
    done, report = await adrive(flow)
    return done.messages, report


def stabilize_with_system(
    stabilizer: Stabilizer,
    adapter: Adapter[Any],
    history: tuple[str, object],
    system: tuple[str, object],
    **settings: Any,  # noqa: ANN401 - those of `stabilize_native`
) -> tuple[Any, Any, Report]:
    """Return the prompt, the messages and the report of a history and a system prompt, each given with its key."""
    native = dict([history] if system[1] is None else [history, system])
    done, report = stabilize_native(stabilizer, adapter, native, **settings)
    return done.get(system[0]), done[history[0]], report


def request_flow(
    stabilizer: Stabilizer,
    adapter: Adapter[Native],
    request: Request[Native],
    *,
    window: int | None = None,
    keep_thinking: bool = False,
    overflowed: bool = False,
    is_editable: bool = True,
) -> Generator[Ask, object, tuple[Request[Native], Report]]:
    """Do what `stabilize_request` does as a generator that yields an `Ask` for whatever needs I/O.

    Where `is_editable` is False, the caller sends instructions and tools of its own and not what this call makes of
    them: a rule that matches in them fails the check `NoPII`.
    """
    require_stabilizer(stabilizer)
    texts = RequestTexts.of(request, stabilizer, is_editable=is_editable)
    unread: HistoryError | None = None
    try:
        read = adapter.read(request.messages)
    except HistoryError as error:
        # Who only observes must not break a program that ran before; the report says what would have been raised.
        if stabilizer.mode == "enforce":
            raise
        read, unread = [], error
    artifacts = texts.beside.joined(read)
    if overflowed:
        stabilizer.tighten(artifacts, window=window)
    # tools of a wrong type are left as they are, for the counter to refuse
    tools = [*request.tools, *request.schemas] if request.schemas else request.tools
    chain = with_adapter_stages(stabilizer, adapter, keep_thinking=keep_thinking)
    result = yield from chain.flow(artifacts, tools=tools, overhead=texts.overhead, window=window)
    report = result.report
    if report.observed:  # the caller's own request goes out, whatever the chain made of it
        if unread is not None:
            report.details = {**report.details, "would_have_raised": type(unread).__name__}
        return request, report
    changed, history = texts.restored(request, result.artifacts)
    return replace(changed, messages=adapter.write(request.messages, history)), report


def require_stabilizer(given: object) -> Stabilizer:
    """Return a stabilizer that was handed over; refuse anything else, such as a budget."""
    if not isinstance(given, Stabilizer):
        # a number is quoted because it is most likely the budget; a history never is
        shown = repr(given) if isinstance(given, int | float) else type(given).__name__
        raise ConfigError(f"expected a Stabilizer, got {shown}; write Stabilizer(budget=…)", setting="stabilizer")
    return given


def with_adapter_stages(
    stabilizer: Stabilizer, adapter: Adapter[Native] | None, *, keep_thinking: bool = False
) -> Stabilizer:
    """Return a stabilizer that also runs what a native history needs behind the chain. It shares all memory."""
    chain = copy.copy(stabilizer)
    chain.stages = chain_for(adapter, stabilizer.stages, keep_thinking=keep_thinking)
    return chain
