"""The exceptions of ctxguard, all derived from `CtxguardError`.

```
CtxguardError
├── BudgetExceededError      the mandatory messages do not fit into the budget
├── HistoryError             a message history cannot be read
│   └── PairingError         tool calls and results do not pair, and repair is turned off
├── SessionFileError         a file with a recorded session cannot be read
├── ConfigError              a setting is unknown, out of range, or contradicts another one
├── CheckFailedError         the finished context failed a check, and `on_failure="raise"`
├── DetectorError            a PII detector failed or was too slow
├── VaultError               a vault entry cannot be read or written
├── StoreError               a store cannot be opened, read, or written
├── PromptError              a prompt template cannot be used
│   └── PromptNotFoundError  a template, or one that it includes, does not exist
├── SummarizerError          a summarizer or an async function cannot be called in this way
├── TokenizerError           a tokenizer is not installed, or failed
├── AdapterError             there is no adapter of that name, or it cannot handle a message
├── AuditError               the audit record of a request cannot be written or read
└── WireError                an HTTP request was not sent: it cannot be read, or is too large
```

Every error carries its data as attributes. Its message says what is wrong, where, and how to fix it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

TYPE_CHECKING = False  # as type checkers read it; `typing` takes longer to import than this module
if TYPE_CHECKING:
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
    """Return a one-line reason why a file could not be read or written, such as `no such file or directory`."""
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 text (byte {error.start})"
    mark = getattr(error, "problem_mark", None)  # YAML's errors carry their own position
    said = getattr(error, "strerror", None) or getattr(error, "problem", None) or str(error).partition("\n")[0]
    if isinstance(said, str) and isinstance(error, OSError):
        said = said.lower()
    return " ".join((said or type(error).__name__).split()) + (f", line {mark.line + 1}" if mark is not None else "")


class CtxguardError(Exception):
    """Base class of all errors that ctxguard raises deliberately. Pickling preserves their attributes."""

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[CtxguardError], args: tuple[object, ...], attributes: dict[str, object]) -> CtxguardError:
    """Restore a pickled error. Its `__init__` cannot be called, because the arguments were not pickled."""
    new = OSError.__new__ if issubclass(kind, OSError) else Exception.__new__
    error = new(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


BESIDE: Final = "tools and instructions"
"""The name, in errors and reports, of the tokens that a request contains in addition to its messages."""
FIXED_SHARE: Final = 0.4
"""The share of a budget that system prompt and tools may take without a warning. Above this share, coding agents got
shortened forms of the files that they read, as runs of 24 clients showed."""
_HARDLY_ROOM: Final = 0.9
"""If the fixed parts take more than this share of a budget, so little is left for the history that only a larger budget
helps."""
_BOUNDED: Final = "have it bounded: on_overflow='bound', or --on-overflow bound"
_REMEDIES: Final = {
    "system": "shorten the system prompt",
    "pinned": "unpin something, or send fewer or shorter tool schemas among the messages",
    "task": f"shorten the first user message, set keep_task=False, or {_BOUNDED}",
    "last user message": f"shorten the last user message, or {_BOUNDED}",
    "user": f"shorten the last user message, or {_BOUNDED}",
    "recent messages": "shorten the latest messages, or lower keep_recent (the last exchange stays in any case)",
    BESIDE: "shorten the instructions, or send fewer or shorter tool schemas",
}
"""The remedy that an error names, by the mandatory part that takes the most tokens."""


class BudgetExceededError(CtxguardError):
    """Raised when the mandatory messages need more tokens than the budget allows.

    Attributes:
        needed: Number of tokens that all mandatory parts need.
        budget: Number of available tokens, without those in `kept_free`.
        parts: Number of tokens of each mandatory part, by name, such as `system`, `task`, `pinned`,
            `last user message`, `last exchange`, `recent messages`, and `tools and instructions`. They add up to
            `needed`.
        kept_free: Number of tokens of the given budget that are reserved, by purpose: `headroom`, or `refused prompt`
            if the provider refused an earlier prompt as too long.
        fixed: Number of tokens that every request of the conversation contains: system prompt, instructions, tools,
            and pinned messages.
        is_too_small: Whether `fixed` exceeds 90% of the budget, so that shortening the history cannot help.
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
        there_is = f"the budget of {given} leaves {budget} (kept free: {_list_parts(self.kept_free)})"
        super().__init__(
            f"the mandatory messages need {needed} tokens ({_list_parts(self.parts)}) and "
            f"{there_is if self.kept_free else f'the budget is {budget}'}; "
            f"raise the budget{self._suggest_budget(given)} or {_REMEDIES.get(largest, 'shorten the largest of these')}"
        )

    def _suggest_budget(self, given: int) -> str:
        """Return a suggestion for a larger budget, for the error message; empty if the budget is not too small."""
        if not self.is_too_small:
            return ""
        # scaled by given / budget, because the headroom may be a share of the budget and then grows with it
        enough = 1_000 * ceil(self.needed * given / max(1, self.budget) / 1_000)
        named = (
            f" to {max(enough, sensible_budget(self.fixed))} or more (system prompt and tools, which every request has,"
        )
        return f"{named} take {self.fixed}; at most {FIXED_SHARE:.0%} is sensible)"


