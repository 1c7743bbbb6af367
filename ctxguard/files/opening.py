"""Open files safely: only regular files inside a root folder, and without blocking."""

from __future__ import annotations

import errno
import io
import mimetypes
import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import BinaryIO, Final

FACTS: Final[Mapping[str, Mapping[str, str]]] = tomllib.loads(
    files("ctxguard").joinpath("data/file_types.toml").read_text(encoding="utf-8")
)
"""The types of files by extension and by their first bytes."""
_MIME: Final = FACTS["mime"]
_PLAIN: Final = frozenset(FACTS["plain"]["extensions"].split())
_TABLE: Final = mimetypes.MimeTypes(filenames=())


class RefusedError(Exception):
    """Raised when a file is not read; the message is the reason, which `read_file` returns with `success=False`."""


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """Facts about a file from the file system and from its content.

    Attributes:
        size: Size of the file in bytes.
        modified: Time of the last change, in UTC.
        mime_type: MIME type based on the file's name; `application/octet-stream` if unknown.
        encoding: Encoding of a text file; None for other files.
        details: Further facts, as pairs of a name and a value: `pixels` for an image; `encoding` with the value
            `guessed by its letters` for a text file whose encoding is neither Unicode nor a Western European one.
    """

    size: int
    modified: datetime
    mime_type: str
    encoding: str | None = None
    details: tuple[tuple[str, str], ...] = ()


class RegularFile(io.FileIO):
    """A file opened for reading that raises BlockingIOError where `io.FileIO` returns None.

    `io.FileIO` returns None if a file, such as some system files, has nothing to read for the moment. The modules that
    read documents expect bytes.
    """

    def readinto(self, buffer: bytearray, /) -> int:  # type: ignore[override]
        """Read bytes into a buffer."""
        size = super().readinto(buffer)
        if size is None:
            raise BlockingIOError(errno.EAGAIN, "nothing to be read without waiting for it")
        return size

    def readall(self) -> bytes:
        """Read up to the end of the file."""
        data = super().readall()
        if data is None:
            raise BlockingIOError(errno.EAGAIN, "nothing to be read without waiting for it")
        return data


def open_file(path: Path, root: Path | None) -> tuple[BinaryIO, FileMetadata]:
    """Open a regular file for reading.

    Args:
        path: The path of the file, relative to `root` if a root is given.
        root: Folder outside of which no file is opened, not even through links; None means no restriction.

    Raises:
        RefusedError: If the file is outside the root, is not a regular file, or cannot be opened.
    """
    try:
        real = _resolve(path, root)
        _require_regular(real.stat().st_mode)
        descriptor = os.open(real, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RefusedError(f"{reason[:1].lower()}{reason[1:]}") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or not _is_inside(descriptor, path, root):
        os.close(descriptor)
        raise RefusedError("was replaced while it was opened; read it again")
    file = io.BufferedReader(RegularFile(descriptor))  # type: ignore[type-var]  # its readinto never returns None
    return file, FileMetadata(status.st_size, datetime.fromtimestamp(status.st_mtime, UTC), mime_type(path.name))


def mime_type(name: str) -> str:
    """Return the MIME type for a file name, independent of the settings of the machine."""
    suffix = Path(name).suffix.lower().removeprefix(".")
    plain = "text/plain" if suffix in _PLAIN else "application/octet-stream"
    return _MIME.get(suffix) or _TABLE.guess_type(name)[0] or plain


def one_line(path: Path) -> str:
    """Return a path for an error message: on one line, with at most 300 characters."""
    name = str(path).replace("\n", " ")
    return name if len(name) <= 300 else f"{name[:300]}…"


def _resolve(path: Path, root: Path | None) -> Path:
    """Resolve a path; raise an error if it is outside the root. Open the result, because links in `path` may change."""
    if root is None:
        return path.resolve()
    base = root.resolve(strict=True)
    real = (base / path).resolve()
    if not real.is_relative_to(base):
        raise RefusedError(f"is outside of {one_line(root)}, to which reading is confined")
    return real


def _is_inside(descriptor: int, path: Path, root: Path | None) -> bool:
    """Return whether an opened file is inside the root, by its descriptor if `/proc` exists, otherwise by its path."""
    if root is None:
        return True
    link = Path(f"/proc/self/fd/{descriptor}")
    if link.is_symlink():
        return link.readlink().is_relative_to(root.resolve(strict=True))
    return os.path.samestat(os.fstat(descriptor), _resolve(path, root).stat())


def _require_regular(mode: int) -> None:
    kinds = {"d": "a folder", "p": "a pipe (FIFO)", "c": "a device", "b": "a device", "s": "a socket"}
    kind = kinds.get(stat.filemode(mode)[0])
    if kind is not None:
        raise RefusedError(f"is {kind}, not a file that can be read")
