"""`ctxguard serve`: the guard as a proxy."""

from __future__ import annotations

import gc
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from ctxguard.errors import ConfigError

if TYPE_CHECKING:
    from ctxguard.stabilizer import Stabilizer

__all__ = ["serve"]

_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


def serve(
    upstream: Annotated[str, typer.Option("--upstream", "-u", help="URL of the provider: https://api.openai.com.")],
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            "-b",
            metavar="N",
            help="Tokens that the body of a request may take.",
            show_default="that of the configuration, or 32000",
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            "-p",
            help="Named chain: chat, agent, browser, recall, long_session, pattern.",
            show_default="that of the configuration, or agent",
        ),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port to listen on.")] = 8787,
    on_unreadable: Annotated[
        Literal["refuse", "pass"],
        typer.Option("--on-unreadable", help="What happens to requests that cannot be read: uploads, embeddings, …"),
    ] = "refuse",
    strategy: Annotated[
        Literal["pseudonymize", "redact"],
        typer.Option("--strategy", help="How values are hidden; answers get back what is pseudonymized."),
    ] = "pseudonymize",
    max_body: Annotated[int, typer.Option("--max-body", min=1, help="Bytes that a body may have.")] = 50_000_000,
    provider: Annotated[
        str | None,
        typer.Option("--provider", help="Also check the role rules of openai, anthropic, gemini or strict."),
    ] = None,
    counter: Annotated[
        str | None, typer.Option("--counter", help="What counts tokens.", show_default="that of the configuration")
    ] = None,
    mode: Annotated[
        Literal["enforce", "observe"] | None,
        typer.Option(
            "--mode",
            help="observe reports what would be done and sends the original.",
            show_default="that of the configuration, or enforce",
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="Configuration file, YAML.")] = None,
    grace: Annotated[
        int, typer.Option("--grace", min=0, help="Seconds that open answers have to end when the proxy is stopped.")
    ] = 30,
) -> None:
    """Guard every request of any OpenAI- or Anthropic-compatible client: a proxy in front of a provider.

    Point the client's base URL at it: [bold]OPENAI_BASE_URL=http://127.0.0.1:8787/v1[/bold]. Metrics are at
    [bold]/metrics[/bold], health at [bold]/healthz[/bold].
    """
    from ctxguard.report.printing import note
    from ctxguard.wire.guard import Guard
    from ctxguard.wire.proxy import proxy_app

    try:
        import uvicorn
    except ImportError as error:
        raise ConfigError("the proxy is an extra: pip install 'ctxguard-stabilizer[proxy]'") from error
    stabilizer = _stabilizer(config, budget=budget, policy=policy, provider=provider, counter=counter, mode=mode)
    guard = Guard(stabilizer, strategy=strategy, on_unreadable=on_unreadable, max_body=max_body)
    app = proxy_app(guard, upstream)
    if host not in _LOOPBACK:
        note(f"listening on {host}: everybody who can reach it can use it; it asks for no key of its own")
    guard.warm()
    gc.collect()
    gc.freeze()  # rules and vocabularies live as long as the process: to walk them again takes a tenth of a second
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,  # it would hold queries
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=grace,
    )


def _stabilizer(config: Path | None, **given: str | None) -> Stabilizer:
    from ctxguard.config import load_context_config
    from ctxguard.stabilizer import Stabilizer

    chosen: dict[str, str | int] = {name: value for name, value in given.items() if value is not None}
    if "budget" not in chosen and load_context_config(config).stabilizer.budget is None:
        chosen["budget"] = 32_000
    if str(chosen.get("budget", "")).isdecimal():
        chosen["budget"] = int(chosen["budget"])
    stabilizer = Stabilizer.from_config(config, **chosen)
    stabilizer.budget_for()  # a share of a window cannot be worked out: every request may be for another model
    return stabilizer
