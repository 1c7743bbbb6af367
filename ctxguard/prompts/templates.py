"""Prompt templates: their grammar, parsed in linear time, and how they are found, resolved, filled in, and checked."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from ctxguard.errors import PromptError, PromptNotFoundError

if TYPE_CHECKING:
    from ctxguard.tokens import TokenCounter


class Variable(str):
    """A variable as written in the template, such as `{name}`. Its value is given when the prompt is loaded."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name between the braces."""
        return self[1:-1]


@dataclass(frozen=True, slots=True)
class Include:
    """An include directive, or something that looks like a directive.

    Attributes:
        path: Path of the included template as written; None if the directive is malformed, so that the template cannot
            be used.
        text: The first 60 characters of a malformed directive, up to the end of the line; empty for a valid one.
        line: Line number of the directive, counted from 1.
    """

    path: str | None
    text: str
    line: int


Piece: TypeAlias = str | Include
"""A text, a `Variable`, or an include."""

# Thanks to possessive repeats and classes that stop at the next brace, the search never backtracks.
_TOKEN: Final = re.compile(
    r"""
    (?P<double>\{\{)
    | \{%-?[ \t]*+include[ \t]*+(?P<include>'[^'{}\n]++'|"[^"{}\n]++")[ \t]*+-?%\}
    | (?P<stray>\{%-?[ \t]*+(?:include\b|[^\W\d][^{}%\n]*+%\}))
    | \{(?P<variable>[^\W\d]\w*+)\}
    | (?P<single>\{)
    | (?P<close>\})
    """,
    re.VERBOSE,
)
_SINGLE: Final = -1


def parse_template(text: str) -> tuple[Piece, ...]:
    """Split a template into texts, variables, and includes, in order."""
    pieces: list[Piece] = []
    unclosed: list[int] = []  # for each open brace: the index of a doubled brace in `pieces`, or _SINGLE
    at, line, counted = 0, 1, 0
    while found := _TOKEN.search(text, at):
        pieces.append(text[at : found.start()])
        at = found.end()
        line += text.count("\n", counted, found.start())
        counted = found.start()
        match found.lastgroup:
            case "variable":
                pieces.append(Variable(found[0]))
            case "include":
                pieces.append(Include(found["include"][1:-1], "", line))
            case "close":
                at = _close(text, at, pieces, unclosed)
            case "stray":
                pieces.append(Include(None, text[counted : counted + 60].partition("\n")[0], line))
            case kind:
                unclosed.append(len(pieces) if kind == "double" else _SINGLE)
                pieces.append(found[0])
    pieces.append(text[at:])
    return tuple(_join(pieces))


def _join(pieces: list[Piece]) -> Iterator[Piece]:
    """Join adjacent texts into one, and leave out empty texts."""
    for is_text, run in groupby(pieces, lambda piece: type(piece) is str):
        if not is_text:
            yield from run
        elif text := "".join(map(str, run)):
            yield text


def _close(text: str, at: int, pieces: list[Piece], unclosed: list[int]) -> int:
    """Parse a closing brace, or the two braces that close a doubled pair. A doubled pair becomes a single pair.

    Args:
        text: The template.
        at: Offset after the first closing brace.
        pieces: The pieces so far; changed in place.
        unclosed: For each open pair so far, the index of its opening piece if it is doubled; changed in place.

    Returns:
        The offset after the brace or braces.
    """
    opened = unclosed.pop() if unclosed else _SINGLE
    pieces.append("}")
    if opened == _SINGLE:
        return at
    if text.startswith("}", at):
        pieces[opened] = "{"
        return at + 1
    unclosed.append(_SINGLE)  # as in `{{a}, {b}}`: two pairs begin at the same place, and the outer one is still open
    return at


MAX_DEPTH: Final = 50
"""Maximum depth of nested includes."""
MAX_SIZE: Final = 2_000_000
"""Maximum size of a template file in bytes, and of a template with all its includes in characters (about half a million
tokens)."""

