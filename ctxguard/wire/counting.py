"""Determine the model of a request, and the counter for this model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from ctxguard.tokens import ArtifactCounter, find_counter
from ctxguard.tokens.families import family_of

_IN_PATH: Final = re.compile(r"/(?:models?|deployments)/([^/]+?)(?::[A-Za-z]\w*)?(?:/|\Z)")
"""Matches the part of a path that names the model, for Gemini, Vertex, Bedrock, and Azure."""


def model_of(body: Mapping[str, object], path: str) -> str:
    """Return the name of the model in a request, from its path or its body; an empty string if neither names one."""
    named = _IN_PATH.search(path)
    model = body.get("model") if named is None else unquote(named[1])
    return model if isinstance(model, str) else ""


class Counters:
    """Chooses a token counter for the model of each request, so that a body is counted as it is billed.

    Args:
        counter: The counter of the stabilizer. If it is specific to a model, it is used for all requests.
    """

    def __init__(self, counter: ArtifactCounter) -> None:
        self._own = counter
        is_usual = counter.counter is find_counter("auto")
        self._asked = "auto" if is_usual else counter.counter
        self._by_family: dict[str, ArtifactCounter] = {}

    def of(self, model: str) -> ArtifactCounter:
        """Return the counter for requests to a model. Models of one family share a counter."""
        if not model or hasattr(self._own.counter, "family"):
            return self._own
        family = family_of(model).name
        if family not in self._by_family:
            self._by_family[family] = ArtifactCounter(find_counter(self._asked, model=model))
        return self._by_family[family]
