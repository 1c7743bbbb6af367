"""Restore values in texts, in tool-call arguments, and in streams whose chunks may split a placeholder."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from ctxguard.errors import ConfigError
from ctxguard.pii.mask.json_text import (
    JsonDepth,
    JsonNumber,
    JsonToken,
    encode_json,
    holds_json,
    is_json,
    json_tokens,
    rewrite_json,
    starts_json,
)
from ctxguard.pii.mask.links import Links, NamesHost
from ctxguard.pii.mask.pseudonyms import Original, Pseudonyms
from ctxguard.pii.placeholders import ESCAPES, GREATER, LESS, PSEUDONYM, SPELLED, pseudonyms_of
from ctxguard.pii.spans import check_text
from ctxguard.settings import nearest

if TYPE_CHECKING:
    from ctxguard.artifacts import ToolCall

LONGEST: Final = 80
"""Maximum length of a placeholder in characters, including quotes and escaped brackets."""
_LOOSELY: Final = re.compile(r"<[A-Za-z][A-Za-z_ ]{0,40}[ _#-]?\d{1,6}(?:_\d\d){0,3}>")
# A placeholder at the end of a text may have been cut off, also behind these characters.
_GOES_ON: Final = re.compile(r"(?:[_ \n\xa0\u202f*`]|\\{1,16}+[nrt]?+){0,20}\Z")
_SIGNS_BEFORE: Final = 1
"""The number of characters before a placeholder that decide whether it is one."""
_MAY_HOLD: Final = re.compile(r"[<>]|&[lg]t;|\\u00(?:3[ce]|26[lg]t;)", re.IGNORECASE)
_CLOSING: Final = re.compile(r"(\\+)u00(?:3[eE]|26gt;)\Z")
# The beginning of an escaped bracket, at the end of a text.
_OPEN_ESCAPE: Final = rf"{ESCAPES}(?:u(?:0{{1,2}}|003|002|0026[lg]?t?)?)?"
_OPEN_GREATER: Final = rf"(?:&g?t?|{_OPEN_ESCAPE})?"
# A number may go on behind white space and escapes.
_OPEN_NUMBER: Final = rf"\d(?:[\d_ \n\xa0\u202f*`]|\\{{1,16}}+[nrt_]?){{0,20}}{_OPEN_GREATER}"
_START: Final = (
    rf"(?:{LESS}[*`]{{0,3}}(?:[A-Za-z][A-Za-z_ \n\xa0\u202f]{{0,42}}(?:\\{{0,2}}_?(?:{_OPEN_NUMBER})?)?)?"
    rf"|&l?t?|{_OPEN_ESCAPE}|(?<![\w<&;])[A-Z][A-Z_]{{0,40}}(?:\d[\d_]{{0,10}}{_OPEN_GREATER})?)"
)
_OPEN_TEXT: Final = re.compile(rf"{_START}\Z")
# A quote of JSON in a string is escaped.
_MARK: Final = r'\\{0,15}"'
_OPEN_ARGUMENTS: Final = re.compile(rf"{_MARK}(?:{_START}(?:{GREATER}\\{{0,15}}(?:\"\s{{0,8}})?)?)?\Z|{_START}\Z")
_MAY_BEGIN: Final = re.compile(r'["<&\\A-Z]')
"""Matches the first character of what `_OPEN_TEXT` and `_OPEN_ARGUMENTS` match. It is ten times as fast."""
_QUOTED: Final = re.compile(rf'(\\*)"{LESS}{PSEUDONYM.pattern[1:-1]}{GREATER}(\\*)"(?!\s*:)')


@dataclass(frozen=True, slots=True)
class Restored:
    """A text in which values were restored.

    Attributes:
        text: The text.
        restored: Number of placeholders that were replaced.
        unknown: Placeholders that were never assigned or are misspelled; they stay in the text.
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
    links: Links | None = None,
) -> Restored:
    """Replace placeholders by their values, including placeholders that a model has spelled differently.

    Args:
        text: The text.
        pseudonyms: The placeholders and their values.
        escaped: Whether to escape values for use inside a JSON string.
        names_host: Returns whether a user mentioned a host. Placeholders in links to other hosts are kept, so that a
            link that the model was tricked into writing leaks no value. None restores all.
        links: Has read the text before `text`, in which a link may begin.
    """
    links = links or (None if names_host is None else Links(names_host))
    plain, count, _ = _restore_until(text, 0, len(text), pseudonyms, escaped=escaped, links=links)
    return Restored(plain, count, tuple(_unknown(text, pseudonyms)))


