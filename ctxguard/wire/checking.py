"""Check a request as it is sent: every text of its body is searched, independently of the masking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from ctxguard.adapting.editing import copy_with
from ctxguard.adapting.fields import Path, member_at, place_name
from ctxguard.adapting.request import COUNTED_FROM, Beside
from ctxguard.adapting.tool_schemas import tools_of_call
from ctxguard.artifacts import Field
from ctxguard.checks.no_pii import scan, shown_place
from ctxguard.errors import CheckFailedError
from ctxguard.formats.requests import count_sent, tools_beyond_estimate
from ctxguard.pii.identifiers import for_identifiers
from ctxguard.tokens.text_cache import TextCache
from ctxguard.wire.texts import Use, Values, texts_of

if TYPE_CHECKING:
    from ctxguard.formats.format import Format
    from ctxguard.pii import Detector
    from ctxguard.report import Report
    from ctxguard.stabilizer import Stabilizer
    from ctxguard.tokens import ArtifactCounter

TEXT_PATHS: Final = (
    *("/embeddings", "/completions", "/moderations", "/rerank", "/audio/speech", "/images/generations"),
    *("/messages/batches", ":embedContent", ":batchEmbedContents"),
    "/ps/mcp",  # servers of tools in the backend of ChatGPT
    *("/api/chat", "/api/generate", "/api/embed", "/api/embeddings"),  # of Ollama
)
"""Endings of the paths of requests that contain texts, but no history that could be cut. Their values are redacted, not
pseudonymized: the responses are not read, so values could not be restored in them."""


class BodyCheck:
    """Search bodies by the rules of a chain. Safe to share between threads; its caches are bounded."""

    def __init__(self, detectors: Sequence[Detector]) -> None:
        from ctxguard.pii import Masker

        strict = [for_identifiers(one) for one in detectors]
        self._by_use: dict[Use, Sequence[Detector]] = {
            Use.TEXT: detectors,
            Use.FIXED: [one for one in strict if one is not None],
        }
        self._clean: dict[Use, TextCache[bool]] = {use: TextCache() for use in Use}
        self._values = Values()
        self._clean_values: TextCache[bool] = TextCache()
        self._redacting = Masker(tuple(detectors)) if detectors else None

    def found(self, text: str, use: Use) -> Sequence[str]:
        """Return the labels of the findings in a text."""
        if not text or self._clean[use].get(text):
            return ()
        labels = [span.label for detector in self._by_use[use] for span in scan(detector, text)]
        if not labels:
            self._clean[use].put(text, value=True)
        return labels

    def cleaned(self, body: Mapping[str, object], searched: Mapping[str, object]) -> Mapping[str, object]:
        """Return a body in which no rule matches: texts that no stage reads are redacted here.

        Args:
            body: The body as it is written.
            searched: The part of it to search, see `Format.searched`.

        Raises:
            CheckFailedError: A rule matches in something that must not be changed: a name, an id, a link, a key.
        """
        if self._redacting is None:
            return body
        changes: dict[Path, object] = {}
        findings: list[str] = []
        members = [(path, value, self._values.key(value)) for path, value in _members(searched)]
        unknown = [(path, value, key) for path, value, key in members if key is None or not self._clean_values.get(key)]
        for place, text, use in (placed for path, value, _ in unknown for placed in texts_of(value, path)):
            labels = self.found(text, use)
            path = place.path if labels else ()
            if labels and use is Use.TEXT:
                changes[path] = self._redacting.mask(text)
                labels = self.found(str(changes[path]), use)
            findings += [f"{label} was found @ {self._place(path)}" for label in labels]
        if findings:
            raise CheckFailedError(tuple(findings))
        if not changes:
            for _, _, key in unknown:
                if key is not None:
                    self._clean_values.put(key, value=True)
        return copy_with(body, changes)

    def _place(self, path: Path) -> str:
        """Return a place without the keys in which a rule matches: they may come from the user."""
        place = place_name(path)
        return shown_place(place, self._by_use[Use.TEXT])


def _members(body: Mapping[str, object]) -> Iterator[tuple[Path, object]]:
    """Yield the values of a body, list items one by one, each with its key."""
    for key, value in body.items():
        if isinstance(value, list):
            yield from (((key, number), member) for number, member in enumerate(value))
        else:
            yield (), {key: value}


@dataclass(slots=True)
class BodyTexts:
    """The other parts of a body while its history is stabilized, see `ctxguard.adapting.adapter.Texts`.

    Attributes:
        kind: The format of the request.
        body: The original body, with the tools that are sent.
        check: Searches the body.
        counter: Counts it.
        beside: The texts outside the history (system prompt, tools) in which a rule matches.
        overhead: Tokens of the body without its history.
        tools: None, because the tools are counted in the overhead, not by the chain.
        is_cleaned: Whether the latest written body contained more than the chain saw.
        details: What the report says of them.
    """

    kind: Format
    body: Mapping[str, object]
    check: BodyCheck
    counter: ArtifactCounter
    beside: Beside
    overhead: int
    tools: Sequence[Mapping[str, object]] = ()
    is_cleaned: bool = False
    details: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        kind: Format,
        body: Mapping[str, object],
        check: BodyCheck,
        stabilizer: Stabilizer,
        window: int | None = None,
    ) -> BodyTexts:
        """Return the other parts of a body; its tools are shortened if they take a large share of the budget."""
        counter, place = stabilizer.counter, kind.tools_at(body)
        given = cast("Sequence[object]", member_at(body, place))
        tools, details = tools_of_call(given, stabilizer, window, lambda said: bool(check.found(said, Use.TEXT)))
        if details:
            body = copy_with(body, {place: tools})
        rest = {key: value for key, value in body.items() if key not in kind.read_by_adapter}
        beside = Beside.of(
            (place.path, Field(place_name(place.path), text, editable=True, is_identifier=False, tokens=0))
            for place, text, use in texts_of(kind.searched(rest))
            if use is Use.TEXT and check.found(text, Use.TEXT)
        )
        overhead = count_sent({**rest, kind.history: []}, kind, counter).tokens
        overhead = max(0, overhead + tools_beyond_estimate(body, kind, counter))
        return cls(kind, body, check, counter, beside, beside.growth + overhead, details=details)

    def written(self, changes: Mapping[Path, object], _instructions: str, native: Any) -> Mapping[str, object]:  # noqa: ANN401
        """Return the body as it is sent, in which no rule matches.

        Raises:
            CheckFailedError: A rule matches in something that must not be changed.
        """
        written = copy_with(self.kind.written(self.body, native), changes)
        sent = self.check.cleaned(written, self.kind.searched(written))
        self.is_cleaned = sent is not written
        return sent

    def tokens(self, sent: Mapping[str, object], report: Report, *, is_changed: bool) -> int:
        """Return the input tokens of the body, recounted as written if the chain did not see all of it."""
        if is_changed or self.is_cleaned or report.tokens_after > COUNTED_FROM * report.budget:
            return count_sent(sent, self.kind, self.counter).tokens
        return report.tokens_after
