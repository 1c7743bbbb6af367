"""How far off our counts are from what providers reported, on recorded requests.

`python benchmarks/usage.py` prints the tables of docs/tokens.md; `--measured` prints the table `measured` of
`ctxguard/data/models.toml`. It reads `../shared/data/usage`, or the folder that it is given.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise
from pathlib import Path

from left_out import left_out_table, recordings
from recordings import RECORDINGS

from ctxguard.artifacts import Artifact, Kind, ToolCall
from ctxguard.formats.registry import find_format
from ctxguard.formats.usage import Compared, Errors, Usage, compared, grouped, usages_in
from ctxguard.tokens import ArtifactCounter, find_counter
from ctxguard.tokens.artifact_counter import Calibration
from ctxguard.tokens.families import FAMILIES, Margin, Measured, margin_of

DATA = RECORDINGS / "usage"
LEAST = {True: 0.02, False: 0.06}
"""The least share that is kept free, for families with a vocabulary of their own and without."""
MOST = 0.15
LONG = {"claude-4": 0.17}
"""The least share for families whose long requests were recorded. 80 coding sessions of 20,000 to 45,000 tokens grew 1.094
times as much as we count, a tenth of them less than 1.03 and a tenth more than 1.15; of a spread like that, 95 of 100
are below 1.17. `long_requests` prints how many of the recorded requests such a share covers."""
LONG_FROM = 10_000
"""Tokens from which on a request is long."""
SOURCE = re.compile(r"[0-9a-f]{8}(?=-)")
"""The id of a session in the path of its file; its subagents are below it."""
LENGTHS = (500, 1_000, 2_000, 5_000, 10_000, 20_000, 40_000, math.inf)
"""Reported tokens up to which prompts are compared."""
WINDOW = 200_000
STEP_CALL = re.compile(r"^(\w+) (\{.*\})$", re.DOTALL)


def is_countable(row: Compared) -> bool:
    """Tell whether all of a request can be counted: no media, no tools of the provider, nothing stored there."""
    return row.usage.feature in ("plain", "tools") and not row.counted.uncounted


def measured(rows: list[Compared]) -> dict[str, Measured]:
    """Return the entries of `MEASURED`, by the families that share their figures.

    The margin is what covers 98% of a family's requests, the largest outlier of fifty left out: flat what nine of ten
    are short by, at least 10 tokens; the rest as a share of what was counted. Where long requests were recorded, it
    also covers 95% of these.
    """
    own = {family.kin or family.name: family.own_vocabulary for family in FAMILIES}
    groups: defaultdict[str, list[Compared]] = defaultdict(list)
    for row in filter(is_countable, rows):
        groups[row.usage.kin].append(row)
    found = {}
    for name in sorted(groups.keys() & own.keys()):
        group = groups[name]
        short = sorted(-row.off for row in group)
        flat = max(10, 10 * math.ceil(short[math.ceil(0.9 * len(short)) - 1] / 10))
        rest = sorted((-row.off - flat) / row.counted.tokens for row in group)
        share = min(MOST, max(LEAST[own[name]], rest[math.ceil(0.98 * len(rest)) - 1]))
        share = max(share, LONG.get(name, 0))
        found[name] = Measured(
            requests=len(group),
            within=round(sum(row.is_within(0.05, 10) for row in group) / len(group), 2),
            under=round(sum(row.is_under for row in group) / len(group), 2),
            bias=round(Errors.of(group).total, 3),
            margin=Margin(math.ceil(share * 100) / 100, flat),
        )
    return found


def percent(share: float) -> str:
    return f"{share:.0%}"


def is_openai(row: Compared) -> bool:
    return row.usage.api in ("chat", "responses") and row.usage.kin in ("gpt-4o", "gpt-5")


def is_anthropic(row: Compared) -> bool:
    return row.usage.api == "anthropic"


def goals(rows: list[Compared]) -> None:
    """Print the share of requests for which each goal of the count holds."""
    plain = [row for row in rows if row.usage.feature in ("plain", "tools")]
    countable = [row for row in rows if is_countable(row)]
    others = [row for row in countable if not is_openai(row) and not is_anthropic(row)]
    servers = [row for row in rows if row.usage.feature == "server tools"]
    openai = [row for row in countable if is_openai(row)]
    anthropic = [row for row in countable if is_anthropic(row)]
    asked: list[tuple[str, list[Compared], Callable[[Compared], object]]] = [
        ("OpenAI Chat Completions, within 3% or 8 tokens", api_of(openai, "chat"), lambda row: row.is_within(0.03, 8)),
        ("OpenAI Responses, within 3% or 8 tokens", api_of(openai, "responses"), lambda row: row.is_within(0.03, 8)),
        ("OpenAI, too low by more than 5% and 20 tokens", openai, lambda row: row.is_under),
        ("Anthropic, within 5% or 30 tokens", anthropic, lambda row: row.is_within(0.05, 30)),
        ("Anthropic, too low by more than 5% and 20 tokens", anthropic, lambda row: row.is_under),
        ("Gemini, Mistral and the others, within 10% or 10 tokens", others, lambda row: row.is_within(0.1, 10)),
        (
            "all of these, where the provider reported more than our count and its margin",
            countable,
            lambda row: row.exceeds,
        ),
        ("the same, with the requests in which something is `uncounted`", plain, lambda row: row.exceeds),
        ("tools of the provider, within 25%", servers, lambda row: row.is_within(0.25, 0)),
        ("tools of the provider, within 25% or with something `uncounted`", servers, is_near_or_said),
    ]
    print("| goal | requests | share |")
    print("|---|---|---|")
    for goal, group, holds in asked:
        print(f"| {goal} | {len(group)} | {sum(bool(holds(row)) for row in group) / len(group):.1%} |")


def api_of(rows: list[Compared], api: str) -> list[Compared]:
    return [row for row in rows if row.usage.api == api]


def is_near_or_said(row: Compared) -> bool:
    return row.is_within(0.25, 0) or bool(row.counted.uncounted)


def is_near_and_said(row: Compared) -> tuple[bool, bool]:
    return row.is_within(0.25, 0), bool(row.counted.uncounted)


def table(rows: list[Compared]) -> None:
    print(
        "| API | family | requests | within 3% or 8 | within 5% or 30 | within 10% or 10 | within 25% | under | exceeded | uncounted | sum |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for (api, family, feature), members in grouped(rows).items():
        errors = Errors.of(members)
        near, said = (sum(holds) / len(members) for holds in zip(*map(is_near_and_said, members), strict=True))
        shares = (errors.within_3, errors.within_5, errors.within_10, near, errors.under, errors.exceeded, said)
        cells = " | ".join(map(percent, shares))
        print(f"| {api} | {family}, {feature} | {errors.requests} | {cells} | {errors.total:.2f} |")


def grown(texts: list[str], count: ArtifactCounter) -> int:
    """Return our count of the texts by which a coding agent's prompt grew: calls, then their results."""
    found = [(text, STEP_CALL.match(text)) for text in texts]
    calls = tuple(ToolCall(match[1], match[2]) for _, match in found if match)
    rest = [text for text, match in found if not match]
    results, said = rest[len(rest) - len(calls) :], rest[: len(rest) - len(calls)]
    artifacts = [Artifact(Kind.TOOL, text) for text in results]
    if calls or said:
        artifacts.append(Artifact(Kind.ASSISTANT, "\n".join(said), calls=calls))
    return count.artifacts(artifacts)


