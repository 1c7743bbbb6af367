"""Count tokens with the model's own tokenizer if it is installed, otherwise by an estimate. Never over the network.

The weights of the byte classes, and their errors, were fitted against o200k_base on prose, code, JSON, logs, and a
dozen scripts.

The layout of the tiktoken cache (the SHA-1 of the download address as file name) is that of tiktoken's `load.py`; the
layout of Mistral's files is that of `mistral_common.tokens.tokenizers.tekken`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import os
import re
import tempfile
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import Final, Protocol, runtime_checkable

from ctxguard.errors import ConfigError, CtxguardError, TokenizerError
from ctxguard.settings import install_command, instance
from ctxguard.tokens.families import NO_MODEL, TEKKEN, Costs, Family, accuracy_of, family_of

ENCODINGS: Final = ("o200k_base", "cl100k_base")
_CHUNK: Final = 65_536  # characters, see `_pieces`


class TiktokenCounter:
    """Counts with tiktoken, using a vocabulary that is already on this machine.

    Args:
        encoding: Name of the vocabulary.

    Raises:
        TokenizerError: If the vocabulary is not on this machine.
    """

    exact = True

    def __init__(self, encoding: str = "o200k_base") -> None:
        self._encoding = _load_tiktoken(encoding)
        self.name = f"tiktoken {encoding}"
        self.accuracy = f"the text exactly by {encoding}; {NO_MODEL}"

    def count(self, text: str) -> int:
        """Return the number of tokens in a text; spellings of special tokens count as ordinary text."""
        return sum(len(self._encoding(piece)) for piece in _pieces(text))


_NEVER: Final = 1 << 31
"""A limit above the number of tokens in any text, so that nothing is truncated."""


def _pieces(text: str) -> Iterator[str]:
    """Split long text, because o200k_base overflows its regex stack at a million spaces. Splits add 0.005% tokens."""
    if len(text) <= _CHUNK:
        yield text
    else:
        for start in range(0, len(text), _CHUNK):
            yield text[start : start + _CHUNK]


_VOCABULARY_URL: Final = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
_VOCABULARY_SHA256: Final = {
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}
_CARRIERS: Final = (("llama_index.core", "_static/tiktoken_cache"), ("litellm", "litellm_core_utils/tokenizers"))
_MISTRAL: Final = ("mistral_common", "data")
_TEKKEN_FILE: Final = "tekken_240911.json"


def find_vocabulary(encoding: str) -> Path | None:
    """Return the vocabulary file of an encoding, or None if no cache of tiktoken and no installed package has it.

    Packages are searched without importing them. The SHA-256 of the file is checked when it is loaded.
    """
    if encoding == TEKKEN:
        return next((path for folder in _folders(_MISTRAL) if (path := folder / _TEKKEN_FILE).is_file()), None)
    if encoding not in _VOCABULARY_SHA256:
        return None
    name = hashlib.sha1(_VOCABULARY_URL.format(encoding).encode(), usedforsecurity=False).hexdigest()
    cache = os.environ.get(
        "TIKTOKEN_CACHE_DIR",
        os.environ.get("DATA_GYM_CACHE_DIR", str(Path(tempfile.gettempdir()) / "data-gym-cache")),
    )
    folders = [Path(cache)] if cache else []
    folders += [folder for carrier in _CARRIERS for folder in _folders(carrier)]
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def _folders(carrier: tuple[str, str]) -> Iterator[Path]:
    """Yield the vocabulary folders of an installed package, without importing the package."""
    package, inside = carrier
    top, _, rest = package.partition(".")
    spec = importlib.util.find_spec(top)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(place, *rest.split("."), inside)


@lru_cache(maxsize=4)
def _load_tiktoken(encoding: str) -> Callable[[str], Sequence[int]]:
    path = find_vocabulary(encoding)
    if path is None and encoding == TEKKEN:
        raise TokenizerError(f"mistral-common is not installed; {install_command('mistral')}")
    if path is None:
        known = ", ".join(_VOCABULARY_SHA256)
        raise TokenizerError(
            f"no vocabulary {encoding!r} on this machine (known: {known}), and ctxguard never downloads one; "
            f"{install_command('tokens')} brings an exact tokenizer; the counter 'estimate' needs none"
        )
    try:
        import tiktoken
        from tiktoken_ext import openai_public
    except ImportError as error:
        raise TokenizerError(f"tiktoken is not installed; {install_command('context')}") from error
    data = path.read_bytes()
    if encoding == TEKKEN:
        return _load_tekken(data)
    if hashlib.sha256(data).hexdigest() != _VOCABULARY_SHA256[encoding]:
        raise TokenizerError(f"{path} is damaged (its SHA-256 is not that of {encoding}); delete it")
    settings = _without_download(getattr(openai_public, encoding), path)
    return tiktoken.Encoding(**settings).encode_ordinary  # type: ignore[arg-type]  # from tiktoken's own constructor


def _load_tekken(data: bytes) -> Callable[[str], Sequence[int]]:
    import tiktoken

    file = json.loads(data)
    config = file["config"]
    ordinary = file["vocab"][: config["default_vocab_size"] - config["default_num_special_tokens"]]
    ranks = {b64decode(entry["token_bytes"]): int(entry["rank"]) for entry in ordinary}
    encoding = tiktoken.Encoding(TEKKEN, pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens={})
    return encoding.encode_ordinary


def _without_download(constructor: FunctionType, path: Path) -> dict[str, object]:
    """Build the settings of an encoding from a local file instead of a download, without changing tiktoken's module."""
    scope = dict(constructor.__globals__, load_tiktoken_bpe=lambda *_args, **_kwargs: _read_ranks(path))
    settings: dict[str, object] = FunctionType(constructor.__code__, scope)()
    return settings


