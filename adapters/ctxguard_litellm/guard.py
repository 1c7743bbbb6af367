"""The guard as a guardrail of LiteLLM's proxy: converts requests and responses between LiteLLM and `ctxguard.wire`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from litellm.integrations.custom_guardrail import CustomGuardrail
from litellm.types.guardrails import GuardrailEventHooks
from litellm.types.utils import all_litellm_params

from ctxguard import wire
from ctxguard.errors import ConfigError, CtxguardError, WireError
from ctxguard.stabilizer import Stabilizer
from ctxguard.tokens.caches import Recent
from ctxguard.wire.bodies import WireRequest
from ctxguard.wire.guard import GuardSettings, Prepared
from ctxguard.wire.limits import ERROR_HEADER, status_of
from ctxguard.wire.streams import EventStream, ReplyEvents

if TYPE_CHECKING:
    from ctxguard.wire.replies import Reply


_PATHS: Final[Mapping[str, str]] = {
    "completion": "/v1/chat/completions",
    "acompletion": "/v1/chat/completions",
    "responses": "/v1/responses",
    "aresponses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
    "aanthropic_messages": "/v1/messages",
}
"""The paths of supported requests, by LiteLLM's call type."""
_OF_THE_PROXY: Final = frozenset(all_litellm_params) | {"secret_fields", "proxy_server_request", "litellm_logging_obj"}
"""Fields that LiteLLM adds to a request and does not send to a provider."""


def to_wire(data: Mapping[str, Any], call_type: str, key: str | None) -> WireRequest:
    """Return the request that a client sent to LiteLLM, from LiteLLM's data. The API key `key` separates sessions."""
    received = data.get("proxy_server_request") or {}
    headers = {str(name).lower(): str(value) for name, value in (received.get("headers") or {}).items()}
    headers = {name: value for name, value in headers.items() if name not in ("content-encoding", "content-length")}
    try:
        body = json.dumps(_sent(data), ensure_ascii=False).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise WireError(f"the request cannot be written as JSON ({type(error).__name__})") from None
    path = _PATHS.get(call_type, f"/litellm/{call_type}")
    return WireRequest("POST", path, {**headers, "authorization": key or ""}, body)


def with_body(data: dict[str, Any], body: bytes) -> dict[str, Any]:
    """Return LiteLLM's request data with another body."""
    sent = _sent(data)
    kept = {name: value for name, value in data.items() if name not in sent}
    return {**kept, **json.loads(body)}


def _sent(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in _OF_THE_PROXY}


def restore_response(answer: Any, reply: Reply) -> Any:  # noqa: ANN401 - one of LiteLLM's types
    """Return a response with masked values restored; the same object if it contains no placeholders."""
    raw = _as_json(answer)
    restored = reply.restore(raw)
    reply.learn(raw)
    return answer if restored is raw else _like(answer, restored)


async def restore_stream(chunks: AsyncIterable[Any], prepared: Prepared) -> AsyncIterator[Any]:
    """Yield the chunks of a streamed response (objects, dicts, strings, or bytes) with masked values restored."""
    if prepared.reply is None:
        async for chunk in chunks:
            yield chunk
        return
    bytewise = EventStream(prepared.reply)
    events: ReplyEvents[Any] = ReplyEvents(prepared.reply)
    async for chunk in chunks:
        if isinstance(chunk, (bytes, str)):
            if piece := bytewise.feed(chunk.encode() if isinstance(chunk, str) else chunk):
                yield piece.decode() if isinstance(chunk, str) else piece
        else:
            data = _as_json(chunk)
            for now, origin in events.feed(data, chunk):
                yield chunk if now is data else _like(origin, now)
    for now, origin in events.close():
        yield _like(origin, now)
    if rest := bytewise.close():
        yield rest


def _as_json(answer: Any) -> dict[str, Any]:  # noqa: ANN401 - one of LiteLLM's types
    if isinstance(answer, dict):
        return answer
    dumped: dict[str, Any] = answer.model_dump(mode="json")
    return dumped


def _like(answer: Any, data: Any) -> Any:  # noqa: ANN401 - one of LiteLLM's types
    """Return data as an object of the same type as `answer`, with the hidden parameters that LiteLLM stores in it."""
    if isinstance(answer, dict):
        return data
    made = type(answer)(**data)
    hidden = getattr(answer, "_hidden_params", None)
    if hidden is not None:
        made._hidden_params = hidden  # noqa: SLF001 - LiteLLM's own place for headers and costs
    return made


_ANSWERS: Final = 16_384
"""Maximum number of requests that wait for their response."""


