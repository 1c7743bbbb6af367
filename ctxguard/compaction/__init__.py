"""Replace the older part of a long history with a summary, and write briefs for other agents."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
