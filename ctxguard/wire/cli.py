"""`ctxguard serve`: the guard as a proxy."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from ctxguard.cli.options import ChainOptions, settings_of, spread
from ctxguard.errors import ConfigError, reason_of
from ctxguard.settings import install_command

if TYPE_CHECKING:
    from types import FrameType

    from starlette.applications import Starlette

    from ctxguard.stabilizer import Stabilizer

DEFAULT_BUDGET: Final = 32_000
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Hold where the proxy listens."""

    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, metavar="N", help="Port to listen on.")] = 8787


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarding:
    """Hold how requests are guarded, beside the chain."""

    on_unreadable: Annotated[
        Literal["refuse", "pass"],
        typer.Option("--on-unreadable", help="What happens to requests that cannot be read: uploads, embeddings, …"),
    ] = "refuse"
    strategy: Annotated[
        Literal["pseudonymize", "redact"],
        typer.Option("--strategy", help="How values are hidden; answers get back what is pseudonymized."),
    ] = "pseudonymize"
    max_body: Annotated[int, typer.Option("--max-body", min=1, metavar="N", help="Bytes that a body may have.")] = (
        50_000_000
    )
    mode: Annotated[
        Literal["enforce", "observe"] | None,
        typer.Option(
            "--mode",
            help="observe reports what would be done and sends the original.",
            show_default="that of the configuration, or enforce",
        ),
    ] = None


@spread(budget="that of the configuration, or 32000")
def serve(
    upstream: Annotated[
        str, typer.Option("--upstream", "-u", metavar="URL", help="URL of the provider: https://api.openai.com.")
    ],
    chain: ChainOptions,
    listening: Listening,
    guarding: Guarding,
    grace: Annotated[
        int,
        typer.Option(
            "--grace", min=0, metavar="N", help="Seconds that open answers have to end when the proxy is stopped."
        ),
    ] = 30,
) -> None:
    """Guard every request of any OpenAI- or Anthropic-compatible client: a proxy in front of a provider.

    Point the client's base URL at it: OPENAI_BASE_URL=http://127.0.0.1:8787/v1. Metrics are at /metrics, health is at
    /healthz. Each request is counted as for the model that it names.
    """
    from ctxguard.report.printing import note
    from ctxguard.report.progress import working
    from ctxguard.wire.guard import Guard
    from ctxguard.wire.proxy import proxy_app

    try:
        import uvicorn  # noqa: F401 - whether it is there
    except ImportError as error:
        raise ConfigError(f"the proxy is an extra: {install_command('proxy')}") from error
    stabilizer = chain.stabilizer(settings_of(chain.config), default=DEFAULT_BUDGET, changes={"mode": guarding.mode})
    guard = Guard(
        stabilizer, strategy=guarding.strategy, on_unreadable=guarding.on_unreadable, max_body=guarding.max_body
    )
    app = proxy_app(guard, upstream)
    host, port = listening.host, listening.port
    _require_free(host, port)
    with working("loading"):
        guard.warm()
    gc.collect()
    gc.freeze()  # rules and vocabularies live as long as the process: to walk them again takes a tenth of a second
    note(f"serving http://{host}:{port} for {upstream}; {_masked_by(stabilizer)}; {stabilizer!r}")
    if host not in _LOOPBACK:
        note(f"listening on {host}: everybody who can reach it can use it; it asks for no key of its own")
    _begin_log()
    _run(app, host, port, grace)


def _begin_log() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("ctxguard").setLevel(logging.INFO)  # cuts, and what would be done in the mode observe
    logging.getLogger("uvicorn.error").addFilter(_is_a_failure)


def _run(app: Starlette, host: str, port: int, grace: int) -> None:
    """Serve until the process is told to end, and then as long as answers are open, up to a limit in seconds."""
    import uvicorn

    from ctxguard.report.printing import counted, note

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            answers, is_first = len(self.server_state.tasks), not self.should_exit
            super().handle_exit(sig, frame)
            if answers and is_first:
                waits = f"waiting at most {grace} s for {counted(answers, 'open answer')}"
                with suppress(OSError, RuntimeError):  # nobody reads any more, or the signal came amid another line
                    note(f"{waits}; to break off at once, press Ctrl-C again")

    settings = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,  # it would hold queries
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=grace,
    )
    server = Server(settings)
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        raise SystemExit(2)


def _is_a_failure(record: logging.LogRecord) -> bool:
    """Tell failures from answers that were broken off because the process was told to end."""
    broken = (asyncio.CancelledError, KeyboardInterrupt)
    is_traced = record.exc_info is not None and isinstance(record.exc_info[1], broken)
    return not is_traced and not record.getMessage().rstrip().endswith(asyncio.CancelledError.__name__)


def _masked_by(stabilizer: Stabilizer) -> str:
    """Say which rules and detectors mask."""
    from ctxguard.stages import MaskPII

    maskers = [stage.masker for stage in stabilizer.stages if isinstance(stage, MaskPII)]
    names = [detector.name.replace("|", ", ") for masker in maskers for detector in masker.detectors]
    return f"masked by the rules {', '.join(names)}" if names else "nothing is masked"


def _require_free(host: str, port: int) -> None:
    """Refuse an address that is in use, or not this machine's, before anything is said to be served."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise ConfigError(
            f"{host}:{port}: {reason_of(error)}; name another --host or --port", setting="port"
        ) from error
