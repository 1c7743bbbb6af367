"""The parts of a model call outside the history: instructions, tool schemas, output schemas.

Frameworks and request bodies keep instructions, tools, schemas and settings apart from the messages, where no stage
would see them. Those texts in which a rule matches join the history as one system artifact: so the chain masks them,
one value gets one placeholder in the whole request, and the checks cover them. The results are then put back in their
places. Those in which no rule matches are only counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar, cast

from ctxguard.adapting.editing import copy_with
from ctxguard.adapting.extra_fields import EDITABLE_IN_SCHEMAS, IDENTIFIERS
from ctxguard.adapting.fields import Path, fields_of, place_name
from ctxguard.adapting.recent import Recent
from ctxguard.adapting.tool_schemas import tools_of_call
from ctxguard.artifacts import Artifact, Field, Kind
from ctxguard.checks.no_pii import NoPII
from ctxguard.errors import CheckFailedError, ConfigError
from ctxguard.pii import Detector
from ctxguard.pii.identifiers import for_identifiers
from ctxguard.report import Report
from ctxguard.stabilizer import Stabilizer
from ctxguard.stages import MaskPII

_BESIDE: Final = object()
"""The source of the artifact that contains these texts."""
_MASK_TOKENS: Final = 8
"""Tokens by which a text may grow if values in it become placeholders."""


@dataclass(frozen=True, slots=True)
class Beside:
    """The texts of a request outside its history.

    Attributes:
        artifact: Contains the texts; None if there are none.
        paths: The place of each field of the artifact; None if it cannot be changed.
    """

    artifact: Artifact | None
    paths: tuple[Path | None, ...]

    @classmethod
    def of(cls, placed: Iterable[tuple[Path | None, Field]], *, instructions: str | None = None) -> Beside:
        """Return an instance for some texts.

        Args:
            placed: The texts with their places.
            instructions: A system prompt that joins the history as the content of the artifact, and is counted there.
        """
        found = list(placed)
        if not found and instructions is None:
            return cls(None, ())
        return cls(_artifact(instructions, tuple(field for _, field in found)), tuple(path for path, _ in found))

    @property
    def growth(self) -> int:
        """Tokens by which masking may make the texts longer."""
        return _MASK_TOKENS * len(self.paths)

    def joined(self, history: Sequence[Artifact]) -> Sequence[Artifact]:
        """Return the history with the artifact in front."""
        return history if self.artifact is None else [self.artifact, *history]

    def restored(self, artifacts: Sequence[Artifact]) -> tuple[dict[Path, object], str, list[Artifact]]:
        """Return the changed texts by their places, the instructions that joined, and the history.

        Raises:
            CheckFailedError: A stage dropped the artifact or joined it with another, so that the new texts are unknown.
        """
        if self.artifact is None:
            return {}, "", list(artifacts)
        mine = [artifact for artifact in artifacts if artifact.root.source is _BESIDE]
        if len(mine) != 1 or len(mine[0].fields) != len(self.paths):
            raise CheckFailedError(("SystemIntact: a stage dropped or joined what is sent beside the history",))
        changes: dict[Path, object] = {
            path: now.text
            for path, was, now in zip(self.paths, self.artifact.fields, mine[0].fields, strict=True)
            if path is not None and was.text != now.text
        }
        return changes, mine[0].text, [artifact for artifact in artifacts if artifact is not mine[0]]


# the very same artifact at every call, by which a stabilizer finds earlier results
@lru_cache(maxsize=256)
def _artifact(instructions: str | None, fields: tuple[Field, ...]) -> Artifact:
    # tools and settings are counted with the request as a whole: the artifact must not count them again
    tokens = 0 if instructions is None else None
    return Artifact(Kind.SYSTEM, instructions or "", tokens, fields=fields, source=_BESIDE)


Native = TypeVar("Native")
Schema = Mapping[str, object]

_INSTRUCTIONS: Final = "instructions"
_TOOLS: Final = "tools"
_FRAMING: Final = 128
"""Characters up to which a setting costs nothing."""
_UNSENT: Final = frozenset({"extra_headers", "http_client", "timeout"})
"""Settings of clients, which are no part of a request's body."""
# schemas and instructions are the same at every call of an agent
_VERDICTS: Final[Recent[tuple[int, str], tuple[Detector, bool]]] = Recent(4_096)


@dataclass(frozen=True, slots=True)
class Request(Generic[Native]):
    """The content of one model call.

    Attributes:
        messages: The native history.
        instructions: The system prompt, if it is sent outside the history.
        tools: Tool schemas; descriptions in them may be masked.
        schemas: Schemas that are counted and searched but cannot be changed: output types, handoffs.
        settings: Further settings of the call, which are searched: metadata, a choice of tools, unknown keys. Long
            texts in them are counted.
    """

    messages: Native
    instructions: str | None = None
    tools: Sequence[Schema] = ()
    schemas: Sequence[Schema] = ()
    settings: Schema = field(default_factory=dict)


