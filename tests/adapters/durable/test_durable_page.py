"""The programs of the page on durable engines run as a reader runs them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")
pytest.importorskip("markdown_it", reason="markdown-it-py is not installed (it comes with the group dev)")

from programs import ROOT, run
from scripted_provider import KEY

sys.path.append(str(ROOT / "tests"))
from markdown_pages import blocks_of

PREFECT = {
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "240",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
}


@pytest.fixture
def files(tmp_path):
    for block in blocks_of(ROOT / "docs" / "durable.md"):
        if block.title is not None:
            (tmp_path / block.title).write_text(block.text)
    return tmp_path


def follow(folder, engine, **settings):
    pytest.importorskip(
        f"pydantic_ai.durable_exec.{engine}",
        reason=f"{engine} is not installed (make test-durable)",
        exc_type=ImportError,
    )
    run(folder / f"{engine}_app.py", cwd=folder, CTXGUARD_VAULT_KEY=KEY, **settings)


@pytest.mark.slow
def test_dbos(files):
    follow(files, "dbos")


def test_prefect(files):
    follow(files, "prefect", PREFECT_HOME=str(files / "prefect"), **PREFECT)


async def test_temporal(files):
    pytest.importorskip("temporalio", reason="Temporal's SDK is not installed (make test-durable)")
    from temporalio.testing import WorkflowEnvironment

    server = shutil.which("temporal", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    if server is None:
        pytest.skip("Temporal's server is not installed (make test-durable)")
    environment = WorkflowEnvironment.start_local(dev_server_existing_path=server, dev_server_log_level="error")
    async with await environment as running:
        follow(files, "temporal", TEMPORAL_ADDRESS=running.client.service_client.config.target_host)
