"""The main loop: stages transform a draft, checks verify it, and the report explains the result.

The core is a generator that requests I/O and never does it itself; `Stabilizer.stabilize` and `Stabilizer.astabilize`
run it with the two drivers in `ctxguard.draft`.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NoReturn, TypeVar, Unpack

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Ask, CallSettings, Cut, Draft, Stage, drive, refuse, stage_name
from ctxguard.draft.drivers import asynchronous, flow_of, synchronous
from ctxguard.errors import BESIDE, BudgetExceededError, CheckFailedError, ConfigError, CtxguardError, HistoryError
from ctxguard.history.overflows import Overflows
from ctxguard.policies import POLICIES, default_stages, not_taken, settings_taken, stabilizer_defaults, suiting
from ctxguard.report import CheckResult, Report
from ctxguard.report.telemetry import Watch
from ctxguard.session import Context, Run, Runs, Session, Stabilized, in_own_objects, with_own_count
from ctxguard.settings import callables, one_of, valid_budget, whole_number
from ctxguard.stages.mask_pii import MaskPII
from ctxguard.stages.stable_window import StableWindow
from ctxguard.stages.window_settings import WINDOW_SETTINGS, WindowOptions
from ctxguard.tokens import ArtifactCounter, TokenCounter, find_counter
from ctxguard.tokens.accuracy import Headroom, kept_free, valid_headroom
from ctxguard.tokens.provider_counter import ProviderCounter
from ctxguard.tokens.windows import Window, window_of

if TYPE_CHECKING:
    from ctxguard.checks import Check
    from ctxguard.compaction.briefs import Brief
    from ctxguard.session import NativeAdapter

__all__ = ["Ask", "Context", "Cut", "Draft", "Session", "Stabilized", "Stabilizer", "Stage"]


T = TypeVar("T")
OnFailure = Literal["report", "raise"]
Mode = Literal["enforce", "observe"]

_UNBOUNDED: Final = 10**12
_TIGHTER: Final = 0.6
"""Share of the budget that is used once the provider said that a prompt was too long."""


class Stabilizer:
    """Keep conversations inside a budget, paired, masked and stable. Safe to share between threads and sessions.

    Args:
        budget: tokens that the whole request may take (`8_000` or `"8k"`); or a share of the model's input window
            (`"80%"`) if `model`, the caller or the adapter names the model or the window.
        stages: your own chain, in order; None means that of the policy `default`, which serves agents and conversations
            alike. `from_policy` selects another policy by name, and takes its settings, such as `rules`.
        checks: the checks of the result; None means `ctxguard.checks.ALL_CHECKS`.
        keep_recent: number of latest user and assistant messages that are always kept.
        keep_task: keep the first user message as the task, unless it takes more than a quarter of the budget.
        provider: also check the role and pairing rules of `openai`, `anthropic`, `gemini` or `strict`; all but `openai`
            require the user to speak first, so earlier assistant messages are dropped (`StartWithUser`); `strict` also
            joins messages of the same role in a row (`MergeMessageRuns`), since its templates refuse them.
        counter: see `ctxguard.tokens.find_counter`.
        model: name of the model; its vocabulary and framing are used for counting, its measured counting error as
            headroom, and its window if the budget is a share (see `ctxguard.tokens.windows`).
        headroom: the part of the budget that is kept free for the reply and for errors of our token count: tokens
            (`1_000`), a share (`0.1`), or `measured`: the error that covers 99 of 100 recorded requests of the model's
            family, reduced to a third once the history contains counts of the provider (`Artifact.reported`). Without a
            `model`, `measured` is nothing, and the report says that the count is not a provider's. If the provider
            counted more than we did, later counts are corrected, see `docs/tokens.md`. 0 takes our counts as exact:
            nothing is kept free, and nothing is corrected.
        on_failure: `report` says in the report that a check failed; `raise` raises `CheckFailedError`.
        mode: `enforce`, or `observe`: the report says what would have been done, and the original is sent, even if the
            request would have been refused. Adapters, guards, and the proxy follow it.
        shorten_tools: where whole requests are stabilized, send shorter descriptions of tools if their schemas take
            more than a quarter of the budget, see `docs/tokens.md`. Lists of tools that are only counted never change.
        **window: settings of the default chain's window: those of `ctxguard.stages.WindowSettings`.

    Raises:
        ConfigError: a setting is unknown or out of range.
        TokenizerError: the named counter is not on this machine.
    """

    def __init__(
        self,
        budget: int | str | None = None,
        *,
        stages: Sequence[Stage] | None = None,
        checks: Sequence[Check] | None = None,
        keep_recent: int = 2,
        keep_task: bool = True,
        provider: str | None = None,
        counter: str | TokenCounter | Callable[[str], int] = "auto",
        model: str | None = None,
        headroom: Headroom = "measured",
        on_failure: OnFailure = "report",
        mode: Mode = "enforce",
        shorten_tools: bool = True,
        **window: Unpack[WindowOptions],
    ) -> None:
        from ctxguard.checks import ALL_CHECKS, provider_profile

        untaken = [name for name in window if name not in WINDOW_SETTINGS]
        if untaken:
            raise not_taken(untaken[0], _settings_of(Stabilizer))
        self.budget: int | str = valid_budget(budget)
        self.on_failure: OnFailure = one_of(on_failure, OnFailure, "on_failure")
        self.mode: Mode = one_of(mode, Mode, "mode")
        profile = () if provider is None else (provider_profile(provider),)
        wanted = callables(default_stages(embed=None, **window) if stages is None else stages, "stages")
        self.stages: tuple[Stage, ...] = suiting(wanted, profile[0]) if profile else wanted
        judging = callables(ALL_CHECKS if checks is None else checks, "checks", named=True)
        self.checks: tuple[Check, ...] = (*judging, *profile)
        self.keep_recent: int = whole_number(keep_recent, "keep_recent", unit="messages")
        self.keep_task = keep_task
        self.shorten_tools = shorten_tools
        self.headroom: Headroom = valid_headroom(headroom)
        self.counter: ArtifactCounter = ArtifactCounter(find_counter(counter, model=model))
        self._window = None if model is None else window_of(model)
        self._details: Mapping[str, object] = {}
        self._runs = Runs()
        self._overflows = Overflows()

    @classmethod
    def from_policy(cls, policy: str, budget: int | str | None = None, **settings: object) -> Stabilizer:
        """Return a stabilizer of a named policy.

        Args:
            policy: one of `ctxguard.policies.POLICIES`.
            budget: see `Stabilizer`.
            settings: of the policy (`target`, `rules`, …) or of `Stabilizer`.

        Raises:
            ConfigError: no such policy or setting.
        """
        general = _settings_of(cls) - {"stages"} - set(WINDOW_SETTINGS)
        own = settings_taken(policy, settings, general)
        chain = POLICIES[policy](**{n: value for n, value in settings.items() if n in own and value is not None})
        rest = {name: value for name, value in settings.items() if name in general and name not in own}
        return cls(budget, stages=chain, **{**stabilizer_defaults(policy), **rest})  # type: ignore[arg-type]  # checked by name above

    @classmethod
    def from_config(cls, path: str | Path | None = None, **settings: object) -> Stabilizer:
        """Return the stabilizer that a configuration file describes.

        Args:
            path: the YAML file; None means `ctxguard.yaml` or `config.yaml` in the working directory.
            settings: as for `from_policy`, including `budget` and `policy`; they override those of the file.

        Raises:
            ConfigError: the file cannot be read, or its `stabilizer` section names no budget.
        """
        from ctxguard.config.loading import load_context_config, settings_source

        config = load_context_config(path)
        section = config.stabilizer
        configured = section.model_dump(exclude={"store"}, exclude_unset=True)
        chosen: dict[str, object] = {"policy": section.policy, **configured, **settings}
        if chosen.get("budget") is None:
            source = settings_source(path) or f"no file in {Path.cwd()}"
            raise ConfigError(f"no budget is configured ({source}); set stabilizer.budget", setting="stabilizer.budget")
        names = chosen.get("rules")
        if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
            from ctxguard.pii.rule_sets import named_rules

            chosen["rules"] = named_rules(*names)
        given = {name: value for name, value in chosen.items() if value is not None}
        made = cls.from_policy(**given)  # type: ignore[arg-type]  # names and types are checked there
        if config.pii.is_default:
            return made
        from ctxguard.pii.own_rules import own_masker

        masked = (
            MaskPII(masker=own_masker(s.masker, config.pii)) if isinstance(s, MaskPII) else s for s in made.stages
        )
        return made.with_(stages=[*masked])

    def with_(
        self,
        *,
        stages: Sequence[Stage] | None = None,
        checks: Sequence[Check] | None = None,
        budget: int | str | None = None,
        headroom: Headroom | None = None,
        counter: ArtifactCounter | None = None,
        details: Mapping[str, object] | None = None,
    ) -> Stabilizer:
        """Return a stabilizer with some settings changed; None keeps the old value. Caches are shared.

        `details` are added to those of each report.
        """
        own = copy.copy(self)
        own.stages = self.stages if stages is None else callables(stages, "stages")
        own.checks = self.checks if checks is None else callables(checks, "checks", named=True)
        own.budget = self.budget if budget is None else valid_budget(budget)
        own.headroom = self.headroom if headroom is None else valid_headroom(headroom)
        own.counter = self.counter if counter is None else counter
        own._details = self._details if details is None else details  # noqa: SLF001 - another one of its own class
        return own

    def __repr__(self) -> str:
        chain = " > ".join(map(stage_name, self.stages))
        budget = f"{self.budget} tokens" if isinstance(self.budget, int) else f"{self.budget} of the window"
        return f"<Stabilizer: {budget}, counted by {self.counter.counter.name}; {chain}>"

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Say what to give a framework that calls the stabilizer itself, as its hook or as a step of a chain.

        Raises:
            ConfigError: Always.
        """
        guards = "ContextGuard, ContextGuardMiddleware, history_processor, pre_model_hook, or call_model_input_filter"
        told = f"a Stabilizer is not a hook; give the framework a guard that is made with it: {guards}"
        raise ConfigError(f"{told}, such as ContextGuard(stabilizer)", setting="stabilizer")

    @synchronous
    def stabilize(
        self,
        artifacts: Iterable[Artifact],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        overhead: int = 0,
        window: int | None = None,
    ) -> Generator[Ask, object, Stabilized]:
        """Return the stabilized context of a history and the report. The history is not changed.

        Args:
            artifacts: the whole history up to now.
            tools: tool schemas that are sent along, which are counted.
            overhead: tokens of everything else that is sent with the artifacts, without the tools.
            window: the model's context window in tokens, if the budget is a share of it.

        Raises:
            BudgetExceededError: the mandatory messages do not fit.
            HistoryError: an item is not an artifact.
            CheckFailedError: a check failed and `on_failure="raise"`.
        """
        history = tuple(_require_iterable(artifacts))
        yield from _ask_provider(self.counter.counter, (), tools)
        call = self._settings(tools, overhead, window, history)
        try:
            return self._with_window((yield from self._stabilized(history, call)), window)
        except BudgetExceededError:
            overflow = call.overflow
            if overflow is None:
                raise
            if overflow.at == len(history):  # this very prompt was refused, and there is no shorter one
                self._overflows.forget(history)
                raise
        # the smaller budget was a guess that newer messages exceed: let the provider decide on the whole prompt
        self._overflows.note(history, self.budget_for(window), before=call.budget)
        call = self._settings(tools, overhead, window, history)
        return self._with_window((yield from self._stabilized(history, call)), window)

    astabilize = asynchronous(stabilize)
    """Do the same as `stabilize`, with summarizers or stores that may be async."""
    flow = flow_of(stabilize)
    """Do the same as `stabilize`, as a generator that yields an `Ask` for all I/O.

    The basis of everything that is both sync and async; `drive` and `adrive` of `ctxguard.draft` run it.
    """

    def _with_window(self, result: Stabilized, window: int | None) -> Stabilized:
        """Add to the report which window the budget is a share of, and where its size comes from."""
        if isinstance(self.budget, str):
            result.report.details = {**result.report.details, "window": self._window_for(window).to_dict()}
        return result

    def plan(
        self,
        artifacts: Iterable[Artifact],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        overhead: int = 0,
        window: int | None = None,
    ) -> Report:
        """Return the report of a dry run: what `stabilize` would do. Nothing is written anywhere.

        I/O with side effects is refused, and stages report what they would do without it.
        """
        history = tuple(_require_iterable(artifacts))
        run = Run(self.stages, self._settings(tools, overhead, window, history))
        run.extend(history)
        return drive(self._judged(run, dry=True), answer=refuse).report

    @synchronous
    def brief(self, history: Iterable[object], *, for_: str = "", budget: int = 1_000) -> Generator[Ask, object, Brief]:
        """Return what another agent, or a new conversation, should know of a history; no model writes it.

        The task, standing instructions and what else people said, what matches it or the next task in everything else,
        files with their last use, steps, and what is still open. Masked, and with handles if the chain has a store.

        Args:
            history: artifacts, or messages of an installed adapter. Not changed.
            for_: what the brief is for, in words, such as the task of a subagent: what matches it is preferred.
            budget: tokens that the brief may take, 100 or more.

        Raises:
            AdapterError: no installed adapter knows the messages.
            ConfigError: the budget is no number of tokens, or too small.
            HistoryError: the history is empty, or a message cannot be read.
        """
        from ctxguard.compaction.briefs import brief_flow

        window = next((stage for stage in self.stages if isinstance(stage, StableWindow)), StableWindow())
        given = list(_require_iterable(history))
        return (yield from brief_flow(given, self.masking().flow, self.counter, window, for_=for_, budget=budget))

    abrief = asynchronous(brief)
    """Do the same as `brief`, with async stores."""

    def masking(self) -> Stabilizer:
        """Return a stabilizer that masks as this one does, and leaves nothing out."""
        last = max((n for n, stage in enumerate(self.stages, 1) if isinstance(stage, MaskPII)), default=0)
        return self.with_(stages=self.stages[:last], checks=(), budget=_UNBOUNDED, headroom=0)

    def session(
        self,
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        overhead: int = 0,
        window: int | None = None,
        adapter: NativeAdapter | None = None,
    ) -> Session:
        """Return a session: one growing conversation whose `context()` only costs what is new.

        Args:
            tools: tool schemas that are sent along, which are counted.
            overhead: tokens of everything else that is sent with the artifacts, without the tools.
            window: the model's context window in tokens, if the budget is a share of it.
            adapter: reads and writes native messages; None means the installed one that knows the first message.
        """

        def start(stages: Sequence[Stage], reads: NativeAdapter | None) -> Run:
            # native messages are counted as adapters count a request: with the opening tokens of the reply
            beside = overhead if reads is None else overhead + self.counter.beside()
            return Run(stages, self._settings(tools, beside, window))

        return Session(self.stages, start, self._judged, adapter)

    def tighten(self, artifacts: Iterable[Artifact], *, budget: int | None = None, window: int | None = None) -> None:
        """Give a conversation a smaller budget from here on, because the provider refused its prompt as too long.

        It applies to the next `stabilize` of this history and of every longer one that begins with it. Signed thinking
        in the history is dropped from then on, because it is bound to the longer prompts (`DropStaleThinking`). Other
        processes do not know of the new budget.

        Args:
            artifacts: the history whose prompt was refused.
            budget: tokens that prompts may take now; None means six tenths of the previous budget.
            window: the model's context window in tokens, if the budget is a share of it.
        """
        history = tuple(_require_iterable(artifacts))
        before = self._settings(None, 0, window, history).budget
        self._overflows.note(history, int(_TIGHTER * before) if budget is None else budget, before=before)

    def budget_for(self, window: int | None = None, *, with_headroom: bool = False) -> int:
        """Return the budget in tokens, without the headroom unless requested.

        Args:
            window: the model's context window in tokens, if the budget is a share of it.
            with_headroom: include the part that is kept free.

        Raises:
            ConfigError: the budget is a share and no window is known, or the headroom leaves nothing.
        """
        full, kept, _ = self._share_out(window)
        return full if with_headroom else full - kept

    def _share_out(self, window: int | None) -> tuple[int, int, int]:
        """Return the budget in tokens, the part of it that is kept free, and how much of that is released later."""
        if isinstance(self.budget, int):
            tokens = self.budget
        else:
            tokens = int(self._window_for(window) * float(self.budget[:-1]) / 100)
        return (tokens, *kept_free(self.counter.counter, self.headroom, tokens))

    def _window_for(self, window: int | None) -> Window:
        """Return the window of a call: the caller's, else that of the model."""
        found = self._window if window is None else window
        if found is None:
            raise ConfigError(
                f"a budget of {self.budget!r} needs the model's window, and it is not known here; "
                "give the budget in tokens, or name model=…, or window=… with the call: stabilize(…, window=200_000)",
                setting="budget",
            )
        return found if isinstance(found, Window) else Window(found)

    def _stabilized(self, history: tuple[Artifact, ...], call: CallSettings) -> Generator[Ask, object, Stabilized]:
        key = (self.stages, call)
        run = self._runs.take(history, key) or Run(self.stages, call, key)
        run.extend(history[len(run.given) :])
        try:
            result = yield from self._judged(run)
        finally:
            self._runs.keep(run)  # of a call that failed, too: what comes next would else begin with the whole history
        return replace(result, artifacts=in_own_objects(result.artifacts, run.history, run.given, history))

    def _settings(
        self,
        tools: Sequence[Mapping[str, object]] | None,
        overhead: int,
        window: int | None,
        history: Sequence[Artifact] = (),
    ) -> CallSettings:
        full, kept, regained = self._share_out(window)
        overflow = self._overflows.of(history)
        budget = full - kept if overflow is None else min(full - kept, overflow.budget)
        return CallSettings(
            budget=budget,
            kept_free=(("headroom", kept), ("refused prompt", full - kept - budget)),
            regained=regained if overflow is None else 0,
            overflow=overflow,
            counter=self.counter,
            overhead=whole_number(overhead, "overhead", unit="tokens") + self.counter.tools(tools),
            keep_recent=self.keep_recent,
            keep_task=self.keep_task,
            calibrate=self.headroom != 0,
        )

    def _judged(self, run: Run, *, dry: bool = False) -> Generator[Ask, object, Stabilized]:
        """Run a chain over the history of a run, verify the result by the checks, and emit telemetry."""
        watch = Watch()
        try:
            result = yield from self._unobserved(run, dry=dry)
        except CtxguardError as error:
            if not dry:
                watch.failed(error)
            if self.mode == "enforce" or dry:
                raise
            return self._passed_on(run, error)
        if self.mode == "observe" and not dry:
            result.report.details = {**result.report.details, "mode": "observe"}
            result = Stabilized(list(run.history), result.report)
        if not dry:
            watch.ended(result.report)
        return result

    def _passed_on(self, run: Run, error: CtxguardError) -> Stabilized:
        """Return a history unchanged, if an error is only observed."""
        given = tuple(run.history)
        draft = Draft(given, run.settings, history=given)
        report = Report(draft, cut=None, tokens_after=draft.tokens, checks=())
        report.details = {**self._details, "mode": "observe", "would_have_raised": type(error).__name__}
        return Stabilized(list(given), report)

    def _unobserved(self, run: Run, *, dry: bool) -> Generator[Ask, object, Stabilized]:
        asked = None if dry else (yield from _ask_provider(self.counter.counter, run.history))
        draft, cut = yield from run.stabilized(dry=dry)
        if asked is not None:
            draft = replace(draft, details={**draft.details, "count_tokens": asked})
        draft = replace(draft, details={**draft.details, **self._details})
        tokens = draft.tokens
        if tokens > draft.budget:
            raise _exceeded(draft)
        results = tuple(_verdict(check, draft) for check in self.checks)
        report = Report(draft, cut=cut, tokens_after=tokens, checks=results)
        if self.on_failure == "raise" and self.mode == "enforce" and not report.ok:
            raise CheckFailedError(tuple(f"{r.name}: {finding}" for r in results for finding in r.findings))
        own = [with_own_count(artifact, self.counter) for artifact in draft.artifacts]
        return Stabilized(own, report)


