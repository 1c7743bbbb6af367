"""All settings as one immutable tree, read from one YAML file and overridden by environment variables."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
