"""Judge what a policy keeps of recorded sessions, by both judges, beside a rolling window.

    python benchmarks/quality.py FOLDER_OR_FILE... --budget 4k,8k,32k

*support*, *gain* (needs the extra `gain`), *newest*, *prefix*, and *bill* are the columns of `ctxguard bench`, by its code:
over the calls whose history exceeds the budget. With `--calls N`, support and gain judge at most N of a session, so that
long sessions weigh no more than others; then they differ from those of `ctxguard bench`, which judges each. *names* is
support without its context. *prefix all* and *bill all* are over all calls of the sessions that exceed the budget, those
before it is exceeded as well. `ctxguard.harness.gain` and `ctxguard.harness.fidelity` say what each can and cannot see.
Bits, needs and rolling windows are kept on disk from one run to the next.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pickle
import random
import sqlite3
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

from compare import half_of, interval

HERE = Path(__file__).resolve().parents[1]
INVENTED, BASELINE = "invented", "rolling window"
VERSION = "1"  # of what is kept on disk


@dataclass(slots=True)
class Call:
    """Hold what one arm sent at one model call of a session that exceeds the budget."""

    arm: str
    budget: int
    source: str
    session: str
    end: int
    price: float = 0.0
    sent: int = 0
    is_pressed: bool = False
    is_refused: bool = False
    is_over: bool = False
    is_cut: bool = False
    extends: bool | None = None
    keeps: bool | None = None
    newest_sent: int = 0
    newest_fits: int = 0
    support: float | None = None
    in_context: float | None = None
    floor: int = 0
    whole: int = 0
    bits: int | None = None


class Disk:
    """Keep what was worked out, by the content it was worked out from."""

    def __init__(self, path: str) -> None:
        self._db = sqlite3.connect(path, timeout=60, isolation_level=None)
        self._db.execute("pragma journal_mode=wal")
        self._db.execute("create table if not exists known (key blob primary key, value blob)")

    def __call__(self, make, *key):
        name = hashlib.blake2b(repr((VERSION, *key)).encode(), digest_size=16).digest()
        row = self._db.execute("select value from known where key = ?", (name,)).fetchone()
        if row is not None:
            return pickle.loads(row[0])
        made = make()
        self._db.execute("insert or replace into known values (?, ?)", (name, pickle.dumps(made)))
        return made


def digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class Track:
    """One session, made ready for every arm and budget."""

    def __init__(self, source: str, session, arguments, disk: Disk) -> None:
        from ctxguard.harness.fidelity import Fidelity
        from ctxguard.harness.gain import Compressor
        from ctxguard.harness.replay import Recorded
        from ctxguard.pii import STANDARD, Masker
        from ctxguard.tokens import ArtifactCounter, find_counter
        from ctxguard.tokens.artifact_counter import REPLY_TOKENS

        self.source, self.session, self.arguments, self.disk = source, session, arguments, disk
        recorded = Recorded(session)
        self.artifacts, self.ends = recorded.artifacts, recorded.ends
        self.count = ArtifactCounter(find_counter(arguments.counter))
        self.tools = None if arguments.no_tools else session.tools
        self.beside = self.count.tools(self.tools) + REPLY_TOKENS
        self.tokens = [self.count.artifact(a) for a in self.artifacts]
        self.before = [self.beside]
        for n in self.tokens:
            self.before.append(self.before[-1] + n)
        self.fidelity = Fidelity(mask=Masker(STANDARD).mask)
        self.compressor = None if arguments.no_gain else Compressor()
        self.key = digest(repr([(a.kind, a.text, [(c.name, c.arguments) for c in a.calls]) for a in self.artifacts]))
        self.needs_known: dict[int, list] = {}

    def bits(self, context, end: int) -> int:
        from ctxguard.harness.gain import priming, rendered

        key = ("bits", digest(priming().decode()), digest(rendered(context)), self.key, end)
        return self.disk(lambda: self.compressor.bits(context, self.artifacts[end]), *key)

    def needs(self, end: int):
        if end not in self.needs_known:
            make = lambda: self.fidelity.needs(self.artifacts[:end], self.artifacts[end])  # noqa: E731
            self.needs_known[end] = self.disk(make, "needs", self.key, end)
        return self.needs_known[end]

    def pressed(self, budget: int) -> list[int]:
        return [end for end in self.ends if self.before[end] > budget]

    def judged(self, budget: int) -> set[int]:
        """Return the calls under pressure that are judged by bits and names: each of them, or some, evenly spread."""
        calls = self.pressed(budget)[:: self.arguments.every]
        most = self.arguments.calls
        if most and len(calls) > most:
            calls = [calls[int((n + 0.5) * len(calls) / most)] for n in range(most)]
        return set(calls)

    def call(self, arm: str, budget: int, end: int, context, previous, judged: set[int]) -> Call:
        from ctxguard.harness.gain import floor, newest_exchange, newest_sent
        from ctxguard.harness.pricing import PriceModel, common_prefix

        call = Call(arm, budget, self.source, self.session.id, end)
        call.is_pressed = self.before[end] > budget
        if context is None:
            call.is_refused = True
            return call
        call.sent = self.beside + self.count.artifacts(context)
        call.is_over = call.sent > budget
        same = common_prefix(previous, context) if previous else 0
        if previous:
            call.extends, call.keeps = same == len(previous), same >= newest_exchange(previous)
        shared = self.beside + self.count.artifacts(context[:same]) if previous else 0
        call.price = PriceModel().price(call.sent, shared)
        history = self.artifacts[:end]
        call.newest_sent, call.newest_fits = newest_sent(history, context, budget - self.beside, self.count)
        if end in judged:
            if needs := self.needs(end):
                support = self.fidelity.support(needs, context)
                call.support, call.in_context = support.plain, support.with_context
            least = floor(history)
            if self.compressor is not None and self.beside + self.count.artifacts(least) <= budget:
                call.floor, call.whole = self.bits(least, end), self.bits(history, end)
                call.bits = self.bits(context, end)
        return call

    def rolling(self, budget: int) -> list[Call]:
        def play() -> list[Call]:
            from ctxguard.harness.pricing import RollingWindow

            window = RollingWindow(self.artifacts, self.tokens, budget - self.beside)
            judged = self.judged(budget)
            calls, previous = [], None
            for end in self.ends:
                kept = window.kept(end)
                context = None if kept is None else [self.artifacts[n] for n in kept]
                calls.append(self.call("rolling", budget, end, context, previous, judged))
                previous = context
            return calls

        a = self.arguments
        return self.disk(
            play, "rolling", self.source, self.session.id, self.key, budget, self.beside, a.every, a.calls, a.no_gain
        )

    def ours(self, arm: str, make, budget: int) -> Iterator[Call]:
        from ctxguard.adapting.adapter import with_adapter_stages
        from ctxguard.errors import BudgetExceededError
        from ctxguard.tokens.artifact_counter import REPLY_TOKENS

        chain = with_adapter_stages(make(budget), self.session.adapter)
        running = chain.session(tools=self.tools, overhead=REPLY_TOKENS)
        judged, done, previous = self.judged(budget), 0, None
        for end in self.ends:
            running.extend(self.artifacts[done:end])
            done, report = end, None
            try:
                made = running.context()
                context, report = list(made.artifacts), made.report
            except BudgetExceededError:
                context = None
            call = self.call(arm, budget, end, context, previous, judged)
            call.is_cut = report is not None and report.cut is not None and report.cut.fresh
            previous = context
            yield call


def parsed(text: str) -> dict[str, object]:
    """Return settings such as `policy=chat,trail=0.1,target=0.7`."""
    found = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def maker(settings: dict[str, object], counter: str):
    from ctxguard.stabilizer import Stabilizer

    rest = {name: value for name, value in settings.items() if name != "policy"}
    policy = settings.get("policy")

    def make(budget: int):
        kept = {"checks": [], "counter": counter, **rest}
        return Stabilizer(budget, **kept) if policy is None else Stabilizer.from_policy(policy, budget, **kept)

    return make


def invented(arguments) -> Iterator[object]:
    """Walk every third of the invented sessions, where they are asked for."""
    from invented import SESSIONS, session

    from ctxguard.harness.recordings import Recording

    for seed in range(0, SESSIONS if INVENTED in arguments.sessions else 0, 3):
        data = json.dumps({"id": f"{seed}", "messages": session(seed)[0]}).encode()
        yield Recording(INVENTED, seed + 1, seed, data)


def facts_held(arguments) -> dict[str, float]:
    """Return what `benchmarks/invented.py` finds of the default policy, in the columns of its table."""
    from invented import SESSIONS, figures, play

    given = argparse.Namespace(only=[BASELINE], set=None, sessions=SESSIONS, counter=arguments.counter, budget=4_000)
    rows = figures(play(given))
    for arm in ("default", BASELINE):
        print(
            f"facts that hold, 4,000, {arm}: " + ", ".join(f"{name} {share:.2f}" for name, share in rows[arm].items())
        )
    return rows["default"]


def sessions_of(arguments) -> Iterator[tuple[str, object, int]]:
    from ctxguard.harness.recordings import Skipped, open_session, recordings

    taken: dict[str, int] = defaultdict(int)
    for recording in chain(invented(arguments), recordings(name for name in arguments.sessions if name != INVENTED)):
        source = Path(getattr(recording, "path", "")).name.split(".")[0]
        if arguments.source and not any(name in source for name in arguments.source):
            continue
        session = recording if isinstance(recording, Skipped) else open_session(recording)
        if isinstance(session, Skipped):
            continue
        if arguments.half and half_of(source, session.id, arguments.by) != arguments.half:
            continue
        if len(recording.data) < 2 * min(arguments.budget):  # a token has more than two bytes, here and elsewhere
            continue
        if arguments.cap and taken[source] >= arguments.cap:
            continue
        yield source, session, taken
        # counted by the caller once the session exceeds a budget


def play(arguments) -> list[Call]:
    disk = Disk(arguments.cache)
    arms = [(text or "default", maker(parsed(text), arguments.counter)) for text in arguments.set or [""]]
    calls: list[Call] = []
    begun = time.time()
    for number, (source, session, taken) in enumerate(sessions_of(arguments)):
        track = Track(source, session, arguments, disk)
        budgets = [b for b in arguments.budget if track.pressed(b)]
        taken[source] += bool(budgets)
        for budget in budgets:
            calls += track.rolling(budget)
            for arm, make in arms:
                calls += track.ours(arm, make, budget)
        if sys.stderr.isatty() or number % 50 == 49:
            print(f"  {number + 1} sessions, {time.time() - begun:.0f} s", file=sys.stderr)
    return calls


# -- figures


def mean(values) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def benched(call: Call):
    """Return a call as `ctxguard bench` has it."""
    from ctxguard.harness.bench import BenchCall
    from ctxguard.harness.gain import Bits

    return BenchCall(
        call.arm,
        call.budget,
        (call.source, call.session, call.end),
        None if call.is_refused else call.price,
        is_over=call.is_over,
        keeps=call.keeps,
        support=call.in_context,
        bits=None if call.bits is None else Bits(call.floor, call.bits, call.whole),
        newest=(call.newest_sent, call.newest_fits),
    )


def figures(calls: Sequence[Call], rolling: Sequence[Call]) -> dict[str, float | None]:
    """Return the figures of one arm at one budget, beside the rolling window's calls."""
    from ctxguard.cli.bench import bench_row, bill_beside
    from ctxguard.harness.contestants import PEERS

    pressed = [c for c in calls if c.is_pressed]
    row = bench_row(PEERS[0], calls[0].budget, *([benched(c) for c in of if c.is_pressed] for of in (calls, rolling)))
    return {
        "sessions": len({(c.source, c.session) for c in calls}),
        "calls": row["calls"],
        "refused": row["refused"],
        "over": row["over"],
        "names": mean(c.support for c in pressed),
        "support": row["support"],
        "judged": sum(c.bits is not None for c in pressed),
        "gain": row["gain"],
        "newest": row["newest"],
        "prefix": row["prefix_kept"],
        "prefix all": mean(c.keeps for c in calls),
        "cuts": mean(c.is_cut for c in calls),
        "tokens": mean(c.sent for c in pressed if not c.is_refused),
        "bill": row["bill"],
        "bill all": bill_beside(map(benched, calls), map(benched, rolling)),
    }


