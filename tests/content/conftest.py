"""What the tests of content share: the recorded files, and their documents converted once."""

from __future__ import annotations

import pytest

from ctxguard.content.documents import cached_at
from ctxguard.content.opening import detect_file
from ctxguard.content.worker import CONVERTERS, _spreadsheet
from ctxguard.views.views import FileType

KINDS = {FileType.PDF: "pdf", FileType.DOCX: "docx", FileType.PPTX: "pptx", FileType.SPREADSHEET: "spreadsheet"}


@pytest.fixture(scope="session")
def conversions(tmp_path_factory):
    """Folder of the documents that were converted."""
    return tmp_path_factory.mktemp("documents")


@pytest.fixture
def convert_here(conversions):
    """Convert a document in this process, which spares two seconds of start-up; returns the cache that holds it."""
    pytest.importorskip("markitdown", reason="the extra `files` is not installed")

    def convert(path, rows=None):
        _convert(path, conversions, rows)
        return conversions

    return convert


def _convert(path, cache, rows):
    with path.open("rb") as file:
        kind = KINDS.get(detect_file(path.name, file.read(65_536)))
        if kind is None:
            return
        place = cached_at(cache, file, kind if rows is None else f"{kind}-{rows[0]}-{rows[1]}")
        file.seek(0)
        try:
            text = CONVERTERS[kind](file) if rows is None else _spreadsheet(file, rows)
            place.write_text(text, encoding="utf-8")
        except Exception:  # noqa: BLE001 - a document nobody can read: the test reads it through the worker
            return
