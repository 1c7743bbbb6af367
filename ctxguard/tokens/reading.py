"""Read the body of a request to any of the five APIs as what costs tokens: artifacts, tools, and what is beside them.

This is a reader for counting alone: it needs no framework and writes nothing back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from ctxguard.artifacts import Artifact, Kind, Media, Part, ToolCall
from ctxguard.errors import ConfigError
from ctxguard.tokens.body import (
    Body,
    Native,
    as_parts,
    blocks_of,
    call_of,
    choice_of,
    content_of,
    either_of,
    kind_of,
    mapping_of,
    members_of,
    records_of,
    said_parts,
    sealed_part,
    text_of,
    tools_of,
)
from ctxguard.tokens.converse import read_converse
from ctxguard.tokens.media import audio_media, document_part, image_media, url_part
from ctxguard.tokens.schemas import compact, functions_of

Api: TypeAlias = Literal["chat", "responses", "anthropic", "gemini", "converse"]
APIS: Final[tuple[Api, ...]] = ("chat", "responses", "anthropic", "gemini", "converse")


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
    """Return the one of the five APIs that a request body is meant for, by its fields."""
    if isinstance(body.get("contents"), (list, Mapping)):
        return "gemini"
    if "input" in body:
        return "responses"
    if not isinstance(body.get("messages"), list):
        raise ConfigError("the object has no 'messages', 'input' or 'contents', so it is no request", setting="api")
    blocks = [block for message in records_of(body["messages"]) for block in records_of(message.get("content"))]
    if any(key in body for key in _CONVERSE) or any("toolUse" in block or "toolResult" in block for block in blocks):
        return "converse"
    is_anthropic = (
        "system" in body
        or any("input_schema" in tool for tool in tools_of(body))
        or any(block.get("type") in ("tool_use", "tool_result", "thinking", "document") for block in blocks)
        or text_of(body.get("model")).startswith("claude")
    )
    return "anthropic" if is_anthropic else "chat"


_CONVERSE: Final = ("modelId", "toolConfig", "inferenceConfig")
"""Fields that only requests of Bedrock Converse have."""


def _chat(body: Native) -> Body:
    messages = members_of(body, "messages")
    last = max((number for number, message in enumerate(messages) if message.get("role") == "user"), default=0)
    artifacts = [_chat_message(message, is_over=number < last) for number, message in enumerate(messages)]
    form = mapping_of(body.get("response_format"))
    schema = mapping_of(form.get("json_schema"))
    return Body(
        tuple(artifacts),
        _chat_tools(body),
        choice_of(body.get("tool_choice")),
        _described(schema),
        documents=_text_files(messages),
    )


def _described(form: Native) -> Native | None:
    """Return the schema of the reply with the description that is sent beside it."""
    schema = mapping_of(form.get("schema"))
    about = text_of(form.get("description"))
    return ({**schema, "description": about} if about else schema) or None


def _text_files(messages: Sequence[Native]) -> int:
    """Return how many files are sent as text."""
    contents = [content for message in messages if not isinstance(content := message.get("content"), str)]
    blocks = (block for content in contents for block in records_of(content))
    files = (block.get("file_data", mapping_of(block.get("file")).get("file_data")) for block in blocks)
    return sum(text_of(data).startswith(("data:text/", "data:application/json")) for data in files)


def _chat_tools(body: Native) -> tuple[Native, ...]:
    """Return the tools; OpenRouter hands those of OpenAI's models (`openai/…`) to the Responses API."""
    tools = (*tools_of(body), *records_of(body.get("functions")))
    if not text_of(body.get("model")).startswith("openai/"):
        return tools
    return tuple({"type": "function", **mapping_of(tool["function"])} if "function" in tool else tool for tool in tools)


def _chat_message(message: Native, *, is_over: bool) -> Artifact:
    """Return a message; reasoning from before the last user message is dropped by the templates of open models."""
    role = text_of(message.get("role"))
    calls = [mapping_of(call.get("function")) or _custom(call) for call in records_of(message.get("tool_calls"))]
    if old := mapping_of(message.get("function_call")):
        calls.append(old)
    content = content_of(message.get("content"), _chat_part)
    if message.get("refusal"):
        content = (*as_parts(content), Part("refusal", text_of(message["refusal"])))
    if message.get("audio"):
        content = (*as_parts(content), Part("audio", media=Media("audio")))
    thought = text_of(message.get("reasoning_content")) or text_of(message.get("reasoning"))
    if thought and not is_over:
        content = (*as_parts(content), Part("reasoning", thought))
    name = text_of(message.get("name")) or None
    return Artifact(kind_of(role), content, calls=tuple(map(call_of, calls)), name=name)


