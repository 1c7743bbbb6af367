"""The memory between calls: results of earlier calls on a conversation, kept for the next call.

The result of a call is a function of the whole history. Calls are cheap because histories grow at their end: a `Run`
holds the progress of each stage of a chain, and continues from there. `Runs` finds the run that a history continues,
with one comparison for each call. If only the end of the history was replaced, as in a chat that sends retrieved
passages with the latest question alone, the run is rewound to where the two histories part. Memory affects speed, never
results, with one exception: a history does not show that the provider refused a prompt, so that is remembered
(`ctxguard.history.Overflows`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Coroutine, Generator, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, count
from operator import is_, itemgetter, not_
from threading import Lock
from typing import TYPE_CHECKING, Final, cast

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Ask, CallSettings, Cut, Draft, Follower, IncrementalStage, Stage, StageResult, stage_name
from ctxguard.draft.drivers import asynchronous, reads_only, synchronous
from ctxguard.errors import BudgetExceededError, ConfigError, HistoryError
from ctxguard.history import AUTHORITY, is_synthetic

if TYPE_CHECKING:
    from ctxguard.adapting.registry import Adapter
    from ctxguard.report import Report
    from ctxguard.tokens import ArtifactCounter

    NativeAdapter = Adapter[list[object]]

__all__ = ["Context", "Run", "Runs", "Session", "Stabilized"]

_MOST_RUNS: Final = 128  # conversations that are remembered, so that memory is bounded
_MOST_ARTIFACTS: Final = 100_000
"""Artifacts that all remembered runs together may hold; the least recently used run goes first, the latest stays."""
_REPLACED: Final = 8
"""How many times longer the common beginning of two histories must be than the rest of a run, to rewind the run. Many
conversations begin with the same few messages: rewinding for those would take the run away from its conversation."""


@dataclass(slots=True)
class _Slot:
    """One stage of a chain and its progress in one conversation.

    Attributes:
        stage: the stage.
        incremental: the same stage if it is incremental, else None. Checked once: `isinstance` with a protocol takes
            longer than most stages.
        follower: the state of an incremental stage; None before the first call, and for all other stages.
        taken: number of artifacts that the follower has taken in.
        masks: the maskers that were in force when the follower began.
        given: the artifacts that the stage received in its last call.
        gave: the artifacts that it returned.
    """

    stage: Stage
    incremental: IncrementalStage | None = field(init=False)
    follower: Follower | None = None
    taken: int = 0
    masks: tuple[Callable[[str], str], ...] = ()
    given: tuple[Artifact, ...] = ()
    gave: tuple[Artifact, ...] = ()

    def __post_init__(self) -> None:
        self.incremental = self.stage if isinstance(self.stage, IncrementalStage) else None

    def run(self, draft: Draft, same: int) -> Generator[Ask, object, tuple[Draft, int]]:
        """Run the stage; return its draft, and how many leading artifacts are the same as in its last one.

        Args:
            draft: the draft for the stage.
            same: how many leading artifacts of the draft are the same as in the stage's last call.
        """
        has_grown = same >= self.taken
        is_continued = self.masks == draft.masks and (has_grown or self._rewind(same))
        outcome = self._followed(draft, is_continued=is_continued)
        after = (yield from outcome) if isinstance(outcome, Generator) else outcome
        after = _require_draft(after, self.stage)
        same_after = self._same_after(draft, after, same, has_grown=is_continued and has_grown)
        self.given, self.gave = draft.artifacts, after.artifacts
        return _with_stage_named(after, len(draft.changes), self.stage), same_after

    def _followed(self, draft: Draft, *, is_continued: bool) -> StageResult:
        if self.incremental is None:
            return self.stage(draft)
        if not is_continued or self.follower is None:
            self.follower, self.taken, self.masks = self.incremental.begin(draft), 0, draft.masks
        self.follower.take(draft.artifacts[self.taken :], draft)
        self.taken = len(draft.artifacts)
        return self.follower.result(draft)

    def _rewind(self, same: int) -> bool:
        """Rewind the follower to the first `same` artifacts; return whether it could be rewound."""
        rewind = getattr(self.follower, "rewind", None)
        if rewind is None or not rewind(same):
            return False
        self.taken = same
        return True

    def _same_after(self, draft: Draft, after: Draft, same: int, *, has_grown: bool) -> int:
        if after.artifacts is draft.artifacts and self.gave is self.given:
            return same
        if has_grown and getattr(self.follower, "only_appends", False):
            return len(self.gave)
        return _common_prefix(self.gave, after.artifacts)


class Run:
    """One conversation and one chain: the history so far, and the progress of each stage.

    Args:
        stages: the chain.
        settings: the settings of the whole conversation.
        key: identifies the chain and its settings.
    """

    def __init__(self, stages: Sequence[Stage], settings: CallSettings, key: Hashable = None) -> None:
        self.stages = tuple(stages)
        self.settings = settings
        self.key = key
        self.given: list[Artifact] = []
        self.history: list[Artifact] = []
        self._ids: set[int] = set()
        self._replies: list[int] = []
        self._authority: list[tuple[int, Artifact]] = []
        self._sent: dict[int, tuple[Artifact, ...] | None] = {}
        self._forget()

    def _forget(self) -> None:
        """Start over: a failed call may have left the stages at different positions."""
        self._slots = [_Slot(stage) for stage in self.stages]
        self._done = 0

    def extend(self, artifacts: Iterable[Artifact]) -> None:
        """Take in the next artifacts of the history.

        An object that is already in the history is copied, because reports identify artifacts by identity.

        Raises:
            HistoryError: an item is not an artifact.
        """
        for artifact in artifacts:
            position = len(self.history)
            if not isinstance(artifact, Artifact):
                raise HistoryError(
                    f"expected an Artifact, got {type(artifact).__name__}; native messages go through an adapter "
                    "(ctxguard_openai.stabilize_messages for a list of dicts)",
                    position=position,
                )
            own = replace(artifact) if id(artifact) in self._ids else artifact
            self._ids.add(id(own))
            self.given.append(artifact)
            self.history.append(own)
            if own.kind is Kind.ASSISTANT:
                self._replies.append(position)
            elif own.kind in AUTHORITY:
                self._authority.append((position, own))

    def rewind(self, count: int) -> None:
        """Forget all but the first `count` artifacts of the history."""
        self._ids.difference_update(map(id, self.history[count:]))
        del self.given[count:], self.history[count:]
        del self._replies[bisect_left(self._replies, count) :]
        self._authority = [each for each in self._authority if each[0] < count]
        self._sent = {end: artifacts for end, artifacts in self._sent.items() if end <= count}
        self._done = min(self._done, count)

    def stabilized(self, *, dry: bool = False) -> Generator[Ask, object, tuple[Draft, Cut | None]]:
        """Return the draft that the chain produces, and where its prompt stops extending the previous one."""
        before = yield from self._sent_before()
        try:
            draft = yield from self._drafted(len(self.history), dry=dry)
        except BudgetExceededError:
            self._remember(len(self.history), None)  # depends on the history alone, so the next call need not try again
            raise
        self._remember(len(self.history), draft.artifacts)
        return draft, self._cut(draft, before)

    def _drafted(self, end: int, *, dry: bool) -> Generator[Ask, object, Draft]:
        history = tuple(self.history) if end == len(self.history) else tuple(self.history[:end])
        authority = tuple(each for each in self._authority if each[0] < end)
        draft = Draft(history, replace(self.settings, dry=dry), history=history, authority=authority)
        same, self._done, number = self._done, end, 0
        try:
            for number, slot in enumerate(self._slots):  # noqa: B007 - tells how far the chain came
                draft, same = yield from slot.run(draft, same)
        except BudgetExceededError:
            self._forget_behind(number, draft)
            raise
        except BaseException:
            self._forget()
            raise
        return draft

    def _forget_behind(self, number: int, draft: Draft) -> None:
        """Restart the stages after one that refused its draft, and that one too unless it has taken in everything."""
        has_taken = self._slots[number].taken == len(draft.artifacts)
        begin = number + has_taken
        self._slots[begin:] = [_Slot(slot.stage) for slot in self._slots[begin:]]

    def _sent_before(self) -> Generator[Ask, object, tuple[Artifact, ...] | None]:
        """Return the prompt of the last reply; None if there was no reply, or that call was impossible."""
        end = self._replies[-1] if self._replies else 0
        if not end or end in self._sent:
            return self._sent.get(end)
        run, overflow = self, self.settings.overflow
        settings = self.settings
        if overflow is not None and end < overflow.at:
            settings = replace(settings, budget=overflow.before, overflow=None)
        if self._done > end or settings is not self.settings:
            run = Run(self.stages, settings)
            run.extend(self.history[:end])
        try:
            draft = yield from reads_only(run._drafted(end, dry=True))
        except Exception:  # noqa: BLE001 - that a call was refused then says nothing about this one
            return None
        self._remember(end, draft.artifacts)
        return draft.artifacts

    def _remember(self, end: int, artifacts: tuple[Artifact, ...] | None) -> None:
        # The previous entry is kept as well: a repeated call is compared with the call before it.
        latest = list(self._sent.items())[-1:]
        self._sent = {**dict(latest), end: artifacts}

    def _cut(self, draft: Draft, before: tuple[Artifact, ...] | None) -> Cut | None:
        now = draft.artifacts
        same = len(now) if before is None else _equal_prefix(before, now)
        if before is not None and same < len(before):
            reply = self._replies[-1]
            at = reply if draft.cut_at is None else max(reply, draft.cut_at)
            # Large outputs that were new in the previous call may now be bounded: that is not a cut.
            fresh = _is_rewritten(before, now, same) or (draft.cut_at is not None and draft.cut_at >= reply)
            return Cut(at, same, fresh=fresh, rebilled=draft.counter.artifacts(now[same:]))
        return None if draft.cut_at is None else Cut(draft.cut_at, len(now), fresh=False, rebilled=0)


def _is_rewritten(before: Sequence[Artifact], now: Sequence[Artifact], same: int) -> bool:
    """Return whether, from a position on, more changed than the form of the previous prompt's newest outputs."""
    newest = next((p for p in range(len(before) - 1, -1, -1) if before[p].kind is Kind.ASSISTANT), len(before))
    kept = now[same : len(before)]
    return same < newest or any(a.root is not b.root for a, b in zip(before[same:], kept, strict=False))