class Guard(CustomGuardrail):  # type: ignore[misc]  # litellm is not installed where types are checked
    """Stabilizes and masks the requests of LiteLLM's proxy, and restores values in the responses.

    In the proxy's configuration, write `guardrail: ctxguard_litellm.Guard`. The guard works like `ctxguard serve` and
    `ctxguard.wire.Guard`: Chat Completions, Responses, and Anthropic Messages are supported, and other requests are
    rejected. It needs both modes, `pre_call` and `post_call`.

    Args:
        stabilizer: The stabilizer. None creates one from `config`, or else from `budget`, `policy`, and `counter`.
        budget: Maximum number of tokens in the body of a request.
        policy: The name of a policy, see `ctxguard.policies`.
        counter: The token counter, see `ctxguard.tokens.find_counter`.
        config: A configuration file that describes the stabilizer.
        settings: The settings of `ctxguard.wire.Guard`, such as `strategy` and `vault`, and those of LiteLLM's
            `CustomGuardrail`: `guardrail_name`, `event_hook`, `default_on`.

    Raises:
        ConfigError: If a setting is invalid.
    """

    def __init__(
        self,
        stabilizer: Stabilizer | None = None,
        *,
        budget: int = 32_000,
        policy: str = "default",
        counter: str = "auto",
        config: str | None = None,
        **settings: Any,  # noqa: ANN401 - those of CustomGuardrail
    ) -> None:
        guarding = {name: settings.pop(name) for name in GuardSettings.__annotations__ if name in settings}
        hooks = [GuardrailEventHooks.pre_call, GuardrailEventHooks.post_call]
        super().__init__(supported_event_hooks=hooks, **settings)
        if not self._event_hook_is_event_type(GuardrailEventHooks.pre_call):
            raise ConfigError("mode must be [pre_call, post_call]: requests are masked before the call", setting="mode")
        if stabilizer is None and config is not None:
            stabilizer = Stabilizer.from_config(config)
        self.wire = wire.Guard(
            Stabilizer.from_policy(policy, budget=budget, counter=counter) if stabilizer is None else stabilizer,
            **guarding,
        )
        self._prepared: Recent[str, Prepared] = Recent(_ANSWERS)

    async def async_pre_call_hook(
        self,
        user_api_key_dict: Any,  # noqa: ANN401 - LiteLLM's signature
        cache: Any,  # noqa: ANN401, ARG002
        data: dict[str, Any],
        call_type: str,
    ) -> dict[str, Any]:
        """Return the stabilized request data.

        Raises:
            HTTPException: If the request cannot be read, exceeds the budget, or contains personal data that cannot be
                masked.
        """
        if not self.should_run_guardrail(data=data, event_type=GuardrailEventHooks.pre_call):
            return data
        try:
            prepared = await self.wire.aprepare(to_wire(data, call_type, getattr(user_api_key_dict, "api_key", None)))
        except CtxguardError as error:
            raise self._refusal(error) from None
        if prepared.report is None:
            return data
        if prepared.reply is not None and (name := data.get("litellm_call_id")):
            # without the body and the report, which contain whole histories, because a response may never arrive
            self._prepared.put(str(name), Prepared(b"", reply=prepared.reply))
        return with_body(data, prepared.body)

    async def async_post_call_success_hook(
        self,
        data: dict[str, Any],
        user_api_key_dict: Any,  # noqa: ANN401, ARG002 - LiteLLM's signature
        response: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Return a response with masked values restored."""
        prepared = self._of(data)
        return response if prepared is None or prepared.reply is None else restore_response(response, prepared.reply)

    async def async_post_call_streaming_iterator_hook(
        self,
        user_api_key_dict: Any,  # noqa: ANN401, ARG002 - LiteLLM's signature
        response: AsyncIterable[Any],
        request_data: dict[str, Any],
    ) -> AsyncIterator[Any]:
        """Yield the chunks of a streamed response with masked values restored."""
        prepared = self._of(request_data)
        chunks = response if prepared is None else restore_stream(response, prepared)
        async for chunk in chunks:
            yield chunk

    def _of(self, data: dict[str, Any]) -> Prepared | None:
        return self._prepared.get(str(data.get("litellm_call_id")))

    def _refusal(self, error: CtxguardError) -> Exception:
        from fastapi import HTTPException

        name = type(error).__name__
        self.wire.metrics.add("refused", error=name)
        detail = {"error": {"message": str(error), "type": "invalid_request_error", "code": name}}
        refusal: Exception = HTTPException(status_of(error), detail=detail, headers={ERROR_HEADER: name})
        return refusal
