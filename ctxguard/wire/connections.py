"""The server's side of a connection. Only the server imports this module, because it needs uvicorn."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEAD_TIMEOUT: Final = 60.0
"""Number of seconds that a client may take to send the head of a request."""


class BoundedConnection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # one of two classes, chosen when uvicorn runs
    """Closes a connection on which no head of a request arrives in time, or only a part of one.

    uvicorn closes connections that are idle after a response, but not those that never sent a request, nor those that
    send a head without an end.
    """

    _ends: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - as uvicorn declares it
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Read data, and wait no longer if the head of a request is complete."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop()
        super().connection_lost(exc)

    def _watch(self) -> None:
        is_waiting = self.cycle is None or self.cycle.response_complete
        if not is_waiting:
            self._stop()
        elif self._ends is None:
            self._ends = self.loop.call_later(HEAD_TIMEOUT, self._close)

    def _stop(self) -> None:
        if self._ends is not None:
            self._ends.cancel()
            self._ends = None

    def _close(self) -> None:
        if self.transport.get_protocol() is self:  # otherwise, the connection became a web socket
            self.transport.close()
