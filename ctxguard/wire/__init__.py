"""Guard requests to models at the HTTP level, whatever framework sends them.

| module | content |
|---|---|
| `guard` | `Guard`: prepares the request that is sent in place of the client's |
| `bodies`, `checking` | reads bodies up to a limit; finds, searches, and counts every text in the body of a request |
| `sessions` | tells senders apart; the placeholders and the stages of their sessions |
| `replies`, `streams`, `events` | restores masked values in responses, whole and streamed |
| `readback`, `metering` | lets a model read evicted texts; adds up the token counts that providers report |
| `limits` | tells which size fits after a provider refused a request, and writes errors in the provider's form |
| `caches` | explains what a provider's prompt cache did not serve; writes cache breakpoints |
| `audit` | keeps a record of what was sent |
| `transport` | the guard as a transport of httpx |
| `proxy`, `cli`, `connections` | the guard as a proxy: `ctxguard serve` |
| `run` | the guard for one client while it runs: `ctxguard run` |
"""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
