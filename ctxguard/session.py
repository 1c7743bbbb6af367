"""Sessions, and the memory that makes repeated calls on a growing conversation fast.

The result of a call depends only on the history. Because histories grow at their end, a `Run` keeps what the stages
worked out for one conversation (see `Memory`), and a later call continues from there. `Runs` finds the run of the
conversation that a history continues. If only the end of the history was replaced, as in a chat that sends retrieved
passages only with the latest question, the run is rewound to the point at which the two histories differ.

This memory affects speed, never results. The one exception is in `ctxguard.history.conversation`, which remembers that
the provider refused a prompt as too long. A history does not show this.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Coroutine, Generator, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress, count
from operator import is_, itemgetter, not_
from threading import Lock
from typing import TYPE_CHECKING, Final, cast

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Ask, CallSettings, Cut, Draft, Stage, asynchronous, reads_only, stage_name, synchronous
from ctxguard.errors import BudgetExceededError, ConfigError, HistoryError
from ctxguard.history import AUTHORITY, Memory, is_synthetic

if TYPE_CHECKING:
    from ctxguard.adapting.registry import Adapter
    from ctxguard.report import Report
    from ctxguard.tokens import ArtifactCounter

    NativeAdapter = Adapter[list[object]]

__all__ = ["Context", "Run", "Runs", "Session", "Stabilized"]

_MOST_RUNS: Final = 128  # maximum number of remembered conversations, so that memory is bounded
_MOST_ARTIFACTS: Final = 100_000
"""Maximum number of artifacts in all remembered runs. The least recently used run is forgotten first; the latest one is
kept in any case."""
_REPLACED: Final = 8
"""A run is rewound for another history only if the beginning that both share is at least this many times as long as the
rest of the run. Many conversations begin with the same few messages. If a run were rewound for these, its own
conversation would lose it."""


class Run:
    """The history of one conversation, and how far each stage of a chain has processed it.

    Args:
        stages: The stages of the chain, in order.
        settings: The settings, which apply to all calls of the conversation.
        key: A value that identifies the chain and the settings, by which `Runs` finds this run.
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
        self._latest: tuple[Artifact, ...] = ()
        self._same = 0
        self._compared: dict[tuple[int, int], int] = {}
        self._forget()

    def _forget(self) -> None:
        """Forget what the stages have worked out, because a failed call may have left it incomplete."""
        self._memories = [Memory(self._compared) for _ in self.stages]

    def extend(self, artifacts: Iterable[Artifact]) -> None:
        """Append artifacts to the history.

        An object that is already in the history is copied, because reports distinguish artifacts by object identity.

        Raises:
            HistoryError: If an item is not an artifact.
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
        self._same = min(self._same, count)

    def stabilize(self, *, dry: bool = False) -> Generator[Ask, object, tuple[Draft, Cut | None]]:
        """Run the chain over the history.

        Args:
            dry: Whether this is a dry run, in which nothing may be written.

        Returns:
            The draft that the chain returns, and a cut. If the new prompt does not simply extend the previous one, the
            cut is where the two differ; otherwise it is the latest cut, or None if there was none.

        Raises:
            BudgetExceededError: If a stage cannot fit the mandatory messages into the budget.
        """
        before = yield from self._previous_prompt()
        try:
            draft = yield from self._run_stages(len(self.history), dry=dry)
        except BudgetExceededError:
            # The error depends only on the history, so later calls do not need to compute this prompt again.
            self._remember(len(self.history), None)
            raise
        self._remember(len(self.history), draft.artifacts)
        return draft, self._find_cut(draft, before)

    def _run_stages(self, end: int, *, dry: bool) -> Generator[Ask, object, Draft]:
        history = tuple(self.history) if end == len(self.history) else tuple(self.history[:end])
        authority = tuple(each for each in self._authority if each[0] < end)
        draft = Draft(history, replace(self.settings, dry=dry), history=history, authority=authority)
        self._compared.clear()
        self._compared[id(self._latest), id(history)] = min(self._same, end)
        self._latest, self._same = history, end
        try:
            for stage, memory in zip(self.stages, self._memories, strict=True):
                outcome = stage(replace(draft, memory=memory))
                after = _require_draft((yield from outcome) if isinstance(outcome, Generator) else outcome, stage)
                is_same = after.decisions.changes is draft.decisions.changes
                draft = after if is_same else _with_stage_named(after, len(draft.changes), stage)
        except BudgetExceededError:  # raised for what was worked out completely
            raise
        except BaseException:
            self._forget()
            raise
        return draft

    def _previous_prompt(self) -> Generator[Ask, object, tuple[Artifact, ...] | None]:
        """Return the prompt that the last reply answered; None if there was no reply, or if that prompt is unknown.

        If the prompt is not remembered, it is computed again from the history before the reply.
        """
        end = self._replies[-1] if self._replies else 0
        if not end or end in self._sent:
            return self._sent.get(end)
        run, overflow = self, self.settings.overflow
        settings = self.settings
        if overflow is not None and end < overflow.at:
            settings = replace(settings, budget=overflow.before, overflow=None)
        if settings is not self.settings:
            run = Run(self.stages, settings)
            run.extend(self.history[:end])
        try:
            draft = yield from reads_only(run._run_stages(end, dry=True))
        except Exception:  # noqa: BLE001 - an error for the earlier history does not affect this call
            return None
        self._remember(end, draft.artifacts)
        return draft.artifacts

    def _remember(self, end: int, artifacts: tuple[Artifact, ...] | None) -> None:
        # A repeated call is compared with the call before it, and each of several results with the last reply's prompt.
        kept = {self._replies[-1] if self._replies else 0, next(reversed(self._sent), 0)}
        self._sent = {**{each: sent for each, sent in self._sent.items() if each in kept}, end: artifacts}

    def _find_cut(self, draft: Draft, before: tuple[Artifact, ...] | None) -> Cut | None:
        now = draft.artifacts
        same = len(now) if before is None else _equal_prefix(before, now)
        if before is not None and same < len(before):
            reply = self._replies[-1]
            at = reply if draft.cut_at is None else max(reply, draft.cut_at)
            # If only outputs that were new in the previous call have been shortened since, that is not a cut.
            fresh = _is_rewritten(before, now, same) or (draft.cut_at is not None and draft.cut_at >= reply)
            return Cut(at, same, fresh=fresh, rebilled=draft.counter.artifacts(now[same:]))
        return None if draft.cut_at is None else Cut(draft.cut_at, len(now), fresh=False, rebilled=0)


def _is_rewritten(before: Sequence[Artifact], now: Sequence[Artifact], same: int) -> bool:
    """Return whether the current prompt differs from the previous one by more than shortened new tool outputs.

    It does if anything before the last assistant message of the previous prompt has changed, or if an artifact after
    that was replaced by another one rather than by an edited copy.

    Args:
        before: The previous prompt.
        now: The current prompt.
        same: Number of leading artifacts that are equal in both.
    """
    newest = next((p for p in range(len(before) - 1, -1, -1) if before[p].kind is Kind.ASSISTANT), len(before))
    kept = now[same : len(before)]
    return same < newest or any(a.root is not b.root for a, b in zip(before[same:], kept, strict=False))


def _require_draft(outcome: object, stage: Stage) -> Draft:
    if isinstance(outcome, Draft):
        return outcome
    if isinstance(outcome, Coroutine):
        outcome.close()
    raise ConfigError(
        f"the stage {stage_name(stage)} returned {type(outcome).__name__}, not a Draft; return draft.revise(…), "
        "and yield Ask(function, args) to call an async function",
        setting="stages",
    )


def _with_stage_named(draft: Draft, begin: int, stage: Stage) -> Draft:
    """Return the draft with the stage's name entered in each change from index `begin` on that has no stage name."""
    name = stage_name(stage)
    changes = tuple(replace(c, stage=name) if not c.stage else c for c in draft.changes[begin:])
    return draft.decided(changes=draft.changes[:begin] + changes)


