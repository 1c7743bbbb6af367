"""The documented face: any file as a bounded view, confined to a root, by line and row ranges."""

from __future__ import annotations

import csv
import io
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from recordings import RECORDINGS

from ctxguard.config import ContextConfig
from ctxguard.content import BinaryContent, FileType, read_file, read_file_as_string
from ctxguard.errors import ConfigError
from ctxguard.tokens import find_counter

count = find_counter("estimate").count
CONFIG = ContextConfig()
FILES = RECORDINGS / "files"


@pytest.fixture
def write(tmp_path):
    def put(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return put


def read(path, config=CONFIG, *, cache_dir=None, **settings):
    return read_file(path, config, counter="estimate", cache_dir=cache_dir, **settings)


def test_small_file_comes_back_as_it_is_with_its_metadata(write):
    path = write("a.txt", "one\ntwo\n")
    result = read(path)
    assert (result.content, result.success, result.file_type) == ("one\ntwo\n", True, FileType.TEXT)
    assert not result.truncation_info.truncated
    assert result.metadata.size == 8
    assert result.metadata.mime_type == "text/plain"
    assert result.metadata.encoding == "utf-8"
    assert abs((datetime.now(UTC) - result.metadata.modified).total_seconds()) < 3600


def test_text_is_read_where_the_extra_for_documents_is_not_installed(monkeypatch, write):
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert read_file(write("a.txt", "one\n"), CONFIG, counter="estimate").content == "one\n"


def test_error_is_one_line_whatever_the_path_is(tmp_path):
    for path in (tmp_path / "a\nb.zip", tmp_path / "no such folder\n" / "a.txt"):
        if path.parent.exists():
            path.write_bytes(b"PK\3\4broken")
        result = read(path)
        assert not result.success
        assert "\n" not in result.error
        assert len(read(tmp_path.joinpath(*["x" * 99] * 9)).error) < 500


def test_empty_file_is_an_empty_content(write):
    assert read(write("a.csv", "")).content == ""


def test_thresholds_of_the_configuration_hold_even_where_tokens_would_fit(write):
    lines = read(write("a.txt", "".join(f"{n}\n" for n in range(300))))
    assert lines.content.count("\n") <= 200
    assert lines.truncation_info.lines_total == 300
    array = json.loads(read(write("a.json", json.dumps(list(range(60))))).content)
    assert sum(isinstance(item, int) for item in array) == 50
    record = json.loads(read(write("b.json", json.dumps({f"k{n}": n for n in range(60)}))).content)
    assert sum(isinstance(value, int) for value in record.values()) == 50
    deep = read(write("c.json", json.dumps({"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}})))
    assert '"e":"… object of 1 keys"' in deep.content
    string = json.loads(read(write("d.json", json.dumps({"a": "x" * 600}))).content)
    assert len(string["a"]) <= 500
    table = read(write("a.csv", "a,b\n" + "".join(f"{n},x\n" for n in range(60))))
    assert (table.truncation_info.rows_shown, table.truncation_info.rows_total) == (30, 60)
    wide = read(write("b.csv", ",".join(f"c{n}" for n in range(60)) + "\n" + ",".join("1" * 60) + "\n"))
    assert (wide.truncation_info.columns_shown, wide.truncation_info.columns_total) == (50, 60)


@pytest.mark.parametrize("name", ["a.txt", "a.json", "a.csv", "a.log", "a.jsonl", "a.yaml", "a.xml"])
def test_view_of_a_view_is_itself(write, name):
    tree = {"a": [{"b": list(range(100)), "c": "long " * 200, "d": {"e": {"f": {"g": {"h": 1}}}}}] * 70}
    contents = {
        "a.txt": "".join(f"line {n} {'x' * (n * 10)}\n" for n in range(400)),
        "a.json": json.dumps(tree),
        "a.csv": "a,b\n" + "".join(f"{n},{'y' * n}\n" for n in range(900)),
        "a.log": "".join(f"2024-01-02 10:00:00 INFO {n} {'z' * (n * 5)}\n" for n in range(600)),
        "a.jsonl": "".join(json.dumps({"n": n, "t": "w" * n}) + "\n" for n in range(1500)),
        "a.yaml": "".join(f"k{n}: [1, 2, {{a: {'v' * n}}}]\n" for n in range(300)),
        "a.xml": "<r>" + "".join(f"<i n='{n}'>{'t' * n}</i>" for n in range(300)) + "</r>",
    }
    first = read(write(name, contents[name]), max_tokens=900)
    assert first.truncation_info.truncated
    again = read(write("again-" + name, first.content), max_tokens=900)
    assert again.content == first.content
    assert not again.truncation_info.truncated


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        ("häuser\n".encode(), "utf-8"),
        ("häuser\n".encode("utf-8-sig"), "utf-8-sig"),
        ("häuser und gärten\n".encode("utf-16"), "utf-16"),
        ("hauser und garten\n".encode("utf-16-le"), "utf-16-le"),
        ("hauser und garten\n".encode("utf-16-be"), "utf-16-be"),
    ],
)
def test_encoding_is_found(write, data, encoding):
    result = read(write("a.txt", data))
    assert result.metadata.encoding == encoding
    assert result.content.strip("\ufeff") == data.decode(encoding)


def test_single_byte_text_is_read_without_replacement_signs(write):
    text = "Die Bürger überqueren die Straße und grüßen höflich die älteren Herren.\n" * 4
    assert read(write("a.txt", text.encode("latin-1"))).content == text


@pytest.mark.parametrize("encoding", ["shift_jis", "euc_jp", "gb18030", "cp1251", "latin-1", "utf-16", "utf-8-sig"])
@pytest.mark.parametrize("times", [30, 40_000])
def test_text_of_any_script_and_size_is_read_as_it_was_written(write, encoding, times):
    words = {
        "shift_jis": "これは日本語のテキストです。とても長い文章を読みます。",
        "euc_jp": "これは日本語のテキストです。とても長い文章を読みます。",
        "gb18030": "这是一个用中文写的文件，内容很长，需要缩短以后再阅读。",
        "cp1251": "Это длинный текст на русском языке, который нужно сократить.",
        "latin-1": "Die Bürger überqueren die Straße und grüßen höflich die älteren Herren.",
    }.get(encoding, "häuser → größer, und viele andere Wörter auch")
    result = read(write("a.txt", f"{words}\n".encode(encoding) * times), ContextConfig(max_lines=9))
    shown = [line for line in result.content.split("\n") if line and not line.startswith("[")]
    assert shown
    assert {line.removeprefix("\ufeff") for line in shown} == {words}


def test_range_of_lines(write):
    path = write("a.log", "".join(f"line {n}\n" for n in range(1, 5001)))
    assert read(path, lines=(4000, 4002)).content == "line 4000\nline 4001\nline 4002\n"
    assert read(path, lines=(4999, 9999)).content == "line 4999\nline 5000\n"
    assert count(read(path, lines=(1, 5000), max_tokens=50).content) <= 50


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_range_of_lines_after_the_last_says_how_many_there_are(write, encoding):
    path = write("a.log", "".join(f"line {n}\n" for n in range(1, 5001)).encode(encoding))
    assert read(path, lines=(4999, 9999)).content == "line 4999\nline 5000\n"
    result = read(path, lines=(90_000, 90_001))
    assert not result.success
    assert "has no lines 90000-90001, only 5000" in result.error
    assert read(write("empty.txt", ""), lines=(1, 9)).content == ""


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.json", '[{"a": 1}, {"a": 2}]'), ("a.txt", "words\n"), ("a.log", "2024-01-02 ERROR x\n"), ("a.zip", "")],
)
def test_rows_are_read_of_tables_only(write, name, content):
    result = read(write(name, content), rows=(1, 3))
    assert not result.success
    assert "which has no rows" in result.error


def test_lines_are_not_read_of_what_has_none(write, tmp_path):
    for path in (workbook(tmp_path / "a.xlsx", One=3), write("a.bin", bytes(range(256)))):
        result = read(path, lines=(1, 3))
        assert not result.success
        assert "has no lines" in result.error


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -3}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"max_tokens": 2.5}, "max_tokens"),
        ({"lines": (0, 4)}, "lines"),
        ({"lines": (4, 3)}, "lines"),
        ({"lines": 7}, "lines"),
        ({"rows": ("1", 2)}, "rows"),
        ({"rows": (1, 2, 3)}, "rows"),
        ({"rows": (1, 2), "lines": (1, 2)}, "lines"),
    ],
)
def test_setting_that_cannot_be_met_is_refused_by_its_name(write, settings, name):
    with pytest.raises(ConfigError, match=name) as caught:
        read(write("a.csv", "a,b\n1,2\n"), **settings)
    assert caught.value.setting == name


