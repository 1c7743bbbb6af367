"""Explain why a provider's prompt cache served fewer tokens of a prompt than earlier responses promised.

A prompt cache stores the prompts of answered requests for a while. If a later prompt begins like one of them, the cache
serves the beginning that both share. Each request is identified by a chain of hashes over its messages, so the longest
answered request that it continues can be found.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ctxguard.adapting.fields import member_at
from ctxguard.artifacts import Artifact, Kind
from ctxguard.tokens.caches import Recent
from ctxguard.tokens.families import CACHES
from ctxguard.wire.checking import Values

if TYPE_CHECKING:
    from ctxguard.formats.format import Body, Format
    from ctxguard.report import Report
    from ctxguard.report.telemetry import Metrics
    from ctxguard.wire.sessions import Owner


PROVIDERS: Final = {"chat": "openai", "responses": "openai", "anthropic": "anthropic", "gemini": "google"}
"""The provider of each API, as a word that occurs in the provider's host name."""
_MARKED: Final = ("anthropic", "converse")
"""APIs whose caches store only the prefixes that a client marks, and that report how many tokens were written."""
_LONGER: Final = 3_600.0
"""Number of seconds for which Anthropic keeps a prefix that is marked for an hour."""
_FOR_AN_HOUR: Final = re.compile(rb'"ttl"\s*:\s*"1h"')
"""Matches, in the body of a request, a mark that keeps a prefix for an hour."""
_NAMED: Final = ("cachedContent", "cached_content")
"""Fields of a request that name a beginning of the prompt which the provider stores: Gemini's explicit caches."""
_REMEMBERED: Final = 16_384
"""Maximum number of answered requests that are remembered."""
_LOG: Final = logging.getLogger("ctxguard.wire")


@dataclass(slots=True)
class AnsweredRequest:
    """A request that was answered.

    Attributes:
        at: When the request was answered, in seconds of `time.monotonic`.
        read: Number of input tokens that the provider reported.
        cached: Number of these tokens that the provider's cache stores after the response.
        fixed: Hash of the model and of everything that precedes the first message of the user.
        is_latest: Whether no later answered request continues this one.
    """

    at: float
    read: int
    cached: int
    fixed: bytes
    is_latest: bool = True


