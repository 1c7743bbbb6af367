"""Start over from where a phase ended: the instructions, what was reached, and what came since."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft
from ctxguard.errors import ConfigError
from ctxguard.protection import Unit, units
from ctxguard.stages.selection import selected
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
_ENDINGS: Final = ("completed", "complete", "finished", "done", "succeeded")
_OPENING: Final = "Previous phases completed. Current state:"
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


class CheckpointManager:
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
        prefix = f"{self.session}/"
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
        """
        if not isinstance(state, PageState):
            state = PageState(**state)
        done = tuple(completed_objectives)
        summary = self._sized(_summary(state, done))
        checkpoint = Checkpoint(phase, self._clock(), state, done, summary, messages)
        record = json.dumps({**asdict(checkpoint), "timestamp": checkpoint.timestamp.isoformat()})
        with self._lock:
            self._store.put(NAMESPACE, f"{self.session}/{phase}", record.encode())
            self.current_phase = phase
            if messages:
                self._marks[phase] = messages
        return checkpoint

    def get_context_from_checkpoint(self, checkpoint: Checkpoint, original_instructions: str) -> list[Artifact]:
        """Return the smallest context to go on with: the instructions, and what was reached."""
        return [Artifact(Kind.USER, original_instructions), Artifact(Kind.ASSISTANT, self._text(checkpoint))]

    def _text(self, checkpoint: Checkpoint) -> str:
        text = (
            f"{_OPENING}\n\n"
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
        found = units(draft)
        reached = self._reached(draft, found)
        if not reached:
            return draft
        begin = max(reached.values()) + 1
        phase = max(reached, key=reached.__getitem__)
        state = state_of(draft.artifacts[: found[begin - 1].end])
        done = tuple(sorted(reached, key=reached.__getitem__))
        checkpoint = Checkpoint(phase, datetime.min.replace(tzinfo=UTC), state, done, _summary(state, done))
        result = self._from(draft, found, begin, draft.mask(self._text(checkpoint)))
        return replace(result, details={**result.details, self.name: {"reached": list(done)}})

    def _reached(self, draft: Draft, found: Sequence[Unit]) -> dict[str, int]:
        """Return the exchange in which each phase was first over, those of the open last exchange left out."""
        reached = self._named(found)
        for number, unit in enumerate(found[:-1]):
            for artifact in draft.artifacts[unit.start : unit.end]:
                if artifact.kind is Kind.USER:
                    continue
                for rule in self.phases:
                    if rule.name not in reached and rule.ends(artifact):
                        reached[rule.name] = number
        return reached

    def _named(self, found: Sequence[Unit]) -> dict[str, int]:
        """Return the exchanges that the caller's own checkpoints end with."""
        with self._lock:
            ends = {phase: sum(u.end <= messages for u in found) for phase, messages in self._marks.items()}
        return {phase: end - 1 for phase, end in ends.items() if 0 < end < len(found)}

    def _from(self, draft: Draft, found: Sequence[Unit], begin: int, text: str) -> Draft:
        own = {n for n, u in enumerate(found) if draft.artifacts[u.start].text.startswith(_OPENING)}

        def choose(end: int, spared: frozenset[int] = frozenset()) -> set[int]:
            return set(range(begin if end > begin else 0, end)) | {n for n in spared if n < end}

        reason = "before the last checkpoint"
        if selected(draft, found, lambda end: choose(end, frozenset(own)), 1, reason) is draft:
            return draft  # nothing but checkpoints would go: it began from there already
        cut = selected(draft, found, choose, 1, reason)
        kept = {id(a) for a in cut.artifacts}
        first = found[begin].start
        older = [a for a in draft.artifacts[:first] if id(a) in kept]
        checkpoint = Artifact(Kind.USER, text)
        return cut.revise(
            (*older, checkpoint, *cut.artifacts[len(older) :]), action="summarised", reason="what was reached by then"
        )


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
