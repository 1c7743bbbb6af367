"""Read the logs that people already have: one table of kinds, each of which recognizes a value and yields its sessions.

The logs are read as plain JSON; the tool that wrote a log need not be installed. A kind of rows has one session per
value. Any other kind is given all values of a file, because its sessions are spread over them, or nested in them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

from ctxguard.harness.spans import Record, Spans, holds_spans, records_in

Values: TypeAlias = Iterable[tuple[int, object]]
"""The parsed values of a file, each with its line number, from 1."""
Sessions: TypeAlias = Iterator[tuple[int, Record]]
"""Sessions as records with `messages` or `input`, which may be empty, each with the number of its first line."""


@dataclass(frozen=True, slots=True)
class LogKind:
    """A kind of log.

    Attributes:
        name: Name of the kind, as messages show it.
        keys: Keys by which an unknown record is compared with this kind.
        detects: Whether a parsed value is of this kind.
        sessions: Yields the sessions in values of this kind.
        is_rows: Whether each value is one session.
    """

    name: str
    keys: frozenset[str]
    detects: Callable[[object], bool]
    sessions: Callable[[Values], Sessions]
    is_rows: bool = False


def kind_of(value: object, *, is_rows: bool) -> LogKind | None:
    """Return the kind of a parsed value, among the kinds of rows or among all others; None if there is none."""
    return next((kind for kind in KINDS if kind.is_rows is is_rows and kind.detects(value)), None)


def nearest_kind(value: object) -> str | None:
    """Return the name of the kind with which a record has most keys in common; None if it has none in common."""
    keys = set(map(str, value)) if isinstance(value, Mapping) else set()
    best = max(KINDS, key=lambda kind: len(kind.keys & keys))
    return best.name if best.keys & keys else None


def translate_row(record: object) -> object:
    """Return a row of a known kind as a record with `messages`; return any other value unchanged."""
    kind = kind_of(record, is_rows=True)
    return record if kind is None else next(kind.sessions([(1, record)]))[1]


def _is_list_of(detects: Callable[[Record], bool]) -> Callable[[object], bool]:
    """Return a function that detects a record, or a list of such records."""

    def detect(value: object) -> bool:
        listed = value if isinstance(value, list) else [value]
        return bool(listed) and all(isinstance(each, Mapping) and detects(each) for each in listed)

    return detect


def _records(values: Values) -> Iterator[tuple[int, Record]]:
    for line, value in values:
        yield from ((line, each) for each in records_in(value if isinstance(value, list) else [value]))


def _mapping(value: object) -> Record:
    return value if isinstance(value, Mapping) else {}


# -- OpenTelemetry


def _of_spans(values: Values) -> Sessions:
    spans = Spans()
    for line, value in values:
        spans.add(value, line)
    yield from spans.sessions()


# -- ChatGPT's export


def _is_chatgpt(record: Record) -> bool:
    nodes = record.get("mapping")
    return isinstance(nodes, Mapping) and all(isinstance(n, Mapping) and "parent" in n for n in nodes.values())


def _of_chatgpt(values: Values) -> Sessions:
    for line, record in _records(values):
        nodes = _mapping(record["mapping"])
        leaf = record.get("current_node") or next(reversed(list(nodes)), None)
        path = _ancestors(leaf, {str(node): _mapping(each).get("parent") for node, each in nodes.items()})
        found = [_mapping(_mapping(nodes.get(node)).get("message")) for node in path]
        messages = [made for message in found if (made := _chatgpt_message(message))]
        name = str(record.get("conversation_id") or record.get("id") or line)
        yield line, {"id": name, "messages": messages}


def _ancestors(leaf: object, parents: Mapping[str, object]) -> list[str]:
    """Return the chain of ids from the root to `leaf`; it ends at an id that repeats, so damaged trees end as well."""
    chain: dict[str, None] = {}
    while isinstance(leaf, str) and leaf not in chain:
        chain[leaf] = None
        leaf = parents.get(leaf)
    return list(reversed(chain))


def _chatgpt_message(message: Record) -> Record | None:
    """Return a message of the export, or None if it is empty.

    Tools have no call ids in the export, so their texts become the assistant's.
    """
    role, content = _mapping(message.get("author")).get("role"), _mapping(message.get("content"))
    parts = content.get("parts")
    listed = parts if isinstance(parts, list) else [content.get("text") or content.get("result") or ""]
    text = "\n".join(part if isinstance(part, str) else _part_text(part) for part in listed).strip()
    if not text or not isinstance(role, str):
        return None
    return {"role": "assistant" if role == "tool" else role, "content": text}


def _part_text(part: object) -> str:
    fields = _mapping(part)
    text = fields.get("text")
    return text if isinstance(text, str) else f"[{fields.get('content_type') or 'media'}]"


# -- Claude Code's project folders


def _is_claude_code(value: object) -> bool:
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        return False
    return bool(value.keys() & {"parentUuid", "leafUuid", "isSnapshotUpdate"}) or (
        "sessionId" in value and not value.keys() & {"role", "messages"}
    )


def _of_claude_code(values: Values) -> Sessions:
    """Yield the main conversation of each session in a file, and each sidechain, up to its last line."""
    lines: dict[str, tuple[int, Record]] = {}
    for number, value in values:
        record = _mapping(value)
        if isinstance(uuid := record.get("uuid"), str):
            lines[uuid] = number, record
    parents = _parents(lines)
    leaves: dict[str, str] = {}
    roots: dict[str, str] = {}
    for uuid, (_, record) in lines.items():
        parent = parents[uuid]
        roots[uuid] = uuid if parent is None else roots.get(parent, uuid)
        if record.get("type") in ("user", "assistant"):
            session = str(record.get("sessionId", ""))
            leaves[f"{session}/{roots[uuid]}" if record.get("isSidechain") else session] = uuid
    results = _results(lines)
    places = {uuid: place for place, uuid in enumerate(lines)}
    for name, leaf in leaves.items():
        chain = _ancestors(leaf, parents)
        read = {*chain, *(uuid for parent in chain for uuid in results.get(parent, ()))}
        records = [lines[uuid] for uuid in sorted(read, key=places.__getitem__)]
        yield records[0][0], {"id": name, "messages": _claude_messages(record for _, record in records)}


def _parents(lines: Mapping[str, tuple[int, Record]]) -> dict[str, str | None]:
    """Return the parent of each line.

    If the parent is missing, because its line is damaged, it is the previous line of the same session.
    """
    parents: dict[str, str | None] = {}
    latest: dict[tuple[str, bool], str] = {}
    for uuid, (_, record) in lines.items():
        conversation = str(record.get("sessionId", "")), bool(record.get("isSidechain"))
        parent = record.get("parentUuid") or record.get("logicalParentUuid")
        known = str(parent) if str(parent) in lines else latest.get(conversation)
        parents[uuid] = known if parent else None
        latest[conversation] = uuid
    return parents


def _results(lines: Mapping[str, tuple[int, Record]]) -> dict[str, list[str]]:
    """Return the ids of the lines with results by their parent; results of parallel calls are branches in the log."""
    found: dict[str, list[str]] = {}
    for uuid, (_, record) in lines.items():
        if _are_results(_mapping(record.get("message")).get("content")):
            found.setdefault(str(record.get("parentUuid")), []).append(uuid)
    return found


def _are_results(content: object) -> bool:
    return (
        isinstance(content, list) and bool(content) and all(_mapping(b).get("type") == "tool_result" for b in content)
    )


def _claude_messages(records: Iterable[Record]) -> list[Record]:
    """Return messages for Anthropic. The blocks of a reply, which are logged one a line with one id, are joined."""
    messages: list[dict[str, object]] = []
    replies: dict[str, list[object]] = {}
    for record in records:
        message = _mapping(record.get("message"))
        role, content = message.get("role"), message.get("content")
        if role not in ("user", "assistant") or record.get("isApiErrorMessage"):
            continue
        name = message.get("id") if role == "assistant" else None
        blocks = replies.get(str(name)) if name else _open_results(messages, content)
        if blocks is not None and isinstance(content, list):
            blocks += content
            continue
        kept = list(content) if isinstance(content, list) else content
        if isinstance(kept, list) and name:
            replies[str(name)] = kept
        messages.append({"role": role, "content": kept})
    return list(messages)


def _open_results(messages: list[dict[str, object]], content: object) -> list[object] | None:
    """Return the last message's results if `content` has more results of the same reply; None otherwise."""
    last = messages[-1]["content"] if messages else None
    return last if isinstance(last, list) and _are_results(last) and _are_results(content) else None