class Caches:
    """The known contents of the providers' prompt caches. Thread-safe, with bounded memory."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.answered: Recent[bytes, AnsweredRequest] = Recent(_REMEMBERED)
        self.sent: Recent[bytes, bool] = Recent(_REMEMBERED)
        self.serves: Recent[str, bool] = Recent(_REMEMBERED)
        """Whether the cache of a model serves tokens at all: True once it has served any.

        False if it has served none, and the log has a message about this. The message is then not repeated.
        """
        self.sizes: Recent[str, int] = Recent(_REMEMBERED)
        """Number of tokens of the named beginnings of prompts, by sender and name, as the provider reported them."""
        self._values = Values()

    def named(self, kind: Format, body: Body, owner: Owner) -> str | None:
        """Return what identifies the beginning of the prompt that a request names; None if it names none."""
        name = next((body[key] for key in _NAMED if body.get(key)), None) if kind.api == "gemini" else None
        return None if name is None else f"{owner.scope} {name}"

    def opening(self, kind: Format, body: Body, owner: Owner) -> bytes:
        """Return a hash that identifies a conversation, computed from its sender and its first message from a user."""
        members, opening = _opening_of(kind, body)
        parts = [owner.scope, owner.session, kind.api, members[opening : opening + 1]]
        return blake2b(self.bytes(parts), digest_size=16).digest()

    def bytes(self, value: object) -> bytes:
        """Return bytes that are the same for two JSON values if these are equal apart from cache markers."""
        return (self._values.key(_without_markers(value)) or "").encode("latin-1")


class Prompt:
    """The prompt of one request, compared with what the provider's cache should contain.

    Args:
        caches: Stores the answered requests.
        kind: The format of the request.
        body: The body of the request, as the client sent it.
        model: The name of the model in the request.
        opened: The hash of the conversation's opening, see `Caches.opening`.
        named: What identifies the beginning of the prompt that the request names, see `Caches.named`.

    Attributes:
        is_first: Whether the request continues no request that was sent before.
    """

    def __init__(
        self, caches: Caches, kind: Format, body: Body, model: str, opened: bytes, named: str | None = None
    ) -> None:
        self._caches, self._kind, self._opened, self._model, self._named = caches, kind, opened, model, named
        members, opening = _opening_of(kind, body)
        fixed = {key: body.get(key) for key in (*kind.taken, *kind.system, *kind.billed)}
        chain = blake2b(caches.bytes([model, named, fixed, members[:opening]]), digest_size=16)
        self._fixed, self._members = chain.digest(), members[opening:]
        self._prefixes = [self._fixed, *(self._extend(chain, member) for member in self._members)]
        self._known = [caches.answered.get(opened + prefix) for prefix in self._prefixes]
        self._continued = next(filter(None, reversed(self._known)), None)
        self._extends = self._continued is not None and self._continued.is_latest
        self._before = self._continued if self._extends else caches.answered.get(opened)
        self._age = 0.0 if self._before is None else monotonic() - self._before.at
        self.is_expired = self._is_cut = False
        # Independent of the sender: if a header changes with each request, a cut must still be counted only once.
        self.is_first = not any(map(caches.sent.get, self._prefixes[:-1]))

    def _extend(self, chain: blake2b, member: object) -> bytes:
        chain.update(self._caches.bytes(member))
        return chain.digest()

    def note_sent(self, report: Report, asked: bytes) -> None:
        """Record that the request is sent.

        Args:
            report: The report on the request.
            asked: The body of the request, as the client sent it.
        """
        lifetime = CACHES.get(PROVIDERS.get(self._kind.api, "anthropic"), (0, 0, 300.0))[2]
        self.is_expired = self._age > (_LONGER if _FOR_AN_HOUR.search(asked) else lifetime)
        self._is_cut = not report.observed and report.cut is not None and report.cut.rebilled > 0
        self._caches.sent.put(self._prefixes[-1], value=True)

    def anchored(self, artifacts: Iterable[Artifact]) -> list[Artifact]:
        """Return the history with reported token counts.

        If a reply in the history answers a request whose token count is known, the reply gets the number of input
        tokens that the provider reported for this request (`Artifact.reported`).
        """
        found, before, place = list(artifacts), object(), -1
        for number, artifact in enumerate(found):
            source = artifact.source
            message = source[0] if isinstance(source, tuple) and source else getattr(source, "message", source)
            if message is before:  # not the first artifact of its message
                continue
            before = message
            here = next((p for p in range(place + 1, len(self._members)) if self._members[p] is message), None)
            place = place if here is None else here
            known = None if here is None else self._known[here]
            if known is not None and artifact.kind is Kind.ASSISTANT:
                found[number] = replace(artifact, reported=known.read)
        return found

    def note_usage(self, usage: Mapping[str, int], diagnosis: Diagnosis | None = None) -> None:
        """Compare the reported token counts with the expected ones, and record what the provider's cache contains.

        Args:
            usage: The token counts that the provider reported, see `ctxguard.wire.metering.usage_of`.
            diagnosis: What the provider says about its cache. None if the client did not ask for it.
        """
        cached = usage.get("cached", 0)
        if cached:
            self._caches.serves.put(self._model, value=True)
        expected = 0 if self._before is None else self._before.cached
        self._caches.metrics.add("cache.expected.tokens", expected)
        missed = expected - cached if diagnosis is None else diagnosis.missed
        if missed >= (CACHES["openai"][0] if diagnosis is None else 1):
            reason = self._reason() if diagnosis is None else self._reason_of(diagnosis)
            self._caches.metrics.add("cache.misses", reason=reason)
            self._caches.metrics.add("cache.missed.tokens", missed, reason=reason)
            serves = self._caches.serves.get(self._model)
            if serves is None:
                self._caches.serves.put(self._model, value=False)
            if serves is not False:  # only one message for a provider that reports 0 cached tokens each time
                _LOG.info("the provider's cache served %d tokens less than before: %s", missed, reason)
        held = cached + usage["written"] if self._kind.api in _MARKED else usage["input"] if "cached" in usage else 0
        if self._named is not None and cached:
            # The least is the named beginning alone: the provider may also serve what follows from a cache of its own.
            held = min(cached, self._caches.sizes.get(self._named) or cached)
            self._caches.sizes.put(self._named, held)
        now = AnsweredRequest(monotonic(), usage["input"], held, self._fixed)
        if self._continued is not None:
            self._continued.is_latest = False
        self._caches.answered.put(self._opened + self._prefixes[-1], now)
        self._caches.answered.put(self._opened, now)

    def _reason(self) -> str:
        """Return why the cache served fewer tokens than expected.

        The reason "fixed_parts" means that the client changed the system prompt, the tools, or the model.
        """
        if self.is_expired:
            return "expired"
        if self._is_cut:
            return "cut"
        if self._extends or self._before is None:
            return "unknown"
        return "history" if self._before.fixed == self._fixed else "fixed_parts"

    def _reason_of(self, diagnosis: Diagnosis) -> str:
        """Return why the cache served fewer tokens, as the provider says. Only the guard knows whether a cut did it."""
        return "cut" if diagnosis.reason == "history" and self._is_cut else diagnosis.reason


_DIAGNOSES: Final = {
    **dict.fromkeys(("messages_changed", "input_changed"), "history"),
    **dict.fromkeys(("system_changed", "tools_changed", "model_changed", "text_format_changed"), "fixed_parts"),
    **dict.fromkeys(("reasoning_effort_changed", "verbosity_changed"), "fixed_parts"),
    **dict.fromkeys(("prompt_cache_key_changed", "service_tier_changed"), "routing"),
    "context_compacted": "compacted",
}
"""What the reasons of Anthropic's and OpenAI's cache diagnoses mean here."""
_DIAGNOSED: Final = (
    *(("diagnostics", "cache_miss_reason"), ("message", "diagnostics", "cache_miss_reason")),
    *(("prompt_cache_diagnostics",), ("response", "prompt_cache_diagnostics")),
)
"""Places of the diagnoses in responses and events."""


class Diagnosis(NamedTuple):
    """What a provider says about a request whose prompt its cache did not serve in full.

    Attributes:
        reason: Why: `history`, `fixed_parts`, `compacted`, or `routing` (the cache key or the service tier changed).
        missed: Number of tokens that the cache would otherwise have served, as the provider estimates.
    """

    reason: str
    missed: int


def diagnosis_of(answer: object) -> Diagnosis | None:
    """Return the cache diagnosis in a response or an event; None if there is none, or it says nothing.

    Sources: `CacheMissReason` of anthropic 2.14.0, and `PromptCacheDiagnostics` of openai 3.57.0.
    """
    for place in _DIAGNOSED:
        found = member_at(answer, place)
        if not isinstance(found, Mapping):
            continue
        counts = (found.get(key) for key in ("cache_missed_input_tokens", "cache_missed_tokens"))
        missed = next((count for count in counts if isinstance(count, int)), 0)
        reason = _DIAGNOSES.get(str(found.get("reason") or found.get("type")))
        if reason is not None:
            return Diagnosis(reason, missed)
        if found.get("type") == "cache_hit":
            return Diagnosis("", 0)
    return None


def _opening_of(kind: Format, body: Body) -> tuple[list[object], int]:
    """Return the history in a body, and the position of the first message from a user."""
    held = body.get(kind.history)
    members = held if isinstance(held, list) else [held]
    return members, next((n for n, m in enumerate(members) if isinstance(m, dict) and m.get("role") == "user"), 0)


_MARKS: Final[Mapping[str, Mapping[str, object]]] = {
    "cache_control": {"type": "ephemeral"},
    "prompt_cache_breakpoint": {"mode": "explicit"},
}
"""The keys of cache breakpoints, with the values that ctxguard writes: that of Anthropic, and that of OpenAI."""


def _without_markers(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a message or a list of messages without cache markers, which clients move from request to request."""
    if isinstance(value, list):
        return [_without_markers(member) for member in value]
    if not isinstance(value, dict):
        return value
    return {k: _without_markers(v) if k == "content" else v for k, v in value.items() if k not in _MARKS}


