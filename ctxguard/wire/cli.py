"""`ctxguard serve`: the guard as a proxy."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import socket
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, Literal

import typer

from ctxguard.cli.options import StabilizerOptions, settings_of, spread
from ctxguard.cli.program import Command, command_group
from ctxguard.errors import ConfigError, reason_of
from ctxguard.settings import install_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from starlette.applications import Starlette

    from ctxguard.config import StabilizerConfig
    from ctxguard.pii import Vault
    from ctxguard.stabilizer import Stabilizer
    from ctxguard.wire.audit import AuditLog
    from ctxguard.wire.guard import Guard

DEFAULT_BUDGET: Final = "80%"
"""The default budget, as a share of the context window of the model that a request names."""
_SETTINGS: Final = "CTXGUARD_WORKER_SETTINGS"
"""The environment variable that passes the settings to the workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """The address and port on which the proxy listens."""

    host: str = "127.0.0.1"
    port: int = 8787
    workers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarding:
    """Settings of the guard, apart from those of the stabilizer."""

    on_unreadable: str = "refuse"
    strategy: Literal["pseudonymize", "redact"] | None = None
    max_body: int = 50_000_000
    max_answer: int = 50_000_000
    store: str | None = None
    vault_key_file: str | None = None
    vault_ttl: int = 2_592_000
    credential: str = ""
    not_credential: str = ""
    cache_control: bool = False
    recall: bool = False
    holdout: str = "0%"
    new_values: Literal["pass", "report", "mask", "refuse"] = "pass"
    audit: Path | None = None
    mode: Literal["enforce", "observe"] | None = None

    def vault(self, configured: str | None) -> Vault | None:
        """Return the vault for the placeholders of sessions; None keeps them in the memory of each process.

        Args:
            configured: The store in the configuration.

        Raises:
            ConfigError: If the key cannot be read, or there is a key but no store.
            StoreError: If the store cannot be opened.
        """
        place = self.store or configured
        if place is None:
            if self.vault_key_file is not None:
                raise ConfigError("a vault key needs a store; give --store URL", setting="store")
            return None
        from ctxguard.pii import Vault
        from ctxguard.stores import open_store

        return Vault(open_store(place), key=_key_in(self.vault_key_file), ttl=self.vault_ttl)


def _key_in(file: str | None) -> str | None:
    """Return the key in a file. Without a file, return None, which means the key in the environment variable."""
    try:
        return None if file is None else Path(file).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        message = f"{file}: {reason_of(error)}; name a file that contains a key"
        raise ConfigError(message, setting="vault_key_file") from None


def _audit_log(path: Path, vault_key_file: str | None) -> AuditLog:
    """Return the audit log. Its key is the one in CTXGUARD_AUDIT_KEY, or else that of the vault."""
    from ctxguard.wire.audit import KEY_VARIABLES, AuditLog

    return AuditLog(path, key=os.environ.get(KEY_VARIABLES[0]) or _key_in(vault_key_file))


@spread("serve")
def serve(
    upstream: list[str],
    chain: StabilizerOptions,
    listening: Listening,
    guarding: Guarding,
    grace: int = 30,
) -> None:
    """Guard every request of any OpenAI- or Anthropic-compatible client: a proxy in front of a provider.

    Point the client's base URL at it: OPENAI_BASE_URL=http://127.0.0.1:8787/v1. Metrics are at /metrics, health is at
    /healthz. Each request is counted for the model that it names.
    """
    from ctxguard.report.printing import note
    from ctxguard.wire.proxy import proxy_app

    require_server()
    host, port = listening.host, listening.port
    require_free(host, port)
    guard = guard_of(chain, guarding, settings_of(chain.config, says_none=True), workers=listening.workers)
    app = proxy_app(guard, upstream)
    if listening.workers == 1:
        _warm(guard)
    for line in _warnings(guard, listening):
        note(line)
    _announce(_serving_lines(guard, upstream, listening), host, port)
    if listening.workers == 1:
        begin_log()
        _run(app, host, port, grace)
        return
    # in the environment, because every user of the machine can read the command line
    settings = (upstream, asdict(chain), asdict(guarding), listening.workers)
    os.environ[_SETTINGS] = json.dumps(settings, default=str)
    _run_workers(host, port, listening.workers, grace)


def _serving_lines(guard: Guard, upstream: Sequence[str], listening: Listening) -> Iterator[str]:
    """Yield the lines that a proxy prints as soon as it listens: what it serves, and where its page is."""
    served = f"serving http://{_written(listening.host)}:{listening.port} for {' and '.join(upstream)}"
    yield f"{served}; {_describe_masking(guard.stabilizer)}; {guard.stabilizer!r}"
    here = f"http://{_written(_reached_at(listening.host))}:{listening.port}"
    yield f"what it does: {here}/ in a browser on this machine; figures: {here}/metrics; health: {here}/healthz"