def _ask_provider(
    counter: object, history: Sequence[Artifact], tools: Sequence[Mapping[str, object]] | None = None
) -> Generator[Ask, object, str | None]:
    """Ask a provider for the counts that its counter does not know; return what the report says, None if nothing."""
    if not isinstance(counter, ProviderCounter):
        return None
    new = counter.unknown(history, tools)
    if not new:
        return None
    try:
        yield Ask(counter.fetch, (new,), counter.timeout)
    except Exception as error:  # noqa: BLE001 - whatever keeps the provider from counting, the estimate is used
        counter.give_up(new)
        why = f"no answer within {counter.timeout:g} s" if isinstance(error, TimeoutError) else str(error)
        return f"{len(new)} new items were estimated: {why}"
    return f"{len(new)} new items were counted by the provider"


def _settings_of(kind: type[Stabilizer]) -> set[str]:
    """Return the names of the settings, without the budget."""
    parameters = inspect.signature(kind).parameters.values()
    own = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    return own.union(WINDOW_SETTINGS)


def _verdict(check: Check, draft: Draft) -> CheckResult:
    """Return the result of a check; if it holds, including its claim, if it makes one (`claim`)."""
    findings = tuple(check(draft))
    claim = None if findings else getattr(check, "claim", None)
    return CheckResult(check.name, findings, "" if claim is None else claim(draft))


def _require_iterable(artifacts: Iterable[T]) -> Iterable[T]:
    try:
        iter(artifacts)
    except TypeError:
        raise HistoryError(f"expected a list of artifacts, got {type(artifacts).__name__}") from None
    return artifacts


def _exceeded(draft: Draft) -> BudgetExceededError:
    parts: dict[str, int] = {BESIDE: draft.overhead}
    for artifact in draft.artifacts:
        name = "pinned" if artifact.pinned and artifact.kind not in (Kind.SYSTEM, Kind.TASK) else artifact.kind.value
        parts[name] = parts.get(name, 0) + draft.counter.artifact(artifact)
    return draft.exceeded(parts)
