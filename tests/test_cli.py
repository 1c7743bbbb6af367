"""The command line, as a person uses it: the whole of `main`, here or in a process of its own."""

from __future__ import annotations

import gc
import gzip
import json
import os
import re
import subprocess
import sys
import weakref
import zipfile
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from unittest.mock import patch

import pytest
from typer.main import get_command

from ctxguard import __version__, adapting
from ctxguard.cli import main
from ctxguard.cli.options import words as words_of_options
from ctxguard.cli.program import COMMANDS as COMMAND_TABLE
from ctxguard.cli.program import app
from ctxguard.pii.rule_sets import _warn_of_names
from ctxguard.policies import POLICIES
from ctxguard.report.printing import working
from ctxguard.settings import install_command

pytestmark = pytest.mark.usefixtures("without_gain")

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "I am jane.doe@corp-mail.net"},
    *({"role": "assistant" if n % 2 == 0 else "user", "content": f"note {n} " * 40} for n in range(41)),
    {"role": "user", "content": "And now?"},
]


@dataclass
class Run:
    returncode: int
    stdout: str
    stderr: str


class Screen(StringIO):
    """A terminal, as far as a program can ask."""

    def isatty(self):
        return True


def cli(*args, stdin=None, width=120, screen=None, errors=None):
    """Run `main` in this process, with everything it reads and writes put in place."""
    words = ["ctxguard", *map(str, args)]
    said, complained, status = screen or StringIO(), errors or StringIO(), 0
    given = TextIOWrapper(BytesIO((stdin or "").encode()), encoding="utf-8")
    with (
        patch.object(sys, "argv", words),
        patch.object(sys, "stdin", given),
        patch.dict(os.environ, {"COLUMNS": str(width), "NO_COLOR": "1"}),
        redirect_stdout(said),
        redirect_stderr(complained),
    ):
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
    return Run(status, said.getvalue(), complained.getvalue())


def process(*args, stdin=None):
    return subprocess.run(
        [sys.executable, "-m", "ctxguard", *map(str, args)],
        capture_output=True,
        input=stdin,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1"},
    )


@pytest.fixture
def session(tmp_path):
    path = tmp_path / "session.json"
    path.write_text(json.dumps(MESSAGES), encoding="utf-8")
    return path


def test_help_names_every_command_and_every_command_has_help():
    told = process("--help")
    assert told.returncode == 0
    for command in (
        "stabilize",
        "check",
        "replay",
        "tokens",
        "demo",
        "adapters",
        "read",
        "pii",
        "prompts",
        "store",
        "audit",
    ):
        assert command in told.stdout
        own = cli(command, "--help")
        assert own.returncode == 0
        assert "Usage" in own.stdout


def test_the_version_is_that_of_the_package():
    run = subprocess.run([sys.executable, "-m", "ctxguard", "--version"], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, f"ctxguard {__version__}\n")


COMMANDS = sorted(COMMAND_TABLE)
LEAVES = [
    *((name,) for name in COMMANDS if name not in ("pii", "prompts", "store", "audit")),
    *(("pii", name) for name in ("scan", "mask", "eval", "explain", "init")),
    *(("store", name) for name in ("ls", "show", "gc")),
    ("prompts", "check"),
]


@pytest.mark.parametrize("words", [(), ("pii",), ("store",), ("prompts",), *LEAVES], ids=" ".join)
def test_help_fits_60_columns_and_names_no_type_of_a_flag(words):
    shown = cli(*words, "--help", width=60).stdout
    assert max(map(len, shown.splitlines())) <= 60
    assert shown.startswith(f"Usage: {' '.join(('ctxguard', *words))} ")
    for odd in ("<bool>", "<int range>", "<path>", "<str>", "default: (", "[bold]", "\x1b"):
        assert odd not in shown
    assert not re.search(r"\w\.\.\.$", shown.partition("\n")[2], re.MULTILINE)


def parameters_of(command):
    context = command.make_context("ctxguard", [], resilient_parsing=True)
    for name in getattr(command, "list_commands", lambda _: ())(context):
        inner = command.get_command(context, name)
        yield from ((f"{name} {below}".strip(), parameter) for below, parameter in parameters_of(inner))
    yield from (("", parameter) for parameter in command.params)


def test_every_option_has_words_and_all_words_are_of_an_option():
    found = [(words, each) for words, each in parameters_of(get_command(app)) if each.name not in ("version", "help")]
    assert len(found) > 100
    assert not [(words, each.name) for words, each in found if not each.help]
    for command, table in words_of_options().items():
        taken = {each.name for name, each in found if command == "options" or f"{name} ".startswith(f"{command} ")}
        assert table.keys() <= taken, f"data/commands.toml: {command}: {table.keys() - taken}"


