"""Entry point of `python -m ctxguard.cli`."""

from __future__ import annotations

from ctxguard.cli import main

if __name__ == "__main__":
    main()
