"""What one model call sends beside the history: instructions, tool schemas, output schemas.

Where a rule matches in them, they join the history for the time of the call, see `ctxguard.adapting.beside`. Where
nothing matches, they are only counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar, cast

from ctxguard.adapting.beside import Beside
from ctxguard.adapting.editing import copy_with
from ctxguard.adapting.extra_fields import EDITABLE_IN_SCHEMAS
from ctxguard.adapting.fields import Path, fields_of, place_name
from ctxguard.adapting.recent import Recent
from ctxguard.artifacts import Artifact, Field
from ctxguard.checks.no_pii import NoPII
from ctxguard.errors import CheckFailedError, ConfigError, HistoryError
from ctxguard.pii import Detector
from ctxguard.pii.identifiers import for_identifiers
from ctxguard.report import Report
from ctxguard.stabilizer import Stabilizer
from ctxguard.stages import MaskPII

Native = TypeVar("Native")
Schema = Mapping[str, object]

_INSTRUCTIONS: Final = "instructions"
_TOOLS: Final = "tools"
_FRAMING: Final = 128
"""Characters up to which a setting costs nothing."""
_UNSENT: Final = frozenset({"authorization", "extra_headers", "headers", "http_client", "timeout"})
"""Settings of clients: credentials and the like, which no model is shown."""
# schemas and instructions are the same at every call of an agent
_VERDICTS: Final[Recent[tuple[int, str], tuple[Detector, bool]]] = Recent(4_096)


@dataclass(frozen=True, slots=True)
class Request(Generic[Native]):
    """Hold what one model call sends.

    Attributes:
        messages: The native history.
        instructions: The system prompt that is sent beside it.
        tools: Tool schemas; descriptions in them may be masked.
        schemas: Schemas that are counted and searched and cannot be changed: output types, handoffs.
        settings: Further settings of the call, which are searched: metadata, a choice of tools, unknown keys. Long
            texts in them are counted.
    """

    messages: Native
    instructions: str | None = None
    tools: Sequence[Schema] = ()
    schemas: Sequence[Schema] = ()
    settings: Schema = field(default_factory=dict)


def settings_of(
    request: Mapping[str, object], *, history: str, taken: Iterable[str], billed: Iterable[str]
) -> tuple[dict[str, object], list[Schema]]:
    """Return the settings of a request's body, and those of them that the model is shown as schemas.

    Args:
        request: The body, or the arguments of a client's method.
        history: The key of its history.
        taken: Keys that are read elsewhere.
        billed: Keys of settings that the model is shown.

    Raises:
        HistoryError: The request is not a dict.
    """
    if not isinstance(request, Mapping):
        raise HistoryError(
            f"expected a request, a dict with {history!r}, got {type(request).__name__}; "
            f"a list of {history} goes to stabilize_messages"
        )
    rest = {key: value for key, value in request.items() if key not in taken and value is not None}
    schemas: list[Schema] = [{key: rest.pop(key)} for key in billed if key in rest]
    return rest, schemas


def plain_settings(settings: object) -> Schema:
    """Return the settings of a framework's call as plain JSON, to be searched; refuse what is not JSON."""
    given = {key: value for key, value in fields_of(settings).items() if value is not None and key not in _UNSENT}
    try:
        plain: Schema = json.loads(json.dumps(given, default=plain_object))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"settings of the model cannot be read: {error}", setting="model_settings") from None
    return plain


def plain_object(value: object) -> object:
    """Return an object as JSON can hold it: its fields, or a text. The `default` of `json.dumps`."""
    return fields_of(value) or str(value)