@pytest.mark.parametrize("words", [(), ("pii",), ("store",)], ids=" ".join)
def test_a_group_without_a_command_shows_its_help(words):
    run = cli(*words)
    assert (run.returncode, run.stdout) == (0, cli(*words, "--help").stdout)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_of_each_what_its_own_help_says(name):
    assert (name, COMMAND_TABLE[name].about) in re.findall(r"^  (\w+) +(\S.*)$", cli("--help").stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["stabilizz"], "no such command 'stabilizz'. Did you mean 'stabilize'? (see ctxguard --help)"),
        (["stabilize"], "missing argument 'SESSION' (see ctxguard stabilize --help)"),
        (["stabilize", "--nonsense", "x"], "no such option: --nonsense (see ctxguard stabilize --help)"),
        (["pii", "scan"], "missing argument 'FILES' (see ctxguard pii scan --help)"),
        (
            ["pii", "scan", "x", "--rules", "all"],
            "no rule set 'all'; there are standard, people, ssn, digits, names, presidio\n",
        ),
        (["read", "x", "--lines", "b"], "--lines 'b' is not a range; write A:B with 1 <= A <= B"),
        (["serve"], "missing option '--upstream' / '-u' (see ctxguard serve --help)"),
        (["stabilize", "\x1b]0;title\x07"], "\\u001b]0;title\\u0007: no such file or directory"),
        (["\x1b]0;title\x07"], "no such command"),
        (["stabilize", "x", "--report", "\x1b[2J"], "invalid value for '--report'"),
        (["check", "none.json"], "none.json: no such file or directory\n"),
        (["check", "a\nb.json"], "a b.json: no such file or directory\n"),
        (["pii", "eval", "redis://:pw-of-u@127.0.0.1/x"], "redis://…@127.0.0.1/x: no such file or directory; give"),
        (["pii", "scan", "x", "--rules", "redis://:pw-of-u@127.0.0.1"], "no rule set 'redis://…@127.0.0.1'; there are"),
        (["tokens", "--usage", "deep"], "deep:1 is not JSON: maximum recursion depth exceeded"),
        (["prompts", "check", ".", "--entry", "/dev/null"], "'/dev/null': no pattern of files in the folder; write"),
        (["tokens", "folder"], "folder: is a directory\n"),
        (["pii", "eval", "none.jsonl"], "none.jsonl: no such file or directory; give a file of JSON lines\n"),
        (["pii", "eval", "binary"], "binary: not UTF-8 text (byte 0); give a file of JSON lines\n"),
        (["store", "ls", "empty"], "empty: no such store; name an SQLite file or a URL\n"),
        (
            ["replay", "x", "--prices", "none.yaml", "--model", "m"],
            "the price table none.yaml cannot be read (no such file or directory); name a YAML file, "
            "MODEL: {input, cache_read, cache_write, minimum, step, lifetime}, in numbers\n",
        ),
        (
            ["serve", "-u", "http://127.0.0.1:9", "--host", "192.0.2.1"],
            "192.0.2.1:8787: cannot assign requested address; name another port or host\n",
        ),
    ],
    ids=lambda value: None if isinstance(value, str) else " ".join(value).encode("unicode_escape").decode(),
)
def test_every_error_is_one_plain_line_that_says_what_to_do(words, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty").touch()
    (tmp_path / "deep").write_text("[" * 100_000)
    run = cli(*words)
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1)
    assert run.stderr.lower().startswith(f"ctxguard: {line}".lower())
    assert "\x1b" not in run.stderr
    assert "pw-of-u" not in run.stderr


def test_a_package_that_is_missing_is_one_line_and_names_a_command_that_works(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "presidio_analyzer", None)
    (tmp_path / "x.txt").write_text("x")
    run = cli("pii", "scan", tmp_path / "x.txt", "--rules", "presidio")
    assert (run.returncode, run.stderr) == (2, f"ctxguard: Presidio is not installed: {install_command('presidio')}\n")


def test_without_the_sdk_the_mcp_server_names_the_command_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    run = cli("mcp", "--root", tmp_path)
    told = f"ctxguard: the MCP server is an extra: {install_command('mcp')}\n"
    assert (run.returncode, run.stdout, run.stderr) == (2, "", told)


def test_no_command_offers_to_install_completion():
    for command in ("stabilize", "read", "pii", "prompts", "store", "audit"):
        assert "completion" not in cli(command, "--help").stdout