def _read_ranks(path: Path) -> dict[bytes, int]:
    lines = (line.split() for line in path.read_bytes().splitlines() if line)
    return {b64decode(token): int(rank) for token, rank in lines}


class ToktokCounter:
    """Counts with toktok-rs. It is exact, several times faster than tiktoken, and brings its own vocabularies.

    Args:
        encoding: Name of the vocabulary.

    Raises:
        TokenizerError: If the package is not installed or does not contain the vocabulary.
    """

    exact = True

    def __init__(self, encoding: str = "o200k_base") -> None:
        try:
            import toktok
        except ImportError as error:
            raise TokenizerError(
                f"toktok-rs is not installed; {install_command('tokens')}; the counter 'estimate' needs none"
            ) from error
        self._batch: Callable[[list[str], str], list[int]] = toktok.batch_count
        self._truncate: Callable[[str, int, str], tuple[str, int]] = toktok.truncate
        self._encoding = instance(encoding, str, "encoding")
        self.name = f"toktok {encoding}"
        self.accuracy = f"the text exactly by {encoding}; {NO_MODEL}"
        if encoding in ENCODINGS:  # compiled in, and loaded at the first count: loading takes as long as all imports
            return
        try:
            self.count("probe")
        except (KeyError, ValueError) as error:
            raise TokenizerError(f"toktok-rs has no vocabulary {encoding!r}: {error}") from error

    def count(self, text: str) -> int:
        """Return the number of tokens in a text; a lone surrogate counts as the replacement character."""
        try:
            # a batch starts threads, which takes ten times as long as counting one message
            if len(text) <= _CHUNK:
                return self._truncate(text, _NEVER, self._encoding)[1]
            return sum(self._batch(list(_pieces(text)), self._encoding))
        except UnicodeEncodeError:
            return self.count(text.encode("utf-8", "replace").decode())


def exact_counter(encoding: str) -> ToktokCounter | TiktokenCounter:
    """Return a counter for an encoding, using the fastest installed package.

    Raises:
        TokenizerError: If no installed package contains the vocabulary.
    """
    if encoding == TEKKEN:
        return TiktokenCounter(TEKKEN)
    try:
        return ToktokCounter(encoding)
    except TokenizerError:
        return TiktokenCounter(encoding)


