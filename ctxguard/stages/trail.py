"""The trail: a message that summarizes evicted exchanges, so that the model knows what happened before.

A trail accumulates the steps of evicted exchanges (see `traces`). Its text lists messages first, then failed calls,
calls that changed something, and other calls, as far as they fit; the rest is counted by tool. The text is written anew
at each cut. If a stabilized context is continued as a history, `read_trail` parses the trail in it. No model is
involved.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from ctxguard.content.outcomes import LONGEST
from ctxguard.stages.traces import Section, TrailStep, quote

_SHARE: Final = 0.5
"""Share of the tokens left for the trail that each section may take in the first of two rounds."""
_BEGINNING: Final = 24
"""Minimum number of characters in an excerpt from a message; a shorter excerpt would tell nothing."""
_REMEMBERED: Final = 512
"""Number of latest distinct steps that a trail may list. It is limited so that the time for a cut does not grow with
the conversation."""
_TITLES: Final[Mapping[Section, str]] = {"failed": "Failed:", "changed": "Changed:", "called": "Called:"}
_SPEECH: Final = ("said", "answered")
_FIRST: Final[tuple[Section, ...]] = ("said", "failed", "changed", "called")
_THEN: Final[tuple[Section, ...]] = ("failed", "changed", "called", "said", "answered")
_UNTOLD: Final = "Not told: "
_ROOT: Final = "; ~ is "
_OPENED: Final = re.compile(r"(\d+) earlier steps?(?:, (\d+) told)?(?:; ~ is (\S+))?[:.]")
_Count = Callable[[str], int]


def _opening(steps: int, told: int, root: str = "") -> str:
    some = f", {told} told" if 0 < told < steps else ""
    return f"{steps} earlier step{'' if steps == 1 else 's'}{some}{_ROOT + root if root else ''}{':' if told else '.'}"


@dataclass(frozen=True, slots=True)
class Trail:
    """The steps of all evicted exchanges. Immutable: `extended` returns a new trail.

    Attributes:
        steps: Number of evicted steps. A step is one tool call or one message.
        told: The steps that can be listed, ordered by latest occurrence, and how often each occurred.
        untold: Number of steps that cannot be listed, by tool or author. With the steps in `told`, these may add up to
            less than `steps`, because a trail that was read from its text does not always state them.
    """

    steps: int = 0
    told: Mapping[TrailStep, int] = field(default_factory=dict)
    untold: Mapping[str, int] = field(default_factory=dict)

    def extended(self, left: Iterable[tuple[TrailStep, ...]]) -> Trail:
        """Return the trail with the steps of more exchanges appended.

        Args:
            left: The steps of each newly evicted exchange, in order.
        """
        told, untold, steps = dict(self.told), Counter(self.untold), self.steps
        for step in (step for trace in left for step in trace):
            steps += 1
            if step.section == "observed" or not (step.what or step.section not in _SPEECH):
                untold[step.who] += 1
            else:
                # A repeated step is removed and inserted again, so that steps are ordered by latest occurrence.
                told[step] = told.pop(step, 0) + 1
        for old in list(told)[:-_REMEMBERED]:
            untold[old.who] += told.pop(old)
        return Trail(steps, told, untold)

    def text(self, max_tokens: int, *, count: _Count) -> str:
        """Return the text of the trail. If no step fits, the text only states the number of steps, or is empty.

        Args:
            max_tokens: Maximum number of tokens in the text.
            count: Function that returns the number of tokens in a string.
        """
        return _Writer(self, max_tokens, count).write()


class _Writer:
    """Chooses the steps of a trail that fit into a number of tokens, and writes the text."""

    def __init__(self, trail: Trail, max_tokens: int, count: _Count) -> None:
        self.trail, self.max_tokens, self.count = trail, max_tokens, count
        self.root = ""
        self.chosen: dict[TrailStep, str] = {}
        self.steps: dict[Section, list[TrailStep]] = {section: [] for section in _THEN}
        for step in trail.told:
            self.steps[step.section].append(step)

    def write(self) -> str:
        """Return the text. If many paths begin with the same folder, that folder is abbreviated to `~`."""
        text = self._write()
        self.root = _common_root(self.chosen)
        return self._write() if self.root else text

    def _write(self) -> str:
        self.chosen.clear()
        left = self.max_tokens - self.count(_opening(self.trail.steps, self.trail.steps - 1, self.root))
        # The second round distributes the tokens that sections did not use in the first, also to assistant messages.
        for sections, share in ((_FIRST, _SHARE), (_THEN, 1.0)):
            for section in sections:
                left -= self._choose(section, left, share)
        # Token counts of parts do not add up exactly, so the steps chosen last are dropped until the text fits.
        while self.chosen:
            for with_untold in (True, False):
                text = self._text(with_untold=with_untold)
                if self.count(text) <= self.max_tokens:
                    return text
            self.chosen.popitem()
        alone = _opening(self.trail.steps, 0)
        return alone if self.count(alone) <= self.max_tokens else ""

    def _choose(self, section: Section, left: int, share: float) -> int:
        """Choose steps of a section, the newest first, and return the number of tokens that they take.

        Args:
            section: The section.
            left: Number of tokens that are left for the whole trail.
            share: Share of `left` that the section may take.
        """
        steps = self.steps[section][::-1]
        if section in _SPEECH:
            return self._choose_speech(steps, left, share)
        taken, known = 0, {step.who for step in self.chosen if step.section == section}
        for step in steps:
            if step in self.chosen:
                continue
            item = _write_call(step, self.trail.told[step], self.root)
            tokens = self.count(f", {item}") + (0 if step.who in known else self.count(f"\n- {step.who}:"))
            tokens += 0 if known else self.count(f"\n{_TITLES.get(section, '')}")
            # Stopping at the first step that does not fit keeps the listed steps free of gaps.
            if taken + tokens > share * left:
                break
            taken += tokens
            known.add(step.who)
            self.chosen[step] = item
        return taken

    def _choose_speech(self, steps: list[TrailStep], left: int, share: float) -> int:
        """Choose messages as `_choose` chooses calls, but choose the first user message before all others.

        Excerpts from the messages are short in the first round (`share` below 1), and longer in the second.
        """
        if steps and steps[0].section == "said":
            steps = [steps[-1], *steps[:-1]]
        before = sum(self.count(self._line(step)) + 1 for step in steps if step in self.chosen)
        available, taken = int(share * (left + before)), 0
        # A token has about four characters.
        length = LONGEST if share < 1 else max(LONGEST, 4 * available // max(1, len(steps)))
        for step in steps:
            self.chosen.pop(step, None)
        for step in steps:
            text = shorten(step.what, length)
            # If not even one message fits, the excerpt from the first is shortened until it does.
            while (
                (tokens := self.count(f"- {step.who}: {text}") + 1) > available and not taken and len(text) > _BEGINNING
            ):
                text = shorten(text, len(text) * 3 // 4)
            if taken + tokens > available:
                break
            taken += tokens
            self.chosen[step] = text
        return taken - before

    def _line(self, step: TrailStep) -> str:
        times = self.trail.told[step]
        who = step.who if times == 1 else f"{step.who} ×{times}"
        handle = f" [{step.handle}]" if step.handle else ""
        return f"- {who}{handle}: " + self.chosen[step].replace("\n", "\n  ")

    def _text(self, *, with_untold: bool) -> str:
        told = [step for step in self.trail.told if step in self.chosen]
        number = sum(self.trail.told[step] for step in told)
        body = [self._line(step) for step in told if step.section in _SPEECH]
        for section, title in _TITLES.items():
            by_tool: dict[str, list[str]] = {}
            for step in told:
                if step.section == section:
                    by_tool.setdefault(step.who, []).append(self.chosen[step])
            body += [title] if by_tool else []
            body += [f"- {who}: {', '.join(items)}" for who, items in by_tool.items()]
        untold = self._count_unlisted() if with_untold else ""
        body += [_UNTOLD + untold] if untold else []
        return "\n".join((_opening(self.trail.steps, number, self.root), *body))

    def _count_unlisted(self) -> str:
        """Return how many steps are not listed, by tool or author, as one line."""
        counts = Counter(self.trail.untold)
        for step, times in self.trail.told.items():
            if step not in self.chosen:
                counts[step.who] += times
        return ", ".join(f"{who} ×{times}" for who, times in counts.most_common())


def _write_call(step: TrailStep, times: int, root: str) -> str:
    """Return the text for one call: what it was about, how it ended, its handle, and how often it occurred.

    `root` is the folder that is abbreviated to `~`; an empty string means that none is.
    """
    what = re.sub(rf"(?<![\w./~-]){re.escape(root)}(?![\w.-])", "~", step.what) if root else step.what
    ended = f" → {quote(step.ended)}" if step.ended else ""
    handle = f" [{step.handle}]" if step.handle else ""
    return (what or _NO_ARGUMENTS) + ended + handle + (f" ×{times}" if times > 1 else "")


def _common_root(steps: Iterable[TrailStep]) -> str:
    """Return the folder with which many paths begin, if abbreviating it saves enough; otherwise an empty string."""
    told = [step.what for step in steps if step.section in _TITLES]
    if any("~" in what for what in told):
        return ""
    worth: Counter[str] = Counter()
    for what in told:
        for path in _PATH.findall(what):
            folders = path.split("/")
            for depth in range(3, len(folders)):
                folder = "/".join(folders[:depth])
                worth[folder] += len(folder)
    # The folder is spelled out once, so one that occurs only once saves nothing.
    best = max(worth, key=lambda folder: (worth[folder] - len(folder), folder), default="")
    return best if worth[best] > 2 * len(best) else ""


def shorten(text: str, length: int) -> str:
    """Return a text in at most `length` characters and without blank lines. If it is shortened, it ends in `…`."""
    text = _BLANK_LINES.sub("\n", text[: 4 * length].strip())
    if len(text) <= length:
        return text
    end = max(text.rfind(" ", length // 2, length), text.rfind("\n", length // 2, length))
    return text[: end if end > 0 else length - 1].rstrip() + "…"


def steps_told(record: str) -> int:
    """Return how many steps a trail lists. `record` is the text of its message, including the heading."""
    trail = read_trail(record.partition("\n")[2])
    return 0 if trail is None else sum(trail.told.values())


def read_trail(text: str) -> Trail | None:
    """Parse the text of an earlier trail in the history, so that the next trail can extend it.

    Args:
        text: The text of the message, without the heading.

    Returns:
        The trail, or None if the text is not a trail.
    """
    opening, _, rest = text.partition("\n")
    opened = _OPENED.fullmatch(opening)
    # Other text below the heading, or a trail of another version, is not parsed and remains a message.
    if opened is None:
        return None
    told: dict[TrailStep, int] = {}
    untold: Counter[str] = Counter()
    section: Section | None = None
    for line in _LINES.split(rest) if rest else ():
        if line in _SECTIONS:
            section = _SECTIONS[line]
        elif line.startswith(_UNTOLD):
            untold.update({who: int(times) for who, times in _COUNTED.findall(line.removeprefix(_UNTOLD))})
        else:
            found = _read_speech(line) if section is None else _read_calls(line, section, opened[3] or "")
            for step, times in found:
                told[step] = told.get(step, 0) + times
    return Trail(int(opened[1]), told, untold)


def _read_speech(line: str) -> Iterator[tuple[TrailStep, int]]:
    match = _SPOKEN.fullmatch(line)
    if match is not None:
        section: Section = "answered" if match["who"].startswith("assistant") else "said"
        what = match["what"].replace("\n  ", "\n")
        yield TrailStep(section, match["who"], what, handle=match["handle"]), int(match["times"] or 1)


def _read_calls(line: str, section: Section, root: str) -> Iterator[tuple[TrailStep, int]]:
    who, items = match.groups() if (match := _CALLED.fullmatch(line)) else ("", line)
    for item in _ITEMS.findall(items):
        what, ended, handle, times = match.groups() if (match := _ITEM.fullmatch(item)) else (item, "", None, None)
        what = "" if what == _NO_ARGUMENTS else what.replace("~", root) if root else what
        yield TrailStep(section, who, what, ended or "", handle), int(times or 1)


_NO_ARGUMENTS: Final = "()"
_LINES: Final = re.compile(r"\n(?!  )")
_SECTIONS: Final = {title: section for section, title in _TITLES.items()}
_BLANK_LINES: Final = re.compile(r"[^\S\n]*\n(?:[^\S\n]*\n)*")
_PATH: Final = re.compile(r"(?<![\w./~-])/[\w.@+-]+(?:/[\w.@+-]+)+")
_NAME: Final = r'(?:"[^"]*"|[^\s,"]+)'
_COUNTED: Final = re.compile(rf"({_NAME}(?: [^\s,×]+)?) ×(\d+)(?:, |$)")
_SPOKEN: Final = re.compile(
    r"- (?P<who>(?:user|assistant)(?: [^\s:×\[]+)?)(?: ×(?P<times>\d+))?(?: \[(?P<handle>[\w:.-]+)\])?: (?P<what>.*)",
    re.DOTALL,
)
_CALLED: Final = re.compile(rf"- ({_NAME}): (.*)")
_ITEMS: Final = re.compile(r'((?:"[^"]*"|[^",])+)(?:, |$)')
_ITEM: Final = re.compile(r'((?:"[^"]*"|[^"→×\[])*?)(?: → "([^"]*)")?(?: \[([\w:.-]+)\])?(?: ×(\d+))?')
