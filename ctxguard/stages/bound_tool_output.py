"""Shorten tool outputs to a token limit: a stage for limits of your own, and the functions that other stages use."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ctxguard.artifacts import Artifact, Kind, Part
from ctxguard.draft import Ask, Draft, StageResult
from ctxguard.errors import ConfigError
from ctxguard.settings import opened, valid_share, whole_number
from ctxguard.stages.arrival import ChangedOnce
from ctxguard.views.views import NO_LIMITS, Count, FileType, Limits

if TYPE_CHECKING:
    from ctxguard.config import TruncationConfig
    from ctxguard.stores import Store

NAMESPACE: Final = "tool-output"
"""Namespace in a store for the full texts of shortened outputs."""
_BY: Final = "ctxguard"
_DIGEST: Final = 200
"""Views with fewer tokens than this list the names in a text instead of quoting an excerpt. In replays of recorded
sessions, names helped the next steps more than excerpts of that size."""


@dataclass(frozen=True, slots=True)
class ToolBounds:
    """Settings that limit the outputs of one tool.

    Attributes:
        max_tokens: Maximum number of tokens in a shortened output; None means the limit of the stage.
        threshold: Outputs of up to this number of tokens are not shortened, even if they exceed `max_tokens`.
        file_type: Type of the outputs; None means that the type is detected for each output.
        limits: Further limits for a shortened output (rows, columns, lines, depth).
    """

    max_tokens: int | None = None
    threshold: int = 0
    file_type: FileType | None = None
    limits: Limits = NO_LIMITS


_ANY: Final = ToolBounds()


class BoundToolOutput:
    """Shortens each tool output that exceeds a token limit, when it first appears in the history.

    A long output is replaced by a view, which is made according to the type of the output (such as JSON, log, or
    table). `StableWindow` already limits outputs by the tokens that are available in the window. This stage is for
    fixed limits: one number of tokens for all tools, or settings for each tool. A limit depends only on the output and
    the settings, so a view never changes later.

    Args:
        max_tokens: Maximum number of tokens in an output; None means `share`.
        share: Maximum share of the budget that one output may take.
        tools: Settings by name of the tool. A setting is a number of tokens; the name of a truncation preset (such as
            `"sql_query"`) or a `TruncationConfig`, whose preview limits apply; a `FileType`, if the type cannot be
            detected; or a `ToolBounds`, which combines all of these.
        store: Where the full texts of shortened outputs are saved; views then name handles by which a text can be read
            back. With None, they are not saved.

    Raises:
        ConfigError: If a limit or share is not a number or out of range, or a preset does not exist.
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
        self.tools = _parse_tools(tools or {})
        self.max_tokens = _require_limit(max_tokens, "max_tokens")
        self.share = valid_share(share, "share")
        self.store = opened(store)

    def __call__(self, draft: Draft, /) -> StageResult:
        """Return the draft with long outputs shortened; if full texts have to be saved, a generator that saves them."""
        return draft.memory.of(self, lambda: _Bounding(self, draft)).bounded(draft)

    def limit(self, bounds: ToolBounds, budget: int) -> int:
        """Return the maximum number of tokens that an output of a tool may have.

        Args:
            bounds: The settings of the tool.
            budget: Number of tokens in the budget, for a limit that is a share.
        """
        if bounds.max_tokens is not None:
            return bounds.max_tokens
        return max(1, int(self.share * budget)) if self.max_tokens is None else self.max_tokens


class _Bounding:
    """Shortens the outputs of one conversation as they arrive, for `BoundToolOutput`.

    Attributes:
        names: Names of the tools in the latest message with calls, by call id. Results often lack the name of the tool.
        whole: Artifacts with full outputs that are still to be stored, by handle.
    """

    def __init__(self, stage: BoundToolOutput, draft: Draft) -> None:
        self._reasons: dict[int, str] = {}
        self._outputs = ChangedOnce(self._bound, action="bounded", reason=self._reasons)
        self.stage = stage
        self.draft = draft
        self.names: dict[str | None, str] = {}
        self.whole: dict[str, Artifact] = {}

    def bounded(self, draft: Draft) -> StageResult:
        """Return the draft with long outputs shortened, see `BoundToolOutput`."""
        result = self._outputs.revised(draft)
        if self.stage.store is None or not self.whole or draft.dry:
            return result
        return self._store_texts(result, self.stage.store)

    def _store_texts(self, result: Draft, store: Store) -> Generator[Ask, object, Draft]:
        # An entry is removed only after its text was stored, so the next call repeats a failed write.
        for handle in list(self.whole):
            yield Ask(store.put_new, (NAMESPACE, handle, self.whole[handle].text.encode("utf-8", "surrogatepass")))
            del self.whole[handle]
        return result

    def _bound(self, artifact: Artifact) -> Artifact:
        if artifact.calls:
            self.draft.memory.set(self, "names", {call.id: call.name for call in artifact.calls})
        if artifact.kind is not Kind.TOOL or artifact.pinned:
            return artifact
        draft, stage = self.draft, self.stage
        how = stage.tools.get(artifact.name or self.names.get(artifact.answers, ""), _ANY)
        limit = stage.limit(how, draft.budget)
        if draft.counter.artifact(artifact) <= max(limit, how.threshold):
            return artifact
        handle = handle_of(artifact.text) if stage.store else None
        view = bound_artifact(artifact, limit, draft, handle=handle, how=how)
        if view is not artifact:
            self.draft.memory.put(self._reasons, id(artifact), f"over its limit of {limit} tokens")
            if handle is not None:
                self.whole[handle] = artifact
        return view


