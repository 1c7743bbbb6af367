"""Which model belongs to which family, and what that family charges: the table of facts in `data/models.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

from ctxguard.errors import ConfigError
from ctxguard.tokens.costs import Costs, Pages, SchemaCosts, ToolCosts

FACTS: Final[Mapping[str, Any]] = tomllib.loads(
    files("ctxguard").joinpath("data/models.toml").read_text(encoding="utf-8")
)
"""The table as it is written."""


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """A family of models, with the facts for counting.

    Attributes:
        name: the family's name in reports.
        models: matches the beginning of the plain names of its models.
        costs: its token costs besides the text.
        encoding: the vocabulary with which its texts are counted.
        scale: tokens of the family for each token of that vocabulary; 1.0 if it is the family's own.
        own_vocabulary: whether `encoding` is the family's own.
        kin: name of the group of families that share its figures, and whose recorded requests determine their error;
            None if it shares none.
        inherits: the family whose figures are used, if none of its own requests were recorded.
    """

    name: str
    models: str
    costs: Costs
    encoding: str = "o200k_base"
    scale: float = 1.0
    own_vocabulary: bool = False
    kin: str | None = None
    inherits: str | None = None


@lru_cache(maxsize=64)
def _costs(name: str) -> Costs:
    """Return costs of the table by their name, on top of those that they are like."""
    own: dict[str, Any] = dict(FACTS["costs"][name])
    like = _costs(own.pop("like")) if "like" in own else Costs()
    for part, kind in (("schema", SchemaCosts), ("pages", Pages)):
        if part in own:
            own[part] = kind(**own[part])
    if "tools" in own:
        own["tools"] = _tools(own["tools"])
    if "image_scale" in own:
        own["image_scale"] = tuple(own["image_scale"])
    return replace(like, **own)


def _tools(own: Mapping[str, Any]) -> ToolCosts:
    if "like" not in own:
        return ToolCosts(**own)
    like = _costs(own["like"]).tools
    rest = {name: value for name, value in own.items() if name != "like"}
    return replace(like, **{**rest, "server": {**like.server, **rest.get("server", {})}})


GENERIC: Final = _costs("generic")
"""Where no model is named."""
ANY_CLAUDE: Final = _costs("claude")
"""Where no model is named and tools come in Anthropic's form."""
*FAMILIES, UNKNOWN = (Family(**{**own, "costs": _costs(own["costs"])}) for own in FACTS["family"])
_PATTERNS: Final = tuple((re.compile(family.models), family) for family in FAMILIES)


def plain_name(model: str) -> str:
    """Return the name of a model without provider, router and region: `anthropic/claude-…`, `us.openai.gpt-…:0`."""
    name = model.lower().rpartition("/")[2]
    found = _MODEL_WORD.search(name)
    return name[found.start() :].partition(":")[0] if found else name


_MODEL_WORD: Final = re.compile(
    r"(?<![a-z])(chatgpt|gpt|o\d|claude|gemini|mistral|magistral|pixtral|codestral|devstral|ministral|open-mi|llama"
    r"|qwen|qwq|nova|command|c4ai|deepseek|zai-glm|glm|computer-use|codex)"
)


def family_of(model: str) -> Family:
    """Return the family of a model by its name; `UNKNOWN` if no family matches.

    Raises:
        ConfigError: `model` is not a name.
    """
    if not isinstance(model, str):
        raise ConfigError(f"model is the name of a model, not {model!r}", setting="model")
    return _family(model)


@lru_cache(maxsize=256)
def _family(model: str) -> Family:
    name = plain_name(model)
    return next((family for pattern, family in _PATTERNS if pattern.match(name)), UNKNOWN)
