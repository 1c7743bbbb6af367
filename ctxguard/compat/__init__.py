"""Helpers of the documents that work without the rest of the library, and every name of the documents."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
