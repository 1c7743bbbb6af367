"""Read the configuration from one YAML file, and override it with environment variables."""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel

from ctxguard.config.models import ContextConfig, TruncationConfig, home_of, nearest_of
from ctxguard.errors import ConfigError, reason_of
from ctxguard.settings import instance

ENVIRONMENT_PREFIX: Final = "CTXGUARD_"
FILE_NAMES: Final = ("ctxguard.yaml", "config.yaml")
_SECTION: Final = "ctxguard"
_log = logging.getLogger("ctxguard.config")
_ANYONES: Final = frozenset({"compaction", "enabled", "strategy", "truncation"})
"""Settings whose names other programs use too, so that they do not identify a file as ctxguard's."""


def load_context_config(path: str | os.PathLike[str] | None = None) -> ContextConfig:
    """Return the configuration: the defaults, overridden by the file, overridden by the environment.

    The file has the settings at its top level or under the key `ctxguard`. The environment variable
    `CTXGUARD_MAX_LINES` overrides the setting `max_lines`; `CTXGUARD_STABILIZER__BUDGET` overrides the setting `budget`
    in the section `stabilizer`. The result is cached until the file or the environment changes.

    Args:
        path: Configuration file. None means `ctxguard.yaml`, or else `config.yaml`, in the working directory; if
            neither exists, no file is read. A `config.yaml` found this way is read only if it has a section `ctxguard`
            or a setting that only ctxguard has. Other programs also have settings named `enabled`, `strategy`,
            `compaction`, and `truncation`; these are read only if the file contains nothing else. A warning names
            ignored settings once.

    Raises:
        ConfigError: If the file cannot be read, or a setting is unknown or out of range.
    """
    file = _find_file() if path is None else Path(path)
    overrides = tuple(sorted((k, v) for k, v in os.environ.items() if k.startswith(ENVIRONMENT_PREFIX)))
    if file is None:
        return _load(None, (0, 0), overrides, searched=True)
    try:
        stat = file.stat()
    except (OSError, ValueError) as error:  # the second for a path with a null character
        raise ConfigError(f"{file}: {reason_of(error)}; name a YAML file") from None
    return _load(file.absolute(), (stat.st_mtime_ns, stat.st_size), overrides, searched=path is None)


def settings_source(path: str | os.PathLike[str] | None = None) -> str | None:
    """Return which file and environment variables `load_context_config` reads; None if all settings are defaults.

    Raises:
        ConfigError: If the file cannot be read.
    """
    file = _find_file() if path is None else Path(path)
    used = file is not None and (path is not None or bool(_read(file, searched=True)))
    variables = sorted(name for name in os.environ if _is_setting(name))
    return ", ".join([*([str(file)] if used else []), *variables]) or None


def _is_setting(variable: str) -> bool:
    name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().partition("__")[0]
    return variable.startswith(ENVIRONMENT_PREFIX) and name in ContextConfig.model_fields


def chosen_config(config: ContextConfig | None) -> ContextConfig:
    """Return `config`, or if it is None, `load_context_config()`.

    Raises:
        ConfigError: If `config` is something else, such as the path of a file, or the file cannot be read.
    """
    return load_context_config() if config is None else instance(config, ContextConfig, "config")


def get_truncation_config(name: str = "default", *, config: ContextConfig | None = None) -> TruncationConfig:
    """Return a truncation preset.

    Args:
        name: Name of the preset: `default`, `sql_query`, `log_search`, or one defined in the section `truncation`.
        config: Configuration; None means `load_context_config()`.

    Raises:
        ConfigError: If there is no preset with this name.
    """
    presets = chosen_config(config).truncation
    if name not in presets:
        raise ConfigError(f"unknown truncation preset {name!r}{nearest_of(name, presets)}", setting="truncation")
    return presets[name]


def _find_file() -> Path | None:
    found = next((Path(name) for name in FILE_NAMES if Path(name).is_file()), None)
    if Path("ctxguard.yml").is_file() and (found is None or found.name != FILE_NAMES[0]):
        raise ConfigError(f"ctxguard.yml is not read; rename it to {FILE_NAMES[0]}")
    if found is None and (above := _file_above()) is not None:
        _warn_once(f"{above} is not read: its folder is not the working directory; name the file, as with --config")
    return found


def _file_above() -> Path | None:
    """Return the nearest configuration file above the working directory, which a user may believe to be in use."""
    with suppress(OSError):  # the working directory was deleted
        return next((file for parent in Path.cwd().parents if (file := parent / FILE_NAMES[0]).is_file()), None)
    return None


@lru_cache(maxsize=32)
def _load(
    file: Path | None,
    version: tuple[int, int],  # noqa: ARG001 - time and size of the file, which are part of the cache key
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
        said = {name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".") for name, _ in overrides}
        where = "configuration" if file is None or error.setting in said else f"{file.name}{_line(file, error.setting)}"
        raise ConfigError(f"{where}: {error}", setting=error.setting) from None


