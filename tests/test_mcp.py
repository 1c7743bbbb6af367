"""`ctxguard mcp`, the real command, as the SDK's own client calls it over standard input and output."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from patience import PATIENCE
from test_cli import cli

from ctxguard import Artifact, Stabilizer, ToolCall
from ctxguard.cli.mcp import _masking
from ctxguard.content import handle_of
from ctxguard.content.results import NAMESPACE
from ctxguard.pii import STANDARD
from ctxguard.policies import agent_stages
from ctxguard.stores import SQLiteStore

pytest.importorskip("mcp.server.mcpserver", reason="the extra mcp is not installed")

from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

ROOT = Path(__file__).parents[1]
COMMAND = ("-m", "ctxguard", "mcp")
MAIL = "jane.doe@corp-mail.net"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "adapters")))}


@asynccontextmanager
async def client(*options, cwd=None, log=None):
    """Start the command and connect to it; whatever it writes to standard error goes to `log`."""
    words = [*COMMAND, *map(str, options)]
    server = StdioServerParameters(command=sys.executable, args=words, env=ENVIRONMENT, cwd=cwd)
    async with stdio_client(server, log or sys.stderr) as streams, ClientSession(*streams) as session:
        await session.initialize()
        yield session


async def answer(session, tool, **arguments):
    """Return the text of an answer that is no error."""
    result = await session.call_tool(tool, arguments)
    assert not result.is_error, result.content
    (part,) = result.content
    return part.text


async def refusal(session, tool, **arguments):
    """Return the text of an error, which is one line."""
    result = await session.call_tool(tool, arguments)
    assert result.is_error
    (part,) = result.content
    assert part.text
    assert len(part.text.splitlines()) == 1
    assert "Traceback" not in part.text
    return part.text


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret.txt").write_text("the secret\n")
    (inside / "lines.txt").write_text("".join(f"line {number}\n" for number in range(1, 2001)))
    (inside / "table.csv").write_text("name,age\n" + "".join(f"p{number},{number}\n" for number in range(1, 100)))
    return inside


async def test_each_tool_says_what_it_and_its_arguments_are_for(tmp_path):
    async with client("--store", tmp_path / "results.db", "--root", tmp_path) as session:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
    assert set(tools) == {"recall", "view_file", "find_personal_data", "mask_personal_data"}
    for tool in tools.values():
        assert tool.description
        assert tool.annotations.read_only_hint
        assert all(each["description"] for each in tool.input_schema["properties"].values())


async def test_without_a_store_there_is_nothing_to_read_back(tmp_path):
    async with client(cwd=tmp_path) as session:
        assert "recall" not in [tool.name for tool in (await session.list_tools()).tools]
        await refusal(session, "recall", handle="a" * 20)


async def test_a_saved_result_is_read_back_by_lines_and_by_text(tmp_path):
    place, text = tmp_path / "results.db", "\n".join(f"row {number}" for number in range(1, 3001))
    odd = json.dumps({"broken": "\ud800", "long": "x" * 500})
    async with client("--store", place, "--root", tmp_path) as session:
        assert "no such store" in await refusal(session, "recall", handle=handle_of(text))
        assert not place.exists()
        with SQLiteStore(place) as store:  # a program saves its results while the server runs
            for each in (text, odd):
                store.put_new(NAMESPACE, handle_of(each), each.encode())
        read = await answer(session, "recall", handle=handle_of(text), first_line=2998)
        assert read.splitlines()[1:] == ["row 2998", "row 2999", "row 3000"]
        read = await answer(session, "recall", handle=handle_of(text), first_line=5, last_line=6)
        assert read.splitlines()[1:] == ["row 5", "row 6"]
        read = await answer(session, "recall", handle=handle_of(text), contains="row 299")
        assert [line.partition(": ")[2] for line in read.splitlines()[1:]] == [
            "row 299", *(f"row {number}" for number in range(2990, 3000))
        ]  # fmt: skip
        assert "?" in await answer(session, "recall", handle=handle_of(odd))  # no message can hold a lone surrogate
        assert "nothing is saved" in await answer(session, "recall", handle="../../secret.txt")
        assert "first_line" in await refusal(session, "recall", handle=handle_of(text), first_line=0)


async def test_what_a_cut_took_is_read_back_masked(tmp_path):
    place, number = tmp_path / "results.db", 30
    big = "\n".join(f"{n}: mail to {MAIL}" for n in range(2000))
    with SQLiteStore(place) as store:
        stabilizer = Stabilizer(2_000, stages=agent_stages(store=store))
        history = [Artifact("user", "Look."), Artifact("assistant", "", calls=[ToolCall("read", "{}", id="1")])]
        history += [Artifact("tool", big, answers="1"), Artifact("user", "And?")]
        shown = "".join(artifact.text for artifact in stabilizer.stabilize(history).artifacts)
    handle = re.search(r"handle ([a-p]{20})", shown)[1]
    async with client("--store", place, "--root", tmp_path) as session:
        read = await answer(session, "recall", handle=handle, first_line=number + 1, last_line=number + 1)
    assert read.splitlines()[1:] == [f"{number}: mail to [REDACTED_EMAIL]"]


async def test_a_file_is_viewed_within_a_limit(folder):
    pillow = pytest.importorskip("PIL.Image")
    pillow.new("RGB", (4, 3)).save(folder / "dot.png")
    async with client(cwd=folder) as session:  # the root is the working directory
        view = await answer(session, "view_file", path="lines.txt", max_tokens=100)
        assert "of 2000 shown" in view
        assert len(view) < 1000
        assert view == await answer(session, "view_file", path=str(folder / "lines.txt"), max_tokens=100)
        assert await answer(session, "view_file", path="lines.txt", lines="7:8") == "line 7\nline 8\n"
        assert "p9,9" in await answer(session, "view_file", path="table.csv", rows="9")
        (image,) = (await session.call_tool("view_file", {"path": "dot.png"})).content
        assert image.mime_type == "image/png"
        assert base64.b64decode(image.data).startswith(b"\x89PNG")


async def test_no_path_leads_out_of_the_root(folder):
    (folder / "link").symlink_to(folder.parent / "secret.txt")
    (folder / "up").symlink_to(folder.parent)
    os.mkfifo(folder / "pipe")
    paths = [
        *("../secret.txt", str(folder.parent / "secret.txt"), "link", "up/secret.txt", "./up/../../secret.txt"),
        *("pipe", "/dev/zero", "/proc/self/environ", ".", "", "absent", "a\0b", "a\nb", "x" * 5000, "~/secret.txt"),
    ]
    async with client("--root", folder) as session:
        for path in paths:
            assert "the secret" not in await refusal(session, "view_file", path=path)
        assert await answer(session, "view_file", path="lines.txt", lines="1") == "line 1\n"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
async def test_a_root_whose_name_is_not_utf_8_can_be_named_in_an_error(tmp_path):
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    os.mkdir(odd)  # noqa: PTH102 - the same without pathlib
    async with client(cwd=odd) as session:
        assert "outside" in await refusal(session, "view_file", path="../x")


async def test_findings_are_places_without_values(tmp_path):
    async with client("--root", tmp_path) as session:
        assert await answer(session, "find_personal_data", text="nothing here") == "0 findings"
        found = await answer(session, "find_personal_data", text=f"Hello,\nI am {MAIL}")
        assert found == "2:6: EMAIL\n1 finding: 1 EMAIL"
        many = await answer(session, "find_personal_data", text=f"{MAIL}\n" * 1000)
        assert many.splitlines()[-2:] == ["and 800 more", "1,000 findings: 1000 EMAIL"]


@pytest.mark.parametrize("text", [f"I am {MAIL}.", json.dumps({"mail": MAIL, "n": 1}), f'{{"a": "{MAIL}"}}\n["b"]\n'])
async def test_a_text_is_masked_as_the_command_for_files_masks_it(tmp_path, text):
    async with client("--root", tmp_path) as session:
        masked = await answer(session, "mask_personal_data", text=text)
        assert await answer(session, "mask_personal_data", text=masked) == masked
    (tmp_path / "text").write_text(text)
    assert masked == cli("pii", "mask", tmp_path / "text").stdout
    assert MAIL not in masked


async def test_a_value_has_one_pseudonym_as_long_as_the_server_runs(tmp_path):
    async with client("--root", tmp_path, "--strategy", "pseudonymize", "--rules", "standard") as session:
        texts = [MAIL, "bob@corp-mail.net", f"again {MAIL}"]
        assert [await answer(session, "mask_personal_data", text=text) for text in texts] == [
            "<EMAIL_1>", "<EMAIL_2>", "again <EMAIL_1>"
        ]  # fmt: skip
        numbered = [f"user{number}@corp-mail.net" for number in range(20)] * 2
        masked = await asyncio.gather(*(answer(session, "mask_personal_data", text=text) for text in numbered))
        assert masked[:20] == masked[20:]
        assert len(set(masked)) == 20


def test_calls_at_once_do_not_mix_up_pseudonyms():
    """Threads change places as often as they can, so that a session without a lock gives a value two pseudonyms."""
    _, mask = _masking([STANDARD], "pseudonymize")
    texts = [f"user{number}@corp-mail.net" for number in range(30)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(6) as pool:
            first, *others = pool.map(lambda _: [mask(text) for text in texts], range(6))
    finally:
        sys.setswitchinterval(before)
    assert len(set(first)) == len(texts)
    assert all(other == first for other in others)


async def test_bad_input_is_named_without_its_value(tmp_path):
    with (tmp_path / "log").open("w+") as log:
        async with client("--root", tmp_path, log=log) as session:
            assert await refusal(session, "find_personal_data") == "text: field required"
            for text in ([MAIL], {"a": MAIL}, None, 3):
                told = await refusal(session, "mask_personal_data", text=text)
                assert told == "text: input should be a valid string"
            for wrong in ({"max_tokens": 0}, {"max_tokens": "many"}, {"lines": "9:3"}, {"lines": "1", "rows": "1"}):
                await refusal(session, "view_file", path="x", **wrong)
            await refusal(session, "no_such_tool")
            assert await answer(session, "mask_personal_data", text=MAIL) == "[REDACTED_EMAIL]"
        log.seek(0)
        assert log.read() == ""


async def stalled(session, connected):
    """Return a call that waits for a store, once it does."""
    call = asyncio.create_task(session.call_tool("recall", {"handle": "a" * 20}))
    await connected.wait()
    return call


@asynccontextmanager
async def silent_store():
    """Listen as a Redis server that takes connections and says nothing until its end."""
    connected = asyncio.Event()

    async def take(reader, writer):
        connected.set()
        await over.wait()
        writer.close()

    over = asyncio.Event()
    server = await asyncio.start_server(take, "127.0.0.1", 0)
    async with server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}", connected, over
        over.set()


async def test_a_call_that_waits_keeps_no_other_one_waiting(tmp_path):
    pytest.importorskip("redis")
    async with silent_store() as (url, connected, over), client("--store", url, "--root", tmp_path) as session:
        waiting = await stalled(session, connected)
        assert await answer(session, "mask_personal_data", text=MAIL) == "[REDACTED_EMAIL]"
        assert not waiting.done()
        over.set()
        result = await waiting
        assert result.is_error
        assert len(result.content[0].text.splitlines()) == 1


async def test_a_cancelled_call_leaves_the_server_at_work(tmp_path):
    pytest.importorskip("redis")
    async with silent_store() as (url, connected, over), client("--store", url, "--root", tmp_path) as session:
        waiting = await stalled(session, connected)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await answer(session, "mask_personal_data", text=MAIL) == "[REDACTED_EMAIL]"
        over.set()
        assert await answer(session, "mask_personal_data", text=MAIL) == "[REDACTED_EMAIL]"


HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


def started(cwd):
    """Start the command with pipes, for what no proper client does."""
    pipe = subprocess.PIPE
    words = [sys.executable, *COMMAND]
    return subprocess.Popen(words, cwd=cwd, env=ENVIRONMENT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def send(process, *lines):
    process.stdin.write("".join(f"{line}\n" for line in lines))
    process.stdin.flush()


def test_standard_output_has_the_protocol_and_nothing_else(tmp_path):
    (tmp_path / "ctxguard.yaml").write_text("stabilizer:\n  store: results.db\n")
    call = {"name": "find_personal_data", "arguments": {"text": MAIL}}
    with started(tmp_path) as process:
        send(process, json.dumps(HELLO), json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        send(process, "this is not JSON")
        send(process, json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}))
        lines = []
        while not any(line.get("id") == 2 for line in lines):
            lines.append(json.loads(process.stdout.readline()))
        rest, said = process.communicate()
    assert all(line["jsonrpc"] == "2.0" for line in lines)
    assert (process.returncode, rest) == (0, "")
    assert said.count("settings of") == 1


def test_an_interrupt_ends_the_server_while_it_waits(tmp_path):
    with started(tmp_path) as process:
        send(process, json.dumps(HELLO))
        assert json.loads(process.stdout.readline())["id"] == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == -signal.SIGINT
        assert process.stderr.read() == ""


def test_a_client_that_is_gone_ends_the_server_without_a_word(tmp_path):
    with started(tmp_path) as process:
        process.stdout.close()
        send(process, json.dumps(HELLO))
        process.stdin.close()
        assert process.wait(PATIENCE) == 0
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--root", "absent"], "absent is not a folder; name the one to read files from"),
        (["--rules", "stars"], "no rule set 'stars'"),
        (["--strategy", "hide"], "--strategy"),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else "",
)
def test_a_wrong_option_is_one_line(options, told):
    run = cli("mcp", *options)
    assert (run.returncode, run.stdout, len(run.stderr.splitlines())) == (2, "", 1)
    assert told in run.stderr
