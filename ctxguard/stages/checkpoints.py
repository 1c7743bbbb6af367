"""Start over from where a phase ended: the instructions, what was reached, and what came since."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft, Follower
from ctxguard.errors import ConfigError
from ctxguard.history import CHECKPOINT, ExchangeSpan, History, records_in, write_record
from ctxguard.settings import OfOneProcess
from ctxguard.stages.followed import FollowedStage
from ctxguard.stages.selection import selected
from ctxguard.stages.sliding_window import mentions
from ctxguard.tokens import ArtifactCounter, TokenCounter, find_counter

if TYPE_CHECKING:
    from ctxguard.stores import Store

NAMESPACE: Final = "checkpoint"
_PHRASES: Final[Mapping[str, tuple[str, ...]]] = {
    "login": ("logged in", "login successful", "signed in", "authentication succeeded"),
    "cart": ("cart updated", "added to cart", "added to your cart", "item added"),
    "checkout": ("order completed", "order placed", "order confirmed", "checkout complete"),
}
REACHED: Final = "Previous phases completed. Current state:"
"""First line of a checkpoint's text."""
_COMPLETED: Final = re.compile(rf"\A{re.escape(REACHED)}\n\n(?:.*\n){{3}}Completed: (.+)")
"""The phases that a checkpoint names."""
_ENDINGS: Final = ("completed", "complete", "finished", "done", "succeeded")
_URL: Final = re.compile(r"^\W*(?:page )?url\W{0,4}(\S+)", re.IGNORECASE | re.MULTILINE)
_TITLE: Final = re.compile(r"^\W*(?:page )?title\W{0,4}(.+)$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PhaseRule:
    """Name a phase, and tell which artifact (a tool output, or what the model said) shows that it is over."""

    name: str
    ends: Callable[[Artifact], bool]


def phase_rules(names: Sequence[str]) -> tuple[PhaseRule, ...]:
    """Return rules for phases by name: known phrases for `login`, `cart`, `checkout`; "<name> completed" for any."""
    rules = []
    for name in names:
        spoken = name.replace("_", " ")
        # The default argument binds `found` now; a plain closure would see the last one of the loop.
        found = mentions(*_PHRASES.get(name, ()), *(f"{spoken} {ending}" for ending in _ENDINGS))
        rules.append(PhaseRule(name, lambda artifact, found=found: found(artifact, 0)))  # type: ignore[misc]
    return tuple(rules)


@dataclass(frozen=True, slots=True)
class PageState:
    """Describe where a browser stands: address and title of its page, empty where there is none."""

    url: str = ""
    page_title: str = ""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Hold what was reached when a phase ended.

    Attributes:
        phase: its name.
        timestamp: when it was made, in UTC.
        state: where things stood.
        completed_objectives: what was done by then.
        summary: the same in a sentence or two, within the size limit.
        messages: how many messages of the history it stands for; 0 where the caller did not say.
    """

    phase: str
    timestamp: datetime
    state: PageState
    completed_objectives: tuple[str, ...]
    summary: str
    messages: int = 0


class CheckpointManager(OfOneProcess, FollowedStage):
    """Make checkpoints, keep them, and begin contexts from them. A stage too: it cuts where the last phase ended.

    As a stage it finds the ends of phases by the rules, and puts one message in place of everything before the last of
    them but what must stay. That is a function of the history alone; the store only serves those who resume.

    Args:
        phases: how the ends of phases show; None means `login`, `cart` and `checkout`. Empty means no automatic ones.
        max_size: tokens of a checkpoint's text.
        store: where checkpoints are kept; None means in this process.
        session: name under which they are kept.
        counter: as for `ctxguard.tokens.find_counter`.
        clock: tells the time.

    Raises:
        ConfigError: `max_size` is below 1.
    """

    name = "CheckpointManager"

    def __init__(
        self,
        phases: Sequence[PhaseRule] | None = None,
        *,
        max_size: int = 500,
        store: Store | None = None,
        session: str = "default",
        counter: str | TokenCounter | Callable[[str], int] = "auto",
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        from ctxguard.stores import MemoryStore

        if max_size < 1:
            raise ConfigError(f"max_size must be 1 token or more, not {max_size}", setting="max_checkpoint_size")
        self.phases = phase_rules(tuple(_PHRASES)) if phases is None else tuple(phases)
        self.max_size = max_size
        self.session = session
        self.current_phase: str | None = None
        self._store: Store = MemoryStore() if store is None else store
        self._counter = ArtifactCounter(find_counter(counter))
        self._clock = clock
        self._lock = Lock()
        self._marks = {c.phase: c.messages for c in self.checkpoints.values() if c.messages}

    @property
    def checkpoints(self) -> dict[str, Checkpoint]:
        """The checkpoints of the session by phase, also those of an earlier process."""
        with self._lock:
            found = {key: self._store.get(NAMESPACE, key) for key in self._store.keys(NAMESPACE)}
        prefix = self._key("")
        # One store may serve many sessions; only the keys of this one are read.
        return {k.removeprefix(prefix): _loaded(v) for k, v in found.items() if v and k.startswith(prefix)}

    def create_checkpoint(
        self,
        phase: str,
        state: PageState | Mapping[str, str],
        completed_objectives: Sequence[str],
        *,
        messages: int = 0,
    ) -> Checkpoint:
        """Make a checkpoint, keep it, and make its phase the current one.

        Args:
            phase: its name; a second one of that name takes the place of the first.
            state: where things stand.
            completed_objectives: what has been done.
            messages: how many messages of the history it stands for; as a stage, contexts then begin behind them.

        Raises:
            ConfigError: `state` is neither a `PageState` nor a dict of its fields.
        """
        state = _page_state(state)
        done = tuple(completed_objectives)
        summary = self._sized(_summary(state, done))
        checkpoint = Checkpoint(phase, self._clock(), state, done, summary, messages)
        record = json.dumps({**asdict(checkpoint), "timestamp": checkpoint.timestamp.isoformat()})
        # Writing and noting the mark belong together: another thread must not see one without the other.
        with self._lock:
            self._store.put(NAMESPACE, self._key(phase), record.encode())
            self.current_phase = phase
            if messages:
                self._marks[phase] = messages
        return checkpoint

    def get_context_from_checkpoint(self, checkpoint: Checkpoint, original_instructions: str) -> list[Artifact]:
        """Return the smallest context to go on with: the instructions, and what was reached."""
        return [Artifact(Kind.USER, original_instructions), Artifact(Kind.ASSISTANT, self._text(checkpoint))]

    def _key(self, phase: str) -> str:
        """Return where the checkpoint of a phase is kept; names of sessions may hold slashes, too."""
        return f"{quote(self.session, safe='')}/{phase}"

    def _text(self, checkpoint: Checkpoint) -> str:
        text = (
            f"{REACHED}\n\n"
            f"Phase: {checkpoint.phase}\nURL: {checkpoint.state.url}\nPage: {checkpoint.state.page_title}\n"
            f"Completed: {', '.join(checkpoint.completed_objectives)}\n\n"
            f"{checkpoint.summary}\n\nContinuing with the next phase..."
        )
        return self._sized(text)

    def _sized(self, text: str) -> str:
        from ctxguard.compaction.transcript import head_and_tail  # brings pydantic, which the stages do without

        return head_and_tail(text, self.max_size, self._counter.text)

    def begin(self, draft: Draft, /) -> Follower:
        """Return what watches one conversation for the ends of phases."""
        return _Watching(self, draft)

    def marks(self) -> dict[str, int]:
        """Return how many messages of the history the caller's own checkpoints stand for, by phase."""
        with self._lock:
            return dict(self._marks)

    def shown(self, phase: str, state: PageState, done: tuple[str, ...]) -> str:
        """Return the text of a checkpoint as it stands in a context."""
        return self._text(Checkpoint(phase, datetime.min.replace(tzinfo=UTC), state, done, _summary(state, done)))


class _Watching:
    """Watch one conversation for the ends of phases. The last exchange may still grow: it is not looked at.

    Attributes:
        over: number of the exchange in which each phase was first over.
        told: phases that a checkpoint in the history names: the context has begun behind them.
    """

    def __init__(self, stage: CheckpointManager, draft: Draft) -> None:
        self._stage = stage
        self._history = History(draft.counter.artifact)
        self._seen = 0
        self.over: dict[str, int] = {}
        self.told: dict[str, None] = {}
        self._shown: tuple[str, Artifact | None] = ("", None)

    def take(self, artifacts: Sequence[Artifact], draft: Draft) -> None:  # noqa: ARG002 - as every follower
        """Take in what comes next."""
        self._history.extend(artifacts)
        # The last exchange is left out: results may still come for it.
        for number in range(self._seen, max(self._seen, len(self._history) - 1)):
            self._seen = number + 1
            for artifact in self._history.members(number):
                self._watch(artifact, number)

    def _watch(self, artifact: Artifact, number: int) -> None:
        # What users say never ends a phase, but a record of ours in their role tells which phases are over.
        if artifact.kind is Kind.USER:
            for record in records_in(artifact.text):
                for completed in _COMPLETED.findall(record.body):
                    self.told.update(dict.fromkeys(completed.split(", ")))
            return
        ended = (rule.name for rule in self._stage.phases if rule.name not in self.over and rule.ends(artifact))
        self.over.update(dict.fromkeys(ended, number))

    def result(self, draft: Draft) -> Draft:
        """Return the draft from the last checkpoint on."""
        reached = self._reached()
        if not reached:
            return draft
        # The context begins anew behind the phase that ended last.
        begin = max(reached.values()) + 1
        phase = max(reached, key=reached.__getitem__)
        done = (*self.told, *sorted(reached, key=reached.__getitem__))
        state = state_of(self._history.artifacts[: self._history.spans[begin - 1].end])
        record = self._checkpoint(draft.mask(self._stage.shown(phase, state, done)))
        result = selected(draft, self._history, (), begin, reason="before the last checkpoint", record=record)
        return replace(result, details={**result.details, self._stage.name: {"reached": list(done)}})

    def _reached(self) -> dict[str, int]:
        """Return the exchange in which each phase was first over; neither the open last one nor what a record tells."""
        ends = {**self.over, **self._marked()}
        return {phase: number for phase, number in ends.items() if phase not in self.told}

    def _marked(self) -> dict[str, int]:
        """Return the exchanges that the caller's own checkpoints end with."""
        spans = self._history.spans
        ends = {p: bisect_right(spans, messages, key=_end) for p, messages in self._stage.marks().items()}
        return {phase: end - 1 for phase, end in ends.items() if 0 < end < len(spans)}

    def _checkpoint(self, text: str) -> Artifact:
        """Return the message that stands for what goes: the same object as long as it says the same."""
        known, artifact = self._shown
        # The same object each time keeps the prefix of the prompt, and what later stages remember of it.
        if artifact is None or known != text:
            artifact = Artifact(Kind.USER, write_record(CHECKPOINT, text))
            self._shown = (text, artifact)
        return artifact


def _page_state(state: object) -> PageState:
    if isinstance(state, PageState):
        return state
    known = {field.name for field in fields(PageState)}
    if not isinstance(state, Mapping):
        raise ConfigError(f"state is a PageState or a dict of its fields, not {type(state).__name__}", setting="state")
    if unknown := set(state) - known:
        raise ConfigError(f"state has no {min(unknown)!r}; known are {', '.join(sorted(known))}", setting="state")
    return PageState(**state)


def _end(span: ExchangeSpan) -> int:
    return span.end


def _summary(state: PageState, objectives: Sequence[str]) -> str:
    where = f" Currently on {state.page_title} page." if state.page_title else ""
    return f"Successfully completed {len(objectives)} objectives.{where}"


def state_of(artifacts: Sequence[Artifact]) -> PageState:
    """Read the page from the latest tool output that names it."""
    state = PageState()
    # From the newest on: the page that was seen last is where things stand.
    for artifact in reversed(artifacts):
        if artifact.kind is not Kind.TOOL:
            continue
        url, title = _URL.search(artifact.text), _TITLE.search(artifact.text)
        if url and not state.url:
            state = replace(state, url=url[1])
        if title and not state.page_title:
            state = replace(state, page_title=title[1].strip())
        if state.url and state.page_title:
            break
    return state


def _loaded(record: bytes) -> Checkpoint:
    data = json.loads(record)
    return Checkpoint(
        data["phase"],
        datetime.fromisoformat(data["timestamp"]),
        PageState(**data["state"]),
        tuple(data["completed_objectives"]),
        data["summary"],
        data.get("messages", 0),
    )
