"""The stages of a chain. Each is a callable `Draft -> Draft` that can be used alone or replaced.

The terms of this package (exchange, cut, view, trail, block, mandatory) are explained in `stable_window`, the module of
the stage that evicts messages. To read how the window works, read `fold` first, which decides what stays by arithmetic,
then `short_views` and `trail`, which write what was decided.
"""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
