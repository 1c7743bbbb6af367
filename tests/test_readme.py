"""What the README says is so: it runs, its links lead somewhere, the tests it names are there."""

from __future__ import annotations

import json
import re

import pytest
from markdown_pages import ROOT, Reader, anchors_of, links_of

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


def test_the_tests_that_hold_the_guarantees_are_there():
    text = README.read_text(encoding="utf-8")
    rows = re.findall(r"^\| \*\*.*\| (.+) \|$", text, re.MULTILINE)
    assert len(rows) == 11
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    for row in rows:
        for name in re.findall(r"`([^`]+)`", row):
            file, _, test = name.removeprefix("tests/").rpartition("::")
            place = ROOT / "tests" / (file or test)
            assert place.exists() if file or "/" in test else True, name
            assert "/" in test or f"def {test}(" in tests, name


def test_the_tests_that_security_names_are_there():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests|ctxguard)/[^`]+)`", text)
    assert named
    assert not [path for path in named if not (ROOT / path).exists()]


def test_each_family_of_edges_in_security_names_the_file_of_a_test():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    table = text.partition("## The edges, family by family")[2].partition("\n\n`make hunt`")[0]
    rows = re.findall(r"^\| (?!family|---)(.+) \|$", table, re.MULTILINE)
    assert len(rows) == 14
    for row in rows:
        held_by = row.split(" | ")[2]
        named = re.findall(r"`(tests/[^`]+\.py)`", held_by)
        assert named, row
        assert all("def test_" in (ROOT / path).read_text(encoding="utf-8") for path in named), row


def test_the_distribution_is_called_by_its_own_name():
    for page in (README, *(ROOT / "docs").glob("*.md")):
        assert not re.search(r"pip install ['\"]?ctxguard(?!-stabilizer)", page.read_text(encoding="utf-8")), page.name


def test_the_picture_is_that_of_the_present_code():
    pytest.importorskip("toktok", reason="the picture counts with toktok-rs, which is not installed")
    from runpy import run_path

    script = run_path(str(ROOT / "docs" / "scripts" / "before_after.py"))
    drawn = script["draw"](script["run"]())
    assert script["PICTURE"].read_text(encoding="utf-8") == drawn, "run python docs/scripts/before_after.py"
    told = re.search(r"!\[.*?([\d,]+) tokens become ([\d,]+),", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert told is not None
    assert f"before: {told[1]} tokens" in drawn
    assert f"after: {told[2]} tokens" in drawn
