"""Whole histories with values planted in them, in every native format; the judge searches what is sent for the values.

Generator and judge share no code with what they judge: a plain string search, and a count by the vocabulary itself.
"""

from __future__ import annotations

import json
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")
pytest.importorskip("langchain_core", reason="LangChain is not installed (extra langchain)")
pytest.importorskip("toktok", reason="toktok-rs is not installed (extra tokens)")

import toktok
from conversions import anthropic_of, converse_of, gemini_of, langchain_of, pydantic_ai_of, responses_of

from ctxguard import Stabilizer
from ctxguard.adapting import find_adapter, stabilize_native
from ctxguard.errors import CtxguardError

FORMATS = {
    "openai": list,
    "openai-responses": responses_of,
    "anthropic": anthropic_of,
    "google": gemini_of,
    "bedrock": converse_of,
    "langchain": langchain_of,
    "pydantic-ai": pydantic_ai_of,
}
VALUES = (
    "zora@mailhost.org",
    "4111 1111 1111 1111",
    "3782-822463-10005",
    "123-45-6789",
    "DE89 3704 0044 0532 0130 00",
    "GB82WEST12345698765432",
    "+44 20 7958 9908",
    "(212) 556-1212",
    "203.0.113.77",
    "2001:db8:85a3::8a2e:370:7334",
    "b0:56:3f:ce:c0:d4",
    "AKIAXICAQ5GMA336Y6ZM",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa",
)
WORDS = ("order", "refund", "Zürich", "見積", "look", "again", "the")


def texts(value, most=40):
    """Draw words, with the value among them or without it."""
    plain = st.lists(st.sampled_from(WORDS), min_size=1, max_size=most).map(" ".join)
    return st.one_of(plain, st.tuples(plain, plain).map(lambda both: f"{both[0]} {value} {both[1]}"))


@st.composite
def planted(draw, value):
    """Draw messages of Chat Completions: late system messages, parallel calls, links, parts, unknown fields."""
    half = draw(st.integers(3, len(value) - 3))
    names = st.sampled_from(["search", "read_file", value])
    messages = [{"role": "system", "content": draw(texts(value))}] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 5))):
        parts = draw(st.sampled_from([[], [value[:half], value[half:]]]))
        asked = draw(texts(value))
        listed = [{"type": "text", "text": text} for text in (asked, *parts)]
        if draw(st.booleans()):
            link = draw(st.sampled_from(["https://ex.org/a.png", f"https://ex.org/?of={value}"]))
            listed.append({"type": "image_url", "image_url": {"url": link}})
        messages.append({"role": "user", "content": listed if len(listed) > 1 else asked})
        ids = [f"call_{turn}_{number}" for number in range(draw(st.integers(0, 3)))]
        calls = [
            {
                "id": one,
                "type": "function",
                "function": {"name": draw(names), "arguments": json.dumps({"q": draw(texts(value, 9))})},
            }
            for one in ids
        ]
        if calls:
            messages.append({"role": "assistant", "content": draw(st.sampled_from([None, value])), "tool_calls": calls})
        for one in draw(st.permutations(ids)):
            output = draw(texts(value, 200))
            listing = json.dumps({"rows": [{"a": output}], value: 1})
            messages.append({"role": "tool", "tool_call_id": one, "content": draw(st.sampled_from([output, listing]))})
        messages.append({"role": "assistant", "content": draw(texts(value))})
        if not draw(st.integers(0, 4)):
            messages.append({"role": "system", "content": draw(texts(value))})
    return [*messages, {"role": "user", "content": "and now?"}]


def strings(sent):
    """Walk all texts of native messages."""
    if isinstance(sent, str):
        yield sent
    elif isinstance(sent, (list, tuple)):
        for member in sent:
            yield from strings(member)
    elif isinstance(sent, dict):
        for key, member in sent.items():
            yield from (key, *strings(member))
    elif hasattr(sent, "__dict__"):
        yield from strings({key: member for key, member in vars(sent).items() if not key.startswith("__")})


@pytest.mark.parametrize("name", FORMATS)
@given(
    data=st.data(), value=st.sampled_from(VALUES), budget=st.sampled_from([500, 2_000, 50_000]), strict=st.booleans()
)
def test_a_planted_value_is_masked_or_told_and_the_budget_holds(name, data, value, budget, strict):
    messages = data.draw(planted(value))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a framework's own, on what the values are planted in
        native = FORMATS[name](messages)
        stabilizer = Stabilizer(budget, on_failure="raise" if strict else "report")
        try:
            sent, report = stabilize_native(stabilizer, find_adapter(name), native)
        except CtxguardError as error:
            assert value not in f"{error} {error.__cause__} {error.__context__}"
            return
    found = list(strings(sent))
    assert not report.ok or not any(value in text for text in (*found, "".join(found)))
    if name == "openai":
        said = [message["content"] for message in sent if isinstance(message.get("content"), str)]
        assert sum(toktok.batch_count(said, "o200k_base")) <= report.budget
    assert value not in f"{report} {report.to_json()} {report._repr_html_()}"
