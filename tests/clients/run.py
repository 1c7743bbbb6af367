"""Run real clients through `ctxguard run` against the strict provider, and print what became of it: `make clients`.

Nothing leaves the machine: the provider is on loopback, each client has an empty home, and the target runs it in a
namespace with loopback alone. A client that is not installed is left out by name.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from upstream import AgentHandler, AgentProvider, provider_at

PROMPT = "Read every file here, then write report.txt with one contact line."
QUIET = {
    "CI": "1",
    "DO_NOT_TRACK": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "GEMINI_CLI_TRUST_WORKSPACE": "true",
    "OPENAI_API_KEY": "sk-mock-0123456789",
    "ANTHROPIC_API_KEY": "sk-ant-mock-0123456789",
    "GEMINI_API_KEY": "mock-0123456789",
}
CODEX = "[analytics]\nenabled = false\n"
GEMINI = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": False}}
QWEN = {"security": {"auth": {"selectedType": "openai"}}, "privacy": {"usageStatisticsEnabled": False}}
OPENCODE = {"permission": "allow", "model": "openai/gpt-5", "autoupdate": False}
CLIENTS = {
    "codex": (
        ["exec", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", "-m", "gpt-5", PROMPT],
        {".codex/config.toml": CODEX},
    ),
    "claude": (["-p", PROMPT, "--permission-mode", "acceptEdits", "--model", "claude-sonnet-4-5"], {}),
    "gemini": (["--yolo", "-m", "gemini-2.5-pro", "-p", PROMPT], {".gemini/settings.json": json.dumps(GEMINI)}),
    "qwen": (["--yolo", "-m", "qwen3-coder-plus", "-p", PROMPT], {".qwen/settings.json": json.dumps(QWEN)}),
    "opencode": (["run", PROMPT], {".config/opencode/opencode.json": json.dumps(OPENCODE)}),
    "aider": (
        ["--yes-always", "--analytics-disable", "--no-git", "--model", "openai/gpt-4o", "-m", PROMPT],
        {},
    ),
    "llm": (["-m", "gpt-4o", "Write to ann0@planted.example."], {}),
}


def planted(step):
    lines = [f"def step_{step}_{n}(value):\n    return value * {n} + {step}  # of step {step}" for n in range(60)]
    return f"# owner: ann{step}@planted.example, +1 212 555 01{step:02}\n" + "\n".join(lines) + "\n"


def ran(name, budget, files, bin_, *, is_guarded=True):
    """Run one client once; return a row of the table."""
    arguments, settings = CLIENTS[name]
    with tempfile.TemporaryDirectory() as place:
        home, work = Path(place, "home"), Path(place, "work")
        work.mkdir()
        for step in range(files):
            (work / f"file_{step}.py").write_text(planted(step), encoding="utf-8")
        for where, text in settings.items():
            (home / where).parent.mkdir(parents=True, exist_ok=True)
            (home / where).write_text(text, encoding="utf-8")
        home.mkdir(exist_ok=True)
        provider = AgentProvider(work, files)
        with provider_at(provider, AgentHandler) as url:
            environment = {
                **QUIET,
                "HOME": str(home),
                "PATH": f"{bin_}:{os.environ['PATH']}",
                "OPENAI_BASE_URL": f"{url}/v1",
                "ANTHROPIC_BASE_URL": url,
                "GOOGLE_GEMINI_BASE_URL": url,
                "OPENAI_MODEL": "qwen3-coder-plus",
            }
            guard = [sys.executable, "-m", "ctxguard", "run", "--budget", budget, "--"]
            began = time.monotonic()
            done = subprocess.run(
                [*guard, name, *arguments],
                cwd=work,
                env=environment,
                capture_output=True,
                text=True,
                timeout=600,
                stdin=subprocess.DEVNULL,
                check=False,
            )
            took = time.monotonic() - began
        sent = json.dumps(provider.bodies)
        leaks = sum(sent.count(f"ann{step}@planted.example") for step in range(files))
        report = work / "report.txt"
        written = "planted.example" in report.read_text(encoding="utf-8") if report.exists() else None
        if "--show" in sys.argv:
            print(done.stdout[-1500:], done.stderr[-3000:], provider.refusals[:3], provider.paths[:6])
        return {
            "client": name,
            "budget": budget,
            "exit": done.returncode,
            "steps": provider.step,
            "requests": len(provider.bodies),
            "refused": len(provider.refusals),
            "largest": max(map(provider.tokens, provider.bodies), default=0),
            "leaks": leaks,
            "real values written": written,
            "seconds": round(took),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("clients", nargs="*", default=list(CLIENTS))
    parser.add_argument("--bin", default="build/clients/bin", help="folder of the clients, before those of PATH")
    parser.add_argument("--budgets", default="80%,64000")
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--show", action="store_true", help="print what each client printed")
    given = parser.parse_args()
    bin_ = str(Path(given.bin).resolve())
    is_first, failed = True, False
    for name in given.clients or CLIENTS:
        if shutil.which(name, path=f"{bin_}:{os.environ['PATH']}") is None:
            print(f"{name}: not installed, left out")
            continue
        for budget in given.budgets.split(","):
            row = ran(name, budget, given.files, bin_)
            if is_first:
                print(" | ".join(row))
                is_first = False
            print(" | ".join(map(str, row.values())), flush=True)
            failed |= bool(row["exit"] or row["leaks"] or row["refused"])
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
