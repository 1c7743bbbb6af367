"""The chain of a stabilizer as a value: its stages in three parts, and what others need to know of them.

Nobody else looks for a stage of a certain class. A stage says what it is by attributes that any stage may have:

* `part = "fit"`, if it decides which artifacts stay. The stages before it prepare each artifact when it arrives, and
  those after it write the context.
* `masker` and `with_masker(masker)`, if it masks.
* `recall`, if it is the window.
* `store` (None if there is none), if it saves full texts there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING, Any, cast

from ctxguard.draft.draft import Stage

if TYPE_CHECKING:
    from ctxguard.pii import Detector, Masker
    from ctxguard.stores import Store


class Chain(tuple[Stage, ...]):
    """The stages of a stabilizer, in order. Immutable: methods return a changed chain."""

    __slots__ = ()

    @property
    def arrive(self) -> Chain:
        """The stages that repair, mask, and bound each artifact when it arrives."""
        return Chain(takewhile(_does_not_fit, self))

    @property
    def fit(self) -> Chain:
        """The stages that decide which artifacts stay."""
        return Chain(stage for stage in self if not _does_not_fit(stage))

    @property
    def compose(self) -> Chain:
        """The stages that write what the fit decided, and put it in order; empty if no stage decides anything."""
        behind = Chain(dropwhile(_does_not_fit, self))
        return Chain(stage for stage in behind if _does_not_fit(stage))

    @property
    def maskers(self) -> list[Masker]:
        """The maskers of the masking stages, in order; empty if the chain masks nothing."""
        return [stage.masker for stage in self._masking()]

    @property
    def detectors(self) -> list[Detector]:
        """The detectors of the masking stages."""
        return [detector for masker in self.maskers for detector in masker.detectors]

    @property
    def stores(self) -> list[Store]:
        """The stores in which stages save full texts."""
        return [store for stage in self if (store := getattr(stage, "store", None)) is not None]

    @property
    def window(self) -> Stage | None:
        """The stage that keeps a stable window and may recall what was evicted; None if other stages decide."""
        return next((stage for stage in self.fit if hasattr(stage, "recall")), None)

    def masking(self) -> Chain:
        """Return the masking stages alone."""
        return Chain(self._masking())

    def up_to_masking(self) -> Chain:
        """Return the chain up to its last masking stage; an empty one if there is none."""
        last = max((n for n, stage in enumerate(self, 1) if _masks(stage)), default=0)
        return Chain(self[:last])

    def from_masking(self) -> Chain:
        """Return the chain from its first masking stage on; an empty one if there is none."""
        return Chain(dropwhile(lambda stage: not _masks(stage), self))

    def with_maskers(self, change: Callable[[Masker], Masker]) -> Chain:
        """Return the chain with other maskers; the chain itself if `change` returns the same ones.

        Args:
            change: Called with each masker, in order.
        """
        changed = [_with_masker(stage, change) for stage in self]
        return self if all(map(_is_same, changed, self)) else Chain(changed)

    def with_store(self, store: Store) -> Chain:
        """Return the chain in which the stages that could save full texts, and have no store, save them in this one."""
        return Chain(_with_store(stage, store) for stage in self)

    def with_missing(self, *stages: Stage) -> Chain:
        """Return the chain with further stages at its end, without those of which it has one of the same kind."""
        return Chain((*self, *(stage for stage in stages if not any(isinstance(one, type(stage)) for one in self))))

    def with_replaced(self, stage: Stage) -> Chain:
        """Return the chain with a stage in place of those of the same kind."""
        return Chain(stage if isinstance(one, type(stage)) else one for one in self)

    def _masking(self) -> Iterator[Any]:
        return (stage for stage in self if _masks(stage))


def _does_not_fit(stage: Stage) -> bool:
    return getattr(stage, "part", "") != "fit"


def _masks(stage: Stage) -> bool:
    return getattr(stage, "with_masker", None) is not None


def _with_masker(stage: Any, change: Callable[[Masker], Masker]) -> Stage:  # noqa: ANN401 - has what `_masks` asks for
    if not _masks(stage) or (masker := change(stage.masker)) is stage.masker:
        return cast("Stage", stage)
    return cast("Stage", stage.with_masker(masker))


def _with_store(stage: Any, store: Store) -> Stage:  # noqa: ANN401 - any stage may have a store
    if getattr(stage, "store", store) is None:
        stage = copy(stage)
        stage.store = store
    return cast("Stage", stage)


def _is_same(one: object, other: object) -> bool:
    return one is other
