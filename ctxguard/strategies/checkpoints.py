"""Checkpoints: a summary replaces the messages of completed phases, such as a login or a checkout."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from operator import attrgetter
from threading import Lock
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from ctxguard.artifacts import Artifact, Kind
from ctxguard.history import CHECKPOINT, write_record
from ctxguard.history.records import records_in
from ctxguard.settings import OfOneProcess, instance, listed, opened, settings_of, whole_number
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
"""The first line of a checkpoint's text."""
_COMPLETED: Final = re.compile(rf"\A{re.escape(REACHED)}\n\n(?:.*\n){{3}}Completed: (.+)")
"""Matches the text of a checkpoint; the group contains the names of the phases that it reports as completed."""
_NO_TIME: Final = datetime.min.replace(tzinfo=UTC)
"""The timestamp of checkpoints that the stage writes. Stages read no clock, and the text does not contain the time."""
_ENDINGS: Final = ("completed", "complete", "finished", "done", "succeeded")
"""Words that end a phase if they follow its name."""
_URL: Final = re.compile(r"^\W*(?:page )?url\W{0,4}(\S+)", re.IGNORECASE | re.MULTILINE)
_TITLE: Final = re.compile(r"^\W*(?:page )?title\W{0,4}(.+)$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PhaseRule:
    """A rule that recognizes the end of a phase by a tool output or an assistant message.

    Attributes:
        name: Name of the phase.
        ends: Function that takes an artifact and returns whether it ends the phase.
    """

    name: str
    ends: Callable[[Artifact], bool]


def phase_rules(names: Sequence[str]) -> tuple[PhaseRule, ...]:
    """Return a rule for each phase.

    A phase ends where an artifact says "<name> completed" or the like. For `login`, `cart`, and `checkout`, common
    phrases such as "added to cart" are recognized as well.
    """
    endings = {name: [f"{name.replace('_', ' ')} {ending}" for ending in _ENDINGS] for name in names}
    return tuple(PhaseRule(name, Mentions(*_PHRASES.get(name, ()), *endings[name])) for name in names)


@dataclass(frozen=True, slots=True)
class PageState:
    """The page that a browser shows.

    Attributes:
        url: Address of the page; empty if unknown.
        page_title: Title of the page; empty if unknown.
    """

    url: str = ""
    page_title: str = ""


BrowserState = PageState
"""The name of `PageState` in the requirements document of the context manager."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state reached at the end of a phase.

    Attributes:
        phase: Name of the phase.
        timestamp: Time at which the checkpoint was created, in UTC.
        state: The page that the browser showed at that time.
        completed_objectives: The objectives that were completed by then.
        summary: One or two sentences on the completed objectives, within the manager's `max_size`.
        messages: Number of messages of the history that the checkpoint replaces; 0 if the caller gave no number.
    """

    phase: str
    timestamp: datetime
    state: PageState
    completed_objectives: tuple[str, ...]
    summary: str
    messages: int = 0


@dataclass(frozen=True, slots=True)
class _PhaseNote:
    """What one exchange says about phases.

    Attributes:
        ended: Names of the phases that end with the exchange.
        named: Names of the phases that a checkpoint in the exchange reports as completed.
    """

    ended: tuple[str, ...]
    named: tuple[str, ...]


class CheckpointManager(OfOneProcess, Keep[_PhaseNote]):
    """Creates and stores checkpoints, and creates contexts from them.

    As a stage, it cuts the context where the last completed phase ended: one message replaces everything before this
    point, except for mandatory messages. The stage recognizes the ends of phases in the history, and by checkpoints
    that were created with `messages`. All other stored checkpoints are for programs that resume a task.

    Args:
        phases: Rules that recognize the ends of phases. None means `login`, `cart`, and `checkout`; an empty sequence
            means that only the caller creates checkpoints.
        max_size: Maximum number of tokens of a checkpoint's text.
        store: The store for checkpoints; None means the memory of this process.
        session: Name under which the checkpoints are stored.
        counter: The token counter, as for `ctxguard.tokens.find_counter`.
        clock: Function that returns the current time.

    Raises:
        ConfigError: If `max_size` is below 1.
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

        super().__init__(self._choose, self._note_on, name="CheckpointManager")
        self.phases = phase_rules(tuple(_PHRASES)) if phases is None else listed(phases, PhaseRule, "phases")
        self.max_size = whole_number(max_size, "max_checkpoint_size", unit="tokens", least=1)
        self.session = instance(session, str, "session")
        self.current_phase: str | None = None
        self._store: Store = MemoryStore() if store is None else opened(store)
        self._counter = ArtifactCounter(find_counter(counter))
        self._clock = clock
        self._lock = Lock()
        self._marks = {c.phase: c.messages for c in self.checkpoints.values() if c.messages}

    @property
    def checkpoints(self) -> dict[str, Checkpoint]:
        """The checkpoints of the session by phase, including those that an earlier process stored."""
        prefix = self._key("")
        with self._lock:
            keys = [key for key in self._store.keys(NAMESPACE) if key.startswith(prefix)]
            found = {key.removeprefix(prefix): self._store.get(NAMESPACE, key) for key in keys}
        return {phase: _load(record) for phase, record in found.items() if record}

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
            phase: Name of the phase. A second checkpoint of the same phase replaces the first.
            state: The page that the browser shows, as a `PageState` or a dict of its fields.
            completed_objectives: The objectives that have been completed.
            messages: Number of messages of the history that the checkpoint replaces: the contexts of this stage then
                begin after these messages. 0 means that it replaces none.

        Raises:
            ConfigError: If `state` is neither a `PageState` nor a dict of its fields.
        """
        state = settings_of(PageState, state) if isinstance(state, Mapping) else instance(state, PageState, "state")
        done = tuple(completed_objectives)
        summary = self._limit(_summary(state, done))
        checkpoint = Checkpoint(phase, self._clock(), state, done, summary, messages)
        record = json.dumps({**asdict(checkpoint), "timestamp": checkpoint.timestamp.isoformat()})
        # One lock for both, so that no other thread sees the checkpoint in the store without its mark.
        with self._lock:
            self._store.put(NAMESPACE, self._key(phase), record.encode())
            self.current_phase = phase
            if messages:
                self._marks[phase] = messages
        return checkpoint

    def get_context_from_checkpoint(self, checkpoint: Checkpoint, original_instructions: str) -> list[Artifact]:
        """Return a minimal context to continue from: the instructions as a user message, and the checkpoint's text."""
        return [Artifact(Kind.USER, original_instructions), Artifact(Kind.ASSISTANT, self._text(checkpoint))]

    def _key(self, phase: str) -> str:
        """Return the key of a phase's checkpoint in the store; the session is quoted, as it may contain slashes."""
        return f"{quote(self.session, safe='')}/{phase}"

    def _text(self, checkpoint: Checkpoint) -> str:
        text = (
            f"{REACHED}\n\n"
            f"Phase: {checkpoint.phase}\nURL: {checkpoint.state.url}\nPage: {checkpoint.state.page_title}\n"
            f"Completed: {', '.join(checkpoint.completed_objectives)}\n\n"
            f"{checkpoint.summary}\n\nContinuing with the next phase..."
        )
        return self._limit(text)

    def _limit(self, text: str) -> str:
        from ctxguard.compaction.transcript import head_and_tail  # imports pydantic, which stages do not need otherwise

        return head_and_tail(text, self.max_size, self._counter.text)

    def _note_on(self, past: Past[_PhaseNote], number: int) -> _PhaseNote:
        """Note the phases that end with an exchange, and those that a checkpoint in it reports as completed."""
        ended: list[str] = []
        named: list[str] = []
        for artifact in past.history.members(number):
            # Users never end a phase, but messages in the user role may contain checkpoints that stages wrote.
            if artifact.kind is Kind.USER:
                found = (names for record in records_in(artifact.text) for names in _COMPLETED.findall(record.body))
                named += (phase for names in found for phase in names.split(", "))
            else:
                ended += (rule.name for rule in self.phases if rule.ends(artifact))
        return _PhaseNote(tuple(ended), tuple(named))

    def _choose(self, past: Past[_PhaseNote], _end: int) -> Choice | None:
        """Choose the exchanges after the end of the last completed phase. A checkpoint replaces the others."""
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
        before = history.artifacts[: history.spans[point - 1].end]
        state = state_of(before)
        checkpoint = Checkpoint(phase, _NO_TIME, state, done, _summary(state, done))
        text, records = past.draft.mask(self._text(checkpoint), at=before[-1]), past.memory(dict)
        # The same object in every call, so that later stages can reuse what they computed for it.
        if text not in records:
            records.clear()
            records[text] = Artifact(Kind.USER, write_record(CHECKPOINT, text))
        return Choice((), point, "before the last checkpoint", record=records[text], details={"reached": list(done)})


def _summary(state: PageState, objectives: Sequence[str]) -> str:
    where = f" Currently on {state.page_title} page." if state.page_title else ""
    return f"Successfully completed {len(objectives)} objectives.{where}"


def state_of(artifacts: Sequence[Artifact]) -> PageState:
    """Return the latest address and the latest title that tool outputs contain."""
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


def _load(record: bytes) -> Checkpoint:
    data = json.loads(record)
    state, time = PageState(**data["state"]), datetime.fromisoformat(data["timestamp"])
    return Checkpoint(
        **{**data, "state": state, "timestamp": time, "completed_objectives": tuple(data["completed_objectives"])}
    )
