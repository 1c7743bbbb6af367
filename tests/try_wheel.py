"""Try an installed ctxguard as a new user would, without extras, then with `cli`: `make wheel-test` runs it both ways."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from importlib.metadata import entry_points, metadata, packages_distributions
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

BIN = Path(sysconfig.get_path("scripts"))
HOME = Path(sysconfig.get_path("purelib"))
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "I am jane.doe@corp-mail.net"},
    *({"role": "assistant" if n % 2 == 0 else "user", "content": f"note {n} " * 40} for n in range(41)),
    {"role": "user", "content": "And now?"},
]


def run(*words, stdin="", status=0):
    done = subprocess.run([BIN / "ctxguard", *words], input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == status, (words, done.returncode, done.stdout, done.stderr)
    return done


def try_packages():
    packages = [name for name, homes in packages_distributions().items() if "ctxguard-stabilizer" in homes]
    assert len(packages) > 5
    for name in packages:
        place = Path(find_spec(name).origin).parent  # found, not imported: most need a framework
        assert place.is_relative_to(HOME), f"{name} is not the installed one: {place}"
        assert (place / "py.typed").is_file(), f"{name} has no py.typed"


def try_metadata(version):
    told = metadata("ctxguard-stabilizer")
    assert told["Version"] == version
    assert told["Description-Content-Type"] == "text/markdown"
    assert told["License-Expression"] == "MIT"
    assert len(told.get_payload()) > 1_000, "the README is not in the metadata"
    assert {point.name for point in entry_points(group="ctxguard.adapters")} >= {"openai", "anthropic", "langchain"}


def try_library():
    import ctxguard

    context = ctxguard.guard(MESSAGES, budget=600)
    assert context.report.ok
    assert "jane" not in json.dumps(context)
    assert ctxguard.mask_pii("I am jane.doe@corp-mail.net") == "I am [REDACTED_EMAIL]"


def try_commands(version):
    with TemporaryDirectory() as folder:
        session = Path(folder) / "session.json"
        session.write_text(json.dumps(MESSAGES))
        assert run("--version").stdout == f"ctxguard {version}\n"
        assert "stabilize" in run().stdout
        assert json.loads(run("demo", "--report", "json").stdout)["ok"]
        assert json.loads(run("stabilize", session, "--budget", "600").stdout)[0] == MESSAGES[0]
        assert run("check", session).stdout == "ok\n"
        assert "1 EMAIL" in run("pii", "scan", session, status=1).stdout
        assert "tokens" in run("tokens", "-", stdin="some text").stdout
        assert "<html" in run("replay", session, "--budget", "600", "--report", "html").stdout


def try_what_is_missing():
    """What needs an extra says in one line how this very installation gets it."""
    told = run("demo", status=2).stderr
    assert told.count("\n") == 1
    assert ".whl[cli]" in told, told
    done = subprocess.run(
        [sys.executable, "-c", "import ctxguard_langchain"], capture_output=True, text=True, check=False
    )
    assert ".whl[langchain]" in done.stderr, done.stderr


def try_what_a_command_misses():
    told = run("serve", "--upstream", "https://api.example.com", status=2).stderr
    assert told.count("\n") == 1
    assert ".whl[proxy]" in told, told


def main():
    version, *extras = sys.argv[1:]
    if extras:
        try_commands(version)
        try_what_a_command_misses()
    else:
        try_packages()
        try_metadata(version)
        try_library()
        try_what_is_missing()
    print(f"Python {sys.version.split()[0]}: ctxguard {version} {extras} works as installed from the wheel")


if __name__ == "__main__":
    main()
