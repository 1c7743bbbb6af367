"""Record every request before it is sent: one line with counts and a keyed hash of the body, but no personal data.

Each line ends with a keyed hash of the line and of the previous line's hash. This reveals lines that were changed, and
lines before which others were removed. The removal of the last lines of a file, or of a whole file, is not detected.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from errno import ENOSPC
from glob import escape
from io import FileIO
from pathlib import Path
from threading import Lock
from time import time_ns
from typing import Final, TypeAlias

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from ctxguard.errors import AuditError, ConfigError, reason_of
from ctxguard.pii import Detector, RuleSet
from ctxguard.pii.placeholders import PLACEHOLDER
from ctxguard.tokens.caches import TextCache
from ctxguard.wire.checking import Values

Audit: TypeAlias = Callable[[Mapping[str, object], bytes | None], object]
"""Function called with the record of a request and the body that is about to be sent.

The body is None if there is none, or if the guard does not read it.
"""
KEY_VARIABLES: Final = ("CTXGUARD_AUDIT_KEY", "CTXGUARD_VAULT_KEY")
_LEAST_KEY: Final = 16  # characters; a shorter key could be guessed
_TAIL: Final = 1 << 17
"""Number of bytes that are read at the end of a file to find its last complete line. No line is longer."""
_LINE: Final = re.compile(rb'^(.*), "chain": "([0-9a-f]{64})"}$', re.MULTILINE)
"""Matches a complete line. A line that was written only in part lacks this ending, and its request was not sent."""
_ROLES: Final = frozenset({"user", "assistant", "system", "developer", "tool", "model"})


class AuditLog:
    """Appends a line of JSON for each request to a file. Safe for several threads and processes.

    A line is on disk before the request is sent. If the line cannot be written, the request is refused.

    Args:
        path: The file. Once it has more than `max_bytes` bytes, the time is appended to its name, and a new file is
            started.
        key: Secret of at least 16 characters for the hashes of bodies, sessions, and lines. None means the value of the
            environment variable CTXGUARD_AUDIT_KEY, or else of CTXGUARD_VAULT_KEY.
        max_bytes: Size in bytes above which a new file is started.

    Raises:
        ConfigError: If there is no key or the key is too short, or if `path` is a folder or its folder does not exist.
    """

    def __init__(self, path: str | os.PathLike[str], *, key: str | None = None, max_bytes: int = 100_000_000) -> None:
        self.path = Path(path)
        if self.path.is_dir() or not self.path.parent.is_dir():
            raise ConfigError(f"{path}: an audit needs a file in an existing folder", setting="audit")
        self._max_bytes = max_bytes
        self._lock = Lock()
        given = key or next(filter(None, map(os.environ.get, KEY_VARIABLES)), "")
        if len(given) < _LEAST_KEY:
            text = f"an audit needs a secret of {_LEAST_KEY} characters or more, to hash bodies: give --vault-key-file"
            raise ConfigError(f"{text} FILE, or set {' or '.join(KEY_VARIABLES)}", setting="key")
        self._key = hmac.digest(given.encode(), b"ctxguard audit", hashlib.sha256)

    def __call__(self, record: Mapping[str, object], body: bytes | None) -> None:
        """Write the line for one request.

        Raises:
            AuditError: If the line cannot be written.
        """
        if (session := record.get("session")) is not None:  # hashed, because a client may name a session after a person
            record = {**record, "session": self._hash(b"session", str(session).encode("utf-8", "surrogatepass"))[:16]}
        sent = None if body is None else self._hash(b"body", body)
        line = {"time": datetime.now(UTC).isoformat(), **record, "sent": sent, "bytes": len(body or b"")}
        try:
            with ExitStack() as opened:
                with self._lock:
                    file = opened.enter_context(open(self.path, "ab+", buffering=0, opener=_private))
                    self._append(file, json.dumps(line).encode())
                os.fsync(file.fileno())  # after unlocking, so that one fsync covers the lines of several threads
        except OSError as error:
            message = f"{self.path}: {reason_of(error)}; nothing is sent that cannot be recorded: free some space"
            raise AuditError(message) from error

    def _append(self, file: FileIO, line: bytes) -> None:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)  # wait until no other process is writing a line
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL))
        end = file.read(min(size, _TAIL))
        before = [found[2] for found in _LINE.finditer(end)][-1:]
        line = line[:-1] + b', "chain": "%s"}\n' % self._chain_hash(b"".join(before), line[:-1])
        # a single write for each line, so that the lines of several processes do not mix
        line = line if end[-1:] in (b"", b"\n") else b"\n" + line
        if file.write(line) != len(line):
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        if size + len(line) > self._max_bytes:
            with suppress(FileNotFoundError):  # another process did it first
                self.path.replace(f"{self.path}.{time_ns()}")
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_UN)

    def sent(self, body: bytes) -> Iterator[Mapping[str, object]]:
        """Yield the records of requests whose body has exactly these bytes, including those in earlier, full files.

        Raises:
            AuditError: If there are no records at all. If any line was changed, follows removed lines, or was written
                with another key, the error is raised after all matching records were yielded.
            OSError: If a file cannot be read.
        """
        wanted, number, broken = self._hash(b"body", body), 0, list[str]()
        full = sorted(self.path.parent.glob(f"{escape(self.path.name)}.[0-9]*"))
        for path in filter(Path.exists, (*full, self.path)):
            before = b""
            for number, found in enumerate(_LINE.finditer(path.read_bytes()), 1):
                if self._chain_hash(before, found[1]) != found[2]:
                    broken.append(f"{path}, line {number}")
                elif (record := json.loads(found[0]))["sent"] == wanted:
                    yield record
                before = found[2]
        if broken:
            why = "was changed, follows removed lines, or was written with another key"
            raise AuditError(f"{broken[0]}: it {why}; {len(broken)} such lines prove nothing")
        if not number:
            why = "no record of requests" if self.path.exists() else "no such file"
            raise AuditError(f"{self.path}: {why}; name the file that --audit wrote, then the body")

    def _chain_hash(self, before: bytes, line: bytes) -> bytes:
        return self._hash(b"line", before, line).encode()

    def _hash(self, kind: bytes, *parts: bytes) -> str:
        return hmac.new(self._key, b"\0".join((kind, *parts)), hashlib.sha256).hexdigest()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class HiddenValues:
    """Counts the placeholders in bodies. The counts for parts that repeat from earlier bodies are cached."""

    def __init__(self) -> None:
        self._values = Values()
        self._known: TextCache[Mapping[str, int]] = TextCache()

    def of(self, body: Mapping[str, object]) -> dict[str, dict[str, int]]:
        """Return the number of placeholders in a body by label and place.

        A place is a top-level key of the body, such as `system`. For a message, its role is appended: `messages.user`.
        """
        counts: dict[str, Counter[str]] = {}
        for key, value in body.items():
            for member in value if isinstance(value, list) else (value,):
                role = member.get("role") if isinstance(member, dict) else None
                place = f"{key}.{role}" if isinstance(role, str) and role in _ROLES else key
                for label, count in self._in(member).items():
                    counts.setdefault(label, Counter())[place] += count
        return {label: dict(places) for label, places in sorted(counts.items())}

    def _in(self, member: object) -> Mapping[str, int]:
        # the key holds all texts as they are, and nothing else in it is printed as a placeholder is
        key = self._values.key(member) or json.dumps(member, ensure_ascii=False)
        known = self._known.get(key)
        if known is None:
            found = PLACEHOLDER.finditer(key)
            known = Counter(match[1] or match[2] or match[3] or "ANY" for match in found)
            self._known.put(key, known)
        return known


def version_of(detectors: Sequence[Detector]) -> str:
    """Return an identifier that changes when any of the rules changes.

    A detector that is not a `RuleSet` is represented only by its name.
    """
    descriptions = [
        (one.name, one.rules, sorted(one.allow), one.deny) if isinstance(one, RuleSet) else one.name
        for one in detectors
    ]
    return hashlib.sha256(repr(descriptions).encode()).hexdigest()[:12]
