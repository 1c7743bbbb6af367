"""Show a web page as readable text: headings, lists, table rows and links kept, scripts and styles left out."""

from __future__ import annotations

import html
import re

from ctxguard.content.processors.texts import TextShape
from ctxguard.content.views import Limits, Source, View

__all__ = ["HtmlShape", "page_text"]

_SAMPLE = 120_000
_RAW = ("script", "style", "noscript", "template", "svg", "iframe", "textarea")
_BLOCKS = frozenset(
    {
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "br",
        "dd",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "head",
        "header",
        "hr",
        "html",
        "label",
        "legend",
        "li",
        "main",
        "nav",
        "ol",
        "option",
        "p",
        "pre",
        "section",
        "select",
        "table",
        "tbody",
        "tfoot",
        "thead",
        "title",
        "tr",
        "ul",
    }
)
_OPENING = re.compile(r"<(?=[A-Za-z!?/])")
_SPACE = re.compile(r"\s+")
_TAG = re.compile(r"</?([A-Za-z][A-Za-z0-9-]*)")
_HREF = re.compile(r"""\bhref\s*=\s*(?:"([^"]{1,300})"|'([^']{1,300})'|([^\s>"']{1,300}))""", re.IGNORECASE)


class HtmlShape:
    """Show an HTML text as readable text.

    Args:
        source: the text.
        limits: `lines` and `line_length` count.
    """

    def __init__(self, source: Source, limits: Limits) -> None:
        end = min(source.head_end, _SAMPLE)
        partial = end < source.total
        text = page_text(source.text[:end])
        size = round(len(text) * source.total / max(1, end)) if partial else len(text)
        self._source = source
        self._shape = TextShape(
            Source(text, gap=len(text) if partial else None, size=size, handle=source.handle), limits
        )

    def view(self, room: int) -> View:
        """Return head and tail of the readable text."""
        if self._source.gap is None and len(self._source.text) <= room:
            return View(self._source.text, cut=False)
        view = self._shape.view(room)
        return View(view.text, cut=True, info=view.info)

    def resorts(self) -> tuple[str, ...]:
        """Return the text processor's last resorts."""
        return self._shape.resorts()


def page_text(page: str) -> str:
    """Return the readable text of an HTML page, in one pass over it."""
    parts: list[str] = []
    at, links = 0, [""]
    while at < len(page):
        found = _OPENING.search(page, at)
        opening = found.start() if found else len(page)
        parts.append(_plain(page[at:opening]))
        at = _after(page, opening, parts, links)
    # Runs of spaces go first: trimming around line breaks would take quadratic time on them.
    text = re.sub(r" {2,}", " ", "".join(parts))
    return re.sub(r"\n{3,}", "\n\n", re.sub(r" ?\n ?", "\n", text)).strip() + "\n"


def _plain(text: str) -> str:
    if text.isspace():
        return " "
    return _SPACE.sub(" ", html.unescape(text) if "&" in text else text)


def _after(page: str, opening: int, parts: list[str], links: list[str]) -> int:
    """Write what a tag stands for and return where the text goes on."""
    if page.startswith("<!--", opening):
        return _past(page, "-->", opening + 4)
    tag = _TAG.match(page, opening)
    end = _past(page, ">", opening + 1)
    if tag is None:
        return end
    name, closes = tag[1].lower(), page[opening + 1] == "/"
    if name in _RAW and not closes:
        close = re.compile(rf"</{name}\b", re.IGNORECASE).search(page, end)
        return _past(page, ">", close.start()) if close else len(page)
    parts.append(_written(name, page[opening:end], links, closes=closes))
    return end


def _past(page: str, sign: str, start: int) -> int:
    end = page.find(sign, start)
    return len(page) if end < 0 else end + len(sign)


def _written(name: str, tag: str, links: list[str], *, closes: bool) -> str:
    if name == "a":
        return _link(tag, links, closes=closes)
    if name in ("td", "th"):
        return " | " if closes else ""
    if name not in _BLOCKS:
        return ""
    if closes:
        return "\n"
    if name[0] == "h" and name[1:].isdigit():
        return f"\n\n{'#' * int(name[1:])} "
    return "\n- " if name == "li" else "\n"


def _link(tag: str, links: list[str], *, closes: bool) -> str:
    if not closes:
        target = _HREF.search(tag)
        links[0] = next(filter(None, target.groups()), "") if target else ""
        if links[0].startswith(("#", "javascript:", "data:")):
            links[0] = ""
        return "[" if links[0] else ""
    target_text, links[0] = links[0], ""
    return f"]({target_text})" if target_text else ""
