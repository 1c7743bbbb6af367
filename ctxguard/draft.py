"""The draft of a context, the stages that transform it and their chain, and the drivers that do I/O for stages."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing
from contextvars import copy_context
from copy import copy
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import dropwhile, takewhile
from operator import is_
from threading import Thread
from types import coroutine
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeAlias, TypeVar, cast

from ctxguard.artifacts import Artifact, Kind
from ctxguard.errors import BudgetExceededError, HistoryError, SummarizerError
from ctxguard.history import History, Memory
from ctxguard.history.conversation import Overflow
from ctxguard.history.records import write_record
from ctxguard.tokens import ArtifactCounter

if TYPE_CHECKING:
    from ctxguard.pii import Detector, Masker
    from ctxguard.stores import Store


Action = Literal["kept", "masked", "bounded", "digested", "summarised", "dropped", "repaired", "recalled"]
"""What a stage did to an artifact, for the report."""
Cause = Literal["", "fault", "lifetime", "cut", "order", "merge"]
"""Why a stage changes the context: `fault`, because what arrived has a fault, which each call repairs in the same way;
`lifetime`, because a lifetime is over; `cut`, because the budget was hit at `Draft.cut_at`; `order`, because a provider
wants roles in a certain order; `merge`, because it wants messages of one role to be one. Empty for anything else."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut: the point at which the new prompt differs from the prompt that the model's last reply answered.

    Attributes:
        at: Index in the history of the artifact that caused the cut. The artifacts before it had already been sent.
        position: First index at which the new prompt differs from the previous one. If the new prompt extends the
            previous one, the length of the new prompt.
        fresh: True if this call made the cut. False if an earlier call made it and its result is still in use. Also
            False if the only difference is that large tool outputs, sent whole in the previous prompt, are now sent in
            short form.
        rebilled: Number of tokens from `position` on. A prompt cache cannot serve these tokens.
    """

    at: int
    position: int
    fresh: bool
    rebilled: int


@dataclass(frozen=True, slots=True)
class Change:
    """The effect of one stage: the artifacts before and after the stage. Reports compare the two by identity.

    Attributes:
        before: The artifacts that the stage was given.
        after: The artifacts that the stage returned.
        action: What was done to changed and added artifacts, such as `bounded`; see `Draft.revise`.
        reason: Why artifacts were changed, for the report: one string for all, or a mapping from the `id()` of an
            artifact to the reason.
        otherwise: The reason for artifacts that the mapping does not contain.
        stage: Name of the stage.
        actions: Exceptions to `action`, by `id()` of the artifact.
        cause: Why the stage changed the context; see `Cause`.
    """

    before: tuple[Artifact, ...]
    after: tuple[Artifact, ...]
    action: Action | None = None
    reason: str | Mapping[int, str] = ""
    otherwise: str = ""
    stage: str = ""
    actions: Mapping[int, Action] = field(default_factory=dict)
    cause: Cause = ""

    def why(self, artifact: Artifact) -> str:
        """Return the reason why an artifact was changed."""
        return self.reason if isinstance(self.reason, str) else self.reason.get(id(artifact), self.otherwise)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What a window had evicted when a question arrived, and may recall. Later exchanges do not change this record.

    An exchange is an assistant message with tool calls and all their results, or any other single message. Exchanges
    are given by their index in `history`, counted from 0.

    Attributes:
        history: The exchanges of the conversation. It may have grown since the question arrived.
        tokens: Maximum number of tokens in the message with the recalled exchanges: those of `block`, or more if
            exchanges are also compared by meaning.
        asked: The exchange with the question.
        kept: The exchanges among the first `end` that were not evicted.
        end: Number of exchanges from the beginning that a cut had kept or evicted. All later ones were kept.
        scores: How well earlier exchanges match the words of the question, by exchange.
        block: The message that repeats the exchanges recalled by their words alone; None if nothing fits.
        found: The evicted exchanges in `block`.
    """

    history: History
    tokens: int = 0
    asked: int = 0
    kept: tuple[int, ...] = ()
    end: int = 0
    scores: Mapping[int, float] = field(default_factory=dict)
    block: Artifact | None = None
    found: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class CallSettings:
    """The settings of a draft. All calls of a conversation have the same settings, except for `dry`.

    Attributes:
        budget: Number of tokens that the whole request may take, including `overhead`.
        counter: Counts the tokens of artifacts.
        overhead: Number of tokens of the request that are not in artifacts, such as tool schemas and framing.
        regained: Number of tokens that are kept free because counts are estimates. A window may use them as soon as the
            history contains token counts reported by the provider.
        keep_recent: Number of latest messages that are mandatory.
        keep_task: Whether the first user message is the task and thus mandatory.
        calibrate: Whether token counts that the provider reported for earlier calls correct later counts.
        kept_free: Number of tokens by which `budget` is below the caller's budget, by purpose.
        overflow: The smaller limits that apply after the provider refused a prompt as too long; None if it never did.
        dry: Whether this is a dry run, in which nothing may be written.
    """

    budget: int
    counter: ArtifactCounter
    overhead: int = 0
    regained: int = 0
    kept_free: tuple[tuple[str, int], ...] = ()
    keep_recent: int = 2
    keep_task: bool = True
    calibrate: bool = True
    overflow: Overflow | None = None
    dry: bool = False


