"""Keep long LLM conversations within a token budget, valid for the provider, cacheable, and free of personal data.

Start with `guard`, which stabilizes a list of messages of any installed framework, or with a `Stabilizer`, whose
settings apply to all conversations.
"""

from ctxguard.settings import names_in_stub

__version__ = "0.1.0"
__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
