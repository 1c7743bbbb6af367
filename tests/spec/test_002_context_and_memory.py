"""spec/002, context and memory: paragraph by paragraph; the docstring of each test quotes the line it holds."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from blocks import code_blocks, run_block, shimmed
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxguard import Artifact, Stabilizer, ToolCall
from ctxguard.checks import RecentKept
from ctxguard.compaction import CompactionConfig, CompactionResult, HistoryCompactor
from ctxguard.config import ContextConfig, get_truncation_config, load_context_config
from ctxguard.content import FileType, context_result, read_file, read_file_as_string
from ctxguard.errors import ConfigError
from ctxguard.prompts import get_instructions, get_prompt, get_system_prompt, load_prompt
from ctxguard.stages import RepairExchanges
from ctxguard.tokens import find_counter

count = find_counter("estimate").count


@pytest.fixture
def prompts(tmp_path, monkeypatch):
    folder = tmp_path / "prompts"
    (folder / "shared").mkdir(parents=True)
    (folder / "shared" / "workspace.md").write_text("Work in {folder}.")
    (folder / "analysis.md").write_text(
        "# Analysis Agent\n\n{% include 'shared/workspace.md' %}\n\n"
        "Analyze the {database} database. Limit results to {max_rows} rows."
    )
    (folder / "system_prompt.md").write_text("You are {agent_name}.")
    (folder / "instructions.md").write_text("Be brief.")
    monkeypatch.chdir(tmp_path)
    return folder


def test_load_prompt(prompts):
    """> loads a template, resolves `{% include %}` directives, and substitutes `{variable}` placeholders"""
    prompt = load_prompt(prompts / "analysis.md", database="bookstore", max_rows=100, folder="/tmp/w")
    assert "Work in /tmp/w." in prompt
    assert "Analyze the bookstore database. Limit results to 100 rows." in prompt


def test_missing_and_unused_variables_are_value_errors(prompts):
    """> Missing or unused variables raise `ValueError`."""
    with pytest.raises(ValueError, match="missing variables: folder, max_rows"):
        load_prompt(prompts / "analysis.md", database="bookstore")
    with pytest.raises(ValueError, match="unused variables: extra"):
        get_instructions(extra=1)


def test_convenience_functions(prompts):
    """> from agentic_patterns.core.prompt import get_system_prompt, get_prompt, get_instructions"""
    assert get_system_prompt(agent_name="sql") == "You are sql."
    assert get_prompt("analysis", database="b", max_rows=1, folder="f").startswith("# Analysis Agent")
    assert get_instructions() == "Be brief."


def test_file_types():
    """> ARCHIVE, AUDIO, BINARY, CODE, CSV, DOCX, IMAGE, JSON, MARKDOWN, PDF, PPTX, SPREADSHEET (xlsx), TEXT, XML, YAML."""
    named = "ARCHIVE AUDIO BINARY CODE CSV DOCX IMAGE JSON MARKDOWN PDF PPTX SPREADSHEET TEXT XML YAML"
    assert {FileType[name] for name in named.split()} <= set(FileType)
    assert issubclass(FileType, str)
    assert FileType("xlsx") is FileType.SPREADSHEET


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "data", "file_type"),
    [
        ("a.py", b"import os\n", FileType.CODE),
        ("a.csv", b"a,b\n1,2\n", FileType.CSV),
        ("a", b"\x00\x01\x02" * 50, FileType.BINARY),
        ("a", b"%PDF-1.4\n%", FileType.PDF),
    ],
)
def test_detection(tmp_path, name, data, file_type):
    """> Detection uses file extension first (e.g., `.py` maps to CODE, `.csv` to CSV)"""
    (tmp_path / name).write_bytes(data)
    assert read_file(tmp_path / name, ContextConfig(), counter="estimate", cache_dir=None).file_type is file_type


def test_defaults_of_the_configuration():
    """> `max_tokens_per_file` (5000), `max_total_output` (50000), `max_lines` (200), `max_line_length` (1000)."""
    config = ContextConfig()
    assert (config.max_tokens_per_file, config.max_total_output, config.max_lines) == (5_000, 50_000, 200)
    assert (config.max_line_length, config.max_nesting_depth, config.max_array_items) == (1_000, 5, 50)
    assert (config.max_object_keys, config.max_string_value_length, config.max_columns) == (50, 500, 50)
    assert (config.max_cell_length, config.rows_head, config.rows_tail) == (500, 20, 10)


def test_what_a_shared_config_yaml_holds_in_vain_is_said_once(tmp_path, monkeypatch, caplog):
    """> If neither is provided, defaults are loaded from `config.yaml`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text("models: {a: b}\ncompaction: {max_tokens: 900}\ncontext: {}\n")
    assert load_context_config().compaction.max_tokens == 120_000
    load_context_config()
    assert [r.getMessage() for r in caplog.records] == [
        "config.yaml: compaction, context ignored beside settings of other programs; write a section 'ctxguard'"
    ]


