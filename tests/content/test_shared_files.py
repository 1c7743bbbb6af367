"""The limit is hard and the shape is kept: every recorded file, judged by parsers of others.

`make replay-all` takes every file at all four limits, a run of the tests every other one at two, and no PDF of more
than 100 kB: the library that reads one takes seconds.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import xml.dom.minidom

import pytest
import yaml
from recordings import RECORDINGS

from ctxguard.content import BinaryContent, FileType, bound, read_file
from ctxguard.tokens import find_counter

FILES = RECORDINGS / "files"
ALL = os.environ.get("CTXGUARD_REPLAY_ALL") == "1"
EVERY = sorted(path for path in FILES.rglob("*") if path.is_file() and path.name != "INDEX.jsonl")
QUICK = [path for path in EVERY[::2] if path.suffix != ".pdf" or path.stat().st_size < 100_000]
PATHS = EVERY if ALL else QUICK
TEXTS = [path for path in PATHS if path.relative_to(FILES).parts[0] in ("csv", "json", "logs")]
LIMITS = (50, 200, 1000, 5000)
count = find_counter("estimate").count

pytestmark = [
    pytest.mark.recordings,
    pytest.mark.skipif(not PATHS, reason="the recorded files are not there: ../shared/data/files"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(FILES)))
def test_view_of_a_file_is_within_the_limit_and_keeps_its_shape(path, convert_here):
    documents = convert_here(path)
    for limit in LIMITS if ALL else LIMITS[PATHS.index(path) % 2 :: 2]:
        result = read_file(path, max_tokens=limit, counter="estimate", cache_dir=documents)
        assert result.metadata is not None
        if not result.success:
            assert result.error
            assert result.content is None
            return
        if isinstance(result.content, BinaryContent):
            assert len(result.content.data) <= 1_000_000
        else:
            assert count(result.content) <= limit
            check = CHECKS.get(result.file_type)
            if check is not None and not result.truncation_info.note:
                check(path, result)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(FILES)))
def test_view_of_a_text_is_within_the_limit_and_is_its_own_view(path):
    text = path.read_bytes().decode("utf-8", "replace")
    for limit in (7, *LIMITS):
        view = bound(text, limit, count=count, handle="abcdefghij")
        assert count(view.content) <= limit
        assert view.info.tokens_shown == count(view.content)
        again = bound(view.content, limit, count=count)
        assert again.content is view.content
        if count(text) <= limit:
            assert view.content is text
        else:
            assert view.info.truncated


def text_of(path, result):
    text = path.read_bytes().decode(result.metadata.encoding, "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def template(line):
    return re.sub(r"\d+", "0", line).strip()[:200]


def is_json(path, result):
    whole = json.loads(text_of(path, result).removeprefix("\ufeff"))
    view = json.loads(result.content)
    assert type(view) is type(whole)
    if isinstance(whole, dict):
        assert {key for key in view if not key.startswith("…")} <= set(whole)


def is_json_lines(_path, result):
    for line in result.content.split("\n"):
        if line.strip():
            json.loads(line)


def is_table(path, result):
    text, shown = text_of(path, result), result.content.replace("\r\n", "\n")
    delimiter = min(",;\t|", key=lambda sign: -result.content.split("\n", 1)[0].count(sign))
    whole = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter) if row]
    view = [row for row in csv.reader(io.StringIO(shown), delimiter=delimiter) if row]
    header, rows = whole[0], whole[1:]
    if count(header[0]) < 40:
        assert view[0] == header[: len(view[0])] or any("…" in cell for cell in view[0])
    markers = [row[0] for row in view if row[0].startswith("# ")]
    if result.truncation_info.rows_shown < len(rows):
        assert any(f"of {len(rows)} " in marker for marker in markers)
    assert result.truncation_info.rows_total == len(rows)
    if len(view[0]) == len(header):
        shown = [row for row in view[1:] if not row[0].startswith("# rows")]
        assert all(row in rows for row in shown if not any("…" in cell for cell in row))


def is_xml(_path, result):
    xml.dom.minidom.parseString(result.content.encode())


def is_yaml(_path, result):
    list(yaml.safe_load_all(result.content))


ERROR = re.compile(r"\b(?:ERROR|FATAL|CRITICAL)\b")


def keeps_errors(path, result):
    text = text_of(path, result)
    errors = {line for line in text.split("\n") if ERROR.search(line)}
    needed = count("\n".join(errors))
    room = result.truncation_info.tokens_shown
    if errors and len(errors) < 60 and needed < 0.5 * room and max(map(len, errors)) < 400:
        templates = set(map(template, result.content.split("\n")))
        assert set(map(template, errors)) <= templates


CHECKS = {
    FileType.JSON: is_json,
    FileType.JSONL: is_json_lines,
    FileType.CSV: is_table,
    FileType.XML: is_xml,
    FileType.YAML: is_yaml,
    FileType.LOG: keeps_errors,
}
