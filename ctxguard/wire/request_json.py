"""Parse and write the JSON bodies of requests. Error messages never quote a body."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ctxguard.errors import WireError
from ctxguard.wire.replies import as_json


def parse_body(body: bytes) -> dict[str, object]:
    """Return the JSON object in a body.

    Raises:
        WireError: If the body is not valid JSON, or not an object.
    """
    try:
        parsed = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the body is not valid JSON ({type(error).__name__})") from None
    if not isinstance(parsed, dict):
        raise WireError(f"the body must be a JSON object, not {type(parsed).__name__}")
    return parsed


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


def write_body(body: Mapping[str, object]) -> bytes:
    """Return a body as JSON bytes.

    The client's own bytes are never sent instead, because a repeated key in them could hide unchecked values.
    """
    try:
        return as_json(body, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the request cannot be written as JSON ({type(error).__name__})") from None
