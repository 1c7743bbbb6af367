"""The model of a conversation: pairs, exchanges, turns, mandatory messages, and who really wrote a message."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
