"""The contestants: a name, the distribution it comes from, and where it is driven. Absent ones are left out by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from ctxguard import __version__
from ctxguard.harness.peers.course import Contestant, Course

OWN: Final = "ctxguard"
BASELINE: Final = "rolling window"
"""Bills are given as a share of this one's."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One contestant.

    Attributes:
        name: as tables show it.
        distribution: what has to be installed; `ctxguard` for what needs nothing.
        factory: module and class in this package.
        what: the call and the settings that are compared.
    """

    name: str
    distribution: str
    factory: str
    what: str

    @property
    def version(self) -> str | None:
        """The installed version, or None where it is not installed."""
        if self.distribution == OWN:
            return __version__
        try:
            return version(self.distribution)
        except PackageNotFoundError:
            return None

    def load(self) -> Callable[[Course], Contestant]:
        """Return the class that plays one session.

        Raises:
            ImportError: the library, or something that it needs, is not installed.
        """
        module, _, name = self.factory.partition(":")
        found: Callable[[Course], Contestant] = getattr(import_module(f"{__package__}.{module}"), name)
        return found


PEERS: Final[Sequence[Peer]] = (
    Peer("ctxguard", OWN, "ours:Ours", "Stabilizer(budget): all defaults, masking and every check on"),
    Peer(BASELINE, OWN, "plain:Rolling", "the longest valid tail that fits, cut anew at each call"),
    Peer("whole history", OWN, "plain:Whole", "nothing is left out"),
    Peer(
        "LangChain trim",
        "langchain-core",
        "of_langchain:Trimmed",
        "trim_messages(strategy='last', include_system=True, start_on=('human', 'ai')), the bench's counter",
    ),
    Peer(
        "LangChain summarize",
        "langchain",
        "of_langchain:Summarized",
        "SummarizationMiddleware(trigger=('tokens', budget), keep=('tokens', budget / 2)), the bench's counter",
    ),
    Peer(
        "LangChain clear tools",
        "langchain",
        "of_langchain:Cleared",
        "ContextEditingMiddleware's ClearToolUsesEdit(trigger=budget), keep=3, the bench's counter",
    ),
    Peer("litellm trim", "litellm", "of_litellm:Trimmed", "trim_messages(model='gpt-4o', max_tokens=budget)"),
    Peer(
        "PydanticAI processor",
        "pydantic-ai-slim",
        "of_pydantic_ai:Processor",
        "the history processor of its documentation (the latest messages, never beginning with a result), 20 of them",
    ),
    Peer(
        "pydantic-ai-harness",
        "pydantic-ai-harness",
        "of_pydantic_ai:Sliding",
        "SlidingWindowCompaction(max_tokens=budget, keep_tokens=budget / 2), the bench's tokenizer",
    ),
    Peer("headroom", "headroom-ai", "of_headroom:Compressed", "compress(model_limit=budget), its ML model off"),
    Peer(
        "Strands",
        "strands-agents",
        "of_strands:Sliding",
        "SlidingWindowConversationManager(pin_first=1), compressed above 70%, and its recovery where over the budget",
    ),
    Peer(
        "Haystack",
        "haystack-ai",
        "of_haystack:Compacted",
        "CompactionHook(SlidingWindowCompactor(), context_window=budget), 0.7 to 0.4, the bench's counter",
    ),
)
