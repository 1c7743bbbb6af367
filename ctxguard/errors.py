"""Everything that can go wrong, as one tree.

```
CtxguardError
├── BudgetExceededError      the mandatory messages do not fit into the budget
├── HistoryError             the history cannot be read: what is wrong, and where
│   └── PairingError         calls and results do not pair, and repair was turned off
├── SessionFileError         a session file cannot be read: which file, which line
├── ConfigError              a setting is unknown, out of range or contradicts another
├── CheckFailedError         the finished context failed a check and `on_failure="raise"`
├── DetectorError            a PII detector failed or was too slow
├── VaultError               a vault entry cannot be opened: wrong key, corrupt record
├── StoreError               the store cannot be opened, read or written
├── PromptError              a prompt template cannot be used: which file, and why
│   └── PromptNotFoundError  the template, or one that it includes, is not there
├── SummarizerError          a summarizer cannot be used as given (async in a sync call)
├── TokenizerError           the named tokenizer is not available without the network
├── AdapterError             no adapter of that name, or a message an adapter cannot take
├── AuditError               the record of a request cannot be written, so it was not sent
└── WireError                an HTTP request cannot be read, or is too large; not sent
```

Every error carries its data as attributes; its message says what is wrong, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Final

__all__ = [
    "AdapterError",
    "AuditError",
    "BudgetExceededError",
    "CheckFailedError",
    "ConfigError",
    "CtxguardError",
    "DetectorError",
    "HistoryError",
    "PairingError",
    "PromptError",
    "PromptNotFoundError",
    "SessionFileError",
    "StoreError",
    "SummarizerError",
    "TokenizerError",
    "VaultError",
    "WireError",
]


def reason_of(error: Exception) -> str:
    """Return in plain words why something could not be read or written, on one line: `no such file or directory`."""
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 text (byte {error.start})"
    mark = getattr(error, "problem_mark", None)  # YAML's errors carry their own position
    said = getattr(error, "strerror", None) or getattr(error, "problem", None) or str(error).partition("\n")[0]
    if isinstance(said, str) and isinstance(error, OSError):
        said = said.lower()
    return " ".join((said or type(error).__name__).split()) + (f", line {mark.line + 1}" if mark is not None else "")


class CtxguardError(Exception):
    """Root of every error that ctxguard raises on purpose. Each survives pickling with all its attributes."""

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[CtxguardError], args: tuple[object, ...], attributes: dict[str, object]) -> CtxguardError:
    """Restore a pickled error without calling `__init__`, whose arguments are not stored."""
    new = OSError.__new__ if issubclass(kind, OSError) else Exception.__new__
    error = new(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


BESIDE: Final = "tools and instructions"
FIXED_SHARE: Final = 0.4
"""Share of a budget that system prompt and tools may take before a warning: coding agents whose fixed parts took more
saw the files that they read shortened, in runs of 24 clients."""
_HARDLY_ROOM: Final = 0.9
"""What errors call the tokens that are sent beside the messages."""
_BOUNDED: Final = "have it bounded: on_overflow='bound', or --on-overflow bound"
_REMEDIES: Final = {
    "system": "shorten the system prompt",
    "pinned": "unpin something, or send fewer or shorter tool schemas among the messages",
    "task": f"shorten the first user message, set keep_task=False, or {_BOUNDED}",
    "last user message": f"shorten the last user message, or {_BOUNDED}",
    "user": f"shorten the last user message, or {_BOUNDED}",
    "recent messages": "shorten the latest messages, or lower keep_recent",
    BESIDE: "shorten the instructions, or send fewer or shorter tool schemas",
}
"""The remedy, by the largest component of the budget."""


class BudgetExceededError(CtxguardError):
    """Signal that the mandatory messages need more tokens than the budget has.

    Attributes:
        needed: tokens of all mandatory parts together.
        budget: available tokens, without those kept free.
        parts: tokens of each part by name, such as `system`, `task`, `pinned`, `last user message`, `last exchange`,
            `recent messages`, and `tools and instructions`; they add up to `needed`.
        kept_free: tokens of the given budget that are kept free, by purpose: `headroom`, or a `refused prompt` if the
            provider had refused one as too long.
        fixed: tokens that every request of the conversation has: system prompt, instructions, tools, what is pinned.
        is_too_small: whether these alone take more than nine tenths of the budget, so that no shorter history helps.
    """

    def __init__(
        self, needed: int, budget: int, parts: Mapping[str, int], *, kept_free: Mapping[str, int] | None = None
    ) -> None:
        self.needed = needed
        self.budget = budget
        self.parts = dict(parts)
        self.kept_free = {name: tokens for name, tokens in (kept_free or {}).items() if tokens}
        self.fixed = sum(self.parts.get(name, 0) for name in (BESIDE, "system", "pinned"))
        self.is_too_small = self.fixed > _HARDLY_ROOM * budget
        largest = max(self.parts, key=lambda name: self.parts[name], default="")
        given = budget + sum(self.kept_free.values())
        there_is = f"the budget of {given} leaves {budget} (kept free: {_listed(self.kept_free)})"
        super().__init__(
            f"what must stay needs {needed} tokens ({_listed(self.parts)}) and "
            f"{there_is if self.kept_free else f'the budget is {budget}'}; "
            f"raise the budget{self._sensible(given)} or {_REMEDIES.get(largest, 'shorten the largest of these')}"
        )

    def _sensible(self, given: int) -> str:
        """Return a budget that this request fits into, in which its fixed parts leave a history its share."""
        if not self.is_too_small:
            return ""
        enough = 1_000 * ceil(self.needed * given / max(1, self.budget) / 1_000)  # what is kept free may be a share
        named = (
            f" to {max(enough, sensible_budget(self.fixed))} or more (system prompt and tools, which every request has,"
        )
        return f"{named} take {self.fixed}; at most {FIXED_SHARE:.0%} is sensible)"


def sensible_budget(fixed: int) -> int:
    """Return the smallest sensible budget in full thousands, given the tokens of the system prompt and tools."""
    return 1_000 * ceil(fixed / FIXED_SHARE / 1_000)


def _listed(parts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {tokens}" for name, tokens in parts.items() if tokens)


class HistoryError(CtxguardError):
    """Signal that a history cannot be read.

    Attributes:
        position: index of the faulty message in the given list, or None for the list itself.
    """

    def __init__(self, message: str, *, position: int | None = None) -> None:
        self.position = position
        super().__init__(message if position is None else f"message {position}: {message}")


class PairingError(HistoryError):
    """Signal that tool calls and tool results do not pair while repair is turned off.

    Attributes:
        findings: every fault found, one line each.
    """

    def __init__(self, findings: tuple[str, ...]) -> None:
        self.findings = findings
        super().__init__(
            f"{len(findings)} unpaired tool calls or results ({findings[0]}); "
            "leave repair on (RepairExchanges(on_broken='repair')) or mend the history"
        )


class SessionFileError(CtxguardError):
    """Signal that a file holds no session that can be read.

    Attributes:
        path: the file as the caller named it, `-` for standard input.
        line: line of the error, counted from 1, or None.
    """

    def __init__(self, path: str, message: str, *, line: int | None = None) -> None:
        self.path = path
        self.line = line
        super().__init__(f"{path}{'' if line is None else f':{line}'}: {message}")


class ConfigError(CtxguardError, ValueError):
    """Signal that a setting cannot be used. It is also a `ValueError`.

    Attributes:
        setting: dotted name of the setting, or None if more than one is wrong.
    """

    def __init__(self, message: str, *, setting: str | None = None) -> None:
        self.setting = setting
        super().__init__(message)


class CheckFailedError(CtxguardError):
    """Signal that the finished context failed a check, with `on_failure="raise"`.

    Attributes:
        findings: every finding of every failed check, `check: message @ path`.
    """

    def __init__(self, findings: tuple[str, ...]) -> None:
        self.findings = findings
        super().__init__(f"{len(findings)} check finding{'' if len(findings) == 1 else 's'}, first: {findings[0]}")


class DetectorError(CtxguardError):
    """Signal that a PII detector failed or took too long; no text passed unmasked.

    Attributes:
        detector: its name.
    """

    def __init__(self, detector: str, message: str) -> None:
        self.detector = detector
        super().__init__(f"detector {detector}: {message}")


class VaultError(CtxguardError):
    """Signal that a vault entry cannot be opened or written; the message contains no value."""


class StoreError(CtxguardError):
    """Signal that a store cannot be opened, read or written."""


class PromptError(CtxguardError, ValueError):
    """Signal that a prompt template cannot be used. It is also a `ValueError`.

    Attributes:
        template: the faulty file.
        missing: variables of the template that were not given.
        unused: given variables that the template does not have.
    """

    def __init__(
        self, template: str, message: str, *, missing: tuple[str, ...] = (), unused: tuple[str, ...] = ()
    ) -> None:
        self.template = template
        self.missing = missing
        self.unused = unused
        super().__init__(f"{template}: {message}")


class PromptNotFoundError(PromptError, FileNotFoundError):
    """Signal that a prompt template, or one that it includes, does not exist. It is also a `FileNotFoundError`."""


class SummarizerError(CtxguardError):
    """Signal that a summarizer cannot be used as given (an async one in a synchronous call)."""


class TokenizerError(CtxguardError):
    """Signal that a named tokenizer is not available on this machine without the network."""


class AdapterError(CtxguardError):
    """Signal that there is no such adapter, or that it cannot handle its input."""


class AuditError(CtxguardError):
    """Signal that the record of a request cannot be written, so that it was not sent, or cannot be read."""


class WireError(CtxguardError):
    """Signal that the guard on the wire did not send a request, because it cannot read it or it is too large.

    Attributes:
        status: the HTTP status that the client receives.
    """

    def __init__(self, message: str, *, status: int = 400) -> None:
        self.status = status
        super().__init__(message)
