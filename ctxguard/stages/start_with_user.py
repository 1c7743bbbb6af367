"""Let the conversation begin with the user, where a provider wants it to."""

from __future__ import annotations

from itertools import takewhile
from typing import Final

from ctxguard.artifacts import Kind
from ctxguard.draft import Draft

_REASON: Final = "the provider wants the user to speak first"


class StartWithUser:
    """Drop what the assistant said before the first message of the user's: a greeting, as chat widgets show one.

    Anthropic and Gemini refuse such histories, as strict chat templates do ("first message must use the user role"). It
    stands behind every chain with one of these as `provider`, and drops the same at every call, so that prompts keep
    their prefix. Pins stay, and so does all of a history in which no user speaks: its check fails.
    """

    name = "StartWithUser"

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the new draft."""
        artifacts = draft.artifacts
        leading = list(takewhile(lambda artifact: artifact.kind not in (Kind.USER, Kind.TASK), artifacts))
        gone = {id(artifact) for artifact in leading if artifact.kind is not Kind.SYSTEM}
        if not gone or len(leading) == len(artifacts) or any(a.pinned for a in leading if id(a) in gone):
            return draft
        return draft.revise((a for a in artifacts if id(a) not in gone), reason=_REASON)
