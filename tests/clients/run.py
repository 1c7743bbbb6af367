"""Run real clients through `ctxguard run` against the strict provider, and print what became of it: `make clients`.

Each client runs once without the guard, then with it at several budgets; the first run says what may be expected.
Nothing leaves the machine: the provider is on loopback, each client has an empty home, and the target runs it in a
namespace with loopback alone. A client that is not installed is left out by name.

Columns: whether the client came to its end; steps of the agent; requests; tokens of the largest body, by o200k_base; planted
values that reached the provider; files and edits written with the real values, of those that the agent wrote; files of
which one request held every line; the share of a request that the next one repeats; statuses that the client got, but for
200; requests that the provider refused. What fails is named in the last column.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import yaml
from planted import planted, values_of
from upstream import AgentHandler, AgentProvider, provider_at

from ctxguard import Stabilizer
from ctxguard.errors import BudgetExceededError, sensible_budget
from ctxguard.wire.guard import Guard, WireRequest

PROMPT = "Read every file here, then write a note with one contact line."
READS = 36_000
"""Tokens that must fit beside what a client always sends: with 28,000, an agent that sends hardly anything else repeated
86% of each request, with 32,000 it was 89%, with 36,000 92%."""
KEPT, KEPT_IN_PARALLEL = 0.90, 0.85
ENVIRONMENT = {
    "CI": "1",
    "DO_NOT_TRACK": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLINE_TELEMETRY_DISABLED": "1",
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
    "OPENAI_MODEL": "qwen3-coder-plus",
    "TERM": "dumb",
}
CODEX = "check_for_update_on_startup = false\n[analytics]\nenabled = false\n"
GEMINI = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": False}}
QWEN = {"security": {"auth": {"selectedType": "openai"}}, "privacy": {"usageStatisticsEnabled": False}}
OPENCODE = {"permission": "allow", "model": "openai/gpt-5", "autoupdate": False}
FUNCTIONS = '''
def read_file(path: str) -> str:
    """Return what is in a file."""
    return open(path).read()


def write_file(path: str, content: str) -> str:
    """Write a file."""
    open(path, "w").write(content)
    return "written"
'''


def login():
    """Return what Codex keeps of a login with ChatGPT; nobody signed it."""

    def part(value):
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    account = {"chatgpt_account_id": "account-mock", "chatgpt_plan_type": "pro", "chatgpt_user_id": "user-mock"}
    claims = {"email": "someone@planted.invalid", "exp": 4_000_000_000, "https://api.openai.com/auth": account}
    token = ".".join([part({"alg": "none"}), part(claims), part("unsigned")])
    tokens = {"id_token": token, "access_token": token, "refresh_token": "mock", "account_id": "account-mock"}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return json.dumps({"OPENAI_API_KEY": None, "tokens": tokens, "last_refresh": now})


@dataclass
class Client:
    """Hold how a client is run.

    Attributes:
        arguments: of its command line.
        files: that it finds in its home.
        unset: variables that it must not have.
        first: a command before it; `{openai}` is the address of the provider, as the client is to see it.
        is_parallel: whether it is also run with several calls at a time.
    """

    arguments: list[str]
    files: dict[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    first: list[str] = field(default_factory=list)
    is_parallel: bool = False


CODEX_ARGUMENTS = ["exec", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", "-m", "gpt-5", PROMPT]
CLAUDE = ["-p", PROMPT, "--permission-mode", "acceptEdits", "--model"]
CLIENTS = {
    "codex": Client(CODEX_ARGUMENTS, {".codex/config.toml": CODEX}, is_parallel=True),
    "codex (login)": Client(
        CODEX_ARGUMENTS, {".codex/config.toml": CODEX, ".codex/auth.json": login()}, unset=("OPENAI_API_KEY",)
    ),
    "claude": Client([*CLAUDE, "claude-sonnet-4-5"], is_parallel=True),
    "claude (adaptive)": Client([*CLAUDE, "claude-opus-4-6"]),
    "gemini": Client(
        ["--yolo", "-m", "gemini-2.5-pro", "-p", PROMPT],
        {".gemini/settings.json": json.dumps(GEMINI)},
        is_parallel=True,
    ),
    "qwen": Client(["--yolo", "-m", "qwen3-coder-plus", "-p", PROMPT], {".qwen/settings.json": json.dumps(QWEN)}),
    "opencode": Client(["run", PROMPT], {".config/opencode/opencode.json": json.dumps(OPENCODE)}, is_parallel=True),
    "cline": Client(
        ["-y", PROMPT],
        first=[
            "cline",
            "auth",
            "--provider",
            "openai",
            "--apikey",
            "sk",
            "--modelid",
            "gpt-4o",
            "--baseurl",
            "{openai}",
        ],
    ),
    "aider": Client(
        [
            *("--yes-always", "--analytics-disable", "--no-git", "--no-check-update", "--no-show-release-notes"),
            *("--model", "openai/gpt-4o", "-m", PROMPT, "file_0.py", "file_1.py"),
        ]
    ),
    "llm": Client(["-m", "gpt-4o", "--functions", FUNCTIONS, "--chain-limit", "0", PROMPT]),
    "crush": Client(["run", PROMPT]),
    "goose": Client(["run", "-t", PROMPT]),
}
TABLE = yaml.safe_load((Path(__file__).parents[2] / "ctxguard/wire/run_clients.yaml").read_text(encoding="utf-8"))


@dataclass
class Run:
    """Hold what became of one run."""

    name: str
    budget: str
    provider: AgentProvider
    status: int
    seconds: float
    statuses: set[int]
    values: int
    real: int
    printed: str

    @property
    def is_finished(self):
        return self.status == 0 and self.provider.is_over

    @property
    def prefix(self):
        """Return the share of the requests of the main loop that the next one repeats."""
        texts = [written(body) for _, body in self.provider.loop]
        pairs = list(pairwise(texts))
        total = sum(len(one) for one, _ in pairs)
        return sum(repeated(*pair) for pair in pairs) / total if total else 1.0

    def row(self, control, least_prefix):
        tokens = max((self.provider.tokens(body) for _, body in self.provider.loop), default=0)
        cells = [
            self.name,
            self.budget,
            "yes" if self.is_finished else f"no (exit {self.status})",
            len(self.provider.loop),
            len(self.provider.bodies),
            f"{tokens:,}",
            self.values,
            f"{self.real} of {len(self.provider.written)}",
            len(self.provider.whole),
            f"{self.prefix:.3f}",
            " ".join(map(str, sorted(self.statuses - {200}))) or "–",
            len(self.provider.refusals),
            f"{self.seconds:.0f}",
            "; ".join(self.faults(control, least_prefix)) or "ok",
        ]
        return "| " + " | ".join(map(str, cells)) + " |"

    def faults(self, control, least_prefix):
        if control is self:
            return
        if control.is_finished and not self.is_finished:
            yield "does not finish"
        if self.values:
            yield "values upstream"
        if self.real < len(self.provider.written):
            yield "no real values written"
        if self.prefix < least_prefix * min(1, control.prefix):
            yield "prefix"
        if self.statuses - control.statuses:
            yield "other statuses"
        if len(self.provider.refusals) > len(control.provider.refusals):
            yield "refused"


HEAD = "client | budget | finished | steps | requests | largest | values upstream | real | whole | prefix | statuses"


def written(body):
    """Return a request as text in the order in which a provider caches it, without the markers of its cache."""

    def bare(value):
        if isinstance(value, dict):
            return {key: bare(member) for key, member in value.items() if key != "cache_control"}
        return list(map(bare, value)) if isinstance(value, list) else value

    keys = ("tools", "system", "systemInstruction", "instructions", "messages", "input", "contents")
    return "\n".join(json.dumps(bare(body[key])) for key in keys if key in body)


def repeated(one, other):
    """Return how many characters two texts begin with alike."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def filled(text, urls):
    for name, url in urls.items():
        text = text.replace(f"{{{name}}}", url)
    return text


