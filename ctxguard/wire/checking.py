"""Mask a request's history with the guard's own stages, and search every text of the body before it is sent."""

from __future__ import annotations

import marshal
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

from ctxguard.adapting.fields import Path, copy_with, member_at, place_name
from ctxguard.adapting.json_walk import Use, texts_of
from ctxguard.adapting.request import COUNTED_FROM, OutsideTexts, tools_of_call
from ctxguard.artifacts import Field
from ctxguard.checks.no_pii import shown_place
from ctxguard.errors import CheckFailedError
from ctxguard.formats.requests import count_sent, tools_beyond_estimate
from ctxguard.history.pairing import is_well_formed, well_formed
from ctxguard.pii import Detector, Masker, RuleSet, SessionVault
from ctxguard.pii.mask.masking_rules import HASH_KEY_VARIABLE
from ctxguard.pii.rule_sets import for_identifiers, for_names
from ctxguard.report.places import clean_words, place_in
from ctxguard.tokens.caches import TextCache

if TYPE_CHECKING:
    from ctxguard.formats.format import Format
    from ctxguard.pii.mask.masking_rules import Strategies
    from ctxguard.report import Report
    from ctxguard.stabilizer import Stabilizer
    from ctxguard.tokens import ArtifactCounter


class Values:
    """Recognizes JSON values that occurred before, so that results cached for them can be reused.

    Histories grow at the end, so nearly every message in a request was in the previous one. The cache is bounded; it
    affects speed, but never results.
    """

    def __init__(self) -> None:
        self._seen: TextCache[object] = TextCache()

    def key(self, value: object) -> str | None:
        """Return a key that equal JSON values share if their keys have the same order. None if there is no such key."""
        try:
            # version 2 of the format has no back references, so the bytes depend only on the value
            return marshal.dumps(cast("Any", value), 2).decode("latin-1")
        except ValueError:
            return None

    def same(self, value: object) -> object:
        """Return the first object that was passed in with an equal value."""
        key = self.key(value)
        known = None if key is None else self._seen.get(key)
        if known is None and key is not None:
            self._seen.put(key, value)
        return value if known is None else known


TEXT_PATHS: Final = (
    *("/embeddings", "/completions", "/moderations", "/rerank", "/audio/speech", "/images/generations"),
    *("/messages/batches", ":embedContent", ":batchEmbedContents"),
    "/ps/mcp",  # servers of tools in the backend of ChatGPT
    *("/api/generate", "/api/embed", "/api/embeddings"),  # of Ollama
)
"""Endings of the paths of requests that contain texts, but no history that could be shortened.

Values in such requests are redacted rather than pseudonymized: the responses are not read, so values could not be
restored.
"""
_WHOSE: Final[tuple[Path, ...]] = (("user",), ("safety_identifier",), ("prompt_cache_key",), ("metadata", "user_id"))
"""Fields that say to the provider, across requests, whose request it is."""


