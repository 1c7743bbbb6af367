"""Restore values: in a text, in tool-call arguments, and in a stream whose chunks may split a placeholder."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, TypeAlias

from ctxguard.pii.mask.json_text import JsonNumber, JsonToken, holds_json, is_json, json_tokens, rewrite_json
from ctxguard.pii.mask.pseudonyms import Original, Pseudonyms
from ctxguard.pii.placeholders import PSEUDONYM
from ctxguard.pii.settings import check_text

if TYPE_CHECKING:
    from ctxguard.artifacts import ToolCall

LONGEST: Final = 64
"""Characters a placeholder has at most, quotes included."""
_LOOSELY: Final = re.compile(r"<[A-Za-z][A-Za-z_ ]{0,40}[ _#-]?\d{1,6}(?:_\d\d){0,3}>")
_SIGNS: Final = r"[ \n\xa0\u202f*`]{0,3}"
# What models make of placeholders: `<email_1>`, `<EMAIL 1>`, `<**EMAIL_1**>`, `&lt;EMAIL_1&gt;`, `<EMAIL_1`.
_SPELLED: Final = re.compile(
    rf"(?:<|&lt;)[*`]{{0,3}}(?P<label>[A-Za-z](?:[A-Za-z_]|[ \n\xa0\u202f](?=[A-Za-z_\d])){{0,42}})\\?_?"
    rf"(?P<number>\d{{1,2}}(?:_\d\d){{0,3}}){_SIGNS}(?:>|&gt;|(?<![*`\s])(?P<open>)(?![\w>]))"
    r"|(?<![\w<&;])(?P<bare>[A-Z][A-Z_]{0,38}[A-Z])_(?P<digits>\d{1,2}(?:_\d\d){0,3})(?:>|&gt;)"
)
_START: Final = (
    rf"(?:(?:<|&lt;)[*`]{{0,3}}(?:[A-Za-z][A-Za-z_ \n\xa0\u202f\\]{{0,42}}(?:\d[\d_]{{0,10}}{_SIGNS}(?:&g?t?)?)?)?"
    r"|&l?t?|(?<![\w<&;])[A-Z][A-Z_]{0,40}(?:\d[\d_]{0,10}(?:&g?t?)?)?)"
)
# A link up to a placeholder in it, with its host.
_LINK: Final = re.compile(r"//(?P<host>[^\s/?#\"'()\[\]]*)[^\s\"'()\[\]]*\Z")
_LONGEST_LINK: Final = 2_000
NamesHost: TypeAlias = Callable[[str], bool]
"""Tells whether a user named a host."""
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


def restore(
    text: str,
    pseudonyms: Pseudonyms,
    *,
    escaped: bool = False,
    names_host: NamesHost | None = None,
    before: str = "",
) -> Restored:
    """Replace placeholders by their values, also those that a model spells in another way.

    Args:
        text: the text.
        pseudonyms: the placeholders and their values.
        escaped: write values as inside a JSON string.
        names_host: returns whether a user named a host; placeholders stay in links to others. None restores all.
        before: the text before it.
    """
    count = 0

    def replaced(match: re.Match[str]) -> str:
        nonlocal count
        original = _meant(match, pseudonyms)
        if original is None or (names_host is not None and _leaks(before + text[: match.start()], names_host)):
            return match[0]
        count += 1
        return json.dumps(original.value)[1:-1] if escaped else original.value

    plain = _SPELLED.sub(replaced, text)
    return Restored(plain, count, tuple(_unknown(text, pseudonyms)))


def _meant(match: re.Match[str], pseudonyms: Pseudonyms) -> Original | None:
    """Return the value of a placeholder as a model spelled it; None if there is none, or it is ambiguous."""
    exact = pseudonyms.original(match[0])
    if exact is not None:
        return exact
    label, number = (match["label"] or match["bare"]).upper(), match["number"] or match["digits"]
    names = {"".join(label.split()).strip("_"), re.sub(r"[\s_]+", "_", label).strip("_")}
    found = [name for name in names if pseudonyms.original(f"<{name}_{number}>") is not None]
    if len(found) != 1:
        return None
    is_cut = match["open"] is not None and match.end() == len(match.string)
    longer = (f"<{found[0]}_{number}{rest}>" for rest in ("_00", *"0123456789"))
    if is_cut and any(pseudonyms.original(name) is not None for name in longer if PSEUDONYM.fullmatch(name)):
        return None
    return pseudonyms.original(f"<{found[0]}_{number}>")


def _leaks(before: str, names_host: NamesHost) -> bool:
    """Return whether a text ends inside a link to a host that no user named."""
    link = _LINK.search(before, max(0, len(before) - _LONGEST_LINK))
    return link is not None and not names_host(link["host"].rpartition("@")[2].partition(":")[0].lower())


def _unknown(text: str, pseudonyms: Pseudonyms) -> Iterator[str]:
    """Yield texts that look like a placeholder but have no value."""
    for match in _LOOSELY.finditer(text):
        spelled = _SPELLED.fullmatch(match[0])
        if spelled is None or _meant(spelled, pseudonyms) is None:
            yield match[0]


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

    tools: Mapping[str, bool] = {}
    """Which tools get values, see `gets_values`."""

    def restore(self, text: str, *, names_host: NamesHost | None = None) -> Restored:
        """Restore values in what the model wrote, and list the placeholders that were never assigned.

        Args:
            text: what the model wrote.
            names_host: tells whether a user named a host: in links to others, placeholders stay. None restores all.

        Raises:
            TypeError: `text` is not a string, such as the None in a message that only calls tools.
        """
        check_text(text)
        return restore(text, self._pseudonyms, escaped=is_json(text), names_host=names_host)

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
        """Return a tool call with values restored in its arguments, right before the tool runs, if it may have them."""
        if not gets_values(self.tools, call.name):
            return call
        arguments = self.unmask_arguments(call.arguments)
        return call if arguments == call.arguments else replace(call, arguments=arguments)

    def unmask_stream(self, *, arguments: bool = False, names_host: NamesHost | None = None) -> UnmaskStream:
        """Return an object that restores values in one stream.

        Args:
            arguments: True for streamed tool-call arguments, False for text.
            names_host: see `restore`.
        """
        return UnmaskStream(self._pseudonyms, arguments=arguments, names_host=names_host)


# Words in the names of tools that reach outside: mail, HTTP, messages, a shell.
_OUTWARD: Final = re.compile(
    r"mail|send|post|http|url|web|fetch|brows|navigat|upload|publish|share|invite|message|sms|slack|webhook|curl|shell"
    r"|bash|exec|terminal|command|transfer|pay",
    re.IGNORECASE,
)
OUTWARD: Final = "outward"


def gets_values(tools: Mapping[str, bool], name: str) -> bool:
    """Return whether a tool gets real values in its arguments.

    Args:
        tools: True or False by a tool's name or a pattern of names (`crm_*`), by `outward` for tools that reach outside
            (mail, HTTP, messages, a shell), and by `*` for the rest; the first that fits decides, names before kinds.
        name: the name of the tool.
    """
    patterns = (pattern for pattern in tools if pattern not in (OUTWARD, "*"))
    named = (tools[pattern] for pattern in patterns if fnmatchcase(name, pattern))
    rest = tools.get("*", True)
    return next(named, tools.get(OUTWARD, rest) if _OUTWARD.search(name) else rest)


class UnmaskStream:
    """Restore values in a stream: `feed` each chunk, then `close`. Use one for each block of text or tool call.

    It holds back only text that may be the beginning of a placeholder, at most 64 characters.

    Args:
        pseudonyms: the placeholders and their values.
        arguments: True for streamed tool-call arguments: values are escaped, numbers lose their quotes.
        names_host: tells whether a user named a host: in links to others, placeholders stay. None restores all.
    """

    def __init__(self, pseudonyms: Pseudonyms, *, arguments: bool = False, names_host: NamesHost | None = None) -> None:
        self._pseudonyms = pseudonyms
        self._names_host = names_host
        self._before = ""
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
        restored = restore(
            text, self._pseudonyms, escaped=self._arguments, names_host=self._names_host, before=self._before
        )
        self._before = (self._before + text)[-_LONGEST_LINK:] if self._names_host is not None else ""
        return restored.text

    def _note_unknown(self, chunk: str) -> None:
        """Record invented placeholders, which models spell loosely; the output does not wait for the rest of them."""
        if not self._open and "<" not in chunk:
            return
        text = self._open + chunk
        self.unknown += _unknown(text, self._pseudonyms)
        opened = text.rfind("<")
        is_open = opened >= 0 and ">" not in text[opened:] and len(text) - opened <= LONGEST
        self._open = text[opened:] if is_open else ""

    def _number(self, match: re.Match[str]) -> str:
        original: Original | None = self._pseudonyms.original(match[1])
        return original.value if original is not None and original.is_number else match[0]
