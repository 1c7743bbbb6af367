"""One tree of settings: documented names and defaults, one file, environment overrides, errors that name the remedy."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from ctxguard.config import (
    CompactionConfig,
    CompressionLevel,
    ContextConfig,
    PiiConfig,
    StabilizerConfig,
    TruncationConfig,
    get_truncation_config,
    load_context_config,
)
from ctxguard.config.loading import settings_source
from ctxguard.errors import ConfigError
from ctxguard.stabilizer import Stabilizer

DOCUMENTED = {
    "max_tokens_per_file": 5000,
    "max_total_output": 50000,
    "max_lines": 200,
    "max_line_length": 1000,
    "max_nesting_depth": 5,
    "max_array_items": 50,
    "max_object_keys": 50,
    "max_string_value_length": 500,
    "max_columns": 50,
    "max_cell_length": 500,
    "rows_head": 20,
    "rows_tail": 10,
    "enabled": True,
    "strategy": "sliding_window",
    "window_size": 15,
    "preserve_errors": True,
    "preserve_screenshots": True,
    "compression_level": "medium",
    "truncate_snapshots": True,
    "max_snapshot_depth": 3,
    "summarize_console": True,
    "auto_checkpoint": True,
    "checkpoint_phases": ["login", "cart", "checkout"],
    "max_checkpoint_size": 500,
    "importance_threshold": 0.3,
    "merge_similar": True,
    "keep_error_context": 5,
    "prompts_dir": None,
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("name", "default"), DOCUMENTED.items())
def test_documented_field_has_its_default_and_is_a_keyword(name, default):
    assert getattr(ContextConfig(), name) == default
    assert getattr(ContextConfig(**{name: default}), name) == default


def test_sections_have_their_defaults():
    config = ContextConfig()
    assert (config.compaction.max_tokens, config.compaction.target_tokens) == (120_000, 40_000)
    assert config.stabilizer.model_dump() == {
        "budget": None,
        "policy": "default",
        "keep_recent": 2,
        "keep_task": True,
        "target": None,
        "trail": 0.1,
        "output_share": 0.1,
        "rules": None,
        "on_overflow": "raise",
        "mode": "enforce",
        "counter": "auto",
        "model": None,
        "headroom": "measured",
        "provider": None,
        "on_failure": "report",
        "shorten_tools": True,
        "store": None,
    }


def test_a_setting_of_the_stabilizer_can_be_configured_with_the_same_default():
    taken = dict(inspect.signature(Stabilizer).parameters)
    for name in ("stages", "checks", "window"):  # objects, and settings that both take from the same class
        del taken[name]
    configured = StabilizerConfig().model_dump()
    assert {name: one.default for name, one in taken.items()} == {name: configured.get(name, name) for name in taken}


def test_a_failed_check_can_be_made_an_error_in_the_file(tmp_path):
    (tmp_path / "ctxguard.yaml").write_text("stabilizer: {budget: 700, on_failure: raise, keep_task: false}\n")
    stabilizer = Stabilizer.from_config()
    assert (stabilizer.on_failure, stabilizer.keep_task) == ("raise", False)


def test_a_budget_is_tokens_or_a_share(monkeypatch):
    for given, budget in {8_000: 8_000, "8000": 8_000, "80%": "80%", " 12.5% ": "12.5%", None: None}.items():
        assert StabilizerConfig(budget=given).budget == budget
    for wrong in (0, -1, "many", "0%", "101%", True, 1.5):
        with pytest.raises(ConfigError, match="budget: a budget "):
            StabilizerConfig(budget=wrong)
    monkeypatch.setenv("CTXGUARD_STABILIZER__BUDGET", "80%")
    assert Stabilizer.from_config().budget_for(1_000) == 800


def test_settings_given_to_from_config_come_before_the_file(tmp_path):
    (tmp_path / "ctxguard.yaml").write_text("stabilizer: {budget: 700, keep_recent: 4}\n")
    stabilizer = Stabilizer.from_config(budget=900, headroom=50)
    assert (stabilizer.budget, stabilizer.keep_recent, stabilizer.headroom) == (900, 4, 50)


def test_the_source_of_the_settings_is_named(tmp_path, monkeypatch):
    assert settings_source() is None
    (tmp_path / "config.yaml").write_text("database: {host: x}\n")
    assert settings_source() is None
    monkeypatch.setenv("CTXGUARD_VAULT_KEY", "x")
    monkeypatch.setenv("CTXGUARD_MAX_LINES", "7")
    assert settings_source() == "CTXGUARD_MAX_LINES"
    (tmp_path / "own.yaml").write_text("max_lines: 8\n")
    assert settings_source("own.yaml") == "own.yaml, CTXGUARD_MAX_LINES"


def test_a_file_above_the_working_directory_is_not_read_and_a_warning_says_so(tmp_path, monkeypatch, caplog):
    (tmp_path / "ctxguard.yaml").write_text("max_lines: 7\n")
    (tmp_path / "app" / "src").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "app" / "src")
    assert load_context_config() == ContextConfig()
    load_context_config()
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"{tmp_path / 'ctxguard.yaml'} is not read")
    with pytest.raises(ConfigError, match=f"no file in {tmp_path / 'app' / 'src'}"):
        Stabilizer.from_config()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"no budget is configured \(ctxguard\.yaml\)"):
        Stabilizer.from_config()


def test_without_a_working_directory_there_is_no_file(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert load_context_config() == ContextConfig()


def test_config_is_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        ContextConfig().max_lines = 3


def test_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown setting 'max_linse' \(did you mean 'max_lines'") as caught:
        ContextConfig(max_linse=3)
    assert caught.value.setting == "max_linse"


def test_unknown_name_in_a_section_is_refused_with_the_nearest_of_that_section():
    with pytest.raises(ConfigError, match=r"stabilizer: unknown setting 'budgte' \(did you mean 'budget'") as caught:
        ContextConfig(stabilizer={"budgte": 3})
    assert caught.value.setting == "stabilizer.budgte"
    with pytest.raises(ConfigError, match=r"truncation\.own: unknown setting 'rows_haed' \(did you mean 'rows_head'"):
        ContextConfig(truncation={"own": {"rows_haed": 3}})


def test_a_setting_outside_of_its_section_is_told_where_it_stands(monkeypatch):
    with pytest.raises(ConfigError, match="unknown setting 'budget'; it belongs in the section 'stabilizer'"):
        ContextConfig(budget=4_000)
    with pytest.raises(ConfigError, match="unknown setting 'max_tokens'; it belongs in the section 'compaction'"):
        ContextConfig(max_tokens=4_000)
    monkeypatch.setenv("CTXGUARD_BUDGET", "4000")
    with pytest.raises(ConfigError, match="CTXGUARD_BUDGET: unknown setting 'budget'; it belongs in the section 'stab"):
        load_context_config()


def test_a_file_named_yml_is_not_passed_over_in_silence(tmp_path):
    (tmp_path / "ctxguard.yml").write_text("max_lines: 7")
    (tmp_path / "config.yaml").write_text("max_lines: 8")
    with pytest.raises(ConfigError, match=r"ctxguard\.yml is not read; rename it to ctxguard\.yaml"):
        load_context_config()
    (tmp_path / "ctxguard.yaml").write_text("max_lines: 9")
    assert load_context_config().max_lines == 9


def test_model_validate_refuses_in_the_same_words():
    with pytest.raises(ConfigError, match="did you mean 'window_size'"):
        ContextConfig.model_validate({"windw_size": 3})


@pytest.mark.parametrize(
    "values", [{"max_lines": 0}, {"max_lines": "many"}, {"strategy": "magic"}, {"importance_threshold": 2}]
)
def test_value_out_of_range_is_one_line_that_names_the_setting(values):
    with pytest.raises(ConfigError) as caught:
        ContextConfig(**values)
    assert next(iter(values)) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("pii:\n  strategy:\n    EMAIL: hide\n", "3: pii: strategy.EMAIL must be 'redact', 'pseudonymize', 'hash' or"),
        (
            "pii:\n  strategy: hide\n",
            "2: pii: strategy must be 'redact', 'pseudonymize', 'hash' or 'partial' or a valid",
        ),
        ("pii:\n  deny: [x]\n", "2: pii: deny must be a valid mapping (`name: value`), not ['x']"),
        ("pii:\n  deny: {A: [7]}\n", "2: pii: deny.A.0 must be a valid string, not 7"),
        ("pii:\n  allow: x\n", "2: pii.allow: x: no such file or directory; list it, ['x'], or name a file"),
        ("pii: []\n", "1: pii must be a valid mapping (`name: value`), not []"),
        ("pii:\n  tools: {x: maybe}\n", "2: pii: tools.x must be a valid boolean, not 'maybe'"),
        (
            "stabilizer:\n  headroom: x\n",
            "2: stabilizer: headroom must be a valid integer or a valid number or 'measured'",
        ),
        ("max_lines: many\n", "1: max_lines must be a valid integer, not 'many'"),
        ("max_lines: yes\n", "1: max_lines must be a number, not True"),
        ("stabilizer:\n  headroom: on\n", "2: stabilizer: headroom must be a number, not True"),
        ("stabilizer:\n  target: on\n", "2: stabilizer: target must be a number, not True"),
        ("stabilizer:\n  keep_recent: off\n", "2: stabilizer: keep_recent must be a number, not False"),
        (
            "pii:\n  rules:\n    - {name: own, label: OWN, pattern: 'x{0,3}'}\n",
            "3: pii: rules: pattern of rule own matches an empty text; write {1,64} for *, ? or {0,64}",
        ),
    ],
)
def test_a_wrong_value_is_told_by_its_line_in_plain_words(tmp_path, written, told):
    (tmp_path / "ctxguard.yaml").write_text(written)
    with pytest.raises(ConfigError) as caught:
        load_context_config()
    assert str(caught.value).startswith(f"ctxguard.yaml:{told}")
    assert not any(word in str(caught.value) for word in ("\n", "literal", "dict[", "nput should"))


def test_compaction_target_must_be_below_its_threshold():
    assert CompactionConfig(max_tokens=500, target_tokens=200).target_tokens == 200
    with pytest.raises(ConfigError, match="must be below max_tokens"):
        CompactionConfig(max_tokens=100, target_tokens=100)


def test_defaults_without_a_file():
    assert load_context_config() == ContextConfig()


def test_ctxguard_yaml_comes_before_config_yaml(tmp_path):
    (tmp_path / "config.yaml").write_text("max_lines: 7\n")
    assert load_context_config().max_lines == 7
    (tmp_path / "ctxguard.yaml").write_text("max_lines: 8\nstabilizer: {budget: 9000}\n")
    config = load_context_config()
    assert (config.max_lines, config.stabilizer.budget) == (8, 9000)


def test_section_of_a_shared_file_is_used_and_its_neighbors_are_left_alone(tmp_path):
    (tmp_path / "config.yaml").write_text("database: {host: x}\nctxguard:\n  max_lines: 9\n")
    assert load_context_config().max_lines == 9


@pytest.mark.parametrize(
    "text",
    [
        "database: {host: x}\nport: 80\n",
        "enabled: true\nport: 8080\n",
        "enabled: maybe\nstrategy: rolling\nreplicas: 3\n",
        "compaction: {style: leveled}\ntruncation: off\npath: /var\n",
        "- 1\n- 2\n",
        "just words",
        "key: !vault abc\nport: 80\n",
        "a: 1\n---\nb: 2\n",
        "a: {{ template }}\n",
    ],
)
def test_a_config_yaml_of_another_program_is_no_error(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    assert load_context_config() == ContextConfig()
    (tmp_path / "ctxguard.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"ctxguard\.yaml"):
        load_context_config()


def test_a_config_yaml_of_another_program_that_is_no_utf_8_is_no_error(tmp_path):
    (tmp_path / "config.yaml").write_bytes(b"name: caf\xe9\n")
    assert load_context_config() == ContextConfig()


@pytest.mark.parametrize("text", ["enabled: false\n", "enabled: false\nstrategy: hybrid\n"])
def test_a_config_yaml_with_nothing_but_settings_of_ours_is_ours(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    assert load_context_config().enabled is False


@pytest.mark.parametrize(
    "text", ["max_lines: 7\nport: 80\n", "enabled: true\nstabilizer: {}\nport: 1\n", "max_lines: [1\n", "ctxguard: {\n"]
)
def test_a_config_yaml_that_names_what_is_ours_alone_is_held_to_it(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        load_context_config()


def test_a_config_yaml_of_ours_with_a_typo_is_an_error(tmp_path):
    (tmp_path / "config.yaml").write_text("max_line: 9\nport: 80\n")
    with pytest.raises(ConfigError, match="did you mean 'max_line"):
        load_context_config()


def test_result_is_cached_until_the_file_or_the_environment_changes(tmp_path, monkeypatch):
    file = tmp_path / "ctxguard.yaml"
    file.write_text("max_lines: 8\n")
    first = load_context_config()
    assert load_context_config() is first
    assert load_context_config(file) is not None
    file.write_text("max_lines: 88\n")
    assert load_context_config().max_lines == 88
    monkeypatch.setenv("CTXGUARD_MAX_LINES", "5")
    assert load_context_config().max_lines == 5
    monkeypatch.delenv("CTXGUARD_MAX_LINES")
    assert load_context_config().max_lines == 88


def test_environment_overrides_sections_lists_switches_and_nothing(tmp_path, monkeypatch):
    (tmp_path / "ctxguard.yaml").write_text("stabilizer: {budget: 1, policy: chat}\n")
    monkeypatch.setenv("CTXGUARD_STABILIZER__BUDGET", "8000")
    monkeypatch.setenv("CTXGUARD_CHECKPOINT_PHASES", "a, b")
    monkeypatch.setenv("CTXGUARD_MERGE_SIMILAR", "false")
    monkeypatch.setenv("CTXGUARD_STABILIZER__MODEL", "none")
    config = load_context_config()
    assert (config.stabilizer.budget, config.stabilizer.policy, config.stabilizer.model) == (8000, "chat", None)
    assert config.checkpoint_phases == ["a", "b"]
    assert config.merge_similar is False


def test_environment_variable_near_to_a_setting_is_refused_and_a_foreign_one_ignored(monkeypatch):
    monkeypatch.setenv("CTXGUARD_VAULT_KEY", "x")
    assert load_context_config() == ContextConfig()
    monkeypatch.setenv("CTXGUARD_MAX_LINEZ", "3")
    with pytest.raises(ConfigError, match="did you mean 'max_lines'"):
        load_context_config()


@pytest.mark.parametrize(
    "text",
    [
        "a: [1",
        "- 1\n- 2\n",
        "just words",
        "a: &x [*x]\nmax_lines: {",
        "\0",
        "max_lines: " + "9" * 5_000,
        "max_lines: !!bool soon",
        "max_lines: !!int soon",
        "max_lines: !!timestamp soon",
        "max_lines: 2026-99-99",
    ],
)
def test_unreadable_file_is_a_one_line_error_that_names_it(tmp_path, text):
    file = tmp_path / "broken.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"broken\.yaml") as caught:
        load_context_config(file)
    assert "\n" not in str(caught.value)


def test_missing_named_file_and_folder_are_errors(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        load_context_config(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="directory"):
        load_context_config(tmp_path)


def test_empty_file_means_defaults(tmp_path):
    (tmp_path / "ctxguard.yaml").write_text("")
    assert load_context_config() == ContextConfig()


def test_presets_are_there_and_ones_own_are_added(tmp_path):
    assert {"default", "sql_query", "log_search"} <= set(ContextConfig().truncation)
    (tmp_path / "ctxguard.yaml").write_text(
        "truncation:\n  sql_query: {rows_head: 3}\n  own: {max_preview_tokens: 77}\n"
    )
    assert get_truncation_config("own").max_preview_tokens == 77
    changed = get_truncation_config("sql_query")
    assert changed.rows_head == 3
    assert changed.rows_tail == ContextConfig().truncation["sql_query"].rows_tail
    assert get_truncation_config("default") == TruncationConfig()


def test_preset_objects_are_taken_as_they_are():
    own = TruncationConfig(rows_head=1)
    config = ContextConfig(truncation={"own": own, "default": own})
    assert get_truncation_config("own", config=config) == own
    assert get_truncation_config("default", config=config) == own


def test_unknown_preset_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'sql_query'"):
        get_truncation_config("sql_qery")


def test_compression_levels_compare_with_their_documented_spelling():
    assert ContextConfig(compression_level="high").compression_level is CompressionLevel.HIGH


PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"
MODELS = (ContextConfig, StabilizerConfig, PiiConfig, TruncationConfig, CompactionConfig)


def as_written(default):
    """Return a default as one writes it in YAML."""
    if default is None or isinstance(default, bool):
        return str(default).lower()
    return f"[{', '.join(default)}]" if isinstance(default, list) else str(default)


def described(model):
    """Walk the settings of a model with what its docstring says they are."""
    for kind in (each for each in model.__mro__ if each.__module__.startswith("ctxguard.")):
        attributes = inspect.getdoc(kind).partition("Attributes:\n")[2].partition("\n\nRaises:")[0]
        for told in re.split(r"\n?^    (?=\w)", attributes, flags=re.MULTILINE)[1:]:
            name, _, meaning = " ".join(told.split()).partition(": ")
            yield name, meaning.rstrip(".")


def test_the_page_has_every_setting_with_its_default_and_what_it_is():
    rows, sections = [], []
    for model in MODELS:
        for name, meaning in described(model):
            default = model.model_fields[name].get_default(call_default_factory=True)
            if isinstance(default, dict | BaseModel):
                sections.append(name)
            else:
                rows.append(f"| `{name}` | `{as_written(default)}` | {meaning} |")
    text = PAGE.read_text(encoding="utf-8")
    assert sorted(line for line in text.splitlines() if line.startswith("| `")) == sorted(rows)
    assert len(rows) + len(sections) == sum(len(model.model_fields) for model in MODELS)
    assert all(f"## `{name}`" in text for name in sections)
