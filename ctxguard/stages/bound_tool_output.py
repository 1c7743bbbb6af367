"""Shorten single tool outputs to a limit, by the one function that all stages use for it."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ctxguard.artifacts import Artifact, Kind, Part
from ctxguard.content.views import NO_LIMITS, Count, FileType, Limits
from ctxguard.draft import Ask, Draft, FollowedStage, Follower, StageResult
from ctxguard.errors import ConfigError
from ctxguard.settings import opened, whole_number
from ctxguard.stages.each import EachFollower

if TYPE_CHECKING:
    from ctxguard.config import TruncationConfig
    from ctxguard.stores import Store

NAMESPACE: Final = "tool-output"
"""Namespace of full outputs in a store."""
_BY: Final = "ctxguard"
_DIGEST: Final = 200
"""Tokens below which a view lists names: at that size, both quality judges prefer them to an excerpt."""


@dataclass(frozen=True, slots=True)
class ToolBounds:
    """Describe how the outputs of one tool are bounded.

    Attributes:
        max_tokens: tokens that a shortened output may have; None means the `share` of the stage.
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
    """Bound every tool output by a hard token limit, by its type, when it first appears.

    `StableWindow` bounds outputs by the tokens that the window has available. This stage is for limits of your own: a
    number of tokens, or settings for single tools. The limit depends on the output alone, so a view never changes
    later.

    Args:
        max_tokens: tokens that an output may have; None means the `share`.
        share: the largest share of the budget that one output may take.
        tools: settings by name of the tool: tokens; the name of a truncation preset (`sql_query`) or a
            `TruncationConfig`, whose preview limits hold; a `FileType`, where looking at the output would mislead; or
            `ToolBounds` for all of these.
        store: where full outputs are saved; markers then name a handle. None saves none.

    Raises:
        ConfigError: a limit or share is not a number or out of range, or there is no such preset.
    """

    name = "BoundToolOutput"

    def __init__(
        self,
        *,
        max_tokens: int | None = None,
        share: float = 0.5,
        tools: Mapping[str, int | str | FileType | TruncationConfig | ToolBounds] | None = None,
        store: Store | None = None,
    ) -> None:
        self.tools = _all_bounds(tools or {})
        self.max_tokens = _limit(max_tokens, "max_tokens")
        self.share = _share(share, "share")
        self.store = opened(store)

    def begin(self, draft: Draft, /) -> Follower:
        """Return the follower that bounds the outputs of one conversation as it grows."""
        return _Bounding(self, draft)

    def limit(self, bounds: ToolBounds, budget: int) -> int:
        """Return the tokens that an output may take.

        Args:
            bounds: the settings of its tool.
            budget: tokens of the whole context.
        """
        if bounds.max_tokens is not None:
            return bounds.max_tokens
        return max(1, int(self.share * budget)) if self.max_tokens is None else self.max_tokens


class _Bounding(EachFollower):
    """Bound the tool outputs of one conversation, each when it is first seen.

    Attributes:
        names: tools of the latest calls, by call id; results often lack the name of their tool.
        whole: bounded outputs that are not yet in the store, by the handle of their full text.
    """

    def __init__(self, stage: BoundToolOutput, draft: Draft) -> None:
        self._reasons: dict[int, str] = {}
        super().__init__(self._bounded, action="bounded", reason=self._reasons)
        self.stage = stage
        self.draft = draft
        self.names: dict[str | None, str] = {}
        self.whole: dict[str, Artifact] = {}

    def rewind(self, count: int) -> bool:
        """Forget all but the first `count` artifacts."""
        self.forget_after(count)
        calls = next((artifact.calls for artifact in reversed(self.changed) if artifact.calls), ())
        self.names = {call.id: call.name for call in calls}
        return True

    def result(self, draft: Draft) -> StageResult:
        """Return the draft with long outputs bounded; with a store, a generator that saves the full texts."""
        result = self.revised(draft)
        if self.stage.store is None or not self.whole or draft.dry:
            return result
        return self._keep(result, self.stage.store)

    def _keep(self, result: Draft, store: Store) -> Generator[Ask, object, Draft]:
        # Iterate over a copy of the keys: an entry is removed once it is stored, so a failed write is tried again.
        for handle in list(self.whole):
            yield Ask(store.put_new, (NAMESPACE, handle, self.whole[handle].text.encode("utf-8", "surrogatepass")))
            del self.whole[handle]
        return result

    def _bounded(self, artifact: Artifact) -> Artifact:
        if artifact.calls:
            self.names = {call.id: call.name for call in artifact.calls}
        if artifact.kind is not Kind.TOOL or artifact.pinned:
            return artifact
        draft, stage = self.draft, self.stage
        how = stage.tools.get(artifact.name or self.names.get(artifact.answers, ""), _ANY)
        limit = stage.limit(how, draft.budget)
        if draft.counter.artifact(artifact) <= max(limit, how.threshold):
            return artifact
        handle = handle_of(artifact.text) if stage.store else None
        view = bounded(artifact, limit, draft, handle=handle, how=how)
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

    preset = get_truncation_config(setting) if isinstance(setting, str) else setting
    if not isinstance(preset, TruncationConfig):
        raise ConfigError(
            f"{name} is a number of tokens, the name of a preset, a TruncationConfig, a FileType or ToolBounds, "
            f"not {setting!r}",
            setting="tools",
        )
    return ToolBounds(preset.max_preview_tokens, preset.threshold, limits=preset.limits())


