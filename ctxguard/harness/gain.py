"""Judge a context by how many bits a compressor needs for the next message after it has read the context.

Next-action support (`ctxguard.harness.fidelity`) counts names, so a bare list of names scores as well as text. Here a
compressor (PPMd) reads the context and then the message that the recorded agent wrote next. The fewer bits it needs for
that message, the more of the message the context contained. *Gain* places a context between two ends: 0 is the floor,
which any valid context contains (system prompt, task, last user message, newest tool exchange), and 1 is the whole
history.

A compressor rewards verbatim repetition and does not understand meaning: it underrates a good paraphrase, and gives no
value to a constraint that the next message does not repeat. Read gain together with support, and trust a change only if
both agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from importlib.util import find_spec
from re import compile as compiled
from typing import TYPE_CHECKING, Final, NamedTuple

from ctxguard.artifacts import Artifact, Kind
from ctxguard.harness.fidelity import end_of_pieces, text_of
from ctxguard.settings import extra, install_command

if TYPE_CHECKING:
    from ctxguard.tokens import ArtifactCounter

ORDER: Final = 10
MEMORY: Final = 48 << 20
"""Memory of the PPMd model in bytes. Like `ORDER`, it is as in the measurements that introduced this judge."""
LONGEST: Final = 6_000
"""Maximum number of characters of the next message that are compressed."""
SEES: Final = (
    "Support counts names: of the paths, ids, and numbers in the agent's next message that appear only in the older "
    "history, the share that the request contains together with words around them. It is an upper bound: a bare list "
    "of names would pass, too.",
    "Gain counts bits: how much the request helps a compressor with the next message, from 0 (the smallest valid "
    "request) to 1 (the whole history). It rewards verbatim repetition and knows no meaning: it underrates "
    "paraphrases, and gives no credit for a rule that the next message does not repeat.",
    "Newest is how much of the tool outputs that the model has not seen yet is sent, as a share of their characters, "
    "if they fit into half of the available tokens. It does not say whether the model needs them.",
    "Prefix is the share of the prompts that extend the one before, up to its newest exchange, whose outputs may be "
    "shortened once; the bill includes what the others cost.",
)
"""What each judge can and cannot measure."""
_SHINGLE: Final = 8
"""Number of consecutive words from which on a text counts as copied.

