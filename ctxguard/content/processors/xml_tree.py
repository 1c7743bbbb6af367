"""Shorten XML to smaller well-formed XML; comments say what is missing. Entities are never expanded."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from ctxguard.content.processors.text import shorten
from ctxguard.content.processors.tree import head_and_tail, most_entries, share_out, split_limit
from ctxguard.content.views import Limits, Source, TruncationInfo, View

_SAMPLE = 131_072  # characters from the start of a document that are read
_MAX_DEPTH = 500  # levels of a document; a deeper one is shown as text
_MAX_DRAWN = 80  # levels that are shown: each takes a few frames of Python's stack
_COMMENT = 32  # characters that are reserved for a comment on missing elements


@dataclass(slots=True)
class _Element:
    """An element: its name, its attributes as written, its children in order, and its length in characters."""

    name: str
    attributes: list[str]
    children: list[_Element | str] = field(default_factory=list)
    size: int = 0


class XmlProcessor:
    """Shows an XML text without its comments and processing instructions.

    Of the `Limits`, `depth` and `string` apply. If two child elements have the same name, the limits on items apply to
    all child elements. Otherwise, `keys` applies to them, and also to attributes.

    Raises:
        ValueError: If the text is not well-formed, declares entities, or is nested deeper than 500 levels.
    """

    def __init__(self, source: Source, limits: Limits) -> None:
        self._source, self._limits = source, limits
        builder = _Builder()
        text = source.text[: min(source.head_end, _SAMPLE)]
        self._partial = len(text) < source.total
        self._root = builder.parse(text, partial=self._partial)
        self._cuts = 0

    def view(self, available: int) -> View:
        """Return the document within the available characters."""
        self._cuts = 0
        marker = f"<!-- {self._note()} -->"
        whole = self._root.size <= available and not self._partial
        drawn = self._draw(self._root, available - (0 if whole else len(marker)), 0)
        cut = bool(self._cuts) or self._partial
        info = TruncationInfo(items_total=self._total(), totals_exact=not self._partial)
        if not cut or (not self._partial and len(drawn) + len(marker) >= len(self._source.text) <= available):
            return View(self._source.text, cut=False, info=info)
        return View(f"{drawn}\n{marker}", cut=True, info=info)

    def fallbacks(self) -> tuple[str, ...]:
        """Return an empty outermost element with the handle or a note in a comment, then without it, then `<x/>`."""
        name = self._root.name
        return f"<{name}/><!-- {self._source.handle or self._note()} -->", f"<{name}/>", "<x/>"

    def _total(self) -> int | None:
        return None if self._partial else sum(isinstance(child, _Element) for child in self._root.children)

    def _note(self) -> str:
        total = "the rest was not read" if self._partial else f"{self._total()} elements inside the outermost"
        return self._source.note(f"shortened; {total}; {self._source.total} characters in all")

    def _draw(self, element: _Element, available: int, depth: int) -> str:
        if not element.children:
            return f"<{self._head(element, available)}/>"
        limit = self._limits.depth
        if (limit is not None and depth >= limit) or depth >= _MAX_DRAWN:
            self._cuts += 1
            return f"<{element.name}><!-- {len(element.children)} inside --></{element.name}>"
        head = self._head(element, available)
        inner = self._inside(element.children, available - len(head) - len(element.name) - 5, depth)
        return f"<{head}>{inner}</{element.name}>"

    def _head(self, element: _Element, available: int) -> str:
        """Return the name of an element, followed by its attributes if they fit."""
        shown = element.attributes[: self._limits.keys]
        head = " ".join([element.name, *shown])
        if element.size > available and len(head) > max(available // 2, 20):
            shown, head = [], element.name
        self._cuts += len(element.attributes) - len(shown)
        return head

    def _inside(self, children: list[_Element | str], available: int, depth: int) -> str:
        sizes = [_size(child) for child in children]
        count, head, tail = len(children), len(children), 0
        most = split_limit(count, self._limits.keys) if _is_record(children) else most_entries(count, self._limits)
        if sum(most) < count or sum(sizes) > available:
            head, tail = head_and_tail(count, available, most, sizes.__getitem__)
        kept = [*children[:head], *children[count - tail :]]
        skipped = count - len(kept)
        shares = share_out([_size(child) for child in kept], available - (_COMMENT if skipped else 0))
        drawn = [self._child(child, share, depth) for child, share in zip(kept, shares, strict=True)]
        if skipped:
            self._cuts += skipped
            drawn.insert(head, f"<!-- {skipped} of {count} not shown -->")
        return "".join(drawn)

    def _child(self, child: _Element | str, available: int, depth: int) -> str:
        if isinstance(child, _Element):
            return self._draw(child, available, depth + 1)
        limit = self._limits.string
        short = shorten(child, max(1, available if limit is None else min(available, limit)))
        self._cuts += short != child
        return escape(short)


def _is_record(children: list[_Element | str]) -> bool:
    """Return whether all child elements have different names, so that they are fields rather than items."""
    names = [child.name for child in children if isinstance(child, _Element)]
    return len(set(names)) == len(names)


def _size(child: _Element | str) -> int:
    return len(child) if isinstance(child, str) else child.size


class _Builder:
    """Builds elements from the events of expat, without recursion."""

    def __init__(self) -> None:
        self._stack = [_Element("", [])]  # the document, then the elements that are open
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.EntityDeclHandler = self._entity

    def parse(self, text: str, *, partial: bool) -> _Element:
        try:
            self._parser.Parse(_without_declaration(text), not partial)
        except expat.ExpatError as error:
            raise ValueError(f"not well-formed: {error}") from None
        while len(self._stack) > 1:
            self._end(self._stack[-1].name)
        root = next((child for child in self._stack[0].children if isinstance(child, _Element)), None)
        if root is None:
            raise ValueError("contains no element")
        return root

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._stack) > _MAX_DEPTH:
            raise ValueError(f"nested deeper than {_MAX_DEPTH}")
        written = [f"{key}={quoteattr(value)}" for key, value in attributes.items()]
        element = _Element(name, written, size=len(name) + sum(len(each) + 1 for each in written) + 3)
        self._stack[-1].children.append(element)
        self._stack.append(element)

    def _end(self, name: str) -> None:
        element = self._stack.pop()
        element.children = [child for child in element.children if not isinstance(child, str) or child.strip()]
        element.size += sum(map(_size, element.children)) + (len(name) + 2 if element.children else 0)

    def _text(self, text: str) -> None:
        self._stack[-1].children.append(text)

    def _entity(self, *_declaration: object) -> None:
        raise ValueError("declares entities, which are not expanded")


def _without_declaration(text: str) -> str:
    """Remove the XML declaration. The encoding that it names no longer applies, because the text is decoded."""
    text = text.lstrip("\ufeff \t\r\n")
    return text[text.find("?>") + 2 :] if text.startswith("<?xml") else text
