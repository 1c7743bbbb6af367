"""Compress messages: browser snapshots, console messages, long tool outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.config import CompressionLevel
from ctxguard.content.bounding import bound
from ctxguard.content.detection import detect
from ctxguard.content.processors.console import compress_console
from ctxguard.content.processors.snapshot import compress_snapshot
from ctxguard.content.views import FileType
from ctxguard.draft import Draft, Follower
from ctxguard.stages.each import EachFollower
from ctxguard.stages.followed import FollowedStage
from ctxguard.tokens import find_counter

if TYPE_CHECKING:
    from ctxguard.tokens import TokenCounter


class SnapshotCompressor:
    """Shorten browser snapshots: what lies deep goes, elements that can be acted on stay with their refs.

    Args:
        max_depth: levels shown.
        preserve_interactive: keep links, buttons, fields and the like at any depth.
    """

    def __init__(self, *, max_depth: int = 3, preserve_interactive: bool = True) -> None:
        self.max_depth = max_depth
        self.preserve_interactive = preserve_interactive

    def compress(self, text: str, *, max_depth: int | None = None, preserve_interactive: bool | None = None) -> str:
        """Return the snapshot shortened; settings given here override those of the compressor."""
        return compress_snapshot(
            text,
            max_depth=self.max_depth if max_depth is None else max_depth,
            preserve_interactive=self.preserve_interactive if preserve_interactive is None else preserve_interactive,
        )


class ConsoleMessageCompressor:
    """Group console messages by type with counts; errors stay word for word.

    Args:
        max_messages: distinct messages shown of each type, errors excepted.
    """

    def __init__(self, *, max_messages: int = 5) -> None:
        self.max_messages = max_messages

    def compress(self, text: str) -> str:
        """Return the messages grouped, or the text itself if that would be no shorter."""
        return compress_console(text, max_messages=self.max_messages)


@dataclass(frozen=True, slots=True)
class _Strength:
    """What a level does.

    Attributes:
        depth: levels of a snapshot; None leaves snapshots alone.
        messages: distinct console messages of a type; None leaves them alone.
        tool_tokens: tokens of any other tool output.
        agent_tokens: tokens of what the agent says; None leaves it alone.
    """

    depth: int | None
    messages: int | None
    tool_tokens: int
    agent_tokens: int | None


_STRENGTHS: Final = {
    CompressionLevel.LOW: _Strength(6, 10, 4_000, None),
    CompressionLevel.MEDIUM: _Strength(3, 5, 1_000, None),
    CompressionLevel.HIGH: _Strength(2, 3, 300, 500),
}


@dataclass(frozen=True, slots=True)
class _Recipe:
    """How a message is compressed: the same text by the same recipe always gives the same view.

    Attributes:
        strength: what the level does.
        is_agent: True for what the agent says, False for the output of a tool.
        hint: what the name of the tool says of the output.
        counter: counts tokens.
    """

    strength: _Strength
    is_agent: bool
    hint: FileType | None
    counter: TokenCounter

    def view(self, text: str) -> str:
        return self._compressed(text)

    def _compressed(self, text: str) -> str:
        count, strength = self.counter.count, self.strength
        if self.is_agent:
            return bound(text, strength.agent_tokens or 1, count=count).content
        file_type = detect(text)
        if FileType.SNAPSHOT in (file_type, self.hint):
            if strength.depth is not None:
                text = SnapshotCompressor(max_depth=strength.depth).compress(text)
            return bound(text, 4 * strength.tool_tokens, count=count, file_type=FileType.SNAPSHOT).content
        if FileType.CONSOLE in (file_type, self.hint):
            if strength.messages is None:
                return text
            return ConsoleMessageCompressor(max_messages=strength.messages).compress(text)
        return bound(text, strength.tool_tokens, count=count, file_type=file_type).content


class MessageCompressor(FollowedStage):
    """Compress the tool outputs of a history, and at level `high` what the agent said; user messages stay.

    It is a stage as well: call it with a draft. Each message is compressed on its own, so the same message always
    gives the same text, and tool results keep their calls.

    Args:
        level: `none`, `low`, `medium` or `high`.
        max_snapshot_depth: levels of a snapshot; None means by level (6, 3, 2).
        truncate_snapshots: False leaves snapshots at their full depth.
        summarize_console: False leaves console messages alone.
        counter: counts tokens outside of a draft, as for `ctxguard.tokens.find_counter`.
    """

    name = "MessageCompressor"

    def __init__(
        self,
        level: CompressionLevel | str = CompressionLevel.MEDIUM,
        *,
        max_snapshot_depth: int | None = None,
        truncate_snapshots: bool = True,
        summarize_console: bool = True,
        counter: str | TokenCounter | Callable[[str], int] = "auto",
    ) -> None:
        self.level = CompressionLevel(level)
        by_level = _STRENGTHS.get(self.level)
        self._strength = by_level and _Strength(
            (max_snapshot_depth or by_level.depth) if truncate_snapshots else None,
            by_level.messages if summarize_console else None,
            by_level.tool_tokens,
            by_level.agent_tokens,
        )
        self._counter = counter

    def begin(self, draft: Draft, /) -> Follower:
        """Return what compresses one conversation, each message when it is first seen."""
        reason = f"compressed at level {self.level}"
        return EachFollower(self._compressor(draft.counter.counter), action="bounded", reason=reason)

    def compress(self, artifacts: Sequence[Artifact]) -> list[Artifact]:
        """Return the artifacts with long ones compressed; the others are the same objects."""
        return list(map(self._compressor(self._own_counter), artifacts))

    @cached_property
    def _own_counter(self) -> TokenCounter:
        return find_counter(self._counter)

    def _compressor(self, counter: TokenCounter) -> Callable[[Artifact], Artifact]:
        """Return what compresses the messages of one history, in their order."""
        names: dict[str | None, str] = {}

        def compressed(artifact: Artifact) -> Artifact:
            names.update((call.id, call.name) for call in artifact.calls)  # ids may repeat: the latest call counts
            if self._strength is None:
                return artifact
            return _one(artifact, artifact.name or names.get(artifact.answers) or "", self._strength, counter)

        return compressed


def _one(artifact: Artifact, tool: str, strength: _Strength, counter: TokenCounter) -> Artifact:
    is_agent = artifact.kind is Kind.ASSISTANT and strength.agent_tokens is not None
    # What people say is never compressed: it is short, and every word may matter.
    if artifact.pinned or not (is_agent or artifact.kind is Kind.TOOL):
        return artifact
    recipe = _Recipe(strength, is_agent, None if is_agent else _hint(tool), counter)
    return artifact.edit(lambda slot, text: recipe.view(text) if slot == "content" else text)


def _hint(tool: str) -> FileType | None:
    """Return what the name of a tool says of its outputs."""
    name = tool.lower()
    # Browser tools name what they return; looking at the text could take a page about logs for a log.
    if "snapshot" in name:
        return FileType.SNAPSHOT
    return FileType.CONSOLE if "console" in name else None
