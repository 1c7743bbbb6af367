"""Shorten a web page to its readable text, without scripts, and a browser snapshot to what can be acted on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ctxguard.settings import extra
from ctxguard.views.processors.text import TextProcessor, resorts, shorten
from ctxguard.views.views import Limits, Source, TruncationInfo, View

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode


_SAMPLE: Final = 120_000  # characters of a page that are read
_HIDDEN: Final = ["script", "style", "noscript", "template", "svg", "iframe", "textarea"]
_BLOCK: Final = re.compile(
    "address|article|aside|blockquote|body|br|caption|dd|details|dialog|div|dl|dt|fieldset|figcaption|figure|footer"
    "|form|head|header|hr|html|label|legend|li|main|nav|ol|option|p|pre|section|select|summary|table|tbody|tfoot"
    "|thead|title|tr|ul"
)
_HEADINGS: Final = {f"h{level}": f"\n\n{'#' * level} " for level in range(1, 7)}
_OTHER_LINKS: Final = ("#", "javascript:", "data:")


class HtmlProcessor(TextProcessor):
    """Shows the first 120,000 characters of an HTML page as text. Of the `Limits`, only those on lines apply."""

    def __init__(self, source: Source, limits: Limits) -> None:
        end = min(source.head_end, _SAMPLE)
        partial = end < source.total
        text = page_text(source.text[:end])
        size = round(len(text) * source.total / max(1, end)) if partial else len(text)
        self._page = source
        super().__init__(Source(text, gap=len(text) if partial else None, size=size, handle=source.handle), limits)

    def view(self, available: int) -> View:
        """Return the page itself if it fits; otherwise the start and the end of its readable text."""
        if self._page.gap is None and len(self._page.text) <= available:
            return View(self._page.text, cut=False)
        return replace(super().view(available), cut=True)


def page_text(page: str) -> str:
    """Return the readable text of an HTML page, which is parsed as browsers parse it.

    Scripts, styles, comments, images, and the values of form fields are left out.

    Raises:
        ImportError: If the extra `files` is not installed.
    """
    with extra("files", "reading web pages needs an extra"):
        from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(page.encode("utf-8", "replace").decode())
    tree.strip_tags(_HIDDEN)
    parts: list[str] = []
    node = tree.root
    while node is not None:  # no recursion, because the nesting of a page is unlimited
        parts.append(_opening(node))
        if node.child is not None:
            node = node.child
            continue
        while node is not None and node.next is None:
            parts.append(_closing(node))
            node = node.parent
        if node is not None:
            parts.append(_closing(node))
            node = node.next
    text = re.sub(r"[ \t]{2,}", " ", "".join(parts))
    return re.sub(r"\n{3,}", "\n\n", re.sub(r" ?\n ?", "\n", text)).strip() + "\n"


def _opening(node: LexborNode) -> str:
    tag = node.tag or ""
    if tag == "-text":
        return re.sub(r"\s+", " ", node.text_content or "")
    if tag == "a":
        return "[" if _target(node) else ""
    if tag == "li":
        return "\n- "
    return _HEADINGS.get(tag) or ("\n" if _BLOCK.fullmatch(tag) else "")


def _closing(node: LexborNode) -> str:
    tag = node.tag or ""
    if tag == "a":
        target = _target(node)
        return f"]({target})" if target else ""
    if tag in ("td", "th"):
        return " | "
    return "\n" if tag in _HEADINGS or _BLOCK.fullmatch(tag) else ""


def _target(node: LexborNode) -> str:
    target = (node.attributes.get("href") or "").strip()
    return "" if target.lower().startswith(_OTHER_LINKS) or len(target) > 300 else target


_SNAPSHOT_SAMPLE = 200_000  # characters of a snapshot that are read, half from each end
_LINE = 1_000  # longer lines, in characters, are shortened
_NARROW = 48  # characters of a line where many elements must fit
_ROLES = (
    "link|button|textbox|searchbox|combobox|checkbox|radio|switch|slider|spinbutton|option|menuitem|menuitemcheckbox"
    "|menuitemradio|tab|treeitem|listbox|input|select|textarea|a"
)
_INTERACTIVE = re.compile(
    rf"^\s*(?:- )?(?:\[[\w-]+\]\s*|uid=\S+\s+)?<?(?:{_ROLES})\b|\[cursor=pointer\]|^\s*\*?\[\d+\]\s*<"
    r"|\[(?:editable|focused)\]",
    re.IGNORECASE,
)
_LANDMARK = re.compile(
    r"^\s*(?:- )?(?:\[[\w-]+\]\s*|uid=\S+\s+)?(?:heading|RootWebArea|dialog|alert|status)\b"
    r"|^\s*- (?:Page |```)|^#|^Page "
)
_DETAIL = re.compile(r"^\s*- /(?:url|placeholder):")


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    level: int
    acts: bool
    marks: bool


class SnapshotProcessor:
    """Shows the snapshot of a web page down to the deepest level that fits.

    If no level fits, it shows interactive elements only.
    Of the `Limits`, only `depth` applies.
    """

    def __init__(self, source: Source, limits: Limits) -> None:
        self._whole = source
        self._source, self._limits = source.sampled(_SNAPSHOT_SAMPLE), limits
        self._lines = _read(self._source.text)
        self._acting = sum(line.acts for line in self._lines)
        self._deepest = max((line.level for line in self._lines), default=0)
        self._drawn: dict[int, list[str]] = {}

    def view(self, available: int) -> View:
        """Return the view with the largest number of levels that fits."""
        text = self._whole.text
        if len(text) <= available and self._limits.depth is None and self._whole.gap is None:
            return View(text, cut=False, info=self._info(len(self._lines)))
        free = available - len(self._marker(len(self._lines), self._acting)) - 1
        for depth in self._depths():
            drawn = self._down_to(depth)
            if sum(map(len, drawn)) + len(drawn) <= free:
                return self._view(drawn, whole=depth >= self._deepest)
        return self._only_acting(max(0, free))

    def fallbacks(self) -> tuple[str, ...]:
        """Return a note on what is shown, then only the handle or the number of interactive elements, then `…`."""
        return resorts(self._source, f"{self._acting} interactive elements")

    def _depths(self) -> Iterable[int]:
        """Return the levels to try, the deepest one first."""
        limit = self._deepest if self._limits.depth is None else min(self._deepest, self._limits.depth)
        return sorted({limit, *(depth for depth in (12, 9, 7, 5, 4, 3, 2, 1, 0) if depth < limit)}, reverse=True)

    def _down_to(self, depth: int) -> list[str]:
        if depth not in self._drawn:  # `view` is called several times until its tokens fit
            self._drawn[depth] = _draw(self._lines, depth, _LINE)
        return self._drawn[depth]

    def _only_acting(self, available: int) -> View:
        """Show interactive elements and landmarks; if these do not fit, interactive elements only, in shorter lines."""
        acting = [line for line in self._lines if line.acts or line.marks]
        only = [line for line in acting if line.acts] or acting
        for lines, length in ((acting, 200), (only, 200), (only, 80), (only, _NARROW)):
            if sum(min(len(line.text.strip()), length) + 1 for line in lines) <= available:
                return self._view([_short(line.text.strip(), length) for line in lines], whole=False)
        kept: list[str] = []
        for line in only:
            short = _short(line.text.strip(), _NARROW)
            available -= len(short) + 1
            if available < 0:
                break
            kept.append(short)
        return self._view(kept, whole=False)

    def _view(self, drawn: list[str], *, whole: bool) -> View:
        if whole and self._source.gap is None and drawn == [line.text for line in self._lines]:
            return View(self._source.text, cut=False, info=self._info(len(drawn)))
        acting = sum(_INTERACTIVE.search(line) is not None for line in drawn)
        shown = sum(_SIGN.match(line) is None for line in drawn)
        return View("\n".join([*drawn, self._marker(shown, acting)]), cut=True, info=self._info(shown))

    def _marker(self, shown: int, acting: int) -> str:
        read = "" if self._source.gap is None else f" that were read, of {self._source.line_count()} lines"
        text = f"{shown} of {len(self._lines)} elements{read} shown; {acting} of {self._acting} interactive"
        return f"[{self._source.note(text)}]"

    def _info(self, shown: int) -> TruncationInfo:
        return TruncationInfo(lines_shown=shown, lines_total=len(self._lines), totals_exact=self._source.exact)


def compress_snapshot(text: str, *, max_depth: int, preserve_interactive: bool = True) -> str:
    """Return a snapshot with at most `max_depth` levels; the outermost elements are level 1.

    Interactive elements are kept at any level, with the refs by which agents address them, unless
    `preserve_interactive` is False.
    """
    lines = _read(text)
    if not preserve_interactive:
        lines = [_Line(line.text, line.level, acts=False, marks=False) for line in lines]
    drawn = _draw(lines, max_depth - 1, _LINE)
    if drawn == [line.text for line in lines]:
        return text
    return "\n".join(drawn) + ("\n" if text.endswith("\n") else "")


def _read(text: str) -> list[_Line]:
    """Return the lines with their levels. Levels are counted from 0 and follow from the indentation."""
    lines, indents = [], [0]
    for raw in text.splitlines():
        if not raw.strip():
            continue
        indent = len(raw) - len(raw.lstrip(" \t"))
        while len(indents) > 1 and indent < indents[-1]:
            indents.pop()
        if indent > indents[-1]:
            indents.append(indent)
        acts = _INTERACTIVE.search(raw) is not None
        lines.append(_Line(raw, len(indents) - 1, acts, marks=not acts and _LANDMARK.search(raw) is not None))
    return lines


def _draw(lines: list[_Line], depth: int, length: int) -> list[str]:
    """Return the lines down to a level, and the interactive ones below. Notes say how many elements are missing."""
    out: list[str] = []
    hidden, indent = 0, ""
    for line in lines:
        if line.level <= depth or line.acts:
            if hidden:
                out.append(_sign(hidden, indent))
                hidden = 0
            out.append(_short(line.text, length))
        elif not _DETAIL.match(line.text):
            indent = indent if hidden else line.text[: len(line.text) - len(line.text.lstrip())]
            before = _SIGN.match(line.text)
            hidden += int(before[1]) if before else 1
    if hidden:
        out.append(_sign(hidden, indent))
    return out


_SIGN = re.compile(r"\s*\[… (\d{1,9}) elements?\]$")


def _sign(hidden: int, indent: str) -> str:
    return f"{indent}[… {hidden} element{'s' if hidden != 1 else ''}]"


_REF = re.compile(r"\[ref=[\w-]+\]")


def _short(text: str, length: int) -> str:
    """Shorten a line but keep its ref, such as `[ref=e12]`, by which an agent addresses the element."""
    if len(text) <= length:
        return text
    ref = _REF.search(text)
    if ref is None or ref.end() <= length - 1:
        return text[: length - 1] + "…"
    return shorten(text, length) if length < 20 else f"{text[: length - len(ref[0]) - 2]}… {ref[0]}"
