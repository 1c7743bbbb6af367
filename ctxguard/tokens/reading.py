"""Read the body of a request to any of the five APIs as what costs tokens: artifacts, tools, and what is beside them.

This is a reader for counting alone: it needs no framework and writes nothing back.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from ctxguard.artifacts import Artifact, Kind, Media, Part, ToolCall
from ctxguard.errors import ConfigError
from ctxguard.tokens.media import audio_media, document_part, image_media

__all__ = ["APIS", "Api", "Body", "detect_api", "read_body"]

Api: TypeAlias = Literal["chat", "responses", "anthropic", "gemini", "converse"]
APIS: Final[tuple[Api, ...]] = ("chat", "responses", "anthropic", "gemini", "converse")
Native: TypeAlias = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Body:
    """Hold what a request body sends.

    Attributes:
        artifacts: system prompt, messages, tool calls and results, in their order.
        tools: the tools as they are sent.
        choice: the `tool_choice`, as one word: `auto`, `none`, `required`, or `named` for a certain tool.
        schema: the schema that the reply must follow; None where there is none.
        found: names of deferred functions that a search of an earlier step has found.
        brought: tools that stand among the messages, a list for each place.
        thinks: whether the request asks for thinking.
        documents: how many documents are sent as text.
        empty_system: whether the system prompt is an empty text.
    """

    artifacts: tuple[Artifact, ...]
    tools: tuple[Native, ...] = ()
    choice: str = "auto"
    schema: Native | None = None
    found: frozenset[str] = frozenset()
    brought: tuple[tuple[Native, ...], ...] = ()
    thinks: bool = False
    documents: int = 0
    empty_system: bool = False


def read_body(body: Native, *, api: Api) -> Body:
    """Return what a request body, parsed from its JSON, sends.

    Raises:
        ConfigError: there is no such API, or the body is not one of its requests.
    """
    if api not in _READERS:
        raise ConfigError(f"unknown API {api!r}; known are {', '.join(APIS)}", setting="api")
    if not isinstance(body, Mapping):
        raise ConfigError(f"a request body is a JSON object, not {type(body).__name__}", setting="body")
    return _READERS[api](body)


def detect_api(body: Native) -> Api:
    """Return the API that a request body is meant for, by its fields.

    Raises:
        ConfigError: it is none of the five.
    """
    if isinstance(body.get("contents"), list):
        return "gemini"
    if "input" in body:
        return "responses"
    if not isinstance(body.get("messages"), list):
        raise ConfigError("the object has no 'messages', 'input' or 'contents', so it is no request", setting="api")
    blocks = [block for message in _records(body["messages"]) for block in _records(message.get("content"))]
    if any(key in body for key in _CONVERSE) or any("toolUse" in block or "toolResult" in block for block in blocks):
        return "converse"
    is_anthropic = (
        "system" in body
        or any("input_schema" in tool for tool in _tools(body))
        or any(block.get("type") in ("tool_use", "tool_result", "thinking", "document") for block in blocks)
        or _text(body.get("model")).startswith("claude")
    )
    return "anthropic" if is_anthropic else "chat"


_CONVERSE: Final = ("modelId", "toolConfig", "inferenceConfig")
"""Fields that only requests of Bedrock Converse have."""


def _chat(body: Native) -> Body:
    messages = _members(body, "messages")
    last = max((number for number, message in enumerate(messages) if message.get("role") == "user"), default=0)
    artifacts = [_chat_message(message, is_over=number < last) for number, message in enumerate(messages)]
    form = _mapping(body.get("response_format"))
    schema = _mapping(form.get("json_schema"))
    return Body(
        tuple(artifacts), _tools(body), _choice(body.get("tool_choice")), _mapping(schema.get("schema")) or None
    )


def _chat_message(message: Native, *, is_over: bool) -> Artifact:
    """Return a message; reasoning from before the last user message is dropped by the templates of open models."""
    role = _text(message.get("role"))
    calls = [_mapping(call.get("function")) for call in _records(message.get("tool_calls"))]
    if old := _mapping(message.get("function_call")):
        calls.append(old)
    content = _content(message.get("content"), _chat_part)
    thought = _text(message.get("reasoning_content")) or _text(message.get("reasoning"))
    if thought and not is_over:
        content = (*_as_parts(content), Part("reasoning", thought))
    name = _text(message.get("name")) or None
    return Artifact(_kind(role), content, calls=tuple(map(_call, calls)), name=name)


def _chat_part(part: Native) -> Iterator[Part]:
    kind = _text(part.get("type"))
    if kind == "image_url":
        image = part.get("image_url")
        url, detail = (image, "auto") if isinstance(image, str) else (_mapping(image).get("url"), _detail(image))
        yield Part("image", media=image_media(_text(url), detail=detail))
    elif kind == "input_audio":
        yield Part("audio", media=audio_media(_text(_mapping(part.get("input_audio")).get("data"))))
    elif kind in ("file", "document_url"):
        yield document_part(_text(_mapping(part.get("file")).get("file_data")))
    elif kind == "thinking":
        yield from (Part("reasoning", _text(inner.get("text"))) for inner in _records(part.get("thinking")))
    else:
        yield _said(part)


def _responses(body: Native) -> Body:
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else _records(given)
    compacted = max((n for n, item in enumerate(items) if item.get("type") == "compaction"), default=0)
    items = items[compacted:]
    keeps_all = _mapping(body.get("reasoning")).get("context") == "all_turns"
    last = 0 if keeps_all else max((n for n, item in enumerate(items) if item.get("role") == "user"), default=0)
    artifacts = [a for number, item in enumerate(items) for a in _responses_item(item, is_over=number < last)]
    instructions = body.get("instructions")
    if isinstance(instructions, str) and instructions:
        artifacts.insert(0, Artifact(Kind.SYSTEM, instructions))
    form = _mapping(_mapping(body.get("text")).get("format"))
    brought = tuple(tuple(_brought(item)) for item in items if item.get("type") in _BRINGING)
    return Body(
        tuple(artifacts),
        tuple(tool for tool in _tools(body) if not (brought and _is_hosted_search(tool))),
        _choice(body.get("tool_choice")),
        _mapping(form.get("schema")) or None,
        brought=brought,
        empty_system=instructions == "",
    )


_BRINGING: Final = ("additional_tools", "tool_search_output")


def _brought(item: Native) -> Iterator[Native]:
    """Yield the tools that an item brings in; the model sees them from there on."""
    for tool in _records(item.get("tools")):
        yield {**tool, "defer_loading": False}


def _is_hosted_search(tool: Native) -> bool:
    return tool.get("type") == "tool_search" and tool.get("execution") != "client"


def _responses_item(item: Native, *, is_over: bool) -> Iterator[Artifact]:
    """Yield what an item sends; reasoning from before the last user message is dropped by the API."""
    kind = _text(item.get("type")) or "message"
    if kind == "message":
        yield Artifact(_kind(_text(item.get("role"))), _content(item.get("content"), _responses_part))
    elif kind == "function_call":
        yield Artifact(Kind.ASSISTANT, calls=(_call(item),))
    elif kind == "function_call_output":
        yield Artifact(Kind.TOOL, _content(item.get("output"), _responses_part))
    elif kind == "reasoning":
        if not is_over:
            yield Artifact(Kind.ASSISTANT, tuple(_thoughts(item)))
    elif kind == "tool_search_call":
        yield Artifact(Kind.ASSISTANT, calls=(ToolCall("tool_search", _json(item.get("arguments") or {})),))
    elif kind == "tool_search_output":
        yield Artifact(Kind.TOOL)
    elif kind == "compaction":
        yield Artifact(Kind.ASSISTANT, (_sealed(_text(item.get("encrypted_content"))),))
    elif kind not in _BRINGING:
        yield Artifact(Kind.ASSISTANT, (Part("opaque", _json(item)),))


def _thoughts(item: Native) -> Iterator[Part]:
    """Yield what a reasoning item costs: the sealed reasoning, which its summary only retells."""
    sealed = _text(item.get("encrypted_content"))
    if sealed:
        yield _sealed(sealed)
    else:
        yield from (Part("reasoning", _text(part.get("text"))) for part in _records(item.get("content")))


def _sealed(data: str) -> Part:
    return Part("reasoning", media=Media("sealed", length=len(data)))


def _responses_part(part: Native) -> Iterator[Part]:
    kind = _text(part.get("type"))
    if kind == "input_image":
        yield Part("image", media=image_media(_text(part.get("image_url")), detail=_detail(part)))
    elif kind == "input_file":
        yield document_part(_text(part.get("file_data")))
    elif kind == "input_audio":
        yield Part("audio", media=audio_media(_text(_mapping(part.get("input_audio")).get("data"))))
    else:
        yield _said(part)


def _anthropic(body: Native) -> Body:
    system = _content(body.get("system"), _anthropic_part)
    artifacts = [Artifact(Kind.SYSTEM, system)] if system else []
    messages = _members(body, "messages")
    last = max((number for number, message in enumerate(messages) if _asks(message)), default=0)
    for number, message in enumerate(messages):
        artifacts += _anthropic_message(message, is_over=number < last)
    form = _mapping(_mapping(body.get("output_config")).get("format")) or _mapping(body.get("output_format"))
    thinking = _mapping(body.get("thinking")).get("type")
    return Body(
        tuple(artifacts),
        _tools(body),
        _choice(body.get("tool_choice")),
        _mapping(form.get("schema")) or None,
        found=frozenset(_referenced(body.get("messages"))),
        thinks=thinking == "enabled",
        documents=sum(1 for message in messages for _ in _text_documents(message)),
    )


def _text_documents(message: Native) -> Iterator[Native]:
    for block in _records(message.get("content")):
        for inner in (block, *_records(block.get("content"))):
            if inner.get("type") == "document" and _mapping(inner.get("source")).get("type") == "text":
                yield inner


def _referenced(value: object) -> Iterator[str]:
    """Yield the names of the deferred tools that a search has found."""
    if isinstance(value, Mapping):
        if value.get("type") == "tool_reference":
            yield _text(value.get("tool_name")) or _text(value.get("name"))
        for inner in value.values():
            yield from _referenced(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _referenced(inner)


def _asks(message: Native) -> bool:
    """Return whether a user said something in a message, so that the thinking before it is dropped by the API."""
    if message.get("role") != "user":
        return False
    content = message.get("content")
    return isinstance(content, str) or any(block.get("type") != "tool_result" for block in _records(content))


def _anthropic_message(message: Native, *, is_over: bool) -> Iterator[Artifact]:
    blocks = _blocks(message.get("content"))
    results = [block for block in blocks if block.get("type") == "tool_result"]
    calls = [block for block in blocks if block.get("type") == "tool_use"]
    for result in results:
        yield Artifact(Kind.TOOL, _content(result.get("content"), _anthropic_part))
    rest = [block for block in blocks if block.get("type") not in ("tool_result", "tool_use")]
    if is_over:
        rest = [block for block in rest if block.get("type") not in ("thinking", "redacted_thinking")]
    if rest or calls or not blocks:
        made = tuple(ToolCall(_text(call.get("name")), _json(call.get("input") or {})) for call in calls)
        yield Artifact(_kind(_text(message.get("role"))), _content(rest, _anthropic_part), calls=made)


def _anthropic_part(block: Native) -> Iterator[Part]:
    kind = _text(block.get("type"))
    source = _mapping(block.get("source"))
    if kind == "image":
        yield Part("image", media=image_media(_source_url(source)))
    elif kind == "document" and source.get("type") == "text":
        yield Part("text", _text(source.get("data")))
    elif kind == "document":
        yield document_part(_source_url(source))
    elif kind == "thinking":
        yield Part("reasoning", _text(block.get("thinking")))
    elif kind == "redacted_thinking":
        yield _sealed(_text(block.get("data")))
    else:
        yield _said(block)


def _source_url(source: Native) -> str:
    if source.get("type") != "base64":
        return ""
    return f"data:{_text(source.get('media_type'))};base64,{_text(source.get('data'))}"


def _gemini(body: Native) -> Body:
    system = _mapping(body.get("systemInstruction") or body.get("system_instruction"))
    artifacts = [Artifact(Kind.SYSTEM, _content(system.get("parts"), _gemini_part))] if system else []
    contents = _members(body, "contents")
    last = max((number for number, content in enumerate(contents) if _gemini_asks(content)), default=0)
    for number, content in enumerate(contents):
        artifacts += _gemini_content(content, is_over=number < last)
    tools = body.get("tools")
    given = [tools] if isinstance(tools, Mapping) else _records(tools)
    settings = _mapping(body.get("generationConfig") or body.get("generation_config"))
    schema = _mapping(settings.get("responseJsonSchema") or settings.get("responseSchema"))
    calling = _mapping(_mapping(body.get("toolConfig")).get("functionCallingConfig"))
    choice = "required" if calling.get("mode") == "ANY" else _choice(_text(calling.get("mode")).lower() or "auto")
    return Body(tuple(artifacts), tuple(given), choice, schema or None)


def _gemini_asks(content: Native) -> bool:
    """Return whether a user said or sent something here, so that the signed thoughts before it are not billed."""
    parts = _records(content.get("parts"))
    return content.get("role", "user") == "user" and not all(_either(part, *_CALLS[1]) for part in parts)


def _gemini_content(content: Native, *, is_over: bool) -> Iterator[Artifact]:
    parts = _records(content.get("parts"))
    if is_over:
        parts = [{key: part[key] for key in part if key not in _SIGNATURES} for part in parts]
    calls = [_mapping(_either(part, "functionCall", "function_call")) for part in parts]
    made = tuple(ToolCall(_text(call.get("name")), _json(call.get("args") or {})) for call in calls if call)
    for part in parts:
        if answer := _mapping(_either(part, "functionResponse", "function_response")):
            media = tuple(p for inner in _records(answer.get("parts")) for p in _gemini_part(inner))
            text = Part("text", _json(answer.get("response") or {}))
            yield Artifact(Kind.TOOL, (text, *media), name=_text(answer.get("name")) or None)
    said = tuple(piece for part in parts for piece in _gemini_part(part))
    if said or made:
        yield Artifact(_kind(_text(content.get("role")) or "user"), said, calls=made)


def _gemini_part(part: Native) -> Iterator[Part]:
    signature = _text(_either(part, *_SIGNATURES))
    if signature.startswith(_BILLED):
        yield _sealed(signature)
    blob = _mapping(_either(part, "inlineData", "inline_data"))
    if blob:
        yield _gemini_blob(_text(_either(blob, "mimeType", "mime_type")), _text(blob.get("data")))
    elif _either(part, "fileData", "file_data"):
        yield _gemini_blob(
            _text(_either(_mapping(_either(part, "fileData", "file_data")), "mimeType", "mime_type")), ""
        )
    elif part.get("text") is not None:
        yield Part("reasoning" if part.get("thought") else "text", _text(part.get("text")))
    elif not any(_either(part, *names) for names in _CALLS):
        rest = {key: value for key, value in part.items() if key not in _SIGNATURES}
        if rest:
            yield Part("opaque", _json(rest))


_SIGNATURES: Final = ("thoughtSignature", "thought_signature")
_BILLED: Final = "E"
"""How signatures of the Gemini API begin (field 2 of its message); those of Vertex AI are not billed (fitted)."""
_CALLS: Final = (("functionCall", "function_call"), ("functionResponse", "function_response"))


def _gemini_blob(mime: str, data: str) -> Part:
    url = f"data:{mime};base64,{data}" if data else ""
    if mime.startswith("image/"):
        return Part("image", media=image_media(url))
    if mime.startswith(("audio/", "video/")):
        return Part("audio", media=replace(audio_media(data), kind="audio" if mime.startswith("audio/") else "video"))
    return document_part(url)


def _converse(body: Native) -> Body:
    system = _content(body.get("system"), _converse_part)
    artifacts = [Artifact(Kind.SYSTEM, system)] if system else []
    messages = _members(body, "messages")
    for message in messages:
        artifacts += _converse_message(message)
    config = _mapping(body.get("toolConfig"))
    tools = tuple(tool for tool in _records(config.get("tools")) if "cachePoint" not in tool)
    choice = {"any": "required", "tool": "named"}.get(next(iter(_mapping(config.get("toolChoice"))), ""), "auto")
    text = _mapping(_mapping(_mapping(body.get("outputConfig")).get("textFormat")).get("structure"))
    schema = _text(_mapping(text.get("jsonSchema")).get("schema"))
    return Body(tuple(artifacts), tools, choice, {"schema": schema} if schema else None)


def _converse_message(message: Native) -> Iterator[Artifact]:
    blocks = _records(message.get("content"))
    for result in (_mapping(block.get("toolResult")) for block in blocks if "toolResult" in block):
        yield Artifact(Kind.TOOL, _content(result.get("content"), _converse_part))
    calls = [_mapping(block.get("toolUse")) for block in blocks if "toolUse" in block]
    rest = [block for block in blocks if "toolResult" not in block and "toolUse" not in block]
    if rest or calls or not blocks:
        made = tuple(ToolCall(_text(call.get("name")), _json(call.get("input") or {})) for call in calls)
        yield Artifact(_kind(_text(message.get("role"))), _content(rest, _converse_part), calls=made)


def _converse_part(block: Native) -> Iterator[Part]:
    for key in ("guardContent", "citationsContent", "searchResult"):
        if key in block:
            yield from (Part("text", text) for text in _texts_in(_mapping(block.get(key))))
            return
    thought = _mapping(block.get("reasoningContent"))
    if thought:
        said = _text(_mapping(thought.get("reasoningText")).get("text"))
        yield Part("reasoning", said) if said else _sealed(_blob(thought.get("redactedContent")))
    elif "image" in block:
        yield Part("image", media=image_media(_converse_url(_mapping(block["image"]), "image/")))
    elif "document" in block:
        yield from _converse_document(_mapping(block["document"]))
    elif "video" in block or "audio" in block:
        kind: Literal["audio", "video"] = "video" if "video" in block else "audio"
        data = _blob(_mapping(_mapping(block[kind]).get("source")).get("bytes"))
        yield Part("audio", media=replace(audio_media(data), kind=kind))
    elif "json" in block:
        yield Part("text", _json(block["json"]))
    elif "cachePoint" not in block:
        yield _said(block)


def _converse_document(document: Native) -> Iterator[Part]:
    source = _mapping(document.get("source"))
    if "text" in source or "content" in source:
        yield from (Part("text", text) for text in _texts_in(source))
    else:
        yield document_part(_converse_url(document, "application/"))


def _converse_url(medium: Native, kind: str) -> str:
    data = _blob(_mapping(medium.get("source")).get("bytes"))
    return f"data:{kind}{_text(medium.get('format'))};base64,{data}" if data else ""


def _blob(value: object) -> str:
    """Return a blob as it is sent: boto3 takes bytes, and the body has their base64."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else _text(value)


