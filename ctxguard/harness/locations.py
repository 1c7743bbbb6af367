"""Find and open the files that a user names: paths, folders, globs, standard input, and URLs that fsspec opens."""

from __future__ import annotations

import glob
import io
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from ctxguard.errors import ConfigError, CtxguardError
from ctxguard.harness.sessions import MAX_BYTES
from ctxguard.settings import install_command

SUFFIXES: Final = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz", ".parquet")
"""Suffixes of the files that are read in a folder."""


def is_url(name: str) -> bool:
    """Return whether a name is a URL such as `s3://bucket/sessions/` from a path."""
    return "://" in name


def found(name: str) -> list[str]:
    """Return the files that a name denotes, in a stable order.

    Raises:
        ConfigError: a URL needs a package that is not installed.
        OSError: a URL cannot be reached.
    """
    if is_url(name):
        return _remote(name)
    path = Path(name)
    if name == "-" or path.is_file():
        return [name]
    if path.is_dir():
        return sorted(str(p) for p in path.rglob("*") if p.is_file() and _is_read(p.name))
    matching = glob.glob(name, recursive=True)  # noqa: PTH207 - a pattern may be absolute
    return sorted(each for each in matching if Path(each).is_file())


def _is_read(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def _remote(url: str) -> list[str]:
    system, path = _system(url)
    if system.isdir(path):
        below = [each for each in system.find(path) if _is_read(each)]
    else:
        below = system.glob(path) if any(sign in path for sign in "*?[") else [path]
    return sorted(str(system.unstrip_protocol(each)) for each in below)


def _system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL and the path in it; fsspec has no types."""
    try:
        from fsspec.core import url_to_fs

        system, path = url_to_fs(url)
    except ImportError as error:
        raise ConfigError(
            f"{url} cannot be opened: {error}; {install_command('remote')} and what the protocol needs",
            setting="sessions",
        ) from error
    except ValueError as error:
        raise ConfigError(f"{url} cannot be opened: {error}", setting="sessions") from error
    return system, path


def opened_file(name: str) -> BinaryIO:
    """Open a file for reading bytes.

    Raises:
        ConfigError: a URL needs a package that is not installed.
        OSError: it cannot be opened.
    """
    if name == "-":
        return io.BytesIO(sys.stdin.buffer.read(MAX_BYTES))
    if is_url(name):
        system, path = _system(name)
        return cast("BinaryIO", system.open(path, "rb"))
    return Path(name).open("rb")


def total_size(names: Iterable[str]) -> int | None:
    """Return the size in bytes of all files that names denote; None if it is unknown."""
    with suppress(CtxguardError, OSError, TypeError):
        return sum(_size(each) for name in names for each in found(name))
    return None


def _size(name: str) -> int:
    if is_url(name):
        system, path = _system(name)
        return int(system.size(path))
    return Path(name).stat().st_size


def missing(name: str) -> str:
    """Return why nothing was found under a name."""
    if not is_url(name) and Path(name).is_dir():
        return f"no file in it ends in {', '.join(SUFFIXES[:3])}, the same with .gz, or {SUFFIXES[-1]}"
    return "no such file or folder, and no file matches it as a pattern"
