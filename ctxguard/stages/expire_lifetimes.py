"""Drop artifacts when their lifetime ends: after a number of turns, or at an event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter

from ctxguard.artifacts import Artifact, Kind, Lifetime
from ctxguard.draft import Draft
from ctxguard.errors import ConfigError
from ctxguard.history import Exchange, exchanges, is_asked


class ExpireLifetimes:
    """Drops each exchange that contains an artifact whose lifetime has ended.

    A lifetime with `until` ends when a later artifact lists that name in its `events`, or when a later exchange has a
    result of the tool with that name. For example, `{"snapshot": Lifetime(until="snapshot")}` keeps only the latest
    snapshot. Pinned artifacts never expire, and neither does an open exchange, whose tool calls have no results yet.

    Args:
        rules: Lifetimes of artifacts that have no lifetime of their own, by name of the tool or by kind (such as
            `"tool"`). The name of a tool takes precedence over the kind.

    Raises:
        ConfigError: If `rules` is not a mapping, or a value in it is not a `Lifetime`.
    """

    name = "ExpireLifetimes"

    def __init__(self, rules: Mapping[str, Lifetime] | None = None) -> None:
        self.rules = _parse_rules({} if rules is None else rules)

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft without expired exchanges."""
        if not self.rules and not any(map(attrgetter("lifetime"), draft.artifacts)):
            return draft
        ages = _ages(draft.artifacts)
        found = exchanges(draft.artifacts)
        last_seen = {event: position for position, one in enumerate(draft.artifacts) for event in one.events}
        last_results = _last_results(found)
        expired: dict[int, str] = {}
        for exchange in found:
            why = self._why_expired(exchange, ages, last_seen, last_results)
            # An open exchange still waits for results, which could not be sent without their calls.
            if why and not exchange.open:
                expired.update((id(artifact), why) for artifact in exchange.artifacts)
        left = (a for a in draft.artifacts if id(a) not in expired)
        return draft.revise(left, reason=expired, cause="lifetime")

    def _why_expired(
        self, exchange: Exchange, ages: list[int], last_seen: Mapping[str, int], last_results: Mapping[str, int]
    ) -> str:
        for artifact, position in zip(exchange.artifacts, exchange.positions, strict=True):
            lifetime = artifact.lifetime or self._by_rule(artifact, exchange)
            # A pin takes precedence over a lifetime.
            if lifetime is None or artifact.pinned:
                continue
            if lifetime.turns is not None and ages[position] >= lifetime.turns:
                return f"lived {lifetime.turns} turns"
            if lifetime.until is None:
                continue
            if (
                # Parallel results in one exchange are equally new, so positions of exchanges are compared.
                last_seen.get(lifetime.until, -1) > position
                or last_results.get(lifetime.until, -1) > exchange.positions[0]
            ):
                return f"lived until {lifetime.until!r}"
        return ""

    def _by_rule(self, artifact: Artifact, exchange: Exchange) -> Lifetime | None:
        if not self.rules:
            return None
        if artifact.kind is Kind.TOOL:
            name = _tool_of(artifact, exchange)
            # The name comes first, because it is more specific than the kind.
            if name in self.rules:
                return self.rules[name]
        return self.rules.get(artifact.kind.value)


def _parse_rules(rules: object) -> dict[str, Lifetime]:
    if not isinstance(rules, Mapping):
        raise _config_error(rules, "dict")
    for lifetime in rules.values():
        if not isinstance(lifetime, Lifetime):
            raise _config_error(lifetime, "Lifetime")
    return dict(rules)


def _config_error(given: object, expected: str) -> ConfigError:
    example = "{'search': Lifetime(turns=2)}"
    return ConfigError(f"lifetimes are a dict such as {example}; {given!r} is not a {expected}", setting="lifetimes")


def _ages(artifacts: tuple[Artifact, ...]) -> list[int]:
    """Return for each artifact how many turns have begun after it. Messages that stages wrote begin no turn."""
    total = 0
    turns = []
    for artifact in artifacts:
        total += is_asked(artifact)
        turns.append(total)
    return [total - turn for turn in turns]


def _last_results(found: Sequence[Exchange]) -> dict[str, int]:
    """Return for each tool the position in the history at which the exchange with the tool's latest result begins."""
    return {
        name: exchange.positions[0]
        for exchange in found
        for artifact in exchange.artifacts
        if artifact.kind is Kind.TOOL and (name := _tool_of(artifact, exchange))
    }


def _tool_of(result: Artifact, exchange: Exchange) -> str | None:
    return result.name or {call.id: call.name for call in exchange.artifacts[0].calls}.get(result.answers)
