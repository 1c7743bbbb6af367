"""Whatever needs an optional package that is missing names the command that installs it, at every door.

Each door runs in a fork of one process that has imported nothing optional, with the packages of an extra blocked.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from ctxguard.settings import install_command

ROOT = Path(__file__).parents[1]


class Door(NamedTuple):
    """What a user calls, and the extra whose packages it needs."""

    extra: str
    blocked: str
    code: str
    needs: str = ""  # a package without which the door is not reached


COMMAND = "import sys; sys.argv = ['ctxguard', *{!r}.split()]\nfrom ctxguard.cli import main; main()"
REPORT = (
    "from ctxguard import Artifact, Stabilizer; report = Stabilizer(900).stabilize([Artifact('user', 'hi')]).report\n"
)
READ = "from ctxguard.content import read_file; print(read_file({!r}))"
COUNT = "from ctxguard import Stabilizer; Stabilizer(900, counter={!r})"


def command(words: str) -> str:
    """Return the code that runs a command."""
    return COMMAND.format(words)


DOORS = {
    "a page": Door("html", "jinja2 markupsafe", REPORT + "report.to_html()"),
    "a page by a command": Door("html", "jinja2", command("stabilize session.json -r html"), "typer"),
    "a page of a replay": Door("html", "jinja2 markupsafe", command("replay session.json -r html"), "typer"),
    "the command line": Door("cli", "typer", command("--help")),
    "the demo": Door("cli", "rich", command("demo"), "typer"),
    "o200k_base": Door("tokens", "toktok tiktoken tiktoken_ext", COUNT.format("o200k_base")),
    "tekken": Door(
        "mistral", "mistral_common", "from ctxguard.tokens.counters import TiktokenCounter as C; C('tekken')"
    ),
    "a PDF": Door("files", "markitdown", READ.format("a.pdf")),
    "a workbook": Door("files", "openpyxl", READ.format("a.xlsx")),
    "an old workbook": Door("files", "xlrd", READ.format("a.xls")),
    "an image": Door("files", "PIL", READ.format("a.png")),
    "a web page": Door("files", "selectolax", READ.format("a.html")),
    "a cache of documents": Door(
        "files", "platformdirs", "from ctxguard.content.documents import default_cache_dir as d; d()"
    ),
    "a vault": Door(
        "vault",
        "cryptography",
        "from ctxguard.pii import Vault, new_key; from ctxguard.stores import open_store\n"
        "Vault(open_store(':memory:'), key=new_key())",
    ),
    "presidio": Door("presidio", "presidio_analyzer", command("pii scan session.json --rules presidio"), "typer"),
    "PostgreSQL": Door(
        "postgres", "sqlalchemy psycopg", "from ctxguard.stores import *; open_store('postgresql://h/x')"
    ),
    "Redis": Door("redis", "redis", "from ctxguard.stores import *; open_store('redis://h')"),
    "names": Door("names", "onnxruntime numpy tokenizers", command("pii scan session.json --rules names"), "typer"),
    "serve without a server": Door("proxy", "uvicorn", command("serve -u http://h"), "typer"),
    "serve without an application": Door("proxy", "starlette", command("serve -u http://h"), "typer"),
    "serve without a client": Door("proxy", "httpx", command("serve -u http://h"), "typer"),
    "run": Door("proxy", "uvicorn", command("run -- true"), "typer"),
    "run without an application": Door("proxy", "starlette httpx", command("run -- true"), "typer"),
    "brotli": Door("proxy", "brotli", "from ctxguard.wire.bodies import decode_request; decode_request(b'', 'br', 9)"),
    "zstd": Door(
        "proxy",
        "backports compression",
        "from ctxguard.wire.bodies import decode_request; decode_request(b'', 'zstd', 9)",
    ),
    "MCP": Door("mcp", "mcp mcp_types", command("mcp"), "typer"),
    "prices": Door("prices", "genai_prices", command("replay session.json --model gpt-5.5"), "typer"),
    "gain": Door("gain", "pyppmd", command("replay session.json"), "typer"),
    "a file elsewhere": Door("remote", "fsspec", command("replay s3://bucket/x.json"), "typer"),
    "Parquet": Door("parquet", "pyarrow", command("replay a.parquet"), "typer"),
    "Ray": Door("ray", "ray", command("replay session.json --engine ray"), "typer"),
    "semantic recall": Door(
        "semantic", "wordllama numpy", "from ctxguard.stages import *; RecallRelevant(embed='static')"
    ),
    "own embeddings": Door("semantic", "numpy", "from ctxguard.stages.embeddings import *; SemanticIndex()"),
    "a summary by a model": Door(
        "pydantic-ai",
        "pydantic_ai langchain",
        "from ctxguard.compaction.summaries import model_summarizer as m; m('openai:gpt-5.5')",
    ),
    "LangChain": Door("langchain", "langchain_core", "import ctxguard_langchain"),
    "LangChain's agents": Door(
        "langchain", "langchain", "from ctxguard_langchain import ContextGuardMiddleware", "langchain_core"
    ),
    "LangGraph's checkpoints": Door(
        "langgraph", "langgraph", "from ctxguard_langchain import MaskedSerializer", "langchain_core"
    ),
    "PydanticAI": Door("pydantic-ai", "pydantic_ai", "import ctxguard_pydantic_ai"),
    "the Agents SDK": Door("openai-agents", "agents", "from ctxguard_openai_agents import call_model_input_filter"),
    "the Agents SDK's retries": Door("openai-agents", "agents", "from ctxguard_openai_agents import with_vault"),
    "Strands": Door("strands", "strands", "from ctxguard_strands import ContextGuard"),
    "CrewAI": Door("crewai", "crewai", "from ctxguard_crewai import guarded_llm"),
    "testing": Door("testing", "hypothesis", "import ctxguard.testing"),
    "testing of stores": Door("testing", "hypothesis pytest", "import ctxguard.stores.conformance"),
}
WITHOUT = {
    "chardet": "encodings are guessed without it",
    "botocore": "a client of boto3, which the caller has, brings it",
    "httpx2": "a client that sends by it brings it",
    "google": "objects of google-genai, which the caller has, bring it",
    "fastapi": "LiteLLM's proxy brings it",
    "litellm": "no extra: the error says `pip install 'litellm[proxy]'`",
    "typing_extensions": "pydantic brings it",
    "pydantic_core": "pydantic brings it",
}
"""Optional packages of which no door needs an extra, and why."""

RUNNER = """
import json, os, sys
import ctxguard, ctxguard.stabilizer, ctxguard.pii, ctxguard.adapting.adapter, ctxguard.checks
doors = json.load(sys.stdin)
for name, (blocked, code) in doors.items():
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(write, 1), os.dup2(write, 2)
        shadows = os.path.join(os.getcwd(), f"without {blocked}")  # blocks the packages in child processes as well
        os.makedirs(shadows, exist_ok=True)
        os.environ["PYTHONPATH"] = os.pathsep.join([shadows, *sys.path])
        for package in blocked.split():
            with open(os.path.join(shadows, f"{package}.py"), "w") as shadow:
                shadow.write(f"raise ModuleNotFoundError('no {package}', name={package!r})")
            for loaded in [each for each in sys.modules if each.partition(".")[0] == package]:
                del sys.modules[loaded]
            sys.modules[package] = None
        try:
            exec(code, {"__name__": "door"})
        except SystemExit:
            pass
        except BaseException as error:
            print(f"{type(error).__name__}: {error}")
        sys.stdout.flush()
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        print(json.dumps([name, said.read()]), flush=True)
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Return what each door says, by its name."""
    folder = tmp_path_factory.mktemp("doors")
    talk = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hello"}]
    (folder / "session.json").write_text(json.dumps(talk))
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    doors = {name: (door.blocked, door.code) for name, door in DOORS.items()}
    paths = {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))}
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps(doors),
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={**os.environ, **paths},
    )
    return dict(map(json.loads, done.stdout.splitlines()))


FILES = {
    "a.pdf": b"%PDF-1.4\n%%EOF\n",
    "a.xlsx": b"PK\x05\x06" + bytes(18),
    "a.xls": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
    "a.png": b"\x89PNG\r\n\x1a\n" + bytes(60),
    "a.html": b"<!doctype html><html><body><p>hello</p></body></html>",
    "a.parquet": b"PAR1" + bytes(20) + b"PAR1",
}


@pytest.mark.parametrize("name", DOORS)
def test_a_door_whose_package_is_missing_names_the_command_that_installs_it(name, said):
    door = DOORS[name]
    if door.needs:
        pytest.importorskip(door.needs, reason=f"{door.needs} is not installed")
    assert install_command(door.extra) in said[name]
    assert "ModuleNotFoundError" not in said[name]


def imported(folder):
    """Yield the top-level name of each package that the files in a folder import, except for annotations."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                yield str(node.module).partition(".")[0]


def test_every_optional_package_has_a_door():
    known = {*sys.stdlib_module_names, "ctxguard", "compression"}
    known |= {"ahocorasick", "imagesize", "phonenumbers", "pydantic", "stdnum", "yaml"}  # what the core depends on
    asked = {each for folder in ("ctxguard", "adapters") for each in imported(ROOT / folder)}
    asked = {each for each in asked if each not in known and not each.startswith("ctxguard_")}
    has_door = {each for door in DOORS.values() for each in door.blocked.split()}
    assert asked - has_door - {"opentelemetry"} == set(WITHOUT) & asked
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {door.extra for door in DOORS.values()} <= set(extras)
