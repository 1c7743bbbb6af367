"""`ctxguard run -- CLIENT …`: guard the requests of one client while it runs."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import typer
import yaml

from ctxguard.cli.options import StabilizerOptions, settings_of, spread
from ctxguard.errors import ConfigError
from ctxguard.report.printing import counted, note
from ctxguard.wire.cli import Guarding, guard_of, is_a_failure, require_free, require_server, uvicorn_settings
from ctxguard.wire.proxy import proxy_app

if TYPE_CHECKING:
    from ctxguard.report.telemetry import Metrics

_FORWARDED: Final = ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
"""Signals that are sent to this process alone and are forwarded to the client. Ctrl-C reaches the client directly."""
_WARNINGS: Final = 5
"""Maximum number of distinct warnings that are printed at the end. The log contains all of them."""


@spread("run")
def run(
    command: list[str], chain: StabilizerOptions, guarding: Guarding, port: int = 0, log: Path | None = None
) -> None:
    """Run a client with every request guarded: ctxguard run -- codex, or claude, gemini, qwen, opencode, aider, llm.

    The client gets the guard's address through its own variables and options. Their previous values determine where the
    guard forwards the requests. At the end, a few lines summarize what was sent, billed, masked, and cut.
    """
    require_server()
    program = shutil.which(command[0])
    if program is None:
        raise ConfigError(f"program {command[0]!r} is not on the PATH; install it, or give its path")
    require_free("127.0.0.1", port)
    listening = socket.create_server(("127.0.0.1", port))
    table = yaml.safe_load(resources.files(__package__).joinpath("run_clients.yaml").read_text(encoding="utf-8"))
    places = _places(table["providers"], os.environ)
    guard = guard_of(chain, guarding, settings_of(chain.config, says_none=True), workers=1)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    app = proxy_app(guard, list(dict.fromkeys(_origin(url) for url in places.values())))
    known = table["clients"].get(Path(command[0]).stem.lower(), {})
    urls = {name: guarded_url(address, url) for name, url in places.items()}
    if "note" in known:
        note(_fill_in(known["note"], urls))
    arguments = [_fill_in(each, urls) for each in _arguments(known, os.environ)]
    environment = {**os.environ, **dict(_variables(table["providers"], known, urls, os.environ))}
    with _redirect_log(log) as warnings, _serve(app, listening):
        # not a daemon, because the interpreter must not exit during loading
        threading.Thread(target=guard.warm).start()
        status = _run_client([program, *arguments, *command[1:]], environment)
    for line in (*warnings, *summary(guard.metrics, observed=guard.stabilizer.mode == "observe")):
        note(line)
    raise typer.Exit(status)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _places(providers: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the URL of each provider: the current value of its environment variable, or else its default URL."""
    return {
        name: next((environment[v] for v in provider["variables"] if environment.get(v)), provider["url"]).rstrip("/")
        for name, provider in providers.items()
    }


def guarded_url(address: str, url: str) -> str:
    """Return the guard's URL for a provider's URL: the guard's address, followed by the URL's host and path."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"  # without user name and password
        raise ConfigError(f"the address of a provider must be an http or https URL, not {shown!r}")
    return f"{address}/{parts.netloc.rpartition('@')[2]}{parts.path}"


def _fill_in(text: str, urls: Mapping[str, str]) -> str:
    for name, url in urls.items():
        text = text.replace(f"{{{name}}}", url)
    return text


def _arguments(known: Mapping[str, Any], environment: Mapping[str, str]) -> Sequence[str]:
    """Return the arguments that pass the guard's address to a client. They may depend on how the client logged in."""
    login = known.get("login")
    if login is not None:
        variable, home = login["home"]
        with suppress(OSError, ValueError):
            kept = json.loads((Path(environment.get(variable) or home).expanduser() / login["file"]).read_bytes())
            if kept.get(login["key"]) and not environment.get("OPENAI_API_KEY"):
                known = login
    given: Sequence[str] = known.get("arguments", ())
    return given


