"""The context being drafted: what stages take and return, and what each of them changed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

from ctxguard.artifacts import Artifact
from ctxguard.draft.drivers import Ask
from ctxguard.errors import BudgetExceededError, HistoryError
from ctxguard.history import History, Overflow
from ctxguard.tokens import ArtifactCounter

if TYPE_CHECKING:
    from ctxguard.pii import Detector

Action = Literal["kept", "masked", "bounded", "digested", "summarised", "dropped", "repaired", "recalled"]


@dataclass(frozen=True, slots=True)
class Cut:
    """Say where a prompt stopped extending the one before it.

    The prompt before is the one that the last reply answered: that of the history up to it.

    Attributes:
        at: position in the history of the artifact that caused the cut; older ones had been sent before.
        position: first position at which the result differs from what was sent before; its length if it does not.
        fresh: True if this call made the cut; False if an earlier one did and the context still starts there.
        rebilled: tokens from `position` on, which no prompt cache can serve.
    """

    at: int
    position: int
    fresh: bool
    rebilled: int


@dataclass(frozen=True, slots=True)
class Change:
    """Hold what one stage changed: the artifacts before and after, compared by identity when a report is read."""

    before: tuple[Artifact, ...]
    after: tuple[Artifact, ...]
    action: Action | None = None
    reason: str | Mapping[int, str] = ""
    otherwise: str = ""
    stage: str = ""
    actions: Mapping[int, Action] = field(default_factory=dict)

    def why(self, artifact: Artifact) -> str:
        """Return the reason that was given for an artifact."""
        return self.reason if isinstance(self.reason, str) else self.reason.get(id(artifact), self.otherwise)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Say what a window had left out when the last user message came: later cuts do not change it.

    Attributes:
        history: what the window follows; it may have grown since.
        kept: numbers of the exchanges that had stayed among the first `end`.
        end: see `kept`; all behind it were there.
        reserved: tokens that the window keeps free for what is brought back.
    """

    history: History
    kept: tuple[int, ...]
    end: int
    reserved: int


