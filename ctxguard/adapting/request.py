"""The parts of a model call outside the history: instructions, tool schemas, output schemas.

Frameworks and request bodies keep instructions, tools, schemas, and settings apart from the messages, where no stage
would see them. The texts among these in which a rule matches, or that no client can encode, are therefore added to the
history as one system artifact:
stages mask them, each value has the same placeholder in the whole request, and the checks cover them. Afterwards, the
masked texts are put back in their places. Texts in which no rule matches are only counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, cast

from ctxguard.adapting.fields import Path, copy_with, is_list, is_record
from ctxguard.adapting.json_walk import schema_fields
from ctxguard.artifacts import OUTSIDE, Artifact, Field, Kind
from ctxguard.checks.no_pii import NoPII
from ctxguard.errors import CheckFailedError, ConfigError
from ctxguard.history.pairing import is_well_formed
from ctxguard.pii import Detector
from ctxguard.pii.rule_sets import for_identifiers
from ctxguard.report import Report
from ctxguard.report.places import keys_of, place_in
from ctxguard.stabilizer import Stabilizer
from ctxguard.tokens.caches import Recent
from ctxguard.tokens.counters import find_counter
from ctxguard.tokens.schemas import DECLARATIONS, PARAMETERS, WRAPPED, compact, fields_of
from ctxguard.views.outcomes import clipped

_MASK_TOKENS: Final = 8
"""Number of tokens by which a text may grow when values in it are replaced with placeholders."""


@dataclass(frozen=True, slots=True)
class OutsideTexts:
    """The texts outside a request's history in which a rule matches.

    Attributes:
        artifact: The artifact that contains the texts. None if there are no such texts.
        paths: The place of each field of the artifact in the request. None for a field that cannot be changed.
    """

    artifact: Artifact | None
    paths: tuple[Path | None, ...]

    @classmethod
    def of(cls, placed: Iterable[tuple[Path | None, Field]], *, instructions: str | None = None) -> OutsideTexts:
        """Create an instance for some texts.

        Args:
            placed: The texts with their places.
            instructions: A system prompt that becomes the content of the artifact, and is counted with the artifact.
        """
        texts = list(placed)
        if not texts and instructions is None:
            return cls(None, ())
        return cls(_artifact(instructions, tuple(field for _, field in texts)), tuple(path for path, _ in texts))

    @property
    def growth(self) -> int:
        """Number of tokens by which masking may make the texts longer."""
        return _MASK_TOKENS * len(self.paths)

    def prepended_to(self, history: Sequence[Artifact]) -> Sequence[Artifact]:
        """Return the history with the artifact in front."""
        return history if self.artifact is None else [self.artifact, *history]

    def split_off(self, artifacts: Sequence[Artifact]) -> tuple[dict[Path, object], str, list[Artifact]]:
        """Split stabilized artifacts into the texts outside the history and the history.

        Returns:
            The changed texts by their places, the instructions if they were given to `of`, and the artifacts of the
            history.

        Raises:
            CheckFailedError: If a stage dropped the artifact or merged it with another one, so that the masked texts
                are lost.
        """
        if self.artifact is None:
            return {}, "", list(artifacts)
        mine = [artifact for artifact in artifacts if artifact.root.source is OUTSIDE]
        if len(mine) != 1 or len(mine[0].fields) != len(self.paths):
            raise CheckFailedError(("SystemIntact: a stage dropped or merged the texts outside the history",))
        changes: dict[Path, object] = {
            path: now.text
            for path, was, now in zip(self.paths, self.artifact.fields, mine[0].fields, strict=True)
            if path is not None and was.text != now.text
        }
        return changes, mine[0].text, [artifact for artifact in artifacts if artifact is not mine[0]]


# cached, because a stabilizer finds its earlier results by the identity of an artifact
@lru_cache(maxsize=256)
def _artifact(instructions: str | None, fields: tuple[Field, ...]) -> Artifact:
    # tools and settings are counted with the whole request, so the artifact must not count them again
    tokens = 0 if instructions is None else None
    return Artifact(Kind.SYSTEM, instructions or "", tokens, fields=fields, source=OUTSIDE)


Native = TypeVar("Native")
Schema = Mapping[str, object]

_INSTRUCTIONS: Final = "instructions"
_TOOLS: Final = "tools"
_UNSENT: Final = frozenset({"extra_headers", "http_client", "timeout"})
"""Settings of clients that are not part of the body of a request."""
# schemas and instructions are the same at every call of an agent
_VERDICTS: Final[Recent[tuple[int, str], tuple[Detector, bool]]] = Recent(4_096)


@dataclass(frozen=True, slots=True)
class Request(Generic[Native]):
    """The content of one model call.

    Attributes:
        messages: The native history.
        instructions: The system prompt, if it is sent outside the history.
        tools: Tool schemas. Descriptions in them may be masked.
        schemas: Schemas that are counted and searched but cannot be changed, such as output types and handoffs.
        settings: Further settings of the call, which are searched: metadata, the choice of tools, unknown keys. Texts
            in them are counted where they are longer than framing, see `ctxguard.tokens.artifact_counter`.
    """

    messages: Native
    instructions: str | None = None
    tools: Sequence[Schema] = ()
    schemas: Sequence[Schema] = ()
    settings: Schema = field(default_factory=dict)


def plain_settings(settings: object) -> Schema:
    """Return the settings of a framework's model call as plain JSON values, which can be searched.

    Raises:
        ConfigError: If the settings cannot be written as JSON.
    """
    given = {key: value for key, value in fields_of(settings).items() if value is not None and key not in _UNSENT}
    try:
        plain: Schema = json.loads(json.dumps(given, default=plain_object))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"settings of the model cannot be read: {error}", setting="model_settings") from None
    return plain


def plain_object(value: object) -> object:
    """Return an object as a dict of its fields, or as a string if it has none. The `default` of `json.dumps`."""
    return fields_of(value) or str(value)


COUNTED_FROM: Final = 0.9
"""Share of the budget above which a request is counted again in its final form."""


@dataclass(slots=True)
class RequestTexts(Generic[Native]):
    """The parts of a program's request outside its history, see `ctxguard.adapting.adapter.Texts`.

    Attributes:
        request: The whole request.
        outside: The texts in which a rule matches.
        overhead: Number of tokens that the stages do not see: the opening of the reply, instructions in which no rule
            matches, long settings, and the tokens by which masking may make texts longer.
        tools: The tools and schemas that the stabilizer counts.
        recount: Function that counts the tokens of a request in its final form. None if the format of the request is
            unknown.
        details: Entries for the `details` of the report.
    """

    request: Request[Native]
    outside: OutsideTexts
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
        """Create an instance for a request.

        Args:
            request: The whole request.
            stabilizer: The stabilizer whose rules are applied.
            is_editable: Whether the caller sends the returned instructions and tools, rather than the original ones.
            window: The model's context window in tokens; needed if the budget is a share of the window.
            recount: Function that counts the tokens of a request in its final form.

        Raises:
            ConfigError: If the instructions are not a string, or the tools cannot be read.
        """
        text = request.instructions
        if not isinstance(text, str | None):
            raise ConfigError(f"instructions must be a string, not {type(text).__name__}", setting="instructions")
        detectors = _detectors(stabilizer)
        details: Mapping[str, object] = {}
        try:
            if is_editable:
                sent, details = tools_of_call(
                    request.tools, stabilizer, window, lambda said: any(_detects(one, said) for one in detectors)
                )
                request = replace(request, tools=sent)
            fields = list(_schema_fields(request, is_editable=is_editable))
        except (RecursionError, TypeError) as error:  # cyclic, nested too deeply, or with keys that are not strings
            raise ConfigError(f"tools and schemas cannot be read: {error}; send plain JSON", setting="tools") from None
        found = (one for one in fields if not is_well_formed(one[1].text) or _matches(detectors, one[1]))
        outer = {_TOOLS: request.tools, "schemas": request.schemas, "settings": request.settings}
        placed = [(path, replace(one, words=place_in(outer, keys_of(one.place)))) for path, one in found]
        prompt = Field(_INSTRUCTIONS, text or "", is_editable, is_identifier=False, tokens=0)
        is_dirty = bool(text) and (not is_well_formed(prompt.text) or _matches(detectors, prompt))
        if is_dirty and not is_editable:
            placed.append((None, prompt))
        joins = is_dirty and is_editable
        outside = OutsideTexts.of(placed, instructions=text if joins else None)
        counted = stabilizer.counter.beside(None if joins else text) + stabilizer.counter.fields(request.settings)
        # tools of a wrong type are left as they are, for the counter to reject
        tools = [*request.tools, *request.schemas] if request.schemas else request.tools
        return cls(request, outside, counted + outside.growth, tools, recount, details)

    def write(self, changes: Mapping[Path, object], instructions: str, native: Native) -> Request[Native]:
        """Return the request with its changed texts and the stabilized history."""
        tools = self.request.tools
        if changes:
            tools = cast("Sequence[Schema]", copy_with({_TOOLS: list(tools)}, changes)[_TOOLS])
        # an empty string means that no rule matched in the original instructions
        return replace(
            self.request, messages=native, tools=tools, instructions=instructions or self.request.instructions
        )

    def tokens(self, sent: Request[Native], report: Report, *, is_changed: bool) -> int:
        """Return the number of input tokens in the final request.

        The final request is counted if texts outside the history changed, or if it nearly fills the budget. Return 0
        if there is no `recount`, or if the report already says that the request exceeds the budget.
        """
        known, budget = report.tokens_after, report.budget
        if self.recount is None or known > budget:  # over budget, as the report already says
            return 0
        return self.recount(sent) if is_changed or known > COUNTED_FROM * budget else known


def _schema_fields(request: Request[Any], *, is_editable: bool) -> Iterator[tuple[Path | None, Field]]:
    for _, found in schema_fields(request.settings):
        yield None, replace(found, place=f"settings.{found.place}", editable=False, is_identifier=True, tokens=0)
    for name, listed, may_edit in ((_TOOLS, request.tools, is_editable), ("schemas", request.schemas, False)):
        for number, schema in enumerate(listed if isinstance(listed, (list, tuple)) else ()):
            for path, found in schema_fields(schema):
                placed = replace(found, place=f"{name}[{number}].{found.place}", tokens=0)
                edits = may_edit and found.editable
                yield (name, number, *path) if edits else None, replace(placed, editable=edits)


def _detectors(stabilizer: Stabilizer) -> list[Detector]:
    masked = stabilizer.stages.detectors
    checked = [check.rules for check in stabilizer.checks if isinstance(check, NoPII) and check.rules is not None]
    return masked + checked


def _matches(detectors: Sequence[Detector], given: Field) -> bool:
    chosen = [for_identifiers(one) for one in detectors] if given.is_identifier else detectors
    return any(_detects(detector, given.text) for detector in chosen if detector is not None)


def _detects(detector: Detector, text: str) -> bool:
    key = id(detector), text
    known = _VERDICTS.get(key)
    if known is None:
        known = detector, bool(detector.find(text))  # a reference to the detector, so that its id() is not reused
        _VERDICTS.put(key, known)
    return known[1]


def require_clean_schemas(report: Report) -> None:
    """Refuse to send schemas in which a rule matches and that the framework's hook cannot change.

    Raises:
        CheckFailedError: If a rule matches in such a schema.
    """
    if report.observed:
        return
    # the artifact with these texts comes first, and no other artifact has such places
    places = tuple(f"artifacts[0].{name}" for name in ("tools[", "schemas[", "settings.", _INSTRUCTIONS))
    findings = ((check.name, finding) for check in report.checks for finding in check.findings)
    found = [f"{name}: {finding}" for name, finding in findings if finding.path.startswith(places)]
    if found:
        raise CheckFailedError(tuple(found))


Tool = TypeVar("Tool")
Clip: TypeAlias = Callable[[str, Literal["tool", "field"]], str]

TOOLS_SHARE: Final = 0.25
"""Maximum share of the budget for tools that are sent unchanged. See `docs/decisions/0007_constants.md`."""
_WHOLE: Final = 1_000_000
_STEPS: Final = (
    *((_WHOLE, _WHOLE), (1_000, _WHOLE), (500, _WHOLE), (250, _WHOLE), (120, _WHOLE)),
    *((120, 500), (120, 250), (120, 120), (60, 60), (60, 30)),
)
"""Maximum number of characters in the description of a tool and in that of a parameter, for each step of shortening."""
_HOLDERS: Final = (*DECLARATIONS, *WRAPPED, "tools")
_BY_NAME: Final = ("properties", "$defs", "definitions", "defs", "patternProperties", "dependentSchemas")
_OF_OPTIONAL: Final = ("default", "examples", "example")
_VERBATIM: Final = (*_OF_OPTIONAL, "enum", "const", "required")
# Shortened tools, because an agent's tools are the same in every call; as JSON, because a caller may change the result.
_KNOWN: Final[Recent[tuple[str, int, frozenset[str]], str]] = Recent(64)


def shortened_tools(
    tools: Sequence[Tool], budget: int, *, is_private: Callable[[str], bool] = lambda _: False
) -> Sequence[Tool]:
    """Return tools that take at most a quarter of the budget, as far as shorter descriptions can achieve that.

    Args:
        tools: Tool schemas in the format of any API, as dicts or objects. They are not changed.
        budget: Maximum number of tokens in the whole request.
        is_private: Function that returns whether a text must not be shortened because it will be masked: rules might
            not recognize a truncated personal value.

    Returns:
        The tools: `tools` itself if an estimate says that they are small enough. Each tool that needs no shortening is
        the same object as before.
    """
    limit, text = int(TOOLS_SHARE * budget), _as_text(tools)
    if _size(text) <= limit:
        return tools
    said: dict[str, None] = {}
    for tool in tools:
        _shorter(tool, lambda text, _: said.setdefault(text) or text)
    private = frozenset(filter(is_private, said))
    short = json.loads(_KNOWN.get_or_put((text, limit, private), lambda: _fitting(tools, limit, private)))
    return [was if not now or now == fields_of(was) else _like(was, now) for was, now in zip(tools, short, strict=True)]


def tools_of_call(
    tools: Sequence[Tool], stabilizer: Stabilizer, window: int | None, is_private: Callable[[str], bool]
) -> tuple[Sequence[Tool], Mapping[str, object]]:
    """Return the tools to send in a call, and their token counts before and after shortening, for the report.

    The counts are left out if the tools did not change.
    """
    if not stabilizer.shorten_tools or not is_list(tools) or not tools:
        return tools, {}
    budget = stabilizer.budget_for(window, with_headroom=True)
    try:
        sent = shortened_tools(tools, budget, is_private=is_private)
    except (RecursionError, ValueError):  # not valid JSON; the counter will reject it with an error that names the tool
        return tools, {}
    if sent is tools:
        return tools, {}
    before, after = map(stabilizer.counter.tools, (tools, sent))  # type: ignore[arg-type]  # it reads objects, too
    return sent, {"tools": {"tokens_before": before, "tokens_after": after}}


def _like(was: Tool, now: Tool) -> Tool:
    """Return a shortened tool (`now`). If the original tool (`was`) is a pydantic object, so is the result."""
    return was.model_validate(now) if hasattr(was, "model_validate") else now


def _as_text(tools: Iterable[object]) -> str:
    return compact([fields_of(tool) or str(tool) for tool in tools])


@lru_cache(maxsize=64)  # cached, because counting takes 80% of the time of a call whose tools are small
def _size(text: str) -> int:
    return find_counter("estimate").count(text)


def _fitting(tools: Sequence[object], limit: int, private: frozenset[str]) -> str:
    """Return the tools as JSON, shortened by the first of `_STEPS` with which they fit, or by the last."""
    text = ""
    for of_tool, of_field in _STEPS:
        longest = {"tool": of_tool, "field": of_field}

        def clip(said: str, kind: str, longest: Mapping[str, int] = longest) -> str:
            return said if said in private or len(said) <= longest[kind] else clipped(said, longest[kind])

        text = compact([_shorter(tool, clip) for tool in tools])
        if _size(text) <= limit:
            break
    return text


def _shorter(tool: object, clip: Clip) -> dict[str, object]:
    made = fields_of(tool)
    for key, value in made.items():
        if key == "description" and isinstance(value, str):
            made[key] = clip(value, "tool")
        elif key in PARAMETERS:
            made[key] = _shorter_schema(value, clip, made.get("name"))
        elif key in _HOLDERS and (is_list(value) or is_record(value)):
            made[key] = [_shorter(one, clip) for one in value] if is_list(value) else _shorter(value, clip)
    return made


def _shorter_schema(schema: object, clip: Clip, name: object, *, is_optional: bool = False) -> object:
    """Return a shortened JSON schema. The schema of an optional parameter also loses its default and examples.

    Args:
        schema: The JSON schema.
        clip: Function that shortens a description.
        name: The name of the tool or parameter that the schema describes; a title that repeats the name is removed.
        is_optional: Whether the parameter is optional.
    """
    if is_list(schema):
        return [_shorter_schema(one, clip, name, is_optional=is_optional) for one in schema]
    if not is_record(schema):
        return schema
    made: dict[str, object] = {}
    fields = fields_of(schema)
    required = fields.get("required")
    for key, value in fields.items():
        repeats = key == "$schema" or (key == "title" and _letters(value) == _letters(name))
        if (repeats and isinstance(value, str)) or (is_optional and key in _OF_OPTIONAL):
            continue
        made[key] = value
        if key == "description" and isinstance(value, str):
            made[key] = clip(value, "field")
        elif key in _BY_NAME and is_record(value):
            free = {
                one: key == "properties" and not (is_list(required) and one in required) for one in fields_of(value)
            }
            made[key] = {
                one: _shorter_schema(inner, clip, one, is_optional=free[one]) for one, inner in fields_of(value).items()
            }
        elif key not in _VERBATIM:
            made[key] = _shorter_schema(value, clip, name, is_optional=is_optional)
    return made


def _letters(name: object) -> str:
    """Return only the letters and digits of a name, in lower case, so that "Order Id" equals `order_id`."""
    return "".join(filter(str.isalnum, str(name))).casefold()
