"""Mask personal data in everything that leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft, Follower
from ctxguard.errors import ConfigError
from ctxguard.settings import instance
from ctxguard.stages.each import EachFollower
from ctxguard.stages.followed import FollowedStage

if TYPE_CHECKING:
    from ctxguard.pii import Detector, Masker, MaskSession

_REASON: Final = "holds personal data"


class MaskPII(FollowedStage):
    """Mask every text by the active rules: contents, tool-call arguments, citations, metadata. System prompts too.

    Ids and names are never changed; `NoPII` searches them.

    Placeholders that a person or a tool writes are escaped where they could be given back, so that nobody can make a
    vault speak; those that the model writes stay as they are, but for what somebody spelled before. What an artifact
    becomes depends on itself and on what came before it, so it never changes from turn to turn. With rules that make
    names known (`ctxguard.pii.PEOPLE`) it changes at a cut, where names that became known since are masked in it.

    Args:
        rules: one detector or several; None means `ctxguard.pii.STANDARD`.
        masker: your own masker (strategies, vault), instead of `rules`.

    Raises:
        ConfigError: both are given, a rule is not a detector, or the masker is not a masker.
    """

    name = "MaskPII"

    def __init__(self, rules: Detector | Sequence[Detector] | None = None, *, masker: Masker | None = None) -> None:
        if rules is not None and masker is not None:
            raise ConfigError("give rules or a masker, not both: a masker has rules of its own", setting="masker")
        # Checked here and not at the first call, where the error would name a line of somebody else's.
        self._rules = _detectors(rules)
        self._masker = None if masker is None else _wanted(masker)

    @property
    def masker(self) -> Masker:
        """The masker, made when it is first wanted."""
        if self._masker is None:
            from ctxguard.pii import STANDARD

            self._masker = _shared_masker((STANDARD,) if self._rules is None else self._rules)
        return self._masker

    def begin(self, draft: Draft, /) -> Follower:  # noqa: ARG002 - nothing of the draft is needed
        """Return what masks one conversation as it grows."""
        masker = self.masker
        # A vault can forget between calls; only then is what was masked before worked out again.
        return _Anew(masker) if masker.vault is not None and not masker.is_stateless else _Masking(masker)


class _Masking(EachFollower):
    """Mask the artifacts of one conversation, each once."""

    def __init__(self, masker: Masker) -> None:
        session = masker.session()
        super().__init__(lambda a: _masked(a, session), action="masked", reason=_REASON)
        self._masker = masker
        self._known = None if masker.echoing is None else _Known(session)
        self._mask = masker.mask if masker.is_stateless else session.drafted

    def take(self, artifacts: Sequence[Artifact], draft: Draft) -> None:
        """Take in what comes next."""
        if self._known is None:
            super().take(artifacts, draft)
            return
        for artifact in artifacts:
            self._known.take(artifact, draft)
            super().take((artifact,), draft)

    def result(self, draft: Draft) -> Draft:
        """Return the draft with everything masked, and the rules noted for the stages and checks behind."""
        return self.revised(_noted(draft, self._masker, self._mask, self._known))


class _Known:
    """Know the names that a history has made known, artifact by artifact."""

    def __init__(self, session: MaskSession) -> None:
        self._session = session
        self._places: dict[int, int] = {}
        self._counts: list[tuple[int, int]] = []

    def take(self, artifact: Artifact, draft: Draft) -> None:
        """Learn what the history says up to an artifact, what stages before this one left out among it."""
        history = draft.history
        for place in range(len(self._places), len(history)):
            self._places[id(history[place].root)] = place
        place = self._places.get(id(artifact.root), len(self._counts) - 1)
        while len(self._counts) <= place:
            for _, text in history[len(self._counts)].texts():
                self._session.learn(text)
            self._counts.append(self._session.known)

    def again(self, text: str, at: Artifact) -> str:
        """Return a masked text with the names masked that were known when an artifact came."""
        place = self._places.get(id(at.root), -1)
        known = self._counts[place] if 0 <= place < len(self._counts) else (0, 0)
        return self._session.again(text, known) if known[0] else text


class _Anew:
    """Mask the artifacts of one conversation again in each call: its vault may have been erased in between."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker

    def take(self, artifacts: Sequence[Artifact], draft: Draft) -> None:
        """Take in nothing."""

    def result(self, draft: Draft) -> Draft:
        """Return the draft with everything masked."""
        masking = _Masking(self._masker)
        masking.take(draft.artifacts, draft)
        return masking.result(draft)


def _noted(draft: Draft, masker: Masker, mask: Callable[[str], str], known: _Known | None) -> Draft:
    detectors = (*draft.detectors, *masker.detectors)
    remasks = draft.remasks if known is None else (*draft.remasks, known.again)
    return replace(draft, masks=(*draft.masks, mask), remasks=remasks, detectors=detectors)


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
                f"rules are detectors such as ctxguard.pii.{_nearest_set(rule)}, not {rule!r}; a plain function goes "
                "into CallableDetector",
                setting="rules",
            )
    return tuple(given)


def _nearest_set(given: object) -> str:
    """Return the rule set whose name is closest to what was given in place of it."""
    from difflib import get_close_matches  # only ever needed for an error

    return next(iter(get_close_matches(str(given).upper(), ("STANDARD", "PEOPLE", "DIGITS", "SSN"))), "STANDARD")


@lru_cache(maxsize=16)
def _shared_masker(rules: tuple[Detector, ...]) -> Masker:
    """Return one masker for all stages of the same rules, so that they share what they remember."""
    from ctxguard.pii import Masker

    return Masker(rules)


def _masked(artifact: Artifact, session: MaskSession) -> Artifact:
    content = artifact.content
    # The model writes placeholders itself and must be able to; from anybody else they are escaped.
    mask = session.own if artifact.kind is Kind.ASSISTANT else session.text
    # By far the most artifacts are plain text: they skip the general way over all fields.
    if type(content) is str and not artifact.calls and not artifact.fields:
        text = mask(content)
        return artifact if text is content or text == content else artifact.revised(content=text)
    return artifact.edit(lambda _slot, text: mask(text))
