"""Run a program of this folder in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def run(program, *arguments, status=0, cwd=HERE, **environment):
    """Return what a program prints on its standard output. `status` is the exit code that is expected of it."""
    paths = (ROOT, ROOT / "adapters", HERE)
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), **environment}
    command = [sys.executable, str(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=settings, cwd=cwd, check=False)
    assert done.returncode == status, done.stderr[-4_000:]
    return done.stdout
