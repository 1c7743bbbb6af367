"""The main loop: stages make a draft, checks judge it, the report says what happened.

The core is a generator that asks for I/O and never does it itself; `Stabilizer.stabilize` and
`Stabilizer.astabilize` run it with the two drivers in `ctxguard.draft`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import is_
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Never

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Ask, CallSettings, Cut, Draft, Stage, adrive, drive, refuse, stage_name
from ctxguard.errors import BESIDE, BudgetExceededError, CheckFailedError, ConfigError, CtxguardError, HistoryError
from ctxguard.history import Overflows
from ctxguard.policies import (
    POLICIES,
    WindowOptions,
    policy_settings,
    stabilizer_defaults,
    suiting,
    windowed_chain,
)
from ctxguard.report import CheckResult, Report
from ctxguard.report.telemetry import Watch
from ctxguard.session import Context, Run, Runs, Session, Stabilized
from ctxguard.settings import NotAHook, callables, nearest, one_of, valid_budget, whole_number
from ctxguard.tokens import ArtifactCounter, TokenCounter, find_counter
from ctxguard.tokens.accuracy import kept_free, valid_margin
from ctxguard.tokens.provider_counter import ProviderCounter

if TYPE_CHECKING:
    from ctxguard.checks import Check
    from ctxguard.session import NativeAdapter
    from ctxguard.stages.stable_window import OnOverflow

__all__ = ["Ask", "Context", "Cut", "Draft", "Session", "Stabilized", "Stabilizer", "Stage"]


OnFailure = Literal["report", "raise"]
Mode = Literal["enforce", "observe"]

_TIGHTER: Final = 0.6
"""Share of the budget that is used once the provider said that a prompt was too long."""


class Stabilizer(NotAHook):
    """Keep conversations inside a budget, paired, masked and stable. Safe to share between threads and sessions.

    Args:
        budget: tokens that everything sent may take; or a share of the model's window as `"80%"`, where the caller
            or the adapter names the window with each call.
        policy: name of the chain, one of `ctxguard.policies.POLICIES` with a window: `chat`, `agent`, `browser` or
            `recall`. `from_policy` takes their further settings, and knows the chains without a window.
        stages: a chain of one's own, in order, in place of a policy's.
        checks: what judges the result; None means `ctxguard.checks.ALL_CHECKS`.
        keep_recent: latest user and assistant messages that always stay.
        keep_task: keep the first user message as the task, unless it takes more than a quarter of the budget.
        target: share of the room that a cut frees down to; None means 0.35, or more where `StableWindow` says so.
            The lower, the rarer the cuts. The room is what system, task and the last user message leave of the budget.
            This setting and the four below are those of the policy's `StableWindow`, which documents them.
        trail: share of the room that the trail of what has left may take; None means 0.7 of what a cut leaves.
        digests: whether old outputs and arguments become digests before exchanges leave.
        weights: how much exchanges weigh against leaving, by who begins them.
        on_overflow: what happens where what must stay does not fit: `raise`, or `bound` what people said, too.
        provider: also check the role and pairing rules of `openai`, `anthropic`, `gemini` or `strict`; all but `openai`
            want the user to speak first, so that what the assistant said before goes (`StartWithUser`); with `strict`,
            messages of the same role in a row are joined (`MergeMessageRuns`), since its templates refuse them.
        counter: see `ctxguard.tokens.find_counter`.
        model: name of the model; its vocabulary, framing, and margin are used for counting.
        reserve: tokens of the budget to leave for the reply.
        margin: share of the budget to keep free because our count is an estimate. `measured` keeps free what the
            counts of the model's family fell short by in 99 of 100 recorded requests, and a third of it once the
            history says what the provider counted (see `calibrate`); where no model is named it is 0, and the report
            says that the count is not a provider's. 0 keeps nothing free.
        calibrate: where the history says how many input tokens the provider counted for a call (`Artifact.reported`)
            and they were more than ours, leave that much more room from there on: at most 2.5 times, only where at
            least 500 tokens were sent, and never so that what fits is refused. Where they exceed ours by more than a
            fifth of the budget, it is their growth from reply to reply that counts: such a prompt may have held more
            than this history does. The report's details state the error. It depends on the history alone.
        on_failure: `report` says in the report that a check failed; `raise` raises `CheckFailedError`.
        mode: `enforce`, or `observe`: the report says what would have been done, and the original is sent, also where
            something would have been refused. Adapters, guards, and the proxy keep to it.
        others: nothing; settings of a policy, such as `rules`, go to `from_policy`.

    Raises:
        ConfigError: a setting is out of range, or there is none of this name.
        TokenizerError: the counter that is named is not on this machine.
    """

    def __init__(
        self,
        budget: int | str,
        *,
        policy: str = "agent",
        stages: Sequence[Stage] | None = None,
        checks: Sequence[Check] | None = None,
        keep_recent: int = 2,
        keep_task: bool = True,
        target: float | None = None,
        trail: float | None = None,
        digests: bool = True,
        weights: Mapping[str, float] | None = None,
        on_overflow: OnOverflow = "raise",
        provider: str | None = None,
        counter: str | TokenCounter | Callable[[str], int] = "auto",
        model: str | None = None,
        reserve: int = 0,
        margin: float | Literal["measured"] = "measured",
        calibrate: bool = True,
        on_failure: OnFailure = "report",
        mode: Mode = "enforce",
        **others: Never,
    ) -> None:
        from ctxguard.checks import ALL_CHECKS, provider_profile

        if others:
            raise _untaken(next(iter(others)))
        self.budget: int | str = valid_budget(budget)
        self.on_failure: OnFailure = one_of(on_failure, OnFailure, "on_failure")
        self.mode: Mode = one_of(mode, Mode, "mode")
        profile = () if provider is None else (provider_profile(provider),)
        window = WindowOptions(target=target, trail=trail, digests=digests, weights=weights, on_overflow=on_overflow)
        wanted = callables(windowed_chain(policy, window) if stages is None else stages, "stages")
        self.stages: tuple[Stage, ...] = suiting(wanted, profile[0]) if profile else wanted
        judging = callables(ALL_CHECKS if checks is None else checks, "checks", named=True)
        self.checks: tuple[Check, ...] = (*judging, *profile)
        self.keep_recent: int = whole_number(keep_recent, "keep_recent", unit="messages")
        self.keep_task = keep_task
        self.reserve: int = whole_number(reserve, "reserve", unit="tokens")
        self.margin = valid_margin(margin)
        self.calibrate = calibrate
        self.counter: ArtifactCounter = ArtifactCounter(find_counter(counter, model=model))
        self._runs = Runs()
        self._overflows = Overflows()

    @classmethod
    def from_policy(cls, policy: str, budget: int | str, **settings: object) -> Stabilizer:
        """Return a stabilizer of a named policy.

        Args:
            policy: one of `ctxguard.policies.POLICIES`.
            budget: see `Stabilizer`.
            settings: of the policy (`target`, `rules`, …) or of `Stabilizer`.

        Raises:
            ConfigError: no such policy or setting.
        """
        if policy not in POLICIES:
            known = ", ".join(POLICIES)
            raise ConfigError(
                f"unknown policy {policy!r}{nearest(policy, POLICIES)}; known are {known}", setting="policy"
            )
        own = policy_settings(policy)
        general = _settings_of(cls) - {"stages", "policy"}
        unknown = sorted(set(settings) - own - general)
        if unknown:
            raise ConfigError(
                f"policy {policy!r} takes no setting {unknown[0]!r}{nearest(unknown[0], own | general)}; "
                f"it takes {', '.join(sorted(own | general))}",
                setting=unknown[0],
            )
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
        from ctxguard.config import load_context_config

        chosen = {**load_context_config(path).stabilizer.model_dump(exclude={"store"}), **settings}
        if chosen["budget"] is None:
            raise ConfigError("the configuration names no budget; set stabilizer.budget", setting="stabilizer.budget")
        names = chosen.pop("rules")
        if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
            from ctxguard.pii.rule_sets import named_rules

            names = named_rules(*names)
        return cls.from_policy(**chosen, **({} if names is None else {"rules": names}))

    def __repr__(self) -> str:
        chain = " > ".join(map(stage_name, self.stages))
        return f"<Stabilizer: {self.budget} tokens, counted by {self.counter.counter.name}; {chain}>"

    def stabilize(
        self,
        artifacts: Iterable[Artifact],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        overhead: int = 0,
        window: int | None = None,
    ) -> Stabilized:
        """Return the stabilized context of a history and the report. The history is not changed.

        Args:
            artifacts: the whole history up to now.
            tools: tool schemas that are sent along, to be counted.
            overhead: tokens sent beside artifacts and tools.
            window: the model's context window in tokens, where the budget is a share of it.

        Raises:
            BudgetExceededError: what must stay does not fit.
            HistoryError: an item is not an artifact.
            CheckFailedError: a check failed and `on_failure="raise"`.
        """
        return drive(self.flow(artifacts, tools=tools, overhead=overhead, window=window))

    async def astabilize(
        self,
        artifacts: Iterable[Artifact],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        overhead: int = 0,
        window: int | None = None,
    ) -> Stabilized:
        """Do what `stabilize` does, with summarizers or stores that may be async."""
        return await adrive(self.flow(artifacts, tools=tools, overhead=overhead, window=window))

    def flow(
        self,
        artifacts: Iterable[Artifact],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        overhead: int = 0,
        window: int | None = None,
    ) -> Generator[Ask, object, Stabilized]:
        """Do what `stabilize` does as a generator that yields an `Ask` for whatever needs I/O.

        What is both sync and async builds on it; `drive` and `adrive` of `ctxguard.draft` run it.
        """
        history = tuple(_require_iterable(artifacts))
        yield from self._ask_provider((), tools)
        call = self._settings(tools, overhead, window, history)
        try:
            return (yield from self._stabilized(history, call))
        except BudgetExceededError:
            overflow = call.overflow
            if overflow is None:
                raise
            if overflow.at == len(history):  # this very prompt was refused, and nothing can be sent in its place
                self._overflows.forget(history)
                raise
        # the smaller budget was a guess, and what came since does not fit into it: let the provider judge the whole one
        self._overflows.note(history, self.budget_for(window), before=call.budget)
        return (yield from self._stabilized(history, self._settings(tools, overhead, window, history)))

    def plan(
        self,
        artifacts: Iterable[Artifact],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        overhead: int = 0,
        window: int | None = None,
    ) -> Report:
        """Return the report of a dry run: what `stabilize` would do. Nothing is written anywhere.

        Requests for I/O are refused, and stages report what they would do without it.
        """
        history = tuple(_require_iterable(artifacts))
        run = Run(self.stages, self._settings(tools, overhead, window, history))
        run.extend(history)
        return drive(self._judged(run, dry=True), answer=refuse).report

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
            tools: tool schemas that are sent along, to be counted.
            overhead: tokens sent beside artifacts and tools.
            window: the model's context window in tokens, where the budget is a share of it.
            adapter: reads and writes native messages; None means the installed one that knows the first message.
        """

        def start(stages: Sequence[Stage], reads: NativeAdapter | None) -> Run:
            # native messages are counted as the adapters count a request: with the opening of the reply
            beside = overhead if reads is None else overhead + self.counter.beside()
            return Run(stages, self._settings(tools, beside, window))

        return Session(self.stages, start, self._judged, adapter)

    def tighten(self, artifacts: Iterable[Artifact], *, budget: int | None = None, window: int | None = None) -> None:
        """Give a conversation a smaller budget from here on, because the provider refused its prompt as too long.

        The next `stabilize` of the history and of all that continues it keeps within it. Signed thinking in the history
        is left out from then on: it belongs to the longer prompts (`DropStaleThinking`). Other processes do not know of
        it.

        Args:
            artifacts: the history whose prompt was refused.
            budget: tokens that prompts may take now; None means six tenths of those there were.
            window: the model's context window in tokens, where the budget is a share of it.
        """
        history = tuple(_require_iterable(artifacts))
        before = self._settings(None, 0, window, history).budget
        self._overflows.note(history, int(_TIGHTER * before) if budget is None else budget, before=before)

    def budget_for(self, window: int | None = None) -> int:
        """Return the budget in tokens, less the reserve and the margin.

        Raises:
            ConfigError: the budget is a share and no window is known, or the reserve leaves nothing.
        """
        full, kept, _ = self._share_out(window)
        return full - kept

    def _share_out(self, window: int | None) -> tuple[int, int, int]:
        """Return the budget less the reserve, the margin, and the part of it that calibration gives back."""
        if isinstance(self.budget, int):
            tokens = self.budget
        elif window is None:
            raise ConfigError(
                f"a budget of {self.budget!r} needs the model's window, and it is not known here; "
                "give the budget in tokens, or name window=…",
                setting="budget",
            )
        else:
            tokens = int(whole_number(window, "window", unit="tokens", least=1) * float(self.budget[:-1]) / 100)
        if tokens <= self.reserve:
            raise ConfigError(f"a reserve of {self.reserve} leaves nothing of a budget of {tokens}", setting="reserve")
        tokens -= self.reserve
        return (tokens, *kept_free(self.counter.counter, self.margin, tokens))

    def _stabilized(self, history: tuple[Artifact, ...], call: CallSettings) -> Generator[Ask, object, Stabilized]:
        key = (self.stages, call)
        run = self._runs.take(history, key) or Run(self.stages, call, key)
        run.extend(history[len(run.given) :])
        result = yield from self._judged(run)
        self._runs.keep(run)
        return replace(result, artifacts=_of_caller(result.artifacts, run, history))

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
            kept_free=(("reserve", self.reserve), ("margin", kept), ("refused prompt", full - kept - budget)),
            regained=regained if overflow is None else 0,
            overflow=overflow,
            counter=self.counter,
            overhead=whole_number(overhead, "overhead", unit="tokens") + self.counter.tools(tools),
            keep_recent=self.keep_recent,
            keep_task=self.keep_task,
            calibrate=self.calibrate,
        )

    def _ask_provider(
        self, history: Sequence[Artifact], tools: Sequence[Mapping[str, object]] | None
    ) -> Generator[Ask, object, str | None]:
        """Have the provider count what is new, where the caller chose its counter; return what the report says."""
        counter = self.counter.counter
        if not isinstance(counter, ProviderCounter):
            return None
        new = counter.unknown(history, tools)
        if not new:
            return None
        try:
            yield Ask(counter.fetch, (new,), counter.timeout)
        except Exception as error:  # noqa: BLE001 - whatever keeps the provider from counting, the estimate stands in
            counter.give_up(new)
            why = f"no answer within {counter.timeout:g} s" if isinstance(error, TimeoutError) else str(error)
            return f"{len(new)} new items were estimated: {why}"
        return f"{len(new)} new items were counted by the provider"

    def _judged(self, run: Run, *, dry: bool = False) -> Generator[Ask, object, Stabilized]:
        """Run a chain over what a run has taken in so far, judge the result by the checks, and tell what was done."""
        watch = Watch()
        try:
            result = yield from self._unobserved(run, dry=dry)
        except CtxguardError as error:
            if not dry:
                watch.failed(error)
            if self.mode == "enforce" or dry:
                raise
            return self._passed_on(run.history, error)
        if self.mode == "observe" and not dry:
            result.report.details = {**result.report.details, "mode": "observe"}
            result = Stabilized(list(run.history), result.report)
        if not dry:
            watch.ended(result.report)
        return result

    def _passed_on(self, history: Sequence[Artifact], error: CtxguardError) -> Stabilized:
        """Return a history as it is, where an error is only observed."""
        given = tuple(history)
        settings = CallSettings(budget=0, counter=self.counter)
        draft = Draft(given, settings, history=given)
        report = Report(draft, cut=None, tokens_after=draft.tokens, checks=())
        report.details = {"mode": "observe", "would_have_raised": type(error).__name__}
        return Stabilized(list(given), report)

    def _unobserved(self, run: Run, *, dry: bool) -> Generator[Ask, object, Stabilized]:
        asked = None if dry else (yield from self._ask_provider(run.history, None))
        draft, cut = yield from run.stabilized(dry=dry)
        if asked is not None:
            draft = replace(draft, details={**draft.details, "count_tokens": asked})
        tokens = draft.tokens
        if tokens > draft.budget:
            raise _exceeded(draft)
        results = tuple(_verdict(check, draft) for check in self.checks)
        report = Report(draft, cut=cut, tokens_after=tokens, checks=results)
        if self.on_failure == "raise" and self.mode == "enforce" and not report.ok:
            raise CheckFailedError(tuple(f"{r.name}: {finding}" for r in results for finding in r.findings))
        own = [a if a.origin is None else _counted(a, a.origin, self.counter) for a in draft.artifacts]
        return Stabilized(own, report)


