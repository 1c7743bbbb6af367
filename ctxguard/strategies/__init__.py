"""The strategies of the documents, all made of one stage: a function chooses which exchanges stay."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
