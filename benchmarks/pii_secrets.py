"""Samples of secrets made from the expressions of a gitleaks rule file: what each kind of secret looks like."""

from __future__ import annotations

import random
import re
import re._constants as codes
import re._parser as parser
import string
import tomllib
from collections.abc import Iterator
from pathlib import Path

from gitleaks import _in_python

LETTERS = string.ascii_letters + string.digits
MOST = 20
"""Repeats beyond the least number."""
CATEGORIES = {
    codes.CATEGORY_DIGIT: string.digits,
    codes.CATEGORY_WORD: LETTERS + "_",
    codes.CATEGORY_SPACE: " ",
    codes.CATEGORY_NOT_SPACE: LETTERS,
    codes.CATEGORY_NOT_WORD: " ",
}
NAMES = ("api_token", "api_key", "token", "secret", "access_token", "client_secret")
ASSIGNMENTS = ('{name}_{what} = "{value}"', "{name}_{what}={value}", '"{name}_{what}": "{value}"')
OPERATOR = "(?:=|>|:{1,3}="
"""Stands in rules whose secret is told by the provider's name before it."""


def samples(file: str, *, seed: int, each: int = 5) -> Iterator[tuple[str, str, str]]:
    """Walk kinds of secret, a text with one, and the secret itself."""
    rng = random.Random(seed)
    for rule in tomllib.loads(Path(file).read_text("utf-8"))["rules"]:
        pattern = _in_python(rule.get("regex", ""))
        tree, compiled, made = parser.parse(pattern), re.compile(pattern), 0
        keywords = rule.get("keywords") or [rule["id"]]
        for _ in range(300 if pattern else 0):
            match = compiled.search(_written(tree, rng, {}))
            if match is None or not any(word.lower() in match.string.lower() for word in keywords):
                continue
            value = next((group for group in match.groups() if group), match[0])
            named = OPERATOR in rule["regex"]
            yield rule["id"], f"config:\n{_assigned(keywords[0], value, rng) if named else match.string}\n", value
            made += 1
            if made == each:
                break


def _assigned(name: str, value: str, rng: random.Random) -> str:
    name = name.strip("_-. ") or "x"
    written = rng.choice(ASSIGNMENTS).format(name=name, what=rng.choice(NAMES), value="\0")
    return rng.choice((written, written.upper())).replace("\0", value)


def _written(tree, rng: random.Random, groups: dict[int, str]) -> str:
    return "".join(_piece(op, value, rng, groups) for op, value in tree)


def _piece(op, value, rng, groups) -> str:
    if op is codes.LITERAL:
        return chr(value)
    if op is codes.IN:
        return _member(value, rng)
    if op in {codes.MAX_REPEAT, codes.MIN_REPEAT}:
        least, most, sub = value
        return "".join(_written(sub, rng, groups) for _ in range(_times(least, most, rng)))
    if op is codes.SUBPATTERN:
        groups[value[0]] = _written(value[3], rng, groups)
        return groups[value[0]]
    if op is codes.BRANCH:
        return _written(rng.choice(value[1]), rng, groups)
    if op is codes.GROUPREF:
        return groups.get(value, "")
    return rng.choice(LETTERS) if op in {codes.ANY, codes.NOT_LITERAL} else ""


def _times(least: int, most: int, rng: random.Random) -> int:
    if least == 0:
        return rng.choice((0, 0, 1))
    return rng.randint(least, min(int(most), least + MOST))


def _member(members, rng: random.Random) -> str:
    chars = set()
    for op, value in members:
        if op is codes.LITERAL:
            chars.add(chr(value))
        elif op is codes.RANGE:
            chars |= set(map(chr, range(value[0], value[1] + 1)))
        elif op is codes.CATEGORY:
            chars |= set(CATEGORIES[value])
    if members[0][0] is codes.NEGATE:
        return rng.choice([char for char in LETTERS + " -" if char not in chars])
    usual = sorted(char for char in chars if char in LETTERS)
    return rng.choice(usual if usual and rng.random() < 0.93 else sorted(chars))