SHOWN = (
    *("calls", "judged", "names", "support", "gain", "newest"),
    *("prefix", "prefix all", "cuts", "tokens", "bill", "bill all"),
)


def shown(calls: Sequence[Call]) -> dict[str, dict[str, float | None]]:
    """Print the table of all arms, and return its figures by budget, source and arm."""
    found = {}
    arms = list(dict.fromkeys(c.arm for c in calls))
    for budget in dict.fromkeys(c.budget for c in calls):
        at = [c for c in calls if c.budget == budget]
        print(f"\nbudget {budget:,}\n{'':<44}" + "".join(f"{name:>11}" for name in SHOWN))
        sources = sorted({c.source for c in at})
        recorded = [c for c in at if c.source != INVENTED]
        both = {half: [c for c in recorded if half_of(c.source, c.session, "session") == half] for half in "ab"}
        of_all = {source: [c for c in at if c.source == source] for source in sources}
        of_all |= {"half a": both["a"], "half b": both["b"], "all": recorded} if recorded else {}
        for source, of in of_all.items():
            for arm in arms if of else ():
                own = figures([c for c in of if c.arm == arm], [c for c in of if c.arm == "rolling"])
                found[f"{budget}/{source}/{arm}"] = own
                cells = "".join(f"{_cell(own[name]):>11}" for name in SHOWN)
                print(f"{source[:14]:<14} {arm[:28]:<29}{cells}{_interval(of, arm) if source == 'all' else ''}")
    return found


