"""The families of models, and what each of them bills: the table of facts in `data/models.toml`.

Besides the text itself, a family bills framing, tools, schemas, hidden prompts, and media. Both ways of counting use
the figures of this module: `ArtifactCounter`, which the adapters use, and `count_request`.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final, Literal, Self, TypeAlias

from ctxguard.errors import ConfigError
from ctxguard.settings import whole_number
from ctxguard.tokens.schemas import Function, as_json, as_typescript, as_words, compact

TEKKEN: Final = "tekken"
"""The vocabulary of Mistral's models since 2024, which is part of the package mistral-common."""

CountText: TypeAlias = Callable[[str], int]
Rendering: TypeAlias = Literal["typescript", "json", "sparse", "words"]
"""How the model sees a function: as TypeScript, as JSON, as JSON without empty parameters, or as bare words."""

CACHES: Final[Mapping[str, tuple[int, int, float]]] = {
    "openai": (1_024, 128, 600.0),
    "anthropic": (1_024, 1, 300.0),
    "google": (1_024, 1, 300.0),
}
"""By provider: minimum number of tokens in a cached prefix, the step by which it grows, seconds for which it is cached.

This is what the providers document as of November 2026: OpenAI keeps a prefix for 5 to 10 minutes, Anthropic for 5.
Google states no time.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCosts:
    """The token costs of tools. Numbers are tokens unless noted otherwise.

    A flat function is one in the format of the Responses API, which is not inside a key `function`.

    Attributes:
        rendering: How the model sees a function.
        share: Factor for the number of tokens in the rendered functions.
        once: Hidden prompt that is added if there is any function.
        once_flat: Hidden prompt if all functions are flat; None means `once`.
        once_forced: Hidden prompt if `tool_choice` requires a call; None means `once`.
        late: Hidden prompt for functions defined inside messages; None means `once`.
        search: Added for each search for functions.
        namespace: Number of times that the namespace of a called function is written, unless it is the default one.
        beside_system: Added if there is also a system prompt.
        beside_system_flat: Added if there is also a system prompt and all functions are flat.
        each: Added for every function.
        seen_if_none: Whether the model sees functions even if `tool_choice` is `none`.
        server: Hidden prompts for tools that the provider runs, by the prefix of their type.
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
        """Return the number of tokens in the schemas of functions; deferred functions are not sent to the model."""
        seen = [function for function in functions if not function.deferred]
        if not seen:
            return 0
        tokens = sum(map(count, self.rendered(seen)))
        return max(0, round(tokens * self.share) + self.each * len(seen))

    def rendered(self, functions: Iterable[Function]) -> list[str]:
        """Return functions as the model sees them; deferred functions are not sent to the model."""
        seen = [function for function in functions if not function.deferred]
        if self.rendering == "typescript":
            return [as_typescript(seen)] if seen else []
        if self.rendering == "words":
            return list(map(as_words, seen))
        return [as_json(function, is_sparse=self.rendering == "sparse") for function in seen]

    def hidden(self, functions: Iterable[Function], choice: str, *, has_system: bool = False) -> int:
        """Return the number of tokens in the prompt that the provider adds if there is any function."""
        seen = [function for function in functions if not function.deferred]
        if not seen:
            return 0
        if choice in ("required", "named") and self.once_forced is not None:
            return self.once_forced
        if self.once_flat is not None and all(function.is_flat for function in seen):
            return self.once_flat + self.beside_system_flat * has_system
        return self.once + self.beside_system * has_system

    def calls(self, namespaces: Iterable[str], count: CountText) -> int:
        """Return the number of tokens that namespaces of called functions take beyond the one token of the default."""
        return sum(self.namespace * (count(namespace) - 1) for namespace in namespaces)

    def server_tool(self, kind: str) -> int | None:
        """Return the number of tokens in the hidden prompt for a tool that the provider runs; None if it is unknown."""
        return next((tokens for prefix, tokens in self.server.items() if kind.startswith(prefix)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaCosts:
    """The token costs of the schema that the reply must follow.

    Attributes:
        once: Number of tokens around the schema.
        share: Factor for the number of tokens in its JSON; 0 if the schema is not billed.
    """

    once: int = 0
    share: float = 1.0

    def schema(self, schema: Mapping[str, object], count: CountText) -> int:
        """Return the number of tokens that the schema of the reply takes."""
        return self.once + round(self.share * count(compact(schema)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """The token costs of a document.

    Attributes:
        each: Number of tokens for a page as an image.
        characters: Number of characters of text per token; 0 if the text is not billed.
    """

    each: int
    characters: float = 5.0


ImageRule: TypeAlias = Literal["tiles", "patches", "area", "gemini", "fixed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The token costs of a model family besides the text. Numbers are tokens unless noted otherwise.

    Attributes:
        reply: Added to every request: the opening of the reply, and the provider's own prompt.
        message: Framing of a user or assistant message, including its role.
        channel: Added for an assistant message with text or thinking.
        system: Framing of a system message.
        result: Framing of a tool result.
        quotes_results: Whether the text of a tool result is wrapped in a JSON object, unless it is one already.
        call: Framing of a tool call.
        call_names: Number of times that the tool's name is written for a call and its result, besides the call itself.
        parallel: Added for each call if a message has several calls.
        name: Added for the name of a participant.
        thinking: Hidden prompt if the request asks for thinking.
        document: Framing of a document that is sent as text.
        empty_system: Prompt that the provider adds if the system prompt is an empty string.
        sealed: Number of tokens for each character of encrypted reasoning beyond `sealed_from`.
        sealed_from: Number of characters of encrypted reasoning that are overhead.
        tools: Token costs of tools.
        schema: Token costs of the schema that the reply must follow.
        image: Rule for images (see `ctxguard.tokens.media`).
        image_scale: Parameters of the image rule, such as base and tile, a factor for patches, or pixels per token.
        pages: Token costs of documents.
        audio: Number of tokens per second of audio.
        video: Number of tokens per second of video.
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
"""The parsed file `data/models.toml`."""


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """A family of models, with the facts for counting.

    Attributes:
        name: Name of the family in reports.
        models: Regular expression that matches the beginning of a model's plain name.
        costs: Token costs besides the text.
        encoding: Vocabulary with which text is counted.
        scale: Number of the family's tokens for each token of `encoding`; 1.0 if `encoding` is the family's own.
        own_vocabulary: Whether `encoding` is the family's own vocabulary.
        kin: Name of the group of families that share cost figures and whose recorded requests determine the counting
            error; None if the family shares them with no other.
        inherits: Family whose figures are used if no requests of this family were recorded.
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
    """Return the costs with this name in the table, including those that they inherit through `like`."""
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
"""Costs that are used if no model is named."""
ANY_CLAUDE: Final = _costs("claude")
"""Costs that are used if no model is named and tools are in Anthropic's format."""
*FAMILIES, UNKNOWN = (Family(**{**own, "costs": _costs(own["costs"])}) for own in FACTS["family"])
_PATTERNS: Final = tuple((re.compile(family.models), family) for family in FAMILIES)


def plain_name(model: str) -> str:
    """Return the name of a model without provider, router, and region: `claude-…` for `anthropic/claude-…`."""
    name = model.lower().rpartition("/")[2]
    found = _MODEL_WORD.search(name)
    return name[found.start() :].partition(":")[0] if found else name


_MODEL_WORD: Final = re.compile(
    r"(?<![a-z])(chatgpt|gpt|o\d|claude|gemini|mistral|magistral|pixtral|codestral|devstral|ministral|open-mi|llama"
    r"|qwen|qwq|nova|command|c4ai|deepseek|zai-glm|glm|computer-use|codex)"
)


def family_of(model: str) -> Family:
    """Return the family of a model; `UNKNOWN` if no family matches its name.

    Raises:
        ConfigError: If `model` is not a string.
    """
    if not isinstance(model, str):
        raise ConfigError(f"model is the name of a model, not {model!r}", setting="model")
    return _family(model)


@lru_cache(maxsize=256)
def _family(model: str) -> Family:
    name = plain_name(model)
    return next((family for pattern, family in _PATTERNS if pattern.match(name)), UNKNOWN)


AS_OF: Final = "2026-11-23"
"""Date on which the table was last compared with LangChain's model profiles and genai-prices, which record the
providers' pages. `tests/tokens/test_windows.py` repeats the comparison for the installed versions."""
FALLBACK: Final = 128_000
"""The window assumed for an unknown model. Most models that are not hosted by their makers have this window."""
_WINDOWS: Final = tuple((re.compile(each["models"]), each["tokens"]) for each in FACTS["window"])
"""Number of input tokens by a pattern for the beginning of a model's plain name; the first match counts."""


class Window(int):
    """A number of input tokens, with its source.

    Attributes:
        source: `caller`, `table`, `framework`, `genai-prices`, or, if the model is unknown, `fallback`.
    """

    source: str

    def __new__(cls, tokens: int, source: str = "caller") -> Self:
        """Create the window.

        Args:
            tokens: Number of input tokens.
            source: Source of the number.

        Raises:
            ConfigError: If `tokens` is not a positive whole number.
        """
        own = super().__new__(cls, whole_number(tokens, "window", unit="tokens", least=1))
        own.source = source
        return own

    def to_dict(self) -> dict[str, object]:
        """Return the number of tokens, its source, and whether the model was recognized, for a report."""
        return {"tokens": int(self), "source": self.source, "resolved": self.source != "fallback"}


def window_of(model: str, known: int | None = None) -> Window:
    """Return the input window of a model.

    Args:
        model: Name of the model, with or without provider and region.
        known: Window that a framework states for the model, which is used if the table does not contain the model.
    """
    name = plain_name(model)
    tokens = next((tokens for pattern, tokens in _WINDOWS if pattern.match(name)), None)
    if tokens is not None:
        return Window(tokens, "table")
    if known:
        return Window(known, "framework")
    priced = _of_prices(model.lower())
    return Window(FALLBACK, "fallback") if priced is None else Window(priced, "genai-prices")


@lru_cache(maxsize=256)
def _of_prices(model: str) -> int | None:
    try:
        from genai_prices import data_snapshot
    except ImportError:  # an optional dependency
        return None
    for name in dict.fromkeys((model, model.rpartition("/")[2])):
        try:
            _, found = data_snapshot.get_snapshot().find_provider_model(name, None, None, None)
        except LookupError:
            continue
        return found.context_window
    return None


Headroom: TypeAlias = int | float | Literal["measured"]
"""The part of a budget to keep free: a number of tokens, a share, or the measured error for the model's family."""


@dataclass(frozen=True, slots=True)
class Margin:
    """The headroom for an estimated count: a share of the count, and a fixed number of tokens."""

    share: float = 0.0
    flat: int = 0

    def tokens(self, counted: int) -> int:
        """Return the number of tokens to keep free in addition to `counted` counted tokens."""
        return math.ceil(self.share * counted) + self.flat if counted else 0

    def narrowed(self) -> Margin:
        """Return a third of the margin, which is enough once the provider's own counts are known."""
        return Margin(self.share / 3, self.flat // 3)

    def within(self, budget: int) -> int:
        """Return the number of tokens of a budget to keep free, so that the rest plus its margin fits the budget."""
        return math.ceil((self.share * budget + self.flat) / (1 + self.share)) if self.share or self.flat else 0


@dataclass(frozen=True, slots=True)
class Measured:
    """The measured error of the counts for a family.

    Attributes:
        requests: Number of recorded requests, without those that contain media or the provider's own tools.
        within: Share of the requests whose count is within 5% or 10 tokens of the reported count.
        under: Share of the requests whose count is too low by more than 5% and 20 tokens.
        bias: Sum of our counts, divided by the sum of the reported counts.
        margin: Headroom that covers the error of 98% of the requests.
    """

    requests: int
    within: float
    under: float
    bias: float
    margin: Margin

    def __str__(self) -> str:
        if abs(self.bias - 1) < 0.005:
            side = "errs to neither side"
        else:
            side = f"errs on the {'high' if self.bias > 1 else 'low'} side by {abs(self.bias - 1):.0%} in the sum"
        return f"within 5% or 10 tokens for {self.within:.0%} of {self.requests} recorded requests, {side}"


MEASURED: Final = {
    name: Measured(**{**own, "margin": Margin(**own["margin"])}) for name, own in FACTS["measured"].items()
}
"""The measured error by family, from `data/models.toml`."""
NO_MODEL: Final = "no model is named, so this is no provider's count"
_FEW: Final = 20
"""Number of recorded requests of a family below which its margin is widened."""
_ESTIMATED: Final = 0.12
"""Share that an estimate by byte classes adds to a margin: its error against o200k_base on prose, code, and JSON."""
_WIDE: Final = Margin(0.15, 30)
"""The headroom for a family without recorded requests."""


def valid_headroom(headroom: object) -> Headroom:
    """Validate and return a headroom, which is `measured`, a number of tokens, or a share below 1.

    Raises:
        ConfigError: If `headroom` is none of these.
    """
    if headroom == "measured":
        return "measured"
    if isinstance(headroom, (int, float)) and not isinstance(headroom, bool):
        if headroom >= 0 and (isinstance(headroom, int) or headroom.is_integer()):
            return int(headroom)
        if 0 < headroom < 1:
            return headroom
    raise ConfigError(
        f"headroom is 'measured', a number of tokens, or a share below 1, not {headroom!r}", setting="headroom"
    )


def kept_free(counter: object, headroom: Headroom, budget: int) -> tuple[int, int]:
    """Return the number of tokens of a budget to keep free, and how many of these are released later.

    The latter are released once the history contains the provider's counts, because then only new messages are
    uncertain.

    Args:
        counter: Token counter, which knows the model's family if a model was named.
        headroom: Headroom (see `Headroom`). A number of tokens or a share stays free whatever the history contains.
        budget: Token budget of the whole request.

    Raises:
        ConfigError: If the headroom is as large as the budget.
    """
    if headroom == "measured":
        margin = margin_of(counter)
        kept = min(margin.within(budget), budget - 1)
        return kept, max(0, kept - margin.narrowed().within(budget))
    if isinstance(headroom, float):
        return min(math.ceil(headroom * budget), budget - 1), 0
    if headroom >= budget:
        raise ConfigError(f"a headroom of {headroom} leaves nothing of a budget of {budget}", setting="headroom")
    return headroom, 0


def accuracy_of(family: Family, *, is_measured: bool) -> str:
    """Return a phrase that describes the counting error of a family.

    Args:
        family: Family of the model.
        is_measured: Whether a tokenizer counts texts, as in the measurements. Otherwise, texts are estimated by bytes.
    """
    measured = MEASURED.get(family.kin or family.name)
    if measured is not None:
        said = str(measured) if is_measured else f"by byte classes, which adds about 12%; with a vocabulary {measured}"
        return f"estimated: {said}"
    if family.inherits is not None:
        return f"not measured: no requests were recorded; counted like {family.inherits}"
    return "not measured: no requests were recorded"


def margin_of(counter: object) -> Margin:
    """Return the margin of a counter. It is 0 if the counter knows no model."""
    given = getattr(counter, "margin", None)
    if isinstance(given, Margin):
        return given
    family: Family | None = getattr(counter, "family", None)
    if family is None:
        return Margin()
    measured = MEASURED.get(family.kin or family.name)
    margin = _WIDE if measured is None else measured.margin
    if measured is not None and measured.requests < _FEW:
        margin = Margin(margin.share + 0.05, margin.flat + 10)
    is_exact = getattr(getattr(counter, "base", None), "exact", False)
    return margin if is_exact else Margin(margin.share + _ESTIMATED, margin.flat)
