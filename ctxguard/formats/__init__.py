"""Request formats: one module for each API of a provider, read by adapters, counter, transports and proxy alike.

| module | what it holds |
|---|---|
| `format` | `Format`: what each module below describes |
| `chat`, `responses`, `anthropic`, `gemini`, `converse`, `cohere` | one API each |
| `response_items`, `gemini_parts` | one item or part of these formats |
| `blocks` | histories of messages whose blocks are kept or dropped alone |
| `requests` | the functions of a provider's package: `stabilize_request` and the like |
| `registry` | finds the format of a request by its path, its API or its body |
| `counting`, `usage` | the input tokens of a request, and how far off they were |
"""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
