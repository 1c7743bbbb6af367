"""ctxguard for raw OpenAI requests: Chat Completions messages and Responses items, as dicts or SDK objects."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
