"""Write the reference pages when the site is built: the command line from its own help, Python from its docstrings."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from enum import EnumType
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer.main
from typer.testing import CliRunner

from ctxguard.cli.program import app

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

INDEX = """# Python reference

What these pages list is public: it keeps its name and its meaning within a major version, and changes are announced in
the change log. Everything else is private, whatever it is called: a module, class, or function that is not listed here
may change in any release.

Most programs need `ctxguard` and the package of their framework. The other packages are for building on ctxguard.
"""
ROOT = Path(__file__).resolve().parents[2]
CORE = (
    "ctxguard",
    "ctxguard.stabilizer",
    "ctxguard.policies",
    "ctxguard.stages",
    "ctxguard.strategies",
    "ctxguard.checks",
    "ctxguard.report",
    "ctxguard.pii",
    "ctxguard.content",
    "ctxguard.compaction",
    "ctxguard.prompts",
    "ctxguard.stores",
    "ctxguard.tokens",
    "ctxguard.wire",
    "ctxguard.config",
    "ctxguard.compat",
    "ctxguard.compat.context_manager",
    "ctxguard.compat.metrics",
    "ctxguard.harness",
    "ctxguard.harness.contestants",
    "ctxguard.adapting",
    "ctxguard.formats",
    "ctxguard.history",
    "ctxguard.errors",
    "ctxguard.testing",
)

GUIDES = {
    "ctxguard": ("tutorial", "budget"),
    "ctxguard.stabilizer": ("how_it_works", "budget"),
    "ctxguard.policies": ("strategies",),
    "ctxguard.stages": ("strategies", "extending"),
    "ctxguard.strategies": ("strategies",),
    "ctxguard.checks": ("checks",),
    "ctxguard.report": ("reports",),
    "ctxguard.pii": ("pii", "data_protection"),
    "ctxguard.content": ("content",),
    "ctxguard.compaction": ("compaction",),
    "ctxguard.prompts": ("prompts",),
    "ctxguard.stores": ("content", "memory", "configuration"),
    "ctxguard.tokens": ("tokens",),
    "ctxguard.wire": ("wire",),
    "ctxguard.config": ("configuration",),
    "ctxguard.compat": ("spec",),
    "ctxguard.compat.context_manager": ("strategies",),
    "ctxguard.compat.metrics": ("production",),
    "ctxguard.harness": ("replay",),
    "ctxguard.harness.contestants": ("comparison",),
    "ctxguard.adapting": ("extending",),
    "ctxguard.formats": ("extending",),
    "ctxguard.history": ("budget", "extending"),
    "ctxguard.errors": ("production",),
    "ctxguard.testing": ("extending",),
    "ctxguard_litellm": ("production",),
    "ctxguard_pytest": ("replay",),
}
"""The pages that show how a package is used; that of an adapter has its name."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to those of the folder."""
    from mkdocs.structure.files import File

    for path, content in pages().items():
        files.append(File.generated(config, path, content=content))
    return files


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put a page for each package into the navigation, behind the list of them."""
    reference = next(part["Reference"] for part in config.nav or () if "Reference" in part)
    python = next(part["Python"] for part in reference if isinstance(part, dict) and "Python" in part)
    python[1:] = [{name: f"reference/api/{name}.md"} for name in public_modules()]
    return config


def on_page_content(html: str, **_context: Any) -> str:
    """Let names in text and headings break between the words of a long one, and not within an option; mark drawings."""
    html = re.sub(r'(?<=<div class=")(?=[^"]*highlight"><pre>(?:(?!</pre>).)*?──)', "drawing ", html, flags=re.DOTALL)
    html = re.sub(r"(<h1[^>]*><code>|<span class=\"doc doc-object-name [^>]*>)([\w.]+)", _broken_name, html)
    return re.sub(r"(?<!<span></span>)<code>([^<]*)</code>", _breakable, html)


def _breakable(code: re.Match[str]) -> str:
    text = re.sub(r"(?<![\w-])--[a-z][a-z-]*", r'<span class="option">\g<0></span>', code[1])
    text = re.sub(r"\S{24,}|\btest_\w+", lambda long: _broken(long[0]), text)
    return f"<code>{text}</code>"


def _broken_name(heading: re.Match[str]) -> str:
    return heading[1] + _broken(heading[2])


def _broken(name: str) -> str:
    return re.sub(r"(?<=\w)(?:_|::|[./=])(?=\w)", r"\g<0><wbr>", name)


def pages() -> dict[str, str]:
    """Return every generated page by its path."""
    modules = public_modules()
    made = {f"reference/api/{name}.md": module_page(name) for name in modules}
    return {"reference/cli.md": cli_page(), "reference/api/index.md": index_page(modules), **made}


def public_modules() -> list[str]:
    """Return the packages with public names: those of the core that are there, then the adapters by entry point."""
    there = [name for name in CORE if find_spec(name) is not None]
    adapters = {entry.value.partition(":")[0] for entry in entry_points(group="ctxguard.adapters")}
    known = {
        path.parent.name for path in (ROOT / "adapters").glob("*/__init__.py") if "__all__" in path.read_text("utf-8")
    }
    return [*there, *sorted(adapters | known)]


def names_of(module: str) -> list[str]:
    """Return the public names of a module."""
    try:
        names = import_module(module).__all__
    except ImportError:  # the framework of an adapter need not be installed
        stub = Path(find_spec(module).origin).with_suffix(".pyi")
        if stub.exists():
            names = [alias.name for line in ast.parse(stub.read_text("utf-8")).body for alias in line.names]
        else:
            assigned = (line for line in source_of(module).body if isinstance(line, ast.Assign))
            names = next(ast.literal_eval(line.value) for line in assigned if ast.unparse(line.targets[0]) == "__all__")
    return sorted(names, key=lambda name: (name.isupper(), name.lower()))


def source_of(module: str) -> ast.Module:
    """Return a module as it is written."""
    found = find_spec(module)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(module)
    return ast.parse(Path(found.origin).read_text(encoding="utf-8"))


def module_page(module: str) -> str:
    """Return the page of a package: each public name where it is defined."""
    described_names = (described(module, name) for name in names_of(module))
    parts = [f"# `{module}`\n", *opening(module), guides_to(module), *described_names]
    return "\n\n".join(filter(None, parts)) + "\n"


def opening(module: str) -> list[str]:
    """Return the paragraphs of a module's docstring, but for tables of what lies in it: that is private."""
    paragraphs = (ast.get_docstring(source_of(module)) or "").split("\n\n")
    return [paragraph for paragraph in paragraphs if not paragraph.startswith("|")]


