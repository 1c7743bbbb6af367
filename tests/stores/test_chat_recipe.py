"""The recipe of a chat over HTTP runs on PostgreSQL as it runs on SQLite."""

from __future__ import annotations

import pytest
from markdown_pages import ROOT, Reader


@pytest.mark.slow
def test_the_chat_recipe_on_postgres(postgres_server, tmp_path, monkeypatch):
    pytest.importorskip("fastapi", reason="docs/recipe_chat.md: fastapi is not installed")
    pytest.importorskip("httpx", reason="docs/recipe_chat.md: httpx is not installed")
    monkeypatch.setenv("DATABASE_URL", postgres_server.url.replace("postgresql:", "postgresql+psycopg:"))
    monkeypatch.chdir(tmp_path)
    assert Reader(ROOT / "docs" / "recipe_chat.md").follow() == 3
