"""Guard requests to models at the HTTP level, whatever framework sends them.

| module | content |
|---|---|
| `guard` | `Guard`: prepares the request that is sent in place of the client's |
| `texts`, `checking`, `counting` | finds, searches, and counts every text in a request body |
| `replies`, `streams`, `events` | restores masked values in responses, whole and streamed |
| `readback`, `metering` | lets a model read evicted texts; adds up the token counts that providers report |
| `sessions` | stores the placeholders of conversations whose history is stored at the provider |
| `audit` | keeps a record of what was sent |
| `transport` | the guard as a transport of httpx |
| `proxy`, `cli` | the guard as a proxy: `ctxguard serve` |
"""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
