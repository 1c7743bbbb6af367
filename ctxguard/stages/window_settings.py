"""The settings of a window: default, range and meaning of each, defined once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypedDict

from ctxguard.errors import ConfigError
from ctxguard.stages.file_tools import FileRole

OnOverflow = Literal["raise", "bound"]
_TARGET: Final = 0.7  # chosen on recordings, see docs/decisions/0012_window.md
SMALL: Final = 500
"""Available tokens up to which a cut only enforces the budget: in so small a window nearly every step cuts in any case,
and the system prompt is most of the bill."""


class WindowOptions(TypedDict, total=False):
    """Name the settings of a window for type checkers; `WindowSettings` documents them."""

    target: float | None
    trail: float | None
    output_share: float | None
    on_overflow: OnOverflow
    file_tools: Mapping[str, FileRole]


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """The settings of a window. Shares refer to the budget minus system prompt, task, and pins.

    The defaults were chosen on recordings by two judges, see `docs/decisions/0012_window.md`.

    Attributes:
        target: share of the available tokens to which a cut shrinks the context, above 0 and at most 1. The lower, the
            rarer the cuts. None means 0.7, or all of them if at most 500 are available.
        trail: share of the tokens after a cut that the trail of evicted steps may take, from 0 (no trail) to below 1.
        output_share: share that an output may take once the model has seen it; those of one exchange may take twice as
            much together. Larger ones are then replaced by a bounded view, smaller ones stay whole until a cut.
        on_overflow: what happens if the mandatory messages do not fit after outputs, arguments and older texts were
            squeezed: `raise`, or `bound` the last user message and the task, too.
        file_tools: your own tools that read or edit files, by name: `read` or `edit`. An argument such as `path` names
            the file; the tools of common agents are known, see `ctxguard.stages.file_tools`. A cut first evicts reads
            of files that were read again or edited since.

    Raises:
        ConfigError: a setting is out of range.
    """

    target: float | None = None
    trail: float = 0.1
    output_share: float = 0.1
    on_overflow: OnOverflow = "raise"
    file_tools: Mapping[str, FileRole] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.target is not None and (not _is_number(self.target) or not 0 < self.target <= 1):
            raise _out_of_range("target", "above 0 and at most 1", self.target)
        if not _is_number(self.trail) or not 0 <= self.trail < 1:
            raise _out_of_range("trail", "from 0 to below 1", self.trail)
        if not _is_number(self.output_share) or not 0 < self.output_share <= 1:
            raise _out_of_range("output_share", "above 0 and at most 1", self.output_share)
        if self.on_overflow not in ("raise", "bound"):
            raise ConfigError(f"on_overflow is 'raise' or 'bound', not {self.on_overflow!r}", setting="on_overflow")
        own = self.file_tools
        if not isinstance(own, Mapping) or any(role not in ("read", "edit") for role in own.values()):
            raise ConfigError(f"file_tools is a dict of 'read' or 'edit' by tool, not {own!r}", setting="file_tools")

    def kept_of(self, room: int) -> int:
        """Return the tokens to which a cut shrinks a window with so many available."""
        return int(self.target * room) if self.target is not None else max(int(_TARGET * room), min(room, SMALL))


def window_settings(options: WindowOptions) -> WindowSettings:
    """Return the settings of a window; settings that are missing or None get their default."""
    return WindowSettings(**{name: value for name, value in options.items() if value is not None})  # type: ignore[arg-type]  # names and types of `WindowOptions`


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _out_of_range(setting: str, said: str, value: object) -> ConfigError:
    return ConfigError(f"{setting} is a share {said}, not {value!r}", setting=setting)
