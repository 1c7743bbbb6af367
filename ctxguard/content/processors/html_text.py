"""Shorten a web page to its readable text with headings, lists, table rows, and links; scripts are left out."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ctxguard.content.processors.text import TextProcessor
from ctxguard.content.views import Limits, Source, View
from ctxguard.settings import extra

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