def sensible_budget(fixed: int) -> int:
    """Return the smallest budget, in full thousands of tokens, of which the fixed parts take at most 40%.

    Args:
        fixed: Number of tokens that system prompt and tools take.
    """
    return 1_000 * ceil(fixed / FIXED_SHARE / 1_000)


def _list_parts(parts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {tokens}" for name, tokens in parts.items() if tokens)


class HistoryError(CtxguardError):
    """Raised when a message history cannot be read.

    Attributes:
        position: Index of the faulty message; None if the list itself is at fault.
    """

    def __init__(self, message: str, *, position: int | None = None) -> None:
        self.position = position
        self._message = message
        super().__init__(message if position is None else f"message {position}: {message}")

    def after(self, messages: int) -> HistoryError:
        """Return the same error for a history in which `messages` further messages stand before the faulty one."""
        return self if self.position is None else HistoryError(self._message, position=self.position + messages)


class PairingError(HistoryError):
    """Raised when tool calls and tool results do not pair and repair is turned off.

    Attributes:
        findings: All faults that were found, one line each.
    """

    def __init__(self, findings: tuple[str, ...]) -> None:
        self.findings = findings
        super().__init__(
            f"{len(findings)} unpaired tool calls or results ({findings[0]}); "
            "leave repair on (RepairExchanges(on_broken='repair')) or mend the history"
        )


class SessionFileError(CtxguardError):
    """Raised when a file with a recorded session cannot be read.

    Attributes:
        path: The file as the caller named it; `-` is standard input.
        line: Line number of the error, counted from 1; None if unknown.
    """

    def __init__(self, path: str, message: str, *, line: int | None = None) -> None:
        self.path = path
        self.line = line
        super().__init__(f"{path}{'' if line is None else f':{line}'}: {message}")


class ConfigError(CtxguardError, ValueError):
    """Raised when a setting cannot be used; also a `ValueError`.

    Attributes:
        setting: Dotted name of the setting; None if the error does not concern a single setting.
    """

    def __init__(self, message: str, *, setting: str | None = None) -> None:
        self.setting = setting
        super().__init__(message)


class CheckFailedError(CtxguardError):
    """Raised when the finished context failed a check and `on_failure="raise"`.

    Attributes:
        findings: All findings of all failed checks, each as `check: message @ path`.
    """

    def __init__(self, findings: tuple[str, ...]) -> None:
        self.findings = findings
        super().__init__(f"{len(findings)} check finding{'' if len(findings) == 1 else 's'}, first: {findings[0]}")


class DetectorError(CtxguardError):
    """Raised when a detector of personal data failed or took too long. No text was passed on unmasked.

    Attributes:
        detector: Name of the detector.
    """

    def __init__(self, detector: str, message: str) -> None:
        self.detector = detector
        super().__init__(f"detector {detector}: {message}")


class VaultError(CtxguardError):
    """Raised when a vault entry cannot be read or written. The message contains no personal data."""


class StoreError(CtxguardError):
    """Raised when a store cannot be opened, read, or written."""


class PromptError(CtxguardError, ValueError):
    """Raised when a prompt template cannot be used; also a `ValueError`.

    Attributes:
        template: Name of the faulty template, followed by the line number if it is known.
        missing: Variables of the template for which the caller passed no value.
        unused: Variables that the caller passed and the template does not contain.
    """

    def __init__(
        self, template: str, message: str, *, missing: tuple[str, ...] = (), unused: tuple[str, ...] = ()
    ) -> None:
        self.template = template
        self.missing = missing
        self.unused = unused
        super().__init__(f"{template}: {message}")


class PromptNotFoundError(PromptError, FileNotFoundError):
    """Raised when a prompt template, or one that it includes, does not exist; also a `FileNotFoundError`."""


class SummarizerError(CtxguardError):
    """Raised when a summarizer or store cannot be called, for example an async one in a synchronous call."""


class TokenizerError(CtxguardError):
    """Raised when a tokenizer is not installed on this machine (nothing is ever downloaded), or failed."""


class AdapterError(CtxguardError):
    """Raised when there is no adapter of a given name, or when an adapter cannot handle its input."""


class AuditError(CtxguardError):
    """Raised when the audit record of a request cannot be read or written. If it cannot be written, nothing is sent."""


class WireError(CtxguardError):
    """Raised when the guard on HTTP requests does not send a request, because it is unreadable or too large.

    Attributes:
        status: The HTTP status code that the client receives.
    """

    def __init__(self, message: str, *, status: int = 400) -> None:
        self.status = status
        super().__init__(message)
