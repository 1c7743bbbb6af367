"""The guard for requests as they are sent, shared by transports and proxy.

```
body ── read ──▶ artifacts ── chain ──▶ artifacts ── write ──▶ body ── every text searched, all tokens counted ──▶ sent
```

If a request contains its history, the values of its placeholders follow from this request alone, so nothing is shared
between conversations.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, Unpack

from ctxguard.adapting.adapter import require_stabilizer, texts_flow, window_for
from ctxguard.adapting.fields import get
from ctxguard.adapting.per_run import OnReport, tell, valid_listener
from ctxguard.checks.no_pii import shown_place
from ctxguard.draft import Ask, adrive, drive
from ctxguard.errors import FIXED_SHARE, ConfigError, CtxguardError, HistoryError, WireError, sensible_budget
from ctxguard.formats.format import Format
from ctxguard.formats.registry import format_of
from ctxguard.formats.requests import count_sent
from ctxguard.pii import Vault
from ctxguard.report import Report
from ctxguard.report.telemetry import Metrics
from ctxguard.settings import nearest, opened, share_of
from ctxguard.stabilizer import Stabilizer
from ctxguard.stages import MaskPII
from ctxguard.wire.asked import WireRequest
from ctxguard.wire.audit import Audit, HiddenValues, version_of
from ctxguard.wire.caches import Caches, Prompt
from ctxguard.wire.caching import with_breakpoints
from ctxguard.wire.chains import Chains
from ctxguard.wire.checking import TEXT_PATHS, BodyCheck, BodyTexts
from ctxguard.wire.counting import Counters, model_of
from ctxguard.wire.decoding import decoded_request
from ctxguard.wire.limits import RETRIED_STATUSES, Refused, Retry, retry_for
from ctxguard.wire.masking import WireMasking
from ctxguard.wire.metering import labels_of, model_name
from ctxguard.wire.readback import ReadBack, Reading
from ctxguard.wire.replies import Reply, session_of
from ctxguard.wire.request_json import parsed_body, written_body
from ctxguard.wire.sessions import Credentials, Owner, Thread, Threads
from ctxguard.wire.streams import EventStream
from ctxguard.wire.texts import Use, Values
from ctxguard.wire.uploads import divided, is_upload

if TYPE_CHECKING:
    from ctxguard.formats.answers import Weave
    from ctxguard.pii.mask.strategies import Strategies
    from ctxguard.stores import Store

OnUnreadable = Literal["refuse"] | Sequence[str]

_LOG: Final = logging.getLogger("ctxguard.wire")
HEADERS: Final = "x-ctxguard"
"""Prefix of the names of our headers."""
SESSION_HEADER: Final = f"{HEADERS}-session"
"""The header by which a client names its session. It is not forwarded."""
_UNLIMITED: Final = 10**12
"""Budget in tokens of a request that is held out."""
_SIGNED: Final = "AWS4-"
"""Prefix of the signature of a request to Amazon, which covers its body."""
_SAMPLE: Final = "Write to ada@example.com, or call +1 212 555 0123 about order 4111 1111 1111 1111."
"""A text that most kinds of rules apply to."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The request that is sent instead, and the data for restoring its response.

    Attributes:
        body: The body to send.
        report: The report; None if the request is forwarded unread.
        reply: Restores values in the response; None if there is nothing to restore.
        tokens: Input tokens of the body.
        budget: The budget in tokens.
        refused: The reasons for which earlier attempts of this request were refused.
        is_redacted: Whether values were redacted in a request with texts but no history; None for all others.
        reading: Answers read-back calls; None if the tool is not offered.
        billed_to: The labels under which its billed tokens are counted.
        hidden: The placeholders in the body, see `HiddenValues`; None if the original is sent.
        prompt: What the provider's cache should hold of it; None if the provider has the history.
    """

    body: bytes = field(repr=False)
    report: Report | None = None
    reply: Reply | None = None
    tokens: int = 0
    budget: int = 0
    refused: frozenset[Refused] = frozenset()
    is_redacted: bool | None = None
    reading: Reading | None = field(default=None, repr=False)
    billed_to: Mapping[str, str] = field(default_factory=dict)
    hidden: Mapping[str, Mapping[str, int]] | None = None
    prompt: Prompt | None = field(default=None, repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """Headers that inform the client: counts, and no values. Empty if the request was not read."""
        if self.report is None:
            return {} if self.is_redacted is None else {f"{HEADERS}-masked": str(int(self.is_redacted))}
        told = {**self.brief(self.report), **({"observed": 1} if self.report.observed else {})}
        return {f"{HEADERS}-{name.replace('_', '-')}": str(count) for name, count in told.items()}

    def brief(self, report: Report) -> dict[str, int]:
        """Return the counts of the report, with the tokens of the whole body as it is sent, or in observe would be."""
        return {**report.brief(), **({} if report.observed else {"tokens_after": self.tokens})}

    def may_be_sent_again(self, status: int) -> bool:
        """Return whether a response may refuse the request for a reason that another attempt can fix."""
        return self.report is not None and status in RETRIED_STATUSES

    @property
    def is_read(self) -> bool:
        """Whether responses are read: to restore values, or to answer read-back calls."""
        return self.reply is not None or self.reading is not None

    def follow(self, answer: bytes) -> WireRequest | None:
        """Return the request that continues after a response with read-back calls; None if it is the client's turn."""
        return None if self.reading is None else self.reading.follow_whole(answer)

    def whole(self, answer: bytes) -> bytes:
        """Return the body of a response for the client: with values restored, and without read-back calls."""
        answer = answer if self.reading is None else self.reading.whole(answer)
        return answer if self.reply is None else self.reply.whole(answer)

    def stream(self, weave: Weave | None = None, *, is_framed: bool = False) -> EventStream:
        """Return an object for a response of server-sent events, or of Amazon's frames.

        Pass the `weave` of the previous response if this one continues it.

        Raises:
            WireError: The response need not be read.
        """
        if not self.is_read:
            raise WireError("this answer needs no reading", status=500)
        return EventStream(self.reply, self.reading, weave, is_framed=is_framed)


