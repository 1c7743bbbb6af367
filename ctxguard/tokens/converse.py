"""Read the body of a request to Bedrock Converse as what costs tokens."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, Literal

from ctxguard.artifacts import Artifact, Kind, Part, ToolCall
from ctxguard.tokens.body import (
    Body,
    Native,
    content_of,
    kind_of,
    mapping_of,
    members_of,
    records_of,
    said_parts,
    sealed_part,
    text_of,
)
from ctxguard.tokens.media import audio_media, document_part, image_media
from ctxguard.tokens.schemas import compact


def read_converse(body: Native) -> Body:
    """Return what a request to Converse sends."""
    system = content_of(body.get("system"), _part)
    artifacts = [Artifact(Kind.SYSTEM, system)] if system else []
    messages = members_of(body, "messages")
    for message in messages:
        artifacts += _message(message)
    config = mapping_of(body.get("toolConfig"))
    tools = tuple(tool for tool in records_of(config.get("tools")) if "cachePoint" not in tool)
    choice = {"any": "required", "tool": "named"}.get(next(iter(mapping_of(config.get("toolChoice"))), ""), "auto")
    text = mapping_of(mapping_of(mapping_of(body.get("outputConfig")).get("textFormat")).get("structure"))
    schema = text_of(mapping_of(text.get("jsonSchema")).get("schema"))
    return Body(tuple(artifacts), tools, choice, {"schema": schema} if schema else None)


def _message(message: Native) -> Iterator[Artifact]:
    blocks = records_of(message.get("content"))
    for result in (mapping_of(block.get("toolResult")) for block in blocks if "toolResult" in block):
        yield Artifact(Kind.TOOL, content_of(result.get("content"), _part))
    calls = [mapping_of(block.get("toolUse")) for block in blocks if "toolUse" in block]
    rest = [block for block in blocks if "toolResult" not in block and "toolUse" not in block]
    if rest or calls or not blocks:
        made = tuple(ToolCall(text_of(call.get("name")), compact(call.get("input") or {})) for call in calls)
        yield Artifact(kind_of(text_of(message.get("role"))), content_of(rest, _part), calls=made)


def _part(block: Native) -> Iterator[Part]:
    for key in ("guardContent", "citationsContent", "searchResult"):
        if key in block:
            guarded = mapping_of(block.get(key))
            yield from (Part("text", text) for text in _texts_in(guarded))
            if "image" in guarded:
                yield from _part({"image": guarded["image"]})
            return
    thought = mapping_of(block.get("reasoningContent"))
    if thought:
        said = text_of(mapping_of(thought.get("reasoningText")).get("text"))
        yield Part("reasoning", said) if said else sealed_part(_blob(thought.get("redactedContent")))
    elif "image" in block:
        yield Part("image", media=image_media(_url(mapping_of(block["image"]), "image/")))
    elif "document" in block:
        yield from _document(mapping_of(block["document"]))
    elif "video" in block or "audio" in block:
        kind: Literal["audio", "video"] = "video" if "video" in block else "audio"
        data = _blob(mapping_of(mapping_of(block[kind]).get("source")).get("bytes"))
        yield Part("audio", media=replace(audio_media(data), kind=kind))
    elif "json" in block:
        yield Part("text", compact(block["json"]))
    elif "cachePoint" not in block:
        yield from said_parts(block)


def _document(document: Native) -> Iterator[Part]:
    source = mapping_of(document.get("source"))
    if context := text_of(document.get("context")):
        yield Part("text", context)
    if "text" in source or "content" in source:
        yield from (Part("text", text) for text in _texts_in(source))
    else:
        yield document_part(_url(document, "text/" if document.get("format") in _TEXTS else "application/"))


_TEXTS: Final = ("txt", "csv", "md", "html")
"""Formats of documents that are sent as text."""


def _url(medium: Native, kind: str) -> str:
    data = _blob(mapping_of(medium.get("source")).get("bytes"))
    return f"data:{kind}{text_of(medium.get('format'))};base64,{data}" if data else ""


def _blob(value: object) -> str:
    """Return a blob as it is sent: boto3 takes bytes, and the body has their base64."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else text_of(value)


def _texts_in(value: object) -> Iterator[str]:
    """Yield the texts under `text`, at any depth."""
    for key, member in value.items() if isinstance(value, Mapping) else ():
        if key == "text" and isinstance(member, str):
            yield member
        else:
            yield from (text for one in (member if isinstance(member, list) else [member]) for text in _texts_in(one))
