"""Every setting there is, as one frozen tree, read from one YAML file with overrides from the environment."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ctxguard.errors import ConfigError, reason_of
from ctxguard.settings import nearest, valid_budget

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

__all__ = [
    "CompactionConfig",
    "CompressionLevel",
    "ContextConfig",
    "StabilizerConfig",
    "TruncationConfig",
    "get_truncation_config",
    "load_context_config",
]

Positive = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]

ENVIRONMENT_PREFIX: Final = "CTXGUARD_"
FILE_NAMES: Final = ("ctxguard.yaml", "config.yaml")
_SECTION: Final = "ctxguard"
_ANYONES: Final = frozenset({"compaction", "enabled", "strategy", "truncation"})
"""Settings whose names other programs use as well: they do not identify a file as ours."""


class CompressionLevel(StrEnum):
    """Describe how hard messages are compressed."""

    NONE = "none"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class _Settings(BaseModel):
    """Refuse unknown names, and say in one line what is wrong."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    if not TYPE_CHECKING:

        def __init__(self, **values: object) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise _config_error(error, type(self)) from None

        @classmethod
        def model_validate(cls, obj: object, **options: object) -> Self:
            """Validate, with the same one-line errors as the constructor."""
            try:
                return super().model_validate(obj, **options)
            except ValidationError as error:
                raise _config_error(error, cls) from None


class TruncationConfig(_Settings):
    """Set how a result is previewed, and above which size it is saved and previewed at all.

    Attributes:
        threshold: tokens above which a result is saved whole and a preview of it is returned.
        max_preview_tokens: tokens the returned text may have, its handle included.
        rows_head: rows shown from the start of a table.
        rows_tail: rows shown from its end.
        max_columns: columns of a table.
        max_cell_length: characters of a cell.
        max_lines: lines of a text or log.
        max_line_length: characters of a line.
        json_array_head: items of an array shown from its start.
        json_array_tail: items shown from its end.
        json_max_keys: keys of an object.
        json_max_depth: levels of nesting.
        json_max_string: characters of a string value.
    """

    threshold: Natural = 1_000
    max_preview_tokens: Positive = 1_000
    rows_head: Natural = 20
    rows_tail: Natural = 10
    max_columns: Positive = 50
    max_cell_length: Positive = 500
    max_lines: Positive = 200
    max_line_length: Positive = 1_000
    json_array_head: Natural = 20
    json_array_tail: Natural = 10
    json_max_keys: Positive = 50
    json_max_depth: Positive = 8
    json_max_string: Positive = 500


class CompactionConfig(_Settings):
    """Set when a history is compacted and down to what.

    Attributes:
        max_tokens: tokens above which a history is compacted.
        target_tokens: tokens it has afterwards; below `max_tokens`.
    """

    max_tokens: Positive = 120_000
    target_tokens: Positive = 40_000

    @model_validator(mode="after")
    def _target_is_lower(self) -> Self:
        if self.target_tokens >= self.max_tokens:
            raise ValueError(f"target_tokens ({self.target_tokens}) must be below max_tokens ({self.max_tokens})")
        return self


class StabilizerConfig(_Settings):
    """Set the stabilizer.

    Attributes:
        budget: tokens the context may have, or a share of the model's window such as `80%`, where the window is named
            with each call; None means that it must be given to the stabilizer.
        policy: name of the chain of stages.
        keep_recent: latest messages that are always kept.
        target: share of the room that a cut frees down to; None means 0.35, or more where `StableWindow` says so.
        trail: share of the room that the trail of what has left may take; None means 0.7 of what a cut leaves.
        digests: whether old outputs and arguments become digests before exchanges leave.
        rules: names of the rule sets that say what is masked (`standard`, `people`, `ssn`, `digits`), one or several;
            None means those of the policy.
        on_overflow: `raise`, or `bound` what people said where what must stay does not fit.
        mode: `enforce`, or `observe`: report what would have been done, and send the original.
        counter: `auto`, `estimate`, or the name of an encoding.
        model: name of the model, whose vocabulary, framing and hidden prompts are counted.
        margin: share of the budget to keep free because counts are estimates; `measured` is what was measured for the
            model's family, and nothing where no model is named.
        provider: name of the provider whose role rules the context must meet; None means that none are checked.
        store: where results, summaries and vault entries live: a file or a database URL; None means in memory.
    """

    budget: int | str | None = None
    policy: str = "agent"
    keep_recent: Natural = 2
    target: Annotated[float, Field(gt=0, le=1)] | None = None
    trail: Annotated[float, Field(ge=0, lt=1)] | None = None
    digests: bool = True
    rules: list[Literal["standard", "people", "ssn", "digits"]] | None = None
    on_overflow: Literal["raise", "bound"] = "raise"
    mode: Literal["enforce", "observe"] = "enforce"
    counter: str = "auto"
    model: str | None = None
    margin: Annotated[float, Field(ge=0, lt=1)] | Literal["measured"] = "measured"
    provider: str | None = None
    store: str | None = None

    @field_validator("rules", mode="before")
    @classmethod
    def _one_or_several(cls, given: object) -> object:
        return [name.strip() for name in given.split(",")] if isinstance(given, str) else given

    @field_validator("budget", mode="before")
    @classmethod
    def _tokens_or_share(cls, given: object) -> object:
        text = str(given).strip()  # environment variables are always texts
        try:
            return None if given is None else valid_budget(int(text) if text.isdecimal() else text)
        except ConfigError:
            raise ValueError(f"tokens, 1 or more, or a share of the window such as '80%', not {given!r}") from None