# -- Codex's sessions

_CODEX: Final = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")


def _is_codex(value: object) -> bool:
    if not isinstance(value, Mapping) or not isinstance(value.get("payload"), Mapping):
        return False
    return value.get("type") in _CODEX or (isinstance(value.get("type"), str) and "timestamp" in value)


def _of_codex(values: Values) -> Sessions:
    begin, items = 1, []
    about: Record = {}
    for line, value in values:
        record = _mapping(value)
        if record.get("type") == "session_meta" and not about:
            begin, about = line, _mapping(record["payload"])
        elif record.get("type") == "response_item":
            items.append(record["payload"])
    base = _mapping(about.get("base_instructions")).get("text") or about.get("instructions")
    if items:
        beside = {"instructions": base} if isinstance(base, str) else {}
        yield begin, {"id": str(about.get("id", begin)), "input": items, **beside}


# -- Inspect's evaluation logs


def _is_inspect(value: object) -> bool:
    return isinstance(value, Mapping) and "eval" in value and isinstance(value.get("samples"), list)


def _of_inspect(values: Values) -> Sessions:
    for line, value in values:
        for sample in records_in(_mapping(value).get("samples")):
            messages = [_inspect_message(each) for each in records_in(sample.get("messages"))]
            yield line, {"id": f"{sample.get('id')}/{sample.get('epoch', 1)}", "messages": messages}


