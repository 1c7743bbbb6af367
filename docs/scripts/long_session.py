"""Draw docs/assets/long_session.svg from the figures of a run.

python benchmarks/long_session.py --json figures.json && python docs/scripts/long_session.py figures.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

PICTURE = Path(__file__).resolve().parents[1] / "assets" / "long_session.svg"
SHOWN = ("repairing only", "agent policy", "SlidingWindow", "IntelligentPruner", "HistoryCompactor", "RecallRelevant")


def draw(figures: dict) -> None:
    """Draw time and memory a call over the length of the session, one line a strategy."""
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "ctxguard", "font.size": 9})
    picture, (left, right) = plt.subplots(1, 2, figsize=(9.4, 3.4), layout="constrained")
    points = figures["points"]
    for name in SHOWN:
        style = (
            {"color": "#6b7280", "linestyle": "--"} if name == "repairing only" else {"marker": "o", "markersize": 3}
        )
        left.plot(points, [figures["ms"][name][str(p)][0] for p in points], label=name, **style)
        right.plot(points, [figures["mb"][name][str(p)] for p in points], label=name, **style)
    left.set(title="CPU time a call (median)", xlabel="turns in the session", ylabel="ms", ylim=0)
    right.set(title="Memory held beside the history", xlabel="turns in the session", ylabel="MB", ylim=0)
    right.legend(frameon=False, fontsize=8, loc="upper left")
    for axes in (left, right):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    picture.savefig(PICTURE, metadata={"Date": None, "Title": "One call as a session grows to 10,000 turns"})


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
