"""Let the provider count: call `count_tokens` of Anthropic or Google for new texts. Used only if it is chosen.

This module does no I/O by itself. The stabilizer calls `ProviderCounter.unknown` to find texts without a count, and its
driver calls `fetch` before the first stage runs. From then on counts are looked up, so that stages stay pure.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ctxguard.errors import ConfigError
from ctxguard.tokens.caches import TextCache
from ctxguard.tokens.counters import TokenCounter, find_counter
from ctxguard.tokens.families import GENERIC, Margin
from ctxguard.tokens.schemas import functions_of

if TYPE_CHECKING:
    from ctxguard.artifacts import Artifact
    from ctxguard.tokens.families import Costs, Family

_AT_ONCE: Final = 8  # maximum number of parallel requests
_PROBE: Final = "."
"""The shortest message. Its count is subtracted from other counts, to leave out the framing."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Texts that the provider has not counted yet, and the tools as they are sent, if these have not been counted."""

    texts: tuple[str, ...]
    tools: tuple[Mapping[str, object], ...] = ()

    def __len__(self) -> int:
        return len(self.texts) + bool(self.tools)


@dataclass(frozen=True, slots=True)
class _CountApi:
    """The request and response format of a provider's count API.

    Attributes:
        question: Function that creates the fields of a request from the model's name, a text, and tools.
        tokens: Name of the response field that contains the count.
        counts_tools: Whether the API can count tools.
    """

    question: Callable[[str, str, Sequence[Mapping[str, object]]], dict[str, object]]
    tokens: str
    counts_tools: bool

    def read(self, answer: object) -> int:
        tokens = getattr(answer, self.tokens, None)
        if not isinstance(tokens, int):
            raise ConfigError(f"count_tokens returned {type(answer).__name__} without {self.tokens}", setting="counter")
        return tokens


class ProviderCounter:
    """Counts text and tools with the provider's count API, and estimates them until its counts are known.

    Texts shorter than `least` characters are always estimated, because a request for each would cost more than it
    gains. Framing is counted with the figures of the model's family. Counters for different models share no counts.

    Args:
        ask: Function that takes the fields of a `count_tokens` request and returns the response or an awaitable.
        api: Format of the provider's count API.
        is_async: Whether `ask` returns an awaitable.
        model: Name of the model; None means the model of the stabilizer (`Stabilizer(model=…)`).
        timeout: Maximum number of seconds for all requests of one call together.
        least: Minimum number of characters in a text that is sent for counting.
    """

    exact = False
    learns = True
    """Marks a counter whose counts change as responses arrive, so that they must not be cached elsewhere."""
    margin = Margin(0.02, 20)

    def __init__(
        self,
        ask: Callable[..., object],
        *,
        api: _CountApi,
        is_async: bool,
        model: str | None = None,
        timeout: float = 10.0,
        least: int = 200,
    ) -> None:
        self._ask = ask
        self._api = api
        self._is_async = is_async
        self.model = model
        self.timeout = timeout
        self.least = least
        self._fallback: TokenCounter = find_counter(model=model)
        self._texts: TextCache[int] = TextCache()
        self._estimates: TextCache[int] = TextCache()
        self._probe: int | None = None
        self.name = f"count_tokens of {model or 'an unnamed model'}"
        estimated = "framing" if api.counts_tools else "framing, tools"
        self.accuracy = (
            f"counted by the provider, whose count is an estimate by its own word; texts below {least} characters, "
            f"{estimated} and whatever it did not answer in time are estimated"
        )

    def for_model(self, model: str) -> ProviderCounter:
        """Return a counter for a model: this one if it is for that model, otherwise a copy.

        Raises:
            ConfigError: If this counter is for another model.
        """
        if model == self.model:
            return self
        if self.model is not None:
            raise ConfigError(f"the counter is for {self.model}, not for {model}", setting="model")
        return ProviderCounter(
            self._ask, api=self._api, is_async=self._is_async, model=model, timeout=self.timeout, least=self.least
        )

    @property
    def family(self) -> Family | None:
        """The family of the model; None if no model is named."""
        return getattr(self._fallback, "family", None)

    @property
    def costs(self) -> Costs:
        """The family's token costs besides the text."""
        return getattr(self._fallback, "costs", GENERIC)

    def count(self, text: str) -> int:
        """Return the provider's count of the tokens in a text if it is known, or else an estimate."""
        found = self._texts.get(text) if len(text) >= self.least else None
        return self._estimate(text) if found is None else found

    def _estimate(self, text: str) -> int:
        count = self._estimates.get(text)
        if count is None:
            count = self._fallback.count(text)
            self._estimates.put(text, count)
        return count

    def tool_tokens(self, tools: Iterable[Mapping[str, object]]) -> int | None:
        """Return the provider's count of the tokens in tools, including hidden prompts; None if it is unknown."""
        return self._texts.get(_tools_key(tools))

    def unknown(self, artifacts: Iterable[Artifact], tools: Sequence[Mapping[str, object]] | None) -> Unknown:
        """Return the texts and tools of a history that the provider has not counted yet."""
        texts = {text: None for artifact in artifacts for _, text in artifact.texts() if len(text) >= self.least}
        unknown = tuple(text for text in texts if not text.isspace() and self._texts.get(text) is None)
        is_new = self._api.counts_tools and bool(tools) and self.tool_tokens(tools or ()) is None
        return Unknown(unknown, tuple(tools or ()) if is_new else ())

    @property
    def fetch(self) -> Callable[[Unknown], object]:
        """The function that requests counts, which is a coroutine function if the client is async."""
        return self._afetch if self._is_async else self._fetch

    def _fetch(self, unknown: Unknown) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._probe = self._api.read(self._ask(**self._question(_PROBE)))
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="ctxguard-count") as pool:
            jobs = list(self._questions(unknown))
            for (key, _), answer in zip(jobs, pool.map(lambda job: self._ask(**job[1]), jobs), strict=True):
                self._keep(key, answer)

    async def _afetch(self, unknown: Unknown) -> None:
        import asyncio

        self._probe = self._api.read(await self._await_response(self._question(_PROBE)))
        jobs = list(self._questions(unknown))
        for start in range(0, len(jobs), _AT_ONCE):
            batch = jobs[start : start + _AT_ONCE]
            answers = await asyncio.gather(*(self._await_response(fields) for _, fields in batch))
            for (key, _), answer in zip(batch, answers, strict=True):
                self._keep(key, answer)

    async def _await_response(self, fields: Mapping[str, object]) -> object:
        answer = self._ask(**fields)
        return await answer if isinstance(answer, Awaitable) else answer

    def give_up(self, unknown: Unknown) -> None:
        """Store estimates for missing responses, because a late response must not change a count that was used."""
        for text in unknown.texts:
            if self._texts.get(text) is None:
                self._texts.put(text, self._estimate(text))

    def _questions(self, unknown: Unknown) -> Iterable[tuple[str, dict[str, object]]]:
        for text in unknown.texts:
            yield text, self._question(text)
        if unknown.tools:
            yield _tools_key(unknown.tools), self._question(_PROBE, unknown.tools)

    def _question(self, text: str, tools: Sequence[Mapping[str, object]] = ()) -> dict[str, object]:
        if self.model is None:
            raise ConfigError("count_tokens needs the model's name; give model=…", setting="model")
        return self._api.question(self.model, text, tools)

    def _keep(self, key: str, answer: object) -> None:
        """Store the count in a response, without the framing of the message that was sent. A known count is kept."""
        if self._texts.get(key) is None:
            own = 0 if key.startswith(_TOOLS) else 1
            self._texts.put(key, max(1, self._api.read(answer) - (self._probe or 0) + own))


