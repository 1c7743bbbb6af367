"""Read files safely, and view texts and files within a limit of tokens. It also exports names of `ctxguard.views`."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
