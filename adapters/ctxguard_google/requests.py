"""Stabilize the arguments of `client.models.generate_content`, or the body of a REST request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ctxguard.adapting.tool_calls import RecallToolFactory
from ctxguard.content.results import RECALL_SCHEMA
from ctxguard.formats.gemini import Content, GoogleAdapter
from ctxguard.formats.requests import Requests

if TYPE_CHECKING:
    from ctxguard.report import Report
    from ctxguard.stabilizer import Stabilizer

Schema = Mapping[str, object]

_RECALL: Final = {
    "function_declarations": [
        {
            "name": RECALL_SCHEMA["name"],
            "description": RECALL_SCHEMA["description"],
            "parameters_json_schema": RECALL_SCHEMA["parameters"],
        }
    ]
}
recall_tool = RecallToolFactory(lambda recall: (_RECALL, recall))
"""Create the recall tool: its schema, for `tools=[…]`, and the function to call with the `args` of a function call.

Call it as `recall_tool(store, max_tokens=2_000)`. The parameters are those of `ctxguard.content.recall_tool`.
"""


def _declare(function: object) -> Schema:
    """Return the declaration that the SDK derives from a Python function."""
    from google.genai import types

    declaration = types.FunctionDeclaration.from_callable_with_api_option(callable=function)  # type: ignore[arg-type]
    return {"function_declarations": [declaration.model_dump(mode="json", exclude_none=True)]}


_REQUESTS: Final = Requests(GoogleAdapter(), declare=_declare)
stabilize_request = _REQUESTS.stabilize_request
astabilize_request = _REQUESTS.astabilize_request


def stabilize_messages(
    contents: Sequence[Content],
    stabilizer: Stabilizer,
    *,
    system_instruction: Content | None = None,
    tools: Sequence[Schema] | None = None,
    window: int | None = None,
) -> tuple[Content | None, list[Content], Report]:
    """Stabilize contents; return the system instruction, the contents, and the report. See `stabilize_request`.

    The caller sends the tools unchanged. If a rule matches in them, the check `NoPII` fails.
    """
    return _REQUESTS.stabilize_messages(contents, stabilizer, system=system_instruction, tools=tools, window=window)