def test_configuration_is_loaded_from_yaml(tmp_path, monkeypatch):
    """> `ContextConfig` is a Pydantic model loaded from `config.yaml`"""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text("max_lines: 7\nmax_columns: 3\n")
    assert load_context_config().max_lines == 7
    assert load_context_config() is load_context_config()


@pytest.mark.parametrize("name", ["default", "sql_query", "log_search"])
def test_named_truncation_configs(name):
    """> `TruncationConfig` presets (default, sql_query, log_search) with their own thresholds"""
    preset = get_truncation_config(name, config=ContextConfig())
    assert preset.rows_head >= 0
    assert preset.json_array_head >= 0
    assert preset.max_preview_tokens > 0


def test_read_file(tmp_path):
    """> It detects the file type, dispatches to the appropriate processor, and applies a final token limit"""
    path = tmp_path / "large_report.json"
    path.write_text(json.dumps({"rows": [{"id": n, "text": "word " * 50} for n in range(2_000)]}))
    result = read_file(path, config=ContextConfig(), counter="estimate")
    assert result.success
    assert result.file_type is FileType.JSON
    assert count(result.content) <= 5_000
    assert json.loads(result.content)["rows"]
    assert result.truncation_info.truncated
    assert result.truncation_info.tokens_total > result.truncation_info.tokens_shown
    assert (result.metadata.size, result.metadata.mime_type) == (path.stat().st_size, "application/json")


def test_read_file_as_string(tmp_path):
    """> returns just the content string or an error message"""
    (tmp_path / "a.txt").write_text("hello\n")
    assert read_file_as_string(tmp_path / "a.txt", ContextConfig()) == "hello\n"
    assert read_file_as_string(tmp_path / "none.txt", ContextConfig()).startswith("[error: ")


@pytest.mark.parametrize(
    ("name", "mime"),
    [
        ("a.yaml", "application/yaml"),
        ("a.yml", "application/yaml"),
        ("a.jsonl", "application/jsonl"),
        ("a.toml", "application/toml"),
        ("a.go", "text/plain"),
        ("a.rs", "text/x-rust"),
        ("a.py", "text/x-python"),
        ("a.csv", "text/csv"),
        ("a.ts", "text/x-typescript"),
        ("a.unheard", "application/octet-stream"),
    ],
)
def test_mime_types_do_not_depend_on_the_machine(tmp_path, name, mime, monkeypatch):
    """> result.metadata      # FileMetadata (size, modified time, MIME type)"""
    monkeypatch.setattr("mimetypes.guess_type", lambda *_: ("x-machine/x-own", None))
    (tmp_path / name).write_text("a\n")
    assert read_file(tmp_path / name, ContextConfig()).metadata.mime_type == mime


def view(tmp_path, name, text, **settings):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_file(tmp_path / name, ContextConfig(), counter="estimate", **settings)


def test_text_processor(tmp_path):
    """> Encoding detection (UTF-8, Latin-1 fallback), line range selection, long line truncation."""
    (tmp_path / "latin.txt").write_bytes("São Paulo\n".encode("latin-1"))
    latin = read_file(tmp_path / "latin.txt", ContextConfig())
    assert (latin.content, latin.metadata.encoding) == ("São Paulo\n", "latin-1")
    assert view(tmp_path, "a.txt", "".join(f"{n}\n" for n in range(99)), lines=(3, 4)).content == "2\n3\n"
    assert max(map(len, view(tmp_path, "b.txt", "x" * 5_000 + "\nend\n").content.split("\n"))) <= 1_000


def test_csv_processor(tmp_path):
    """> Delimiter auto-detection, head+tail row sampling for large files, column and cell truncation."""
    text = (
        ";".join(f"c{n}" for n in range(80)) + "\n" + "".join(f"{n};" + "y" * 900 + ";" * 78 + "\n" for n in range(90))
    )
    result = view(tmp_path, "a.csv", text, max_tokens=40_000)
    rows = [line.split(";") for line in result.content.splitlines() if not line.startswith("#")]
    assert [row[0] for row in rows[1:]] == [str(n) for n in (*range(20), *range(80, 90))]
    assert all(len(row) == 50 and len(row[1]) <= 500 for row in rows)
    assert result.truncation_info.cells_truncated == 30


