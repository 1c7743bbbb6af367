"""The command `ctxguard adapters`."""

from __future__ import annotations

from ctxguard.report.printing import fitted, out

__all__ = ["adapters"]


def adapters() -> None:
    """List the installed adapters, whether each can be used here, and which of them read files."""
    from ctxguard.adapting.registry import OBJECT_ADAPTERS, adapter_names, find_adapter
    from ctxguard.errors import AdapterError

    for name in adapter_names():
        try:
            find_adapter(name)
            reads = "in code alone: its messages are objects" if name in OBJECT_ADAPTERS else "reads files"
            out(fitted(f"{name:<16}  ready, {reads}"))
        except AdapterError as error:
            out(fitted(f"{name:<16}  {str(error).removeprefix(f'adapter {name!r} ')}"))
