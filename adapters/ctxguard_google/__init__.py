"""ctxguard for google-genai: contents as dicts or SDK objects. It does not need Google's package."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