_PRESETS: Final[Mapping[str, Mapping[str, int]]] = {
    "default": {},
    "sql_query": {"rows_head": 20, "rows_tail": 5, "max_cell_length": 200, "max_preview_tokens": 1_500},
    "log_search": {"max_lines": 120, "max_line_length": 400, "max_preview_tokens": 2_000},
}


class ContextConfig(_Settings):
    """All settings. Fields may be given as keyword arguments; unknown ones are refused with the nearest name.

    `docs/configuration.md` lists the default of each.

    Attributes:
        max_tokens_per_file: tokens the view of one file may have.
        max_total_output: tokens that the views of one call may have together.
        max_lines: lines of a text, the marker's line included.
        max_line_length: characters of a line.
        max_nesting_depth: levels of nesting in JSON, YAML and XML.
        max_array_items: items of an array.
        max_object_keys: keys of an object.
        max_string_value_length: characters of a string value.
        max_columns: columns of a table.
        max_cell_length: characters of a cell.
        rows_head: rows shown from the start of a table.
        rows_tail: rows shown from its end.
        max_image_bytes: bytes of an image that is attached; a larger one is scaled down.
        max_image_side: pixels of its longer side.
        enabled: False switches context management off.
        strategy: `sliding_window`, `checkpoint` or `hybrid`.
        window_size: messages of the sliding window.
        preserve_errors: keep messages that report errors.
        preserve_screenshots: keep messages that hold a screenshot.
        compression_level: how hard messages are compressed.
        truncate_snapshots: shorten browser snapshots.
        max_snapshot_depth: levels of a snapshot that are shown.
        summarize_console: group console messages.
        auto_checkpoint: make a checkpoint when a phase is reached.
        checkpoint_phases: names of the phases.
        max_checkpoint_size: tokens of a checkpoint.
        importance_threshold: score from 0 to 1 below which a message may be pruned.
        merge_similar: merge consecutive messages that are alike.
        keep_error_context: messages kept before and after an error.
        prompts_dir: folder of the prompt templates; None means `prompts` in the working directory.
        truncation: presets of `context_result` by name; `default`, `sql_query` and `log_search` are always there, what
            is given for them changes only what it names.
        compaction: when a history is compacted.
        stabilizer: settings of the stabilizer.
    """

    max_tokens_per_file: Positive = 5_000
    max_total_output: Positive = 50_000
    max_lines: Positive = 200
    max_line_length: Positive = 1_000

    max_nesting_depth: Positive = 5
    max_array_items: Positive = 50
    max_object_keys: Positive = 50
    max_string_value_length: Positive = 500

    max_columns: Positive = 50
    max_cell_length: Positive = 500
    rows_head: Natural = 20
    rows_tail: Natural = 10

    max_image_bytes: Positive = 1_000_000
    max_image_side: Positive = 1_568

    enabled: bool = True
    strategy: Literal["sliding_window", "checkpoint", "hybrid"] = "sliding_window"
    window_size: Positive = 15
    preserve_errors: bool = True
    preserve_screenshots: bool = True

    compression_level: CompressionLevel = CompressionLevel.MEDIUM
    truncate_snapshots: bool = True
    max_snapshot_depth: Positive = 3
    summarize_console: bool = True

    auto_checkpoint: bool = True
    checkpoint_phases: list[str] = Field(default_factory=lambda: ["login", "cart", "checkout"])
    max_checkpoint_size: Positive = 500

    importance_threshold: Share = 0.3
    merge_similar: bool = True
    keep_error_context: Natural = 5

    prompts_dir: str | None = None
    truncation: dict[str, TruncationConfig] = Field(default_factory=dict, validate_default=True)
    compaction: CompactionConfig = Field(default_factory=CompactionConfig)
    stabilizer: StabilizerConfig = Field(default_factory=StabilizerConfig)

    @field_validator("truncation", mode="before")
    @classmethod
    def _with_presets(cls, given: object) -> object:
        if not isinstance(given, Mapping):
            return given
        named = {name: value for name, value in given.items() if not isinstance(value, Mapping)}
        changed = {name: value for name, value in given.items() if isinstance(value, Mapping)}
        return {name: {**_PRESETS.get(name, {}), **changed.get(name, {})} for name in (*_PRESETS, *changed)} | named