def pdf(path, *, before=b""):
    """Write a page of uncompressed streams, which is nothing but printable text, with a correct table of objects."""
    page = b"BT /F1 24 Tf 72 700 Td (Quarterly figures of the shop) Tj ET"
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(page), page),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    out, places = before + b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"xref\n0 6\n0000000000 65535 f \n%strailer<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (
        table,
        len(out),
    )
    path.write_bytes(out)
    return path


@pytest.mark.slow
def test_document_of_printable_bytes_is_a_document_whatever_its_name(tmp_path):
    pytest.importorskip("markitdown", reason="the extra `files` is not installed")
    for name in ("a.pdf", "a.txt", "a"):
        result = read(pdf(tmp_path / name), cache_dir=tmp_path / "cache")
        assert (result.file_type, result.content.strip()) == (FileType.PDF, "Quarterly figures of the shop")


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.txt", "BMW and II* are words\n"), ("a.txt", "ID3 is a tree\n"), ("a.md", "GIF8 is no picture\n")],
)
def test_words_that_begin_like_a_signature_are_text(write, name, content):
    assert read(write(name, content)).content == content


def test_range_of_rows_keeps_the_header_and_quotes(write):
    path = write("a.csv", "id;text\n" + "".join(f'{n};"a ""b""\n;{n}"\n' for n in range(1, 500)))
    rows = list(csv.reader(io.StringIO(read(path, rows=(400, 401)).content, newline=""), delimiter=";"))
    assert rows == [["id", "text"], ["400", 'a "b"\n;400'], ["401", 'a "b"\n;401']]


