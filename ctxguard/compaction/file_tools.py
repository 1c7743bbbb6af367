"""The tools with which common agents read and edit files, for the list of files in a brief.

Whether a call reads or edits a file is recognized by the name of the tool and the arguments, never by the output.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ctxguard.artifacts import Artifact, ToolCall
from ctxguard.stages.short_views import failure_of

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
