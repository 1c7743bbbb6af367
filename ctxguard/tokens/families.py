"""Which model belongs to which family, and what that family charges: the table of facts in `data/models.toml`.

A family charges for framing, tools, schemas, hidden prompts, and media beside the text itself. Both ways of counting
use its figures from here: `ArtifactCounter`, which the adapters use, and `count_request`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final, Literal, TypeAlias

from ctxguard.errors import ConfigError
from ctxguard.tokens.schemas import Function, as_json, as_typescript, as_words, compact

TEKKEN: Final = "tekken"
"""The vocabulary of Mistral's models since 2024, which is part of the package mistral-common."""

CountText: TypeAlias = Callable[[str], int]
Rendering: TypeAlias = Literal["typescript", "json", "sparse", "words"]
"""How the model sees a function: as TypeScript, as JSON, as JSON without empty parameters, or as its words alone."""

CACHES: Final[Mapping[str, tuple[int, int, float]]] = {
    "openai": (1_024, 128, 600.0),
    "anthropic": (1_024, 1, 300.0),
    "google": (1_024, 1, 300.0),
}
"""Tokens that a prefix needs to be cached, the step by which it grows, and the seconds for which it is cached.

As the providers document it, November 2026: OpenAI keeps a prefix for 5 to 10 minutes, Anthropic for 5; Google names no
time.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCosts:
    """The token cost of tools.

    Attributes:
        rendering: how the model sees a function.
        share: factor for the tokens of the rendered functions.
        once: the hidden prompt that is added if there is any function.
        once_flat: the same for functions in the form of the Responses API; None means `once`.
        once_forced: the same if `tool_choice` requires a call; None means `once`.
        late: the same for functions that are added among the messages; None means `once`.
        search: added for each search for functions.
        namespace: how often the namespace of a called function is written if it is not the usual one.
        beside_system: added if there is also a system prompt.
        beside_system_flat: the same for functions in the form of the Responses API.
        each: added for every function.
        seen_if_none: whether functions are sent to the model when `tool_choice` is `none`.
        server: hidden prompts for tools that the provider runs, by the prefix of their type.
    """

    rendering: Rendering = "json"
    share: float = 1.0
    once: int = 0
    once_flat: int | None = None
    once_forced: int | None = None
    late: int | None = None
    search: int = 0
    namespace: int = 0
    beside_system: int = 0
    beside_system_flat: int = 0
    each: int = 0
    seen_if_none: bool = True
    server: Mapping[str, int] = field(default_factory=dict)

    def functions(self, functions: Iterable[Function], count: CountText) -> int:
        """Return the tokens of the functions' schemas; deferred ones are not sent to the model."""
        seen = [function for function in functions if not function.deferred]
        if not seen:
            return 0
        if self.rendering == "typescript":
            tokens = count(as_typescript(seen))
        elif self.rendering == "words":
            tokens = sum(count(as_words(function)) for function in seen)
        else:
            is_sparse = self.rendering == "sparse"
            tokens = sum(count(as_json(function, is_sparse=is_sparse)) for function in seen)
        return max(0, round(tokens * self.share) + self.each * len(seen))

    def hidden(self, functions: Iterable[Function], choice: str, *, has_system: bool = False) -> int:
        """Return the tokens of the prompt that the provider adds if there is any function."""
        seen = [function for function in functions if not function.deferred]
        if not seen:
            return 0
        if choice in ("required", "named") and self.once_forced is not None:
            return self.once_forced
        if self.once_flat is not None and all(function.is_flat for function in seen):
            return self.once_flat + self.beside_system_flat * has_system
        return self.once + self.beside_system * has_system

    def calls(self, namespaces: Iterable[str], count: CountText) -> int:
        """Return the tokens of the namespaces of called functions, beyond the single token of the usual one."""
        return sum(self.namespace * (count(namespace) - 1) for namespace in namespaces)

    def server_tool(self, kind: str) -> int | None:
        """Return the hidden prompt for a tool that the provider runs; None if unknown."""
        return next((tokens for prefix, tokens in self.server.items() if kind.startswith(prefix)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaCosts:
    """The cost of the reply's schema: tokens around it, and a factor for its JSON, 0 if it is not billed."""

    once: int = 0
    share: float = 1.0

    def schema(self, schema: Mapping[str, object], count: CountText) -> int:
        """Return the tokens of an output schema."""
        return self.once + round(self.share * count(compact(schema)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """The cost of a document: tokens of a page as an image, and characters per token of its text, 0 if unbilled."""

    each: int
    characters: float = 5.0


ImageRule: TypeAlias = Literal["tiles", "patches", "area", "gemini", "fixed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The token costs of a model family besides the text.

    Attributes:
        reply: added to every request: the opening of the reply, and a prompt of the provider's own.
        message: framing of a user or assistant message, including its role.
        channel: added for an assistant message with text or thinking.
        system: framing of a system message.
        result: framing of a tool's result.
        quotes_results: whether the text of a result is put into a JSON object, if it is not one itself.
        call: framing of a tool call.
        call_names: how often the tool's name is written for a call and its result, in addition to the call itself.
        parallel: added for each call if a message has several.
        name: added for a participant's name.
        thinking: the hidden prompt if the request asks for thinking.
        document: framing of a document that is sent as text.
        empty_system: the prompt that the provider adds if the system prompt is an empty text.
        sealed: tokens for each character of sealed reasoning beyond `sealed_from`.
        sealed_from: characters of sealed reasoning that represent no reasoning.
        tools: see `ToolCosts`.
        schema: see `SchemaCosts`.
        image: the rule for images, see `ctxguard.tokens.media`.
        image_scale: the numbers of that rule: base and tile, factor on patches, pixels a token, …
        pages: see `Pages`.
        audio: tokens a second of audio.
        video: tokens a second of video.
    """

    reply: int = 3
    message: int = 4
    channel: int = 0
    system: int = 4
    result: int = 4
    quotes_results: bool = False
    call: int = 5
    call_names: int = 1
    parallel: int = 0
    name: int = 1
    thinking: int = 0
    document: int = 0
    empty_system: int = 0
    sealed: float = 0.1875
    sealed_from: int = 0
    tools: ToolCosts = field(default_factory=ToolCosts)
    schema: SchemaCosts = field(default_factory=SchemaCosts)
    image: ImageRule = "tiles"
    image_scale: tuple[float, ...] = (85, 170)
    pages: Pages = field(default_factory=lambda: Pages(each=1_500))
    audio: float = 10
    video: float = 263


FACTS: Final[Mapping[str, Any]] = tomllib.loads(
    files("ctxguard").joinpath("data/models.toml").read_text(encoding="utf-8")
)
"""The table as it is written."""


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """A family of models, with the facts for counting.

    Attributes:
        name: the family's name in reports.
        models: matches the beginning of the plain names of its models.
        costs: its token costs besides the text.
        encoding: the vocabulary with which its texts are counted.
        scale: tokens of the family for each token of that vocabulary; 1.0 if it is the family's own.
        own_vocabulary: whether `encoding` is the family's own.
        kin: name of the group of families that share its figures, and whose recorded requests determine their error;
            None if it shares none.
        inherits: the family whose figures are used, if none of its own requests were recorded.
    """

    name: str
    models: str
    costs: Costs
    encoding: str = "o200k_base"
    scale: float = 1.0
    own_vocabulary: bool = False
    kin: str | None = None
    inherits: str | None = None


@lru_cache(maxsize=64)
def _costs(name: str) -> Costs:
    """Return costs of the table by their name, on top of those that they are like."""
    own: dict[str, Any] = dict(FACTS["costs"][name])
    like = _costs(own.pop("like")) if "like" in own else Costs()
    for part, kind in (("schema", SchemaCosts), ("pages", Pages)):
        if part in own:
            own[part] = kind(**own[part])
    if "tools" in own:
        own["tools"] = _tools(own["tools"])
    if "image_scale" in own:
        own["image_scale"] = tuple(own["image_scale"])
    return replace(like, **own)


def _tools(own: Mapping[str, Any]) -> ToolCosts:
    if "like" not in own:
        return ToolCosts(**own)
    like = _costs(own["like"]).tools
    rest = {name: value for name, value in own.items() if name != "like"}
    return replace(like, **{**rest, "server": {**like.server, **rest.get("server", {})}})


GENERIC: Final = _costs("generic")
"""Where no model is named."""
ANY_CLAUDE: Final = _costs("claude")
"""Where no model is named and tools come in Anthropic's form."""
*FAMILIES, UNKNOWN = (Family(**{**own, "costs": _costs(own["costs"])}) for own in FACTS["family"])
_PATTERNS: Final = tuple((re.compile(family.models), family) for family in FAMILIES)


def plain_name(model: str) -> str:
    """Return the name of a model without provider, router and region: `anthropic/claude-…`, `us.openai.gpt-…:0`."""
    name = model.lower().rpartition("/")[2]
    found = _MODEL_WORD.search(name)
    return name[found.start() :].partition(":")[0] if found else name


_MODEL_WORD: Final = re.compile(
    r"(?<![a-z])(chatgpt|gpt|o\d|claude|gemini|mistral|magistral|pixtral|codestral|devstral|ministral|open-mi|llama"
    r"|qwen|qwq|nova|command|c4ai|deepseek|zai-glm|glm|computer-use|codex)"
)


def family_of(model: str) -> Family:
    """Return the family of a model by its name; `UNKNOWN` if no family matches.

    Raises:
        ConfigError: `model` is not a name.
    """
    if not isinstance(model, str):
        raise ConfigError(f"model is the name of a model, not {model!r}", setting="model")
    return _family(model)


@lru_cache(maxsize=256)
def _family(model: str) -> Family:
    name = plain_name(model)
    return next((family for pattern, family in _PATTERNS if pattern.match(name)), UNKNOWN)
