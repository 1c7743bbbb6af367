"""Which chain stabilizes a request: the one of all requests of its format, or that of the session it belongs to."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ctxguard.adapting.protocol import Adapter, chain_for
from ctxguard.adapting.recent import Recent
from ctxguard.adapting.registry import find_adapter
from ctxguard.pii import MaskSession, Vault
from ctxguard.pii.mask.vault import SessionVault
from ctxguard.stabilizer import Stabilizer
from ctxguard.stages import MaskPII
from ctxguard.wire.formats import Format
from ctxguard.wire.masking import WireMasking
from ctxguard.wire.sessions import MemoryVault

_VAULTS: Final = 4_096
"""Named sessions, and answers that the provider stores, whose placeholders are remembered."""
_NAMED: Final = 128
"""Named sessions whose chain is kept. Its adapter holds the messages that it read last, which the next call would
otherwise read anew."""


class Chain(NamedTuple):
    """Hold what stabilizes the requests of one format, and reads them."""

    stabilizer: Stabilizer
    adapter: Adapter[Any]


class Owner(NamedTuple):
    """Say whose a request is.

    Attributes:
        scope: Stands for the API key.
        session: The session that the client named; None where it named none.
    """

    scope: str
    session: str | None


class Chains:
    """Make the chains of a guard, and remember those of sessions, with what stored answers hold.

    Args:
        stabilizer: Its stages are those of every chain.
        masking: Makes the masking stages, one for each of the stabilizer.
        vault: Where the placeholders of named sessions live; None means in this process.
        keep_thinking: Keep signed thinking from before a cut.
    """

    def __init__(
        self, stabilizer: Stabilizer, masking: Sequence[WireMasking], *, vault: Vault | None, keep_thinking: bool
    ) -> None:
        self._stabilizer = stabilizer
        self._masking = masking
        self._vault = vault
        self._keep_thinking = keep_thinking
        self._chains: dict[tuple[str, bool, bool], Chain] = {}
        self._vaults: Recent[tuple[str, str], SessionVault] = Recent(_VAULTS)
        self._named: Recent[tuple[str, str, str, bool], Chain] = Recent(_NAMED)
        self._answers: Recent[tuple[str, str], SessionVault] = Recent(_VAULTS)
        self._items: Recent[tuple[str, str], Mapping[str, str]] = Recent(_VAULTS)

    def note_answer(self, owner: Owner, name: str, session: MaskSession) -> None:
        """Remember what the placeholders of a stored answer stand for."""
        self._answers.put((owner.scope, name), MemoryVault.of(session.pseudonyms))

    def note_item(self, owner: Owner, name: str, texts: Mapping[str, str]) -> None:
        """Remember which texts of a stored item the client got changed, and what the provider holds."""
        self._items.put((owner.scope, name), texts)

    def of(self, kind: Format, body: Mapping[str, object], owner: Owner) -> Chain:
        """Return the chain for a request: the one of all requests, or that of the session it belongs to."""
        previous, conversation = body.get("previous_response_id"), body.get("conversation")
        is_incremental = kind.api == "responses" and bool(previous or conversation)
        scope, name = owner
        if name is None and is_incremental and conversation:
            held = conversation.get("id") if isinstance(conversation, dict) else conversation
            name = f"conversation {held}"
        if name is not None:
            vault = self._vaults.get_or_put((scope, name), lambda: self._named_vault(scope, name))
            return self._named.get_or_put(
                (scope, name, kind.adapter, is_incremental),
                lambda: self._built(kind, vault, is_incremental=is_incremental),
            )
        if not is_incremental:
            return self._shared(kind, is_incremental=False, redacts=False)
        known = self._answers.get((scope, str(previous)))
        if known is None:  # what its placeholders stand for is not known here, and none may be given twice
            return self._shared(kind, is_incremental=True, redacts=True)
        return self._built(kind, MemoryVault.of(known), is_incremental=True)

    def as_written(self, kind: Format, body: Mapping[str, object], owner: Owner) -> Mapping[str, object]:
        """Return a body in which what the model wrote stands as it wrote it.

        The provider holds the items of its answers under their ids, and takes them back as they are or not at all.
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

    def _shared(self, kind: Format, *, is_incremental: bool, redacts: bool) -> Chain:
        key = (kind.adapter, is_incremental, redacts)
        if key not in self._chains:
            self._chains[key] = self._built(kind, None, is_incremental=is_incremental, redacts=redacts)
        return self._chains[key]

    def _named_vault(self, scope: str, name: str) -> SessionVault:
        return MemoryVault() if self._vault is None else self._vault.session(f"{scope} {name}")

    def _built(
        self, kind: Format, vault: SessionVault | None, *, is_incremental: bool = False, redacts: bool = False
    ) -> Chain:
        adapter: Any = find_adapter(kind.adapter)
        if is_incremental:
            adapter.incremental = True
        masking = iter(self._masking)
        stages = tuple(
            next(masking).stage(vault, redacts=redacts) if isinstance(stage, MaskPII) else stage
            for stage in self._stabilizer.stages
        )
        chain = copy.copy(self._stabilizer)
        chain.stages = chain_for(adapter, stages, keep_thinking=self._keep_thinking)
        # the body is searched as a whole, once it is written
        chain.checks = tuple(check for check in chain.checks if check.name != "NoPII")
        return Chain(chain, adapter)


def _replaced(item: object, texts: Mapping[str, str]) -> object:
    """Return an item with texts in place of others."""
    if isinstance(item, str):
        return texts.get(item, item)
    if isinstance(item, list):
        return [_replaced(member, texts) for member in item]
    if isinstance(item, dict):
        return {key: _replaced(member, texts) for key, member in item.items()}
    return item
