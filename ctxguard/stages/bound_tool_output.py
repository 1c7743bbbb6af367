"""Make tool outputs fit when they are first seen."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ctxguard.artifacts import Artifact, Kind, Part
from ctxguard.content.views import NO_LIMITS, FileType, Limits
from ctxguard.draft import Ask, Draft, Follower, StageResult
from ctxguard.errors import ConfigError
from ctxguard.history import AUTHORITY, is_synthetic, task_in
from ctxguard.settings import opened, whole_number
from ctxguard.stages.each import EachFollower
from ctxguard.stages.followed import FollowedStage

if TYPE_CHECKING:
    from ctxguard.config import TruncationConfig
    from ctxguard.stores import Store

FLOOR: Final = 64
"""Tokens that a tool output is left in any case: enough for a marker and a few lines."""
_ROOMY: Final = 0.5
"""Share of the budget up to which a history has room for whole outputs."""
MOST_FLOOR: Final = 128
"""The same where there is room: below it a view says next to nothing."""
NAMESPACE: Final = "tool-output"
"""Where full outputs stand in a store."""


@dataclass(frozen=True, slots=True)
class ToolBounds:
    """Describe how the outputs of one tool are bounded.

    Attributes:
        max_tokens: tokens that a shortened output may have; None means by the shares.
        threshold: tokens up to which an output stays whole, where that is more than `max_tokens`.
        file_type: type of the outputs; None means that it is detected for each.
        limits: what else a shortened output may not exceed (rows, columns, lines, depth).
    """

    max_tokens: int | None = None
    threshold: int = 0
    file_type: FileType | None = None
    limits: Limits = NO_LIMITS


_ANY: Final = ToolBounds()


class BoundToolOutput(FollowedStage):
    """Bound every tool output by a hard token limit, by its type, with a marker of what is missing.

    The limit of an output depends on itself and on what stands before it alone: `share` of the room, which is what
    system, task, pins and the last user message before it leave of the budget; outputs of parallel calls share
    `exchange_share` of it. So an output is bounded when it is first seen and never changed later. Once the history,
    this output included, takes more than half of the budget, both shares are multiplied by `pressed`: outputs that fill
    half of a window make nearly every step cut. Half of a view is the output by its type, the other half names what
    that leaves out.

    Args:
        max_tokens: a limit that holds beside the shares; None means none.
        share: most that one output may take of what the budget leaves.
        exchange_share: most that all outputs of one exchange may take of it together.
        pressed: factor on both where the history takes more than half of the budget, this output counted as the shares
            alone would bound it.
        tools: settings by name of the tool: tokens, in place of the shares; the name of a truncation preset
            (`sql_query`) or a `TruncationConfig`, whose preview limits hold in place of the shares; a `FileType`, where
            looking at the output would mislead; or `ToolBounds` for all of these.
        store: where full outputs go; markers then name a handle. None keeps none.

    Raises:
        ConfigError: a limit or share is not a number or out of range, or there is no such preset.
    """

    name = "BoundToolOutput"

    def __init__(
        self,
        *,
        max_tokens: int | None = None,
        share: float = 0.25,
        exchange_share: float = 0.5,
        pressed: float = 0.3,
        tools: Mapping[str, int | str | FileType | TruncationConfig | ToolBounds] | None = None,
        store: Store | None = None,
    ) -> None:
        self.tools = _all_bounds(tools or {})
        self.max_tokens = _limit(max_tokens, "max_tokens")
        self.share = _share(share, "share")
        self.exchange_share = _share(exchange_share, "exchange_share")
        self.pressed = _share(pressed, "pressed")
        self.store = opened(store)

    def begin(self, draft: Draft, /) -> Follower:
        """Return what bounds the outputs of one conversation as it grows."""
        return _Bounding(self, draft)

    def limit(self, bounds: ToolBounds, room: int, allowance: float, *, is_pressed: bool) -> int:
        """Return the tokens that an output may take.

        Args:
            bounds: the settings of its tool.
            room: tokens that system, task, pins and the last user message before it leave of the budget.
            allowance: tokens that its exchange still has for it.
            is_pressed: whether the history takes more than half of the budget.
        """
        if bounds.max_tokens is not None:
            return bounds.max_tokens
        floor = max(FLOOR, min(MOST_FLOOR, room // 8, int(allowance)))
        # Under pressure the shares shrink: full-sized outputs would make nearly every step a cut.
        factor = self.pressed if is_pressed else 1.0
        limit = max(floor, int(factor * min(self.share * room, max(allowance, 0))))
        return limit if self.max_tokens is None else min(limit, self.max_tokens)


class _Bounding(EachFollower):
    """Bound the tool outputs of one conversation, each when it is first seen.

    Attributes:
        fixed: tokens that outputs must leave: overhead, authority, pins and the task so far.
        asked: tokens of the last user message, where it is not the task.
        total: tokens of the history so far.
        names: tools of the latest calls, by id of the call.
        waiting: how many of their results are still to come.
        remaining: tokens that these may take together.
        whole: bounded outputs that are not in the store yet, by the handle of their full text.
    """

    def __init__(self, stage: BoundToolOutput, draft: Draft) -> None:
        self._reasons: dict[int, str] = {}
        super().__init__(self._bounded, action="bounded", reason=self._reasons)
        self.stage = stage
        self.draft = draft
        self.fixed = draft.overhead
        self.asked = 0
        self.total = draft.overhead
        self._is_first = True
        # Results often lack the name of their tool; the call before them has it.
        self.names: dict[str | None, str] = {}
        self.waiting = 0
        self.remaining = 0.0
        self.whole: dict[str, Artifact] = {}

    def result(self, draft: Draft) -> StageResult:
        """Return the draft with long outputs bounded; where there is a store, a generator that keeps them whole."""
        result = self.revised(draft)
        if self.stage.store is None or not self.whole or draft.dry:
            return result
        return self._keep(result, self.stage.store)

    def _keep(self, result: Draft, store: Store) -> Generator[Ask, object, Draft]:
        # A copy of the keys: an entry goes as soon as it is stored, so that a failed write is tried again.
        for handle in list(self.whole):
            yield Ask(store.put_new, (NAMESPACE, handle, self.whole[handle].text.encode("utf-8", "surrogatepass")))
            del self.whole[handle]
        return result

    def _bounded(self, artifact: Artifact) -> Artifact:
        """Return the next artifact, bounded if it must be, and note its effect on later limits."""
        result = self._bounded_output(artifact) if artifact.kind is Kind.TOOL else self._noted(artifact)
        self.total += self._count(result)
        return result

    def _noted(self, artifact: Artifact) -> Artifact:
        if artifact.kind in AUTHORITY or (artifact.pinned and not is_synthetic(artifact)):
            self.fixed += self.draft.counter.artifact(artifact)
        elif artifact.kind is Kind.USER:
            self._note_user(artifact)
        if artifact.calls:
            self.names = {call.id: call.name for call in artifact.calls}
            self.waiting = len(artifact.calls)
            # Parallel results share one allowance: each of them alone would fit, all of them together would not.
            self.remaining = self.stage.exchange_share * self.room
        return artifact

    @property
    def room(self) -> int:
        """Tokens that system, task, pins and the last user message leave of the budget."""
        return max(0, self.draft.budget - self.fixed - self.asked)

    def _note_user(self, artifact: Artifact) -> None:
        is_task = self._is_first and self.draft.keep_task and task_in([artifact], self.draft.budget, self._count)
        self._is_first = False
        if is_task:
            self.fixed += self._count(artifact)
        # What stages wrote in the user's role can leave the window again; only a real question takes its room for good.
        elif not is_synthetic(artifact):
            self.asked = self._count(artifact)

    def _count(self, artifact: Artifact) -> int:
        return self.draft.counter.artifact(artifact)

    def _bounded_output(self, artifact: Artifact) -> Artifact:
        draft = self.draft
        how = self.stage.tools.get(artifact.name or self.names.get(artifact.answers, ""), _ANY)
        tokens, allowance = self._count(artifact), self.remaining / max(self.waiting, 1)
        limit = self.stage.limit(how, self.room, allowance, is_pressed=False)
        # Judged with the output as the plain shares would bound it, so that the answer never depends on later ones.
        is_pressed = self.total + min(tokens, limit) > _ROOMY * draft.budget
        if is_pressed:
            limit = self.stage.limit(how, self.room, allowance, is_pressed=True)
        # What is remaining is multiplied by `pressed` for each output, so what they take is divided by it.
        self.remaining -= min(tokens, limit) / (self.stage.pressed if is_pressed else 1.0)
        self.waiting -= 1
        if artifact.pinned or tokens <= max(limit, how.threshold):
            return artifact
        handle = handle_of(artifact.text) if self.stage.store else None
        is_telling = how.max_tokens is None and self.stage.max_tokens is None
        view = bounded(artifact, limit, draft, handle=handle, how=how, is_telling=is_telling)
        if view is not artifact:
            self._reasons[id(artifact)] = f"over its limit of {limit} tokens"
            if handle is not None:
                self.whole[handle] = artifact
        return view


def _limit(limit: int | None, setting: str) -> int | None:
    return None if limit is None else whole_number(limit, setting, unit="tokens", least=1)


def _share(share: object, setting: str) -> float:
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
        raise ConfigError(f"{setting} must be above 0 and at most 1, not {share!r}", setting=setting)
    return share


def _all_bounds(tools: object) -> dict[str, ToolBounds]:
    if not isinstance(tools, Mapping):
        raise ConfigError(
            f"tools is a dict of settings by tool, such as {{'search': 500}}, not {tools!r}", setting="tools"
        )
    found = {tool: _bounds(setting, f"tools[{tool!r}]") for tool, setting in tools.items()}
    for tool, own in found.items():
        _limit(own.max_tokens, f"tools[{tool!r}]")
    return found


def _bounds(setting: object, name: str) -> ToolBounds:
    if isinstance(setting, ToolBounds):
        return setting
    if isinstance(setting, int):
        return ToolBounds(max_tokens=setting)
    if isinstance(setting, FileType):
        return ToolBounds(file_type=setting)
    from ctxguard.config import TruncationConfig, get_truncation_config
    from ctxguard.files.results import preview_limits

    preset = get_truncation_config(setting) if isinstance(setting, str) else setting
    if not isinstance(preset, TruncationConfig):
        raise ConfigError(
            f"{name} is a number of tokens, the name of a preset, a TruncationConfig, a FileType or ToolBounds, "
            f"not {setting!r}",
            setting="tools",
        )
    return ToolBounds(preset.max_preview_tokens, preset.threshold, limits=preview_limits(preset))


def handle_of(text: str) -> str:
    """Return the handle under which the full text of an output stands in a store."""
    from ctxguard.content import handle_of as handle_of_content

    return handle_of_content(text)


def bounded(
    artifact: Artifact,
    max_tokens: int,
    draft: Draft,
    *,
    handle: str | None = None,
    how: ToolBounds = _ANY,
    is_telling: bool = False,
) -> Artifact:
    """Return an artifact that takes at most `max_tokens`, framing included, as far as its texts can give.

    Media and signed parts stay as they are. What is shown is masked again: a cut can bring digits together.

    Args:
        artifact: what is to be bounded.
        max_tokens: tokens it may take.
        draft: its counter counts, its maskers mask.
        handle: name under which the whole can be read back.
        how: the settings of its tool.
        is_telling: whether half of a view names what the other half does not show.
    """
    counter = draft.counter
    claimed = counter.artifact(artifact)
    if claimed <= max_tokens:
        return artifact
    # A caller's own count may differ from ours; the excess is converted into what our counter measures.
    measured = counter.measured(artifact)
    excess = measured - max_tokens * measured // claimed
    if isinstance(artifact.content, str):
        room = counter.text(artifact.content) - excess
        return artifact.revised(
            content=bounded_text(artifact.content, room, draft, handle=handle, how=how, is_telling=is_telling)
        )
    parts: list[Part] = []
    for part in artifact.content:
        text = part.text
        # Signed text is refused when it is changed, and media cannot be shortened.
        if excess <= 0 or not text or not part.editable:
            parts.append(part)
            continue
        shown = bounded_text(text, counter.text(text) - excess, draft, handle=handle, how=how, is_telling=is_telling)
        excess -= counter.text(text) - counter.text(shown)
        parts.append(Part(part.kind, shown))
    return artifact if tuple(parts) == artifact.content else artifact.revised(content=tuple(parts))


def bounded_text(
    text: str,
    max_tokens: int,
    draft: Draft,
    *,
    handle: str | None = None,
    how: ToolBounds = _ANY,
    is_telling: bool = False,
) -> str:
    """Return a masked view of a text within `max_tokens`, see `bounded`; empty where not even a marker fits."""
    if max_tokens < 1:
        return ""
    counter = draft.counter
    make = _telling_view if is_telling else _view
    view = make(text, max_tokens, draft, handle, how)
    # Masking can make a view longer than its limit; a smaller view is made then, a few times at most.
    for attempt in range(1, 5):
        shown = draft.mask(view)
        if counter.text(shown) <= max_tokens:
            return shown
        view = make(text, max(1, max_tokens - attempt * (max_tokens // 5 + 1)), draft, handle, how)
    return ""


def _view(text: str, max_tokens: int, draft: Draft, handle: str | None, how: ToolBounds) -> str:
    from ctxguard.content import bound

    count = draft.counter.counter.count
    view = bound(text, max_tokens, count=count, file_type=how.file_type, handle=handle, limits=how.limits)
    return view.content


def _telling_view(text: str, max_tokens: int, draft: Draft, handle: str | None, how: ToolBounds) -> str:
    from ctxguard.content.digests import telling_view

    count = draft.counter.counter.count
    return telling_view(text, max_tokens, count=count, file_type=how.file_type, handle=handle, limits=how.limits)
