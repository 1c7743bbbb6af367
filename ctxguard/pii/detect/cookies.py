"""Find the values of cookies, whose names are their sites' own, behind the word `cookie`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

# A header (`Cookie:`, `"set-cookie": "`), an option (`--cookie '`), or an assignment (`document.cookie = "`).
_HEADER: Final = re.compile(
    r"(?i)(?<![a-z0-9])cookies?2?\\{0,3}[\"'`]?(?:\s{0,3}[:=]\s{0,3}|(?<=--cookie)[ =]{1,3})"
    r"\\{0,3}[\"'`]{0,3}(?:\{\s{0,20}|\[\s{0,20})?(?=[^\n]{2})"
)
_PAIR: Final = re.compile(
    r"\\{0,3}[\"']?(?P<name>[A-Za-z0-9!#$&*+.^_|~%-]{1,128})\\{0,3}[\"']?\s{0,2}[=:]\s{0,2}\\{0,3}[\"']?"
    r"(?P<value>[^\s;,\"'\\<>{}\x00]{0,4096})\\{0,3}[\"']?(?:[;,]\s{0,40}|\Z)?"
)
_FLAG: Final = re.compile(r"[A-Za-z0-9!#$&*+.^_|~%-]{1,128}\s{0,2}[;,]\s{0,40}")
"""A name without a value, such as `HttpOnly`, between cookies."""
_ATTRIBUTES: Final = frozenset({"domain", "expires", "max-age", "path", "priority", "samesite", "version"})


def cookie_values(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end offset of the value of each cookie in headers, options `--cookie`, and assignments."""
    done = 0
    for header in _HEADER.finditer(text):
        if header.start() < done:
            continue
        done = header.end()
        while found := _PAIR.match(text, done) or _FLAG.match(text, done):
            done = found.end()
            if found.re is _PAIR and found["name"].lower() not in _ATTRIBUTES and found["value"]:
                yield found.span("value")
            if text[done - 1 : done] not in " ;,\n\t\r":
                break
