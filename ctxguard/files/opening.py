"""Open files safely: only regular files, inside a root, without blocking."""

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
"""Types of files by their names and by their first bytes."""
_MIME: Final = FACTS["mime"]
_PLAIN: Final = frozenset(FACTS["plain"]["extensions"].split())
_TABLE: Final = mimetypes.MimeTypes(filenames=())


class RefusedError(Exception):
    """The reason why a file is not read; the reader turns it into a result with `success=False`."""


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """A file's metadata from the file system.

    Attributes:
        size: bytes.
        modified: the time of the last change, in UTC.
        mime_type: from its name; `application/octet-stream` if unknown.
        encoding: of a text file; None for any other.
        details: facts from its own header (`pixels`, `seconds`, `sheets`), and `encoding: guessed by its letters` if it
            is neither Unicode nor that of Western Europe.
    """

    size: int
    modified: datetime
    mime_type: str
    encoding: str | None = None
    details: tuple[tuple[str, str], ...] = ()


class RegularFile(io.FileIO):
    """A file opened for reading that raises instead of blocking, as reading some system files would.

    Otherwise `read` returns None there, which most readers treat as bytes.
    """

    def readinto(self, buffer: bytearray, /) -> int:  # type: ignore[override]
        """Read into a buffer; raise BlockingIOError if there is nothing to read yet."""
        size = super().readinto(buffer)
        if size is None:
            raise BlockingIOError(errno.EAGAIN, "nothing to be read without waiting for it")
        return size

    def readall(self) -> bytes:
        """Read up to the end; raise BlockingIOError if there is nothing to read yet."""
        data = super().readall()
        if data is None:
            raise BlockingIOError(errno.EAGAIN, "nothing to be read without waiting for it")
        return data


def open_file(path: Path, root: Path | None) -> tuple[BinaryIO, FileMetadata]:
    """Open a regular file for reading.

    Args:
        path: the file; relative to `root` if one is given.
        root: folder outside of which nothing is read, not even through links; None means anywhere.

    Raises:
        RefusedError: it is outside the root, not a regular file, or cannot be opened.
    """
    try:
        real = _confined(path, root)
        _require_regular(real.stat().st_mode, path)
        descriptor = os.open(real, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RefusedError(f"{_short(path)}: {reason[:1].lower()}{reason[1:]}") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or not _is_inside(descriptor, path, root):
        os.close(descriptor)
        raise RefusedError(f"{_short(path)}: was replaced while it was opened; read it again")
    file = io.BufferedReader(RegularFile(descriptor))  # type: ignore[type-var]  # its readinto never returns None
    return file, FileMetadata(status.st_size, datetime.fromtimestamp(status.st_mtime, UTC), mime_type(path.name))


def mime_type(name: str) -> str:
    """Return the MIME type of a file by its name, the same on every machine."""
    suffix = Path(name).suffix.lower().removeprefix(".")
    plain = "text/plain" if suffix in _PLAIN else "application/octet-stream"
    return _MIME.get(suffix) or _TABLE.guess_type(name)[0] or plain


def _short(path: Path) -> str:
    name = str(path).replace("\n", " ")
    return name if len(name) <= 300 else f"{name[:300]}…"


def _confined(path: Path, root: Path | None) -> Path:
    """Return the real path, resolved once: resolving it again could give another file."""
    if root is None:
        return path.resolve()
    base = root.resolve(strict=True)
    real = (base / path).resolve()
    if not real.is_relative_to(base):
        raise RefusedError(f"{_short(path)}: is outside of {_short(root)}, to which reading is confined")
    return real


def _is_inside(descriptor: int, path: Path, root: Path | None) -> bool:
    """Return whether the opened file is in the root, by its descriptor if the system allows that, else by its path."""
    if root is None:
        return True
    told = Path(f"/proc/self/fd/{descriptor}")
    if told.is_symlink():
        return told.readlink().is_relative_to(root.resolve(strict=True))
    return os.path.samestat(os.fstat(descriptor), _confined(path, root).stat())


def _require_regular(mode: int, path: Path) -> None:
    kinds = {"d": "a folder", "p": "a pipe (FIFO)", "c": "a device", "b": "a device", "s": "a socket"}
    kind = kinds.get(stat.filemode(mode)[0])
    if kind is not None:
        raise RefusedError(f"{_short(path)}: is {kind}, not a file that can be read")
