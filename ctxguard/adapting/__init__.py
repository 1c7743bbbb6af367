"""What adapters are made of. `adapters/README.md` in the repository shows how to write one for messages of your own.

| module | what it holds |
|---|---|
| `protocol` | the `Adapter` protocol |
| `adapter` | the one path on which a native history is stabilized |
| `request` | what is sent beside a history: instructions, tool and output schemas |
| `guard` | `ctxguard.guard`: one line for a first user |
| `registry` | finds the installed adapters by name or by the look of a history |
| `message_view` | `MessageView`: which texts, calls and ids a message holds, and where |
| `content_format` | `ContentFormat`: a table that says how to read content parts of each type, media included |
| `fields` | reading fields of dicts and objects, with errors that name the place |
| `editing` | `copy_with`: a copy of a message with other values in some places |
| `extra_fields` | what stands beside the texts of a message: citations, metadata, links, unknown keys |
| `fragments` | messages of which parts can be kept or dropped alone |
| `reasoning` | reasoning and refusals beside a content |
| `provider_formats` | refusing by name what belongs to another provider's format |
| `read_cache` | `ReadCache`: each message is read once |
| `tools` | bounding a tool's output, restoring its arguments, the recall tool |
"""

from ctxguard.settings import names_in_stub

__all__, __getattr__, __dir__ = names_in_stub(__name__, __file__)