def workbook(path, **sheets):
    """Write sheets of `id,name` and that many rows."""
    openpyxl = pytest.importorskip("openpyxl", reason="the extra `files` is not installed")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        sheet.append(["id", "name"])
        for number in range(1, rows + 1):
            sheet.append([number, f"name {number}"])
    book.save(path)
    return path


@pytest.mark.parametrize(("first", "last"), [(1, 2), (3, 4), (10, 12), (250, 251), (299, 999)])
def test_range_of_rows_of_a_spreadsheet_is_that_of_its_csv(write, tmp_path, convert_here, first, last):
    path = workbook(tmp_path / "a.xlsx", One=300)
    table = write("a.csv", "id,name\n" + "".join(f"{n},name {n}\n" for n in range(1, 301)))
    result = read(path, cache_dir=convert_here(path, (first, last)), rows=(first, last))
    title, content = result.content.split("\n", 1)
    assert title == f"## Sheet One: rows {first}-{min(last, 300)} of 300"
    assert content == read(table, rows=(first, last)).content
    assert (result.truncation_info.rows_shown, result.truncation_info.truncated) == (min(last, 300) - first + 1, False)


def test_range_of_rows_is_taken_of_every_sheet(tmp_path, convert_here):
    path = workbook(tmp_path / "a.xlsx", One=500, Two=3, Three=420)
    assert read(path, cache_dir=convert_here(path, (410, 411)), rows=(410, 411)).content == (
        "## Sheet One: rows 410-411 of 500\nid,name\n410,name 410\n411,name 411\n\n"
        "## Sheet Two: 3 rows, none of 410-411\nid,name\n\n"
        "## Sheet Three: rows 410-411 of 420\nid,name\n410,name 410\n411,name 411\n"
    )


def test_range_of_rows_that_is_cut_names_the_rows_by_their_own_numbers(write, tmp_path, convert_here):
    path = workbook(tmp_path / "a.xlsx", One=300)
    table = write("a.csv", "id,name\n" + "".join(f"{n},name {n}\n" for n in range(1, 301)))
    for file in (path, table):
        shown = read(file, cache_dir=convert_here(file, (100, 250)), rows=(100, 250), max_tokens=90).content
        last = [line for line in shown.split("\n") if line][-1]
        assert last.startswith("250,")
        assert "\n100,name 100\n" in shown
        assert " and 24" in shown
        assert "-250 of 100-250 shown" in shown


def test_range_of_rows_after_the_last_says_how_many_there_are(write, tmp_path):
    path = workbook(tmp_path / "a.xlsx", One=30, Two=3)
    result = read(path, rows=(40, 50))
    assert not result.success
    assert "has no rows 40-50; sheet One has 30, sheet Two has 3" in result.error
    result = read(write("a.csv", "id,name\n1,x\n"), rows=(40, 50))
    assert not result.success
    assert "has no rows 40-50, only 1" in result.error


