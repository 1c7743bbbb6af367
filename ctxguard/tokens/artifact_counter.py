"""Count the tokens of artifacts, tools, and requests: text with a counter, all else with figures of the model's family.

An artifact is one message, tool result, or instruction of a history (`ctxguard.Artifact`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from weakref import WeakKeyDictionary

from ctxguard.artifacts import BY_POSITION, Artifact, Kind, Part
from ctxguard.tokens.caches import TextCache
from ctxguard.tokens.counters import TokenCounter, valid_count
from ctxguard.tokens.families import ANY_CLAUDE, GENERIC, Costs, ToolCosts
from ctxguard.tokens.media import is_payload, media_tokens
from ctxguard.tokens.schemas import (
    DECLARATIONS,
    PARAMETERS,
    WRAPPED,
    Function,
    Native,
    brings_in,
    compact,
    fields_of,
    functions_of,
    sent_tools,
    server_tool_of,
)

MESSAGE_TOKENS: Final = GENERIC.message
"""Number of framing tokens of a message, including its role, if no model is named."""
REPLY_TOKENS: Final = GENERIC.reply
"""Number of tokens that open the reply, once per request, if no model is named."""


@dataclass(frozen=True, slots=True)
class ToolCount:
    """The number of tokens that tools take.

    Attributes:
        schemas: Number of tokens in the functions as the model sees them.
        hidden: Number of tokens in the prompts that the provider adds for tools.
        uncounted: Types of tools that cannot be counted: unknown tools, and tools that the provider runs and whose
            results it bills with the same request.
    """

    schemas: int = 0
    hidden: int = 0
    uncounted: tuple[str, ...] = ()


_SHARED: WeakKeyDictionary[TokenCounter, TextCache[int]] = WeakKeyDictionary()


def _shared_cache(counter: TokenCounter) -> TextCache[int]:
    try:
        return _SHARED.setdefault(counter, TextCache())
    except TypeError:  # a caller's counter that cannot be hashed or weakly referenced
        return TextCache()


_UNREAD: Final[TextCache[list[str]]] = TextCache()
"""The texts that the rendering of a tool leaves out, by the tool and its rendering: the same for every counter."""


class ArtifactCounter:
    """Counts tokens of artifacts: text, tool-call arguments, names, framing, and media by the provider's rule.

    Counts are cached by text.

    Args:
        counter: Token counter for text.
        cache: Cache of counts; None means a cache that all users of the same counter share.
    """

    def __init__(self, counter: TokenCounter, *, cache: TextCache[int] | None = None) -> None:
        self.counter = counter
        self.costs: Costs = getattr(counter, "costs", GENERIC)
        self._knows_model = hasattr(counter, "costs")
        self._remembers = not getattr(counter, "learns", False)
        self._framing = {Kind.SYSTEM: self.costs.system, Kind.TOOL: self.costs.result}
        self.cache: TextCache[int] = _shared_cache(counter) if cache is None else cache

    def text(self, text: str) -> int:
        """Return the number of tokens in a text, without framing."""
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
        """Return the number of tokens in an artifact: its own `token_count`, or else a count that includes framing.

        If the artifact is a changed copy of one with a `token_count`, that number is scaled by the ratio of the counts
        of the copy and the original.
        """
        if artifact.token_count is not None:
            return artifact.token_count
        tokens: int | None = artifact.memo.get(self.counter) if self._remembers else None  # type: ignore[assignment]  # only counts are stored under a counter
        if tokens is None:
            origin = artifact.origin
            tokens = self.measured(artifact)
            if origin is not None and origin.token_count is not None:
                tokens = -(-origin.token_count * tokens // max(self.measured(origin), 1))
            if self._remembers:
                artifact.memo.keep(self.counter, tokens)
        return tokens

    def measured(self, artifact: Artifact) -> int:
        """Return the number of tokens in an artifact with its framing. The artifact's own `token_count` is ignored."""
        costs = self.costs
        total = self._framing.get(artifact.kind, costs.message)
        content = artifact.content
        if artifact.kind is Kind.TOOL and costs.quotes_results:
            content = tuple(map(_quote, (Part("text", content),) if isinstance(content, str) else content))
        total += self.text(content) if isinstance(content, str) else sum(map(self.part, content))
        if content and artifact.kind is Kind.ASSISTANT:
            total += costs.channel
        for call in artifact.calls:
            total += costs.call + (1 + costs.call_names) * self.text(call.name) + self.text(call.arguments)
        if len(artifact.calls) > 1:
            total += costs.parallel * len(artifact.calls)
        if artifact.name is not None and (artifact.kind is not Kind.TOOL or artifact.answers == BY_POSITION):
            total += costs.name + self.text(artifact.name)
        for field in artifact.fields:
            total += self.text(field.text) if field.tokens is None else field.tokens
        return max(total, 0)  # the framing of a tool result may be negative

    def part(self, part: Part) -> int:
        """Return the number of tokens in one content part; media are counted by the rule of the model's provider."""
        if part.media is not None:
            return media_tokens(part.media, self.costs)
        if part.tokens is not None:
            return part.tokens
        return 0 if part.text is None else self.text(part.text)

    def artifacts(self, artifacts: Iterable[Artifact]) -> int:
        """Return the number of tokens in several artifacts, without the tokens that open the reply."""
        counter, total = self.counter, 0
        for artifact in artifacts:
            # nearly all artifacts of a history were counted before; this lookup saves a function call for each of them
            tokens = artifact.token_count
            if tokens is None:
                tokens = artifact.memo.get(counter) if self._remembers else None  # type: ignore[assignment]  # only counts are stored under a counter
            total += self.artifact(artifact) if tokens is None else tokens
        return total

    def beside(self, instructions: str | None = None) -> int:
        """Return the number of tokens of the instructions, and of the start of the reply that the provider adds.

        Args:
            instructions: System prompt that is sent in a separate field; None or empty means that there is none.
        """
        return self.costs.reply + (self.costs.system + self.text(instructions) if instructions else 0)

    def tools(self, tools: Sequence[Mapping[str, object]] | None) -> int:
        """Return the number of tokens that tools take: their schemas as the model sees them, and hidden prompts.

        Args:
            tools: Tools in the format of any API. None and an empty list cost nothing.

        Raises:
            ConfigError: If `tools` is not a list, or an item is not a schema or cannot be written as JSON.
        """
        if tools in (None, (), []):
            return 0
        counted = self.count_tools(tools)
        return counted.schemas + counted.hidden

    def count_tools(
        self, tools: object, *, choice: str = "auto", found: frozenset[str] = frozenset(), has_system: bool = False
    ) -> ToolCount:
        """Return the number of tokens that tools take, by purpose.

        Args:
            tools: Tools in the format of any API.
            choice: `tool_choice` of the request as one word: `auto`, `none`, `required`, or `named`.
            found: Names of deferred functions that a tool search has already loaded.
            has_system: Whether the request has a system prompt, which for some models changes the hidden prompt.
        """
        sent = sent_tools(tools)
        by_provider = getattr(self.counter, "tool_tokens", None)
        known = by_provider(sent) if sent and by_provider is not None else None
        if isinstance(known, int):
            return ToolCount(schemas=known)
        costs = self._tool_costs(sent)
        is_seen = choice != "none" or costs.seen_if_none
        seen = sent if is_seen else []
        functions = [_load_if_found(function, found) for tool in seen for function in functions_of(tool)]
        kinds = [kind for tool in sent if (kind := server_tool_of(tool)) is not None]
        prompts = [costs.server_tool(kind) for kind in kinds]
        return ToolCount(
            schemas=costs.functions(functions, self.text) + sum(self._unread_in(tool, costs, found) for tool in seen),
            hidden=costs.hidden(functions, choice, has_system=has_system) + sum(prompt or 0 for prompt in prompts),
            uncounted=tuple(k for k, prompt in zip(kinds, prompts, strict=True) if prompt is None or brings_in(k)),
        )

    def _unread_in(self, tool: Mapping[str, object], costs: ToolCosts, found: frozenset[str]) -> int:
        """Return the number of tokens in the texts of a tool that its rendering leaves out, see `unread_in_tool`."""
        key = compact((costs.rendering, sorted(found), tool))
        texts = _UNREAD.get(key)
        if texts is None:
            own = (_load_if_found(function, found) for function in functions_of(tool))
            texts = unread_in_tool(tool, "\n".join(costs.rendered(own)), found)
            _UNREAD.put(key, texts)
        return sum(map(self.text, texts))

    def brought_tools(self, tools: Sequence[Mapping[str, object]]) -> ToolCount:
        """Return the number of tokens that tools defined inside messages take, including their hidden prompt."""
        counted = self.count_tools(tools)
        late = self.costs.tools.late
        return counted if late is None or not counted.schemas else replace(counted, hidden=late)

    def _tool_costs(self, tools: Sequence[Mapping[str, object]]) -> ToolCosts:
        """Return the cost figures for tools; if no model is named, the format of the tools identifies the provider."""
        if not self._knows_model and any("input_schema" in tool for tool in tools):
            return ANY_CLAUDE.tools
        return self.costs.tools

    def schema(self, schema: Mapping[str, object] | None) -> int:
        """Return the number of tokens in the schema that the reply must follow; 0 for None."""
        return self.costs.schema.schema(schema, self.text) if schema else 0

    def fields(self, fields: Mapping[str, object], read: Iterable[object] = ()) -> int:
        """Return the number of tokens in the texts of fields that nothing else counts, see `unread_texts`."""
        return sum(map(self.text, unread_texts(fields, read)))