def _interval(calls, arm) -> str:
    found = interval([benched(c) for c in calls if c.arm == arm and c.bits is not None])
    return "" if found is None else f"  gain [{found[0]:.2f}, {found[1]:.2f}]"


def _cell(value) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 50 or isinstance(value, int) else f"{value:.3f}"


TOLERANCES = {
    "names": 0.02,
    "support": 0.02,
    "gain": 0.03,
    "newest": 0.02,
    "prefix": 0.02,
    "prefix all": 0.02,
    "bill": 0.03,
    "bill all": 0.03,
    **dict.fromkeys(("all after 1", "all after 2", "all after 4"), 0.05),
}
"""By how much a figure may be worse than the baseline; of the bill more is worse. Rows of few calls are not compared."""
LEAST = 30


def worse_than(rows, path: str) -> Iterator[str]:
    """Walk the figures that are worse than those of an earlier run; rows of sessions that are not here are left out."""
    earlier = json.loads(Path(path).read_text())
    for name, before in earlier.items():
        now = rows.get(name)
        if now is None or name.endswith("/rolling") or before.get("judged", LEAST) < LEAST:
            continue
        if before.get("sessions") != now.get("sessions") or before.get("calls") != now.get("calls"):
            yield f"{name}: the baseline is of other sessions or calls; write it anew with --write-baseline"
            continue
        for figure, by in TOLERANCES.items():
            was, found = before.get(figure), now.get(figure)
            if was is not None and (found is None or (found - was if figure.startswith("bill") else was - found) > by):
                yield f"{name}: {figure} was {was} and is {found if found is None else round(found, 4)}, {by} allowed"


