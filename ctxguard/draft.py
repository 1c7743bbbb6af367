"""The context being drafted: what stages take and give, and what each of them has changed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import is_
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from ctxguard.artifacts import Artifact
from ctxguard.drivers import Ask
from ctxguard.errors import HistoryError
from ctxguard.tokens import ArtifactCounter

if TYPE_CHECKING:
    from ctxguard.pii import Detector

__all__ = ["Action", "Change", "Cut", "Draft", "Stage", "StageResult", "stage_name"]

Action = Literal["kept", "masked", "bounded", "summarised", "dropped", "repaired", "recalled"]


@dataclass(frozen=True, slots=True)
class Cut:
    """Say where the window was last cut.

    Attributes:
        at: position in the history of the artifact that hit the budget; everything older was sent before the cut.
        position: position in the result from which it differs from what was sent before.
        fresh: True where this very call made the cut, so that its prompt does not extend the previous one.
        rebilled: tokens from `position` on, which no prompt cache can serve after the cut.
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

    def why(self, artifact: Artifact) -> str:
        """Return the reason that was given for an artifact."""
        return self.reason if isinstance(self.reason, str) else self.reason.get(id(artifact), self.otherwise)


@dataclass(frozen=True, slots=True)
class Draft:
    """Hold the context being drafted. Stages take one and give another; nothing in it is ever mutated.

    Attributes:
        artifacts: what the context holds by now.
        budget: tokens that everything sent may take, `overhead` included.
        counter: counts artifacts.
        history: what came in, for stages and checks that look back.
        overhead: tokens that are sent beside the artifacts: tool schemas, framing of the request.
        keep_recent: how many of the latest messages must stay.
        keep_task: whether the first user message stays as the task.
        calibrate: whether what the provider reported for earlier calls corrects the counts.
        dry: whether this is a dry run, in which nothing may be written.
        masks: maskers of the stages so far, for whatever later stages write.
        detectors: what those maskers look for, for the check.
        cut: the last cut, where a stage made one.
        changes: what the stages have changed, in order.
        details: figures of a stage for the report, by stage name (scores, for example).
        grown: the artifacts, and those of an earlier call that they are known to begin with, see `begins_with`.
    """

    artifacts: tuple[Artifact, ...]
    budget: int
    counter: ArtifactCounter
    history: tuple[Artifact, ...] = ()
    overhead: int = 0
    keep_recent: int = 2
    keep_task: bool = True
    calibrate: bool = True
    dry: bool = False
    masks: tuple[Callable[[str], str], ...] = ()
    detectors: tuple[Detector, ...] = ()
    cut: Cut | None = None
    changes: tuple[Change, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict)
    grown: tuple[tuple[Artifact, ...], tuple[Artifact, ...]] = ((), ())

    @property
    def begins_with(self) -> tuple[Artifact, ...]:
        """Artifacts of an earlier call that these are known to begin with, the very objects; empty where none are.

        What was remembered of them holds without another look. It is not known of artifacts that a stage put into the
        draft by hand.
        """
        artifacts, earlier = self.grown
        return earlier if artifacts is self.artifacts else ()

    @property
    def tokens(self) -> int:
        """Tokens of all that would be sent."""
        return self.overhead + self.counter.artifacts(self.artifacts)

    def mask(self, text: str) -> str:
        """Mask a text that a stage writes itself, by the rules of the masking stages before it."""
        for mask in self.masks:
            text = mask(text)
        return text

    def revise(
        self,
        artifacts: Iterable[Artifact],
        *,
        reason: str | Mapping[int, str] = "",
        otherwise: str = "",
        action: Action | None = None,
        begins_with: tuple[Artifact, ...] = (),
    ) -> Draft:
        """Return a draft with other artifacts; what became of each is worked out by identity.

        An artifact that is gone counts as dropped, a changed copy of one as `action`, a new one as `action` too.

        Args:
            artifacts: the same objects, changed copies of them (`Artifact.edit`, `.revised`), new ones.
            reason: why, for all, or by `id()` of the artifact that was (or is new); said in the report.
            otherwise: why, for those that `reason` does not name.
            action: what happened to those changed or new; None means `bounded` for changed ones, `recalled` for new.
            begins_with: artifacts of an earlier call that the new ones are known to begin with.

        Raises:
            HistoryError: one of them is no artifact.
        """
        after = tuple(artifacts)
        now = self.artifacts
        if after is now or (len(after) == len(now) and all(map(is_, after, now))):
            return self
        new = after[len(begins_with) :]
        strange = next((kind for kind in set(map(type, new)) if not issubclass(kind, Artifact)), None)
        if strange is not None:
            raise HistoryError(f"a draft holds artifacts, not {strange.__name__}; make one with Artifact(kind, text)")
        change = Change(before=self.artifacts, after=after, action=action, reason=reason, otherwise=otherwise)
        return replace(self, artifacts=after, grown=(after, begins_with), changes=(*self.changes, change))


StageResult: TypeAlias = "Draft | Generator[Ask, object, Draft]"


class Stage(Protocol):
    """Change a draft: a pure function of it. It does no I/O and reads no clock; a generator may yield `Ask`s."""

    def __call__(self, draft: Draft, /) -> StageResult:
        """Return the new draft, or a generator that returns it."""
        ...


def stage_name(stage: Stage) -> str:
    """Return what reports call a stage: its `name`, else its function's or class's."""
    return str(getattr(stage, "name", None) or getattr(stage, "__name__", None) or type(stage).__name__)
