"""Count what a provider will bill: by the model's own vocabulary where it is installed, never over the network."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