def _settings_of(kind: type[Stabilizer]) -> set[str]:
    """Return the names of the settings beside the budget."""
    parameters = inspect.signature(kind).parameters.values()
    return {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}


def _untaken(setting: str) -> ConfigError:
    """Return the error for a setting that `Stabilizer` does not take; it says what to write instead."""
    policy = next((each for each in ("agent", *POLICIES) if setting in policy_settings(each)), None)
    if policy is None:
        remedy = nearest(setting, _settings_of(Stabilizer))
    else:
        remedy = f"; policies do: write Stabilizer.from_policy({policy!r}, budget=…, {setting}=…)"
    return ConfigError(f"Stabilizer takes no setting {setting!r}{remedy}", setting=setting)


def _verdict(check: Check, draft: Draft) -> CheckResult:
    """Return what a check found; where it holds, with what it claims by that, if it says so (`claim`)."""
    findings = tuple(check(draft))
    claim = None if findings else getattr(check, "claim", None)
    return CheckResult(check.name, findings, "" if claim is None else claim(draft))


def _require_iterable(artifacts: Iterable[Artifact]) -> Iterable[Artifact]:
    try:
        iter(artifacts)
    except TypeError:
        raise HistoryError(f"expected a list of artifacts, got {type(artifacts).__name__}") from None
    return artifacts