@dataclass(frozen=True, slots=True)
class RequestTexts:
    """Stand for the rest of a request while its history is stabilized.

    Attributes:
        beside: Holds the texts in which a rule matches.
        overhead: Tokens of the reply's opening and of instructions that did not join the history.
    """

    beside: Beside
    overhead: int

    @classmethod
    def of(cls, request: Request[Any], stabilizer: Stabilizer, *, is_editable: bool) -> RequestTexts:
        """Return what stands for the rest of a request.

        Args:
            request: The whole request.
            stabilizer: The stabilizer whose rules are looked for.
            is_editable: Whether the caller sends what this call makes of instructions and tools, and not its own.

        Raises:
            ConfigError: The instructions are not a text.
        """
        text = request.instructions
        if not isinstance(text, str | None):
            raise ConfigError(f"instructions must be a text, not {type(text).__name__}", setting="instructions")
        detectors = _detectors(stabilizer)
        try:
            fields = list(_schema_fields(request, is_editable=is_editable))
        except (RecursionError, TypeError) as error:  # cyclic, nested too deeply, or keys that are not texts
            raise ConfigError(f"tools and schemas cannot be read: {error}; send plain JSON", setting="tools") from None
        placed = [one for one in fields if _matches(detectors, one[1])]
        prompt = Field(_INSTRUCTIONS, text or "", is_editable, is_identifier=False, tokens=0)
        is_dirty = bool(text) and _matches(detectors, prompt)
        if is_dirty and not is_editable:
            placed.append((None, prompt))
        joins = is_dirty and is_editable
        beside = Beside.of(placed, instructions=text if joins else None)
        counted = stabilizer.counter.beside(None if joins else text) + _long_texts(request.settings, stabilizer)
        return cls(beside, counted + beside.growth)

    def restored(
        self, request: Request[Native], artifacts: Sequence[Artifact]
    ) -> tuple[Request[Native], list[Artifact]]:
        """Return the request with what became of its texts, and the artifacts that belong to the history."""
        changes, joined, history = self.beside.restored(artifacts)
        # none here means that they were clean and stayed outside
        instructions = joined or request.instructions
        tools = request.tools
        if changes:
            tools = cast("Sequence[Schema]", copy_with({_TOOLS: list(tools)}, changes)[_TOOLS])
        return replace(request, tools=tools, instructions=instructions), history


def _long_texts(settings: Schema, stabilizer: Stabilizer) -> int:
    """Return the tokens of what settings hold beyond names and numbers, such as documents in an `extra_body`."""
    texts = (found.text for _, found in _fields_of_schema(settings))
    return sum(stabilizer.counter.text(text) for text in texts if len(text) > _FRAMING)


def _schema_fields(request: Request[Any], *, is_editable: bool) -> Iterator[tuple[Path | None, Field]]:
    for _, found in _fields_of_schema(request.settings):
        yield None, replace(found, place=f"settings.{found.place}", editable=False, is_identifier=True, tokens=0)
    for name, listed, may_edit in ((_TOOLS, request.tools, is_editable), ("schemas", request.schemas, False)):
        for number, schema in enumerate(listed if isinstance(listed, (list, tuple)) else ()):
            for path, found in _fields_of_schema(schema):
                placed = replace(found, place=f"{name}[{number}].{found.place}", tokens=0)
                edits = may_edit and found.editable
                yield (name, number, *path) if edits else None, replace(placed, editable=edits)


def _fields_of_schema(value: object, path: Path = ()) -> Iterator[tuple[Path, Field]]:
    """Walk the texts of a schema: descriptions, which may be masked, and names, keys and values, which may not."""
    if isinstance(value, str):
        key = next((key for key in reversed(path) if isinstance(key, str)), "")
        is_text = key in EDITABLE_IN_SCHEMAS
        yield path, Field(place_name(path), value, editable=is_text, is_identifier=not is_text)
    elif isinstance(value, (list, tuple)):
        for index, member in enumerate(value):
            yield from _fields_of_schema(member, (*path, index))
    else:
        for name, member in fields_of(value).items():
            if not isinstance(name, str):
                raise TypeError(f"a key is a text, not {name!r}")
            yield (), Field(place_name((*path, name)), name)
            yield from _fields_of_schema(member, (*path, name))


def _detectors(stabilizer: Stabilizer) -> list[Detector]:
    masked = [one for stage in stabilizer.stages if isinstance(stage, MaskPII) for one in stage.masker.detectors]
    checked = [check.rules for check in stabilizer.checks if isinstance(check, NoPII) and check.rules is not None]
    return masked + checked


def _matches(detectors: Sequence[Detector], given: Field) -> bool:
    chosen = [for_identifiers(one) for one in detectors] if given.is_identifier else detectors
    return any(_found(detector, given.text) for detector in chosen if detector is not None)


def _found(detector: Detector, text: str) -> bool:
    key = id(detector), text
    known = _VERDICTS.get(key)
    if known is None:
        known = detector, bool(detector.find(text))  # held with its verdict, so that its id stays its own
        _VERDICTS.put(key, known)
    return known[1]


def require_clean_schemas(report: Report) -> None:
    """Refuse to send schemas in which a rule matches, where the caller's hook cannot change them."""
    if report.observed:
        return
    # the artifact that stands for them is the first, and the only one with such places
    places = tuple(f"artifacts[0].{name}" for name in ("tools[", "schemas[", "settings.", _INSTRUCTIONS))
    found = [
        f"{check.name}: {finding}"
        for check in report.checks
        for finding in check.findings
        if finding.path.startswith(places)
    ]
    if found:
        raise CheckFailedError(tuple(found))
