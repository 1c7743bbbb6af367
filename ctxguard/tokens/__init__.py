"""Count what a provider will bill: by the model's own vocabulary where it is installed, never over the network."""

from ctxguard.tokens.artifact_counter import MESSAGE_TOKENS, REPLY_TOKENS, ArtifactCounter
from ctxguard.tokens.counters import EstimateCounter, FamilyCounter, TokenCounter, encoding_of, find_counter
from ctxguard.tokens.provider_counter import anthropic_counter, google_counter
from ctxguard.tokens.requests import RequestCount, count_request
from ctxguard.tokens.vocabularies import TiktokenCounter, ToktokCounter

__all__ = [
    "MESSAGE_TOKENS",
    "REPLY_TOKENS",
    "ArtifactCounter",
    "EstimateCounter",
    "FamilyCounter",
    "RequestCount",
    "TiktokenCounter",
    "TokenCounter",
    "ToktokCounter",
    "anthropic_counter",
    "count_request",
    "encoding_of",
    "find_counter",
    "google_counter",
]
