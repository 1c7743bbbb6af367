"""Compress browser snapshots, console messages, and other long tool outputs and assistant messages."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.config import CompressionLevel
from ctxguard.draft import Draft
from ctxguard.history import Memory
from ctxguard.history.pairing import require_artifacts
from ctxguard.settings import one_of
from ctxguard.stages.arrival import ChangedOnce
from ctxguard.tokens import find_counter
from ctxguard.views.bounding import bound
from ctxguard.views.detection import detect
from ctxguard.views.processors.html_text import compress_snapshot
from ctxguard.views.processors.log import compress_console
from ctxguard.views.views import Count, FileType

if TYPE_CHECKING:
    from ctxguard.tokens import TokenCounter


class SnapshotCompressor:
    """Shortens browser snapshots (accessibility trees) by dropping deep levels.

    Args:
        max_depth: Number of levels that are kept.
        preserve_interactive: Whether to keep interactive elements (such as links, buttons, and fields) at any depth,
            with the refs by which an agent addresses them.
    """

    def __init__(self, *, max_depth: int = 3, preserve_interactive: bool = True) -> None:
        self.max_depth = max_depth
        self.preserve_interactive = preserve_interactive

    def compress(self, text: str, *, max_depth: int | None = None, preserve_interactive: bool | None = None) -> str:
        """Return a shortened snapshot. Each argument overrides a setting of the compressor; None keeps the setting."""
        return compress_snapshot(
            text,
            max_depth=self.max_depth if max_depth is None else max_depth,
            preserve_interactive=self.preserve_interactive if preserve_interactive is None else preserve_interactive,
        )


class ConsoleMessageCompressor:
    """Groups console messages by type and counts repetitions. Errors are kept verbatim.

    Args:
        max_messages: Maximum number of distinct messages of each type that are kept. Errors are not limited.
    """

    def __init__(self, *, max_messages: int = 5) -> None:
        self.max_messages = max_messages

    def compress(self, text: str) -> str:
        """Return the grouped console messages, or `text` itself if the result would not be shorter."""
        return compress_console(text, max_messages=self.max_messages)


@dataclass(frozen=True, slots=True)
class _Strength:
    """The limits of a compression level.

    Attributes:
        depth: Number of levels of a snapshot that are kept; None keeps all.
        messages: Maximum number of distinct console messages of each type; None keeps all.
        tool_tokens: Maximum number of tokens in any other tool output; snapshots may have four times as many.
        agent_tokens: Maximum number of tokens in an assistant message.
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
    """A list of compressed artifacts, which can also be awaited by code that expects a coroutine."""

    def __await__(self) -> Generator[None, None, Compressed]:
        """Return the list itself without waiting."""
        yield from ()
        return self


class MessageCompressor:
    """Compresses tool outputs and assistant messages. User messages and pinned messages stay unchanged.

    Use it as a stage of a chain, or call `compress` with a list of artifacts. Each message is compressed on its own, so
    the result for a message does not change as the history grows.

    Args:
        level: How much to compress: `none`, `low`, `medium`, or `high`.
        max_snapshot_depth: Number of levels of a browser snapshot that are kept; None means the default of the level
            (6 for `low`, 3 for `medium`, 2 for `high`).
        truncate_snapshots: Whether to drop deep levels of snapshots.
        summarize_console: Whether to group console messages.
        counter: Counts tokens in `compress`, see `ctxguard.tokens.find_counter`. As a stage, the counter of the draft
            is used.

    Attributes:
        snapshot_compressor: A compressor of snapshots with the settings of this level.
        console_compressor: A compressor of console messages with the settings of this level.
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
        self.level = CompressionLevel(one_of(level, CompressionLevel, "level"))
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

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft with each message compressed as it was when it first appeared."""
        return draft.memory.of(self, lambda: self._changes(draft)).revised(draft)

    def _changes(self, draft: Draft) -> ChangedOnce:
        compress = self._compressor(draft.counter.counter, draft.memory)
        return ChangedOnce(compress, action="bounded", reason=f"compressed at level {self.level}")

    def compress(self, artifacts: Sequence[Artifact]) -> Compressed:
        """Return the artifacts with long ones compressed and the others unchanged. The result can also be awaited.

        Raises:
            HistoryError: If an item is not an artifact, such as a message of a framework.
        """
        return Compressed(map(self._compressor(self._own_counter, Memory()), require_artifacts(artifacts)))

    @cached_property
    def _own_counter(self) -> TokenCounter:
        return find_counter(self._counter)

    def _compressor(self, counter: TokenCounter, memory: Memory) -> Callable[[Artifact], Artifact]:
        """Return a function that compresses the messages of one history. Call it once for each message, in order."""
        names: dict[str | None, str] = {}

        def compress(artifact: Artifact) -> Artifact:
            for call in artifact.calls:  # ids may repeat: the latest call counts
                memory.put(names, call.id, call.name)
            if self._strength is None:
                return artifact
            return _compress_one(artifact, artifact.name or names.get(artifact.answers) or "", self._strength, counter)

        return compress


def _compress_one(artifact: Artifact, tool: str, strength: _Strength, counter: TokenCounter) -> Artifact:
    is_agent = artifact.kind is Kind.ASSISTANT
    # User messages are never compressed, because they are short and every word may matter.
    if artifact.pinned or not (is_agent or artifact.kind is Kind.TOOL):
        return artifact
    hint = None if is_agent else _hint(tool)
    return artifact.edit(
        lambda slot, text: (
            _compress_text(text, strength, hint, counter.count, is_agent=is_agent) if slot == "content" else text
        )
    )


def _compress_text(text: str, strength: _Strength, hint: FileType | None, count: Count, *, is_agent: bool) -> str:
    """Return a compressed text.

    Args:
        text: The text.
        strength: The limits.
        hint: The type of output that the name of the tool suggests; None if the name suggests none.
        count: Function that returns the number of tokens in a string.
        is_agent: Whether the text is an assistant message rather than a tool output.
    """
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
    """Return the type of output that the name of a tool suggests; None if the name suggests none."""
    name = tool.lower()
    # Browser tools are named after their output. Judged by its text, the snapshot of a page with a log could pass for a
    # log.
    if "snapshot" in name:
        return FileType.SNAPSHOT
    return FileType.CONSOLE if "console" in name else None
