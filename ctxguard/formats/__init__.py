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

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
