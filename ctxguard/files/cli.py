"""The command `ctxguard read`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ctxguard.report.printing import note, printable

if TYPE_CHECKING:
    from ctxguard.files.reader import FileExtractionResult

__all__ = ["read"]


def read(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to show: text, table, document, image, archive.")
    ],
    lines: Annotated[str | None, typer.Option("--lines", metavar="A:B", help="Show lines A to B, from 1.")] = None,
    rows: Annotated[
        str | None, typer.Option("--rows", metavar="A:B", help="Show rows A to B of a table, from 1.")
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            "-n",
            min=1,
            help="Tokens the view may have.",
            show_default="5000, or that of the configuration",
        ),
    ] = None,
    root: Annotated[
        Path | None, typer.Option("--root", help="Read nothing outside of this folder; without it any file.")
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Count the lines of large files, which reads all of them.")
    ] = False,
    counter: Annotated[
        str,
        typer.Option(
            "--counter", help="What counts tokens: auto (exact where it can be), estimate, o200k_base or cl100k_base."
        ),
    ] = "auto",
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="Configuration file, YAML, in place of ctxguard.yaml or config.yaml here."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the view with its numbers as JSON.")] = False,
) -> None:
    """Show a bounded view of any file: its type's structure kept, its size told."""
    from ctxguard.config import load_context_config
    from ctxguard.files.reader import read_file

    if lines is not None and rows is not None:
        raise typer.BadParameter("--lines and --rows exclude each other; name the one to show")
    result = read_file(
        file,
        load_context_config(config),
        root=root,
        lines=_range(lines, "--lines"),
        rows=_range(rows, "--rows"),
        max_tokens=max_tokens,
        counter=counter,
        exact_totals=exact,
    )
    if as_json:
        typer.echo(printable(_as_json(result)))
    if not result.success:
        note(result.error or "")
        raise typer.Exit(2)
    if not as_json:
        _print(result.content)


def _range(text: str | None, option: str) -> tuple[int, int] | None:
    """Read `A:B`, `A:` or `:B`."""
    if text is None:
        return None
    first, colon, last = text.partition(":")
    try:
        span = int(first or 1), int(last) if last else int(first) if not colon else sys.maxsize
    except ValueError:
        span = (0, 0)
    if span[0] < 1 or span[1] < span[0]:
        raise typer.BadParameter(f"{text!r} is not a range; write A:B with 1 <= A <= B", param_hint=option)
    return span


def _print(content: object) -> None:
    from ctxguard.files.images import BinaryContent

    if isinstance(content, BinaryContent):
        size = f"{content.width}x{content.height} pixels, {len(content.data)} bytes"
        typer.echo(f"{content.mime_type}, {size}")
        return
    text = printable(str(content).encode("utf-8", "replace").decode())
    typer.echo(text, nl=not text.endswith("\n"))


def _as_json(result: FileExtractionResult) -> str:
    values = asdict(result)
    content = result.content
    if content is not None and not isinstance(content, str):
        values["content"] = {
            "mime_type": content.mime_type,
            "width": content.width,
            "height": content.height,
            "bytes": len(content.data),
        }
    return json.dumps(values, ensure_ascii=False, indent=1, default=str)
