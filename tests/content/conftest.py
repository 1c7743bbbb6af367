"""What the tests of content share: the recorded files, and their documents converted once."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxguard.content.files import detect_file
from ctxguard.content.processors.documents import cached_at
from ctxguard.content.views import FileType
from ctxguard.content.worker import CONVERTERS

FILES = Path(__file__).parents[2].parent / "shared" / "data" / "files"
KINDS = {FileType.PDF: "pdf", FileType.DOCX: "docx", FileType.PPTX: "pptx", FileType.SPREADSHEET: "spreadsheet"}


@pytest.fixture(scope="session")
def documents(tmp_path_factory):
    """Convert every recorded document in this process, which spares two seconds of start-up each."""
    pytest.importorskip("markitdown", reason="the extra `files` is not installed")
    cache = tmp_path_factory.mktemp("documents")
    for path in sorted(FILES.rglob("*")):
        if path.is_file():
            _convert(path, cache)
    return cache


def _convert(path, cache):
    with path.open("rb") as file:
        kind = KINDS.get(detect_file(path.name, file.read(65_536)))
        if kind is None:
            return
        place = cached_at(cache, file, kind)
        file.seek(0)
        try:
            place.write_text(CONVERTERS[kind](file), encoding="utf-8")
        except Exception:  # noqa: BLE001 - a document nobody can read: the test reads it through the worker
            return
