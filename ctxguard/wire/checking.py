"""Judge a request as it is sent: every text of its body is searched, on a path of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ctxguard.adapting.editing import copy_with
from ctxguard.adapting.fields import Path, place_name
from ctxguard.checks.no_pii import scan
from ctxguard.errors import CheckFailedError
from ctxguard.pii.identifiers import for_identifiers
from ctxguard.tokens.text_cache import TextCache
from ctxguard.wire.texts import Use, Values, texts_of

if TYPE_CHECKING:
    from ctxguard.pii import Detector


class BodyCheck:
    """Search bodies by the rules of a chain. Safe to share between threads; what it remembers is bounded."""

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
        """Return the labels of what rules find in a text."""
        if not text or self._clean[use].get(text):
            return ()
        labels = [span.label for detector in self._by_use[use] for span in scan(detector, text)]
        if not labels:
            self._clean[use].put(text, value=True)
        return labels

    def cleaned(self, body: Mapping[str, object]) -> Mapping[str, object]:
        """Return a body in which no rule matches: texts that no stage reads are redacted here.

        Raises:
            CheckFailedError: A rule matches in what may not be changed: a name, an id, a link, a key.
        """
        if self._redacting is None:
            return body
        changes: dict[Path, object] = {}
        findings: list[str] = []
        members = [(path, value, self._values.key(value)) for path, value in _members(body)]
        unknown = [(path, value, key) for path, value, key in members if key is None or not self._clean_values.get(key)]
        for path, text, use in (placed for place, value, _ in unknown for placed in texts_of(value, place)):
            labels = self.found(text, use)
            if labels and use is Use.TEXT:
                changes[path] = self._redacting.mask(text)
                labels = self.found(str(changes[path]), use)
            findings += [f"{label} was found @ {_place(path)}" for label in labels]
        if findings:
            raise CheckFailedError(tuple(findings))
        if not changes:
            for _, _, key in unknown:
                if key is not None:
                    self._clean_values.put(key, value=True)
        return copy_with(body, changes)


def _members(body: Mapping[str, object]) -> Iterator[tuple[Path, object]]:
    """Walk what a body holds, the members of its lists one by one, each with the key that it stands under."""
    for key, value in body.items():
        if isinstance(value, list):
            yield from (((key, number), member) for number, member in enumerate(value))
        else:
            yield (), {key: value}


def _place(path: Path) -> str:
    """Return a place without keys of the user's own."""
    known = [key if isinstance(key, int) or (key.isidentifier() and len(key) < 32) else "…" for key in path]
    return place_name(tuple(known))
