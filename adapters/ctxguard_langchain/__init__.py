"""ctxguard for LangChain: chains, stored histories, agents, and LangGraph graphs."""

from ctxguard.settings import extra, names_in_stub

with extra("langchain", "ctxguard_langchain needs langchain-core"):
    import langchain_core  # noqa: F401 - imported only to report what to install

# loaded on first use, because the agent middleware needs `langchain`, which takes seconds to import
__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
