"""The image of the proxy, linted where nothing builds it: what it copies is there, it is not root, and it reports its health."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from forked import Command
from patience import until
from release import project
from test_cli import cli

from ctxguard.settings import DISTRIBUTION

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "Dockerfile"


def instructions():
    """Return the instructions of each stage: a name, and the rest of its lines."""
    text = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE))
    stages = []
    for line in filter(None, text.splitlines()):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            stages.append([])
        stages[-1].append((name, rest.strip()))
    return stages


BUILD, IMAGE = instructions()
FINAL = dict(IMAGE)
COPIED = [word for name, rest in BUILD if name == "COPY" for word in rest.split()[:-1]]


def test_both_stages_have_one_base_with_a_version_that_is_supported():
    bases = {stage[0][1].partition(" AS ")[0] for stage in (BUILD, IMAGE)}
    (base,) = bases
    version = re.fullmatch(r"python:(3\.\d+)-slim", base)[1]
    assert f"Programming Language :: Python :: {version}" in project()["classifiers"]


def test_it_copies_files_that_are_there_and_nothing_else_reaches_the_builder():
    assert COPIED
    assert all((ROOT / name).exists() for name in COPIED)
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[0] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == set(COPIED)


def test_it_installs_extras_that_there_are():
    (command,) = (rest for name, rest in BUILD if name == "RUN")
    extras = re.search(r"'\.\[([\w,-]+)\]'", command)[1].split(",")
    assert {"cli", "proxy"} <= set(extras) <= set(project()["optional-dependencies"])
    assert "--no-cache-dir" in command


def test_it_is_not_root_by_a_number_and_holds_no_secret():
    assert re.fullmatch(r"[1-9]\d{3,}", FINAL["USER"])
    names = [name for name, _ in IMAGE]
    assert names.index("USER") < names.index("ENTRYPOINT")
    text = FILE.read_text(encoding="utf-8")
    assert not re.search(r"\b(?:ADD|ARG|sudo|latest)\b|(?:KEY|TOKEN|PASSWORD|SECRET)=", text)


def test_its_entry_is_serve_with_options_that_there_are():
    entry, default = json.loads(FINAL["ENTRYPOINT"]), json.loads(FINAL["CMD"])
    assert entry[:2] == ["ctxguard", "serve"]
    told = cli("serve", "--help").stdout
    assert all(f"{option} " in told for option in [*entry, *default] if option.startswith("--"))
    assert entry[entry.index("--port") + 1] == FINAL["EXPOSE"]
    assert FINAL["STOPSIGNAL"] == "SIGTERM"


def test_its_health_check_tells_a_proxy_that_serves_from_one_that_does_not(tmp_path):
    pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra proxy)")
    check = json.loads(re.search(r"CMD (\[.*\])", FINAL["HEALTHCHECK"])[1])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
    words = [sys.executable, *(word.replace(FINAL["EXPOSE"], port) for word in check[1:])]
    assert check[0] == "python"
    assert subprocess.run(words, capture_output=True, check=False).returncode != 0
    entry = [word.replace(FINAL["EXPOSE"], port) for word in json.loads(FINAL["ENTRYPOINT"])[1:]]
    process = Command(*entry, "--grace", 1, *json.loads(FINAL["CMD"]), cwd=tmp_path)
    try:
        assert until(lambda: subprocess.run(words, capture_output=True, check=False).returncode == 0)
    finally:
        process.send_signal(signal.SIGTERM)
        process.ended()


@pytest.mark.slow
def test_a_wheel_is_built_from_what_it_copies_alone(tmp_path):
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "dist").glob("*.whl"))


def test_what_the_page_on_installing_runs_installs_extras_that_there_are():
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    named = re.findall(rf"(?:\.|{DISTRIBUTION})\[([\w,-]+)\]", text)
    extras = set(project()["optional-dependencies"])
    assert named
    assert all(set(each.split(",")) <= extras for each in named)
    listed = re.findall(r"`([\w-]+)`", "".join(re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)))
    assert sorted(listed) == sorted(extras - {"all"})
    lines = [line for line in text.splitlines() if line.startswith(("pipx", "uvx"))]
    assert {shlex.split(line)[-2:] == ["ctxguard", "demo"] for line in lines} == {True}


def test_one_page_says_what_is_on_pypi():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    saying = {
        page.name for page in pages if "is another\nproject" in (text := page.read_text()) or "on PyPI is" in text
    }
    assert saying == {"install.md"}
    code = [path for folder in ("ctxguard", "adapters") for path in (ROOT / folder).rglob("*.py")]
    assert {path.name for path in code if f'"{DISTRIBUTION}' in path.read_text(encoding="utf-8")} == {"settings.py"}
    assert project()["name"] == DISTRIBUTION