def _first(flags: Iterable[bool], default: int) -> int:
    """Return the index of the first true flag, or `default` if there is none."""
    return next(compress(count(), flags), default)


def _common_prefix(ones: Sequence[Artifact], others: Sequence[Artifact]) -> int:
    """Return the number of leading artifacts that are equal in both."""
    return _first(map(not_, map(_is_equal, ones, others)), min(len(ones), len(others)))


def _equal_prefix(ones: tuple[Artifact, ...], others: tuple[Artifact, ...]) -> int:
    """Return the number of leading artifacts that are equal in both."""
    most = min(len(ones), len(others))
    # Usually all are the same objects, which a comparison of tuples detects very quickly.
    return most if ones[:most] == others[:most] else _first(map(_differ, ones, others), most)


def _differ(one: Artifact, other: Artifact) -> bool:
    """Return whether two artifacts differ. Summaries with one id count as equal: they replace the same exchanges."""
    if one is other or one == other:
        return False
    return one.id is None or one.id != other.id or one.source is not None or not is_synthetic(one)


class Runs:
    """Keeps the runs of recent conversations, and finds the run that a history continues.

    Thread-safe: a run that a call is using is removed from here until the call has ended. Copies and pickles start
    empty.
    """

    def __init__(self) -> None:
        self._kept: list[Run] = []
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[Runs], tuple[()]]:
        return Runs, ()

    def take(self, history: Sequence[Artifact], key: Hashable) -> Run | None:
        """Remove and return the run that a history continues; None if there is none.

        That is the run with the longest history that is a prefix of `history`, compared by object identity first and
        then by equality. If there is none, it is the run that shares the longest beginning with `history`, rewound to
        that beginning. That run is used only if the part to be forgotten is short.

        Args:
            history: The history of the call.
            key: The value that identifies the chain and the settings.
        """
        with self._lock:
            known = [run for run in self._kept if 0 < len(run.given) <= len(history)]
            known.sort(key=lambda run: len(run.given), reverse=True)
            for is_same in (is_, _is_equal):
                for run in known:
                    # The latest artifact is compared first, because it differs between most conversations.
                    if not is_same(run.given[-1], history[len(run.given) - 1]):
                        continue
                    if run.key == key and all(map(is_same, run.given, history)):
                        self._kept.remove(run)
                        return run
            return self._rewind_similar(history, key)

    def _rewind_similar(self, history: Sequence[Artifact], key: Hashable) -> Run | None:
        alike = ((_common_prefix(run.given, history), run) for run in self._kept if run.key == key)
        count, run = max(alike, key=itemgetter(0), default=(0, None))
        if run is None or count < _REPLACED * (len(run.given) - count):
            return None
        self._kept.remove(run)
        run.rewind(count)
        return run

    def keep(self, run: Run) -> None:
        """Keep a run after a call. If there are too many, the least recently used ones are forgotten."""
        with self._lock:
            self._kept.append(run)
            size = sum(len(run.given) for run in self._kept)
            while len(self._kept) > 1 and (size > _MOST_ARTIFACTS or len(self._kept) > _MOST_RUNS):
                size -= len(self._kept.pop(0).given)


