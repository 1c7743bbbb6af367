"""Count artifacts, tools and requests: texts by a counter, everything else by the figures of the model's family."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from weakref import WeakKeyDictionary

from ctxguard.artifacts import BY_POSITION, Artifact, Kind, Part
from ctxguard.tokens.counters import TokenCounter, valid_count
from ctxguard.tokens.families import ANY_CLAUDE, GENERIC, Costs, ToolCosts
from ctxguard.tokens.media import media_tokens
from ctxguard.tokens.schemas import Function, brings_in, functions_of, sent_tools, server_tool_of
from ctxguard.tokens.text_cache import TextCache

MESSAGE_TOKENS: Final = GENERIC.message
"""Tokens of framing for a message, including its role, if no model is named."""
REPLY_TOKENS: Final = GENERIC.reply
"""Tokens that open the reply, once per request, if no model is named."""


@dataclass(frozen=True, slots=True)
class ToolCount:
    """The token cost of tools.

    Attributes:
        schemas: the functions in the form that the model sees.
        hidden: the prompts that the provider adds for them.
        uncounted: unknown tools, and tools that the provider runs and whose results it bills with the same request.
    """

    schemas: int = 0
    hidden: int = 0
    uncounted: tuple[str, ...] = ()


_SHARED: WeakKeyDictionary[TokenCounter, TextCache[int]] = WeakKeyDictionary()


def _shared_cache(counter: TokenCounter) -> TextCache[int]:
    try:
        return _SHARED.setdefault(counter, TextCache())
    except TypeError:  # a counter of the caller that cannot be hashed or weakly referenced
        return TextCache()


class ArtifactCounter:
    """Count artifacts: text, tool-call arguments, names and framing, media by the provider's rule. Cached by text.

    Args:
        counter: counts texts.
        cache: the cache of counts; None means one that all users of the same counter share.
    """

    def __init__(self, counter: TokenCounter, *, cache: TextCache[int] | None = None) -> None:
        self.counter = counter
        self.costs: Costs = getattr(counter, "costs", GENERIC)
        self._knows_model = hasattr(counter, "costs")
        self._remembers = not getattr(counter, "learns", False)
        self._framing = {Kind.SYSTEM: self.costs.system, Kind.TOOL: self.costs.result}
        self.cache: TextCache[int] = _shared_cache(counter) if cache is None else cache

    def text(self, text: str) -> int:
        """Return the tokens of a text, without framing."""
        if not text:
            return 0
        if not self._remembers:
            return self.counter.count(text)
        count = self.cache.get(text)
        if count is None:
            count = self.counter.count(text)
            if type(count) is not int or count < 0:
                count = valid_count(count, self.counter.name)
            self.cache.put(text, count)
        return count

    def artifact(self, artifact: Artifact) -> int:
        """Return the tokens of an artifact: its own `token_count` if it has one, else counted with its framing.

        A changed copy of one with its own count is counted in proportion to that.
        """
        if artifact.token_count is not None:
            return artifact.token_count
        tokens: int | None = artifact.memo.get(self.counter) if self._remembers else None  # type: ignore[assignment]  # only counts stand there
        if tokens is None:
            origin = artifact.origin
            tokens = self.measured(artifact)
            if origin is not None and origin.token_count is not None:
                tokens = -(-origin.token_count * tokens // max(self.measured(origin), 1))
            if self._remembers:
                artifact.memo.keep(self.counter, tokens)
        return tokens

    def measured(self, artifact: Artifact) -> int:
        """Return the tokens of an artifact as counted, with its framing, ignoring its own `token_count`."""
        costs = self.costs
        total = self._framing.get(artifact.kind, costs.message)
        content = artifact.content
        if artifact.kind is Kind.TOOL and costs.quotes_results:
            content = tuple(map(_quoted, (Part("text", content),) if isinstance(content, str) else content))
        total += self.text(content) if isinstance(content, str) else sum(map(self.part, content))
        if content and artifact.kind is Kind.ASSISTANT:
            total += costs.channel
        for call in artifact.calls:
            total += costs.call + (1 + costs.call_names) * self.text(call.name) + self.text(call.arguments)
        if len(artifact.calls) > 1:
            total += costs.parallel * len(artifact.calls)
        if artifact.name is not None and (artifact.kind is not Kind.TOOL or artifact.answers == BY_POSITION):  # no id
            total += costs.name + self.text(artifact.name)
        for field in artifact.fields:
            total += self.text(field.text) if field.tokens is None else field.tokens
        return max(total, 0)  # the framing of a result is negative if its punctuation costs nothing

    def part(self, part: Part) -> int:
        """Return the tokens of one part; media by the rule of the model's provider, if the model is known."""
        if part.media is not None:
            return media_tokens(part.media, self.costs)
        if part.tokens is not None:
            return part.tokens
        return 0 if part.text is None else self.text(part.text)

    def artifacts(self, artifacts: Iterable[Artifact]) -> int:
        """Return the tokens of a list of artifacts, without the reply's opening."""
        counter, total = self.counter, 0
        for artifact in artifacts:
            # nearly all artifacts of a history were counted before: looking them up here saves a function call for each
            tokens = artifact.token_count
            if tokens is None:
                tokens = artifact.memo.get(counter) if self._remembers else None  # type: ignore[assignment]  # only counts stand there
            total += self.artifact(artifact) if tokens is None else tokens
        return total

    def beside(self, instructions: str | None = None) -> int:
        """Return the tokens of a request apart from its messages and tools.

        Args:
            instructions: a system prompt that is sent outside the messages.
        """
        return self.costs.reply + (self.costs.system + self.text(instructions) if instructions else 0)

    def tools(self, tools: Sequence[Mapping[str, object]] | None) -> int:
        """Return the tokens of tools: their schemas as the model sees them, and the hidden prompts for them.

        Args:
            tools: in the form in which they are sent to any API. None and an empty list cost nothing.

        Raises:
            ConfigError: `tools` is not a list, or one of them is not a schema or cannot be written as JSON.
        """
        counted = self.count_tools(tools)
        return counted.schemas + counted.hidden

    def count_tools(
        self, tools: object, *, choice: str = "auto", found: frozenset[str] = frozenset(), has_system: bool = False
    ) -> ToolCount:
        """Return the token cost of tools, see `tools`.

        Args:
            tools: in the form in which they are sent.
            choice: the `tool_choice`: `auto`, `none`, `required` or `named`.
            found: names of deferred functions that a search has added.
            has_system: whether a system prompt is sent as well, which saves a few tokens for some models.
        """
        sent = sent_tools(tools)
        by_provider = getattr(self.counter, "tool_tokens", None)
        known = by_provider(sent) if sent and by_provider is not None else None
        if isinstance(known, int):
            return ToolCount(schemas=known)
        functions = [_found(function, found) for tool in sent for function in functions_of(tool)]
        costs = self._tool_costs(sent)
        if choice == "none" and not costs.seen_if_none:
            functions = []
        kinds = [kind for tool in sent if (kind := server_tool_of(tool)) is not None]
        prompts = [costs.server_tool(kind) for kind in kinds]
        return ToolCount(
            schemas=costs.functions(functions, self.text),
            hidden=costs.hidden(functions, choice, has_system=has_system) + sum(prompt or 0 for prompt in prompts),
            uncounted=tuple(k for k, prompt in zip(kinds, prompts, strict=True) if prompt is None or brings_in(k)),
        )

    def brought_tools(self, tools: Sequence[Mapping[str, object]]) -> ToolCount:
        """Return the token cost of tools that are defined among the messages, including their hidden prompt."""
        counted = self.count_tools(tools)
        late = self.costs.tools.late
        return counted if late is None or not counted.schemas else replace(counted, hidden=late)

    def _tool_costs(self, tools: Sequence[Mapping[str, object]]) -> ToolCosts:
        """Return the tool costs; if no model is named, the form of the tools identifies the provider."""
        if not self._knows_model and any("input_schema" in tool for tool in tools):
            return ANY_CLAUDE.tools
        return self.costs.tools

    def schema(self, schema: Mapping[str, object] | None) -> int:
        """Return the tokens of the schema that the reply must follow; None costs nothing."""
        return self.costs.schema.schema(schema, self.text) if schema else 0


def _quoted(part: Part) -> Part:
    """Return the text of a result as the JSON object in which it is sent."""
    if part.media is not None or not part.text or part.text.startswith("{"):
        return part
    return replace(part, text=json.dumps({"output": part.text}, ensure_ascii=False, separators=(",", ":")), tokens=None)


def _found(function: Function, found: frozenset[str]) -> Function:
    return replace(function, deferred=False) if function.deferred and function.name in found else function
