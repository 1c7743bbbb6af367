"""The one model of a conversation: pairs, exchanges, turns, what must stay, and who really wrote a message."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
