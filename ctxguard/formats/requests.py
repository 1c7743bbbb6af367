"""Count and stabilize the body of a request, in any format. This needs no framework and no network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from ctxguard.adapting.adapter import request_flow, require_stabilizer, stabilize_native, window_for
from ctxguard.adapting.fields import are_same_objects, copy_with, get, member_at
from ctxguard.adapting.request import Request
from ctxguard.artifacts import Artifact, Kind, Part
from ctxguard.draft import Ask, asynchronous, synchronous
from ctxguard.errors import ConfigError, CtxguardError, HistoryError
from ctxguard.formats.format import Api, Format, Sent
from ctxguard.formats.registry import find_format
from ctxguard.tokens.artifact_counter import ArtifactCounter
from ctxguard.tokens.counters import TokenCounter, find_counter
from ctxguard.tokens.families import margin_of

if TYPE_CHECKING:
    from ctxguard.formats.format import Body
    from ctxguard.report import Report
    from ctxguard.stabilizer import Stabilizer


@dataclass(frozen=True, slots=True)
class RequestCount:
    """The number of input tokens of a request, and their breakdown.

    Attributes:
        tokens: Total number of tokens.
        parts: Number of tokens by purpose: `system`, `messages`, `tool calls`, `tool results`, `tools`, `output
            schema`, `other fields`, `hidden prompts`, `reasoning`, `media`, `framing`. Purposes with 0 tokens are left
            out.
        margin: Number of tokens that the provider may count in addition; it covers the error of 98% of recorded
            requests.
        counter: Name of the token counter.
        accuracy: Phrase that describes the error of the count.
        uncounted: Parts of the request that cannot be counted locally, such as the results of a web search.
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
    """Count the input tokens that the provider will report for a request.

    Args:
        body: Request as it is sent, parsed from JSON. It is not changed.
        api: `chat` (OpenAI's Chat Completions and compatible APIs), `responses`, `anthropic`, `gemini`, `converse`
            (Amazon Bedrock), or `cohere`.
        model: Name of the model; None means the model that the body names.
        counter: Token counter (see `ctxguard.tokens.find_counter`).

    Raises:
        ConfigError: If the API is unknown, or `body` is not a request to the API.
    """
    kind = find_format(api)
    if not isinstance(body, Mapping):
        raise ConfigError(f"a request body is a JSON object, not {type(body).__name__}", setting="body")
    try:
        named = body.get("model", body.get("modelId"))
        count = ArtifactCounter(find_counter(counter, model=model or (named if isinstance(named, str) else None)))
        return count_sent(body, kind, count, is_bill=True)
    except HistoryError as error:
        raise ConfigError(str(error), setting="body") from None
    except (RecursionError, ValueError) as error:  # the body is nested too deeply or contains itself
        if isinstance(error, CtxguardError):
            raise
        raise ConfigError(f"the request body cannot be written as JSON: {error}", setting="body") from None


def count_sent(
    body: Mapping[str, object], kind: Format, count: ArtifactCounter, *, is_bill: bool = False
) -> RequestCount:
    """Count the input tokens of a request in the format `kind`, with the counter `count` (see `count_request`).

    Args:
        body: The request.
        kind: Its format.
        count: The counter.
        is_bill: Whether to leave out a schema of the reply that the provider does not bill. It takes room in the
            model's window nevertheless, so a budget includes it.
    """
    read = kind.sent(body)
    has_system = any(artifact.kind is Kind.SYSTEM for artifact in read.artifacts)
    tools = count.count_tools(read.tools, choice=read.choice, found=read.found, has_system=has_system)
    parts = parts_of(read.artifacts, count)
    parts.update({"framing": count.beside(), "tools": tools.schemas, "output schema": count.schema(read.schema)})
    parts["hidden prompts"] = tools.hidden + _prompts(read, count)
    parts["tool calls"] += count.costs.tools.calls(read.namespaces, count.text)
    has_schema = is_bill or parts["output schema"] > 0
    parts["other fields"] = count.fields(*_other_fields(body, kind, read, has_schema=has_schema))
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


def _other_fields(
    body: Mapping[str, object], kind: Format, read: Sent, *, has_schema: bool
) -> tuple[Mapping[str, object], list[object]]:
    """Return the fields of a body outside its history and its tools, and what of them is counted under other names."""
    settings, schemas = kind.settings(kind.searched(body))
    fields = {**settings, **{key: value for schema in schemas for key, value in schema.items()}}
    fields["instructions"] = body.get("instructions")  # which an API other than that of Responses does not define
    system = (artifact.content for artifact in read.artifacts if artifact.kind is Kind.SYSTEM)
    return fields, [read.schema if has_schema else None, *read.tools, *system]


def tools_beyond_estimate(body: Mapping[str, object], kind: Format, count: ArtifactCounter) -> int:
    """Return the exact token count of tools defined inside messages, minus a stabilizer's estimate for them.

    A stabilizer counts such tools as part of the messages that define them, because it sees only messages.
    """
    if not (bringing := kind.bringing(body)):
        return 0
    exact, without = (count_sent({kind.history: items}, kind, count).tokens for items in (bringing, []))
    return exact - without - count.artifacts(kind.read(bringing))


_STORED: Final = ("previous_response_id", "conversation", "cachedContent", "cached_content", "preset", "prompt")
"""Fields of a request that refer to content stored by the provider."""


def _beyond(body: Mapping[str, object]) -> Iterator[str]:
    """Yield a description of each part that the provider adds to a request and whose size is unknown."""
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
"""Prefixes of models of Groq and Perplexity that search the web even if the request has no tool."""


