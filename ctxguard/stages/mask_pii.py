"""Mask personal data in everything that is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft, FollowedStage, Follower
from ctxguard.errors import ConfigError
from ctxguard.history import MESSAGES
from ctxguard.settings import instance
from ctxguard.stages.each import EachFollower

if TYPE_CHECKING:
    from ctxguard.pii import Detector, Masker, MaskSession

_REASON: Final = "holds personal data"


class MaskPII(FollowedStage):
    """Mask every text by the active rules: contents, tool-call arguments, citations, metadata. System prompts too.

    Ids and names are never changed; the check `NoPII` searches them.

    A placeholder in the text of a person or a tool is escaped where it could be restored, so that nobody gets a value
    out of a vault by writing its placeholder. Placeholders that the model writes stay, unless a person or a tool wrote
    the same one earlier. A masked artifact is a function of itself and of the artifacts before it, so it never changes
    from turn to turn. With rules that learn names (`ctxguard.pii.PEOPLE`) it changes at a cut, where names that were
    learned since are masked in it.

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
        # Check now: at the first call, the traceback would point into the caller's agent framework.
        self._rules = _detectors(rules)
        self._masker = None if masker is None else _wanted(masker)

    @property
    def masker(self) -> Masker:
        """The masker, created on first use."""
        if self._masker is None:
            from ctxguard.pii import STANDARD

            self._masker = _shared_masker((STANDARD,) if self._rules is None else self._rules)
        return self._masker

    def begin(self, draft: Draft, /) -> Follower:  # noqa: ARG002 - nothing of the draft is needed
        """Return the follower that masks one conversation as it grows."""
        return _Masking(self.masker)


class MaskMessages(FollowedStage):
    """Mask only messages of people and the model: instructions, tool outputs and calls keep their numbers.

    For rules as broad as `ctxguard.pii.DIGITS`; a `MaskPII` after it masks personal data everywhere.

    Args:
        rules: one detector or several.

    Raises:
        ConfigError: a rule is not a detector.
    """

    name = "MaskMessages"

    def __init__(self, rules: Detector | Sequence[Detector]) -> None:
        self._rules = _detectors(rules) or ()

    def begin(self, draft: Draft, /) -> Follower:  # noqa: ARG002 - nothing of the draft is needed
        """Return the follower that masks one conversation as it grows."""
        return _MaskingMessages(_shared_masker(self._rules))


class _MaskingMessages(EachFollower):
    """Mask the messages of one conversation, each once."""

    def __init__(self, masker: Masker) -> None:
        session = masker.session()
        super().__init__(lambda a: _masked_words(a, session), action="masked", reason=_REASON)
        self._detectors = masker.detectors

    def result(self, draft: Draft) -> Draft:
        """Return the draft with its messages masked, and the rules recorded for the check."""
        return replace(self.revised(draft), message_detectors=(*draft.message_detectors, *self._detectors))


class _Masking(EachFollower):
    """Mask the artifacts of one conversation, each once.

    A vault may lose values between two calls, by erasure or expiry; only then is the whole history masked again.
    """

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._vault = None if masker.is_stateless else masker.vault
        self.only_appends = self._vault is None  # a value that a vault has lost gets another placeholder
        self._begin()

    def _begin(self) -> None:
        self._erasures = 0 if self._vault is None else self._vault.erasures()
        session = self._masker.session()
        super().__init__(lambda a: _masked(a, session), action="masked", reason=_REASON)
        self._known = None if self._masker.echoing is None else _Known(session)
        self._mask = self._masker.mask if self._masker.is_stateless else session.drafted

    def take(self, artifacts: Sequence[Artifact], draft: Draft) -> None:
        """Take in the artifacts that are new in the draft."""
        if self._known is None:
            super().take(artifacts, draft)
            return
        for artifact in artifacts:
            self._known.take(artifact, draft)
            super().take((artifact,), draft)

    def rewind(self, count: int) -> bool:
        """Forget all but the first `count` artifacts, unless how a text is masked depends on earlier texts."""
        self.forget_after(count)
        return self._masker.is_stateless

    def result(self, draft: Draft) -> Draft:
        """Return the draft with everything masked, and the rules recorded for later stages and checks."""
        if self._vault is not None and self._vault.erasures() != self._erasures:
            self._begin()
            self.take(draft.artifacts, draft)
        return self.revised(_noted(draft, self._masker, self._mask, self._known))


class _Known:
    """The names that a history has introduced, up to each artifact."""

    def __init__(self, session: MaskSession) -> None:
        self._session = session
        self._places: dict[int, int] = {}
        self._counts: list[tuple[int, int]] = []

    def take(self, artifact: Artifact, draft: Draft) -> None:
        """Learn the names in the history up to an artifact, including artifacts that earlier stages dropped."""
        history = draft.history
        for place in range(len(self._places), len(history)):
            self._places[id(history[place].root)] = place
        place = self._places.get(id(artifact.root), len(self._counts) - 1)
        while len(self._counts) <= place:
            for _, text in history[len(self._counts)].texts():
                self._session.learn(text)
            self._counts.append(self._session.known)

    def again(self, text: str, at: Artifact) -> str:
        """Return a masked text with the names masked that were known when an artifact arrived."""
        place = self._places.get(id(at.root), -1)
        known = self._counts[place] if 0 <= place < len(self._counts) else (0, 0)
        return self._session.again(text, known) if known[0] else text


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
    """Return the rule set whose name is closest to a wrong one."""
    from difflib import get_close_matches  # only needed for an error

    return next(iter(get_close_matches(str(given).upper(), ("STANDARD", "PEOPLE", "DIGITS", "SSN"))), "STANDARD")


@lru_cache(maxsize=16)
def _shared_masker(rules: tuple[Detector, ...]) -> Masker:
    """Return one masker for all stages with the same rules, so that they share its caches."""
    from ctxguard.pii import Masker

    return Masker(rules)


def _masked_words(artifact: Artifact, session: MaskSession) -> Artifact:
    if artifact.kind not in MESSAGES:
        return artifact
    mask = session.own if artifact.kind is Kind.ASSISTANT else session.text
    return artifact.edit(lambda slot, text: mask(text) if slot == "content" else text)


def _masked(artifact: Artifact, session: MaskSession) -> Artifact:
    content = artifact.content
    # The model must be able to write placeholders; those of anyone else are escaped.
    is_own = artifact.kind is Kind.ASSISTANT
    mask = session.own if is_own else session.text
    # Nearly all artifacts are plain text: skip the general path over all fields.
    if type(content) is str and not artifact.calls and not artifact.fields:
        text = mask(content)
        return artifact if text is content or text == content else artifact.revised(content=text)
    return artifact.edit_together(lambda texts: session.together(texts, is_own=is_own), mask)
