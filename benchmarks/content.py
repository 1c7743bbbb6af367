"""Measure bounded views: against plain character truncation on recorded files, and on files of a gigabyte.

python benchmarks/content.py            the table of losses, and strings of 10 MB
python benchmarks/content.py --large    also files of 1 GB, made in a temporary folder
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path

from recordings import RECORDINGS

from ctxguard.content import FileType, bound, detect
from ctxguard.content.opening import decode, find_encoding
from ctxguard.tokens import find_counter

FILES = RECORDINGS / "files"
LIMITS = (200, 1000, 5000)
KINDS = ("json", "csv", "logs")
ERROR = re.compile(r"\b(?:ERROR|FATAL|CRITICAL|FAILED)\b|Traceback|level=error|\"level\":\"error\"")
counter = find_counter()


def cut(text, limit):
    """Cut as most libraries do: the first characters that fit, and a sign."""
    sign = "\n... [truncated]"
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if counter.count(text[:middle] + sign) <= limit else (low, middle - 1)
    return text[:low] + sign


def cut_both(text, limit):
    """Cut as the better ones do: as many characters from the head as from the tail, and a sign."""
    sign = "\n... [truncated] ...\n"
    low, high = 0, len(text) // 2
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if counter.count(text[:middle] + sign + text[-middle:]) <= limit else (low, middle - 1)
        )
    return text[:low] + sign + (text[-low:] if low else "")


def ours(text, limit):
    return bound(text, limit, count=counter.count).content


def texts():
    for kind in KINDS:
        for path in sorted((FILES / kind).rglob("*")):
            if path.is_file():
                data = path.read_bytes()
                if b"\0" not in data[:4096]:
                    yield kind, decode(data, find_encoding(data))


def losses(text, view):
    """Return which promises of the type a view breaks: that it parses, has the table's header, and has the errors."""
    return {
        "parse": _parses(text) and not _parses(view),
        "header": _header(text) is not None and not view.replace("\r\n", "\n").startswith(_header(text)),
        "errors": len(_errors(text) - _errors(view)),
    }


def _parses(text):
    kind = detect(text)
    try:
        if kind is FileType.JSON:
            json.loads(text)
        elif kind is FileType.JSONL:
            [json.loads(line) for line in text.splitlines() if line.strip()]
        elif kind is FileType.CSV:
            rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
            return len({len(row) for row in rows}) == 1
        elif kind is FileType.XML:
            ET.fromstring(text)
        else:
            return True
    except (ValueError, csv.Error, ET.ParseError):
        return False
    return True


def _header(text):
    if detect(text) is not FileType.CSV:
        return None
    head = text.replace("\r\n", "\n").split("\n", 1)[0]
    return head if counter.count(head) < 100 else None


def _errors(text):
    return {re.sub(r"\d+", "0", line).strip()[:80] for line in text.splitlines() if ERROR.search(line)}


