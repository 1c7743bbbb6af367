"""Count the body of a request, with its breakdown. This needs no framework and no network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from ctxguard.adapting.fields import get
from ctxguard.artifacts import Artifact, Kind, Part
from ctxguard.errors import ConfigError, CtxguardError, HistoryError
from ctxguard.formats.format import Api, Format, Sent
from ctxguard.formats.registry import find_format
from ctxguard.tokens.accuracy import margin_of
from ctxguard.tokens.artifact_counter import ArtifactCounter
from ctxguard.tokens.counters import TokenCounter, find_counter


@dataclass(frozen=True, slots=True)
class RequestCount:
    """The input tokens of a request, and their breakdown.

    Attributes:
        tokens: all of them.
        parts: tokens by purpose: `system`, `messages`, `tool calls`, `tool results`, `tools`, `output schema`, `hidden
            prompts`, `reasoning`, `media`, `framing`; those that are 0 are left out.
        margin: tokens that the provider may count beyond these, in 99 of 100 requests.
        counter: name of the counter.
        accuracy: a phrase that describes the error of the count.
        uncounted: parts of the request that cannot be counted locally, such as the results of a web search.
    """

    tokens: int
    parts: Mapping[str, int]
    margin: int
    counter: str
    accuracy: str
    uncounted: tuple[str, ...] = field(default=())


def count_request(
    body: Mapping[str, object],
    *,
    api: Api,
    model: str | None = None,
    counter: str | TokenCounter | Callable[[str], int] = "auto",
) -> RequestCount:
    """Return the input tokens that the provider will report for a request.

    Args:
        body: the request as it is sent, parsed from its JSON; not changed.
        api: `chat` (OpenAI's Chat Completions and what is compatible with it), `responses`, `anthropic`,
            `gemini`, or Amazon's `converse`.
        model: name of the model; None takes the one in the body.
        counter: see `ctxguard.tokens.find_counter`.

    Raises:
        ConfigError: there is no such API, or the body is not one of its requests.
    """
    kind = find_format(api)
    if not isinstance(body, Mapping):
        raise ConfigError(f"a request body is a JSON object, not {type(body).__name__}", setting="body")
    try:
        named = body.get("model", body.get("modelId"))
        count = ArtifactCounter(find_counter(counter, model=model or (named if isinstance(named, str) else None)))
        return count_sent(body, kind, count)
    except HistoryError as error:
        raise ConfigError(str(error), setting="body") from None
    except (RecursionError, ValueError) as error:  # JSON that is nested too deeply, or refers to itself
        if isinstance(error, CtxguardError):
            raise
        raise ConfigError(f"the request body cannot be written as JSON: {error}", setting="body") from None


def count_sent(body: Mapping[str, object], kind: Format, count: ArtifactCounter) -> RequestCount:
    """Return the input tokens of a request in a format, by a counter, see `count_request`."""
    read = kind.sent(body)
    has_system = any(artifact.kind is Kind.SYSTEM for artifact in read.artifacts)
    tools = count.count_tools(read.tools, choice=read.choice, found=read.found, has_system=has_system)
    parts = parts_of(read.artifacts, count)
    parts.update({"framing": count.beside(), "tools": tools.schemas, "output schema": count.schema(read.schema)})
    parts["hidden prompts"] = tools.hidden + _prompts(read, count)
    parts["tool calls"] += count.costs.tools.calls(read.namespaces, count.text)
    for late in map(count.brought_tools, read.brought):
        parts["tools"] += late.schemas
        parts["hidden prompts"] += late.hidden
    tokens = sum(parts.values())
    return RequestCount(
        tokens,
        {name: part for name, part in parts.items() if part},
        margin_of(count.counter).tokens(tokens),
        count.counter.name,
        count.counter.accuracy,
        (*tools.uncounted, *_beyond(body), *_links(read.artifacts)),
    )


_STORED: Final = ("previous_response_id", "conversation", "cachedContent", "cached_content", "preset", "prompt")
"""Fields of requests that continue from content stored at the provider."""


def _beyond(body: Mapping[str, object]) -> Iterator[str]:
    """Yield what the provider adds to a request without revealing its size."""
    yield from (f"what {key} refers to" for key in _STORED if body.get(key))
    if get(body.get("reasoning"), "mode") == "pro":
        yield "the drafts of reasoning mode pro"
    if get(body.get("context_management"), "edits"):
        yield "the prompts of context_management"
    if get(body.get("output_config"), "task_budget"):
        yield "the prompt of task_budget"
    items = body.get("input")
    if isinstance(items, list) and any(isinstance(i, Mapping) and i.get("type") == "item_reference" for i in items):
        yield "what item_reference refers to"
    if body.get("mcp_servers"):
        yield "the tools of mcp_servers"
    if body.get("models"):
        yield "the costs of another model that models may choose"
    if str(body.get("model")).rpartition("/")[2].startswith(_SEARCHING):
        yield "what the model searches for on its own"


_SEARCHING: Final = ("compound", "sonar")
"""Systems of Groq and Perplexity that search the web without a tool in the request."""


def _links(artifacts: Iterable[Artifact]) -> Iterator[str]:
    """Yield descriptions of the media that are sent only as links."""
    for artifact in artifacts:
        for part in () if isinstance(artifact.content, str) else artifact.content:
            if part.media is not None and not part.media.length and part.media.kind != "sealed":
                yield f"{part.media.kind} by link"


def parts_of(artifacts: Iterable[Artifact], count: ArtifactCounter) -> Counter[str]:
    """Return the tokens of artifacts by purpose; their sum is that of `ArtifactCounter.artifacts`."""
    parts: Counter[str] = Counter()
    for artifact in artifacts:
        name, content = _NAMES.get(artifact.kind, "messages"), artifact.content
        if isinstance(content, str):
            inside = [(name, count.text(content))]
        else:
            inside = [(_part_name(part, name), count.part(part)) for part in content]
        inside += [("tool calls", count.text(call.name) + count.text(call.arguments)) for call in artifact.calls]
        for name, tokens in inside:
            parts[name] += tokens
        parts["framing"] += count.artifact(artifact) - sum([tokens for _, tokens in inside])
    return parts


def _prompts(read: Sent, count: ArtifactCounter) -> int:
    """Return the tokens of hidden prompts that the provider adds besides those for tools."""
    costs = count.costs
    once = costs.thinking * read.thinks + costs.empty_system * read.empty_system
    return once + costs.document * read.documents + costs.tools.search * read.searches


_NAMES = {Kind.SYSTEM: "system", Kind.TOOL: "tool results"}


def _part_name(part: Part, name: str) -> str:
    if part.kind == "reasoning" or (part.media is not None and part.media.kind == "sealed"):
        return "reasoning"
    return name if part.media is None else "media"
