"""Render tools as the model sees them, so that their tokens can be counted.

OpenAI shows functions as TypeScript declarations in namespaces (see `num_tokens_for_tools` in its cookbook, and the
Harmony format of the open gpt-oss models). Other providers show approximately the JSON that was sent.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ctxguard.errors import ConfigError

Native = Mapping[str, object]
PARAMETERS: Final = (
    "parameters",
    "input_schema",
    "parameters_json_schema",
    "parametersJsonSchema",
    "inputSchema",
    "args_schema",
)
DECLARATIONS: Final = ("functionDeclarations", "function_declarations")
WRAPPED: Final = ("function", "custom", "toolSpec")
"""Keys under which a tool contains its function in Chat Completions and in Bedrock Converse."""
_RUN_BY_CLIENT: Final = ("bash_", "text_editor_", "computer_2", "memory_")
"""Type prefixes of tools that Anthropic defines and the client runs. They add the same hidden prompt as functions."""
_MOST_NESTED: Final = 8  # maximum number of nesting levels of a schema that are rendered
FUNCTIONS: Final = "functions"
"""The namespace of functions that name no other namespace."""


@dataclass(frozen=True, slots=True)
class Function:
    """One function that a tool of any API declares.

    Attributes:
        name: Name of the function.
        description: Description of the function.
        parameters: JSON Schema of the arguments.
        deferred: Whether the model sees the function only after a tool search has found it (`defer_loading`).
        is_flat: Whether the function is not inside a key `function`, as in the Responses API.
        namespace: Namespace of the function, which only OpenAI's models see.
        about: Description of the namespace.
    """

    name: str
    description: str
    parameters: Native
    deferred: bool = False
    is_flat: bool = False
    namespace: str = FUNCTIONS
    about: str = ""


def sent_tools(tools: object) -> list[Native]:
    """Return tools as the dicts that are sent.

    Raises:
        ConfigError: If `tools` is not a list, or an item is not a schema or cannot be written as JSON.
    """
    if not tools:
        return []
    if isinstance(tools, (str, Mapping)) or not isinstance(tools, Iterable):
        raise ConfigError(f"tools are a list of schemas, not {type(tools).__name__}", setting="tools")
    return [_as_sent(tool, number) for number, tool in enumerate(tools)]


def _as_sent(tool: object, number: int) -> Native:
    if not isinstance(tool, type):
        if isinstance(tool, Mapping):
            _ensure_json(tool, number)
            return tool
        if hasattr(tool, "model_dump"):
            sent = tool.model_dump(exclude_none=True)
            return sent if isinstance(sent, Mapping) else {}
    given = getattr(tool, "__name__", type(tool).__name__)
    raise ConfigError(f"tools[{number}] is a schema, a dict as it is sent, not {given}", setting="tools")


def _ensure_json(tool: Native, number: int) -> None:
    try:
        compact(tool)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"tools[{number}] cannot be written as JSON: {error}", setting="tools") from None


def functions_of(tool: Native) -> Iterator[Function]:
    """Yield the functions that a tool of any API declares; a tool that the provider itself runs declares none."""
    declared = next((tool[key] for key in DECLARATIONS if key in tool), None)
    if declared is None and tool.get("type") == "namespace":
        declared = tool.get("tools")
    if isinstance(declared, list):
        namespace = str(tool.get("name")) if tool.get("type") == "namespace" else FUNCTIONS
        about = str(tool.get("description") or "")
        for function in declared:
            if isinstance(function, Mapping):
                yield replace(_function(function, is_flat=True, namespace=namespace), about=about)
    elif inner := next((tool[key] for key in WRAPPED if isinstance(tool.get(key), Mapping)), None):
        yield _function(inner, is_flat=False)  # type: ignore[arg-type]  # the condition ensures a mapping
    elif tool and ((kind := server_tool_of(tool)) is None or kind.startswith(_RUN_BY_CLIENT)):
        namespace = "tool_search" if tool.get("type") == "tool_search" else FUNCTIONS
        is_flat = tool.get("type") in ("function", "custom", "tool_search")
        yield _function(tool, is_flat=is_flat, namespace=namespace)


def is_any_deferred(tools: Iterable[Native], loaded: Container[str] = ()) -> bool:
    """Return whether a tool search can still find a function; otherwise the search tool itself is not sent."""
    functions = (function for tool in tools for function in functions_of(tool))
    return any(function.deferred and function.name not in loaded for function in functions)


def _function(native: Native, *, is_flat: bool, namespace: str = FUNCTIONS) -> Function:
    parameters = next((value for key in PARAMETERS if isinstance(value := native.get(key), Mapping)), {})
    inner = parameters.get("json")
    return Function(
        str(native.get("name") or native.get("type") or ""),
        "\n".join([str(native.get("description") or ""), *_grammar(native.get("format"))]).strip(),
        inner if isinstance(inner, Mapping) and len(parameters) == 1 else parameters,  # Converse nests it once more
        deferred=native.get("defer_loading") is True,
        is_flat=is_flat,
        namespace=namespace,
    )


def _grammar(form: object) -> Iterator[str]:
    """Yield the grammar for the input of a custom tool, in the format of either of OpenAI's APIs."""
    if isinstance(form, Mapping):
        if isinstance(definition := form.get("definition"), str):
            yield definition
        yield from _grammar(form.get("grammar"))


def server_tool_of(tool: Native) -> str | None:
    """Return the type of a tool that the provider defines, such as `web_search`; None for a user's function."""
    kind = tool.get("type")
    if kind == "tool_search" and "parameters" in tool:  # run by the client, so a function to the model
        return None
    if isinstance(kind, str) and kind not in ("function", "custom", "namespace", "object"):
        return kind
    if "name" in tool or any(key in tool for key in (*WRAPPED, *DECLARATIONS)):
        return None
    return next(iter(tool), None) if len(tool) == 1 and "type" not in tool else None


