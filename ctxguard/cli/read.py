"""The command `ctxguard read`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ctxguard.cli.options import spread
from ctxguard.errors import ConfigError
from ctxguard.report.printing import note, out, working

if TYPE_CHECKING:
    from ctxguard.content.reader import FileExtractionResult


@spread("read")
def read(
    file: Path,
    counter: str = "auto",
    model: str | None = None,
    lines: str | None = None,
    rows: str | None = None,
    max_tokens: int | None = None,
    root: Path | None = None,
    exact: bool = False,
    config: Path | None = None,
    as_json: bool = False,
) -> None:
    """Show a shortened view of any file: it keeps the structure of the file, and says how much there is in total."""
    from ctxguard.config import load_context_config
    from ctxguard.content.reader import read_file
    from ctxguard.tokens import find_counter

    if lines and rows:
        raise typer.BadParameter("give --lines or --rows, not both")
    with working(f"reading {file}"):
        result = read_file(
            file,
            load_context_config(config),
            root=root,
            lines=parse_range(lines, "--lines"),
            rows=parse_range(rows, "--rows"),
            max_tokens=max_tokens,
            counter=find_counter(counter, model=model),
            exact_totals=exact,
        )
    if as_json:
        out(_as_json(result))
    if not result.success:
        note(result.error or "")
        raise typer.Exit(2)
    if not as_json:
        out(str(result.content).encode("utf-8", "replace").decode().removesuffix("\n"))


def parse_range(text: str | None, option: str) -> tuple[int, int] | None:
    """Parse a range of numbers: `A:B`, `A:`, `:B`, or `A` for a single one."""
    if text is None:
        return None
    first, colon, last = text.partition(":")
    try:
        span = int(first or 1), int(last) if last else int(first) if not colon else sys.maxsize
    except ValueError:
        span = (0, 0)
    if span[0] < 1 or span[1] < span[0]:
        raise ConfigError(f"{option} {text!r} is not a range; write A:B with 1 <= A <= B", setting=option.lstrip("-"))
    return span


def _as_json(result: FileExtractionResult) -> str:
    values = asdict(result)
    if isinstance(image := values["content"], dict):
        image["bytes"] = len(image.pop("data"))
    return json.dumps(values, ensure_ascii=False, indent=1, default=str)
