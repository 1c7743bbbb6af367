"""Restore values: in a text, in tool-call arguments, and in a stream whose chunks may split a placeholder."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ctxguard.pii.mask.json_text import JsonNumber, JsonToken, holds_json, is_json, json_tokens, rewrite_json
from ctxguard.pii.mask.pseudonyms import Original, Pseudonyms
from ctxguard.pii.placeholders import PSEUDONYM
from ctxguard.pii.settings import check_text

if TYPE_CHECKING:
    from ctxguard.artifacts import ToolCall

LONGEST: Final = 64
"""Characters a placeholder has at most, quotes included."""
_LOOSELY: Final = re.compile(r"<[A-Za-z][A-Za-z_ ]{0,40}[ _#-]?\d{1,6}(?:_\d\d){0,3}>")
_START: Final = r"<(?:[A-Z][A-Z_]{0,40}(?:\d{1,6}|\d{1,2}(?:_\d{0,2}){1,3})?)?"
_OPEN_TEXT: Final = re.compile(rf"{_START}\Z")
_OPEN_ARGUMENTS: Final = re.compile(rf'"(?:{_START}(?:>(?:"\s{{0,8}})?)?)?\Z|{_START}\Z')
_QUOTED: Final = re.compile(rf'"({PSEUDONYM.pattern})"(?!\s*:)')


@dataclass(frozen=True, slots=True)
class Restored:
    """A text with its values restored.

    Attributes:
        text: the text.
        restored: how many placeholders were replaced.
        unknown: placeholders that were never assigned, or were altered; they stay in the text.
    """

    text: str
    restored: int
    unknown: tuple[str, ...]


def restore(text: str, pseudonyms: Pseudonyms, *, escaped: bool = False) -> Restored:
    """Replace placeholders by their values; with `escaped`, as inside a JSON string."""
    count = 0
    unknown: list[str] = []

    def replaced(match: re.Match[str]) -> str:
        nonlocal count
        original = pseudonyms.original(match[0])
        if original is None:
            return match[0]
        count += 1
        return json.dumps(original.value)[1:-1] if escaped else original.value

    plain = PSEUDONYM.sub(replaced, text)
    unknown = [match[0] for match in _LOOSELY.finditer(text) if pseudonyms.original(match[0]) is None]
    return Restored(plain, count, tuple(unknown))


def restore_arguments(text: str, pseudonyms: Pseudonyms) -> Restored:
    """Restore values in tool-call arguments; JSON stays valid, also in strings, and numbers become numbers again."""
    if not is_json(text):
        return restore(text, pseudonyms, escaped=True)
    parts: list[Restored] = []

    def change(token: JsonToken) -> str:
        original = None if token.is_key else pseudonyms.original(token.value)
        if original is not None and original.is_number:
            parts.append(Restored("", 1, ()))
            return JsonNumber(original.value)
        way = restore_arguments if holds_json(token.value) else restore
        parts.append(way(token.value, pseudonyms))
        return parts[-1].text if parts[-1].restored else token.value

    rewritten = rewrite_json(text, change, json_tokens(text))
    unknown = tuple(name for part in parts for name in part.unknown)
    return Restored(rewritten, sum(part.restored for part in parts), unknown)


class GivesBack(ABC):
    """The interface for restoring values, which a masking session and a session vault share."""

    @property
    @abstractmethod
    def _pseudonyms(self) -> Pseudonyms:
        """The placeholders and their values."""

    def restore(self, text: str) -> Restored:
        """Restore values in what the model wrote, and list the placeholders that were never assigned.

        Raises:
            TypeError: `text` is not a string, such as the None in a message that only calls tools.
        """
        check_text(text)
        return restore(text, self._pseudonyms, escaped=is_json(text))

    def unmask(self, text: str) -> str:
        """Return what the model wrote with values restored; invented placeholders stay as they are.

        Raises:
            TypeError: `text` is not a string.
            VaultError: a record of the session cannot be opened.
        """
        return self.restore(text).text

    def unmask_arguments(self, text: str) -> str:
        """Return tool-call arguments with values restored, for use right before the tool runs; JSON stays valid.

        Raises:
            TypeError: they are not a string; `ctxguard.adapting.unmask_arguments` also accepts an object.
        """
        check_text(text)
        return restore_arguments(text, self._pseudonyms).text

    def unmask_call(self, call: ToolCall) -> ToolCall:
        """Return a tool call with values restored in its arguments, for use right before the tool runs."""
        arguments = self.unmask_arguments(call.arguments)
        return call if arguments == call.arguments else replace(call, arguments=arguments)

    def unmask_stream(self, *, arguments: bool = False) -> UnmaskStream:
        """Return an object that restores values in one stream.

        Args:
            arguments: True for streamed tool-call arguments, False for text.
        """
        return UnmaskStream(self._pseudonyms, arguments=arguments)


class UnmaskStream:
    """Restore values in a stream: `feed` each chunk, then `close`. Use one for each block of text or tool call.

    It holds back only text that may be the beginning of a placeholder, at most 64 characters.

    Args:
        pseudonyms: the placeholders and their values.
        arguments: True for streamed tool-call arguments: values are escaped, numbers lose their quotes.
    """

    def __init__(self, pseudonyms: Pseudonyms, *, arguments: bool = False) -> None:
        self._pseudonyms = pseudonyms
        self._arguments = arguments
        self._held = ""
        self._open = ""
        self.unknown: list[str] = []

    def feed(self, chunk: str) -> str:
        """Return the text that can be released now.

        Raises:
            TypeError: the chunk is not a string.
        """
        check_text(chunk)
        self._note_unknown(chunk)
        if not self._held and "<" not in chunk and not (self._arguments and '"' in chunk):
            return chunk
        text = self._held + chunk
        cut = self._safe(text)
        self._held = text[cut:]
        return self._restored(text[:cut])

    def close(self) -> str:
        """Return what was held back, at the end of the stream."""
        rest, self._held = self._held, ""
        return self._restored(rest)

    def over(self, chunks: Iterable[str]) -> Iterator[str]:
        """Yield the chunks of a whole stream with values restored; empty chunks are left out."""
        for chunk in chunks:
            if piece := self.feed(chunk):
                yield piece
        if piece := self.close():
            yield piece

    def _safe(self, text: str) -> int:
        """Return the position up to which a text contains no unfinished placeholder."""
        opened = _OPEN_ARGUMENTS if self._arguments else _OPEN_TEXT
        match = opened.search(text, max(0, len(text) - LONGEST))
        return len(text) if match is None else match.start()

    def _restored(self, text: str) -> str:
        if self._arguments:
            text = _QUOTED.sub(self._number, text)
        return restore(text, self._pseudonyms, escaped=self._arguments).text

    def _note_unknown(self, chunk: str) -> None:
        """Record invented placeholders, which models spell loosely; the output does not wait for the rest of them."""
        if not self._open and "<" not in chunk:
            return
        text = self._open + chunk
        self.unknown += [match[0] for match in _LOOSELY.finditer(text) if self._pseudonyms.original(match[0]) is None]
        opened = text.rfind("<")
        is_open = opened >= 0 and ">" not in text[opened:] and len(text) - opened <= LONGEST
        self._open = text[opened:] if is_open else ""

    def _number(self, match: re.Match[str]) -> str:
        original: Original | None = self._pseudonyms.original(match[1])
        return original.value if original is not None and original.is_number else match[0]
