"""Whatever a file is, reading it ends soon, in little memory, with a bounded view or one line that says why not."""

from __future__ import annotations

import gzip
import io
import os
import socket
import struct
import tarfile
import threading
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import pytest

from ctxguard.config import ContextConfig
from ctxguard.content import bound, read_file
from ctxguard.content.opening import RegularFile, open_file
from ctxguard.tokens import find_counter

count = find_counter("estimate").count
CONFIG = ContextConfig()
LIMIT = 300


def read(path, **settings):
    return read_file(path, CONFIG, max_tokens=LIMIT, counter="estimate", cache_dir=None, **settings)


def is_bounded(result):
    if result.success:
        assert count(result.content) <= LIMIT
    else:
        assert result.content is None
        assert result.error
        assert "\n" not in result.error
        assert len(result.error) < 600


def refused(result, *words):
    is_bounded(result)
    assert not result.success
    assert any(word in result.error for word in words), result.error


@pytest.fixture
def write(tmp_path):
    def put(name, content):
        path = tmp_path / name
        content = content() if callable(content) else content  # what takes long to make is made by its test alone
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return put


LAUGHS_XML = (
    "<!DOCTYPE lolz [<!ENTITY lol 'lol'>"
    + "".join(
        f"<!ENTITY lol{n} '{f'&lol{n - 1 if n > 1 else chr(0)};'.replace(chr(0), '') * 10}'>" for n in range(1, 12)
    )
    + "]><lolz>&lol11;</lolz>"
)
LAUGHS_YAML = "a0: &a0 [lol, lol]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
MERGES_YAML = "a0: &a0 {k: v}\n" + "".join(
    f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("laughs.xml", LAUGHS_XML),
        ("laughs.yaml", LAUGHS_YAML),
        ("merges.yaml", MERGES_YAML),
        ("itself.yaml", "&a [*a]"),
        ("deep.json", "[" * 100_000 + "]" * 100_000),
        ("deeper.json", '{"a":' * 100_000),
        ("deep.yaml", "[" * 100_000),
        ("dashes.yaml", "- " * 100_000),
        ("stairs.yaml", "\n".join(" " * n + "a:" for n in range(2_500))),
        ("deep.xml", "<a>" * 100_000),
        ("deepish.xml", "<a>" * 480 + "x" * 3000 + "</a>" * 480),
        ("deepish.yaml", "[" * 390 + "x, " * 3000 + "]" * 390),
        ("deepish.json", "[" * 900 + '"' + "x" * 3000 + '"' + "]" * 900),
        ("escapes.json", '{"a": "' + '\\"' * 2_000_000 + '"}'),
        ("spaces.html", "<b>" + " <b>" * 90_000),
        ("times.txt", "[LOG] x\n" * 5 + "00:00:00" * 200_000),
        (
            "dots.log",
            "2024-01-02 10:00:00 error " + "a." * 900 + "\n" + ("2024-01-02 error " + "a." * 900 + "\n") * 3000,
        ),
        ("quotes.txt", "\n".join(['"a' * 900] * 300)),
        ("digits.json", '{"n": ' + "9" * 100_000 + "}"),
        ("key.json", '{"' + "k" * 1_000_000 + '": 1}'),
        ("quotes.csv", 'a,b\n"' + "x" * 500_000),
        ("line.csv", "x" * 50_000_000),
        ("cells.csv", "," * 5_000_000),
        ("line.log", "ERROR " * 5_000_000),
        ("line.jsonl", '{"a": "' + "x" * 20_000_000 + '"}\n{"a": 1}\n'),
        ("zeros.txt", b"\0" * 100_000),
        ("zeros.csv", b"a,b\n1,\0\n" * 1000),
        ("zeros.json", b'{"a": "\0"}'),
        ("tags.html", "<" * 1_000_000),
        ("scripts.html", "<script>" * 200_000),
        ("comments.html", "<!--" * 300_000),
        ("breaks.txt", "\n" * 10_000_000),
        ("returns.csv", "a,b\r" * 500_000),
        ("code.py", "def f(" * 200_000),
        ("snapshot.txt", "\n".join(" " * n + f"- button [ref=e{n}]" for n in range(2_000))),
        ("console.txt", "[LOG] x\n" * 300_000),
        ("entity in attribute.xml", '<!DOCTYPE a [<!ENTITY x "yyyy">]><a b="&x;&x;"/>'),
        ("entity of a file.xml", "<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/hosts'>]><a>&x;</a>"),
        ("attributes.xml", lambda: "<?xml version='1.0'?><a " + " ".join(f"k{n}='v'" for n in range(200_000)) + "/>"),
        ("wide.yaml", "a: &a [" + "x," * 5000 + "]\n" + "".join(f"k{n}: *a\n" for n in range(3000))),
        ("questions.yaml", "? " * 2000 + "x"),
        ("open quote.csv", 'a,b\n1,"' + "x\n" * 900_000),
        ("columns.csv", lambda: ",".join(f"c{n}" for n in range(1_000_000)) + "\n" + ",".join("1" * 1_000_000) + "\n"),
        ("nested.html", "<div>" * 1_000_000),
        ("quotes.html", "<a " + 'x="' * 1_000_000),
        ("entities.html", "&#x41;" * 500_000),
        ("surrogates.json", '{"a": "' + "\\ud800" * 100_000 + '"}'),
        ("digits.json", "[" + "1" * 4_000_000 + "]"),
        ("trace.log", "ERROR x\n" + "  at a\n" * 500_000),
        ("error.txt", "[ERROR] " + "y" * 3_000_000 + "\n[LOG] a\n[LOG] b\n"),
        ("marks.txt", "a" + "\u0301" * 500_000),
        ("cut.txt", "ä".encode() * 10 + b"\xc3"),
        ("wide.txt", "a".encode("utf-16-le") * 3_000_000),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 20 else "",
)
def test_text_is_bounded_or_refused(write, name, content):
    path = write(name, content)
    result = read(path)
    is_bounded(result)
    assert result.success