def test_json_processor(tmp_path):
    """> Recursive structure truncation: limits nesting depth, array items, object keys, and string values."""
    deep: object = "leaf"
    for _ in range(9):
        deep = {"in": deep}
    tree = {"deep": deep, "items": list(range(99)), "text": "x" * 900, **{f"k{n}": n for n in range(99)}}
    shown = json.loads(view(tmp_path, "a.json", json.dumps(tree), max_tokens=40_000).content)
    assert sum(isinstance(item, int) for item in shown["items"]) == 50
    assert len(shown["text"]) <= 500
    assert sum(not key.startswith("…") for key in shown) == 50
    assert json.dumps(shown["deep"]).count("{") < 9


@pytest.mark.parametrize("name", ["a.yaml", "a.xml"])
def test_yaml_and_xml_processors(tmp_path, name):
    """> Parsed into structures, then truncated using the same recursive logic as JSON."""
    from xml.etree import ElementTree as ET

    import yaml

    items = "".join(f"<item>{n}</item>" for n in range(99))
    text = yaml.safe_dump({"items": list(range(99))}) if name == "a.yaml" else f"<root>{items}</root>"
    content = view(tmp_path, name, text).content
    shown = yaml.safe_load(content)["items"] if name == "a.yaml" else list(ET.fromstring(content))
    assert sum(not isinstance(item, str) for item in shown) == 50


def test_context_result():
    """> The `@context_result()` decorator selects a named config via its first argument."""

    @context_result("sql_query", save=False, counter="estimate")
    def query():
        return "id,name\n" + "".join(f"{n},name {n}\n" for n in range(5_000))

    preview = query()
    assert count(preview) <= 1_500
    assert "5000 rows" in preview
    assert "4999,name 4999" in preview


@pytest.mark.parametrize(("head", "tail"), [(3, 2), (0, 4), (5, 0)])
def test_heads_and_tails_of_lines_can_be_set(head, tail):
    """> `TruncationConfig` presets (default, sql_query, log_search) with their own thresholds for `rows_head`, `rows_tail`"""
    presets = {"notes": {"lines_head": head, "lines_tail": tail, "threshold": 10}}
    config = ContextConfig(truncation=presets)

    @context_result("notes", save=False, counter="estimate", config=config)
    def notes():
        return "".join(f"Note {n} says something.\n" for n in range(400))

    shown = [line for line in notes().splitlines() if line.startswith("Note")]
    assert shown == [f"Note {n} says something." for n in (*range(head), *range(400 - tail, 400))]


def talk(turns):
    history = [Artifact("system", "You help.")]
    for n in range(turns):
        history += [
            Artifact("user", f"Question {n}: where is shelf {n}?"),
            Artifact("assistant", f"Shelf {n} is left."),
        ]
    return [*history, Artifact("user", "And now?")]


def compactor(summary="The shelves are on the left.", **settings):
    limits = CompactionConfig(
        max_tokens=settings.pop("max_tokens", 500), target_tokens=settings.pop("target_tokens", 200)
    )
    return HistoryCompactor(limits, summarizer=lambda _: summary, counter="estimate", **settings)


def test_compaction_config():
    """> `target_tokens` must be less than `max_tokens`."""
    assert (CompactionConfig().max_tokens, CompactionConfig().target_tokens) == (120_000, 40_000)
    with pytest.raises(ConfigError, match="must be below"):
        CompactionConfig(max_tokens=100, target_tokens=100)
    assert CompactionConfig(max_tokens=100, target_tokens=0).target_tokens == 0


SIZES = [
    (500, 200, 100, 200),
    (500, 0, 100, 200),
    (500, 200, 300, 300),
    (8_000, 3_000, 4_300, 4_300),
    (100, 50, 60, 10),
]


@pytest.mark.parametrize(("max_tokens", "target", "question", "answer"), SIZES)
async def test_compaction_never_stops(max_tokens, target, question, answer, caplog):
    """> Compaction happens automatically before each agent call when the history exceeds `max_tokens`."""
    compact, history = compactor("All.", max_tokens=max_tokens, target_tokens=target), []
    for n in range(15):
        history.append(Artifact("user", f"q{n} " + "word " * question))
        result = await compact.compact(history)
        assert compact.count_tokens(result) <= max_tokens
        assert result[-1] is history[-1]
        history.append(Artifact("assistant", f"a{n} " + "word " * answer))
    assert not caplog.records


