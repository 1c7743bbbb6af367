"""Let the conversation begin with the user, where a provider wants it to."""

from __future__ import annotations

from itertools import takewhile
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft

_REASON: Final = "the provider wants the user to speak first"
_STAND_IN: Final = "…"
"""Stands for a user who said nothing that is left; no provider takes an empty message."""


class StartWithUser:
    """Drop what the assistant said before the first message of the user's: a greeting, as chat widgets show one.

    Anthropic, Gemini and Bedrock refuse such histories, as strict chat templates do ("first message must use the user
    role"). It stands behind every chain of their adapters, and behind those with one of these as `provider`, and does
    the same at every call, so that prompts keep their prefix. Where no user speaks, or a pin is to stay, a message of
    the user's that says "…" comes first.
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