def direct(name, client, urls):
    """Return the arguments and variables by which a client finds the provider without the guard."""
    known = TABLE["clients"].get(name, {})
    arguments = known.get("login" if client.unset else "arguments", [])
    arguments = arguments["arguments"] if isinstance(arguments, dict) else arguments
    variables = {key: filled(text, urls) for key, text in known.get("variables", {}).items()}
    return [filled(each, urls) for each in arguments], variables


def ran(label, client, budget, given, *, parallel=1):
    """Run one client once, without the guard where there is no budget."""
    name = label.partition(" ")[0]
    with tempfile.TemporaryDirectory() as place:
        home, work = Path(place, "home"), Path(place, "work")
        for folder in (home, work):
            folder.mkdir()
        for step in range(given.files):
            (work / f"file_{step}.py").write_text(planted(step), encoding="utf-8")
        for where, text in client.files.items():
            (home / where).parent.mkdir(parents=True, exist_ok=True)
            (home / where).write_text(text, encoding="utf-8")
        provider = AgentProvider(work, given.files, parallel=parallel)
        with provider_at(provider, AgentHandler) as url:
            urls = {"openai": f"{url}/v1", "anthropic": url, "gemini": url, "chatgpt": f"{url}/backend-api"}
            environment = {key: value for key, value in ENVIRONMENT.items() if key not in client.unset}
            environment |= {"HOME": str(home), "PATH": f"{given.bin}:{os.environ['PATH']}"}
            for provider_name, known in TABLE["providers"].items():
                environment |= {one: urls[provider_name] for one in known["variables"] if provider_name in urls}
            log, port = Path(place, "log"), free_port()
            if budget is None:
                arguments, variables = direct(name, client, urls)
                command, seen = [name, *arguments, *client.arguments], urls["openai"]
                environment |= variables
            else:
                guard = [sys.executable, "-m", "ctxguard", "run", "--budget", budget, "--log", str(log)]
                command = [*guard, "--port", str(port), "--", name, *client.arguments]
                seen = f"http://127.0.0.1:{port}/{urls['openai'].partition('//')[2]}"
            if client.first:
                done(filled_all(client.first, {"openai": seen}), work, environment, 120)
            began = time.monotonic()
            status, printed = done(command, work, environment, given.timeout)
            took = time.monotonic() - began
        statuses = set(provider.statuses)
        if log.exists():
            refused = re.findall(r"(?:with status |\(status )(\d+)", log.read_text(encoding="utf-8"))
            statuses |= {int(one) for one in refused} - {499}  # nobody waited for that one
        sent = b"\n".join(provider.raw).decode("utf-8", "replace")
        values = sum(sent.count(value) for step in range(given.files) for value in values_of(step))
        real = sum(
            path.exists() and path.read_text(encoding="utf-8").strip() == text.strip()
            for path, text in provider.written.items()
        )
        if given.show:
            print(printed[-3_000:], provider.refusals[:3], provider.paths[:8], sep="\n")
            print(log.read_text(encoding="utf-8")[-2_000:] if log.exists() else "")
        shown = budget or "none: control"
        label = f"{label}, {parallel} at once" if parallel > 1 else label
        return Run(label, shown, provider, status, took, statuses, values, real, printed)


