"""The guard for requests at the HTTP level, shared by transports and the proxy.

```
body ── read ──▶ artifacts ── stages ──▶ artifacts ── write ──▶ body ── every text searched, all tokens counted ──▶ sent
```

If a request contains its whole history, its placeholders and their values are derived from this request alone, so
nothing is shared between conversations.
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
from ctxguard.adapting.json_walk import Use
from ctxguard.adapting.per_run import OnReport, notify, require_listener
from ctxguard.adapting.restoring import session_of
from ctxguard.checks.no_pii import shown_place
from ctxguard.draft import Ask, adrive, drive
from ctxguard.errors import FIXED_SHARE, ConfigError, CtxguardError, HistoryError, WireError, sensible_budget
from ctxguard.formats.format import Format
from ctxguard.formats.registry import format_of
from ctxguard.formats.requests import count_sent
from ctxguard.pii import Vault
from ctxguard.pii.mask.answers import AnswerScan, OnNewValues, scan_masker
from ctxguard.pii.mask.unmask import require_tools
from ctxguard.report import Report
from ctxguard.report.telemetry import Metrics
from ctxguard.settings import nearest, one_of, opened, share_of
from ctxguard.stabilizer import Stabilizer
from ctxguard.wire.audit import Audit, HiddenValues, version_of
from ctxguard.wire.bodies import (
    WireRequest,
    decode_request,
    is_json_lines,
    is_upload,
    parse_body,
    split_parts,
    write_body,
)
from ctxguard.wire.caches import Caches, Prompt, with_breakpoints
from ctxguard.wire.checking import TEXT_PATHS, BodyCheck, BodyTexts, Values, WireMasking
from ctxguard.wire.events import StreamForm
from ctxguard.wire.limits import RETRIED_STATUSES, Refused, Retry, retry_for
from ctxguard.wire.metering import Counters, labels_of, model_name, model_of
from ctxguard.wire.readback import ReadBack, Reading
from ctxguard.wire.replies import Reply
from ctxguard.wire.sessions import Chains, Credentials, Owner, Thread, Threads, numberings_of
from ctxguard.wire.streams import EventStream

if TYPE_CHECKING:
    from ctxguard.formats.format import Weave
    from ctxguard.pii.mask.masking_rules import Strategies
    from ctxguard.stores import Store

OnUnreadable = Literal["refuse"] | Sequence[str]

_LOG: Final = logging.getLogger("ctxguard.wire")
HEADERS: Final = "x-ctxguard"
"""Prefix of the names of the headers that ctxguard defines."""
SESSION_HEADER: Final = f"{HEADERS}-session"
"""The header in which a client names its session. The header is not forwarded."""
_UNLIMITED: Final = 10**12
"""Budget in tokens for a request that is not cut, because its conversation is in the holdout group."""
_SIGNED: Final = "AWS4-"
"""Prefix of the authorization header of a request to Amazon. The header has a signature that covers the body."""
_SAMPLE: Final = "Write to ada@example.com, or call +1 212 555 0123 about order 4111 1111 1111 1111."
"""A text that most types of rules match."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The request to send in place of the client's, and the data for restoring its response.

    Attributes:
        body: The body to send.
        report: The report. None if the request is forwarded without being stabilized.
        reply: Restores masked values in the response. None if there is nothing to restore.
        tokens: Number of input tokens in the body.
        budget: The budget in tokens.
        refused: The reasons for which the provider refused earlier attempts of this request.
        is_redacted: Whether values were redacted in a request that has texts but no history. None for all other
            requests.
        reading: Answers the model's recall calls. None if the request does not have the recall tool.
        billed_to: The labels under which the billed tokens of the request are counted.
        hidden: The number of placeholders in the body, see `HiddenValues`. None if the original body is sent.
        prompt: Compares the prompt with the provider's cache. None if the history is stored at the provider.
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
        """Response headers that tell the client counts, but no text. Empty if the request was not read."""
        if self.report is None:
            return {} if self.is_redacted is None else {f"{HEADERS}-masked": str(int(self.is_redacted))}
        counts = {**self.brief(self.report), **({"observed": 1} if self.report.observed else {})}
        return {f"{HEADERS}-{name.replace('_', '-')}": str(count) for name, count in counts.items()}

    def brief(self, report: Report) -> dict[str, int]:
        """Return the counts in a report, with the token count of the whole body as it is sent.

        If the stabilizer only observes, the counts describe the body that would have been sent.
        """
        return {**report.brief(), **({} if report.observed else {"tokens_after": self.tokens})}

    def may_be_sent_again(self, status: int) -> bool:
        """Return whether a response with this status may be a refusal that a changed request can avoid."""
        return self.report is not None and status in RETRIED_STATUSES

    @property
    def is_read(self) -> bool:
        """Whether the response has to be read, to restore values or to answer recall calls."""
        return self.reply is not None or self.reading is not None

    def follow(self, answer: bytes) -> WireRequest | None:
        """Return the follow-up request that answers the recall calls in a response. None if no follow-up is needed."""
        return None if self.reading is None else self.reading.follow_whole(answer)

    def whole(self, answer: bytes) -> bytes:
        """Return the body of a response for the client: with values restored, and without recall calls."""
        if self.reply is not None and self.reply.format.streams_lines and is_json_lines(answer):
            stream = self.stream(form="lines")
            return stream.feed(answer) + stream.close()
        answer = answer if self.reading is None else self.reading.whole(answer)
        return answer if self.reply is None else self.reply.whole(answer)

    def stream(self, weave: Weave | None = None, *, form: StreamForm = "events") -> EventStream:
        """Return the object that processes a streamed response.

        Args:
            weave: The attribute `weave` of the previous response's `EventStream` if this response continues that one.
            form: What the stream consists of: server-sent events, Amazon's frames, or JSON lines.

        Raises:
            WireError: If the response does not have to be read.
        """
        if not self.is_read:
            raise WireError("this response does not need to be read", status=500)
        return EventStream(self.reply, self.reading, weave, form=form)