def _inspect_message(message: Record) -> Record:
    kept: dict[str, object] = {"role": message.get("role"), "content": _without_reasoning(message.get("content"))}
    calls = [
        {
            "id": call.get("id"),
            "type": "function",
            "function": {"name": call.get("function"), "arguments": json.dumps(call.get("arguments") or {})},
        }
        for call in records_in(message.get("tool_calls"))
    ]
    if calls:
        kept["tool_calls"] = calls
    if message.get("role") == "tool":
        kept["tool_call_id"] = message.get("tool_call_id")
        error = _mapping(message.get("error")).get("message")
        kept["content"] = kept["content"] or error or ""
    return kept


def _without_reasoning(content: object) -> object:
    if not isinstance(content, list):
        return content
    blocks = [block for block in records_in(content) if block.get("type") != "reasoning"]
    return "\n".join(str(b["text"]) if isinstance(b.get("text"), str) else f"[{b.get('type')}]" for b in blocks)


# -- LangSmith's runs and Langfuse's observations


def _is_langsmith(record: Record) -> bool:
    return "run_type" in record and "inputs" in record


def _is_langfuse(record: Record) -> bool:
    return record.get("type") in ("GENERATION", "SPAN", "EVENT") and "input" in record and "traceId" in record


def _of_calls(values: Values) -> Sessions:
    """Yield one session per trace: its longest call, and the response."""
    longest: dict[str, tuple[int, list[object]]] = {}
    for line, record in _records(values):
        sent = _listed(record.get("inputs", record.get("input")))
        messages = [*sent, *_reply(record.get("outputs", record.get("output")), sent)] if sent else []
        name = str(record.get("trace_id") or record.get("traceId") or record.get("id"))
        if len(messages) > len(longest.setdefault(name, (line, []))[1]):
            longest[name] = line, messages
    yield from ((line, {"id": name, "messages": messages}) for name, (line, messages) in longest.items())


def _parsed(value: object) -> object:
    with suppress(ValueError, RecursionError):
        return json.loads(value) if isinstance(value, str) else value
    return value


def _listed(value: object) -> list[object]:
    """Return the messages that a call was given: a list, or a list of one list, possibly below `messages`."""
    found = _parsed(value)
    listed = _mapping(found).get("messages", found)
    if isinstance(listed, list) and len(listed) == 1 and isinstance(listed[0], list):
        listed = listed[0]
    return listed if isinstance(listed, list) and all(isinstance(each, Mapping) for each in listed) else []