def test_errors_of_all_commands_begin_alike(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = (
        ("stabilize", "none.json"),
        ("read", "none.txt"),
        ("pii", "eval", "none.jsonl"),
        ("prompts", "check", "none"),
        ("store", "ls", "none.db"),
    )
    for words in commands:
        run = cli(*words)
        assert run.returncode == 2, words
        assert re.fullmatch(r"ctxguard: (?!ctxguard)[^\n]+\n", run.stderr), run.stderr


def test_an_adapter_whose_framework_is_missing_is_named_once(monkeypatch):
    monkeypatch.setitem(sys.modules, "langchain_core.messages", None)
    for module in [name for name in sys.modules if name.startswith("ctxguard_langchain")]:
        monkeypatch.delitem(sys.modules, module)
    told = cli("adapters").stdout
    assert re.search(r"^openai +ready, reads files$", told, re.MULTILINE)
    assert re.search(r"^pydantic-ai +ready, only in code", told, re.MULTILINE)
    assert re.search(r"^langchain +cannot be loaded: [^\n]+$", told, re.MULTILINE)


def test_help_names_every_policy():
    for command in ("stabilize", "replay"):
        assert ", ".join(POLICIES) in " ".join(cli(command, "--help").stdout.replace("│", " ").split())


def test_stabilize_prints_the_context(session):
    run = cli("stabilize", session, "--budget", 600)
    assert run.returncode == 0, run.stderr
    context = json.loads(run.stdout)
    assert context[0] == MESSAGES[0]
    assert context[1]["content"] == "I am [REDACTED_EMAIL]"
    assert context[-1] == MESSAGES[-1]
    assert len(context) < len(MESSAGES)


def test_the_report_as_text_json_and_html(session):
    assert "tokens of 600" in cli("stabilize", session, "--budget", 600, "--report", "text").stdout
    told = json.loads(cli("stabilize", session, "--budget", 600, "--report", "json").stdout)
    assert told["ok"]
    assert told["tokens_after"] <= 600
    assert cli("stabilize", session, "--budget", 600, "--report", "html").stdout.startswith("<!doctype html>")


def test_output_takes_the_context_and_the_report_is_printed(session, tmp_path):
    out = tmp_path / "out.json"
    run = cli("stabilize", session, "-b", 600, "-o", out)
    assert run.returncode == 0
    assert "tokens of 600" in run.stdout
    assert json.loads(out.read_text())[0] == MESSAGES[0]


@pytest.mark.parametrize("command", ["stabilize", "replay"])
def test_an_output_that_cannot_be_written_is_one_line(session, tmp_path, command):
    for place, why in ((tmp_path / "none" / "x.json", "no such file or directory"), (tmp_path, "is a directory")):
        run = cli(command, session, "-o", place)
        assert run.returncode == 2
        assert run.stderr == f"ctxguard: {place} cannot be written ({why}); name a file in a folder that is there\n"


def test_output_named_gz_is_gzipped(session, tmp_path):
    packed = tmp_path / "out.json.gz"
    assert cli("stabilize", session, "-b", 600, "-o", packed).returncode == 0
    assert json.loads(gzip.decompress(packed.read_bytes()))[0] == MESSAGES[0]
    assert cli("check", packed, "-b", 600).stdout == "ok\n"


def test_reports_of_several_sessions_are_a_document_a_line_and_one_page(tmp_path):
    several = tmp_path / "several.jsonl"
    several.write_text("\n".join(json.dumps({"id": i, "messages": MESSAGES}) for i in "ab"))
    told = cli("stabilize", several, "-b", 600, "-r", "json").stdout.splitlines()
    assert [json.loads(line)["ok"] for line in told] == [True, True]
    page = cli("stabilize", several, "-b", 600, "-r", "html").stdout
    assert page.count("<!doctype html>") == 1
    assert ">session 1</h2>" in page
    shown = cli("stabilize", several, "-b", 600, "-r", "text").stdout
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("session ")] == ["0:", "1:"]


def test_standard_input_and_gzip_and_lines_are_read(tmp_path):
    assert cli("tokens", "-", stdin=json.dumps(MESSAGES)).stdout.startswith(
        cli("tokens", "-", stdin="\n".join(map(json.dumps, MESSAGES))).stdout.split()[0]
    )
    assert process("tokens", "-", stdin="just some text").stdout == cli("tokens", "-", stdin="just some text").stdout
    packed = tmp_path / "many.jsonl.gz"
    packed.write_bytes(gzip.compress("\n".join(json.dumps({"id": i, "messages": MESSAGES}) for i in "ab").encode()))
    run = cli("stabilize", packed, "-b", 600)
    assert [json.loads(line)["id"] for line in run.stdout.splitlines()] == ["a", "b"]


def test_tokens_says_which_counter_and_how_exact(tmp_path):
    run = cli("tokens", "-", "--counter", "estimate", stdin="just some text")
    assert "plain text" in run.stdout
    assert "estimated by byte classes" in run.stdout
    assert "exactly by cl100k_base" in cli("tokens", "-", "--counter", "cl100k_base", stdin="text").stdout


def test_tokens_breaks_a_request_down_by_its_model(tmp_path):
    body = {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello there"}]}
    body["tools"] = [{"name": "look", "input_schema": {"type": "object", "properties": {}}}]
    run = cli("tokens", "-", stdin=json.dumps(body))
    assert "a request to the anthropic API; counted by claude-4" in run.stdout
    for part in ("messages", "tools", "hidden prompts", "framing", "margin"):
        assert f"  {part}" in run.stdout
    other = cli("tokens", "-", "--model", "gpt-4o", stdin=json.dumps(body)).stdout
    assert int(other.split()[0]) < int(run.stdout.split()[0])


def test_tokens_compares_with_recorded_usage(tmp_path):
    file = tmp_path / "usage.jsonl"
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]}
    file.write_text(json.dumps({"request": body, "input_tokens": 8}) + "\n")
    run = cli("tokens", file, "--usage")
    assert "chat, gpt-4o, plain" in run.stdout
    assert "100%" in run.stdout
    file.write_text(json.dumps({"request": body}) + "\n")
    bad = cli("tokens", file, "--usage")
    assert (bad.returncode, bad.stderr.count("\n")) == (2, 1)
    assert "input_tokens" in bad.stderr


