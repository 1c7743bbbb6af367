"""Whatever is handed over, the answer is a result or a typed error of one line, and every error survives pickling."""

from __future__ import annotations

import inspect
import json
import pickle
from contextlib import suppress

import pytest
from builders import chat_call
from hypothesis import given
from hypothesis import strategies as st

from ctxguard import Artifact, Stabilizer, errors, estimate_tokens, truncate_messages
from ctxguard.content import context_result, read_file, recall
from ctxguard.errors import ConfigError, CtxguardError, HistoryError, TokenizerError
from ctxguard.wire import Guard
from ctxguard.wire.guard import WireRequest
from ctxguard_openai import stabilize_messages

CYCLIC_LIST: list[object] = []
CYCLIC_LIST.append(CYCLIC_LIST)
CYCLIC_DICT: dict[str, object] = {}
CYCLIC_DICT["again"] = CYCLIC_DICT
BRACKETS = '{"a":' + "[" * 2_000 + "]" * 2_000 + "}"


def nested(depth):
    outer = inner = []
    for _ in range(depth):
        inner.append([])
        inner = inner[0]
    return outer


def fail(*_):
    raise RuntimeError("out of order")


def messages(arguments):
    """A chat whose calls have these arguments, too long for the budget."""
    chat = [{"role": "user", "content": "go"}]
    for n in range(30):
        call = chat_call(f"c{n}", "f", arguments)
        chat += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": "result " * 50},
        ]
    return [*chat, {"role": "user", "content": "next"}]


def stabilized(chat, **settings):
    return stabilize_messages(chat, Stabilizer(1_500, counter="estimate"), **settings)


@pytest.mark.parametrize("arguments", [BRACKETS, "[" * 3_000, '{"a":' * 3_000, "not JSON", {"a": 1}, None])
def test_arguments_that_cannot_be_parsed_are_text(arguments):
    assert stabilized(messages(arguments))[1].ok


@pytest.mark.parametrize("arguments", [CYCLIC_DICT, {("a", 1): 2}, {"a": nested(5_000)}])
def test_arguments_that_cannot_be_written_are_refused(arguments):
    with pytest.raises(HistoryError):
        stabilized(messages(arguments))


@pytest.mark.parametrize("content", [CYCLIC_LIST, nested(5_000), {"a": CYCLIC_DICT}, 5, [None]])
def test_content_that_is_none_is_refused(content):
    with pytest.raises(HistoryError):
        stabilized([{"role": "user", "content": content}])


@pytest.mark.parametrize("tools", [[CYCLIC_DICT], [{("a",): 1}], [{"a": nested(5_000)}], [None]])
def test_tools_that_cannot_be_sent_are_refused(tools):
    with pytest.raises(ConfigError):
        stabilized([{"role": "user", "content": "x"}], tools=tools)


@pytest.mark.parametrize("content", [CYCLIC_LIST, nested(5_000), {"a": CYCLIC_DICT}])
def test_deep_content_is_counted(content):
    assert estimate_tokens([{"role": "user", "content": content}]) > 0


def test_a_part_that_stands_twice_is_counted_twice():
    part = {"type": "text", "text": "some words that are counted"}
    once = estimate_tokens([{"role": "user", "content": [part]}])
    assert estimate_tokens([{"role": "user", "content": [part, part]}]) > once


@pytest.mark.parametrize("junk", [None, 5, "abc", [None, 5, {}], [5], {"role": "user"}])
def test_what_is_no_list_of_messages_is_refused_by_the_helpers(junk):
    with pytest.raises(HistoryError):
        estimate_tokens(junk)
    with pytest.raises(HistoryError):
        truncate_messages(junk, 1)


