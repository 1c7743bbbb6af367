"""The command `ctxguard mcp`: an MCP server on standard input and output.

Blocking work is done in threads by the SDK, which calls a tool in one unless it is a coroutine function. While it
serves, the SDK directs anything else that is written to standard output to standard error.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field, ValidationError

from ctxguard import __version__
from ctxguard.cli.options import spread
from ctxguard.cli.pii import find_detectors
from ctxguard.cli.read import parse_range
from ctxguard.cli.store import existing_store
from ctxguard.errors import ConfigError, CtxguardError
from ctxguard.report.printing import counted
from ctxguard.settings import extra

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

    from ctxguard.config import ContextConfig
    from ctxguard.pii.mask.masking_rules import Strategies
    from ctxguard.pii.spans import Detector

_MOST_PLACES: Final = 200
"""Maximum number of findings that are listed one by one, about 1,600 tokens; the others are only counted."""
_Text = Annotated[str, Field(description="The text: plain, JSON, or JSON Lines.")]
_Span = Annotated[str, Field(description="A:B, both counted from 1; A: for all from A on. Empty for a view of all.")]


@spread("mcp")
def mcp(
    root: Path = Path(),
    store: str | None = None,
    rules: str | None = None,
    strategy: Literal["redact", "pseudonymize", "partial"] | None = None,
    config: Path | None = None,
) -> None:
    """Serve tools over MCP: view files, find and mask personal data, and read results in full.

    An MCP client starts this command, and talks to it over standard input and output.
    """
    from ctxguard.config import load_context_config

    if not root.is_dir():
        raise ConfigError(f"{root} is not a folder; name the one to read files from", setting="root")
    detectors, settings = find_detectors(rules, config), load_context_config(config)
    tools = [
        *(_recalling(place) if (place := store or settings.stabilizer.store) else ()),
        _viewing(root.absolute(), settings),
        *_masking(detectors, strategy or settings.pii.strategy or "redact"),
    ]
    server = _server(tools)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python would wait for the thread that reads standard input
    try:
        server.run("stdio")
    except* BrokenPipeError:
        pass  # the client is gone


def _recalling(place: str) -> Sequence[Callable[..., object]]:
    """Return the tool that reads saved results. The store is opened by each call, so that it may be created later."""
    from ctxguard.content import recall_tool

    def recall(
        handle: Annotated[str, Field(description="The handle that the shortened text names, 20 letters.")],
        first_line: Annotated[int, Field(ge=1, description="First line to read, counted from 1.")] = 1,
        last_line: Annotated[int | None, Field(description="Last line; none for as many as one call returns.")] = None,
        contains: Annotated[str, Field(description="Read only lines that contain this text.")] = "",
    ) -> str:
        """Read lines of a tool result that was shortened or left out and names a handle, up to 2,000 tokens a call."""
        with existing_store(place) as kept:
            return _encodable(recall_tool(kept)(handle, first_line, last_line, contains or None))

    return [recall]


def _viewing(root: Path, settings: ContextConfig) -> Callable[..., object]:
    """Return the tool that shows files inside a folder."""
    from ctxguard.content import read_file
    from ctxguard.content.images import BinaryContent

    def view_file(
        path: Annotated[str, Field(description="The path, relative to the root folder or inside of it.")],
        max_tokens: Annotated[
            int | None, Field(ge=1, description="Tokens the view may have; 5,000, or as configured.")
        ] = None,
        lines: _Span = "",
        rows: Annotated[_Span, Field(description="The same for the rows of a table, instead of lines.")] = "",
    ) -> object:
        """View any file (text, table, document, image, archive) within a limit of tokens; it says how much there is."""
        from mcp.server.mcpserver import Image

        shown, chosen = parse_range(lines or None, "lines"), parse_range(rows or None, "rows")
        result = read_file(path, settings, root=root, max_tokens=max_tokens, lines=shown, rows=chosen)
        content = result.content
        if isinstance(content, BinaryContent):
            return Image(data=content.data, format=content.mime_type.removeprefix("image/"))
        if content is None:
            raise CtxguardError(str(result.error))
        return _encodable(content)

    return view_file


def _masking(detectors: Sequence[Detector], strategy: Strategies) -> Sequence[Callable[..., object]]:
    """Return the tools that find and mask personal data. Equal values get the same pseudonym in all calls."""
    from ctxguard.pii import Masker
    from ctxguard.pii.scanning import records, scan_file_text

    session, one_at_a_time = Masker(detectors, strategy=strategy, escape=False).session(), Lock()

    def find_personal_data(text: _Text) -> str:
        """Find personal data in a text: LINE:COLUMN: LABEL of each finding, both counted from 1, never the value."""
        places = scan_file_text(text, detectors)
        labels = Counter(place.label for place in places).most_common()
        lines = [f"{place.line}:{place.column}: {place.label}" for place in places[:_MOST_PLACES]]
        lines += [f"and {len(places) - _MOST_PLACES:,} more"] if len(places) > _MOST_PLACES else []
        kinds = ": " + ", ".join(f"{count} {label}" for label, count in labels) if labels else ""
        return "\n".join([*lines, counted(len(places), "finding") + kinds])

    def mask_personal_data(text: _Text) -> str:
        """Return a text with personal data masked. JSON stays valid, and everything else stays unchanged."""
        with one_at_a_time:
            return "".join(map(session.text, records(text)))

    return find_personal_data, mask_personal_data


def _server(tools: Sequence[Callable[..., object]]) -> MCPServer:
    """Return a server with these tools. What goes wrong in a tool is one line, which holds no argument."""
    with extra("mcp", "the MCP server is an extra"):
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp_types import ToolAnnotations

    class ToolServer(MCPServer):  # type: ignore[misc]  # types of the SDK are not loaded
        async def call_tool(self, name: str, arguments: dict[str, object], context: object = None) -> object:
            try:
                return await super().call_tool(name, arguments, context)
            except ToolError as error:
                if (message := _reason(error.__cause__)) is None:
                    raise
                raise ToolError(message) from None

    server = ToolServer("ctxguard", version=__version__, log_level="WARNING")
    for tool in tools:
        hints = ToolAnnotations(read_only_hint=True, open_world_hint=False)
        server.add_tool(tool, annotations=hints, structured_output=False)
    return server


def _reason(error: BaseException | None) -> str | None:
    """Return one line about arguments that do not fit or a call that failed as foreseen; None for anything else."""
    if isinstance(error, ValidationError):
        wrong = ((".".join(map(str, each["loc"])), each["msg"]) for each in error.errors())
        return "; ".join(f"{name}: {message[:1].lower()}{message[1:]}" for name, message in wrong)
    return _encodable(" ".join(str(error).split())) if isinstance(error, (CtxguardError, ImportError)) else None


def _encodable(text: str) -> str:
    """Return a text without lone surrogates, such as a path or JSON can contain and a message cannot."""
    return text.encode("utf-8", "replace").decode()
