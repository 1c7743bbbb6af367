"""Meter the tokens that providers report in their answers, as these pass: by model, credential, and session."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ctxguard.adapting.fields import member_at
from ctxguard.errors import WireError
from ctxguard.formats.format import records_of
from ctxguard.report.telemetry import export
from ctxguard.wire.events import EventSplitter, data_of

if TYPE_CHECKING:
    from ctxguard.wire.metrics import Metrics
    from ctxguard.wire.sessions import Owner

_MOST: Final = 8_000_000
"""Bytes of an answer or of an event that are looked at; what a longer one reports is not known."""
_PLACES: Final = (("usage",), ("usageMetadata",), ("response", "usage"), ("message", "usage"))
"""Where answers and their events have what was used."""
_INNER: Final = ("prompt_tokens_details", "input_tokens_details", "tokens")
"""Where a part of it stands apart."""
_NAMES: Final = {
    "input": "input_tokens prompt_tokens promptTokenCount inputTokens",
    # Anthropic and Amazon count these beside the rest of the input
    "read": "cache_read_input_tokens cacheReadInputTokens",
    "written": "cache_creation_input_tokens cacheWriteInputTokens",
    "cached": "cached_tokens cachedContentTokenCount",
    "thoughts": "thoughtsTokenCount",  # Gemini's output beside the rest of it
    "output": "output_tokens completion_tokens candidatesTokenCount outputTokens",
}
_KINDS: Final = {name: kind for kind, names in _NAMES.items() for name in names.split()}
_SHOWN: Final = 8
"""Characters of a hash that are shown."""
_UNSAFE: Final = re.compile(r"[^\w./:@+-]")


def label_of(model: str, owner: Owner) -> str:
    """Return the labels under which what is billed is counted: hashes stand for the credential and for the session."""
    named = hashlib.sha256(f"{owner.scope} {owner.session}".encode("utf-8", "surrogatepass")).hexdigest()[:_SHOWN]
    session = "" if owner.session is None else f'session="{named}",'
    return f'model="{_UNSAFE.sub("_", model[:64])}",key="{owner.scope[:_SHOWN]}",{session}kind'


def usage_of(answer: object) -> dict[str, int]:
    """Return the tokens that an answer or an event of one reports; empty where it reports nothing.

    `input` is all of it, `cached` and `written` are what was read from a cache and written to one.
    """
    places = (member_at(answer, place) for place in _PLACES)
    used = next((record for record in places if isinstance(record, Mapping)), {})
    counts: Counter[str] = Counter()
    for record in (used, *(inner for name in _INNER if isinstance(inner := used.get(name), Mapping))):
        known = {name: count for name, count in record.items() if name in _KINDS and isinstance(count, int)}
        for name, count in known.items():
            counts[_KINDS[name]] = max(count, counts[_KINDS[name]])  # some gateways say it by two names
    beside = counts["read"] + counts["written"]
    found = {"input": counts["input"] + beside, "cached": counts["cached"] + counts["read"]}
    return {**found, "written": counts["written"], "output": counts["output"] + counts["thoughts"]} if used else {}


class Billed:
    """Find the tokens that a provider reports in an answer, as it passes, and count them.

    Args:
        metrics: Where they are counted.
        label: Whose they are, see `label_of`.
    """

    def __init__(self, metrics: Metrics, label: str = "kind") -> None:
        self._metrics, self._label = metrics, label
        self._begun, self._is_lost = b"", False
        self._splitter: EventSplitter | None = None
        self._most: dict[str, int] = {}

    def feed(self, chunk: bytes) -> None:
        """Look at some of the body."""
        if self._is_lost:
            return
        if self._splitter is None:
            self._begun += chunk[: _MOST - len(self._begun)]
            if self._begun.lstrip()[:1] in (b"", b"{", b"["):
                return
            self._splitter, chunk = EventSplitter(_MOST), self._begun
        try:
            self._note(raw for raw in self._splitter.feed(chunk) if b"sage" in raw)
        except WireError:  # no events, or one that is too large: that is for others to say
            self._is_lost = True

    def close(self) -> None:
        """Add what was found to the metrics."""
        if self._splitter is not None:
            self._note([self._splitter.close() + b"\n\n"])
        else:
            self._note_whole()
        for kind, count in self._most.items():
            self._metrics.add("billed_tokens_total", self._label, kind, count=count)
            export("billed.tokens", count, {"kind": kind})
        self._begun, self._most, self._splitter = b"", {}, None

    def _note_whole(self) -> None:
        try:
            answer = json.loads(self._begun or b"null")
        except (ValueError, RecursionError):
            return
        for one in records_of(answer):  # some streams of Gemini's are one list
            self._take(one)

    def _note(self, events: Iterable[bytes]) -> None:
        for event in filter(None, map(data_of, events)):
            self._take(event)

    def _take(self, answer: Mapping[str, object]) -> None:
        """Take in what is reported; the events of a stream repeat counts that grow."""
        for kind, count in usage_of(answer).items():
            self._most[kind] = max(count, self._most.get(kind, 0))