def _quote(part: Part) -> Part:
    """Wrap the text of a tool result in the JSON object in which it is sent."""
    if part.media is not None or not part.text or part.text.startswith("{"):
        return part
    return replace(part, text=json.dumps({"output": part.text}, ensure_ascii=False, separators=(",", ":")), tokens=None)


def _load_if_found(function: Function, found: frozenset[str]) -> Function:
    return replace(function, deferred=False) if function.deferred and function.name in found else function


_FRAMING: Final = 128
"""Maximum number of characters in the texts of a field that cost no tokens, such as the name of a choice."""
_GRAMMAR: Final = 1_024
"""Maximum number of characters in the short texts of a schema, each counted once, that may be its grammar: keywords,
references, and the titles that generators derive from names."""
_READ: Final = frozenset({"name", "type", "description", "format", *PARAMETERS})
"""Keys of a function that its rendering contains."""
_DEEPEST: Final = 1_000
_HOLDERS: Final = (*DECLARATIONS, *WRAPPED, "tools")


def texts_in(value: object) -> Iterator[str]:
    """Yield the strings in a value: keys, and values that are no data of media. Keys that are numbers are left out.

    Raises:
        RecursionError: If the value contains itself, or is nested too deeply to be written as JSON.
    """
    stack = [(value, 0)]
    while stack:
        one, depth = stack.pop()
        if depth > _DEEPEST:
            raise RecursionError
        if isinstance(one, str):
            if one and not is_payload(one):
                yield one
        elif isinstance(one, (list, tuple)):
            stack += [(member, depth + 1) for member in reversed(one)]
        else:
            for key, member in fields_of(one).items():
                if not str(key).lstrip("-").isdigit():  # such as the tokens of `logit_bias`
                    yield str(key)
                stack.append((member, depth + 1))


