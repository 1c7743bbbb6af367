"""What the README says is so: it runs, its links lead somewhere, the tests it names are there."""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from itertools import takewhile

import pytest
from markdown_pages import ROOT, Reader, anchors_of, links_of
from typer.testing import CliRunner

from ctxguard.cli.program import app
from ctxguard.harness.demo import demo_session

PAGES = ("README.md", "SECURITY.md", "CONTRIBUTING.md")
README = ROOT / "README.md"


@pytest.fixture
def reader_folder(tmp_path, monkeypatch):
    """A working directory with a session file in it, as a reader of the pages has one."""
    session = demo_session()
    record = {"messages": session.native, "tools": session.tools}
    (tmp_path / "session.json").write_text(json.dumps(record), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", PAGES)
def test_programs_and_commands_run(name, reader_folder):
    pytest.importorskip("langchain_core", reason="the README's LangChain snippet: langchain-core is not installed")
    pytest.importorskip("pydantic_ai", reason="the README's PydanticAI snippet: pydantic-ai is not installed")
    Reader(ROOT / name).follow()


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    page = ROOT / name
    for link in links_of(page):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = page if not path else page.parent / path
        assert target.exists(), f"{name} links {link}"
        assert not anchor or anchor in anchors_of(target), f"{name} links {link}; {target.name} has no such heading"


def test_every_guarantee_names_its_limits_and_tests_that_are_there():
    headline = re.findall(r"^\d\. \*\*(.+?)\.\*\*", README.read_text(encoding="utf-8"), re.MULTILINE)
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    sections = dict(zip(*[iter(re.split(r"^## (.+)$", page, flags=re.MULTILINE)[1:])] * 2, strict=True))
    assert list(sections) == headline
    assert len(headline) == 6
    for title, text in sections.items():
        assert "*Not covered:*" in text, title
        named = re.findall(r"`([^`\s]+\.py(?:::\w+)?)`", text.partition("*Held by*")[2])
        assert named, title
        for name in named:
            file, _, test = name.partition("::")
            place = ROOT / file
            assert place.exists(), name
            assert f"def {test}(" in place.read_text(encoding="utf-8") or not test, name


def rows_of(page, first):
    """Return the cells of the table whose header begins with this."""
    lines = page.read_text(encoding="utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(first))
    table = takewhile(lambda line: line.startswith("|"), lines[start:])
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table if not line.startswith("|---")]


def test_the_comparison_is_that_of_the_page():
    ours = rows_of(README, "| | holds |")
    page = rows_of(ROOT / "docs" / "comparison.md", "| | holds |")
    columns = [0, *(page[0].index(name) for name in ours[0][1:])]
    measured = {row[0]: [row[column] for column in columns] for row in page}
    assert {"holds", "support", "gain", "newest sent", "bill", "prefix kept"} < set(ours[0]), "both judges are shown"
    assert len(ours) > 4
    for row in ours:
        assert row == measured[row[0]]


def test_every_measured_figure_has_a_command_and_a_date():
    """Of each part of the README with figures: the command that prints them, by a name that exists, and when it was run."""
    text = README.read_text(encoding="utf-8")
    parts = [re.search(r"^## Compared with.*?(?=^## )", text, re.MULTILINE | re.DOTALL)[0]]
    costs = re.search(r"^## What it costs.*?(?=^## )", text, re.MULTILINE | re.DOTALL)[0]
    parts += re.split(r"^(?=\*\*)", costs, flags=re.MULTILINE)[1:]
    assert len(parts) == 4
    for part in parts:
        named = re.findall(r"`(?:python (benchmarks/\w+\.py)|ctxguard (\w+))", part)
        assert named, part
        assert re.search(r"\d+ November 2026", part), part
        assert all((ROOT / script).is_file() for script, _ in named if script), part
    elsewhere = text
    for part in parts:
        elsewhere = elsewhere.replace(part, "")
    measured = re.findall(r"\d+(?:\.\d+)? (?:ms|s)\b|\b0\.\d\d\b|\d+(?:\.\d+)?%(?! )", elsewhere)
    assert not measured, "a figure outside the parts that say how it was measured"


@pytest.mark.usefixtures("without_gain")
def test_the_bill_of_the_session_in_the_picture_is_the_real_one(reader_folder):
    prices = pytest.importorskip("genai_prices", reason="the bill: genai-prices is not installed")
    pytest.importorskip("toktok", reason="the bill is counted with toktok-rs, which is not installed")
    text = README.read_text(encoding="utf-8")
    told = re.search(r"genai-prices ([\d.]+)", text)
    assert told is not None
    if version("genai-prices") != told[1]:
        pytest.skip(f"the README shows the prices of genai-prices {told[1]}")
    command = re.search(r"`ctxguard (replay session\.json .*?--model) gpt-5\.5`", text)
    assert command is not None, prices
    for model, whole, trimmed, ours in rows_of(README, "| model | whole history")[1:]:
        said = CliRunner().invoke(app, [*command[1].split(), model]).output
        assert f"{ours}; whole history {whole}, plain trimming {trimmed}" in said, f"{model}: {said}"


def test_the_tests_that_security_names_are_there():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests|ctxguard)/[^`]+)`", text)
    assert named
    assert not [path for path in named if not (ROOT / path).exists()]


def test_each_family_of_edges_in_security_names_the_file_of_a_test():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    table = text.partition("## The edges, family by family")[2].partition("\n\n`make hunt`")[0]
    rows = re.findall(r"^\| (?!family|---)(.+) \|$", table, re.MULTILINE)
    assert len(rows) == 35
    for row in rows:
        held_by = row.split(" | ")[2]
        named = re.findall(r"`(tests/[^`]+\.py)`", held_by)
        assert named, row
        assert all("def test_" in (ROOT / path).read_text(encoding="utf-8") for path in named), row


def test_the_distribution_is_called_by_its_own_name():
    for page in (README, *(ROOT / "docs").glob("*.md")):
        assert not re.search(r"pip install ['\"]?ctxguard(?!-stabilizer)", page.read_text(encoding="utf-8")), page.name


def test_the_picture_is_that_of_the_present_code(monkeypatch):
    pytest.importorskip("toktok", reason="the picture counts with toktok-rs, which is not installed")
    from runpy import run_path

    monkeypatch.syspath_prepend(ROOT / "docs" / "scripts")
    script = run_path(str(ROOT / "docs" / "scripts" / "before_after.py"))
    told = re.search(r'alt=".*?([\d,]+) tokens become ([\d,]+),', README.read_text(encoding="utf-8"))
    assert told is not None
    for name, drawn in script["pictures"]().items():
        assert (script["ASSETS"] / name).read_text(encoding="utf-8") == drawn, "run python docs/scripts/before_after.py"
        assert f'"docs/assets/{name}"' in README.read_text(encoding="utf-8")
        assert f"before: {told[1]} tokens" in drawn
        assert f"after: {told[2]} tokens" in drawn
