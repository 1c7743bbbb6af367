"""Mask personal data in the texts that are sent to the provider."""

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
    """Masks personal data in all texts: contents, system prompts, call arguments, citations, and metadata.

    Ids, tool names, and the names of participants are never changed; the check `NoPII` reports personal data in them.

    If values can be restored from a vault, a placeholder that a user or a tool wrote is escaped. Otherwise, anybody
    could obtain a value by writing its placeholder. Placeholders that the model wrote stay, unless a user or a tool
    wrote the same one earlier.

    How an artifact is masked depends only on the artifact and on earlier ones, so it does not change from turn to turn.
    Rules that learn names (`ctxguard.pii.PEOPLE`) are the exception: at a cut, names that became known later are masked
    in older texts as well.

    Args:
        rules: A detector, or a sequence of detectors; None means `ctxguard.pii.STANDARD`.
        masker: A masker with its own rules, strategies, and vault, in place of `rules`.

    Raises:
        ConfigError: If both `rules` and `masker` are given, a rule is not a detector, or `masker` is not a `Masker`.
    """

    name = "MaskPII"

    def __init__(self, rules: Detector | Sequence[Detector] | None = None, *, masker: Masker | None = None) -> None:
        if rules is not None and masker is not None:
            raise ConfigError("give rules or a masker, not both: a masker has rules of its own", setting="masker")
        # Checked here, because at the first call the traceback would point into the caller's agent framework.
        self._rules = _parse_rules(rules)
        self._masker = None if masker is None else _require_masker(masker)

    @property
    def masker(self) -> Masker:
        """The masker of this stage, created on first use."""
        if self._masker is None:
            from ctxguard.pii import STANDARD

            self._masker = _shared_masker((STANDARD,) if self._rules is None else self._rules)
        return self._masker

    def begin(self, draft: Draft, /) -> Follower:  # noqa: ARG002 - nothing of the draft is needed
        """Return a new object that masks the artifacts of one conversation as they arrive."""
        return _Masking(self.masker)


class MaskMessages(FollowedStage):
    """Masks only the contents of user and assistant messages, not system prompts, tool outputs, or call arguments.

    This stage is for rules as broad as `ctxguard.pii.DIGITS`, which in tool outputs and calls would mask all longer
    numbers. Add a `MaskPII` stage after it to mask personal data everywhere.

    Args:
        rules: A detector, or a sequence of detectors.

    Raises:
        ConfigError: If a rule is not a detector.
    """

    name = "MaskMessages"

    def __init__(self, rules: Detector | Sequence[Detector]) -> None:
        self._rules = _parse_rules(rules) or ()

    def begin(self, draft: Draft, /) -> Follower:  # noqa: ARG002 - nothing of the draft is needed
        """Return a new object that masks the artifacts of one conversation as they arrive."""
        return _MaskingMessages(_shared_masker(self._rules))


class _MaskingMessages(EachFollower):
    """Masks each message of one conversation once, for `MaskMessages` (see `Follower`)."""

    def __init__(self, masker: Masker) -> None:
        session = masker.session()
        super().__init__(lambda a: _mask_message(a, session), action="masked", reason=_REASON)
        self._detectors = masker.detectors

    def result(self, draft: Draft) -> Draft:
        """Return the draft with its messages masked. The draft also lists the rules, for the check `NoPII`."""
        return replace(self.revise(draft), message_detectors=(*draft.message_detectors, *self._detectors))


class _Masking(EachFollower):
    """Masks each artifact of one conversation once, for `MaskPII` (see `Follower`).

    If values in the vault were erased or expired between two calls, the whole history is masked again.
    """

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._vault = None if masker.is_stateless else masker.vault
        self.only_appends = self._vault is None  # a value that was erased from a vault gets another placeholder
        self._begin()

    def _begin(self) -> None:
        self._erasures = 0 if self._vault is None else self._vault.erasures()
        session = self._session = self._masker.session()
        self._progress = [session.progress]
        super().__init__(lambda a: _mask_artifact(a, session), action="masked", reason=_REASON)
        self._known = None if self._masker.echoing is None else _Known(session)
        self._mask = self._masker.mask if self._masker.is_stateless else session.drafted

    def take(self, artifacts: Sequence[Artifact], draft: Draft) -> None:
        """Mask the artifacts that are new in the draft."""
        if self._masker.is_stateless:
            super().take(artifacts, draft)
            return
        for artifact in artifacts:
            if self._known is not None:
                self._known.take(artifact, draft)
            super().take((artifact,), draft)
            self._progress.append(self._session.progress)

    def rewind(self, count: int) -> bool:
        """Forget all but the first `count` artifacts, and the placeholders and names that the others introduced.

        Return whether that was possible.
        """
        self.forget_after(count)
        if not self._masker.is_stateless:
            del self._progress[count + 1 :]
            self._session.back_to(self._progress[-1])
        return self._known is None or self._known.rewind(self.changed[-1:])

    def result(self, draft: Draft) -> Draft:
        """Return the draft with all texts masked. The draft also lists the rules, for later stages and checks."""
        if self._vault is not None and self._vault.erasures() != self._erasures:
            self._begin()
            self.take(draft.artifacts, draft)
        return self.revise(_record_masking(draft, self._masker, self._mask, self._known))


