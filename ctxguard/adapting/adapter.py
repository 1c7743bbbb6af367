"""The one path on which every adapter stabilizes a native history."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from ctxguard.adapting.beside import Beside
from ctxguard.adapting.fields import Path
from ctxguard.adapting.protocol import Adapter, chain_for, require_messages
from ctxguard.adapting.request import Request, RequestTexts
from ctxguard.draft import Ask, adrive, drive
from ctxguard.errors import BESIDE, BudgetExceededError, ConfigError, HistoryError
from ctxguard.report import Report
from ctxguard.stabilizer import Stabilizer
from ctxguard.stages.drop_stale_thinking import DropStaleThinking
from ctxguard.tokens.windows import window_of

Native = TypeVar("Native")
Sent = TypeVar("Sent")

_ROUNDS: Final = 3
"""How often a request is stabilized at most until it is within the budget as a whole."""


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


def request_flow(
    stabilizer: Stabilizer,
    adapter: Adapter[Native],
    request: Request[Native],
    *,
    window: int | None = None,
    keep_thinking: bool = False,
    overflowed: bool = False,
    is_editable: bool = True,
    recount: Callable[[Request[Native]], int] | None = None,
) -> Generator[Ask, object, tuple[Request[Native], Report]]:
    """Do what `stabilize_request` does as a generator that yields an `Ask` for whatever needs I/O.

    Where `is_editable` is False, the caller sends instructions and tools of its own and not what this call makes of
    them: a rule that matches in them fails the check `NoPII`. `recount` counts the request as it is written.
    """
    require_stabilizer(stabilizer)
    texts = RequestTexts.of(request, stabilizer, is_editable=is_editable, recount=recount)
    chain = with_adapter_stages(stabilizer, adapter, keep_thinking=keep_thinking)
    tightened = {"window": window} if overflowed else None
    sent, report, _ = yield from texts_flow(chain, adapter, request.messages, texts, window=window, tightened=tightened)
    return request if sent is None else sent, report


class Texts(Protocol[Sent]):
    """Hold what a request sends beside its history, while the history is stabilized.

    Attributes:
        beside: Holds the texts in which a rule matches.
        overhead: Tokens of the rest that the chain does not see.
        tools: The tools and schemas for the chain to count.
    """

    beside: Beside
    overhead: int
    tools: Sequence[Mapping[str, object]]

    def written(self, changes: Mapping[Path, object], instructions: str, native: Any) -> Sent:  # noqa: ANN401
        """Return the request with changed texts, the instructions that joined the history, and another history."""

    def tokens(self, sent: Sent, report: Report, *, is_changed: bool) -> int:
        """Return the input tokens of a request as it is written."""


def texts_flow(
    stabilizer: Stabilizer,
    adapter: Adapter[Any],
    native: Any,  # noqa: ANN401 - each adapter has its own
    texts: Texts[Sent],
    *,
    window: int | None = None,
    tightened: Mapping[str, int | None] | None = None,
) -> Generator[Ask, object, tuple[Sent | None, Report, int]]:
    """Stabilize a request: the one path of programs, transports and the proxy.

    A written request that is over the budget as a whole is stabilized again with that much less.

    Args:
        stabilizer: Its chain has the stages that the history needs, see `chain_for`.
        adapter: The adapter of the history's format.
        native: The history, as the adapter reads it.
        texts: Everything else that is sent.
        window: The model's context window in tokens, where the budget is a share of it.
        tightened: Settings of `Stabilizer.tighten`, where the provider refused the request as too long.

    Returns:
        The request to send, None where the stabilizer only observes; the report, and the tokens of what is sent.
    """
    unread: HistoryError | None = None
    try:
        read = adapter.read(native)
    except HistoryError as error:
        # Who only observes must not break a program that ran before; the report says what would have been raised.
        if stabilizer.mode == "enforce":
            raise
        read, unread = [], error
    artifacts = texts.beside.joined(read)
    if tightened is not None:
        stabilizer.tighten(artifacts, **tightened)
    overhead = texts.overhead
    for _ in range(_ROUNDS):
        result = yield from stabilizer.flow(artifacts, tools=texts.tools, overhead=overhead, window=window)
        report = result.report
        if report.observed:  # the caller's own request is sent, whatever the chain made of it
            if unread is not None:
                report.details = {**report.details, "would_have_raised": type(unread).__name__}
            return None, report, report.tokens_before
        changes, instructions, history = texts.beside.restored(result.artifacts)
        require_messages(adapter, read, history)
        sent = texts.written(changes, instructions, adapter.write(native, history))
        tokens = texts.tokens(sent, report, is_changed=bool(changes))
        if tokens <= report.budget:
            return sent, report, tokens
        # what the chain counted too little counts here, too: it may believe that it has more room than is missing
        overhead += max(tokens - report.budget, tokens - report.tokens_after)
        stabilizer = _without_signed_thinking(stabilizer)
    raise BudgetExceededError(tokens, report.budget, {BESIDE: overhead, "messages": tokens - overhead})


def _without_signed_thinking(stabilizer: Stabilizer) -> Stabilizer:
    """Return one that drops all signed thinking: another try may cut elsewhere, and signatures would not hold."""
    stages = (DropStaleThinking(everything=True) if isinstance(s, DropStaleThinking) else s for s in stabilizer.stages)
    return stabilizer.with_(stages=tuple(stages))


def require_stabilizer(given: object) -> Stabilizer:
    """Return a stabilizer that was handed over; refuse anything else, such as a budget."""
    if not isinstance(given, Stabilizer):
        # a number is quoted because it is most likely the budget; a history never is
        shown = repr(given) if isinstance(given, int | float) else type(given).__name__
        raise ConfigError(f"expected a Stabilizer, got {shown}; write Stabilizer(budget=…)", setting="stabilizer")
    return given


def window_for(stabilizer: Stabilizer, window: int | None, model: object, known: int | None = None) -> int | None:
    """Return the window of a call in tokens: the caller's, else that of the model where the budget is a share of it.

    Args:
        stabilizer: What the call is stabilized by; it may know the model itself.
        window: What the caller names.
        model: The name of the model, where the request or the framework names it.
        known: Input tokens that the framework gives the model, for one that is not in `ctxguard.tokens.windows`.
    """
    is_share = isinstance(getattr(stabilizer, "budget", None), str)
    if window is not None or not is_share or not (isinstance(model, str) or known):
        return window
    return window_of(model if isinstance(model, str) else "", known)


def with_adapter_stages(
    stabilizer: Stabilizer, adapter: Adapter[Native] | None, *, keep_thinking: bool = False
) -> Stabilizer:
    """Return a stabilizer that also runs what a native history needs behind the chain. It shares all memory."""
    return stabilizer.with_(stages=chain_for(adapter, stabilizer.stages, keep_thinking=keep_thinking))
