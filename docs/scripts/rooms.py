"""Draw the pictures of docs/how_it_works.md into docs/assets: `python docs/scripts/rooms.py`."""

from __future__ import annotations

import sys
from typing import NamedTuple

from drawing import ASSETS, LEFT, NARROW, WIDE, Picture


class Step(NamedTuple):
    """One box of a way: what happens there, in a line or two, and the module it happens in."""

    title: str
    told: tuple[str, ...]
    module: str
    color: str


MESSAGE = (
    Step("read", ("one artifact for each", "item of the history"), "adapters/", "blue"),
    Step("match", ("find the run that", "this history continues"), "session.py", "line"),
    Step("repair", ("answer open calls, drop", "results without a call"), "stages/arrival", "green"),
    Step("expire", ("drop what has", "outlived its use"), "stages/arrival", "green"),
    Step("mask", ("every text, by", "the active rules"), "stages/mask_pii", "green"),
    Step("bound", ("fit each tool output", "to its limit, by type"), "stages/bound_tool_output", "green"),
    Step("window", ("cut if the budget", "is hit"), "stages/stable_window", "green"),
    Step("order", ("system, task,", "then the rest"), "stages/arrangement", "green"),
    Step("check", ("judge what will", "be sent"), "checks/", "amber"),
    Step("write", ("the same objects, or", "copies with new text"), "adapters/", "blue"),
)
FINDING = (
    Step("normalize", ("undo escapes and", "disguises, keep places"), "pii/detect/normalize", "purple"),
    Step("prefilter", ("where can a rule", "match at all?"), "pii/detect/prefilter", "purple"),
    Step("match", ("the expressions,", "there alone"), "pii/detect/match", "purple"),
    Step("validate", ("check digits, phone", "plans, context words"), "pii/detect/validate", "purple"),
    Step("choose", ("the longest, where", "findings overlap"), "pii/spans", "purple"),
    Step("mask", ("[REDACTED_EMAIL], or", "a pseudonym"), "pii/mask/session", "green"),
    Step("JSON", ("inside its strings,", "so that it still parses"), "pii/mask/json_text", "green"),
    Step("vault", ("the value behind", "each pseudonym"), "pii/mask/vault", "green"),
    Step("NoPII", ("search everything", "that will be sent"), "checks/no_pii", "amber"),
    Step("unmask", ("give values back to", "tools and users"), "pii/mask/unmask", "blue"),
)


class Bar(NamedTuple):
    """One state of a window: what it holds, as shares of the budget."""

    label: str
    parts: tuple[tuple[str, float, str], ...]


_FIXED = (("system", 0.09, "purple"), ("task", 0.07, "blue"))
_LATEST = ("latest", 0.12, "green")
_AFTER = (*_FIXED, ("trail", 0.08, "pink"), ("what stays", 0.34, "amber"))
_TARGET = 0.65
BUDGET = (
    Bar("1. the next message does not fit", (*_FIXED, ("old tool steps and talk", 0.76, "amber"), _LATEST)),
    Bar("2. old outputs take a short view", (*_FIXED, ("talk, calls, short views", 0.59, "amber"), _LATEST)),
    Bar("3. the oldest exchanges leave", (*_FIXED, ("what stays", 0.34, "amber"), _LATEST)),
    Bar("4. the trail says what has left", (*_AFTER, _LATEST)),
    Bar("5. prompts grow until the next cut", (*_AFTER, _LATEST, ("new", 0.28, "green"))),
)


