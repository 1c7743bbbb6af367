"""The stages, each a callable `Draft -> Draft`: usable alone, replaceable, in any order that makes sense."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
