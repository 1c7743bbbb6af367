"""Count the tokens that a provider will bill: by the model's own vocabulary if installed, never over the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxguard.tokens.artifact_counter import MESSAGE_TOKENS as MESSAGE_TOKENS
from ctxguard.tokens.artifact_counter import REPLY_TOKENS as REPLY_TOKENS
from ctxguard.tokens.artifact_counter import ArtifactCounter
from ctxguard.tokens.counters import EstimateCounter, FamilyCounter, TokenCounter, find_counter
from ctxguard.tokens.counters import encoding_of as encoding_of
from ctxguard.tokens.provider_counter import anthropic_counter, google_counter
from ctxguard.tokens.vocabularies import TiktokenCounter, ToktokCounter

if TYPE_CHECKING:
    from ctxguard.formats.counting import RequestCount, count_request

__all__ = [
    "ArtifactCounter",
    "EstimateCounter",
    "FamilyCounter",
    "RequestCount",
    "TiktokenCounter",
    "TokenCounter",
    "ToktokCounter",
    "anthropic_counter",
    "count_request",
    "find_counter",
    "google_counter",
]


def __getattr__(name: str) -> object:
    # the modules for requests import this package
    if name in ("RequestCount", "count_request"):
        from ctxguard.formats import counting

        return getattr(counting, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