class GuardSettings(TypedDict, total=False):
    """The settings of `Guard`. All are optional.

    Attributes:
        strategy: How values are masked if the masker of the stabilizer redacts. The default, `pseudonymize`, allows
            restoring the values in responses.
        on_unreadable: What to do with requests that the guard cannot read, such as uploads of images. `refuse`, the
            default, refuses them. A list of path patterns, such as `["/v1/files", "/v1/files/*"]`, forwards requests to
            matching paths unread and unmasked. A pattern matches the end of a path. Requests that the guard can read,
            including uploads of texts, are never forwarded unread.
        max_body: Maximum number of bytes in the body of a request, 50 million by default.
        vault: Where the placeholders of sessions, conversations, and stored responses are kept. All workers that serve
            the same clients must share its store. None means the memory of this process.
        keep_thinking: Whether to keep signed thinking that was produced before a cut, see
            `ctxguard.stages.DropStaleThinking`. None keeps it if a request has `thinking: {"type": "enabled"}`, because
            Anthropic then refuses a tool loop without its thinking.
        max_answer: Maximum number of decompressed bytes in a response that is not streamed, 50 million by default.
        credentials: Which headers and query parameters separate sessions. `docs/wire.md` lists those that do not.
        takes_sessions: Whether clients may name sessions, True by default. Several workers without a shared vault
            cannot support sessions.
        cache_control: Whether to mark prefixes of a request for the prompt cache of Anthropic, or of OpenAI from
            `gpt-5.6` on, if the client marks none; see `ctxguard.wire.caches.with_breakpoints`.
        recall: Whether models can read texts that were shortened or evicted: a store for these texts, or True for a
            store in memory. Models get a tool `recall` in Chat Completions, Responses, Anthropic Messages, and Gemini.
        holdout: Share of conversations, such as `5%`, whose requests are masked but not cut, to measure what cuts save.
        on_report: Function called with the report on each request. `report.session` is the session that the client
            named.
        tools: Which tools receive real values in their arguments: True or False by tool name or pattern (`crm_*`), by
            `outward` for tools that reach outside (mail, HTTP, messages, a shell), and by `*` for all others. By
            default, all tools do.
        new_values: What to do with values that the model itself writes in an answer or in the arguments of a tool, such
            as an address that it made up: `pass` (the default) does not look for them, `report` counts them in the
            metric `new_values` by kind, `mask` redacts them, and `refuse` ends the answer with an error. A streamed
            text is then held back to the end of its line or sentence and 64 characters more, at most 512 characters; a
            run without spaces to its end, at most 20,000 characters; JSON and the arguments of calls to their
            end. Reasoning is not searched.
        audit: Called with the record of each request and the body before the body is sent: a `ctxguard.wire.AuditLog`,
            or a function. If it raises an exception, nothing is sent. Async clients and the proxy call it in a thread,
            possibly several times at once.
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
    new_values: OnNewValues


def _guard_of(kind: type[Guard], stabilizer: Stabilizer, settings: GuardSettings) -> Guard:
    return kind(stabilizer, **settings)


class Guard:
    """Guards requests to models as they are sent, and restores values in the responses. Thread-safe.

    Copies and pickles have the same settings, and start with no conversation and all counts at zero.

    The guard reads the formats in `ctxguard.formats`. The whole body is counted and masked, the history is stabilized,
    and a body in which a rule still matches is not sent.

    Args:
        stabilizer: The stabilizer, whose rules define what is personal data. Without a `MaskPII` stage, nothing is
            masked.
        **settings: See `GuardSettings`.

    Attributes:
        metrics: Counts of events.
        refusals: The message of the latest refusal, by the name of the error and the HTTP status.

    Raises:
        ConfigError: If a setting cannot be used.
    """

    def __init__(self, stabilizer: Stabilizer, **settings: Unpack[GuardSettings]) -> None:
        if untaken := settings.keys() - GuardSettings.__annotations__.keys():
            name, known = min(untaken), GuardSettings.__annotations__
            raise ConfigError(f"Guard takes no setting {name!r}{nearest(name, known)}", setting=name)
        self.stabilizer: Stabilizer = require_stabilizer(stabilizer)
        self._settings = settings
        self.strategy: Strategies = settings.get("strategy", "pseudonymize")
        self.unread_paths: tuple[str, ...] = _unread_paths(settings.get("on_unreadable", "refuse"))
        self.max_body: int = settings.get("max_body", 50_000_000)
        self.max_answer: int = settings.get("max_answer", 50_000_000)
        self.takes_sessions: bool = settings.get("takes_sessions", True)
        self.on_report: OnReport | None = require_listener(settings.get("on_report"))
        self._audit = settings.get("audit")
        self._tools = require_tools(settings.get("tools", {}))
        self._cache_control = settings.get("cache_control", False)
        if (holdout := share_of(settings.get("holdout", "0%"))) is None:
            message = f"holdout is a share of the conversations such as '5%', not {settings['holdout']!r}"
            raise ConfigError(message, setting="holdout")
        self._holdout: float = holdout
        self._keeps_thinking = settings.get("keep_thinking")
        self._credentials = settings.get("credentials", Credentials())
        vault = settings.get("vault")
        if vault is not None and not hasattr(vault, "session"):
            message = f"vault is that of all sessions here, not {type(vault).__name__}; write vault=Vault(store, key=…)"
            raise ConfigError(message, setting="vault")
        self._threads = Threads(vault)
        self.metrics: Metrics = Metrics()
        self.refusals: dict[tuple[str, str], str] = {}
        self._caches = Caches(self.metrics)
        read = settings.get("recall", False)
        self._read_back = None if read is False else ReadBack(None if read is True else opened(read), self.metrics)
        self._masking = [WireMasking(one, self.strategy) for one in stabilizer.stages.maskers]
        self._detectors = [detector for masking in self._masking for detector in masking.detectors]
        self._check = BodyCheck(self._detectors)
        self._rules = version_of(self._detectors)
        self._new_values: OnNewValues = one_of(settings.get("new_values", "pass"), OnNewValues, "new_values")
        own = stabilizer.stages.detectors
        if self._new_values != "pass" and not own:
            message = "new_values needs a stabilizer that masks: its rules say what a value is"
            raise ConfigError(message, setting="new_values")
        self._scan_masker = None if self._new_values == "pass" else scan_masker(own)
        self._values = Values()
        self._hidden = HiddenValues()
        self._warned: set[str] = set()
        self._counters = Counters(stabilizer.counter)
        self._chains = self._reading_chains = Chains(stabilizer, self._masking)
        if self._read_back is not None:
            self._reading_chains = Chains(self._read_back.storing(stabilizer), self._masking)

    def __reduce__(self) -> tuple[object, ...]:
        return _guard_of, (type(self), self.stabilizer, self._settings)

    def prepare(self, request: WireRequest) -> Prepared:
        """Return the request to send in place of a client's request.

        Raises:
            WireError: If the request cannot be read, or is too large.
            HistoryError: If a message cannot be read.
            BudgetExceededError: If the mandatory messages do not fit.
            CheckFailedError: If a rule matches in something that must not be changed.
            AuditError: If the request cannot be recorded.
        """
        return drive(self.preparing(request))

    async def aprepare(self, request: WireRequest) -> Prepared:
        """Asynchronous version of `prepare`, for summarizers or stores that are asynchronous."""
        return await adrive(self.preparing(request))

    def passes_unread(self, path: str) -> bool:
        """Return whether requests to a path are forwarded unread; log a warning the first time this is the case."""
        if path.rstrip("/").endswith(TEXT_PATHS) or format_of("POST", path) is not None:
            return False
        found = next((p for p in self.unread_paths if fnmatchcase(path.rstrip("/"), f"*{p.rstrip('/')}")), None)
        if found is None:
            return False
        if found not in self._warned:
            self._warned.add(found)
            _LOG.warning("requests to %s are forwarded unread and unmasked, as on_unreadable allows", found)
        return True

    def warm(self) -> None:
        """Load and compile everything that the first request needs. Nothing is sent or counted."""
        for detector in self._detectors:
            detector.find(_SAMPLE)
        sample = {"model": "gpt-4o", "messages": [{"role": "user", "content": _SAMPLE}]}
        request = WireRequest("POST", "/v1/chat/completions", {}, write_body(sample))
        Guard(Stabilizer.from_policy("agent", budget=10_000)).prepare(request)

    def preparing(self, request: WireRequest, retry: Retry | None = None) -> Generator[Ask, object, Prepared]:
        """Do the same as `prepare`, as a generator that yields an `Ask` for each I/O operation."""
        try:
            prepared = yield from self._enforce(request, retry)
        except (CtxguardError, RecursionError) as error:
            if self.stabilizer.mode == "enforce":
                refusal = WireError("the body is nested too deeply") if isinstance(error, RecursionError) else error
                yield from self.recording(request.path, request.headers, refusal)
                raise refusal from None
            prepared = Prepared(request.body)
        except Exception as error:
            if self.stabilizer.mode == "enforce":
                raise
            # to observe changes nothing, whatever goes wrong; only the type is logged, because messages may hold texts
            self.metrics.add("failures", cause="observing")
            _LOG.error("a request could not be observed and is sent as it is: %s", type(error).__name__)
            prepared = Prepared(request.body)
        yield from self.recording(request.path, request.headers, prepared)
        self._note(prepared, request, retry)
        return prepared

    def recording(
        self, path: str, headers: Mapping[str, str], done: Prepared | Exception | None
    ) -> Generator[Ask, object, None]:
        """Record what is done with a request, before it is sent. In an event loop, this happens in a thread.

        Args:
            path: The path of the URL.
            headers: The headers, with names in lower case.
            done: The request to send, or the error if nothing is sent. None if the request is forwarded unread.

        Raises:
            AuditError: If the request cannot be recorded.
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
        yield Ask(self._audit, (self._shown_in(record), prepared.body if isinstance(done, Prepared) else None))

    def _shown_in(self, value: Any) -> Any:  # noqa: ANN401 - a JSON value
        """Return a JSON value with each text in it, keys included, as `shown` returns it."""
        if isinstance(value, str):
            return self.shown(value)
        if isinstance(value, Mapping):
            return {self.shown(key): self._shown_in(member) for key, member in value.items()}
        return value

    def shown(self, text: str) -> str:
        """Return a text, or "…" if a rule matches in it.

        Names of sessions, models, and paths are shown this way, because clients choose them.
        """
        return "…" if self._check.labels_in(text, Use.TEXT) else text

    def preparing_again(
        self, request: WireRequest, prepared: Prepared, status: int, answer: bytes
    ) -> Generator[Ask, object, Prepared | None]:
        """Return another attempt at a request that the provider refused. None if another attempt would not help.

        A prompt that was too long is prepared again with a smaller budget. Thinking that was signed for another prompt
        is dropped. Both changes then apply to the whole conversation, see `Stabilizer.tighten`. If the provider
        requires thinking that is missing, the request is prepared again with the thinking. For each of these reasons, a
        request is tried again only once.

        Args:
            request: The request as the client sent it.
            prepared: The first attempt.
            status: The HTTP status of the response.
            answer: The body of the response.
        """
        found = self._refusal(prepared, status, answer)
        if found is None:
            return None
        try:
            again = yield from self.preparing(request, found)
        except CtxguardError:  # the provider's own error is more informative
            return None
        return replace(again, refused=prepared.refused | {found.why})

    def _refusal(self, prepared: Prepared, status: int, answer: bytes) -> Retry | None:
        """Return why the provider refused a request, and the next budget; None if another attempt would not help."""
        if self.stabilizer.mode == "observe" or not prepared.may_be_sent_again(status):
            return None
        found = retry_for(status, answer, tokens=prepared.tokens, budget=prepared.budget, keeps=self._keeps_thinking)
        if found is None or found.why in prepared.refused:
            return None
        self.metrics.add("retries")
        return found

    def _keeps(self, body: Mapping[str, object], retry: Retry | None) -> bool:
        """Return whether signed thinking from before a cut is kept.

        If the provider refused an earlier attempt because of thinking, this refusal decides. Otherwise the setting
        `keep_thinking` decides or, if it is None, the request.
        """
        if retry is not None and retry.why != "too long":
            return retry.why == "missing thinking"
        is_enabled = get(body.get("thinking"), "type") == "enabled"
        return is_enabled if self._keeps_thinking is None else self._keeps_thinking

    def note_refusal(self, name: str, status: int, message: str) -> None:
        """Count a request that is not sent, and remember the error message."""
        self.metrics.add("refused", error=name, status=str(status))
        self.refusals[name, str(status)] = self.shown(message)

    def _note(self, prepared: Prepared, request: WireRequest, retry: Retry | None) -> None:
        """Count what was done with a request, and pass its report to the application."""
        report, is_clients = prepared.report, _is_clients(request, retry)
        if report is None:
            self.metrics.add("passed_unread", int(bool(prepared.body) and prepared.is_redacted is None))
            self.metrics.add("masked_requests", int(bool(prepared.is_redacted)))
            return
        self.metrics.add("input.tokens", prepared.tokens, side="sent")
        self.metrics.add("input.tokens", is_clients * report.tokens_before, side="received")
        if report.cut is not None:
            # If a conversation is long when the guard first sees it, the cut is not fresh for the stages, but it is new
            # for the provider: the cut is counted, and no tokens are billed again.
            is_first = prepared.prompt is not None and prepared.prompt.is_first
            self.metrics.add("cuts", int(report.cut.fresh or is_first))
            self.metrics.add("rebilled.tokens", 0 if report.observed or is_first else report.cut.rebilled)
        for kind in (prepared.hidden or {}).keys() - {"LITERAL"} if is_clients else ():
            self.metrics.add("masked_kinds", kind=kind)
        self.metrics.add("masked_requests", int(is_clients and report.brief()["masked"] > 0))
        notify(self.on_report, report, request.headers.get(SESSION_HEADER))

    def _enforce(self, request: WireRequest, retry: Retry | None) -> Generator[Ask, object, Prepared]:
        kind = format_of(request.method, request.path)
        has_texts = kind is None and request.method == "POST" and request.path.rstrip("/").endswith(TEXT_PATHS)
        uploads = is_upload(request.method, request.path)
        encoding = request.headers.get("content-encoding", "")
        if encoding and (kind is not None or has_texts or uploads):
            headers = {name: value for name, value in request.headers.items() if name != "content-encoding"}
            request = replace(request, body=decode_request(request.body, encoding, self.max_body), headers=headers)
        if len(request.body) > self.max_body:
            message = f"the body has {len(request.body):,} bytes and may have {self.max_body:,}; raise max_body"
            raise WireError(message, status=413)
        upload = split_parts(request.headers, request.body) if uploads else None
        has_texts = has_texts or upload is not None
        api = "texts" if has_texts else "unknown" if kind is None else kind.api
        self.metrics.add("requests", int(_is_clients(request, retry)), api=api)
        if kind is None and not request.body:
            self._refuse_part(request)
            return Prepared(b"")
        if kind is None and not has_texts:
            return self._forward_unread(request)
        if request.headers.get("authorization", "").startswith(_SIGNED):
            why = "the client signed the request, so the guard cannot change it"
            raise WireError(f"{why} (for boto3: ctxguard_bedrock.guarded)", status=403)
        if kind is None:
            return self._redact(request, upload)
        try:
            body = self._with_shared_messages(kind, parse_body(request.body))
            kind.native(body)
        except (HistoryError, WireError) as error:
            raise WireError(str(error)) from error
        return (yield from self._stabilize(kind, request, body, retry))

    def _refuse_part(self, request: WireRequest) -> None:
        """Refuse to return a response that the provider stores in parts, because the parts contain hidden calls."""
        path, _, answer = request.path.rstrip("/").rpartition("/")
        kind, read_back = format_of("POST", path) if request.method == "GET" else None, self._read_back
        if kind and read_back and read_back.is_divided(self._owner(kind, replace(request, path=path)).scope, answer):
            raise WireError("the provider stored this response in parts; use the answer that was streamed", status=409)

    def _redact(self, request: WireRequest, upload: tuple[str, list[str]] | None) -> Prepared:
        """Return a request that has texts but no history (JSON or an upload), with its values redacted."""
        if self.stabilizer.mode == "observe":
            return Prepared(request.body)
        divider, parts = upload or ("", [])
        body: Mapping[str, Any] = parse_body(request.body) if upload is None else {"parts": parts}
        told_apart = self._check.told_apart(body)
        cleaned: Mapping[str, Any] = self._check.clean(told_apart, told_apart)
        sent = write_body(cleaned) if upload is None else divider.join(cleaned["parts"]).encode()
        hidden = self._hidden.of(cleaned if upload is None else {"upload": cleaned["parts"]})
        billed_to = {"model": model_name(model_of(body, request.path))}
        return Prepared(sent, is_redacted=cleaned is not body, billed_to=billed_to, hidden=hidden)

    def _with_shared_messages(self, kind: Format, body: dict[str, object]) -> dict[str, object]:
        """Return a body that reuses the message objects of earlier requests, so that no message is read twice."""
        history = body.get(kind.history)
        if isinstance(history, list):
            body[kind.history] = list(map(self._values.same, history))
        return body

    def _forward_unread(self, request: WireRequest) -> Prepared:
        """Forward a request that the guard cannot read. If the settings do not allow this, refuse the request."""
        if self.passes_unread(request.path):
            return Prepared(request.body)
        shown = shown_place(request.path, self._detectors)
        message = f"ctxguard cannot read {request.method} requests to this path; to forward them unread and"
        name = f"on_unreadable=[{shown!r}] (serve: --on-unreadable {shown})"
        raise WireError(f"{message} unmasked, name the path: {name}", status=403)

    def _stabilize(
        self, kind: Format, request: WireRequest, body: Mapping[str, object], retry: Retry | None
    ) -> Generator[Ask, object, Prepared]:
        owner = self._owner(kind, request)
        is_incremental, thread = self._thread(kind, body, owner)
        self.metrics.add("unknown_threads", int(thread.redacts and _is_clients(request, retry)))
        keeps = self._keeps(body, retry)
        opening = self._caches.opening(kind, body, owner)
        client = body
        body = self._check.told_apart(body)
        numberings = numberings_of(kind, client) if kind.api == "responses" else [b""]
        body, thread = self._chains.as_written(kind, body, owner, thread, numberings)
        is_held_out = not is_incremental and int.from_bytes(opening[:4]) < self._holdout * (1 << 32)
        read_back = None if is_held_out else self._read_back
        reading = None if read_back is None else read_back.reading(kind, request, body, client, owner.scope)
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
            body = yield from reading.begin(stabilizer, self._check)
        named = self._caches.named(kind, body, owner)
        prompt = None if is_incremental else Prompt(self._caches, kind, body, model, opening, named)
        anchored = list if prompt is None else prompt.anchored
        stored = (named and self._caches.sizes.get(named)) or 0
        texts = BodyTexts.of(kind, body, self._check, stabilizer, window, stored)
        tightened = {"budget": retry.budget, "window": window} if retry and retry.why != "missing thinking" else None
        sent, report, tokens = yield from texts_flow(
            *(stabilizer, chain.adapter, kind.native(texts.body), texts),
            window=window,
            tightened=tightened,
            anchored=anchored,
        )
        # count the client's body, without the recall tool and the hidden calls that the guard added
        if reading is not None:
            report.tokens_before = stored + count_sent(asked, kind, stabilizer.counter).tokens
        if prompt is not None:
            prompt.note_sent(report, request.body)
        hidden = None if sent is None else self._hidden.of(sent)  # None if the original body is sent
        fields: dict[str, Any] = {"billed_to": billed_to, "prompt": prompt, "hidden": hidden}
        if sent is None:
            return Prepared(request.body, report, None, report.tokens_before, report.budget, **fields)
        self._warn_of_fixed(report, stabilizer.budget_for(window, with_headroom=True))
        if self._cache_control:
            sent = with_breakpoints(sent, kind, model)
        reply = self._reply(kind, body, report, owner, thread, numberings[-1])
        prepared = Prepared(write_body(sent), report, reply, tokens, report.budget, reading=reading, **fields)
        if reading is not None:
            reading.note_sent(prepared.body, report, reply)
        return prepared

    def _note_new_value(self, label: str) -> None:
        self.metrics.add("new_values", kind=label)

    def _thread(self, kind: Format, body: Mapping[str, object], owner: Owner) -> tuple[bool, Thread]:
        """Return whether the history of a request is stored at the provider, and where its placeholders are stored."""
        previous, conversation = (body.get(key) for key in ("previous_response_id", "conversation"))
        is_incremental = kind.api == "responses" and bool(previous or conversation)
        held = {"previous": previous, "conversation": conversation} if is_incremental else {}
        return is_incremental, self._threads.of(owner, **held)

    def _warn_of_fixed(self, report: Report, budget: int) -> None:
        """Log a warning, once, if the system prompt and the tools leave little of the budget for the history."""
        if "fixed parts" not in self._warned and (fixed := report.fixed) > FIXED_SHARE * budget:
            self._warned.add("fixed parts")
            held = "cached content" in report.details
            _LOG.warning(
                "the system prompt and the tools%s take %d of %d tokens (%d%%); the smallest sensible budget is %d",
                *(
                    ", and the cached content that the request names," if held else "",
                    fixed,
                    budget,
                    100 * fixed // budget,
                    sensible_budget(fixed + report.saved_on_tools),
                ),
            )

    def _owner(self, kind: Format, request: WireRequest) -> Owner:
        """Return the sender of a request, identified by everything in the request that may be a credential."""
        session = request.headers.get(SESSION_HEADER)
        if session is not None and not self.takes_sessions:
            message = "several workers without a shared store cannot keep sessions; give --store"
            raise WireError(f"{SESSION_HEADER}: {message}")
        headers = {name: value for name, value in request.headers.items() if name != SESSION_HEADER}
        return Owner(self._credentials.digest(headers, request.query, kind.base(request.path)), session)

    def _reply(
        self,
        kind: Format,
        body: Mapping[str, object],
        report: Report,
        owner: Owner,
        thread: Thread,
        numbering: bytes,
    ) -> Reply | None:
        session, scan = session_of(report.masks), None
        if self._scan_masker is not None:
            scan = AnswerScan(self._scan_masker, self._new_values, self._note_new_value)
        has_items = kind.api == "responses"
        is_stored = has_items and body.get("store") is not False
        if session is None or not (session.can_restore or has_items or scan is not None):
            return None
        return Reply(
            session,
            kind,
            wants_json=kind.wants_json(body),
            tools=self._tools,
            names_host=report.user_names,
            scan=scan,
            on_id=(lambda name: self._threads.note_answer(owner, name, thread, session.pseudonyms))
            if is_stored
            else None,
            on_item=partial(self._chains.note_item, owner, numbering, session.pseudonyms) if has_items else None,
        )


def _is_clients(request: WireRequest, retry: Retry | None) -> bool:
    """Return whether a request comes from a client, rather than being a follow-up or another attempt of the guard."""
    return request.turn is None and retry is None


def _unread_paths(given: object) -> tuple[str, ...]:
    if given == "refuse":
        return ()
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(p, str) and p for p in given):
        message = f"on_unreadable is 'refuse' or a list of paths such as ['/v1/files'], not {given!r}"
        raise ConfigError(message, setting="on_unreadable")
    return tuple(given)
