"""Count the body of a request. All other modules of `wire` use these functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from ctxguard.tokens import ArtifactCounter, find_counter
from ctxguard.tokens.families import family_of

_IN_PATH: Final = re.compile(r"/(?:models?|deployments)/([^/]+?)(?::[A-Za-z]\w*)?(?:/|\Z)")
"""The part of a path that names the model, for Gemini, Vertex, Bedrock and Azure."""


def model_of(body: Mapping[str, object], path: str) -> str:
    """Return the name of a request's model, by its path or its body; empty if neither names it."""
    named = _IN_PATH.search(path)
    model = body.get("model") if named is None else unquote(named[1])
    return model if isinstance(model, str) else ""


class Counters:
    """Return the counter of a request's model, so that the chain counts a body as it is billed.

    Args:
        counter: Counts texts for any model; one for a particular model is used for every request.
    """

    def __init__(self, counter: ArtifactCounter) -> None:
        self._own = counter
        is_usual = counter.counter is find_counter("auto")
        self._asked = "auto" if is_usual else counter.counter
        self._by_family: dict[str, ArtifactCounter] = {}

    def of(self, model: str) -> ArtifactCounter:
        """Return the counter for requests to a model: one for each family of models."""
        if not model or hasattr(self._own.counter, "family"):
            return self._own
        family = family_of(model).name
        if family not in self._by_family:
            self._by_family[family] = ArtifactCounter(find_counter(self._asked, model=model))
        return self._by_family[family]
