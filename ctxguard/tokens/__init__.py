"""Count the tokens that a provider will bill: by the model's own vocabulary if installed, never over the network."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