@pytest.mark.recordings
def test_range_of_rows_of_an_old_workbook():
    pytest.importorskip("xlrd", reason="the extra `files` is not installed")
    path = next(FILES.rglob("47701.xls"), None)
    if path is None:
        pytest.skip("the recorded files are not there: ../shared/data/files")
    whole = read(path).content.split("\n")
    shown = read(path, rows=(2, 3)).content.split("\n")
    assert shown[0] == "## Sheet Sheet1: rows 2-3 of 3"
    assert shown[1:4] == [whole[1], *whole[3:5]]


@pytest.mark.slow
def test_workbook_that_is_larger_than_what_is_passed_on_is_shown(tmp_path):
    openpyxl = pytest.importorskip("openpyxl", reason="the extra `files` is not installed")
    book = openpyxl.Workbook()
    for number in range(300):
        book.active.append([number, *["x" * 30_000] * 2])
    book.save(tmp_path / "a.xlsx")
    result = read(tmp_path / "a.xlsx", max_tokens=2000)
    assert result.success
    assert result.truncation_info.rows_total == 299


def test_large_file_is_sampled_and_totals_are_estimates_unless_asked_for(write):
    lines = [f"2024-01-02 10:00:00 INFO request {n} done" for n in range(200_000)]
    path = write("big.log", "\n".join(lines) + "\n")
    result = read(path)
    info = result.truncation_info
    assert not info.totals_exact
    assert info.lines_total == pytest.approx(200_000, rel=0.05)
    assert "about" in result.content
    assert lines[0] in result.content
    assert lines[-1] in result.content
    assert all(line in lines for line in result.content.split("\n") if line.startswith("2024"))
    assert read(path, exact_totals=True).truncation_info.lines_total == 200_000


def test_large_table_has_its_first_and_last_rows(write):
    rows = [f'{n},"name, {n}",x' for n in range(200_000)]
    path = write("big.csv", "id,name,rest\n" + "\n".join(rows) + "\n")
    shown = read(path).content
    assert shown.startswith('id,name,rest\n0,"name, 0",x\n')
    assert shown.endswith(rows[-1] + "\n")
    assert f"of {200_000} " in read(path, exact_totals=True).content


def test_large_json_lines_and_json(write):
    lines = [json.dumps({"n": n, "text": "some words"}) for n in range(150_000)]
    shown = read(write("big.jsonl", "\n".join(lines) + "\n")).content
    assert lines[0] in shown
    assert lines[-1] in shown
    assert all(json.loads(line) is not None for line in shown.split("\n"))
    result = read(write("big.json", "[" + ",".join(lines) + "]"))
    assert isinstance(json.loads(result.content), list)
    assert not result.truncation_info.totals_exact


