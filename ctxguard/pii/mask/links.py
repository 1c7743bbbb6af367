"""Decide whether a value would be restored into a link, and so could be sent to a host that no user mentioned.

Browsers read many spellings of a URL. This module follows the parser of the WHATWG URL standard
(https://url.spec.whatwg.org/#url-parsing), character references of HTML, and backslash escapes of Markdown. If
several readings are possible, a link is assumed, because a value that was kept back can be asked for again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import unescape
from typing import Final, TypeAlias

NamesHost: TypeAlias = Callable[[str], bool]
"""Takes a host, and returns whether a user mentioned it."""
LONGEST_LINK: Final = 8_000
"""Number of characters before a placeholder in which a link may begin."""
# What opens and closes tags of HTML and their attributes.
_MARKUP: Final = re.compile(r"""(?P<tag><[A-Za-z][\w:-]*[\s/])|(?P<value>=\s*+)?(?P<quote>["'])|>""")
# Targets of links in Markdown and CSS, up to the end of the text, and the start of one in angle brackets.
_TARGET: Final = re.compile(r"(?:\]|url)\s?\((?:[^()]|\([^()]*\))*+\Z", re.IGNORECASE)
_BRACKETED: Final = re.compile(r"\](?:\s?\(|:)\s*<")
_BRACKET_END: Final = re.compile(r"(?<!\\)>")
_BARE: Final = re.compile(r"(?<![^\s<])[^\s<]*\Z")
_SPACE: Final = re.compile(r"\s")
_FORM: Final = re.compile(r"<(?:form|base)\b", re.IGNORECASE)
# The start of a URL and its authority. The schemes that browsers know need no slashes and accept backslashes.
_URL: Final = re.compile(
    r"(?:(?<![A-Za-z\d])(?:https?|wss?|ftp):[/\\]*|://+|file:[/\\]{2,}|(?<![\w.~%:-])(?:[/\\]{2,}|(?=www\.)))"
    r"(?=(?P<authority>[^/\\?#]*)(?P<end>.?))",
    re.IGNORECASE,
)
_CONTROL: Final = re.compile(r"[\0-\x1f]")
_ESCAPED: Final = re.compile(r"\\([!-/:-@\[-`{-~])")
# Quotes that are written as such end an attribute; those written as character references do not.
_QUOTES: Final = ("\0", "\1")
_CLOSING: Final = {"\0": "\0", "\1": "\1", "`": "`", "(": ")", "[": "]", "{": "}"}


def leaks(before: str, names_host: NamesHost, placeholders: re.Pattern[str]) -> bool:
    """Return whether a text ends inside a link with a host that no user mentioned.

    Args:
        before: The text up to a placeholder.
        names_host: Returns whether a user mentioned a host.
        placeholders: Matches other placeholders in the text, whose brackets are not those of a tag.
    """
    window = before[-LONGEST_LINK:]
    if len(before) > LONGEST_LINK and _SPACE.search(window) is None:
        return True  # the text may have begun with the host
    if next(_hosts(window, is_bare=False), None) is None:
        return False
    text = placeholders.sub("_", window)
    bare = _BARE.search(text)
    hosts = {host for zone, is_bare in _zones(text, bare[0] if bare else "") for host in _hosts(zone, is_bare=is_bare)}
    return not all(map(names_host, hosts))


def _zones(text: str, bare: str) -> Iterator[tuple[str, bool]]:
    """Yield each part at the end of a text that may be a single link, and whether this part is a URL outside markup."""
    yield bare, True
    tag, target = _open_tag(text), _TARGET.search(text)
    if tag is not None:
        yield text[tag:], False
    if target is not None:
        yield target[0], False
    line = _BRACKET_END.split(text[text.rfind("\n") + 1 :])[-1]
    if (bracketed := _BRACKETED.search(line)) is not None:
        yield line[bracketed.start() :], False
    # a field may belong to a form that is closed, so in tags, all forms before count
    form = _FORM.search(text, 0 if tag is not None else text.lower().rfind("</form") + 1)
    if form is not None:
        yield text[form.start() :], False


def _open_tag(text: str) -> int | None:
    """Return the offset of the first tag that is still open at the end of a text; None if there is none.

    A tag may begin at any `<`, because it is not known what is code or the value of another tag's attribute. All
    readings are followed at once: for each state (inside single quotes, inside double quotes, or outside of quotes),
    the offset of the first tag that may be in this state is known.
    """
    never = len(text)
    simple, states = never, {"": never, '"': never, "'": never}
    for found in _MARKUP.finditer(text):
        quote = found["quote"]
        if found["tag"]:
            simple, states[""] = min(simple, found.start()), min(states[""], found.start())
        elif quote is None:
            simple = states[""] = never
        else:
            closed, opened = states[quote], states[""] if found["value"] is not None else never
            states[quote] = opened
            states[""] = closed if found["value"] is not None else min(states[""], closed)
    start = min(simple, *states.values())
    return None if start == never else start


def _hosts(zone: str, *, is_bare: bool) -> Iterator[str]:
    """Yield each host in a possible link, in lower case. The link is read with and without Markdown's escapes.

    If the host is not complete before the placeholder, yield an empty host, which nobody has mentioned.
    """
    plain = _CONTROL.sub("", zone).replace('"', "\0").replace("'", "\1")
    for text in {plain, _ESCAPED.sub(r"\1", plain)}:
        target = re.sub(r"[\t\n\r]", "", unescape(text))
        for url in _URL.finditer(target):
            opening = target[max(0, url.start() - 1) : url.start()]
            closing, rest = _CLOSING.get(opening), target[url.start() :]
            if is_bare and closing and rest.count(closing) > (rest.count(opening) if opening != closing else 0):
                continue
            authority, has_ended = url["authority"], bool(url["end"])
            if opening in _QUOTES and opening in authority:
                authority, has_ended = authority.partition(opening)[0], True
            name = authority.rpartition("@")[2].lower()
            host = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
            yield host if has_ended else ""