def test_check_says_what_is_wrong_and_exits_with_1(tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps([*MESSAGES, {"role": "tool", "tool_call_id": "9", "content": "lost"}, MESSAGES[0]]))
    run = cli("check", bad)
    assert run.returncode == 1
    assert "CallsArePaired: a tool result answers no open call: message 44 (tool result) @ artifacts[44]" in run.stdout
    assert "AuthorityFirst" not in run.stdout, "a system message that arrives late keeps its place"


def test_check_of_personal_data_names_type_and_place_and_never_the_value(session):
    assert cli("check", session).returncode == 0
    run = cli("check", session, "--pii")
    assert run.returncode == 1
    assert "EMAIL was found: the text of message 1 (user) @ artifacts[1].content[5:27]" in run.stdout
    count = run.stdout.count("EMAIL was found")
    assert f"NoPII: {count} EMAIL" in run.stdout
    assert "jane" not in run.stdout + run.stderr


def test_check_reports_as_json_what_it_prints_as_text(session):
    run = cli("check", session, "--pii", "--budget", 100, "--report", "json")
    told = json.loads(run.stdout)
    (one,) = told["sessions"]
    assert (run.returncode, told["ok"], one["ok"]) == (1, False, False)
    assert {"WithinBudget", "NoPII", "CallsArePaired"} <= set(one["checks"])
    shown = cli("check", session, "--pii", "--budget", 100).stdout
    for finding in one["findings"]:
        where = f": {finding['place']}" if finding["place"] else ""
        assert f"{one['id']}: {finding['check']}: {finding['message']}{where} @ {finding['path']}\n" in shown
    good = cli("check", session, "--report", "json")
    assert (good.returncode, json.loads(good.stdout)["ok"]) == (0, True)


def test_the_headroom_is_left_free(session):
    assert "exceed the budget of 400" in cli("check", session, "--budget", 500, "--headroom", 100).stdout
    assert "tokens of 500" in cli("stabilize", session, "-b", 600, "--headroom", 100, "-r", "text").stdout
    run = cli("check", session, "--budget", 100, "--headroom", 100)
    assert (run.returncode, run.stderr) == (2, "ctxguard: a headroom of 100 leaves nothing of a budget of 100\n")


def test_target_and_trail_are_those_of_the_window(session):
    def tokens(*words):
        return json.loads(cli("stabilize", session, "-b", 1_000, "-r", "json", *words).stdout)["tokens_after"]

    assert tokens("--target", 0.2) < tokens("--target", 0.9)
    assert tokens("--trail", 0) != tokens("--trail", 0.9)
    assert cli("stabilize", session, "-b", 1_000, "--target", 7).returncode == 2
    for command in ("stabilize", "replay"):
        run = cli(command, session, "-b", 1_000, "--policy", "long_session", "--target", 0.3)
        assert (run.returncode, run.stderr.count("\n")) == (2, 1)
        assert "--target is a setting of the window, and policy 'long_session' has none; leave it out" in run.stderr


def test_what_people_said_is_bounded_where_that_is_asked_for(tmp_path):
    path = tmp_path / "long.json"
    path.write_text(json.dumps([{"role": "user", "content": "one more line of a long log\n" * 400}]), encoding="utf-8")
    for command in ("stabilize", "replay"):
        words = (command, path, "-b", 500, "--on-overflow")
        assert "on_overflow='bound'" not in cli(*words, "bound").stderr
        assert cli(*words, "never").returncode == 2
    assert "have it bounded: on_overflow='bound'" in cli("stabilize", path, "-b", 500).stderr
    refused = cli("stabilize", path, "-b", 500, "--policy", "pattern", "--on-overflow", "bound").stderr
    assert "--on-overflow is a setting of the window, and policy 'pattern' has none; leave it out" in refused


def test_the_model_says_how_is_counted(session, tmp_path):
    report = cli("stabilize", session, "-b", 2_000, "--model", "claude-sonnet-4-5", "-r", "text").stdout
    assert "claude" in report
    prices = tmp_path / "prices.yaml"
    prices.write_text("claude-sonnet-4-5: {input: 3.0}\n")
    run = cli("replay", session, "-b", 2_000, "--model", "claude-sonnet-4-5", "--prices", prices, "-r", "json")
    told = json.loads(run.stdout)
    assert (told["model"], "claude" in told["counter"]) == ("claude-sonnet-4-5", True)


NOT_SOUGHT = "names and postal addresses are not looked for"


def test_pii_scan_lists_places_and_counts_and_exits_with_1(session, tmp_path):
    clean = tmp_path / "clean.txt"
    clean.write_text("order 24813")
    run = cli("pii", "scan", clean, session)
    assert run.returncode == 1
    assert re.fullmatch(
        rf"{session}:1:\d+: EMAIL in the text of message 1 \(user\)\n1 finding in 2 files: 1 EMAIL; {NOT_SOUGHT}\n",
        run.stdout,
    )
    assert cli("pii", "scan", clean).stdout == f"0 findings in 1 file; {NOT_SOUGHT}\n"
    told = json.loads(cli("pii", "scan", "-", "--rules", "digits,standard", "-r", "json", stdin="id 24813").stdout)
    assert told["files"] == [
        {"file": "-", "counts": {"NUMBER": 1}, "findings": [{"line": 1, "column": 4, "label": "NUMBER", "place": ""}]}
    ]
    assert "jane" not in run.stdout