_TOOLS: Final = "\0tools\0"


def _tools_key(tools: Iterable[Mapping[str, object]]) -> str:
    return _TOOLS + json.dumps(list(tools), sort_keys=True, default=str)


def _as_anthropic(tool: Mapping[str, object]) -> Mapping[str, object]:
    """Convert a tool in the format of another API to Anthropic's format."""
    functions = [] if "input_schema" in tool else list(functions_of(tool))
    if len(functions) != 1:
        return tool
    function = functions[0]
    schema = function.parameters or {"type": "object", "properties": {}}
    return {"name": function.name, "description": function.description, "input_schema": schema}


def _anthropic_question(model: str, text: str, tools: Sequence[Mapping[str, object]]) -> dict[str, object]:
    given = {"tools": list(map(_as_anthropic, tools))} if tools else {}
    return {"model": model, "messages": [{"role": "user", "content": text}], **given}


def _google_question(model: str, text: str, _tools: Sequence[Mapping[str, object]]) -> dict[str, object]:
    return {"model": model, "contents": text}


_ANTHROPIC: Final = _CountApi(_anthropic_question, "input_tokens", counts_tools=True)
_GOOGLE: Final = _CountApi(_google_question, "total_tokens", counts_tools=False)


def anthropic_counter(
    client: object, *, model: str | None = None, timeout: float = 10.0, least: int = 200
) -> ProviderCounter:
    """Return a counter that calls Anthropic's `count_tokens` for every new text.

    The API is free, but each new text of a conversation takes a network request, so this counter is used only if it is
    passed as `Stabilizer(counter=…)`. If requests take too long, estimates are used, and the report says so.

    Args:
        client: An `anthropic.Anthropic`, or an `anthropic.AsyncAnthropic` for `astabilize`.
        model: Name of the model; None means the model of the stabilizer.
        timeout: Maximum number of seconds for all requests of one call together.
        least: Minimum number of characters in a text that is sent for counting; shorter texts are estimated.

    Raises:
        ConfigError: If the client has no method `messages.count_tokens`.
    """
    ask = getattr(getattr(client, "messages", None), "count_tokens", None)
    return _counter(ask, _ANTHROPIC, client, "an anthropic.Anthropic or AsyncAnthropic", model, timeout, least)


def google_counter(
    client: object, *, model: str | None = None, timeout: float = 10.0, least: int = 200
) -> ProviderCounter:
    """Return a counter that calls Google's `count_tokens` for every new text.

    It works like `anthropic_counter`, except that tools are estimated, because the Gemini API does not count them.

    Args:
        client: A `google.genai.Client`, or its attribute `aio` for `astabilize`.
        model: Name of the model; None means the model of the stabilizer.
        timeout: Maximum number of seconds for all requests of one call together.
        least: Minimum number of characters in a text that is sent for counting; shorter texts are estimated.

    Raises:
        ConfigError: If the client has no method `models.count_tokens`.
    """
    ask = getattr(getattr(client, "models", None), "count_tokens", None)
    return _counter(ask, _GOOGLE, client, "a google.genai.Client or its aio", model, timeout, least)


def _counter(
    ask: object, api: _CountApi, client: object, expected: str, model: str | None, timeout: float, least: int
) -> ProviderCounter:
    if not callable(ask):
        raise ConfigError(f"the client is {expected}, not {type(client).__name__}", setting="counter")
    is_async = inspect.iscoroutinefunction(ask) or type(client).__name__.startswith("Async")
    return ProviderCounter(ask, api=api, is_async=is_async, model=model, timeout=timeout, least=least)
