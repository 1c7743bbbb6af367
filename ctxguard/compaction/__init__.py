"""Replace the older part of a long history by a summary."""

from __future__ import annotations

from ctxguard.compaction.history import CompactionResult, HistoryCompactor
from ctxguard.compaction.summaries import Summarizer
from ctxguard.compaction.summarizers import (
    langchain_summarizer,
    model_summarizer,
    openai_summarizer,
    pydantic_ai_summarizer,
)
from ctxguard.config import CompactionConfig

__all__ = [
    "CompactionConfig",
    "CompactionResult",
    "HistoryCompactor",
    "Summarizer",
    "langchain_summarizer",
    "model_summarizer",
    "openai_summarizer",
    "pydantic_ai_summarizer",
]
