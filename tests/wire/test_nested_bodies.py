"""The walk over the texts of a body: every one with its place, at a cost that depends on their number alone."""

from __future__ import annotations

import json
import sys
from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

from ctxguard import Stabilizer
from ctxguard.adapting.fields import copy_with, is_field_name
from ctxguard.adapting.json_walk import Use, texts_of
from ctxguard.wire.guard import Guard, WireRequest

KEYS = st.sampled_from(["a", "text", "id", "properties", "url", "b c"])
VALUES = st.recursive(
    st.text(max_size=5) | st.integers() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


def strings(value):
    """Walk the strings of a value in their order, keys before what stands under them."""
    if isinstance(value, str):
        yield value
    for member in value if isinstance(value, list) else ():
        yield from strings(member)
    for member in value.values() if isinstance(value, dict) else ():
        yield from strings(member)


@given(VALUES)
def test_each_text_is_found_once_at_its_place(value):
    start = ("body", 0)
    whole = {"body": [value]}
    placed = [(place.path, text, use) for place, text, use in texts_of(value, start)]
    texts = [(path, text) for path, text, _ in placed if reduce(lambda v, k: v[k], path, whole) == text]
    assert [text for _, text in texts if text] == [text for text in strings(value) if text]
    assert copy_with(whole, dict(texts)) == whole
    for path, text, use in placed:
        assert path[:2] == start
        if reduce(lambda v, k: v[k], path, whole) != text:
            assert (path[-1], use) == (text, Use.FIXED if is_field_name(text) else Use.NAME)


def calls_for(body):
    """Return how many Python calls it takes to prepare a body, resumed generators included."""
    guard = Guard(Stabilizer(1_000_000))
    raw = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hello."}], **body}).encode()
    request = WireRequest("POST", "/v1/chat/completions", {}, raw)
    guard.prepare(request)  # whatever is loaded at first use
    raw = raw.replace(b"word", b"term")
    count = 0

    def counting(_frame, event, _argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(counting)
    try:
        guard.prepare(WireRequest("POST", "/v1/chat/completions", {}, raw))
    finally:
        sys.setprofile(None)
    return count


def nested(depth):
    """Return 3,000 texts in lists and objects that are nested to a depth."""
    value = "word 0"
    for number in range(3_000):
        value = {"a": value, f"k{number}": f"word {number}"} if number < depth else value
    rest = {f"k{number}": f"word {number}" for number in range(depth, 3_000)}
    return (
        reduce(lambda inner, _: {"a": inner}, range(depth), {**rest, "a": value}) if depth > 1 else {**rest, "a": value}
    )


def test_300_levels_cost_no_more_than_one():
    flat, deep = (calls_for({"metadata": {"x": nested(depth)}}) for depth in (1, 150))
    assert deep < 1.5 * flat
