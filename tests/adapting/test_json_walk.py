"""The one walk over JSON finds each value once, at its place, in whatever is nested, and ends where a value contains itself."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxguard.adapting.json_walk import extra_fields, schema_fields, texts_of

VALUE = "ada@corp-mail.net"
KEYS = st.sampled_from(["file", "source", "extras", "content", "metadata", "tool_error", "unknown", "image_url", "b c"])


def around(value):
    return st.recursive(
        st.just(value),
        lambda inner: st.tuples(KEYS, inner).map(lambda pair: {pair[0]: pair[1]}) | inner.map(lambda one: ["x", one]),
        max_leaves=4,
    )


@given(st.tuples(KEYS, around(VALUE)).map(lambda pair: {pair[0]: pair[1]}))
def test_no_value_is_hidden_from_any_reader(record):
    fields = [*extra_fields(record), *schema_fields(record)]
    assert sum(VALUE in field.text for _, field in fields) >= 2
    assert [text for _, text, _ in texts_of(record)].count(VALUE) == 1
    for place, field in fields:
        if place:
            assert reduce(lambda held, key: held[key], place, record) in field.text


@given(st.tuples(KEYS, around({VALUE: 1})).map(lambda pair: {pair[0]: pair[1]}))
def test_a_key_that_a_person_chose_is_searched_wherever_it_is(record):
    assert any(VALUE in field.text for _, field in extra_fields(record))
    assert any(field.text == VALUE for _, field in schema_fields(record))
    assert VALUE in [text for _, text, _ in texts_of(record)]


@pytest.mark.parametrize("read", [schema_fields, texts_of, lambda value: extra_fields({"metadata": value})])
def test_a_value_that_contains_itself_is_refused_and_not_walked_forever(read):
    record = {"a": "text"}
    record |= {"b": [record, record], "c": record}
    with pytest.raises(RecursionError, match="contain themselves"):
        list(read(record))