PathLike: TypeAlias = str | os.PathLike[str]
_is_file: Final = os.path.isfile  # unlike `Path.is_file`, it never raises for a name that no file can have


def load_prompt(path: PathLike, /, *, prompts_dir: PathLike | None = None, **variables: object) -> str:
    """Return the prompt of a template: includes are resolved, and variables are replaced by `str(value)`.

    Args:
        path: The template. A relative path is looked up in the prompts directory, which it must not leave, and then in
            the working directory. Positional-only, so that a template may contain a variable `{path}`.
        prompts_dir: The prompts directory, to which the paths of includes are relative. None means the environment
            variable `CTXGUARD_PROMPTS_DIR`, or else the setting `prompts_dir` of the configuration file, or else
            `prompts` in the working directory.
        **variables: The value of each variable in the template and in its includes.

    Raises:
        PromptError: If variables are missing or unused (their names are in `.missing` and `.unused`), an include leads
            out of the prompts directory or back to a template that includes it, or a template is malformed, too large,
            too deeply nested, or not UTF-8. Also a `ValueError`.
        PromptNotFoundError: If the template or an include does not exist. Also a `FileNotFoundError`.
    """
    folder = PromptFolder(find_prompts_dir(prompts_dir))
    return folder.fill_in(folder.find(path), variables)


def get_prompt(name: str, /, *, prompts_dir: PathLike | None = None, **variables: object) -> str:
    """Return the prompt of the template `name`.md in the prompts directory, which the path must not leave.

    Args:
        name: Path of the template in the prompts directory, with or without `.md`. Positional-only.
        prompts_dir: The prompts directory; None means the same as for `load_prompt`.
        **variables: The value of each variable in the template and in its includes.

    Raises:
        PromptError: As for `load_prompt`.
    """
    folder = PromptFolder(find_prompts_dir(prompts_dir))
    file = str(name).removesuffix(".md") + ".md"
    return folder.fill_in(folder.inside(file, place=f"prompt {name!r}"), variables)


def get_system_prompt(*, prompts_dir: PathLike | None = None, **variables: object) -> str:
    """Return the prompt of `system_prompt.md`, which holds the model's identity and the rules that never change.

    Args:
        prompts_dir: The prompts directory; None means the same as for `load_prompt`.
        **variables: The value of each variable in the template and in its includes.

    Raises:
        PromptError: As for `load_prompt`.
    """
    return get_prompt("system_prompt", prompts_dir=prompts_dir, **variables)


def get_instructions(*, prompts_dir: PathLike | None = None, **variables: object) -> str:
    """Return the prompt of `instructions.md`, which holds the task of a single run.

    Args:
        prompts_dir: The prompts directory; None means the same as for `load_prompt`.
        **variables: The value of each variable in the template and in its includes.

    Raises:
        PromptError: As for `load_prompt`.
    """
    return get_prompt("instructions", prompts_dir=prompts_dir, **variables)


def find_prompts_dir(prompts_dir: PathLike | None = None) -> Path:
    """Return the prompts directory.

    It is the first of these: `prompts_dir`, the environment variable `CTXGUARD_PROMPTS_DIR`, the setting `prompts_dir`
    of the configuration file, and `prompts` in the working directory.
    """
    if prompts_dir is not None:
        return Path(prompts_dir)
    if named := os.environ.get("CTXGUARD_PROMPTS_DIR"):
        return Path(named)
    from ctxguard.config import load_context_config

    return Path(load_context_config().prompts_dir or "prompts")


