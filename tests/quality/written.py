"""Twelve small sessions of all kinds, invented for the golden files, in the formats of five APIs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

Tool = tuple[str, dict[str, object], str]
Said = tuple[str, object]
"""`("user", text)`, `("model", text)`, or `("tools", [(name, arguments, output), …])`."""


def lines(count: int, make: Callable[[int], str]) -> str:
    return "\n".join(map(make, range(1, count + 1)))


# -- what is said


def coding_agent() -> list[Said]:
    """Reads, edits, reads again, and tests; the first read of a file is stale after its edit."""

    def source(version: int) -> str:
        return lines(
            24,
            lambda n: (
                f"def ferry_{n}(deck: Deck) -> int:\n    return deck.load_{n} * {version if n == 7 else 1}  # row {n}"
            ),
        )

    said: list[Said] = [
        ("user", "Fix the failing test of src/ferry/loading.py. Never touch src/ferry/schema.py: it is generated.")
    ]
    said.append(("tools", [("list_files", {"path": "src/ferry"}, "loading.py\nschema.py\nrouting.py\ntides.py")]))
    said.append(("tools", [("read_file", {"path": "src/ferry/loading.py"}, source(1))]))
    failed = (
        "FAILED tests/test_loading.py::test_deck_seven - AssertionError: assert 12 == 24\n1 failed, 31 passed in 2.14s"
    )
    said.append(("tools", [("run", {"command": "pytest -q tests/test_loading.py"}, failed)]))
    edit = {"path": "src/ferry/loading.py", "old": "return deck.load_7 * 1", "new": "return deck.load_7 * 2"}
    said.append(("tools", [("edit_file", edit, "edited: 1 replacement")]))
    said.append(("tools", [("read_file", {"path": "src/ferry/loading.py"}, source(2))]))
    for name in ("routing", "tides"):
        text = lines(20, lambda n, name=name: f"{name.upper()}_{n} = {n * 37}  # table {name}, column {n % 5}")
        said.append(("tools", [("read_file", {"path": f"src/ferry/{name}.py"}, text)]))
    error = "ERROR:\nNo replacement was made: 'TIDES_9 = 334' does not appear in src/ferry/tides.py"
    said.append(("tools", [("edit_file", {"path": "src/ferry/tides.py", "old": "TIDES_9 = 334", "new": "x"}, error)]))
    said.append(("tools", [("run", {"command": "pytest -q"}, "32 passed in 3.02s")]))
    said += [
        ("model", "All 32 tests pass; deck seven counts double now."),
        ("user", "Which file did you change?"),
        ("model", "loading.py."),
    ]
    return said


def browser_agent() -> list[Said]:
    """Walks pages whose snapshots are long; only the last one matters for the next click."""
    said: list[Said] = [
        ("user", "Book the cheapest berth on the night ferry to Osterholm for two people, window side.")
    ]
    for page, action in enumerate(("open", "click", "fill", "click", "click", "scroll"), 1):
        rows = lines(
            16, lambda n, page=page: f"[{page}{n:02}] link 'Berth {page}-{n}, deck {n % 4}, {40 + n * page} crowns'"
        )
        arguments = {"ref": f"{page}07", "text": "2 adults"} if action == "fill" else {"ref": f"{page}07"}
        said.append(
            (
                "tools",
                [(action, arguments, f"page: Osterholm Line, step {page} of 6\n{rows}\n[{page}99] button 'Next'")],
            )
        )
    said += [
        ("model", "The cheapest window berth costs 46 crowns; shall I book it?"),
        ("user", "Yes."),
        ("model", "Booked."),
    ]
    return said


def support_chat() -> list[Said]:
    """A support chat with look-ups and personal data; the address is corrected in the middle."""
    said: list[Said] = [("user", "Hello!"), ("model", "Hello, how can I help?")]
    said.append(
        (
            "user",
            "My parcel SL-20881 has not arrived. I am mara.lind@example.org, please always answer in one sentence.",
        )
    )
    for n, name in enumerate(("find_order", "trace", "find_depot", "find_customer"), 1):
        rows = {
            "scans": [{"day": d, "hub": f"Hub {d}{n}", "state": "sorted" if d < 6 else "held"} for d in range(1, 9)]
        }
        said.append(
            (
                "tools",
                [
                    (
                        name,
                        {"id": "SL-20881", "part": n},
                        json.dumps({"order": "SL-20881", "mail": "mara.lind@example.org", **rows}),
                    )
                ],
            )
        )
        said.append(("model", f"Step {n} is done, the parcel is held at Hub 8{n}."))
        said.append(
            (
                "user",
                (
                    "Deliver it to the harbor office, not to my home.",
                    "And after noon.",
                    "How long will it take?",
                    "Thank you, send it.",
                )[n - 1],
            )
        )
    said.append(("model", "It will be at the harbor office tomorrow after noon."))
    return said


def data_analysis() -> list[Said]:
    """Queries whose results are tables, with a decision about a column in between."""
    said: list[Said] = [
        ("user", "Find out why the catch of the Brisling fleet fell in March. Report in tons, not in crates.")
    ]
    for n in range(1, 7):
        table = "boat,week,crates,tons,port\n" + lines(
            14, lambda r, n=n: f"B{n}{r:02},{r % 5 + 9},{r * n * 3},{r * n * 0.04:.2f},{'Varn' if r % 2 else 'Eker'}"
        )
        said.append(("tools", [("query", {"sql": f"select * from landings where batch = {n} order by week"}, table)]))
        if n == 3:
            said += [
                ("model", "Weeks 9 to 13 are complete."),
                ("user", "Leave out port Eker from now on: its scale was broken."),
            ]
    said += [
        ("model", "Without Eker the catch fell by 18% in week 12."),
        ("user", "Write the summary."),
        ("model", "Summary written."),
    ]
    return said


def parallel_tools() -> list[Said]:
    """Many calls at once, again and again."""
    said: list[Said] = [("user", "Compare the weather of all six stations for each day of this week.")]
    for day in range(1, 6):
        said.append(
            (
                "tools",
                [
                    (
                        "weather",
                        {"station": s, "day": day},
                        f"station {s}, day {day}: "
                        + "; ".join(f"{h}:00 {h + day - 9} degrees, wind {h % 7}" for h in range(0, 24, 3)),
                    )
                    for s in ("Aln", "Bor", "Cys", "Dov", "Elm", "Fyr")
                ],
            )
        )
    said += [
        ("model", "Cys was the calmest station on four of five days."),
        ("user", "And the windiest?"),
        ("model", "Fyr."),
    ]
    return said


def multilingual() -> list[Said]:
    """Standing instructions in several languages, spread over a long talk."""
    said: list[Said] = []
    orders = {
        0: "Plane mit mir das Sommerfest. Niemals Nüsse: zwei Gäste sind allergisch.",
        2: "À partir de maintenant, réponds toujours en une phrase.",
        4: "A partir de ahora usa siempre coronas, nunca euros.",
        6: "D'ora in poi la cena comincia alle sette e mezza, non alle otto.",
    }
    for n in range(12):
        said.append(("user", orders.get(n, f"Was ist mit Punkt {n} auf der Liste?")))
        said.append(
            (
                "model",
                f"Punkt {n}: "
                + " ".join(
                    f"Der Stand {n}.{k} braucht {k + 2} Tische und {k * n + 1} Bänke am Ufer." for k in range(1, 8)
                ),
            )
        )
    return said


def long_outputs() -> list[Said]:
    """Outputs that are large against the budget, one of them larger than all of it."""
    said: list[Said] = [("user", "Read the logbooks and tell me when the pump of lock 3 began to fail.")]
    for n, size in enumerate((30, 45, 160, 25, 20), 1):
        text = lines(
            size,
            lambda r, n=n: (
                f"{n:02}:{r % 60:02} lock 3 pump pressure {r * n % 17}.{r % 10} bar, valve {'open' if r % 3 else 'shut'}"
            ),
        )
        said.append(("tools", [("read_log", {"book": n}, text)]))
    said += [
        ("model", "It began in book 3, at pressure 0."),
        ("user", "Quote the line."),
        ("model", "The line says 0.0 bar."),
    ]
    return said


def many_corrections() -> list[Said]:
    """Decisions that are reversed, some of them twice; only the last word holds."""
    said: list[Said] = [("user", "Let us lay out the herb garden, bed by bed.")]
    words = (
        "Bed 1 gets sage.",
        "Bed 2 gets lovage.",
        "Correction: bed 1 gets thyme, not sage.",
        "Bed 3 stays empty.",
        "Bed 2 gets mint instead of lovage.",
        "No, bed 1 gets sage after all.",
        "Bed 3 gets chives now.",
        "The paths must be gravel, never bark.",
        "What about water?",
        "And the fence?",
        "And the gate?",
        "Sum it up.",
    )
    for n, text in enumerate(words):
        said.append(("user", text) if n else ("model", "Gladly; which herbs do you want?"))
        if n:
            said.append(
                (
                    "model",
                    " ".join(
                        f"Noted for step {n}: row {k} lies {k * 30} cm from the wall and {n * 10} cm deep."
                        for k in range(1, 8)
                    ),
                )
            )
    return [*said[:2], ("user", words[0]), ("model", "Bed 1: sage."), *said[2:]]


def operations() -> list[Said]:
    """An operations agent: failures with reasons, identifiers that must not be touched, a loop of the same call."""
    said: list[Said] = [
        ("user", "Bring the queue of relay north-4 down. Process 4417 must not be killed before 22:00.")
    ]
    for n in range(1, 5):
        log = lines(
            12,
            lambda r, n=n: (
                f"20:{n}{r % 10} relay north-4 {'ERROR lock wait timeout, pid 43' + str(r) if r % 5 == 0 else 'INFO moved ' + str(r * n) + ' jobs'}"
            ),
        )
        said.append(("tools", [("tail", {"unit": "north-4"}, log)]))
        said.append(
            (
                "tools",
                [
                    (
                        "restart",
                        {"unit": f"worker-{n}"},
                        "ok" if n % 2 else "ERROR\npermission denied: worker-2 is pinned by operator",
                    )
                ],
            )
        )
    said += [("tools", [("queue_size", {}, "118")])] * 4
    said += [
        ("model", "The queue fell from 960 to 118."),
        ("user", "Go on."),
        ("model", "I wait for 22:00 before process 4417."),
    ]
    return said


def research() -> list[Said]:
    """Searches and pages of prose, with a finding that is used much later."""
    said: list[Said] = [("user", "Who built the first tide mill of Harrow Sound, and when? Name your source.")]
    for n in range(1, 7):
        prose = " ".join(
            f"In the year {1600 + n * 20 + k} the parish of Harrow paid {k * n} marks for timber of the {'mill' if k % 2 else 'weir'} number {k}."
            for k in range(1, 12)
        )
        found = " The first wheel was set by Aldous Merrin in 1642 (folio 88)." if n == 2 else ""
        said.append(("tools", [("search", {"words": f"tide mill Harrow page {n}"}, f"Result {n}: {prose}{found}")]))
    said += [
        ("model", "I have read six pages."),
        ("user", "So who was it?"),
        ("model", "Aldous Merrin, in 1642, by folio 88."),
    ]
    return said


def long_talk() -> list[Said]:
    """A conversation without tools that comes back to what was said at its beginning."""
    said: list[Said] = [
        ("user", "My boat is called Wren of Tolsta and has a draft of 1.4 meters. Let us plan a cruise."),
        ("model", "Lovely; where to?"),
    ]
    for n in range(1, 11):
        said.append(("user", f"Tell me about harbor number {n}."))
        said.append(
            (
                "model",
                " ".join(
                    f"Harbor {n} has {k * 3} berths on pier {k}, shops within {k * 100} meters, and a view of island {k}."
                    for k in range(1, 8)
                ),
            )
        )
    return [
        *said,
        ("user", "Which of them is too shallow for my boat, with its draft?"),
        ("model", "None: Wren of Tolsta draws 1.4 meters."),
    ]


def duplicates() -> list[Said]:
    """The same file and the same query read over and over, with small steps in between."""
    text = lines(22, lambda n: f"clause {n}: the keeper of lamp {n} reports to pier {n % 4} before the {n}th bell")
    said: list[Said] = [("user", "Check the lamp charter, clause by clause.")]
    for n in range(1, 7):
        said.append(("tools", [("read_file", {"path": "charter.txt"}, text)]))
        said.append(("tools", [("note", {"clause": n, "text": f"clause {n} is consistent"}, "saved")]))
    return [
        *said,
        ("model", "Six clauses are checked."),
        ("user", "And clause 7?"),
        ("model", "It is consistent, too."),
    ]


# -- the formats


def chat(system: str, said: Sequence[Said]) -> object:
    messages: list[dict[str, object]] = [{"role": "system", "content": system}]
    for n, (who, what) in enumerate(said):
        if who != "tools":
            messages.append({"role": "user" if who == "user" else "assistant", "content": what})
            continue
        calls = [
            {"id": f"c{n}_{k}", "type": "function", "function": {"name": name, "arguments": json.dumps(a)}}
            for k, (name, a, _) in enumerate(what)
        ]  # type: ignore[arg-type]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": f"c{n}_{k}", "content": out} for k, (*_, out) in enumerate(what)]  # type: ignore[arg-type]
    return {"messages": messages}


def responses(system: str, said: Sequence[Said]) -> object:
    items: list[dict[str, object]] = []
    for n, (who, what) in enumerate(said):
        if who != "tools":
            items.append({"role": "user" if who == "user" else "assistant", "content": what})
            continue
        items += [
            {"type": "function_call", "call_id": f"c{n}_{k}", "name": name, "arguments": json.dumps(a)}
            for k, (name, a, _) in enumerate(what)
        ]  # type: ignore[arg-type]
        items += [
            {"type": "function_call_output", "call_id": f"c{n}_{k}", "output": out} for k, (*_, out) in enumerate(what)
        ]  # type: ignore[arg-type]
    return {"instructions": system, "input": items}


def anthropic(system: str, said: Sequence[Said]) -> object:
    messages: list[dict[str, object]] = []
    for n, (who, what) in enumerate(said):
        if who != "tools":
            messages.append({"role": "user" if who == "user" else "assistant", "content": what})
            continue
        messages.append(
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": f"c{n}_{k}", "name": name, "input": a}
                    for k, (name, a, _) in enumerate(what)
                ],
            }
        )  # type: ignore[arg-type]
        messages.append(
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": f"c{n}_{k}", "content": out}
                    for k, (*_, out) in enumerate(what)
                ],
            }
        )  # type: ignore[arg-type]
    return {"system": system, "messages": messages}


def gemini(system: str, said: Sequence[Said]) -> object:
    contents: list[dict[str, object]] = []
    for who, what in said:
        if who != "tools":
            contents.append({"role": "user" if who == "user" else "model", "parts": [{"text": what}]})
            continue
        contents.append(
            {"role": "model", "parts": [{"functionCall": {"name": name, "args": a}} for name, a, _ in what]}
        )  # type: ignore[attr-defined]
        contents.append(
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": name, "response": {"result": out}}} for name, _, out in what],
            }
        )  # type: ignore[attr-defined]
    return {"systemInstruction": {"parts": [{"text": system}]}, "contents": contents}


def converse(system: str, said: Sequence[Said]) -> object:
    messages: list[dict[str, object]] = []
    for n, (who, what) in enumerate(said):
        if who != "tools":
            messages.append({"role": "user" if who == "user" else "assistant", "content": [{"text": what}]})
            continue
        messages.append(
            {
                "role": "assistant",
                "content": [
                    {"toolUse": {"toolUseId": f"c{n}_{k}", "name": name, "input": a}}
                    for k, (name, a, _) in enumerate(what)
                ],
            }
        )  # type: ignore[arg-type]
        messages.append(
            {
                "role": "user",
                "content": [
                    {"toolResult": {"toolUseId": f"c{n}_{k}", "content": [{"text": out}]}}
                    for k, (*_, out) in enumerate(what)
                ],
            }
        )  # type: ignore[arg-type]
    return {"system": [{"text": system}], "messages": messages}


SESSIONS: dict[str, tuple[Callable[[], list[Said]], Callable[[str, Sequence[Said]], object], int]] = {
    "coding_agent": (coding_agent, chat, 1_200),
    "browser_agent": (browser_agent, chat, 1_000),
    "support_chat": (support_chat, chat, 700),
    "data_analysis": (data_analysis, anthropic, 900),
    "parallel_tools": (parallel_tools, responses, 1_500),
    "multilingual": (multilingual, chat, 1_000),
    "long_outputs": (long_outputs, gemini, 1_500),
    "many_corrections": (many_corrections, anthropic, 900),
    "operations": (operations, anthropic, 700),
    "research": (research, converse, 900),
    "long_talk": (long_talk, responses, 1_000),
    "duplicates": (duplicates, gemini, 1_000),
}
"""What is said, the format, and the budget in tokens."""


def record(name: str) -> object:
    """Return a session as it would have been recorded."""
    said, write, _ = SESSIONS[name]
    return write("You are a careful assistant. Answer briefly.", said())