def _require_limit(limit: int | None, setting: str) -> int | None:
    return None if limit is None else whole_number(limit, setting, unit="tokens", least=1)


def _parse_tools(tools: object) -> dict[str, ToolBounds]:
    if not isinstance(tools, Mapping):
        raise ConfigError(
            f"tools is a dict of settings by tool, such as {{'search': 500}}, not {tools!r}", setting="tools"
        )
    found = {tool: _parse_bounds(setting, f"tools[{tool!r}]") for tool, setting in tools.items()}
    for tool, own in found.items():
        _require_limit(own.max_tokens, f"tools[{tool!r}]")
    return found


def _parse_bounds(setting: object, name: str) -> ToolBounds:
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
    """Return the handle of a text. A store saves the text under this key, and views of the text name it."""
    from ctxguard.content import handle_of as handle_of_content

    return handle_of_content(text)


def bound_artifact(
    artifact: Artifact,
    max_tokens: int,
    draft: Draft,
    *,
    at: Artifact | None = None,
    handle: str | None = None,
    how: ToolBounds = _ANY,
    digests: bool = False,
) -> Artifact:
    """Return an artifact with its texts replaced by views, so that it has at most `max_tokens` tokens.

    The result may have more tokens, because media and signed parts stay unchanged. Views are masked again, because
    shortening can create text that matches a rule, for example by joining digits.

    Args:
        artifact: The artifact.
        max_tokens: Maximum number of tokens, including those that a provider adds to each message.
        draft: Provides the counter and the maskers.
        at: The artifact whose arrival causes the shortening; names that were known then are masked, see `Draft.mask`.
        handle: Handle under which the full text is stored, so that the view names it; None if the text is not stored.
        how: The settings of the tool.
        digests: Whether views of fewer than 200 tokens list the names in a text instead of an excerpt.
    """
    counter = draft.counter
    claimed = counter.artifact(artifact)
    if claimed <= max_tokens:
        return artifact
    # A count that the caller gave may differ from ours, so the excess is converted into tokens of our counter.
    measured = counter.measured(artifact)
    excess = measured - max_tokens * measured // claimed
    if isinstance(artifact.content, str):
        available = counter.text(artifact.content) - excess
        return artifact.revised(
            content=bound_text(artifact.content, available, draft, at=at, handle=handle, how=how, digests=digests)
        )
    parts: list[Part] = []
    for part in artifact.content:
        text = part.text
        # Providers refuse signed text that was changed, and media cannot be shortened.
        if excess <= 0 or not text or not part.editable:
            parts.append(part)
            continue
        shown = bound_text(text, counter.text(text) - excess, draft, at=at, handle=handle, how=how, digests=digests)
        excess -= counter.text(text) - counter.text(shown)
        parts.append(Part(part.kind, shown))
    return artifact if tuple(parts) == artifact.content else artifact.revised(content=tuple(parts))


def bound_text(
    text: str,
    max_tokens: int,
    draft: Draft,
    *,
    at: Artifact | None = None,
    handle: str | None = None,
    how: ToolBounds = _ANY,
    digests: bool = False,
) -> str:
    """Return a masked view of a text in at most `max_tokens` tokens; an empty string if not even a short note fits.

    For the arguments, see `bound_artifact`.
    """
    count, limit = draft.counter.counter.count, max_tokens
    # If masking makes a view exceed its limit, a smaller view is made, at most five times in all.
    for attempt in range(1, 6):
        if limit < 1:
            return ""
        shown = draft.mask(_write_view(text, limit, count, handle, how, digests=digests), at=at)
        if draft.counter.text(shown) <= max_tokens:
            return shown
        limit = max_tokens - attempt * (max_tokens // 5 + 1)
    return ""


def _write_view(text: str, limit: int, count: Count, handle: str | None, how: ToolBounds, *, digests: bool) -> str:
    if digests and limit < _DIGEST:
        from ctxguard.views.digests import digest_view

        return digest_view(text, limit, count=count, file_type=how.file_type, handle=handle, by=_BY)
    from ctxguard.content import bound

    kind, limits = how.file_type, how.limits
    return bound(text, limit, count=count, file_type=kind, handle=handle, limits=limits, by=_BY).content
