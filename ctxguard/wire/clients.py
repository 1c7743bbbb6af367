"""Guard the clients of SDKs that are based on httpx."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

if TYPE_CHECKING:
    from ctxguard.stabilizer import Stabilizer
    from ctxguard.wire.guard import Guard, GuardSettings

Client = TypeVar("Client")


def guarded(client: Client, guard: Stabilizer | Guard, **settings: Unpack[GuardSettings]) -> Client:
    """Return a client whose requests are guarded, over the same connections; the given one is not changed.

    Args:
        client: `OpenAI`, `AsyncOpenAI`, one of Azure's, `Anthropic` or `AsyncAnthropic`.
        guard: A stabilizer, or a guard to share between clients.
        settings: Those of `ctxguard.wire.Guard`, if a stabilizer is given.

    Raises:
        ConfigError: A setting cannot be used.
    """
    from ctxguard.wire.transport import as_guard, guarded_http_client

    given = cast("Any", client)
    # the SDKs have no public way to a client's HTTP client
    http_client = guarded_http_client(given._client, as_guard(guard, settings))  # noqa: SLF001
    return cast("Client", given.with_options(http_client=http_client))
