"""Decide whether a value would be restored into a link, and so could be sent to a host that no user mentioned.

Browsers read many spellings of a URL. This module follows the parser of the WHATWG URL standard
(https://url.spec.whatwg.org/#url-parsing), character references of HTML, and backslash escapes of Markdown. If
several readings are possible, a link is assumed, because a value that was kept back can be asked for again.

A text is read once, from its beginning to its end, whatever pieces it comes in: `Links` remembers the last URL with a
host that nobody mentioned, and where each kind of link begins that is still open.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from copy import copy
from html import unescape
from typing import Final, NamedTuple, TypeAlias

NamesHost: TypeAlias = Callable[[str], bool]
"""Takes a host, and returns whether a user mentioned it."""
# What may be a URL. The search for URLs skips pieces of text without any of it.
_MAY_LINK: Final = re.compile(
    r"[ps][\0-\x1f]*:|:[\0-\x1f]*/|[/\\][\0-\x1f]*[/\\]|\\|w[\0-\x1f]*w[\0-\x1f]*w|&(?:#|[a-z][a-z\d]*;)", re.IGNORECASE
)
_SHORT: Final = 20
"""The number of characters that are looked at again, because what may be a URL may begin in them."""
# The start of a URL, in which browsers drop control characters (here: NUL). The schemes that browsers know need no
# slashes and accept backslashes.
_SLASHES: Final = r"(?:\0*[/\\])"
_URL: Final = re.compile(
    r"(?:(?<![A-Za-z\d])(?:h\0*t\0*t\0*p\0*(?:s\0*)?|w\0*s\0*(?:s\0*)?|f\0*t\0*p\0*):"
    rf"{_SLASHES}*+|:\0*/\0*/{_SLASHES}*+|f\0*i\0*l\0*e\0*:{_SLASHES}{{2,}}+"
    rf"|(?<![\w.~%:-])(?:[/\\]{_SLASHES}++|(?=w\0*w\0*w\0*\.)))",
    re.IGNORECASE,
)
_HOST_END: Final = re.compile(r"[/\\?#]")
_LONGEST_HOST: Final = 300
"""The number of characters after which a host is one that nobody mentioned. Names of hosts have at most 253."""
_CARRIED: Final = 160
"""The number of characters that are read again with the next piece, because a URL may begin in them."""
_LOOKED_BACK: Final = 48
"""The number of characters before a character of markup that decide what it means."""
_MOST_FRESH: Final = 1 << 16
"""The number of characters that wait for a question before they are searched for URLs."""
_MOST_UNREAD: Final = 1 << 20
"""The number of characters whose markup is not read before there is a URL that may leak."""
# What is written otherwise in a URL: character references, and escapes of Markdown.
_REFERENCE: Final = r"&(?:#\d{1,40};?|#[xX][\da-fA-F]{1,40};?|[A-Za-z][A-Za-z\d]{0,31};?)"
_REWRITTEN: Final = re.compile(_REFERENCE)
_REWRITTEN_IN_MARKDOWN: Final = re.compile(rf"{_REFERENCE}|\\(?=[!-/:-@\[-`{{-~])")
_OPEN_REFERENCE: Final = re.compile(r"&#?\w{0,40}\Z")
# A reference never stands for markup. This character stands for each that would.
_NO_MARKUP: Final = "\2"
_AS_MARKUP: Final = re.compile(r"[\s\"'`()\[\]{}<>\0]")
_CLOSING: Final = {'"': '"', "'": "'", "`": "`", "(": ")", "[": "]", "{": "}"}
_MOST_IN_RUN: Final = 16
"""The number of URLs without white space between them that are followed one by one."""
_MARKUP: Final = re.compile(r"[()\"'>\n]|<(?P<slash>/?)(?P<name>[A-Za-z][\w:-]{0,40})?(?P<end>[\s/]?)")
_LONGEST_NAME: Final = 41
_TARGET: Final = re.compile(r"(?:\]|url)\s?\Z", re.IGNORECASE)
_BRACKETED: Final = re.compile(r"\](?:\s?\(|:)\s*\Z")
_FORM: Final = re.compile(r"(?:form|base)\b", re.IGNORECASE)
_JSON: Final = re.compile(r'\\(?:u[\da-fA-F]{4}|[^u])|"', re.DOTALL)
_OPEN_ESCAPE: Final = re.compile(r"\\(?:u[\da-fA-F]{0,3})?\Z")
_NEVER: Final = 1 << 62


_Key: TypeAlias = tuple[bool, int]
"""Identifies a URL: whether it was read with the escapes of Markdown, and its offset."""


class _Url:
    """A URL whose host nobody mentioned, or is not complete yet, in a text without white space up to now.

    Attributes:
        key: Identifies the URL.
        opening: The character right before the URL.
        depth: How many characters that close `opening` came after the URL, less those that open it again.
    """

    __slots__ = ("depth", "key", "opening")

    def __init__(self, key: _Key, opening: str, rest: str) -> None:
        self.key, self.opening, self.depth = key, opening, 0
        self.read(rest)

    def read(self, text: str) -> None:
        closing = _CLOSING.get(self.opening)
        if closing is not None:
            self.depth += text.count(closing) - (text.count(self.opening) if closing != self.opening else 0)


class _Target(NamedTuple):
    """A text as a URL parser reads it.

    Attributes:
        text: The text.
        marks: Offsets in it at which pieces begin that are written alike in the original, in order.
        offsets: The offsets of these pieces in the original.
    """

    text: str
    marks: list[int]
    offsets: list[int]

    @classmethod
    def of(cls, text: str, rewritten: re.Pattern[str]) -> _Target:
        pieces: list[str] = []
        marks, offsets, size, done = [0], [0], 0, 0
        for match in rewritten.finditer(text):
            meant = ""
            if match[0][0] == "&":
                meant = _AS_MARKUP.sub(_NO_MARKUP, unescape(match[0]).translate(_DROPPED))
            pieces += (text[done : match.start()], meant)
            size += match.start() - done + len(meant)
            done = match.end()
            marks.append(size)
            offsets.append(done)
        pieces.append(text[done:])
        return cls("".join(pieces).translate(_CONTROLS), marks, offsets)

    def original(self, offset: int) -> int:
        """Return the offset in the original of an offset in the text."""
        place = bisect_right(self.marks, offset) - 1
        return self.offsets[place] + offset - self.marks[place]


_CONTROLS: Final = {**dict.fromkeys(range(0x20), "\0"), ord(_NO_MARKUP): _NO_MARKUP}
_DROPPED: Final = dict.fromkeys(map(ord, "\t\n\r"))


class Links:
    """Reads a text piece by piece, and tells whether the next character is in a link to a host that no user named.

    Texts that a client may show as one, such as the parts of an answer, are read one after another. The time grows with
    the text, not with the number of questions.

    Args:
        names_host: Returns whether a user mentioned a host.
    """

    def __init__(self, names_host: NamesHost) -> None:
        self._names_host = names_host
        self._named: dict[str, bool] = {}
        self._fresh: list[str] = []
        self._fresh_size = 0
        self._size = 0
        # URLs: text that is read again with the next piece, hosts that are not complete, the last foreign URL, and
        # the text since the last white space.
        self._carry = ""
        self._begins_word = True
        self._has_open_reference = False
        self._pending: set[_Key] = set()
        self._seen: set[_Key] = set()
        self._foreign = -1
        self._run: list[_Url] = []
        # Markup: text that is not read yet, and the beginning of everything that is open.
        self._unread: list[str] = []
        self._unread_size = 0
        self._before = ""
        self._tag = _NEVER
        self._states = {"": _NEVER, '"': _NEVER, "'": _NEVER}
        self._targets: list[list[int]] = []
        self._bracketed = self._form = self._any_form = _NEVER
        self._escape = ""

    def copy(self) -> Links:
        """Return a copy that reads on from here."""
        other = copy(self)
        vars(other).update(
            _pending=set(self._pending),
            _seen=set(self._seen),
            _run=[copy(url) for url in self._run],
            _fresh=list(self._fresh),
            _unread=list(self._unread),
            _states=dict(self._states),
            _targets=[list(target) for target in self._targets],
        )
        return other

    def read_json(self, text: str) -> None:
        """Read a piece of JSON: its strings are read as what they mean, with white space between them."""
        text = self._escape + text
        self._escape = _open_escape(text)
        text = text[: len(text) - len(self._escape)]
        self.read(_JSON.sub(_meant, text) if "\\" in text else text.replace('"', " "))

    def read(self, text: str) -> None:
        """Read a piece of text. Placeholders are read as underscores, because their brackets are not those of a tag."""
        self._fresh.append(text)
        self._fresh_size += len(text)
        if self._fresh_size > _MOST_FRESH:
            self._read_fresh()

    def _read_fresh(self) -> None:
        """Search the text for URLs that came since the last question."""
        text = "".join(self._fresh)
        if not text:
            return
        self._fresh, self._fresh_size = [], 0
        if self._run:
            self._read_run(text)
        if self._pending or self._has_open_reference or _MAY_LINK.search(self._carry[-_SHORT:] + text) is not None:
            self._find_urls(text)
        self._size += len(text)
        self._carry = self._carried(text)
        end = self._carry[-_LOOKED_BACK:]
        self._has_open_reference = "&" in end and _OPEN_REFERENCE.search(end) is not None
        self._unread.append(text)
        self._unread_size += len(text)
        if self._unread_size > _MOST_UNREAD:
            self._read_markup()

    def none_until(self, text: str, start: int) -> int:
        """Return an offset in a text before which there is no link that leaks.

        Args:
            text: The text. It is not read, and may be JSON.
            start: The offset from which on it will be read.
        """
        self._read_fresh()
        if self._foreign >= 0 or self._pending or self._has_open_reference:
            return start
        if (short := self._carry[-_SHORT:]) and _MAY_LINK.search(short + text[start : start + _SHORT]) is not None:
            return start
        found = _MAY_LINK.search(text, start)
        return len(text) if found is None else found.start()

    def leaks(self) -> bool:
        """Return whether the text ends inside a link with a host that no user mentioned."""
        self._read_fresh()
        if self._foreign < 0 and not self._pending:
            return False
        if any(url.depth <= 0 for url in self._run):
            return True
        self._read_markup()
        last = max([self._foreign, *(start for _, start in self._pending)])
        tag = min(self._tag, *self._states.values())
        target = self._targets[0][0] if self._targets else _NEVER
        # a field may belong to a form that is closed, so in tags, all forms before count
        form = self._form if tag == _NEVER else self._any_form
        if min(tag, target, self._bracketed, form) <= last:
            return True
        if self._any_form > last:  # nothing that is open or that may be opened later begins before this URL
            self._foreign = -1
        return False

    # -- URLs

    def _carried(self, text: str) -> str:
        size = _CARRIED
        if self._seen:
            first = min((start for _, start in self._pending), default=self._size)
            size += min(self._size - first, 4 * _LONGEST_HOST)
            self._seen = {key for key in self._seen if key[1] >= self._size - size}
        carried = text[-size:] if len(text) >= size else (self._carry + text)[-size:]
        blank = -1 if self._pending else carried.rfind(" ")
        self._begins_word = blank >= 0 or len(carried) == self._size or (self._begins_word and len(carried) < size)
        return carried[blank + 1 :]

    def _read_run(self, text: str) -> None:
        """Read on in a text without white space, or end it."""
        if _last_break(text) >= 0:
            self._run = []
        for url in self._run:
            url.read(text)

    def _find_urls(self, piece: str) -> None:
        text = self._carry + piece
        base = self._size - len(self._carry)
        open_reference = _OPEN_REFERENCE.search(text, max(0, len(text) - 44))
        certain = len(text) - text.endswith("\\") if open_reference is None else open_reference.start()
        run = _last_break(text)
        for is_markdown in (False, True) if "\\" in text else (False,):
            target = _Target.of(text, _REWRITTEN_IN_MARKDOWN if is_markdown else _REWRITTEN)
            for start, end, opening, host in self._urls(target, base, certain):
                key = (is_markdown, start)
                if key in self._seen and key not in self._pending:
                    continue
                self._seen.add(key)
                self._pending.discard(key)
                if host is not None and self._names(host):
                    self._run = [url for url in self._run if url.key != key]
                    continue
                if host is None:
                    self._pending.add(key)
                else:
                    self._foreign = max(self._foreign, start)
                if end - base > run and not self._is_in_run(key):
                    is_full = len(self._run) >= _MOST_IN_RUN
                    self._run.append(_Url(key, "" if is_full else opening, text[start - base :]))
        for key in [key for key in self._pending if self._size - key[1] > 2 * _LONGEST_HOST]:
            self._pending.remove(key)
            self._foreign = max(self._foreign, key[1])

    def _is_in_run(self, key: _Key) -> bool:
        """Return whether the text without white space leaks whatever becomes of a URL, or the URL is known in it."""
        return any(
            url.key == key or (url.opening not in _CLOSING and url.key not in self._pending) for url in self._run
        )

    def _urls(self, target: _Target, base: int, certain: int) -> Iterator[tuple[int, int, str, str | None]]:
        """Yield where each URL starts and where its host does, the character before it, and the host in lower case.

        The host is None if it is not complete.
        """
        for url in _URL.finditer(target.text):
            start, last = base + target.original(url.start()), url.end() + _LONGEST_HOST
            if start - base < _LOOKED_BACK and not self._begins_word:
                continue  # what was carried may begin within a word, and what was in it is known
            begin = base + target.original(max(url.start(), url.end() - 1)) + 1
            opening = target.text[max(0, url.start() - 1) : url.start()]
            found = _HOST_END.search(target.text, url.end(), last)
            end = len(target.text) if found is None else found.start()
            is_complete = found is not None
            authority = target.text[url.end() : min(end, last)]
            if opening in ('"', "'") and opening in authority:
                authority, is_complete = authority.partition(opening)[0], True
                end = url.end() + len(authority)
            if is_complete and target.original(end) >= certain:
                is_complete = False
            if not is_complete:
                yield start, begin, opening, "" if len(target.text) >= last else None
                continue
            authority = authority.replace("\0", "")
            name = authority.rpartition("@")[2].lower()
            host = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
            yield start, begin, opening, host

    def _names(self, host: str) -> bool:
        if host not in self._named:
            self._named[host] = self._names_host(host)
        return self._named[host]

    # -- markup

    def _read_markup(self) -> None:
        text = self._before + "".join(self._unread)
        base, done = self._size - len(text), len(self._before)
        for match in _MARKUP.finditer(text, done):
            sign, at = match[0][0], match.start()
            if sign == "<":
                if match.end() == len(text) and not match["end"] and len(match["name"] or "") < _LONGEST_NAME:
                    done = at
                    break  # the tag may go on
                self._open_tag(match, text, base)
            elif sign == "(":
                self._open_parenthesis(text, at, base)
            elif sign == ")":
                self._close_parenthesis()
            elif sign == "\n":
                self._bracketed = _NEVER
            elif sign == ">":
                if text[at - 1 : at] != "\\":
                    self._bracketed = _NEVER
                self._tag = self._states[""] = _NEVER
            else:
                before = text[max(0, at - _LOOKED_BACK) : at].rstrip()
                self._read_quote(sign, is_value=before.endswith("="))
            done = match.end()
        else:
            done = len(text)
        self._before = text[max(0, done - _LOOKED_BACK) : done]
        self._unread = [text[done:]] if done < len(text) else []
        self._unread_size = len(text) - done

    def _open_tag(self, match: re.Match[str], text: str, base: int) -> None:
        at, name = match.start(), match["name"] or ""
        before = text[max(0, at - _LOOKED_BACK) : at]
        if self._bracketed == _NEVER and before.rstrip()[-1:] in ("(", ":"):
            found = _BRACKETED.search(before)
            self._bracketed = _NEVER if found is None else base + at - len(before) + found.start()
        if match["slash"]:
            self._form = _NEVER if name.lower().startswith("form") else self._form
        elif _FORM.match(name):
            self._form, self._any_form = min(self._form, base + at), min(self._any_form, base + at)
        if name and not match["slash"] and (match["end"] or len(name) == _LONGEST_NAME):
            self._tag, self._states[""] = min(self._tag, base + at), min(self._states[""], base + at)
        if match["end"] == "\n":
            self._bracketed = _NEVER

    def _open_parenthesis(self, text: str, at: int, base: int) -> None:
        if _TARGET.search(text, max(0, at - 5), at):
            self._targets.append([base + at, 0])
        elif self._targets:
            self._targets[-1][1] += 1

    def _close_parenthesis(self) -> None:
        if self._targets and self._targets[-1][1]:
            self._targets[-1][1] -= 1
        elif self._targets:
            self._targets.pop()

    def _read_quote(self, quote: str, *, is_value: bool) -> None:
        """Follow all readings of a quote at once.

        A tag may begin at any `<`, because it is not known what is code or the value of another tag's attribute. For
        each state (inside single quotes, inside double quotes, or outside of quotes), the offset of the first tag that
        may be in this state is known.
        """
        states = self._states
        closed, opened = states[quote], states[""] if is_value else _NEVER
        states[quote] = opened
        states[""] = closed if is_value else min(states[""], closed)


def _last_break(text: str) -> int:
    """Return the offset of the last white space or `<` in a text; -1 if there is none."""
    if text[-1:].isspace():
        return len(text) - 1
    split = text.rsplit(None, 1)
    return max(len(text) - len(split[-1]) - 1 if len(split) > 1 or text[:1].isspace() else -1, text.rfind("<"))


def _open_escape(text: str) -> str:
    """Return the end of a text that may be the beginning of an escape in JSON."""
    found = _OPEN_ESCAPE.search(text, max(0, len(text) - 5))
    if found is None:
        return ""
    slashes = text[: found.start() + 1]
    return found[0] if (len(slashes) - len(slashes.rstrip("\\"))) % 2 else ""


def _meant(match: re.Match[str]) -> str:
    """Return what an escape in a JSON string means; a quote that begins or ends a string is white space."""
    if match[0] == '"':
        return " "
    try:
        return str(json.loads(f'"{match[0]}"'))
    except ValueError:
        return match[0]