@pytest.mark.parametrize(
    "refused",
    [
        lambda: Stabilizer(9, model=5),
        lambda: Stabilizer(9, target="x"),
        lambda: Stabilizer.from_policy("agent", budget=9, target="x"),
        lambda: Stabilizer(9, counter=5),
        lambda: truncate_messages([{"role": "user"}], keep="x"),
        lambda: estimate_tokens([{"role": "user", "content": "x"}], model=5),
        lambda: read_file(None),
        lambda: read_file(5),
    ],
)
def test_settings_of_another_type_are_refused(refused):
    with pytest.raises(ConfigError):
        refused()


@pytest.mark.parametrize("counter", [fail, lambda _: "x", lambda _: -1, lambda _: None])
def test_a_counter_that_fails_is_named(counter):
    with pytest.raises(TokenizerError, match="the counter"):
        Stabilizer(900, counter=counter).stabilize([Artifact("user", "x")])


@pytest.mark.parametrize("result", [CYCLIC_LIST, CYCLIC_DICT, nested(5_000)])
def test_a_result_that_cannot_be_written_comes_back_as_it_is(result):
    assert context_result(lambda: result)() is result


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=True) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=3),
    max_leaves=8,
)
roles = st.sampled_from(["system", "user", "assistant", "tool", "", None, 5])
chats = st.lists(
    st.fixed_dictionaries({}, optional={"role": roles, "content": values, "tool_calls": values, "tool_call_id": values})
    | values,
    max_size=5,
)


@given(chats, values)
def test_any_chat_gives_a_result_or_a_typed_error_of_one_line(chat, tools):
    for answer in (
        lambda: stabilized(chat, tools=tools),
        lambda: estimate_tokens(chat),
        lambda: truncate_messages(chat, 2),
        context_result(lambda: chat),
        lambda: recall(tools),
    ):
        try:
            answer()
        except CtxguardError as error:
            assert "\n" not in str(error)
            assert str(pickle.loads(pickle.dumps(error))) == str(error)


EXAMPLES = {
    "BudgetExceededError": lambda kind: kind(9, 5, {"system": 9}),
    "PairingError": lambda kind: kind(("call 0 @ artifacts[1] has no result",)),
    "SessionFileError": lambda kind: kind("a.json", "no history", line=3),
    "CheckFailedError": lambda kind: kind(("NoPII: x @ y",)),
    "DetectorError": lambda kind: kind("presidio", "too slow"),
    "HistoryError": lambda kind: kind("no", position=3),
    "ConfigError": lambda kind: kind("no", setting="a"),
    "PromptError": lambda kind: kind("a.md", "no", missing=("x",)),
    "PromptNotFoundError": lambda kind: kind("a.md", "no", unused=("x",)),
}


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_survives_pickling(name):
    kind = getattr(errors, name)
    error = EXAMPLES.get(name, lambda kind: kind("no"))(kind)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
    assert copy.args == error.args


def test_every_error_of_the_package_is_in_the_tree():
    found = {name for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, CtxguardError)}
    assert found == set(errors.__all__)


@pytest.mark.parametrize("value", [None, True, 7, [], {}, ["a"], {"a": 1}])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", lambda v: {"messages": [{"role": v, "content": "x"}]}),
        ("/v2/chat", lambda v: {"messages": [{"role": v, "content": "x"}]}),
        ("/v1beta/models/g:generateContent", lambda v: {"contents": [{"role": v, "parts": [{"text": "x"}]}]}),
        (
            "/v1beta/models/g:generateContent",
            lambda v: {"contents": [{"role": "model", "parts": [{"functionCall": {"name": v}}]}]},
        ),
    ],
)
def test_a_field_that_is_no_text_is_no_untyped_error_and_observing_sends_the_original(path, body, value):
    written = json.dumps({"model": "m", **body(value)}).encode()
    with suppress(CtxguardError):
        Guard(Stabilizer(9_000)).prepare(WireRequest("POST", path, {}, written))
    observed = Guard(Stabilizer(9_000, mode="observe")).prepare(WireRequest("POST", path, {}, written))
    assert json.loads(observed.body) == json.loads(written)
