"""Separate the sessions of different clients, store the values of their placeholders, and choose their stages.

The placeholders of a request that contains its whole history are derived from the history, so nothing is stored for it.
Two kinds of requests do need storage: requests that continue a history stored at the provider (`previous_response_id`,
`conversation`), and requests whose client names a session in a header. Such requests belong to a *thread*. A
placeholder in a thread never changes its value. If it is unknown which placeholders were assigned before, no new ones
are assigned, and values are redacted.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import RLock
from typing import Any, Final, NamedTuple

from ctxguard.adapting.registry import Adapter, chain_for
from ctxguard.errors import ConfigError, VaultError
from ctxguard.formats.format import Format
from ctxguard.formats.responses import ResponsesAdapter
from ctxguard.pii.mask.pseudonyms import MemoryPseudonyms, Original, Pseudonyms
from ctxguard.pii.mask.unmask import values_in
from ctxguard.pii.mask.vault import SessionVault, Vault
from ctxguard.stabilizer import Stabilizer
from ctxguard.tokens.caches import Recent
from ctxguard.wire.checking import WireMasking

_REMEMBERED: Final = 4_096
"""Maximum number of named sessions, and of responses stored at the provider, whose placeholders are kept in memory."""
_FIRST: Final = range(1_000_000, 90_000_000)
"""Range from which the first placeholder number of a session is drawn at random.

