"""The settings of a guard that restores masked values, for agents of any framework."""

from __future__ import annotations

from typing import Any

import pytest

from ctxguard.stores import MemoryStore


def restoring() -> dict[str, Any]:
    """Return the settings: a vault of its own, and the switch."""
    pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")
    from ctxguard.pii import Vault, new_key

    return {"vault": Vault(MemoryStore(), key=new_key()).session("one"), "restore": True}
