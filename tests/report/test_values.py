"""No error and no report holds a value, wherever in a history it stands."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctxguard import Artifact, Stabilizer
from ctxguard.artifacts import Field, Part, ToolCall
from ctxguard.errors import CheckFailedError, CtxguardError
from ctxguard.pii import STANDARD, RuleSet
from ctxguard.stages import MaskPII
from ctxguard_openai import stabilize_messages, stabilize_request

MAIL, CARD, IBAN, KEY = "zora@mailhost.org", "4111 1111 1111 1111", "DE89370400440532013000", "AKIAXICAQ5GMA336Y6ZM"
VALUES = (MAIL, CARD, IBAN, KEY)
USER = {"role": "user", "content": "hi"}


def told_by(report):
    """Return all that a report tells in any form."""
    page = report.to_html()
    return (
        f"{report} {report!r} {report.to_json()} {report.to_dict()} {report._repr_html_()} {page} {report.decisions!r}"
    )


def told_of(error):
    """Return the text of an error, of what caused it, and of its notes."""
    told = f"{error} {error!r} {vars(error)} {getattr(error, '__notes__', '')}"
    return told + "".join(told_of(one) for one in (error.__cause__, error.__context__) if one is not None)


def histories(value):
    """Return histories with a value in one place each."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asks, answers = {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c"}
    half = len(value) // 2
    cut = [{"type": "text", "text": value[:half]}, {"type": "text", "text": value[half:]}]
    yield [{**USER, "name": value}]
    yield [{**USER, value: 1}]
    yield [{**USER, value: {"a": [value]}}]
    yield [{**USER, "metadata": {value: {"b": value}}}]
    yield [{**USER, "x": {value[:half]: {value[half:]: MAIL}}}]
    yield [{"role": value, "content": "hi"}]
    yield [{**USER, "content": cut}]
    yield [{**USER, "content": [{"type": value, "of": value}]}]
    yield [{**USER, "content": [{"type": "image_url", "image_url": {"url": f"https://a.org/{value}"}}]}]
    yield [asks, {**answers, "content": value, "name": value}]
    yield [{**asks, "tool_calls": [{**call, "id": value}]}, {**answers, "tool_call_id": value, "content": "x"}]
    yield [
        {**asks, "tool_calls": [{**call, "function": {"name": value, "arguments": value}}]},
        {**answers, "content": "x"},
    ]
    yield [{**answers, "tool_call_id": value, "content": value}]
    yield [{"role": "user", value: "hi"}]
    yield [{"role": "user", "content": {value: value}}]
    yield [{**asks, "tool_calls": {value: value}}]
    yield [{**USER, "metadata": {value: float("nan")}}]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), value=st.sampled_from(VALUES), budget=st.sampled_from([60, 200, 9_000]), strict=st.booleans())
def test_whatever_becomes_of_a_history_nobody_is_told_a_value(caplog, data, value, budget, strict):
    caplog.clear()
    caplog.set_level(logging.DEBUG, logger="ctxguard")
    messages = data.draw(st.sampled_from(list(histories(value))))
    fill = data.draw(st.sampled_from([[], [{"role": "assistant", "content": "word " * 60}, USER] * 3]))
    stabilizer = Stabilizer(budget, on_failure="raise" if strict else "report")
    try:
        _, report = stabilize_messages([USER, *messages, *fill], stabilizer)
        told = told_by(report)
    except CtxguardError as error:
        told = told_of(error)
    assert value not in told
    assert value not in caplog.text


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("place", ["metadata", "tools", "schema", "name", "several keys"])
def test_errors_name_places_without_the_keys_of_the_user(value, place):
    half = len(value) // 2
    parameters = {"properties": {value: {"enum": [value], "default": {value: 1}}}}
    beside = {
        "metadata": {"metadata": {value: value}},
        "tools": {"tools": [{"type": "function", "function": {"name": "f", "parameters": parameters}}]},
        "schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": parameters}}},
        "name": {"tools": [{"type": "function", "function": {"name": value}}]},
        "several keys": {"metadata": {value[:half]: {value[half:]: {"x": MAIL}}}},
    }[place]
    with pytest.raises(CheckFailedError) as caught:
        stabilize_request({"messages": [USER], **beside}, Stabilizer(9_000, on_failure="raise"))
    told = told_of(caught.value)
    assert value not in told
    assert value.replace(" ", "") not in told.replace(" ", "").replace(".", "")


def test_a_word_of_ones_own_is_no_part_of_a_place():
    rules = RuleSet("own", (), deny=(("falcon", "PROJECT"), ("blue owl", "PROJECT")))
    stabilizer = Stabilizer(9_000, stages=[MaskPII((STANDARD, rules))], on_failure="raise")
    for metadata in ({"falcon": "x falcon x"}, {"blue": {"owl": "falcon"}}):
        with pytest.raises(CheckFailedError) as caught:
            stabilize_request({"messages": [USER], "metadata": metadata}, stabilizer)
        assert "falcon" not in told_of(caught.value)
        assert "owl" not in told_of(caught.value)


def test_known_keys_stay_in_a_place():
    with pytest.raises(
        CheckFailedError,
        match=r"EMAIL was found: the field `metadata.user_id` of the request @ artifacts\[0\]\.settings\.metadata\.user_id",
    ):
        stabilize_request({"messages": [USER], "metadata": {"user_id": MAIL}}, Stabilizer(9_000, on_failure="raise"))


def test_a_report_holds_no_name_id_or_field_in_which_a_rule_matches():
    old = Artifact(
        "assistant",
        (Part("text", "card 4111 1111 "), Part("text", "1111 1111")),
        name=IBAN,
        id=MAIL,
        calls=(ToolCall(KEY, "{}", MAIL),),
        fields=(Field(f"x.{MAIL}", IBAN),),
    )
    history = [Artifact("user", "a"), old, *(Artifact("user", "word " * 40) for _ in range(12))]
    report = Stabilizer(300, keep_recent=1).stabilize(history).report
    assert report.decisions[1].action == "dropped"
    told = told_by(report)
    assert not [value for value in VALUES if value in told]
    assert json.loads(report.to_json())["decisions"][1]["name"] == "[REDACTED_IBAN]"
