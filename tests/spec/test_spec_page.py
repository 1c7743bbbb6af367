"""The tests of this folder quote lines that stand in the documents, and the page on them lists every test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from recordings import DOCUMENTS

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "spec.md"
FILES = sorted(file for file in HERE.glob("test_0*.py"))


def quotes_of(file):
    """Return the tests of a file with the line that each quotes."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node.name: ast.get_docstring(node) for node in functions if node.name.startswith("test_")}


def flat(text):
    return re.sub(r"[\s*|]+", " ", text)


@pytest.mark.recordings
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_test_quotes_its_document(file):
    number = file.stem.split("_")[1]
    found = list(DOCUMENTS.glob(f"{number}_*.md"))
    quotes = {name: quote for name, quote in quotes_of(file).items() if quote and quote.startswith("> ")}
    assert quotes.keys() == quotes_of(file).keys()
    if not found:
        pytest.skip("the documents (../shared/spec) are not on this machine")
    document = flat(found[0].read_text(encoding="utf-8"))
    assert not [name for name, quote in quotes.items() if flat(quote.removeprefix("> ")) not in document]


def test_the_page_lists_every_test_and_no_other():
    listed = set(re.findall(r"`(test_\w+)`", PAGE.read_text(encoding="utf-8")))
    written = {name for file in FILES for name in quotes_of(file)}
    assert listed == written
