"""Which chain stabilizes a request: that of all requests in its format, or that of its session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ctxguard.adapting.recent import Recent
from ctxguard.adapting.registry import Adapter, chain_for
from ctxguard.formats.format import Format
from ctxguard.formats.responses import ResponsesAdapter
from ctxguard.pii.mask.vault import SessionVault
from ctxguard.stabilizer import Stabilizer
from ctxguard.stages import MaskPII
from ctxguard.wire.masking import WireMasking
from ctxguard.wire.sessions import Owner, Thread

_ITEMS: Final = 4_096
"""Stored items whose texts are remembered."""
_NAMED: Final = 128
"""Named sessions whose chain is kept. Its adapter holds the messages that it read last, which the next call would
otherwise read anew."""


class Chain(NamedTuple):
    """The stabilizer, adapter and vault for the requests of one format.

    Attributes:
        stabilizer: Runs the stages.
        adapter: Reads and writes the history.
        vault: Contains the placeholders; None if they follow from each request.
    """

    stabilizer: Stabilizer
    adapter: Adapter[Any]
    vault: SessionVault | None


class Chains:
    """The chains of a guard, including those of sessions, with the texts of stored responses.

    Args:
        stabilizer: All chains have its stages.
        masking: Creates the masking stages, one for each of the stabilizer.
    """

    def __init__(self, stabilizer: Stabilizer, masking: Sequence[WireMasking]) -> None:
        self._stabilizer = stabilizer
        self._masking = masking
        self._shared: dict[tuple[str, bool, bool, bool], Chain] = {}
        self._named: Recent[tuple[str, str, str, bool, bool], Chain] = Recent(_NAMED)
        self._items: Recent[tuple[str, str], Mapping[str, str]] = Recent(_ITEMS)

    def note_item(self, owner: Owner, name: str, texts: Mapping[str, str]) -> None:
        """Record which texts of a stored item were changed for the client, and their version at the provider."""
        self._items.put((owner.scope, name), texts)

    def of(self, kind: Format, owner: Owner, thread: Thread, *, is_incremental: bool, keep_thinking: bool) -> Chain:
        """Return the chain for a request: that of all requests, or that of the thread it belongs to.

        Args:
            kind: The format of the request.
            owner: The sender of the request.
            thread: Where its placeholders are stored.
            is_incremental: Whether the provider has its history.
            keep_thinking: Whether signed thinking from before a cut is kept.
        """
        settings = {"is_incremental": is_incremental, "keep_thinking": keep_thinking}
        name, vault, redacts = thread
        if vault is None:
            key = (kind.name, is_incremental, keep_thinking, redacts)
            if key not in self._shared:
                self._shared[key] = self._built(kind, thread, **settings)
            return self._shared[key]
        if name is None:
            return self._built(kind, thread, **settings)
        place = (owner.scope, name, kind.name, is_incremental, keep_thinking)
        chain = self._named.get(place)
        if chain is None or chain.vault is not vault:
            chain = self._built(kind, thread, **settings)
            self._named.put(place, chain)
        return chain

    def as_written(self, kind: Format, body: Mapping[str, object], owner: Owner) -> Mapping[str, object]:
        """Return a body with the model's texts in their original form, without restored values.

        The provider stores the items of its responses under their ids, and accepts them unchanged or not at all.
        """
        items = body.get(kind.history)
        if kind.api != "responses" or not isinstance(items, list):
            return body
        known = [
            self._items.get((owner.scope, str(item.get("id")))) if isinstance(item, dict) else None for item in items
        ]
        if not any(known):
            return body
        return {
            **body,
            kind.history: [_replaced(i, texts) if texts else i for i, texts in zip(items, known, strict=True)],
        }

    def _built(self, kind: Format, thread: Thread, *, is_incremental: bool, keep_thinking: bool) -> Chain:
        adapter: Any = kind if not is_incremental else ResponsesAdapter(incremental=True)
        masking = iter(self._masking)
        stages = tuple(
            next(masking).stage(thread.vault, redacts=thread.redacts) if isinstance(stage, MaskPII) else stage
            for stage in self._stabilizer.stages
        )
        stages = chain_for(adapter, stages, keep_thinking=keep_thinking)
        # the body is searched as a whole, once it is written
        checks = tuple(check for check in self._stabilizer.checks if check.name != "NoPII")
        return Chain(self._stabilizer.with_(stages=stages, checks=checks), adapter, thread.vault)


def _replaced(item: object, texts: Mapping[str, str]) -> object:
    """Return an item with some texts replaced."""
    if isinstance(item, str):
        return texts.get(item, item)
    if isinstance(item, list):
        return [_replaced(member, texts) for member in item]
    if isinstance(item, dict):
        return {key: _replaced(member, texts) for key, member in item.items()}
    return item