_SECTIONS: Final[Mapping[str, type[BaseModel]]] = {"stabilizer": StabilizerConfig, "compaction": CompactionConfig}


def load_context_config(path: str | os.PathLike[str] | None = None) -> ContextConfig:
    """Return the configuration: the defaults, then the file, then the environment.

    The file holds the settings at its top level, or under a key `ctxguard`. A setting `max_lines` is overridden by
    `CTXGUARD_MAX_LINES`, one in a section by `CTXGUARD_STABILIZER__BUDGET`. The result is cached for as long as the
    file and the environment stay as they are.

    Args:
        path: the file; None means `ctxguard.yaml`, else `config.yaml`, in the working directory, else no file. A
            `config.yaml` found like that counts only where it has a section `ctxguard` or a setting of ours; `enabled`,
            `strategy`, `compaction` and `truncation`, which others use too, count only in a file of nothing else.

    Raises:
        ConfigError: the file cannot be read, or a setting is unknown or out of range.
    """
    file = _found() if path is None else Path(path)
    overrides = tuple(sorted((k, v) for k, v in os.environ.items() if k.startswith(ENVIRONMENT_PREFIX)))
    if file is None:
        return _load(None, (0, 0), overrides, searched=True)
    try:
        stat = file.stat()
    except OSError as error:
        raise ConfigError(f"{file}: {reason_of(error)}; name a YAML file") from None
    return _load(file.absolute(), (stat.st_mtime_ns, stat.st_size), overrides, searched=path is None)


def settings_source(path: str | os.PathLike[str] | None = None) -> str | None:
    """Return what `load_context_config` reads: the file and the environment variables, or None for the defaults alone.

    Raises:
        ConfigError: the file cannot be read.
    """
    file = _found() if path is None else Path(path)
    used = file is not None and (path is not None or bool(_read(file, searched=True)))
    variables = sorted(name for name in os.environ if _is_setting(name))
    return ", ".join([*([str(file)] if used else []), *variables]) or None


def _is_setting(variable: str) -> bool:
    name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().partition("__")[0]
    return variable.startswith(ENVIRONMENT_PREFIX) and name in ContextConfig.model_fields


def get_truncation_config(name: str = "default", *, config: ContextConfig | None = None) -> TruncationConfig:
    """Return the truncation preset of that name.

    Args:
        name: `default`, `sql_query`, `log_search`, or one of your own from the section `truncation`.
        config: where to look; None means `load_context_config()`.

    Raises:
        ConfigError: there is no such preset.
    """
    presets = (config or load_context_config()).truncation
    if name not in presets:
        raise ConfigError(f"unknown truncation preset {name!r}{_nearest(name, presets)}", setting="truncation")
    return presets[name]


def _found() -> Path | None:
    found = next((Path(name) for name in FILE_NAMES if Path(name).is_file()), None)
    if Path("ctxguard.yml").is_file() and (found is None or found.name != FILE_NAMES[0]):
        raise ConfigError(f"ctxguard.yml is not read; rename it to {FILE_NAMES[0]}")
    return found