class GuardSettings(TypedDict, total=False):
    """The settings of `Guard`; all are optional.

    Attributes:
        strategy: How values are masked if the stabilizer has no masker of its own: `pseudonymize`, the default, allows
            restoring them in responses.
        on_unreadable: `refuse` (the default) requests that it cannot read, such as uploads of images, or a list of
            paths to which they are sent on unread and unmasked: `["/v1/files", "/v1/files/*"]`. A pattern matches the
            end of a path. Requests that the guard reads, uploads of texts among them, are never sent on unread.
        max_body: Bytes that the body of a request may have, 50 million by default.
        vault: Where the placeholders of sessions, conversations and stored responses are kept; all workers that serve
            the same clients must share its store. None means in the memory of this process.
        keep_thinking: Keep signed thinking from before a cut, see `ctxguard.stages.DropStaleThinking`. None keeps it if
            a request has `thinking: {"type": "enabled"}`: Anthropic refuses a tool loop without its thinking.
        max_answer: Maximum bytes, decompressed, of a response that is read as a whole, 50 million by default.
        credentials: Which headers and query parameters separate sessions (`docs/wire.md` lists those that do not).
        takes_sessions: Whether clients may name sessions; several workers without a shared vault cannot support them.
            They may by default.
        cache_control: Mark up to four prefixes of a request to Anthropic for its cache, if the client marks none.
        recall: Let models read what was shortened or has left: the store that holds it, or True for one in memory. They
            get a tool `recall` in Chat Completions, Responses, Anthropic Messages and Gemini.
        holdout: Share of conversations (`5%`) that is masked and not cut, to measure what cuts save.
        on_report: Called with the report on each request; `report.session` is the session that the client named.
        tools: Which tools get real values in their arguments: True or False by name or pattern (`crm_*`), by `outward`
            for those that reach outside (mail, HTTP, messages, a shell), and by `*` for the rest. All do by default.
        audit: Is called with the record of each request and the body that is sent, before it is: an
            `ctxguard.wire.AuditLog`, or a callable of your own. Where it raises, nothing is sent. Async clients and the
            proxy call it in a thread, several at once.
    """

    strategy: Strategies
    on_unreadable: OnUnreadable
    max_body: int
    vault: Vault | None
    keep_thinking: bool | None
    on_report: OnReport | None
    audit: Audit | None
    tools: Mapping[str, bool]
    max_answer: int
    credentials: Credentials
    takes_sessions: bool
    cache_control: bool
    recall: Store | bool
    holdout: str