def _restore_until(
    text: str,
    start: int,
    end: int,
    pseudonyms: Pseudonyms,
    *,
    escaped: bool,
    links: Links | None,
    json_depth: JsonDepth | None = None,
) -> tuple[str, int, int]:
    """Restore the placeholders of a text that begin in a part of it, judging each by the text before and after it.

    Args:
        text: The text.
        start: The offset at which the part begins.
        end: The offset at which it ends.
        pseudonyms: The placeholders and their values.
        escaped: Whether to escape values for use inside a JSON string.
        links: Has read the text before the part, and reads the part. Placeholders in links that leak are kept. None
            restores all.
        json_depth: Has read the text before the part, if it is JSON, and reads the part. Values in JSON in a string are
            escaped once more, and values that were numbers lose the quotes around their placeholders.

    Returns:
        The part with values restored, the number of values, and the offset at which the part ends: `end`, or behind a
        placeholder that begins before `end`.
    """
    pieces: list[str] = []
    count, done, unread, counted = 0, start, list[str](), start
    read = None if links is None else links.read if json_depth is None else links.read_json
    free = end if links is None else links.none_until(text, start)
    for match in SPELLED.finditer(text, start):
        if match.start() >= end:
            break
        first, last = match.span()
        original = _look_up(match, pseudonyms)
        if links is not None and read is not None:
            unread.append(text[done:first])
            done = last
            if original is not None and first >= free:
                read("".join(unread))
                unread.clear()
                original = None if links.leaks() else original
            unread.append("_")  # a placeholder, whose brackets are not those of a tag
        if original is None:
            continue
        count += 1
        depth = int(escaped)
        if json_depth is not None:
            json_depth.read(text[counted:first])
            counted, depth = first, max(1, json_depth.depth)
        first, last, written = _replacement(match, original, start, depth, is_json=json_depth is not None)
        pieces += (text[start:first], written)
        start = last
    if read is not None:
        read("".join((*unread, text[done:end])))
    pieces.append(text[start:end])
    end = max(start, end)
    if json_depth is not None:
        json_depth.read(text[counted:end])
    return "".join(pieces), count, end


def _replacement(
    match: re.Match[str], original: Original, start: int, depth: int, *, is_json: bool
) -> tuple[int, int, str]:
    """Return where a placeholder begins and ends, and what replaces it. For a number in JSON, that includes its quotes.

    Args:
        match: The placeholder.
        original: Its value.
        start: The offset behind which the quotes have to begin.
        depth: Number of JSON strings around the placeholder, which says how often its quotes are escaped.
        is_json: Whether the text is JSON.
    """
    if is_json and original.is_number:
        backslashes = 2 ** (depth - 1) - 1
        quoted = _QUOTED.match(match.string, max(start, match.start() - 1 - backslashes))
        if quoted is not None and len(quoted[1]) == len(quoted[4]) == backslashes:
            return *quoted.span(), original.value
    return *match.span(), _write(original.value, match[0], depth)


def _write(value: str, spelled: str, depth: int) -> str:
    """Return a value as it replaces a placeholder in `depth` strings of JSON.

    It is escaped at least as often as the placeholder's brackets are.
    """
    if not depth and "\\" not in spelled:
        return value
    slashes, closing = len(spelled) - len(spelled.lstrip("\\")), _CLOSING.search(spelled)
    # `\\u003c` is a bracket that is escaped twice, but `\\\u003c` is a backslash, and a bracket that is escaped once.
    own, last = (number & -number for number in (slashes, 0 if closing is None else len(closing[1])))
    for _ in range(max(depth, own.bit_length(), last.bit_length())):
        value = encode_json(value)[1:-1]
    return spelled[: slashes - own] + value


