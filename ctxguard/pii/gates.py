"""Tell which literals a text holds, so that only their rules are run: in one pass with google-re2, else one by one."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

__all__ = ["Gatekeeper", "gatekeeper", "plain_gatekeeper"]

Gatekeeper: TypeAlias = Callable[[bytes], Sequence[int]]
"""Takes a text in bytes, gives the numbers of the literals in it, in their order."""
_MEMORY = 16 << 20


def plain_gatekeeper(literals: Sequence[bytes]) -> Gatekeeper:
    """Look for one literal after the other."""
    numbered = tuple(enumerate(literals))
    return lambda text: [number for number, literal in numbered if literal in text]


def gatekeeper(literals: Sequence[bytes]) -> Gatekeeper:
    """Look for all literals in one pass where google-re2 is installed (extra `fast`); the answers are the same."""
    if importlib.util.find_spec("re2") is None or not literals:
        return plain_gatekeeper(literals)
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.max_mem = _MEMORY
    every = re2.Set.SearchSet(options)
    for literal in literals:
        every.Add(re.escape(literal).decode("latin-1"))
    every.Compile()
    return lambda text: sorted(every.Match(text) or ())
