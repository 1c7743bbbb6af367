"""The building blocks of adapters. `adapters/README.md` in the repository shows how to write one for your own messages.

| module | content |
|---|---|
| `adapter` | the function through which every *native* history, one in its framework's own format, is stabilized |
| `request` | the parts of a request outside the history: instructions, tool and output schemas |
| `registry` | the `Adapter` protocol; finds the installed adapters by name or by the format of a history |
| `message_view` | `MessageView`: the texts, calls, and ids of a message, each with its place in the message |
| `content_format` | `ContentFormat`: a table that says how to read content parts of each type, media included |
| `fields` | reading fields of dicts and objects, with errors that name the place |
| `editing` | `copy_with`: copies a message with new values in some places |
| `extra_fields` | fields of a message other than its content: citations, metadata, links, unknown keys |
| `reasoning` | reasoning and refusals in fields next to the content |
| `provider_formats` | rejects messages in another provider's format, and names it |
| `read_cache` | `ReadCache`: parses each message only once |
| `tools` | limits the output of a tool, restores masked values in its arguments, and creates the recall tool |
"""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
