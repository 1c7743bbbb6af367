"""Compare our token counts with the input tokens that providers reported for recorded requests."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ctxguard.errors import ConfigError, CtxguardError
from ctxguard.formats.format import Api
from ctxguard.formats.registry import APIS, detect_api, find_format
from ctxguard.formats.requests import RequestCount, count_request
from ctxguard.tokens.families import family_of
from ctxguard.tokens.schemas import server_tool_of


@dataclass(frozen=True, slots=True)
class Usage:
    """One recorded request, and the input tokens that the provider reported for it.

    Attributes:
        api: API of the request.
        model: Model that answered.
        request: Body of the request as it was sent.
        input_tokens: Reported number of input tokens, including cached tokens.
        provider: Name of the provider; empty if the record does not name it.
    """

    api: Api
    model: str
    request: Mapping[str, object]
    input_tokens: int
    provider: str = ""

    @property
    def family(self) -> str:
        """Name of the model's family."""
        return family_of(self.model).name

    @property
    def kin(self) -> str:
        """Name of the group of families that share cost figures with the model's family."""
        return family_of(self.model).kin or self.family

    @property
    def feature(self) -> str:
        """The feature that makes the request hardest to count: `server tools`, `media`, `tools`, or else `plain`."""
        read = find_format(self.api).sent(self.request)
        if any(server_tool_of(tool) is not None for tool in read.tools):
            return "server tools"
        contents = (artifact.content for artifact in read.artifacts)
        parts = (part for content in contents if not isinstance(content, str) for part in content)
        if any(part.media is not None and part.media.kind != "sealed" for part in parts):
            return "media"
        return "tools" if read.tools or read.brought else "plain"


@dataclass(frozen=True, slots=True)
class Compared:
    """Our token count of a recorded request, and the reported one."""

    usage: Usage
    counted: RequestCount

    @property
    def off(self) -> int:
        """Number of tokens by which our count is too high; negative if it is too low."""
        return self.counted.tokens - self.usage.input_tokens

    def is_within(self, share: float, tokens: int) -> bool:
        """Return whether our count is off by at most this share, or by at most this number of tokens."""
        return abs(self.off) <= max(tokens, share * self.usage.input_tokens)

    @property
    def is_under(self) -> bool:
        """Whether our count is too low by more than 5% and 20 tokens."""
        return -self.off > max(20, 0.05 * self.usage.input_tokens)

    @property
    def exceeds(self) -> bool:
        """Whether the provider reported more tokens than our count and its margin."""
        return -self.off > self.counted.margin


@dataclass(frozen=True, slots=True)
class Errors:
    """The errors of the counts for a group of requests. `requests` is a number, `total` a ratio; the others are shares.

    Attributes:
        requests: Number of requests in the group.
        within_3: Share of counts that are off by at most 3% or 8 tokens.
        within_5: Share of counts that are off by at most 5% or 30 tokens.
        within_10: Share of counts that are off by at most 10% or 10 tokens.
        under: Share of counts that are too low by more than 5% and 20 tokens.
        exceeded: Share of requests whose reported tokens exceed our count and its margin.
        total: Sum of our counts, divided by the sum of the reported counts.
    """

    requests: int
    within_3: float
    within_5: float
    within_10: float
    under: float
    exceeded: float
    total: float

    @classmethod
    def of(cls, rows: list[Compared]) -> Errors:
        """Compute the errors of a group, which must not be empty."""
        count = len(rows)

        def share(holds: Iterable[bool]) -> float:
            return sum(holds) / count

        return cls(
            requests=count,
            within_3=share(row.is_within(0.03, 8) for row in rows),
            within_5=share(row.is_within(0.05, 30) for row in rows),
            within_10=share(row.is_within(0.10, 10) for row in rows),
            under=share(row.is_under for row in rows),
            exceeded=share(row.exceeds for row in rows),
            total=sum(row.counted.tokens for row in rows) / max(1, sum(row.usage.input_tokens for row in rows)),
        )


def compared(usages: Iterable[Usage], *, counter: str = "auto") -> list[Compared]:
    """Count the tokens of recorded requests, and return each count with the reported one."""
    return [
        Compared(usage, count_request(usage.request, api=usage.api, model=usage.model, counter=counter))
        for usage in usages
    ]


def grouped(rows: Iterable[Compared]) -> dict[tuple[str, str, str], list[Compared]]:
    """Group requests by API, family, and feature, in alphabetical order."""
    groups: defaultdict[tuple[str, str, str], list[Compared]] = defaultdict(list)
    for row in rows:
        groups[row.usage.api, row.usage.family, row.usage.feature].append(row)
    return dict(sorted(groups.items()))


_REQUEST: Final = ("request", "body")
_TOKENS: Final = ("input_tokens", "prompt_tokens", "reported")


def usages_in(lines: Iterable[str], name: str, *, model: str | None = None) -> Iterator[Usage]:
    """Yield the recorded requests in the lines of a JSONL file.

    A record has the `request` (or `body`) and the reported `input_tokens` (or `prompt_tokens`), including cached
    tokens. If known, it also has the `api` (or `kind`) and the `model`.

    Args:
        lines: Lines of the file.
        name: Name of the file, for errors.
        model: Model of the records that name none.

    Raises:
        CtxguardError: If a line is not such a record.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _usage(line, f"{name}:{number}", model)


def _usage(line: str, place: str, model: str | None) -> Usage:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CtxguardError(f"{place} is not JSON: {error}") from None
    if not isinstance(record, Mapping):
        raise CtxguardError(f"{place} is not a record with 'request' and 'input_tokens'")
    request = next((record[key] for key in _REQUEST if isinstance(record.get(key), Mapping)), None)
    tokens = next((record[key] for key in _TOKENS if isinstance(record.get(key), int)), None)
    if request is None or tokens is None:
        raise CtxguardError(f"{place} has no 'request' with the 'input_tokens' that were reported for it")
    named = record.get("model") or request.get("model") or model
    if not isinstance(named, str):
        raise ConfigError(f"{place} names no model; give --model", setting="model")
    api = record.get("api") or record.get("kind")
    return Usage(api if api in APIS else detect_api(request), named, request, tokens, str(record.get("provider") or ""))