def filled_all(texts, urls):
    return [filled(text, urls) for text in texts]


def done(command, work, environment, timeout):
    """Run a command until it ends, or is ended with all that it started; return its exit code and what it printed."""
    with subprocess.Popen(
        command,
        cwd=work,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            printed, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
            printed += "\nended: it took too long"
    return process.returncode, printed


def smallest(control):
    """Return the smallest sensible budget in tokens: as the guard names it for what a client always sends, with `READS`."""
    path, body = control.provider.loop[0]
    request = WireRequest("POST", path, {}, json.dumps(body).encode())
    try:
        Guard(Stabilizer(1, shorten_tools=False)).prepare(request)
    except BudgetExceededError as error:
        budget, least = sensible_budget(error.fixed), error.fixed + READS
    while Guard(Stabilizer(budget, shorten_tools=False)).prepare(request).report.budget < least:
        budget += 1_000
    return budget


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("clients", nargs="*", default=list(CLIENTS))
    parser.add_argument("--bin", default="", help="folder of the clients, before those of PATH")
    parser.add_argument("--budgets", default="80%,64000,smallest")
    parser.add_argument("--files", type=int, default=28)
    parser.add_argument("--parallel", type=int, default=4, help="calls at a time, for clients that take several")
    parser.add_argument("--timeout", type=int, default=400, metavar="SECONDS")
    parser.add_argument("--show", action="store_true", help="print what each client printed")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="keep the requests of each run without the guard")
    given = parser.parse_args()
    given.bin = str(Path(given.bin).resolve())
    titles = f"{HEAD} | refused | seconds | verdict".split(" | ")
    print("| " + " | ".join(titles) + " |\n|" + "---|" * len(titles))
    failed = False
    for label in given.clients or CLIENTS:
        client = CLIENTS[label]
        if shutil.which(label.partition(" ")[0], path=f"{given.bin}:{os.environ['PATH']}") is None:
            print(f"| {label} | not installed, left out |" + " |" * (len(titles) - 2))
            continue
        for parallel in (1, given.parallel) if client.is_parallel else (1,):
            control = ran(label, client, None, given, parallel=parallel)
            print(control.row(control, 0), flush=True)
            if given.save and parallel == 1:
                given.save.mkdir(parents=True, exist_ok=True)
                lines = map(json.dumps, control.provider.loop)
                (given.save / f"{label}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            least_prefix = KEPT if parallel == 1 else KEPT_IN_PARALLEL
            budgets = given.budgets if parallel == 1 else "64000,smallest"
            for asked in budgets.split(","):
                if asked == "smallest" and not control.provider.loop:
                    continue
                budget = str(smallest(control)) if asked == "smallest" else asked
                run = ran(label, client, budget, given, parallel=parallel)
                print(run.row(control, least_prefix), flush=True)
                failed |= any(run.faults(control, least_prefix))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
