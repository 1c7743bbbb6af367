"""Read recorded sessions, replay them turn by turn, judge and price what a stabilizer makes of them."""

from __future__ import annotations

from ctxguard.harness.sessions import Session, parse_session, read_sessions

__all__ = ["Session", "parse_session", "read_sessions"]
