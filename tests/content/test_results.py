"""A large result is saved whole and handed back as its handle and a preview; slices of it can be read."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import json
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from ctxguard.config import ContextConfig, TruncationConfig
from ctxguard.content import bound, context_result, handle_of, recall, recall_tool
from ctxguard.errors import ConfigError
from ctxguard.stores import MemoryStore
from ctxguard.tokens import find_counter

count = find_counter("estimate").count
ROWS = [{"id": n, "name": f"name {n}", "note": "some words"} for n in range(2000)]
SMALL = TruncationConfig(threshold=100, max_preview_tokens=150)


@dataclasses.dataclass
class Point:
    x: int
    label: str


class Model(BaseModel):
    items: list[int]


def returning(result, store, preset=SMALL, **settings):
    @context_result(preset, store=store, counter="estimate", **settings)
    def tool():
        return result

    return tool()


def saved(store):
    (key,) = store.keys("tool-output")
    return key, store.get("tool-output", key)


@pytest.mark.parametrize("result", ["short", 5, None, True, 2.5, [1, 2], {"a": 1}, b"x", object, Point(1, "a")])
def test_small_result_comes_back_as_the_object_it_is(result):
    store = MemoryStore()
    assert returning(result, store) is result
    assert not list(store.keys("tool-output"))


@pytest.mark.parametrize(
    "result",
    [
        "words and words\n" * 500,
        json.dumps(ROWS),
        b"words and words\n" * 500,
        ROWS,
        {"rows": ROWS, "total": 2000},
        tuple(range(3000)),
        set(range(3000)),
        [Point(n, "p") for n in range(900)],
        Model(items=list(range(3000))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_large_result_is_saved_whole_and_shown_within_the_limit(result):
    store = MemoryStore()
    shown = returning(result, store)
    handle, data = saved(store)
    assert isinstance(shown, str)
    assert count(shown) <= 150
    assert handle in shown
    assert handle.isalpha()
    assert handle == handle_of(data)
    if isinstance(result, str):
        assert data.decode() == result
    elif isinstance(result, list) and isinstance(result[0], dict):
        assert json.loads(data) == result


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_are_saved_and_shown_as_csv(library):
    frames = pytest.importorskip(library)
    store = MemoryStore()
    shown = returning(frames.DataFrame({"id": range(3000), "name": ["a, b"] * 3000}), store)
    _, data = saved(store)
    assert data.decode().startswith('id,name\n0,"a, b"\n')
    assert '\nid,name\n0,"a, b"\n' in shown
    assert "of 3000 shown" in shown
    assert count(shown) <= 150


def test_pandas_index_is_kept_where_it_says_something():
    pandas = pytest.importorskip("pandas")
    store = MemoryStore()
    returning(pandas.DataFrame({"v": range(900)}, index=[f"row{n}" for n in range(900)]), store)
    assert saved(store)[1].decode().startswith(",v\nrow0,0\n")


@given(st.text(min_size=1, max_size=400), st.integers(1, 120))
def test_what_is_returned_is_within_the_limit_whatever_it_is(text, limit):
    preset = TruncationConfig(threshold=0, max_preview_tokens=limit)
    shown = returning(text, MemoryStore(), preset)
    assert count(shown) <= limit


def test_async_function_stays_one():
    store = MemoryStore()

    @context_result(SMALL, store=store, counter="estimate")
    async def tool(city: str) -> str:
        """Tell about a city."""
        return city * 1000

    assert inspect.iscoroutinefunction(tool)
    shown = asyncio.run(tool("town "))
    assert saved(store)[0] in shown


def test_name_signature_and_annotations_stay_for_the_decorators_of_frameworks():
    @context_result
    def tool(city: str, days: int = 3) -> str:
        """Tell the weather."""
        return f"{city} {days}"

    assert tool.__name__ == "tool"
    assert tool.__doc__ == "Tell the weather."
    assert list(inspect.signature(tool).parameters) == ["city", "days"]
    assert typing.get_type_hints(tool)["days"] is int
    assert tool("x", days=2) == "x 2"


def test_presets_are_looked_up_by_name():
    config = ContextConfig(truncation={"own": {"threshold": 5, "max_preview_tokens": 30}})
    store = MemoryStore()
    shown = returning("word " * 100, store, "own", config=config)
    assert count(shown) <= 30
    with pytest.raises(ConfigError, match="did you mean 'sql_query'"):
        context_result("sql_qury")


def test_generators_are_refused_when_they_are_decorated():
    with pytest.raises(ConfigError, match="yields"):

        @context_result
        def tool():
            yield 1


def test_without_saving_there_is_a_preview_and_no_handle():
    store = MemoryStore()
    shown = returning("words " * 1000, store, save=False)
    assert "handle" not in shown
    assert count(shown) <= 150
    assert not list(store.keys("tool-output"))


def test_workspace_holds_the_result_as_a_file(tmp_path):
    text = "line\n" * 1000
    shown = returning(text, None, workspace=tmp_path / "results")
    (file,) = (tmp_path / "results").iterdir()
    assert file.read_text() == text
    assert file.stem in shown
    assert recall(file.stem, 2, 3, workspace=tmp_path / "results").endswith("line\nline")
    assert "nothing is saved" in recall("../secret", workspace=tmp_path / "results")


def test_default_store_is_shared_with_recall(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "".join(f"line {n}\n" for n in range(1, 2001))

    @context_result(counter="estimate")
    def tool():
        return text

    tool()
    assert recall(handle_of(text.encode()), 1000, 1001) == "[lines 1000-1001 of 2000]\nline 1000\nline 1001"


def test_recall_reads_lines_and_says_how_to_go_on():
    store = MemoryStore()
    text = "".join(f"line {n}\n" for n in range(1, 2001))
    returning(text, store)
    handle, _ = saved(store)
    read = recall_tool(store, max_tokens=100, counter="estimate")
    first = read(handle)
    assert count(first) <= 100
    assert first.startswith("[lines 1-")
    start = int(first.split("first_line=")[1].split("]")[0])
    assert f"line {start - 1}" in first
    assert read(handle, start).split("\n")[1] == f"line {start}"
    assert "1234: line 1234" in read(handle, contains="1234")
    assert read(handle, 5000) == "[no such lines; there are 2000]"
    assert read("unknown") == "[nothing is saved under handle unknown]"


def test_recall_reads_json_of_one_line_by_its_indented_lines():
    store = MemoryStore()
    returning(ROWS, store)
    read = recall_tool(store, max_tokens=200, counter="estimate")
    assert '"name": "name 1999"' in read(saved(store)[0], contains="name 1999")


def test_recall_finds_what_a_marker_of_a_bounded_output_names():
    store = MemoryStore()
    text = "".join(f"line {n}\n" for n in range(1, 2001))
    handle = handle_of(text.encode())
    store.put_new("tool-output", handle, text.encode())
    assert handle in bound(text, 60, count=count, handle=handle).content
    assert "line 700" in recall(handle, 700, 700, store=store)


def test_recall_tool_can_be_described_to_a_model():
    tool = recall_tool(MemoryStore())
    assert list(inspect.signature(tool).parameters) == ["handle", "first_line", "last_line", "contains"]
    assert "handle" in tool.__doc__
    assert tool.__name__ == "recall"