def compare():
    corpus = list(texts())
    print(f"counter: {counter.name}; {len(corpus)} files, those over the limit are counted\n")
    print(
        "| limit | method | files | tokens before | tokens after | limit broken | parse failures | lost headers | distinct errors lost |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for limit in LIMITS:
        over = [(kind, text) for kind, text in corpus if counter.count(text) > limit]
        before = sum(counter.count(text) for _, text in over)
        methods = {"head only": cut, "head and tail": cut_both, "ctxguard": ours}
        for name, method in methods.items():
            views = [(text, method(text, limit)) for _, text in over]
            after = [counter.count(view) for _, view in views]
            lost = [losses(text, view) for text, view in views]
            broken = sum(tokens > limit for tokens in after)
            cells = [limit, name, len(over), before, sum(after), broken]
            cells += [sum(loss["parse"] for loss in lost), sum(loss["header"] for loss in lost)]
            cells.append(f"{sum(loss['errors'] for loss in lost)} of {sum(len(_errors(text)) for text, _ in views)}")
            print("| " + " | ".join(map(str, cells)) + " |")


PIECES = {
    "text": lambda n: f"This is sentence number {n} of a long and rather dull story.\n",
    "code": lambda n: f"def function_{n}(value):\n    result = value + {n}\n    return result\n\n\n",
    "log": lambda n: (
        f"2026-01-02 10:{n // 60 % 60:02d}:{n % 60:02d} INFO request {n} took {n % 97} ms from 10.0.0.{n % 250}\n"
    ),
    "log with errors": lambda n: (
        f"2026-01-02 10:{n // 60 % 60:02d}:{n % 60:02d} {'ERROR' if n % 9 == 0 else 'INFO'} request {n} from 10.0.0.1\n"
    ),
    "log with random ids": lambda n: (
        f"2026-01-02 10:{n // 60 % 60:02d}:{n % 60:02d} INFO request {spelled(n)} served from some.host.example\n"
    ),
    "csv": lambda n: "id,name,amount,note\n" if n == 0 else f'{n},"name, {n}",{n % 997}.50,some words about it\n',
    "tsv": lambda n: "id\tname\tnote\n" if n == 0 else f"{n}\tname {n}\tsome words about it\n",
    "json": lambda n: json.dumps({"id": n, "name": f"name {n}", "tags": ["a", "b"], "note": "some words"}) + ",\n",
    "jsonl": lambda n: json.dumps({"id": n, "name": f"name {n}", "tags": ["a", "b"], "note": "some words"}) + "\n",
    "yaml": lambda n: f"- id: {n}\n  name: name {n}\n  tags: [a, b]\n",
    "xml": lambda n: f"<item id='{n}'><name>name {n}</name><note>some words</note></item>\n",
    "html": lambda n: f"<p>Some <b>words</b> {n} and <a href='/page/{n}'>a link</a></p>\n",
    "snapshot": lambda n: f'  - listitem [ref=a{n}]:\n    - link "Go to {n}" [ref=e{n}]\n',
    "console": lambda n: f"[{'ERROR' if n % 50 == 0 else 'LOG'}] message {n} of app.js\n",
}
"""Makes piece number n of a text of that kind."""
AROUND = {
    "json": ("[", "{}]"),
    "xml": ("<?xml version='1.0'?><root>", "</root>"),
    "html": ("<!DOCTYPE html><html><body>", "</body></html>"),
    "snapshot": ("- generic [ref=e0]:\n", ""),
}


def spelled(number):
    """Return a word of letters that no other number has, as random identifiers are."""
    return "".join(chr(97 + number * 7919 // 26**place % 26) for place in range(12))


def made(kind, size):
    start, end = AROUND.get(kind, ("", ""))
    parts, length = [start], 0
    while length < size:
        parts.append(PIECES[kind](len(parts) - 1))
        length += len(parts[-1])
    return "".join([*parts, end])


def strings(size=10_000_000, limit=1000):
    estimate = find_counter("estimate")
    print(
        f"\n| string of {size // 1_000_000} MB | view, {limit} tokens | reading and decoding it once | ratio", end=" "
    )
    print("| one pass of the counter | ratio |\n|---|---|---|---|---|---|")
    for kind in PIECES:
        text = made(kind, size)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "text")
            path.write_text(text)
            once = spent(path.read_text)
        took = spent(lambda text=text: bound(text, limit, count=estimate.count))
        whole = spent(lambda text=text: estimate.count(text))
        cells = [kind, f"{took * 1000:.0f} ms", f"{once * 1000:.0f} ms", f"{took / once:.1f}"]
        print("| " + " | ".join([*cells, f"{whole * 1000:.0f} ms", f"{took / whole:.2f}"]) + " |")


def spent(function, repeats=5):
    """Return the least processor time of several runs, which other work on the machine disturbs little."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def timed(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


VIEW = """
import pathlib, re, sys, time
from ctxguard.content import read_file
from ctxguard.config import ContextConfig
start = time.perf_counter()
result = read_file(sys.argv[1], ContextConfig(), counter="estimate", exact_totals=sys.argv[2] == "exact")
took = time.perf_counter() - start
assert result.success, result.error
status = pathlib.Path("/proc/self/status").read_text()
print(took, 1024 * int(re.search("VmHWM:.*?([0-9]+)", status)[1]), result.truncation_info.tokens_shown)
"""
"""The memory is the most that the process had of its own: `ru_maxrss` starts with that of its parent."""


def large(size=1_000_000_000):
    print(f"\n| file of {size / 1e9:.0f} GB | view | memory | reading it once | ratio | exact totals |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("csv", "log", "jsonl"):
            path = Path(folder, f"big.{kind}")
            write_large(path, PIECES[kind], size)
            once = timed(lambda path=path: read_once(path))
            took, memory, _ = view(path, "estimate")
            exact, _, _ = view(path, "exact")
            print(
                f"| {kind} | {took:.2f} s | {memory / 1e6:.0f} MB | {once:.2f} s | {took / once:.2f} | {exact:.2f} s |"
            )
            path.unlink()


def write_large(path, line, size):
    block = [line(n) for n in range(1, 200_000)]
    data = "".join(block).encode()
    with path.open("wb") as out:
        out.write(line(0).encode())
        written = 0
        while written < size:
            written += out.write(data)


def read_once(path):
    with path.open("rb") as file:
        while file.read(1 << 20):
            pass


def view(path, totals):
    done = subprocess.run([sys.executable, "-c", VIEW, str(path), totals], capture_output=True, text=True, check=True)
    return map(float, done.stdout.split())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="also view files of 1 GB")
    options = parser.parse_args()
    if FILES.is_dir():
        compare()
    else:
        print("the recorded files (../shared/data/files) are not on this machine; their table is left out")
    strings()
    if options.large:
        large()