def test_pii_scan_reads_a_folder_and_names_each_file_that_it_cannot_search(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "wide.csv").write_bytes("name;mail\nMüller;eve@corp-mail.net\n".encode("utf-16"))
    (tmp_path / "latin.txt").write_bytes("Müller: bob@corp-mail.net".encode("latin-1"))
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(99))
    page = tmp_path.parent / "page.html"
    run = cli("pii", "scan", tmp_path, "none.txt", "--html", page)
    assert run.returncode == 1
    assert [line.rpartition("/")[2] for line in run.stdout.splitlines()] == [
        "wide.csv:2:8: EMAIL",
        "latin.txt:1:9: EMAIL",
        f"2 findings in 2 files: 2 EMAIL; 2 files could not be searched; {NOT_SOUGHT}",
    ]
    missing = ["picture.png: has no text that can be searched (image)", "ctxguard: none.txt: no such file or directory"]
    assert [line.rpartition("/")[2] for line in run.stderr.splitlines()] == missing
    assert "Not searched" in page.read_text(encoding="utf-8")
    (tmp_path / "latin.txt").write_text("")
    (tmp_path / "below" / "wide.csv").unlink()
    told = cli("pii", "scan", tmp_path, "-r", "json")
    assert (told.returncode, json.loads(told.stdout)["ok"], len(json.loads(told.stdout)["skipped"])) == (2, False, 1)
    assert cli("pii", "scan", tmp_path / "below").stderr == f"ctxguard: {tmp_path / 'below'} contains no file\n"


@pytest.mark.parametrize("command", ["scan", "explain"])
def test_pii_scan_and_explain_read_the_whole_of_documents_and_workbooks(command, tmp_path):
    openpyxl = pytest.importorskip("openpyxl", reason="the extra `files` is not installed")
    pytest.importorskip("mammoth", reason="the extra `files` is not installed")
    book = openpyxl.Workbook()
    for number in range(900):
        book.active.append([number, "x" if number != 450 else "ada@corp-mail.net"])
    book.create_sheet("Two").append(["two\nlines", "eve@corp-mail.net"])
    book.save(tmp_path / "book.xlsx")
    name = "http://schemas.openxmlformats.org/"
    with zipfile.ZipFile(tmp_path / "letter.docx", "w") as document:
        document.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{name}package/2006/content-types"><Default Extension="rels" '
            'ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Override '
            'PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument'
            '.wordprocessingml.document.main+xml"/></Types>',
        )
        document.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{name}package/2006/relationships"><Relationship Id="r" Target="word/document.xml" '
            f'Type="{name}officeDocument/2006/relationships/officeDocument"/></Relationships>',
        )
        document.writestr(
            "word/document.xml",
            f'<w:document xmlns:w="{name}wordprocessingml/2006/main"><w:body><w:p><w:r><w:t>Write to '
            "jane@corp-mail.net</w:t></w:r></w:p></w:body></w:document>",
        )
    assert [line.split()[0] for line in cli("pii", command, tmp_path / "book.xlsx").stdout.splitlines()][:2] == [
        f"{tmp_path / 'book.xlsx'}:452:5:",
        f"{tmp_path / 'book.xlsx'}:904:8:",
    ]
    assert "letter.docx:1:10: EMAIL" in cli("pii", command, tmp_path / "letter.docx").stdout


def test_pii_mask_keeps_everything_else_and_never_overwrites_its_source(session, tmp_path):
    masked, packed = tmp_path / "masked.json", tmp_path / "masked.json.gz"
    assert cli("pii", "mask", session, "-o", masked).returncode == 0
    assert masked.read_text() == session.read_text().replace("jane.doe@corp-mail.net", "[REDACTED_EMAIL]")
    assert cli("pii", "mask", session, "-o", packed).returncode == 0
    assert gzip.decompress(packed.read_bytes()) == masked.read_bytes()
    assert cli("pii", "scan", masked, packed).returncode == 0
    text = "mail jane@corp-mail.net twice: jane@corp-mail.net\r\n\n"
    run = cli("pii", "mask", "-", "--strategy", "pseudonymize", stdin=text)
    assert run.stdout == "mail <EMAIL_1> twice: <EMAIL_1>\r\n\n"
    assert cli("pii", "mask", session, "-o", session).returncode == 2


def test_check_of_a_budget(session):
    run = cli("check", session, "--budget", 100)
    assert run.returncode == 1
    assert "WithinBudget" in run.stdout


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('[{"role": "user", "content": ', "not valid JSON"),
        ('{"role": "user", "content": "x"}\n{"role": ', "2: not valid JSON"),
        ("", "the file is empty"),
        ('[{"role": "user", "content": NaN}]', "NaN is not valid JSON"),
        ('"hello"', "expected a list of messages, got str"),
        (
            '{"name": "x"}',
            "expected an object with a list of 'messages', 'input', 'contents', or 'artifacts'; it has name",
        ),
        ('[{"content": "x"}]', "message 0: it has no 'role'"),
        ("[5]", "message 0: expected a dict with 'role' and 'content', got int"),
        ("[" * 100_000, "nested too deeply"),
        ("\x1f\x8b\x08 broken gzip", "not valid JSON"),
    ],
    ids=[
        "truncated",
        "truncated line",
        "empty",
        "NaN",
        "a text",
        "no messages",
        "no role",
        "a number",
        "deep",
        "odd bytes",
    ],
)
def test_unreadable_input_is_one_line_and_exit_code_2(tmp_path, content, line):
    path = tmp_path / "broken.json"
    path.write_text(content)
    for command in ("stabilize", "check"):
        run = cli(command, path)
        assert run.returncode == 2, run.stdout
        assert run.stderr.count("\n") == 1
        assert line in run.stderr
        assert "broken.json" in run.stderr
        assert run.stdout == ""