def _custom(call: Native) -> Native:
    """Return a call of a custom tool, which has a text in place of arguments, as the call of a function."""
    custom = mapping_of(call.get("custom"))
    return {"name": custom.get("name"), "arguments": text_of(custom.get("input"))}


def _chat_part(part: Native) -> Iterator[Part]:
    kind = text_of(part.get("type"))
    if kind == "image_url":
        image = part.get("image_url")
        url, detail = (image, "auto") if isinstance(image, str) else (mapping_of(image).get("url"), _detail(image))
        yield Part("image", media=image_media(text_of(url), detail=detail))
    elif kind == "input_audio":
        yield Part("audio", media=audio_media(text_of(mapping_of(part.get("input_audio")).get("data"))))
    elif kind in ("file", "document_url"):
        yield document_part(text_of(mapping_of(part.get("file")).get("file_data")))
    elif kind == "thinking":
        yield from (Part("reasoning", text_of(inner.get("text"))) for inner in records_of(part.get("thinking")))
    else:
        yield from said_parts(part)


def _responses(body: Native) -> Body:
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else records_of(given)
    compacted = max((n for n, item in enumerate(items) if item.get("type") == "compaction"), default=0)
    items = items[compacted:]
    keeps_all = mapping_of(body.get("reasoning")).get("context") == "all_turns"
    last = 0 if keeps_all else max((n for n, item in enumerate(items) if item.get("role") == "user"), default=0)
    artifacts = [a for number, item in enumerate(items) for a in _responses_item(item, is_over=number < last)]
    instructions = body.get("instructions")
    if isinstance(instructions, str) and instructions:
        artifacts.insert(0, Artifact(Kind.SYSTEM, instructions))
    form = mapping_of(mapping_of(body.get("text")).get("format"))
    brought = tuple(tuple(_brought(item)) for item in items if item.get("type") in _BRINGING)
    waits = _is_any_deferred(tools_of(body), {text_of(tool.get("name")) for tools in brought for tool in tools})
    return Body(
        tuple(artifacts),
        tuple(tool for tool in tools_of(body) if waits or not brought or not _is_hosted_search(tool)),
        choice_of(body.get("tool_choice")),
        _described(form),
        brought=brought,
        documents=_text_files(items),
        empty_system=instructions == "",
        namespaces=tuple(text_of(item.get("namespace")) for item in items if item.get("namespace")),
        searches=sum(item.get("type") == "tool_search_output" for item in items),
    )


_BRINGING: Final = ("additional_tools", "tool_search_output")


def _brought(item: Native) -> Iterator[Native]:
    """Yield the tools that an item brings in; the model sees them from there on."""
    for tool in records_of(item.get("tools")):
        yield {**tool, "defer_loading": False}


def _is_any_deferred(tools: Iterable[Native], loaded: set[str]) -> bool:
    """Return whether a search can find a function that is not loaded yet; else the search itself is not sent."""
    functions = (function for tool in tools for function in functions_of(tool))
    return any(function.deferred and function.name not in loaded for function in functions)


def _is_hosted_search(tool: Native) -> bool:
    return tool.get("type") == "tool_search" and tool.get("execution") != "client"


def _responses_item(item: Native, *, is_over: bool) -> Iterator[Artifact]:
    """Yield what an item sends; reasoning from before the last user message is dropped by the API."""
    kind = text_of(item.get("type")) or "message"
    if kind == "message":
        yield Artifact(kind_of(text_of(item.get("role"))), content_of(item.get("content"), _responses_part))
    elif kind == "function_call":
        yield Artifact(Kind.ASSISTANT, calls=(call_of(item),))
    elif kind == "function_call_output":
        yield Artifact(Kind.TOOL, content_of(item.get("output"), _responses_part))
    elif kind == "reasoning":
        if not is_over:
            yield Artifact(Kind.ASSISTANT, tuple(_thoughts(item)))
    elif kind == "tool_search_call":
        yield Artifact(Kind.ASSISTANT, calls=(ToolCall("tool_search", compact(item.get("arguments") or {})),))
    elif kind == "tool_search_output":
        yield Artifact(Kind.TOOL)
    elif kind == "compaction":
        yield Artifact(Kind.ASSISTANT, (sealed_part(text_of(item.get("encrypted_content"))),))
    elif kind not in _BRINGING:
        yield Artifact(Kind.ASSISTANT, tuple(said_parts(item)))