class BodyCheck:
    """Searches bodies with the rules of a stabilizer. Thread-safe; its caches are bounded."""

    def __init__(self, detectors: Sequence[Detector]) -> None:
        from ctxguard.pii import Masker

        strict = [for_identifiers(one) for one in detectors]
        self._by_use: dict[Use, Sequence[Detector]] = {
            Use.TEXT: detectors,
            Use.NAME: for_names(detectors),
            Use.FIXED: [one for one in strict if one is not None],
        }
        self._values = Values()
        self._clean_values: TextCache[bool] = TextCache()
        self._redacting = Masker(tuple(detectors)) if detectors else None
        self._hashing: Masker | None = None
        if detectors:
            key = os.environ.get(HASH_KEY_VARIABLE) or secrets.token_bytes()
            self._hashing = Masker(tuple(detectors), strategy="hash", key=key)

    def labels_in(self, text: str, use: Use) -> Sequence[str]:
        """Return the labels of the rules that match in a text."""
        return [span.label for detector in self._by_use[use] for span in detector.find(text)]

    def told_apart(self, body: Mapping[str, object]) -> Mapping[str, object]:
        """Return a body that says whose request it is by keyed hashes in place of values.

        Numbers begin anew in each request, so a placeholder in these fields would make all people one for the provider:
        one to be blocked, one prompt cache. The hashes stay the same as long as the key does: that of the environment
        variable CTXGUARD_HASH_KEY, or else one that this object has drawn.
        """
        if self._hashing is None:
            return body
        changes: dict[Path, object] = {}
        for path in _WHOSE:
            value = member_at(body, path)
            if isinstance(value, str) and self.labels_in(f"{path[-1]}: {value}", Use.TEXT):
                masked = self._hashing.mask(value)
                # a rule may match only behind the name of the field
                changes[path] = masked if masked != value else self._hashing.mask(f"{path[-1]}: {value}")
        return copy_with(body, changes) if changes else body

    def clean(self, body: Mapping[str, object], searched: Mapping[str, object]) -> Mapping[str, object]:
        """Return a body in which no rule matches. A value that a rule still finds in a text is redacted.

        Args:
            body: The body after stabilizing.
            searched: The part of the body to search, see `Format.searched`.

        Raises:
            CheckFailedError: If a rule matches in something that must not be changed, such as a name, an id, a link, or
                a key, or if it contains half of a surrogate pair.
        """
        if self._redacting is None:
            return body
        changes: dict[Path, object] = {}
        findings: list[str] = []
        members = [(path, value, self._values.key(value)) for path, value in _members(searched)]
        unknown = [(path, value, key) for path, value, key in members if key is None or not self._clean_values.get(key)]
        for place, text, use in (placed for path, value, _ in unknown for placed in texts_of(value, path)):
            if not is_well_formed(text):
                if use is Use.FIXED:
                    findings.append(f"half of a surrogate pair was found{self._place(place.path, body)}")
                    continue
                text = str(changes.setdefault(place.path, well_formed(text)))  # noqa: PLW2901 - the text that is sent
            labels = self.labels_in(text, use)
            path = place.path if labels else ()
            if labels and use is Use.TEXT:
                changes[path] = self._redacting.mask(text)
                labels = self.labels_in(str(changes[path]), use)
            findings += [f"{label} was found{self._place(path, body)}" for label in labels]
        if findings:
            raise CheckFailedError(tuple(findings))
        if not changes:
            for _, _, key in unknown:
                if key is not None:
                    self._clean_values.put(key, value=True)
        return copy_with(body, changes)

    def _place(self, path: Path, body: Mapping[str, object]) -> str:
        """Return a place in words and as a path; "…" if a rule matches in its keys, which may come from the user."""
        words = clean_words(place_in(body, path), self._by_use[Use.TEXT])
        return f"{f': {words}' if words else ''} @ {shown_place(place_name(path), self._by_use[Use.TEXT])}"


def _members(body: Mapping[str, object]) -> Iterator[tuple[Path, object]]:
    """Yield the values in a body with their paths; lists are split into their items."""
    for key, value in body.items():
        if isinstance(value, list):
            yield (), {key: []}  # the key itself is searched, too
            yield from (((key, number), member) for number, member in enumerate(value))
        else:
            yield (), {key: value}


