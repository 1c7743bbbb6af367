"""A guarded agent under Prefect, with the server that it starts itself: flows are tried again after tasks that failed."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("prefect", reason="Prefect is not installed (make test-durable)")
pytest.importorskip("pydantic_ai.durable_exec.prefect", reason="this PydanticAI has no durable execution")

from programs import HERE, run
from scripted_provider import ANSWER, MAIL, REQUESTS, check


def test_a_flow_that_is_tried_again_sends_what_got_no_answer_with_the_same_bytes(tmp_path):
    settings = {
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "240",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
    done = json.loads(run(HERE / "prefect_program.py", tmp_path, **settings).splitlines()[-1])
    (output, sent), *disturbed = done["runs"]
    check(sent)
    assert output == ANSWER
    for lost, (output, bodies) in enumerate(disturbed, start=1):
        assert output == ANSWER
        assert bodies == [*sent[:lost], *sent[lost - 1 :]]
    assert (tmp_path / "mails").read_text() == MAIL * (1 + REQUESTS)
