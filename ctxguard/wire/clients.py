"""Guard the clients of SDKs that use httpx."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

if TYPE_CHECKING:
    from ctxguard.stabilizer import Stabilizer
    from ctxguard.wire.guard import Guard, GuardSettings

Client = TypeVar("Client")


def guarded(client: Client, guard: Stabilizer | Guard, **settings: Unpack[GuardSettings]) -> Client:
    """Return a copy of a client whose requests are guarded. It uses the same connections as the original client.

    Args:
        client: `OpenAI`, `AsyncOpenAI`, one of the Azure clients, `Anthropic`, or `AsyncAnthropic`.
        guard: A stabilizer, or a guard to share between clients.
        settings: The settings of `ctxguard.wire.Guard`, if `guard` is a stabilizer.

    Raises:
        ConfigError: If a setting cannot be used.
    """
    from ctxguard.wire.transport import as_guard, guarded_http_client

    given = cast("Any", client)
    # the SDKs have no public attribute for a client's HTTP client
    http_client = guarded_http_client(given._client, as_guard(guard, settings))  # noqa: SLF001
    return cast("Client", given.with_options(http_client=http_client))