def _links(artifacts: Iterable[Artifact]) -> Iterator[str]:
    """Yield a description of each medium that is sent as a link, because the size of the medium is unknown."""
    for artifact in artifacts:
        for part in () if isinstance(artifact.content, str) else artifact.content:
            if part.media is not None and not part.media.length and part.media.kind != "sealed":
                yield f"{part.media.kind} by link"


def parts_of(artifacts: Iterable[Artifact], count: ArtifactCounter) -> Counter[str]:
    """Return the number of tokens in artifacts, by purpose; the sum equals that of `ArtifactCounter.artifacts`."""
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
    """Return the number of tokens in hidden prompts that the provider adds, other than those for tools."""
    costs = count.costs
    once = costs.thinking * read.thinks + costs.empty_system * read.empty_system
    return once + costs.document * read.documents + costs.tools.search * read.searches


_NAMES = {Kind.SYSTEM: "system", Kind.TOOL: "tool results"}


def _part_name(part: Part, name: str) -> str:
    if part.kind == "reasoning" or (part.media is not None and part.media.kind == "sealed"):
        return "reasoning"
    return name if part.media is None else "media"


class Requests:
    """The functions that stabilize the requests of one provider's client.

    Args:
        formats: Formats of the provider's requests. A request has the first format whose history key it contains.
        declare: Function that returns the schema that the SDK derives from a Python function among the tools.
    """

    def __init__(self, *formats: Format, declare: Callable[[object], Body] | None = None) -> None:
        self._formats = formats
        self._declare = declare

    @synchronous
    def stabilize_request(
        self,
        request: Mapping[str, object],
        stabilizer: Stabilizer,
        *,
        incremental: bool = False,
        window: int | None = None,
        keep_thinking: bool = False,
    ) -> Generator[Ask, object, tuple[dict[str, Any], Report]]:
        """Return the stabilized request and the report. The original request and everything in it remain unchanged.

        Instructions and tool descriptions are masked like messages. If a rule matches in a part that cannot be changed
        (names, schemas, metadata), the check `NoPII` fails. The written request is counted again; if it exceeds the
        budget as a whole, it is cut again.

        Args:
            request: Arguments of the client's method, or the body of a request, with the history and everything else.
            stabilizer: Stabilizer that does the work.
            incremental: Whether the calls of earlier responses are stored by the server (`previous_response_id` or
                `conversation` of OpenAI), so that an output without its call is valid.
            window: Context window of the model in tokens; needed if the budget is a share of an unknown window.
            keep_thinking: Whether signed thinking from before a cut is kept, for requests that send `drop_block` to the
                API and for models before 2026 (see `DropStaleThinking`).

        Raises:
            HistoryError: If `request` is not a request with a history, or a message cannot be read.
            BudgetExceededError: If the mandatory messages do not fit the budget.
        """
        kind = self._format(request, incremental=incremental)
        settings, schemas = kind.settings(request)
        place = kind.tools_at(request)
        given = member_at(request, place)
        listed = list(given) if isinstance(given, (list, tuple)) else [] if given is None else [given]
        functions = [tool for tool in listed if self._declare is not None and callable(tool)]
        tools = cast("list[Body]", [tool for tool in listed if tool not in functions])
        declared = [] if self._declare is None else list(map(self._declare, functions))
        schemas += declared
        native = request if kind.system else kind.native(request)
        asked = Request(native, cast("str | None", request.get("instructions")), tools, schemas, settings)

        def written(done: Request[Any]) -> dict[str, Any]:
            body: dict[str, Any] = kind.written(request, done.messages)
            if done.instructions is not None:
                body["instructions"] = done.instructions
            if are_same_objects(done.tools, tools):  # the tools are unchanged
                return body
            now = iter(done.tools)
            return copy_with(body, {place: [tool if tool in functions else next(now) for tool in listed]})

        done, report = yield from request_flow(
            stabilizer,
            kind,
            asked,
            window=window_for(stabilizer, window, request.get("model") or request.get("modelId")),
            keep_thinking=keep_thinking,
            recount=lambda done: (
                count_sent(written(done), kind, stabilizer.counter).tokens + stabilizer.counter.tools(declared)
            ),
            overhead=tools_beyond_estimate(request, kind, require_stabilizer(stabilizer).counter),
        )
        return written(done), report

    astabilize_request = asynchronous(stabilize_request)
    """The async variant of `stabilize_request`, for async summarizers or stores."""

    def stabilize_messages(
        self,
        messages: Sequence[Any],
        stabilizer: Stabilizer,
        *,
        system: object = None,
        tools: Sequence[Mapping[str, object]] | None = None,
        window: int | None = None,
        keep_thinking: bool = False,
    ) -> tuple[Any, list[Any], Report]:
        """Return the system prompt, the stabilized messages, and the report (see `stabilize_request`).

        The caller sends the tools unchanged, so the check `NoPII` fails if a rule matches in a tool.
        """
        kind: Any = self._formats[0]
        prompt = kind.system[0]
        native = {kind.history: messages, **({} if system is None else {prompt: system})}
        done, report = stabilize_native(
            stabilizer, kind, native, tools=tools, window=window, keep_thinking=keep_thinking
        )
        return done.get(prompt), done[kind.history], report

    def _format(self, request: object, *, incremental: bool) -> Any:  # noqa: ANN401 - a format that is also an adapter
        for kind in self._formats:
            if isinstance(request, Mapping) and (kind.history in request or len(self._formats) == 1):
                return type(kind)(incremental=True) if incremental else kind  # type: ignore[call-arg]  # of Responses
        expected = " or ".join(repr(kind.history) for kind in self._formats)
        raise HistoryError(
            f"expected a request, a dict with {expected}, got {type(request).__name__}; "
            f"a list of {self._formats[0].history} goes to stabilize_messages"
        )
