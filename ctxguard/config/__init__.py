"""All settings as one frozen tree, read from one YAML file with overrides from the environment."""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
