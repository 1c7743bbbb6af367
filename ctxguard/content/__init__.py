"""Views of texts and files within a hard token limit, by type. The public names of `ctxguard.files` are here, too."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
