"""Keep long LLM conversations inside the budget, valid, and cheap to re-send, with structured personal data masked."""

from ctxguard.settings import names_in_stub

__version__ = "0.1.0"
__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
