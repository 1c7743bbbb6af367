"""The table of facts: which model belongs to which family, and what that family charges.

Each figure names its source: a page that publishes it, or "fitted", with the number of recorded requests whose
reported input tokens it was fitted on. How far off the families' counts are is measured by `benchmarks/usage.py` and
stands in `docs/tokens.md`. A model that no pattern names takes the costs of `UNKNOWN` and the report says so.

Pages, as of November 2026:
    [cookbook] OpenAI cookbook, "How to count tokens with tiktoken"
    [oai-images] OpenAI, "Images and vision", calculating costs
    [tool-use] Anthropic, "Tool use pricing and tokens"
    [counting] Anthropic, "Token counting": the tokenizer of Opus 4.7 and later gives about 30% more tokens
    [vision] Anthropic, "Vision": width * height / 750
    [pdf] Anthropic, "PDF support": 1,500 to 3,000 tokens a page of text, and the page as an image
    [helper] openai-messages-token-helper, `tests/functions.py`: counts of single functions, verified with OpenAI
    [harmony] OpenAI, the Harmony response format: channels, namespaces and defaults as gpt-oss and its kin see them
    [cohere] Cohere, the chat templates of Command R+ and Command A as published with their weights
    [gemini] Google, "Understand and count tokens", and "Media resolution" for Gemini 3
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from ctxguard.errors import ConfigError
from ctxguard.tokens.costs import TEKKEN, Costs, Pages, SchemaCosts, ToolCosts


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Hold what is known of a family of models.

    Attributes:
        name: what reports call it.
        models: matches the beginning of the plain names of its models.
        encoding: the vocabulary that its texts are counted with.
        scale: tokens of the family for each token of that vocabulary; 1.0 where it is the family's own.
        costs: what it charges beside the text.
        own_vocabulary: whether `encoding` is the family's own.
        kin: name of the families that share its figures, and whose recorded requests tell how far off they are; None
            means that it stands alone.
        inherits: the family whose figures stand in for its own, where none of its requests were recorded.
    """

    name: str
    models: str
    encoding: str
    costs: Costs
    scale: float = 1.0
    own_vocabulary: bool = False
    kin: str | None = None
    inherits: str | None = None


GENERIC: Final = Costs(call=3, call_names=0, tools=ToolCosts(each=7))
"""Where no model is named: the framing of OpenAI's cookbook, 3 tokens a message, its role, 3 for the reply."""

