"""The guard as a guardrail of LiteLLM's proxy."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, Final

from litellm.integrations.custom_guardrail import CustomGuardrail
from litellm.types.guardrails import GuardrailEventHooks

from ctxguard import wire
from ctxguard.adapting.recent import Recent
from ctxguard.errors import ConfigError, CtxguardError
from ctxguard.stabilizer import Stabilizer
from ctxguard.wire.guard import GuardSettings, Prepared
from ctxguard.wire.refusals import ERROR_HEADER, status_of
from ctxguard_litellm.answers import restored_answer, restored_stream
from ctxguard_litellm.requests import asked, changed_data

_ANSWERS: Final = 16_384
"""Maximum number of requests that wait for an answer."""


class Guard(CustomGuardrail):  # type: ignore[misc]  # litellm is not installed where types are checked
    """Stabilize and mask the requests of LiteLLM's proxy, and unmask the answers.

    In the proxy's configuration it is `guardrail: ctxguard_litellm.Guard`.
    It works as `ctxguard serve` and `ctxguard.wire.Guard` do: Chat Completions, Responses and Anthropic Messages are
    supported; other requests are rejected. Its modes are `pre_call` and `post_call`; it needs both.

    Args:
        stabilizer: The stabilizer; None creates one from the settings below.
        budget: Maximum tokens of the body of a request.
        policy: The name of a chain, see `ctxguard.policies`.
        counter: Counts tokens, see `ctxguard.tokens.find_counter`.
        config: A configuration file that describes the stabilizer, instead of the three settings before.
        settings: Those of `ctxguard.wire.Guard`, such as `strategy` and `vault`, and those of LiteLLM's
            `CustomGuardrail`: `guardrail_name`, `event_hook`, `default_on`.

    Raises:
        ConfigError: A setting is invalid.
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
            raise ConfigError("mode must be [pre_call, post_call]: nothing is masked behind the call", setting="mode")
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
        """Return the stabilized request.

        Raises:
            HTTPException: It cannot be read, exceeds the budget, or contains personal data that cannot be masked.
        """
        if not self.should_run_guardrail(data=data, event_type=GuardrailEventHooks.pre_call):
            return data
        try:
            prepared = await self.wire.aprepare(asked(data, call_type, getattr(user_api_key_dict, "api_key", None)))
        except CtxguardError as error:
            raise self._refusal(error) from None
        if prepared.report is None:
            return data
        if prepared.reply is not None and (name := data.get("litellm_call_id")):
            # without the body and the report, which contain whole histories: an answer may never come
            self._prepared.put(str(name), Prepared(b"", reply=prepared.reply))
        return changed_data(data, prepared.body)

    async def async_post_call_success_hook(
        self,
        data: dict[str, Any],
        user_api_key_dict: Any,  # noqa: ANN401, ARG002 - LiteLLM's signature
        response: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Return an unmasked answer."""
        prepared = self._of(data)
        return response if prepared is None or prepared.reply is None else restored_answer(response, prepared.reply)

    async def async_post_call_streaming_iterator_hook(
        self,
        user_api_key_dict: Any,  # noqa: ANN401, ARG002 - LiteLLM's signature
        response: AsyncIterable[Any],
        request_data: dict[str, Any],
    ) -> AsyncIterator[Any]:
        """Yield the chunks of an unmasked streamed answer."""
        prepared = self._of(request_data)
        chunks = response if prepared is None else restored_stream(response, prepared)
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
