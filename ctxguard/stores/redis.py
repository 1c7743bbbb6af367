"""A store in Redis, for workers on many machines.

Each record is a Redis hash. Sorted sets order the records of each namespace by their latest write, and expiring records
by their expiry. Every change is an operation of the Lua script `redis.lua` and is therefore atomic. All keys have the
hash tag `{ctxguard}`, so that a cluster keeps them in one slot and a script may change several of them
(https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags).
The server's setting `appendonly` decides how much data survives a crash of the server.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import asdict
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from ctxguard.settings import extra
from ctxguard.stores.database import RecordStore, StoredRecord, check_names, failure, invalid_url
from ctxguard.stores.protocol import Clock, NamespaceUsage, Swept

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redis import Redis

_PREFIX: Final = "{ctxguard}:"
_FIELDS: Final = ("value", "expires", "format", "checksum")
_BATCH: Final = 1_000
"""Number of records that `usage` requests at once."""


class RedisStore(RecordStore):
    """A store in Redis; safe for threads, processes, and machines. It needs the extra `redis`.

    Args:
        url: `redis://user:password@host:6379/0`, `rediss://…` for TLS, or `unix://path?db=0`, with any option that
            redis-py accepts.
        max_bytes: Maximum size of the store in bytes: all values with their keys and namespaces. Beyond it, the oldest
            values are evicted first. None means no limit.
        clock: Function that returns the time in seconds since 1970.

    Raises:
        StoreError: If the server cannot be reached or the URL is invalid.
        ConfigError: If `max_bytes` is not above 0.
        ImportError: If the extra `redis` is not installed.
    """

    def __init__(self, url: str, *, max_bytes: int | None = None, clock: Clock = time.time) -> None:
        super().__init__(max_bytes, clock)
        self._place = url.rpartition("@")[2].partition("?")[0]
        self._client = _connect(url)
        changes = files(__package__).joinpath("redis.lua").read_text(encoding="utf-8")
        self._change = self._client.register_script(changes)
        with self._doing("opened"):
            self._client.ping()

    def get(self, namespace: str, key: str) -> bytes | None:
        """Return the value of a key, or None if there is none or it has expired.

        Raises:
            StoreError: If the server cannot be reached, or a name is invalid.
        """
        check_names(namespace, key)
        with self._doing("read"):
            return self._live(namespace, key, self._fields(namespace, key))

    def delete(self, namespace: str, key: str) -> bool:
        """Delete the value of a key, and return whether there was one that had not expired.

        Raises:
            StoreError: If the server cannot be reached, or a name is invalid.
        """
        check_names(namespace, key)
        with self._doing("written"):
            return self._live(namespace, key, self._run("drop", _member(namespace, key))) is not None

    def delete_namespace(self, namespace: str) -> int:
        """Delete all values of a namespace, and return how many of them had not expired.

        Raises:
            StoreError: If the server cannot be reached, or the name is invalid.
        """
        check_names(namespace)
        with self._doing("written"):
            return sum(not end or float(end) > self._clock() for end in self._run("clear", namespace))

    def keys(self, namespace: str) -> Iterator[str]:
        """Return an iterator over a snapshot of the keys of a namespace, the least recently written first.

        Raises:
            StoreError: If the server cannot be reached, or the name is invalid.
        """
        check_names(namespace)
        with self._doing("read"):
            return iter([key.decode() for key in self._run("keys", namespace, repr(self._clock()))])

    def usage(self) -> list[NamespaceUsage]:
        """Return usage statistics of each namespace, sorted by its name.

        Raises:
            StoreError: If the server cannot be reached.
        """
        found: dict[str, list[tuple[int, float]]] = {}
        with self._doing("read"):
            members: Any = self._client.zrange(f"{_PREFIX}all", 0, -1)
            for start in range(0, len(members), _BATCH):
                pipeline = self._client.pipeline(transaction=False)
                for member in members[start : start + _BATCH]:
                    pipeline.hmget(f"{_PREFIX}record:{member.decode()}", "namespace", "size", "written", "expires")
                for namespace, size, written, expires in pipeline.execute():
                    if namespace is not None and (not expires or float(expires) > self._clock()):
                        found.setdefault(namespace.decode(), []).append((int(size), float(written)))
        return [
            NamespaceUsage(name, len(records), sum(sizes), min(times), max(times))
            for name, records in sorted(found.items())
            for sizes, times in [tuple(zip(*records, strict=True))]
        ]

    def sweep(self) -> Swept:
        """Remove expired records and the oldest records beyond `max_bytes`.

        Raises:
            StoreError: If the server cannot be reached.
        """
        with self._doing("written"):
            return Swept(*self._run("sweep", repr(self._clock()), str(self.max_bytes or "")))

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        self._client.close()

    def __repr__(self) -> str:
        return f"RedisStore({self._place!r})"

    def _put(self, record: StoredRecord) -> None:
        with self._doing("written"):
            self._write(record, b"*")

    def _put_new(self, record: StoredRecord) -> bytes:
        with self._doing("written"):
            while True:  # try again if another process wrote between reading and writing
                fields = self._fields(record.namespace, record.key)
                stored = self._live(record.namespace, record.key, fields)
                if stored is not None:
                    return stored
                if self._write(record, fields[-1] or b""):
                    return record.value

    def _fields(self, namespace: str, key: str) -> Sequence[bytes | None]:
        found: Any = self._client.hmget(f"{_PREFIX}record:{_member(namespace, key)}", *_FIELDS)
        return list(found)

    def _live(self, namespace: str, key: str, fields: Sequence[bytes | None]) -> bytes | None:
        value, expires, number, checksum = fields
        if value is None or number is None or checksum is None:
            return None
        end = float(expires) if expires else None
        return StoredRecord(namespace, key, value, end, int(number), checksum).live(self._clock())

    def _write(self, record: StoredRecord, expected: bytes) -> bool:
        expires = "" if record.expires is None else repr(record.expires)
        fields = {**asdict(record), "expires": expires, "size": record.size}
        flat = [part for name, value in fields.items() for part in (name, value)]
        member = _member(record.namespace, record.key)
        return bool(self._run("write", member, expected, repr(self._clock()), str(self.max_bytes or ""), *flat))

    def _run(self, operation: str, *arguments: str | bytes | int) -> Any:  # noqa: ANN401 - the type depends on the operation
        return self._change(keys=[f"{_PREFIX}all"], args=[operation, *arguments])

    @contextmanager
    def _doing(self, done: str) -> Iterator[None]:
        from redis import RedisError

        try:
            yield
        except RedisError as error:
            raise failure(self._place, done, error) from error


def _member(namespace: str, key: str) -> str:
    """Combine a namespace and a key into one name.

    The name begins with the length of the namespace, so that `a:b` and `c` get another name than `a` and `b:c`.
    """
    return f"{len(namespace)}:{namespace}:{key}"


def _connect(url: str) -> Redis:
    with extra("redis", "a Redis store needs an extra"):
        from redis import Redis
    try:
        return Redis.from_url(url)
    except ValueError as error:
        raise invalid_url("redis://user:password@host:6379/0") from error
