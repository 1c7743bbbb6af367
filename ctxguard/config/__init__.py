"""All settings as one frozen tree, read from one YAML file with overrides from the environment."""

from __future__ import annotations

from ctxguard.config.loading import get_truncation_config, load_context_config
from ctxguard.config.loading import settings_source as settings_source
from ctxguard.config.models import (
    CompactionConfig,
    CompressionLevel,
    ContextConfig,
    PiiConfig,
    StabilizerConfig,
    TruncationConfig,
)

__all__ = [
    "CompactionConfig",
    "CompressionLevel",
    "ContextConfig",
    "PiiConfig",
    "StabilizerConfig",
    "TruncationConfig",
    "get_truncation_config",
    "load_context_config",
]
