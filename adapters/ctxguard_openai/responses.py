"""Responses input items as artifacts and back.

The item kinds are those of `openai.types.responses.ResponseInputItemParam`; which output answers which call is the
table that OpenAI's Agents SDK uses. Kinds that are not known here are carried along as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from ctxguard.adapters import ReadCache
from ctxguard.artifacts import Artifact, Kind, ToolCall
from ctxguard.errors import HistoryError
from ctxguard.lens import Path, are_same, by_member, get, is_list, wanted_list
from ctxguard_openai.items import (
    CALL_OF,
    FIXED,
    HOSTED,
    OUTPUT_OF,
    Item,
    call_id,
    is_model_item,
    item_type,
    slots,
    stand_in,
    stays,
    unstored,
    view,
)

__all__ = ["Item", "ResponsesAdapter"]


class ResponsesAdapter:
    """Look at Responses input items as artifacts: what the model wrote in one go is one artifact, whatever its items.

    Reasoning is kept and dropped with what follows it, as the API demands. What does not survive: an edited item loses
    its `id` (the server would use its stored copy), an edited assistant message its `status` and `annotations`; the
    reasoning that led to an edited item goes, and its neighbours lose their ids with it. Items of unknown kind,
    references, compactions and settings are kept as they are.

    Args:
        incremental: the calls of earlier responses are on the server (`previous_response_id`, `conversation`), so that
            an output without its call is right and stays.
    """

    name = "openai-responses"

    def __init__(self, *, incremental: bool = False) -> None:
        self.incremental = incremental

    def read(self, native: Sequence[Item]) -> list[Artifact]:
        """Return the artifacts of a list of input items.

        Raises:
            HistoryError: it is no list, an item has neither `type` nor `role`, its content cannot be read, or it is of
                another format.
        """
        groups = [_RUNS.known(group) for group in _groups(wanted_list(native, "input items"))]
        artifacts = _with_shell_call_ids(_read(groups), groups)
        trusts = self.incremental or any(item_type(group[0]) == "item_reference" for group in groups)
        return list(_with_server_calls(artifacts)) if trusts else artifacts

    def write(self, native: Sequence[Item], artifacts: Iterable[Artifact]) -> list[Item]:
        """Return the items of these artifacts: the same objects where nothing was changed."""
        del native  # every artifact carries its items
        given = list(artifacts)
        items: list[Item] = []
        for artifact in given:
            source = artifact.source
            if not isinstance(source, tuple):
                items += _created(artifact, _call_types(given))
            else:
                items += source if artifact.origin is None else _written(artifact, source)
        return items

    def detects(self, native: object) -> bool:
        """Tell whether a list holds items of a kind that only the Responses API has."""
        types = [item_type(item) for item in native] if is_list(native) else [None]
        known = {*OUTPUT_OF, *CALL_OF, *FIXED, *HOSTED, "reasoning"}
        return None not in types and any(kind in known for kind in types)


def _groups(native: Sequence[Item]) -> Iterator[list[Item]]:
    """Cut a list into what each artifact stands for."""
    run: list[Item] = []
    programs = 0
    for position, item in enumerate(native):
        kind = item_type(item)
        if kind is None:
            raise HistoryError("it has neither 'type' nor 'role'; every input item needs one", position=position)
        programs += (kind == "program") - (kind == "program_output")
        spoken = is_model_item(item, kind)
        if programs > 0 or (spoken and not _begins_anew(run, kind)):
            run.append(item)
            continue
        if run:
            yield run
        run = [item] if spoken else []
        if not spoken:
            yield [item]
    if run:
        yield run


def _begins_anew(run: list[Item], kind: str) -> bool:
    """Tell a second reply from the rest of the first; reasoning or calls hold a run together."""
    starts = bool(run) and kind in ("message", "reasoning")
    return starts and all(item_type(member) == "message" for member in run)


class _Runs:
    """Find the list that was made of the same items before, so that what was read of it is found again."""

    MOST = 20_000

    def __init__(self) -> None:
        self._by_first: dict[int, list[Item]] = {}

    def known(self, items: list[Item]) -> list[Item]:
        """Return the earlier list of these very items, or this one."""
        found = self._by_first.get(id(items[0]))
        if found is not None and are_same(found, items):
            return found
        if len(self._by_first) >= self.MOST:
            self._by_first.clear()
        self._by_first[id(items[0])] = items
        return items


def _artifact(items: Sequence[Item]) -> Artifact:
    source = tuple(items)
    return view(source).artifact(source)


_RUNS: Final = _Runs()
_CACHE: Final = ReadCache(_artifact, spelled=frozenset({"arguments", "input", "action", "operation", "output"}))


def _read(groups: Sequence[list[Item]]) -> list[Artifact]:
    try:
        return _CACHE.read(groups)
    except HistoryError:
        _name_fault(groups)
        raise


def _name_fault(groups: Sequence[list[Item]]) -> None:
    """Raise the error of the item that cannot be read with its place in the history."""
    for position, item in enumerate(item for group in groups for item in group):
        try:
            slots((item,))
        except HistoryError as error:
            raise HistoryError(str(error), position=position) from None


def _with_shell_call_ids(artifacts: list[Artifact], groups: Sequence[Sequence[Item]]) -> list[Artifact]:
    """Let the outputs of local shell calls answer by call id: they may name the item's id instead."""
    shells = [item for group in groups for item in group if get(item, "type") == "local_shell_call"]
    named = {get(item, "id"): call_id(item) for item in shells}
    return (
        [replace(a, answers=named[a.answers]) if a.answers in named else a for a in artifacts] if named else artifacts
    )


