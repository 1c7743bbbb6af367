"""Start over from where a phase ended: the instructions, what was reached, and what came since."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft
from ctxguard.errors import ConfigError
from ctxguard.history import REACHED, Unit, stands_in
from ctxguard.settings import OfOneProcess
from ctxguard.stages.cuts import with_cut
from ctxguard.stages.growing import Followed
from ctxguard.stages.selection import SelectedHistory, must_stay, selected
from ctxguard.stages.sliding_window import mentions
from ctxguard.tokens import ArtifactCounter, TokenCounter, find_counter

if TYPE_CHECKING:
    from ctxguard.stores import Store

__all__ = ["Checkpoint", "CheckpointManager", "PageState", "PhaseRule", "phase_rules", "state_of"]

NAMESPACE: Final = "checkpoint"
_PHRASES: Final[Mapping[str, tuple[str, ...]]] = {
    "login": ("logged in", "login successful", "signed in", "authentication succeeded"),
    "cart": ("cart updated", "added to cart", "added to your cart", "item added"),
    "checkout": ("order completed", "order placed", "order confirmed", "checkout complete"),
}
_COMPLETED: Final = re.compile(rf"(?:\A|\n\n){re.escape(REACHED)}\n\n(?:.*\n){{3}}Completed: (.+)")
"""The phases that a checkpoint names, also where `MergeMessageRuns` joined it to what stands around it."""
_ENDINGS: Final = ("completed", "complete", "finished", "done", "succeeded")
_URL: Final = re.compile(r"^\W*(?:page )?url\W{0,4}(\S+)", re.IGNORECASE | re.MULTILINE)
_TITLE: Final = re.compile(r"^\W*(?:page )?title\W{0,4}(.+)$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PhaseRule:
    """Say how the end of a phase shows.

    Attributes:
        name: of the phase.
        ends: tells whether an artifact (tool output or what the model said) shows that the phase is over.
    """

    name: str
    ends: Callable[[Artifact], bool]


def phase_rules(names: Sequence[str]) -> tuple[PhaseRule, ...]:
    """Return rules for phases by name: known phrases for `login`, `cart`, `checkout`; "<name> completed" for any."""
    rules = []
    for name in names:
        spoken = name.replace("_", " ")
        found = mentions(*_PHRASES.get(name, ()), *(f"{spoken} {ending}" for ending in _ENDINGS))
        rules.append(PhaseRule(name, lambda artifact, found=found: found(artifact, 0)))  # type: ignore[misc]
    return tuple(rules)


@dataclass(frozen=True, slots=True)
class PageState:
    """Say where a browser, or whatever is worked on, stands.

    Attributes:
        url: address of the page; empty where there is none.
        page_title: its title.
    """

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


class CheckpointManager(OfOneProcess):
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
        self._histories = Followed(_Phased)
        self._marks = {c.phase: c.messages for c in self.checkpoints.values() if c.messages}

    @property
    def checkpoints(self) -> dict[str, Checkpoint]:
        """The checkpoints of the session by phase, also those of an earlier process."""
        with self._lock:
            found = {key: self._store.get(NAMESPACE, key) for key in self._store.keys(NAMESPACE)}
        prefix = self._key("")
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
            ConfigError: `state` is no `PageState` and no dict of its fields.
        """
        state = _page_state(state)
        done = tuple(completed_objectives)
        summary = self._sized(_summary(state, done))
        checkpoint = Checkpoint(phase, self._clock(), state, done, summary, messages)
        record = json.dumps({**asdict(checkpoint), "timestamp": checkpoint.timestamp.isoformat()})
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

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft from the last checkpoint on."""
        with self._histories.following(draft) as history:
            history.watch(self.phases)
            reached = self._reached(history)
            if not reached:
                return with_cut(draft, draft, None)
            begin = max(reached.values()) + 1
            phase = max(reached, key=reached.__getitem__)
            done = (*history.told, *sorted(reached, key=reached.__getitem__))
            text = draft.mask(self._shown(phase, history.state_at(begin), done))
            result = _begun(draft, history, begin, text)
        return replace(result, details={**result.details, self.name: {"reached": list(done)}})

    def _shown(self, phase: str, state: PageState, done: tuple[str, ...]) -> str:
        return self._text(Checkpoint(phase, datetime.min.replace(tzinfo=UTC), state, done, _summary(state, done)))

    def _reached(self, history: _Phased) -> dict[str, int]:
        """Return the exchange in which each phase was first over; neither the open last one nor what a record tells."""
        ends = {**history.over, **self._named(history.units)}
        return {phase: number for phase, number in ends.items() if phase not in history.told}

    def _named(self, found: Sequence[Unit]) -> dict[str, int]:
        """Return the exchanges that the caller's own checkpoints end with."""
        with self._lock:
            marks = dict(self._marks)
        ends = {phase: bisect_right(found, messages, key=_end) for phase, messages in marks.items()}
        return {phase: end - 1 for phase, end in ends.items() if 0 < end < len(found)}


