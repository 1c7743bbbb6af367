"""No personal data leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ctxguard.checks.known_names import KnownNames
from ctxguard.draft import Draft
from ctxguard.pii.identifiers import for_identifiers
from ctxguard.report import Finding
from ctxguard.tokens.text_cache import TextCache

if TYPE_CHECKING:
    from ctxguard.artifacts import Artifact
    from ctxguard.pii import Detector, Span

# What has no form of its own: rules find it only where the text says what it is.
_NO_SHAPE: Final = {"PERSON": "names", "ADDRESS": "postal addresses"}


@dataclass(slots=True, eq=False)
class _Memory:
    """Hold what is known of texts, by one detector.

    Attributes:
        detector: the detector.
        verdict: key of `Artifact.memo` under which clean artifacts are marked.
        clean: whether a text is clean.
        named: the names it makes known.
        unnamed: the names that were looked for in vain.
    """

    detector: Detector
    verdict: object = field(default_factory=object)
    clean: TextCache[bool] = field(default_factory=TextCache)
    named: TextCache[Sequence[str]] = field(default_factory=TextCache)
    unnamed: TextCache[tuple[str, ...]] = field(default_factory=TextCache)


class NoPII:
    """Hold if no rule matches in any text of the result: contents, tool-call arguments, and other fields.

    Ids, names, links, signatures and unknown fields are never edited, and ids hold digits of all sorts; they are
    searched by rules with a form of their own, see `ctxguard.pii.identifiers`.

    The texts are scanned by a separate path, not by the code that masked them. Verdicts are remembered by text and with
    each artifact, so that only what is new in the session costs a scan. Copies and pickles start without them.

    Where rules make names known (`ctxguard.pii.PEOPLE`), each text is judged by those known when it was last decided.

    Args:
        rules: None means the rules of the masking stages that ran, or nothing where none ran.
    """

    name = "NoPII"

    def __init__(self, rules: Detector | None = None) -> None:
        self.rules = rules
        self._memories: dict[int, _Memory] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_memories": {}}

    def __call__(self, draft: Draft, /) -> Iterator[Finding]:
        """Yield everything that is wrong."""
        for detector in (self.rules,) if self.rules is not None else draft.detectors:
            yield from self._findings(draft, detector)

    def claim(self, draft: Draft, /) -> str:
        """Return what was searched for and what was not, so that "no findings" is not read as more than that."""
        return _claim((self.rules,) if self.rules is not None else draft.detectors)

    def _findings(self, draft: Draft, detector: Detector) -> Iterator[Finding]:
        verdict = self._memory(detector).verdict
        names = self._names_known(draft, detector)
        for position, artifact in enumerate(draft.artifacts):
            # what was found clean by an earlier call costs one look; names may have become known since
            if names is None and artifact.memo.get(verdict):
                continue
            found = tuple(self._found_in(artifact, f"artifacts[{position}]", detector, names))
            if found:
                yield from found
            elif names is None:
                artifact.memo.keep(verdict, value=True)

    def _found_in(
        self, artifact: Artifact, path: str, detector: Detector, names: KnownNames | None
    ) -> Iterator[Finding]:
        clean = self._memory(detector).clean
        strict = for_identifiers(detector)
        for slot, text in artifact.texts():
            if slot == "name":  # never edited: it is among the fixed texts
                continue
            yield from _found(detector, clean, text, f"{path}.{slot}")
            if names is not None:
                yield from (_finding(span, f"{path}.{slot}") for span in names.find(artifact, text))
        for place, text, is_identifier in artifact.fixed_texts():
            if not is_identifier:
                yield from _found(detector, clean, text, f"{path}.{place}")
            elif strict is not None:
                yield from _found(strict, self._memory(strict).clean, text, f"{path}.{place}")

    def _names_known(self, draft: Draft, detector: Detector) -> KnownNames | None:
        """Return what judges by the names that the history made known; None where the rules make none known."""
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
    # by identity: hashing the rules of a set would cost more than all other checks of a call
    rules = {id(rule): rule for one in detectors if isinstance(one, RuleSet) for rule in one.rules}.values()
    others = [one.name for one in detectors if not isinstance(one, RuleSet)]
    told = [f"{len(rules)} {'rule' if len(rules) == 1 else 'rules'}"] if rules else []
    told += [f"detector {name}" for name in others]
    known = {rule.label for rule in rules}
    missing = " and ".join(what for label, what in _NO_SHAPE.items() if label not in known)
    said = {rule.label for rule in rules if rule.walk is not None}
    partly = " and ".join(what for label, what in _NO_SHAPE.items() if label in said)
    # what a detector of another make looks for is not known here
    limits = [f"{partly} are found where the text says what they are"] if partly and not others else []
    limits += [f"{missing} are not looked for"] if missing and not others else []
    return "; ".join([f"no match of {' and '.join(told)}", *limits])


def _found(detector: Detector, clean: TextCache[bool], text: str, path: str) -> Iterator[Finding]:
    if not text or clean.get(text):
        return
    spans = scan(detector, text)
    if not spans:
        clean.put(text, value=True)
    for span in spans:
        yield _finding(span, path)


def _finding(span: Span, path: str) -> Finding:
    return Finding(f"{span.label} was found", f"{path}[{span.start}:{span.end}]")


def scan(detector: Detector, text: str) -> Sequence[Span]:
    """Find with the detector's independent path (`scan`) if it has one, else with `find`."""
    independent = getattr(detector, "scan", None)
    spans: Sequence[Span] = independent(text) if independent is not None else detector.find(text)
    return spans
