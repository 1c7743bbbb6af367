"""The building blocks of adapters. `adapters/README.md` in the repository shows how to write one for your own messages.

| module | content |
|---|---|
| `adapter` | the function through which every *native* history, one in its framework's own format, is stabilized |
| `request` | the parts of a request outside the history: instructions, tool and output schemas |
| `registry` | the `Adapter` protocol; finds the installed adapters by name or by the format of a history |
| `json_walk` | which strings in JSON are texts that may be changed, and which are ids |
| `message_view` | `MessageView`: the texts, calls, and ids of a message, each with its place in it; foreign messages |
| `content_format` | `ContentFormat`: a table that says how to read content parts of each type, media included |
| `fields` | reads fields of dicts and objects, with errors that name the place; `copy_with`: a copy with new values |
| `read_cache` | `ReadCache`: parses each message only once |
| `per_run` | the guard of a framework: its settings, and the stabilizer and vault of each run |
| `tool_calls` | what a guard does for tools: values in arguments, shorter outputs, and the recall tool |
| `misuse` | the errors for a guard that is called with wrong arguments, or given to a framework in the wrong place |
| `restoring` | `WholeRestorer`, `StreamRestorer`: restore masked values in a response, or in the next piece of one |
| `stored` | `StoredTexts`: masks what a framework stores, and restores what it loads |
| `planting` | instances of a framework's classes with a test value in each field, for `ctxguard.testing` |
"""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
