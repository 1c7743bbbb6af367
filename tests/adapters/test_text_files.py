"""A file that holds a text costs what the text costs, however its block spells it; other files cost their pages."""

from __future__ import annotations

import base64

import pytest

pytest.importorskip("langchain_core", reason="LangChain is not installed (extra langchain)")
pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")

from langchain_core.messages import HumanMessage
from pydantic_ai import BinaryContent
from pydantic_ai.messages import ModelRequest, UserPromptPart

from ctxguard import Stabilizer
from ctxguard.adapting import find_adapter

TEXT = "The order left the warehouse on Monday. " * 20
DATA = base64.b64encode(TEXT.encode()).decode()
URL = f"data:text/plain;base64,{DATA}"
BINARY = base64.b64encode(bytes(range(256)) * 4).decode()


def of_openai(block):
    return "openai", [{"role": "user", "content": [block]}]


def of_anthropic(block):
    return "anthropic", [{"role": "user", "content": [block]}]


def of_responses(block):
    return "openai-responses", [{"role": "user", "content": [block]}]


def of_langchain(block):
    return "langchain", [HumanMessage([block])]


def of_google(part):
    return "google", [{"role": "user", "parts": [part]}]


def of_bedrock(source):
    return "bedrock", [{"role": "user", "content": [{"document": {"format": "txt", "name": "a", "source": source}}]}]


def of_pydantic_ai(media_type):
    part = UserPromptPart([BinaryContent(data=TEXT.encode(), media_type=media_type)])
    return "pydantic-ai", [ModelRequest(parts=[part])]


TEXT_FILES = [
    *(of_openai({"type": "file", "file": {"file_data": data}}) for data in (URL, DATA, TEXT)),
    *(of_responses({"type": "input_file", "file_data": data}) for data in (URL, DATA, TEXT)),
    of_openai({"type": "file", "text": TEXT}),
    of_openai({"type": "file", "file": {"text": TEXT}}),
    of_langchain({"type": "file", "base64": DATA, "mime_type": "text/plain"}),
    of_langchain({"type": "file", "source_type": "text", "text": TEXT}),
    of_langchain({"type": "file", "source_type": "base64", "data": DATA, "mime_type": "text/csv"}),
    of_langchain({"type": "media", "data": DATA, "mime_type": "text/plain"}),
    of_langchain({"type": "text-plain", "base64": DATA, "mime_type": "text/plain"}),
    of_langchain({"type": "document", "source": {"type": "base64", "data": DATA, "media_type": "text/plain"}}),
    of_anthropic({"type": "document", "source": {"type": "base64", "data": DATA, "media_type": "text/plain"}}),
    of_anthropic({"type": "document", "source": {"type": "text", "data": TEXT, "media_type": "text/plain"}}),
    of_google({"inlineData": {"mimeType": "text/plain", "data": DATA}}),
    of_google({"inlineData": {"mimeType": "application/x-yaml", "data": DATA}}),
    of_bedrock({"bytes": TEXT.encode()}),
    of_pydantic_ai("text/plain"),
    of_pydantic_ai("application/yaml"),
]


@pytest.mark.parametrize(("adapter", "messages"), TEXT_FILES)
def test_a_text_file_costs_what_its_text_costs(adapter, messages):
    counter = Stabilizer(100_000).counter
    whole = counter.artifacts(find_adapter(adapter).read(messages))
    text = counter.counter.count(TEXT)
    assert text <= whole <= 1.2 * text + 20


@pytest.mark.parametrize(
    ("adapter", "messages"),
    [
        of_openai({"type": "file", "file": {"file_data": BINARY}}),
        of_openai({"type": "file", "file": {"file_id": "file-abc"}}),
        of_langchain({"type": "file", "base64": BINARY, "mime_type": "application/zip"}),
        of_bedrock({"s3Location": {"uri": "s3://a/b"}}),
    ],
)
def test_another_file_costs_at_least_a_page(adapter, messages):
    assert Stabilizer(100_000).counter.artifacts(find_adapter(adapter).read(messages)) > 1_000


@pytest.mark.parametrize("block", [{"text": "I am ada@example.com"}, {"file": {"text": "I am ada@example.com"}}])
def test_the_text_of_a_file_is_masked(block):
    adapter = find_adapter("openai")
    messages = [{"role": "user", "content": [{"type": "file", **block}]}]
    sent = adapter.write(messages, Stabilizer(10_000).stabilize(adapter.read(messages)).artifacts)
    assert "ada@example.com" not in str(sent)
    assert "[REDACTED_EMAIL]" in str(sent)