def _require_draft(outcome: object, stage: Stage) -> Draft:
    if isinstance(outcome, Draft):
        return outcome
    if isinstance(outcome, Coroutine):
        outcome.close()
    raise ConfigError(
        f"the stage {stage_name(stage)} returned {type(outcome).__name__}, not a Draft; it returns draft.revise(…), "
        "and yields Ask(function, args) for what is async",
        setting="stages",
    )


def _with_stage_named(draft: Draft, begin: int, stage: Stage) -> Draft:
    """Return the draft with the stage's name in its changes from a position on."""
    if len(draft.changes) == begin:
        return draft
    name = stage_name(stage)
    changes = tuple(replace(c, stage=name) if not c.stage else c for c in draft.changes[begin:])
    return replace(draft, changes=draft.changes[:begin] + changes)


def _first(flags: Iterable[bool], default: int) -> int:
    """Return the position of the first true flag."""
    return next(compress(count(), flags), default)


def _common_prefix(
    ones: Sequence[Artifact], others: Sequence[Artifact], is_same: Callable[[Artifact, Artifact], bool] = is_
) -> int:
    """Return how many leading artifacts are the same, by default the very same objects."""
    most = min(len(ones), len(others))
    # usually all of them are: this check takes half the time
    return most if all(map(is_same, ones, others)) else _first(map(not_, map(is_same, ones, others)), most)


