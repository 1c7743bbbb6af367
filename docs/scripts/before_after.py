"""Draw docs/assets/before_after.svg from a real run of the demo session: `python docs/scripts/before_after.py`."""

from __future__ import annotations

import sys

from drawing import ASSETS, LEFT, NARROW, WIDE, Picture, Piece

from ctxguard import Report, Stabilizer
from ctxguard.adapting.adapter import stabilize_native
from ctxguard.harness.demo import DEMO_BUDGET, DEMO_POLICY, demo_session
from ctxguard.report import Decision

BAR = 22
SHOWN = 46
"""Characters of a line that are shown: what half of a page takes, or a phone."""
ROLES = {"system": "purple", "user": "blue", "assistant": "green", "tool": "amber", "trail": "pink"}
SHORTENED = ("bounded", "digested")


def run() -> Report:
    """Return the report of the demo, counted exactly."""
    session = demo_session()
    stabilizer = Stabilizer.from_policy(DEMO_POLICY, budget=DEMO_BUDGET, provider="openai", counter="o200k_base")
    return stabilize_native(stabilizer, session.adapter, session.native, tools=session.tools)[1]


def draw(report: Report, width: int) -> str:
    """Return the picture: both contexts to one scale, then one line of each kind of decision."""
    picture = Picture(
        width, f"One support session, {len(demo_session().native)} messages, a budget of {report.budget:,} tokens"
    )
    y = bars(picture, report, picture.top + 26)
    legend(picture, y + 16)
    return picture.drawn(table(picture, chosen(report), y + 42) + 8)


def bars(picture: Picture, report: Report, y: float) -> float:
    """Draw both contexts as bars of one scale, a stripe a message, and the budget as a line; return where they end."""
    scale = picture.room / report.tokens_before
    saved = 100 * (1 - report.tokens_after / report.tokens_before)
    before = [(role_of(d), d.tokens_before) for d in report.decisions]
    after = [(role_of(d), d.tokens_after) for d in in_order(report.decisions) if d.tokens_after]
    labels = (f"before: {report.tokens_before:,} tokens", f"after: {report.tokens_after:,} tokens, {saved:.0f}% fewer")
    limit = LEFT + report.budget * scale
    for label, stripes in zip(labels, (before, after), strict=True):
        picture.text(LEFT, y, label, size=13, weight="600")
        x = float(LEFT)
        for role, tokens in stripes:
            picture.box(x, y + 7, max(tokens * scale - 0.6, 0.4), BAR, ROLES[role])
            x += tokens * scale
        picture.line([(limit, y + 4), (limit, y + BAR + 10)], "red", **{"stroke-width": "2"})
        y += 50
    picture.text(limit + 8, y - 27, f"budget: {report.budget:,}", size=12, color="red")
    return y - 10


def role_of(decision: Decision) -> str:
    """Return what a decision is drawn as."""
    return "trail" if decision.position is None else decision.artifact.kind.value


def in_order(decisions: list[Decision]) -> list[Decision]:
    """Return decisions in the order of the context: the trail stands behind system prompt and task."""
    return sorted(decisions, key=lambda d: 1.5 if d.position is None else d.position)


def legend(picture: Picture, y: float) -> None:
    """Name the colors."""
    x = float(LEFT)
    for role, color in ROLES.items():
        picture.box(x, y - 10, 12, 12, color)
        picture.text(x + 16, y, role, size=12, color="grey")
        x += 34 + 7 * len(role)


def chosen(report: Report) -> list[Decision]:
    """Return a decision of each kind: masked words, a dropped log, a shortened output, the trail."""
    told = report.decisions
    came = [d for d in told if d.position is not None]
    said = next(d for d in came if d.action == "masked" and d.artifact.kind == "user")
    hidden = next(d for d in came if d.action == "masked" and "IBAN" in d.artifact.text)
    largest = max((d for d in came if d.action == "dropped"), key=lambda d: d.tokens_before)
    shortened = max((d for d in came if d.action in SHORTENED), key=lambda d: d.tokens_before)
    trail = next(d for d in told if d.position is None)
    return [said, hidden, largest, shortened, trail]


def table(picture: Picture, told: list[Decision], y: float) -> float:
    """Write what was recorded beside what the model sees, on a phone above it; return where it ends."""
    right, row, below = (picture.width / 2 + 10, 26, 0) if picture.is_wide else (LEFT + 12, 50, 18)
    headings = (
        ("recorded", "what the model sees") if picture.is_wide else ("recorded, and what the model sees of it", "")
    )
    for x, heading in zip((LEFT, right), headings, strict=True):
        picture.text(x, y, heading, size=12, weight="600", color="grey")
    for decision in told:
        picture.box(LEFT, y + 12, 5, row - 6, ROLES[role_of(decision)])
        left, seen = sides(decision)
        picture.pieces(LEFT + 12, y + 28, left)
        picture.pieces(right, y + 28 + below, seen)
        y += row
    return y + 10


def sides(decision: Decision) -> tuple[list[Piece], list[Piece]]:
    """Return both sides of a row as colored pieces."""
    if decision.position is None:
        return [("(written at the cut, for what has left)", "grey")], sized(
            trail_line(decision), decision.tokens_after, "amber"
        )
    before = flat(demo_session().read()[decision.position].text)
    if not decision.tokens_after:
        return sized(before, decision.tokens_before, "red"), [("dropped; the trail tells of it", "grey")]
    if decision.action in SHORTENED:
        return sized(before, decision.tokens_before, "red"), sized(
            flat(decision.artifact.text), decision.tokens_after, "amber"
        )
    return around(before, flat(decision.artifact.text))


def sized(content: str, tokens: int, color: str) -> list[Piece]:
    """Return the beginning of a text and how many tokens all of it takes."""
    told = f" {tokens:,} tokens"
    return [(clipped(content, SHOWN - len(told)), "ink"), (told, color)]


def trail_line(decision: Decision) -> str:
    """Return the newest line of the trail."""
    return next(line for line in reversed(decision.artifact.text.splitlines()) if line.startswith("- "))


def around(before: str, after: str) -> tuple[list[Piece], list[Piece]]:
    """Return both texts cut around their first difference, that colored."""
    if before == after:
        return [(clipped(before, SHOWN), "ink")], [(clipped(after, SHOWN), "ink")]
    start = next(n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b)
    end = after.index("]", start) + 1
    rest = after[end : end + 3]
    stop = before.index(rest, start)
    lead = max(0, start - 16)
    head = ("…" if lead else "") + before[lead:start]
    left = fitted([(head, "ink"), (before[start:stop], "red"), (before[stop:], "ink")])
    right = fitted([(head, "ink"), (after[start:end], "amber"), (after[end:], "ink")])
    return left, right


def fitted(parts: list[Piece]) -> list[Piece]:
    """Return the beginning of a line, its parts colored as they were."""
    shown, room = [], SHOWN
    for content, color in parts:
        shown.append((clipped(content, room), color))
        room = max(0, room - len(content))
    return shown


def flat(content: str) -> str:
    """Return a text on one line."""
    return " ".join(content.split())


def clipped(content: str, most: int) -> str:
    """Return the beginning of a text, in characters."""
    return content if len(content) <= most else content[: most - 1] + "…" if most else ""


def pictures() -> dict[str, str]:
    """Return the picture for a page and for a phone, each by its file's name."""
    report = run()
    return {"before_after.svg": draw(report, WIDE), "before_after_narrow.svg": draw(report, NARROW)}


if __name__ == "__main__":
    for name, picture in pictures().items():
        (ASSETS / name).write_text(picture, encoding="utf-8")
        sys.stdout.write(f"{name}: written\n")
