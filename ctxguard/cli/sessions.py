"""The sessions in the input of a command, and errors that name them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ctxguard.errors import BudgetExceededError, HistoryError, SessionFileError

if TYPE_CHECKING:
    from ctxguard.harness import RecordedSession


def sessions_of(path: str, adapter: str | None) -> list[RecordedSession]:
    """Return the sessions of a file; all are read before any is processed, so that a damaged file is rejected whole."""
    from ctxguard.harness import read_sessions

    return list(read_sessions(path, adapter=adapter))


@contextmanager
def naming(path: str, session: RecordedSession) -> Iterator[None]:
    """Add the file and the session to errors about them."""
    try:
        yield
    except (HistoryError, BudgetExceededError) as error:
        raise SessionFileError(path, f"session {session.id}: {error}") from error