def _thoughts(item: Native) -> Iterator[Part]:
    """Yield what a reasoning item costs: the sealed reasoning, which its summary only retells."""
    sealed = text_of(item.get("encrypted_content"))
    if sealed:
        yield sealed_part(sealed)
    else:
        yield from (Part("reasoning", text_of(part.get("text"))) for part in records_of(item.get("content")))


def _responses_part(part: Native) -> Iterator[Part]:
    kind = text_of(part.get("type"))
    if kind == "input_image":
        yield Part("image", media=image_media(text_of(part.get("image_url")), detail=_detail(part)))
    elif kind == "input_file":
        yield document_part(text_of(part.get("file_data")))
    elif kind == "input_audio":
        yield Part("audio", media=audio_media(text_of(mapping_of(part.get("input_audio")).get("data"))))
    else:
        yield from said_parts(part)


def _anthropic(body: Native) -> Body:
    system = content_of(body.get("system"), _anthropic_part)
    artifacts = [Artifact(Kind.SYSTEM, system)] if system else []
    messages = members_of(body, "messages")
    last = max((number for number, message in enumerate(messages) if _asks(message)), default=0)
    for number, message in enumerate(messages):
        artifacts += _anthropic_message(message, is_over=number < last)
    form = mapping_of(mapping_of(body.get("output_config")).get("format")) or mapping_of(body.get("output_format"))
    thinking = mapping_of(body.get("thinking")).get("type")
    return Body(
        tuple(artifacts),
        tools_of(body),
        choice_of(body.get("tool_choice")),
        mapping_of(form.get("schema")) or None,
        found=frozenset(_referenced(body.get("messages"))),
        thinks=thinking == "enabled",
        documents=sum(1 for message in messages for _ in _text_documents(message)),
    )


def _text_documents(message: Native) -> Iterator[Native]:
    for block in records_of(message.get("content")):
        for inner in (block, *records_of(block.get("content"))):
            if inner.get("type") == "document" and mapping_of(inner.get("source")).get("type") == "text":
                yield inner


def _referenced(value: object) -> Iterator[str]:
    """Yield the names of the deferred tools that a search has found."""
    if isinstance(value, Mapping):
        if value.get("type") == "tool_reference":
            yield text_of(value.get("tool_name")) or text_of(value.get("name"))
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
    return isinstance(content, str) or any(block.get("type") != "tool_result" for block in records_of(content))


def _anthropic_message(message: Native, *, is_over: bool) -> Iterator[Artifact]:
    blocks = blocks_of(message.get("content"))
    results = [block for block in blocks if block.get("type") == "tool_result"]
    calls = [block for block in blocks if block.get("type") == "tool_use"]
    for result in results:
        yield Artifact(Kind.TOOL, content_of(result.get("content"), _anthropic_part))
    rest = [block for block in blocks if block.get("type") not in ("tool_result", "tool_use")]
    if is_over:
        rest = [block for block in rest if block.get("type") not in ("thinking", "redacted_thinking")]
    if rest or calls or not blocks:
        made = tuple(ToolCall(text_of(call.get("name")), compact(call.get("input") or {})) for call in calls)
        yield Artifact(kind_of(text_of(message.get("role"))), content_of(rest, _anthropic_part), calls=made)


def _anthropic_part(block: Native) -> Iterator[Part]:
    kind = text_of(block.get("type"))
    source = mapping_of(block.get("source"))
    if kind == "image":
        yield Part("image", media=image_media(_source_url(source)))
    elif kind == "document":
        yield from _anthropic_document(source)
        if said := "\n".join(filter(None, (text_of(block.get("title")), text_of(block.get("context"))))):
            yield Part("text", said)
    elif kind == "thinking":
        yield Part("reasoning", text_of(block.get("thinking")))
    elif kind == "redacted_thinking":
        yield sealed_part(text_of(block.get("data")))
    else:
        yield from said_parts(block)


def _anthropic_document(source: Native) -> Iterator[Part]:
    """Yield a document: its text, the blocks that it is made of, or its pages."""
    if source.get("type") == "text":
        yield Part("text", text_of(source.get("data")))
    elif source.get("type") == "content":
        yield from as_parts(content_of(source.get("content"), _anthropic_part))
    else:
        yield document_part(_source_url(source))