def test_lines_of_json_are_no_longer_than_a_line_may_be(write):
    records = [{"key " * (n % 12 + 1) + str(k): {"a": None} for k in range(n)} for n in range(1, 40)]
    path = write("a.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    shown = read(path, ContextConfig(max_line_length=160), max_tokens=50_000).content.rstrip("\n").split("\n")
    assert len(shown) == len(records)
    assert max(map(len, shown)) <= 160


def test_output_limit_comes_before_the_limit_of_the_call(write):
    path = write("a.txt", "words and words\n" * 5000)
    config = ContextConfig(max_total_output=100, max_lines=9999)
    result = read(path, config, max_tokens=1000)
    assert count(result.content) <= 100
    assert result.truncation_info.total_output_limit_reached
    assert not read(path, ContextConfig(max_lines=9999), max_tokens=1000).truncation_info.total_output_limit_reached


@pytest.mark.parametrize(
    ("name", "data", "file_type"),
    [
        ("data.csv", b"PK\x03\x04" + b"\0" * 200, FileType.ARCHIVE),
        ("data.json", b"\x89PNG\r\n\x1a\n" + b"\0" * 200, FileType.IMAGE),
        ("data.pdf", b"just words, no pdf\n", FileType.TEXT),
        ("data.xlsx", b"a,b,c\n1,2,3\n4,5,6\n", FileType.CSV),
        ("data", b'{"a": 1}', FileType.JSON),
        ("data.bin", bytes(range(256)) * 10, FileType.BINARY),
        ("data.py", b"import os\n", FileType.CODE),
        ("data.weird", b"name: x\nother: y\n", FileType.YAML),
        ("data.wav", b"RIFF\0\0\0\0WAVEfmt ", FileType.AUDIO),
    ],
)
def test_first_bytes_come_before_a_wrong_extension(write, name, data, file_type):
    assert read(write(name, data)).file_type is file_type


def test_binary_file_is_described(write):
    result = read(write("a.bin", bytes(range(256)) * 4))
    assert result.success
    assert "1024 bytes" in result.content


def test_archive_lists_its_entries(tmp_path):
    import zipfile

    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("folder/one.txt", "x" * 100)
        archive.writestr("two.txt", "y")
    result = read(path)
    assert result.file_type is FileType.ARCHIVE
    assert "folder/one.txt" in result.content
    assert "2 entries, 101 bytes unpacked" in result.content


def test_spreadsheet_shows_every_sheet(tmp_path, convert_here):
    openpyxl = pytest.importorskip("openpyxl", reason="the extra `files` is not installed")
    book = openpyxl.Workbook()
    book.active.title = "First"
    for row in [["id", "name"], *([n, f"name {n}"] for n in range(500))]:
        book.active.append(row)
    second = book.create_sheet("Second")
    second.append(["only", "header, quoted"])
    book.save(tmp_path / "a.xlsx")
    path = tmp_path / "a.xlsx"
    result = read(path, cache_dir=convert_here(path), max_tokens=400)
    assert count(result.content) <= 400
    assert "## Sheet First: 500 rows\nid,name\n0,name 0\n" in result.content
    assert "499,name 499" in result.content
    assert '## Sheet Second: 0 rows\nonly,"header, quoted"\n' in result.content
    assert result.truncation_info.rows_total == 500


def test_converted_document_is_remembered_by_its_content(tmp_path, monkeypatch):
    openpyxl = pytest.importorskip("openpyxl", reason="the extra `files` is not installed")
    book = openpyxl.Workbook()
    book.active.append(["a"])
    book.save(tmp_path / "a.xlsx")
    cache = tmp_path / "cache"
    first = read_file(tmp_path / "a.xlsx", CONFIG, cache_dir=cache)
    (entry,) = cache.iterdir()
    entry.write_text(entry.read_text().replace('"a"', '"from the cache"'))
    (tmp_path / "a.xlsx").rename(tmp_path / "b.xlsx")
    assert "from the cache" in read_file(tmp_path / "b.xlsx", CONFIG, cache_dir=cache).content
    assert "from the cache" not in first.content
    monkeypatch.chdir(cache)
    assert "from the cache" in read_file(tmp_path / "b.xlsx", CONFIG, cache_dir=".").content


def test_image_is_scaled_by_sides_and_bytes(tmp_path):
    pillow = pytest.importorskip("PIL.Image", reason="the extra `files` is not installed")
    pillow.effect_noise((2000, 1000), 90).save(tmp_path / "a.png")
    result = read(tmp_path / "a.png", ContextConfig(max_image_side=500, max_image_bytes=40_000))
    image = result.content
    assert isinstance(image, BinaryContent)
    assert len(image.data) <= 40_000
    assert max(image.width, image.height) <= 500
    assert pillow.open(io.BytesIO(image.data)).size == (image.width, image.height)
    assert "scaled from 2000x1000" in result.truncation_info.note
    assert "pixels" in read_file_as_string(tmp_path / "a.png", CONFIG)


def test_scaled_photo_stands_upright(tmp_path):
    pillow = pytest.importorskip("PIL.Image", reason="the extra `files` is not installed")
    photo = pillow.new("RGB", (2000, 1000), "red")
    photo.paste("blue", (0, 0, 1000, 1000))
    turned = photo.getexif()
    turned[0x0112] = 6  # the camera was held on its side: what is left in the file is on top
    photo.save(tmp_path / "a.jpg", exif=turned)
    image = read(tmp_path / "a.jpg", ContextConfig(max_image_side=400)).content
    assert (image.width, image.height) == (200, 400)
    red, _, blue = pillow.open(io.BytesIO(image.data)).convert("RGB").getpixel((100, 20))
    assert blue > 200 > red


@pytest.mark.recordings
def test_old_workbook_shows_its_sheets():
    pytest.importorskip("xlrd", reason="the extra `files` is not installed")
    paths = {path.name: path for path in FILES.rglob("*.xls")}
    if "47701.xls" not in paths:
        pytest.skip("the recorded files are not there: ../shared/data/files")
    result = read(paths["47701.xls"])
    assert result.file_type is FileType.SPREADSHEET
    assert "## Sheet Sheet1: 3 rows\n,,,,,,,Blue\n,,,,,,,Green" in result.content
    assert "1,True,#VALUE!" in read(paths["53404.xls"]).content.replace("row:0/col:3", "1")


def test_workbook_without_cells_says_so(tmp_path):
    openpyxl = pytest.importorskip("openpyxl", reason="the extra `files` is not installed")
    openpyxl.Workbook().save(tmp_path / "a.xlsx")
    assert read(tmp_path / "a.xlsx").content == "[contains no filled cells]\n"


def test_single_compressed_file_is_told_of(tmp_path):
    import bz2
    import gzip
    import lzma

    for opener, name in ((gzip, "a.json.gz"), (bz2, "a.json.bz2"), (lzma, "a.json.xz")):
        (tmp_path / name).write_bytes(opener.compress(b'{"a": 1}' * 1000))
        shown = read(tmp_path / name, max_tokens=100)
        assert "1 compressed file, 8000 bytes unpacked" in shown.content
        assert '{"a": 1}' in shown.content


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="this system has no /proc")
def test_file_that_says_it_is_empty_is_read_all_the_same():
    assert "\nPid:\t" in read("/proc/self/status").content