@dataclass(frozen=True, slots=True)
class CallSettings:
    """Hold the settings of a draft: the same for all calls of a conversation, except for `dry`.

    Attributes:
        budget: tokens that everything sent may take, `overhead` included.
        counter: counts artifacts.
        overhead: tokens that are sent beside the artifacts: tool schemas, framing of the request.
        regained: tokens that were kept free of the budget because counts are estimates, and that a window may use once
            the history says what the provider counted.
        keep_recent: how many of the latest messages must stay.
        keep_task: whether the first user message stays as the task.
        calibrate: whether what the provider reported for earlier calls corrects the counts.
        kept_free: tokens by which `budget` is below what the caller set, each with what they are kept free for.
        overflow: since when the budget is a smaller one, because the provider refused a prompt; None where it did not.
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
    """Hold the context being drafted. Stages take a draft and return another; nothing in it is ever mutated.

    Attributes:
        artifacts: what the context holds by now.
        settings: see `CallSettings`; each of them can also be read from the draft itself.
        history: what came in, for stages and checks that look back.
        authority: the system and task artifacts of the history, with their positions in it; None if not collected
            yet.
        masks: maskers of the stages so far, for whatever later stages write.
        remasks: what masks again, at a cut, what they masked: by what was known when a certain artifact came.
        detectors: what those maskers look for, for the check.
        left_out: what a window had left out when the last user message came, where some of it may be brought back.
        cut_at: position in the history of the artifact at which a stage last cut; None where none did. What was
            written before it was written under another prompt.
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
    left_out: LeftOut | None = None
    cut_at: int | None = None
    changes: tuple[Change, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict)
    _tokens: int | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def budget(self) -> int:
        """Tokens that everything sent may take."""
        return self.settings.budget

    @property
    def counter(self) -> ArtifactCounter:
        """Counts artifacts."""
        return self.settings.counter

    @property
    def overhead(self) -> int:
        """Tokens that are sent beside the artifacts."""
        return self.settings.overhead

    @property
    def regained(self) -> int:
        """Tokens that a window may use once the history says what the provider counted."""
        return self.settings.regained

    @property
    def keep_recent(self) -> int:
        """How many of the latest messages must stay."""
        return self.settings.keep_recent

    @property
    def keep_task(self) -> bool:
        """Whether the first user message stays as the task."""
        return self.settings.keep_task

    @property
    def calibrate(self) -> bool:
        """Whether what the provider reported for earlier calls corrects the counts."""
        return self.settings.calibrate

    @property
    def dry(self) -> bool:
        """Whether this is a dry run, in which nothing may be written."""
        return self.settings.dry

    @property
    def tokens(self) -> int:
        """Tokens of all that would be sent, counted once."""
        if self._tokens is not None:
            return self._tokens
        tokens = self.overhead + self.counter.artifacts(self.artifacts)
        object.__setattr__(self, "_tokens", tokens)
        return tokens

    def mask(self, text: str, *, at: Artifact | None = None) -> str:
        """Mask a text that a stage writes itself, by the rules of the masking stages before it.

        Args:
            text: the text.
            at: the artifact at whose coming it is written: names that were known then are masked, too. It must be a
                function of the history, as the text is; None where the text repeats what was masked by them already.
        """
        # first what a function of the history alone decides: what the other finds then is nothing as a rule
        text = text if at is None else self._masked_again(text, at)
        for mask in self.masks:
            text = mask(text)
        return text

    def mask_again(self, artifact: Artifact, at: Artifact) -> Artifact:
        """Return an artifact of this draft with the names masked that were known when another one came; for cuts."""
        return artifact.edit(lambda _slot, text: self._masked_again(text, at)) if self.remasks else artifact

    def _masked_again(self, text: str, at: Artifact) -> str:
        for remask in self.remasks:
            text = remask(text, at)
        return text

    def exceeded(self, parts: Mapping[str, int]) -> BudgetExceededError:
        """Return the error that what must stay does not fit.

        Args:
            parts: tokens of each part of it by name.
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

        An artifact that is gone counts as dropped, a changed copy of one as `action`, a new one as `action` too.

        Args:
            artifacts: the same objects, changed copies of them (`Artifact.edit`, `.revised`), new ones.
            reason: the reason for the report: one for all, or by `id()` of the old (or the added) artifact.
            otherwise: the reason for artifacts that `reason` does not name.
            action: what happened to changed or added ones; None means `bounded` for changed, `recalled` for added.
            actions: the same by `id()` of the old (or the added) artifact, if it differs from one to another.

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
        """Return the draft after a change that certainly is one; skips the comparison that `revise` makes."""
        return replace(self, artifacts=change.after, changes=(*self.changes, change))


StageResult: TypeAlias = "Draft | Generator[Ask, object, Draft]"


class Stage(Protocol):
    """Make one draft from another: a pure function, without I/O or a clock. A generator may yield `Ask`s."""

    def __call__(self, draft: Draft, /) -> StageResult:
        """Return the new draft, or a generator that returns it."""
        ...


class Follower(Protocol):
    """Compute the result of a stage for a growing history.

    The session keeps it between calls. What it remembers must only change speed: a new follower that takes the whole
    history at once has to return the same result.
    """

    def take(self, artifacts: Sequence[Artifact], draft: Draft) -> None:
        """Take in the artifacts that are new in the stage's latest draft."""
        ...

    def result(self, draft: Draft) -> StageResult:
        """Return the stage's result for a draft that holds exactly the artifacts taken in so far."""
        ...


@runtime_checkable
class IncrementalStage(Protocol):
    """Start a stage on a new conversation, so that later calls only cost what is new.

    A stage without `begin` is called with the whole draft each time.
    """

    def begin(self, draft: Draft, /) -> Follower:
        """Return an empty follower; the settings of this draft hold for all drafts that it will see."""
        ...


def follow(stage: IncrementalStage, draft: Draft) -> StageResult:
    """Return the result of an incremental stage for one draft, with a follower that is used once."""
    follower = stage.begin(draft)
    follower.take(draft.artifacts, draft)
    return follower.result(draft)


def stage_name(stage: object) -> str:
    """Return what reports call a stage: its `name`, else its function's or class's."""
    return str(getattr(stage, "name", None) or getattr(stage, "__name__", None) or type(stage).__name__)