def _written(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _reached_at(host: str) -> str:
    """Return the address at which this machine reaches a proxy that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - not listened on here


def _announce(lines: Iterator[str], host: str, port: int) -> None:
    """Print lines as soon as something accepts connections at the address: this process, or its workers."""
    from ctxguard.report.printing import note

    def wait() -> None:
        address = (_reached_at(host), port)
        while True:
            with suppress(OSError), socket.create_connection(address, timeout=1):
                break
            time.sleep(0.05)
        with suppress(OSError, ValueError):  # standard error may be closed by now
            for line in lines:
                note(line)

    Thread(target=wait, name="ctxguard-announce", daemon=True).start()


def _warnings(guard: Guard, listening: Listening) -> Iterator[str]:
    """Yield the lines that a proxy prints before it starts: what its settings expose or cannot do."""
    from ctxguard.wire.proxy import LOOPBACK

    if listening.host not in LOOPBACK:
        yield f"listening on {listening.host}: anyone who can reach it can use it; it requires no key of its own"
    if not guard.takes_sessions:
        yield (
            f"{listening.workers} workers without --store: requests that name a session are refused, "
            "and a conversation that another worker began is redacted"
        )


def _run_workers(host: str, port: int, workers: int, grace: int) -> None:
    """Run several processes, each of which creates its application from the settings in the environment."""
    import uvicorn

    factory = f"{__name__}:{worker_app.__name__}"
    uvicorn.run(factory, factory=True, host=host, port=port, workers=workers, **uvicorn_settings(grace))


def _warm(guard: Guard) -> None:
    """Load what the first request needs, and exclude these objects from garbage collection."""
    guard.warm()
    gc.collect()
    gc.freeze()  # rules and vocabularies live as long as the process, and scanning them takes a tenth of a second


def require_server() -> None:
    """Check that the server is installed.

    Raises:
        ConfigError: If it is not installed. The message says how to install it.
    """
    if find_spec("uvicorn") is None:
        raise ConfigError(f"the proxy is an extra: {install_command('proxy')}")


def guard_of(chain: StabilizerOptions, guarding: Guarding, known: StabilizerConfig, *, workers: int) -> Guard:
    """Return the guard that the options and the configuration describe."""
    from ctxguard.config import load_context_config
    from ctxguard.stores import open_store
    from ctxguard.wire.guard import Guard
    from ctxguard.wire.sessions import Credentials

    pii = load_context_config(chain.config).pii
    vault, place = guarding.vault(known.store), guarding.store or known.store
    if guarding.recall and workers > 1 and place is None:
        raise ConfigError("--recall with several workers needs --store URL, which they share", setting="recall")
    return Guard(
        chain.stabilizer(known, default=DEFAULT_BUDGET, changes={"mode": guarding.mode}),
        strategy=guarding.strategy or pii.strategy or "pseudonymize",
        on_unreadable="refuse" if guarding.on_unreadable == "refuse" else guarding.on_unreadable.split(","),
        max_body=guarding.max_body,
        max_answer=guarding.max_answer,
        vault=vault,
        credentials=Credentials.of(guarding.credential.split(","), guarding.not_credential.split(",")),
        takes_sessions=workers == 1 or vault is not None,
        cache_control=guarding.cache_control,
        holdout=guarding.holdout,
        new_values=guarding.new_values,
        tools=pii.tools or {},
        recall=guarding.recall and (place is None or open_store(place)),
        audit=None if guarding.audit is None else _audit_log(guarding.audit, guarding.vault_key_file),
    )


audit_app = command_group("audit", "Search the record of what was sent.")
audit_app.callback()(lambda: None)  # a callback makes this a group although it has only one command


@audit_app.command("verify", cls=Command)
@spread("audit verify")
def verify(file: Path, body: str, vault_key_file: str | None = None) -> None:
    """Print when a request body with exactly these bytes was recorded before it was sent; exit with 1 if it never was.

    The key is that of the record: CTXGUARD_AUDIT_KEY, else the key of the vault.
    """
    from ctxguard.report.printing import out

    data, found = sys.stdin.buffer.read() if body == "-" else Path(body).read_bytes(), 0
    for found, record in enumerate(_audit_log(file, vault_key_file).sent(data), 1):  # noqa: B007
        out(f"recorded at {record['time']}, about to be sent to {record['path']}")
    if not found:
        out("not recorded")
        raise typer.Exit(1)


vault_app = command_group("vault", "Erase values from the vault of a proxy.")
vault_app.callback()(lambda: None)  # a callback makes this a group although it has only one command


@vault_app.command("forget", cls=Command)
@spread("vault forget")
def forget_values(
    session: str, value: str | None = None, store: str | None = None, vault_key_file: str | None = None, key: str = ""
) -> None:
    """Erase a session from the vault of a proxy, or one value in the session; exit with 1 if there is none.

    A running proxy may keep values in memory until it stops, so restart it.
    """
    _forget(session, value, store, vault_key_file, key)


@vault_app.command("forget-everywhere", cls=Command)
@spread("vault forget-everywhere")
def forget_everywhere(value: str, store: str | None = None, vault_key_file: str | None = None, key: str = "") -> None:
    """Erase one value from every session in the vault of a proxy; exit with 1 if no session has it.

    A running proxy may keep values in memory until it stops, so restart it.
    """
    _forget(None, value, store, vault_key_file, key)


def _forget(session: str | None, value: str | None, store: str | None, vault_key_file: str | None, key: str) -> None:
    from ctxguard.cli.store import existing_store
    from ctxguard.pii import Vault
    from ctxguard.report.printing import counted, out
    from ctxguard.wire.sessions import forget

    value = sys.stdin.read().strip() if value == "-" else value
    with existing_store(store or settings_of(None).store or "--store") as kept:
        vault = Vault(kept, key=_key_in(vault_key_file), ttl=Guarding().vault_ttl)
        sessions, erased = forget(vault, session, value, credential=key)
    erasure = f"erased {counted(erased, 'value')}" if erased else "nothing to erase"
    name = "" if session is None else " of this name"
    out(f"{erasure} in {counted(sessions, 'session')}{name}" if sessions else "no such session")
    raise typer.Exit(0 if erased else 1)


def worker_app() -> Starlette:
    """Return the application of one of several workers, from the settings that `serve` stored in the environment."""
    from ctxguard.config import load_context_config
    from ctxguard.wire.proxy import proxy_app

    upstream, chain, guarding, workers = json.loads(os.environ[_SETTINGS])
    known = load_context_config(chain["config"]).stabilizer
    guard = guard_of(StabilizerOptions(**chain), Guarding(**guarding), known, workers=workers)
    begin_log()
    _warm(guard)
    return proxy_app(guard, upstream)


def begin_log() -> None:
    """Log cuts and failures to standard error."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("ctxguard").setLevel(logging.INFO)  # cuts, and in observe mode, what would have been done
    logging.getLogger("uvicorn.error").addFilter(is_a_failure)


def _run(app: Starlette, host: str, port: int, grace: int) -> None:
    """Serve until the process is asked to stop, and then until all open responses end, for at most `grace` seconds."""
    import uvicorn

    from ctxguard.report.printing import counted, note

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            answers, is_first = len(self.server_state.tasks), not self.should_exit
            super().handle_exit(sig, frame)
            if answers and is_first:
                waits = f"waiting at most {grace} s for {counted(answers, 'open answer')}"
                # standard error may be closed, or the signal may have interrupted another write
                with suppress(OSError, RuntimeError):
                    note(f"{waits}; to break off at once, press Ctrl-C again")

    settings = uvicorn.Config(app, host=host, port=port, **uvicorn_settings(grace))
    server = Server(settings)
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        raise SystemExit(2)


def uvicorn_settings(grace: int) -> dict[str, Any]:
    """Return the settings of the server; `grace` is the number of seconds to wait for open responses at shutdown."""
    return {
        "log_level": "warning",
        "access_log": False,  # it would contain query strings
        "server_header": False,
        "date_header": False,
        "timeout_graceful_shutdown": grace,
        "http": "ctxguard.wire.connections:BoundedConnection",
        "ws": "none",  # the proxy refuses web sockets itself; libraries for them never answer if there is a body
    }


_WEB_SOCKETS: Final = (
    "Unsupported upgrade",
    "No supported WebSocket",
    "ASGI callable returned without completing hand",
)
"""Prefixes of the server's log messages about web sockets, which the proxy answers with status 426."""


def is_a_failure(record: logging.LogRecord) -> bool:
    """Return whether a log record reports a failure, rather than a web socket or a response aborted at shutdown."""
    if record.getMessage().startswith(_WEB_SOCKETS):
        return False
    broken = (asyncio.CancelledError, KeyboardInterrupt)
    is_traced = record.exc_info is not None and isinstance(record.exc_info[1], broken)
    return not is_traced and not record.getMessage().rstrip().endswith(asyncio.CancelledError.__name__)


def _describe_masking(stabilizer: Stabilizer) -> str:
    """Return a description of the rules and detectors that mask."""
    names = [detector.name.replace("|", ", ") for detector in stabilizer.stages.detectors]
    return f"masked by the rules {', '.join(names)}" if names else "nothing is masked"


def require_free(host: str, port: int) -> None:
    """Check that an address is available, before the startup lines are printed.

    Raises:
        ConfigError: If the address is in use, or does not belong to this machine.
    """
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise ConfigError(f"{host}:{port}: {reason_of(error)}; name another port or host", setting="port") from error
