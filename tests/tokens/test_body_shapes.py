"""Every shape that the APIs take costs about what it holds: no part is free, and no bytes are counted as text."""

from __future__ import annotations

import base64
import io

import pytest
from PIL import Image

from ctxguard.formats.registry import detect_api
from ctxguard.tokens import count_request

WORDS = "word " * 300
SCHEMA = {"type": "object", "properties": {}}


def _png():
    file = io.BytesIO()
    Image.effect_noise((400, 300), 90).save(file, "PNG")  # noise, so that its base64 is long
    return base64.b64encode(file.getvalue()).decode()


PNG = _png()
PDF = base64.b64encode(b"%PDF-1.4 " + base64.b64decode(PNG)).decode()
IMAGE_URL = f"data:image/png;base64,{PNG}"
TEXT_URL = "data:text/plain;base64," + base64.b64encode(WORDS.encode()).decode()
ASKED = {"role": "user", "content": "hi"}
BODIES = {
    "chat": ("gpt-5", {"messages": [ASKED]}),
    "responses": ("gpt-5", {"input": [ASKED]}),
    "anthropic": ("claude-sonnet-4-5", {"messages": [ASKED]}),
    "gemini": ("gemini-2.5-flash", {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}),
    "converse": ("us.amazon.nova-pro-v1:0", {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}),
}
LISTS = {
    "chat": "messages",
    "responses": "input",
    "anthropic": "messages",
    "gemini": "contents",
    "converse": "messages",
}
COMPUTER = {"type": "computer_screenshot", "image_url": IMAGE_URL}
ANTHROPIC_PNG = {"type": "base64", "media_type": "image/png", "data": PNG}
CONVERSE_PNG = {"format": "png", "source": {"bytes": PNG}}
FETCHED = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}}


def blocks(role, *members):
    return {"role": role, "content": list(members)}


def parts(role, *members):
    return {"role": role, "parts": list(members)}


def more(api, added):
    """Return by how many tokens a body grows with a message or with fields, and what is said to be uncounted."""
    model, body = BODIES[api]
    fields = added if not {"role", "type"} & added.keys() else {}
    messages = body[LISTS[api]] if fields else [*body[LISTS[api]], added]
    before = count_request(body, api=api, model=model)
    after = count_request({**body, LISTS[api]: messages, **fields}, api=api, model=model)
    assert sum(after.parts.values()) == after.tokens
    return after.tokens - before.tokens, after.uncounted


