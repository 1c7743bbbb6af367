"""Count tokens: exactly where a vocabulary is at hand, by byte classes where none is. Never over the network.

The byte-class weights and their errors were fitted against o200k_base on prose, code, JSON, logs and a dozen
scripts; the tiktoken cache layout (SHA-1 of the download address as file name) is that of tiktoken's `load.py`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import Final, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from ctxguard.artifacts import BY_POSITION, Artifact, Kind
from ctxguard.errors import ConfigError, CtxguardError, TokenizerError
from ctxguard.tokens.text_cache import TextCache

__all__ = [
    "ArtifactCounter",
    "EstimateCounter",
    "TiktokenCounter",
    "TokenCounter",
    "ToktokCounter",
    "find_counter",
]

ENCODINGS: Final = ("o200k_base", "cl100k_base")
MESSAGE_TOKENS: Final = 3
"""Tokens of framing a message costs (OpenAI's cookbook on counting chat tokens)."""
REPLY_TOKENS: Final = 3
"""Tokens that open the reply, once a request (same source)."""
NAME_TOKENS: Final = 1
CALL_TOKENS: Final = 3
TOOL_TOKENS: Final = 7
"""Framing of one tool schema (measured by OpenAI users for function definitions; an estimate)."""
_CHUNK: Final = 65_536


@runtime_checkable
class TokenCounter(Protocol):
    """Count the tokens of a text. Any `Callable[[str], int]` is taken as well.

    Attributes:
        name: what reports call it.
        exact: True where it is the tokenizer of the model family itself.
        accuracy: one phrase on how far off it may be.
    """

    name: str
    exact: bool
    accuracy: str

    def count(self, text: str) -> int:
        """Return the tokens of `text`; never raises on any `str`, lone surrogates included."""
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
_BASE64_TOKENS: Final = 0.67


class EstimateCounter:
    """Estimate tokens from the classes of the UTF-8 bytes: pure, deterministic, instant, for any script.

    Args:
        safety: factor on every estimate; above 1.0 where the estimate must not be too low.
    """

    exact = False

    def __init__(self, *, safety: float = 1.0) -> None:
        if not safety > 0:
            raise ConfigError(f"safety must be above 0, not {safety}", setting="safety")
        self.safety = safety
        self.name = "estimate" if safety == 1.0 else f"estimate x{safety:g}"
        self.accuracy = "estimated by byte classes: within about 10% on prose, code and JSON, 20% on CSV"

    def count(self, text: str) -> int:
        """Return the estimate, at least 1 for a text that is not empty."""
        if not text:
            return 0
        data = text.encode("utf-8", "replace")
        total = 0.0
        if len(data) > 64 and (runs := [run for run in _BASE64_RUN.findall(data) if _is_dense(run)]):
            total = _BASE64_TOKENS * sum(map(len, runs))
            data = _BASE64_RUN.sub(lambda match: b"" if _is_dense(match[0]) else match[0], data)
        for weight, others in _WEIGHTS:
            total += weight * len(data.translate(None, others))
        return max(1, round(total * self.safety))


def _is_dense(run: bytes) -> bool:
    """Tell base64 from a long word: it mixes cases and digits."""
    return not run.isalpha() and not run.isdigit() and run.lower() != run and run.upper() != run


class TiktokenCounter:
    """Count with tiktoken, from a vocabulary that is already on this machine.

    Args:
        encoding: name of the vocabulary.

    Raises:
        TokenizerError: the vocabulary is not on this machine.
    """

    exact = True

    def __init__(self, encoding: str = "o200k_base") -> None:
        self._encoding = _load_tiktoken(encoding)
        self.name = f"tiktoken {encoding}"
        self.accuracy = f"exact for models that use {encoding}"

    def count(self, text: str) -> int:
        """Return the tokens; special-token spellings in the text count as ordinary text."""
        return sum(len(self._encoding(piece)) for piece in _pieces(text))


def _pieces(text: str) -> Iterator[str]:
    """Cut long texts: o200k_base overflows its regex stack at about a million spaces; 64 K adds 0.005% tokens."""
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
_CARRIERS: Final = (
    ("llama_index.core", "_static/tiktoken_cache"),
    ("litellm", "litellm_core_utils/tokenizers"),
)


def find_vocabulary(encoding: str) -> Path | None:
    """Return the vocabulary file of an encoding, if one lies in tiktoken's cache or in an installed package.

    Packages are looked at without importing them. The file's SHA-256 is checked when it is loaded.
    """
    if encoding not in _VOCABULARY_SHA256:
        return None
    name = hashlib.sha1(_VOCABULARY_URL.format(encoding).encode(), usedforsecurity=False).hexdigest()
    cache = os.environ.get(
        "TIKTOKEN_CACHE_DIR",
        os.environ.get("DATA_GYM_CACHE_DIR", str(Path(tempfile.gettempdir()) / "data-gym-cache")),
    )
    folders = [Path(cache)] if cache else []
    for package, inside in _CARRIERS:
        top, _, rest = package.partition(".")
        spec = importlib.util.find_spec(top)
        folders += (
            [Path(place, *rest.split("."), inside) for place in (spec.submodule_search_locations or ()) if spec]
            if spec
            else []
        )
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


@lru_cache(maxsize=4)
def _load_tiktoken(encoding: str) -> Callable[[str], Sequence[int]]:
    path = find_vocabulary(encoding)
    if path is None:
        known = ", ".join(_VOCABULARY_SHA256)
        raise TokenizerError(
            f"no vocabulary {encoding!r} on this machine (known: {known}), and ctxguard never downloads one; "
            "pip install 'ctxguard-stabilizer[tokens]' brings an exact tokenizer, or use counter='estimate'"
        )
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != _VOCABULARY_SHA256[encoding]:
        raise TokenizerError(f"{path} is damaged (its SHA-256 is not that of {encoding}); delete it")
    try:
        import tiktoken
        from tiktoken_ext import openai_public
    except ImportError as error:
        raise TokenizerError("tiktoken is not installed; pip install tiktoken") from error
    settings = _without_download(getattr(openai_public, encoding), path)
    return tiktoken.Encoding(**settings).encode_ordinary  # type: ignore[arg-type]  # tiktoken's own constructor made them


def _without_download(constructor: FunctionType, path: Path) -> dict[str, object]:
    """Build an encoding's settings with our file in place of the download, leaving tiktoken's module as it is."""
    scope = dict(constructor.__globals__, load_tiktoken_bpe=lambda *_args, **_kwargs: _read_ranks(path))
    settings: dict[str, object] = FunctionType(constructor.__code__, scope)()
    return settings


def _read_ranks(path: Path) -> dict[bytes, int]:
    from base64 import b64decode

    lines = (line.split() for line in path.read_bytes().splitlines() if line)
    return {b64decode(token): int(rank) for token, rank in lines}


class ToktokCounter:
    """Count with toktok-rs: exact, several times faster than tiktoken, its vocabularies compiled in.

    Args:
        encoding: name of the vocabulary.

    Raises:
        TokenizerError: the package is not installed, or has no such vocabulary.
    """

    exact = True

    def __init__(self, encoding: str = "o200k_base") -> None:
        try:
            import toktok
        except ImportError as error:
            raise TokenizerError(
                "toktok-rs is not installed; pip install 'ctxguard-stabilizer[tokens]', or use counter='estimate'"
            ) from error
        self._batch: Callable[[list[str], str], list[int]] = toktok.batch_count
        self._encoding = encoding
        self.name = f"toktok {encoding}"
        self.accuracy = f"exact for models that use {encoding}"
        try:
            self.count("probe")
        except ValueError as error:
            raise TokenizerError(f"toktok-rs has no vocabulary {encoding!r}: {error}") from error

    def count(self, text: str) -> int:
        """Return the tokens; a lone surrogate counts as the replacement character."""
        try:
            return sum(self._batch(list(_pieces(text)), self._encoding))
        except UnicodeEncodeError:
            return self.count(text.encode("utf-8", "replace").decode())


class _CallableCounter:
    """Give a plain function the face of a counter, or one to a counter that cannot be hashed."""

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
        return _tokens(count, self.name)


def _tokens(count: object, counter: str) -> int:
    """Return what a counter gave as a number of tokens; one that is none is refused: no budget could be kept by it."""
    if isinstance(count, bool) or not isinstance(count, (int, float)) or not 0 <= count < math.inf:
        raise TokenizerError(f"the counter {counter} gave {count!r} for a text; it must give a number of tokens")
    return int(count)


def find_counter(
    counter: str | TokenCounter | Callable[[str], int] = "auto", *, model: str | None = None
) -> TokenCounter:
    """Return the counter that is asked for.

    Args:
        counter: `auto` (exact if one is at hand without the network, else the estimate), `estimate`, the name of an
            encoding (`o200k_base`, `cl100k_base`: exact or an error), a `TokenCounter`, or any function.
        model: name of the model, to choose the encoding for `auto`; None means o200k_base.

    Raises:
        TokenizerError: an encoding was named that is not on this machine.
        ConfigError: `counter` is none of these.
    """
    if isinstance(counter, str):
        return _named_counter(counter, encoding_of(model))
    if isinstance(counter, TokenCounter):
        return counter if _is_hashable(counter) else _CallableCounter(counter.count, counter)
    if callable(counter):
        return _CallableCounter(counter)
    raise ConfigError(
        f"a counter is 'auto', 'estimate', an encoding, a TokenCounter or a function, not {counter!r}",
        setting="counter",
    )


def _is_hashable(counter: object) -> bool:
    """Tell whether counts can be remembered by their counter; a dataclass that compares by value has no hash."""
    try:
        hash(counter)
    except TypeError:
        return False
    return True


@lru_cache(maxsize=16)
def _named_counter(name: str, encoding: str | None) -> TokenCounter:
    if name == "estimate":
        return EstimateCounter()
    if name != "auto":
        if name not in ENCODINGS:
            raise ConfigError(
                f"unknown counter {name!r}; known are auto, estimate, {', '.join(ENCODINGS)}", setting="counter"
            )
        return _exact_counter(name)
    if encoding is None:
        return EstimateCounter()
    try:
        return _exact_counter(encoding)
    except TokenizerError:
        return EstimateCounter()


def _exact_counter(encoding: str) -> TokenCounter:
    try:
        return ToktokCounter(encoding)
    except TokenizerError:
        return TiktokenCounter(encoding)


_ENCODING_OF: Final = (
    (re.compile(r"^(gpt-4o|gpt-4\.1|gpt-4\.5|gpt-5|chatgpt-4o|o\d)"), "o200k_base"),
    (re.compile(r"^(gpt-4|gpt-3\.5|gpt-35)"), "cl100k_base"),
)


def encoding_of(model: str | None) -> str | None:
    """Return the encoding of a model by its name; o200k_base for no name, None for a family with no public one."""
    if model is None:
        return "o200k_base"
    if not isinstance(model, str):
        raise ConfigError(f"model is the name of a model, not {model!r}", setting="model")
    name = model.rpartition(":")[2].rpartition("/")[2].lower()
    return next((encoding for pattern, encoding in _ENCODING_OF if pattern.match(name)), None)


_SHARED: WeakKeyDictionary[TokenCounter, TextCache[int]] = WeakKeyDictionary()


def _shared_cache(counter: TokenCounter) -> TextCache[int]:
    try:
        return _SHARED.setdefault(counter, TextCache())
    except TypeError:  # a counter of the caller's that cannot be hashed or weakly referenced
        return TextCache()


class ArtifactCounter:
    """Count artifacts: text, tool-call arguments, names and framing, media by the provider's rule. Memoised by text.

    Args:
        counter: counts texts.
        cache: where counts are remembered; None means one that all users of the same counter share.
    """

    def __init__(self, counter: TokenCounter, *, cache: TextCache[int] | None = None) -> None:
        self.counter = counter
        self.cache: TextCache[int] = _shared_cache(counter) if cache is None else cache

    def text(self, text: str) -> int:
        """Return the tokens of a text, without framing."""
        if not text:
            return 0
        count = self.cache.get(text)
        if count is None:
            count = self.counter.count(text)
            if type(count) is not int or count < 0:
                count = _tokens(count, self.counter.name)
            self.cache.put(text, count)
        return count

    def artifact(self, artifact: Artifact) -> int:
        """Return the tokens of an artifact: its own `token_count` where it has one, else counted with its framing.

        A changed copy of one with a count of its own is counted in proportion, on the same basis.
        """
        if artifact.token_count is not None:
            return artifact.token_count
        tokens: int | None = artifact.memo.get(self.counter)  # type: ignore[assignment]  # only counts stand there
        if tokens is None:
            origin = artifact.origin
            tokens = self.measured(artifact)
            if origin is not None and origin.token_count is not None:
                tokens = -(-origin.token_count * tokens // max(self.measured(origin), 1))
            artifact.memo.keep(self.counter, tokens)
        return tokens

    def measured(self, artifact: Artifact) -> int:
        """Return the tokens of an artifact as counted, with its framing, whatever count it came with."""
        content = artifact.content
        total = MESSAGE_TOKENS
        if isinstance(content, str):
            total += self.text(content)
        else:
            for part in content:
                if part.tokens is not None:
                    total += part.tokens
                elif part.text is not None:
                    total += self.text(part.text)
        for call in artifact.calls:
            total += CALL_TOKENS + self.text(call.name) + self.text(call.arguments)
        if artifact.name is not None and (artifact.kind is not Kind.TOOL or artifact.answers == BY_POSITION):  # no id
            total += NAME_TOKENS + self.text(artifact.name)
        return total

    def artifacts(self, artifacts: Iterable[Artifact]) -> int:
        """Return the tokens of a list of artifacts, without the reply's opening."""
        return sum(map(self.artifact, artifacts))

    def tools(self, tools: Sequence[Mapping[str, object]] | None) -> int:
        """Return the tokens of tool schemas: their compact JSON plus framing. None and an empty list cost nothing.

        Raises:
            ConfigError: they are no list, or one of them is no schema or cannot be written as JSON.
        """
        if not tools:
            return 0
        if isinstance(tools, (str, Mapping)) or not isinstance(tools, Iterable):
            raise ConfigError(f"tools are a list of schemas, not {type(tools).__name__}", setting="tools")
        return sum(TOOL_TOKENS + self.text(_schema(tool, number)) for number, tool in enumerate(tools))


def _schema(tool: object, number: int) -> str:
    if isinstance(tool, type) or not (isinstance(tool, Mapping) or hasattr(tool, "model_dump")):
        said = getattr(tool, "__name__", type(tool).__name__)
        raise ConfigError(f"tools[{number}] is a schema, a dict as it is sent, not {said}", setting="tools")
    try:
        return json.dumps(tool, separators=(",", ":"), ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"tools[{number}] cannot be written as JSON: {error}", setting="tools") from None
