"""Choose the stabilizer and the adapter for a request: shared by all requests in a format, or specific to a session."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ctxguard.adapting.recent import Recent
from ctxguard.adapting.registry import Adapter, chain_for
from ctxguard.formats.format import Format
from ctxguard.formats.responses import ResponsesAdapter
from ctxguard.pii.mask.pseudonyms import MemoryPseudonyms, Original, Pseudonyms
from ctxguard.pii.mask.unmask import values_in
from ctxguard.pii.mask.vault import SessionVault
from ctxguard.stabilizer import Stabilizer
from ctxguard.wire.checking import WireMasking
from ctxguard.wire.sessions import MemoryVault, Owner, Thread

_ITEMS: Final = 4_096
"""Maximum number of stored response items whose texts are remembered."""
_NAMED: Final = 128
"""Maximum number of named sessions with a cached chain.

The adapter of a chain caches the messages of its session. Without the chain, the messages have to be read again.
"""


@dataclass(frozen=True, slots=True)
class _Item:
    """A response item that the client got in a changed version.

    Attributes:
        numbering: The numbering of its placeholders, see `sessions.numberings_of`.
        texts: A mapping from the client's version of each text to the provider's version.
        values: The values of the placeholders in these texts.
    """

    numbering: bytes
    texts: Mapping[str, str]
    values: Mapping[str, Original]


class ForThread(NamedTuple):
    """The stabilizer, adapter, and vault for the requests in one format.

    Attributes:
        stabilizer: Runs the stages.
        adapter: Reads and writes the history.
        vault: Contains the placeholders. None if they are derived from each request alone.
    """

    stabilizer: Stabilizer
    adapter: Adapter[Any]
    vault: SessionVault | None


class Chains:
    """The chains of a guard, including those of sessions, and the texts of responses stored at the provider.

    Args:
        stabilizer: The stabilizer whose stages all chains have.
        masking: One object for each masking stage of the stabilizer. The object creates the stage that is used instead.
    """

    def __init__(self, stabilizer: Stabilizer, masking: Sequence[WireMasking]) -> None:
        self._stabilizer = stabilizer
        self._masking = masking
        self._shared: dict[tuple[str, bool, bool, bool], ForThread] = {}
        self._named: Recent[tuple[str, str, str, bool, bool], ForThread] = Recent(_NAMED)
        self._items: Recent[tuple[str, str], _Item] = Recent(_ITEMS)

    def note_item(
        self, owner: Owner, numbering: bytes, pseudonyms: Pseudonyms, name: str, texts: Mapping[str, str]
    ) -> None:
        """Remember the texts of a response item that the provider stores and that the client got in a changed version.

        Args:
            owner: The sender of the request.
            numbering: The numbering of the placeholders in the texts, see `sessions.numberings_of`.
            pseudonyms: The placeholders and their values.
            name: The id of the item.
            texts: A mapping from the client's version of each text to the provider's version.
        """
        values = {name: value for text in texts.values() for name, value in values_in(text, pseudonyms).items()}
        self._items.put((owner.scope, name), _Item(numbering, texts, values))

    def of(self, kind: Format, owner: Owner, thread: Thread, *, is_incremental: bool, keep_thinking: bool) -> ForThread:
        """Return the chain for a request: the shared one, or the one for the thread that the request belongs to.

        Args:
            kind: The format of the request.
            owner: The sender of the request.
            thread: Where the placeholders of the request are stored.
            is_incremental: Whether the history is stored at the provider, and the request contains only new messages.
            keep_thinking: Whether to keep signed thinking that was produced before a cut.
        """
        settings = {"is_incremental": is_incremental, "keep_thinking": keep_thinking}
        name, vault, redacts = thread
        if vault is None:
            key = (kind.name, is_incremental, keep_thinking, redacts)
            if key not in self._shared:
                self._shared[key] = self._build(kind, thread, **settings)
            return self._shared[key]
        if name is None:
            return self._build(kind, thread, **settings)
        place = (owner.scope, name, kind.name, is_incremental, keep_thinking)
        chain = self._named.get(place)
        if chain is None or chain.vault is not vault:
            chain = self._build(kind, thread, **settings)
            self._named.put(place, chain)
        return chain

    def as_written(
        self, kind: Format, body: Mapping[str, object], owner: Owner, thread: Thread, numberings: Collection[bytes]
    ) -> tuple[Mapping[str, object], Thread]:
        """Return a body in which the texts that the model wrote have placeholders again instead of restored values.

        The provider stores the items of its responses by id, and accepts them only unchanged. If values of this body
        would be numbered otherwise than when an item was written, the body takes over the numbers of the item. An item
        whose placeholders already mean something else is masked anew, like any text.

        Args:
            kind: The format of the request.
            body: The body.
            owner: The sender of the request.
            thread: Where the placeholders of the request are stored.
            numberings: The numberings of the body, see `sessions.numberings_of`.

        Returns:
            The body, and the thread to use for it.
        """
        items = body.get(kind.history)
        if kind.api != "responses" or not isinstance(items, list):
            return body, thread
        noted = [
            self._items.get((owner.scope, str(item.get("id")))) if isinstance(item, dict) else None for item in items
        ]
        if not any(noted):
            return body, thread
        if (
            thread.vault is None
            and not thread.redacts
            and any(one and one.numbering not in numberings for one in noted)
        ):
            names = MemoryPseudonyms()
            kept = [one if one is not None and names.adopt(one.values) else None for one in noted]
            thread = Thread(vault=MemoryVault(names))
        else:
            kept = [one if one is not None and _means_the_same(one.values, thread.vault) else None for one in noted]
        history = [
            item if one is None else _replace_texts(item, one.texts) for item, one in zip(items, kept, strict=True)
        ]
        return {**body, kind.history: history}, thread

    def _build(self, kind: Format, thread: Thread, *, is_incremental: bool, keep_thinking: bool) -> ForThread:
        adapter: Any = kind if not is_incremental else ResponsesAdapter(incremental=True)
        masking = iter(self._masking)
        stages = self._stabilizer.stages.with_maskers(
            lambda _masker: next(masking).masker(thread.vault, redacts=thread.redacts)
        )
        stages = chain_for(adapter, stages, keep_thinking=keep_thinking)
        # the final body is searched as a whole, see `BodyCheck`
        checks = tuple(check for check in self._stabilizer.checks if check.name != "NoPII")
        return ForThread(self._stabilizer.with_(stages=stages, checks=checks), adapter, thread.vault)


def _means_the_same(values: Mapping[str, Original], vault: SessionVault | None) -> bool:
    """Return whether placeholders have these values in a vault, if there is one."""
    return vault is None or all(vault.original(name) == value for name, value in values.items())


def _replace_texts(item: object, texts: Mapping[str, str]) -> object:
    """Return an item with texts replaced according to a mapping."""
    if isinstance(item, str):
        return texts.get(item, item)
    if isinstance(item, list):
        return [_replace_texts(member, texts) for member in item]
    if isinstance(item, dict):
        return {key: _replace_texts(member, texts) for key, member in item.items()}
    return item
