"""A boto3 client for `bedrock-runtime` that guards each conversation as it is sent, streams included."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Unpack

from ctxguard.draft import drive
from ctxguard.errors import ConfigError, WireError
from ctxguard.wire.streams import ReplyEvents

if TYPE_CHECKING:
    from ctxguard.formats.format import Event
    from ctxguard.stabilizer import Stabilizer
    from ctxguard.wire.guard import Guard, GuardSettings, Prepared
    from ctxguard.wire.replies import Reply


class GuardedStream:
    """The events of a response with values restored; all other attributes are the stream's own.

    Text that may be the beginning of a placeholder is held back, at most 64 characters of a block, until the block ends
    at the latest.
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
    """Guard the conversations of a client; all other attributes are the client's own.

    Operations that send content to a model and that the guard cannot read, such as `invoke_model`, are refused unless
    the guard allows them: `on_unreadable=["invoke_model"]`.
    """

    def __init__(self, client: Any, guard: Guard) -> None:  # noqa: ANN401 - boto3 makes the classes of its clients
        self._client = client
        self._guard = guard

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name in self._client.meta.method_to_api_mapping and not self._guard.passes_unread(name):
            raise WireError(
                f"the guard cannot read {name}; on_unreadable=[{name!r}] sends its requests on unread", status=403
            )
        return getattr(self._client, name)

    def converse(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401
        """Send a conversation guarded, and return the response with values restored.

        Raises:
            CtxguardError: The request cannot be sent.
        """
        prepared, answer = self._sent("converse", request)
        return answer if prepared.reply is None else prepared.reply.restored(answer)  # type: ignore[return-value]

    def converse_stream(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401
        """Send a conversation guarded, and return the response with a stream in which values are restored.

        Raises:
            CtxguardError: The request cannot be sent.
        """
        prepared, answer = self._sent("converse_stream", request)
        if prepared.reply is None:
            return answer
        return {**answer, "stream": GuardedStream(answer["stream"], prepared.reply)}

    def _sent(self, operation: str, request: Mapping[str, Any]) -> tuple[Prepared, dict[str, Any]]:
        from botocore.exceptions import ClientError

        from ctxguard.wire.asked import WireRequest

        blobs: dict[str, bytes] = {}
        body = {key: _as_sent(value, blobs) for key, value in request.items() if key != "modelId"}
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


def _as_sent(value: object, blobs: dict[str, bytes]) -> object:
    """Return a value as boto3 writes it into a body, and record in `blobs` the blob for each base64 text."""
    if isinstance(value, (bytes, bytearray)):
        text = base64.b64encode(value).decode()
        blobs[text] = bytes(value)
        return text
    if isinstance(value, Mapping):
        return {key: _as_sent(member, blobs) for key, member in value.items()}
    return [_as_sent(member, blobs) for member in value] if isinstance(value, (list, tuple)) else value


def _as_given(value: object, blobs: Mapping[str, bytes]) -> object:
    """Return a value of a body in the form that boto3 takes."""
    if isinstance(value, dict):
        return dict(_members(value, blobs))
    return [_as_given(member, blobs) for member in value] if isinstance(value, list) else value


def _members(record: Mapping[str, object], blobs: Mapping[str, bytes]) -> Iterator[tuple[str, object]]:
    for key, member in record.items():
        is_blob = key in _BLOBS and isinstance(member, str)
        yield key, blobs.get(str(member), member) if is_blob else _as_given(member, blobs)


def _arguments(request: Mapping[str, Any], prepared: Prepared, blobs: Mapping[str, bytes]) -> dict[str, Any]:
    model = {"modelId": request["modelId"]} if "modelId" in request else {}
    return {**model, **_as_given(json.loads(prepared.body), blobs)}  # type: ignore[dict-item]  # a dict of texts


def guarded(client: Any, guard: Stabilizer | Guard, **settings: Unpack[GuardSettings]) -> GuardedClient:  # noqa: ANN401
    """Return a client whose requests are guarded; the given one is not changed.

    Args:
        client: `boto3.client("bedrock-runtime")`.
        guard: A stabilizer, or a guard to share between clients.
        settings: Those of `ctxguard.wire.Guard`, if a stabilizer is given.

    Raises:
        ConfigError: A setting cannot be used, or the client is of another kind.
    """
    from ctxguard.wire.transport import as_guard

    if not callable(getattr(client, "converse", None)) or not hasattr(client, "meta"):
        raise ConfigError(f"expected boto3.client('bedrock-runtime'), got {type(client).__name__}", setting="client")
    return GuardedClient(client, as_guard(guard, settings))