def _variables(
    providers: Mapping[str, Any], known: Mapping[str, Any], urls: Mapping[str, str], environment: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    for name, provider in providers.items():
        yield from ((variable, urls[name]) for variable in provider["variables"])
    for variable, text in known.get("variables", {}).items():
        yield variable, _merge_settings(_fill_in(text, urls), environment.get(variable))
    local = "127.0.0.1,localhost"
    for variable in ("NO_PROXY", "no_proxy"):  # clients must connect to the guard without another proxy
        yield variable, ",".join(filter(None, (environment.get(variable), local)))


def _merge_settings(text: str, was: str | None) -> str:
    """Return the JSON settings `was`, the current value of a variable, overridden by those in `text`.

    The settings in `text` have the guard's URLs. `text` is returned unchanged if `was` is empty or either is not JSON.
    """
    if not was:
        return text
    try:
        before, ours = json.loads(was), json.loads(text)
    except ValueError:
        return text
    return json.dumps(_merge(before, ours))


def _merge(before: Any, ours: Any) -> Any:  # noqa: ANN401 - JSON
    if not isinstance(before, dict) or not isinstance(ours, dict):
        return ours
    return {**before, **{key: _merge(before.get(key), value) for key, value in ours.items()}}


@contextmanager
def _serve(app: Any, listening: socket.socket) -> Iterator[None]:  # noqa: ANN401 - an ASGI application
    """Serve the application in a thread of this process."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on", **uvicorn_settings(grace=1)))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(30)


@contextmanager
def _redirect_log(file: Path | None) -> Iterator[list[str]]:
    """Keep the log off the client's screen: write it to a file, if one is given, and collect the warnings."""
    warnings: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said = record.getMessage() if record.levelno >= logging.WARNING else ""
            if said and record.name.startswith("ctxguard") and said not in warnings and len(warnings) < _WARNINGS:
                warnings.append(said)

    handlers: list[logging.Handler] = [Kept()]
    if file is not None:
        handlers.append(logging.FileHandler(file, encoding="utf-8"))
        handlers[-1].setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    before = root.handlers[:]
    root.handlers[:] = handlers
    logging.getLogger("ctxguard").setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").addFilter(is_a_failure)
    try:
        yield warnings
    finally:
        root.handlers[:] = before


def _run_client(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the client until it exits, and forward signals to it; return its exit code as a shell would."""
    with subprocess.Popen(command, env=dict(environment)) as client:  # noqa: S603 - what the user asks to run
        # ignored here: the terminal sends Ctrl-C to both processes, and the client decides what to do
        signal.signal(signal.SIGINT, lambda *_: None)
        for name in _FORWARDED:
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), lambda number, _: client.send_signal(number))
        status = client.wait()
    return 128 - status if status < 0 else status


def summary(metrics: Metrics, *, observed: bool = False) -> Iterator[str]:
    """Yield the lines of the summary that is printed at the end. `observed` says that the guard changed nothing."""
    requests, refused = metrics.get("requests"), metrics.get("refused")
    came, sent = (metrics.get("input.tokens", side=side) for side in ("received", "sent"))
    if not requests and not refused:
        yield "0 requests: the client did not use the guard; its requests to models were not guarded"
        return
    yield f"{counted(requests, 'request')}{f', {refused} refused' if refused else ''}"
    if came:
        yield f"input tokens: {came:,} came in, {sent:,} were sent ({sent / came:.0%})"
    kinds = ("input", "cached", "written", "output")
    billed, cached, written, output = (metrics.get("billed.tokens", kind=kind) for kind in kinds)
    if billed:
        caching = f"{cached:,} cached" + (f", {written:,} written to the cache" if written else "")
        yield f"the provider reported {billed:,} input ({caching}) and {output:,} output tokens"
    if held := metrics.get("billed.answers", group="holdout"):
        others = metrics.get("billed.answers") - held
        whole = metrics.get("billed.tokens", kind="input", group="holdout")
        each, rest = whole / held, (billed - whole) / max(1, others)
        yield f"held out: {counted(held, 'request')} of {each:,.0f} input tokens each, the others {rest:,.0f}"
    if rebilled := metrics.get("rebilled.tokens"):
        net = came - sent - rebilled
        outcome = "saved" if net >= 0 else "sending the whole histories would have cost less"
        yield f"{outcome}: {abs(net):,} input tokens, net of {rebilled:,} billed again after changes"
    masked, cuts = metrics.get("masked_requests"), metrics.get("cuts")
    subject = "nothing was changed; enforced, personal data would be" if observed else "personal data was"
    yield f"{subject} masked in {counted(masked, 'request')}; {counted(cuts, 'cut')}"
    if read := metrics.get("read_backs"):
        yield f"the model read back {counted(read, 'time')} what was shortened or had left; what was sent includes this"