def _look_up(match: re.Match[str], pseudonyms: Pseudonyms) -> Original | None:
    """Return the value of a placeholder as spelled by a model; None if it was never assigned or is ambiguous."""
    exact = pseudonyms.original(match[0])
    if exact is not None:
        return exact
    found = [name for name in pseudonyms_of(match).values() if pseudonyms.original(name) is not None]
    if len(found) != 1:
        return None
    is_cut = match["open"] is not None and _GOES_ON.match(match.string, match.end()) is not None
    longer = (f"{found[0][:-1]}{rest}>" for rest in ("_00", *"0123456789"))
    if is_cut and any(pseudonyms.original(name) is not None for name in longer if PSEUDONYM.fullmatch(name)):
        return None
    return pseudonyms.original(found[0])


def values_in(text: str, pseudonyms: Pseudonyms) -> dict[str, Original]:
    """Return the values that would be restored in a text, by placeholder."""
    found: dict[str, Original] = {}
    for match in SPELLED.finditer(text):
        for name in {match[0], *pseudonyms_of(match).values()}:
            if (original := pseudonyms.original(name)) is not None:
                found[name] = original
    return found


def _unknown(text: str, pseudonyms: Pseudonyms) -> Iterator[str]:
    """Yield each substring that looks like a placeholder but has no value."""
    for match in _LOOSELY.finditer(text):
        if pseudonyms.original(match[0]) is not None:
            continue
        spelled = SPELLED.fullmatch(match[0])
        if spelled is None or _look_up(spelled, pseudonyms) is None:
            yield match[0]


def restore_arguments(
    text: str, pseudonyms: Pseudonyms, links: Links | None = None, *, is_inner: bool = False
) -> Restored:
    """Restore values in tool-call arguments. JSON stays valid, and values that were numbers become numbers again.

    Strings that contain JSON are restored in the same way.

    Args:
        text: The arguments.
        pseudonyms: The placeholders and their values.
        links: Has read the text before, and reads the arguments. Placeholders in links that leak are kept. None
            restores all.
        is_inner: Whether the text is the value of a string in JSON.
    """
    if not is_json(text):
        json_depth = JsonDepth() if starts_json(text) else None
        plain, count, _ = _restore_until(
            text, 0, len(text), pseudonyms, escaped=True, links=links, json_depth=json_depth
        )
        return Restored(plain, count, tuple(_unknown(text, pseudonyms)))
    parts: list[Restored] = []
    done = 0
    read = None if links is None else links.read if is_inner else links.read_json

    def change(token: JsonToken) -> str:
        nonlocal done
        if token.is_number or _MAY_HOLD.search(token.value) is None:
            return token.value
        original = None if token.is_key else pseudonyms.original(token.value)
        if original is not None and original.is_number:
            parts.append(Restored("", 1, ()))
            return JsonNumber(original.value)
        if read is not None:
            read(text[done : token.start + 1])
            done = token.end - 1
        if holds_json(token.value):
            parts.append(restore_arguments(token.value, pseudonyms, links, is_inner=True))
        else:
            parts.append(restore(token.value, pseudonyms, links=links))
        return parts[-1].text if parts[-1].restored else token.value

    rewritten = rewrite_json(text, change, json_tokens(text))
    if read is not None:
        read(text[done:])
    unknown = tuple(name for part in parts for name in part.unknown)
    return Restored(rewritten, sum(part.restored for part in parts), unknown)