Other processes may have assigned placeholders in the session, and random numbers avoid clashes. The largest placeholder
number has eight digits, and the last ten million numbers are reserved for counting up.
"""
_NEVER_MASKED: Final = frozenset(
    {"max_output_tokens", "model", "store", "stream", "stream_options", "temperature", "top_p"}
)
"""Fields of a request that clients change from call to call and that contain no texts."""
NO_CREDENTIAL: Final[Mapping[str, str]] = {
    "the connection and the form of the content": "accept accept-charset accept-encoding accept-language cache-control "
    "connection content-encoding content-length content-type date dnt expect host keep-alive origin pragma prefer "
    "priority proxy-connection range te trailer transfer-encoding upgrade user-agent",
    # `x-forwarded-user` and similar headers name a person, so they separate sessions
    "proxies on the way": "forwarded via x-forwarded-for x-forwarded-host x-forwarded-port x-forwarded-proto x-real-ip",
    "tracing, ids of single requests, and their attempts": "amz-sdk-invocation-id amz-sdk-request b3 baggage cf-ray "
    "elastic-apm-traceparent idempotency-key langsmith-trace newrelic request-id sentry-trace traceparent tracestate "
    "uber-trace-id x-amzn-trace-id x-client-request-id x-cloud-trace-context x-correlation-id x-idempotency-key "
    "x-ms-client-request-id x-request-id x-request-start x-retry-attempt x-retry-count x-span-id x-trace-id",
    "versions and telemetry of SDKs": "anthropic-beta anthropic-dangerous-direct-browser-access anthropic-version "
    "openai-beta originator version x-app x-codex-turn-metadata x-codex-turn-state x-goog-api-client x-ms-useragent "
    "x-title",
    "what changes with each signature of Amazon's (SigV4)": "x-amz-algorithm x-amz-content-sha256 x-amz-date "
    "x-amz-expires x-amz-signature x-amz-signedheaders",
    "parameters of queries": "$alt alt api-version beta prettyprint",
}
"""Headers and query parameters that are known not to contain a credential. All others may contain one."""
_NO_CREDENTIAL: Final = frozenset(name for names in NO_CREDENTIAL.values() for name in names.split())
NO_CREDENTIAL_PREFIXES: Final = ("sec-ch-", "sec-fetch-", "x-b3-", "x-datadog-", "x-stainless-")
_PLAIN: Final = re.compile(r"[\w.,:-]*")
"""Matches parameter values without separators. Some servers read another parameter after a `;`."""
_SIGNED: Final = re.compile(r"AWS4-[\w-]+ .*?\bCredential=([^/,\s]+)/.*", re.DOTALL)
"""Matches the authorization header of a request to Amazon. Only its access key id is the same in all requests."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Decides which headers and query parameters distinguish senders: all that may contain a credential.

    Attributes:
        counted: Lowercase names of headers and parameters that distinguish senders although they are known to hold no
            credential.
        uncounted: Lowercase names of further headers and parameters that do not distinguish senders.
    """

    counted: frozenset[str] = frozenset()
    uncounted: frozenset[str] = frozenset()

    @classmethod
    def of(cls, counted: Sequence[str], uncounted: Sequence[str]) -> Credentials:
        """Create an instance from names of headers and parameters in any case."""
        return cls(*(frozenset(name.strip().lower() for name in names) for names in (counted, uncounted)))

    def digest(self, headers: Mapping[str, str], query: str, base: str) -> str:
        """Return a hash of everything in a request that may be a credential or part of one.

        Args:
            headers: The headers of the request, with names in lower case.
            query: The query string of the URL.
            base: The part of the path before the operation. With some gateways, it contains a key.
        """
        parts = [("path", base, "")]
        parts += (("header", name, _constant_part(value)) for name, value in headers.items() if self._counts(name))
        for parameter in filter(None, query.split("&")):
            name, _, value = parameter.partition("=")
            hides_more = _PLAIN.fullmatch(value) is None and name.lower() not in self.uncounted
            if self._counts(name.lower()) or hides_more:
                is_key = name.lower() == "x-amz-credential"  # its value is the access key id, followed by the date
                parts.append(("query", name, value.partition("%2F")[0] if is_key else value))
        return hashlib.sha256(json.dumps(sorted(parts)).encode()).hexdigest()[:32]

    def _counts(self, name: str) -> bool:
        is_known = name in _NO_CREDENTIAL or name.startswith(NO_CREDENTIAL_PREFIXES)
        return name in self.counted or not (is_known or name in self.uncounted)


def _constant_part(value: str) -> str:
    """Return the part of a header's value that is the same in all requests of a sender.

    For a request that is signed for Amazon, this is the access key id in the header, and otherwise the whole value.
    """
    signed = _SIGNED.fullmatch(value)
    return value if signed is None else signed[1]


class MemoryVault(SessionVault):
    """The placeholders of one session, stored in the memory of this process. Thread-safe."""

    def __init__(self, names: MemoryPseudonyms) -> None:
        self._own_lock = RLock()
        self._names = names

    def __repr__(self) -> str:
        return f"MemoryVault({len(self._names)} placeholders)"

    def copy(self) -> MemoryVault:
        """Return an independent copy of this vault."""
        with self._own_lock:
            return MemoryVault(self._names.copy())

    def placeholder(self, label: str, original: Original) -> str:
        """Return the placeholder for a value, assigning a new one if necessary."""
        with self._own_lock:
            return self._names.placeholder(label, original)

    def original(self, placeholder: str) -> Original | None:
        """Return the value of a placeholder, or None if the placeholder was never assigned."""
        return self._names.original(placeholder)

    def adopt(self, given: MemoryPseudonyms) -> None:
        """Take over the placeholders of another session, unless they mean something else here."""
        with self._own_lock:
            self._names.adopt({name: original for name, _, original in given.items()})

    def pseudonyms(self) -> MemoryPseudonyms:
        """Return a copy of the placeholders."""
        with self._own_lock:
            return self._names.copy()

    def forget(self, value: str) -> int:
        """Erase nothing, and return 0. The memory is freed when the process exits, or after long disuse."""
        del value
        return 0

    def reload(self, namespace: str) -> None:
        """Do nothing, because there are no records to read again."""

    def erasures(self) -> int:
        """Return 0, because nothing is ever erased."""
        return 0


class Owner(NamedTuple):
    """The sender of a request.

    Attributes:
        scope: A hash of the credentials.
        session: The session that the client named. None if the client named none.
    """

    scope: str
    session: str | None


class Thread(NamedTuple):
    """Where the placeholders of a request are stored.

    Attributes:
        name: Distinguishes the thread from other threads of the same sender. None if the thread has no name.
        vault: Contains the placeholders. None if the request itself determines them, or if this process does
            not know them.
        redacts: Whether this process does not know the placeholders, so that values are redacted.
    """

    name: str | None = None
    vault: SessionVault | None = None
    redacts: bool = False


UNKNOWN: Final = Thread(redacts=True)
"""The thread of a request whose placeholders were assigned elsewhere."""


class Threads:
    """Finds the thread that a request belongs to. Safe to share between threads of execution.

    Args:
        vault: Where placeholders are stored; several workers must share it. None means the memory of this process.
    """

    def __init__(self, vault: Vault | None) -> None:
        self._vault = vault
        self._named: Recent[tuple[str, str], SessionVault] = Recent(_REMEMBERED)
        self._answers: Recent[tuple[str, str], Thread] = Recent(_REMEMBERED)

    def of(self, owner: Owner, *, previous: object = None, conversation: object = None) -> Thread:
        """Return the thread of a request.

        A history stored at the provider takes precedence over the name of a session, because it already contains
        placeholders.

        Args:
            owner: The sender of the request.
            previous: The id of the stored response that the request continues.
            conversation: The conversation stored at the provider that the request continues: its id, or an object that
                contains the id.
        """
        if conversation:
            held = conversation.get("id") if isinstance(conversation, dict) else conversation
            return UNKNOWN if self._vault is None else self._of_name(owner.scope, f"conversation {held}")
        name = None if owner.session is None else f"session {owner.session}"
        if not previous:
            return Thread() if name is None else self._of_name(owner.scope, name)
        known = self._of_answer(owner.scope, f"answer {previous}")
        # another process handled the response, or it belongs to another session
        if known is None or name not in (None, known.name):
            return UNKNOWN
        vault = known.vault
        if known.name is None and isinstance(vault, MemoryVault):  # a separate branch
            return known._replace(vault=vault.copy())
        return known

    def note_answer(self, owner: Owner, answer: str, thread: Thread, pseudonyms: Pseudonyms) -> None:
        """Remember the thread of a response that the provider stores, unless its placeholders are unknown."""
        if thread.redacts:
            return
        name = f"answer {answer}"
        vault = thread.vault
        if thread.name is None and isinstance(vault, MemoryVault):
            thread, pseudonyms = Thread(), vault.pseudonyms()
        if self._vault is None:
            if thread.vault is None and isinstance(pseudonyms, MemoryPseudonyms):
                thread = Thread(vault=MemoryVault(pseudonyms.copy()))
            self._answers.put((owner.scope, name), thread)
            return
        if thread.vault is None and isinstance(pseudonyms, MemoryPseudonyms):
            shared = self._vault_of(owner.scope, name)
            shared.adopt(pseudonyms)
            thread = Thread(name, shared)
        if thread.name is not None:
            self._vault.note(f"{owner.scope} {name}", thread.name.encode("utf-8", "surrogatepass"))

    def _of_answer(self, scope: str, name: str) -> Thread | None:
        if self._vault is None:
            return self._answers.get((scope, name))
        noted = self._vault.noted(f"{scope} {name}")
        return None if noted is None else self._of_name(scope, noted.decode("utf-8", "surrogatepass"))

    def _of_name(self, scope: str, name: str) -> Thread:
        return Thread(name, self._vault_of(scope, name))

    def _vault_of(self, scope: str, name: str) -> SessionVault:
        return self._named.get_or_put((scope, name), lambda: self._open(f"{scope} {name}"))

    def _open(self, name: str) -> SessionVault:
        if self._vault is not None:
            data = name.encode("utf-8", "surrogatepass")
            self._vault.names().write(hashlib.sha256(data).hexdigest(), data)  # so that `forget` finds the session
            return self._vault.session(name)
        # another process, or this one before an eviction, may have assigned placeholders in a session with this name
        return MemoryVault(MemoryPseudonyms(first=secrets.choice(_FIRST)))


def forget(vault: Vault, session: str | None, value: str | None = None, *, credential: str = "") -> tuple[int, int]:
    """Erase a session that the guard stored in a vault, or one value in the session; see `Vault.forget`.

    Args:
        vault: The vault of the guard. Its key is needed to decrypt the names of sessions.
        session: The name in the session header, or the id of a conversation or of a stored response. None stands for
            every session, and requires a value.
        value: The value to erase. None erases all values.
        credential: The beginning of a credential's hash, as in the `key` label of the metrics. By default, the sessions
            with this name are erased for all credentials.

    Returns:
        The number of sessions with this name, and the number of erased records.

    Raises:
        ConfigError: If the value is empty or a placeholder, or neither a session nor a value is given.
        VaultError: If names of sessions cannot be decrypted, because any of them may be the given name. Sessions whose
            names can be decrypted are erased first. See also `Vault.forget`.
        StoreError: If the records are deleted, but the log of the database still contains them.
    """
    if session is None and value is None:
        raise ConfigError("name a session to erase it, or give a value to erase it in every session", setting="value")
    names, known = vault.names(), list[str]()
    listed = names.listed()
    for record in listed:
        with suppress(VaultError):
            known.append((names.read(record) or b"").decode("utf-8", "surrogatepass"))
    found = [
        name
        for name in known
        if name.startswith(credential) and (session is None or name.split(" ", 2)[2:] == [session])
    ]
    erased = sum(vault.forget(name, value) for name in found)
    if unread := len(listed) - len(known):
        kind, fault = ("", "") if session is None else (" of this name", " and may be the same")
        message = f"erased {erased} in {len(found)} sessions{kind}, but {unread} other names cannot be read{fault}"
        raise VaultError(f"{message}; if another key sealed them, give the key that did")
    return len(found), erased


def numberings_of(kind: Format, body: Mapping[str, object]) -> Sequence[bytes]:
    """Return a hash of each beginning of a body, as the client sent it: one for each length of its history.

    Without a vault, values are numbered in the order of the fields and the history of a body. Therefore, two bodies
    that begin in the same way number the values there alike. The last hash is that of the whole body.
    """
    history = body.get(kind.history)
    fields = {key: value for key, value in body.items() if key not in _NEVER_MASKED and key != kind.history}
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode())
    found = [digest.digest()]
    for item in history if isinstance(history, list) else [history]:
        digest.update(json.dumps(item, sort_keys=True).encode())
        found.append(digest.digest())
    return found


_ITEMS: Final = 4_096
"""Maximum number of stored response items whose texts are remembered."""
_NAMED: Final = 128
"""Maximum number of named sessions with a cached chain.

