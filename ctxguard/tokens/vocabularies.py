"""Count with a vocabulary that is already on this machine. Nothing is ever downloaded.

The tiktoken cache layout (SHA-1 of the download address as file name) is that of tiktoken's `load.py`; the layout of
Mistral's files is that of `mistral_common.tokens.tokenizers.tekken`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import tempfile
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import Final

from ctxguard.errors import TokenizerError
from ctxguard.settings import install_command
from ctxguard.tokens.accuracy import NO_MODEL
from ctxguard.tokens.costs import TEKKEN

ENCODINGS: Final = ("o200k_base", "cl100k_base")
_CHUNK: Final = 65_536  # characters, see `_pieces`


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
        self.accuracy = f"the text exactly by {encoding}; {NO_MODEL}"

    def count(self, text: str) -> int:
        """Return the tokens; special-token spellings in the text count as ordinary text."""
        return sum(len(self._encoding(piece)) for piece in _pieces(text))


_NEVER: Final = 1 << 31
"""More tokens than any text has, so that nothing is cut off."""


def _pieces(text: str) -> Iterator[str]:
    """Split long texts: o200k_base overflows its regex stack at about a million spaces; 64 K adds 0.005% tokens."""
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
    """Return the vocabulary file of an encoding, if tiktoken's cache or an installed package contains it.

    Packages are searched without importing them. The file's SHA-256 is checked when it is loaded.
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
    """Yield the vocabulary folders of installed packages, without importing them."""
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
        raise TokenizerError("tiktoken is not installed; pip install tiktoken") from error
    data = path.read_bytes()
    if encoding == TEKKEN:
        return _load_tekken(data)
    if hashlib.sha256(data).hexdigest() != _VOCABULARY_SHA256[encoding]:
        raise TokenizerError(f"{path} is damaged (its SHA-256 is not that of {encoding}); delete it")
    settings = _without_download(getattr(openai_public, encoding), path)
    return tiktoken.Encoding(**settings).encode_ordinary  # type: ignore[arg-type]  # tiktoken's own constructor made them


def _load_tekken(data: bytes) -> Callable[[str], Sequence[int]]:
    import tiktoken

    file = json.loads(data)
    config = file["config"]
    ordinary = file["vocab"][: config["default_vocab_size"] - config["default_num_special_tokens"]]
    ranks = {b64decode(entry["token_bytes"]): int(entry["rank"]) for entry in ordinary}
    encoding = tiktoken.Encoding(TEKKEN, pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens={})
    return encoding.encode_ordinary


def _without_download(constructor: FunctionType, path: Path) -> dict[str, object]:
    """Build an encoding's settings from our file instead of the download, leaving tiktoken's module as it is."""
    scope = dict(constructor.__globals__, load_tiktoken_bpe=lambda *_args, **_kwargs: _read_ranks(path))
    settings: dict[str, object] = FunctionType(constructor.__code__, scope)()
    return settings


def _read_ranks(path: Path) -> dict[bytes, int]:
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
                f"toktok-rs is not installed; {install_command('tokens')}; the counter 'estimate' needs none"
            ) from error
        self._batch: Callable[[list[str], str], list[int]] = toktok.batch_count
        self._truncate: Callable[[str, int, str], tuple[str, int]] = toktok.truncate
        self._encoding = encoding
        self.name = f"toktok {encoding}"
        self.accuracy = f"the text exactly by {encoding}; {NO_MODEL}"
        try:
            self.count("probe")
        except ValueError as error:
            raise TokenizerError(f"toktok-rs has no vocabulary {encoding!r}: {error}") from error

    def count(self, text: str) -> int:
        """Return the tokens; a lone surrogate counts as the replacement character."""
        try:
            # a batch starts threads first, which takes ten times as long as counting a message
            if len(text) <= _CHUNK:
                return self._truncate(text, _NEVER, self._encoding)[1]
            return sum(self._batch(list(_pieces(text)), self._encoding))
        except UnicodeEncodeError:
            return self.count(text.encode("utf-8", "replace").decode())


def exact_counter(encoding: str) -> ToktokCounter | TiktokenCounter:
    """Return a counter for an encoding, from the fastest installed package.

    Raises:
        TokenizerError: no installed package contains the vocabulary.
    """
    if encoding == TEKKEN:
        return TiktokenCounter(TEKKEN)
    try:
        return ToktokCounter(encoding)
    except TokenizerError:
        return TiktokenCounter(encoding)