def growth(path: Path) -> None:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        steps = [json.loads(line) for line in lines]
    counts = [grown(step["texts"], ArtifactCounter(find_counter(model=step["model"]))) for step in steps]
    shares = sorted(count / step["grew_by"] for count, step in zip(counts, steps, strict=True))
    total = sum(counts) / sum(step["grew_by"] for step in steps)
    within = sum(abs(share - 1) <= 0.15 for share in shares) / len(shares)
    above = sum(share > 1.15 for share in shares)
    low, median, high = (shares[int(len(shares) * q)] for q in (0.1, 0.5, 0.9))
    print(
        f"\nGrowth of a coding agent's prompt (Claude, {len(steps)} steps): {total:.2f} in the sum, "
        f"{within:.0%} of steps within 15%; 10th percentile {low:.2f}, median {median:.2f}, 90th {high:.2f}; "
        f"steps counted too high by more than 15%: {above}"
    )


def sessions_of(path: Path) -> dict[tuple[str, str], list[tuple[int, int]]]:
    """Return what each session had grown by, call after call: our count, and the reported tokens."""
    sessions: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for step in map(json.loads, lines):
            held = sessions[step["path"], step["model"]]
            counted, reported = held[-1] if held else (0, 0)
            count = ArtifactCounter(find_counter(model=step["model"]))
            held.append((counted + grown(step["texts"], count), reported + step["grew_by"]))
    return sessions


Count = tuple[int, int]
"""Tokens of a prompt: our count, and the reported ones."""


