"""The strategies of the requirement documents, all based on one stage: a function chooses the exchanges to keep."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
