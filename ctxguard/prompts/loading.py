"""Find templates, resolve their includes, fill in the values, and check a folder of them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from ctxguard.errors import PromptError, PromptNotFoundError
from ctxguard.prompts.templates import Include, Piece, Stray, Template, Variable, parse_template

if TYPE_CHECKING:
    from ctxguard.tokens import TokenCounter


MAX_DEPTH: Final = 50
"""Maximum depth of nested includes."""
MAX_SIZE: Final = 2_000_000
"""Bytes of a template file, and characters of a template with all that it includes; about half a million tokens."""

PathLike: TypeAlias = str | os.PathLike[str]


def load_prompt(path: PathLike, /, *, prompts_dir: PathLike | None = None, **variables: object) -> str:
    """Return the prompt of a template: its includes resolved, its variables replaced by `str(value)`.

    Args:
        path: the template. A relative path is looked up in the prompts directory, which it must not leave, and then in
            the working directory. By position only, so that a template may have a variable `{path}`.
        prompts_dir: where includes are; None means the environment's `CTXGUARD_PROMPTS_DIR`, else the configuration's
            `prompts_dir`, else `prompts` in the working directory.
        **variables: a value for every variable of the template and of what it includes.

    Raises:
        PromptError: variables are missing or unused (also a `ValueError`; `.missing` and `.unused` have the names), an
            include leads out of the directory or in a circle, or a template is too large, nested too deeply, or not
            UTF-8.
        PromptNotFoundError: the template or an include does not exist (also a `FileNotFoundError`).
    """
    folder = PromptFolder(find_prompts_dir(prompts_dir))
    return _fill_in(folder.load(folder.find(path)), variables)


def get_prompt(name: str, /, *, prompts_dir: PathLike | None = None, **variables: object) -> str:
    """Return the prompt of the template `name`.md in the prompts directory, which it must not leave.

    Args:
        name: path of the template in the directory, with or without `.md`. By position only.
        prompts_dir: the directory; None means as for `load_prompt`.
        **variables: a value for every variable of the template and of what it includes.

    Raises:
        PromptError: as for `load_prompt`.
    """
    folder = PromptFolder(find_prompts_dir(prompts_dir))
    file = str(name).removesuffix(".md") + ".md"
    return _fill_in(folder.load(folder.inside(file, place=f"prompt {name!r}")), variables)


def get_system_prompt(*, prompts_dir: PathLike | None = None, **variables: object) -> str:
    """Return the prompt of `system_prompt.md`: the identity of the model, and the rules that never change.

    Args:
        prompts_dir: the directory; None means as for `load_prompt`.
        **variables: a value for every variable of the template and of what it includes.

    Raises:
        PromptError: as for `load_prompt`.
    """
    return get_prompt("system_prompt", prompts_dir=prompts_dir, **variables)


def get_instructions(*, prompts_dir: PathLike | None = None, **variables: object) -> str:
    """Return the prompt of `instructions.md`: the task of this run.

    Args:
        prompts_dir: the directory; None means as for `load_prompt`.
        **variables: a value for every variable of the template and of what it includes.

    Raises:
        PromptError: as for `load_prompt`.
    """
    return get_prompt("instructions", prompts_dir=prompts_dir, **variables)


def find_prompts_dir(prompts_dir: PathLike | None = None) -> Path:
    """Return the prompts directory: the one given, the environment's, the configuration's, or `prompts`."""
    if prompts_dir is not None:
        return Path(prompts_dir)
    if named := os.environ.get("CTXGUARD_PROMPTS_DIR"):
        return Path(named)
    from ctxguard.config import load_context_config

    return Path(load_context_config().prompts_dir or "prompts")


@dataclass(frozen=True, slots=True)
class Expanded:
    """A template with its includes resolved: texts and variables, and its size in characters."""

    name: str
    pieces: tuple[str | Variable, ...]
    size: int

    @property
    def variables(self) -> frozenset[str]:
        """The names of its variables."""
        return frozenset(piece.name for piece in self.pieces if isinstance(piece, Variable))

    @property
    def text(self) -> str:
        """The template with its variables as written."""
        return "".join(piece if isinstance(piece, str) else f"{{{piece.name}}}" for piece in self.pieces)


class PromptFolder:
    """Read the templates of one directory, each file once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._resolved = Path(os.path.realpath(root))
        self._expanded: dict[Path, Expanded] = {}

    def find(self, path: PathLike) -> Path:
        """Return the file of a template that the caller named: in the directory, or else by its own path.

        Raises:
            PromptError: a relative path leads out of the directory.
            PromptNotFoundError: there is no such file.
        """
        name = os.fspath(path)
        if not Path(name).is_absolute() and _is_file(self.root / name):
            return self.inside(name, place=name)
        if _is_file(Path(name)):
            return Path(os.path.realpath(name))
        raise PromptNotFoundError(name, f"no such template, neither here nor in the prompts directory {self.root}")

    def inside(self, name: str, *, place: str) -> Path:
        """Return the file of a template by its path in the directory; links are followed and must not lead out.

        `place` is the beginning of error messages.

        Raises:
            PromptError: it is outside.
            PromptNotFoundError: there is no such file.
        """
        try:
            found = Path(os.path.realpath(self._resolved / name))
        except ValueError:  # a NUL or a lone surrogate, which no file name has
            found = self._resolved
        if not found.is_relative_to(self._resolved):
            raise PromptError(place, f"{name!r} is outside the prompts directory {self.root}; move it inside")
        if not _is_file(found):
            raise PromptNotFoundError(
                place, f"no template {name!r} in the prompts directory {self.root} (prompts_dir=, CTXGUARD_PROMPTS_DIR)"
            )
        return found

    def name_of(self, file: Path) -> str:
        """Return the name of a file in messages: its path in the directory, if it is there."""
        return file.relative_to(self._resolved).as_posix() if file.is_relative_to(self._resolved) else str(file)

    def read(self, file: Path) -> Template:
        """Read and parse a file.

        Raises:
            PromptError: it cannot be read, is too large, or not UTF-8.
        """
        name = self.name_of(file)
        try:
            if (size := file.stat().st_size) > MAX_SIZE:
                raise PromptError(name, f"{size} bytes are too many for a template, the limit is {MAX_SIZE}; split it")
            return parse_template(file.read_text(encoding="utf-8-sig"), name)
        except UnicodeDecodeError as error:
            raise PromptError(name, f"byte {error.start} is not UTF-8; save the template as UTF-8") from error
        except OSError as error:
            raise PromptError(name, f"{(error.strerror or str(error)).lower()}; make it readable") from error

    def load(self, file: Path) -> Expanded:
        """Return a template with its includes resolved.

        Raises:
            PromptError: as for `load_prompt`, except for variables.
        """
        return self._expand(file, ())

    def _expand(self, file: Path, above: tuple[Path, ...]) -> Expanded:
        if file not in self._expanded:
            template = self.read(file)
            parts = [self._part(piece, template, (*above, file)) for piece in template.pieces]
            size = sum(part.size for part in parts)
            if size > MAX_SIZE:
                raise PromptError(
                    template.name, f"{size} characters with its includes, the limit is {MAX_SIZE}; include less"
                )
            pieces = tuple(piece for part in parts for piece in part.pieces)
            self._expanded[file] = Expanded(template.name, pieces, size)
        return self._expanded[file]

    def _part(self, piece: Piece, template: Template, chain: tuple[Path, ...]) -> Expanded:
        if isinstance(piece, str):
            return Expanded(template.name, (piece,), len(piece))
        if isinstance(piece, Variable):
            return Expanded(template.name, (piece,), len(piece.name) + 2)
        if isinstance(piece, Stray):
            raise template.refusal(piece)
        place = template.place(piece)
        file = self.inside(piece.path, place=place)
        if file in chain:
            circle = [*chain[chain.index(file) :], file]
            raise PromptError(place, f"includes go in a circle: {' -> '.join(map(self.name_of, circle))}; break it")
        if len(chain) >= MAX_DEPTH:
            raise PromptError(place, f"includes are nested more than {MAX_DEPTH} deep; flatten them")
        return self._expand(file, chain)


