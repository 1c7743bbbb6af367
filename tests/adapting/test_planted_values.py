"""A value at a place of a message that no API knows is masked or found, whatever the place and the type are."""

from __future__ import annotations

import dataclasses

import pytest
from patience import is_linear

import ctxguard
from ctxguard.adapting.fields import REMOVED, copy_with
from ctxguard.adapting.json_walk import extra_fields
from ctxguard.errors import CtxguardError, HistoryError
from ctxguard.tokens.media import is_payload

MAIL, CARD = "zora@mailhost.org", 4111111111111111
DATA = "QUJD" * 100


@dataclasses.dataclass
class Note:
    of: str


def user(**fields):
    return [{"role": "user", "content": "hi", **fields}]


def deep(depth):
    value = MAIL
    for level in range(depth):
        value = {"k": value} if level % 2 else [value]
    return value


def part(**fields):
    return user(content=[{"type": "text", "text": "hi", **fields}])


def converse(**fields):
    return user(content=[{"text": "hi", **fields}])


def item(**fields):
    return [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}, {"type": "message", **fields}]


CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
USE = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": "found"}
PLANTED = {
    "a field that only results have": user(tool_call_id=MAIL),
    "an id that is an object": user(tool_call_id={"a": MAIL}),
    "a name that is a list": user(name=[MAIL]),
    "reasoning that is an object": user(reasoning={"a": MAIL}),
    "a type that is a list": user(content=[{"type": [MAIL], "text": "hi"}]),
    "a number as a key of another type": user(annotations={1: MAIL}),
    "a key of no JSON": user(metadata={None: MAIL}),
    "a key of bytes": user(metadata={MAIL.encode(): 1}),
    "a key in a breakpoint": part(cache_control={"type": "ephemeral", MAIL: "1h"}),
    "a key of no JSON in a breakpoint": part(cache_control={None: MAIL}),
    "a set": user(x={"s": frozenset([MAIL])}),
    "a dataclass": user(x={"o": Note(MAIL)}),
    "a card in a link": user(image_url={"n": CARD}),
    "a card as a number in an identifier": user(status=CARD),
    "a text like the URL of data": user(content=[{"type": "image_url", "image_url": {"url": f"data: {MAIL}"}}]),
    "the URL of a text": user(image_url=f"data:text/plain,{MAIL}"),
    "a parameter of the URL of data": user(image_url=f"data:image/png;name={MAIL};base64,{DATA}"),
    "a second field in a block of Converse": converse(json=[MAIL]),
    "a breakpoint of Converse": converse(cachePoint={MAIL: 1}),
    "what only items of reasoning have": [
        *item(role="user", content="x")[:1],
        {**CALL, "summary": {"a": MAIL}},
        RESULT,
    ],
    "the status of an item": [*item(role="user", content="x", status=MAIL)],
    "an id in what Anthropic looks up": [
        *user(),
        {"role": "assistant", "content": [{**USE, "source": {"id": MAIL}}]},
        {"role": "user", "content": [RESULT]},
    ],
    "a role": [*user(), {"role": {"a": MAIL}, "content": "x"}],
    "a role of Converse": [*converse(), {"role": [MAIL], "content": [{"text": "x"}]}],
    "nested 400 levels deep": user(annotations=deep(400)),
    "nested 990 levels deep": user(annotations=deep(990)),
    "nested 2,000 levels deep": user(annotations=deep(2_000)),
}


@pytest.mark.parametrize("place", PLANTED)
def test_a_planted_value_is_masked_or_found(place):
    try:
        context = ctxguard.guard(PLANTED[place], budget=100_000)
    except CtxguardError as error:
        assert MAIL not in str(error)
        return
    held = context.report.ok and leaves(list(context))
    assert not held or not [one for one in held if MAIL in one or str(CARD) in one]


def leaves(value):
    """Return all texts in a value, without recursion."""
    found, stack = [], [value]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            stack += [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple)):
            stack += one
        else:
            found.append(str(one))
    return found


def test_a_value_that_contains_itself_is_refused():
    loop = {"a": MAIL}
    loop["self"] = loop
    with pytest.raises(HistoryError):
        ctxguard.guard(user(annotations=loop), budget=100_000)


def test_a_copy_changes_places_of_any_depth_and_nothing_else():
    value, path = "old", ()
    for level in range(3_000):
        value, path = ({"k": value, "other": level}, ("k", *path)) if level % 2 else ([level, value], (1, *path))
    copied, was = copy_with(value, {path: "new"}), value
    for key in path:
        assert copied is not was
        copied, was = copied[key], was[key]
    assert (copied, was) == ("new", "old")
    assert copy_with({"a": [1, 2, 3], "b": 1}, {("a", 1): REMOVED, ("b",): REMOVED, ("c",): 4}) == {"a": [1, 3], "c": 4}


@pytest.mark.parametrize(
    "head", ["data:image/png;base64,", "data:;base64,", "data:text/plain;charset=utf-8;base64,", ""]
)
def test_base64_data_is_a_payload_and_a_text_is_not(head):
    assert is_payload(f"{head}{'QUJD4x' * 100}")
    assert not is_payload(f"{head}write to {MAIL}")
    assert not is_payload(f"data: write to {MAIL}")


def test_the_fields_beside_many_texts_take_linear_time():
    def read(count):
        record = {"output": [{"stdout": "x", "own": "y"} for _ in range(count)]}
        return list(extra_fields(record, taken={("output", number, "stdout") for number in range(count)}))

    assert is_linear(read, 500)
