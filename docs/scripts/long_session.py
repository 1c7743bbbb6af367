"""Draw docs/assets/long_session.svg from the figures of a run, for a page and for a phone.

python benchmarks/long_session.py --json figures.json && python docs/scripts/long_session.py figures.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from drawing import ASSETS

TITLE = "One call as a session grows to 10,000 turns"
SHOWN = ("repairing only", "agent policy", "SlidingWindow", "IntelligentPruner", "HistoryCompactor", "RecallRelevant")
LIGHT = "*{stroke-linejoin: round; stroke-linecap: butt}"
DARK = "@media (prefers-color-scheme:dark){svg{filter:invert(.88) hue-rotate(180deg)}}"
"""Turns black on white into white on black, and keeps the hues."""


def draw(figures: dict, name: str, rows: int, size: tuple[float, float]) -> None:
    """Draw time and memory a call over the length of the session, one line a strategy."""
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "ctxguard", "font.size": 9})
    picture, plots = plt.subplots(rows, 2 // rows, figsize=size, layout="constrained")
    times, memory = plots.flat
    points = figures["points"]
    for strategy in SHOWN:
        plain = {"color": "#6b7280", "linestyle": "--"}
        style = plain if strategy == "repairing only" else {"marker": "o", "markersize": 3}
        times.plot(points, [figures["ms"][strategy][str(p)][0] for p in points], label=strategy, **style)
        memory.plot(points, [figures["mb"][strategy][str(p)] for p in points], label=strategy, **style)
    times.set(title="CPU time a call (median)", xlabel="turns in the session", ylabel="ms", ylim=0)
    memory.set(title="Memory held beside the history", xlabel="turns in the session", ylabel="MB", ylim=0)
    memory.legend(frameon=False, fontsize=8, loc="upper left")
    for axes in (times, memory):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    place = ASSETS / name
    picture.savefig(place, metadata={"Date": None, "Title": TITLE})
    drawn = place.read_text(encoding="utf-8")
    place.write_text(drawn.replace(LIGHT, LIGHT + DARK), encoding="utf-8")


if __name__ == "__main__":
    told = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    draw(told, "long_session.svg", 1, (9.4, 3.4))
    draw(told, "long_session_narrow.svg", 2, (4.2, 6.0))