def test_damaged_gzip_and_missing_files_are_one_line(tmp_path):
    damaged = tmp_path / "x.gz"
    damaged.write_bytes(gzip.compress(b'[{"role": "user", "content": "x"}]' * 50)[:40])
    assert "the gzip data is damaged" in cli("stabilize", damaged).stderr
    run = cli("stabilize", tmp_path / "none.json")
    assert run.returncode == 2
    assert run.stderr == f"ctxguard: {tmp_path / 'none.json'}: no such file or directory\n"


@pytest.mark.parametrize(
    "args",
    [
        ["--budget", "0"],
        ["--budget", "many"],
        ["--policy", "magic"],
        ["--adapter", "nope"],
        ["--provider", "acme"],
        ["--rules", "standard,peeple"],
        ["--nonsense"],
    ],
)
def test_bad_usage_exits_with_2(session, args):
    run = cli("stabilize", session, *args)
    assert run.returncode == 2
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("option", ["--budget", "--budgets", "-b"])
@pytest.mark.parametrize("written", ["much", "0", "2.5", "4k,,8k", "4k,80%"])
def test_replay_and_bench_read_budgets_alike(session, option, written):
    replayed, compared = (cli(command, session, option, written) for command in ("replay", "bench"))
    assert replayed.returncode == compared.returncode == 2
    assert compared.stderr.splitlines()[-1] == replayed.stderr.splitlines()[-1]
    assert "budget" in replayed.stderr


@pytest.mark.parametrize(("written", "tokens"), [("2k", "2,000"), ("1.5K", "1,500"), ("700", "700")])
def test_budgets_may_be_written_in_thousands_wherever_one_is_asked_for(session, written, tokens):
    assert f" tokens of {tokens} " in cli("stabilize", session, "--budget", written, "--report", "text").stdout
    assert f"budget {tokens}" in cli("replay", session, "--budget", written).stdout


def test_a_budget_that_cannot_hold_what_must_stay_is_one_line(session):
    run = cli("stabilize", session, "--budget", 20)
    assert run.returncode == 2
    assert "the budget is 20" in run.stderr
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [["demo"], ["stabilize", "-"]])
def test_a_report_as_html_is_a_page(command):
    run = cli(*command, "--report", "html", stdin=json.dumps(MESSAGES))
    assert run.stdout.startswith('<!doctype html>\n<html lang="en"><head><meta charset="utf-8">')
    assert run.stdout.count("<title>") == run.stdout.count("</html>") == 1


def test_the_session_of_the_demo_can_be_saved_and_tried(tmp_path):
    saved = tmp_path / "session.json"
    run = cli("demo", "--save", saved)
    assert (run.returncode, run.stderr) == (0, f"ctxguard: the session is in {saved}\n")
    assert "(1 session; " in cli("tokens", saved).stdout
    assert cli("check", saved, "--provider", "openai").returncode == 0
    assert json.loads(saved.read_text()).keys() == {"messages", "tools"}


WHERE_SAID = "names and postal addresses are found where the text says what they are"


def test_pii_scan_finds_names_by_the_rules_that_look_for_them():
    said = "My name is Ada Lovelace."
    assert cli("pii", "scan", "-", stdin=said).returncode == 0
    run = cli("pii", "scan", "-", "--rules", "standard,people", stdin=said)
    assert (run.returncode, run.stdout) == (1, f"-:1:12: PERSON\n1 finding in 1 file: 1 PERSON; {WHERE_SAID}\n")


def test_people_alone_is_said_to_find_no_addresses_of_mail():
    for rules, warns in (("standard,people", False), ("people", True), ("people", False)):
        if warns:
            _warn_of_names.cache_clear()
        run = cli("pii", "scan", "-", "--rules", rules, stdin="ann@velo.example")
        assert run.stderr.count("alone finds only names and postal addresses") == warns
        assert len(run.stderr.splitlines()) == warns


@pytest.mark.slow
def test_reports_fit_a_narrow_terminal_and_files_get_whole_lines(session, tmp_path):
    usage = tmp_path / "usage.jsonl"
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]}
    usage.write_text(json.dumps({"request": body, "input_tokens": 8}) + "\n")
    commands = (
        ["adapters"],
        ["stabilize", session, "-b", 600, "-r", "text"],
        ["replay", session, "-b", 600],
        ["tokens", session],
        ["tokens", usage, "--usage"],
    )
    for words in commands:
        narrow, piped = cli(*words, width=60, screen=Screen()).stdout, cli(*words).stdout
        assert max(map(len, narrow.splitlines())) <= 60 < max(map(len, piped.splitlines())), words
        if words[0] != "replay":  # it tells times
            assert narrow.split() == piped.split()


