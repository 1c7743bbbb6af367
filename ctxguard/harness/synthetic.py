"""Invented sessions: the default input of `ctxguard bench`, and the input of the memory benchmark.

The sessions are generated from a seed, so they are identical on every machine. A support agent looks up orders and,
some turns later, needs numbers again that only an earlier tool result contained.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Final

from ctxguard.harness.recordings import Recording

SESSIONS: Final = 6
TURNS: Final = 60
_SYSTEM: Final = (
    "You are the support agent of a bicycle shop. Look orders up before you answer, name order and tracking numbers "
    "exactly, and never promise a refund that the tools have not confirmed."
)
_PARTS: Final = ("brake pads", "saddle", "front light", "chain", "left pedal", "rear wheel", "bottle cage", "mudguard")
_PLACES: Final = ("Lindsdal", "Norrby", "Hafenstrasse", "Upper Mill", "Kestrel Yard")
_STATES: Final = ("packed", "shipped", "delayed at customs", "returned", "delivered")


def synthetic_session(seed: int, turns: int = TURNS) -> dict[str, object]:
    """Generate an invented session of Chat Completions messages from a seed."""
    random = Random(seed)  # noqa: S311 - no secret is derived from it
    messages: list[dict[str, object]] = [{"role": "system", "content": _SYSTEM}]
    orders: list[tuple[str, str]] = []
    for turn in range(turns):
        messages += _turn(random, turn, orders)
    return {"id": f"synthetic-{seed}", "messages": messages}


def _turn(random: Random, turn: int, orders: list[tuple[str, str]]) -> list[dict[str, object]]:
    part, place = random.choice(_PARTS), random.choice(_PLACES)
    comes_back = bool(orders) and random.random() < 0.4
    order, tracking = (
        random.choice(orders) if comes_back else (f"A-{random.randrange(10**5, 10**6)}", _tracking(random))
    )
    if not comes_back:
        orders.append((order, tracking))
    asked = f"What became of the {part} in my order {order}?" if not comes_back else f"And the parcel of order {order}?"
    name = "trace_parcel" if comes_back else "look_up_order"
    arguments = {"tracking": tracking} if comes_back else {"order": order}
    call = {"id": f"call_{turn}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    rows = [
        {"day": day, "place": random.choice(_PLACES), "state": random.choice(_STATES), "scan": _tracking(random)}
        for day in range(1, random.randrange(3, 12))
    ]
    result = {"order": order, "tracking": tracking, "depot": place, "scans": rows}
    answer = f"Your {part} of order {order} left {place} with tracking number {tracking}; it was {rows[-1]['state']}."
    return [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{turn}", "content": json.dumps(result)},
        {"role": "assistant", "content": answer},
    ]


def _tracking(random: Random) -> str:
    return f"TRK{random.randrange(16**8):08x}"


def synthetic_recordings(count: int = SESSIONS, turns: int = TURNS) -> Iterator[Recording]:
    """Yield `count` invented sessions as recordings, each generated when it is requested."""
    for seed in range(count):
        yield Recording("synthetic", seed + 1, seed, json.dumps(synthetic_session(seed, turns)).encode())
