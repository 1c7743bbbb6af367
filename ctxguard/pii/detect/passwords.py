"""Find the passwords after words like `password`, and where they end, and the values of cookies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ctxguard.pii.detect.validate import is_code, is_example, named_secret

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


_PLAIN_WORD: Final = re.compile(
    r"https?://|[/~][\w./~-]*\Z|(?:[^\W\d]|[.-])+\Z|\d{1,5}\Z|[$%{<]|(?i:none|null|true|false)\b"
)


_LETTERS: Final = re.compile(r"[A-Za-z!#$%^&*+?~]{8,}\Z")
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_VOWEL: Final = re.compile("[aeiouyAEIOUY]")


def secret_value(value: str) -> bool:
    """Return whether the value after `password:` is a secret, not a plain word, a variable, a call, or a template."""
    return _are_random_letters(value) or (
        len(value) >= 6 and len(set(value)) > 3 and not (_PLAIN_WORD.match(value) or is_code(value))
    )


def _are_random_letters(value: str) -> bool:
    """Return whether mixed-case letters are random rather than joined words.

    The letters are split where the case changes. In random letters, about half of the pieces lack a vowel.
    """
    words = _WORDS.findall(value)
    return (
        _LETTERS.match(value) is not None
        and len(words) > 3
        and 3 * sum(not _VOWEL.search(word) for word in words) >= len(words) + 3
    )


# A special character that does not occur in words.
_SIGN: Final = re.compile(r"[!#$%^&*+?~](?!\Z)|[0-9][!#$%^&*+~]\Z")
_CLASSES: Final = re.compile(r"[a-z]+|[A-Z]+|[0-9]+")
_IDENTIFIER: Final = re.compile(r"[0-9a-fA-F-]{16,}\Z|[\d%$]+\Z")


def mixed_password(value: str) -> int:
    """Return the length of the password at the beginning of a word that follows `password` and a space.

    Return 0 if the word could be an ordinary word or an identifier.
    """
    bare = _without_end(value).rstrip("?")
    mixes = any(map(str.isdigit, bare)) and any(map(str.isalpha, bare))
    if len(bare) < 7 or not mixes or _IDENTIFIER.match(bare) or is_example(bare):
        return 0
    return len(bare) if _SIGN.search(bare) or len(_CLASSES.findall(bare)) > 4 else 0


# Only letters and the special characters that occur in words and in code.
_WORDS_OF_CODE: Final = re.compile(r"[\[\]{}A-Za-z_.,;:()/|*=&?+-]+\Z")
_CALL: Final = re.compile(r"[A-Za-z_](?:[\w.$]|::|->)*[(\[][\w.,=()\[\]{}*:+/$-]*\Z")
_CODE_SIGNS: Final = re.compile(r"[)}\]][{(;)}]|[(\[{][)\]}]|\)\.|\[[a-z-]+[~|^$*]?=")
# The beginning of a call, an assignment, or a command of an editor in a cell: lines of a program look like a table.
_PROGRAM: Final = re.compile(
    r"[A-Za-z_][\w.]{2,}(?:\([\"'`]|=[\"'`])|:[a-z]+\d?[a-z]*\Z"
    r"|[a-z]+_[a-z_]+=[A-Za-z]|[A-Za-z]+_\w+,|&[a-z]{2,8};"
)
# The beginning of the next setting: `;Database=`, `,port=`, `&user=`, `,hidden:1`, and `;Initial` of `Initial Catalog`.
_NEXT_SETTING: Final = re.compile(r"[,;&](?=[A-Za-z_][\w.-]{0,30}(?:=|:[\d!]))|;(?=[A-Za-z]+\Z)")
_SENTENCE_ENDS: Final = ".,;:)]}"


def bare_password(value: str) -> int:
    """Return the length of the unquoted password after `password:`, which ends at white space; 0 if there is none."""
    following = _NEXT_SETTING.search(value, 1)
    bare = value if following is None else value[: following.start()]
    bare = _without_end(bare)
    word = bare.rstrip("!?")
    is_program = (
        (_WORDS_OF_CODE.match(word) and not _are_random_letters(word)) or _CALL.match(bare) or _CODE_SIGNS.search(bare)
    )
    return 0 if is_program or not secret_value(bare) else len(bare)


def _without_end(value: str) -> str:
    """Remove the punctuation that ends the sentence, and an unmatched closing bracket, from the end of a value."""
    while value and value[-1] in _SENTENCE_ENDS:
        opened = {")": "(", "]": "[", "}": "{"}.get(value[-1])
        if opened is not None and value.count(opened) >= value.count(value[-1]):
            break
        value = value[:-1]
    return value


def quoted_password(value: str) -> bool:
    """Return whether the quoted text after `password:` is a password, not a program's message about passwords."""
    if not any(map(str.isspace, value)):
        # an ordinary word may end with an exclamation mark
        return secret_value(value if any(map(str.isdigit, value)) else value.rstrip("!?"))
    words = value.split()
    return len(words) < 5 and not is_example(value) and any(map(_mixes, words))


def _mixes(word: str) -> bool:
    """Return whether a word mixes letters and digits. Passwords do, but words in a program's messages do not."""
    bare = word.strip("().,;:!?")
    return len(bare) > 3 and any(map(str.isdigit, bare)) and any(map(str.isalpha, bare))


_DATE: Final = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d")


def password_cell(value: str) -> bool:
    """Return whether a table cell under `password` is a password: one word with letters, and with digits or signs.

    Table cells often hold remarks (`see vault`, `geändert`), so ordinary letters alone do not suffice. Digits alone and
    dates do not suffice, either.
    """
    is_mixed = any(map(str.isdigit, value)) or _SIGN.search(value) is not None or _are_random_letters(value)
    return is_mixed and any(map(str.isalpha, value)) and _is_cell(value) and bare_password(value) > 0


def secret_cell(value: str) -> bool:
    """Return whether a table cell under `token` or `api_key` is a secret.

    The cell must change between digits, lower-case letters, and capital letters more often than a name such as
    `color-blue-500` does.
    """
    return len(value) >= 10 and len(_CLASSES.findall(value)) > 4 and _is_cell(value) and named_secret(value)


def _is_cell(value: str) -> bool:
    return not any(map(str.isspace, value)) and _DATE.match(value) is None and _PROGRAM.match(value) is None