def _line(file: Path, setting: str | None) -> str:
    """Return the line of a setting, or else of its section, such as `:12`; an empty string if neither is found."""
    import yaml

    node: Any = yaml.compose(file.read_text(encoding="utf-8-sig"), yaml.SafeLoader)
    line = ""
    for step in (_SECTION, *(setting or "").split(".")):
        found = []
        if isinstance(node, yaml.MappingNode):
            found = [(key, value) for key, value in node.value if str(key.value) == step]
        elif isinstance(node, yaml.SequenceNode) and step.isdecimal():
            found = [(member, member) for member in node.value[int(step) : int(step) + 1]]
        if found:
            line, node = f":{found[-1][0].start_mark.line + 1}", found[-1][1]
    return line


def _read(file: Path, *, searched: bool) -> dict[str, object]:
    import yaml

    strict = not searched or file.name == FILE_NAMES[0]
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{file}: {reason_of(error)}; name a readable YAML file") from None
    # PyYAML converts the values of tags such as !!bool with whatever errors that raises
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        if not strict and not _is_ours(re.findall(r"(?m)^(\w+):", file.read_text(encoding="utf-8", errors="replace"))):
            return {}
        raise ConfigError(f"{file}: not readable as YAML ({reason_of(error)})") from None
    if data is None or (not strict and not (isinstance(data, dict) and _is_ours(data))):
        _say_ignored(file.name, data)
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{file}: expected settings, got {type(data).__name__}; write `name: value` lines")
    if _SECTION in data:
        if not strict:
            _say_ignored(file.name, data)
        data = data[_SECTION] or {}
        if not isinstance(data, dict):
            raise ConfigError(f"{file}: section {_SECTION!r} contains no settings", setting=_SECTION)
    if isinstance(data.get("pii"), dict):
        data = {**data, "pii": _with_word_files(data["pii"], file)}
    return {str(key): value for key, value in data.items()}


def _with_word_files(section: Mapping[str, Any], file: Path) -> Mapping[str, Any]:
    """Return the section `pii` with the contents of the word files that it names, relative to `file`."""

    def words(given: object, setting: str) -> object:
        if not isinstance(given, str):
            return given
        try:
            lines = (file.parent / given).read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            message = f"{setting}: {given}: {reason_of(error)}; list it, ['{given}'], or name a file of one word a line"
            raise ConfigError(f"{file.name}{_line(file, setting)}: {message}", setting=setting) from None
        return [line.strip() for line in lines if line.strip() and not line.startswith("#")]

    deny, allow = section.get("deny"), section.get("allow")
    if isinstance(deny, dict):
        section = {**section, "deny": {label: words(given, f"pii.deny.{label}") for label, given in deny.items()}}
    return {**section, "allow": words(allow, "pii.allow")} if "allow" in section else section


def _say_ignored(name: str, data: object) -> None:
    """Log a warning with the names of ctxguard settings that are ignored in a file shared with other programs.

    In such a file, settings are read only from the section `ctxguard`.
    """
    keys = {str(key) for key in data} if isinstance(data, Mapping) else set()
    if found := sorted(keys & {*ContextConfig.model_fields, "context"}):
        _warn_once(
            f"{name}: {', '.join(found)} ignored beside settings of other programs; write a section {_SECTION!r}"
        )


@lru_cache(maxsize=32)
def _warn_once(text: str) -> None:
    _log.warning(text)


def _is_ours(keys: Collection[object]) -> bool:
    """Return whether a file is for ctxguard, given its top-level keys.

    This is true if at least one key is the section `ctxguard` or a setting that only ctxguard has, or if all keys are
    settings of ctxguard. A misspelled setting counts as that setting.
    """
    fields = ContextConfig.model_fields
    ours = [name for key in keys for name in difflib.get_close_matches(str(key), fields, n=1, cutoff=0.85)]
    return _SECTION in keys or any(name not in _ANYONES for name in ours) or 0 < len(ours) == len(keys)


def _override(values: dict[str, object], variable: str, text: str) -> None:
    """Apply an environment variable to `values`; reject a variable that looks like a misspelled setting."""
    path = variable.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
    model: type[BaseModel] = ContextConfig
    for depth, name in enumerate(path):
        field = model.model_fields.get(name)
        if field is None:
            _refuse_near(variable, name, model)
            return
        if depth == len(path) - 1:
            is_none = text.lower() in ("", "null", "none") and type(None) in get_args(field.annotation)
            values[name] = None if is_none else text
            return
        inner = values.get(name)
        values[name] = values = {} if not isinstance(inner, dict) else dict(inner)
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            raise ConfigError(f"{variable}: {name!r} is not a section; remove what follows its name", setting=name)
        model = field.annotation


def _refuse_near(variable: str, name: str, model: type[BaseModel]) -> None:
    home = home_of(name, model)
    near = difflib.get_close_matches(name, model.model_fields, n=1, cutoff=0.8)
    if home or near or model is not ContextConfig:
        where = home or nearest_of(name, model.model_fields)
        raise ConfigError(f"environment variable {variable}: unknown setting {name!r}{where}", setting=name)
