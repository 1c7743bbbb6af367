"""The draft of a context, which stages transform, and the record of their changes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

from ctxguard.artifacts import Artifact
from ctxguard.draft.drivers import Ask
from ctxguard.errors import BudgetExceededError, HistoryError
from ctxguard.history import History
from ctxguard.history.overflows import Overflow
from ctxguard.tokens import ArtifactCounter

if TYPE_CHECKING:
    from ctxguard.pii import Detector

Action = Literal["kept", "masked", "bounded", "digested", "summarised", "dropped", "repaired", "recalled"]


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a prompt stopped extending the previous one.

    The previous prompt is the one that the last reply answered.

    Attributes:
        at: position in the history of the artifact that caused the cut; earlier ones had been sent before.
        position: first position at which the result differs from the previous prompt; its length if it does not.
        fresh: True if this call made the cut; False if an earlier one did and the context still starts there, or if
            only the newest exchange of the call before is sent in another form: its large outputs are no longer new.
        rebilled: tokens from `position` on, which no prompt cache can serve.
    """

    at: int
    position: int
    fresh: bool
    rebilled: int


@dataclass(frozen=True, slots=True)
class Change:
    """The artifacts before and after one stage, compared by identity when a report is read."""

    before: tuple[Artifact, ...]
    after: tuple[Artifact, ...]
    action: Action | None = None
    reason: str | Mapping[int, str] = ""
    otherwise: str = ""
    stage: str = ""
    actions: Mapping[int, Action] = field(default_factory=dict)

    def why(self, artifact: Artifact) -> str:
        """Return the reason for the change of an artifact."""
        return self.reason if isinstance(self.reason, str) else self.reason.get(id(artifact), self.otherwise)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What a window had evicted when a question arrived, for recall; later steps do not change it.

    Attributes:
        history: the window's model of the conversation; it may have grown since.
        tokens: tokens that may be recalled: those of `block`, or more where the block is ranked by meaning, too.
        asked: number of the exchange with the question.
        kept: numbers of the kept exchanges among the first `end`.
        end: see `kept`; all later exchanges were kept.
        scores: relevance of earlier exchanges by words, by their number.
        block: what words alone recall, as one message; None if nothing fits.
        found: numbers of the evicted exchanges in it.
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
    """The settings of a draft, which are the same for all calls of a conversation, except for `dry`.

    Attributes:
        budget: tokens that the whole request may take, `overhead` included.
        counter: counts artifacts.
        overhead: tokens that are sent beside the artifacts: tool schemas, framing of the request.
        regained: tokens that were reserved because counts are estimates, and that a window may use once the history
            contains counts of the provider.
        keep_recent: number of latest messages that are mandatory.
        keep_task: whether the first user message is mandatory, as the task.
        calibrate: whether token counts that the provider reported for earlier calls correct later counts.
        kept_free: tokens by which `budget` is below the caller's budget, by purpose.
        overflow: since when the budget is smaller, because the provider rejected a prompt; None if it did not.
        dry: whether this is a dry run, in which nothing may be written.
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
class Draft:
    """The draft of a context. Stages take a draft and return another; nothing in it is ever mutated.

    Attributes:
        artifacts: the current content of the context.
        settings: see `CallSettings`; each of them can also be read from the draft itself.
        history: the complete input, for stages and checks.
        authority: the system and task artifacts of the history, with their positions in it; None if not collected
            yet.
        masks: maskers of the stages so far, for whatever later stages write.
        remasks: functions that mask again, at a cut, what the maskers masked: by the names known at a certain artifact.
        detectors: the detectors of those maskers, for the check.
        message_detectors: detectors that a stage applied only to messages of people and the model.
        left_out: what a window recalls since its last cut, one for each block, in order; None if no window decided.
        cut_at: position in the history of the artifact at which a stage last cut; None if none did.
        changed_at: likewise of the artifact at which the prompt before it last changed, by a cut or as recalled blocks
            left. What the model wrote until then was written under another prompt.
        changes: what the stages have changed, in order.
        details: figures of a stage for the report, by stage name (scores, for example).
    """

    artifacts: tuple[Artifact, ...]
    settings: CallSettings
    history: tuple[Artifact, ...] = ()
    authority: tuple[tuple[int, Artifact], ...] | None = None
    masks: tuple[Callable[[str], str], ...] = ()
    remasks: tuple[Callable[[str, Artifact], str], ...] = ()
    detectors: tuple[Detector, ...] = ()
    message_detectors: tuple[Detector, ...] = ()
    left_out: tuple[LeftOut, ...] | None = None
    cut_at: int | None = None
    changed_at: int | None = None
    changes: tuple[Change, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict)
    _tokens: int | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def budget(self) -> int:
        """Tokens that the whole request may take."""
        return self.settings.budget

    @property
    def counter(self) -> ArtifactCounter:
        """Counts artifacts."""
        return self.settings.counter

    @property
    def overhead(self) -> int:
        """Tokens of the request that are not in artifacts."""
        return self.settings.overhead

    @property
    def keep_recent(self) -> int:
        """Number of latest messages that are mandatory."""
        return self.settings.keep_recent

    @property
    def keep_task(self) -> bool:
        """Whether the first user message is mandatory, as the task."""
        return self.settings.keep_task

    @property
    def dry(self) -> bool:
        """Whether this is a dry run, in which nothing may be written."""
        return self.settings.dry

    @property
    def tokens(self) -> int:
        """Tokens of the whole request, counted once."""
        if self._tokens is not None:
            return self._tokens
        tokens = self.overhead + self.counter.artifacts(self.artifacts)
        object.__setattr__(self, "_tokens", tokens)
        return tokens

    def mask(self, text: str, *, at: Artifact | None = None) -> str:
        """Mask a text that a stage wrote, by the rules of the masking stages before it.

        Args:
            text: the text.
            at: the artifact whose arrival causes the text: names known by then are masked, too. It must be a function
                of the history, as the text is. None if the text repeats text that is masked already.
        """
        # names first, by a function of the history alone; the other masks then usually find nothing
        text = text if at is None else self._masked_again(text, at)
        for mask in self.masks:
            text = mask(text)
        return text

    def mask_again(self, artifact: Artifact, at: Artifact) -> Artifact:
        """Return an artifact with the names masked that were known when `at` arrived; for cuts."""
        return artifact.edit(lambda _slot, text: self._masked_again(text, at)) if self.remasks else artifact

    def _masked_again(self, text: str, at: Artifact) -> str:
        for remask in self.remasks:
            text = remask(text, at)
        return text

    def exceeded(self, parts: Mapping[str, int]) -> BudgetExceededError:
        """Return the error for mandatory messages that exceed the budget.

        Args:
            parts: tokens of each mandatory part, by name.
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
    ) -> Draft:
        """Return a draft with other artifacts; changes are detected by identity.

        A missing artifact counts as dropped; a changed copy and a new artifact, as `action`.

        Args:
            artifacts: the same objects, changed copies of them (`Artifact.edit`, `.revised`), new ones.
            reason: the reason for the report: one for all, or by `id()` of the old (or the added) artifact.
            otherwise: the reason for artifacts that `reason` does not name.
            action: the action for changed and added artifacts; None means `bounded` for changed, `recalled` for added.
            actions: the same by `id()` of the old (or the added) artifact, if actions differ.

        Raises:
            HistoryError: one of them is not an artifact.
        """
        after = tuple(artifacts)
        now = self.artifacts
        if after is now or (len(after) == len(now) and all(map(is_, after, now))):
            return self
        strange = next((kind for kind in set(map(type, after)) if not issubclass(kind, Artifact)), None)
        if strange is not None:
            raise HistoryError(f"a draft holds artifacts, not {strange.__name__}; make one with Artifact(kind, text)")
        return self.changed(Change(now, after, action, reason, otherwise, actions=actions or {}))

    def changed(self, change: Change) -> Draft:
        """Return the draft after a known change, without the comparison of `revise`."""
        return replace(self, artifacts=change.after, changes=(*self.changes, change))