def way(width: int, title: str, steps: tuple[Step, ...], note: str) -> str:
    """Return a picture of boxes joined by arrows from the first to the last: five in a row, or two on a phone."""
    picture = Picture(width, title)
    many, tall, gap, between = (5, 92, 20, 34) if picture.is_wide else (2, 92, 24, 30)
    wide = (picture.room - gap * (many - 1)) / many
    top = picture.top + 20
    for number, step in enumerate(steps):
        row, place = divmod(number, many)
        x, y = LEFT + place * (wide + gap), top + row * (tall + between)
        draw_step(picture, step, x, y, wide, tall)
        if place:
            arrow(picture, x - gap + 2, y + tall / 2, x - 3)
        elif row:
            turn(picture, y - between, y, wide)
    bottom = top + -(-len(steps) // many) * (tall + between)
    return picture.drawn(picture.note(bottom - between + 26, note))


def draw_step(picture: Picture, step: Step, x: float, y: float, wide: float, tall: float) -> None:
    """Draw one box."""
    picture.box(x, y, wide, tall, "step", rx="8")
    picture.box(x, y, 5, tall, step.color, rx="2")
    picture.text(x + 14, y + 22, step.title, size=14, weight="600")
    for line, words in enumerate(step.told):
        picture.text(x + 14, y + 42 + 16 * line, words, size=12)
    picture.text(x + 14, y + tall - 10, step.module, size=10.5, color="grey")


def turn(picture: Picture, above: float, below: float, wide: float) -> None:
    """Draw the arrow from the end of one row to the beginning of the next."""
    middle, x, end = (above + below) / 2, picture.width - LEFT - wide / 2, LEFT + wide / 2
    picture.line([(x, above), (x, middle), (end, middle), (end, below - 8)], "line")
    picture.head([(end - 4, below - 9), (end + 4, below - 9), (end, below - 2)], "line")


def arrow(picture: Picture, x: float, y: float, to_x: float) -> None:
    """Draw an arrow from left to right."""
    picture.line([(x, y), (to_x - 5, y)], "line")
    picture.head([(to_x - 6, y - 4), (to_x - 6, y + 4), (to_x, y)], "line")


def budget(width: int) -> str:
    """Return the picture of a cut: the same budget, five moments."""
    picture = Picture(width, "A budget, from one cut to the next")
    first, above, step = (288, 0, 46) if picture.is_wide else (LEFT, 18, 66)
    tall, scale, top = 26, (picture.width - first - LEFT - 4) / 1.06, picture.top + 22
    for number, bar in enumerate(BUDGET):
        x, y = float(first), top + number * step + above
        picture.text(LEFT, y - 6 if above else y + 18, bar.label, size=12.5)
        for words, share, color in bar.parts:
            picture.box(x, y, share * scale - 1, tall, color)
            if len(words) * 6.2 + 4 < share * scale:
                picture.text(x + 4, y + 17, words, size=10.5, color="on")
            x += share * scale
    for share, words, color, shift in ((1.0, "budget", "red", -42), (_TARGET, "target of a cut", "grey", -78)):
        x, end = first + share * scale, top + step * len(BUDGET) - 12
        spans = [(top - 6, end)]
        if above:  # the labels stand between the bars
            spans = [(top + above + n * step, top + above + n * step + tall + 4) for n in range(len(BUDGET))]
        for begin, stop in spans:
            picture.line([(x, begin), (x, stop)], color, **{"stroke-dasharray": "5 4"})
        picture.text(x + shift, end + 14, words, size=11.5, color=color)
    note = "Purple and blue never leave. A cut stops as soon as it has freed enough; sizes here are an example."
    return picture.drawn(picture.note(top + step * len(BUDGET) + 26, note))


def pictures() -> dict[str, str]:
    """Return all pictures by their file's name."""
    told = "Green: a stage. Blue: an adapter. Every change of a stage and every finding of a check is in the report."
    found = "The check NoPII searches the finished request once more; with independent=True without the prefilter."
    drawn = {}
    for width, name in ((WIDE, ""), (NARROW, "_narrow")):
        drawn |= {
            f"way_of_a_message{name}.svg": way(width, "A message, from framework to provider", MESSAGE, told),
            f"way_of_a_budget{name}.svg": budget(width),
            f"way_of_a_finding{name}.svg": way(width, "Personal data, found and masked", FINDING, found),
        }
    return drawn


if __name__ == "__main__":
    for name, picture in pictures().items():
        (ASSETS / name).write_text(picture, encoding="utf-8")
        sys.stdout.write(f"{name}: written\n")