def answered_before(rows: list[Compared]) -> Iterator[tuple[Count, Count]]:
    """Yield the recorded requests that continue another one, after the longest that they continue."""
    known: dict[int, Count] = {}
    for row in rows:
        usage, form = row.usage, find_format(row.usage.api)
        held = usage.request.get(form.history)
        fixed = {key: usage.request.get(key) for key in (*form.taken, *form.system, *form.billed)}
        beginnings = [hash(json.dumps([usage.model, usage.provider, fixed], sort_keys=True))]
        for member in held if isinstance(held, list) else [held]:
            beginnings.append(hash((beginnings[-1], json.dumps(member, sort_keys=True))))
        count = (row.counted.tokens, usage.input_tokens)
        before = next((known[one] for one in reversed(beginnings[:-1]) if one in known), None)
        known[beginnings[-1]] = count
        if before is not None and min(before) > 0 and is_countable(row):
            yield before, count


def anchored(prompts: Iterable[tuple[Count, Count]]) -> None:
    """Print by how much counts err, and where the answer before anchors them: by a factor, or by what was added since."""
    errors: defaultdict[float, list[tuple[float, ...]]] = defaultdict(list)
    for before, (counted, reported) in prompts:
        # as the window of a guard does it
        factor = Calibration().with_comparison(before[1], before[0], WINDOW).correction
        estimates = (counted, counted * factor, before[1] + counted - before[0])
        length = next(most for most in LENGTHS if reported < most)
        errors[length].append(tuple(abs(estimate / reported - 1) for estimate in estimates))
    print("\n| reported tokens, up to | requests | error of our count | with the factor | as growth |")
    print("|---|---|---|---|---|")
    for length, found in sorted(errors.items()):
        means = " | ".join(f"{sum(values) / len(found):.1%}" for values in zip(*found, strict=True))
        print(f"| {f'{length:,} tokens' if length < math.inf else 'any length'} | {len(found)} | {means} |")


def long_requests(path: Path) -> None:
    """Print how much a share of what we count covers of long requests: what each session had grown by, call after call.

    The sessions with their subagents are the sources: the share that 95% of the requests of one need is tried on the others.
    """
    sessions = sessions_of(path)
    sources: defaultdict[str, list[float]] = defaultdict(list)
    for (name, _), held in sessions.items():
        found = SOURCE.search(name)
        short = [reported / counted - 1 for counted, reported in held if reported >= LONG_FROM]
        sources[found[0] if found else name] += short
    shipped = margin_of(find_counter(model="claude-sonnet-4-5")).share
    columns = ("requests", "margin that covers 95% of them", "share of the other session that it covers")
    print(
        f"\n| session (Claude 4), from {LONG_FROM:,} tokens on | {' | '.join(columns)} | share that {shipped:.0%} covers |"
    )
    print("|---|---|---|---|---|")
    for name, short in sources.items():
        needed = sorted(short)[math.ceil(0.95 * len(short)) - 1]
        others = [value for other, held in sources.items() if other != name for value in held]
        cells = f"{needed:.1%} | {percent(covered(others, needed))} | {percent(covered(short, shipped))}"
        print(f"| {name} | {len(short)} | {cells} |")


def covered(values: list[float], share: float) -> float:
    return sum(value <= share for value in values) / len(values) if values else 1.0


def read_usage(path: Path) -> list[Usage]:
    """Return the recorded requests of a gzipped JSONL file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return list(usages_in(lines, path.name))


def main() -> None:
    folder = next((Path(argument) for argument in sys.argv[1:] if not argument.startswith("-")), DATA)
    if not (folder / "requests.jsonl.gz").exists():
        sys.exit(f"no recorded requests in {folder}: name the folder that holds requests.jsonl.gz")
    rows = compared(read_usage(folder / "requests.jsonl.gz"))
    if "--measured" in sys.argv:
        for name, entry in measured(rows).items():
            figures = f"requests = {entry.requests}, within = {entry.within:g}, under = {entry.under:g}, bias = {entry.bias:g}"
            margin = f"{{ share = {entry.margin.share:g}, flat = {entry.margin.flat} }}"
            print(f'"{name}" = {{ {figures}, margin = {margin} }}')
        return
    goals(rows)
    print()
    named = zip(rows, recordings(folder / "requests.jsonl.gz"), strict=True)
    left_out_table([(row, name) for row, name in named if is_countable(row)])
    print()
    table(rows)
    if (folder / "growth.jsonl.gz").exists():
        growth(folder / "growth.jsonl.gz")
        long_requests(folder / "growth.jsonl.gz")
        grew = chain.from_iterable(map(pairwise, sessions_of(folder / "growth.jsonl.gz").values()))
        anchored([*answered_before(rows), *grew])


if __name__ == "__main__":
    main()
