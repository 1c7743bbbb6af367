"""The `Stabilizer`: stages transform a history into a context, checks verify the context, and a report explains it.

The methods are written as generators that request I/O and never do it themselves. Decorators from
`ctxguard.draft` turn each into a sync and an async method, such as `stabilize` and `astabilize`.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NoReturn, TypeVar, Unpack, cast

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import (
    Ask,
    CallSettings,
    Chain,
    Cut,
    Draft,
    Stage,
    asynchronous,
    drive,
    flow_of,
    refuse,
    stage_name,
    synchronous,
)
from ctxguard.errors import BESIDE, BudgetExceededError, CheckFailedError, ConfigError, CtxguardError, HistoryError
from ctxguard.history.conversation import Overflows
from ctxguard.policies import POLICIES, default_stages, not_taken, settings_taken, stabilizer_defaults, suiting
from ctxguard.report import CheckResult, Report
from ctxguard.report.places import in_words
from ctxguard.report.telemetry import Watch
from ctxguard.session import Context, Run, Runs, Session, Stabilized, in_own_objects, with_own_count
from ctxguard.settings import NotMiddleware, callables, one_of, right_line, switch, valid_budget, whole_number
from ctxguard.stages.fold import WINDOW_SETTINGS, WindowOptions
from ctxguard.stages.stable_window import StableWindow
from ctxguard.tokens import ArtifactCounter, TokenCounter, find_counter
from ctxguard.tokens.families import Headroom, Window, kept_free, valid_headroom, window_of
from ctxguard.tokens.provider_counter import ProviderCounter

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
"""Share of the budget that is used after the provider refused a prompt as too long."""


class Stabilizer:
    """Turns the history of a conversation into the context that is sent to the model.

    The context stays within a token budget, each tool call in it has its result, and personal data is masked. From call
    to call, the context keeps its beginning, so that prompt caches apply. A stabilizer can be shared between threads
    and conversations.

    Args:
        budget: Maximum number of tokens in the whole request (`8_000` or `"8k"`), or a share of the model's input
            window (`"80%"`). For a share, the model or the window must be known: from `model`, from the argument
            `window` of a call, or from the adapter.
        stages: Your own chain of stages, in order; None means the chain of the policy `default`, which suits both
            agents and conversations. To use another policy, or settings of a policy such as `rules`, call
            `from_policy`.
        checks: The checks that verify the context; None means `ctxguard.checks.ALL_CHECKS`.
        keep_recent: Number of latest user and assistant messages that are always kept.
        keep_task: Whether to keep the first user message as the task, unless it takes more than a quarter of the
            budget.
        provider: Also check the rules of a provider for roles and tool calls: `openai`, `anthropic`, `gemini`, or
            `strict` (the chat templates of local models). All except `openai` require that the user speaks first, so
            earlier assistant messages are dropped (`StartWithUser`). `strict` also joins adjacent messages of the same
            role (`MergeMessageRuns`). None checks no such rules.
        counter: How tokens are counted, see `ctxguard.tokens.find_counter`.
        model: Name of the model. Tokens are counted with its vocabulary and with the tokens that it adds to each
            message. The measured error of these counts is the default `headroom`. The model's window is used if the
            budget is a share (see `ctxguard.tokens.families`).
        headroom: The part of the budget that is kept free for the reply and for errors in our token counts: a number of
            tokens (`1_000`), a share of the budget (`0.1`), or `"measured"`. `"measured"` keeps free the counting error
            that 98% of recorded requests to models of the same family did not exceed. Once the history contains counts
            that the provider reported (`Artifact.reported`), only a third of this is kept free. Without `model`,
            `"measured"` keeps nothing free, and the report states that the counts are not those of a provider. If the
            provider reported more tokens than we counted, later counts are corrected, see `docs/tokens.md`. With 0, our
            counts are taken as exact: nothing is kept free and nothing is corrected.
        on_failure: What happens if a check fails: `report` mentions the failure in the report, `raise` raises a
            `CheckFailedError`.
        mode: `enforce` applies the changes. `observe` sends the original messages and only reports what would have been
            done, even if an error would have been raised. Adapters, guards, and the proxy respect the mode.
        shorten_tools: Whether to shorten the descriptions of tools if their schemas take more than a quarter of the
            budget, see `docs/tokens.md`. This applies where ctxguard handles the whole request. The argument `tools` of
            `stabilize` is only counted.
        **window: Settings of the window in the default chain, see `ctxguard.stages.WindowSettings`. With `stages`, give
            them to your own chain, as in `agent_stages(on_overflow="bound")`.

    Raises:
        ConfigError: If a setting is unknown or out of range, or if `stages` and settings of the window are given.
        TokenizerError: If the tokenizer of the named counter is not installed.
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
        if window and stages is not None:
            name, value = next(iter(window.items()))
            raise ConfigError(
                f"{name} is a setting of the default chain, which stages=… replaces; "
                f"give it to your own chain: stages=agent_stages({name}={value!r})",
                setting=name,
            )
        self.budget: int | str = valid_budget(budget)
        self.on_failure: OnFailure = one_of(on_failure, OnFailure, "on_failure")
        self.mode: Mode = one_of(mode, Mode, "mode")
        profile = () if provider is None else (provider_profile(provider),)
        wanted = callables(default_stages(embed=None, **window) if stages is None else stages, "stages")
        self.stages: Chain = suiting(wanted, profile[0]) if profile else Chain(wanted)
        judging = callables(ALL_CHECKS if checks is None else checks, "checks", named=True)
        self.checks: tuple[Check, ...] = (*judging, *profile)
        self.keep_recent: int = whole_number(keep_recent, "keep_recent", unit="messages")
        self.keep_task: bool = switch(keep_task, "keep_task")
        self.shorten_tools: bool = switch(shorten_tools, "shorten_tools")
        self.headroom: Headroom = valid_headroom(headroom)
        self.counter: ArtifactCounter = ArtifactCounter(find_counter(counter, model=model))
        self._window = None if model is None else window_of(model)
        self._details: Mapping[str, object] = {}
        self._runs = Runs()
        self._overflows = Overflows()

    @classmethod
    def from_policy(cls, policy: str, budget: int | str | None = None, **settings: object) -> Stabilizer:
        """Return a stabilizer with the chain of a named policy.

        Args:
            policy: Name of a policy, one of `ctxguard.policies.POLICIES`.
            budget: See `Stabilizer`.
            settings: Settings of the policy (such as `target` or `rules`) or of `Stabilizer`.

        Raises:
            ConfigError: If the policy or a setting does not exist, or if a setting is out of range.
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
            path: The path of a YAML file; None means `ctxguard.yaml` or `config.yaml` in the working directory.
            settings: Settings that override those of the file: `policy`, `budget`, and the settings of `from_policy`.

        Raises:
            ConfigError: If the file cannot be read, a setting is invalid, or no budget is given.
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
            from ctxguard.pii.rule_sets import named_detectors

            chosen["rules"] = named_detectors(*names)
        given = {name: value for name, value in chosen.items() if value is not None}
        made = cls.from_policy(**given)  # type: ignore[arg-type]  # names and types are checked there
        if config.pii.is_default:
            return made
        from ctxguard.pii.own_rules import own_masker

        return made.with_(stages=made.stages.with_maskers(lambda masker: own_masker(masker, config.pii)))

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
        """Return a copy of the stabilizer with some settings changed. The copy and the original share their caches.

        Args:
            stages: See `Stabilizer`. Here and below, None keeps the current value.
            checks: See `Stabilizer`.
            budget: See `Stabilizer`.
            headroom: See `Stabilizer`.
            counter: The counter of artifacts.
            details: Entries that are added to the `details` of each report.
        """
        own = copy.copy(self)
        if stages is not None:
            own.stages = stages if isinstance(stages, Chain) else Chain(callables(stages, "stages"))
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

    wrap_tool_call = NotMiddleware()

    def __call__(self, *given: object, **named: object) -> NoReturn:
        """Raise an error that explains what to pass to a framework in place of the stabilizer itself.

        Frameworks call this if a stabilizer is passed as a hook or as a step of a chain by mistake.

        Raises:
            ConfigError: Always.
        """
        message = f"a Stabilizer is not a hook; {right_line(*given, *named.values())}"
        raise ConfigError(message, setting="stabilizer")

    @synchronous
    def stabilize(
        self,
        artifacts: Iterable[Artifact],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        overhead: int = 0,
        window: int | None = None,
    ) -> Generator[Ask, object, Stabilized]:
        """Return the stabilized context of a history, and a report. The history is not changed.

        Args:
            artifacts: The whole history of the conversation up to now.
            tools: The tool schemas of the request, whose tokens are counted.
            overhead: Number of tokens in the rest of the request, that is, not in artifacts or tool schemas.
            window: The model's input window in tokens. Only used if the budget is a share of the window; None means
                the window of `model`.

        Raises:
            BudgetExceededError: If the mandatory messages exceed the budget.
            HistoryError: If an item is not an artifact.
            CheckFailedError: If a check failed and `on_failure` is `"raise"`.
            ConfigError: If the budget is a share, and no window is known.
        """
        history = tuple(_require_iterable(artifacts))
        yield from _ask_provider(self.counter.counter, (), tools)
        call = self._settings(tools, overhead, window, history)
        try:
            return self._with_window((yield from self._stabilize(history, call)), window)
        except BudgetExceededError:
            overflow = call.overflow
            if overflow is None:
                raise
            if overflow.at == len(history):  # the prompt for this very history was refused, and cannot be shorter
                self._overflows.forget(history)
                raise
        # The smaller budget after a refusal was a guess, and newer messages exceed it. With the original budget, the
        # provider decides.
        self._overflows.note(history, self.budget_for(window), before=call.budget)
        call = self._settings(tools, overhead, window, history)
        return self._with_window((yield from self._stabilize(history, call)), window)

    astabilize = asynchronous(stabilize)
    """The async version of `stabilize`, for summarizers or stores that are async."""
    flow = flow_of(stabilize)
    """`stabilize` as a generator that yields an `Ask` for all I/O. `drive` and `adrive` in `ctxguard.draft` run it."""

    def _with_window(self, result: Stabilized, window: int | None) -> Stabilized:
        """If the budget is a share of the model's window, add the window and the source of its size to the report."""
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
        """Return the report of a dry run, which says what `stabilize` would do. The arguments are those of `stabilize`.

        All I/O is refused, so no summarizer or store is called. Stages report what they would do without I/O.
        """
        history = tuple(_require_iterable(artifacts))
        run = Run(self.stages, self._settings(tools, overhead, window, history))
        run.extend(history)
        return drive(self._run_checked(run, dry=True), answer=refuse).report

    @synchronous
    def brief(self, history: Iterable[object], *, for_: str = "", budget: int = 1_000) -> Generator[Ask, object, Brief]:
        """Return a brief of a history, from which another agent or a new conversation can continue. No model is called.

        A brief contains the task, standing instructions and other user messages, sentences from other messages that
        match the user messages or `for_`, the files that were used, the steps, and what is still open. Personal data is
        masked. If the chain has a store, the brief names handles by which full texts can be read back.

        Args:
            history: Artifacts, or native messages of an installed framework. They are not changed.
            for_: What the brief is for, such as the task of a subagent. Text that matches is preferred.
            budget: Maximum number of tokens in the brief, at least 100.

        Raises:
            AdapterError: If no installed adapter recognizes the messages.
            ConfigError: If the budget is not a number of tokens, or too small.
            HistoryError: If the history is empty, or a message cannot be read.
        """
        from ctxguard.compaction.briefs import brief_flow

        window = cast("StableWindow | None", self.stages.window) or StableWindow()
        given = list(_require_iterable(history))
        return (yield from brief_flow(given, self.masking().flow, self.counter, window, for_=for_, budget=budget))

    abrief = asynchronous(brief)
    """The async version of `brief`, for stores that are async."""

    def masking(self) -> Stabilizer:
        """Return a stabilizer that masks like this one, but has no budget and evicts nothing."""
        return self.with_(stages=self.stages.up_to_masking(), checks=(), budget=_UNBOUNDED, headroom=0)

    def session(
        self,
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        overhead: int = 0,
        window: int | None = None,
        adapter: NativeAdapter | None = None,
    ) -> Session:
        """Return a session for one growing conversation. Its `context()` only processes new messages.

        Args:
            tools: The tool schemas of the requests, whose tokens are counted.
            overhead: Number of tokens in the rest of each request, that is, not in messages or tool schemas.
            window: The model's input window in tokens. Only used if the budget is a share of the window; None means
                the window of `model`.
            adapter: The adapter that reads and writes native messages; None means the installed adapter that recognizes
                the first message.
        """

        def start(stages: Sequence[Stage], reads: NativeAdapter | None) -> Run:
            # As in adapters, native messages are counted with the tokens that open the model's reply.
            beside = overhead if reads is None else overhead + self.counter.beside()
            return Run(stages, self._settings(tools, beside, window))

        return Session(self.stages, start, self._run_checked, adapter)

    def tighten(self, artifacts: Iterable[Artifact], *, budget: int | None = None, window: int | None = None) -> None:
        """Reduce the budget of a conversation after the provider refused its prompt as too long.

        The new budget applies to all histories that begin with this one, or with its part up to the latest reply.
        Signed thinking in this part is dropped from now on, because it was signed together with longer prompts
        (`DropStaleThinking`). The new budget is only known in this process.

        Args:
            artifacts: The history whose prompt was refused.
            budget: The new budget in tokens; None means 60% of the previous one.
            window: The model's input window in tokens. Only used if the budget is a share of the window; None means
                the window of `model`.
        """
        history = tuple(_require_iterable(artifacts))
        before = self._settings(None, 0, window, history).budget
        self._overflows.note(history, int(_TIGHTER * before) if budget is None else budget, before=before)

    def budget_for(self, window: int | None = None, *, with_headroom: bool = False) -> int:
        """Return the budget in tokens, by default without the headroom.

        Args:
            window: The model's input window in tokens. Only used if the budget is a share of the window; None means
                the window of `model`.
            with_headroom: Whether to include the headroom, the part that is kept free.

        Raises:
            ConfigError: If the budget is a share and no window is known, or if the headroom leaves nothing.
        """
        full, kept, _ = self._split_budget(window)
        return full if with_headroom else full - kept

    @property
    def lacks_window(self) -> bool:
        """Whether each call must name the window, because the budget is a share of it and `model` does not tell it."""
        return isinstance(self.budget, str) and (self._window is None or self._window.source == "fallback")

    def _split_budget(self, window: int | None) -> tuple[int, int, int]:
        """Return the budget in tokens, the headroom that is kept free, and the part of the headroom released later.

        Headroom is released once the provider has reported a token count.
        """
        if isinstance(self.budget, int):
            tokens = self.budget
        else:
            tokens = int(self._window_for(window) * float(self.budget[:-1]) / 100)
        return (tokens, *kept_free(self.counter.counter, self.headroom, tokens))

    def _window_for(self, window: int | None) -> Window:
        """Return the input window for a call: the one given with the call, or else the window of `model`."""
        found = self._window if window is None else window
        if found is None:
            raise ConfigError(
                f"a budget of {self.budget!r} is a share of the model's window, which is not known here; name the "
                "model (model=… or --model) or the window (window=… or --window), or give the budget in tokens",
                setting="budget",
            )
        return found if isinstance(found, Window) else Window(found)

    def _stabilize(self, history: tuple[Artifact, ...], call: CallSettings) -> Generator[Ask, object, Stabilized]:
        key = (self.stages, call)
        run = self._runs.take(history, key) or Run(self.stages, call, key)
        run.extend(history[len(run.given) :])
        try:
            result = yield from self._run_checked(run)
            # while the run is still this call's own: another thread may extend it as soon as it is given back
            return replace(result, artifacts=in_own_objects(result.artifacts, run.history, run.given, history))
        finally:
            self._runs.keep(run)  # also after an error, because the next call would otherwise process the whole history

    def _settings(
        self,
        tools: Sequence[Mapping[str, object]] | None,
        overhead: int,
        window: int | None,
        history: Sequence[Artifact] = (),
    ) -> CallSettings:
        full, kept, regained = self._split_budget(window)
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

    def _run_checked(self, run: Run, *, dry: bool = False) -> Generator[Ask, object, Stabilized]:
        """Run the chain and the checks over the history of a run, and emit telemetry.

        In the mode `observe`, return the history unchanged.
        """
        watch = Watch()
        try:
            result = yield from self._run_unobserved(run, dry=dry)
        except CtxguardError as error:
            if not dry:
                watch.failed(error)
            if self.mode == "enforce" or dry:
                raise
            return self._pass_through(run, error)
        if self.mode == "observe" and not dry:
            result.report.details = {**result.report.details, "mode": "observe"}
            result = Stabilized(list(run.history), result.report)
        if not dry:
            watch.ended(result.report)
        return result

    def _pass_through(self, run: Run, error: CtxguardError) -> Stabilized:
        """Return the history of a run unchanged. The report names the error that would have been raised."""
        given = tuple(run.history)
        draft = Draft(given, run.settings, history=given)
        report = Report(draft, cut=None, tokens_after=draft.tokens, checks=())
        report.details = {**self._details, "mode": "observe", "would_have_raised": type(error).__name__}
        return Stabilized(list(given), report)

    def _run_unobserved(self, run: Run, *, dry: bool) -> Generator[Ask, object, Stabilized]:
        asked = None if dry else (yield from _ask_provider(self.counter.counter, run.history))
        draft, cut = yield from run.stabilize(dry=dry)
        if asked is not None:
            draft = draft.noted({"count_tokens": asked})
        draft = draft.noted(self._details)
        tokens = draft.tokens
        if tokens > draft.budget:
            raise _overflow_error(draft)
        results = tuple(_verdict(check, draft) for check in self.checks)
        report = Report(draft, cut=cut, tokens_after=tokens, checks=results)
        if self.on_failure == "raise" and self.mode == "enforce" and not report.ok:
            raise CheckFailedError(tuple(f"{r.name}: {finding}" for r in results for finding in r.findings))
        own = [with_own_count(artifact, self.counter) for artifact in draft.artifacts]
        return Stabilized(own, report)


