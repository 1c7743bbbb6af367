"""The command line. Exit codes: 0 fine, 1 a check failed or something was found, 2 bad usage or unreadable input."""

from __future__ import annotations

from ctxguard.cli.program import app, main

__all__ = ["app", "main"]
