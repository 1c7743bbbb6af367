"""All settings of the configuration, as one immutable tree of pydantic models."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ctxguard.errors import ConfigError
from ctxguard.settings import nearest, settings_of, valid_budget
from ctxguard.stages.fold import WINDOW_SETTINGS, WindowSettings

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from ctxguard.pii.spans import Detector
    from ctxguard.views.views import Limits

Positive = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
_Strategy = Literal["redact", "pseudonymize", "hash", "partial"]


def _split_names(given: object) -> object:
    """Split a string such as `standard, people` into names; return any other value unchanged."""
    if not isinstance(given, str):
        return given
    return [name.strip() for name in given.strip("[] ").split(",") if name.strip()]


SeveralNames = Annotated[list[str], BeforeValidator(_split_names)]


class CompressionLevel(StrEnum):
    """How strongly messages are compressed."""

    NONE = "none"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class _Settings(BaseModel):
    """Base class of all settings. It rejects unknown names, and reports errors in one line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    if not TYPE_CHECKING:

        def __init__(self, **values: object) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise _config_error(error, type(self)) from None

        @classmethod
        def model_validate(cls, obj: object, **options: object) -> Self:
            """Validate an object, and report errors in one line as the constructor does."""
            try:
                return super().model_validate(obj, **options)
            except ValidationError as error:
                raise _config_error(error, cls) from None

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_switch(cls, given: object, info: ValidationInfo) -> object:
        # YAML reads `yes` as True, and pydantic takes True as the number 1
        if isinstance(given, bool) and _takes_number(cls.model_fields[str(info.field_name)].annotation):
            raise PydanticCustomError("no_number", "Input should be a number")
        return given


def _takes_number(annotation: object) -> bool:
    return annotation in (int, float) or any(map(_takes_number, get_args(annotation)))


@dataclass(frozen=True, slots=True)
class AsLimit:
    """Marks a setting as a limit of a view.

    Attributes:
        name: Name of the corresponding field of `ctxguard.views.views.Limits`.
    """

    name: str


class _ViewLimits(_Settings):
    """Limits for the texts and tables in a view, the bounded excerpt of a file or of a result.

    Attributes:
        max_lines: Maximum number of lines of a text or log, including the line with the marker.
        max_line_length: Maximum number of characters in a line.
        max_columns: Maximum number of columns in a table.
        max_cell_length: Maximum number of characters in a cell.
        rows_head: Number of rows shown from the start of a table.
        rows_tail: Number of rows shown from the end of a table.
    """

    max_lines: Annotated[Positive, AsLimit("lines")] = 200
    max_line_length: Annotated[Positive, AsLimit("line_length")] = 1_000
    max_columns: Annotated[Positive, AsLimit("columns")] = 50
    max_cell_length: Annotated[Positive, AsLimit("cell")] = 500
    rows_head: Annotated[Natural, AsLimit("rows_head")] = 20
    rows_tail: Annotated[Natural, AsLimit("rows_tail")] = 10

    def limits(self) -> Limits:
        """Return these limits as the settings of a view."""
        from ctxguard.views.views import Limits

        fields = type(self).model_fields.items()
        marks = ((mark.name, field) for field, info in fields for mark in info.metadata if isinstance(mark, AsLimit))
        return Limits(**{name: getattr(self, field) for name, field in marks})


class TruncationConfig(_ViewLimits):
    """The size above which a result is saved and only a preview is returned, and how the preview is shortened.

    Attributes:
        threshold: Number of tokens above which a result is saved in full and a preview is returned.
        max_preview_tokens: Maximum number of tokens in the returned text, including the handle of the saved result.
        lines_head: Number of lines shown from the start of a text; None means half of `max_lines`.
        lines_tail: Number of lines shown from the end of a text; None means the rest of `max_lines`.
        json_array_head: Number of items shown from the start of an array.
        json_array_tail: Number of items shown from the end of an array.
        json_max_keys: Maximum number of keys shown of an object.
        json_max_depth: Maximum number of nesting levels that are shown.
        json_max_string: Maximum number of characters shown of a string value.
    """

    threshold: Natural = 1_000
    max_preview_tokens: Positive = 1_000
    lines_head: Annotated[Natural | None, AsLimit("lines_head")] = None
    lines_tail: Annotated[Natural | None, AsLimit("lines_tail")] = None
    json_array_head: Annotated[Natural, AsLimit("items_head")] = 20
    json_array_tail: Annotated[Natural, AsLimit("items_tail")] = 10
    json_max_keys: Annotated[Positive, AsLimit("keys")] = 50
    json_max_depth: Annotated[Positive, AsLimit("depth")] = 8
    json_max_string: Annotated[Positive, AsLimit("string")] = 500


