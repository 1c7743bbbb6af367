"""Guard requests to models as they are sent, whatever framework sends them: the guard on the wire.

| module | what it holds |
|---|---|
| `guard` | `Guard`: what is sent in place of a request |
| `texts`, `checking`, `counting` | every text of a body: found, searched, counted |
| `replies`, `streams`, `events` | values are given back in answers, whole and streamed |
| `sessions` | placeholders of conversations whose history the provider holds |
| `audit` | a record of what was sent |
| `transport` | the guard as a transport of httpx |
| `proxy`, `cli` | the guard as a proxy: `ctxguard serve` |
"""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