def _equal_prefix(ones: tuple[Artifact, ...], others: tuple[Artifact, ...]) -> int:
    """Return how many leading artifacts are equal."""
    most = min(len(ones), len(others))
    # usually they are the very same objects, which comparing tuples detects at once
    return most if ones[:most] == others[:most] else _first(map(_differ, ones, others), most)


def _differ(one: Artifact, other: Artifact) -> bool:
    """Return whether artifacts differ. Summaries with the same id are equal: they replace the same exchanges."""
    if one is other or one == other:
        return False
    return one.id is None or one.id != other.id or one.source is not None or not is_synthetic(one)


class Runs:
    """Remember runs, and find the one that a history continues. Thread-safe: a run that was taken has one owner.

    Copies and pickles start empty.
    """

    def __init__(self) -> None:
        self._kept: list[Run] = []
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[Runs], tuple[()]]:
        return Runs, ()

    def take(self, history: Sequence[Artifact], key: Hashable) -> Run | None:
        """Remove and return the run that a history continues; None if there is none.

        That is the longest run whose history is a prefix of this one, by identity or else by equality. If there is
        none, it is the run that begins as this history does for longest and ends otherwise, rewound to where they part.

        Args:
            history: the artifacts.
            key: of the chain and its settings.
        """
        with self._lock:
            known = [run for run in self._kept if 0 < len(run.given) <= len(history)]
            known.sort(key=lambda run: len(run.given), reverse=True)
            for is_same in (_is_same, _is_equal):
                for run in known:
                    # the latest artifact differs between most conversations
                    last = len(run.given) - 1
                    if not is_same(run.given[last:], history[last : last + 1]):
                        continue
                    if run.key == key and is_same(run.given, history):
                        self._kept.remove(run)
                        return run
            return self._rewound(history, key)

    def _rewound(self, history: Sequence[Artifact], key: Hashable) -> Run | None:
        alike = ((_common_prefix(run.given, history, _is_equal_one), run) for run in self._kept if run.key == key)
        count, run = max(alike, key=itemgetter(0), default=(0, None))
        if run is None or count < _REPLACED * (len(run.given) - count):
            return None
        self._kept.remove(run)
        run.rewind(count)
        return run

    def keep(self, run: Run) -> None:
        """Remember a run. If there are too many, the least recently used are forgotten."""
        with self._lock:
            self._kept.append(run)
            size = sum(len(run.given) for run in self._kept)
            while len(self._kept) > 1 and (size > _MOST_ARTIFACTS or len(self._kept) > _MOST_RUNS):
                size -= len(self._kept.pop(0).given)