@dataclass(frozen=True, slots=True)
class Masking:
    """How the stages so far mask: later texts are masked in the same way, and the check `NoPII` searches the result.

    Attributes:
        masks: The functions with which the stages mask texts, in order.
        masks_at: The same functions, as they were when a given artifact had arrived. So what a stage writes depends on
            the history up to there, and not on when it was written.
        remasks: Functions that mask a text again at a cut. They hide the names that were known when a given artifact
            arrived.
        detectors: The detectors of the stages.
        message_detectors: Detectors that a stage applied only to user and assistant messages.
    """

    masks: tuple[Callable[[str], str], ...] = ()
    masks_at: tuple[Callable[[str, Artifact], str], ...] = ()
    remasks: tuple[Callable[[str, Artifact], str], ...] = ()
    detectors: tuple[Detector, ...] = ()
    message_detectors: tuple[Detector, ...] = ()


@dataclass(frozen=True, slots=True)
class Decisions:
    """What the stages so far have decided, for later stages, checks, and the report.

    Attributes:
        changes: The changes that the stages have made, in order.
        details: Further data for the report, such as scores, by name.
        cut_at: Index in the history of the artifact that caused the last cut; None if there was no cut.
        left_out: What the window has recalled since its last cut: one entry for each message that repeats recalled
            exchanges, in order. None if the chain has no window that recalls.
    """

    changes: tuple[Change, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict)
    cut_at: int | None = None
    left_out: tuple[LeftOut, ...] | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """The draft of a context. Stages take a draft and return another; a draft is never mutated.

    Attributes:
        artifacts: The artifacts that the context contains after the stages so far.
        settings: The settings of the call. The most common ones are also properties of the draft.
        history: The artifacts of the input, which stages do not change.
        authority: The system and task artifacts of the history with their indexes in it; None if they have not been
            collected.
        masking: How the stages so far mask. Texts that later stages write are masked in the same way.
        decisions: What the stages so far have decided.
        memory: What the stage that gets this draft has worked out in earlier calls of the conversation.
    """

    artifacts: tuple[Artifact, ...]
    settings: CallSettings
    history: tuple[Artifact, ...] = ()
    authority: tuple[tuple[int, Artifact], ...] | None = None
    masking: Masking = Masking()
    decisions: Decisions = field(default_factory=Decisions)
    memory: Memory = field(default_factory=Memory, repr=False, compare=False)
    _tokens: int | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def budget(self) -> int:
        """Number of tokens that the whole request may take."""
        return self.settings.budget

    @property
    def counter(self) -> ArtifactCounter:
        """Counts the tokens of artifacts."""
        return self.settings.counter

    @property
    def overhead(self) -> int:
        """Number of tokens of the request that are not in artifacts."""
        return self.settings.overhead

    @property
    def keep_recent(self) -> int:
        """Number of latest messages that are mandatory."""
        return self.settings.keep_recent

    @property
    def keep_task(self) -> bool:
        """Whether the first user message is the task and thus mandatory."""
        return self.settings.keep_task

    @property
    def dry(self) -> bool:
        """Whether this is a dry run, in which nothing may be written."""
        return self.settings.dry

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes that the stages have made, in order."""
        return self.decisions.changes

    @property
    def details(self) -> Mapping[str, object]:
        """Further data for the report, by name; see `noted`."""
        return self.decisions.details

    @property
    def cut_at(self) -> int | None:
        """Index in the history of the artifact that caused the last cut; None if there was no cut."""
        return self.decisions.cut_at

    @property
    def tokens(self) -> int:
        """Number of tokens of the whole request; counted on first access."""
        if self._tokens is not None:
            return self._tokens
        tokens = self.overhead + self.counter.artifacts(self.artifacts)
        object.__setattr__(self, "_tokens", tokens)
        return tokens

    def mask(self, text: str, *, at: Artifact | None = None) -> str:
        """Mask a text that a stage wrote, with the rules of the masking stages before it.

        Args:
            text: The text to mask.
            at: The artifact of the history whose arrival made the stage write the text. Values and names that were
                known when it arrived are masked as then. None if the text is the same whenever it is written.
        """
        if at is None:
            for mask in self.masking.masks:
                text = mask(text)
        else:
            for mask_at in self.masking.masks_at:
                text = mask_at(text, at)
        return text

    def written(self, title: str, body: str, *, at: Artifact) -> Artifact:
        """Return a message in the user's role that a stage writes: a record with a masked body (see `write_record`).

        Args:
            title: Title of the record.
            body: Text of the record.
            at: See `mask`.
        """
        text = write_record(title, body)
        # Usually nothing is found, and then the very text that is sent was searched.
        is_clean = self.mask(text, at=at) == text
        return Artifact(Kind.USER, text if is_clean else write_record(title, self.mask(body, at=at)))

    def mask_again(self, artifact: Artifact, at: Artifact) -> Artifact:
        """Return a copy of an artifact, for a cut. Names that were known when `at` arrived are masked in it."""
        return artifact.edit(lambda _slot, text: self._mask_known_names(text, at)) if self.masking.remasks else artifact

    def _mask_known_names(self, text: str, at: Artifact) -> str:
        for remask in self.masking.remasks:
            text = remask(text, at)
        return text

    def exceeded(self, parts: Mapping[str, int]) -> BudgetExceededError:
        """Return the error for mandatory messages that exceed the budget.

        Args:
            parts: Number of tokens of each mandatory part, by name.
        """
        kept_free = dict(self.settings.kept_free)
        return BudgetExceededError(sum(parts.values()), self.budget, parts, kept_free=kept_free)

    def revise(
        self,
        artifacts: Iterable[Artifact],
        *,
        reason: str | Mapping[int, str] = "",
        otherwise: str = "",
        action: Action | None = None,
        actions: Mapping[int, Action] | None = None,
        cause: Cause = "",
    ) -> Draft:
        """Return a draft with other artifacts. The report compares objects by identity to find what was changed.

        An artifact of this draft that is missing from `artifacts` counts as dropped.

        Args:
            artifacts: The new content of the context: artifacts of this draft, changed copies of them (made with
                `Artifact.edit` or `Artifact.revised`), and new artifacts.
            reason: Why artifacts were changed, for the report: a string for all changes, or a mapping from the `id()`
                of an artifact to the reason. For a changed artifact, that is the `id()` of the old one.
            otherwise: The reason for artifacts that the mapping `reason` does not contain.
            action: What was done to changed and added artifacts, for the report. None means `bounded` for changed
                artifacts and `recalled` for added ones.
            actions: Exceptions to `action`, by the same `id()`.
            cause: Why the stage changes the context, for other stages and checks; see `Cause`.

        Raises:
            HistoryError: If an item is not an artifact.
        """
        after = tuple(artifacts)
        now = self.artifacts
        if after is now or (len(after) == len(now) and all(map(is_, after, now))):
            return self
        strange = next((kind for kind in set(map(type, after)) if not issubclass(kind, Artifact)), None)
        if strange is not None:
            raise HistoryError(f"a draft holds artifacts, not {strange.__name__}; make one with Artifact(kind, text)")
        return self.changed(Change(now, after, action, reason, otherwise, actions=actions or {}, cause=cause))

    def changed(self, change: Change) -> Draft:
        """Return the draft with a given change applied, without the checks of `revise`."""
        return replace(self, artifacts=change.after).decided(changes=(*self.changes, change))

    def noted(self, details: Mapping[str, object]) -> Draft:
        """Return the draft with further data for the report, by name. An earlier entry with the same name is replaced.

        Args:
            details: Values that can be written as JSON, without personal data.
        """
        return self.decided(details={**self.details, **details})

    def decided(self, **decisions: Any) -> Draft:  # noqa: ANN401 - the fields of `Decisions`
        """Return the draft with some of the fields of `Decisions` replaced."""
        return replace(self, decisions=replace(self.decisions, **decisions))


StageResult: TypeAlias = "Draft | Generator[Ask, object, Draft]"


class Stage(Protocol):
    """A pure function from draft to draft: it performs no I/O and reads no clock.

    A stage that needs I/O is a generator function. It yields an `Ask` for each function that it needs called. What it
    worked out in earlier calls, it finds in the draft's `memory`; a stage that is called directly finds nothing there.
    """

    def __call__(self, draft: Draft, /) -> StageResult:
        """Return the new draft, or a generator that yields requests for I/O and returns the new draft."""
        ...


def stage_name(stage: object) -> str:
    """Return the name of a stage for reports: its attribute `name`, or else the name of its function or class."""
    return str(getattr(stage, "name", None) or getattr(stage, "__name__", None) or type(stage).__name__)


class Chain(tuple[Stage, ...]):
    """The stages of a stabilizer, in order, and what others need to know of them. Immutable: methods return copies.

    Nobody else looks for a stage of a certain class. A stage says what it is by attributes that any stage may have:

    * `part = "fit"`, if it decides which artifacts stay. The stages before it prepare each artifact when it arrives,
      and those after it write the context.
    * `masker` and `with_masker(masker)`, if it masks.
    * `recall`, if it is the window.
    * `store` (None if there is none), if it saves full texts there.
    """

    __slots__ = ()

    @property
    def arrive(self) -> Chain:
        """The stages that repair, mask, and bound each artifact when it arrives."""
        return Chain(takewhile(_does_not_fit, self))

    @property
    def fit(self) -> Chain:
        """The stages that decide which artifacts stay."""
        return Chain(stage for stage in self if not _does_not_fit(stage))

    @property
    def compose(self) -> Chain:
        """The stages that write what the fit decided, and put it in order; empty if no stage decides anything."""
        behind = Chain(dropwhile(_does_not_fit, self))
        return Chain(stage for stage in behind if _does_not_fit(stage))

    @property
    def maskers(self) -> list[Masker]:
        """The maskers of the masking stages, in order; empty if the chain masks nothing."""
        return [stage.masker for stage in self._masking()]

    @property
    def detectors(self) -> list[Detector]:
        """The detectors of the masking stages."""
        return [detector for masker in self.maskers for detector in masker.detectors]

    @property
    def stores(self) -> list[Store]:
        """The stores in which stages save full texts."""
        return [store for stage in self if (store := getattr(stage, "store", None)) is not None]

    @property
    def window(self) -> Stage | None:
        """The stage that keeps a stable window and may recall what was evicted; None if other stages decide."""
        return next((stage for stage in self.fit if hasattr(stage, "recall")), None)

    def masking(self) -> Chain:
        """Return the masking stages alone."""
        return Chain(self._masking())

    def up_to_masking(self) -> Chain:
        """Return the chain up to its last masking stage; an empty one if there is none."""
        last = max((n for n, stage in enumerate(self, 1) if _masks(stage)), default=0)
        return Chain(self[:last])

    def from_masking(self) -> Chain:
        """Return the chain from its first masking stage on; an empty one if there is none."""
        return Chain(dropwhile(lambda stage: not _masks(stage), self))

    def with_maskers(self, change: Callable[[Masker], Masker]) -> Chain:
        """Return the chain with other maskers; the chain itself if `change` returns the same ones.

        Args:
            change: Called with each masker, in order.
        """
        changed = [_with_masker(stage, change) for stage in self]
        return self if all(map(is_, changed, self)) else Chain(changed)

    def with_store(self, store: Store) -> Chain:
        """Return the chain in which the stages that could save full texts, and have no store, save them in this one."""
        return Chain(_with_store(stage, store) for stage in self)

    def with_missing(self, *stages: Stage) -> Chain:
        """Return the chain with further stages at its end, without those of which it has one of the same kind."""
        return Chain((*self, *(stage for stage in stages if not any(isinstance(one, type(stage)) for one in self))))

    def with_replaced(self, stage: Stage) -> Chain:
        """Return the chain with a stage in place of those of the same kind."""
        return Chain(stage if isinstance(one, type(stage)) else one for one in self)

    def _masking(self) -> Iterator[Any]:
        return (stage for stage in self if _masks(stage))


def _does_not_fit(stage: Stage) -> bool:
    return getattr(stage, "part", "") != "fit"


def _masks(stage: Stage) -> bool:
    return getattr(stage, "with_masker", None) is not None


def _with_masker(stage: Any, change: Callable[[Masker], Masker]) -> Stage:  # noqa: ANN401 - has what `_masks` asks for
    if not _masks(stage) or (masker := change(stage.masker)) is stage.masker:
        return cast("Stage", stage)
    return cast("Stage", stage.with_masker(masker))


def _with_store(stage: Any, store: Store) -> Stage:  # noqa: ANN401 - any stage may have a store
    if getattr(stage, "store", store) is None:
        stage = copy(stage)
        stage.store = store
    return cast("Stage", stage)


Given = ParamSpec("Given")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to the driver to call a function that performs I/O, such as a summarizer or a method of a store.

    Attributes:
        function: A sync or async function.
        args: The arguments of the call.
        timeout: Number of seconds after which the driver raises `TimeoutError` inside the flow; None means no limit.
        is_read: Whether the function only reads, so that it may be called again.
        is_pure: Whether the function only takes long, and does no I/O, so that dry runs call it, too.
    """

    function: Callable[..., object]
    args: tuple[object, ...] = ()
    timeout: float | None = None
    is_read: bool = False
    is_pure: bool = False


