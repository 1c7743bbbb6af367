"""An address in a page that a tool of the provider read does not refuse the conversation for good."""

from __future__ import annotations

import json

import pytest

from ctxguard import Stabilizer
from ctxguard.errors import CheckFailedError
from ctxguard.wire.guard import Guard, WireRequest

MAIL = "zora.field@mailhost.example"
TEXT = f"write to {MAIL}"
LINK = f"https://e.example/?q={MAIL}"
ANTHROPIC, RESPONSES, GEMINI, CHAT = (
    *("/v1/messages", "/v1/responses", "/v1beta/models/g:generateContent", "/v1/chat/completions"),
)


def result(kind, content):
    return {"type": f"{kind}_tool_result", "tool_use_id": "srvtoolu_1", "content": content}


def page(source, url="https://e.example/"):
    return {"type": "web_fetch_result", "url": url, "content": {"type": "document", "source": source, "title": TEXT}}


PLAIN = {"type": "text", "media_type": "text/plain", "data": TEXT}
HIT = {"type": "web_search_result", "url": LINK, "title": TEXT, "encrypted_content": "x", "page_age": None}
CITED = {"type": "web_search_result_location", "url": LINK, "title": "t", "encrypted_index": "x", "cited_text": TEXT}
USE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_fetch"}
BLOCKS = {
    "a page as text": [result("web_fetch", page(PLAIN))],
    "a page with an address in its link": [result("web_fetch", page({**PLAIN, "data": "x"}, LINK))],
    "hits of a search": [result("web_search", [HIT, HIT])],
    "output of code": [
        result("bash_code_execution", {"type": "bash_code_execution_result", "stdout": TEXT, "stderr": TEXT})
    ],
    "a file": [
        result("text_editor_code_execution", {"type": "text_editor_code_execution_view_result", "content": TEXT})
    ],
    "a citation": [{"type": "text", "text": "see", "citations": [CITED]}],
    **{
        f"input under {key}": [{**USE, "input": given}]
        for key, given in {
            "url": {"url": LINK},
            "a type": {"type": "open", "url": LINK},
            "names": {"name": TEXT, "id": MAIL, "model": TEXT},
            "data": {"data": TEXT},
            "an object": {"request": {"uri": LINK, "required": [TEXT]}},
            "a list": {"requests": [{"url": LINK}]},
        }.items()
    },
}
ITEMS = {
    "a search": {"type": "web_search_call", "action": {"type": "search", "query": TEXT, "sources": [{"url": LINK}]}},
    "an opened page": {"type": "web_search_call", "action": {"type": "open_page", "url": LINK}},
    "a search in a page": {"type": "web_search_call", "action": {"type": "find_in_page", "pattern": MAIL, "url": LINK}},
    "a shell": {"type": "shell_call", "call_id": "c", "action": {"commands": [TEXT]}},
    "a computer": {"type": "computer_call", "call_id": "c", "actions": [{"type": "navigate", "url": LINK}]},
    "files": {"type": "file_search_call", "queries": [TEXT], "results": [{"text": TEXT, "file_id": "f"}]},
    "an interpreter": {"type": "code_interpreter_call", "code": TEXT, "outputs": [{"type": "logs", "logs": TEXT}]},
    "an MCP server": {"type": "mcp_call", "name": "f", "server_label": "s", "arguments": TEXT, "output": TEXT},
}
PARTS = {
    "code": {"executableCode": {"language": "PYTHON", "code": TEXT}},
    "output of code": {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": TEXT}},
    "a call of a server's tool": {
        "toolCall": {"toolType": "URL_CONTEXT", "id": "1", "args": {"urls": [LINK], "url": LINK}}
    },
    "a result of a server's tool": {"toolResponse": {"id": "1", "response": {"url": LINK, "data": TEXT}}},
}


def sent(path, body):
    request = WireRequest("POST", path, {}, json.dumps(body).encode())
    return Guard(Stabilizer(9_000)).prepare(request).body.decode()


@pytest.mark.parametrize("name", BLOCKS)
def test_what_a_tool_of_anthropic_wrote_is_text(name):
    said = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [*BLOCKS[name], {"type": "text", "text": "ok"}]},
    ]
    assert MAIL not in sent(
        ANTHROPIC, {"model": "m", "max_tokens": 9, "messages": [*said, {"role": "user", "content": "y"}]}
    )


@pytest.mark.parametrize("name", ITEMS)
def test_what_a_tool_of_openai_wrote_is_text(name):
    item = {"id": "i_1", "status": "completed", **ITEMS[name]}
    message = {"role": "user", "content": "x"}
    assert MAIL not in sent(RESPONSES, {"model": "m", "input": [message, item, message], "store": False})


@pytest.mark.parametrize("name", PARTS)
def test_what_a_tool_of_google_wrote_is_text(name):
    user = {"role": "user", "parts": [{"text": "x"}]}
    model = {"role": "model", "parts": [PARTS[name], {"text": "ok"}]}
    assert MAIL not in sent(GEMINI, {"contents": [user, model, user]})


def test_links_in_citations_of_chat_are_text():
    cited = {"type": "url_citation", "url_citation": {"url": LINK, "title": TEXT, "start_index": 0, "end_index": 1}}
    said = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "ok", "annotations": [cited]}]
    assert MAIL not in sent(CHAT, {"model": "m", "messages": [*said, {"role": "user", "content": "y"}]})


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "image", "source": {"type": "url", "url": LINK}}],
        [
            {
                "type": "tool_result",
                "tool_use_id": "t",
                "content": [{"type": "image", "source": {"type": "url", "url": LINK}}],
            }
        ],
    ],
)
def test_links_that_the_provider_loads_are_never_changed(content):
    use = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    said = [{"role": "user", "content": "x"}, {"role": "assistant", "content": [use]}]
    answer = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
    content = content if content[0]["type"] == "tool_result" else [answer, *content]
    with pytest.raises(CheckFailedError):
        sent(ANTHROPIC, {"model": "m", "max_tokens": 9, "messages": [*said, {"role": "user", "content": content}]})


def test_a_parameter_may_have_the_name_of_an_argument():
    schema = {"type": "object", "properties": {"action": {"type": "string", "pattern": MAIL}}, "required": ["action"]}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    with pytest.raises(CheckFailedError):
        sent(CHAT, {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [tool]})
