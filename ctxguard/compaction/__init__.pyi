from ctxguard.compaction.history import CompactionResult as CompactionResult
from ctxguard.compaction.history import HistoryCompactor as HistoryCompactor
from ctxguard.compaction.summaries import Summarizer as Summarizer
from ctxguard.compaction.summaries import langchain_summarizer as langchain_summarizer
from ctxguard.compaction.summaries import model_summarizer as model_summarizer
from ctxguard.compaction.summaries import openai_summarizer as openai_summarizer
from ctxguard.compaction.summaries import pydantic_ai_summarizer as pydantic_ai_summarizer
from ctxguard.config import CompactionConfig as CompactionConfig