@pytest.mark.parametrize(("answers", "words"), [("assistant", 200), ("tool", 120)])
def test_compaction_never_stops_in_a_chain_with_a_budget(answers, words):
    """> Compaction happens automatically before each agent call when the history exceeds `max_tokens`."""
    chain = Stabilizer(
        100_000, stages=[RepairExchanges(), compactor("All.")], checks=[RecentKept()], counter="estimate"
    )
    history = []
    for n in range(15):
        if n % 4 == 0 or answers == "assistant":
            history.append(Artifact("user", f"q{n} " + "word " * 100))
            result = chain.stabilize(history)
            assert result.report.tokens_after <= 500
            assert result.report.ok
        called = [Artifact("assistant", calls=(ToolCall("look", "{}", f"c{n}"),))] * (answers == "tool")
        history += [*called, Artifact(answers, f"a{n} " + "word " * words, answers=f"c{n}" if called else None)]
        result = chain.stabilize(history)
        assert result.report.tokens_after <= 500
        assert result.report.ok


async def test_what_cannot_be_within_the_limit_says_why(caplog):
    """> Compaction happens automatically before each agent call when the history exceeds `max_tokens`."""
    told: list[CompactionResult] = []
    compact = compactor("All.", on_compaction=told.append)
    history = [*talk(10), Artifact("user", "word " * 900)]
    result = await compact.compact(history)
    assert result[-1] is history[-1]
    assert told[-1].excess == compact.count_tokens(result) - 500 > 0
    assert "tokens over its limit: pins, the last exchange and a summary" in caplog.text


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.integers(1, 400)), min_size=1, max_size=30),
    max_tokens=st.integers(60, 900),
    share=st.floats(0, 0.9),
)
def test_every_call_is_within_the_limit_or_says_by_how_much_not(sizes, max_tokens, share):
    """> Messages before the boundary are serialized into a conversation transcript."""
    seen: list[str] = []
    limits = CompactionConfig(max_tokens=max_tokens, target_tokens=int(max_tokens * share))
    told: list[CompactionResult] = []
    compact = HistoryCompactor(
        limits, summarizer=lambda p: seen.append(p) or "All.", counter="estimate", on_compaction=told.append
    )
    history = [Artifact(kind, f"m{n}. " + "word " * words) for n, (kind, words) in enumerate(sizes)]
    result = asyncio.run(compact.compact(history))
    last = compact.count_tokens(history[-1:])
    if compact.count_tokens(result) > max_tokens and result != history:
        assert told[-1].excess > 0
        assert last + 40 > max_tokens
    assert result[-1] is history[-1]
    kept = {a.text for a in result}
    assert not told or all(a.text in kept or any(f"m{n}. " in p for p in seen) for n, a in enumerate(history))


async def test_compaction():
    """> The summary replaces the old messages as a single continuation message."""
    told: list[CompactionResult] = []
    history = talk(40)
    compact = compactor(on_compaction=told.append)
    assert compact.needs_compaction(history)
    messages = await compact.compact(history)
    assert messages[0] is history[0]
    (summary,) = (m for m in messages if not any(m is h for h in history))
    assert "The shelves are on the left." in summary.text
    assert summary.kind == "user"
    assert compact.count_tokens(messages) <= 500
    assert told[0].summary == "The shelves are on the left."
    assert told[0].original_messages == len(history)
    assert told[0].compacted_tokens == compact.count_tokens(messages)


@pytest.mark.parametrize(("max_tokens", "target"), [(400, 75), (500, 200), (4_000, 1_000)])
@pytest.mark.parametrize("words", [5, 40])
async def test_a_summary_survives_small_targets(max_tokens, target, words):
    """> CompactionConfig(max_tokens=500, target_tokens=200)"""
    told: list[CompactionResult] = []
    summary = "a fact " * words
    await compactor(summary, max_tokens=max_tokens, target_tokens=target, on_compaction=told.append).compact(talk(200))
    assert told[0].summary.startswith("a fact a fact")
    assert not told[0].fallback
    if count(summary) <= 60:
        assert told[0].summary == summary.strip()


async def test_target_is_for_the_context_right_after_compaction():
    """> | `target_tokens` | 40,000 | Target token count after summarization |"""
    told: list[CompactionResult] = []
    compact = compactor("a fact " * 500, max_tokens=2_000, target_tokens=900, on_compaction=told.append)
    history = talk(1)
    while not told:
        history += talk(1)[1:]
        await compact.compact(history)
    assert told[0].compacted_tokens <= 900
    assert count(told[0].summary) > 200