class CompactionConfig(_Settings):
    """The number of tokens above which a history is compacted, and the number it is reduced to.

    Attributes:
        max_tokens: Number of tokens above which a history is compacted.
        target_tokens: Number of tokens after the compaction, less than `max_tokens`; 0 keeps as little as possible.
    """

    max_tokens: Positive = 120_000
    target_tokens: Natural = 40_000

    @model_validator(mode="after")
    def _target_is_lower(self) -> Self:
        if self.target_tokens >= self.max_tokens:
            raise ValueError(f"target_tokens ({self.target_tokens}) must be below max_tokens ({self.max_tokens})")
        return self


class StabilizerConfig(_Settings, WindowSettings):  # type: ignore[misc]  # pydantic makes it immutable as well
    """The settings of the stabilizer.

    Attributes:
        budget: Maximum number of tokens in the context (`8000` or `8k`), or a share (`80%`) of the window of the model
            that `model` or each call names. None means that the budget must be given to the stabilizer.
        policy: Name of a policy (a chain of stages): `default`, `chat`, `agent`, `browser`, `recall`, `long_session`,
            `pattern`.
        keep_recent: Number of latest user and assistant messages that are always kept.
        keep_task: Whether to keep the first user message as the task, unless it takes more than a quarter of the
            budget.
        rules: Names of the rule sets that are masked: `standard`, `people` (names and addresses after words such as
            `Name:`), `names` (all names, found by a model), `ssn`, and `digits`; None means those of the policy.
        mode: `enforce`, or `observe` to send the original and only report what would have been done.
        counter: How tokens are counted: `auto` (exact if the vocabulary of the model is known), `estimate`, or the name
            of an encoding such as `o200k_base`.
        model: Name of the model, which determines the tokenizer, the framing, and the hidden prompts that are counted.
        headroom: Number of tokens, or share of the budget, to keep free for the reply and for errors of the count.
            `measured` means the measured counting error for the model's family, or nothing if no model is named.
        provider: Provider whose role rules are checked: `openai`, `anthropic`, `gemini`, or `strict`; None means that
            no role rules are checked.
        on_failure: What happens if a check fails: `report` mentions it in the report, `raise` raises a
            `CheckFailedError`.
        shorten_tools: Whether tool descriptions are shortened if tool schemas take more than a quarter of the budget.
        store: File or database URL where results, summaries, and vault entries are stored; None means in memory.
    """

    budget: int | str | None = None
    policy: str = "default"
    keep_recent: Natural = 2
    keep_task: bool = True
    rules: (
        Annotated[list[Literal["standard", "people", "ssn", "digits", "names"]], BeforeValidator(_split_names)] | None
    ) = None
    mode: Literal["enforce", "observe"] = "enforce"
    counter: str = "auto"
    model: str | None = None
    headroom: int | float | Literal["measured"] = "measured"
    provider: str | None = None
    on_failure: Literal["report", "raise"] = "report"
    shorten_tools: bool = True
    store: str | None = None

    @field_validator(*WINDOW_SETTINGS)
    @classmethod
    def _suits_the_window(cls, value: object, info: ValidationInfo) -> object:
        settings_of(WindowSettings, {str(info.field_name): value})
        return value

    @field_validator("budget", mode="before")
    @classmethod
    def _tokens_or_share(cls, given: object) -> object:
        try:
            # environment variables are always strings
            return None if given is None else valid_budget(given if type(given) is int else str(given))
        except ConfigError as error:
            raise ValueError(str(error)) from None


