"""`ctxguard pii`: score rules on marked texts."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from ctxguard.errors import CtxguardError

if TYPE_CHECKING:
    from ctxguard.pii.evaluation import Scores
    from ctxguard.pii.spans import Detector

__all__ = ["app"]

app = typer.Typer(help="Find and score personal data.", no_args_is_help=True, add_completion=False)


class RuleSetName(StrEnum):
    """Name what can be scored."""

    STANDARD = "standard"
    DIGITS = "digits"
    SSN = "ssn"
    PEOPLE = "people"
    STANDARD_PEOPLE = "standard+people"
    PRESIDIO = "presidio"


@app.callback()
def main() -> None:
    """Find and score personal data."""


@app.command("eval")
def evaluate_file(
    file: Annotated[str, typer.Argument(help='JSON lines, or .gz: {"text", "spans": [{"start", "end", "label"}]}.')],
    rules: Annotated[RuleSetName, typer.Option(help="What is scored.")] = RuleSetName.STANDARD,
    labels: Annotated[str, typer.Option(help="Labels that count, separated by commas; all where empty.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score a rule set on a gold file: precision, recall, F1 and F2 by type, throughput."""
    from ctxguard.pii.evaluation import evaluate, read_gold

    wanted = [label.strip() for label in labels.split(",") if label.strip()] or None
    try:
        scores = evaluate(_detector(rules), read_gold(file), labels=wanted)
    except (CtxguardError, ImportError) as error:
        typer.echo(f"ctxguard: {error}", err=True)
        raise typer.Exit(2) from None
    if as_json:
        typer.echo(json.dumps(scores.to_dict(), indent=2))
    else:
        _show(scores)


def _detector(name: RuleSetName) -> Detector:
    from ctxguard.pii.detectors import PresidioDetector
    from ctxguard.pii.rule_sets import named_rules

    return PresidioDetector() if name is RuleSetName.PRESIDIO else named_rules(*name.value.split("+"))


def _show(scores: Scores) -> None:
    table = Table(title=f"{scores.chars:,} characters at {scores.megabytes_per_second:.2f} MB/s")
    for title in ("label", "gold", "found", "precision", "recall", "F1", "F2"):
        table.add_column(title, justify="left" if title == "label" else "right")
    for label, score in (*scores.labels.items(), ("all", scores.total)):
        rates = (score.precision, score.recall, score.f(1), score.f(2))
        table.add_row(label, str(score.gold), str(score.predicted), *(f"{rate:.3f}" for rate in rates))
    Console().print(table)
