"""Compress messages: browser snapshots, console messages, long tool outputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.config import CompressionLevel
from ctxguard.content.bounding import bound
from ctxguard.content.detection import detect
from ctxguard.content.processors.consoles import compress_console
from ctxguard.content.processors.snapshots import compress_snapshot
from ctxguard.content.view_cache import ViewCache
from ctxguard.content.views import FileType
from ctxguard.tokens import find_counter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxguard.draft import Draft
    from ctxguard.tokens import TokenCounter

__all__ = ["CompressionLevel", "ConsoleMessageCompressor", "MessageCompressor", "SnapshotCompressor"]


class SnapshotCompressor:
    """Shorten browser snapshots: what lies deep goes, what can be acted on stays with its ref.

    Args:
        max_depth: levels shown.
        preserve_interactive: keep links, buttons, fields and the like at any depth.
    """

    def __init__(self, *, max_depth: int = 3, preserve_interactive: bool = True) -> None:
        self.max_depth = max_depth
        self.preserve_interactive = preserve_interactive

    def compress(self, text: str, *, max_depth: int | None = None, preserve_interactive: bool | None = None) -> str:
        """Return the snapshot shortened; the settings of one call come before those of the compressor."""
        return compress_snapshot(
            text,
            max_depth=self.max_depth if max_depth is None else max_depth,
            preserve_interactive=self.preserve_interactive if preserve_interactive is None else preserve_interactive,
        )


class ConsoleMessageCompressor:
    """Group console messages by type with counts; errors stay word for word.

    Args:
        max_messages: different messages of a type that are shown, errors not counted.
    """

    def __init__(self, *, max_messages: int = 5) -> None:
        self.max_messages = max_messages

    def compress(self, text: str) -> str:
        """Return the messages grouped, or the text itself where that is no shorter."""
        return compress_console(text, max_messages=self.max_messages)


@dataclass(frozen=True, slots=True)
class _Strength:
    """What a level does.

    Attributes:
        depth: levels of a snapshot.
        messages: different console messages of a type.
        tool_tokens: tokens of any other tool output.
        agent_tokens: tokens of what the agent says; None leaves it alone.
    """

    depth: int
    messages: int
    tool_tokens: int
    agent_tokens: int | None


_STRENGTHS: Final = {
    CompressionLevel.LOW: _Strength(6, 10, 4_000, None),
    CompressionLevel.MEDIUM: _Strength(3, 5, 1_000, None),
    CompressionLevel.HIGH: _Strength(2, 3, 300, 500),
}


@dataclass(frozen=True, slots=True)
class _Way:
    """How a message is compressed: the same text in the same way always gives the same view, made once.

    Attributes:
        strength: what the level does.
        depth: levels of a snapshot.
        is_agent: True for what the agent says, False for the output of a tool.
        hint: what the name of the tool says of the output.
        counter: counts tokens.
    """

    strength: _Strength
    depth: int
    is_agent: bool
    hint: FileType | None
    counter: TokenCounter

    def view(self, text: str) -> str:
        return _VIEWS.view(text, self, lambda: self._made(text))

    def _made(self, text: str) -> str:
        count, strength = self.counter.count, self.strength
        if self.is_agent:
            return bound(text, strength.agent_tokens or 1, count=count).content
        file_type = detect(text)
        if FileType.SNAPSHOT in (file_type, self.hint):
            text = SnapshotCompressor(max_depth=self.depth).compress(text)
            return bound(text, 4 * strength.tool_tokens, count=count, file_type=FileType.SNAPSHOT).content
        if FileType.CONSOLE in (file_type, self.hint):
            return ConsoleMessageCompressor(max_messages=strength.messages).compress(text)
        return bound(text, strength.tool_tokens, count=count, file_type=file_type).content


class MessageCompressor:
    """Compress the tool outputs of a history, and at level high what the agent said; user messages stay.

    It is a stage too: call it with a draft. Every message is compressed by itself, so the same message always gives
    the same text, and tool results keep their calls.

    Args:
        level: `none`, `low`, `medium` or `high`.
        max_snapshot_depth: levels of a snapshot; None means by level (6, 3, 2).
        counter: counts tokens where there is no draft, as for `ctxguard.tokens.find_counter`.
    """

    name = "MessageCompressor"

    def __init__(
        self,
        level: CompressionLevel | str = CompressionLevel.MEDIUM,
        *,
        max_snapshot_depth: int | None = None,
        counter: str | TokenCounter | Callable[[str], int] = "auto",
    ) -> None:
        self.level = CompressionLevel(level)
        self._strength = _STRENGTHS.get(self.level)
        self._depth = max_snapshot_depth
        self._counter = counter

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft with its long messages compressed."""
        artifacts = self._compressed(draft.artifacts, draft.counter.counter)
        return draft.revise(artifacts, action="bounded", reason=f"compressed at level {self.level}")

    def compress(self, artifacts: Sequence[Artifact]) -> list[Artifact]:
        """Return the artifacts with long ones compressed; those that stay as they are are the same objects."""
        return self._compressed(artifacts, self._own_counter)

    @cached_property
    def _own_counter(self) -> TokenCounter:
        return find_counter(self._counter)

    def _compressed(self, artifacts: Sequence[Artifact], counter: TokenCounter) -> list[Artifact]:
        if self._strength is None:
            return list(artifacts)
        names = {call.id: call.name for artifact in artifacts for call in artifact.calls}
        return [self._one(artifact, names.get(artifact.answers), self._strength, counter) for artifact in artifacts]

    def _one(self, artifact: Artifact, tool: str | None, strength: _Strength, counter: TokenCounter) -> Artifact:
        is_agent = artifact.kind is Kind.ASSISTANT and strength.agent_tokens is not None
        if artifact.pinned or not (is_agent or artifact.kind is Kind.TOOL):
            return artifact
        hint = None if is_agent else _named(artifact.name or tool or "")
        way = _Way(strength, strength.depth if self._depth is None else self._depth, is_agent, hint, counter)
        return artifact.edit(lambda slot, text: way.view(text) if slot == "content" else text)


_VIEWS: Final = ViewCache(16_000_000)
"""Compressed texts; they change speed, never results."""


def _named(tool: str) -> FileType | None:
    """Return what the name of a tool says of its outputs."""
    name = tool.lower()
    if "snapshot" in name:
        return FileType.SNAPSHOT
    return FileType.CONSOLE if "console" in name else None
