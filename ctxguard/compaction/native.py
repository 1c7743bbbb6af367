"""Read a history of any kind: artifacts, or the messages of an installed adapter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ctxguard.adapting.protocol import Adapter
from ctxguard.adapting.registry import require_adapter
from ctxguard.artifacts import Artifact


def read_native(messages: Sequence[object]) -> tuple[Adapter[object] | None, list[Artifact]]:
    """Return the adapter that knows these messages (None for artifacts) and the artifacts.

    Raises:
        AdapterError: no installed adapter knows them.
    """
    if all(isinstance(message, Artifact) for message in messages):
        return None, cast("list[Artifact]", list(messages))
    adapter = require_adapter(messages)
    return adapter, adapter.read(messages)


def write_native(
    adapter: Adapter[object] | None, messages: Sequence[object], artifacts: list[Artifact]
) -> Sequence[object]:
    """Return artifacts in the format of the original history."""
    return artifacts if adapter is None else cast("Sequence[object]", adapter.write(messages, artifacts))
