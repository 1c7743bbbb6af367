"""Keep sessions apart on the wire, and remember the values of their placeholders.

A request that contains its whole history needs none of this: its placeholders follow from the history itself. Two kinds
of requests do: those that continue a history on the server (`previous_response_id`, `conversation`), and those whose
client names a session in a header. Such requests belong to a thread. A placeholder of a thread never changes its value:
if it is unknown which ones were assigned before, no new ones are assigned.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import RLock
from typing import Final, NamedTuple

from ctxguard.adapting.recent import Recent
from ctxguard.errors import VaultError
from ctxguard.pii.mask.pseudonyms import MemoryPseudonyms, Original, Pseudonyms
from ctxguard.pii.mask.vault import SessionVault, Vault

_REMEMBERED: Final = 4_096
"""Number of named sessions, and of responses stored at the provider, whose placeholders are remembered."""
_FIRST: Final = range(1_000_000, 90_000_000)
"""Numbers of which a session begins with one at random, where other processes may have given placeholders to it. The
longest number of a placeholder has eight digits; the last ten million are left to be counted up to."""
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
"""Headers and parameters that are known to contain no credential. All others may, also unknown ones."""
_NO_CREDENTIAL: Final = frozenset(name for names in NO_CREDENTIAL.values() for name in names.split())
NO_CREDENTIAL_PREFIXES: Final = ("sec-ch-", "sec-fetch-", "x-b3-", "x-datadog-", "x-stainless-")
_PLAIN: Final = re.compile(r"[\w.,:-]*")
"""Parameter values without separators: after a `;`, some servers read a further parameter."""
_SIGNED: Final = re.compile(r"AWS4-[\w-]+ .*?\bCredential=([^/,\s]+)/.*", re.DOTALL)
"""The header of a request to Amazon; its access key id stays the same, date and signature do not."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Recognize requests with different credentials. Everything counts as one unless known to be none.

    Attributes:
        counted: Names of headers and parameters that count although they are known to be none, in lower case.
        uncounted: Names of further ones that do not count.
    """

    counted: frozenset[str] = frozenset()
    uncounted: frozenset[str] = frozenset()

    @classmethod
    def of(cls, counted: Sequence[str], uncounted: Sequence[str]) -> Credentials:
        """Return an instance for the names of headers and parameters, in any case."""
        return cls(*(frozenset(name.strip().lower() for name in names) for names in (counted, uncounted)))

    def digest(self, headers: Mapping[str, str], query: str, base: str) -> str:
        """Return a hash of everything in a request that may be a credential or a part of one.

        Args:
            headers: Its headers, with their names in lower case.
            query: The query of its URL, as it is sent.
            base: The prefix of its path before the operation; with some gateways it contains a key.
        """
        parts = [("path", base, "")]
        parts += (("header", name, _lasting(value)) for name, value in headers.items() if self._counts(name))
        for parameter in filter(None, query.split("&")):
            name, _, value = parameter.partition("=")
            hides_more = _PLAIN.fullmatch(value) is None and name.lower() not in self.uncounted
            if self._counts(name.lower()) or hides_more:
                is_key = name.lower() == "x-amz-credential"  # the access key id, then the date
                parts.append(("query", name, value.partition("%2F")[0] if is_key else value))
        return hashlib.sha256(json.dumps(sorted(parts)).encode()).hexdigest()[:32]

    def _counts(self, name: str) -> bool:
        is_known = name in _NO_CREDENTIAL or name.startswith(NO_CREDENTIAL_PREFIXES)
        return name in self.counted or not (is_known or name in self.uncounted)


def _lasting(value: str) -> str:
    """Return the part of a header that is the same in all requests: all of it, or the access key of a signature."""
    signed = _SIGNED.fullmatch(value)
    return value if signed is None else signed[1]


class MemoryVault(SessionVault):
    """The placeholders of one session, in the memory of this process. Thread-safe."""

    def __init__(self, names: MemoryPseudonyms) -> None:
        self._own_lock = RLock()
        self._names = names

    def __repr__(self) -> str:
        return f"MemoryVault({len(self._names)} placeholders)"

    def copy(self) -> MemoryVault:
        """Return a copy of this vault, which is then extended independently."""
        with self._own_lock:
            return MemoryVault(self._names.copy())

    def placeholder(self, label: str, original: Original) -> str:
        """Return the placeholder of a value; a new one if it has none."""
        with self._own_lock:
            return self._names.placeholder(label, original)

    def original(self, placeholder: str) -> Original | None:
        """Return the value of a placeholder, or None if it was never assigned."""
        return self._names.original(placeholder)

    def forget(self, value: str) -> int:
        """Erase nothing: the memory is freed when the process ends, or after long disuse."""
        del value
        return 0

    def reload(self, namespace: str) -> None:
        """Do nothing: there are no records to read anew."""

    def erasures(self) -> int:
        """Return 0: nothing is erased."""
        return 0


class Owner(NamedTuple):
    """The sender of a request.

    Attributes:
        scope: A hash of the credentials.
        session: The session that the client named; None if it named none.
    """

    scope: str
    session: str | None


class Thread(NamedTuple):
    """Where the placeholders of a request are stored.

    Attributes:
        name: Distinguishes it from other threads of the same owner; None if the request belongs to none.
        vault: Contains its placeholders; None if they follow from the request itself, or are unknown.
        redacts: Whether they are unknown, so that no placeholder may be assigned.
    """

    name: str | None = None
    vault: SessionVault | None = None
    redacts: bool = False


UNKNOWN: Final = Thread(redacts=True)


class Threads:
    """Find the threads of requests. Safe to share between threads of a process.

    Args:
        vault: Where placeholders are stored, shared by all workers; None means in the memory of this process.
    """

    def __init__(self, vault: Vault | None) -> None:
        self._vault = vault
        self._named: Recent[tuple[str, str], SessionVault] = Recent(_REMEMBERED)
        self._answers: Recent[tuple[str, str], Thread] = Recent(_REMEMBERED)

    def of(self, owner: Owner, *, previous: object = None, conversation: object = None) -> Thread:
        """Return the thread of a request.

        A history on the server takes precedence over the name of a session: it contains assigned placeholders.

        Args:
            owner: The sender of the request.
            previous: The response whose history the request continues.
            conversation: The conversation on the server that it continues: its id, or an object that contains the id.
        """
        if conversation:
            held = conversation.get("id") if isinstance(conversation, dict) else conversation
            return UNKNOWN if self._vault is None else self._of_name(owner.scope, f"conversation {held}")
        name = None if owner.session is None else f"session {owner.session}"
        if not previous:
            return Thread() if name is None else self._of_name(owner.scope, name)
        known = self._of_answer(owner.scope, f"answer {previous}")
        if known is None or name not in (None, known.name):  # it was assigned elsewhere, or belongs to another session
            return UNKNOWN
        vault = known.vault
        if known.name is None and isinstance(vault, MemoryVault):  # a separate branch
            return known._replace(vault=vault.copy())
        return known

    def note_answer(self, owner: Owner, answer: str, thread: Thread, pseudonyms: Pseudonyms) -> None:
        """Record the placeholders of a stored response, unless they are unknown."""
        if thread.redacts:
            return
        name = f"answer {answer}"
        if self._vault is None:
            if thread.vault is None and isinstance(pseudonyms, MemoryPseudonyms):
                thread = Thread(vault=MemoryVault(pseudonyms.copy()))
            self._answers.put((owner.scope, name), thread)
            return
        if thread.vault is None and isinstance(pseudonyms, MemoryPseudonyms):
            vault = self._vault_of(owner.scope, name)
            vault.adopt(pseudonyms)
            thread = Thread(name, vault)
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
        return self._named.get_or_put((scope, name), lambda: self._opened(f"{scope} {name}"))

    def _opened(self, name: str) -> SessionVault:
        if self._vault is not None:
            data = name.encode("utf-8", "surrogatepass")
            self._vault.names().write(hashlib.sha256(data).hexdigest(), data)  # so that `forget` finds it
            return self._vault.session(name)
        # another process, or this one long ago, may have assigned placeholders to a session of this name
        return MemoryVault(MemoryPseudonyms(first=secrets.choice(_FIRST)))


def forget(vault: Vault, session: str, value: str | None = None, *, credential: str = "") -> tuple[int, int]:
    """Erase a session that the guard stored in a vault, or one value of it, see `Vault.forget`.

    Args:
        vault: The vault of the guard; its key is needed to find the names of sessions.
        session: The name in the header, or the id of a conversation or of a stored response.
        value: The value; None erases all of them.
        credential: The beginning of the hash of a credential, as the label `key` of the metrics; by default, the
            sessions of this name are erased whoever named them.

    Returns:
        How many sessions have the name, 0 if the vault knows none; and how many records were erased in them.

    Raises:
        ConfigError: The value is empty, or a placeholder.
        VaultError: Names of sessions cannot be decrypted and may be the same; the sessions whose names can be read are
            erased. Or see `Vault.forget`.
        StoreError: The records are deleted, but the log of the database still contains them.
    """
    names, known = vault.names(), list[str]()
    listed = names.listed()
    for record in listed:
        with suppress(VaultError):
            known.append((names.read(record) or b"").decode("utf-8", "surrogatepass"))
    found = [name for name in known if name.startswith(credential) and name.split(" ", 2)[2:] == [session]]
    erased = sum(vault.forget(name, value) for name in found)
    if unread := len(listed) - len(known):
        told = f"erased {erased} in {len(found)} sessions of this name, but {unread} other names cannot be read"
        raise VaultError(f"{told} and may be the same; if another key sealed them, give the key that did")
    return len(found), erased
