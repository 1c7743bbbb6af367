"""Count tokens: exactly where a vocabulary is installed, by an estimate elsewhere. Never over the network."""

from ctxguard.tokens.counters import (
    MESSAGE_TOKENS,
    REPLY_TOKENS,
    ArtifactCounter,
    EstimateCounter,
    TiktokenCounter,
    TokenCounter,
    ToktokCounter,
    encoding_of,
    find_counter,
)

__all__ = [
    "MESSAGE_TOKENS",
    "REPLY_TOKENS",
    "ArtifactCounter",
    "EstimateCounter",
    "TiktokenCounter",
    "TokenCounter",
    "ToktokCounter",
    "encoding_of",
    "find_counter",
]
