"""Count the tokens that a provider bills: with the model's own tokenizer if it is installed, never over the network."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
