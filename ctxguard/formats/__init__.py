"""Request formats: one module for each provider API, shared by adapters, token counting, transports, and the proxy.

| module | content |
|---|---|
| `format` | `Format`: the base class of the formats; `Weave`: responses that the guard continues itself |
| `chat`, `responses`, `anthropic`, `gemini`, `converse`, `cohere`, `ollama` | the format of one API each |
| `blocks` | base class of formats whose messages consist of blocks that can be kept or dropped separately |
| `requests` | count and stabilize a request in any format: `count_request`, `stabilize_request` |
| `registry` | find the format of a request by its path, its API, or its body |
| `usage` | the error of token counts, measured on recorded requests |
"""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