def _is_same(ones: Sequence[Artifact], others: Sequence[Artifact]) -> bool:
    return all(map(is_, ones, others))


def _is_equal(ones: Sequence[Artifact], others: Sequence[Artifact]) -> bool:
    return all(map(_is_equal_one, ones, others))


def _is_equal_one(one: Artifact, other: Artifact) -> bool:
    return one is other or one == other


@dataclass(frozen=True, slots=True)
class Stabilized:
    """The context and the report."""

    artifacts: list[Artifact]
    report: Report

    def _repr_html_(self) -> str | None:
        from ctxguard.report.page import notebook_html

        return notebook_html(self.report, self.artifacts)


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a session at one moment.

    Attributes:
        artifacts: the context.
        messages: the same as native messages; the artifacts themselves where the session was given artifacts.
        report: what was done, and why.
    """

    artifacts: list[Artifact]
    messages: object
    report: Report


class Session:
    """Stabilize one growing conversation; a call costs only what is new. Made by `Stabilizer.session`.

    Args:
        stages: the chain.
        start: creates a run of a chain, over what an adapter reads or over artifacts.
        judge: runs the chain over the history of a run, and checks the result.
        adapter: reads and writes native messages; None means the installed one that knows the first message.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        start: Callable[[Sequence[Stage], NativeAdapter | None], Run],
        judge: Callable[[Run], Generator[Ask, object, Stabilized]],
        adapter: NativeAdapter | None = None,
    ) -> None:
        self.adapter = adapter
        self._stages = stages
        self._start = start
        self._judge = judge
        self._messages: list[object] = []
        self._run: Run | None = None

    def append(self, message: object) -> None:
        """Take in the next message of the conversation.

        Args:
            message: an artifact, or a message of an installed adapter, which is found at the first one.

        Raises:
            AdapterError: no installed adapter knows it.
            HistoryError: it cannot be read.
        """
        self.extend((message,))

    def extend(self, messages: Iterable[object]) -> None:
        """Take in the next messages of the conversation, see `append`."""
        new = list(messages)
        if not new:
            return
        run = self._run or self._begin(new)
        if self.adapter is None:
            run.extend(cast("list[Artifact]", new))
        elif getattr(self.adapter, "reads_one_by_one", False):
            run.extend(self.adapter.read(new))
        else:  # how a message is read depends on its neighbors
            read = self.adapter.read([*self._messages, *new])
            if not _is_equal(run.given, read):
                run = self._run = Run(run.stages, run.settings)
            run.extend(read[len(run.given) :])
        self._messages += new

    def _begin(self, messages: list[object]) -> Run:
        if messages and self.adapter is None and not isinstance(messages[0], Artifact):
            from ctxguard.adapting.registry import require_adapter

            self.adapter = cast("NativeAdapter", require_adapter(messages))
        stages = self._stages
        if self.adapter is not None:
            from ctxguard.adapting.registry import chain_for

            stages = chain_for(self.adapter, stages)
        self._run = self._start(stages, self.adapter)
        return self._run

    @synchronous
    def context(self) -> Generator[Ask, object, Context]:
        """Return the context as of now. The messages that were appended are not changed.

        Raises:
            BudgetExceededError: the mandatory messages do not fit.
        """
        result = yield from self._judge(self._run or self._begin([]))
        native = result.artifacts if self.adapter is None else self.adapter.write(self._messages, result.artifacts)
        return Context(result.artifacts, native, result.report)

    acontext = asynchronous(context)
    """Do the same as `context` with summarizers or stores that are async."""


