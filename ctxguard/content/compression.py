"""Compress messages: browser snapshots, console messages, long tool outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.config import CompressionLevel
from ctxguard.content.bounding import bound
from ctxguard.content.detection import detect
from ctxguard.content.processors.consoles import compress_console
from ctxguard.content.processors.snapshots import compress_snapshot
from ctxguard.content.views import Count, FileType
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
        artifacts = self._compressed(draft.artifacts, draft.counter.counter.count)
        return draft.revise(artifacts, action="bounded", reason=f"compressed at level {self.level}")

    def compress(self, artifacts: Sequence[Artifact]) -> list[Artifact]:
        """Return the artifacts with long ones compressed; those that stay as they are are the same objects."""
        return self._compressed(artifacts, find_counter(self._counter).count)

    def _compressed(self, artifacts: Sequence[Artifact], count: Count) -> list[Artifact]:
        if self._strength is None:
            return list(artifacts)
        names = {call.id: call.name for artifact in artifacts for call in artifact.calls}
        return [self._one(artifact, names.get(artifact.answers), self._strength, count) for artifact in artifacts]

    def _one(self, artifact: Artifact, tool: str | None, strength: _Strength, count: Count) -> Artifact:
        if artifact.pinned:
            return artifact
        if artifact.kind is Kind.TOOL:
            name = (artifact.name or tool or "").lower()
            return artifact.edit(
                lambda slot, text: self._tool(text, name, strength, count) if slot == "content" else text
            )
        limit = strength.agent_tokens
        if artifact.kind is Kind.ASSISTANT and limit is not None:
            return artifact.edit(
                lambda slot, text: bound(text, limit, count=count).content if slot == "content" else text
            )
        return artifact

    def _tool(self, text: str, name: str, strength: _Strength, count: Count) -> str:
        file_type = detect(text)
        if file_type is FileType.SNAPSHOT or "snapshot" in name:
            depth = strength.depth if self._depth is None else self._depth
            text = SnapshotCompressor(max_depth=depth).compress(text)
            return bound(text, 4 * strength.tool_tokens, count=count, file_type=FileType.SNAPSHOT).content
        if file_type is FileType.CONSOLE or "console" in name:
            return ConsoleMessageCompressor(max_messages=strength.messages).compress(text)
        return bound(text, strength.tool_tokens, count=count, file_type=file_type).content
