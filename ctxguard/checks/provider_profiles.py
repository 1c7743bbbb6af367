"""The rules that each provider has for roles, their order, and ids."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ctxguard.artifacts import BY_POSITION, Artifact, Kind
from ctxguard.draft import Draft
from ctxguard.errors import ConfigError
from ctxguard.history.pairing import STRICT_IDS, CallIds
from ctxguard.report import Finding


@dataclass(frozen=True, slots=True)
class ProviderProfile:
    """Holds if the messages follow the provider's rules for roles and ids.

    Attributes:
        name: Name of the check, such as `ProviderProfile(openai)`.
        starts_with_user: Whether the first message after the system prompt must be the user's, as Anthropic, Gemini,
            Bedrock, and strict chat templates require.
        alternates: Whether user and assistant messages must alternate, as strict templates of local models require.
            They also require that only an assistant message follows tool results, and that the only system message is
            the first message. Other APIs accept several messages of one role in a row.
        ids: Whether every call and every result must have an id, as at OpenAI and Anthropic. Gemini pairs them by
            order.
        call_ids: The ids of calls that the provider accepts.
        ends_with_input: Whether the last message must not be the assistant's. Anthropic's recent models and strict
            templates reject a prefilled reply.
    """

    name: str
    starts_with_user: bool = False
    alternates: bool = False
    ids: bool = False
    call_ids: CallIds = CallIds()  # noqa: RUF009 - frozen
    ends_with_input: bool = False

    def __call__(self, draft: Draft, /) -> Iterator[Finding]:
        """Yield a finding for each violation."""
        for position, artifact in enumerate(draft.artifacts):
            if artifact.role is not None:
                yield Finding(
                    f"role {artifact.role!r:.40} is not one that the provider knows", f"artifacts[{position}]"
                )
        body = [(p, a) for p, a in enumerate(draft.artifacts) if a.kind is not Kind.SYSTEM]
        if not body:
            return
        first, last = body[0], body[-1]
        if self.starts_with_user and first[1].kind not in (Kind.USER, Kind.TASK):
            yield Finding(f"the first message is of kind {first[1].kind}, not user", f"artifacts[{first[0]}]")
        if self.ends_with_input and last[1].kind is Kind.ASSISTANT and not last[1].calls:
            yield Finding("the last message is the assistant's", f"artifacts[{last[0]}]")
        if self.ids:
            yield from _missing_ids(body)
        yield from _refused_ids(body, self.call_ids)
        if self.alternates:
            yield from _same_role_twice(body)
            yield from _late_system(draft.artifacts)


def _missing_ids(body: list[tuple[int, Artifact]]) -> Iterator[Finding]:
    for position, artifact in body:
        for number, call in enumerate(artifact.calls):
            if not call.id:
                yield Finding("a tool call has no id", f"artifacts[{position}].calls[{number}]")
        if artifact.kind is Kind.TOOL and not artifact.answers:
            yield Finding("a tool result has no id of its call", f"artifacts[{position}]")


def _refused_ids(body: list[tuple[int, Artifact]], ids: CallIds) -> Iterator[Finding]:
    known: set[str] = set()
    for position, artifact in body:
        for number, call in enumerate(artifact.calls):
            if not call.id or call.id == BY_POSITION:
                continue
            place = f"artifacts[{position}].calls[{number}].id"
            if ids.pattern is not None and re.fullmatch(ids.pattern, call.id) is None:
                yield Finding("the id of a tool call has characters or a length that the provider refuses", place)
            if ids.are_unique and call.id in known:
                yield Finding("the id of a tool call repeats that of an earlier call", place)
            known.add(call.id)


def _same_role_twice(body: list[tuple[int, Artifact]]) -> Iterator[Finding]:
    previous = None
    for position, artifact in body:
        role = Kind.USER if artifact.kind is Kind.TASK else artifact.kind
        if role is previous and role is not Kind.TOOL:
            yield Finding(f"two {role} messages in a row", f"artifacts[{position}]")
        if role is Kind.USER and previous is Kind.TOOL:
            yield Finding("a user message follows a tool result", f"artifacts[{position}]")
        previous = role


def _late_system(artifacts: Sequence[Artifact]) -> Iterator[Finding]:
    for position, (before, artifact) in enumerate(pairwise(artifacts), 1):
        # the texts of a request outside its history are an artifact of their own
        is_beside = before.kind is Kind.SYSTEM and type(before.source) is not type(artifact.source)
        if artifact.kind is Kind.SYSTEM and not is_beside:
            yield Finding("a system message is not the first message", f"artifacts[{position}]")


PROVIDERS: Final = {
    "openai": ProviderProfile("ProviderProfile(openai)", ids=True),
    "anthropic": ProviderProfile(
        "ProviderProfile(anthropic)", starts_with_user=True, ids=True, call_ids=STRICT_IDS, ends_with_input=True
    ),
    "gemini": ProviderProfile("ProviderProfile(gemini)", starts_with_user=True),
    "strict": ProviderProfile(
        "ProviderProfile(strict)", starts_with_user=True, alternates=True, ids=True, ends_with_input=True
    ),
}
"""The profiles by provider. Sources: the providers' error messages and SDK docstrings, as of November 2026."""


def provider_profile(provider: str) -> ProviderProfile:
    """Return the profile of a provider.

    Raises:
        ConfigError: If the provider is unknown.
    """
    try:
        return PROVIDERS[provider]
    except (KeyError, TypeError):
        raise ConfigError(
            f"unknown provider {provider!r}; known are {', '.join(PROVIDERS)}", setting="provider"
        ) from None