class _Known:
    """The names that rules have learned from a history, and how many were known when each artifact arrived."""

    def __init__(self, session: MaskSession) -> None:
        self._session = session
        self._places: dict[int, int] = {}
        self._counts: list[tuple[int, int]] = []

    def take(self, artifact: Artifact, draft: Draft) -> None:
        """Learn the names in the history up to an artifact, also those in artifacts that earlier stages dropped."""
        history = draft.history
        for place in range(len(self._places), len(history)):
            self._places[id(history[place].root)] = place
        place = self._places.get(id(artifact.root), len(self._counts) - 1)
        while len(self._counts) <= place:
            for _, text in history[len(self._counts)].texts():
                self._session.learn(text)
            self._counts.append(self._session.known)

    def rewind(self, kept: Sequence[Artifact]) -> bool:
        """Forget all names that were learned after the last artifact in `kept`. If `kept` is empty, forget all names.

        Return False if that artifact is unknown.
        """
        place = self._places.get(id(kept[-1].root)) if kept else -1
        if place is None:
            return False
        del self._counts[place + 1 :]
        self._places = {root: other for root, other in self._places.items() if other <= place}
        return True

    def mask_again(self, text: str, at: Artifact) -> str:
        """Return a masked text in which all names are masked that were known when the artifact `at` arrived."""
        place = self._places.get(id(at.root), -1)
        known = self._counts[place] if 0 <= place < len(self._counts) else (0, 0)
        return self._session.again(text, known) if known[0] else text


def _record_masking(draft: Draft, masker: Masker, mask: Callable[[str], str], known: _Known | None) -> Draft:
    detectors = (*draft.detectors, *masker.detectors)
    remasks = draft.remasks if known is None else (*draft.remasks, known.mask_again)
    return replace(draft, masks=(*draft.masks, mask), remasks=remasks, detectors=detectors)


def _require_masker(masker: object) -> Masker:
    from ctxguard.pii import Masker

    return instance(masker, Masker, "masker")


def _parse_rules(rules: Detector | Sequence[Detector] | None) -> tuple[Detector, ...] | None:
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
    """Return the name of the rule set that is most similar to a wrong argument, for an error message."""
    from difflib import get_close_matches  # only needed for an error

    return next(iter(get_close_matches(str(given).upper(), ("STANDARD", "PEOPLE", "DIGITS", "SSN"))), "STANDARD")


@lru_cache(maxsize=16)
def _shared_masker(rules: tuple[Detector, ...]) -> Masker:
    """Return the masker for the given rules. Stages with the same rules share one masker and thus its caches."""
    from ctxguard.pii import Masker

    return Masker(rules)


def _mask_message(artifact: Artifact, session: MaskSession) -> Artifact:
    if artifact.kind not in MESSAGES:
        return artifact
    mask = session.own if artifact.kind is Kind.ASSISTANT else session.text
    return artifact.edit(lambda slot, text: mask(text) if slot == "content" else text)


def _mask_artifact(artifact: Artifact, session: MaskSession) -> Artifact:
    content = artifact.content
    # Placeholders that the model wrote stay; those of users and tools are escaped.
    is_own = artifact.kind is Kind.ASSISTANT
    mask = session.own if is_own else session.text
    # Nearly all artifacts are plain text, for which the slower code for all fields is not needed.
    if type(content) is str and not artifact.calls and not artifact.fields:
        text = mask(content)
        return artifact if text is content or text == content else artifact.revised(content=text)
    return artifact.edit_together(lambda texts: session.together(texts, is_own=is_own), mask)