The adapter of a chain caches the messages of its session. Without the chain, the messages have to be read again.
"""


@dataclass(frozen=True, slots=True)
class _Item:
    """A response item that the client got in a changed version.

    Attributes:
        numbering: The numbering of its placeholders, see `numberings_of`.
        texts: A mapping from the client's version of each text to the provider's version.
        values: The values of the placeholders in these texts.
    """

    numbering: bytes
    texts: Mapping[str, str]
    values: Mapping[str, Original]


class ForThread(NamedTuple):
    """The stabilizer, adapter, and vault for the requests in one format.

    Attributes:
        stabilizer: Runs the stages.
        adapter: Reads and writes the history.
        vault: Contains the placeholders. None if they are derived from each request alone.
    """

    stabilizer: Stabilizer
    adapter: Adapter[Any]
    vault: SessionVault | None


class Chains:
    """The chains of a guard, including those of sessions, and the texts of responses stored at the provider.

    Args:
        stabilizer: The stabilizer whose stages all chains have.
        masking: One object for each masking stage of the stabilizer. The object creates the stage that is used instead.
    """

    def __init__(self, stabilizer: Stabilizer, masking: Sequence[WireMasking]) -> None:
        self._stabilizer = stabilizer
        self._masking = masking
        self._shared: dict[tuple[str, bool, bool, bool], ForThread] = {}
        self._named: Recent[tuple[str, str, str, bool, bool], ForThread] = Recent(_NAMED)
        self._items: Recent[tuple[str, str], _Item] = Recent(_ITEMS)

    def note_item(
        self, owner: Owner, numbering: bytes, pseudonyms: Pseudonyms, name: str, texts: Mapping[str, str]
    ) -> None:
        """Remember the texts of a response item that the provider stores and that the client got in a changed version.

        Args:
            owner: The sender of the request.
            numbering: The numbering of the placeholders in the texts, see `numberings_of`.
            pseudonyms: The placeholders and their values.
            name: The id of the item.
            texts: A mapping from the client's version of each text to the provider's version.
        """
        values = {name: value for text in texts.values() for name, value in values_in(text, pseudonyms).items()}
        self._items.put((owner.scope, name), _Item(numbering, texts, values))

    def of(self, kind: Format, owner: Owner, thread: Thread, *, is_incremental: bool, keep_thinking: bool) -> ForThread:
        """Return the chain for a request: the shared one, or the one for the thread that the request belongs to.

        Args:
            kind: The format of the request.
            owner: The sender of the request.
            thread: Where the placeholders of the request are stored.
            is_incremental: Whether the history is stored at the provider, and the request contains only new messages.
            keep_thinking: Whether to keep signed thinking that was produced before a cut.
        """
        settings = {"is_incremental": is_incremental, "keep_thinking": keep_thinking}
        name, vault, redacts = thread
        if vault is None:
            key = (kind.name, is_incremental, keep_thinking, redacts)
            if key not in self._shared:
                self._shared[key] = self._build(kind, thread, **settings)
            return self._shared[key]
        if name is None:
            return self._build(kind, thread, **settings)
        place = (owner.scope, name, kind.name, is_incremental, keep_thinking)
        chain = self._named.get(place)
        if chain is None or chain.vault is not vault:
            chain = self._build(kind, thread, **settings)
            self._named.put(place, chain)
        return chain

    def as_written(
        self, kind: Format, body: Mapping[str, object], owner: Owner, thread: Thread, numberings: Collection[bytes]
    ) -> tuple[Mapping[str, object], Thread]:
        """Return a body in which the texts that the model wrote have placeholders again instead of restored values.

        The provider stores the items of its responses by id, and accepts them only unchanged. If values of this body
        would be numbered otherwise than when an item was written, the body takes over the numbers of the item. An item
        whose placeholders already mean something else is masked anew, like any text.

        Args:
            kind: The format of the request.
            body: The body.
            owner: The sender of the request.
            thread: Where the placeholders of the request are stored.
            numberings: The numberings of the body, see `numberings_of`.

        Returns:
            The body, and the thread to use for it.
        """
        items = body.get(kind.history)
        if kind.api != "responses" or not isinstance(items, list):
            return body, thread
        noted = [
            self._items.get((owner.scope, str(item.get("id")))) if isinstance(item, dict) else None for item in items
        ]
        if not any(noted):
            return body, thread
        if (
            thread.vault is None
            and not thread.redacts
            and any(one and one.numbering not in numberings for one in noted)
        ):
            names = MemoryPseudonyms()
            kept = [one if one is not None and names.adopt(one.values) else None for one in noted]
            thread = Thread(vault=MemoryVault(names))
        else:
            kept = [one if one is not None and _means_the_same(one.values, thread.vault) else None for one in noted]
        history = [
            item if one is None else _replace_texts(item, one.texts) for item, one in zip(items, kept, strict=True)
        ]
        return {**body, kind.history: history}, thread

    def _build(self, kind: Format, thread: Thread, *, is_incremental: bool, keep_thinking: bool) -> ForThread:
        adapter: Any = kind if not is_incremental else ResponsesAdapter(incremental=True)
        masking = iter(self._masking)
        stages = self._stabilizer.stages.with_maskers(
            lambda _masker: next(masking).masker(thread.vault, redacts=thread.redacts)
        )
        stages = chain_for(adapter, stages, keep_thinking=keep_thinking)
        # the final body is searched as a whole, see `BodyCheck`
        checks = tuple(check for check in self._stabilizer.checks if check.name != "NoPII")
        return ForThread(self._stabilizer.with_(stages=stages, checks=checks), adapter, thread.vault)


def _means_the_same(values: Mapping[str, Original], vault: SessionVault | None) -> bool:
    """Return whether placeholders have these values in a vault, if there is one."""
    return vault is None or all(vault.original(name) == value for name, value in values.items())


def _replace_texts(item: object, texts: Mapping[str, str]) -> object:
    """Return an item with texts replaced according to a mapping."""
    if isinstance(item, str):
        return texts.get(item, item)
    if isinstance(item, list):
        return [_replace_texts(member, texts) for member in item]
    if isinstance(item, dict):
        return {key: _replace_texts(member, texts) for key, member in item.items()}
    return item
