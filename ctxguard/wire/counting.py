"""Count the body of a request. The one place that says how."""

from __future__ import annotations

from collections.abc import Mapping

from ctxguard.tokens import ArtifactCounter, count_request, find_counter
from ctxguard.tokens.families import family_of
from ctxguard.wire.formats import Format


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


def request_tokens(body: Mapping[str, object], kind: Format, counter: ArtifactCounter) -> int:
    """Return the input tokens of a request.

    Args:
        body: The request as it is sent.
        kind: Its format.
        counter: Counts texts.

    Raises:
        ConfigError: The body is not a request of this format.
    """
    return count_request(body, api=kind.api, counter=counter.counter).tokens
