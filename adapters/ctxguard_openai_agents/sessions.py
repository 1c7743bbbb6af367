"""A session of the Agents SDK in front of another one, which stores placeholders in place of values."""

from __future__ import annotations

from typing import Any, cast

from agents.items import TResponseInputItem
from agents.memory.session import Session, SessionABC

from ctxguard.adapting.per_run import require_vault
from ctxguard.adapting.stored import StoredTexts
from ctxguard.errors import ConfigError
from ctxguard.pii import STANDARD, SessionVault
from ctxguard.pii.detectors import Rules


class MaskedSession(SessionABC):
    """Masks the items that a session stores: `MaskedSession(SQLiteSession("ada", "chats.db"), vault)`.

    Stored items contain placeholders. Items that are read contain the values again, each in the spelling in which it
    first occurred (`ADA@x.org` may become `ada@x.org`), or the placeholder if the vault no longer contains the value.
    All texts in items are masked. The session's id is not, so do not use a value as one.

    Everything else is that of the wrapped session, such as its settings, `close()`, and `run_compaction()`. A session
    that compacts its items with a model is wrapped by this one, so that the model sees placeholders.

    Args:
        session: The session that stores the items, of any kind.
        vault: The vault of the session. It may be the one that the guard uses, or another one.
        rules: The rules that define what is personal data.

    Raises:
        ConfigError: If `session` is not a session, or `vault` is not the vault of one.
    """

    def __init__(self, session: Session, vault: SessionVault, *, rules: Rules = STANDARD) -> None:
        if not hasattr(session, "get_items"):
            message = (
                f"session is a session of the SDK, not {type(session).__name__}; write MaskedSession(session, vault)"
            )
            raise ConfigError(message, setting="session")
        self.session_id = session.session_id
        self.session_settings = getattr(session, "session_settings", None)
        self._session = session
        self._texts = StoredTexts(require_vault(vault), rules)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of the wrapped session
        if name.startswith("_"):  # a copy that is not complete yet has no session
            raise AttributeError(name)
        return getattr(self._session, name)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the latest `limit` items, or all, with masked values restored."""
        return cast("list[TResponseInputItem]", self._texts.restored(await self._session.get_items(limit)))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Store items, with values in their texts masked."""
        await self._session.add_items(self._texts.masked(items))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the latest item, and return it with masked values restored."""
        return cast("TResponseInputItem | None", self._texts.restored(await self._session.pop_item()))

    async def clear_session(self) -> None:
        """Remove all items."""
        await self._session.clear_session()
