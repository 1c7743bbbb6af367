"""The requests that the guard reads: whose they are, by their path, and where their history stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ctxguard.errors import HistoryError

Api = Literal["chat", "responses", "anthropic", "gemini", "converse"]


@dataclass(frozen=True, slots=True)
class Format:
    """Describe one kind of request.

    Attributes:
        api: Whose requests these are.
        adapter: Name of the adapter that reads the history.
        history: Key of the history in the body.
        endings: How the paths of such requests end.
        json_settings: Keys that ask for an answer in JSON, where they name a schema or a format.
        system: Keys of the system prompt, where the adapter takes the whole body and not the history alone.
    """

    api: Api
    adapter: str
    history: str
    endings: tuple[str, ...]
    json_settings: tuple[str, ...]
    system: tuple[str, ...] = ()

    @property
    def read_by_adapter(self) -> frozenset[str]:
        """Keys of the body that the adapter reads."""
        return frozenset({self.history, *self.system})

    def native(self, body: Mapping[str, object]) -> object:
        """Return what the adapter reads."""
        history = body.get(self.history)
        if self.api == "responses" and (history is None or isinstance(history, str)):
            return [] if history is None else [{"role": "user", "content": history}]
        if not isinstance(history, list):
            raise HistoryError(f"the request has no list {self.history!r}, so it cannot be read as {self.api}")
        return body if self.system else history

    def written(self, body: Mapping[str, object], native: object) -> dict[str, object]:
        """Return the body with another history, in the form that it came in."""
        if isinstance(native, Mapping):
            return dict(native)
        items = list(native) if isinstance(native, Sequence) else []
        was = body.get(self.history)
        if was is None and not items:
            return dict(body)
        is_text = isinstance(was, str) and len(items) == 1 and isinstance(items[0].get("content"), str)
        return {**body, self.history: items[0]["content"] if is_text else items}

    def wants_json(self, body: Mapping[str, object]) -> bool:
        """Tell whether a request asks for an answer in JSON."""
        return any("json" in str(body.get(key, "")) for key in self.json_settings)


FORMATS: Final = (
    Format("chat", "openai", "messages", ("/chat/completions",), ("response_format",)),
    Format("responses", "openai-responses", "input", ("/responses", "/responses/input_tokens"), ("text",)),
    Format(
        "anthropic",
        "anthropic",
        "messages",
        ("/messages", "/messages/count_tokens"),
        ("output_config", "output_format"),
        system=("system",),
    ),
    Format(
        "gemini",
        "google",
        "contents",
        (":generateContent", ":streamGenerateContent", ":countTokens"),
        ("generationConfig", "generation_config"),
        system=("systemInstruction", "system_instruction"),
    ),
    Format("converse", "bedrock", "messages", ("/converse", "/converse-stream"), ("outputConfig",), system=("system",)),
)


def format_of(method: str, path: str) -> Format | None:
    """Return the format of a request, or None where the guard cannot read it."""
    if method.upper() != "POST":
        return None
    path = path.rstrip("/")
    return next((one for one in FORMATS if path.endswith(one.endings)), None)