@pytest.mark.parametrize(
    ("api", "added"),
    [
        ("chat", {"role": "assistant", "content": None, "refusal": WORDS}),
        ("chat", {"role": "assistant", "tool_calls": [{"type": "custom", "custom": {"name": "f", "input": WORDS}}]}),
        ("chat", {"functions": [{"name": "f", "description": WORDS, "parameters": SCHEMA}]}),
        (
            "chat",
            {
                "tools": [
                    {
                        "type": "custom",
                        "custom": {"name": "f", "format": {"type": "grammar", "grammar": {"definition": WORDS}}},
                    }
                ]
            },
        ),
        (
            "chat",
            {"response_format": {"type": "json_schema", "json_schema": {"description": WORDS, "schema": SCHEMA}}},
        ),
        ("responses", {"tools": [{"type": "custom", "name": "f", "format": {"definition": WORDS}}]}),
        ("responses", {"text": {"format": {"type": "json_schema", "description": WORDS, "schema": SCHEMA}}}),
        (
            "responses",
            {
                "tools": [
                    {
                        "type": "namespace",
                        "name": "crm",
                        "description": WORDS,
                        "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}],
                    }
                ]
            },
        ),
        ("responses", blocks("user", {"type": "input_file", "file_data": TEXT_URL})),
        ("responses", {"type": "shell_call_output", "output": [{"stdout": WORDS}]}),
        ("responses", {"type": "custom_tool_call", "name": "f", "input": WORDS}),
        (
            "anthropic",
            blocks("user", {"type": "document", "source": {"type": "text", "data": "x"}, "context": WORDS}),
        ),
        (
            "anthropic",
            blocks("user", {"type": "document", "source": {"type": "content", "content": WORDS}}),
        ),
        (
            "anthropic",
            blocks(
                "user",
                {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": WORDS}]}},
            ),
        ),
        ("anthropic", blocks("user", {"type": "search_result", "content": [{"type": "text", "text": WORDS}]})),
        ("gemini", {"systemInstruction": {"parts": {"text": WORDS}}}),
        ("gemini", {"contents": {"role": "user", "parts": {"text": WORDS}}}),
        ("gemini", parts("model", {"executableCode": {"code": WORDS}})),
        ("converse", blocks("user", {"document": {"format": "txt", "source": {"bytes": WORDS.encode()}}})),
        ("converse", blocks("user", {"document": {"format": "md", "context": WORDS, "source": {"text": "x"}}})),
    ],
)
def test_words_are_counted_wherever_they_stand(api, added):
    grown, uncounted = more(api, added)
    assert 240 <= grown <= 700
    assert not uncounted


@pytest.mark.parametrize(
    ("api", "added"),
    [
        ("chat", blocks("user", {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{PNG}"}})),
        ("chat", blocks("user", {"type": "new_image", "url": IMAGE_URL})),
        ("responses", {"type": "computer_call_output", "output": COMPUTER}),
        ("responses", {"type": "image_generation_call", "status": "completed", "result": PNG}),
        ("responses", {"type": "code_interpreter_call", "outputs": [{"type": "image", "url": IMAGE_URL}]}),
        ("responses", {"type": "custom_tool_call_output", "output": [{"type": "input_image", "image_url": IMAGE_URL}]}),
        (
            "anthropic",
            blocks(
                "user",
                {
                    "type": "document",
                    "source": {"type": "content", "content": [{"type": "image", "source": ANTHROPIC_PNG}]},
                },
            ),
        ),
        ("anthropic", blocks("assistant", {"type": "web_fetch_tool_result", "content": {"content": FETCHED}})),
        ("converse", blocks("user", {"guardContent": {"image": CONVERSE_PNG}})),
    ],
)
def test_bytes_are_counted_as_the_media_that_they_are(api, added):
    grown, _ = more(api, added)
    assert 50 <= grown <= 8_000  # their base64 as text has more than 50,000


@pytest.mark.parametrize(
    ("api", "added", "said"),
    [
        ("chat", {"role": "assistant", "audio": {"id": "audio_1"}}, "audio by link"),
        ("responses", {"type": "item_reference", "id": "msg_1"}, "what item_reference refers to"),
        ("responses", {"prompt": {"id": "pmpt_1"}}, "what prompt refers to"),
        ("anthropic", {"mcp_servers": [{"type": "url", "url": "https://example.org"}]}, "the tools of mcp_servers"),
    ],
)
def test_what_only_the_provider_holds_is_named(api, added, said):
    _, uncounted = more(api, added)
    assert uncounted == (said,)


@pytest.mark.parametrize(
    ("kind", "least"), [("bash_20250124", 245), ("text_editor_20250728", 700), ("computer_20250124", 735)]
)
def test_tools_that_anthropic_defines_and_the_client_runs_cost_what_is_published(kind, least):
    alone, _ = more("anthropic", {"tools": [{"type": kind, "name": "it"}]})
    other = {"name": "f", "description": "", "input_schema": SCHEMA}
    beside, _ = more("anthropic", {"tools": [{"type": kind, "name": "it"}, other]})
    without, _ = more("anthropic", {"tools": [other]})
    assert alone > least + 400  # they bring the prompt of all tools, which is there once
    assert least <= beside - without <= least + 600


def test_one_content_may_stand_without_a_list():
    assert detect_api({"contents": {"parts": {"text": "hi"}}}) == "gemini"


@pytest.mark.parametrize("model", ["gemini-3-flash-preview", "gemini-2.5-pro", "gpt-5", "claude-sonnet-4-5"])
@pytest.mark.parametrize("api", ["chat", "gemini"])
def test_an_empty_result_never_takes_tokens_away(api, model):
    empty = {"chat": {"role": "tool", "content": ""}, "gemini": parts("user", {"functionResponse": {"name": "f"}})}
    assert count_request({LISTS[api]: [empty[api]]}, api=api, model=model).tokens >= 0
