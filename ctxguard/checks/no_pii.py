"""The check that no personal data is sent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ctxguard.artifacts import Artifact
from ctxguard.draft import Draft
from ctxguard.history import MESSAGES
from ctxguard.pii.detect.echo import Names
from ctxguard.pii.rule_sets import for_identifiers, for_names
from ctxguard.report import Finding
from ctxguard.tokens.caches import TextCache

if TYPE_CHECKING:
    from ctxguard.pii import Detector, RuleSet, Span


class KnownNames:
    """Finds names in the result that earlier messages of the history introduced.

    A text is masked when it arrives, and again at each cut. Therefore, a text is searched for the names that the
    history had introduced up to the text's position or up to the last cut, whichever is later. A text that a stage
    wrote is searched for the names introduced up to the last cut. The names are computed here from the unmasked
    history, independently of the masking stage.

    Args:
        rules: Rules that recognize where a name is introduced.
        read: Cache of the names that each text introduces.
        clean: Cache of texts that contain none of the names introduced so far.
        draft: Finished draft.
    """

    def __init__(
        self, rules: RuleSet, read: TextCache[Sequence[str]], clean: TextCache[tuple[str, ...]], draft: Draft
    ) -> None:
        self._rules = rules
        self._clean = clean
        self._names = Names()
        self._forms: list[str] = []
        self._counts: list[int] = []
        self._signs: dict[int, tuple[str, ...]] = {}
        self._places = {id(artifact.root): place for place, artifact in enumerate(draft.history)}
        for artifact in draft.history:
            for _, text in artifact.texts():
                values = read.get(text)
                if values is None:
                    values = rules.names(text)
                    read.put(text, values)
                self._forms += self._names.learn(values)
            self._counts.append(len(self._forms))
        self._cut_at = -1 if draft.cut_at is None else draft.cut_at

    def find(self, artifact: Artifact, text: str) -> Sequence[Span]:
        """Return the spans of introduced names in a text of an artifact."""
        place = max(self._places.get(id(artifact.root), -1), self._cut_at)
        known = self._counts[place] if 0 <= place < len(self._counts) else 0
        if not known:
            return ()
        sign = self._signs.setdefault(known, tuple(self._forms[:known]))
        if self._clean.get(text) == sign:
            return ()
        spans = self._rules.known(text, self._names, until=known)
        if not spans:
            self._clean.put(text, sign)
        return spans


# Kinds of data without a pattern; rules find them only next to words that announce them.
_NO_SHAPE: Final = {"PERSON": "names", "ADDRESS": "postal addresses"}

_REACH: Final = 256
"""Number of characters that are searched on each side of the border between two content parts of a message."""
_SIGNS: Final = re.compile(r"[._\W]+")


@dataclass(slots=True, eq=False)
class _Memory:
    """The cached results of one detector.

    Attributes:
        detector: Detector whose results are cached.
        verdict: Key of `Artifact.memo` that marks artifacts in which nothing was found.
        named: Names that each text introduces.
        unnamed: For each text, the introduced names that it does not contain.
    """

    detector: Detector
    verdict: object = field(default_factory=object)
    named: TextCache[Sequence[str]] = field(default_factory=TextCache)
    unnamed: TextCache[tuple[str, ...]] = field(default_factory=TextCache)


class NoPII:
    """Holds if no rule matches in any text of the result: contents, tool-call arguments, and other fields.

    Ids, names, links, signatures, and unknown fields are searched, too, although no stage edits them. Because ids
    contain arbitrary digits, ids are searched only by rules with a specific pattern (see `ctxguard.pii.rule_sets`).

    Artifacts in which the same rules found nothing before are not searched again, unless names were introduced since,
    and a rule set caches its findings for the process. Copies and pickles of a check start with an empty cache.

    If rules recognize where a name is introduced (`ctxguard.pii.PEOPLE`), later texts are also searched for that name.

    Args:
        rules: Rules to search with; None means the rules of the masking stages that ran. Without rules, nothing is
            searched.
        independent: Whether to match each expression against each whole text. The masking matches only around places
            where a value may be. This takes several times as long.
    """

    name = "NoPII"

    def __init__(self, rules: Detector | None = None, *, independent: bool = False) -> None:
        self.rules = rules
        self.independent = independent
        self._memories: dict[int, _Memory] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_memories": {}}

    def __call__(self, draft: Draft, /) -> Iterator[Finding]:
        """Yield a finding for each violation."""
        for detector in (self.rules,) if self.rules is not None else draft.masking.detectors:
            yield from self._findings(draft, detector)
        for detector in draft.masking.message_detectors if self.rules is None else ():
            for position, artifact in enumerate(draft.artifacts):
                for slot, text in artifact.texts() if artifact.kind in MESSAGES else ():
                    if slot == "content":
                        yield from self._search(detector, text, f"artifacts[{position}]", slot)

    def claim(self, draft: Draft, /) -> str:
        """Describe what was searched for and what was not, so that a clean report does not claim too much."""
        masking = draft.masking
        return _claim((self.rules,) if self.rules is not None else (*masking.detectors, *masking.message_detectors))

    def _findings(self, draft: Draft, detector: Detector) -> Iterator[Finding]:
        verdict = self._memory(detector).verdict
        names = self._names_known(draft, detector)
        for position, artifact in enumerate(draft.artifacts):
            # an artifact without findings stays so, unless names were introduced since
            if names is None and artifact.memo.get(verdict):
                continue
            found = tuple(self._search_artifact(artifact, f"artifacts[{position}]", detector, names))
            if found:
                yield from found
            elif names is None:
                artifact.memo.keep(verdict, value=True)

    def _search_artifact(
        self, artifact: Artifact, path: str, detector: Detector, names: KnownNames | None
    ) -> Iterator[Finding]:
        strict = for_identifiers(detector)
        for slot, text in artifact.texts():
            if slot == "name":  # names are never edited, so they are searched with the fixed texts below
                continue
            yield from self._search(detector, text, path, slot)
            if names is not None:
                yield from (_finding(span, f"{path}.{slot}") for span in names.find(artifact, text))
        if not for_names((detector,)):
            return
        if not isinstance(artifact.content, str):
            texts = [part.text for part in artifact.content if part.text]
            yield from _find_split(texts, detector, f"{path}.content", independent=self.independent)
        for place, text, is_identifier in artifact.fixed_texts():
            if not is_identifier:
                yield from self._search(detector, text, path, place)
            elif strict is not None:
                yield from self._search(strict, text, path, place)

    def _search(self, detector: Detector, text: str, path: str, place: str) -> Iterator[Finding]:
        for span in scan(detector, text, independent=self.independent) if text else ():
            yield _finding(span, f"{path}.{shown_place(place, (detector,))}")

    def _names_known(self, draft: Draft, detector: Detector) -> KnownNames | None:
        """Return the object that searches for introduced names; None if the rules do not recognize introductions."""
        from ctxguard.pii.rule_sets import RuleSet

        if not isinstance(detector, RuleSet) or not detector.echoes:
            return None
        memory = self._memory(detector)
        return KnownNames(detector, memory.named, memory.unnamed, draft)

    def _memory(self, detector: Detector) -> _Memory:
        known = self._memories.get(id(detector))
        if known is None or known.detector is not detector:
            if len(self._memories) > 16:
                self._memories.clear()
            known = self._memories[id(detector)] = _Memory(detector)
        return known


def _claim(detectors: Sequence[Detector]) -> str:
    from ctxguard.pii.rule_sets import RuleSet

    if not detectors:
        return "nothing was looked for, as no stage masked"
    # keyed by identity: hashing the rules of a set would take longer than all other checks of a call
    rules = {id(rule): rule for one in detectors if isinstance(one, RuleSet) for rule in one.rules}.values()
    others = [one.name for one in detectors if not isinstance(one, RuleSet)]
    searched = [f"{len(rules)} {'rule' if len(rules) == 1 else 'rules'}"] if rules else []
    searched += [f"detector {name}" for name in others]
    return "; ".join([f"no match of {' and '.join(searched)}", *limits_of(detectors)])


def limits_of(detectors: Sequence[Detector]) -> list[str]:
    """Return what a search with these detectors cannot find; an empty list if one of them is no rule set.

    It is unknown what such a detector searches for.
    """
    from ctxguard.pii.rule_sets import RuleSet

    sets = [one for one in detectors if isinstance(one, RuleSet)]
    if len(sets) < len(detectors):
        return []
    labels = {rule.label for one in sets for rule in one.rules}
    said = {rule.label for one in sets for rule in one.rules if rule.walk is not None}
    partly = " and ".join(what for label, what in _NO_SHAPE.items() if label in said)
    missing = " and ".join(what for label, what in _NO_SHAPE.items() if label not in labels)
    limits = [f"{partly} are found where the text says what they are"] if partly else []
    return [*limits, f"{missing} are not looked for"] if missing else limits


def _find_split(texts: Sequence[str], detector: Detector, path: str, *, independent: bool) -> Iterator[Finding]:
    """Search the borders between consecutive texts for values that are split between two texts."""
    joined = spaced = last = ""
    for text in texts:
        for before in dict.fromkeys(one + sign for one in (last, joined, spaced) for sign in ("", " ") if one):
            start, spans = len(before.rstrip(" ")), scan(detector, before + text[:_REACH], independent=independent)
            cut = next((span for span in spans if span.start < start and span.end > len(before)), None)
            if cut is not None:
                yield Finding(f"{cut.label} was found", f"{path}, over several parts")
                break
        last, joined, spaced = text[-_REACH:], (joined + text)[-_REACH:], f"{spaced} {text}"[-_REACH:]


def shown_place(place: str, detectors: Sequence[Detector]) -> str:
    """Return the path `place` for a finding, or an ellipsis if the path contains personal data, such as in a key."""
    texts = (place, _SIGNS.sub(" ", place))
    return "…" if any(detector.find(text) for detector in detectors for text in texts) else place


def _finding(span: Span, path: str) -> Finding:
    return Finding(f"{span.label} was found", f"{path}[{span.start}:{span.end}]")


def scan(detector: Detector, text: str, *, independent: bool = False) -> Sequence[Span]:
    """Search a text with a detector; with its method `scan`, if it has one, where the search must be independent."""
    search = getattr(detector, "scan", detector.find) if independent else detector.find
    spans: Sequence[Span] = search(text)
    return spans
