"""Guard requests to models as they are sent, whatever framework sends them: the guard on the wire.

| module | content |
|---|---|
| `guard` | `Guard`: which request is sent instead |
| `texts`, `checking`, `counting` | every text of a body: found, searched, counted |
| `replies`, `streams`, `events` | restoring values in responses, whole and streamed |
| `readback`, `metering` | what a model reads back, and what providers report |
| `sessions` | placeholders of conversations whose history is stored at the provider |
| `audit` | a record of what was sent |
| `transport` | the guard as a transport of httpx |
| `proxy`, `cli` | the guard as a proxy: `ctxguard serve` |
"""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