class GivesBack(ABC):
    """The methods for restoring values that masking sessions and session vaults share."""

    @property
    @abstractmethod
    def _pseudonyms(self) -> Pseudonyms:
        """The placeholders and their values."""

    tools: Mapping[str, bool] = {}
    """Whether a tool gets real values in its arguments, by tool name or pattern, see `gets_values`."""

    def restore(self, text: str, *, names_host: NamesHost | None = None) -> Restored:
        """Restore values in a text of the model, and list the placeholders that were never assigned.

        Args:
            text: The model's text.
            names_host: Returns whether a user mentioned a host. Placeholders in links to other hosts are kept. None
                restores all.

        Raises:
            TypeError: If `text` is not a string, such as the None content of a message that only calls tools.
        """
        check_text(text)
        return restore(text, self._pseudonyms, escaped=is_json(text), names_host=names_host)

    def unmask(self, text: str) -> str:
        """Return a text of the model with values restored. Placeholders that were never assigned stay unchanged.

        Raises:
            TypeError: If `text` is not a string.
            VaultError: If a record of the session cannot be decrypted.
        """
        return self.restore(text).text

    def unmask_arguments(self, text: str, *, names_host: NamesHost | None = None) -> str:
        """Return tool-call arguments with values restored; JSON stays valid. Call it right before the tool runs.

        Args:
            text: The arguments.
            names_host: See `restore`.

        Raises:
            TypeError: If `text` is not a string. `ctxguard.adapting.unmask_arguments` also accepts parsed arguments.
        """
        check_text(text)
        links = None if names_host is None else Links(names_host)
        return restore_arguments(text, self._pseudonyms, links).text

    def unmask_call(self, call: ToolCall) -> ToolCall:
        """Return a tool call with values restored in its arguments, unless `tools` denies values to this tool.

        Call it right before the tool runs.
        """
        if not gets_values(self.tools, call.name):
            return call
        arguments = self.unmask_arguments(call.arguments)
        return call if arguments == call.arguments else replace(call, arguments=arguments)

    def unmask_stream(self, *, arguments: bool = False, names_host: NamesHost | None = None) -> UnmaskStream:
        """Return an object that restores values in one stream.

        Args:
            arguments: True for streamed tool-call arguments, False for text.
            names_host: See `restore`.
        """
        return UnmaskStream(self._pseudonyms, arguments=arguments, names_host=names_host)

    def restore_after(self, text: str, links: Links | None, *, arguments: bool = False) -> str:
        """Return a text, or the arguments of a call, with values restored, judging links by the text before it, too.

        Args:
            text: The text.
            links: Has read the text before, and reads this text.
            arguments: Whether the text is arguments, or an answer in JSON.
        """
        if arguments:
            return restore_arguments(text, self._pseudonyms, links).text
        return restore(text, self._pseudonyms, escaped=is_json(text), links=links).text

    def stream_after(self, links: Links | None, *, arguments: bool = False) -> UnmaskStream:
        """Return an object that does the same as `restore_after` for a text that is streamed."""
        return UnmaskStream(self._pseudonyms, arguments=arguments, links=links)


# Words in the names of tools that send data out: mail, HTTP, messages, a shell. No list of words is complete.
_OUTWARD: Final = re.compile(
    r"mail|send|post|http|url|web|fetch|brows|navigat|upload|publish|share|invite|message|sms|slack|webhook|curl|shell"
    r"|bash|exec|terminal|command|transfer|pay|smtp|forward|reply|notif|tweet|python"
    r"|(?<![A-Za-z])(?:sh|cmd|run|ssh|ftp|eval)(?-i:(?![a-z]))|(?-i:(?<=[a-z])(?:Sh|Cmd|Run|Ssh|Ftp|Eval)(?![a-z]))",
    re.IGNORECASE,
)
OUTWARD: Final = "outward"
_LIKENESS: Final = 0.8
"""The similarity to `outward` from which a name counts as its misspelling. `outwards` and `outwrad` are so similar, but
`forward` and `onward`, which may be tools, are not."""


def require_tools(tools: Mapping[str, bool]) -> Mapping[str, bool]:
    """Return the setting `tools` unchanged, and reject likely misspellings of `outward`: they would deny nothing.

    Raises:
        ConfigError: If a name is a likely misspelling of `outward`.
    """
    for name in tools:
        if name != OUTWARD and "[" not in name and (hint := nearest(name, [OUTWARD], likeness=_LIKENESS)):
            message = f"no tools are meant by {name!r}{hint}; for a tool of this name, write '[{name[:1]}]{name[1:]}'"
            raise ConfigError(message, setting=f"tools.{name}")
    return tools


def gets_values(tools: Mapping[str, bool], name: str, *, is_outward: bool = False) -> bool:
    """Return whether a tool gets real values, rather than placeholders, in its arguments.

    Args:
        tools: True or False by tool name, by pattern (`crm_*`), by `outward` for tools that send data out (mail, HTTP,
            messages, a shell), and by `*` for all other tools. Names and patterns come before `outward`; the first one
            that matches decides. Tools without an entry get values. Which tools are `outward` is guessed from words in
            their names; to be sure, name your tools.
        name: The name of the tool; empty if it is not known for certain. Such a tool gets values only if no tool is
            denied them.
        is_outward: Whether the tool counts as `outward`, whatever its name is.
    """
    if not name:
        return all(tools.values())
    patterns = (pattern for pattern in tools if pattern not in (OUTWARD, "*"))
    named = (tools[pattern] for pattern in patterns if fnmatchcase(name, pattern))
    rest = tools.get("*", True)
    return next(named, tools.get(OUTWARD, rest) if is_outward or _OUTWARD.search(name) else rest)


