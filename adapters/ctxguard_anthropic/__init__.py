"""ctxguard for raw Anthropic requests: Messages as dicts or SDK objects. Anthropic's package is not required."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