def guides_to(module: str) -> str:
    """Return links to the pages that show how a package is used."""
    pages = GUIDES.get(module, (module.removeprefix("ctxguard_"),))
    titles = {page: (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8").partition("\n")[0] for page in pages}
    links = (f"[{title.removeprefix('# ')}](../../{page}.md)" for page, title in titles.items())
    return f"How to use it: {', '.join(links)}."


def described(module: str, name: str) -> str:
    """Return where a public name is described; an enumeration is followed by its values, which have no docstrings."""
    found, path = None, f"{module}.{name}"
    with suppress(ImportError):  # the framework of an adapter need not be installed
        found = getattr(sys.modules.get(module), name, None)
    if getattr(found, "__module__", "") == path:  # a function of the same name as its module, which would be shown
        return f'<a id="{path}"></a>\n\n::: {path}.{name}'
    values = ", ".join(f"`{member.value}`" for member in found) if isinstance(found, EnumType) else ""
    return f"::: {path}" + (f"\n\nValues: {values}." if values else "")


def summary(module: str) -> str:
    """Return the first paragraph of a module's docstring."""
    return (ast.get_docstring(source_of(module)) or "").split("\n\n")[0].replace("\n", " ")


def index_page(modules: list[str]) -> str:
    """Return the list of packages, each with how many public names it has; their pages list the names."""
    rows = [f"| [`{name}`]({name}.md) | {summary(name)} | {len(names_of(name))} |" for name in modules]
    return "\n".join([INDEX, "| package | what it is | names |", "|---|---|---|", *rows]) + "\n"


def cli_page() -> str:
    """Return the page of the command line: what each command says of itself."""
    parts = [
        "# Command line\n",
        "Exit codes: 0 fine, 1 a check failed, 2 bad usage or unreadable input, said in one line on standard error.",
        help_of(),
    ]
    for words in leaves(typer.main.get_command(app)):
        parts += [f"## ctxguard {' '.join(words)}\n", help_of(*words)]
    return "\n\n".join(parts) + "\n"


def leaves(command: Any, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Walk the commands of a group and of the groups in it, as the words one types."""
    if not hasattr(command, "list_commands"):
        yield prefix
        return
    context = command.make_context(" ".join(("ctxguard", *prefix)), [], resilient_parsing=True)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        if not inner.hidden:
            yield from leaves(inner, (*prefix, name))


def help_of(*words: str) -> str:
    """Return the help of a command: its usage as code, then sentences and lists, which fit on a phone."""
    plain = {"COLUMNS": "76", "TERMINAL_WIDTH": "76", "NO_COLOR": "1", "TERM": "dumb"}
    said = CliRunner().invoke(app, [*words, "--help"], env=plain, prog_name="ctxguard")
    if said.exit_code:
        raise RuntimeError(f"ctxguard {' '.join(words)} --help ended with {said.exit_code}: {said.output}")
    usage, *rest = said.output.strip("\n").split("\n\n")
    return "\n\n".join([f"```text\n{usage.removeprefix('Usage: ')}\n```", *map(_help_part, rest)])


def _help_part(part: str) -> str:
    """Return a paragraph of a help, or a list of what it names: options, arguments, commands."""
    first, *lines = part.splitlines()
    if first.startswith(" "):
        return _escaped(" ".join(part.split()))
    entries = re.findall(r"^  (\S.*?)(?:  +(.*)|)$((?:\n {3,}.*)*)", "\n".join(lines), re.MULTILINE)
    items = (f"* `{name}` – {_escaped(' '.join(f'{told} {more}'.split()))}" for name, told, more in entries)
    return f"**{first}**\n\n" + "\n".join(items)


def _escaped(text: str) -> str:
    """Return a text whose angle brackets are no markup, and whose options are code."""
    return re.sub(r"(?<![\w`-])--[a-z][a-z-]*", r"`\g<0>`", text.replace("<", "&lt;"))