Answer: TypeAlias = Callable[[Ask], object]


async def _run(flow: Generator[Ask, object, Result], answer: Callable[[Ask], Awaitable[object]]) -> Result:
    """Run a flow to its end and return its result. The flow is closed even if an error occurs."""
    with closing(flow):
        try:
            ask = next(flow)
            while True:
                try:
                    reply = await answer(ask)
                except Exception as error:  # noqa: BLE001 - the flow decides what the failure of its call means
                    ask = flow.throw(error)
                else:
                    ask = flow.send(reply)
        except StopIteration as stop:
            return cast("Result", stop.value)


def drive(flow: Generator[Ask, object, Result], *, answer: Answer | None = None) -> Result:
    """Run a flow to its end, calling the functions that it requests, and return its result.

    Args:
        flow: The flow, which is closed even if an error occurs.
        answer: Function that handles the requests instead of calling the requested functions; None calls them.
    """

    async def called(ask: Ask) -> object:
        return (answer or _call)(ask)

    try:
        _run(flow, called).send(None)  # this coroutine never waits, so it needs no event loop
    except StopIteration as stop:
        return cast("Result", stop.value)
    raise AssertionError


async def adrive(flow: Generator[Ask, object, Result]) -> Result:
    """Run a flow to its end, and await the functions that it requests. It is closed even if the task is canceled."""
    return await _run(flow, _acall)


