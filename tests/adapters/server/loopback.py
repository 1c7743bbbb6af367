"""HTTP on loopback, for every server of the tests that plays a provider."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import ThreadingHTTPServer


class RefusedError(Exception):
    """Carry what the provider answers with 400."""


def require(holds, message):
    if not holds:
        raise RefusedError(message)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


@contextmanager
def listening(handler):
    """Serve on a free port of 127.0.0.1 and give the address."""
    # headers and body are sent one after the other: with Nagle's algorithm, each answer waits 40 ms for an acknowledgement
    quiet = type("Quiet", (handler,), {"log_message": lambda *_: None, "disable_nagle_algorithm": True})
    server = _Server(("127.0.0.1", 0), quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
