"""What the first tier of the tests (`make test`) leaves to the second (`make test-all`), beside tests with the mark `slow`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import product

import pytest

EXAMPLES = int(os.environ.get("CTXGUARD_EXAMPLES", "5"))
"""Examples that a property is tried with where it does not say itself; `make test-all` tries 12, `make hunt` many."""
ALL_EXAMPLES = 12
"""From this many on, all examples are tried that a property asks for, and whole sweeps are swept."""
IS_FIRST = EXAMPLES < ALL_EXAMPLES


def every(step: int, cases: Sequence, start: int = 0) -> Sequence:
    """Return all cases; in the first tier, every second, third, … one.

    Where several sweeps are crossed, vary `start` from one to the next, so that each case still meets some of the others.
    """
    return cases[start % step :: step] if IS_FIRST else cases


def crossed(step: int, *sweeps: Iterable) -> list:
    """Return the product of sweeps as cases of a test, of which every second, third, … one is in the first tier.

    The others have the mark `slow`. Each member of each sweep is in the first tier, which a step that divides no length
    of a sweep comes to.
    """
    sweeps = [list(sweep) for sweep in sweeps]
    cases = list(product(*sweeps))
    for place, sweep in enumerate(sweeps):
        assert {sweep.index(case[place]) for case in cases[::step]} == {*range(len(sweep))}, (
            f"a step of {step} misses some"
        )
    return [pytest.param(*case, marks=pytest.mark.slow if number % step else ()) for number, case in enumerate(cases)]