@runtime_checkable
class TokenCounter(Protocol):
    """Interface of token counters. Any function from a string to a number of tokens is accepted as well.

    A counter that knows its model also has an attribute `family` (see `FamilyCounter`).

    Attributes:
        name: Name of the counter in reports.
        exact: Whether the counter uses an actual vocabulary rather than an estimate.
        accuracy: Phrase that describes the error of its counts.
    """

    name: str
    exact: bool
    accuracy: str

    def count(self, text: str) -> int:
        """Return the number of tokens in a text; never raise, even if the text has lone surrogates."""
        ...


def _all_but(keep: Iterable[int]) -> bytes:
    kept = set(keep)
    return bytes(byte for byte in range(256) if byte not in kept)


_WEIGHTS: Final = tuple(
    (weight, _all_but(members))
    for weight, members in (
        (0.197, range(ord("a"), ord("z") + 1)),
        (0.322, range(ord("A"), ord("Z") + 1)),
        (0.734, range(ord("0"), ord("9") + 1)),
        (0.143, b" "),
        (0.192, b"\n\r\t"),
        (0.526, b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
        (0.271, range(0xC2, 0xE0)),
        (0.285, range(0xE0, 0xE3)),
        (0.651, range(0xE3, 0xEA)),
        (0.522, range(0xEA, 0xF0)),
        (0.300, range(0xF0, 0xF5)),
    )
)
_BASE64_RUN: Final = re.compile(rb"[A-Za-z0-9+/]{65,}={0,2}")
_BASE64_TOKENS: Final = 0.67  # tokens per character, fitted with the other weights


class EstimateCounter:
    """Estimates the number of tokens from classes of UTF-8 bytes: deterministic and instant, for any script."""

    exact = False
    name = "estimate"
    accuracy = f"estimated by byte classes: within about 10% on prose, code and JSON, 20% on CSV; {NO_MODEL}"

    def count(self, text: str) -> int:
        """Return the estimated number of tokens, which is at least 1 unless the text is empty."""
        if not text:
            return 0
        data = text.encode("utf-8", "replace")
        total = 0.0
        if len(data) > 64 and (runs := [run for run in _BASE64_RUN.findall(data) if _is_dense(run)]):
            total = _BASE64_TOKENS * sum(map(len, runs))
            data = _BASE64_RUN.sub(lambda match: b"" if _is_dense(match[0]) else match[0], data)
        for weight, others in _WEIGHTS:
            total += weight * len(data.translate(None, others))
        return max(1, round(total))


def _is_dense(run: bytes) -> bool:
    """Return whether a run of characters is base64 rather than a long word: it mixes letter cases and digits."""
    return not run.isalpha() and not run.isdigit() and run.lower() != run and run.upper() != run


class _CallableCounter:
    """Adapts a plain function, or a counter that cannot be hashed, to `TokenCounter`."""

    def __init__(self, function: Callable[[str], int], face: TokenCounter | None = None) -> None:
        self._function = function
        self.name = face.name if face else getattr(function, "__name__", type(function).__name__)
        self.exact = face.exact if face else False
        self.accuracy = face.accuracy if face else "a counter of the caller's"

    def count(self, text: str) -> int:
        try:
            count = self._function(text)
        except CtxguardError:
            raise
        except Exception as error:
            raise TokenizerError(f"the counter {self.name} failed: {type(error).__name__}: {error}") from error
        return valid_count(count, self.name)


def valid_count(count: object, counter: str) -> int:
    """Return the result of a counter as an integer, after checking that it is a finite number of tokens.

    Raises:
        TokenizerError: If the result is not a number, is negative, or is infinite.
    """
    if isinstance(count, bool) or not isinstance(count, (int, float)) or not 0 <= count < math.inf:
        raise TokenizerError(f"the counter {counter} gave {count!r} for a text; it must give a number of tokens")
    return int(count)


class FamilyCounter:
    """Counts text as a model family does, and provides the family's other token costs.

    Args:
        base: Counter for text that uses the vocabulary with which the family was measured.
        family: Family of the model.
        scale: Number of the family's tokens for each token of `base`; None means the family's own figure.
    """

    def __init__(self, base: TokenCounter, family: Family, *, scale: float | None = None) -> None:
        self.base = base
        self.family = family
        self.scale = family.scale if scale is None else scale
        self.exact = base.exact and family.own_vocabulary
        self.name = f"{family.name} by {base.name}" + (f" x{self.scale:g}" if self.scale != 1 else "")
        self.accuracy = accuracy_of(family, is_measured=base.exact)

    @property
    def costs(self) -> Costs:
        """The family's token costs besides the text."""
        return self.family.costs

    def count(self, text: str) -> int:
        """Return the number of tokens; a scaled count is rounded up, so that a text has at least one token."""
        count = self.base.count(text)
        return count if self.scale == 1 else math.ceil(count * self.scale)


def find_counter(
    counter: str | TokenCounter | Callable[[str], int] = "auto", *, model: str | None = None
) -> TokenCounter:
    """Return a token counter.

    Args:
        counter: `auto`, `estimate` (by byte classes), the name of an encoding (`o200k_base` or `cl100k_base`, never
            replaced by an estimate), a `TokenCounter`, or any function. `auto` uses the model's own vocabulary, or the
            nearest public one scaled by the measured ratio of the model's family, if an installed package contains it;
            otherwise it estimates.
        model: Name of the model. The framing, tools, and hidden prompts of its family are counted too. None means
            o200k_base and OpenAI's framing, which is not the count of any particular provider.

    Raises:
        TokenizerError: If the named encoding is not on this machine.
        ConfigError: If `counter` is none of the accepted values.
    """
    family = None if model is None else family_of(model)
    if isinstance(counter, str):
        return _named_counter(counter, family)
    if hasattr(counter, "for_model") and model is not None:
        found: TokenCounter = counter.for_model(model)
        return found
    if isinstance(counter, TokenCounter):
        own = counter if _is_hashable(counter) else _CallableCounter(counter.count, counter)
    elif callable(counter):
        own = _CallableCounter(counter)
    else:
        raise ConfigError(
            f"a counter must be 'auto', 'estimate', an encoding, a TokenCounter, or a function, not {counter!r}",
            setting="counter",
        )
    return own if family is None or hasattr(own, "family") else FamilyCounter(own, family, scale=1.0)


def _is_hashable(counter: object) -> bool:
    """Return whether a counter can be a cache key; a dataclass that compares by value, for example, has no hash."""
    try:
        hash(counter)
    except TypeError:
        return False
    return True


@lru_cache(maxsize=64)
def _named_counter(name: str, family: Family | None) -> TokenCounter:
    """Return the counter for a name and a family. It is the same object each time, so its users share cached counts."""
    if family is None:
        return _plain_counter(name)
    if name == "auto" and family.encoding == TEKKEN and find_vocabulary(TEKKEN) is None:
        return FamilyCounter(_plain_counter("auto"), family, scale=_TEKKEN_SCALE)
    scale = 1.0 if name in ENCODINGS else None
    return FamilyCounter(_plain_counter(name, family.encoding), family, scale=scale)


_TEKKEN_SCALE: Final = 1.15
"""Number of tokens in Mistral's vocabulary for each token of o200k_base; used if mistral-common is not installed."""


@lru_cache(maxsize=8)
def _plain_counter(name: str, nearest: str = "o200k_base") -> TokenCounter:
    """Return a counter without a model; `auto` means the encoding `nearest` if installed, or else the estimate."""
    if name == "auto":
        with suppress(TokenizerError):
            return exact_counter(nearest)
    if name in ("auto", "estimate"):
        return EstimateCounter()
    if name not in ENCODINGS:
        raise ConfigError(
            f"unknown counter {name!r}; known are auto, estimate, {', '.join(ENCODINGS)}", setting="counter"
        )
    return exact_counter(name)


def encoding_of(model: str | None) -> str | None:
    """Return the name of a model's encoding; None if its family has no public encoding.

    Without a model, return o200k_base.
    """
    if model is None:
        return "o200k_base"
    family = family_of(model)
    return family.encoding if family.own_vocabulary and family.encoding in ENCODINGS else None
