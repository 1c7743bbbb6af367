"""The command `ctxguard adapters`."""

from __future__ import annotations

from ctxguard.report.printing import fitted, out
from ctxguard.report.progress import working


def adapters() -> None:
    """List the installed adapters, whether each can be used here, and which of them read files."""
    from ctxguard.adapting.registry import adapter_names

    with working("loading the frameworks"):
        lines = [fitted(f"{name:<16}  {_state(name)}") for name in adapter_names()]
    out("\n".join(lines))


def _state(name: str) -> str:
    from ctxguard.adapting.registry import OBJECT_ADAPTERS, find_adapter
    from ctxguard.errors import AdapterError

    try:
        find_adapter(name)
    except AdapterError as error:
        return str(error).removeprefix(f"adapter {name!r} ")
    return "ready, " + ("in code alone: its messages are objects" if name in OBJECT_ADAPTERS else "reads files")
