"""One self-contained HTML page: its frame, charts and tables. No server, no network, no script that it needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_OPEN_FOR_PRINT = (
    "addEventListener('beforeprint',()=>document.querySelectorAll('details.session').forEach(d=>{d.open=true}))"
)


def page(title: str, body: str) -> str:
    """Return a page from its title, as text, and its body, as HTML."""
    style = files("ctxguard").joinpath("report/page.css").read_text(encoding="utf-8")
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width,initial-scale=1'>"
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>{body}</main>"
        f"<script>{_OPEN_FOR_PRINT}</script></body></html>"
    )


def words(sentences: Sequence[str], *, is_good: bool) -> str:
    """Return the headline figures in words."""
    told = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    return f"<div class='words{'' if is_good else ' bad'}'>{told}</div>"


def tiles(figures: Iterable[tuple[str, str]]) -> str:
    """Return figures with what they are, as tiles."""
    told = "".join(
        f"<div class='tile'><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in figures
    )
    return f"<div class='tiles'>{told}</div>"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: frozenset[int] = frozenset()) -> str:
    """Return a table of texts; `numbers` are the columns that are aligned as numbers."""
    mark = [" class='n'" if n in numbers else "" for n in range(len(heads))]
    head = "".join(f"<th{mark[n]}>{escape(text)}</th>" for n, text in enumerate(heads))
    body = "".join(
        "<tr>" + "".join(f"<td{mark[n]}>{escape(text)}</td>" for n, text in enumerate(row)) + "</tr>" for row in rows
    )
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def chart(
    title: str,
    lines: Sequence[tuple[str, str, Sequence[float]]],
    *,
    level: tuple[str, float] | None = None,
    cuts: Sequence[int] = (),
    top: str = "",
) -> str:
    """Return a chart of figures over the calls of a session.

    Args:
        title: what is shown.
        lines: a name, a class of the style sheet, and one figure for each call.
        level: a name and a figure that is drawn across.
        cuts: numbers of the calls that cut, from 1.
        top: the largest figure, with its unit.
    """
    count = max((len(figures) for _, _, figures in lines), default=0)
    largest = max((f for _, _, figures in lines for f in figures), default=0)
    # a budget far above everything else would flatten the lines
    level = level if level is not None and level[1] <= 3 * largest else None
    most = max(largest, level[1] if level else 0, 1e-12)
    marks = "".join(
        f"<line class='cut' x1='{x:.2f}' x2='{x:.2f}' y1='0' y2='100'/>" for x in (_x(cut - 1, count) for cut in cuts)
    )
    drawn = "".join(f"<path class='{style}' d='{_path(figures, count, most)}'/>" for _, style, figures in lines)
    keys = [(style, name) for name, style, _ in lines]
    if level is not None:
        y = 100 - 95 * level[1] / most
        marks += f"<line class='budget' x1='0' x2='100' y1='{y:.2f}' y2='{y:.2f}'/>"
        keys.append(("budget", level[0]))
    keys += [("cut", "cut")] if cuts else []
    legend = "".join(f"<span class='key'><i class='{style}'></i>{escape(name)}</span>" for style, name in keys)
    return (
        f"<figure><figcaption>{escape(title)}<br>{legend}</figcaption><div class='plot'>"
        f"<svg viewBox='0 0 100 100' preserveAspectRatio='none' role='img' aria-label='{escape(title, quote=True)}'>"
        f"{marks}{drawn}</svg><em>{escape(top)}</em></div>"
        f"<div class='axis'><span>call 1</span><span>call {count:,}</span></div></figure>"
    )


def _x(place: int, count: int) -> float:
    return 100 * place / max(count - 1, 1)


def _path(figures: Sequence[float], count: int, most: float) -> str:
    points = [f"{_x(n, count):.2f},{100 - 95 * figure / most:.2f}" for n, figure in enumerate(figures)]
    if len(points) == 1:
        points.append(f"100,{points[0].partition(',')[2]}")
    return "M" + "L".join(points) if points else ""
