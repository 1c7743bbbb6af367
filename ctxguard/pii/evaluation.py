"""Score a detector on labeled texts: precision and recall for each label, and throughput."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from operator import add
from pathlib import Path
from typing import Final

from ctxguard.errors import SessionFileError, reason_of
from ctxguard.pii.rule_sets import LABELS
from ctxguard.pii.spans import Detector, Span, require_labels

_WANTED: Final = 'a line must be {"text": …, "spans": [{"start", "end", "label"}]}'


@dataclass(frozen=True, slots=True)
class Example:
    """A text, and the spans that a detector should find in it."""

    text: str
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """The counts for one label.

    Attributes:
        gold: Number of labeled (gold) spans.
        masked: Number of gold spans in which every letter and digit is covered by findings of any label.
        predicted: Number of findings with this label.
        right: Number of findings with this label that overlap a gold span.
    """

    gold: int = 0
    masked: int = 0
    predicted: int = 0
    right: int = 0

    @property
    def recall(self) -> float:
        """The share of gold spans that would be masked; 1 if there are no gold spans."""
        return self.masked / self.gold if self.gold else 1.0

    @property
    def precision(self) -> float:
        """The share of findings that overlap a gold span; 1 if there are no findings."""
        return self.right / self.predicted if self.predicted else 1.0

    def f(self, beta: float) -> float:
        """Return the F score in which recall weighs `beta` times as much as precision (van Rijsbergen)."""
        weight = beta * beta
        below = weight * self.precision + self.recall
        return (1 + weight) * self.precision * self.recall / below if below else 0.0

    def __add__(self, other: Score) -> Score:
        return Score(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class Scores:
    """The result of one evaluation.

    Attributes:
        labels: The score of each label, in alphabetical order.
        chars: Number of characters searched.
        seconds: CPU time that the detector took, in seconds.
    """

    labels: Mapping[str, Score] = field(default_factory=dict)
    chars: int = 0
    seconds: float = 0.0

    @property
    def total(self) -> Score:
        """The sum of the scores of all labels."""
        return sum(self.labels.values(), Score())

    @property
    def megabytes_per_second(self) -> float:
        """Throughput in megabytes per second of CPU time, counting each character as one byte."""
        return self.chars / 1e6 / self.seconds if self.seconds else 0.0

    def to_dict(self) -> dict[str, object]:
        """Return the scores as a dictionary that can be written as JSON."""
        rows = {label: _row(score) for label, score in (*self.labels.items(), ("all", self.total))}
        return {"labels": rows, "chars": self.chars, "megabytes_per_second": round(self.megabytes_per_second, 3)}


def _row(score: Score) -> dict[str, float]:
    rates = {"precision": score.precision, "recall": score.recall, "f1": score.f(1), "f2": score.f(2)}
    return {"gold": score.gold, "found": score.predicted, **{name: round(rate, 4) for name, rate in rates.items()}}


def read_gold(path: str | Path) -> Iterator[Example]:
    """Yield the labeled texts of a JSON Lines file, each line `{"text", "spans": [{"start", "end", "label"}]}`.

    A file whose name ends in `.gz` is decompressed.

    Raises:
        SessionFileError: If the file cannot be read or contains no texts, a line does not have this form, or a span is
            empty or not inside its text.
    """
    place = Path(path)
    opener = gzip.open if place.suffix == ".gz" else open
    example = None
    try:
        with opener(place, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    example = _example(line, str(path), number)
                    yield example
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise SessionFileError(str(path), f"{reason_of(error)}; give a file of JSON lines") from error
    if example is None:
        raise SessionFileError(str(path), "contains no labeled texts; give a file of JSON lines")


def _example(line: str, path: str, number: int) -> Example:
    try:
        record = json.loads(line)
        spans = tuple(Span(span["start"], span["end"], span["label"]) for span in record["spans"])
        example = Example(record["text"], spans)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SessionFileError(path, _WANTED, line=number) from error
    if not isinstance(example.text, str) or not all(isinstance(span.label, str) for span in spans):
        raise SessionFileError(path, _WANTED, line=number)
    outside = next((span for span in spans if not _is_inside(span, example.text)), None)
    if outside is not None:
        place = f"the span {outside.start!r}-{outside.end!r} is not inside the text of {len(example.text)} characters"
        raise SessionFileError(path, f"{place}; offsets begin at 0, and the end is exclusive", line=number)
    return example


def _is_inside(span: Span, text: str) -> bool:
    return type(span.start) is type(span.end) is int and 0 <= span.start < span.end <= len(text)


def evaluate(detector: Detector, examples: Iterable[Example], *, labels: Sequence[str] | None = None) -> Scores:
    """Score a detector on labeled texts.

    Args:
        detector: A rule set or any other detector.
        examples: The labeled texts.
        labels: The labels to score; gold spans and findings with other labels are not counted. None means all labels.

    Raises:
        ConfigError: If a label is unknown: no standard rule and no rule of the detector has it, and no gold span or
            finding has it.
    """
    counts: dict[str, Score] = {}
    seen: set[str] = set()
    chars, seconds = 0, 0.0
    for example in examples:
        began = time.process_time()
        found = detector.find(example.text)
        seconds += time.process_time() - began
        chars += len(example.text)
        seen.update(span.label for span in (*example.spans, *found))
        for label, score in _count_matches(example, found, labels):
            counts[label] = counts.get(label, Score()) + score
    require_labels(labels or (), seen | LABELS | getattr(detector, "labels", set()), setting="labels")
    return Scores(dict(sorted(counts.items())), chars, seconds)


def _count_matches(
    example: Example, found: Sequence[Span], labels: Sequence[str] | None
) -> Iterator[tuple[str, Score]]:
    for gold in example.spans:
        if labels is None or gold.label in labels:
            yield gold.label, Score(gold=1, masked=int(_is_covered(example.text, gold, found)))
    for span in found:
        if labels is None or span.label in labels:
            right = any(span.start < gold.end and gold.start < span.end for gold in example.spans)
            yield span.label, Score(predicted=1, right=int(right))


def _is_covered(text: str, gold: Span, found: Sequence[Span]) -> bool:
    open_places = (place for place in range(gold.start, gold.end) if text[place].isalnum())
    return all(any(span.start <= place < span.end for span in found) for place in open_places)
