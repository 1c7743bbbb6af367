"""Choose the counter for the model of a request, and add up the token counts that providers report."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from ctxguard.adapting.fields import member_at, parse_json
from ctxguard.errors import WireError
from ctxguard.formats.format import records_of
from ctxguard.tokens import ArtifactCounter, find_counter
from ctxguard.tokens.families import family_of
from ctxguard.wire.caches import diagnosis_of
from ctxguard.wire.events import ServerSentEvents

if TYPE_CHECKING:
    from ctxguard.report.telemetry import Metrics
    from ctxguard.wire.caches import Diagnosis, Prompt
    from ctxguard.wire.sessions import Owner


_IN_PATH: Final = re.compile(r"/(?:models?|deployments)/([^/]+?)(?::[A-Za-z]\w*)?(?:/|\Z)")
"""Matches the part of a path that names the model, for Gemini, Vertex, Bedrock, and Azure."""


def model_of(body: Mapping[str, object], path: str) -> str:
    """Return the name of the model in a request, from its path or its body; an empty string if neither names one."""
    named = _IN_PATH.search(path)
    model = body.get("model") if named is None else unquote(named[1])
    return model if isinstance(model, str) else ""


class Counters:
    """Chooses a token counter for the model of each request, so that a body is counted as it is billed.

    Args:
        counter: The counter of the stabilizer. If it is specific to a model, it is used for all requests.
    """

    def __init__(self, counter: ArtifactCounter) -> None:
        self._own = counter
        is_usual = counter.counter is find_counter("auto")
        self._asked = "auto" if is_usual else counter.counter
        self._by_family: dict[str, ArtifactCounter] = {}

    def of(self, model: str) -> ArtifactCounter:
        """Return the counter for requests to a model. Models of one family share a counter."""
        if not model or hasattr(self._own.counter, "family"):
            return self._own
        family = family_of(model).name
        if family not in self._by_family:
            self._by_family[family] = ArtifactCounter(find_counter(self._asked, model=model))
        return self._by_family[family]


_MOST: Final = 8_000_000
"""Maximum number of bytes of a response or of an event that are searched for token counts."""
_PLACES: Final = (("usage",), ("usageMetadata",), ("response", "usage"), ("message", "usage"))
"""Places of the token counts in responses and events."""
_INNER: Final = ("prompt_tokens_details", "input_tokens_details", "tokens")
"""Keys of the records that break down the token counts."""
_NAMES: Final = {
    "input": "input_tokens prompt_tokens promptTokenCount inputTokens prompt_eval_count",
    # Anthropic and Amazon count these separately from the rest of the input
    "read": "cache_read_input_tokens cacheReadInputTokens",
    "written": "cache_creation_input_tokens cacheWriteInputTokens",
    "cached": "cached_tokens cachedContentTokenCount",
    "thoughts": "thoughtsTokenCount",  # Gemini counts this separately from the rest of the output
    "output": "output_tokens completion_tokens candidatesTokenCount outputTokens eval_count",
}
_KINDS: Final = {name: kind for kind, names in _NAMES.items() for name in names.split()}
_SHOWN: Final = 8
"""Number of characters of a hash that are shown."""
_UNSAFE: Final = re.compile(r"[^\w./:@+-]")


def model_name(model: str) -> str:
    """Return the name of a model as a label, with unusual characters replaced."""
    return _UNSAFE.sub("_", model[:64])


def labels_of(model: str, owner: Owner) -> dict[str, str]:
    """Return the labels for counting billed tokens: the model, and hashes of the credential and of the session."""
    named = hashlib.sha256(f"{owner.scope} {owner.session}".encode("utf-8", "surrogatepass")).hexdigest()[:_SHOWN]
    session = {} if owner.session is None else {"session": named}
    return {"model": model_name(model), "key": owner.scope[:_SHOWN], **session}


def usage_of(answer: object) -> dict[str, int]:
    """Return the token counts that a response or an event reports; empty if it reports none.

    `input` is the total number of input tokens. `cached` (missing if the provider reports nothing about caches) and
    `written` are the numbers of tokens read from and written to a cache.
    """
    places = (member_at(answer, place) for place in _PLACES)
    bare = answer if isinstance(answer, Mapping) and "eval_count" in answer else {}  # Ollama's response itself
    used = next((record for record in places if isinstance(record, Mapping)), bare)
    counts: Counter[str] = Counter()
    for record in (used, *(inner for name in _INNER if isinstance(inner := used.get(name), Mapping))):
        known = {name: count for name, count in record.items() if name in _KINDS and isinstance(count, int)}
        for name, count in known.items():
            counts[_KINDS[name]] = max(count, counts[_KINDS[name]])  # some gateways report a count under two names
    separate = counts["read"] + counts["written"]
    found = {"input": counts["input"] + separate, "output": counts["output"] + counts["thoughts"]}
    if {"cached", "read"} & counts.keys():  # some servers report nothing about caches
        found["cached"] = counts["cached"] + counts["read"]
    return {**found, "written": counts["written"]} if used else {}


@dataclass(slots=True, eq=False)
class Billed:
    """Reads the token counts that a provider reports in a response while it is passed on, and adds them to the metrics.

    Attributes:
        metrics: Receives the counts.
        labels: The labels of the counts, see `labels_of`.
        prompt: The prompt of the request, if prompt caches are observed.
        is_hidden: Whether the response continues an earlier one, so that the client sees both as one response.
        reported: The token counts of the response, once `close` was called.
    """

    metrics: Metrics
    labels: Mapping[str, str] = field(default_factory=dict)
    prompt: Prompt | None = None
    is_hidden: bool = False
    reported: Mapping[str, int] = field(default_factory=dict, init=False)
    _most: dict[str, int] = field(default_factory=dict, init=False)
    _diagnosis: Diagnosis | None = field(default=None, init=False)
    _begun: bytes = field(default=b"", init=False)
    _is_lost: bool = field(default=False, init=False)
    _splitter: ServerSentEvents | None = field(default=None, init=False)

    def feed(self, chunk: bytes) -> None:
        """Search the next bytes of the body."""
        if self._is_lost:
            return
        if self._splitter is None:
            self._begun += chunk[: _MOST - len(self._begun)]
            if self._begun.lstrip()[:1] in (b"", b"{", b"["):
                return
            self._splitter, chunk = ServerSentEvents(_MOST), self._begun
        try:
            self._note(raw for raw in self._splitter.feed(chunk) if b"sage" in raw)
        except WireError:  # not an event stream, or an event is too large, which is reported elsewhere
            self._is_lost = True

    def close(self) -> None:
        """Add the reported token counts to the metrics."""
        if self._splitter is not None:
            self._note([self._splitter.close() + b"\n\n"])
        else:
            body = self._begun.decode("utf-8", "replace")
            # Gemini may stream a list; the last of JSON lines has the counts
            for one in records_of(parse_json(body) or parse_json(body.rstrip().rpartition("\n")[2])):
                self._take(one)
        for kind, count in self._most.items():
            self.metrics.add("billed.tokens", count, **self.labels, kind=kind)
        if self._most:
            self.metrics.add("billed.answers", int(not self.is_hidden), **self.labels)
            self.reported = self._most
            if self.prompt is not None:
                self.prompt.note_usage(self._most, self._diagnosis)
        self._begun, self._most, self._splitter = b"", {}, None

    def _note(self, events: Iterable[bytes]) -> None:
        for event in filter(None, map(ServerSentEvents.data_of, events)):
            self._take(event)

    def _take(self, answer: Mapping[str, object]) -> None:
        """Record the counts in a response or event. Counts may grow during a stream, so the largest of each is kept."""
        self._diagnosis = diagnosis_of(answer) or self._diagnosis
        for kind, count in usage_of(answer).items():
            self._most[kind] = max(count, self._most.get(kind, 0))
