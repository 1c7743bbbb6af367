"""The settings of a framework's guard, and the stabilizer and vault of each run.

One agent can serve many conversations, because the stabilizer and the vault of a guard may be given as functions of
the framework's own run context: LangChain's `Runtime`, PydanticAI's `RunContext`, the Agents SDK's
`RunContextWrapper`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar, cast

from ctxguard.adapting.adapter import is_guard, request_flow, require_stabilizer, window_for
from ctxguard.adapting.request import Request, require_clean_schemas
from ctxguard.adapting.restoring import Restorer, restorer_for
from ctxguard.adapting.tool_calls import (
    Arguments,
    Output,
    recalled,
    tool_exchange,
    tool_output_stabilizer,
    unmask_arguments,
)
from ctxguard.artifacts import Artifact
from ctxguard.draft import Ask
from ctxguard.errors import ConfigError
from ctxguard.settings import one_of, switch, whole_number
from ctxguard.stabilizer import Stabilizer
from ctxguard.tokens.caches import Recent

if TYPE_CHECKING:
    from ctxguard.adapting.registry import Adapter
    from ctxguard.pii import SessionVault
    from ctxguard.pii.mask.answers import AnswerScan, OnNewValues
    from ctxguard.report import Report


Context = TypeVar("Context")
Choice = TypeVar("Choice")
Native = TypeVar("Native")
OnReport: TypeAlias = "Callable[[Report], object]"
"""Function that a guard calls with the report of each model call. `report.session` names the conversation.