def _of_caller(artifacts: list[Artifact], run: Run, history: Sequence[Artifact]) -> list[Artifact]:
    """Return the result in terms of the caller's own objects, where the run was found by equality.

    Parsed requests are new objects in each call; what was worked out for their equals holds for them.
    """
    if all(map(is_, run.given, history)):
        return artifacts
    pairs = [(known, artifact) for known, artifact in zip(run.history, history, strict=True) if known is not artifact]
    same = {id(known): artifact for known, artifact in pairs}
    # a changed copy in the history, from a result that is fed back, shares its root with copies made of it
    roots = {id(known.root): artifact for known, artifact in pairs}
    return [same.get(id(one)) or _in_place_of(one, roots.get(id(one.origin))) for one in artifacts]


def _in_place_of(artifact: Artifact, own: Artifact | None) -> Artifact:
    return artifact if own is None else replace(artifact, origin=own.root, source=own.source)


def _counted(artifact: Artifact, origin: Artifact, counter: ArtifactCounter) -> Artifact:
    """Give a changed copy a count of its own where the artifact came with one."""
    if origin.token_count is None or artifact.token_count is not None:
        return artifact
    return replace(artifact, token_count=counter.artifact(artifact))


def _exceeded(draft: Draft) -> BudgetExceededError:
    parts: dict[str, int] = {BESIDE: draft.overhead}
    for artifact in draft.artifacts:
        name = "pinned" if artifact.pinned and artifact.kind not in (Kind.SYSTEM, Kind.TASK) else artifact.kind.value
        parts[name] = parts.get(name, 0) + draft.counter.artifact(artifact)
    return draft.exceeded(parts)
