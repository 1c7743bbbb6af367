"""ctxguard for google-genai: contents as dicts or SDK objects. It needs no package of Google's."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
