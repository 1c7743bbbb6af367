"""A google-genai client that guards each request as it is sent."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, cast

from ctxguard.adapting.misuse import takes_stabilizer
from ctxguard.errors import ConfigError

if TYPE_CHECKING:
    from ctxguard.stabilizer import Stabilizer
    from ctxguard.wire.guard import Guard, GuardSettings

Client = TypeVar("Client")

_LAZY: Final = "google.genai._gaos"
"""The module of the client attributes that the SDK creates on first use."""


@takes_stabilizer("guarded")
def guarded(client: Client, guard: Stabilizer | Guard, **settings: Unpack[GuardSettings]) -> Client:
    """Return a copy of a client whose requests are guarded. It uses the same connections as the original client.

    The guard applies to `generate_content` and `generate_content_stream` of `client.models` and `client.aio.models`,
    and to everything based on them: chats, and the requests by which the SDK calls Python functions automatically.

    Args:
        client: A `google.genai.Client`.
        guard: A stabilizer, or a guard to share between clients.
        settings: The settings of `ctxguard.wire.Guard`, if `guard` is a stabilizer.

    Raises:
        ConfigError: If a setting cannot be used, or `client` has another type.
    """
    from ctxguard.wire.transport import as_guard, guarded_http_client

    given = cast("Any", client)
    api: Any = getattr(given, "_api_client", None)
    http_clients = (getattr(api, "_httpx_client", None), getattr(api, "_async_httpx_client", None))
    if None in http_clients:
        raise ConfigError(
            f"expected a google.genai.Client that sends by httpx, got {type(client).__name__}", setting="client"
        )
    shared = as_guard(guard, settings)
    # the SDK has no public attribute for a client's HTTP clients, and accepts others only for a new client
    own = copy.copy(api)
    own._httpx_client = guarded_http_client(http_clients[0], shared)  # noqa: SLF001
    own._async_httpx_client = guarded_http_client(http_clients[1], shared)  # noqa: SLF001
    own._guarded = given  # noqa: SLF001 - a client that is garbage-collected closes its connections
    # setting the client also prevents the SDK from sending with aiohttp, which the guard does not see
    own._http_options = api._http_options.model_copy(  # noqa: SLF001
        update={"httpx_client": own._httpx_client, "httpx_async_client": own._async_httpx_client}  # noqa: SLF001
    )
    return cast("Client", _with_api(given, own))


def _with_api(client: Any, api: Any) -> Any:  # noqa: ANN401 - what the SDK's parts have in common is one field
    """Return a copy of a client, including its attributes such as `models`, that sends with another API client."""
    copied = copy.copy(client)
    for name, part in vars(client).items():
        if name == "_api_client":
            copied._api_client = api  # noqa: SLF001
        elif part is not client and hasattr(part, "_api_client"):
            setattr(copied, name, _with_api(part, api))
        elif type(part).__module__.startswith(_LAZY):
            setattr(copied, name, None)  # created again on first use, with the new API client
    return copied
