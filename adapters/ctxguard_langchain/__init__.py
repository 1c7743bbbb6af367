"""ctxguard for LangChain: chains, stored histories, agents and LangGraph graphs."""

from ctxguard.settings import install_command, names_in_stub

try:
    import langchain_core  # noqa: F401 - only to say what to install
except ImportError as error:
    raise ImportError(f"ctxguard_langchain needs langchain-core: {install_command('langchain')}") from error

# loaded when asked for: the agent middleware needs `langchain`, which takes seconds to import
__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
