"""Mask personal data in the texts that are sent to the provider."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Ask, Draft, Masking, StageResult
from ctxguard.errors import ConfigError
from ctxguard.history import MESSAGES, Memory
from ctxguard.history.memory import first_difference
from ctxguard.settings import instance
from ctxguard.stages.arrival import ChangedOnce

if TYPE_CHECKING:
    from ctxguard.pii import Detector, Masker, MaskSession

_REASON: Final = "contains personal data"


class MaskPII:
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

    def with_masker(self, masker: Masker) -> MaskPII:
        """Return such a stage with another masker."""
        return MaskPII(masker=masker)

    def __call__(self, draft: Draft, /) -> StageResult:
        """Return the draft with all texts masked. The draft also lists the rules, for later stages and checks.

        With a model, async drivers mask in a thread.
        """
        return self._asking(draft) if self.masker.is_model else self._masked(draft)

    def _asking(self, draft: Draft) -> Generator[Ask, object, Draft]:
        return cast("Draft", (yield Ask(self._masked, (draft,), is_read=True, is_pure=True)))

    def _masked(self, draft: Draft) -> Draft:
        memory = draft.memory
        masking = memory.of(self, lambda: _Masking(self.masker, memory))
        if masking.is_outdated:
            memory.clear()
            masking = memory.of(self, lambda: _Masking(self.masker, memory))
        return masking.masked(draft)


class MaskMessages:
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

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft with its messages masked. The draft also lists the rules, for the check `NoPII`."""
        masked = draft.memory.of(self, lambda: self._messages(draft.memory)).revised(draft)
        detectors = _shared_masker(self._rules).detectors
        masking = draft.masking
        searched = (*masking.message_detectors, *detectors)
        return replace(masked, masking=replace(masking, message_detectors=searched))

    def _messages(self, memory: Memory) -> ChangedOnce:
        session = _shared_masker(self._rules).session(memory)
        return ChangedOnce(lambda a: _mask_message(a, session), action="masked", reason=_REASON)


class _Masking:
    """Masks each artifact of one conversation once, for `MaskPII`.

    Args:
        masker: The masker.
        memory: The memory of the conversation.
    """

    def __init__(self, masker: Masker, memory: Memory) -> None:
        self._masker = masker
        self._memory = memory
        self._vault = None if masker.is_stateless else masker.vault
        self._erasures = 0 if self._vault is None else self._vault.erasures()
        session = self._session = masker.session(memory)
        self._learning = None if masker.echoing is None else _Learning(session, memory)
        self._known: dict[int, tuple[int, int]] = {}
        self._artifacts = ChangedOnce(self._mask_artifact, action="masked", reason=_REASON)
        self._mask = masker.mask if masker.is_stateless else session.drafted

    @property
    def is_outdated(self) -> bool:
        """Whether values in the vault were erased or expired since, so that the whole history is masked again."""
        return self._vault is not None and self._vault.erasures() != self._erasures

    def masked(self, draft: Draft) -> Draft:
        """Return the draft with all texts masked."""
        before, learns = draft.masking, self._learning is not None
        if self._learning is not None:
            self._learning.begin(draft.history)
        masking = Masking(
            masks=(*before.masks, self._mask),
            masks_at=(*before.masks_at, self._mask_at),
            remasks=(*before.remasks, self._mask_again) if learns else before.remasks,
            detectors=(*before.detectors, *self._masker.detectors),
            message_detectors=before.message_detectors,
        )
        return self._artifacts.revised(replace(draft, masking=masking))

    def _mask_artifact(self, artifact: Artifact) -> Artifact:
        if self._learning is not None:
            self._learning.take(artifact)
        masked = _mask_artifact(artifact, self._session)
        if not self._masker.is_stateless:
            self._memory.put(self._known, id(artifact.root), self._session.known)
        return masked

    def _mask_at(self, text: str, at: Artifact) -> str:
        """Return a text masked with the values and names that were known when the artifact `at` had arrived."""
        known = self._known.get(id(at.root))
        return self._mask(text) if known is None else self._session.again(text, known)

    def _mask_again(self, text: str, at: Artifact) -> str:
        """Return a masked text in which all names are masked that were known when the artifact `at` had arrived."""
        known = self._known.get(id(at.root), (0, 0))
        return self._session.again(text, known) if known[0] else text


class _Learning:
    """Learns the names that a history introduces, up to the artifact that is masked."""

    def __init__(self, session: MaskSession, memory: Memory) -> None:
        self._history: Sequence[Artifact] = ()
        self._ahead: dict[int, int] | None = None
        self._session = session
        self._memory = memory
        self._learned: list[Artifact] = []
        self._takers: list[int] = []

    def begin(self, history: Sequence[Artifact]) -> None:
        """Begin a call with this history.

        If it differs only in artifacts that earlier stages dropped, the texts masked after these are masked again.
        """
        self._history, self._ahead = history, None
        same = first_difference(self._learned, history)
        if same < len(self._learned):
            self._memory.rewind(self._takers[same])

    def take(self, artifact: Artifact) -> None:
        """Learn the names in the history up to an artifact, also those in artifacts that earlier stages dropped.

        An artifact that is not in the history, as another stage has added it, introduces no name.
        """
        history, begin = self._history, len(self._learned)
        if self._ahead is None:
            self._ahead = {id(history[place].root): place for place in range(begin, len(history))}
        for place in range(begin, self._ahead.get(id(artifact.root), -1) + 1):
            for _, text in history[place].texts():
                self._session.learn(text)
            self._memory.append(self._learned, history[place])
            self._memory.append(self._takers, self._memory.taken - 1)


def _require_masker(masker: object) -> Masker:
    from ctxguard.pii import Masker

    return instance(masker, Masker, "masker")


def _parse_rules(rules: Detector | Sequence[Detector] | None) -> tuple[Detector, ...] | None:
    if rules is None:
        return None
    given = rules if isinstance(rules, (list, tuple)) else (rules,)
    if not given:
        raise ConfigError("rules is empty; give at least one rule set: [STANDARD]", setting="rules")
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
