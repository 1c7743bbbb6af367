"""Write any history as a transcript for a summarizer, split it into chunks, and shorten it without a summarizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

from ctxguard.adapting.registry import Adapter, require_adapter
from ctxguard.artifacts import Artifact


def transcript(artifacts: Iterable[Artifact]) -> str:
    """Return a transcript: who wrote what, how each tool was called, and what it returned."""
    return "\n\n".join(line for artifact in artifacts for line in _lines(artifact))


def _lines(artifact: Artifact) -> Iterator[str]:
    who = artifact.kind.value if artifact.name is None else f"{artifact.kind.value} {artifact.name}"
    if artifact.text:
        yield f"{who}: {artifact.text}"
    if not isinstance(artifact.content, str):
        yield from (f"{who}: [{part.kind}]" for part in artifact.content if part.text is None)
    for call in artifact.calls:
        yield f"{who} calls {call.name}({call.arguments})"


def chunked(pieces: Sequence[str], max_tokens: int, count: Callable[[str], int]) -> list[str]:
    """Join pieces into chunks of at most `max_tokens` tokens without leaving anything out.

    A piece above the limit is split, at line breaks if possible.
    """
    chunks: list[str] = []
    chunk: list[str] = []
    taken = 0
    for piece in (part for whole in pieces for part in _split(whole, max_tokens, count)):
        tokens = count(piece) + 2
        if chunk and taken + tokens > max_tokens:
            chunks.append("\n\n".join(chunk))
            chunk, taken = [], 0
        chunk.append(piece)
        taken += tokens
    return [*chunks, "\n\n".join(chunk)] if chunk else chunks


def _split(piece: str, max_tokens: int, count: Callable[[str], int]) -> Iterator[str]:
    while len(piece) > 1 and count(piece) + 2 > max_tokens:
        size = _fitting(piece, max(1, max_tokens - 2), count)
        line = piece.rfind("\n", size // 2, size)
        end = line + 1 if line > 0 else size
        yield piece[:end]
        piece = piece[end:]
    if piece:
        yield piece


def _fitting(text: str, max_tokens: int, count: Callable[[str], int]) -> int:
    """Return how many characters at the start of a text fit into `max_tokens` tokens, but at least 1."""
    size = min(len(text), 4 * max_tokens)
    while size > 1 and (tokens := count(text[:size])) > max_tokens:
        size = max(1, min(size - 1, size * max_tokens // tokens))
    return max(1, size)


def head_and_tail(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """Shorten a text to its start and its end, with the number of removed tokens between them.

    The result has at most `max_tokens` tokens. It is empty if not even the marker fits.
    """
    total = count(text)
    if total <= max_tokens:
        return text
    available = max_tokens - count(_marker(total)) - 2
    while available > 0:
        head = text[: _fitting(text, max(1, available // 2), count)]
        tail = text[::-1][: _fitting(text[::-1], max(1, available // 2), count)][::-1] if available > 1 else ""
        shown = f"{head}\n{_marker(max(1, total - count(head) - count(tail)))}\n{tail}"
        if count(shown) <= max_tokens:
            return shown
        available -= max(1, available // 8)
    return _marker(total) if count(_marker(total)) <= max_tokens else ""


def _marker(tokens: int) -> str:
    return f"[… {tokens} tokens removed …]"


def read_native(messages: Sequence[object]) -> tuple[Adapter[object] | None, list[Artifact]]:
    """Return the adapter that knows some messages, and the messages as artifacts. For artifacts, the adapter is None.

    Raises:
        AdapterError: If no installed adapter knows the messages.
    """
    if all(isinstance(message, Artifact) for message in messages):
        return None, cast("list[Artifact]", list(messages))
    adapter = require_adapter(messages)
    return adapter, adapter.read(messages)


def write_native(
    adapter: Adapter[object] | None, messages: Sequence[object], artifacts: list[Artifact]
) -> Sequence[object]:
    """Return artifacts as native messages in the format of `messages`. Without an adapter, return them unchanged."""
    return artifacts if adapter is None else cast("Sequence[object]", adapter.write(messages, artifacts))