_GPT_4O: Final = Costs(  # fitted: 52 requests of gpt-4o and gpt-4.1; framing [cookbook], with a system prompt [helper]
    parallel=8,
    document=20,
    empty_system=223,
    sealed=0.139,
    sealed_from=830,
    tools=ToolCosts(
        rendering="typescript",
        once=5,
        once_flat=0,
        beside_system=-4,
        each=-2,
        server={"web_search": 290, "file_search": 840, "computer": 500},
    ),
    schema=SchemaCosts(once=2, share=0.85),
    pages=Pages(each=215),  # fitted: 10 requests; text and an image of each page
    audio=10,
)
_REASONING: Final = replace(  # fitted: 93 requests of gpt-5 to gpt-5.6, o3 and o4-mini; channels [harmony]
    _GPT_4O,
    reply=2,
    channel=2,
    call=11,
    empty_system=0,
    parallel=0,
    tools=ToolCosts(
        rendering="typescript",
        once=85,
        once_flat=3,
        late=88,
        search=14,
        namespace=2,
        beside_system_flat=2,
        each=-1,
        server={"tool_search": 550, "code_interpreter": 1_320, "web_search": 9_300, "mcp": 1_100},
    ),
    image_scale=(70, 140),  # [oai-images]
    pages=Pages(each=215),
)
_PATCHES_MINI: Final = replace(_REASONING, image="patches", image_scale=(1.62,))  # [oai-images]
_PATCHES_NANO: Final = replace(_REASONING, image="patches", image_scale=(2.46,))  # [oai-images]
_CLAUDE: Final = Costs(  # fitted: 54 requests of Claude 4 to 4.6
    reply=3,
    message=4,
    system=3,
    result=20,
    call=34,
    call_names=0,
    name=0,
    thinking=29,
    document=38,
    sealed=0.1875,
    tools=ToolCosts(
        once=492,
        once_forced=585,
        server={
            "tool_search_tool": 190,
            "bash_": 245,  # [tool-use], as for the next two
            "text_editor_": 700,
            "computer_": 735,
            "web_search": 2_200,
            "web_fetch": 5_000,
            "code_execution": 4_600,
            "advisor": 2_300,
        },
    ),
    schema=SchemaCosts(once=125, share=1.25),
    image="area",
    image_scale=(750, 1_568, 1_600),  # [vision]
    pages=Pages(each=1_590, characters=4.0),  # fitted: 6 requests; [pdf] has 1,500 to 3,000 a page
)
_CLAUDE_NEW: Final = replace(  # fitted: 12 requests of Opus 4.7 and later; the rest is inherited from Claude 4
    _CLAUDE,
    call=22,
    tools=replace(_CLAUDE.tools, once=385, once_forced=475, server={**_CLAUDE.tools.server, "tool_search_tool": 270}),
    image_scale=(750, 2_576, 4_784),
)
_CLAUDE_3: Final = replace(_CLAUDE, tools=ToolCosts(once=346, once_forced=313))  # [tool-use]
_GEMINI: Final = Costs(  # fitted: 155 requests of Gemini 2.0 to 3.6
    reply=0,
    message=0,
    system=0,
    result=4,
    quotes_results=True,
    call=10,
    call_names=1,
    name=0,
    sealed=0.0,
    tools=ToolCosts(share=0.72, once=3, once_forced=12, server={"": 0}),
    schema=SchemaCosts(share=0),
    image="gemini",
    image_scale=(258, 258),  # [gemini]
    pages=Pages(each=258, characters=0),  # [gemini]
    audio=32,  # [gemini]
    video=263,  # [gemini]
)
_GEMINI_2_0: Final = replace(
    _GEMINI, result=0, call=0, call_names=0, tools=ToolCosts(rendering="words", share=0.8, server={"": 0})
)
_GEMINI_3: Final = replace(
    _GEMINI,
    result=-6,  # the punctuation of its JSON costs nothing
    call=0,
    call_names=0,
    sealed=0.21,
    tools=ToolCosts(
        rendering="sparse", share=0.97, server={"codeExecution": 240, "googleSearch": 90, "fileSearch": 88, "": 0}
    ),
    image_scale=(1_090, 0),  # [gemini], media resolution
    pages=Pages(each=540, characters=0),
    video=70,
)
_MISTRAL: Final = Costs(  # fitted: 13 requests; the framing is mistral-common's
    reply=1,
    message=2,
    system=2,
    result=3,
    call=3,
    call_names=1,
    name=0,
    tools=ToolCosts(once=3, each=11),
    image="patches",
    image_scale=(0.2,),
    pages=Pages(each=900),
)
_HARMONY: Final = replace(  # fitted: 8 requests of gpt-oss: its own system prompt with the date
    _REASONING, reply=67, tools=ToolCosts(rendering="typescript", once=12), schema=SchemaCosts(once=60)
)
_LLAMA_3: Final = Costs(reply=30, message=5, system=5, tools=ToolCosts(once=200, seen_if_none=False))
_LLAMA_4: Final = replace(_LLAMA_3, reply=4, tools=ToolCosts(once=655, seen_if_none=False))
_QWEN: Final = Costs(reply=3, message=5, system=5, tools=ToolCosts(once=130))
_DEEPSEEK: Final = Costs(reply=1, message=2, system=1, tools=ToolCosts())
_DEEPSEEK_4: Final = replace(_DEEPSEEK, reply=74, tools=ToolCosts(once=230))
_GLM: Final = Costs(reply=3, message=3, system=3, tools=ToolCosts(once=120), schema=SchemaCosts(share=0))
_GLM_5: Final = replace(_GLM, reply=9)
_COMMAND: Final = Costs(  # [cohere]: tokens that open and end a turn and name its role, and the text's own borders
    reply=4, message=5, system=5, result=12, call=14, tools=ToolCosts(rendering="json", once=160)
)
ANY_CLAUDE: Final = _CLAUDE
"""Where no model is named and tools come in Anthropic's form."""
UNKNOWN: Final = Family("unknown", "", "o200k_base", Costs(), scale=1.1, inherits="OpenAI")


