"""Continue from the end of a phase: keep the instructions, a summary of the phases, and the messages since."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from operator import attrgetter
from threading import Lock
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from ctxguard.artifacts import Artifact, Kind
from ctxguard.errors import ConfigError
from ctxguard.history import CHECKPOINT, write_record
from ctxguard.history.records import records_in
from ctxguard.settings import OfOneProcess, whole_number
from ctxguard.strategies.keep import Choice, Keep, Past
from ctxguard.strategies.sliding_window import Mentions
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
_NO_TIME: Final = datetime.min.replace(tzinfo=UTC)
"""The time of a checkpoint in a context: its text does not name one, so it need not be known."""
_ENDINGS: Final = ("completed", "complete", "finished", "done", "succeeded")
_URL: Final = re.compile(r"^\W*(?:page )?url\W{0,4}(\S+)", re.IGNORECASE | re.MULTILINE)
_TITLE: Final = re.compile(r"^\W*(?:page )?title\W{0,4}(.+)$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PhaseRule:
    """A rule that recognizes the end of a phase by an artifact: a tool output or a message of the model.

    Attributes:
        name: the phase.
        ends: takes an artifact, and returns whether it ends the phase.
    """

    name: str
    ends: Callable[[Artifact], bool]


def phase_rules(names: Sequence[str]) -> tuple[PhaseRule, ...]:
    """Return rules for phases by name: known phrases for `login`, `cart`, `checkout`; "<name> completed" for any."""
    rules = []
    for name in names:
        spoken = name.replace("_", " ")
        # The default argument binds `found` now; a plain closure would see the last one of the loop.
        found = Mentions(*_PHRASES.get(name, ()), *(f"{spoken} {ending}" for ending in _ENDINGS))
        rules.append(PhaseRule(name, lambda artifact, found=found: found(artifact, 0)))  # type: ignore[misc]
    return tuple(rules)


@dataclass(frozen=True, slots=True)
class PageState:
    """The page that a browser shows: its address and its title, empty if there is none."""

    url: str = ""
    page_title: str = ""


BrowserState = PageState
"""The name by which the design of the context manager calls it."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state reached at the end of a phase.

    Attributes:
        phase: its name.
        timestamp: when it was made, in UTC.
        state: the page at that time.
        completed_objectives: what was done by then.
        summary: the same in a sentence or two, within the size limit.
        messages: how many messages of the history it sums up; 0 if the caller did not say.
    """

    phase: str
    timestamp: datetime
    state: PageState
    completed_objectives: tuple[str, ...]
    summary: str
    messages: int = 0


@dataclass(frozen=True, slots=True)
class _PhaseNote:
    """The phases that end with an exchange, and those that a checkpoint in it names as completed."""

    ended: tuple[str, ...]
    named: tuple[str, ...]


@dataclass(slots=True, eq=False)
class _Shown:
    """The checkpoint that a conversation shows, and its text."""

    text: str = ""
    artifact: Artifact | None = None


class CheckpointManager(OfOneProcess, Keep[_PhaseNote]):
    """Make checkpoints, store them, and begin contexts from them. As a stage, it cuts where the last phase ended.

    The stage finds the ends of phases by the rules. One message replaces everything before the last of them, except for
    mandatory messages. This depends on the history alone; stored checkpoints are for a program that resumes a task.

    Args:
        phases: rules for the ends of phases; None means `login`, `cart` and `checkout`, empty no automatic checkpoints.
        max_size: tokens of a checkpoint's text.
        store: where checkpoints are stored; None means in the memory of this process.
        session: the name under which they are stored.
        counter: as for `ctxguard.tokens.find_counter`.
        clock: returns the current time.

    Raises:
        ConfigError: `max_size` is below 1.
    """

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

        super().__init__(self._since, self._ended, name="CheckpointManager")
        self.phases = phase_rules(tuple(_PHRASES)) if phases is None else tuple(phases)
        self.max_size = whole_number(max_size, "max_checkpoint_size", unit="tokens", least=1)
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
        """Create and store a checkpoint, and make its phase the current one.

        Args:
            phase: its name; a second one of that name replaces the first.
            state: the page that the browser shows.
            completed_objectives: what has been done.
            messages: number of messages of the history that it sums up; contexts of this stage then begin after them.

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
        """Return the smallest context to continue from: the instructions, and the checkpoint."""
        return [Artifact(Kind.USER, original_instructions), Artifact(Kind.ASSISTANT, self._text(checkpoint))]

    def _key(self, phase: str) -> str:
        """Return the key of a phase's checkpoint in the store; names of sessions may contain slashes, too."""
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
        from ctxguard.compaction.transcript import head_and_tail  # imports pydantic, which the stages do not need

        return head_and_tail(text, self.max_size, self._counter.text)

    def _ended(self, past: Past[_PhaseNote], number: int) -> _PhaseNote:
        """Record the phases that end with an exchange, and those that a checkpoint in it names."""
        ended: list[str] = []
        named: list[str] = []
        for artifact in past.history.members(number):
            # What users say never ends a phase, but a record of ours in their role says which phases are over.
            if artifact.kind is Kind.USER:
                found = (names for record in records_in(artifact.text) for names in _COMPLETED.findall(record.body))
                named += (phase for names in found for phase in names.split(", "))
            else:
                ended += (rule.name for rule in self.phases if rule.ends(artifact))
        return _PhaseNote(tuple(ended), tuple(named))

    def _since(self, past: Past[_PhaseNote], _end: int) -> Choice | None:
        """Choose the messages since the end of the last phase; a checkpoint sums up the others."""
        history = past.history
        named = dict.fromkeys(phase for note in past.notes for phase in note.named)
        over: dict[str, int] = {}
        for number, note in enumerate(past.notes):
            for phase in note.ended:
                over.setdefault(phase, number)
        with self._lock:
            ends = {p: bisect_right(history.spans, n, key=attrgetter("end")) for p, n in self._marks.items()}
        over.update((phase, end - 1) for phase, end in ends.items() if 0 < end < len(history.spans))
        reached = sorted((phase for phase in over if phase not in named), key=over.__getitem__)
        if not reached:
            return None
        phase, done = reached[-1], (*named, *reached)
        point = over[phase] + 1
        state = state_of(history.artifacts[: history.spans[point - 1].end])
        checkpoint = Checkpoint(phase, _NO_TIME, state, done, _summary(state, done))
        shown, text = past.memory(_Shown), past.draft.mask(self._text(checkpoint))
        # The same object each time keeps the prefix of the prompt, and what later stages remember of it.
        if shown.artifact is None or shown.text != text:
            shown.text, shown.artifact = text, Artifact(Kind.USER, write_record(CHECKPOINT, text))
        return Choice((), point, "before the last checkpoint", record=shown.artifact, details={"reached": list(done)})


def _page_state(state: object) -> PageState:
    if isinstance(state, PageState):
        return state
    known = {field.name for field in fields(PageState)}
    if not isinstance(state, Mapping):
        raise ConfigError(f"state is a PageState or a dict of its fields, not {type(state).__name__}", setting="state")
    if unknown := set(state) - known:
        raise ConfigError(f"state has no {min(unknown)!r}; known are {', '.join(sorted(known))}", setting="state")
    return PageState(**state)


def _summary(state: PageState, objectives: Sequence[str]) -> str:
    where = f" Currently on {state.page_title} page." if state.page_title else ""
    return f"Successfully completed {len(objectives)} objectives.{where}"


def state_of(artifacts: Sequence[Artifact]) -> PageState:
    """Return the page named by the latest tool output that names one."""
    state = PageState()
    # From the newest on: the page that was seen last is the current one.
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
    state, time = PageState(**data["state"]), datetime.fromisoformat(data["timestamp"])
    return Checkpoint(
        **{**data, "state": state, "timestamp": time, "completed_objectives": tuple(data["completed_objectives"])}
    )
