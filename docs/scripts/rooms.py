"""Draw the pictures of docs/how_it_works.md into docs/assets: `python docs/scripts/rooms.py`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

ASSETS = Path(__file__).resolve().parents[1] / "assets"
INK, GREY, LINE = "#1f2328", "#5b6270", "#9aa1ad"
PAPER, FRAME = "#ffffff", "#d8dce2"
BLUE, GREEN, AMBER, RED, PURPLE, PINK = "#2f6fdb", "#1a8f5a", "#c98a1b", "#b42318", "#6f42c1", "#c2418f"
WIDTH, LEFT = 940, 24
FACE = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


class Step(NamedTuple):
    """One box of a way: what happens there, in a line or two, and the module it happens in."""

    title: str
    told: tuple[str, ...]
    module: str
    colour: str


MESSAGE = (
    (
        Step("read", ("one artifact for each", "item of the history"), "adapters/", BLUE),
        Step("match", ("find the run that", "this history continues"), "session.py", GREY),
        Step("repair", ("answer open calls, drop", "results without a call"), "stages/repair_exchanges", GREEN),
        Step("expire", ("drop what has", "outlived its use"), "stages/expire_lifetimes", GREEN),
        Step("mask", ("every text, by", "the active rules"), "stages/mask_pii", GREEN),
    ),
    (
        Step("bound", ("fit each tool output", "to its limit, by type"), "stages/bound_tool_output", GREEN),
        Step("window", ("cut if the budget", "is hit"), "stages/stable_window", GREEN),
        Step("order", ("system, task,", "then the rest"), "stages/order_by_authority", GREEN),
        Step("check", ("judge what will", "be sent"), "checks/", AMBER),
        Step("write", ("the same objects, or", "copies with new text"), "adapters/", BLUE),
    ),
)
FINDING = (
    (
        Step("normalize", ("undo escapes and", "disguises, keep places"), "pii/detect/normalize", PURPLE),
        Step("prefilter", ("where can a rule", "match at all?"), "pii/detect/prefilter", PURPLE),
        Step("match", ("the expressions,", "there alone"), "pii/detect/match", PURPLE),
        Step("validate", ("check digits, phone", "plans, context words"), "pii/detect/validate", PURPLE),
        Step("choose", ("the longest, where", "findings overlap"), "pii/spans", PURPLE),
    ),
    (
        Step("mask", ("[REDACTED_EMAIL], or", "a pseudonym"), "pii/mask/masker", GREEN),
        Step("JSON", ("inside its strings,", "so that it still parses"), "pii/mask/json_text", GREEN),
        Step("vault", ("what stands behind", "a pseudonym"), "pii/mask/vault", GREEN),
        Step("NoPII", ("search everything", "that will be sent"), "checks/no_pii", AMBER),
        Step("unmask", ("give values back to", "tools and users"), "pii/mask/unmask", BLUE),
    ),
)


class Bar(NamedTuple):
    """One state of a window: what it holds, as shares of the budget."""

    label: str
    parts: tuple[tuple[str, float, str], ...]


_FIXED = (("system", 0.09, PURPLE), ("task", 0.07, BLUE))
_LATEST = ("latest", 0.12, GREEN)
_AFTER = (*_FIXED, ("trail", 0.11, PINK), ("kept", 0.07, AMBER))
_GOAL = 0.46
BUDGET = (
    Bar("1. the next message does not fit", (*_FIXED, ("old tool steps and talk", 0.76, AMBER), _LATEST)),
    Bar("2. old outputs become digests", (*_FIXED, ("talk, calls, digests", 0.53, AMBER), _LATEST)),
    Bar("3. so do the arguments of old calls", (*_FIXED, ("talk, digests", 0.44, AMBER), _LATEST)),
    Bar("4. exchanges leave, the trail tells", (*_AFTER, _LATEST)),
    Bar("5. prompts grow until the next cut", (*_AFTER, _LATEST, ("new", 0.4, GREEN))),
)


def canvas(height: float, title: str) -> ET.Element:
    """Return an empty picture with a heading."""
    size = {"viewBox": f"0 0 {WIDTH} {height:.0f}", "width": str(WIDTH), "role": "img"}
    svg = ET.Element("svg", xmlns="http://www.w3.org/2000/svg", **size)
    ET.SubElement(svg, "title").text = title
    box(svg, 0.5, 0.5, WIDTH - 1, height - 1, PAPER, stroke=FRAME, rx="10")
    text(svg, LEFT, 34, title, size=17, weight="600")
    return svg


def way(title: str, rows: tuple[tuple[Step, ...], ...], note: str) -> str:
    """Return a picture of boxes in rows, joined by arrows from the first to the last."""
    tall, gap, top = 92, 20, 56
    svg = canvas(top + len(rows) * (tall + 34) + 20, title)
    for number, steps in enumerate(rows):
        wide = (WIDTH - 2 * LEFT - gap * (len(steps) - 1)) / len(steps)
        y = top + number * (tall + 34)
        for place, step in enumerate(steps):
            x = LEFT + place * (wide + gap)
            draw_step(svg, step, x, y, wide, tall)
            if place:
                arrow(svg, x - gap + 2, y + tall / 2, x - 3, y + tall / 2)
        if number:
            turn(svg, y - 34, y, wide)
    text(svg, LEFT, top + len(rows) * (tall + 34), note, size=12, colour=GREY)
    return ET.tostring(svg, encoding="unicode") + "\n"


def draw_step(svg: ET.Element, step: Step, x: float, y: float, wide: float, tall: float) -> None:
    """Draw one box."""
    box(svg, x, y, wide, tall, "#f7f8fa", stroke=FRAME, rx="8")
    box(svg, x, y, 5, tall, step.colour, rx="2")
    text(svg, x + 14, y + 22, step.title, size=14, weight="600")
    for line, words in enumerate(step.told):
        text(svg, x + 14, y + 42 + 16 * line, words, size=12)
    text(svg, x + 14, y + tall - 10, step.module, size=10.5, colour=GREY)


def turn(svg: ET.Element, above: float, below: float, wide: float) -> None:
    """Draw the arrow from the end of one row to the beginning of the next."""
    middle = (above + below) / 2
    x, end = WIDTH - LEFT - wide / 2, LEFT + wide / 2
    points = f"{x:.1f},{above:.1f} {x:.1f},{middle:.1f} {end:.1f},{middle:.1f} {end:.1f},{below - 8:.1f}"
    ET.SubElement(svg, "polyline", {"points": points, "fill": "none", "stroke": LINE, "stroke-width": "1.6"})
    head = f"{end - 4:.1f},{below - 9:.1f} {end + 4:.1f},{below - 9:.1f} {end:.1f},{below - 2:.1f}"
    ET.SubElement(svg, "polygon", {"points": head, "fill": LINE})


def arrow(svg: ET.Element, x: float, y: float, to_x: float, to_y: float) -> None:
    """Draw an arrow from left to right."""
    line = {"x1": f"{x:.1f}", "y1": f"{y:.1f}", "x2": f"{to_x - 5:.1f}", "y2": f"{to_y:.1f}"}
    ET.SubElement(svg, "line", {**line, "stroke": LINE, "stroke-width": "1.6"})
    head = f"{to_x - 6:.1f},{to_y - 4:.1f} {to_x - 6:.1f},{to_y + 4:.1f} {to_x:.1f},{to_y:.1f}"
    ET.SubElement(svg, "polygon", {"points": head, "fill": LINE})


def budget() -> str:
    """Return the picture of a cut: the same budget, five moments."""
    first, tall, step = 288, 26, 46
    scale = (WIDTH - first - LEFT - 60) / 1.06
    svg = canvas(76 + step * len(BUDGET) + 24, "A budget on its way through the window")
    for number, bar in enumerate(BUDGET):
        x, y = float(first), 62 + number * step
        text(svg, LEFT, y + 18, bar.label, size=12.5)
        for words, share, colour in bar.parts:
            box(svg, x, y, share * scale, tall, colour, stroke=PAPER)
            if len(words) * 6.2 + 4 < share * scale:
                text(svg, x + 4, y + 17, words, size=10.5, colour=PAPER)
            x += share * scale
    for share, words, colour in ((1.0, "budget", RED), (_GOAL, "goal of a cut", GREY)):
        x, end = first + share * scale, 62 + step * len(BUDGET) - 12
        line = {"x1": f"{x:.1f}", "x2": f"{x:.1f}", "y1": "56", "y2": f"{end:.1f}"}
        ET.SubElement(svg, "line", {**line, "stroke": colour, "stroke-width": "1.6", "stroke-dasharray": "5 4"})
        text(svg, x + 5, end + 12, words, size=11.5, colour=colour)
    note = "Purple and blue never leave. A cut stops as soon as it has freed enough; sizes here are an example."
    text(svg, LEFT, 76 + step * len(BUDGET) + 6, note, size=12, colour=GREY)
    return ET.tostring(svg, encoding="unicode") + "\n"


def text(
    svg: ET.Element, x: float, y: float, content: str, *, size: float, weight: str = "400", colour: str = INK
) -> None:
    """Write one line."""
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "font-size": str(size), "font-weight": weight, "fill": colour}
    ET.SubElement(svg, "text", {**place, "font-family": FACE}).text = content


def box(svg: ET.Element, x: float, y: float, width: float, height: float, colour: str, **more: str) -> None:
    """Draw a filled box."""
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{width:.1f}", "height": f"{height:.1f}", "fill": colour}
    ET.SubElement(svg, "rect", {**place, **more})


def pictures() -> dict[str, str]:
    """Return all pictures by their file's name."""
    told = "Green: a stage. Blue: an adapter. Every change of a stage and every finding of a check is in the report."
    found = "The check NoPII takes a path of its own: every rule over everything that is sent, without the prefilter."
    return {
        "way_of_a_message.svg": way("A message on its way through the rooms", MESSAGE, told),
        "way_of_a_budget.svg": budget(),
        "way_of_a_finding.svg": way("A finding on its way through the rooms", FINDING, found),
    }


if __name__ == "__main__":
    for name, picture in pictures().items():
        (ASSETS / name).write_text(picture, encoding="utf-8")
        sys.stdout.write(f"{name}: written\n")