def unread_texts(fields: Mapping[str, object], read: Iterable[object] = ()) -> list[str]:
    """Return the texts in the fields of a request that are longer than framing, field by field.

    Args:
        fields: The fields, by their names.
        read: The parts of the fields that are counted elsewhere.
    """
    counted = Counter(text for one in read for text in texts_in(one))
    unread: list[str] = []
    for value in fields.values():
        found = []
        for text in texts_in(value):
            if counted[text]:
                counted[text] -= 1
            else:
                found.append(text)
        if sum(map(len, found)) > _FRAMING:
            unread += found
    return unread


def unread_in_tool(tool: Native, rendered: str, loaded: Container[object] = ()) -> list[str]:
    """Return the texts in a tool that are longer than framing, and that its rendering does not contain.

    Args:
        tool: The tool in the format of any API.
        rendered: The functions of the tool, as the model sees them.
        loaded: Names of deferred functions that a tool search has loaded; the model sees no others.
    """
    if tool.get("defer_loading") is True and tool.get("name") not in loaded:
        return []
    rest: dict[str, object] = {}
    left_out: list[str] = []
    for key, value in tool.items():
        if key in _HOLDERS and (isinstance(value, Mapping) or _is_list_of_records(value)):
            inner = [value] if isinstance(value, Mapping) else value
            left_out += [text for one in inner for text in unread_in_tool(one, rendered, loaded)]  # type: ignore[attr-defined]
        elif key in _READ:
            left_out += _left_out(value, rendered)
        else:
            rest[key] = value
    return left_out + unread_texts({"": rest})