def _with_server_calls(artifacts: list[Artifact]) -> Iterator[Artifact]:
    """Put an artifact that stands for no item before outputs whose calls are on the server, so that they pair."""
    seen: set[str | None] = set()

    def is_orphan(artifact: Artifact) -> bool:
        return artifact.kind is Kind.TOOL and artifact.answers not in seen

    for artifact_group in groupby(artifacts, is_orphan):
        orphan, members = artifact_group[0], list(artifact_group[1])
        if orphan:
            calls = tuple(ToolCall(a.name or "", "", a.answers) for a in members)
            yield Artifact(Kind.ASSISTANT, "", 0, calls=calls, pinned=True, source=())
        yield from members
        seen.update(call.id for artifact in members for call in artifact.calls)


def _call_types(artifacts: Sequence[Artifact]) -> dict[str | None, str]:
    """Return of which type each call is, by its id."""
    sources = [artifact.source for artifact in artifacts if isinstance(artifact.source, tuple)]
    return {call_id(item): str(item_type(item)) for source in sources for item in source}


def _written(artifact: Artifact, items: tuple[Item, ...]) -> list[Item]:
    """Return the items of a changed artifact; reasoning and what it led to are changed or kept together."""
    changes = by_member(view(items).changes(artifact))
    written: list[Item] = []
    chunk: list[int] = []
    for number in range(len(items)):
        if chunk and item_type(items[number]) == "reasoning" and item_type(items[chunk[-1]]) != "reasoning":
            written += _rewritten(items, chunk, changes)
            chunk = []
        chunk.append(number)
    return written + _rewritten(items, chunk, changes)


def _rewritten(items: tuple[Item, ...], chunk: list[int], changes: Mapping[int, Mapping[Path, object]]) -> list[Item]:
    if not any(number in changes for number in chunk):
        return [items[number] for number in chunk]
    bound = any(item_type(items[n]) in HOSTED or stays((items[n],)) for n in chunk)  # these cannot go without their ids
    frees = not bound and any(item_type(items[n]) == "reasoning" for n in chunk)
    rewritten: list[Item] = []
    for number in chunk:
        item = items[number]
        if item_type(item) == "reasoning":
            rewritten += [item] if bound and number not in changes else []
        else:
            rewritten.append(unstored(item, changes.get(number, {})) if frees or number in changes else item)
    return rewritten


def _created(artifact: Artifact, call_types: Mapping[str | None, str]) -> list[Item]:
    """Return the items of an artifact that no item stood for: a stand-in result, a summary."""
    if artifact.kind is Kind.TOOL:
        return [stand_in(artifact, call_types.get(artifact.answers, "function_call"))]
    role = "user" if artifact.kind is Kind.TASK else artifact.kind.value
    spoken: list[Item] = [{"role": role, "content": artifact.text}] if artifact.text or not artifact.calls else []
    return spoken + [
        {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
        for call in artifact.calls
    ]