def as_typescript(functions: Sequence[Function]) -> str:
    """Render functions as OpenAI's models see them: as declarations in TypeScript namespaces."""
    spaces: dict[str, list[Function]] = {}
    for function in functions:
        spaces.setdefault(function.namespace, []).append(function)
    return "\n\n".join(["# Tools", *(_namespace(name, inside) for name, inside in spaces.items())])


def _namespace(name: str, functions: Sequence[Function]) -> str:
    about = f"{_comment(functions[0].about)}\n" if functions[0].about else ""
    body = "\n\n".join(map(_declaration, functions))
    return f"## {name}\n\n{about}namespace {name} {{\n\n{body}\n\n}} // namespace {name}"


def _declaration(function: Function) -> str:
    schema = function.parameters
    definitions = schema.get("$defs") or schema.get("definitions")
    fields = _fields(schema, definitions if isinstance(definitions, Mapping) else {}, 0)
    lines = [_comment(function.description)] if function.description else []
    if not fields:
        return "\n".join([*lines, f"type {function.name} = () => any;"])
    about = schema.get("description")
    opened = f"(_: {_comment(about)}\n{{" if isinstance(about, str) and about else "(_: {"
    return "\n".join([*lines, f"type {function.name} = {opened}", *fields, "}) => any;"])


def _comment(text: object) -> str:
    """Render a text as comment lines. Indentation is left out, because the API removes it."""
    return "\n".join(f"// {line.strip()}".rstrip() for line in str(text).splitlines())


def _fields(schema: Native, definitions: Native, depth: int) -> list[str]:
    properties = schema.get("properties")
    required = schema.get("required")
    names = required if isinstance(required, list) else []
    lines: list[str] = []
    for name, field in properties.items() if isinstance(properties, Mapping) else ():
        if not isinstance(field, Mapping):
            continue
        if field.get("description"):
            lines.append(_comment(field["description"]))
        default = f" // default: {compact(field['default'])}" if "default" in field else ""
        mark = "" if name in names else "?"
        lines.append(f"{name}{mark}: {_type(field, definitions, depth)},{default}")
    return lines


def _type(schema: object, definitions: Native, depth: int) -> str:
    """Render a JSON Schema as a TypeScript type; `any` if there is no corresponding type."""
    if not isinstance(schema, Mapping) or depth > _MOST_NESTED:
        return "any"
    if isinstance(reference := schema.get("$ref"), str):
        return _type(definitions.get(reference.rpartition("/")[2]), definitions, depth + 1)
    choices = _choices(schema)
    if choices is not None:
        return " | ".join(_type(choice, definitions, depth + 1) for choice in choices)
    if isinstance(values := schema.get("enum", [schema["const"]] if "const" in schema else None), list):
        return " | ".join(map(compact, values))
    return _plain_type(schema, definitions, depth)


def _choices(schema: Native) -> list[object] | None:
    """Return the alternatives of a JSON Schema; None if it has no alternatives."""
    for key in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(key), list):
            return choices
    kinds = schema.get("type")
    return [{**schema, "type": kind} for kind in kinds] if isinstance(kinds, list) else None


def _plain_type(schema: Native, definitions: Native, depth: int) -> str:
    kind = schema.get("type")
    if kind == "array":
        return f"{_type(schema.get('items'), definitions, depth + 1)}[]"
    if kind == "object" and (fields := _fields(schema, definitions, depth + 1)):
        return "\n".join(["{", *fields, "}"])
    return "number" if kind in ("integer", "number") else str(kind or "any")


def as_json(function: Function, *, is_sparse: bool = False) -> str:
    """Render a function as JSON; with `is_sparse`, leave out `parameters` if the function has none."""
    shown: dict[str, object] = {"name": function.name, "description": function.description}
    if function.parameters.get("properties") or not is_sparse:
        shown["parameters"] = function.parameters
    return json.dumps(shown, ensure_ascii=False, default=str)


def as_words(function: Function) -> str:
    """Render a function as bare words, one per line: its name, description, and the names and types of its fields."""
    return "\n".join([function.name, function.description, *_words(function.parameters)])


_SAID: Final = ("type", "description", "default", "const", "format")


def _words(schema: object) -> Iterator[str]:
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            if key == "properties" and isinstance(value, Mapping):
                for name, field in value.items():
                    yield str(name)
                    yield from _words(field)
            elif key in _SAID and not isinstance(value, (Mapping, list)):
                yield str(value)
            elif key in ("required", "enum") and isinstance(value, list):
                yield from map(str, value)
            else:
                yield from _words(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _words(value)


_BRINGING_IN: Final = (
    "web_search",
    "web_fetch",
    "file_search",
    "code_",
    "mcp",
    "computer",
    "openrouter:",
    "google",
    "url",
    "fileSearch",
    "codeExecution",
    "image_generation",
    "advisor",
    "x_search",
    "tool_search",
)


def brings_in(kind: str) -> bool:
    """Return whether a tool of the provider adds its results to the same request."""
    return kind.startswith(_BRINGING_IN)


def compact(value: object) -> str:
    """Return a value as JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def fields_of(value: object) -> dict[str, object]:
    """Return the fields of a dict or a pydantic object as a new dict, which is empty for anything else."""
    if isinstance(value, Mapping):
        return dict(value)
    return value.model_dump(exclude_unset=True) if hasattr(value, "model_dump") else {}