StageResult: TypeAlias = "Draft | Generator[Ask, object, Draft]"


class Stage(Protocol):
    """A pure function from draft to draft, without I/O or a clock. A generator may yield `Ask`s."""

    def __call__(self, draft: Draft, /) -> StageResult:
        """Return the new draft, or a generator that returns it."""
        ...


class Follower(Protocol):
    """The incremental form of a stage, for a growing history.

    The session keeps it between calls. Its state may only affect speed: a new follower that takes the whole history at
    once returns the same result.

    It may also have a method `rewind(count: int) -> bool`, which forgets all but the first `count` artifacts and
    returns whether that was possible. Without it, a follower starts over if an artifact that it took in was replaced.
    """

    def take(self, artifacts: Sequence[Artifact], draft: Draft) -> None:
        """Take in the artifacts that are new in the stage's latest draft."""
        ...

    def result(self, draft: Draft) -> StageResult:
        """Return the stage's result for a draft that holds exactly the artifacts taken in so far."""
        ...


@runtime_checkable
class IncrementalStage(Protocol):
    """A stage that can continue from earlier calls, so that the cost of a call depends on new artifacts only.

    A stage without `begin` is called with the whole draft each time.
    """

    def begin(self, draft: Draft, /) -> Follower:
        """Return an empty follower; all its drafts will have the settings of this one."""
        ...


class FollowedStage(IncrementalStage):
    """An incremental stage that can also be called for a single draft, like any other stage."""

    def __call__(self, draft: Draft, /) -> StageResult:
        """Return the new draft, or a generator that returns it, with a follower that is used once."""
        follower = self.begin(draft)
        follower.take(draft.artifacts, draft)
        return follower.result(draft)


def stage_name(stage: object) -> str:
    """Return the name of a stage in reports: its `name`, else that of its function or class."""
    return str(getattr(stage, "name", None) or getattr(stage, "__name__", None) or type(stage).__name__)