class PiiConfig(_Settings):
    """Further kinds of personal data, exceptions, and how each kind is masked.

    Attributes:
        rules: Custom rules, each with `name`, `label`, `pattern`, and the optional fields of a rule; None means no
            rules.
        fields: Names of fields whose values are always found (`customer_no`, `*_token`), each with its label.
        deny: Words that are always found, by label. Each entry is a list, or the name of a file with one word per line.
        allow: Values and mail domains (`@example.com`) that are never found; a list, or the name of a file with one
            value per line.
        countries: Countries whose national numbers are searched, as two-letter ISO 3166 codes; None means all countries
            that have rules.
        strategy: How values are masked (`redact`, `pseudonymize`, `hash`, `partial`), for all values or by label, with
            `*` for all other labels; None leaves the decision to the program or the command line.
        tools: Tools that receive real values in `serve` and `run`. Keys are names, patterns (`crm_*`), `outward` for
            tools whose names suggest that they reach outside (mail, HTTP, messages, a shell), or `*`; values are true
            or false. None means all tools.
    """

    rules: list[dict[str, Any]] | None = None
    fields: dict[str, str] | None = None
    deny: dict[str, list[str]] | None = None
    allow: list[str] | None = None
    countries: SeveralNames | None = None
    strategy: _Strategy | dict[str, _Strategy] | None = None
    tools: dict[str, bool] | None = None

    @property
    def is_default(self) -> bool:
        """Whether all settings have their defaults."""
        return self == PiiConfig()

    @field_validator("rules")
    @classmethod
    def _are_rules(cls, given: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
        from ctxguard.pii.own_rules import own_rules

        own_rules(given or ())
        return given

    @field_validator("fields", "deny", "strategy")
    @classmethod
    def _have_labels(cls, given: object, info: ValidationInfo) -> object:
        from ctxguard.pii.placeholders import label_of
        from ctxguard.pii.rule_sets import LABELS
        from ctxguard.pii.spans import require_labels

        rules, fields, deny = (info.data.get(name) or () for name in ("rules", "fields", "deny"))
        known = LABELS.union("*", (rule["label"] for rule in rules), dict(fields).values(), deny)
        for key, value in given.items() if isinstance(given, dict) else ():
            label = value if info.field_name == "fields" else key
            if label not in ("*", label_of(label)):
                message = f"a label is of capital letters and underscores: write {label_of(label)}, not {label!r}"
                raise ConfigError(message, setting=key)
            if info.field_name == "strategy":
                require_labels((label,), known, setting=f"strategy.{label}", others=True)
        return given

    @field_validator("countries")
    @classmethod
    def _have_rules(cls, given: list[str] | None) -> list[str] | None:
        from ctxguard.pii.rule_sets import country_rules

        if given is not None:
            country_rules(*given)
        return given


_PRESETS: Final[Mapping[str, Mapping[str, int]]] = {
    "default": {},
    "sql_query": {"rows_head": 20, "rows_tail": 5, "max_cell_length": 200, "max_preview_tokens": 1_500},
    "log_search": {"max_lines": 120, "max_line_length": 400, "max_preview_tokens": 2_000},
}


class ContextConfig(_ViewLimits):
    """All settings. They may be given as keyword arguments; an unknown name is rejected with the nearest known name.

    `docs/configuration.md` lists all defaults.

    Attributes:
        max_tokens_per_file: Maximum number of tokens in the view of one file.
        max_total_output: Maximum number of tokens in all views of one call together.
        max_nesting_depth: Maximum number of nesting levels shown of JSON, YAML, and XML.
        max_array_items: Maximum number of items shown of an array.
        max_object_keys: Maximum number of keys shown of an object.
        max_string_value_length: Maximum number of characters shown of a string value.
        max_image_bytes: Maximum number of bytes in an attached image; a larger image is scaled down.
        max_image_side: Maximum number of pixels on the longer side of an attached image.
        enabled: Whether context management is active.
        strategy: `sliding_window`, `checkpoint`, or `hybrid`.
        window_size: Number of messages in the sliding window.
        preserve_errors: Whether messages that report errors are kept.
        preserve_screenshots: Whether messages that contain a screenshot are kept.
        compression_level: How strongly messages are compressed.
        truncate_snapshots: Whether browser snapshots are shortened.
        max_snapshot_depth: Maximum number of nesting levels shown of a browser snapshot.
        summarize_console: Whether console messages are grouped.
        auto_checkpoint: Whether a checkpoint is created at the end of a phase.
        checkpoint_phases: Names of the phases.
        max_checkpoint_size: Maximum number of tokens in a checkpoint.
        importance_threshold: Score from 0 to 1 below which a message may be pruned.
        merge_similar: Whether consecutive similar messages are merged.
        keep_error_context: Number of exchanges kept before and after an error, by the strategy `hybrid`.
        prompts_dir: Folder of the prompt templates; None means `prompts` in the working directory.
        truncation: Presets of `context_result` by name. `default`, `sql_query`, and `log_search` always exist; settings
            given for them change only the named fields.
        compaction: Settings for compacting a history.
        stabilizer: Settings of the stabilizer.
        pii: Settings for personal data.
    """

    max_tokens_per_file: Positive = 5_000
    max_total_output: Positive = 50_000
    max_nesting_depth: Annotated[Positive, AsLimit("depth")] = 5
    max_array_items: Annotated[Positive, AsLimit("items")] = 50
    max_object_keys: Annotated[Positive, AsLimit("keys")] = 50
    max_string_value_length: Annotated[Positive, AsLimit("string")] = 500

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
    checkpoint_phases: SeveralNames = Field(default_factory=lambda: ["login", "cart", "checkout"])
    max_checkpoint_size: Positive = 500

    importance_threshold: Share = 0.3
    merge_similar: bool = True
    keep_error_context: Natural = 5

    prompts_dir: str | None = None
    truncation: dict[str, TruncationConfig] = Field(default_factory=dict, validate_default=True)
    compaction: CompactionConfig = Field(default_factory=CompactionConfig)
    stabilizer: StabilizerConfig = Field(default_factory=StabilizerConfig)
    pii: PiiConfig = Field(default_factory=PiiConfig)

    def detectors(self, names: Sequence[str] = ()) -> tuple[Detector, ...]:
        """Return the named rule sets as one, extended by the settings of the section `pii`, and the model for names.

        Args:
            names: Names of rule sets. Empty means those of the section `stabilizer`, or else the standard set.

        Raises:
            ConfigError: If a rule set is unknown.
            ImportError: If the extra `names` is needed, and not installed.
        """
        from ctxguard.pii.own_rules import with_own_rules
        from ctxguard.pii.rule_sets import named_detectors

        base = named_detectors(*(names or self.stabilizer.rules or ("standard",)))
        return base if self.pii.is_default else with_own_rules(base, self.pii)

    @field_validator("truncation", mode="before")
    @classmethod
    def _with_presets(cls, given: object) -> object:
        if not isinstance(given, Mapping):
            return given
        named = {name: value for name, value in given.items() if not isinstance(value, Mapping)}
        changed = {name: value for name, value in given.items() if isinstance(value, Mapping)}
        return {name: {**_PRESETS.get(name, {}), **changed.get(name, {})} for name in (*_PRESETS, *changed)} | named


SECTIONS: Final[Mapping[str, type[BaseModel]]] = {
    "stabilizer": StabilizerConfig,
    "compaction": CompactionConfig,
    "pii": PiiConfig,
}


def _config_error(error: ValidationError, model: type[BaseModel]) -> ConfigError:
    faults: dict[tuple[str, ...], list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        # leave out the types that pydantic tried one after the other
        place = (str(step) for step in detail["loc"] if "[" not in str(step) and step not in ("int", "float"))
        faults.setdefault(tuple(place), []).append(detail)
    # if a value fits none of several types, report the type in which the error is nested deepest
    deepest = [place for place in faults if not any(other[: len(place)] == place != other for other in faults)]
    keys, cause = deepest[0], faults[deepest[0]][0].get("ctx", {}).get("error")
    if isinstance(cause, ConfigError) and cause.setting and keys[-1:] != (cause.setting,):
        keys = (*keys, cause.setting)
    lines = (_line(".".join(place), faults[place], model) for place in deepest)
    return ConfigError("; ".join(lines), setting=".".join(keys) or None)


def _line(name: str, details: Sequence[ErrorDetails], model: type[BaseModel]) -> str:
    detail = details[0]
    if detail["type"] == "extra_forbidden":
        return f"unknown setting {name!r}{home_of(name, model) or nearest_of(name, model.model_fields)}"
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, ValueError):
        return f"{name}: {cause}" if name else str(cause)
    wanted = " or ".join(one["msg"].removeprefix("Input should be ").partition(", unable")[0] for one in details)
    wanted = wanted.partition(" or instance")[0].replace("dictionary", "mapping (`name: value`)")
    return f"{name} must be {wanted}, not {detail['input']!r}"


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return what the docstrings of a model and its bases say about each setting, by name and without final period."""
    said: dict[str, str] = {}
    for kind in (each for each in model.__mro__ if each.__module__.startswith("ctxguard.")):
        listed = inspect.getdoc(kind) or ""
        entries = re.split(r"\n    (?=\w)", listed.partition("Attributes:")[2].partition("\n\nRaises:")[0])
        pairs = (" ".join(entry.split()).partition(": ") for entry in entries[1:])
        said |= {name: meaning.rstrip(".") for name, _, meaning in pairs}
    return said


def home_of(name: str, model: type[BaseModel]) -> str:
    """Return a hint that names the section to which a misplaced setting belongs; an empty string if there is none."""
    section = next((s for s, own in SECTIONS.items() if name in own.model_fields), None)
    return f"; it belongs in the section {section!r}" if section and model is ContextConfig else ""


def nearest_of(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: the closest known name, or else all known names."""
    return nearest(name, known) or f"; known are {', '.join(sorted(known))}"
