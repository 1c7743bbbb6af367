"""Other libraries for `ctxguard bench --with benchmarks.peers`: a module drives one, and is loaded only where it is installed.

Each class takes a `Course` and is a `Contestant` of `ctxguard.harness.contestants`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ctxguard.harness.contestants import Peer

PEERS: Final[Sequence[Peer]] = (
    Peer(
        "LangChain trim",
        "langchain-core",
        f"{__name__}.of_langchain:Trimmed",
        "trim_messages(strategy='last', include_system=True, start_on=('human', 'ai')), the bench's counter",
    ),
    Peer(
        "LangChain summarize",
        "langchain",
        f"{__name__}.of_langchain:Summarized",
        "SummarizationMiddleware(trigger=('tokens', budget), keep=('tokens', budget / 2)), the bench's counter",
    ),
    Peer(
        "LangChain clear tools",
        "langchain",
        f"{__name__}.of_langchain:Cleared",
        "ContextEditingMiddleware's ClearToolUsesEdit(trigger=budget), keep=3, the bench's counter",
    ),
    Peer(
        "LangChain editing",
        "langchain",
        f"{__name__}.of_langchain:Edited",
        "ContextEditingMiddleware(): clears tool results above 100,000 tokens, whatever the budget",
    ),
    Peer(
        "deepagents",
        "deepagents",
        f"{__name__}.of_deepagents:Deep",
        "create_summarization_middleware and FilesystemMiddleware with their defaults for a model with this window: "
        "from 85% down to 10%, results above 20,000 tokens to files, the bench's counter",
    ),
    Peer(
        "litellm trim", "litellm", f"{__name__}.of_litellm:Trimmed", "trim_messages(model='gpt-4o', max_tokens=budget)"
    ),
    Peer(
        "litellm compress",
        "litellm",
        f"{__name__}.of_litellm:Compressed",
        "compress(model='gpt-4o', compression_trigger=budget), down to 70% (the default)",
    ),
    Peer(
        "agent-framework",
        "agent-framework-core",
        f"{__name__}.of_agent_framework:Compacted",
        "ContextWindowCompactionStrategy(budget): notes of results above 50%, truncation above 80%, the bench's "
        "tokenizer",
    ),
    Peer(
        "PydanticAI processor",
        "pydantic-ai-slim",
        f"{__name__}.of_pydantic_ai:Processor",
        "the history processor of its documentation (the latest messages, never beginning with a result), 20 of them",
    ),
    Peer(
        "pydantic-ai-harness",
        "pydantic-ai-harness",
        f"{__name__}.of_pydantic_ai:Sliding",
        "SlidingWindowCompaction(max_tokens=budget, keep_tokens=budget / 2), the bench's tokenizer",
    ),
    Peer(
        "headroom",
        "headroom-ai",
        f"{__name__}.of_headroom:Compressed",
        "compress(model='gpt-4o') of the whole history, its ML model off",
    ),
    Peer(
        "headroom live",
        "headroom-ai",
        f"{__name__}.of_headroom:Live",
        "compress(model='gpt-4o', frozen_message_count=those of the call before), its ML model off",
    ),
    Peer(
        "Strands",
        "strands-agents",
        f"{__name__}.of_strands:Sliding",
        "SlidingWindowConversationManager(pin_first=1), compressed above 70%, and its recovery where over the budget",
    ),
    Peer(
        "Strands auto",
        "strands-agents",
        f"{__name__}.of_strands:Automatic",
        "Agent(context_manager='auto'): results above 1,500 tokens become previews of 750, a summary above 85%, and "
        "its recovery where over the budget, the bench's counter",
    ),
    Peer(
        "OpenHands",
        "openhands-sdk",
        f"{__name__}.of_openhands:Condensed",
        "default_condenser (80 events, the first 4 stay) for a model with this window, down to half of it, the bench's "
        "counter",
    ),
    Peer(
        "Haystack",
        "haystack-ai",
        f"{__name__}.of_haystack:Compacted",
        "CompactionHook(SlidingWindowCompactor(), context_window=budget), 0.7 to 0.4, the bench's counter",
    ),
)
