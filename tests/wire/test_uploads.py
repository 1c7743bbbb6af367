"""Uploads of texts are redacted; other uploads are refused, or sent on unread where their path is named."""

from __future__ import annotations

import json

import pytest

from ctxguard import Stabilizer
from ctxguard.wire import Guard, Transport

httpx = pytest.importorskip("httpx")

MAIL = "ann@example.com"
LINE = json.dumps({"custom_id": "1", "body": {"messages": [{"role": "user", "content": f"Write to {MAIL}, ä."}]}})


@pytest.fixture
def upload():
    """Upload a file; give the status, and the body and the headers that the provider got."""

    def upload(content, *, name="batch.jsonl", path="/v1/files", **settings):
        got = []

        def provider(request):
            got.append((request.read(), request.headers))
            return httpx.Response(200, json={"id": "file-1"})

        guard = Guard(Stabilizer(4_000), **settings)
        with httpx.Client(transport=Transport(guard, transport=httpx.MockTransport(provider))) as client:
            files = {"file": (name, content, "application/jsonl")}
            answer = client.post(f"https://api.openai.com{path}", files=files, data={"purpose": "batch"})
        return answer.status_code, *(got[0] if got else (b"", {}))

    return upload


@pytest.mark.parametrize("settings", [{}, {"on_unreadable": ["/v1/files"]}, {"on_unreadable": ["*"]}])
def test_texts_of_an_upload_are_redacted_whatever_may_pass_unread(upload, settings):
    status, body, headers = upload(f"{LINE}\n{LINE}\n".encode(), name=f"of {MAIL}.jsonl", **settings)
    assert status == 200
    assert MAIL.encode() not in body
    divider = headers["content-type"].partition("boundary=")[2].encode()
    assert body.count(b"--" + divider) == 3
    assert int(headers["content-length"]) == len(body)
    lines = body.partition(b"application/jsonl\r\n\r\n")[2].partition(b"\r\n--")[0].decode().splitlines()
    redacted = [json.loads(line)["body"]["messages"][0]["content"] for line in lines]
    assert len(redacted) == 2
    assert all(text.startswith("Write to ") and text.endswith(", ä.") for text in redacted)


def test_an_upload_without_values_keeps_its_bytes(upload):
    assert b"\r\n\r\nhello\r\n" in upload(b"hello")[1]


@pytest.mark.parametrize(
    "content",
    [b"\x89PNG\x00\xff", "Write to ann@example.com".encode("utf-16"), b"Content-Transfer-Encoding: base64\n\nYQ=="],
)
def test_what_is_no_plain_text_is_refused_or_passes_where_its_path_is_named(upload, content):
    assert upload(content)[0] == 403
    status, body, _ = upload(content, on_unreadable=["/v1/files"])
    assert status == 200
    assert content in body


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/embeddings", "/v1/responses/"])
def test_no_path_that_is_read_may_pass_unread(path):
    assert not Guard(Stabilizer(4_000), on_unreadable=["*"]).passes_unread(path)