def against(calls: Sequence[Call], path: str) -> None:
    """Print by how much each arm differs from the first arm of an earlier run, at the same calls."""
    earlier = [Call(**json.loads(line)) for line in Path(path).read_text().splitlines()]
    first = next(c.arm for c in earlier if c.arm != "rolling")
    before = {(c.budget, c.source, c.session, c.end): c for c in earlier if c.arm == first}
    print(f"\ndifference to {first!r} of {path}, at the same calls")
    for budget in dict.fromkeys(c.budget for c in calls):
        for arm in dict.fromkeys(c.arm for c in calls if c.arm != "rolling"):
            both = [(c, before.get((c.budget, c.source, c.session, c.end))) for c in calls if c.arm == arm]
            pairs = [(c, b) for c, b in both if b is not None and c.budget == budget]
            _difference(budget, arm, pairs)


def _difference(budget: int, arm: str, pairs) -> None:
    judged = [(c, b) for c, b in pairs if c.bits is not None and b.bits is not None]
    by: dict[str, list] = defaultdict(list)
    for c, b in judged:
        by[f"{c.source}/{c.session}"].append((c, b))

    def lost(some) -> float | None:
        worth = sum(c.floor - c.whole for c, _ in some)
        return sum(b.bits - c.bits for c, b in some) / worth if worth > 0 else None

    sessions, chance = [by[n] for n in sorted(by)], random.Random(1)
    rounds = [lost([p for s in chance.choices(sessions, k=len(sessions)) for p in s]) for _ in range(300)] if by else []
    values = sorted(v for v in rounds if v is not None)
    ends = f" [{values[7]:+.3f}, {values[-8]:+.3f}]" if len(values) > 100 else ""
    support = mean(c.support - b.support for c, b in pairs if c.support is not None and b.support is not None)
    bill = sum(c.price for c, _ in pairs) / max(1e-9, sum(b.price for _, b in pairs))
    print(
        f"{budget:>7,} {arm[:30]:<31} gain {_signed(lost(judged))}{ends}, support {_signed(support)}, "
        f"bill × {bill:.3f} ({len(pairs)} calls, {len(judged)} judged)"
    )


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}"


