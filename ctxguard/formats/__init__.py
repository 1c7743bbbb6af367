"""Request formats: one module for each API of a provider, used alike by adapters, counter, transports and proxy.

| module | content |
|---|---|
| `format` | `Format`: the base class of the modules below |
| `chat`, `responses`, `anthropic`, `gemini`, `converse`, `cohere` | one API each |
| `response_items`, `gemini_parts` | one item or part of these formats |
| `blocks` | histories of messages whose blocks can be kept or dropped separately |
| `requests` | the functions of a provider's package: `stabilize_request` and the like |
| `registry` | finds the format of a request by its path, its API or its body |
| `counting`, `usage` | the input tokens of a request, and the error of that count |
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctxguard.formats.blocks import BlockFormat as BlockFormat
    from ctxguard.formats.chat import MessageFormat as MessageFormat
    from ctxguard.formats.format import Format as Format

_HOME_OF = {"BlockFormat": "blocks", "Format": "format", "MessageFormat": "chat"}
__all__ = [*_HOME_OF]  # noqa: PLE0604 - the names above, which are loaded when they are asked for


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