def _is_equal(one: Artifact, other: Artifact) -> bool:
    # Between most conversations, the contents differ, and comparing these first is cheaper than comparing all fields.
    return one is other or (one.content == other.content and one == other)


@dataclass(frozen=True, slots=True)
class Stabilized:
    """The result of `Stabilizer.stabilize`.

    Attributes:
        artifacts: The context to send to the model.
        report: What was done, and why.
    """

    artifacts: list[Artifact]
    report: Report

    def _repr_html_(self) -> str | None:
        from ctxguard.report.page import notebook_html

        return notebook_html(self.report, self.artifacts)


@dataclass(frozen=True, slots=True)
class Context:
    """The result of `Session.context`.

    Attributes:
        artifacts: The context to send to the model.
        messages: The context as native messages of the framework; the artifacts themselves if the session was given
            artifacts.
        report: What was done, and why.
    """

    artifacts: list[Artifact]
    messages: object
    report: Report


class Session:
    """Stabilizes one growing conversation: append each message, and get the context for the next call of the model.

    The time for a call depends only on the messages that are new. Create sessions with `Stabilizer.session`.

    Args:
        stages: The stages of the chain.
        start: Function that takes the stages and the adapter (None for artifacts), and returns a new `Run`.
        judge: Function that takes a `Run`, runs its chain over its history, and checks the result.
        adapter: The adapter that reads and writes native messages; None means the installed adapter that recognizes the
            first message.
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
        self._run_checked = judge
        self._messages: list[object] = []
        self._run: Run | None = None

    def append(self, message: object) -> None:
        """Append the next message of the conversation.

        Args:
            message: An artifact, or a native message of a framework. The first message decides which adapter is used.

        Raises:
            AdapterError: If no installed adapter recognizes the message.
            HistoryError: If the message cannot be read.
        """
        self.extend((message,))

    def extend(self, messages: Iterable[object]) -> None:
        """Append the next messages of the conversation, see `append`."""
        new = list(messages)
        if not new:
            return
        run = self._run or self._begin(new)
        if self.adapter is None:
            run.extend(cast("list[Artifact]", new))
        elif getattr(self.adapter, "reads_one_by_one", False):
            try:
                run.extend(self.adapter.read(new))
            except HistoryError as error:
                raise error.after(len(self._messages)) from None
        else:  # how a message is read depends on its neighbors
            read = self.adapter.read([*self._messages, *new])
            if _common_prefix(run.given, read) < len(run.given):
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
        """Return the context for the next call of the model. The appended messages are not changed.

        Raises:
            BudgetExceededError: If the mandatory messages exceed the budget.
        """
        result = yield from self._run_checked(self._run or self._begin([]))
        native = result.artifacts if self.adapter is None else self.adapter.write(self._messages, result.artifacts)
        return Context(result.artifacts, native, result.report)

    acontext = asynchronous(context)
    """The async version of `context`, for summarizers or stores that are async."""


def in_own_objects(
    artifacts: list[Artifact], known: Sequence[Artifact], given: Sequence[Artifact], history: Sequence[Artifact]
) -> list[Artifact]:
    """Return a result in which each object of an earlier call is replaced with the equal object of this call.

    Callers that parse each request pass new objects in each call, and expect these in the result. But the result was
    computed for the objects of earlier calls.

    Args:
        artifacts: The result, computed for `known`.
        known: The history as the run stores it. If it contained an object twice, the second is a copy.
        given: The same history as earlier calls passed it.
        history: The same history as this call passed it.
    """
    if all(map(is_, given, history)):
        return artifacts
    pairs = [(was, now) for was, now in zip(known, history, strict=True) if was is not now]
    same = {id(was): now for was, now in pairs}
    # The history may contain changed copies from an earlier result, so artifacts are matched by root as well.
    roots = {id(was.root): now for was, now in pairs}
    return [same.get(id(one)) or _in_place_of(one, roots.get(id(one.origin))) for one in artifacts]


def _in_place_of(artifact: Artifact, own: Artifact | None) -> Artifact:
    return artifact if own is None else replace(artifact, origin=own.root, source=own.source)


def with_own_count(artifact: Artifact, counter: ArtifactCounter) -> Artifact:
    """Return a changed copy with a token count of its own if the caller gave a token count for its original.

    Any other artifact is returned unchanged.
    """
    if artifact.origin is None or artifact.origin.token_count is None or artifact.token_count is not None:
        return artifact
    return replace(artifact, token_count=counter.artifact(artifact))