@dataclass(slots=True)
class BodyTexts:
    """The parts of a body outside its history, see `ctxguard.adapting.adapter.Texts`.

    Attributes:
        kind: The format of the request.
        body: The original body, but with shortened tools if they were too large.
        check: Searches the body.
        counter: Counts the tokens of the body.
        outside: The texts outside the history, such as the system prompt and the tools, in which a rule matches.
        overhead: Number of tokens in the body without its history.
        tools: Always empty, because the tools are counted in the overhead.
        is_cleaned: Whether the latest final body had values that no stage had masked, so that `check` redacted them.
        details: Entries for the `details` of the report.
        stored: Number of tokens that the provider stores and puts before the prompt.
    """

    kind: Format
    body: Mapping[str, object]
    check: BodyCheck
    counter: ArtifactCounter
    outside: OutsideTexts
    overhead: int
    tools: Sequence[Mapping[str, object]] = ()
    is_cleaned: bool = False
    details: Mapping[str, object] = field(default_factory=dict)
    stored: int = 0

    @classmethod
    def of(
        cls,
        kind: Format,
        body: Mapping[str, object],
        check: BodyCheck,
        stabilizer: Stabilizer,
        window: int | None = None,
        stored: int = 0,
    ) -> BodyTexts:
        """Create an instance for a body. Tools that take a large share of the budget are shortened.

        `stored` is the number of tokens that the provider stores and puts before the prompt.
        """
        counter, place = stabilizer.counter, kind.tools_at(body)
        given = cast("Sequence[object]", member_at(body, place))
        tools, details = tools_of_call(given, stabilizer, window, lambda said: bool(check.labels_in(said, Use.TEXT)))
        if details:
            body = copy_with(body, {place: tools})
        rest = {key: value for key, value in body.items() if key not in kind.read_by_adapter}
        outside = OutsideTexts.of(
            (
                place.path,
                Field(
                    place_name(place.path),
                    text,
                    editable=True,
                    is_identifier=False,
                    tokens=0,
                    words=place_in(body, place.path),
                ),
            )
            for place, text, use in texts_of(kind.searched(rest))
            if use is Use.TEXT and (not is_well_formed(text) or check.labels_in(text, Use.TEXT))
        )
        overhead = count_sent({**rest, kind.history: []}, kind, counter).tokens
        overhead = max(0, overhead + tools_beyond_estimate(body, kind, counter))
        if stored:
            details = {**details, "cached content": f"{stored:,} tokens, which the provider stores, by its own count"}
        beyond = outside.growth + overhead + stored
        return cls(kind, body, check, counter, outside, beyond, details=details, stored=stored)

    def write(self, changes: Mapping[Path, object], _instructions: str, native: Any) -> Mapping[str, object]:  # noqa: ANN401
        """Return the final body, in which no rule matches.

        Raises:
            CheckFailedError: If a rule matches in something that must not be changed.
        """
        written = copy_with(self.kind.written(self.body, native), changes)
        sent = self.check.clean(written, self.kind.searched(written))
        self.is_cleaned = sent is not written
        return sent

    def tokens(self, sent: Mapping[str, object], report: Report, *, is_changed: bool) -> int:
        """Return the number of input tokens in the final body.

        The body is counted again if the number in the report may be wrong: if `is_changed` is true, if values were
        redacted in the final body, or if the number is close to the budget. Otherwise the number in the report is
        returned.

        Args:
            sent: The final body.
            report: The report on the request.
            is_changed: Whether texts outside the history were masked.
        """
        if is_changed or self.is_cleaned or report.tokens_after > COUNTED_FROM * report.budget:
            return self.stored + count_sent(sent, self.kind, self.counter).tokens
        return report.tokens_after


_GENERATED: Final = "ctxguard.pii.detect.validate:generated"


class WireMasking:
    """Creates the masking stages for the guard, each of which replaces one masking stage of a stabilizer.

    A stage whose masker does not redact is kept. A masker that redacts would not allow restoring values, so its rules
    are used with another strategy.

    Attributes:
        detectors: The detectors of the stage.
    """

    def __init__(self, own: Masker, strategy: Strategies) -> None:
        self._own = own
        self._strategy = strategy
        self._is_own = own.strategy != "redact" or strategy == "redact"
        self.detectors: tuple[Detector, ...] = (
            own.detectors if self._is_own else tuple(map(with_examples, own.detectors))
        )

    def masker(self, vault: SessionVault | None, *, redacts: bool = False) -> Masker:
        """Return the masker for a request.

        Args:
            vault: Stores the placeholders. None derives them from each history alone.
            redacts: Whether values are redacted, so that no placeholders are assigned.
        """
        if self._is_own:
            own = self._own
            if not own.is_reversible or own.vault is not None or not (vault or redacts):
                return own
            return own.without_placeholders() if vault is None else own.with_vault(vault)
        strategy = "redact" if redacts else self._strategy
        return Masker(self.detectors, strategy=strategy, vault=vault, escape=self._own.escape)


def with_examples(detector: Detector) -> Detector:
    """Return a rule set that also matches keys that look like examples from documentation.

    Values are restored in the response, so masking an example costs nothing, while sending a real key would do harm.
    """
    if not isinstance(detector, RuleSet):
        return detector
    rules = tuple(replace(rule, validate=None) if rule.validate == _GENERATED else rule for rule in detector.rules)
    return detector if rules == detector.rules else replace(detector, rules=rules)
