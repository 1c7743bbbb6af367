"""ctxguard for google-genai: contents as dicts or SDK objects. Google's package is not required."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
