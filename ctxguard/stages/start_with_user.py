"""Make a conversation begin with a user message, for providers that require it."""

from __future__ import annotations

from itertools import takewhile
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft

_REASON: Final = "the provider wants the user to speak first"
_STAND_IN: Final = "…"
"""The text of an inserted user message. Providers do not accept an empty one."""


class StartWithUser:
    """Drops everything except system messages before the first user message, such as the greeting of a chat bot.

    Anthropic, Gemini, and Bedrock refuse a history that begins with an assistant message, and so do strict chat
    templates ("first message must use the user role"). The adapters of these providers append this stage to every
    chain. A `Stabilizer` does so if its `provider` is one of them. If the history contains no user message, or if a
    pinned message comes before the first one, nothing is dropped, and a user message "…" is inserted at the beginning.
    The result is the same in every call, so prompts keep their prefix.
    """

    name = "StartWithUser"

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft changed so that a user or task message comes first after the system messages."""
        artifacts = draft.artifacts
        leading = list(takewhile(lambda artifact: artifact.kind not in (Kind.USER, Kind.TASK), artifacts))
        early = [artifact for artifact in leading if artifact.kind is not Kind.SYSTEM]
        if not early:
            return draft
        if len(leading) == len(artifacts) or any(artifact.pinned for artifact in early):
            place = artifacts.index(early[0])
            stand_in = Artifact(Kind.USER, _STAND_IN)
            led = (*artifacts[:place], stand_in, *artifacts[place:])
            return draft.revise(led, action="repaired", reason=_REASON, cause="order")
        gone = set(map(id, early))
        return draft.revise((a for a in artifacts if id(a) not in gone), reason=_REASON, cause="order")