def test_text_of_an_alias_bomb_costs_little_memory(write):
    path = write("laughs.yaml", LAUGHS_YAML)
    tracemalloc.start()
    is_bounded(read(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000


def test_file_with_one_huge_line_costs_little_memory(write):
    path = write("line.csv", "x" * 50_000_000)
    tracemalloc.start()
    is_bounded(read(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30_000_000


@pytest.mark.parametrize("text", [LAUGHS_XML, LAUGHS_YAML, "[" * 100_000, '{"a":' * 100_000, "<a>" * 100_000])
def test_tool_output_is_bounded_all_the_same(text):
    assert count(bound(text, LIMIT, count=count).content) <= LIMIT


@pytest.mark.parametrize("name", ["bomb.docx", "bomb.pptx", "bomb.xlsx"])
def test_office_file_that_unpacks_to_gigabytes_is_refused(tmp_path, name):
    inner = {"bomb.docx": "word/document.xml", "bomb.pptx": "ppt/presentation.xml", "bomb.xlsx": "xl/workbook.xml"}[
        name
    ]
    with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(inner, "w") as entry:
        for _ in range(3):
            entry.write(b"\0" * 10_000_000)
    refused(read(tmp_path / name), "zip bomb")


@pytest.mark.slow
def test_archive_is_listed_without_being_unpacked(tmp_path):
    with tarfile.open(tmp_path / "bomb.tar.gz", "w:gz", compresslevel=1) as archive:
        member = tarfile.TarInfo("zeros")
        member.size = 200_000_000
        archive.addfile(member, Zeros(member.size))
    is_bounded(read(tmp_path / "bomb.tar.gz"))


class Zeros(io.RawIOBase):
    def __init__(self, size):
        self.left = size

    def read(self, size=-1):
        size = min(size, self.left)
        self.left -= size
        return bytes(size)


def test_compressed_gigabyte_is_told_of_without_being_unpacked(tmp_path):
    with gzip.open(tmp_path / "bomb.json.gz", "wb", compresslevel=1) as out:
        for _ in range(10):
            out.write(b"[" * 10_000_000)
    result = read(tmp_path / "bomb.json.gz")
    is_bounded(result)
    assert "more than 64000000 bytes" in result.content


def test_names_in_an_archive_are_shown_and_never_written(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("/etc/absolute", "x")
        archive.writestr("../../up", "y")
    assert "../../up" in read(tmp_path / "a.zip").content
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


@pytest.mark.parametrize(
    ("name", "words"), [("a.doc", "before 2007"), ("a.ppt", "before 2007"), ("a.docx", "password")]
)
def test_old_and_protected_office_files_are_refused_with_the_remedy(write, name, words):
    sign = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(4000)
    inside = "EncryptedPackage".encode("utf-16-le") if words == "password" else b""
    refused(read(write(name, sign + inside)), words)


@pytest.mark.parametrize(("name", "start"), [("a.7z", b"7z\xbc\xaf\x27\x1c"), ("a.rar", b"Rar!\x1a\x07\0")])
def test_archives_that_cannot_be_listed_are_refused_by_name(write, name, start):
    refused(read(write(name, start + bytes(500))), "unpack it first")


@pytest.fixture
def waiting_file():
    """A file whose data would have to be waited for, as that of /proc/kmsg is while there is none."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with io.BufferedReader(RegularFile(reading)) as file:
        yield file
    os.close(writing)


@pytest.mark.parametrize("name", ["a", "a.txt", "a.csv", "a.json", "a.pdf", "a.xlsx", "a.png", "a.zip", "a.bin"])
def test_file_that_would_have_to_be_waited_for_is_refused(monkeypatch, waiting_file, write, name):
    opened, metadata = open_file(write(name, b""), None)
    opened.close()
    monkeypatch.setattr("ctxguard.content.reader.open_file", lambda *_: (waiting_file, metadata))
    refused(read(name), "waiting")


@pytest.mark.parametrize("read_all", [False, True])
def test_what_would_have_to_be_waited_for_is_never_none(waiting_file, read_all):
    with pytest.raises(BlockingIOError):
        waiting_file.read(*[] if read_all else [10])


def test_file_that_grows_while_it_is_read_is_bounded(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("start\n")
    stop = threading.Event()

    def grow():
        with path.open("a") as out:
            while not stop.is_set():
                out.write("another line\n" * 5000)

    worker = threading.Thread(target=grow)
    worker.start()
    try:
        for _ in range(10):
            is_bounded(read(path))
    finally:
        stop.set()
        worker.join()


@pytest.mark.parametrize("side", [8_000, 40_000, 2**31 - 1])
def test_image_of_a_billion_pixels_is_refused(tmp_path, side):
    pytest.importorskip("PIL", reason="the extra `files` is not installed")
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 1000)), (b"IEND", b"")]
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )
    (tmp_path / "bomb.png").write_bytes(data)
    refused(read(tmp_path / "bomb.png"), "pixels")


def test_cut_off_image_is_refused(tmp_path):
    pillow = pytest.importorskip("PIL.Image", reason="the extra `files` is not installed")
    pillow.effect_noise((200, 200), 90).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes((tmp_path / "a.png").read_bytes()[:5000])
    refused(read(tmp_path / "b.png"), "decoded")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.xlsx", "a.zip"])
def test_cut_off_document_is_refused_or_bounded(write, name):
    start = b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R" if name == "a.pdf" else b"PK\x03\x04\x14\0\0\0\x08\0"
    is_bounded(read(write(name, start + os.urandom(300))))


def test_missing_file_folder_and_bad_names(tmp_path):
    refused(read(tmp_path / "none.txt"), "no such file")
    refused(read(tmp_path), "folder")
    refused(read("a\0b"), "null")
    refused(read("x" * 5000), "too long")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
def test_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refused(read(tmp_path / "pipe"), "FIFO")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no /dev")
def test_device_is_refused():
    refused(read("/dev/zero"), "device")


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="this system has no socket files")
def test_socket_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        refused(read(tmp_path / "s"), "socket")


def test_links_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    refused(read(tmp_path / "a"), "link", "loop")
    refused(read("a", root=tmp_path), "link", "loop", "no such file")


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission_is_refused(write):
    path = write("a.txt", "secret")
    path.chmod(0)
    refused(read(path), "permission")


@pytest.mark.parametrize("target", ["../secret.txt", "link.txt", "folder/secret.txt", "{absolute}"])
def test_nothing_outside_of_the_root_is_read(tmp_path, target):
    root = tmp_path / "root"
    root.mkdir()
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    (root / "link.txt").symlink_to(secret)
    (root / "folder").symlink_to(tmp_path, target_is_directory=True)
    refused(read(target.format(absolute=secret), root=root), "outside")


def test_link_inside_of_the_root_is_followed(tmp_path):
    (tmp_path / "a.txt").write_text("inside\n")
    (tmp_path / "b.txt").symlink_to("a.txt")
    assert read("b.txt", root=tmp_path).content == "inside\n"


def test_file_that_is_swapped_for_a_link_again_and_again_never_leads_outside(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (root / "mine.txt").write_text("mine")
    stop = threading.Event()

    def swap():
        number = 0
        while not stop.is_set():
            number += 1
            other = root / f"new-{number}"
            other.symlink_to(tmp_path / "secret.txt") if number % 2 else other.write_text("mine")
            other.replace(root / "mine.txt")

    worker = threading.Thread(target=swap)
    worker.start()
    try:
        contents = {read("mine.txt", root=root).content for _ in range(300)}
    finally:
        stop.set()
        worker.join()
    assert contents <= {"mine", None, ""}
