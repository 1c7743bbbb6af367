"""Compress messages: browser snapshots, console messages, long tool outputs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.config import CompressionLevel
from ctxguard.content.bounding import bound
from ctxguard.content.detection import detect
from ctxguard.content.processors.console import compress_console
from ctxguard.content.processors.snapshot import compress_snapshot
from ctxguard.content.views import Count, FileType
from ctxguard.draft import Draft, FollowedStage, Follower
from ctxguard.stages.each import EachFollower
from ctxguard.tokens import find_counter

if TYPE_CHECKING:
    from ctxguard.tokens import TokenCounter


class SnapshotCompressor:
    """Shorten browser snapshots: deep levels are dropped, interactive elements stay with their refs.

    Args:
        max_depth: Levels shown.
        preserve_interactive: Keep links, buttons, fields and other interactive elements at any depth.
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
        max_messages: Distinct messages shown of each type, errors excepted.
    """

    def __init__(self, *, max_messages: int = 5) -> None:
        self.max_messages = max_messages

    def compress(self, text: str) -> str:
        """Return the messages grouped, or the text itself if that would be no shorter."""
        return compress_console(text, max_messages=self.max_messages)


@dataclass(frozen=True, slots=True)
class _Strength:
    """The limits that a compression level stands for.

    Attributes:
        depth: Levels of a snapshot; None does not shorten snapshots.
        messages: Distinct console messages of a type; None does not shorten them.
        tool_tokens: Tokens of any other tool output.
        agent_tokens: Tokens of a message of the assistant.
    """

    depth: int | None
    messages: int | None
    tool_tokens: int
    agent_tokens: int


_STRENGTHS: Final = {
    CompressionLevel.LOW: _Strength(6, 10, 4_000, 4_000),
    CompressionLevel.MEDIUM: _Strength(3, 5, 1_000, 1_500),
    CompressionLevel.HIGH: _Strength(2, 3, 300, 500),
}


class Compressed(list[Artifact]):
    """A list of compressed artifacts that may also be awaited, for code that expects a coroutine."""

    def __await__(self) -> Generator[None, None, Compressed]:
        """Return the list itself, at once."""
        yield from ()
        return self


class MessageCompressor(FollowedStage):
    """Compress the tool outputs and assistant messages of a history; user messages stay.

    It is also a stage: call it with a draft. Each message is compressed on its own, so the same message always gives
    the same text, and tool results keep their calls.

    Args:
        level: `none`, `low`, `medium` or `high`.
        max_snapshot_depth: Levels of a snapshot; None means by level (6, 3, 2).
        truncate_snapshots: False keeps snapshots at their full depth.
        summarize_console: False does not group console messages.
        counter: Counts tokens outside of a draft, as for `ctxguard.tokens.find_counter`.

    Attributes:
        snapshot_compressor: Shortens snapshots as this level does.
        console_compressor: Groups console messages as this level does.
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
        strength = self._strength or _STRENGTHS[CompressionLevel.MEDIUM]
        self.snapshot_compressor = SnapshotCompressor(max_depth=strength.depth or 3)
        self.console_compressor = ConsoleMessageCompressor(max_messages=strength.messages or 5)

    def begin(self, draft: Draft, /) -> Follower:
        """Return the follower that compresses one conversation, each message when it first appears."""
        reason = f"compressed at level {self.level}"
        return EachFollower(self._compressor(draft.counter.counter), action="bounded", reason=reason)

    def compress(self, artifacts: Sequence[Artifact]) -> Compressed:
        """Return the artifacts with long ones compressed; the others are the same objects. May be awaited as well."""
        return Compressed(map(self._compressor(self._own_counter), artifacts))

    @cached_property
    def _own_counter(self) -> TokenCounter:
        return find_counter(self._counter)

    def _compressor(self, counter: TokenCounter) -> Callable[[Artifact], Artifact]:
        """Return the function that compresses the messages of one history, in their order."""
        names: dict[str | None, str] = {}

        def compress(artifact: Artifact) -> Artifact:
            names.update((call.id, call.name) for call in artifact.calls)  # ids may repeat: the latest call counts
            if self._strength is None:
                return artifact
            return _compress_one(artifact, artifact.name or names.get(artifact.answers) or "", self._strength, counter)

        return compress


def _compress_one(artifact: Artifact, tool: str, strength: _Strength, counter: TokenCounter) -> Artifact:
    is_agent = artifact.kind is Kind.ASSISTANT
    # User messages are never compressed: they are short, and every word may matter.
    if artifact.pinned or not (is_agent or artifact.kind is Kind.TOOL):
        return artifact
    hint = None if is_agent else _hint(tool)
    return artifact.edit(
        lambda slot, text: (
            _compress_text(text, strength, hint, counter.count, is_agent=is_agent) if slot == "content" else text
        )
    )


def _compress_text(text: str, strength: _Strength, hint: FileType | None, count: Count, *, is_agent: bool) -> str:
    """Return a text compressed; `hint` is the output type that the tool's name suggests."""
    if is_agent:
        return bound(text, strength.agent_tokens, count=count).content
    file_type = detect(text)
    if FileType.SNAPSHOT in (file_type, hint):
        if strength.depth is not None:
            text = compress_snapshot(text, max_depth=strength.depth)
        return bound(text, 4 * strength.tool_tokens, count=count, file_type=FileType.SNAPSHOT).content
    if FileType.CONSOLE in (file_type, hint):
        return text if strength.messages is None else compress_console(text, max_messages=strength.messages)
    return bound(text, strength.tool_tokens, count=count, file_type=file_type).content


def _hint(tool: str) -> FileType | None:
    """Return the output type that the name of a tool suggests."""
    name = tool.lower()
    # Browser tools are named after their output; by its text, a page about logs could be mistaken for a log.
    if "snapshot" in name:
        return FileType.SNAPSHOT
    return FileType.CONSOLE if "console" in name else None