def _source_url(source: Native) -> str:
    if source.get("type") != "base64":
        return ""
    return f"data:{text_of(source.get('media_type'))};base64,{text_of(source.get('data'))}"


def _gemini(body: Native) -> Body:
    system = mapping_of(body.get("systemInstruction") or body.get("system_instruction"))
    artifacts = [Artifact(Kind.SYSTEM, content_of(system.get("parts"), _gemini_part))] if system else []
    contents = members_of(body, "contents")
    last = max((number for number, content in enumerate(contents) if _gemini_asks(content)), default=0)
    for number, content in enumerate(contents):
        artifacts += _gemini_content(content, is_over=number < last)
    tools = body.get("tools")
    given = [tools] if isinstance(tools, Mapping) else records_of(tools)
    settings = mapping_of(body.get("generationConfig") or body.get("generation_config"))
    schema = mapping_of(settings.get("responseJsonSchema") or settings.get("responseSchema"))
    calling = mapping_of(
        either_of(
            mapping_of(either_of(body, "toolConfig", "tool_config")),
            "functionCallingConfig",
            "function_calling_config",
        )
    )
    choice = "required" if calling.get("mode") == "ANY" else choice_of(text_of(calling.get("mode")).lower() or "auto")
    return Body(tuple(artifacts), tuple(given), choice, schema or None)


def _gemini_asks(content: Native) -> bool:
    """Return whether a user said or sent something here, so that the signed thoughts before it are not billed."""
    parts = records_of(content.get("parts"))
    return content.get("role", "user") == "user" and not all(either_of(part, *_CALLS[1]) for part in parts)


def _gemini_content(content: Native, *, is_over: bool) -> Iterator[Artifact]:
    parts = records_of(content.get("parts"))
    if is_over:
        parts = [{key: part[key] for key in part if key not in _SIGNATURES} for part in parts]
    calls = [mapping_of(either_of(part, "functionCall", "function_call")) for part in parts]
    made = tuple(ToolCall(text_of(call.get("name")), compact(call.get("args") or {})) for call in calls if call)
    for part in parts:
        if answer := mapping_of(either_of(part, "functionResponse", "function_response")):
            media = tuple(p for inner in records_of(answer.get("parts")) for p in _gemini_part(inner))
            text = Part("text", compact(answer.get("response") or {}))
            yield Artifact(Kind.TOOL, (text, *media), name=text_of(answer.get("name")) or None)
    said = tuple(piece for part in parts for piece in _gemini_part(part))
    if said or made:
        yield Artifact(kind_of(text_of(content.get("role")) or "user"), said, calls=made)


def _gemini_part(part: Native) -> Iterator[Part]:
    signature = text_of(either_of(part, *_SIGNATURES))
    if signature.startswith(_BILLED):
        yield sealed_part(signature)
    blob = mapping_of(either_of(part, "inlineData", "inline_data"))
    if blob:
        yield _gemini_blob(text_of(either_of(blob, "mimeType", "mime_type")), text_of(blob.get("data")))
    elif either_of(part, "fileData", "file_data"):
        yield _gemini_blob(
            text_of(either_of(mapping_of(either_of(part, "fileData", "file_data")), "mimeType", "mime_type")), ""
        )
    elif part.get("text") is not None:
        yield Part("reasoning" if part.get("thought") else "text", text_of(part.get("text")))
    elif not any(either_of(part, *names) for names in _CALLS):
        rest = {key: value for key, value in part.items() if key not in _SIGNATURES}
        if rest:
            yield from said_parts(rest)


_SIGNATURES: Final = ("thoughtSignature", "thought_signature")
_BILLED: Final = "E"
"""How signatures of the Gemini API begin (field 2 of its message); those of Vertex AI are not billed (fitted)."""
_CALLS: Final = (("functionCall", "function_call"), ("functionResponse", "function_response"))


def _gemini_blob(mime: str, data: str) -> Part:
    if data or mime.startswith(("image/", "audio/", "video/")):
        return url_part(f"data:{mime};base64,{data}")
    return document_part("")


_READERS: Final[Mapping[str, Callable[[Native], Body]]] = {
    "chat": _chat,
    "responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "converse": read_converse,
}


def _detail(value: object) -> str:
    return text_of(mapping_of(value).get("detail")) or "auto"
