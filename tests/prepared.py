"""What a forked process begins with: the modules of the commands, and the rules of the guard. Imported, it prepares them."""

from contextlib import suppress

from ctxguard import Stabilizer
from ctxguard.stores import open_store  # noqa: F401 - imported for those who fork
from ctxguard.wire import Guard, proxy, run  # noqa: F401 - the same

with suppress(ImportError):
    import uvicorn  # noqa: F401 - the same
Guard(Stabilizer(4_000)).warm()
