"""HTML pages: self-contained, without network access or required scripts, every value escaped by the template engine.

The templates are in `report/templates`. They need Jinja2, which the extra `html` installs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ctxguard.artifacts import Artifact
from ctxguard.report.data import ReportData
from ctxguard.report.decisions import Decision, decision_runs
from ctxguard.settings import extra

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

MOST_TEXT: Final = 3_000
"""Characters of a text that a page shows. Longer texts are shown by their beginning and end."""
_HEAD: Final = 2_000  # characters of a long text that are shown from its start
_PLACEHOLDER: Final = re.compile(r"\[REDACTED[A-Z_]*\]|&lt;[A-Z][A-Z_]*_\d+&gt;")
Row = tuple[Decision, str | None, str | None]
"""A decision, and what a model reads of the message before and after; None where it is not there."""


def render(template: str, filters: Mapping[str, Callable[..., object]] | None = None, **values: object) -> Markup:
    """Return a template of `report/templates` filled with these values, each escaped.

    Args:
        template: the name of its file.
        filters: further functions that format values, by name.
        **values: the values of the template's variables.

    Raises:
        ImportError: Jinja2 is not installed.
    """
    from markupsafe import Markup

    environment = _environment()
    environment.filters.update(filters or {})
    return Markup(environment.get_template(template).render(values))  # noqa: S704 - the environment escapes


@lru_cache(maxsize=1)
def _environment() -> Environment:
    with extra("html", "HTML pages need Jinja2"):
        from jinja2 import Environment, PackageLoader, StrictUndefined
    made = Environment(
        autoescape=True,
        loader=PackageLoader("ctxguard", "report/templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(number=lambda value: f"{value:,}", marked=_marked)
    made.globals["release"] = sys.modules["ctxguard"].__version__  # an import would be circular
    return made


def _marked(text: str) -> Markup:
    """Return a text, its middle left out if it is long, with placeholders marked."""
    from markupsafe import Markup, escape

    if len(text) > MOST_TEXT:
        left_out = len(text) - MOST_TEXT
        text = f"{text[:_HEAD]}\n… {left_out:,} characters are not shown here …\n{text[_HEAD - MOST_TEXT :]}"
    return Markup(_PLACEHOLDER.sub(r"<mark>\g<0></mark>", str(escape(text))))  # noqa: S704 - escaped just now


def calls_page(reports: Sequence[ReportData], *, title: str = "", show_originals: bool = False) -> str:
    """Return the page of one model call or of several; `show_originals` shows personal data, too."""
    several = f"{len(reports):,} model calls" if len(reports) > 1 else "One model call"
    calls = [(report, list(message_rows(report, show_originals=show_originals))) for report in reports]
    return str(render("calls.html", title=title or f"{several}, before and after", calls=calls))


def notebook_html(report: ReportData, artifacts: Sequence[Artifact] = ()) -> str | None:
    """Return a report as a fragment for notebooks; None if Jinja2 is not installed, so that the plain text is shown."""
    try:
        return str(render("notebook.html", report=report, runs=decision_runs(report.decisions), artifacts=artifacts))
    except ImportError:
        return None


def message_rows(report: ReportData, *, show_originals: bool = False) -> Iterator[Row]:
    """Yield the messages of a call with their texts before and after; `show_originals` shows personal data, too."""
    for decision in report.decisions:
        position = decision.position
        before = None if position is None else shown_text(report.original(position, masked=not show_originals))
        yield decision, before, shown_text(decision.artifact) if decision.tokens_after else None


def shown_text(artifact: Artifact) -> str:
    """Return the text of an artifact as a model reads it, and its calls with their arguments."""
    calls = (f"{call.name}({call.arguments})" for call in artifact.calls)
    return "\n".join(part for part in (artifact.text, *calls) if part)


@dataclass(frozen=True, slots=True)
class Chart:
    """A line chart over the calls of a session, in a square of 100 by 100.

    Attributes:
        title: of the chart.
        count: number of calls.
        top: the largest figure, with its unit.
        keys: the legend: a class of the style sheet and a name.
        paths: a class, and the line as an SVG path.
        cuts: horizontal positions of the calls with a cut.
        level: vertical position of the budget line; None if it is far above all figures.
    """

    title: str
    count: int
    top: str
    keys: Sequence[tuple[str, str]]
    paths: Sequence[tuple[str, str]]
    cuts: Sequence[str]
    level: str | None


def chart(
    title: str,
    lines: Sequence[tuple[str, str, Sequence[float]]],
    *,
    level: float | None = None,
    cuts: Sequence[int] = (),
    top: str = "",
) -> Chart:
    """Return a chart of figures over the calls of a session.

    Args:
        title: of the chart.
        lines: a name, a class of the style sheet, and one figure for each call.
        level: the budget, drawn as a horizontal line.
        cuts: numbers of the calls with a cut, from 1.
        top: the largest figure, with its unit.
    """
    count = max((len(figures) for _, _, figures in lines), default=0)
    largest = max((f for _, _, figures in lines for f in figures), default=0)
    if level is not None and level > 3 * largest:  # it would flatten the lines
        level = None
    most = max(largest, level or 0, 1e-12)
    keys = [(style, name) for name, style, _ in lines]
    keys += [("budget", "budget")] if level is not None else []
    keys += [("cut", "cut")] if cuts else []
    return Chart(
        title,
        count,
        top,
        keys,
        [(style, _path(figures, count, most)) for _, style, figures in lines],
        [_x(cut - 1, count) for cut in cuts],
        None if level is None else _y(level, most),
    )


def _x(place: int, count: int) -> str:
    return f"{100 * place / max(count - 1, 1):.2f}"


def _y(figure: float, most: float) -> str:
    return f"{100 - 95 * figure / most:.2f}"


def _path(figures: Sequence[float], count: int, most: float) -> str:
    points = [f"{_x(n, count)},{_y(figure, most)}" for n, figure in enumerate(figures)]
    if len(points) == 1:
        points.append(f"100,{points[0].partition(',')[2]}")
    return "M" + "L".join(points) if points else ""
