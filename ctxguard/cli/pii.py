"""`ctxguard pii`: search files for personal data, mask them, and score rules on marked texts."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from ctxguard.cli.options import rule_names, settings_of, spread
from ctxguard.cli.program import Command, command_group
from ctxguard.errors import ConfigError, SessionFileError, reason_of
from ctxguard.report.printing import counted, note, out, printable, refuse_overwriting, working

if TYPE_CHECKING:
    from ctxguard.pii.evaluation import Score, Scores
    from ctxguard.pii.scanning import Place
    from ctxguard.pii.spans import Detector


app = command_group("pii", "Find, mask, and score personal data.")
PRESIDIO = "presidio"


@app.callback()
def main() -> None:
    """Find, mask, and score personal data."""


@app.command("scan", cls=Command)
@spread("pii scan")
def scan_files(
    files: list[str],
    rules: str | None = None,
    config: Path | None = None,
    report: Literal["text", "json"] = "text",
    output: Path | None = None,
    html: Path | None = None,
) -> None:
    """Search files for personal data: print type and position of each finding, never the value.

    Positions in documents and spreadsheets are those in their text. A file that cannot be searched is named, and the
    others are searched.

    Exit codes: 0 nothing was found; 1 something was found; 2 nothing was found, and a file could not be searched.
    """
    from ctxguard.checks.no_pii import limits_of
    from ctxguard.pii.scanning import scan_file_text

    for path in (output, html):
        refuse_overwriting(path, files)
    detectors = find_detectors(rules, config)
    found: dict[str, Sequence[Place]] = {}
    unread: dict[str, str] = {}
    for file in _files_below(files):
        with working(f"searching {file}"):
            try:
                found[file] = scan_file_text(_text_of(file), detectors)
            except (SessionFileError, ImportError) as error:
                unread[file] = str(error).removeprefix(f"{file}: ")
    for file, reason in unread.items():
        note(f"{file}: {reason}")
    if not found:
        raise typer.Exit(2)
    names = ",".join(detector.name for detector in detectors)
    limits = "; ".join(limits_of(detectors))
    out(_scan_json(found, unread, names, limits) if report == "json" else _scan_text(found, unread, limits), output)
    if html is not None:
        from ctxguard.report.page import findings_page

        total = counted(sum(map(len, found.values())), "finding")
        out(findings_page(found, names, f"Personal data in {counted(len(found), 'file')}: {total}", unread), html)
    if any(found.values()) or unread:
        raise typer.Exit(1 if any(found.values()) else 2)


def _files_below(names: Sequence[str]) -> Iterator[str]:
    """Yield the files that are named, and the files in the folders that are named, in order.

    Raises:
        ConfigError: If a folder contains no file.
    """
    for name in names:
        if not Path(name).is_dir():
            yield name
            continue
        below = sorted(str(path) for path in Path(name).rglob("*") if path.is_file())
        if not below:
            raise ConfigError(f"{name} contains no file", setting="files")
        yield from below


def _text_of(file: str) -> str:
    """Return the text of a file that is to be searched: a text, also gzipped, a PDF, a document, or a spreadsheet.

    Raises:
        SessionFileError: If the file cannot be read, or has no text.
        ImportError: If the package that reads such documents is not installed.
    """
    from ctxguard.content.opening import RefusedError
    from ctxguard.content.whole import whole_text
    from ctxguard.harness.recordings import is_url, read_text

    if file == "-" or is_url(file) or file.lower().endswith(".gz"):
        return read_text(file)
    try:
        return whole_text(Path(file))
    except RefusedError as error:
        raise SessionFileError(file, str(error)) from None
    except OSError as error:
        raise SessionFileError(file, reason_of(error)) from error


@app.command("mask", cls=Command)
@spread("pii mask")
def mask_file(
    file: str,
    rules: str | None = None,
    config: Path | None = None,
    strategy: Literal["redact", "pseudonymize", "partial"] | None = None,
    output: Path | None = None,
) -> None:
    """Print a file with personal data masked; JSON stays valid, and all other text stays unchanged."""
    from ctxguard.checks.no_pii import limits_of
    from ctxguard.config import load_context_config
    from ctxguard.harness.recordings import read_text
    from ctxguard.pii.scanning import mask_file_text

    refuse_overwriting(output, [file])
    detectors = find_detectors(rules, config)
    chosen = strategy or load_context_config(config).pii.strategy or "redact"
    with working(f"masking {file}"):
        masked = mask_file_text(read_text(file), detectors, strategy=chosen)
    for limit in limits_of(detectors):
        note(limit)
    if output is not None:
        out(masked, output, end="")
    else:
        sys.stdout.write(printable(masked) if sys.stdout.isatty() else masked)


@app.command("eval", cls=Command)
@spread("pii eval")
def evaluate_file(
    file: str,
    rules: str | None = None,
    config: Path | None = None,
    labels: str = "",
    as_json: bool = False,
) -> None:
    """Score rules on a file of labeled texts: precision, recall, F1, and F2 by label, and throughput."""
    from ctxguard.pii.detectors import joined
    from ctxguard.pii.evaluation import evaluate, read_gold

    wanted = [label.strip() for label in labels.split(",") if label.strip()] or None
    detectors = find_detectors(rules, config)
    if len(detectors) > 1 and any(detector.name == PRESIDIO for detector in detectors):
        raise ConfigError("presidio must be scored alone; leave out the other rules", setting="rules")
    with working(f"scoring {file}"):
        scores = evaluate(joined(detectors), read_gold(file), labels=wanted)
    out(json.dumps(scores.to_dict(), indent=2) if as_json else _score_table(scores))


@app.command("explain", cls=Command)
@spread("pii explain")
def explain_file(file: str, rules: str | None = None, config: Path | None = None) -> None:
    """Show for each finding which rule made it, and for each near miss which condition failed; never print the value.

    A near miss fails only one condition: the word that its rule requires is missing, its check digits are wrong, or it
    is on your allow list.
    """
    from ctxguard.pii.rule_sets import RuleSet
    from ctxguard.pii.scanning import explain_file_text

    detector = find_detectors(rules, config)[0]
    if not isinstance(detector, RuleSet):
        raise ConfigError(f"{detector.name} cannot explain its findings; name other rules", setting="rules")
    with working(f"explaining {file}"):
        reasons = explain_file_text(_text_of(file), detector)
    for place, rule, fault in reasons:
        out(f"{file}:{place} {f'not found by {rule}: {fault}' if fault else f'found by {rule}'}")


@app.command("init", cls=Command)
@spread("pii init")
def write_config(file: Path = Path("ctxguard.yaml")) -> None:
    """Write a configuration file to start from, with each setting for your own rules as a comment."""
    from importlib import resources

    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(resources.files("ctxguard").joinpath("data/own_rules.yaml").read_text(encoding="utf-8"))
    except FileExistsError:
        raise ConfigError(f"{file} already exists; name another file, or delete it", setting="file") from None
    out(f"wrote {file}; commands and Stabilizer.from_config() in its folder read it if it is named ctxguard.yaml")


def find_detectors(names: str | None, config: Path | None) -> list[Detector]:
    """Return the detectors named on the command line, or the configured ones if `names` is None.

    All rule sets, including the user's own rules in the configuration, are joined into one; Presidio is a separate
    detector.
    """
    from ctxguard.config import load_context_config
    from ctxguard.pii.detectors import PresidioDetector

    chosen = [] if names is None else rule_names(names)
    sets = [name for name in chosen if name != PRESIDIO]
    presidio: list[Detector] = [PresidioDetector()] if PRESIDIO in chosen else []
    settings_of(config)
    try:
        return [*(load_context_config(config).detectors(sets) if sets or not chosen else ()), *presidio]
    except ConfigError as error:
        raise ConfigError(f"{error}, {PRESIDIO}", setting=error.setting) from None


def _scan_text(found: Mapping[str, Sequence[Place]], unread: Mapping[str, str], limits: str) -> str:
    lines = [f"{file}:{place}" for file in found for place in found[file]]
    counts = Counter(place.label for places in found.values() for place in places)
    total = counted(sum(counts.values()), "finding")
    kinds = ", ".join(f"{count} {label}" for label, count in counts.most_common())
    summary = f"{total} in {counted(len(found), 'file')}" + (f": {kinds}" if kinds else "")
    missing = f"{counted(len(unread), 'file')} could not be searched" if unread else ""
    return "\n".join([*lines, "; ".join(filter(None, (summary, missing, limits)))])


def _scan_json(found: Mapping[str, Sequence[Place]], unread: Mapping[str, str], rules: str, limits: str) -> str:
    files = [
        {
            "file": file,
            "counts": dict(Counter(place.label for place in places).most_common()),
            "findings": [place._asdict() for place in places],
        }
        for file, places in found.items()
    ]
    skipped = [{"file": file, "reason": reason} for file, reason in unread.items()]
    ok = not any(found.values()) and not unread
    made = {"ok": ok, "rules": rules, "limits": limits, "files": files, "skipped": skipped}
    return json.dumps(made, ensure_ascii=False, indent=2)


def _rates(score: Score) -> tuple[float | None, ...]:
    """Return precision, recall, F1, and F2. A rate is None if its denominator is 0."""
    precision = score.precision if score.predicted else None
    recall = score.recall if score.gold else None
    f1, f2 = (None, None) if precision is None or recall is None else (score.f(1), score.f(2))
    return precision, recall, f1, f2


def _score_table(scores: Scores) -> str:
    rows = {**scores.labels, "all": scores.total}
    width = min(24, max(map(len, rows)))
    lines = [f"{'label':<{width}}{'gold':>6}{'found':>6}{'prec':>6}{'rec':>6}{'F1':>6}{'F2':>6}"]
    for label, score in rows.items():
        rates = "".join(f"{'–' if rate is None else f'{rate:.3f}':>6}" for rate in _rates(score))
        lines.append(f"{label:<{width}}{score.gold:>6}{score.predicted:>6}{rates}")
    return "\n".join([*lines, f"{scores.chars:,} characters at {scores.megabytes_per_second:.2f} MB/s"])