def synchronous(flow: Callable[Given, Generator[Ask, object, Result]]) -> Callable[Given, Result]:
    """Decorate a generator function, so that calling it runs the flow with `drive` and returns the result."""

    @wraps(flow)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        return drive(flow(*args, **kwargs))

    return run


def flow_of(function: Callable[Given, Result]) -> Callable[Given, Generator[Ask, object, Result]]:
    """Return the generator function that `synchronous` decorated."""
    return cast("Callable[Given, Generator[Ask, object, Result]]", inspect.unwrap(function))


def asynchronous(function: Callable[Given, Result]) -> Callable[Given, Coroutine[Any, Any, Result]]:
    """Return the async counterpart of a function that `synchronous` decorated; it runs the flow with `adrive`."""
    flow = flow_of(function)

    @wraps(flow)
    async def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        return await adrive(flow(*args, **kwargs))

    return run


def reads_only(flow: Generator[Ask, object, Result]) -> Generator[Ask, object, Result]:
    """Run a flow, pass on its requests that only read, and reject all others.

    Raises:
        SummarizerError: Inside the flow, if it makes a request that does not only read.
    """

    @coroutine
    def passed(ask: Ask) -> Generator[Ask, object, object]:
        return (yield ask) if ask.is_read else refuse(ask)

    return (yield from _run(flow, passed).__await__())