def _openai(name: str, models: str, costs: Costs, *, kin: str, encoding: str = "o200k_base") -> Family:
    return Family(name, models, encoding, costs, own_vocabulary=True, kin=kin)


_BIG_MINI: Final = replace(_GPT_4O, image_scale=(2_833, 5_667))  # [oai-images]
_GPT_4_1_MINI: Final = replace(_GPT_4O, image="patches", image_scale=(1.62,))  # [oai-images]
_GPT_4_1_NANO: Final = replace(_GPT_4O, image="patches", image_scale=(2.46,))  # [oai-images]
_O_SERIES: Final = replace(_REASONING, image_scale=(75, 150))  # [oai-images]
FAMILIES: Final = (
    _openai("gpt-oss", r"gpt-oss", _HARMONY, kin="gpt-oss"),
    _openai("gpt-4o-search", r"gpt-4o-search", _REASONING, kin="gpt-4o"),
    _openai("gpt-4o-mini", r"gpt-4o-mini", _BIG_MINI, kin="gpt-4o"),
    _openai("gpt-4o", r"gpt-4o|chatgpt-4o|gpt-4\.5|gpt-realtime", _GPT_4O, kin="gpt-4o"),
    _openai("gpt-4.1-mini", r"gpt-4\.1-mini", _GPT_4_1_MINI, kin="gpt-4o"),
    _openai("gpt-4.1-nano", r"gpt-4\.1-nano", _GPT_4_1_NANO, kin="gpt-4o"),
    _openai("gpt-4.1", r"gpt-4\.1", _GPT_4O, kin="gpt-4o"),
    _openai("gpt-5-mini", r"gpt-5[.\d]*-mini|o4-mini", _PATCHES_MINI, kin="gpt-5"),
    _openai("gpt-5-nano", r"gpt-5[.\d]*-nano", _PATCHES_NANO, kin="gpt-5"),
    _openai("gpt-5", r"gpt-5|computer-use|codex", _REASONING, kin="gpt-5"),
    _openai("o-series", r"o\d", _O_SERIES, kin="gpt-5"),
    _openai("gpt-4", r"gpt-4|gpt-3\.5|gpt-35", _GPT_4O, kin="gpt-4o", encoding="cl100k_base"),
    Family("claude-3", r"claude-(3|2|instant)", "o200k_base", _CLAUDE_3, scale=1.16, inherits="claude-4"),
    Family(
        "claude-4",
        r"claude-(opus-|sonnet-|haiku-)?4([.-][0-6](?!\d)|-\d{6,}|$|-[a-z])",
        "o200k_base",
        _CLAUDE,
        scale=1.16,
    ),
    Family("claude-4.7", r"claude", "o200k_base", _CLAUDE_NEW, scale=1.45),
    Family("gemini-2.0", r"gemini-(1|2\.0)", "o200k_base", _GEMINI_2_0),
    Family("gemini-2.5", r"gemini-2", "o200k_base", _GEMINI),
    Family("gemini-3", r"gemini", "o200k_base", _GEMINI_3),
    Family(
        "mistral",
        r"(mistral|magistral|pixtral|codestral|devstral|ministral|open-mi)",
        TEKKEN,
        _MISTRAL,
        own_vocabulary=True,
    ),
    Family("llama-4", r"(meta-)?llama-?4", "o200k_base", _LLAMA_4),
    Family("llama-3", r"(meta-)?llama", "o200k_base", _LLAMA_3),
    Family("qwen", r"qw(en|q)", "o200k_base", _QWEN),
    Family("command", r"command|c4ai", "o200k_base", _COMMAND, scale=1.05, inherits="OpenAI"),
    Family("nova", r"nova", "o200k_base", Costs(), scale=1.1, inherits="OpenAI"),
    Family("deepseek-4", r"deepseek-(v?[4-9])", "o200k_base", _DEEPSEEK_4),
    Family("deepseek", r"deepseek", "o200k_base", _DEEPSEEK),
    Family("glm-5", r"glm-[5-9]", "o200k_base", _GLM_5),
    Family("glm", r"(zai-)?glm", "o200k_base", _GLM),
)
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
    """Return the family of a model by its name; `UNKNOWN` where no family knows it.

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
