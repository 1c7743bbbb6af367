"""Hide personal data: one masker for many conversations, one session for the texts of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final

from ctxguard.artifacts import Artifact
from ctxguard.pii.json_text import JsonToken, is_json, rewrite_json
from ctxguard.pii.placeholders import label_of, redaction
from ctxguard.pii.rules import RuleSet
from ctxguard.pii.spans import Detector, Span, resolve
from ctxguard.pii.standard import SSN, STANDARD
from ctxguard.tokens import TextCache

__all__ = [
    "SPEC_DEFAULT",
    "MaskSession",
    "Masker",
    "find_pii",
    "mask_pii",
    "validate_no_pii",
]

SPEC_DEFAULT: Final = SSN | STANDARD
"""What `mask_pii` uses unless told otherwise: the standard set, and the bare SSN shape of the pattern document."""
_ROUNDS: Final = 16


class Masker:
    """Mask texts by rules or detectors. Safe to share between threads; results are remembered by text.

    Args:
        rules: one rule set or detector, or several; the order breaks ties.
        strategy: how a finding is hidden.
    """

    def __init__(
        self,
        rules: Detector | Sequence[Detector] = STANDARD,
        *,
        strategy: str = "redact",
    ) -> None:
        self.detectors: tuple[Detector, ...] = tuple(rules) if isinstance(rules, Sequence) else (rules,)
        self.strategy = strategy
        self._placeholders = _placeholders(self.detectors)
        self._texts: TextCache[str] = TextCache()
        self._arguments: TextCache[str] = TextCache()

    def session(self) -> MaskSession:
        """Begin with the texts of one conversation, from its first on."""
        return MaskSession(self)

    def mask(self, text: str) -> str:
        """Return one text masked, as the only one of its conversation."""
        return self.session().text(text)

    def find(self, text: str) -> Sequence[Span]:
        """Return what the detectors find together."""
        if len(self.detectors) == 1:
            return self.detectors[0].find(text)
        return resolve(chain.from_iterable(detector.find(text) for detector in self.detectors))

    def _replacement(self, label: str) -> str:
        return self._placeholders.get(label) or redaction(label_of(label))


class MaskSession:
    """Mask the texts of one conversation, in their order."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker

    def text(self, text: str) -> str:
        """Return a text masked; one that is JSON as a whole stays JSON."""
        masked = self._masker._texts.get(text)
        if masked is None:
            masked = self._mask_any(text)
            self._masker._texts.put(text, masked)
        return masked

    def arguments(self, text: str) -> str:
        """Return tool-call arguments masked inside their JSON strings; what is no JSON is masked as text."""
        return self.text(text)

    def name(self, text: str) -> str:
        """Return a participant's name, masked in letters, digits, `_` and `-` where it held personal data."""
        masked = self._mask_plain(text)
        return text if masked == text else "".join(c if c.isascii() and c.isalnum() else "_" for c in masked).strip("_")

    def _mask_any(self, text: str) -> str:
        if not self._masker.find(text) and "\\" not in text:
            return text
        return self._mask_json(text) if is_json(text) else self._mask_plain(text)

    def _mask_plain(self, text: str) -> str:
        for _ in range(_ROUNDS):
            spans = self._masker.find(text)
            if not spans:
                break
            text = _replaced(text, spans, lambda span: self._masker._replacement(span.label))
        return text

    def _mask_json(self, text: str) -> str:
        masked = rewrite_json(text, self._token)
        for _ in range(_ROUNDS):
            spans = self._masker.find(masked)
            if not spans:
                break
            masked = rewrite_json(masked, partial(self._hit, spans=spans))
        return masked

    def _token(self, token: JsonToken) -> str:
        return self._mask_any(token.value)

    def _hit(self, token: JsonToken, spans: Sequence[Span]) -> str:
        hit = next(
            (span for span in spans if span.start < token.end and token.start < span.end),
            None,
        )
        return token.value if hit is None or token.is_key else self._masker._replacement(hit.label)


def _placeholders(detectors: Iterable[Detector]) -> Mapping[str, str]:
    sets = (detector for detector in detectors if isinstance(detector, RuleSet))
    return {rule.label: rule.redaction for rules in sets for rule in reversed(rules.rules)}


def _replaced(text: str, spans: Sequence[Span], replacement: Callable[[Span], str]) -> str:
    pieces: list[str] = []
    done = 0
    for span in spans:
        pieces += (text[done : span.start], replacement(span))
        done = span.end
    pieces.append(text[done:])
    return "".join(pieces)


def find_pii(text: str, rules: Detector = SPEC_DEFAULT) -> Sequence[Span]:
    """Return where personal data stands in a text, sorted and without overlaps."""
    return rules.find(text)


def mask_pii(text: str, rules: Detector | Sequence[Detector] = SPEC_DEFAULT) -> str:
    """Return a text with every finding replaced by its placeholder: `My SSN is [REDACTED_SSN].`"""
    return _masker(rules).mask(text)


def validate_no_pii(
    artifacts: Artifact | str | Iterable[Artifact | str],
    rules: Detector | Sequence[Detector] = SPEC_DEFAULT,
) -> bool:
    """Tell whether no rule matches in any text that leaves with these artifacts; by a full scan, without caches."""
    detectors = tuple(rules) if isinstance(rules, Sequence) else (rules,)
    return not any(_scan(detector, text) for text in _texts(artifacts) for detector in detectors)


def _texts(artifacts: Artifact | str | Iterable[Artifact | str]) -> Iterable[str]:
    if isinstance(artifacts, str):
        return (artifacts,)
    if isinstance(artifacts, Artifact):
        return tuple(text for _, text in artifacts.texts())
    return chain.from_iterable(map(_texts, artifacts))


def _scan(detector: Detector, text: str) -> Sequence[Span]:
    return detector.scan(text) if isinstance(detector, RuleSet) else detector.find(text)


_MASKERS: dict[tuple[Detector, ...], Masker] = {}


def _masker(rules: Detector | Sequence[Detector]) -> Masker:
    """Keep one masker per rule set, so that repeated calls share its memory; detectors that cannot be hashed do not."""
    key = tuple(rules) if isinstance(rules, Sequence) else (rules,)
    if not all(isinstance(detector, RuleSet) for detector in key):
        return Masker(key)
    if len(_MASKERS) > 32:
        _MASKERS.clear()
    return _MASKERS.setdefault(key, Masker(key)) if key not in _MASKERS else _MASKERS[key]