def test_what_takes_long_is_shown_on_a_terminal_and_nothing_else_is(monkeypatch):
    quick, slow = Screen(), Screen()
    with patch.object(sys, "stderr", quick), working("reading"):
        pass
    monkeypatch.setenv("TERM", "xterm")
    with patch.object(sys, "stderr", slow), working("reading", after=0) as now:
        now("reading \x1b[2J file 2")
    assert quick.getvalue() == ""
    assert "reading \\u001b[2J file 2" in slow.getvalue()


@pytest.mark.parametrize(
    "words",
    [
        ("stabilize", "session.json"),
        ("check", "session.json"),
        ("replay", "session.json"),
        ("tokens", "session.json"),
        ("tokens", "usage.jsonl", "--usage"),
        ("demo",),
        ("adapters",),
        ("read", "session.json"),
        ("pii", "scan", "session.json"),
        ("pii", "mask", "session.json"),
        ("pii", "eval", "gold.jsonl"),
        ("prompts", "check", "prompts"),
        ("bench", "session.json", "--budgets", "600", "--only", "rolling window", "--processes", "1"),
    ],
    ids=" ".join,
)
def test_every_command_that_reads_what_may_be_large_shows_that_it_works(words, session, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr("ctxguard.report.printing._show", lambda latest, *_: shown.append(latest[0]))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "a.md").write_text("Be brief.")
    (tmp_path / "gold.jsonl").write_text('{"text": "ada", "spans": []}')
    request = {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]}
    (tmp_path / "usage.jsonl").write_text(json.dumps({"request": request, "input_tokens": 7, "model": "gpt-5"}))
    run = cli(*words, errors=Screen())
    assert run.returncode < 2, run.stderr
    assert shown


@pytest.mark.slow
def test_replay_shows_on_a_terminal_alone_how_far_it_is(session):
    assert "session," not in cli("replay", session, "--budget", 600).stderr
    pty = pytest.importorskip("pty", reason="no pseudo-terminals here")
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "ctxguard", "replay", str(session), "--budget", "600", "--processes", "1"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=theirs, env={**os.environ, "TERM": "xterm"}) as run:
        os.close(theirs)
        shown = b"".join(written_to(ours)).decode()
    assert run.returncode == 0
    assert "1 session, 21 calls" in shown


def written_to(screen):
    """Walk what is written to a terminal until nobody has it open any more: Linux then says so by an error."""
    with suppress(OSError):
        while written := os.read(screen, 4_096):
            yield written
    os.close(screen)


def test_what_is_read_is_never_written_over(session, tmp_path):
    before, figures = session.read_bytes(), tmp_path / "figures.json"
    figures.write_text("{}")
    linked = tmp_path / "linked.json"
    linked.symlink_to(session)
    for command, output in (("stabilize", session), ("stabilize", linked), ("replay", session)):
        run = cli(command, session, "--output", output)
        assert (run.returncode, run.stdout) == (2, "")
        assert "is read here and would be lost; name another file for --output" in run.stderr
    assert cli("replay", session, "--baseline", figures, "--output", figures).returncode == 2
    assert session.read_bytes() == before


def replayed(*words):
    """The figures of the only run of a replay."""
    (run,) = json.loads(cli(*words, "--report", "json").stdout)["runs"]
    return run["figures"]