def number(text: str) -> int:
    return int(float(text.removesuffix("k")) * (1_000 if text.endswith("k") else 1))


def arguments_of(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "sessions", nargs="+", help="recordings: files, folders, globs; `invented` stands for those of invented.py"
    )
    parser.add_argument("--budget", type=lambda t: list(map(number, t.split(","))), default=[4_000, 8_000, 32_000])
    parser.add_argument("--set", action="append", help="an arm: policy=chat,trail=0.1,target=0.7; repeat for several")
    parser.add_argument("--code", help="judge the ctxguard of another folder, with the judges of this one")
    parser.add_argument("--half", choices=("a", "b"), help="one half of the sessions, the same in every run")
    parser.add_argument("--by", choices=("session", "source"), default="session", help="what is split into halves")
    parser.add_argument("--source", action="append", help="only files whose name contains this; repeat for several")
    parser.add_argument("--cap", type=int, default=0, help="sessions of each source, of those that exceed a budget")
    parser.add_argument("--every", type=int, default=1, help="judge every n-th call under pressure")
    parser.add_argument("--calls", type=int, default=0, help="judge so many calls of a session, evenly spread")
    parser.add_argument("--no-gain", action="store_true", help="leave the compressor out")
    parser.add_argument("--no-tools", action="store_true", help="do not count tool schemas")
    parser.add_argument("--counter", default="auto")
    parser.add_argument("--save", help="write all calls to this file, for --against")
    parser.add_argument("--against", help="a file of an earlier run: print the difference at the same calls")
    parser.add_argument("--baseline", help="figures of an earlier run: exit with 1 if one is worse than its tolerance")
    parser.add_argument("--write-baseline", help="write the figures to this file")
    parser.add_argument("--cache", default=str(Path(tempfile.gettempdir()) / "ctxguard-quality.sqlite"))
    return parser.parse_args(given)


def judges_of_this_folder(code: str | None) -> Path:
    """Import ctxguard from a folder, and its judges always from this one; return the folder."""
    chosen = Path(code).resolve() if code else HERE
    sys.path[:0] = [str(chosen), str(chosen / "adapters")]
    import ctxguard.harness

    ctxguard.harness.__path__ = [str(HERE / "ctxguard" / "harness")]
    return chosen


def main() -> None:
    arguments = arguments_of()
    code = judges_of_this_folder(arguments.code)
    begun = time.time()
    calls = play(arguments)
    if not calls:
        print("no session exceeds a budget")
        return
    rows = shown(calls)
    if INVENTED in arguments.sessions:
        rows["facts"] = facts_held(arguments)
    if arguments.write_baseline:
        kept = {name: {k: v if v is None else round(v, 4) for k, v in row.items()} for name, row in rows.items()}
        text = ",\n".join(f" {json.dumps(name)}: {json.dumps(kept[name])}" for name in sorted(kept))
        Path(arguments.write_baseline).write_text(f"{{\n{text}\n}}\n")
    worse = list(worse_than(rows, arguments.baseline)) if arguments.baseline else []
    if arguments.against:
        against(calls, arguments.against)
    if arguments.save:
        Path(arguments.save).write_text("".join(json.dumps(asdict(c)) + "\n" for c in calls))
    print(f"\n{len(calls):,} calls in {time.time() - begun:.0f} s; code: {code}")
    for line in worse:
        print(f"worse than the baseline: {line}", file=sys.stderr)
    if worse:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
