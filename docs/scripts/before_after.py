"""Draw docs/assets/before_after.svg from a real run of the demo session: `python docs/scripts/before_after.py`."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

from ctxguard import Report, Stabilizer
from ctxguard.adapting.adapter import stabilize_native
from ctxguard.harness.demo import DEMO_BUDGET, DEMO_POLICY, demo_session
from ctxguard.report import Decision

PICTURE = Path(__file__).resolve().parents[1] / "assets" / "before_after.svg"
WIDTH, LEFT, TOP = 940, 24, 34
BAR, ROW = 26, 30
SHOWN = 54
ROLES = {"system": "#6f42c1", "user": "#2f6fdb", "assistant": "#1a8f5a", "tool": "#c98a1b", "trail": "#c2418f"}
SHORTENED = ("bounded", "digested")
INK, GREY, RED, AMBER = "#1f2328", "#6b7280", "#b42318", "#8a5a00"


def run() -> Report:
    """Return the report of the demo, counted exactly."""
    session = demo_session()
    stabilizer = Stabilizer.from_policy(DEMO_POLICY, budget=DEMO_BUDGET, provider="openai", counter="o200k_base")
    return stabilize_native(stabilizer, session.adapter, session.native, tools=session.tools)[1]


def draw(report: Report) -> str:
    """Return the picture: both contexts to one scale, then one line of each kind of decision."""
    told = chosen(report)
    height = TOP + 200 + ROW * len(told) + 34
    svg = ET.Element(
        "svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {height}", width=str(WIDTH), role="img"
    )
    ET.SubElement(svg, "title").text = "A support session before and after ctxguard"
    box(svg, 0, 0, WIDTH, height, "#ffffff", rx="10", stroke="#d8dce2")
    saved = 100 * (1 - report.tokens_after / report.tokens_before)
    heading = f"One support session, {len(demo_session().native)} messages, a budget of {report.budget:,} tokens"
    text(svg, LEFT, TOP, heading, size=17, weight="600")
    bars(svg, report, saved)
    legend(svg, TOP + 146)
    table(svg, told, TOP + 186)
    checks = ", ".join(check.name for check in report.checks if check.ok)
    text(svg, LEFT, height - 16, f"checked in the result: {checks}", size=11.5, colour=GREY)
    for child in svg:
        child.tail = "\n"  # a line an element; inside a text every blank is seen
    return ET.tostring(svg, encoding="unicode") + "\n"


def bars(svg: ET.Element, report: Report, saved: float) -> None:
    """Draw both contexts as bars of one scale, a stripe a message, and the budget as a line."""
    scale = (WIDTH - 2 * LEFT) / report.tokens_before
    before = [(role_of(d), d.tokens_before) for d in report.decisions]
    after = [(role_of(d), d.tokens_after) for d in in_order(report.decisions) if d.tokens_after]
    labels = (f"before: {report.tokens_before:,} tokens", f"after: {report.tokens_after:,} tokens, {saved:.0f}% fewer")
    for place, (label, stripes) in enumerate(zip(labels, (before, after), strict=True)):
        y = TOP + 32 + place * 54
        text(svg, LEFT, y, label, size=13, weight="600")
        x = float(LEFT)
        for role, tokens in stripes:
            box(svg, x, y + 7, tokens * scale, BAR, ROLES[role], stroke="#ffffff", **{"stroke-width": "0.6"})
            x += tokens * scale
    limit = LEFT + report.budget * scale
    for y in (TOP + 36, TOP + 90):
        line = {"x1": f"{limit:.1f}", "x2": f"{limit:.1f}", "y1": str(y), "y2": str(y + BAR + 6)}
        ET.SubElement(svg, "line", {**line, "stroke": RED, "stroke-width": "2"})
    text(svg, limit + 8, TOP + 110, f"budget: {report.budget:,}", size=12, colour=RED)


def role_of(decision: Decision) -> str:
    """Return what a decision is drawn as."""
    return "trail" if decision.position is None else decision.artifact.kind.value


def in_order(decisions: list[Decision]) -> list[Decision]:
    """Return decisions in the order of the context: the trail stands behind system prompt and task."""
    return sorted(decisions, key=lambda d: 1.5 if d.position is None else d.position)


def legend(svg: ET.Element, y: float) -> None:
    """Name the colours."""
    x = float(LEFT)
    for role, colour in ROLES.items():
        box(svg, x, y - 10, 12, 12, colour)
        text(svg, x + 17, y, role, size=12, colour=GREY)
        x += 90


def chosen(report: Report) -> list[Decision]:
    """Return a decision of each kind: masked words, a dropped log, a shortened output, the trail, the last question."""
    told = report.decisions
    came = [d for d in told if d.position is not None]
    said = next(d for d in came if d.action == "masked" and d.artifact.kind == "user")
    hidden = next(d for d in came if d.action == "masked" and "IBAN" in d.artifact.text)
    largest = max((d for d in came if d.action == "dropped"), key=lambda d: d.tokens_before)
    shortened = max((d for d in came if d.action in SHORTENED), key=lambda d: d.tokens_before)
    trail = next(d for d in told if d.position is None)
    return [came[0], said, hidden, largest, shortened, trail, came[-1]]


def table(svg: ET.Element, told: list[Decision], y: float) -> None:
    """Write what was recorded beside what the model sees."""
    text(svg, LEFT, y, "recorded", size=12, weight="600", colour=GREY)
    text(svg, WIDTH / 2 + 20, y, "what the model sees", size=12, weight="600", colour=GREY)
    for place, decision in enumerate(told):
        top = y + 12 + place * ROW
        box(svg, LEFT, top, 5, ROW - 6, ROLES[role_of(decision)])
        left, right = sides(decision)
        spans(svg, LEFT + 12, top + 17, left)
        spans(svg, WIDTH / 2 + 20, top + 17, right)


def sides(decision: Decision) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return both sides of a row as coloured pieces."""
    if decision.position is None:
        return [("(written at the cut, for what has left)", GREY)], sized(
            trail_line(decision), decision.tokens_after, AMBER
        )
    before = flat(demo_session().read()[decision.position].text)
    if not decision.tokens_after:
        return sized(before, decision.tokens_before, RED), [("dropped; the trail tells of it", GREY)]
    if decision.action in SHORTENED:
        return sized(before, decision.tokens_before, RED), sized(
            flat(decision.artifact.text), decision.tokens_after, AMBER
        )
    return around(before, flat(decision.artifact.text))