@lru_cache(maxsize=32)
def _load(
    file: Path | None,
    version: tuple[int, int],  # noqa: ARG001 - part of the cache's key: time and size of the file
    overrides: tuple[tuple[str, str], ...],
    *,
    searched: bool,
) -> ContextConfig:
    values: dict[str, object] = {} if file is None else _read(file, searched=searched)
    for name, text in overrides:
        _override(values, name, text)
    try:
        return ContextConfig(**values)  # type: ignore[arg-type]
    except ConfigError as error:
        where = file.name if file is not None and not overrides else "configuration"
        raise ConfigError(f"{where}: {error}", setting=error.setting) from None


def _read(file: Path, *, searched: bool) -> dict[str, object]:
    import yaml

    strict = not searched or file.name == FILE_NAMES[0]
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{file}: {reason_of(error)}; name a readable YAML file") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        if not strict and not _is_ours(re.findall(r"(?m)^(\w+):", file.read_text(encoding="utf-8", errors="replace"))):
            return {}
        raise ConfigError(f"{file}: not readable as YAML ({reason_of(error)})") from None
    if data is None or (not strict and not (isinstance(data, dict) and _is_ours(data))):
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{file}: expected settings, got {type(data).__name__}; write `name: value` lines")
    if _SECTION in data:
        data = data[_SECTION] or {}
        if not isinstance(data, dict):
            raise ConfigError(f"{file}: section {_SECTION!r} holds no settings", setting=_SECTION)
    return {str(key): value for key, value in data.items()}


def _is_ours(keys: Collection[object]) -> bool:
    """Return whether a file is ours: a name in it is used by no other program, or all of its names are ours."""
    fields = ContextConfig.model_fields
    ours = [name for key in keys for name in difflib.get_close_matches(str(key), fields, n=1, cutoff=0.85)]
    return _SECTION in keys or any(name not in _ANYONES for name in ours) or 0 < len(ours) == len(keys)


def _override(values: dict[str, object], variable: str, text: str) -> None:
    """Apply an environment variable; one that looks like a misspelled setting is refused."""
    path = variable.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
    model: type[BaseModel] = ContextConfig
    for depth, name in enumerate(path):
        field = model.model_fields.get(name)
        if field is None:
            _refuse_near(variable, name, model)
            return
        if depth == len(path) - 1:
            values[name] = _parsed(text, field.annotation)
            return
        inner = values.get(name)
        values[name] = values = {} if not isinstance(inner, dict) else dict(inner)
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            raise ConfigError(f"{variable}: {name!r} has no settings inside", setting=name)
        model = field.annotation


def _refuse_near(variable: str, name: str, model: type[BaseModel]) -> None:
    home = _home(name, model)
    near = difflib.get_close_matches(name, model.model_fields, n=1, cutoff=0.8)
    if home or near or model is not ContextConfig:
        where = home or _nearest(name, model.model_fields)
        raise ConfigError(f"environment variable {variable}: unknown setting {name!r}{where}", setting=name)


def _parsed(text: str, annotation: object) -> object:
    if text.lower() in ("", "null", "none") and type(None) in get_args(annotation):
        return None
    if get_origin(annotation) is list:
        return [part.strip() for part in text.strip("[] ").split(",") if part.strip()]
    return text


def _config_error(error: ValidationError, model: type[BaseModel]) -> ConfigError:
    details = error.errors(include_url=False)
    lines = [_line(detail, model) for detail in details]
    cause = details[0].get("ctx", {}).get("error")
    inner = [cause.setting] if isinstance(cause, ConfigError) and cause.setting else []
    setting = ".".join([*map(str, details[0]["loc"]), *inner]) or None
    return ConfigError("; ".join(lines), setting=setting)


def _line(detail: ErrorDetails, model: type[BaseModel]) -> str:
    name = ".".join(map(str, detail["loc"]))
    if detail["type"] == "extra_forbidden":
        return f"unknown setting {name!r}{_home(name, model) or _nearest(name, model.model_fields)}"
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, ValueError):
        return f"{name}: {cause}" if name else str(cause)
    message = detail["msg"][:1].lower() + detail["msg"][1:]
    return f"{name}: {message}, not {detail['input']!r}"


def _home(name: str, model: type[BaseModel]) -> str:
    """Return the section a misplaced setting belongs to, or the empty string."""
    section = next((s for s, own in _SECTIONS.items() if name in own.model_fields), None)
    return f"; it belongs in the section {section!r}" if section and model is ContextConfig else ""


def _nearest(name: str, known: Iterable[str]) -> str:
    return nearest(name, known) or f"; known are {', '.join(sorted(known))}"
