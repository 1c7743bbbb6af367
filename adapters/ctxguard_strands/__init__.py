"""ctxguard for Strands Agents: a plugin of an agent, and the adapter of its messages."""

from ctxguard.settings import names_in_stub

# loaded on first use, because the messages are plain dicts, which can be read without the framework
__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
