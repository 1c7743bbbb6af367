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
from typing import TYPE_CHECKING, Any, Final

from ctxguard.adapting.recent import Recent
from ctxguard.artifacts import Artifact, Kind
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
        self._values = Values()

    def opening(self, kind: Format, body: Body, owner: Owner) -> bytes:
        """Return a hash that identifies a conversation, computed from its sender and its first message from a user."""
        members, opening = _opening_of(kind, body)
        told = [owner.scope, owner.session, kind.api, members[opening : opening + 1]]
        return blake2b(self.bytes(told), digest_size=16).digest()

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

    Attributes:
        is_first: Whether the request continues no request that was sent before.
    """

    def __init__(self, caches: Caches, kind: Format, body: Body, model: str, opened: bytes) -> None:
        self._caches, self._kind, self._opened, self._model = caches, kind, opened, model
        members, opening = _opening_of(kind, body)
        fixed = {key: body.get(key) for key in (*kind.taken, *kind.system, *kind.billed)}
        chain = blake2b(caches.bytes([model, fixed, members[:opening]]), digest_size=16)
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

    def note_usage(self, usage: Mapping[str, int]) -> None:
        """Compare the reported token counts with the expected ones, and record what the provider's cache contains."""
        cached = usage.get("cached", 0)
        if cached:
            self._caches.serves.put(self._model, value=True)
        missed = 0 if self._before is None else self._before.cached - cached
        if missed >= CACHES["openai"][0]:
            reason = self._reason()
            self._caches.metrics.add("cache.misses", reason=reason)
            self._caches.metrics.add("cache.missed.tokens", missed, reason=reason)
            serves = self._caches.serves.get(self._model)
            if serves is None:
                self._caches.serves.put(self._model, value=False)
            if serves is not False:  # only one message for a provider that reports 0 cached tokens each time
                _LOG.info("the provider's cache served %d tokens less than before: %s", missed, reason)
        held = cached + usage["written"] if self._kind.api in _MARKED else usage["input"] if "cached" in usage else 0
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


def _opening_of(kind: Format, body: Body) -> tuple[list[object], int]:
    """Return the history in a body, and the position of the first message from a user."""
    held = body.get(kind.history)
    members = held if isinstance(held, list) else [held]
    return members, next((n for n, m in enumerate(members) if isinstance(m, dict) and m.get("role") == "user"), 0)


def _without_markers(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a message or a list of messages without cache markers, which clients move from request to request."""
    if isinstance(value, list):
        return [_without_markers(member) for member in value]
    if not isinstance(value, dict):
        return value
    return {k: _without_markers(v) if k == "content" else v for k, v in value.items() if k != "cache_control"}


_MARK: Final = {"cache_control": {"type": "ephemeral"}}


def with_breakpoints(body: Mapping[str, object]) -> Mapping[str, object]:
    """Return a request with up to four cache breakpoints, which is Anthropic's maximum.

    One breakpoint is at the end of the system prompt, or of the tools if there is no system prompt. The others are at
    the ends of the first message with the role `user`, which cuts do not change, and of the last two such messages,
    with which the previous request and this one usually end. A request that already has a breakpoint is returned
    unchanged.
    """
    messages, system, tools = body.get("messages"), body.get("system"), body.get("tools")
    if not isinstance(messages, list) or _is_marked([system, tools, messages]):
        return body
    people = [at for at, message in enumerate(messages) if isinstance(message, dict) and message.get("role") == "user"]
    places = {*people[:1], *people[-2:]}
    changed = {"messages": [_marked(each, "content") if at in places else each for at, each in enumerate(messages)]}
    return {**(_marked(body, "system") if system else _marked(body, "tools")), **changed}


def _is_marked(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_is_marked, value))
    return isinstance(value, dict) and ("cache_control" in value or _is_marked(value.get("content")))


def _marked(record: Mapping[str, object], key: str) -> Mapping[str, object]:
    """Return a record with a breakpoint on the text, or on the last content block, that it has under `key`.

    If there is none, or the text is empty, the record is returned unchanged.
    """
    value = record.get(key)
    blocks = [{"type": "text", "text": value}] if isinstance(value, str) else value
    if not value or not isinstance(blocks, list) or not isinstance(blocks[-1], dict):
        return record
    return {**record, key: [*blocks[:-1], {**blocks[-1], **_MARK}]}
