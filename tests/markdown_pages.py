"""Run a markdown page as its reader would: files are written, programs and commands run, printed output compared."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from io import StringIO
from pathlib import Path
from types import ModuleType

from markdown_it import MarkdownIt

from ctxguard import cli
from ctxguard.settings import DISTRIBUTION

ROOT = Path(__file__).resolve().parents[1]
_TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, the file it stands for, its first line in the page, its text."""

    language: str
    title: str | None
    line: int
    text: str


def blocks_of(page: Path) -> Iterator[Block]:
    """Walk the fenced blocks of a page, those inside lists and notes too."""
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type == "fence" and token.map is not None:
            title = _TITLE.search(token.info)
            language = token.info.split()[0] if token.info.split() else ""
            yield Block(language, title[1] if title else None, token.map[0] + 1, token.content)


def names_of_a_module() -> dict[str, object]:
    """Return the names of an empty module that can be found by its name, as dataclasses look for theirs."""
    sys.modules["page"] = ModuleType("page")
    return vars(sys.modules["page"])


@dataclass(slots=True)
class Reader:
    """Do what a page says, in the working directory; programs of one page share their names."""

    page: Path
    names: dict[str, object] = field(default_factory=names_of_a_module)
    status: int = 0

    def follow(self) -> int:
        """Do all of it; return how many blocks were files, programs or commands."""
        with event_loop_of_its_own():
            return self._followed()

    def _followed(self) -> int:
        done = 0
        for block in blocks_of(self.page):
            if block.title is not None:
                target = Path(block.title)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(block.text, encoding="utf-8")
            elif block.language == "python":
                self._program(block)
            elif block.language == "console":
                self._console(block)
            else:
                continue
            done += 1
        return done

    def _program(self, block: Block) -> None:
        source = "\n" * block.line + block.text  # a traceback names the line of the page
        with redirect_stdout(StringIO()):
            exec(compile(source, str(self.page), "exec"), self.names)

    def _console(self, block: Block) -> None:
        command, expected, where = None, [], block.line
        for line in [*block.text.replace("\\\n    ", "").splitlines(), "$ "]:
            if not line.startswith("$ "):
                expected.append(line)
                continue
            if command is not None:
                said = [line for part in command.split(" && ") for line in self._run(part)]
                assert not expected or matches(said, expected), (
                    f"{self.page.name}:{where}: `{command}` said\n" + "\n".join(said)
                )
            command, expected = line[2:].strip() or None, []
        assert self.status == 0, f"{self.page.name}:{where}: exit code {self.status} and the page does not show it"

    def _run(self, command: str) -> list[str]:
        words = shlex.split(command, comments=True)
        if words == ["echo", "$?"]:
            status, self.status = self.status, 0
            return [str(status)]
        assert self.status == 0, f"exit code {self.status} before `{command}` and the page does not show it"
        match words:
            case ["ctxguard", *arguments]:
                return self._ctxguard(arguments)
            case ["make", target]:
                assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), f"no target {target}"
            case ["pip", "install", what]:
                _assert_installable(what)
            case ["python", script]:
                assert (ROOT / script).is_file() or Path(script).is_file(), f"there is no {script}"
            case ["git", "clone", _, "ctxguard"] | ["python3", "-m", "venv", ".venv"]:
                pass
            case ["cd", "ctxguard"] | ["source", ".venv/bin/activate"]:
                pass
            case _:
                raise AssertionError(f"{self.page.name}: nothing is known about `{command}`")
        return []

    def _ctxguard(self, arguments: list[str]) -> list[str]:
        if ">" in arguments:
            arguments, target = arguments[: arguments.index(">")], Path(arguments[-1])
        else:
            target = None
        said, given = StringIO(), sys.argv
        sys.argv = ["ctxguard", *arguments]
        try:
            with redirect_stdout(said), redirect_stderr(said):
                cli.main()
        except SystemExit as end:
            self.status = int(end.code or 0)
        finally:
            sys.argv = given
        if target is not None:
            target.write_text(said.getvalue(), encoding="utf-8")
            return []
        return [line.rstrip() for line in said.getvalue().splitlines()]


@contextmanager
def event_loop_of_its_own() -> Iterator[None]:
    """Close the loop that `run_sync` of a framework leaves open when it is called outside of one."""
    asyncio.set_event_loop(asyncio.new_event_loop())
    first = asyncio.get_event_loop()
    try:
        yield
    finally:
        first.close()
        with suppress(RuntimeError):
            asyncio.get_event_loop().close()
        asyncio.set_event_loop(None)


def matches(said: list[str], expected: list[str]) -> bool:
    """Tell whether what was printed is what the page shows; `…` stands for anything, alone on a line for any lines."""
    if not expected:
        return not said
    first, rest = expected[0], expected[1:]
    if first.strip() == "…":
        return any(matches(said[n:], rest) for n in range(len(said) + 1))
    pattern = re.sub(r"([\[?*])", r"[\1]", first.rstrip()).replace("…", "*")
    return bool(said) and fnmatchcase(said[0], pattern) and matches(said[1:], rest)


def _assert_installable(what: str) -> None:
    found = re.fullmatch(rf"(\.|{DISTRIBUTION})(?:\[([a-z,-]+)\])?", what)
    assert found, f"a page says pip install {what}"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known = set(project["optional-dependencies"])
    assert not (set((found[2] or "").split(",")) - {""}) - known, f"pip install {what}: known extras are {known}"


def links_of(page: Path) -> Iterator[str]:
    """Walk the targets of a page's links and images."""
    for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(page.read_text(encoding="utf-8")):
        for child in token.children or []:
            target = child.attrGet("href") or child.attrGet("src")
            if target:
                yield str(target)


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    lines = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).strip().replace(" ", "-") for line in lines}
