"""Bounded views of texts: by type, within a hard token limit. The names of `ctxguard.files` are here as well."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
