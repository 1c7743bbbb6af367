"""Read recorded sessions, replay them call by call, and judge and price what a stabilizer would have sent."""

from __future__ import annotations

from ctxguard.harness.checking import check_session
from ctxguard.harness.judging import Figures
from ctxguard.harness.pricing import PriceModel
from ctxguard.harness.recordings import read_sessions
from ctxguard.harness.replay import SessionReplay, replay, replay_sessions, replay_settings
from ctxguard.harness.sessions import RecordedSession, parse_session

__all__ = [
    "Figures",
    "PriceModel",
    "RecordedSession",
    "SessionReplay",
    "check_session",
    "parse_session",
    "read_sessions",
    "replay",
    "replay_sessions",
    "replay_settings",
]
