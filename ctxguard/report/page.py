"""HTML pages that are self-contained: no network access, no required scripts, and every value escaped by the template.

The templates are in `report/templates`. They need Jinja2, which the extra `html` installs.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

from ctxguard.artifacts import Artifact
from ctxguard.report.data import ReportData
from ctxguard.report.decisions import Decision, decision_runs
from ctxguard.settings import extra

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

MOST_PLACES: Final = 500
"""Maximum number of places that a page lists for each file."""
_NUMBER: Final = re.compile(r" message \d+")
MOST_TEXT: Final = 3_000
"""Maximum number of characters of a text that a page shows. The middle of a longer text is left out."""
_HEAD: Final = 2_000  # number of characters shown from the start of a long text
_PLACEHOLDER: Final = re.compile(r"\[REDACTED[A-Z_]*\]|&lt;[A-Z][A-Z_]*_\d+&gt;")
Row = tuple[Decision, str | None, str | None]
"""A decision, and the message's text before and after stabilizing.

The first text is None for an added message, and the second is None for a dropped one.
"""


def render(template: str, filters: Mapping[str, Callable[..., object]] | None = None, **values: object) -> Markup:
    """Render a template of `report/templates` with the given values, each of them escaped.

    Args:
        template: File name of the template.
        filters: Further functions that format values, by name.
        **values: Values of the template's variables.

    Raises:
        ImportError: If Jinja2 is not installed.
    """
    environment = _environment()
    from markupsafe import Markup  # imported here because Jinja2 brings it

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
    made.filters.update(number=lambda value: f"{value:,}", marked=_highlight)
    made.globals["release"] = sys.modules["ctxguard"].__version__  # an import would be circular
    return made


def _highlight(text: str) -> Markup:
    """Escape a text, shorten it if it is long, and highlight the placeholders of masked values."""
    from markupsafe import Markup, escape

    if len(text) > MOST_TEXT:
        left_out = len(text) - MOST_TEXT
        text = f"{text[:_HEAD]}\n… {left_out:,} characters are not shown here …\n{text[_HEAD - MOST_TEXT :]}"
    return Markup(_PLACEHOLDER.sub(r"<mark>\g<0></mark>", str(escape(text))))  # noqa: S704 - escaped in the same expression


def calls_page(reports: Sequence[ReportData], *, title: str = "", show_originals: bool = False) -> str:
    """Return the HTML page of one or more model calls. With `show_originals`, the page contains personal data."""
    several = f"{len(reports):,} model calls" if len(reports) > 1 else "One model call"
    calls = [(report, list(message_rows(report, show_originals=show_originals))) for report in reports]
    return str(render("calls.html", title=title or f"{several}, before and after", calls=calls))


class FoundPlace(Protocol):
    """The position of a finding in a file, such as `ctxguard.pii.scanning.Place`."""

    @property
    def line(self) -> int:
        """Line number, starting at 1."""

    @property
    def column(self) -> int:
        """Column in characters, starting at 1."""

    @property
    def label(self) -> str:
        """The label of the finding."""

    @property
    def place(self) -> str:
        """The place in words; empty if it has none."""


def findings_page(
    found: Mapping[str, Sequence[FoundPlace]], rules: str, title: str, unread: Mapping[str, str] | None = None
) -> str:
    """Return the HTML page on the personal data in files: types and places, never a value.

    Args:
        found: The findings by file.
        rules: Names of the rule sets.
        title: Title of the page.
        unread: The files that could not be searched, with the reasons.

    Raises:
        ImportError: If Jinja2 is not installed.
    """
    every = [place for places in found.values() for place in places]
    labels = Counter(place.label for place in every)
    where = Counter(_NUMBER.sub(" a message", place.place) or "elsewhere" for place in every)
    files = sorted(found.items(), key=lambda each: (-len(each[1]), each[0]))
    made = render(
        "findings.html",
        title=title,
        files=files,
        unread=dict(unread or {}),
        labels=labels,
        where=where,
        rules=rules,
        most=MOST_PLACES,
    )
    return str(made)


def notebook_html(report: ReportData, artifacts: Sequence[Artifact] = ()) -> str | None:
    """Return a report as an HTML fragment for notebooks.

    Return None if Jinja2 is not installed; a notebook then shows the plain text.
    """
    try:
        return str(render("notebook.html", report=report, runs=decision_runs(report.decisions), artifacts=artifacts))
    except ImportError:
        return None


def message_rows(report: ReportData, *, show_originals: bool = False) -> Iterator[Row]:
    """Yield each message of a call before and after stabilizing. With `show_originals`, the former is not masked."""
    for decision in report.decisions:
        position = decision.position
        before = None if position is None else shown_text(report.original(position, masked=not show_originals))
        yield decision, before, shown_text(decision.artifact) if decision.tokens_after else None


def shown_text(artifact: Artifact) -> str:
    """Return what a model reads of an artifact: its text, and its calls with their arguments."""
    calls = (f"{call.name}({call.arguments})" for call in artifact.calls)
    return "\n".join(part for part in (artifact.text, *calls) if part)


@dataclass(frozen=True, slots=True)
class Chart:
    """A line chart over the calls of a session, in a coordinate system of 100 by 100.

    Attributes:
        title: Title of the chart.
        count: Number of calls.
        top: Largest figure, with its unit.
        keys: Legend: a CSS class and a name for each line.
        paths: A CSS class and an SVG path for each line.
        cuts: Horizontal positions of the calls with a cut.
        level: Vertical position of the budget line; None if there is no such line.
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
    """Build a chart of figures over the calls of a session.

    Args:
        title: Title of the chart.
        lines: For each line, its name, its CSS class, and one figure for each call.
        level: Budget, drawn as a horizontal line unless it is far above all figures; None draws no line.
        cuts: Numbers of the calls with a cut, from 1.
        top: Largest figure, with its unit.
    """
    count = max((len(figures) for _, _, figures in lines), default=0)
    largest = max((f for _, _, figures in lines for f in figures), default=0)
    if level is not None and level > 3 * largest:  # a budget line this high would flatten the other lines
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
