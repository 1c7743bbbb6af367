"""Responses input items as artifacts and back.

The item kinds are those of `openai.types.responses.ResponseInputItemParam`; which output answers which call is the
table that OpenAI's Agents SDK uses. Kinds that are not known here are carried along as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Final

from ctxguard.adapting.editing import by_index
from ctxguard.adapting.fields import Path, get, is_list, require_list
from ctxguard.adapting.read_cache import ReadCache, read_at
from ctxguard.artifacts import Artifact, Kind, ToolCall
from ctxguard.errors import HistoryError
from ctxguard_openai.items import OWN, Item, call_id, is_bound, is_model_item, item_type, stand_in, unstored, view


class ResponsesAdapter:
    """Look at Responses input items as artifacts: what the model wrote in one go is one artifact, whatever its items.

    Reasoning is kept and dropped with what follows it, as the API demands. What does not survive: an edited item loses
    its `id` (the server would use its stored copy), an edited assistant message its `status` and `annotations`; the
    reasoning that led to an edited item goes, and its neighbors lose their ids with it. Items of unknown kind,
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
            HistoryError: it is not a list, an item has neither `type` nor `role`, its content cannot be read, or it is
                of another format.
        """
        artifacts = _with_shell_call_ids(_read(require_list(native, "input items")))
        fixed = (item for artifact in artifacts if artifact.pinned for item in _items(artifact))
        trusts = self.incremental or any(item_type(item) == "item_reference" for item in fixed)
        return list(_with_server_calls(artifacts)) if trusts else artifacts

    def write(self, native: Sequence[Item], artifacts: Iterable[Artifact]) -> list[Item]:
        """Return the items of these artifacts: the same objects where nothing was changed."""
        del native  # every artifact carries its items
        given = list(artifacts)
        call_types = {} if all(isinstance(artifact.source, tuple) for artifact in given) else _call_types(given)
        items: list[Item] = []
        for artifact in given:
            source = artifact.source
            if not isinstance(source, tuple):
                items += _created(artifact, call_types)
            else:
                items += source if artifact.origin is None else _written(artifact, source)
        return items

    def detects(self, native: object) -> bool:
        """Tell whether a list holds items of a kind that only the Responses API has."""
        types = [item_type(item) for item in native] if is_list(native) else [None]
        return None not in types and not OWN.isdisjoint(types)


def _runs(native: Sequence[Item]) -> Iterator[tuple[Item, ...]]:
    """Cut a list into what each artifact stands for: what the model wrote in one go, what a program did, one item.

    Reasoning or calls hold a run together; a message after a message is a second reply.
    """
    run: list[Item] = []
    programs, spoke, mixed = 0, False, False
    for position, item in enumerate(native):
        kind = item_type(item)
        if kind is None:
            raise HistoryError(_fault(item), position=position)
        speaks = is_model_item(item, kind)
        goes_on = speaks and spoke and (mixed or kind not in ("message", "reasoning"))
        if run and programs == 0 and not goes_on:
            yield tuple(run)
            run, mixed = [], False
        run.append(item)
        spoke, mixed = speaks, mixed or kind != "message"
        programs = max(0, programs + (kind == "program") - (kind == "program_output"))
    if run:
        yield tuple(run)


def _fault(item: object) -> str:
    if isinstance(item, Mapping):
        return "it has neither 'type' nor 'role'; every input item needs one"
    return f"expected a dict with 'type' or 'role', got {type(item).__name__}"


_CACHE: Final[ReadCache[tuple[Item, ...], Artifact]] = ReadCache(
    lambda items: view(items).artifact(items),
    key=lambda items: tuple(map(id, items)),
    exact=frozenset({"arguments", "input", "action", "operation", "output"}),
)


def _read(native: Sequence[Item]) -> list[Artifact]:
    """Return one artifact for each run of items; an error names the item, not the run."""
    try:
        return _CACHE.read(list(_runs(native)))
    except HistoryError:
        for position, item in enumerate(native):
            read_at(view, (item,), position)
        raise


def _with_shell_call_ids(artifacts: list[Artifact]) -> list[Artifact]:
    """Let the outputs of local shell calls answer by call id: they may name the item's id instead."""
    calling = (item for a in artifacts if a.calls for item in _items(a))
    named = {get(item, "id"): call_id(item) for item in calling if get(item, "type") == "local_shell_call"}
    return (
        [replace(a, answers=named[a.answers]) if a.answers in named else a for a in artifacts] if named else artifacts
    )


def _with_server_calls(artifacts: Sequence[Artifact]) -> Iterator[Artifact]:
    """Put an artifact that stands for no item before outputs whose calls are on the server, so that they pair."""
    called: set[str | None] = set()
    orphaned: list[tuple[bool, Artifact]] = []
    for artifact in artifacts:
        called.update(call.id for call in artifact.calls)
        orphaned.append((artifact.kind is Kind.TOOL and artifact.answers not in called, artifact))
    for are_orphans, group in groupby(orphaned, itemgetter(0)):
        members = [artifact for _, artifact in group]
        if are_orphans:
            calls = tuple(ToolCall(a.name or "", "", a.answers) for a in members)
            yield Artifact(Kind.ASSISTANT, "", 0, calls=calls, pinned=True, source=())
        yield from members


def _items(artifact: Artifact) -> tuple[Item, ...]:
    """Return the items that an artifact was read from; none of one that a stage added."""
    return artifact.source if isinstance(artifact.source, tuple) else ()


def _call_types(artifacts: Sequence[Artifact]) -> dict[str | None, str]:
    """Return of which type each call is, by its id."""
    return {call_id(item): str(item_type(item)) for artifact in artifacts for item in _items(artifact)}


def _written(artifact: Artifact, items: tuple[Item, ...]) -> list[Item]:
    """Return the items of a changed artifact; reasoning and what it led to are changed or kept together."""
    changes = by_index(view(items).changes(artifact))
    thinks = [item_type(item) == "reasoning" for item in items]
    begins = [n for n, thinking in enumerate(thinks) if thinking and n > 0 and not thinks[n - 1]]
    chunks = [range(*bounds) for bounds in pairwise([0, *begins, len(items)])]
    return [item for chunk in chunks for item in _rewritten(items, chunk, changes)]


def _rewritten(items: tuple[Item, ...], chunk: range, changes: Mapping[int, Mapping[Path, object]]) -> Iterator[Item]:
    changed = any(number in changes for number in chunk)
    bound = any(is_bound(items[number]) for number in chunk)
    thinks = item_type(items[chunk.start]) == "reasoning"
    for number in chunk:
        item = items[number]
        if item_type(item) == "reasoning":
            yield from [item] if not changed or (bound and number not in changes) else []
        else:
            frees = changed and thinks and not bound
            yield unstored(item, changes.get(number, {})) if frees or number in changes else item


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
