"""What the pictures are drawn with: text and boxes in named colors, light or dark as the reader's screen is.

Each picture is drawn twice: `wide` for a page, `narrow` for a phone, where a wide one would be too small to read.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from textwrap import wrap
from xml.etree import ElementTree as ET

ASSETS = Path(__file__).resolve().parents[1] / "assets"
WIDE, NARROW, LEFT = 940, 400, 20
FACE = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
COLORS = {
    "ink": ("#1f2328", "#e4e6eb"),
    "grey": ("#59606d", "#a8afbc"),
    "line": ("#9aa1ad", "#7d8594"),
    "paper": ("#ffffff", "#1e2129"),
    "frame": ("#d8dce2", "#3b414d"),
    "step": ("#f6f7f9", "#282c36"),
    "on": ("#ffffff", "#14161b"),
    "red": ("#b42318", "#ff9285"),
    "amber": ("#8f5f00", "#dfa93f"),
    "blue": ("#2862c8", "#7aa8f7"),
    "green": ("#14774a", "#4cc38a"),
    "purple": ("#6f42c1", "#b39bf5"),
    "pink": ("#b03a81", "#ec8fc3"),
}
"""Names of colors: on a light screen, on a dark one. Text of the color `on` stands on any of the last six."""
Piece = tuple[str, str]
"""A part of a line: its text and the name of its color."""


class Picture:
    """A picture with a heading, on a sheet of its own color.

    Args:
        width: of the sheet; 1 is a pixel where it is shown at its own size.
        title: the heading.
    """

    def __init__(self, width: int, title: str) -> None:
        self.width, self.height = width, 0.0
        self.svg = ET.Element("svg", xmlns="http://www.w3.org/2000/svg", role="img", width=str(width))
        ET.SubElement(self.svg, "title").text = title
        ET.SubElement(self.svg, "style").text = _style()
        self.sheet = self.box(0.5, 0.5, width - 1, 0, "paper", rx="10")
        self.sheet.set("stroke", COLORS["frame"][0])
        self.sheet.set("class", "paper framed")
        self.top = 14.0
        for line in wrap(title, int((width - 2 * LEFT) / 8.6)):
            self.top += 21
            self.text(LEFT, self.top, line, size=16, weight="600")

    @property
    def is_wide(self) -> bool:
        """Whether it is drawn for a page."""
        return self.width == WIDE

    @property
    def room(self) -> float:
        """How wide a line may be."""
        return self.width - 2 * LEFT

    def text(self, x: float, y: float, content: str, *, size: float, weight: str = "400", color: str = "ink") -> None:
        """Write one line."""
        place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "font-size": str(size), "font-weight": weight, "font-family": FACE}
        ET.SubElement(self.svg, "text", {**place, **_paint(color)}).text = content

    def note(self, y: float, content: str, *, size: float = 12) -> float:
        """Write a remark over as many lines as it takes; return where the next one would stand."""
        for line in wrap(content, int(self.room / (size * 0.53))):
            self.text(LEFT, y, line, size=size, color="grey")
            y += size + 5
        return y

    def pieces(self, x: float, y: float, parts: Iterable[Piece], *, size: float = 12) -> None:
        """Write one line of colored parts, in letters of one width."""
        face = {"font-family": MONO, "xml:space": "preserve", "font-size": str(size)}
        line = ET.SubElement(self.svg, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", **face})
        for content, color in parts:
            bold = {"font-weight": "600"} if color in ("red", "amber") else {}
            ET.SubElement(line, "tspan", {**_paint(color), **bold}).text = content

    def box(self, x: float, y: float, width: float, height: float, color: str, **more: str) -> ET.Element:
        """Draw a filled box."""
        place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{width:.1f}", "height": f"{height:.1f}"}
        return ET.SubElement(self.svg, "rect", {**place, **_paint(color), **more})

    def line(self, points: Iterable[tuple[float, float]], color: str, **more: str) -> None:
        """Draw a line through points."""
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        style = {"fill": "none", "stroke": COLORS[color][0], "class": f"stroke-{color}", "stroke-width": "1.6"}
        ET.SubElement(self.svg, "polyline", {"points": drawn, **style, **more})

    def head(self, points: Iterable[tuple[float, float]], color: str) -> None:
        """Draw a filled shape, such as the head of an arrow."""
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        ET.SubElement(self.svg, "polygon", {"points": drawn, **_paint(color)})

    def drawn(self, height: float) -> str:
        """Return the picture as SVG, this high, an element a line; inside a text every blank is seen."""
        self.svg.set("viewBox", f"0 0 {self.width} {height:.0f}")
        self.sheet.set("height", f"{height - 1:.1f}")
        for child in self.svg:
            child.tail = "\n"
        return ET.tostring(self.svg, encoding="unicode") + "\n"


def _paint(color: str) -> dict[str, str]:
    return {"class": color, "fill": COLORS[color][0]}


def _style() -> str:
    """Return the rules for a dark screen; on a light one, and where rules are not read, the attributes hold."""
    fills = "".join(f".{name}{{fill:{dark}}}" for name, (_, dark) in COLORS.items())
    strokes = "".join(f".stroke-{name}{{stroke:{COLORS[name][1]}}}" for name in ("line", "red", "grey"))
    framed = f".framed{{stroke:{COLORS['frame'][1]}}}"
    return f"@media (prefers-color-scheme:dark){{{fills}{strokes}{framed}}}"