def _left_out(value: object, rendered: str) -> list[str]:
    """Return the texts in what a rendering should contain, such as a schema, that it does not contain."""
    hidden = [text for text in texts_in(value) if not _is_shown(text, rendered)]
    short = list(dict.fromkeys(text for text in hidden if len(text) <= _FRAMING))
    return [text for text in hidden if len(text) > _FRAMING] + (short if sum(map(len, short)) > _GRAMMAR else [])


def _is_list_of_records(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, Mapping) for one in value)


def _is_shown(text: str, rendered: str) -> bool:
    escaped, lines = compact(text)[1:-1], [line.strip() for line in text.splitlines()]
    return escaped in rendered or all(line in rendered for line in lines)


_LEAST_COUNTED: Final = 500
"""Prompts with fewer tokens are not compared, because too many of their tokens are around messages (roles,
separators)."""
_MOST_CORRECTION: Final = 2.5  # a larger factor means that another prompt was counted: no tokenizers differ so much
_PLAIN_EXCESS: Final = 0.2
"""A reported count that exceeds ours by at most this share of the budget is trusted to be that of the same prompt."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """How the token counts that the provider reported for prompts compare with ours.

    A reported count slightly above ours is accepted, because tokenizers differ. A much larger count may belong to
    another prompt, such as a history that was sent without ctxguard, or that was not yet cut. In that case, the
    correction is computed from the growth of both counts between two replies.

    Attributes:
        correction: Number of tokens that the provider counts for each token that we count, from 1 to 2.5.
        latest: The reported count and our count of the latest comparison of whole prompts; None before the first.
        anchor: The reported count and our count of the first comparison since the prompt last changed other than at its
            end. Growth is measured from there. None if there was no comparison since.
    """

    correction: float = 1.0
    latest: tuple[int, int] | None = None
    anchor: tuple[int, int] | None = None

    def with_comparison(self, reported: int, counted: int, budget: int, *, is_exact: bool = True) -> Calibration:
        """Return the calibration after one more comparison.

        Args:
            reported: Number of input tokens that the provider reported for a call.
            counted: Number of tokens that we count in the prompt of that call.
            budget: Number of tokens that a prompt may have.
            is_exact: Whether `counted` is the count of the whole prompt. After a cut it is an upper bound, because
                shortened texts are only known by their limits. Then only the growth since the anchor is compared, to
                which both counts add the same.
        """
        if counted < _LEAST_COUNTED:
            return self
        correction = self.correction
        if is_exact and reported - counted <= _PLAIN_EXCESS * budget:
            correction = reported / counted
        # The reported count may belong to another prompt; the growth since the anchor is reliable even then.
        elif self.anchor is not None and counted - self.anchor[1] >= _LEAST_COUNTED:
            correction = (reported - self.anchor[0]) / (counted - self.anchor[1])
        return Calibration(
            # Never below 1: too high a count only wastes tokens, but after too low a count the provider may refuse.
            min(_MOST_CORRECTION, max(1.0, correction)),
            (reported, counted) if is_exact else self.latest,
            self.anchor or (reported, counted),
        )

    def begun_anew(self) -> Calibration:
        """Return the calibration after something in the prompt was shortened, evicted, or recalled.

        From then on, growth is measured from the next comparison.
        """
        return self if self.anchor is None else replace(self, anchor=None)

    def to_details(self) -> dict[str, int | float | None]:
        """Return the latest comparison, for the details of a report; an empty dict before the first comparison."""
        if self.latest is None:
            return {}
        reported, counted = self.latest
        error = round(counted / reported - 1, 4) if reported else None
        return {"reported": reported, "counted": counted, "error": error}