class PromptFolder:
    """The templates of one prompts directory. Each template is expanded only once.

    Args:
        root: The prompts directory.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._resolved = Path(os.path.realpath(root))
        self._expanded: dict[Path, tuple[str, ...]] = {}

    def find(self, path: PathLike) -> Path:
        """Return the file at a path: a relative path in the prompts directory, or any absolute path.

        Raises:
            PromptError: If a relative path leads out of the prompts directory.
            PromptNotFoundError: If there is no such file.
        """
        name = os.fspath(path)
        if not Path(name).is_absolute() and _is_file(self.root / name):
            return self.inside(name, place=name)
        if _is_file(name):
            return Path(os.path.realpath(name))
        raise PromptNotFoundError(name, f"no such template, neither here nor in the prompts directory {self.root}")

    def inside(self, name: str, *, place: str) -> Path:
        """Return the file of a template in the prompts directory. Symbolic links must not lead out of the directory.

        Args:
            name: Path of the template in the prompts directory.
            place: Where the template is named, such as `main.md:3`. Error messages begin with it.

        Raises:
            PromptError: If the file is outside the directory.
            PromptNotFoundError: If there is no such file.
        """
        try:
            found = Path(os.path.realpath(self._resolved / name))
        except ValueError:  # `name` contains a NUL or a lone surrogate, so no file can have it
            found = self._resolved
        if not found.is_relative_to(self._resolved):
            raise PromptError(place, f"{name!r} is outside the prompts directory {self.root}; move it inside")
        if not _is_file(found):
            raise PromptNotFoundError(
                place, f"no template {name!r} in the prompts directory {self.root} (prompts_dir=, CTXGUARD_PROMPTS_DIR)"
            )
        return found

    def name_of(self, file: Path) -> str:
        """Return the name of a template for messages: its path in the prompts directory, or else its whole path."""
        return file.relative_to(self._resolved).as_posix() if file.is_relative_to(self._resolved) else str(file)

    def read(self, file: Path) -> tuple[Piece, ...]:
        """Read and parse a file.

        Raises:
            PromptError: If the file cannot be read, is too large, or is not UTF-8.
        """
        name = self.name_of(file)
        try:
            if (size := file.stat().st_size) > MAX_SIZE:
                raise PromptError(name, f"{size} bytes are too many for a template, the limit is {MAX_SIZE}; split it")
            return parse_template(file.read_text(encoding="utf-8-sig"))
        except UnicodeDecodeError as error:
            raise PromptError(name, f"byte {error.start} is not UTF-8; save the template as UTF-8") from error
        except OSError as error:
            raise PromptError(name, f"{(error.strerror or str(error)).lower()}; make it readable") from error

    def included(self, include: Include, name: str) -> Path:
        """Return the file that an include directive names.

        Args:
            include: The directive.
            name: Name of the template that contains the directive, for error messages.

        Raises:
            PromptError: If the directive is malformed, or the file is outside the directory or missing.
        """
        place = f"{name}:{include.line}"
        if include.path is None:
            remedy = "write {% include 'path.md' %}, or {{% … %}} where it is meant as text"
            raise PromptError(place, f"{include.text!r} is not a directive; {remedy}")
        return self.inside(include.path, place=place)

    def expand(self, file: Path, above: tuple[Path, ...] = ()) -> tuple[str, ...]:
        """Return the texts and variables of a template whose includes are resolved.

        Args:
            file: The file of the template.
            above: The files through which the template is included, outermost first.

        Raises:
            PromptError: As for `load_prompt`, but variables are not checked.
        """
        if file in self._expanded:
            return self._expanded[file]
        name, chain = self.name_of(file), (*above, file)
        pieces: list[str] = []
        size = 0
        for piece in self.read(file):
            if isinstance(piece, Include):
                included, place = self.included(piece, name), f"{name}:{piece.line}"
                if included in chain:
                    circle = " -> ".join(map(self.name_of, [*chain[chain.index(included) :], included]))
                    raise PromptError(place, f"includes go in a circle: {circle}; break it")
                if len(chain) >= MAX_DEPTH:
                    raise PromptError(place, f"includes are nested more than {MAX_DEPTH} deep; flatten them")
                added = self.expand(included, chain)
            else:
                added = (piece,)
            pieces += added
            size += sum(map(len, added))
            if size > MAX_SIZE:
                raise PromptError(name, f"too many characters with its includes, the limit is {MAX_SIZE}; include less")
        self._expanded[file] = tuple(pieces)
        return self._expanded[file]

    def fill_in(self, file: Path, values: Mapping[str, object]) -> str:
        """Return the text of a template whose includes are resolved and whose variables are replaced.

        Raises:
            PromptError: As for `load_prompt`.
        """
        pieces = self.expand(file)
        names = _variables(pieces)
        missing, unused = tuple(sorted(names - values.keys())), tuple(sorted(values.keys() - names))
        if missing or unused:
            faults = [f"missing variables: {', '.join(missing)}"] if missing else []
            faults += [f"unused variables: {', '.join(unused)}"] if unused else []
            remedy = "pass each {name} of the template once; other braces are text"
            raise PromptError(self.name_of(file), f"{'; '.join(faults)}; {remedy}", missing=missing, unused=unused)
        return "".join(str(values[piece.name]) if isinstance(piece, Variable) else piece for piece in pieces)


def _variables(pieces: Collection[str]) -> set[str]:
    return {piece.name for piece in pieces if isinstance(piece, Variable)}


@dataclass(frozen=True, slots=True)
class TemplateSummary:
    """The variables and the size of a template with all its includes.

    Attributes:
        name: Path of the template in the folder.
        variables: Names of the variables, sorted.
        tokens: Number of tokens, with each variable counted as written.
    """

    name: str
    variables: tuple[str, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class PromptsReport:
    """The result of checking a folder of templates.

    Attributes:
        templates: The templates that can be used, sorted by name.
        problems: The problems that were found, one line each.
    """

    templates: tuple[TemplateSummary, ...]
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.problems


def check_prompts(root: Path, counter: TokenCounter, *, entries: Collection[str] = ("*.md",)) -> PromptsReport:
    """Check all `.md` files in a folder and its subfolders, except for hidden ones.

    Args:
        root: The folder.
        counter: Counts the tokens of templates.
        entries: Patterns of the templates that programs load by name. Other templates must be included somewhere, or
            they are reported as unused.

    Raises:
        PromptError: If `root` is not a folder, or an entry is not a pattern of files in it.
    """
    if not root.is_dir():
        raise PromptError(str(root), "no such folder; name the one the templates are in")
    names = {file: file.relative_to(root) for file in sorted(root.rglob("*.md"))}
    names = {file: name for file, name in names.items() if not any(part.startswith(".") for part in name.parts)}
    folder, templates, used = PromptFolder(root), list[TemplateSummary](), set[Path]()
    problems: dict[str, None] = {}  # a problem that several templates share is reported once

    @contextmanager
    def collecting() -> Iterator[None]:
        try:
            yield
        except PromptError as error:
            problems[str(error)] = None

    for name in map(Path.as_posix, names.values()):
        with collecting():
            file = folder.inside(name, place=name)
            for piece in folder.read(file):
                with collecting():
                    if isinstance(piece, Include):
                        used.add(folder.included(piece, folder.name_of(file)))
            pieces = folder.expand(file)
            templates.append(TemplateSummary(name, tuple(sorted(_variables(pieces))), counter.count("".join(pieces))))
    loaded = {file for pattern in entries for file in _matching(root, pattern)}
    for file, path in names.items():
        if file not in loaded and file.resolve() not in used:
            problems[f"{path.as_posix()}: unused; include it, delete it, or make it an entry"] = None
    return PromptsReport(tuple(templates), tuple(problems))


def _matching(root: Path, pattern: str) -> Iterator[Path]:
    try:
        yield from root.glob(pattern)
    except (ValueError, IndexError, NotImplementedError):
        message = "no pattern of files in the folder; write one such as 'agents/*.md'"
        raise PromptError(repr(pattern), message) from None