@dataclass(slots=True)
class _Phased(SelectedHistory):
    """Hold a history and which phases were over where, the last exchange not looked at.

    Attributes:
        over: number of the exchange in which each phase was first over.
        seen: exchanges that were looked at.
        own: numbers of the checkpoints in the history.
        told: phases that these name: the context has begun behind them.
        states: where things stood at the exchange asked for last.
        shown: the checkpoint as it stands in the context, by its text: the same object in each call.
    """

    over: dict[str, int] = field(default_factory=dict)
    seen: int = 0
    own: list[int] = field(default_factory=list)
    told: dict[str, None] = field(default_factory=dict)
    states: dict[int, PageState] = field(default_factory=dict)
    shown: dict[str, Artifact] = field(default_factory=dict)

    def watch(self, phases: Sequence[PhaseRule]) -> None:
        for number in range(self.seen, max(self.seen, len(self.units) - 1)):
            self.seen = number + 1
            members = self.members(number)
            if stands_in(members[0]) and members[0].text.startswith(REACHED):
                self.own.append(number)
            if members[0].kind is Kind.USER:
                for completed in _COMPLETED.findall(members[0].text):
                    self.told.update(dict.fromkeys(completed.split(", ")))
            for artifact in members:
                ended = (r.name for r in phases if r.name not in self.over and r.ends(artifact))
                self.over.update(dict.fromkeys(() if artifact.kind is Kind.USER else ended, number))

    def state_at(self, begin: int) -> PageState:
        if begin not in self.states:
            self.states = {begin: state_of(self.artifacts[: self.units[begin - 1].end])}
        return self.states[begin]

    def checkpoint(self, text: str) -> Artifact:
        if text not in self.shown:
            self.shown = {text: Artifact(Kind.USER, text)}
        return self.shown[text]


def _begun(draft: Draft, history: _Phased, begin: int, text: str) -> Draft:
    """Return the draft with a checkpoint in place of what came before an exchange, but for what must stay."""
    if _stays(draft, history, begin).issuperset(range(begin)):
        return with_cut(draft, draft, None)  # nothing but checkpoints would go: it began from there already
    return selected(
        draft,
        history,
        lambda _point: (),
        lambda end: begin if end > begin else 0,
        "before the last checkpoint",
        note=lambda point, _end, _gone: history.checkpoint(text) if point else None,
    )


def _stays(draft: Draft, history: _Phased, begin: int) -> set[int]:
    """Return which exchanges would stay before the one a context begins with; checkpoints count as such."""
    stays = {begin, *must_stay(draft, history, len(history.units)), *(n for n in history.own if n < begin)}
    first = min(stays)
    opener = next((n for n in reversed(history.users) if n <= first), first)
    return stays if history.units[first].user else {*stays, opener}


def _page_state(state: object) -> PageState:
    if isinstance(state, PageState):
        return state
    known = {field.name for field in fields(PageState)}
    if not isinstance(state, Mapping):
        raise ConfigError(f"state is a PageState or a dict of its fields, not {type(state).__name__}", setting="state")
    if unknown := set(state) - known:
        raise ConfigError(f"state has no {min(unknown)!r}; known are {', '.join(sorted(known))}", setting="state")
    return PageState(**state)


def _end(unit: Unit) -> int:
    return unit.end


def _summary(state: PageState, objectives: Sequence[str]) -> str:
    where = f" Currently on {state.page_title} page." if state.page_title else ""
    return f"Successfully completed {len(objectives)} objectives.{where}"


def state_of(artifacts: Sequence[Artifact]) -> PageState:
    """Read the page from the latest tool output that names it."""
    state = PageState()
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
