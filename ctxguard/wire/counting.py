"""Count the body of a request. The one place that says how."""

from __future__ import annotations

from collections.abc import Mapping

from ctxguard.tokens import ArtifactCounter, find_counter
from ctxguard.tokens.families import family_of


class Counters:
    """Give each request the counter of its model, so that the chain counts a body as it is billed.

    Args:
        counter: Counts texts, and knows no model; one that does is used for every request.
    """

    def __init__(self, counter: ArtifactCounter) -> None:
        self._own = counter
        is_usual = counter.counter is find_counter("auto")
        self._asked = "auto" if is_usual else counter.counter
        self._by_family: dict[str, ArtifactCounter] = {}

    def of(self, body: Mapping[str, object]) -> ArtifactCounter:
        """Return the counter for a request: one for each family of models."""
        model = body.get("model")
        if not isinstance(model, str) or not model or hasattr(self._own.counter, "family"):
            return self._own
        family = family_of(model).name
        if family not in self._by_family:
            self._by_family[family] = ArtifactCounter(find_counter(self._asked, model=model))
        return self._by_family[family]
