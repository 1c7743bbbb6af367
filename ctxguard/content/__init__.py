"""Views of texts and files within a hard token limit. The package also exports the names of `ctxguard.files`."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
