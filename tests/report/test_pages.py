"""HTML is written by templates whose engine escapes every value, and where the engine is missing, the reader is told."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from ctxguard import Artifact, Stabilizer
from ctxguard.artifacts import ToolCall
from ctxguard.report.page import _environment, calls_page, chart
from ctxguard.settings import install_command

CORE = Path(sys.modules["ctxguard"].__file__).parent
HOSTILE = "</pre><script>alert('1')</script><img src=x onerror=\"alert(1)\">{{ 7 * 7 }}"


def stabilized():
    history = [
        Artifact("system", HOSTILE, id=HOSTILE),
        Artifact("user", HOSTILE, name=HOSTILE),
        Artifact("assistant", "", calls=(ToolCall(HOSTILE, HOSTILE, HOSTILE),)),
        Artifact("tool", HOSTILE, answers=HOSTILE),
        Artifact("user", f"{HOSTILE} [REDACTED_EMAIL]"),
    ]
    return Stabilizer(2_000).stabilize(history)


def test_nothing_in_a_history_becomes_markup():
    made = stabilized()
    for page in (made.report.to_html(title=HOSTILE), made._repr_html_(), calls_page([made.report, made.report])):
        assert type(page) is str
        assert "&lt;script&gt;" in page
        assert "<script>alert" not in page
        assert "<img" not in page
        assert "{{ 7 * 7 }}" in page, "a text is a value, and no template"
    assert "<mark>[REDACTED_EMAIL]</mark>" in made.report.to_html()


def test_no_module_writes_markup_and_no_template_lets_a_value_through():
    """The one exception is how an artifact shows itself: it lies below the pages, and escapes by hand."""
    tag = re.compile(
        r"</?(?:a|b|br|code|details|div|em|figure|h\d|html|i|li|p|pre|span|summary|svg|table|td|th|tr|ul)\b[^>]*>"
    )
    writing = {
        path.relative_to(CORE).as_posix()
        for path in CORE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.JoinedStr)
        and any(isinstance(part, ast.Constant) and tag.search(str(part.value)) for part in node.values)
    }
    assert writing == {"artifacts.py"}
    templates = sorted((CORE / "report" / "templates").glob("*.html"))
    assert len(templates) > 5
    for path in templates:
        assert not re.search(r"\|\s*safe\b|autoescape", path.read_text(encoding="utf-8")), path.name
    assert _environment().autoescape is True


def test_without_the_engine_a_page_says_what_to_install_and_a_notebook_shows_the_text(monkeypatch):
    made = stabilized().report
    monkeypatch.setitem(sys.modules, "jinja2", None)
    _environment.cache_clear()
    try:
        with pytest.raises(ImportError, match=re.escape(install_command("html"))):
            made.to_html()
        assert made._repr_html_() is None
    finally:
        _environment.cache_clear()


def test_a_chart_of_one_call_is_a_line_and_a_far_budget_is_left_out():
    drawn = chart("t", [("ours", "after", [5.0])], level=100.0, cuts=[1])
    assert drawn.paths == [("after", "M0.00,5.00L100,5.00")]
    assert (drawn.level, drawn.cuts, drawn.count) == (None, ["0.00"], 1)
    assert chart("t", [("ours", "after", [5.0, 10.0])], level=10.0).level == "5.00"
    assert chart("t", []).paths == []