@pytest.fixture
def configured(session, tmp_path, monkeypatch):
    """A session in the working directory, beside a configuration."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ctxguard.yaml").write_text("stabilizer: {budget: 700, policy: chat, counter: estimate}\n")
    return session.name


def test_the_configuration_of_the_working_directory_is_used_and_named(configured):
    run = cli("stabilize", configured, "--report", "text")
    assert "tokens of 700" in run.stdout
    assert "counted by estimate" in run.stdout
    assert run.stderr == "ctxguard: settings of ctxguard.yaml\n"
    assert replayed("replay", configured)["cuts"] > 5
    checked = cli("check", configured)
    assert (checked.returncode, checked.stderr) == (1, run.stderr)
    assert "exceed the budget of 700" in checked.stdout


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("pii", "scan", "{0}"), 1),
        (("pii", "mask", "{0}"), 0),
        (("pii", "explain", "{0}"), 0),
        (("stabilize", "{0}", "--budget", 900), 0),
        (("check", "{0}", "--budget", 9000), 0),
        (("brief", "{0}"), 0),
        (("replay", "{0}", "--budget", 900), 0),
        (("read", "{0}"), 0),
        (("pii", "scan", "none.json"), 2),
        (("stabilize", "none.json"), 2),
    ],
)
def test_every_command_says_that_a_configuration_above_is_not_read(configured, tmp_path, monkeypatch, words, status):
    below = tmp_path / "app"
    below.mkdir()
    monkeypatch.chdir(below)
    run = cli(*(str(word).format(f"../{configured}") for word in words))
    warned, *told = run.stderr.splitlines()
    assert run.returncode == status
    assert len(told) == 1 or status < 2, "an error is one line"
    above = tmp_path / "ctxguard.yaml"
    assert warned.startswith(f"ctxguard: {above} is not read: its folder is not the working directory; name the file")


def test_the_environment_comes_before_the_file_and_an_option_before_both(configured, monkeypatch):
    monkeypatch.setenv("CTXGUARD_STABILIZER__BUDGET", "650")
    run = cli("stabilize", configured, "-r", "text")
    assert "tokens of 650" in run.stdout
    assert run.stderr == "ctxguard: settings of ctxguard.yaml, CTXGUARD_STABILIZER__BUDGET\n"
    assert "tokens of 600" in cli("stabilize", configured, "-r", "text", "--budget", 600).stdout
    assert "exceed the budget of 600" in cli("check", configured, "--budget", 600).stdout


def test_a_named_configuration_comes_in_place_of_the_one_found(configured, tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text("stabilizer: {budget: 900}\nmax_tokens_per_file: 40\n")
    assert "tokens of 900" in cli("stabilize", configured, "-r", "text", "--config", own).stdout
    assert "exceed the budget of 900" in cli("check", configured, "--config", own).stdout
    assert "tokens of 2,900" in cli("demo", "--config", own, "--budget", 2_900).stdout
    assert len(cli("read", configured, "--config", own).stdout) < 400 < len(cli("read", configured).stdout)
    assert cli("check", configured, "--config", "none.yaml").returncode == 2


def test_a_share_as_budget_needs_the_window_or_the_model(configured, tmp_path):
    (tmp_path / "ctxguard.yaml").write_text("stabilizer: {budget: 80%}\n")
    assert "tokens of 800" in cli("stabilize", configured, "-r", "text", "--window", 1_000).stdout
    assert "tokens of 500" in cli("stabilize", configured, "-r", "text", "--window", 1_000, "-b", "50%").stdout
    assert "exceed the budget of 800" in cli("check", configured, "--window", 1_000).stdout
    assert replayed("replay", configured, "--window", 1_000)["calls"] == 21
    assert "tokens of 3,000" in cli("demo", "--budget", "50%", "--window", 6_000).stdout
    assert "tokens of 2,500 (" in cli("stabilize", configured, "-r", "text", "-b", "2%", "--model", "gpt-4o").stdout
    (tmp_path / "ctxguard.yaml").write_text("stabilizer: {budget: 2%, model: gpt-4o, headroom: 0}\n")
    assert "tokens of 2,560" in cli("stabilize", configured, "-r", "text").stdout


@pytest.mark.slow
def test_any_text_is_written_whatever_the_locale_and_half_a_surrogate_is_replaced(tmp_path):
    path, output = tmp_path / "odd.json", tmp_path / "out.json"
    path.write_text('{"messages": [{"role": "user", "content": "K\\u00e4se \\ud83e\\uddc0 \\ud800"}]}')
    words = [sys.executable, "-m", "ctxguard", "stabilize", path]
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    run = subprocess.run(words, capture_output=True, check=False, env=ascii_only)
    assert (run.returncode, run.stderr) == (0, b"")
    assert json.loads(run.stdout)["messages"][0]["content"] == "Käse 🧀 \ufffd"
    assert cli("stabilize", path, "--output", output).returncode == 0
    assert output.read_bytes() == run.stdout


FULL = Path("/dev/full")


@pytest.mark.slow
@pytest.mark.skipif(not FULL.exists(), reason="no device that is always full here")
def test_a_full_disk_is_one_line(session):
    words = [sys.executable, "-m", "ctxguard", "stabilize", session]
    with FULL.open("w") as full:
        run = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (run.returncode, run.stderr) == (2, "ctxguard: standard output: no space left on device\n")


def test_bundles_of_artifacts_are_read_and_written_in_their_own_shape(tmp_path):
    path = tmp_path / "bundle.json"
    items = [
        {"id": "a", "kind": "system", "content": "Be brief."},
        {"id": "b", "kind": "message", "authority": "user", "content": "call 5551234"},
    ]
    path.write_text(json.dumps({"artifacts": items}))
    out = json.loads(cli("stabilize", path, "--policy", "long_session").stdout)
    assert out["artifacts"] == [items[0], {**items[1], "content": "call [REDACTED]"}]


def test_without_its_extra_the_command_line_says_in_one_line_how_to_get_it():
    program = "import sys; sys.modules['typer'] = None\nfrom ctxguard.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"the command line needs {install_command('cli')}\n"


def test_a_report_is_freed_when_it_is_written_so_that_a_file_may_have_thousands_of_sessions(tmp_path, monkeypatch):
    rows = [{"messages": [{"role": "user", "content": f"Where is order A-{n}?"}]} for n in range(30)]
    path, output = tmp_path / "many.jsonl", tmp_path / "context.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    stabilize, made, alive = adapting.stabilize_request, [], []

    def watched(*given):
        gc.collect()
        alive.append(sum(report() is not None for report in made))
        done, report = stabilize(*given)
        made.append(weakref.ref(report))
        return done, report

    monkeypatch.setattr(adapting, "stabilize_request", watched)
    run = cli("stabilize", path, "--budget", "1k", "-o", output)
    assert run.returncode == 0
    assert "session 29:" in run.stdout
    assert len(output.read_text(encoding="utf-8").splitlines()) == len(made) == 30
    assert max(alive) <= 2
