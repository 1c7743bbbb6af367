"""ctxguard for LangChain: chains, stored histories, agents and LangGraph graphs."""

from ctxguard.settings import extra, names_in_stub

with extra("langchain", "ctxguard_langchain needs langchain-core"):
    import langchain_core  # noqa: F401 - only to say what to install

# loaded when asked for: the agent middleware needs `langchain`, which takes seconds to import
__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
