"""The command in a process of its own that is forked from one which has imported and prepared what all of them need.

Importing it and preparing the rules takes two seconds of processor time, for each process that begins with nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp

from patience import until

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["pytest", "sqlalchemy.dialects.postgresql.psycopg", "psycopg", "prepared"])


class Command:
    """Runs `ctxguard` with words; what it writes goes to files, so that nothing waits for a reader.

    With `fresh=True` it begins with nothing, as what starts processes of its own has to.
    """

    def __init__(self, *words, cwd, env=None, fresh=False):
        self._said = Path(mkdtemp(prefix="ctxguard-said-"))
        words = list(map(str, words))
        if fresh:
            out, err = (self._said / "out").open("wb"), (self._said / "err").open("wb")
            with out, err:
                command = [sys.executable, "-m", "ctxguard", *words]
                self._process = subprocess.Popen(command, cwd=cwd, env=env, stdout=out, stderr=err)
        else:
            given = (words, str(cwd), dict(env or os.environ), str(self._said))
            self._process = processes.Process(target=_run, args=given)
            self._process.start()
        self._is_fresh = fresh

    def poll(self):
        """Return the exit code, or None while it runs."""
        return self._process.poll() if self._is_fresh else self._process.exitcode

    def send_signal(self, number):
        """Send it a signal, if it runs."""
        if self.poll() is None:
            os.kill(self._process.pid, number)

    def kill(self):
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def wait_for(self, text):
        """Wait until it has printed something."""
        out = self._said / "out"
        assert until(lambda: self.poll() is not None or (out.exists() and text in out.read_text()))

    def complains_of(self, text):
        """Wait until it has complained of something, and return all complaints."""
        err = self._said / "err"
        assert until(lambda: self.poll() is not None or (err.exists() and text in err.read_text())), "it says nothing"
        return err.read_text()

    def ended(self):
        """Wait for its end; return what it printed, what it complained of, and its exit code."""
        assert until(lambda: self.poll() is not None), "it does not end"
        return (self._said / "out").read_text(), (self._said / "err").read_text(), self.poll()


def _run(words, cwd, env, said):
    for number, name in ((1, "out"), (2, "err")):
        file = os.open(f"{said}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, number)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["ctxguard", *words]
    from ctxguard.cli import main

    main()