def refuse(ask: Ask) -> object:
    """Reject a request that a flow makes in a dry run, unless its function does no I/O.

    Raises:
        SummarizerError: If the function may do I/O.
    """
    if ask.is_pure:
        return _call(ask)
    raise SummarizerError("a dry run calls no summarizer and no store")


def _call(ask: Ask) -> object:
    if inspect.iscoroutinefunction(ask.function):
        raise SummarizerError(
            f"{getattr(ask.function, '__name__', 'the function')} is async and stabilize() is not; use astabilize()"
        )
    reply = ask.function(*ask.args) if ask.timeout is None else _in_thread(ask).result(ask.timeout)
    if isinstance(reply, Awaitable):
        if inspect.iscoroutine(reply):
            reply.close()
        raise SummarizerError("the function returned an awaitable and stabilize() is not async; use astabilize()")
    return reply


def _in_thread(ask: Ask) -> Future[object]:
    """Call the requested function in a new thread, with the caller's context variables.

    No thread pool is used: pools wait for their threads when the event loop or the process ends, so a function that
    hangs would block both.
    """
    future: Future[object] = Future()
    run = copy_context().run

    def call() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(run(ask.function, *ask.args))
        except StopIteration as error:  # an asyncio future rejects StopIteration: the awaiting task would wait forever
            future.set_exception(RuntimeError(f"the function raised {error!r}"))
        except BaseException as error:  # noqa: BLE001 - `Future.result` raises it
            future.set_exception(error)

    Thread(target=call, name="ctxguard-ask", daemon=True).start()
    return future


async def _acall(ask: Ask) -> object:
    if inspect.iscoroutinefunction(ask.function):
        return await asyncio.wait_for(ask.function(*ask.args), ask.timeout)
    reply = await asyncio.wait_for(asyncio.wrap_future(_in_thread(ask)), ask.timeout)
    return await asyncio.wait_for(reply, ask.timeout) if isinstance(reply, Awaitable) else reply
