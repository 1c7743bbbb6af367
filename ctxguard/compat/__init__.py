"""The names of the requirements documents in one place, and the helpers that only these documents describe."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
