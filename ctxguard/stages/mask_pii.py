"""Mask personal data in everything that leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from operator import is_
from typing import TYPE_CHECKING

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft
from ctxguard.errors import ConfigError
from ctxguard.prefix_memory import PrefixMemory
from ctxguard.settings import instance

if TYPE_CHECKING:
    from ctxguard.pii import Detector, Masker, MaskSession

__all__ = ["MaskPII"]


class MaskPII:
    """Mask every text by the active rules: contents, tool-call arguments, citations, metadata. System prompts too.

    Ids and names are never changed; `NoPII` searches them.

    Placeholders that a person or a tool writes are escaped where they could be given back, so that nobody can make a
    vault speak; those that the model writes stay as they are, but for what somebody spelled before. What an artifact
    becomes depends on itself and on what came before it, so it never changes from turn to turn.

    Args:
        rules: one detector or several; None means `ctxguard.pii.STANDARD`.
        masker: a masker of one's own (strategies, vault), in place of `rules`.

    Raises:
        ConfigError: both are given, one of the rules is no detector, or the masker is none.
    """

    name = "MaskPII"

    def __init__(self, rules: Detector | Sequence[Detector] | None = None, *, masker: Masker | None = None) -> None:
        if rules is not None and masker is not None:
            raise ConfigError("give rules or a masker, not both: a masker has rules of its own", setting="masker")
        self._rules = _detectors(rules)
        self._masker = None if masker is None else _wanted(masker)
        self._known: PrefixMemory[tuple[Artifact, ...]] = PrefixMemory()

    @property
    def masker(self) -> Masker:
        """The masker, made when it is first wanted."""
        if self._masker is None:
            from ctxguard.pii import STANDARD

            self._masker = _shared_masker((STANDARD,) if self._rules is None else self._rules)
        return self._masker

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the new draft."""
        masker = self.masker
        session = masker.session()
        if masker.is_stateless:
            masked, begins_with = self._each(draft, masker, session)
        else:
            masked, begins_with = tuple(_masked(artifact, session) for artifact in draft.artifacts), ()
        draft = replace(
            draft,
            masks=(*draft.masks, masker.mask if masker.is_stateless else session.drafted),
            detectors=(*draft.detectors, *self.masker.detectors),
        )
        return draft.revise(masked, action="masked", reason="holds personal data", begins_with=begins_with)

    def _each(
        self, draft: Draft, masker: Masker, session: MaskSession
    ) -> tuple[tuple[Artifact, ...], tuple[Artifact, ...]]:
        """Mask artifacts each by itself, going on where the last call of the session ended; say what that one gave."""
        artifacts = draft.artifacts
        found = self._known.find(artifacts, begins_with=draft.begins_with)
        begin, known = (found.length, found.value) if found else (0, ())
        if begin == len(artifacts):
            return known, known
        fresh = tuple(_remembered(artifact, masker, session) for artifact in artifacts[begin:])
        unchanged = (found is None or known is found.items) and all(map(is_, fresh, artifacts[begin:]))
        masked = artifacts if unchanged else known + fresh
        self._known.keep(artifacts, masked, after=found)
        return masked, known


def _wanted(masker: object) -> Masker:
    from ctxguard.pii import Masker

    return instance(masker, Masker, "masker")


def _detectors(rules: Detector | Sequence[Detector] | None) -> tuple[Detector, ...] | None:
    if rules is None:
        return None
    given = rules if isinstance(rules, (list, tuple)) else (rules,)
    for rule in given:
        if isinstance(rule, str) or not callable(getattr(rule, "find", None)):
            raise ConfigError(
                f"rules are detectors such as ctxguard.pii.STANDARD, not {rule!r}; a plain function goes into "
                "CallableDetector",
                setting="rules",
            )
    return tuple(given)


@lru_cache(maxsize=16)
def _shared_masker(rules: tuple[Detector, ...]) -> Masker:
    """Return one masker for all stages of the same rules, so that they share what they remember."""
    from ctxguard.pii import Masker

    return Masker(rules)


def _remembered(artifact: Artifact, masker: Masker, session: MaskSession) -> Artifact:
    masked = artifact.memo.get(masker)
    if masked is None:
        masked = _masked(artifact, session)
        artifact.memo.keep(masker, masked)
    return masked  # type: ignore[return-value]  # only artifacts stand under a masker


def _masked(artifact: Artifact, session: MaskSession) -> Artifact:
    content = artifact.content
    mask = session.own if artifact.kind is Kind.ASSISTANT else session.text
    if type(content) is str and not artifact.calls and not artifact.fields:
        text = mask(content)
        return artifact if text is content or text == content else artifact.revised(content=text)
    return artifact.edit(lambda _slot, text: mask(text))
