"""Find the format of a request by its URL path, by the name of its API, or by the fields of its body."""

from __future__ import annotations

from typing import Final

from ctxguard.errors import ConfigError
from ctxguard.formats.anthropic import AnthropicAdapter
from ctxguard.formats.chat import OpenAIAdapter
from ctxguard.formats.cohere import CohereAdapter
from ctxguard.formats.converse import BedrockAdapter
from ctxguard.formats.format import Api, Body, Format, records_of
from ctxguard.formats.gemini import GoogleAdapter
from ctxguard.formats.ollama import OllamaAdapter
from ctxguard.formats.responses import ResponsesAdapter
from ctxguard.tokens.families import family_of

FORMATS: Final[tuple[Format, ...]] = (
    OpenAIAdapter(),
    ResponsesAdapter(),
    AnthropicAdapter(),
    GoogleAdapter(),
    BedrockAdapter(),
    CohereAdapter(),
    OllamaAdapter(),
)
_OF_OLLAMA: Final = frozenset({"options", "keep_alive"})
"""Fields of a request that only Ollama has."""
APIS: Final[tuple[Api, ...]] = tuple(one.api for one in FORMATS)


def format_of(method: str, path: str) -> Format | None:
    """Return the format of a request with this method and URL path; None if the path belongs to no known format."""
    if method.upper() != "POST":
        return None
    path = path.rstrip("/")
    return next((one for one in FORMATS if path.endswith(one.paths)), None)


def find_format(api: str) -> Format:
    """Return the format of an API.

    Raises:
        ConfigError: If the API is unknown.
    """
    if api in APIS:
        return FORMATS[APIS.index(api)]
    raise ConfigError(f"unknown API {api!r}; known are {', '.join(APIS)}", setting="api")


def detect_api(body: Body) -> Api:
    """Return the name of the API for which a body is a request, based on its fields.

    Raises:
        ConfigError: If the body contains no history of a known API.
    """
    if isinstance(body.get("contents"), (list, dict)):
        return "gemini"
    if "input" in body:
        return "responses"
    if not isinstance(body.get("messages"), list):
        raise ConfigError("the object has no 'messages', 'input', or 'contents', so it is not a request", setting="api")
    if BedrockAdapter().detects(body):
        return "converse"
    if _OF_OLLAMA & body.keys() or OllamaAdapter().detects(body["messages"]):
        return "ollama"
    model, tools = str(body.get("model")), records_of(body.get("tools"))
    if model.startswith("claude") or any("input_schema" in tool for tool in tools) or AnthropicAdapter().detects(body):
        return "anthropic"
    is_cohere = CohereAdapter().detects(body["messages"]) or family_of(model).name == "command"
    return "cohere" if is_cohere else "chat"