async def test_boundary_keeps_pairs_together():
    """> finding a "safe boundary" that never orphans tool returns"""
    history = [Artifact("user", "Count the shelves.")]
    for n in range(40):
        call = ToolCall("look", f'{{"shelf": {n}}}', f"c{n}")
        history += [Artifact("assistant", calls=(call,)), Artifact("tool", f"shelf {n} has lamps", answers=f"c{n}")]
    messages = await compactor().compact(history)
    called = [call.id for message in messages for call in message.calls]
    assert [message.answers for message in messages if message.kind == "tool"] == called
    assert len(messages) < len(history)


async def test_compaction_is_deferred_without_a_boundary():
    """> If no safe boundary exists (e.g., the only recent messages are a tool call/return pair), compaction is deferred"""
    call = Artifact("assistant", calls=(ToolCall("look", "{}", "c"),))
    history = [Artifact("user", "Look."), call, Artifact("tool", "lamps " * 600, answers="c")]
    assert await compactor().compact(history) == history


async def test_fallback_is_head_and_tail_with_a_marker():
    """> It preserves the head and tail of the conversation with a marker showing how many tokens were removed."""

    def fail(_):
        raise RuntimeError("no model")

    told: list[CompactionResult] = []
    limits = CompactionConfig(max_tokens=900, target_tokens=500)
    compact = HistoryCompactor(limits, summarizer=fail, counter="estimate", on_compaction=told.append)
    await compact.compact(talk(60))
    assert told[0].fallback
    assert "Shelf 0" in told[0].summary
    assert "tokens" in told[0].summary


async def test_a_summary_that_is_no_shorter_is_not_used():
    """> This is less effective than summarization but ensures the system degrades gracefully."""
    told: list[CompactionResult] = []
    await compactor("a longer story " * 900, max_tokens=2_000, target_tokens=1_500, on_compaction=told.append).compact(
        talk(160)
    )
    assert told[0].compacted_tokens < told[0].original_tokens


async def test_async_callback():
    """> Pass `on_compaction` to receive notifications when compaction occurs"""
    told = []

    async def log_compaction(result: CompactionResult):
        told.append(f"{result.original_messages} -> {result.compacted_messages}")

    await compactor(on_compaction=log_compaction).compact(talk(40))
    assert len(told) == 1


def test_model_names_make_summarizers():
    """> uses an LLM to summarize older messages into a compact narrative"""
    assert HistoryCompactor(CompactionConfig(), summarizer="openai:gpt-5-mini").summaries.summarizer is not None
    with pytest.raises(ConfigError, match="provider:model"):
        HistoryCompactor(CompactionConfig(), summarizer="gpt-5-mini")


async def test_pydantic_ai_history_processor():
    """> wires the compactor into PydanticAI's history processor pipeline"""
    pydantic_ai = pytest.importorskip("pydantic_ai")
    from pydantic_ai.capabilities import ProcessHistory
    from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart
    from pydantic_ai.models.function import FunctionModel

    seen = []

    def answer(messages, _info):
        seen.append(messages)
        return ModelResponse([TextPart("ok")])

    history = []
    for n in range(60):
        history += [
            ModelRequest([UserPromptPart(f"Question {n}: where is it?")]),
            ModelResponse([TextPart(f"Left {n}.")]),
        ]
    agent = pydantic_ai.Agent(
        FunctionModel(answer), capabilities=[ProcessHistory(compactor().create_history_processor())]
    )
    await agent.run("And now?", message_history=history)
    assert len(seen[0]) < 60
    assert "The shelves are on the left." in str(seen[0])


@pytest.mark.recordings
def test_the_documents_code_blocks_run_as_written(tmp_path, monkeypatch, capsys):
    """> from agentic_patterns.core.context.reader import read_file"""
    monkeypatch.chdir(tmp_path)
    for folder in ("data", "prompts"):
        Path(folder).mkdir()
    Path("data/large_report.json").write_text('{"rows": [1, 2, 3]}')
    Path("prompts/system_prompt.md").write_text("You are {agent_name}.")
    Path("prompts/instructions.md").write_text("Be brief.")
    blocks = code_blocks("002")
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    space = shimmed("002") | {"messages": talk(40)}
    for block in blocks:
        Path("prompts/analysis.md").write_text("On {database}" + ": {max_rows}." * ("max_rows" in block))
        asyncio.run(run_block(block, space))
    assert len(blocks) == 7
    assert space["prompt"] == "On bookstore: 100."
    assert space["system"] == "You are sql."
    assert space["result"].file_type is FileType.JSON
    assert space["compactor"].count_tokens(space["messages"]) <= 500
    assert space["agent"]["history_compactor"].config.max_tokens == 120_000