def sized(content: str, tokens: int, colour: str) -> list[tuple[str, str]]:
    """Return the beginning of a text and how many tokens all of it takes."""
    told = f" {tokens:,} tokens"
    return [(clipped(content, SHOWN - len(told)), INK), (told, colour)]


def trail_line(decision: Decision) -> str:
    """Return the newest line of the trail."""
    return next(line for line in reversed(decision.artifact.text.splitlines()) if line.startswith("- "))


def around(before: str, after: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return both texts cut around their first difference, that coloured."""
    if before == after:
        return [(clipped(before, SHOWN), INK)], [(clipped(after, SHOWN), INK)]
    start = next(n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b)
    end = after.index("]", start) + 1
    rest = after[end : end + 3]
    stop = before.index(rest, start)
    lead = max(0, start - 16)
    head = ("…" if lead else "") + before[lead:start]
    left = [(head, INK), (before[start:stop], RED), (clipped(before[stop:], SHOWN - len(head) - stop + start), INK)]
    right = [(head, INK), (after[start:end], AMBER), (clipped(after[end:], SHOWN - len(head) - end + start), INK)]
    return left, right


def flat(content: str) -> str:
    """Return a text on one line."""
    return " ".join(content.split())


def clipped(content: str, most: int) -> str:
    """Return the beginning of a text, in characters."""
    return content if len(content) <= most else content[: max(0, most - 1)] + "…"


def text(
    svg: ET.Element, x: float, y: float, content: str, *, size: float, weight: str = "400", colour: str = INK
) -> None:
    """Write one line."""
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "font-size": str(size), "font-weight": weight, "fill": colour}
    face = {"font-family": "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"}
    ET.SubElement(svg, "text", {**place, **face}).text = content


def spans(svg: ET.Element, x: float, y: float, split_message: list[tuple[str, str]]) -> None:
    """Write one line of coloured pieces."""
    face = {"font-family": "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace", "xml:space": "preserve"}
    line = ET.SubElement(svg, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", "font-size": "12", **face})
    for content, colour in split_message:
        bold = {"font-weight": "600"} if colour in (RED, AMBER) else {}
        ET.SubElement(line, "tspan", {"fill": colour, **bold}).text = content


def box(svg: ET.Element, x: float, y: float, width: float, height: float, colour: str, **more: str) -> None:
    """Draw a filled box."""
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{width:.1f}", "height": f"{height:.1f}", "fill": colour}
    ET.SubElement(svg, "rect", {**place, **more})


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(run()), encoding="utf-8")
    sys.stdout.write(f"{PICTURE.name}: written\n")
