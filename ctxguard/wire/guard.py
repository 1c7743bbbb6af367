"""The one guard of requests as they are sent, whatever sends them.

```
body ── read ──▶ artifacts ── chain ──▶ artifacts ── write ──▶ body ── every text searched, all tokens counted ──▶ sent
```

Where a request carries its history, what its placeholders stand for follows from this request alone, so that
nothing is shared between conversations.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypedDict

from ctxguard.adapting.adapter import require_stabilizer
from ctxguard.adapting.beside import Beside
from ctxguard.adapting.editing import copy_with
from ctxguard.adapting.fields import place_name
from ctxguard.adapting.per_run import OnReport, tell, valid_listener
from ctxguard.artifacts import Field
from ctxguard.draft import Ask, adrive, drive
from ctxguard.errors import BESIDE, BudgetExceededError, CtxguardError, HistoryError, WireError
from ctxguard.pii import MaskSession, Vault
from ctxguard.report import Report
from ctxguard.settings import NotAHook, one_of
from ctxguard.stabilizer import Stabilizer
from ctxguard.stages import MaskPII
from ctxguard.stages.drop_stale_thinking import DropStaleThinking
from ctxguard.tokens import count_request
from ctxguard.wire.chains import Chains, Owner
from ctxguard.wire.checking import BodyCheck
from ctxguard.wire.counting import Counters
from ctxguard.wire.formats import Format, format_of
from ctxguard.wire.limits import RETRIED_STATUSES, says_stale_thinking, smaller_budget
from ctxguard.wire.masking import WireMasking
from ctxguard.wire.metrics import Metrics
from ctxguard.wire.replies import Reply, as_json
from ctxguard.wire.sessions import credential_of
from ctxguard.wire.streams import EventStream
from ctxguard.wire.texts import Use, Values, texts_of

if TYPE_CHECKING:
    from ctxguard.pii.mask.strategies import Strategies

OnUnreadable = Literal["refuse", "pass"]
Refused = Literal["too long", "stale thinking"]

HEADERS: Final = "x-ctxguard"
"""How the names of our headers begin."""
SESSION_HEADER: Final = f"{HEADERS}-session"
"""The header by which a client names its session. It is not sent on."""
_SIGNED: Final = "AWS4-"
"""How the signature of a request to Amazon begins, which covers its body."""
_COUNTED_FROM: Final = 0.9
"""Share of the budget from which on a body is counted once more, as it is sent."""
_ROUNDS: Final = 3
"""How often a request is stabilized at most until its body is within the budget as a whole."""
_SAMPLE: Final = "Write to ada@example.com, or call +1 212 555 0123 about order 4111 1111 1111 1111."
"""A text that most kinds of rules look at."""


@dataclass(frozen=True, slots=True)
class WireRequest:
    """Hold a request as a client sends it.

    Attributes:
        method: The HTTP method.
        path: The path of its URL.
        headers: Its headers, with their names in lower case.
        body: Its body, not compressed.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Hold what is sent in place of a request, and what its answer needs.

    Attributes:
        body: The body to send.
        report: What was done; None where the request is passed on unread.
        reply: Gives values back in the answer; None where there is nothing to do.
        tokens: Input tokens of the body.
        budget: Tokens there were.
        refused: What earlier tries of this request were refused for.
    """

    body: bytes = field(repr=False)
    report: Report | None = None
    reply: Reply | None = None
    tokens: int = 0
    budget: int = 0
    refused: frozenset[Refused] = frozenset()

    @property
    def headers(self) -> dict[str, str]:
        """Headers that tell the client what was done: counts, and no values. Empty where the request was not read."""
        if self.report is None:
            return {}
        told = {**self.report.brief(), "tokens_after": self.tokens, **({"observed": 1} if self.report.observed else {})}
        return {f"{HEADERS}-{name.replace('_', '-')}": str(count) for name, count in told.items()}

    def may_be_sent_again(self, status: int) -> bool:
        """Tell whether an answer may refuse the request for something that another try can mend."""
        return self.report is not None and status in RETRIED_STATUSES

    def whole(self, answer: bytes) -> bytes:
        """Return the body of an answer with the values back."""
        return answer if self.reply is None else self.reply.whole(answer)

    def stream(self) -> EventStream:
        """Begin with an answer that comes as server-sent events.

        Raises:
            WireError: There is nothing to give back in it.
        """
        if self.reply is None:
            raise WireError("this answer needs no reading", status=500)
        return EventStream(self.reply)


class GuardSettings(TypedDict, total=False):
    """Hold the settings of `Guard` beside its stabilizer."""

    strategy: Strategies
    on_unreadable: OnUnreadable
    max_body: int
    vault: Vault | None
    keep_thinking: bool
    on_report: OnReport | None


class Guard(NotAHook):
    """Guard requests to models as they are sent, and their answers. Safe to share between threads and sessions.

    It reads Chat Completions, Responses, Anthropic Messages, Gemini and Converse. Everything in the body is counted and
    masked, the history is stabilized, and no body is sent in which a rule still matches.

    Args:
        stabilizer: Does the work; its rules say what is personal data. A chain without `MaskPII` masks nothing.
        strategy: How values are hidden where the stabilizer has no masker of its own: `pseudonymize` lets answers have
            them back.
        on_unreadable: What happens to requests that the guard cannot read, such as uploads and embeddings: `refuse`,
            or `pass` them on unread and unmasked.
        max_body: Bytes that the body of a request may have.
        vault: Where the placeholders of named sessions live; None means in this process.
        keep_thinking: Keep signed thinking from before a cut, see `ctxguard.stages.DropStaleThinking`.
        on_report: Is called with the report on each request; `report.session` is the session that the client named.

    Attributes:
        metrics: Counts of what was done.

    Raises:
        ConfigError: A setting cannot be used.
    """

    def __init__(
        self,
        stabilizer: Stabilizer,
        *,
        strategy: Strategies = "pseudonymize",
        on_unreadable: OnUnreadable = "refuse",
        max_body: int = 50_000_000,
        vault: Vault | None = None,
        keep_thinking: bool = False,
        on_report: OnReport | None = None,
    ) -> None:
        self.stabilizer: Stabilizer = require_stabilizer(stabilizer)
        self.strategy = strategy
        self.on_unreadable: OnUnreadable = one_of(on_unreadable, OnUnreadable, "on_unreadable")
        self.max_body = max_body
        self.on_report = valid_listener(on_report)
        self.metrics: Metrics = Metrics()
        self._masking = [WireMasking(one, strategy) for one in stabilizer.stages if isinstance(one, MaskPII)]
        self._check = BodyCheck([detector for masking in self._masking for detector in masking.detectors])
        self._values = Values()
        self._counters = Counters(stabilizer.counter)
        self._keeps_thinking = keep_thinking
        self._chains = Chains(stabilizer, self._masking, vault=vault, keep_thinking=keep_thinking)

    def prepare(self, request: WireRequest) -> Prepared:
        """Return what is sent in place of a request.

        Raises:
            WireError: The request cannot be read, or is too large.
            HistoryError: A message cannot be read.
            BudgetExceededError: What must stay does not fit.
            CheckFailedError: A rule matches in something that may not be changed.
        """
        return drive(self._prepared(request))

    async def aprepare(self, request: WireRequest) -> Prepared:
        """Do what `prepare` does where summarizers or stores are async."""
        return await adrive(self._prepared(request))

    def warm(self) -> None:
        """Load and compile what the first request would wait for. Nothing of it is sent or counted."""
        for detector in (detector for masking in self._masking for detector in masking.detectors):
            detector.find(_SAMPLE)
        for use in Use:
            self._check.found(_SAMPLE, use)
        sample = {"model": "gpt-4o", "messages": [{"role": "user", "content": _SAMPLE}]}
        request = WireRequest("POST", "/v1/chat/completions", {}, _written(sample))
        Guard(Stabilizer.from_policy("agent", budget=10_000)).prepare(request)

    def again(self, request: WireRequest, prepared: Prepared, status: int, answer: bytes) -> Prepared | None:
        """Return what is sent where the provider refused a request that another try can mend; else None.

        A prompt that was too long is sent once more with a smaller budget, and thinking that was signed for another
        prompt is left out once. Both hold from there on for the whole conversation, see `Stabilizer.tighten`.

        Args:
            request: The request as the client sends it.
            prepared: What was sent.
            status: The status of the answer.
            answer: The body of the answer.
        """
        return drive(self._prepared_again(request, prepared, status, answer))

    async def aagain(self, request: WireRequest, prepared: Prepared, status: int, answer: bytes) -> Prepared | None:
        """Do what `again` does where summarizers or stores are async."""
        return await adrive(self._prepared_again(request, prepared, status, answer))

    def _prepared(self, request: WireRequest, budget: int | None = None) -> Generator[Ask, object, Prepared]:
        try:
            prepared = yield from self._observed_or_enforced(request, budget)
        except RecursionError:
            return self._too_deep(request)
        self._note(prepared, request.headers.get(SESSION_HEADER))
        return prepared

    def _prepared_again(
        self, request: WireRequest, prepared: Prepared, status: int, answer: bytes
    ) -> Generator[Ask, object, Prepared | None]:
        found = self._refusal(prepared, status, answer)
        if found is None:
            return None
        why, budget = found
        try:
            again = yield from self._prepared(request, budget)
        except CtxguardError:  # the provider's own answer says more
            return None
        return replace(again, refused=prepared.refused | {why})

    def _refusal(self, prepared: Prepared, status: int, answer: bytes) -> tuple[Refused, int] | None:
        """Return what a request was refused for, and with how many tokens it is tried again; None if it is not."""
        if self.stabilizer.mode == "observe" or not prepared.may_be_sent_again(status):
            return None
        found: tuple[Refused, int] | None = None
        budget = smaller_budget(status, answer, tokens=prepared.tokens, budget=prepared.budget)
        if budget is not None:
            found = "too long", budget
        if not self._keeps_thinking and says_stale_thinking(status, answer):
            found = "stale thinking", prepared.budget
        if found is None or found[0] in prepared.refused:
            return None
        self.metrics.add("retries_total")
        return found

    def _note(self, prepared: Prepared, session: str | None) -> None:
        """Count what was done with a request, and hand its report to the application."""
        report = prepared.report
        if report is None:
            self.metrics.add("passed_unread_total")
            return
        self.metrics.add("input_tokens_total", "side", "sent", count=prepared.tokens)
        self.metrics.add("input_tokens_total", "side", "received", count=report.tokens_before)
        self.metrics.add("cuts_total", count=int(report.cut is not None and report.cut.fresh))
        tell(self.on_report, report, session)

    def _observed_or_enforced(self, request: WireRequest, budget: int | None) -> Generator[Ask, object, Prepared]:
        try:
            prepared = yield from self._enforced(request, budget)
        except CtxguardError:
            if self.stabilizer.mode == "enforce":
                raise
            return Prepared(request.body)
        observes = self.stabilizer.mode == "observe"
        return replace(prepared, body=request.body, reply=None) if observes else prepared

    def _enforced(self, request: WireRequest, budget: int | None) -> Generator[Ask, object, Prepared]:
        kind = format_of(request.method, request.path)
        if len(request.body) > self.max_body:
            raise WireError(
                f"the body has {len(request.body):,} bytes and may have {self.max_body:,}; raise max_body", status=413
            )
        self.metrics.add("requests_total", "api", "unknown" if kind is None else kind.api)
        if kind is None and not request.body:
            return Prepared(b"")
        if request.headers.get("content-encoding", "").strip().lower() not in ("", "identity"):
            return self._unread(request, "the body is compressed, and the guard reads none that is")
        if request.headers.get("authorization", "").startswith(_SIGNED):
            why = "the client signed the request, so that nobody can change it on its way"
            return self._unread(request, f"{why} (for boto3: ctxguard_bedrock.guarded)")
        if kind is None:
            return self._unread(request, f"{request.method} requests to this path are of no kind that ctxguard reads")
        try:
            body = self._with_shared_messages(kind, _parsed(request.body))
            kind.native(body)
        except (HistoryError, WireError) as error:
            # A body that is broken is the client's fault: nobody should be told to send it on unread.
            if self.on_unreadable == "pass":
                return Prepared(request.body)
            raise WireError(str(error)) from error
        return (yield from self._stabilized(kind, request, body, budget))

    def _with_shared_messages(self, kind: Format, body: dict[str, object]) -> dict[str, object]:
        """Return a body in which messages equal to those of earlier requests are these objects: none is read twice."""
        history = body.get(kind.history)
        if isinstance(history, list):
            body[kind.history] = list(map(self._values.same, history))
        return body

    def _too_deep(self, request: WireRequest) -> Prepared:
        """Pass on what is nested too deeply to be read, where that is allowed; else refuse it."""
        if self.on_unreadable == "pass" or self.stabilizer.mode == "observe":
            return Prepared(request.body)
        raise WireError("the body is nested too deeply") from None

    def _unread(self, request: WireRequest, why: str) -> Prepared:
        """Pass on what the guard cannot read, where that is allowed; else refuse it."""
        if self.on_unreadable == "pass":
            return Prepared(request.body)
        hint = "on_unreadable='pass' (serve: --on-unreadable pass) sends such requests on unread"
        raise WireError(f"{why}; {hint}", status=403)

    def _stabilized(
        self, kind: Format, request: WireRequest, body: Mapping[str, object], budget: int | None
    ) -> Generator[Ask, object, Prepared]:
        owner = Owner(credential_of(request.headers), request.headers.get(SESSION_HEADER))
        chain = self._chains.of(kind, body, owner)
        stabilizer = copy.copy(chain.stabilizer)
        stabilizer.counter = self._counters.of(body)
        body = self._chains.as_written(kind, body, owner)
        rest = {key: value for key, value in body.items() if key not in kind.read_by_adapter}
        beside = self._beside(rest)
        artifacts = list(beside.joined(chain.adapter.read(kind.native(body))))
        if budget is not None:
            stabilizer.tighten(artifacts, budget=budget)
        count = partial(count_request, api=kind.api, counter=stabilizer.counter.counter)
        overhead = beside.growth + count({**rest, kind.history: []}).tokens
        for _ in range(_ROUNDS):
            result = yield from stabilizer.flow(artifacts, overhead=overhead)
            allowed = result.report.budget
            if result.report.observed:
                return Prepared(request.body, result.report, None, result.report.tokens_before, allowed)
            changes, _, history = beside.restored(result.artifacts)
            changed = copy_with(body, changes)
            written = kind.written(changed, chain.adapter.write(kind.native(changed), history))
            sent = self._check.cleaned(written)
            tokens = result.report.tokens_after
            # counted as a whole where the chain did not see all of it, or where little room is left
            if changes or sent is not written or tokens > _COUNTED_FROM * allowed:
                tokens = count(sent).tokens
            if tokens <= allowed:
                reply = self._reply(kind, body, result.report, owner)
                return Prepared(_written(sent), result.report, reply, tokens, allowed)
            overhead += tokens - allowed
            stabilizer = _without_signed_thinking(stabilizer)
        raise BudgetExceededError(tokens, allowed, {BESIDE: overhead, "messages": tokens - overhead})

    def _beside(self, rest: Mapping[str, object]) -> Beside:
        """Return the texts beside the history (system prompt, tools) in which a rule matches, as artifacts to mask."""
        return Beside.of(
            (path, Field(place_name(path), text, editable=True, is_identifier=False, tokens=0))
            for path, text, use in texts_of(rest)
            if use is Use.TEXT and self._check.found(text, Use.TEXT)
        )

    def _reply(self, kind: Format, body: Mapping[str, object], report: Report, owner: Owner) -> Reply | None:
        session = next(filter(None, map(_session_of, report.masks)), None)
        is_stored = kind.api == "responses"
        if session is None or not (session.can_restore or is_stored):
            return None
        return Reply(
            kind.api,
            session,
            wants_json=kind.wants_json(body),
            on_id=(lambda name: self._chains.note_answer(owner, name, session)) if is_stored else None,
            on_item=partial(self._chains.note_item, owner) if is_stored else None,
        )


def _session_of(mask: object) -> MaskSession | None:
    session = getattr(mask, "__self__", None)
    return session if isinstance(session, MaskSession) else None


def _without_signed_thinking(stabilizer: Stabilizer) -> Stabilizer:
    """Return one that drops all signed thinking: another try may cut elsewhere, and signatures would not hold."""
    own = copy.copy(stabilizer)
    own.stages = tuple(
        DropStaleThinking(everything=True) if isinstance(s, DropStaleThinking) else s for s in own.stages
    )
    return own


def _parsed(body: bytes) -> dict[str, object]:
    try:
        parsed = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the body is not valid JSON ({type(error).__name__})") from None
    if not isinstance(parsed, dict):
        raise WireError(f"the body must be a JSON object, not {type(parsed).__name__}")
    return parsed


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


def _written(body: Mapping[str, object]) -> bytes:
    """Return the bytes of a body, always written anew: what was not read, such as a key's second value, is not sent."""
    try:
        return as_json(body, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the request cannot be written as JSON ({type(error).__name__})") from None
