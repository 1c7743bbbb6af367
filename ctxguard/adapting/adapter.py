"""The function through which all adapters stabilize a history, and `ctxguard.guard` for a first use.

A *native* history consists of messages in a framework's or provider's own format.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from ctxguard.adapting.fields import Path
from ctxguard.adapting.registry import Adapter, chain_for, require_adapter, require_messages
from ctxguard.adapting.request import OutsideTexts, Request, RequestTexts
from ctxguard.artifacts import Artifact
from ctxguard.draft import Ask, asynchronous, synchronous
from ctxguard.errors import BESIDE, BudgetExceededError, ConfigError, HistoryError
from ctxguard.report import Report
from ctxguard.settings import is_of_framework, right_line
from ctxguard.stabilizer import Stabilizer
from ctxguard.stages.arrival import DropStaleThinking
from ctxguard.tokens.families import window_of

Native = TypeVar("Native")
Sent = TypeVar("Sent")

_ROUNDS: Final = 3
"""Maximum number of times that a request is stabilized to bring the whole request within the budget."""


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
    """Stabilize a request without changing it, as a generator that yields an `Ask` for each I/O operation.

    Instructions and tool descriptions are masked like messages. The original request still contains the unmasked
    values, so send every part of the returned request, not only its messages.

    Args:
        stabilizer: The stabilizer.
        adapter: The adapter of the history's format.
        request: The history, and the other parts of the request.
        window: The model's context window in tokens; needed if the budget is a share of the window.
        keep_thinking: Whether to keep signed thinking that was produced before a cut, see `DropStaleThinking`.
        overflowed: Whether the provider refused this request as too long. If so, this request and all later requests of
            the same conversation get a smaller budget.
        is_editable: Whether the caller sends the returned instructions and tools. If the caller sends the original
            ones, a rule that matches in them makes the check `NoPII` fail.
        recount: Function that counts the tokens of a request in its final form.
        overhead: Number of tokens of the request that are counted nowhere else; negative if the stages count too many.

    Returns:
        The stabilized request, and the report.

    Raises:
        HistoryError: If a message cannot be read.
        BudgetExceededError: If the mandatory messages do not fit.
    """
    require_stabilizer(stabilizer)
    texts = RequestTexts.of(request, stabilizer, is_editable=is_editable, window=window, recount=recount)
    texts.overhead = max(0, texts.overhead + overhead)
    chain = with_adapter_stages(stabilizer, adapter, keep_thinking=keep_thinking)
    tightened = {"window": window} if overflowed else None
    sent, report, _ = yield from texts_flow(chain, adapter, request.messages, texts, window=window, tightened=tightened)
    return request if sent is None else sent, report


stabilize_request = synchronous(request_flow)
"""Stabilize a request, and return it with the report; see `request_flow` for the parameters."""
astabilize_request = asynchronous(stabilize_request)
"""Asynchronous version of `stabilize_request`, for summarizers or stores that are asynchronous."""


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
    """Stabilize a native history, and return it with the report. The original history is not changed.

    The caller sends the tools and instructions unchanged. They are counted and searched, and if a rule matches in them,
    the check `NoPII` fails. `stabilize_request` masks them instead.

    Args:
        stabilizer: The stabilizer.
        adapter: The adapter of the history's format.
        native: The history.
        tools: The tool schemas that are sent with the history.
        instructions: A system prompt that is sent outside the history.
        window: The model's context window in tokens; needed if the budget is a share of the window.
        keep_thinking: Whether to keep signed thinking that was produced before a cut, see `DropStaleThinking`.

    Raises:
        HistoryError: If a message cannot be read.
        BudgetExceededError: If the mandatory messages do not fit.
    """
    request = Request(native, instructions, tools or ())
    done, report = yield from request_flow(
        stabilizer, adapter, request, window=window, keep_thinking=keep_thinking, is_editable=False
    )
    return done.messages, report


astabilize_native = asynchronous(stabilize_native)
"""Asynchronous version of `stabilize_native`, for summarizers or stores that are asynchronous."""


class Texts(Protocol[Sent]):
    """The parts of a request outside its history, as `texts_flow` needs them.

    Attributes:
        outside: The texts outside the history in which a rule matches. They are masked together with the history.
        overhead: Number of tokens in the parts of the request that the stages do not see.
        tools: The tools and schemas that the stabilizer counts.
        details: Entries for the `details` of the report.
    """

    outside: OutsideTexts
    overhead: int
    tools: Sequence[Mapping[str, object]]
    details: Mapping[str, object]

    def write(self, changes: Mapping[Path, object], instructions: str, native: Any) -> Sent:  # noqa: ANN401
        """Return the final request.

        Args:
            changes: The new texts outside the history, by their places in the request.
            instructions: The masked system prompt; empty if no rule matched in the prompt.
            native: The stabilized native history.
        """

    def tokens(self, sent: Sent, report: Report, *, is_changed: bool) -> int:
        """Return the number of input tokens in the final request."""


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
    """Stabilize a request. Programs, transports, and the proxy all use this function.

    If the final request still exceeds the budget as a whole, it is stabilized again with a budget that is smaller by
    the excess.

    Args:
        stabilizer: A stabilizer that includes the stages the native history needs, see `chain_for`.
        adapter: The adapter of the history's format.
        native: The history, in the form that the adapter reads.
        texts: The other parts of the request.
        window: The model's context window in tokens; needed if the budget is a share of the window.
        tightened: Arguments for `Stabilizer.tighten` if the provider refused the request as too long.
        anchored: Function that adds to the artifacts the token counts that the provider reported for earlier requests,
            see `Artifact.reported`.

    Returns:
        The request to send, or None if the stabilizer only observes; the report; and the number of tokens in the
        request that is sent.
    """
    unread: HistoryError | None = None
    try:
        read = anchored(adapter.read(native))
    except HistoryError as error:
        # Observing must not break a program that works without the stabilizer, so the report names the error that
        # enforcing would have raised.
        if stabilizer.mode == "enforce":
            raise
        read, unread = [], error
    artifacts = texts.outside.prepended_to(read)
    if tightened is not None:
        stabilizer.tighten(artifacts, **tightened)
    overhead, stabilizer = texts.overhead, stabilizer.with_(details=texts.details)
    for _ in range(_ROUNDS):
        result = yield from stabilizer.flow(artifacts, tools=texts.tools, overhead=overhead, window=window)
        report = result.report
        if report.observed:  # the original request is sent, whatever the stages returned
            if unread is not None:
                report.details = {**report.details, "would_have_raised": type(unread).__name__}
            return None, report, report.tokens_before
        changes, instructions, history = texts.outside.split_off(result.artifacts)
        require_messages(adapter, read, history)
        sent = texts.write(changes, instructions, adapter.write(native, history))
        tokens = texts.tokens(sent, report, is_changed=bool(changes))
        if tokens <= report.budget:
            return sent, report, tokens
        # Add the tokens that the stages failed to count; the excess alone can be smaller than that.
        overhead += max(tokens - report.budget, tokens - report.tokens_after)
        stabilizer = _without_signed_thinking(stabilizer)
    raise BudgetExceededError(tokens, report.budget, {BESIDE: overhead, "messages": tokens - overhead})


def _without_signed_thinking(stabilizer: Stabilizer) -> Stabilizer:
    """Return a stabilizer that drops all signed thinking.

    It is used from the second attempt on, because a second attempt may cut the history at another point and so
    invalidate signatures.
    """
    return stabilizer.with_(stages=stabilizer.stages.with_replaced(DropStaleThinking(everything=True)))


def is_guard(given: object) -> bool:
    """Return whether a value is a guard of one of the adapters, which is made with a stabilizer and is none."""
    return type(given).__module__.startswith("ctxguard_") and not isinstance(given, Stabilizer)


def require_stabilizer(given: object) -> Stabilizer:
    """Return the given value if it is a stabilizer; raise `ConfigError` for anything else, such as a budget."""
    if is_guard(given):
        package, name = type(given).__module__.partition(".")[0], type(given).__name__
        raise ConfigError(
            f"{name} of {package} already contains a stabilizer; pass the Stabilizer itself", setting="stabilizer"
        )
    if not isinstance(given, Stabilizer):
        # a number is quoted because it is most likely the budget; a history is never quoted
        shown = repr(given) if isinstance(given, int | float) else type(given).__name__
        shown = f"the class {given.__name__}" if isinstance(given, type) else shown
        line = right_line(given) if is_of_framework(given) else "write Stabilizer(budget=…)"
        raise ConfigError(f"expected a Stabilizer, got {shown}; {line}", setting="stabilizer")
    return given


def window_for(stabilizer: Stabilizer, window: int | None, model: object, known: int | None = None) -> int | None:
    """Return the context window of a call in tokens: the caller's, or the model's if the budget is a share of it.

    Without `window`, return None if the stabilizer needs none (its budget is a number of tokens, or it knows the window
    of its own model), or if nothing is known about the model of the request.

    Args:
        stabilizer: The stabilizer for the call. If it names a model with a known window, it uses this window instead of
            that of the request's model, whose name may be that of a deployment.
        window: The window that the caller gives; None if the caller gives none.
        model: The name of the model, if the request or the framework names one.
        known: Number of input tokens that the framework states for a model that `ctxguard.tokens.families` does not
            know.
    """
    if window is not None or not stabilizer.lacks_window or not (isinstance(model, str) or known):
        return window
    return window_of(model if isinstance(model, str) else "", known)


def with_adapter_stages(
    stabilizer: Stabilizer, adapter: Adapter[Native] | None, *, keep_thinking: bool = False
) -> Stabilizer:
    """Return the stabilizer extended by the final stages that a native history needs. The two share all caches."""
    return stabilizer.with_(stages=chain_for(adapter, stabilizer.stages, keep_thinking=keep_thinking))


Message = TypeVar("Message")


class Guarded(list[Message], Generic[Message]):
    """A stabilized history: a list of messages in their original format, together with the report.

    Attributes:
        report: What was done to the history, and why.
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
        messages: The whole history so far: messages of any installed adapter, or artifacts. The list is not changed.
        budget: Maximum number of tokens in the whole request (`8_000` or `"8k"`), or a share of the window such as
            `"80%"`.
        policy: The name of a policy, see `ctxguard.policies`.
        tools: The tool schemas that are sent with the messages; they count toward the budget.
        window: The model's context window in tokens; needed if the budget is a share of the window.
        settings: Further settings of the policy or of `Stabilizer`. Calls with the same settings share one stabilizer.

    Raises:
        AdapterError: If no installed adapter recognizes the messages.
        BudgetExceededError: If the mandatory messages do not fit.
        ConfigError: If a setting is out of range, or the budget is missing.
        HistoryError: If `messages` is not a list.
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


# a stabilizer caches its results for each conversation, which a new stabilizer would have to compute again
@lru_cache(maxsize=32)
def _shared_stabilizer(policy: str, budget: int | str | None, settings: tuple[tuple[str, Any], ...]) -> Stabilizer:
    return Stabilizer.from_policy(policy, budget=budget, **dict(settings))
