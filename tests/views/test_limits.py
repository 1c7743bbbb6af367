"""Limits mean what they say: a limit of five shows five, and what is counted as cut was cut."""

from __future__ import annotations

import json

import pytest

from ctxguard.config import ContextConfig, TruncationConfig
from ctxguard.content import FileType, bound, context_result, detect, read_file
from ctxguard.tokens import find_counter
from ctxguard.views.views import Limits

count = find_counter("estimate").count


def view(text, name, tmp_path, **settings):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return read_file(path, ContextConfig(**settings), counter="estimate")


@pytest.mark.parametrize("limit", [1, 2, 5, 20])
def test_a_limit_on_items_shows_so_many_items(tmp_path, limit):
    result = view(json.dumps(list(range(100))), "a.json", tmp_path, max_array_items=limit)
    assert sum(isinstance(item, int) for item in json.loads(result.content)) == limit
    assert result.truncation_info.items_shown == limit
    assert result.truncation_info.items_total == 100


@pytest.mark.parametrize("limit", [1, 2, 5, 20])
@pytest.mark.parametrize("name", ["a.json", "a.yaml"])
def test_a_limit_on_keys_shows_so_many_keys(tmp_path, limit, name):
    import yaml

    tree = {f"key{n}": n for n in range(100)}
    result = view(json.dumps(tree) if name == "a.json" else yaml.safe_dump(tree), name, tmp_path, max_object_keys=limit)
    shown = yaml.safe_load(result.content)
    assert sum(key.startswith("key") for key in shown) == limit


def test_as_many_as_the_limit_are_shown_whole(tmp_path):
    text = json.dumps({"a": list(range(5)), "b": {str(n): n for n in range(5)}})
    result = view(text, "a.json", tmp_path, max_array_items=5, max_object_keys=5)
    assert result.content == text
    assert not result.truncation_info.truncated


@pytest.mark.parametrize(("head", "tail"), [(5, 2), (2, 5), (0, 3), (3, 0), (20, 10)])
def test_head_and_tail_of_an_array_are_honored_each(head, tail):
    config = TruncationConfig(threshold=1, json_array_head=head, json_array_tail=tail, max_preview_tokens=4_000)
    preview = context_result(config, save=False, counter="estimate")(lambda: list(range(1_000)))()
    shown = [item for item in json.loads(preview[preview.index("\n") + 1 :]) if isinstance(item, int)]
    assert shown == [*range(head), *range(1_000 - tail, 1_000)]


def test_rows_head_and_tail_are_honored_each(tmp_path):
    text = "id,name\n" + "".join(f"{n},name {n}\n" for n in range(8))
    rows = view(text, "a.csv", tmp_path, rows_head=5, rows_tail=2).content.split("\n")
    assert rows[1:6] == [f"{n},name {n}" for n in range(5)]
    assert rows[7:9] == ["6,name 6", "7,name 7"]


def test_cells_are_counted_where_columns_are_cut_too(tmp_path):
    text = "a,b,c,d\n" + "".join(f"{'x' * 30},{'y' * 30},{n},{n}\n" for n in range(4))
    info = view(text, "a.csv", tmp_path, max_columns=2, max_cell_length=10).truncation_info
    assert info.cells_truncated == 8
    assert (info.columns_shown, info.columns_total) == (2, 4)
    assert view(text, "a.csv", tmp_path, max_columns=2).truncation_info.cells_truncated == 0


@pytest.mark.parametrize(
    ("text", "file_type"),
    [
        ("name,age\nAnn,31\nBob,40\nCem,22\n", FileType.CSV),
        ("id;total\n1;2.5\n2;3.5\n", FileType.CSV),
        ("Dear all,\nI write to you, because\nthere is news, good news\n", FileType.TEXT),
        ("one,\ntwo.\nthree\n", FileType.TEXT),
    ],
)
def test_a_table_of_two_columns_is_known_and_prose_is_not_taken_for_one(text, file_type):
    assert detect(text) is file_type


def test_a_preview_of_two_columns_is_a_table():
    text = "name,age\n" + "".join(f"person{n},{n}\n" for n in range(2_000))
    preview = context_result("default", save=False, counter="estimate")(lambda: text)()
    head, header, *rows = preview.split("\n")
    assert "csv, 2000 rows" in head
    assert header == "name,age"
    assert rows[0] == "person0,0"


def xml(items, fields):
    body = "".join(
        "<item>" + "".join(f"<field{m}>value {m}</field{m}>" for m in range(fields)) + "</item>" for _ in range(items)
    )
    return f"<root>{body}</root>"


def test_xml_honors_the_limit_on_keys_and_the_limit_on_items(tmp_path):
    content = view(xml(40, 30), "a.xml", tmp_path, max_object_keys=5, max_array_items=8).content
    assert content.count("<item>") == 8
    assert content.count("<field") == 40
    attributes = " ".join(f'a{n}="value {n}"' for n in range(40))
    content = view(f"<r {attributes}>{'<x/>' * 30}</r>", "a.xml", tmp_path, max_object_keys=5).content
    assert content.count('="value') == 5


@pytest.mark.parametrize("text", ["<a><b><c><d>1</d></c></b></a>", xml(2, 2), "<a x='1' y='2'/>"])
def test_a_view_of_xml_is_never_longer_than_the_xml(text):
    for limits in (Limits(depth=1), Limits(keys=1), Limits(items=1, depth=1), Limits(string=1)):
        shown = bound(text * 1, 4_000, count=count, file_type=FileType.XML, limits=limits).content
        assert len(shown) <= len(text)
