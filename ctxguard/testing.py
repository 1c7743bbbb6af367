"""Tests for your own adapters, stages, and stores: generated histories, checks of results, and suites of tests.

They need Hypothesis and pytest, which the extra `testing` installs.

```python
class TestMyAdapter(AdapterConformance):
    adapter = MyAdapter()

    def native(self, history):            # artifacts -> a history of your framework
        return [my_message(artifact) for artifact in history]
```
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from ctxguard.settings import extra

with extra("testing", "ctxguard.testing needs Hypothesis and pytest"):
    import pytest
    from hypothesis import HealthCheck, assume, given, settings
    from hypothesis import strategies as st

from ctxguard.adapting.adapter import stabilize_native
from ctxguard.adapting.planting import planted
from ctxguard.adapting.registry import Adapter
from ctxguard.artifacts import Artifact, Kind, ToolCall
from ctxguard.checks import NoPII
from ctxguard.errors import AdapterError, BudgetExceededError, CtxguardError
from ctxguard.history import pair
from ctxguard.report import Report
from ctxguard.stabilizer import Stabilizer
from ctxguard.stages import MaskPII
from ctxguard.stores.conformance import StoreConformance
from ctxguard.tokens.artifact_counter import MESSAGE_TOKENS, REPLY_TOKENS

__all__ = ["AdapterConformance", "StoreConformance", "broken_histories", "histories", "law_findings"]

_WORDS = (
    *("order", "refund", "error", "file", "deploy", "budget", "Zürich", "見積"),
    *("the", "a", "4", "ok", "\n", "{}", "é"),
)


def _texts(most: int = 60) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(_WORDS), min_size=1, max_size=most).map(" ".join)


def _arguments(number: int) -> st.SearchStrategy[str]:
    """Generate the arguments of a tool call, most of them short."""
    short = st.just({"q": str(number)})
    return st.one_of(short, short, short, _texts(200).map(lambda text: {"q": text, "n": number})).map(json.dumps)


@st.composite
def _exchange(draw: st.DrawFn, step: int, *, reuse_ids: bool) -> list[Artifact]:
    count = draw(st.integers(1, 4))
    base = 0 if reuse_ids else step * 10
    calls = tuple(
        ToolCall(draw(st.sampled_from(["search", "read_file", "run"])), draw(_arguments(n)), f"call_{base + n}")
        for n in range(count)
    )
    results = [Artifact(Kind.TOOL, draw(_texts(120)), answers=call.id) for call in draw(st.permutations(calls))]
    return [Artifact(Kind.ASSISTANT, draw(st.sampled_from(["", "Let me look."])), calls=calls), *results]


@st.composite
def histories(draw: st.DrawFn, *, max_turns: int = 5) -> list[Artifact]:
    """Generate valid histories: perhaps a system prompt, then turns with tool calls. Most turns end with a reply.

    A message may make several calls, results come in any order, and ids may repeat across steps.

    Args:
        draw: Provided by Hypothesis.
        max_turns: Maximum number of turns.
    """
    reuse = draw(st.booleans())
    history = [Artifact(Kind.SYSTEM, "You are a helpful assistant.")] if draw(st.booleans()) else []
    step = 0
    for turn in range(draw(st.integers(1, max_turns))):
        history.append(Artifact(Kind.USER, f"Question {turn}: " + draw(_texts())))
        for _ in range(draw(st.integers(0, 4))):
            history += draw(_exchange(step, reuse_ids=reuse))
            step += 1
        if draw(st.integers(0, 3)):
            history.append(Artifact(Kind.ASSISTANT, draw(_texts(120))))
    return history


@st.composite
def broken_histories(draw: st.DrawFn) -> list[Artifact]:
    """Generate histories with lost, duplicated, or moved messages, as crashes and careless trimming leave them.

    Some messages also lose the ids of their calls or results.
    """
    history = list(draw(histories()))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(len(history) - 1, 0)))
        match draw(st.sampled_from(["lose", "double", "move", "no id"])):
            case "lose" if len(history) > 1:
                history.pop(place)
            case "double":
                history.insert(place, history[place])
            case "move":
                history.insert(draw(st.integers(0, len(history) - 1)), history.pop(place))
            case _:
                item = history[place]
                calls = tuple(ToolCall(call.name, call.arguments) for call in item.calls)
                history[place] = Artifact(item.kind, item.content, calls=calls)
    return history


def law_findings(
    history: Sequence[Artifact], result: Sequence[Artifact], stabilizer: Stabilizer, *, overhead: int = 0
) -> list[str]:
    """Return one line for each structural guarantee that a result breaks.

    It checks that the result is within the budget, that calls and results pair, that system and task artifacts come
    first, and that mandatory messages are kept.

    Args:
        history: The input of the stabilizer.
        result: The artifacts that the stabilizer returned.
        stabilizer: The stabilizer.
        overhead: Number of tokens that are sent in addition to the artifacts.
    """
    findings = []
    tokens = overhead + stabilizer.counter.artifacts(result)
    if tokens > stabilizer.budget_for():
        findings.append(f"budget: {tokens} tokens of {stabilizer.budget_for()}")
    findings += _pair_findings(result)
    roots = {id(artifact.root) for artifact in result}
    for name, wanted in _must_stay(history, stabilizer.keep_recent):
        if id(wanted.root) not in roots:
            findings.append(f"authority: {name} is missing")
    ranks = [0 if a.kind is Kind.SYSTEM else 1 if a.kind is Kind.TASK else 2 for a in result]
    if ranks != sorted(ranks):
        findings.append("authority: system and task do not stand first")
    return findings + _opening_findings(history, result)


def _pair_findings(result: Sequence[Artifact]) -> list[str]:
    found = pair(result)
    findings = [f"pairs: orphan result at {p}" for p in (*found.orphans, *found.duplicates)]
    last = len(result) - 1
    while last >= 0 and last in found.owner:
        last -= 1
    return findings + [f"pairs: unanswered call at {p}" for p, _ in found.unanswered if p != last]


def _must_stay(history: Sequence[Artifact], keep_recent: int) -> list[tuple[str, Artifact]]:
    wanted = [(str(a.kind), a) for a in history if a.kind in (Kind.SYSTEM, Kind.TASK)]
    messages = [a for a in history if a.kind in (Kind.USER, Kind.ASSISTANT)]
    wanted += [("a recent message", a) for a in messages[len(messages) - min(keep_recent, len(messages)) :]]
    users = [a for a in history if a.kind is Kind.USER]
    return wanted + [("the last user message", a) for a in users[-1:]]


def _opening_findings(history: Sequence[Artifact], result: Sequence[Artifact]) -> list[str]:
    def first(artifacts: Sequence[Artifact]) -> Kind | None:
        return next((a.kind for a in artifacts if a.kind not in (Kind.SYSTEM, Kind.TASK)), None)

    if first(history) is Kind.USER and first(result) not in (Kind.USER, None):
        return [f"authority: the context starts with a message of kind {first(result)}"]
    return []


def _counted(stabilizer: Stabilizer, read: Sequence[Artifact], report: Report) -> int:
    """Return the number of tokens of the messages that an adapter wrote, as the report counts them.

    An adapter may join messages when it writes them. Formats with alternating roles join messages that became adjacent
    by a cut. Formats without message borders join messages that only a late result had separated. The report still
    counts the framing (the tokens around a message) of each message before they were joined.

    Args:
        stabilizer: The stabilizer that wrote the report.
        read: The artifacts that are read from the written messages.
        report: The report on the call.
    """
    joined = sum(decision.tokens_after > 0 for decision in report.decisions) - len(read)
    return stabilizer.counter.artifacts(read) + REPLY_TOKENS + joined * MESSAGE_TOKENS


_SETTINGS = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


class AdapterConformance:
    """Tests that an adapter fulfills its contract: it changes nothing but the texts that were edited.

    Subclass it in a test module, set `adapter`, and implement `native`. If histories of your framework are not plain
    lists, implement `items` as well.

    Attributes:
        adapter: The adapter to test.
        classes: Types of the framework's messages or of their parts: dataclasses, pydantic models, typed dicts, and
            unions of these. All their fields are found by introspection, so fields that the framework adds later are
            tested as well.
        unsearched: The fields in which personal data is known to pass unnoticed, with the reasons. Keys are
            `Class.field` or a pattern of such names.
    """

    adapter: ClassVar[Adapter[Any]]
    classes: ClassVar[Sequence[object]] = ()
    unsearched: ClassVar[Mapping[str, str]] = {}

    def native(self, history: Sequence[Artifact]) -> Any:  # noqa: ANN401, ARG002 - the framework's own type; a hook
        """Return a history of your framework that corresponds to the artifacts of `history`."""
        raise AdapterError(f"{type(self).__name__} must say in native() how a history of its framework is built")

    def items(self, native: Any) -> list[Any]:  # noqa: ANN401 - it is the framework's own type
        """Return the messages of a history of your framework."""
        return list(native)

    def unknown(self) -> Any:  # noqa: ANN401 - it is the framework's own type
        """Return a message of a kind that the adapter does not know; None if your framework has no such messages."""
        return None

    def holding(self, item: Any) -> Any:  # noqa: ANN401 - it is the framework's own type
        """Return a history that contains `item`, an instance of one of the `classes`."""
        return [item]

    @pytest.mark.filterwarnings("ignore")  # creating an instance of a deprecated class warns
    @pytest.mark.parametrize("value", ["zora@mailhost.org", "4111 1111 1111 1111"])
    def test_no_field_of_any_class_hides_a_value(self, value: str) -> None:
        """Personal data in any field with text or JSON is masked or found, unless the field is in `unsearched`."""
        masking = Stabilizer(100_000, counter="estimate", stages=[MaskPII()], checks=[NoPII()])
        silent: set[str] = set()
        tried: set[str] = set()
        accepted = refused = 0
        for place, item in (found for one in self.classes for found in planted(one, value)):
            try:
                written, report = stabilize_native(masking, self.adapter, self.holding(item))
            except CtxguardError as error:
                assert value not in str(error)  # noqa: PT017 - an error sends nothing, and must not quote the value
                refused += 1
                continue
            accepted += 1
            tried.add(place.partition(".")[0])
            is_listed = any(fnmatchcase(place, pattern) for pattern in self.unsearched)
            if report.ok and value in repr(written) and not is_listed:
                silent.add(place)
        print(f"{len(tried)} classes of {self.adapter.name}: {', '.join(sorted(tried))}")  # noqa: T201 - shown by `pytest -rP`
        assert not silent, f"{self.adapter.name} does not search {', '.join(sorted(silent))}"
        assert accepted >= refused, f"{refused} of {accepted + refused} instances were refused, so nothing was tried"

    @_SETTINGS
    @given(history=histories())
    def test_identity_without_edits_the_same_objects_come_back(self, history: list[Artifact]) -> None:
        """Without edits, the adapter returns the same message objects."""
        native = self.native(history)
        written = self.adapter.write(native, self.adapter.read(native))
        before, after = self.items(native), self.items(written)
        assert len(before) == len(after)
        assert all(was is now for was, now in zip(before, after, strict=True))

    @_SETTINGS
    @given(history=histories())
    def test_parity_the_artifacts_are_those_of_the_history(self, history: list[Artifact]) -> None:
        """Reading a history returns the artifacts from which it was built."""
        read = self.adapter.read(self.native(history))
        assert [a.kind for a in read] == [a.kind for a in history]
        assert [a.text for a in read] == [a.text for a in history]
        assert [[(c.name, c.id) for c in a.calls] for a in read] == [[(c.name, c.id) for c in a.calls] for a in history]
        assert [a.answers for a in read] == [a.answers for a in history]

    @_SETTINGS
    @given(history=histories(), data=st.data())
    def test_locality_an_edit_changes_its_message_and_nothing_else(
        self, history: list[Artifact], data: st.DataObject
    ) -> None:
        """An edited text changes only the message that contains it."""
        native = self.native(history)
        untouched = copy.deepcopy(native)
        read = self.adapter.read(native)
        places = [p for p, a in enumerate(read) if a.text]
        assume(places)
        place = data.draw(st.sampled_from(places))
        edited = [
            a.edit(lambda slot, text: text + " edited" if slot == "content" else text) if p == place else a
            for p, a in enumerate(read)
        ]
        written = self.adapter.write(native, edited)
        again = self.adapter.read(written)
        assert [a.text for a in again] == [a.text for a in edited]
        changed = [1 for was, now in zip(self.items(native), self.items(written), strict=True) if was is not now]
        assert len(changed) == 1
        assert self.items(native) == self.items(untouched), "the input was changed"

    @_SETTINGS
    @given(history=histories(), budget=st.integers(120, 1_500))
    def test_laws_hold_and_the_result_is_stable(self, history: list[Artifact], budget: int) -> None:
        """The result fits the budget, passes all checks, and has paired calls; stabilizing it again changes nothing."""
        native = self.native(history)
        untouched = copy.deepcopy(native)
        stabilizer = Stabilizer(budget, counter="estimate")
        try:
            once, report = stabilize_native(stabilizer, self.adapter, native)
        except BudgetExceededError as error:
            assert error.needed > error.budget == budget  # noqa: PT017 - some histories fit, others do not
            return
        assert report.ok, str(report)
        assert report.tokens_after <= budget
        read = self.adapter.read(once)
        assert not _pair_findings(read)
        assert _counted(stabilizer, read, report) == report.tokens_after, "counted is what is written"
        twice, _ = stabilize_native(stabilizer, self.adapter, once)
        assert self.items(twice) == self.items(once), "stabilizing the result again changed it"
        assert self.items(native) == self.items(untouched), "the input was changed"

    @_SETTINGS
    @given(history=broken_histories())
    def test_broken_histories_come_out_paired(self, history: list[Artifact]) -> None:
        """Broken histories, which a provider would refuse, are repaired."""
        native = self.native(history)
        stabilizer = Stabilizer(100_000, counter="estimate")
        once, report = stabilize_native(stabilizer, self.adapter, native)
        assert report.ok, str(report)
        read = self.adapter.read(once)
        assert not _pair_findings(read)
        assert _counted(stabilizer, read, report) == report.tokens_after, "counted is what is written"

    @_SETTINGS
    @given(history=histories())
    def test_unknown_kinds_pass_through_untouched(self, history: list[Artifact]) -> None:
        """Messages of unknown kinds are returned as the same objects."""
        unknown = self.unknown()
        if unknown is None:
            return
        native = self.native(history)
        native = [*self.items(native), unknown, *self.items(self.native([Artifact(Kind.USER, "and now?")]))]
        written = self.adapter.write(native, self.adapter.read(native))
        assert all(was is now for was, now in zip(native, self.items(written), strict=True))
