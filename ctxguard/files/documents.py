"""Convert documents to text in a separate process, and cache the result by a hash of the document."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, cast

from ctxguard.files.opening import RefusedError
from ctxguard.settings import extra, install_command

TIMEOUT: Final = 60  # seconds for a conversion
_VERSION: Final = "2"
_MAX_SIZE: Final = 200_000_000  # bytes; larger documents are refused


def converted(
    file: BinaryIO,
    kind: str,
    *,
    cache_dir: Path | None,
    timeout: int = TIMEOUT,
    rows: tuple[int, int] | None = None,
) -> str:
    """Return the text of a document.

    Args:
        file: the document, a regular file.
        kind: `pdf`, `docx`, `pptx`, `spreadsheet` or `archive`.
        cache_dir: where texts are cached by the SHA-256 of the document; None means no cache.
        timeout: seconds that the conversion may take.
        rows: first and last row of each sheet, counted from 1 after the header; None means both ends.

    Raises:
        RefusedError: it is too large, damaged, protected, a bomb, or takes too long.
        ImportError: the package that reads it is not installed.
    """
    if os.fstat(file.fileno()).st_size > _MAX_SIZE:
        raise RefusedError(f"is larger than the {_MAX_SIZE} bytes up to which documents are converted")
    named = kind if rows is None else f"{kind}-{rows[0]}-{rows[1]}"
    place = None if cache_dir is None else cached_at(cache_dir, file, named)
    if place is not None and place.is_file():
        return place.read_text(encoding="utf-8")
    text = _run(file, [kind, str(timeout), *map(str, rows or ())], timeout)
    if place is not None:
        _remember(place, text)
    return text


def default_cache_dir() -> Path:
    """Return the folder for converted documents: `ctxguard/documents` in the user's cache folder."""
    with extra("files", "keeping converted documents needs an extra"):
        from platformdirs import user_cache_path

    return user_cache_path("ctxguard", appauthor=False) / "documents"


def cached_at(cache_dir: Path, file: BinaryIO, kind: str) -> Path:
    """Return the cache file for the text of a document, named by the SHA-256 of its bytes."""
    file.seek(0)
    digest = hashlib.file_digest(cast("io.BufferedReader", file), "sha256").hexdigest()
    return cache_dir / f"{digest}-{kind}-{_VERSION}.txt"


def _run(file: BinaryIO, arguments: list[str], timeout: int) -> str:
    file.seek(0)
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    command = [sys.executable, "-P", "-m", "ctxguard.files.worker", *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - our own module; the document is data on its standard input
            command, stdin=file, capture_output=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise RefusedError(f"takes longer than {timeout} seconds to convert") from None
    if done.returncode == 0:
        return done.stdout.decode()
    reason = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    if reason.startswith("missing:"):
        name = reason.removeprefix("missing:")
        raise ImportError(f"{name} is needed to read this; {install_command('files')}", name=name)
    if done.returncode < 0 or not reason:
        reason = "takes more memory or processor time than a document is given"
    raise RefusedError(reason[:300])


def _remember(place: Path, text: str) -> None:
    """Write a text so that readers see all of it or nothing; only its owner may read it."""
    with suppress(OSError):  # without a cache, only time is lost
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile("w", dir=place.parent, delete=False, encoding="utf-8") as out:
            out.write(text)
        Path(out.name).replace(place)
