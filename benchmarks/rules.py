"""Rules that people set: how many of fifteen standing rules stand whole in the context at the end of a long session.

    python benchmarks/rules.py [--budgets 8000,32000,100000] [--lost]

Fifteen rules are planted in fifteen user turns of each session, evenly over it, one each: at the end of the turn, at its
beginning, or in its middle. A third of them say neither "never" nor "must" nor "always". A rule counts where its whole
text is in the context of the last call. Beside ours are a rolling window and two peers: `trim_messages` of
`langchain_core`, and clearing all tool results but the latest three, each held to the budget by the same counter.

The sessions are recordings where they are there (`recordings.py`): long coding sessions, customer support joined to
one session, and chats. Without them, chats of templates are written, and the table says so.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Iterator
from itertools import chain

from recordings import RECORDINGS

from ctxguard import Artifact, Stabilizer
from ctxguard.harness.pricing import RollingWindow
from ctxguard.tokens import ArtifactCounter, find_counter
from ctxguard_openai import OpenAIAdapter

RULES = (
    "Never touch anything under the folder called legacy-billing.",
    "Amounts are always written with the currency in front, as in EUR 12.50.",
    "You must ask me before you send a message to anybody outside the team.",
    "From now on, keep every answer below two hundred words.",
    "Do not propose a supplier that has no office in Denmark.",
    "Under no circumstances should the nightly export run before eleven.",
    "Every new function needs a test that fails without it.",
    "Only use the staging database for experiments.",
    "Make sure that each list is sorted by last name.",
    "Unless I say otherwise, meetings are at most forty minutes long.",
    # phrased without the usual words
    "I read these answers on a phone, so tables are hard for me.",
    "Dates go in the form year, month, day.",
    "Our customers are addressed by their first name.",
    "Commit messages begin with the number of the ticket.",
    "My sister Ilse decides about anything that costs more than a thousand.",
)
OPENINGS = (
    "Could you look at the {noun} again? It {verb} since this morning.",
    "Here is what I found about the {noun}: it {verb} when the load is high.",
    "What would you do about the {noun}? I think it {verb}.",
    "The {noun} {verb} again, and nobody knows why.",
)
NOUNS = ("importer", "invoice page", "search index", "booking form", "gateway", "report", "mailing", "calendar")
VERBS = ("fails", "is slow", "shows old values", "works for me", "loses rows", "asks twice", "stops at noon")


def planted(messages: list[dict]) -> list[dict]:
    """Return the session with the rules in fifteen of its user turns, evenly spread."""
    end = max(n for n, message in enumerate(messages) if message["role"] == "assistant")
    turns = [n for n, message in enumerate(messages[:end]) if message["role"] == "user" and _text(message) is not None]
    turns = turns[: -max(2, len(turns) // 10)]
    chosen = [turns[int((k + 0.5) * len(turns) / len(RULES))] for k in range(len(RULES))]
    done = list(messages)
    for number, (place, rule) in enumerate(zip(chosen, RULES, strict=True)):
        text = _text(done[place]) or ""
        half = text.find(". ", len(text) // 2) + 1
        told = (
            f"{text}\n\n{rule}",
            f"{rule} {text}",
            f"{text[:half]} {rule} {text[half:]}" if half else f"{text} {rule}",
        )
        done[place] = {**done[place], "content": told[number % 3]}
    return done


def _text(message: dict) -> str | None:
    content = message.get("content")
    return content if isinstance(content, str) and content.strip() else None


def _records(path: str) -> list[dict]:
    with gzip.open(RECORDINGS / path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def sessions() -> Iterator[tuple[str, str, list[dict]]]:
    """Yield the kind, the name, and the messages of each session."""
    if not RECORDINGS.is_dir():
        for seed in range(3):
            yield "templates", f"templates {seed}", templates(seed)
        return
    for record in _records("transcripts_long/pi-mono.jsonl.gz"):
        yield "coding", record["id"], record["messages"]
    support = [r for r in _records("transcripts/tau2-gpt-4.1.jsonl.gz") if not r.get("broken")]
    yield "support", "tau2 joined", _joined(support[:60])
    # In `lifebench`, messages in the user's role are notifications of a phone, so nobody sets rules there.
    for record in _records("memory/goodai-ltm.jsonl.gz")[:2]:
        yield "chat", str(record["id"]), _spoken(record)
    yield (
        "chat",
        "longmemeval joined",
        [m for r in _records("memory/longmemeval-evidence.jsonl.gz") for m in _spoken(r)],
    )


def _spoken(record: dict) -> list[dict]:
    return [{"role": message["role"], "content": message["content"]} for message in record["messages"]]


def _joined(records: list[dict]) -> list[dict]:
    """Join sessions to one: one system prompt, and ids of calls that are told apart."""
    done: list[dict] = records[0]["messages"][:1] if records[0]["messages"][0]["role"] == "system" else []
    for number, record in enumerate(records):
        for message in record["messages"]:
            if message["role"] in ("system", "developer"):
                continue
            own = dict(message)
            if own.get("tool_calls"):
                own["tool_calls"] = [{**call, "id": f"{number}-{call['id']}"} for call in own["tool_calls"]]
            if own.get("tool_call_id"):
                own["tool_call_id"] = f"{number}-{own['tool_call_id']}"
            done.append(own)
    return done


def templates(seed: int, turns: int = 400) -> list[dict]:
    """Return a chat of a person and an assistant, of varied length, without any recording."""
    chance = random.Random(seed)
    messages: list[dict] = [{"role": "system", "content": "You help a small company."}]
    for turn in range(turns):
        sentences = chance.choice((1, 1, 2, 3, 8))
        asked = " ".join(
            chance.choice(OPENINGS).format(noun=chance.choice(NOUNS), verb=chance.choice(VERBS))
            for _ in range(sentences)
        )
        answer = " ".join(f"The {chance.choice(NOUNS)} {chance.choice(VERBS)} in run {turn}-{n}." for n in range(12))
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
    return messages


def contexts(artifacts: list[Artifact], budget: int, count: ArtifactCounter) -> Iterator[tuple[str, str]]:
    """Yield the name of each contestant, and the text of its context before the last reply."""
    end = max(n for n, artifact in enumerate(artifacts) if artifact.kind == "assistant")
    history = artifacts[:end]
    ours = Stabilizer(budget, counter=count.counter, checks=[]).stabilize(history)
    yield "ctxguard", "\n".join(text for artifact in ours.artifacts for _, text in artifact.texts())
    rolling = RollingWindow(history, [count.artifact(a) for a in history], budget - 3).kept(end)
    yield "rolling window", "\n".join(history[n].text for n in rolling or ())
    yield "trim_messages", "\n".join(_trimmed(history, budget, count))
    yield "clear tool results", "\n".join(_cleared(history, budget, count))


def _trimmed(history: list[Artifact], budget: int, count: ArtifactCounter) -> list[str]:
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, trim_messages

    kinds = {"system": SystemMessage, "user": HumanMessage}
    messages = [kinds.get(a.kind.value, AIMessage)(a.text, id=str(n)) for n, a in enumerate(history)]
    cost = lambda many: sum(count.artifact(history[int(m.id)]) for m in many)  # noqa: E731
    kept = trim_messages(messages, max_tokens=budget, token_counter=cost, strategy="last", include_system=True)
    return [str(message.content) for message in kept]


def _cleared(history: list[Artifact], budget: int, count: ArtifactCounter) -> list[str]:
    """Clear all tool results but the latest three, then drop the oldest messages until the rest fits."""
    tools = [n for n, artifact in enumerate(history) if artifact.kind == "tool"]
    cleared = set(tools[:-3])
    texts = ["[cleared]" if n in cleared else artifact.text for n, artifact in enumerate(history)]
    sizes = [8 if n in cleared else count.artifact(artifact) for n, artifact in enumerate(history)]
    first, total = 0, sum(sizes)
    while total > budget and first < len(sizes) - 1:
        total -= sizes[first]
        first += 1
    return texts[first:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budgets", default="8000,32000,100000")
    parser.add_argument("--lost", action="store_true", help="also list the rules that ours lost")
    options = parser.parse_args()
    budgets = [int(each) for each in options.budgets.split(",")]
    count, adapter = ArtifactCounter(find_counter("o200k_base")), OpenAIAdapter()
    rows: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for kind, name, messages in sessions():
        artifacts = adapter.read(planted(messages))
        for budget in budgets:
            for who, text in contexts(artifacts, budget, count):
                held = [rule in text for rule in RULES]
                rows.setdefault((who, budget), []).append((kind, sum(held)))
                if options.lost and who == "ctxguard":
                    print(f"{name} at {budget:,}: lost {[n for n, there in enumerate(held) if not there]}")
    kinds = list(dict.fromkeys(kind for kind, _ in chain.from_iterable(rows.values())))
    print("rules of 15 that stand whole at the end | " + " | ".join(f"{b:,}" for b in budgets))
    for who in dict.fromkeys(who for who, _ in rows):
        cells = []
        for budget in budgets:
            of = rows[who, budget]
            by_kind = " / ".join(f"{_mean([n for k, n in of if k == kind]):.0f}" for kind in kinds)
            cells.append(f"{_mean([n for _, n in of]):.1f} ({by_kind})")
        print(f"{who} | " + " | ".join(cells))
    print(f"in brackets: {' / '.join(kinds)}; {len(of)} sessions")


def _mean(numbers: list[int]) -> float:
    return sum(numbers) / max(1, len(numbers))


if __name__ == "__main__":
    main()
