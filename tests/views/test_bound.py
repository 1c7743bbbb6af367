"""The hard limit, over generated contents of every type, by several ways of counting."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ctxguard.content import FileType, bound, detect
from ctxguard.tokens import find_counter
from ctxguard.views.bounding import show
from ctxguard.views.processors.table import write_row
from ctxguard.views.views import Source

estimate = find_counter("estimate").count
COUNTERS = {
    "estimate": estimate,
    "characters": len,
    "words": lambda text: len(text.split()),
    "bytes": lambda text: len(text.encode("utf-8", "surrogatepass")),
}
counters = st.sampled_from(sorted(COUNTERS))
limits = st.one_of(st.integers(1, 20), st.integers(20, 400))

texts = st.text(st.characters(codec="utf-8"), max_size=60)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts)
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=12), st.dictionaries(texts, inner, max_size=8)),
    max_leaves=60,
)
containers = st.one_of(st.lists(trees, max_size=30), st.dictionaries(texts, trees, max_size=20))
rows = st.integers(2, 6).flatmap(
    lambda width: st.lists(st.lists(texts, min_size=width, max_size=width), min_size=3, max_size=40)
)
log_lines = st.lists(
    st.one_of(
        st.builds("2024-01-02 10:00:{:02d} INFO request {} served".format, st.integers(0, 59), st.integers()),
        st.builds("2024-01-02 10:00:{:02d} ERROR {} broke".format, st.integers(0, 59), st.sampled_from("abcdef")),
        st.just("Traceback (most recent call last):\n  File 'a.py', line 3\nValueError: no"),
        texts,
    ),
    max_size=80,
)


def holds(text, limit, name, file_type=None):
    count = COUNTERS[name]
    view = bound(text, limit, count=count, file_type=file_type, handle="abcdefgh")
    assert count(view.content) <= limit
    assert view.info.tokens_shown == count(view.content)
    if count(text) <= limit:
        assert view.content is text
        assert not view.info.truncated
    else:
        assert view.info.truncated
    assert bound(view.content, limit, count=count).content is view.content
    assert bound(text, limit, count=count, file_type=file_type, handle="abcdefgh") == view
    return view


@given(st.text(max_size=2000), limits, counters)
@example("a" * 5000, 3, "estimate")
@example("\n" * 5000, 3, "characters")
@example("[" * 3000, 30, "estimate")
@example('{"a":' * 3000, 30, "estimate")
@example("<a>" * 3000, 30, "estimate")
@example("\ud800" * 300, 30, "estimate")
def test_any_text_is_within_the_limit(text, limit, name):
    holds(text, limit, name)


@pytest.mark.parametrize("file_type", list(FileType), ids=str)
@settings(max_examples=12)
@given(text=st.one_of(st.text(max_size=800), trees.map(json.dumps)), limit=limits)
def test_a_text_that_is_not_what_it_is_said_to_be_is_within_the_limit_all_the_same(file_type, text, limit):
    holds(text, limit, "estimate", file_type)


@settings(max_examples=15)
@given(containers, st.integers(25, 400), counters, st.sampled_from([None, 1]))
def test_json_stays_json_with_its_outermost_kind(tree, limit, name, indent):
    text = json.dumps(tree, indent=indent, ensure_ascii=False)
    view = holds(text, limit, name, FileType.JSON)
    if view.content:
        assert type(json.loads(view.content)) is type(tree)


@settings(max_examples=15)
@given(st.lists(st.dictionaries(texts, scalars, min_size=1, max_size=5), min_size=2, max_size=40), st.integers(25, 400))
def test_lines_of_json_stay_lines_of_json(records, limit):
    text = "\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    view = holds(text, limit, "estimate", FileType.JSONL)
    for line in view.content.split("\n"):
        if line:
            json.loads(line)


@given(rows, st.integers(60, 400), st.sampled_from(",;\t|"))
def test_a_table_parses_with_its_separator_has_its_header_and_says_how_many_rows_there_are(table, limit, separator):
    header = [f"column {number}" for number in range(len(table[0]))]
    table = [row for row in table if any(row)]
    text = "\n".join(write_row(row, separator) for row in [header, *table]) + "\n"
    view = holds(text, limit, "estimate", FileType.CSV)
    if not view.info.truncated or view.info.note:
        return
    parsed = [row for row in csv.reader(io.StringIO(view.content, newline=""), delimiter=separator) if row]
    assert parsed[0] == header[: len(parsed[0])]
    assert {len(row) for row in parsed} == {len(parsed[0])}
    assert any(f" {len(table)} " in row[0] for row in parsed if row[0].startswith("#"))


@settings(max_examples=20)
@given(containers, st.integers(30, 400))
def test_yaml_loads(tree, limit):
    text = yaml.safe_dump(tree, allow_unicode=True)
    view = holds(text, limit, "estimate", FileType.YAML)
    if not view.info.note:
        list(yaml.safe_load_all(view.content))


names = st.sampled_from(["a", "b", "item", "ns:c"])
elements = st.recursive(
    st.builds("<{0} k='{1}'/>".format, names, st.sampled_from(["", "v", "long " * 9])),
    lambda inner: st.builds(
        lambda name, children, text: f"<{name}>{text}{''.join(children)}</{name}>",
        names,
        st.lists(inner, max_size=12),
        st.sampled_from(["", "text", "&lt;b&gt; &amp; more " * 5]),
    ),
    max_leaves=50,
)


@settings(max_examples=20)
@given(elements, st.integers(15, 300))
def test_xml_stays_well_formed_with_its_outermost_element(element, limit):
    text = f'<?xml version="1.0" encoding="utf-8"?><root xmlns:ns="x">{element}</root>'
    view = holds(text, limit, "estimate", FileType.XML)
    if not view.info.note and view.content:
        assert ET.fromstring(view.content.replace("ns:", "ns-")).tag in ("root", "x")


@given(log_lines, st.integers(40, 400))
def test_errors_of_a_log_are_there_if_they_fit(lines, limit):
    text = "\n".join(lines)
    view = holds(text, limit, "estimate", FileType.LOG)
    errors = {line for line in text.split("\n") if " ERROR " in line and line.startswith("2024")}
    others = sum(len(line) for line in text.split("\n") if "ERROR" not in line and "rror" in line)
    if estimate("\n".join(errors)) + 14 * len(errors) + others < 0.5 * limit:
        templates = {line[20:] for line in view.content.split("\n")}
        assert {line[20:] for line in errors} <= templates


@given(log_lines, st.integers(1, 9), st.integers(30, 400))
def test_lines_shown_and_lines_counted_in_gaps_are_all_lines_of_a_log(lines, times, limit):
    text = "\n".join(lines * times)
    view = holds(text, limit, "estimate", FileType.LOG)
    total = text.count("\n") + (text != "" and not text.endswith("\n"))
    gaps = [
        int(number)
        for number in re.findall(r"^\[… (\d+) lines?(?: like the one above)?\]$", view.content, re.MULTILINE)
    ]
    if gaps and "[…" not in text:
        assert view.info.lines_total == total
        assert view.info.lines_shown + sum(gaps) == total
        assert f"[{view.info.lines_shown} of {total} lines shown" in view.content


@pytest.mark.slow
@settings(max_examples=20)
@given(containers, st.integers(60, 400))
def test_signs_inside_of_json_count_what_is_missing(tree, limit):
    text = json.dumps(tree, ensure_ascii=False)
    if "…" in text:
        return
    view = holds(text, limit, "estimate", FileType.JSON)
    counted(json.loads(text), json.loads(view.content), is_top=True)


def counted(whole, shown, *, is_top=False):
    """Check every sign of a shrunk tree against the tree: skipped items and keys add up."""
    if isinstance(whole, dict) and isinstance(shown, dict):
        sign = re.match(r"(\d+) of (\d+) keys not shown", str(shown.get("…", "")))
        if sign and not is_top:
            assert (int(sign[1]), int(sign[2])) == (len(whole) - len(shown) + 1, len(whole))
        for key in shown.keys() & whole.keys():
            counted(whole[key], shown[key])
    elif isinstance(whole, list) and isinstance(shown, list):
        signs = [re.match(r"… (\d+) of (\d+) items not shown", item) for item in shown if isinstance(item, str)]
        for sign in filter(None, signs):
            assert (int(sign[1]), int(sign[2])) == (len(whole) - len(shown) + 1, len(whole))
        if len(whole) == len(shown) and not any(signs):
            for one, other in zip(whole, shown, strict=True):
                counted(one, other)


@pytest.mark.parametrize(
    ("file_type", "text"),
    [
        (FileType.JSON, '{"a": 1, "b": [1, 2]}'),
        (FileType.JSON, "[1, 2, 3]"),
        (FileType.JSONL, '{"a": 1}\n{"a": 2}\n'),
        (FileType.CSV, "a,b,c\n1,2,3\n4,5,6\n"),
        (FileType.CSV, "a\tb\n1\t2\n3\t4\n"),
        (FileType.LOG, "2024-01-02 10:00:00 INFO start\n2024-01-02 10:00:01 INFO stop\n"),
        (FileType.LOG, "[2024-01-02 10:00:00,000] start\n[2024-01-02 10:00:01,000] stop\n"),
        (FileType.LOG, "collecting\nTraceback (most recent call last):\n  File 'x'\nValueError: y\n"),
        (FileType.XML, "<?xml version='1.0'?><a><b/></a>"),
        (FileType.XML, "<feed xmlns='x'><entry/></feed>"),
        (FileType.HTML, "<!DOCTYPE html><html><body>hi</body></html>"),
        (FileType.YAML, "name: x\nitems:\n  - a\n  - b\nother: 3\n"),
        (FileType.CODE, "import os\n\ndef f(x):\n    return x\n\nclass A:\n    pass\n"),
        (FileType.MARKDOWN, "# Title\n\nSome words.\n\n- one\n- two\n"),
        (FileType.SNAPSHOT, '- generic [ref=e1]:\n  - link "Home" [ref=e2]\n  - button "Go" [ref=e3]\n'),
        (FileType.SNAPSHOT, "[1] RootWebArea 'x' focused: True\n\t[2] link 'Home'\n\t[3] button 'Go'\n"),
        (FileType.CONSOLE, "[LOG] started\n[ERROR] boom\n    at a.js:1\n[WARNING] old\n"),
        (FileType.TEXT, "It was a dark and stormy night; the rain fell in torrents.\n"),
        (FileType.TEXT, ""),
        (FileType.TEXT, "{not json at all} said he, and went on\nfor long"),
    ],
)
def test_type_is_found_by_looking(file_type, text):
    assert detect(text) is file_type


def test_broken_json_is_shown_as_text_and_says_so():
    view = bound('{"a": [1, 2,, ' + "x" * 2000 + "}", 50, count=estimate)
    assert "invalid json" in view.info.note


def test_numbers_are_shown_as_they_were_written():
    text = '{"big": 123456789012345678901234567890, "exact": 1.10, "far": 1e400, "rest": "' + "x" * 900 + '"}'
    shown = bound(text, 60, count=estimate).content
    assert '"big":123456789012345678901234567890' in shown
    assert '"exact":1.10' in shown
    assert '"far":1e400' in shown


def test_marker_names_the_handle_and_the_true_totals():
    text = "".join(f"line {number}\n" for number in range(1, 1001))
    view = bound(text, 60, count=estimate, handle="somehandle")
    assert "of 1000 shown; full text: handle somehandle" in view.content
    assert view.info.lines_total == 1000
    shown = [line for line in view.content.split("\n") if line.startswith("line ")]
    assert view.info.lines_shown == len(shown)


def test_marker_of_json_that_shows_no_item_says_so():
    view = bound(json.dumps([None] * 16), 22, count=estimate, handle="abcdefghij")
    assert view.info.items_shown == 0
    assert "0 of 16 items shown" in view.content


def test_start_tags_stay_whole_where_all_of_an_element_finds_room():
    text = "<root><item z='first value of the first'></item>" + "<other>many words</other>" * 90 + "</root>"
    assert 'z="first value of the first"' in bound(text, 120, count=estimate).content


def test_elements_whose_name_looks_like_a_sign_are_counted_as_shown():
    lines = [f'- button "[… {n}" [ref=e{n}]' for n in range(200)]
    view = bound("\n".join(lines), 900, count=estimate, file_type=FileType.SNAPSHOT)
    assert (
        f"[{view.info.lines_shown} of 200 elements shown; {view.info.lines_shown} of 200 interactive]" in view.content
    )


def test_a_masked_value_of_yaml_is_no_list():
    text = "".join(f"- id: {n}\n  people:\n  - [REDACTED_EMAIL]\n  owner: [REDACTED_NAME]\n" for n in range(90))
    shown = yaml.safe_load(bound(text, 120, count=COUNTERS["words"]).content)
    assert shown[0] == {"id": 0, "people": ["[REDACTED_EMAIL]"], "owner": "[REDACTED_NAME]"}


def test_yaml_that_fits_is_not_written_out_even_where_its_aliases_would_be_long():
    text = (
        "a: &a {" + ", ".join(f"key{n}: value" for n in range(40)) + "}\n" + "".join(f"b{n}: *a\n" for n in range(60))
    )
    assert show(Source(text), FileType.YAML, 5_000, estimate).content == text


def test_repeated_errors_make_room_for_others_and_the_end_stays():
    noise = "".join(f"2024-01-02 10:00:{n % 60:02d} ERROR timeout after {n} ms\n" for n in range(500))
    text = noise + "2024-01-02 10:00:00 ERROR disk full\n" + noise + "process ended with exit code 3\n"
    shown = bound(text, 200, count=estimate).content
    assert "disk full" in shown
    assert "exit code 3" in shown


def test_stack_trace_stays_with_its_error():
    trace = "Traceback (most recent call last):\n  File 'a.py', line 3, in f\n    g()\nKeyError: 'x'\n"
    lines = [f"2024-01-02 10:00:00 INFO {n}\n" for n in range(2000)]
    shown = bound("".join([*lines[:700], trace, *lines[700:]]), 150, count=estimate).content
    assert trace in shown


def test_code_keeps_whole_definitions_and_names_the_others():
    text = "import os\n\n" + "".join(
        f"def function_{n}(value):\n" + "    value += 1\n" * (3 if n % 5 == 0 else 60) + "    return value\n\n"
        for n in range(20)
    )
    shown = bound(text, 600, count=estimate, file_type=FileType.CODE).content
    for n in range(20):
        assert f"def function_{n}(value):" in shown
    assert "def function_5(value):\n" + "    value += 1\n" * 3 + "    return value" in shown


def test_page_becomes_readable_text():
    page = "<html><head><script>var x = '<p>no</p>';</script><style>p {}</style></head><body><h1>Title</h1>"
    page += "<p>Some <b>bold</b> &amp; plain</p><ul><li>one<li>two</ul><a href='/x'>link</a>" + "<p>more</p>" * 400
    shown = bound(page, 80, count=estimate).content
    assert "# Title" in shown
    assert "Some bold & plain" in shown
    assert "[link](/x)" in shown
    assert "var x" not in shown


def test_snapshot_keeps_what_can_be_acted_on():
    lines = ["- generic [ref=e0]:"]
    for n in range(60):
        lines.append(f"{'  ' * (n % 8 + 1)}- paragraph [ref=p{n}]: words and words and words")
        lines.append(f'{"  " * (n % 8 + 2)}- button "Do {n}" [ref=b{n}]')
    shown = bound("\n".join(lines), 1000, count=estimate).content
    assert all(f"[ref=b{n}]" in shown for n in range(60))


def test_nothing_is_counted_more_often_than_it_must():
    text = "word " * 2_000_000
    counted = []

    def count(part):
        counted.append(len(part))
        return estimate(part)

    bound(text, 1000, count=count)
    assert sum(counted) < 100_000


def test_view_is_the_same_in_another_process():
    code = (
        "from ctxguard.content import bound; from ctxguard.tokens import find_counter;"
        "text = '\\n'.join(f'2024-01-02 10:00:00 ERROR {n} {n % 7}' for n in range(3000));"
        "print(bound(text, 300, count=find_counter('estimate').count).content)"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, ctxguard.content; print([n for n in ('pydantic', 'yaml', 'PIL', 'csv') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"


def test_a_web_page_is_shown_as_text_where_its_reader_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "selectolax.lexbor", None)
    page = "<html><body>" + "<p>some words here</p>" * 400 + "</body></html>"
    shown = bound(page, 100, count=lambda text: len(text) // 4, file_type=FileType.HTML)
    assert "some words here" in shown.content
    assert "reading web pages needs" in shown.info.note