def test_small_image_comes_back_byte_for_byte(tmp_path):
    pillow = pytest.importorskip("PIL.Image", reason="the extra `files` is not installed")
    pillow.new("RGB", (20, 10)).save(tmp_path / "a.png")
    result = read(tmp_path / "a.png")
    assert result.content.data == (tmp_path / "a.png").read_bytes()
    assert result.content.media_type == "image/png"


def test_string_form_says_why_there_is_none(tmp_path, write):
    assert read_file_as_string(write("a.txt", "words\n"), CONFIG) == "words\n"
    assert read_file_as_string(tmp_path / "none.txt", CONFIG).startswith("[error: ")


def test_relative_path_is_looked_for_in_the_root(write, tmp_path):
    write("a.txt", "inside\n")
    assert read("a.txt", root=tmp_path).content == "inside\n"
    assert read(tmp_path / "a.txt", root=tmp_path).content == "inside\n"


def test_workbook_with_styles_that_nobody_understands_is_read_without_them(tmp_path, convert_here):
    openpyxl = pytest.importorskip("openpyxl", reason="the extra `files` is not installed")
    import zipfile

    book = openpyxl.Workbook()
    book.active.append(["id", "name"])
    book.active.append([1, "Ann"])
    book.save(tmp_path / "a.xlsx")
    with zipfile.ZipFile(tmp_path / "a.xlsx") as whole, zipfile.ZipFile(tmp_path / "b.xlsx", "w") as broken:
        for name in whole.namelist():
            data = whole.read(name)
            broken.writestr(name, data.replace(b'<cellStyle name="Normal"', b"<cellStyle"))
    path = tmp_path / "b.xlsx"
    assert "1,Ann" in read(path, cache_dir=convert_here(path)).content


@pytest.mark.parametrize("rows", [3, 31, 399, 1_000])
def test_a_sheet_is_shown_and_counted_as_its_csv_is(write, tmp_path, convert_here, rows):
    path, heading = workbook(tmp_path / "a.xlsx", One=rows), 20
    csv_path = write("a.csv", "id,name\n" + "".join(f"{n},name {n}\n" for n in range(1, rows + 1)))
    for max_tokens in (60, 200, 5_000):
        sheet = read_file(path, CONFIG, max_tokens=max_tokens, cache_dir=convert_here(path)).truncation_info
        table = read_file(csv_path, CONFIG, max_tokens=max_tokens).truncation_info
        assert table.rows_total == sheet.rows_total == rows
        assert 0 <= table.rows_shown - sheet.rows_shown <= (5 if max_tokens < 5_000 else 0)
        assert sheet.tokens_exact is (rows <= 399)
        margin = 0.02 if sheet.tokens_exact and table.tokens_exact else 0.1
        assert abs(sheet.tokens_total - table.tokens_total) <= heading + margin * table.tokens_total
        assert (sheet.tokens_total == sheet.tokens_shown) is not sheet.truncated
