"""Messages that report an error are known, by a flag of the framework or by their text; the word alone is none."""

from __future__ import annotations

import warnings

import pytest

from ctxguard import Artifact, ToolCall
from ctxguard.stages import SlidingWindow
from ctxguard.stages.short_views import reports_error


@pytest.mark.parametrize(
    "text",
    [
        "Error calling tool 'click'",
        "An error occurred while loading the page",
        "Sorry, an error has occurred.",
        '{"status": "error"}',
        "{'status': 'error', 'reason': 'timeout'}",
        '{"status": "failed", "id": 4}',
        "Validation error: 2 fields are missing",
        "Internal server error: try again",
        "Error executing tool search: no index",
        "Error: no such element",
        "3 errors found",
        "There were errors while parsing the file",
        "Failed to click element e12",
        "Unable to find the button",
        "Could not connect to the server",
        '{"isError": true, "content": []}',
        "Tool failed.\nerror: timeout",
        "### Error\nTimeout 30000ms exceeded",
        "<error>bad</error>",
        "<tool_use_error>File has not been read</tool_use_error>",
        "Request failed with error 500",
        "HTTP 500 Internal Server Error",
        "Got error 404 from the server",
        "status: error",
        "isError: true",
        "There was an error on the page",
        "FAILED tests/test_x.py - AssertionError",
        "The edit has introduced a syntax error.\n2 validation errors:",
    ],
)
def test_an_error_that_is_reported_in_words_is_known(text):
    assert reports_error(Artifact("tool", text))
    assert reports_error(Artifact("tool", f"Step 3\n{text}\n"))


@pytest.mark.parametrize("text", ["Error", "ERROR", "Login error", "element not interactable error", "**Error**"])
def test_an_output_that_says_error_and_nothing_else_is_one(text):
    assert reports_error(Artifact("tool", text))


@pytest.mark.parametrize(
    "text",
    [
        "0 errors found",
        "No error",
        "Finished without error",
        "There were no errors",
        "If there is an error, retry.",
        "## Error handling",
        "### Error codes of the API",
        "status: ok, errors: 0",
        "is_error: false",
        "Fixed the login error page and pushed",
        "0 errors, 3 warnings",
        "no errors occurred",
        "No error was raised",
        "If any error occurs, call me.",
        "Finished without errors",
        '{"status": "ok", "error": null}',
        '{"error": "", "errors": []}',
        "def on_error(handler): ...",
        "Our error handling is described in chapter 3",
        "",
    ],
)
def test_the_word_alone_is_no_error(text):
    assert not reports_error(Artifact("tool", text))


def flagged_by_langchain():
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    from ctxguard_langchain import LangChainAdapter

    call = {"name": "f", "args": {}, "id": "1"}
    messages = [
        HumanMessage("hi"),
        AIMessage("", tool_calls=[call]),
        ToolMessage("x", tool_call_id="1", status="error"),
    ]
    return LangChainAdapter().read(messages)


def flagged_by_anthropic():
    from ctxguard_anthropic import AnthropicAdapter

    use = {"type": "tool_use", "id": "1", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": "x", "is_error": True}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result, {"type": "text", "text": "go on"}]},
    ]
    return AnthropicAdapter().read(messages)[:-1]


def flagged_by_pydantic_ai():
    from pydantic_ai.messages import ModelRequest, ModelResponse, RetryPromptPart, ToolCallPart, UserPromptPart

    from ctxguard_pydantic_ai import PydanticAIAdapter

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions write the same part under another name
        retry = RetryPromptPart("x", tool_name="f", tool_call_id="1")
        answer = ModelResponse([ToolCallPart("f", {}, "1")])
        return PydanticAIAdapter().read([ModelRequest([UserPromptPart("hi")]), answer, ModelRequest([retry])])


@pytest.mark.parametrize("read", [flagged_by_langchain, flagged_by_anthropic, flagged_by_pydantic_ai])
def test_what_a_framework_flags_as_an_error_is_known(read):
    if read is not flagged_by_anthropic:
        framework = "langchain_core" if read is flagged_by_langchain else "pydantic_ai"
        pytest.importorskip(framework, reason=f"{framework} is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        *others, failed = read()
        assert reports_error(failed)
        assert not any(map(reports_error, others))
        assert reports_error(failed.revised(content="shortened"))


@pytest.mark.parametrize(
    ("name", "text", "is_kept"),
    [
        (None, "Screenshot saved to /tmp/shots/page 1.png", True),
        (None, "saved screenshot_3.jpeg", True),
        ("browser_take_screenshot", "/tmp/a.png", True),
        (None, "The logo is logo.png", False),
        (None, "I took a screenshot of it", False),
    ],
)
def test_a_saved_screenshot_is_known_by_its_path(name, text, is_kept):
    call = Artifact("assistant", calls=(ToolCall(name or "look", id="1"),))
    shot = Artifact("tool", text, name=name, answers="1")
    talk = [Artifact("user" if n % 2 else "assistant", f"step {n}") for n in range(30)]
    history = [Artifact("user", "begin"), call, shot, *talk]
    assert (shot in SlidingWindow(5).apply(history)) is is_kept