def _texts_in(value: object) -> Iterator[str]:
    """Yield the texts under `text`, at any depth."""
    for key, member in value.items() if isinstance(value, Mapping) else ():
        if key == "text" and isinstance(member, str):
            yield member
        else:
            yield from (text for one in (member if isinstance(member, list) else [member]) for text in _texts_in(one))


_READERS: Final[Mapping[str, Callable[[Native], Body]]] = {
    "chat": _chat,
    "responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "converse": _converse,
}


def _members(body: Native, key: str) -> list[Native]:
    if not isinstance(body.get(key), list):
        raise ConfigError(f"the request body has no list {key!r}", setting="body")
    return _records(body.get(key))


def _records(value: object) -> list[Native]:
    """Return the objects of a list; anything else in it costs nothing."""
    return [member for member in value if isinstance(member, Mapping)] if isinstance(value, (list, tuple)) else []


def _blocks(content: object) -> list[Native]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else _records(content)


def _mapping(value: object) -> Native:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _either(value: Native, *names: str) -> object:
    return next((value[name] for name in names if value.get(name) is not None), None)


def _detail(value: object) -> str:
    return _text(_mapping(value).get("detail")) or "auto"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _kind(role: str) -> Kind:
    try:
        return Kind(role)
    except ValueError:
        return Kind.USER


def _call(function: Native) -> ToolCall:
    arguments = function.get("arguments")
    return ToolCall(_text(function.get("name")), arguments if isinstance(arguments, str) else _json(arguments or {}))


def _tools(body: Native) -> tuple[Native, ...]:
    return tuple(_records(body.get("tools")))


def _choice(given: object) -> str:
    """Return a tool choice of any API as one word."""
    if isinstance(given, Mapping):
        given = given.get("mode") or given.get("type")
    word = _text(given) or "auto"
    known = {"any": "required", "function": "named", "tool": "named", "validated": "auto"}
    return known.get(word, word)


def _content(content: object, read: Callable[[Native], Iterable[Part]]) -> str | tuple[Part, ...]:
    if isinstance(content, str):
        return content
    return tuple(part for block in _records(content) for part in read(block))


def _as_parts(content: str | tuple[Part, ...]) -> Sequence[Part]:
    return (Part("text", content),) if isinstance(content, str) else content


def _said(block: Native) -> Part:
    """Return a block of text; any other one counts as its JSON."""
    text = block.get("text", block.get("refusal"))
    return Part("text", text) if isinstance(text, str) else Part("opaque", _json(block))
