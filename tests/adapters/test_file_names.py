"""Names of files are shown to models: they are masked and counted in every format, and never left empty."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ctxguard import Stabilizer
from ctxguard.artifacts import Part
from ctxguard_openai import OpenAIAdapter, ResponsesAdapter

NAME = "cv of ann@corp-mail.net, signed"


def chat(part):
    return OpenAIAdapter(), [{"role": "user", "content": [{"type": "text", "text": "Read it."}, part]}]


def responses(part):
    return ResponsesAdapter(), [{"role": "user", "content": [{"type": "input_text", "text": "Read it."}, part]}]


def langchain(part):
    pytest.importorskip("langchain_core", reason="langchain-core is not installed")
    from langchain_core.messages import HumanMessage

    from ctxguard_langchain import LangChainAdapter

    return LangChainAdapter(), [HumanMessage(content=["Read it.", part])]


def content_of(message):
    return message["content"] if isinstance(message, dict) else message.content


FILES = [
    (chat, {"type": "file", "file": {"filename": NAME, "file_data": "AAAA"}}, "file"),
    (responses, {"type": "input_file", "filename": NAME, "file_data": "AAAA"}, None),
    (langchain, {"type": "file", "base64": "AAAA", "extras": {"filename": NAME}}, "extras"),
    (langchain, {"type": "file", "file": {"filename": NAME, "file_data": "AAAA"}}, "file"),
]


@pytest.mark.parametrize(("make", "part", "holder"), FILES)
def test_the_name_of_a_file_is_masked_and_counted(make, part, holder):
    adapter, native = make(part)
    stabilizer = Stabilizer(4_000)
    artifacts = adapter.read(native)
    written = content_of(adapter.write(native, stabilizer.stabilize(artifacts).artifacts)[0])[1]
    assert (written[holder] if holder else written)["filename"] == "cv of [REDACTED_EMAIL], signed"
    nameless = {key: value for key, value in (part[holder] if holder else part).items() if key != "filename"}
    other, without = make({**part, holder: nameless} if holder else nameless)
    assert stabilizer.counter.artifacts(artifacts) > stabilizer.counter.artifacts(other.read(without))


@pytest.mark.parametrize(("make", "part", "holder"), FILES)
def test_the_name_of_a_file_is_never_left_empty(make, part, holder):
    adapter, native = make(part)
    (artifact,) = adapter.read(native)
    emptied = tuple(replace(p, text="") if p.text == NAME else p for p in artifact.content)
    assert sum(p == Part("text", "") for p in emptied) == 1
    written = content_of(adapter.write(native, [artifact.revised(content=emptied)])[0])[1]
    assert (written[holder] if holder else written)["filename"] == "…"