_VERSION: Final = re.compile(r"(?:^|[/.])gpt-(\d+)(?:\.(\d+))?(?![\d.])")


def takes_breakpoints(api: str, model: str) -> bool:
    """Return whether a request may have cache breakpoints: of Anthropic any, of OpenAI those to `gpt-5.6` and later."""
    version = _VERSION.search(model) if api in ("chat", "responses") else None
    return api == "anthropic" or (version is not None and (int(version[1]), int(version[2] or 0)) >= (5, 6))


def with_breakpoints(body: Mapping[str, object], kind: Format, model: str) -> Mapping[str, object]:
    """Return a request with cache breakpoints: at most four, the maximum of Anthropic and OpenAI.

    Two are at the ends of what cuts do not change: of the system prompt (or of Anthropic's tools if there is none), and
    of the first message from a user. Anthropic gets two more, at the ends of the last two messages with the role
    `user`, with which the previous request and this one usually end. OpenAI writes one at the end of a prompt by
    itself. A request that already has a breakpoint, or says how its breakpoints are chosen, is returned unchanged, and
    so is one to a model without breakpoints.

    Sources: the types `PromptCacheOptions` of openai 3.57.0 and `CacheControlEphemeral` of anthropic 2.14.0.

    Args:
        body: The body of the request.
        kind: Its format.
        model: The name of the model in the request.
    """
    members, system, tools = body.get(kind.history), body.get("system"), body.get("tools")
    options = body.get("prompt_cache_options")
    is_chosen = isinstance(options, dict) and "mode" in options
    if is_chosen or not takes_breakpoints(kind.api, model):
        return body
    if not _MARKS.keys().isdisjoint(body) or _is_marked([system, tools, members]):
        return body
    if kind.api == "responses" and isinstance(members, str):
        members = [{"role": "user", "content": members}]
    if not isinstance(members, list):
        return body
    roles = [one.get("role") if isinstance(one, dict) else None for one in members]
    people = [at for at, role in enumerate(roles) if role == "user"]
    fixed = people[:1]
    if kind.api == "anthropic":
        body, fixed = _marked(body, "system" if system else "tools", kind.api), [*fixed, *people[-2:]]
    else:
        before = roles[: people[0]] if people else roles
        fixed += [at for at, role in enumerate(before) if role in ("system", "developer")][-1:]
    marked = [_marked(one, "content", kind.api) if at in fixed else one for at, one in enumerate(members)]
    return {**body, kind.history: marked}


def _is_marked(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_is_marked, value))
    if not isinstance(value, Mapping):
        return False
    return not _MARKS.keys().isdisjoint(value) or _is_marked([value.get("content"), value.get("source")])


_MARKABLE: Final = ("text", "image_url", "input_audio", "input_text", "input_image", "input_file")
"""The types of the blocks in which OpenAI takes a breakpoint."""


def _marked(record: Mapping[str, object], key: str, api: str) -> Mapping[str, object]:
    """Return a record with a breakpoint on the text, or on the last content block, that it has under `key`.

    If there is none, or the text is empty, the record is returned unchanged.
    """
    value = record.get(key)
    kind = "input_text" if api == "responses" else "text"
    blocks = [{"type": kind, "text": value}] if isinstance(value, str) else value
    if not value or not isinstance(blocks, list) or not isinstance(blocks[-1], dict) or blocks[-1].get("text") == "":
        return record
    mark = "cache_control" if api == "anthropic" else "prompt_cache_breakpoint"
    if api != "anthropic" and blocks[-1].get("type") not in _MARKABLE:
        return record
    return {**record, key: [*blocks[:-1], {**blocks[-1], mark: _MARKS[mark]}]}
