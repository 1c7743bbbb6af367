"""Make tool outputs fit when they are first seen."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ctxguard.artifacts import Artifact, Kind, Part
from ctxguard.content.view_cache import ViewCache
from ctxguard.content.views import NO_LIMITS, FileType, Limits
from ctxguard.draft import Draft
from ctxguard.drivers import Ask
from ctxguard.errors import ConfigError
from ctxguard.protection import AUTHORITY
from ctxguard.text_cache import TextCache

if TYPE_CHECKING:
    from ctxguard.config import TruncationConfig
    from ctxguard.stores import Store

__all__ = ["BoundToolOutput", "ToolBounds", "bounded", "bounded_text", "handle_of"]

FLOOR: Final = 64
"""Tokens that a tool output is left in any case: enough for a marker and a few lines."""
NAMESPACE: Final = "tool-output"
"""Where full outputs stand in a store."""


@dataclass(frozen=True, slots=True)
class ToolBounds:
    """Say how the outputs of one tool are bounded.

    Attributes:
        max_tokens: tokens that a shortened output may have; None means by the shares.
        threshold: tokens up to which an output stays whole, where that is more than `max_tokens`.
        file_type: what the outputs are; None means: look at each.
        limits: what else a shortened output may not exceed (rows, columns, lines, depth).
    """

    max_tokens: int | None = None
    threshold: int = 0
    file_type: FileType | None = None
    limits: Limits = NO_LIMITS


_ANY: Final = ToolBounds()


class BoundToolOutput:
    """Bound every tool output by a hard token limit, by its type, with a marker of what is missing.

    The limit of an output depends on itself and on what stands before it alone: `share` of the budget that system,
    task and the pins before it leave; outputs of parallel calls share `exchange_share` of it. So an output is
    bounded when it is first seen and never changed later.

    Args:
        max_tokens: a limit that holds beside the shares; None means none.
        share: most that one output may take of what the budget leaves.
        exchange_share: most that all outputs of one exchange may take of it together.
        tools: settings by name of the tool: tokens, in place of the shares; the name of a truncation preset
            (`sql_query`) or a `TruncationConfig`, whose preview limits hold in place of the shares; a `FileType`, where
            looking at the output would mislead; or `ToolBounds` for all of these.
        store: where full outputs go; markers then name a handle. None keeps none.

    Raises:
        ConfigError: a limit or share is out of range, or there is no such preset.
    """

    name = "BoundToolOutput"

    def __init__(
        self,
        *,
        max_tokens: int | None = None,
        share: float = 0.25,
        exchange_share: float = 0.5,
        tools: Mapping[str, int | str | FileType | TruncationConfig | ToolBounds] | None = None,
        store: Store | None = None,
    ) -> None:
        if not 0 < share <= 1 or not 0 < exchange_share <= 1:
            raise ConfigError("share and exchange_share must be above 0 and at most 1", setting="share")
        self.tools = {tool: _bounds(setting) for tool, setting in (tools or {}).items()}
        limits = [max_tokens, *(own.max_tokens for own in self.tools.values())]
        if any(limit is not None and limit < 1 for limit in limits):
            raise ConfigError("a limit must be 1 token or more", setting="max_tokens")
        self.max_tokens = max_tokens
        self.share = share
        self.exchange_share = exchange_share
        self.store = store
        self._stored: TextCache[bool] = TextCache(4_000_000)

    def __call__(self, draft: Draft, /) -> Draft | Generator[Ask, object, Draft]:
        """Return the new draft."""
        limits = self._limits(draft)
        if not limits:
            return draft
        full = {id(draft.artifacts[p]): handle_of(draft.artifacts[p].text) for p in limits} if self.store else {}
        artifacts = [
            bounded(a, limits[p][0], draft, handle=full.get(id(a)), how=limits[p][1]) if p in limits else a
            for p, a in enumerate(draft.artifacts)
        ]
        reasons = {id(draft.artifacts[p]): f"over its limit of {limit} tokens" for p, (limit, _) in limits.items()}
        result = draft.revise(artifacts, action="bounded", reason=reasons)
        if self.store is None or result is draft or draft.dry:
            return result
        return self._keep(draft, result, full, self.store)

    def _limits(self, draft: Draft) -> dict[int, tuple[int, ToolBounds]]:
        """Return the limits of the outputs that exceed theirs, and how they are bounded, by position."""
        count = draft.counter.artifact
        fixed = draft.overhead + sum(count(a) for a in draft.artifacts if a.kind in AUTHORITY)
        if not self.tools and not self._any_over(draft, fixed):
            return {}
        limits: dict[int, tuple[int, ToolBounds]] = {}
        names: dict[str | None, str] = {}
        remaining, waiting = 0.0, 0
        for position, artifact in enumerate(draft.artifacts):
            if artifact.kind is not Kind.TOOL:
                if artifact.pinned and artifact.kind not in AUTHORITY:
                    fixed += count(artifact)
                if artifact.calls:
                    names = {call.id: call.name for call in artifact.calls}
                    waiting = len(artifact.calls)
                    remaining = self.exchange_share * max(draft.budget - fixed, 0)
                continue
            how = self.tools.get(artifact.name or names.get(artifact.answers, ""), _ANY)
            limit = self._limit(how, draft.budget - fixed, remaining / max(waiting, 1))
            tokens = count(artifact)
            if tokens > max(limit, how.threshold) and not artifact.pinned:
                limits[position] = limit, how
            remaining -= min(tokens, limit)
            waiting -= 1
        return limits

    def _any_over(self, draft: Draft, fixed: int) -> bool:
        """Tell whether any output can be over its limit, by the least that any of them is given."""
        pins = sum(draft.counter.artifact(a) for a in draft.artifacts if a.pinned)
        room = draft.budget - fixed - pins
        widest = max((len(a.calls) for a in draft.artifacts if a.calls), default=1)
        least = max(FLOOR, int(min(self.share, self.exchange_share / widest) * room))
        least = least if self.max_tokens is None else min(least, self.max_tokens)
        count = draft.counter.artifact
        return any(a.kind is Kind.TOOL and count(a) > least for a in draft.artifacts)

    def _limit(self, how: ToolBounds, room: int, allowance: float) -> int:
        if how.max_tokens is not None:
            return how.max_tokens
        limit = max(FLOOR, int(min(self.share * room, max(allowance, 0))))
        return limit if self.max_tokens is None else min(limit, self.max_tokens)

    def _keep(
        self, before: Draft, after: Draft, full: Mapping[int, str], store: Store
    ) -> Generator[Ask, object, Draft]:
        for was, now in zip(before.artifacts, after.artifacts, strict=True):
            handle = full.get(id(was))
            if was is not now and handle is not None and not self._stored.get(handle):
                yield Ask(store.put_new, (NAMESPACE, handle, was.text.encode("utf-8", "surrogatepass")))
                self._stored.put(handle, value=True)
        return after


def _bounds(setting: int | str | FileType | TruncationConfig | ToolBounds) -> ToolBounds:
    if isinstance(setting, ToolBounds):
        return setting
    if isinstance(setting, int):
        return ToolBounds(max_tokens=setting)
    if isinstance(setting, FileType):
        return ToolBounds(file_type=setting)
    from ctxguard.config import get_truncation_config
    from ctxguard.content.results import preview_limits

    preset = get_truncation_config(setting) if isinstance(setting, str) else setting
    return ToolBounds(preset.max_preview_tokens, preset.threshold, limits=preview_limits(preset))


def handle_of(text: str) -> str:
    """Return the handle under which the full text of an output stands in a store."""
    from ctxguard.content import handle_of as handle_of_bytes

    return handle_of_bytes(text.encode("utf-8", "surrogatepass"))


_VIEWS: Final = ViewCache(32_000_000)
"""Bounded views by text; they change speed, never results."""


def bounded(
    artifact: Artifact, max_tokens: int, draft: Draft, *, handle: str | None = None, how: ToolBounds = _ANY
) -> Artifact:
    """Return an artifact that takes at most `max_tokens`, framing included, as far as its texts can give.

    Media and signed parts stay as they are. What is shown is masked again: a cut can bring digits together.
    """
    counter = draft.counter
    claimed = counter.artifact(artifact)
    if claimed <= max_tokens:
        return artifact
    key = (bounded, max_tokens, handle, how, counter.counter, draft.masks)
    known = artifact.memo.get(key)
    if known is None:
        known = _bounded(artifact, max_tokens, claimed, draft, handle, how)
        artifact.memo.keep(key, known)
    return known  # type: ignore[return-value]  # only bounded copies stand under such a key


def _bounded(
    artifact: Artifact, max_tokens: int, claimed: int, draft: Draft, handle: str | None, how: ToolBounds
) -> Artifact:
    counter = draft.counter
    measured = counter.measured(artifact)
    excess = measured - max_tokens * measured // claimed
    if isinstance(artifact.content, str):
        room = counter.text(artifact.content) - excess
        return artifact.revised(content=bounded_text(artifact.content, room, draft, handle=handle, how=how))
    parts: list[Part] = []
    for part in artifact.content:
        text = part.text
        if excess <= 0 or not text or not part.editable:
            parts.append(part)
            continue
        shown = bounded_text(text, counter.text(text) - excess, draft, handle=handle, how=how)
        excess -= counter.text(text) - counter.text(shown)
        parts.append(Part(part.kind, shown))
    return artifact.revised(content=tuple(parts))


def bounded_text(text: str, max_tokens: int, draft: Draft, *, handle: str | None = None, how: ToolBounds = _ANY) -> str:
    """Return a masked view of a text within `max_tokens`; an empty text where not even a marker fits."""
    if max_tokens < 1:
        return ""
    counter = draft.counter
    way = (max_tokens, handle, how, counter.counter)
    view = _VIEWS.view(text, way, lambda: _view(text, max_tokens, draft, handle, how))
    for attempt in range(1, 5):
        shown = draft.mask(view)
        if counter.text(shown) <= max_tokens:
            return shown
        view = _view(text, max(1, max_tokens - attempt * (max_tokens // 5 + 1)), draft, handle, how)
    return ""


def _view(text: str, max_tokens: int, draft: Draft, handle: str | None, how: ToolBounds) -> str:
    from ctxguard.content import bound

    count = draft.counter.counter.count
    view = bound(text, max_tokens, count=count, file_type=how.file_type, handle=handle, limits=how.limits)
    return view.content