def _is_file(path: Path) -> bool:
    with suppress(OSError, ValueError):  # a name that is too long or invalid
        return path.is_file()
    return False


def _fill_in(prompt: Expanded, variables: dict[str, object]) -> str:
    missing = tuple(sorted(prompt.variables - variables.keys()))
    unused = tuple(sorted(variables.keys() - prompt.variables))
    if missing or unused:
        faults = [f"missing variables: {', '.join(missing)}"] if missing else []
        faults += [f"unused variables: {', '.join(unused)}"] if unused else []
        remedy = "pass each {name} of the template once; other braces are text"
        raise PromptError(prompt.name, f"{'; '.join(faults)}; {remedy}", missing=missing, unused=unused)
    return "".join(piece if isinstance(piece, str) else str(variables[piece.name]) for piece in prompt.pieces)


@dataclass(frozen=True, slots=True)
class TemplateSummary:
    """The variables and size of a template, with all that it includes.

    Attributes:
        name: its path in the folder.
        variables: the sorted names of its variables.
        includes: the templates it includes directly, as written, in order.
        tokens: its tokens, with each variable counted as written.
    """

    name: str
    variables: tuple[str, ...]
    includes: tuple[str, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class PromptsReport:
    """The readable templates of a folder, by name, and all problems, one line each."""

    templates: tuple[TemplateSummary, ...]
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether there is no problem."""
        return not self.problems


def check_prompts(root: Path, counter: TokenCounter, *, entries: Collection[str] = ("*.md",)) -> PromptsReport:
    """Check all `.md` files in and below a folder, except hidden ones; unused are those neither included nor entries.

    Raises:
        PromptError: `root` is not a folder.
    """
    if not root.is_dir():
        raise PromptError(str(root), "no such folder; name the one the templates are in")
    found = ((file, file.relative_to(root).parts) for file in sorted(root.rglob("*.md")))
    files = [file for file, parts in found if not any(part.startswith(".") for part in parts)]
    check = _Check(PromptFolder(root), counter)
    for file in files:
        check.look_at(file.relative_to(root).as_posix())
    loaded = {file for pattern in entries for file in root.glob(pattern)}
    for file in files:
        if file not in loaded and file.resolve() not in check.included:
            name = file.relative_to(root).as_posix()
            check.problems[f"{name}: unused; include it, delete it, or make it an entry"] = None
    return PromptsReport(tuple(check.templates), tuple(check.problems))


class _Check:
    """Collect the findings; a problem that several templates share is reported once."""

    def __init__(self, folder: PromptFolder, counter: TokenCounter) -> None:
        self.folder = folder
        self.counter = counter
        self.templates: list[TemplateSummary] = []
        self.problems: dict[str, None] = {}
        self.included: set[Path] = set()

    def look_at(self, name: str) -> None:
        with self._noted():
            file = self.folder.inside(name, place=name)
            template = self.folder.read(file)
            for piece in template.pieces:
                with self._noted():
                    self._follow(piece, template)
            expanded = self.folder.load(file)
            tokens = self.counter.count(expanded.text)
            paths = tuple(piece.path for piece in template.pieces if isinstance(piece, Include))
            self.templates.append(TemplateSummary(name, tuple(sorted(expanded.variables)), paths, tokens))

    def _follow(self, piece: Piece, template: Template) -> None:
        if isinstance(piece, Stray):
            raise template.refusal(piece)
        if isinstance(piece, Include):
            self.included.add(self.folder.inside(piece.path, place=template.place(piece)))

    @contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except PromptError as error:
            self.problems[str(error)] = None