Guards that limit the output of a tool when the tool returns also call the function with the report of that step, whose
`report.tool` is the name of the tool.
"""

_LOG: Final = logging.getLogger("ctxguard")
_REMEMBERED: Final = 256
"""Maximum number of cached stabilizers that use a run's vault. Each remembers the conversation of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The settings of a guard that are the same for all runs.

    Attributes:
        window: The model's context window in tokens. None means the window of the model in use.
        keep_thinking: Whether to keep signed thinking that was produced before a cut, see `DropStaleThinking`.
        max_result_tokens: Number of tokens above which the output of a tool is shortened when the tool returns. None
            means that outputs are not shortened at that point.
        on_report: Function called with each report.
        restore: Whether masked values are restored in the model's responses.
        new_values: What to do with values that the model itself writes in a response or in the arguments of a tool,
            such as an address that it made up: `pass` does not look for them, `report` counts them by kind in the
            report (`details["new_values"]`), `mask` redacts them, and `refuse` ends the call with a `WireError`. How
            long a streamed text is held back is said at `ctxguard.adapting.restoring.StreamRestorer`.

    Raises:
        ConfigError: If `on_report` is not a function, `max_result_tokens` is not a whole number of at least 1,
            `keep_thinking` or `restore` is not True or False, or `new_values` is not one of these, or is set without
            `restore`.
    """

    window: int | None = None
    keep_thinking: bool = False
    max_result_tokens: int | None = None
    on_report: OnReport | None = None
    restore: bool = False
    new_values: OnNewValues = "pass"

    def __post_init__(self) -> None:
        for name in ("keep_thinking", "restore"):
            switch(getattr(self, name), name)
        if self.new_values != "pass":
            from ctxguard.pii.mask.answers import OnNewValues

            one_of(self.new_values, OnNewValues, "new_values")
            if not self.restore:
                raise ConfigError("new_values needs restore=True, by which responses are read", setting="new_values")
        require_listener(self.on_report)
        if self.max_result_tokens is not None:
            whole_number(self.max_result_tokens, "max_result_tokens", unit="tokens", least=1)


@dataclass(frozen=True, slots=True)
class ForRun:
    """The stabilizer and the vault for one run.

    Attributes:
        stabilizer: The stabilizer. Its `MaskPII` stage stores values in the vault.
        vault: Restores masked values for tools. None if the guard has no vault.
        options: The settings of the guard.
        is_nameless: Whether values are redacted instead of stored in a vault, because the session has no name.
    """

    stabilizer: Stabilizer
    vault: SessionVault | None
    options: RunOptions
    is_nameless: bool = False

    @property
    def bounds_outputs(self) -> bool:
        """Whether large tool outputs are shortened when the tool returns."""
        return self.options.max_result_tokens is not None and self.stabilizer.mode == "enforce"

    def flow(
        self,
        adapter: Adapter[Native],
        request: Request[Native],
        *,
        session: object = None,
        model: object = None,
        known: int | None = None,
        overflowed: bool = False,
        is_editable: bool = True,
    ) -> Generator[Ask, object, tuple[Request[Native], Restorer | None]]:
        """Stabilize one request, and report on it.

        Args:
            adapter: The adapter of the history's format.
            request: The history, and the other parts of the request.
            session: The id of the conversation, for the report.
            model: The name of the model in use, if the framework names one; needed if the budget is a share of the
                window.
            known: Number of input tokens that the framework states for the model.
            overflowed: Whether the provider rejected this request as too long.
            is_editable: Whether the framework sends the masked instructions and tools, rather than the original ones.

        Returns:
            The stabilized request, and what restores the response to it; None if the request has no placeholders.

        Raises:
            CheckFailedError: If a rule matches in a schema that the framework sends unchanged.
        """
        options = self.options
        done, report = yield from request_flow(
            self.stabilizer,
            adapter,
            request,
            window=window_for(self.stabilizer, options.window, model, known),
            keep_thinking=options.keep_thinking,
            overflowed=overflowed,
            is_editable=is_editable,
        )
        if self.is_nameless:
            message = "the configuration names no session: values are redacted, and no vault is used"
            report.details = {**report.details, "session": message}
        notify(options.on_report, report, session)
        require_clean_schemas(report)
        return done, restorer_for(report, {} if self.vault is None else self.vault.tools, self._scan(report))

    def _scan(self, report: Report) -> AnswerScan | None:
        """Return what searches the response to a request, and notes in the report what it finds."""
        if self.options.new_values == "pass":
            return None
        from ctxguard.pii.mask.answers import AnswerScan, scan_masker

        found: Counter[str] = Counter()

        def note(label: str) -> None:
            found[label] += 1
            report.details = {**report.details, "new_values": dict(found)}

        return AnswerScan(scan_masker(self.stabilizer.stages.detectors), self.options.new_values, note)

    def unmasked(self, arguments: Arguments, tool: str = "") -> Arguments:
        """Return the arguments of a tool call, or structured output; with a vault, masked values are restored."""
        return arguments if self.vault is None else unmask_arguments(arguments, self.vault, tool=tool)

    def bounded(
        self, output: Artifact, tool: str, *, session: object = None, limit: int | None = None
    ) -> Generator[Ask, object, Artifact | None]:
        """Return the shortened output of a tool; None if the output does not have to be shortened.

        `limit` is the limit in tokens; None means `max_result_tokens`, and nothing is shortened if that is None, too.

        The limit applies to the output's text; pictures and other media stay. The output is masked as it is shortened.
        If there is a vault, masked values are restored afterwards, so that the stored history stays unmasked.
        """
        limit = self.options.max_result_tokens if limit is None else limit
        count = self.stabilizer.counter
        if limit is None or self.stabilizer.mode != "enforce":
            return None
        text = count.artifact(Artifact(output.kind, output.text, answers=output.answers))
        if text <= limit:
            return None
        media = max(0, count.artifact(output) - text)
        bounding = tool_output_stabilizer(self.stabilizer, max_tokens=limit + media)
        result = yield from bounding.flow(tool_exchange(output, tool))
        if not any(step.action == "bounded" for step in result.report.decisions[-1].steps):
            return None
        notify(self.options.on_report, result.report, session, tool=tool)
        sent = result.artifacts[-1]
        # The rest of the stored history is unmasked, too, and a placeholder in it would be treated as forged.
        vault = self.vault
        return sent if vault is None else sent.edit(lambda _, text: vault.unmask(text))

    def recalled(self, output: Output, tool: str, arguments: object) -> Generator[Ask, object, Output]:
        """Return what a tool returned. If it is a text that the stabilizer saved, restore its masked values."""
        if self.vault is None:
            return output
        stores = self.stabilizer.stages.from_masking().stores
        return (yield from recalled(output, tool, arguments, self.vault, stores))


class PerRun(Generic[Context]):
    """Chooses the stabilizer and the vault of each run. Thread-safe; caches a limited number of stabilizers.

    Args:
        stabilizer: A stabilizer, or a function that returns one for a run context.
        vault: The vault of a session, or a function that returns one for a run context. None means no vault.
        options: The settings of the guard.

    Raises:
        ConfigError: If `stabilizer` or `vault` has another type, or values are to be restored and all are redacted.
    """

    def __init__(
        self,
        stabilizer: Stabilizer | Callable[[Context], Stabilizer],
        vault: SessionVault | Callable[[Context], SessionVault] | None = None,
        options: RunOptions | None = None,
    ) -> None:
        is_choice = is_function(stabilizer) and not is_guard(stabilizer)
        self._stabilizer = stabilizer if is_choice else require_stabilizer(stabilizer)
        self._vault = vault if vault is None or is_function(vault) else require_vault(vault)
        self.options = options or RunOptions()
        if self.options.restore and vault is None and isinstance(self._stabilizer, Stabilizer):
            _require_placeholders(self._stabilizer)
        # keeping a reference to the stabilizer prevents its id() from being reused
        self._cached: Recent[tuple[int, int], tuple[Stabilizer, ForRun]] = Recent(_REMEMBERED)

    @property
    def depends_on_run(self) -> bool:
        """Whether the stabilizer or the vault depends on the run context."""
        return is_function(self._stabilizer) or is_function(self._vault)

    def of(self, context: Context) -> ForRun:
        """Return the stabilizer and the vault for a run."""
        chosen, vault = self._stabilizer, self._vault
        if not isinstance(chosen, Stabilizer):
            chosen = require_stabilizer(_chosen(chosen, context, "stabilizer"))
        if is_function(vault):
            vault = require_vault(_chosen(cast("Callable[[Context], SessionVault]", vault), context, "vault"))
        if vault is None:
            return ForRun(chosen, None, self.options)
        return self._masking(chosen, cast("SessionVault", vault))

    def of_session(self, session: Context | None) -> ForRun:
        """Return the stabilizer of a session, given its name.

        Without a name, a vault would be one that other sessions without a name use as well, so values are redacted.
        """
        run = self.of(cast("Context", session))
        if session is not None or not is_function(self._stabilizer) or not _has_vault(run.stabilizer):
            return run

        def create() -> tuple[Stabilizer, ForRun]:
            stages = run.stabilizer.stages.with_maskers(lambda masker: masker.without_placeholders())
            return run.stabilizer, ForRun(run.stabilizer.with_(stages=stages), None, self.options, is_nameless=True)

        return self._cached.get_or_put((id(run.stabilizer), 0), create)[1]

    def _masking(self, chosen: Stabilizer, vault: SessionVault) -> ForRun:
        def create() -> tuple[Stabilizer, ForRun]:
            return chosen, ForRun(_masking_into(chosen, vault), vault, self.options)

        return self._cached.get_or_put((id(chosen), id(vault)), create)[1]


def _chosen(choose: Callable[[Context], Choice], context: Context, setting: str) -> Choice:
    """Return what a function of the application chooses for a run. An error says which function raised it."""
    try:
        return choose(context)
    except Exception as error:
        error.add_note(f"raised by the function that the guard was given as {setting}, for a {type(context).__name__}")
        raise


def _has_vault(stabilizer: Stabilizer) -> bool:
    return any(masker.vault is not None for masker in stabilizer.stages.maskers)


def _require_placeholders(stabilizer: Stabilizer) -> None:
    """Raise `ConfigError` if no value can be restored, because none has a placeholder of its own."""
    given = [masker.strategy for masker in stabilizer.stages.maskers]
    ways = {way for one in given for way in ([one] if isinstance(one, str) else one.values())}
    if "pseudonymize" not in ways:
        message = (
            "restore=True has nothing to restore, because this stabilizer puts no placeholders in the place of values; "
            "give the guard vault=…, or the stabilizer a MaskPII(Masker(strategy='pseudonymize'))"
        )
        raise ConfigError(message, setting="restore")


def _masking_into(stabilizer: Stabilizer, vault: SessionVault) -> Stabilizer:
    """Return a stabilizer that stores its placeholders in a vault.

    Raises:
        ConfigError: If no stage masks: nothing would be stored in the vault, and all values would be sent.
    """
    if not stabilizer.stages.maskers:
        raise ConfigError("vault needs a stabilizer that masks; put MaskPII() among its stages", setting="vault")
    stages = stabilizer.stages.with_maskers(lambda one: one if one.vault is vault else one.with_vault(vault))
    # Return the identical object if possible, because it has cached the results of earlier calls.
    return stabilizer if stages is stabilizer.stages else stabilizer.with_(stages=stages)


def is_function(given: object) -> bool:
    """Return whether a value is a function of the run context, rather than a stabilizer, a vault, or a class."""
    # A class is callable, too, but passing one means that the parentheses were forgotten: reject it as a wrong type.
    return callable(given) and not isinstance(given, (type, Stabilizer))


def require_vault(given: object) -> SessionVault:
    """Return the vault of a session; raise `ConfigError` for anything else, such as the `Vault` of all sessions."""
    from ctxguard.pii.mask.vault import session_vault

    vault = session_vault(cast("SessionVault | None", given))
    if vault is None:
        raise ConfigError("vault is one session's, not None; get it by Vault.session('its name')", setting="vault")
    return vault


def require_listener(given: OnReport | None) -> OnReport | None:
    """Return the function to call with each report, or None; raise `ConfigError` for anything that is not callable."""
    if given is None or callable(given):
        return given
    raise ConfigError(
        f"on_report is a function that takes a report, such as reports.append, not {type(given).__name__}",
        setting="on_report",
    )


def notify(on_report: OnReport | None, report: Report, session: object = None, *, tool: str | None = None) -> None:
    """Pass a report to the application. `tool` is the name of the tool whose output was shortened, if any."""
    # The names are set on the report so that `on_report` has the same signature in all frameworks.
    report.session = None if session is None else str(session)
    report.tool = tool
    if tool is not None:
        output = report.decisions[-1]
        _LOG.info("a tool's output was bounded: %d of %d tokens are kept", output.tokens_after, output.tokens_before)
    if on_report is not None:
        on_report(report)
