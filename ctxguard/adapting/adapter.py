"""The one function through which every adapter stabilizes a native history, and `ctxguard.guard` for a first use."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from ctxguard.adapting.fields import Path
from ctxguard.adapting.registry import Adapter, chain_for, require_adapter, require_messages
from ctxguard.adapting.request import Beside, Request, RequestTexts
from ctxguard.artifacts import Artifact
from ctxguard.draft import Ask, asynchronous, synchronous
from ctxguard.errors import BESIDE, BudgetExceededError, ConfigError, HistoryError
from ctxguard.report import Report
from ctxguard.stabilizer import Stabilizer
from ctxguard.stages.drop_stale_thinking import DropStaleThinking
from ctxguard.tokens.windows import window_of

Native = TypeVar("Native")
Sent = TypeVar("Sent")

_ROUNDS: Final = 3
"""How often a request is stabilized at most until it is within the budget as a whole."""


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
    overhead: int = 0,
) -> Generator[Ask, object, tuple[Request[Native], Report]]:
    """Stabilize a request, as a generator that yields an `Ask` for all I/O. The request and all in it are not changed.

    Instructions and tool descriptions are masked as the messages are. The original request still contains unmasked
    values, so send all parts of the returned one.

    Args:
        stabilizer: The stabilizer.
        adapter: The adapter of the history's format.
        request: The history, and the other parts of the request.
        window: The model's context window in tokens, if the budget is a share of it.
        keep_thinking: Keep signed thinking from before a cut, see `DropStaleThinking`.
        overflowed: The provider refused this request as too long: it and all that continue its history get a smaller
            budget.
        is_editable: Whether the caller sends the returned instructions and tools; if it sends its own, a rule that
            matches in them fails the check `NoPII`.
        recount: Counts the request as it is written.
        overhead: Tokens of the request that nothing else here counts; negative if the chain counts too many.

    Returns:
        The stabilized request, and the report.

    Raises:
        HistoryError: A message cannot be read.
        BudgetExceededError: The mandatory messages do not fit.
    """
    require_stabilizer(stabilizer)
    texts = RequestTexts.of(request, stabilizer, is_editable=is_editable, window=window, recount=recount)
    texts.overhead = max(0, texts.overhead + overhead)
    chain = with_adapter_stages(stabilizer, adapter, keep_thinking=keep_thinking)
    tightened = {"window": window} if overflowed else None
    sent, report, _ = yield from texts_flow(chain, adapter, request.messages, texts, window=window, tightened=tightened)
    return request if sent is None else sent, report


stabilize_request = synchronous(request_flow)
"""Return a stabilized request and the report; for the parameters, see `request_flow`."""
astabilize_request = asynchronous(stabilize_request)
"""Do the same as `stabilize_request`, if summarizers or stores are async."""


@synchronous
def stabilize_native(
    stabilizer: Stabilizer,
    adapter: Adapter[Native],
    native: Native,
    *,
    tools: Sequence[Mapping[str, object]] | None = None,
    instructions: str | None = None,
    window: int | None = None,
    keep_thinking: bool = False,
) -> Generator[Ask, object, tuple[Native, Report]]:
    """Return the stabilized native history and the report. The history is not changed.

    The caller sends tools and instructions unchanged: they are counted and searched, and if a rule matches in them, the
    check `NoPII` fails. `stabilize_request` masks them.

    Args:
        stabilizer: The stabilizer.
        adapter: The adapter of the history's format.
        native: The history.
        tools: The tool schemas that are sent along.
        instructions: A system prompt that is sent outside the history.
        window: The model's context window in tokens, if the budget is a share of it.
        keep_thinking: Keep signed thinking from before a cut, see `DropStaleThinking`.

    Raises:
        HistoryError: A message cannot be read.
        BudgetExceededError: The mandatory messages do not fit.
    """
    request = Request(native, instructions, tools or ())
    done, report = yield from request_flow(
        stabilizer, adapter, request, window=window, keep_thinking=keep_thinking, is_editable=False
    )
    return done.messages, report


astabilize_native = asynchronous(stabilize_native)
"""Do the same as `stabilize_native`, if summarizers or stores are async."""


class Texts(Protocol[Sent]):
    """The parts of a request outside its history, while the history is stabilized.

    Attributes:
        beside: The texts in which a rule matches.
        overhead: Tokens of the parts that the chain does not see.
        tools: The tools and schemas for the chain to count.
        details: What the report says of them.
    """

    beside: Beside
    overhead: int
    tools: Sequence[Mapping[str, object]]
    details: Mapping[str, object]

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
    anchored: Callable[[Sequence[Artifact]], list[Artifact]] = list,
) -> Generator[Ask, object, tuple[Sent | None, Report, int]]:
    """Stabilize a request: used alike by programs, transports and the proxy.

    If the written request as a whole exceeds the budget, it is stabilized again with a budget reduced by the excess.

    Args:
        stabilizer: Its chain contains the stages that the history needs, see `chain_for`.
        adapter: The adapter of the history's format.
        native: The history, in the form that the adapter reads.
        texts: The other parts of the request.
        window: The model's context window in tokens, if the budget is a share of it.
        tightened: Settings of `Stabilizer.tighten`, if the provider refused the request as too long.
        anchored: Adds the tokens that the provider reported for earlier requests, see `Artifact.reported`.

    Returns:
        The request to send, or None if the stabilizer only observes; the report; and the tokens of the sent request.
    """
    unread: HistoryError | None = None
    try:
        read = anchored(adapter.read(native))
    except HistoryError as error:
        # Observing must not break a program that works without it; the report names the error that would have been
        # raised.
        if stabilizer.mode == "enforce":
            raise
        read, unread = [], error
    artifacts = texts.beside.joined(read)
    if tightened is not None:
        stabilizer.tighten(artifacts, **tightened)
    overhead, stabilizer = texts.overhead, stabilizer.with_(details=texts.details)
    for _ in range(_ROUNDS):
        result = yield from stabilizer.flow(artifacts, tools=texts.tools, overhead=overhead, window=window)
        report = result.report
        if report.observed:  # the caller's own request is sent, whatever the result of the chain
            if unread is not None:
                report.details = {**report.details, "would_have_raised": type(unread).__name__}
            return None, report, report.tokens_before
        changes, instructions, history = texts.beside.restored(result.artifacts)
        require_messages(adapter, read, history)
        sent = texts.written(changes, instructions, adapter.write(native, history))
        tokens = texts.tokens(sent, report, is_changed=bool(changes))
        if tokens <= report.budget:
            return sent, report, tokens
        # add what the chain counted too low: it may see fewer missing tokens than there are
        overhead += max(tokens - report.budget, tokens - report.tokens_after)
        stabilizer = _without_signed_thinking(stabilizer)
    raise BudgetExceededError(tokens, report.budget, {BESIDE: overhead, "messages": tokens - overhead})


def _without_signed_thinking(stabilizer: Stabilizer) -> Stabilizer:
    """Return a stabilizer that drops all signed thinking: a second try may cut elsewhere, which breaks signatures."""
    stages = (DropStaleThinking(everything=True) if isinstance(s, DropStaleThinking) else s for s in stabilizer.stages)
    return stabilizer.with_(stages=tuple(stages))


def require_stabilizer(given: object) -> Stabilizer:
    """Return a stabilizer that the caller gave; reject anything else, such as a budget."""
    if not isinstance(given, Stabilizer):
        # a number is quoted because it is most likely the budget; a history is never quoted
        shown = repr(given) if isinstance(given, int | float) else type(given).__name__
        told = f"expected a Stabilizer, got {shown}; write Stabilizer(budget=…), and hand over the guard made with it"
        raise ConfigError(told, setting="stabilizer")
    return given


def window_for(stabilizer: Stabilizer, window: int | None, model: object, known: int | None = None) -> int | None:
    """Return the window of a call in tokens: the caller's, or if the budget is a share of it, the model's.

    Args:
        stabilizer: The stabilizer of the call; it may know the model itself.
        window: The window that the caller names.
        model: The name of the model, if the request or the framework names it.
        known: Input tokens that the framework states for the model, for one that is not in `ctxguard.tokens.windows`.
    """
    is_share = isinstance(getattr(stabilizer, "budget", None), str)
    if window is not None or not is_share or not (isinstance(model, str) or known):
        return window
    return window_of(model if isinstance(model, str) else "", known)


def with_adapter_stages(
    stabilizer: Stabilizer, adapter: Adapter[Native] | None, *, keep_thinking: bool = False
) -> Stabilizer:
    """Return a stabilizer with the stages added that a native history needs after the chain. It shares all caches."""
    return stabilizer.with_(stages=chain_for(adapter, stabilizer.stages, keep_thinking=keep_thinking))


Message = TypeVar("Message")


class Guarded(list[Message], Generic[Message]):
    """A stabilized history: a list of messages of the given kind, with the report.

    Attributes:
        report: What was done, and why.
    """

    def __init__(self, messages: Sequence[Message], report: Report) -> None:
        super().__init__(messages)
        self.report = report


def guard(
    messages: Sequence[Message],
    *,
    budget: int | str | None = None,
    policy: str = "default",
    tools: Sequence[Mapping[str, object]] | None = None,
    window: int | None = None,
    **settings: object,
) -> Guarded[Message]:
    """Return messages that fit a budget and contain no personal data, in their original format.

    Args:
        messages: The whole history up to now: messages of any installed adapter, or artifacts. It is not changed.
        budget: Tokens that the whole request may take (`8_000` or `"8k"`), or a share of the window such as `"80%"`.
        policy: The name of a policy, see `ctxguard.policies`.
        tools: The tool schemas that are sent along, which are counted.
        window: The model's context window in tokens, if the budget is a share of it.
        settings: Further settings of the policy or of `Stabilizer`; calls with the same settings share one stabilizer.

    Raises:
        AdapterError: No installed adapter knows the messages.
        BudgetExceededError: The mandatory messages do not fit.
        ConfigError: A setting is out of range, or the budget is missing.
        HistoryError: `messages` is not a list.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise HistoryError(f"guard takes a list of messages, not {type(messages).__name__}; write [{{'role': …}}]")
    stabilizer = _stabilizer(policy, budget, settings)
    if messages and all(isinstance(message, Artifact) for message in messages):
        artifacts = cast("Sequence[Artifact]", messages)
        result = stabilizer.stabilize(artifacts, tools=tools, window=window)
        return Guarded(cast("Sequence[Message]", result.artifacts), result.report)
    native, report = stabilize_native(stabilizer, require_adapter(messages), messages, tools=tools, window=window)
    return Guarded(cast("Sequence[Message]", native), report)


def _stabilizer(policy: str, budget: int | str | None, settings: Mapping[str, object]) -> Stabilizer:
    try:
        return _shared_stabilizer(policy, budget, tuple(sorted(settings.items())))
    except TypeError:  # a setting that cannot be hashed, such as a list of rules
        return Stabilizer.from_policy(policy, budget=budget, **settings)


# a stabilizer caches its results for a conversation: a new one at every call would start over
@lru_cache(maxsize=32)
def _shared_stabilizer(policy: str, budget: int | str | None, settings: tuple[tuple[str, Any], ...]) -> Stabilizer:
    return Stabilizer.from_policy(policy, budget=budget, **dict(settings))