With three, words that recur in the rows of a table would make lost rows count as sent.
"""
_WORD: Final = compiled(r"\w+")
_PLACEHOLDER: Final = compiled(r"<[A-Z][A-Z_]*_\d+>|\[REDACTED[A-Z_]*\]")


class Bits(NamedTuple):
    """The bits of the next message, compressed after the floor (see `floor`), a context, and the whole history."""

    floor: int
    context: int
    whole: int


class Compressor:
    """Counts the bits that PPMd needs for a message after it has read a context.

    Raises:
        ImportError: If pyppmd is not installed.
    """

    def __init__(self) -> None:
        with extra("gain", "gain needs pyppmd"):
            from pyppmd import Ppmd7Encoder
        self._encoder = Ppmd7Encoder

    def bits(self, context: Sequence[Artifact], following: Artifact) -> int:
        """Return the number of bits that the first 6,000 characters of a message (text and calls) take after a context.

        This is C(context + message) - C(context), computed with one encoder: PPMd writes out what it has read so far,
        and the length of its final flush does not depend on the text.
        """
        encoder = self._encoder(ORDER, MEMORY)
        encoder.encode(priming())
        encoder.encode(rendered(context).encode())
        flushed = _flush(self._encoder)
        return 8 * (len(encoder.encode(text_of(following)[:LONGEST].encode())) + len(encoder.flush()) - flushed)


class Gain:
    """Judges the contexts of one session under all settings. What does not depend on a setting is compressed only once.

    Without pyppmd, nothing is judged.
    """

    def __init__(self, artifacts: Sequence[Artifact]) -> None:
        self._artifacts = artifacts
        self._compressor = Compressor() if is_installed() else None
        self._ends: dict[int, tuple[int, int]] = {}

    def __call__(self, end: int, context: Sequence[Artifact], available: int, count: ArtifactCounter) -> Bits | None:
        """Return the bits of the message after a call. None if pyppmd is missing or even the floor does not fit.

        Args:
            end: Number of history messages before the call.
            context: Context that is sent.
            available: Number of tokens available for messages.
            count: Token counter in use.
        """
        history = self._artifacts[:end]
        least = floor(history)
        if self._compressor is None or count.artifacts(least) > available:
            return None
        following = self._artifacts[end]
        if end not in self._ends:
            self._ends[end] = (self._compressor.bits(least, following), self._compressor.bits(history, following))
        return Bits(self._ends[end][0], self._compressor.bits(context, following), self._ends[end][1])


def is_installed() -> bool:
    """Return whether pyppmd, the compressor, is installed."""
    return find_spec("pyppmd") is not None


def judges() -> tuple[str, ...]:
    """Return what each judge can and cannot measure, for the report, and which judge is not installed."""
    return SEES if is_installed() else (*SEES, f"Gain was not measured: {install_command('gain')}")


@lru_cache(maxsize=1)
def _flush(encoder: type) -> int:
    return len(encoder(ORDER, MEMORY).flush())


@lru_cache(maxsize=1)
def priming() -> bytes:
    """Return the text that the compressor reads before every context, so that it knows English, JSON, and sessions.

    The text consists of the demo session and 20 KB of the documentation. It is frozen, since every figure depends on
    it. Primed with 58 KB of recordings instead, a rolling window's gain on these recordings is 0.42, 0.45, and 0.90 at
    budgets of 4,000, 8,000, and 32,000 tokens; with this text it is 0.43, 0.47, and 0.90, and without priming 0.32,
    0.42, and 0.91.
    """
    return files("ctxguard").joinpath("data/priming.txt").read_bytes()


def rendered(context: Sequence[Artifact]) -> str:
    """Render a context as text for the compressor: the kind of each message, its text, and its calls."""
    return "".join(f"{artifact.kind}: {text_of(artifact)}\n" for artifact in context) + "assistant: "


def newest_exchange(history: Sequence[Artifact]) -> int:
    """Return the position of the first message of the tool exchange whose outputs the model has not read yet.

    If there is no such exchange, return the number of messages.
    """
    last = next((n for n in range(len(history) - 1, -1, -1) if history[n].kind is Kind.ASSISTANT), None)
    return last if last is not None and history[last].calls else len(history)


def floor(history: Sequence[Artifact]) -> list[Artifact]:
    """Return what any valid context contains verbatim: system, task, last user message, and newest tool exchange."""
    begin = min(newest_exchange(history), len(history) - 1)
    last_user = max((n for n, a in enumerate(history) if a.kind is Kind.USER), default=begin)
    return [a for n, a in enumerate(history) if n >= begin or n == last_user or a.kind in (Kind.SYSTEM, Kind.TASK)]


def gain(judged: Iterable[Bits | None]) -> float | None:
    """Return how many bits the contexts save compared with the floor, as a share of what the whole histories save.

    None if the whole histories save no bits, or if nothing was judged. Bits are summed over the calls, because the
    result of a single call is too noisy.
    """
    costs = [bits for bits in judged if bits is not None]
    worth = sum(bits.floor - bits.whole for bits in costs)
    return sum(bits.floor - bits.context for bits in costs) / worth if worth > 0 else None


def newest_sent(
    history: Sequence[Artifact], context: Sequence[Artifact], available: int, count: ArtifactCounter
) -> tuple[int, int]:
    """Return how many characters of the newest tool outputs are sent, and how many would fit.

    An output would fit if, together with the earlier outputs of the exchange that fit, it takes at most half of the
    free tokens. Free tokens are those that remain of `available` after system prompts, task, last user message, and the
    message that makes the calls.

    Args:
        history: History before the call.
        context: Context that is sent.
        available: Number of tokens available for messages: the budget without tool schemas and framing.
        count: Token counter in use.
    """
    begin = newest_exchange(history)
    outputs = [a for a in history[begin:] if a.kind is Kind.TOOL]
    if not outputs:
        return 0, 0
    must = [a for a in floor(history) if a.kind is not Kind.TOOL]
    left = (available - count.artifacts(must)) / 2
    newest = [a.text for a in context[newest_exchange(context) :] if a.kind is Kind.TOOL]
    sent = fitting = 0
    for output in outputs:
        tokens = count.artifact(output)
        if tokens <= left:
            left -= tokens
            fitting += len(output.text)
            sent += round(len(output.text) * _share_of(output.text, newest))
    return sent, fitting


def _share_of(text: str, sent: Sequence[str]) -> float:
    """Return the share of a text that was sent. A text of which only values were masked counts as sent whole: 1.0.

    In a shortened text, a word counts as sent if it is part of a run of eight words that was sent.
    """
    if any(text in each or _is_masked(text, each) for each in sent):
        return 1.0
    runs = {run for each in sent for run in _runs(_WORD.findall(each))}
    words = _WORD.findall(text)
    kept = {n + k for n, run in enumerate(_runs(words)) if run in runs for k in range(_SHINGLE)}
    return sum(len(words[n]) for n in kept) / max(1, sum(map(len, words)))


def _runs(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return zip(*(words[n:] for n in range(_SHINGLE)), strict=False)


def _is_masked(text: str, sent: str) -> bool:
    """Return whether a text was sent in full, apart from masked values."""
    first, *pieces = _PLACEHOLDER.split(sent)
    if not pieces or not text.startswith(first) or not text.endswith(pieces[-1]):
        return False
    return end_of_pieces(text, pieces, len(first)) is not None
