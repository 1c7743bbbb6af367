"""Let the conversation begin with the user if a provider requires it."""

from __future__ import annotations

from itertools import takewhile
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft

_REASON: Final = "the provider wants the user to speak first"
_STAND_IN: Final = "…"
"""The text of an inserted user message; no provider accepts an empty one."""


class StartWithUser:
    """Drop assistant messages before the first user message, such as the greeting of a chat widget.

    Anthropic, Gemini and Bedrock refuse such histories, and so do strict chat templates ("first message must use the
    user role"). The adapters of these providers append this stage to every chain, as does each of them as `provider`.
    It does the same at every call, so that prompts keep their prefix. If there is no user message, or a pinned message
    comes before it, a user message that says "…" is put first.
    """

    name = "StartWithUser"

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the new draft."""
        artifacts = draft.artifacts
        leading = list(takewhile(lambda artifact: artifact.kind not in (Kind.USER, Kind.TASK), artifacts))
        early = [artifact for artifact in leading if artifact.kind is not Kind.SYSTEM]
        if not early:
            return draft
        if len(leading) == len(artifacts) or any(artifact.pinned for artifact in early):
            place = artifacts.index(early[0])
            stand_in = Artifact(Kind.USER, _STAND_IN)
            return draft.revise((*artifacts[:place], stand_in, *artifacts[place:]), action="repaired", reason=_REASON)
        gone = set(map(id, early))
        return draft.revise((a for a in artifacts if id(a) not in gone), reason=_REASON)
