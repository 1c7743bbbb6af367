"""Bound what tools return: results, and what the model gets beside a result (`ToolReturn.content`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, ToolReturn, ToolReturnPart, UserPromptPart

from ctxguard.adapting.fields import copy_with
from ctxguard.adapting.per_run import ForRun
from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import adrive
from ctxguard_pydantic_ai.adapter import is_fixed, read_part, rendered

FULL_RESULT: Final = "ctxguard_full_result"
"""Key of `ToolReturnPart.metadata` for the complete, unmasked value of a shortened result. No model receives it."""
FULL_CONTENT: Final = "ctxguard_full_content"
"""The same for the complete content that a tool returned for the model beside its result, as `ToolReturn.content`."""


async def bounded_result(result: Any, run: ForRun, tool: str, session: object) -> Any:  # noqa: ANN401 - what a tool returned
    """Return the result of a tool, masked and shortened if it exceeds `max_result_tokens`; the same object otherwise.

    The complete value is kept in the metadata. Results with media are not changed.

    Args:
        result: The result.
        run: The stabilizer and the settings, which have a limit.
        tool: The name of the tool.
        session: The id of the conversation, for the report.
    """
    limit = run.options.max_result_tokens
    if isinstance(result, ToolReturn) and result.content is not None and limit is not None:
        content = await _bounded_content(run, UserPromptPart(result.content), tool, limit, session)
        if content is not None:
            metadata = _metadata(result.metadata, result.content, FULL_CONTENT)
            result = replace(result, content=content, metadata=metadata)
    value = result.return_value if isinstance(result, ToolReturn) else result
    part = ToolReturnPart(tool, value, "")
    found = read_part(part)
    if len(found) > 1 or any(piece.text is None for _, piece in found):  # it contains media
        return result
    output = Artifact(Kind.TOOL, rendered(part, value), answers="1")
    bounded = await adrive(run.bounded(output, tool, session=session))
    if bounded is None:
        return result
    returned = result if isinstance(result, ToolReturn) else ToolReturn(value)
    return replace(returned, return_value=bounded.text, metadata=_metadata(returned.metadata, value))


async def with_bounded_returns(message: ModelMessage, run: ForRun, limit: int, session: object) -> ModelMessage:
    """Return a message in which the pictures of its tools, and what they returned beside results, keep a limit.

    PydanticAI writes what a tool returns for the model beside its result as a prompt of the user into the request with
    the results. Unbounded, it would be mandatory as the last message of the user, and could end a run.

    Args:
        message: The message, which is returned itself if nothing exceeds the limit.
        run: The stabilizer and the settings.
        limit: Maximum number of tokens of each part.
        session: The id of the conversation, for the report.
    """
    changed: dict[int, Any] = {}
    parts: list[Any] = list(message.parts)
    for number in second_returns(message):
        content = await _bounded_content(run, parts[number], _tool_before(parts, number), limit, session)
        if content is not None:
            changed[number] = replace(parts[number], content=content)
    if not changed:
        return message
    return copy_with(message, {("parts",): [changed.get(n, part) for n, part in enumerate(parts)]})


def _metadata(metadata: Any, value: object, key: str = FULL_RESULT) -> Any:  # noqa: ANN401 - the application's own
    return {**metadata, key: value} if isinstance(metadata, dict) else metadata or {key: value}


def second_returns(message: ModelMessage) -> list[int]:
    """Return the positions of results with pictures, and of the prompts behind a result, which tools returned, too."""
    kinds = [part.part_kind for part in message.parts]
    if "tool-return" not in kinds:
        return []
    first = kinds.index("tool-return")
    found = [number for number, kind in enumerate(kinds) if kind == "user-prompt" and number > first]
    results = (number for number, kind in enumerate(kinds) if kind == "tool-return")
    return [*(number for number in results if _has_media(message.parts[number])), *found]


def _has_media(part: Any) -> bool:  # noqa: ANN401 - a result, whose class differs between versions
    is_list = isinstance(part.content, list | tuple) and not is_fixed(part)
    return is_list and any(one.text is None for _, one in read_part(part))


def _tool_before(parts: Sequence[Any], number: int) -> str:
    return next(str(part.tool_name) for part in reversed(parts[: number + 1]) if part.part_kind == "tool-return")


async def _bounded_content(run: ForRun, part: Any, tool: str, limit: int, session: object) -> Any:  # noqa: ANN401 - the framework's
    """Return the content of a part that a tool returned, within a limit; None if it is within the limit already.

    Texts are shortened, each to its share. Of pictures and other media, the latest that fit stay.
    """
    is_text = isinstance(part.content, str)
    items = [part.content] if is_text else list(part.content)
    read = [one for _, one in read_part(replace(part, content=items))]
    sizes = [run.stabilizer.counter.artifact(Artifact(Kind.TOOL, (one,), answers="1")) for one in read]
    if sum(sizes) <= limit:
        return None
    kept, media = {number for number, one in enumerate(read) if one.text is not None}, 0
    share = max(1, limit // 2 // max(1, len(kept)))
    for number in reversed(range(len(items))):
        if number not in kept and media + sizes[number] <= limit // 2:
            kept.add(number)
            media += sizes[number]
    shown: list[Any] = []
    for number in sorted(kept):
        text = read[number].text
        artifact = None if text is None else Artifact(Kind.TOOL, text, answers="1")
        bounded = artifact and await adrive(run.bounded(artifact, tool, session=session, limit=share))
        shown.append(items[number] if bounded is None else bounded.text)
    if len(kept) < len(items):
        shown.append(f"[pictures or files left out: {len(items) - len(kept)}; over the limit of {limit} tokens]")
    return shown[0] if is_text else shown
