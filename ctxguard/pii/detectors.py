"""Detectors that are not rule sets: callables, Presidio, models in a process of their own; failures and timeouts."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import cache
from itertools import chain
from multiprocessing.pool import Pool
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ctxguard.errors import ConfigError, DetectorError
from ctxguard.pii.placeholders import UNCHECKED, label_of, outside_placeholders
from ctxguard.pii.spans import RULE_SET, Detector, Span, check_text, resolve
from ctxguard.settings import extra, one_of, seconds
from ctxguard.tokens.caches import TextCache

if TYPE_CHECKING:
    from presidio_analyzer import AnalyzerEngine


Finder: TypeAlias = Callable[[str], Iterable[Span]]
Rules: TypeAlias = Detector | Finder | Sequence[Detector | Finder]
OnDetectorError: TypeAlias = Literal["raise", "redact"]
"""What a detector failure does: raise `DetectorError`, or mask the whole text. Neither lets an unsearched text pass."""
_PRESIDIO_LABELS: Final = {
    "EMAIL_ADDRESS": "EMAIL",
    "PHONE_NUMBER": "PHONE",
    "IBAN_CODE": "IBAN",
    "IP_ADDRESS": "IP",
    "US_SSN": "SSN",
    "US_PASSPORT": "PASSPORT",
    "US_DRIVER_LICENSE": "DRIVER_LICENSE",
    "US_BANK_NUMBER": "BANK_ACCOUNT",
    "MAC_ADDRESS": "MAC",
}


class CallableDetector:
    """Wraps a callable that takes a string and returns spans.

    Args:
        function: Returns the spans in a string; they may overlap and come in any order.
        name: The detector's name in error messages; None means the name of the callable.
    """

    def __init__(self, function: Finder, *, name: str | None = None) -> None:
        self._function = function
        self.name = name or str(getattr(function, "__name__", type(function).__name__))

    def find(self, text: str) -> Sequence[Span]:
        """Return the callable's spans, sorted by offset and without overlaps."""
        return resolve(self._function(text), text)


