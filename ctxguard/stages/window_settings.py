"""The settings of a window: default, range and meaning of each, defined once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Final, Literal, TypedDict, get_args

from ctxguard.errors import ConfigError
from ctxguard.settings import one_of
from ctxguard.stages.file_tools import FileRole

OnOverflow = Literal["raise", "bound"]
_TARGET: Final = 0.7  # chosen on recordings, see docs/decisions/0012_window.md
SMALL: Final = 500
"""Available tokens up to which a cut only enforces the budget: in so small a window nearly every step cuts in any case,
and the system prompt is most of the bill."""


class WindowOptions(TypedDict, total=False):
    """Type the fields of `WindowSettings` as keywords, so that type checkers and editors know them."""

    target: float | None
    trail: float
    output_share: float
    on_overflow: OnOverflow
    file_tools: Mapping[str, FileRole] | None


@dataclass(frozen=True)
class WindowSettings:
    """The settings of a window. Shares refer to the budget minus system prompt, task, and pins.

    `Stabilizer`, `StableWindow`, the policies and the section `stabilizer` of the configuration take them by name. The
    defaults were chosen on recordings by two judges, see `docs/decisions/0012_window.md`.

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
    file_tools: Mapping[str, FileRole] | None = None

    def __post_init__(self) -> None:
        if self.target is not None:
            _require_share("target", "above 0 and at most 1", self.target, lambda share: 0 < share <= 1)
        _require_share("trail", "from 0 to below 1", self.trail, lambda share: 0 <= share < 1)
        _require_share("output_share", "above 0 and at most 1", self.output_share, lambda share: 0 < share <= 1)
        one_of(self.on_overflow, OnOverflow, "on_overflow")
        own = self.file_tools or {}
        if not isinstance(own, Mapping) or any(role not in get_args(FileRole) for role in own.values()):
            raise ConfigError(f"file_tools is a dict of 'read' or 'edit' by tool, not {own!r}", setting="file_tools")

    def kept_of(self, room: int) -> int:
        """Return the tokens to which a cut shrinks a window with so many available."""
        return int(self.target * room) if self.target is not None else max(int(_TARGET * room), min(room, SMALL))


WINDOW_SETTINGS: Final = tuple(each.name for each in fields(WindowSettings))
"""The names of the settings of a window."""


def _require_share(setting: str, said: str, value: object, holds: Callable[[float], bool]) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not holds(value):
        raise ConfigError(f"{setting} is a share {said}, not {value!r}", setting=setting)
