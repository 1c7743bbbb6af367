"""The report as data: one decision for each artifact, the results of all checks, and the token counts.

An artifact is one message, tool result, or instruction of a history (`ctxguard.Artifact`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from operator import is_not
from os import PathLike
from pathlib import Path
from typing import Final, cast

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Cut, Draft
from ctxguard.report.decisions import Decision, decisions_of, masked_artifact, saved_by


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation found by a check.

    Attributes:
        message: Description of the violation, which never contains a value that a rule would mask.
        path: Path of the violation, such as `artifacts[3].calls[0]`.
        place: The same in words: "the arguments of tool `send` in message 3 (assistant)"; empty if the path is of
            another kind.
    """

    message: str
    path: str
    place: str = ""

    def __str__(self) -> str:
        return f"{self.message}{f': {self.place}' if self.place else ''} @ {self.path}"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check, which holds if there are no findings.

    Attributes:
        name: Name of the check.
        findings: Violations that the check found.
        claim: Statement of what the check examined, shown if it holds; empty if the name of the check says enough.
    """

    name: str
    findings: tuple[Finding, ...] = ()
    claim: str = ""

    @property
    def ok(self) -> bool:
        """Whether the check holds."""
        return not self.findings


class ReportData:
    """What a stabilizer did to one history. Decisions are computed when they are first requested.

    Attributes:
        tokens_before: Number of tokens in the whole request with the original history and tools.
        tokens_after: Number of tokens in the whole request with the stabilized history.
        budget: Token budget of the request.
        kept_free: Pairs of a purpose and the number of tokens by which the budget is smaller than the one that was set.
        counter: Name of the token counter.
        accuracy: How exact the counter is, in words.
        checks: Result of each check.
        cut: The cut that this call made, or else the earlier cut at which the context still starts. None if there was
            no cut. See `ctxguard.draft.Cut`.
        details: Figures of stages that are not decisions, by stage name.
        session: Name of the conversation, if the guard of a framework knows it: LangChain's session or thread id,
            PydanticAI's conversation id, or the session header of an HTTP request.
        tool: Name of the tool whose output was bounded when the tool returned, if the report is about that output
            rather than about a model call.
    """

    def __init__(self, draft: Draft, *, cut: Cut | None, tokens_after: int, checks: tuple[CheckResult, ...]) -> None:
        self._draft = draft
        self.tokens_after = tokens_after
        self.checks = checks
        self.budget: int = draft.budget
        self.kept_free = draft.settings.kept_free
        self.counter: str = draft.counter.counter.name
        self.accuracy: str = draft.counter.counter.accuracy
        self.cut = cut
        self.details: Mapping[str, object] = draft.details
        self.session: str | None = None
        self.tool: str | None = None

    @property
    def observed(self) -> bool:
        """Whether the original was sent, and the report only states what would have been done (`mode="observe"`)."""
        return self.details.get("mode") == "observe"

    @cached_property
    def tokens_before(self) -> int:
        """Number of tokens in the whole request with the original history and tools."""
        return self._draft.overhead + self.saved_on_tools + self._draft.counter.artifacts(self._draft.history)

    @property
    def saved_on_tools(self) -> int:
        """Number of tokens saved by shortening tool descriptions."""
        tools = cast("Mapping[str, int]", self.details.get("tools", {}))
        return tools.get("tokens_before", 0) - tools.get("tokens_after", 0)

    @property
    def fixed(self) -> int:
        """Number of tokens in what every request repeats: instructions, tools, system prompt, pinned messages."""
        fixed = (each for each in self._draft.history if each.pinned or each.kind is Kind.SYSTEM)
        return self._draft.overhead + self._draft.counter.artifacts(fixed)

    @property
    def ok(self) -> bool:
        """Whether every check holds."""
        return all(check.ok for check in self.checks)

    @property
    def changed(self) -> bool:
        """Whether the result differs from the history."""
        return self.first_changed is not None

    @property
    def masks(self) -> tuple[Callable[[str], str], ...]:
        """Functions that mask a string as the masking stages did; with pseudonyms, methods of a `MaskSession`."""
        return self._draft.masking.masks

    def user_names(self, host: str) -> bool:
        """Return whether a user message mentions a host name."""
        name = re.compile(rf"(?<![\w.-]){re.escape(host)}(?![\w-]|\.\w)", re.IGNORECASE)
        said = (a.text for a in self._draft.history if a.kind is Kind.USER)
        return bool(host) and any(name.search(text) for text in said)

    @cached_property
    def masked(self) -> tuple[Artifact, ...]:
        """The history after the last masking stage, before messages were shortened or dropped."""
        changes = self._draft.changes
        last = max((n for n, change in enumerate(changes, 1) if change.action == "masked"), default=0)
        return next((change.before for change in changes[last:]), self._draft.artifacts)

    @property
    def left(self) -> list[Artifact]:
        """The artifacts that were dropped or whose text was shortened, in order. They are whole, but masked."""
        sent = {(id(artifact.root), artifact.text) for artifact in self._draft.artifacts}
        return [artifact for artifact in self.masked if (id(artifact.root), artifact.text) not in sent]

    @cached_property
    def first_changed(self) -> int | None:
        """Position of the first artifact that differs between history and result; None if all are the same."""
        if not self._draft.changes:
            return None
        history, result = self._draft.history, self._draft.artifacts
        for position, (was, now) in enumerate(zip(history, result, strict=False)):
            if was is not now:
                return position
        return None if len(history) == len(result) else min(len(history), len(result))

    @cached_property
    def unread(self) -> int:
        """Number of parts in the result that the adapter cannot read, because they are unknown or encrypted.

        Nothing in these parts is masked.
        """
        contents = (artifact.content for artifact in self._draft.artifacts)
        return sum(part.kind == "opaque" for parts in contents if not isinstance(parts, str) for part in parts)

    @property
    def cut_told(self) -> str:
        """One line on the cut, for text and HTML; empty if nothing was changed."""
        if self.cut is not None and self.cut.fresh:
            return (
                f"cut: the prompt changes from position {self.cut.position} on, {self.cut.rebilled:,} tokens re-billed"
            )
        if self.cut is not None and self.cut.rebilled:
            return (
                f"no new cut; large outputs that are no longer new were shortened from position {self.cut.position} "
                f"on, {self.cut.rebilled:,} tokens re-billed"
            )
        if not self.changed:
            return ""
        return "no new cut" + ("" if self.cut is None else "; the context still starts where the last cut put it")

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about unnecessary costs or lost content, one line each."""
        return tuple(filter(None, (warn(self.details) for warn in (_cuts_in_a_row, _bounded_people, _assumed_window))))

    @property
    def unread_told(self) -> str:
        """One line on the unread parts, for text and HTML."""
        return f"unread: parts that the adapter does not know, or that are sealed, passed on unmasked: {self.unread}"

    @cached_property
    def decisions(self) -> list[Decision]:
        """One decision for each artifact in the history, in order, followed by the artifacts that stages added."""
        return decisions_of(self._draft)

    def counts(self) -> dict[str, int]:
        """Return the number of artifacts for each action."""
        return dict(Counter(decision.action for decision in self.decisions))

    def saved_by(self) -> dict[str, int]:
        """Return the number of tokens that each action saved; what was added is negative, as `new messages`."""
        return dict(saved_by(self._draft))

    def brief(self) -> dict[str, int]:
        """Return the figures that are cheap even for a long history, because they need no decisions.

        `masked` is the number of artifacts in which something was masked, `dropped` is the number of history artifacts
        that are not sent, and `cut` is 1 if this call made a cut.
        """
        masked = (change for change in self._draft.changes if change.action == "masked")
        own = set(map(id, self._draft.history))
        return {
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "masked": sum(sum(map(is_not, change.before, change.after)) for change in masked),
            "dropped": len(own) - sum(id(artifact.root) in own for artifact in self._draft.artifacts),
            "cut": int(self.cut is not None and self.cut.fresh),
        }

    def tokens_by_kind(self) -> dict[str, tuple[int, int]]:
        """Return the number of tokens in each kind of artifact, before and after stabilizing."""
        count, tokens = self._draft.counter.artifact, dict[str, tuple[int, int]]()
        for place, artifacts in enumerate((self._draft.history, self._draft.artifacts)):
            for artifact in artifacts:
                before, after = tokens.get(artifact.kind.value, (0, 0))
                cost = count(artifact)
                tokens[artifact.kind.value] = (before, after + cost) if place else (before + cost, after)
        return tokens

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON values, which contain no text of any artifact."""
        return {
            **({} if self.session is None else {"session": self.session}),
            **({} if self.tool is None else {"tool": self.tool}),
            "ok": self.ok,
            "budget": self.budget,
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "counter": self.counter,
            "accuracy": self.accuracy,
            "first_changed": self.first_changed,
            "unread": self.unread,
            "cut": None if self.cut is None else asdict(self.cut),
            "warnings": list(self.warnings),
            "actions": self.counts(),
            "checks": [
                {
                    "name": c.name,
                    "ok": c.ok,
                    **({"claim": c.claim} if c.claim else {}),
                    "findings": list(map(asdict, c.findings)),
                }
                for c in self.checks
            ],
            "decisions": [decision.to_dict() for decision in self.decisions],
            "details": dict(self.details),
        }

    def to_json(self, file: str | PathLike[str] | None = None, *, indent: int | None = None) -> str:
        """Return the report of `to_dict` as a JSON string.

        Args:
            file: File to write the string to as well, in UTF-8; None writes none.
            indent: Number of spaces per level; None writes one line.

        Raises:
            OSError: If the file cannot be written.
        """
        text = json.dumps(self.to_dict(), ensure_ascii=False, indent=indent, default=str)
        if file is not None:
            Path(file).write_text(text, encoding="utf-8")
        return text

    def original(self, position: int, *, masked: bool = True) -> Artifact:
        """Return an artifact of the history in its original form.

        Args:
            position: Position in the history.
            masked: Whether to mask what the chain's masking stages mask.
        """
        artifact = self._draft.history[position]
        return masked_artifact(self._draft, artifact) if masked else artifact


_IN_A_ROW: Final = 3
"""Number of calls with a cut, among the latest four, from which on the report warns."""


def _cuts_in_a_row(details: Mapping[str, object]) -> str:
    latest = details.get("latest_cuts")
    if not isinstance(latest, Mapping) or latest["cut"] < _IN_A_ROW:
        return ""
    return (
        f"{latest['cut']} of the latest {latest['calls']} calls were cut, so prompt caches serve little; raise the "
        "budget, or bound tool outputs to a smaller share (output_share)"
    )


def _assumed_window(details: Mapping[str, object]) -> str:
    """Return a warning if a budget is a share of the model's window, but the window is unknown; otherwise empty."""
    window = details.get("window")
    if not isinstance(window, Mapping) or window["resolved"]:
        return ""
    return f"the model's window is not known, {window['tokens']:,} tokens are assumed; name it: window=…, or --window N"


def _bounded_people(details: Mapping[str, object]) -> str:
    """Return a warning if messages written by people are sent shortened; otherwise an empty string."""
    bounded = details.get("bounded_messages")
    if not isinstance(bounded, Sequence) or not bounded:
        return ""
    each = ", ".join(
        f"message {b['position']}: {b['tokens_after']:,} of {b['tokens_before']:,} tokens" for b in bounded
    )
    return f"what a person said is sent in part, since it did not fit (on_overflow='bound'): {each}"