def handle_of(text: str) -> str:
    """Return the handle under which a store saves the full text of an output."""
    from ctxguard.content import handle_of as handle_of_content

    return handle_of_content(text)


def bounded(
    artifact: Artifact,
    max_tokens: int,
    draft: Draft,
    *,
    at: Artifact | None = None,
    handle: str | None = None,
    how: ToolBounds = _ANY,
    digests: bool = False,
) -> Artifact:
    """Return an artifact shortened to `max_tokens`, framing included, as far as shortening its texts can achieve that.

    Media and signed parts stay as they are. The view is masked again, because shortening can join digits.

    Args:
        artifact: the artifact to be bounded.
        max_tokens: tokens it may take.
        draft: provides the counter and the maskers.
        at: the artifact whose arrival causes the view, see `Draft.mask`.
        handle: name under which the full text can be read back.
        how: the settings of its tool.
        digests: whether a view of less than 200 tokens lists the names in a text instead of an excerpt.
    """
    counter = draft.counter
    claimed = counter.artifact(artifact)
    if claimed <= max_tokens:
        return artifact
    # A caller's own count may differ from ours; the excess is converted into tokens of our counter.
    measured = counter.measured(artifact)
    excess = measured - max_tokens * measured // claimed
    if isinstance(artifact.content, str):
        room = counter.text(artifact.content) - excess
        return artifact.revised(
            content=bounded_text(artifact.content, room, draft, at=at, handle=handle, how=how, digests=digests)
        )
    parts: list[Part] = []
    for part in artifact.content:
        text = part.text
        # Signed text is refused when it is changed, and media cannot be shortened.
        if excess <= 0 or not text or not part.editable:
            parts.append(part)
            continue
        shown = bounded_text(text, counter.text(text) - excess, draft, at=at, handle=handle, how=how, digests=digests)
        excess -= counter.text(text) - counter.text(shown)
        parts.append(Part(part.kind, shown))
    return artifact if tuple(parts) == artifact.content else artifact.revised(content=tuple(parts))


def bounded_text(
    text: str,
    max_tokens: int,
    draft: Draft,
    *,
    at: Artifact | None = None,
    handle: str | None = None,
    how: ToolBounds = _ANY,
    digests: bool = False,
) -> str:
    """Return a masked view of a text within `max_tokens`, see `bounded`; empty if not even a marker fits."""
    count, limit = draft.counter.counter.count, max_tokens
    # Masking can make a view exceed its limit; then a smaller view is made, a few times at most.
    for attempt in range(1, 6):
        if limit < 1:
            return ""
        shown = draft.mask(_view(text, limit, count, handle, how, digests=digests), at=at)
        if draft.counter.text(shown) <= max_tokens:
            return shown
        limit = max_tokens - attempt * (max_tokens // 5 + 1)
    return ""


def _view(text: str, limit: int, count: Count, handle: str | None, how: ToolBounds, *, digests: bool) -> str:
    if digests and limit < _DIGEST:
        from ctxguard.content.digests import digest_view

        return digest_view(text, limit, count=count, file_type=how.file_type, handle=handle, by=_BY)
    from ctxguard.content import bound

    kind, limits = how.file_type, how.limits
    return bound(text, limit, count=count, file_type=kind, handle=handle, limits=limits, by=_BY).content
