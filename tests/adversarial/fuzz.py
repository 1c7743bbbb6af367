"""Fuzz the targets of `targets.py` with atheris, which follows coverage: `make hunt`.

    python tests/adversarial/fuzz.py [TARGET ...] [--seconds 60] [--runs N]

Each target runs in a process of its own. What fails is kept as build/hunt/TARGET/crash-…, and
`python tests/adversarial/fuzz.py TARGET --input FILE` shows it again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
KEPT = HERE.parents[1] / "build" / "hunt"


def fuzz(name: str, limits: list[str]) -> None:
    """Run one target in this process until a limit is reached; does not return."""
    import atheris

    with atheris.instrument_imports(include=["ctxguard"]):
        from targets import TARGETS, seeds
    corpus = KEPT / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    atheris.Setup(
        [name, str(corpus), f"-artifact_prefix={corpus}/", "-max_len=400", "-timeout=30", *limits], TARGETS[name]
    )
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--input", type=Path)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    limits = [f"-max_total_time={given.seconds}"] if given.runs is None else [f"-runs={given.runs}"]
    if given.here:
        fuzz(given.targets[0], limits)
    from targets import TARGETS

    if given.input is not None:
        TARGETS[given.targets[0]](given.input.read_bytes())
        return 0
    try:
        import atheris  # noqa: F401 - the processes need it
    except ImportError:
        for name in given.targets or TARGETS:
            print(f"{name}: skipped, atheris is not installed: pip install --group hunt")
        return 0
    failed = 0
    for name in given.targets or TARGETS:
        again = [sys.executable, __file__, name, "--here", "--seconds", str(given.seconds)]
        again += [] if given.runs is None else ["--runs", str(given.runs)]
        run = subprocess.run(again, check=False, capture_output=True, text=True)
        done = [line for line in run.stderr.splitlines() if line.startswith(("Done", "DONE", "stat::"))]
        print(f"{name}: {done[-1] if done and not run.returncode else run.stderr[-3_000:]}", flush=True)
        failed += run.returncode != 0
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
