"""Find the texts of a request that no rule of a provider's bill reads, so that a count leaves nothing out.

A provider may show a model any field: examples of a tool's input, variables of a stored prompt, a predicted reply. What
a field costs is not known, so its texts are counted as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Final

from ctxguard.tokens.media import is_payload
from ctxguard.tokens.schemas import DECLARATIONS, PARAMETERS, WRAPPED, Native, compact, fields_of

_FRAMING: Final = 128
"""Maximum number of characters in the texts of a field that cost no tokens, such as the name of a choice."""
_GRAMMAR: Final = 1_024
"""Maximum number of characters in the short texts of a schema, each counted once, that may be its grammar: keywords,
references, and the titles that generators derive from names."""
_READ: Final = frozenset({"name", "type", "description", "format", *PARAMETERS})
"""Keys of a function that its rendering contains."""
_DEEPEST: Final = 1_000
_HOLDERS: Final = (*DECLARATIONS, *WRAPPED, "tools")


def texts_in(value: object) -> Iterator[str]:
    """Yield the strings in a value: keys, and values that are no data of media. Keys that are numbers are left out.

    Raises:
        RecursionError: If the value contains itself, or is nested too deeply to be written as JSON.
    """
    stack = [(value, 0)]
    while stack:
        one, depth = stack.pop()
        if depth > _DEEPEST:
            raise RecursionError
        if isinstance(one, str):
            if one and not is_payload(one):
                yield one
        elif isinstance(one, (list, tuple)):
            stack += [(member, depth + 1) for member in reversed(one)]
        else:
            for key, member in fields_of(one).items():
                if not str(key).lstrip("-").isdigit():  # such as the tokens of `logit_bias`
                    yield str(key)
                stack.append((member, depth + 1))


def unread_texts(fields: Mapping[str, object], read: Iterable[object] = ()) -> list[str]:
    """Return the texts in the fields of a request that are longer than framing, field by field.

    Args:
        fields: The fields, by their names.
        read: The parts of the fields that are counted elsewhere.
    """
    counted = Counter(text for one in read for text in texts_in(one))
    unread: list[str] = []
    for value in fields.values():
        found = []
        for text in texts_in(value):
            if counted[text]:
                counted[text] -= 1
            else:
                found.append(text)
        if sum(map(len, found)) > _FRAMING:
            unread += found
    return unread


def unread_in_tool(tool: Native, rendered: str, loaded: Container[object] = ()) -> list[str]:
    """Return the texts in a tool that are longer than framing, and that its rendering does not contain.

    Args:
        tool: The tool in the format of any API.
        rendered: The functions of the tool, as the model sees them.
        loaded: Names of deferred functions that a tool search has loaded; the model sees no others.
    """
    if tool.get("defer_loading") is True and tool.get("name") not in loaded:
        return []
    rest: dict[str, object] = {}
    left_out: list[str] = []
    for key, value in tool.items():
        if key in _HOLDERS and (isinstance(value, Mapping) or _is_list_of_records(value)):
            inner = [value] if isinstance(value, Mapping) else value
            left_out += [text for one in inner for text in unread_in_tool(one, rendered, loaded)]  # type: ignore[attr-defined]
        elif key in _READ:
            left_out += _left_out(value, rendered)
        else:
            rest[key] = value
    return left_out + unread_texts({"": rest})


def _left_out(value: object, rendered: str) -> list[str]:
    """Return the texts in what a rendering should contain, such as a schema, that it does not contain."""
    hidden = [text for text in texts_in(value) if not _is_shown(text, rendered)]
    short = list(dict.fromkeys(text for text in hidden if len(text) <= _FRAMING))
    return [text for text in hidden if len(text) > _FRAMING] + (short if sum(map(len, short)) > _GRAMMAR else [])


def _is_list_of_records(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, Mapping) for one in value)


def _is_shown(text: str, rendered: str) -> bool:
    escaped, lines = compact(text)[1:-1], [line.strip() for line in text.splitlines()]
    return escaped in rendered or all(line in rendered for line in lines)
