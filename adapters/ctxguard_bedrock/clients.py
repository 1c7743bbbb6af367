"""A boto3 client for `bedrock-runtime` that guards each conversation as it is sent, including streaming."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Unpack

from ctxguard.adapting.misuse import takes_stabilizer
from ctxguard.draft import drive
from ctxguard.errors import ConfigError, WireError
from ctxguard.wire.streams import ReplyEvents

if TYPE_CHECKING:
    from ctxguard.formats.format import Event
    from ctxguard.stabilizer import Stabilizer
    from ctxguard.wire.guard import Guard, GuardSettings, Prepared
    from ctxguard.wire.replies import Reply


class GuardedStream:
    """The events of a response with masked values restored. All other attributes are those of the original stream.

    Text that may be the beginning of a placeholder is held back until the rest arrives or the content block ends, up to
    64 characters for each block.
    """

    def __init__(self, stream: Any, reply: Reply) -> None:  # noqa: ANN401 - boto3 makes the classes of its streams
        self._stream = stream
        self._events: ReplyEvents[None] = ReplyEvents(reply)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._stream, name)

    def __iter__(self) -> Iterator[Event]:
        for event in self._stream:
            yield from (restored for restored, _ in self._events.feed(event, None))
        yield from (restored for restored, _ in self._events.close())


_BLOBS: Final = ("bytes", "redactedContent")


class GuardedClient:
    """Guards the conversations of a client. All other attributes are those of the original client.

    Operations that send content to a model and that the guard cannot read, such as `invoke_model`, are refused unless
    the guard allows them: `on_unreadable=["invoke_model"]`.
    """

    def __init__(self, client: Any, guard: Guard) -> None:  # noqa: ANN401 - boto3 makes the classes of its clients
        self._client = client
        self._guard = guard

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name in self._client.meta.method_to_api_mapping and not self._guard.passes_unread(name):
            raise WireError(
                f"the guard cannot read {name}; on_unreadable=[{name!r}] forwards its requests unread", status=403
            )
        return getattr(self._client, name)

    def converse(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401
        """Guard and send a conversation, and return the response with masked values restored.

        Raises:
            CtxguardError: If the request cannot be sent.
        """
        prepared, answer = self._send("converse", request)
        return answer if prepared.reply is None else prepared.reply.restore(answer)  # type: ignore[return-value]

    def converse_stream(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401
        """Guard and send a conversation, and return the response with a stream in which masked values are restored.

        Raises:
            CtxguardError: If the request cannot be sent.
        """
        prepared, answer = self._send("converse_stream", request)
        if prepared.reply is None:
            return answer
        return {**answer, "stream": GuardedStream(answer["stream"], prepared.reply)}

    def _send(self, operation: str, request: Mapping[str, Any]) -> tuple[Prepared, dict[str, Any]]:
        from botocore.exceptions import ClientError

        from ctxguard.wire.bodies import WireRequest

        blobs: dict[str, bytes] = {}
        body = {key: _as_body_value(value, blobs) for key, value in request.items() if key != "modelId"}
        path = f"/model/{request.get('modelId')}/{operation.replace('_', '-')}"
        asked = WireRequest("POST", path, {}, _as_json(body))
        send = getattr(self._client, operation)
        prepared = self._guard.prepare(asked)
        try:
            return prepared, send(**_arguments(request, prepared, blobs))
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            again = drive(self._guard.preparing_again(asked, prepared, status, str(error).encode()))
            if again is None:
                raise
        return again, send(**_arguments(request, again, blobs))


def _as_json(body: Mapping[str, object]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"the request cannot be written as JSON: {error}", setting="request") from None


def _as_body_value(value: object, blobs: dict[str, bytes]) -> object:
    """Return a value as boto3 writes it into a body, with bytes as base64.

    The original bytes are added to `blobs`, with the base64 as the key.
    """
    if isinstance(value, (bytes, bytearray)):
        text = base64.b64encode(value).decode()
        blobs[text] = bytes(value)
        return text
    if isinstance(value, Mapping):
        return {key: _as_body_value(member, blobs) for key, member in value.items()}
    return [_as_body_value(member, blobs) for member in value] if isinstance(value, (list, tuple)) else value


def _as_argument(value: object, blobs: Mapping[str, bytes]) -> object:
    """Return a value from a body as boto3 accepts it as an argument: with the bytes from `blobs` instead of base64."""
    if isinstance(value, dict):
        return dict(_members(value, blobs))
    return [_as_argument(member, blobs) for member in value] if isinstance(value, list) else value


def _members(record: Mapping[str, object], blobs: Mapping[str, bytes]) -> Iterator[tuple[str, object]]:
    for key, member in record.items():
        is_blob = key in _BLOBS and isinstance(member, str)
        yield key, blobs.get(str(member), member) if is_blob else _as_argument(member, blobs)


def _arguments(request: Mapping[str, Any], prepared: Prepared, blobs: Mapping[str, bytes]) -> dict[str, Any]:
    model = {"modelId": request["modelId"]} if "modelId" in request else {}
    return {**model, **_as_argument(json.loads(prepared.body), blobs)}  # type: ignore[dict-item]  # a dict of texts


@takes_stabilizer("guarded")
def guarded(client: Any, guard: Stabilizer | Guard, **settings: Unpack[GuardSettings]) -> GuardedClient:  # noqa: ANN401
    """Return a copy of a client whose requests are guarded. The original client is not changed.

    Args:
        client: `boto3.client("bedrock-runtime")`.
        guard: A stabilizer, or a guard to share between clients.
        settings: The settings of `ctxguard.wire.Guard`, if `guard` is a stabilizer.

    Raises:
        ConfigError: If a setting cannot be used, or `client` has another type.
    """
    from ctxguard.wire.transport import as_guard

    if not callable(getattr(client, "converse", None)) or not hasattr(client, "meta"):
        raise ConfigError(f"expected boto3.client('bedrock-runtime'), got {type(client).__name__}", setting="client")
    return GuardedClient(client, as_guard(guard, settings))
