"""Count the body of a request. The one place that says how."""

from __future__ import annotations

from collections.abc import Mapping

from ctxguard.tokens import ArtifactCounter, count_request
from ctxguard.wire.formats import Format

__all__ = ["request_tokens"]


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