def in_own_objects(
    artifacts: list[Artifact], known: Sequence[Artifact], given: Sequence[Artifact], history: Sequence[Artifact]
) -> list[Artifact]:
    """Replace the artifacts of earlier calls in a result with the equal artifacts of this call.

    Parsing a request creates new objects in each call, while the result was computed for the earlier ones.

    Args:
        artifacts: the result, computed for `known`.
        known: the history of the earlier calls, as the session stores it.
        given: the same history, as the earlier calls passed it.
        history: the history of this call, which equals it.
    """
    if all(map(is_, given, history)):
        return artifacts
    pairs = [(was, now) for was, now in zip(known, history, strict=True) if was is not now]
    same = {id(was): now for was, now in pairs}
    # a history may contain changed copies from an earlier result; copies of them share their root
    roots = {id(was.root): now for was, now in pairs}
    return [same.get(id(one)) or _in_place_of(one, roots.get(id(one.origin))) for one in artifacts]


def _in_place_of(artifact: Artifact, own: Artifact | None) -> Artifact:
    return artifact if own is None else replace(artifact, origin=own.root, source=own.source)


def with_own_count(artifact: Artifact, counter: ArtifactCounter) -> Artifact:
    """Count a changed copy if the caller counted the original; return any other artifact unchanged."""
    if artifact.origin is None or artifact.origin.token_count is None or artifact.token_count is not None:
        return artifact
    return replace(artifact, token_count=counter.artifact(artifact))
