"""The trail: one message after the task that says, short and true, what the evicted exchanges contained.

It counts the evicted steps (tool calls and messages) and the media in them, then lists what people said that stands for
later, and then a line for each of the latest steps, in order. A line quotes; whether a call failed is said only where
its result says so. The text is written at a cut, within the tokens that the fold reserved. If a stabilized context is
continued as a history, `read_note` reads the trail in it. No model is involved.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ctxguard.artifacts import Artifact, Kind, ToolCall
from ctxguard.history import TRAIL
from ctxguard.history.records import Phrase, phrases_in, quoted_spans, records_in, sentence_spans, sentences
from ctxguard.stages.short_views import failure_of, media_of
from ctxguard.tokens.caches import cached_by_text
from ctxguard.views.outcomes import clipped

_FENCED: Final = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_LEADING: Final = re.compile(r"^[\s>*#•\-–\d.)]+(?=\w)")
_SENTENCE_ENDS: Final = ".!?…。！？"
_FEWEST: Final = 3
"""Fewest words of a listed sentence. In scripts without spaces, two characters count as a word."""
_FEWEST_SIGNS, _MOST_SIGNS = 6, 240
"""Fewest and most characters of a listed sentence."""
_EACH: Final = 6
"""Maximum number of sentences of one message."""
_PASTED: Final = 1_200
"""A message of more characters is mostly pasted text. Only its first and last sentence count, and rules in it."""
_EDGE: Final = 600
"""Number of characters at each end of such a message in which its first and its last sentence are searched."""


class Said(NamedTuple):
    """A sentence from a person's message.

    Attributes:
        text: The sentence, on one line.
        score: How likely it still applies later; at least 1.
    """

    text: str
    score: int


@cached_by_text  # a cut asks for the tokens and then for the sentences, with all evicted messages in between
def said_sentences(text: str) -> tuple[Said, ...]:
    """Return the sentences of a message that may stand for later, in order, at most 6."""
    is_pasted = len(text) > _PASTED
    sentences = list(_rules_in(text) if is_pasted else _sentences(text))
    found: list[tuple[int, int, str]] = []
    for place, sentence in enumerate(sentences):
        if _FEWEST_SIGNS <= len(sentence) <= _MOST_SIGNS and _words(sentence) >= _FEWEST:
            at_edge = place in (0, len(sentences) - 1)
            score = _score(sentence) + at_edge
            if score > 0 and 2 * _letters(sentence) > len(sentence):
                found.append((score, place, " ".join(sentence.split())))
    best = sorted(found, key=lambda each: (-each[0], -each[1]))[:_EACH]
    return tuple(Said(sentence, score) for score, _, sentence in sorted(best, key=lambda each: each[1]))


def _sentences(text: str) -> Iterator[str]:
    for sentence in sentences(_FENCED.sub("\n", text) if "```" in text else text):
        if cleaned := _LEADING.sub("", sentence).strip():
            yield cleaned


def _rules_in(text: str) -> Iterator[str]:
    """Yield the first sentence of a long text, its sentences that are phrased as rules, and its last sentence."""
    yield next(_sentences(text[:_EDGE]), "")
    spans, end = sentence_spans(text), 0
    for phrase in phrases_in(text, "standing"):
        if phrase.start >= end:
            start, end = next(span for span in spans if span[1] > phrase.start)
            yield _LEADING.sub("", text[start:end]).strip()
    *_, last = ["", *_sentences(text[-_EDGE:])]
    yield last


def _score(sentence: str) -> int:
    """Return how likely a sentence still applies later, by its words."""
    found = sorted(_own_phrases(sentence))
    tables = {phrase.table for phrase in found}
    begin = 0
    for phrase in found:  # an order opens the sentence, or follows words of politeness
        if phrase.table == "politeness" and phrase.start == begin:
            begin = len(sentence) - len(sentence[phrase.end :].lstrip(" ,"))
    is_order = any(phrase.table == "orders" and phrase.start == begin for phrase in found)
    is_rule = "standing" in tables and not any(p.table == "tellers" and p.start in (0, begin) for p in found)
    score = 2 * is_rule + ("habits" in tables) + 2 * is_order - ("moment" in tables)
    return score - 2 * sentence.endswith(("?", "？"))


def _own_phrases(sentence: str) -> Iterator[Phrase]:
    """Yield the phrases in a sentence that do not stand in a quoted name or title; a quoted sentence is none."""
    titles = [(a, b) for a, b in quoted_spans(sentence) if sentence[b - 2] not in _SENTENCE_ENDS]
    for phrase in phrases_in(sentence):
        if not any(start < phrase.start < end for start, end in titles):
            yield phrase


def _words(sentence: str) -> int:
    spaced = len(sentence.split())
    return spaced if sentence.isascii() or spaced > 1 else max(spaced, len(sentence) // 2)


def _letters(sentence: str) -> int:
    return sum(map(str.isalpha, sentence)) + sentence.count(" ")


LEAST_NOTE: Final = 40
"""Number of tokens that suffice for a trail that only states the number of steps."""
_CHARACTERS: Final[Mapping[Kind, int]] = {Kind.USER: 160, Kind.ASSISTANT: 80, Kind.SYSTEM: 160}
"""Maximum number of characters that a line quotes of a message."""
_ARGUMENTS: Final = 120
"""Maximum number of characters that a line quotes of the arguments of a call."""
_SAID: Final = "Said earlier, in this order:"
_STEPS: Final = "The latest of these steps:"
_REQUEST: Final = 4
"""By how much the first sentence of all ranks above its words."""
_FILLER: Final = "…"
"""A message that only lets roles take turns; it is no step."""
_TIMES_TOKENS: Final = 4
"""Maximum number of tokens in the number before a line."""
_LEAST_SAID: Final = 8
"""With fewer tokens, no further sentence is tried."""
_PATH: Final = 48
"""Maximum number of characters, from its end, of a file path in arguments that are too long for a line."""
_LONG_PATH: Final = re.compile(r"(?<![\w/:.~-])(?:~|\.{1,2})?/?(?:[\w.@+-]+/){3,}[\w.@+-]{1,40}(?![\w.@+/-])")
_UNSAFE: Final = re.compile(r"[^\w.@-]+")
_PLAIN: Final = re.compile(r"[\w./@:#$~+*?%<>&-]+")
_OPENED: Final = re.compile(r"(\d+) earlier steps?(?:, (\d+) told)?(?:; with them left (.+))?[.:]")
_TIMES: Final = re.compile(r"- (\d+)× ")
_COUNTED: Final = re.compile(r"(\d+) (picture|recording|video|document)s?")
_Count = Callable[[str], int]


class Note(NamedTuple):
    """What a trail says.

    Attributes:
        steps: Number of evicted steps.
        media: Number of evicted media, by word, such as `picture`.
        said: Sentences that people said, in order.
        lines: The lines of the latest steps, in order.
    """

    steps: int = 0
    media: Mapping[str, int] = {}
    said: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    @property
    def told(self) -> int:
        """Number of steps that have a line. Equal steps in a row share one, which begins with their number.

        What the model said with a call is no step of its own: its line is indented.
        """
        steps = (line for line in self.lines if line.startswith("- "))
        return sum(number for number, _ in map(_times_of, steps))

    @property
    def opening(self) -> str:
        """The first line: how many steps and media were evicted, and how many steps are told."""
        listed = f", {self.told} told" if 0 < self.told < self.steps else ""
        left = f"; with them left {_counted(sorted(self.media.items()))}" if self.media else ""
        return f"{self.steps} earlier step{'' if self.steps == 1 else 's'}{listed}{left}."

    @property
    def text(self) -> str:
        """The text of the trail, without the heading of its record."""
        said = [_SAID, *(f"- {sentence}" for sentence in self.said)] if self.said else []
        lines = [_STEPS, *self.lines] if self.lines else []
        return "\n".join((self.opening, *said, *lines))


def read_note(text: str) -> Note | None:
    """Read the trail in a message, so that the next one can continue it; return None if it cannot be read."""
    record = next((each for each in records_in(text) if each.title == TRAIL), None)
    opening, _, rest = ("", "", "") if record is None else record.body.partition("\n")
    opened = _OPENED.fullmatch(opening)
    if opened is None:
        return None
    said: list[str] = []
    lines: list[str] = []
    into = lines
    for line in rest.split("\n") if rest else ():
        if line in (_SAID, _STEPS):
            into = said if line == _SAID else lines
        else:
            into.append(line.removeprefix("- ") if into is said else line)
    media = {word: int(number) for number, word in _COUNTED.findall(opened[3] or "")}
    return Note(int(opened[1]), media, tuple(said), tuple(lines))


class Facts(NamedTuple):
    """What the trail needs to know of an exchange, worked out once.

    Attributes:
        members: The artifacts of the exchange, whole.
        steps: Number of steps in it: its tool calls, or one.
        media: A word for each picture, recording, video, or document in it.
        said: The sentences that stand for later, if a person said them.
        is_observed: Whether it is tool output in the user's role.
    """

    members: Sequence[Artifact]
    steps: int
    media: tuple[str, ...] = ()
    said: tuple[Said, ...] = ()
    is_observed: bool = False


def facts_of(members: Sequence[Artifact], *, is_observed: bool = False) -> Facts:
    """Return what the trail needs to know of an exchange."""
    first = members[0]
    is_said = first.kind is Kind.USER and not is_observed
    said = said_sentences(spoken_text(first)) if is_said else ()
    media = tuple(word for artifact in members for word in media_of(artifact))
    is_filler = first.kind is Kind.ASSISTANT and not first.calls and first.text.strip() == _FILLER
    return Facts(members, 0 if is_filler else max(1, len(first.calls)), media, said, is_observed)


def write_note(
    gone: Sequence[Facts],
    earlier: Note | None,
    max_tokens: int,
    max_said: int,
    *,
    count: _Count,
    said: Iterable[tuple[Said, str]] | None = None,
    handle: Callable[[str], str] | None = None,
    large: Callable[[Artifact], bool] = lambda _: False,
) -> Note:
    """Write the trail of evicted exchanges.

    Args:
        gone: The evicted exchanges, in order.
        earlier: The trail that stood in the history before them; None if there was none.
        max_tokens: Maximum number of tokens in the text. A longer text has only its first line.
        max_said: Maximum number of tokens in the list of what people said.
        count: Function that returns the number of tokens in a string.
        said: The sentences of people that may be listed, in order, each with the text that is still sent of its message
            (empty if nothing is). None means those of the evicted exchanges.
        handle: Function that returns the handle of a stored text; None if texts are not stored.
        large: Whether the text of an artifact is so large that its line names its handle.
    """
    earlier = earlier or Note()
    steps = earlier.steps + sum(each.steps for each in gone)
    media = Counter(earlier.media)
    for each in gone:
        if each.media:
            media.update(each.media)
    room = max_tokens - count(Note(steps, media, (), ("",)).opening) - 1
    if said is None:
        said = ((sentence, "") for each in gone for sentence in each.said)
    listed = _choose_said(said, earlier.said, min(max_said, room), count)
    room -= sum(count(sentence) + 3 for sentence in listed) + (count(_SAID) + 1 if listed else 0)
    lines: list[tuple[int, str]] = []
    room -= count(_STEPS) + 1
    for number, line in map(_times_of, _lines_backwards(gone, earlier.lines, handle, large)):
        before = lines[-1][0] if lines and lines[-1][1] == line else 0
        room -= 0 if before else count(line) + 1
        room -= _TIMES_TOKENS if before < 2 <= before + number else 0
        # Stopping at the first line that does not fit keeps the told steps free of gaps.
        if room < 0:
            break
        if before:
            lines.pop()
        lines.append((before + number, line))
    shown = [line if number == 1 else f"- {number}× {line.removeprefix('- ')}" for number, line in reversed(lines)]
    return Note(steps, media, tuple(listed), tuple(shown))


def _times_of(line: str) -> tuple[int, str]:
    """Return the number of equal steps that share a line, and the line without it.

    Nothing that a line quotes counts: a message begins with who said it, and a tool's name with `×` stands in quotes.
    """
    match = _TIMES.match(line)
    return (1, line) if match is None else (int(match[1]), f"- {line[match.end() :]}")


def _choose_said(said: Iterable[tuple[Said, str]], earlier: Sequence[str], max_tokens: int, count: _Count) -> list[str]:
    """Return the sentences that stand for later, the best and then the newest, in the order in which they were said."""
    found: dict[str, tuple[int, int, str]] = {}
    known = [(Said(sentence, 2), "") for sentence in earlier]
    for place, (one, shown) in enumerate((*known, *said)):
        if one.text not in shown:  # the first sentence of all states the request
            found[one.text.casefold()] = one.score + (_REQUEST if place == 0 else 0), place, one.text
    chosen: list[tuple[int, str]] = []
    left = max_tokens - count(_SAID) - 1
    for _, position, sentence in sorted(found.values(), reverse=True):
        if left < _LEAST_SAID:
            break
        tokens = count(sentence) + 3
        if tokens <= left:
            left -= tokens
            chosen.append((position, sentence))
    return [sentence for _, sentence in sorted(chosen)]


def _lines_backwards(
    gone: Sequence[Facts],
    earlier: Sequence[str],
    handle: Callable[[str], str] | None,
    large: Callable[[Artifact], bool],
) -> Iterator[str]:
    def named(artifact: Artifact | None) -> str:
        return "" if handle is None or artifact is None or not large(artifact) else f" [{handle(artifact.text)}]"

    for each in reversed(gone):
        first = each.members[0]
        if first.calls:
            results = results_of(each.members)
            for number in range(len(first.calls) - 1, -1, -1):
                result = results.get(number)
                yield _line_of_call(first.calls[number], result, named(result))
            if text := spoken_text(first).strip():
                yield f"  {_line_of_message(first, text, '').removeprefix('- ')}"
        elif (
            each.steps
            and not each.is_observed
            and (line := _line_of_message(first, spoken_text(first).strip(), named(first)))
        ):
            yield line
    yield from reversed(earlier)


def _line_of_message(artifact: Artifact, text: str, handle: str) -> str:
    who = " ".join((artifact.kind.value, *_UNSAFE.sub("_", artifact.name or "").split()))
    media = _counted(Counter(media_of(artifact)).items())
    with_media = f" (with {media}, which left)" if media else ""
    quoted = quoted_line(clipped(text, _CHARACTERS.get(artifact.kind, _ARGUMENTS)))
    return f"- {who}{with_media}{handle}: {quoted}".rstrip() if quoted or media else ""


def _counted(media: Iterable[tuple[str, int]]) -> str:
    """Return words with their numbers, such as `1 document, 2 pictures`; empty if there are none."""
    return ", ".join(f"{number} {word}{'' if number == 1 else 's'}" for word, number in media)


def _line_of_call(call: ToolCall, result: Artifact | None, handle: str) -> str:
    name = call.name if _PLAIN.fullmatch(call.name) else quote(call.name)
    given = call.arguments
    if len(given) > _ARGUMENTS:  # a path that fits is quoted whole, because the next call names it again
        given = _with_short_paths(given[: 8 * _ARGUMENTS]) + given[8 * _ARGUMENTS : 16 * _ARGUMENTS]
    arguments = clipped(given, _ARGUMENTS) if given.strip("{} \n") else "()"
    failure = None if result is None else failure_of(result)
    ended = "" if failure is None else f" → failed: {quote(failure)}"
    media = "" if result is None else ", ".join(media_of(result)[:3])
    return f"- {name} {quoted_line(arguments)}{ended}{f' (returned a {media}, which left)' if media else ''}{handle}"


def _with_short_paths(text: str) -> str:
    """Return a text in which long file paths only have their last directories, because their names say most."""

    def shortened(path: re.Match[str]) -> str:
        start = path.end() - _PATH
        return path[0] if path.start() >= start else "…" + text[text.index("/", start, path.end()) : path.end()]

    return _LONG_PATH.sub(shortened, text)


def results_of(members: Sequence[Artifact]) -> dict[int, Artifact]:
    """Return the result of each call of an exchange, by index of the call. Calls without an id match in order."""
    waiting: dict[str | None, list[int]] = {}
    for number, call in enumerate(members[0].calls):
        waiting.setdefault(call.id, []).append(number)
    found = {}
    for result in members[1:]:
        numbers = waiting.get(result.answers) or waiting.get(None)
        if numbers:
            found[numbers.pop(0)] = result
    return found


def spoken_text(artifact: Artifact) -> str:
    """Return the words of a message: no reasoning, which is private to the model, and no title of an attached file."""
    if isinstance(artifact.content, str):
        return artifact.content
    return "\n".join(p.text for p in artifact.content if p.text is not None and p.kind in ("text", "refusal"))


def quote(text: str) -> str:
    """Return a string in double quotes, with double quotes inside it replaced and unprintable characters removed.

    Tool output must not end its own quotation: the trail has the user's role, so the rest would read as the user's.
    """
    return f'"{quoted_line(text).replace(chr(34), chr(39))}"'


def quoted_line(text: str) -> str:
    """Return a string on one line, without unprintable characters."""
    return "".join(sign for sign in " ".join(text.split()) if sign.isprintable())
