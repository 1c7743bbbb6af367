"""Write any history as a transcript for a summarizer, split it into chunks, and shorten it without a summarizer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

from ctxguard.adapting.registry import Adapter, require_adapter
from ctxguard.artifacts import Artifact, ToolCall
from ctxguard.stages.short_views import failure_of


def transcript(artifacts: Iterable[Artifact]) -> str:
    """Return a transcript: who wrote what, how each tool was called, and what it returned."""
    return "\n\n".join(line for artifact in artifacts for line in _lines(artifact))


def _lines(artifact: Artifact) -> Iterator[str]:
    who = artifact.kind.value if artifact.name is None else f"{artifact.kind.value} {artifact.name}"
    if artifact.text:
        yield f"{who}: {artifact.text}"
    if not isinstance(artifact.content, str):
        yield from (f"{who}: [{part.kind}]" for part in artifact.content if part.text is None)
    for call in artifact.calls:
        yield f"{who} calls {call.name}({call.arguments})"


def chunked(pieces: Sequence[str], max_tokens: int, count: Callable[[str], int]) -> list[str]:
    """Join pieces into chunks of at most `max_tokens` tokens without leaving anything out.

    A piece above the limit is split, at line breaks if possible.
    """
    chunks: list[str] = []
    chunk: list[str] = []
    taken = 0
    for piece in (part for whole in pieces for part in _split(whole, max_tokens, count)):
        tokens = count(piece) + 2
        if chunk and taken + tokens > max_tokens:
            chunks.append("\n\n".join(chunk))
            chunk, taken = [], 0
        chunk.append(piece)
        taken += tokens
    return [*chunks, "\n\n".join(chunk)] if chunk else chunks


def _split(piece: str, max_tokens: int, count: Callable[[str], int]) -> Iterator[str]:
    while len(piece) > 1 and count(piece) + 2 > max_tokens:
        size = _fitting(piece, max(1, max_tokens - 2), count)
        line = piece.rfind("\n", size // 2, size)
        end = line + 1 if line > 0 else size
        yield piece[:end]
        piece = piece[end:]
    if piece:
        yield piece


def _fitting(text: str, max_tokens: int, count: Callable[[str], int]) -> int:
    """Return how many characters at the start of a text fit into `max_tokens` tokens, but at least 1."""
    size = min(len(text), 4 * max_tokens)
    while size > 1 and (tokens := count(text[:size])) > max_tokens:
        size = max(1, min(size - 1, size * max_tokens // tokens))
    return max(1, size)


def head_and_tail(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """Shorten a text to its start and its end, with the number of removed tokens between them.

    The result has at most `max_tokens` tokens. It is empty if not even the marker fits.
    """
    total = count(text)
    if total <= max_tokens:
        return text
    available = max_tokens - count(_marker(total)) - 2
    while available > 0:
        head = text[: _fitting(text, max(1, available // 2), count)]
        tail = text[::-1][: _fitting(text[::-1], max(1, available // 2), count)][::-1] if available > 1 else ""
        shown = f"{head}\n{_marker(max(1, total - count(head) - count(tail)))}\n{tail}"
        if count(shown) <= max_tokens:
            return shown
        available -= max(1, available // 8)
    return _marker(total) if count(_marker(total)) <= max_tokens else ""


def _marker(tokens: int) -> str:
    return f"[… {tokens} tokens removed …]"


def read_native(messages: Sequence[object]) -> tuple[Adapter[object] | None, list[Artifact]]:
    """Return the adapter that knows some messages, and the messages as artifacts. For artifacts, the adapter is None.

    Raises:
        AdapterError: If no installed adapter knows the messages.
    """
    if all(isinstance(message, Artifact) for message in messages):
        return None, cast("list[Artifact]", list(messages))
    adapter = require_adapter(messages)
    return adapter, adapter.read(messages)


def write_native(
    adapter: Adapter[object] | None, messages: Sequence[object], artifacts: list[Artifact]
) -> Sequence[object]:
    """Return artifacts as native messages in the format of `messages`. Without an adapter, return them unchanged."""
    return artifacts if adapter is None else cast("Sequence[object]", adapter.write(messages, artifacts))


FileRole = Literal["read", "edit"]

_READ: Final = (
    "read notebookread "  # Claude Code, opencode
    "read_file view_image read_many_files "  # Codex, Gemini CLI, qwen-code, cline, roo, LangChain
    "open view view_file readfile "  # swe-agent, aider, OpenHands, deepagents
    "read_text_file read_media_file read_multiple_files get_file_contents"  # MCP filesystem
)
_EDIT: Final = (
    "edit write multiedit notebookedit patch "  # Claude Code, opencode
    "apply_patch write_file replace "  # Codex, Gemini CLI, qwen-code
    "create insert str_replace undo_edit "  # swe-agent, aider, OpenHands
    "write_to_file replace_in_file apply_diff insert_content edit_file writefile "  # cline, roo, LangChain, deepagents
    "create_file create_or_update_file move_file"  # MCP filesystem
)
_ROLES: Final[Mapping[str, FileRole]] = {
    **dict.fromkeys(_READ.split(), "read"),
    **dict.fromkeys(_EDIT.split(), "edit"),
}
_COMMANDS: Final[Mapping[str, FileRole]] = {
    "view": "read", "create": "edit", "str_replace": "edit", "insert": "edit", "undo_edit": "edit",
}  # fmt: skip
"""Roles by the argument `command` of the edit tools of Anthropic, swe-agent, and OpenHands."""
_PATHS: Final = (
    "path", "file_path", "filepath", "filePath", "absolute_path", "filename", "file_name", "file", "target_file",
    "relative_path", "notebook_path", "paths", "files",
)  # fmt: skip
_PATCHED: Final = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (.+?)\s*$", re.MULTILINE)
_SHOWN: Final = re.compile(
    r"(?:cd [^\s;&|]+ && )?(?:cat|nl|head|tail|less|bat|type|sed -n '?[\d,$p ]+'?)"
    r"(?: -\w+(?: \d+)?)* ([^\s;&|<>*-][^\s;&|<>*]*)"
)
_WRITTEN: Final = re.compile(r"(?:cat|tee)(?: -a)? >{0,2} ?([^\s;&|<>]+) <<|sed -i\S* (?:'[^']*'|\"[^\"]*\") (\S+)")


@dataclass(frozen=True, slots=True)
class FileUse:
    """A file that a call reads or edits.

    Attributes:
        role: Whether the call reads or edits the file: `read` or `edit`.
        path: The path of the file as written in the call.
    """

    role: FileRole
    path: str


def uses_of(exchange: Sequence[Artifact]) -> list[list[FileUse]]:
    """Return the files that each call of an exchange reads or edits. The list of a failed call is empty.

    Args:
        exchange: The artifacts of the exchange.
    """
    calls = exchange[0].calls
    failed = {a.answers for a in exchange[1:] if failure_of(a) is not None}
    return [[] if call.id in failed else file_uses(call) for call in calls]


def file_uses(call: ToolCall) -> list[FileUse]:
    """Return the files that a call reads or edits, as far as the arguments reveal them."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = call.arguments
    if not isinstance(arguments, dict):
        return [FileUse("edit", path) for path in _PATCHED.findall(str(arguments))]
    command = arguments.get("command", arguments.get("cmd", arguments.get("patch", arguments.get("input"))))
    if isinstance(command, list):
        command = str(command[-1]) if command else ""
    # Prefixes are removed, as in `mcp__filesystem__read_file` or `functions.read_file`.
    name = re.split(r"__|[.:/]", call.name)[-1].lower()
    role = (_COMMANDS.get(command) if isinstance(command, str) else None) or _ROLES.get(name)
    paths = list(_paths(arguments))
    if role is not None and paths:
        return [FileUse(role, path) for path in paths]
    return list(_uses_of_command(command)) if isinstance(command, str) else []


def _paths(arguments: Mapping[str, object]) -> Iterator[str]:
    for key in _PATHS:
        value = arguments.get(key)
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, str) and path:
                yield path.removeprefix("./")


def _uses_of_command(command: str) -> Iterator[FileUse]:
    """Yield the files that a shell command edits. A command that only shows a file yields that file as read."""
    for path in _PATCHED.findall(command):
        yield FileUse("edit", path)
    for match in _WRITTEN.finditer(command):
        yield FileUse("edit", (match[1] or match[2]).removeprefix("./"))
    shown = _SHOWN.fullmatch(command.strip())
    if shown is not None:
        yield FileUse("read", shown[1].removeprefix("./"))
