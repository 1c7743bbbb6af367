"""Strategies for choosing the exchanges to keep, from the requirements documents. Most of them are `Keep` stages."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
