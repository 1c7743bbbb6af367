"""ctxguard for raw Anthropic requests: Messages as dicts, SDK objects mixed in. It needs no package of Anthropic's."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