class Guard:
    """Guard requests to models as they are sent, and their responses. Safe to share between threads and sessions.

    It reads the formats of `ctxguard.formats`. The whole body is counted and masked, the history is stabilized, and a
    body in which a rule still matches is not sent.

    Args:
        stabilizer: Its rules define what is personal data. A chain without `MaskPII` masks nothing.
        **settings: See `GuardSettings`.

    Attributes:
        metrics: Counts of events.
        refusals: The message of the latest refusal, by the name of its error and its status.

    Raises:
        ConfigError: A setting cannot be used.
    """

    def __init__(self, stabilizer: Stabilizer, **settings: Unpack[GuardSettings]) -> None:
        if untaken := settings.keys() - GuardSettings.__annotations__.keys():
            name, known = min(untaken), GuardSettings.__annotations__
            raise ConfigError(f"Guard takes no setting {name!r}{nearest(name, known)}", setting=name)
        self.stabilizer: Stabilizer = require_stabilizer(stabilizer)
        self.strategy: Strategies = settings.get("strategy", "pseudonymize")
        self.unread_paths: tuple[str, ...] = _unread_paths(settings.get("on_unreadable", "refuse"))
        self.max_body: int = settings.get("max_body", 50_000_000)
        self.max_answer: int = settings.get("max_answer", 50_000_000)
        self.takes_sessions: bool = settings.get("takes_sessions", True)
        self.on_report: OnReport | None = valid_listener(settings.get("on_report"))
        self._audit = settings.get("audit")
        self._tools = settings.get("tools", {})
        self._cache_control = settings.get("cache_control", False)
        if (holdout := share_of(settings.get("holdout", "0%"))) is None:
            told = f"holdout is a share of the conversations such as '5%', not {settings['holdout']!r}"
            raise ConfigError(told, setting="holdout")
        self._holdout: float = holdout
        self._keeps_thinking = settings.get("keep_thinking")
        self._credentials = settings.get("credentials", Credentials())
        self._threads = Threads(settings.get("vault"))
        self.metrics: Metrics = Metrics()
        self.refusals: dict[tuple[str, str], str] = {}
        self._caches = Caches(self.metrics)
        read = settings.get("recall", False)
        self._read_back = None if read is False else ReadBack(None if read is True else opened(read), self.metrics)
        self._masking = [WireMasking(one, self.strategy) for one in stabilizer.stages if isinstance(one, MaskPII)]
        self._detectors = [detector for masking in self._masking for detector in masking.detectors]
        self._check = BodyCheck(self._detectors)
        self._rules = version_of(self._detectors)
        self._values = Values()
        self._hidden = HiddenValues()
        self._warned: set[str] = set()
        self._counters = Counters(stabilizer.counter)
        self._chains = self._reading_chains = Chains(stabilizer, self._masking)
        if self._read_back is not None:
            self._reading_chains = Chains(self._read_back.storing(stabilizer), self._masking)

    def prepare(self, request: WireRequest) -> Prepared:
        """Return the request that is sent instead of a given one.

        Raises:
            WireError: The request cannot be read, or is too large.
            HistoryError: A message cannot be read.
            BudgetExceededError: The mandatory messages do not fit.
            CheckFailedError: A rule matches in something that must not be changed.
        """
        return drive(self.preparing(request))

    async def aprepare(self, request: WireRequest) -> Prepared:
        """Do the same as `prepare` if summarizers or stores are async."""
        return await adrive(self.preparing(request))

    def passes_unread(self, path: str) -> bool:
        """Return whether requests to a path are forwarded unread; warn the first time that a setting allows it."""
        if path.rstrip("/").endswith(TEXT_PATHS) or format_of("POST", path) is not None:
            return False
        found = next((p for p in self.unread_paths if fnmatchcase(path.rstrip("/"), f"*{p.rstrip('/')}")), None)
        if found is None:
            return False
        if found not in self._warned:
            self._warned.add(found)
            _LOG.warning("requests to %s are sent on unread and unmasked, as on_unreadable says", found)
        return True

    def warm(self) -> None:
        """Load and compile what the first request needs. Nothing is sent or counted."""
        for detector in self._detectors:
            detector.find(_SAMPLE)
        sample = {"model": "gpt-4o", "messages": [{"role": "user", "content": _SAMPLE}]}
        request = WireRequest("POST", "/v1/chat/completions", {}, written_body(sample))
        Guard(Stabilizer.from_policy("agent", budget=10_000)).prepare(request)

    def preparing(self, request: WireRequest, retry: Retry | None = None) -> Generator[Ask, object, Prepared]:
        """Do what `prepare` does as a generator that yields an `Ask` for whatever needs I/O."""
        try:
            prepared = yield from self._enforced(request, retry)
        except (CtxguardError, RecursionError) as error:
            if self.stabilizer.mode == "enforce":
                refusal = WireError("the body is nested too deeply") if isinstance(error, RecursionError) else error
                yield from self.recording(request.path, request.headers, refusal)
                raise refusal from None
            prepared = Prepared(request.body)
        yield from self.recording(request.path, request.headers, prepared)
        self._note(prepared, request, retry)
        return prepared

    def recording(
        self, path: str, headers: Mapping[str, str], done: Prepared | Exception | None
    ) -> Generator[Ask, object, None]:
        """Have recorded what becomes of a request, before it is sent. In an event loop, a thread does it.

        Args:
            path: The path of its URL.
            headers: Its headers, with their names in lower case.
            done: What is sent, or why nothing is; None where the request is sent on unread.

        Raises:
            AuditError: It cannot be recorded.
        """
        if self._audit is None:
            return
        record: dict[str, object] = {"path": path, "session": headers.get(SESSION_HEADER), "rules": self._rules}
        if isinstance(done, Exception):
            record["refused"] = type(done).__name__
        prepared = done if isinstance(done, Prepared) else Prepared(b"")
        if prepared.billed_to:
            record |= {"model": prepared.billed_to["model"], "hidden": prepared.hidden}
        if prepared.report is not None:
            record |= {"decisions": prepared.brief(prepared.report), "observed": prepared.report.observed}
        told = {key: self.shown(value) if isinstance(value, str) else value for key, value in record.items()}
        yield Ask(self._audit, (told, prepared.body if isinstance(done, Prepared) else None))

    def shown(self, text: str) -> str:
        """Return a text in which no rule matches: clients choose the names of sessions, models and paths."""
        return "…" if self._check.found(text, Use.TEXT) else text

    def preparing_again(
        self, request: WireRequest, prepared: Prepared, status: int, answer: bytes
    ) -> Generator[Ask, object, Prepared | None]:
        """Return another attempt if the provider refused a request for a reason that this can fix; else None.

        A prompt that was too long is sent again with a smaller budget; thinking that was signed for another prompt is
        left out. Each is tried once, and applies to the whole conversation from then on, see `Stabilizer.tighten`. If
        the provider requires thinking that is missing, the request is sent again with it.

        Args:
            request: The request as the client sends it.
            prepared: The first attempt.
            status: The status of the response.
            answer: The body of the response.
        """
        found = self._refusal(prepared, status, answer)
        if found is None:
            return None
        try:
            again = yield from self.preparing(request, found)
        except CtxguardError:  # the provider's own response is more informative
            return None
        return replace(again, refused=prepared.refused | {found.why})

    def _refusal(self, prepared: Prepared, status: int, answer: bytes) -> Retry | None:
        """Return why a request was refused, and the budget for another attempt; None if it was not."""
        if self.stabilizer.mode == "observe" or not prepared.may_be_sent_again(status):
            return None
        found = retry_for(status, answer, tokens=prepared.tokens, budget=prepared.budget, keeps=self._keeps_thinking)
        if found is None or found.why in prepared.refused:
            return None
        self.metrics.add("retries")
        return found

    def _keeps(self, body: Mapping[str, object], retry: Retry | None) -> bool:
        """Return whether thinking from before a cut is kept: as provider or caller decide, else by the request."""
        if retry is not None and retry.why != "too long":
            return retry.why == "missing thinking"
        is_enabled = get(body.get("thinking"), "type") == "enabled"
        return is_enabled if self._keeps_thinking is None else self._keeps_thinking

    def note_refusal(self, name: str, status: int, message: str) -> None:
        """Count a request that is not sent, and remember why."""
        self.metrics.add("refused", error=name, status=str(status))
        self.refusals[name, str(status)] = self.shown(message)

    def _note(self, prepared: Prepared, request: WireRequest, retry: Retry | None) -> None:
        """Count the outcome of a request, and hand its report to the application."""
        report, is_clients = prepared.report, _is_clients(request, retry)
        if report is None:
            self.metrics.add("passed_unread", int(bool(prepared.body) and prepared.is_redacted is None))
            self.metrics.add("masked_requests", int(bool(prepared.is_redacted)))
            return
        self.metrics.add("input.tokens", prepared.tokens, side="sent")
        self.metrics.add("input.tokens", is_clients * report.tokens_before, side="received")
        if report.cut is not None:
            # for the chain, a conversation that comes in late had every cut before; nobody was billed for these prompts
            is_first = prepared.prompt is not None and prepared.prompt.is_first
            self.metrics.add("cuts", int(report.cut.fresh or is_first))
            self.metrics.add("rebilled.tokens", 0 if report.observed or is_first else report.cut.rebilled)
        for kind in (prepared.hidden or {}).keys() - {"LITERAL"} if is_clients else ():
            self.metrics.add("masked_kinds", kind=kind)
        self.metrics.add("masked_requests", int(is_clients and report.brief()["masked"] > 0))
        tell(self.on_report, report, request.headers.get(SESSION_HEADER))

    def _enforced(self, request: WireRequest, retry: Retry | None) -> Generator[Ask, object, Prepared]:
        kind = format_of(request.method, request.path)
        has_texts = kind is None and request.method == "POST" and request.path.rstrip("/").endswith(TEXT_PATHS)
        uploads = is_upload(request.method, request.path)
        encoding = request.headers.get("content-encoding", "")
        if encoding and (kind is not None or has_texts or uploads):
            headers = {name: value for name, value in request.headers.items() if name != "content-encoding"}
            request = replace(request, body=decoded_request(request.body, encoding, self.max_body), headers=headers)
        if len(request.body) > self.max_body:
            told = f"the body has {len(request.body):,} bytes and may have {self.max_body:,}; raise max_body"
            raise WireError(told, status=413)
        upload = divided(request.headers, request.body) if uploads else None
        has_texts = has_texts or upload is not None
        api = "texts" if has_texts else "unknown" if kind is None else kind.api
        self.metrics.add("requests", int(_is_clients(request, retry)), api=api)
        if kind is None and not request.body:
            self._refuse_part(request)
            return Prepared(b"")
        if kind is None and not has_texts:
            return self._unread(request)
        if request.headers.get("authorization", "").startswith(_SIGNED):
            why = "the client signed the request, so that nobody can change it on its way"
            raise WireError(f"{why} (for boto3: ctxguard_bedrock.guarded)", status=403)
        if kind is None:
            return self._redacted(request, upload)
        try:
            body = self._with_shared_messages(kind, parsed_body(request.body))
            kind.native(body)
        except (HistoryError, WireError) as error:
            raise WireError(str(error)) from error
        return (yield from self._stabilized(kind, request, body, retry))

    def _refuse_part(self, request: WireRequest) -> None:
        """Refuse to fetch a response that the provider holds in parts, with calls that the client must not see."""
        path, _, answer = request.path.rstrip("/").rpartition("/")
        kind, book = format_of("POST", path) if request.method == "GET" else None, self._read_back
        if kind and book and book.is_divided(self._owner(kind, replace(request, path=path)).scope, answer):
            raise WireError("the provider holds this response in parts: keep what the stream brought", status=409)

    def _redacted(self, request: WireRequest, upload: tuple[str, list[str]] | None) -> Prepared:
        """Return a request with texts but no history, JSON or an upload, with its values redacted."""
        if self.stabilizer.mode == "observe":
            return Prepared(request.body)
        divider, parts = upload or ("", [])
        body: Mapping[str, Any] = parsed_body(request.body) if upload is None else {"parts": parts}
        cleaned: Mapping[str, Any] = self._check.cleaned(body, body)
        sent = written_body(cleaned) if upload is None else divider.join(cleaned["parts"]).encode()
        hidden = self._hidden.of(cleaned if upload is None else {"upload": cleaned["parts"]})
        billed_to = {"model": model_name(model_of(body, request.path))}
        return Prepared(sent, is_redacted=cleaned is not body, billed_to=billed_to, hidden=hidden)

    def _with_shared_messages(self, kind: Format, body: dict[str, object]) -> dict[str, object]:
        """Return a body that reuses the objects of equal messages in earlier requests, so that none is read twice."""
        history = body.get(kind.history)
        if isinstance(history, list):
            body[kind.history] = list(map(self._values.same, history))
        return body

    def _unread(self, request: WireRequest) -> Prepared:
        """Forward a request that the guard cannot read, if that is allowed; else refuse it."""
        if self.passes_unread(request.path):
            return Prepared(request.body)
        shown = shown_place(request.path, self._detectors)
        told = f"{request.method} requests to this path are of no kind that ctxguard reads; to send them on unread and"
        name = f"on_unreadable=[{shown!r}] (serve: --on-unreadable {shown})"
        raise WireError(f"{told} unmasked, name the path: {name}", status=403)

    def _stabilized(
        self, kind: Format, request: WireRequest, body: Mapping[str, object], retry: Retry | None
    ) -> Generator[Ask, object, Prepared]:
        owner = self._owner(kind, request)
        is_incremental, thread = self._thread(kind, body, owner)
        self.metrics.add("unknown_threads", int(thread.redacts and _is_clients(request, retry)))
        keeps = self._keeps(body, retry)
        opening = self._caches.opening(kind, body, owner)
        is_held_out = not is_incremental and int.from_bytes(opening[:4]) < self._holdout * (1 << 32)
        book = None if is_held_out else self._read_back
        reading = None if book is None else book.reading(kind, request, body, owner.scope)
        chains = self._chains if reading is None else self._reading_chains
        chain = chains.of(kind, owner, thread, is_incremental=is_incremental, keep_thinking=keeps)
        model = model_of(body, request.path)
        stabilizer = chain.stabilizer.with_(counter=self._counters.of(model))
        billed_to = labels_of(model, owner)
        if is_held_out:
            self.metrics.add("held_out", int(_is_clients(request, retry)))
            stabilizer, billed_to = stabilizer.with_(budget=_UNLIMITED, headroom=0), {**billed_to, "group": "holdout"}
        window, asked = window_for(stabilizer, None, model), body
        if reading is not None:
            body = yield from reading.begun(stabilizer, self._check)
        body = self._chains.as_written(kind, body, owner)
        prompt = None if is_incremental else Prompt(self._caches, kind, body, model, opening)
        anchored = list if prompt is None else prompt.anchored
        texts = BodyTexts.of(kind, body, self._check, stabilizer, window)
        tightened = {"budget": retry.budget, "window": window} if retry and retry.why != "missing thinking" else None
        sent, report, tokens = yield from texts_flow(
            *(stabilizer, chain.adapter, kind.native(texts.body), texts),
            window=window,
            tightened=tightened,
            anchored=anchored,
        )
        if reading is not None:  # neither the tool nor what was hidden of earlier answers came from the client
            report.tokens_before = count_sent(asked, kind, stabilizer.counter).tokens
        if prompt is not None:
            prompt.sent(report, request.body)
        hidden = None if sent is None else self._hidden.of(sent)  # else the original is sent
        told: dict[str, Any] = {"billed_to": billed_to, "prompt": prompt, "hidden": hidden}
        if sent is None:
            return Prepared(request.body, report, None, report.tokens_before, report.budget, **told)
        self._warn_of_fixed(report, stabilizer.budget_for(window, with_headroom=True))
        if self._cache_control and kind.api == "anthropic":
            sent = with_breakpoints(sent)
        reply = self._reply(kind, body, report, owner, thread)
        prepared = Prepared(written_body(sent), report, reply, tokens, report.budget, reading=reading, **told)
        if reading is not None:
            reading.done(prepared.body, report, reply)
        return prepared

    def _thread(self, kind: Format, body: Mapping[str, object], owner: Owner) -> tuple[bool, Thread]:
        """Return whether the provider has the history of a request, and where its placeholders are stored."""
        previous, conversation = (body.get(key) for key in ("previous_response_id", "conversation"))
        is_incremental = kind.api == "responses" and bool(previous or conversation)
        held = {"previous": previous, "conversation": conversation} if is_incremental else {}
        return is_incremental, self._threads.of(owner, **held)

    def _warn_of_fixed(self, report: Report, budget: int) -> None:
        """Warn once if the system prompt and the tools leave little of the budget for the history."""
        if "fixed parts" not in self._warned and (fixed := report.fixed) > FIXED_SHARE * budget:
            self._warned.add("fixed parts")
            _LOG.warning(
                "the system prompt and the tools take %d of %d tokens (%d%%); the smallest sensible budget is %d",
                *(fixed, budget, 100 * fixed // budget, sensible_budget(fixed + report.saved_on_tools)),
            )

    def _owner(self, kind: Format, request: WireRequest) -> Owner:
        """Return the sender of a request, by everything in it that may be a credential."""
        session = request.headers.get(SESSION_HEADER)
        if session is not None and not self.takes_sessions:
            told = "several workers without a shared store cannot keep sessions; give --store"
            raise WireError(f"{SESSION_HEADER}: {told}")
        headers = {name: value for name, value in request.headers.items() if name != SESSION_HEADER}
        return Owner(self._credentials.digest(headers, request.query, kind.base(request.path)), session)

    def _reply(
        self, kind: Format, body: Mapping[str, object], report: Report, owner: Owner, thread: Thread
    ) -> Reply | None:
        session = session_of(report.masks)
        has_items = kind.api == "responses"
        is_stored = has_items and body.get("store") is not False
        if session is None or not (session.can_restore or has_items):
            return None
        return Reply(
            kind,
            session,
            wants_json=kind.wants_json(body),
            tools=self._tools,
            names_host=report.user_names,
            on_id=(lambda name: self._threads.note_answer(owner, name, thread, session.pseudonyms))
            if is_stored
            else None,
            on_item=partial(self._chains.note_item, owner) if has_items else None,
        )


def _is_clients(request: WireRequest, retry: Retry | None) -> bool:
    """Return whether a client sends a request, and not the guard: to go on after a read-back, or once more."""
    return request.turn is None and retry is None


def _unread_paths(given: object) -> tuple[str, ...]:
    if given == "refuse":
        return ()
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(p, str) and p for p in given):
        told = f"on_unreadable is 'refuse' or a list of paths such as ['/v1/files'], not {given!r}"
        raise ConfigError(told, setting="on_unreadable")
    return tuple(given)