class PresidioDetector:
    """Finds personal data with a Presidio analyzer, which finds names and places only if it has a language model.

    Args:
        analyzer: Your own analyzer; None creates one with Presidio's pattern recognizers and without a language model.
        language: Language code of the texts.
        entities: The Presidio entity types to find; None means all.
        threshold: The minimum score of a finding, from 0 to 1.
        labels: Labels by Presidio entity type, in addition to the built-in ones (`EMAIL_ADDRESS` is `EMAIL`, …).

    Raises:
        ImportError: If presidio-analyzer is not installed.
    """

    def __init__(
        self,
        analyzer: AnalyzerEngine | None = None,
        *,
        language: str = "en",
        entities: Sequence[str] | None = None,
        threshold: float = 0.35,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self.name = "presidio"
        self._analyzer = analyzer or _pattern_analyzer(language)
        self._language = language
        self._entities = list(entities) if entities is not None else None
        self._threshold = threshold
        self._labels = {**_PRESIDIO_LABELS, **(labels or {})}

    def find(self, text: str) -> Sequence[Span]:
        """Return Presidio's findings, sorted by offset and without overlaps."""
        found = self._analyzer.analyze(
            text=text, language=self._language, entities=self._entities, score_threshold=self._threshold
        )
        spans = (Span(one.start, one.end, self._label(one.entity_type), one.score) for one in found)
        return resolve(spans, text)

    def _label(self, entity: str) -> str:
        return self._labels.get(entity) or label_of(entity)


def _pattern_analyzer(language: str) -> AnalyzerEngine:
    with extra("presidio", "Presidio is not installed"):
        from presidio_analyzer import AnalyzerEngine, RecognizerRegistry
        from presidio_analyzer.nlp_engine import NoOpNlpEngine
    registry = RecognizerRegistry(supported_languages=[language])
    registry.load_predefined_recognizers(languages=[language])
    registry.remove_recognizer("SpacyRecognizer")
    return AnalyzerEngine(
        registry=registry,
        nlp_engine=NoOpNlpEngine(models=[{"lang_code": language, "model_name": "no_op"}]),
        supported_languages=[language],
    )


class WorkerDetector:
    """Finds personal data with your own model (spaCy, an ONNX file) in a worker process, which ends on a timeout.

    The process starts when the first text is searched, and serves all later texts. After a failure, the next text
    starts a new process. A `Masker` asks about each text only once, and never treats a failure as a clean text (see
    `on_detector_error` of `Masker`).

    Args:
        load: A module-level function, or a `functools.partial` of one. The worker calls it once; it loads the model and
            returns a function that takes a string and returns spans.
        name: The detector's name in error messages.
        timeout: Maximum time for one text or one batch of texts, in seconds. For the first text, this includes starting
            the process and loading the model.

    Raises:
        ConfigError: If `timeout` is not greater than 0.
    """

    def __init__(self, load: Callable[[], Finder], *, name: str = "worker", timeout: float = 60.0) -> None:
        seconds(timeout, "timeout")
        self.name = name
        self._load = load
        self._timeout = timeout
        self._lock = Lock()
        self._pools: dict[int, Pool] = {}

    def find(self, text: str) -> Sequence[Span]:
        """Return the findings in a string.

        An exception of the model and a `TimeoutError` are raised here; a `Masker` handles both as detector failures.
        """
        return self.find_many((text,))[0]

    def find_many(self, texts: Sequence[str]) -> Sequence[Sequence[Span]]:
        """Return the findings in each string; all strings are sent to the worker at once."""
        with self._lock:
            pool = self._pools.get(os.getpid())  # a forked child must not use its parent's worker
            if pool is None:
                pool = multiprocessing.get_context("spawn").Pool(1, _store_loader, (self._load,))
                self._pools = {os.getpid(): pool}
            try:
                found = pool.apply_async(_find_all, (list(texts),)).get(self._timeout)
            except BaseException:
                self.close()
                raise
        return [resolve(spans, text) for spans, text in zip(found, texts, strict=True)]

    def close(self) -> None:
        """Stop the worker process. The next text starts a new one."""
        pool = self._pools.pop(os.getpid(), None)
        if pool is not None:
            pool.terminate()
            pool.join()


def _store_loader(load: Callable[[], Finder]) -> None:
    """Store the loader in the worker process, without calling it yet.

    The loader runs when the first text is searched, so that an error in it is raised for that text.
    """
    global _model  # noqa: PLW0603 - each worker process has exactly one model
    _model = cache(load)


_model: Callable[[], Finder]


def _find_all(texts: Sequence[str]) -> list[list[Span]]:
    return [list(_model()(text)) for text in texts]


class GuardedDetector:
    """Wraps a detector so that a failure never counts as a clean text, and the detector is called once per text.

    Results are cached by text in bounded memory, so the detector must be deterministic. Failures are not cached.

    Args:
        detector: The detector to wrap.
        timeout: Maximum time for one text or one batch of texts, in seconds; None means no limit.
        on_error: `raise` raises `DetectorError`; `redact` reports the whole text as a finding with the label
            `UNCHECKED`.
    """

    def __init__(
        self, detector: Detector, *, timeout: float | None = None, on_error: OnDetectorError = "raise"
    ) -> None:
        self.name = detector.name
        self.labels: Collection[str] = getattr(detector, "labels", ())
        self.is_joinable: bool = getattr(detector, "is_joinable", False)
        self.is_model: bool = getattr(detector, "is_model", False)
        self._detector = detector
        self._timeout = timeout
        self._on_error = on_error
        self._known: TextCache[Sequence[Span]] = TextCache()
        self._pool = None if timeout is None else ThreadPoolExecutor(1, thread_name_prefix=f"ctxguard-{detector.name}")

    def find(self, text: str) -> Sequence[Span]:
        """Return the detector's findings in a string.

        Raises:
            DetectorError: If the detector fails, exceeds its timeout, or returns a span outside the string.
            TypeError: If `text` is not a string.
        """
        check_text(text)
        return self.find_many((text,))[0]

    def find_many(self, texts: Sequence[str]) -> Sequence[Sequence[Span]]:
        """Return the findings in each string, in one call if the wrapped detector has `find_many`.

        Raises:
            DetectorError: If the detector fails, exceeds its timeout, or returns a span outside a string.
        """
        known = {text: self._known.get(text) for text in texts}
        asked = [text for text, spans in known.items() if spans is None]
        try:
            known |= {
                text: self._check_spans(text, spans)
                for text, spans in zip(asked, self._call_detector(asked), strict=True)
            }
        except DetectorError:
            if self._on_error == "raise":
                raise
            hidden = {text: outside_placeholders(text, (Span(0, len(text), UNCHECKED),)) for text in asked}
            return [hidden.get(text, known[text] or ()) for text in texts]
        for text in asked:
            self._known.put(text, known[text] or ())
        return [known[text] or () for text in texts]

    def _call_detector(self, texts: Sequence[str]) -> Sequence[Sequence[Span]]:
        if not texts:
            return ()
        together = getattr(self._detector, "find_many", None) if len(texts) > 1 else None
        run = together or (lambda given: [self._detector.find(text) for text in given])
        size = sum(map(len, texts))
        try:
            answers: Sequence[Sequence[Span]] = (
                run(texts) if self._pool is None else self._pool.submit(run, texts).result(self._timeout)
            )
        except FutureTimeoutError:
            raise DetectorError(self.name, f"took more than {self._timeout:g} s for {size} characters") from None
        except Exception as error:  # noqa: BLE001 - any exception of a foreign detector may quote the text
            raise DetectorError(self.name, f"failed with {type(error).__name__} on {size} characters") from None
        return answers

    def _check_spans(self, text: str, spans: Sequence[Span]) -> Sequence[Span]:
        if all(0 <= span.start < span.end <= len(text) for span in spans):
            labeled = (Span(span.start, span.end, label_of(span.label), span.score) for span in spans)
            return outside_placeholders(text, resolve(labeled, text))
        raise DetectorError(self.name, "returned a span outside the text")


def as_detector(
    rules: Detector | Finder, *, timeout: float | None = None, on_error: OnDetectorError = "raise"
) -> Detector:
    """Return a rule set unchanged, and any other detector or callable wrapped in a `GuardedDetector`."""
    from ctxguard.pii.rule_sets import RuleSet
    from ctxguard.pii.rules.rule import Rule

    if isinstance(rules, RuleSet):
        return rules
    if isinstance(rules, Rule):
        raise ConfigError(f"rule {rules.name} must be in a rule set: {RULE_SET}", setting="rules")
    if isinstance(rules, type) or not (isinstance(rules, Detector) or callable(rules)):
        raise ConfigError(
            f"rules must be a rule set (STANDARD), a detector, a callable, or a list of these, not {rules!r}",
            setting="rules",
        )
    detector = rules if isinstance(rules, Detector) else CallableDetector(rules)
    return GuardedDetector(detector, timeout=timeout, on_error=on_error)


def joined(detectors: Sequence[Detector]) -> Detector:
    """Return one detector that finds what any of these finds; the detector itself if there is only one."""
    if len(detectors) == 1:
        return detectors[0]
    name = ",".join(detector.name for detector in detectors)
    return CallableDetector(lambda text: chain.from_iterable(one.find(text) for one in detectors), name=name)


def detectors_of(
    rules: Rules, *, timeout: float | None = None, on_error: OnDetectorError = "raise"
) -> tuple[Detector, ...]:
    """Convert `rules` to a tuple of detectors.

    `rules` is a rule set, a detector, a callable, or a sequence of these.

    Raises:
        ConfigError: If `rules` is empty, an item cannot be used as a detector, or a setting is out of range.
    """
    one_of(on_error, OnDetectorError, "on_detector_error")
    seconds(timeout, "timeout")
    given = rules if isinstance(rules, Sequence) and not isinstance(rules, str) else (rules,)
    if not given:
        raise ConfigError("rules is empty; give at least one rule set: [STANDARD]", setting="rules")
    return tuple(as_detector(one, timeout=timeout, on_error=on_error) for one in given)