def _ask_provider(
    counter: object, history: Sequence[Artifact], tools: Sequence[Mapping[str, object]] | None = None
) -> Generator[Ask, object, str | None]:
    """Ask the provider for the counts that `counter` does not know yet. Return a sentence for the report.

    If the provider does not answer, the counter uses estimates. If `counter` is not a `ProviderCounter`, or knows all
    counts, nothing is done and None is returned.
    """
    if not isinstance(counter, ProviderCounter):
        return None
    new = counter.unknown(history, tools)
    if not new:
        return None
    try:
        yield Ask(counter.fetch, (new,), counter.timeout)
    except Exception as error:  # noqa: BLE001 - if the provider cannot count for any reason, the estimate is used
        counter.give_up(new)
        why = f"no answer within {counter.timeout:g} s" if isinstance(error, TimeoutError) else str(error)
        return f"{len(new)} new items were estimated: {why}"
    return f"{len(new)} new items were counted by the provider"


def _settings_of(kind: type[Stabilizer]) -> set[str]:
    """Return the names of all settings of a stabilizer class except the budget."""
    parameters = inspect.signature(kind).parameters.values()
    own = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    return own.union(WINDOW_SETTINGS)


def _verdict(check: Check, draft: Draft) -> CheckResult:
    """Run a check and return its result. If nothing is found, the result contains the claim of the check, if any."""
    findings = tuple(check(draft))
    if findings:
        findings = tuple(in_words(findings, draft, getattr(check, "rules", None)))
    claim = None if findings else getattr(check, "claim", None)
    return CheckResult(check.name, findings, "" if claim is None else claim(draft))


def _require_iterable(artifacts: Iterable[T]) -> Iterable[T]:
    try:
        iter(artifacts)
    except TypeError:
        raise HistoryError(f"expected a list of artifacts, got {type(artifacts).__name__}") from None
    return artifacts


def _overflow_error(draft: Draft) -> BudgetExceededError:
    parts: dict[str, int] = {BESIDE: draft.overhead}
    for artifact in draft.artifacts:
        name = "pinned" if artifact.pinned and artifact.kind not in (Kind.SYSTEM, Kind.TASK) else artifact.kind.value
        parts[name] = parts.get(name, 0) + draft.counter.artifact(artifact)
    return draft.exceeded(parts)