class UnmaskStream:
    """Restores values in a stream: call `feed` with each chunk, and `close` at the end.

    Each text and each tool call in a stream needs its own object. Only text that may be the beginning of a placeholder
    is held back, at most 80 characters.

    Args:
        pseudonyms: The placeholders and their values.
        arguments: True for streamed tool-call arguments: values are escaped, and numbers lose their quotes.
        names_host: Returns whether a user mentioned a host. Placeholders in links to other hosts are kept. None
            restores all.
        links: Has read the text before this one, in which a link may begin.
    """

    def __init__(
        self,
        pseudonyms: Pseudonyms,
        *,
        arguments: bool = False,
        names_host: NamesHost | None = None,
        links: Links | None = None,
    ) -> None:
        self._pseudonyms = pseudonyms
        self._links = links or (None if names_host is None else Links(names_host))
        self._before = ""
        self._arguments = arguments
        self._is_json: bool | None = None if arguments else False
        self._json_depth: JsonDepth | None = None
        self._pending = ""
        self._open = ""
        self.unknown: list[str] = []

    def feed(self, chunk: str) -> str:
        """Add a chunk, and return the text that can be released now, with values restored.

        Raises:
            TypeError: If the chunk is not a string.
        """
        check_text(chunk)
        self._note_unknown(chunk)
        self._pending += chunk
        return self._release(self._safe_end(self._pending))

    def close(self) -> str:
        """End the stream, and return the text that was held back."""
        return self._release(len(self._pending))

    def abandon(self) -> str:
        """End the stream, and return the text that was held back, without restoring anything."""
        rest, self._pending = self._pending, ""
        return rest

    def over(self, chunks: Iterable[str]) -> Iterator[str]:
        """Yield the chunks of a whole stream with values restored. Empty chunks are omitted."""
        for chunk in chunks:
            if piece := self.feed(chunk):
                yield piece
        if piece := self.close():
            yield piece

    def _safe_end(self, text: str) -> int:
        """Return the offset before which a text contains no unfinished placeholder."""
        opened = _OPEN_ARGUMENTS if self._arguments else _OPEN_TEXT
        first = _MAY_BEGIN.search(text, max(0, len(text) - LONGEST))
        match = None if first is None else opened.search(text, first.start())
        return len(text) if match is None else match.start()

    def _release(self, size: int) -> str:
        """Return the first characters of the pending text with values restored, as they are in the whole text."""
        if self._is_json is None and self._pending.strip():
            self._is_json = starts_json(self._before + self._pending)
            self._json_depth = JsonDepth() if self._is_json else None
        if _MAY_HOLD.search(self._pending) is None:
            return self._pass_on(size)
        text, start = self._before + self._pending, len(self._before)
        end = start + size
        plain, _, end = _restore_until(
            text,
            start,
            end,
            self._pseudonyms,
            escaped=self._arguments,
            links=self._links,
            json_depth=self._json_depth,
        )
        self._pending = text[end:]
        self._before = text[max(0, end - _SIGNS_BEFORE) : end]
        return plain

    def _pass_on(self, size: int) -> str:
        """Return the first characters of a pending text that holds no sign of a placeholder."""
        plain, self._pending = self._pending[:size], self._pending[size:]
        if self._links is not None:
            (self._links.read_json if self._is_json else self._links.read)(plain)
        if self._json_depth is not None:
            self._json_depth.read(plain)
        self._before = plain[-_SIGNS_BEFORE:] or self._before
        return plain

    def _note_unknown(self, chunk: str) -> None:
        """Record placeholders in the stream that were never assigned.

        Models spell such placeholders in many ways. They stay unchanged in the output, so the output does not wait for
        their end.
        """
        if not self._open and "<" not in chunk:
            return
        text = self._open + chunk
        self.unknown += _unknown(text, self._pseudonyms)
        opened = text.rfind("<")
        is_open = opened >= 0 and ">" not in text[opened:] and len(text) - opened <= LONGEST
        self._open = text[opened:] if is_open else ""