def _reply(value: object, sent: list[object]) -> Sequence[object]:
    """Return the new messages in the output of a call. The output of a chain repeats its input."""
    found = _parsed(value)
    if isinstance(found, list):
        return [each for each in found if isinstance(each, Mapping)][:1]
    output = _mapping(found)
    if messages := _listed(output.get("messages")):
        return messages[len(sent) :] if messages[: len(sent)] == sent else messages
    for key in ("generations", "choices"):
        choices = output.get(key)
        while isinstance(choices, list) and choices:
            choices = choices[0]
        if inner := _mapping(choices).get("message"):
            return [inner]
    if isinstance(inner := output.get("message"), Mapping):
        return [inner]
    return [output] if "role" in output or "lc" in output else []


# -- Rows of training data, and batches

_SPEAKERS: Final = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "system": "system",
    "function_call": "assistant",
    "observation": "user",
    "tool": "user",
}


def _is_sharegpt(value: object) -> bool:
    turns = _mapping(value).get("conversations")
    return isinstance(turns, list) and bool(turns) and all(map(_is_turn, turns))


def _is_turn(turn: object) -> bool:
    """Return whether a turn has only a speaker and a text: a field that is not understood is not passed over."""
    fields = _mapping(turn)
    return fields.keys() == {"from", "value"} and str(fields["from"]) in _SPEAKERS and isinstance(fields["value"], str)


def _of_sharegpt(values: Values) -> Sessions:
    for line, row in _records(values):
        turns = records_in(row["conversations"])
        messages = [{"role": _SPEAKERS[str(turn["from"])], "content": turn["value"]} for turn in turns]
        yield line, _replaced(row, ("conversations",), messages)


def _is_instruction(value: object) -> bool:
    row = _mapping(value)
    texts = (row.get("instruction"), row.get("input") or "", row.get("output"))
    return all(isinstance(text, str) for text in texts) and "messages" not in row


def _of_instructions(values: Values) -> Sessions:
    for line, row in _records(values):
        asked = "\n\n".join(str(text) for text in (row["instruction"], row.get("input")) if text)
        messages: list[Record] = [{"role": "user", "content": asked}, {"role": "assistant", "content": row["output"]}]
        yield line, _replaced(row, ("instruction", "input", "output"), messages)


def _replaced(row: Record, keys: Iterable[str], messages: Sequence[Record]) -> Record:
    return {**{key: each for key, each in row.items() if key not in keys}, "messages": messages}


def _is_batch(value: object) -> bool:
    row = _mapping(value)
    return "custom_id" in row and isinstance(row.get("body", row.get("params")), Mapping)


def _of_batches(values: Values) -> Sessions:
    for line, row in _records(values):
        yield line, {**_mapping(row.get("body", row.get("params"))), "id": row["custom_id"]}


KINDS: Final = (
    LogKind("OpenTelemetry spans", frozenset({"resourceSpans", "attributes", "traceId"}), holds_spans, _of_spans),
    LogKind(
        "ChatGPT conversations", frozenset({"mapping", "current_node", "title"}), _is_list_of(_is_chatgpt), _of_chatgpt
    ),
    LogKind(
        "Claude Code lines", frozenset({"uuid", "parentUuid", "sessionId", "type"}), _is_claude_code, _of_claude_code
    ),
    LogKind("Codex lines", frozenset({"timestamp", "type", "payload"}), _is_codex, _of_codex),
    LogKind("Inspect samples", frozenset({"eval", "samples", "plan"}), _is_inspect, _of_inspect),
    LogKind("LangSmith runs", frozenset({"run_type", "inputs", "outputs"}), _is_list_of(_is_langsmith), _of_calls),
    LogKind("Langfuse observations", frozenset({"traceId", "input", "output"}), _is_list_of(_is_langfuse), _of_calls),
    LogKind("ShareGPT rows", frozenset({"conversations"}), _is_sharegpt, _of_sharegpt, is_rows=True),
    LogKind(
        "instruction rows",
        frozenset({"instruction", "input", "output"}),
        _is_instruction,
        _of_instructions,
        is_rows=True,
    ),
    LogKind("batch requests", frozenset({"custom_id", "body", "params"}), _is_batch, _of_batches, is_rows=True),
)
"""The kinds of logs, in the order in which they are tried."""