def plain_settings(settings: object) -> Schema:
    """Return the settings of a framework's call as plain JSON, to be searched; raise if they are not JSON."""
    given = {key: value for key, value in fields_of(settings).items() if value is not None and key not in _UNSENT}
    try:
        plain: Schema = json.loads(json.dumps(given, default=plain_object))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"settings of the model cannot be read: {error}", setting="model_settings") from None
    return plain


def plain_object(value: object) -> object:
    """Return an object in a form that JSON allows: its fields, or a text. The `default` of `json.dumps`."""
    return fields_of(value) or str(value)


COUNTED_FROM: Final = 0.9
"""Share of the budget from which on a request is counted again, as it is written."""


@dataclass(slots=True)
class RequestTexts(Generic[Native]):
    """The other parts of a program's request while its history is stabilized, see `ctxguard.adapting.adapter.Texts`.

    Attributes:
        request: The whole request.
        beside: The texts in which a rule matches.
        overhead: Tokens of the reply's opening and of instructions that did not join the history.
        tools: The tools and schemas for the chain to count.
        recount: Counts a request as it is written; None if its format is unknown.
        details: What the report says of them.
    """

    request: Request[Native]
    beside: Beside
    overhead: int
    tools: Sequence[Schema]
    recount: Callable[[Request[Native]], int] | None = None
    details: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        request: Request[Native],
        stabilizer: Stabilizer,
        *,
        is_editable: bool,
        window: int | None = None,
        recount: Callable[[Request[Native]], int] | None = None,
    ) -> RequestTexts[Native]:
        """Return the other parts of a request.

        Args:
            request: The whole request.
            stabilizer: The stabilizer whose rules are applied.
            is_editable: Whether the caller sends the returned instructions and tools, rather than its own.
            window: The model's context window in tokens, if the budget is a share of it.
            recount: Counts a request as it is written.

        Raises:
            ConfigError: The instructions are not a text.
        """
        text = request.instructions
        if not isinstance(text, str | None):
            raise ConfigError(f"instructions must be a text, not {type(text).__name__}", setting="instructions")
        detectors = _detectors(stabilizer)
        details: Mapping[str, object] = {}
        try:
            if is_editable:
                sent, details = tools_of_call(
                    request.tools, stabilizer, window, lambda said: any(_found(one, said) for one in detectors)
                )
                request = replace(request, tools=sent)
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
        # tools of a wrong type are left as they are, for the counter to reject
        tools = [*request.tools, *request.schemas] if request.schemas else request.tools
        return cls(request, beside, counted + beside.growth, tools, recount, details)

    def written(self, changes: Mapping[Path, object], instructions: str, native: Native) -> Request[Native]:
        """Return the request with its changed texts and history."""
        tools = self.request.tools
        if changes:
            tools = cast("Sequence[Schema]", copy_with({_TOOLS: list(tools)}, changes)[_TOOLS])
        # no instructions here means that nothing matched in them, so they did not join
        return replace(
            self.request, messages=native, tools=tools, instructions=instructions or self.request.instructions
        )

    def tokens(self, sent: Request[Native], report: Report, *, is_changed: bool) -> int:
        """Return the input tokens of the request, recounted as written if it nearly fills the budget."""
        known, budget = report.tokens_after, report.budget
        if self.recount is None or known > budget:  # over budget: the report says so already
            return 0
        return self.recount(sent) if is_changed or known > COUNTED_FROM * budget else known


def _long_texts(settings: Schema, stabilizer: Stabilizer) -> int:
    """Return the tokens of long texts in settings, such as documents in an `extra_body`."""
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
    """Yield the texts of a schema: descriptions, which may be masked, and names, keys and values, which may not."""
    if isinstance(value, str):
        key = next((key for key in reversed(path) if isinstance(key, str)), "")
        is_text = key in EDITABLE_IN_SCHEMAS
        text = value if is_text or key in IDENTIFIERS else f"{key}: {value}"
        yield path, Field(place_name(path), text, editable=is_text, is_identifier=not is_text)
    elif isinstance(value, (int, float)):
        yield path, Field(place_name(path), f"{path[-1] if path else ''}: {value}")
    elif isinstance(value, (list, tuple)):
        for index, member in enumerate(value):
            yield from _fields_of_schema(member, (*path, index))
    else:
        for name, member in fields_of(value).items():
            if not isinstance(name, str):
                raise TypeError(f"a key is a text, not {type(name).__name__}")
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
        known = detector, bool(detector.find(text))  # stored with its result, so that its id stays unique
        _VERDICTS.put(key, known)
    return known[1]


def require_clean_schemas(report: Report) -> None:
    """Refuse to send schemas in which a rule matches if the framework's hook cannot change them."""
    if report.observed:
        return
    # their artifact is the first, and the only one with such places
    places = tuple(f"artifacts[0].{name}" for name in ("tools[", "schemas[", "settings.", _INSTRUCTIONS))
    findings = ((check.name, finding) for check in report.checks for finding in check.findings)
    found = [f"{name}: {finding}" for name, finding in findings if finding.path.startswith(places)]
    if found:
        raise CheckFailedError(tuple(found))
