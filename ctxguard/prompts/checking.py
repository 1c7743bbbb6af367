"""Check a folder of templates: the variables and size of each, and all problems."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ctxguard.errors import PromptError
from ctxguard.prompts.loading import PromptFolder
from ctxguard.prompts.templates import Include, Stray

if TYPE_CHECKING:
    from ctxguard.prompts.templates import Piece, Template
    from ctxguard.tokens import TokenCounter


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
